//! The cost of a request that a node's lane orders, and of one that a thread of the ORB serves: `cargo bench -p
//! hyoshi-node --bench requests`, as root. Empty two-way calls over TCP on loopback, from a real-time thread on another
//! CPU, alternately.

use std::sync::Arc;

use hyoshi_model::{ProcessorId, read};
use hyoshi_node::JobOrder;
use hyoshi_orb::{LaneOptions, Orb, Reference};
use hyoshi_os::priority::lane_priority;
use hyoshi_os::{Clock, MonotonicClock, Spawn, ThreadPolicy, allowed_cpus};
use hyoshi_runtime::Node;
use hyoshi_sched::{Plan, Strategies};
use tracking::{Tracker, TrackerStub, Yard};

#[path = "../../orb/tests/common/tracking.rs"]
mod tracking;

fn main() {
    // `cargo test --benches` only checks that it starts.
    let short = std::env::args().any(|argument| argument == "--test");
    let (rounds, calls) = if short { (1, 20) } else { (10, 1_000) };
    let cpus = allowed_cpus();
    let (client, server) = (cpus[0], *cpus.last().expect("a CPU to run on"));
    let text = format!(
        "name = \"requests\"\nduration = \"1h\"\n[processor.main]\ncpu = {server}\n[operation.serve]\ncalled = true\n\
         wcet = \"1ms\"\ndeadline = \"10ms\"\n"
    );
    let system = Arc::new(read(&text, "requests.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system);
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).expect("known strategies"));

    let order = JobOrder::new(&system, ProcessorId(0), 64);
    let binding = order.bind("serve", &[]).expect("it is called");
    let mut node = order.install(Node::new(system, plan)).prepare().expect("the node starts");
    let own = LaneOptions { name: "requests".into(), threads: 0, ..LaneOptions::default() };
    let builder = Orb::builder().lane(own).order(order.clone(), 64);
    let orb = builder.listen("iiop://127.0.0.1:0").expect("an endpoint").build().expect("an ORB");
    let adapter = orb.adapter("a").build().expect("an adapter");
    let object = adapter.activate_ordered::<dyn Tracker>("x", Arc::new(Yard::default()), binding).expect("activated");
    let in_node = AsRef::<Reference<dyn Tracker>>::as_ref(&object).ior().to_string();
    let _serving = order.serve(&mut node, orb.owned_lane("requests").expect("no threads")).expect("read by the node");
    orb.ready();
    let running = node.start();

    let policy = ThreadPolicy::Fifo(lane_priority(0));
    let lane = LaneOptions { name: "orb".into(), threads: 2, policy, cpu: Some(server), ..LaneOptions::default() };
    let builder = Orb::builder().lane(lane).listen("iiop://127.0.0.1:0").expect("an endpoint");
    let plain = builder.build().expect("an ORB");
    let adapter = plain.adapter("a").build().expect("an adapter");
    let object = adapter.activate_as::<dyn Tracker>("x", Arc::new(Yard::default())).expect("activated");
    let in_orb = AsRef::<Reference<dyn Tracker>>::as_ref(&object).ior().to_string();
    plain.ready();

    let measure = move || {
        let orb = Orb::client().expect("an ORB");
        let stub = |at: &str| orb.resolve_unchecked::<dyn Tracker>(at).expect("a reference");
        let (by_orb, by_node) = (stub(&in_orb), stub(&in_node));
        let clock = MonotonicClock::start();
        let round = |stub: &TrackerStub| {
            let mut took: Vec<u64> = (0..calls)
                .map(|_| {
                    let before = clock.now();
                    stub.nothing().expect("it answers");
                    clock.now().since(before).as_nanos()
                })
                .collect();
            took.sort_unstable();
            took[took.len() / 2] as f64
        };
        // The first calls connect.
        round(&by_orb);
        round(&by_node);
        (0..rounds).map(|_| (round(&by_orb), round(&by_node))).collect::<Vec<_>>()
    };
    let client = Spawn::new("client").policy(policy).cpu(client).spawn(measure).expect("a thread");
    let all = client.join().expect("it measured");
    let median = |mut figures: Vec<f64>| {
        figures.sort_unstable_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    let orb = median(all.iter().map(|(orb, _)| *orb).collect());
    let node = median(all.iter().map(|(_, node)| *node).collect());
    let ratio = median(all.iter().map(|(orb, node)| node / orb).collect());
    println!("a thread of the ORB           p50 {:6.1} us", orb / 1_000.0);
    println!("a lane of a node              p50 {:6.1} us", node / 1_000.0);
    println!("node / ORB, median of {rounds} rounds: {ratio:.2} (goal: at most 1.25)");
    drop(running);
}
