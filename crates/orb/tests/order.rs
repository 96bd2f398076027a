//! Requests that run in an order of the program's own, and lanes that the program serves.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use hyoshi_model::Span;
use hyoshi_orb::rt::OperationCall;
use hyoshi_orb::{
    AdapterError, Claims, LaneOptions, Object, ObjectRef, Orb, Order, OrderedRequest, OwnedLane, Reference,
    ServerLimits, SyncScope, SystemException, SystemKind, TlsClient, TlsServer, minor,
};
use hyoshi_os::Poller;
use hyoshi_wire::giop::{
    CONTEXT_HYOSHI_CALL, LocateRequest, ReplyStatus, RequestHeader, Response, ServiceContext, Target, split,
};
use hyoshi_wire::{ByteOrder, Encode, Encoder};

use crate::authority::Authority;
use crate::peer;
use crate::tracking::*;

const BINDING: u32 = 7;

/// Keeps requests until the test lets them run.
#[derive(Default)]
struct Shelf {
    held: Mutex<Vec<OrderedRequest>>,
    changed: Condvar,
    most: AtomicUsize,
}

impl Order for Shelf {
    fn arrived(&self, binding: u32, request: OrderedRequest) {
        assert_eq!(binding, BINDING);
        let mut held = self.held.lock().unwrap();
        held.push(request);
        self.most.fetch_max(held.len(), Ordering::Relaxed);
        self.changed.notify_all();
    }
}

impl Shelf {
    /// All of them, once there are so many.
    fn take(&self, count: usize) -> Vec<OrderedRequest> {
        let mut held = self.held.lock().unwrap();
        while held.len() < count {
            let (again, late) = self.changed.wait_timeout(held, Duration::from_secs(20)).unwrap();
            assert!(!late.timed_out(), "{} of {count} requests came", again.len());
            held = again;
        }
        std::mem::take(&mut *held)
    }

    fn len(&self) -> usize {
        self.held.lock().unwrap().len()
    }
}

/// Runs each request at once, on the thread that read it.
struct AtOnce;

impl Order for AtOnce {
    fn arrived(&self, _: u32, request: OrderedRequest) {
        request.run();
    }
}

struct Server {
    orb: Orb,
    tracker: TrackerStub,
    yard: Arc<Yard>,
}

fn serve(order: impl Order + 'static, places: usize, lane: LaneOptions, limits: ServerLimits) -> Server {
    let builder = Orb::builder().lane(lane).server_limits(limits).order(order, places);
    let orb = builder.listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    let adapter = orb.adapter("a").build().unwrap();
    let yard = Arc::new(Yard::default());
    let tracker = adapter.activate_ordered::<dyn Tracker>("x", yard.clone(), BINDING).unwrap();
    orb.ready();
    Server { orb, tracker, yard }
}

fn shelf(places: usize) -> (Arc<Shelf>, Server) {
    let shelf = Arc::new(Shelf::default());
    let server = serve(shelf.clone(), places, LaneOptions::default(), ServerLimits::default());
    (shelf, server)
}

impl Server {
    fn key(&self) -> Vec<u8> {
        let ior = AsRef::<Reference<dyn Tracker>>::as_ref(&self.tracker).ior();
        ior.iiop().next().unwrap().unwrap().key.to_vec()
    }

    fn stub(&self, client: &Orb) -> TrackerStub {
        let ior = AsRef::<Reference<dyn Tracker>>::as_ref(&self.tracker).ior();
        client.resolve_unchecked::<dyn Tracker>(&ior.to_string()).unwrap()
    }

    /// Sends requests without waiting.
    fn send(&self, stream: &mut impl Write, ids: impl IntoIterator<Item = u32>) {
        let key = self.key();
        let all = ids.into_iter().flat_map(|id| peer::request(id, &key, "nothing", Response::Target));
        stream.write_all(&all.collect::<Vec<_>>()).unwrap();
    }
}

