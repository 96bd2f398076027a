//! Publishers and subscribers that are not peers, and a peer whose completions are wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyoshi_model::Span;
use hyoshi_node::corbaloc;
use hyoshi_node::idl::hyoshi_node::{self as wire, Completion, Peer};
use hyoshi_orb::Orb;
use hyoshi_zenoh::{CompletionHeader, HEADER, ZenohLink, dialling, key_expression};
use zenoh::pubsub::Publisher;
use zenoh::{Session, Wait};

use crate::common::{DRONE, Host, STATION, digest, until};
use crate::{over_zenoh, start};

/// A session that dials the station as the drone's node does.
fn dial(station: &Host) -> Session {
    zenoh::open(dialling(&station.system, DRONE, &[STATION], ZenohLink::Critical, None)).wait().unwrap()
}

pub fn connected(session: &Session, key: String) -> Publisher<'static> {
    let publisher = session.declare_publisher(key).wait().unwrap();
    until("the station is found", || publisher.matching_status().wait().unwrap().matching());
    publisher
}

/// The drone introduces itself over IIOP.
pub fn introduce(station: &Host, orb: &Orb) -> u64 {
    let at = corbaloc(&station.system.hosts[1].endpoints[0], "hyoshi-peer");
    let stub = orb.resolve_unchecked::<dyn Peer>(&at).unwrap();
    let introduction = wire::Introduction {
        version: wire::VERSION,
        system: "uav".into(),
        host: "drone".into(),
        digest: digest(&station.system),
        incarnation: 7,
        clock: 8,
    };
    stub.introduce(&introduction).unwrap().session
}

pub fn put(publisher: &Publisher<'_>, payload: &[u8], attachment: &[u8]) {
    publisher.put(payload).attachment(attachment).wait().unwrap();
}

#[test]
fn messages_that_are_no_completions_of_peers_are_refused_and_counted() {
    let mut station = start(&over_zenoh("60s"), STATION, Span::ZERO).unwrap();
    let agreed = station.agree().unwrap();
    let running = station.begin(&agreed);
    let session = dial(&station);
    let publisher = connected(&session, key_expression(&station.system, DRONE, STATION));
    let completion =
        Completion { source: 0, target: 1, position: 0, number: 1, origin: 1, period: 10_000_000, sent: 1 };
    let header = CompletionHeader { session: 99, sequence: 1, completion };
    let good = header.encode();
    let mut version = good;
    version[0] = 2;
    publisher.put(&[][..]).wait().unwrap();
    put(&publisher, &[], &[]);
    put(&publisher, &[], &good[..HEADER - 1]);
    put(&publisher, &[], &[0; 100_000]);
    put(&publisher, &[], &version);
    // The session is unknown.
    put(&publisher, &[], &good);
    until("all are counted", || station.peers.refused() >= 6);
    // Refused by the access rules of the station: a deletion, and the key of another host.
    publisher.delete().wait().unwrap();
    let elsewhere = key_expression(&station.system, STATION, DRONE);
    session.put(elsewhere, &[][..]).attachment(&good[..]).wait().unwrap();
    // No message is longer than 256 KiB. The connection may close; it is made again.
    put(&publisher, &vec![0; 1 << 20], &good);
    until("the station reads on", || {
        put(&publisher, &[], &good);
        station.peers.refused() >= 8
    });
    let standing = &station.peers.standing()[0];
    assert_eq!((standing.received, standing.rejected, standing.missing), (0, 0, 0), "{standing:?}");
    drop(running);
}

#[test]
fn wrong_completions_of_a_peer_are_rejected_and_gaps_are_counted() {
    let mut station = start(&over_zenoh("60s"), STATION, Span::ZERO).unwrap();
    let agreed = station.agree().unwrap();
    let running = station.begin(&agreed);
    until("it runs", || agreed.clock.origin() as u64 + 5_000_000 < now());
    let session = dial(&station);
    let publisher = connected(&session, key_expression(&station.system, DRONE, STATION));
    let orb = Orb::client().unwrap();
    let number = introduce(&station, &orb);
    let completion = |number: u64| {
        let origin = now() - agreed.clock.origin() as u64;
        Completion { source: 0, target: 1, position: 0, number, origin, period: 10_000_000, sent: origin }
    };
    let send = |sequence: u64, completion: Completion, payload: &[u8]| {
        put(&publisher, payload, &CompletionHeader { session: number, sequence, completion }.encode());
    };
    let counts = || {
        let peer = &station.peers.standing()[0];
        (peer.received, peer.rejected, peer.missing)
    };
    // A payload of an operation with 8 bytes, from the job of that number.
    send(1, completion(0), &0u64.to_ne_bytes());
    until("it is received", || counts() == (1, 0, 0));
    send(2, completion(1), &[0; 9]);
    send(3, completion(1), &[0; 100_000]);
    send(4, Completion { source: 2, ..completion(1) }, &[]);
    send(5, Completion { target: u32::MAX, ..completion(1) }, &[]);
    send(6, Completion { position: 1, ..completion(1) }, &[]);
    send(7, Completion { origin: u64::MAX, ..completion(1) }, &[]);
    send(8, Completion { number: u64::MAX, ..completion(1) }, &[]);
    until("they are rejected", || counts() == (1, 7, 0));
    // Two were lost.
    send(11, completion(1), &1u64.to_ne_bytes());
    until("a gap is counted", || counts() == (2, 7, 2));
    // The count remains in the next session.
    let again = introduce(&station, &orb);
    assert_ne!(again, number);
    assert_eq!(counts(), (2, 7, 2));
    send(12, completion(2), &[]);
    until("the old session is refused", || station.peers.refused() == 1);
    drop(running);
}

#[test]
fn a_subscriber_that_is_no_peer_receives_nothing() {
    let mut station = start(&over_zenoh("60s"), STATION, Span::ZERO).unwrap();
    let agreed = station.agree().unwrap();
    let running = station.begin(&agreed);
    let (drone, eavesdropper) = (dial(&station), dial(&station));
    let heard = Arc::new(AtomicU64::new(0));
    let count = heard.clone();
    let hear = move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    };
    let _subscriber = eavesdropper.declare_subscriber("**").callback(hear).wait().unwrap();
    let key = key_expression(&station.system, DRONE, STATION);
    // It has a connection, too.
    connected(&eavesdropper, key.clone());
    let publisher = connected(&drone, key);
    for _ in 0..20 {
        put(&publisher, &[], &[]);
    }
    until("the station has read them", || station.peers.refused() == 20);
    assert_eq!(heard.load(Ordering::Relaxed), 0);
    drop(running);
}

/// CLOCK_MONOTONIC in ns.
pub fn now() -> u64 {
    use hyoshi_os::{Clock, MonotonicClock};
    MonotonicClock::from_origin(0).now().as_nanos()
}
