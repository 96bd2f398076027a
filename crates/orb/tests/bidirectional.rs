//! Calls both ways over one connection.

use crate::authority;
use crate::peer;
use crate::tracking;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyoshi_model::Span;
use hyoshi_orb::*;
use hyoshi_os::Wake;
use hyoshi_wire::Limits;
use hyoshi_wire::giop::{
    CONTEXT_BI_DIR_IIOP, CONTEXT_CODE_SETS, CodeSet, Context, ListenPoint, Message, Reassembler, ReplyStatus,
    RequestHeader, Response, Target, Transmission,
};
use hyoshi_wire::ior::Profile;
use peer::{connect, id, message, reply};
use tracking::*;

/// Asks whoever subscribed last, for all that it is asked.
struct Relay {
    orb: Mutex<Option<Orb>>,
    other: Mutex<Option<TrackerStub>>,
}

impl Relay {
    fn new(orb: &Orb) -> Arc<Relay> {
        Arc::new(Relay { orb: Mutex::new(Some(orb.clone())), other: Mutex::new(None) })
    }

    fn other(&self) -> Result<TrackerStub, SystemException> {
        self.other.lock().unwrap().clone().ok_or_else(|| SystemKind::BadInvOrder.not_done(0))
    }
}

impl Named for Relay {
    fn name(&self) -> Result<String, SystemException> {
        self.other()?.name()
    }
}

impl Tracker for Relay {
    fn locate(&self, id: u32) -> Result<Position, LocateError> {
        self.other()?.locate(id)
    }
    fn hint(&self, note: &str, raw: &[u8]) -> Result<(), SystemException> {
        self.other()?.hint(note, raw)
    }
    fn echo(&self, raw: &[u8]) -> Result<Vec<u8>, SystemException> {
        self.other()?.echo(raw)
    }
    fn nothing(&self) -> Result<(), SystemException> {
        self.other()?.nothing()
    }
    /// Once more as often as `x` says, by turns.
    fn swap(&self, p: &mut Position) -> Result<(i32, String), SystemException> {
        if p.x < 1.0 {
            return Ok((0, String::new()));
        }
        let (deep, was) = self.other()?.swap(&mut Position { x: p.x - 1.0, y: p.y })?;
        Ok((deep + 1, was))
    }
    fn subscribe(&self, who: Option<&CallbackStub>) -> Result<(), SystemException> {
        let orb = self.orb.lock().unwrap().clone();
        *self.other.lock().unwrap() = who.zip(orb).map(|(who, orb)| orb.stub::<dyn Tracker>(who.ior().clone()));
        Ok(())
    }
}

/// A server that accepts, and its relay as this client sees it.
fn serve(builder: OrbBuilder, endpoint: &str) -> (Orb, TrackerStub, Arc<Relay>) {
    let orb = builder.collocation(false).listen(endpoint).unwrap().build().unwrap();
    orb.ready();
    let relay = Relay::new(&orb);
    let stub = orb.adapter("a").build().unwrap().activate::<dyn Tracker>(relay.clone()).unwrap();
    orb.publish("Tracker", &stub).unwrap();
    (orb, stub, relay)
}

fn accepting() -> OrbBuilder {
    Orb::builder().accept_bidirectional(Claims::Own)
}

/// A client without listener, its view of the server, and its own object, subscribed.
fn call(client: &Orb, stub: &TrackerStub, servant: Arc<dyn Tracker>) -> (TrackerStub, TrackerStub) {
    let server = client.stub::<dyn Tracker>(stub.ior().clone());
    let own = client.adapter("callbacks").build().unwrap().activate::<dyn Tracker>(servant).unwrap();
    server.subscribe(Some(&client.stub::<dyn Callback>(own.ior().clone()))).unwrap();
    (server, own)
}

fn offering() -> Orb {
    Orb::builder().collocation(false).offer_bidirectional().build().unwrap()
}

