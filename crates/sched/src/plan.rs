//! A plan: for each processor its levels, most urgent first, and in each epoch the level of each
//! operation. It joins a strategy (policy) with the dispatcher (mechanism), and can be printed.
//!
//! Levels are made once, over the operations of all epochs together, so that a lane keeps its
//! meaning when a region changes; what an epoch changes is which level an operation is in.

use alloc::{boxed::Box, collections::BTreeMap, format, string::String, vec, vec::Vec};
use core::fmt;

use hyoshi_model::{OperationId, Preemption, ProcessorId, Setting, Span, System};

use crate::strategy::{Discipline, Strategies, Strategy, Traits, Urgency};

/// The most levels a processor can have: the room that the map of real-time priorities gives to
/// lanes (40 to 79). A strategy that makes more has the least urgent ones of its largest classes merged.
pub const MOST_LEVELS: usize = 40;

/// How every processor of a system orders its work.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// One per processor, in their order.
    pub processors: Vec<ProcessorPlan>,
}

/// How one processor orders its work.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessorPlan {
    /// The processor.
    pub processor: ProcessorId,
    /// The strategy's name.
    pub strategy: String,
    /// Which jobs may interrupt which.
    pub preemption: Preemption,
    /// Levels, most urgent first.
    pub levels: Vec<Level>,
    /// The processor's operations; positions in `placements`.
    pub operations: Vec<OperationId>,
    /// For each epoch, for each of `operations`, its place.
    pub placements: Vec<Vec<Placement>>,
    /// The most urgent level among the users of each resource on this processor, if it has any;
    /// level 0 for a resource that other processors use too, so that its holder is delayed by nobody.
    /// The same under both strategies, if there are two.
    pub ceilings: Vec<Option<u8>>,
    /// How many levels of the strategy were merged for lack of room.
    pub merged: usize,
    /// The plan of the second strategy, which rules in overload, if the processor has one. Its
    /// level `n` is the same lane as level `n` here: the processor has as many lanes as the longer
    /// of the two has levels. It has no further one.
    pub overload: Option<Box<ProcessorPlan>>,
}

/// One static level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// The order of waiting jobs.
    pub discipline: Discipline,
    /// What is in it, in words, such as `critical, every 25ms`.
    pub label: String,
    /// True if critical jobs can be in it.
    pub critical: bool,
}

/// Where an operation's jobs go. Only load chains with critical first legs use both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Of its critical jobs.
    pub critical: Place,
    /// Of its other jobs.
    pub other: Place,
}

/// A level, and the order among jobs of equal key within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Index into [`ProcessorPlan::levels`].
    pub level: u8,
    /// Smaller first.
    pub tie: u16,
}

/// A processor names a strategy that nobody knows.
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
        write!(f, "processor {processor:?} asks for the strategy {name:?}; known are {}", known.join(", "))
    }
}

impl core::error::Error for UnknownStrategy {}

