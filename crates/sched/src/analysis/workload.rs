//! A system in one scene, flattened: what each operation asks of its processor, and when.

use alloc::vec::Vec;

use hyoshi_model::{Deadline, Guard, OperationId, ProcessorId, Setting, System, Trigger};

use super::verdict::Missing;
use crate::plan::{Place, Placement, Plan};
use crate::strategy::Discipline;

/// An epoch, or the change from one to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scene {
    /// The epoch, once jobs of the epoch before have gone.
    Epoch(usize),
    /// From this epoch to the next: jobs of both are there.
    Change(usize),
}

/// One operation in one scene.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Work {
    pub operation: OperationId,
    pub on: ProcessorId,
    pub place: Placement,
    /// Jobs per release, and how many of the first are critical.
    pub legs: u64,
    pub critical_legs: u64,
    /// Of one job; at least 1 ns, as the analyses want it.
    pub wcet: u64,
    pub bcet: u64,
    pub period: u64,
    /// The longest gap between nominal releases that rates allow.
    pub slowest: u64,
    pub deadline: Deadline,
    pub offset: u64,
    pub jitter: u64,
    pub source: Source,
    /// Operations before it that hand over to it without a gap (see [`fixed`](super::fixed)), the first
    /// of them first; none for most.
    pub run_up: Vec<OperationId>,
}

/// What releases it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Source {
    /// Nothing in this scene.
    Silent,
    /// Time.
    Periodic,
    /// One completion of each of these for each release of their one root, as they stand in the system.
    After { predecessors: Vec<Hop>, guarded: bool },
    /// No analysis bounds it.
    Unclear(Missing),
}

/// From a predecessor, over a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Hop {
    pub from: usize,
    pub least: u64,
    pub most: u64,
}

impl Work {
    /// True if it asks for the CPU in this scene.
    pub fn runs(&self) -> bool {
        !matches!(self.source, Source::Silent)
    }

    /// Whose release its own follows without a gap: the first of its run-up, or itself.
    pub fn head(&self) -> OperationId {
        self.run_up.first().copied().unwrap_or(self.operation)
    }

    /// Worst case of all jobs of one release.
    pub fn whole(&self) -> u64 {
        self.wcet.saturating_mul(self.legs)
    }
}

/// Every operation, in the system's order.
pub(super) fn works(system: &System, plan: &Plan, scene: Scene) -> Vec<Work> {
    let mut works: Vec<Work> = system.operation_ids().map(|id| work(system, plan, scene, id)).collect();
    // Nothing triggers what follows a silent operation.
    loop {
        let silenced: Vec<usize> =
            (0..works.len()).filter(|index| works[*index].runs() && starved(&works, *index)).collect();
        if silenced.is_empty() {
            break;
        }
        for index in silenced {
            works[index].source = Source::Silent;
        }
    }
    // From the first of each run on; triggers make no cycles, so this ends.
    loop {
        let longer = |index: usize| Some((index, run_up(plan, &works, index)?));
        let found: Vec<_> =
            (0..works.len()).filter_map(longer).filter(|(index, run_up)| works[*index].run_up != *run_up).collect();
        if found.is_empty() {
            return works;
        }
        for (index, run_up) in found {
            works[index].run_up = run_up;
        }
    }
}

/// The operations that hand over to this one without a gap: triggered directly, here, at once, from
/// levels at least as urgent, all of them after one and the same release.
fn run_up(plan: &Plan, works: &[Work], index: usize) -> Option<Vec<OperationId>> {
    let work = &works[index];
    let Source::After { predecessors, guarded: false } = &work.source else { return None };
    let levels = &plan.processors[work.on.index()].levels;
    let fifo =
        |place: Place| levels.get(usize::from(place.level)).is_some_and(|one| one.discipline == Discipline::Fifo);
    let first_level = if work.critical_legs > 0 { work.place.critical.level } else { work.place.other.level };
    let last_level =
        |one: &Work| if one.critical_legs < one.legs { one.place.other.level } else { one.place.critical.level };
    let head = works[predecessors.first()?.from].head();
    let hands_over = |hop: &Hop| {
        let from = &works[hop.from];
        from.on == work.on && from.head() == head && last_level(from) <= first_level
    };
    let at_once = work.offset == 0 && work.jitter == 0 && fifo(work.place.critical) && fifo(work.place.other);
    if !at_once || !predecessors.iter().all(hands_over) {
        return None;
    }
    let mut run_up: Vec<OperationId> = Vec::new();
    for from in predecessors.iter().map(|hop| &works[hop.from]) {
        run_up.extend(from.run_up.iter().copied().chain([from.operation]));
    }
    // The head leads; each operation once, though several paths of a join pass it.
    let mut seen: Vec<OperationId> = Vec::new();
    run_up.retain(|id| {
        !seen.contains(id) && {
            seen.push(*id);
            true
        }
    });
    Some(run_up)
}

fn starved(works: &[Work], index: usize) -> bool {
    match &works[index].source {
        Source::After { predecessors, .. } => predecessors.iter().any(|hop| !works[hop.from].runs()),
        _ => false,
    }
}

