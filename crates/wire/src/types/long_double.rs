//! `long double` (CORBA 3.3 part 2, 9.3.1.3): IEEE 754 binary128, sixteen octets aligned to eight.

use core::cmp::Ordering;
use core::fmt;

use crate::cdr::{ByteOrder, Decode, DecodeError, Decoder, Encode, EncodeError, Encoder};

/// An IDL `long double`. Rust has no arithmetic for it: it is stored exactly, and converts to and from `f64`.
#[derive(Clone, Copy, Default)]
pub struct LongDouble(u128);

const FRACTION: u32 = 112;
const TOP: u128 = 0x7fff;
const BIAS: i32 = 16383;

impl LongDouble {
    /// Of the bits of a binary128.
    pub const fn from_bits(bits: u128) -> Self {
        LongDouble(bits)
    }

    /// Its bits.
    pub const fn to_bits(self) -> u128 {
        self.0
    }

    /// The nearest `f64`, ties to even; infinite if too large for one.
    pub fn to_f64(self) -> f64 {
        let sign = ((self.0 >> 127) as u64) << 63;
        let fraction = self.0 & ((1 << FRACTION) - 1);
        let exponent = ((self.0 >> FRACTION) & TOP) as i32;
        let magnitude = match exponent - BIAS {
            _ if exponent == TOP as i32 && fraction == 0 => f64::INFINITY.to_bits(),
            _ if exponent == TOP as i32 => f64::NAN.to_bits() | (fraction >> 60) as u64,
            1024.. => f64::INFINITY.to_bits(),
            // A fraction that rounds up to 2 carries into the exponent, and from the largest to infinity.
            power @ -1022.. => (((power + 1023) as u64) << 52) + rounded(fraction, 60),
            power @ -1075.. => rounded(1 << FRACTION | fraction, (-962 - power) as u32),
            _ => 0,
        };
        f64::from_bits(sign | magnitude)
    }

    fn is_nan(self) -> bool {
        self.0 << 1 > TOP << (FRACTION + 1)
    }

    /// The bits as a number that orders like the values; both zeros are equal.
    fn key(self) -> i128 {
        let magnitude = (self.0 << 1 >> 1) as i128;
        if self.0 >> 127 == 1 { -magnitude } else { magnitude }
    }
}

/// `value` divided by two to the `shift`, ties to even.
fn rounded(value: u128, shift: u32) -> u64 {
    let (whole, rest, half) = (value >> shift, value & ((1 << shift) - 1), 1 << (shift - 1));
    (whole + u128::from(rest > half || rest == half && whole & 1 == 1)) as u64
}

impl From<f64> for LongDouble {
    fn from(value: f64) -> Self {
        let bits = value.to_bits();
        let sign = u128::from(bits >> 63) << 127;
        let fraction = u128::from(bits & ((1 << 52) - 1));
        let magnitude = match (bits >> 52) as i32 & 0x7ff {
            0 if fraction == 0 => 0,
            0 => {
                let highest = fraction.ilog2();
                let exponent = (highest as i32 - 1074 + BIAS) as u128;
                exponent << FRACTION | (fraction ^ 1 << highest) << (FRACTION - highest)
            }
            0x7ff => TOP << FRACTION | fraction << 60,
            exponent => ((exponent - 1023 + BIAS) as u128) << FRACTION | fraction << 60,
        };
        LongDouble(sign | magnitude)
    }
}

impl From<LongDouble> for f64 {
    fn from(value: LongDouble) -> Self {
        value.to_f64()
    }
}

impl PartialEq for LongDouble {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

impl PartialOrd for LongDouble {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (!self.is_nan() && !other.is_nan()).then(|| self.key().cmp(&other.key()))
    }
}

impl fmt::Debug for LongDouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LongDouble({:?})", self.to_f64())
    }
}

/// With the precision of an `f64`.
impl fmt::Display for LongDouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_f64().fmt(f)
    }
}

impl Encode for LongDouble {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        to.align(8);
        match to.order() {
            ByteOrder::Big => to.raw(&self.0.to_be_bytes()),
            ByteOrder::Little => to.raw(&self.0.to_le_bytes()),
        }
        Ok(())
    }
}

impl Decode<'_> for LongDouble {
    const LEAST: usize = 16;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        from.align(8)?;
        let mut octets = [0; 16];
        octets.copy_from_slice(from.raw(16)?);
        Ok(LongDouble(match from.order() {
            ByteOrder::Big => u128::from_be_bytes(octets),
            ByteOrder::Little => u128::from_le_bytes(octets),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_values_have_known_bits() {
        // IEEE 754-2008, 3.6: bias 16383, 112 bits of fraction.
        assert_eq!(LongDouble::from(1.0).to_bits(), 0x3fff << 112);
        assert_eq!(LongDouble::from(-2.5).to_bits(), 0xc000_4000 << 96);
        assert_eq!(LongDouble::from(f64::from_bits(1)).to_bits(), ((16383 - 1074) as u128) << 112);
        assert_eq!(LongDouble::from(f64::INFINITY).to_bits(), 0x7fff << 112);
        assert_eq!(LongDouble::from_bits(0x4fff << 112).to_f64(), f64::INFINITY);
        assert_eq!(LongDouble::from_bits(1).to_f64(), 0.0);
        // Half the smallest f64 rounds to even, which is zero; a little more rounds up.
        let half = ((16383 - 1075) as u128) << 112;
        assert_eq!(LongDouble::from_bits(half).to_f64().to_bits(), 0);
        assert_eq!(LongDouble::from_bits(half + 1).to_f64().to_bits(), 1);
        assert!(LongDouble::from(0.0) == LongDouble::from(-0.0));
        assert!(LongDouble::from(f64::NAN) != LongDouble::from(f64::NAN));
        assert!(LongDouble::from(f64::NAN).to_f64().is_nan());
    }

    proptest! {
        #[test]
        fn every_f64_is_decoded_as_encoded(bits: u64) {
            let value = f64::from_bits(bits);
            let back = LongDouble::from(value).to_f64();
            prop_assert!(back.to_bits() == bits || value.is_nan() && back.is_nan());
        }

        #[test]
        fn rounding_is_to_the_nearest(bits in 0u64..f64::MAX.to_bits(), between in 0u128..1 << 60) {
            let below = LongDouble::from(f64::from_bits(bits));
            let above = LongDouble::from(f64::from_bits(bits + 1));
            prop_assume!(above.0 - below.0 == 1 << 60);
            let expected = match between.cmp(&(1 << 59)) {
                Ordering::Less => bits,
                Ordering::Greater => bits + 1,
                Ordering::Equal => bits + (bits & 1),
            };
            prop_assert_eq!(LongDouble(below.0 + between).to_f64().to_bits(), expected);
        }

        #[test]
        fn order_is_that_of_the_values(a: f64, b: f64) {
            prop_assert_eq!(LongDouble::from(a).partial_cmp(&LongDouble::from(b)), a.partial_cmp(&b));
        }
    }
}
