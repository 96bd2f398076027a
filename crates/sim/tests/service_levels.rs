//! Service levels under feedback control, on executed jobs.

use std::collections::{BTreeMap, BTreeSet};

use crate::common;

use common::*;
use hyoshi_model::*;
use hyoshi_replay::blame::{Blame, Interest, ResponsePart};
use hyoshi_replay::replay;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::stats::Phases;
use hyoshi_trace::{DispatchDecision, JobOutcome, TraceEvent};

/// A load chain with a fixed rate, and a follower of an adapted rate. From 20 s to 40 s other work needs 40 % more.
const LEVELS: &str = "name = 'levels'\n[processor.main]\nstrategy = 'EDF'\n\
    [feedback.main]\nalgorithm = 'FC-U'\nutilisation = '70%'\nperiod = '500ms'\ndivide = 'value'\n\
    [operation.detect]\nrate = '10Hz'\nrepeat = { legs = 2 }\ntakes = '8ms'\n\
    levels = [{ name = 'coarse', wcet = '2ms', value = 3 }, { name = 'full', wcet = '10ms', value = 9 }]\n\
    [operation.grab]\nrate = ['2Hz', '20Hz']\nwcet = '1ms'\n\
    [operation.map]\nafter = { all = ['grab'] }\n\
    levels = [{ name = 'grid', wcet = '2ms', value = 2 }, { name = 'mesh', wcet = '8ms', value = 6 },\n\
    { name = 'fine', wcet = '14ms', value = 7 }]\n\
    [operation.control]\nrate = '100Hz'\nwcet = '5ms'\ntakes = '1ms'\n\
    [[epoch]]\nat = '20s'\nset = { 'operation.control.takes' = '5ms' }\n\
    [[epoch]]\nat = '40s'\nset = { 'operation.control.takes' = '1ms' }\n";

fn levels(change: impl FnOnce(String) -> String) -> System {
    let text = change(LEVELS.into());
    read(&text, "levels.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system
}

type Events = Vec<(ProcessorId, Instant, TraceEvent)>;

fn run(system: &System) -> Events {
    events(system, Instant::ZERO + Span::from_secs(60))
}

/// The levels that the loop has chosen, in order.
fn chosen(all: &Events, id: OperationId) -> Vec<(Instant, u8)> {
    let of = |(_, at, event): &(ProcessorId, Instant, TraceEvent)| match event {
        TraceEvent::Decision(DispatchDecision::Level { operation, level }) if *operation == id => Some((*at, *level)),
        _ => None,
    };
    all.iter().filter_map(of).collect()
}

#[test]
fn a_job_runs_for_the_time_of_the_level_at_its_release() {
    for start in ["lowest", "highest"] {
        let system = levels(|text| text.replace("divide", &format!("start = '{start}'\ndivide")));
        let all = run(&system);
        let first = |operation: &Operation| match start {
            "highest" => operation.levels.len().saturating_sub(1),
            _ => 0,
        };
        let mut present: Vec<usize> = system.operations.iter().map(first).collect();
        let (mut released, mut ended) = (BTreeMap::new(), 0);
        for (.., event) in &all {
            let TraceEvent::Decision(decision) = event else { continue };
            match decision {
                DispatchDecision::Level { operation, level } => present[operation.index()] = usize::from(*level),
                // All legs have the level of the first.
                DispatchDecision::Ready { job, .. } if job.leg == 0 => {
                    released.insert((job.operation, job.number), present[job.operation.index()]);
                }
                DispatchDecision::End(end) if end.outcome == JobOutcome::Made => {
                    let operation = system.operation(end.job.operation);
                    let level = released[&(end.job.operation, end.job.number)];
                    let takes = &system.setting(end.epoch.into(), end.job.operation).execution_time;
                    let time = at_level(&operation.levels, level, takes.draw(system.seed, end.job));
                    assert_eq!(end.consumed, time, "{} {:?} at level {level}", operation.name, end.job);
                    assert!(!end.overran);
                    ended += 1;
                }
                _ => {}
            }
        }
        assert!(ended > 5_000, "{ended}");
    }
}

#[test]
fn levels_fall_under_load_and_rise_again_and_a_replay_chooses_the_same() {
    let system = levels(|text| text);
    let all = run(&system);
    let within = |at: &Instant, from: u64, to: u64| (from * 1_000_000_000..to * 1_000_000_000).contains(&at.as_nanos());
    let detect = chosen(&all, OperationId(0));
    let last = |from, to| detect.iter().rfind(|(at, _)| within(at, from, to)).map(|(_, level)| *level);
    assert_eq!([last(0, 20), last(20, 40), last(40, 60)], [Some(1), Some(0), Some(1)], "{detect:?}");
    // They change as often as the load.
    assert!(system.operation_ids().all(|id| chosen(&all, id).len() <= 8), "{detect:?}");
    let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
    let own = all.iter().map(|(_, at, event)| (*at, *event));
    replay(&system, &plan.processors[0], own).unwrap_or_else(|divergence| panic!("{divergence}"));
}

#[test]
fn an_overrun_is_the_time_beyond_the_level() {
    let system = levels(|text| text.replace("takes = '8ms'", "takes = '12ms'"));
    let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
    let mut blame = Blame::new(&system, &plan.processors[0], true, Interest::All);
    let all = run(&system);
    let accounts = all.iter().filter_map(|(_, at, event)| blame.event(*at, event));
    let mut seen = BTreeSet::new();
    for account in accounts.filter(|account| account.end.job.operation == OperationId(0)) {
        let overran = account.total(|part| matches!(part, ResponsePart::Overran));
        assert_eq!((overran.as_nanos() * 5, account.end.overran), (account.wcet.as_nanos(), true), "{account:?}");
        assert_eq!(Phases::of(&system, &account.end).overran, overran, "{account:?}");
        seen.insert(account.wcet.as_nanos());
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [2_000_000, 10_000_000]);
}

#[test]
fn given_start_rates_leave_levels_at_the_lowest() {
    let system = levels(|text| text.replace("divide", "start = { grab = '10Hz' }\ndivide"));
    let all = run(&system);
    let first = ends(&all).find(|end| end.job.operation == OperationId(0)).unwrap();
    assert_eq!(first.consumed, Span::from_micros(1_600));
}

#[test]
fn without_its_loop_an_operation_has_its_largest_level() {
    let system = levels(|text| text).with(|contents| contents.feedback.clear());
    let all = run(&system);
    let first = ends(&all).find(|end| end.job.operation == OperationId(0)).unwrap();
    assert_eq!(first.consumed, Span::from_millis(8));
}
