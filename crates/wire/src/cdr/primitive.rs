//! Numbers, booleans and octets (9.3.1).

use super::{ByteOrder, Decode, DecodeError, DecodeErrorKind, Decoder, Encode, EncodeError, Encoder};
use alloc::vec::Vec;
use zerocopy::IntoBytes;

macro_rules! number {
    ($($type:ty)*) => { $(
        impl Encode for $type {
            #[inline]
            fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
                to.align(size_of::<$type>());
                match to.order() {
                    ByteOrder::Big => to.raw(&self.to_be_bytes()),
                    ByteOrder::Little => to.raw(&self.to_le_bytes()),
                }
                Ok(())
            }

            fn encode_all(items: &[$type], to: &mut Encoder) -> Result<(), EncodeError> {
                // An empty sequence is only its length: without elements there is no alignment.
                if items.is_empty() {
                    return Ok(());
                }
                to.align(size_of::<$type>());
                if to.order() == ByteOrder::NATIVE {
                    to.raw(items.as_bytes());
                    return Ok(());
                }
                if items.len() < BLOCK / 4 {
                    return items.iter().try_for_each(|item| item.encode(to));
                }
                to.reserve(size_of_val(items));
                // Swapped in blocks on the stack, which fit a cache and do not require zeroed output.
                let mut block = [[0; size_of::<$type>()]; BLOCK];
                for items in items.chunks(BLOCK) {
                    for (octets, item) in block.iter_mut().zip(items) {
                        *octets = item.to_ne_bytes();
                        octets.reverse();
                    }
                    to.raw(block[..items.len()].as_flattened());
                }
                Ok(())
            }
        }

        impl Decode<'_> for $type {
            const LEAST: usize = size_of::<$type>();

            #[inline]
            fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                let octets = from.number()?;
                Ok(match from.order() {
                    ByteOrder::Big => <$type>::from_be_bytes(octets),
                    ByteOrder::Little => <$type>::from_le_bytes(octets),
                })
            }

            fn decode_all(from: &mut Decoder<'_>, count: usize) -> Result<Vec<$type>, DecodeError> {
                let octets = from.numbers(count, size_of::<$type>())?;
                let octets = octets.as_chunks().0.iter();
                Ok(match from.order() {
                    ByteOrder::Big => octets.map(|octets| <$type>::from_be_bytes(*octets)).collect(),
                    ByteOrder::Little => octets.map(|octets| <$type>::from_le_bytes(*octets)).collect(),
                })
            }

            fn decode_array<const N: usize>(from: &mut Decoder<'_>) -> Result<[$type; N], DecodeError> {
                let octets = from.numbers(N, size_of::<$type>())?;
                let octets = octets.as_chunks().0;
                Ok(match from.order() {
                    ByteOrder::Big => core::array::from_fn(|place| <$type>::from_be_bytes(octets[place])),
                    ByteOrder::Little => core::array::from_fn(|place| <$type>::from_le_bytes(octets[place])),
                })
            }
        }
    )* };
}

/// Numbers of the other byte order that are swapped at once.
const BLOCK: usize = 64;

number!(i16 u16 i32 u32 i64 u64 f32 f64 i8);

impl Encode for u8 {
    #[inline]
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        to.raw(&[*self]);
        Ok(())
    }

    #[inline]
    fn encode_all(items: &[u8], to: &mut Encoder) -> Result<(), EncodeError> {
        to.raw(items);
        Ok(())
    }
}

impl Decode<'_> for u8 {
    #[inline]
    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(from.raw(1)?[0])
    }

    #[inline]
    fn decode_all(from: &mut Decoder<'_>, count: usize) -> Result<Vec<u8>, DecodeError> {
        Ok(from.raw(count)?.to_vec())
    }

    #[inline]
    fn decode_array<const N: usize>(from: &mut Decoder<'_>) -> Result<[u8; N], DecodeError> {
        let mut octets = [0; N];
        octets.copy_from_slice(from.raw(N)?);
        Ok(octets)
    }
}

impl Encode for bool {
    #[inline]
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        u8::from(*self).encode(to)
    }

    fn encode_all(items: &[bool], to: &mut Encoder) -> Result<(), EncodeError> {
        to.raw(items.as_bytes());
        Ok(())
    }
}

impl Decode<'_> for bool {
    #[inline]
    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match u8::decode(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(from.error(NO_BOOLEAN)),
        }
    }

    fn decode_all(from: &mut Decoder<'_>, count: usize) -> Result<Vec<bool>, DecodeError> {
        let start = from.clone();
        let octets = from.raw(count)?;
        if octets.iter().any(|octet| *octet > 1) {
            return Err(start.error(NO_BOOLEAN));
        }
        Ok(octets.iter().map(|octet| *octet == 1).collect())
    }
}

const NO_BOOLEAN: DecodeErrorKind = DecodeErrorKind::Value("a boolean that is neither 0 nor 1");

/// One octet, that of Latin-1. UTF-8 has no such octets above 0x7f, but rejecting them would break omniORB, which
/// writes 0xff as the discriminator of a union's default.
impl Encode for char {
    #[inline]
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        u8::try_from(u32::from(*self)).map_err(|_| EncodeError::NotInCharSet(*self))?.encode(to)
    }
}

impl Decode<'_> for char {
    #[inline]
    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        u8::decode(from).map(char::from)
    }
}

/// Nothing: `void`, and absent members.
impl Encode for () {
    fn encode(&self, _: &mut Encoder) -> Result<(), EncodeError> {
        Ok(())
    }
}

impl Decode<'_> for () {
    fn decode(_: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(())
    }
}
