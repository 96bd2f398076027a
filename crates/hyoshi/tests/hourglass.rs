//! `hyoshi hourglass`, as a process.
//!
//! `tests/golden/hourglass.txt` holds its help and what it refuses, word by word. After a change of wording: `BLESS=1
//! cargo test -p hyoshi --test suite hourglass::`, then read the diff by eye.

use crate::common;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use common::said::Said;
use common::{Place, alone};
use serde_json::Value;

/// Its JSON, a line each: what it says first, of periods or seconds, and last.
fn lines(words: &str) -> (Value, Vec<Value>, Value) {
    let ended = Place::new().hyoshi(&format!("hourglass {words} --format json")).exits(0);
    let mut lines: Vec<Value> = ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (last, first) = (lines.pop().unwrap(), lines.remove(0));
    (first, lines, last["total"].clone())
}

fn ns(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn each_period_has_its_work_by_phases_and_spikes_and_all_of_them_are_told() {
    let _alone = alone();
    let (first, periods, total) =
        lines("--period 40ms --work 1ms --phase 4:2ms --phase 320ms:3ms --repeat 10 --spike 6:5ms --for 500ms --each");
    assert_eq!(first["period_ns"], 40_000_000);
    assert!(ns(&first["process"]) > 0 && ns(&first["origin_ns"]) > 0);
    let numbers: Vec<u64> = periods.iter().map(|period| ns(&period["period"])).collect();
    let work: Vec<u64> = periods.iter().map(|period| ns(&period["demanded_ns"]) / 1_000_000).collect();
    let expected = [1, 1, 1, 1, 2, 5, 2, 2, 3, 3, 1, 5];
    let expected: Vec<u64> = numbers.iter().map(|number| expected[*number as usize]).collect();
    assert_eq!(work, expected);
    assert_eq!(total["periods"], 12);
    assert_eq!(ns(&total["met"]) + ns(&total["missed"]), 12);
    assert_eq!(numbers.len() as u64 + ns(&total["skipped"]), 12);
    for period in &periods {
        let (demanded, obtained) = (ns(&period["demanded_ns"]), ns(&period["obtained_ns"]));
        let (release, ended) = (ns(&period["release_ns"]), ns(&period["ended_ns"]));
        assert_eq!(release, ns(&period["period"]) * 40_000_000);
        assert_eq!(period["met"] == true, obtained >= demanded && ended <= release + 40_000_000, "{period}");
    }
    let sum: u64 = periods.iter().map(|period| ns(&period["obtained_ns"])).sum();
    assert_eq!(ns(&total["obtained_ns"]), sum);
}

#[test]
fn several_threads_share_a_periods_work() {
    let _alone = alone();
    let (first, periods, total) = lines("--period 100ms --work 20ms --threads 4 --for 500ms --each");
    assert_eq!((&first["threads"], &total["periods"]), (&4.into(), &5.into()));
    for met in periods.iter().filter(|period| period["met"] == true) {
        assert!((20_000_000..40_000_000).contains(&ns(&met["obtained_ns"])), "{met}");
    }
}

#[test]
fn misses_are_a_result_and_an_error_only_if_asked_for() {
    let _alone = alone();
    let place = Place::new();
    // All of every period: the wake-up alone is too much.
    let ended = place.hyoshi("hourglass --period 20ms --work 20ms --for 200ms").exits(0);
    let closing = ended.out.lines().last().unwrap();
    assert!(closing.starts_with("10 periods: ") && closing.contains("missed ("), "{}", ended.out);
    place.hyoshi("hourglass --period 20ms --work 20ms --for 200ms --strict").exits(1);
    // Nothing to do is always in time, unless nobody wakes up at all.
    let ended = place.hyoshi("hourglass --period 200ms --work 0s --for 400ms --strict").exits(0);
    assert!(ended.out.contains("2 periods: 2 met, none missed"), "{}", ended.out);
}

#[test]
fn interrupted_it_says_how_it_went_so_far() {
    let place = Place::new();
    let mut child = place.command("hourglass --period 10ms --work 1ms --each").stdout(Stdio::piped()).spawn().unwrap();
    let said = Said::by(child.stdout.take().unwrap());
    assert_eq!(said.line().unwrap(), format!("process {}: 1ms of each 10ms", child.id()));
    assert!(said.line().unwrap().contains("of 1ms after "));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let rest = said.rest();
    let last = rest.lines().last().unwrap();
    assert!(last.contains(" periods: ") && last.contains("CPU "), "{last}");
    assert!(child.wait().unwrap().success());
}

#[test]
fn it_ends_when_nobody_reads_it_any_more() {
    let place = Place::new();
    let mut child = place.command("hourglass --period 10ms --work 1ms --each").stdout(Stdio::piped()).spawn().unwrap();
    let said = Said::by(child.stdout.take().unwrap());
    assert!(said.line().is_some());
    drop(said);
    assert!(child.wait().unwrap().success());
}

#[test]
fn its_help_and_its_refusals_are_as_they_were() {
    let place = Place::new();
    let mut said = String::new();
    let mut tell = |words: &str, code: i32| {
        let ended = place.hyoshi(words).exits(code);
        let _ = write!(said, "$ hyoshi {words}\n{}{}\n", ended.out, ended.err);
    };
    tell("hourglass --help", 0);
    tell("hourglass --period 33ms", 2);
    tell("hourglass --period 33 --work 10ms", 2);
    tell("hourglass --period 1us --work 1us", 2);
    tell("hourglass --period 20ms --work 25ms", 2);
    tell("hourglass --period 20ms --work 5ms --spike 3:50ms --threads 2", 2);
    tell("hourglass --period 20ms --work 5ms --spike often:5ms", 2);
    tell("hourglass --period 20ms --work 5ms --phase 5ms", 2);
    tell("hourglass --period 20ms --work 5ms --phase 10:6ms --phase 9:7ms", 2);
    tell("hourglass --period 20ms --work 5ms --phase 10:6ms --repeat 10", 2);
    tell("hourglass --period 20ms --work 5ms --repeat 10", 2);
    tell("hourglass --period 20ms --work 5ms --threads 0", 2);
    tell("hourglass --period 20ms --work 5ms --for 10ms", 2);
    tell("hourglass --period 20ms --work 5ms --for 10ms --format json", 2);
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/hourglass.txt");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&golden, said).unwrap();
        return;
    }
    assert_eq!(said, fs::read_to_string(&golden).unwrap_or_default(), "BLESS=1 takes the new words");
}
