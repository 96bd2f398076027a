//! Requests in the program's order: the reading thread passes each request to the order and continues reading.
//!
//! ```text
//!            read, bound to the order            arrived           run, refuse, drop
//!   socket ──────────────────────────► a place ───────────► Order ────────────────────► reply, the place is free
//!                                       │ none is free                                      │
//!                                       └──► the connection waits, and is not read ◄────────┘ the one that waits longest
//! ```
//!
//! The places are fixed in number. Their memory stays: a request of fixed size allocates nothing. While several clients
//! are connected, each has at most as many places as remain free ([`ClientShares`]).

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use hyoshi_os::{Credentials, PiMutex};
use hyoshi_wire::giop::{
    self, CONTEXT_HYOSHI_CALL, CONTEXT_RT_PRIORITY, Context, Message, Received, ServiceContext, ServiceContexts,
};
use hyoshi_wire::ior::Ior;
use hyoshi_wire::{ByteOrder, CharSet, DecodeError, Decoder, Encoder, SystemException, SystemKind};

use super::Lane;
use super::connection::Connection;
use super::serve;
use super::shares::{ClientShares, Held};
use super::source::ClientSource;
use crate::behaviour::DelegateOutcome;
use crate::current::{self, Serving};
use crate::rt::threads::{self, QueuedPart};
use crate::rt::{OperationCall, RequestTiming};
use crate::shared::Shared;
use crate::{minor, rt};

/// Messages larger than this do not stay allocated.
const KEEP: usize = 256 << 10;

/// Connections that are read again at once after they waited. Later ticks admit further ones.
const ADMITTED: usize = 64;

/// Decides when and on which thread requests run; see [`OrbBuilder::order`](crate::OrbBuilder::order).
pub trait Order: Send + Sync {
    /// A request to an object that was activated with this binding
    /// ([`Adapter::activate_ordered`](crate::Adapter::activate_ordered)). Called by the reading thread, which reads no
    /// other request meanwhile: this must not wait.
    fn arrived(&self, binding: u32, request: OrderedRequest);

    /// Places beyond those of [`OrbBuilder::order`](crate::OrbBuilder::order) for requests that carry a call of an
    /// operation of a file ([`OrderedRequest::operation_call`]). Other requests never take them. Default 0.
    fn call_places(&self) -> usize {
        0
    }
}

impl<T: Order + ?Sized> Order for Arc<T> {
    fn arrived(&self, binding: u32, request: OrderedRequest) {
        (**self).arrived(binding, request);
    }

    fn call_places(&self) -> usize {
        (**self).call_places()
    }
}

/// A request that was read and does not run yet. Dropping it replies TRANSIENT (minor code
/// [`NOT_RUN`](crate::minor::NOT_RUN)).
pub struct OrderedRequest {
    lane: Arc<Lane>,
    connection: Arc<Connection>,
    /// None once it is answered.
    place: Option<Box<RequestSlot>>,
    /// The distributable thread that it brings.
    thread: Option<QueuedPart>,
}

/// The client of a request, also after the request was answered.
#[derive(Clone)]
pub struct RequestClient(Arc<Connection>);

impl RequestClient {
    /// Its user and process, as the kernel reports them for a Unix socket.
    pub fn credentials(&self) -> Option<Credentials> {
        self.0.client()
    }

    /// Its certificate (X.509, DER), signed by an authority that the server trusts.
    pub fn certificate(&self) -> Option<Arc<[u8]>> {
        self.0.socket.link.certificate().cloned()
    }

    /// Its address; none over a Unix socket.
    pub fn address(&self) -> Option<IpAddr> {
        Some(self.0.socket.link.addresses().0?.ip())
    }

    /// The address of this side of its connection; none over a Unix socket.
    pub fn reached(&self) -> Option<SocketAddr> {
        self.0.socket.link.addresses().1
    }

    /// Whether its connection uses TLS.
    pub fn is_secure(&self) -> bool {
        self.0.socket.link.is_secure()
    }
}

