//! The listen points that a client announces, and those of them that a server believes.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use hyoshi_wire::giop::{CONTEXT_BI_DIR_IIOP, Context, ListenPoint};
use hyoshi_wire::ior::IorEndpoint;
use hyoshi_wire::{Decode, Decoder};

/// The most listen points of one connection.
pub(crate) const MOST: usize = 8;
/// The longest name of a host (RFC 1035, 2.3.4).
const LONGEST: usize = 255;
/// A domain without hosts (RFC 6761, 6.4).
const NOWHERE: &str = ".bidir.invalid";

/// The announced addresses that a server believes to be the client's. Calls to objects there use the client's connection,
/// so a client that could announce any address would receive calls for other programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Claims {
    /// The address that the connection comes from; of clients on the same machine, those of the machine. And names that
    /// an ORB of this kind makes up because it listens nowhere.
    ///
    /// Ports are not checked, because nothing shows their owner. A client can claim the port of another program on its
    /// machine, and gets that program's calls if it announces the port first. Do not accept bidirectional GIOP from
    /// machines whose programs do not trust each other.
    #[default]
    Own,
    /// All, as omniORB and JacORB believe them. Needed for clients that announce a name, or an address on the other
    /// side of an address translation. An address keeps to the connection that announced it first while that exists.
    Any,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announcer {
    /// On this machine.
    Here,
    /// On another one.
    There(IpAddr),
}

impl Announcer {
    /// By the addresses of both ends; a Unix socket has none.
    pub(crate) fn of(peer: Option<SocketAddr>, own: Option<SocketAddr>) -> Announcer {
        let ip = |address: SocketAddr| address.ip().to_canonical();
        match peer.map(ip) {
            Some(peer) if !peer.is_loopback() && Some(peer) != own.map(ip) => Announcer::There(peer),
            _ => Announcer::Here,
        }
    }
}

/// The name of an ORB that listens nowhere, for its references.
pub(crate) fn way_back(incarnation: u64) -> IorEndpoint {
    IorEndpoint::Tcp { host: format!("{incarnation:016x}{NOWHERE}"), port: 1, priority: None }
}

/// True of a name that such an ORB made up: there is nothing to connect to.
pub(crate) fn is_way_back(host: &str) -> bool {
    host.len() > NOWHERE.len() && host.ends_with(NOWHERE)
}

/// Service context 5 of an ORB with these endpoints; none without a TCP endpoint.
pub(crate) fn context(endpoints: &[IorEndpoint]) -> Option<Box<[u8]>> {
    let point = |endpoint| match endpoint {
        &IorEndpoint::Tcp { ref host, port, .. } | &IorEndpoint::Tls { ref host, port, .. } => {
            Some(ListenPoint { host, port })
        }
        IorEndpoint::Unix { .. } => None,
    };
    let all: Vec<_> = endpoints.iter().filter_map(point).take(MOST).collect();
    let announced = !all.is_empty();
    // Cannot fail: a host with a NUL could not have been bound.
    announced.then(|| Context::BiDirectional(all).data().ok().map(Into::into)).flatten()
}

/// The valid listen points of a context.
fn points(data: &[u8]) -> Vec<ListenPoint<'_>> {
    let mut all = Vec::new();
    let Ok(mut from) = Decoder::encapsulated(data) else { return all };
    let count = u32::decode(&mut from).unwrap_or(0);
    for _ in 0..count.min(MOST as u32) {
        let Ok(point) = ListenPoint::decode(&mut from) else { break };
        if point.port != 0 && !point.host.is_empty() && point.host.len() <= LONGEST {
            all.push(point);
        }
    }
    all
}

/// Those of a context's points that are believed.
pub(crate) fn believed(claims: Claims, data: &[u8], from: Announcer) -> Vec<ListenPoint<'_>> {
    let mut all = points(data);
    all.retain(|point| believes(claims, point.host, from, &is_here));
    all
}

fn believes(claims: Claims, host: &str, from: Announcer, is_here: &dyn Fn(&str) -> bool) -> bool {
    claims == Claims::Any
        || is_way_back(host)
        || match from {
            Announcer::Here => is_here(host),
            // Not names: clients could make threads wait for the look-up.
            Announcer::There(peer) => address(host) == Some(peer),
        }
}

fn address(host: &str) -> Option<IpAddr> {
    host.trim_matches(['[', ']']).parse().ok().map(|ip: IpAddr| ip.to_canonical())
}

/// Whether a client that connects to that host reaches a socket bound to this address of this machine. Names are not
/// resolved, except the machine's own and `localhost`.
pub(crate) fn reaches(host: &str, bound: IpAddr) -> bool {
    let bound = bound.to_canonical();
    match address(host) {
        Some(ip) if bound.is_unspecified() => (bound.is_ipv6() || ip.is_ipv4()) && is_here(host),
        Some(ip) => ip == bound,
        None if bound.is_unspecified() => is_here(host),
        None => bound.is_loopback() && host.eq_ignore_ascii_case("localhost"),
    }
}

