//! `hyoshi trace`: what a recording says, and what is left of one that was cut off.

use crate::common;

use std::process::Stdio;
use std::time::Instant;

use common::{Place, SMALL, alone, example, real_time, time, without_circumstances};

#[test]
fn a_recorded_simulation_replays_to_the_same_decisions_and_figures() {
    for (file, words) in
        [("flight-program.toml", ""), ("flight-program.toml", "--strategy MUF --seed 5 --duration 30s --cap 80%")]
    {
        let place = Place::new();
        let sim = place.hyoshi(&format!("sim {} {words} --record sim.hyo --format json", example(file)));
        let replayed = place.hyoshi("trace replay sim.hyo").exits(0);
        assert!(replayed.out.contains("decisions identical"), "{}", replayed.out);
        let json = place.hyoshi("trace replay sim.hyo --format json").exits(0).json();
        assert_eq!(json["divergence"], serde_json::Value::Null);
        assert!(json["decisions"].as_u64() > Some(10_000), "{json}");

        let summary = place.hyoshi("trace summary sim.hyo --format json").exits(sim.code);
        let (mut said, mut recorded) = (without_circumstances(sim.json()), without_circumstances(summary.json()));
        // The command line's changes are in the recording, warnings of the file are not.
        said["notes"].take();
        recorded["notes"].take();
        assert_eq!(said, recorded);
        assert!(
            place.hyoshi("trace compare sim.hyo").exits(0).out.contains("near-ties 0, disturbed 0, disagreements 0")
        );
    }
}

#[test]
fn a_recording_is_whole_without_the_files_it_was_made_from() {
    let place = Place::new();
    place.write("times.txt", "1ms\n2ms\n");
    place.write("system.toml", SMALL.replace("wcet = \"2ms\"", "wcet = \"2ms\"\ntakes = { file = \"times.txt\" }"));
    place.hyoshi("sim system.toml --record sim.hyo").exits(0);
    let elsewhere = Place::new();
    std::fs::copy(place.path().join("sim.hyo"), elsewhere.path().join("sim.hyo")).unwrap();
    for verb in ["summary", "replay", "compare"] {
        elsewhere.hyoshi(&format!("trace {verb} sim.hyo")).exits(0);
    }
}

#[test]
fn a_report_can_be_made_of_a_recording_later() {
    let place = Place::with_small();
    place.hyoshi("sim small.toml --record sim.hyo").exits(0);
    place.hyoshi("trace summary sim.hyo --report report.html").exits(0);
    assert!(place.read("report.html").contains("steer"));
    let over = place.hyoshi("trace summary sim.hyo --report sim.hyo").exits(2);
    assert!(over.err.contains("cannot overwrite"), "{}", over.err);
    place.hyoshi("trace replay sim.hyo").exits(0);
}

#[test]
fn a_recorded_run_replays_identically_and_agrees_with_the_simulation() {
    let _alone = alone();
    let place = Place::with_small();
    let run = place.hyoshi("run small.toml --no-report --record run.hyo --format json");
    let replayed = place.hyoshi("trace replay run.hyo").exits(0);
    assert!(replayed.out.contains("decisions identical"), "{}", replayed.out);
    // Who had the CPU is told where the kernel tells it, and the parts sum to the duration.
    let findings = place.hyoshi("doctor --format json").json();
    let mut findings = findings["findings"].as_array().unwrap().iter();
    let visibility = findings.find(|finding| finding["topic"] == "context switches").unwrap();
    let basis = if visibility["verdict"] == "granted" { "switches" } else { "clocks" };
    for summary in [run.json(), place.hyoshi("trace summary run.hyo --format json").json()] {
        assert_eq!(time(&summary).1, basis, "{summary}");
        let time = &summary["processors"][0]["time"];
        assert!(time["execution_ns"].as_u64() > Some(100_000_000), "{time}");
        assert!(time["overhead_ns"].as_u64() > Some(0) && time["overhead_ns"].as_u64() < time["execution_ns"].as_u64());
    }
    let (mut said, mut recorded) = (
        without_circumstances(run.json()),
        without_circumstances(place.hyoshi("trace summary run.hyo --format json").json()),
    );
    // The last event lies a moment before the end.
    for summary in [&mut said, &mut recorded] {
        // A recording does not contain the load of the machine.
        for field in ["notes", "duration_ns", "processors", "epochs", "machine_utilisation_ppm"] {
            summary[field].take();
        }
    }
    assert_eq!(said, recorded);
    if real_time() {
        let compared = place.hyoshi("trace compare run.hyo --format json").exits(0).json();
        let processor = &compared["processors"][0];
        assert_eq!(processor["disagreements"].as_array().map(Vec::len), Some(0), "{processor}");
        let disturbed = processor["disturbed"].as_array().unwrap().len() as u64;
        assert!(processor["agreeing"].as_u64().unwrap() + disturbed > 90, "{processor}");
    }
}

