//! Divides the time of a late job into the phases of its life, by the instants of its end alone.
//!
//! It needs no other events, so every run can report it. Which thread had the CPU in a phase is known only to
//! `hyoshi_replay`, which reads all events; the sums of its parts equal these phases. A test of the simulator checks
//! that (`the_parts_of_a_job_s_time_are_its_phases`).

use hyoshi_model::{Deadline, Instant, Lateness, Span, System};

use crate::event::JobEnd;

/// The number of worst misses kept for each operation and class.
pub const KEPT: usize = 3;

/// Time of a job in each phase of its life. The phases sum to the time from where its deadline counts to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// In earlier operations (only if the deadline counts from the origin) or legs.
    pub upstream: Span,
    /// From its nominal release to its lane's queue: jitter, guard, late timer.
    pub released_late: Span,
    /// From the queue to its start, behind other jobs.
    pub waited: Span,
    /// Execution up to its declared worst case.
    pub executed: Span,
    /// Execution beyond its declared worst case.
    pub overran: Span,
    /// Preempted or blocked after its start.
    pub held: Span,
}

/// The longest phase of a late job, except execution as declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Earlier operations or legs.
    Upstream,
    /// A late release.
    ReleasedLate,
    /// Waiting behind other jobs.
    Waited,
    /// Execution beyond its worst case.
    Overran,
    /// Preemption or blocking after its start.
    Held,
    /// None of these: its deadline is shorter than its execution time.
    TooShort,
}

impl Phases {
    /// The phases of one job.
    pub fn of(system: &System, end: &JobEnd) -> Phases {
        let epoch = usize::from(end.epoch).min(system.epochs.len() - 1);
        let upstream = match system.setting(epoch, end.job.operation).deadline {
            Deadline::Own(_) => Span::ZERO,
            Deadline::Origin(_) => end.release.since(end.origin),
        };
        // The legs of a load chain share a nominal release; each is queued when the previous one ends.
        if end.job.leg > 0 {
            let queued = if end.ready == Instant::NEVER { end.end } else { end.ready };
            let upstream = upstream + queued.since(end.release);
            return Phases {
                upstream,
                ..Phases::from_ready(end.wcet(system), &JobEnd { release: queued, ready: queued, ..*end })
            };
        }
        Phases { upstream, ..Phases::from_ready(end.wcet(system), end) }
    }

    fn from_ready(wcet: Span, end: &JobEnd) -> Phases {
        if end.ready == Instant::NEVER {
            return Phases { released_late: end.end.since(end.release), ..Phases::default() };
        }
        let released_late = end.ready.since(end.release);
        if end.start == Instant::NEVER {
            return Phases { released_late, waited: end.end.since(end.ready), ..Phases::default() };
        }
        let executed = end.consumed.min(wcet);
        Phases {
            upstream: Span::ZERO,
            released_late,
            waited: end.start.since(end.ready),
            executed,
            overran: end.consumed.saturating_sub(executed),
            held: end.end.since(end.start).saturating_sub(end.consumed),
        }
    }

    /// The longest phase.
    pub fn longest(&self) -> Phase {
        let parts = [
            (self.overran, Phase::Overran),
            (self.released_late, Phase::ReleasedLate),
            (self.waited, Phase::Waited),
            (self.held, Phase::Held),
            (self.upstream, Phase::Upstream),
        ];
        // Of equal phases the first: an overrun explains more than waiting.
        let most = parts.into_iter().rev().max_by_key(|(span, _)| *span);
        most.filter(|(span, _)| !span.is_zero()).map_or(Phase::TooShort, |(_, phase)| phase)
    }
}

/// The worst misses of one operation, by lateness.
#[derive(Clone, Debug, Default)]
pub(super) struct Worst {
    jobs: [Option<JobEnd>; KEPT],
}

impl Worst {
    /// Keeps `end` if it is among the worst; of equally late jobs, the earlier one.
    #[inline]
    pub fn record(&mut self, end: &JobEnd) {
        let lateness = lateness(end);
        let better = |jobs: &Option<JobEnd>| jobs.as_ref().is_none_or(|jobs| lateness > self::lateness(jobs));
        if let Some(index) = self.jobs.iter().position(better) {
            self.jobs[index..].rotate_right(1);
            self.jobs[index] = Some(*end);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &JobEnd> {
        self.jobs.iter().flatten()
    }
}

/// End minus deadline.
pub fn lateness(end: &JobEnd) -> Lateness {
    end.end.lateness(end.deadline)
}
