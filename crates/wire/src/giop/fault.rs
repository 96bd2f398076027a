//! Errors in a stream of messages, and the answer to the peer.

use core::fmt;

use super::{Header, MessageKind};
use crate::cdr::{ByteOrder, Version};

/// Why the rest of a stream of octets cannot be read: the connection is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Another protocol.
    Magic([u8; 4]),
    /// A version that this ORB does not support.
    Version {
        /// Of the version.
        major: u8,
        /// Of the version.
        minor: u8,
    },
    /// A kind of message that the version does not have.
    Kind {
        /// Its number.
        kind: u8,
        /// The version.
        version: Version,
    },
    /// Fragments after a message that may have none.
    NotFragmentable {
        /// The message.
        kind: MessageKind,
        /// The version.
        version: Version,
    },
    /// A message, with all its fragments, beyond [`Limits::message`](crate::Limits::message).
    TooLarge {
        /// Octets.
        size: usize,
        /// The limit.
        most: usize,
    },
    /// More messages in fragments at once than the limit.
    TooMany {
        /// The limit.
        most: usize,
    },
    /// All messages in fragments together exceed the limit.
    TooMuch {
        /// Octets.
        size: usize,
        /// The limit.
        most: usize,
    },
    /// A fragment of a message that has not begun.
    Stray {
        /// Its id, in 1.2.
        id: Option<u32>,
    },
    /// A message with the id of one that has missing fragments, or in 1.1 before the last fragment of the one before.
    Unfinished {
        /// Its id, in 1.2.
        id: Option<u32>,
    },
    /// A fragment in another byte order than its message.
    Order,
    /// A message too short for its kind: a fragment of 1.2 without its request id.
    Short(Header),
}

/// The answer to the peer before the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// [`message_error`](super::message_error), of this version.
    MessageError(Version),
    /// None: it does not use GIOP.
    Close,
}

impl Fault {
    /// The answer to a peer that last used version `spoke`, 1.0 if it has sent none yet. (9.4.8 requires a MessageError
    /// for anything unknown; for another protocol it would be noise.)
    pub fn answer(&self, spoke: Version) -> Answer {
        match self {
            Fault::Magic(_) => Answer::Close,
            Fault::Version { major: 1, .. } => Answer::MessageError(Version::V1_2),
            Fault::Version { .. } => Answer::MessageError(Version::V1_0),
            Fault::Kind { version, .. } | Fault::NotFragmentable { version, .. } => Answer::MessageError(*version),
            Fault::Short(header) => Answer::MessageError(header.version),
            _ => Answer::MessageError(spoke),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Magic([22, 3, ..]) => {
                f.write_str("the peer uses TLS where plain GIOP is expected: use ssliop, or its other port")
            }
            Fault::Magic(magic) => write!(f, "\"{}\" is not GIOP: another protocol", magic.escape_ascii()),
            Fault::Version { major, minor } => write!(f, "GIOP {major}.{minor} is not supported; 1.0 to 1.2 are"),
            Fault::Kind { kind, version } => write!(f, "GIOP {version} has no message of kind {kind}"),
            Fault::NotFragmentable { kind, version } => write!(f, "GIOP {version} has no fragments of {kind:?}"),
            Fault::TooLarge { size, most } => write!(f, "a message of {size} octets, the limit is {most}"),
            Fault::TooMany { most } => write!(f, "more than {most} messages in fragments at once"),
            Fault::TooMuch { size, most } => {
                write!(f, "messages in fragments hold {size} octets in total, the limit is {most}")
            }
            Fault::Stray { id: Some(id) } => write!(f, "a fragment of message {id}, which has not begun"),
            Fault::Stray { id: None } => f.write_str("a fragment of a message that has not begun"),
            Fault::Unfinished { id: Some(id) } => {
                write!(f, "message {id} begins again before its last fragment")
            }
            Fault::Unfinished { id: None } => f.write_str("a message begins before the last fragment of another"),
            Fault::Order => f.write_str("a fragment in another byte order than its message"),
            Fault::Short(header) => {
                write!(f, "a {:?} of {} octets is too short", header.kind, header.size)
            }
        }
    }
}

impl core::error::Error for Fault {}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor] = self.octets();
        write!(f, "{major}.{minor}")
    }
}

/// The fixed messages contain no number, so their byte order does not matter.
const NO_ORDER: ByteOrder = ByteOrder::Big;

/// An orderly end of the connection: requests without a reply were not carried out (9.4.7).
pub const fn close_connection(version: Version) -> [u8; Header::LEN] {
    Header { version, order: NO_ORDER, more: false, kind: MessageKind::CloseConnection, size: 0 }.encode()
}

/// The received message was invalid (9.4.8).
pub const fn message_error(version: Version) -> [u8; Header::LEN] {
    Header { version, order: NO_ORDER, more: false, kind: MessageKind::MessageError, size: 0 }.encode()
}
