//! Errors of encoding and decoding, with their position.

use core::fmt;

/// A value that CDR, or the negotiated connection, cannot express.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// A string that contains a NUL.
    NulInString,
    /// A character that is not in the connection's character set.
    NotInCharSet(char),
    /// More elements than the IDL allows.
    Bound {
        /// The bound in IDL.
        most: usize,
        /// The number of elements.
        got: usize,
    },
    /// More than a length field can express.
    TooLong(usize),
    /// Wide characters in GIOP 1.0, or another type that the version lacks.
    NotInVersion(&'static str),
    /// A value that its IDL type does not have: a discriminator, a digit, a scale.
    Value(&'static str),
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EncodeError::NulInString => f.write_str("a string contains a NUL, which CDR cannot encode"),
            EncodeError::NotInCharSet(c) => write!(f, "the connection's character set has no {c:?}"),
            EncodeError::Bound { most, got } => write!(f, "{got} elements where the IDL allows {most}"),
            EncodeError::TooLong(got) => write!(f, "{got} octets are more than a length can express"),
            EncodeError::NotInVersion(what) => write!(f, "this version of GIOP has no {what}"),
            EncodeError::Value(what) => write!(f, "{what}"),
        }
    }
}

impl core::error::Error for EncodeError {}

/// Invalid octets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Offset from the start of what is decoded, in octets.
    pub at: usize,
    /// The error.
    pub kind: DecodeErrorKind,
}

/// The error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// More octets are needed than have arrived.
    Short {
        /// Needed octets.
        needed: usize,
        /// Remaining octets.
        left: usize,
    },
    /// A sequence or string longer than its bound in IDL.
    Bound {
        /// The bound in IDL.
        most: usize,
        /// The number of elements.
        got: usize,
    },
    /// Deeper than [`Limits::depth`](super::Limits::depth).
    Depth(usize),
    /// A string without its NUL, or with one inside.
    String,
    /// Octets that are not text in the connection's character set.
    CharSet,
    /// A value that its type does not have: a boolean of 2, an unknown enumerator.
    Value(&'static str),
    /// A feature that this ORB does not support: value types.
    Unsupported(&'static str),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            DecodeErrorKind::Short { needed, left } => write!(f, "{needed} octets needed, {left} left")?,
            DecodeErrorKind::Bound { most, got } => write!(f, "{got} elements where at most {most} are allowed")?,
            DecodeErrorKind::Depth(most) => write!(f, "nested deeper than {most}")?,
            DecodeErrorKind::String => f.write_str("a string that does not end in its only NUL")?,
            DecodeErrorKind::CharSet => f.write_str("text that is not in the connection's character set")?,
            DecodeErrorKind::Value(what) => write!(f, "{what}")?,
            DecodeErrorKind::Unsupported(what) => write!(f, "{what} are not supported")?,
        }
        write!(f, ", at octet {}", self.at)
    }
}

impl core::error::Error for DecodeError {}
