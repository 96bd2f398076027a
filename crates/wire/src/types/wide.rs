//! Wide characters (CORBA 3.3 part 2, 9.3.1.6 and 9.3.2.7): UTF-16, encoded differently in each version.
//!
//! | | `wchar` | `wstring` |
//! |---|---|---|
//! | 1.0 | - | - |
//! | 1.1 | a unit, in the byte order of the message | units with the terminator, their number with it |
//! | 1.2 | an octet 2, then a unit | its length in octets, then units; no terminator |
//!
//! In 1.2 units are big-endian, unless a byte-order mark precedes them. No mark is written.

use alloc::string::String;
use core::fmt;
use core::ops::Deref;

use crate::cdr::{ByteOrder, Decode, DecodeError, DecodeErrorKind, Decoder, Encode, EncodeError, Encoder, Version};

/// An IDL `wchar`. Characters above U+FFFF cannot be sent: they are not a single unit of UTF-16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WChar(pub char);

/// An IDL `wstring`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WString(pub String);

const WIDE: EncodeError = EncodeError::NotInVersion("wide characters");
const MARK: u16 = 0xfeff;

impl From<char> for WChar {
    fn from(c: char) -> Self {
        WChar(c)
    }
}

impl fmt::Display for WChar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<&str> for WString {
    fn from(text: &str) -> Self {
        WString(text.into())
    }
}

impl From<String> for WString {
    fn from(text: String) -> Self {
        WString(text)
    }
}

impl From<WString> for String {
    fn from(text: WString) -> Self {
        text.0
    }
}

impl Deref for WString {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Encode for WChar {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        let unit = u16::try_from(u32::from(self.0)).map_err(|_| EncodeError::NotInCharSet(self.0))?;
        match to.version() {
            Version::V1_0 => Err(WIDE),
            Version::V1_1 => unit.encode(to),
            Version::V1_2 => {
                let [high, low] = unit.to_be_bytes();
                to.raw(&[2, high, low]);
                Ok(())
            }
        }
    }
}

impl Decode<'_> for WChar {
    const LEAST: usize = 2;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let unit = match from.version() {
            Version::V1_0 => return Err(from.error(DecodeErrorKind::Unsupported("wide characters in GIOP 1.0"))),
            Version::V1_1 => u16::decode(from)?,
            Version::V1_2 => {
                let length = u8::decode(from)?;
                let octets = from.raw(length.into())?;
                match *octets {
                    [high, low] | [0xfe, 0xff, high, low] | [0xff, 0xfe, low, high] => u16::from_be_bytes([high, low]),
                    _ => return Err(from.error(DecodeErrorKind::CharSet)),
                }
            }
        };
        char::from_u32(unit.into()).map(WChar).ok_or_else(|| from.error(DecodeErrorKind::CharSet))
    }
}

impl Encode for WString {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        if self.0.contains('\0') {
            return Err(EncodeError::NulInString);
        }
        let count = self.0.encode_utf16().count();
        match to.version() {
            Version::V1_0 => Err(WIDE),
            Version::V1_1 => {
                to.length(count + 1)?;
                self.0.encode_utf16().chain([0]).try_for_each(|unit| unit.encode(to))
            }
            Version::V1_2 => {
                // A text that begins with an apparent mark needs a mark before it.
                let marked = matches!(self.0.chars().next(), Some('\u{feff}' | '\u{fffe}'));
                to.length(2 * (count + usize::from(marked)))?;
                if marked {
                    to.raw(&MARK.to_be_bytes());
                }
                self.0.encode_utf16().for_each(|unit| to.raw(&unit.to_be_bytes()));
                Ok(())
            }
        }
    }
}

