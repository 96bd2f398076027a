//! What follows from an input.

use alloc::vec::Vec;

use hyoshi_model::{Instant, JobId, ProcessorId};
use hyoshi_trace::{Signal, Slot, Ticket};

use crate::lane::LaneMask;

/// What the caller does after an input. It keeps one of these for each dispatcher and passes it to every
/// [`Dispatcher::handle`](crate::Dispatcher::handle), which
/// allocates nothing in it as long as `sends`, `returned` and `cancelled` are taken after each.
#[derive(Debug, Default)]
pub struct Effects {
    /// When the next `Tick` is due, or an `Observe` of what is overdue.
    pub timer: Instant,
    /// Lanes whose run token is free and whose queue holds a job that may start.
    pub startable: LaneMask,
    /// Lanes whose run token is taken.
    pub running: LaneMask,
    /// Lanes that a cap moves below ordinary threads: gated ones without critical work, and those that the hard cap
    /// pauses.
    pub paused: LaneMask,
    /// Lanes that the hard cap pauses, ceilings included: all but those whose jobs held a resource when it began.
    pub paused_wholly: LaneMask,
    /// Lanes with something new to decide. They accumulate until the caller takes them.
    pub woken: LaneMask,
    /// Completions for other processors. They accumulate until the caller takes them.
    pub sends: Vec<(ProcessorId, Signal)>,
    /// After `Complete`: to how many jobs or joins of this processor its ticket went.
    pub handed_on: u32,
    /// Released tickets, one entry for each reference. They accumulate until the caller takes them.
    pub returned: Vec<Ticket>,
    /// After `LaneRuns`: the job that the lane runs from now on; `None` if it goes on with what it has, or with nothing.
    pub run: Option<Run>,
    /// After `Observe`: what becomes of the job.
    pub overrun: OverrunAction,
    /// After `Acquire` and `Release`: the level at which the job runs from now on.
    pub level: u8,
    /// After `Signal`: it was dropped, because no operation of this processor matches it. After `Invoke`: the request was
    /// refused, because its operation is off or busy, or its queue is full.
    pub lost: bool,
    /// Started jobs that were cancelled from outside: complete each as soon as it can be stopped. They accumulate until the
    /// caller takes them.
    pub cancelled: Vec<Slot>,
    /// The run ends: critical overload has lasted, and the file says so.
    pub stop: bool,
    /// What the input made the scheduler do.
    pub work: SchedulerWork,
}

/// What one input made the scheduler do: each of these costs time ([`hyoshi_model::Costs`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerWork {
    /// Jobs that entered a queue, or came back to one after they blocked.
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
    /// The job to run.
    pub slot: Slot,
    /// Which job that is.
    pub job: JobId,
    /// Position of its operation among those of this processor's plan.
    pub local: u32,
    /// True if it has run before and goes on.
    pub resumed: bool,
    /// The job that gives the lane up for it, if it was running one.
    pub preempted: Option<Slot>,
}

/// What becomes of a job that was observed beyond, or not yet at, its worst case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverrunAction {
    /// It is within its worst case.
    #[default]
    Within,
    /// It goes on below every lane and has given the run token up.
    Demote,
    /// It must end: complete it as soon as it can be stopped.
    Stop,
}
