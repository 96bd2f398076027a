//! The queue of a lane: waiting jobs in the order of level, the discipline's key, the tie-break, and arrival. Allocated
//! once; no lock.

use core::cmp::Ordering;

use hyoshi_model::{Instant, Span};
use hyoshi_sched::Discipline;
use hyoshi_trace::Slot;

use crate::heap::Heap;

/// The order of waiting jobs: level, key, tie, arrival, in one comparable number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueRank(u128);

impl QueueRank {
    const ARRIVAL_BITS: u32 = 42;
    const TIE_BITS: u32 = 16;

    /// The rank of a job: `level` below 64, `key` from [`key`], `tie` from the plan, and the
    /// number of its arrival at this dispatcher (2^42 of them last seven weeks at a million a second).
    pub const fn new(level: u8, key: u64, tie: u16, arrival: u64) -> Self {
        let level = (level as u128) << (64 + Self::TIE_BITS + Self::ARRIVAL_BITS);
        let key = (key as u128) << (Self::TIE_BITS + Self::ARRIVAL_BITS);
        let arrival = arrival & ((1 << Self::ARRIVAL_BITS) - 1);
        QueueRank(level | key | ((tie as u128) << Self::ARRIVAL_BITS) | arrival as u128)
    }

    /// True if this rank is better than `other` by level or key: equal ones are not (the running job wins a tie).
    pub const fn beats(self, other: QueueRank) -> bool {
        let below = Self::TIE_BITS + Self::ARRIVAL_BITS;
        self.0 >> below < other.0 >> below
    }

    /// When the job arrived, relative to others of the same dispatcher.
    pub const fn arrival(self) -> u64 {
        (self.0 & ((1 << Self::ARRIVAL_BITS) - 1)) as u64
    }
}

/// The discipline's key: smaller runs first.
///
/// Laxity is deadline - now - remaining; among waiting jobs `now` is the same for all, so the order
/// never changes with time and deadline - remaining serves as the key.
pub const fn key(discipline: Discipline, deadline: Instant, remaining: Span) -> u64 {
    match discipline {
        Discipline::Fifo => 0,
        Discipline::Deadline => deadline.as_nanos(),
        Discipline::Laxity => deadline.as_nanos().saturating_sub(remaining.as_nanos()),
    }
}

/// A waiting job. No two have the same rank: each has its own arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    rank: QueueRank,
    slot: Slot,
}

impl Ord for Waiting {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank.0.cmp(&other.rank.0)
    }
}

impl PartialOrd for Waiting {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }

    // One comparison of numbers, which dominates the heap's time.
    #[inline]
    fn lt(&self, other: &Self) -> bool {
        self.rank.0 < other.rank.0
    }
}

/// Waiting jobs, best first.
#[derive(Debug, Default)]
pub struct LaneQueue {
    heap: Heap<Waiting>,
}

impl LaneQueue {
    /// An empty queue for `capacity` jobs without further allocation.
    pub fn with_capacity(capacity: usize) -> Self {
        LaneQueue { heap: Heap::with_capacity(capacity) }
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.heap.entries().is_empty()
    }

    /// The best waiting job.
    #[inline]
    pub fn peek(&self) -> Option<(QueueRank, Slot)> {
        self.heap.first().map(|first| (first.rank, first.slot))
    }

    /// Adds a job.
    #[inline]
    pub fn enqueue(&mut self, rank: QueueRank, slot: Slot) {
        self.heap.push(Waiting { rank, slot });
    }

    /// Removes the best job.
    #[inline]
    pub fn dequeue(&mut self) -> Option<(QueueRank, Slot)> {
        self.heap.pop().map(|first| (first.rank, first.slot))
    }

    /// Removes a job at any position; linear, for the rare case that a full queue drops one.
    pub fn remove(&mut self, slot: Slot) -> bool {
        let position = self.iter().position(|(_, waiting)| waiting == slot);
        position.inspect(|position| self.heap.remove(*position)).is_some()
    }

    /// Removes all jobs.
    pub fn clear(&mut self) {
        self.heap.clear();
    }

    /// All waiting jobs, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (QueueRank, Slot)> + '_ {
        self.heap.entries().iter().map(|one| (one.rank, one.slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn the_least_laxity_key_prefers_the_longer_of_two_jobs_with_one_deadline() {
        let long = key(Discipline::Laxity, at(100), Span::from_nanos(60));
        let short = key(Discipline::Laxity, at(100), Span::from_nanos(10));
        assert!(long < short);
        assert_eq!(key(Discipline::Deadline, at(100), Span::from_nanos(60)), 100);
    }

    #[test]
    fn a_tie_in_the_key_does_not_beat_the_running_job() {
        let running = QueueRank::new(1, 50, 7, 9);
        assert!(!QueueRank::new(1, 50, 0, 1).beats(running));
        assert!(QueueRank::new(1, 49, 9, 99).beats(running));
        assert!(QueueRank::new(0, u64::MAX, 9, 99).beats(running));
    }

    proptest! {
        #[test]
        fn a_rank_keeps_when_its_job_arrived(level in 0u8..64, key: u64, tie: u16, arrival in 0u64..1 << QueueRank::ARRIVAL_BITS) {
            prop_assert_eq!(QueueRank::new(level, key, tie, arrival).arrival(), arrival);
        }

        #[test]
        fn jobs_leave_in_the_order_of_level_key_tie_and_arrival(
            jobs in prop::collection::vec((0u8..3, 0u64..20, 0u16..3, prop::bool::ANY), 0..200)
        ) {
            let mut queue = LaneQueue::with_capacity(jobs.len());
            let mut expected = Vec::new();
            for (arrival, (level, key, tie, take_one)) in jobs.iter().enumerate() {
                let entry = (*level, *key, *tie, arrival as u64);
                queue.enqueue(QueueRank::new(entry.0, entry.1, entry.2, entry.3), Slot(arrival as u32));
                expected.push(entry);
                prop_assert!(!queue.is_empty());
                expected.sort_unstable();
                if *take_one {
                    let (_, slot) = queue.dequeue().unwrap();
                    prop_assert_eq!(u64::from(slot.0), expected.remove(0).3);
                }
            }
            while let Some((_, slot)) = queue.dequeue() {
                prop_assert_eq!(u64::from(slot.0), expected.remove(0).3);
            }
            prop_assert!(expected.is_empty() && queue.is_empty());
            jobs.iter().for_each(|(level, key, tie, _)| queue.enqueue(QueueRank::new(*level, *key, *tie, 0), Slot(0)));
            queue.clear();
            prop_assert_eq!(queue.peek(), None);
        }

        #[test]
        fn removing_a_job_leaves_the_others_in_order(keys in prop::collection::vec(0u64..50, 1..60), victim in 0usize..60) {
            let mut queue = LaneQueue::default();
            for (arrival, key) in keys.iter().enumerate() {
                queue.enqueue(QueueRank::new(0, *key, 0, arrival as u64), Slot(arrival as u32));
            }
            prop_assert_eq!(queue.remove(Slot(victim as u32)), victim < keys.len());
            let mut left: Vec<(u64, u32)> = Vec::new();
            while let Some((_, slot)) = queue.dequeue() {
                left.push((keys[slot.0 as usize], slot.0));
            }
            prop_assert!(left.is_sorted());
            prop_assert!(left.iter().all(|(_, slot)| *slot as usize != victim));
        }
    }
}
