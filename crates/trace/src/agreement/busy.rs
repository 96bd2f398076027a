//! Busy groups: intervals in which a simulation or a run was never idle, with the near-ties and the lost time in them.

use alloc::vec::Vec;

use hyoshi_model::{Instant, JobId, Span};

use crate::event::JobEnd;

/// Why a run differs from its simulation although both are right.
#[derive(Clone, Copy, Debug)]
pub(super) enum DifferenceCause {
    NearTie { completion: Instant, timed: Instant },
    Lost(Span),
}

/// Why a job became ready at another instant in the run than in the simulation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shift {
    /// A late release, or a cause in the busy group that triggered it, or further back.
    Carried(DifferenceCause),
    /// Overheads added up: each job and signal on the way added at most the tolerance.
    Overheads,
}

/// Busy periods of a simulation, and the run's jobs from the first to the last of them. The run was never idle between
/// them, or there is only one.
#[derive(Default)]
pub(super) struct BusyGroup {
    pub simulated: Vec<Vec<JobEnd>>,
    pub run: Vec<JobEnd>,
    /// If the run lost more time than the tolerance beside the simulation.
    pub lost: Option<Span>,
    pub near_ties: Vec<(Instant, Instant)>,
    pub tolerance: Span,
    /// The first job that carried a shift into the group: when it became ready in the simulation, and the cause.
    pub first_carried: Option<(Instant, JobId, DifferenceCause)>,
    /// Triggered jobs that overheads shifted, by the instant when they became ready in the simulation.
    pub by_overheads: Vec<(Instant, JobId)>,
}

impl BusyGroup {
    /// Why the run may differ at `at`, by what happened in the group.
    pub fn cause(&self, at: Instant) -> Option<DifferenceCause> {
        let near_tie = || {
            let (completion, timed) = near_tie(&self.near_ties, at, self.tolerance)?;
            Some(DifferenceCause::NearTie { completion, timed })
        };
        self.lost.map(DifferenceCause::Lost).or_else(near_tie)
    }

    /// The first cause that a job carried into the group until `at`, and the job.
    pub fn carried(&self, at: Instant) -> Option<(DifferenceCause, JobId)> {
        let first = self.first_carried.filter(|(ready, ..)| *ready <= at.saturating_add(self.tolerance));
        first.map(|(_, job, cause)| (cause, job))
    }
}

/// Busy periods of a simulation and a run that overlap, together.
pub(super) fn groups(simulated: Vec<Vec<JobEnd>>, run: Vec<Vec<JobEnd>>, tolerance: Span) -> Vec<BusyGroup> {
    let simulated = simulated.into_iter().map(|period| (begin_of(&period), end_of(&period), period, true));
    let run = run.into_iter().map(|period| (begin_of(&period), end_of(&period), period, false));
    let mut all: Vec<_> = simulated.chain(run).collect();
    all.sort_by_key(|(begin, end, _, is_simulated)| (*begin, *end, !is_simulated));
    let mut groups: Vec<BusyGroup> = Vec::new();
    let mut until = None;
    for (begin, end, period, is_simulated) in all {
        if until.is_none_or(|until| begin > until) {
            groups.push(BusyGroup { tolerance, ..BusyGroup::default() });
        }
        until = until.max(Some(end));
        if let Some(group) = groups.last_mut() {
            if is_simulated { group.simulated.push(period) } else { group.run.extend(period) }
        }
    }
    for group in &mut groups {
        let simulated = group.simulated.concat();
        group.lost = Some(unused(&group.run).saturating_sub(unused(&simulated))).filter(|lost| *lost > tolerance);
        group.near_ties = near_ties(&simulated, tolerance);
    }
    groups
}

