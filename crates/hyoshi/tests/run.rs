//! `hyoshi run`, from the command line, with whatever privileges the tests have.

use crate::common;

use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Ended, OVERLOADED, Place, alone, class, real_time};
use serde_json::Value;

/// Whether something other than the run had its CPU for a while: then deadlines prove nothing.
fn disturbed(summary: &Value) -> bool {
    let notes = summary["notes"].as_array().unwrap();
    notes.iter().any(|note| ["steal", "machine", "kernel"].iter().any(|topic| note["topic"] == *topic))
}

/// Sends a signal to a process, by its number.
fn signal(name: &str, process: u32) {
    let kill = format!("kill -{name} {process}");
    assert!(std::process::Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

#[test]
fn a_run_ends_by_itself_with_a_table_and_a_report() {
    let _alone = alone();
    let place = Place::with_small();
    let started = Instant::now();
    let ended = place.hyoshi("run small.toml");
    let took = started.elapsed();
    assert!(took > Duration::from_millis(1_500) && took < Duration::from_secs(10), "{took:?}");
    assert!(ended.code < 2, "{}", ended.err);
    for part in ["small  run: 1.5s", "Deadlines", "steer", "plan", "report: small-run-report.html"] {
        assert!(ended.out.contains(part), "{part} is missing in {}", ended.out);
    }
    assert!(place.read("small-run-report.html").contains("</html>"));
    assert_eq!(place.names(), ["small-run-report.html", "small.toml"]);
}

#[test]
fn json_is_one_object_and_nothing_else() {
    let _alone = alone();
    let place = Place::with_small();
    let ended = place.hyoshi("run small.toml --no-report --format json");
    assert_eq!(ended.err, "");
    let json = ended.json();
    assert_eq!(json["hyoshi"]["verb"], "run");
    assert_eq!(json["holds"], ended.code == 0);
    assert_eq!(json["duration_ns"], 1_500_000_000u64);
    assert_eq!(class(&json, "critical")["released"], 75);
    assert_eq!(class(&json, "non-critical")["released"], 38);
    assert_eq!(place.names(), ["small.toml"]);
}

#[test]
fn a_pipe_gets_a_line_a_second() {
    let _alone = alone();
    let place = Place::with_small();
    let ended = place.hyoshi("run small.toml --duration 2500ms --no-report");
    let (out, progress) = (ended.out, ended.err);
    let lines: Vec<&str> = progress.lines().collect();
    // On a busy machine a line may come late, never twice.
    assert!((2..=3).contains(&lines.len()), "{progress}");
    assert!(lines.iter().all(|line| line.contains("/2.5s  critical made")), "{progress}");
    assert!(out.starts_with("small  run:"), "the report alone is on standard output: {out}");
    assert!(!out.contains('\x1b') && !progress.contains('\x1b'), "a pipe gets no colours: {out:?}");
}

#[test]
fn an_interrupted_run_still_writes_its_report() {
    let _alone = alone();
    let place = Place::with_small();
    for name in ["INT", "TERM"] {
        let mut command = place.command("run small.toml --duration 60s --format json --record run.hyo");
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // It runs: something of it is recorded.
        place.wait_for_growth("run.hyo", 3);
        let asked = Instant::now();
        signal(name, child.id());
        let output = child.wait_with_output().unwrap();
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
        let ended = Ended::of(name, &output);
        let json = ended.json();
        assert_eq!(ended.code, if json["holds"] == true { 3 } else { 1 }, "{}", ended.err);
        assert_eq!(json["interrupted"], true);
        assert!(json["duration_ns"].as_u64() < Some(10_000_000_000), "{}", json["duration_ns"]);
        let interrupted = json["notes"].as_array().unwrap().iter().find(|note| note["topic"] == "end").unwrap();
        assert!(interrupted["text"].as_str().unwrap().starts_with("interrupted"), "{interrupted}");
        assert!(place.read("small-run-report.html").contains("interrupted"));
        place.hyoshi("trace replay run.hyo").exits(0);
    }
}

#[test]
fn an_edit_of_the_file_during_a_run_is_noted() {
    let _alone = alone();
    let place = Place::with_small();
    let mut command = place.command("run small.toml --duration 60s --format json --no-report --record run.hyo");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    place.wait_for_growth("run.hyo", 1);
    let text = place.read("small.toml");
    place.write("small.toml", format!("{text}# edited\n"));
    signal("INT", child.id());
    let json = Ended::of("run", &child.wait_with_output().unwrap()).json();
    let note = json["notes"].as_array().unwrap().iter().find(|note| note["topic"] == "file").unwrap();
    let text = "small.toml was edited during the run: the run keeps what it has read at its start";
    assert_eq!((note["text"].as_str().unwrap(), &note["level"]), (text, &"info".into()), "{note}");
    // The recording has the system as it was at the start.
    place.hyoshi("trace replay run.hyo").exits(0);
}

#[test]
fn a_terminal_that_goes_away_does_not_end_a_run() {
    let _alone = alone();
    let place = Place::with_small();
    let mut child = place.command("run small.toml").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The first line, as `head -1` would take it.
    let mut first = [0];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(Ended::of("run", &output).code < 2);
    assert!(place.read("small-run-report.html").contains("75 critical jobs"));
}

#[test]
fn nothing_of_a_run_is_left_behind() {
    let _alone = alone();
    let place = Place::with_small();
    place.hyoshi("run small.toml --duration 300ms --no-report");
    let here =
        |entry: std::fs::DirEntry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == place.path());
    let left = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).map(here);
    assert_eq!(left.filter(|here| *here).count(), 0);
    assert_eq!(place.names(), ["small.toml"]);
}

#[test]
fn under_overload_critical_deadlines_are_met_and_the_rest_gives_way() {
    let _alone = alone();
    let place = Place::new();
    place.write("overloaded.toml", OVERLOADED);
    let ended = place.hyoshi("run overloaded.toml --no-report");
    assert_eq!(ended.err.matches("has a load of 140.0%").count(), 1, "{}", ended.err);
    if !real_time() {
        return;
    }
    let share = |counts: &Value| counts["made"].as_f64().unwrap() / counts["released"].as_f64().unwrap();
    // Real-time programs of other tests may take the CPU for a while, which no note reports: one round of three is enough.
    let mut rounds = Vec::new();
    for _ in 0..3 {
        let json = place.hyoshi("run overloaded.toml --no-report --format json").json();
        let (critical, other) = (class(&json, "critical"), class(&json, "non-critical"));
        assert!(share(other) < 0.9 && other["cancelled"].as_u64() > Some(0), "{other}");
        let least = if disturbed(&json) { 0.9 } else { 0.99 };
        if share(critical) >= least {
            return;
        }
        rounds.push(format!("{critical} {}", json["notes"]));
    }
    panic!("critical deadlines missed in each round: {rounds:#?}");
}

#[test]
fn the_cap_costs_no_critical_deadline() {
    let _alone = alone();
    if !real_time() {
        return;
    }
    let place = Place::new();
    place.write("overloaded.toml", OVERLOADED);
    // Hardly more than critical work needs: what the cap takes, it takes from the rest.
    let words = "run overloaded.toml --duration 1s --cap 60% --no-report --format json";
    let json = place.hyoshi(words).json();
    let critical = class(&json, "critical");
    let made = critical["made"].as_f64().unwrap() / critical["released"].as_f64().unwrap();
    assert!(made >= if disturbed(&json) { 0.9 } else { 0.99 }, "{critical} {}", json["notes"]);
}
