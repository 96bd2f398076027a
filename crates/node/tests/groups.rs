//! Groups of feedback loops with processors on two hosts.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyoshi_model::{HostId, Instant, OperationId, ProcessorId, Span};
use hyoshi_node::idl::hyoshi_node::{self as wire, Peer, PeerStub};
use hyoshi_node::{PeerEvent, corbaloc};
use hyoshi_orb::Orb;
use hyoshi_os::{Clock, MonotonicClock};
use hyoshi_replay::replay;
use hyoshi_runtime::RunningNode;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{DispatchDecision, Input, TraceEvent};

use crate::common::{DRONE, Host, STATION, text, until, unused_address};
use crate::reboot::{Other, other, serve};

/// The chain of `sense` and `recognise` couples both hosts. The drone computes the rates. At the lowest rates each
/// processor uses at most 6 % of its CPU, at the highest ones more than there is.
fn group(algorithm: &str, duration: &str) -> String {
    let tcp = || format!("tcp/{}", unused_address());
    let text = text(&tcp(), &tcp(), duration).replace("critical = true", "");
    let text = text.replacen("every = \"10ms\"", "rate = [\"10Hz\", \"1kHz\"]", 1);
    let text = text.replacen("every = \"5ms\"", "rate = [\"10Hz\", \"1kHz\"]", 1);
    // `recognise` and `watch` are on the ground.
    let text = text.replace("wcet = \"0.1ms\"", "wcet = \"1ms\"");
    let of = |processor: &str, utilisation: u32| {
        format!(
            "[feedback.{processor}]\nalgorithm = \"{algorithm}\"\nutilisation = \"{utilisation}%\"\n\
             period = \"200ms\"\nmeasure = \"lanes\"\n"
        )
    };
    text + &of("airframe", 15) + &of("ground", 30)
}

const SENSE: OperationId = OperationId(0);
const WATCH: OperationId = OperationId(2);
const AIRFRAME: ProcessorId = ProcessorId(0);
const GROUND: ProcessorId = ProcessorId(1);

/// A node's events, by processor.
type Events = BTreeMap<ProcessorId, Vec<(Instant, TraceEvent)>>;

fn poll(running: &mut RunningNode, events: &mut Events) {
    running.poll(&mut |processor, at, event| events.entry(processor).or_default().push((at, event)));
}

/// The rates of an operation that were set on a processor, the latest last.
fn set(events: &Events, processor: ProcessorId, of: OperationId) -> Vec<Span> {
    let set = events.get(&processor).into_iter().flatten().filter_map(|(_, event)| match event {
        TraceEvent::Input(Input::Adapt { operation, period }) if *operation == of => Some(*period),
        _ => None,
    });
    set.collect()
}

fn samples(events: &Events, processor: ProcessorId) -> Vec<u32> {
    let samples = events.get(&processor).into_iter().flatten().filter_map(|(_, event)| match event {
        TraceEvent::Decision(DispatchDecision::Sample { utilisation, .. }) => *utilisation,
        _ => None,
    });
    samples.collect()
}

/// What a processor recorded replays exactly.
fn replays(host: &Host, events: Events) {
    let plan = Plan::new(&host.system, &Strategies::built_in()).unwrap();
    for (processor, events) in events {
        let plan = plan.processors.iter().find(|plan| plan.processor == processor).unwrap();
        replay(&host.system, plan, events).unwrap_or_else(|parted| panic!("{parted}"));
    }
}

/// Starts the second host of a run.
fn joins(text: &str, host: HostId) -> (Host, RunningNode) {
    let mut joined = Host::start(text, host, Span::from_secs(20)).unwrap();
    let agreed = joined.agree().unwrap();
    let running = joined.begin(&agreed);
    (joined, running)
}

#[test]
fn one_host_computes_the_rates_of_both_and_each_host_replays_what_it_got() {
    for algorithm in ["EUCON", "DEUCON"] {
        let text = group(algorithm, "60s");
        let mut drone = Host::start(&text, DRONE, Span::ZERO).unwrap();
        let agreed = drone.agree().unwrap();
        let mut here = drone.begin(&agreed);
        let (station, mut there) = joins(&text, STATION);
        let (mut of_drone, mut of_station) = (Events::new(), Events::new());
        // The start rates are the lowest ones.
        let risen = |events: &Events, processor, of| {
            set(events, processor, of).iter().filter(|period| **period < Span::from_millis(100)).count() > 5
        };
        until("rates rise on both hosts", || {
            poll(&mut here, &mut of_drone);
            poll(&mut there, &mut of_station);
            risen(&of_drone, AIRFRAME, SENSE)
                && risen(&of_station, GROUND, SENSE)
                && risen(&of_station, GROUND, WATCH)
                && samples(&of_station, GROUND).len() > 10
        });
        poll(&mut here, &mut of_drone);
        let [decided, received] = [set(&of_drone, AIRFRAME, SENSE), set(&of_station, GROUND, SENSE)];
        assert!(received.iter().all(|one| decided.contains(one)), "{received:?} of {decided:?}");
        let stop = |events: &mut Events, running: RunningNode| {
            running.stop(&mut |processor, at, event| events.entry(processor).or_default().push((at, event)))
        };
        let [ours, theirs] = [stop(&mut of_drone, here).groups, stop(&mut of_station, there).groups];
        assert!(ours.len() == 1 && ours[0].steps > 10 && theirs.is_empty(), "{ours:?} {theirs:?}");
        replays(&drone, of_drone);
        replays(&station, of_station);
    }
}

