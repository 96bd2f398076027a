//! Distributable threads: their segments, their way through servants, and their cancellation.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use hyoshi_model::Span;
use hyoshi_orb::rt::threads::{self, DistributableThread, ThreadLocation, ThreadStatus};
use hyoshi_orb::rt::{self, CallTiming, RequestTiming, ThreadId};
use hyoshi_orb::{
    ByteOrder, Claims, Completed, Decode, Decoder, Encoder, LaneOptions, Orb, OrbBuilder, Order, OrderedRequest,
    Reference, ServerLimits, SystemException, SystemKind, minor,
};
use hyoshi_wire::giop::{
    CONTEXT_RT_SCHEDULING, ReplyStatus, RequestHeader, Response, ServiceContext, Target, cancel_request,
};

use crate::peer;
use crate::said::Said;
use crate::tracking::*;

/// How long anything that must happen may take.
const PATIENCE: Duration = Duration::from_secs(30);

type Body = Box<dyn Fn(u32) -> Result<(), SystemException> + Send + Sync>;

/// Runs this for each request, with the argument of `locate`.
struct Runs(Body);

impl Named for Runs {
    fn name(&self) -> Result<String, SystemException> {
        Ok(String::new())
    }
}

impl Tracker for Runs {
    fn locate(&self, id: u32) -> Result<Position, LocateError> {
        Ok((self.0)(id).map(|()| Position::default())?)
    }
    fn hint(&self, _: &str, _: &[u8]) -> Result<(), SystemException> {
        (self.0)(0)
    }
    fn echo(&self, raw: &[u8]) -> Result<Vec<u8>, SystemException> {
        Ok(raw.to_vec())
    }
    fn nothing(&self) -> Result<(), SystemException> {
        (self.0)(0)
    }
    fn swap(&self, _: &mut Position) -> Result<(i32, String), SystemException> {
        Ok((0, String::new()))
    }
    fn subscribe(&self, _: Option<&CallbackStub>) -> Result<(), SystemException> {
        Ok(())
    }
}

/// An ORB with a servant, reached over a socket, also from this process.
struct Server {
    orb: Orb,
    tracker: TrackerStub,
}

fn serve_with(builder: OrbBuilder, run: impl Fn(u32) -> Result<(), SystemException> + Send + Sync + 'static) -> Server {
    let orb = builder.collocation(false).listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    let servant = Arc::new(Runs(Box::new(run)));
    let tracker = orb.adapter("a").build().unwrap().activate::<dyn Tracker>(servant).unwrap();
    orb.ready();
    Server { orb, tracker }
}

fn serve(run: impl Fn(u32) -> Result<(), SystemException> + Send + Sync + 'static) -> Server {
    serve_with(Orb::builder(), run)
}

fn client(server: &Server) -> (Orb, TrackerStub) {
    let orb = Orb::client().unwrap();
    let stub = orb.resolve_unchecked::<dyn Tracker>(&server.tracker.ior().to_string()).unwrap();
    (orb, stub)
}

/// Runs until it is cancelled.
fn run_on() -> Result<(), SystemException> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        threads::check()?;
        thread::yield_now();
    }
    panic!("it was not cancelled")
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "never: {what}");
        thread::yield_now();
    }
}

fn wait_for_end(id: ThreadId) {
    wait_until("the thread ends everywhere", || threads::lookup(id).is_none());
}

fn within(millis: u64) -> Option<CallTiming> {
    Some(CallTiming { within: Some(Span::from_millis(millis)), importance: 3, ..CallTiming::default() })
}

fn code<R: std::fmt::Debug>(outcome: Result<R, SystemException>) -> (SystemKind, u32, Completed) {
    let SystemException { kind, minor, completed, .. } = outcome.unwrap_err();
    (kind, minor, completed)
}

fn is_cancelled<R: std::fmt::Debug>(outcome: Result<R, SystemException>) -> Completed {
    let (kind, minor, completed) = code(outcome);
    assert_eq!((kind, minor), (SystemKind::ThreadCancelled, minor::CANCELLED));
    completed
}

const NO: Completed = Completed::No;

