//! The common data representation (CORBA 3.3 part 2, 9.3): primitive types aligned to their size,
//! counted from the start of the message or encapsulation, in the byte order of the sender.

mod decoder;
mod encoder;
mod error;
mod primitive;
mod sequence;

pub(crate) use decoder::Bookmark;
pub use decoder::{Counted, Decode, Decoder};
pub use encoder::{Encode, Encoder};
pub use error::{DecodeError, DecodeErrorKind, EncodeError};

/// The order of a number's octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Most significant octet first; flag 0.
    Big,
    /// Least significant octet first; flag 1.
    #[default]
    Little,
}

impl ByteOrder {
    /// That of this machine.
    pub const NATIVE: ByteOrder = if cfg!(target_endian = "little") { ByteOrder::Little } else { ByteOrder::Big };

    /// From the lowest bit of a flags octet.
    pub const fn from_flag(flags: u8) -> ByteOrder {
        if flags & 1 == 1 { ByteOrder::Little } else { ByteOrder::Big }
    }

    /// 0 or 1, as in flags.
    pub const fn flag(self) -> u8 {
        match self {
            ByteOrder::Big => 0,
            ByteOrder::Little => 1,
        }
    }
}

/// The version of GIOP of a message: some types differ between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// No fragments, no wide characters, Latin-1 strings.
    V1_0,
    /// Fragments of requests and replies.
    V1_1,
    /// Every message may be fragmented; bidirectional; addressing by profile or reference.
    #[default]
    V1_2,
}

/// The character set of narrow characters (`char` and `string`) on a connection, negotiated for each (13.10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CharSet {
    /// 0x05010001.
    #[default]
    Utf8,
    /// ISO 8859-1, 0x00010001: every ORB accepts it before negotiation.
    Latin1,
}

/// The limits of a decoder for a peer's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Octets of one message, its fragments put together; default 16 MiB.
    pub message: usize,
    /// Depth of type codes, anys and values within each other; default 32.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { message: 16 << 20, depth: 32 }
    }
}
