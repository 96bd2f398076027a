//! Regions of contracts: they limit rates and legs, and disable operations, at any time and in any combination.
//!
//! **Releases.** A region changes the time from one nominal release to the next, which is never shorter than at the
//! highest rate: a timer that is armed keeps its expiry, and the new period counts after it. So releases are those of a
//! sporadic operation with the highest rate as its least interval. All analyses here bound the releases in a window from
//! above, so they cover every region, every change between two regions, and operations that are not released at all.
//! Exceptions are joins of several roots, which match completions by their number.
//!
//! **Deadlines.** A deadline that follows the rate is never earlier than that of the highest rate. In levels by key, the
//! work that is due in a window is at most that of the highest rate: a job that is due by then was released by then
//! less the shortest deadline. So no job is late, but its finish may be as much later as its deadline is
//! ([`Work::later`]). It is due when the next one is released, so no more jobs are pending than at the highest rate.
//!
//! **Legs.** A load chain with fewer legs needs less time, but ends earlier: what follows it has a larger jitter
//! ([`Work::fewest_legs`]).
//!
//! **Order.** If the strategy orders by rates, levels are numbered anew with each limit. Waiting jobs move, started ones
//! keep their number. So a job is at any time at one of the levels that its operation has under some limits, which is
//! the case of [`mixed_order`](super::mixed_order).

use alloc::{vec, vec::Vec};

use hyoshi_model::{ContractAction, OperationId, Span, System};

use super::verdict::Missing;
use super::work::{Adaptation, ReleaseSource, Scene, Work};
use crate::plan::{Placement, Plan, ProcessorPlan, kinds, requested};
use crate::ranking::{LevelPosition, RankRange};
use crate::strategy::{Discipline, Traits};

/// The limits of all contracts.
pub(super) fn apply(system: &System, plan: &Plan, scene: Scene, works: &mut [Work]) {
    if system.contracts.is_empty() {
        return;
    }
    let epochs = match scene {
        Scene::Epoch(epoch) => epoch..epoch + 1,
        Scene::Change(epoch) => epoch..epoch + 2,
    };
    for (work, limited) in works.iter_mut().zip(system.follow_contracts()) {
        if !limited || work.adaptation == Adaptation::Loop {
            continue;
        }
        work.adaptation = Adaptation::Limited;
        let id = work.operation;
        let legs = actions(system).filter_map(|action| match action {
            ContractAction::LimitLegs { operation, most } if *operation == id => Some(u64::from(*most)),
            _ => None,
        });
        work.fewest_legs = legs.fold(work.legs, u64::min);
        let periods = periods(system, epochs.clone(), id);
        work.repaced |= periods.len() > 1;
        let by_key = |place: LevelPosition| {
            let level = plan.processors[work.on.index()].levels.get(usize::from(place.level));
            level.is_none_or(|level| level.discipline != Discipline::Fifo)
        };
        let keyed = work.positions().any(|place| by_key(place.critical) || by_key(place.other));
        let follows = epochs.clone().any(|epoch| system.setting(epoch, id).deadline_adapts());
        if keyed && follows {
            let longest = periods.last().copied().unwrap_or_default();
            work.later = longest.saturating_sub(work.deadline.span()).as_nanos();
        }
        if matches!(work.source, ReleaseSource::After { join: Some(_), .. }) {
            let why =
                "a contract limits or disables an operation before it, and no analysis shows which completions match";
            let name = system.operation(id).name.clone();
            work.source = ReleaseSource::Unclear(Missing::Join { name, why: why.into() });
        }
    }
    for processor in &plan.processors {
        order(system, processor, works);
    }
}

/// By operation: whether a contract disables it or an operation before it, other than `spared`.
pub(super) fn stopped(system: &System, spared: Option<OperationId>) -> Vec<bool> {
    let mut stopped = vec![false; system.operations.len()];
    for action in actions(system) {
        if let ContractAction::Disable { operation } = action {
            stopped[operation.index()] |= Some(*operation) != spared;
        }
    }
    // Triggers have no cycles, so this ends.
    loop {
        let follows = |id: &OperationId| {
            let before = system.operation(*id).trigger.predecessors();
            !stopped[id.index()] && before.iter().any(|from| stopped[from.index()])
        };
        match system.operation_ids().find(follows) {
            Some(id) => stopped[id.index()] = true,
            None => return stopped,
        }
    }
}

fn actions(system: &System) -> impl Iterator<Item = &ContractAction> {
    system.contracts.iter().flat_map(|one| &one.regions).flat_map(|region| &region.actions)
}

/// The periods that an operation's root has in these epochs under any limits, the shortest first. Only the declared ones
/// if no contract limits it.
fn periods(system: &System, epochs: core::ops::Range<usize>, id: OperationId) -> Vec<Span> {
    let root = system.adapted_by(id);
    let limits = || {
        actions(system).filter_map(|action| match action {
            ContractAction::LimitPeriod { operation, shortest, longest } if Some(*operation) == root => {
                Some((*shortest, *longest))
            }
            _ => None,
        })
    };
    let slowest = limits().map(|(shortest, _)| shortest).max().unwrap_or_default();
    let mut periods = Vec::new();
    for epoch in epochs {
        let setting = system.setting(epoch, root.unwrap_or(id));
        periods.push(setting.period);
        for (shortest, longest) in limits() {
            // The longest period matters only to limits of a lower precedence that contradict it.
            let both = [Some(shortest), Some(longest).filter(|longest| *longest < slowest)];
            let within = |period: Span| period.clamp(setting.period, setting.slowest.max(setting.period));
            periods.extend(both.into_iter().flatten().map(within));
        }
    }
    periods.sort_unstable();
    periods.dedup();
    periods
}

