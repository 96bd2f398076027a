//! Sequences, arrays, strings, octets (9.3.2).

use alloc::{borrow::Cow, boxed::Box, string::String, vec::Vec};

use super::{CharSet, Decode, DecodeError, DecodeErrorKind, Decoder, Encode, EncodeError, Encoder};

impl<T: Encode> Encode for [T] {
    #[inline]
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        to.length(self.len())?;
        T::encode_all(self, to)
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    #[inline]
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        (**self).encode(to)
    }
}

impl<T: Encode + ?Sized> Encode for Box<T> {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        (**self).encode(to)
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Box<T> {
    const LEAST: usize = T::LEAST;

    fn decode(from: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        T::decode(from).map(Box::new)
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        self.as_slice().encode(to)
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Vec<T> {
    const LEAST: usize = 4;

    fn decode(from: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        // Elements without octets are charged instead.
        let count = if size_of::<T>() == 0 { u32::decode(from)? as usize } else { from.length(T::LEAST)? };
        // Recursive types go through sequences: this bounds them all.
        from.nested(|from| T::decode_all(from, count))
    }
}

/// A sequence of octets, borrowed from the message.
impl<'a> Decode<'a> for &'a [u8] {
    const LEAST: usize = 4;

    /// Always inlined: reading a result back from memory just after its parts were written stalls the processor.
    #[inline(always)]
    fn decode(from: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let count = u32::decode(from)?;
        from.raw(count as usize)
    }
}

/// An IDL array: elements without a length.
impl<T: Encode, const N: usize> Encode for [T; N] {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        T::encode_all(self, to)
    }
}

impl<'a, T: Decode<'a>, const N: usize> Decode<'a> for [T; N] {
    const LEAST: usize = if N * T::LEAST == 0 { 1 } else { N * T::LEAST };

    fn decode(from: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let (needed, left) = (N.saturating_mul(T::LEAST), from.left());
        if needed > left {
            return Err(from.error(DecodeErrorKind::Short { needed, left }));
        }
        T::decode_array(from)
    }
}

impl Encode for str {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        if self.as_bytes().contains(&0) {
            return Err(EncodeError::NulInString);
        }
        if to.chars() == CharSet::Utf8 || self.is_ascii() {
            to.length(self.len() + 1)?;
            to.raw(self.as_bytes());
        } else {
            to.length(self.chars().count() + 1)?;
            for c in self.chars() {
                let octet = u8::try_from(u32::from(c)).map_err(|_| EncodeError::NotInCharSet(c))?;
                to.raw(&[octet]);
            }
        }
        to.raw(&[0]);
        Ok(())
    }
}

impl Encode for String {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        self.as_str().encode(to)
    }
}

impl Encode for Cow<'_, str> {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        (**self).encode(to)
    }
}

/// A string, borrowed if the connection's character set allows it.
impl<'a> Decode<'a> for Cow<'a, str> {
    const LEAST: usize = 4;

    fn decode(from: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let count = from.length(1)?;
        if count == 0 {
            // Against the standard, but some peers write an empty string like this.
            return Ok(Cow::Borrowed(""));
        }
        let start = from.clone();
        let octets = from.raw(count)?;
        let Some((0, text)) = octets.split_last().map(|(last, text)| (*last, text)) else {
            return Err(start.error(DecodeErrorKind::String));
        };
        if text.contains(&0) {
            return Err(start.error(DecodeErrorKind::String));
        }
        match from.chars() {
            CharSet::Utf8 => match core::str::from_utf8(text) {
                Ok(text) => Ok(Cow::Borrowed(text)),
                Err(_) => Err(start.error(DecodeErrorKind::CharSet)),
            },
            CharSet::Latin1 if text.is_ascii() => Ok(Cow::Borrowed(core::str::from_utf8(text).unwrap_or_default())),
            CharSet::Latin1 => Ok(Cow::Owned(text.iter().map(|octet| char::from(*octet)).collect())),
        }
    }
}

impl Decode<'_> for String {
    const LEAST: usize = 4;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Cow::<str>::decode(from).map(Cow::into_owned)
    }
}
