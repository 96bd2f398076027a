//! Laws of the codecs, for values of every type, in every form that a peer may send.

mod hostile;
mod peers;
mod values;

use alloc::{string::String, vec::Vec};
use core::fmt::Debug;
use proptest::prelude::*;

use crate::{
    Any, ByteOrder, CharSet, Decode, DecodeError, Decoder, Encode, EncodeError, Encoder, Fixed, LongDouble, TypeCode,
    Types, Value, Version, WChar, WString,
};
use values::{latin, typed_value};

/// A peer's form, and the offset in its message.
#[derive(Clone, Copy, Debug)]
struct Form {
    order: ByteOrder,
    version: Version,
    chars: CharSet,
    offset: usize,
    padding: u8,
}

fn form() -> impl Strategy<Value = Form> {
    let version = prop_oneof![Just(Version::V1_0), Just(Version::V1_1), Just(Version::V1_2)];
    (any::<bool>(), version, any::<bool>(), 0usize..8, any::<u8>()).prop_map(|(big, version, utf8, offset, padding)| {
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let chars = if utf8 && version > Version::V1_0 { CharSet::Utf8 } else { CharSet::Latin1 };
        Form { order, version, chars, offset, padding }
    })
}

impl Form {
    /// None if the version has no such type.
    fn write(self, value: impl FnOnce(&mut Encoder) -> Result<(), EncodeError>) -> Option<Vec<u8>> {
        let mut to = Encoder::new(self.order);
        to.speak(self.version, self.chars);
        to.padding = self.padding;
        to.raw(&[0xee; 8][..self.offset]);
        match value(&mut to) {
            Ok(()) => Some(to.into_bytes()),
            Err(EncodeError::NotInVersion(_)) if self.version == Version::V1_0 => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn reader(self, octets: &[u8]) -> Decoder<'_> {
        let mut from = Decoder::new(octets, self.order);
        from.speak(self.version, self.chars);
        from.raw(self.offset).unwrap();
        from
    }

    /// The whole value is read back and used up; cut anywhere it is an error.
    fn law<T: PartialEq + Debug>(
        self,
        octets: &[u8],
        value: &T,
        read: impl Fn(&mut Decoder<'_>) -> Result<T, DecodeError>,
    ) -> Result<(), TestCaseError> {
        let mut from = self.reader(octets);
        let whole = read(&mut from);
        prop_assert_eq!(whole.as_ref(), Ok(value));
        prop_assert_eq!(from.left(), 0);
        for cut in self.offset..octets.len() {
            let mut from = self.reader(&octets[..cut]);
            let cut_off = read(&mut from);
            prop_assert!(cut_off.is_err(), "cut at {cut}: {cut_off:?}");
        }
        Ok(())
    }

    fn of<T: Encode + for<'a> Decode<'a> + PartialEq + Debug>(self, value: &T) -> Result<(), TestCaseError> {
        match self.write(|to| value.encode(to)) {
            Some(octets) => self.law(&octets, value, |from| T::decode(from)),
            None => Ok(()),
        }
    }
}

macro_rules! laws {
    ($($name:ident: $type:ty = $strategy:expr;)*) => {
        proptest! { $(
            #[test]
            fn $name(form in form(), value in $strategy, many in proptest::collection::vec($strategy, 0..70)) {
                form.of::<$type>(&value)?;
                form.of::<Vec<$type>>(&many)?;
                if let Some(three) = many.first_chunk::<3>() {
                    form.of::<[$type; 3]>(three)?;
                }
            }
        )* }
    };
}

laws! {
    octets_come_back: u8 = any::<u8>();
    small_integers_come_back: i8 = any::<i8>();
    shorts_come_back: i16 = any::<i16>();
    unsigned_shorts_come_back: u16 = any::<u16>();
    longs_come_back: i32 = any::<i32>();
    unsigned_longs_come_back: u32 = any::<u32>();
    long_longs_come_back: i64 = any::<i64>();
    unsigned_long_longs_come_back: u64 = any::<u64>();
    floats_come_back: f32 = any::<f32>();
    doubles_come_back: f64 = any::<f64>();
    long_doubles_come_back: LongDouble = any::<f64>().prop_map(LongDouble::from);
    booleans_come_back: bool = any::<bool>();
    chars_come_back: char = proptest::char::range('\0', '\u{ff}');
    wide_chars_come_back: WChar = proptest::char::range('\0', '\u{d7ff}').prop_map(WChar);
    strings_come_back: String = latin();
    wide_strings_come_back: WString = "[^\0]{0,9}".prop_map(WString);
    even_fixed_come_back: Fixed<8, 3> = (-99_999_999i128..=99_999_999).prop_map(|n| Fixed::from_unscaled(n).unwrap());
    odd_fixed_come_back: Fixed<5, 0> = (-99_999i128..=99_999).prop_map(|n| Fixed::from_unscaled(n).unwrap());
    sequences_come_back: Vec<f64> = proptest::collection::vec(any::<f64>(), 0..5);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn anys_come_back(form in form(), (code, value) in typed_value(false)) {
        let any = Any::new(code.clone(), &value).unwrap();
        let tree = any.value();
        prop_assert_eq!(tree.as_ref(), Ok(&value));
        form.of(&any)?;
        form.of(&Any::of(&any).unwrap())?;
        // A value can be read and written without an any around it, too.
        if let Some(octets) = form.write(|to| value.encode_as(&code, to)) {
            form.law(&octets, &value, |from| Value::decode_as(&code, from))?;
        }
    }

    #[test]
    fn exceptions_come_back(form in form(), (code, value) in typed_value(true)) {
        let any = Any::new(code.clone(), &value).unwrap();
        if let Some(octets) = form.write(|to| any.encode(to)) {
            prop_assert_eq!(Any::decode(&mut form.reader(&octets)), Ok(any));
        }
    }

    #[test]
    fn type_codes_come_back(form in form(), (code, _) in typed_value(false), (other, _) in typed_value(false)) {
        form.of(&code)?;
        prop_assert!(code.is_equivalent(&code.unaliased()));
        prop_assert_eq!(&TypeCode::build(|types: &mut Types| { types.embed(&other); types.embed(&code) }), &code);
        // The common part of two types does not depend on their order.
        prop_assert_eq!(code == other, other == code);
        prop_assert_eq!(code.is_equivalent(&other), other.is_equivalent(&code));
        prop_assert!(code != other || code.is_equivalent(&other));
    }

    #[test]
    fn what_is_changed_is_an_error_or_another_value(
        form in form(),
        (code, value) in typed_value(false),
        at in any::<prop::sample::Index>(),
        octet: u8,
    ) {
        let any = Any::new(code, &value).unwrap();
        if let Some(mut octets) = form.write(|to| any.encode(to)) {
            let at = at.index(octets.len());
            octets[at] = octet;
            if let Ok(changed) = Any::decode(&mut form.reader(&octets)) {
                // Whatever it is now, it is complete.
                prop_assert!(changed.value().is_ok());
                let again = Any::new(changed.type_code().clone(), &changed.value().unwrap()).unwrap();
                prop_assert_eq!(again, changed);
            }
        }
    }

    /// Octets that can be read in a form can be written in it again, whatever their writer and its form. Otherwise a
    /// peer's type code could stop a process that passes it on.
    #[test]
    fn what_is_read_in_a_form_can_be_written_in_it(
        written in form(),
        read in form(),
        (code, value) in typed_value(false),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
    ) {
        // Alignment has the same origin.
        let read = Form { order: written.order, offset: written.offset, ..read };
        let any = Any::new(code.clone(), &value).unwrap();
        for octets in [written.write(|to| code.encode(to)), written.write(|to| any.encode(to))].into_iter().flatten() {
            let mut octets = octets;
            for (at, octet) in &changes {
                let at = at.index(octets.len());
                octets[at] = *octet;
            }
            if let Ok(code) = TypeCode::decode(&mut read.reader(&octets)) {
                let again = read.write(|to| code.encode(to));
                prop_assert!(again.is_some(), "{code:?} was read and cannot be written");
                prop_assert_eq!(TypeCode::decode(&mut read.reader(&again.unwrap_or_default())), Ok(code));
            }
            if let Ok(any) = Any::decode(&mut read.reader(&octets)) {
                let again = read.write(|to| any.encode(to));
                prop_assert!(again.is_some(), "{any:?} was read and cannot be written");
                prop_assert_eq!(Any::decode(&mut read.reader(&again.unwrap_or_default())), Ok(any));
            }
        }
    }
}