#[test]
fn a_client_that_listens_nowhere_is_called_back_while_it_waits_and_later() {
    let (server, stub, relay) = serve(accepting(), "iiop://127.0.0.1:0");
    let client = offering();
    let (seen, own) = call(&client, &stub, Arc::new(Yard::default()));
    assert!(own.ior().iiop().next().unwrap().unwrap().host.ends_with(".invalid"));
    assert_eq!(seen.name().unwrap(), "yard ä");
    assert_eq!(seen.locate(7).unwrap(), Position { x: 7.0, y: 0.5 });
    assert_eq!(seen.locate(200), Err(LocateError::UnknownTarget(UnknownTarget { id: 200 })));
    // While the client asks nothing.
    let other = relay.other().unwrap();
    assert_eq!(other.locate(8).unwrap(), Position { x: 8.0, y: 0.5 });
    assert_eq!(other.locate_async(9).wait().unwrap(), Position { x: 9.0, y: 0.5 });
    assert!(!other.non_existent().unwrap());
    drop(server);
}

#[test]
fn messages_of_any_size_go_both_ways_at_once() {
    let (_server, stub, relay) = serve(accepting(), "iiop://127.0.0.1:0");
    let client = offering();
    let (seen, _) = call(&client, &stub, Arc::new(Yard::default()));
    let large: Vec<u8> = (0..3_000_000u32).map(|at| at as u8).collect();
    let back = relay.other().unwrap();
    std::thread::scope(|scope| {
        let (large, back, seen) = (&large, &back, &seen);
        for _ in 0..2 {
            scope.spawn(move || assert!(seen.echo(large).unwrap() == *large));
            scope.spawn(move || assert!(back.echo(large).unwrap() == *large));
        }
        let small: Vec<_> = (0..50u8).map(|at| (at, seen.echo_async(&[at]))).collect();
        for (at, pending) in small {
            assert_eq!(pending.wait().unwrap(), [at]);
        }
    });
}

#[test]
fn calls_within_calls_and_many_at_once_do_not_wait_for_each_other() {
    let lane = LaneOptions { threads: 4, ..LaneOptions::default() };
    let (_server, stub, _) = serve(accepting().lane(lane.clone()), "iiop://127.0.0.1:0");
    let client = Orb::builder().collocation(false).lane(lane).offer_bidirectional().build().unwrap();
    let back = Relay::new(&client);
    let (seen, _) = call(&client, &stub, back.clone());
    *back.other.lock().unwrap() = Some(seen.clone());
    // Three threads of either side wait within each other.
    assert_eq!(seen.swap(&mut Position { x: 6.0, y: 0.0 }).unwrap().0, 6);

    let (_server, stub, _) = serve(accepting(), "iiop://127.0.0.1:0");
    let client = offering();
    let (seen, _) = call(&client, &stub, Arc::new(Yard::default()));
    std::thread::scope(|scope| {
        for thread in 0..12u8 {
            let seen = seen.clone();
            scope.spawn(move || {
                for at in 0..50u8 {
                    assert_eq!(seen.echo(&[thread, at]).unwrap(), [thread, at]);
                }
            });
        }
    });
    *back.orb.lock().unwrap() = None;
}

#[test]
fn oneways_keep_their_order_in_either_direction_and_none_is_lost() {
    let (_server, stub, relay) = serve(accepting(), "iiop://127.0.0.1:0");
    let client = offering();
    let yard = Arc::new(Yard::default());
    call(&client, &stub, yard.clone());
    let back = relay.other().unwrap();
    let notes: Vec<String> = (0..500).map(|note| note.to_string()).collect();
    notes.iter().for_each(|note| back.hint(note, &[0; 100]).unwrap());
    while yard.hints.lock().unwrap().len() < notes.len() {
        yard.heard.wait();
    }
    assert_eq!(*yard.hints.lock().unwrap(), notes);
}

