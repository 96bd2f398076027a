//! Machines that were rebooted: CLOCK_MONOTONIC begins with the machine. The other host is a servant with a clock of its
//! own.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hyoshi_model::{Endpoint, Instant, Span, System};
use hyoshi_node::idl::hyoshi_node::{
    self as wire, CancelHereError, ExchangeError, IntroduceError, Peer, Reason, Refused, ThreadsHereError,
};
use hyoshi_node::{PeerEvent, corbaloc};
use hyoshi_orb::{Orb, SystemException};
use hyoshi_os::{Clock, MonotonicClock};
use hyoshi_trace::{DispatchDecision, Input, TraceEvent as Traced};

use crate::common::{DRONE, Host, STATION, digest, system, text, until, unused_address};

const HOUR: i64 = 3_600_000_000_000;
const RUN: [u8; 16] = [7; 16];
/// The number of the other machine's clock.
const CLOCK: u64 = 77;

/// The own clock.
fn now() -> i64 {
    MonotonicClock::from_origin(0).now().as_nanos() as i64
}

/// A node of a host with another clock. It joins the caller's run, or has started a run of its own.
pub struct Other {
    host: &'static str,
    digest: [u8; 32],
    /// Its clock minus the own one.
    ahead: AtomicI64,
    incarnation: AtomicU64,
    /// Instant 0 of its own run on its clock.
    begun: Option<i64>,
    /// The rates that it received.
    pub rates: Mutex<Vec<wire::AdaptedRate>>,
    /// The samples of groups that it received.
    pub samples: Mutex<Vec<wire::GroupSample>>,
}

impl Other {
    pub fn clock(&self) -> u64 {
        (now() + self.ahead.load(Ordering::SeqCst)) as u64
    }

    pub fn introduction(&self) -> wire::Introduction {
        let incarnation = self.incarnation.load(Ordering::SeqCst);
        wire::Introduction {
            version: wire::VERSION,
            system: "uav".into(),
            host: self.host.into(),
            digest: self.digest,
            incarnation,
            clock: CLOCK,
        }
    }
}

impl Peer for Other {
    fn introduce(&self, _: &wire::Introduction) -> Result<wire::Welcome, IntroduceError> {
        Ok(wire::Welcome { who: self.introduction(), session: self.incarnation.load(Ordering::SeqCst) })
    }

    fn exchange(&self, session: u64, mine: &wire::Progress) -> Result<wire::Answer, ExchangeError> {
        if session != self.incarnation.load(Ordering::SeqCst) {
            return Err(Refused { why: Reason::NoSession, detail: String::new() }.into());
        }
        let received = self.clock();
        let (run, origin) = match self.begun {
            Some(origin) => (RUN, origin),
            None => (mine.run, mine.origin + self.ahead.load(Ordering::SeqCst)),
        };
        // A caller that still gathers has no run that it could join.
        let gathering = self.begun.is_none() && mine.gathering;
        let state = wire::Progress { gathering, impatient: false, run, origin };
        Ok(wire::Answer { state, received, sent: self.clock(), arrived: 0, link: wire::LinkCounts::default() })
    }

    fn complete(&self, _: u64, _: &wire::Completion, _: &[u8]) -> Result<(), SystemException> {
        Ok(())
    }

    fn replicate(&self, _: u64, _: &wire::Output, _: &[u8]) -> Result<(), SystemException> {
        Ok(())
    }

    fn sample(&self, _: u64, samples: &[wire::GroupSample]) -> Result<(), SystemException> {
        self.samples.lock().unwrap().extend_from_slice(samples);
        Ok(())
    }

    fn update_contracts(&self, _: u64, _: &[wire::ContractUpdate]) -> Result<(), SystemException> {
        Ok(())
    }

    fn retime(&self, _: u64, rates: &[wire::AdaptedRate]) -> Result<(), SystemException> {
        self.rates.lock().unwrap().extend_from_slice(rates);
        Ok(())
    }

    fn keep(&self, _: u64) -> Result<(), SystemException> {
        Ok(())
    }

    fn leave(&self, _: u64) -> Result<(), SystemException> {
        Ok(())
    }

    fn threads_here(&self, _: u64, _: &wire::ThreadRef) -> Result<wire::ThreadStates, ThreadsHereError> {
        Ok(Default::default())
    }

    fn cancel_here(&self, _: u64, _: &wire::ThreadRef) -> Result<wire::CancelledThread, CancelHereError> {
        Ok(Default::default())
    }

    fn describe(&self) -> Result<String, SystemException> {
        Ok(String::new())
    }
}

/// Serves it at its host's endpoint.
pub fn serve(system: &System, other: &Arc<Other>) -> Orb {
    let host = system.hosts.iter().find(|host| host.name == other.host).unwrap();
    let Endpoint::Tcp(address) = &host.endpoints[0] else { unreachable!() };
    let orb = Orb::builder().listen(&format!("iiop://{address}")).unwrap().build().unwrap();
    let adapter = orb.adapter("node").persistent().build().unwrap();
    let object = adapter.activate_as::<dyn Peer>("peer", other.clone()).unwrap();
    orb.publish("hyoshi-peer", &object).unwrap();
    orb.ready();
    orb
}

