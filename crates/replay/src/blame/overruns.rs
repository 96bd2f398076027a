//! Overruns of a processor's jobs: they also explain the delay of jobs that waited for them.

use std::collections::{BTreeMap, VecDeque};

use hyoshi_model::{JobId, Span};

/// The most overruns kept; further ones replace the oldest.
const REMEMBERED: usize = 1 << 13;

/// A job that used more CPU time than it declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrun {
    /// The job.
    pub job: JobId,
    /// Its declared worst case.
    pub declared: Span,
    /// Its CPU time in total, or at its last observation.
    pub used: Span,
    /// False if it had not ended.
    pub ended: bool,
}

impl Overrun {
    /// Its CPU time beyond its worst case.
    pub fn excess(&self) -> Span {
        self.used.saturating_sub(self.declared)
    }

    /// The greater of two; the first of equal ones.
    pub(super) fn greater(one: Option<Overrun>, other: Overrun) -> Option<Overrun> {
        Some(one.filter(|one| one.excess() >= other.excess()).unwrap_or(other))
    }
}

/// The latest overruns of a processor's jobs.
#[derive(Debug, Default)]
pub(super) struct Overruns {
    by_job: BTreeMap<JobId, Overrun>,
    order: VecDeque<JobId>,
}

impl Overruns {
    /// Records the CPU time of a job, if it exceeds its worst case.
    pub fn used(&mut self, overrun: Overrun) {
        if overrun.excess().is_zero() {
            return;
        }
        if self.by_job.insert(overrun.job, overrun).is_none() {
            self.order.push_back(overrun.job);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_job.remove(&oldest);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.by_job.is_empty()
    }

    pub fn of(&self, job: JobId) -> Option<Overrun> {
        self.by_job.get(&job).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overrun(number: u64, used: u64) -> Overrun {
        let job = JobId { operation: hyoshi_model::OperationId(0), number, leg: 0 };
        Overrun { job, declared: Span::from_millis(2), used: Span::from_millis(used), ended: true }
    }

    #[test]
    fn the_latest_are_remembered_and_no_more_than_there_is_room_for() {
        let mut overruns = Overruns::default();
        (0..3 * REMEMBERED as u64).for_each(|number| overruns.used(overrun(number, 3)));
        overruns.used(overrun(3 * REMEMBERED as u64 - 1, 5));
        overruns.used(overrun(3 * REMEMBERED as u64, 2));
        assert_eq!((overruns.by_job.len(), overruns.order.len()), (REMEMBERED, REMEMBERED));
        let last = overruns.of(overrun(3 * REMEMBERED as u64 - 1, 0).job).unwrap();
        assert_eq!(last.excess(), Span::from_millis(3));
        assert_eq!(overruns.of(overrun(0, 0).job), None);
    }
}