#[test]
fn a_client_that_listens_is_called_over_its_own_connection_too() {
    let (_server, stub, relay) = serve(accepting(), "iiop://127.0.0.1:0");
    // Nobody takes connections there: a call over one of its own would not come through.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    silent.set_nonblocking(true).unwrap();
    let port = silent.local_addr().unwrap().port();
    let mut raw = RawClient::new(&stub, &[ListenPoint { host: "127.0.0.1", port }]);
    raw.subscribe(&reference("127.0.0.1", port));
    let asking = relay.other().unwrap();
    let asked = std::thread::spawn(move || asking.echo(b"?"));
    let request = message(&mut raw.stream).unwrap();
    assert_eq!((request[7], id(&request) % 2), (0, 1), "a request, with an odd id");
    raw.stream.write_all(&reply(id(&request), ReplyStatus::NoException, |to| b"!"[..].encode(to))).unwrap();
    assert_eq!(asked.join().unwrap().unwrap(), b"!");
    assert!(silent.accept().is_err(), "no connection was made");

    // It asks something itself before it answers.
    let asking = relay.other().unwrap();
    let asked = std::thread::spawn(move || asking.echo(b"?"));
    let request = message(&mut raw.stream).unwrap();
    assert_eq!(raw.ask("_non_existent", &[], |_| Ok(()))[7], 1);
    raw.stream.write_all(&reply(id(&request), ReplyStatus::NoException, |to| b"!"[..].encode(to))).unwrap();
    assert_eq!(asked.join().unwrap().unwrap(), b"!");
}

#[test]
fn only_a_server_that_accepts_believes_a_client_and_only_what_is_the_clients_own() {
    let own = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = own.local_addr().unwrap().port();
    let point = [ListenPoint { host: "127.0.0.1", port }];
    // TEST-NET-1 (RFC 5737): nobody's, and this client's least of all.
    let foreign = [ListenPoint { host: "192.0.2.1", port }];
    let cases = [(None, &point, false), (Some(Claims::Own), &foreign, false), (Some(Claims::Any), &foreign, true)];
    for (claims, points, believed) in cases {
        let timeouts = Timeouts { connect: Span::from_millis(300), ..Timeouts::default() };
        let mut builder = Orb::builder().timeouts(timeouts);
        if let Some(claims) = claims {
            builder = builder.accept_bidirectional(claims);
        }
        let (_server, stub, relay) = serve(builder, "iiop://127.0.0.1:0");
        let mut raw = RawClient::new(&stub, points);
        raw.subscribe(&reference(points[0].host, port));
        let asking = relay.other().unwrap().within(Span::from_millis(2000));
        let asked = std::thread::spawn(move || asking.echo(b"?"));
        if believed {
            assert_eq!(message(&mut raw.stream).unwrap()[7], 0, "{claims:?} {points:?}: a request");
        }
        assert!(asked.join().unwrap().is_err());
        let next = raw.ask("_non_existent", &[], |_| Ok(()));
        assert_eq!(
            next[7],
            if believed { 2 } else { 1 },
            "{claims:?} {points:?}: the call is cancelled, or never came"
        );
    }
}

#[test]
fn an_address_keeps_to_the_connection_that_announced_it_first() {
    let (_server, stub, relay) = serve(accepting(), "iiop://127.0.0.1:0");
    let point = [ListenPoint { host: "127.0.0.1", port: 7 }];
    let mut first = RawClient::new(&stub, &point);
    let mut second = RawClient::new(&stub, &point);
    first.subscribe(&reference("127.0.0.1", 7));
    second.subscribe(&reference("127.0.0.1", 7));
    let answered = |raw: &mut RawClient| {
        let asking = relay.other().unwrap();
        let asked = std::thread::spawn(move || asking.nothing());
        let request = message(&mut raw.stream).unwrap();
        raw.stream.write_all(&reply(id(&request), ReplyStatus::NoException, |_| Ok(()))).unwrap();
        asked.join().unwrap().unwrap();
    };
    answered(&mut first);
    drop(first);
    // The server has seen that once its calls go to the second.
    let briefly = relay.other().unwrap().within(Span::from_millis(200));
    while briefly.nothing().unwrap_err().kind == SystemKind::CommFailure {}
    while message(&mut second.stream).unwrap()[7] != 2 {}
    answered(&mut second);
}

