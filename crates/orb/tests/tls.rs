//! Calls over TLS, and what callers are told when it cannot be.

use crate::authority;
use crate::tracking;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use authority::{Authority, Papers};
use hyoshi_model::Span;
use hyoshi_orb::*;
use hyoshi_wire::ior::Component;
use tracking::{CallbackStub, LocateError, Named, Position, Tracker, TrackerStub, Yard};

const HERE: &[&str] = &["127.0.0.1", "localhost"];

/// Serves a yard at these endpoints.
fn server(tls: TlsServer, endpoints: &[&str]) -> (Orb, TrackerStub) {
    limited(tls, endpoints, ServerLimits::default())
}

fn limited(tls: TlsServer, endpoints: &[&str], limits: ServerLimits) -> (Orb, TrackerStub) {
    let mut builder = Orb::builder().tls_server(tls).server_limits(limits);
    for endpoint in endpoints {
        builder = builder.listen(endpoint).unwrap();
    }
    let orb = builder.build().unwrap();
    orb.ready();
    let adapter = orb.adapter("yard").build().unwrap();
    let yard = adapter.activate::<dyn Tracker>(Arc::new(Yard::default())).unwrap();
    orb.publish("Yard", &yard).unwrap();
    (orb, yard)
}

fn client(tls: TlsClient) -> Orb {
    Orb::builder().tls_client(tls).unwrap().build().unwrap()
}

/// The server's object, as this client sees it.
fn seen(client: &Orb, yard: &TrackerStub) -> TrackerStub {
    client.stub::<dyn Tracker>(yard.ior().clone())
}

fn plainly(papers: &Papers) -> TlsServer {
    TlsServer::new(papers.identity()).unwrap()
}

fn port(orb: &Orb) -> u16 {
    orb.endpoints()
        .iter()
        .find_map(|endpoint| match endpoint {
            IorEndpoint::Tls { port, .. } => Some(*port),
            _ => None,
        })
        .unwrap()
}

/// What a call ends with, and that it never was one.
fn fails(stub: &TrackerStub, kind: SystemKind, code: u32) {
    let raised = stub.nothing().unwrap_err();
    assert_eq!(
        (raised.kind, raised.minor, raised.completed),
        (kind, code, Completed::No),
        "{:?}",
        minor::meaning(code)
    );
}

#[test]
fn all_kinds_of_calls_go_over_tls() {
    let authority = Authority::new("plant");
    let (orb, yard) = server(plainly(&authority.papers(HERE)), &["ssliop://127.0.0.1:0"]);
    let client = client(TlsClient::new(&authority.roots()));
    let yard = seen(&client, &yard);
    assert_eq!(yard.locate(7).unwrap().x, 7.0);
    assert!(matches!(yard.locate(200), Err(LocateError::UnknownTarget(_))));
    assert_eq!(yard.name().unwrap(), "yard ä");
    yard.hint("oneway", &[1, 2, 3]).unwrap();
    // Many records, in both directions, whose ends fall anywhere.
    for size in [1, 16_383, 16_384, 16_385, 131_072, 131_073, 3_000_000] {
        let raw: Vec<u8> = (0..size).map(|at: u32| (at % 251) as u8).collect();
        assert_eq!(yard.echo(&raw).unwrap(), raw, "{size} octets");
    }
    // Calls that share a connection: messages lie deciphered behind the one that runs.
    let pending: Vec<_> = (0..200).map(|id| (id, yard.locate_async(id % 100))).collect();
    for (id, pending) in pending {
        assert_eq!(pending.wait().unwrap().x, f64::from(id % 100));
    }
    let raw = vec![7; 50_000];
    let echoes: Vec<_> = (0..20).map(|_| yard.echo_async(&raw)).collect();
    for echo in echoes {
        assert_eq!(echo.wait().unwrap(), raw);
    }
    // Threads, each with a connection of its own.
    std::thread::scope(|scope| {
        for id in 0..8 {
            let yard = yard.clone();
            scope.spawn(move || {
                for _ in 0..50 {
                    assert_eq!(yard.locate(id).unwrap().x, f64::from(id));
                }
            });
        }
    });
    let address = format!("corbaloc:ssliop:1.2@127.0.0.1:{}/Yard", port(&orb));
    assert_eq!(client.resolve::<dyn Tracker>(&address).unwrap().locate(3).unwrap().x, 3.0);
    orb.shutdown();
}

