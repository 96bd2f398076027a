//! Links that lose completions, hosts that go off and return, and requests.

use crate::common;

use common::*;
use hyoshi_model::*;
use hyoshi_replay::replay;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_sim::{Journey, KnownJobs, LinkCounts, Simulated, simulate, simulate_known};
use hyoshi_trace::{DispatchDecision, Input, JobOutcome, Signal, TraceEvent};
use proptest::prelude::*;

type Events = Vec<(Instant, TraceEvent)>;

fn at(millis: f64) -> Instant {
    Instant::ZERO + ms(millis)
}

fn play(system: &System, until: Instant) -> Simulated<Events> {
    let plan = Plan::new(system, &Strategies::built_in()).unwrap();
    let simulated = simulate(system, &plan, until, |_| Vec::new(), |_| true);
    for (plan, processor) in plan.processors.iter().zip(&simulated.processors) {
        replay(system, plan, processor.probe.iter().copied()).unwrap_or_else(|divergence| panic!("{divergence}"));
    }
    simulated
}

fn all(simulated: &Simulated<Events>) -> impl Iterator<Item = &(Instant, TraceEvent)> {
    simulated.processors.iter().flat_map(|processor| &processor.probe)
}

fn received(events: &Events) -> Vec<Signal> {
    let signal = |(_, event): &(Instant, TraceEvent)| match event {
        TraceEvent::Input(Input::Signal(signal)) => Some(*signal),
        _ => None,
    };
    events.iter().filter_map(signal).collect()
}

/// A random system, on two hosts if it has several processors, with a link that loses.
fn lossy(seed: u64, loss_ppm: u32) -> System {
    drawn::system((seed % 8) as usize, seed).with(|system| {
        if system.hosts.len() == 1 && system.processors.len() > 1 {
            system.hosts.push(Host::named("far"));
            system.processors.last_mut().unwrap().host = HostId(1);
            system.links.push(Link::new((HostId(0), HostId(1)), (ms(0.1), ms(2.0))));
        }
        system.links.iter_mut().for_each(|link| link.loss_ppm = loss_ppm);
    })
}