#[test]
fn a_name_that_a_client_made_up_is_not_taken_over_by_saying_other_code_sets() {
    let (_server, stub, relay) = serve(accepting(), "iiop://127.0.0.1:0");
    let host = "00000000000000bb.bidir.invalid";
    let point = [ListenPoint { host, port: 1 }];
    let utf8 = Context::CodeSets(Transmission { narrow: CodeSet::UTF8, wide: CodeSet::UTF16 }).data().unwrap();
    let mut first = RawClient::new(&stub, &point);
    // The reference says nothing of them: what says nothing either would be fitter.
    first.sets = Some(utf8);
    first.subscribe(&reference(host, 1));
    let mut second = RawClient::new(&stub, &point);
    second.subscribe(&reference(host, 1));
    let asking = relay.other().unwrap();
    let asked = std::thread::spawn(move || asking.nothing());
    let request = message(&mut first.stream).unwrap();
    first.stream.write_all(&reply(id(&request), ReplyStatus::NoException, |_| Ok(()))).unwrap();
    asked.join().unwrap().unwrap();
    // The second has it when the first has gone.
    drop(first);
    let briefly = relay.other().unwrap().within(Span::from_millis(200));
    while briefly.nothing().unwrap_err().kind == SystemKind::CommFailure {}
    assert_eq!(message(&mut second.stream).unwrap()[7], 0);
}

/// Says that it has begun, and ends when it may.
#[derive(Default)]
struct Gated(Wake, Wake);

impl Named for Gated {
    fn name(&self) -> Result<String, SystemException> {
        self.0.post();
        self.1.wait();
        Ok("ended".to_owned())
    }
}

#[test]
fn connections_that_wait_for_a_thread_get_it_in_the_order_in_which_they_came() {
    let lane = LaneOptions { threads: 1, ..LaneOptions::default() };
    let orb = accepting().collocation(false).lane(lane).listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let adapter = orb.adapter("a").build().unwrap();
    let (yard, gated) = (Arc::new(Yard::default()), Arc::new(Gated::default()));
    let stub = adapter.activate::<dyn Tracker>(yard.clone()).unwrap();
    let gate = adapter.activate::<dyn Named>(gated.clone()).unwrap();
    let hosts: Vec<_> = (0..4).map(|at| format!("00000000000000c{at}.bidir.invalid")).collect();
    let mut clients: Vec<_> = hosts
        .iter()
        .map(|host| {
            let mut raw = RawClient::new(&stub, &[ListenPoint { host, port: 1 }]);
            let context = raw.context.clone();
            assert_eq!(raw.ask("_non_existent", &context, |_| Ok(()))[7], 1);
            raw
        })
        .collect();
    // The lane's only thread is busy.
    let gate = gate.ior().iiop().next().unwrap().unwrap().key.to_vec();
    let mut busy = connect(&orb);
    busy.write_all(&peer::request(0, &gate, "_get_name", Response::Target)).unwrap();
    gated.0.wait();
    for (raw, host) in clients.iter_mut().zip(&hosts) {
        let asking = orb.stub::<dyn Tracker>(reference(host, 1));
        let asked = std::thread::spawn(move || asking.nothing());
        let request = message(&mut raw.stream).unwrap();
        raw.send("hint", Response::None, &[], |to| {
            host.encode(to)?;
            b""[..].encode(to)
        });
        // The reader has handed this on: what came before it waits for the thread.
        raw.stream.write_all(&reply(id(&request), ReplyStatus::NoException, |_| Ok(()))).unwrap();
        asked.join().unwrap().unwrap();
    }
    gated.1.post();
    while yard.hints.lock().unwrap().len() < hosts.len() {
        yard.heard.wait();
    }
    assert_eq!(*yard.hints.lock().unwrap(), hosts);
}

#[test]
fn calls_over_a_connection_that_is_lost_fail_as_over_any_other() {
    let (_server, stub, relay) = serve(accepting(), "iiop://127.0.0.1:0");
    let host = "00000000000000aa.bidir.invalid";
    let mut raw = RawClient::new(&stub, &[ListenPoint { host, port: 1 }]);
    raw.subscribe(&reference(host, 1));
    let asking = relay.other().unwrap();
    let asked = std::thread::spawn(move || asking.nothing());
    message(&mut raw.stream).unwrap();
    drop(raw);
    let raised = asked.join().unwrap().unwrap_err();
    assert_eq!(raised, SystemKind::CommFailure.maybe_done(minor::LOST));
    let raised = relay.nothing().unwrap_err();
    assert_eq!(raised, SystemKind::Transient.not_done(minor::NO_WAY_BACK));

    // Closed in the orderly way, nothing was carried out: it would be sent again.
    let mut raw = RawClient::new(&stub, &[ListenPoint { host, port: 1 }]);
    raw.subscribe(&reference(host, 1));
    let asking = relay.other().unwrap();
    let asked = std::thread::spawn(move || asking.nothing());
    message(&mut raw.stream).unwrap();
    raw.stream.write_all(&hyoshi_wire::giop::close_connection(Version::V1_2)).unwrap();
    let raised = asked.join().unwrap().unwrap_err();
    assert_eq!(raised, SystemKind::Transient.not_done(minor::NO_WAY_BACK));
}

