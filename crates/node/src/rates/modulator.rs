//! The feedback lane to a client: a thread above the lanes that sends its latest rate to its modulator.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hyoshi_model::Span;
use hyoshi_orb::{Ior, IorEndpoint, Reference, SyncScope, Timeouts, Transport, rt};
use hyoshi_os::priority::FEEDBACK;
use hyoshi_os::{Clock, Dscp, MonotonicClock, PiMutex, Spawn, SpawnedThread, ThreadPolicy, Wake};

use super::{RateRefusal, hertz_of};
use crate::idl::hyoshi_rates::{Modulator, ModulatorStub};

/// The time limit to connect to a modulator, and of a message.
const CALL: Span = Span::from_secs(1);
/// The time after a failed message.
const PAUSE: Span = Span::from_millis(500);
/// After this number of failed messages in sequence, the client counts as vanished.
const FAILURES: u64 = 3;

/// The messages to one client. Only the latest rate is kept, so nothing grows, and no other client waits.
pub(super) struct FeedbackLane {
    /// The period to send, in ns.
    latest: AtomicU64,
    /// The period that was sent last, in ns; 0 before the first.
    sent: AtomicU64,
    over: AtomicBool,
    /// Failed messages in sequence.
    failures: AtomicU64,
    wake: Wake,
    thread: PiMutex<Option<SpawnedThread<()>>>,
}

impl FeedbackLane {
    /// Starts the thread. It sends the latest rate after each change, and every `keep` as a check.
    pub fn start(to: &Reference<dyn Modulator>, keep: Span) -> std::io::Result<Arc<FeedbackLane>> {
        let policies = rt::ClientPolicies {
            private_connection: true,
            protocols: vec![Transport::Tls, Transport::Tcp],
            dscp: Some(Dscp::EF),
            // A client that does not read must not delay the thread.
            oneway_overflow: rt::OnewayOverflow::Transient,
            ..rt::ClientPolicies::default()
        };
        let stub: ModulatorStub = to.client_policies(&policies);
        let stub = stub.as_ref().oneways(SyncScope::Transport);
        let stub = stub.as_ref().timeouts(Timeouts { connect: CALL, round_trip: Some(CALL), reply: None });
        let lane = Arc::new(FeedbackLane {
            latest: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            over: AtomicBool::new(false),
            failures: AtomicU64::new(0),
            wake: Wake::new(),
            thread: PiMutex::default(),
        });
        let own = lane.clone();
        let spawn = Spawn::new("rates-to-client").policy(ThreadPolicy::Fifo(FEEDBACK));
        let thread = spawn.spawn(move || own.send_all(&stub, keep))?;
        *lane.thread.lock() = Some(thread);
        Ok(lane)
    }

    /// The client's period from now on.
    pub fn offer(&self, period: Span) {
        if self.latest.swap(period.as_nanos(), Ordering::AcqRel) != period.as_nanos() {
            self.wake.post();
        }
    }

    /// The period that was sent last, if there was one.
    pub fn sent(&self) -> Option<Span> {
        let sent = self.sent.load(Ordering::Acquire);
        (sent > 0).then(|| Span::from_nanos(sent))
    }

    /// Ends the thread.
    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.wake.post();
    }

    /// Waits for the end of the thread, at most for the time limit of a message.
    pub fn join(&self) {
        let thread = self.thread.lock().take();
        // It does nothing that could panic.
        drop(thread.map(SpawnedThread::join));
    }

    /// Whether the modulator no longer accepts messages.
    pub fn has_failed(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= FAILURES
    }

    fn send_all(&self, to: &ModulatorStub, keep: Span) {
        use crate::idl::hyoshi_rates::Modulator as _;
        let clock = MonotonicClock::from_origin(0);
        let mut pause = keep;
        loop {
            self.wake.wait_until(&clock, clock.now() + pause);
            if self.over.load(Ordering::Acquire) || self.has_failed() {
                return;
            }
            let period = Span::from_nanos(self.latest.load(Ordering::Acquire));
            if period.is_zero() {
                continue;
            }
            if to.rate(hertz_of(period)).is_ok() {
                self.failures.store(0, Ordering::Relaxed);
                self.sent.store(period.as_nanos(), Ordering::Release);
                pause = keep;
            } else {
                self.failures.fetch_add(1, Ordering::Relaxed);
                pause = PAUSE;
            }
        }
    }
}

