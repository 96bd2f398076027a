//! The shipped qoskets on executed jobs, and contracts that flap.

use crate::common;

use common::*;
use hyoshi_model::*;
use hyoshi_replay::Observer;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_sim::flapping;
use hyoshi_trace::{DispatchDecision, JobOutcome, TraceEvent};

/// From 5 s to 15 s, `log` needs more than its worst case.
const BASE: &str = "name = 'qoskets'\nduration = '40s'\n[processor.main]\nstrategy = 'RMS+MLF'\n\
    [operation.track]\nrate = ['1Hz', '50Hz']\nwcet = '8ms'\ntakes = '7ms'\nimportance = 1\n\
    [operation.show]\nevery = '50ms'\nwcet = '8ms'\n\
    [operation.log]\nevery = '20ms'\nwcet = '4ms'\n\
    [operation.scan]\nevery = '100ms'\nwcet = '4ms'\n\
    [[epoch]]\nat = '5s'\nset = { 'operation.log.takes' = '9.5ms' }\n\
    [[epoch]]\nat = '15s'\nset = { 'operation.log.takes' = '4ms' }\n";

fn system(text: &str) -> System {
    read(text, "qosket.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system
}

/// The regions of the only contract in the order of their begins, with the seconds.
fn regions(system: &System) -> Vec<(String, f64)> {
    let until = Instant::ZERO + system.duration;
    let mut observer = Observer::new(system);
    events(system, until).iter().for_each(|(processor, at, event)| observer.event(*processor, *at, event));
    let history = observer.figures(until).contracts[0].clone();
    let begun = history.steps.iter().filter_map(|step| {
        let name = system.contracts[0].regions[usize::from(step.to?)].name.clone();
        Some((name, step.at.since(Instant::ZERO).as_nanos() as f64 / 1e9))
    });
    begun.collect()
}

fn names(regions: &[(String, f64)]) -> Vec<&str> {
    regions.iter().map(|(name, _)| name.as_str()).collect()
}

/// Jobs of an operation that end late between two seconds, of all that end then.
fn late(system: &System, id: u32, (from, to): (u64, u64)) -> (usize, usize) {
    let within = |at: &Instant| (from..to).contains(&(at.as_nanos() / 1_000_000_000));
    let ends: Vec<bool> = events(system, Instant::ZERO + system.duration)
        .iter()
        .filter(|(_, at, _)| within(at))
        .filter_map(|(.., event)| match event {
            TraceEvent::Decision(DispatchDecision::End(end)) if end.job.operation.0 == id => {
                Some(end.outcome != JobOutcome::Made)
            }
            _ => None,
        })
        .collect();
    (ends.iter().filter(|late| **late).count(), ends.len())
}

#[test]
fn degrade_rate_limits_until_the_load_falls_and_then_ends() {
    let used = system(&format!(
        "{BASE}[qosket.slow]\nuse = 'degrade-rate'\nwith = {{ watched = 'operation.show', limited = 'track', most = '5Hz' }}"
    ));
    let found = regions(&used);
    let all = names(&found);
    assert!(all.starts_with(&["normal", "degraded", "normal", "degraded"]) && all.ends_with(&["normal"]), "{found:?}");
    // The second time is twice as long as the first: 5 s and 10 s.
    let lasted: Vec<f64> = found[1..].windows(2).step_by(2).map(|pair| pair[1].1 - pair[0].1).collect();
    assert!(lasted[0] < 6.0 && (10.0..11.0).contains(&lasted[1]), "{lasted:?}");
    let plain = system(BASE);
    let (before, after) = (late(&plain, 1, (5, 15)), late(&used, 1, (5, 15)));
    assert!(before.0 > 5 * after.0 && after.0 > 0, "{before:?} {after:?}");
}

#[test]
fn shed_on_overload_pauses_operations_until_a_probe_succeeds() {
    let used = system(&format!(
        "{BASE}[qosket.shed]\nuse = 'shed-on-overload'\nwith = {{ watched = ['operation.show'], disabled = ['track', 'scan'] }}"
    ));
    let found = regions(&used);
    assert!(names(&found).starts_with(&["normal", "shedding", "normal", "shedding"]), "{found:?}");
    assert_eq!(names(&found).last(), Some(&"normal"), "{found:?}");
    // Nothing of `track` while it pauses.
    let (begun, ended) = (found[1].1.ceil() as u64, found[2].1.floor() as u64);
    assert!(ended - begun >= 3);
    assert_eq!(late(&used, 0, (begun, ended)).1, 0, "{found:?}");
}

#[test]
fn protect_cpu_limits_and_disables_less_important_operations() {
    let used = system(&format!(
        "{BASE}[qosket.protect]\nuse = 'protect-cpu'\nwith = {{ watched = 'operation.show.miss_ratio', above = 0.05, \
         below = 0.01, disabled = 'scan', limited = 'track', most = '2Hz' }}"
    ));
    let found = regions(&used);
    assert!(names(&found).starts_with(&["normal", "protected", "normal", "protected"]), "{found:?}");
    let (begun, ended) = (found[1].1.ceil() as u64, found[2].1.floor() as u64);
    assert_eq!(late(&used, 3, (begun, ended)).1, 0);
    assert!(late(&used, 0, (begun, ended)).1 as u64 <= 2 * (ended - begun) + 1);
}

#[test]
fn steady_latency_takes_a_second_step_if_the_first_is_not_enough() {
    let with = |first: &str| {
        system(&format!(
            "{BASE}[qosket.steady]\nuse = 'steady-latency'\nwith = {{ watched = 'operation.show', bound = '32ms', \
             limited = ['track'], first = '{first}', second = '2Hz', stay = '20s' }}"
        ))
    };
    let used = with("45Hz");
    let found = regions(&used);
    assert!(names(&found).starts_with(&["normal", "first", "second"]), "{found:?}");
    assert!((2.0..8.0).contains(&(found[2].1 - found[1].1)), "{found:?}");
    // Within the bound after the second step.
    let bound = Span::from_millis(32);
    let from = found[2].1 + 1.0;
    let slow = events(&used, Instant::ZERO + Span::from_secs(15))
        .iter()
        .filter(|(_, at, event)| match event {
            TraceEvent::Decision(DispatchDecision::End(end)) => {
                end.job.operation.0 == 1 && at.as_nanos() as f64 / 1e9 > from && end.end.since(end.release) > bound
            }
            _ => false,
        })
        .count();
    assert_eq!(slow, 0, "{found:?}");
    assert!(!names(&regions(&with("25Hz"))).contains(&"second"));
}

#[test]
fn a_contract_that_cures_its_own_condition_flaps_unless_stay_grows() {
    let used = |stay: &str| {
        system(&format!(
            "{BASE}[contract.load]\nwatch = {{ late = {{ of = 'operation.show.miss_ratio', over = '1s' }} }}\n\
             [[contract.load.region]]\nname = 'thin'\nenter = 'late > 0.02'\nleave = 'late < 0.005'\nstay = {stay}\n\
             do = [{{ set = 'operation.track.rate', most = '5Hz' }}]\n[[contract.load.region]]\nname = 'normal'\n"
        ))
    };
    let found = |system: &System| flapping(system, &Plan::new(system, &Strategies::built_in()).unwrap(), || true);
    let constant = found(&used("'1s'"));
    let [(0, thin)] = constant[..] else { panic!("{constant:?}") };
    assert!(thin.region == 0 && thin.times >= 3 && thin.cycle < Span::from_secs(3), "{thin:?}");
    assert_eq!(found(&used("{ first = '1s', grow = 2, most = '1min' }")), []);
    assert_eq!(found(&system(BASE)), []);
}
