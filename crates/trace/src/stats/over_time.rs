//! Job ends over time, by class, in constant memory: if the buckets do not suffice, their width doubles.

use hyoshi_model::{Instant, Span, System};

use super::counts::unfinished;
use crate::event::{JobEnd, JobOutcome};

/// The most buckets of a run's statistics.
pub(super) const MOST: usize = 120;

/// Job ends of one class in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// Finished in time.
    pub made: u64,
    /// Finished late, or unfinished after the deadline at the end of the run.
    pub missed: u64,
    /// Cancelled at the first dispatch.
    pub cancelled: u64,
    /// Stopped, rejected, or removed from a full queue.
    pub lost: u64,
}

impl Ends {
    /// Their sum.
    pub fn all(&self) -> u64 {
        self.made + self.missed + self.cancelled + self.lost
    }

    fn add(&mut self, other: &Ends) {
        self.made += other.made;
        self.missed += other.missed;
        self.cancelled += other.cancelled;
        self.lost += other.lost;
    }
}

/// Job ends in intervals of equal length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverTime {
    /// The binary logarithm of a bucket's width in nanoseconds: a shift finds the bucket.
    shift: u32,
    /// The most buckets.
    most: usize,
    /// For non-critical and for critical jobs.
    buckets: Vec<[Ends; 2]>,
}

impl OverTime {
    /// No job ends yet, and at most `most` buckets. A run of the file's duration uses at least half of them.
    pub fn new(system: &System, most: usize) -> Self {
        let mut shift = 20;
        while system.duration.as_nanos() >> shift >= most as u64 {
            shift += 1;
        }
        OverTime { shift, most, buckets: Vec::with_capacity(most) }
    }

    /// Counts the end of a job.
    #[inline]
    pub fn record(&mut self, end: &JobEnd) {
        // A job unfinished at the end of the run was missed at its deadline.
        let at = if unfinished(end) { end.deadline.min(end.end) } else { end.end };
        let mut bucket = (at.as_nanos() >> self.shift) as usize;
        if bucket >= self.buckets.len() {
            bucket = self.grow(at);
        }
        let ends = &mut self.buckets[bucket][usize::from(end.critical)];
        match end.outcome {
            JobOutcome::Made => ends.made += 1,
            JobOutcome::Missed => ends.missed += 1,
            JobOutcome::Cancelled => ends.cancelled += 1,
            JobOutcome::Stopped
            | JobOutcome::DroppedBusy
            | JobOutcome::DroppedFull
            | JobOutcome::Expired
            | JobOutcome::Skipped => {
                ends.lost += 1;
            }
        }
    }

    /// Adds buckets up to `at`. Returns its bucket.
    #[cold]
    fn grow(&mut self, at: Instant) -> usize {
        while at.as_nanos() >> self.shift >= self.most as u64 {
            self.widen();
        }
        let bucket = (at.as_nanos() >> self.shift) as usize;
        self.buckets.resize(self.buckets.len().max(bucket + 1), Default::default());
        bucket
    }

    fn widen(&mut self) {
        let halved = self.buckets.len().div_ceil(2);
        for bucket in 0..halved {
            let mut sum = self.buckets[2 * bucket];
            if let Some(next) = self.buckets.get(2 * bucket + 1) {
                sum.iter_mut().zip(next).for_each(|(sum, next)| sum.add(next));
            }
            self.buckets[bucket] = sum;
        }
        self.buckets.truncate(halved);
        self.shift += 1;
    }

    /// Adds the ends of `other`. Buckets become as wide as the wider ones of the two.
    pub fn merge(&mut self, other: &OverTime) {
        while self.shift < other.shift {
            self.widen();
        }
        for (bucket, ends) in other.buckets.iter().enumerate() {
            let bucket = bucket >> (self.shift - other.shift);
            self.buckets.resize(self.buckets.len().max(bucket + 1), Default::default());
            self.buckets[bucket].iter_mut().zip(ends).for_each(|(sum, next)| sum.add(next));
        }
    }

    /// The same intervals without job ends.
    pub fn emptied(&self) -> OverTime {
        OverTime { buckets: Vec::new(), ..*self }
    }

    /// The length of an interval.
    pub fn width(&self) -> Span {
        Span::from_nanos(1 << self.shift)
    }

    /// The intervals: their beginnings, and their ends of non-critical and of critical jobs.
    pub fn stretches(&self) -> impl Iterator<Item = (Instant, &[Ends; 2])> {
        let begin = |bucket: usize| Instant::from_nanos((bucket as u64) << self.shift);
        self.buckets.iter().enumerate().map(move |(bucket, ends)| (begin(bucket), ends))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyoshi_model::{JobId, OperationId};
    use proptest::prelude::*;

    fn end(at: u64, critical: bool, outcome: JobOutcome) -> JobEnd {
        let at = Instant::from_nanos(at);
        JobEnd {
            job: JobId { operation: OperationId(0), number: 0, leg: 0 },
            outcome,
            critical,
            overran: false,
            service: Default::default(),
            epoch: 0,
            origin: at,
            release: at,
            ready: at,
            start: at,
            end: at,
            deadline: at,
            consumed: Span::ZERO,
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_however_long_it_lasts(
            ends in proptest::collection::vec((0u64..1 << 50, any::<bool>(), 0usize..6), 1..200),
        ) {
            let mut sum = OverTime { shift: 20, most: MOST, buckets: Vec::new() };
            let mut halves = [sum.clone(), sum.clone()];
            for (index, (at, critical, outcome)) in ends.iter().enumerate() {
                let end = end(*at, *critical, JobOutcome::ALL[*outcome]);
                sum.record(&end);
                halves[index % 2].record(&end);
            }
            let [mut merged, other] = halves;
            merged.merge(&other);
            prop_assert_eq!(&merged, &sum);
            prop_assert!(sum.buckets.len() <= MOST);
            let all: u64 = sum.stretches().flat_map(|(_, classes)| classes).map(Ends::all).sum();
            prop_assert_eq!(all, ends.len() as u64);
            let last = ends.iter().map(|(at, ..)| *at).max().unwrap();
            prop_assert_eq!(sum.buckets.len() as u64, (last >> sum.shift) + 1);
        }
    }
}
