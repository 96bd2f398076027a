//! Other ORBs as peers: omniORB (C++) and JacORB (Java) serve and call `idl/peers.idl`, with each other and with ours.
//!
//! Their programs are in `others`, built by `others/build` into `target/peers`; what is not installed is skipped with a
//! line that says so. `.ci/peers` installs both on Debian.

mod agree;
mod bidirectional;
mod broker;
#[path = "../../../os/tests/common/loopback.rs"]
mod loopback;
mod naming;
mod orbs;
mod ours;
mod packets;
mod paths;
mod process;
mod secure;
