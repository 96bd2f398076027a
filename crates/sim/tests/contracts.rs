//! Contracts on executed jobs: regions follow measured conditions, and their limits hold.

use std::collections::BTreeMap;

use crate::common;

use common::*;
use hyoshi_model::*;
use hyoshi_replay::{Observer, replay};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{ContractHistory, DispatchDecision, TraceEvent};
use proptest::prelude::*;

/// From 5 s to 12 s, `log` needs twice its worst case.
const LOAD: &str = "name = 'contract'\n[processor.main]\nstrategy = 'RMS'\n\
    [operation.track]\nrate = ['5Hz', '50Hz']\nwcet = '8ms'\ntakes = { uniform = ['4ms', '8ms'] }\n\
    [operation.show]\nevery = '50ms'\nwcet = '10ms'\n\
    [operation.log]\nevery = '20ms'\nwcet = '6ms'\n\
    [contract.load]\nwatch = { late = { of = 'operation.show.miss_ratio', over = '2s' } }\n\
    [[contract.load.region]]\nname = 'thin'\nenter = 'late > 0.02'\nleave = 'late < 0.005'\n\
    for = '200ms'\nstay = '3s'\ndo = [{ set = 'operation.track.rate', most = '10Hz' }]\n\
    [[contract.load.region.region]]\nname = 'mute'\nenter = 'late > 0.4'\n\
    do = [{ set = 'operation.log.enabled', to = false }]\n\
    [[contract.load.region.region]]\nname = 'verbose'\n\
    [[contract.load.region]]\nname = 'normal'\n\
    [[epoch]]\nat = '5s'\nset = { 'operation.log.takes' = '12ms' }\n\
    [[epoch]]\nat = '12s'\nset = { 'operation.log.takes' = '6ms' }\n";