impl fmt::Debug for RequestClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestClient").field("address", &self.address()).finish_non_exhaustive()
    }
}

/// Room for a request and its reply.
#[derive(Debug)]
struct RequestSlot {
    message: Option<giop::Kept>,
    to: Encoder,
    is_call: bool,
}

/// An order, and the places of a lane.
pub(super) struct Ordered {
    order: Arc<dyn Order>,
    places: PiMutex<RequestSlots>,
    /// Requests that were handed over and are not answered.
    taken: AtomicUsize,
}

#[derive(Debug)]
struct RequestSlots {
    #[expect(clippy::vec_box, reason = "a request has its place as long as it is held, and is moved about")]
    free: Vec<Box<RequestSlot>>,
    /// How many of all are for calls of operations of a file.
    for_calls: usize,
    /// How many calls have one.
    calls: usize,
    /// Octets of the other requests that have one.
    octets: usize,
    /// What each client has of them.
    shares: ClientShares,
    /// Connections that wait for one, the longest first.
    waiting: VecDeque<WaitingConnection>,
}

#[derive(Clone, Debug)]
struct WaitingConnection {
    /// Gone once it is closed.
    connection: Weak<Connection>,
    source: Option<ClientSource>,
    is_call: bool,
}

/// The result of passing on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handed {
    /// The order has it.
    Over,
    /// It is not bound to an order: the reading thread runs it.
    Unbound,
    /// There is no room: see [`Lane::wait_for_place`].
    Full,
}

impl Ordered {
    pub(super) fn new(order: Arc<dyn Order>, places: usize) -> Self {
        let place = || Box::new(RequestSlot { message: None, to: Encoder::new(ByteOrder::NATIVE), is_call: false });
        let for_calls = order.call_places();
        let all = places.max(1).saturating_add(for_calls);
        let free = (0..all).map(|_| place()).collect();
        let shares = ClientShares::new(all);
        let places = RequestSlots { free, for_calls, calls: 0, octets: 0, shares, waiting: VecDeque::new() };
        Ordered { order, places: PiMutex::new(places), taken: AtomicUsize::new(0) }
    }

    /// How many requests were handed over and are not answered.
    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Acquire)
    }
}

impl RequestSlots {
    /// A connection waits, of so many that are open.
    fn wait(&mut self, connection: &Arc<Connection>, open: usize) {
        // In proportion to the open connections, however many were closed.
        if self.waiting.len() > 2 * open + 64 {
            self.waiting.retain(|waiting| waiting.connection.strong_count() > 0);
        }
        let is_call = connection.waits_with_call.load(Ordering::Relaxed);
        let (connection, source) = (Arc::downgrade(connection), connection.source);
        self.waiting.push_back(WaitingConnection { connection, source, is_call });
    }

    /// Free ones for other requests than calls: the places of calls are besides them.
    fn for_others(&self) -> usize {
        self.free.len().saturating_sub(self.for_calls.saturating_sub(self.calls))
    }

    /// Whether there is one for the next request of this connection. A call may exceed the lane's octets.
    fn has_room(&self, lane: &Lane, connection: &Connection, is_call: bool) -> bool {
        let few = || connection.ordered.load(Ordering::Relaxed) < lane.in_flight;
        self.has_room_for(lane, connection.source, is_call, &[]) && few()
    }

    /// The same for any connection of a client, once these connections have their places.
    fn has_room_for(
        &self,
        lane: &Lane,
        client: Option<ClientSource>,
        is_call: bool,
        admitted: &[WaitingConnection],
    ) -> bool {
        if is_call {
            return self.free.len() > admitted.len();
        }
        let others = admitted.iter().filter(|one| !one.is_call);
        let requests = self.for_others().saturating_sub(others.clone().count());
        let octets = lane.most_unfinished.saturating_sub(self.octets);
        // Each admitted connection of its own has one of what its share takes, and leaves one less free.
        let own = others.filter(|one| one.source == client).count();
        let free = Held { requests: requests.saturating_sub(own), octets };
        // A buffer has shares of its own, and refuses requests beyond them.
        let is_shared = lane.table.is_shared() && lane.buffer.get().is_none();
        requests > 0 && octets > 0 && (!is_shared || self.shares.has_room(client, free, 1))
    }

