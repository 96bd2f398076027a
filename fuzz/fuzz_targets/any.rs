//! Any octets, read as an any: an error, or a value that goes into every other form and comes back the same.
//!
//! `cargo +nightly fuzz run any -- -malloc_limit_mb=16`
#![no_main]

use hyoshi_wire::{Any, ByteOrder, CharSet, Decode, Decoder, Encode, EncodeError, Encoder, Version};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [form, octets @ ..] = data else { return };
    let version = [Version::V1_0, Version::V1_1, Version::V1_2][usize::from(form >> 1) % 3];
    let chars = if form & 0x80 == 0 { CharSet::Utf8 } else { CharSet::Latin1 };
    let offset = usize::from(form >> 3) % 8;
    let mut from = Decoder::new(octets, ByteOrder::from_flag(*form));
    from.speak(version, chars);
    if from.raw(offset).is_err() {
        return;
    }
    let Ok(any) = Any::decode(&mut from) else { return };
    let came = (version, chars);
    for version in [Version::V1_0, Version::V1_1, Version::V1_2] {
        for chars in [CharSet::Utf8, CharSet::Latin1] {
            for order in [ByteOrder::Big, ByteOrder::Little] {
                let mut to = Encoder::new(order);
                to.speak(version, chars);
                to.raw(&[0; 8][..7 - offset]);
                match any.encode(&mut to) {
                    Ok(()) => {}
                    // This form lacks what the other had.
                    Err(EncodeError::NotInVersion(_) | EncodeError::NotInCharSet(_)) if (version, chars) != came => {
                        continue;
                    }
                    Err(error) => panic!("{error}"),
                }
                let mut from = Decoder::new(to.bytes(), order);
                from.speak(version, chars);
                from.raw(7 - offset).expect("written here");
                assert_eq!(Any::decode(&mut from).as_ref(), Ok(&any));
                assert_eq!(from.left(), 0);
            }
        }
    }
    let value = any.value().expect("checked when it came");
    assert_eq!(Any::new(any.type_code().clone(), &value), Ok(any));
});
