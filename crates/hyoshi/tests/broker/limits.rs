//! Limits of each user: hostile users, through the real command.
//!
//! Users are numbers without other programs. A copy of this test program acts as that user.

use std::os::unix::net::UnixStream;

use hyoshi_broker::TaskSpec;
use hyoshi_broker::client::{BrokerClient, BrokerClientError};
use hyoshi_broker::component::ComponentSpec;
use hyoshi_broker::idl::cpu_broker::Broker as _;
use hyoshi_model::Span;
use hyoshi_orb::SystemKind;

use super::*;

/// Without a grant, and with that of `GROUP`.
pub const STRANGER: u32 = 61_001;
const OTHER: u32 = 61_002;
pub const GROUP: u32 = 61_000;

/// What [default] and [group.hyoshi] say, for a group that needs no name here.
const LIMITS: &str = "[group.61000]\nshare = \"50%\"\nimportance = 10\ntasks = 64\n";

/// Whether this test may start programs as another user.
pub fn impersonates() -> bool {
    let command = ["--reuid=61001", "--regid=61001", "--clear-groups", "true"];
    Command::new("setpriv").args(command).status().is_ok_and(|done| done.success())
}

/// A place that all users may read, with a broker that has these limits.
fn limited(limits: &str, more: &str) -> Option<(Place, Broker)> {
    if !impersonates() {
        eprintln!("not tested, needs root: other users cannot be impersonated");
        return None;
    }
    let place = Place::new();
    fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_hyoshi"), place.path().join("hyoshi")).unwrap();
    fs::copy(std::env::current_exe().unwrap(), place.path().join("test")).unwrap();
    place.write("limits.toml", limits);
    let broker = Broker::start(&place, &format!("--limits limits.toml --audit audit.log {more}"));
    Some((place, broker))
}

pub fn hyoshi(place: &Place, uid: u32, group: Option<u32>, words: &str) -> Command {
    let mut command = as_user(place, uid, group, "hyoshi");
    let (verb, rest) = words.split_once(' ').unwrap_or((words, ""));
    command.arg(verb).arg("--socket").arg(place.path().join("run/broker.sock")).args(rest.split_whitespace());
    command
}