/// Whether this node may call a modulator of a client at `caller`: all of its endpoints must have that address.
/// Otherwise a client could make the node connect to any machine. If a client joins over TLS, its modulator must use
/// TLS, too.
pub(super) fn check(modulator: &Ior, caller: Option<IpAddr>, is_secure: bool) -> Result<(), RateRefusal> {
    let Some(caller) = caller.map(|caller| caller.to_canonical()) else {
        return Err(RateRefusal::new(
            "a client over a Unix socket cannot have a modulator",
            "pass a nil modulator, and call `rate` in each sampling period",
        ));
    };
    let remedy =
        || format!("let the modulator's ORB listen at {caller} and publish that address, or pass a nil modulator");
    let profiles = modulator.iiop().collect::<Result<Vec<_>, _>>();
    let endpoints: Vec<IorEndpoint> = profiles.iter().flatten().flat_map(|profile| profile.endpoints()).collect();
    if profiles.is_err() || endpoints.is_empty() {
        return Err(RateRefusal::new("the modulator's reference has no usable endpoint", &remedy()));
    }
    for endpoint in &endpoints {
        let host = match endpoint {
            IorEndpoint::Tcp { host, .. } | IorEndpoint::Tls { host, .. } => host,
            IorEndpoint::Unix { .. } => {
                return Err(RateRefusal::new("the modulator listens at a Unix socket", &remedy()));
            }
        };
        let is_own = host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical() == caller);
        if !is_own {
            let shown: String = host.chars().take(64).collect();
            let why = format!("the modulator is at `{}`, but the client calls from {caller}", shown.escape_debug());
            return Err(RateRefusal::new(&why, &remedy()));
        }
    }
    if is_secure && !endpoints.iter().any(|endpoint| matches!(endpoint, IorEndpoint::Tls { .. })) {
        let remedy = "let the modulator's ORB listen over TLS, or pass a nil modulator";
        return Err(RateRefusal::new("the client uses TLS, but its modulator has no TLS endpoint", remedy));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hyoshi_orb::Orb;

    use super::*;

    fn reference(address: &str) -> Ior {
        let orb = Orb::client().unwrap();
        let stub = orb.resolve_unchecked::<dyn Modulator>(&format!("corbaloc:iiop:1.2@{address}/m")).unwrap();
        stub.as_ref().ior().clone()
    }

    #[test]
    fn only_a_modulator_at_the_address_of_its_client_is_called() {
        let caller = Some("10.0.0.7".parse().unwrap());
        assert!(check(&reference("10.0.0.7:7000"), caller, false).is_ok());
        assert!(check(&reference("10.0.0.7:7000"), Some("::ffff:10.0.0.7".parse().unwrap()), false).is_ok());
        for other in ["10.0.0.8:7000", "localhost:7000", "[::1]:7000"] {
            let refusal = check(&reference(other), caller, false).unwrap_err();
            assert!(refusal.why.contains("but the client calls from 10.0.0.7"), "{}", refusal.why);
            assert!(refusal.remedy.contains("listen at 10.0.0.7"), "{}", refusal.remedy);
        }
        assert!(check(&Ior::default(), caller, false).unwrap_err().why.contains("no usable endpoint"));
        assert!(check(&reference("10.0.0.7:7000"), None, false).unwrap_err().why.contains("Unix socket"));
        let plain = check(&reference("10.0.0.7:7000"), caller, true).unwrap_err();
        assert_eq!(plain.why, "the client uses TLS, but its modulator has no TLS endpoint");
    }
}
