//! Lanes of Real-time CORBA: whether many of them slow a request down, and how long urgent requests wait while a lower
//! lane is saturated.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hyoshi_orb::rt::{DirectMapping, Priority, PriorityModel, ThreadpoolLane, ThreadpoolOptions};
use hyoshi_orb::{Adapter, LaneOptions, Orb, OrbBuilder, Reference, ThreadPolicy};
use hyoshi_os::Spawn;

use crate::serve::Silent;
use crate::tracking::{Tracker, TrackerStub};
use crate::{Asked, Server, compare, median, quantile};

const LOW: i16 = 5;
const HIGH: i16 = 30;
/// The SCHED_FIFO priority of the high lane: its mapping begins with 40.
const NATIVE_HIGH: u8 = 70;
/// Octets of a raw request and its reply, about those of an empty call.
const RAW: usize = 96;
const PERIOD: Duration = Duration::from_millis(10);
/// Requests of each kind in a round, and rounds.
const REQUESTS: usize = 200;
const ROUNDS: usize = 15;
/// Clients that saturate the low lane, and the time that each of their requests takes, in microseconds.
const CLIENTS: usize = 16;
const BUSY: u32 = 200;
/// Of each second the load pauses 150 ms: the kernel stops real-time threads that use more than 950 ms of it.
const SATURATED: u128 = 850;

/// The objects of the low and the high lane, of one lane among 200, and of an ORB without lanes; the raw server's port.
pub fn serve(asked: &Asked) {
    // Threads inherit it.
    let _ = hyoshi_os::pin_to(0);
    let build = |builder: OrbBuilder| {
        builder.listen("iiop://127.0.0.1:0").expect("an endpoint").build().expect("the server starts")
    };
    let [few, many] = [(), ()].map(|()| build(Orb::builder().priority_mapping(DirectMapping::default())));
    let pair = pool(&few, "pair", &[LOW, HIGH]);
    let all: Vec<i16> = (0..40).collect();
    let pools: Vec<_> = (0..5).map(|at| pool(&many, &format!("pool{at}"), &all)).collect();
    let lane = LaneOptions { policy: asked.policy(), cpu: Some(0), ..LaneOptions::default() };
    let plain = build(Orb::builder().lane(lane));
    for (adapter, priority) in [(&pair, LOW), (&pair, HIGH), (&pools[2], HIGH)] {
        show(
            &adapter.activate_with_priority::<dyn Tracker>(Arc::new(Silent), of(priority)).expect("a lane's priority"),
        );
    }
    let adapter = plain.adapter("plain").build().expect("a fresh name");
    show(&adapter.activate::<dyn Tracker>(Arc::new(Silent)).expect("it is fresh"));
    let raw = TcpListener::bind("127.0.0.1:0").expect("a port");
    println!("{}", raw.local_addr().expect("bound").port());
    let echo = Spawn::new("raw").policy(ThreadPolicy::Fifo(NATIVE_HIGH)).cpu(0);
    echo.spawn(move || raw.incoming().flatten().for_each(answer)).expect("a thread");
    [&few, &many, &plain].into_iter().for_each(Orb::ready);
    let _ = std::io::stdin().read_line(&mut String::new());
}

fn of(number: i16) -> Priority {
    Priority::new(number).expect("in range")
}

fn pool(orb: &Orb, name: &str, priorities: &[i16]) -> Adapter {
    let lane = |number: &i16| ThreadpoolLane { priority: of(*number), static_threads: 1, ..ThreadpoolLane::default() };
    let lanes: Vec<_> = priorities.iter().map(lane).collect();
    let pool = orb.rt().create_threadpool_with_lanes(&lanes, &ThreadpoolOptions::default()).expect("a good pool");
    let model = PriorityModel::ServerDeclared { priority: of(priorities[0]) };
    orb.adapter(name).priority_model(model).threadpool(pool).build().expect("a fresh name")
}

fn show(tracker: &TrackerStub) {
    println!("{}", AsRef::<Reference<dyn Tracker>>::as_ref(tracker).ior());
}

fn answer(mut stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let mut octets = [0; RAW];
    while stream.read_exact(&mut octets).is_ok() && stream.write_all(&octets).is_ok() {}
}

