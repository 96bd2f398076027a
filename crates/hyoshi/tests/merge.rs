//! `hyoshi trace merge`, the verbs on recordings of single hosts, and `hyoshi sim --links recorded`.

use crate::common;

use std::fs;

use common::{Place, without_circumstances};
use hyoshi_model::{HostId, Instant, Span};
use hyoshi_trace::{CpuEvent, RecordingHeader, RecordingReader, RecordingWriter, TraceEvent};

const TWO: &str = r#"
name = "two"
duration = "2s"
seed = 3

[host.drone]
[host.station]

[processor.airframe]
host = "drone"
[processor.ground]
host = "station"
[processor.desk]
host = "station"

[operation.sense]
on       = "airframe"
every    = "10ms"
wcet     = "2ms"
takes    = { uniform = ["1ms", "2ms"] }
critical = true

[operation.track]
on    = "ground"
after = { all = ["sense"] }
wcet  = "3ms"
takes = { uniform = ["1ms", "3ms"] }

[operation.plan]
on    = "ground"
every = "25ms"
wcet  = "4ms"

[operation.show]
on    = "desk"
after = { all = ["track"] }
wcet  = "1ms"

[operation.steer]
on    = "airframe"
after = { all = ["track"] }
wcet  = "1ms"

[operation.status]
on           = "ground"
called       = true
min_interval = "40ms"
wcet         = "0.5ms"

[chain.loop]
path     = ["sense", "track", "steer"]
deadline = "30ms"

[[link]]
between = ["drone", "station"]
delay   = ["1ms", "3ms"]
loss    = "5%"
"#;

/// A recorded simulation of the system in `place`, and the recordings that its hosts would have made, `ahead` being how far
/// the drone's clock is ahead of the station's.
fn recorded(words: &str, ahead: i64) -> Place {
    let place = Place::new();
    place.write("two.toml", TWO);
    let sim = place.hyoshi(&format!("sim two.toml {words} --record all.hyo"));
    assert!(sim.code < 2, "{}", sim.err);
    for (file, processors) in [("drone.hyo", vec![0]), ("station.hyo", vec![1, 2])] {
        part(&place, file, processors, ahead, |_| ());
    }
    place
}

fn part(place: &Place, file: &str, processors: Vec<u32>, ahead: i64, change: impl Fn(&mut RecordingHeader)) {
    part_within(place, file, processors, (ahead, 50), change);
}

/// The same with this error of the clocks in us.
fn part_within(
    place: &Place,
    file: &str,
    processors: Vec<u32>,
    (ahead, error): (i64, u64),
    change: impl Fn(&mut RecordingHeader),
) {
    let reader = RecordingReader::new(fs::File::open(place.path().join("all.hyo")).unwrap()).unwrap();
    let mut header = RecordingHeader { processors: processors.clone(), ..reader.header().clone() };
    change(&mut header);
    let to = fs::File::create(place.path().join(file)).unwrap();
    let mut writer = RecordingWriter::new(to, file, &header).unwrap();
    let mut next = Instant::ZERO;
    for entry in reader.map(Result::unwrap).filter(|entry| processors.contains(&entry.processor.0)) {
        if entry.now >= next && !processors.contains(&0) {
            let clock = CpuEvent::Clock { host: HostId(0), offset: ahead, error: Span::from_micros(error) };
            writer.event(entry.processor, entry.now, &TraceEvent::Cpu(clock)).unwrap();
            next = entry.now + Span::from_millis(100);
        }
        writer.event(entry.processor, entry.now, &entry.event).unwrap();
    }
    writer.finish().unwrap();
}

const MERGE: &str = "trace merge station.hyo drone.hyo -o merged.hyo";

