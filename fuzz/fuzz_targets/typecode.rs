//! Any octets, read as a type code: an error, or a type that is written again in bounded room and read as the same.
//!
//! `cargo +nightly fuzz run typecode -- -malloc_limit_mb=16`
#![no_main]

use hyoshi_wire::typecode::TypeShape;
use hyoshi_wire::{ByteOrder, CharSet, Decode, Decoder, Encode, EncodeError, Encoder, TypeCode, Version};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [form, octets @ ..] = data else { return };
    let version = [Version::V1_0, Version::V1_1, Version::V1_2][usize::from(form >> 1) % 3];
    let chars = if form & 0x80 == 0 { CharSet::Utf8 } else { CharSet::Latin1 };
    let mut from = Decoder::new(octets, ByteOrder::from_flag(*form));
    from.speak(version, chars);
    let Ok(code) = TypeCode::decode(&mut from) else { return };
    for order in [ByteOrder::Big, ByteOrder::Little] {
        let mut to = Encoder::new(order);
        to.speak(version, chars);
        code.encode(&mut to).expect("read, and so to be written");
        // Padding, a string's terminator and UTF-8 for Latin-1 make it longer, but not by much.
        assert!(to.len() <= 4 * octets.len() + 8, "{} from {}", to.len(), octets.len());
        let mut from = Decoder::new(to.bytes(), order);
        from.speak(version, chars);
        let again = TypeCode::decode(&mut from).expect("written here");
        assert_eq!(from.left(), 0);
        assert!(again == code && again.is_equivalent(&code));
    }
    let _ = (code.to_string(), code.default_index(), code.unaliased());
    // Parts are types of their own; one that leads too deep from there is said to.
    let parts: Vec<TypeCode> = match code.shape() {
        TypeShape::Struct(members) | TypeShape::Exception(members) => members.map(|(_, of)| of).take(8).collect(),
        TypeShape::Union { cases, .. } => cases.map(|(_, _, of)| of).take(8).collect(),
        TypeShape::Sequence { of, .. } | TypeShape::Array { of, .. } | TypeShape::Alias(of) => vec![of],
        _ => vec![],
    };
    for part in parts {
        let mut to = Encoder::new(ByteOrder::Big);
        to.speak(version, chars);
        match part.encode(&mut to) {
            Ok(()) | Err(EncodeError::Value(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
});
