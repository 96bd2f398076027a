//! Busy groups: intervals in which a simulation or a run was never idle, and what explains differences in them.

use alloc::vec::Vec;

use hyoshi_model::{Instant, JobId, Span, System};

use super::near_ties::{Tie, near_tie, near_ties};
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

/// The greatest shift of a job by overheads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ByOverheads {
    shift: Span,
    job: JobId,
    /// The instant from which the job is in the group.
    from: Instant,
}

/// Busy periods of a simulation, and the run's jobs from the first to the last of them. The run was never idle between
/// them, or there is only one.
#[derive(Default)]
pub(super) struct BusyGroup {
    pub simulated: Vec<Vec<JobEnd>>,
    pub run: Vec<JobEnd>,
    /// The first finished job that the simulation does not have.
    pub extra: Option<JobEnd>,
    /// If the run lost more time than the tolerance beside the simulation.
    lost: Option<Span>,
    near_ties: Vec<Tie>,
    tolerance: Span,
    /// The first job that carried a shift into the group: from when, and the cause.
    carried: Option<(Instant, JobId, DifferenceCause)>,
    /// The greatest shift by overheads of the jobs until each instant.
    by_overheads: Vec<(Instant, ByOverheads)>,
    /// The near-ties by the tolerance and the greatest shift by overheads.
    wider_ties: Vec<Tie>,
}

impl BusyGroup {
    /// Adds a job that became ready at another instant in the run, and is in this group from `from` on: in the
    /// simulation, in the run, or in both.
    pub fn add_shifted(&mut self, from: Instant, job: JobId, shift: Span, why: Shift) {
        match why {
            Shift::Carried(cause) if self.carried.is_none_or(|(first, ..)| from < first) => {
                self.carried = Some((from, job, cause));
            }
            Shift::Carried(_) => {}
            Shift::Overheads => self.by_overheads.push((from, ByOverheads { shift, job, from })),
        }
    }

    /// Prepares `explanation`, after the last shifted job.
    pub fn close(&mut self, system: &System) {
        self.by_overheads.sort_unstable();
        let mut greatest: Option<ByOverheads> = None;
        for (_, shifted) in &mut self.by_overheads {
            greatest = greatest.max(Some(*shifted));
            *shifted = greatest.unwrap_or(*shifted);
        }
        if let Some(greatest) = greatest {
            self.wider_ties = near_ties(system, &self.simulated.concat(), self.tolerance + greatest.shift);
        }
    }

    /// Why the run may differ at `at`, by what happened in the group or in those that triggered its jobs, and the job
    /// that carried a shift into the group.
    pub fn explanation(&self, at: Instant) -> Option<(DifferenceCause, Option<JobId>)> {
        let here = self.cause(at).map(|cause| (cause, None));
        here.or_else(|| self.carried(at).map(|(cause, job)| (cause, Some(job)))).or_else(|| self.added_up(at))
    }

    /// Why the run may differ at `at`, by what happened in the group.
    pub fn cause(&self, at: Instant) -> Option<DifferenceCause> {
        let near_tie = || {
            let (completion, timed) = near_tie(&self.near_ties, Instant::ZERO, at, self.tolerance)?;
            Some(DifferenceCause::NearTie { completion, timed })
        };
        self.lost.map(DifferenceCause::Lost).or_else(near_tie)
    }

    /// The first cause that a job carried into the group until `at`, and the job.
    pub fn carried(&self, at: Instant) -> Option<(DifferenceCause, JobId)> {
        let first = self.carried.filter(|(from, ..)| *from <= at.saturating_add(self.tolerance));
        first.map(|(_, job, cause)| (cause, job))
    }

    /// A near-tie of the group by the tolerance and the greatest shift that overheads carried into it.
    fn added_up(&self, at: Instant) -> Option<(DifferenceCause, Option<JobId>)> {
        let until = at.saturating_add(self.tolerance);
        let shifted = self.by_overheads.partition_point(|(from, _)| *from <= until);
        let (_, ByOverheads { shift, job, from }) = *self.by_overheads[..shifted].last()?;
        let (completion, timed) = near_tie(&self.wider_ties, from, at, self.tolerance + shift)?;
        Some((DifferenceCause::NearTie { completion, timed }, Some(job)))
    }
}

/// Busy periods of a simulation and a run that overlap, together.
pub(super) fn groups(
    system: &System,
    simulated: Vec<Vec<JobEnd>>,
    run: Vec<Vec<JobEnd>>,
    tolerance: Span,
) -> Vec<BusyGroup> {
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
        group.near_ties = near_ties(system, &simulated, tolerance);
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

/// The time in which some job was ready or ran, and none used the processor. Jobs that waited until they were
/// cancelled count, too.
fn unused(ends: &[JobEnd]) -> Span {
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
