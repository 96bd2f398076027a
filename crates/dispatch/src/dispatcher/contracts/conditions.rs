//! The conditions of a processor's contracts, measured from its jobs.

use alloc::{vec, vec::Vec};

use hyoshi_contract::{ConditionWindow, SampleSum, WindowSample};
use hyoshi_model::predicate::ConditionReading;
use hyoshi_model::{
    Condition, ConditionSource, Contract, Instant, JobScope, LatencyScope, OperationId, ProcessorId, Span, System,
    WindowSummary,
};
use hyoshi_trace::JobOutcome;

use crate::job::{Job, JobTable};
use crate::operation::OperationState;

/// A condition of another processor is stale after this number of periods without a value, or after a longer `max_age`.
const REMOTE_PERIODS: u64 = 4;

/// The conditions of all contracts of a processor, in their order.
///
/// A job counts when it ends. A job that is overdue also counts in each evaluation before, with its present age:
/// otherwise an overloaded processor, which ends no job, would seem to have no late one.
#[derive(Debug)]
pub(super) struct ConditionMonitors {
    all: Vec<ConditionMonitor>,
    /// By operation here: the conditions for which its jobs count.
    of: Vec<Vec<WatchedJobs>>,
    /// By operation here: its execution times, and the sums of which they are a part.
    sums: Vec<OperationSums>,
    /// The conditions that count endangered critical jobs.
    endangered: Vec<u32>,
    /// By condition: the overdue jobs of an evaluation.
    overdue: Vec<SampleSum>,
}

#[derive(Debug)]
struct ConditionMonitor {
    window: ConditionWindow,
    measure: ConditionMeasure,
    /// The operations here whose waiting jobs count.
    waiting: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct WatchedJobs {
    condition: u32,
    /// False for the earlier operations of a chain: only their lost and overdue jobs count.
    ends: bool,
}

/// The execution times of an operation's jobs, and the sums over windows of which they are a part.
#[derive(Clone, Debug, Default)]
struct OperationSums {
    parts: Vec<SumPart>,
    /// Of the jobs that have ended; `None` before the first one.
    mean: Option<Span>,
}

#[derive(Clone, Copy, Debug)]
struct SumPart {
    condition: u32,
    of: SumOf,
    only_critical: bool,
}

/// What a condition sums up over its window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SumOf {
    /// Execution times from the release on: expected ones, until a job has ended.
    Demand,
    /// Execution times of late jobs.
    Wasted,
    /// Execution times of all jobs, when they end.
    Usage,
    /// Completed jobs; of a load chain, its last legs.
    Completions,
}

impl OperationSums {
    /// A job has ended. Older jobs have less weight.
    fn learn(&mut self, consumed: Span) {
        let next = |mean: Span| mean.as_nanos() - mean.as_nanos() / 8 + consumed.as_nanos() / 8;
        self.mean = Some(self.mean.map_or(consumed, |mean| Span::from_nanos(next(mean))));
    }
}

/// What a condition measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ConditionMeasure {
    /// Of jobs: 1 for a late one. Of a chain, if it has a deadline.
    MissRatio(Option<Span>),
    /// Response times. Of a chain, with its deadline, if it has one.
    Latency {
        chain: bool,
        deadline: Option<Span>,
    },
    /// End minus deadline. Of a chain, its deadline.
    Lateness(Option<Span>),
    Utilisation,
    /// A sum over the window, for each second.
    Sum,
    /// Jobs that wait, sampled by each evaluation.
    Queue,
    /// Whether the second strategy is in force, sampled by each evaluation.
    Strategy,
    Endangered,
    /// A value from outside, by its position in the system.
    Set(u16),
    /// The values that another processor sends.
    Remote,
}

impl ConditionMeasure {
    /// The value of a job that ends now, or has not ended by now; `None` if it does not count.
    fn value(self, now: Instant, job: &Job, outcome: Option<JobOutcome>, ends: bool) -> Option<f64> {
        let (chain, deadline) = match self {
            ConditionMeasure::MissRatio(deadline) => (deadline.is_some(), deadline),
            ConditionMeasure::Latency { chain, deadline } => (chain, deadline),
            ConditionMeasure::Lateness(deadline) => (deadline.is_some(), deadline),
            _ => return None,
        };
        let counts_lost = matches!(self, ConditionMeasure::MissRatio(_));
        let age = now.since(if chain { job.origin } else { job.release });
        let overdue = deadline.map_or(now > job.deadline, |deadline| age > deadline);
        let late = match outcome {
            Some(JobOutcome::Skipped) => return None,
            // The last leg of a load chain ends the response.
            Some(JobOutcome::Made | JobOutcome::Missed) if !ends || job.id.leg + 1 < job.legs => return None,
            Some(JobOutcome::Made) if deadline.is_none() => false,
            Some(JobOutcome::Made | JobOutcome::Missed) => overdue,
            // It has no response time.
            Some(_) if !counts_lost => return None,
            Some(_) => true,
            None if overdue => true,
            None => return None,
        };
        Some(match self {
            ConditionMeasure::Latency { .. } => age.as_secs_f64(),
            ConditionMeasure::Lateness(None) => now.lateness(job.deadline).as_nanos() as f64 / 1e9,
            ConditionMeasure::Lateness(Some(deadline)) => age.as_secs_f64() - deadline.as_secs_f64(),
            _ => f64::from(late),
        })
    }
}

