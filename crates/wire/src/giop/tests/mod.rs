//! Laws of messages and streams.

mod messages;
mod stream;

use alloc::string::String;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::cdr::{ByteOrder, CharSet, Encode, Encoder, Version};

/// A context that owns its data.
type Owned = (u32, Vec<u8>);

fn order() -> impl Strategy<Value = ByteOrder> {
    prop_oneof![Just(ByteOrder::Big), Just(ByteOrder::Little)]
}

fn version() -> impl Strategy<Value = Version> {
    prop_oneof![Just(Version::V1_0), Just(Version::V1_1), Just(Version::V1_2)]
}

fn octets(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..most)
}

fn contexts() -> impl Strategy<Value = Vec<Owned>> {
    prop::collection::vec((any::<u32>(), octets(20)), 0..4)
}

fn operation() -> impl Strategy<Value = String> {
    "[A-Za-z_][A-Za-z0-9_]{0,20}"
}

fn borrowed(contexts: &[Owned]) -> Vec<ServiceContext<'_>> {
    contexts.iter().map(|(tag, data)| ServiceContext { tag: *tag, data }).collect()
}

fn encoder(version: Version, order: ByteOrder) -> Encoder {
    let mut to = Encoder::new(order);
    to.speak(version, CharSet::Latin1);
    to
}

/// A request with a body of octets.
fn request(version: Version, order: ByteOrder, id: u32, contexts: &[Owned], body: &[u8]) -> Vec<u8> {
    let mut to = encoder(version, order);
    let contexts = borrowed(contexts);
    let header = RequestHeader {
        id,
        response: Response::Target,
        target: Target::Key(b"some key"),
        operation: "op",
        contexts: &contexts,
    };
    let begun = header.begin(&mut to).expect("nothing that a version lacks");
    to.raw(body);
    begun.end(&mut to).expect("small");
    to.into_bytes()
}

fn cancel(version: Version, order: ByteOrder, id: u32) -> Vec<u8> {
    let mut to = encoder(version, order);
    cancel_request(id, &mut to).expect("small");
    to.into_bytes()
}

/// The message in pieces, each an owned message.
fn pieces(message: &[u8], most: usize) -> Vec<Vec<u8>> {
    split(message, most).map(|piece| [piece.head(), piece.body()].concat()).collect()
}
