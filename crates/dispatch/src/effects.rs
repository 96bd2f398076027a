//! The consequences of an input.

use alloc::vec::Vec;

use hyoshi_model::{Instant, JobId, OperationId, ProcessorId, Span};
use hyoshi_trace::{AdmissionOutcome, Signal, Slot, Ticket};

use crate::lane::LaneMask;

/// The actions for the caller after an input. It keeps one of these for each dispatcher and passes it to every
/// [`Dispatcher::handle`](crate::Dispatcher::handle), which allocates nothing in it as long as the caller drains
/// `sends`, `returned`, `retimed`, `contract_updates`, `paced`, `departed` and `cancelled` after each.
#[derive(Debug, Default)]
pub struct Effects {
    /// When the next `Tick` is due, or an `Observe` of what is overdue.
    pub timer: Instant,
    /// Lanes with a free run token and with a queued job that may start.
    pub startable: LaneMask,
    /// Lanes with a run token that a job holds.
    pub running: LaneMask,
    /// Lanes that a cap moves below ordinary threads: gated ones without critical work, and those that the hard cap
    /// pauses.
    pub paused: LaneMask,
    /// Lanes that the hard cap pauses, ceilings included: all except those with a job that held a resource at its
    /// start.
    pub fully_paused: LaneMask,
    /// Lanes that must decide again. They accumulate until the caller drains them.
    pub woken: LaneMask,
    /// Completions for other processors. They accumulate until the caller drains them.
    pub sends: Vec<(ProcessorId, Signal)>,
    /// After `Complete`: the number of jobs or joins of this processor that got its ticket.
    pub passed_on: u32,
    /// Released tickets, one entry for each reference. They accumulate until the caller drains them.
    pub returned: Vec<Ticket>,
    /// After `LaneRuns`: the job that the lane must run; `None` if it continues with the present one, or with none.
    pub run: Option<Run>,
    /// After `Observe`: the action on the job.
    pub overrun: OverrunAction,
    /// After `Acquire` and `Release`: the level at which the job runs from now on.
    pub level: u8,
    /// After `Signal`: it was dropped, because no operation of this processor matches it. After `Invoke`: the request
    /// was refused, because its operation is off or busy, or its queue is full.
    pub lost: bool,
    /// After `Sample`: the utilisation for the coordinator of the processor's group, in parts per million of the hard
    /// cap. `None` if it was not measured, or while nothing runs that the loop adapts.
    pub sampled: Option<u32>,
    /// New periods of operations, which the loop here has set, for other processors. They accumulate until the caller
    /// drains them.
    pub retimed: Vec<(ProcessorId, OperationId, Span)>,
    /// Values of contracts for other processors, by the numbers of their routes. They accumulate until the caller drains
    /// them; a newer value replaces an older one.
    pub contract_updates: Vec<(u16, i64)>,
    /// New periods of registered clients. They accumulate until the caller drains them.
    pub paced: Vec<(u16, Span)>,
    /// After `Admit` and `Withdraw`: the decision. `None` if the operation is not on standby here.
    pub admission: Option<AdmissionOutcome>,
    /// Operations that have left this processor: the last job of each has ended. They accumulate until the caller drains
    /// them.
    pub departed: Vec<DepartedOperation>,
    /// Started jobs that were cancelled from outside: complete each as soon as it can be stopped. They accumulate until
    /// the caller takes them.
    pub cancelled: Vec<Slot>,
    /// Regions of contracts that have ended or begun. They accumulate until the caller drains them; those beyond the
    /// capacity are left out, so callers without use for them may ignore them.
    pub regions: Vec<ChangedRegion>,
    /// The run ends: critical overload has lasted, and the file's rule is to stop.
    pub stop: bool,
    /// The scheduling work of the input.
    pub work: SchedulerWork,
}

impl Effects {
    pub(crate) fn add_region(&mut self, region: ChangedRegion) {
        if self.regions.len() < self.regions.capacity() {
            self.regions.push(region);
        }
    }
}

/// A region of a contract has ended, another one of its level has begun, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedRegion {
    /// When.
    pub at: Instant,
    /// The contract's position in the system.
    pub contract: u16,
    /// The region that has ended.
    pub from: Option<u16>,
    /// The region that has begun.
    pub to: Option<u16>,
}

/// An operation that has left its processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepartedOperation {
    /// The operation here.
    pub operation: OperationId,
    /// Begin of its next period.
    pub nominal: Instant,
    /// The number of its next job.
    pub number: u64,
}

/// The scheduling work of one input: each of these costs time ([`hyoshi_model::Costs`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerWork {
    /// Jobs that entered a queue, or returned to one after they blocked.
    pub enqueued: u32,
    /// Those of them that were released because the processor was idle (rule 3 of the guard).
    pub released_when_idle: u32,
    /// Releases that found the operation busy, or its queue full: they or older ones were dropped.
    pub refused: u32,
    /// Jobs that were cancelled.
    pub cancelled: u32,
}

/// A lane's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The job to run, by its slot.
    pub slot: Slot,
    /// Its id.
    pub job: JobId,
    /// Position of its operation among those of this processor's plan.
    pub local: u32,
    /// True if it has run before.
    pub resumed: bool,
    /// The job that it preempts, if the lane was running one.
    pub preempted: Option<Slot>,
}

/// The action on a job that was observed beyond, or not yet at, its worst case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverrunAction {
    /// It is within its worst case.
    #[default]
    Within,
    /// It continues below every lane and has released the run token.
    Demote,
    /// It must end: complete it as soon as it can be stopped.
    Stop,
}