/// The status of a reply of 1.2.
fn status(message: &[u8]) -> u32 {
    let status = message[16..20].try_into().unwrap();
    if message[6] & 1 == 1 { u32::from_le_bytes(status) } else { u32::from_be_bytes(status) }
}

fn replies(stream: &mut impl Read, count: usize) -> Vec<u32> {
    (0..count).map(|_| peer::id(&peer::message(stream).expect("a reply"))).collect()
}

#[test]
fn an_order_that_reverses_requests_gets_them_whole_from_one_connection_and_from_several() {
    let (shelf, server) = shelf(16);
    let (mut one, mut other) = (peer::connect(&server.orb), peer::connect(&server.orb));
    server.send(&mut one, [2, 4, 6]);
    let first = shelf.take(3);
    server.send(&mut other, [8]);
    let last = shelf.take(1);
    for request in first.iter().chain(&last) {
        assert_eq!(request.operation(), "nothing");
        assert!(request.wants_reply() && request.is_wanted() && request.priority().is_none());
        assert_eq!(request.contexts().unwrap().get(1), None);
    }
    last.into_iter().chain(first.into_iter().rev()).for_each(OrderedRequest::run);
    assert_eq!(replies(&mut one, 3), [6, 4, 2]);
    assert_eq!(replies(&mut other, 1), [8]);
}

#[test]
fn requests_run_on_threads_of_the_program_and_know_their_client() {
    let (shelf, server) = shelf(4);
    let client = Orb::client().unwrap();
    let tracker = server.stub(&client);
    std::thread::scope(|scope| {
        let name = scope.spawn(|| tracker.name());
        shelf.take(1).into_iter().for_each(OrderedRequest::run);
        // Code sets are agreed upon although the first request ran late.
        assert_eq!(name.join().unwrap().unwrap(), "yard ä");
        let located = scope.spawn(|| tracker.locate(5));
        shelf.take(1).into_iter().for_each(OrderedRequest::run);
        assert_eq!(located.join().unwrap().unwrap().x, 5.0);
        let panics = scope.spawn(|| tracker.locate(666));
        shelf.take(1).into_iter().for_each(OrderedRequest::run);
        let LocateError::System(error) = panics.join().unwrap().unwrap_err() else { panic!("a system exception") };
        assert_eq!(error.minor, minor::PANICKED);
    });
}

#[test]
fn a_request_that_is_refused_or_dropped_gets_an_exception() {
    let (shelf, server) = shelf(4);
    let client = Orb::client().unwrap();
    let tracker = server.stub(&client);
    std::thread::scope(|scope| {
        let call = || tracker.nothing();
        let refused = scope.spawn(call);
        let exception = SystemKind::NoResources.not_done(9);
        shelf.take(1).into_iter().for_each(|request| request.refuse(exception));
        let SystemException { kind, minor, .. } = refused.join().unwrap().unwrap_err();
        assert_eq!((kind, minor), (SystemKind::NoResources, 9));
        let dropped = scope.spawn(call);
        drop(shelf.take(1));
        let SystemException { kind, minor, .. } = dropped.join().unwrap().unwrap_err();
        assert_eq!((kind, minor), (SystemKind::Transient, minor::NOT_RUN));
        let ran = scope.spawn(call);
        shelf.take(1).into_iter().for_each(OrderedRequest::run);
        ran.join().unwrap().unwrap();
    });
}

#[test]
fn an_order_that_panics_loses_its_request_and_no_thread() {
    struct Panics;
    impl Order for Panics {
        fn arrived(&self, _: u32, _: OrderedRequest) {
            panic!("a panic that the test expects");
        }
    }
    let lane = LaneOptions { threads: 1, ..LaneOptions::default() };
    let server = serve(Panics, 2, lane, ServerLimits::default());
    let client = Orb::client().unwrap();
    let tracker = server.stub(&client);
    for _ in 0..5 {
        assert_eq!(tracker.nothing().unwrap_err().minor, minor::NOT_RUN);
    }
}

