//! A whole message, decoded by its kind.

use alloc::vec::Vec;

use super::{Header, LocateReply, LocateRequest, MessageKind, Reply, Request, Response};
use crate::cdr::{CharSet, Decode, DecodeError, Decoder, Limits, Version};

/// A whole message, with all its fragments.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    header: Header,
    octets: &'a [u8],
    /// The starts of fragments with their own alignment.
    seams: &'a [usize],
    limits: Limits,
}

impl<'a> Received<'a> {
    pub(super) fn new(header: Header, octets: &'a [u8], seams: &'a [usize], limits: Limits) -> Self {
        Received { header, octets, seams, limits }
    }

    /// Its header; for a message in fragments with the whole size.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// All of it, header included. A message in fragments of GIOP 1.1 is aligned by the positions in those: read it
    /// only by [`body`](Received::body).
    pub fn octets(&self) -> &'a [u8] {
        self.octets
    }

    /// Whether its octets are one message, which another peer reads alike. If not, [`send_to`](Received::send_to) has
    /// fragments.
    #[inline]
    pub fn is_one_piece(&self) -> bool {
        self.seams.is_empty()
    }

    /// Appends it as it can be sent to another peer: as one message, or in the fragments of GIOP 1.1 on whose positions
    /// its alignment depends.
    pub fn send_to(&self, to: &mut Vec<u8>) {
        let header = |at: usize, end: usize| {
            let kind = if at == 0 { self.header.kind } else { MessageKind::Fragment };
            let size = (end - at - if at == 0 { Header::LEN } else { 0 }) as u32;
            Header { kind, size, more: end < self.octets.len(), ..self.header }.encode()
        };
        let starts = [0].into_iter().chain(self.seams.iter().copied());
        let ends = self.seams.iter().copied().chain([self.octets.len()]);
        for (at, end) in starts.zip(ends) {
            to.extend_from_slice(&header(at, end));
            to.extend_from_slice(&self.octets[at.max(Header::LEN)..end]);
        }
    }

    /// A copy that outlives the buffer, aligned as this one is.
    pub fn keep(&self) -> Kept {
        Kept { header: self.header, octets: self.octets.to_vec(), seams: self.seams.to_vec(), limits: self.limits }
    }

    /// The part after the header; narrow characters are Latin-1, as before the negotiation of code sets (13.10.2.6).
    #[inline]
    pub fn body(&self) -> Decoder<'a> {
        self.body_in(CharSet::Latin1)
    }

    /// The part after the header, with narrow characters in the set that the connection's code set context names.
    #[inline]
    pub fn body_in(&self, chars: CharSet) -> Decoder<'a> {
        let mut from = Decoder::new(self.octets, self.header.order).limited(self.limits).in_fragments(self.seams);
        from.speak(self.header.version, chars);
        // Cannot fail: a whole message has a header.
        drop(from.raw(Header::LEN));
        from
    }

    /// The request id, of messages that have one: a reply needs it even if the rest is damaged.
    pub fn id(&self) -> Option<u32> {
        let mut from = self.body();
        match (self.header.kind, self.header.version) {
            (MessageKind::CloseConnection | MessageKind::MessageError, _) => None,
            (MessageKind::Request | MessageKind::Reply, Version::V1_0 | Version::V1_1) => {
                super::ServiceContexts::decode(&mut from).ok()?;
                u32::decode(&mut from).ok()
            }
            _ => u32::decode(&mut from).ok(),
        }
    }

    /// Whether it is a request with a sender that waits for the reply. Decodes only the necessary part.
    #[inline]
    pub fn wants_reply(&self) -> bool {
        match (self.header.kind, self.header.version) {
            // After the id; such a message is never aligned again there.
            (MessageKind::Request, Version::V1_2) => {
                self.octets.get(Header::LEN + 4).is_some_and(|flags| Response::from_flags(*flags).expected())
            }
            (MessageKind::Request, _) => Request::decode(self.body()).is_ok_and(|request| request.response.expected()),
            _ => false,
        }
    }

    /// Decodes it by its kind.
    ///
    /// # Errors
    ///
    /// For a damaged message: a server answers MARSHAL to a request with a readable [`id`](Received::id), else
    /// MessageError.
    #[inline]
    pub fn decode(&self) -> Result<Message<'a>, DecodeError> {
        Message::decode(self.header.kind, self.body())
    }

    /// The same, with narrow characters in the set that the connection's code set context names.
    ///
    /// # Errors
    ///
    /// The same.
    #[inline]
    pub fn decode_in(&self, chars: CharSet) -> Result<Message<'a>, DecodeError> {
        Message::decode(self.header.kind, self.body_in(chars))
    }
}

/// A whole message that outlives the buffer it came in.
#[derive(Clone, Debug)]
pub struct Kept {
    header: Header,
    octets: Vec<u8>,
    seams: Vec<usize>,
    limits: Limits,
}

impl Kept {
    /// Stores another message, in the memory of this one.
    pub fn refill(&mut self, received: &Received<'_>) {
        (self.header, self.limits) = (received.header, received.limits);
        self.octets.clear();
        self.octets.extend_from_slice(received.octets);
        self.seams.clear();
        self.seams.extend_from_slice(received.seams);
    }

    /// The message as received.
    pub fn received(&self) -> Received<'_> {
        Received { header: self.header, octets: &self.octets, seams: &self.seams, limits: self.limits }
    }
}

/// A decoded message.
#[derive(Clone, Debug)]
pub enum Message<'a> {
    /// A call.
    Request(Request<'a>),
    /// Its outcome.
    Reply(Reply<'a>),
    /// The sender no longer waits for the reply to this id.
    CancelRequest(u32),
    /// A query for the location of an object.
    LocateRequest(LocateRequest<'a>),
    /// Its answer.
    LocateReply(LocateReply<'a>),
    /// An orderly end: requests without a reply were not carried out.
    CloseConnection,
    /// The peer could not decode a message of this side.
    MessageError,
}

impl<'a> Message<'a> {
    #[inline]
    fn decode(kind: MessageKind, mut from: Decoder<'a>) -> Result<Self, DecodeError> {
        match kind {
            MessageKind::Request => Request::decode(from).map(Message::Request),
            MessageKind::Reply => Reply::decode(from).map(Message::Reply),
            MessageKind::CancelRequest => u32::decode(&mut from).map(Message::CancelRequest),
            MessageKind::LocateRequest => LocateRequest::decode(from).map(Message::LocateRequest),
            MessageKind::LocateReply => LocateReply::decode(from).map(Message::LocateReply),
            MessageKind::CloseConnection => Ok(Message::CloseConnection),
            // A fragment never leaves the reassembler.
            MessageKind::MessageError | MessageKind::Fragment => Ok(Message::MessageError),
        }
    }
}
