//! Calls that share a connection: none keeps another beyond its deadline, and no request is sent in part.

use crate::loopback::{ClosedPort, unused_address};
use crate::peer;
use crate::tracking;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use hyoshi_model::Span;
use hyoshi_orb::{
    ByteOrder, ClientLimits, Decoder, Encode, Encoder, Interface, Ior, Orb, ServerLimits, SyncScope, SystemException,
    SystemKind, Version, minor,
};
use hyoshi_wire::giop::{Message, Reassembler, ReplyHeader, ReplyStatus};
use hyoshi_wire::ior::Profile;
use peer::{id, message, reference, reply};
use tracking::*;

/// More than sockets hold between two who do not read.
const VAST: usize = 32 << 20;

/// A client all calls of which share one connection to each server.
fn sharing(limits: ClientLimits) -> Orb {
    Orb::builder().client_limits(ClientLimits { connections: 0, ..limits }).build().unwrap()
}

/// A server that tells when something has arrived, reads nothing until it is told to, and then tells of each message its
/// kind, id and operation, and answers requests with a number of 0.
struct Slow {
    listener: TcpListener,
    began: Receiver<()>,
    go_on: Sender<()>,
    heard: Receiver<(u8, u32, String)>,
}

fn slow() -> Slow {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let accepting = listener.try_clone().unwrap();
    let (begin, began) = channel();
    let (go_on, wait) = channel();
    let (tell, heard) = channel();
    thread::spawn(move || {
        let (mut stream, _) = accepting.accept().unwrap();
        stream.peek(&mut [0]).unwrap();
        begin.send(()).unwrap();
        if wait.recv().is_err() {
            return;
        }
        while let Some(message) = message(&mut stream) {
            let operation = operation(&message);
            let is_oneway = operation == "hint";
            let told = tell.send((message[7], id(&message), operation)).is_ok();
            if message[7] == 0 && !is_oneway {
                let answer = reply(id(&message), ReplyStatus::NoException, |to| 0u32.encode(to));
                stream.write_all(&answer).unwrap();
            }
            if !told {
                return;
            }
        }
    });
    Slow { listener, began, go_on, heard }
}

fn operation(message: &[u8]) -> String {
    let limits = hyoshi_wire::Limits { message: usize::MAX, ..Default::default() };
    let mut messages = Reassembler::new(limits);
    match messages.next(&mut &message[..]).unwrap().unwrap().decode() {
        Ok(Message::Request(request)) => request.operation.to_owned(),
        _ => String::new(),
    }
}

fn stub(client: &Orb, listener: &TcpListener) -> TrackerStub {
    client.stub::<dyn Tracker>(reference(listener, <dyn Tracker>::ID))
}

const SOON: Span = Span::from_millis(30);

#[test]
fn a_deadline_holds_while_the_server_reads_nothing_and_what_was_not_begun_is_never_sent() {
    let never_sent = SystemKind::Timeout.not_done(minor::SEND_TIMEOUT);
    // Those that wait do so for their turn, or before they are let in at all.
    for backlog in [2 * VAST, 1 << 20] {
        let server = slow();
        let client = sharing(ClientLimits { backlog, ..ClientLimits::default() });
        let tracker = stub(&client, &server.listener);
        let patient = tracker.clone();
        let first = thread::spawn(move || patient.echo(&vec![1; VAST]));
        server.began.recv().unwrap();
        assert_eq!(tracker.within(SOON).nothing(), Err(never_sent));
        assert_eq!(tracker.within(SOON).locate_async(1).wait(), Err(LocateError::System(never_sent)));
        assert_eq!(tracker.within(SOON).hint("a oneway", &[]), Err(never_sent));
        assert!(!first.is_finished(), "it still waits for the server");
        server.go_on.send(()).unwrap();
        assert_eq!(first.join().unwrap(), Ok(vec![]));
        assert_eq!(tracker.nothing(), Ok(()));
        let heard: Vec<_> = server.heard.try_iter().map(|(kind, _, operation)| (kind, operation)).collect();
        assert_eq!(heard, [(0, "echo".to_owned()), (0, "nothing".to_owned())]);
    }
}