    /// The one that has waited longest, of those for which there is one.
    fn next(&mut self, lane: &Lane, admitted: &[WaitingConnection]) -> Option<(Arc<Connection>, WaitingConnection)> {
        // Most that wait may be of one client.
        let mut full = None;
        loop {
            let at = self.waiting.iter().position(|WaitingConnection { connection, source, is_call }| {
                if full == Some((*source, *is_call)) {
                    return false;
                }
                if !self.has_room_for(lane, *source, *is_call, admitted) {
                    full = Some((*source, *is_call));
                    return false;
                }
                let few = |one: Arc<Connection>| one.ordered.load(Ordering::Relaxed) < lane.in_flight;
                // One that was closed is removed.
                connection.upgrade().is_none_or(few)
            })?;
            let waiting = self.waiting.remove(at)?;
            if let Some(connection) = waiting.connection.upgrade() {
                return Some((connection, waiting));
            }
        }
    }
}

impl Lane {
    /// Hands a request over, if its object is bound to the order and there is room.
    pub(super) fn hand_over(
        self: &Arc<Self>,
        orb: &Shared,
        connection: &Arc<Connection>,
        received: &Received<'_>,
        request: &mut giop::Request<'_>,
        to: &mut Encoder,
    ) -> Handed {
        let Some(ordered) = &self.ordered else { return Handed::Unbound };
        let Ok(key) = request.target.key() else { return Handed::Unbound };
        let binding = match self.buffer.get() {
            Some(_) => Some(0),
            None => orb.adapters.binding(key, request.operation),
        };
        let Some(binding) = binding else { return Handed::Unbound };
        // Now: those behind it may run first. A client that is refused gets its reply at once.
        if serve::greet(&connection.socket.terms, received, request, to).is_err() {
            return Handed::Unbound;
        }
        let octets = received.octets().len();
        let mut places = ordered.places.lock();
        let is_call = places.for_calls > 0 && request.contexts.get(CONTEXT_HYOSHI_CALL).is_some();
        let place = if places.has_room(self, connection, is_call) { places.free.pop() } else { None };
        let Some(mut place) = place else {
            connection.waits_with_call.store(is_call, Ordering::Relaxed);
            return Handed::Full;
        };
        place.is_call = is_call;
        if is_call {
            places.calls += 1;
        } else {
            places.octets += octets;
            places.shares.add(connection.source, octets);
        }
        drop(places);
        match &mut place.message {
            Some(message) => message.refill(received),
            None => place.message = Some(received.keep()),
        }
        ordered.taken.fetch_add(1, Ordering::AcqRel);
        connection.start_ordered();
        let thread = threads::queue(request, connection.clone());
        let (lane, connection, place) = (self.clone(), connection.clone(), Some(place));
        let mut request = OrderedRequest { lane, connection, place, thread: None };
        match thread {
            Ok(thread) => request.thread = thread,
            Err(exception) => {
                request.refuse(exception);
                return Handed::Over;
            }
        }
        // If it panics, the request is dropped.
        let _ = serve::guarded(|| ordered.order.arrived(binding, request));
        Handed::Over
    }

    /// A connection that the calling thread has released is read again once there is a place for its next request.
    pub(super) fn wait_for_place(&self, connection: &Arc<Connection>) {
        if let Some(ordered) = &self.ordered {
            ordered.places.lock().wait(connection, self.table.len());
            // One that is admitted may be closed before it takes its place: then each tick looks for the next.
            self.wake_housekeeping();
            self.admit_waiting();
        }
    }

