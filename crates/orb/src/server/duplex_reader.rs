//! Connections that carry calls both ways: one thread of a lane reads all of them, its other threads run the requests.
//!
//! ```text
//!                 a first request offers it, and its address is believed
//!   read by threads of the lane ─────────────────────────────────────────┐
//!                                                                        ▼      the most requests wait
//!   opened by this side, which offers it ──────────────────────────► Reading ◄──────────────────────────────► Paused
//!                                                                        │      one is taken, or this side waits
//!                                                    the end, a fault    ▼      for a reply
//!                                                                      Closed: calls of this side fail
//! ```
//!
//! Requests of one connection run one after the other, so that oneways keep their order. Behind a request that waits for
//! another ORB, runs long, or whose client waits for its reply, the next one goes to a further thread.

use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use hyoshi_os::{May, PiMutex, Poller, Ready, SpawnedThread};
use hyoshi_wire::giop::{CONTEXT_CODE_SETS, Message, MessageKind, Received, Request, message_error};
use hyoshi_wire::ior::IorEndpoint;
use hyoshi_wire::{ByteOrder, Encoder, Limits, SystemKind, Version};

use super::accept::PATIENCE;
use super::connection::Connection;
use super::duplex::{Duplex, Queued};
use super::fair::Round;
use super::order::Handed;
use super::serve::{self, AfterMessage};
use super::{Lane, Worker};
use crate::bidir::{Announcer, CONTEXT, Claims, PeerIdentity, believed};
use crate::channel::{self, Incoming, Parked, ReadBudget, ReceiveError, Receiver, Tally, TurnEnd, Whole, receive};
use crate::client::{DuplexLane, Mux, TakeIn};
use crate::current::Served;
use crate::failure::CallFailure;
use crate::minor;
use crate::rt::threads;
use crate::shared::Shared;
use crate::socket::{BUFFER, Socket};
use crate::stream::MaybeTlsStream;

/// Reads of one connection before the others have their turn.
const READS: usize = 16;

/// The reading thread, as its lane knows it.
#[derive(Debug)]
pub(super) struct DuplexReader {
    inbox: Arc<ReaderInbox>,
    thread: SpawnedThread<()>,
}

/// What other threads pass to it.
#[derive(Debug)]
struct ReaderInbox {
    poller: Poller,
    /// Connections to read without a report of epoll: new ones, and those that were paused. The longest waiting first.
    connections: PiMutex<VecDeque<Arc<Connection>>>,
    stopping: AtomicBool,
}

/// What the thread works with.
struct ReaderThread {
    lane: Arc<Lane>,
    inbox: Arc<ReaderInbox>,
    buffer: Vec<u8>,
    to: Encoder,
}

/// A turn of one connection.
struct ReaderTurn<'a> {
    lane: &'a Arc<Lane>,
    connection: &'a Arc<Connection>,
    duplex: &'a Duplex,
    to: &'a mut Encoder,
    now: u64,
}

/// Why it ends although more may have arrived.
enum TurnStop {
    /// Requests must run first.
    Pause,
    /// The connection is over.
    Close(CallFailure),
}

impl DuplexLane for Weak<Connection> {
    fn list_waiting(&self, first: bool) -> bool {
        let connection = self.upgrade();
        let both = connection.and_then(|connection| Some((connection.lane.upgrade()?, connection)));
        both.is_some_and(|(lane, connection)| lane.put_behind(&connection, first))
    }

    fn read_on(&self) {
        if let Some(connection) = self.upgrade()
            && let Some(lane) = connection.lane.upgrade()
        {
            lane.read_on(&connection);
        }
    }
}

impl TakeIn for Arc<Lane> {
    fn take_in(
        &self,
        link: MaybeTlsStream,
        most: usize,
        calls: &dyn Fn(Arc<Socket>, Box<dyn DuplexLane>) -> Mux,
    ) -> io::Result<Arc<Mux>> {
        link.write_timeout(Some(PATIENCE))?;
        if self.stopping() {
            return Err(io::Error::other("the ORB is being shut down"));
        }
        let connection = self.table.add(self.this.clone(), link, self.clock(), None);
        let connection = connection.map_err(|_| io::Error::other("ServerLimits::connections are open"))?;
        // It evicts no other connection. Only GIOP 1.2 lets a client announce the end of its connection.
        connection.socket.terms.hear(Version::V1_2);
        let calls = Arc::new(calls(connection.socket.clone(), Box::new(Arc::downgrade(&connection))));
        let duplex = self.duplex(calls.clone(), false, most.max(self.limits.message));
        self.begin(&connection, duplex).inspect_err(|_| self.close(&connection))?;
        Ok(calls)
    }
}

