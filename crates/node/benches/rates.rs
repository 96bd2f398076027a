//! The CPU time of a whole feedback loop at 100 ms, with 900 operations and 100 registered clients: `cargo bench -p
//! hyoshi-node --bench rates`. Nine of ten samples change all rates. All threads of the process count: those that sample,
//! decide, set timers and send, and those of the clients that receive. The jobs are the same without the loop, in runs
//! whose first sample would be later: the difference is the loop. The CPU time of the bodies does not count: new rates
//! move jobs between samples with long and with short ones.
//!
//! The baseline is what the messages alone need: as many octets over as many TCP connections, each to a thread that
//! blocks in its read.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::process_cpu;
use hyoshi_model::{Span, read};
use hyoshi_node::Objects;
use hyoshi_node::idl::hyoshi_rates::{Modulator, ModulatorStub, Rates, RatesStub, Task};
use hyoshi_orb::{LaneOptions, Orb, SystemException, ThreadPolicy};
use hyoshi_os::priority::FEEDBACK;
use hyoshi_os::{Clock, MonotonicClock, Spawn, own_cpu_time};
use hyoshi_runtime::Node;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{DispatchDecision, TraceEvent};
use tracking::{Tracker, Yard};

mod common;
#[path = "../../orb/tests/common/tracking.rs"]
mod tracking;

const OPERATIONS: u32 = 900;
const CLIENTS: u32 = 100;
const SAMPLE: Span = Span::from_millis(100);
/// Octets of a message to a modulator.
const MESSAGE: usize = 100;

/// The rates differ by 1 %, so all runs have about the same jobs.
fn text(period: Span, map: u16, rates: u16) -> String {
    let mut text = format!(
        "name = 'rates'\nduration = '1h'\n[processor.map]\nstrategy = 'EDF'\ncap = '100%'\nhard_cap = '100%'\n\
         [feedback.map]\nalgorithm = 'FC-U'\nutilisation = '12%'\nperiod = '{period}'\nmeasure = 'lanes'\n\
         endpoints = ['tcp/127.0.0.1:{rates}']\n\
         [operation.query]\non = 'map'\ncalled = true\nwcet = '1us'\n\
         clients = {{ rate = ['1Hz', '1.01Hz'], most = {CLIENTS} }}\n\
         [object.map]\noperation = 'query'\nendpoints = ['tcp/127.0.0.1:{map}']\n"
    );
    for one in 0..OPERATIONS {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "[operation.task{one}]\non = 'map'\nrate = ['1Hz', '1.01Hz']\nwcet = '40us'\nphase = '{}us'",
            u64::from(one) * 1_000_000 / u64::from(OPERATIONS)
        );
    }
    text
}

#[derive(Default)]
struct Received(AtomicU64);