#[test]
fn references_offer_tls_as_a_component_with_port_zero_beside_it_or_that_of_tcp() {
    let authority = Authority::new("plant");
    let tls = TlsServer::for_clients_of(authority.papers(HERE).identity(), &authority.roots()).unwrap();
    for (endpoints, plain) in
        [(&["ssliop://127.0.0.1:0"][..], false), (&["ssliop://127.0.0.1:0", "iiop://127.0.0.1:0"], true)]
    {
        let (orb, yard) = server(tls.clone(), endpoints);
        let profile = yard.ior().iiop().next().unwrap().unwrap();
        assert_eq!((profile.host, profile.port != 0), ("127.0.0.1", plain));
        let ssl = profile.components.clone().find_map(|component| match Component::decode(component) {
            Ok(Component::Ssl(ssl)) => Some(ssl),
            _ => None,
        });
        let ssl = ssl.unwrap();
        assert_eq!((ssl.supports, ssl.requires, ssl.port), (0x7e, 0x46, port(&orb)));
    }
    // Beside a Unix socket, whose component has a host of its own: one profile for both.
    let socket = std::env::temp_dir().join(format!("hyoshi-tls-beside-{}", std::process::id()));
    let (_orb, yard) = server(tls.clone(), &[&format!("unix:{}", socket.display()), "ssliop://127.0.0.1:0"]);
    let profiles: Vec<_> = yard.ior().iiop().flatten().map(|profile| (profile.host, profile.endpoints())).collect();
    assert!(
        matches!(&profiles[..], [("127.0.0.1", both)] if matches!(both[..], [IorEndpoint::Unix { .. }, IorEndpoint::Tls { .. }])),
        "{profiles:?}"
    );
    // TLS on another host than TCP: a profile for each.
    let (_orb, yard) = server(tls, &["iiop://127.0.0.1:0", "ssliop://localhost:0"]);
    let hosts: Vec<_> = yard.ior().iiop().flatten().map(|profile| (profile.host, profile.port != 0)).collect();
    assert_eq!(hosts, [("127.0.0.1", true), ("localhost", false)]);
}

