//! Splits octets from a socket into whole messages, with minimal copying. A message that arrives whole stays in the
//! buffer of the reading thread.

use std::sync::Arc;

use hyoshi_wire::Limits;
use hyoshi_wire::giop::{Fault, Header, Reassembler, Received};

use super::Pace;
use super::cancels::first_cancel;

/// Octets received from a socket.
///
/// ```text
///             came                 await_rest
///   Between ───────► Held, ◄────────────────────► Awaiting,
///      ▲             no deadline       pause      a deadline runs
///      └───────────────┴──────────────────────────────┘
///        next: nothing is left
/// ```
///
/// Its owner passes the same buffer each time, until it [parks](Self::park) what is left there.
#[derive(Debug)]
pub(crate) struct Incoming {
    reading: ReadState,
    messages: Reassembler,
    /// Octets read in an earlier turn; while there are some, the buffer is not used.
    parked: Option<Arc<[u8]>>,
    /// The octets of it, or of the buffer, that [`next`](Self::next) has not looked at.
    at: usize,
    end: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadState {
    /// No message has begun.
    Between,
    /// So many octets have arrived since one began. Its sender is not late: the message may be complete.
    Held { octets: usize },
    /// The rest is awaited since then, in milliseconds of a coarse clock.
    Awaiting { since: u64, octets: usize },
}

/// A whole message.
#[derive(Debug)]
pub(crate) struct Whole<'a> {
    pub(crate) received: Received<'a>,
    /// It was incomplete before, or another message still is.
    pub(crate) begun: bool,
    pub(crate) rest: Remainder<'a>,
}

/// Octets after a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remainder<'a> {
    octets: &'a [u8],
    /// The parked octets that they end, if any.
    parked: Option<&'a Arc<[u8]>>,
}

/// Octets whose messages no thread handles yet. All octets of one read share one copy.
#[derive(Clone, Debug)]
pub(crate) struct Parked {
    octets: Arc<[u8]>,
    at: usize,
}

impl Remainder<'_> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.octets.is_empty()
    }

    /// Whether a CancelRequest for this request stands first.
    pub(crate) fn cancels(&self, request: Option<u32>) -> bool {
        request.is_some() && first_cancel(self.octets) == request
    }

    /// For another thread.
    pub(crate) fn park(&self) -> Parked {
        match self.parked {
            Some(parked) => Parked { octets: parked.clone(), at: parked.len() - self.octets.len() },
            None => Parked { octets: self.octets.into(), at: 0 },
        }
    }

    /// The same with the message before it.
    pub(crate) fn park_with(&self, message: &Received<'_>) -> Parked {
        Parked { octets: [message.octets(), self.octets].concat().into(), at: 0 }
    }
}

impl Incoming {
    pub(crate) fn new(limits: Limits) -> Self {
        Incoming { reading: ReadState::Between, messages: Reassembler::new(limits), parked: None, at: 0, end: 0 }
    }

    /// With these octets.
    pub(crate) fn parked(limits: Limits, parked: Parked) -> Self {
        let mut incoming = Incoming::new(limits);
        incoming.resume(parked);
        incoming
    }

    /// Goes on with these octets, instead of what is left.
    pub(crate) fn resume(&mut self, parked: Parked) {
        (self.at, self.end) = (parked.at, parked.octets.len());
        self.parked = Some(parked.octets);
    }

    /// Removes and returns all octets that [`park`](Self::park) has kept. `None` while a message has begun: then they are its rest.
    pub(crate) fn take_octets(&mut self) -> Option<Vec<u8>> {
        if self.has_begun() {
            return None;
        }
        let octets = self.parked.take().map_or_else(Vec::new, |parked| parked[self.at..self.end].to_vec());
        (self.at, self.end) = (0, 0);
        Some(octets)
    }

    /// Continues with these octets, which begin with a message.
    pub(crate) fn resume_octets(&mut self, octets: Vec<u8>) {
        self.resume(Parked { octets: octets.into(), at: 0 });
    }

    /// True while octets are there that [`next`](Self::next) has not looked at.
    #[inline]
    pub(crate) fn holds_some(&self) -> bool {
        self.at < self.end
    }