impl Modulator for Received {
    fn rate(&self, _: f64) -> Result<(), SystemException> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// What one run used, without the bodies.
struct Used {
    cpu: Span,
    messages: u64,
    retimes: u64,
}

fn run(period: Span, samples: u64) -> Used {
    let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let [map, rates] = ports.map(|port| port.local_addr().expect("its own address").port());
    let text = text(period, map, rates);
    let system = Arc::new(read(&text, "rates.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system);
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).expect("a built-in strategy"));
    let mut objects = Objects::new();
    objects.add::<dyn Tracker>("map", Arc::new(Yard::default()));
    let node = Node::new(system.clone(), plan).share_cpu(true);
    let (mut node, installed) = objects.install(&system, None, node).expect("the objects of the file");
    let bodies = Arc::new(AtomicU64::new(0));
    for one in 0..OPERATIONS {
        let bodies = bodies.clone();
        node = node.body(format!("task{one}"), move |job| {
            let begun = own_cpu_time();
            // Far above the set point and far below it by turns, and after a second the other way round: otherwise jobs
            // would gather in samples with short ones.
            let now = job.now().as_nanos();
            let is_long = (now / SAMPLE.as_nanos() + now / 1_000_000_000).is_multiple_of(2);
            let until = begun + Span::from_micros(if is_long { 250 } else { 10 });
            while own_cpu_time() < until {}
            bodies.fetch_add(own_cpu_time().saturating_sub(begun).as_nanos(), Ordering::Relaxed);
        });
    }
    let mut node = node.prepare().expect("the node starts");
    let serving = installed.serve(&mut node, None).expect("served");
    let mut running = node.start();
    let (clock, received) = (MonotonicClock::start(), Arc::new(Received::default()));
    let pause = |running: &mut hyoshi_runtime::RunningNode, until, retimes: &mut u64| {
        while clock.now() < until {
            running.poll(&mut |_, _, event| {
                *retimes += u64::from(matches!(event, TraceEvent::Decision(DispatchDecision::Retime { .. })));
            });
            clock.sleep_until(until.min(clock.now() + Span::from_millis(10)));
        }
    };
    let mut retimes = 0;
    pause(&mut running, clock.now() + Span::from_millis(500), &mut retimes);
    let what = |label| Task { operation: "query".into(), lowest: 1.0, highest: 1.01, estimate: label, value: 1 };
    let joined: Vec<(Orb, ModulatorStub)> = (0..CLIENTS)
        .map(|_| {
            let lane = LaneOptions { brief: true, ..LaneOptions::default() };
            let orb = Orb::builder().lane(lane).listen("iiop://127.0.0.1:0").expect("an endpoint");
            let orb = orb.build().expect("an ORB");
            orb.ready();
            let adapter = orb.adapter("modulator").build().expect("an adapter");
            let modulator: ModulatorStub = adapter.activate::<dyn Modulator>(received.clone()).expect("activated");
            let at = format!("corbaloc:iiop:1.2@127.0.0.1:{rates}/rates");
            let stub: RatesStub = orb.resolve_unchecked::<dyn Rates>(&at).expect("a reference");
            stub.join(&what(1_000), Some(&modulator)).expect("admitted");
            (orb, modulator)
        })
        .collect();
    pause(&mut running, clock.now() + Span::from_millis(500), &mut retimes);
    retimes = 0;
    let used = || process_cpu().saturating_sub(Span::from_nanos(bodies.load(Ordering::Relaxed)));
    let (before, messages) = (used(), received.0.load(Ordering::Relaxed));
    pause(&mut running, clock.now() + Span::from_nanos(SAMPLE.as_nanos() * samples), &mut retimes);
    let used =
        Used { cpu: used().saturating_sub(before), messages: received.0.load(Ordering::Relaxed) - messages, retimes };
    running.stop(&mut |_, _, _| ());
    joined.iter().for_each(|(orb, _)| orb.shutdown());
    drop(serving);
    used
}

/// The CPU time of one message for each client and sample, without any middleware.
fn baseline(samples: u64) -> Span {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its own address");
    let (mut senders, mut readers) = (Vec::new(), Vec::new());
    for _ in 0..CLIENTS {
        let sender = TcpStream::connect(address).expect("a connection");
        sender.set_nodelay(true).expect("an option of TCP");
        senders.push(sender);
        let mut receiver = listener.accept().expect("a connection").0;
        readers.push(Spawn::new("reader").spawn(move || while receiver.read_exact(&mut [0; MESSAGE]).is_ok() {}));
    }
    let send = move || {
        let (clock, before) = (MonotonicClock::start(), process_cpu());
        for sample in 1..=samples {
            senders.iter_mut().for_each(|sender| sender.write_all(&[0; MESSAGE]).expect("it is read"));
            clock.sleep_until(hyoshi_model::Instant::ZERO + Span::from_nanos(SAMPLE.as_nanos() * sample));
        }
        process_cpu().saturating_sub(before)
    };
    let sender = Spawn::new("sender").policy(ThreadPolicy::Fifo(FEEDBACK)).spawn(send).expect("a thread");
    let used = sender.join().expect("it sends");
    readers.into_iter().for_each(|reader| drop(reader.expect("a thread").join()));
    used
}

fn median(mut shares: Vec<f64>) -> f64 {
    shares.sort_unstable_by(f64::total_cmp);
    shares[shares.len() / 2]
}

fn main() {
    // `cargo test --benches` only checks that it starts.
    let short = std::env::args().any(|argument| argument == "--test");
    let (rounds, samples) = if short { (1, 3) } else { (5, 50) };
    let elapsed = (SAMPLE.as_nanos() * samples) as f64;
    let share = |cpu: Span| cpu.as_nanos() as f64 / elapsed * 100.0;
    let (shares, baselines) = (0..rounds)
        .map(|_| {
            let (with, without) = (run(SAMPLE, samples), run(Span::from_secs(60), samples));
            let baseline = share(baseline(samples));
            println!(
                "with the loop {:5.2} % of a CPU ({:3.0} new rates and {:3.0} messages a sample), without {:5.2} %, \
                 baseline {baseline:5.2} %",
                share(with.cpu),
                with.retimes as f64 / samples as f64,
                with.messages as f64 / samples as f64,
                share(without.cpu),
            );
            (share(with.cpu) - share(without.cpu), baseline)
        })
        .unzip();
    println!("the loop: {:.2} % of a CPU, median of {rounds} rounds (goal: below 1)", median(shares));
    println!("{CLIENTS} messages a sample over plain TCP: {:.2} %", median(baselines));
}
