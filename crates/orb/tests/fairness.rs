//! Clients beside each other: no client takes the share of another, however it sends its requests.

use crate::peer;
use crate::tracking;

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hyoshi_orb::{LaneOptions, Orb, ServerLimits, SystemException};
use hyoshi_wire::giop::Response;
use peer::{connect, id, message, request};
use tracking::*;

/// How long anything that must come to pass may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs as long as it is told, and counts.
#[derive(Default)]
struct Takes {
    time: Duration,
    /// Requests stay until this is set.
    held: Option<Arc<AtomicBool>>,
    running: AtomicUsize,
    most: AtomicUsize,
    ran: AtomicUsize,
}

impl Named for Takes {
    fn name(&self) -> Result<String, SystemException> {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        thread::sleep(self.time);
        while self.held.as_ref().is_some_and(|held| held.load(Ordering::SeqCst)) {
            thread::sleep(Duration::from_millis(1));
        }
        self.running.fetch_sub(1, Ordering::SeqCst);
        self.ran.fetch_add(1, Ordering::SeqCst);
        Ok(String::new())
    }
}

struct Server {
    orb: Orb,
    servant: Arc<Takes>,
    named: NamedStub,
    key: Vec<u8>,
    tracker: TrackerStub,
}

fn serve(threads: usize, servant: Takes) -> Server {
    serve_within(ServerLimits::default(), threads, servant)
}

fn serve_within(limits: ServerLimits, threads: usize, servant: Takes) -> Server {
    let lane = LaneOptions { threads, ..LaneOptions::default() };
    let orb = Orb::builder().collocation(false).lane(lane).server_limits(limits);
    let orb = orb.listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    let servant = Arc::new(servant);
    let adapter = orb.adapter("a").build().unwrap();
    let named = adapter.activate::<dyn Named>(servant.clone()).unwrap();
    let tracker = adapter.activate::<dyn Tracker>(Arc::new(Yard::default())).unwrap();
    orb.ready();
    let key = named.ior().iiop().next().unwrap().unwrap().key.to_vec();
    Server { orb, servant, named, key, tracker }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "it never comes to pass: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The middle of the times, and the one that 99 of 100 do not exceed.
fn percentiles(times: &mut [Duration]) -> (Duration, Duration) {
    times.sort_unstable();
    (times[times.len() / 2], times[(times.len() * 99).div_ceil(100) - 1])
}

#[test]
fn a_client_that_pipelines_leaves_threads_to_others() {
    let held = Arc::new(AtomicBool::new(true));
    let server = serve(16, Takes { held: Some(held.clone()), ..Takes::default() });
    let mut flood = connect(&server.orb);
    let requests: Vec<u8> = (0..64).flat_map(|id| request(id, &server.key, "_get_name", Response::Target)).collect();
    flood.write_all(&requests).unwrap();
    // It has all that are lent, and those that tend long requests get it no more.
    wait_until("it has as many as are lent", || server.servant.running.load(Ordering::SeqCst) >= 14);
    let client = Orb::client().unwrap();
    let tracker = client.stub::<dyn Tracker>(server.tracker.ior().clone());
    let begun = Instant::now();
    for _ in 0..100 {
        tracker.within(hyoshi_model::Span::from_secs(20)).nothing().unwrap();
    }
    println!("100 calls beside it took {:?}", begun.elapsed());
    assert_eq!(server.servant.most.load(Ordering::SeqCst), 14, "of 16 threads");
    held.store(false, Ordering::SeqCst);
    let mut ids: Vec<_> = (0..64).map(|_| id(&message(&mut flood).expect("it is not closed"))).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..64).collect::<Vec<_>>());
}

/// Uses the CPU, and counts.
#[derive(Default)]
struct Spins(AtomicUsize);

impl Named for Spins {
    fn name(&self) -> Result<String, SystemException> {
        let until = hyoshi_os::own_cpu_time() + hyoshi_model::Span::from_micros(500);
        while hyoshi_os::own_cpu_time() < until {}
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(String::new())
    }
}