#[test]
fn rates_on_a_host_that_is_lost_do_not_rise_and_it_is_controlled_again_after_its_return() {
    let text = group("EUCON", "80000h");
    let mut drone = Host::start(&text, DRONE, Span::ZERO).unwrap();
    let agreed = drone.agree().unwrap();
    let mut here = drone.begin(&agreed);
    let mut events = Events::new();
    for start in 0..2 {
        let (station, mut there) = joins(&text, STATION);
        let mut of_station = Events::new();
        until("rates are set on the station", || {
            poll(&mut here, &mut events);
            poll(&mut there, &mut of_station);
            set(&of_station, GROUND, WATCH).len() > 5
        });
        drop((station, there));
        until("the station is lost", || drone.peers.standing()[0].state == "lost");
        let mut samples_until = |more: usize| {
            let before = samples(&events, AIRFRAME).len();
            until("the drone samples", || {
                poll(&mut here, &mut events);
                samples(&events, AIRFRAME).len() > before + more
            });
            set(&events, AIRFRAME, SENSE)
        };
        // Its last sample may still be used.
        let before = samples_until(2);
        let after = samples_until(5);
        assert!(after[before.len() - 1..].is_sorted(), "{:?} after start {start}", &after[before.len() - 1..]);
    }
}

/// Sends samples as a station, one for each sampling period.
struct Sampling {
    peer: PeerStub,
    session: u64,
    clock: MonotonicClock,
    last: u64,
}

const PERIOD: u64 = 200_000_000;

impl Sampling {
    fn sample(processor: ProcessorId, number: u64, utilisation: u32) -> wire::GroupSample {
        wire::GroupSample { processor: processor.0, number, measured: true, utilisation }
    }

    /// The number of the period that ends about now.
    fn number(&self) -> u64 {
        (self.clock.now().as_nanos() + PERIOD / 2) / PERIOD
    }

    fn send(&self, samples: &[wire::GroupSample]) {
        self.peer.sample(self.session, samples).unwrap();
    }

    /// Sends a sample of the ground if a period has ended.
    fn step(&mut self, utilisation: u32) {
        let number = self.clock.now().as_nanos() / PERIOD;
        if number > self.last {
            self.last = number;
            self.send(&[Sampling::sample(GROUND, number, utilisation)]);
        }
    }
}

/// The drone, and a servant that plays the station.
struct Played {
    drone: Host,
    running: RunningNode,
    events: Events,
    station: Arc<Other>,
    sampling: Sampling,
    _orbs: [Orb; 2],
}

impl Played {
    fn start() -> Played {
        let text = group("EUCON", "80000h");
        let mut drone = Host::start(&text, DRONE, Span::ZERO).unwrap();
        let agreed = drone.agree().unwrap();
        let running = drone.begin(&agreed);
        let station = other("station", &drone.system, 0, None);
        let orbs = [serve(&drone.system, &station), Orb::client().unwrap()];
        let at = corbaloc(&drone.system.hosts[0].endpoints[0], "hyoshi-peer");
        let peer = orbs[1].resolve_unchecked::<dyn Peer>(&at).unwrap();
        let session = peer.introduce(&station.introduction()).unwrap().session;
        let sampling = Sampling { peer, session, clock: agreed.clock, last: 0 };
        Played { drone, running, events: Events::new(), station, sampling, _orbs: orbs }
    }

    /// The periods of an operation that the station has received.
    fn received(&self, of: OperationId) -> Vec<u64> {
        let rates = self.station.rates.lock().unwrap();
        rates.iter().filter(|rate| rate.operation == of.0).map(|rate| rate.period).collect()
    }

    fn rejected(&self) -> u64 {
        self.drone.peers.standing()[0].rejected
    }

    /// Sends this utilisation until the rates are as required.
    fn samples(&mut self, utilisation: u32, what: &str, reached: impl Fn(&[u64]) -> bool) {
        until(what, || {
            poll(&mut self.running, &mut self.events);
            self.sampling.step(utilisation);
            reached(&self.received(WATCH))
        });
    }
}

