//! The costs of scheduling, by the rules of [`Costs`]: here always the largest possible.
//!
//! - A job costs its worst case and, at its priority, one dequeue, the decision about its cancellation if it can be
//!   cancelled, the enqueues of its successors on its processor, and two switches: one to it and one back from it.
//!   Every switch is either to a job that starts or back from one that has finished. An interrupted switch starts again
//!   when the job that interrupted it has finished, and is that job's second. A cancelled job costs no more than that.
//! - A release by a timer or another processor costs an expiry and an enqueue above every lane, whatever job is
//!   released: there are never more expiries than releases. So it is a separate job, as often and as irregular as the
//!   release, more urgent than all levels; the watchdog is one each 50 ms. These interrupt all jobs, even
//!   non-preemptive ones.
//! - One switch may not be interruptible: it blocks once, like a section of a less urgent job.
//! - A lane that dequeues jobs may find several in a row to cancel, and pays for all of them before it decides again.
//!   In a level by key (or a lane of all levels) a better job may arrive meanwhile: it waits for one dequeue and one
//!   decision of each job that can be in the queue.
//!
//! Sums saturate: a value that does not fit into 64 bits is too large for any processor.

use alloc::vec::Vec;

use hyoshi_model::{Costs, Preemption, System};

use super::part::OperationPart;
use crate::plan::ProcessorPlan;

/// The costs of one processor.
pub(super) struct Overhead {
    pub costs: Costs,
    pub cancels: bool,
    lanes: bool,
    /// By operation: how many operations its completion triggers on its processor.
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

    /// One job of a part, with all costs at its priority.
    pub fn charge(&self, part: &OperationPart, legs: u64) -> u64 {
        let costs = &self.costs;
        let triggers = self.triggers.get(part.operation.index()).copied().unwrap_or(0).max(u64::from(legs > 1));
        let enqueues = costs.enqueue.as_nanos().saturating_mul(triggers);
        let switches = if self.lanes { costs.switch.as_nanos().saturating_mul(2) } else { 0 };
        [self.to_start(part), enqueues, switches].into_iter().fold(part.leg, u64::saturating_add)
    }

    /// From the dequeue of a job to the start of its body, or to its cancellation.
    pub fn to_start(&self, part: &OperationPart) -> u64 {
        let asked = if self.cancels && !part.critical { self.costs.cancel.as_nanos() } else { 0 };
        self.costs.dequeue.as_nanos().saturating_add(asked)
    }

    /// The longest work of a less urgent lane that cannot be interrupted.
    pub fn stretch(&self) -> u64 {
        if self.lanes { self.costs.switch.as_nanos() } else { 0 }
    }

    /// One expiry of the timer.
    pub fn timer(&self) -> u64 {
        self.costs.timer.as_nanos()
    }
}
