//! What `analyse` says of systems small enough to judge by hand.

use hyoshi_model::{Guard, Instant, OnBusy, Preemption, Setting, Span};
use hyoshi_sched::analysis::{
    Assumption, Failure, Load, Method, Missing, OperationReport, Outcome, UtilisationBound, Verdict,
};
use hyoshi_sched::{Report, analyse};

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

fn fails(report: &Report, name: &str) -> Failure {
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
    assert_eq!(fails(&report, "a"), Failure::FirstJobLate { finish, deadline: Span::from_nanos(50) });
    assert!(verdict(&report, "b").verdict.is_proved() && verdict(&report, "c").verdict.is_proved());
    assert_eq!(report.outcome, Outcome::DoesNotHold);
    assert_eq!(report.scenes[0].processors[0].first.as_deref(), Some("a"));
    // Released apart, no behaviour is at hand that shows it.
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
fn preemptive_laxity_is_never_proved() {
    // decisions.md: (T, C) = (20, 11), (10, 1), (12, 1) misses at 0.73.
    let set = [op("a", 20, 11), op("b", 10, 1), op("c", 12, 1)];
    let report = on("MLF", Preemption::Full, set.clone()).report();
    assert_eq!(missing(&report, "a"), Missing::PreemptiveLaxity);
    assert_eq!(report.outcome, Outcome::Unknown);
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
    // A direct trigger comes up to 24 late, so two fall into a window of 45; a guarded one does not.
    assert_eq!((verdict(&free, "log").bound_ns, verdict(&guarded, "log").bound_ns), (Some(55), Some(45)));
    assert_eq!(
        (free.scenes[0].chains[0].method, guarded.scenes[0].chains[0].method),
        (Method::Holistic, Method::ReleaseGuard)
    );
}

#[test]
fn a_message_that_may_be_overtaken_waits_for_a_later_turn_at_its_guard() {
    // Arrivals spread over 12 of a period of 8: one may come before the one before it.
    let build = |delay| {
        let sense = Op { jitter: 9, ..op("sense", 8, 2) };
        let fuse = Op { on: 1, after: vec![0], guard: Guard::On, deadline: 40, ..op("fuse", 8, 2) };
        let mut build = on("RMS", Preemption::Levels, [sense, fuse]);
        build.processors.push(("RMS", Preemption::Levels));
        build.delay = delay;
        verdict(&build.report(), "fuse").bound_ns.unwrap()
    };
    // 9 late + 2 + 2 behind the one before + 3 on the way + 2; and a period of 8 if it is overtaken.
    assert_eq!((build((3, 3)), build((1, 3))), (18, 26));
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

#[test]
fn a_reader_of_the_latest_value_is_not_yet_analysed() {
    let mut build = on("RMS", Preemption::Levels, [op("a", 20, 5), op("b", 20, 5)]);
    build.chains = vec![chain(&[0, 1], 20)];
    let report = build.report();
    let expected = Verdict::Unknown { missing: Missing::Read { name: "b".into() } };
    assert_eq!((report.scenes[0].chains[0].verdict.clone(), report.outcome), (expected, Outcome::Unknown));
}

#[test]
fn a_job_that_may_be_dropped_is_not_proved() {
    let long = Op { deadline: 200, ..op("long", 100, 62) };
    let report = |long: Op| on("RMS", Preemption::Levels, [op("short", 70, 26), long]).report();
    assert_eq!(verdict(&report(long.clone()), "long").bound_ns, Some(118));
    assert!(verdict(&report(long.clone()), "long").verdict.is_proved());
    assert_eq!(missing(&report(Op { on_busy: OnBusy::Skip, ..long.clone() }), "long"), Missing::Dropped);
    assert_eq!(missing(&report(Op { queue: 1, ..long }), "long"), Missing::Dropped);
}

#[test]
fn critical_first_legs_are_not_proved_while_later_ones_may_fill_the_queue() {
    let route = |wcet| Op { critical: false, legs: 3, critical_legs: 1, ..op("route", 20, wcet) };
    let report = |wcet| on("MUF", Preemption::Levels, [op("steer", 10, 2), route(wcet)]).report();
    assert_eq!(report(4).outcome, Outcome::Holds);
    assert_eq!(missing(&report(6), "route"), Missing::Dropped);
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
    assert_eq!(missing(&tight, "log"), Missing::Cap);
    // In one queue with held work, or alone above the cap, critical work is not proved.
    assert_eq!(missing(&capped("EDF", 800_000), "steer"), Missing::Cap);
    assert_eq!(missing(&capped("RMS+MLF", 400_000), "steer"), Missing::CapTooSmall);
}

fn with_epochs(build: &Build, change: impl Fn(usize, &mut Vec<Setting>), count: usize) -> Report {
    let mut system = build.system();
    for index in 1..=count {
        let mut epoch = system.epochs[0].clone();
        (epoch.name, epoch.at) = (index.to_string(), Instant::from_nanos(10_000 * index as u64));
        let mut settings = epoch.settings.to_vec();
        change(index, &mut settings);
        epoch.settings = settings.into();
        system.epochs.push(epoch);
    }
    let plan = hyoshi_sched::Plan::new(&system, &hyoshi_sched::Strategies::built_in()).unwrap();
    analyse(&system, &plan)
}

#[test]
fn a_change_of_epoch_is_analysed_only_if_it_is_worse_than_both_sides() {
    let build = on("RMS", Preemption::Levels, [op("a", 10, 2), Op { legs: 1, ..op("b", 40, 5) }]);
    let more_legs = with_epochs(
        &build,
        |index, settings| {
            settings[1].legs = index as u16 + 1;
            settings[1].critical_legs = index as u16 + 1;
        },
        2,
    );
    assert_eq!(more_legs.scenes.len(), 3);
    // One takes over from the other: both may be there for a while.
    let relay = with_epochs(
        &build,
        |_, settings| (settings[0].wcet, settings[1].wcet) = (Span::from_nanos(1), Span::from_nanos(9)),
        1,
    );
    let across = &relay.scenes[1];
    assert!(across.change && across.processors[0].utilisation_ppm == 425_000);
    assert_eq!(relay.outcome, Outcome::Holds);
    let rate = with_epochs(&build, |_, settings| settings[1].period = Span::from_nanos(30), 1);
    assert_eq!(rate.outcome, Outcome::Unknown);
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