#[test]
fn segments_nest_with_their_parameters_and_the_thread_ends_with_the_outermost() {
    assert_eq!((threads::id(), rt::timing()), (None, None));
    threads::begin_scheduling_segment("outer", within(50)).unwrap();
    let (id, outer) = (threads::id().unwrap(), rt::timing().unwrap());
    assert_eq!((outer.deadline - outer.origin, outer.importance, outer.thread), (50_000_000, 3, id));
    threads::begin_scheduling_segment("inner", None).unwrap();
    assert_eq!(threads::current_scheduling_segment_names(), ["outer", "inner"]);
    assert_eq!(rt::timing().unwrap().deadline, outer.deadline, "it inherits");
    threads::update_scheduling_segment("inner", CallTiming { importance: 9, ..CallTiming::default() }).unwrap();
    assert_eq!((rt::timing().unwrap().importance, threads::id()), (9, Some(id)));
    rt::with_timing(CallTiming::default(), || assert_eq!(rt::timing().unwrap().thread, id));
    threads::end_scheduling_segment("inner").unwrap();
    assert_eq!((rt::timing().unwrap().deadline, rt::timing().unwrap().importance), (outer.deadline, 3));
    let handle = threads::lookup(id).unwrap();
    assert_eq!(handle.location(), ThreadLocation::Here(vec!["outer".to_owned()]));
    threads::end_scheduling_segment("").unwrap();
    assert_eq!((threads::id(), rt::timing(), handle.state()), (None, None, ThreadStatus::Ended));
    assert!(threads::lookup(id).is_none());
    assert_eq!(code(handle.cancel()), (SystemKind::BadInvOrder, minor::THREAD_ENDED, NO));
}

#[test]
fn an_orb_of_untracked_threads_serves_their_requests_with_id_and_timing_alone() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = seen.clone();
    let server = serve_with(Orb::builder().untracked_threads(), move |_| {
        let timing = rt::timing().unwrap();
        sees.lock().unwrap().push((threads::id(), timing.thread, timing.importance));
        Ok(())
    });
    let (_client, stub) = client(&server);
    let segment = threads::segment("call", within(10_000)).unwrap();
    stub.nothing().unwrap();
    let id = threads::id().unwrap();
    assert_eq!(*seen.lock().unwrap(), [(None, id, 3)]);
    segment.end().unwrap();
}

#[test]
fn segments_in_the_wrong_order_past_deadlines_and_deep_nesting_are_errors_that_change_nothing() {
    let none = (SystemKind::BadInvOrder, minor::NO_SEGMENT, NO);
    assert_eq!(code(threads::end_scheduling_segment("a")), none);
    assert_eq!(code(threads::update_scheduling_segment("a", CallTiming::default())), none);
    let past = (SystemKind::BadParam, minor::DEADLINE_PAST, NO);
    assert_eq!(code(threads::begin_scheduling_segment("a", within(0))), past);
    assert_eq!(threads::id(), None);
    threads::begin_scheduling_segment("a", None).unwrap();
    let id = threads::id().unwrap();
    threads::begin_scheduling_segment("b", within(5)).unwrap();
    let before = rt::timing().unwrap().deadline;
    let other = (SystemKind::BadParam, minor::SEGMENT_NAME, NO);
    assert_eq!(code(threads::end_scheduling_segment("a")), other);
    assert_eq!(code(threads::update_scheduling_segment("a", CallTiming::default())), other);
    assert_eq!(code(threads::update_scheduling_segment("b", within(0).unwrap())), past);
    assert_eq!((rt::timing().unwrap().deadline, threads::id()), (before, Some(id)));
    (2..threads::SEGMENTS).for_each(|_| threads::begin_scheduling_segment("c", None).unwrap());
    let deep = (SystemKind::ImpLimit, minor::SEGMENT_LIMIT, NO);
    assert_eq!(code(threads::begin_scheduling_segment("d", within(1))), deep);
    assert_eq!(rt::timing().unwrap().deadline, before);
    (0..threads::SEGMENTS).for_each(|_| threads::end_scheduling_segment("").unwrap());
    assert_eq!(threads::id(), None);
}

#[test]
fn a_guard_ends_its_segment_and_those_within_it() {
    let outer = threads::segment("outer", within(50)).unwrap();
    let inner = threads::segment("inner", None).unwrap();
    assert_eq!(code(outer.update(CallTiming::default())).1, minor::NO_SEGMENT);
    inner.update(CallTiming { importance: 8, ..CallTiming::default() }).unwrap();
    let (kind, minor, _) = code(outer.end());
    assert_eq!((kind, minor, threads::id()), (SystemKind::BadInvOrder, minor::NO_SEGMENT, None));
    drop(inner);
    let caught = std::panic::catch_unwind(|| {
        let _segment = threads::segment("panics", None);
        std::panic::resume_unwind(Box::new(()));
    });
    assert_eq!((caught.is_err(), threads::id(), rt::timing()), (true, None, None));
}

