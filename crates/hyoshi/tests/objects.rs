//! Objects of a file, with the program of `examples/rt-objects.toml`: in one process, and as client and server.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::loopback::unused_address;
use crate::common::{Ended, Place, alone, example};

/// The file of the example, with addresses of this test's own.
fn write(place: &Place) {
    let text = std::fs::read_to_string(example("rt-objects.toml")).unwrap();
    let own = |text: String, port: &str| text.replace(&format!("127.0.0.1:{port}"), &unused_address().to_string());
    let text = ["7471", "7472", "7473"].into_iter().fold(text, own).replace("\"5s\"", "\"2s\"");
    place.write("rt-objects.toml", text);
}

/// The example's program with these words.
fn program(place: &Place, words: &str) -> Command {
    let built = Path::new(env!("CARGO_BIN_EXE_hyoshi")).parent().unwrap();
    let mut command = Command::new(built.join("examples/rt-objects"));
    command.args(words.split_whitespace()).current_dir(place.path()).stdin(Stdio::null()).env("HYOSHI_COSTS", "none");
    command
}

/// The jobs of an operation in a summary: finished, made and missed.
fn jobs(summary: &Value, operation: &str) -> u64 {
    let all = summary["operations"].as_array().unwrap();
    let found = all.iter().find(|one| one["name"] == operation).unwrap_or_else(|| panic!("{operation} in {summary}"));
    found["counts"]["made"].as_u64().unwrap() + found["counts"]["missed"].as_u64().unwrap()
}

#[test]
fn the_calls_of_the_example_are_jobs_of_three_parts_that_replay_and_a_simulation_repeat() {
    let _alone = alone();
    let place = Place::new();
    write(&place);
    place.hyoshi("check rt-objects.toml").exits(0);
    let words = "run rt-objects.toml --share-cpu --no-report --record run.hyo --format json";
    let run = Ended::of(words, &program(&place, words).output().unwrap());
    assert!(run.code <= 1, "{}", run.err);
    let run = run.json();
    let parts = ["steer:call", "locate@steer", "steer", "explore:call", "place@explore", "explore"];
    let counts = parts.map(|part| jobs(&run, part));
    assert!(counts[0] >= 60 && counts[3] >= 10, "{counts:?}");
    // The end of the run cuts a call, at most.
    assert!(counts.chunks(3).all(|call| call[0] - call[1] <= 2 && call[1] - call[2] <= 2), "{counts:?}");
    place.hyoshi("trace replay run.hyo").exits(0);
    let simulated = place.hyoshi("sim --from run.hyo --format json").json();
    assert_eq!(parts.map(|part| jobs(&simulated, part)), counts);
    let why = place.hyoshi("why run.hyo steer#20").exits(0).out;
    assert!(why.contains("steer:call#20 on drive") && why.contains("locate@steer#20 on map"), "{why}");
}