fn work(system: &System, plan: &Plan, scene: Scene, id: OperationId) -> Work {
    let operation = system.operation(id);
    let (setting, place, changed) = match scene {
        Scene::Epoch(epoch) => (system.setting(epoch, id).clone(), placement(system, plan, epoch, id), None),
        Scene::Change(epoch) => change(system, plan, epoch, id),
    };
    let legs = u64::from(setting.legs.max(1));
    let source = match changed {
        _ if !setting.enabled => Source::Silent,
        Some(what) => Source::Unclear(Missing::Change { what }),
        None if setting.period.is_zero() => Source::Unclear(Missing::NoPeriod),
        None => source(system, id),
    };
    Work {
        operation: id,
        on: operation.on,
        place,
        legs,
        critical_legs: if operation.critical { legs } else { u64::from(setting.critical_legs).min(legs) },
        wcet: setting.wcet.as_nanos().max(1),
        bcet: setting.bcet.min(setting.wcet).as_nanos(),
        period: setting.period.as_nanos().max(1),
        slowest: setting.slowest.max(setting.period).as_nanos(),
        deadline: setting.deadline,
        offset: setting.offset.as_nanos(),
        jitter: setting.jitter.as_nanos(),
        source,
        run_up: Vec::new(),
    }
}

fn source(system: &System, id: OperationId) -> Source {
    let operation = system.operation(id);
    let unclear = || Source::Unclear(Missing::Trigger { name: operation.name.clone() });
    let predecessors = match &operation.trigger {
        Trigger::Periodic => return Source::Periodic,
        Trigger::All(all) if operation.roots.len() == 1 => all,
        Trigger::Any(any) if any.len() == 1 && operation.roots.len() == 1 => any,
        Trigger::All(_) | Trigger::Any(_) => return unclear(),
    };
    let host = |id: OperationId| system.processor(system.operation(id).on).host;
    let hop = |from: &OperationId| {
        let same = system.operation(*from).on == operation.on;
        let (least, most) = if same { Default::default() } else { system.delay(host(*from), host(id)) };
        Hop { from: from.index(), least: least.as_nanos(), most: most.as_nanos() }
    };
    let guarded = operation.guard != Guard::Off;
    Source::After { predecessors: predecessors.iter().map(hop).collect(), guarded }
}

fn placement(system: &System, plan: &Plan, epoch: usize, id: OperationId) -> Placement {
    let plan = &plan.processors[system.operation(id).on.index()];
    plan.placement(epoch, id).unwrap_or(Placement { critical: Default::default(), other: Default::default() })
}

/// The worse of an operation's settings before and after a change, parameter by parameter, and
/// what makes that impossible.
///
/// Releases keep the gap of the earlier of two (an armed timer keeps its expiry), so the shorter
/// period bounds the gaps across the change. Within levels by key neither of two keys is the worse
/// one: a later deadline is better for its job and worse for others.
fn change(system: &System, plan: &Plan, epoch: usize, id: OperationId) -> (Setting, Placement, Option<&'static str>) {
    let (before, after) = (system.setting(epoch, id), system.setting(epoch + 1, id));
    let places = [placement(system, plan, epoch, id), placement(system, plan, epoch + 1, id)];
    if !after.enabled {
        return (before.clone(), places[0], None);
    }
    if !before.enabled {
        return (after.clone(), places[1], None);
    }
    let mut worse = after.clone();
    worse.period = before.period.min(after.period);
    worse.slowest = before.slowest.max(after.slowest);
    worse.jitter = before.jitter.max(after.jitter);
    worse.wcet = before.wcet.max(after.wcet);
    worse.bcet = before.bcet.min(after.bcet);
    worse.critical_legs = before.critical_legs.max(after.critical_legs);
    let others = |setting: &Setting| setting.legs.saturating_sub(setting.critical_legs);
    worse.legs = worse.critical_legs.saturating_add(others(before).max(others(after)));
    let same_origin = match (before.deadline, after.deadline) {
        (Deadline::Own(one), Deadline::Own(other)) => Some(Deadline::Own(one.min(other))),
        (Deadline::Origin(one), Deadline::Origin(other)) => Some(Deadline::Origin(one.min(other))),
        _ => None,
    };
    worse.deadline = same_origin.unwrap_or(after.deadline);

    let levels = &plan.processors[system.operation(id).on.index()].levels;
    let discipline = |place: Place| levels.get(usize::from(place.level)).map(|level| level.discipline);
    let disciplines = [discipline(places[0].critical), discipline(places[0].other)];
    let keyed = disciplines.iter().any(|one| *one != Some(Discipline::Fifo));
    let by_laxity = disciplines.contains(&Some(Discipline::Laxity));
    let changed = match () {
        () if places[0] != places[1] => Some("its level"),
        () if before.offset != after.offset => Some("its offset"),
        () if same_origin.is_none() || (keyed && before.deadline != after.deadline) => Some("its deadline"),
        () if by_laxity && before.wcet != after.wcet => Some("its worst case"),
        () => None,
    };
    (worse, places[0], changed)
}