#[test]
fn a_thread_keeps_its_id_in_servants_whose_segments_are_their_own() {
    let (seen, heard) = channel();
    let seen = Mutex::new(seen);
    let last = serve(move |_| {
        let segment = threads::segment("last", within(5))?;
        let names = threads::current_scheduling_segment_names();
        seen.lock().unwrap().send((threads::id(), rt::timing().unwrap(), names)).unwrap();
        segment.end()
    });
    let (_orb, next) = client(&last);
    let first = serve(move |_| next.nothing());
    let (_orb, tracker) = client(&first);
    let segment = threads::segment("root", within(5_000)).unwrap();
    let (id, own) = (threads::id(), rt::timing().unwrap());
    tracker.nothing().unwrap();
    let (there, timing, names) = heard.recv().unwrap();
    assert_eq!((there, timing.thread, names), (id, id.unwrap(), vec!["last".to_owned()]));
    assert!(timing.deadline < own.deadline);
    assert_eq!(rt::timing().unwrap().deadline, own.deadline);
    segment.end().unwrap();
    wait_for_end(id.unwrap());
}

#[test]
fn a_segment_that_a_servant_leaves_open_is_an_error_of_its_request() {
    let server = serve(|leaves| {
        threads::begin_scheduling_segment("left", within(5))?;
        if leaves > 0 { Ok(()) } else { threads::end_scheduling_segment("left") }
    });
    let (_orb, tracker) = client(&server);
    let open = (SystemKind::BadInvOrder, minor::SEGMENT_OPEN, Completed::Yes);
    let locate = |leaves| tracker.locate(leaves).map(drop).map_err(system);
    assert_eq!(code(locate(1)), open, "a thread that began in the servant");
    locate(0).unwrap();
    let segment = threads::segment("root", None).unwrap();
    let id = threads::id().unwrap();
    assert_eq!(code(locate(1)), open, "one that arrived");
    locate(0).unwrap();
    segment.end().unwrap();
    wait_for_end(id);
}

