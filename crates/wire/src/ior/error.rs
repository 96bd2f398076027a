//! Errors in a reference as text, with their position.

use core::fmt;

use crate::cdr::DecodeError;

/// A text that is not a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceError {
    /// Offset in the text, in octets.
    pub at: usize,
    /// The error.
    pub kind: ReferenceErrorKind,
}

/// The error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReferenceErrorKind {
    /// Neither `IOR:` nor `corbaloc:` nor `corbaname:`.
    Scheme,
    /// Not a hexadecimal digit.
    Hex(char),
    /// An odd number of digits.
    HalfOctet,
    /// The octets are not a reference: usually, the text is incomplete.
    Octets(DecodeError),
    /// An address with an unknown protocol.
    Protocol,
    /// A version other than `1.0@`, `1.1@` and `1.2@`.
    Version,
    /// A `[` without its `]`, none where an IPv6 address needs one, or something else within them.
    Brackets,
    /// Not a port from 1 to 65535.
    Port,
    /// `rir:` beside other addresses: the standard forbids that.
    RirAmongOthers,
    /// A Unix socket's path that is empty or does not end in `:`.
    Path,
    /// A `%` without two hexadecimal digits.
    Escape,
    /// A character that must be written as `%` and two digits.
    Unescaped(char),
    /// Octets that are not UTF-8 where a name is expected.
    Utf8,
    /// A NUL in a path or a name, which no reference and no call can express.
    Nul,
    /// A component of a name with a `.` too many, or one that ends in `.`.
    NameDots,
    /// An empty component of a name.
    NameEmpty,
    /// A `\` before something other than `.`, `/` and `\`.
    NameEscape,
}

impl fmt::Display for ReferenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at;
        match &self.kind {
            ReferenceErrorKind::Scheme => f.write_str("a reference begins with IOR:, corbaloc: or corbaname:")?,
            ReferenceErrorKind::Hex(c) => write!(f, "{c:?} is not a hexadecimal digit")?,
            ReferenceErrorKind::HalfOctet => f.write_str("an odd number of digits: the reference is incomplete")?,
            ReferenceErrorKind::Octets(error) => {
                return write!(f, "the octets are not a reference: {error} (character {at}); it may be incomplete");
            }
            ReferenceErrorKind::Protocol => {
                f.write_str("unknown protocol; known: iiop:, ssliop:, omniunix:/path: and rir:")?;
            }
            ReferenceErrorKind::Version => f.write_str("unsupported version; supported: 1.0@, 1.1@ and 1.2@")?,
            ReferenceErrorKind::Brackets => f.write_str("an IPv6 address needs brackets, [::1]:2809")?,
            ReferenceErrorKind::Port => f.write_str("a port is a number from 1 to 65535")?,
            ReferenceErrorKind::RirAmongOthers => f.write_str("rir: cannot be combined with other addresses")?,
            ReferenceErrorKind::Path => {
                f.write_str("the path of a Unix socket ends in a colon, omniunix:/path:/key")?
            }
            ReferenceErrorKind::Escape => f.write_str("% is followed by two hexadecimal digits")?,
            ReferenceErrorKind::Unescaped(c) => {
                write!(f, "write {c:?} as ")?;
                c.encode_utf8(&mut [0; 4]).bytes().try_for_each(|octet| write!(f, "%{octet:02x}"))?;
            }
            ReferenceErrorKind::Utf8 => f.write_str("the name is not UTF-8")?,
            ReferenceErrorKind::Nul => f.write_str("paths and names cannot contain a NUL: remove it")?,
            ReferenceErrorKind::NameDots => {
                f.write_str("a component of a name is id, id.kind or .kind; write other dots as \\.")?;
            }
            ReferenceErrorKind::NameEmpty => {
                f.write_str("a component of a name is empty; write one without id and kind as a dot")?;
            }
            ReferenceErrorKind::NameEscape => f.write_str("\\ is only allowed before a dot, a slash or another \\")?,
        }
        write!(f, ", at character {at}")
    }
}

impl core::error::Error for ReferenceError {}
