//! Clients that are slow without being bad, and such as are bad by being slow.

use crate::peer;
use crate::tracking;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};

use hyoshi_model::Span;
use hyoshi_orb::{LaneOptions, Orb, ServerLimits, SystemException, SystemKind, Timeouts, minor};
use hyoshi_wire::giop::Response;
use peer::{connect, id, message, reference, request};
use tracking::*;

/// What takes longer never comes to pass.
const PATIENCE: Duration = Duration::from_secs(60);

/// Calls end, whether they are answered or not.
fn patient() -> Timeouts {
    Timeouts { round_trip: Some(Span::from_secs(60)), ..Timeouts::default() }
}

/// Waits until so many have asked.
fn wait_for(asked: &AtomicUsize, many: usize) {
    let until = Instant::now() + PATIENCE;
    while asked.load(Ordering::SeqCst) < many {
        assert!(Instant::now() < until, "{} of {many} have come", asked.load(Ordering::SeqCst));
        std::thread::yield_now();
    }
}

/// What is done by another thread, whose end can be waited for with patience: a scope would wait for good.
fn aside<T: Send + 'static>(done: impl FnOnce() -> T + Send + 'static) -> mpsc::Receiver<T> {
    let (tell, told) = mpsc::sync_channel(1);
    std::thread::spawn(move || tell.send(done()));
    told
}

/// Has a name of some length, when so many have asked for it at once.
struct Long {
    length: usize,
    together: Option<Barrier>,
    asked: AtomicUsize,
}

impl Long {
    fn new(length: usize, together: Option<usize>) -> Arc<Long> {
        Arc::new(Long { length, together: together.map(Barrier::new), asked: AtomicUsize::new(0) })
    }
}

impl Named for Long {
    fn name(&self) -> Result<String, SystemException> {
        self.together.as_ref().map(Barrier::wait);
        self.asked.fetch_add(1, Ordering::SeqCst);
        Ok("x".repeat(self.length))
    }
}

fn serve(limits: ServerLimits, threads: usize, servant: Arc<dyn Named>) -> (Orb, NamedStub) {
    let lane = LaneOptions { threads, ..LaneOptions::default() };
    let builder = Orb::builder().collocation(false).timeouts(patient()).server_limits(limits).lane(lane);
    let orb = builder.listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let named = orb.adapter("a").build().unwrap().activate_as::<dyn Named>("x", servant).unwrap();
    (orb, named)
}

/// `count` requests of its name, not waiting for replies.
fn names(named: &NamedStub, count: u32) -> Vec<u8> {
    let key = named.ior().iiop().next().unwrap().unwrap().key.to_vec();
    (0..count).flat_map(|id| request(id, &key, "_get_name", Response::Target)).collect()
}

fn nothing_but(limits: ServerLimits) -> (Orb, TrackerStub) {
    let orb = Orb::builder()
        .collocation(false)
        .timeouts(patient())
        .server_limits(limits)
        .listen("iiop://127.0.0.1:0")
        .unwrap();
    let orb = orb.build().unwrap();
    orb.ready();
    let tracker = orb.adapter("a").build().unwrap().activate::<dyn Tracker>(Arc::new(Yard::default())).unwrap();
    (orb, tracker)
}

#[test]
fn large_replies_at_once_do_not_end_a_client_that_reads_slowly() {
    let servant = Long::new(2 << 20, Some(8));
    let (orb, named) = serve(ServerLimits::default(), 12, servant.clone());
    let mut stream = connect(&orb);
    stream.write_all(&names(&named, 8)).unwrap();
    wait_for(&servant.asked, 8);
    let mut ids: Vec<_> = (0..8)
        .map(|_| {
            let reply = message(&mut stream).expect("it is not closed");
            assert!(reply.len() > 2 << 20);
            id(&reply)
        })
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn who_does_not_take_replies_causes_no_more_of_them() {
    let servant = Long::new(1 << 20, None);
    let (orb, named) = serve(ServerLimits::default(), 4, servant.clone());
    let mut stream = connect(&orb);
    stream.write_all(&names(&named, 200)).unwrap();
    // Others are served meanwhile.
    let others = 50;
    for _ in 0..others {
        assert_eq!(named.name().unwrap().len(), 1 << 20);
    }
    let own = servant.asked.load(Ordering::SeqCst) - others;
    assert!((1..100).contains(&own), "{own} replies were made for somebody who reads none");
    let mut ids: Vec<_> = (0..200).map(|_| id(&message(&mut stream).expect("it is not closed"))).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..200).collect::<Vec<_>>());
}

