//! A system in one scene, flattened: the work and the releases of each operation.

use alloc::{vec, vec::Vec};

use hyoshi_model::{ChosenHops, Correlation, Deadline, Guard, OperationId, Preemption, Setting, Span, System, Trigger};

use super::contract_limits;
use super::join;
use super::merge;
use super::verdict::Missing;
use super::work::{Adaptation, Hop, Join, Pattern, ReleaseSource, Scene, Work};
use crate::plan::{Placement, Plan};
use crate::ranking::LevelPosition;
use crate::strategy::Discipline;

/// Every operation, in the system's order.
pub(super) fn works(system: &System, plan: &Plan, scene: Scene) -> Vec<Work> {
    let mut works: Vec<Work> = system.operation_ids().map(|id| work(system, plan, scene, id)).collect();
    let loops = system.follow_loops();
    works.iter_mut().zip(loops).filter(|(_, adapts)| *adapts).for_each(|(work, _)| work.adaptation = Adaptation::Loop);
    contract_limits::apply(system, plan, scene, &mut works);
    // A silent operation triggers no successor.
    loop {
        let silenced: Vec<usize> =
            (0..works.len()).filter(|index| works[*index].runs() && starved(&works, *index)).collect();
        if silenced.is_empty() {
            break;
        }
        for index in silenced {
            works[index].source = ReleaseSource::Silent;
        }
    }
    merge_streams(&mut works);
    if works.iter().any(|work| matches!(work.source, ReleaseSource::After { join: Some(_), .. })) {
        join::settle(system, &mut works, &causes_first(system));
    }
    // From the first of each run on; triggers have no cycles, so this ends.
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

/// Every operation, after all that trigger it. An explicit stack: chains may be long.
pub(super) fn causes_first(system: &System) -> Vec<OperationId> {
    let mut done = vec![false; system.operations.len()];
    let mut order = Vec::with_capacity(done.len());
    let mut pending: Vec<OperationId> = system.operation_ids().collect();
    while let Some(id) = pending.last().copied() {
        let before = pending.len();
        if !done[id.index()] {
            let predecessors = system.operation(id).trigger.predecessors();
            pending.extend(predecessors.iter().filter(|from| !done[from.index()]));
        }
        if pending.len() == before {
            pending.pop();
            if !core::mem::replace(&mut done[id.index()], true) {
                order.push(id);
            }
        }
    }
    order
}

/// Successors of an `any` trigger are released in several streams.
fn merge_streams(works: &mut [Work]) {
    loop {
        let mut moved = false;
        for index in 0..works.len() {
            let streams: Vec<u64> = match &works[index].source {
                // All roots of a join of one root have the same.
                ReleaseSource::After { predecessors, join: None, .. } => {
                    let first = predecessors.first().map(|hop| &works[hop.from]);
                    first.filter(|first| first.streams.len() > 1).map(|first| first.streams.clone()).unwrap_or_default()
                }
                // Of several roots the slowest determines it.
                ReleaseSource::After { predecessors, join: Some(_), .. } => {
                    let slowest = predecessors.iter().map(|hop| &works[hop.from]).max_by_key(|from| from.period);
                    slowest.map(|slowest| slowest.streams.clone()).unwrap_or_default()
                }
                ReleaseSource::AfterAny { predecessors, timeout, .. } => {
                    let running = predecessors.iter().map(|hop| &works[hop.from]).filter(|from| from.runs());
                    running.flat_map(|from| from.streams.iter().copied()).chain(*timeout).collect()
                }
                ReleaseSource::Silent | ReleaseSource::Periodic | ReleaseSource::Unclear(_) => continue,
            };
            let work = &mut works[index];
            if streams.is_empty() || work.streams == streams {
                continue;
            }
            moved = true;
            let guarded = matches!(work.source, ReleaseSource::After { guarded: true, .. });
            match merge::period(&streams).filter(|_| !guarded && streams.len() <= MOST_STREAMS) {
                Some(period) => (work.period, work.streams) = (period, streams),
                None => {
                    work.source = ReleaseSource::Unclear(Missing::Streams);
                    work.streams = vec![work.period];
                }
            }
        }
        // Triggers have no cycles, so this ends.
        if !moved {
            return;
        }
    }
}

/// Streams beyond which a merge is not analysed: a graph of merges has as many as paths.
const MOST_STREAMS: usize = 64;

/// The operations that precede this one without a gap: triggered directly, on this processor, without delay, from
/// levels at least as urgent, all after the same release.
fn run_up(plan: &Plan, works: &[Work], index: usize) -> Option<Vec<OperationId>> {
    let work = &works[index];
    // The other copies of its release may run after it.
    if work.first {
        return None;
    }
    let ReleaseSource::After { predecessors, guarded: false, join: None } = &work.source else { return None };
    // If the order may change at run time, runs are not used.
    let here = || works.iter().filter(|one| one.on == work.on);
    if here().any(|one| one.rekeyed || !one.elsewhere.is_empty()) {
        return None;
    }
    let levels = &plan.processors[work.on.index()].levels;
    let fifo = |place: LevelPosition| {
        levels.get(usize::from(place.level)).is_some_and(|one| one.discipline == Discipline::Fifo)
    };
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
    // The head is first; each operation once, though several paths of a join contain it.
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
        ReleaseSource::After { predecessors, .. } if !works[index].first => {
            predecessors.iter().any(|hop| !works[hop.from].runs())
        }
        ReleaseSource::AfterAny { timeout: Some(_), .. } => false,
        ReleaseSource::After { predecessors, .. } | ReleaseSource::AfterAny { predecessors, .. } => {
            predecessors.iter().all(|hop| !works[hop.from].runs())
        }
        ReleaseSource::Silent | ReleaseSource::Periodic | ReleaseSource::Unclear(_) => false,
    }
}

