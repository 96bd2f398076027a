//! Clock offsets, measured over real connections against a clock with known offset and drift.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use hyoshi_node::idl::hyoshi_node::{
    self as wire, CancelHereError, ExchangeError, IntroduceError, Peer, ThreadsHereError,
};
use hyoshi_node::offset::{ClockOffset, RoundTrip, WINDOW};
use hyoshi_orb::{Orb, SystemException};
use hyoshi_os::{Clock, MonotonicClock};

use crate::common::unused_address;
use crate::privileges::missing;

/// Its clock is this much ahead, and gains this much in a second, in ns.
const AHEAD: u64 = 7_000_000_123;
const DRIFT: u64 = 150_000;

fn now() -> u64 {
    MonotonicClock::from_origin(0).now().as_nanos()
}

/// A node with a clock of its own. It drifts from `since` on.
struct OtherClock {
    since: u64,
}

impl OtherClock {
    fn at(&self, now: u64) -> u64 {
        now + AHEAD + (now - self.since) * DRIFT / 1_000_000_000
    }
}

impl Peer for OtherClock {
    fn exchange(&self, _: u64, mine: &wire::Progress) -> Result<wire::Answer, ExchangeError> {
        let received = self.at(now());
        Ok(wire::Answer { state: *mine, received, sent: self.at(now()), arrived: 0, link: wire::LinkCounts::default() })
    }
    fn introduce(&self, _: &wire::Introduction) -> Result<wire::Welcome, IntroduceError> {
        unreachable!("no test calls it")
    }
    fn complete(&self, _: u64, _: &wire::Completion, _: &[u8]) -> Result<(), SystemException> {
        unreachable!("no test calls it")
    }
    fn replicate(&self, _: u64, _: &wire::Output, _: &[u8]) -> Result<(), SystemException> {
        unreachable!("no test calls it")
    }
    fn leave(&self, _: u64) -> Result<(), SystemException> {
        unreachable!("no test calls it")
    }

    fn sample(&self, _: u64, _: &[wire::GroupSample]) -> Result<(), SystemException> {
        unreachable!("no test calls it")
    }

    fn update_contracts(&self, _: u64, _: &[wire::ContractUpdate]) -> Result<(), SystemException> {
        unreachable!("no test calls it")
    }

    fn retime(&self, _: u64, _: &[wire::AdaptedRate]) -> Result<(), SystemException> {
        unreachable!("no test calls it")
    }

    fn keep(&self, _: u64) -> Result<(), SystemException> {
        unreachable!("no test calls it")
    }
    fn threads_here(&self, _: u64, _: &wire::ThreadRef) -> Result<wire::ThreadStates, ThreadsHereError> {
        unreachable!("no test calls it")
    }

    fn cancel_here(&self, _: u64, _: &wire::ThreadRef) -> Result<wire::CancelledThread, CancelHereError> {
        unreachable!("no test calls it")
    }

    fn describe(&self) -> Result<String, SystemException> {
        unreachable!("no test calls it")
    }
}

/// The other node.
fn serve(at: SocketAddr, since: u64) -> Orb {
    let orb = Orb::builder().listen(&format!("iiop://{at}")).unwrap().build().unwrap();
    let adapter = orb.adapter("node").persistent().build().unwrap();
    let object = adapter.activate_as::<dyn Peer>("peer", Arc::new(OtherClock { since })).unwrap();
    orb.publish("peer", &object).unwrap();
    orb.ready();
    orb
}

/// The other node on loopback, where it listens, and since when its clock drifts.
fn on_loopback() -> (Orb, SocketAddr, u64) {
    let (at, since) = (unused_address().into(), now());
    (serve(at, since), at, since)
}

/// Compares clocks `times` times. Each estimate must be within its stated error of the true offset. That error must be
/// at most half of the best of the last round trips plus the drift since.
fn compare(at: SocketAddr, since: u64, times: usize) {
    let (orb, clock) = (Orb::client().unwrap(), OtherClock { since });
    let peer = orb.resolve_unchecked::<dyn Peer>(&format!("corbaloc:iiop:1.2@{at}/peer")).unwrap();
    let mine = wire::Progress { gathering: true, impatient: false, run: [0; 16], origin: 0 };
    let mut offset = ClockOffset::new();
    // Of each: when the answer came, and half of the round trip.
    let mut halves: Vec<(u64, u64)> = Vec::new();
    let (mut worst, mut widest) = (0, 0);
    for number in 0..times {
        let sent = now();
        let answer = peer.exchange(1, &mine).unwrap();
        let back = now();
        let trip = RoundTrip { sent, received: answer.received, answered: answer.sent, back };
        assert_eq!(offset.measure(trip), Ok(false), "number {number}");
        halves.push((sent, ((back - sent) - (answer.sent - answer.received)).div_ceil(2)));
        let at = now();
        let truth = i128::from(clock.at(at)) - i128::from(at);
        let known = offset.estimate(at).unwrap();
        let errs = (i128::from(known.offset) - truth).unsigned_abs();
        // Both readings are rounded to a ns.
        assert!(errs <= u128::from(known.error) + 2, "number {number}: {known:?}, in truth {truth}");
        let kept = halves.iter().rev().take(WINDOW);
        let bound = kept.map(|(sent, half)| half + (at - sent) * offset.drift() / 1_000_000_000 + 1).min();
        assert!(known.error <= bound.unwrap(), "number {number}: {known:?}, {bound:?}");
        worst = worst.max(errs);
        widest = widest.max(known.error);
    }
    let known = offset.estimate(now()).unwrap();
    println!(
        "{times} comparisons: the largest error {worst} ns, the largest stated {widest} ns; at the end {} ns, drift at most \
         {} ns/s",
        known.error,
        offset.drift()
    );
}