#[test]
fn a_summary_prints_the_notes_of_the_run_at_the_same_level() {
    let _alone = alone();
    let place = Place::with_small();
    // The hold on the idle states is a note at the level `info` where it is granted, `degraded` elsewhere.
    place.write("small.toml", format!("idle_states = \"forbid\"\n{SMALL}"));
    let run = place.hyoshi("run small.toml --no-report --record run.hyo --format json").json();
    let summary = place.hyoshi("trace summary run.hyo --format json").json();
    let notes = |summary: &serde_json::Value| {
        let notes = summary["notes"].as_array().unwrap().iter();
        notes
            .map(|note| ["topic", "text", "level"].map(|key| note[key].as_str().unwrap().to_owned()))
            .collect::<Vec<_>>()
    };
    let (run, recorded) = (notes(&run), notes(&summary));
    let both: Vec<_> = recorded.iter().filter(|[_, text, _]| run.iter().any(|[_, other, _]| other == text)).collect();
    assert!(both.iter().any(|[topic, ..]| topic == "idle states"), "{run:?} {recorded:?}");
    both.iter().for_each(|note| assert!(run.contains(note), "{note:?} is not in {run:?}"));
    let level = if both.iter().any(|[_, text, _]| text.contains("is held at 0 us")) { "info" } else { "degraded" };
    let idle = both.iter().find(|[topic, ..]| topic == "idle states").unwrap();
    assert_eq!(idle[2], level);
}

#[test]
fn what_was_recorded_survives_sigkill() {
    let _alone = alone();
    let place = Place::with_small();
    let mut command = place.command("run small.toml --duration 60s --record run.hyo");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let started = Instant::now();
    // The header, and what two flushes half a second apart have added.
    place.wait_for_growth("run.hyo", 3);
    let ran = started.elapsed();
    child.kill().unwrap();
    child.wait().unwrap();
    let summary = place.hyoshi("trace summary run.hyo --format json");
    assert!(summary.code < 2, "{}", summary.err);
    let json = summary.json();
    // Two flushes were seen, so at least the first half second is there; nothing is invented.
    let until = json["duration_ns"].as_u64().unwrap();
    assert!(until >= 500_000_000 && u128::from(until) <= ran.as_nanos() + 500_000_000, "{until} of {ran:?}");
    assert!(json["operations"][0]["counts"]["made"].as_u64() > Some(20), "{}", json["operations"]);
    let notes = json["notes"].as_array().unwrap();
    assert!(notes.iter().any(|note| note["topic"] == "recording"), "{notes:?}");
    assert_ne!(time(&json).1, "simulated");
    place.hyoshi("trace replay run.hyo").exits(0);
    // No report was written, and half a one was not either.
    assert_eq!(place.names(), ["run.hyo", "small.toml"]);
}

#[test]
fn a_run_that_was_killed_is_judged_to_its_end_though_a_processor_had_nothing_to_do() {
    let _alone = alone();
    let place = Place::new();
    let idle = "[operation.rare]\non = \"idle\"\nevery = \"50s\"\nwcet = \"1ms\"\n";
    let busy = "[operation.often]\non = \"busy\"\nevery = \"10ms\"\nwcet = \"1ms\"\n";
    let hosts = "[host.a]\n[host.b]\n[processor.busy]\nhost = \"a\"\n[processor.idle]\nhost = \"b\"\n";
    place.write("two.toml", format!("name = \"two\"\nduration = \"60s\"\n{hosts}{busy}{idle}"));
    let mut command = place.command("run two.toml --record run.hyo");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // A second is told of twice, by several blocks each time.
    place.wait_for_growth("run.hyo", 8);
    child.kill().unwrap();
    child.wait().unwrap();
    let json = place.hyoshi("trace summary run.hyo --format json").json();
    let until = json["duration_ns"].as_u64().unwrap();
    let often = json["operations"].as_array().unwrap().iter().find(|one| one["name"] == "often").unwrap();
    let released = often["counts"]["released"].as_u64().unwrap();
    // The idle one's only job ended in the first milliseconds.
    assert!(until > 400_000_000 && released >= 40, "{until}: {often}");
}

#[test]
fn a_recording_cut_off_anywhere_is_read_up_to_there_or_refused_with_a_reason() {
    let place = Place::with_small();
    place.hyoshi("sim small.toml --record whole.hyo").exits(0);
    let whole = place.bytes("whole.hyo");
    let header = whole.windows(4).position(|window| window == b"HBLK").unwrap();
    for length in [0, 1, 9, 17, 40, header - 1] {
        place.write("cut.hyo", &whole[..length]);
        let ended = place.hyoshi("trace summary cut.hyo").exits(2);
        assert!(ended.err.starts_with("error: cannot read cut.hyo: "), "{}", ended.err);
    }
    for length in [header + 1, header + 11, header + 100, whole.len() - 1] {
        place.write("cut.hyo", &whole[..length]);
        let ended = place.hyoshi("trace summary cut.hyo");
        assert!(ended.code < 2, "{}", ended.err);
        assert!(ended.out.contains("degraded: recording: the recording ends within a block"), "{}", ended.out);
    }
}

