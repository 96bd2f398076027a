//! Changes of a CPU and its jobs, derived from a recording.

use hyoshi_model::{Instant, JobId, ResourceId, Span};

use hyoshi_trace::{CpuEvent, CpuUser, TraceEvent, Wait};

/// The user of the CPU during an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuOccupant {
    /// Idle.
    Idle,
    /// A job.
    Job(RunningJob),
    /// A lane's thread before its next job, or the kernel's switch to that thread.
    Dispatch,
    /// Scheduling.
    Overhead(CpuUser),
    /// A thread outside this processor, by the number of its name.
    Other(u32),
    /// An unknown thread.
    Unknown,
}

/// A job that has the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningJob {
    /// The job.
    pub job: JobId,
    /// Its own level.
    pub level: u8,
    /// Its lane.
    pub lane: u8,
    /// Its deadline.
    pub deadline: Instant,
    /// Of the resources that it holds, the one with the most urgent ceiling.
    pub holds: Option<ResourceId>,
    /// It runs above its lane because of that resource.
    pub raised: bool,
    /// It runs below the lanes: demoted, or gated or paused by the cap.
    pub below: bool,
}

/// A change of the CPU or of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuChange {
    /// An interval of the CPU's time.
    Slice {
        /// Its beginning.
        from: Instant,
        /// Its end.
        to: Instant,
        /// The user of the CPU.
        occupant: CpuOccupant,
    },
    /// A transition of a job.
    Job {
        /// Its time.
        at: Instant,
        /// The job.
        job: JobId,
        /// Its lane.
        lane: u8,
        /// The transition.
        transition: JobTransition,
    },
    /// The cap's first gated lane; 255 for none.
    Gate {
        /// The lane.
        lane: u8,
    },
    /// The hard cap pauses all lanes or opens them again.
    Pause {
        /// True at the beginning of the pause.
        on: bool,
    },
    /// The strategy changes: jobs that have not started get the levels of the other one.
    Switch {
        /// True for the second strategy.
        second: bool,
    },
}

/// A transition of a live job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobTransition {
    /// It entered its lane's queue.
    Ready,
    /// It receives its lane's token: it starts or continues.
    Runs,
    /// It yields the token to a better job of its lane.
    Yields,
    /// It blocks voluntarily.
    Suspended,
    /// It can continue, and waits for the token.
    Resumed,
    /// It waits for a resource of another processor, and keeps its lane's token.
    Blocked(ResourceId),
    /// It received the resource.
    Unblocked,
    /// Its thread blocked, for this reason if the kernel reported it.
    Slept(Option<Wait>),
    /// Its thread has the CPU again.
    Woke {
        /// The previous thread was preempted; otherwise it blocked.
        preempted: bool,
    },
    /// It exceeded its declared worst case and continues below the lanes.
    Demoted,
    /// Its state is unknown because events were lost.
    Lost,
}

/// Time that was used at an unknown instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct UntimedUse {
    pub overhead: Span,
    pub stolen: Span,
}

impl UntimedUse {
    /// Adds the time of an event.
    pub fn event(&mut self, event: &TraceEvent) {
        match event {
            TraceEvent::Cpu(CpuEvent::Overhead { span, .. }) => self.overhead = sum(self.overhead, *span),
            // The time of a lane's threads belongs to the jobs.
            TraceEvent::Cpu(CpuEvent::Used { who: CpuUser::Release | CpuUser::Watchdog, span }) => {
                self.overhead = sum(self.overhead, *span);
            }
            TraceEvent::Cpu(CpuEvent::Stolen { span }) => self.stolen = sum(self.stolen, *span),
            _ => {}
        }
    }
}

/// Adds spans without overflow: the recording may be edited.
pub(super) fn sum(one: Span, other: Span) -> Span {
    one.checked_add(other).unwrap_or(Span::from_nanos(u64::MAX))
}