#[test]
fn what_belongs_to_every_object_is_answered_while_its_requests_are_held() {
    let (shelf, server) = shelf(2);
    let mut stream = peer::connect(&server.orb);
    server.send(&mut stream, [2]);
    let held = shelf.take(1);
    let key = server.key();
    let mut to = Encoder::new(ByteOrder::Big);
    LocateRequest { id: 4, target: Target::Key(&key) }.encode(&mut to).unwrap();
    stream.write_all(to.bytes()).unwrap();
    assert_eq!(replies(&mut stream, 1), [4]);
    stream.write_all(&peer::request(6, &key, "_non_existent", Response::Target)).unwrap();
    assert_eq!(replies(&mut stream, 1), [6]);
    // No operation of it: there is nothing to order.
    stream.write_all(&peer::request(8, &key, "unknown", Response::Target)).unwrap();
    let unknown = peer::message(&mut stream).unwrap();
    assert_eq!((peer::id(&unknown), status(&unknown)), (8, ReplyStatus::SystemException as u32));
    // Objects that are not bound are served by the lane.
    let free = server.orb.adapter("b").build().unwrap().activate::<dyn Tracker>(server.yard.clone()).unwrap();
    let client = Orb::client().unwrap();
    let ior = AsRef::<Reference<dyn Tracker>>::as_ref(&free).ior().to_string();
    client.resolve::<dyn Tracker>(&ior).unwrap().nothing().unwrap();
    assert_eq!(shelf.len(), 0);
    held.into_iter().for_each(OrderedRequest::run);
    assert_eq!(replies(&mut stream, 1), [2]);
}

#[test]
fn a_client_that_dies_while_its_request_is_held_disturbs_nobody() {
    let (shelf, server) = shelf(4);
    for round in 0..20 {
        let mut dies = peer::connect(&server.orb);
        server.send(&mut dies, [2, 4]);
        let held = shelf.take(2);
        drop(dies);
        if round % 2 == 0 {
            let end = Instant::now() + Duration::from_secs(20);
            while held.iter().any(OrderedRequest::is_wanted) {
                assert!(Instant::now() < end, "its end is not seen");
                std::thread::yield_now();
            }
        }
        held.into_iter().for_each(OrderedRequest::run);
    }
    // All places are free again.
    let mut lives = peer::connect(&server.orb);
    server.send(&mut lives, [2, 4, 6, 8]);
    shelf.take(4).into_iter().for_each(OrderedRequest::run);
    assert_eq!(replies(&mut lives, 4), [2, 4, 6, 8]);
}

#[test]
fn a_flood_holds_no_more_than_the_places_and_others_have_their_turn() {
    const PLACES: usize = 4;
    const BATCH: u32 = 100;
    for threads in [1, 16] {
        let shelf = Arc::new(Shelf::default());
        let lane = LaneOptions { threads, ..LaneOptions::default() };
        let server = serve(shelf.clone(), PLACES, lane, ServerLimits::default());
        let mut floods = peer::connect(&server.orb);
        let batch = |at: u32| (at * BATCH + 1..=(at + 1) * BATCH).map(|at| 2 * at);
        server.send(&mut floods, batch(0));
        let mut held = shelf.take(PLACES);
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(shelf.len(), 0, "no place is left");
        let (mut others, others_served) = ([(); 3].map(|()| peer::connect(&server.orb)), AtomicBool::new(false));
        others.iter_mut().for_each(|other| server.send(other, [2, 4]));
        // Set before the last batch is sent.
        let flood = AtomicUsize::new(usize::MAX);
        let ends = |ran: usize, of_others: usize| {
            let flood = flood.load(Ordering::Acquire);
            flood != usize::MAX && ran == flood + of_others
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut ran = 0;
                while !ends(ran, 6) {
                    if held.is_empty() {
                        held = shelf.take(1);
                    }
                    held.remove(0).run();
                    ran += 1;
                }
            });
            let (mut sender, begun) = (floods.try_clone().unwrap(), Instant::now());
            sender.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
            let (server, flood, others_served) = (&server, &flood, &others_served);
            scope.spawn(move || {
                // The flood lasts until all others have their replies.
                for at in 1.. {
                    assert!(begun.elapsed() < Duration::from_secs(60), "others wait while the flood lasts");
                    let is_last = others_served.load(Ordering::Acquire);
                    if is_last {
                        flood.store(((at + 1) * BATCH) as usize, Ordering::Release);
                    }
                    server.send(&mut sender, batch(at));
                    if is_last {
                        break;
                    }
                }
            });
            scope.spawn(|| {
                let mut ran = 0;
                while !ends(ran, 0) {
                    ran += 1;
                    assert_eq!(replies(&mut floods, 1), [2 * ran as u32]);
                }
            });
            for other in &mut others {
                assert_eq!(replies(other, 2), [2, 4]);
            }
            others_served.store(true, Ordering::Release);
        });
        assert!(shelf.most.load(Ordering::Relaxed) <= PLACES);
    }
}