fn work(system: &System, plan: &Plan, scene: Scene, id: OperationId) -> Work {
    let operation = system.operation(id);
    let ChangedSettings { setting, positions, rekeyed, other_legs, repaced, what } = match scene {
        Scene::Epoch(epoch) => {
            let positions = placements(system, plan, epoch, id).collect();
            ChangedSettings::none(system.setting(epoch, id), positions)
        }
        Scene::Change(epoch) => change(system, plan, epoch, id),
    };
    let place = positions
        .first()
        .copied()
        .unwrap_or(Placement { critical: LevelPosition::default(), other: LevelPosition::default() });
    let elsewhere: Vec<Placement> = positions.into_iter().skip(1).collect();
    let legs = u64::from(setting.legs.max(1));
    let source = match what {
        _ if !setting.enabled => ReleaseSource::Silent,
        Some(what) => ReleaseSource::Unclear(Missing::Change { what }),
        None if setting.period.is_zero() => ReleaseSource::Unclear(Missing::NoPeriod),
        None => source(system, scene, id),
    };
    let sporadic = operation.roots.iter().any(|root| system.operation(*root).is_requested());
    let processor = &plan.processors[operation.on.index()];
    let by_laxity = |place: LevelPosition| {
        processor.levels.get(usize::from(place.level)).is_some_and(|level| level.discipline == Discipline::Laxity)
    };
    // A running job's laxity may become worse than that of a later release with its own deadline.
    let overtakes = processor.preemption == Preemption::Full
        && source.is_triggered()
        && matches!(setting.deadline, Deadline::Own(_))
        && (by_laxity(place.critical) || by_laxity(place.other));
    let any_order = rekeyed || other_legs || overtakes || !elsewhere.is_empty();
    Work {
        operation: id,
        on: operation.on,
        place,
        elsewhere,
        rekeyed,
        any_order,
        repaced,
        legs,
        critical_legs: if operation.critical { legs } else { u64::from(setting.critical_legs).min(legs) },
        wcet: setting.wcet.as_nanos().max(1),
        bcet: setting.bcet.min(setting.wcet).as_nanos(),
        period: setting.period.as_nanos().max(1),
        streams: vec![setting.period.as_nanos().max(1)],
        slowest: setting.slowest.max(setting.period).as_nanos(),
        deadline: setting.deadline,
        offset: setting.offset.as_nanos(),
        jitter: setting.jitter.as_nanos(),
        sporadic,
        adaptation: Adaptation::None,
        later: 0,
        fewest_legs: legs,
        reordered: false,
        unordered: None,
        phase: (matches!(system.epochs[..], [_]) && !sporadic && operation.timeout.is_none())
            .then(|| setting.phase.checked_add(setting.offset))
            .flatten()
            .map(Span::as_nanos),
        source,
        first: matches!(operation.trigger, Trigger::First(_)),
        chosen: matches!(operation.trigger, Trigger::Chosen(_)),
        run_up: Vec::new(),
    }
}

