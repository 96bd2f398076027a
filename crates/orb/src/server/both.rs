//! Connections that carry calls both ways: one thread of a lane reads them all, its other threads run what they ask.
//!
//! ```text
//!                 a first request offers it, from an address that is believed
//!   read by threads of the lane ─────────────────────────────────────────┐
//!                                                                        ▼      as many requests wait as may
//!   opened by this side, which offers it ──────────────────────────► Read on ◄────────────────────────────────► Paused
//!                                                                        │      one is taken, or this side waits
//!                                                        the end, a fault▼      for a reply
//!                                                                      Closed: calls of this side fail
//! ```
//!
//! Requests of one connection are taken one after the other, so that oneways keep their order; behind one that waits for
//! another ORB, runs long, or whose sender waits for its reply, the next is given to a further thread.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hyoshi_os::{May, PiMutex, Poller, Ready, Spawn, SpawnedThread};
use hyoshi_wire::giop::{CONTEXT_CODE_SETS, Message, MessageKind, Received, Request, message_error};
use hyoshi_wire::ior::IorEndpoint;
use hyoshi_wire::{ByteOrder, Encoder, Limits, SystemKind, Version};

use super::calls::LaneCalls;
use super::connection::{Connection, Serving};
use super::doorway::PATIENCE;
use super::duplex::{Asked, Duplex};
use super::kept::Kept;
use super::lane::{Bench, Lane};
use super::order::Handed;
use super::replies::Sent;
use super::serve::{self, Verdict};
use crate::bidir::{Announcer, CONTEXT, Claims, Whose, believed};
use crate::channel::Incoming;
use crate::client::{Mux, Outlet, fetch};
use crate::failure::Failure;
use crate::intake::BUFFER;
use crate::link::Link;
use crate::shared::Shared;
use crate::{current, minor};

/// How often a connection is read before others are looked at.
const READS: usize = 16;

/// The thread, as its lane knows it.
#[derive(Debug)]
pub(super) struct Reader {
    door: Arc<Door>,
    thread: SpawnedThread<()>,
}

/// How others reach it.
#[derive(Debug)]
struct Door {
    poller: Poller,
    /// To be looked at, whatever epoll says: new ones, and those that were paused; the one that waits longest first.
    inbox: PiMutex<VecDeque<Arc<Connection>>>,
    stopping: AtomicBool,
}

/// What the thread works with.
struct Reading {
    lane: Arc<Lane>,
    door: Arc<Door>,
    buffer: Vec<u8>,
    to: Encoder,
}

/// How a look at a connection ended.
enum Then {
    /// Nothing more has come.
    Watch,
    /// More has, but others have waited long enough.
    Later,
    /// Requests have to be carried out first.
    Pause,
    /// It is over.
    Close(Failure),
}

impl Reader {
    fn start(lane: &Arc<Lane>) -> io::Result<Reader> {
        let (inbox, stopping) = (PiMutex::default(), AtomicBool::new(false));
        let door = Arc::new(Door { poller: Poller::new()?, inbox, stopping });
        let mut spawn = Spawn::new(format!("{}-both", lane.options.name)).policy(lane.options.policy);
        if let Some(cpu) = lane.options.cpu {
            spawn = spawn.cpu(cpu);
        }
        let to = Encoder::new(ByteOrder::NATIVE);
        let mut reading = Reading { lane: lane.clone(), door: door.clone(), buffer: vec![0; BUFFER], to };
        let thread = spawn.spawn(move || reading.work())?;
        Ok(Reader { door, thread })
    }

    fn look_at(&self, connection: &Arc<Connection>) {
        self.door.inbox.lock().push_back(connection.clone());
        self.door.poller.poke();
    }

    /// Returns when it has ended, unless it is the calling thread.
    pub(super) fn end(self) {
        self.door.stopping.store(true, Ordering::Release);
        self.door.poller.poke();
        if self.thread.handle.tid() != hyoshi_os::own_thread() {
            let _ = self.thread.join();
        }
    }
}

impl Lane {
    /// Connections may carry calls both ways. Before any does, for the thread may be long in starting.
    pub(crate) fn carry_both(self: &Arc<Self>) -> io::Result<()> {
        let mut reader = self.reader.lock();
        if reader.is_none() {
            *reader = Some(Reader::start(self)?);
        }
        Ok(())
    }

    /// Whether a request offers calls in the other direction, from an address that is believed.
    pub(super) fn is_offer(&self, claims: Claims, connection: &Connection, request: &Request<'_>) -> bool {
        request.arguments.version() == Version::V1_2
            && request.contexts.get(CONTEXT).is_some_and(|data| {
                if !connection.may_tell() {
                    return false;
                }
                let (peer, own) = connection.stream.addresses();
                !believed(claims, data, Announcer::of(peer, own)).is_empty()
            })
    }

