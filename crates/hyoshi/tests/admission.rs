//! Operations on standby: `hyoshi node admit` and `hyoshi node withdraw` during a run.

use std::time::Duration;

use serde_json::Value;

use crate::common::running::{Running, start, until};
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

fn node(place: &Place, verb: &str) -> Ended {
    place.hyoshi(&format!("node {verb} --at unix:{}/run.sock", place.path().display()))
}

/// Waits until the run has lasted for this time.
fn until_it_lasted(place: &Place, run: &mut Running, time: Duration) {
    until("the run", || {
        run.goes_on();
        let shown = node(place, "show --format json");
        (shown.code == 0 && u128::from(shown.json()["node"]["running_ns"].as_u64().unwrap()) > time.as_nanos())
            .then_some(())
    });
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
    let mut run = start(&place, &words);
    until_it_lasted(&place, &mut run, Duration::from_secs(1));
    let admitted = node(&place, "admit zoom").exits(0);
    assert!(admitted.out.starts_with("admitted zoom with ") && admitted.out.contains(" Hz, "), "{}", admitted.out);
    let refused = |verb: &str, why: &str, remedy: &str| {
        let ended = node(&place, verb).exits(2);
        assert!(ended.err.contains(why) && ended.err.contains(remedy), "{verb}: {}", ended.err);
    };
    refused("admit zoom", "the operation is already admitted", "hyoshi node withdraw");
    refused("admit film", "above the loop's limit of 56.4%", "withdraw another operation first");
    refused("withdraw film", "the operation is not admitted", "hyoshi node admit");
    refused("admit track", "operation `track` is not on standby", "standby = true");
    refused("withdraw enlarge", "operation `enlarge` is not on standby", "standby = true");
    refused("admit nothing", "the system has no operation `nothing`", "standby = true");
    until_it_lasted(&place, &mut run, Duration::from_secs(2));
    let withdrawn = node(&place, "withdraw zoom --format json").exits(0).json();
    assert_eq!(withdrawn["withdrawn"], "zoom");
    until_it_lasted(&place, &mut run, Duration::from_secs(3));
    let again = node(&place, "admit zoom --format json").exits(0).json();
    let period = again["period_ns"].as_u64().unwrap();
    assert!(again["admitted"] == "zoom" && (20_000_000..=100_000_000).contains(&period), "{again}");
    until_it_lasted(&place, &mut run, Duration::from_secs(4));
    // The exit code depends on whether a job was late.
    node(&place, "stop").exits(0);
    let report = run.end("run").json();
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