    /// Reads those again that waited, as far as there are places.
    pub(super) fn admit_waiting(&self) {
        let Some(ordered) = &self.ordered else { return };
        let mut admitted = Vec::new();
        while admitted.len() < ADMITTED {
            let next = ordered.places.lock().next(self, &admitted);
            let Some((connection, waiting)) = next else { break };
            admitted.push(waiting);
            self.arm(&connection);
        }
    }

    /// True while connections wait for places.
    pub(super) fn has_waiting(&self) -> bool {
        self.ordered.as_ref().is_some_and(|ordered| !ordered.places.lock().waiting.is_empty())
    }

    /// The request of a place is answered.
    fn give_back(&self, connection: &Arc<Connection>, mut place: Box<RequestSlot>) {
        let Some(ordered) = &self.ordered else { return };
        let octets = place.message.as_ref().map_or(0, |message| message.received().octets().len());
        let keep = self.buffer.get().map_or(KEEP, |buffer| buffer.keep().min(KEEP));
        if octets > keep {
            place.message = None;
        }
        if place.to.len() > keep {
            place.to = Encoder::new(ByteOrder::NATIVE);
        }
        connection.end_ordered();
        let waits = {
            let mut places = ordered.places.lock();
            if place.is_call {
                places.calls -= 1;
            } else {
                places.octets -= octets;
                places.shares.remove(connection.source, octets);
            }
            places.free.push(place);
            !places.waiting.is_empty()
        };
        if waits {
            self.admit_waiting();
        }
        if self.stopping() && !connection.is_running() && connection.own().is_some() {
            self.end(connection);
        }
        ordered.taken.fetch_sub(1, Ordering::AcqRel);
        if self.stopping() {
            self.gone.post();
        }
    }
}

impl OrderedRequest {
    /// Runs it on the calling thread, and sends the reply. If the socket does not accept all octets, the rest waits in
    /// memory.
    pub fn run(self) {
        self.carry_out(|_| ());
    }

    /// The same, and returns how it ended.
    pub fn run_measured(self) -> DelegateOutcome {
        let mut outcome = DelegateOutcome::Failed;
        self.carry_out(|reply| outcome = outcome_of(reply));
        outcome
    }

    fn carry_out(mut self, replied: impl FnOnce(&Encoder)) {
        let Some(orb) = self.lane.orb.upgrade() else { return };
        crate::shared::use_orb(&orb);
        let serving = Serving { connection: self.connection.clone(), epoch: None };
        let outer = current::serve(Some(serving));
        let scope = rt::current::ServantScope::enter();
        let thread = self.thread.take();
        self.answer(|received, connection, to, early| {
            serve::message(&orb, &connection.socket.terms, received, thread, to, early);
            replied(to);
        });
        rt::current::go_home();
        drop(scope);
        current::serve(outer);
    }

    /// Answers it with this exception.
    pub fn refuse(mut self, exception: SystemException) {
        self.raise(exception);
    }

    /// Forwards its client to another object (LOCATION_FORWARD). It must want a reply.
    pub fn forward(mut self, ior: &Ior) {
        self.answer(|received, connection, to, _| {
            to.clear();
            to.speak(received.header().version, connection.socket.terms.chars());
            serve::forwarded(received, ior, to);
        });
    }

    fn raise(&mut self, exception: SystemException) {
        self.answer(|received, connection, to, _| {
            to.clear();
            to.speak(received.header().version, connection.socket.terms.chars());
            if received.wants_reply() {
                serve::broken(received, exception, to);
            }
        });
    }

    fn answer(&mut self, answer: impl FnOnce(&Received<'_>, &Connection, &mut Encoder, &mut dyn FnMut(&[u8]) -> bool)) {
        let Some(mut place) = self.place.take() else { return };
        let OrderedRequest { lane, connection, .. } = &*self;
        let RequestSlot { message, to, .. } = &mut *place;
        if let Some(message) = message {
            // A reply that cannot be sent ends the connection; the reading thread detects it.
            let mut send = |octets: &[u8]| {
                let sent = lane.send(connection, octets);
                if !sent {
                    lane.close(connection);
                }
                sent
            };
            answer(&message.received(), connection, to, &mut send);
            if !to.is_empty() {
                send(to.bytes());
            }
        }
        lane.give_back(connection, place);
    }

    fn received(&self) -> Option<Received<'_>> {
        Some(self.place.as_ref()?.message.as_ref()?.received())
    }