#[test]
fn threads_of_one_fifo_priority_leave_their_cpu_to_each_other() {
    let cpus = hyoshi_os::allowed_cpus();
    if cpus.len() < 2 {
        return crate::privileges::missing("a CPU beside the lane's");
    }
    if !crate::real_time::has_privilege() {
        return;
    }
    let lane = LaneOptions { threads: 4, policy: hyoshi_orb::ThreadPolicy::Fifo(40), ..LaneOptions::default() };
    let lane = LaneOptions { cpu: cpus.last().copied(), ..lane };
    let orb = Orb::builder().lane(lane).listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    let (adapter, spins) = (orb.adapter("a").build().unwrap(), Arc::new(Spins::default()));
    let named = adapter.activate::<dyn Named>(spins.clone()).unwrap();
    let tracker = adapter.activate::<dyn Tracker>(Arc::new(Yard::default())).unwrap();
    orb.ready();
    let key = named.ior().iiop().next().unwrap().unwrap().key.to_vec();
    let client = Orb::client().unwrap();
    let tracker = client.resolve_unchecked::<dyn Tracker>(&tracker.ior().to_string()).unwrap();
    tracker.nothing().unwrap();
    // Two clients send without waiting: there is always a request for a thread that looks for one. Nothing delays the
    // call beside them.
    let requests: Vec<u8> = (0..500).flat_map(|id| request(id, &key, "_get_name", Response::Target)).collect();
    let mut floods = [connect(&orb), connect(&orb)];
    let spun = spins.clone();
    let caller = hyoshi_os::Spawn::new("caller").policy(hyoshi_orb::ThreadPolicy::Fifo(40)).cpu(cpus[0]);
    let caller = caller.spawn(move || {
        floods.iter_mut().for_each(|flood| flood.write_all(&requests).unwrap());
        wait_until("a request ran", || spun.0.load(Ordering::SeqCst) > 0);
        tracker.within(hyoshi_model::Span::from_secs(20)).nothing().unwrap();
        (spun.0.load(Ordering::SeqCst), floods)
    });
    let (before, _floods) = caller.unwrap().join().unwrap();
    println!("{before} of 1000 requests ran before it");
    assert!(before < 500, "it waited until a flood was over: {before}");
}

#[test]
fn a_lane_of_few_threads_lends_them_all() {
    let held = Arc::new(AtomicBool::new(true));
    let server = serve(2, Takes { held: Some(held.clone()), ..Takes::default() });
    let mut flood = connect(&server.orb);
    let requests: Vec<u8> = (0..4).flat_map(|id| request(id, &server.key, "_get_name", Response::Target)).collect();
    flood.write_all(&requests).unwrap();
    wait_until("both run", || server.servant.running.load(Ordering::SeqCst) == 2);
    held.store(false, Ordering::SeqCst);
    (0..4).for_each(|_| assert!(message(&mut flood).is_some()));
}

#[test]
fn requests_that_came_in_one_read_are_not_all_served_before_another_connection() {
    // One thread: whoever has it keeps the others waiting.
    let server = serve(1, Takes { time: Duration::from_millis(5), ..Takes::default() });
    let mut flood = connect(&server.orb);
    let many: Vec<u8> = (0..200).flat_map(|id| request(id, &server.key, "_get_name", Response::None)).collect();
    flood.write_all(&many).unwrap();
    wait_until("the first has run", || server.servant.ran.load(Ordering::SeqCst) > 0);
    server.tracker.nothing().unwrap();
    let before = server.servant.ran.load(Ordering::SeqCst);
    println!("{before} of 200 were served before");
    assert!(before < 100, "{before} of 200 requests of another connection were served before");
}

#[test]
fn requests_of_clients_that_have_ended_are_dropped() {
    let held = Arc::new(AtomicBool::new(true));
    let server = serve(1, Takes { held: Some(held.clone()), ..Takes::default() });
    // Twelve in mid-call, one of which sends several; and a oneway, which is carried out whoever has ended.
    let mut clients: Vec<_> = (0..12).map(|_| connect(&server.orb)).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        let count = if at == 0 { 20 } else { 1 };
        let calls: Vec<u8> =
            (0..count).flat_map(|id| request(id, &server.key, "_get_name", Response::Target)).collect();
        client.write_all(&calls).unwrap();
        wait_until("the first one's runs", || server.servant.running.load(Ordering::SeqCst) == 1);
    }
    clients[11].write_all(&request(9, &server.key, "_get_name", Response::None)).unwrap();
    drop(clients);
    // Ticks see that the first one has ended, whose request runs.
    thread::sleep(Duration::from_millis(100));
    held.store(false, Ordering::SeqCst);
    server.named.name().unwrap();
    wait_until("the oneway was carried out", || server.servant.ran.load(Ordering::SeqCst) >= 3);
    assert_eq!(server.servant.ran.load(Ordering::SeqCst), 3, "of the dead, the request that ran and the oneway");
}

