//! Extracts whole messages from a stream of octets.

use alloc::vec::Vec;
use core::mem;

use super::{Fault, Header, MessageKind, Received};
use crate::cdr::{ByteOrder, Limits, Version};

/// Buffers up to this size are kept between messages, larger ones freed.
const KEEP: usize = 256 << 10;

/// The least size of [`Reassembler::room`], if the message has so much left. Room beyond that grows only with received
/// octets, however large the size in the header.
const ROOM: usize = 64 << 10;

/// The state of a connection between reads: the start of an incomplete message, and messages with missing fragments. It
/// holds no memory while there is none (after [`settle`](Self::settle)).
///
/// ```text
///   read ──► next(octets) ──► a whole message within them: borrowed, nothing is copied
///                         ──► a part of one at their end: kept; then either
///                               next(more octets), or
///                               read into room(), filled(count), next(nothing)
///                         ──► a fragment: appended to its message, which is returned with the last
/// ```
///
/// After a [`Fault`] the rest of the stream cannot be read.
#[derive(Debug)]
pub struct Reassembler {
    limits: Limits,
    /// The limits of messages in fragments: their number, and their octets together.
    most: usize,
    total: usize,
    /// The start of a message: `held` octets of it, beyond them room.
    tail: Vec<u8>,
    held: usize,
    /// `tail` is a message that was returned.
    spent: bool,
    /// The last returned message in fragments.
    joined: Vec<u8>,
    seams: Vec<usize>,
    partials: Vec<Partial>,
}

/// A message with missing fragments.
#[derive(Debug)]
struct Partial {
    header: Header,
    /// None in 1.1, which has one at a time.
    id: Option<u32>,
    octets: Vec<u8>,
    /// The starts of fragments in 1.1: numbers are aligned by their position in the fragment. Empty as long as that
    /// equals the position in the message.
    seams: Vec<usize>,
    /// Cancelled: fragments in transit are dropped.
    cancelled: bool,
}

/// The location of the next message.
enum NextMessage<'o> {
    /// Completely within the received octets.
    Here(Header, &'o [u8]),
    /// In `tail`.
    Tail(Header),
    /// In `joined`.
    Joined(Header),
    /// It is incomplete.
    Nowhere,
}

impl Reassembler {
    /// For a connection. At most 16 messages in fragments at once, which together hold at most the size of the largest
    /// message ([`bounded`](Reassembler::bounded) sets other limits).
    pub fn new(limits: Limits) -> Self {
        Reassembler {
            limits,
            most: 16,
            total: limits.message,
            tail: Vec::new(),
            held: 0,
            spent: false,
            joined: Vec::new(),
            seams: Vec::new(),
            partials: Vec::new(),
        }
    }

    /// With other limits on messages in fragments: how many at once, and how many octets they hold together.
    #[must_use]
    pub fn bounded(mut self, most: usize, total: usize) -> Self {
        (self.most, self.total) = (most, total);
        self
    }

    /// The next whole message; `octets` advances by the part used. None when all of it is used and no further message
    /// is whole: an incomplete message at its end is stored.
    ///
    /// # Errors
    ///
    /// If the rest of the stream cannot be read: send [`Fault::answer`] to the peer, and close.
    #[inline]
    pub fn next<'s, 'o: 's>(&'s mut self, octets: &mut &'o [u8]) -> Result<Option<Received<'s>>, Fault> {
        let limits = self.limits;
        Ok(match self.find(octets)? {
            NextMessage::Here(header, message) => Some(Received::new(header, message, &[], limits)),
            NextMessage::Tail(header) => Some(Received::new(header, &self.tail[..self.held], &[], limits)),
            NextMessage::Joined(header) => Some(Received::new(header, &self.joined, &self.seams, limits)),
            NextMessage::Nowhere => None,
        })
    }

    /// The buffer for the rest of an incomplete message: reading into it saves the copy by [`next`](Self::next). None
    /// if there is none, or if its header is incomplete. Call [`filled`](Self::filled) afterwards, then
    /// [`next`](Self::next), with no octets, for the message.
    pub fn room(&mut self) -> Option<&mut [u8]> {
        if self.spent || self.held < Header::LEN {
            return None;
        }
        // `find` has checked the header, and left the message because it is not whole.
        let header = Header::decode(self.tail.first_chunk()?).ok()?;
        let rest = header.whole().saturating_sub(self.held);
        let room = rest.min(self.held.max(ROOM));
        if self.tail.len() < self.held + room {
            self.tail.resize(self.held + room, 0);
        }
        Some(&mut self.tail[self.held..self.held + room])
    }

