//! Hyoshi with each peer, in both directions and in every version of GIOP.

use hyoshi_interop::peers::{Peer as PeerInterface, PeerStub, Point};
use hyoshi_interop::{Able, check_all, serve};
use hyoshi_orb::{Ior, IorEndpoint, Orb};

use crate::orbs::{Giop, Peer, omniorbpy};
use crate::process::{self, Server};

/// Hyoshi's client with the peer's server.
pub fn call(server: &Server, able: Able) {
    let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let peer = orb.resolve::<dyn PeerInterface>(&server.reference).unwrap();
    let failed = check_all(&orb, &peer, able);
    assert!(failed.is_empty(), "\n{}\n--- server\n{}", failed.join("\n"), server.log());
    orb.shutdown();
}

/// Hyoshi's server.
pub fn served() -> (Orb, PeerStub) {
    let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let peer = serve(&orb).unwrap();
    (orb, peer)
}

/// Host and port of the first IIOP profile.
pub fn address_of(ior: &Ior) -> (String, u16) {
    let profile = ior.iiop().next().expect("an IIOP profile").expect("a whole one");
    let tcp = profile.endpoints().into_iter().find_map(|endpoint| match endpoint {
        IorEndpoint::Tcp { host, port, .. } => Some((host, port)),
        _ => None,
    });
    tcp.expect("it listens at TCP")
}

#[test]
fn we_call_omniorb() {
    let Some(omniorb) = Peer::OmniOrb.built() else { return };
    for giop in Giop::ALL {
        let server = Server::start(Peer::OmniOrb.server_of(omniorb, giop));
        call(&server, Able { wide: giop == Giop::V1_2, ..Able::default() });
    }
}

#[test]
fn we_call_jacorb() {
    let Some(jacorb) = Peer::JacOrb.built() else { return };
    for giop in Giop::ALL {
        let server = Server::start(Peer::JacOrb.server_of(jacorb, giop));
        // GIOP 1.0 has no code sets: Hyoshi sends Latin-1, and JacORB its own.
        let latin1 = giop != Giop::V1_0;
        call(&server, Able { wide: giop == Giop::V1_2, jacorb: true, latin1, ..Able::default() });
    }
}

#[test]
fn omniorb_calls_us() {
    let Some(omniorb) = Peer::OmniOrb.built() else { return };
    for giop in Giop::ALL {
        let (orb, peer) = served();
        let mut client = Peer::OmniOrb.client(omniorb, &peer.ior().to_string(), None);
        client.args(["-ORBmaxGIOPVersion", giop.name(), "--ordered", "--codes"]);
        if giop != Giop::V1_2 {
            client.arg("--narrow");
        }
        if giop == Giop::V1_1 {
            // omniORB aligns from the start of each fragment, and cannot read its own messages.
            client.args(["--skip", "octets, 1048577"]);
        }
        process::run(client, String::new);
        orb.shutdown();
    }
}

#[test]
fn jacorb_calls_us() {
    let Some(jacorb) = Peer::JacOrb.built() else { return };
    for giop in [Giop::V1_2, Giop::V1_0] {
        let (orb, peer) = served();
        let mut client = Peer::JacOrb.client_of(jacorb, &peer.ior().to_string(), giop);
        client.args(["--ordered", "--codes"]);
        if giop != Giop::V1_2 {
            client.arg("--narrow");
        }
        process::run(client, String::new);
        orb.shutdown();
    }
}

/// It aligns each number by its place in the fragment, where omniORB aligns a sequence of them once.
#[test]
fn numbers_in_fragments_of_omniorbpy_are_read() {
    let (orb, peer) = served();
    let Some(client) = omniorbpy(&["call", &peer.ior().to_string()]) else { return };
    process::run(client, String::new);

    let server = Server::start(omniorbpy(&["serve"]).expect("it was there before"));
    let peer = orb.resolve::<dyn PeerInterface>(&server.reference).unwrap();
    let doubles: Vec<f64> = (0..5000).map(|i| 1.1 * f64::from(i) + 0.3).collect();
    let points: Vec<Point> = doubles.iter().zip(0..).map(|(&x, y)| Point { x, y }).collect();
    for (first, second) in [(3, 2), (1000, 1), (1100, 3), (1020, 1100), (2500, 2500), (5000, 1)] {
        let mut b = doubles[..second].to_vec();
        let (result, c) = peer.echo_doubles(&doubles[..first], &mut b).unwrap();
        assert!((result, b, c) == (doubles[..first].into(), doubles[..first].into(), doubles[..second].into()));
        let mut b = points[..second].to_vec();
        let (result, c) = peer.echo_points(&points[..first], &mut b).unwrap();
        assert!((result, b, c) == (points[..first].into(), points[..first].into(), points[..second].into()));
    }
    orb.shutdown();
}
