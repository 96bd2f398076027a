//! Do a run and a simulation of the same system agree on order and outcome?
//!
//! Timers fire at the same instants in both; starts and completions do not, because a run has overheads that a
//! simulation does not have. If one of them falls within the tolerance of something timed (another release, a deadline,
//! the last instant at which a job can start), both orders are right, and they may differ until the processor is idle:
//! a near-tie. If something else than the processor's jobs used it (a hypervisor, other threads), the run was
//! disturbed, and stays behind until it has worked its backlog off. A late release is a disturbance, too. Any other difference is a disagreement.
//!
//! A shifted completion also shifts the jobs that it triggers, on other processors and in later busy periods, and the
//! jobs behind a release guard. A difference in such a period is explained by the period in which the shift began.
//! Overheads add up on such a path, so the shift of a triggered job is added to the tolerance of its busy period if
//! every job on the path added less than the tolerance.
//!
//! ```text
//!   simulation   ██ ██    █          one group: the run was busy throughout
//!   run          █░░░░█ ██ ███       ░ used by something else
//! ```

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

mod busy;

use hyoshi_model::{Guard, Instant, JobId, OperationId, Span, System, Trigger};

use crate::event::{JobEnd, JobOutcome};
use busy::{
    BusyGroup, DifferenceCause, Shift, begin, begin_of, busy_periods, distance, end_of, groups, near_tie, near_ties,
};

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
    let all = Comparison::new(system, processors, until, tolerance);
    (0..processors.len()).map(|processor| all.processor(processor, until)).collect()
}

/// The busy groups of all processors, and what shifted their jobs.
struct Comparison<'a> {
    system: &'a System,
    tolerance: Span,
    groups: Vec<Vec<BusyGroup>>,
    /// By processor, the begin of the first busy period that may be unfinished.
    judged: Vec<Instant>,
    /// The jobs of the run.
    of_run: BTreeMap<JobId, JobEnd>,
    /// The simulated jobs, each with the positions of its processor and busy group.
    simulated: BTreeMap<JobId, (JobEnd, (usize, usize))>,
    /// All jobs of the simulation: also those that the run may not have finished.
    known: BTreeSet<JobId>,
    /// The simulated jobs of each operation, sorted by end.
    ended: Vec<Vec<(Instant, JobId)>>,
    /// The causes of jobs that became ready at another instant in the run.
    shifts: BTreeMap<JobId, Shift>,
}

