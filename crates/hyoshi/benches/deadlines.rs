//! Deadlines of requests: `cargo bench -p hyoshi --bench deadlines`, as root.
//!
//! Eight client threads send requests to one object over TCP on loopback, at random times that do not depend on
//! replies. Each request has a random deadline and a random execution time. Jobs of one operation serve them, on a CPU
//! of their own. Late requests are not cancelled.
//!
//! The requests of each round are sent twice: to a processor with EDF, and to one that serves them in the order of
//! arrival (RMS with one operation). Then the simulator serves the requests of the EDF run, with their recorded
//! deadlines. In the simulation dispatching, reading and wake-ups need no time. There are three simulations:
//!
//! - *sent*: a request arrives when its client sent it, and uses its recorded CPU time. The goal counts from it.
//! - *read*: the same, but it arrives when the lane read it, which is between two jobs.
//! - *occupied*: it arrives when it was sent, and uses the time from its job's start to its end. That includes reading
//!   after the body, interrupts and other threads.

use std::sync::Arc;

use hyoshi_model::{Instant, ProcessorId, Span, System, read};
use hyoshi_node::JobOrder;
use hyoshi_orb::rt::{CallTiming, with_timing};
use hyoshi_orb::{LaneOptions, Orb, Reference, SystemException};
use hyoshi_os::idle::AwakeCpus;
use hyoshi_os::priority::lane_priority;
use hyoshi_os::{Clock, MonotonicClock, Spawn, SpawnedThread, ThreadPolicy, allowed_cpus, own_cpu_time};
use hyoshi_runtime::Node;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_sim::{KnownJobs, simulate_known};
use hyoshi_trace::{DispatchDecision, Input, JobEnd, JobOutcome, JobRequest, TraceEvent};
use tracking::{CallbackStub, LocateError, Named, Position, Tracker};

#[path = "../../orb/tests/common/tracking.rs"]
mod tracking;

const CLIENTS: usize = 8;
/// The mean time between two requests of one client; the times are exponentially distributed.
const MEAN_GAP: Span = Span::from_micros(21_500);
/// Execution times are uniformly distributed between these.
const EXECUTION: [Span; 2] = [Span::from_micros(400), Span::from_micros(3_600)];
/// Deadlines, from the time of sending, are uniformly distributed between these.
const WITHIN: [Span; 2] = [Span::from_millis(4), Span::from_millis(20)];
/// The most requests that are read and not answered.
const HELD: usize = 1_024;

/// One request of a client.
#[derive(Clone, Copy)]
struct Planned {
    /// After the start of the round.
    at: Span,
    within: Span,
    execution: Span,
}

/// A request of a run, and the end of its job.
#[derive(Clone, Copy)]
struct Served {
    read: Instant,
    request: JobRequest,
    end: JobEnd,
}

fn main() {
    // `cargo test --benches` only checks that it starts.
    let short = std::env::args().any(|argument| argument == "--test");
    let (rounds, duration) = if short { (1, Span::from_millis(300)) } else { (7, Span::from_secs(12)) };
    let awake = AwakeCpus::hold();
    println!("idle states that take time to leave: {}", if awake.is_ok() { "forbidden" } else { "as configured" });
    println!("                           late: kernel        simulated             kernel/  kernel in order");
    println!("round  requests    load           EDF    sent    read  occupied     sent       of arrival");
    let mut all = Vec::new();
    for round in 0..rounds {
        let clients: Vec<Vec<Planned>> = (0..CLIENTS).map(|client| planned(round, client, duration)).collect();
        let (system, plan, edf) = run("EDF", &clients);
        let (_, _, arrival) = run("RMS", &clients);
        let count = edf.len() as f64;
        let load = edf.iter().map(|one| one.end.consumed.as_nanos()).sum::<u64>() as f64 / duration.as_nanos() as f64;
        let missed = |served: &[Served]| {
            served.iter().filter(|one| one.end.outcome == JobOutcome::Missed).count() as f64 / count
        };
        let consumed = |one: &Served| one.end.consumed;
        let sent = simulated(&system, &plan, &edf, |one| one.request.sent, consumed) / count;
        let read = simulated(&system, &plan, &edf, |one| one.read, consumed) / count;
        let occupied = |one: &Served| one.end.end.since(one.end.start);
        let occupied = simulated(&system, &plan, &edf, |one| one.request.sent, occupied) / count;
        let figures = [load, missed(&edf), sent, read, occupied, missed(&edf) / sent, missed(&arrival)];
        print(&format!("{:5}  {:8}", round + 1, edf.len()), &figures);
        all.push(figures);
    }
    let median = |column: usize| {
        let mut values: Vec<f64> = all.iter().map(|figures| figures[column]).collect();
        values.sort_unstable_by(f64::total_cmp);
        values[values.len() / 2]
    };
    print("median         ", &std::array::from_fn(median));
    println!("goal: kernel/sent at most 1.1, with 5 to 20 % of the requests late in the simulation");
}

