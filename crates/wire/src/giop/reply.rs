//! Replies (9.4.3).

use super::MessageKind;
use super::begun::Begun;
use super::request::to_body;
use crate::cdr::{Decode, DecodeError, DecodeErrorKind, Decoder, Encode, EncodeError, Encoder, Version};
use crate::tagged::{Tagged, TaggedList};

/// The result of a request, which determines the reply's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplyStatus {
    /// Success: the result, then out and inout parameters in the order of the declaration.
    NoException,
    /// With an exception that the operation declares: its repository id, then its members.
    UserException,
    /// With a standard one: a [`SystemException`](crate::SystemException).
    SystemException,
    /// Another location for now: a reference; the client sends the request there.
    LocationForward,
    /// Another location for good (1.2; deprecated): a reference.
    LocationForwardPerm,
    /// The server requires another form of target (1.2): an [`Addressing`](super::Addressing).
    NeedsAddressingMode,
}

impl ReplyStatus {
    const ALL: [ReplyStatus; 6] = [
        ReplyStatus::NoException,
        ReplyStatus::UserException,
        ReplyStatus::SystemException,
        ReplyStatus::LocationForward,
        ReplyStatus::LocationForwardPerm,
        ReplyStatus::NeedsAddressingMode,
    ];
}

impl Encode for ReplyStatus {
    #[inline]
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        if *self > ReplyStatus::LocationForward && to.version() < Version::V1_2 {
            return Err(EncodeError::NotInVersion("reply of that status"));
        }
        (*self as u32).encode(to)
    }
}

impl PartialOrd for ReplyStatus {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        (*self as u32).partial_cmp(&(*other as u32))
    }
}

impl Decode<'_> for ReplyStatus {
    const LEAST: usize = 4;

    #[inline]
    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let status = u32::decode(from)? as usize;
        let most = if from.version() < Version::V1_2 { 4 } else { ReplyStatus::ALL.len() };
        match ReplyStatus::ALL.get(status) {
            Some(known) if status < most => Ok(*known),
            _ => Err(from.error(DecodeErrorKind::Value("an unknown reply status"))),
        }
    }
}

/// The part before a reply's body, to be sent.
#[derive(Clone, Debug)]
pub struct ReplyHeader<'a> {
    /// That of the request.
    pub id: u32,
    /// The result.
    pub status: ReplyStatus,
    /// Its contexts.
    pub contexts: &'a [Tagged<'a>],
}

impl ReplyHeader<'_> {
    /// Begins a reply in the encoder's version and order, which must be the request's version, after the encoder's
    /// contents. The body follows, then [`Begun::end`].
    ///
    /// # Errors
    ///
    /// Data that the version cannot express.
    #[inline]
    pub fn begin(&self, to: &mut Encoder) -> Result<Begun, EncodeError> {
        let mut begun = Begun::new(MessageKind::Reply, to);
        if to.version() == Version::V1_2 {
            self.id.encode(to)?;
            self.status.encode(to)?;
            self.contexts.encode(to)?;
            begun.align_body(to);
        } else {
            self.contexts.encode(to)?;
            self.id.encode(to)?;
            self.status.encode(to)?;
        }
        Ok(begun)
    }
}

/// A received reply.
#[derive(Clone, Debug)]
pub struct Reply<'a> {
    /// That of the request.
    pub id: u32,
    /// The result.
    pub status: ReplyStatus,
    /// Its contexts.
    pub contexts: TaggedList<'a>,
    /// The body, by the status.
    pub body: Decoder<'a>,
}

impl<'a> Reply<'a> {
    /// From a decoder after the message's header.
    ///
    /// # Errors
    ///
    /// For a damaged message.
    #[inline]
    pub fn decode(mut from: Decoder<'a>) -> Result<Self, DecodeError> {
        if from.version() == Version::V1_2 {
            let id = u32::decode(&mut from)?;
            let status = ReplyStatus::decode(&mut from)?;
            let contexts = TaggedList::decode(&mut from)?;
            to_body(&mut from);
            Ok(Reply { id, status, contexts, body: from })
        } else {
            let contexts = TaggedList::decode(&mut from)?;
            let id = u32::decode(&mut from)?;
            let status = ReplyStatus::decode(&mut from)?;
            Ok(Reply { id, status, contexts, body: from })
        }
    }
}