    /// True while a message has begun, as far as [`next`](Self::next) has looked.
    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        self.messages.is_waiting()
    }

    /// The place for the next read, once [`next`](Self::next) has no more: the buffer, or the message that has begun.
    #[inline]
    pub(crate) fn place<'a>(&'a mut self, buffer: &'a mut [u8]) -> &'a mut [u8] {
        self.forget_used();
        match self.messages.room() {
            Some(room) => room,
            None => &mut buffer[self.end..],
        }
    }

    /// So much was read there.
    #[inline]
    pub(crate) fn came(&mut self, count: usize) {
        match self.messages.room() {
            Some(_) => self.messages.filled(count),
            None => self.end += count,
        }
        match &mut self.reading {
            ReadState::Between => self.reading = ReadState::Held { octets: count },
            ReadState::Held { octets } | ReadState::Awaiting { octets, .. } => *octets += count,
        }
    }

    /// Whether one more read may complete the first message in the buffer, which then is not copied.
    #[inline]
    pub(crate) fn is_worth_reading_on(&self, buffer: &[u8]) -> bool {
        let header = || buffer[self.at..self.end].first_chunk().and_then(|octets| Header::decode(octets).ok());
        !self.has_begun()
            && header().is_some_and(|header| header.whole() > self.end - self.at && header.whole() <= buffer.len())
    }

    /// True if an alert of TLS (21), or a handshake (22), stands where the first message should begin.
    #[inline]
    pub(crate) fn is_tls(&self, buffer: &[u8]) -> bool {
        self.parked.is_none() && !self.has_begun() && matches!(buffer[self.at..self.end], [21 | 22, 3, ..])
    }

    /// The next whole message. None once more octets are needed.
    ///
    /// # Errors
    ///
    /// If the stream is invalid from here on.
    #[inline]
    pub(crate) fn next<'a>(&'a mut self, buffer: &'a [u8]) -> Result<Option<Whole<'a>>, Fault> {
        let begun = self.forget_done();
        let all = self.parked.as_deref().unwrap_or(buffer);
        let mut octets = &all[self.at..self.end];
        let found = self.messages.next(&mut octets)?;
        self.at = self.end - octets.len();
        Ok(found.map(|received| Whole { received, begun, rest: Remainder { octets, parked: self.parked.as_ref() } }))
    }

    /// [`next`](Self::next) has no more: if a message has begun, its rest is awaited from now on.
    #[inline]
    pub(crate) fn await_rest(&mut self, now: u64) {
        self.forget_done();
        if let ReadState::Held { octets } = self.reading
            && !self.holds_some()
        {
            self.reading = ReadState::Awaiting { since: now, octets };
        }
    }

    /// Stops the deadline of the rest while reading is paused.
    pub(crate) fn pause(&mut self) {
        if let ReadState::Awaiting { octets, .. } = self.reading {
            self.reading = ReadState::Held { octets };
        }
    }

    /// After this time the rest of a message is late; octets last arrived at `heard`. `None` if no rest is awaited.
    #[inline]
    pub(crate) fn deadline(&self, heard: u64, pace: Pace) -> Option<u64> {
        match self.reading {
            ReadState::Awaiting { since, octets } => Some(pace.end(since, octets).min(pace.end(heard, 0))),
            ReadState::Between | ReadState::Held { .. } => None,
        }
    }

    /// Octets received of messages not yet taken.
    pub(crate) fn held(&self) -> usize {
        self.messages.held() + self.end - self.at
    }

    /// Call it before the thread leaves with its buffer. Keeps only the memory it needs.
    pub(crate) fn park(&mut self, buffer: &[u8]) {
        self.forget_used();
        if self.parked.is_none() && self.holds_some() {
            self.resume(Parked { octets: buffer[self.at..self.end].into(), at: 0 });
        }
        self.messages.settle();
    }

    fn forget_used(&mut self) {
        if !self.holds_some() {
            (self.parked, self.at, self.end) = (None, 0, 0);
        }
    }

    /// Messages that were taken count no more, unless another began before them. Returns whether one did.
    #[inline]
    fn forget_done(&mut self) -> bool {
        let begun = self.has_begun();
        if !begun {
            self.reading = match self.end - self.at {
                0 => ReadState::Between,
                octets => ReadState::Held { octets },
            };
        }
        begun
    }
}
