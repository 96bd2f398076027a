//! Octets composed by hand from the standard's rules (CORBA 3.3 part 2, 9.3 and 9.3.5), one type at a time.

use hyoshi_wire::{Any, ByteOrder, CharSet, Decode, Decoder, Encode, Encoder, Fixed, LongDouble, TypeCode};
use hyoshi_wire::{Typed, Types, Value, Version, WChar, WString};

/// Hexadecimal digits; blanks and text after `|` on a line are ignored.
fn octets(text: &str) -> Vec<u8> {
    let lines = text.lines().map(|line| line.split('|').next().unwrap_or(""));
    let digits: String = lines.collect::<String>().split_whitespace().collect();
    let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(pair).collect()
}

#[track_caller]
fn form<T>(value: T, order: ByteOrder, version: Version, expected: &str)
where
    T: Encode + for<'a> Decode<'a> + PartialEq + std::fmt::Debug,
{
    let chars = if version == Version::V1_0 { CharSet::Latin1 } else { CharSet::Utf8 };
    let expected = octets(expected);
    let mut to = Encoder::new(order);
    to.speak(version, chars);
    value.encode(&mut to).unwrap();
    assert_eq!(to.bytes(), expected, "{value:?} {order:?}, written {:02x?}", to.bytes());
    let mut from = Decoder::new(&expected, order);
    from.speak(version, chars);
    assert_eq!(T::decode(&mut from), Ok(value));
    assert_eq!(from.left(), 0);
}

#[track_caller]
fn both<T>(value: T, big: &str, little: &str)
where
    T: Encode + for<'a> Decode<'a> + PartialEq + std::fmt::Debug + Clone,
{
    form(value.clone(), ByteOrder::Big, Version::V1_2, big);
    form(value, ByteOrder::Little, Version::V1_2, little);
}

#[test]
fn primitive_types() {
    both(0xabu8, "ab", "ab");
    both(-2i8, "fe", "fe");
    both(true, "01", "01");
    both(false, "00", "00");
    both('A', "41", "41");
    both(-2i16, "fffe", "feff");
    both(0x1234u16, "1234", "3412");
    both(-2i32, "fffffffe", "feffffff");
    both(0x1234_5678u32, "12345678", "78563412");
    both(-2i64, "fffffffffffffffe", "feffffffffffffff");
    both(0x0123_4567_89ab_cdefu64, "0123456789abcdef", "efcdab8967452301");
    both(-1.5f32, "bfc00000", "0000c0bf");
    both(0.1f64, "3fb999999999999a", "9a9999999999b93f");
    // 1.5 is 1.1 in binary: sign 0, exponent 16383, the first of 112 bits of fraction.
    let (big, little) = ("3fff8000000000000000000000000000", "0000000000000000000000000080ff3f");
    both(LongDouble::from(1.5), big, little);
    both('é', "e9", "e9");
}

#[test]
fn alignment_counts_from_the_start() {
    let mut to = Encoder::new(ByteOrder::Big);
    1u8.encode(&mut to).unwrap();
    2u16.encode(&mut to).unwrap();
    3u8.encode(&mut to).unwrap();
    4u32.encode(&mut to).unwrap();
    5u8.encode(&mut to).unwrap();
    6u64.encode(&mut to).unwrap();
    7u8.encode(&mut to).unwrap();
    LongDouble::default().encode(&mut to).unwrap();
    let expected = "01 00 0002 03 000000 00000004 05 000000 0000000000000006
        07 00000000000000 | sixteen octets are aligned to eight
        00000000000000000000000000000000";
    assert_eq!(to.bytes(), octets(expected));
}

#[test]
fn strings() {
    both(String::from("Hé"), "00000004 48c3a9 00", "04000000 48c3a9 00");
    form(String::from("Hé"), ByteOrder::Big, Version::V1_0, "00000003 48e9 00");
    both(String::new(), "00000001 00", "01000000 00");
    both(WString::from("H€"), "00000004 0048 20ac", "04000000 0048 20ac");
    both(WString::from("𝄞"), "00000004 d834 dd1e", "04000000 d834 dd1e");
    both(WString::default(), "00000000", "00000000");
    form(WString::from("H€"), ByteOrder::Little, Version::V1_1, "03000000 4800 ac20 0000");
    both(WChar('€'), "02 20ac", "02 20ac");
    form(WChar('€'), ByteOrder::Little, Version::V1_1, "ac20");
}

#[test]
fn sequences_and_arrays() {
    both(vec![1u8, 2, 3], "00000003 010203", "03000000 010203");
    both(vec![1u16, 2], "00000002 0001 0002", "02000000 0100 0200");
    // Doubles are aligned to eight, and an empty sequence has none.
    both(vec![1.0f64], "00000001 00000000 3ff0000000000000", "01000000 00000000 000000000000f03f");
    both(Vec::<f64>::new(), "00000000", "00000000");
    both(vec![vec![1u8], vec![]], "00000002 00000001 01 000000 00000000", "02000000 01000000 01 000000 00000000");
    both([1u32, 2], "00000001 00000002", "01000000 02000000");
    both([[1u8, 2], [3, 4]], "01020304", "01020304");
    both(vec![true, false], "00000002 0100", "02000000 0100");
    both(vec![String::from("a"), String::from("b")], "00000002 00000002 6100 0000 00000002 6200", {
        "02000000 02000000 6100 0000 02000000 6200"
    });
}