#[test]
fn client_and_server_run_in_two_processes_and_the_merged_recording_has_the_whole_call() {
    let _alone = alone();
    let place = Place::new();
    write(&place);
    let words = "run rt-objects.toml --share-cpu --no-report --host base --record base.hyo --format json";
    let mut base = program(&place, words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let words = "run rt-objects.toml --share-cpu --no-report --host rover --record rover.hyo --format json";
    let rover = Ended::of(words, &program(&place, words).output().unwrap());
    assert!(rover.code <= 1, "{}", rover.err);
    assert!(base.wait().unwrap().code().is_some_and(|code| code <= 1));
    let rover = rover.json();
    let counts = ["steer:call", "steer"].map(|part| jobs(&rover, part));
    assert!(counts[0] >= 60 && counts[0] - counts[1] <= 2, "{counts:?}");
    place.hyoshi("trace merge rover.hyo base.hyo -o both.hyo").exits(0);
    let why = place.hyoshi("why both.hyo steer#20").exits(0).out;
    assert!(why.contains("its trigger crossed hosts") && why.contains("locate@steer#20 on map"), "{why}");
}

#[test]
fn a_program_without_the_servant_says_so_and_simulates_the_calls() {
    let _alone = alone();
    let place = Place::new();
    write(&place);
    let run = place.hyoshi("run rt-objects.toml --no-report --duration 500ms");
    assert!(run.code <= 1 && run.out.contains("no servant for object map"), "{}{}", run.out, run.err);
    let json = place.hyoshi("run rt-objects.toml --no-report --duration 500ms --format json").json();
    assert!(jobs(&json, "locate@steer") >= 10, "{json}");
}

#[test]
fn requests_that_wait_or_run_are_shown_to_the_owner_of_the_run() {
    let _alone = alone();
    let place = Place::new();
    write(&place);
    let words = "run rt-objects.toml --share-cpu --no-report --duration 60s --control control.sock";
    let mut run = program(&place, words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let watch = format!("orb watch --once --at unix:{}", place.path().join("control.sock").display());
    let began = Instant::now();
    let seen = loop {
        assert!(began.elapsed() < Duration::from_secs(40), "no request is seen");
        let ended = place.hyoshi(&format!("{watch} --format json"));
        if ended.code == 0 && ended.json()["all"] != 0 {
            break ended.json();
        }
    };
    let request = &seen["requests"][0];
    assert!(["locate@steer", "place@explore"].iter().any(|name| request["operation"] == *name), "{seen}");
    assert_eq!((&request["processor"], &request["client"]), (&"map".into(), &"127.0.0.1".into()));
    place.hyoshi(&watch).exits(0);
    place.hyoshi(&format!("node stop --at unix:{}", place.path().join("control.sock").display())).exits(0);
    assert!(run.wait().unwrap().code().is_some());
    let gone = place.hyoshi(&watch).exits(2);
    assert!(gone.err.contains("no node answers at unix:") && gone.err.contains("help: "), "{}", gone.err);
    assert!(place.hyoshi("orb watch --every 1ms").exits(2).err.contains("100ms"));
}

/// A delegate that thins out `place`, and a contract that refuses `locate` from 1 s on.
const DELEGATE: &str = r#"
[delegate.front]
object    = "map"
behaviour = { place = "thin:1/2" }
[condition.mode]
value = 0
[contract.door]
on     = "drive"
period = "20ms"
watch  = { mode = { of = "condition.mode" }, often = { of = "delegate.front.rate", max_age = "1s" } }
[[contract.door.region]]
name  = "closed"
enter = "mode > 0"
do    = [{ set = "delegate.front.locate", to = "refuse" }]
[[contract.door.region]]
name = "busy"
enter = "often > 1"
[[contract.door.region]]
name = "open"
[[epoch]]
at  = "1s"
set = { "condition.mode.value" = 1 }
"#;

fn write_with_delegate(place: &Place) {
    write(place);
    let text = std::fs::read_to_string(place.path().join("rt-objects.toml")).unwrap();
    place.write("rt-objects.toml", text + DELEGATE);
}

fn notes(report: &Value, topic: &str) -> Vec<String> {
    let all = report["notes"].as_array().unwrap().iter().filter(|note| note["topic"] == topic);
    all.map(|note| note["text"].as_str().unwrap_or_default().to_owned()).collect()
}

/// What `front` reports of an operation: requests, passed, refused.
fn delegated(report: &Value, operation: &str) -> [u64; 3] {
    let notes = notes(report, "delegates");
    let start = format!("front: {operation}: ");
    let note = notes.iter().find_map(|note| note.strip_prefix(&start)).unwrap_or_else(|| panic!("{notes:?}"));
    let counts = note.split(';').next().unwrap().split(", ");
    let of = |what: &str| {
        let found = counts.clone().find_map(|count| count.strip_suffix(what));
        found.map_or(0, |count| count.trim().parse().unwrap())
    };
    ["requests", "passed", "refused"].map(of)
}

#[test]
fn a_delegate_of_the_file_decides_about_calls_and_a_region_changes_its_behaviour() {
    let _alone = alone();
    let place = Place::new();
    write_with_delegate(&place);
    let words = "run rt-objects.toml --share-cpu --no-report --record run.hyo --format json";
    let run = Ended::of(words, &program(&place, words).output().unwrap());
    assert!(run.code <= 1, "{}", run.err);
    let run = run.json();
    let [placed, passed, refused] = delegated(&run, "place");
    assert!(placed >= 10 && passed == placed.div_ceil(2) && refused == placed / 2, "{placed}: {passed}, {refused}");
    let [located, passed, refused] = delegated(&run, "locate");
    assert!(passed >= 20 && refused >= 20 && passed + refused == located, "{located}: {passed}, {refused}");
    assert_eq!(
        notes(&run, "contracts"),
        ["contract `door`, region `closed`: delegate.front.locate = refuse:TRANSIENT: done once"]
    );
    // A refused call has no job of the method; its caller goes on.
    assert!(jobs(&run, "locate@steer") <= passed && jobs(&run, "steer") >= 60, "{run}");
    place.hyoshi("trace replay run.hyo").exits(0);
    place.hyoshi("sim rt-objects.toml --duration 2s").exits(0);
}

#[test]
fn the_host_of_a_delegate_follows_the_region_that_another_host_evaluates() {
    let _alone = alone();
    let place = Place::new();
    write_with_delegate(&place);
    let words = "run rt-objects.toml --share-cpu --no-report --host base --format json";
    let base = program(&place, words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let words = "run rt-objects.toml --share-cpu --no-report --host rover --format json";
    let rover = Ended::of(words, &program(&place, words).output().unwrap());
    assert!(rover.code <= 1, "{}", rover.err);
    let base = Ended::of("base", &base.wait_with_output().unwrap()).json();
    let [located, passed, refused] = delegated(&base, "locate");
    assert!(passed >= 20 && refused >= 20 && passed + refused == located, "{located}: {passed}, {refused}");
    assert!(notes(&base, "contracts")[0].contains("refuse:TRANSIENT: done once"), "{base}");
    // The rover knows the delegate's rate before the region begins.
    let rover = rover.json();
    assert!(notes(&rover, "delegates").is_empty() && rover.to_string().contains("busy"), "{rover}");
}

#[test]
fn a_behaviour_for_an_operation_that_the_interface_lacks_stops_the_start() {
    let place = Place::new();
    write_with_delegate(&place);
    let text = std::fs::read_to_string(place.path().join("rt-objects.toml")).unwrap();
    place.write("rt-objects.toml", text.replace("delegate.front.locate", "delegate.front.locat"));
    let words = "run rt-objects.toml --share-cpu --no-report";
    let run = Ended::of(words, &program(&place, words).output().unwrap());
    assert!(run.code == 2 && run.err.contains("has a behaviour for `locat`"), "{} {}", run.code, run.err);
}