    /// A connection that a client opened carries calls both ways from now on.
    pub(super) fn accept_both(self: &Arc<Self>, orb: &Shared, connection: &Arc<Connection>) {
        connection.terms.hear(Version::V1_2);
        let calls = Arc::new(orb.peers.calls_back(self.outlet(connection, false)));
        let waiting = Kept::new(self.table.sums.unfinished.clone());
        let duplex = Duplex::new(calls, true, self.limits.message, self.in_flight, waiting);
        if self.begin(connection, duplex).is_err() {
            self.close(connection);
        }
    }

    /// Takes in a connection that this side opened: `calls` makes the calls over it. Octets of a reply are at most `most`.
    pub(crate) fn take_in_both(
        self: &Arc<Self>,
        stream: Link,
        most: usize,
        calls: impl FnOnce(Outlet) -> Mux,
    ) -> io::Result<Arc<Mux>> {
        stream.write_timeout(Some(PATIENCE))?;
        if self.stopping() {
            return Err(io::Error::other("the ORB is being shut down"));
        }
        let connection = self.table.add(stream, self.clock());
        let connection = connection.map_err(|_| io::Error::other("ServerLimits::connections are open"))?;
        // It makes no room for others. And only 1.2 lets a client say that it closes the connection.
        connection.terms.hear(Version::V1_2);
        let calls = Arc::new(calls(self.outlet(&connection, true)));
        let waiting = Kept::new(self.table.sums.unfinished.clone());
        let duplex = Duplex::new(calls.clone(), false, most.max(self.limits.message), self.in_flight, waiting);
        self.begin(&connection, duplex).inspect_err(|_| self.close(&connection))?;
        Ok(calls)
    }

    fn outlet(self: &Arc<Self>, connection: &Arc<Connection>, opened: bool) -> Outlet {
        Outlet::Both(Box::new(LaneCalls { lane: Arc::downgrade(self), connection: Arc::downgrade(connection), opened }))
    }

    fn begin(self: &Arc<Self>, connection: &Arc<Connection>, duplex: Duplex) -> io::Result<()> {
        // Cannot be set already: nobody else has the connection yet, or has it any more.
        let _ = connection.duplex.set(Arc::new(duplex));
        // A request from before may just be answered, with patience: the reader shall not be kept by that.
        connection.replies.settle();
        match self.reader.lock().as_ref() {
            Some(reader) => reader.look_at(connection),
            None => return Err(io::Error::other("the ORB is being shut down")),
        }
        // Once in a while somebody looks whether it stands still.
        self.stir();
        Ok(())
    }

    /// Sends a call of this side, without waiting. [`io::ErrorKind::WouldBlock`] if nothing was sent.
    pub(crate) fn send_call(&self, connection: &Arc<Connection>, octets: &[u8]) -> io::Result<()> {
        if let Sent::Part { first } = connection.replies.send_call(&connection.stream, octets, self.clock())? {
            self.stir();
            if !self.put_behind(connection, first) {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
        }
        Ok(())
    }

    /// Waits until the other side takes something of what waits for it.
    pub(crate) fn wait_to_send(&self, connection: &Arc<Connection>, left: Duration) -> io::Result<()> {
        let flush = || connection.replies.flush(&connection.stream, self.clock(), self.pace);
        let mut gone = flush()?.is_some();
        if !gone && connection.stream.ready(true, Some(left))? {
            gone = flush()?.is_some();
        }
        if gone {
            self.read_on(connection);
        }
        Ok(())
    }

    /// Sends a reply, and gives the other side a moment to take it, while which nobody else is kept: a large one would else
    /// go by ticks. Only if nothing waited before: who does not read has its moment once. False if the connection is over.
    fn send_and_wait(&self, connection: &Arc<Connection>, octets: &[u8]) -> bool {
        let behind = connection.replies.is_behind();
        if !self.send(connection, octets) {
            return false;
        }
        let until = Instant::now() + PATIENCE;
        while !behind && connection.replies.is_behind() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if self.wait_to_send(connection, left).is_err() {
                return false;
            }
        }
        true
    }

    /// The reader goes on, if it had stopped for requests that wait.
    pub(crate) fn read_on(&self, connection: &Arc<Connection>) {
        if connection.duplex.get().is_some_and(|duplex| duplex.resume()) {
            self.look_at(connection);
        }
    }

    fn look_at(&self, connection: &Arc<Connection>) {
        if let Some(reader) = self.reader.lock().as_ref() {
            reader.look_at(connection);
        }
    }