#[test]
fn fixed() {
    let number = |unscaled| Fixed::<5, 2>::from_unscaled(unscaled).unwrap();
    both(number(12345), "12345c", "12345c");
    both(number(-7), "00007d", "00007d");
    // An even number of digits: the first half octet is zero.
    both(Fixed::<4, 0>::from_unscaled(1234).unwrap(), "01234c", "01234c");
    let thirty_one = Fixed::<31, 31>::MAX;
    both(thirty_one, "9999999999999999999999999999999c", "9999999999999999999999999999999c");
}

#[test]
fn simple_type_codes() {
    both(bool::type_code(), "00000008", "08000000");
    both(String::type_code(), "00000012 00000000", "12000000 00000000");
    both(TypeCode::build(|types| types.string(5)), "00000012 00000005", "12000000 05000000");
    both(WString::type_code(), "0000001b 00000000", "1b000000 00000000");
    both(<Fixed<5, 2>>::type_code(), "0000001c 0005 0002", "1c000000 0500 0200");
    let negative = TypeCode::build(|types| types.fixed(5, -2));
    both(negative, "0000001c 0005 fffe", "1c000000 0500 feff");
}

#[test]
fn type_codes_in_encapsulations() {
    both(
        <Vec<i32>>::type_code(),
        "00000013 0000000c 00000000 00000003 00000000",
        "13000000 0c000000 01000000 03000000 00000000",
    );
    both(
        <[i16; 3]>::type_code(),
        "00000014 0000000c 00000000 00000002 00000003",
        "14000000 0c000000 01000000 02000000 03000000",
    );
    let alias = TypeCode::build(|types| types.alias("IDL:A:1.0", "A", i32::describe));
    both(
        alias,
        "00000015 00000020 00 000000
         0000000a 49444c3a413a312e3000 0000 | IDL:A:1.0
         00000002 4100 0000
         00000003",
        "15000000 20000000 01 000000
         0a000000 49444c3a413a312e3000 0000
         02000000 4100 0000
         03000000",
    );
    let interface = TypeCode::build(|types| types.interface("IDL:I:1.0", "I"));
    both(
        interface,
        "0000000e 0000001a 00 000000 0000000a 49444c3a493a312e3000 0000 00000002 4900",
        "0e000000 1a000000 01 000000 0a000000 49444c3a493a312e3000 0000 02000000 4900",
    );
    let enumeration = TypeCode::build(|types| types.enumeration("", "E", &["X", "Y"]));
    both(
        enumeration,
        "00000011 00000026 00 000000 00000001 00 000000 00000002 4500 0000
         00000002 00000002 5800 0000 00000002 5900",
        "11000000 26000000 01 000000 01000000 00 000000 02000000 4500 0000
         02000000 02000000 5800 0000 02000000 5900",
    );
}

/// The label is encoded as its type, and the default's is zero.
#[test]
fn the_type_code_of_a_union() {
    let cases = |types: &mut Types| {
        let long = i32::describe(types);
        [(Some(5), "a", long), (None, "b", long)]
    };
    let code = TypeCode::build(|types| types.union("", "U", i16::describe, cases));
    both(
        code,
        "00000010 00000040 00 000000
         00000001 00 000000 | no id
         00000002 5500 0000 | U
         00000002 00000001 | switch (short), the second is the default
         00000002
         0005 0000 00000002 6100 0000 00000003
         0000 0000 00000002 6200 0000 00000003",
        "10000000 40000000 01 000000
         01000000 00 000000
         02000000 5500 0000
         02000000 01000000
         02000000
         0500 0000 02000000 6100 0000 03000000
         0000 0000 02000000 6200 0000 03000000",
    );
}

#[test]
fn anys() {
    both(Any::default(), "00000000", "00000000");
    both(Any::of(&7u16).unwrap(), "00000004 0007", "04000000 0700");
    // The value is aligned within the message, not within the any.
    both(Any::of(&1.0f64).unwrap(), "00000007 00000000 3ff0000000000000", "07000000 00000000 000000000000f03f");
    both(Any::of("a").unwrap(), "00000012 00000000 00000002 6100", "12000000 00000000 02000000 6100");
    let inner = Any::of(&true).unwrap();
    both(Any::of(&inner).unwrap(), "0000000b 00000008 01", "0b000000 08000000 01");
    both(Any::of(&f32::type_code()).unwrap(), "0000000c 00000006", "0c000000 06000000");
    let lost = TypeCode::build(|types| types.exception("IDL:X:1.0", "", |types| [("", u8::describe(types))]));
    both(
        Any::new(lost, &Value::Struct(vec![Value::Octet(9)])).unwrap(),
        "00000016 0000002c 00 000000 0000000a 49444c3a583a312e3000 0000 00000001 00 000000
         00000001 00000001 00 000000 0000000a
         0000000a 49444c3a583a312e3000 09 | the id, then the members",
        "16000000 2c000000 01 000000 0a000000 49444c3a583a312e3000 0000 01000000 00 000000
         01000000 01000000 00 000000 0a000000
         0a000000 49444c3a583a312e3000 09",
    );
}
