//! The utilisation up to which no job of a processor is late, at all rates and execution times: the set point of a
//! feedback loop.
//!
//! A loop does not know execution times, so the bound depends only on periods. Let task `i` have the `i`-th shortest
//! period `T(i)` at the highest rates, and let `I(t)` be the longest time in a window of length `t` in which lanes do
//! not have the CPU. No job is late if the utilisation is at most
//!
//! ```text
//! least over i of  L(i) - sup over t >= T(i) of I(t) / t        L(i) = 1 by deadline, i (2^(1/i) - 1) by rate
//! ```
//!
//! **By rate.** Let `W(t)` be the work of the `i` most urgent tasks in a window of length `t` after a common release. If
//! `W(t) + I(T) <= t` for some `t` up to the period `T` of task `i`, each of its busy windows ends within `T`. So its
//! jobs are in time, in any order within its level. `I(T)` counts as further execution time of task `i`, which adds
//! `I(T) / T` to the utilisation. Then Liu and Layland (1973, theorem 5) prove that there is such a `t`. As blocking in
//! Sha, Rajkumar and Lehoczky (IEEE Transactions on Computers 39(9), 1990, theorem 15).
//!
//! **By deadline.** In a busy window of length `t`, demand is at most `U t + I(t)`, and it is 0 if `t` is shorter than the
//! shortest period. So `U <= 1 - I(t) / t` is sufficient (processor demand: Baruah, Rosier and Howell, 1990).
//!
//! **Tasks.** A task is a periodic operation with the operations that follow it on its processor without a gap: from its
//! release on, one of them is pending. An operation behind a release guard is a task, too: within a busy window its
//! releases are at least a period apart (Sun and Liu 1996).
//!
//! **`I(t)`.** The hard cap withholds at most [`HardCap::longest_pause`] in any of its windows (see
//! [`hard_cap`](super::hard_cap)). The argument is about all work instead of critical work if it gates non-critical work.
//! The cap withholds at most the rest of its window from non-critical work. If both have the same window, together they
//! withhold at most the larger of both: at the last such instant of a window, one of them has counted the use since the
//! window began. While non-critical work is gated, less urgent critical work may run: its declared times count in `I`.
//! Bounded delays of a resource: Mok, Feng and Chen (RTAS 2001); Shin and Lee (RTSS 2003) have the same for a periodic
//! server with a budget at any time of its period. Their bound is lower, because the time between two budgets may be
//! twice as long.

use alloc::vec::Vec;

use hyoshi_model::hard_cap::{BEYOND, SWITCHING, WINDOW};
use hyoshi_model::{Deadline, OnOverload, OnOverrun, Preemption, Span, System};

use super::fixed::Demand;
use super::part::OperationPart;
use super::processor_scene::ProcessorScene;
use super::utilisation::{self, Inapplicable};
use super::work::{Hop, ReleaseSource, Work};
use super::workload::causes_first;
use crate::strategy::{Discipline, Traits};

const MILLION: u128 = 1_000_000;

/// The bound in parts per million of the CPU, rounded down. Critical operations of fixed rates need at most their
/// declared times.
pub(super) fn bound(site: &ProcessorScene<'_>) -> Result<u64, Inapplicable> {
    let order = BoundedOrder::of(site)?;
    let releases = latest_releases(site.system, site.works);
    let mut periods = periods(site, order, &releases)?;
    periods.sort_unstable();
    let interruptions = interruptions(site, &releases)?;
    let charges = charges_ppm(site);
    let lost = |period: u64| {
        let each = interruptions.iter().map(|one| most_per_time(*one, period));
        // One switch may not be interruptible.
        let blocked = (u128::from(site.overhead.stretch()) * MILLION).div_ceil(u128::from(period));
        each.fold(blocked, u128::saturating_add).saturating_add(charges)
    };
    let limits = periods.iter().zip(1u32..).map(|(period, number)| {
        let limit = match order {
            BoundedOrder::ByDeadline => 1_000_000,
            BoundedOrder::ByRate => utilisation::liu_layland_ppm(number),
        };
        u128::from(limit).saturating_sub(lost(*period))
    });
    let bound = limits.min().unwrap_or_default();
    let bound = u64::try_from(bound).unwrap_or_default();
    if bound > 0 { Ok(bound) } else { Err(Inapplicable::Pauses) }
}

