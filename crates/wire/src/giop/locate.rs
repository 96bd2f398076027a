//! Queries for the location of an object (9.4.5, 9.4.6). omniORB sends one before its first call on each reference.

use super::begun::Begun;
use super::{MessageKind, Target};
use crate::cdr::{Decode, DecodeError, DecodeErrorKind, Decoder, Encode, EncodeError, Encoder, Version};

/// A query for the location of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct LocateRequest<'a> {
    /// The id for the reply; from the same sequence as those of requests.
    pub id: u32,
    /// The object.
    pub target: Target<'a>,
}

impl<'a> LocateRequest<'a> {
    /// Writes the whole message, after the encoder's contents.
    ///
    /// # Errors
    ///
    /// Data that the version cannot express.
    pub fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        let begun = Begun::new(MessageKind::LocateRequest, to);
        self.id.encode(to)?;
        self.target.encode(to)?;
        begun.end(to)
    }

    /// From a decoder after the message's header.
    ///
    /// # Errors
    ///
    /// For a damaged message.
    pub fn decode(mut from: Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(LocateRequest { id: u32::decode(&mut from)?, target: Target::decode(&mut from)? })
    }
}

/// The location of an object, which determines the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LocateStatus {
    /// There is no such object.
    UnknownObject,
    /// Here: it may be called on this connection.
    ObjectHere,
    /// Another location for now: a reference.
    ObjectForward,
    /// Another location for good (1.2; deprecated): a reference.
    ObjectForwardPerm,
    /// The query failed (1.2): a [`SystemException`](crate::SystemException).
    SystemException,
    /// The server requires another form of target (1.2): an [`Addressing`](super::Addressing).
    NeedsAddressingMode,
}

impl LocateStatus {
    const ALL: [LocateStatus; 6] = [
        LocateStatus::UnknownObject,
        LocateStatus::ObjectHere,
        LocateStatus::ObjectForward,
        LocateStatus::ObjectForwardPerm,
        LocateStatus::SystemException,
        LocateStatus::NeedsAddressingMode,
    ];
}

/// The part before the body, to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocateReplyHeader {
    /// That of the request.
    pub id: u32,
    /// The answer.
    pub status: LocateStatus,
}

impl LocateReplyHeader {
    /// Begins the message; the body, if the status has one, follows at once (it is not aligned to eight, 9.4.6.2), then
    /// [`Begun::end`].
    ///
    /// # Errors
    ///
    /// Data that the version cannot express.
    pub fn begin(&self, to: &mut Encoder) -> Result<Begun, EncodeError> {
        if self.status as u32 > 2 && to.version() < Version::V1_2 {
            return Err(EncodeError::NotInVersion("locate reply of that status"));
        }
        let begun = Begun::new(MessageKind::LocateReply, to);
        self.id.encode(to)?;
        (self.status as u32).encode(to)?;
        Ok(begun)
    }
}

/// A received answer.
#[derive(Clone, Debug)]
pub struct LocateReply<'a> {
    /// That of the request.
    pub id: u32,
    /// The answer.
    pub status: LocateStatus,
    /// The body, by the status.
    pub body: Decoder<'a>,
}

impl<'a> LocateReply<'a> {
    /// From a decoder after the message's header.
    ///
    /// # Errors
    ///
    /// For a damaged message.
    pub fn decode(mut from: Decoder<'a>) -> Result<Self, DecodeError> {
        let id = u32::decode(&mut from)?;
        let status = u32::decode(&mut from)? as usize;
        let most = if from.version() < Version::V1_2 { 3 } else { LocateStatus::ALL.len() };
        match LocateStatus::ALL.get(status) {
            Some(known) if status < most => Ok(LocateReply { id, status: *known, body: from }),
            _ => Err(from.error(DecodeErrorKind::Value("an unknown locate status"))),
        }
    }
}
