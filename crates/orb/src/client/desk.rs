//! What a calling thread works with: buffers that are its own, so that connections need none.

use std::cell::Cell;

use hyoshi_wire::{ByteOrder, Encoder};

use crate::intake::BUFFER;

/// Requests larger than this do not stay allocated.
const KEEP: usize = 1 << 20;

/// See the module.
pub(super) struct Desk {
    pub(super) to: Encoder,
    pub(super) buffer: Vec<u8>,
}

thread_local! {
    static DESK: Cell<Option<Box<Desk>>> = const { Cell::new(None) };
}

/// Lends the thread's desk. (A call from within a call, by code that decodes a result, gets another.)
#[inline]
pub(super) fn with<R>(work: impl FnOnce(&mut Desk) -> R) -> R {
    let fresh = || Box::new(Desk { to: Encoder::new(ByteOrder::NATIVE), buffer: vec![0; BUFFER] });
    let mut desk = DESK.take().unwrap_or_else(fresh);
    let done = work(&mut desk);
    if desk.to.len() > KEEP {
        desk.to = Encoder::new(ByteOrder::NATIVE);
    }
    DESK.set(Some(desk));
    done
}
