//! One processor in one scene: its parts, their demand, and the work that delays all of them.

use alloc::vec::Vec;

use hyoshi_model::costs::WATCHDOG_PERIOD;
use hyoshi_model::{Guard, OperationId, Preemption, System};

use super::blocking::Blocking;
use super::effort::Effort;
use super::fixed::{self, Demand};
use super::overhead::Overhead;
use super::part::OperationPart;
use super::verdict::Missing;
use super::work::{Adaptation, Release, ReleaseSource, Work};
use crate::plan::ProcessorPlan;

/// A processor in one scene.
pub(super) struct ProcessorScene<'a> {
    pub system: &'a System,
    pub plan: &'a ProcessorPlan,
    pub works: &'a [Work],
    /// Most urgent first.
    pub parts: Vec<OperationPart>,
    /// What leaves all parts without analysis, if there is something: a resource that other processors also use, or a
    /// call of unknown length that nothing preempts.
    pub unbounded: Option<Missing>,
    pub overhead: Overhead,
    pub effort: &'a Effort<'a>,
}

impl<'a> ProcessorScene<'a> {
    pub fn new(system: &'a System, plan: &'a ProcessorPlan, works: &'a [Work], effort: &'a Effort<'a>) -> Self {
        let mut parts: Vec<OperationPart> =
            plan.operations.iter().flat_map(|id| OperationPart::of(&works[id.index()])).collect();
        parts.sort_by_key(|part| part.level);
        let overhead = Overhead::new(system, plan);
        for part in &mut parts {
            part.charge = overhead.charge(part, works[part.operation.index()].legs);
        }
        let unbounded = Blocking::new(system, plan).remote().or_else(|| kept_by_call(system, plan, works));
        ProcessorScene { system, plan, works, parts, unbounded, overhead, effort }
    }

    /// The work of a part, if its releases are bounded.
    pub fn demand(&self, part: &OperationPart, releases: &[Release]) -> Result<Demand, Missing> {
        let work = &self.works[part.operation.index()];
        let name = || self.system.operation(part.operation).name.clone();
        let burst = releases[part.operation.index()].burst.filter(|_| self.unanalysable(part.operation).is_none());
        let burst = burst.ok_or_else(|| match self.unanalysable(part.operation) {
            Some(
                missing @ (Missing::Requests { .. }
                | Missing::Clients { .. }
                | Missing::Moves { .. }
                | Missing::Calls { .. }
                | Missing::Rates
                | Missing::ChangedOrder { .. }),
            ) => missing,
            _ => Missing::Interference { name: name() },
        })?;
        let cost = part.charge.checked_mul(part.legs).ok_or(Missing::Overflow)?;
        Ok(Demand { cost, period: work.period, burst })
    }

    /// Blocking by the parts `below`, and by their overhead.
    pub fn with_overhead(&self, blocking: u64, below: &[OperationPart], above: &[Demand], releases: &[Release]) -> u64 {
        let stretch = if below.is_empty() { 0 } else { self.overhead.stretch() };
        let cancellation_costs = match self.plan.preemption {
            Preemption::None => self.cancellation_costs(below, above, releases),
            Preemption::Levels | Preemption::Full => 0,
        };
        blocking.saturating_add(stretch).saturating_add(cancellation_costs)
    }

    /// The same, of the releases in any window: at an idle point a guard may release a job early. That delays no other
    /// job, but counts for the caps.
    pub fn demand_in_windows(&self, part: &OperationPart, releases: &[Release]) -> Result<Demand, Missing> {
        let demand = self.demand(part, releases)?;
        let (operation, work) = (self.system.operation(part.operation), &self.works[part.operation.index()]);
        if operation.guard != Guard::Idle || !matches!(work.source, ReleaseSource::After { guarded: true, .. }) {
            return Ok(demand);
        }
        let opened = releases[part.operation.index()].opened;
        let burst = opened.ok_or_else(|| Missing::Interference { name: operation.name.clone() })?;
        Ok(Demand { burst, ..demand })
    }

    /// True if a feedback loop or a contract adapts rates or levels here: the highest ones need not occur.
    pub fn has_loop(&self) -> bool {
        let adapts =
            |id: &OperationId| self.works[id.index()].adapts() || !self.system.operation(*id).levels.is_empty();
        self.plan.operations.iter().any(adapts)
    }

    /// True if releases here change in this way.
    pub fn has(&self, adaptation: Adaptation) -> bool {
        self.plan.operations.iter().any(|id| self.works[id.index()].adaptation == adaptation)
    }

    /// The operation that leaves its level and those below without analysis, if there is one.
    pub fn unanalysable(&self, operation: OperationId) -> Option<Missing> {
        let work = &self.works[operation.index()];
        let by_loop = work.adaptation == Adaptation::Loop;
        match &work.source {
            ReleaseSource::Unclear(missing) => Some(missing.clone()),
            _ if work.runs() && self.system.operation(operation).calls_any => {
                Some(Missing::Calls { name: self.system.operation(operation).name.clone() })
            }
            // When its level rises, its waiting jobs move with it: then two of them are closer together than analysed. Jobs
            // of other operations that have started keep the number of a level whose rank has changed.
            _ if work.runs() && by_loop && self.plan.varies(operation) => Some(Missing::Rates),
            _ if work.runs() && work.unordered.is_some() => work.unordered.clone(),
            // At lower rates its predecessor may finish later, so its releases may be closer together than analysed.
            _ if work.runs() && by_loop && work.source.is_triggered() && !work.source.is_guarded() => {
                Some(Missing::Rates)
            }
            // Its first jobs would then be released at the rate of less urgent ones.
            _ if (1..work.legs).contains(&work.critical_legs)
                && work.positions().any(|place| place.other.level < place.critical.level) =>
            {
                Some(Missing::LegOrder)
            }
            _ => None,
        }
    }

