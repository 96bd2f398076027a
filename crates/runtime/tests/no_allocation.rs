//! From a job's release to its completion nothing allocates. The only test of its program, because it counts for all
//! threads.

mod common;

use std::alloc::System;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{plan, system, until};
use hyoshi_runtime::{Node, SharedValue};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const TEXT: &str = "
    duration = \"60s\"
    [host.a]
    [host.b]
    [processor.p]
    host = \"a\"
    strategy = \"MUF\"
    preemption = \"PREEMPTION\"
    pool = 2
    cancel = true
    [processor.q]
    host = \"b\"
    strategy = \"RMS\"
    [resource.map]
    [operation.built-in]
    on = \"p\"
    every = \"5ms\"
    wcet = \"0.5ms\"
    takes = \"0.6ms\"
    uses = { map = \"0.1ms\" }
    on_overrun = \"demote\"
    critical = true
    [operation.legs]
    on = \"p\"
    every = \"9ms\"
    wcet = \"0.2ms\"
    repeat = { legs = 3, critical = 1 }
    on_overrun = \"stop\"
    [operation.sense]
    on = \"p\"
    every = \"2ms\"
    wcet = \"0.1ms\"
    payload = \"64B\"
    uses = { map = \"0.05ms\" }
    [operation.near]
    on = \"p\"
    after = { all = [\"sense\", \"other\"] }
    wcet = \"0.1ms\"
    payload = \"64B\"
    [operation.other]
    on = \"p\"
    every = \"3ms\"
    wcet = \"0.1ms\"
    payload = \"64B\"
    replicate = { to = [\"b\"] }
    [operation.far]
    on = \"q\"
    after = { all = [\"near\"] }
    reads = [\"sense\"]
    wcet = \"0.1ms\"
    payload = \"64B\"
    [operation.backup]
    on = \"q\"
    every = \"4ms\"
    reads = [\"other\"]
    wcet = \"0.1ms\"
    [operation.back]
    on = \"p\"
    after = { any = [\"far\", \"sense\"] }
    wcet = \"0.1ms\"
    [operation.copy]
    on = \"p\"
    after = { chosen = [\"sense\"] }
    wcet = \"0.05ms\"
    [operation.first]
    on = \"q\"
    after = { first = [\"copy\", \"sense\"] }
    wcet = \"0.05ms\"
    [operation.drawn]
    on = \"p\"
    after = { chosen = [\"built-in\"] }
    wcet = \"0.05ms\"
";

fn counted() -> usize {
    let stats = ALLOCATOR.stats();
    stats.allocations + stats.reallocations
}

#[test]
fn nothing_allocates_from_release_to_completion() {
    for preemption in ["levels", "full", "none"] {
        let system = system(&TEXT.replace("PREEMPTION", preemption));
        let plan = plan(&system);
        let map = SharedValue::new(&system, "map", 0u64).unwrap();
        let bytes = [7u8; 64];
        let ran = Arc::new(AtomicU64::new(0));
        let count = ran.clone();
        let replicas = Arc::new(AtomicU64::new(0));
        let ages = replicas.clone();
        let mut running = Node::new(system.clone(), plan)
            .body("sense", move |job| {
                map.lock(job, |value| *value += 1).unwrap();
                job.emit(&bytes).unwrap();
                if job.job().number % 2 == 0 {
                    job.choose("copy").unwrap();
                }
            })
            .body("other", move |job| job.emit(&bytes).unwrap())
            .body("near", move |job| {
                assert_eq!(job.payload_from("sense").unwrap()[0], 7);
                job.blocking(std::thread::yield_now);
                job.emit(&bytes).unwrap();
            })
            .body("far", move |job| {
                assert!(job.latest("sense").is_some());
                job.emit(job.payload().map(|_| &bytes[..]).unwrap()).unwrap();
            })
            .body("backup", move |job| {
                ages.fetch_add(u64::from(job.age("other").is_some()), Ordering::Relaxed);
            })
            .body("back", move |_| {
                count.fetch_add(1, Ordering::Relaxed);
            })
            .start()
            .unwrap();
        // Run everything a few times, for the effects of first executions.
        until("warm lanes", || ran.load(Ordering::Relaxed) >= 100);
        let mut events = 0;
        running.poll(&mut |_, _, _| events += 1);
        let (mut allocations, jobs) = (0, ran.load(Ordering::Relaxed));
        for _ in 0..8 {
            // The thread that empties the rings may allocate: it is not on a job's path.
            let (before, many) = (counted(), ran.load(Ordering::Relaxed) + 20);
            until("jobs", || ran.load(Ordering::Relaxed) >= many);
            allocations += counted() - before;
            running.poll(&mut |_, _, _| events += 1);
        }
        let jobs = ran.load(Ordering::Relaxed) - jobs;
        assert!(jobs >= 160 && events > 1_000, "{jobs} jobs, {events} events");
        assert_eq!(allocations, 0, "allocations while {jobs} jobs ran, preemption {preemption}");
        assert!(replicas.load(Ordering::Relaxed) > 20, "a replica is read");
        let finished = running.stop(&mut |_, _, _| ());
        assert_eq!(finished.lost.signals, 0);
    }
}
