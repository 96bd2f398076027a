//! What `check` prints of systems that hold, do not, and are unknown.

use hyoshi_model::{System, read};
use hyoshi_report::{Checked, Look};
use hyoshi_sched::{Plan, Report, Strategies, analyse};

fn checked(operations: &str) -> (System, Report) {
    let text = format!("name = 'small'\n{operations}");
    let system = read(&text, "small.toml", None).unwrap().system;
    let plan = Plan::new(&system, &Strategies::default()).unwrap();
    let report = analyse(&system, &plan);
    (system, report)
}

fn shown(operations: &str) -> String {
    let (system, report) = checked(operations);
    Checked { command: "hyoshi check small.toml", system: &system, report: &report }.terminal(Look::PLAIN)
}

const FITS: &str = "
[processor.main]
cap = '100%'
[operation.nav]
every = '10ms'
wcet = '2ms'
critical = true
count = 3
[operation.log]
after = { all = ['nav.1'] }
wcet = '1ms'
[chain.see]
path = ['nav.1', 'log']
deadline = '20ms'
";

#[test]
fn a_system_that_holds_shows_bounds_and_slack() {
    let text = shown(FITS);
    assert!(text.contains("Holds: every critical operation and chain is proved"), "{text}");
    assert!(text.contains("nav (3)") && text.contains("see") && text.contains("This rests on"), "{text}");
}

#[test]
fn a_system_that_does_not_hold_names_what_fails_and_why() {
    let text = shown(&FITS.replace("wcet = '2ms'", "wcet = '4ms'"));
    assert!(text.contains("Does not hold: nav."), "{text}");
}

#[test]
fn json_has_the_verdict_and_every_scene() {
    let (system, report) = checked(FITS);
    let json = Checked { command: "hyoshi check small.toml", system: &system, report: &report }.json();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["holds"], &json["hyoshi"]["verb"]), (&true.into(), &"check".into()));
    assert_eq!(json["scenes"][0]["processors"][0]["operations"].as_array().unwrap().len(), 4);
}