impl ConditionMonitors {
    pub fn new<'a>(
        system: &System,
        processor: ProcessorId,
        conditions: impl Iterator<Item = (&'a Contract, &'a Condition)>,
        local_of: &[u32],
        operations: usize,
    ) -> Self {
        let mut of: Vec<Vec<WatchedJobs>> = vec![Vec::new(); operations];
        let mut sums = vec![OperationSums::default(); operations];
        let mut endangered = Vec::new();
        let monitor = |(condition, (contract, declared)): (u32, (&Contract, &Condition))| {
            if contract.measured_on(system, &declared.of) != processor {
                // Its processor has summarised the window.
                let periods = Span::from_nanos(contract.period.as_nanos().saturating_mul(REMOTE_PERIODS));
                let max_age = declared.max_age.unwrap_or_default().max(periods);
                let window = ConditionWindow::new(WindowSummary::Mean, None, Some(max_age));
                return ConditionMonitor { window, measure: ConditionMeasure::Remote, waiting: Vec::new() };
            }
            let mut count = |ids: &[OperationId], ends: bool| {
                for local in ids.iter().map(|id| local_of[id.index()]) {
                    // The first operations of a chain may be on other processors.
                    of.get_mut(local as usize).into_iter().for_each(|of| of.push(WatchedJobs { condition, ends }));
                }
            };
            let mut scope = |scope: &LatencyScope| match scope {
                LatencyScope::Operations(ids) => {
                    count(ids, true);
                    (false, None)
                }
                LatencyScope::Chain(place) => {
                    let chain = &system.chains[*place as usize];
                    let (last, earlier) = chain.path.split_last().expect("a chain has operations");
                    count(core::slice::from_ref(last), true);
                    count(earlier, false);
                    (true, chain.deadline)
                }
            };
            let mut sum = |of: SumOf, scope: &JobScope| {
                let mut part = |local: usize, only_critical| {
                    sums[local].parts.push(SumPart { condition, of, only_critical });
                };
                match scope {
                    JobScope::Operations(ids) => ids.iter().for_each(|id| part(local_of[id.index()] as usize, false)),
                    JobScope::Processor { critical, .. } => (0..operations).for_each(|local| part(local, *critical)),
                }
                ConditionMeasure::Sum
            };
            let mut waiting = Vec::new();
            let measure = match &declared.of {
                ConditionSource::MissRatio(of) => ConditionMeasure::MissRatio(scope(of).1),
                ConditionSource::Latency(of) => {
                    let (chain, deadline) = scope(of);
                    ConditionMeasure::Latency { chain, deadline }
                }
                ConditionSource::Lateness(of) => ConditionMeasure::Lateness(scope(of).1),
                ConditionSource::Utilisation(_) => ConditionMeasure::Utilisation,
                ConditionSource::Demand(of) => sum(SumOf::Demand, of),
                ConditionSource::Wasted(of) => sum(SumOf::Wasted, of),
                ConditionSource::Usage(of) => sum(SumOf::Usage, of),
                ConditionSource::Rate(of) => sum(SumOf::Completions, of),
                ConditionSource::Queue(of) => {
                    waiting = match of {
                        JobScope::Operations(ids) => ids.iter().map(|id| local_of[id.index()]).collect(),
                        JobScope::Processor { .. } => (0..operations as u32).collect(),
                    };
                    ConditionMeasure::Queue
                }
                ConditionSource::Strategy(_) => ConditionMeasure::Strategy,
                ConditionSource::Endangered(_) => {
                    endangered.push(condition);
                    ConditionMeasure::Endangered
                }
                ConditionSource::Set(condition) => ConditionMeasure::Set(*condition),
            };
            let window = ConditionWindow::new(declared.summary, declared.over, declared.max_age);
            ConditionMonitor { window, measure, waiting }
        };
        let all: Vec<_> = (0..).zip(conditions).map(monitor).collect();
        let overdue = vec![SampleSum::EMPTY; all.len()];
        ConditionMonitors { all, of, sums, endangered, overdue }
    }

    /// A release adds the expected execution time of all its legs: the mean of recent jobs, or the worst case.
    #[inline]
    pub fn expect(&mut self, now: Instant, job: &mut Job) {
        let ConditionMonitors { all, sums, .. } = self;
        let sums = &sums[job.local as usize];
        job.expected = sums.mean.unwrap_or(job.wcet);
        let critical = if job.critical { job.critical_legs.clamp(1, job.legs.max(1)) } else { 0 };
        for SumPart { condition, only_critical, .. } in sums.parts.iter().filter(|part| part.of == SumOf::Demand) {
            let value = job.expected.as_secs_f64() * f64::from(if *only_critical { critical } else { job.legs });
            all[*condition as usize].window.add(WindowSample { at: now, value, weight: 1.0 });
        }
    }

    /// A job has ended: what it used replaces what was expected.
    fn sum_up(&mut self, now: Instant, job: &Job, outcome: JobOutcome, consumed: Span) {
        let ConditionMonitors { all, sums, .. } = self;
        let sums = &mut sums[job.local as usize];
        if sums.parts.is_empty() {
            return;
        }
        let finished = matches!(outcome, JobOutcome::Made | JobOutcome::Missed);
        if finished {
            sums.learn(consumed);
        }
        let used = consumed.as_secs_f64();
        for part in sums.parts.iter().filter(|part| job.critical || !part.only_critical) {
            let value = match part.of {
                SumOf::Usage => used,
                _ if !finished => continue,
                SumOf::Demand => used - job.expected.as_secs_f64(),
                SumOf::Wasted if outcome == JobOutcome::Missed => used,
                SumOf::Completions if job.id.leg + 1 >= job.legs => 1.0,
                SumOf::Wasted | SumOf::Completions => continue,
            };
            all[part.condition as usize].window.add(WindowSample { at: now, value, weight: 1.0 });
        }
    }

    /// A job has ended, or was dropped.
    #[inline]
    pub fn count(&mut self, now: Instant, job: &Job, outcome: JobOutcome, consumed: Span) {
        self.sum_up(now, job, outcome, consumed);
        for WatchedJobs { condition, ends } in &self.of[job.local as usize] {
            let monitor = &mut self.all[*condition as usize];
            if let Some(value) = monitor.measure.value(now, job, Some(outcome), *ends) {
                monitor.window.add(WindowSample { at: now, value, weight: 1.0 });
            }
        }
    }

    /// The conditions with this measure have a new value.
    pub fn add(&mut self, now: Instant, measure: ConditionMeasure, value: f64) {
        for monitor in self.all.iter_mut().filter(|one| one.measure == measure) {
            monitor.window.add(WindowSample { at: now, value, weight: 1.0 });
        }
    }

    /// A value has arrived from the processor that measures the condition; `None` if it is stale there.
    pub fn receive(&mut self, now: Instant, place: usize, value: Option<f64>) {
        let window = &mut self.all[place].window;
        match value {
            Some(value) => _ = window.add(WindowSample { at: now, value, weight: 1.0 }),
            None => window.clear(),
        }
    }

    /// A release or a completion: whether a critical job is endangered.
    #[inline]
    pub fn count_endangered(&mut self, now: Instant, endangered: bool) {
        for condition in &self.endangered {
            let sample = WindowSample { at: now, value: f64::from(endangered), weight: 1.0 };
            self.all[*condition as usize].window.add(sample);
        }
    }

    /// Samples the queues and the strategy, before [`reading`](Self::reading).
    pub fn sample(&mut self, now: Instant, operations: &[OperationState], second: bool) {
        for monitor in &mut self.all {
            let value = match monitor.measure {
                ConditionMeasure::Queue => {
                    f64::from(monitor.waiting.iter().map(|local| operations[*local as usize].waiting).sum::<u32>())
                }
                ConditionMeasure::Strategy => f64::from(second),
                _ => continue,
            };
            monitor.window.add(WindowSample { at: now, value, weight: 1.0 });
        }
    }

    /// Finds the overdue jobs, before [`reading`](Self::reading).
    pub fn find_overdue(&mut self, now: Instant, jobs: &JobTable) {
        self.overdue.fill(SampleSum::EMPTY);
        for (_, job) in jobs.iter() {
            for WatchedJobs { condition, ends } in &self.of[job.local as usize] {
                let place = *condition as usize;
                if let Some(value) = self.all[place].measure.value(now, job, None, *ends) {
                    self.overdue[place] = self.overdue[place].and(value);
                }
            }
        }
    }

    /// The present value of a condition.
    pub fn reading(&mut self, now: Instant, place: usize) -> ConditionReading {
        let monitor = &mut self.all[place];
        match monitor.measure {
            ConditionMeasure::Sum => monitor.window.per_second(now),
            _ => monitor.window.reading_with(now, self.overdue[place]),
        }
    }

    /// Forgets all samples of jobs; values from outside stay.
    pub fn clear(&mut self) {
        let measured = self.all.iter_mut().filter(|one| !matches!(one.measure, ConditionMeasure::Set(_)));
        measured.for_each(|one| one.window.clear());
    }
}
