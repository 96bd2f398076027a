//! Very many operations on one processor:
//! `cargo test --release -p hyoshi-sim --test suite scale:: -- --ignored --nocapture`.

use crate::common;

use std::time::Instant as WallClock;

use common::*;
use hyoshi_model::*;
use hyoshi_sched::analysis::Verdict;
use hyoshi_sched::{Plan, Report, Strategies, analyse};
use hyoshi_sim::refute;

/// Periods from 10 ms to a second that share few factors.
fn many(strategy: &str, preemption: Preemption, count: u64, percent: u64) -> System {
    let mut build = Build::new(strategy, 1).processors(|processor| processor.preemption = preemption);
    let period = |index: u64| 10_000_000 + index * 7_919_001 % 990_000_000;
    let first = build.0.clone();
    build = build.periodic("o", 0, 10.0, 0.001);
    let (operation, setting) = (build.0.operations[0].clone(), build.0.epochs[0].settings[0].clone());
    let mut system = first;
    let id = |index: u64| OperationId(index as u32);
    system.operations = (0..count)
        .map(|index| Operation { name: format!("o{index}"), roots: vec![id(index)], ..operation.clone() })
        .collect();
    let settings = (0..count).map(|index| {
        let (every, wcet) = (Span::from_nanos(period(index)), Span::from_nanos(period(index) * percent / 100 / count));
        let takes = ExecutionTime::Fixed(wcet);
        Setting {
            period: every,
            slowest: every,
            deadline: Deadline::Own(every),
            wcet,
            bcet: wcet,
            execution_time: takes,
            ..setting.clone()
        }
    });
    system.epochs[0].settings = settings.collect();
    System::new(system)
}

fn checked(system: &System) -> Report {
    let strategies = Strategies::built_in();
    let plan = Plan::new(system, &strategies).unwrap();
    let mut report = analyse(system, &plan);
    refute(system, &plan, &strategies, &mut report, || true);
    report
}

const CLASSES: [(&str, Preemption); 6] = [
    ("RMS", Preemption::Levels),
    ("RMS", Preemption::None),
    ("EDF", Preemption::Full),
    ("EDF", Preemption::None),
    ("MLF", Preemption::Levels),
    ("MUF", Preemption::Levels),
];

/// Seconds, and how many are proved, fail, and are unknown.
fn verdicts(strategy: &str, preemption: Preemption, count: u64) -> (f64, [usize; 3]) {
    let system = many(strategy, preemption, count, 60);
    let started = WallClock::now();
    let report = checked(&system);
    let took = started.elapsed().as_secs_f64();
    let mut counts = [0; 3];
    for (.., one) in report.operations() {
        counts[match one.verdict {
            Verdict::Proved => 0,
            Verdict::Fails { .. } => 1,
            Verdict::Unknown { .. } => 2,
        }] += 1;
    }
    println!("{count:>7} {strategy:<8} {preemption:?}: {took:.2} s, proved, fails, unknown: {counts:?}");
    (took, counts)
}

#[test]
fn thousands_of_operations_have_verdicts() {
    for (strategy, preemption) in CLASSES {
        let (_, [proved, fails, unknown]) = verdicts(strategy, preemption, 2_000);
        assert!(unknown * 5 <= proved + fails + unknown, "{strategy} {preemption:?}: {unknown} unknown");
    }
}

#[test]
#[ignore = "a minute in release: the figures of docs/benchmarks.md"]
fn a_hundred_thousand_operations_have_verdicts() {
    for (strategy, preemption) in CLASSES {
        verdicts(strategy, preemption, 100_000);
    }
}