impl DuplexReader {
    fn start(lane: &Arc<Lane>) -> io::Result<DuplexReader> {
        let (connections, stopping) = (PiMutex::default(), AtomicBool::new(false));
        let inbox = Arc::new(ReaderInbox { poller: Poller::new()?, connections, stopping });
        let to = Encoder::new(ByteOrder::NATIVE);
        let mut reading = ReaderThread { lane: lane.clone(), inbox: inbox.clone(), buffer: vec![0; BUFFER], to };
        let thread = lane.options.spawn("duplex").spawn(move || reading.work())?;
        Ok(DuplexReader { inbox, thread })
    }

    /// Returns when it has ended, unless it is the calling thread.
    pub(super) fn end(self) {
        self.inbox.stopping.store(true, Ordering::Release);
        self.inbox.poller.poke();
        if self.thread.handle.tid() != hyoshi_os::own_thread() {
            let _ = self.thread.join();
        }
    }
}

impl ReaderInbox {
    fn put(&self, connection: &Arc<Connection>) {
        self.connections.lock().push_back(connection.clone());
        self.poller.poke();
    }
}

impl Lane {
    /// Starts the reader, before any connection carries calls both ways: starting a thread can take long.
    pub(crate) fn carry_both(self: &Arc<Self>) -> io::Result<()> {
        let mut reader = self.reader.lock();
        if reader.is_none() {
            *reader = Some(DuplexReader::start(self)?);
        }
        Ok(())
    }

    /// True if a request offers calls in the other direction, and its address is believed.
    pub(super) fn is_offer(&self, claims: Claims, connection: &Connection, request: &Request<'_>) -> bool {
        request.arguments.version() == Version::V1_2
            && request.contexts.get(CONTEXT).is_some_and(|data| {
                if !connection.may_announce() {
                    return false;
                }
                let (peer, own) = connection.link().addresses();
                !believed(claims, data, Announcer::of(peer, own)).is_empty()
            })
    }

    /// A connection that a client opened carries calls both ways from now on.
    pub(super) fn accept_both(self: &Arc<Self>, orb: &Shared, connection: &Arc<Connection>) {
        connection.socket.terms.hear(Version::V1_2);
        let calls = Arc::new(orb.peers.calls_back(connection.socket.clone(), Box::new(Arc::downgrade(connection))));
        let duplex = self.duplex(calls, true, self.limits.message);
        if self.begin(connection, duplex).is_err() {
            self.close(connection);
        }
    }

    fn duplex(&self, calls: Arc<Mux>, accepted: bool, message: usize) -> Duplex {
        Duplex::new(calls, accepted, message, self.in_flight, Tally::new(self.table.sums.unfinished.clone()))
    }

    fn begin(self: &Arc<Self>, connection: &Arc<Connection>, duplex: Duplex) -> io::Result<()> {
        // Cannot be set already: only one thread has the connection.
        let _ = connection.duplex.set(Arc::new(duplex));
        // A thread may still send an earlier reply and wait for the client: the reader must not.
        drop(connection.socket.outbox.lock());
        match self.reader.lock().as_ref() {
            Some(reader) => reader.inbox.put(connection),
            None => return Err(io::Error::other("the ORB is being shut down")),
        }
        // Its timeouts are checked from now on.
        self.wake_housekeeping();
        Ok(())
    }