/// The levels of all operations of a processor, if limits change the order of rates.
fn order(system: &System, plan: &ProcessorPlan, works: &mut [Work]) {
    let any_epoch = 0..system.epochs.len();
    let changes = |id: &OperationId, by: Adaptation| works[id.index()].adaptation == by && plan.varies(*id);
    let limits =
        |id: &OperationId| changes(id, Adaptation::Limited) && periods(system, any_epoch.clone(), *id).len() > 1;
    let limited: Vec<OperationId> = plan.operations.iter().copied().filter(limits).collect();
    let by_loop = plan.operations.iter().any(|id| changes(id, Adaptation::Loop));
    if limited.is_empty() && !by_loop {
        return;
    }
    let unclear = |why: &'static str| match limited.first() {
        Some(first) => Missing::ChangedOrder { name: system.operation(*first).name.clone(), why },
        None => Missing::Rates,
    };
    let ranks = ranks(system, plan, 0);
    if any_epoch.clone().skip(1).any(|epoch| self::ranks(system, plan, epoch) != ranks) {
        // Before the first limit, levels have the numbers of all epochs together, then those of one.
        for id in &plan.operations {
            let place = works[id.index()].place;
            if [place.critical, place.other].iter().any(|place| plan.ranking.reach(place.level).len() > 1) {
                works[id.index()].unordered = Some(unclear("epochs with other rates"));
            }
        }
        return;
    }
    if limited.is_empty() {
        return;
    }
    let uncovered = match () {
        () if plan.merged > 0 => Some("as many rates as this"),
        () if plan.operations.iter().any(|id| requested(system, *id)) => Some("requests on this processor"),
        () if by_loop => Some("rates that a feedback loop adapts on this processor"),
        () => None,
    };
    let ranks = match uncovered.map_or(ranks, Err) {
        Ok(ranks) => ranks,
        Err(why) => {
            limited.iter().for_each(|id| works[id.index()].unordered = Some(unclear(why)));
            return;
        }
    };
    for (id, own) in plan.operations.iter().zip(&ranks) {
        let levels = own.each_ref().map(|kind| {
            let (class, own) = kind.as_ref()?;
            let all = ranks.iter().flatten().flatten().filter(|(other, _)| other == class);
            let all: Vec<RankRange> = all.map(|(_, one)| one.clone()).collect();
            Some(plan.ranking.reachable_levels(*class, own, &all))
        });
        let [critical, other] = levels;
        let (Some(critical), Some(other)) = (critical.or(other), other.or(critical)) else { continue };
        let work = &mut works[id.index()];
        let place = |critical: u8, other: u8| Placement {
            critical: LevelPosition { level: critical, ..work.place.critical },
            other: LevelPosition { level: other, ..work.place.other },
        };
        let mut places = vec![place(critical.0, other.0), place(critical.1, other.1)];
        if own[0] != own[1] {
            places.extend([place(critical.0, other.1), place(critical.1, other.0)]);
        }
        places.retain(|place| {
            (place.critical.level, place.other.level) != (work.place.critical.level, work.place.other.level)
        });
        places.dedup();
        if !places.is_empty() {
            (work.reordered, work.any_order) = (true, true);
            work.elsewhere.extend(places);
        }
    }
}

/// The class and the ranks of an operation's critical and its other jobs, if it has such.
type KindRanks = [Option<(u8, RankRange)>; 2];

/// By operation of the processor.
fn ranks(system: &System, plan: &ProcessorPlan, epoch: usize) -> Result<Vec<KindRanks>, &'static str> {
    let mut all = Vec::new();
    for id in &plan.operations {
        let periods = periods(system, epoch..epoch + 1, *id);
        let adapts = system.setting(epoch, *id).deadline_adapts();
        let mut own = [None, None];
        for (own, kind) in own.iter_mut().zip(kinds(system, epoch, *id)) {
            let Some(kind) = kind else { continue };
            let at = |period: &Span| {
                let deadline = if adapts { *period } else { kind.deadline };
                plan.ranking.urgency(&Traits { period: *period, deadline, ..kind })
            };
            let urgencies: Vec<_> = periods.iter().map(at).collect();
            let Some(first) = urgencies.first() else { continue };
            if urgencies.iter().any(|one| one.class != first.class) {
                return Err("classes that depend on rates");
            }
            // Limits that relax permit any rate up to the highest one.
            let by_rate = urgencies.iter().zip(&periods).all(|(one, period)| one.rank == period.as_nanos());
            let ramps = system.contracts.iter().flat_map(|one| &one.regions).any(|region| !region.ramp.is_zero());
            if ramps && !by_rate && urgencies.iter().any(|one| one.rank != first.rank) {
                return Err("limits that relax, under this strategy");
            }
            let root = system.adapted_by(*id).filter(|_| periods.len() > 1);
            let range = RankRange { root, ranks: urgencies.iter().map(|one| one.rank).collect(), between: ramps };
            *own = Some((first.class, range));
        }
        all.push(own);
    }
    Ok(all)
}
