//! Asking where an object is (9.4.5, 9.4.6). omniORB does before its first call on each reference.

use super::begun::Begun;
use super::{MessageKind, Target};
use crate::cdr::{Decode, DecodeError, DecodeErrorKind, Decoder, Encode, EncodeError, Encoder, Version};

/// Asks where an object is.
#[derive(Clone, Debug, PartialEq)]
pub struct LocateRequest<'a> {
    /// To be repeated in the reply; from the same numbers as those of requests.
    pub id: u32,
    /// The object.
    pub target: Target<'a>,
}

impl<'a> LocateRequest<'a> {
    /// Writes the whole message, behind what the encoder holds.
    ///
    /// # Errors
    ///
    /// What the version cannot carry.
    pub fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        let begun = Begun::new(MessageKind::LocateRequest, to);
        self.id.encode(to)?;
        self.target.encode(to)?;
        begun.end(to)
    }

    /// From a decoder that stands behind the message's header.
    ///
    /// # Errors
    ///
    /// Of a broken message.
    pub fn decode(mut from: Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(LocateRequest { id: u32::decode(&mut from)?, target: Target::decode(&mut from)? })
    }
}

/// Where an object is, and so what the body holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LocateStatus {
    /// Nowhere.
    UnknownObject,
    /// Here: it may be called on this connection.
    ObjectHere,
    /// Elsewhere for now: a reference.
    ObjectForward,
    /// Elsewhere for good (1.2; deprecated): a reference.
    ObjectForwardPerm,
    /// It could not be found out (1.2): a [`SystemException`](crate::SystemException).
    SystemException,
    /// The server wants another form of target (1.2): an [`Addressing`](super::Addressing).
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

/// What stands before the body, to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocateReplyHeader {
    /// That of the request.
    pub id: u32,
    /// The answer.
    pub status: LocateStatus,
}

impl LocateReplyHeader {
    /// Begins the message; the body, if the status has one, follows at once (it is not aligned to eight, 9.4.6.2),
    /// then [`Begun::end`].
    ///
    /// # Errors
    ///
    /// What the version cannot carry.
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

/// The answer, as it has come.
#[derive(Clone, Debug)]
pub struct LocateReply<'a> {
    /// That of the request.
    pub id: u32,
    /// The answer.
    pub status: LocateStatus,
    /// What the status says.
    pub body: Decoder<'a>,
}

impl<'a> LocateReply<'a> {
    /// From a decoder that stands behind the message's header.
    ///
    /// # Errors
    ///
    /// Of a broken message.
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
