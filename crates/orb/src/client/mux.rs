//! Calls that share a connection. A thread of its own reads the replies; if the connection carries calls both ways, the
//! lane that it belongs to reads it.
//!
//! No lock is held while a caller waits. Requests go through the socket's [`Outbox`](crate::channel::Outbox). If the
//! socket does not accept a request at once, the caller waits for room, up to its own deadline. Then the request is
//! withdrawn if none of it was sent; otherwise the next sender or the ORB's housekeeping completes it.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hyoshi_os::{May, PiMutex, Spawn};
use hyoshi_wire::giop::{Kept, Received, cancel_request};
use hyoshi_wire::{CharSet, EncodeError, Encoder, Limits, Version};

use super::line::reply;
use crate::channel::{Announced, Incoming, Parked, ReadBudget, Receiver, Sending, TurnEnd, Whole, now, receive};
use crate::failure::CallFailure;
use crate::housekeeping::Housekeeping;
use crate::limits::{ClientLimits, duration, millis};
use crate::promise::Promise;
use crate::rt::threads::CancelPath;
use crate::socket::{BUFFER, Socket, refused};
use crate::stream::MaybeTlsStream;

/// Callers that wait for the socket check it for a standstill this often.
const CHECK: Duration = Duration::from_millis(250);

/// See the module.
#[derive(Debug)]
pub(crate) struct Mux {
    socket: Arc<Socket>,
    /// Set if the connection carries calls both ways.
    both: Option<BothWays>,
    /// Callers that wait for a reply, by request id; none once the connection is over.
    waiting: PiMutex<Option<HashMap<u32, Arc<PendingReply>>>>,
    next: AtomicU32,
    /// When a request was last sent.
    used: AtomicU64,
    limits: ClientLimits,
    housekeeping: Arc<Housekeeping>,
    closing: AtomicBool,
    /// Why it is over.
    ended: OnceLock<CallFailure>,
}

/// The other direction of a connection that carries calls both ways.
#[derive(Debug)]
pub(crate) struct BothWays {
    pub(crate) lane: Box<dyn DuplexLane>,
    /// The context that offers calls in the other direction, if this side opened the connection.
    pub(crate) offer: Option<Arc<[u8]>>,
}

/// The lane of a connection that carries calls both ways.
pub(crate) trait DuplexLane: fmt::Debug + Send + Sync {
    /// Octets of the connection wait. `first` if the lane does not list it yet. False if the lane has closed it, because
    /// too many octets wait in the lane.
    fn list_waiting(&self, first: bool) -> bool;

    /// Reads the connection, even if many requests wait: a reply is expected, or there is room for replies again.
    fn read_on(&self);
}

/// Takes in a connection that this side opened: reads it, and runs incoming requests.
pub(crate) trait TakeIn: fmt::Debug + Send + Sync {
    /// `calls` makes the calls over it. Octets of a reply are at most `most`.
    fn take_in(
        &self,
        link: MaybeTlsStream,
        most: usize,
        calls: &dyn Fn(Arc<Socket>, Box<dyn DuplexLane>) -> Mux,
    ) -> io::Result<Arc<Mux>>;
}

/// What all connections offer that this side opens, if they carry calls both ways.
#[derive(Debug)]
pub(crate) struct BidirOffer {
    pub(crate) lane: Box<dyn TakeIn>,
    /// The context with the listen points.
    pub(crate) context: Arc<[u8]>,
}

/// What a request announces, as the first on its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening<'a> {
    /// The code sets.
    pub(crate) sets: bool,
    /// The listen points: this context.
    pub(crate) points: Option<&'a [u8]>,
}

/// The reply to a request, as a whole message.
pub(crate) type PendingReply = Promise<Result<Kept, CallFailure>>;

/// Waits for a reply.
pub(crate) fn wait_for(reply: &PendingReply, until: Option<Instant>) -> Result<&Kept, CallFailure> {
    match reply.wait(until) {
        Some(reply) => reply.as_ref().map_err(Clone::clone),
        None => Err(CallFailure::TimedOut),
    }
}