#[test]
fn a_request_that_was_begun_is_completed_after_its_caller_has_given_up() {
    let server = slow();
    let client = sharing(ClientLimits::default());
    let tracker = stub(&client, &server.listener);
    let perhaps = SystemKind::Timeout.maybe_done(minor::REPLY_TIMEOUT);
    assert_eq!(tracker.within(Span::from_millis(200)).echo(&vec![1; VAST]), Err(perhaps));
    server.go_on.send(()).unwrap();
    assert_eq!(tracker.nothing(), Ok(()));
    let heard: Vec<_> = server.heard.try_iter().collect();
    let [(0, echo, _), (2, cancelled, _), (0, _, nothing)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!((echo, nothing.as_str()), (cancelled, "nothing"));
}

#[test]
fn a_server_that_takes_nothing_for_long_is_lost_to_all_that_share_the_connection() {
    // Connections are made, for the kernel does that; nobody reads.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = sharing(ClientLimits { stalled: Span::from_millis(300), ..ClientLimits::default() });
    let tracker = stub(&client, &listener);
    assert_eq!(tracker.echo(&vec![1; VAST]), Err(SystemKind::CommFailure.not_done(minor::SEND)));
}

#[test]
fn oneways_that_are_put_off_are_bounded_too() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = sharing(ClientLimits { stalled: Span::from_millis(300), ..ClientLimits::default() });
    let tracker = stub(&client, &listener).oneways(SyncScope::None);
    let raw = vec![1; 64 << 10];
    let raised = (0..VAST / raw.len()).find_map(|_| tracker.within(SOON).hint("", &raw).err());
    assert_eq!(raised, Some(SystemKind::Timeout.not_done(minor::SEND_TIMEOUT)));
}

#[test]
fn the_end_waits_for_all_servers_that_take_nothing_at_once_and_keeps_nothing_from_those_that_read() {
    let silent: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let client = Orb::builder()
        .client_limits(ClientLimits { connections: 0, stalled: Span::from_secs(60), ..ClientLimits::default() })
        .server_limits(ServerLimits { ending: Span::from_millis(500), ..ServerLimits::default() })
        .build()
        .unwrap();
    let raw = vec![1; 64 << 10];
    for listener in &silent {
        let tracker = stub(&client, listener).oneways(SyncScope::None);
        assert!((0..VAST / raw.len()).any(|_| tracker.within(SOON).hint("", &raw).is_err()));
    }
    let server = slow();
    stub(&client, &server.listener).oneways(SyncScope::None).hint("put off", &[]).unwrap();
    server.go_on.send(()).unwrap();
    let begun = Instant::now();
    client.shutdown();
    assert!(begun.elapsed() < Duration::from_secs(20), "it waited for one after the other");
    assert_eq!(server.heard.iter().map(|(_, _, operation)| operation).next().as_deref(), Some("hint"));
}

/// A reply of GIOP 1.1 in two fragments: the first number is whole in the first, the second is aligned by its place
/// in the second.
fn fragmented(id: u32) -> Vec<u8> {
    let mut to = Encoder::new(ByteOrder::Big);
    to.speak(Version::V1_1, Default::default());
    let begun = ReplyHeader { id, status: ReplyStatus::NoException, contexts: &[] }.begin(&mut to).unwrap();
    7.0f64.encode(&mut to).unwrap();
    begun.end(&mut to).unwrap();
    let mut octets = to.into_bytes();
    assert_eq!(octets.len(), 32);
    octets[6] |= 2;
    octets.extend(b"GIOP\x01\x01\x00\x07\x00\x00\x00\x0c");
    octets.extend([0; 4]);
    octets.extend(0.5f64.to_be_bytes());
    octets
}

