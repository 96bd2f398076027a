//! Every failure is confirmed: for random overloaded systems every counterexample misses in simulation.

use crate::common;

use std::collections::BTreeMap;

use common::*;
use hyoshi_model::*;
use hyoshi_sched::analysis::{Counterexample, FailureReason, Subject, counterexamples};
use hyoshi_sched::{Plan, Strategies, analyse};
use hyoshi_sim::refute;
use hyoshi_trace::Stats;

/// Random systems; `COUNTEREXAMPLES` sets another number.
const SYSTEMS: u64 = 700;

/// More than it can do, now and then by little.
fn system(seed: u64) -> System {
    let mut system = random::system(seed).into_contents();
    let mut choose = random::Choices::new(seed ^ 0xbad);
    for epoch in &mut system.epochs {
        let mut settings = epoch.settings.to_vec();
        for setting in &mut settings {
            setting.wcet = setting.wcet * (1 + choose.below(3));
            if choose.one_in(6) {
                let shorter = Span::from_nanos(setting.wcet.as_nanos() / 2 + choose.below(4_000_000));
                setting.deadline = Deadline::Own(shorter);
            }
            if choose.one_in(2) {
                (setting.phase, setting.offset, setting.jitter) = (Span::ZERO, Span::ZERO, Span::ZERO);
            }
            setting.execution_time =
                ExecutionTime::Uniform(Span::from_nanos(setting.wcet.as_nanos() / 2), setting.wcet);
        }
        epoch.settings = settings.into();
    }
    let pairs =
        system.operation_ids().filter_map(|id| Some((*system.operation(id).trigger.predecessors().first()?, id)));
    let pairs: Vec<_> = pairs.collect();
    for (from, to) in pairs {
        let limit = |choose: &mut random::Choices| Some(Span::from_micros(500 + choose.below(30_000)));
        system.chains.push(Chain {
            name: format!("{}-{}", from.0, to.0),
            path: vec![from, to],
            deadline: limit(&mut choose),
            max_age: limit(&mut choose),
            max_reaction: limit(&mut choose),
            carried_by: Default::default(),
        });
    }
    System::new(system)
}

/// A few periodic operations that begin together, some with too short deadlines.
fn together(seed: u64) -> System {
    let mut choose = random::Choices::new(seed ^ 0xdead);
    let mut build = Build::new(choose.of(&["EDF", "DM", "RMS", "MUF", "MLF"]), 1);
    for index in 0..2 + choose.below(4) {
        let (period, wcet) = (5 + choose.below(40), 500 + choose.below(3_500));
        build = build.periodic(&format!("o{index}"), 0, period as f64, wcet as f64 / 1e3).set(|setting| {
            let most = setting.period.as_nanos() - setting.wcet.as_nanos();
            setting.deadline = Deadline::Own(setting.wcet + Span::from_nanos(choose.below(most + 1)));
        });
        if choose.one_in(2) {
            build = build.critical();
        }
    }
    System::new(build.0)
}

fn misses(counterexample: &Counterexample) -> bool {
    let system = &counterexample.system;
    let mut stats = Stats::new(system);
    ends(&events(system, Instant::ZERO + system.duration)).for_each(|end| stats.record(end));
    let late = |id, critical: bool| {
        stats.counts(None, |row| row.operation() == id && (row.critical() || !critical)).not_made() > 0
    };
    match &counterexample.subject {
        Subject::Operation { operation, critical, .. } => {
            stats.counts(None, |row| row.operation() == *operation && row.critical() == *critical).not_made() > 0
        }
        Subject::Processor { critical, operations, .. } => operations.iter().any(|id| late(*id, *critical)),
        Subject::Chain { chain, .. } => stats.chains()[*chain].violated(),
    }
}

#[test]
fn nothing_fails_without_a_counterexample_that_misses() {
    let mut seen: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for seed in 0..of_environment("COUNTEREXAMPLES", SYSTEMS) {
        let system = if seed % 3 == 0 { together(seed) } else { system(seed) };
        let strategies = Strategies::built_in();
        let plan = Plan::new(&system, &strategies).unwrap();
        let mut report = analyse(&system, &plan);
        if seed % 8 == 0 {
            refute(&system, &plan, &strategies, &mut report, || true);
        }
        for mut counterexample in counterexamples(&system, &report) {
            let mut tries = 0;
            while !misses(&counterexample) {
                tries += 1;
                assert!(
                    tries < 12 && counterexample.lengthen(),
                    "seed {seed}: {:?} misses nothing in {}\n{}",
                    counterexample.subject,
                    counterexample.system.duration,
                    write(&counterexample.system)
                );
            }
            *seen.entry((counterexample.subject.kind(), kind(&counterexample.why))).or_default() += 1;
        }
    }
    println!("{seen:?}");
    // Every kind of failure.
    let several = |(what, least): (&str, u64)| seen.iter().any(|((_, kind), many)| *kind == what && *many > least);
    assert!(
        [("too long", 150), ("first job", 15), ("overload", 100), ("demand", 5), ("seen", 100)]
            .into_iter()
            .all(several)
    );
    assert!(seen.keys().any(|(subject, _)| *subject == "chain"));
}

fn kind(why: &FailureReason) -> &'static str {
    match why {
        FailureReason::LongerThanDeadline { .. } => "too long",
        FailureReason::FirstJobLate { .. } => "first job",
        FailureReason::Overload { .. } => "overload",
        FailureReason::Demand { .. } => "demand",
        FailureReason::Operation { .. } => "operation",
        FailureReason::Seen { .. } => "seen",
    }
}
