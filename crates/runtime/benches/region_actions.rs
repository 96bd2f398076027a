//! The time from a condition to the callback of the region that it begins: `cargo bench -p hyoshi-runtime --bench
//! region_actions`. A thread sets the condition at random times within the period of the contract.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant as WallClock};

use hyoshi_model::{Span, read};
use hyoshi_runtime::Node;
use hyoshi_sched::{Plan, Strategies};

const PERIOD: Span = Span::from_millis(10);

const SYSTEM: &str = "name = \"bench\"\nduration = \"10min\"\n\
    [operation.fast]\nevery = \"2ms\"\nwcet = \"0.1ms\"\n\
    [condition.battery]\nvalue = 80\n\
    [contract.power]\nperiod = \"10ms\"\nwatch = { battery = { of = \"condition.battery\" } }\n\
    [[contract.power.region]]\nname = \"saving\"\nenter = \"battery < 20\"\ndo = [{ call = \"change\" }]\n\
    [[contract.power.region]]\nname = \"normal\"\ndo = [{ call = \"change\" }]\n";

fn main() {
    // `cargo test --benches` only checks that it starts.
    let short = std::env::args().any(|argument| argument == "--test");
    let changes = if short { 10 } else { 2_000 };
    let system = Arc::new(read(SYSTEM, "bench.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system);
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).expect("built-in strategies"));
    let (sender, receiver) = channel();
    let node = Node::new(system, plan).on_region("change", move |event| {
        // Before the measurement is passed on, which also takes time.
        let called = WallClock::now();
        let _ = sender.send((called, event.now.since(event.at)));
    });
    let prepared = node.prepare().expect("a node");
    let contracts = prepared.handles().contracts;
    let running = prepared.start();
    let next = || receiver.recv_timeout(Duration::from_secs(10)).expect("a callback");
    next();
    let (mut seed, mut whole, mut action) = (1u64, Vec::new(), Vec::new());
    for change in 0..changes {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_nanos((seed >> 33) % PERIOD.as_nanos()));
        let set = WallClock::now();
        contracts.set("battery", if change % 2 == 0 { 10.0 } else { 80.0 }).expect("a condition");
        let (called, after_region) = next();
        whole.push(called.duration_since(set));
        action.push(Duration::from_nanos(after_region.as_nanos()));
    }
    let finished = running.stop(&mut |_, _, _| ());
    println!("{changes} changes of a condition, period {PERIOD} (goal: p99 of the whole below the period + 1 ms)");
    for (what, times) in [("condition to callback", &mut whole), ("region to callback", &mut action)] {
        times.sort();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        println!("  {what:22} p50 {:?}  p99 {:?}  max {:?}", at(0.5), at(0.99), at(1.0));
    }
    for note in finished.notes {
        println!("  {note}");
    }
}