#[test]
fn what_hosts_recorded_with_exact_clocks_merges_to_what_one_process_would_have_recorded() {
    let place = recorded("", 0);
    let merged = place.hyoshi(MERGE).exits(0);
    assert!(merged.out.contains("of 2 hosts, on the clock of `drone`"), "{}", merged.out);
    let replay = |file: &str| place.hyoshi(&format!("trace replay {file}")).exits(0).out;
    assert_eq!(replay("merged.hyo"), replay("all.hyo"));
    let compared = place.hyoshi("trace compare merged.hyo").exits(0).out;
    assert_eq!(compared.matches("near-ties 0, disturbed 0, disagreements 0").count(), 3, "{compared}");
    let summary = |file: &str| {
        let mut json = without_circumstances(place.hyoshi(&format!("trace summary {file} --format json")).json());
        json["notes"].take();
        json
    };
    assert_eq!(summary("merged.hyo"), summary("all.hyo"));
    let exported = place.hyoshi("trace export --perfetto merged.hyo").exits(0).out;
    assert!(exported.contains("arrows"), "{exported}");
    let why = |file: &str| place.hyoshi(&format!("why {file} track")).out;
    assert_eq!(why("merged.hyo"), why("all.hyo"));
}

/// A job of `track` that was not lost on its way, as `why` explains it in a recording.
fn why_track(place: &Place, file: &str) -> (serde_json::Value, String) {
    for number in 0..20 {
        let explained = place.hyoshi(&format!("why {file} track#{number} --format json"));
        if explained.code < 2 {
            let text = place.hyoshi(&format!("why {file} track#{number}"));
            return (explained.json()["job"].clone(), text.out);
        }
    }
    panic!("{file} has no job of track");
}

#[test]
fn why_shows_the_recorded_time_on_the_network_or_that_the_clocks_do_not_tell() {
    for (error, cause) in [(50, "network"), (5_000, "unknown")] {
        let place = recorded("", 0);
        // As if nodes had recorded them.
        let run = |header: &mut RecordingHeader| header.verb = "run".into();
        part_within(&place, "drone.hyo", vec![0], (400_000, error), run);
        part_within(&place, "station.hyo", vec![1, 2], (400_000, error), run);
        place.hyoshi(MERGE).exits(0);
        let (job, text) = why_track(&place, "merged.hyo");
        let at = |field: &str| job["crossing"][field].as_u64().unwrap();
        let took = at("received_at_ns") - at("sent_at_ns");
        assert_eq!(at("clock_error_ns"), error * 1_000 + 1_000, "{job:#}");
        // The link's delay, by clocks that differ by 0.4 ms.
        assert!((1_300_000..3_500_000).contains(&took), "{job:#}");
        let parts = job["parts"].as_array().unwrap();
        let of = |cause: &str| parts.iter().find(|part| part["cause"] == cause).map(|part| part["span_ns"].clone());
        assert_eq!(of(cause), Some(took.into()), "{job:#}");
        let sum: u64 = parts.iter().map(|part| part["span_ns"].as_u64().unwrap()).sum();
        assert_eq!(Some(sum), job["response_ns"].as_u64());
        assert!(text.contains("its trigger crossed hosts (times on the clock of station)"), "{text}");
        assert!(text.contains(" by sense#") && text.contains("clock error at most"), "{text}");
        // One host's recording has no sending, and the file's delay is not in it.
        let (job, _) = why_track(&place, "station.hyo");
        assert!(job["crossing"].is_null());
        let causes: Vec<&str> =
            job["parts"].as_array().unwrap().iter().map(|part| part["cause"].as_str().unwrap()).collect();
        assert!(
            causes.contains(&"upstream") && !causes.contains(&"link") && !causes.contains(&"network"),
            "{causes:?}"
        );
    }
}