/// Whether this machine has that name or address.
fn is_here(host: &str) -> bool {
    match address(host) {
        // Only own addresses can be bound; an unspecified address belongs to no host.
        Some(ip) => ip.is_loopback() || (!ip.is_unspecified() && UdpSocket::bind((ip, 0)).is_ok()),
        None => host.eq_ignore_ascii_case("localhost") || host.eq_ignore_ascii_case(&hyoshi_os::host_name()),
    }
}

/// The service context with listen points.
pub(crate) const CONTEXT: u32 = CONTEXT_BI_DIR_IIOP;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tcp(host: &str, port: u16) -> IorEndpoint {
        IorEndpoint::Tcp { host: host.to_owned(), port, priority: None }
    }

    fn there(ip: &str) -> Announcer {
        Announcer::There(ip.parse().unwrap())
    }

    #[test]
    fn what_is_announced_is_read_by_the_other_side() {
        let unix = IorEndpoint::Unix { host: "here".into(), path: "/run/t".into() };
        let tls = IorEndpoint::Tls { host: "h".into(), port: 9, requires: 6 };
        let data = context(&[unix.clone(), tcp("10.0.0.1", 7), tls]).unwrap();
        assert_eq!(points(&data), [ListenPoint { host: "10.0.0.1", port: 7 }, ListenPoint { host: "h", port: 9 }]);
        assert_eq!(context(&[unix]), None);
        let many: Vec<_> = (1..100).map(|port| tcp("h", port)).collect();
        assert_eq!(points(&context(&many).unwrap()).len(), MOST);
    }

    #[test]
    fn a_client_is_believed_its_own_address_only() {
        let none = |_: &str| false;
        assert!(believes(Claims::Own, "10.0.0.7", there("10.0.0.7"), &none));
        assert!(believes(Claims::Own, "[::1]", there("::1"), &none));
        assert!(believes(Claims::Own, "::ffff:10.0.0.7", there("10.0.0.7"), &none));
        for foreign in ["10.0.0.8", "localhost", "127.0.0.1", "plant", "", ".bidir.invalid"] {
            assert!(!believes(Claims::Own, foreign, there("10.0.0.7"), &none), "{foreign}");
            assert!(believes(Claims::Any, foreign, there("10.0.0.7"), &none), "{foreign}");
        }
        let IorEndpoint::Tcp { host, .. } = way_back(7) else { panic!() };
        assert!(believes(Claims::Own, &host, there("10.0.0.7"), &none));
    }

    #[test]
    fn a_client_of_this_machine_is_believed_the_addresses_of_it() {
        let socket = |text: &str| text.parse::<SocketAddr>().ok();
        assert_eq!(Announcer::of(None, None), Announcer::Here);
        assert_eq!(Announcer::of(socket("127.0.0.1:5"), socket("127.0.0.1:6")), Announcer::Here);
        assert_eq!(Announcer::of(socket("10.0.0.7:5"), socket("10.0.0.7:6")), Announcer::Here);
        assert_eq!(Announcer::of(socket("[::ffff:10.0.0.7]:5"), socket("[::]:6")), there("10.0.0.7"));
        assert!(is_here("127.0.0.1") && is_here("localhost") && is_here(&hyoshi_os::host_name()));
        // TEST-NET-1 (RFC 5737): no machine has it.
        assert!(!is_here("192.0.2.1") && !is_here("0.0.0.0") && !is_here("elsewhere"));
    }

    #[test]
    fn what_is_bound_is_reached_by_each_of_its_names() {
        let reaches = |host: &str, bound: &str| reaches(host, bound.parse().unwrap());
        for host in ["localhost", "LocalHost", "127.0.0.1", "::ffff:127.0.0.1"] {
            assert!(reaches(host, "127.0.0.1") && reaches(host, "0.0.0.0") && reaches(host, "::"), "{host}");
        }
        assert!(reaches("localhost", "::1") && reaches("[::1]", "::1") && reaches("::1", "::"));
        assert!(reaches(&hyoshi_os::host_name(), "0.0.0.0"));
        for host in ["127.0.0.2", "::1", "192.0.2.1", "elsewhere", ""] {
            assert!(!reaches(host, "127.0.0.1"), "{host}");
        }
        assert!(!reaches("::1", "0.0.0.0") && !reaches("192.0.2.1", "0.0.0.0") && !reaches("localhost", "192.0.2.1"));
    }

    proptest! {
        #[test]
        fn no_octets_make_it_panic_or_grow(data: Vec<u8>) {
            prop_assert!(points(&data).len() <= MOST);
        }

        #[test]
        fn invented_names_belong_to_no_orb(incarnation: u64, claimed in "[a-z.]{0,20}") {
            let IorEndpoint::Tcp { host, .. } = way_back(incarnation) else { panic!() };
            prop_assert!(is_way_back(&host));
            prop_assert!(host.ends_with(".invalid"));
            prop_assert!(!is_way_back(&claimed) || claimed.ends_with(NOWHERE));
        }
    }
}
