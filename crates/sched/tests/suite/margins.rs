//! Margins: a reported value is proved, and a slightly larger one is not.

use hyoshi_model::{Preemption, Span, System};
use hyoshi_sched::analysis::{AnalysisOptions, Bounds, Outcome, OutcomeScope, Sensitivity, analyse_with, sensitivity};
use hyoshi_sched::{Plan, Report, Strategies, analyse};
use proptest::prelude::*;

use crate::build::{Build, Op, chain, on, op};

const US: u64 = 1_000;

fn report(system: &System) -> Report {
    analyse(system, &Plan::new(system, &Strategies::built_in()).unwrap())
}

fn margins(system: &System) -> Sensitivity {
    sensitivity(system, &Strategies::built_in(), &report(system), &|_, _| true)
}

fn holds(build: &Build) -> bool {
    report(&build.system()).outcome == Outcome::Holds
}

#[test]
fn one_operation_alone_can_fill_its_processor() {
    let build = on("RMS", Preemption::Levels, [op("a", 10_000 * US, 2_000 * US)]);
    let found = margins(&build.system());
    let one = &found.operations[0];
    assert!((9_990 * US..=10_000 * US).contains(&one.longest_wcet_ns.unwrap()), "{one:?}");
    assert!((2_000 * US..=2_010 * US).contains(&one.shortest_period_ns.unwrap()), "{one:?}");
    let (worst_cases, rates) = (found.worst_cases.unwrap(), found.rates.unwrap());
    assert!((4_990_000..=5_000_000).contains(&worst_cases.factor_ppm), "{worst_cases:?}");
    assert!((4_990_000..=5_000_000).contains(&rates.factor_ppm), "{rates:?}");
    assert_eq!((worst_cases.first.as_deref(), worst_cases.processor.as_str()), (Some("a"), "cpu0"));
    assert!((998_000..=1_000_000).contains(&worst_cases.breakdown_utilisation_ppm), "{worst_cases:?}");
}

#[test]
fn the_first_failure_is_named_and_counted_subjects_precede_others() {
    // Non-critical work is below: it may be late, the chain may not.
    let low = Op { critical: false, ..op("low", 100_000 * US, 10_000 * US) };
    let first = op("first", 20_000 * US, 5_000 * US);
    let mut build =
        on("RMS", Preemption::Levels, [first, Op { after: vec![0], ..op("last", 20_000 * US, 5_000 * US) }, low]);
    build.chains = vec![chain(&[0, 1], 12_000 * US)];
    let found = margins(&build.system());
    let one = &found.operations[0];
    assert!((6_980 * US..=7_000 * US).contains(&one.longest_wcet_ns.unwrap()), "{one:?}");
    assert_eq!(one.first.as_deref(), Some("chain"));
    assert!(one.own_longest_wcet_ns > one.longest_wcet_ns);
    // `low` can run up to its own deadline, and for the others without limit.
    let low = &found.operations[2];
    assert!((49_900 * US..=50_000 * US).contains(&low.own_longest_wcet_ns.unwrap()), "{low:?}");
    assert!(low.longest_wcet_ns > low.own_longest_wcet_ns);
}

#[test]
fn a_system_that_does_not_hold_reports_the_scale_at_which_it_would() {
    let build = on("RMS", Preemption::Levels, [op("a", 10_000 * US, 8_000 * US), op("b", 20_000 * US, 8_000 * US)]);
    let found = margins(&build.system());
    let scaling = found.worst_cases.unwrap();
    // 80 % and 40 %: a scale of 5/6 makes 100 % of the 120 %, because the periods are harmonic.
    assert!((830_000..=833_333).contains(&scaling.factor_ppm), "{scaling:?}");
    assert_eq!(found.operations[1].own_longest_wcet_ns, None);
}

