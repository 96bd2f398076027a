//! The CPU time of a whole feedback loop at 100 ms, with 900 operations and 100 registered clients: `cargo bench -p
//! hyoshi-node --bench rates`. Each sample changes all rates. All threads of the process count: those that sample,
//! decide, set timers and send, and those of the clients that receive. The jobs are the same without the loop, in runs
//! whose first sample would be later: the difference is the loop.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::process_cpu;
use hyoshi_model::{Span, read};
use hyoshi_node::Objects;
use hyoshi_node::idl::hyoshi_rates::{Modulator, ModulatorStub, Rates, RatesStub, Task};
use hyoshi_orb::{Orb, SystemException};
use hyoshi_os::{Clock, MonotonicClock, own_cpu_time};
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

/// What one run used.
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
    // Far above the set point and far below it by turns.
    let burnt = Arc::new(AtomicU64::new(250_000));
    for one in 0..OPERATIONS {
        let burnt = burnt.clone();
        node = node.body(format!("task{one}"), move |_| {
            let until = own_cpu_time() + Span::from_nanos(burnt.load(Ordering::Relaxed));
            while own_cpu_time() < until {}
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
            let orb = Orb::builder().listen("iiop://127.0.0.1:0").expect("an endpoint").build().expect("an ORB");
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
    let (before, messages) = (process_cpu(), received.0.load(Ordering::Relaxed));
    let begun = clock.now();
    for sample in 1..=samples {
        burnt.store(if sample % 2 == 0 { 250_000 } else { 10_000 }, Ordering::Relaxed);
        pause(&mut running, begun + Span::from_nanos(SAMPLE.as_nanos() * sample), &mut retimes);
    }
    let used = Used {
        cpu: process_cpu().saturating_sub(before),
        messages: received.0.load(Ordering::Relaxed) - messages,
        retimes,
    };
    running.stop(&mut |_, _, _| ());
    joined.iter().for_each(|(orb, _)| orb.shutdown());
    drop(serving);
    used
}

fn main() {
    // `cargo test --benches` only checks that it starts.
    let short = std::env::args().any(|argument| argument == "--test");
    let (rounds, samples) = if short { (1, 3) } else { (5, 50) };
    let elapsed = (SAMPLE.as_nanos() * samples) as f64;
    let mut shares: Vec<f64> = (0..rounds)
        .map(|_| {
            let (with, without) = (run(SAMPLE, samples), run(Span::from_secs(60), samples));
            let share = |used: &Used| used.cpu.as_nanos() as f64 / elapsed * 100.0;
            println!(
                "with the loop {:6.2} % of a CPU ({:4.0} new rates and {:4.0} messages a sample), without {:6.2} %",
                share(&with),
                with.retimes as f64 / samples as f64,
                with.messages as f64 / samples as f64,
                share(&without),
            );
            share(&with) - share(&without)
        })
        .collect();
    shares.sort_unstable_by(f64::total_cmp);
    println!("the loop: {:.2} % of a CPU, median of {rounds} rounds (goal: below 1)", shares[shares.len() / 2]);
}
