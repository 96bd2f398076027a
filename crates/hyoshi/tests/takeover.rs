//! The program of `examples/takeover.toml` in two processes, one of which is killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hyoshi::Span;
use serde_json::Value;

use crate::common::loopback::unused_address;
use crate::common::{Place, alone, example, real_time};

/// A process that is killed with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(place: &Place, host: &str) -> Running {
    let built = Path::new(env!("CARGO_BIN_EXE_hyoshi")).parent().unwrap();
    let mut command = Command::new(built.join("examples/takeover"));
    let socket = place.path().join(format!("{host}.sock"));
    command.args(["run", "takeover.toml", "--share-cpu", "--no-report", "--host", host, "--control"]).arg(socket);
    command.current_dir(place.path()).stdin(Stdio::null()).env("HYOSHI_COSTS", "none");
    Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
}

/// The counts of outputs of a node; `None` while it does not answer.
fn outputs(place: &Place, host: &str) -> Option<Value> {
    let at = place.path().join(format!("{host}.sock"));
    let shown = place.hyoshi(&format!("node show --at unix:{} --format json", at.display()));
    (shown.code == 0).then(|| shown.json()["node"]["peers"][0]["outputs"].clone())
}

fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{what} took more than a minute");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The numbers in a line.
fn numbers(line: &str) -> Vec<u64> {
    line.split(|letter: char| !letter.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[test]
fn the_backup_takes_over_within_two_flush_periods_from_the_state_of_the_replica() {
    let _alone = alone();
    let place = Place::new();
    let text = std::fs::read_to_string(example("takeover.toml")).unwrap();
    let own = |text: String, port: &str| text.replace(&format!("127.0.0.1:{port}"), &unused_address().to_string());
    let text = ["7481", "7482"].into_iter().fold(text, own);
    // Five times slower: the primary must flush in time on a machine that stalls for half a second.
    let slower = |text: String, span: &str| {
        let slow = span.trim_end_matches("ms").parse::<u32>().unwrap() * 5;
        text.replace(&format!("\"{span}\""), &format!("\"{slow}ms\""))
    };
    let text = ["200ms", "100ms", "40ms", "20ms"].into_iter().fold(text, slower);
    place.write("takeover.toml", text);
    let check = place.hyoshi("check takeover.toml").exits(0).out;
    assert!(check.contains("proved"), "{check}");

    let mut backup = start(&place, "backup");
    let mut primary = start(&place, "primary");
    let lines = BufReader::new(backup.0.stdout.take().unwrap()).lines();
    let received =
        until("flushes arrive", || outputs(&place, "backup")?["received"].as_u64().filter(|received| *received >= 4));
    let shown = place.hyoshi(&format!("node show --at unix:{}/primary.sock", place.path().display())).exits(0).out;
    assert!(shown.contains("outputs flushed") && shown.contains("late, not flushed"), "{shown}");
    let sent = outputs(&place, "primary").unwrap();
    assert!(sent["flushed"].as_u64() >= Some(received) && sent["lateness_most_ns"].is_u64(), "{sent}");
    primary.0.kill().unwrap();
    primary.0.wait().unwrap();

    let mut lines = lines.map(|line| line.unwrap()).skip_while(|line| !line.starts_with("the backup takes over"));
    let takeover = lines.next().expect("the backup takes over");
    let at = numbers(&takeover)[0];
    assert!(at >= received, "{takeover}, but {received} outputs had arrived before");
    if real_time() {
        // 200 ms from the release to the flush, and two flush periods of 500 ms, with a margin.
        let age = takeover.split_whitespace().rev().nth(1).unwrap();
        let age: Span = age.parse().unwrap_or_else(|error| panic!("{takeover}: {error}"));
        assert!(age <= Span::from_millis(2400), "{takeover}");
    }
    let steps: Vec<Vec<u64>> = lines.by_ref().take(4).map(|line| numbers(&line)).collect();
    for (number, step) in (at..).zip(&steps) {
        assert_eq!(*step, [number, number * (number + 1) / 2], "it continues from the replica's state: {steps:?}");
    }
    assert_eq!(steps.len(), 4);
    place.hyoshi(&format!("node stop --at unix:{}/backup.sock", place.path().display())).exits(0);
    let report: Vec<String> = lines.collect();
    assert_eq!(backup.0.wait().unwrap().code(), Some(3), "it was stopped");
    assert!(report.iter().any(|line| line.contains("outputs received for replicas")), "{report:?}");
}

#[test]
fn outputs_that_are_too_late_to_be_flushed_are_noted_and_their_age_has_no_bound() {
    let place = Place::new();
    let text = std::fs::read_to_string(example("takeover.toml")).unwrap();
    place.write("late.toml", text.replace("\"40ms\"", "\"1ms\"").replace("\"60s\"", "\"1s\""));
    let summary = place.hyoshi("sim late.toml --format json").exits(1).json();
    let notes = summary["notes"].as_array().unwrap();
    let note = notes.iter().find(|note| note["topic"] == "replicas").unwrap_or_else(|| panic!("{summary}"));
    assert_eq!(note["text"], "outputs of late jobs were not flushed: control 10");
    let check = place.hyoshi("check late.toml").out;
    assert!(check.contains("late ones are not flushed"), "{check}");
}
