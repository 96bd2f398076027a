//! What scheduling costs: where `check`, `sim` and `run` take it from, and what they say of it.

use crate::common;

use common::*;
use serde_json::Value;

const COSTS: &str = "[measured]\ndate = \"2026-11-21\"\nreal_time = true\n\n[costs]\ntimer = \"10us\"\nenqueue = \"200ns\"\n\
                     dequeue = \"1us\"\ncancel = \"50ns\"\nswitch = \"2us\"\nwatchdog = \"15us\"\n";

/// What is said of costs, as the one note about them.
fn said(json: &Value) -> Vec<String> {
    let notes = json["notes"].as_array().unwrap().iter().filter(|note| note["topic"] == "costs");
    notes.map(|note| note["text"].as_str().unwrap().to_owned()).collect()
}

/// `hyoshi` on a machine where `stored` was measured.
fn where_stored(place: &Place, words: &str) -> Ended {
    let mut command = place.command(words);
    command.env_remove("HYOSHI_COSTS").env("XDG_CONFIG_HOME", place.path().join("config"));
    Ended::of(words, &command.output().unwrap())
}

fn calibrated() -> Place {
    let place = Place::with_small();
    std::fs::create_dir_all(place.path().join("config/hyoshi")).unwrap();
    place.write("config/hyoshi/costs.toml", COSTS);
    place.write("costs.toml", COSTS.replace("10us", "7us"));
    place.write("own.toml", format!("costs = {{ timer = \"3us\" }}\n{SMALL}"));
    place
}

#[test]
fn the_command_line_comes_before_the_file_and_the_file_before_what_was_measured_here() {
    let place = calibrated();
    for verb in ["check", "sim"] {
        let printed = |words: &str| {
            let all = said(&where_stored(&place, &format!("{verb} {words} --format json")).json());
            assert_eq!(all.len(), 1, "{all:?}");
            all[0].clone()
        };
        assert!(printed("small.toml").starts_with("measured on this machine 2026-11-21 (timer 10.0us, enqueue 200ns"));
        assert_eq!(printed("small.toml --costs measured"), printed("small.toml"));
        assert!(printed("own.toml").starts_with("from the system's file (timer 3.0us"));
        assert!(
            printed("own.toml --costs costs.toml").starts_with("from costs.toml, measured 2026-11-21 (timer 7.0us")
        );
        assert_eq!(printed("own.toml --costs none"), "overheads ignored (--costs none)");
    }
}

/// The bounds of all operations in a summary.
fn bounds(summary: &Value) -> Vec<Value> {
    let operations = summary["operations"].as_array().unwrap();
    operations.iter().map(|operation| operation["bound"]["bound_ns"].clone()).collect()
}

#[test]
fn a_run_and_its_recording_have_the_bounds_of_check() {
    let _alone = alone();
    let place = calibrated();
    for words in ["small.toml", "own.toml --costs costs.toml", "own.toml"] {
        let json = |words: &str| where_stored(&place, &format!("{words} --format json")).json();
        let checked = json(&format!("sim {words}"));
        let ran = json(&format!("run {words} --duration 300ms --no-report --record run.rec"));
        assert_eq!(said(&ran)[0], said(&json(&format!("check {words}")))[0]);
        assert!(bounds(&ran).iter().all(Value::is_number));
        assert_eq!(bounds(&ran), bounds(&checked), "{words}");
        assert_eq!(bounds(&place.hyoshi("trace summary run.rec --format json").json()), bounds(&checked), "{words}");
    }
}

#[test]
fn without_any_it_says_so_and_how_to_come_by_them() {
    let place = Place::with_small();
    let nowhere = where_stored(&place, "check small.toml").exits(0);
    assert!(nowhere.out.contains("overheads ignored; `hyoshi calibrate` measures them"), "{}", nowhere.out);
    let error = where_stored(&place, "sim small.toml --costs measured --format json").error();
    assert!(error["message"].as_str().unwrap().contains("config/hyoshi/costs.toml does not exist"), "{error}");
    assert!(error["help"].as_str().unwrap().contains("hyoshi calibrate"), "{error}");
}

#[test]
fn a_stored_calibration_that_was_cut_is_told_with_its_line_and_never_used() {
    let place = calibrated();
    place.write("config/hyoshi/costs.toml", &COSTS[..COSTS.len() - 12]);
    let refused = where_stored(&place, "check small.toml").exits(2);
    assert!(refused.err.contains("costs.toml:") && refused.err.contains('^'), "{}", refused.err);
    where_stored(&place, "check small.toml --costs none").exits(0);
}

#[test]
fn costs_that_are_larger_than_operations_are_wondered_at() {
    let place = Place::with_small();
    let large = COSTS.replace("2us", "2ms");
    place.write("large.toml", large);
    let notes = said(&place.hyoshi("check small.toml --costs large.toml --format json").json());
    let expected =
        "a job of `steer` costs up to 4.0ms to schedule, but executes for at most 2ms; so does one more operation";
    assert_eq!(notes[1], expected);
}

/// The simulation of a recording on a machine where nothing was measured, against what it recorded.
fn agrees(place: &Place, name: &str) -> bool {
    where_stored(place, &format!("trace replay {name}.rec")).exits(0);
    let compared = place.hyoshi(&format!("trace compare {name}.rec --format json")).exits(0).json();
    let none = |of: &str| compared["processors"][0][of].as_array().unwrap().is_empty();
    place.hyoshi(&format!("sim --from {name}.rec --jobs {name}.again.csv")).exits(0);
    let same = place.read(&format!("{name}.csv")) == place.read(&format!("{name}.again.csv"));
    same && ["near_ties", "disturbed", "disagreements"].into_iter().all(none)
}

#[test]
fn a_recording_of_a_simulation_keeps_what_it_spent_wherever_that_came_from() {
    let place = calibrated();
    let record = |words: &str, name: &str| {
        where_stored(&place, &format!("sim {words} --record {name}.rec --jobs {name}.csv")).exits(0);
    };
    record("small.toml --costs costs.toml", "given");
    record("small.toml", "stored");
    record("own.toml", "own");
    record("own.toml --costs none", "none");
    for name in ["given", "stored", "own", "none"] {
        assert!(agrees(&place, name), "{name}");
    }
    let mut command = place.command("sim small.toml --record named.rec --jobs named.csv");
    Ended::of("sim", &command.env("HYOSHI_COSTS", "costs.toml").output().unwrap()).exits(0);
    assert!(agrees(&place, "named"));
    let csv = |name: &str| place.read(&format!("{name}.csv"));
    assert_eq!(csv("named"), csv("given"));
    assert!(csv("stored") != csv("given") && csv("own") != csv("none"), "they cost something");
}
