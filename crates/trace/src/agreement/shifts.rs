//! Why jobs became ready at another instant in the run than in the simulation: causes are carried from the busy group
//! of a completion to the jobs that it triggers, and from a job behind a release guard to the next one.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use hyoshi_model::{Guard, Instant, JobId, OperationId, Span, System, Trigger};

use super::ProcessorEnds;
use super::busy::{BusyGroup, DifferenceCause, Shift, begin, begin_of, busy_periods, end_of, groups};
use super::near_ties::distance;
use crate::event::JobEnd;

/// The positions of a job's processor and busy group.
type Place = (usize, usize);

/// The busy groups of all processors, each with the shifts that its jobs carried into it.
pub(super) struct Schedules<'a> {
    system: &'a System,
    tolerance: Span,
    pub groups: Vec<Vec<BusyGroup>>,
    /// The jobs of the run.
    run: BTreeMap<JobId, (JobEnd, Place)>,
    /// The jobs of the simulation that the run may have finished.
    simulated: BTreeMap<JobId, (JobEnd, Place)>,
    /// The simulated jobs of each operation, sorted by end.
    ended: Vec<Vec<(Instant, JobId)>>,
    /// The causes of jobs that became ready at another instant in the run.
    shifts: BTreeMap<JobId, Shift>,
}

