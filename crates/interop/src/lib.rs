//! Tests Hyoshi's ORB with omniORB (C++) and JacORB (Java): each serves and calls `idl/peers.idl`, which has every type
//! in every position. `idl/ping.idl` is for measurements. Not published.
//!
//! `cargo test -p hyoshi-interop` builds the programs in `others` and skips the tests of an ORB that is not installed
//! (`.ci/peers` installs them on Debian). `scripts/bench-orb` measures.

#![forbid(unsafe_code)]

mod checks;
mod samples;
mod servant;
mod serve;

include!(concat!(env!("OUT_DIR"), "/peers.rs"));
include!(concat!(env!("OUT_DIR"), "/ping.rs"));

pub use checks::{Able, check_all};
pub use servant::{PeerServant, ServerReferences};
pub use serve::{serve, serve_within};

/// Rust from every good IDL file of the compiler's tests compiles without a warning.
#[cfg(test)]
#[deny(warnings)]
#[allow(dead_code)]
mod good {
    include!(concat!(env!("OUT_DIR"), "/good.rs"));
}