fn system(error: LocateError) -> SystemException {
    match error {
        LocateError::System(exception) => exception,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_scheduling_point_of_a_cancelled_thread_fails_and_it_still_ends() {
    let server = serve(|_| Ok(()));
    let (_orb, tracker) = client(&server);
    threads::begin_scheduling_segment("a", None).unwrap();
    threads::begin_scheduling_segment("b", None).unwrap();
    let own = threads::current().unwrap();
    thread::spawn({
        let own = own.clone();
        move || own.cancel().unwrap()
    })
    .join()
    .unwrap();
    own.cancel().unwrap();
    assert_eq!(own.state(), ThreadStatus::Cancelled);
    assert_eq!(is_cancelled(threads::begin_scheduling_segment("c", None)), NO);
    assert_eq!(is_cancelled(threads::update_scheduling_segment("b", CallTiming::default())), NO);
    assert_eq!(is_cancelled(threads::check()), NO);
    assert_eq!(is_cancelled(tracker.nothing()), NO);
    assert_eq!(is_cancelled(tracker.hint("", &[])), NO);
    assert_eq!(is_cancelled(tracker.nothing_async().wait()), NO);
    assert_eq!(is_cancelled(threads::spawn("d", None, || {})), NO);
    assert_eq!(threads::current_scheduling_segment_names(), ["a", "b"]);
    is_cancelled(threads::end_scheduling_segment("b"));
    is_cancelled(threads::end_scheduling_segment("a"));
    assert_eq!((threads::id(), own.state()), (None, ThreadStatus::Ended));
    threads::check().unwrap();
}

/// Two servers behind each other; the last runs until it is cancelled and counts that. Both have one thread, which is
/// then busy.
struct Chain {
    first: Server,
    _last: Server,
    _between: Orb,
    at_head: Mutex<std::sync::mpsc::Receiver<()>>,
    cancelled: Arc<AtomicU32>,
}

fn lane_of_one() -> OrbBuilder {
    Orb::builder().lane(LaneOptions { threads: 1, ..LaneOptions::default() })
}

fn chain() -> Chain {
    let (arrives, at_head) = channel();
    let (arrives, cancelled) = (Mutex::new(arrives), Arc::new(AtomicU32::new(0)));
    let counted = cancelled.clone();
    let last = serve_with(lane_of_one(), move |_| {
        arrives.lock().unwrap().send(()).unwrap();
        let outcome = run_on();
        counted.fetch_add(1, Ordering::SeqCst);
        outcome
    });
    let (between, next) = client(&last);
    let first = serve_with(lane_of_one(), move |_| {
        let _segment = threads::segment("middle", None)?;
        next.nothing()
    });
    Chain { first, _last: last, _between: between, at_head: Mutex::new(at_head), cancelled }
}

/// Starts a thread that runs this in a segment; returns its handle.
fn root(
    run: impl FnOnce() -> Result<(), SystemException> + Send + 'static,
) -> (DistributableThread, thread::JoinHandle<Result<(), SystemException>>) {
    let (to, from): (Sender<DistributableThread>, _) = channel();
    let joined = thread::spawn(move || {
        let segment = threads::segment("root", None).unwrap();
        to.send(threads::current().unwrap()).unwrap();
        let outcome = run();
        let ended = segment.end();
        let is_cancelled = outcome.is_err_and(|exception| exception.kind == SystemKind::ThreadCancelled);
        assert!(!is_cancelled || ended.is_err(), "the segment of a cancelled thread ends with the exception");
        outcome.and(ended)
    });
    (from.recv().unwrap(), joined)
}

#[test]
fn a_cancel_reaches_the_head_two_servers_away_while_all_lanes_are_busy() {
    let chain = chain();
    let (_orb, tracker) = client(&chain.first);
    for count in 1..=5 {
        let calls = tracker.clone();
        let (handle, joined) = root(move || calls.nothing());
        chain.at_head.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        wait_until(
            "its head is known to be away",
            || matches!(handle.location(), ThreadLocation::Away(Some(_), names) if names == ["root"]),
        );
        handle.cancel().unwrap();
        assert_eq!(is_cancelled(joined.join().unwrap()), Completed::Maybe);
        assert_eq!(chain.cancelled.load(Ordering::SeqCst), count);
        wait_for_end(handle.id());
    }
    // Both lanes serve on.
    let _ = chain.first.tracker.within(Span::from_secs(20)).name().unwrap();
}

#[test]
fn a_cancel_in_the_middle_unwinds_to_the_root_though_the_servant_swallows_the_exception() {
    let (to, from) = channel();
    let to = Mutex::new(to);
    let last = serve(|_| run_on());
    let (_orb, next) = client(&last);
    let middle = serve(move |_| {
        to.lock().unwrap().send(threads::current().unwrap()).unwrap();
        let _ = next.nothing();
        Ok(())
    });
    let (_orb, tracker) = client(&middle);
    let (handle, joined) = root(move || tracker.nothing());
    let in_the_middle: DistributableThread = from.recv_timeout(PATIENCE).unwrap();
    assert_eq!(in_the_middle.id(), handle.id());
    wait_until("the head is away", || matches!(in_the_middle.location(), ThreadLocation::Away(..)));
    in_the_middle.cancel().unwrap();
    assert_eq!(is_cancelled(joined.join().unwrap()), Completed::Yes);
    assert_eq!((handle.state(), in_the_middle.state()), (ThreadStatus::Ended, ThreadStatus::Ended));
    wait_for_end(handle.id());
}

#[test]
fn a_cancel_reaches_oneways_and_asynchronous_calls() {
    let (to, from) = channel();
    let to = Mutex::new(to);
    let server = serve(move |_| {
        to.lock().unwrap().send(threads::id().unwrap()).unwrap();
        let outcome = run_on();
        to.lock().unwrap().send(ThreadId::NONE).unwrap();
        outcome
    });
    let (_orb, tracker) = client(&server);
    let segment = threads::segment("root", None).unwrap();
    let own = threads::current().unwrap();
    tracker.hint("", &[]).unwrap();
    assert_eq!(from.recv_timeout(PATIENCE).unwrap(), own.id());
    let pending = tracker.nothing_async();
    assert_eq!(from.recv_timeout(PATIENCE).unwrap(), own.id());
    own.cancel().unwrap();
    is_cancelled(pending.wait());
    assert!((0..2).all(|_| from.recv_timeout(PATIENCE).unwrap().is_none()));
    is_cancelled(segment.end());
    wait_for_end(own.id());
}

#[test]
fn a_spawned_thread_has_an_id_and_segment_of_its_own_and_inherits_parameters() {
    let (to, from) = channel();
    let segment = threads::segment("root", within(9_000)).unwrap();
    let own = threads::id().unwrap();
    let spawned = threads::spawn("worker", None, move || {
        to.send((threads::id().unwrap(), rt::timing().unwrap(), threads::current_scheduling_segment_names())).unwrap();
        let _ = run_on();
    })
    .unwrap();
    let (id, timing, names) = from.recv_timeout(PATIENCE).unwrap();
    assert!(id == spawned.id() && id != own && id.origin == own.origin);
    assert_eq!(
        (timing.thread, timing.deadline, names),
        (id, rt::timing().unwrap().deadline, vec!["worker".to_owned()])
    );
    segment.end().unwrap();
    threads::lookup(id).unwrap().cancel().unwrap();
    wait_for_end(id);
    assert_eq!(spawned.state(), ThreadStatus::Ended);
}

/// A request with this thread, as a whole message.
fn request_of(id: u32, key: &[u8], thread: Option<ThreadId>) -> Vec<u8> {
    let timing =
        RequestTiming { clock: 1, deadline: u64::MAX, thread: thread.unwrap_or_default(), ..Default::default() };
    let data = timing.thread_octets();
    let context = [ServiceContext { tag: CONTEXT_RT_SCHEDULING, data: &data }];
    let contexts = if thread.is_some() { &context[..] } else { &[] };
    let mut to = Encoder::new(ByteOrder::Big);
    let (target, response) = (Target::Key(key), Response::Target);
    RequestHeader { id, response, target, operation: "nothing", contexts }
        .begin(&mut to)
        .unwrap()
        .end(&mut to)
        .unwrap();
    to.into_bytes()
}

fn cancel_of(id: u32) -> Vec<u8> {
    let mut to = Encoder::new(ByteOrder::Big);
    to.speak(hyoshi_orb::Version::V1_2, Default::default());
    cancel_request(id, &mut to).unwrap();
    to.into_bytes()
}

/// The standard exception of a reply.
fn raised(reply: &[u8]) -> Option<SystemException> {
    let status = u32::from_ne_bytes(reply[16..20].try_into().unwrap());
    if status == ReplyStatus::NoException as u32 {
        return None;
    }
    assert_eq!(status, ReplyStatus::SystemException as u32);
    Some(SystemException::decode(&mut Decoder::new(&reply[24..], ByteOrder::NATIVE)).unwrap())
}

fn key_of(server: &Server) -> Vec<u8> {
    let ior = AsRef::<Reference<dyn Tracker>>::as_ref(&server.tracker).ior().clone();
    ior.iiop().next().unwrap().unwrap().key.to_vec()
}

/// A server whose requests pass their thread on and run until they are cancelled.
fn runs_on() -> (Server, Mutex<std::sync::mpsc::Receiver<DistributableThread>>) {
    let (to, from) = channel();
    let to = Mutex::new(to);
    let server = serve(move |_| {
        let _segment = threads::segment("foreign", None)?;
        to.lock().unwrap().send(threads::current().unwrap()).unwrap();
        run_on()
    });
    (server, Mutex::new(from))
}

#[test]
fn a_request_without_a_context_starts_a_thread_that_its_own_client_alone_can_cancel() {
    let (server, from) = runs_on();
    let key = key_of(&server);
    let (mut own, mut other) = (peer::connect(&server.orb), peer::connect(&server.orb));
    own.write_all(&request_of(8, &key, None)).unwrap();
    let started = from.lock().unwrap().recv_timeout(PATIENCE).unwrap();
    assert_eq!(started.location(), ThreadLocation::Here(vec!["foreign".to_owned()]));
    // Of another client, another request, and the same twice.
    other.write_all(&cancel_of(8)).unwrap();
    own.write_all(&[cancel_of(9), cancel_of(7)].concat()).unwrap();
    // The other connection is read on.
    other.write_all(&request_of(2, b"nonsense", None)).unwrap();
    assert!(raised(&peer::message(&mut other).unwrap()).is_some());
    assert_eq!(started.state(), ThreadStatus::Active);
    own.write_all(&[cancel_of(8), cancel_of(8)].concat()).unwrap();
    let exception = raised(&peer::message(&mut own).unwrap()).unwrap();
    is_cancelled::<()>(Err(exception));
    assert_eq!(started.state(), ThreadStatus::Ended);
    // A cancel of a request that has ended.
    own.write_all(&[cancel_of(8), request_of(10, b"nonsense", None)].concat()).unwrap();
    assert_eq!(raised(&peer::message(&mut own).unwrap()).unwrap().kind, SystemKind::ObjectNotExist);
}

#[test]
fn a_request_that_arrives_together_with_its_cancel_does_not_run() {
    let (server, from) = runs_on();
    let mut client = peer::connect(&server.orb);
    let key = key_of(&server);
    for id in [2, 4, 6] {
        let thread = ThreadId { origin: 78, number: u64::from(id) };
        client.write_all(&[request_of(id, &key, Some(thread)), cancel_of(id)].concat()).unwrap();
        let exception = raised(&peer::message(&mut client).unwrap()).unwrap();
        // If the kernel delivered them one after the other, it ran.
        let ran = from.lock().unwrap().try_recv().is_ok();
        assert_eq!(is_cancelled::<()>(Err(exception)), if ran { Completed::Maybe } else { NO });
        assert!(threads::lookup(thread).is_none());
    }
}

#[test]
fn threads_of_a_client_that_has_ended_are_cancelled() {
    let (server, from) = runs_on();
    let thread = ThreadId { origin: 77, number: 1 };
    for thread in [Some(thread), None] {
        let mut client = peer::connect(&server.orb);
        client.write_all(&request_of(2, &key_of(&server), thread)).unwrap();
        let started = from.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        assert!(thread.is_none_or(|thread| thread == started.id()));
        drop(client);
        wait_until("it is cancelled", || started.state() == ThreadStatus::Ended);
    }
}

#[test]
fn forged_ids_and_ids_of_threads_that_are_here_are_refused() {
    let server = serve(|_| Ok(()));
    let mut client = peer::connect(&server.orb);
    let key = key_of(&server);
    let mut call = |thread| {
        client.write_all(&request_of(2, &key, Some(thread))).unwrap();
        raised(&peer::message(&mut client).unwrap())
    };
    let segment = threads::segment("here", None).unwrap();
    let own = threads::id().unwrap();
    let refused = SystemKind::BadParam.not_done(minor::THREAD_ID);
    assert_eq!(call(own), Some(refused), "its head is in this process");
    assert_eq!(call(ThreadId { number: u64::MAX, ..own }), Some(refused), "never issued");
    // Of another process: nothing contradicts it.
    assert_eq!(call(ThreadId { origin: own.origin ^ 1, ..own }), None);
    segment.end().unwrap();
    assert_eq!(call(own), None, "it may come back with a oneway");
}

/// Keeps requests until they are taken.
#[derive(Default)]
struct Held(Mutex<Vec<OrderedRequest>>);

impl Order for Held {
    fn arrived(&self, _: u32, request: OrderedRequest) {
        self.0.lock().unwrap().push(request);
    }
}

#[test]
fn a_request_that_is_cancelled_while_it_waits_for_its_turn_does_not_run() {
    let held = Arc::new(Held::default());
    let ran = Arc::new(AtomicBool::new(false));
    let (order, runs) = (held.clone(), ran.clone());
    let orb = Orb::builder().collocation(false).order(order, 4).listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    let servant = Arc::new(Runs(Box::new(move |_| {
        runs.store(true, Ordering::SeqCst);
        Ok(())
    })));
    let adapter = orb.adapter("a").build().unwrap();
    let tracker = adapter.activate_ordered::<dyn Tracker>("x", servant, 1).unwrap();
    orb.ready();
    let (_orb, tracker) = client(&Server { orb: orb.clone(), tracker });
    let (handle, joined) = root(move || tracker.nothing());
    wait_until("it waits", || held.0.lock().unwrap().len() == 1);
    assert!(!held.0.lock().unwrap()[0].is_cancelled());
    wait_until("the call is known", || matches!(handle.location(), ThreadLocation::Away(..)));
    handle.cancel().unwrap();
    wait_until("it is cancelled", || held.0.lock().unwrap()[0].is_cancelled());
    held.0.lock().unwrap().remove(0).run();
    assert_eq!(is_cancelled(joined.join().unwrap()), NO);
    assert!(!ran.load(Ordering::SeqCst));
    wait_for_end(handle.id());
}

#[test]
fn queued_requests_of_one_client_leave_threads_for_other_clients_and_for_roots() {
    let path = std::env::temp_dir().join(format!("hyoshi-orb-parts-{}.sock", std::process::id()));
    let held = Arc::new(Held::default());
    let limits = ServerLimits { in_flight: threads::PARTS as u32, ..ServerLimits::default() };
    let builder = Orb::builder().collocation(false).server_limits(limits).order(held.clone(), 2 * threads::PARTS);
    let builder = builder.listen("iiop://127.0.0.1:0").unwrap().listen(&format!("unix:{}", path.display())).unwrap();
    let orb = builder.build().unwrap();
    let servant = Arc::new(Runs(Box::new(|_| Ok(()))));
    let tracker = orb.adapter("a").build().unwrap().activate_ordered::<dyn Tracker>("x", servant, 1).unwrap();
    orb.ready();
    let server = Server { orb, tracker };
    let (key, mut other) = (key_of(&server), peer::connect(&server.orb));
    let thread = |origin, number| Some(ThreadId { origin, number });
    let mut flood = UnixStream::connect(&path).unwrap();
    flood.set_read_timeout(Some(PATIENCE)).unwrap();
    let sent = threads::PARTS as u32 / 2;
    for number in 0..sent {
        flood.write_all(&request_of(2 * number, &key, thread(71, u64::from(number)))).unwrap();
    }
    let refused = SystemKind::ImpLimit.not_done(minor::THREAD_LIMIT);
    assert_eq!(raised(&peer::message(&mut flood).unwrap()), Some(refused));
    assert!(held.0.lock().unwrap().len() < threads::PARTS * 3 / 8 + 1);
    // A root, and a thread of another client.
    threads::segment("root", None).unwrap().end().unwrap();
    other.write_all(&request_of(2, &key, thread(72, 1))).unwrap();
    wait_until("it waits", || threads::lookup(thread(72, 1).unwrap()).is_some());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                std::mem::take(&mut *held.0.lock().unwrap()).into_iter().for_each(OrderedRequest::run);
                thread::yield_now();
            }
        });
        assert_eq!(raised(&peer::message(&mut other).unwrap()), None);
        // A client that does not read is not read either.
        (1..sent).for_each(|_| drop(peer::message(&mut flood).unwrap()));
        over.store(true, Ordering::SeqCst);
    });
    // What it had is free again.
    flood.write_all(&request_of(2 * sent, &key, thread(73, 1))).unwrap();
    wait_until("it waits", || threads::lookup(thread(73, 1).unwrap()).is_some());
    held.0.lock().unwrap().clear();
}

