//! Any octets, read as each type in each form: an error or a value, and a value written again is read as the same.
//!
//! `cargo +nightly fuzz run cdr -- -malloc_limit_mb=16`
#![no_main]

use hyoshi_wire::{
    ByteOrder, CharSet, Decode, Decoder, Encode, EncodeError, Encoder, Fixed, LongDouble, Version, WChar, WString,
};
use libfuzzer_sys::fuzz_target;

fn check<T: Encode + for<'a> Decode<'a>>(order: ByteOrder, version: Version, chars: CharSet, octets: &[u8]) {
    let decoder = |octets| {
        let mut from = Decoder::new(octets, order);
        from.speak(version, chars);
        from
    };
    let mut from = decoder(octets);
    let Ok(value) = T::decode(&mut from) else { return };
    let mut to = Encoder::new(order);
    to.speak(version, chars);
    match value.encode(&mut to) {
        Ok(()) => {}
        // A NUL that a peer's wide character may be, but that no text may hold.
        Err(EncodeError::NulInString) => panic!("a text with a NUL was read"),
        Err(error) => panic!("read, but not to be written: {error}"),
    }
    let once = to.into_bytes();
    // Marks and garbage in padding are not kept; what is read again is written the same.
    let mut from = decoder(&once);
    let again = T::decode(&mut from).expect("written here");
    assert_eq!(from.left(), 0);
    let mut to = Encoder::new(order);
    to.speak(version, chars);
    again.encode(&mut to).expect("written before");
    assert_eq!(to.bytes(), once);
}

fuzz_target!(|data: &[u8]| {
    let [form, kind, octets @ ..] = data else { return };
    let order = ByteOrder::from_flag(*form);
    let version = [Version::V1_0, Version::V1_1, Version::V1_2][usize::from(form >> 1) % 3];
    let chars = if form & 0x80 == 0 { CharSet::Utf8 } else { CharSet::Latin1 };
    let check: fn(ByteOrder, Version, CharSet, &[u8]) = match kind % 20 {
        0 => check::<u8>,
        1 => check::<bool>,
        2 => check::<char>,
        3 => check::<Vec<i16>>,
        4 => check::<Vec<u32>>,
        5 => check::<Vec<u64>>,
        6 => check::<Vec<f32>>,
        7 => check::<Vec<f64>>,
        8 => check::<Vec<bool>>,
        9 => check::<Vec<LongDouble>>,
        10 => check::<String>,
        11 => check::<Vec<String>>,
        12 => check::<WChar>,
        13 => check::<WString>,
        14 => check::<Vec<WString>>,
        15 => check::<Fixed<9, 2>>,
        16 => check::<Vec<Fixed<4, 0>>>,
        17 => check::<Vec<Vec<Vec<u8>>>>,
        18 => check::<[[f64; 3]; 2]>,
        _ => check::<Vec<[char; 3]>>,
    };
    check(order, version, chars, octets);
});
