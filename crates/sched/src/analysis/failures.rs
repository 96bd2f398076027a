//! Certain failures: a behaviour that the file allows and that misses a deadline.
//!
//! Only if every step is forced. All relevant releases coincide at the first epoch's common phase, every job has its
//! worst case, and no interfering job is cancelled, dropped or delayed. Then the first job cannot finish before the
//! fixed point of Joseph and Pandya (1986).

use alloc::{vec, vec::Vec};

use hyoshi_model::{Deadline, OnMiss, OperationId, Preemption, Span, System, Trigger};

use super::cap;
use super::hard_cap;
use super::holistic::Agreement;
use super::part::{OperationPart, PartResult, ResponseBound};
use super::processor_scene::ProcessorScene;
use super::release;
use super::verdict::FailureReason;
use super::work::{ReleaseSource, Scene, Work};
use super::workload::causes_first;
use crate::strategy::Discipline;

/// True if the job with its legs up to this part cannot be cancelled or shed, and does not expire. If it is stopped or
/// skipped because of a miss, there was a miss: but a stopped critical leg sheds the others, which then miss nothing.
pub(super) fn stays(site: &ProcessorScene<'_>, part: &OperationPart) -> bool {
    let operation = site.system.operation(part.operation);
    let critical_before = !part.critical && site.works[part.operation.index()].critical_legs > 0;
    let lasts = operation.lifespan.is_none() && !(operation.on_miss == OnMiss::Stop && critical_before);
    lasts && (part.critical || !site.system.processor(site.plan.processor).cancel)
}

/// Which jobs are certain to arrive: without a certain trigger, an operation cannot be late.
pub(super) struct CertainJobs {
    /// A job of the operation arrives: its predecessors finish, and none of them can be cancelled.
    pub once: Vec<bool>,
    /// One arrives at each release of its roots, or a job of its own processor is late before.
    pub each: Vec<bool>,
    /// The same with critical jobs in the place of any jobs.
    pub each_critical: Vec<bool>,
}

impl CertainJobs {
    pub fn new(system: &System, works: &[Work], agreement: &Agreement) -> CertainJobs {
        let none = vec![false; works.len()];
        let mut coming = CertainJobs { once: none.clone(), each: none.clone(), each_critical: none };
        for id in causes_first(system) {
            let work = &works[id.index()];
            let lasts = |from: &Work| system.operation(from.operation).keeps_late_jobs();
            let kept =
                |from: &Work| lasts(from) && (from.critical_legs == from.legs || !system.processor(from.on).cancel);
            let once = |from: &OperationId| {
                let from = &works[from.index()];
                let index = from.operation.index();
                from.runs() && kept(from) && coming.once[index] && agreement.finish[index].is_some()
            };
            coming.once[id.index()] = match &system.operation(id).trigger {
                Trigger::Periodic => true,
                Trigger::Any(any) if any.is_empty() => system.operation(id).min_interval.is_some(),
                Trigger::All(all) => all.iter().all(once),
                Trigger::Any(any) | Trigger::First(any) => any.iter().any(once),
                // The completions may be too far apart for its window, or choose other operations.
                Trigger::Correlated(_) | Trigger::Chosen(_) => false,
            };
            // Each completion of a predecessor on another processor must arrive in time; one that is late there is late
            // enough.
            let each = |known: &[bool], late: &dyn Fn(&Work) -> bool| match &work.source {
                ReleaseSource::Periodic => true,
                _ if work.chosen => false,
                ReleaseSource::After { predecessors, join: None, .. } => predecessors.iter().all(|hop| {
                    let (from, finish) = (&works[hop.from], agreement.finish[hop.from]);
                    let release = &agreement.releases[hop.from];
                    let delivers =
                        finish.is_some_and(|finish| release::dropping(system, from, release, finish).is_none());
                    known[hop.from] && ((from.on == work.on && late(from) && lasts(from)) || (kept(from) && delivers))
                }),
                ReleaseSource::Silent
                | ReleaseSource::After { .. }
                | ReleaseSource::AfterAny { .. }
                | ReleaseSource::Unclear(_) => false,
            };
            let all = each(&coming.each, &|_| true);
            let critical = each(&coming.each_critical, &|from| from.critical_legs == from.legs);
            (coming.each[id.index()], coming.each_critical[id.index()]) = (all, critical);
        }
        coming
    }
}

/// The worst case alone exceeds the deadline.
pub(super) fn too_long(work: &Work, least: u64, part: &OperationPart) -> Option<FailureReason> {
    let legs = if part.critical { work.critical_legs } else { work.legs };
    let needs = match work.deadline {
        Deadline::Own(_) => work.wcet.saturating_mul(legs),
        Deadline::Origin(_) => work.wcet.saturating_mul(legs).saturating_add(least),
    };
    let deadline = work.deadline.span();
    let needs = Span::from_nanos(needs);
    (needs > deadline).then_some(FailureReason::LongerThanDeadline { needs, deadline })
}

/// Parts of a processor beyond which first jobs are tested only by simulation.
const MANY: usize = 1 << 12;