/// The connection of the dead is not read: as many of its requests run as may, the rest has been read or waits in the
/// socket.
#[test]
fn requests_of_a_client_that_has_ended_are_dropped_while_its_connection_is_not_read() {
    let held = Arc::new(AtomicBool::new(true));
    let limits = ServerLimits { in_flight: 2, ..ServerLimits::default() };
    let server = serve_within(limits, 8, Takes { held: Some(held.clone()), ..Takes::default() });
    let calls = |first: u32| -> Vec<u8> {
        (first..first + 40).flat_map(|id| request(id, &server.key, "_get_name", Response::Target)).collect()
    };
    // One disappears, the other only ends its side, which clients must not do.
    for ends in [|client: TcpStream| drop(client), |client: TcpStream| client.shutdown(Shutdown::Write).unwrap()] {
        let before = server.servant.ran.load(Ordering::SeqCst);
        held.store(true, Ordering::SeqCst);
        let mut client = connect(&server.orb);
        client.write_all(&calls(0)).unwrap();
        wait_until("as many run as may", || server.servant.running.load(Ordering::SeqCst) == 2);
        client.write_all(&calls(40)).unwrap();
        ends(client);
        // Ticks see that it has ended.
        thread::sleep(Duration::from_millis(100));
        held.store(false, Ordering::SeqCst);
        wait_until("both have run", || server.servant.ran.load(Ordering::SeqCst) >= before + 2);
        server.named.name().unwrap();
        assert_eq!(server.servant.ran.load(Ordering::SeqCst), before + 3, "of the dead, those that ran");
    }
}

/// Not a test of its own: callers of the next one, in a process that is killed.
#[test]
fn calls_until_it_is_killed_if_it_is_asked_to() {
    if let Ok(ior) = std::env::var("HYOSHI_TEST_CALLED") {
        let client = Orb::client().unwrap();
        let named = client.resolve_unchecked::<dyn Named>(&ior).unwrap();
        thread::scope(|scope| {
            for _ in 0..12 {
                scope.spawn(|| while named.name().is_ok() {});
            }
        });
    }
}

#[test]
fn a_new_call_waits_for_no_request_of_killed_callers_that_has_not_begun() {
    const CALL: Duration = Duration::from_millis(400);
    for threads in [1, 16] {
        let server = serve(threads, Takes { time: CALL, ..Takes::default() });
        let mut callers = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "fairness::calls_until_it_is_killed_if_it_is_asked_to", "--nocapture"])
            .env("HYOSHI_TEST_CALLED", server.named.ior().to_string())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let (ran, running) = (&server.servant.ran, &server.servant.running);
        let at_once = threads.min(12);
        wait_until("some have run, and the next run", || {
            ran.load(Ordering::SeqCst) > 0 && running.load(Ordering::SeqCst) == at_once
        });
        callers.kill().unwrap();
        callers.wait().unwrap();
        let (before, begun) = (ran.load(Ordering::SeqCst), Instant::now());
        server.named.name().unwrap();
        println!("{threads} threads: a call of {CALL:?} after 12 callers were killed took {:?}", begun.elapsed());
        let since = ran.load(Ordering::SeqCst) - before;
        assert!(since <= at_once + 1, "{since} calls: those that ran and the new one are {}", at_once + 1);
    }
}

/// The middle and the 99th percentile of calls of 20 ms, of so many callers of one process.
fn crowd(callers: usize, threads: usize) -> (Duration, Duration) {
    let server = serve(threads, Takes { time: Duration::from_millis(20), ..Takes::default() });
    let client = Orb::client().unwrap();
    let named = client.stub::<dyn Named>(server.named.ior().clone());
    let begun = Instant::now();
    let mut times: Vec<_> = thread::scope(|scope| {
        let call = |_| {
            let named = named.clone();
            scope.spawn(move || {
                let mut times = Vec::new();
                while begun.elapsed() < Duration::from_secs(4) {
                    let call = Instant::now();
                    named.name().unwrap();
                    // The beginning, when there are no connections, is not counted.
                    if begun.elapsed() > Duration::from_secs(1) {
                        times.push(call.elapsed());
                    }
                }
                times
            })
        };
        let all: Vec<_> = (0..callers).map(call).collect();
        all.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
    });
    let (p50, p99) = percentiles(&mut times);
    println!("{callers} callers of {threads} threads: p50 {p50:?}, p99 {p99:?}, {} calls", times.len());
    (p50, p99)
}

#[test]
fn callers_of_one_process_wait_equally_long() {
    let (p50, p99) = crowd(60, 8);
    assert!(p99 < 4 * p50, "p50 {p50:?}, p99 {p99:?}");
}

