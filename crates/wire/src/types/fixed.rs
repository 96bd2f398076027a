//! `fixed` (CORBA 3.3 part 2, 9.3.2.8): decimal digits, two to an octet, the sign in the last half octet.

use core::fmt;
use core::str::FromStr;

use crate::cdr::{Decode, DecodeError, DecodeErrorKind, Decoder, Encode, EncodeError, Encoder};

/// The most digits that IDL allows.
const DIGITS: u16 = 31;

/// An IDL `fixed<D, S>`: at most `D` decimal digits, `S` of them after the point; exact.
///
/// ```
/// use hyoshi_wire::Fixed;
/// let price: Fixed<9, 2> = "1234.5".parse()?;
/// assert_eq!(price.to_string(), "1234.50");
/// assert_eq!(price.unscaled(), 123450);
/// assert!("0.125".parse::<Fixed<9, 2>>().is_err());
/// # Ok::<(), hyoshi_wire::FixedError>(())
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fixed<const D: u16, const S: i16>(i128);

/// A decimal number with digits and scale that are known only at run time: `unscaled` times ten to the `-scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FixedDecimal {
    /// All digits, with the sign.
    pub unscaled: i128,
    /// How many of them are after the point; negative: how many zeros follow them.
    pub scale: i16,
}

/// Why a number is not a `fixed` of the requested type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FixedError {
    /// Too many digits before the point.
    TooLarge {
        /// All digits of the type.
        digits: u16,
        /// Those after the point.
        scale: i16,
    },
    /// Digits after the point that the type would lose.
    TooFine {
        /// Digits after the point.
        scale: i16,
    },
    /// Not a decimal number.
    Syntax,
}

impl fmt::Display for FixedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FixedError::TooLarge { digits, scale } => write!(f, "too large for fixed<{digits}, {scale}>"),
            FixedError::TooFine { scale } => write!(f, "digits beyond the {scale} after the point would be lost"),
            FixedError::Syntax => f.write_str("not a decimal number such as -12.50"),
        }
    }
}

impl core::error::Error for FixedError {}

impl FixedDecimal {
    /// The same number with `digits` digits and `scale` of them after the point. No type has other than 1 to 31 digits.
    pub fn rescaled(self, digits: u16, scale: i16) -> Result<FixedDecimal, FixedError> {
        // Type codes can contain any number.
        if !(1..=DIGITS).contains(&digits) {
            return Err(FixedError::TooLarge { digits, scale });
        }
        let mut unscaled = self.unscaled;
        let shift = i32::from(scale) - i32::from(self.scale);
        for _ in 0..shift.unsigned_abs() {
            if unscaled == 0 {
                break;
            }
            if shift < 0 {
                if unscaled % 10 != 0 {
                    return Err(FixedError::TooFine { scale });
                }
                unscaled /= 10;
            } else {
                unscaled = unscaled.checked_mul(10).ok_or(FixedError::TooLarge { digits, scale })?;
            }
        }
        if unscaled.unsigned_abs() >= limit(digits) {
            return Err(FixedError::TooLarge { digits, scale });
        }
        Ok(FixedDecimal { unscaled, scale })
    }
}

impl FromStr for FixedDecimal {
    type Err = FixedError;

    /// Reads `-12.50`, and `12.50d` as IDL writes it.
    fn from_str(text: &str) -> Result<Self, FixedError> {
        let text = text.strip_suffix(['d', 'D']).unwrap_or(text);
        let (negative, text) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        if whole.is_empty() && fraction.is_empty() {
            return Err(FixedError::Syntax);
        }
        let fraction = fraction.trim_end_matches('0');
        let mut unscaled = 0i128;
        for digit in whole.bytes().chain(fraction.bytes()) {
            if !digit.is_ascii_digit() {
                return Err(FixedError::Syntax);
            }
            unscaled = 10 * unscaled + i128::from(digit - b'0');
            if unscaled.unsigned_abs() >= limit(DIGITS) {
                return Err(FixedError::TooLarge { digits: DIGITS, scale: 0 });
            }
        }
        let scale = i16::try_from(fraction.len()).map_err(|_| FixedError::TooFine { scale: DIGITS as i16 })?;
        Ok(FixedDecimal { unscaled: if negative { -unscaled } else { unscaled }, scale })
    }
}

impl fmt::Display for FixedDecimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = alloc::format!("{:0width$}", self.unscaled.unsigned_abs(), width = self.scale.max(0) as usize + 1);
        let (whole, fraction) = digits.split_at(digits.len() - self.scale.max(0) as usize);
        let zeros = if self.unscaled == 0 { 0 } else { usize::from(self.scale.min(0).unsigned_abs()) };
        let point = if fraction.is_empty() { "" } else { "." };
        f.pad_integral(self.unscaled >= 0, "", &alloc::format!("{whole}{:0<zeros$}{point}{fraction}", ""))
    }
}