/// The first job of a part in a FIFO level is late after a common release.
pub(super) fn first_job_late(
    scene: Scene,
    site: &ProcessorScene<'_>,
    agreement: &Agreement,
    part: &OperationPart,
) -> Option<FailureReason> {
    let level = site.plan.levels.get(usize::from(part.level))?;
    let uses = !site.system.operation(part.operation).uses.is_empty();
    // Of two strategies the other may apply.
    let switches = site.plan.overload.is_some();
    // Each job checks all operations that delay it: for very many, a simulation of the common release is faster.
    let many = site.parts.len() > MANY;
    if scene != Scene::Epoch(0) || switches || level.discipline != Discipline::Fifo || uses || many {
        return None;
    }
    let work = &site.works[part.operation.index()];
    let deadline = work.deadline.span();
    // In a pause it may run before more urgent jobs: there is none before the budget is used up.
    let budget = site.system.processor(site.plan.processor).hard_cap.budget();
    let at_once = || site.parts.iter().all(|other| together(site, part, other));
    if hard_cap::may_pause(site, &agreement.releases, site.system.processor(site.plan.processor).hard_cap)
        && !(deadline <= budget && at_once())
    {
        return None;
    }
    let higher = || site.parts.iter().filter(|other| other.level < part.level && other.operation != part.operation);
    // Of jobs enqueued at one instant the earlier operation's is first; only a first leg is.
    let enqueued = |other: &OperationPart| other.critical || site.works[other.operation.index()].critical_legs == 0;
    let earlier =
        |other: &OperationPart| other.level == part.level && other.operation < part.operation && enqueued(other);
    let beside = || site.parts.iter().filter(|other| earlier(other));
    // An interfering job that is late itself must still have its worst case.
    let continues = |other: &OperationPart| {
        other.operation == part.operation || site.system.operation(other.operation).keeps_late_jobs()
    };
    let forced = |other: &OperationPart| stays(site, other) && continues(other) && never_held(site, agreement, other);
    let all_forced = higher().chain(beside()).chain([part]).all(|other| forced(other) && together(site, part, other));
    if !all_forced
        || !higher().all(|other| never_dropped(site, agreement, other))
        || !in_first_epoch(site, part, deadline)
    {
        return None;
    }
    let own = part.leg.checked_mul(if part.critical { work.critical_legs } else { work.legs })?;
    let beside = beside().try_fold(0u64, |sum, other| sum.checked_add(other.leg))?;
    let interrupted = site.plan.preemption != Preemption::None;
    let fixed = if interrupted { own.checked_add(beside)? } else { beside };
    let mut end = fixed;
    loop {
        let higher = higher().try_fold(0u64, |sum, other| {
            let period = site.works[other.operation.index()].period;
            // Jobs released at the very instant of the start are still before it.
            let jobs = if interrupted { end.div_ceil(period).max(1) } else { end / period + 1 };
            sum.checked_add(jobs.checked_mul(other.cost())?)
        })?;
        let next = fixed.checked_add(higher)?;
        let finish = Span::from_nanos(if interrupted { next } else { next.checked_add(own)? });
        if finish > deadline {
            return Some(FailureReason::FirstJobLate { finish, deadline });
        }
        if next == end {
            return None;
        }
        end = next;
    }
}

/// More work must be done within a window of the common release than fits, in any order.
pub(super) fn demand_fails(scene: Scene, site: &ProcessorScene<'_>, found: &[PartResult]) -> Option<FailureReason> {
    let too_much = found.iter().find_map(|found| match found.response {
        ResponseBound::Demand(too_much) => Some(too_much),
        ResponseBound::Counted { too_much, .. } => too_much,
        _ => None,
    })?;
    let window = u64::try_from(too_much.window).ok()?;
    let first = site.parts.first()?;
    let forced = |part: &OperationPart| stays(site, part) && together(site, first, part);
    if scene != Scene::Epoch(0)
        || !site.parts.iter().all(forced)
        || !in_first_epoch(site, first, Span::from_nanos(window))
    {
        return None;
    }
    let demand = site.parts.iter().try_fold(0u64, |sum, part| {
        let work = &site.works[part.operation.index()];
        let room = window.checked_sub(work.deadline.span().as_nanos());
        let jobs = room.map_or(0, |room| room / work.period + 1);
        sum.checked_add(jobs.checked_mul(part.cost())?)
    })?;
    let (demand, window) = (Span::from_nanos(demand), Span::from_nanos(window));
    (demand > window).then_some(FailureReason::Demand { demand, window })
}

/// True if both are released by time, without jitter, and first at one instant.
fn together(site: &ProcessorScene<'_>, one: &OperationPart, other: &OperationPart) -> bool {
    let first = |part: &OperationPart| {
        let setting = site.system.setting(0, part.operation);
        setting.phase.checked_add(setting.offset)
    };
    let punctual = |part: &OperationPart| {
        let work = &site.works[part.operation.index()];
        matches!(work.source, ReleaseSource::Periodic) && work.jitter == 0
    };
    punctual(one) && punctual(other) && first(one).is_some() && first(one) == first(other)
}

/// True if the events within `window` of the part's first release are in the first epoch.
fn in_first_epoch(site: &ProcessorScene<'_>, part: &OperationPart, window: Span) -> bool {
    let setting = site.system.setting(0, part.operation);
    let end = setting.phase.checked_add(setting.offset).and_then(|first| first.checked_add(window));
    let next = site.system.epochs.get(1).map(|epoch| epoch.at.as_nanos());
    end.is_some_and(|end| next.is_none_or(|next| end.as_nanos() < next))
}

fn never_held(site: &ProcessorScene<'_>, agreement: &Agreement, part: &OperationPart) -> bool {
    part.critical || !cap::may_act(site, &agreement.releases)
}

/// True if all of its operation's jobs have finished when the next is released, so none is dropped.
fn never_dropped(site: &ProcessorScene<'_>, agreement: &Agreement, part: &OperationPart) -> bool {
    let period = site.works[part.operation.index()].period;
    agreement.finish[part.operation.index()].is_some_and(|finish| finish <= period)
}
