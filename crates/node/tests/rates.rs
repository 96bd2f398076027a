//! Rates that a loop of one host sets on another.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant as WallClock};

use hyoshi_model::{OperationId, Span};
use hyoshi_node::idl::hyoshi_node::{self as wire, Peer};
use hyoshi_node::{ENDED, PeerEvent, corbaloc};
use hyoshi_orb::Orb;
use hyoshi_runtime::RunningNode;
use hyoshi_trace::{DispatchDecision, Input, TraceEvent};

use crate::common::{DRONE, Host, STATION, system, text, until, unused_address};
use crate::reboot::{other, serve};

/// The station's loop sets the rate of the drone's sensing: at its lowest, `draw` uses 2 % of the CPU.
fn adapted(algorithm: &str) -> String {
    let tcp = || format!("tcp/{}", unused_address());
    let text = text(&tcp(), &tcp(), "60s");
    let text = text.replace("every = \"10ms\"", "rate = [\"20Hz\", \"500Hz\"]").replace("critical = true", "");
    text + &format!("[feedback.ground]\nalgorithm = \"{algorithm}\"\n")
        + "
        utilisation = \"20%\"
        period = \"100ms\"
        measure = \"lanes\"
        [operation.draw]
        on = \"ground\"
        after = { all = [\"recognise\"] }
        wcet = \"0.5ms\"
        takes = { uniform = [\"1ms\", \"1ms\"] }
        "
}

/// Ends a thread of a test that fails, too.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The periods that arrive at a node, until there are some.
fn periods(running: &mut RunningNode, of: u32) -> Vec<Span> {
    let mut periods = Vec::new();
    until("rates arrive", || {
        running.poll(&mut |_, _, event| match event {
            TraceEvent::Input(Input::Adapt { operation, period }) if operation == OperationId(of) => {
                periods.push(period);
            }
            _ => {}
        });
        periods.len() > 3
    });
    periods
}

#[test]
fn a_loop_sets_the_rates_of_another_host_also_after_that_host_has_started_anew() {
    let text = adapted("FC-U");
    let mut station = Host::start(&text, STATION, Span::ZERO).unwrap();
    let agreed = station.agree().unwrap();
    let mut running = station.begin(&agreed);
    for start in 0..2 {
        let mut drone = Host::start(&text, DRONE, Span::from_secs(20)).unwrap();
        let agreed = drone.agree().unwrap();
        let mut theirs = drone.begin(&agreed);
        let found = periods(&mut theirs, 0);
        assert!(found.iter().all(|period| (2_000_000..=50_000_000).contains(&period.as_nanos())), "{found:?}");
        let standing = &drone.peers.standing()[0];
        assert_eq!(standing.rejected, 0, "{standing:?} after start {start}");
        // The loop's own decisions are what arrives.
        let mut set = Vec::new();
        running.poll(&mut |_, _, event| {
            if let TraceEvent::Decision(DispatchDecision::Retime { period, .. }) = event {
                set.push(period);
            }
        });
        let last = &found[found.len() - 2..];
        assert!(last.iter().all(|period| set.contains(period)), "{last:?} of {set:?}");
        drop(theirs);
        drop(drone);
        until("the station notes that the drone has ended", || station.peers.standing()[0].state == "lost");
    }
    let events = station.peers.take_events();
    assert!(!events.iter().any(|event| matches!(event, PeerEvent::IgnoresRates { .. })), "{events:?}");
    drop(running);
}

#[test]
fn a_host_gets_the_start_rates_of_a_loop_that_has_started_anew() {
    the_drone_gets_start_rates("FC-U");
}

#[test]
fn a_host_gets_the_start_rates_of_a_coordinator_that_has_started_anew() {
    the_drone_gets_start_rates("EUCON");
}

/// The new loop starts at the lowest rates and sees an overload: it has nothing to lower, but the drone must.
fn the_drone_gets_start_rates(algorithm: &str) {
    let text = adapted(algorithm);
    let mut drone = Host::start(&text, DRONE, Span::ZERO).unwrap();
    let agreed = drone.agree().unwrap();
    let mut theirs = drone.begin(&agreed);
    let mut station = Host::start(&text, STATION, Span::from_secs(20)).unwrap();
    let agreed = station.agree().unwrap();
    let running = station.begin(&agreed);
    periods(&mut theirs, 0);
    running.stop(&mut |_, _, _| ());
    drop(station);
    until("the drone notes that the station has ended", || drone.peers.standing()[0].state == "lost");
    let events = drone.peers.take_events();
    // Without its message, the end is a loss.
    let is_loss = |event: &PeerEvent| matches!(event, PeerEvent::Lost { because, .. } if because != ENDED);
    let stays = events.iter().any(|event| matches!(event, PeerEvent::RatesStay { .. }));
    assert_eq!(stays, events.iter().any(is_loss), "{events:?}");
    theirs.poll(&mut |_, _, _| ());
    let mut station = Host::start(&text, STATION, Span::from_secs(20)).unwrap();
    let agreed = station.agree().unwrap();
    let _running = station.begin(&agreed);
    let mut first = None;
    until("the drone gets the present rates", || {
        theirs.poll(&mut |_, _, event| {
            if let TraceEvent::Input(Input::Adapt { period, .. }) = event {
                first.get_or_insert(period);
            }
        });
        first.is_some()
    });
    assert!(first >= Some(Span::from_millis(20)), "far below the rate of before: {first:?}");
}

#[test]
fn a_host_that_ignores_its_rate_is_reported_and_held_to_it() {
    the_drone_ignores_its_rate("FC-U");
}

#[test]
fn a_host_that_ignores_the_rate_of_a_group_is_reported_and_held_to_it() {
    the_drone_ignores_its_rate("EUCON");
}

fn the_drone_ignores_its_rate(algorithm: &str) {
    let text = adapted(algorithm);
    let system = system(&text);
    let drone = other("drone", &system, 0, None);
    let mut station = Host::start(&text, STATION, Span::ZERO).unwrap();
    // The station begins the run alone. It would wait for the proposal of the first host, which `Other` never makes.
    let agreed = station.agree().unwrap();
    let orb = serve(&system, &drone);
    let mut running = station.begin(&agreed);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let ends = SetAtEnd(&over);
        // 500 jobs a second, whatever it is asked for, on a busy machine, too.
        scope.spawn(|| {
            let client = Orb::client().unwrap();
            let at = corbaloc(&system.hosts[1].endpoints[0], "hyoshi-peer");
            let peer = client.resolve_unchecked::<dyn Peer>(&at).unwrap();
            let session = peer.introduce(&drone.introduction()).unwrap().session;
            let begun = WallClock::now();
            for number in 0.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let sent = agreed.clock.origin();
                let sent = (drone.clock() as i64 - sent).max(0) as u64;
                let what = wire::Completion {
                    source: 0,
                    target: 1,
                    position: 0,
                    number,
                    origin: sent,
                    period: 2_000_000,
                    sent,
                };
                peer.complete(session, &what, &number.to_le_bytes()).unwrap();
                thread::sleep(Duration::from_millis(2 * (number + 1)).saturating_sub(begun.elapsed()));
            }
        });
        let mut events = Vec::new();
        until("the station reports it", || {
            running.poll(&mut |_, _, _| ());
            events.extend(station.peers.take_events());
            events.contains(&PeerEvent::IgnoresRates { host: "drone".into() })
        });
        drop(ends);
    });
    let told = drone.rates.lock().unwrap().clone();
    assert!(told.last().is_some_and(|rate| rate.operation == 0 && rate.period > 4_000_000), "{told:?}");
    let standing = &station.peers.standing()[0];
    assert!(standing.rejected > 10, "{standing:?}");
    drop(running);
    orb.shutdown();
}
