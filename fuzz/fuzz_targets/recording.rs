//! Any bytes as a recording, and any bytes as the blocks of one whose checksums are right: each is
//! read, accounted for, replayed and compared, or refused; never a panic.
//!
//! The first byte says how the rest is taken: as a whole file, or as blocks, each led by its length.

#![no_main]

use std::sync::OnceLock;

use hyoshi_model::{Instant, System, read};
use hyoshi_replay::Replay;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::agreement::{ProcessorEnds, TOLERANCE, compare};
use hyoshi_trace::recording::RangeCheck;
use hyoshi_trace::{DispatchDecision, RecordingHeader, RecordingReader, RecordingWriter, Splits, Stats, TraceEvent};
use libfuzzer_sys::fuzz_target;

const SYSTEM: &str = r#"
name = "fuzz"
[processor.a]
strategy = ["RMS", "RMS+MLF"]
cancel = true
[processor.b]
strategy = "MUF"
preemption = "full"
[resource.map]
[operation.sense]
on = "a"
every = ["10ms", "30ms"]
wcet = "2ms"
critical = true
uses = { map = "1ms" }
[operation.plan]
on = "b"
after = { all = ["sense"] }
wcet = "1ms"
deadline = "20ms"
[operation.log]
on = "a"
every = "4ms"
wcet = "3ms"
[feedback.b]
algorithm = "FC-U"
utilisation = "60%"
period = "1s"
[operation.scan]
on = "b"
standby = true
every = ["20ms", "1s"]
wcet = "2ms"
[operation.copy]
on = "b"
standby = true
every = ["20ms", "1s"]
wcet = "2ms"
[condition.battery]
value = 80
[contract.power]
on = "b"
watch = { battery = { of = "condition.battery" }, late = { of = "operation.sense.miss_ratio" }, danger = { of = "processor.a.endangered" }, second = { of = "processor.a.strategy" } }
[[contract.power.region]]
name = "low"
enter = "battery < 20 || late > 0.1"
do = [{ set = "operation.sense.rate", most = "50Hz" }, { set = "operation.log.enabled", to = false }, { withdraw = "copy" }]
[[contract.power.region]]
name = "endangered"
enter = "danger > 0 || second > 0 || stale(late)"
leave = "battery > 50"
stay = "5ms"
do = [{ set = "processor.a.strategy", to = "RMS+MLF" }, { set = "operation.log.importance", to = 9 }]
[[contract.power.region]]
name = "normal"
do = [{ admit = "scan" }, { admit = "copy" }]
"#;

fn known() -> &'static (System, Plan, Vec<u8>) {
    static KNOWN: OnceLock<(System, Plan, Vec<u8>)> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let system = read(SYSTEM, "fuzz.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
        let plan = Plan::new(&system, &Strategies::built_in()).expect("a plan");
        let header = RecordingHeader { system: SYSTEM.into(), verb: "run".into(), ..RecordingHeader::default() };
        let bytes =
            RecordingWriter::new(Vec::new(), "memory", &header).and_then(RecordingWriter::finish).expect("memory").0;
        (system, plan, bytes)
    })
}

/// Blocks with right lengths and checksums around whatever comes.
fn forged(mut rest: &[u8]) -> Vec<u8> {
    let mut bytes = known().2.clone();
    while let [kind, low, high, more @ ..] = rest {
        let length = (usize::from(*low) | usize::from(*high) << 8).min(more.len());
        let (body, after) = more.split_at(length);
        bytes.extend_from_slice(if kind % 4 == 0 { b"HNAM" } else { b"HBLK" });
        bytes.extend_from_slice(&(length as u32).to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(body).to_le_bytes());
        bytes.extend_from_slice(body);
        rest = after;
    }
    bytes
}

fn digest(bytes: &[u8]) {
    let (system, plan, _) = known();
    let Ok(mut reader) = RecordingReader::new(bytes) else { return };
    let (mut stats, mut splits) = (Stats::new(system), Splits::new(system.processors.len()));
    let mut replays: Vec<_> = plan.processors.iter().map(|plan| Some(Replay::new(system, plan))).collect();
    let mut ends = Vec::new();
    let mut check = RangeCheck::new(system);
    let mut last = Instant::ZERO;
    for entry in reader.by_ref() {
        let Ok(entry) = entry else { break };
        if let Err(misfit) = check.check(&entry) {
            assert!(!misfit.to_string().is_empty());
            break;
        }
        last = last.max(entry.now);
        splits.event(entry.processor, entry.now, &entry.event);
        if let TraceEvent::Decision(DispatchDecision::End(end)) = &entry.event {
            stats.record(end);
            ends.push(*end);
        }
        let replay = &mut replays[entry.processor.index()];
        if replay.as_mut().is_some_and(|replay| replay.event(entry.now, entry.event).is_err()) {
            *replay = None;
        }
    }
    assert!(reader.names().iter().all(|name| name.len() <= 64));
    for split in splits.until(last) {
        let parts = [split.execution, split.overhead, split.held, split.others, split.idle, split.unknown];
        assert_eq!(parts.into_iter().sum::<hyoshi_model::Span>(), split.duration);
    }
    stats.counts(None, |_| true);
    let (simulated, run) = ends.split_at(ends.len() / 2);
    let both = [ProcessorEnds { simulated: &ends, run: &ends }, ProcessorEnds { simulated, run }];
    compare(system, &both, last, TOLERANCE);
}

fuzz_target!(|data: &[u8]| {
    match data {
        [0, rest @ ..] => digest(rest),
        [_, rest @ ..] => digest(&forged(rest)),
        [] => {}
    }
});