#[test]
fn requests_in_fragments_and_oneways_arrive_whole_and_once() {
    let (shelf, server) = shelf(16);
    let mut stream = peer::connect(&server.orb);
    let raw: Vec<u8> = (0..200).map(|at| at as u8).collect();
    let mut to = Encoder::new(ByteOrder::Big);
    let key = server.key();
    let header = RequestHeader {
        id: 2,
        response: Response::Target,
        target: Target::Key(&key),
        operation: "echo",
        contexts: &[],
    };
    let begun = header.begin(&mut to).unwrap();
    raw[..].encode(&mut to).unwrap();
    begun.end(&mut to).unwrap();
    for piece in split(to.bytes(), 64) {
        stream.write_all(piece.head()).unwrap();
        stream.write_all(piece.body()).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    let whole = shelf.take(1);
    assert!(whole[0].octets() >= to.len());
    whole.into_iter().for_each(OrderedRequest::run);
    assert!(peer::message(&mut stream).unwrap().windows(raw.len()).any(|octets| octets == raw));

    let client = Orb::client().unwrap();
    let oneways = server.stub(&client).oneways(SyncScope::Transport);
    ["a", "b", "c"].iter().for_each(|note| oneways.hint(note, &[]).unwrap());
    let held = shelf.take(3);
    assert!(held.iter().all(|request| !request.wants_reply()));
    let mut held = held.into_iter().rev();
    held.next().unwrap().run();
    held.next().unwrap().refuse(SystemKind::NoResources.not_done(9));
    drop(held);
    assert_eq!(*server.yard.hints.lock().unwrap(), ["c"]);
    // Nothing was replied to them.
    server.send(&mut stream, [4]);
    shelf.take(1).into_iter().for_each(OrderedRequest::run);
    assert_eq!(replies(&mut stream, 1), [4]);
}

#[test]
fn requests_over_connections_that_carry_calls_both_ways_wait_for_places_too() {
    let shelf = Arc::new(Shelf::default());
    let builder = Orb::builder().order(shelf.clone(), 2).accept_bidirectional(Claims::Own);
    let orb = builder.listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let adapter = orb.adapter("a").build().unwrap();
    let tracker = adapter.activate_ordered::<dyn Tracker>("x", Arc::new(Yard::default()), BINDING).unwrap();
    let server = Server { orb, tracker, yard: Arc::default() };
    let client = Orb::builder().offer_bidirectional().build().unwrap();
    let tracker = server.stub(&client);
    const CALLS: u32 = 20;
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..12)
            .map(|_| scope.spawn(|| (0..CALLS).for_each(|id| assert_eq!(tracker.locate(id).unwrap().x, f64::from(id)))))
            .collect();
        let mut left = 12 * CALLS as usize;
        while left > 0 {
            let held = shelf.take(1);
            assert!(held.len() <= 2);
            left -= held.len();
            held.into_iter().for_each(OrderedRequest::run);
        }
        callers.into_iter().for_each(|caller| caller.join().unwrap());
    });
    assert!(shelf.most.load(Ordering::Relaxed) <= 2);
}

