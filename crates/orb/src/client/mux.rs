//! A connection that calls share: a thread of its own reads the replies and hands them to those that wait; where calls go
//! both ways over it, that of the connection's lane.
//!
//! No lock is held while anybody waits: requests go through an [`Outgoing`], and a caller whose request the socket does not
//! take waits for room, up to its own deadline. A request of which nothing was sent by then is taken back; one that was
//! begun is completed by whoever sends next, or by the ORB's care.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hyoshi_model::Span;
use hyoshi_os::clock::coarse;
use hyoshi_os::{May, PiGuard, PiMutex, Spawn, Wake};
use hyoshi_wire::giop::{Kept, Received, cancel_request};
use hyoshi_wire::{CharSet, EncodeError, Encoder, Limits, Version};

use super::line::{fetch, refused, reply};
use super::outlet::{BothWays, Outlet};
use crate::care::Care;
use crate::channel::{Incoming, Outgoing, Whole};
use crate::failure::Failure;
use crate::intake::BUFFER;
use crate::limits::{ClientLimits, duration};
use crate::link::Link;
use crate::promise;

/// How long those who wait for the socket do so at a time, before they look whether it has stalled.
const LOOK: Duration = Duration::from_millis(250);

/// See the module.
#[derive(Debug)]
pub(crate) struct Mux {
    outlet: Outlet,
    out: PiMutex<Out>,
    /// Those that wait, by request id; none once the connection is over.
    waiting: PiMutex<Option<HashMap<u32, Arc<Waiter>>>>,
    next: AtomicU32,
    limits: ClientLimits,
    care: Arc<Care>,
    closing: AtomicBool,
    /// Why it is over.
    ended: OnceLock<Failure>,
    /// The context that offers calls in the other direction.
    offer: Option<Arc<[u8]>>,
}

/// What a request is to say for the first time on its connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening<'a> {
    /// The code sets.
    pub(super) sets: bool,
    /// The listen points: this context.
    pub(super) offer: Option<&'a [u8]>,
}

/// What of that a request has said.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    pub(super) sets: bool,
    pub(super) offer: bool,
}

#[derive(Debug)]
struct Out {
    requests: Outgoing,
    /// What the server has been told.
    told: Told,
    /// On the coarse clock.
    used: Span,
}

impl Out {
    /// True if nothing waits to be sent.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Octets that wait, or are put off.
    fn len(&self) -> usize {
        self.requests.held() + self.requests.to.len()
    }
}

/// On the coarse clock.
fn now() -> u64 {
    coarse().as_nanos()
}

/// A place for a reply.
#[derive(Debug)]
pub(super) struct Waiter {
    arrived: Wake,
    reply: PiMutex<Option<Result<Kept, Failure>>>,
}

impl Waiter {
    fn fill(&self, reply: Result<Kept, Failure>) {
        *self.reply.lock() = Some(reply);
        self.arrived.post();
    }

    /// True once something has come.
    pub(super) fn is_filled(&self) -> bool {
        self.reply.lock().is_some()
    }

    /// Waits for the reply, as a whole message.
    pub(super) fn wait(&self, until: Option<Instant>) -> Result<Kept, Failure> {
        loop {
            if let Some(reply) = self.reply.lock().take() {
                return reply;
            }
            if !promise::wait(&self.arrived, until) {
                return Err(Failure::TimedOut);
            }
        }
    }
}