/// One of the parts below; what it printed behind `did `.
fn plays(place: &Place, uid: u32, part: &str) -> Vec<u64> {
    let mut command = as_user(place, uid, None, "test");
    command.args(["--exact", "broker::limits::part", "--ignored", "--nocapture"]).env("HYOSHI_PART", part);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let did =
        said.lines().find_map(|line| line.split_once("did ")).unwrap_or_else(|| panic!("{part}: {said}")).1.to_owned();
    did.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

#[test]
#[ignore = "played by the tests, as another user"]
fn part() {
    let Ok(part) = std::env::var("HYOSHI_PART") else { return };
    let socket = std::env::current_dir().unwrap().join("run/broker.sock");
    let busy = |error: &BrokerClientError| matches!(error, BrokerClientError::System(why) if why.kind == SystemKind::Transient);
    let did = match part.split_once(' ').unwrap_or((&part, "")) {
        // Calls that were answered, and that were refused, within so many milliseconds.
        ("flood", millis) => {
            let client = BrokerClient::connect(Some(&socket)).unwrap();
            let until = Instant::now() + Duration::from_millis(millis.parse().unwrap());
            let mut did = [0, 0];
            while Instant::now() < until {
                let answer = client.broker().explain("none").map_err(BrokerClientError::from).unwrap_err();
                did[usize::from(busy(&answer))] += 1;
            }
            did.to_vec()
        }
        // Connections that stay open of so many.
        ("connect", count) => {
            let all: Vec<UnixStream> =
                (0..count.parse().unwrap()).filter_map(|_| UnixStream::connect(&socket).ok()).collect();
            let open = |stream: &UnixStream| {
                stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
                (&*stream).read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
            };
            vec![all.iter().filter(|stream| open(stream)).count() as u64]
        }
        // Tasks that were begun of so many, each with so many octets of settings; they have no processes.
        ("join", words) => {
            let words: Vec<usize> = words.split(' ').map(|word| word.parse().unwrap()).collect();
            let client = BrokerClient::connect(Some(&socket)).unwrap();
            let value = format!("{}5", "0".repeat(words[1]));
            let setting = ComponentSpec { kind: "max-decay".into(), parameters: vec![("reports".into(), value)] };
            let begun = (0..words[0]).filter(|number| {
                let joining = TaskSpec::new(&format!("t{number}"), Span::from_millis(100));
                client.join(&TaskSpec { advocates: vec![setting.clone()], ..joining }).is_ok()
            });
            vec![begun.count() as u64]
        }
        _ => panic!("there is no part {part}"),
    };
    println!("did {}", did.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
}

#[test]
fn a_user_without_a_grant_has_little_and_a_refusal_names_the_limit_its_file_and_the_command() {
    let Some((place, _broker)) = limited(LIMITS, "") else { return };
    let refused = |uid, group, words: &str, code| {
        let output = hyoshi(&place, uid, group, words).output().unwrap();
        Ended::of(words, &output).exits(code).err
    };
    let said = refused(STRANGER, None, "exec --name a --period 50ms --importance 2 -- true", 125);
    assert!(said.contains("importance 2 is above the limit 1 of users without an entry"), "{said}");
    assert!(said.contains("`importance` of [default] in limits.toml"), "{said}");
    assert!(said.contains("`sudo usermod -aG hyoshi 61001`"), "{said}");
    let _sleepers: Vec<Program> = (0..8)
        .map(|number| {
            let words = format!("exec --name s{number} --period 50ms -- sleep 1000");
            let program = Program::start(&mut hyoshi(&place, STRANGER, None, &words));
            task(&place, &format!("s{number}"), |task| reports(task) > 0);
            program
        })
        .collect();
    let said = refused(STRANGER, None, "exec --name s8 --period 50ms -- true", 125);
    assert!(said.contains("user 61001 already has 8 tasks, the limit"), "{said}");
    assert!(said.contains("`tasks` of [default] in limits.toml"), "{said}");
    // Others' limits are their own, and a group's members have more.
    let _other = Program::start(&mut hyoshi(&place, OTHER, None, "exec --name other --period 50ms -- sleep 1000"));
    task(&place, "other", |task| reports(task) > 0);
    let words = "exec --name member --period 50ms --importance 10 -- sleep 1000";
    let _member = Program::start(&mut hyoshi(&place, OTHER, Some(GROUP), words));
    task(&place, "member", |task| task["importance"] == 10);
    let said = refused(OTHER, Some(GROUP), "broker set member importance 11", 1);
    assert!(said.contains("importance 11 is above the limit 10 of group 61000"), "{said}");
    assert!(said.contains("`importance` of [group.61000] in limits.toml; root can raise it"), "{said}");
}

#[test]
fn users_hold_no_more_than_their_share_however_important_their_tasks_are_and_keep_their_limits_over_a_restart() {
    let Some((place, mut broker)) = limited(LIMITS, "--cap 100% --scheduler simulated") else { return };
    let held = |task: &Value| task["reserved"]["budget_ns"].as_u64().unwrap_or(0) as f64 / 50e6;
    let program = |uid, group, name: &str, more: &str| {
        let mut command = as_user(&place, uid, group, "hyoshi");
        command
            .args(["exec", "--name", name, "--period", "50ms", "--advocate", "rate 100%"])
            .args(more.split_whitespace());
        command.arg("--socket").arg(place.path().join("run/broker.sock")).args(["--", "sleep", "1000"]);
        let program = Program::start(&mut command);
        task(&place, name, |task| reports(task) > 1);
        program
    };
    let _users = [
        program(STRANGER, None, "stranger", ""),
        program(OTHER, None, "other", ""),
        program(STRANGER, Some(GROUP), "member", "--importance 10"),
        program(OTHER, Some(GROUP), "another", "--importance 10"),
    ];
    let mut roots = place.command("exec --name roots --period 50ms --advocate");
    roots.arg("rate 40%").arg("--socket").arg(place.path().join("run/broker.sock")).args(["--", "sleep", "1000"]);
    let _roots = Program::start(&mut roots);
    task(&place, "roots", |task| reports(task) > 1 && (held(task) - 0.4).abs() < 0.001);
    for round in 0..2 {
        let both = |one: &str, other: &str| held(&task(&place, one, |_| true)) + held(&task(&place, other, |_| true));
        assert!((both("stranger", "other") - 0.1).abs() < 0.001, "round {round}");
        assert!((both("member", "another") - 0.5).abs() < 0.001, "round {round}");
        let because = task(&place, "other", |_| true)["reason"].as_str().unwrap().to_owned();
        assert!(because.contains("the 10% of users without an entry leaves no more"), "{because}");
        broker.ends("-KILL");
        broker = Broker::start(&place, "--limits limits.toml --cap 100% --scheduler simulated");
        task(&place, "roots", |task| reports(task) > 1 && (held(task) - 0.4).abs() < 0.001);
    }
}

#[test]
fn a_program_of_roots_keeps_its_deadlines_beside_two_spinners_of_a_user() {
    if !common::real_time() {
        return;
    }
    let _alone = common::alone();
    let Some((place, _broker)) = limited(LIMITS, "--scheduler window") else { return };
    let words = |name: &str| format!("exec --name {name} --period 33ms --importance 10 -- sh -c");
    // Its parent is root's, to which it may send no signal.
    let spin = "while [ -d /proc/$PPID ]; do :; done";
    let _spinners: Vec<Program> = ["one", "two"]
        .map(|name| {
            let program = Program::start(hyoshi(&place, STRANGER, Some(GROUP), &words(name)).arg(spin));
            task(&place, name, |task| reports(task) > 3);
            program
        })
        .into();
    let glass = "hourglass --period 33ms --work 10ms --for 5s --format json";
    // Other tests, and the machine's other guests, take CPU time as well: one quiet round of three is enough. The spinners
    // never pause.
    let mut rounds = Vec::new();
    for _ in 0..3 {
        let mut command = exec(&place, "--name roots --period 33ms");
        command.arg(env!("CARGO_BIN_EXE_hyoshi")).args(glass.split_whitespace());
        let ended = Ended::of("hourglass", &command.output().unwrap()).exits(0);
        let last: Value = serde_json::from_str(ended.out.lines().last().unwrap()).unwrap();
        let (met, all) = (last["total"]["met"].as_u64().unwrap(), last["total"]["periods"].as_u64().unwrap());
        rounds.push(format!("{met} of {all}"));
        if met * 100 >= all * 90 {
            return;
        }
    }
    panic!("deadlines met in each round: {rounds:?}");
}

/// The figures are in docs/benchmarks.md.
#[test]
#[ignore = "takes a minute and a quiet machine"]
fn a_runaway_that_joined_first_leaves_steady_programs_their_deadlines() {
    if !common::real_time() {
        return;
    }
    const PROGRAMS: [(u64, u64); 3] = [(10, 33), (20, 100), (5, 50)];
    for policy in ["strict", "fair"] {
        let Some((place, _broker)) = limited(LIMITS, &format!("--scheduler window --policy {policy}")) else { return };
        let spin = "while :; do :; done";
        let spinner = || Program::start(Command::new("sh").args(["-c", spin]));
        let _spinners: Vec<Program> = (0..8).map(|_| spinner()).collect();
        let _runaway = Program::start(exec(&place, "--name runaway --period 33ms").args(["sh", "-c", spin]));
        task(&place, "runaway", |task| reports(task) > 10);
        let glasses = PROGRAMS.map(|(work, period)| {
            let mut command = exec(&place, &format!("--name p{period} --period {period}ms"));
            let words = format!("hourglass --period {period}ms --work {work}ms --for 20s --format json");
            command.arg(env!("CARGO_BIN_EXE_hyoshi")).args(words.split_whitespace()).stdout(Stdio::piped());
            command.spawn().unwrap()
        });
        let (mut met, mut all) = (0, 0);
        for glass in glasses {
            let ended = Ended::of("hourglass", &glass.wait_with_output().unwrap()).exits(0);
            let last: Value = serde_json::from_str(ended.out.lines().last().unwrap()).unwrap();
            met += last["total"]["met"].as_u64().unwrap();
            all += last["total"]["periods"].as_u64().unwrap();
        }
        println!("{policy}: {met} of {all} deadlines met");
        if policy == "fair" {
            assert!(met * 100 >= all * 95, "{met} of {all}");
        }
    }
}

#[test]
fn a_users_requests_connections_and_settings_are_bounded_and_others_go_on() {
    let limits = "[default]\nrequests = 100\nconnections = 10\nsettings = \"1000B\"\n";
    let Some((place, mut broker)) = limited(limits, "") else { return };
    let pid = broker.child.id();
    let before = cpu_time(pid);
    let did = plays(&place, STRANGER, "flood 2000");
    let (answered, refused) = (did[0], did[1]);
    eprintln!("{answered} answered, {refused} refused, for {:?} of the broker's CPU time", cpu_time(pid) - before);
    assert!((100..=400).contains(&answered) && refused > 300, "{answered} answered, {refused} refused");
    ask(&place, "broker list").exits(0);
    let said = hyoshi(&place, OTHER, None, "broker list").output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));

    assert_eq!(plays(&place, OTHER, "connect 40"), [10]);
    // Those connections are closed: their places are free again.
    wait_for(|| plays(&place, OTHER, "connect 5") == [5]).expect("it comes to pass");
    assert_eq!(plays(&place, 61_003, "join 8 300"), [3], "of 1,000 octets");
    assert_eq!(broker.ends("-TERM").code(), Some(0));
}

