//! The cost of an event on one host: `cargo bench -p hyoshi-events`, as root.
//!
//! *Push to start*: from the last line of a supplier's body to the first line of the consumer's body, on one CPU. The
//! consumer is in an idle lane of lower priority. The first baseline is the wake-up of an idle lane in the same run,
//! from the decision that the supplier's job is ready to the first line of its body. The goal: at most 1.3 times. The
//! second baseline is a bare futex wake-up between two threads of the same priorities; the waking thread then sleeps.
//! The benchmark repeats this with a subscriber outside the lanes, and with more consumers.
//!
//! *Unwanted*: the completion of a supplier's job and the start of the next job, beside 10,000 operations that run
//! after another event. The baseline is an operation without events. The goal: at most 1 us more.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hyoshi_events::{EventChannel, Subscription};
use hyoshi_model::{Instant, Span, System, read};
use hyoshi_os::idle::AwakeCpus;
use hyoshi_os::priority::lane_priority;
use hyoshi_os::{Clock, MonotonicClock, Spawn, ThreadPolicy, Wake, allowed_cpus};
use hyoshi_runtime::measure::ManualProcessor;
use hyoshi_runtime::{Node, RunNote};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{DispatchDecision, TraceEvent};

const EVERY: Span = Span::from_millis(1);

fn main() {
    // `cargo test --benches` only checks that it starts.
    let short = std::env::args().any(|argument| argument == "--test");
    let (rounds, samples) = if short { (1, 50) } else { (5, 1_000) };
    let awake = AwakeCpus::hold();
    println!("idle states that take time to leave: {}", if awake.is_ok() { "forbidden" } else { "as configured" });
    let (mut bare, mut lane, mut event, mut watched) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut to_lane, mut to_bare) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let futex = bare_wakes(samples);
        let (push, start) = pushes(samples, 1, false);
        let at = |nanos: &[u64]| percentile(nanos, 50).max(1);
        to_lane.push(100 * at(&push) / at(&start));
        to_bare.push(100 * at(&push) / at(&futex));
        bare.extend(futex);
        event.extend(push);
        lane.extend(start);
        watched.extend(pushes(samples, 1, true).0);
    }
    print("bare futex wake-up of a thread below", &bare);
    print("wake-up of an idle lane: ready to start", &lane);
    print("push to start of the consumer", &event);
    print("the same with a subscriber outside the lanes", &watched);
    for (ratios, what) in [(&to_lane, "an idle lane's wake-up (goal: at most 1.3)"), (&to_bare, "a bare futex wake-up")]
    {
        let at = |part| percentile(ratios, part) as f64 / 100.0;
        println!("push / {what}, p50 by round: median {:.2}, from {:.2} to {:.2}", at(50), at(0), at(100));
    }
    for consumers in [1, 10, 100, 1_000] {
        let nanos = pushes(samples.min(200), consumers, false).0;
        let first = percentile(&nanos, 50);
        println!(
            "{consumers:>5} consumers: {:>8.2} us to the first start, {:>6} ns each",
            us(first),
            first / consumers
        );
    }
    let (mut plain, mut supplier) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        plain.extend(completions(samples, false));
        supplier.extend(completions(samples, true));
    }
    print("completion without events, beside 10,000 consumers", &plain);
    print("completion that pushes an unwanted event", &supplier);
    let more = percentile(&supplier, 50) as i64 - percentile(&plain, 50) as i64;
    println!("difference of p50: {more} ns (goal: less than 1,000)");
}

