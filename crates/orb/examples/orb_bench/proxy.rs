//! What a proxy adds to a call, and what a passing delegate costs.

use std::time::Instant;

use hyoshi_model::Instant as ClockInstant;
use hyoshi_orb::Orb;
use hyoshi_orb::behaviour::{Behaviour, DelegateOutcome, Delegates};
use hyoshi_orb::proxy::{IiopProxy, ProxySettings};
use hyoshi_os::{Clock, MonotonicClock};

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

/// Calls through it and without it, in turn.
pub fn proxy(server: &Server, client: &Orb, direct: &TrackerStub) {
    let (_process, mut next) = Server::spawn_with("proxy", (TARGET, &server.tracker));
    let through = client.resolve::<dyn Tracker>(&next()).expect("the proxy answers");
    compare(&[("the server itself", direct), ("a proxy before it", &through)]);
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