    /// Carries out what the reader has queued, as the one that owns the connection.
    pub(super) fn carry_out(
        self: &Arc<Self>,
        orb: &Arc<Shared>,
        connection: &Arc<Connection>,
        duplex: &Duplex,
        epoch: u64,
        bench: &mut Bench,
    ) {
        let serving = Serving { lane: self.clone(), connection: connection.clone(), epoch: Some(epoch) };
        *self.hands[bench.number].lock() = Some((serving.clone(), None));
        current::serve(Some(serving));
        let (mut owned, mut goes_on, mut full) = (true, true, false);
        while owned && goes_on && !self.stopping() {
            let (asked, resume) = duplex.next();
            if resume {
                self.look_at(connection);
            }
            let Some(asked) = asked else { break };
            let received = asked.message.received();
            if self.ordered.is_some()
                && let Ok(Message::Request(mut request)) = serve::decode(&connection.terms, &received)
            {
                match self.hand_over(orb, connection, &received, &mut request, &mut bench.to) {
                    Handed::Over => continue,
                    Handed::Unbound => {}
                    Handed::Full => {
                        duplex.put_back(asked);
                        full = true;
                        break;
                    }
                }
            }
            if asked.apart {
                // Its sender expects nothing of the order in which this and the next are carried out.
                connection.run_apart(epoch);
                if self.may_run() > 0 {
                    self.arm(connection);
                }
            } else {
                connection.run(epoch, true);
            }
            // A client that has ended wants no reply; its oneways are still carried out.
            if !(connection.is_gone() && asked.waits) {
                goes_on = self.carry_out_one(orb, connection, &received, &mut bench.to);
            }
            owned = connection.ran(epoch);
        }
        current::serve(None);
        *self.hands[bench.number].lock() = None;
        bench.tidy();
        if !goes_on {
            return self.close(connection);
        }
        if owned {
            connection.release(epoch);
        }
        if full {
            self.wait_for_place(connection);
        } else if !self.stopping() {
            // Something may have come since it was looked at.
            self.arm(connection);
        } else if !connection.is_engaged() && connection.own().is_some() {
            self.end(connection);
        }
    }

    /// False if the connection is over.
    fn carry_out_one(
        &self,
        orb: &Arc<Shared>,
        connection: &Arc<Connection>,
        received: &Received<'_>,
        to: &mut Encoder,
    ) -> bool {
        let mut send = |octets: &[u8]| self.send(connection, octets);
        let verdict = serve::message(orb, &connection.terms, received, to, &mut send);
        (to.is_empty() || self.send_and_wait(connection, to.bytes())) && verdict == Verdict::Go
    }
}

impl Reading {
    fn work(&mut self) {
        while !self.door.stopping.load(Ordering::Acquire) {
            let connection = match self.door.poller.wait(None) {
                Ok(Some(Ready::Source(number))) => self.lane.table.get(number),
                Ok(Some(Ready::Poked)) => self.door.inbox.lock().pop_front(),
                Ok(None) | Err(_) => None,
            };
            if let Some(connection) = connection
                && let Some(duplex) = connection.duplex.get().cloned()
            {
                self.look(&connection, &duplex);
            }
        }
    }

    fn look(&mut self, connection: &Arc<Connection>, duplex: &Duplex) {
        let limits = Limits { message: duplex.message, ..self.lane.limits };
        let mut incoming = connection.incoming.lock().take().unwrap_or_else(|| Incoming::new(limits));
        let mut buffer = std::mem::take(&mut self.buffer);
        let then = self.read(connection, duplex, &mut incoming, &mut buffer).unwrap_or_else(Then::Close);
        incoming.park(&buffer);
        self.buffer = buffer;
        // Requests that wait are counted where they do.
        let held = incoming.held();
        if connection.unfinished.set(held) > self.lane.most_unfinished {
            return self.close(connection, duplex, Failure::Lost);
        }
        *connection.incoming.lock() = (held > 0).then_some(incoming);
        match then {
            Then::Watch if connection.stream.holds_some() => self.later(connection),
            Then::Watch => {
                if connection.watch(&self.door.poller).is_err() {
                    self.close(connection, duplex, Failure::Lost);
                }
            }
            Then::Later => self.later(connection),
            Then::Pause => {}
            Then::Close(why) => self.close(connection, duplex, why),
        }
    }

    fn later(&self, connection: &Arc<Connection>) {
        self.door.inbox.lock().push_back(connection.clone());
        self.door.poller.poke();
    }

    fn close(&self, connection: &Arc<Connection>, duplex: &Duplex, why: Failure) {
        duplex.over(why);
        self.lane.close(connection);
    }

