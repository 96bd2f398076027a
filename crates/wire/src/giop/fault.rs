//! What is wrong with a stream of messages, and what to answer.

use core::fmt;

use super::{Header, MessageKind};
use crate::cdr::{ByteOrder, Version};

/// Why octets are no stream of messages that can be read on: the connection is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Another protocol.
    Magic([u8; 4]),
    /// A version that this ORB does not speak.
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
    /// A message, its fragments put together, beyond [`Limits::message`](crate::Limits::message).
    TooLarge {
        /// Octets.
        size: usize,
        /// The limit.
        most: usize,
    },
    /// More messages in fragments at once than are taken.
    TooMany {
        /// The limit.
        most: usize,
    },
    /// All messages in fragments together hold more than is taken.
    TooMuch {
        /// Octets.
        size: usize,
        /// The limit.
        most: usize,
    },
    /// A fragment of a message that has not begun.
    Stray {
        /// Which, in 1.2.
        id: Option<u32>,
    },
    /// A message that begins with the id of one whose fragments are not all there, or in 1.1 before the last
    /// fragment of the one before.
    Unfinished {
        /// Which, in 1.2.
        id: Option<u32>,
    },
    /// A fragment in another byte order than its message.
    Order,
    /// A message too short for what it is: a fragment of 1.2 without its request id.
    Short(Header),
}

/// What the peer should be told before the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// [`message_error`](super::message_error), of this version.
    MessageError(Version),
    /// Nothing: it does not speak GIOP.
    Close,
}

impl Fault {
    /// What to answer to a peer that `spoke` this version last, 1.0 if it did not yet. (9.4.8 asks for a MessageError to
    /// anything unknown; to another protocol it would be noise.)
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

/// The fixed messages carry no number, so that their byte order is of no matter.
const NO_ORDER: ByteOrder = ByteOrder::Big;

/// An orderly end of the connection: what has no reply yet was not carried out (9.4.7).
pub const fn close_connection(version: Version) -> [u8; Header::LEN] {
    Header { version, order: NO_ORDER, more: false, kind: MessageKind::CloseConnection, size: 0 }.encode()
}

/// What came was no message that is known here (9.4.8).
pub const fn message_error(version: Version) -> [u8; Header::LEN] {
    Header { version, order: NO_ORDER, more: false, kind: MessageKind::MessageError, size: 0 }.encode()
}
