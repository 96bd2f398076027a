//! A lane: one run token, and the waiting jobs of its levels.

use alloc::vec::Vec;

use hyoshi_model::Preemption;
use hyoshi_sched::ProcessorPlan;
use hyoshi_trace::Slot;

use crate::operation::OperationState;
use crate::queue::{LaneQueue, QueueRank};

/// One lane of a processor.
#[derive(Debug)]
pub struct LaneState {
    /// Its levels, most urgent first; one, unless the processor is without preemption.
    pub levels: core::ops::Range<u8>,
    /// Whether a waiting job may get the token of the running one.
    pub preemptive: bool,
    /// Whether critical jobs can be in it.
    pub critical: bool,
    /// The job that holds the run token.
    pub running: Option<Slot>,
    // Separate, so a gated lane still finds its best critical job at once.
    critical_jobs: LaneQueue,
    other_jobs: LaneQueue,
}

impl LaneState {
    pub(crate) fn of(plan: &ProcessorPlan, operations: &[OperationState]) -> Vec<LaneState> {
        let make = |levels: core::ops::Range<u8>| {
            let fits = |(position, _): &(usize, &OperationState)| {
                levels_of(plan, *position).iter().any(|level| levels.contains(&level))
            };
            let capacity = |(_, operation): (usize, &OperationState)| operation.queue.most_jobs();
            let capacity: usize = operations.iter().enumerate().filter(fits).map(capacity).sum();
            let mut all = plans(plan).flat_map(|plan| plan.levels.iter().zip(0u8..));
            let critical = all.any(|(level, index)| levels.contains(&index) && level.critical);
            LaneState {
                levels,
                preemptive: plan.preemption == Preemption::Full,
                critical,
                running: None,
                critical_jobs: LaneQueue::with_capacity(if critical { capacity } else { 0 }),
                other_jobs: LaneQueue::with_capacity(capacity),
            }
        };
        lanes_of(plan).into_iter().map(make).collect()
    }

    /// The lane of a level.
    pub(crate) fn index_of(lanes: &[LaneState], level: u8) -> u8 {
        // One lane for all levels, or one for each.
        if lanes.len() == 1 { 0 } else { level }
    }

    /// The best waiting job; only of the critical ones while the cap gates the lane.
    #[inline]
    pub(crate) fn best(&self, critical_only: bool) -> Option<(QueueRank, Slot)> {
        let critical = self.critical_jobs.peek();
        if critical_only {
            return critical;
        }
        match (critical, self.other_jobs.peek()) {
            (Some(one), Some(other)) => Some(if one.0 < other.0 { one } else { other }),
            (one, other) => one.or(other),
        }
    }

    #[inline]
    pub(crate) fn dequeue(&mut self, critical_only: bool) -> Option<Slot> {
        let critical_first = match (self.critical_jobs.peek(), self.other_jobs.peek()) {
            (_, None) => true,
            (None, Some(_)) => critical_only,
            (Some(one), Some(other)) => critical_only || one.0 < other.0,
        };
        let queue = if critical_first { &mut self.critical_jobs } else { &mut self.other_jobs };
        queue.dequeue().map(|(_, slot)| slot)
    }

    #[inline]
    pub(crate) fn queue_mut(&mut self, critical: bool) -> &mut LaneQueue {
        if critical { &mut self.critical_jobs } else { &mut self.other_jobs }
    }

    /// Removes every waiting job.
    pub(crate) fn clear(&mut self) {
        self.critical_jobs.clear();
        self.other_jobs.clear();
    }

    /// Whether critical and other jobs wait.
    #[inline]
    pub(crate) fn occupied(&self) -> (bool, bool) {
        (!self.critical_jobs.is_empty(), !self.other_jobs.is_empty())
    }

    /// Every waiting job, in no order.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (QueueRank, Slot)> + '_ {
        self.critical_jobs.iter().chain(self.other_jobs.iter())
    }
}

/// The plan of the first strategy, and that of the second if there is one.
pub fn plans(plan: &ProcessorPlan) -> impl Iterator<Item = &ProcessorPlan> {
    core::iter::once(plan).chain(plan.overload.as_deref())
}

/// The levels that the jobs of an operation can have, under either strategy. `position` is its own among the plan's
/// operations.
pub fn levels_of(plan: &ProcessorPlan, position: usize) -> LaneMask {
    plans(plan).fold(LaneMask::EMPTY, |mask, plan| mask | LaneMask(plan.reach[position]))
}

/// The lanes of a plan, for starting their threads: as many as the longer of two strategies has levels.
pub fn lanes_of(plan: &ProcessorPlan) -> Vec<core::ops::Range<u8>> {
    let levels = plans(plan).map(|plan| plan.levels.len()).max().unwrap_or(1).max(1) as u8;
    match plan.preemption {
        Preemption::None => core::iter::once(0..levels).collect(),
        Preemption::Levels | Preemption::Full => (0..levels).map(|level| level..level + 1).collect(),
    }
}

/// A set of lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneMask(u64);

impl LaneMask {
    /// No lane.
    pub const EMPTY: LaneMask = LaneMask(0);

    /// Adds a lane.
    #[inline]
    pub fn insert(&mut self, lane: u8) {
        self.0 |= 1 << lane;
    }

    /// Removes a lane.
    #[inline]
    pub fn remove(&mut self, lane: u8) {
        self.0 &= !(1 << lane);
    }

    /// True if the lane is in it.
    #[inline]
    pub fn contains(self, lane: u8) -> bool {
        self.0 & (1 << lane) != 0
    }

    /// The lanes before `lane`; all of them for one that does not exist.
    #[inline]
    pub const fn before(lane: u8) -> LaneMask {
        LaneMask(if lane >= 64 { u64::MAX } else { (1 << lane) - 1 })
    }

    /// Sets whether a lane is in it.
    #[inline]
    pub fn set(&mut self, lane: u8, inside: bool) {
        self.0 = self.0 & !(1 << lane) | u64::from(inside) << lane;
    }

    /// True for no lane.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The most urgent lane in it.
    #[inline]
    pub fn first(self) -> Option<u8> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as u8)
    }

    /// Its lanes, most urgent first.
    pub fn iter(mut self) -> impl Iterator<Item = u8> {
        core::iter::from_fn(move || {
            let lane = self.first()?;
            self.remove(lane);
            Some(lane)
        })
    }
}

impl core::ops::BitOr for LaneMask {
    type Output = LaneMask;
    #[inline]
    fn bitor(self, other: LaneMask) -> LaneMask {
        LaneMask(self.0 | other.0)
    }
}

impl core::ops::BitAnd for LaneMask {
    type Output = LaneMask;
    #[inline]
    fn bitand(self, other: LaneMask) -> LaneMask {
        LaneMask(self.0 & other.0)
    }
}

impl core::ops::Not for LaneMask {
    type Output = LaneMask;
    #[inline]
    fn not(self) -> LaneMask {
        LaneMask(!self.0)
    }
}

impl FromIterator<u8> for LaneMask {
    fn from_iter<I: IntoIterator<Item = u8>>(lanes: I) -> Self {
        lanes.into_iter().fold(LaneMask::EMPTY, |mut mask, lane| {
            mask.insert(lane);
            mask
        })
    }
}