impl<'a> Schedules<'a> {
    pub fn new(system: &'a System, processors: &[ProcessorEnds<'_>], until: Instant, tolerance: Span) -> Schedules<'a> {
        let mut all = Schedules {
            system,
            tolerance,
            groups: Vec::new(),
            run: BTreeMap::new(),
            simulated: BTreeMap::new(),
            ended: alloc::vec![Vec::new(); system.operations.len()],
            shifts: BTreeMap::new(),
        };
        let mut known: Vec<JobId> =
            processors.iter().flat_map(|ends| ends.simulated).map(|simulated| simulated.job).collect();
        known.sort_unstable();
        let simulated = finished_periods(system, processors, until, tolerance);
        for (processor, (ends, (periods, judged))) in processors.iter().zip(simulated).enumerate() {
            let mut groups = groups(system, periods, busy_periods(ends.run, tolerance), tolerance);
            for (position, group) in groups.iter_mut().enumerate() {
                let placed = |end: &JobEnd| (end.job, (*end, (processor, position)));
                all.simulated.extend(group.simulated.iter().flatten().map(placed));
                all.run.extend(group.run.iter().map(placed));
                let is_extra = |end: &&JobEnd| {
                    let in_time = begin(end) < judged && end.end.saturating_add(tolerance) < until;
                    in_time && known.binary_search(&end.job).is_err()
                };
                group.extra = group.run.iter().filter(is_extra).min_by_key(|end| end.end).copied();
            }
            all.groups.push(groups);
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

    /// A job of the run.
    pub fn run(&self, job: JobId) -> Option<&JobEnd> {
        self.run.get(&job).map(|(end, _)| end)
    }

    /// Finds the causes of shifted jobs in the order in which they became ready: what shifted a job is before it.
    fn find_shifts(&mut self) {
        let mut shifted = Vec::new();
        for (simulated, there) in self.simulated.values() {
            let Some((run, here)) = self.run.get(&simulated.job) else { continue };
            if distance(begin(simulated), begin(run)) > self.tolerance {
                shifted.push((*simulated, *there, begin(run), *here));
            }
        }
        shifted.sort_unstable_by_key(|(end, _, in_run, _)| (begin(end).min(*in_run), end.job));
        for (job, there, in_run, here) in shifted {
            let Some(why) = self.cause_of_shift(&job) else { continue };
            self.shifts.insert(job.job, why);
            // The schedules differ from the instant at which the first of them has the job. If they have it in two
            // groups, it is missing in one and added in the other.
            for ((processor, group), from) in [(there, begin(&job)), (here, in_run)] {
                self.groups[processor][group].add_shifted(from, job.job, distance(begin(&job), in_run), why);
            }
        }
        self.groups.iter_mut().flatten().for_each(|group| group.close(self.system));
    }

    /// Why a job became ready at another instant in the run. A cause before it counts if it explains the shift's size:
    /// the shift is between those of what released the job, plus or minus the tolerance.
    fn cause_of_shift(&self, job: &JobEnd) -> Option<Shift> {
        let run = self.run(job.job)?;
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
        if let (Guard::Idle, Some(guard)) = (operation.guard, guard) {
            // If the processor had no idle point in the run, the guard held the job for a period.
            most = most.max(ahead(begin(job), guard.opens));
        }
        let is_explained = |shift: i128| (least - tolerance..=most + tolerance).contains(&shift);
        if !is_explained(shift) {
            // Or it opened late: the release thread did not have its CPU in time.
            let opens = guard.map(|guard| guard.opens.max(run.release)).filter(|opens| *opens < begin(run))?;
            let lost = DifferenceCause::Lost(begin(run).since(opens));
            return is_explained(ahead(begin(job), opens)).then_some(Shift::Carried(lost));
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
        let before = JobId { operation, number: number.checked_sub(1)?, leg };
        if self.system.operation(operation).guard == Guard::Off || leg > 0 {
            return None;
        }
        let shift = self.ahead(before, begin)?;
        let cause = match self.shifts.get(&before) {
            Some(Shift::Carried(cause)) => Some(*cause),
            _ => None,
        };
        let epoch = usize::from(job.epoch).min(self.system.epochs.len().saturating_sub(1));
        let period = self.system.setting(epoch, operation).slowest;
        Some(GuardedBy { shift, opens: begin(self.run(before)?).saturating_add(period), cause })
    }

    /// How much later an instant of a job is in the run than in the simulation, in ns.
    fn ahead(&self, job: JobId, of: fn(&JobEnd) -> Instant) -> Option<i128> {
        let (simulated, _) = self.simulated.get(&job)?;
        Some(ahead(of(simulated), of(self.run(job)?)))
    }

    /// The jobs whose ends triggered a job, each with its busy group.
    fn triggers(&self, job: &JobEnd) -> Vec<(JobEnd, &BusyGroup)> {
        let JobId { operation, number, leg } = job.job;
        let known = |job: JobId| {
            let (end, (processor, group)) = self.simulated.get(&job)?;
            Some((*end, &self.groups[*processor][*group]))
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
}

/// The simulated busy periods of each processor that the run has finished, and the instant until which all are.
///
/// The run may not have finished a period that ends less than the tolerance before `until`, nor one that follows it. Nor
/// may it have finished what an unfinished job triggers, or a trigger that ended so late in the run that too little time
/// was left.
fn finished_periods(
    system: &System,
    processors: &[ProcessorEnds<'_>],
    until: Instant,
    tolerance: Span,
) -> Vec<(Vec<Vec<JobEnd>>, Instant)> {
    let by_job = |end: &JobEnd| (end.job, end.end);
    let run: BTreeMap<JobId, Instant> = processors.iter().flat_map(|ends| ends.run).map(by_job).collect();
    let simulated: BTreeMap<JobId, Instant> = processors.iter().flat_map(|ends| ends.simulated).map(by_job).collect();
    let mut unfinished = BTreeSet::new();
    let mut all: Vec<_> = processors.iter().map(|ends| (busy_periods(ends.simulated, tolerance), until)).collect();
    for (periods, judged) in &mut all {
        let is_cut = |period: &Vec<JobEnd>| end_of(period).saturating_add(tolerance) >= until;
        if let Some(first) = periods.iter().position(is_cut) {
            *judged = begin_of(&periods[first]);
            let jobs = periods.drain(first..).flatten().map(|end| end.job);
            unfinished.extend(jobs.filter(|job| !run.contains_key(job)));
        }
    }
    loop {
        let before = unfinished.len();
        for (periods, _) in &mut all {
            periods.retain(|period| {
                let end = end_of(period).saturating_add(tolerance);
                let is_late = |job: &JobId| match (simulated.get(job), run.get(job)) {
                    (Some(mine), Some(run)) => end.saturating_add(run.since(*mine)) >= until,
                    _ => unfinished.contains(job),
                };
                let lacks_time = |end: &&JobEnd| {
                    let JobId { operation, number, .. } = end.job;
                    let mut triggers = system.operation(operation).trigger.predecessors().iter().filter_map(|one| {
                        let [first, last] = [0, u16::MAX].map(|leg| JobId { operation: *one, number, leg });
                        simulated.range(first..=last).next_back().map(|(job, _)| *job)
                    });
                    !run.contains_key(&end.job) && triggers.any(|trigger| is_late(&trigger))
                };
                let is_unfinished = period.iter().any(|end| lacks_time(&end));
                if is_unfinished {
                    unfinished.extend(period.iter().map(|end| end.job).filter(|job| !run.contains_key(job)));
                }
                !is_unfinished
            });
        }
        if unfinished.len() == before {
            return all;
        }
    }
}

/// What a release guard contributes to the shift of a job.
#[derive(Clone, Copy)]
struct GuardedBy {
    /// The shift of the job before it, in ns.
    shift: i128,
    /// When it opens in the run at the latest.
    opens: Instant,
    cause: Option<DifferenceCause>,
}

/// How much later `run` is than `simulated`, in ns.
fn ahead(simulated: Instant, run: Instant) -> i128 {
    i128::from(run.as_nanos()) - i128::from(simulated.as_nanos())
}
