//! The costs between a release and a running job: `cargo bench -p hyoshi-runtime`.
//!
//! *Requests*: one release enqueued by a thread of high priority and dequeued by one of low priority,
//! through the lock with priority inheritance, statistics ring included, without the wake-up. The
//! times of an overhead benchmark in Kokyu's paper were 12 and 32 us.
//!
//! *Start*: from the release thread's decision to the first instruction of an idle lane's body on
//! the same CPU, beside a bare futex wake-up between two such threads: a thread at the release
//! thread's priority wakes one at the lane's, and sleeps until its next time. The second cannot run
//! before the first sleeps, so that wake-up includes setting a timer; it is shown without one too.
//!
//! *From the instant*: the same, counted from the instant of the release, beside one thread at the lane's
//! priority that sleeps until that instant, as cyclictest does. If the kernel permits it, no CPU enters
//! deep idle states during either.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hyoshi_model::{Instant, Span, System, read};
use hyoshi_os::idle::AwakeCpus;
use hyoshi_os::priority::{RELEASE, lane_priority};
use hyoshi_os::{Clock, MonotonicClock, Spawn, ThreadPolicy, Wake, allowed_cpus};
use hyoshi_runtime::Node;
use hyoshi_runtime::measure::ManualProcessor;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{DispatchDecision, TraceEvent};

fn main() {
    // `cargo test --benches` only checks that it starts.
    let short = std::env::args().any(|argument| argument == "--test");
    let rounds = if short { 20 } else { 4_000 };
    let nothing = clock_cost();
    println!("a reading of the clock: {nothing} ns, taken off below");
    let requests: Vec<u64> = ["RMS", "MUF"].iter().map(|strategy| requests(strategy, rounds, nothing)).collect();
    println!("MUF / RMS: {:.2} (goal: at most 1.5)\n", requests[1] as f64 / requests[0] as f64);
    let wakes = if short { 100 } else { 6_000 };
    let awake = AwakeCpus::hold();
    println!("idle states that take time to leave: {}", if awake.is_ok() { "forbidden" } else { "as configured" });
    // Often enough for warm caches, and as seldom as usual operations run.
    for every in [Span::from_micros(200), Span::from_millis(1)] {
        start(wakes, every);
    }
}