#[test]
fn a_user_who_is_refused_often_leaves_others_lines_in_the_audit_log() {
    let Some((place, mut broker)) = limited("[default]\ntasks = 0\n", "") else { return };
    assert_eq!(plays(&place, STRANGER, "join 900 1"), [0]);
    assert_eq!(plays(&place, OTHER, "join 1 1"), [0]);
    assert_eq!(broker.ends("-TERM").code(), Some(0));
    let lines: Vec<Value> = place.read("audit.log").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |uid: u32| lines.iter().filter(move |line| line["uid"] == uid);
    assert!(of(STRANGER).count() < 100, "{}", of(STRANGER).count());
    let logged = of(STRANGER).filter(|line| line["refused"].is_string()).count() as u64;
    assert_eq!(logged + of(STRANGER).filter_map(|line| line["dropped"].as_u64()).sum::<u64>(), 900);
    assert_eq!(of(OTHER).count(), 1);
}

#[test]
fn while_a_user_has_too_many_threads_nothing_is_reserved_for_them() {
    let Some((place, _broker)) = limited("[default]\nthreads = 5\n", "--scheduler simulated") else { return };
    let script = "sleep 1000 & sleep 1000 & while [ ! -e more ]; do sleep 0.05; done; \
                  for i in 1 2 3 4 5; do sleep 1000 & more=\"$more $!\"; done; \
                  while [ ! -e fewer ]; do sleep 0.05; done; kill $more; sleep 1000";
    let mut command = as_user(&place, STRANGER, None, "hyoshi");
    command.args(["exec", "--name", "forks", "--period", "50ms", "--advocate", "rate 5%"]);
    command.arg("--socket").arg(place.path().join("run/broker.sock")).args(["--", "sh", "-c", script]);
    let _forks = Program::start(&mut command);
    let held = |task: &Value| task["reserved"]["budget_ns"].as_u64().unwrap_or(0);
    task(&place, "forks", |task| held(task) == 2_500_000);
    place.write("more", "");
    let crowded = task(&place, "forks", |task| held(task) == 0);
    let because = crowded["reason"].as_str().unwrap();
    assert!(
        because.contains("user 61001 has more than 5 threads in tasks, `threads` of [default] in limits.toml"),
        "{because}"
    );
    place.write("fewer", "");
    task(&place, "forks", |task| held(task) == 2_500_000);
}