#[test]
fn an_ended_search_is_reported_as_incomplete() {
    let build = on("RMS", Preemption::Levels, [op("a", 10_000 * US, US), op("b", 10_000 * US, US)]);
    let system = build.system();
    let found = sensitivity(&system, &Strategies::built_in(), &report(&system), &|done, _| done < 1);
    assert_eq!((found.complete, found.operations.len(), found.worst_cases), (false, 1, None));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn what_is_reported_is_proved_and_a_little_more_is_not(
        ops in prop::collection::vec((2_000u64..30_000, 100u64..4_000, 50u64..=100, 0u32..2), 1..5),
        strategy in prop::sample::select(vec!["RMS", "DM", "EDF", "MUF"]),
    ) {
        let ops: Vec<Op> = ops.into_iter().enumerate().map(|(index, (period, wcet, percent, processor))| Op {
            on: processor,
            deadline: period * US * percent / 100,
            ..op(&format!("o{index}"), period * US, wcet * US)
        }).collect();
        let mut build = on(strategy, Preemption::Levels, ops);
        build.processors = vec![build.processors[0]; 2];
        prop_assume!(holds(&build));
        let found = margins(&build.system());
        for (index, margin) in found.operations.iter().enumerate() {
            let with = |change: &dyn Fn(&mut Op)| {
                let mut build = build.clone();
                change(&mut build.ops[index]);
                holds(&build)
            };
            let longest = margin.longest_wcet_ns.unwrap();
            prop_assert!(with(&|op| op.wcet = longest));
            let more = longest + (longest / 1_000).max(US) + 1;
            prop_assert!(!with(&|op| op.wcet = more), "{} {longest}", margin.name);
            let shortest = margin.shortest_period_ns.unwrap();
            let period = build.ops[index].period;
            let with_period = |to: u64| with(&|op| {
                op.deadline = if op.deadline == period { to } else { op.deadline };
                op.period = to;
            });
            prop_assert!(with_period(shortest));
        }
        // Scaled by the factor that is reported, everything holds; a thousandth beyond it does not.
        let factor = found.worst_cases.unwrap().factor_ppm;
        let scaled = |ppm: u64| {
            let mut build = build.clone();
            build.ops.iter_mut().for_each(|op| op.wcet = (op.wcet * ppm).div_ceil(1_000_000));
            holds(&build)
        };
        prop_assert!(scaled(factor) && !scaled(factor + factor / 1_000 + 10));
    }
}

#[test]
fn times_at_the_edge_of_what_can_be_counted_are_no_trouble() {
    let most = Span::from_nanos(u64::MAX / 4).as_nanos();
    for (period, wcet) in [(most, most / 2), (2, 1), (1, 1), (most, 1)] {
        let found = margins(&on("RMS", Preemption::Levels, [op("a", period, wcet), op("b", period, 1)]).system());
        assert_eq!(found.operations.len(), 2);
    }
    let empty = on("RMS", Preemption::Levels, []);
    assert_eq!(margins(&empty.system()), Sensitivity { complete: true, ..Sensitivity::default() });
}

/// Whether each operation's critical and other jobs are proved, by the whole analysis.
fn proved(system: &System) -> Vec<[bool; 2]> {
    let plan = Plan::new(system, &Strategies::built_in()).unwrap();
    let report = analyse_with(system, &plan, AnalysisOptions { bounds: Bounds::None, progress: &|_| true });
    let mut proved = vec![[true; 2]; system.operations.len()];
    for one in report.scenes.iter().flat_map(|scene| &scene.processors).flat_map(|processor| &processor.operations) {
        proved[one.operation.index()][usize::from(one.critical)] &= one.verdict.is_proved();
    }
    proved
}