fn source(system: &System, scene: Scene, id: OperationId) -> ReleaseSource {
    let operation = system.operation(id);
    let unclear = || ReleaseSource::Unclear(Missing::Trigger { name: operation.name.clone() });
    let no_bound = |why: &str| ReleaseSource::Unclear(Missing::Join { name: operation.name.clone(), why: why.into() });
    let guarded = operation.guard != Guard::Off;
    let (mut within, timeout) = (None, operation.timeout.map(Span::as_nanos));
    if timeout.is_some() && guarded {
        return no_bound("its guard may delay timeouts without limit: remove `guard`");
    }
    let (predecessors, merges) = match &operation.trigger {
        // On arrival it releases the jobs that were due on the way.
        Trigger::Periodic if system.moves(id) => {
            let declared = system.operation(operation.home.unwrap_or(id)).name.clone();
            return ReleaseSource::Unclear(Missing::Moves { name: operation.name.clone(), declared });
        }
        Trigger::Periodic => return ReleaseSource::Periodic,
        // Requests at the least interval are the worst: periodic ones, of any phase.
        Trigger::Any(any) if any.is_empty() && operation.min_interval.is_some() => return ReleaseSource::Periodic,
        // Several clients may send at once, and the rate of each changes.
        Trigger::Any(any) if any.is_empty() && operation.clients.is_some() => {
            return ReleaseSource::Unclear(Missing::Clients { name: operation.name.clone() });
        }
        Trigger::Any(any) if any.is_empty() => {
            return ReleaseSource::Unclear(Missing::Requests { name: operation.name.clone() });
        }
        Trigger::All(one) | Trigger::Any(one) if one.len() == 1 => (one, timeout.is_some()),
        // Any of the copies may be the only one, so they count from the earliest to the latest.
        Trigger::First(copies) => (copies, timeout.is_some()),
        // As if each completion chose it: a release that is absent delays none.
        Trigger::Chosen(ChosenHops { predecessors, .. }) if predecessors.len() == 1 => {
            (predecessors, timeout.is_some())
        }
        Trigger::Chosen(ChosenHops { predecessors, .. }) if !guarded => (predecessors, true),
        Trigger::All(all) if operation.roots.len() == 1 && system.numbered_by_root(id) => (all, false),
        Trigger::All(_) if timeout.is_some() => {
            return no_bound("it has a timeout, and completions may wait without limit: set `within`");
        }
        Trigger::Any(any) if !guarded => (any, true),
        Trigger::All(all) if operation.roots.len() > 1 => (all, false),
        // The origins are equal, or as far apart as those of the roots, so the window drops no completion.
        Trigger::Correlated(correlation) if timeout.is_none() && drops_nothing(system, id, correlation) => {
            (&correlation.predecessors, false)
        }
        // An arriving completion causes each release, and no joined origin is older than its origin by more than the
        // window.
        Trigger::Correlated(Correlation { predecessors, within: Some(window), .. }) if !guarded => {
            within = Some(window.as_nanos());
            (predecessors, true)
        }
        Trigger::Correlated(Correlation { within: Some(_), .. }) => {
            return no_bound("its guard may delay releases without limit: remove `guard`");
        }
        Trigger::Correlated(_) => {
            return no_bound("one of several operations is sufficient, however old its completion: set `within`");
        }
        Trigger::All(_) | Trigger::Any(_) | Trigger::Chosen(_) => return unclear(),
    };
    let host = |id: OperationId| system.processor(system.operation(id).on).host;
    let hop = |from: &OperationId| {
        let same = system.operation(*from).on == operation.on;
        let (least, most) = if same { Default::default() } else { scene.delay(system, host(*from), host(id)) };
        let error = system.clock_error(host(*from), host(id)).as_nanos();
        Hop { from: from.index(), least: least.as_nanos(), most: most.as_nanos().saturating_add(error), error }
    };
    let joins = predecessors.len() > 1 && operation.roots.len() > 1 && !merges;
    let mut predecessors: Vec<Hop> = predecessors.iter().map(hop).collect();
    if merges {
        // A predecessor may be in several groups. From the same processor, its completion arrives in all groups at once
        // and completes at most one set, because the last group is then empty. From another processor, it may arrive in
        // them at different times.
        predecessors.sort_unstable_by_key(|hop| hop.from);
        let is_here = |hop: &Hop| system.operations[hop.from].on == operation.on;
        predecessors.dedup_by(|one, other| one.from == other.from && is_here(one));
        return ReleaseSource::AfterAny { predecessors, within, timeout };
    }
    // The pattern is known when those of all predecessors are.
    let pattern = Pattern::InStep { reference: 0 };
    let join = joins.then(|| Join { room: u64::from(operation.queue.limit.max(1)), pattern });
    ReleaseSource::After { predecessors, guarded, join }
}