impl<const D: u16, const S: i16> Fixed<D, S> {
    /// The largest.
    pub const MAX: Self = Fixed(limit(D) as i128 - 1);
    /// The smallest.
    pub const MIN: Self = Fixed(1 - limit(D) as i128);

    /// From all its digits, including those after the point: 1234 is 12.34 as a `Fixed<9, 2>`.
    pub fn from_unscaled(unscaled: i128) -> Result<Self, FixedError> {
        if unscaled.unsigned_abs() >= limit(D) {
            return Err(FixedError::TooLarge { digits: D, scale: S });
        }
        Ok(Fixed(unscaled))
    }

    /// As [`from_unscaled`](Self::from_unscaled), for constants.
    ///
    /// # Panics
    ///
    /// If there are too many digits: in a constant, when it is compiled.
    pub const fn of_unscaled(unscaled: i128) -> Self {
        assert!(unscaled.unsigned_abs() < limit(D), "more digits than the type has");
        Fixed(unscaled)
    }

    /// All its digits.
    pub const fn unscaled(self) -> i128 {
        self.0
    }

    /// The nearest `f64`, about.
    pub fn to_f64(self) -> f64 {
        let mut value = self.0 as f64;
        for _ in 0..S.unsigned_abs() {
            value = if S > 0 { value / 10.0 } else { value * 10.0 };
        }
        value
    }
}

/// Ten to the `digits`: one more than the largest value. Fails to compile for types that IDL does not allow.
const fn limit(digits: u16) -> u128 {
    assert!(1 <= digits && digits <= DIGITS, "a fixed has 1 to 31 digits");
    10u128.pow(digits as u32)
}

impl<const D: u16, const S: i16> TryFrom<FixedDecimal> for Fixed<D, S> {
    type Error = FixedError;

    fn try_from(value: FixedDecimal) -> Result<Self, FixedError> {
        value.rescaled(D, S).map(|value| Fixed(value.unscaled))
    }
}

impl<const D: u16, const S: i16> From<Fixed<D, S>> for FixedDecimal {
    fn from(value: Fixed<D, S>) -> Self {
        FixedDecimal { unscaled: value.0, scale: S }
    }
}

macro_rules! from_integer {
    ($($type:ty)*) => { $(
        impl<const D: u16, const S: i16> TryFrom<$type> for Fixed<D, S> {
            type Error = FixedError;

            fn try_from(value: $type) -> Result<Self, FixedError> {
                FixedDecimal { unscaled: value.into(), scale: 0 }.try_into()
            }
        }
    )* };
}

from_integer!(i8 u8 i16 u16 i32 u32 i64 u64 i128);

impl<const D: u16, const S: i16> FromStr for Fixed<D, S> {
    type Err = FixedError;

    fn from_str(text: &str) -> Result<Self, FixedError> {
        text.parse::<FixedDecimal>()?.try_into()
    }
}

impl<const D: u16, const S: i16> fmt::Display for Fixed<D, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        FixedDecimal::from(*self).fmt(f)
    }
}

impl<const D: u16, const S: i16> fmt::Debug for Fixed<D, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fixed<{D}, {S}>({self})")
    }
}

/// Writes `digits` digits of `value`, which must fit. No alignment.
pub(crate) fn write_packed(value: i128, digits: u16, to: &mut Encoder) -> Result<(), EncodeError> {
    if !(1..=DIGITS).contains(&digits) || value.unsigned_abs() >= limit(digits) {
        return Err(EncodeError::Value("a fixed with more digits than its type"));
    }
    let (mut rest, mut octets) = (value.unsigned_abs(), [0; DIGITS as usize / 2 + 1]);
    let octets = &mut octets[..usize::from(digits) / 2 + 1];
    let mut low = if value < 0 { 0xd } else { 0xc };
    for octet in octets.iter_mut().rev() {
        let high = (rest % 10) as u8;
        *octet = high << 4 | low;
        rest /= 10;
        low = (rest % 10) as u8;
        rest /= 10;
    }
    to.raw(octets);
    Ok(())
}

