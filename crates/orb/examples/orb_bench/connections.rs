//! Many clients at once, and what one costs that is silent.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyoshi_orb::{ByteOrder, Encoder, Ior, IorEndpoint};
use hyoshi_os::{May, SocketStream};
use hyoshi_wire::giop::{RequestHeader, Response, Target};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::tracking::TrackerStub;
use crate::{Server, median};

/// Silent connections whose memory is measured.
const SILENT: usize = 5_000;
/// The same over TLS.
const SECURE: usize = 1_000;
/// Octets of an empty reply.
const REPLY: usize = 24;

pub fn connections(server: &Server, tracker: &TrackerStub) {
    let request = request(tracker.ior());
    let address = hyoshi_os::SocketAddress::Tcp(address(tracker.ior()));
    let open = |count: usize| -> Vec<SocketStream> {
        (0..count).map(|_| SocketStream::connect(&address, Duration::from_secs(5)).expect("it is let in")).collect()
    };
    // Everybody asks, then everybody is answered: as many requests are under way as there are clients.
    let round = |streams: &[SocketStream]| {
        streams.iter().for_each(|stream| stream.write_all(&request).expect("it is sent"));
        for stream in streams {
            let (mut have, mut reply) = (0, [0; REPLY]);
            while have < REPLY {
                have += stream.read(&mut reply[have..REPLY], May::Wait).expect("a reply comes");
            }
        }
    };
    let rate = |streams: &[SocketStream]| {
        let start = Instant::now();
        let rounds = 100_000 / streams.len();
        (0..rounds).for_each(|_| round(streams));
        (rounds * streams.len()) as f64 / start.elapsed().as_secs_f64()
    };
    let (few, many) = (open(10), open(1_000));
    let rounds: Vec<_> = (0..5).map(|_| (rate(&few), rate(&many))).collect();
    let of = |part: fn(&(f64, f64)) -> f64| median(rounds.iter().map(part).collect());
    println!(
        "{:<28} 10: {:.0} calls/s   1000: {:.0} calls/s   ratio {:.2}",
        "connections",
        of(|round| round.0),
        of(|round| round.1),
        of(|round| round.1 / round.0)
    );
    drop((few, many));
    std::thread::sleep(Duration::from_millis(200)); // until the server has noticed
    let before = server.resident();
    let silent = open(SILENT);
    round(&silent);
    let after = server.resident();
    println!(
        "{:<28} {:.2} KiB of the server's memory each ({before} to {after} KiB for {SILENT})",
        "idle connections",
        after.saturating_sub(before) as f64 / SILENT as f64
    );
}

/// What clients over TLS cost that say nothing.
pub fn secure(server: &Server) {
    let ior: Ior = server.secure.parse().expect("a reference");
    let (request, address) = (request(&ior), address(&ior));
    let mut roots = rustls::RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(server.authority.as_bytes()).expect("a certificate");
    roots.add(authority).expect("a good one");
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().expect("as given");
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    let name = ServerName::try_from("127.0.0.1").expect("an address");
    let before = server.resident();
    let start = Instant::now();
    let silent: Vec<_> = (0..SECURE)
        .map(|_| {
            let socket = TcpStream::connect(address).expect("it is let in");
            socket.set_nodelay(true).expect("it is TCP");
            let session = ClientConnection::new(config.clone(), name.clone()).expect("as given");
            let mut stream = StreamOwned::new(session, socket);
            stream.write_all(&request).expect("it is sent");
            stream.read_exact(&mut [0; REPLY]).expect("a reply comes");
            stream
        })
        .collect();
    let each = start.elapsed() / SECURE as u32;
    let after = server.resident();
    println!(
        "{:<28} {:.2} KiB of the server's memory each ({before} to {after} KiB for {SECURE}); {each:.0?} to connect and call",
        "idle connections over TLS",
        after.saturating_sub(before) as f64 / silent.len() as f64
    );
}

/// An empty call.
fn request(ior: &Ior) -> Vec<u8> {
    let profile = ior.iiop().next().expect("a profile").expect("a good one");
    let mut to = Encoder::new(ByteOrder::NATIVE);
    let target = Target::Key(profile.key);
    let header = RequestHeader { id: 2, response: Response::Target, target, operation: "nothing", contexts: &[] };
    header.begin(&mut to).and_then(|begun| begun.end(&mut to)).expect("it can be written");
    to.into_bytes()
}

fn address(ior: &Ior) -> SocketAddr {
    let endpoints = ior.iiop().next().expect("a profile").expect("a good one").endpoints();
    let found = endpoints.iter().find_map(|endpoint| match endpoint {
        IorEndpoint::Tcp { host, port, .. } | IorEndpoint::Tls { host, port, .. } => Some(format!("{host}:{port}")),
        IorEndpoint::Unix { .. } => None,
    });
    found.expect("an endpoint").parse().expect("an address")
}