#[test]
fn clocks_that_differ_are_told_and_every_verb_still_holds() {
    // The station's clock is behind: by its own clock signals of the drone would arrive 0.4 ms sooner than they do.
    let place = recorded("", 400_000);
    let json = place.hyoshi(&format!("{MERGE} --format json")).exits(0).json();
    assert_eq!((&json["clock"], &json["hosts"][1]["host"]), (&"drone".into(), &"station".into()));
    assert_eq!(json["hosts"][1]["error_ns"], 50_000);
    place.hyoshi("trace replay merged.hyo").exits(0);
    place.hyoshi("trace compare merged.hyo").exits(0);
    let offsets = |file: &str| {
        let reader = RecordingReader::new(fs::File::open(place.path().join(file)).unwrap()).unwrap();
        let clocks = reader.map(Result::unwrap).filter_map(|entry| match entry.event {
            TraceEvent::Cpu(CpuEvent::Clock { offset, .. }) => Some(offset),
            _ => None,
        });
        clocks.collect::<Vec<_>>()
    };
    let offsets = offsets("merged.hyo");
    // One for each processor of the station, and more only where a reply came too soon.
    assert!(offsets.contains(&400_000) && offsets.iter().all(|offset| *offset <= 400_000), "{offsets:?}");
    // The chain begins and ends at the drone, and samples on the way count by the drone's clock. By this clock, signals to
    // the station need 0.4 ms more, and signals back 0.4 ms less.
    let chain = |file: &str| {
        let mut json = place.hyoshi(&format!("trace summary {file} --format json")).json();
        let stages = json["chains"][0]["stages"].take();
        let network = |stage: usize| {
            let parts = stages[stage]["parts"].as_array().unwrap().clone();
            let part = parts.into_iter().find(|part| part["part"] == "network").unwrap();
            part["time"]["mean_ns"].as_i64().unwrap()
        };
        (json["chains"].clone(), [network(1), network(2)])
    };
    let ((merged, shifted), (all, network)) = (chain("merged.hyo"), chain("all.hyo"));
    assert_eq!(merged, all);
    assert_eq!(shifted, [network[0] + 400_000, network[1] - 400_000]);
}

#[test]
fn a_simulation_takes_delays_losses_and_requests_as_recorded() {
    let place = recorded("--seed 8", 0);
    place.hyoshi(MERGE).exits(0);
    let again = |words: &str| place.hyoshi(&format!("sim --from merged.hyo {words} --format json")).json();
    let recorded = again("--links recorded");
    assert!(recorded["again"]["signals_as_recorded"].as_u64() > Some(400), "{}", recorded["again"]);
    assert_eq!(recorded["again"]["signals_as_declared"], 0);
    for processor in recorded["again"]["agreement"].as_array().unwrap() {
        assert_eq!(processor["disagreements"].as_array().map(Vec::len), Some(0), "{processor}");
    }
    assert!(again("")["again"]["signals_as_recorded"].is_null());
    // A part alone knows when signals came, not when they were sent.
    let part = place.hyoshi("sim --from station.hyo --links recorded");
    assert!(part.out.contains("signals arrive or are lost as recorded"), "{}", part.out);
    assert!(place.hyoshi("sim two.toml --links recorded").exits(2).err.contains("--links without --from"));
}