    /// The predecessor without a bound, which leaves its releases without bound.
    pub fn unreleased(&self, part: &OperationPart, releases: &[Release]) -> Option<Missing> {
        if let Some(unjoined) = releases[part.operation.index()].unjoined {
            let name = self.system.operation(part.operation).name.clone();
            return Some(Missing::Join { name, why: unjoined.text(self.system) });
        }
        let predecessors = self.works[part.operation.index()].source.predecessors();
        let before = &self.system.operations[predecessors.first()?.from];
        let unbounded = releases[part.operation.index()].burst.is_none();
        unbounded.then(|| Missing::Predecessor { name: before.name.clone() })
    }

    /// The work above every lane.
    pub fn above_lanes(&self, releases: &[Release]) -> Result<Vec<Demand>, Missing> {
        let mut above: Vec<Demand> = Vec::new();
        let release = self.overhead.costs.timer.as_nanos().saturating_add(self.overhead.costs.enqueue.as_nanos());
        if release > 0 {
            let here = self.plan.operations.iter().map(|id| &self.works[id.index()]);
            for work in here.filter(|work| released_above(work, self)) {
                let name = || self.system.operation(work.operation).name.clone();
                let missing = || Missing::Interference { name: name() };
                let known = &releases[work.operation.index()];
                // A call does not change how often it is released.
                let bounded = match self.unanalysable(work.operation) {
                    None | Some(Missing::Calls { .. }) => known.burst,
                    Some(_) => None,
                };
                let burst = bounded.ok_or_else(missing)?;
                let mut add =
                    |burst: u64| match above.iter_mut().find(|one| (one.period, one.burst) == (work.period, burst)) {
                        Some(demand) => demand.cost = demand.cost.saturating_add(release),
                        None => above.push(Demand { cost: release, period: work.period, burst }),
                    };
                add(burst);
                // A job that finds the queue full is dropped when it arrives, despite the guard.
                if matches!(&work.source, ReleaseSource::After { guarded: true, .. }) && from_elsewhere(work, self) {
                    add(known.latest.ok_or_else(missing)?.saturating_sub(known.least));
                }
            }
        }
        if !self.overhead.costs.watchdog.is_zero() {
            let (cost, period) = (self.overhead.costs.watchdog.as_nanos(), WATCHDOG_PERIOD.as_nanos());
            above.push(Demand { cost, period, burst: 0 });
        }
        Ok(above)
    }

    /// The largest cost of the jobs of `parts` that a lane cancels in one decision.
    pub fn cancellation_costs(&self, parts: &[OperationPart], above: &[Demand], releases: &[Release]) -> u64 {
        let any = parts.iter().any(|part| !part.critical && self.overhead.to_start(part) > 0);
        if !self.overhead.cancels || !any {
            return 0;
        }
        // All waiting jobs were released since the processor was last idle.
        let all: Result<Vec<Demand>, Missing> = self.parts.iter().map(|part| self.demand(part, releases)).collect();
        let window = all.and_then(|mut all| {
            all.extend(above);
            fixed::busy_window(&all, 0)
        });
        let debt = |part: &OperationPart| {
            let room = u64::from(self.system.operation(part.operation).queue.limit).saturating_add(1);
            let released = |window: u64| {
                let demand = self.demand(part, releases).ok()?;
                u64::try_from(demand.jobs(u128::from(window))).ok()
            };
            let waiting = window.as_ref().ok().and_then(|window| released(*window)).unwrap_or(room).min(room);
            self.overhead.to_start(part).saturating_mul(waiting)
        };
        parts.iter().filter(|part| !part.critical).map(debt).fold(0, u64::saturating_add)
    }
}

/// An operation whose calls may keep more urgent jobs waiting without limit: it is not preempted, or holds a resource.
fn kept_by_call(system: &System, plan: &ProcessorPlan, works: &[Work]) -> Option<Missing> {
    let calling = plan.operations.iter().filter(|id| works[id.index()].runs()).map(|id| system.operation(*id));
    let mut keeping =
        calling.filter(|one| one.calls_any && (plan.preemption == Preemption::None || !one.uses.is_empty()));
    keeping.next().map(|one| Missing::Calls { name: one.name.clone() })
}

/// True if a timer or another processor releases it, not a completion here.
fn released_above(work: &Work, site: &ProcessorScene<'_>) -> bool {
    match &work.source {
        ReleaseSource::Silent => false,
        ReleaseSource::Periodic | ReleaseSource::Unclear(_) => true,
        ReleaseSource::After { .. } | ReleaseSource::AfterAny { .. } => {
            let guarded = matches!(work.source, ReleaseSource::After { guarded: true, .. });
            let times_out = matches!(work.source, ReleaseSource::AfterAny { timeout: Some(_), .. });
            guarded || times_out || from_elsewhere(work, site) || work.offset > 0 || work.jitter > 0
        }
    }
}

/// True if another processor triggers it.
fn from_elsewhere(work: &Work, site: &ProcessorScene<'_>) -> bool {
    work.source.predecessors().iter().any(|hop| site.works[hop.from].on != work.on)
}
