//! Queue of whole messages for a socket, for any size that the socket accepts at a time. It never waits; callers that
//! wait take turns to flush it.

use std::collections::VecDeque;
use std::io;

use hyoshi_wire::{ByteOrder, Encoder};

use super::Pace;

/// Memory of the sent part of a large message is released in pieces of this size.
const PIECE: usize = 1 << 20;

/// Messages for the other side.
///
/// ```text
///             post, send: the socket takes a part
///   Idle ────────────────────────────────────────────► Waiting, a deadline runs
///    ▲                                                   │ flush: the socket takes some; take_back: a caller gave up,
///    └───────────────────────────────────────────────────┘ and none of its message has gone
///             nothing is left
/// ```
///
/// Times are of any one clock and unit.
#[derive(Debug)]
pub(crate) struct SendQueue {
    /// Messages are built here. Delayed messages wait here for the next one.
    pub(crate) to: Encoder,
    writing: Writing,
    queue: VecDeque<Parcel>,
    /// Octets of the queue.
    held: usize,
    next: u64,
    /// The first ticket of dropped messages.
    dropped: u64,
    /// True if a rejected write must be repeated with the same octets: TLS has enciphered them.
    sticky: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    /// Nothing waits.
    Idle,
    /// Messages wait since `begun`; so many octets were sent since, the last at `since`.
    Waiting { begun: u64, gone: usize, since: u64 },
}

/// Messages that the socket did not take at once.
#[derive(Debug)]
struct Parcel {
    ticket: u64,
    octets: Vec<u8>,
    sent: usize,
    /// From here on it can be taken back, unless it was begun.
    own: usize,
    begun: bool,
}

impl SendQueue {
    pub(crate) fn new(sticky: bool) -> Self {
        let (to, queue) = (Encoder::new(ByteOrder::NATIVE), VecDeque::new());
        SendQueue { to, writing: Writing::Idle, queue, held: 0, next: 0, dropped: u64::MAX, sticky }
    }

    /// True if some waits for the socket.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The ticket of the last message that had to wait.
    pub(crate) fn last(&self) -> u64 {
        self.next
    }

    /// Octets that wait for the socket.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Octets that the socket took since some wait.
    #[inline]
    pub(crate) fn gone(&self) -> usize {
        match self.writing {
            Writing::Waiting { gone, .. } => gone,
            Writing::Idle => 0,
        }
    }

    /// When the socket last took some, while some waits.
    pub(crate) fn since(&self) -> Option<u64> {
        match self.writing {
            Writing::Waiting { since, .. } => Some(since),
            Writing::Idle => None,
        }
    }

    /// After this the other side is too slow; none if nothing waits.
    pub(crate) fn deadline(&self, pace: Pace) -> Option<u64> {
        match self.writing {
            Writing::Waiting { begun, gone, since } => Some(pace.end(begun, gone).min(pace.end(since, 0))),
            Writing::Idle => None,
        }
    }

    /// Sends a message after the waiting ones, as far as the socket accepts it. True if all was sent.
    #[inline]
    pub(crate) fn send(
        &mut self,
        octets: &[u8],
        now: impl FnOnce() -> u64,
        mut write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<bool> {
        let sent = if self.queue.is_empty() { some(write(octets))? } else { 0 };
        if sent < octets.len() {
            let begun = self.sticky && self.queue.is_empty();
            self.put(octets[sent..].to_vec(), octets.len(), begun, now());
        }
        Ok(sent == octets.len())
    }

    /// Sends the built messages after the waiting ones. Returns a ticket if some octets are left: see
    /// [`is_gone`](Self::is_gone). What begins at `own` can be taken back.
    pub(crate) fn post(
        &mut self,
        own: usize,
        now: u64,
        mut write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<Option<u64>> {
        self.flush(now, &mut write)?;
        let octets = self.to.bytes();
        if octets.is_empty() {
            return Ok(self.queue.back().map(|last| last.ticket));
        }
        let first = self.queue.is_empty();
        let sent = if first { some(write(octets))? } else { 0 };
        if sent == octets.len() {
            self.to.clear();
            return Ok(None);
        }
        let rest = octets[sent..].to_vec();
        // Keeps no memory that one large message needed.
        self.to = Encoder::new(ByteOrder::NATIVE);
        self.put(rest, own, sent > 0 || (first && self.sticky), now);
        Ok(Some(self.next))
    }

    fn put(&mut self, octets: Vec<u8>, own: usize, begun: bool, now: u64) {
        if self.queue.is_empty() {
            self.writing = Writing::Waiting { begun: now, gone: 0, since: now };
        }
        self.next += 1;
        self.held += octets.len();
        self.queue.push_back(Parcel { ticket: self.next, octets, sent: 0, own, begun });
    }

    /// Sends waiting messages, as far as the socket accepts them.
    pub(crate) fn flush(&mut self, now: u64, mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        while let Some(parcel) = self.queue.front_mut() {
            let count = some(write(&parcel.octets[parcel.sent..]))?;
            parcel.begun |= count > 0 || self.sticky;
            if count == 0 {
                return Ok(());
            }
            parcel.sent += count;
            if let Writing::Waiting { gone, since, .. } = &mut self.writing {
                (*gone, *since) = (*gone + count, now);
            }
            if parcel.sent == parcel.octets.len() {
                self.held -= parcel.octets.len();
                self.queue.pop_front();
            } else if parcel.sent >= PIECE {
                self.held -= parcel.sent;
                parcel.octets.drain(..std::mem::take(&mut parcel.sent));
                parcel.octets.shrink_to_fit();
            }
        }
        self.clear();
        Ok(())
    }

    /// Drops waiting messages: the connection is over.
    pub(crate) fn abandon(&mut self) {
        if let Some(first) = self.queue.front() {
            self.dropped = self.dropped.min(first.ticket);
        }
        self.clear();
    }

    fn clear(&mut self) {
        (self.writing, self.queue, self.held) = (Writing::Idle, VecDeque::new(), 0);
    }

    /// True once all that was posted with this ticket, and before, is sent.
    pub(crate) fn is_gone(&self, ticket: u64) -> bool {
        !self.is_dropped(ticket) && self.queue.front().is_none_or(|first| first.ticket > ticket)
    }

    /// True if it was dropped, at least in part.
    pub(crate) fn is_dropped(&self, ticket: u64) -> bool {
        ticket >= self.dropped
    }

    /// Takes back an unsent message. False if a part was sent, or other messages depend on it: then it will be
    /// completed.
    pub(crate) fn take_back(&mut self, ticket: u64) -> bool {
        let Some(at) = self.queue.iter().position(|parcel| parcel.ticket == ticket) else { return false };
        let parcel = &mut self.queue[at];
        if parcel.begun || parcel.own >= parcel.octets.len() {
            return false;
        }
        self.held -= parcel.octets.len() - parcel.own;
        parcel.octets.truncate(parcel.own);
        if parcel.octets.is_empty() {
            self.queue.remove(at);
        }
        if self.queue.is_empty() {
            self.clear();
        }
        true
    }
}

/// How much a socket took: nothing for now is no error.
#[inline]
fn some(written: io::Result<usize>) -> io::Result<usize> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        written => written,
    }
}
