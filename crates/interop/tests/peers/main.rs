//! Other ORBs as peers: omniORB (C++) and JacORB (Java) serve and call `idl/peers.idl`, with each other and with
//! Hyoshi.
//!
//! `others/build` builds their programs into `target/peers`. Tests of an ORB that is not installed are skipped with a
//! line that names it. `.ci/peers` installs both on Debian.

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
mod threads;