#[test]
fn shutting_down_waits_for_held_requests_and_not_for_ever() {
    let (shelf, server) = shelf(4);
    let mut stream = peer::connect(&server.orb);
    server.send(&mut stream, [2]);
    let held = shelf.take(1);
    std::thread::scope(|scope| {
        let ends = scope.spawn(|| server.orb.shutdown());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!ends.is_finished());
        held.into_iter().for_each(OrderedRequest::run);
        ends.join().unwrap();
    });
    assert_eq!(replies(&mut stream, 1), [2]);
    let goodbye = peer::message(&mut stream).unwrap();
    assert_eq!((goodbye[7], peer::message(&mut stream)), (5, None));

    let limits = ServerLimits { ending: Span::from_millis(50), ..ServerLimits::default() };
    let shelf = Arc::new(Shelf::default());
    let server = serve(shelf.clone(), 4, LaneOptions::default(), limits);
    let mut stream = peer::connect(&server.orb);
    server.send(&mut stream, [2]);
    let held = shelf.take(1);
    let begun = Instant::now();
    server.orb.shutdown();
    assert!(begun.elapsed() < Duration::from_secs(10));
    drop(held);
    drop(server);
}

#[test]
fn objects_are_bound_to_an_order_that_is_there() {
    let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    let adapter = orb.adapter("a").build().unwrap();
    let unbound = adapter.activate_ordered::<dyn Tracker>("x", Arc::new(Yard::default()), 1);
    assert_eq!(unbound.err(), Some(AdapterError::NoOrder));
    assert!(orb.owned_lane("orb").is_none(), "it has threads of its own");
}

/// A lane that nobody serves but the test.
fn owned(order: impl Order + 'static, limits: ServerLimits) -> (Server, OwnedLane) {
    let lane = LaneOptions { name: "mine".to_owned(), threads: 0, ..LaneOptions::default() };
    let server = serve(order, 8, lane, limits);
    let lane = server.orb.owned_lane("mine").unwrap();
    (server, lane)
}

/// Waits until there is something to do.
fn wait(lane: &OwnedLane) -> bool {
    let poller = Poller::new().unwrap();
    poller.add(lane, 1, false).unwrap();
    poller.wait(Some(Duration::from_millis(50))).unwrap().is_some()
}

/// Serves until the other thread has ended.
fn serve_during<R: Send>(lane: &OwnedLane, other: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let other = scope.spawn(other);
        while !other.is_finished() {
            if wait(lane) {
                lane.turn();
            }
        }
        other.join().unwrap()
    })
}

#[test]
fn a_lane_without_threads_is_served_by_whoever_calls_its_turns() {
    let (server, lane) = owned(AtOnce, ServerLimits::default());
    let client = Orb::client().unwrap();
    serve_during(&lane, || {
        let tracker = server.stub(&client);
        let object: ObjectRef = AsRef::<Reference<dyn Tracker>>::as_ref(&tracker).widen::<dyn Object>().into();
        assert!(!object.as_ref().non_existent().unwrap());
        let large = vec![7; 3 << 20];
        assert_eq!(tracker.echo(&large).unwrap(), large);
        for id in 0..100 {
            assert_eq!(tracker.locate(id).unwrap().x, f64::from(id));
        }
    });
    assert_eq!(lane.turn().messages, 0);
    assert!(!wait(&lane));
    server.orb.shutdown();
    assert_eq!(lane.turn().messages, 0);
}