#[test]
fn a_recording_that_was_edited_is_refused() {
    let place = Place::with_small();
    place.hyoshi("sim small.toml --record whole.hyo").exits(0);
    let whole = place.bytes("whole.hyo");
    let header = whole.windows(4).position(|window| window == b"HBLK").unwrap();
    // A byte of the magic, the version, the header, a block's length, checksum and events.
    for (at, said) in [
        (0, "not a recording"),
        (8, "version"),
        (60, "header"),
        (header + 7, "block"),
        (header + 9, "checksum"),
        (header + 200, "checksum"),
    ] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        place.write("edited.hyo", bytes);
        for verb in ["summary", "replay", "compare"] {
            let ended = place.hyoshi(&format!("trace {verb} edited.hyo")).exits(2);
            assert!(ended.err.contains("edited.hyo") && ended.err.contains(said), "{at}: {}", ended.err);
        }
        let summary = place.hyoshi("trace summary edited.hyo");
        // What comes before the damage is shown.
        assert_eq!(summary.out.contains("damaged after"), at >= header, "{at}: {}", summary.out);
        let error = place.hyoshi("trace summary edited.hyo --format json").error();
        assert!(error["message"].as_str().unwrap().contains(said), "{error}");
    }
}

/// Checksums find damage; who edits a file can repair them. What is told then may be wrong, but
/// nothing breaks, and nothing the system has not is believed.
#[test]
fn a_recording_that_was_edited_with_its_checksums_is_refused_or_read_without_harm() {
    let place = Place::with_small();
    place.hyoshi("sim small.toml --duration 300ms --record whole.hyo").exits(0);
    let whole = place.bytes("whole.hyo");
    let block = whole.windows(4).position(|window| window == b"HBLK").unwrap();
    let (from, to) = (block + 12, whole.len());
    let mut state = 7u64;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut refused = 0;
    for _ in 0..24 {
        let mut bytes = whole.clone();
        (0..3).for_each(|_| bytes[from + draw(to - from)] ^= 1 << draw(8));
        let crc = crc32fast::hash(&bytes[from..to]);
        bytes[from - 4..from].copy_from_slice(&crc.to_le_bytes());
        place.write("edited.hyo", bytes);
        for verb in ["summary", "replay", "compare"] {
            let ended = place.hyoshi(&format!("trace {verb} edited.hyo"));
            refused += usize::from(ended.code == 2);
            assert!(ended.code <= 2 && (ended.code < 2 || ended.err.starts_with("error: ")), "{}", ended.err);
        }
    }
    assert!(refused > 0);
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_run() {
    let _alone = alone();
    let place = Place::with_small();
    // A file system of its own would need privileges; a limit on the length of files is alike.
    let words = "run small.toml --no-report --record run.hyo --format json";
    let limited = format!("ulimit -f 4; trap '' XFSZ; exec {} {words}", env!("CARGO_BIN_EXE_hyoshi"));
    let mut shell = std::process::Command::new("sh");
    let output = shell.args(["-c", &limited]).current_dir(place.path()).output().unwrap();
    let ended = common::Ended::of(words, &output).exits(2);
    let json = ended.json();
    assert_eq!(json["duration_ns"], 1_500_000_000u64, "the run went on");
    let message = json["errors"][0]["message"].as_str().unwrap();
    assert!(message.contains("run.hyo") && message.contains("are saved and readable"), "{message}");
    let summary = place.hyoshi("trace summary run.hyo");
    assert!(summary.code < 2, "{}", summary.err);
}

#[test]
fn a_recording_cut_anywhere_tells_of_all_processors_until_the_same_time() {
    let place = Place::new();
    place.hyoshi(&format!("sim {} --duration 6s --record whole.hyo", example("uav.toml")));
    let whole = place.bytes("whole.hyo");
    let mut before = 0;
    for permille in [60, 150, 290, 300, 370, 500, 610, 770, 930, 999] {
        place.write("cut.hyo", &whole[..whole.len() * permille / 1000]);
        let summary = place.hyoshi("trace summary cut.hyo --format json").json();
        let until = summary["duration_ns"].as_u64().unwrap();
        assert!(before <= until && until < 6_000_000_000, "{permille}: {until}");
        // Half a second is written at a time, by virtual time.
        assert!(until + 1_300_000_000 > 6_000_000_000 * permille as u64 / 1000, "{permille}: {until}");
        before = until;
        let said = summary["verdict"].as_str().unwrap();
        let judged = said.starts_with("Holds so far") || said.starts_with("Does not hold");
        assert!(judged || said.starts_with("No verdict"), "{said}");
        assert_eq!(judged, summary["processors"].as_array().unwrap().iter().any(|one| one["consumed_ns"] != 0));
        let compared = place.hyoshi("trace compare cut.hyo").exits(0).out;
        assert!(!compared.contains("disagreement "), "{compared}");
        let again = place.hyoshi("sim --from cut.hyo --format json").json();
        for processor in again["again"]["agreement"].as_array().unwrap() {
            assert_eq!(processor["disagreements"].as_array().map(Vec::len), Some(0), "{permille}: {processor}");
        }
        let why = place.hyoshi("why cut.hyo").out;
        assert!(!why.contains("\nall ") && !why.starts_with("all "), "{why}");
        place.hyoshi("trace replay cut.hyo").exits(0);
    }
}
