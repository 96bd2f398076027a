//! What ours does with other ORBs: `idl/peers.idl` with every type in every place, served and called by Hyoshi, by
//! omniORB (C++) and by JacORB (Java), in `others`; `idl/ping.idl` for measurements. Not published.
//!
//! `cargo test -p hyoshi-interop` builds the other ORBs' programs if they are installed (`.ci/peers` does that on
//! Debian) and says so where they are not; `scripts/bench-orb` measures.

#![forbid(unsafe_code)]

mod checks;
mod samples;
mod servant;
mod serve;

include!(concat!(env!("OUT_DIR"), "/peers.rs"));
include!(concat!(env!("OUT_DIR"), "/ping.rs"));

pub use checks::{Able, check_all};
pub use servant::{PeerServant, ServerReferences};
pub use serve::serve;

/// Rust from every good IDL file of the compiler's tests compiles without a warning.
#[cfg(test)]
#[deny(warnings)]
#[allow(dead_code)]
mod good {
    include!(concat!(env!("OUT_DIR"), "/good.rs"));
}