    /// Sends a reply, and waits briefly until the other side has accepted it: otherwise a large reply would be sent once
    /// a tick. Does not wait if octets waited before: a client that does not read gets that time once. False if the
    /// connection is over.
    fn send_and_wait(&self, connection: &Arc<Connection>, octets: &[u8]) -> bool {
        let socket = &connection.socket;
        let behind = socket.outbox.is_behind();
        if !self.send(connection, octets) {
            return false;
        }
        let until = Instant::now() + PATIENCE;
        while !behind && socket.outbox.owes_replies() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let sent = socket
                .wait_for_room(left)
                .and_then(|_| socket.outbox.lock().flush(channel::now(), |octets| socket.write_now(octets)));
            if sent.is_err() {
                return false;
            }
            if !socket.outbox.owes_replies() {
                self.read_on(connection);
            }
        }
        true
    }

    /// The reader goes on, if it had paused.
    pub(crate) fn read_on(&self, connection: &Arc<Connection>) {
        if connection.duplex.get().is_some_and(|duplex| duplex.resume()) {
            self.pass_to_reader(connection);
        }
    }

    fn pass_to_reader(&self, connection: &Arc<Connection>) {
        if let Some(reader) = self.reader.lock().as_ref() {
            reader.inbox.put(connection);
        }
    }

    /// Runs requests that the reader has queued, for a round. The calling thread owns the connection.
    pub(super) fn run_queued(
        self: &Arc<Self>,
        orb: &Arc<Shared>,
        connection: &Arc<Connection>,
        duplex: &Duplex,
        epoch: u64,
        worker: &mut Worker,
    ) {
        self.begin_work(worker.number, connection, epoch);
        let (mut owned, mut goes_on, mut full) = (true, true, false);
        let mut round = Round::default();
        // At least one, as when it reads a connection itself.
        let mut is_spent = false;
        while owned && goes_on && !is_spent && !self.stopping() {
            let (queued, resume) = duplex.next();
            if resume {
                self.pass_to_reader(connection);
            }
            let Some(mut queued) = queued else { break };
            round.begin();
            worker.left.messages = worker.left.messages.saturating_sub(1);
            is_spent = round.is_over() || worker.left.is_spent();
            let received = queued.message.received();
            let mut decoded = self.ordered.is_some().then(|| serve::decode(&connection.socket.terms, &received));
            if let Some(Ok(Message::Request(request))) = &mut decoded {
                match self.hand_over(orb, connection, &received, request, &mut worker.to) {
                    Handed::Over => continue,
                    Handed::Unbound => {}
                    Handed::Full => {
                        duplex.put_back(queued);
                        full = true;
                        break;
                    }
                }
            }
            if queued.apart {
                // Its client does not depend on the order of this request and the next.
                connection.run_apart(epoch);
                if self.may_run() > 0 {
                    self.arm(connection);
                }
            } else {
                connection.run(epoch, true);
            }
            // A client that has ended needs no reply; its oneways still run.
            if !(connection.is_gone() && queued.waits) {
                let (thread, to) = (queued.thread.take(), &mut worker.to);
                goes_on = self.run_one(orb, connection, &received, decoded.as_mut(), thread, to, Lane::send_and_wait);
            }
            owned = connection.ran(epoch);
        }
        self.end_work(worker.number);
        worker.tidy();
        if !goes_on {
            return self.close(connection);
        }
        if owned {
            connection.release(epoch);
        }
        if full {
            self.wait_for_place(connection);
        } else if !self.stopping() {
            // A request may have been queued since.
            self.arm(connection);
        } else if !connection.is_engaged() && connection.own().is_some() {
            self.end(connection);
        }
    }
}

impl ReaderThread {
    fn work(&mut self) {
        while !self.inbox.stopping.load(Ordering::Acquire) {
            let connection = match self.inbox.poller.wait(None) {
                Ok(Some(Ready::Source(number))) => self.lane.table.get(number),
                Ok(Some(Ready::Poked)) => self.inbox.connections.lock().pop_front(),
                Ok(None) | Err(_) => None,
            };
            if let Some(connection) = connection
                && let Some(duplex) = connection.duplex.get().cloned()
            {
                self.turn(&connection, &duplex);
            }
        }
    }

    /// A turn of one connection.
    fn turn(&mut self, connection: &Arc<Connection>, duplex: &Duplex) {
        let ReaderThread { lane, inbox, buffer, to } = self;
        let limits = Limits { message: duplex.message, ..lane.limits };
        let mut incoming = connection.incoming.lock().take().unwrap_or_else(|| Incoming::new(limits));
        let mut turn = ReaderTurn { lane, connection, duplex, to, now: lane.clock() };
        let mut budget = ReadBudget { reads: READS, ..ReadBudget::unbounded() };
        let end = receive(&mut turn, &mut incoming, buffer, &mut budget);
        incoming.park(buffer);
        if let Ok(TurnEnd::Stopped(TurnStop::Pause)) = end {
            incoming.pause();
        }
        let close = |why| {
            duplex.over(why);
            lane.close(connection);
        };
        // The queue counts requests that wait.
        let held = incoming.held();
        connection.unfinished.set(held);
        if !lane.may_hold(connection) {
            return close(CallFailure::Lost);
        }
        *connection.incoming.lock() = (held > 0).then_some(incoming);
        match end {
            Ok(TurnEnd::Idle) if connection.link().holds_some() => inbox.put(connection),
            Ok(TurnEnd::Idle) => {
                if connection.watch(&inbox.poller).is_err() {
                    close(CallFailure::Lost);
                }
            }
            Ok(TurnEnd::Spent) => inbox.put(connection),
            Ok(TurnEnd::Stopped(TurnStop::Pause)) => {}
            Ok(TurnEnd::Stopped(TurnStop::Close(why))) => close(why),
            Err(error) => {
                if let ReceiveError::Stream(fault) = &error {
                    lane.report(connection, fault);
                }
                close(error.into());
            }
        }
    }
}