#[test]
fn a_cancel_reaches_a_servant_over_a_connection_that_carries_calls_both_ways() {
    let (to, from) = channel();
    let to = Mutex::new(to);
    let server = serve_with(lane_of_one().accept_bidirectional(Claims::Own), move |_| {
        to.lock().unwrap().send(()).unwrap();
        run_on()
    });
    let orb = Orb::builder().offer_bidirectional().build().unwrap();
    let tracker = orb.resolve_unchecked::<dyn Tracker>(&server.tracker.ior().to_string()).unwrap();
    tracker.name().unwrap();
    for _ in 0..3 {
        let calls = tracker.clone();
        let (handle, joined) = root(move || calls.nothing());
        from.recv_timeout(PATIENCE).unwrap();
        handle.cancel().unwrap();
        is_cancelled(joined.join().unwrap());
        wait_for_end(handle.id());
    }
}

#[test]
fn a_call_of_a_cancelled_thread_ends_though_the_server_never_answers() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let orb = Orb::client().unwrap();
    let reference = peer::reference(&listener, "IDL:Tracking/Tracker:1.0").to_string();
    let silent = orb.resolve_unchecked::<dyn Tracker>(&reference).unwrap();
    let (handle, joined) = root(move || {
        let pending = silent.nothing_async();
        let outcome = silent.nothing();
        assert_eq!(is_cancelled(pending.wait()), Completed::Maybe);
        outcome
    });
    wait_until("it waits", || matches!(handle.location(), ThreadLocation::Away(..)));
    let _connections: Vec<_> = (0..2).map(|_| listener.accept().unwrap()).collect();
    handle.cancel().unwrap();
    assert_eq!(is_cancelled(joined.join().unwrap()), Completed::Maybe);
    wait_for_end(handle.id());
}