impl<'a> Comparison<'a> {
    fn new(system: &'a System, processors: &[ProcessorEnds<'_>], until: Instant, tolerance: Span) -> Comparison<'a> {
        let mut all = Comparison {
            system,
            tolerance,
            groups: Vec::new(),
            judged: Vec::new(),
            of_run: processors.iter().flat_map(|ends| ends.run).map(|end| (end.job, *end)).collect(),
            simulated: BTreeMap::new(),
            known: processors.iter().flat_map(|ends| ends.simulated).map(|end| end.job).collect(),
            ended: alloc::vec![Vec::new(); system.operations.len()],
            shifts: BTreeMap::new(),
        };
        for (processor, ends) in processors.iter().enumerate() {
            let (mut periods, mut judged) = (Vec::new(), until);
            for period in busy_periods(ends.simulated, tolerance) {
                if end_of(&period).saturating_add(tolerance) >= until {
                    // The run may not have finished it.
                    judged = judged.min(begin_of(&period));
                    break;
                }
                periods.push(period);
            }
            let groups = groups(periods, busy_periods(ends.run, tolerance), tolerance);
            for (group, busy) in groups.iter().enumerate() {
                all.simulated.extend(busy.simulated.iter().flatten().map(|end| (end.job, (*end, (processor, group)))));
            }
            all.groups.push(groups);
            all.judged.push(judged);
        }
        for (end, _) in all.simulated.values() {
            if let Some(ended) = all.ended.get_mut(end.job.operation.index()) {
                ended.push((end.end, end.job));
            }
        }
        all.ended.iter_mut().for_each(|ended| ended.sort_unstable());
        all.find_shifts();
        all
    }

    /// Finds the causes of shifted jobs in the order in which they became ready: what shifted a job is before it.
    fn find_shifts(&mut self) {
        let jobs = self.simulated.values().filter(|(end, _)| self.shift(end.job, begin) > Some(self.tolerance));
        let mut shifted: Vec<(JobEnd, (usize, usize))> = jobs.copied().collect();
        shifted.sort_unstable_by_key(|(end, _)| (begin(end), end.job));
        for (job, (processor, group)) in shifted {
            let Some(shift) = self.cause_of_shift(&job) else { continue };
            self.shifts.insert(job.job, shift);
            if let Some(group) = self.groups.get_mut(processor).and_then(|groups| groups.get_mut(group)) {
                match shift {
                    Shift::Carried(cause) => {
                        group.first_carried.get_or_insert((begin(&job), job.job, cause));
                    }
                    Shift::Overheads => group.by_overheads.push((begin(&job), job.job)),
                }
            }
        }
    }

    /// Why a job became ready at another instant in the run. A cause before it counts if it explains the shift's size: the
    /// shift is between those of what released the job, plus or minus the tolerance.
    fn cause_of_shift(&self, job: &JobEnd) -> Option<Shift> {
        let run = self.of_run.get(&job.job)?;
        let operation = self.system.operation(job.job.operation);
        let shift = ahead(begin(job), begin(run));
        let tolerance = i128::from(self.tolerance.as_nanos());
        if operation.trigger == Trigger::Periodic && job.job.leg == 0 {
            // The release thread did not have its CPU in time. A release that was early, or planned for another time,
            // has no excuse.
            let late = Shift::Carried(DifferenceCause::Lost(begin(run).since(begin(job))));
            return (shift > 0 && run.release == job.release).then_some(late);
        }
        let ended = |trigger: &JobEnd| self.ahead(trigger.job, |end| end.end).unwrap_or(0);
        let triggers = self.triggers(job);
        let guard = self.guarded_by(job);
        let (mut least, mut most) = (i128::MAX, i128::MIN);
        for known in triggers.iter().map(|(trigger, _)| ended(trigger)).chain(guard.map(|guard| guard.shift)) {
            (least, most) = (least.min(known), most.max(known));
        }
        // If the processor had no idle point in the run, the guard held the job for a period.
        most = guard.map_or(most, |guard| most.max(guard.latest));
        if !(least - tolerance..=most + tolerance).contains(&shift) {
            // Or it opened late: the release thread did not have its CPU in time.
            let opens = guard.map(|guard| guard.opens.max(run.release)).filter(|opens| *opens < begin(run))?;
            let is_explained = (least - tolerance..=most + tolerance).contains(&ahead(begin(job), opens));
            return is_explained.then(|| Shift::Carried(DifferenceCause::Lost(begin(run).since(opens))));
        }
        let is_late = |trigger: &&(JobEnd, &BusyGroup)| ended(&trigger.0).abs() > tolerance;
        let carried = triggers.iter().filter(is_late).find_map(|(trigger, group)| {
            let carried = || group.carried(trigger.end).map(|(cause, _)| cause);
            group.cause(trigger.end).or_else(carried).map(Shift::Carried)
        });
        let overheads = || {
            let added_up = triggers.iter().any(|(trigger, _)| {
                let (begun, ended) = (self.ahead(trigger.job, begin).unwrap_or(0), ended(trigger));
                (shift - ended).abs() <= tolerance
                    && (ended - begun).abs() <= tolerance
                    && (begun.abs() <= tolerance || matches!(self.shifts.get(&trigger.job), Some(Shift::Overheads)))
            });
            added_up.then_some(Shift::Overheads)
        };
        carried.or_else(|| guard?.cause.map(Shift::Carried)).or_else(overheads)
    }

    /// The job of the same operation before, if a release guard keeps them apart.
    fn guarded_by(&self, job: &JobEnd) -> Option<GuardedBy> {
        let JobId { operation, number, leg } = job.job;
        let guard = self.system.operation(operation).guard;
        let before = JobId { operation, number: number.checked_sub(1)?, leg };
        if guard == Guard::Off || leg > 0 {
            return None;
        }
        let shift = self.ahead(before, begin)?;
        let cause = match self.shifts.get(&before) {
            Some(Shift::Carried(cause)) => Some(*cause),
            _ => None,
        };
        let epoch = usize::from(job.epoch).min(self.system.epochs.len().saturating_sub(1));
        let period = self.system.setting(epoch, operation).slowest;
        let opens = begin(self.of_run.get(&before)?).saturating_add(period);
        let latest = if guard == Guard::Idle { ahead(begin(job), opens) } else { shift };
        Some(GuardedBy { shift, latest, opens, cause })
    }

    /// How much later an instant of a job is in the run than in the simulation, in ns.
    fn ahead(&self, job: JobId, of: fn(&JobEnd) -> Instant) -> Option<i128> {
        let ((simulated, _), run) = (self.simulated.get(&job)?, self.of_run.get(&job)?);
        Some(ahead(of(simulated), of(run)))
    }

    /// How far an instant of a job in the run is from that in the simulation.
    fn shift(&self, job: JobId, of: fn(&JobEnd) -> Instant) -> Option<Span> {
        let ((simulated, _), run) = (self.simulated.get(&job)?, self.of_run.get(&job)?);
        Some(distance(of(simulated), of(run)))
    }

    /// The jobs whose ends triggered a job, each with its busy group.
    fn triggers(&self, job: &JobEnd) -> Vec<(JobEnd, &BusyGroup)> {
        let JobId { operation, number, leg } = job.job;
        let known = |job: JobId| {
            let (end, (processor, group)) = self.simulated.get(&job)?;
            Some((*end, self.groups.get(*processor)?.get(*group)?))
        };
        if let Some(leg) = leg.checked_sub(1) {
            return known(JobId { leg, ..job.job }).into_iter().collect();
        }
        let of = |operation: &OperationId| {
            let same = known(JobId { operation: *operation, number, leg: 0 });
            same.filter(|(end, _)| end.end <= begin(job)).or_else(|| {
                let ended = self.ended.get(operation.index())?;
                let next = ended.partition_point(|(end, _)| *end <= begin(job));
                known(ended[..next].last()?.1)
            })
        };
        self.system.operation(operation).trigger.predecessors().iter().filter_map(of).collect()
    }

    fn processor(&self, processor: usize, until: Instant) -> RunComparison {
        let mut comparison = RunComparison::default();
        for group in &self.groups[processor] {
            let mut differences = Vec::new();
            for period in &group.simulated {
                match first_difference(period, &self.of_run) {
                    Some(difference) => differences.push(difference),
                    None => {
                        comparison.agreeing += 1;
                        comparison.jobs += period.len() as u64;
                    }
                }
            }
            let is_extra = |end: &&JobEnd| {
                let in_time = begin(end) < self.judged[processor] && end.end.saturating_add(self.tolerance) < until;
                in_time && !self.known.contains(&end.job)
            };
            let extra = group.run.iter().filter(is_extra).min_by_key(|end| end.end);
            differences.extend(extra.map(|end| Difference {
                at: end.end,
                simulated: None,
                run: Some((end.job, end.outcome)),
            }));
            for difference in differences {
                let here = group.cause(difference.at).map(|cause| (cause, None));
                let elsewhere = || group.carried(difference.at).map(|(cause, job)| (cause, Some(job)));
                match here.or_else(elsewhere).or_else(|| self.near_shift(group, difference.at)) {
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

    /// A near-tie of a group whose triggered jobs carry overheads into it.
    fn near_shift(&self, group: &BusyGroup, at: Instant) -> Option<(DifferenceCause, Option<JobId>)> {
        let until = at.saturating_add(self.tolerance);
        let overheads = group.by_overheads.iter().take_while(|(ready, _)| *ready <= until);
        let far = overheads.filter_map(|(ready, job)| Some((self.shift(*job, begin)?, *job, *ready)));
        let (shift, job, ready) = far.max()?;
        let tolerance = self.tolerance + shift;
        let mut ties = near_ties(&group.simulated.concat(), tolerance);
        ties.retain(|(completion, _)| *completion >= ready);
        let (completion, timed) = near_tie(&ties, at, tolerance)?;
        Some((DifferenceCause::NearTie { completion, timed }, Some(job)))
    }
}

/// What a release guard contributes to the shift of a job, in ns.
#[derive(Clone, Copy)]
struct GuardedBy {
    /// The shift of the job before it.
    shift: i128,
    /// The greatest shift if the guard opens no earlier than a period after that job.
    latest: i128,
    /// When it opens in the run at the latest.
    opens: Instant,
    cause: Option<DifferenceCause>,
}

/// How much later `run` is than `simulated`, in ns.
fn ahead(simulated: Instant, run: Instant) -> i128 {
    i128::from(run.as_nanos()) - i128::from(simulated.as_nanos())
}

/// Where outcomes, or the order of starts, first differ.
fn first_difference(period: &[JobEnd], of_run: &BTreeMap<JobId, JobEnd>) -> Option<Difference> {
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
    let (mut mine, mut run): (Vec<JobEnd>, Vec<JobEnd>) =
        (period.to_vec(), period.iter().filter_map(|end| of_run.get(&end.job).copied()).collect());
    started(&mut mine);
    started(&mut run);
    let order = mine.iter().zip(&run).find(|(mine, run)| mine.job != run.job).map(|(mine, run)| Difference {
        at: mine.start,
        simulated: Some((mine.job, mine.outcome)),
        run: Some((run.job, run.outcome)),
    });
    [outcome, order].into_iter().flatten().min_by_key(|difference| difference.at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use proptest::prelude::*;

    /// Operations 0 to 7 are periodic; 8 is on the other processor, after 0; 9 and 10 are after 8, and 10 has a guard.
    fn chains() -> System {
        let mut text = String::from("name = 'chains'\n[processor.main]\n[processor.other]\n");
        for operation in 0..8 {
            text += &alloc::format!("[operation.o{operation}]\non = 'main'\nevery = '1s'\nwcet = '1ms'\n");
        }
        for (operation, on, after, guard) in [(8, "other", 0, "off"), (9, "main", 8, "off"), (10, "main", 8, "on")] {
            let after = alloc::format!("after = {{ all = ['o{after}'] }}\nguard = '{guard}'");
            text += &alloc::format!("[operation.o{operation}]\non = '{on}'\n{after}\nwcet = '1ms'\n");
        }
        hyoshi_model::read(&text, "chains.toml", None).unwrap().system
    }

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
        let system = chains();
        compare(&system, &[ProcessorEnds { simulated, run }], at(1_000_000), TOLERANCE).remove(0)
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

    /// Job 0 on the main processor triggers 8 on the other, which triggers 9 on the main processor. Job 9 is ready
    /// before the release of job 1 at 10 ms in the simulation, after it in the run. All times in microseconds: `ended`
    /// when job 0 ends, simulated and in the run; `delay` what the run adds to the simulation's 100 from job to job.
    fn chain(ended: [u64; 2], delay: u64, beside: &[(JobEnd, JobEnd)]) -> (RunComparison, RunComparison) {
        let system = chains();
        let ends = |ended: u64, delay: u64, is_run: bool| {
            let triggered = |operation, ready| JobEnd {
                job: JobId { operation: OperationId(operation), number: 0, leg: 0 },
                origin: at(0),
                ..job(operation, ready, ready, ready + 3_000, 90_000)
            };
            let other = triggered(8, ended + 100 + delay);
            let ready = ended + 100 + delay + 3_000 + 100 + delay;
            let (mut back, mut timed) = (triggered(9, ready), job(1, 10_000, 10_000, 12_000, 90_000));
            if is_run {
                (back.start, back.end) = (at(12_000), at(15_000));
            } else {
                (timed.start, timed.end) = (at(ready + 3_000), at(ready + 5_000));
            }
            let zero = JobEnd { consumed: Span::from_micros(2_000), ..job(0, 0, 0, ended, 90_000) };
            let beside = beside.iter().map(|(simulated, run)| if is_run { *run } else { *simulated });
            ([zero, back, timed].into_iter().chain(beside).collect::<Vec<_>>(), [other])
        };
        let (simulated, run) = (ends(ended[0], 0, false), ends(ended[1], delay, true));
        let main = ProcessorEnds { simulated: &simulated.0, run: &run.0 };
        let other = ProcessorEnds { simulated: &simulated.1, run: &run.1 };
        let mut all = compare(&system, &[main, other], at(1_000_000), TOLERANCE);
        (all.remove(0), all.remove(0))
    }

    fn number_9() -> Option<JobId> {
        Some(JobId { operation: OperationId(9), number: 0, leg: 0 })
    }

    #[test]
    fn a_near_tie_explains_what_its_completion_triggers_on_other_processors_and_later() {
        // Job 0 ends just before the release of a more urgent one in the simulation, and after its end in the run.
        let urgent = job(2, 6_040, 6_040, 7_040, 90_000);
        let (main, other) = chain([6_000, 7_090], 0, &[(urgent, urgent)]);
        assert_eq!((other.agreeing, other.disagreements.len()), (1, 0), "{other:?}");
        assert!(main.disagreements.is_empty(), "{main:?}");
        assert_eq!(main.near_ties.len(), 1, "{main:?}");
        assert_eq!((main.near_ties[0].completion, main.near_ties[0].timed), (at(6_000), at(6_040)));
        assert_eq!(main.near_ties[0].through, number_9());
    }

    #[test]
    fn lost_time_explains_what_it_delays_on_other_processors_and_later() {
        let (main, _) = chain([6_000, 7_090], 0, &[]);
        assert!(main.disagreements.is_empty(), "{main:?}");
        assert_eq!((main.disturbed.len(), main.disturbed[0].lost), (1, Span::from_micros(1_090)), "{main:?}");
        assert_eq!(main.disturbed[0].through, number_9());
    }

    #[test]
    fn an_unexplained_shift_stays_a_disagreement() {
        // In the run, job 3 goes first for no reason.
        let late = (job(3, 0, 6_000, 7_090, 90_000), job(3, 0, 0, 1_090, 90_000));
        let (main, _) = chain([6_000, 7_090], 0, &[late]);
        assert_eq!((main.near_ties.len(), main.disturbed.len(), main.disagreements.len()), (0, 0, 2), "{main:?}");
    }

    #[test]
    fn overheads_of_a_chain_add_up() {
        // 150 us on the first processor and with each signal; job 9 is ready 300 us before job 1 and 150 after.
        let (main, _) = chain([6_500, 6_650], 150, &[]);
        assert_eq!((main.near_ties.len(), main.disagreements.len()), (1, 0), "{main:?}");
        assert_eq!(main.near_ties[0].through, number_9());
        // A signal that takes 400 us longer is no overhead.
        let (main, _) = chain([6_500, 6_500], 400, &[]);
        assert_eq!((main.near_ties.len(), main.disagreements.len()), (0, 1), "{main:?}");
    }

    #[test]
    fn a_late_release_is_lost_time_and_an_early_one_is_no_excuse() {
        // Job 0 is released 1.5 ms late, after job 1 on the run.
        let ready = |ready: u64, mut end: JobEnd| {
            (end.release, end.ready) = (at(1_000), at(ready));
            end
        };
        let simulated = [ready(1_000, job(0, 1_000, 1_000, 3_000, 9_000)), job(1, 2_000, 3_000, 4_000, 9_000)];
        let run = [job(1, 2_000, 2_000, 3_000, 9_000), ready(2_500, job(0, 1_000, 3_000, 5_000, 9_000))];
        let agreement = compared(&simulated, &run);
        assert_eq!((agreement.disturbed.len(), agreement.disagreements.len()), (1, 0), "{agreement:?}");
        assert_eq!(agreement.disturbed[0].lost, Span::from_micros(1_500));
        let agreement = compared(&run, &simulated);
        assert_eq!((agreement.disturbed.len(), agreement.disagreements.len()), (0, 1), "{agreement:?}");
    }

    #[test]
    fn a_guard_that_opens_late_is_lost_time() {
        let system = chains();
        let held = |number, release, ready, start| JobEnd {
            job: JobId { operation: OperationId(10), number, leg: 0 },
            origin: at(0),
            release: at(release),
            ..job(10, ready, start, start + 1_000, 5_000_000)
        };
        // The period is 1 s: the second job is due at 1.001 s.
        let simulated = [
            held(0, 1_000, 1_000, 1_000),
            held(1, 900_000, 1_001_000, 1_001_000),
            job(1, 1_001_500, 1_002_000, 1_003_000, 5_000_000),
        ];
        let late = |release, ready| {
            let run = [
                held(0, 1_000, 1_000, 1_000),
                held(1, release, ready, 1_002_500),
                job(1, 1_001_500, 1_001_500, 1_002_500, 5_000_000),
            ];
            let main = ProcessorEnds { simulated: &simulated, run: &run };
            compare(&system, &[main], at(2_000_000), TOLERANCE).remove(0)
        };
        let compared = late(900_000, 1_002_000);
        assert_eq!((compared.disturbed.len(), compared.disagreements.len()), (1, 0), "{compared:?}");
        assert_eq!(compared.disturbed[0].lost, Span::from_micros(1_000));
    }

    #[test]
    fn signals_that_arrive_almost_together_are_a_near_tie() {
        let triggered =
            |operation, ready, start| JobEnd { origin: at(0), ..job(operation, ready, start, start + 1_000, 90_000) };
        let before = job(0, 5_000, 5_000, 7_000, 90_000);
        let simulated = [before, triggered(2, 6_000, 7_000), triggered(3, 6_010, 8_000)];
        let run = [before, triggered(3, 6_000, 7_000), triggered(2, 6_020, 8_000)];
        let renumbered = run.map(|mut end| {
            end.job.number =
                simulated.iter().find(|other| other.job.operation == end.job.operation).unwrap().job.number;
            end
        });
        let compared = compared(&simulated, &renumbered);
        assert_eq!((compared.near_ties.len(), compared.disagreements.len()), (1, 0), "{compared:?}");
    }

    #[test]
    fn a_guard_carries_a_shift_to_the_next_job() {
        let system = chains();
        let held = |number, ready, start| JobEnd {
            job: JobId { operation: OperationId(10), number, leg: 0 },
            origin: at(0),
            ..job(10, ready, start, start + 1_000, 90_000)
        };
        let other = |number, ready, end| JobEnd {
            job: JobId { operation: OperationId(8), number, leg: 0 },
            consumed: Span::from_micros(500),
            ..job(8, ready, ready, end, 90_000)
        };
        // The first trigger ends 1 ms later in the run, so the second release is held 1 ms longer.
        let simulated = [held(0, 1_000, 1_000), held(1, 21_000, 21_000), job(1, 21_500, 22_000, 23_000, 90_000)];
        let run = [held(0, 2_000, 2_000), held(1, 22_000, 22_500), job(1, 21_500, 21_500, 22_500, 90_000)];
        let others = ([other(0, 0, 1_000), other(1, 5_000, 6_000)], [other(0, 0, 2_000), other(1, 5_000, 6_000)]);
        let main = ProcessorEnds { simulated: &simulated, run: &run };
        let other = ProcessorEnds { simulated: &others.0, run: &others.1 };
        let compared = compare(&system, &[main, other], at(1_000_000), TOLERANCE).remove(0);
        assert_eq!((compared.disturbed.len(), compared.disagreements.len()), (1, 0), "{compared:?}");
        assert_eq!(compared.disturbed[0].through, Some(JobId { operation: OperationId(10), number: 1, leg: 0 }));
    }

    proptest! {
        #[test]
        fn near_ties_are_those_of_a_search_of_all_pairs(
            jobs in proptest::collection::vec((0u64..40, 0u64..9, 1u64..9, 0u64..40, any::<bool>()), 1..12),
            when in 0u64..60,
        ) {
            let all = jobs.iter().enumerate().map(|(number, (release, wait, run, deadline, by_timer))| {
                let micros = |units: u64| units * 70;
                let start = release + wait;
                let mut end = job(number as u32, micros(*release), micros(start), micros(start + run), micros(*deadline));
                match release % 3 {
                    _ if *by_timer => {}
                    0 => (end.release, end.ready) = (end.origin, end.ready + Span::from_nanos(1)),
                    _ => end.origin = Instant::ZERO,
                }
                end
            });
            let (all, when): (Vec<JobEnd>, Instant) = (all.collect(), at(when * 70));
            let mut pairs = Vec::new();
            for completed in &all {
                let triggered = (completed.release > completed.origin).then_some(completed.ready);
                for completion in [completed.start, completed.end].into_iter().chain(triggered) {
                    for timed in &all {
                        let by_timer = timed.ready == timed.release || timed.release > timed.origin;
                        let last_start = timed.deadline.saturating_sub(timed.consumed);
                        for time in [by_timer.then_some(timed.ready), Some(timed.deadline), Some(last_start)] {
                            let Some(time) = time else { continue };
                            let near = time != completion && distance(time, completion) <= TOLERANCE;
                            if near && completion <= when + TOLERANCE {
                                pairs.push((completion, time));
                            }
                        }
                    }
                }
            }
            let best = pairs.iter().map(|(completion, _)| distance(*completion, when)).min();
            let found = near_tie(&near_ties(&all, TOLERANCE), when, TOLERANCE);
            prop_assert_eq!(found.map(|(completion, _)| distance(completion, when)), best);
            if let Some(found) = found {
                prop_assert!(pairs.contains(&found), "{:?} is not near", found);
                let nearest = pairs.iter().filter(|pair| pair.0 == found.0).map(|pair| distance(pair.0, pair.1)).min();
                prop_assert_eq!(Some(distance(found.0, found.1)), nearest);
            }
        }
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
