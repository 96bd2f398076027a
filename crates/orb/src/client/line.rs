//! A connection that one call at a time has for itself: it writes once and reads its own reply.

use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use hyoshi_model::Span;
use hyoshi_os::May;
use hyoshi_os::clock::coarse;
use hyoshi_wire::giop::{Message, Received, Reply, cancel_request};
use hyoshi_wire::{ByteOrder, CharSet, Encoder, Limits, Version};

use crate::channel::{Incoming, Parked, ReadBudget, Receiver, TurnEnd, Whole, receive};
use crate::failure::CallFailure;
use crate::socket::refused;
use crate::stream::MaybeTlsStream;

/// Connections that were unused for longer than this are checked before they are used again: the server may have
/// closed them meanwhile.
const FRESH: Span = Span::from_millis(50);

/// See the module.
#[derive(Debug)]
pub(crate) struct Line {
    stream: Arc<MaybeTlsStream>,
    incoming: Incoming,
    /// Even: odd ones are the server's, where it calls back over the connection.
    next: u32,
    /// The code sets are announced.
    pub(crate) announced: bool,
    /// When its last call began, on the coarse clock: one look at it for each call.
    pub(super) used: Span,
    /// What the socket's timeouts are set to.
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
    /// Requests whose callers no longer wait.
    late: Vec<u32>,
    /// How many connections to the server had ended when it was last known to be usable.
    pub(super) doubts: u32,
    /// Its place among those that there may be.
    pub(super) place: Option<ConnectionPermit>,
}

/// A place among the connections that there may be to a server, until it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit(Arc<AtomicUsize>);

impl ConnectionPermit {
    /// One, if fewer than `most` are taken.
    pub(super) fn take(taken: &Arc<AtomicUsize>, most: usize) -> Option<ConnectionPermit> {
        let room = |taken| (taken < most).then_some(taken + 1);
        taken.fetch_update(Ordering::AcqRel, Ordering::Relaxed, room).ok().map(|_| ConnectionPermit(taken.clone()))
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Line {
    pub(super) fn new(stream: MaybeTlsStream, most: usize) -> io::Result<Line> {
        // Connecting to a Unix socket has set one.
        stream.write_timeout(None)?;
        let incoming = Incoming::new(Limits { message: most, ..Limits::default() });
        Ok(Line {
            stream: Arc::new(stream),
            incoming,
            next: 0,
            announced: false,
            used: coarse(),
            read_timeout: None,
            write_timeout: None,
            late: Vec::new(),
            doubts: 0,
            place: None,
        })
    }

    /// Its stream, to cancel the call.
    pub(crate) fn stream(&self) -> Arc<MaybeTlsStream> {
        self.stream.clone()
    }

    /// Its stream, to end all calls.
    pub(super) fn link(&self) -> Weak<MaybeTlsStream> {
        Arc::downgrade(&self.stream)
    }

    #[inline]
    pub(crate) fn next_id(&mut self) -> u32 {
        self.next = self.next.wrapping_add(2);
        self.next
    }

    /// True if it can be used again. If the server's certificate has expired, a new handshake is needed.
    #[inline]
    pub(super) fn is_usable(&self, now: Span, doubts: u32) -> bool {
        let is_fresh = now.saturating_sub(self.used) < FRESH && self.doubts == doubts;
        (is_fresh || self.stream.is_quiet()) && !self.stream.has_expired()
    }

    /// True while a late reply has not arrived.
    pub(super) fn is_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// Sends a request.
    #[inline]
    pub(crate) fn send(&mut self, request: &[u8], until: Option<Instant>) -> Result<(), CallFailure> {
        let mut rest = request;
        while !rest.is_empty() {
            // Anew for each part: a server that takes a little now and then must not put the end off.
            let timeout = left(until).map_err(|_| CallFailure::SendTimedOut)?;
            if timeout != self.write_timeout {
                self.stream.write_timeout(timeout).map_err(|_| CallFailure::Unsent)?;
                self.write_timeout = timeout;
            }
            // What arrived in part only cannot be carried out.
            let sent = self.stream.write(rest, May::Wait).map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => CallFailure::SendTimedOut,
                _ => refused(&error).unwrap_or(CallFailure::Unsent),
            })?;
            rest = &rest[sent..];
        }
        Ok(())
    }

    /// Waits for the reply to `id`, and shows it to `accept`.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        id: u32,
        until: Option<Instant>,
        buffer: &mut [u8],
        accept: impl FnOnce(Reply<'_>) -> Result<(), CallFailure>,
        chars: CharSet,
    ) -> Result<(), CallFailure> {
        let Line { stream, incoming, read_timeout, late, .. } = self;
        let (wanted, wait) = (Some((id, accept)), May::Wait);
        let mut replies = Replies { stream, late, wanted, wait, until, read_timeout, chars };
        match receive(&mut replies, incoming, buffer, &mut ReadBudget::unbounded())? {
            TurnEnd::Stopped(outcome) => outcome,
            TurnEnd::Idle | TurnEnd::Spent => Err(CallFailure::TimedOut),
        }
    }

