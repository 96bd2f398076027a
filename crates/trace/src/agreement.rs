//! Do a run and a simulation of the same system agree on order and outcome?
//!
//! Timers fire at the same instants in both; starts and completions do not, because a run has overheads that a
//! simulation does not have. If one of them falls within the tolerance of something timed (another release, a deadline,
//! the last instant at which a job can start), both orders are right, and they may differ until the processor is idle:
//! a near-tie. If something else than the processor's jobs used it (a hypervisor, other threads), the run was
//! disturbed, and stays behind until it has worked its backlog off. Any other difference is a disagreement.
//!
//! ```text
//!   simulation   ██ ██    █          one group: the run was busy throughout
//!   run          █░░░░█ ██ ███       ░ used by something else
//! ```

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use hyoshi_model::{Instant, JobId, Span};

use crate::event::{JobEnd, JobOutcome};

/// The least distance of decision points at which a run and a simulation must agree.
pub const TOLERANCE: Span = Span::from_micros(200);

/// The comparison of one processor, busy period by busy period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunComparison {
    /// Busy periods with the same jobs in the same order and with the same outcomes.
    pub agreeing: u64,
    /// Jobs in them.
    pub jobs: u64,
    /// Busy periods that differ because of a near-tie in them, or before them and without idle time since.
    pub near_ties: Vec<NearTie>,
    /// Busy periods that differ because the processor did something else during them, or before them and without idle
    /// time since.
    pub disturbed: Vec<Disturbed>,
    /// Other busy periods that differ, and jobs that only the run has.
    pub disagreements: Vec<Difference>,
}

/// Two decision points closer than the tolerance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearTie {
    /// A start or completion in the simulation.
    pub completion: Instant,
    /// Something timed that is close to it.
    pub timed: Instant,
    /// Its consequence.
    pub difference: Difference,
}

/// Time that was neither used by jobs nor idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disturbed {
    /// How much of it, beyond the time that the simulation leaves unused.
    pub lost: Span,
    /// Its consequence.
    pub difference: Difference,
}

/// The first difference of a busy period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// When, in the simulation.
    pub at: Instant,
    /// The job that the simulation has there, and its outcome.
    pub simulated: Option<(JobId, JobOutcome)>,
    /// The job that the run has there, and its outcome.
    pub run: Option<(JobId, JobOutcome)>,
}

/// Compares the job ends of one processor. Jobs that end after `until` are left out.
pub fn compare(simulated: &[JobEnd], run: &[JobEnd], until: Instant, tolerance: Span) -> RunComparison {
    let of_run: BTreeMap<JobId, &JobEnd> = run.iter().map(|end| (end.job, end)).collect();
    let known: BTreeSet<JobId> = simulated.iter().map(|end| end.job).collect();
    let mut agreement = RunComparison::default();
    let (mut periods, mut judged) = (Vec::new(), until);
    for period in busy_periods(simulated, tolerance) {
        if end_of(&period).saturating_add(tolerance) >= until {
            // The run may not have finished it.
            judged = judged.min(begin_of(&period));
            break;
        }
        periods.push(period);
    }
    for BusyGroup { simulated, run } in groups(periods, busy_periods(run, tolerance)) {
        let lost = unused(&run).saturating_sub(unused(&simulated.concat()));
        let mut differences = Vec::new();
        for period in &simulated {
            let theirs: Vec<&JobEnd> = period.iter().filter_map(|end| of_run.get(&end.job).copied()).collect();
            match first_difference(period, &theirs, &of_run) {
                Some(difference) => differences.push(difference),
                None => {
                    agreement.agreeing += 1;
                    agreement.jobs += period.len() as u64;
                }
            }
        }
        let is_extra = |end: &&JobEnd| {
            let in_time = begin(end) < judged && end.end.saturating_add(tolerance) < until;
            in_time && !known.contains(&end.job)
        };
        let extra = run.iter().filter(is_extra).min_by_key(|end| end.end);
        differences.extend(extra.map(|end| Difference {
            at: end.end,
            simulated: None,
            run: Some((end.job, end.outcome)),
        }));
        let mut ties = None;
        for difference in differences {
            let ties = ties.get_or_insert_with(|| near_ties(&simulated.concat(), tolerance));
            if lost > tolerance {
                agreement.disturbed.push(Disturbed { lost, difference });
            } else if let Some((completion, timed)) = near_tie(ties, difference.at, tolerance) {
                agreement.near_ties.push(NearTie { completion, timed, difference });
            } else {
                agreement.disagreements.push(difference);
            }
        }
    }
    agreement
}