    fn decoded(&self) -> Option<giop::Request<'_>> {
        match serve::decode(&self.connection.socket.terms, &self.received()?) {
            Ok(Message::Request(request)) => Some(request),
            // It was decoded before it was handed over.
            _ => None,
        }
    }

    /// The operation's name.
    pub fn operation(&self) -> &str {
        self.decoded().map_or("", |request| request.operation)
    }

    /// Its service contexts.
    pub fn contexts(&self) -> Option<ServiceContexts<'_>> {
        self.decoded().map(|request| request.contexts)
    }

    /// The CORBA priority sent by its client (service context 10 of Real-time CORBA).
    pub fn priority(&self) -> Option<i16> {
        let data = self.decoded()?.contexts.get(CONTEXT_RT_PRIORITY)?;
        match Context::decode(ServiceContext { tag: CONTEXT_RT_PRIORITY, data }) {
            Ok(Context::Priority(priority)) => Some(priority),
            _ => None,
        }
    }

    /// The timing of its caller (service context 30); `None` if it carries none in a known form.
    ///
    /// # Errors
    ///
    /// If the context is damaged.
    pub fn timing(&self) -> Result<Option<RequestTiming>, DecodeError> {
        self.decoded().map_or(Ok(None), |request| rt::carried(&request.contexts))
    }

    /// The call of an operation of a file that it carries; `None` also if that is damaged.
    pub fn operation_call(&self) -> Option<OperationCall> {
        OperationCall::read(self.decoded()?.contexts.get(CONTEXT_HYOSHI_CALL)?).ok()?
    }

    /// True if its distributable thread is cancelled: it will not run.
    pub fn is_cancelled(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| thread.is_cancelled())
    }

    /// Its client.
    pub fn client(&self) -> RequestClient {
        RequestClient(self.connection.clone())
    }

    /// The client that its place counts for.
    pub(super) fn source(&self) -> Option<ClientSource> {
        self.connection.source
    }

    /// Whether clients share the places.
    pub(super) fn is_shared(&self) -> bool {
        self.lane.table.is_shared()
    }

    /// A number that the order keeps with the request's connection; 0 at first.
    pub fn mark(&self) -> &AtomicU32 {
        &self.connection.mark
    }

    /// Octets of the whole message.
    pub fn octets(&self) -> usize {
        self.received().map_or(0, |received| received.octets().len())
    }

    /// Whether its client waits for a reply.
    pub fn wants_reply(&self) -> bool {
        self.received().is_some_and(|received| received.wants_reply())
    }

    /// False once its client is known to have ended. The request may still run, but no reply is sent.
    pub fn is_wanted(&self) -> bool {
        !self.connection.is_gone()
    }
}

/// The outcome of a reply. Nothing is encoded for a oneway, which counts as answered.
fn outcome_of(reply: &Encoder) -> DelegateOutcome {
    let mut octets = Decoder::new(reply.bytes(), reply.order());
    if reply.is_empty() {
        return DelegateOutcome::Answered;
    }
    octets.speak(reply.version(), CharSet::Latin1);
    match octets.raw(giop::Header::LEN).and_then(|_| giop::Reply::decode(octets)) {
        Ok(reply) if reply.status != giop::ReplyStatus::SystemException => DelegateOutcome::Answered,
        _ => DelegateOutcome::Failed,
    }
}

impl Drop for OrderedRequest {
    fn drop(&mut self) {
        if self.place.is_some() {
            self.raise(SystemKind::Transient.not_done(minor::NOT_RUN));
        }
    }
}

impl fmt::Debug for OrderedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderedRequest").field("operation", &self.operation()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Ordered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ordered").field("taken", &self.taken).finish_non_exhaustive()
    }
}