    /// Reads what has come, and hands its messages on.
    fn read(
        &mut self,
        connection: &Arc<Connection>,
        duplex: &Duplex,
        incoming: &mut Incoming,
        buffer: &mut [u8],
    ) -> Result<Then, Failure> {
        let now = self.lane.clock();
        for _ in 0..READS {
            if !incoming.holds_some() {
                if !fetch(&connection.stream, incoming, buffer, May::Never, May::Never)? {
                    return Ok(Then::Watch);
                }
                connection.heard.store(now, Ordering::Relaxed);
            }
            loop {
                if incoming.holds_some() && duplex.pause(|| connection.replies.is_behind()) {
                    incoming.pause();
                    return Ok(Then::Pause);
                }
                match incoming.next(buffer) {
                    Ok(Some(whole)) => self.take(connection, duplex, &whole.received)?,
                    Ok(None) => break,
                    Err(fault) => {
                        self.lane.tell(connection, &fault);
                        return Err(Failure::Garbled);
                    }
                }
            }
            incoming.await_rest(now);
        }
        Ok(Then::Later)
    }

    /// Hands on a message: a reply to whoever waits for it, a request to the lane's threads.
    fn take(&mut self, connection: &Arc<Connection>, duplex: &Duplex, received: &Received<'_>) -> Result<(), Failure> {
        let version = received.header().version;
        match received.header().kind {
            MessageKind::Reply => {
                let id = received.id().ok_or(Failure::Garbled)?;
                duplex.calls.replied(id, received);
                Ok(())
            }
            MessageKind::CloseConnection => Err(Failure::Closed),
            MessageKind::MessageError => Err(Failure::NotUnderstood),
            // What is cancelled runs already, or its turn comes and nobody reads the reply.
            MessageKind::CancelRequest => Ok(()),
            MessageKind::Request | MessageKind::LocateRequest => self.ask(connection, duplex, received),
            MessageKind::LocateReply | MessageKind::Fragment => {
                self.lane.send(connection, &message_error(version));
                Err(Failure::Garbled)
            }
        }
    }

    fn ask(&mut self, connection: &Arc<Connection>, duplex: &Duplex, received: &Received<'_>) -> Result<(), Failure> {
        let (mut waits, mut apart) = (true, true);
        if let Ok(Message::Request(request)) = received.decode() {
            waits = request.response.expected();
            // What characters are is known for those behind it once it is begun.
            apart = waits && (connection.terms.is_agreed() || request.contexts.get(CONTEXT_CODE_SETS).is_none());
            if duplex.accepted
                && received.header().version == Version::V1_2
                && let Some(context) = request.contexts.get(CONTEXT)
                && duplex.tells_anew(context)
                && connection.may_tell()
            {
                self.hear(connection, duplex, context);
            }
        }
        if self.lane.stopping() {
            // The farewell says that it was not carried out.
            return Ok(());
        }
        match duplex.ask(Asked { message: received.keep(), waits, apart }) {
            // Who takes those that wait already takes this one, too: each need not wake a thread.
            Ok(false) if !connection.is_apart() => {}
            Ok(_) => self.lane.arm(connection),
            Err(Asked { waits: false, .. }) => {}
            Err(_) => {
                self.to.clear();
                self.to.speak(received.header().version, connection.terms.chars());
                let verdict = serve::broken(received, SystemKind::Transient.not_done(minor::IN_FLIGHT), &mut self.to);
                if !self.lane.send(connection, self.to.bytes()) || verdict == Verdict::Close {
                    return Err(Failure::Lost);
                }
            }
        }
        Ok(())
    }

    /// The client tells where its objects are: calls there go over this connection, as far as it is believed.
    fn hear(&self, connection: &Connection, duplex: &Duplex, context: &[u8]) {
        let (Some(claims), Some(orb)) = (self.lane.claims, self.lane.orb.upgrade()) else { return };
        let (peer, own) = connection.stream.addresses();
        let from = Announcer::of(peer, own);
        let whose = Whose::of(&connection.stream, from);
        for point in believed(claims, context, from) {
            let (host, port) = (point.host.to_owned(), point.port);
            if connection.stream.is_secure() {
                // The context does not say which of them are of TLS.
                let endpoint = IorEndpoint::Tls { host: host.clone(), port, requires: 0 };
                duplex.leads_to(|calls| orb.peers.add_way_back(&endpoint, calls, &whose));
            }
            let endpoint = IorEndpoint::Tcp { host, port, priority: None };
            duplex.leads_to(|calls| orb.peers.add_way_back(&endpoint, calls, &whose));
        }
    }
}
