//! What an ORB does with a socket, without the socket: octets come and go in any pieces, at any times, and callers give up.
//! The laws are those of the unit tests.

#![no_main]

use libfuzzer_sys::fuzz_target;

// The source itself: the crate does not export it.
#[allow(dead_code)]
#[path = "."]
mod channel {
    #[path = "../../crates/orb/src/channel/cancels.rs"]
    mod cancels;
    #[path = "../../crates/orb/src/channel/incoming.rs"]
    mod incoming;
    #[path = "../../crates/orb/src/channel/laws.rs"]
    pub mod laws;
    #[path = "../../crates/orb/src/channel/pace.rs"]
    mod pace;
    #[path = "../../crates/orb/src/channel/receive.rs"]
    mod receive;
    #[path = "../../crates/orb/src/channel/send_queue.rs"]
    mod send_queue;

    pub(crate) use incoming::{Incoming, Parked, Whole};
    pub(crate) use pace::Pace;
    pub(crate) use receive::{ReadBudget, ReceiveError, Receiver, TurnEnd, receive};
    pub(crate) use send_queue::SendQueue;
}

fuzz_target!(|script: &[u8]| match script.split_first() {
    Some((which, script)) if which & 1 == 0 => channel::laws::incoming(script),
    Some((_, script)) => channel::laws::outgoing(script),
    None => {}
});