impl Receiver for ReaderTurn<'_> {
    type Stop = TurnStop;

    fn read(&mut self, place: &mut [u8], _: bool) -> io::Result<usize> {
        self.connection.link().read(place, May::Never)
    }

    fn have_read(&mut self, octets: usize) {
        if octets > 0 {
            self.connection.heard.store(self.now, Ordering::Relaxed);
        }
    }

    fn leave(&mut self, _: bool) -> Option<TurnStop> {
        let pauses = self.duplex.pause(|| self.connection.socket.outbox.owes_replies());
        pauses.then_some(TurnStop::Pause)
    }

    fn message(&mut self, whole: Whole<'_>) -> ControlFlow<TurnStop, Option<Parked>> {
        match self.take(&whole.received) {
            Ok(()) => ControlFlow::Continue(None),
            Err(why) => ControlFlow::Break(TurnStop::Close(why)),
        }
    }

    fn handled_all(&mut self, incoming: &mut Incoming) -> Option<TurnStop> {
        incoming.await_rest(self.now);
        None
    }
}

impl ReaderTurn<'_> {
    /// Passes on a message: a reply to its caller, a request to the lane's threads.
    fn take(&mut self, received: &Received<'_>) -> Result<(), CallFailure> {
        let version = received.header().version;
        match received.header().kind {
            MessageKind::Reply => {
                let id = received.id().ok_or(CallFailure::Garbled)?;
                self.duplex.calls.replied(id, received);
                Ok(())
            }
            MessageKind::CloseConnection => Err(CallFailure::Closed),
            MessageKind::MessageError => Err(CallFailure::NotUnderstood),
            // The distributable thread of the request is cancelled. Any other request runs all the same.
            MessageKind::CancelRequest => {
                let id = received.id().ok_or(CallFailure::Garbled)?;
                threads::cancel_arrived(&**self.connection, Some(id));
                Ok(())
            }
            MessageKind::Request | MessageKind::LocateRequest => self.queue(received),
            MessageKind::LocateReply | MessageKind::Fragment => {
                self.lane.send(self.connection, &message_error(version));
                Err(CallFailure::Garbled)
            }
        }
    }

    fn queue(&mut self, received: &Received<'_>) -> Result<(), CallFailure> {
        let ReaderTurn { lane, connection, duplex, to, .. } = self;
        let (mut waits, mut apart, mut thread) = (true, true, Ok(None));
        if let Ok(Message::Request(request)) = received.decode() {
            waits = request.response.expected();
            // The code set of later requests is known once it runs.
            apart = waits && (connection.socket.terms.is_agreed() || request.contexts.get(CONTEXT_CODE_SETS).is_none());
            if duplex.accepted
                && received.header().version == Version::V1_2
                && let Some(context) = request.contexts.get(CONTEXT)
                && duplex.is_new(context)
                && connection.may_announce()
            {
                add_ways_back(lane, connection, duplex, context);
            }
            // An order has its own.
            if lane.ordered.is_none() {
                thread = threads::queue(&request, connection.clone() as Arc<dyn Served>);
            }
        }
        if lane.stopping() {
            // The close message reports that it did not run.
            return Ok(());
        }
        let queued = |thread| Queued { message: received.keep(), waits, apart, thread };
        let refused = match thread {
            Ok(thread) => duplex
                .push(queued(thread))
                .map_err(|queued| (SystemKind::Transient.not_done(minor::IN_FLIGHT), queued.waits)),
            Err(exception) => Err((exception, waits)),
        };
        match refused {
            // The thread that takes the waiting requests takes this one, too: no further wake-up.
            Ok(false) if !connection.is_apart() => {}
            Ok(_) => lane.arm(connection),
            Err((_, false)) => {}
            Err((exception, true)) => {
                to.clear();
                to.speak(received.header().version, connection.socket.terms.chars());
                let verdict = serve::broken(received, exception, to);
                if !lane.send(connection, to.bytes()) || verdict == AfterMessage::Close {
                    return Err(CallFailure::Lost);
                }
            }
        }
        Ok(())
    }
}

/// The client announces the addresses of its objects: if it is believed, calls there use this connection.
fn add_ways_back(lane: &Lane, connection: &Connection, duplex: &Duplex, context: &[u8]) {
    let (Some(claims), Some(orb)) = (lane.claims, lane.orb.upgrade()) else { return };
    let (peer, own) = connection.link().addresses();
    let from = Announcer::of(peer, own);
    let identity = PeerIdentity::of(connection.link(), from);
    for point in believed(claims, context, from) {
        let (host, port) = (point.host.to_owned(), point.port);
        if connection.link().is_secure() {
            // The context does not show which of them use TLS.
            let endpoint = IorEndpoint::Tls { host: host.clone(), port, requires: 0 };
            duplex.leads_to(|calls| orb.peers.add_way_back(&endpoint, calls, &identity));
        }
        let endpoint = IorEndpoint::Tcp { host, port, priority: None };
        duplex.leads_to(|calls| orb.peers.add_way_back(&endpoint, calls, &identity));
    }
}
