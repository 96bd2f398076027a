//! The proxy between clients and servers that send given octets.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use hyoshi_orb::behaviour::Behaviour;
use hyoshi_orb::proxy::{IiopProxy, IiopProxyReport, ProxyLimits, ProxySettings};
use hyoshi_orb::{ByteOrder, Completed, Decode, Encode, Encoder, Ior, SystemException, SystemKind, Version, minor};
use hyoshi_wire::Limits;
use hyoshi_wire::giop::{
    Message, MessageKind, Reassembler, ReplyStatus, RequestHeader, Response, Target, cancel_request, close_connection,
};

use crate::peer;

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

fn settings(behaviours: &[(&str, &str)]) -> ProxySettings {
    let behaviours = behaviours.iter().map(|(name, text)| ((*name).to_owned(), text.parse().unwrap())).collect();
    ProxySettings { listen: "iiop://127.0.0.1:0".to_owned(), behaviours, ..ProxySettings::default() }
}

fn start(server: &TcpListener, settings: ProxySettings) -> IiopProxy {
    IiopProxy::start(&peer::reference(server, "IDL:Thing:1.0"), settings).unwrap()
}

fn tuned(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn connect(ior: &Ior) -> TcpStream {
    let profile = ior.iiop().next().unwrap().unwrap();
    tuned(TcpStream::connect((profile.host, profile.port)).unwrap())
}

fn accept(server: &TcpListener) -> TcpStream {
    tuned(server.accept().unwrap().0)
}

fn ask(client: &mut TcpStream, id: u32, operation: &str) {
    client.write_all(&peer::request(id, b"key", operation, Response::Target)).unwrap();
}

fn answer(server: &mut TcpStream, id: u32) {
    server.write_all(&peer::reply(id, ReplyStatus::NoException, |_| Ok(()))).unwrap();
}

/// Decodes a whole message.
fn decoded<R>(octets: &[u8], look: impl FnOnce(Message<'_>) -> R) -> R {
    let mut messages = Reassembler::new(Limits::default());
    let mut rest = octets;
    look(messages.next(&mut rest).unwrap().unwrap().decode().unwrap())
}

/// The next message of the stream is a system exception for this request.
fn raised(client: &mut TcpStream, id: u32) -> SystemException {
    decoded(&peer::message(client).expect("a reply"), |message| {
        let Message::Reply(mut reply) = message else { panic!("{message:?}") };
        assert_eq!((reply.id, reply.status), (id, ReplyStatus::SystemException));
        SystemException::decode(&mut reply.body).unwrap()
    })
}

fn wait_for(proxy: &IiopProxy, holds: impl Fn(&IiopProxyReport) -> bool) -> IiopProxyReport {
    let began = Instant::now();
    loop {
        let report = proxy.report();
        if holds(&report) {
            return report;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{report:?}");
        std::thread::yield_now();
    }
}

#[test]
fn requests_and_replies_pass_octet_for_octet_and_several_wait_at_a_time() {
    let server = listener();
    let proxy = start(&server, settings(&[]));
    let mut client = connect(proxy.ior());
    let requests = [2, 4, 6].map(|id| peer::request(id, b"key", "look", Response::Target));
    requests.iter().for_each(|request| client.write_all(request).unwrap());
    let mut at_server = accept(&server);
    for request in &requests {
        assert_eq!(&peer::message(&mut at_server).unwrap(), request);
    }
    for id in [4, 6, 2] {
        let reply = peer::reply(id, ReplyStatus::NoException, |to| (u64::from(id) << 33).encode(to));
        at_server.write_all(&reply).unwrap();
        assert_eq!(peer::message(&mut client).unwrap(), reply);
    }
    // Nobody waits for these.
    answer(&mut at_server, 4);
    answer(&mut at_server, 99);
    ask(&mut client, 8, "look");
    assert_eq!(peer::id(&peer::message(&mut at_server).unwrap()), 8);
    answer(&mut at_server, 8);
    assert_eq!(peer::id(&peer::message(&mut client).unwrap()), 8);
    let measured = proxy.report().delegates[0].measured().clone();
    assert_eq!((measured.requests, measured.passed, measured.latency.extent().count()), (4, 4, 4));
}

#[test]
fn an_absent_server_is_an_exception_at_once_and_one_that_returns_is_used() {
    let server = listener();
    let address = server.local_addr().unwrap();
    let proxy = start(&server, settings(&[]));
    let mut client = connect(proxy.ior());
    ask(&mut client, 2, "look");
    let mut at_server = accept(&server);
    peer::message(&mut at_server).unwrap();
    drop((at_server, server));
    let lost = raised(&mut client, 2);
    assert_eq!((lost.kind, lost.minor, lost.completed), (SystemKind::CommFailure, minor::LOST, Completed::Maybe));
    ask(&mut client, 4, "look");
    let refused = raised(&mut client, 4);
    assert_eq!(
        (refused.kind, refused.minor, refused.completed),
        (SystemKind::Transient, minor::REFUSED, Completed::No)
    );
    let server = TcpListener::bind(address).unwrap();
    ask(&mut client, 6, "look");
    let mut at_server = accept(&server);
    assert_eq!(peer::id(&peer::message(&mut at_server).unwrap()), 6);
    answer(&mut at_server, 6);
    assert_eq!(peer::id(&peer::message(&mut client).unwrap()), 6);
    let report = proxy.report();
    assert_eq!((report.lost, report.unreached, report.delegates[0].measured().failed), (1, 1, 2));
}

#[test]
fn an_orderly_end_reaches_a_client_that_waits_and_only_that() {
    let server = listener();
    let proxy = start(&server, settings(&[]));
    let mut client = connect(proxy.ior());
    ask(&mut client, 2, "look");
    let mut at_server = accept(&server);
    peer::message(&mut at_server).unwrap();
    answer(&mut at_server, 2);
    peer::message(&mut client).unwrap();
    at_server.write_all(&close_connection(Version::V1_2)).unwrap();
    assert_eq!(at_server.read(&mut [0]).unwrap(), 0, "the proxy has read it");
    ask(&mut client, 4, "look");
    let mut at_server = accept(&server);
    assert_eq!(peer::id(&peer::message(&mut at_server).unwrap()), 4);
    at_server.write_all(&close_connection(Version::V1_2)).unwrap();
    assert_eq!(peer::message(&mut client).unwrap()[7], MessageKind::CloseConnection as u8);
    assert!(peer::message(&mut client).is_none());
}

#[test]
fn a_cancelled_request_is_cancelled_at_the_server_and_makes_room() {
    let server = listener();
    let limits = ProxyLimits { in_flight: 2, ..ProxyLimits::default() };
    let proxy = start(&server, ProxySettings { limits, ..settings(&[]) });
    let mut client = connect(proxy.ior());
    [2, 4, 6].iter().for_each(|id| ask(&mut client, *id, "look"));
    assert_eq!(raised(&mut client, 6).minor, minor::IN_FLIGHT);
    let mut to = Encoder::new(ByteOrder::Big);
    cancel_request(2, &mut to).unwrap();
    client.write_all(to.bytes()).unwrap();
    ask(&mut client, 8, "look");
    let mut at_server = accept(&server);
    let ids: Vec<_> =
        (0..4).map(|_| peer::message(&mut at_server).unwrap()).map(|one| (one[7], peer::id(&one))).collect();
    assert_eq!(ids, [(0, 2), (0, 4), (2, 2), (0, 8)]);
    [2, 8, 4].iter().for_each(|id| answer(&mut at_server, *id));
    assert_eq!([8, 4], [0; 2].map(|_| peer::id(&peer::message(&mut client).unwrap())));
    assert_eq!(proxy.report().delegates[0].measured().cancelled, 1);
}

#[test]
fn refused_and_thinned_oneways_are_dropped_and_requests_get_the_exception() {
    let server = listener();
    let proxy = start(&server, settings(&[("log", "thin:1/3"), ("reset", "refuse:NO_PERMISSION")]));
    let mut client = connect(proxy.ior());
    for id in 1..=7 {
        client.write_all(&peer::request(id, b"key", "log", Response::None)).unwrap();
    }
    client.write_all(&peer::request(8, b"key", "reset", Response::None)).unwrap();
    ask(&mut client, 9, "reset");
    let exception = raised(&mut client, 9);
    assert_eq!((exception.kind, exception.minor), (SystemKind::NoPermission, minor::DELEGATE));
    ask(&mut client, 10, "log");
    assert_eq!(raised(&mut client, 10).kind, SystemKind::Transient);
    ask(&mut client, 11, "look");
    let mut at_server = accept(&server);
    let ids = [0; 4].map(|_| peer::id(&peer::message(&mut at_server).unwrap()));
    assert_eq!(ids, [1, 4, 7, 11]);
    let report = proxy.report();
    let counts = |name: &str| {
        let measured = report.delegates.iter().find(|one| one.name() == name).unwrap().measured();
        (measured.requests, measured.passed, measured.refused, measured.dropped)
    };
    assert_eq!((counts("log"), counts("reset")), ((8, 3, 1, 4), (2, 0, 1, 1)));
}

#[test]
fn the_cache_answers_equal_requests_of_all_clients_and_no_others() {
    let server = listener();
    let proxy = start(&server, settings(&[("map", "cached:1h")]));
    let map = |client: &mut TcpStream, id: u32, argument: u32| {
        let mut to = Encoder::new(ByteOrder::Big);
        let target = Target::Key(b"key");
        let header = RequestHeader { id, response: Response::Target, target, operation: "map", contexts: &[] };
        let begun = header.begin(&mut to).unwrap();
        argument.encode(&mut to).unwrap();
        begun.end(&mut to).unwrap();
        client.write_all(to.bytes()).unwrap();
    };
    let (mut first, mut second) = (connect(proxy.ior()), connect(proxy.ior()));
    map(&mut first, 2, 7);
    let mut at_server = accept(&server);
    peer::message(&mut at_server).unwrap();
    let reply = |id| peer::reply(id, ReplyStatus::NoException, |to| 1.5f64.encode(to));
    at_server.write_all(&reply(2)).unwrap();
    assert_eq!(peer::message(&mut first).unwrap(), reply(2));
    map(&mut second, 40, 7);
    assert_eq!(peer::message(&mut second).unwrap(), reply(40));
    // Exceptions are not stored.
    for id in [4, 6] {
        map(&mut first, id, 8);
        assert_eq!(peer::id(&peer::message(&mut at_server).unwrap()), id);
        let exception = SystemKind::Transient.not_done(0);
        at_server.write_all(&peer::reply(id, ReplyStatus::SystemException, |to| exception.encode(to))).unwrap();
        raised(&mut first, id);
    }
    let measured = proxy.report().delegates[0].measured().clone();
    assert_eq!((measured.requests, measured.passed, measured.cached, measured.failed), (4, 3, 1, 2));
}

/// One call each of a double that is redirected, in all versions and orders, whatever the length of the keys.
#[test]
fn arguments_of_redirected_requests_are_read_at_the_other_object() {
    let (server, other) = (listener(), listener());
    for (version, order, key) in [
        (Version::V1_0, ByteOrder::Big, &b"k"[..]),
        (Version::V1_0, ByteOrder::Little, b"long key"),
        (Version::V1_1, ByteOrder::Little, b"a longer key"),
        (Version::V1_1, ByteOrder::Big, b"keys"),
        (Version::V1_2, ByteOrder::Little, b"k"),
        (Version::V1_2, ByteOrder::Big, b"seven.."),
    ] {
        let mut settings = settings(&[("place", "redirect:other")]);
        settings.redirections = vec![("other".to_owned(), peer::reference(&other, ""))];
        let proxy = start(&server, settings);
        let mut client = connect(proxy.ior());
        let mut to = Encoder::new(order);
        to.speak(version, Default::default());
        let target = Target::Key(key);
        let header = RequestHeader { id: 2, response: Response::Target, target, operation: "place", contexts: &[] };
        let begun = header.begin(&mut to).unwrap();
        7u8.encode(&mut to).unwrap();
        2.5f64.encode(&mut to).unwrap();
        begun.end(&mut to).unwrap();
        client.write_all(to.bytes()).unwrap();
        let mut at_other = accept(&other);
        let octets = peer::message(&mut at_other).unwrap();
        decoded(&octets, |message| {
            let Message::Request(mut request) = message else { panic!("{message:?}") };
            assert_eq!((request.id, request.operation, request.target.key().unwrap()), (2, "place", &b"key"[..]));
            assert_eq!(u8::decode(&mut request.arguments).unwrap(), 7);
            assert_eq!((f64::decode(&mut request.arguments).unwrap(), request.arguments.left()), (2.5, 0));
        });
        // Other operations use the server of the reference.
        client.write_all(&peer::request(4, b"key", "look", Response::Target)).unwrap();
        assert_eq!(peer::id(&peer::message(&mut accept(&server)).unwrap()), 4);
    }
}

#[test]
fn a_forwarded_client_reaches_the_other_server_through_the_proxy() {
    let (server, other) = (listener(), listener());
    let proxy = start(&server, settings(&[]));
    let mut client = connect(proxy.ior());
    let elsewhere = peer::reference(&other, "IDL:Thing:1.0");
    ask(&mut client, 2, "look");
    let mut at_server = accept(&server);
    peer::message(&mut at_server).unwrap();
    at_server.write_all(&peer::reply(2, ReplyStatus::LocationForward, |to| elsewhere.encode(to))).unwrap();
    let forwarded = decoded(&peer::message(&mut client).unwrap(), |message| {
        let Message::Reply(mut reply) = message else { panic!("{message:?}") };
        assert_eq!(reply.status, ReplyStatus::LocationForward);
        Ior::decode(&mut reply.body).unwrap()
    });
    let profile = forwarded.iiop().next().unwrap().unwrap();
    assert_eq!((profile.key, forwarded.type_id.as_str()), (&b"key"[..], "IDL:Thing:1.0"));
    assert_ne!(profile.port, other.local_addr().unwrap().port());
    let mut client = connect(&forwarded);
    ask(&mut client, 2, "look");
    assert_eq!(peer::id(&peer::message(&mut accept(&other)).unwrap()), 2);
    let report = proxy.report();
    assert_eq!((report.forwarded, report.bypassed), (1, 0));
}

#[test]
fn a_reference_for_which_no_port_is_left_passes_unchanged() {
    let (server, other) = (listener(), listener());
    let limits = ProxyLimits { servers: 0, ..ProxyLimits::default() };
    let proxy = start(&server, ProxySettings { limits, ..settings(&[]) });
    let mut client = connect(proxy.ior());
    ask(&mut client, 2, "look");
    let mut at_server = accept(&server);
    peer::message(&mut at_server).unwrap();
    let forward = |ior: &Ior| peer::reply(2, ReplyStatus::LocationForward, |to| ior.encode(to));
    at_server.write_all(&forward(&peer::reference(&other, ""))).unwrap();
    assert_eq!(peer::message(&mut client).unwrap(), forward(&peer::reference(&other, "")));
    assert_eq!(proxy.report().bypassed, 1);
}

#[test]
fn connections_are_bounded_and_end_with_their_clients() {
    let server = listener();
    let limits = ProxyLimits { connections: 2, ..ProxyLimits::default() };
    let proxy = start(&server, ProxySettings { limits, ..settings(&[]) });
    let mut clients = [0; 2].map(|_| connect(proxy.ior()));
    let mut at_server = Vec::new();
    for client in &mut clients {
        ask(client, 2, "look");
        at_server.push(accept(&server));
    }
    // All are of one client: it gets no further connection.
    let mut third = connect(proxy.ior());
    assert!(peer::message(&mut third).is_none());
    assert_eq!(wait_for(&proxy, |report| report.displaced == 1).open, 2);
    drop(clients);
    for stream in &mut at_server {
        assert!(peer::message(stream).is_some() && peer::message(stream).is_none(), "its client has gone");
    }
    wait_for(&proxy, |report| report.open == 0);
    let mut fourth = connect(proxy.ior());
    ask(&mut fourth, 2, "look");
    assert!(peer::message(&mut accept(&server)).is_some());
}

#[test]
fn incomplete_messages_of_all_clients_are_bounded() {
    let server = listener();
    let limits = ProxyLimits { unfinished: 1 << 20, connections: 8, ..ProxyLimits::default() };
    let proxy = start(&server, ProxySettings { limits, ..settings(&[]) });
    // A message that claims 4 MiB.
    let mut begun = b"GIOP\x01\x02\x00\x00\x00\x40\x00\x00".to_vec();
    begun.resize(600 << 10, 0);
    let mut clients = [0; 2].map(|_| connect(proxy.ior()));
    let mut small = connect(proxy.ior());
    small.write_all(&begun[..2_000]).unwrap();
    for client in &mut clients {
        // The last one is closed while it sends.
        let _ = client.write_all(&begun);
    }
    wait_for(&proxy, |report| report.open == 2);
    let mut next = connect(proxy.ior());
    ask(&mut next, 2, "look");
    assert!(peer::message(&mut accept(&server)).is_some());
}

#[test]
fn garbage_ends_the_connection_of_its_sender() {
    let server = listener();
    let proxy = start(&server, settings(&[]));
    let mut client = connect(proxy.ior());
    client.write_all(b"GIOP\x01\x02\x00\x09\x00\x00\x00\x00").unwrap();
    assert_eq!(peer::message(&mut client).unwrap()[7], MessageKind::MessageError as u8);
    assert!(peer::message(&mut client).is_none());
    // A server's: the client's connection stays.
    let mut client = connect(proxy.ior());
    ask(&mut client, 2, "look");
    let mut at_server = accept(&server);
    peer::message(&mut at_server).unwrap();
    at_server.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    assert_eq!(raised(&mut client, 2).kind, SystemKind::Marshal);
    ask(&mut client, 4, "look");
    let mut at_server = accept(&server);
    assert_eq!(peer::id(&peer::message(&mut at_server).unwrap()), 4);
    // A reused id of a request that waits.
    ask(&mut client, 4, "look");
    assert_eq!(peer::message(&mut client).unwrap()[7], MessageKind::MessageError as u8);
}

#[test]
fn a_proxy_without_a_way_to_the_object_does_not_start() {
    let server = listener();
    let error = IiopProxy::start(&Ior::NIL, settings(&[])).unwrap_err().to_string();
    assert!(error.contains("neither an address of plain TCP"), "{error}");
    let mut of_tls = settings(&[]);
    of_tls.listen = "ssliop://127.0.0.1:0".to_owned();
    let error = IiopProxy::start(&peer::reference(&server, ""), of_tls).unwrap_err().to_string();
    assert!(error.contains("iiop://HOST:PORT"), "{error}");
    let mut unresolved = settings(&[]);
    unresolved.others = Behaviour::Redirect("corbaloc::h/K".to_owned());
    let error = IiopProxy::start(&peer::reference(&server, ""), unresolved).unwrap_err().to_string();
    assert!(error.contains("redirect:corbaloc::h/K"), "{error}");
}

/// As contracts set them.
#[test]
fn behaviours_change_while_the_proxy_runs() {
    let server = listener();
    let settable = vec!["late".to_owned()];
    let proxy = start(&server, ProxySettings { settable, ..settings(&[("zoom", "pass")]) });
    let mut client = connect(proxy.ior());
    let refusal = || Some(Behaviour::Refuse(SystemKind::NoPermission));
    // Clients cannot use up the place of an operation that a contract sets.
    let names: Vec<String> = (0..200).map(|number| format!("noise{number}")).collect();
    assert!(proxy.set_others(Behaviour::Refuse(SystemKind::Transient)));
    for (id, name) in (0..).zip(&names) {
        ask(&mut client, id, name);
        assert_eq!(raised(&mut client, id).kind, SystemKind::Transient);
    }
    assert!(proxy.set("late", refusal()) && proxy.set("zoom", refusal()));
    assert!(!proxy.set("unknown", refusal()), "it has no place");
    for (id, name) in [(300, "late"), (301, "zoom")] {
        ask(&mut client, id, name);
        assert_eq!(raised(&mut client, id).kind, SystemKind::NoPermission);
    }
    let elsewhere = Behaviour::Redirect("corbaloc::h:1/K".to_owned());
    assert!(!proxy.set("zoom", Some(elsewhere.clone())) && !proxy.set_others(elsewhere), "it is not resolved");
    assert!(proxy.set("zoom", Some(Behaviour::Pass)) && proxy.set("late", None));
    ask(&mut client, 302, "late");
    assert_eq!(raised(&mut client, 302).kind, SystemKind::Transient, "as all others");
    assert!(proxy.set_others(Behaviour::Pass));
    ask(&mut client, 303, "late");
    let mut at_server = accept(&server);
    assert_eq!(peer::id(&peer::message(&mut at_server).unwrap()), 303);
    answer(&mut at_server, 303);
    assert_eq!(peer::id(&peer::message(&mut client).unwrap()), 303);
    let totals = proxy.totals();
    assert_eq!((totals.requests, totals.answered, totals.failed), (204, 1, 0));
}