fn system(text: &str) -> (Arc<System>, Arc<Plan>) {
    let system = read(text, "bench.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let plan = Plan::new(&system, &Strategies::built_in()).expect("built-in strategies");
    (Arc::new(system), Arc::new(plan))
}

/// Ten operations, one due each millisecond; half of them critical.
fn ten_operations(strategy: &str) -> (Arc<System>, Arc<Plan>) {
    // The lanes are always busy: caps would gate them.
    let mut text =
        format!("name = \"bench\"\n[processor.main]\nstrategy = \"{strategy}\"\ncap = \"100%\"\nhard_cap = \"100%\"\n");
    for number in 0..10 {
        let critical = number % 2 == 0;
        text += &format!(
            "[operation.o{number}]\nevery = \"10ms\"\nphase = \"{number}ms\"\nwcet = \"0.1ms\"\ncritical = {critical}\n\
             queue = {{ limit = 64 }}\n"
        );
    }
    system(&text)
}

const BATCH: u64 = 20;

/// Median nanoseconds to enqueue and to dequeue one request.
fn requests(strategy: &str, rounds: usize, nothing: u64) -> u64 {
    let (system, plan) = ten_operations(strategy);
    let lanes = plan.processors[0].levels.len() as u16;
    let (exchange, mut drain) = ManualProcessor::new(system, &plan, 1 << 16);
    let (mut high, mut low) = (exchange.side(), exchange.side());
    let (ready, taken, over) = (Arc::new(Wake::new()), Arc::new(Wake::new()), Arc::new(AtomicBool::new(false)));
    let cpu = *allowed_cpus().last().expect("a CPU to run on");
    let consumer = Spawn::new("low").cpu(cpu).policy(ThreadPolicy::Fifo(41)).spawn({
        let (ready, taken, over) = (ready.clone(), taken.clone(), over.clone());
        move || {
            let mut nanos = Vec::with_capacity(rounds * BATCH as usize);
            let mut at = Instant::ZERO;
            loop {
                ready.wait();
                if over.load(Ordering::Acquire) {
                    return nanos;
                }
                at += Span::from_millis(BATCH);
                for lane in 0..lanes {
                    loop {
                        let before = low.now();
                        let took = low.take(lane, at);
                        let spent = low.now().since(before).as_nanos();
                        if !took {
                            break;
                        }
                        nanos.push(spent);
                    }
                }
                taken.post();
            }
        }
    });
    let producer = Spawn::new("high").cpu(cpu).policy(ThreadPolicy::Fifo(60)).spawn(move || {
        let mut nanos = Vec::with_capacity(rounds * BATCH as usize);
        let mut at = Instant::ZERO;
        for _ in 0..rounds {
            for _ in 0..BATCH {
                let before = high.now();
                high.release(at);
                nanos.push(high.now().since(before).as_nanos());
                at += Span::from_millis(1);
            }
            drain.drain(|_, _| ());
            ready.post();
            taken.wait();
        }
        over.store(true, Ordering::Release);
        ready.post();
        (nanos, drain.lost())
    });
    let (consumer, producer) = (consumer.expect("a thread"), producer.expect("a thread"));
    for refused in consumer.granted.refused.iter().chain(&producer.granted.refused) {
        println!("not as meant: {refused}");
    }
    let (enqueue, lost) = producer.join().expect("no panic");
    let dequeue = consumer.join().expect("no panic");
    assert_eq!((lost, enqueue.len()), (0, dequeue.len()));
    let [enqueue, dequeue] = [enqueue, dequeue].map(|mut nanos| median(&mut nanos).saturating_sub(nothing));
    println!(
        "request under {strategy}: enqueue {enqueue} ns, complete the last and take the next {dequeue} ns, together {} ns \
         (goal: at most 400)",
        enqueue + dequeue
    );
    enqueue + dequeue
}

fn clock_cost() -> u64 {
    let clock = MonotonicClock::start();
    let mut nanos: Vec<u64> = (0..10_000)
        .map(|_| {
            let before = clock.now();
            clock.now().since(before).as_nanos()
        })
        .collect();
    median(&mut nanos)
}

fn start(wakes: u64, every: Span) {
    // Three of each, alternating, because the speed of a shared machine changes.
    let (mut untimed, mut bare, mut asleep) = (Vec::new(), Vec::new(), Vec::new());
    let (mut lane, mut whole) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        untimed.extend(bare_wakes(wakes / 3, every, false));
        bare.extend(bare_wakes(wakes / 3, every, true));
        asleep.extend(bare_sleeps(wakes / 3, every));
        for (from_ready, from_release) in lane_starts(wakes / 3, every) {
            lane.push(from_ready);
            whole.push(from_release);
        }
    }
    let p99 = |nanos: &[u64]| nanos[(nanos.len() - 1) * 99 / 100];
    println!("every {every}:");
    println!("bare futex wake-up without a timer:  median {} ns, p99 {} ns", median(&mut untimed), p99(&untimed));
    let (bare_median, lane_median) = (median(&mut bare), median(&mut lane));
    println!(
        "bare futex wake-up from FIFO {RELEASE} to {}: median {bare_median} ns, p99 {} ns",
        lane_priority(0),
        p99(&bare)
    );
    println!("release to start of an idle lane:    median {lane_median} ns, p99 {} ns", p99(&lane));
    println!("ratio of medians: {:.2} (goal: at most 1.3)", lane_median as f64 / bare_median as f64);
    let (sleep_median, whole_median) = (median(&mut asleep), median(&mut whole));
    println!("instant to return of a bare sleep:   median {sleep_median} ns, p99 {} ns", p99(&asleep));
    println!("instant of release to start:         median {whole_median} ns, p99 {} ns", p99(&whole));
    println!("ratio of medians: {:.2} (goal: at most 1.25)", whole_median as f64 / sleep_median as f64);
}