fn print(what: &str, figures: &[f64; 7]) {
    let [load, kernel, sent, read, occupied, ratio, arrival] = figures.map(|figure| 100.0 * figure);
    let ratio = ratio / 100.0;
    println!(
        "{what}  {load:4.1} %  {kernel:9.1} %  {sent:4.1} %  {read:4.1} %  {occupied:6.1} %  {ratio:7.2}  {arrival:13.1} %"
    );
}

/// The requests of a client in a round: always the same.
fn planned(round: u64, client: usize, duration: Span) -> Vec<Planned> {
    let mut random = Random(round << 8 | client as u64);
    let mut at = Span::ZERO;
    let mut all = Vec::new();
    loop {
        at += Span::from_nanos((-(1.0 - random.next()).ln() * MEAN_GAP.as_nanos() as f64) as u64);
        if at >= duration {
            return all;
        }
        let mut between = |[least, most]: [Span; 2]| {
            least + Span::from_nanos((random.next() * (most - least).as_nanos() as f64) as u64)
        };
        all.push(Planned { at, within: between(WITHIN), execution: between(EXECUTION) });
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    /// At least 0, less than 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Sends the requests to a processor with this strategy, and waits until all have ended.
fn run(strategy: &str, clients: &[Vec<Planned>]) -> (Arc<System>, Arc<Plan>, Vec<Served>) {
    let cpus = allowed_cpus();
    let (client, server) = (cpus[0], *cpus.last().expect("a CPU to run on"));
    // No cap: the load is below it on average, and bursts are to be served.
    let text = format!(
        "name = 'deadlines'
        duration = '1h'
        [processor.main]
        cpu = {server}
        strategy = '{strategy}'
        cap = '100%'
        hard_cap = '100%'
        [operation.serve]
        called = true
        wcet = '{}'
        deadline = '{}'
        queue = {{ limit = {HELD} }}",
        EXECUTION[1], WITHIN[0]
    );
    let system = Arc::new(read(&text, "deadlines.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system);
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).expect("known strategies"));
    let order = JobOrder::new(&system, ProcessorId(0), HELD);
    let binding = order.bind("serve", &[]).expect("it is called");
    let mut node = order.install(Node::new(system.clone(), plan.clone())).prepare().expect("the node starts");
    let own = LaneOptions { name: "requests".into(), threads: 0, ..LaneOptions::default() };
    let builder = Orb::builder().lane(own).order(order.clone(), HELD);
    let orb = builder.listen("iiop://127.0.0.1:0").expect("an endpoint").build().expect("an ORB");
    let adapter = orb.adapter("a").build().expect("an adapter");
    let object = adapter.activate_ordered::<dyn Tracker>("x", Arc::new(Works), binding).expect("activated");
    let reference = AsRef::<Reference<dyn Tracker>>::as_ref(&object).ior().to_string();
    let serving = order.serve(&mut node, orb.owned_lane("requests").expect("no threads")).expect("read by the node");
    orb.ready();
    let mut running = node.start();

    let clock = MonotonicClock::start_in(Span::from_millis(500));
    let start = |requests: &Vec<Planned>| {
        let (requests, reference) = (requests.clone(), reference.clone());
        let policy = ThreadPolicy::Fifo(lane_priority(0));
        let thread = Spawn::new("client").policy(policy).cpu(client);
        thread.spawn(move || send(&requests, &reference, clock)).expect("a thread")
    };
    let threads: Vec<SpawnedThread<Orb>> = clients.iter().map(start).collect();
    let wanted = clients.iter().map(Vec::len).sum();
    let (mut requests, mut ends) = (Vec::with_capacity(wanted), Vec::with_capacity(wanted));
    let mut sink = |at: Instant, event: TraceEvent, ends: &mut Vec<JobEnd>| match event {
        TraceEvent::Input(Input::Invoke(request)) => requests.push((at, request)),
        TraceEvent::Decision(DispatchDecision::End(end)) => ends.push(end),
        _ => {}
    };
    while ends.len() < wanted {
        running.poll(&mut |_, at, event| sink(at, event, &mut ends));
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let finished = running.stop(&mut |_, at, event| sink(at, event, &mut ends));
    assert_eq!(finished.lost.events, 0, "the recording is complete");
    // A connection exists until its last request has been served.
    threads.into_iter().for_each(|thread| drop(thread.join().expect("it sent")));
    drop(serving);
    ends.sort_unstable_by_key(|end| end.job.number);
    let served = requests.into_iter().zip(ends).enumerate().map(|(number, ((read, request), end))| {
        assert_eq!((end.job.number, end.deadline), (number as u64, request.deadline), "jobs are numbered by request");
        assert!(end.outcome.finished(), "{end:?}");
        Served { read, request, end }
    });
    (system, plan, served.collect())
}

/// Sends each request at its time, whatever became of those before.
fn send(requests: &[Planned], reference: &str, clock: MonotonicClock) -> Orb {
    let orb = Orb::client().expect("an ORB");
    let stub = orb.resolve_unchecked::<dyn Tracker>(reference).expect("a reference");
    for Planned { at, within, execution } in requests {
        let left = (Instant::ZERO + *at).since(clock.now());
        std::thread::sleep(std::time::Duration::from_nanos(left.as_nanos()));
        let timing = CallTiming { within: Some(*within), ..CallTiming::default() };
        with_timing(timing, || stub.hint("", &execution.as_nanos().to_le_bytes())).expect("it is sent");
    }
    orb
}

/// How many of the requests are late in a simulation with these arrivals and execution times.
fn simulated(
    system: &System,
    plan: &Plan,
    served: &[Served],
    arrives: impl Fn(&Served) -> Instant,
    executes: impl Fn(&Served) -> Span,
) -> f64 {
    let mut served = served.to_vec();
    served.sort_by_key(&arrives);
    let input = |one: &Served| (arrives(one), ProcessorId(0), Input::Invoke(one.request));
    let inputs: Vec<_> = served.iter().map(input).collect();
    let given = KnownJobs {
        execution_time: &|job, _| executes(&served[job.number as usize]),
        late: None,
        crowded: false,
        inputs: &inputs,
        requests: false,
        samples: false,
        links: None,
        hops: None,
    };
    let last = served.iter().map(|one| one.end.end).max().expect("a request") + Span::from_secs(10);
    let simulated = simulate_known(system, plan, last, Some(given), None, |_| Vec::new(), |_| true);
    let events = simulated.processors.iter().flat_map(|processor| &processor.probe);
    let ends = events.filter_map(|(_, event)| match event {
        TraceEvent::Decision(DispatchDecision::End(end)) => Some(end),
        _ => None,
    });
    let ends: Vec<&JobEnd> = ends.collect();
    assert!(ends.iter().all(|end| end.outcome.finished()) && ends.len() == served.len(), "each request is served");
    ends.iter().filter(|end| end.outcome == JobOutcome::Missed).count() as f64
}

/// Uses the CPU for as long as its request says.
struct Works;

impl Named for Works {
    fn name(&self) -> Result<String, SystemException> {
        Ok("works".to_owned())
    }
}

impl Tracker for Works {
    fn locate(&self, _: u32) -> Result<Position, LocateError> {
        Ok(Position::default())
    }
    fn hint(&self, _: &str, raw: &[u8]) -> Result<(), SystemException> {
        let execution = raw.try_into().map_or(Span::ZERO, |nanos| Span::from_nanos(u64::from_le_bytes(nanos)));
        let until = own_cpu_time() + execution;
        while own_cpu_time() < until {}
        Ok(())
    }
    fn echo(&self, raw: &[u8]) -> Result<Vec<u8>, SystemException> {
        Ok(raw.to_vec())
    }
    fn nothing(&self) -> Result<(), SystemException> {
        Ok(())
    }
    fn swap(&self, _: &mut Position) -> Result<(i32, String), SystemException> {
        Ok((0, String::new()))
    }
    fn subscribe(&self, _: Option<&CallbackStub>) -> Result<(), SystemException> {
        Ok(())
    }
}