    /// This many octets were read into [`room`](Self::room).
    ///
    /// # Panics
    ///
    /// If there was less room.
    pub fn filled(&mut self, count: usize) {
        assert!(self.held + count <= self.tail.len(), "{count} octets do not fit into the room that was reserved");
        self.held += count;
    }

    /// True while a message is incomplete.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        (self.held > 0 && !self.spent) || self.partials.iter().any(|partial| !partial.cancelled)
    }

    /// Octets of incomplete messages.
    pub fn held(&self) -> usize {
        let partials = self.partials.iter().map(|partial| partial.octets.len()).sum::<usize>();
        partials + if self.spent { 0 } else { self.held }
    }

    /// Frees memory, before a long idle time of the connection.
    pub fn settle(&mut self) {
        self.forget();
        if self.held == 0 {
            self.tail = Vec::new();
        }
        self.joined = Vec::new();
        self.seams = Vec::new();
        if self.partials.is_empty() {
            self.partials = Vec::new();
        }
    }

    /// The returned message is no longer borrowed.
    #[inline]
    fn forget(&mut self) {
        if self.spent {
            (self.spent, self.held) = (false, 0);
            if self.tail.capacity() > KEEP {
                self.tail = Vec::new();
            }
        }
        if !self.joined.is_empty() {
            self.joined = Vec::new();
        }
    }

    #[inline]
    fn find<'o>(&mut self, octets: &mut &'o [u8]) -> Result<NextMessage<'o>, Fault> {
        self.forget();
        // One pass, unless fragments arrive that complete nothing.
        loop {
            let (header, message) = if self.held == 0 {
                let Some(header) = octets.first_chunk() else {
                    self.keep(octets, octets.len());
                    return Ok(NextMessage::Nowhere);
                };
                let header = self.admit(header)?;
                let Some((message, rest)) = octets.split_at_checked(header.whole()) else {
                    self.keep(octets, octets.len());
                    return Ok(NextMessage::Nowhere);
                };
                *octets = rest;
                (header, Some(message))
            } else {
                self.keep(octets, Header::LEN.saturating_sub(self.held));
                let Some(header) = self.tail[..self.held].first_chunk() else { return Ok(NextMessage::Nowhere) };
                let header = self.admit(header)?;
                self.keep(octets, header.whole().saturating_sub(self.held));
                if self.held < header.whole() {
                    return Ok(NextMessage::Nowhere);
                }
                (header, None)
            };
            if header.kind == MessageKind::Fragment {
                if let Some(header) = self.append(header, message)? {
                    return Ok(NextMessage::Joined(header));
                }
            } else if header.more {
                self.begin(header, message)?;
            } else {
                if header.kind == MessageKind::CancelRequest && !self.partials.is_empty() {
                    self.cancel(header, message);
                }
                return Ok(match message {
                    Some(message) => NextMessage::Here(header, message),
                    None => {
                        self.spent = true;
                        NextMessage::Tail(header)
                    }
                });
            }
        }
    }

    /// Checks the header of a message.
    #[inline]
    fn admit(&self, octets: &[u8; Header::LEN]) -> Result<Header, Fault> {
        let header = Header::decode(octets)?;
        match header.size as usize {
            size if size > self.limits.message => Err(Fault::TooLarge { size, most: self.limits.message }),
            _ => Ok(header),
        }
    }

    /// Moves up to `count` octets to the tail.
    fn keep(&mut self, octets: &mut &[u8], count: usize) {
        let (kept, rest) = octets.split_at(count.min(octets.len()));
        if !kept.is_empty() {
            self.tail.truncate(self.held);
            self.tail.extend_from_slice(kept);
            self.held = self.tail.len();
            *octets = rest;
        }
    }

    /// The first part of a message in fragments.
    #[cold]
    fn begin(&mut self, header: Header, message: Option<&[u8]>) -> Result<(), Fault> {
        let id = self.id(header, message)?;
        let same = |partial: &Partial| partial.header.version == header.version && partial.id == id;
        if let Some(at) = self.partials.iter().position(same) {
            if !self.partials[at].cancelled {
                return Err(Fault::Unfinished { id });
            }
            self.partials.remove(at);
        }
        if self.partials.len() >= self.most {
            // Cancelled messages are remembered only while there is room.
            let cancelled = self.partials.iter().position(|partial| partial.cancelled);
            self.partials.remove(cancelled.ok_or(Fault::TooMany { most: self.most })?);
        }
        let octets = match message {
            Some(message) => message.to_vec(),
            None => {
                self.tail.truncate(self.held);
                self.held = 0;
                mem::take(&mut self.tail)
            }
        };
        self.partials.push(Partial { header, id, octets, seams: Vec::new(), cancelled: false });
        self.weigh(0)
    }

    /// A further part; returns the message's header after the last.
    #[cold]
    fn append(&mut self, header: Header, message: Option<&[u8]>) -> Result<Option<Header>, Fault> {
        let id = self.id(header, message)?;
        let same = |partial: &Partial| partial.header.version == header.version && partial.id == id;
        let at = self.partials.iter().position(same).ok_or(Fault::Stray { id })?;
        let octets = match message {
            Some(message) => message,
            None => &self.tail[..mem::take(&mut self.held)],
        };
        let data = octets.get(data_at(header)..).ok_or(Fault::Short(header))?;
        let partial = &mut self.partials[at];
        if partial.cancelled {
            if !header.more {
                self.partials.remove(at);
            }
            return Ok(None);
        }
        if header.order != partial.header.order {
            return Err(Fault::Order);
        }
        let size = partial.octets.len() + data.len() - Header::LEN;
        let seams = partial.seams.len() * size_of::<usize>();
        if size + seams > self.limits.message {
            return Err(Fault::TooLarge { size, most: self.limits.message });
        }
        let more = data.len();
        self.weigh(more)?;
        let partial = &mut self.partials[at];
        let differs = partial.octets.len() % 8 != Header::LEN % 8 || !partial.seams.is_empty();
        if header.version == Version::V1_1 && differs && !data.is_empty() {
            partial.seams.push(partial.octets.len());
        }
        partial.octets.extend_from_slice(data);
        if header.more {
            return Ok(None);
        }
        let Partial { header, mut octets, seams, .. } = self.partials.remove(at);
        let size = u32::try_from(size).map_err(|_| Fault::TooLarge { size, most: u32::MAX as usize })?;
        let header = Header { more: false, size, ..header };
        octets[..Header::LEN].copy_from_slice(&header.encode());
        (self.joined, self.seams) = (octets, seams);
        Ok(Some(header))
    }

    /// The client will not send the rest of this request.
    #[cold]
    fn cancel(&mut self, header: Header, message: Option<&[u8]>) {
        let Ok(Some(id)) = self.id(Header { version: Version::V1_2, ..header }, message) else { return };
        for partial in &mut self.partials {
            let request = matches!(partial.header.kind, MessageKind::Request | MessageKind::LocateRequest);
            if request && partial.id == Some(id) {
                partial.cancelled = true;
                partial.octets = Vec::new();
            }
        }
    }

    /// The id at the start of the data in 1.2: of messages, of fragments, and of cancellations.
    fn id(&self, header: Header, message: Option<&[u8]>) -> Result<Option<u32>, Fault> {
        if header.version != Version::V1_2 {
            return Ok(None);
        }
        let octets = message.unwrap_or(&self.tail[..self.held]);
        let id = octets.get(Header::LEN..).and_then(|body| body.first_chunk()).ok_or(Fault::Short(header))?;
        Ok(Some(match header.order {
            ByteOrder::Big => u32::from_be_bytes(*id),
            ByteOrder::Little => u32::from_le_bytes(*id),
        }))
    }

    /// Whether messages in fragments may hold `more` octets.
    fn weigh(&self, more: usize) -> Result<(), Fault> {
        let size = self.partials.iter().map(|partial| partial.octets.len()).sum::<usize>() + more;
        if size > self.total { Err(Fault::TooMuch { size, most: self.total }) } else { Ok(()) }
    }
}

/// Where a fragment's data begins.
fn data_at(header: Header) -> usize {
    if header.version == Version::V1_2 { Header::LEN + 4 } else { Header::LEN }
}
