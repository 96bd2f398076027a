//! Lanes of `hyoshi run` are above windows, and the broker leaves room for them: with real-time priorities, else it says that it skips.

use super::*;

/// Promised half of a CPU, of which it takes almost nothing.
const FLIGHT: &str = "name = 'flight'\nduration = '100s'\n\
                      [operation.steer]\nevery = '20ms'\nwcet = '10ms'\ntakes = '100us'\n";

struct Run(Child);

impl Run {
    fn start(place: &Place) -> Run {
        place.write("flight.toml", FLIGHT);
        let mut command = place.command("run flight.toml --no-report --format json --socket");
        command.arg(place.path().join("run/broker.sock"));
        Run(command.stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Ends it as it wants to, and reads its report.
    fn ends(mut self) -> Value {
        kill(self.0.id(), "-TERM");
        let said = Said::by(self.0.stdout.take().unwrap()).rest();
        serde_json::from_str(&said).unwrap()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The run that the broker counts on.
fn counted(place: &Place) -> Option<Value> {
    let broker = ask(place, "broker show --format json").exits(0).json()["broker"].clone();
    broker["runs"].as_array().unwrap().first().cloned()
}

fn budgets(place: &Place) -> Vec<u64> {
    let tasks = ask(place, "broker list --format json").exits(0).json()["tasks"].clone();
    tasks.as_array().unwrap().iter().map(|task| task["reserved"]["budget_ns"].as_u64().unwrap() / 1_000_000).collect()
}

#[test]
fn windows_give_way_to_the_lanes_of_a_run_for_as_long_as_it_lives_and_explain_names_it() {
    if !common::real_time() {
        return;
    }
    let place = Place::new();
    let cpus = hyoshi_os::allowed_cpus();
    let options = format!("--scheduler window --cap {}%", cpus.len() * 100);
    let mut broker = Broker::start(&place, &options);
    // One for each CPU; they hold their windows asleep.
    let programs: Vec<Program> = (0..cpus.len())
        .map(|number| {
            let mut command = place.command(&format!("exec --name t{number} --period 100ms --socket"));
            command.arg(place.path().join("run/broker.sock"));
            Program::start(command.args(["--advocate", "rate 80%", "--", "sleep", "1000"]))
        })
        .collect();
    let whole = vec![80; cpus.len()];
    wait_for(|| budgets(&place) == whole).unwrap_or_else(|| panic!("{:?}", budgets(&place)));
    assert_eq!(counted(&place), None);

    let run = Run::start(&place);
    wait_for(|| counted(&place).is_some()).expect("the run tells the broker");
    let seen = counted(&place).unwrap();
    assert_eq!(
        (&seen["name"], &seen["process"], &seen["counted"]),
        (&"flight".into(), &run.0.id().into(), &true.into())
    );
    let takes = seen["shares"][0]["millionths"].as_u64().unwrap();
    assert!((500_000..600_000).contains(&takes), "{seen}");
    let held = budgets(&place);
    assert!(held.iter().filter(|held| (1..45).contains(*held)).count() == 1, "one is on the run's CPU: {held:?}");
    assert!(held.iter().filter(|held| **held == 80).count() == cpus.len() - 1, "{held:?}");
    let cut = format!("t{}", held.iter().position(|held| *held < 80).unwrap());
    let words = ask(&place, &format!("broker explain {cut}")).exits(0).out;
    let blamed = format!("above all windows: lanes of run `flight` (process {}) use 5", run.0.id());
    assert!(words.contains(&blamed), "{words}");
    let shown = ask(&place, "broker show").exits(0).out;
    assert!(shown.contains(&format!("lanes       of run flight, process {}: 5", run.0.id())), "{shown}");
    let listed = ask(&place, "broker list").exits(0).out;
    assert!(listed.contains("lanes of run `flight`"), "{listed}");

    // It is taken back, and the report tells of it.
    let report = run.ends();
    let notes = report["notes"].as_array().unwrap();
    let printed =
        notes.iter().any(|note| note["topic"] == "lanes" && note["text"].to_string().contains("leaves room for them"));
    assert!(printed, "{notes:#?}");
    assert_eq!((counted(&place), budgets(&place)), (None, whole.clone()));

    // The next broker hears of a run that was there before it; one that is killed takes nothing any more.
    let run = Run::start(&place);
    wait_for(|| counted(&place).is_some()).expect("the run tells the broker");
    broker.ends("-KILL");
    broker = Broker::start(&place, &options);
    wait_for(|| counted(&place).is_some()).expect("the run tells the next broker");
    wait_for(|| budgets(&place).iter().any(|held| *held < 45)).expect("it is counted again");
    drop(run);
    wait_for(|| budgets(&place) == whole).unwrap_or_else(|| panic!("{:?}", budgets(&place)));
    assert_eq!(counted(&place), None);
    drop(programs);
    broker.ends("-TERM");
}

#[test]
fn a_broker_that_is_stopped_holds_up_no_run_and_the_report_tells() {
    if !common::real_time() {
        return;
    }
    let place = Place::new();
    let broker = Broker::start(&place, "--scheduler simulated");
    kill(broker.child.id(), "-STOP");
    place.write("brief.toml", FLIGHT.replace("100s", "100ms"));
    let mut command = place.command("run brief.toml --no-report --format json --socket");
    let mut run = Run(command.arg(place.path().join("run/broker.sock")).stdout(Stdio::piped()).spawn().unwrap());
    let report: Value = serde_json::from_str(&Said::by(run.0.stdout.take().unwrap()).rest()).unwrap();
    let note = report["notes"].as_array().unwrap().iter().find(|note| note["topic"] == "lanes").unwrap();
    assert!(note["text"].to_string().contains("no answer within 500 ms"), "{note}");
    drop(broker);
}
