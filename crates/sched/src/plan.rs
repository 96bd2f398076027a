//! A plan: for each processor its levels, most urgent first, and in each epoch the level of each
//! operation. It joins a strategy (policy) with the dispatcher (mechanism), and can be printed.
//!
//! Levels are created once, over the operations of all epochs together, so a lane keeps its meaning when a region
//! changes; an epoch changes only the level of an operation.

use alloc::{boxed::Box, format, string::String, vec, vec::Vec};
use core::fmt;

use hyoshi_model::{
    ContractAction, ContractSetting, OperationId, Preemption, ProcessorId, Setting, Span, System, Trigger,
};

use crate::ranking::{LevelPosition, Ranking, RankingInput};
use crate::strategy::{Discipline, Strategies, Strategy, Traits, Urgency};

/// The order of work on every processor of a system.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// One per processor, in their order.
    pub processors: Vec<ProcessorPlan>,
}

/// The order of work on one processor.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessorPlan {
    /// The processor.
    pub processor: ProcessorId,
    /// The strategy's name.
    pub strategy: String,
    /// Which jobs may preempt which.
    pub preemption: Preemption,
    /// Levels, most urgent first.
    pub levels: Vec<Level>,
    /// The processor's operations; positions in `placements`.
    pub operations: Vec<OperationId>,
    /// For each epoch, for each of `operations`, its place.
    pub placements: Vec<Vec<Placement>>,
    /// The most urgent level among the users of each resource on this processor, if it has any; level 0 for a resource
    /// that other processors also use, so its holder is not delayed. The same under both strategies, if there are two.
    pub ceilings: Vec<Option<u8>>,
    /// For each of `operations`, a bit mask of the levels that its jobs can have: by epochs, adapted rates and
    /// requests.
    pub reach: Vec<u64>,
    /// For each of `operations`, whether an adapted rate changes its level.
    pub varies: Vec<bool>,
    /// How many levels of the strategy were merged to fit.
    pub merged: usize,
    /// Numbers the levels.
    pub ranking: Ranking,
    /// The plan of the second strategy, which applies in overload, if the processor has one. Its level `n` is the same
    /// lane as level `n` here: the processor has as many lanes as the longer of the two has levels. It has no further
    /// one.
    pub overload: Option<Box<ProcessorPlan>>,
}

/// One static level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// The order of waiting jobs.
    pub discipline: Discipline,
    /// A description of its contents, such as `critical, every 25ms`.
    pub label: String,
    /// True if critical jobs can be in it.
    pub critical: bool,
}

/// The positions of an operation's jobs. Only load chains with critical first legs use both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Of its critical jobs.
    pub critical: LevelPosition,
    /// Of its other jobs.
    pub other: LevelPosition,
}

/// A processor names an unknown strategy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownStrategy {
    /// The name.
    pub name: String,
    /// The processor that names it.
    pub processor: String,
    /// The names that are known.
    pub known: Vec<String>,
}

impl fmt::Display for UnknownStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnknownStrategy { name, processor, known } = self;
        write!(f, "processor {processor:?} has the unknown strategy {name:?}; known: {}", known.join(", "))
    }
}

impl core::error::Error for UnknownStrategy {}

impl Plan {
    /// Builds the plan from the urgencies that each processor's strategy assigns.
    pub fn new(system: &System, strategies: &Strategies) -> Result<Plan, UnknownStrategy> {
        let processors = system.processor_ids().map(|processor| {
            let named = system.processor(processor);
            let find = |strategy: &String| {
                strategies.find(strategy).ok_or_else(|| UnknownStrategy {
                    name: strategy.clone(),
                    processor: named.name.clone(),
                    known: strategies.names(),
                })
            };
            let mut plan = ProcessorPlan::new(system, processor, find(&named.strategy)?, 0);
            if let Some(overload) = &named.overload {
                // A critical job that started keeps its level at a switch, so other work must not be above it.
                let critical = plan.levels.iter().rposition(|level| level.critical).map_or(0, |last| last + 1);
                let mut second = ProcessorPlan::new(system, processor, find(&overload.strategy)?, critical);
                // A holder keeps its level at a switch, so it must be the highest under both.
                for (one, other) in plan.ceilings.iter_mut().zip(&mut second.ceilings) {
                    let both = [*one, *other].into_iter().flatten().min();
                    (*one, *other) = (both, both);
                }
                plan.overload = Some(Box::new(second));
            }
            Ok(plan)
        });
        Ok(Plan { processors: processors.collect::<Result<_, _>>()? })
    }
}