pub fn lanes(asked: &Asked, client: &Orb) {
    let (_server, mut next) = Server::spawn("lanes");
    let [low, high, among, plain] = [(); 4].map(|()| client.resolve::<dyn Tracker>(&next()).expect("it answers"));
    let mut raw = TcpStream::connect(("127.0.0.1", next().parse().expect("a port"))).expect("it listens");
    raw.set_nodelay(true).expect("a socket");
    compare(&[("one of 2 lanes", &high), ("one of 200 lanes", &among)]);

    let mut octets = [0; RAW];
    let mut echo = || {
        raw.write_all(&octets).expect("it listens");
        raw.read_exact(&mut octets).expect("it answers");
    };
    let others = asked.omniorb.as_ref().map(|program| {
        let (process, mut next) = Server::run(&mut on_one_cpu(asked, program));
        (process, client.resolve::<dyn Tracker>(&next()).expect("it answers"))
    });
    let mut on_lane = || high.nothing().expect("it answers");
    let mut without = || plain.nothing().expect("it answers");
    let mut contestants: Vec<(&str, &mut dyn FnMut(), &TrackerStub)> = vec![
        ("a raw socket", &mut echo, &low),
        ("the high lane", &mut on_lane, &low),
        ("no lanes", &mut without, &plain),
    ];
    let mut omniorb;
    if let Some((_, tracker)) = &others {
        omniorb = || tracker.nothing().expect("it answers");
        contestants.push(("omniORB", &mut omniorb, tracker));
    }
    let round = |contestants: &mut [(&str, &mut dyn FnMut(), &TrackerStub)]| {
        let p99 =
            contestants.iter_mut().map(|(_, call, load)| quantile(&mut beside(asked, load, call), 99) as f64 / 1e3);
        p99.collect::<Vec<_>>()
    };
    let rounds: Vec<Vec<f64>> = (0..ROUNDS).map(|_| round(&mut contestants)).collect();
    let names: Vec<&str> = contestants.iter().map(|(name, ..)| *name).collect();
    for (at, name) in names.iter().enumerate() {
        let p99 = median(rounds.iter().map(|round| round[at]).collect());
        let ratio = median(rounds.iter().map(|round| round[at] / round[0]).collect());
        println!("{:<28} p99 {p99:.1} us   ratio {ratio:.2}", format!("beside a load: {name}"));
    }
}

/// A program on the server's CPU, with the priority that an ORB without lanes has here.
fn on_one_cpu(asked: &Asked, program: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]);
    if let ThreadPolicy::Fifo(priority) = asked.policy() {
        command.args(["chrt", "-f", &priority.to_string()]);
    }
    command.arg(program);
    command
}

/// Whether a load that began at `start` runs, and does not pause.
pub fn is_saturated(start: Instant) -> bool {
    start.elapsed().as_millis() % 1000 < SATURATED
}

/// Times of calls at 100 Hz while other clients saturate this object's lane, in nanoseconds.
fn beside(asked: &Asked, load: &TrackerStub, call: &mut dyn FnMut()) -> Vec<u64> {
    let start = Instant::now();
    let is_saturated = move || is_saturated(start);
    let (ends, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients = (0..CLIENTS).map(|_| {
        let (ends, calls, load) = (ends.clone(), calls.clone(), load.clone());
        let client = Spawn::new("load").policy(ThreadPolicy::Other).cpu(u32::from(!asked.one_cpu));
        let body = move || {
            while !ends.load(Ordering::Relaxed) {
                if !is_saturated() {
                    std::thread::sleep(PERIOD);
                    continue;
                }
                load.locate(BUSY).expect("it answers");
                calls.fetch_add(1, Ordering::Relaxed);
            }
        };
        client.spawn(body).expect("a thread")
    });
    let clients: Vec<_> = clients.collect();
    while calls.load(Ordering::Relaxed) < CLIENTS {
        std::thread::sleep(PERIOD);
    }
    let mut timed = Vec::new();
    for at in (start.elapsed().as_millis() as u32 / 10 + 1).. {
        std::thread::sleep((PERIOD * at).saturating_sub(start.elapsed()));
        if !is_saturated() {
            continue;
        }
        let sent = Instant::now();
        call();
        timed.push(sent.elapsed().as_nanos() as u64);
        if timed.len() == REQUESTS {
            break;
        }
    }
    ends.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().expect("it ends"));
    timed
}