/// Jobs grouped by the intervals in which some job was ready or ran. Intervals less than the tolerance apart are one.
pub(super) fn busy_periods(ends: &[JobEnd], tolerance: Span) -> Vec<Vec<JobEnd>> {
    let mut sorted = ends.to_vec();
    sorted.sort_by_key(|end| (begin(end), end.start, end.end, end.job));
    let mut periods: Vec<Vec<JobEnd>> = Vec::new();
    let mut until = Instant::ZERO;
    for end in sorted {
        match periods.last_mut() {
            Some(period) if begin(&end) <= until.saturating_add(tolerance) => period.push(end),
            _ => periods.push(alloc::vec![end]),
        }
        until = until.max(end.end);
    }
    periods
}

pub(super) fn begin_of(period: &[JobEnd]) -> Instant {
    period.iter().map(begin).min().unwrap_or_default()
}

pub(super) fn end_of(period: &[JobEnd]) -> Instant {
    period.iter().map(|end| end.end).max().unwrap_or_default()
}

pub(super) fn begin(end: &JobEnd) -> Instant {
    end.ready.min(end.end)
}

/// The near-ties of a busy group, sorted by completion: each completion that lies within the tolerance of something
/// timed, and that.
pub(super) fn near_ties(period: &[JobEnd], tolerance: Span) -> Vec<(Instant, Instant)> {
    let timed = |end: &JobEnd| {
        // Released by a timer, unless a completion released it.
        let released = (end.ready == end.release || end.release > end.origin).then_some(end.ready);
        let last_start = end.deadline.saturating_sub(end.consumed);
        [released, Some(end.deadline), Some(last_start)].into_iter().flatten()
    };
    let mut times: Vec<Instant> = period.iter().flat_map(timed).collect();
    times.sort_unstable();
    times.dedup();
    let close = |completion: Instant| {
        // Equal instants are not a near-tie: both break the tie alike.
        let below = times.partition_point(|at| *at < completion);
        let above = times.partition_point(|at| *at <= completion);
        let near = [below.checked_sub(1), Some(above)].into_iter().flatten().filter_map(|at| times.get(at));
        let nearest = near.min_by_key(|at| distance(**at, completion))?;
        (distance(*nearest, completion) <= tolerance).then_some((completion, *nearest))
    };
    // A start also ends what ran before. A triggered job is ready some time after a completion.
    let ran = period.iter().filter(|end| end.start != Instant::NEVER).flat_map(|end| [end.start, end.end]);
    let triggered = period.iter().filter(|end| end.release > end.origin).map(|end| end.ready);
    let mut ties: Vec<_> = ran.chain(triggered).filter_map(close).collect();
    ties.sort_unstable();
    ties
}

pub(super) fn distance(one: Instant, other: Instant) -> Span {
    one.since(other).max(other.since(one))
}

/// The near-tie closest to `at`. Completions later than `at` plus the tolerance do not count.
pub(super) fn near_tie(ties: &[(Instant, Instant)], at: Instant, tolerance: Span) -> Option<(Instant, Instant)> {
    let end = ties.partition_point(|(completion, _)| *completion <= at.saturating_add(tolerance));
    let after = ties[..end].partition_point(|(completion, _)| *completion < at);
    let closest = [after.checked_sub(1), (after < end).then_some(after)].into_iter().flatten();
    closest.map(|index| ties[index]).min_by_key(|(completion, _)| distance(*completion, at))
}

/// The time in which some job was ready or ran, and none used the processor. Jobs that waited until they were
/// cancelled count, too.
pub(super) fn unused(ends: &[JobEnd]) -> Span {
    let mut intervals: Vec<(Instant, Instant)> = ends.iter().map(|end| (begin(end), end.end)).collect();
    intervals.sort_unstable();
    let (mut busy, mut until) = (Span::ZERO, Instant::ZERO);
    for (begin, end) in intervals {
        busy += end.since(begin.max(until));
        until = until.max(end);
    }
    let ran = ends.iter().filter(|end| end.start != Instant::NEVER);
    ran.fold(busy, |unused, end| unused.saturating_sub(end.consumed))
}
