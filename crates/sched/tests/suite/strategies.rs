//! One suite over every entry of the strategies' table.

use std::collections::{BTreeMap, BTreeSet};

use hyoshi_model::{OperationId, Preemption, Setting, Span, System};
use hyoshi_sched::{Discipline, MOST_LEVELS, Plan, ProcessorPlan, Strategies, Traits};
use proptest::prelude::*;

use crate::build::{Op, on, op};

/// Operations on one processor, and further epochs that scale their periods.
fn systems() -> impl Strategy<Value = (Vec<Op>, Vec<u64>)> {
    let one = (1u64..90, 1u64..20, 1u64..90, any::<bool>(), 0u32..4, 1u16..4, 0u16..4);
    let one = one.prop_map(|(period, wcet, deadline, critical, importance, legs, critical_legs)| Op {
        deadline,
        critical,
        importance,
        legs,
        critical_legs: critical_legs.min(legs),
        ..op("", period, wcet)
    });
    (prop::collection::vec(one, 1..90), prop::collection::vec(1u64..4, 0..3))
}

fn system(strategy: &'static str, ops: &[Op], scales: &[u64]) -> System {
    let mut system = on(strategy, Preemption::Levels, ops).system().into_contents();
    for (index, scale) in scales.iter().enumerate() {
        let mut epoch = system.epochs[0].clone();
        epoch.at = hyoshi_model::Instant::from_nanos(1_000 * (index as u64 + 1));
        let mut settings: Vec<Setting> = epoch.settings.to_vec();
        settings.iter_mut().for_each(|setting| setting.period = setting.period * *scale);
        epoch.settings = settings.into();
        system.epochs.push(epoch);
    }
    System::new(system)
}

fn plan(strategy: &'static str, ops: &[Op], scales: &[u64]) -> (System, ProcessorPlan) {
    let system = system(strategy, ops, scales);
    let plan = Plan::new(&system, &Strategies::built_in()).unwrap().processors.remove(0);
    (system, plan)
}

/// All kinds of jobs of every operation in every epoch: the strategy's input, and the assigned level.
fn seats(system: &System, plan: &ProcessorPlan) -> Vec<(Traits, u8, u16)> {
    let mut seats = Vec::new();
    for epoch in 0..system.epochs.len() {
        for id in &plan.operations {
            let (setting, placement) = (system.setting(epoch, *id), plan.placement(epoch, *id).unwrap());
            let kinds = [
                (true, setting.critical_legs, placement.critical),
                (false, setting.legs - setting.critical_legs, placement.other),
            ];
            for (critical, _, place) in kinds.into_iter().filter(|(_, legs, _)| *legs > 0) {
                let seen = Traits {
                    operation: *id,
                    critical,
                    period: setting.period,
                    deadline: setting.deadline.span(),
                    wcet: setting.wcet,
                    importance: system.operation(*id).importance,
                };
                seats.push((seen, place.level, place.tie));
            }
        }
    }
    seats
}

fn names() -> Vec<&'static str> {
    Strategies::built_in().names().into_iter().map(|name| &*name.leak()).collect()
}

proptest! {
    #[test]
    fn levels_are_dense_ordered_and_few((ops, scales) in systems(), name in prop::sample::select(names())) {
        let (system, plan) = plan(name, &ops, &scales);
        let strategies = Strategies::built_in();
        let strategy = strategies.find(name).unwrap();
        let seats = seats(&system, &plan);
        let used: BTreeSet<u8> = seats.iter().map(|(_, level, _)| *level).collect();
        prop_assert!(used.into_iter().eq(0..plan.levels.len() as u8), "a level that nothing uses, or a gap");
        prop_assert!(plan.levels.len() <= MOST_LEVELS);
        let wanted: BTreeSet<(u8, u64)> = seats.iter().map(|(seen, ..)| strategy.urgency(seen)).map(|u| (u.class, u.rank)).collect();
        prop_assert_eq!(wanted.len() - plan.merged, plan.levels.len());
        for (one, level, tie) in &seats {
            let urgency = strategy.urgency(one);
            prop_assert_eq!(plan.levels[usize::from(*level)].discipline, urgency.discipline);
            prop_assert!(!one.critical || plan.levels[usize::from(*level)].critical);
            for (other, other_level, other_tie) in &seats {
                let than = strategy.urgency(other);
                if (urgency.class, urgency.rank) == (than.class, than.rank) {
                    prop_assert_eq!(level, other_level);
                    if urgency.discipline != Discipline::Fifo {
                        prop_assert_eq!(tie.cmp(other_tie), urgency.tie.cmp(&than.tie));
                    }
                }
                if (urgency.class, urgency.rank) < (than.class, than.rank) {
                    prop_assert!(level <= other_level && (level < other_level || plan.merged > 0));
                }
            }
        }
        let critical: BTreeSet<u8> = seats.iter().filter(|(seen, ..)| seen.critical).map(|(_, level, _)| *level).collect();
        for (index, level) in plan.levels.iter().enumerate() {
            prop_assert_eq!(level.critical, critical.contains(&(index as u8)));
        }
    }

    #[test]
    fn a_strategy_decides_on_traits_alone((ops, scales) in systems(), name in prop::sample::select(names())) {
        let (system, plan) = plan(name, &ops, &scales);
        let mut level_of: BTreeMap<(bool, Span, Span, Span, u32), u8> = BTreeMap::new();
        for (seen, level, _) in seats(&system, &plan) {
            let key = (seen.critical, seen.period, seen.deadline, seen.wcet, seen.importance);
            prop_assert_eq!(*level_of.entry(key).or_insert(level), level, "alike in two epochs or operations, yet apart");
        }
    }

    /// The meaning of each strategy, written independently of its code: a wrong sign cannot hide in both.
    #[test]
    fn each_strategy_prefers_what_it_is_named_for((ops, scales) in systems(), name in prop::sample::select(names())) {
        let (system, plan) = plan(name, &ops, &scales);
        let seats = seats(&system, &plan);
        for (one, level, tie) in &seats {
            for (other, than, other_tie) in &seats {
                let discipline = plan.levels[usize::from(*level)].discipline;
                match name {
                    "RMS" => prop_assert!(one.period >= other.period || level <= than),
                    "DM" => prop_assert!(one.deadline >= other.deadline || level <= than),
                    "EDF" => prop_assert!(level == than && discipline == Discipline::Deadline),
                    "MLF" => prop_assert!(level == than && discipline == Discipline::Laxity),
                    "MUF" => prop_assert!((level < than) == (one.critical && !other.critical)),
                    "RMS+MLF" | "RMS+EDF" => {
                        prop_assert!(!one.critical || other.critical || level < than);
                        prop_assert!(!(one.critical && other.critical) || one.period >= other.period || level <= than);
                        prop_assert!(one.critical || other.critical || level == than);
                    }
                    unknown => prop_assert!(false, "say what {unknown} prefers"),
                }
                if level == than && discipline != Discipline::Fifo {
                    prop_assert_eq!(tie < other_tie, one.importance > other.importance);
                }
            }
        }
    }
}

