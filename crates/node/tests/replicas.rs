//! Outputs of one node that are flushed to replicas on another.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use hyoshi_model::Span;
use hyoshi_node::idl::hyoshi_node::{self as wire, Peer as _, PeerStub};
use hyoshi_node::{NodePeers, corbaloc};
use hyoshi_orb::Orb;
use hyoshi_runtime::Node;
use hyoshi_sched::{Plan, Strategies};

use crate::common::{DRONE, Host, STATION, finish, folder, settings, system, text, until, unused_address};

/// The station reads a replica of the drone's outputs. Every fourth output is late.
fn replicated(drone: &str, station: &str, duration: &str) -> String {
    text(drone, station, duration)
        .replace("payload = \"8B\"", "payload = \"8B\"\nreplicate = { to = [\"station\"] }")
        .replace("every = \"5ms\"", "every = \"5ms\"\nreads = [\"sense\"]")
}

type Seen = Arc<Mutex<Vec<(Option<u64>, Option<Span>)>>>;

fn is_late(number: u64) -> bool {
    number % 4 == 3
}

fn start(text: &str, host: hyoshi_model::HostId, seen: &Seen) -> Host {
    let system = system(text);
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
    let store = seen.clone();
    let node = Node::for_host(system.clone(), plan, host).body("sense", |job| {
        job.emit_value(&job.job().number).unwrap();
        if is_late(job.job().number) {
            thread::sleep(Duration::from_millis(12));
        }
    });
    let node = node.body("watch", move |job| {
        store.lock().unwrap().push((job.read_latest("sense"), job.age("sense")));
    });
    let mut node = node.prepare().unwrap();
    let settings = settings(&system, host, Span::from_secs(20));
    let interrupt = settings.interrupt.clone();
    let peers = NodePeers::start(settings, &mut node).unwrap();
    Host { system, node: Some(node), peers, interrupt }
}

fn outputs(host: &Host) -> wire::OutputCounts {
    host.peers.standing()[0].outputs
}

#[test]
fn outputs_in_time_are_flushed_to_the_other_node_at_their_deadlines_and_late_ones_are_counted() {
    let folder = folder();
    let at = |name| format!("unix/{}", folder.join(name).display());
    let tcp = || format!("tcp/{}", unused_address());
    for text in [replicated(&tcp(), &tcp(), "800ms"), replicated(&at("drone"), &at("station"), "800ms")] {
        let seen = Seen::default();
        let (mut drone, mut station) = (start(&text, DRONE, &Seen::default()), start(&text, STATION, &seen));
        let (one, other) = thread::scope(|scope| {
            let theirs = &station.peers;
            let other = scope.spawn(|| theirs.agree(|_| ()).unwrap());
            (drone.agree().unwrap(), other.join().unwrap())
        });
        let (running, theirs) = (drone.begin(&one), station.begin(&other));
        thread::scope(|scope| {
            scope.spawn(|| finish(theirs, |_, _, _| ()));
            finish(running, |_, _, _| ());
        });
        until("late outputs are counted", || outputs(&drone).late >= 10);
        let (sent, received) = (outputs(&drone), outputs(&station));
        assert!(sent.flushed >= 30 && sent.unsent == 0 && sent.late <= 50, "{sent:?}");
        assert!(sent.latest >= sent.lateness / sent.flushed, "{sent:?}");
        assert!(received.received <= sent.flushed && received.received + 3 >= sent.flushed, "{received:?} of {sent:?}");
        assert_eq!((received.flushed, received.late, sent.received), (0, 0, 0));
        assert_eq!(station.peers.standing()[0].rejected, 0);
        let seen = seen.lock().unwrap();
        let numbers: Vec<u64> = seen.iter().filter_map(|(number, _)| *number).collect();
        assert!(numbers.len() > 50 && numbers.is_sorted() && numbers.last() > Some(&40), "{seen:?}");
        assert!(!numbers.iter().any(|number| is_late(*number)), "a late output was flushed: {seen:?}");
        // Outputs arrive after the deadline. Both hosts have the same clock, but its offset was measured.
        let early = |age: &Span| *age < Span::from_millis(9);
        assert!(!seen.iter().filter_map(|(_, age)| *age).any(|age| early(&age)), "{seen:?}");
    }
}

#[test]
fn outputs_for_a_host_that_is_absent_are_counted_and_what_a_stranger_sends_is_not_stored() {
    let tcp = || format!("tcp/{}", unused_address());
    let text = replicated(&tcp(), &tcp(), "60s");
    let seen = Seen::default();
    // It begins alone.
    let mut drone = Host::start(&text, DRONE, Span::from_millis(10)).unwrap();
    let agreed = drone.agree().unwrap();
    let running = drone.begin(&agreed);
    until("outputs are not sent", || outputs(&drone).unsent > 3);
    let mut station = start(&text, STATION, &seen);
    let agreed = station.agree().unwrap();
    let theirs = station.begin(&agreed);
    until("outputs arrive", || outputs(&station).received > 3);
    until("they are read", || seen.lock().unwrap().iter().any(|(number, _)| number.is_some()));

    let orb = Orb::client().unwrap();
    let endpoint = &station.system.hosts[1].endpoints[0];
    let peer: PeerStub = orb.resolve_unchecked::<dyn wire::Peer>(&corbaloc(endpoint, "hyoshi-peer")).unwrap();
    let (refused, forged) = (station.peers.refused(), u64::MAX >> 8);
    let output = wire::Output { source: 0, number: forged, leg: 0, release: forged };
    peer.replicate(99, &output, &forged.to_le_bytes()).unwrap();
    until("the stranger is counted", || station.peers.refused() > refused);
    let (looks, read) = (seen.lock().unwrap().len(), outputs(&station).received);
    until("outputs still arrive", || outputs(&station).received > read + 3);
    until("they are read", || seen.lock().unwrap().len() > looks + 3);
    assert!(seen.lock().unwrap().iter().all(|(number, _)| *number != Some(forged)));
    theirs.stop(&mut |_, _, _| ());
    running.stop(&mut |_, _, _| ());
}
