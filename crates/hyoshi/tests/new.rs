//! `hyoshi new`: what it makes works, and it takes nothing away.

use crate::common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Ended, Place};

/// The program that `new` writes: the same text is this package's example `new-project`.
///
/// A project of its own would be compiled with every crate it rests on, for more than a minute.
fn program() -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_hyoshi")).parent().unwrap();
    let program = built.join("examples/new-project");
    if !program.exists() {
        // `cargo test` builds examples, `cargo test --test suite` does not.
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--offline", "--package", "hyoshi", "--example", "new-project"]);
        cargo.arg("--target-dir").arg(built.parent().unwrap());
        assert!(cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
    }
    program
}

#[test]
fn a_new_system_is_proved_simulated_and_has_nothing_to_warn_of() {
    let place = Place::new();
    let made = place.hyoshi("new drone").exits(0);
    assert!(made.out.contains("hyoshi check drone/system.toml"), "{}", made.out);
    let checked = place.hyoshi("check drone/system.toml").exits(0);
    assert!(checked.out.starts_with("drone "), "{}", checked.out);
    assert_eq!(checked.err, "");
    place.hyoshi("sim drone/system.toml").exits(0);
}

#[test]
fn a_new_system_shows_what_gives_way_at_the_rate_that_it_names() {
    let place = Place::new();
    place.hyoshi("new drone").exits(0);
    let text = place.read("drone/system.toml").replace("\"20Hz\"", "\"80Hz\"");
    assert!(text.contains("at 80Hz"));
    place.write("drone/system.toml", text);
    let json = place.hyoshi("sim drone/system.toml --format json").exits(0).json();
    let counts = common::class(&json, "non-critical");
    assert!(counts["made"].as_u64() > Some(100) && counts["cancelled"].as_u64() > Some(0), "{counts}");
}

#[test]
fn the_new_program_has_every_verb_with_its_bodies() {
    let place = Place::new();
    place.hyoshi("new drone").exits(0);
    let run = |words: &str| {
        let mut program = Command::new(program());
        Ended::of(words, &program.args(words.split(' ')).current_dir(place.path().join("drone")).output().unwrap())
    };
    run("sim system.toml").exits(0);
    let _alone = common::alone();
    let json = run("run system.toml --duration 500ms --format json").json();
    // The bodies are so much shorter than declared that only built-in work would reach this.
    let control = json["operations"].as_array().unwrap().iter().find(|one| one["name"] == "control").unwrap();
    assert!(control["execution"]["mean_ns"].as_u64() < Some(500_000), "{control}");
    assert!(control["counts"]["released"].as_u64() > Some(40), "{control}");
}

#[test]
fn the_new_manifest_finds_the_library() {
    let place = Place::new();
    place.hyoshi("new drone").exits(0);
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--no-deps", "--format-version", "1"])
        .current_dir(place.path().join("drone"))
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let package = &metadata["packages"][0];
    assert_eq!(package["name"], "drone");
    let library = package["dependencies"][0]["path"].as_str().unwrap();
    assert_eq!(Path::new(library), Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(place.read("drone/src/main.rs").starts_with("//! drone: the bodies"));
}

#[test]
fn the_new_manifest_names_the_source_asked_for_and_no_other_path() {
    let place = Place::new();
    let manifest = |name: &str, source: &str| {
        place.hyoshi(&format!("new {name} {source}")).exits(0);
        let text = place.read(&format!("{name}/Cargo.toml"));
        assert!(text.contains("default-features = false"), "{text}");
        text
    };
    let here = env!("CARGO_MANIFEST_DIR");
    let path = manifest("one", "");
    assert_eq!(path, manifest("two", "--source path").replace("\"two\"", "\"one\""));
    assert!(path.contains(&format!("path = {here:?}")) && path.contains("Until a release"), "{path}");
    for (name, source, line) in [
        ("three", "git=https://example.org/hyoshi.git", "git = \"https://example.org/hyoshi.git\""),
        ("four", "version", concat!("version = \"", env!("CARGO_PKG_VERSION"), "\"")),
    ] {
        let text = manifest(name, &format!("--source {source}"));
        assert!(text.contains(&format!("hyoshi = {{ {line}, default-features = false }}")), "{text}");
        assert!(!text.contains(here), "{text}");
    }
    for bad in ["svn", "git", "path=/"] {
        place.hyoshi(&format!("new five --source {bad}")).exits(2);
    }
    assert!(!place.has("five"));
}

#[test]
#[ignore = "compiles the library and most of what it rests on once more"]
fn a_program_without_features_refuses_reservations_and_has_the_verbs_of_a_system() {
    let place = Place::new();
    let built = Path::new(env!("CARGO_BIN_EXE_hyoshi")).parent().unwrap().parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--offline", "--package", "hyoshi", "--example", "new-project", "--no-default-features"]);
    cargo.arg("--target-dir").arg(built.join("featureless"));
    assert!(cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
    let run = |words: &str| {
        let mut program = Command::new(built.join("featureless/debug/examples/new-project"));
        Ended::of(words, &program.args(words.split(' ')).current_dir(place.path()).output().unwrap())
    };
    place.hyoshi("new drone").exits(0);
    run("check drone/system.toml").exits(0);
    run("sim drone/system.toml").exits(0);
    let help = run("help").out;
    assert!(help.contains("\n  check ") && !help.contains("\n  broker ") && !help.contains("\n  call "), "{help}");
    let reservation = "\n[reservation.r]\nprogram = [\"true\"]\nperiod = \"50ms\"\n";
    place.write("reserved.toml", place.read("drone/system.toml") + reservation);
    let refused = run("run reserved.toml").exits(2);
    assert!(refused.err.contains("feature `broker`"), "{}", refused.err);
}

#[test]
fn what_is_there_is_left_alone() {
    let place = Place::new();
    place.hyoshi("new drone").exits(0);
    place.write("drone/system.toml", "mine");
    place.write("file", "mine");
    std::os::unix::fs::symlink("nowhere", place.path().join("link")).unwrap();
    for name in ["drone", "drone/", "./drone", "file", "link"] {
        let ended = place.hyoshi(&format!("new {name}")).exits(2);
        assert!(ended.err.contains("exists already") && ended.err.contains("choose another name"), "{}", ended.err);
    }
    assert_eq!(place.read("drone/system.toml"), "mine");
    assert_eq!(place.read("file"), "mine");
    assert_eq!(place.names(), ["drone", "file", "link"]);
}

#[test]
fn names_that_are_none_make_nothing() {
    let place = Place::new();
    for name in ["7up", "-", "a.b", "..", ".", "/", "dröne", "test", "a/build", "hyoshi"] {
        let ended = place.hyoshi(&format!("new {name}")).exits(2);
        assert!(ended.err.contains("help: "), "{name}: {}", ended.err);
    }
    let spaced = place.command("new").arg("two words").output().unwrap();
    assert!(Ended::of("new 'two words'", &spaced).exits(2).err.contains("use letters, digits"));
    assert_eq!(place.names(), [""; 0]);
}

#[test]
fn a_directory_that_cannot_be_made_is_told_of() {
    let place = Place::new();
    place.write("file", "");
    let ended = place.hyoshi("new file/drone --format json").exits(2);
    let error = ended.error();
    assert!(error["message"].as_str().unwrap().contains("file/drone"), "{error}");
    assert!(error["help"].is_string());
}