#[test]
fn too_many_levels_are_merged_from_the_least_urgent_of_the_largest_class() {
    let mut ops: Vec<Op> = (0..50).map(|index| op(&format!("op{index}"), 100 + index, 1)).collect();
    ops.push(Op { critical: false, ..op("logger", 1_000, 1) });
    let (_, plan) = plan("RMS+MLF", &ops, &[]);
    assert_eq!((plan.levels.len(), plan.merged), (MOST_LEVELS, 11));
    let level = |index: u32| plan.placement(0, OperationId(index)).unwrap();
    assert_eq!(level(0).critical.level, 0);
    assert_eq!(level(37).critical.level, 37);
    assert_eq!((level(38).critical.level, level(49).critical.level), (38, 38));
    assert_eq!(level(50).other.level, 39);
    assert_eq!(plan.levels[38].label, "critical, every 138ns to 149ns");
}

/// The classes and ranks follow the importance and period of its operations.
struct ByImportance;

impl hyoshi_sched::Strategy for ByImportance {
    fn name(&self) -> &str {
        "own"
    }

    fn summary(&self) -> &str {
        "a class for each importance, a rank for each period"
    }

    fn urgency(&self, operation: &Traits) -> hyoshi_sched::Urgency {
        let (class, rank) = (operation.importance as u8, operation.period.as_nanos());
        hyoshi_sched::Urgency { class, rank, discipline: Discipline::Fifo, tie: 0 }
    }
}

#[test]
fn a_strategy_of_ones_own_never_gets_more_levels_than_there_are() {
    for (classes, ranks) in [(3, 25), (1, 90), (30, 2), (60, 1), (60, 3)] {
        let seat = |index| Op { importance: index % classes, ..op("", 1 + u64::from(index / classes), 1) };
        let ops: Vec<Op> = (0..classes * ranks).map(seat).collect();
        let system = on("own", Preemption::Levels, ops.as_slice()).system();
        let plan = Plan::new(&system, &Strategies::built_in().with(&ByImportance)).unwrap().processors.remove(0);
        assert_eq!(plan.levels.len(), MOST_LEVELS.min((classes * ranks) as usize), "{classes} classes of {ranks}");
        let place = |index: u32| plan.placement(0, OperationId(index)).unwrap().critical.level;
        let order: Vec<u8> =
            (0..classes).flat_map(|class| (0..ranks).map(move |rank| rank * classes + class)).map(place).collect();
        assert!(order.is_sorted(), "{order:?}");
        if classes <= MOST_LEVELS as u32 {
            assert!(
                (1..classes).all(|class| place(class) > place((ranks - 1) * classes + class - 1)),
                "classes share a level"
            );
        }
    }
}

#[test]
fn levels_are_labelled_by_what_is_in_them() {
    let labels = |name, ops: &[Op]| -> Vec<String> {
        plan(name, ops, &[]).1.levels.into_iter().map(|level| level.label).collect()
    };
    let set = [
        op("steer", 25_000_000, 1),
        Op { critical: false, ..op("log", 50_000_000, 1) },
        Op { critical: false, deadline: 25_000_000, ..op("map", 100_000_000, 1) },
    ];
    assert_eq!(labels("RMS+MLF", &set), ["critical, every 25ms", "non-critical, least laxity"]);
    assert_eq!(labels("DM", &set), ["due in 25ms", "non-critical, every 50ms"]);
    assert_eq!(labels("EDF", &set), ["earliest deadline"]);
}

#[test]
fn a_name_is_found_in_any_case_and_an_unknown_one_is_refused_with_the_known() {
    assert_eq!(Strategies::built_in().find("rms+mlf").unwrap().name(), "RMS+MLF");
    let system = on("LIFO", Preemption::Levels, [op("a", 1, 1)]).system();
    let refused = Plan::new(&system, &Strategies::built_in()).unwrap_err();
    assert_eq!(refused.known.len(), 7);
    assert!(refused.to_string().contains("\"LIFO\"; known: RMS, DM"), "{refused}");
}

#[test]
fn a_load_chain_with_critical_first_legs_has_a_place_for_each_kind() {
    let route = Op { critical: false, legs: 5, critical_legs: 2, ..op("route", 100, 1) };
    let (_, plan) = plan("MUF", &[route], &[]);
    let place = plan.placement(0, OperationId(0)).unwrap();
    assert_eq!((place.critical.level, place.other.level), (0, 1));
}