impl Decode<'_> for WString {
    const LEAST: usize = 4;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let (octets, order) = match from.version() {
            Version::V1_0 => return Err(from.error(DecodeErrorKind::Unsupported("wide characters in GIOP 1.0"))),
            Version::V1_1 => {
                let units = from.length(2)?;
                (from.raw(2 * units)?, from.order())
            }
            Version::V1_2 => {
                let length = from.length(1)?;
                match from.raw(length)? {
                    [0xff, 0xfe, octets @ ..] => (octets, ByteOrder::Little),
                    [0xfe, 0xff, octets @ ..] => (octets, ByteOrder::Big),
                    octets => (octets, ByteOrder::Big),
                }
            }
        };
        let (units, []) = octets.as_chunks::<2>() else {
            return Err(from.error(DecodeErrorKind::CharSet));
        };
        let units = units.iter().map(|unit| match order {
            ByteOrder::Big => u16::from_be_bytes(*unit),
            ByteOrder::Little => u16::from_le_bytes(*unit),
        });
        let mut text = String::with_capacity(units.len());
        for c in char::decode_utf16(units) {
            text.push(c.map_err(|_| from.error(DecodeErrorKind::CharSet))?);
        }
        // 1.1 has a terminator; some peers write one in 1.2 too.
        if text.ends_with('\0') {
            text.pop();
        } else if from.version() == Version::V1_1 && !octets.is_empty() {
            return Err(from.error(DecodeErrorKind::String));
        }
        if text.contains('\0') {
            return Err(from.error(DecodeErrorKind::String));
        }
        Ok(WString(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn written<T: Encode>(value: &T, version: Version, order: ByteOrder) -> Vec<u8> {
        let mut to = Encoder::new(order);
        to.speak(version, crate::CharSet::Utf8);
        value.encode(&mut to).unwrap();
        to.into_bytes()
    }

    fn read<'a, T: Decode<'a>>(octets: &'a [u8], version: Version, order: ByteOrder) -> Result<T, DecodeError> {
        let mut from = Decoder::new(octets, order);
        from.speak(version, crate::CharSet::Utf8);
        let value = T::decode(&mut from)?;
        assert_eq!(from.left(), 0);
        Ok(value)
    }

    #[test]
    fn each_version_has_its_own_form() {
        let text = WString::from("h€");
        let (big, little) = (ByteOrder::Big, ByteOrder::Little);
        assert_eq!(written(&text, Version::V1_1, big), [0, 0, 0, 3, 0, b'h', 0x20, 0xac, 0, 0]);
        assert_eq!(written(&text, Version::V1_1, little), [3, 0, 0, 0, b'h', 0, 0xac, 0x20, 0, 0]);
        assert_eq!(written(&text, Version::V1_2, big), [0, 0, 0, 4, 0, b'h', 0x20, 0xac]);
        assert_eq!(written(&text, Version::V1_2, little), [4, 0, 0, 0, 0, b'h', 0x20, 0xac]);
        assert_eq!(written(&WChar('€'), Version::V1_1, little), [0xac, 0x20]);
        assert_eq!(written(&WChar('€'), Version::V1_2, little), [2, 0x20, 0xac]);
    }

    #[test]
    fn marks_tell_the_byte_order() {
        let (version, order) = (Version::V1_2, ByteOrder::Little);
        let marked_little = [6, 0, 0, 0, 0xff, 0xfe, b'h', 0, 0xac, 0x20];
        let marked_big = [6, 0, 0, 0, 0xfe, 0xff, 0, b'h', 0x20, 0xac];
        assert_eq!(read(&marked_little, version, order), Ok(WString::from("h€")));
        assert_eq!(read(&marked_big, version, order), Ok(WString::from("h€")));
        for text in ["\u{feff}x", "\u{fffe}x", "\u{feff}", "𝄞"] {
            let octets = written(&WString::from(text), version, order);
            assert_eq!(read(&octets, version, order), Ok(WString::from(text)), "{text:?}");
        }
        assert_eq!(read(&[4, 0xff, 0xfe, 0xac, 0x20], version, order), Ok(WChar('€')));
    }

    #[test]
    fn what_cannot_travel_is_refused() {
        let mut to = Encoder::new(ByteOrder::Big);
        assert_eq!(WChar('𝄞').encode(&mut to), Err(EncodeError::NotInCharSet('𝄞')));
        assert_eq!(WString::from("a\0").encode(&mut to), Err(EncodeError::NulInString));
        to.speak(Version::V1_0, crate::CharSet::Utf8);
        assert_eq!(WString::from("a").encode(&mut to), Err(WIDE));
        let half = [0, 0, 0, 2, 0xd8, 0x34];
        let kind = read::<WString>(&half, Version::V1_2, ByteOrder::Big).unwrap_err().kind;
        assert_eq!(kind, DecodeErrorKind::CharSet);
        let kind = read::<WString>(&[0, 0, 0, 3, 0, 65, 0], Version::V1_2, ByteOrder::Big).unwrap_err().kind;
        assert_eq!(kind, DecodeErrorKind::CharSet);
        let kind = read::<WString>(&[0, 0, 0, 1, 0, 65], Version::V1_1, ByteOrder::Big).unwrap_err().kind;
        assert_eq!(kind, DecodeErrorKind::String);
    }
}