#[test]
#[ignore = "measures time: cargo test -p hyoshi-orb --test suite fairness:: -- --ignored --nocapture --test-threads 1"]
fn two_hundred_callers_of_sixteen_threads() {
    let (p50, p99) = crowd(200, 16);
    assert!(p99 <= 2 * p50, "p50 {p50:?}, p99 {p99:?}");
}

#[test]
#[ignore = "measures time: cargo test -p hyoshi-orb --test suite fairness:: -- --ignored --nocapture --test-threads 1"]
fn empty_calls_beside_a_flood() {
    let server = serve(16, Takes { time: Duration::from_millis(5), ..Takes::default() });
    let client = Orb::client().unwrap();
    let tracker = client.stub::<dyn Tracker>(server.tracker.ior().clone());
    let measure = || {
        let time = || {
            let begun = Instant::now();
            tracker.nothing().unwrap();
            begun.elapsed()
        };
        percentiles(&mut (0..20_000).map(|_| time()).collect::<Vec<_>>())
    };
    let flooded = || {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (mut stream, server, over) = (connect(&server.orb), &server, &over);
            scope.spawn(move || {
                let mut id = 0;
                // 64 in flight at any time.
                let one = |id| request(id, &server.key, "_get_name", Response::Target);
                stream.write_all(&(0..64).flat_map(one).collect::<Vec<_>>()).unwrap();
                while !over.load(Ordering::Relaxed) && message(&mut stream).is_some() {
                    stream.write_all(&one(64 + id)).unwrap();
                    id += 1;
                }
            });
            wait_until("it floods", || server.servant.running.load(Ordering::SeqCst) >= 14);
            let beside = measure();
            over.store(true, Ordering::Relaxed);
            beside
        })
    };
    // In turn: caller and server share a CPU in some rounds, and not in others, which changes all times threefold.
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..21 {
        alone.push(measure());
        beside.push(flooded());
        println!("p50 and p99 of empty calls: alone {:?}, beside a flood {:?}", alone.last(), beside.last());
    }
    let [alone, beside] = [alone, beside].map(|mut rounds| {
        let mut medians = rounds.iter().map(|(p50, _)| *p50).collect::<Vec<_>>();
        rounds.sort_unstable_by_key(|(_, p99)| *p99);
        medians.sort_unstable();
        (medians[10], rounds[10].1)
    });
    println!("medians of 21 rounds: alone {alone:?}, beside a flood {beside:?}");
    assert!(beside.1 <= 3 * alone.1, "alone {alone:?}, beside {beside:?}");
}

/// Makes system calls that a signal would end, and counts those that one has ended.
#[derive(Default)]
struct Interrupted {
    calls: AtomicUsize,
    interrupted: AtomicUsize,
}

impl Named for Interrupted {
    fn name(&self) -> Result<String, SystemException> {
        // Those with a timeout of the socket are not started again (signal(7)).
        let (own, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        own.set_read_timeout(Some(Duration::from_micros(200))).unwrap();
        for _ in 0..5 {
            let error = std::io::Read::read(&mut &own, &mut [0]).unwrap_err();
            self.calls.fetch_add(1, Ordering::Relaxed);
            if error.kind() == std::io::ErrorKind::Interrupted {
                self.interrupted.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(String::new())
    }
}

#[test]
fn no_signal_of_a_lane_interrupts_a_system_call_of_a_servant() {
    let lane = LaneOptions { threads: 4, ..LaneOptions::default() };
    let orb = Orb::builder().collocation(false).lane(lane).listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    let servant = Arc::new(Interrupted::default());
    let named = orb.adapter("a").build().unwrap().activate::<dyn Named>(servant.clone()).unwrap();
    orb.ready();
    // About as many callers as threads, with pauses: the lane is short of threads again and again, and not always.
    let client = Orb::client().unwrap();
    let begun = Instant::now();
    thread::scope(|scope| {
        for caller in 0..6u64 {
            let named = client.stub::<dyn Named>(named.ior().clone());
            scope.spawn(move || {
                let mut round = 0;
                while begun.elapsed() < Duration::from_secs(5) {
                    named.name().unwrap();
                    round += 1;
                    if round % 40 == caller * 5 {
                        thread::sleep(Duration::from_millis(110));
                    }
                }
            });
        }
    });
    let (calls, interrupted) = (servant.calls.load(Ordering::Relaxed), servant.interrupted.load(Ordering::Relaxed));
    println!("{interrupted} of {calls} system calls were interrupted");
    assert!(calls > 100);
    assert_eq!(interrupted, 0, "of {calls}");
}