impl ProcessorPlan {
    /// Classes without critical jobs have levels from `other` on, if there are so many.
    fn new(system: &System, processor: ProcessorId, strategy: &'static dyn Strategy, other: usize) -> ProcessorPlan {
        let operations: Vec<OperationId> = system.operations_on(processor).collect();
        let wanted: Vec<Vec<[Option<Urgency>; 2]>> = (0..system.epochs.len())
            .map(|epoch| operations.iter().map(|id| urgencies(system, epoch, *id, strategy)).collect())
            .collect();

        let varies = |id: &OperationId| (adapts(system, *id, strategy), requested(system, *id));
        let varies: Vec<_> = operations.iter().map(varies).collect();
        let each = wanted.iter().flat_map(|epoch| epoch.iter().zip(&varies));
        let each = each.flat_map(|(kinds, (by, requested))| {
            let kinds = kinds.iter().zip([true, false]);
            kinds.filter_map(|(urgency, critical)| {
                let (adapted_by, requested) = (*by, *requested);
                Some(RankingInput { urgency: (*urgency)?, critical, adapted_by, requested })
            })
        });
        let ties = contract_ties(system, processor, strategy).into_iter();
        let ranking = Ranking::new(strategy, each, ties, other);
        let place = |urgency: Option<Urgency>| urgency.map(|urgency| ranking.place(&urgency));
        let placements = wanted.iter().map(|epoch| {
            epoch
                .iter()
                .map(|[critical, other]| {
                    // An operation has jobs of at least one kind; the missing kind shares that position.
                    let (critical, other) = (place(*critical), place(*other));
                    Placement {
                        critical: critical.or(other).unwrap_or_default(),
                        other: other.or(critical).unwrap_or_default(),
                    }
                })
                .collect()
        });
        let placements: Vec<Vec<Placement>> = placements.collect();

        let levels = ranking.disciplines().into_iter().enumerate().map(|(level, discipline)| {
            let residents = residents(system, &operations, &wanted, &placements, level as u8);
            let critical = residents.iter().any(|(critical, _)| *critical);
            let label = label(discipline, &residents, ranking.varies());
            Level { discipline, label, critical }
        });
        let mut levels: Vec<Level> = levels.collect();
        for position in 0..operations.len() {
            // A load chain that begins with critical legs may end in an epoch that has none.
            let ever = wanted.iter().any(|epoch| epoch[position][0].is_some());
            for placement in placements.iter().map(|epoch| epoch[position]).filter(|_| ever) {
                levels[usize::from(placement.critical.level)].critical = true;
            }
        }
        let levels_of = |position: usize| {
            let places =
                placements.iter().flat_map(|epoch: &Vec<Placement>| [epoch[position].critical, epoch[position].other]);
            places.flat_map(|place| ranking.reach(place.level)).fold(0, |mask: u64, level| mask | 1 << level)
        };
        let reach: Vec<u64> = (0..operations.len()).map(levels_of).collect();
        let critical: Vec<bool> = levels.iter().map(|level| level.critical).collect();
        for (index, level) in (0u8..).zip(&mut levels) {
            level.critical |= ranking.reach(index).any(|one| critical[usize::from(one)]);
        }
        let ceilings = ceilings(system, &operations, &reach);
        ProcessorPlan {
            processor,
            strategy: strategy.name().into(),
            preemption: system.processor(processor).preemption,
            levels,
            operations,
            placements,
            ceilings,
            reach,
            varies: varies.iter().map(|(by, _)| by.is_some()).collect(),
            merged: ranking.merged,
            ranking,
            overload: None,
        }
    }

    /// Whether an adapted rate changes the level of an operation of this processor.
    pub fn varies(&self, operation: OperationId) -> bool {
        self.operations.binary_search(&operation).is_ok_and(|position| self.varies[position])
    }

    /// The position of an operation of this processor in an epoch.
    pub fn placement(&self, epoch: usize, operation: OperationId) -> Option<Placement> {
        let position = self.operations.binary_search(&operation).ok()?;
        Some(self.placements[epoch][position])
    }
}

/// True if only requests release an operation's jobs. Each request sets its criticality.
pub(crate) fn requested(system: &System, id: OperationId) -> bool {
    matches!(&system.operation(id).trigger, Trigger::Any(predecessors) if predecessors.is_empty())
}

/// The classes and ties of operations with an importance that contracts set.
fn contract_ties(system: &System, processor: ProcessorId, strategy: &dyn Strategy) -> Vec<(u8, u32)> {
    let mut ties = Vec::new();
    let regions = system.contracts.iter().flat_map(|one| &one.regions);
    for action in regions.flat_map(|region| &region.actions) {
        let ContractAction::Set { setting: ContractSetting::Importance(id), to } = action else { continue };
        if system.operation(*id).on != processor {
            continue;
        }
        for (epoch, critical) in (0..system.epochs.len()).flat_map(|epoch| [(epoch, true), (epoch, false)]) {
            let declared = traits(system, epoch, *id, critical);
            let tie = strategy.urgency(&Traits { importance: *to, ..declared }).tie;
            ties.push((strategy.urgency(&declared).class, tie));
        }
    }
    ties
}