#[test]
fn the_recording_of_one_host_is_read_and_said_to_be_a_part() {
    let place = recorded("", 0);
    let said = "it contains only `station`, not `drone`";
    for words in
        ["trace summary station.hyo", "trace replay station.hyo", "trace compare station.hyo", "why station.hyo track"]
    {
        let printed = place.hyoshi(words);
        assert!(printed.code < 2 && printed.out.contains(said), "{words}: {} {}", printed.out, printed.err);
    }
    let printed = place.hyoshi("trace export --perfetto station.hyo").exits(0);
    assert!(printed.out.contains(said), "{}", printed.out);
    let summary = place.hyoshi("trace summary station.hyo --verbose").out;
    assert!(summary.contains("only station; not listed: "), "{summary}");
    assert!(!summary.lines().any(|line| line.trim_start().starts_with("sense ")), "{summary}");
    place.hyoshi("trace replay station.hyo").exits(0);
    place.hyoshi("trace compare station.hyo").exits(0);
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let place = recorded("", 0);
    let refused = |words: &str, why: &str| {
        let printed = place.hyoshi(words).exits(2);
        assert!(printed.err.contains(why), "{words}: {}", printed.err);
    };
    refused("trace merge drone.hyo drone.hyo -o merged.hyo", "are both of host `drone`");
    refused("trace merge drone.hyo all.hyo -o merged.hyo", "all.hyo is not the recording of a single host");
    refused("trace merge drone.hyo -o merged.hyo", "2 values required");
    refused("trace merge drone.hyo station.hyo -o drone.hyo", "name the same file");
    part(&place, "other.hyo", vec![1, 2], 0, |header| header.run[3] ^= 1);
    refused("trace merge drone.hyo other.hyo -o merged.hyo", "are of different runs");
    part(&place, "other.hyo", vec![1, 2], 0, |header| {
        header.system = header.system.replace("every = \"25ms\"", "every = \"24ms\"");
        header.system = header.system.replace("every    = \"10ms\"", "every    = \"11ms\"");
    });
    refused(
        "trace merge drone.hyo other.hyo -o merged.hyo",
        "`every = \"10ms\"` in one and `every = \"11ms\"` in the other",
    );
    part(&place, "other.hyo", vec![1, 7], 0, |_| ());
    refused("trace merge drone.hyo other.hyo -o merged.hyo", "names processors that its system does not have");
    let whole = fs::read(place.path().join("station.hyo")).unwrap();
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x40;
    fs::write(place.path().join("other.hyo"), &damaged).unwrap();
    refused("trace merge drone.hyo other.hyo -o merged.hyo", "is damaged");
    fs::write(place.path().join("other.hyo"), "HYOSHI").unwrap();
    refused("trace merge drone.hyo other.hyo -o merged.hyo", "cannot read other.hyo");
    // Cut off, it merges as far as it goes.
    fs::write(place.path().join("other.hyo"), &whole[..whole.len() / 2]).unwrap();
    place.hyoshi("trace merge drone.hyo other.hyo -o merged.hyo").exits(0);
    place.hyoshi("trace replay merged.hyo").exits(0);
}

#[test]
fn clock_offsets_that_no_run_has_are_refused_before_a_file_is_written() {
    for ahead in [1 << 40, 1 << 61, (1 << 62) - 1, -(1 << 61), -(1 << 62)] {
        let place = recorded("", 0);
        part_within(&place, "station.hyo", vec![1, 2], (ahead, 50), |_| ());
        let merged = place.hyoshi(MERGE);
        match merged.code {
            0 => {
                let read = place.hyoshi("trace summary merged.hyo");
                assert!(read.code < 2, "{ahead}: {}", read.err);
            }
            _ => {
                assert!(merged.err.contains("station") && merged.err.contains("help: "), "{ahead}: {}", merged.err);
                assert!(!place.path().join("merged.hyo").exists(), "{ahead}");
            }
        }
    }
}

#[test]
fn losses_and_hosts_that_go_off_are_reported() {
    let place = Place::new();
    place.write("two.toml", format!("{TWO}\n[[epoch]]\nat = \"0s\"\n[[epoch]]\nat = \"1.003s\"\nset = {{ \"host.station.enabled\" = false }}\n[[epoch]]\nat = \"1.5s\"\nset = {{ \"host.station.enabled\" = true, \"link.station-drone.loss\" = \"0%\" }}\n"));
    let sim = place.hyoshi("sim two.toml --record sim.hyo");
    assert!(sim.out.contains("link drone-station") && sim.out.contains("sent to a host that was off"), "{}", sim.out);
    assert!(sim.out.contains("lost when it was switched off"), "{}", sim.out);
    place.hyoshi("trace replay sim.hyo").exits(0);
}