fn system(text: &str) -> System {
    read(text, "contract.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system
}

type Events = Vec<(ProcessorId, Instant, TraceEvent)>;

fn run(system: &System, seconds: u64) -> (ContractHistory, Events) {
    let until = Instant::ZERO + Span::from_secs(seconds);
    let all = events(system, until);
    let mut observer = Observer::new(system);
    all.iter().for_each(|(processor, at, event)| observer.event(*processor, *at, event));
    for plan in &Plan::new(system, &Strategies::built_in()).unwrap().processors {
        let own = all.iter().filter(|(on, ..)| *on == plan.processor).map(|(_, at, event)| (*at, *event));
        replay(system, plan, own).unwrap_or_else(|divergence| panic!("{divergence}"));
    }
    (observer.figures(until).contracts[0].clone(), all)
}

/// The nominal releases of an operation.
fn releases(all: &Events, id: u32) -> Vec<Instant> {
    let release = |(.., event): &(ProcessorId, Instant, TraceEvent)| match event {
        TraceEvent::Decision(DispatchDecision::Ready { job, release, .. }) if job.operation.0 == id => Some(*release),
        _ => None,
    };
    all.iter().filter_map(release).collect()
}

/// The limit cures the misses, so the end of `thin` is a probe. While the load lasts, it fails, and `stay` grows.
#[test]
fn a_region_limits_a_rate_until_the_load_falls() {
    let growing = LOAD.replace("stay = '3s'", "stay = { first = '3s', grow = 2, most = '1min' }");
    let (history, all) = run(&system(&growing), 30);
    let steps: Vec<_> = history.steps.iter().filter(|step| step.to.is_some_and(|to| to == 0 || to == 3)).collect();
    let regions: Vec<_> = steps.iter().filter_map(|step| step.to).collect();
    assert_eq!(regions, [3, 0, 3, 0, 3], "{steps:?}");
    let at: Vec<u64> = steps.iter().map(|step| step.at.as_nanos() / 1_000_000).collect();
    assert!(at.iter().all(|at| at % 100 == 0) && (5_200..6_000).contains(&at[1]), "{at:?}");
    assert!(at[2] == at[1] + 3_000 && at[4] == at[3] + 6_000, "{at:?}");
    let gaps = |from: Instant, to: Instant| {
        // A timer that is armed keeps its expiry.
        let from = from + Span::from_millis(100);
        let within: Vec<_> = releases(&all, 0).into_iter().filter(|at| (from..to).contains(at)).collect();
        within.windows(2).map(|pair| pair[1].since(pair[0])).collect::<Vec<_>>()
    };
    let end = Instant::ZERO + Span::from_secs(30);
    for (place, step) in steps.iter().enumerate() {
        let to = steps.get(place + 1).map_or(end, |next| next.at);
        let period = if step.to == Some(0) { 100 } else { 20 };
        assert!(gaps(step.at, to).iter().all(|gap| *gap == Span::from_millis(period)), "{place}: {steps:?}");
    }
}

#[test]
fn a_region_within_a_region_disables_an_operation() {
    // Much longer than the processor can serve.
    let (history, all) = run(&system(&LOAD.replace("'12ms'", "'25ms'")), 30);
    assert!(history.regions[1].begins > 0, "{history:?}");
    for step in history.steps.iter().filter(|step| step.to == Some(1)) {
        let end = history.steps.iter().find(|other| other.from == Some(1) && other.at > step.at);
        let end = end.map_or(Instant::ZERO + Span::from_secs(30), |end| end.at);
        assert!(!releases(&all, 2).iter().any(|at| (step.at..end).contains(at)), "from {:?} to {end:?}", step.at);
    }
    // It is active only in `thin`.
    assert!(history.regions[1].total <= history.regions[0].total);
}

#[test]
fn a_region_follows_the_strategy_in_force() {
    // With the default caps, every job of `stores.1` has another latency.
    let is_cap = |line: &&str| line.starts_with("cap ") || line.starts_with("hard_cap");
    let flight = include_str!("../../../examples/flight-contract.toml").lines().filter(|line| !is_cap(line));
    let flight = flight.collect::<Vec<_>>().join("\n");
    let (before, rest) = flight.split_once("[contract.route]").unwrap();
    let (_, epochs) = rest.split_once("# ---- twelve operating regions").unwrap();
    let contract = "[contract.watch]\nwatch = { second = { of = 'processor.mission.strategy' }, danger = { of = \
        'processor.mission.endangered', over = '2s', as = 'greatest' }, queue = { of = 'processor.mission.queue', \
        over = '1s', as = 'greatest' }, jitter = { of = 'operation.stores.1.latency', over = '1s', as = 'spread' } }\n\
        [[contract.watch.region]]\nname = 'second'\nenter = 'second > 0.5'\n\
        [[contract.watch.region]]\nname = 'first'\n# ";
    let (history, _) = run(&system(&format!("{before}{contract}{epochs}")), 48);
    assert!(history.regions[0].begins > 0, "{history:?}");
    for step in &history.steps {
        let [second, danger, queue, jitter] = step.values[..] else { panic!("four conditions: {step:?}") };
        assert_eq!(second, Some(if step.to == Some(0) { 1_000_000 } else { 0 }), "{step:?}");
        assert!(second == Some(0) || danger == Some(1_000_000), "{step:?}");
        assert!(queue.is_some() && (step.at == Instant::ZERO || jitter > Some(0)), "{step:?}");
    }
}

#[test]
fn an_operation_that_never_runs_is_late() {
    // `log` uses the whole processor, so no job of `show` ends.
    let text = LOAD.replace("every = '20ms'", "every = '20ms'\nimportance = 9").replace("'12ms'", "'40ms'");
    let (history, _) = run(&system(&text.replace("over = '2s'", "over = '500ms'")), 11);
    assert!(history.regions[0].begins > 0 && history.regions[0].since.is_some(), "{history:?}");
}

#[test]
fn a_loop_chooses_within_the_limits_of_a_region() {
    let looped = "[feedback.main]\nalgorithm = 'FC-U'\nutilisation = '90%'\nperiod = '500ms'\nstart = 'highest'\n";
    let (history, all) = run(&system(&format!("{LOAD}{looped}")), 30);
    for step in history.steps.iter().filter(|step| step.to == Some(0)) {
        let end = history.steps.iter().find(|other| other.from == Some(0) && other.at > step.at);
        let end = end.map_or(Instant::ZERO + Span::from_secs(30), |end| end.at);
        let from = step.at + Span::from_millis(200);
        let within: Vec<_> = releases(&all, 0).into_iter().filter(|at| (from..end).contains(at)).collect();
        assert!(within.windows(2).all(|pair| pair[1].since(pair[0]) >= Span::from_millis(100)), "{within:?}");
    }
    assert!(history.regions[0].begins > 0);
}

#[test]
fn an_epoch_sets_a_condition_until_another_one_does() {
    let text = LOAD.replace("watch = { late", "watch = { mode = { of = 'condition.mode' }, late");
    let text = text
        .replace("enter = 'late > 0.02'", "enter = 'mode > 1'")
        .replace("leave = 'late < 0.005'", "leave = 'mode < 1'");
    let text = text.replace("set = { 'operation.log.takes' = '12ms' }", "set = { 'condition.mode.value' = 1.5 }");
    let text = text.replace("set = { 'operation.log.takes' = '6ms' }", "set = { 'condition.mode.value' = -1 }");
    for (declared, first) in [("", None), ("value = 2", Some(2_000_000))] {
        let (history, _) = run(&system(&format!("{text}[condition.mode]\n{declared}\n")), 20);
        let steps = history.steps.iter().filter(|step| step.to.is_some_and(|to| to == 0 || to == 3));
        let steps: Vec<_> = steps.map(|step| (step.at.as_nanos() / 1_000_000, step.to, step.values[0])).collect();
        let last = (12_000, Some(3), Some(-1_000_000));
        let expected = match first {
            // `for` counts from the first evaluation at which `enter` holds.
            None => vec![(0, Some(3), None), (5_200, Some(0), Some(1_500_000)), last],
            first => vec![(0, Some(3), first), (200, Some(0), first), last],
        };
        assert_eq!(steps, expected);
    }
}

/// From 10 Hz to 50 Hz within 2 s, in steps of 100 ms: also on another processor than that of the contract.
#[test]
fn the_limit_of_a_region_with_a_ramp_relaxes_after_its_end() {
    let remote = |text: String| {
        let there = text.replace("[processor.main]", "[processor.far]\nstrategy = 'RMS'\n[processor.main]");
        let there = there.replace("[contract.load]\n", "[contract.load]\non = 'far'\n");
        there
            .replace("every = '50ms'\n", "every = '50ms'\non = 'main'\n")
            .replace("every = '20ms'\n", "every = '20ms'\non = 'main'\n")
            .replace("rate = ['5Hz', '50Hz']\n", "rate = ['5Hz', '50Hz']\non = 'main'\n")
    };
    let ramped = LOAD.replace("stay = '3s'", "stay = '3s'\nramp = '2s'").replace("for = '200ms'\n", "");
    for text in [ramped.clone(), remote(ramped)] {
        let system = system(&text);
        let (history, all) = run(&system, 30);
        // The last end: the load has fallen.
        let end = history.steps.iter().rev().find(|step| step.from == Some(0) && step.to == Some(3)).unwrap().at;
        let retimes = all.iter().filter_map(|(_, at, event)| match event {
            TraceEvent::Decision(DispatchDecision::Retime { operation: OperationId(0), period }) if *at >= end => {
                Some((at.since(end).as_nanos().div_ceil(1_000_000), period.as_nanos()))
            }
            _ => None,
        });
        let retimes: Vec<_> = retimes.collect();
        let rate = |millis: u64| 10.0 + 40.0 * millis as f64 / 2_000.0;
        assert_eq!(retimes.len(), 20, "{retimes:?}");
        for (millis, period) in &retimes {
            // By the clock of the processor with the settings, at its next evaluation.
            assert!((*period as f64 - 1e9 / rate(*millis)).abs() < 1e9 / rate(*millis) * 0.02, "{millis}: {period}");
        }
        assert_eq!(retimes.last(), Some(&(2_000, 20_000_000)));
        // If it begins again during its ramp, its limit applies at once.
        let again = history.steps.iter().filter(|step| step.to == Some(0)).skip(1);
        for step in again {
            // On another processor, the step of the ramp precedes the arrival of the regions.
            let mut periods = all.iter().filter_map(|(_, at, event)| match event {
                TraceEvent::Decision(DispatchDecision::Retime { period, .. }) if *at == step.at => Some(*period),
                _ => None,
            });
            assert_eq!(periods.next_back(), Some(Span::from_millis(100)));
        }
    }
}

/// The two jobs of the chain take 5 ms and 2 ms; until 3 s the second one takes 1 ms and is in time.
#[test]
fn lateness_usage_and_the_rate_of_a_chain_are_measured() {
    let system = system(
        "name = 'measures'\n[processor.main]\nstrategy = 'EDF'\ncap = '100%'\nhard_cap = '100%'\n\
         [operation.a]\nevery = '20ms'\nwcet = '5ms'\n[operation.b]\nafter = { all = ['a'] }\nwcet = '2ms'\ntakes = '1ms'\n\
         [chain.c]\npath = ['a', 'b']\ndeadline = '6.5ms'\n\
         [[epoch]]\nat = '3s'\nset = { 'operation.b.takes' = '2ms' }\n\
         [contract.k]\n[contract.k.watch]\nown = { of = 'operation.a.lateness' }\n\
         late = { of = 'chain.c.lateness', over = '1s', as = 'greatest' }\n\
         usage = { of = 'processor.main.usage', over = '1s' }\nrate = { of = 'chain.c.rate', over = '1s' }\n\
         [[contract.k.region]]\nname = 'late'\nenter = 'late > 0 && usage > 0.345'\n\
         [[contract.k.region]]\nname = 'known'\nenter = 'rate > 1'\n[[contract.k.region]]\nname = 'rest'\n",
    );
    let (history, _) = run(&system, 6);
    let regions: Vec<_> = history.steps.iter().filter_map(|step| step.to).collect();
    assert_eq!(regions, [2, 1, 0], "{history:?}");
    let values = |step: usize| history.steps[step].values.iter().map(|value| value.unwrap()).collect::<Vec<_>>();
    let about = |found: i64, expected: i64| assert!((found - expected).abs() <= 5_000, "{found}, not {expected}");
    // `a` has 20 ms, the chain 6.5 ms.
    for (step, late, usage) in [(1, -500, 300_000), (2, 500, 350_000)] {
        let found = values(step);
        assert_eq!((found[0], found[1]), (-15_000, late), "{found:?}");
        about(found[2], usage);
        assert!((found[3] - 50_000_000).abs() < 1_000_000, "{found:?}");
    }
}

/// When `a` has a lower rate, it no longer shares a level with `b`, and all levels below are numbered anew. A job of `d`
/// that has started keeps its number.
const RENUMBERED: &str = "name = 'numbers'\n[processor.main]\nstrategy = 'RMS'\ncap = '100%'\nhard_cap = '100%'\n\
    [operation.b]\nevery = '5ms'\nwcet = '0.2ms'\n\
    takes = { list = ['0.1ms', '0.2ms', '0.2ms', '0.1ms', '0.2ms', '0.1ms', '0.1ms'] }\n\
    [operation.a]\nevery = ['5ms', '20ms']\nwcet = '0.2ms'\n\
    [operation.c]\nevery = '25ms'\nwcet = '2ms'\ndeadline = '5ms'\ncritical = true\n\
    [operation.d]\nevery = '40ms'\nwcet = '10ms'\n\
    [contract.k]\nperiod = '10ms'\nwatch = { l = { of = 'operation.b.latency' } }\n\
    [[contract.k.region]]\nname = 'r'\nenter = 'l > 0.00015'\ndo = [{ set = 'operation.a.rate', most = '10ms' }]\n\
    [[contract.k.region]]\nname = 'n'\n";

/// When the limit of `a` ends, its waiting job moves up shortly before the next one: two of them delay `c`.
const PROMOTED: &str = "name = 'waits'\n[processor.main]\nstrategy = 'RMS'\ncap = '100%'\nhard_cap = '100%'\n\
    [operation.probe]\nevery = '5ms'\nwcet = '0.3ms'\ntakes = { list = ['0.3ms', '0.3ms', '0.3ms', '0.3ms', \
    '0.3ms', '0.3ms', '0.3ms', '0.3ms', '0.3ms', '0.3ms', '0.3ms', '0.3ms', '0.3ms', '0.1ms', '0.1ms', '0.1ms', \
    '0.1ms', '0.1ms', '0.1ms', '0.1ms', '0.1ms', '0.1ms'] }\n\
    [operation.a]\nevery = ['20ms', '200ms']\nwcet = '7ms'\n\
    [operation.c]\nevery = '30ms'\nwcet = '10ms'\ndeadline = '20ms'\ncritical = true\n\
    [operation.d]\nevery = '30.5ms'\nwcet = '6ms'\ndeadline = '200ms'\n\
    [contract.k]\nperiod = '1ms'\nwatch = { l = { of = 'operation.probe.latency' } }\n\
    [[contract.k.region]]\nname = 'r'\nenter = 'l > 0.0002'\ndo = [{ set = 'operation.a.rate', most = '32ms' }]\n\
    [[contract.k.region]]\nname = 'n'\n";

#[test]
fn what_a_changed_order_of_rates_delays_is_not_proved() {
    for text in [RENUMBERED, PROMOTED] {
        let system = system(&text.replace("period = '1ms'", "period = '10ms'")).with(|contents| {
            contents.contracts[0].period = Span::from_millis(1);
        });
        let critical = system.operation_ids().find(|id| system.operation(*id).critical).unwrap();
        let all = events(&system, Instant::ZERO + Span::from_secs(60));
        let late = ends(&all).filter(|end| end.job.operation == critical && end.end > end.deadline).count();
        let report = hyoshi_sched::analyse(&system, &Plan::new(&system, &Strategies::built_in()).unwrap());
        let judged = report.scenes[0].processors[0].operations.iter().find(|one| one.operation == critical).unwrap();
        assert!(late > 0 && !judged.verdict.is_proved(), "{late} late, {:?}", judged.verdict);
        // Without the change of the order there is no late job, and a proof.
        let fixed = system.with(|contents| contents.contracts.clear());
        let report = hyoshi_sched::analyse(&fixed, &Plan::new(&fixed, &Strategies::built_in()).unwrap());
        let judged = report.scenes[0].processors[0].operations.iter().find(|one| one.operation == critical).unwrap();
        assert!(judged.verdict.is_proved(), "{:?}", judged.verdict);
    }
}

/// The mean of the window, from recorded ends alone: the window has at least `over` and at most a 32nd more. Jobs that end
/// at this instant may count as ended or as live.
fn miss_ratios(all: &Events, id: u32, now: Instant, over: Span) -> (f64, f64) {
    let part = Span::from_nanos(over.as_nanos().div_ceil(32));
    let ratios = [false, true].map(|ends_now| {
        let mut live = BTreeMap::new();
        let mut ended: Vec<(Instant, bool)> = Vec::new();
        for (_, at, event) in all.iter().take_while(|(_, at, _)| *at <= now) {
            match event {
                TraceEvent::Decision(DispatchDecision::Ready { job, deadline, .. }) if job.operation.0 == id => {
                    live.insert(*job, *deadline);
                }
                TraceEvent::Decision(DispatchDecision::End(end))
                    if end.job.operation.0 == id && (*at < now || ends_now) =>
                {
                    live.remove(&end.job);
                    if end.outcome != hyoshi_trace::JobOutcome::Skipped {
                        ended.push((*at, end.outcome != hyoshi_trace::JobOutcome::Made));
                    }
                }
                _ => {}
            }
        }
        let overdue = live.values().filter(|deadline| now > **deadline).count() as f64;
        [over, over + part].map(|span| {
            let within: Vec<_> = ended.iter().filter(|(at, _)| *at + span >= now).collect();
            let missed = within.iter().filter(|(_, missed)| *missed).count() as f64;
            (missed + overdue) / (within.len() as f64 + overdue)
        })
    });
    let all = ratios.as_flattened().iter().copied();
    (all.clone().fold(f64::NAN, f64::min), all.fold(f64::NAN, f64::max))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn recorded_conditions_are_those_of_the_jobs_and_regions_follow_them(
        seed in 1..1_000_000u64, busy in 8..30u64, over in 300..3_000u64, stay in 0..4_000u64, hold in 0..500u64,
    ) {
        let text = LOAD.replace("'12ms'", &format!("'{busy}ms'")).replace("over = '2s'", &format!("over = '{over}ms'"))
            .replace("stay = '3s'", &format!("stay = '{stay}ms'")).replace("for = '200ms'", &format!("for = '{hold}ms'"));
        let system = system(&format!("seed = {seed}\n{text}"));
        let (history, all) = run(&system, 20);
        for step in &history.steps {
            let (least, most) = miss_ratios(&all, 1, step.at, Span::from_millis(over));
            match step.values[0] {
                Some(millionths) => {
                    let value = millionths as f64 / 1e6;
                    prop_assert!(least - 0.05 <= value && value <= most + 0.05, "{value} in {least}..{most} at {:?}", step.at);
                }
                None => prop_assert!(least.is_nan()),
            }
            match (step.from, step.to) {
                (Some(3), Some(0)) => prop_assert!(step.values[0] > Some(20_000)),
                (Some(0), Some(3)) => prop_assert!(step.values[0] < Some(5_000)),
                _ => {}
            }
        }
        let thin: Vec<_> = history.steps.iter().filter(|step| step.to == Some(0)).map(|step| step.at).collect();
        let ended: Vec<_> = history.steps.iter().filter(|step| step.from == Some(0)).map(|step| step.at).collect();
        for (from, to) in thin.iter().zip(ended) {
            prop_assert!(to.since(*from) >= Span::from_millis(stay));
        }
    }
}