/// Reads what [`write_packed`] writes.
pub(crate) fn read_packed(digits: u16, from: &mut Decoder<'_>) -> Result<i128, DecodeError> {
    const BAD: DecodeErrorKind = DecodeErrorKind::Value("a fixed with a half octet that is not a digit or sign");
    if !(1..=DIGITS).contains(&digits) {
        return Err(from.error(DecodeErrorKind::Value("a fixed type without 1 to 31 digits")));
    }
    let start = from.clone();
    let octets = from.raw(usize::from(digits) / 2 + 1)?;
    let mut value = 0i128;
    for (place, octet) in octets.iter().enumerate() {
        let (high, low) = (octet >> 4, octet & 0xf);
        if high > 9 {
            return Err(start.error(BAD));
        }
        value = 10 * value + i128::from(high);
        if place + 1 < octets.len() {
            if low > 9 {
                return Err(start.error(BAD));
            }
            value = 10 * value + i128::from(low);
        } else if low == 0xd {
            value = -value;
        } else if low != 0xc {
            return Err(start.error(BAD));
        }
    }
    // With an even number of digits, the first half octet must be zero.
    if value.unsigned_abs() >= limit(digits) {
        return Err(start.error(DecodeErrorKind::Value("a fixed with more digits than its type")));
    }
    Ok(value)
}

impl<const D: u16, const S: i16> Encode for Fixed<D, S> {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        write_packed(self.0, D, to)
    }
}

impl<const D: u16, const S: i16> Decode<'_> for Fixed<D, S> {
    const LEAST: usize = D as usize / 2 + 1;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        read_packed(D, from).map(Fixed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ByteOrder;
    use alloc::string::ToString;
    use proptest::prelude::*;

    #[test]
    fn digits_lie_two_to_an_octet_with_the_sign_last() {
        let written = |write: &dyn Fn(&mut Encoder) -> Result<(), EncodeError>| {
            let mut to = Encoder::new(ByteOrder::Big);
            write(&mut to).unwrap();
            to.into_bytes()
        };
        let odd: Fixed<5, 2> = "123.45".parse().unwrap();
        assert_eq!(written(&|to| odd.encode(to)), [0x12, 0x34, 0x5c]);
        let even: Fixed<4, 2> = "-12.34".parse().unwrap();
        assert_eq!(written(&|to| even.encode(to)), [0x01, 0x23, 0x4d]);
        assert_eq!(written(&|to| Fixed::<1, 0>::default().encode(to)), [0x0c]);
        assert_eq!(written(&|to| Fixed::<31, 0>::MAX.encode(to)).len(), 16);
    }

    #[test]
    fn what_is_no_digit_is_refused() {
        let read = |octets: &[u8]| Fixed::<4, 2>::decode(&mut Decoder::new(octets, ByteOrder::Big));
        assert_eq!(read(&[0x01, 0x23, 0x4c]), Fixed::from_unscaled(1234).map_err(|_| unreachable!()));
        for bad in [[0x01, 0x2a, 0x4c], [0x01, 0x23, 0x4e], [0x11, 0x23, 0x4c], [0xa1, 0x23, 0x4c]] {
            assert!(matches!(read(&bad).unwrap_err().kind, DecodeErrorKind::Value(_)), "{bad:x?}");
        }
        assert!(matches!(read(&[0x01, 0x23]).unwrap_err().kind, DecodeErrorKind::Short { .. }));
    }

    #[test]
    fn text_is_read_and_written() {
        for (text, shown) in [("1", "1.00"), ("-0.5", "-0.50"), ("+.25d", "0.25"), ("0012.30", "12.30"), ("0", "0.00")]
        {
            assert_eq!(text.parse::<Fixed<5, 2>>().unwrap().to_string(), shown);
        }
        for bad in ["", "-", ".", "1,5", "1.2.3", "1e3", "１"] {
            assert_eq!(bad.parse::<Fixed<5, 2>>(), Err(FixedError::Syntax), "{bad}");
        }
        assert_eq!("1000".parse::<Fixed<5, 2>>(), Err(FixedError::TooLarge { digits: 5, scale: 2 }));
        assert_eq!("0.001".parse::<Fixed<5, 2>>(), Err(FixedError::TooFine { scale: 2 }));
        assert_eq!(Fixed::<3, -2>::try_from(4500).unwrap().to_string(), "4500");
        assert_eq!(Fixed::<3, -2>::try_from(4510), Err(FixedError::TooFine { scale: -2 }));
        assert_eq!(alloc::format!("{:>8}", Fixed::<5, 2>::try_from(-7).unwrap()), "   -7.00");
        assert_eq!(Fixed::<5, 2>::try_from(-7).unwrap().to_f64(), -7.0);
    }

    proptest! {
        #[test]
        fn every_number_is_read_as_written(unscaled in 1 - limit(31) as i128..limit(31) as i128) {
            let value = Fixed::<31, 7>::from_unscaled(unscaled).unwrap();
            prop_assert_eq!(value.to_string().parse(), Ok(value));
            let mut to = Encoder::new(ByteOrder::Big);
            value.encode(&mut to).unwrap();
            prop_assert_eq!(Fixed::decode(&mut Decoder::new(to.bytes(), ByteOrder::Big)), Ok(value));
        }
    }
}