/// Busy periods of a simulation, and the run's jobs from the first to the last of them. The run was never idle between
/// them, or there is only one.
struct BusyGroup {
    simulated: Vec<Vec<JobEnd>>,
    run: Vec<JobEnd>,
}

/// Busy periods of a simulation and a run that overlap, together.
fn groups(simulated: Vec<Vec<JobEnd>>, run: Vec<Vec<JobEnd>>) -> Vec<BusyGroup> {
    let simulated = simulated.into_iter().map(|period| (begin_of(&period), end_of(&period), period, true));
    let run = run.into_iter().map(|period| (begin_of(&period), end_of(&period), period, false));
    let mut all: Vec<_> = simulated.chain(run).collect();
    all.sort_by_key(|(begin, end, _, is_simulated)| (*begin, *end, !is_simulated));
    let mut groups: Vec<BusyGroup> = Vec::new();
    let mut until = None;
    for (begin, end, period, is_simulated) in all {
        if until.is_none_or(|until| begin > until) {
            groups.push(BusyGroup { simulated: Vec::new(), run: Vec::new() });
        }
        until = until.max(Some(end));
        if let Some(group) = groups.last_mut() {
            if is_simulated { group.simulated.push(period) } else { group.run.extend(period) }
        }
    }
    groups
}