/// Builds a request: gets its id and what it is to announce, and returns what it announces.
pub(crate) trait BuildRequest: FnOnce(u32, Opening<'_>, &mut Encoder) -> Result<Announced, EncodeError> {}

impl<F: FnOnce(u32, Opening<'_>, &mut Encoder) -> Result<Announced, EncodeError>> BuildRequest for F {}

impl Mux {
    /// Calls over a connection of this side alone. Starts to read it.
    pub(super) fn start(
        link: MaybeTlsStream,
        limits: &ClientLimits,
        housekeeping: &Arc<Housekeeping>,
    ) -> io::Result<Arc<Mux>> {
        let socket = Arc::new(Socket::new(link, Arc::default()));
        let mux = Arc::new(Mux::new(socket, None, limits, housekeeping));
        let reading = mux.clone();
        Spawn::new("orb-replies").spawn(move || reading.read())?;
        Ok(mux)
    }

    /// Calls over a connection that another thread reads. With an offer this side has opened it: request ids are even,
    /// and this side announces the code sets, for both directions (as omniORB and JacORB do).
    pub(super) fn new(
        socket: Arc<Socket>,
        both: Option<BothWays>,
        limits: &ClientLimits,
        housekeeping: &Arc<Housekeeping>,
    ) -> Mux {
        let accepted = both.as_ref().is_some_and(|both| both.offer.is_none());
        socket.outbox.lock().announced.sets = accepted;
        Mux {
            socket,
            both,
            waiting: PiMutex::new(Some(HashMap::new())),
            next: AtomicU32::new(u32::from(accepted)),
            used: AtomicU64::new(now()),
            limits: limits.clone(),
            housekeeping: housekeeping.clone(),
            closing: AtomicBool::new(false),
            ended: OnceLock::new(),
        }
    }

    /// The code set of narrow characters on a connection that carries calls both ways. `None` if this side can still
    /// announce it.
    pub(crate) fn chars(&self) -> Option<CharSet> {
        let (both, terms) = (self.both.as_ref()?, &self.socket.terms);
        (terms.is_agreed() || both.offer.is_none()).then(|| terms.chars())
    }

    pub(super) fn uses(&self, socket: &Arc<Socket>) -> bool {
        Arc::ptr_eq(&self.socket, socket)
    }

    /// True while a caller waits for a reply.
    pub(crate) fn waits(&self) -> bool {
        self.waiting.lock().as_ref().is_some_and(|waiting| !waiting.is_empty())
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.is_closing() && self.waiting.lock().is_some()
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Closes it if it was unused for long, or is unused and the server's certificate has expired. A caller that is
    /// about to use it finds it closed before it sends anything.
    pub(super) fn retire(&self, now: u64) -> bool {
        // If it carries calls both ways, the peer may call at any time.
        if self.both.is_some() {
            return false;
        }
        let Some(out) = self.socket.outbox.try_lock() else { return false };
        let used = self.used.load(Ordering::Relaxed);
        let is_old = now.saturating_sub(used) > millis(self.limits.idle) || self.socket.link.has_expired();
        let unused = is_old && out.is_empty();
        let retires = unused && self.waiting.lock().as_ref().is_none_or(HashMap::is_empty);
        if retires {
            self.close();
        }
        retires
    }

    /// Sends a request, and returns its id and the reply.
    pub(crate) fn request(
        &self,
        until: Option<Instant>,
        build: impl BuildRequest,
    ) -> Result<(u32, Arc<PendingReply>), CallFailure> {
        let id = self.next_id();
        let reply = Arc::new(Promise::new());
        {
            let mut waiting = self.waiting.lock();
            let waiting = waiting.as_mut().ok_or_else(|| self.unsent())?;
            if waiting.len() >= self.limits.in_flight {
                return Err(CallFailure::InFlight);
            }
            waiting.insert(id, reply.clone());
        }
        self.read_on();
        let mut version = Version::default();
        let own = |id, opening: Opening<'_>, to: &mut Encoder| {
            let announced = build(id, opening, to);
            version = to.version();
            announced
        };
        let sent = self
            .room(until)
            .and_then(|out| self.put(id, false, out, own))
            .and_then(|ticket| self.deliver(ticket, until, true));
        match sent {
            Ok(()) => Ok((id, reply)),
            Err(failure) => {
                // The request will be completed: a cancel request follows it.
                match failure {
                    CallFailure::TimedOut => self.cancel(id, version),
                    _ => _ = self.forget(id),
                }
                Err(failure)
            }
        }
    }

    /// Sends a request without a reply, or delays it to send it with others: then it waits for nothing but room.
    /// Returns its id.
    pub(crate) fn post(
        &self,
        put_off: bool,
        until: Option<Instant>,
        build: impl BuildRequest,
    ) -> Result<u32, CallFailure> {
        let id = self.next_id();
        let ticket = self.put(id, put_off, self.room(until)?, build)?;
        if !put_off {
            self.deliver(ticket, until, true)?;
        }
        Ok(id)
    }

    /// The same without waiting: what the socket does not accept stays in the outbox, if there is room.
    pub(crate) fn try_post(&self, put_off: bool, build: impl BuildRequest) -> Result<u32, CallFailure> {
        let (id, out) = (self.next_id(), self.try_room()?.ok_or(CallFailure::Backlog)?);
        if self.put(id, put_off, out, build)?.is_some() {
            self.housekeeping.wake(false);
        }
        Ok(id)
    }

    fn next_id(&self) -> u32 {
        self.next.fetch_add(2, Ordering::Relaxed)
    }

    fn read_on(&self) {
        self.both.as_ref().inspect(|both| both.lane.read_on());
    }

    /// Builds a request, and sends what the socket accepts at once. Returns a ticket if that is not all.
    fn put(
        &self,
        id: u32,
        put_off: bool,
        mut out: Sending<'_>,
        build: impl BuildRequest,
    ) -> Result<Option<u64>, CallFailure> {
        let before = out.queue.to.len();
        let Announced { sets, points } = out.announced;
        let offer = self.both.as_ref().and_then(|both| both.offer.as_deref());
        let opening = Opening { sets: !sets, points: offer.filter(|_| !points) };
        let announces = build(id, opening, &mut out.queue.to).map_err(|error| {
            out.queue.to.truncate(before);
            CallFailure::Encode(error)
        })?;
        if announces.sets && self.both.is_some() {
            self.socket.terms.agree(out.queue.to.chars());
        }
        out.announced = Announced { sets: sets | announces.sets, points: points | announces.points };
        self.used.store(now(), Ordering::Relaxed);
        if put_off && out.queue.to.len() < self.limits.batch {
            return Ok(None);
        }
        // What announces code sets or listen points must be sent: later requests depend on it.
        let own = if announces.sets || announces.points || put_off { out.queue.to.len() } else { before };
        self.send(out, own)
    }

    /// Sends the built messages; what begins at `own` can be withdrawn.
    fn send(&self, mut out: Sending<'_>, own: usize) -> Result<Option<u64>, CallFailure> {
        let owed = self.socket.outbox.owes_replies();
        let posted =
            out.queue.post(own, now(), |octets| self.socket.write_now(octets)).map_err(|error| self.fail(&error))?;
        let (waits, first) = (out.queue.is_behind(), out.list());
        drop(out);
        if owed && !self.socket.outbox.owes_replies() {
            self.read_on();
        }
        match &self.both {
            Some(both) if waits && !both.lane.list_waiting(first) => {
                Err(self.fail(&io::ErrorKind::ConnectionAborted.into()))
            }
            _ => Ok(posted),
        }
    }

    /// The right to add a request, once there is room.
    fn room(&self, until: Option<Instant>) -> Result<Sending<'_>, CallFailure> {
        loop {
            if let Some(out) = self.try_room()? {
                return Ok(out);
            }
            self.wait(until)?;
        }
    }

    /// The same; `None` without room.
    fn try_room(&self) -> Result<Option<Sending<'_>>, CallFailure> {
        let mut out = self.socket.outbox.lock();
        self.push_on(&mut out)?;
        Ok((out.len() <= self.limits.backlog).then_some(out))
    }

    /// Waits until the request of a ticket is sent. When the time is over, it is withdrawn if possible, unless it is
    /// another caller's.
    fn deliver(&self, ticket: Option<u64>, until: Option<Instant>, is_own: bool) -> Result<(), CallFailure> {
        let Some(ticket) = ticket else { return Ok(()) };
        loop {
            let waited = self.wait(until);
            let mut out = self.socket.outbox.lock();
            let pushed = self.push_on(&mut out);
            if out.queue.is_gone(ticket) {
                return Ok(());
            }
            pushed?;
            if out.queue.is_dropped(ticket) {
                return Err(self.unsent());
            }
            if waited.is_err() {
                if is_own && out.queue.take_back(ticket) {
                    return Err(CallFailure::SendTimedOut);
                }
                self.housekeeping.wake(false);
                return Err(CallFailure::TimedOut);
            }
        }
    }

    /// Waits until the socket accepts something, or should be checked.
    fn wait(&self, until: Option<Instant>) -> Result<(), CallFailure> {
        let left = until.map_or(CHECK, |until| until.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Err(CallFailure::SendTimedOut);
        }
        self.socket.wait_for_room(left.min(CHECK)).map(drop).map_err(|error| self.fail(&error))
    }

    /// Sends what waits, as far as the socket accepts it. If a server accepts nothing for long, all callers that share
    /// the connection lose it.
    fn push_on(&self, out: &mut Sending<'_>) -> Result<(), CallFailure> {
        if self.is_closing() {
            return Err(self.unsent());
        }
        if !out.queue.is_behind() {
            return Ok(());
        }
        out.flush(now(), |octets| self.socket.write_now(octets)).map_err(|error| self.fail(&error))?;
        if !self.socket.outbox.owes_replies() {
            self.read_on();
        }
        if out.queue.since().is_some_and(|since| now().saturating_sub(since) > millis(self.limits.stalled)) {
            self.close();
            return Err(CallFailure::Unsent);
        }
        Ok(())
    }

    /// Closes it at once, before the reading thread notices the error.
    #[cold]
    fn fail(&self, error: &io::Error) -> CallFailure {
        let refused = refused(error);
        // The reason first: callers that find it closed look for it.
        if let Some(why) = &refused {
            self.ended.get_or_init(|| why.clone());
        }
        self.close();
        refused.unwrap_or_else(|| self.unsent())
    }

    /// Why nothing can be sent.
    fn unsent(&self) -> CallFailure {
        match self.ended.get() {
            Some(failure @ CallFailure::Tls(_)) => failure.clone(),
            _ => CallFailure::Unsent,
        }
    }

    /// Sends delayed requests, and waits until they are sent.
    pub(super) fn flush(&self) {
        let posted = self.post_all(self.socket.outbox.lock());
        // A caller that wants to know the outcome does not delay its request.
        let _ =
            posted.and_then(|ticket| self.deliver(ticket, Some(Instant::now() + duration(self.limits.stalled)), false));
    }

    /// Sends delayed requests without waiting. True if some are left.
    pub(super) fn try_flush(&self) -> bool {
        let Some(mut out) = self.socket.outbox.try_lock() else { return true };
        if out.is_empty() || self.push_on(&mut out).is_err() {
            return false;
        }
        matches!(self.post_all(out), Ok(Some(_)))
    }

    fn post_all(&self, out: Sending<'_>) -> Result<Option<u64>, CallFailure> {
        if self.is_closing() {
            return Err(self.unsent());
        }
        let all = out.queue.to.len();
        self.send(out, all)
    }

    /// No caller waits for the reply to `id` any more: sends a cancel request, without waiting.
    pub(crate) fn cancel(&self, id: u32, version: Version) {
        if self.forget(id) {
            self.send_cancel(id, version);
        }
    }

    fn forget(&self, id: u32) -> bool {
        self.waiting.lock().as_mut().is_some_and(|waiting| waiting.remove(&id).is_some())
    }
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.socket.link.close();
    }

    /// Ends the calls over it. The lane of a connection that carries calls both ways closes it in the orderly way.
    pub(super) fn end(&self) {
        if self.both.is_none() {
            return self.close();
        }
        self.closing.store(true, Ordering::Release);
        self.over(CallFailure::Lost);
    }

    fn read(&self) {
        let mut incoming = Incoming::new(Limits { message: self.limits.message, ..Limits::default() });
        let mut buffer = vec![0; BUFFER];
        let why = loop {
            match receive(&mut &*self, &mut incoming, &mut buffer, &mut ReadBudget::unbounded()) {
                Ok(TurnEnd::Idle | TurnEnd::Spent) => {}
                Ok(TurnEnd::Stopped(why)) => break why,
                Err(error) => break error.into(),
            }
        };
        // Before callers find it closed, as in `fail`.
        let why = self.ended.get_or_init(|| why).clone();
        self.close();
        self.over(why);
    }

    /// The connection is over, or is about to be: all callers get the reason. The first reason counts.
    pub(crate) fn over(&self, why: CallFailure) {
        let why = self.ended.get_or_init(|| why);
        self.closing.store(true, Ordering::Release);
        let waiting = self.waiting.lock().take();
        for waiter in waiting.into_iter().flat_map(HashMap::into_values) {
            waiter.keep(Err(why.clone()));
        }
    }

    /// Passes a reply to its caller; the reply to a cancelled request is dropped.
    pub(crate) fn replied(&self, id: u32, reply: &Received<'_>) {
        let waiter = self.waiting.lock().as_mut().and_then(|waiting| waiting.remove(&id));
        if let Some(waiter) = waiter {
            waiter.keep(Ok(reply.keep()));
        }
    }
}