/// The order of jobs for which there is a bound.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BoundedOrder {
    /// Levels by rate, at all rates.
    ByRate,
    /// One level by deadline.
    ByDeadline,
}

impl BoundedOrder {
    fn of(site: &ProcessorScene<'_>) -> Result<BoundedOrder, Inapplicable> {
        let Some(first) = site.parts.first() else { return Err(Inapplicable::Idle) };
        let discipline = |part: &OperationPart| site.plan.levels.get(usize::from(part.level)).map(|one| one.discipline);
        let all = |test: &dyn Fn(&OperationPart) -> bool| site.parts.iter().all(test);
        match () {
            () if site.plan.preemption == Preemption::None => Err(Inapplicable::NonPreemptive),
            () if site.is_mixed() => Err(Inapplicable::NotRateMonotonic),
            () if all(&|part| part.level == first.level && discipline(part) == Some(Discipline::Deadline)) => {
                match site.plan.preemption {
                    Preemption::Full => Ok(BoundedOrder::ByDeadline),
                    _ => Err(Inapplicable::NonPreemptive),
                }
            }
            () if all(&|part| discipline(part) == Some(Discipline::Fifo)) && by_rate(site) => Ok(BoundedOrder::ByRate),
            () => Err(Inapplicable::NotRateMonotonic),
        }
    }
}

/// Whether levels are by rate, a level for each. If rates are adapted, the strategy must rank by the period.
fn by_rate(site: &ProcessorScene<'_>) -> bool {
    let works = || site.parts.iter().map(|part| (part, work(site, part)));
    if !works().any(|(_, work)| work.adapts()) {
        return by_rate_now(site);
    }
    let class = |part: &OperationPart, period: u64, deadline: u64| {
        let operation = site.system.operation(part.operation);
        let urgency = site.plan.ranking.urgency(&Traits {
            operation: part.operation,
            critical: part.critical,
            period: Span::from_nanos(period),
            deadline: Span::from_nanos(deadline),
            wcet: Span::from_nanos(part.leg),
            importance: operation.importance,
        });
        (urgency.rank == period).then_some(urgency.class)
    };
    let classes = works().flat_map(|(part, work)| {
        let deadline = work.deadline.span().as_nanos();
        let slowest = slowest(work);
        [class(part, work.period, deadline), class(part, slowest, if adapts(site, work) { slowest } else { deadline })]
    });
    let classes: Vec<Option<u8>> = classes.collect();
    site.plan.merged == 0 && classes.iter().all(|class| class.is_some() && *class == classes[0])
}

fn by_rate_now(site: &ProcessorScene<'_>) -> bool {
    site.parts.windows(2).all(|pair| {
        let (one, next) = (work(site, &pair[0]).period, work(site, &pair[1]).period);
        if pair[0].level == pair[1].level { one == next } else { one < next }
    })
}

fn work<'a>(site: &ProcessorScene<'a>, part: &OperationPart) -> &'a Work {
    &site.works[part.operation.index()]
}

/// The longest period to which a loop may set it.
fn slowest(work: &Work) -> u64 {
    if work.adapts() { work.slowest.max(work.period) } else { work.period }
}

/// Whether the deadline follows the adapted period.
fn adapts(site: &ProcessorScene<'_>, work: &Work) -> bool {
    work.adapts()
        && work.slowest > work.period
        && work.deadline.span().as_nanos() == work.period
        && site.system.adapted_by(work.operation).is_some()
}

