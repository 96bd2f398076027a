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

use hyoshi_model::{Costs, Preemption, System};

use super::part::OperationPart;
use crate::plan::ProcessorPlan;

/// The costs of one processor.
pub(super) struct Overhead {
    pub costs: Costs,
    pub cancels: bool,
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
    pub fn charge(&self, part: &OperationPart, legs: u64) -> u64 {
        let costs = &self.costs;
        let triggers = self.triggers.get(part.operation.index()).copied().unwrap_or(0).max(u64::from(legs > 1));
        let enqueues = costs.enqueue.as_nanos().saturating_mul(triggers);
        let switches = if self.lanes { costs.switch.as_nanos().saturating_mul(2) } else { 0 };
        [self.to_start(part), enqueues, switches].into_iter().fold(part.leg, u64::saturating_add)
    }

    /// From when a job is taken from its queue to when its body begins, or to when it is cancelled.
    pub fn to_start(&self, part: &OperationPart) -> u64 {
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
}
