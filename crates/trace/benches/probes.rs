//! The costs of a probe: to count a job end, to put an event into a ring, to write it to a recording.

#[allow(dead_code, reason = "shared with the tests, which use all of it")]
#[path = "../tests/systems/mod.rs"]
mod systems;

use divan::{Bencher, counter::ItemsCount};
use hyoshi_model::{Instant, ProcessorId, Span};
use hyoshi_trace::{
    DispatchDecision, JobEnd, Probe, RecordingHeader, RecordingWriter, RingProbe, Stats, TraceEvent, ring::ring,
};

fn main() {
    divan::main();
}

/// Few enough for the cache, like the recent end of a job.
const JOBS: usize = 4_096;

fn ends(operations: usize) -> Vec<JobEnd> {
    let mut state = 42u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    (0..JOBS as u64)
        .map(|number| {
            let release = Instant::from_nanos(number * 1_000_000);
            let operation = draw(operations as u64) as u32;
            systems::job(operation, number, release, release + Span::from_nanos(1_000_000 + draw(9_100_000)))
        })
        .collect()
}

#[divan::bench(args = [10, 100, 1_000, 10_000])]
fn record(bencher: Bencher, operations: usize) {
    let (mut stats, ends) = (Stats::new(&systems::periodic(operations)), ends(operations));
    bencher.counter(ItemsCount::new(JOBS)).bench_local(|| ends.iter().for_each(|end| stats.record(end)));
}

#[divan::bench]
fn ring_push_of_a_job_end(bencher: Bencher) {
    push(bencher, |end| TraceEvent::Decision(DispatchDecision::End(end)));
}

#[divan::bench]
fn ring_push_of_a_tick(bencher: Bencher) {
    push(bencher, |_| TraceEvent::Input(hyoshi_trace::Input::Tick));
}

fn push(bencher: Bencher, event: impl Fn(JobEnd) -> TraceEvent) {
    let (mut probe, mut drain) = ring(JOBS);
    let events: Vec<TraceEvent> = ends(10).into_iter().map(event).collect();
    let push_all = |probe: &mut RingProbe| {
        events.iter().for_each(|event| probe.event(Instant::ZERO, divan::black_box(*event)));
    };
    // Drain the ring outside the measured part, in the setup of the next round.
    let mut round = || {
        drain.drain(|_, event| {
            divan::black_box(event);
        });
    };
    bencher.counter(ItemsCount::new(JOBS)).with_inputs(&mut round).bench_local_refs(|()| push_all(&mut probe));
}

#[divan::bench]
fn write_to_a_recording(bencher: Bencher) {
    let events: Vec<TraceEvent> =
        ends(10).into_iter().map(|end| TraceEvent::Decision(DispatchDecision::End(end))).collect();
    bencher.counter(ItemsCount::new(JOBS)).bench_local(|| {
        let mut writer = RecordingWriter::new(std::io::sink(), "nowhere", &RecordingHeader::default()).unwrap();
        for (number, event) in events.iter().enumerate() {
            writer.event(ProcessorId(0), Instant::from_nanos(number as u64 * 1_000), event).unwrap();
        }
    });
}
