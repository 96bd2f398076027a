//! The cost of recording for the lanes: `cargo bench -p hyoshi-runtime --bench tracing`.
//!
//! Pairs of runs of one system, alternately without and with a recording (the kernel's switches watched,
//! everything written to a file). The figure is the median over all pairs of the ratio of the two
//! runs' 99th percentiles of response times, lane by lane: a busy machine disturbs single runs by
//! more than recording does. Then the extra cost of a watched switch.

use std::fs::File;
use std::sync::Arc;

use hyoshi_model::{Span, System, read};
use hyoshi_os::priority::lane_priority;
use hyoshi_os::{Clock, CpuSwitches, MonotonicClock, Spawn, SwitchSource, ThreadPolicy, Wake, allowed_cpus};
use hyoshi_runtime::Node;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{CpuEvent, CpuUser, DispatchDecision, RecordingHeader, RecordingWriter, TraceEvent};

const SYSTEM: &str = "name = \"bench\"\n\
    [operation.fast]\nevery = \"2ms\"\nwcet = \"0.3ms\"\n\
    [operation.middle]\nevery = \"5ms\"\nwcet = \"1ms\"\n\
    [operation.slow]\nevery = \"10ms\"\nwcet = \"2ms\"\n";

fn main() {
    // `cargo test --benches` only checks that it starts.
    let short = std::env::args().any(|argument| argument == "--test");
    let (pairs, length) = if short { (1, Span::from_millis(100)) } else { (15, Span::from_secs(2)) };
    let system = Arc::new(read(SYSTEM, "bench.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system);
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).expect("built-in strategies"));
    let mut ratios = vec![Vec::new(); system.operations.len()];
    let mut kept = (0, 0);
    for pair in 0..pairs {
        // Alternate the order: a drift affects both.
        let mut both = [Vec::new(), Vec::new()];
        for turn in 0..2 {
            let recorded = (pair + turn) % 2 == 1;
            let (p99, events, bytes) = run(&system, &plan, length, recorded);
            both[usize::from(recorded)] = p99;
            kept = (kept.0 + events, kept.1 + bytes);
        }
        let [off, on] = both;
        ratios.iter_mut().zip(on.iter().zip(off)).for_each(|(ratios, (on, off))| ratios.push(*on as f64 / off as f64));
    }
    println!("p99 of responses with a recording over without, median of {pairs} pairs (goal: at most 1.05)");
    for (operation, ratios) in system.operations.iter().zip(&mut ratios) {
        ratios.sort_by(f64::total_cmp);
        let at = |share: f64| ratios[((ratios.len() - 1) as f64 * share) as usize];
        println!("  {:8} {:.3}  (quartiles {:.3} to {:.3})", operation.name, at(0.5), at(0.25), at(0.75));
    }
    println!("{:.1} bytes an event\n", kept.1 as f64 / kept.0.max(1) as f64);
    switches(if short { 100 } else { 20_000 });
}

/// The 99th percentile of each operation's responses in nanoseconds; events and bytes recorded.
fn run(system: &Arc<System>, plan: &Arc<Plan>, length: Span, recorded: bool) -> (Vec<u64>, u64, u64) {
    let path = std::env::temp_dir().join(format!("hyoshi-bench-{}.rec", std::process::id()));
    let file = || File::create(&path).expect("a temporary file");
    let mut writer = recorded.then(|| {
        RecordingWriter::new(file(), "bench", &RecordingHeader::default()).expect("a recording in a temporary file")
    });
    let node = Node::new(system.clone(), plan.clone()).duration(length).watch(recorded);
    let running = node.start().expect("a run starts");
    let names = running.names();
    let mut named = 0;
    let mut responses = vec![Vec::new(); system.operations.len()];
    let mut sink = |processor, now, event: TraceEvent| {
        if let TraceEvent::Decision(DispatchDecision::End(end)) = &event {
            responses[end.job.operation.index()].push(end.end.since(end.release).as_nanos());
        }
        let Some(writer) = &mut writer else { return };
        if let TraceEvent::Cpu(CpuEvent::Switch { to: CpuUser::Other(_), .. }) = event {
            for name in names.since(named) {
                writer.name(&name);
                named += 1;
            }
        }
        writer.event(processor, now, &event).expect("a temporary file takes it");
    };
    running.wait(&mut sink);
    let kept = writer.map(|writer| writer.finish().expect("a temporary file takes it").1).unwrap_or_default();
    let _ = std::fs::remove_file(&path);
    let p99 = responses.iter_mut().map(|all| {
        all.sort_unstable();
        all.get(all.len() * 99 / 100).copied().unwrap_or(1).max(1)
    });
    (p99.collect(), kept.events, kept.bytes)
}

/// Two threads on one CPU wake each other, alternately with and without recorded switches.
fn switches(rounds: u32) {
    let cpu = allowed_cpus()[0];
    let mut times = [Vec::new(), Vec::new()];
    let mut visibility = None;
    for turn in 0..10 {
        let watched = turn % 2 == 1;
        let mut source = if watched { CpuSwitches::of(cpu).ok() } else { None };
        visibility = source.as_ref().map(SwitchSource::visibility).or(visibility);
        times[usize::from(watched)].push(ping_pong(cpu, rounds));
        source.iter_mut().for_each(|source| source.drain(&mut |_, _| ()));
    }
    let [off, on] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    println!(
        "a switch between two threads: {off} ns, watched ({visibility:?}) {on} ns: {} ns more",
        on.saturating_sub(off)
    );
}

/// Nanoseconds per switch.
fn ping_pong(cpu: u32, rounds: u32) -> u64 {
    let (ping, pong) = (Arc::new(Wake::new()), Arc::new(Wake::new()));
    let clock = MonotonicClock::start();
    let thread = |name: &str| Spawn::new(name).cpu(cpu).policy(ThreadPolicy::Fifo(lane_priority(0)));
    let (waits, wakeups) = (ping.clone(), pong.clone());
    let other = thread("bench-pong").spawn(move || {
        for _ in 0..rounds {
            waits.wait();
            wakeups.post();
        }
    });
    let one = thread("bench-ping").spawn(move || {
        let begun = clock.now();
        for _ in 0..rounds {
            ping.post();
            pong.wait();
        }
        clock.now().since(begun).as_nanos()
    });
    let took = one.expect("a thread").join().expect("it does not panic");
    let _ = other.expect("a thread").join();
    took / (2 * u64::from(rounds))
}
