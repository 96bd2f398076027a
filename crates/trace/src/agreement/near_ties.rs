//! Near-ties of a simulation: starts and completions, each with the closest timed instant. In a run their order may be
//! the other one.

use alloc::vec::Vec;

use hyoshi_model::{Instant, Span, System};

use crate::event::{JobEnd, JobOutcome};

/// A start or completion of a simulation, and the timed instant closest to it.
pub(super) type Tie = (Instant, Instant);

/// The near-ties of jobs of one processor, sorted by completion: each start or completion within the tolerance of a
/// timed instant, with that instant.
pub(super) fn near_ties(system: &System, jobs: &[JobEnd], tolerance: Span) -> Vec<Tie> {
    // Released by a timer, unless a completion released it.
    let by_timer = |end: &&JobEnd| end.ready == end.release || end.release > end.origin;
    let mut releases: Vec<Instant> = jobs.iter().filter(by_timer).map(|end| end.ready).collect();
    releases.sort_unstable();
    releases.dedup();
    let with_release = |completion: Instant| {
        // Equal instants are not a near-tie: both break the tie alike.
        let below = releases.partition_point(|at| *at < completion);
        let above = releases.partition_point(|at| *at <= completion);
        let near = [below.checked_sub(1), Some(above)].into_iter().flatten().filter_map(|at| releases.get(at));
        near.min_by_key(|at| distance(**at, completion)).map(|nearest| (completion, *nearest))
    };
    // A start also ends what ran before. A triggered job is ready some time after a completion.
    let ran = jobs.iter().filter(|end| end.start != Instant::NEVER).flat_map(|end| [end.start, end.end]);
    let triggered = jobs.iter().filter(|end| end.release > end.origin).map(|end| end.ready);
    let own = jobs.iter().flat_map(|end| [with_deadline(end), with_last_start(system, end)]).flatten();
    let mut ties: Vec<Tie> = ran.chain(triggered).filter_map(with_release).chain(own).collect();
    ties.retain(|(completion, timed)| distance(*completion, *timed) <= tolerance);
    ties.sort_unstable_by_key(|(completion, timed)| (*completion, distance(*completion, *timed), *timed));
    ties.dedup_by_key(|(completion, _)| *completion);
    ties
}

/// The end of a job and its deadline, which decides whether the job is made. An end exactly then counts: any overhead
/// makes it late.
fn with_deadline(end: &JobEnd) -> Option<Tie> {
    (end.start != Instant::NEVER).then_some((end.end, end.deadline))
}

/// The first dispatch of a job that may be cancelled, and the last instant at which it can start. A start exactly then
/// counts: any overhead makes it too late.
fn with_last_start(system: &System, end: &JobEnd) -> Option<Tie> {
    let operation = system.operation(end.job.operation);
    if end.critical || !system.processor(operation.on).cancel {
        return None;
    }
    let dispatched = match end.outcome {
        JobOutcome::Cancelled if end.start == Instant::NEVER => end.end,
        _ => end.start,
    };
    (dispatched != Instant::NEVER).then(|| (dispatched, end.deadline.saturating_sub(end.wcet(system))))
}

/// The near-tie closest to `at`, of those that are at most the tolerance apart. Completions before `since`, and later
/// than `at` plus the tolerance, do not count.
pub(super) fn near_tie(ties: &[Tie], since: Instant, at: Instant, tolerance: Span) -> Option<Tie> {
    let is_near = |tie: &&Tie| distance(tie.0, tie.1) <= tolerance;
    let ties = &ties[..ties.partition_point(|(completion, _)| *completion <= at.saturating_add(tolerance))];
    let ties = &ties[ties.partition_point(|(completion, _)| *completion < since)..];
    let (before, after) = ties.split_at(ties.partition_point(|(completion, _)| *completion < at));
    let closest = [before.iter().rfind(is_near), after.iter().find(is_near)].into_iter().flatten();
    closest.min_by_key(|(completion, _)| distance(*completion, at)).copied()
}

pub(super) fn distance(one: Instant, other: Instant) -> Span {
    one.since(other).max(other.since(one))
}
