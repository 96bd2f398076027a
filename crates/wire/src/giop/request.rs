//! Requests and their cancellation (9.4.2, 9.4.4).

use alloc::vec::Vec;

use super::begun::Begun;
use super::{Addressing, MessageKind, Target};
use crate::cdr::{Decode, DecodeError, Decoder, Encode, EncodeError, Encoder, Version};
use crate::tagged::{Tagged, TaggedList, identifier, put_identifier};

/// The reply that the client waits for (`response_flags`; up to 1.1 a boolean).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Response {
    /// None: a oneway with scope NONE or WITH_TRANSPORT. No reply may be sent, and no exception.
    None,
    /// An empty reply before the target is called: a oneway with scope WITH_SERVER. Old clients send this for two-way
    /// operations too, and wait for the result: only a oneway must be answered early.
    Server,
    /// The result: a two-way operation, or a oneway with scope WITH_TARGET.
    Target,
}

impl Response {
    /// Whether to send a reply.
    pub const fn expected(self) -> bool {
        !matches!(self, Response::None)
    }

    /// The meaning of `response_flags` of 1.2. Bit 0: a reply is expected; bit 1: not before the target was called. The
    /// others are reserved.
    #[inline]
    pub(super) const fn from_flags(flags: u8) -> Response {
        match flags & 3 {
            3 => Response::Target,
            1 => Response::Server,
            _ => Response::None,
        }
    }
}

/// The part before a request's arguments, to be sent.
#[derive(Clone, Debug)]
pub struct RequestHeader<'a> {
    /// Distinguishes replies: no other waiting request of the connection has it. On bidirectional connections even from
    /// the side that opened it, odd from the other.
    pub id: u32,
    /// The reply that the client waits for.
    pub response: Response,
    /// The object.
    pub target: Target<'a>,
    /// The operation's name, without its scope; of attributes `_get_name` and `_set_name`.
    pub operation: &'a str,
    /// Its contexts.
    pub contexts: &'a [Tagged<'a>],
}

impl RequestHeader<'_> {
    /// Begins a request in the encoder's version and order, after the encoder's contents. The arguments follow, then
    /// [`Begun::end`].
    ///
    /// # Errors
    ///
    /// Data that the version cannot express.
    #[inline]
    pub fn begin(&self, to: &mut Encoder) -> Result<Begun, EncodeError> {
        let mut begun = Begun::new(MessageKind::Request, to);
        if to.version() == Version::V1_2 {
            // The id, the flags, the form of the target, and the length of a key: written at once.
            let mut head = [0; 16];
            head[..4].copy_from_slice(&to.octets(self.id));
            head[4] = if self.response == Response::Target { 3 } else { self.response as u8 };
            if let Target::Key(key) = self.target {
                let length = u32::try_from(key.len()).map_err(|_| EncodeError::TooLong(key.len()))?;
                head[12..].copy_from_slice(&to.octets(length));
                to.raw(&head);
                to.raw(key);
            } else {
                to.raw(&head[..8]);
                self.target.encode(to)?;
            }
            put_identifier(self.operation, to)?;
            self.contexts.encode(to)?;
            begun.align_body(to);
        } else {
            self.contexts.encode(to)?;
            self.id.encode(to)?;
            self.response.expected().encode(to)?;
            if to.version() == Version::V1_1 {
                to.raw(&[0; 3]);
            }
            self.target.encode(to)?;
            put_identifier(self.operation, to)?;
            // The principal, always empty.
            to.length(0)?;
        }
        Ok(begun)
    }
}

/// A received request.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The id for the reply.
    pub id: u32,
    /// The reply that the client waits for.
    pub response: Response,
    /// The object.
    pub target: Target<'a>,
    /// The operation's name.
    pub operation: &'a str,
    /// Its contexts.
    pub contexts: TaggedList<'a>,
    /// The arguments.
    pub arguments: Decoder<'a>,
}

