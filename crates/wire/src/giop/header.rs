//! The twelve octets before each message (9.4.1).

use super::Fault;
use crate::cdr::{ByteOrder, Version};

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// A call.
    Request,
    /// Its outcome.
    Reply,
    /// The caller no longer waits.
    CancelRequest,
    /// A query for the location of an object.
    LocateRequest,
    /// Its answer.
    LocateReply,
    /// An orderly end: no request without a reply was carried out.
    CloseConnection,
    /// The received message was invalid.
    MessageError,
    /// The next part of a message (1.1, 1.2).
    Fragment,
}

impl MessageKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [MessageKind; 8] = [
        MessageKind::Request,
        MessageKind::Reply,
        MessageKind::CancelRequest,
        MessageKind::LocateRequest,
        MessageKind::LocateReply,
        MessageKind::CloseConnection,
        MessageKind::MessageError,
        MessageKind::Fragment,
    ];

    /// Whether fragments may follow it in this version (9.4.9).
    pub const fn fragmentable(self, version: Version) -> bool {
        match (version, self) {
            (Version::V1_0, _) => false,
            (_, MessageKind::Request | MessageKind::Reply | MessageKind::Fragment) => true,
            (Version::V1_2, MessageKind::LocateRequest | MessageKind::LocateReply) => true,
            _ => false,
        }
    }
}

impl Version {
    /// From the two octets of a header or profile; none for unknown versions.
    pub const fn from_octets(major: u8, minor: u8) -> Option<Version> {
        match (major, minor) {
            (1, 0) => Some(Version::V1_0),
            (1, 1) => Some(Version::V1_1),
            (1, 2) => Some(Version::V1_2),
            _ => None,
        }
    }

    /// Major and minor, as in headers and profiles.
    pub const fn octets(self) -> [u8; 2] {
        match self {
            Version::V1_0 => [1, 0],
            Version::V1_1 => [1, 1],
            Version::V1_2 => [1, 2],
        }
    }
}

/// The header of a message.
///
/// ```text
///   0        4      6       7      8              12
///   G I O P  major  minor   flags  kind  size     body ...
/// ```
///
/// Flags: bit 0 the byte order (0 big), bit 1 (from 1.1 on) that fragments follow. The size does not count the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The version of GIOP.
    pub version: Version,
    /// The byte order of all that follows.
    pub order: ByteOrder,
    /// Whether fragments follow.
    pub more: bool,
    /// The kind.
    pub kind: MessageKind,
    /// The number of octets after the header.
    pub size: u32,
}

impl Header {
    /// Its own size, in octets.
    pub const LEN: usize = 12;

    /// Reads one.
    ///
    /// # Errors
    ///
    /// Another protocol, version or kind.
    #[inline]
    pub fn decode(octets: &[u8; Header::LEN]) -> Result<Header, Fault> {
        let [m0, m1, m2, m3, major, minor, flags, kind, size @ ..] = *octets;
        if [m0, m1, m2, m3] != *b"GIOP" {
            return Err(Fault::Magic([m0, m1, m2, m3]));
        }
        let version = Version::from_octets(major, minor).ok_or(Fault::Version { major, minor })?;
        let more = flags & 2 != 0 && version != Version::V1_0;
        let kind = match MessageKind::ALL.get(usize::from(kind)) {
            Some(MessageKind::Fragment) if version == Version::V1_0 => return Err(Fault::Kind { kind: 7, version }),
            Some(kind) => *kind,
            None => return Err(Fault::Kind { kind, version }),
        };
        if more && !kind.fragmentable(version) {
            return Err(Fault::NotFragmentable { kind, version });
        }
        let order = ByteOrder::from_flag(flags);
        let size = match order {
            ByteOrder::Big => u32::from_be_bytes(size),
            ByteOrder::Little => u32::from_le_bytes(size),
        };
        Ok(Header { version, order, more, kind, size })
    }

    /// Its octets.
    #[inline]
    pub const fn encode(&self) -> [u8; Header::LEN] {
        let [major, minor] = self.version.octets();
        let [a, b, c, d] = match self.order {
            ByteOrder::Big => self.size.to_be_bytes(),
            ByteOrder::Little => self.size.to_le_bytes(),
        };
        let flags = self.order.flag() | (self.more as u8) << 1;
        [b'G', b'I', b'O', b'P', major, minor, flags, self.kind as u8, a, b, c, d]
    }

    /// The whole message in octets, header included.
    pub const fn whole(&self) -> usize {
        (self.size as usize).saturating_add(Header::LEN)
    }
}