/// True if the completions that a correlation joins never differ by more than its window: those of one release number,
/// or the k-th of roots with one period, whose origins differ by their phases.
fn drops_nothing(system: &System, id: OperationId, correlation: &Correlation) -> bool {
    let operation = system.operation(id);
    if !correlation.is_plain() {
        return false;
    }
    if operation.roots.len() == 1 {
        return system.numbered_by_root(id);
    }
    let [epoch] = &system.epochs[..] else { return false };
    let root = |from: &OperationId| match system.operation(*from).roots[..] {
        [root] if system.numbered_by_root(*from) && system.operation(root).trigger == Trigger::Periodic => {
            Some(&epoch.settings[root.index()])
        }
        _ => None,
    };
    let Some(roots) = correlation.predecessors.iter().map(root).collect::<Option<Vec<&Setting>>>() else {
        return false;
    };
    let one_period = roots.iter().all(|root| root.period == roots[0].period && root.slowest == root.period);
    let first = |root: &&Setting| root.phase.checked_add(root.offset).map_or(u64::MAX, Span::as_nanos);
    let (earliest, latest) = (roots.iter().map(first).min(), roots.iter().map(first).max());
    let spread = latest.unwrap_or(u64::MAX).saturating_sub(earliest.unwrap_or_default());
    one_period && correlation.within.is_none_or(|within| spread <= within.as_nanos())
}

/// Under each strategy of its processor.
pub(super) fn placements(
    system: &System,
    plan: &Plan,
    epoch: usize,
    id: OperationId,
) -> impl Iterator<Item = Placement> {
    let first = &plan.processors[system.operation(id).on.index()];
    let second = first.overload.as_deref().and_then(|second| second.placement(epoch, id));
    first.placement(epoch, id).into_iter().chain(second)
}

/// The settings of an operation while jobs of two epochs are pending.
struct ChangedSettings {
    setting: Setting,
    /// Before and after, under each strategy.
    positions: Vec<Placement>,
    /// Its keys change, though its level may not.
    rekeyed: bool,
    /// Its legs, or how many of them are critical, change.
    other_legs: bool,
    /// Its period changes.
    repaced: bool,
    /// A change for which there is no analysis.
    what: Option<&'static str>,
}

impl ChangedSettings {
    /// Nothing changes.
    fn none(setting: &Setting, positions: Vec<Placement>) -> Self {
        let setting = setting.clone();
        ChangedSettings { setting, positions, rekeyed: false, other_legs: false, repaced: false, what: None }
    }
}

/// The worse of an operation's settings before and after a change, parameter by parameter, and the reason if that is
/// impossible.
///
/// Releases keep the gap of the earlier of two (an armed timer keeps its expiry), so the shorter period bounds the gaps
/// across the change. Within levels by key neither of two keys is the worse one: a later deadline is better for its job
/// and worse for others. So both orders count (`mixed_order`).
fn change(system: &System, plan: &Plan, epoch: usize, id: OperationId) -> ChangedSettings {
    let (before, after) = (system.setting(epoch, id), system.setting(epoch + 1, id));
    let positions = |epoch: usize| placements(system, plan, epoch, id).collect::<Vec<Placement>>();
    let one_side = |setting: &Setting, epoch: usize| ChangedSettings::none(setting, positions(epoch));
    // The remaining legs of a release follow with the settings of the new region.
    if !after.enabled && before.legs <= 1 {
        return one_side(before, epoch);
    }
    if !before.enabled {
        return one_side(after, epoch + 1);
    }
    let mut worse = after.clone();
    worse.enabled = true;
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

    let (mut positions, afterwards) = (positions(epoch), positions(epoch + 1));
    if positions != afterwards {
        positions.extend(afterwards);
    }
    let levels = &plan.processors[system.operation(id).on.index()].levels;
    let discipline = |place: LevelPosition| levels.get(usize::from(place.level)).map(|level| level.discipline);
    let disciplines = || positions.iter().flat_map(|place| [discipline(place.critical), discipline(place.other)]);
    let keyed = disciplines().any(|one| one != Some(Discipline::Fifo));
    let by_laxity = disciplines().any(|one| one == Some(Discipline::Laxity));
    let rekeyed = (keyed && before.deadline != after.deadline) || (by_laxity && before.wcet != after.wcet);
    let what = match () {
        () if before.offset != after.offset => Some("its offset"),
        () if same_origin.is_none() => Some("its deadline"),
        () => None,
    };
    let other_legs = (before.legs, before.critical_legs) != (after.legs, after.critical_legs);
    ChangedSettings { setting: worse, positions, rekeyed, other_legs, repaced: before.period != after.period, what }
}
