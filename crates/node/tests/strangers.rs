//! Clients that are not peers, and peers that misbehave.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hyoshi_model::Span;
use hyoshi_node::corbaloc;
use hyoshi_node::idl::hyoshi_node::{self as wire, IntroduceError, Peer, PeerStub, Reason};
use hyoshi_orb::{Orb, SyncScope};

use crate::common::{DRONE, Host, STATION, digest, folder, text, until, unused_address};

fn alone() -> (Host, String) {
    let text = text(&format!("tcp/{}", unused_address()), &format!("tcp/{}", unused_address()), "60s");
    (Host::start(&text, DRONE, Span::ZERO).unwrap(), text)
}

/// The drone's object, called by a stranger.
fn stub(orb: &Orb, drone: &Host) -> PeerStub {
    let at = corbaloc(&drone.system.hosts[0].endpoints[0], "hyoshi-peer");
    orb.resolve_unchecked::<dyn Peer>(&at).unwrap()
}

fn introduction(drone: &Host) -> wire::Introduction {
    let digest = digest(&drone.system);
    wire::Introduction {
        version: wire::VERSION,
        system: "uav".into(),
        host: "station".into(),
        digest,
        incarnation: 7,
        clock: 8,
    }
}

fn why(refused: Result<wire::Welcome, IntroduceError>) -> Reason {
    match refused {
        Err(IntroduceError::Refused(refused)) => {
            assert!(!refused.detail.is_empty());
            refused.why
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_introduction_that_is_not_of_a_host_of_this_system_is_refused_with_the_reason() {
    let (drone, _) = alone();
    let orb = Orb::client().unwrap();
    let (peer, right) = (stub(&orb, &drone), introduction(&drone));
    let with = |change: &dyn Fn(&mut wire::Introduction)| {
        let mut wrong = right.clone();
        change(&mut wrong);
        why(peer.introduce(&wrong))
    };
    assert_eq!(with(&|wrong| wrong.version = wire::VERSION + 1), Reason::OtherVersion);
    assert_eq!(with(&|wrong| wrong.digest[31] ^= 1), Reason::OtherSystem);
    assert_eq!(with(&|wrong| wrong.system = "ugv".into()), Reason::OtherSystem);
    assert_eq!(with(&|wrong| wrong.host = "moon".into()), Reason::WrongHost);
    assert_eq!(with(&|wrong| wrong.host = "drone".into()), Reason::WrongHost);
    let welcome = peer.introduce(&right).unwrap();
    assert_eq!(welcome.who.host, "drone");
    assert_eq!(with(&|wrong| wrong.incarnation = 8), Reason::HostTaken);
    let again = peer.introduce(&right).unwrap();
    assert_ne!(again.session, welcome.session, "of one start of a node the last session counts");
    let mine = wire::Progress { gathering: true, impatient: false, run: [0; 16], origin: 0 };
    assert!(peer.exchange(welcome.session, &mine).is_err());
    assert!(peer.exchange(again.session, &mine).unwrap().state.gathering);
}

#[test]
fn calls_of_strangers_are_counted_and_a_peer_joins_beside_them() {
    let (drone, text) = alone();
    let at = corbaloc(&drone.system.hosts[0].endpoints[0], "hyoshi-peer");
    let over = AtomicBool::new(false);
    let mine = wire::Progress { gathering: true, impatient: false, run: [0; 16], origin: 0 };
    let refused = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                // Each has connections of its own.
                let orb = Orb::client().unwrap();
                let stub = orb.resolve_unchecked::<dyn Peer>(&at).unwrap();
                while !over.load(Ordering::Relaxed) {
                    assert!(stub.exchange(99, &mine).is_err());
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let ends = Ends(&over);
        let station = Host::start(&text, STATION, Span::from_secs(20)).unwrap();
        let joined = |host: &Host| host.peers.standing()[0].state == "joined";
        until("the station joins", || joined(&drone) && joined(&station));
        until("strangers call", || refused.load(Ordering::Relaxed) > 300);
        assert!(joined(&drone) && joined(&station), "{:?}", drone.peers.take_events());
        drop(ends);
    });
    assert!(drone.peers.refused() >= refused.load(Ordering::Relaxed));
}

#[test]
fn strangers_who_take_all_connections_of_a_tcp_endpoint_keep_no_peer_from_another_endpoint() {
    a_peer_joins_among_strangers(&format!("unix/{}", folder().join("drone").display()));
}

/// Both endpoints share a lane; a peer with another address than the strangers gets their places.
#[test]
fn strangers_of_one_address_leave_places_for_peers_of_others() {
    a_peer_joins_among_strangers(&format!("tcp/[::1]:{}", unused_address().port()));
}

/// More connections than the drone accepts at `tcp/`, all of which call again and again.
fn a_peer_joins_among_strangers(other: &str) {
    let tcp = unused_address();
    let both = format!("tcp/{tcp}\", \"{other}");
    let text = text(&both, &format!("tcp/{}", unused_address()), "60s");
    let drone = Host::start(&text, DRONE, Span::ZERO).unwrap();
    let at = corbaloc(&drone.system.hosts[0].endpoints[0], "hyoshi-peer");
    let (over, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    let mine = wire::Progress { gathering: true, impatient: false, run: [0; 16], origin: 0 };
    thread::scope(|scope| {
        let ends = Ends(&over);
        for _ in 0..40 {
            scope.spawn(|| {
                let orb = Orb::client().unwrap();
                let stub = orb.resolve_unchecked::<dyn Peer>(&at).unwrap();
                while !over.load(Ordering::Relaxed) {
                    // Those that find no connection try again.
                    let _ = stub.as_ref().within(Span::from_secs(1)).exchange(99, &mine);
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        until("strangers call", || calls.load(Ordering::Relaxed) > 100);
        let station = Host::start(&text, STATION, Span::from_secs(20)).unwrap();
        let joined = |host: &Host| host.peers.standing()[0].state == "joined";
        until("the station joins", || joined(&drone) && joined(&station));
        drop(ends);
    });
    assert!(drone.peers.refused() > 0);
}

/// Ends a loop, even if its test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn completions_of_strangers_and_floods_are_counted_and_keep_no_lane_from_its_work() {
    let (mut drone, _) = alone();
    let agreed = drone.agree().unwrap();
    let running = drone.begin(&agreed);
    let orb = Orb::client().unwrap();
    let peer = stub(&orb, &drone);
    let welcome = peer.introduce(&introduction(&drone)).unwrap();
    let what = wire::Completion { source: 1, target: 0, position: 0, number: 0, origin: 0, period: 1, sent: 0 };
    let flood = peer.as_ref().oneways(SyncScope::None);
    let began = Instant::now();
    let send = || flood.as_ref().within(Span::from_millis(1)).complete(welcome.session, &what, &[]).is_ok();
    until("completions that it may not send are rejected", || {
        // It is read ever more slowly: completions that do not fit are not sent.
        let _ = (0..20_000).all(|_| send());
        drone.peers.standing()[0].rejected > 1_000
    });
    let (standing, took) = (drone.peers.standing().remove(0), began.elapsed());
    assert_eq!(standing.received, 0);
    let most = 1_024 + 40 * took.as_millis() as u64 / 1_000 + took.as_millis() as u64 / 5 + 100;
    assert!(standing.rejected < most, "{} in {took:?}", standing.rejected);
    // One without a session, too.
    let stranger = flood.complete(99, &what, &[]);
    assert!(stranger.is_ok() || took > Duration::from_millis(1));
    let finished = running.stop(&mut |_, _, _| ());
    assert_eq!(finished.lost.signals, 0);
}

#[test]
fn silent_and_malformed_connections_are_closed_and_other_clients_are_served() {
    let (drone, _) = alone();
    let hyoshi_model::Endpoint::Tcp(address) = drone.system.hosts[0].endpoints[0].clone() else { unreachable!() };
    let connect = || TcpStream::connect(address.to_string()).unwrap();
    // More silent connections than it has room for.
    let silent: Vec<TcpStream> = (0..40).map(|_| connect()).collect();
    let mut garbage = connect();
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    garbage.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let _ = garbage.read_to_end(&mut answer);
    let orb = Orb::client().unwrap();
    assert!(stub(&orb, &drone).introduce(&introduction(&drone)).is_ok());
    drop(silent);
}
