//! What scheduling costs, as [`Costs`] says who pays what and when: here always as much as it may be.
//!
//! - A job costs its worst case and, at its priority, one dequeue, the question whether it is to be
//!   cancelled where it can be asked, the enqueues of what it triggers on its processor, and two switches: one to
//!   it and one from it back. Every switch is either to a job that starts or back from one that
//!   has finished; one that is interrupted begins anew when the one that interrupted it has gone, and is that one's second.
//!   A job that is cancelled costs no more than that.
//! - What a timer or another processor releases costs an expiry and an enqueue above every lane, whoever is
//!   released: never more expiries than releases. So it is a job of its own, as often and as irregularly as
//!   the release, more urgent than all levels; the watchdog is one each 50 ms. These interrupt even
//!   what no other job interrupts.
//! - One switch may not be interruptible: it blocks once, like a section of a less urgent job.
//! - When a lane takes jobs it may find several in a row to cancel, and pays for all of them before it
//!   decides again. In a level by key (or a lane of all levels) a better job may come meanwhile: it waits
//!   for one dequeue and one question of each job there can be in the queue.
//!
//! Sums saturate: what does not fit into 64 bits is too much for any processor.

use alloc::vec::Vec;

use hyoshi_model::costs::WATCHDOG_PERIOD;
use hyoshi_model::{Costs, Preemption, System};

use super::fixed::{self, Demand};
use super::processor::{Part, Site};
use super::release::Release;
use super::verdict::Missing;
use super::workload::{Source, Work};
use crate::plan::ProcessorPlan;

/// The costs of one processor.
pub(super) struct Overhead {
    costs: Costs,
    cancels: bool,
    lanes: bool,
    /// By operation: how many its completion triggers on its processor.
    triggers: Vec<u64>,
}

impl Overhead {
    pub fn new(system: &System, plan: &ProcessorPlan) -> Overhead {
        let processor = system.processor(plan.processor);
        let mut triggers = Vec::new();
        if !processor.costs.enqueue.is_zero() {
            triggers.resize(system.operations.len(), 0);
            for id in &plan.operations {
                for from in system.operation(*id).trigger.predecessors() {
                    if system.operation(*from).on == plan.processor {
                        triggers[from.index()] += 1;
                    }
                }
            }
        }
        Overhead {
            costs: processor.costs,
            cancels: processor.cancel,
            lanes: plan.preemption != Preemption::None,
            triggers,
        }
    }

    /// One job of a part, with all that is done for it at its priority.
    pub fn charge(&self, part: &Part, legs: u64) -> u64 {
        let costs = &self.costs;
        let triggers = self.triggers.get(part.operation.index()).copied().unwrap_or(0).max(u64::from(legs > 1));
        let enqueues = costs.enqueue.as_nanos().saturating_mul(triggers);
        let switches = if self.lanes { costs.switch.as_nanos().saturating_mul(2) } else { 0 };
        [self.to_start(part), enqueues, switches].into_iter().fold(part.leg, u64::saturating_add)
    }

    /// From when a job is taken from its queue to when its body begins, or to when it is cancelled.
    fn to_start(&self, part: &Part) -> u64 {
        let asked = if self.cancels && !part.critical { self.costs.cancel.as_nanos() } else { 0 };
        self.costs.dequeue.as_nanos().saturating_add(asked)
    }

    /// What a less urgent lane may do without being interrupted, whatever it is.
    pub fn stretch(&self) -> u64 {
        if self.lanes { self.costs.switch.as_nanos() } else { 0 }
    }

    /// One expiry of the timer.
    pub fn timer(&self) -> u64 {
        self.costs.timer.as_nanos()
    }

    /// What is done above every lane.
    pub fn above(&self, site: &Site<'_>, releases: &[Release]) -> Result<Vec<Demand>, Missing> {
        let mut above: Vec<Demand> = Vec::new();
        let release = self.costs.timer.as_nanos().saturating_add(self.costs.enqueue.as_nanos());
        if release > 0 {
            let here = site.plan.operations.iter().map(|id| &site.works[id.index()]);
            for work in here.filter(|work| released_above(work, site)) {
                let name = || site.system.operation(work.operation).name.clone();
                let missing = || Missing::Interference { name: name() };
                let known = &releases[work.operation.index()];
                let burst = known.burst.filter(|_| site.to_blame(work.operation).is_none()).ok_or_else(missing)?;
                let mut add =
                    |burst: u64| match above.iter_mut().find(|one| (one.period, one.burst) == (work.period, burst)) {
                        Some(demand) => demand.cost = demand.cost.saturating_add(release),
                        None => above.push(Demand { cost: release, period: work.period, burst }),
                    };
                add(burst);
                // What finds the queue full is dropped when it arrives, whatever the guard says.
                if matches!(&work.source, Source::After { guarded: true, .. }) && from_elsewhere(work, site) {
                    add(known.latest.ok_or_else(missing)?.saturating_sub(known.least));
                }
            }
        }
        if !self.costs.watchdog.is_zero() {
            let (cost, period) = (self.costs.watchdog.as_nanos(), WATCHDOG_PERIOD.as_nanos());
            above.push(Demand { cost, period, burst: 0 });
        }
        Ok(above)
    }

    /// What a lane may have to pay for jobs of `parts` that it cancels in one decision.
    pub fn debts(&self, site: &Site<'_>, parts: &[Part], above: &[Demand], releases: &[Release]) -> u64 {
        let any = parts.iter().any(|part| !part.critical && self.to_start(part) > 0);
        if !self.cancels || !any {
            return 0;
        }
        // Everything that waits was released since the processor was last idle.
        let all: Result<Vec<Demand>, Missing> = site.parts.iter().map(|part| site.demand(part, releases)).collect();
        let window = all.and_then(|mut all| {
            all.extend(above);
            fixed::busy_window(&all, 0)
        });
        let debt = |part: &Part| {
            let room = u64::from(site.system.operation(part.operation).queue.limit).saturating_add(1);
            let released = |window: u64| {
                let demand = site.demand(part, releases).ok()?;
                u64::try_from(demand.jobs(u128::from(window))).ok()
            };
            let waiting = window.as_ref().ok().and_then(|window| released(*window)).unwrap_or(room).min(room);
            self.to_start(part).saturating_mul(waiting)
        };
        parts.iter().filter(|part| !part.critical).map(debt).fold(0, u64::saturating_add)
    }
}

/// True if a timer or another processor releases it, and not a completion here.
fn released_above(work: &Work, site: &Site<'_>) -> bool {
    match &work.source {
        Source::Silent => false,
        Source::Periodic | Source::Unclear(_) => true,
        Source::After { .. } | Source::AfterAny { .. } => {
            let guarded = matches!(work.source, Source::After { guarded: true, .. });
            guarded || from_elsewhere(work, site) || work.offset > 0 || work.jitter > 0
        }
    }
}

/// True if another processor triggers it.
fn from_elsewhere(work: &Work, site: &Site<'_>) -> bool {
    let (Source::After { predecessors, .. } | Source::AfterAny { predecessors }) = &work.source else { return false };
    predecessors.iter().any(|hop| site.works[hop.from].on != work.on)
}
