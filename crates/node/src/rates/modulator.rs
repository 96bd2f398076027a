//! The feedback lane to a client: sends its latest rate to its modulator.
//!
//! ```text
//!             offer: it cannot be sent at once           three failures in sequence
//!   Open ─────────────────────────────────► Connecting ──────────────────────────► Failed
//!    ▲                                           │
//!    └───────────────────────────────────────────┘ a thread has connected and sent it
//! ```
//!
//! One thread, above the lanes, sends the messages of all clients. So a message costs it one system call and no wake-up.
//! It never waits: a client that cannot get its message has a thread of its own meanwhile.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyoshi_model::Span;
use hyoshi_orb::{Ior, IorEndpoint, Reference, SyncScope, Timeouts, Transport, rt};
use hyoshi_os::priority::FEEDBACK;
use hyoshi_os::{Dscp, PiMutex, Spawn, SpawnedThread, ThreadPolicy};

use super::registered::now;
use super::{RateRefusal, hertz_of};
use crate::idl::hyoshi_rates::{Modulator, ModulatorStub};

/// The time limit to connect to a modulator and send a message.
const CALL: Span = Span::from_secs(1);
/// The time after a failed message.
const PAUSE: Span = Span::from_millis(500);
/// After this number of failed messages in sequence, the client counts as vanished.
const FAILURES: u64 = 3;

/// The messages to one client. Only the latest rate is kept, so nothing grows, and no other client waits.
pub(super) struct FeedbackLane {
    /// Sends over an open connection only.
    at_once: ModulatorStub,
    /// Connects before.
    patient: ModulatorStub,
    /// The longest time between messages.
    keep: Span,
    /// The period of the last message or attempt, in ns; 0 before the first.
    tried: AtomicU64,
    /// The period that was sent last, in ns; 0 before the first.
    sent: AtomicU64,
    /// When the next message is due even if the period is the same, in ns.
    due: AtomicU64,
    /// Failed messages in sequence.
    failures: AtomicU64,
    /// Connects and sends.
    thread: PiMutex<Option<SpawnedThread<()>>>,
}

impl FeedbackLane {
    /// It sends the latest rate after each change, and every `keep` as a check.
    pub fn new(to: &Reference<dyn Modulator>, keep: Span) -> Arc<FeedbackLane> {
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
        let within = |time| stub.as_ref().timeouts(Timeouts { connect: time, round_trip: Some(time), reply: None });
        Arc::new(FeedbackLane {
            at_once: within(Span::ZERO),
            patient: within(CALL),
            keep,
            tried: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            due: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            thread: PiMutex::default(),
        })
    }

    /// Sends the client's present period if it is new, or if a message is due before `next`, in ns: the next call. Does
    /// not wait.
    pub fn offer(self: &Arc<Self>, period: Span, next: u64) {
        let mut thread = self.thread.lock();
        if thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        let is_new = self.tried.swap(period.as_nanos(), Ordering::Relaxed) != period.as_nanos();
        let is_due = self.due.load(Ordering::Relaxed) < next;
        if (is_new || is_due) && !self.send(&self.at_once, period) {
            let own = self.clone();
            let connect = move || {
                if !own.send(&own.patient, period) {
                    own.fail();
                }
            };
            let spawn = Spawn::new("rates-to-client").policy(ThreadPolicy::Fifo(FEEDBACK));
            *thread = spawn.spawn(connect).inspect_err(|_| self.fail()).ok();
        }
    }

    fn send(&self, to: &ModulatorStub, period: Span) -> bool {
        use crate::idl::hyoshi_rates::Modulator as _;
        let is_sent = to.rate(hertz_of(period)).is_ok();
        if is_sent {
            self.failures.store(0, Ordering::Relaxed);
            self.sent.store(period.as_nanos(), Ordering::Release);
            self.due.store(now() + self.keep.as_nanos(), Ordering::Relaxed);
        }
        is_sent
    }

    fn fail(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.due.store(now() + PAUSE.as_nanos(), Ordering::Relaxed);
    }

    /// The period that was sent last, if there was one.
    pub fn sent(&self) -> Option<Span> {
        let sent = self.sent.load(Ordering::Acquire);
        (sent > 0).then(|| Span::from_nanos(sent))
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
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use hyoshi_orb::{Orb, SystemException};

    use super::*;

    fn modulator(orb: &Orb, address: &str) -> ModulatorStub {
        orb.resolve_unchecked::<dyn Modulator>(&format!("corbaloc:iiop:1.2@{address}/m")).unwrap()
    }

    fn reference(address: &str) -> Ior {
        modulator(&Orb::client().unwrap(), address).as_ref().ior().clone()
    }

    #[derive(Default)]
    struct Count(AtomicU64);

    impl Modulator for Count {
        fn rate(&self, _: f64) -> Result<(), SystemException> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    fn until(what: &str, mut condition: impl FnMut() -> bool) {
        for _ in 0..40_000 {
            if condition() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("{what}");
    }

    /// A client whose modulator counts.
    fn client() -> (Orb, Arc<Count>, String) {
        let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
        orb.ready();
        let count = Arc::new(Count::default());
        let stub: ModulatorStub = orb.adapter("m").build().unwrap().activate::<dyn Modulator>(count.clone()).unwrap();
        (orb, count, stub.as_ref().ior().to_string())
    }

    #[test]
    fn only_new_rates_and_checks_are_sent() {
        let (_client, count, ior) = client();
        let orb = Orb::client().unwrap();
        let to = orb.resolve_unchecked::<dyn Modulator>(&ior).unwrap();
        let lane = FeedbackLane::new(to.as_ref(), Span::from_secs(100));
        let count = || count.0.load(Ordering::Relaxed);
        assert_eq!(lane.sent(), None);
        lane.offer(Span::from_millis(10), now());
        until("a thread connects", || lane.sent().is_some());
        lane.join();
        for _ in 0..3 {
            lane.offer(Span::from_millis(10), now());
        }
        lane.offer(Span::from_millis(20), now());
        assert_eq!(lane.sent(), Some(Span::from_millis(20)), "over the open connection, at once");
        lane.offer(Span::from_millis(20), now() + Span::from_secs(200).as_nanos());
        until("two new rates and a check arrive", || count() >= 3);
        assert_eq!(count(), 3);
        assert!(!lane.has_failed());
    }

    #[test]
    fn a_client_that_accepts_no_connection_delays_no_other_and_fails() {
        let (_client, _, ior) = client();
        let full = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = full.local_addr().unwrap();
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200));
        let _connected: Vec<_> = std::iter::from_fn(|| connect().ok()).collect();
        let orb = Orb::client().unwrap();
        let other = orb.resolve_unchecked::<dyn Modulator>(&ior).unwrap();
        let [bad, good] = [&modulator(&orb, &address.to_string()), &other]
            .map(|to| FeedbackLane::new(to.as_ref(), Span::from_secs(1)));
        good.offer(Span::from_millis(10), now());
        until("a thread connects", || good.sent().is_some());
        good.join();
        let mut offers = 0;
        until("three messages fail", || {
            offers += 1;
            let period = Span::from_millis(10 + offers);
            bad.offer(period, now());
            good.offer(period, now());
            assert_eq!(good.sent(), Some(period));
            bad.has_failed()
        });
        bad.join();
        assert!(offers > 3 * FAILURES && bad.sent().is_none(), "{offers}");
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
