//! Any octets as a stream, in any pieces: the same messages come out of it, or the same fault, and no more is
//! held than the limits allow.
//!
//! The first octets tell the pieces; the rest is the stream, in which `GIOP` may be left out of headers.

#![no_main]

use hyoshi_wire::giop::{Fault, Header, Reassembler};
use hyoshi_wire::{Limits, Version};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { message: 4096, depth: 8 };

fuzz_target!(|octets: &[u8]| {
    let Some((pieces, stream)) = octets.split_first_chunk::<4>() else { return };
    // Sizes that fit, so that more of the stream is messages: of each header the magic, and two octets of size.
    let mut whole = Vec::new();
    let mut rest = stream;
    while let Some(([flags, kind, size, fixed], body)) = rest.split_first_chunk() {
        let size = u16::from(*size).min(body.len() as u16);
        whole.extend(b"GIOP\x01");
        whole.push(flags >> 4);
        whole.push(flags & 3);
        whole.push(*kind & 7);
        let claimed = if *fixed == 0xff { u32::MAX } else { u32::from(size) };
        whole.extend(if flags & 1 == 1 { claimed.to_le_bytes() } else { claimed.to_be_bytes() });
        let (now, later) = body.split_at(usize::from(size));
        whole.extend(now);
        rest = later;
    }
    whole.extend(rest);
    let at_once = receive(&whole, &[whole.len().max(1)], false);
    let sizes = pieces.map(|size| usize::from(size) + 1);
    assert_eq!(receive(&whole, &sizes, false), at_once);
    assert_eq!(receive(&whole, &sizes, true), at_once);
});

fn receive(stream: &[u8], sizes: &[usize], room: bool) -> (Vec<Vec<u8>>, Option<Fault>) {
    let mut messages = Reassembler::new(LIMITS).bounded(3, 5000);
    let mut got = Vec::new();
    let mut rest = stream;
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let mut now: &[u8] = &[];
        match messages.room().filter(|_| room) {
            Some(room) => {
                let count = room.len().min(*size).min(rest.len());
                room[..count].copy_from_slice(&rest[..count]);
                rest = &rest[count..];
                messages.filled(count);
            }
            None => (now, rest) = rest.split_at((*size).min(rest.len())),
        }
        loop {
            match messages.next(&mut now) {
                Ok(Some(message)) => {
                    assert!(message.octets().len() <= LIMITS.message + Header::LEN);
                    assert_eq!(message.header().whole(), message.octets().len());
                    drop(message.decode());
                    got.push(message.octets().to_vec());
                }
                Ok(None) => break,
                Err(fault) => {
                    assert!(!fault.to_string().is_empty());
                    fault.answer(Version::V1_2);
                    return (got, Some(fault));
                }
            }
        }
        assert!(now.is_empty());
    }
    (got, None)
}