#[test]
fn operators_who_are_not_root_name_only_what_root_has_listed() {
    let limits = "[operators]\nlibraries = [\"/usr/lib/hyoshi/\"]\nobjects = [\"corbaloc:iiop:127.0.0.1:1/x\"]\n";
    let Some((place, _broker)) = limited(limits, "--operators 61000") else { return };
    let sleeper = Program::start(Command::new("sleep").arg("1000"));
    ask(&place, &format!("attach {} --name a --period 50ms", sleeper.0.id())).exits(0);
    let by_operator = |words: &str, code| {
        let output = hyoshi(&place, STRANGER, Some(GROUP), words).output().unwrap();
        Ended::of(words, &output).exits(code).err
    };
    for (words, named) in [
        (
            "broker advocate add a external --object corbaloc:iiop:127.0.0.1:2/x",
            "external `corbaloc:iiop:127.0.0.1:2/x`",
        ),
        ("broker advocate add a library --path /tmp/evil.so", "library `/tmp/evil.so`"),
        ("broker policy set library --path /usr/lib/hyoshi/../../../tmp/evil.so", "library `/usr/lib/hyoshi/../"),
        ("broker policy set external --object corbaloc:iiop:127.0.0.1:2/x", "external `corbaloc:"),
    ] {
        let said = by_operator(words, 1);
        assert!(said.contains(named) && said.contains("operators may not use"), "{words}: {said}");
        assert!(said.contains("of [operators] in limits.toml"), "{said}");
    }
    by_operator("broker advocate add a external --object corbaloc:iiop:127.0.0.1:1/x", 0);
    // A listed library is looked for.
    let said = by_operator("broker advocate add a library --path /usr/lib/hyoshi/none.so", 1);
    assert!(said.contains("/usr/lib/hyoshi/none.so cannot be read"), "{said}");
    ask(&place, "broker policy set external --object corbaloc:iiop:127.0.0.1:2/x").exits(0);
}