/// Builds a request: is given the id and what is to be told for the first time, and says what it tells.
pub(super) trait Build: FnOnce(u32, Opening<'_>, &mut Encoder) -> Result<Told, EncodeError> {}

impl<F: FnOnce(u32, Opening<'_>, &mut Encoder) -> Result<Told, EncodeError>> Build for F {}

impl Mux {
    /// Starts to read.
    pub(super) fn start(stream: Link, limits: &ClientLimits, care: &Arc<Care>) -> io::Result<Arc<Mux>> {
        let mux = Arc::new(Mux::over_outlet(Outlet::Own(stream), limits, care, 0, None));
        let reading = mux.clone();
        Spawn::new("orb-replies").spawn(move || {
            if let Outlet::Own(stream) = &reading.outlet {
                reading.read(stream);
            }
        })?;
        Ok(mux)
    }

    /// Calls over a connection that somebody else reads, if the outlet is of such; `first` is the first id.
    pub(super) fn over_outlet(
        outlet: Outlet,
        limits: &ClientLimits,
        care: &Arc<Care>,
        first: u32,
        offer: Option<Arc<[u8]>>,
    ) -> Mux {
        let requests = Outgoing::new(outlet.is_sticky());
        // The opener of a connection tells of code sets, for both sides.
        let told = Told { sets: first % 2 == 1, offer: false };
        Mux {
            outlet,
            out: PiMutex::new(Out { requests, told, used: coarse() }),
            waiting: PiMutex::new(Some(HashMap::new())),
            next: AtomicU32::new(first),
            limits: limits.clone(),
            care: care.clone(),
            closing: AtomicBool::new(false),
            ended: OnceLock::new(),
            offer,
        }
    }

    /// What narrow characters are, if the other side may already have agreed upon that.
    pub(super) fn chars(&self) -> Option<CharSet> {
        self.outlet.both().and_then(BothWays::chars)
    }

    /// True while anybody waits for a reply.
    pub(crate) fn waits(&self) -> bool {
        self.waiting.lock().as_ref().is_some_and(|waiting| !waiting.is_empty())
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.is_closing() && self.waiting.lock().is_some()
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Closes it if it was unused for long, or is unused and the server's certificate has expired. A call that is
    /// about to use it finds it closed before it sends anything.
    pub(super) fn retire(&self, now: Span) -> bool {
        // If it carries calls both ways, the peer may call at any time.
        let Outlet::Own(link) = &self.outlet else { return false };
        let Some(out) = self.out.try_lock() else { return false };
        let is_old = now.saturating_sub(out.used) > self.limits.idle || link.has_expired();
        let unused = is_old && out.is_empty();
        let retires = unused && self.waiting.lock().as_ref().is_none_or(HashMap::is_empty);
        if retires {
            self.close();
        }
        retires
    }

    /// Sends a request, and promises its reply.
    pub(super) fn request(&self, until: Option<Instant>, build: impl Build) -> Result<(u32, Arc<Waiter>), Failure> {
        let id = self.next_id();
        let waiter = Arc::new(Waiter { arrived: Wake::new(), reply: PiMutex::new(None) });
        {
            let mut waiting = self.waiting.lock();
            let waiting = waiting.as_mut().ok_or_else(|| self.unsent())?;
            if waiting.len() >= self.limits.in_flight {
                return Err(Failure::InFlight);
            }
            waiting.insert(id, waiter.clone());
        }
        self.outlet.both().inspect(|both| both.expect());
        let mut version = Version::default();
        let own = |id, tell: Opening<'_>, to: &mut Encoder| {
            let tells = build(id, tell, to);
            version = to.version();
            tells
        };
        let sent = self.put(id, false, until, own).and_then(|ticket| self.deliver(ticket, until));
        match sent {
            Ok(()) => Ok((id, waiter)),
            Err(failure) => {
                // It will be completed; behind it the server is told that nobody waits.
                match failure {
                    Failure::TimedOut => self.cancel(id, version),
                    _ => _ = self.forget(id),
                }
                Err(failure)
            }
        }
    }

    /// Sends a request to which no reply comes, or puts it off to be sent with others: then it waits for nothing but
    /// room.
    pub(super) fn post(&self, put_off: bool, until: Option<Instant>, build: impl Build) -> Result<(), Failure> {
        let ticket = self.put(self.next_id(), put_off, until, build)?;
        if put_off { Ok(()) } else { self.deliver(ticket, until) }
    }

    fn next_id(&self) -> u32 {
        self.next.fetch_add(2, Ordering::Relaxed)
    }

    /// Builds a request, and sends what of it goes at once; a ticket if that is not all.
    fn put(&self, id: u32, put_off: bool, until: Option<Instant>, build: impl Build) -> Result<Option<u64>, Failure> {
        let out = &mut *self.room(until)?;
        let before = out.requests.to.len();
        let Told { sets, offer } = out.told;
        let opening = Opening { sets: !sets, offer: self.offer.as_deref().filter(|_| !offer) };
        let tells = build(id, opening, &mut out.requests.to).map_err(|error| {
            out.requests.to.truncate(before);
            Failure::Encode(error)
        })?;
        if tells.sets {
            self.outlet.both().inspect(|both| both.agree(out.requests.to.chars()));
        }
        out.told = Told { sets: sets | tells.sets, offer: offer | tells.offer };
        out.used = coarse();
        if put_off && out.requests.to.len() < self.limits.batch {
            return Ok(None);
        }
        // What tells the code sets, or listen points, must go: those behind it count on that.
        let own = if tells.sets || tells.offer || put_off { out.requests.to.len() } else { before };
        out.requests.post(own, now(), |octets| self.outlet.write(octets)).map_err(|error| self.fail(&error))
    }

    /// The right to add a request, once so few octets wait that there is room.
    fn room(&self, until: Option<Instant>) -> Result<PiGuard<'_, Out>, Failure> {
        loop {
            {
                let mut out = self.out.lock();
                self.push_on(&mut out)?;
                if out.len() <= self.limits.backlog {
                    return Ok(out);
                }
            }
            self.wait(until)?;
        }
    }

    /// Waits until what a ticket stands for is sent. When time is over, it is taken back if it can be.
    fn deliver(&self, ticket: Option<u64>, until: Option<Instant>) -> Result<(), Failure> {
        let Some(ticket) = ticket else { return Ok(()) };
        loop {
            let waited = self.wait(until);
            let mut out = self.out.lock();
            let pushed = self.push_on(&mut out);
            if out.requests.is_gone(ticket) {
                return Ok(());
            }
            pushed?;
            if waited.is_err() {
                if out.requests.take_back(ticket) {
                    return Err(Failure::SendTimedOut);
                }
                self.care.stir(false);
                return Err(Failure::TimedOut);
            }
        }
    }

    /// Waits until the socket takes something, or is to be looked at.
    fn wait(&self, until: Option<Instant>) -> Result<(), Failure> {
        let left = until.map_or(LOOK, |until| until.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Err(Failure::SendTimedOut);
        }
        self.outlet.wait(left.min(LOOK)).map_err(|error| self.fail(&error))
    }

    /// Sends what waits, as far as it goes. A server that takes nothing for long is lost to all that share the connection.
    fn push_on(&self, out: &mut Out) -> Result<(), Failure> {
        if self.is_closing() {
            return Err(self.unsent());
        }
        let sent = out.requests.flush(now(), |octets| self.outlet.write(octets));
        sent.map_err(|error| self.fail(&error))?;
        if out.requests.since().is_some_and(|since| now().saturating_sub(since) > self.limits.stalled.as_nanos()) {
            self.close();
            return Err(Failure::Unsent);
        }
        Ok(())
    }

    /// Not to be found again, whenever the thread that reads gets to see it.
    #[cold]
    fn fail(&self, error: &io::Error) -> Failure {
        let told = refused(error);
        // The reason first: who finds it closed asks for it.
        if let Some(why) = &told {
            self.ended.get_or_init(|| why.clone());
        }
        self.close();
        told.unwrap_or_else(|| self.unsent())
    }

    /// Why nothing can be sent.
    fn unsent(&self) -> Failure {
        match self.ended.get() {
            Some(failure @ Failure::Tls(_)) => failure.clone(),
            _ => Failure::Unsent,
        }
    }

    /// Sends what was put off, and waits until it is sent.
    pub(super) fn flush(&self) {
        let posted = self.post_all(&mut self.out.lock());
        // Whoever wanted to know would not have put it off.
        let _ = posted.and_then(|ticket| self.deliver(ticket, Some(Instant::now() + duration(self.limits.stalled))));
    }

    /// The same without waiting for anybody. True if some is left.
    pub(super) fn try_flush(&self) -> bool {
        let Some(mut out) = self.out.try_lock() else { return true };
        if out.is_empty() || self.push_on(&mut out).is_err() {
            return false;
        }
        matches!(self.post_all(&mut out), Ok(Some(_)))
    }

    fn post_all(&self, out: &mut Out) -> Result<Option<u64>, Failure> {
        if self.is_closing() {
            return Err(self.unsent());
        }
        let all = out.requests.to.len();
        out.requests.post(all, now(), |octets| self.outlet.write(octets)).map_err(|error| self.fail(&error))
    }

    /// Nobody waits for the reply to `id` any more: tells the server, without waiting.
    pub(super) fn cancel(&self, id: u32, version: Version) {
        if !self.forget(id) {
            return;
        }
        // Adds a few octets for each request that had room: bounded by those in flight.
        let out = &mut *self.out.lock();
        let to = &mut out.requests.to;
        to.speak(version, to.chars());
        if cancel_request(id, to).is_ok() && matches!(self.post_all(out), Ok(Some(_))) {
            self.care.stir(false);
        }
    }

    fn forget(&self, id: u32) -> bool {
        self.waiting.lock().as_mut().is_some_and(|waiting| waiting.remove(&id).is_some())
    }

    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.outlet.close();
    }

    /// Ends the calls over it. A connection that carries calls both ways is left to its lane, which says farewell.
    pub(super) fn end(&self) {
        match self.outlet {
            Outlet::Own(_) => self.close(),
            Outlet::Both(_) => {
                self.closing.store(true, Ordering::Release);
                self.over(Failure::Lost);
            }
        }
    }

    fn read(&self, stream: &Link) {
        let mut incoming = Incoming::new(Limits { message: self.limits.message, ..Limits::default() });
        let mut buffer = vec![0; BUFFER];
        let Err(why) = self.hand_out(stream, &mut incoming, &mut buffer);
        // Before anybody finds it closed, as in `fail`.
        let why = self.ended.get_or_init(|| why).clone();
        self.close();
        self.over(why);
    }

    /// The connection has ended, or is about to: nobody waits for a reply any more. The first reason counts.
    pub(crate) fn over(&self, why: Failure) {
        let why = self.ended.get_or_init(|| why);
        let waiting = self.waiting.lock().take();
        for waiter in waiting.into_iter().flat_map(HashMap::into_values) {
            waiter.fill(Err(why.clone()));
        }
    }

    /// Hands a reply to whoever waits for it; nobody does if it was cancelled.
    pub(crate) fn replied(&self, id: u32, reply: &Received<'_>) {
        let waiter = self.waiting.lock().as_mut().and_then(|waiting| waiting.remove(&id));
        if let Some(waiter) = waiter {
            waiter.fill(Ok(reply.keep()));
        }
    }

    /// Hands out replies until the connection ends, and tells why it did.
    fn hand_out(&self, stream: &Link, incoming: &mut Incoming, buffer: &mut [u8]) -> Result<Infallible, Failure> {
        loop {
            while let Some(Whole { received, .. }) = incoming.next(buffer).map_err(|_| Failure::Garbled)? {
                self.replied(reply(&received, CharSet::Latin1)?.id, &received);
            }
            fetch(stream, incoming, buffer, May::Wait, May::Wait)?;
        }
    }
}
