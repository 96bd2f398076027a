//! Verdicts of `analyse` on systems small enough to check by hand.

use hyoshi_model::{
    Costs, Epoch, FlushPoint, Guard, HostId, Instant, OnBusy, OnMiss, Preemption, Replication, Setting, Span, System,
};
use hyoshi_sched::analysis::{
    AnalysisMethod, Assumption, FailureReason, Load, Missing, OperationReport, Outcome, UtilisationBound, Verdict,
};
use hyoshi_sched::{Plan, Report, Strategies, analyse};

use crate::build::{Build, Op, chain, on, op};

fn verdict<'a>(report: &'a Report, name: &str) -> &'a OperationReport {
    report.operations().find(|(_, _, one)| one.name == name).unwrap().2
}

fn missing(report: &Report, name: &str) -> Missing {
    match &verdict(report, name).verdict {
        Verdict::Unknown { missing } => missing.clone(),
        other => panic!("{name}: {other:?}"),
    }
}

fn missing_or_proved(report: &Report, name: &str) -> Option<Missing> {
    (!verdict(report, name).verdict.is_proved()).then(|| missing(report, name))
}

fn fails(report: &Report, name: &str) -> FailureReason {
    match &verdict(report, name).verdict {
        Verdict::Fails { why } => why.clone(),
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn liu_and_laylands_bound_the_hyperbolic_one_and_response_times_agree() {
    let report = on("RMS", Preemption::Levels, [op("a", 4, 1), op("b", 6, 2), op("c", 12, 2)]).report();
    let cpu = &report.scenes[0].processors[0];
    assert_eq!((cpu.utilisation_ppm, cpu.load), (750_000, Load::Below));
    assert!(matches!(cpu.liu_layland, UtilisationBound::Yes { bound_ppm: 779_763, met: true, .. }));
    assert!(matches!(cpu.hyperbolic, UtilisationBound::Yes { met: true, .. }));
    assert_eq!((report.outcome, cpu.verdict.clone()), (Outcome::Holds, Verdict::Proved));
    assert_eq!((verdict(&report, "c").bound_ns, verdict(&report, "c").slack_ns), (Some(6), Some(6)));
}

#[test]
fn a_job_is_late_by_its_own_jitter_once() {
    // Job q finishes at 5 (q + 1), and is released no earlier than 10 q - 8: 13 after its nominal release at the most.
    let alone = [Op { jitter: 8, deadline: 13, ..op("a", 10, 5) }];
    for preemption in [Preemption::Levels, Preemption::None] {
        let report = on("RMS", preemption, alone.clone()).report();
        assert_eq!((verdict(&report, "a").bound_ns, report.outcome), (Some(13), Outcome::Holds));
    }
    // Tindell, Burns and Wellings: w(q) = (q + 1) 4 + ceil((w + 2) / 10) 3: 7 and 14, so 7 + 6 = 13 of job 0.
    let two = [Op { jitter: 2, ..op("fast", 10, 3) }, Op { jitter: 6, ..op("slow", 12, 4) }];
    let report = on("RMS", Preemption::Levels, two).report();
    assert_eq!(verdict(&report, "slow").bound_ns, Some(13));
}

#[test]
fn a_full_processor_with_harmonic_rates_holds() {
    let report = on("RMS", Preemption::Levels, [op("a", 20, 5), op("b", 40, 10), op("c", 80, 40)]).report();
    assert_eq!(report.scenes[0].processors[0].load, Load::Full);
    assert_eq!((report.outcome, verdict(&report, "c").slack_ns), (Outcome::Holds, Some(0)));
}

#[test]
fn rates_that_are_not_harmonic_fail_with_the_first_job_after_a_common_release() {
    // Burns and Wellings: (T, C) = (50, 12), (40, 10), (30, 10), U = 0.82: the first is late.
    let report = on("RMS", Preemption::Levels, [op("a", 50, 12), op("b", 40, 10), op("c", 30, 10)]).report();
    let finish = Span::from_nanos(52);
    assert_eq!(fails(&report, "a"), FailureReason::FirstJobLate { finish, deadline: Span::from_nanos(50) });
    assert!(verdict(&report, "b").verdict.is_proved() && verdict(&report, "c").verdict.is_proved());
    assert_eq!(report.outcome, Outcome::DoesNotHold);
    assert_eq!(report.scenes[0].processors[0].first.as_deref(), Some("a"));
    // Released apart, no known behaviour shows it.
    let apart = [Op { phase: 1, ..op("a", 50, 12) }, op("b", 40, 10), op("c", 30, 10)];
    let report = on("RMS", Preemption::Levels, apart).report();
    assert_eq!(missing(&report, "a"), Missing::BoundExceedsDeadline);
    assert!(report.scenes[0].processors[0].assumptions.contains(&Assumption::Phases));
    assert_eq!(report.outcome, Outcome::Unknown);
}

#[test]
fn earliest_deadline_first_proves_full_load_and_names_the_window_that_overflows() {
    let proved = on("EDF", Preemption::Full, [op("a", 2, 1), op("b", 5, 2), op("c", 10, 1)]).report();
    assert_eq!((proved.outcome, proved.scenes[0].processors[0].load), (Outcome::Holds, Load::Full));
    // (C, D, T) = (2, 4, 6), (2, 5, 8), (3, 6, 12): 7 of 6 must be done by 6.
    let tight = [
        Op { deadline: 4, ..op("a", 6, 2) },
        Op { deadline: 5, ..op("b", 8, 2) },
        Op { deadline: 6, ..op("c", 12, 3) },
    ];
    let report = on("EDF", Preemption::Full, tight).report();
    let cpu = &report.scenes[0].processors[0];
    assert_eq!(cpu.verdict.word(), "fails");
    assert_eq!(report.outcome, Outcome::DoesNotHold);
    assert!(matches!(missing(&report, "c"), Missing::DemandExceedsWindow { .. }));
    // The bound is shown all the same, with the missing condition.
    assert_eq!((verdict(&report, "c").bound_ns, verdict(&report, "c").slack_ns), (Some(7), Some(-1)));
}

#[test]
fn responses_by_deadline_are_longest_away_from_the_common_release() {
    // The first needs 2 after a common release, but 3 if it arrives 3 after the second.
    let set = [op("a", 6, 2), Op { deadline: 9, ..op("b", 9, 4) }, op("c", 12, 1)];
    let report = on("EDF", Preemption::Full, set.clone()).report();
    let bounds = |report: &Report| ["a", "b", "c"].map(|name| verdict(report, name).bound_ns.unwrap());
    assert_eq!(bounds(&report), [3, 6, 9]);
    assert_eq!(verdict(&report, "a").method, AnalysisMethod::DeadlineResponse);
    // A started job finishes first: each may wait for the longest with a later deadline.
    let kept = on("EDF", Preemption::Levels, set).report();
    assert_eq!(bounds(&kept), [5, 6, 9]);
}

#[test]
fn a_job_that_keeps_the_cpu_blocks_an_earlier_deadline() {
    // Jeffay, Stanat and Martel 1991: without preemption (T, C) = (3, 1), (12, 4) is not schedulable at U = 0.67.
    let set = [op("a", 3, 1), op("b", 12, 4)];
    assert_eq!(on("EDF", Preemption::Full, set.clone()).report().outcome, Outcome::Holds);
    assert_eq!(on("EDF", Preemption::Levels, set.clone()).report().outcome, Outcome::Unknown);
    assert_eq!(on("EDF", Preemption::None, [op("a", 3, 1), op("b", 12, 3)]).report().outcome, Outcome::Holds);
}

#[test]
fn the_bound_of_preemptive_laxity_is_marked_as_tested_and_never_proves() {
    // decisions.md: (T, C) = (20, 11), (10, 1), (12, 1) misses at 0.73.
    let set = [op("a", 20, 11), op("b", 10, 1), op("c", 12, 1)];
    let report = on("MLF", Preemption::Full, set.clone()).report();
    assert_eq!(missing(&report, "a"), Missing::TestedOnly);
    assert!(verdict(&report, "a").bound_ns.is_some_and(|bound| bound <= 20));
    assert!(["b", "c"].iter().any(|one| missing(&report, one) == Missing::BoundExceedsDeadline));
    assert_eq!((report.outcome, verdict(&report, "a").method), (Outcome::Unknown, AnalysisMethod::PreemptiveLaxity));
}

#[test]
fn non_critical_work_under_muf_turns_nothing() {
    let set = [op("steer", 10, 4), Op { critical: false, ..op("log", 10, 9) }];
    let report = on("MUF", Preemption::Levels, set).report();
    let cpu = &report.scenes[0].processors[0];
    assert_eq!((report.outcome, cpu.load), (Outcome::Holds, Load::Above));
    assert_eq!((cpu.verdict.word(), cpu.first.as_deref()), ("fails", Some("log")));
}

#[test]
fn cancelled_work_is_unknown_and_never_fails() {
    for (wcet, expected) in [(12, Missing::Overload), (21, Missing::Cancelled)] {
        let mut build = on("RMS", Preemption::Levels, [op("a", 10, 6), Op { critical: false, ..op("b", 20, wcet) }]);
        assert!(verdict(&build.report(), "b").verdict.fails());
        build.cancel = true;
        assert_eq!(missing(&build.report(), "b"), expected);
    }
}

#[test]
fn a_resource_blocks_who_is_more_urgent_than_its_holder_and_no_one_else() {
    let set = [op("a", 10, 2), op("b", 20, 3), Op { uses: vec![(0, 4)], ..op("c", 40, 5) }];
    let blocked = |user: usize| {
        let mut set = set.clone();
        set[user].uses = vec![(0, 1)];
        let report = on("RMS", Preemption::Levels, set).report();
        [verdict(&report, "a").bound_ns.unwrap(), verdict(&report, "b").bound_ns.unwrap()]
    };
    // The ceiling is the user's level; the holder's first nanosecond was over before.
    assert_eq!(blocked(1), [2, 3 + 2 + 3]);
    assert_eq!(blocked(0), [2 + 3, 3 + 2 + 3]);
}

#[test]
fn a_resource_that_another_processor_uses_leaves_all_unknown() {
    let set = [Op { uses: vec![(0, 1)], ..op("a", 10, 2) }, Op { on: 1, uses: vec![(0, 1)], ..op("b", 20, 3) }];
    let mut build = on("RMS", Preemption::Levels, set);
    build.processors.push(("RMS", Preemption::Levels));
    assert_eq!(missing(&build.report(), "a"), Missing::RemoteResource { name: "resource0".into() });
}

#[test]
fn a_chain_across_processors_adds_delays_and_guards_keep_later_stages_periodic() {
    let build = |guard| {
        let sense = Op { jitter: 1, ..op("sense", 50, 5) };
        let fuse = Op { on: 1, after: vec![0], guard, ..op("fuse", 50, 10) };
        let log = Op { on: 1, deadline: 100, ..op("log", 100, 35) };
        let mut build = on("RMS", Preemption::Levels, [sense, fuse, log]);
        build.processors.push(("RMS", Preemption::Levels));
        build.delay = (2, 20);
        build.chains = vec![chain(&[0, 1], 40)];
        build.report()
    };
    let (free, guarded) = (build(Guard::Off), build(Guard::On));
    // 1 late + 5 + 20 on the way + 10.
    for report in [&free, &guarded] {
        assert_eq!((report.scenes[0].chains[0].bound_ns, verdict(report, "fuse").bound_ns), (Some(36), Some(36)));
        assert!(report.scenes[0].chains[0].verdict.is_proved());
    }
    // A direct trigger is up to 24 late, so two fall into a window of 45; a guarded one does not.
    assert_eq!((verdict(&free, "log").bound_ns, verdict(&guarded, "log").bound_ns), (Some(55), Some(45)));
    assert_eq!(
        (free.scenes[0].chains[0].method, guarded.scenes[0].chains[0].method),
        (AnalysisMethod::Holistic, AnalysisMethod::ReleaseGuard)
    );
}

#[test]
fn a_message_that_may_be_overtaken_waits_for_a_later_turn_at_its_guard() {
    // Arrivals spread over 12 of a period of 8: one may overtake the one before it.
    let build = |delay| {
        let sense = Op { jitter: 9, ..op("sense", 8, 2) };
        let fuse = Op { on: 1, after: vec![0], guard: Guard::On, deadline: 40, ..op("fuse", 8, 2) };
        let mut build = on("RMS", Preemption::Levels, [sense, fuse]);
        build.processors.push(("RMS", Preemption::Levels));
        build.delay = delay;
        verdict(&build.report(), "fuse").bound_ns.unwrap()
    };
    // Releases keep their order: 9 late + 2 + 3 on the way + 2; and a period of 8 if it is overtaken.
    assert_eq!((build((3, 3)), build((1, 3))), (16, 24));
}

#[test]
fn age_is_the_response_and_reaction_a_period_more() {
    let mut build = on("RMS", Preemption::Levels, [op("a", 20, 5), Op { after: vec![0], ..op("b", 20, 5) }]);
    build.chains = vec![chain(&[0, 1], 20)];
    build.chains[0].max_age = Some(Span::from_nanos(10));
    build.chains[0].max_reaction = Some(Span::from_nanos(29));
    let report = build.report();
    let bounds: Vec<_> =
        report.scenes[0].chains.iter().map(|one| (one.bound_ns.unwrap(), one.verdict.is_proved())).collect();
    // One run: b is enqueued when a completes, so neither finds the other in its way.
    assert_eq!(bounds, [(10, true), (10, true), (30, false)]);
}

/// `a` every 20, then `b` every 30 reading it, then `c` after `b`; each a response of 5 on its own processor.
fn sampled() -> Build {
    let ops = [op("a", 20, 5), Op { on: 1, ..op("b", 30, 5) }, Op { on: 2, after: vec![1], ..op("c", 30, 5) }];
    let mut build = on("RMS", Preemption::Levels, ops);
    build.processors = vec![build.processors[0]; 3];
    build.chains = vec![chain(&[0, 1, 2], 100)];
    build.chains[0].max_age = Some(Span::from_nanos(33));
    build.chains[0].max_reaction = Some(Span::from_nanos(63));
    build
}

#[test]
fn what_is_sampled_ages_by_a_period_of_the_writer_and_reacts_by_one_of_each() {
    let report = sampled().report();
    let chains = &report.scenes[0].chains;
    let bounds: Vec<_> = chains.iter().map(|one| (one.bound_ns.unwrap(), one.verdict.is_proved())).collect();
    // 5 + (20 - 1) + 10; and 20 + 5 + (30 - 1) + 10.
    assert_eq!(bounds, [(34, true), (34, false), (64, false)]);
    let stages: Vec<_> = chains[0].stages.iter().map(|stage| (stage.operation.as_str(), stage.by_ns)).collect();
    assert_eq!(stages, [("a", 5), ("b", 29), ("c", 34)]);
}

#[test]
fn what_is_flushed_to_a_replica_ages_until_its_deadline_and_has_no_bound_if_it_may_be_late() {
    let age = |deadline: u64, flush: FlushPoint| {
        let mut build = sampled();
        build.ops[0].deadline = deadline;
        let system = build.system().with(|system| {
            system.operations[0].replication = Some(Replication { to: vec![HostId(1)], flush });
            system.hosts[0].clock_error = Some(Span::from_nanos(3));
        });
        analyse(&system, &Plan::new(&system, &Strategies::built_in()).unwrap()).scenes[0].chains[1].clone()
    };
    // 5 at completion or 20 at the deadline; a period less 1, the clocks, and the reader.
    assert_eq!(age(20, FlushPoint::Completion).bound_ns, Some(5 + 19 + 3 + 10));
    assert_eq!(age(20, FlushPoint::Deadline).bound_ns, Some(20 + 19 + 3 + 10));
    let late = Missing::LateOutput { name: "a".into() };
    assert_eq!(age(4, FlushPoint::Deadline).verdict, Verdict::Unknown { missing: late });
    assert_eq!(age(4, FlushPoint::Completion).bound_ns, Some(5 + 19 + 3 + 10), "late outputs are flushed, too");
}

#[test]
fn what_a_switched_off_operation_left_behind_has_no_bound_on_its_age() {
    let build = sampled();
    let mut system = build.system().into_contents();
    let on = build.settings();
    let mut off = on.to_vec();
    off[0].enabled = false;
    for (at, settings) in [(1_000, off.clone().into()), (2_000, on)] {
        system.epochs.push(Epoch {
            name: at.to_string(),
            at: Instant::from_nanos(at),
            settings,
            environment: Default::default(),
            admissions: Default::default(),
        });
    }
    let system = System::new(system);
    let analysed = |system: &System| analyse(system, &Plan::new(system, &Strategies::built_in()).unwrap());
    let report = analysed(&system);
    let missing = Missing::SwitchedOff { name: "a".into() };
    let of = |epoch: usize| report.scenes.iter().find(|scene| scene.epoch == epoch && !scene.change).unwrap();
    assert_eq!(of(0).chains.len(), 3);
    // Nothing reacts meanwhile, so there is nothing to bound.
    assert_eq!(of(1).chains.len(), 2);
    assert!(of(1).chains.iter().all(|one| one.verdict == Verdict::Unknown { missing: missing.clone() }));
    assert_eq!(of(2).chains.len(), 3);
    // Off from the start there is nothing to be read.
    let report = analysed(&system.with(|system| {
        system.epochs[0].settings = off.into();
        system.epochs.remove(1);
    }));
    assert_eq!(report.scenes[0].chains.len(), 0);
}

#[test]
fn jobs_that_may_be_stopped_or_skipped_after_a_miss_are_missing_behind_it() {
    for rule in [OnMiss::Stop, OnMiss::SkipNext] {
        let age = |deadline: u64, on_miss| {
            let mut build = sampled();
            (build.ops[0].deadline, build.ops[0].on_miss) = (deadline, on_miss);
            let report = build.report();
            (verdict(&report, "a").verdict.clone(), report.scenes[0].chains[1].clone())
        };
        let (in_time, late) = (age(5, rule), age(4, rule));
        assert_eq!(in_time, age(5, OnMiss::Continue));
        assert!(in_time.0.is_proved() && late.0.fails(), "{:?}", late.0);
        assert_eq!(late.1.verdict, Verdict::Unknown { missing: Missing::LateBefore { name: "a".into() } });
        assert_eq!(age(4, OnMiss::Continue).1.bound_ns, Some(34), "late values arrive");
    }
    // 9 and twice 6 by 20 are too much; but each of the more urgent jobs is stopped after 5.
    let low = |on_miss| {
        let high = Op { deadline: 5, on_miss, ..op("high", 10, 6) };
        let report = on("RMS", Preemption::Levels, [high, op("low", 20, 9)]).report();
        assert!(verdict(&report, "high").verdict.fails());
        verdict(&report, "low").verdict.clone()
    };
    assert!(low(OnMiss::Continue).fails());
    assert_eq!(low(OnMiss::Stop), Verdict::Unknown { missing: Missing::Overload });
}

#[test]
fn a_chain_longer_than_its_limit_fails_even_through_reads() {
    let mut build = sampled();
    build.chains[0].max_age = Some(Span::from_nanos(14));
    let report = build.report();
    assert!(report.scenes[0].chains[1].verdict.fails() && report.outcome == Outcome::DoesNotHold);
}

#[test]
fn a_job_that_may_be_dropped_is_not_proved() {
    let long = Op { deadline: 200, ..op("long", 100, 62) };
    let report = |long: Op| on("RMS", Preemption::Levels, [op("short", 70, 26), long]).report();
    assert_eq!(verdict(&report(long.clone()), "long").bound_ns, Some(118));
    assert!(verdict(&report(long.clone()), "long").verdict.is_proved());
    let busy = missing(&report(Op { on_busy: OnBusy::Skip, ..long.clone() }), "long");
    assert!(matches!(&busy, Missing::Busy { name, unfinished: 1, .. } if name == "long"), "{busy}");
    let full = missing(&report(Op { queue: 1, ..long }), "long");
    assert_eq!(full, Missing::Full { name: "long".into(), at_once: 2, limit: 1 });
    assert!(full.to_string().contains("raise it to 2"), "{full}");
}

#[test]
fn critical_first_legs_are_not_proved_while_later_ones_may_fill_the_queue() {
    let route = |wcet| Op { critical: false, legs: 3, critical_legs: 1, ..op("route", 20, wcet) };
    let report = |wcet| on("MUF", Preemption::Levels, [op("steer", 10, 2), route(wcet)]).report();
    assert_eq!(report(4).outcome, Outcome::Holds);
    assert_eq!(missing(&report(6), "route"), Missing::Unbounded { name: "route".into() });
}

#[test]
fn the_cap_leaves_critical_levels_proved_and_what_it_may_hold_unknown() {
    let set = [op("steer", 100, 40), Op { critical: false, ..op("log", 200, 90) }];
    let capped = |strategy, cap_ppm| {
        let preemption = if strategy == "EDF" { Preemption::Full } else { Preemption::Levels };
        let mut build = on(strategy, preemption, set.clone());
        build.cap = (cap_ppm, 10_000);
        build.report()
    };
    let generous = capped("RMS+MLF", 950_000);
    assert!(generous.scenes[0].processors[0].assumptions.contains(&Assumption::CapNeverActs));
    assert!(verdict(&generous, "log").verdict.is_proved());
    let tight = capped("RMS+MLF", 800_000);
    assert!(verdict(&tight, "steer").verdict.is_proved());
    let cap = missing(&tight, "log");
    let Missing::Cap { held: None, resource: None, enough, .. } = &cap else { panic!("{cap:?}") };
    let with = |percent: u32| missing_or_proved(&capped("RMS+MLF", percent * 10_000), "log");
    assert!(with(*enough).is_none() && with(enough - 1).is_some(), "{enough}");
    assert_eq!(cap.to_string(), format!("the cap of cpu0 may delay its jobs: raise `cap` to {enough} %"));
    // In one queue with delayed work, or alone above the cap, critical work is not proved.
    let beside = missing(&capped("EDF", 800_000), "steer");
    assert!(matches!(&beside, Missing::Cap { held: Some(held), resource: None, .. } if held == "log"), "{beside}");
    assert!(matches!(missing(&capped("RMS+MLF", 400_000), "steer"), Missing::CapTooSmall { .. }));
    // Nor if delayed work has a resource that it needs: the message names that.
    let mut sharing = on("RMS", Preemption::Levels, set.clone().map(|one| Op { uses: vec![(0, 5)], ..one }));
    sharing.cap = (800_000, 10_000);
    let why = missing(&sharing.report(), "steer").to_string();
    assert!(why.contains("delay log while it holds resource0: raise `cap` to"), "{why}");
}

#[test]
fn an_operation_after_any_of_several_runs_as_often_as_all_of_them_together() {
    let merge = Op { after: vec![0, 1], any: true, deadline: 100, ..op("merge", 50, 3) };
    let follows = Op { after: vec![2], deadline: 100, ..op("follows", 50, 1) };
    let slow = Op { deadline: 200, ..op("slow", 200, 10) };
    let set = [op("a", 50, 4), op("b", 50, 5), merge.clone(), follows.clone(), slow];
    let report = on("RMS", Preemption::Levels, set).report();
    // Two periods of 50 make one of 25, rounded down.
    let merged = verdict(&report, "merge");
    assert_eq!((merged.period_ns, merged.verdict.is_proved()), (24, true));
    assert_eq!(report.outcome, Outcome::Holds);
    // A guard keeps the rate of one root, and there are two.
    let guarded = Op { guard: Guard::On, ..follows };
    let report = on("RMS", Preemption::Levels, [op("a", 50, 4), op("b", 50, 5), merge, guarded]).report();
    assert_eq!(missing(&report, "follows"), Missing::Streams);
}

fn costs(timer: u64, enqueue: u64, dequeue: u64, cancel: u64, switch: u64) -> Costs {
    let ns = Span::from_nanos;
    Costs {
        timer: ns(timer),
        enqueue: ns(enqueue),
        dequeue: ns(dequeue),
        cancel: ns(cancel),
        switch: ns(switch),
        ..Costs::NONE
    }
}

#[test]
fn scheduling_costs_are_paid_by_who_causes_them() {
    let after = Op { after: vec![1], ..op("after", 200, 10) };
    let mut build = on("RMS", Preemption::Levels, [op("a", 100, 10), op("b", 200, 20), after]);
    build.costs = costs(3, 2, 1, 7, 4);
    let report = build.report();
    let bounds = ["a", "b", "after"].map(|name| verdict(&report, name).bound_ns.unwrap());
    // Two releases by timer at 3 + 2; a dequeue and two switches each; b's enqueue of its successor; the switch of a
    // less urgent lane. Nothing is cancelled here, so there is no decision.
    let level = 10 + 19 + 31 + 19;
    assert_eq!(bounds, [10 + 19 + 4, level, level]);
    let cpu = &report.scenes[0].processors[0];
    assert!(cpu.assumptions.contains(&Assumption::Overheads(build.costs)));
    assert!(!cpu.assumptions.contains(&Assumption::NoOverheads));
    assert!(matches!(cpu.liu_layland, UtilisationBound::No { .. }));
    build.costs = Costs::NONE;
    assert!(build.report().scenes[0].processors[0].assumptions.contains(&Assumption::NoOverheads));
}

#[test]
fn less_urgent_releases_and_the_watchdog_interrupt_even_what_nothing_interrupts() {
    let second = |count: u64| 1_000_000_000 * count;
    let set = [op("a", second(1), 100_000_000), Op { critical: false, ..op("b", second(2), 1_000) }];
    let mut build = on("RMS+MLF", Preemption::None, set);
    build.cancel = true;
    build.costs = Costs { watchdog: Span::from_nanos(5), ..costs(30, 20, 10, 7, 4) };
    let bound = verdict(&build.report(), "a").bound_ns.unwrap();
    // Up to its start: one job of b and the cost of one that is cancelled, both releases and one check by the watchdog;
    // then, while it runs, both releases again and the watchdog up to three times.
    let to_start = (1_000 + 17 - 1) + 17 + 2 * 50 + 5;
    assert_eq!(bound, to_start + 100_000_000 + 10 + 2 * 50 + 3 * 5);
}

#[test]
fn costs_larger_than_operations_prove_nothing_and_do_not_panic() {
    for preemption in [Preemption::None, Preemption::Levels, Preemption::Full] {
        for strategy in ["RMS", "EDF", "MLF", "MUF", "RMS+MLF"] {
            for cost in [100, 1 << 40, u64::MAX / 2, u64::MAX] {
                let mut build = on(strategy, preemption, [op("a", 100, 10), Op { legs: 3, ..op("b", 200, 20) }]);
                (build.costs, build.cancel) = (costs(cost, cost, cost, cost, cost), true);
                build.costs.watchdog = Span::from_nanos(cost);
                let report = build.report();
                assert!(
                    report.operations().all(|(_, _, one)| !one.verdict.is_proved()),
                    "{strategy} {preemption:?} {cost}"
                );
            }
        }
    }
}

fn with_epochs(build: &Build, change: impl Fn(usize, &mut Vec<Setting>), count: usize) -> Report {
    let mut system = build.system().into_contents();
    for index in 1..=count {
        let mut epoch = system.epochs[0].clone();
        (epoch.name, epoch.at) = (index.to_string(), Instant::from_nanos(10_000 * index as u64));
        let mut settings = epoch.settings.to_vec();
        change(index, &mut settings);
        epoch.settings = settings.into();
        system.epochs.push(epoch);
    }
    let system = System::new(system);
    let plan = hyoshi_sched::Plan::new(&system, &hyoshi_sched::Strategies::built_in()).unwrap();
    analyse(&system, &plan)
}

#[test]
fn a_change_of_epoch_is_analysed_unless_nothing_changes() {
    let build = on("RMS", Preemption::Levels, [op("a", 10, 2), Op { legs: 1, ..op("b", 40, 5) }]);
    let more_legs = with_epochs(
        &build,
        |index, settings| {
            settings[1].legs = index as u16 + 1;
            settings[1].critical_legs = index as u16 + 1;
        },
        2,
    );
    // Each change has a separate scene, even if one side is the worse in everything.
    assert_eq!(
        more_legs.scenes.iter().map(|scene| scene.change).collect::<Vec<_>>(),
        [false, true, false, true, false]
    );
    assert_eq!(with_epochs(&build, |_, _| (), 2).scenes.len(), 3);
    // One replaces the other: both may be pending for a while.
    let relay = with_epochs(
        &build,
        |_, settings| (settings[0].wcet, settings[1].wcet) = (Span::from_nanos(1), Span::from_nanos(9)),
        1,
    );
    let across = &relay.scenes[1];
    assert!(across.change && across.processors[0].utilisation_ppm == 425_000);
    assert_eq!(relay.outcome, Outcome::Holds);
    let offset = with_epochs(&build, |_, settings| settings[1].offset = Span::from_nanos(3), 1);
    assert_eq!(offset.outcome, Outcome::Unknown);
}

#[test]
fn a_rate_that_changes_its_level_counts_on_both_sides_of_the_change() {
    let build = on("RMS", Preemption::Levels, [op("a", 20, 4), op("b", 40, 3)]);
    let report = with_epochs(&build, |_, settings| settings[1].period = Span::from_nanos(10), 1);
    let across = &report.scenes[1];
    assert!(across.change && across.processors[0].operations.iter().all(|one| one.method == AnalysisMethod::AnyOrder));
    // Each may precede the other, once.
    let bounds: Vec<_> = across.processors[0].operations.iter().map(|one| one.bound_ns.unwrap()).collect();
    assert_eq!((bounds, report.outcome), (vec![7, 7], Outcome::Holds));
}

#[test]
fn two_strategies_are_judged_each_alone_and_across_switches() {
    let log = |wcet| Op { critical: false, ..op("log", 20, wcet) };
    let build = |wcet| {
        let set = [op("steer", 40, 10), op("guide", 80, 10), log(wcet)];
        Build { overload: Some("RMS+MLF"), ..on("RMS", Preemption::Levels, set) }.report()
    };
    let bounds = |report: &Report, name: &str| {
        let one = verdict(report, name);
        (one.bound_ns, one.alone.iter().map(|alone| (alone.strategy.clone(), alone.bound_ns)).collect::<Vec<_>>())
    };
    let (light, heavy) = (build(4), build(16));
    // By rate alone it waits for the log once; with the log below it, for no job. Across switches it waits for two jobs
    // of the log, and for jobs that started at its own level under the other strategy.
    let alone = |first, second| vec![("RMS".into(), first), ("RMS+MLF".into(), second)];
    assert_eq!(bounds(&light, "steer"), (Some(28), alone(Some(14), Some(10))));
    assert_eq!((light.outcome, light.scenes[0].processors[0].overload.as_deref()), (Outcome::Holds, Some("RMS+MLF")));
    assert!(light.scenes[0].processors[0].assumptions.contains(&Assumption::Switches));
    // Too much for the first: the second alone keeps the critical work.
    assert_eq!(missing(&heavy, "steer"), Missing::OverloadAcross);
    let proved: Vec<_> = verdict(&heavy, "steer").alone.iter().map(|alone| alone.verdict.is_proved()).collect();
    assert_eq!(proved, [false, true]);
}

#[test]
fn bad_numbers_are_unknown_without_a_panic() {
    let huge = u64::MAX;
    for strategy in ["RMS", "DM", "EDF", "MLF", "MUF", "RMS+MLF", "RMS+EDF"] {
        for preemption in [Preemption::None, Preemption::Levels, Preemption::Full] {
            let wild = [
                Op { jitter: huge, legs: 9, ..op("a", huge, huge) },
                Op { offset: huge, phase: huge, deadline: huge, ..op("b", 1, 1) },
                Op { after: vec![0], deadline: 0, ..op("c", huge, 1) },
                Op { deadline: 3, ..op("d", 0, 1) },
                op("e", huge - 1, 0),
            ];
            let report = on(strategy, preemption, wild).report();
            let proved: Vec<_> =
                report.operations().filter(|one| one.2.verdict.is_proved()).map(|one| &one.2.name).collect();
            assert_eq!(proved.len(), 0, "{strategy}: {proved:?}");
        }
    }
}

#[test]
fn a_system_without_critical_work_counts_everything() {
    let relaxed = |wcet| on("RMS", Preemption::Levels, [Op { critical: false, ..op("a", 10, wcet) }]).report().outcome;
    assert_eq!((relaxed(9), relaxed(11)), (Outcome::Holds, Outcome::DoesNotHold));
}

#[test]
fn a_body_that_may_call_any_object_leaves_it_and_those_that_it_delays_or_triggers_unknown() {
    let ops = [
        op("above", 10, 2),
        Op { calls_any: true, ..op("caller", 20, 2) },
        op("below", 40, 2),
        Op { on: 1, after: vec![1], ..op("next", 20, 2) },
        Op { on: 1, ..op("beside", 5, 1) },
    ];
    let mut build = on("RMS", Preemption::Levels, ops);
    build.processors.push(("RMS", Preemption::Levels));
    build.chains.push(chain(&[1, 3], 100));
    let calls = Missing::Calls { name: "caller".into() };
    assert_eq!(calls.to_string(), "caller may call any object and wait for it: name the method in its `calls`");
    let report = build.report();
    for (name, expected) in [
        ("above", None),
        ("caller", Some(calls.clone())),
        ("below", Some(calls.clone())),
        ("next", Some(Missing::Predecessor { name: "caller".into() })),
        ("beside", None),
    ] {
        assert_eq!(missing_or_proved(&report, name), expected, "{name}");
    }
    assert_eq!(report.scenes[0].chains[0].verdict, Verdict::Unknown { missing: calls.clone() });
    assert_eq!(report.outcome, Outcome::Unknown);
    let bound = &report.scenes[0].processors[0].liu_layland;
    assert!(matches!(bound, UtilisationBound::No { .. }), "{bound:?}");
    // Its releases cost time above all lanes, but no more than before.
    let costs = Costs { timer: Span::from_nanos(1), ..Costs::NONE };
    let with_costs = Build { costs, ..build.clone() }.report();
    assert_eq!(missing_or_proved(&with_costs, "above"), None);
    // Nothing preempts it, or its deadline orders it: it delays all.
    for (strategy, preemption) in [("RMS", Preemption::None), ("EDF", Preemption::Levels), ("EDF", Preemption::Full)] {
        build.processors[0] = (strategy, preemption);
        assert_eq!(missing_or_proved(&build.report(), "above"), Some(calls.clone()), "{strategy} {preemption:?}");
        assert_eq!(missing_or_proved(&build.report(), "beside"), None);
    }
    // A resource, too: the file refuses it.
    build.processors[0] = ("RMS", Preemption::Levels);
    (build.ops[0].uses, build.ops[1].uses) = (vec![(0, 1)], vec![(0, 1)]);
    assert_eq!(missing_or_proved(&build.report(), "above"), Some(calls));
}

#[test]
fn requests_of_registered_clients_have_no_bound_and_less_urgent_operations_neither() {
    let text = "name = 'clients'\n[processor.main]\nstrategy = 'RMS'\ncap = '100%'\nhard_cap = '100%'\n\
        [feedback.main]\nalgorithm = 'FC-U'\nutilisation = '90%'\nendpoints = ['tcp/127.0.0.1:7475']\n\
        [operation.above]\nevery = '5ms'\nwcet = '1ms'\n\
        [operation.query]\ncalled = true\nclients = { rate = ['1Hz', '20Hz'] }\nwcet = '1ms'\n\
        [operation.below]\nevery = '100ms'\nwcet = '1ms'\n\
        [object.map]\noperation = 'query'\nendpoints = ['tcp/127.0.0.1:7473']\n";
    let system = hyoshi_model::read(text, "clients.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let report = analyse(&system, &Plan::new(&system, &Strategies::built_in()).unwrap());
    assert_eq!(missing_or_proved(&report, "above"), None);
    for name in ["query", "below"] {
        let missing = Missing::Clients { name: "query".into() };
        assert_eq!(missing_or_proved(&report, name), Some(missing), "{name}");
    }
}

/// Its arrival releases the jobs that were due on the way.
#[test]
fn an_operation_that_moves_leaves_less_urgent_ones_unknown_on_each_of_its_processors() {
    let own = |at: &str| {
        format!(
            "[processor.{at}]\nstrategy = 'RMS'\ncap = '100%'\nhard_cap = '100%'\n\
            [feedback.{at}]\nalgorithm = 'FC-U'\nutilisation = '90%'\n\
            [operation.above-{at}]\non = '{at}'\nevery = '5ms'\nwcet = '1ms'\n\
            [operation.below-{at}]\non = '{at}'\nevery = '100ms'\nwcet = '1ms'\n\
            [operation.least-{at}]\non = '{at}'\nrate = ['1Hz', '2Hz']\nwcet = '1us'\n"
        )
    };
    let track = "[operation.track]\non = ['one', 'two']\nevery = '20ms'\nwcet = '1ms'\n";
    let text = format!("name = 'moves'\n{}{}{track}", own("one"), own("two"));
    let system = hyoshi_model::read(&text, "moves.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let report = analyse(&system, &Plan::new(&system, &Strategies::built_in()).unwrap());
    for (at, track) in [("one", "track"), ("two", "track@two")] {
        let missing = Some(Missing::Moves { name: track.into(), declared: "track".into() });
        assert_eq!(missing_or_proved(&report, &format!("above-{at}")), None);
        assert_eq!(missing_or_proved(&report, track), missing);
        assert_eq!(missing_or_proved(&report, &format!("below-{at}")), missing);
    }
}

#[test]
fn an_adapted_rate_leaves_unknown_what_depends_on_the_order_of_rates() {
    let text = |feedback: &str| {
        format!(
            "name = 'loop'\n[processor.main]\nstrategy = 'RMS'\ncap = '100%'\nhard_cap = '100%'\n{feedback}\
             [operation.above]\nevery = '5ms'\nwcet = '1ms'\ncritical = true\n\
             [operation.tight]\nevery = ['10ms', '1s']\nwcet = '1ms'\ndeadline = '10ms'\ncritical = true\n\
             [operation.after]\nafter = {{ all = ['tight'] }}\nwcet = '1ms'\n\
             [operation.below]\nevery = '100ms'\nwcet = '50ms'\n\
             [chain.c]\npath = ['tight', 'after']\ndeadline = '1s'\n"
        )
    };
    let report = |text: &str| {
        let system = hyoshi_model::read(text, "loop.toml", None).unwrap().system;
        analyse(&system, &Plan::new(&system, &Strategies::built_in()).unwrap())
    };
    let feedback = "[feedback.main]\nalgorithm = 'FC-U'\nutilisation = '90%'\n";
    // At the highest rate `tight` is above `below`. At the lowest it waits for 50 ms.
    let fixed = report(&text(""));
    assert!(["above", "tight", "after", "below"].iter().all(|name| missing_or_proved(&fixed, name).is_none()));
    let adapted = report(&text(feedback));
    assert_eq!(missing_or_proved(&adapted, "above"), None);
    for name in ["tight", "after", "below"] {
        assert_eq!(missing_or_proved(&adapted, name), Some(Missing::Rates), "{name}");
        assert_eq!(verdict(&adapted, name).bound_ns, None, "{name}");
    }
    assert_eq!(adapted.scenes[0].chains[0].verdict, Verdict::Unknown { missing: Missing::Rates });
    assert_eq!(adapted.outcome, Outcome::Unknown);
    // An overload at the highest rates need not occur.
    let overloaded = report(&text(feedback).replace("'10ms', '1s'", "'1.1ms', '1s'"));
    assert_eq!(overloaded.outcome, Outcome::Unknown);
    assert!(matches!(overloaded.scenes[0].processors[0].verdict, Verdict::Unknown { .. }));
}

#[test]
fn a_chain_is_always_late_only_if_it_is_at_the_lowest_service_levels() {
    let levels = "levels = [\
        { name = 'low', wcet = '5ms', value = 1 }, { name = 'high', wcet = '40ms', value = 9 }]";
    for [see, act] in [[levels, "wcet = '1ms'"], ["wcet = '1ms'", levels]] {
        let verdict = |deadline: &str| {
            let text = format!(
                "name = 'levels'\n[processor.main]\ncap = '100%'\nhard_cap = '100%'\n\
                 [feedback.main]\nalgorithm = 'FC-U'\nutilisation = '70%'\ndivide = 'value'\n\
                 [operation.see]\nrate = '5Hz'\n{see}\n\
                 [operation.act]\nafter = {{ all = ['see'] }}\n{act}\n\
                 [chain.c]\npath = ['see', 'act']\ndeadline = '{deadline}'\n"
            );
            let system =
                hyoshi_model::read(&text, "levels.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
            let report = analyse(&system, &Plan::new(&system, &Strategies::built_in()).unwrap());
            report.scenes[0].chains[0].verdict.clone()
        };
        assert_eq!(verdict("50ms"), Verdict::Proved);
        assert!(matches!(verdict("40ms"), Verdict::Unknown { .. }));
        assert!(matches!(verdict("5ms"), Verdict::Fails { .. }));
    }
}

/// The rates of another processor have nothing to do with it.
#[test]
fn what_fails_at_the_largest_service_level_is_unknown_because_of_the_levels() {
    let text = "name = 'levels'\n[processor.main]\n[processor.other]\n\
        [feedback.main]\nalgorithm = 'FC-U'\nutilisation = '70%'\ndivide = 'value'\n\
        [feedback.other]\nalgorithm = 'FC-U'\nutilisation = '70%'\n\
        [operation.see]\non = 'main'\nrate = '5Hz'\ndeadline = '30ms'\n\
        levels = [{ name = 'low', wcet = '10ms', value = 1 }, { name = 'high', wcet = '40ms', value = 2 }]\n\
        [operation.poll]\non = 'other'\nrate = ['1Hz', '2Hz']\nwcet = '1ms'\n";
    let system = hyoshi_model::read(text, "levels.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let report = analyse(&system, &Plan::new(&system, &Strategies::built_in()).unwrap());
    assert_eq!(missing_or_proved(&report, "see"), Some(Missing::Levels));
}

#[test]
fn drawn_behaviours_keep_the_times_of_the_largest_service_level() {
    let text = "name = 'levels'\n[processor.main]\n\
        [feedback.main]\nalgorithm = 'FC-U'\nutilisation = '70%'\ndivide = 'value'\n\
        [operation.see]\nrate = '5Hz'\ntakes = { uniform = ['20ms', '40ms'] }\n\
        levels = [{ name = 'low', wcet = '10ms', value = 1 }, { name = 'high', wcet = '40ms', value = 2 }]\n";
    let system = hyoshi_model::read(text, "levels.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let numbers = hyoshi_sched::analysis::numbers(&system, 0);
    let drawn = numbers.into_iter().filter_map(|number| hyoshi_sched::analysis::behaviour(&system, 0, number));
    let least: Vec<Span> = drawn.map(|one| one.epochs[0].settings[0].execution_time.shortest()).collect();
    assert!(least.len() > 2 && least.iter().all(|time| *time >= Span::from_millis(20)), "{least:?}");
}
