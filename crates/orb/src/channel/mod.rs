//! The protocol of a socket, without the socket: octets and times go in; whole messages, octets to write and deadlines
//! come out. Tests and a fuzzer drive it by sequences of operations.
//!
//! ```text
//!   read ──► receive ──► Incoming ──► a whole message, borrowed ──► Receiver
//!                                └──► deadline of what has begun
//!
//!   send, post ─────────► SendQueue ──► flush: octets, as many as the socket takes
//!                                  └──► deadline of what waits
//! ```
//!
//! [`Outbox`] shares a [`SendQueue`] between threads. The [`Receiver`]s are thin: a thread of a lane, the reader of
//! connections that carry calls both ways, a call that reads its own reply, the reader of a shared connection's replies.
//!
//! Times are milliseconds of a coarse clock: [`now`].

mod cancels;
mod incoming;
#[cfg(test)]
mod laws;
mod negotiated;
mod outbox;
mod pace;
mod receive;
mod send_queue;
mod tally;

pub(crate) use cancels::extract_cancels;
pub(crate) use incoming::{Incoming, Parked, Whole};
pub(crate) use negotiated::Negotiated;
pub(crate) use outbox::{Announced, Outbox, Sending, slowest};
pub(crate) use pace::Pace;
pub(crate) use receive::{ReadBudget, ReceiveError, Receiver, TurnEnd, receive};
pub(crate) use send_queue::SendQueue;
pub(crate) use tally::Tally;

/// Milliseconds of the coarse clock.
#[inline]
pub(crate) fn now() -> u64 {
    hyoshi_os::clock::coarse().as_nanos() / 1_000_000
}