/// The shortest period of each task.
fn periods(site: &ProcessorScene<'_>, order: BoundedOrder, releases: &[Option<u64>]) -> Result<Vec<u64>, Inapplicable> {
    let mut periods = Vec::new();
    for part in &site.parts {
        let (work, operation) = (work(site, part), site.system.operation(part.operation));
        let release = releases[part.operation.index()].ok_or(Inapplicable::NotPeriodic)?;
        let follows = follows(work);
        // From when the deadline counts until the job has ended.
        let span = match work.deadline {
            Deadline::Own(_) => slowest(work),
            Deadline::Origin(_) => release.saturating_add(slowest(work)),
        };
        let in_time = if adapts(site, work) { span == slowest(work) } else { work.deadline.span().as_nanos() >= span };
        // A part that follows must not be more urgent than what precedes it.
        let mut before = work.source.predecessors().iter().map(|hop| &site.works[hop.from]);
        let mut is_later =
            || before.all(|before| from_origin(before).is_some_and(|one| Some(one) <= from_origin(work)));
        let in_order = order == BoundedOrder::ByRate || !follows || is_later();
        match () {
            () if !in_time || !in_order => return Err(Inapplicable::ConstrainedDeadline),
            () if !operation.uses.is_empty() => return Err(Inapplicable::Resources),
            () if operation.calls_any => return Err(Inapplicable::Calls),
            () if site.overhead.cancels && !part.critical => return Err(Inapplicable::Cancellation),
            () if operation.on_overrun != OnOverrun::Report => return Err(Inapplicable::Overruns),
            () => {}
        }
        // A load chain may have two parts.
        if !follows && part.critical == (work.critical_legs > 0) {
            periods.push(work.period);
        }
    }
    Ok(periods)
}

/// The deadline from the origin, if it counts from there.
fn from_origin(work: &Work) -> Option<u64> {
    match work.deadline {
        Deadline::Origin(deadline) => Some(deadline.as_nanos()),
        Deadline::Own(deadline) => {
            matches!(work.source, ReleaseSource::Periodic).then(|| deadline.as_nanos().saturating_add(work.offset))
        }
    }
}

/// Whether it is released without a gap after operations of its processor.
fn follows(work: &Work) -> bool {
    matches!(work.source, ReleaseSource::After { guarded: false, .. })
}

/// By operation: the latest release of its task after the origin, if each task ends within a period. `None` if its
/// releases may be less than a period apart, or are otherwise not those of a task.
fn latest_releases(system: &System, works: &[Work]) -> Vec<Option<u64>> {
    let mut latest: Vec<Option<u64>> = alloc::vec![None; works.len()];
    for id in causes_first(system) {
        let work = &works[id.index()];
        let is_task = work.jitter == 0 && !work.first && work.streams.len() == 1;
        let one_root = system.operation(id).roots.len() <= 1;
        latest[id.index()] = match &work.source {
            ReleaseSource::Periodic if is_task => Some(work.offset),
            ReleaseSource::After { predecessors, guarded: true, join: None } if is_task && one_root => {
                let release = |from: usize| latest[from]?.checked_add(slowest(&works[from]));
                let arrival = |hop: &Hop| release(hop.from)?.checked_add(hop.most)?.checked_add(work.offset);
                predecessors.iter().map(arrival).try_fold(0, |latest: u64, one| Some(latest.max(one?)))
            }
            ReleaseSource::After { predecessors, guarded: false, join: None }
                if is_task && one_root && work.offset == 0 =>
            {
                let before = |from: usize| latest[from].filter(|_| works[from].on == work.on);
                predecessors.iter().try_fold(0, |latest: u64, hop| Some(latest.max(before(hop.from)?)))
            }
            _ => None,
        };
    }
    latest
}

/// What keeps the CPU from lanes, as demands above them.
fn interruptions(site: &ProcessorScene<'_>, releases: &[Option<u64>]) -> Result<Vec<Demand>, Inapplicable> {
    let mut demands = withheld(site)?;
    if !demands.is_empty() {
        demands.push(Demand { cost: site.overhead.timer(), period: BEYOND.as_nanos(), burst: 0 });
    }
    let cost = site.overhead.costs.timer.as_nanos().saturating_add(site.overhead.costs.enqueue.as_nanos());
    let released = site.parts.iter().map(|part| work(site, part)).filter(|work| !follows(work));
    // Completions on other processors arrive before their guards release.
    demands.extend(released.map(|work| Demand {
        cost,
        period: work.period,
        burst: releases[work.operation.index()].unwrap_or_default(),
    }));
    let (watchdog, period) = (site.overhead.costs.watchdog.as_nanos(), hyoshi_model::costs::WATCHDOG_PERIOD.as_nanos());
    demands.push(Demand { cost: watchdog, period, burst: 0 });
    demands.retain(|demand| demand.cost > 0);
    Ok(demands)
}

