//! What a proxy adds to a call, and what a passing delegate costs.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use hyoshi_model::Instant as ClockInstant;
use hyoshi_orb::behaviour::{Behaviour, DelegateOutcome, Delegates};
use hyoshi_orb::proxy::{IiopProxy, ProxySettings};
use hyoshi_orb::{CallDelegates, Orb};
use hyoshi_os::{Clock, MonotonicClock};
use hyoshi_wire::ior::{Corbaloc, CorbalocAddress, Ior};

use crate::tracking::*;
use crate::{Asked, Server, compare, median};

/// The reference for which the proxy's process stands in.
pub const TARGET: &str = "ORB_BENCH_TARGET";

/// The proxy's process.
pub fn serve() {
    let target = std::env::var(TARGET).expect("the client's process sets it").parse().expect("a reference");
    let settings = ProxySettings { listen: "iiop://127.0.0.1:0".to_owned(), ..ProxySettings::default() };
    let proxy = IiopProxy::start(&target, settings).expect("it starts");
    println!("{}", proxy.ior());
    // Until the client ends.
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// The process of a relay: it copies the octets of a connection, and reads none of them. No proxy can be faster.
pub fn relay() {
    let target: Ior = std::env::var(TARGET).expect("the client's process sets it").parse().expect("a reference");
    let profile = target.iiop().next().expect("it has a profile").expect("it is sound");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let addresses = vec![CorbalocAddress::Iiop { version: profile.version(), host: "127.0.0.1".to_owned(), port }];
    println!("{}", Corbaloc { addresses, key: profile.key.to_vec() });
    let (client, _) = listener.accept().expect("the client connects");
    let server = TcpStream::connect((profile.host, profile.port)).expect("the server listens");
    let copy = |from: &TcpStream, to: &TcpStream| {
        let (mut from, mut to) = (from.try_clone().expect("a descriptor"), to.try_clone().expect("a descriptor"));
        to.set_nodelay(true).expect("it is connected");
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 17];
            while let Ok(length @ 1..) = from.read(&mut buffer) {
                to.write_all(&buffer[..length]).expect("the peer reads");
            }
            let _ = to.shutdown(std::net::Shutdown::Both);
        })
    };
    let both = [copy(&client, &server), copy(&server, &client)];
    both.into_iter().for_each(|one| one.join().expect("it ends"));
}

/// Calls through both and without them, in turn.
pub fn proxy(server: &Server, client: &Orb, direct: &TrackerStub) {
    let (_relay, mut relayed) = Server::spawn_with("relay", (TARGET, &server.tracker));
    let (_proxy, mut proxied) = Server::spawn_with("proxy", (TARGET, &server.tracker));
    let relayed = client.resolve::<dyn Tracker>(&relayed()).expect("the relay passes");
    let through = client.resolve::<dyn Tracker>(&proxied()).expect("the proxy answers");
    compare(&[("the server itself", direct), ("a relay before it", &relayed), ("a proxy before it", &through)]);
}

/// What a passing delegate adds to a call of a stub: of the server, and of an object in this process. Calls with and
/// without it alternate, so that changes on the machine affect both.
pub fn around_stubs(asked: &Asked, remote: &TrackerStub) {
    asked.take_place();
    let delegated = TrackerDelegate::new(remote.clone(), CallDelegates::of::<dyn Tracker>());
    let mut rounds = Vec::new();
    for _ in 0..11 {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..10_000 {
            let start = Instant::now();
            remote.nothing().expect("it answers");
            let between = Instant::now();
            delegated.nothing().expect("it passes");
            let end = Instant::now();
            times[0].push((between - start).as_nanos() as f64);
            times[1].push((end - between).as_nanos() as f64);
        }
        rounds.push(times.map(median));
    }
    let direct = median(rounds.iter().map(|round| round[0]).collect());
    let added = median(rounds.iter().map(|round| round[1] - round[0]).collect());
    println!("{:<28} {added:.0} ns more than {:.1} us, p50", "a delegate, remote", direct / 1e3);

    let orb = Orb::client().expect("it starts");
    let adapter = orb.adapter("delegated").build().expect("a fresh name");
    let here = adapter.activate::<dyn Tracker>(std::sync::Arc::new(crate::serve::Silent)).expect("it is fresh");
    let delegated = TrackerDelegate::new(here.clone(), CallDelegates::of::<dyn Tracker>());
    let round = |call: &dyn Fn()| {
        let start = Instant::now();
        (0..1_000_000).for_each(|_| call());
        start.elapsed().as_nanos() as f64 / 1e6
    };
    let pairs = (0..5).map(|_| {
        let direct = round(&|| std::hint::black_box(&here).nothing().expect("it is here"));
        [direct, round(&|| std::hint::black_box(&delegated).nothing().expect("it passes"))]
    });
    let pairs: Vec<[f64; 2]> = pairs.collect();
    let direct = median(pairs.iter().map(|pair| pair[0]).collect());
    let added = median(pairs.iter().map(|pair| pair[1] - pair[0]).collect());
    println!("{:<28} {added:.1} ns more than {direct:.1} ns", "a delegate, collocated");
}

/// The decision about a request and the measurement of its reply, with both readings of the clock.
pub fn delegate(asked: &Asked) {
    asked.take_place();
    let clock = MonotonicClock::start();
    let mut delegates = Delegates::new([("locate", Behaviour::Pass)], Behaviour::Pass);
    let mut round = |at: &dyn Fn() -> ClockInstant| {
        let start = Instant::now();
        for _ in 0..1_000_000 {
            let began = at();
            let (id, decision) = std::hint::black_box(&mut delegates).request(began, "locate", false);
            std::hint::black_box(decision);
            delegates.replied(id, began, at(), DelegateOutcome::Answered);
        }
        start.elapsed().as_nanos() as f64 / 1e6
    };
    let with = median((0..5).map(|_| round(&|| clock.now())).collect());
    let without = median((0..5).map(|_| round(&|| ClockInstant::from_nanos(7))).collect());
    println!("{:<28} {with:.1} ns a request, {without:.1} ns without the clock", "a passing delegate");
}