/// Passes replies to their callers until the connection ends.
impl CancelPath for Mux {
    fn send_cancel(&self, id: u32, version: Version) {
        // Adds a few octets for each request that had room: bounded by those in flight.
        let mut out = self.socket.outbox.lock();
        let to = &mut out.queue.to;
        to.speak(version, to.chars());
        if cancel_request(id, to).is_ok() && matches!(self.post_all(out), Ok(Some(_))) {
            self.housekeeping.wake(false);
        }
    }

    fn give_up(&self, request: u32) {
        let reply = self.waiting.lock().as_mut().and_then(|waiting| waiting.remove(&request));
        reply.inspect(|reply| reply.keep(Err(CallFailure::TimedOut)));
    }

    fn address(&self) -> Option<SocketAddr> {
        self.socket.link.addresses().0
    }
}

impl Receiver for &Mux {
    type Stop = CallFailure;

    fn read(&mut self, place: &mut [u8], _: bool) -> io::Result<usize> {
        self.socket.link.read(place, May::Wait)
    }

    fn message(&mut self, Whole { received, .. }: Whole<'_>) -> ControlFlow<CallFailure, Option<Parked>> {
        match reply(&received, CharSet::Latin1) {
            Ok(reply) => self.replied(reply.id, &received),
            Err(failure) => return ControlFlow::Break(failure),
        }
        ControlFlow::Continue(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct AnyLane;

    impl DuplexLane for AnyLane {
        fn list_waiting(&self, _: bool) -> bool {
            true
        }

        fn read_on(&self) {}
    }

    #[test]
    fn a_oneway_that_waits_when_the_lane_closes_its_connection_was_not_sent() {
        let listener = hyoshi_os::Listener::bind(&"127.0.0.1:0".parse().map(hyoshi_os::SocketAddress::Tcp).unwrap());
        let listener = listener.unwrap();
        let stream = hyoshi_os::SocketStream::connect(listener.address(), Duration::from_secs(5)).unwrap();
        let socket = Arc::new(Socket::new(stream.into(), Arc::default()));
        let both = BothWays { lane: Box::new(AnyLane), offer: None };
        let mux = Mux::new(socket.clone(), Some(both), &ClientLimits::default(), &Arc::default());
        std::thread::scope(|scope| {
            let post = scope.spawn(|| {
                mux.post(false, None, |_, _, to| {
                    to.raw(&vec![0; 64 << 20]);
                    Ok(Announced::default())
                })
            });
            while !socket.outbox.is_behind() {
                std::thread::yield_now();
            }
            // As `Lane::close` does.
            mux.over(CallFailure::Lost);
            socket.link.close();
            socket.outbox.clear();
            assert_eq!(post.join().unwrap(), Err(CallFailure::Unsent));
        });
    }
}
