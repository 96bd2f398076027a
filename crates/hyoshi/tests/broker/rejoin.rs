//! Tasks outlive their broker.

use hyoshi_broker::TaskSpec;
use hyoshi_broker::client::BrokerClient;
use hyoshi_broker::idl::cpu_broker::{CycleReport, Task as _};
use hyoshi_model::Span;

use super::*;

/// What people set of a task, and what is reserved for it.
fn set(task: &Value) -> [&Value; 7] {
    ["processes", "user", "importance", "weight", "group", "advocates", "reserved"].map(|name| &task[name])
}

/// All tasks, at once: what is there when the broker says that it serves.
fn names(place: &Place) -> Vec<String> {
    let tasks = ask(place, "broker list --format json").exits(0).json()["tasks"].clone();
    tasks.as_array().unwrap().iter().map(|task| task["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_next_broker_finds_tasks_again_with_their_settings_and_reservations() {
    let place = Place::new();
    let mut broker = Broker::start(&place, "--scheduler simulated");
    let mut command = exec(&place, "--name a --period 40ms --importance 5");
    let mut program = Program::start(command.args(["sh", "-c", SPIN]));
    let mut brief = spinner(&place, "--name brief --period 50ms");
    task(&place, "brief", |task| reports(task) > 0);
    task(&place, "a", |task| reports(task) > 0);
    ask(&place, "broker set a weight 7").exits(0);
    ask(&place, "broker advocate add a rate 30%").exits(0);
    ask(&place, "broker advocate remove a 0").exits(0);
    ask(&place, "broker policy set weighted --cap 90%").exits(0);
    let before = task(&place, "a", |task| task["reserved"]["budget_ns"] == 12_000_000);
    assert_eq!((&before["weight"], &before["advocates"]), (&7.into(), &serde_json::json!(["rate 30%"])));
    for signal in ["-KILL", "-TERM"] {
        broker.ends(signal);
        brief.0.kill().unwrap();
        brief.0.wait().unwrap();
        broker = Broker::start(&place, "--scheduler simulated");
        assert_eq!(names(&place), ["a"], "{signal}: those that have ended are gone");
        let after = ask(&place, "broker show a --format json").exits(0).json()["task"].clone();
        assert_eq!(set(&after), set(&before), "{signal}");
        let standing = ask(&place, "broker show --format json").json()["broker"].clone();
        assert_eq!((&standing["policy"], &standing["cap_millionths"]), (&"weighted".into(), &900_000.into()));
        task(&place, "a", |task| reports(task) > 2 && task["consumed_ns"].as_u64() > Some(0));
        brief = spinner(&place, "--name brief --period 50ms");
        let other = task(&place, "brief", |task| reports(task) > 0);
        assert_eq!(other["processes"][0], brief.0.id());
    }
    ask(&place, "broker detach a").exits(0);
    assert!(program.0.try_wait().unwrap().is_none(), "it goes on");
    broker.ends("-KILL");
    broker = Broker::start(&place, "--scheduler simulated --policy strict");
    assert_eq!(names(&place), ["brief"], "what was detached stays so");
    assert_eq!(ask(&place, "broker show --format json").json()["broker"]["policy"], "strict", "the command line's");
    broker.ends("-TERM");
    broker = Broker::start(&place, "--scheduler simulated --forget");
    assert_eq!(names(&place), [""; 0]);
    broker.ends("-KILL");
    let _broker = Broker::start(&place, "--scheduler simulated");
    assert_eq!(names(&place), [""; 0]);
}

#[test]
fn beside_a_program_it_is_said_when_the_next_broker_has_it_and_nothing_when_that_forgot_it() {
    let place = Place::new();
    let mut broker = Broker::start(&place, "");
    let mut command = exec(&place, "--name steady --period 50ms");
    let child = command.args(["sh", "-c", "read line"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut program = Program::start(child);
    task(&place, "steady", |task| reports(task) > 0);
    let said = Said::by(program.0.stderr.take().unwrap());
    let says = |what: &str| {
        let line = said.line().unwrap();
        assert!(line.contains(what), "{line}");
    };
    for _ in 0..2 {
        broker.ends("-KILL");
        says("the broker has ended; steady");
        broker = Broker::start(&place, "");
        says("a broker runs again; steady");
    }
    broker.ends("-KILL");
    says("the broker has ended; steady");
    let broker = Broker::start(&place, "--forget");
    wait_for(|| is_watched(&program, &broker)).expect("it is seen who serves now");
    drop(program.0.stdin.take());
    program.0.wait().unwrap();
    assert_eq!(said.rest(), "");
}

/// The process beside the program waits for the broker's end: it has asked it.
fn is_watched(program: &Program, broker: &Broker) -> bool {
    let beside = format!("exec-watch\0{}\0", program.0.id());
    let line = format!("Pid:\t{}", broker.child.id());
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok).map(|entry| entry.path());
    let mut watches = processes.filter(|process| {
        let command = fs::read(process.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).contains(&beside)
    });
    watches.any(|process| {
        let descriptors = fs::read_dir(process.join("fdinfo")).into_iter().flatten().filter_map(Result::ok);
        let mut printed = descriptors.filter_map(|entry| fs::read_to_string(entry.path()).ok());
        printed.any(|printed| printed.lines().any(|is| is == line))
    })
}

#[test]
fn a_program_that_reports_goes_on_reporting_to_the_next_broker() {
    let place = Place::new();
    let mut broker = Broker::start(&place, "");
    let client = BrokerClient::connect(Some(&place.path().join("run/broker.sock"))).unwrap();
    let own = client.join(&TaskSpec::new("own", Span::from_millis(50))).unwrap();
    own.add_process(std::process::id(), 0).unwrap();
    let cycle = CycleReport { consumed: 10_000_000, cycles: 1, mode: -1, numbers: vec![] };
    assert_eq!(own.report(&cycle).unwrap().requested.budget, 10_500_000);
    broker.ends("-KILL");
    assert!(own.report(&cycle).is_err(), "there is none");
    let _broker = Broker::start(&place, "");
    // One with the same period, for which the broker reports: it has come by that one's periods, too.
    let _other = spinner(&place, "--name other --period 50ms");
    task(&place, "other", |task| reports(task) >= 5);
    assert_eq!(own.status().unwrap().reports, 0, "the broker does not report for it");
    assert_eq!(own.report(&cycle).unwrap().requested.budget, 10_500_000, "by the reference that it had");
    own.leave().unwrap();
    assert_eq!(names(&place), ["other"]);
}

#[test]
fn a_hard_task_that_cannot_be_capped_now_is_soft_and_stays_noted_as_hard() {
    let place = Place::new();
    let mut broker = Broker::start(&place, "--scheduler simulated");
    let _program = spinner(&place, "--name a --period 50ms");
    task(&place, "a", |task| reports(task) > 0);
    broker.ends("-KILL");
    let (roster, hard) = ("run/state/tasks", "\"hard\":true");
    place.write(roster, place.read(roster).replace("\"hard\":false", hard));
    assert!(place.read(roster).contains(hard));
    let mut command = place.command("broker --scheduler simulated --socket");
    let mut broker = Broker::of(command.arg(place.path().join("run/broker.sock")).stderr(Stdio::piped()));
    let printed = task(&place, "a", |task| reports(task) > 0);
    assert!(printed["reserved"]["budget_ns"].as_u64() > Some(0), "{printed}");
    ask(&place, "broker set a weight 7").exits(0);
    broker.ends("-TERM");
    let said = Said::by(broker.child.stderr.take().unwrap()).rest();
    assert!(said.contains("restored hard task a as a soft task: cannot cap the CPU time of the task: "), "{said}");
    let noted = place.read(roster);
    assert!(noted.lines().any(|line| line.contains("\"weight\":7") && line.contains(hard)), "{noted}");
}

#[test]
fn a_damaged_roster_is_set_aside_with_a_warning_and_the_rest_is_found() {
    let place = Place::new();
    let mut broker = Broker::start(&place, "");
    let _program = spinner(&place, "--name a --period 50ms");
    task(&place, "a", |task| reports(task) > 0);
    broker.ends("-KILL");
    let roster = "run/state/tasks";
    place.write(roster, place.read(roster) + "task {\"id\":\n");
    let mut command = place.command("broker --scheduler none --socket");
    let mut broker = Broker::of(command.arg(place.path().join("run/broker.sock")).stderr(Stdio::piped()));
    assert_eq!(names(&place), ["a"]);
    broker.ends("-TERM");
    let said = Said::by(broker.child.stderr.take().unwrap()).rest();
    assert!(
        said.contains("is unreadable; the file is stored as ") && said.contains("tasks.damaged; restored 1 tasks"),
        "{said}"
    );
    assert!(said.contains("restored tasks of the previous broker: a\n"), "{said}");
    assert!(place.has("run/state/tasks.damaged"));
}