#[test]
fn replies_that_wait_are_bounded_over_all_connections() {
    let servant = Long::new(8 << 20, None);
    let (orb, named) = serve(ServerLimits { backlog: 20 << 20, ..ServerLimits::default() }, 4, servant.clone());
    let mut streams: Vec<_> = (0..8).map(|_| connect(&orb)).collect();
    for stream in &mut streams {
        stream.write_all(&names(&named, 1)).unwrap();
    }
    // Whoever asks after them finds all of them behind, or in a thread's hands.
    wait_for(&servant.asked, 8);
    // It reads its replies, so connections that do not read are closed instead. Not while a thread still has replies in
    // hand, which are behind later than its own.
    let taken = (0..8).find_map(|_| named.name().ok());
    assert_eq!(taken.expect("it is served").len(), 8 << 20);
    let whole = streams.iter_mut().filter_map(message).count();
    assert!((1..8).contains(&whole), "{whole} of 8 were kept");
    assert_eq!(named.name().unwrap().len(), 8 << 20);
}

#[test]
fn a_message_that_comes_octet_by_octet_has_its_time_and_no_more() {
    let stalled = Span::from_secs(1);
    for pause in [Duration::from_millis(1), Duration::from_millis(150)] {
        let (orb, tracker) = nothing_but(ServerLimits { stalled, ..ServerLimits::default() });
        let mut stream = connect(&orb);
        stream.write_all(b"GIOP\x01\x02\x00\x00\x00\x10\x00\x00").unwrap();
        let begun = Instant::now();
        while stream.write_all(&[0]).is_ok() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it is never closed");
            std::thread::sleep(pause);
        }
        tracker.nothing().unwrap();
    }
}

#[test]
fn a_message_of_many_octets_has_more_time() {
    let limits = ServerLimits { stalled: Span::from_secs(3), slowest: 100, ..ServerLimits::default() };
    let (orb, tracker) = nothing_but(limits);
    let key = tracker.ior().iiop().next().unwrap().unwrap().key.to_vec();
    let mut echo = request(2, &key, "echo", Response::Target);
    let size = 40_000u32;
    echo.resize(echo.len().next_multiple_of(8), 0);
    echo.extend(size.to_be_bytes());
    echo.resize(echo.len() + size as usize, 7);
    let body = u32::try_from(echo.len() - 12).unwrap();
    echo[8..12].copy_from_slice(&body.to_be_bytes());
    let mut stream = connect(&orb);
    let mut parts = echo.chunks(100);
    stream.write_all(parts.next().unwrap()).unwrap();
    // Until one of as many parts, but of an octet each, is closed.
    let mut slower = connect(&orb);
    slower.write_all(&echo[..12]).unwrap();
    while slower.write_all(&[0]).is_ok() {
        stream.write_all(parts.next().expect("it is never closed")).unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    parts.for_each(|part| stream.write_all(part).unwrap());
    let reply = message(&mut stream).expect("it is not closed");
    assert!(reply.len() > 40_000);
    assert_eq!(stream.set_nonblocking(true).and_then(|()| stream.read(&mut [0])).unwrap_err().raw_os_error(), Some(11));
}

#[test]
fn shutdown_ends_although_a_servant_waits_for_a_peer_that_says_nothing() {
    struct Asks(NamedStub, mpsc::SyncSender<Result<String, SystemException>>);
    impl Named for Asks {
        fn name(&self) -> Result<String, SystemException> {
            let answer = self.0.name();
            self.1.send(answer.clone()).unwrap();
            answer
        }
    }
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let limits = ServerLimits { ending: Span::from_millis(300), ..ServerLimits::default() };
    let orb = Orb::builder().server_limits(limits).listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let (answer, answered) = mpsc::sync_channel(1);
    let asks = Asks(orb.stub::<dyn Named>(reference(&silent, "IDL:Tracking/Named:1.0")), answer);
    let named = orb.adapter("a").build().unwrap().activate::<dyn Named>(Arc::new(asks)).unwrap();
    let client = Orb::builder().timeouts(patient()).build().unwrap();
    let named = client.resolve_unchecked::<dyn Named>(&named.ior().to_string()).unwrap();
    let calling = aside(move || named.name());
    // The request of the servant has come: it does wait.
    let come = aside(move || {
        let (peer, _) = silent.accept().unwrap();
        peer.peek(&mut [0]).unwrap();
        (silent, peer)
    });
    let _silent = come.recv_timeout(PATIENCE).expect("the servant asks");
    let ended = aside(move || orb.shutdown());
    ended.recv_timeout(Duration::from_secs(30)).expect("shutdown ends");
    let lost = SystemKind::CommFailure.maybe_done(minor::LOST);
    assert_eq!(answered.recv_timeout(Duration::from_secs(30)).unwrap(), Err(lost));
    assert!(calling.recv_timeout(PATIENCE).unwrap().is_err());
}