impl Plan {
    /// Asks each processor's strategy how urgent its operations are.
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
            let mut plan = ProcessorPlan::new(system, processor, find(&named.strategy)?);
            if let Some(overload) = &named.overload {
                let mut second = ProcessorPlan::new(system, processor, find(&overload.strategy)?);
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
    fn new(system: &System, processor: ProcessorId, strategy: &dyn Strategy) -> ProcessorPlan {
        let operations: Vec<OperationId> = system.operations_on(processor).collect();
        let wanted: Vec<Vec<[Option<Urgency>; 2]>> = (0..system.epochs.len())
            .map(|epoch| operations.iter().map(|id| urgencies(system, epoch, *id, strategy)).collect())
            .collect();

        let mut seats = Seats::default();
        for urgency in wanted.iter().flatten().flatten().flatten() {
            seats.take(urgency);
        }
        let merged = seats.merge();
        let place = |urgency: Option<Urgency>| urgency.map(|urgency| seats.place(&urgency));
        let placements = wanted.iter().map(|epoch| {
            epoch
                .iter()
                .map(|[critical, other]| {
                    // An operation has jobs of at least one kind; the kind it lacks shares that place.
                    let (critical, other) = (place(*critical), place(*other));
                    Placement {
                        critical: critical.or(other).unwrap_or_default(),
                        other: other.or(critical).unwrap_or_default(),
                    }
                })
                .collect()
        });
        let placements: Vec<Vec<Placement>> = placements.collect();

        let levels = seats.disciplines().into_iter().enumerate().map(|(level, discipline)| {
            let residents = residents(system, &operations, &wanted, &placements, level as u8);
            let critical = residents.iter().any(|(critical, _)| *critical);
            Level { discipline, label: label(discipline, &residents), critical }
        });
        let mut levels: Vec<Level> = levels.collect();
        for position in 0..operations.len() {
            // A load chain that begins with critical legs may end in an epoch that has none.
            let ever = wanted.iter().any(|epoch| epoch[position][0].is_some());
            for placement in placements.iter().map(|epoch| epoch[position]).filter(|_| ever) {
                levels[usize::from(placement.critical.level)].critical = true;
            }
        }
        let ceilings = ceilings(system, &operations, &placements);
        ProcessorPlan {
            processor,
            strategy: strategy.name().into(),
            preemption: system.processor(processor).preemption,
            levels,
            operations,
            placements,
            ceilings,
            merged,
            overload: None,
        }
    }

    /// The place of an operation of this processor in an epoch.
    pub fn placement(&self, epoch: usize, operation: OperationId) -> Option<Placement> {
        let position = self.operations.binary_search(&operation).ok()?;
        Some(self.placements[epoch][position])
    }
}

/// The urgency of an operation's critical and other jobs, where it has such.
fn urgencies(system: &System, epoch: usize, id: OperationId, strategy: &dyn Strategy) -> [Option<Urgency>; 2] {
    let (operation, setting) = (system.operation(id), system.setting(epoch, id));
    let traits = |critical| Traits {
        operation: id,
        critical,
        period: setting.period,
        deadline: setting.deadline.span(),
        wcet: setting.wcet,
        importance: operation.importance,
    };
    let all_critical = operation.critical || setting.critical_legs >= setting.legs;
    let some_critical = operation.critical || setting.critical_legs > 0;
    [some_critical.then(|| strategy.urgency(&traits(true))), (!all_critical).then(|| strategy.urgency(&traits(false)))]
}

/// Whose jobs are in a level, in any epoch: whether critical, and their setting.
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

/// What is in a level: `critical, every 25ms`; `non-critical, least laxity`.
fn label(discipline: Discipline, residents: &[(bool, &Setting)]) -> String {
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
    let (periods, deadlines) = (range(|setting| setting.period), range(|setting| setting.deadline.span()));
    match discipline {
        Discipline::Fifo if periods.0 == periods.1 => format!("{who}every {}", periods.0),
        Discipline::Fifo if deadlines.0 == deadlines.1 => format!("{who}due in {}", deadlines.0),
        Discipline::Fifo => format!("{who}every {} to {}", periods.0, periods.1),
        by_key => format!("{who}{by_key}"),
    }
}

/// The most urgent level among the users of each resource, 0 where other processors use it too.
fn ceilings(system: &System, operations: &[OperationId], placements: &[Vec<Placement>]) -> Vec<Option<u8>> {
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
            let levels = placements.iter().map(|epoch| epoch[position].critical.level.min(epoch[position].other.level));
            let mine = if elsewhere[resource.index()] { Some(0) } else { levels.min() };
            let ceiling = &mut ceilings[resource.index()];
            *ceiling = ceiling.iter().copied().chain(mine).min();
        }
    }
    ceilings
}

/// Distinct levels that operations asked for, and the ties within each.
#[derive(Default)]
struct Seats {
    /// By (class, rank): discipline, and the distinct ties.
    wanted: BTreeMap<(u8, u64), (Discipline, Vec<u32>)>,
    /// After merging: the level of each (class, rank).
    level: BTreeMap<(u8, u64), u8>,
}

impl Seats {
    fn take(&mut self, urgency: &Urgency) {
        let seat = self.wanted.entry((urgency.class, urgency.rank)).or_insert((urgency.discipline, Vec::new()));
        if let Err(position) = seat.1.binary_search(&urgency.tie) {
            seat.1.insert(position, urgency.tie);
        }
    }

    /// Numbers the levels; where there are too many, the least urgent of the largest class share
    /// one, and so on with what is then the largest.
    fn merge(&mut self) -> usize {
        let mut room: BTreeMap<u8, usize> = BTreeMap::new();
        for (class, _) in self.wanted.keys() {
            *room.entry(*class).or_default() += 1;
        }
        let too_many = self.wanted.len().saturating_sub(MOST_LEVELS);
        for _ in 0..too_many {
            // Of equal classes the least urgent one; each keeps a level.
            let largest = room.values_mut().filter(|levels| **levels > 1).max_by_key(|levels| **levels);
            if let Some(levels) = largest {
                *levels -= 1;
            }
        }
        let (mut next, mut of_class) = (0usize, (None, 0));
        for key in self.wanted.keys() {
            let seats = if of_class.0 == Some(key.0) { of_class.1 } else { 0 };
            of_class = (Some(key.0), seats + 1);
            next += usize::from(seats < room[&key.0]);
            // More classes than levels: what is left shares the last.
            self.level.insert(*key, (next.min(MOST_LEVELS) - 1) as u8);
        }
        too_many
    }

    fn place(&self, urgency: &Urgency) -> Place {
        let key = (urgency.class, urgency.rank);
        let level = self.level.get(&key).copied().unwrap_or_default();
        let ties = self.wanted.get(&key).map_or(&[][..], |(_, ties)| ties);
        let tie = ties.binary_search(&urgency.tie).unwrap_or_default();
        Place {
            level,
            tie: if urgency.discipline == Discipline::Fifo { 0 } else { tie.min(usize::from(u16::MAX)) as u16 },
        }
    }

    /// Of each level, that of the most urgent seat in it.
    fn disciplines(&self) -> Vec<Discipline> {
        let mut disciplines = Vec::new();
        for (key, (discipline, _)) in &self.wanted {
            if usize::from(self.level[key]) == disciplines.len() {
                disciplines.push(*discipline);
            }
        }
        disciplines
    }
}
