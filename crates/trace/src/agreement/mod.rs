//! Do a run and a simulation of the same system agree on order and outcome?
//!
//! Timers fire at the same instants in both; starts and completions do not, because a run has overheads that a
//! simulation does not have. If one of them falls within the tolerance of something timed (another release, a deadline,
//! the last instant at which a job can start), both orders are right, and they may differ until the processor is idle:
//! a near-tie. If something else than the processor's jobs used it (a hypervisor, other threads), the run was
//! disturbed, and stays behind until it has worked its backlog off. A late release is a disturbance, too. Any other
//! difference is a disagreement.
//!
//! A deadline is compared only with the end of its own job. The last start is compared only with the start of its own
//! job, if the processor cancels jobs.
//!
//! A shifted completion also shifts the jobs that it triggers, on other processors and in later busy periods, and the
//! jobs behind a release guard. A difference in such a period is explained by the period in which the shift began.
//! Overheads add up on such a path, so the shift of a triggered job is added to the tolerance of its busy period if
//! every job on the path added less than the tolerance. The two schedules differ as soon as one of them has the job. So
//! a shift explains differences from the earlier of the two instants at which the job became ready.
//!
//! ```text
//!   simulation   ██ ██    █          one group: the run was busy throughout
//!   run          █░░░░█ ██ ███       ░ used by something else
//! ```

use alloc::vec::Vec;

use hyoshi_model::{Instant, JobId, Span, System};

use crate::event::{JobEnd, JobOutcome};

mod busy;
mod near_ties;
mod shifts;
#[cfg(test)]
mod tests;

use busy::{BusyGroup, DifferenceCause};
use shifts::Schedules;

/// The least distance of decision points at which a run and a simulation must agree.
pub const TOLERANCE: Span = Span::from_micros(200);

/// The comparison of one processor, busy period by busy period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunComparison {
    /// Busy periods with the same jobs in the same order and with the same outcomes.
    pub agreeing: u64,
    /// Jobs in them.
    pub jobs: u64,
    /// Busy periods that differ because of a near-tie in them, or before them and without idle time since, or in the
    /// past of a job that another busy period triggered.
    pub near_ties: Vec<NearTie>,
    /// Busy periods that differ because the processor did something else during them, or before them and without idle
    /// time since, or in the past of a job that another busy period triggered.
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
    /// The job that carried the shift into the busy period, if the near-tie is in another one.
    pub through: Option<JobId>,
    /// Its consequence.
    pub difference: Difference,
}

/// Time that was neither used by jobs nor idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disturbed {
    /// How much of it, beyond the time that the simulation leaves unused.
    pub lost: Span,
    /// The job that carried the delay into the busy period, if the time was lost in another one.
    pub through: Option<JobId>,
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

/// The job ends of one processor.
#[derive(Clone, Copy, Debug)]
pub struct ProcessorEnds<'a> {
    /// Those of the simulation.
    pub simulated: &'a [JobEnd],
    /// Those of the run.
    pub run: &'a [JobEnd],
}

/// Compares the job ends of each processor. Jobs that end after `until` are left out.
pub fn compare(
    system: &System,
    processors: &[ProcessorEnds<'_>],
    until: Instant,
    tolerance: Span,
) -> Vec<RunComparison> {
    let all = Schedules::new(system, processors, until, tolerance);
    all.groups.iter().map(|groups| of_processor(groups, &all)).collect()
}

/// Compares the busy periods of one processor.
fn of_processor(groups: &[BusyGroup], all: &Schedules<'_>) -> RunComparison {
    let mut comparison = RunComparison::default();
    for group in groups {
        let mut differences = Vec::new();
        for period in &group.simulated {
            match first_difference(period, all) {
                Some(difference) => differences.push(difference),
                None => {
                    comparison.agreeing += 1;
                    comparison.jobs += period.len() as u64;
                }
            }
        }
        differences.extend(group.extra.map(|end| Difference {
            at: end.end,
            simulated: None,
            run: Some((end.job, end.outcome)),
        }));
        for difference in differences {
            match group.explanation(difference.at) {
                Some((DifferenceCause::Lost(lost), through)) => {
                    comparison.disturbed.push(Disturbed { lost, through, difference });
                }
                Some((DifferenceCause::NearTie { completion, timed }, through)) => {
                    comparison.near_ties.push(NearTie { completion, timed, through, difference });
                }
                None => comparison.disagreements.push(difference),
            }
        }
    }
    comparison
}

/// Where outcomes, or the order of starts, first differ.
fn first_difference(period: &[JobEnd], all: &Schedules<'_>) -> Option<Difference> {
    let outcome = period.iter().filter(|mine| all.run(mine.job).is_none_or(|run| run.outcome != mine.outcome));
    let outcome = outcome.min_by_key(|mine| mine.end).map(|mine| Difference {
        at: mine.end,
        simulated: Some((mine.job, mine.outcome)),
        run: all.run(mine.job).map(|run| (run.job, run.outcome)),
    });
    let started = |ends: &mut Vec<JobEnd>| {
        ends.retain(|end| end.start != Instant::NEVER);
        ends.sort_by_key(|end| (end.start, end.end));
    };
    let (mut mine, mut run): (Vec<JobEnd>, Vec<JobEnd>) =
        (period.to_vec(), period.iter().filter_map(|end| all.run(end.job).copied()).collect());
    started(&mut mine);
    started(&mut run);
    let order = mine.iter().zip(&run).find(|(mine, run)| mine.job != run.job).map(|(mine, run)| Difference {
        at: mine.start,
        simulated: Some((mine.job, mine.outcome)),
        run: Some((run.job, run.outcome)),
    });
    [outcome, order].into_iter().flatten().min_by_key(|difference| difference.at)
}
