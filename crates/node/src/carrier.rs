//! Transports of completions between nodes: IIOP, or a [`CompletionCarrier`] that the caller of
//! [`NodePeers::start`](crate::NodePeers::start) provides. Introductions, clocks and sessions always use IIOP.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use hyoshi_model::{Dscp, HostId, OperationId, Span};
use hyoshi_runtime::{IncomingCompletions, Rejected};
use hyoshi_trace::Signal;

use crate::idl::hyoshi_node as wire;
use crate::peer::{Inbox, OtherHost};
use crate::shared::NodeState;

/// Another transport of completions than IIOP. Dropping it closes its connections.
pub trait CompletionCarrier: fmt::Debug + Send + Sync {
    /// Listens for completions to this host, and begins to connect to the other hosts. Its threads run above the lanes
    /// and pass arriving completions to `arriving`.
    ///
    /// # Errors
    ///
    /// If it cannot listen.
    fn open(&mut self, arriving: ArrivingCompletions, cpu: Option<u32>) -> Result<(), CarrierError>;

    /// The sender to a host; `None` if that host receives over IIOP.
    fn sender(&mut self, to: HostId) -> Option<Box<dyn CompletionSender>>;
}

/// Sends completions to one other host. Its thread is above the lanes.
pub trait CompletionSender: Send {
    /// Sends or queues a completion in a session, without waiting for a peer that does not read. False if the
    /// completion was dropped.
    fn send(&mut self, session: u64, completion: &Signal, payload: &[u8]) -> bool;

    /// Where a contract sets the class of its completions that are not critical.
    fn class(&self) -> CarriedClass;
}

/// The class of a sender's completions that are not critical. Contracts set it while the sender sends. Clones share it.
#[derive(Clone, Debug)]
pub struct CarriedClass(Arc<AtomicU8>);

impl CarriedClass {
    /// Above all DSCPs.
    const OWN: u8 = u8::MAX;

    /// `None`: their own one.
    pub fn set(&self, dscp: Option<Dscp>) {
        self.0.store(dscp.map_or(CarriedClass::OWN, Dscp::number), Ordering::Relaxed);
    }

    /// `None`: their own one.
    pub fn get(&self) -> Option<Dscp> {
        Dscp::new(self.0.load(Ordering::Relaxed))
    }
}

impl Default for CarriedClass {
    fn default() -> Self {
        CarriedClass(Arc::new(AtomicU8::new(CarriedClass::OWN)))
    }
}

/// The reason why a carrier cannot start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarrierError {
    /// What failed, and where.
    pub message: String,
    /// The remedy.
    pub remedy: String,
}

/// Receives the completions that arrive over a carrier. It checks them as those over IIOP.
#[derive(Clone, Debug)]
pub struct ArrivingCompletions(Arc<NodeState>);

impl ArrivingCompletions {
    pub(crate) fn new(shared: Arc<NodeState>) -> Self {
        ArrivingCompletions(shared)
    }

    /// Passes a completion to its dispatcher, or counts it as rejected. `sequence` is the number of the completion in
    /// the session, from 1. Does not wait: the calling thread may read for several peers, and a pause would delay them.
    pub fn arrive(&self, from: HostId, session: u64, sequence: u64, what: &wire::Completion, payload: &[u8]) {
        let Some(peer) = self.0.of_session(session).filter(|peer| peer.host == from) else { return self.refuse() };
        let now = self.0.now();
        peer.inbox.lock().carry(now, sequence);
        receive(peer, now, what, payload);
    }

    /// Counts a message that is not a completion of a peer.
    pub fn refuse(&self) {
        self.0.strangers.count();
    }
}

/// Passes a peer's completion to its dispatcher, or counts it as rejected. False if the peer exceeds its rate.
pub(crate) fn receive(peer: &OtherHost, now: u64, what: &wire::Completion, payload: &[u8]) -> bool {
    let signal = Signal {
        from: OperationId(what.source),
        to: OperationId(what.target),
        position: what.position,
        number: what.number,
        origin: peer.to_own(what.origin),
        period: Span::from_nanos(what.period),
        due: peer.to_own(what.sent),
        ticket: None,
    };
    accept(peer, now, &peer.received, |arrivals, arrived| {
        *arrived += 1;
        let pushed = arrivals.push(signal, payload);
        arrivals.deliver();
        if pushed == Err(Rejected::TooSoon) {
            peer.too_fast.fetch_add(1, Ordering::Relaxed);
        }
        pushed.is_ok()
    })
}

/// Passes the queue of a peer and the number of completions in its session to `accept`, and counts the message as
/// accepted or rejected. False if the peer exceeds its rate.
pub(crate) fn accept(
    peer: &OtherHost,
    now: u64,
    accepted: &AtomicU64,
    accept: impl FnOnce(&mut IncomingCompletions, &mut u64) -> bool,
) -> bool {
    let mut inbox = peer.inbox.lock();
    if !inbox.allowance.take(now) {
        drop(inbox);
        peer.rejected.fetch_add(1, Ordering::Relaxed);
        return false;
    }
    let Inbox { arrivals, arrived, .. } = &mut *inbox;
    let is_accepted = arrivals.as_mut().is_some_and(|arrivals| accept(arrivals, arrived));
    let counted = if is_accepted { accepted } else { &peer.rejected };
    counted.fetch_add(1, Ordering::Relaxed);
    true
}

/// A completion as nodes exchange it.
pub fn completion(signal: &Signal) -> wire::Completion {
    wire::Completion {
        source: signal.from.0,
        target: signal.to.0,
        position: signal.position,
        number: signal.number,
        origin: signal.origin.as_nanos(),
        period: signal.period.as_nanos(),
        sent: signal.due.as_nanos(),
    }
}