/// The longest worst cases of an operation with which all relevant verdicts, and its own, stay proved.
fn longest_by_the_whole_analysis(system: &System, index: usize, everything: bool) -> (u64, Option<u64>) {
    let now = proved(system);
    let setting = &system.epochs[0].settings[index];
    let (wcet, deadline) = (setting.wcet.as_nanos(), setting.deadline.span().as_nanos());
    let with = |value: u64| {
        let mut settings = system.epochs[0].settings.to_vec();
        settings[index].wcet = Span::from_nanos(value);
        proved(&system.clone().with(|system| system.epochs[0].settings = settings.into()))
    };
    let own = |proved: &[[bool; 2]]| proved[index] == [true; 2];
    let all = |proved: &[[bool; 2]]| {
        proved.iter().zip(&now).all(|(is, was)| (is[1] || !was[1]) && (!everything || is[0] || !was[0]))
    };
    let fine = |good: u64| (good / 1_000).max(1_000);
    let beyond = deadline.max(wcet) + 1;
    let (mut good, mut bad, mut own_good, mut own_bad) = (wcet, beyond, wcet, beyond);
    while bad - good > fine(good) {
        let middle = good.midpoint(bad);
        let proved = with(middle);
        (own_good, own_bad) =
            if own(&proved) { (own_good.max(middle), own_bad) } else { (own_good, own_bad.min(middle)) };
        *(if all(&proved) { &mut good } else { &mut bad }) = middle;
    }
    let own_now = own(&now);
    while own_now && own_bad > own_good && own_bad - own_good > fine(own_good) {
        let middle = own_good.midpoint(own_bad);
        *(if own(&with(middle)) { &mut own_good } else { &mut own_bad }) = middle;
    }
    (good, own_now.then_some(own_good))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn asking_only_for_what_counts_finds_what_the_whole_analysis_does(
        ops in prop::collection::vec((2_000u64..30_000, 100u64..5_000, 50u64..=110, any::<bool>(), 0u64..500), 1..6),
        strategy in prop::sample::select(vec!["RMS", "EDF", "MLF", "MUF", "RMS+MLF"]),
        preemption in prop::sample::select(vec![Preemption::Levels, Preemption::Full, Preemption::None]),
    ) {
        let ops: Vec<Op> = ops.into_iter().enumerate().map(|(index, (period, wcet, percent, critical, jitter))| Op {
            critical,
            jitter: jitter * US,
            deadline: period * US * percent / 100,
            ..op(&format!("o{index}"), period * US, wcet * US)
        }).collect();
        let system = on(strategy, preemption, ops).system();
        let everything = report(&system).counted == OutcomeScope::Everything;
        for (index, margin) in margins(&system).operations.iter().enumerate() {
            let slow = longest_by_the_whole_analysis(&system, index, everything);
            prop_assert_eq!((margin.longest_wcet_ns.unwrap(), margin.own_longest_wcet_ns), slow, "{}", &margin.name);
        }
    }
}

#[test]
fn a_proved_system_is_proved_at_some_scale() {
    // `late` is never in time. After a read the chain's reaction lasts two periods: slower rates break it.
    let late = Op { deadline: 4_000 * US, ..op("late", 40_000 * US, 5_000 * US) };
    let mut build = on(
        "RMS",
        Preemption::Levels,
        [op("write", 10_000 * US, 1_000 * US), op("read", 10_000 * US, 1_000 * US), late],
    );
    build.chains = vec![chain(&[0, 1], 50_000 * US)];
    build.chains[0].max_reaction = Some(Span::from_nanos(28_000 * US));
    let reads = vec![hyoshi_model::OperationId(0)];
    let system = build.system().with(|system| system.operations[1].reads = reads);
    let proved = |system: &System| report(system).scenes[0].chains.iter().all(|one| one.verdict.is_proved());
    assert!(proved(&system));
    let found = margins(&system).rates.unwrap();
    assert_eq!((found.factor_ppm, found.first.as_deref()), (0, Some("late")));
    // If it is in time at slightly slower rates, those are found, though at half the rates the chain is not proved.
    let mut system = system.into_contents();
    for epoch in &mut system.epochs {
        let mut settings = epoch.settings.to_vec();
        settings[2] = hyoshi_model::Setting {
            wcet: Span::from_nanos(33_000 * US),
            deadline: hyoshi_model::Deadline::Own(settings[2].period),
            ..settings[2].clone()
        };
        epoch.settings = settings.into();
    }
    let system = System::new(system);
    assert!(proved(&system));
    let found = margins(&system).rates.unwrap();
    assert!((850_000..1_000_000).contains(&found.factor_ppm), "{found:?}");
}