/// The last host is off from 60 to 110 ms.
fn off_for_a_while(system: System) -> System {
    system.with(|system| {
        // With scheduling costs, the region takes effect slightly late.
        system.processors.iter_mut().for_each(|processor| processor.costs = Costs::NONE);
        system.epochs.truncate(1);
        let last = HostId(system.hosts.len() as u32 - 1);
        for (millis, disabled) in [(60.0, vec![last]), (110.0, vec![])] {
            let environment = Environment { disabled, ..Environment::default() }.into();
            let name = millis.to_string();
            system.epochs.push(Epoch { name, at: at(millis), environment, ..system.epochs[0].clone() });
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn what_was_sent_was_received_lost_refused_or_is_on_its_way(
        seed in any::<u64>(), loss in prop::sample::select(vec![0u32, 100_000, 1_000_000]), off in any::<bool>(),
    ) {
        let mut system = lossy(seed, loss);
        if off {
            system = off_for_a_while(system);
        }
        let simulated = play(&system, at(200.0));
        let sum = simulated.links.iter().fold(LinkCounts::default(), |mut sum, link| {
            sum.add(link);
            sum
        });
        prop_assert_eq!(sum.sent, sum.received + sum.lost + sum.refused + sum.in_flight);
        let sent = all(&simulated).filter(|(_, event)| matches!(event, TraceEvent::Decision(DispatchDecision::Send(_)))).count();
        let received = all(&simulated).filter(|(_, event)| matches!(event, TraceEvent::Input(Input::Signal(_)))).count();
        prop_assert_eq!((sum.sent, sum.received), (sent as u64, received as u64));
        for (link, carried) in system.links.iter().zip(&simulated.links) {
            prop_assert!(link.loss_ppm > 0 || carried.lost == 0);
            prop_assert!(link.loss_ppm < 1_000_000 || carried.lost == carried.sent);
        }
        prop_assert!(off || sum.refused == 0);
    }

    #[test]
    fn a_host_that_is_off_decides_nothing_and_returns_with_the_numbers_of_the_time(seed in any::<u64>()) {
        let system = off_for_a_while(lossy(seed, 0));
        let simulated = play(&system, at(250.0));
        let off = HostId(system.hosts.len() as u32 - 1);
        for (processor, events) in system.processors.iter().zip(&simulated.processors) {
            prop_assert!(processor.host == off || events.lost_jobs == 0);
            let mut lost = 0;
            for (now, event) in events.probe.iter().filter(|_| processor.host == off) {
                match event {
                    TraceEvent::Decision(DispatchDecision::End(end)) if *now == at(60.0) => {
                        lost += u64::from(end.outcome == JobOutcome::Cancelled);
                    }
                    // Later, caps open again, and the first strategy returns.
                    TraceEvent::Decision(
                        DispatchDecision::Gate { .. } | DispatchDecision::Pause { on: false } | DispatchDecision::Switch { second: false },
                    ) => {}
                    TraceEvent::Decision(_) => prop_assert!(*now <= at(60.0) || *now >= at(110.0), "{now} {event:?}"),
                    _ => {}
                }
            }
            prop_assert!(lost >= events.lost_jobs);
        }
        for end in all(&simulated).filter_map(|(_, event)| match event {
            TraceEvent::Decision(DispatchDecision::End(end)) => Some(end),
            _ => None,
        }) {
            let setting = system.setting(0, end.job.operation);
            if system.operation(end.job.operation).trigger == Trigger::Periodic {
                let first = Instant::ZERO + setting.phase + setting.offset;
                let number = end.release.since(first).as_nanos() / setting.period.as_nanos();
                prop_assert_eq!(end.job.number, number);
            }
        }
    }

    #[test]
    fn an_environment_in_which_nothing_differs_changes_nothing(seed in any::<u64>()) {
        let system = lossy(seed, 0);
        let spelt_out = system.clone().with(|system| {
            let links = system.links.iter().zip(0..).map(|(link, position)| (position, link.setting())).collect();
            let environment = std::sync::Arc::new(Environment { links, ..Environment::default() });
            system.epochs.iter_mut().for_each(|epoch| epoch.environment = environment.clone());
        });
        let [plain, spelt_out] =
            [system, spelt_out].map(|system| all(&play(&system, at(200.0))).copied().collect::<Vec<_>>());
        prop_assert!(plain == spelt_out);
    }
}

/// `sense` here, `act` there, over a link of 1 to 2 ms.
fn across(loss_ppm: u32) -> Build {
    let mut build = Build::new("RMS", 2).periodic("sense", 0, 10.0, 1.0).after("act", 1, &[0], 1.0);
    build.0.hosts.push(Host::named("far"));
    build.0.processors[1].host = HostId(1);
    build.0.links.push(Link { loss_ppm, ..Link::new((HostId(0), HostId(1)), (ms(1.0), ms(2.0))) });
    build
}

#[test]
fn loss_changes_neither_the_delays_of_what_arrives_nor_what_else_is_lost() {
    let arrived = |loss| received(&play(&across(loss).system(), at(10_000.0)).processors[1].probe);
    let (whole, some, few) = (arrived(0), arrived(200_000), arrived(700_000));
    assert_eq!(whole.len(), 1_000);
    assert!((750..850).contains(&some.len()), "{}", some.len());
    assert!((230..370).contains(&few.len()), "{}", few.len());
    assert!(some.iter().all(|signal| whole.contains(signal)));
    // A higher loss includes more of the same draws.
    assert!(few.iter().all(|signal| some.contains(signal)));
}

#[test]
fn delays_and_losses_are_those_of_the_region_of_sending() {
    let mut build = across(0);
    let setting = LinkSetting { delay: (ms(7.0), ms(7.0)), loss_ppm: 0 };
    let lost = LinkSetting { loss_ppm: 1_000_000, ..setting };
    for (millis, setting) in [(11.0, setting), (25.0, lost)] {
        let environment = Environment { links: vec![(0, setting)], ..Environment::default() }.into();
        let name = millis.to_string();
        build.0.epochs.push(Epoch { name, at: at(millis), environment, ..build.0.epochs[0].clone() });
    }
    let simulated = play(&build.system(), at(100.0));
    let arrived: Vec<_> = received(&simulated.processors[1].probe).iter().map(|signal| signal.due).collect();
    // Sent at 1, at 11 and at 21 ms; later ones are lost.
    assert!((at(2.0)..=at(3.0)).contains(&arrived[0]), "{arrived:?}");
    assert_eq!(arrived[1..], [at(18.0), at(28.0)]);
    assert_eq!((simulated.links[0].sent, simulated.links[0].lost), (10, 7));
}

#[test]
fn a_join_passes_over_what_was_lost_and_keeps_no_more_than_its_queue() {
    let mut build = across(300_000).periodic("other", 1, 10.0, 1.0).after("both", 1, &[0, 2], 0.5);
    build.last().queue.limit = 2;
    let simulated = play(&build.system(), at(10_000.0));
    let joined = ends(
        &simulated.processors[1].probe.iter().map(|(at, event)| (ProcessorId(1), *at, *event)).collect::<Vec<_>>(),
    )
    .filter(|end| end.job.operation == OperationId(3) && end.outcome.finished())
    .count() as u64;
    let arrived =
        received(&simulated.processors[1].probe).iter().filter(|signal| signal.to == OperationId(3)).count() as u64;
    assert!(arrived < 800 && joined <= arrived && joined + 8 >= arrived, "{joined} of {arrived}");
}

#[test]
fn jobs_and_signals_of_a_host_that_is_switched_off_are_counted() {
    let mut build = across(0).periodic("long", 1, 100.0, 70.0);
    build.0.links[0].delay = (ms(3.0), ms(3.0));
    let simulated = play(&off_for_a_while(build.system()), at(200.0));
    // `long` runs at 60 ms. `sense` continues: 5 signals arrive from 64 to 104 ms, while the host is off.
    assert_eq!(simulated.processors[1].lost_jobs, 1);
    assert_eq!(simulated.links[0].refused, 5);
    assert_eq!(simulated.links[0].received + 5, simulated.links[0].sent);
}

#[test]
fn requests_come_at_their_least_interval_unless_the_host_is_off() {
    let mut build = Build::new("EDF", 1).periodic("serve", 0, 20.0, 5.0);
    (build.last().trigger, build.last().min_interval) = (Trigger::Any(vec![]), Some(ms(20.0)));
    let served = |system: &System| -> Vec<f64> {
        let events = play(system, at(199.0)).processors.remove(0).probe;
        let ends = events.iter().filter_map(|(_, event)| match event {
            TraceEvent::Decision(DispatchDecision::End(end)) => Some(end),
            _ => None,
        });
        ends.map(|end| end.origin.as_nanos() as f64 / 1e6).collect()
    };
    assert_eq!(served(&build.system()), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0, 140.0, 160.0, 180.0]);
    assert_eq!(served(&off_for_a_while(build.system())), [0.0, 20.0, 40.0, 120.0, 140.0, 160.0, 180.0]);
    build.last().min_interval = None;
    assert_eq!(served(&build.system()), [] as [f64; 0]);
}

#[test]
fn journeys_that_are_known_are_not_drawn() {
    let system = across(0).system();
    let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
    let journeys = |signal: &Signal| match signal.number {
        0 => Some(Journey::Delay(ms(5.0))),
        1 => Some(Journey::Lost),
        _ => None,
    };
    let given = KnownJobs {
        execution_time: &|_, drawn| drawn,
        late: None,
        crowded: false,
        inputs: &[],
        requests: true,
        samples: true,
        links: Some(&journeys),
        hops: None,
    };
    let simulated = simulate_known(&system, &plan, at(30.0), Some(given), None, |_| Vec::new(), |_| true);
    let arrived: Vec<_> = received(&simulated.processors[1].probe).iter().map(|one| (one.number, one.due)).collect();
    assert_eq!(arrived[0], (0, at(6.0)));
    assert_eq!(arrived[1].0, 2);
    let LinkCounts { sent, received, lost, recorded, .. } = simulated.links[0];
    assert_eq!((sent, received, lost, recorded), (3, 2, 1, 2));
}
