//! Calls in both directions over one connection (bidirectional GIOP), with each peer as client and as server.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use hyoshi_interop::peers::Peer as PeerInterface;
use hyoshi_interop::{Able, check_all, serve};
use hyoshi_orb::{Claims, Ior, Orb};

use crate::loopback::unused_address;
use crate::orbs::Peer;
use crate::ours::address_of;
use crate::process::{self, Server};

/// The number of TCP connections of this machine that have, or had within the last minute, an end at this port
/// (proc(5)), with this IP address if it is known.
fn connections(ip: Option<Ipv4Addr>, port: u16) -> usize {
    const LISTENS: &str = "0A";
    // Java's sockets are always of IPv6.
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| std::fs::read_to_string(table).unwrap_or_default());
    // As the kernel prints it: the octets of the address as a number of this machine. In tcp6 they are the last ones.
    let ip = ip.map_or(String::new(), |ip| format!("{:08X}", u32::from_ne_bytes(ip.octets())));
    let ended = format!("{ip}:{port:04X}");
    let ends = tables.iter().flat_map(|table| table.lines().skip(1)).filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (local, remote, state) = (words.next()?, words.next()?, words.next()?);
        let here = state != LISTENS && (local.ends_with(&ended) || remote.ends_with(&ended));
        // The two ends of a connection are two lines; one may be of IPv6, the last digits of which are IPv4's.
        let [local, remote] = [local, remote].map(|end| end[end.len() - "0100007F:0000".len()..].to_owned());
        here.then(|| if local < remote { (local, remote) } else { (remote, local) })
    });
    ends.collect::<BTreeSet<_>>().len()
}

/// The same for the address in a reference.
fn connections_to(ior: &Ior) -> usize {
    let (host, port) = address_of(ior);
    connections(host.parse().ok(), port)
}

/// A client of Hyoshi's without a listener: the peer's server can call it over its own connection only.
fn calls(server: &Server, able: Able) -> usize {
    let orb = Orb::builder().offer_bidirectional().build().unwrap();
    let peer = orb.resolve::<dyn PeerInterface>(&server.reference).unwrap();
    let failed = check_all(&orb, &peer, able);
    assert!(failed.is_empty(), "\n{}\n--- server\n{}", failed.join("\n"), server.log());
    let made = connections_to(peer.ior());
    orb.shutdown();
    made
}

/// The peer's client, with a separate port, and Hyoshi's server. Returns the numbers of connections to both.
fn serves(peer: Peer, at: &std::path::Path, arguments: &[&str]) -> (usize, usize) {
    let orb = Orb::builder().accept_bidirectional(Claims::Own).listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let ours = serve(&orb).unwrap();
    // The client listens there, and its references name that address.
    let address = unused_address();
    let mut client = peer.client_both_ways(at, &ours.ior().to_string(), address);
    client.args(arguments);
    process::run(client, String::new);
    let made = (connections_to(ours.ior()), connections(Some(*address.ip()), address.port()));
    orb.shutdown();
    made
}

#[test]
fn omniorb_calls_us_back_over_the_one_connection_that_we_opened() {
    let Some(omniorb) = Peer::OmniOrb.built() else { return };
    let server = Server::start(Peer::OmniOrb.server_both_ways(omniorb));
    assert_eq!(calls(&server, Able::default()), 1);
}

#[test]
fn jacorb_calls_us_back_over_connections_that_we_opened() {
    let Some(jacorb) = Peer::JacOrb.built() else { return };
    let server = Server::start(Peer::JacOrb.server_both_ways(jacorb));
    // It closes connections behind system exceptions, so that there are several, one after the other.
    calls(&server, Able { jacorb: true, ..Able::default() });
}

#[test]
fn we_call_omniorb_back_over_connections_that_it_opened() {
    let Some(omniorb) = Peer::OmniOrb.built() else { return };
    // It opens more for its own calls; no connection to it is made.
    let (opened, made) = serves(Peer::OmniOrb, omniorb, &["--ordered", "--codes"]);
    assert!(opened > 0 && made == 0, "{opened} opened, {made} made");
}

#[test]
fn we_call_jacorb_back_over_the_one_connection_that_it_opened() {
    let Some(jacorb) = Peer::JacOrb.built() else { return };
    assert_eq!(serves(Peer::JacOrb, jacorb, &["--ordered", "--codes"]), (1, 0));
}