/// Jobs grouped by the intervals in which some job was ready or ran. Intervals less than the tolerance apart are one.
fn busy_periods(ends: &[JobEnd], tolerance: Span) -> Vec<Vec<JobEnd>> {
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

fn begin_of(period: &[JobEnd]) -> Instant {
    period.iter().map(begin).min().unwrap_or_default()
}

fn end_of(period: &[JobEnd]) -> Instant {
    period.iter().map(|end| end.end).max().unwrap_or_default()
}

fn begin(end: &JobEnd) -> Instant {
    end.ready.min(end.end)
}

/// Where outcomes, or the order of starts, first differ.
fn first_difference(period: &[JobEnd], theirs: &[&JobEnd], of_run: &BTreeMap<JobId, &JobEnd>) -> Option<Difference> {
    let outcome = period.iter().filter(|mine| of_run.get(&mine.job).is_none_or(|run| run.outcome != mine.outcome));
    let outcome = outcome.min_by_key(|mine| mine.end).map(|mine| Difference {
        at: mine.end,
        simulated: Some((mine.job, mine.outcome)),
        run: of_run.get(&mine.job).map(|run| (run.job, run.outcome)),
    });
    let started = |ends: &mut Vec<JobEnd>| {
        ends.retain(|end| end.start != Instant::NEVER);
        ends.sort_by_key(|end| (end.start, end.end));
    };
    let (mut mine, mut run): (Vec<JobEnd>, Vec<JobEnd>) = (period.to_vec(), theirs.iter().map(|end| **end).collect());
    started(&mut mine);
    started(&mut run);
    let order = mine.iter().zip(&run).find(|(mine, run)| mine.job != run.job).map(|(mine, run)| Difference {
        at: mine.start,
        simulated: Some((mine.job, mine.outcome)),
        run: Some((run.job, run.outcome)),
    });
    [outcome, order].into_iter().flatten().min_by_key(|difference| difference.at)
}

/// Of the completions up to the tolerance after `at` that fall within the tolerance of something
/// timed, the one closest to `at`.
/// The near-ties of a busy group, sorted by completion: each completion that lies within the tolerance of something
/// timed, and that.
fn near_ties(period: &[JobEnd], tolerance: Span) -> Vec<(Instant, Instant)> {
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
    // A start also ends what ran before.
    let ran = period.iter().filter(|end| end.start != Instant::NEVER);
    let mut ties: Vec<_> = ran.flat_map(|end| [end.start, end.end]).filter_map(close).collect();
    ties.sort_unstable();
    ties
}

fn distance(one: Instant, other: Instant) -> Span {
    one.since(other).max(other.since(one))
}

/// The near-tie closest to `at`. Completions later than `at` plus the tolerance do not count.
fn near_tie(ties: &[(Instant, Instant)], at: Instant, tolerance: Span) -> Option<(Instant, Instant)> {
    let end = ties.partition_point(|(completion, _)| *completion <= at.saturating_add(tolerance));
    let after = ties[..end].partition_point(|(completion, _)| *completion < at);
    let closest = [after.checked_sub(1), (after < end).then_some(after)].into_iter().flatten();
    closest.map(|index| ties[index]).min_by_key(|(completion, _)| distance(*completion, at))
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

#[cfg(test)]
mod tests {
    use super::*;
    use hyoshi_model::OperationId;

    fn at(micros: u64) -> Instant {
        Instant::ZERO + Span::from_micros(micros)
    }

    /// A job of operation `operation`, ready at its release, that runs without a break.
    fn job(operation: u32, release: u64, start: u64, end: u64, deadline: u64) -> JobEnd {
        JobEnd {
            job: JobId { operation: OperationId(operation), number: release, leg: 0 },
            outcome: if end <= deadline { JobOutcome::Made } else { JobOutcome::Missed },
            critical: false,
            overran: false,
            demoted: false,
            epoch: 0,
            origin: at(release),
            release: at(release),
            ready: at(release),
            start: at(start),
            end: at(end),
            deadline: at(deadline),
            consumed: at(end).since(at(start)),
        }
    }

    fn compared(simulated: &[JobEnd], run: &[JobEnd]) -> RunComparison {
        compare(simulated, run, at(1_000_000), TOLERANCE)
    }

    #[test]
    fn small_overheads_change_nothing() {
        let simulated =
            [job(0, 0, 0, 2_000, 9_000), job(1, 0, 2_000, 5_000, 9_000), job(0, 20_000, 20_000, 22_000, 29_000)];
        let run = [job(0, 0, 20, 2_030, 9_000), job(1, 0, 2_040, 5_050, 9_000), job(0, 20_000, 20_015, 22_020, 29_000)];
        let agreement = compared(&simulated, &run);
        assert_eq!((agreement.agreeing, agreement.jobs), (2, 3));
        assert!(agreement.disagreements.is_empty());
    }

    #[test]
    fn another_order_without_a_near_tie_is_a_disagreement() {
        let simulated = [job(0, 0, 0, 2_000, 9_000), job(1, 0, 2_000, 5_000, 9_000)];
        let run = [job(1, 0, 0, 3_000, 9_000), job(0, 0, 3_000, 5_000, 9_000)];
        assert_eq!(compared(&simulated, &run).disagreements.len(), 1);
    }

    #[test]
    fn a_release_just_before_or_after_a_completion_is_a_near_tie() {
        // In the run the first job ends 30 us later, behind the release of a more urgent one.
        let simulated =
            [job(0, 0, 0, 2_000, 9_000), job(1, 0, 2_000, 4_000, 9_000), job(2, 2_020, 4_000, 5_000, 9_000)];
        let run = [job(0, 0, 0, 2_030, 9_000), job(2, 2_020, 2_030, 3_030, 9_000), job(1, 0, 3_030, 5_030, 9_000)];
        let agreement = compared(&simulated, &run);
        assert_eq!(agreement.near_ties.len(), 1, "{agreement:?}");
        assert_eq!((agreement.near_ties[0].completion, agreement.near_ties[0].timed), (at(2_000), at(2_020)));
    }

    #[test]
    fn a_stolen_processor_is_not_held_against_the_run() {
        let simulated = [job(0, 0, 0, 2_000, 9_000)];
        let mut late = job(0, 0, 0, 12_000, 9_000);
        late.consumed = Span::from_micros(2_000);
        let mut other = job(1, 0, 12_000, 13_000, 20_000);
        other.consumed = Span::from_micros(1_000);
        let agreement = compared(&[simulated[0], job(1, 0, 2_000, 3_000, 20_000)], &[late, other]);
        assert_eq!(agreement.disturbed.len(), 1, "{agreement:?}");
        assert_eq!(agreement.disturbed[0].lost, Span::from_millis(10));
    }

    /// A job that waited, `lost` of the time from its start on.
    fn interrupted(operation: u32, release: u64, start: u64, end: u64, lost: u64) -> JobEnd {
        let whole = job(operation, release, start, end, release + 90_000);
        JobEnd { consumed: whole.consumed.saturating_sub(Span::from_micros(lost)), ..whole }
    }

    #[test]
    fn a_job_that_only_the_run_has_is_a_disagreement_and_hides_none() {
        let simulated = [job(0, 0, 0, 2_000, 9_000), job(1, 0, 2_000, 5_000, 9_000)];
        // In between ran a job that the simulation does not have: its time was not lost.
        let run = [job(1, 0, 0, 3_000, 9_000), job(7, 3_000, 3_000, 5_000, 9_000), job(0, 0, 5_000, 7_000, 9_000)];
        let agreement = compared(&simulated, &run);
        assert_eq!((agreement.disturbed.len(), agreement.disagreements.len()), (0, 2), "{agreement:?}");
        let extra = agreement.disagreements.iter().find(|difference| difference.simulated.is_none()).unwrap();
        assert_eq!(extra.run.unwrap().0.operation, OperationId(7));
        // The simulation was idle.
        let agreement = compared(&simulated, &[simulated[0], simulated[1], job(7, 50_000, 50_000, 51_000, 90_000)]);
        assert_eq!((agreement.agreeing, agreement.disagreements.len()), (1, 1), "{agreement:?}");
    }

    #[test]
    fn a_job_of_another_busy_period_that_ran_meanwhile_is_no_lost_time() {
        // The first job lasts longer, so that one of the next busy period runs before the second.
        let simulated =
            [job(0, 0, 0, 2_000, 90_000), job(1, 0, 2_000, 3_000, 4_000), job(2, 4_000, 4_000, 6_000, 90_000)];
        let run = [job(0, 0, 0, 5_000, 90_000), job(2, 4_000, 5_000, 7_000, 90_000), job(1, 0, 7_000, 8_000, 4_000)];
        let agreement = compared(&simulated, &run);
        assert_eq!((agreement.disturbed.len(), agreement.disagreements.len()), (0, 1), "{agreement:?}");
    }

    #[test]
    fn the_backlog_of_a_disturbance_is_disturbed_until_the_run_is_idle() {
        let simulated = [
            job(0, 0, 0, 2_000, 9_000),
            job(1, 10_000, 10_000, 12_000, 19_000),
            job(2, 12_500, 12_500, 13_000, 14_000),
            job(0, 40_000, 40_000, 42_000, 49_000),
            job(1, 40_000, 42_000, 43_000, 49_000),
        ];
        // 15 ms were lost in the first job; what follows is late, and the job that misses has lost nothing itself.
        let first = JobEnd { outcome: JobOutcome::Missed, ..interrupted(0, 0, 0, 17_000, 15_000) };
        let run = [
            first,
            job(1, 10_000, 17_000, 19_000, 19_000),
            job(2, 12_500, 19_000, 19_500, 14_000),
            job(1, 40_000, 40_000, 41_000, 49_000),
            job(0, 40_000, 41_000, 43_000, 49_000),
        ];
        let agreement = compared(&simulated, &run);
        assert_eq!((agreement.agreeing, agreement.disturbed.len()), (1, 2), "{agreement:?}");
        assert!(agreement.disturbed.iter().all(|disturbed| disturbed.lost == Span::from_millis(15)));
        // After idle time nothing excuses the run.
        assert_eq!(agreement.disagreements.len(), 1, "{agreement:?}");
        assert_eq!(agreement.disagreements[0].at, at(40_000));
    }

    #[test]
    fn a_job_that_the_run_has_not_finished_at_the_end_is_compared_if_the_simulation_has() {
        let simulated = [job(0, 0, 0, 2_000, 9_000), job(1, 500_000, 500_000, 501_000, 510_000)];
        let unfinished = JobEnd { outcome: JobOutcome::Missed, ..interrupted(1, 500_000, 500_000, 1_000_000, 499_500) };
        let agreement = compared(&simulated, &[simulated[0], unfinished]);
        assert_eq!((agreement.agreeing, agreement.disturbed.len()), (1, 1), "{agreement:?}");
        let busy = JobEnd { outcome: JobOutcome::Missed, ..interrupted(1, 500_000, 500_000, 1_000_000, 0) };
        assert_eq!(compared(&simulated, &[simulated[0], busy]).disagreements.len(), 1);
    }

    #[test]
    fn a_job_that_the_processor_was_kept_from_until_it_was_too_late_is_not_held_against_the_run() {
        let simulated = job(0, 0, 0, 2_000, 9_000);
        let (start, consumed) = (Instant::NEVER, Span::ZERO);
        let cancelled = JobEnd { outcome: JobOutcome::Cancelled, start, end: at(7_000), consumed, ..simulated };
        let agreement = compared(&[simulated], &[cancelled]);
        assert_eq!(agreement.disturbed.len(), 1, "{agreement:?}");
        assert_eq!(agreement.disturbed[0].lost, Span::from_millis(7));
        // If the processor was busy all that time, no other thread may have had it.
        let other = job(1, 0, 0, 7_000, 20_000);
        let alone = job(1, 0, 2_000, 9_000, 20_000);
        assert_eq!(compared(&[simulated, alone], &[cancelled, other]).disagreements.len(), 1);
    }
}
