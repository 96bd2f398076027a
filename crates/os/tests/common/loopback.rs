//! Addresses on loopback that no other process uses. Other crates' tests include this file.

#![allow(dead_code, reason = "each crate's tests use their part")]

use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};

/// An unused address. Each process has a separate IP address in 127.64.0.0/10. Its ports are below those that the
/// kernel assigns to clients (ip_local_port_range in ip(7)).
pub fn unused_address() -> SocketAddrV4 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let process = std::process::id();
    // PIDs have at most 22 bits.
    let [_, high, middle, low] = process.to_be_bytes();
    // Mostly different ports, too, for programs that listen at one on all addresses.
    let port = 10_000 + (process % 20_000) as u16 + NEXT.fetch_add(1, Ordering::Relaxed);
    SocketAddrV4::new(Ipv4Addr::new(127, 64 | high, middle, low), port)
}

/// A port of 127.0.0.1 without a listener while this value exists: the client's end of a connection.
pub struct ClosedPort {
    client: TcpStream,
    _listener: TcpListener,
}

impl ClosedPort {
    pub fn new() -> ClosedPort {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        ClosedPort { client, _listener: listener }
    }

    pub fn number(&self) -> u16 {
        self.client.local_addr().unwrap().port()
    }
}
