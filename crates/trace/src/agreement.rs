//! Compares a run with a simulation of the same system: order of jobs and outcomes, busy period by busy period.
//!
//! Timers expire at the same instants in both. Starts and completions differ, because a run has overhead. If one of
//! them lies within the tolerance of a timed event (a release, a deadline, the last possible start of a job), the two
//! may decide differently, and both are correct. They may then differ until the processor is idle. Such a busy period
//! counts as a near-tie. If other threads or the hypervisor used the run's processor, the busy period counts as
//! disturbed. Any other difference is a disagreement.

use alloc::{collections::BTreeMap, vec::Vec};

use hyoshi_model::{Instant, JobId, Span};

use crate::event::{JobEnd, JobOutcome};

/// Largest distance of two decision points at which a run and a simulation may differ.
pub const TOLERANCE: Span = Span::from_micros(200);

/// Result of the comparison for one processor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunComparison {
    /// Busy periods with the same jobs in the same order and with the same outcomes.
    pub agreeing: u64,
    /// Jobs in them.
    pub jobs: u64,
    /// Differing busy periods that a near-tie explains.
    pub near_ties: Vec<NearTie>,
    /// Differing busy periods in which other threads or the hypervisor used the processor.
    pub disturbed: Vec<Disturbed>,
    /// Differing busy periods without an explanation.
    pub disagreements: Vec<Difference>,
}

/// Two decision points closer than the tolerance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearTie {
    /// A start or completion in the simulation.
    pub completion: Instant,
    /// The timed event close to it.
    pub timed: Instant,
    /// The resulting difference.
    pub difference: Difference,
}

/// Time used neither by jobs nor by idling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disturbed {
    /// Its length, beyond what is unused in the simulation.
    pub lost: Span,
    /// The resulting difference.
    pub difference: Difference,
}

/// The first difference of a busy period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its time in the simulation.
    pub at: Instant,
    /// The job at that position in the simulation, and its outcome.
    pub simulated: Option<(JobId, JobOutcome)>,
    /// The job at that position in the run, and its outcome.
    pub run: Option<(JobId, JobOutcome)>,
}

/// Compares the job ends of one processor. Jobs that end after `until` are ignored.
pub fn compare(simulated: &[JobEnd], run: &[JobEnd], until: Instant, tolerance: Span) -> RunComparison {
    let of_run: BTreeMap<JobId, &JobEnd> = run.iter().map(|end| (end.job, end)).collect();
    let mut agreement = RunComparison::default();
    for period in busy_periods(simulated, tolerance) {
        let last = period.iter().map(|end| end.end).max().unwrap_or_default();
        if last.saturating_add(tolerance) >= until {
            break;
        }
        let theirs: Vec<&JobEnd> = period.iter().filter_map(|end| of_run.get(&end.job).copied()).collect();
        let Some(difference) = first_difference(&period, &theirs, &of_run) else {
            agreement.agreeing += 1;
            agreement.jobs += period.len() as u64;
            continue;
        };
        let begun = period.iter().map(begin).min().unwrap_or_default();
        let lost = unused(&theirs, begun).saturating_sub(unused(&period.iter().collect::<Vec<_>>(), begun));
        if lost > tolerance {
            agreement.disturbed.push(Disturbed { lost, difference });
        } else if let Some((completion, timed)) = near_tie(&period, difference.at, tolerance) {
            agreement.near_ties.push(NearTie { completion, timed, difference });
        } else {
            agreement.disagreements.push(difference);
        }
    }
    agreement
}

/// Groups jobs by busy period: an interval in which some job was ready or running. Intervals closer than the tolerance
/// are one.
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

fn begin(end: &JobEnd) -> Instant {
    end.ready.min(end.end)
}

/// The first difference in outcomes or in the order of starts.
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

/// The completion and the timed event of the near-tie closest to `at`. Completions later than `at` plus the tolerance
/// do not count.
fn near_tie(period: &[JobEnd], at: Instant, tolerance: Span) -> Option<(Instant, Instant)> {
    let timed = |end: &JobEnd| {
        // Released by a timer, unless a completion released it.
        let released = (end.ready == end.release || end.release > end.origin).then_some(end.ready);
        let last_start = end.deadline.saturating_sub(end.consumed);
        [released, Some(end.deadline), Some(last_start)].into_iter().flatten()
    };
    let mut times: Vec<Instant> = period.iter().flat_map(timed).collect();
    times.sort_unstable();
    let distance = |one: Instant, other: Instant| one.since(other).max(other.since(one));
    let close = |completion: Instant| {
        let first = times.partition_point(|at| at.saturating_add(tolerance) < completion);
        let near = times[first..].iter().take_while(|at| **at <= completion.saturating_add(tolerance));
        // Equal instants are not a near-tie: both break the tie alike.
        near.filter(|at| **at != completion).min_by_key(|at| distance(**at, completion)).map(|at| (completion, *at))
    };
    // A start also ends what ran before.
    let ran = period.iter().filter(|end| end.start != Instant::NEVER);
    let completions = ran.flat_map(|end| [end.start, end.end]).filter(|end| *end <= at.saturating_add(tolerance));
    completions
        .filter_map(close)
        .filter(|(completion, timed)| completion != timed)
        .min_by_key(|tie| distance(tie.0, at))
}

/// Time from `begun` to the last end that no job used. It includes the waiting time of jobs that never started.
fn unused(ends: &[&JobEnd], begun: Instant) -> Span {
    let last = ends.iter().map(|end| end.end).max().unwrap_or(begun);
    let ran = ends.iter().filter(|end| end.start != Instant::NEVER);
    last.since(begun).saturating_sub(ran.map(|end| end.consumed).sum())
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
        // In the run the first job ends 30 us later, after the release of a more urgent one.
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

    #[test]
    fn a_job_that_the_processor_was_kept_from_until_it_was_too_late_is_not_held_against_the_run() {
        let simulated = job(0, 0, 0, 2_000, 9_000);
        let (start, consumed) = (Instant::NEVER, Span::ZERO);
        let cancelled = JobEnd { outcome: JobOutcome::Cancelled, start, end: at(7_000), consumed, ..simulated };
        let agreement = compared(&[simulated], &[cancelled]);
        assert_eq!(agreement.disturbed.len(), 1, "{agreement:?}");
        assert_eq!(agreement.disturbed[0].lost, Span::from_millis(7));
        // If the processor is busy all that time, no other thread had it.
        let other = job(1, 0, 0, 7_000, 20_000);
        let alone = job(1, 0, 2_000, 9_000, 20_000);
        assert_eq!(compared(&[simulated, alone], &[cancelled, other]).disagreements.len(), 1);
    }
}