fn us(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

fn percentile(nanos: &[u64], part: usize) -> u64 {
    let mut sorted = nanos.to_vec();
    sorted.sort_unstable();
    sorted.get((sorted.len().max(1) - 1) * part / 100).copied().unwrap_or(0)
}

fn print(what: &str, nanos: &[u64]) {
    let [p50, p99] = [50, 99].map(|part| us(percentile(nanos, part)));
    println!("{what}: p50 {p50:.2} us, p99 {p99:.2} us, of {}", nanos.len());
}

fn system(text: &str) -> (Arc<System>, Arc<Plan>) {
    let system = read(text, "bench.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let plan = Plan::new(&system, &Strategies::built_in()).expect("built-in strategies");
    (Arc::new(system), Arc::new(plan))
}

/// On one CPU, a thread at the priority of the first lane wakes one at that of the second, and sleeps.
fn bare_wakes(samples: u64) -> Vec<u64> {
    let clock = MonotonicClock::start();
    let cpu = *allowed_cpus().last().expect("a CPU to run on");
    let (wake, posted, over) = (Arc::new(Wake::new()), Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let own = Arc::new(Wake::new());
    let below = Spawn::new("below").cpu(cpu).policy(ThreadPolicy::Fifo(lane_priority(1))).spawn({
        let (wake, posted, over) = (wake.clone(), posted.clone(), over.clone());
        move || {
            let mut nanos = Vec::with_capacity(samples as usize + 1);
            loop {
                wake.wait();
                let now = clock.now().as_nanos();
                if over.load(Ordering::Acquire) {
                    return nanos;
                }
                nanos.push(now - posted.load(Ordering::Acquire));
            }
        }
    });
    let driver = Spawn::new("driver").cpu(cpu).policy(ThreadPolicy::Fifo(41)).spawn({
        let (own, over) = (own.clone(), over.clone());
        move || {
            (1..).take_while(|_| !over.load(Ordering::Acquire)).for_each(|number| {
                clock.sleep_until(Instant::ZERO + EVERY * number);
                own.post();
            });
        }
    });
    let above = Spawn::new("above").cpu(cpu).policy(ThreadPolicy::Fifo(lane_priority(0))).spawn(move || {
        for _ in 0..samples {
            own.wait();
            posted.store(clock.now().as_nanos(), Ordering::Release);
            wake.post();
        }
        own.wait();
        over.store(true, Ordering::Release);
        wake.post();
    });
    let (below, above, driver) = (below.expect("a thread"), above.expect("a thread"), driver.expect("a thread"));
    above.join().expect("no panic");
    driver.join().expect("no panic");
    below.join().expect("no panic")
}

/// The time from the end of a supplier's body to the start of its first consumer, and the time from the decision that
/// the supplier's job is ready to the start of its body.
fn pushes(samples: u64, consumers: u64, watched: bool) -> (Vec<u64>, Vec<u64>) {
    let every = EVERY * if consumers > 10 { consumers / 10 } else { 1 };
    let mut text = format!(
        "name = \"bench\"\n[processor.main]\nstrategy = \"MUF\"\ncap = \"100%\"\nhard_cap = \"100%\"\n[event.tick]\n\
         [operation.supplier]\nevery = \"{every}\"\nwcet = \"0.1ms\"\ncritical = true\nsupplies = [\"tick\"]\n"
    );
    for number in 0..consumers {
        let _ = write!(text, "[operation.c{number}]\nafter = {{ event = \"tick\" }}\nwcet = \"1us\"\n");
    }
    let (system, plan) = system(&text);
    let (ended, nanos) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::with_capacity(samples as usize + 16))));
    let mut node = Node::new(system.clone(), plan).duration(every * samples);
    let end = ended.clone();
    let starts = Arc::new(Mutex::new(Vec::with_capacity(samples as usize + 16)));
    let started = starts.clone();
    node = node.body("supplier", move |job| {
        let now = job.now();
        if let Ok(mut started) = started.lock() {
            started.push((job.job().number, now));
        }
        end.store(job.now().as_nanos(), Ordering::Release)
    });
    for number in 0..consumers {
        let (ended, nanos) = (ended.clone(), nanos.clone());
        node = node.body(format!("c{number}"), move |job| {
            let now = job.now().as_nanos();
            // The first consumer after a push uses its time.
            let end = ended.swap(0, Ordering::AcqRel);
            if end != 0
                && let Ok(mut nanos) = nanos.lock()
            {
                nanos.push(now - end);
            }
        });
    }
    let mut prepared = node.prepare().expect("it starts");
    let channel = EventChannel::start(&mut prepared).expect("a thread");
    let properties = Subscription { limit: 1 << 14, ..Subscription::default() };
    let subscriber = watched.then(|| channel.subscribe(&["tick"], properties).expect("it is declared"));
    let mut ready = Vec::new();
    let finished = prepared.start().wait(&mut |_, at, event| match event {
        TraceEvent::Decision(DispatchDecision::Ready { job, .. }) if job.operation.0 == 0 => {
            ready.push((job.number, at))
        }
        _ => {}
    });
    let refused = finished.notes.iter().filter(|note| matches!(note, RunNote::Refused { .. }));
    refused.for_each(|note| println!("not as meant: {note}"));
    drop(subscriber);
    let starts = starts.lock().expect("no panic");
    let of = |number: u64| ready.iter().find(|(other, _)| *other == number).map(|(_, at)| *at);
    let wakes = starts.iter().filter_map(|(number, start)| Some(start.since(of(*number)?).as_nanos())).collect();
    (std::mem::take(&mut *nanos.lock().expect("no panic")), wakes)
}

/// The section that completes a job and starts the next one. The job supplies an event without consumers, or none.
fn completions(samples: u64, supplies: bool) -> Vec<u64> {
    let mut text = "name = \"bench\"\n[processor.main]\nstrategy = \"EDF\"\ncap = \"100%\"\nhard_cap = \"100%\"\n\
                    [event.unwanted]\n[event.other]\n\
                    [operation.rare]\nevery = \"1000000s\"\nwcet = \"1us\"\nsupplies = [\"other\"]\n"
        .to_owned();
    let own = if supplies { "supplies = [\"unwanted\"]\n" } else { "" };
    let _ = write!(text, "[operation.quick]\nevery = \"1ms\"\nwcet = \"1us\"\nqueue = {{ limit = 8 }}\n{own}");
    for number in 0..10_000 {
        let _ = write!(text, "[operation.c{number}]\nafter = {{ event = \"other\" }}\nwcet = \"1us\"\n");
    }
    if !supplies {
        text = text.replace("[event.unwanted]\n", "");
    }
    let (system, plan) = system(&text);
    let (processor, mut drain) = ManualProcessor::new(system, &plan, 1 << 16);
    let (mut release, mut lane) = (processor.side(), processor.side());
    let mut at = Instant::ZERO + Span::from_secs(100);
    // The first jobs, of `rare` and its consumers, are not measured.
    release.release(at);
    while lane.take(0, at) {
        drain.drain(|_, _| ());
    }
    let mut nanos = Vec::with_capacity(samples as usize);
    for _ in 0..samples {
        // Two jobs: the first one's completion starts the second.
        at += Span::from_millis(2);
        release.release(at);
        lane.take(0, at);
        let before = lane.now();
        lane.take(0, at);
        nanos.push(lane.now().since(before).as_nanos());
        lane.take(0, at);
        drain.drain(|_, _| ());
    }
    nanos
}
