//! Addresses on loopback that no other process uses.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicU16, Ordering};

/// An unused address for a host. Each process has an IP address of its own in 127.64.0.0/10, so that no other test,
/// and no port that the kernel gives to a client, is in the way.
pub fn unused_address() -> SocketAddrV4 {
    static PORT: AtomicU16 = AtomicU16::new(10_000);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    // PIDs have at most 22 bits.
    SocketAddrV4::new(Ipv4Addr::new(127, 64 | high, middle, low), PORT.fetch_add(1, Ordering::Relaxed))
}
