//! Counts of job ends by outcome.

use core::ops::AddAssign;

use hyoshi_model::{Instant, Span};

use crate::event::{JobEnd, JobOutcome};

/// Job ends of an operation in an epoch, of a class, or of all jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    outcomes: [u64; JobOutcome::ALL.len()],
    /// Jobs that entered their lane's queue.
    pub enqueued: u64,
    /// Jobs that used more CPU time than declared.
    pub overran: u64,
    /// Jobs that were moved below the lanes.
    pub demoted: u64,
    /// Missed jobs that were unfinished when the run ended; their times count to that end.
    pub unfinished: u64,
    /// Legs of load chains that were never released, because a leg before them did not run to its end.
    pub shed: u64,
    /// CPU time that the jobs used.
    pub consumed: Span,
}

impl Counts {
    /// Records a job's end.
    #[inline]
    pub fn record(&mut self, end: &JobEnd) {
        self.outcomes[end.outcome as usize] += 1;
        self.enqueued += u64::from(end.ready != Instant::NEVER);
        self.overran += u64::from(end.overran);
        self.demoted += u64::from(end.service.demoted);
        self.unfinished += u64::from(unfinished(end));
        self.consumed = plus(self.consumed, end.consumed);
    }

    /// Jobs that ended with this outcome.
    pub const fn of(&self, outcome: JobOutcome) -> u64 {
        self.outcomes[outcome as usize]
    }

    /// All jobs, with any outcome.
    pub fn released(&self) -> u64 {
        self.outcomes.iter().sum()
    }

    /// Finished in time.
    pub const fn made(&self) -> u64 {
        self.of(JobOutcome::Made)
    }

    /// Not finished in time.
    pub const fn missed(&self) -> u64 {
        self.of(JobOutcome::Missed)
    }

    /// Cancelled at the first dispatch.
    pub const fn cancelled(&self) -> u64 {
        self.of(JobOutcome::Cancelled)
    }

    /// Stopped beyond the declared worst case, or at the deadline.
    pub const fn stopped(&self) -> u64 {
        self.of(JobOutcome::Stopped)
    }

    /// Rejected, removed from a full queue, expired, or skipped.
    pub const fn dropped(&self) -> u64 {
        self.of(JobOutcome::DroppedBusy)
            + self.of(JobOutcome::DroppedFull)
            + self.of(JobOutcome::Expired)
            + self.of(JobOutcome::Skipped)
    }

    /// Jobs that did not meet their deadline, for any reason.
    pub fn not_made(&self) -> u64 {
        self.released() - self.made()
    }
}

/// True for a job that the end of the run finds unfinished after its deadline: the dispatcher reports it without CPU
/// time.
pub(super) const fn unfinished(end: &JobEnd) -> bool {
    matches!(end.outcome, JobOutcome::Missed) && end.consumed.is_zero()
}

/// Adds spans, up to the greatest: an edited recording may contain centuries.
pub(super) fn plus(sum: Span, more: Span) -> Span {
    sum.checked_add(more).unwrap_or(Span::from_nanos(u64::MAX))
}

impl AddAssign<&Counts> for Counts {
    fn add_assign(&mut self, other: &Counts) {
        for (mine, theirs) in self.outcomes.iter_mut().zip(other.outcomes) {
            *mine += theirs;
        }
        self.enqueued += other.enqueued;
        self.overran += other.overran;
        self.demoted += other.demoted;
        self.unfinished += other.unfinished;
        self.shed += other.shed;
        self.consumed = plus(self.consumed, other.consumed);
    }
}