    /// True if nothing is left on it that was not asked for.
    #[inline]
    pub(super) fn is_clean(&self) -> bool {
        !self.incoming.holds_some() && !self.incoming.has_begun()
    }

    /// The caller no longer waits for the reply to `id`: sends a cancel request. True if the connection can be used
    /// once the reply has arrived.
    pub(crate) fn cancel(&mut self, id: u32, version: Version) -> bool {
        let mut to = Encoder::new(ByteOrder::NATIVE);
        to.speak(version, Default::default());
        let sent = cancel_request(id, &mut to).is_ok()
            && self.stream.write(to.bytes(), May::Never).is_ok_and(|sent| sent == to.len());
        self.late.push(id);
        sent && self.late.len() < 8
    }

    /// Receives late replies, without waiting. False if the connection is over.
    pub(super) fn drain(&mut self, buffer: &mut [u8]) -> bool {
        type Unused = fn(Reply<'_>) -> Result<(), CallFailure>;
        let Line { stream, incoming, read_timeout, late, .. } = self;
        let (wanted, wait, until, chars) = (None::<(u32, Unused)>, May::Never, None, CharSet::Latin1);
        let mut replies = Replies { stream, late, wanted, wait, until, read_timeout, chars };
        let end = receive(&mut replies, incoming, buffer, &mut ReadBudget::unbounded());
        matches!(end, Ok(TurnEnd::Idle))
    }

    pub(crate) fn close(self) {
        self.stream.close();
    }
}

/// Receives the reply of a call, and late ones.
struct Replies<'a, F> {
    stream: &'a MaybeTlsStream,
    late: &'a mut Vec<u32>,
    /// The id of the call's reply, and what accepts it.
    wanted: Option<(u32, F)>,
    wait: May,
    until: Option<Instant>,
    /// What the socket's timeout is set to.
    read_timeout: &'a mut Option<Duration>,
    chars: CharSet,
}

impl<F: FnOnce(Reply<'_>) -> Result<(), CallFailure>> Receiver for Replies<'_, F> {
    type Stop = Result<(), CallFailure>;

    #[inline]
    fn read(&mut self, place: &mut [u8], more: bool) -> io::Result<usize> {
        // The timeout is that of one read: a reply in parts must not have it several times.
        if self.wait == May::Never || (more && self.until.is_some()) {
            return self.stream.read(place, May::Never);
        }
        let timeout = left(self.until).map_err(|_| io::ErrorKind::WouldBlock)?;
        if timeout != *self.read_timeout {
            self.stream.read_timeout(timeout)?;
            *self.read_timeout = timeout;
        }
        self.stream.read(place, self.wait)
    }

    #[inline]
    fn message(&mut self, whole: Whole<'_>) -> ControlFlow<Self::Stop, Option<Parked>> {
        let reply = match reply(&whole.received, self.chars) {
            Ok(reply) => reply,
            Err(failure) => return ControlFlow::Break(Err(failure)),
        };
        if let Some((_, accept)) = self.wanted.take_if(|(id, _)| *id == reply.id) {
            return ControlFlow::Break(accept(reply));
        }
        match self.late.iter().position(|late| *late == reply.id) {
            Some(late) => self.late.swap_remove(late),
            None => return ControlFlow::Break(Err(CallFailure::Garbled)),
        };
        ControlFlow::Continue(None)
    }
}

/// The reply that a server sent, or why there is none.
#[inline]
pub(super) fn reply<'a>(received: &Received<'a>, chars: CharSet) -> Result<Reply<'a>, CallFailure> {
    match received.decode_in(chars) {
        Ok(Message::Reply(reply)) => Ok(reply),
        Ok(Message::CloseConnection) => Err(CallFailure::Closed),
        Ok(Message::MessageError) => Err(CallFailure::NotUnderstood),
        _ => Err(CallFailure::Garbled),
    }
}

/// What is left of the time, if it is bounded: in whole milliseconds, up, so that calls with the same timeout need no
/// system call to set it. The kernel counts in ticks of 1 ms at best.
#[inline]
fn left(until: Option<Instant>) -> Result<Option<Duration>, CallFailure> {
    match until {
        None => Ok(None),
        Some(until) => match until.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => {
                let millis = left.as_nanos().div_ceil(1_000_000);
                Ok(Some(Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))))
            }
            _ => Err(CallFailure::TimedOut),
        },
    }
}