#[test]
fn fragments_of_replies_in_1_1_keep_their_alignment() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let accepting = listener.try_clone().unwrap();
    let serve = |mut stream: TcpStream| {
        while let Some(message) = message(&mut stream) {
            let mut from = Decoder::new(&message, ByteOrder::from_flag(message[6]));
            // 12 octets of header, and no contexts.
            from.raw(16).unwrap();
            let id = hyoshi_orb::Decode::decode(&mut from).unwrap();
            stream.write_all(&fragmented(id)).unwrap();
        }
    };
    thread::spawn(move || accepting.incoming().for_each(|stream| serve(stream.unwrap())));
    let port = listener.local_addr().unwrap().port();
    let profile = Profile::iiop(Version::V1_1, "127.0.0.1", port, b"key", &[]).unwrap();
    let ior = Ior { type_id: <dyn Tracker>::ID.to_owned(), profiles: vec![profile] };
    // Each with a connection of its own, then sharing one.
    for client in [Orb::client().unwrap(), sharing(ClientLimits::default())] {
        let tracker = client.stub::<dyn Tracker>(ior.clone());
        for _ in 0..3 {
            assert_eq!(tracker.locate(1), Ok(Position { x: 7.0, y: 0.5 }));
        }
        client.shutdown();
    }
}

#[test]
fn a_host_that_is_unknown_and_one_where_nobody_listens_are_told_apart() {
    let client = Orb::client().unwrap();
    let call = |address: &str| client.resolve_unchecked::<dyn Tracker>(address).unwrap().nothing();
    let transient = |minor| Err::<(), SystemException>(SystemKind::Transient.not_done(minor));
    assert_eq!(call("corbaloc:iiop:1.2@nowhere.invalid:1/x"), transient(minor::HOST_UNKNOWN));
    let closed = ClosedPort::new();
    let port = closed.number();
    assert_eq!(call(&format!("corbaloc:iiop:1.2@127.0.0.1:{port}/x")), transient(minor::REFUSED));
    assert_eq!(call(&format!("corbaloc:iiop:1.2@localhost:{port}/x")), transient(minor::REFUSED));
    assert_eq!(call("corbaloc:omniunix:/nowhere/socket:/x"), transient(minor::REFUSED));
}

#[test]
fn exceptions_tell_whose_they_are() {
    let client = Orb::client().unwrap();
    let call = |address: &str| client.resolve_unchecked::<dyn Tracker>(address).unwrap().nothing().unwrap_err();
    let closed = unused_address();
    assert_eq!(
        call(&format!("corbaloc:iiop:1.2@{closed}/x")).to_string(),
        format!(
            "TRANSIENT (minor 0x4859001d, not done) at {closed}: Nobody listens at the address: the connection \
             was refused, or there is no such socket"
        )
    );
    assert_eq!(call("corbaloc:iiop:1.2@nowhere.invalid:1/x").peer, Some("nowhere.invalid:1"));
    assert_eq!(call("corbaloc:omniunix:/nowhere/socket:/x").peer, Some("/nowhere/socket"));
    // Raised by the server; and by an asynchronous call.
    let server = Orb::builder().collocation(false).listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    server.ready();
    let Some(hyoshi_orb::IorEndpoint::Tcp { port, .. }) = server.endpoints().first() else { panic!("it listens") };
    let (at, address) = (format!("127.0.0.1:{port}"), format!("corbaloc:iiop:1.2@127.0.0.1:{port}/Nobody"));
    let raised = call(&address);
    assert_eq!((raised.kind, raised.peer), (SystemKind::ObjectNotExist, Some(at.as_str())));
    let pending = client.resolve_unchecked::<dyn Tracker>(&address).unwrap().locate_async(1);
    let Err(LocateError::System(raised)) = pending.wait() else { panic!("it is nowhere") };
    assert_eq!(raised.peer, Some(at.as_str()));
}
