//! Whatever is wrong: what, where, what to do about it, exit code 2, and no panic.
//!
//! `tests/golden/bad_input.txt` holds the answers word by word. After a change of wording: `BLESS=1 cargo
//! test -p hyoshi --test bad_input`, then read the diff by eye.

use crate::common;

use std::fmt::Write;
use std::fs::File;

use common::{Ended, Place, SMALL};

/// What is refused, by the file that shows it.
const FILES: [(&str, &str); 14] = [
    ("not-toml.toml", "name = \"x\"\n[operation.a\nevery = \"10ms\"\n"),
    ("unknown-key.toml", "name = \"x\"\n[operation.a]\nevery = \"10ms\"\nwcte = \"1ms\"\n"),
    ("no-unit.toml", "name = \"x\"\n[operation.a]\nevery = 10\nwcet = \"1ms\"\n"),
    ("zero-period.toml", "name = \"x\"\n[operation.a]\nevery = \"0ms\"\nwcet = \"1ms\"\n"),
    ("overflow.toml", "name = \"x\"\n[operation.a]\nevery = \"99999999999999999999h\"\nwcet = \"1ms\"\n"),
    (
        "cycle.toml",
        "name = \"x\"\n[operation.a]\nafter = { all = [\"b\"] }\nwcet = \"1ms\"\n[operation.b]\nafter = { all = [\"a\"] }\nwcet = \"1ms\"\n",
    ),
    (
        "no-processor.toml",
        "name = \"x\"\n[processor.main]\n[operation.a]\non = \"mian\"\nevery = \"10ms\"\nwcet = \"1ms\"\n",
    ),
    (
        "no-operation.toml",
        "name = \"x\"\n[operation.a]\nevery = \"10ms\"\nwcet = \"1ms\"\n[chain.c]\npath = [\"a\", \"b\"]\ndeadline = \"5ms\"\n",
    ),
    (
        "no-strategy.toml",
        "name = \"x\"\n[processor.main]\nstrategy = \"RSM\"\n[operation.a]\nevery = \"10ms\"\nwcet = \"1ms\"\n",
    ),
    (
        "two-strategies.toml",
        "name = \"x\"\n[processor.one]\nstrategy = \"fastest first\"\n[processor.two]\nstrategy = \"mlf\"\n",
    ),
    (
        "no-times.toml",
        "name = \"x\"\n[operation.a]\nevery = \"10ms\"\nwcet = \"1ms\"\ntakes = { file = \"none.txt\" }\n",
    ),
    ("empty-name.toml", "name = \"\"\n"),
    ("small.toml", SMALL),
    ("cpu.toml", "name = \"x\"\n[processor.main]\ncpu = 1023\n[operation.a]\nevery = \"10ms\"\nwcet = \"1ms\"\n"),
];

/// What is asked for. None of it can be done.
const WORDS: [&str; 51] = [
    "sim not-toml.toml",
    "sim unknown-key.toml",
    "sim no-unit.toml",
    "sim zero-period.toml",
    "sim overflow.toml",
    "sim cycle.toml",
    "sim no-processor.toml",
    "check no-operation.toml",
    "check no-strategy.toml",
    "check two-strategies.toml",
    "sim no-times.toml",
    "sim empty-name.toml",
    "sim missing.toml",
    "sim directory",
    "sim huge.toml",
    "sim picture.toml",
    "sim small.toml/below",
    "sim /dev/null",
    "run missing.toml",
    "",
    "simulate small.toml",
    "sim",
    "sim small.toml other.toml",
    "sim small.toml --stratgy RMS",
    "sim small.toml --strategy RSM",
    "sim small.toml --cap 2",
    "sim small.toml --cap 0%",
    "sim small.toml --cap 101%",
    "sim small.toml --duration abc",
    "sim small.toml --duration 0s",
    "sim small.toml --duration 99999999999h",
    "sim small.toml --seed -1",
    "sim small.toml --seed 18446744073709551616",
    "sim small.toml --cancel perhaps",
    "sim small.toml --preemption some",
    "sim small.toml --format xml",
    "run small.toml --report r.html --no-report",
    "sim small.toml --report none/r.html",
    "sim small.toml --report directory",
    "sim small.toml --report small.toml",
    "sim small.toml --record none/r.hyo",
    "sim small.toml --record directory",
    "sim small.toml --record small.toml",
    "sim small.toml --record /dev/full",
    "sim small.toml --jobs none/jobs.csv",
    "sim small.toml --jobs /dev/full",
    "sim small.toml --jobs small.toml",
    "trace summary missing.hyo",
    "trace summary small.toml",
    "trace replay directory",
    "trace compare empty.hyo",
];

