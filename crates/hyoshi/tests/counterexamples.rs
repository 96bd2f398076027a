//! What `check` says fails, `sim` shows: end to end, through the file that `check` writes.

use crate::common;

use common::Place;

const HEAD: &str =
    "name = \"late\"\nduration = \"1s\"\n[processor.main]\nstrategy = \"DM\"\ncap = \"100%\"\nhard_cap = \"100%\"\n";

/// Checks the system, simulates what is written, and wants `miss` to miss there.
fn fails(operations: &str, reason: &str, miss: &str) {
    let place = Place::new();
    let head = if reason.contains("must be done") { HEAD.replace("DM", "EDF") } else { HEAD.into() };
    place.write("late.toml", format!("{head}{operations}"));
    let checked = place.hyoshi("check late.toml --counterexample seen.toml").exits(1);
    assert!(checked.out.contains("Does not hold") && checked.out.contains(reason), "{}", checked.out);
    assert!(checked.out.contains("hyoshi sim seen.toml"), "{}", checked.out);
    let seen = place.hyoshi("sim seen.toml").exits(1);
    assert!(seen.out.contains("Does not hold") && seen.out.contains(miss), "{}\n{}", place.read("seen.toml"), seen.out);
    let json = place.hyoshi("check late.toml --counterexample seen.toml --format json").exits(1).json();
    assert_eq!(json["counterexample"]["file"], "seen.toml");
    assert!(json["counterexample"]["job"].as_str().unwrap().contains('#'), "{json}");
}

#[test]
fn a_job_longer_than_its_deadline_is_seen_to_miss() {
    let operation =
        "[operation.nav]\nevery = \"10ms\"\nwcet = \"5ms\"\ntakes = \"1ms\"\ndeadline = \"4ms\"\ncritical = true\n";
    fails(operation, "nav: needs 5ms by itself", "nav");
}

#[test]
fn a_first_job_that_is_late_is_seen_to_miss() {
    let operations = "[operation.a]\nevery = \"10ms\"\nwcet = \"5ms\"\ncritical = true\n\
                      [operation.nav]\nevery = \"14ms\"\nwcet = \"6ms\"\ncritical = true\njitter = \"0s\"\n";
    fails(operations, "nav: its first job finishes at 16ms", "nav");
}

#[test]
fn critical_work_that_is_too_much_by_itself_is_seen_to_miss() {
    let operations = "[operation.a]\nevery = \"10ms\"\nwcet = \"6ms\"\ncritical = true\njitter = \"1ms\"\n\
                      [operation.nav]\nevery = \"20ms\"\nwcet = \"9ms\"\ncritical = true\n\
                      [operation.log]\nevery = \"20ms\"\nwcet = \"1ms\"\n";
    fails(operations, "worst cases of critical jobs alone need 105.00 % of the CPU", "nav");
}

#[test]
fn demand_that_does_not_fit_is_seen_to_miss() {
    let operations = "[operation.a]\nevery = \"20ms\"\nwcet = \"4ms\"\ndeadline = \"5ms\"\ncritical = true\n\
                      [operation.nav]\nevery = \"20ms\"\nwcet = \"4ms\"\ndeadline = \"7ms\"\ncritical = true\n";
    fails(operations, "8ms must be done within", "nav");
}

#[test]
fn a_chain_that_takes_longer_than_it_may_is_seen_to_miss() {
    let operations = String::from(
        "[operation.sense]\nevery = \"30ms\"\nwcet = \"4ms\"\ncount = 2\nstagger = \"even\"\n[operation.act]\nafter = { all = [\"sense.2\"] }\nwcet = \"3ms\"\ndeadline = \"30ms\"\n\
         [chain.reflex]\npath = [\"sense.2\", \"act\"]\nmax_age = \"6ms\"\n",
    );
    fails(&operations, "reflex: needs 7ms by itself", "reflex");
}

#[test]
fn without_a_failure_nothing_is_written_and_the_system_is_never_written_over() {
    let place = Place::with_small();
    let ended = place.hyoshi("check small.toml --counterexample seen.toml").exits(0);
    assert!(ended.out.contains("no requirement that counts fails") && !place.has("seen.toml"), "{}", ended.out);
    place.write("late.toml", format!("{HEAD}[operation.nav]\nevery = \"10ms\"\nwcet = \"5ms\"\ndeadline = \"4ms\"\n"));
    let refused = place.hyoshi("check late.toml --counterexample late.toml").exits(2);
    assert!(refused.err.contains("cannot overwrite"), "{}", refused.err);
}
