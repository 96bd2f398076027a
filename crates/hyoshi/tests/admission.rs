//! Operations on standby: `hyoshi node admit` and `hyoshi node withdraw` during a run.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Ended, Place, alone};

/// At the lowest rates 1 % of `track`, 3 % of `zoom` with `enlarge`, and 60 % of `film`. The limit is 56.4 % of the CPU.
const SYSTEM: &str = r#"
name     = "admission"
duration = "60s"

[processor.main]

[feedback.main]
algorithm   = "FC-U"
utilisation = "60%"
period      = "200ms"
measure     = "lanes"

[operation.track]
rate = ["10Hz", "100Hz"]
wcet = "1ms"

[operation.zoom]
standby = true
rate    = ["10Hz", "50Hz"]
wcet    = "2ms"

[operation.enlarge]
after = { all = ["zoom"] }
wcet  = "1ms"

[operation.film]
standby = true
rate    = ["40Hz", "50Hz"]
wcet    = "15ms"
"#;

/// A run that is killed with its test.
struct Run<'a> {
    place: &'a Place,
    child: Child,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl<'a> Run<'a> {
    fn start(place: &'a Place, words: &str) -> Run<'a> {
        let mut command = place.command(words);
        Run { place, child: command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap() }
    }

    fn node(&self, verb: &str) -> Ended {
        self.place.hyoshi(&format!("node {verb} --at unix:{}/run.sock", self.place.path().display()))
    }

    /// Waits until the run has lasted for this time.
    fn until(&self, time: Duration) {
        let began = Instant::now();
        loop {
            let shown = self.node("show --format json");
            if shown.code == 0 && shown.json()["node"]["running_ns"].as_u64().unwrap() > time.as_nanos() as u64 {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{}", shown.err);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn end(mut self) -> Ended {
        self.node("stop").exits(0);
        let child = std::mem::replace(&mut self.child, Command::new("true").spawn().unwrap());
        Ended::of("run", &child.wait_with_output().unwrap())
    }
}

fn outcomes(report: &Value) -> Vec<(String, String)> {
    let all = report["processors"][0]["feedback"]["admissions"].as_array().unwrap();
    let text = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
    all.iter().map(|one| (text(one, "operation"), text(one, "outcome"))).collect()
}

#[test]
fn operations_are_admitted_and_withdrawn_while_a_system_runs() {
    let _alone = alone();
    let place = Place::new();
    place.write("admission.toml", SYSTEM);
    let words = format!(
        "run admission.toml --control {}/run.sock --record run.hyo --no-report --format json",
        place.path().display()
    );
    let run = Run::start(&place, &words);
    run.until(Duration::from_secs(1));
    let admitted = run.node("admit zoom").exits(0);
    assert!(admitted.out.starts_with("admitted zoom with ") && admitted.out.contains(" Hz, "), "{}", admitted.out);
    let refused = |verb: &str, why: &str, remedy: &str| {
        let ended = run.node(verb).exits(2);
        assert!(ended.err.contains(why) && ended.err.contains(remedy), "{verb}: {}", ended.err);
    };
    refused("admit zoom", "the operation is already admitted", "hyoshi node withdraw");
    refused("admit film", "above the loop's limit of 56.4%", "withdraw another operation first");
    refused("withdraw film", "the operation is not admitted", "hyoshi node admit");
    refused("admit track", "operation `track` is not on standby", "standby = true");
    refused("withdraw enlarge", "operation `enlarge` is not on standby", "standby = true");
    refused("admit nothing", "the system has no operation `nothing`", "standby = true");
    run.until(Duration::from_secs(2));
    let withdrawn = run.node("withdraw zoom --format json").exits(0).json();
    assert_eq!(withdrawn["withdrawn"], "zoom");
    run.until(Duration::from_secs(3));
    let again = run.node("admit zoom --format json").exits(0).json();
    let period = again["period_ns"].as_u64().unwrap();
    assert!(again["admitted"] == "zoom" && (20_000_000..=100_000_000).contains(&period), "{again}");
    run.until(Duration::from_secs(4));
    // The exit code depends on whether a job was late.
    let report = run.end().json();
    assert_eq!(report["interrupted"], true);
    let expected = [
        ("zoom", "admitted"),
        ("zoom", "refused"),
        ("film", "refused"),
        ("film", "refused"),
        ("zoom", "withdrawn"),
        ("zoom", "admitted"),
    ];
    let expected = expected.map(|(operation, outcome)| (operation.to_owned(), outcome.to_owned()));
    assert_eq!(outcomes(&report), expected);
    let released = |name: &str| {
        let operations = report["operations"].as_array().unwrap();
        let one = operations.iter().find(|one| one["name"] == name).unwrap();
        one["counts"]["released"].as_u64().unwrap()
    };
    assert!(released("zoom") >= 10 && released("enlarge") >= 9 && released("film") == 0, "{report:#}");
    let rates = report["processors"][0]["feedback"]["rates"].as_array().unwrap();
    let standby: Vec<_> = rates.iter().filter(|one| one["standby"] == true).map(|one| &one["operation"]).collect();
    assert_eq!(standby, ["film"]);
    let notes = report["notes"].as_array().unwrap();
    let note = |text: &str| notes.iter().any(|note| note["text"].as_str().unwrap().contains(text));
    assert!(note("`film` was refused at") && note("`zoom` was withdrawn at"), "{notes:?}");
    place.hyoshi("trace replay run.hyo").exits(0);
    // The recorded requests, and new decisions.
    let again = place.hyoshi("sim --from run.hyo --format json").json();
    assert_eq!(outcomes(&again), expected);
    let frozen = place.hyoshi("run admission.toml --freeze frozen.toml").exits(2);
    assert!(frozen.err.contains("cannot freeze the rate of `zoom`, which is on standby"), "{}", frozen.err);
}
