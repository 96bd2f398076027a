//! What `check` prints of systems that hold, do not, and are unknown.

use hyoshi_model::{System, read};
use hyoshi_report::{Checked, TerminalStyle};
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
    Checked::new("hyoshi check small.toml", &system, &report).terminal(TerminalStyle::PLAIN)
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
    assert!(text.contains("Does not hold: main: worst cases of critical jobs alone need 120.00 %"), "{text}");
    let text =
        shown(&FITS.replace("wcet = '2ms'", "wcet = '4ms'").replace("cap = '100%'", "cap = '100%'\nhard_cap = '100%'"));
    assert!(text.contains("Does not hold: nav."), "{text}");
}

#[test]
fn json_has_the_verdict_and_every_scene() {
    let (system, report) = checked(FITS);
    let json = Checked::new("hyoshi check small.toml", &system, &report).json();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["holds"], &json["hyoshi"]["verb"]), (&true.into(), &"check".into()));
    assert_eq!(json["scenes"][0]["processors"][0]["operations"].as_array().unwrap().len(), 4);
}

#[test]
fn two_strategies_show_what_each_proves_alone_and_what_switches_leave() {
    let text = shown(
        "
[processor.main]
strategy = ['RMS', 'RMS+MLF']
cap = '100%'
hard_cap = '100%'
[operation.steer]
every = '40ms'
wcet = '10ms'
critical = true
[operation.log]
every = '20ms'
wcet = '16ms'
",
    );
    assert!(text.contains("RMS, RMS+MLF") && text.contains("across switches"), "{text}");
    let steer = text.lines().skip_while(|line| !line.contains("first alone")).find(|line| line.contains("steer"));
    let words: Vec<&str> = steer.unwrap().split_whitespace().collect();
    assert_eq!(words[..2], ["steer", "critical"], "{text}");
    assert_eq!((words[2], words[3..5].join(" ").as_str()), ("fails", "proved 10ms"), "{text}");
    assert_eq!(words.last(), Some(&"unknown"), "{text}");
}

/// Compares with a file beside this one; `BLESS=1` writes it anew.
fn golden(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(golden == text, "{name} differs (BLESS=1 if that is meant):\n{text}");
}

#[test]
fn a_terminal_shows_margins_chains_and_sources_as_the_golden_files_say() {
    let (system, report) = checked(&format!("{FITS}max_reaction = '40ms'\n"));
    let margins = hyoshi_sched::analysis::sensitivity(&system, &Strategies::built_in(), &report, &|_, _| true);
    let checked = Checked::new("hyoshi check small.toml", &system, &report);
    let with = Checked { sensitivity: Some(&margins), explain: true, ..checked };
    for (width, name) in [(80, "check-80.txt"), (120, "check-120.txt")] {
        golden(name, &with.terminal(TerminalStyle { width: Some(width), colour: false }));
    }
    golden("check-plain.txt", &checked.terminal(TerminalStyle { width: Some(100), colour: false }));
}