fn place() -> Place {
    let place = Place::new();
    for (name, text) in FILES {
        place.write(name, text);
    }
    std::fs::create_dir(place.path().join("directory")).unwrap();
    place.write("empty.hyo", "");
    place.write("picture.toml", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0");
    // A hundred megabytes, of which the disk holds none.
    File::create(place.path().join("huge.toml")).unwrap().set_len(100 << 20).unwrap();
    place
}

#[test]
fn every_refusal_says_what_where_and_what_to_do() {
    let place = place();
    let mut said = String::new();
    for words in WORDS {
        let ended = Ended::of(words, &place.exactly(words).output().unwrap()).exits(2);
        assert_eq!(ended.out, "", "{words}");
        assert!(!ended.err.is_empty(), "{words}");
        let path = place.path().display().to_string();
        let err = ended.err.replace(&path, "PLACE");
        let err: Vec<&str> = err.lines().map(str::trim_end).collect();
        writeln!(said, "$ hyoshi {words}\n{}\n", err.join("\n").trim_end()).unwrap();
    }
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/bad_input.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&golden, said).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&golden).unwrap_or_default();
    for (said, expected) in said.split("$ hyoshi ").zip(expected.split("$ hyoshi ")) {
        assert_eq!(said, expected, "BLESS=1 takes the new words");
    }
    assert_eq!(said.len(), expected.len());
}

#[test]
fn where_json_was_asked_for_errors_are_json_with_exit_code_2() {
    let place = place();
    for words in WORDS.iter().filter(|words| !words.contains("--format")) {
        // Before the verb or after it, in one word or in two.
        let at_end = place.hyoshi(&format!("{words} --format json"));
        let error = at_end.error();
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{words}: {error}");
        assert_eq!(place.hyoshi(&format!("--format=json {words}")).error(), error, "{words}");
    }
    let error = place.hyoshi("sim no-strategy.toml --format json").error();
    assert_eq!((&error["file"], &error["line"], &error["column"]), (&"no-strategy.toml".into(), &3.into(), &12.into()));
}

#[test]
fn a_cpu_that_is_not_there_can_be_simulated_but_not_run() {
    let place = place();
    place.hyoshi("sim cpu.toml").exits(0);
    let ended = place.hyoshi("run cpu.toml --record run.hyo").exits(2);
    assert!(ended.err.contains("requests CPU 1023, but this process may use CPU"), "{}", ended.err);
    assert!(ended.err.contains("change or remove `cpu` in the system's file"), "{}", ended.err);
    assert_eq!(ended.out, "");
}

#[test]
fn a_strategy_that_the_command_line_replaces_need_not_be_known() {
    let place = place();
    place.hyoshi("sim no-strategy.toml --strategy edf").exits(0);
    place.hyoshi("sim no-strategy.toml --strategy edf --record sim.hyo").exits(0);
    place.hyoshi("trace replay sim.hyo").exits(0);
}

#[test]
fn a_report_on_a_full_disk_is_told_of_and_the_figures_are_not_lost() {
    let place = place();
    let ended = place.hyoshi("sim small.toml --report /dev/full").exits(2);
    assert!(ended.out.contains("all 75 critical jobs met their deadlines"), "{}", ended.out);
    assert!(ended.err.contains("cannot write the report /dev/full: No space left"), "{}", ended.err);
    assert!(ended.err.contains("free some space"), "{}", ended.err);
    let ended = place.hyoshi("sim small.toml --report /dev/full --format json");
    assert_eq!(ended.json()["holds"], true);
    assert!(ended.error()["message"].as_str().unwrap().contains("No space left"));
}

#[test]
fn standard_output_on_a_full_disk_is_told_of() {
    let place = place();
    for words in
        ["sim small.toml", "sim small.toml --format json", "check small.toml", "doctor", "schema", "strategies"]
    {
        let output = place.command(words).stdout(File::create("/dev/full").unwrap()).output().unwrap();
        let ended = Ended::of(words, &output).exits(2);
        if !words.contains("json") {
            assert!(ended.err.contains("cannot write to standard output: No space left"), "{words}: {}", ended.err);
        }
    }
}

#[test]
fn nothing_is_left_of_what_was_refused() {
    let place = Place::with_small();
    for words in
        ["sim small.toml --report none/r.html --record r.hyo --jobs j.csv", "run small.toml --record none/r.hyo"]
    {
        place.hyoshi(words).exits(2);
    }
    assert_eq!(place.names(), ["small.toml"]);
    assert_eq!(place.read("small.toml"), SMALL);
}

#[test]
fn help_is_no_error() {
    let place = Place::new();
    for words in ["help", "--help", "--version", "sim --help", "trace help summary", "--help --format json"] {
        assert!(!place.hyoshi(words).exits(0).out.is_empty());
    }
}