impl<'a> Request<'a> {
    /// From a decoder after the message's header.
    ///
    /// # Errors
    ///
    /// For a damaged message.
    #[inline]
    pub fn decode(from: Decoder<'a>) -> Result<Self, DecodeError> {
        let mut request = Request::unread(from);
        request.read().map(|()| request)
    }

    /// To be [read](Self::read) from a decoder after the message's header.
    #[inline]
    pub fn unread(from: Decoder<'a>) -> Self {
        let (target, contexts) = (Target::Key(&[]), TaggedList::empty());
        Request { id: 0, response: Response::None, target, operation: "", contexts, arguments: from }
    }

    /// Reads one that is unread, in place: a request is large.
    ///
    /// # Errors
    ///
    /// For a damaged message.
    #[inline]
    pub fn read(&mut self) -> Result<(), DecodeError> {
        let from = &mut self.arguments;
        if from.version() != Version::V1_2 {
            return self.read_old();
        }
        self.id = u32::decode(from)?;
        self.response = Response::from_flags(from.raw(4)?[0]);
        self.target = match Addressing::decode(from)? {
            Addressing::Key => Target::Key(Decode::decode(from)?),
            form => Target::decode_form(form, from)?,
        };
        self.operation = identifier(from)?;
        self.contexts = TaggedList::decode(from)?;
        to_body(from);
        Ok(())
    }

    /// Writes the same request to another object of its server or of another one, after the encoder's contents, which are
    /// in the request's version and order. The arguments are copied: they begin at the same place modulo 8. `extra` is
    /// added to the contexts. A principal is not copied.
    ///
    /// # Errors
    ///
    /// Data that the version cannot express; a request in fragments of GIOP 1.1, whose arguments cannot be copied.
    pub fn readdress(&self, key: &[u8], extra: &[Tagged<'_>], to: &mut Encoder) -> Result<(), EncodeError> {
        if self.arguments.is_in_fragments() {
            return Err(EncodeError::NotInVersion("another target of a request in fragments"));
        }
        let contexts: Vec<Tagged<'_>> = self.contexts.clone().chain(extra.iter().copied()).collect();
        let (id, response, operation) = (self.id, self.response, self.operation);
        let header = RequestHeader { id, response, target: Target::Key(key), operation, contexts: &contexts };
        let before = to.len();
        let begun = header.begin(to)?;
        if to.version() != Version::V1_2 {
            // The principal's length is the last number of the header, and free: it places the arguments.
            let padding = self.arguments.at().wrapping_sub(to.len() - before) % 8;
            let length = to.len() - 4;
            to.patch_u32(length, padding as u32);
            to.raw(&[0; 8][..padding]);
        }
        to.raw(self.arguments.rest());
        begun.end(to)
    }

    /// Up to 1.1.
    #[cold]
    fn read_old(&mut self) -> Result<(), DecodeError> {
        let from = &mut self.arguments;
        self.contexts = TaggedList::decode(from)?;
        self.id = u32::decode(from)?;
        // Some peers write other values than 1 for true.
        self.response = if u8::decode(from)? == 0 { Response::None } else { Response::Target };
        if from.version() == Version::V1_1 {
            from.raw(3)?;
        }
        self.target = Target::decode(from)?;
        self.operation = identifier(from)?;
        // The principal: deprecated and unused.
        <&[u8]>::decode(from)?;
        Ok(())
    }
}

/// In 1.2 the body of requests and replies is aligned to eight octets, unless it is empty (9.4.2.2). Some
/// peers pad an empty one too, or a part of the way.
#[inline]
pub(super) fn to_body(from: &mut Decoder<'_>) {
    if from.align(8).is_err() {
        let left = from.left();
        // Cannot fail: the rest of the octets.
        drop(from.raw(left));
    }
}

/// The client no longer waits for this reply; the server may send it all the same.
///
/// # Errors
///
/// None in practice: nothing in it depends on the version.
pub fn cancel_request(id: u32, to: &mut Encoder) -> Result<(), EncodeError> {
    let begun = Begun::new(MessageKind::CancelRequest, to);
    id.encode(to)?;
    begun.end(to)
}