#[test]
fn a_client_connects_anew_and_is_called_back_over_that() {
    let (server, stub, relay) = serve(accepting(), "iiop://127.0.0.1:0");
    let IorEndpoint::Tcp { port, .. } = server.endpoints()[0].clone() else { panic!() };
    let client = offering();
    let (seen, own) = call(&client, &stub, Arc::new(Yard::default()));
    seen.nothing().unwrap();
    *relay.orb.lock().unwrap() = None;
    *relay.other.lock().unwrap() = None;
    server.shutdown();
    drop(server);
    let builder = accepting();
    let (again, ..) = serve(builder, &format!("iiop://127.0.0.1:{port}"));
    let address = format!("corbaloc:iiop:1.2@127.0.0.1:{port}/Tracker");
    let seen = client.resolve::<dyn Tracker>(&address).unwrap();
    seen.subscribe(Some(&client.stub::<dyn Callback>(own.ior().clone()))).unwrap();
    assert_eq!(seen.locate(3).unwrap().x, 3.0);
    // An end in the orderly way, from the client.
    client.shutdown();
    drop(again);
}

#[test]
fn unix_sockets_and_tls_do_as_well() {
    let path = std::env::temp_dir().join(format!("hyoshi-bidir-{}", std::process::id()));
    let (_server, stub, relay) = serve(accepting(), &format!("unix:{}", path.display()));
    let client = offering();
    let (seen, _) = call(&client, &stub, Arc::new(Yard::default()));
    assert_eq!(seen.locate(7).unwrap().x, 7.0);
    assert_eq!(relay.other().unwrap().locate(8).unwrap().x, 8.0);

    let authority = authority::Authority::new("plant");
    let papers = authority.papers(&["127.0.0.1"]);
    let tls = TlsServer::new(papers.identity()).unwrap();
    let (_server, stub, relay) = serve(accepting().tls_server(tls), "ssliop://127.0.0.1:0");
    let client = Orb::builder().collocation(false).offer_bidirectional();
    let client = client.tls_client(TlsClient::new(&authority.roots())).unwrap().build().unwrap();
    let (seen, _) = call(&client, &stub, Arc::new(Yard::default()));
    let large = vec![7; 500_000];
    assert!(seen.echo(&large).unwrap() == large);
    assert!(relay.other().unwrap().echo(&large).unwrap() == large);
}

#[test]
fn what_waits_is_bounded_and_what_is_beyond_is_told() {
    // One thread, kept busy; four requests of a connection wait, and while this side waits for a reply, eight times that.
    let limits = ServerLimits { in_flight: 4, ..ServerLimits::default() };
    let lane = LaneOptions { threads: 1, ..LaneOptions::default() };
    let (_server, stub, relay) = serve(accepting().server_limits(limits).lane(lane), "iiop://127.0.0.1:0");
    let point = [ListenPoint { host: "127.0.0.1", port: 7 }];
    let mut raw = RawClient::new(&stub, &point);
    raw.subscribe(&reference("127.0.0.1", 7));
    // The servant asks back, and the client keeps it waiting.
    raw.send("nothing", Response::Target, &[], |_| Ok(()));
    let asked = message(&mut raw.stream).unwrap();
    assert_eq!(asked[7], 0);
    for _ in 0..40 {
        raw.send("_non_existent", Response::Target, &[], |_| Ok(()));
    }
    let mut refused = 0;
    for _ in 0..8 {
        let told = message(&mut raw.stream).unwrap();
        let mut messages = Reassembler::new(Limits::default());
        let Some(received) = messages.next(&mut &told[..]).unwrap() else { panic!() };
        let Message::Reply(mut reply) = received.decode().unwrap() else { panic!("{:?}", received.header()) };
        assert_eq!(reply.status, ReplyStatus::SystemException);
        let raised = <SystemException as Decode>::decode(&mut reply.body).unwrap();
        assert_eq!(raised, SystemKind::Transient.not_done(minor::IN_FLIGHT));
        refused += 1;
    }
    assert_eq!(refused, 8);
    // The reply is read behind all of them.
    raw.stream.write_all(&reply(id(&asked), ReplyStatus::NoException, |_| Ok(()))).unwrap();
    for _ in 0..33 {
        assert_eq!(message(&mut raw.stream).unwrap()[7], 1);
    }
    // Nobody waits: what is beyond is not read, and nothing is refused.
    drop(relay);
    let before = raw.next;
    for _ in 0..200 {
        raw.send("_non_existent", Response::Target, &[], |_| Ok(()));
    }
    let mut replied: Vec<u32> = (0..200).map(|_| id(&message(&mut raw.stream).unwrap())).collect();
    replied.sort_unstable();
    assert_eq!(replied, (0..200).map(|at| before + 2 * at).collect::<Vec<_>>());
}