#[test]
fn a_file_of_limits_is_checked_and_one_that_others_could_change_is_refused() {
    let place = Place::new();
    let check = |words: &str, code| {
        let ended = place.hyoshi(&format!("broker check-config {words}")).exits(code);
        format!("{}{}", ended.out, ended.err)
    };
    place.write("limits.toml", "[default]\nshare = \"5%\"\n[user.61001]\nshare = \"96%\"\n");
    let said = check("limits.toml", 0);
    assert!(said.contains("user.61001") && said.contains("96%") && said.contains("group.hyoshi"), "{said}");
    assert!(said.contains("the shares add up to 151% of the cap"), "{said}");
    place.write("wrong.toml", "[default]\nshares = \"5%\"\n");
    let said = check("wrong.toml", 2);
    assert!(said.contains("unknown field `shares`") && said.contains("wrong.toml:2:1"), "{said}");
    assert!(check("none.toml", 2).contains("there is no file none.toml"));
    fs::set_permissions(place.path().join("limits.toml"), std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let said = check("limits.toml", 2);
    assert!(said.contains("other users could replace it") && said.contains("chmod go-w"), "{said}");
    let refused = place.hyoshi("broker --scheduler none --limits limits.toml --socket run/broker.sock").exits(2).err;
    assert!(refused.contains("other users could replace it"), "{refused}");
    assert!(!place.has("run"));
}