/// Numbers that look random (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Waits without a system call, a few microseconds long.
fn pause(micros: u64) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_micros(micros) {
        std::hint::spin_loop();
    }
}

/// Cancels so many threads at random moments of their way through two servers. Returns how many were cancelled on
/// their way, and how many had ended before.
fn cancel_at_random(count: u32, seed: u64) -> (u32, u32) {
    let place = |name: &str| {
        let path = std::env::temp_dir().join(format!("hyoshi-threads-{name}-{}-{seed}", std::process::id()));
        Orb::builder().collocation(false).listen(&format!("unix:{}", path.display())).unwrap()
    };
    let serve = |name: &str, run: Body| {
        let orb = place(name).build().unwrap();
        let tracker = orb.adapter("a").build().unwrap().activate::<dyn Tracker>(Arc::new(Runs(run))).unwrap();
        orb.ready();
        Server { orb, tracker }
    };
    let last = serve(
        "last",
        Box::new(|steps| {
            for step in 0..steps {
                let segment = threads::segment("step", within(u64::from(step) + 1))?;
                pause(20);
                segment.end()?;
            }
            Ok(())
        }),
    );
    let (_between, next) = client(&last);
    let first = serve(
        "first",
        Box::new(move |steps| {
            let _segment = threads::segment("middle", None)?;
            next.locate(steps).map_err(system)?;
            next.hint("", &[])?;
            threads::check()
        }),
    );
    let (_orb, tracker) = client(&first);
    let mut random = Random(seed);
    let (mut cancelled, mut ended, mut ids) = (0, 0, Vec::new());
    for _ in 0..count {
        let (calls, steps) = (tracker.clone(), random.below(12) as u32);
        let (handle, joined) = root(move || {
            for _ in 0..2 {
                calls.locate(steps).map_err(system)?;
            }
            Ok(())
        });
        pause(random.below(700));
        let late = handle.cancel().is_err();
        match joined.join().unwrap() {
            Ok(()) if late => ended += 1,
            Ok(()) => panic!("a cancel was lost"),
            outcome => {
                is_cancelled(outcome);
                assert!(!late);
                cancelled += 1;
            }
        }
        ids.push(handle.id());
    }
    ids.into_iter().for_each(wait_for_end);
    // Every server still serves, and no segment is left on its threads.
    let segment = threads::segment("after", None).unwrap();
    (0..20).for_each(|_| assert!(tracker.locate(1).is_ok()));
    segment.end().unwrap();
    (cancelled, ended)
}

