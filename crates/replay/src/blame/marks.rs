//! What a recording says of a CPU: who had it, and what became of its jobs.

use hyoshi_model::{Instant, JobId, ResourceId, Span};

use hyoshi_trace::{Event, Seen, Wait, Who};

/// Who had the CPU for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Nobody.
    Idle,
    /// A job.
    Job(Runner),
    /// A lane's thread on its way to its next job, or the kernel on its way to the thread.
    Dispatch,
    /// The middleware's own work.
    Overhead(Who),
    /// A thread that is none of this processor's, by the number of its name.
    Other(u32),
    /// An unknown thread.
    Unknown,
}

/// A job that has the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runner {
    /// The job.
    pub job: JobId,
    /// Its own level.
    pub level: u8,
    /// Its lane.
    pub lane: u8,
    /// Its deadline.
    pub deadline: Instant,
    /// A resource that it holds, the one with the most urgent ceiling.
    pub holds: Option<ResourceId>,
    /// It runs above its own lane because of that.
    pub raised: bool,
    /// It runs below the lanes: demoted, or paused by the cap.
    pub below: bool,
}

/// Something that a recording says of the CPU, in the order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The CPU was so used.
    Slice {
        /// From then.
        from: Instant,
        /// Until then.
        to: Instant,
        /// By whom.
        holder: Holder,
    },
    /// A job's life took a turn.
    Turn {
        /// When.
        at: Instant,
        /// The job.
        job: JobId,
        /// Its lane.
        lane: u8,
        /// How.
        turn: Turn,
    },
    /// The cap's first gated lane from now on; 255 for none.
    Gate {
        /// The lane.
        lane: u8,
    },
    /// The hard cap pauses every lane, or opens them again.
    Pause {
        /// True while they pause.
        on: bool,
    },
    /// The other strategy rules: jobs that have not begun have their levels under it.
    Switch {
        /// True for the second.
        second: bool,
    },
}

/// What can happen to a live job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It entered its lane's queue.
    Ready,
    /// It has its lane's token: it began, or goes on.
    Runs,
    /// It gave the token up to a better job of its lane.
    Yields,
    /// It blocks by its own will.
    Suspended,
    /// It can go on, and waits for the token.
    Resumed,
    /// It waits for a resource that another processor holds, without giving its lane's token up.
    Blocked(ResourceId),
    /// It has what it waited for.
    Unblocked,
    /// The kernel saw its thread block, to wait for this if it said so.
    Slept(Option<Wait>),
    /// Its thread has the CPU again: that which had it was preempted, or gave it up.
    Woke {
        /// It was preempted.
        preempted: bool,
    },
    /// It exceeded its declared worst case and goes on below the lanes.
    Demoted,
    /// Its state is unknown because events were lost.
    Lost,
}

/// Time that is known to have gone to something, but not when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pools {
    pub overhead: Span,
    pub stolen: Span,
}

impl Pools {
    /// What an event adds.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Seen(Seen::Overhead { span, .. }) => self.overhead = sum(self.overhead, *span),
            // A lane's threads are the jobs themselves.
            Event::Seen(Seen::Used { who: Who::Release | Who::Watchdog, span }) => {
                self.overhead = sum(self.overhead, *span);
            }
            Event::Seen(Seen::Stolen { span }) => self.stolen = sum(self.stolen, *span),
            _ => {}
        }
    }
}

/// A sum that an edited recording cannot make overflow.
pub(super) fn sum(one: Span, other: Span) -> Span {
    one.checked_add(other).unwrap_or(Span::from_nanos(u64::MAX))
}
