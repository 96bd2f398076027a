//! `hyoshi run` for users without privileges: it runs, and says what that means.

use crate::broker;
use crate::common;

use std::os::unix::fs::PermissionsExt;

use common::running::{start, until};
use common::{Ended, Place, alone, time};

/// A place that everyone may write to, with the small system and the command in it.
fn open_place() -> Place {
    let place = Place::with_small();
    let everyone = |path: &std::path::Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    };
    everyone(place.path());
    let own = place.path().join("hyoshi");
    std::fs::copy(env!("CARGO_BIN_EXE_hyoshi"), &own).unwrap();
    everyone(&own);
    place
}

/// Another user cannot change the regions of a run, and they stay as they are.
#[test]
fn contracts_of_another_users_run_are_kept() {
    let _alone = alone();
    let place = Place::new();
    let own = place.path().join("hyoshi");
    std::fs::copy(env!("CARGO_BIN_EXE_hyoshi"), &own).unwrap();
    for path in [place.path(), &own] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    place.write(
        "system.toml",
        "name = 'power'\nduration = '60s'\n[operation.a]\nevery = '20ms'\nwcet = '1ms'\n[condition.battery]\nvalue = 80\n[contract.power]\n\
         watch = { battery = { of = 'condition.battery' } }\n[[contract.power.region]]\nname = 'low'\n\
         enter = 'battery < 20'\n[[contract.power.region]]\nname = 'normal'\n",
    );
    let at = format!("--at unix:{}/run.sock", place.path().display());
    let run = start(&place, &format!("run system.toml --no-report --control {}/run.sock", place.path().display()));
    let regions = || {
        let listed = place.hyoshi(&format!("contract list --format json {at}"));
        (listed.code == 0).then(|| listed.json()["contracts"][0]["regions"].clone())
    };
    until("a region is active", || regions().filter(|regions| regions[0] == "normal"));
    for words in ["force power low", "set battery 10", "release power", "list"] {
        let Some(refused) = as_nobody(&place, &format!("contract {words} {at}")) else { return };
        let refused = refused.exits(2).err;
        assert!(refused.contains("permission denied: the node at unix:"), "{words}: {refused}");
        assert!(refused.contains("help: run the command as "), "{words}: {refused}");
    }
    assert_eq!(regions(), Some(serde_json::json!(["normal"])));
    drop(run);
}

/// Runs the command as the user nobody; `None` as for [`broker::as_nobody`].
fn as_nobody(place: &Place, words: &str) -> Option<Ended> {
    let output = broker::as_nobody(place, words)?.output().unwrap();
    Some(Ended::of(words, &output))
}

#[test]
fn a_run_goes_on_without_and_marks_all_that_it_writes() {
    let _alone = alone();
    let place = open_place();
    let Some(ended) = as_nobody(&place, "run small.toml --record run.hyo") else { return };
    assert!(ended.code < 2, "{}", ended.err);
    assert!(ended.out.contains("refused: kernel:"), "{}", ended.out);
    assert!(ended.out.contains("cap_sys_nice"), "the remedy: {}", ended.out);
    assert!(ended.out.contains("steer"), "{}", ended.out);
    let report = place.read("small-run-report.html");
    assert!(report.contains("refused") && report.contains("cap_sys_nice"));
    // Whoever reads the recording later knows it as well.
    let summary = place.hyoshi("trace summary run.hyo");
    assert!(summary.out.contains("refused: kernel:"), "{}", summary.out);
    place.hyoshi("trace replay run.hyo").exits(0);
    // Nobody sees who else has the CPU.
    let json = place.hyoshi("trace summary run.hyo --format json").json();
    assert_eq!(time(&json).1, "clocks", "{json}");
    let switches = json["notes"].as_array().unwrap().iter().find(|note| note["topic"] == "switches");
    assert!(switches.is_some_and(|note| note["level"] == "info"), "{json}");
}

#[test]
fn json_is_marked_too() {
    let _alone = alone();
    let place = open_place();
    let Some(ended) = as_nobody(&place, "run small.toml --duration 500ms --no-report --format json") else { return };
    let json = ended.json();
    let notes = json["notes"].as_array().unwrap();
    let refused: Vec<_> = notes.iter().filter(|note| note["level"] == "refused").collect();
    assert!(!refused.is_empty(), "{notes:?}");
    assert!(refused.iter().all(|note| note["remedy"].is_string()), "{refused:?}");
}

#[test]
fn a_strict_run_does_not_start() {
    let _alone = alone();
    let place = open_place();
    place.write("run.hyo", "an older recording");
    std::fs::set_permissions(place.path().join("run.hyo"), std::fs::Permissions::from_mode(0o666)).unwrap();
    let Some(ended) = as_nobody(&place, "run small.toml --strict --record run.hyo") else { return };
    assert_eq!((ended.code, ended.out.as_str()), (2, ""));
    assert!(ended.err.contains("hyoshi doctor"), "{}", ended.err);
    // Nothing ran, so nothing is reported, and nothing older is lost.
    assert_eq!(place.read("run.hyo"), "an older recording");
    assert_eq!(place.names(), ["hyoshi", "run.hyo", "small.toml"]);
    let error = as_nobody(&place, "run small.toml --strict --format json").unwrap().error();
    assert!(error["message"].as_str().unwrap().starts_with("the kernel refused what a strict run requires"), "{error}");
}

#[test]
fn doctor_says_what_to_do_about_it() {
    let place = open_place();
    let Some(ended) = as_nobody(&place, "doctor --format json") else { return };
    let json = ended.exits(1).json();
    let findings = json["findings"].as_array().unwrap();
    let refused: Vec<_> = findings.iter().filter(|found| found["verdict"] == "refused").collect();
    assert!(refused.iter().any(|found| found["topic"] == "SCHED_FIFO"), "{refused:?}");
    assert!(refused.iter().all(|found| found["remedy"].is_string()), "{refused:?}");
}

#[test]
fn a_place_that_may_not_be_written_to_is_told_of_before_anything_runs() {
    let place = open_place();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let began = std::time::Instant::now();
    for (words, named) in [
        ("run small.toml --duration 60s", "small-run-report.html"),
        ("run small.toml --duration 60s --report r.html", "r.html"),
        ("run small.toml --duration 60s --no-report --record r.hyo", "r.hyo"),
        ("sim small.toml --jobs jobs.csv", "jobs.csv"),
        ("sim small.toml --record r.hyo", "r.hyo"),
        ("sim small.toml --report r.html", "r.html"),
        ("new drone", "drone"),
    ] {
        let Some(ended) = as_nobody(&place, words) else { return };
        assert_eq!((ended.code, ended.out.as_str()), (2, ""), "{words}");
        assert!(ended.err.contains(named) && ended.err.contains("Permission denied"), "{words}: {}", ended.err);
        assert!(ended.err.contains("that you may write to"), "{words}: {}", ended.err);
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(30));
    assert_eq!(place.names(), ["hyoshi", "small.toml"]);
}

#[test]
fn a_file_that_may_not_be_read_is_told_of() {
    let place = open_place();
    std::fs::set_permissions(place.path().join("small.toml"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let Some(ended) = as_nobody(&place, "sim small.toml") else { return };
    assert_eq!(ended.code, 2);
    assert!(ended.err.contains("chmod +r"), "{}", ended.err);
}
