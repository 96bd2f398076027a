//! Jobs and the table that holds them: allocated once, bounded by the queues' limits.

use alloc::vec::Vec;

use hyoshi_model::{Instant, JobId, Span};
use hyoshi_trace::Slot;

use crate::tickets::TicketSet;

/// The state of one job, from release to end; [`Transition`] numbers the arrows.
///
/// ```text
///            1                2                3                 8
///   arrive ─────► Held ───────────► Ready ───────────► Running ─────► (ended)
///      │                            ▲ ▲ │◄────────────    │ │            ▲
///      └────────────────────────────┘ │ │       4         │ │ 7          │ 8
///                    2                │ └───────────┐     │ └──────► Demoted
///                                   6 │        7    │     │ 5            ▲
///                                     └── Suspended ┼◄────┘              │
///                                             └─────┴────────────────────┘
/// ```
///
/// Not drawn: 7 and 8 from Ready, 8 from Suspended (a stopped body), 9 from each state, 10 from Ready to Ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// Waits for its release guard.
    Held,
    /// Waits in its lane's queue.
    Ready,
    /// Holds its lane's run token.
    Running,
    /// Blocks, without the token.
    Suspended,
    /// Runs below every lane, without the token.
    Demoted,
}

/// The events of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// Its guard, or an offset, delays it.
    Hold = 1,
    /// It enters its lane's queue for the first time.
    Release = 2,
    /// It gets the run token.
    Start = 3,
    /// A better job gets its token.
    Preempt = 4,
    /// It blocks.
    Suspend = 5,
    /// It continues after it blocked.
    Resume = 6,
    /// It continues below the lanes.
    Demote = 7,
    /// Its body has returned.
    Complete = 8,
    /// It is cancelled or dropped, or the run ends.
    Drop = 9,
    /// The processor's strategy or a rate changes: it gets another position in a queue.
    Requeue = 10,
}

impl Transition {
    /// True if it can happen in this state.
    pub const fn is_possible(self, state: JobState) -> bool {
        use JobState::{Demoted, Held, Ready, Running, Suspended};
        match self {
            Transition::Hold | Transition::Release => matches!(state, Held),
            Transition::Start | Transition::Requeue => matches!(state, Ready),
            Transition::Preempt | Transition::Suspend => matches!(state, Running),
            Transition::Resume => matches!(state, Suspended),
            Transition::Demote => matches!(state, Ready | Running | Suspended),
            Transition::Complete => matches!(state, Ready | Running | Suspended | Demoted),
            Transition::Drop => true,
        }
    }

    /// The state that it leads to; `None` if the job ends.
    pub const fn leads_to(self) -> Option<JobState> {
        match self {
            Transition::Hold => Some(JobState::Held),
            Transition::Release | Transition::Preempt | Transition::Resume | Transition::Requeue => {
                Some(JobState::Ready)
            }
            Transition::Start => Some(JobState::Running),
            Transition::Suspend => Some(JobState::Suspended),
            Transition::Demote => Some(JobState::Demoted),
            Transition::Complete | Transition::Drop => None,
        }
    }
}

/// One job.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// Position of the operation among those of this processor's plan.
    pub local: u32,
    /// Nominal release of the root job.
    pub origin: Instant,
    /// Present period of the root, for guards down the chain.
    pub period: Span,
    /// Nominal release.
    pub release: Instant,
    /// When it entered its lane's queue.
    pub ready: Instant,
    /// When it started.
    pub start: Instant,
    /// Absolute deadline.
    pub deadline: Instant,
    /// Declared worst case.
    pub wcet: Span,
    /// Declared worst case less what it has used, as far as observed.
    pub remaining: Span,
    /// The execution time that it is expected to use, for the conditions of contracts.
    pub(crate) expected: Span,
    /// Jobs of its release: legs of a load chain.
    pub legs: u16,
    /// How many of the first legs are critical.
    pub(crate) critical_legs: u16,
    /// The epoch of its release.
    pub epoch: u16,
    /// The place of its service level among those of its operation.
    pub service_level: u8,
    /// Its lane.
    pub lane: u8,
    /// Its level.
    pub level: u8,
    pub(crate) tie: u16,
    /// Rank among operations and requests; higher is more important.
    pub importance: u32,
    /// True if its operation's timeout released it.
    pub timed_out: bool,
    /// Its position under the strategy that is not in force.
    pub other: hyoshi_sched::LevelPosition,
    /// The levels of critical and other legs under the second strategy, if there is one.
    pub(crate) legs_at: (u8, u8),
    /// It had started when the strategy changed: it finishes at its old level, before what waits there.
    pub(crate) carried: bool,
    /// When it, or its present segment, first entered the queue, relative to others.
    pub(crate) arrival: u64,
    /// Whether it is critical.
    pub critical: bool,
    /// Its state.
    pub state: JobState,
    /// It was demoted below the lanes.
    pub demoted: bool,
    /// It exceeded its worst case or its deadline, and must end.
    pub stopped: bool,
    /// It was stopped because it exceeded its worst case.
    pub(crate) overran: bool,
    /// It was cancelled from outside after its start, and must end.
    pub cancelled: bool,
    /// It has had the run token.
    pub(crate) started: bool,
    /// When it got it last.
    pub(crate) dispatched: Instant,
    /// It waits for the body of its operation, which an earlier job has: it was suspended as soon as it was dispatched.
    pub(crate) aside: bool,
    /// The hops that its completion chooses, one bit each.
    pub(crate) hops: u64,
    /// The tickets of the completions that triggered it.
    pub(crate) tickets: TicketSet,
}