/// The lateness of a thread at a lane's priority that sleeps until each of its instants.
fn bare_sleeps(wakes: u64, every: Span) -> Vec<u64> {
    let clock = MonotonicClock::start();
    let cpu = *allowed_cpus().last().expect("a CPU to run on");
    let sleeper = Spawn::new("sleeper").cpu(cpu).policy(ThreadPolicy::Fifo(lane_priority(0))).spawn(move || {
        let instants = (1..=wakes).map(|number| Instant::ZERO + every * number);
        let late = instants.map(|at| {
            clock.sleep_until(at);
            clock.now().since(at).as_nanos()
        });
        late.collect()
    });
    sleeper.expect("a thread").join().expect("no panic")
}

/// On one CPU, a thread at the release thread's priority wakes one at a lane's, and sleeps until its next time; or, if
/// not `timed`, until a third thread below both wakes it.
fn bare_wakes(wakes: u64, every: Span, timed: bool) -> Vec<u64> {
    let clock = MonotonicClock::start();
    let cpu = *allowed_cpus().last().expect("a CPU to run on");
    let (wake, own) = (Arc::new(Wake::new()), Arc::new(Wake::new()));
    let (posted, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let lane = Spawn::new("woken").cpu(cpu).policy(ThreadPolicy::Fifo(lane_priority(0))).spawn({
        let (wake, posted, over) = (wake.clone(), posted.clone(), over.clone());
        move || {
            let mut nanos = Vec::with_capacity(wakes as usize + 1);
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
            let times = (1..).take_while(|_| !timed && !over.load(Ordering::Acquire));
            times.for_each(|number| {
                clock.sleep_until(Instant::ZERO + every * number);
                own.post();
            });
        }
    });
    let poster = Spawn::new("poster").cpu(cpu).policy(ThreadPolicy::Fifo(RELEASE)).spawn(move || {
        for number in 1..=wakes {
            match timed {
                true => drop(own.wait_until(&clock, Instant::ZERO + every * number)),
                false => own.wait(),
            }
            posted.store(clock.now().as_nanos(), Ordering::Release);
            wake.post();
        }
        own.wait_until(&clock, Instant::ZERO + every * (wakes + 1));
        over.store(true, Ordering::Release);
        wake.post();
    });
    let (lane, poster) = (lane.expect("a thread"), poster.expect("a thread"));
    poster.join().expect("no panic");
    driver.expect("a thread").join().expect("no panic");
    lane.join().expect("no panic")
}

/// From the decision that a job is ready, and from the instant of its release, to the first instruction of its body.
fn lane_starts(wakes: u64, every: Span) -> Vec<(u64, u64)> {
    let text = format!("name = \"bench\"\n[operation.tick]\nevery = \"{every}\"\nwcet = \"0.1ms\"\n");
    let (system, plan) = system(&text);
    let starts = Arc::new(Mutex::new(Vec::with_capacity(wakes as usize * 2 + 1_000)));
    let kept = starts.clone();
    let node = Node::new(system, plan).duration(every * wakes).body("tick", move |job| {
        let now = job.now();
        if let Ok(mut starts) = kept.lock() {
            starts.push((job.job().number, job.release(), now));
        }
    });
    let running = node.start().expect("it starts");
    let mut ready = Vec::new();
    let mut sink = |_, at: Instant, event: TraceEvent| {
        if let TraceEvent::Decision(DispatchDecision::Ready { job, .. }) = event {
            ready.push((job.number, at));
        }
    };
    let finished = running.wait(&mut sink);
    finished.notes.iter().for_each(|note| println!("not as meant: {note}"));
    let starts = std::mem::take(&mut *starts.lock().expect("no panic"));
    let of = |number: u64| ready.iter().find(|(of, _)| *of == number).map(|(_, at)| *at);
    let spent = starts.iter().filter_map(|(number, release, start)| {
        Some((start.since(of(*number)?).as_nanos(), start.since(*release).as_nanos()))
    });
    spent.collect()
}

fn median(nanos: &mut [u64]) -> u64 {
    nanos.sort_unstable();
    nanos[nanos.len() / 2]
}
