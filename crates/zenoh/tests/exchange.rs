//! Nodes exchange completions, lose each other and reconnect.

use std::thread;

use hyoshi_model::Span;
use hyoshi_node::NodeError;
use hyoshi_os::priority::TRANSPORT;
use hyoshi_os::scheduling::{Scheduling, SchedulingClass};
use hyoshi_os::{Spawn, ThreadPolicy, thread_name};
use hyoshi_trace::{DispatchDecision, TraceEvent};
use zenoh::{Config, Session, Wait};

use crate::common::{DRONE, Host, STATION, finish, until, unused_address};
use crate::privileges::missing;
use crate::{over_zenoh, start};

/// Its body fails if the payload is not the one of its predecessor.
#[test]
fn two_nodes_exchange_completions_with_payloads() {
    let text = over_zenoh("1s");
    let mut drone = start(&text, DRONE, Span::from_secs(20)).unwrap();
    let mut station = start(&text, STATION, Span::from_secs(20)).unwrap();
    let (one, other) = thread::scope(|scope| {
        let theirs = &station.peers;
        let other = scope.spawn(|| theirs.agree(|_| ()).unwrap());
        (drone.agree().unwrap(), other.join().unwrap())
    });
    assert_eq!(one.run, other.run);
    let mut ran = 0;
    thread::scope(|scope| {
        let running = station.begin(&other);
        let theirs = scope.spawn(|| {
            let mut ran = 0;
            finish(running, |_, _, event| {
                if let TraceEvent::Decision(DispatchDecision::End(end)) = event {
                    ran += u64::from(end.job.operation.0 == 1 && end.outcome.finished());
                }
            });
            ran
        });
        finish(drone.begin(&one), |_, _, _| ());
        assert_raised();
        ran = theirs.join().unwrap();
    });
    let (sent, received) = (&drone.peers.standing()[0], &station.peers.standing()[0]);
    assert!(ran > 50 && received.received >= ran, "{ran}: {received:?}");
    assert_eq!((received.missing, station.peers.refused()), (0, 0), "{received:?}");
    assert!(
        sent.sent + sent.unsent >= 99 && sent.sent >= received.received + received.rejected,
        "{sent:?} {received:?}"
    );
}

/// The threads of Zenoh that carry completions.
fn assert_raised() {
    let probe = Spawn::new("probe").policy(ThreadPolicy::Fifo(1)).spawn(|| ()).unwrap();
    if !probe.granted.in_full() {
        return missing("real-time priorities");
    }
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let tasks = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let name = |tid: u32| thread_name(tid).unwrap_or_default();
    let of_zenoh: Vec<u32> =
        tasks.filter(|tid| ["acc-0", "rx-0", "rx-1", "tx-0"].contains(&name(*tid).as_str())).collect();
    assert_eq!(of_zenoh.len(), 4);
    for tid in of_zenoh {
        assert_eq!(Scheduling::of(tid).unwrap().class, SchedulingClass::Fifo(TRANSPORT), "{}", name(tid));
    }
}

#[test]
fn a_host_that_returns_gets_completions_again_and_those_between_are_counted() {
    let text = over_zenoh("60s");
    let mut drone = start(&text, DRONE, Span::ZERO).unwrap();
    let agreed = drone.agree().unwrap();
    let running = drone.begin(&agreed);
    until("the drone sends without effect", || drone.peers.standing()[0].unsent > 3);
    for before in 0..2 {
        let mut station = start(&text, STATION, Span::from_secs(20)).unwrap();
        let late = station.agree().unwrap();
        assert_eq!((late.late, late.run), (true, agreed.run));
        let theirs = station.begin(&late);
        until("completions arrive", || station.peers.standing()[0].received > 20);
        assert_eq!(station.peers.standing()[0].missing, 0);
        assert_eq!(drone.peers.standing()[0].joined, before + 1);
        theirs.stop(&mut |_, _, _| ());
        drop(station);
        until("the drone sees that", || drone.peers.standing()[0].state == "lost");
        let unsent = drone.peers.standing()[0].unsent;
        until("nothing is sent", || drone.peers.standing()[0].unsent > unsent + 3);
    }
    drop(running);
}

fn router(address: &str) -> Session {
    let settings = format!(
        r#"{{ mode: "router", listen: {{ endpoints: ["{address}"] }}, adminspace: {{ enabled: false }},
              scouting: {{ multicast: {{ enabled: false }}, gossip: {{ enabled: false }} }} }}"#
    );
    zenoh::open(Config::from_json5(&settings).unwrap()).wait().unwrap()
}

#[test]
fn hosts_exchange_completions_through_a_router_that_may_be_away() {
    let address = format!("tcp/{}", unused_address());
    let direct = over_zenoh("60s");
    let text = direct.lines().map(|line| match line.starts_with("zenoh") {
        true => format!("router = \"{address}\"\n"),
        false => format!("{line}\n"),
    });
    let text: String = text.collect();
    let mut drone = start(&text, DRONE, Span::from_secs(20)).unwrap();
    let mut station = start(&text, STATION, Span::from_secs(20)).unwrap();
    let (one, other) = thread::scope(|scope| {
        let theirs = &station.peers;
        let other = scope.spawn(|| theirs.agree(|_| ()).unwrap());
        (drone.agree().unwrap(), other.join().unwrap())
    });
    let running = (drone.begin(&one), station.begin(&other));
    let sent = || drone.peers.standing()[0].clone();
    let received = || station.peers.standing()[0].clone();
    for _ in 0..2 {
        let unsent = sent().unsent;
        until("completions are unsent", || sent().unsent > unsent + 20);
        let router = router(&address);
        let before = received().received;
        until("completions pass the router", || received().received > before + 50);
        router.close().wait().unwrap();
    }
    until("all are counted", || {
        let (sent, received) = (sent(), received());
        sent.sent == received.received + received.rejected + received.missing + sent.unconfirmed
    });
    assert_eq!((station.peers.refused(), received().rejected), (0, 0), "{:?}", received());
    drop(running);
}

#[test]
fn what_keeps_zenoh_from_starting_is_an_error_with_a_remedy() {
    let text = over_zenoh("60s");
    let error = Host::start(&text, DRONE, Span::ZERO).err().unwrap();
    assert!(matches!(&error, NodeError::NoCarrier { host } if host == "drone"), "{error}");
    assert!(error.remedy().unwrap().contains("--features zenoh"));
    let zenoh: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("zenoh = \"tcp/")).collect();
    let address = zenoh[0].trim_end_matches('"');
    let _taken = std::net::TcpListener::bind(address).unwrap();
    let error = start(&text, DRONE, Span::ZERO).err().unwrap();
    assert!(matches!(&error, NodeError::Carrier(_)), "{error}");
    assert!(error.to_string().contains(address) && error.remedy().unwrap().contains("[host.drone]"), "{error}");
}