#[test]
fn a_silent_client_is_kept_while_it_may_be_called_and_closed_in_the_orderly_way_afterwards() {
    let limits = ServerLimits { silent: Span::from_secs(1), ..ServerLimits::default() };
    let (_server, stub, relay) = serve(accepting().server_limits(limits), "iiop://127.0.0.1:0");
    let point = [ListenPoint { host: "127.0.0.1", port: 7 }];
    let mut raw = RawClient::new(&stub, &point);
    raw.subscribe(&reference("127.0.0.1", 7));
    let asking = relay.other().unwrap();
    std::thread::spawn(move || asking.nothing());
    let request = message(&mut raw.stream).unwrap();
    raw.stream.write_all(&reply(id(&request), ReplyStatus::NoException, |_| Ok(()))).unwrap();
    // One that will not be called is closed, although it is silent for less long.
    let mut other = RawClient::new(&stub, &[]);
    assert_eq!(other.ask("_non_existent", &[], |_| Ok(()))[7], 1);
    assert_eq!(message(&mut other.stream).unwrap()[7], 5, "CloseConnection");
    assert_eq!(raw.ask("_non_existent", &[], |_| Ok(()))[7], 1, "it is neither called nor closed");
    *relay.other.lock().unwrap() = None;
    assert_eq!(message(&mut raw.stream).unwrap()[7], 5, "CloseConnection");
    assert_eq!(message(&mut raw.stream), None);
}

#[test]
fn what_cannot_be_understood_ends_its_connection_and_nothing_else() {
    let (_server, stub, relay) = serve(accepting(), "iiop://127.0.0.1:0");
    let client = offering();
    let (seen, _) = call(&client, &stub, Arc::new(Yard::default()));
    let point = [ListenPoint { host: "127.0.0.1", port: 7 }];
    // A LocateReply that nobody asked for; another protocol; a fragment of nothing; a version that there is not.
    let locate_reply = [&b"GIOP\x01\x02\x00\x04\x00\x00\x00\x08"[..], &[0, 0, 0, 1, 0, 0, 0, 1]].concat();
    let fragment = b"GIOP\x01\x02\x00\x07\x00\x00\x00\x04\x00\x00\x00\x63".to_vec();
    for nonsense in
        [locate_reply, b"GET / HTTP/1.1\r\n\r\n".to_vec(), fragment, b"GIOP\x01\x09\x00\x00\0\0\0\0".to_vec()]
    {
        let mut raw = RawClient::new(&stub, &point);
        assert_eq!(raw.ask("_non_existent", &raw.context.clone(), |_| Ok(()))[7], 1);
        raw.stream.write_all(&nonsense).unwrap();
        while let Some(told) = message(&mut raw.stream) {
            assert_eq!(told[7], 6, "MessageError");
        }
    }
    // Replies to nothing are passed over, as those to cancelled requests have to be.
    let mut raw = RawClient::new(&stub, &point);
    raw.ask("_non_existent", &raw.context.clone(), |_| Ok(()));
    raw.stream.write_all(&reply(77, ReplyStatus::NoException, |_| Ok(()))).unwrap();
    assert_eq!(raw.ask("_non_existent", &[], |_| Ok(()))[7], 1);
    assert_eq!(seen.locate(7).unwrap().x, 7.0);
    assert_eq!(relay.other().unwrap().locate(7).unwrap().x, 7.0);
}