#[test]
fn a_server_that_cannot_prove_itself_is_not_spoken_to() {
    let (authority, other) = (Authority::new("plant"), Authority::new("elsewhere"));
    let believing = client(TlsClient::new(&authority.roots()));
    let past = authority.papers_with(HERE, |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    let future = authority.papers_with(HERE, |params| params.not_before = rcgen::date_time_ymd(3000, 1, 1));
    for (papers, code) in [
        (other.papers(HERE), minor::TLS_UNKNOWN_CA),
        (past, minor::TLS_EXPIRED),
        (future, minor::TLS_EXPIRED),
        (authority.papers(&["tracker.plant"]), minor::TLS_NAME),
    ] {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hear = heard.clone();
        let tls = plainly(&papers).on_refused(move |peer, why| hear.lock().unwrap().push(format!("{peer} {why}")));
        let (orb, yard) = server(tls, &["ssliop://127.0.0.1:0"]);
        fails(&seen(&believing, &yard), SystemKind::NoPermission, code);
        let raised = seen(&believing, &yard).locate_async(1).wait().unwrap_err();
        assert!(matches!(raised, LocateError::System(raised) if raised.minor == code));
        orb.shutdown();
        let heard = heard.lock().unwrap();
        assert!(heard.iter().all(|line| line.starts_with("127.0.0.1:") && line.contains("alert")), "{heard:?}");
    }
    // The last one again, by the name that it does have.
    let (_orb, yard) = server(plainly(&authority.papers(&["tracker.plant"])), &["ssliop://127.0.0.1:0"]);
    seen(&client(TlsClient::new(&authority.roots()).named("tracker.plant")), &yard).nothing().unwrap();
}

/// Tells who calls.
#[derive(Default)]
struct Asks {
    seen: Mutex<Option<Arc<[u8]>>>,
    intercepted: Arc<Mutex<Option<Arc<[u8]>>>>,
}

impl Named for Asks {
    fn name(&self) -> Result<String, SystemException> {
        *self.seen.lock().unwrap() = current::peer_certificate();
        Ok(String::new())
    }
}

impl Tracker for Asks {
    fn locate(&self, _: u32) -> Result<Position, LocateError> {
        Ok(Position::default())
    }
    fn hint(&self, _: &str, _: &[u8]) -> Result<(), SystemException> {
        Ok(())
    }
    fn echo(&self, raw: &[u8]) -> Result<Vec<u8>, SystemException> {
        Ok(raw.to_vec())
    }
    fn nothing(&self) -> Result<(), SystemException> {
        Ok(())
    }
    fn swap(&self, _: &mut Position) -> Result<(i32, String), SystemException> {
        Ok((0, String::new()))
    }
    fn subscribe(&self, _: Option<&CallbackStub>) -> Result<(), SystemException> {
        Ok(())
    }
}

struct Looks(Arc<Mutex<Option<Arc<[u8]>>>>);

impl ServerInterceptor for Looks {
    fn before(&self, _: &mut Call<'_>) -> Result<(), SystemException> {
        *self.0.lock().unwrap() = current::peer_certificate();
        Ok(())
    }
}

#[test]
fn servants_and_interceptors_see_the_clients_certificate() {
    let authority = Authority::new("plant");
    let tls = TlsServer::for_clients_perhaps_of(authority.papers(HERE).identity(), &authority.roots()).unwrap();
    let asks = Arc::new(Asks::default());
    let orb = Orb::builder().tls_server(tls).listen("ssliop://127.0.0.1:0").unwrap();
    let orb = orb.server_interceptor(Looks(asks.intercepted.clone())).build().unwrap();
    orb.ready();
    let yard = orb.adapter("a").build().unwrap().activate::<dyn Tracker>(asks.clone()).unwrap();
    let papers = authority.papers(&["operator"]);
    let known = client(TlsClient::new(&authority.roots()).identity(papers.identity()));
    seen(&known, &yard).name().unwrap();
    assert_eq!(asks.seen.lock().unwrap().as_deref(), Some(&papers.der[..]));
    assert_eq!(asks.intercepted.lock().unwrap().as_deref(), Some(&papers.der[..]));
    let unknown = client(TlsClient::new(&authority.roots()));
    seen(&unknown, &yard).name().unwrap();
    assert_eq!(*asks.seen.lock().unwrap(), None);
    // One that is shown must be good all the same.
    let liar = Authority::new("elsewhere").papers(&["operator"]);
    let liar = client(TlsClient::new(&authority.roots()).identity(liar.identity()));
    fails(&seen(&liar, &yard), SystemKind::NoPermission, minor::TLS_REFUSED);
}

#[test]
fn a_client_without_the_certificate_that_is_required_is_told_so() {
    let authority = Authority::new("plant");
    let tls = TlsServer::for_clients_of(authority.papers(HERE).identity(), &authority.roots()).unwrap();
    let (_orb, yard) = server(tls, &["ssliop://127.0.0.1:0"]);
    let good = authority.papers(&["operator"]);
    let good = client(TlsClient::new(&authority.roots()).identity(good.identity()));
    seen(&good, &yard).nothing().unwrap();
    let old = authority.papers_with(&["operator"], |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    for bad in [
        TlsClient::new(&authority.roots()),
        TlsClient::new(&authority.roots()).identity(old.identity()),
        TlsClient::new(&authority.roots()).identity(Authority::new("elsewhere").papers(&["operator"]).identity()),
    ] {
        let bad = client(bad);
        for _ in 0..5 {
            fails(&seen(&bad, &yard), SystemKind::NoPermission, minor::TLS_REFUSED);
        }
        let raised = seen(&bad, &yard).locate_async(1).wait().unwrap_err();
        assert!(matches!(raised, LocateError::System(raised) if raised.minor == minor::TLS_REFUSED), "{raised:?}");
    }
}

#[test]
fn plain_and_tls_do_not_mix() {
    let authority = Authority::new("plant");
    let tls = plainly(&authority.papers(HERE));
    let (secure, _) = server(tls.clone(), &["ssliop://127.0.0.1:0"]);
    let (plain, yard) = server(tls.clone(), &["iiop://127.0.0.1:0"]);
    let Some(IorEndpoint::Tcp { port: plain_port, .. }) = plain.endpoints().first() else { panic!("no TCP") };
    let speaks_plain = Orb::client().unwrap();
    let speaks_tls = client(TlsClient::new(&authority.roots()));
    // Plain GIOP on the port of TLS.
    let address = format!("corbaloc:iiop:1.2@127.0.0.1:{}/Yard", port(&secure));
    let stub = speaks_plain.resolve_unchecked::<dyn Tracker>(&address).unwrap();
    fails(&stub, SystemKind::CommFailure, minor::TLS_EXPECTED);
    // TLS on the plain port.
    let address = format!("corbaloc:ssliop:1.2@127.0.0.1:{plain_port}/Yard");
    let stub = speaks_tls.resolve_unchecked::<dyn Tracker>(&address).unwrap();
    fails(&stub, SystemKind::CommFailure, minor::TLS_HANDSHAKE);
    // No settings for it; plain forbidden.
    let stub = speaks_plain.resolve_unchecked::<dyn Tracker>(&address).unwrap();
    fails(&stub, SystemKind::NoPermission, minor::TLS_NOT_SET_UP);
    seen(&speaks_tls, &yard).nothing().unwrap();
    let strict = client(TlsClient::new(&authority.roots()).only());
    fails(&seen(&strict, &yard), SystemKind::NoPermission, minor::TLS_NOT_SET_UP);
    // Where both are offered a client that speaks TLS does not fall back.
    let (_both, yard) = server(tls, &["iiop://127.0.0.1:0", "ssliop://127.0.0.1:0"]);
    let doubts = client(TlsClient::new(&Authority::new("elsewhere").roots()));
    fails(&seen(&doubts, &yard), SystemKind::NoPermission, minor::TLS_UNKNOWN_CA);
    seen(&speaks_plain, &yard).nothing().unwrap();
    seen(&speaks_tls, &yard).nothing().unwrap();
}

#[test]
fn clients_that_never_finish_their_handshake_harm_nobody() {
    let authority = Authority::new("plant");
    let limits = ServerLimits { handshakes: 50, handshake: Span::from_millis(1500), ..ServerLimits::default() };
    let refused = Arc::new(AtomicUsize::new(0));
    let count = refused.clone();
    let tls = plainly(&authority.papers(HERE)).on_refused(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let (orb, yard) = limited(tls, &["ssliop://127.0.0.1:0"], limits);
    let connect = || {
        let stream = TcpStream::connect(("127.0.0.1", port(&orb))).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    };
    let speaks_tls = client(TlsClient::new(&authority.roots()));
    let yard = seen(&speaks_tls, &yard);
    yard.nothing().unwrap();
    // Silent ones, and ones that stop within their first message: far more than are kept.
    let mut stuck: Vec<_> = (0..200).map(|_| connect()).collect();
    for stream in stuck.iter_mut().skip(100) {
        // It may be broken off already, for those that came later.
        let _ = stream.write_all(&[22, 3, 1, 2, 0, 1, 0]);
    }
    yard.nothing().unwrap();
    let fresh = client(TlsClient::new(&authority.roots()));
    let again = seen(&fresh, &yard);
    again.nothing().unwrap();
    // All of them are closed, the last ones when their time is over.
    let began = Instant::now();
    for stream in &mut stuck {
        let mut octets = Vec::new();
        match stream.read_to_end(&mut octets) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
    assert!(began.elapsed() < Duration::from_secs(15));
    // Noise is answered with an alert (21), and heard of.
    let mut noise = connect();
    noise.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut octets = Vec::new();
    noise.read_to_end(&mut octets).unwrap();
    assert_eq!(octets[0], 21);
    assert!(refused.load(Ordering::SeqCst) > 0);
    yard.nothing().unwrap();
}

#[test]
fn settings_that_cannot_be_used_say_why() {
    let authority = Authority::new("plant");
    let (one, other) = (authority.papers(HERE), authority.papers(HERE));
    let none = TlsRoots::from_pem(b"nothing").unwrap_err().to_string();
    assert_eq!(none, "no certificate in PEM (-----BEGIN ...-----): there is none");
    let file = TlsRoots::from_file("/does/not/exist.pem").unwrap_err().to_string();
    assert!(file.starts_with("cannot read /does/not/exist.pem: "), "{file}");
    assert!(TlsIdentity::from_pem(one.certificate.as_bytes(), b"").is_err());
    let mixed = TlsIdentity::from_pem(one.certificate.as_bytes(), other.key.as_bytes()).unwrap();
    assert!(matches!(TlsServer::new(mixed), Err(TlsError::Mismatch)));
    let none = Orb::builder().listen("ssliop://127.0.0.1:0").unwrap().build().unwrap_err().to_string();
    assert!(none.contains("OrbBuilder::tls_server"), "{none}");
}

#[test]
fn a_handshake_that_hangs_keeps_nobody_beyond_the_deadline_who_would_share_the_connection() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let limits = ClientLimits { connections: 0, ..ClientLimits::default() };
    let timeouts = Timeouts { connect: Span::from_secs(60), ..Timeouts::default() };
    let tls = TlsClient::new(&Authority::new("plant").roots());
    let client = Orb::builder().client_limits(limits).timeouts(timeouts).tls_client(tls).unwrap().build().unwrap();
    let yard = client.resolve_unchecked::<dyn Tracker>(&format!("corbaloc:ssliop:1.2@127.0.0.1:{port}/Yard")).unwrap();
    let patient = yard.clone();
    let first = std::thread::spawn(move || patient.nothing());
    let (silent, _) = listener.accept().unwrap();
    let late = SystemKind::Timeout.not_done(minor::CONNECT_TIMEOUT);
    assert_eq!(yard.within(Span::from_millis(30)).nothing(), Err(late));
    assert_eq!(yard.within(Span::from_millis(30)).locate_async(1).wait(), Err(LocateError::System(late)));
    assert!(!first.is_finished(), "it goes on with the handshake");
    drop((silent, listener));
    assert_eq!(first.join().unwrap().map_err(|raised| raised.completed), Err(Completed::No));
}