pub fn other(host: &'static str, system: &System, ahead: i64, begun: Option<i64>) -> Arc<Other> {
    let (ahead, incarnation) = (AtomicI64::new(ahead), AtomicU64::new(1));
    Arc::new(Other {
        host,
        digest: digest(system),
        ahead,
        incarnation,
        begun,
        rates: Mutex::default(),
        samples: Mutex::default(),
    })
}

fn tcp(duration: &str) -> String {
    text(&format!("tcp/{}", unused_address()), &format!("tcp/{}", unused_address()), duration)
}

#[test]
fn a_host_on_a_machine_started_after_instant_0_joins_and_starts_at_its_next_releases() {
    let text = tcp("80000h");
    let system = system(&text);
    // Instant 0 was an hour before this machine was started; the drone's clock is ten hours ahead.
    let drone = other("drone", &system, 10 * HOUR, Some(9 * HOUR));
    let orb = serve(&system, &drone);
    let mut station = Host::start(&text, STATION, Span::from_secs(20)).unwrap();
    let agreed = station.agree().unwrap();
    assert_eq!((agreed.late, agreed.run), (true, RUN));
    assert!((agreed.clock.origin() + HOUR).abs() < 50_000_000, "{}", agreed.clock.origin());
    let began = agreed.clock.now();
    let mut running = station.begin(&agreed);

    // The drone sends a completion, with times of its own clock since instant 0.
    until("the clocks are compared", || station.peers.standing()[0].compared);
    let client = Orb::client().unwrap();
    let endpoint = &system.hosts[1].endpoints[0];
    let peer = client.resolve_unchecked::<dyn Peer>(&corbaloc(endpoint, "hyoshi-peer")).unwrap();
    let session = peer.introduce(&drone.introduction()).unwrap().session;
    let sent = drone.clock() - 9 * HOUR as u64;
    let number = sent / 10_000_000;
    let what = wire::Completion { source: 0, target: 1, position: 0, number, origin: sent, period: 10_000_000, sent };
    peer.complete(session, &what, &number.to_le_bytes()).unwrap();

    let mut events = Vec::new();
    let ended = |events: &[Traced], operation: u32, count: usize| {
        let ends = |event: &&Traced| matches!(event, Traced::Decision(DispatchDecision::End(end)) if end.job.operation.0 == operation);
        events.iter().filter(ends).count() >= count
    };
    let waiting = std::time::Instant::now();
    while !ended(&events, 1, 1) || !ended(&events, 2, 5) {
        running.poll(&mut |_, _, event| events.push(event));
        assert!(waiting.elapsed().as_secs() < 60, "{events:?}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    running.stop(&mut |_, _, _| ());
    let period = 5_000_000;
    for event in &events {
        match event {
            Traced::Decision(DispatchDecision::End(end)) if end.job.operation.0 == 2 => {
                assert!(end.release.as_nanos() % period == 0 && end.release >= began, "{end:?}");
                assert_eq!(end.job.number, end.release.as_nanos() / period, "numbers count from instant 0");
            }
            Traced::Input(Input::Signal(signal)) => {
                let apart =
                    Instant::from_nanos(sent).since(signal.origin).max(signal.origin.since(Instant::from_nanos(sent)));
                assert!(apart < Span::from_millis(50), "{signal:?}");
            }
            _ => {}
        }
    }
    orb.shutdown();
}

#[test]
fn a_rebooted_host_is_measured_anew_and_no_jump_is_reported() {
    let text = tcp("60s");
    let system = system(&text);
    let station = other("station", &system, 10 * HOUR, None);
    let orb = serve(&system, &station);
    let mut drone = Host::start(&text, DRONE, Span::ZERO).unwrap();
    let agreed = drone.agree().unwrap();
    let running = drone.begin(&agreed);
    let compared = || drone.peers.standing().remove(0);
    until("the clocks are compared", || compared().state == "joined" && compared().compared);
    // Times of its requests are converted by that.
    let clocks = drone.peers.peer_clocks();
    let offset = clocks.offset(CLOCK).unwrap();
    assert!(offset.offset.abs_diff(10 * HOUR) <= offset.error, "{offset:?}");
    assert_eq!(clocks.offset(CLOCK + 1), None);
    // It reboots, and its clock is behind now.
    station.ahead.store(-now() / 2, Ordering::SeqCst);
    station.incarnation.store(2, Ordering::SeqCst);
    until("it has returned", || compared().joined == 2 && compared().compared);
    let standing = compared();
    assert!(standing.offset.unsigned_abs() <= standing.error, "both count since the same instant 0: {standing:?}");
    let events = drone.peers.take_events();
    let jumps = events.iter().filter(|event| matches!(event, PeerEvent::ClockJumped { .. }));
    assert_eq!(jumps.count(), 0, "{events:?}");
    let returned = PeerEvent::Joined { host: "station".into(), before: 1 };
    assert!(events.contains(&returned), "{events:?}");
    drop(running);
    orb.shutdown();
}
