//! Output in a terminal of 80 columns, in colour or not, and in a terminal without escape sequences.

use std::path::Path;
use std::process::Command;

use crate::common::broker::Broker;
use crate::common::{Ended, Place};

const COLUMNS: usize = 80;

/// Standard output of a verb for 80 columns; `COLUMNS` counts where there is no terminal.
fn narrow(place: &Place, words: &str) -> String {
    let ended = Ended::of(words, &place.command(words).env("COLUMNS", COLUMNS.to_string()).output().unwrap());
    assert!(ended.code < 2, "{words}: {}", ended.err);
    ended.out
}

/// Only a line of one long word may be longer than the terminal.
fn assert_fits(words: &str, text: &str) {
    assert!(!text.is_empty(), "{words}");
    for line in text.lines().map(|line| line.trim_end_matches('\r')) {
        let fits = line.chars().count() <= COLUMNS || !line.trim().contains(' ');
        assert!(fits, "{words}: {} columns: {line}", line.chars().count());
    }
}

/// What script(1) shows of a session in a terminal of 80 columns; `None` if it is not installed.
fn in_terminal(place: &Place, words: &str, environment: &[(&str, &str)]) -> Option<String> {
    let session = format!("stty rows 24 cols {COLUMNS}; exec {} {words}", env!("CARGO_BIN_EXE_hyoshi"));
    let mut command = Command::new("script");
    command.args(["-qec", &session, "/dev/null"]).current_dir(place.path());
    command.env_remove("NO_COLOR").env_remove("COLUMNS").env("HYOSHI_COSTS", "none").envs(environment.iter().copied());
    match command.output() {
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(_) => {
            eprintln!("skipped: needs script (package bsdutils)");
            None
        }
    }
}

fn example(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name).display().to_string()
}

#[test]
fn no_line_is_longer_than_the_terminal() {
    let place = Place::with_small();
    let (late, flight) = (example("late.toml"), example("flight-program.toml"));
    let verbs = [
        format!("check {flight} --explain --verbose"),
        format!("check {} --sensitivity", example("fusion.toml")),
        format!("check {}", example("film.toml")),
        format!("sim {flight} --duration 4s --verbose"),
        format!("sim {late} --record late.hyo"),
        "sim --from late.hyo --strategy EDF".to_owned(),
        "trace summary late.hyo --verbose".to_owned(),
        "trace compare late.hyo".to_owned(),
        "why late.hyo".to_owned(),
        "why late.hyo after#1".to_owned(),
        "run small.toml --duration 300ms --no-report --verbose".to_owned(),
        "doctor".to_owned(),
        "strategies".to_owned(),
        "ior decode corbaloc:iiop:1.2@host:2809/NameService".to_owned(),
        "--help".to_owned(),
        "run --help".to_owned(),
    ];
    for words in verbs {
        assert_fits(&words, &narrow(&place, &words));
    }
}

#[test]
fn the_brokers_verbs_fit_too() {
    let place = Place::new();
    let _broker = Broker::start(&place, "");
    let at = format!("--socket {}", place.path().join("run/broker.sock").display());
    for verb in ["broker show", "broker list", "broker policy", "top --once --every 100ms"] {
        let words = format!("{verb} {at}");
        assert_fits(verb, &narrow(&place, &words));
    }
}

#[test]
fn notes_have_five_lines_unless_all_are_wanted() {
    let place = Place::with_small();
    let notes = |words: &str| {
        let text = narrow(&place, words);
        let head = text.split("\nDeadlines").next().unwrap();
        // The title, an empty line, the verdict, the analysis; then notes.
        let notes = ["note: ", "degraded: ", "refused: ", "failed: ", "… "];
        head.lines().skip_while(|line| !notes.iter().any(|word| line.trim_start().starts_with(word))).count()
    };
    let run = "run small.toml --duration 300ms --no-report";
    assert!(notes(run) <= 5);
    assert!(notes(&format!("{run} --verbose")) >= notes(run));
}

#[test]
fn colour_is_a_choice() {
    let place = Place::with_small();
    let piped = |words: &str| place.hyoshi(words).out.contains('\x1b');
    assert!(!piped("check small.toml") && !piped("check --help"));
    assert!(piped("check small.toml --color always") && piped("check --help --color=always"));
    assert!(!piped("check small.toml --color never"));
    assert!(place.hyoshi("check small.toml --color sometimes").exits(2).err.contains("auto, always, never"));
    let coloured = |words: &str, environment: &[(&str, &str)]| {
        in_terminal(&place, words, environment).map(|text| text.contains('\x1b'))
    };
    let xterm = ("TERM", "xterm");
    for (words, environment, wanted) in [
        ("check small.toml", &[xterm][..], true),
        ("check small.toml", &[xterm, ("NO_COLOR", "1")], false),
        ("check small.toml", &[("TERM", "dumb")], false),
        ("check small.toml --color never", &[xterm], false),
        ("check small.toml --color always", &[xterm, ("NO_COLOR", "1")], true),
        ("check --help", &[xterm], true),
        ("check --help", &[("TERM", "dumb")], false),
    ] {
        let Some(found) = coloured(words, environment) else { return };
        assert_eq!(found, wanted, "{words} {environment:?}");
    }
}

#[test]
fn a_dumb_terminal_gets_lines_and_no_escape_sequences() {
    let place = Place::with_small();
    let words = "run --share-cpu small.toml --no-report";
    let Some(text) = in_terminal(&place, words, &[("TERM", "dumb")]) else { return };
    assert!(!text.contains('\x1b'), "{text:?}");
    assert!(text.contains("/1.5s  critical made"), "the progress is a line: {text}");
    assert_fits(words, &text);
    let Some(text) = in_terminal(&place, words, &[("TERM", "xterm")]) else { return };
    assert!(text.contains("\x1b[?2026h"), "the progress is a table: {text:?}");
}