fn over_loopback(times: usize) {
    let (server, at, since) = on_loopback();
    compare(at, since, times);
    server.shutdown();
}

/// Through a relay that delays each direction by 0.5 to 1.5 ms: between two network namespaces as root, otherwise on
/// loopback.
fn over_relay(times: usize) {
    let Some(namespaces) = Namespaces::new() else {
        missing("root and ip(8), to make network namespaces: loopback instead");
        let (server, at, since) = on_loopback();
        compare(relay(at), since, times);
        return server.shutdown();
    };
    let (at, since) = ("198.18.0.2:7447", now());
    let mut server = namespaces.start(1, "serves_in_a_namespace", &format!("{at} {since} 0"));
    let mut server = Ended(server.stdout(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.ends_with("serves")));
    let mut client = namespaces.start(0, "compares_in_a_namespace", &format!("{at} {since} {times}"));
    assert!(client.status().unwrap().success());
}

/// The task of a test of this binary that runs in a namespace.
const TASK: &str = "HYOSHI_CLOCKS_TASK";

fn task() -> Option<(SocketAddr, u64, usize)> {
    let task = std::env::var(TASK).ok()?;
    let words: Vec<&str> = task.split(' ').collect();
    Some((words[0].parse().unwrap(), words[1].parse().unwrap(), words[2].parse().unwrap()))
}

/// For [`over_relay`].
#[test]
#[ignore = "another test starts it"]
fn serves_in_a_namespace() {
    let Some((at, since, _)) = task() else { return };
    let _orb = serve(at, since);
    println!("serves");
    // Until it is killed, or times out.
    thread::sleep(Duration::from_secs(60));
}

/// For [`over_relay`].
#[test]
#[ignore = "another test starts it"]
fn compares_in_a_namespace() {
    let Some((at, since, times)) = task() else { return };
    compare(relay(at), since, times);
}

/// Two network namespaces with a link between them: 198.18.0.1 and 198.18.0.2 (RFC 2544). The test removes them.
struct Namespaces([String; 2]);

impl Namespaces {
    /// `None` without the privilege.
    fn new() -> Option<Namespaces> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let names = ["a", "b"].map(|side| format!("hyoshi-{}-{number}{side}", std::process::id()));
        let made = Namespaces(names);
        let [one, other] = &made.0;
        let all = [
            format!("netns add {one}"),
            format!("netns add {other}"),
            format!("-n {one} link add link0 type veth peer name link0 netns {other}"),
            format!("-n {one} addr add 198.18.0.1/30 dev link0"),
            format!("-n {other} addr add 198.18.0.2/30 dev link0"),
            format!("-n {one} link set link0 up"),
            format!("-n {other} link set link0 up"),
            format!("-n {one} link set lo up"),
        ];
        all.iter().all(|words| ip(words)).then_some(made)
    }

    /// A test of this binary, not yet started, in one of the two.
    fn start(&self, at: usize, test: &str, task: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0[at]]).arg(std::env::current_exe().unwrap());
        command.args([&format!("clocks::{test}"), "--exact", "--ignored", "--nocapture"]).env(TASK, task);
        command
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.0 {
            ip(&format!("netns del {name}"));
        }
    }
}

fn ip(words: &str) -> bool {
    let run = Command::new("ip").args(words.split(' ')).stderr(Stdio::null()).status();
    run.is_ok_and(|status| status.success())
}

/// A process that is killed with its test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Relays one connection to `to`. Where it listens.
fn relay(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (here, _) = listener.accept().unwrap();
        let there = TcpStream::connect(to).unwrap();
        for (seed, from, to) in [(1, &here, &there), (2, &there, &here)] {
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            to.set_nodelay(true).unwrap();
            let (queue, due) = channel();
            thread::spawn(move || read_into(from, seed, &queue));
            thread::spawn(move || write_from(to, &due));
        }
    });
    at
}

/// Reads until the end. Each piece is due after a delay, and not before the previous one.
fn read_into(mut from: TcpStream, mut seed: u64, queue: &Sender<(Instant, Vec<u8>)>) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        // A linear congruential generator (Knuth): its upper bits are good enough for delays.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let due = Instant::now() + Duration::from_nanos(500_000 + (seed >> 33) % 1_000_001);
        if queue.send((due, buffer[..length].to_vec())).is_err() {
            return;
        }
    }
}

fn write_from(mut to: TcpStream, due: &Receiver<(Instant, Vec<u8>)>) {
    while let Ok((due, octets)) = due.recv() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&octets).is_err() {
            return;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

#[test]
fn offsets_are_within_their_stated_errors_on_loopback() {
    over_loopback(100);
}

#[test]
fn offsets_are_within_their_stated_errors_behind_a_relay_with_uneven_delays() {
    over_relay(100);
}

/// `.ci/long`.
#[test]
#[ignore = "takes seconds"]
fn a_thousand_offsets_are_within_their_stated_errors_on_loopback() {
    over_loopback(1_000);
}

/// `.ci/long`.
#[test]
#[ignore = "takes seconds"]
fn a_thousand_offsets_are_within_their_stated_errors_behind_a_relay_with_uneven_delays() {
    over_relay(1_000);
}