/// The root that changes an operation's rank by its rate.
fn adapts(system: &System, id: OperationId, strategy: &dyn Strategy) -> Option<OperationId> {
    let root = system.adapted_by(id)?;
    let changes = (0..system.epochs.len()).any(|epoch| {
        let slowest = system.setting(epoch, root).slowest;
        let kinds = urgencies(system, epoch, id, strategy).into_iter().zip([true, false]);
        kinds.filter_map(|(urgency, critical)| Some((urgency?, traits(system, epoch, id, critical)))).any(
            |(fastest, at)| {
                let deadline = if system.setting(epoch, id).deadline_adapts() { slowest } else { at.deadline };
                strategy.urgency(&Traits { period: slowest, deadline, ..at }).rank != fastest.rank
            },
        )
    });
    changes.then_some(root)
}

fn traits(system: &System, epoch: usize, id: OperationId, critical: bool) -> Traits {
    let (operation, setting) = (system.operation(id), system.setting(epoch, id));
    Traits {
        operation: id,
        critical,
        period: setting.period,
        deadline: setting.deadline.span(),
        wcet: setting.wcet,
        importance: operation.importance,
    }
}

/// The urgency of an operation's critical and other jobs, if it has such.
fn urgencies(system: &System, epoch: usize, id: OperationId, strategy: &dyn Strategy) -> [Option<Urgency>; 2] {
    kinds(system, epoch, id).map(|kind| Some(strategy.urgency(&kind?)))
}

/// The strategy's input for an operation's critical and its other jobs, if it has such.
pub(crate) fn kinds(system: &System, epoch: usize, id: OperationId) -> [Option<Traits>; 2] {
    let (operation, setting) = (system.operation(id), system.setting(epoch, id));
    let all_critical = (operation.critical || setting.critical_legs >= setting.legs) && !requested(system, id);
    let some_critical = operation.critical || setting.critical_legs > 0;
    let traits = |critical| traits(system, epoch, id, critical);
    [some_critical.then(|| traits(true)), (!all_critical).then(|| traits(false))]
}

/// The jobs in a level, in any epoch: whether critical, and their setting.
fn residents<'a>(
    system: &'a System,
    operations: &[OperationId],
    wanted: &[Vec<[Option<Urgency>; 2]>],
    placements: &[Vec<Placement>],
    level: u8,
) -> Vec<(bool, &'a Setting)> {
    let mut residents = Vec::new();
    for (epoch, (wanted, placements)) in wanted.iter().zip(placements).enumerate() {
        for (id, (wanted, placement)) in operations.iter().zip(wanted.iter().zip(placements)) {
            let setting = system.setting(epoch, *id);
            let kinds = [(true, placement.critical), (false, placement.other)].into_iter().zip(wanted);
            let here = kinds.filter(|((_, place), wanted)| wanted.is_some() && place.level == level);
            residents.extend(here.map(|((critical, _), _)| (critical, setting)));
        }
    }
    residents
}

/// The contents of a level: `critical, every 25ms`; `non-critical, least laxity`.
fn label(discipline: Discipline, residents: &[(bool, &Setting)], varies: bool) -> String {
    let critical = residents.iter().filter(|(critical, _)| *critical).count();
    let who = match critical {
        0 => "non-critical, ",
        all if all == residents.len() => "critical, ",
        _ => "",
    };
    let range = |of: fn(&Setting) -> Span| {
        let least = residents.iter().map(|(_, setting)| of(setting)).min().unwrap_or_default();
        (least, residents.iter().map(|(_, setting)| of(setting)).max().unwrap_or_default())
    };
    if residents.is_empty() {
        return if varies { "spare, for adapted rates" } else { "spare, for the other strategy" }.into();
    }
    let (periods, deadlines) = (range(|setting| setting.period), range(|setting| setting.deadline.span()));
    match discipline {
        Discipline::Fifo if periods.0 == periods.1 => format!("{who}every {}", periods.0),
        Discipline::Fifo if deadlines.0 == deadlines.1 => format!("{who}due in {}", deadlines.0),
        Discipline::Fifo => format!("{who}every {} to {}", periods.0, periods.1),
        by_key => format!("{who}{by_key}"),
    }
}

/// The most urgent level among the users of each resource, 0 if other processors also use it.
fn ceilings(system: &System, operations: &[OperationId], reach: &[u64]) -> Vec<Option<u8>> {
    let mut ceilings: Vec<Option<u8>> = vec![None; system.resources.len()];
    let mut elsewhere = vec![false; system.resources.len()];
    let here = operations.first().map(|id| system.operation(*id).on);
    for operation in system.operations.iter().filter(|operation| Some(operation.on) != here) {
        for (resource, _) in &operation.uses {
            elsewhere[resource.index()] = true;
        }
    }
    for (position, id) in operations.iter().enumerate() {
        for (resource, _) in &system.operation(*id).uses {
            let mine = if elsewhere[resource.index()] { 0 } else { reach[position].trailing_zeros() as u8 };
            let ceiling = &mut ceilings[resource.index()];
            *ceiling = Some(ceiling.map_or(mine, |other| other.min(mine)));
        }
    }
    ceilings
}
