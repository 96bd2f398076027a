//! `examples/dynamic-graph.toml`: hops chosen at random and skipped copies, in `check`, `run`, `sim` and `why`.

use crate::common;

use common::{Place, alone, example};
use serde_json::Value;

fn operation<'a>(summary: &'a Value, name: &str) -> &'a Value {
    summary["operations"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap()
}

/// How many jobs of an operation were released.
fn released(summary: &Value, name: &str) -> u64 {
    operation(summary, name)["counts"]["released"].as_u64().unwrap()
}

/// How many copies the server skipped.
fn skipped(summary: &Value) -> u64 {
    operation(summary, "server")["discarded"]["later_copy"].as_u64().unwrap_or(0)
}

#[test]
fn the_example_is_proved_and_its_recording_explains_skipped_copies() {
    let (place, file) = (Place::new(), example("dynamic-graph.toml"));
    place.hyoshi(&format!("check {file}")).exits(0);
    let sim = place.hyoshi(&format!("sim {file} --record sim.hyo --format json")).exits(0).json();
    assert_eq!((released(&sim, "client"), released(&sim, "server")), (100, 100));
    let chosen = released(&sim, "secondary");
    assert!((30..70).contains(&chosen) && skipped(&sim) == chosen, "{chosen} of 100, {} skipped", skipped(&sim));
    let text = place.hyoshi(&format!("sim {file}")).out;
    assert!(text.contains("after another copy of the same release"), "{text}");
    place.hyoshi("trace replay sim.hyo").exits(0);
    let why = (0..10).map(|number| place.hyoshi(&format!("why sim.hyo server#{number}")).exits(0).out);
    let explained = why.filter(|why| why.contains("server skips the copy of")).count();
    assert!((1..10).contains(&explained), "{explained}");
}

#[test]
fn a_run_draws_the_choices_of_its_simulation_and_its_recording_repeats_them() {
    let _alone = alone();
    let (place, file) = (Place::new(), example("dynamic-graph.toml"));
    let run = place.hyoshi(&format!("run {file} --duration 3s --no-report --record run.hyo --format json")).json();
    let sim = place.hyoshi(&format!("sim {file} --duration 3s --format json")).json();
    // The run may end a moment before its last job is released.
    let (chosen, drawn) = (released(&run, "secondary"), released(&sim, "secondary"));
    assert!(chosen > 2 && (drawn.saturating_sub(1)..=drawn).contains(&chosen), "{chosen} of {drawn}");
    place.hyoshi("trace replay run.hyo").exits(0);
    let again = place.hyoshi("sim --from run.hyo --format json").json();
    assert_eq!(released(&again, "secondary"), chosen, "{again}");
}