#[test]
fn rates_follow_the_samples_of_another_host_and_do_not_rise_without_them() {
    let mut played = Played::start();
    played.samples(50_000, "rates rise below the set point", |rates| rates.last().is_some_and(|one| *one < 20_000_000));
    let risen = *played.received(WATCH).last().unwrap();
    played.samples(900_000, "rates fall above the set point", |rates| *rates.last().unwrap() > 2 * risen);
    // A sample that was sent may still be used.
    let steps = |played: &mut Played, more: usize| {
        let before = samples(&played.events, AIRFRAME).len();
        until("the drone samples", || {
            poll(&mut played.running, &mut played.events);
            samples(&played.events, AIRFRAME).len() > before + more
        });
        [SENSE, WATCH].map(|of| played.received(of))
    };
    let before = steps(&mut played, 2);
    let after = steps(&mut played, 8);
    for (before, after) in before.iter().zip(&after) {
        assert!(after.len() > before.len(), "the node repeats them");
        assert!(after[before.len() - 1..].is_sorted(), "{:?}", &after[before.len() - 1..]);
    }
    played.samples(50_000, "rates rise again", |rates| *rates.last().unwrap() < *after[1].last().unwrap());
}

#[test]
fn invalid_samples_are_rejected_and_counted_and_valid_ones_still_count() {
    let mut played = Played::start();
    played.samples(0, "a sample is used", |rates| rates.last().is_some_and(|one| *one < 90_000_000));
    let now = played.sampling.number();
    let sample = Sampling::sample;
    let invalid = [
        vec![sample(AIRFRAME, now + 1, 0)],
        vec![sample(ProcessorId(2), now + 1, 0)],
        vec![sample(ProcessorId(u32::MAX), now + 1, 0)],
        vec![sample(GROUND, now + 1_000, 0)],
        vec![sample(GROUND, u64::MAX, 0)],
        vec![sample(GROUND, 0, 0)],
        vec![sample(GROUND, now - 1, 0)],
        vec![sample(GROUND, now + 1, u32::MAX), sample(GROUND, now + 1, 0)],
    ];
    let before = played.rejected();
    invalid.iter().for_each(|one| played.sampling.send(one));
    until("each is counted", || played.rejected() >= before + invalid.len() as u64);
    let refused = played.drone.peers.refused();
    played.sampling.peer.sample(played.sampling.session ^ 1, &invalid[0]).unwrap();
    until("the unknown session is counted", || played.drone.peers.refused() > refused);
    let falls = *played.received(WATCH).last().unwrap();
    played.samples(1_000_000, "valid samples count", |rates| *rates.last().unwrap() > falls);
    // Far more often than a processor samples.
    let before = played.rejected();
    // An empty message is valid: only the limit of messages rejects it.
    (0..200).for_each(|_| played.sampling.send(&[]));
    until("they are counted", || played.rejected() >= before + 50);
}

#[test]
fn a_host_sends_its_samples_and_keeps_its_rates_if_the_coordinator_is_lost() {
    let text = group("EUCON", "80000h");
    let mut station = Host::start(&text, STATION, Span::ZERO).unwrap();
    let agreed = station.agree().unwrap();
    let mut running = station.begin(&agreed);
    let drone = other("drone", &station.system, 0, None);
    let orb = serve(&station.system, &drone);
    let client = Orb::client().unwrap();
    let at = corbaloc(&station.system.hosts[1].endpoints[0], "hyoshi-peer");
    let peer = client.resolve_unchecked::<dyn Peer>(&at).unwrap();
    let session = peer.introduce(&drone.introduction()).unwrap().session;
    let mut events = Events::new();
    until("samples leave", || {
        poll(&mut running, &mut events);
        drone.samples.lock().unwrap().len() > 5
    });
    let sent = drone.samples.lock().unwrap().clone();
    assert!(sent.iter().all(|one| one.processor == GROUND.0 && one.measured && one.utilisation <= 1_000_000));
    assert!(sent.is_sorted_by(|one, next| one.number < next.number), "{sent:?}");
    let rate = |operation: OperationId, period| wire::AdaptedRate { operation: operation.0, period };
    peer.retime(session, &[rate(SENSE, 20_000_000), rate(WATCH, 30_000_000)]).unwrap();
    until("the rates are set", || {
        poll(&mut running, &mut events);
        !set(&events, GROUND, WATCH).is_empty()
    });
    orb.shutdown();
    let mut reported = Vec::new();
    until("the loss is reported", || {
        reported.extend(station.peers.take_events());
        reported.contains(&PeerEvent::RatesStay { host: "drone".into() })
    });
    let before = samples(&events, GROUND).len();
    until("the station runs on", || {
        poll(&mut running, &mut events);
        samples(&events, GROUND).len() > before + 5
    });
    assert_eq!(set(&events, GROUND, WATCH).last(), Some(&Span::from_millis(30)));
    assert_eq!(set(&events, GROUND, SENSE).last(), Some(&Span::from_millis(20)));
    running.stop(&mut |_, _, _| ());
}