#[test]
fn a_lane_without_threads_serves_clients_over_tls() {
    let authority = Authority::new("plant");
    let tls = TlsServer::new(authority.papers(&["127.0.0.1"]).identity()).unwrap();
    let lane = LaneOptions { name: "mine".to_owned(), threads: 0, ..LaneOptions::default() };
    let builder = Orb::builder().lane(lane).tls_server(tls).order(AtOnce, 4);
    let orb = builder.listen("ssliop://127.0.0.1:0").unwrap().build().unwrap();
    let adapter = orb.adapter("a").build().unwrap();
    let tracker = adapter.activate_ordered::<dyn Tracker>("x", Arc::new(Yard::default()), BINDING).unwrap();
    orb.ready();
    let client = Orb::builder().tls_client(TlsClient::new(&authority.roots())).unwrap().build().unwrap();
    let tracker = client.stub::<dyn Tracker>(tracker.ior().clone());
    serve_during(&orb.owned_lane("mine").unwrap(), || {
        let large = vec![7; 300_000];
        assert_eq!(tracker.echo(&large).unwrap(), large);
        (0..50).for_each(|id| assert_eq!(tracker.locate(id).unwrap().x, f64::from(id)));
    });
}

#[test]
fn a_turn_is_bounded_and_clients_take_turns_within_it() {
    let limits = ServerLimits { turn_messages: 10, ..ServerLimits::default() };
    let (server, lane) = owned(AtOnce, limits);
    let mut floods = peer::connect(&server.orb);
    server.send(&mut floods, (1..=1000).map(|at| 2 * at));
    while !wait(&lane) {}
    lane.turn();
    let mut other = peer::connect(&server.orb);
    server.send(&mut other, [2]);
    // Accepted, and read.
    let mut turns = 0;
    other.set_nonblocking(true).unwrap();
    loop {
        match other.peek(&mut [0]) {
            Ok(_) => break,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(wait(&lane));
        assert!(lane.turn().messages <= 10);
        turns += 1;
        assert!(turns < 20, "the flood keeps the other client waiting");
    }
    let mut read = 1000;
    while wait(&lane) && read > 0 {
        read -= lane.turn().messages.min(read);
    }
    assert_eq!(replies(&mut floods, 1000).len(), 1000);
}

#[test]
fn a_turn_reports_whether_it_has_read_all() {
    let limits = ServerLimits { turn_messages: 8, ..ServerLimits::default() };
    let shelf = Arc::new(Shelf::default());
    let (server, lane) = owned(shelf.clone(), limits);
    let (mut one, mut other) = (peer::connect(&server.orb), peer::connect(&server.orb));
    while lane.wait(Some(Duration::from_millis(50))) {
        lane.turn();
    }
    assert!(lane.turn().is_all);
    // More than its half of a turn, but fewer than a turn reads.
    server.send(&mut one, (1..=6).map(|at| 2 * at));
    server.send(&mut other, [2]);
    let mut read = 0;
    while read < 7 {
        let turn = lane.turn();
        let arrived = shelf.take(0);
        read += arrived.len();
        arrived.into_iter().for_each(OrderedRequest::run);
        assert!(read == 7 || !turn.is_all, "{read} of 7 were read");
    }
    assert_eq!((replies(&mut one, 6).len(), replies(&mut other, 1).len()), (6, 1));
}

/// A server for two clients: over TCP, and at a Unix socket.
fn near_and_far(name: &str, places: usize, limits: ServerLimits) -> (Arc<Shelf>, PathBuf, Server) {
    let path = std::env::temp_dir().join(format!("hyoshi-orb-{name}-{}.sock", std::process::id()));
    let shelf = Arc::new(Shelf::default());
    let builder = Orb::builder().server_limits(limits).order(shelf.clone(), places);
    let builder = builder.listen("iiop://127.0.0.1:0").unwrap();
    let orb = builder.listen(&format!("unix:{}", path.display())).unwrap().build().unwrap();
    let adapter = orb.adapter("a").build().unwrap();
    let yard = Arc::new(Yard::default());
    let tracker = adapter.activate_ordered::<dyn Tracker>("x", yard.clone(), BINDING).unwrap();
    orb.ready();
    (shelf, path, Server { orb, tracker, yard })
}

#[test]
fn a_client_leaves_places_to_another_one() {
    let (shelf, path, server) = near_and_far("places", 8, ServerLimits::default());
    let mut other = UnixStream::connect(&path).unwrap();
    server.send(&mut other, [2]);
    shelf.take(1).into_iter().for_each(OrderedRequest::run);
    assert_eq!(replies(&mut other, 1), [2]);
    let mut floods = [(); 3].map(|()| peer::connect(&server.orb));
    floods.iter_mut().for_each(|flood| server.send(flood, (1..=20).map(|at| 2 * at)));
    let mut held = shelf.take(4);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(shelf.len(), 0, "the flood has half");
    // The other client has half of the rest at least, while no request of the flood runs.
    server.send(&mut other, [2, 4]);
    held.extend(shelf.take(2));
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(shelf.len(), 0, "the flood has as many as are free");
    drop(other);
    let mut ran = held.len();
    held.into_iter().for_each(OrderedRequest::run);
    // Alone, it has all.
    let mut most = 8;
    while ran < 62 {
        let held = shelf.take(most);
        most = 1;
        ran += held.len();
        held.into_iter().for_each(OrderedRequest::run);
    }
    floods.iter_mut().for_each(|flood| assert_eq!(replies(flood, 20).len(), 20));
}

/// In a process of its own: other tests open descriptors, too.
#[test]
fn connections_that_were_closed_while_they_waited_hold_no_descriptors() {
    if std::env::var_os("COUNTS_DESCRIPTORS").is_none() {
        let name = "order::connections_that_were_closed_while_they_waited_hold_no_descriptors";
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let ended = alone.args(["--exact", name]).env("COUNTS_DESCRIPTORS", "1").output().unwrap();
        let printed = String::from_utf8_lossy(&ended.stdout);
        return assert!(ended.status.success() && printed.contains("1 passed"), "{printed}");
    }
    // Some of those that wait are never run.
    let ending = hyoshi_model::Span::from_millis(100);
    let limits = ServerLimits { connections: 8, ending, ..ServerLimits::default() };
    let (shelf, path, server) = near_and_far("closed", 2, limits);
    let mut stays = peer::connect(&server.orb);
    server.send(&mut stays, [2, 4]);
    let held = shelf.take(2);
    let mut all = [(); 6].map(|()| peer::connect(&server.orb));
    all.iter_mut().for_each(|one| server.send(one, [2]));
    std::thread::sleep(Duration::from_millis(20));
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open();
    for _ in 0..100 {
        // It waits, until the newest of those that wait gives its place in the table to one of another client.
        let mut waits = peer::connect(&server.orb);
        server.send(&mut waits, [2]);
        std::thread::sleep(Duration::from_millis(3));
        let other = UnixStream::connect(&path).unwrap();
        let _ = waits.read(&mut [0; 100]);
        drop(other);
        std::thread::sleep(Duration::from_millis(3));
    }
    assert!(open() < before + 50, "{} more descriptors", open() - before);
    held.into_iter().for_each(OrderedRequest::run);
    assert_eq!(replies(&mut stays, 2), [2, 4]);
}

/// A shelf with places for calls of operations.
struct WithCalls(Arc<Shelf>);

impl Order for WithCalls {
    fn arrived(&self, binding: u32, request: OrderedRequest) {
        self.0.arrived(binding, request);
    }

    fn call_places(&self) -> usize {
        1
    }
}

#[test]
fn calls_of_operations_have_places_that_no_other_request_takes() {
    let shelf = Arc::new(Shelf::default());
    let server = serve(WithCalls(shelf.clone()), 4, LaneOptions::default(), ServerLimits::default());
    let mut floods = [(); 2].map(|()| peer::connect(&server.orb));
    floods.iter_mut().for_each(|flood| server.send(flood, (1..=40).map(|at| 2 * at)));
    let held = shelf.take(4);
    let key = server.key();
    let call = OperationCall { system: 1, source: 2, number: 3, period: 4 };
    let mut to = Encoder::new(ByteOrder::Big);
    let contexts = [ServiceContext { tag: CONTEXT_HYOSHI_CALL, data: &call.octets() }];
    let target = Target::Key(&key);
    let header = RequestHeader { id: 2, response: Response::Target, target, operation: "nothing", contexts: &contexts };
    header.begin(&mut to).unwrap().end(&mut to).unwrap();
    let mut calls = [(); 2].map(|()| peer::connect(&server.orb));
    calls[0].write_all(to.bytes()).unwrap();
    let first = shelf.take(1).pop().unwrap();
    assert_eq!(first.operation_call(), Some(call));
    // The next call waits behind the flood's requests, and takes the place of the first.
    calls[1].write_all(to.bytes()).unwrap();
    first.run();
    assert_eq!(replies(&mut calls[0], 1), [2]);
    let second = shelf.take(1).pop().unwrap();
    assert_eq!(second.operation_call(), Some(call), "no place of the calls goes to the flood");
    // While a call has its place, the other requests have all of theirs.
    held.into_iter().for_each(OrderedRequest::run);
    let held = shelf.take(4);
    second.run();
    assert_eq!(replies(&mut calls[1], 1), [2]);
    held.into_iter().for_each(OrderedRequest::run);
    let mut ran = 8;
    while ran < 80 {
        let held = shelf.take(1);
        assert!(held.len() <= 4);
        ran += held.len();
        held.into_iter().for_each(OrderedRequest::run);
    }
    floods.iter_mut().for_each(|flood| assert_eq!(replies(flood, 40).len(), 40));
}

#[test]
fn an_order_of_a_lane_without_threads_may_keep_requests() {
    let shelf = Arc::new(Shelf::default());
    let (server, lane) = owned(shelf.clone(), ServerLimits::default());
    let mut floods = peer::connect(&server.orb);
    server.send(&mut floods, (1..=100).map(|at| 2 * at));
    let end = Instant::now() + Duration::from_secs(20);
    let mut next = 2;
    while next <= 200 {
        assert!(Instant::now() < end, "{next} has not arrived");
        if wait(&lane) {
            lane.turn();
        }
        let held = shelf.take(0);
        assert!(held.len() <= 8);
        let count = held.len();
        held.into_iter().for_each(OrderedRequest::run);
        for _ in 0..count {
            assert_eq!(replies(&mut floods, 1), [next]);
            next += 2;
        }
    }
}

#[test]
fn a_lane_without_threads_closes_clients_that_stop_in_mid_message_or_say_nothing() {
    let limits = ServerLimits { stalled: Span::from_secs(1), silent: Span::from_secs(2), ..ServerLimits::default() };
    let (server, lane) = owned(AtOnce, limits);
    let mut slow = peer::connect(&server.orb);
    slow.write_all(&peer::request(2, &server.key(), "nothing", Response::Target)[..20]).unwrap();
    let mut silent = peer::connect(&server.orb);
    serve_during(&lane, || {
        assert_eq!(slow.read(&mut [0]).unwrap(), 0, "closed");
        assert_eq!(peer::message(&mut silent).unwrap()[7], 5, "a farewell");
    });
}

#[test]
fn a_request_of_fixed_size_in_an_order_allocates_nothing() {
    let (server, lane) = owned(AtOnce, ServerLimits::default());
    let mut stream = peer::connect(&server.orb);
    let mut call = || {
        server.send(&mut stream, [2]);
        while !wait(&lane) {}
        let counted = allocation_counter::measure(|| while lane.turn().messages == 0 {});
        assert_eq!(replies(&mut stream, 1), [2]);
        counted.count_total
    };
    (0..20).for_each(|_| _ = call());
    assert_eq!((0..50).map(|_| call()).sum::<u64>(), 0);
}