impl Job {
    #[inline]
    pub(crate) fn make(&mut self, transition: Transition) {
        debug_assert!(transition.is_possible(self.state), "{transition:?} of a job that is {:?}", self.state);
        self.state = transition.leads_to().unwrap_or(self.state);
    }
}

/// Jobs by slot.
#[derive(Debug)]
pub struct JobTable {
    jobs: Vec<Job>,
    live: Vec<bool>,
    free: Vec<Slot>,
}

impl JobTable {
    /// A table for `capacity` jobs.
    pub fn with_capacity(capacity: usize) -> Self {
        let free = (0..capacity as u32).rev().map(Slot).collect();
        JobTable { jobs: Vec::with_capacity(capacity), live: alloc::vec![false; capacity], free }
    }

    /// Puts a job into a free slot; `None` if the table is full.
    #[inline]
    pub fn insert(&mut self, job: Job) -> Option<Slot> {
        let slot = self.free.pop()?;
        match self.jobs.get_mut(slot.0 as usize) {
            Some(place) => *place = job,
            // At first slots are assigned in order, so the vector grows within its capacity.
            None => self.jobs.push(job),
        }
        self.live[slot.0 as usize] = true;
        Some(slot)
    }

    /// Ends a job.
    #[inline]
    pub fn remove(&mut self, slot: Slot) -> Job {
        debug_assert!(self.live[slot.0 as usize], "{slot:?} is not live");
        self.live[slot.0 as usize] = false;
        self.free.push(slot);
        self.jobs[slot.0 as usize]
    }

    /// The job in a slot.
    #[inline]
    pub fn get(&self, slot: Slot) -> &Job {
        &self.jobs[slot.0 as usize]
    }

    /// The job in a slot.
    #[inline]
    pub fn get_mut(&mut self, slot: Slot) -> &mut Job {
        &mut self.jobs[slot.0 as usize]
    }

    /// True if a job is in the slot.
    pub fn is_live(&self, slot: Slot) -> bool {
        self.live.get(slot.0 as usize).copied().unwrap_or(false)
    }

    /// Every live job.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &Job)> {
        let live = self.live.iter().zip(&self.jobs).enumerate();
        live.filter(|(_, (live, _))| **live).map(|(slot, (_, job))| (Slot(slot as u32), job))
    }

    /// How many jobs fit.
    pub fn capacity(&self) -> usize {
        self.live.len()
    }

    /// How many live jobs there are.
    pub fn len(&self) -> usize {
        self.live.len() - self.free.len()
    }

    /// True if no job is live.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use JobState::{Demoted, Held, Ready, Running, Suspended};

    #[test]
    fn only_queued_jobs_get_the_token_and_only_its_holder_releases_it() {
        use Transition::{Demote, Hold, Preempt, Release, Resume, Start, Suspend};
        let possible = |state| {
            let all = [Hold, Release, Start, Preempt, Suspend, Resume, Demote];
            all.into_iter().filter(move |transition| transition.is_possible(state)).collect::<Vec<_>>()
        };
        assert_eq!(possible(Held), [Hold, Release]);
        assert_eq!(possible(Ready), [Start, Demote]);
        assert_eq!(possible(Running), [Preempt, Suspend, Demote]);
        assert_eq!(possible(Suspended), [Resume, Demote]);
        assert_eq!(possible(Demoted), []);
        assert!(!Transition::Complete.is_possible(Held));
    }
}
