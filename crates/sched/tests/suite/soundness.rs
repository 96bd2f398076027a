//! No simulated job exceeds a proved bound, and no verdict *fails* is wrong.
//!
//! Execution times are drawn at or below the worst case: without preemption a shorter job can make another one later.
//! Phases and jitter are drawn independently of the file's.

use std::collections::BTreeMap;

use hyoshi_model::{Guard, Preemption};
use hyoshi_sched::{Report, analyse};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::build::{Build, Op, chain, on, op};
use crate::reference::{Draw, Reference, Seen};

const HORIZON: u64 = 700;

/// Systems with all features of the model, small: at most six operations on at most two processors.
pub fn builds() -> impl Strategy<Value = Build> {
    let names: Vec<&'static str> = vec!["RMS", "DM", "EDF", "MLF", "MUF", "RMS+MLF", "RMS+EDF"];
    let processor = || {
        (
            prop::sample::select(names.clone()),
            prop::sample::select(vec![Preemption::None, Preemption::Levels, Preemption::Full]),
        )
    };
    (
        prop::collection::vec(processor(), 1..3),
        prop::collection::vec(ops(), 1..6),
        any::<bool>(),
        0u64..4,
        any::<bool>(),
    )
        .prop_map(|(processors, ops, resources, delay, together)| {
            let mut build = on("RMS", Preemption::Levels, Vec::new());
            build.delay = (delay / 2, delay);
            for (index, (mut op, after, section)) in ops.into_iter().enumerate() {
                op.name = format!("op{index}");
                op.on %= processors.len() as u32;
                if together {
                    (op.phase, op.offset, op.jitter) = (0, 0, 0);
                }
                // A chain: after the operation before it, at the rate of its root; sometimes a join of two.
                if after && index > 0 {
                    let before = index as u32 - 1;
                    op.after = vec![before];
                    if build.ops[index - 1].after.contains(&(before.wrapping_sub(1))) && section == 0 {
                        op.after.push(before - 1);
                    }
                    op.period = build.ops[index - 1].period;
                    (op.phase, op.jitter) = (0, 0);
                    let mut path = vec![index as u32, before];
                    while let Some(earlier) = build.ops[path[path.len() - 1] as usize].after.first() {
                        path.push(*earlier);
                    }
                    path.reverse();
                    build.chains.push(chain(&path, 2 * op.period));
                }
                if resources && section > 0 {
                    // A resource for each processor: none is shared between them.
                    op.uses = vec![(op.on, section.min(op.wcet))];
                }
                build.ops.push(op);
            }
            build.processors = processors;
            build
        })
}

fn ops() -> impl Strategy<Value = (Op, bool, u64)> {
    let times = (prop::sample::select(vec![8u64, 10, 12, 15, 20, 24, 30, 40]), 1u64..8, 1u64..26);
    let releases = (0u64..40, 0u64..3, prop::sample::select(vec![0u64, 0, 0, 1, 3, 9]));
    let kinds = (any::<bool>(), 0u32..2, prop::sample::select(vec![1u16, 1, 1, 2, 3]), 0u16..4, any::<bool>());
    let links = (0u32..2, prop::bool::weighted(0.3), any::<bool>(), 0u64..4);
    (times, releases, kinds, links).prop_map(
        |(
            (period, wcet, tenths),
            (phase, offset, jitter),
            (critical, importance, legs, critical_legs, own),
            (on, after, guarded, section),
        )| {
            let base = op("", period, wcet);
            let made = Op {
                deadline: (period * tenths / 10).max(wcet * u64::from(legs) * u64::from(tenths != 1)).max(1),
                from_origin: !own,
                phase,
                offset,
                jitter,
                critical,
                importance,
                legs,
                critical_legs: critical_legs.min(legs),
                on,
                guard: if guarded { Guard::On } else { Guard::Off },
                ..base
            };
            (made, after, section)
        },
    )
}

/// The first event of a run that contradicts the report.
fn contradiction(build: &Build, report: &Report, seen: &Seen) -> Option<String> {
    for (_, processor, one) in report.operations() {
        let Some((worst, missed)) = seen.worst.get(&(one.operation.0, one.critical)) else { continue };
        if one.bound_ns.is_some_and(|bound| *worst > bound) {
            return Some(format!("{} on {}: saw {worst}, {one:?}", one.name, processor.strategy));
        }
        if one.verdict.is_proved() && *missed {
            return Some(format!("{} on {} missed: saw {worst}, {one:?}", one.name, processor.strategy));
        }
    }
    // The generator's chains begin at their root, so they count from the origin.
    for (index, chain) in report.scenes[0].chains.iter().enumerate() {
        let last = build.chains[index].path.last()?;
        let Some(finish) = seen.finish.get(&last.0) else { continue };
        if chain.bound_ns.is_some_and(|bound| *finish > bound) {
            return Some(format!("saw {finish} to {last:?}: {chain:?}"));
        }
    }
    None
}