#[test]
fn threads_that_are_cancelled_at_random_moments_leave_nothing_anywhere() {
    let (cancelled, ended) = cancel_at_random(300, 0x1234_5678_9abc_def1);
    assert_eq!(cancelled + ended, 300);
    assert!(cancelled > 30, "{cancelled} of 300");
}

#[test]
#[ignore = "long: 10,000 cancels"]
fn ten_thousand_threads_that_are_cancelled_at_random_moments_leave_nothing_anywhere() {
    let (cancelled, ended) = cancel_at_random(10_000, 0x9e37_79b9_7f4a_7c15);
    println!("{cancelled} cancelled on their way, {ended} had ended");
    assert_eq!(cancelled + ended, 10_000);
    wait_until("no thread is left", || threads::count() == 0);
}

const SERVES: &str = "HYOSHI_TEST_THREADS";

/// Not a test of its own: a server in a process of its own, whose requests run until they are cancelled.
#[test]
fn serves_threads_if_it_is_asked_to() {
    if std::env::var_os(SERVES).is_some() {
        let server = serve(|_| {
            let _segment = threads::segment("lost", None)?;
            println!("at work");
            run_on()
        });
        println!("reference {}", server.tracker.ior());
        let _ = std::io::stdin().read_line(&mut String::new());
    }
}

