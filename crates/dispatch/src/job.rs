//! Jobs and the table that holds them: allocated once, bounded by the queues' limits.

use alloc::vec::Vec;

use hyoshi_model::{Instant, JobId, Span};
use hyoshi_trace::Slot;

/// The state of one job, from release to end.
///
/// ```text
///            guard closed        guard opens
///   arrive ──────────────► Held ────────────► Ready ─LaneRuns─► Running ──complete──► (ended)
///      │                                       ▲ ▲ │              │  │
///      └───────────────────────────────────────┘ │ └─cancelled    │  ├─observe─► Demoted ──complete──►
///                                                └────preempted───┤  │
///                                                └────resume──────┴─suspend─► Suspended
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
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

/// One job.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Which execution of which operation.
    pub id: JobId,
    /// Position of the operation among those of this processor.
    pub(crate) local: u32,
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
    /// Jobs of its release: legs of a load chain.
    pub legs: u16,
    /// How many of the first legs are critical.
    pub(crate) critical_legs: u16,
    /// The epoch of its release.
    pub epoch: u16,
    /// Its lane.
    pub lane: u8,
    /// Its level.
    pub level: u8,
    pub(crate) tie: u16,
    /// Its place under the strategy that does not rule.
    pub(crate) other: hyoshi_sched::Place,
    /// The levels of critical and other legs under the second strategy, if there is one.
    pub(crate) legs_at: (u8, u8),
    /// It had started when the strategy changed: it finishes at its old level, before what waits there.
    pub(crate) carried: bool,
    /// When it, or its present segment, first entered the queue, relative to others.
    pub(crate) arrival: u64,
    /// Whether it is critical.
    pub critical: bool,
    /// Where it is in its life.
    pub state: State,
    /// It went below the lanes at some point.
    pub demoted: bool,
    /// It exceeded its worst case and must end.
    pub stopped: bool,
    /// It was preempted or has waited since its start.
    pub(crate) started: bool,
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
            // Slots are handed out in order at first, so the vector grows within its capacity.
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