/// The time that the caps withhold, and the critical work that may run before more urgent non-critical work meanwhile.
fn withheld(site: &ProcessorScene<'_>) -> Result<Vec<Demand>, Inapplicable> {
    let processor = site.system.processor(site.plan.processor);
    let critical = || site.parts.iter().filter(|part| part.critical);
    let other = || site.parts.iter().filter(|part| !part.critical);
    let (hard, window) = (processor.hard_cap, processor.cap_window.as_nanos());
    let capped = processor.cap_ppm < 1_000_000 && window > 0 && other().next().is_some();
    // The debt of critical work to the cap has no bound in terms of utilisation. Without a loop, the cap reserves time
    // for more urgent lanes, too.
    let has_loop = site.system.feedback.iter().any(|one| one.processor == site.plan.processor);
    if capped && (critical().next().is_some() || !has_loop && other().any(|part| part.level > 0))
        || hard.is_on() && hard.on_overload == OnOverload::Demote && critical().next().is_some()
    {
        return Err(Inapplicable::Cap);
    }
    let switching = SWITCHING.as_nanos().saturating_mul(site.parts.len() as u64);
    let rest = (u128::from(window) * u128::from(1_000_000 - processor.cap_ppm.min(1_000_000))).div_ceil(MILLION);
    let rest =
        Demand { cost: u64::try_from(rest).unwrap_or(window).saturating_add(switching), period: window, burst: 0 };
    let pause = hard.longest_pause().as_nanos().saturating_add(switching);
    let pause = Demand { cost: pause, period: WINDOW.as_nanos(), burst: 0 };
    let mut demands = match (capped, hard.is_on()) {
        (true, true) if rest.period == pause.period => alloc::vec![if rest.cost > pause.cost { rest } else { pause }],
        (true, true) => alloc::vec![rest, pause],
        (true, false) => alloc::vec![rest],
        (false, true) => alloc::vec![pause],
        (false, false) => Vec::new(),
    };
    if hard.is_on() {
        for part in critical() {
            let own = work(site, part);
            let by_rate = |one: &&OperationPart| slowest(own) >= work(site, one).period;
            if other().any(|one| one.level == part.level || by_rate(&one)) {
                if own.adapts() {
                    return Err(Inapplicable::Cap);
                }
                demands.push(Demand { cost: part.charged(), period: own.period, burst: own.period });
            }
        }
    }
    Ok(demands)
}

/// The utilisation of the costs at the priority of jobs, in parts per million, at the highest rates.
fn charges_ppm(site: &ProcessorScene<'_>) -> u128 {
    let charge = |part: &OperationPart| {
        let cost = u128::from(part.charged().saturating_sub(part.cost()));
        (cost * MILLION).div_ceil(u128::from(work(site, part).period))
    };
    site.parts.iter().map(charge).fold(0, u128::saturating_add)
}

/// The greatest share of a demand in a window of at least this length, in parts per million, rounded up.
fn most_per_time(demand: Demand, least: u64) -> u128 {
    let (cost, period, burst) = (u128::from(demand.cost), u128::from(demand.period), u128::from(demand.burst));
    let jobs = demand.jobs(u128::from(least));
    // Just after the next release. With more jobs the share is smaller.
    let next = (jobs * period).saturating_sub(burst).max(u128::from(least));
    let share = |jobs: u128, window: u128| (cost * jobs).saturating_mul(MILLION).div_ceil(window.max(1));
    share(jobs, u128::from(least)).max(share(jobs + 1, next))
}