#[test]
fn a_stream_that_always_stops_within_a_message_is_not_slow() {
    let limits = ServerLimits { stalled: Span::from_secs(1), ..ServerLimits::default() };
    let (server, stub, _) = serve(accepting().server_limits(limits), "iiop://127.0.0.1:0");
    let mut raw = RawClient::new(&stub, &[ListenPoint { host: "127.0.0.1", port: 7 }]);
    assert_eq!(raw.ask("_non_existent", &raw.context.clone(), |_| Ok(()))[7], 1);
    let ask = |at| peer::request(at, &raw.key, "_non_existent", Response::Target);
    let mut at = 2;
    raw.stream.write_all(&ask(at)[..20]).unwrap();
    // Until one that began a message later, and sends nothing more, is closed.
    let mut slow = connect(&server);
    slow.write_all(&ask(2)[..20]).unwrap();
    let (sender, closed) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(message(&mut slow)));
    let begun = Instant::now();
    // Each reply comes while half of the next request has.
    while closed.try_recv().is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is never closed");
        raw.stream.write_all(&[&ask(at)[20..], &ask(at + 2)[..20]].concat()).unwrap();
        assert_eq!(message(&mut raw.stream).map(|reply| id(&reply)), Some(at), "after {:?}", begun.elapsed());
        at += 2;
    }
}

/// A client that is told octet for octet what to do.
struct RawClient {
    stream: TcpStream,
    key: Vec<u8>,
    next: u32,
    context: Vec<u8>,
    sets: Option<Vec<u8>>,
}

impl RawClient {
    fn new(stub: &TrackerStub, points: &[ListenPoint<'_>]) -> Self {
        let profile = stub.ior().iiop().next().unwrap().unwrap();
        let stream = TcpStream::connect((profile.host, profile.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        let context = Context::BiDirectional(points.to_vec()).data().unwrap();
        RawClient { stream, key: profile.key.to_vec(), next: 0, context, sets: None }
    }

    fn send(
        &mut self,
        operation: &str,
        response: Response,
        context: &[u8],
        arguments: impl FnOnce(&mut Encoder) -> Result<(), EncodeError>,
    ) {
        let mut to = Encoder::new(ByteOrder::Big);
        let sets = self.sets.take().unwrap_or_default();
        let told = [(CONTEXT_BI_DIR_IIOP, context), (CONTEXT_CODE_SETS, &sets)];
        let told = told.into_iter().filter(|(_, data)| !data.is_empty());
        let contexts: Vec<_> = told.map(|(tag, data)| ServiceContext { tag, data }).collect();
        let contexts = &contexts[..];
        let header = RequestHeader { id: self.next, response, target: Target::Key(&self.key), operation, contexts };
        let begun = header.begin(&mut to).unwrap();
        arguments(&mut to).unwrap();
        begun.end(&mut to).unwrap();
        self.next += 2;
        self.stream.write_all(to.bytes()).unwrap();
    }

    /// The reply.
    fn ask(
        &mut self,
        operation: &str,
        context: &[u8],
        arguments: impl FnOnce(&mut Encoder) -> Result<(), EncodeError>,
    ) -> Vec<u8> {
        self.send(operation, Response::Target, context, arguments);
        message(&mut self.stream).unwrap()
    }

    /// Announces its listen points on the way.
    fn subscribe(&mut self, who: &Ior) {
        let reply = self.ask("subscribe", &self.context.clone(), |to| who.encode(to));
        assert_eq!(reply[7], 1);
    }
}

fn reference(host: &str, port: u16) -> Ior {
    let profile = Profile::iiop(Version::V1_2, host, port, b"key", &[]).unwrap();
    Ior { type_id: "IDL:Tracking/Callback:1.0".to_owned(), profiles: vec![profile] }
}

#[test]
fn a_client_that_offers_nothing_is_not_touched() {
    let (server, ..) = serve(accepting(), "iiop://127.0.0.1:0");
    let mut stream = connect(&server);
    for at in 0..3 {
        stream.write_all(&peer::request(at * 2, b"Tracker", "_non_existent", Response::Target)).unwrap();
        assert_eq!(id(&message(&mut stream).unwrap()), at * 2);
    }
}
