//! All channels between lanes, on one CPU at different real-time priorities: rings, wake-ups and the lock with
//! inheritance. A design in which a thread spins on a preempted one hangs here within a few thousand wake-ups; this
//! must finish under any preemption.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyoshi_model::{Instant, Span};
use hyoshi_os::{Clock, MonotonicClock, PiMutex, Spawn, ThreadPolicy, WaitOutcome, Wake, allowed_cpus};

const ITEMS: u64 = 12_000;
/// Less than the number of items sent at a time, so producers also find full rings.
const RING: usize = 4;

/// The shared data of all threads: a reader holds the lock of a thread below or above.
#[derive(Default)]
struct Totals {
    sent: u64,
    received: u64,
    sum: u64,
}

#[test]
fn producers_and_consumers_of_all_priorities_get_through_on_one_cpu() {
    let clock = MonotonicClock::start();
    let limit = Instant::ZERO + Span::from_secs(120);
    let cpu = *allowed_cpus().last().expect("a CPU to run on");
    let totals = Arc::new(PiMutex::new(Totals::default()));
    let (work, slept) = (Arc::new(Wake::new()), Arc::new(AtomicU64::new(0)));
    let mut rings = Vec::new();
    let mut threads = Vec::new();

    // Below, at, and above the consumers, which are at 50 and 60.
    for (number, priority) in [45, 50, 55, 65].into_iter().enumerate() {
        let (mut push, pop) = rtrb::RingBuffer::<u64>::new(RING);
        let space = Arc::new(Wake::new());
        rings.push((pop, space.clone()));
        let (work, totals, slept) = (work.clone(), totals.clone(), slept.clone());
        let produce = move || {
            for item in 1..=ITEMS {
                while push.push(item).is_err() {
                    slept.fetch_add(1, Ordering::Relaxed);
                    if space.wait_until(&clock, limit) == WaitOutcome::TimedOut {
                        return Err(format!("producer {number} waits for space at item {item}"));
                    }
                }
                work.post();
                totals.lock().sent += 1;
            }
            Ok(())
        };
        threads.push(
            Spawn::new(format!("producer-{number}")).cpu(cpu).policy(ThreadPolicy::Fifo(priority)).spawn(produce),
        );
    }

    // A relay that drains all rings into one more, and a sink above it.
    let (mut push, mut pop) = rtrb::RingBuffer::<u64>::new(RING);
    let (sink_work, sink_space) = (Arc::new(Wake::new()), Arc::new(Wake::new()));
    let relay = {
        let (sink_work, sink_space, slept) = (sink_work.clone(), sink_space.clone(), slept.clone());
        let wait = move |wake: &Wake, what: &str| {
            slept.fetch_add(1, Ordering::Relaxed);
            (wake.wait_until(&clock, limit) == WaitOutcome::Posted)
                .then_some(())
                .ok_or(format!("relay waits for {what}"))
        };
        move || {
            let mut left = ITEMS * rings.len() as u64;
            while left > 0 {
                for (pop, space) in &mut rings {
                    while let Ok(item) = pop.pop() {
                        space.post();
                        left -= 1;
                        while push.push(item).is_err() {
                            wait(&sink_space, "space")?;
                        }
                        sink_work.post();
                    }
                }
                if left > 0 {
                    wait(&work, "work")?;
                }
            }
            Ok(())
        }
    };
    threads.push(Spawn::new("relay").cpu(cpu).policy(ThreadPolicy::Fifo(50)).spawn(relay));
    let sink = {
        let (totals, slept) = (totals.clone(), slept.clone());
        move || {
            for _ in 0..4 * ITEMS {
                let item = loop {
                    match pop.pop() {
                        Ok(item) => break item,
                        Err(_) => {
                            slept.fetch_add(1, Ordering::Relaxed);
                            if sink_work.wait_until(&clock, limit) == WaitOutcome::TimedOut {
                                return Err("sink waits for work".to_owned());
                            }
                        }
                    }
                };
                sink_space.post();
                let mut totals = totals.lock();
                totals.received += 1;
                totals.sum += item;
            }
            Ok(())
        }
    };
    threads.push(Spawn::new("sink").cpu(cpu).policy(ThreadPolicy::Fifo(60)).spawn(sink));

    for thread in threads {
        let thread = thread.unwrap();
        if !thread.granted.in_full() {
            println!("goes on at normal priority: needs CAP_SYS_NICE to be the test it is meant to be");
        }
        thread.join().unwrap().unwrap();
    }
    let totals = totals.lock();
    assert_eq!((totals.sent, totals.received, totals.sum), (4 * ITEMS, 4 * ITEMS, 4 * ITEMS * (ITEMS + 1) / 2));
    println!("{} sleeps, {} items, {}", slept.load(Ordering::Relaxed), totals.received, clock.now());
}
