//! `docs/json.md` names every key that is written, and no other.

mod flight;

use std::collections::BTreeSet;
use std::path::Path;

use flight::flight;
use hyoshi_report::Checked;
use serde_json::Value;

fn keys(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            into.insert(key.clone());
            keys(value, into);
        }),
        Value::Array(values) => values.iter().for_each(|value| keys(value, into)),
        _ => {}
    }
}

/// The first words in backticks of the lines of tables.
fn documented(part: &str) -> BTreeSet<String> {
    let cells = part.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    cells.map(str::to_string).collect()
}

fn doc() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn every_key_of_a_run_is_documented_and_every_documented_key_is_written() {
    let flight = flight();
    let mut account = flight.account();
    account.started_unix_ns = Some(1);
    let mut written = BTreeSet::new();
    keys(&serde_json::from_str(&account.summary().json()).unwrap(), &mut written);
    let doc = doc();
    let (run, _) = doc.split_once("## `check`").unwrap();
    assert_eq!(documented(run), written);
}

#[test]
fn every_key_of_a_check_is_documented() {
    let flight = flight();
    let report = hyoshi_sched::analyse(&flight.system, &flight.plan);
    let json = Checked { command: "hyoshi check", system: &flight.system, report: &report }.json();
    let mut written = BTreeSet::new();
    keys(&serde_json::from_str(&json).unwrap(), &mut written);
    let documented = documented(&doc());
    let missing: Vec<_> = written.difference(&documented).collect();
    assert!(missing.is_empty(), "docs/json.md says nothing of {missing:?}");
}
