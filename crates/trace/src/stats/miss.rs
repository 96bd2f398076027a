//! In which phase of its life a late job lost its time, by the job's own instants alone.
//!
//! It takes nothing but the job's end, so it is told of every run at no cost. *Who* had the CPU in a
//! phase only the law of blame (`hyoshi_replay`) knows, which wants all events: where it has looked, its
//! causes are told, and these are their sums. That they agree is tested on simulations
//! (`the_parts_of_a_job_s_time_are_its_phases` in the simulator's tests).

use hyoshi_model::{Deadline, Instant, Lateness, Span, System};

use crate::event::JobEnd;

/// The worst misses that are kept of each operation and class.
pub const KEPT: usize = 3;

/// How long a job was in each phase of its life. They add up to the time from what its deadline is
/// counted from to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// In the operations that led to it (deadlines counted from the origin only), or in the legs before it.
    pub upstream: Span,
    /// From its nominal release until it entered its lane's queue: jitter, a guard, a late timer.
    pub released_late: Span,
    /// From then until it started, behind other jobs.
    pub waited: Span,
    /// Executing, up to its declared worst case.
    pub executed: Span,
    /// Executing beyond its declared worst case.
    pub overran: Span,
    /// Started, but preempted or blocked.
    pub held: Span,
}

/// The phase in which a late job lost the most, other than executing as declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The operations or legs before it.
    Upstream,
    /// It was released late.
    ReleasedLate,
    /// It waited behind other jobs.
    Waited,
    /// It ran longer than declared.
    Overran,
    /// It was preempted or blocked after it had started.
    Held,
    /// None of these: its deadline is shorter than its execution.
    TooShort,
}

impl Phases {
    /// The phases of one job.
    pub fn of(system: &System, end: &JobEnd) -> Phases {
        let epoch = usize::from(end.epoch).min(system.epochs.len() - 1);
        let setting = system.setting(epoch, end.job.operation);
        let upstream = match setting.deadline {
            Deadline::Own(_) => Span::ZERO,
            Deadline::Origin(_) => end.release.since(end.origin),
        };
        // The legs of a load chain share a nominal release; each is queued when the one before ends.
        if end.job.leg > 0 {
            let queued = if end.ready == Instant::NEVER { end.end } else { end.ready };
            let upstream = upstream + queued.since(end.release);
            return Phases {
                upstream,
                ..Phases::from_ready(setting.wcet, &JobEnd { release: queued, ready: queued, ..*end })
            };
        }
        Phases { upstream, ..Phases::from_ready(setting.wcet, end) }
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

    /// The one that took the most.
    pub fn longest(&self) -> Phase {
        let parts = [
            (self.overran, Phase::Overran),
            (self.released_late, Phase::ReleasedLate),
            (self.waited, Phase::Waited),
            (self.held, Phase::Held),
            (self.upstream, Phase::Upstream),
        ];
        // Of equal parts the first: what ran too long explains more than who waited for it.
        let most = parts.into_iter().rev().max_by_key(|(span, _)| *span);
        most.filter(|(span, _)| !span.is_zero()).map_or(Phase::TooShort, |(_, phase)| phase)
    }
}

/// The worst misses of one operation, by lateness.
#[derive(Clone, Debug, Default)]
pub(super) struct Worst {
    kept: [Option<JobEnd>; KEPT],
}

impl Worst {
    /// Keeps `end` if it is among the worst; of equally late jobs the earlier ones.
    #[inline]
    pub fn record(&mut self, end: &JobEnd) {
        let lateness = lateness(end);
        let better = |kept: &Option<JobEnd>| kept.as_ref().is_none_or(|kept| lateness > self::lateness(kept));
        if let Some(place) = self.kept.iter().position(better) {
            self.kept[place..].rotate_right(1);
            self.kept[place] = Some(*end);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &JobEnd> {
        self.kept.iter().flatten()
    }
}

/// End minus deadline.
pub fn lateness(end: &JobEnd) -> Lateness {
    end.end.lateness(end.deadline)
}