/// Kills the server of a thread's head so often, in the middle of a segment.
fn kill_heads(times: u32) {
    let middle_ends = Arc::new(AtomicU32::new(0));
    for time in 1..=times {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "threads::serves_threads_if_it_is_asked_to", "--nocapture"])
            .env(SERVES, "1")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let said = Said::by(child.stdout.take().unwrap());
        let reference = said.find("its reference", |line| Some(line.split_once("reference ")?.1.to_owned()));
        let orb = Orb::client().unwrap();
        let lost = orb.resolve_unchecked::<dyn Tracker>(reference.trim()).unwrap();
        let ends = middle_ends.clone();
        let middle = serve(move |_| {
            let segment = threads::segment("middle", None)?;
            let outcome = lost.nothing();
            ends.fetch_add(1, Ordering::SeqCst);
            segment.end()?;
            outcome
        });
        let (_orb, tracker) = client(&middle);
        let (handle, joined) = root(move || {
            let outcome = tracker.nothing();
            assert_eq!(threads::current_scheduling_segment_names(), ["root"]);
            // The thread itself goes on.
            threads::check().unwrap();
            assert_eq!(outcome.unwrap_err(), SystemKind::CommFailure.maybe_done(minor::LOST));
            Ok(())
        });
        said.find("at work", |line| line.contains("at work").then_some(()));
        child.kill().unwrap();
        let killed = Instant::now();
        joined.join().unwrap().unwrap();
        assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
        child.wait().unwrap();
        assert_eq!(middle_ends.load(Ordering::SeqCst), time);
        wait_for_end(handle.id());
    }
}

#[test]
fn a_server_that_is_killed_in_the_middle_of_a_segment_is_an_error_at_the_root() {
    kill_heads(3);
}

#[test]
#[ignore = "long: 50 processes"]
fn fifty_servers_that_are_killed_in_the_middle_of_a_segment_leave_nothing() {
    kill_heads(50);
    wait_until("no thread is left", || threads::count() == 0);
}

#[test]
fn calls_of_a_thread_allocate_nothing_at_the_client() {
    let server = serve(|_| Ok(()));
    let (_orb, tracker) = client(&server);
    let segment = threads::segment("root", within(60_000)).unwrap();
    let call = || {
        threads::begin_scheduling_segment("inner", within(50_000)).unwrap();
        tracker.nothing().unwrap();
        threads::end_scheduling_segment("inner").unwrap();
    };
    call();
    let counted = allocation_counter::measure(|| (0..50).for_each(|_| call()));
    assert_eq!(counted.count_total, 0);
    segment.end().unwrap();
}
