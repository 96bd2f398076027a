//! Buffers of a calling thread; connections need none.

use std::cell::Cell;

use hyoshi_wire::{ByteOrder, Encoder};

use crate::socket::BUFFER;

/// Requests larger than this do not stay allocated.
const KEEP: usize = 1 << 20;

/// See the module.
pub(super) struct Buffers {
    pub(super) to: Encoder,
    pub(super) buffer: Vec<u8>,
}

thread_local! {
    static BUFFERS: Cell<Option<Box<Buffers>>> = const { Cell::new(None) };
}

/// Takes the thread's buffers. (A call from within a call, by code that decodes a result, gets others.)
#[inline]
pub(super) fn take() -> Box<Buffers> {
    let fresh = || Box::new(Buffers { to: Encoder::new(ByteOrder::NATIVE), buffer: vec![0; BUFFER] });
    BUFFERS.take().unwrap_or_else(fresh)
}

/// For the thread's next call.
#[inline]
pub(super) fn give_back(mut buffers: Box<Buffers>) {
    if buffers.to.len() > KEEP {
        buffers.to = Encoder::new(ByteOrder::NATIVE);
    }
    BUFFERS.set(Some(buffers));
}