/// Contradictions in a few runs of a system.
fn refuted(build: &Build, report: &Report, seed: u64) -> Option<String> {
    let (system, plan) = (build.system(), build.plan());
    let draws = [Draw::AsWritten, Draw::Synchronous, Draw::Random, Draw::Random, Draw::Random];
    draws.into_iter().enumerate().find_map(|(turn, draw)| {
        let seen = Reference::run(&system, &plan, draw, seed.rotate_left(turn as u32), HORIZON);
        contradiction(build, report, &seen).map(|found| format!("{draw:?}: {found}"))
    })
}

/// The first `count` systems that the generator makes.
fn some_builds(count: usize) -> impl Iterator<Item = Build> {
    let mut runner = TestRunner::deterministic();
    (0..count).map(move |_| builds().new_tree(&mut runner).unwrap().current())
}

/// An effect that an analysis may have omitted.
type Slip = (&'static str, fn(&mut Build));

const SLIPS: [Slip; 7] = [
    ("a nanosecond of execution", |build| build.ops.iter_mut().for_each(|op| op.wcet = (op.wcet - 1).max(1))),
    ("jitter", |build| build.ops.iter_mut().for_each(|op| op.jitter = 0)),
    ("resources", |build| build.ops.iter_mut().for_each(|op| op.uses.clear())),
    ("legs", |build| build.ops.iter_mut().for_each(|op| (op.legs, op.critical_legs) = (1, 1))),
    ("that a job may keep the CPU", |build| {
        build.processors.iter_mut().for_each(|processor| processor.1 = Preemption::Full)
    }),
    ("a link's delay", |build| build.delay = (0, 0)),
    ("that triggers inherit jitter", |build| build.ops.iter_mut().for_each(|op| op.guard = Guard::On)),
];

/// An analysis that omits an effect equals one of a system without it; runs of the whole system refute it, for levels
/// by rate and for levels by key.
#[test]
fn an_analysis_that_forgets_something_is_caught() {
    for strategies in [&["RMS", "DM"][..], &["EDF"], &["EDF", "MLF", "MUF"]] {
        for (what, slip) in SLIPS {
            let mut caught = some_builds(4_000).enumerate().filter(|(seed, build)| {
                let mut whole = build.clone();
                for (index, processor) in whole.processors.iter_mut().enumerate() {
                    processor.0 = strategies[(seed + index) % strategies.len()];
                }
                let mut lesser = whole.clone();
                slip(&mut lesser);
                lesser != whole && refuted(&whole, &lesser.report(), *seed as u64).is_some()
            });
            assert!(caught.next().is_some(), "{what} was forgotten under {strategies:?} and no run showed it");
        }
    }
}

/// Bounds that are never reached could be loose without a test to show it.
#[test]
fn bounds_of_every_analysis_are_reached() {
    let mut tally: BTreeMap<String, [usize; 5]> = BTreeMap::new();
    for (seed, build) in some_builds(3_000).enumerate() {
        let (system, plan, report) = (build.system(), build.plan(), build.report());
        let mut worst = BTreeMap::new();
        for (turn, draw) in [Draw::AsWritten, Draw::Synchronous, Draw::Random, Draw::Random].into_iter().enumerate() {
            let seen = Reference::run(&system, &plan, draw, (seed * 4 + turn) as u64, HORIZON);
            for (key, (response, _)) in seen.worst {
                let longest = worst.entry(key).or_insert(0);
                *longest = response.max(*longest);
            }
        }
        for (_, processor, one) in report.operations() {
            let [proved, fails, unknown, bounds, exact] =
                tally.entry(format!("{:8} {:?}", processor.strategy, one.method)).or_default();
            *proved += usize::from(one.verdict.is_proved());
            *fails += usize::from(one.verdict.fails());
            *unknown += usize::from(!one.verdict.is_proved() && !one.verdict.fails());
            *bounds += usize::from(one.bound_ns.is_some());
            *exact += usize::from(
                one.bound_ns.is_some() && one.bound_ns == worst.get(&(one.operation.0, one.critical)).copied(),
            );
        }
    }
    println!("{:40} proved  fails unknown bounds reached", "");
    for (what, [proved, fails, unknown, bounds, exact]) in &tally {
        println!("{what:40} {proved:6} {fails:6} {unknown:7} {bounds:6} {exact:7}");
    }
    let reached = |method: &str| {
        tally.iter().filter(|(what, _)| what.ends_with(method)).map(|(_, counts)| counts[4]).sum::<usize>()
    };
    for method in ["FixedPriority", "FixedPriorityNonPreemptive", "Chain", "DeadlineResponse", "LaxityResponse"] {
        assert!(reached(method) > 100, "{method}: {}", reached(method));
    }
}

/// The bounds across switches are needed: some are met exactly, and runs refute an analysis of either strategy alone.
#[test]
fn bounds_across_switches_are_reached_and_those_of_one_strategy_alone_are_not_enough() {
    let (mut bounds, mut exact, mut refutes) = (0, 0, 0);
    for (seed, build) in some_builds(600).enumerate() {
        let alone = build.report();
        let build = Build { overload: Some(["RMS+MLF", "MUF", "EDF", "DM"][seed % 4]), ..build };
        let (system, plan, report) = (build.system(), build.plan(), build.report());
        let mut worst = BTreeMap::new();
        for turn in 0..4 {
            let draw = if turn == 0 { Draw::Synchronous } else { Draw::Random };
            let seen = Reference::run(&system, &plan, draw, (seed * 4 + turn) as u64, HORIZON);
            refutes += usize::from(contradiction(&build, &alone, &seen).is_some());
            for (key, (response, _)) in seen.worst {
                let longest = worst.entry(key).or_insert(0);
                *longest = response.max(*longest);
            }
        }
        for (_, _, one) in report.operations().filter(|(_, _, one)| one.bound_ns.is_some()) {
            bounds += 1;
            exact += usize::from(one.bound_ns == worst.get(&(one.operation.0, one.critical)).copied());
        }
    }
    println!("{bounds} bounds across switches, {exact} reached; one strategy alone refuted {refutes} times");
    assert!(bounds > 500 && exact > 100 && refutes > 50, "{bounds} {exact} {refutes}");
}

/// A switch of strategy lets jobs of one operation overtake each other: their successors wait longer at a guard.
#[test]
fn bounds_behind_a_guard_hold_though_a_switch_lets_jobs_overtake() {
    let build = Build {
        overload: Some("RMS"),
        ..on(
            "EDF",
            Preemption::Full,
            [
                Op { deadline: 1, jitter: 9, critical: false, ..op("o0", 8, 2) },
                Op { deadline: 1, offset: 2, critical: false, after: vec![0], guard: Guard::On, ..op("o1", 8, 1) },
            ],
        )
    };
    let report = build.report();
    assert!(report.operations().all(|(_, _, one)| one.bound_ns.is_some()));
    for seed in 0..2_000 {
        let found = refuted(&build, &report, seed);
        assert!(found.is_none(), "{seed}: {}", found.unwrap_or_default());
    }
}

/// At full load the analysis has no window for late jobs: the bound without lateness counts from the nominal release.
#[test]
fn a_bound_from_its_own_release_holds_at_full_load() {
    let chain = Op { legs: 2, critical_legs: 2, deadline: 1, critical: false, ..op("o0", 10, 4) };
    let late = Op { deadline: 1, from_origin: false, critical: false, after: vec![2], ..op("o3", 30, 6) };
    let remote = |name, period, wcet| Op { on: 1, deadline: wcet, critical: false, ..op(name, period, wcet) };
    let mut build = on("RMS+MLF", Preemption::None, [chain, remote("o1", 12, 2), remote("o2", 30, 3), late]);
    build.processors.push(("RMS", Preemption::None));
    build.delay = (1, 2);
    let report = build.report();
    assert!(report.operations().all(|(_, _, one)| one.bound_ns.is_some()));
    for seed in 0..2_000 {
        let found = refuted(&build, &report, seed);
        assert!(found.is_none(), "{seed}: {}", found.unwrap_or_default());
    }
}

/// Systems with levels by key, below levels by rate and alone, on one processor.
fn keyed_builds() -> impl Strategy<Value = Build> {
    let names = prop::sample::select(vec!["EDF", "MLF", "MUF", "RMS+MLF", "RMS+EDF"]);
    let preemption =
        prop::sample::select(vec![Preemption::None, Preemption::Levels, Preemption::Levels, Preemption::Full]);
    let some = prop::collection::vec(ops(), 2..5);
    (names, preemption, some, any::<bool>(), any::<bool>()).prop_map(|(name, preemption, some, together, simple)| {
        let mut build = on(name, preemption, Vec::new());
        for (index, (mut op, after, section)) in some.into_iter().enumerate() {
            (op.name, op.on, op.wcet) = (format!("op{index}"), 0, op.wcet.div_ceil(2));
            op.deadline = op.deadline.max(op.period);
            if simple {
                (op.legs, op.critical_legs) = (1, 0);
            } else {
                op.uses = vec![(0, section.min(op.wcet))];
            }
            if together {
                (op.phase, op.offset, op.jitter) = (0, 0, 0);
            }
            if after && index > 0 && !simple {
                (op.after, op.period) = (vec![index as u32 - 1], build.ops[index - 1].period);
                (op.phase, op.jitter) = (0, 0);
            }
            build.ops.push(op);
        }
        build
    })
}

/// The same with the shortest deadlines that are still proved.
fn at_the_edge(mut build: Build) -> Build {
    let proved = |build: &Build| build.report().operations().filter(|(_, _, one)| one.verdict.is_proved()).count();
    let whole = proved(&build);
    for index in 0..build.ops.len() {
        let (mut too_short, mut enough) = (0, build.ops[index].deadline);
        while enough - too_short > 1 {
            build.ops[index].deadline = u64::midpoint(too_short, enough);
            *(if proved(&build) >= whole { &mut enough } else { &mut too_short }) = build.ops[index].deadline;
        }
        build.ops[index].deadline = enough;
    }
    build
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6_000, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn no_simulated_response_exceeds_its_proved_bound(build in builds(), seed in any::<u64>()) {
        let found = refuted(&build, &build.report(), seed);
        prop_assert!(found.is_none(), "{}", found.unwrap_or_default());
    }

    /// If one nanosecond less would not be proved, an analysis with an error of one shows it.
    #[test]
    fn systems_at_the_edge_of_what_is_proved_hold(build in prop_oneof![builds(), keyed_builds(), keyed_builds()], seed in any::<u64>()) {
        let edge = at_the_edge(build);
        let found = refuted(&edge, &edge.report(), seed);
        prop_assert!(found.is_none(), "{}: {:#?}", found.unwrap_or_default(), edge);
    }

    /// A call may last for any time: no operation is proved that would not be if the caller needed that much, nor the
    /// caller, nor what it triggers or a chain through it.
    #[test]
    fn a_body_that_may_call_any_object_proves_no_more_than_one_that_may_run_for_ever(
        build in prop_oneof![builds(), keyed_builds()], which in any::<prop::sample::Index>(),
    ) {
        let which = which.index(build.ops.len());
        let (mut calls, mut runs) = (build.clone(), build.clone());
        calls.ops[which].calls_any = true;
        runs.ops[which].wcet = 1_000_000;
        let (calls, runs) = (calls.report(), runs.report());
        let mut reached = vec![false; build.ops.len()];
        reached[which] = true;
        for (index, op) in build.ops.iter().enumerate() {
            reached[index] |= op.after.iter().any(|before| reached[*before as usize]);
        }
        for ((_, _, one), (_, _, other)) in calls.operations().zip(runs.operations()) {
            prop_assert_eq!((one.operation, one.critical), (other.operation, other.critical));
            prop_assert!(!one.verdict.is_proved() || !reached[one.operation.index()], "{} is reached", one.name);
            prop_assert!(!one.verdict.is_proved() || other.verdict.is_proved(), "{}: {:?}", one.name, other.verdict);
        }
        for chain in calls.scenes.iter().flat_map(|scene| &scene.chains).filter(|chain| chain.verdict.is_proved()) {
            let path = &build.chains[chain.chain.index()].path;
            prop_assert!(!path.iter().any(|id| reached[id.index()]), "{}", chain.name);
        }
    }

    #[test]
    fn what_fails_is_seen_to_fail(build in builds()) {
        let (system, plan) = (build.system(), build.plan());
        let report = analyse(&system, &plan);
        let seen = Reference::run(&system, &plan, Draw::AsWritten, 0, HORIZON);
        for (_, processor, one) in report.operations().filter(|(_, _, one)| one.verdict.fails()) {
            let missed = seen.worst.get(&(one.operation.0, one.critical)).is_some_and(|(_, missed)| *missed);
            // A predecessor that never finishes releases no job that could be late.
            let released = seen.worst.contains_key(&(one.operation.0, one.critical));
            prop_assert!(missed || !released, "{} on {}: {:?}", one.name, processor.strategy, one);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    /// Under any sequence of switches.
    #[test]
    fn no_response_exceeds_its_bound_under_any_sequence_of_switches(
        build in prop_oneof![builds(), keyed_builds()], seed in any::<u64>(),
        second in prop::sample::select(vec!["RMS", "DM", "EDF", "MLF", "MUF", "RMS+MLF", "RMS+EDF"]), lighter in 1u64..4,
    ) {
        let mut build = Build { overload: Some(second), ..build };
        for op in &mut build.ops {
            op.wcet = op.wcet.div_ceil(lighter);
            for (_, held) in &mut op.uses {
                *held = (*held).min(op.wcet);
            }
        }
        let found = refuted(&build, &build.report(), seed);
        prop_assert!(found.is_none(), "{}", found.unwrap_or_default());
    }
}
