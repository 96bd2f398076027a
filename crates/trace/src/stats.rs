//! Statistics of jobs, in constant memory.
//!
//! [`Stats::record`] counts each job's end exactly, by operation, class and epoch. It records the distributions of
//! response time and lateness by operation and class. Summaries of a class, region or processor are computed on
//! request.

use hyoshi_model::{Deadline, Instant, JobId, Lateness, OperationId, ProcessorId, Span, System};

use crate::event::{DiscardReason, DispatchDecision, Input, JobEnd, JobOutcome, Probe, Signal, TraceEvent};

pub mod chain;
mod copies;
pub mod counts;
pub mod distribution;
pub mod miss;
pub mod over_time;
pub mod queueing;
mod region_use;
pub mod stages;

pub use chain::ChainStats;
pub use counts::Counts;
pub use distribution::{Distribution, Extent};
pub use miss::{Phase, Phases};
pub use over_time::OverTime;
pub use queueing::Queueing;
pub use stages::{StagePart, StageStats};

use chain::Chains;
use miss::Worst;
use region_use::RegionUse;

/// Statistics of the job ends of one run or simulation.
///
/// ```
/// # use hyoshi_trace::stats::*;
/// # use hyoshi_model::System;
/// fn critical_misses(stats: &Stats) -> u64 {
///     stats.counts(None, |row| row.critical()).missed()
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Stats {
    rows: Vec<Row>,
    operations: Vec<OperationRows>,
    epochs: usize,
    /// By epoch, then by row.
    cells: Vec<Cell>,
    /// Legs by epoch, then by operation.
    legs: Vec<u16>,
    /// For non-critical and for critical jobs.
    first_not_made: [Option<JobEnd>; 2],
    over_time: OverTime,
    used: RegionUse,
    chains: Chains,
    /// Completions that released no job, by the operation that they trigger.
    discards: Vec<[u64; DiscardReason::ALL.len()]>,
}

/// The data of an operation for the record of a job's end. It is small, so that all operations stay in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OperationRows {
    /// The rows of its non-critical and its critical jobs; equal if it has one class only.
    rows: [u32; 2],
    processor: ProcessorId,
    /// Deadline and response count from the root's release.
    end_to_end: bool,
    in_chain: bool,
}

/// The jobs of one row that were released in one epoch.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    counts: Counts,
    /// The longest response.
    longest: Span,
    service: Service,
}

/// Times from start to end of jobs with a body that returned: execution and interruptions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub total: Span,
    /// The longest.
    pub longest: Span,
}

impl Service {
    #[inline]
    fn record(&mut self, end: &JobEnd) {
        let span = end.end.since(end.start);
        self.count += 1;
        self.total = counts::plus(self.total, span);
        self.longest = self.longest.max(span);
    }

    fn merge(&mut self, other: &Service) {
        self.count += other.count;
        self.total = counts::plus(self.total, other.total);
        self.longest = self.longest.max(other.longest);
    }
}

/// The jobs of one operation and class. Only load chains with some critical legs have two rows.
#[derive(Clone, Debug)]
pub struct Row {
    operation: OperationId,
    processor: ProcessorId,
    critical: bool,
    response: Distribution<Span>,
    lateness: Distribution<Lateness>,
    release_latency: Extent<Span>,
    start_latency: Extent<Span>,
    execution: Extent<Span>,
    worst: Worst,
}

impl Row {
    /// The operation.
    pub fn operation(&self) -> OperationId {
        self.operation
    }

    /// Its processor.
    pub fn processor(&self) -> ProcessorId {
        self.processor
    }

    /// Its class: true if critical.
    pub fn critical(&self) -> bool {
        self.critical
    }

    /// Response times of finished jobs, and of jobs unfinished after their deadline at the end of the run. They count
    /// from where the deadline counts: the nominal release, or the root's if the deadline is end to end.
    pub fn response(&self) -> &Distribution<Span> {
        &self.response
    }

    /// End minus deadline of the same jobs.
    pub fn lateness(&self) -> &Distribution<Lateness> {
        &self.lateness
    }

    /// Time from the nominal release to the lane's queue of the same jobs: jitter, guards, late timers.
    pub fn release_latency(&self) -> &Extent<Span> {
        &self.release_latency
    }

    /// Time from the lane's queue to the start of the same jobs.
    pub fn start_latency(&self) -> &Extent<Span> {
        &self.start_latency
    }

    /// CPU time of the same jobs.
    pub fn execution(&self) -> &Extent<Span> {
        &self.execution
    }

    /// Its latest misses, worst first.
    pub fn worst(&self) -> impl Iterator<Item = &JobEnd> {
        self.worst.iter()
    }
}

impl Stats {
    /// Allocates all memory for the statistics of `system`.
    pub fn new(system: &System) -> Self {
        let (mut rows, mut operations) = (Vec::new(), Vec::new());
        let chains = Chains::new(system);
        let digits = if system.operations.len() > MANY { 1 } else { 2 };
        for id in system.operation_ids() {
            let classes = JobClasses::of(system, id);
            let first = rows.len() as u32;
            if classes.other {
                rows.push(Row::new(system, id, false, digits));
            }
            if classes.critical {
                rows.push(Row::new(system, id, true, digits));
            }
            operations.push(OperationRows {
                rows: [first, rows.len() as u32 - 1],
                processor: system.operation(id).on,
                end_to_end: matches!(system.setting(0, id).deadline, Deadline::Origin(_)),
                in_chain: chains.concerns(id),
            });
        }
        let epochs = system.epochs.len().max(1);
        let cells = vec![Cell::default(); rows.len() * epochs];
        let legs = system.epochs.iter().flat_map(|epoch| epoch.settings.iter().map(|setting| setting.legs)).collect();
        let (over_time, used) = (OverTime::new(system, over_time::MOST), RegionUse::new(system));
        let discards = vec![Default::default(); operations.len()];
        Stats { rows, operations, epochs, cells, legs, first_not_made: [None; 2], over_time, used, chains, discards }
    }

    /// Records a job's end. Chains with `reads` need the ends of all processors in the order of time.
    #[inline]
    pub fn record(&mut self, end: &JobEnd) {
        let Some(operation) = self.operations.get(end.job.operation.index()) else { return };
        let row = operation.rows[usize::from(end.critical)] as usize;
        let epoch = usize::from(end.epoch).min(self.epochs - 1);
        let cell = &mut self.cells[epoch * self.rows.len() + row];
        cell.counts.record(end);
        self.over_time.record(end);
        self.used.record(operation.processor, end);
        if end.outcome.finished() {
            let response = end.end.since(if operation.end_to_end { end.origin } else { end.release });
            cell.longest = cell.longest.max(response);
            // A job that the end of the run finds unfinished does not return.
            if !end.consumed.is_zero() {
                cell.service.record(end);
            }
            self.rows[row].record(end, response);
        } else {
            let legs = self.legs.get(epoch * self.operations.len() + end.job.operation.index()).copied().unwrap_or(1);
            cell.counts.shed += u64::from(legs.saturating_sub(end.job.leg).saturating_sub(1));
        }
        if operation.in_chain {
            self.chains.record(end);
        }
        if end.outcome != JobOutcome::Made {
            self.not_made(end);
        }
    }

    /// Records the arrival of a signal on its processor, for the stages of chains.
    #[inline]
    pub fn arrived(&mut self, signal: &Signal, at: Instant) {
        if self.operations.get(signal.to.index()).is_some_and(|operation| operation.in_chain) {
            self.chains.arrived(signal, at);
        }
    }

    /// Records that a release guard or an offset holds a job back from now on, for the stages of chains.
    #[inline]
    pub fn held(&mut self, job: JobId, at: Instant) {
        if self.operations.get(job.operation.index()).is_some_and(|operation| operation.in_chain) {
            self.chains.held(job, at);
        }
    }

    fn not_made(&mut self, end: &JobEnd) {
        let first = &mut self.first_not_made[usize::from(end.critical)];
        if first.is_none_or(|first| end.end < first.end) {
            *first = Some(*end);
        }
    }

    /// Records a completion that released no job of the operation that it triggers.
    pub fn discard(&mut self, to: OperationId, reason: DiscardReason) {
        if let Some(discards) = self.discards.get_mut(to.index()) {
            discards[reason as usize] += 1;
        }
    }

    /// The number of completions that released no job of an operation for this reason.
    pub fn discarded(&self, to: OperationId, reason: DiscardReason) -> u64 {
        self.discards[to.index()][reason as usize]
    }

    /// Records several ends. If many operations outgrow the cache, a short loop first fetches all that the records
    /// change, so that the cache misses overlap.
    pub fn record_all(&mut self, ends: &[JobEnd]) {
        if self.rows.len() > CACHED {
            core::hint::black_box(ends.iter().map(|end| self.prefetch(end)).fold(0, u64::wrapping_add));
        }
        ends.iter().for_each(|end| self.record(end));
    }

    #[inline]
    fn prefetch(&self, end: &JobEnd) -> u64 {
        let Some(operation) = self.operations.get(end.job.operation.index()) else { return 0 };
        let row = operation.rows[usize::from(end.critical)] as usize;
        let epoch = usize::from(end.epoch).min(self.epochs - 1);
        let longest = self.cells[epoch * self.rows.len() + row].longest;
        let from = if operation.end_to_end { end.origin } else { end.release };
        let row = &self.rows[row];
        let bins = row.response.prefetch(end.end.since(from)) + row.lateness.prefetch(end.end.lateness(end.deadline));
        bins.wrapping_add(longest.as_nanos()).wrapping_add(row.execution.count())
    }

    /// All rows: every operation, class by class.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The rows of one operation: one, or two if it has jobs of both classes.
    pub fn rows_of(&self, operation: OperationId) -> &[Row] {
        let [first, last] = self.operations[operation.index()].rows;
        &self.rows[first as usize..=last as usize]
    }

    /// Counts of the rows that `which` selects, for jobs released in one epoch, or in all.
    pub fn counts(&self, epoch: Option<usize>, which: impl Fn(&Row) -> bool) -> Counts {
        let mut sum = Counts::default();
        let epochs = epoch.map_or(0..self.epochs, |epoch| epoch..epoch + 1);
        epochs.flat_map(|epoch| self.cells(epoch, &which)).for_each(|cell| sum += &cell.counts);
        sum
    }

    /// Times from start to end of the jobs of the selected rows that were released in one epoch.
    pub fn service(&self, epoch: usize, which: impl Fn(&Row) -> bool) -> Service {
        let mut sum = Service::default();
        self.cells(epoch, which).for_each(|cell| sum.merge(&cell.service));
        sum
    }

    fn cells(&self, epoch: usize, which: impl Fn(&Row) -> bool) -> impl Iterator<Item = &Cell> {
        let cells = self.cells.chunks(self.rows.len().max(1)).nth(epoch).unwrap_or_default();
        self.rows.iter().zip(cells).filter(move |(row, _)| which(row)).map(|(_, cell)| cell)
    }

    /// Counts of one row, in all epochs.
    pub fn row_counts(&self, row: &Row) -> Counts {
        let mut sum = Counts::default();
        (0..self.epochs).filter_map(|epoch| self.cell(row, epoch)).for_each(|cell| sum += &cell.counts);
        sum
    }

    /// Counts of one row, of jobs released in one epoch; zero for an unknown epoch.
    pub fn region_counts(&self, row: &Row, epoch: usize) -> Counts {
        self.cell(row, epoch).map(|cell| cell.counts).unwrap_or_default()
    }

    /// The longest response of the jobs of one row released in one epoch; zero if none finished.
    pub fn longest(&self, row: &Row, epoch: usize) -> Span {
        self.cell(row, epoch).map(|cell| cell.longest).unwrap_or_default()
    }

    fn cell(&self, row: &Row, epoch: usize) -> Option<&Cell> {
        let index = self.operations[row.operation.index()].rows[usize::from(row.critical)] as usize;
        self.cells.get(epoch * self.rows.len() + index)
    }

    /// Response times of the rows that `which` selects.
    pub fn response(&self, which: impl Fn(&Row) -> bool) -> Distribution<Span> {
        self.distribution(which, Row::response)
    }

    /// Lateness of the rows that `which` selects.
    pub fn lateness(&self, which: impl Fn(&Row) -> bool) -> Distribution<Lateness> {
        self.distribution(which, Row::lateness)
    }

    fn distribution<T: distribution::Nanos>(
        &self,
        which: impl Fn(&Row) -> bool,
        of: impl Fn(&Row) -> &Distribution<T>,
    ) -> Distribution<T> {
        let picked = || self.rows.iter().filter(|row| which(row)).map(&of);
        let mut sum = Distribution::spanning(picked());
        picked().for_each(|part| sum.merge(part));
        sum
    }

    /// The latest misses of a class, worst first: at most `most`, and at most three of each operation.
    pub fn worst(&self, critical: bool, most: usize) -> Vec<JobEnd> {
        let mut worst: Vec<JobEnd> =
            self.rows.iter().filter(|row| row.critical == critical).flat_map(Row::worst).copied().collect();
        worst.sort_by_key(|end| (core::cmp::Reverse(miss::lateness(end)), end.end, end.job));
        worst.truncate(most);
        worst
    }

    /// Of the jobs of a class that did not meet their deadlines, the one that ended first.
    pub fn first_not_made(&self, critical: bool) -> Option<&JobEnd> {
        self.first_not_made[usize::from(critical)].as_ref()
    }

    /// Job ends over time.
    pub fn over_time(&self) -> &OverTime {
        &self.over_time
    }

    /// CPU time that the ended jobs of a processor used in a region, regardless of their release. The time of a job
    /// that spans several regions is divided in proportion to its time in each.
    pub fn used(&self, epoch: usize, processor: ProcessorId) -> Span {
        self.used.of(epoch, processor)
    }

    /// Call this if the jobs run on several nodes. Their flushes do not have the delays of the file, so chains through
    /// replicas are not measured.
    pub fn over_networks(&mut self) {
        self.chains.over_networks();
    }

    /// Statistics of each chain of the system.
    pub fn chains(&self) -> &[ChainStats] {
        self.chains.get()
    }
}

/// Records job ends, discarded completions, and the events between the stages of chains. It ignores all other events.
impl Probe for Stats {
    #[inline]
    fn event(&mut self, now: Instant, event: TraceEvent) {
        match event {
            TraceEvent::Decision(DispatchDecision::End(end)) => self.record(&end),
            TraceEvent::Decision(DispatchDecision::Discard { to, reason, .. }) => self.discard(to, reason),
            TraceEvent::Decision(DispatchDecision::Hold { job, .. }) => self.held(job, now),
            TraceEvent::Input(Input::Signal(signal) | Input::DropHop(signal)) => {
                self.arrived(&signal, signal.due.min(now));
            }
            _ => {}
        }
    }
}

impl Row {
    fn new(system: &System, id: OperationId, critical: bool, digits: u8) -> Row {
        let settings = || system.epochs.iter().map(|epoch| &epoch.settings[id.index()]);
        let deadline = settings().map(|setting| setting.deadline.span()).max().unwrap_or_default();
        let shortest =
            settings().map(|setting| setting.bcet.min(setting.execution_time.shortest())).min().unwrap_or_default();
        // Resolves two digits of the shortest job, but at least a thousandth of a percent of the deadline: a row then
        // needs about 10 kB.
        let finest = (shortest.as_nanos() / 128).max(deadline.as_nanos() / 100_000);
        let longest = Span::from_nanos(deadline.as_nanos().saturating_mul(BEYOND));
        // Lateness plus the longest deadline is never negative, for any reference of the deadline.
        let from_deadline = Span::from_nanos(deadline.as_nanos() / 1024);
        Row {
            operation: id,
            processor: system.operation(id).on,
            critical,
            response: Distribution::new(Span::from_nanos(finest), longest, Span::ZERO, digits),
            lateness: Distribution::new(from_deadline, longest, deadline, digits),
            release_latency: Extent::default(),
            start_latency: Extent::default(),
            execution: Extent::default(),
            worst: Worst::default(),
        }
    }

    /// Records a finished job.
    #[inline]
    fn record(&mut self, end: &JobEnd, response: Span) {
        self.response.record(response);
        self.lateness.record(end.end.lateness(end.deadline));
        if end.start != Instant::NEVER {
            self.release_latency.record(end.ready.since(end.release));
            self.start_latency.record(end.start.since(end.ready));
            self.execution.record(end.consumed);
        }
        if end.outcome == JobOutcome::Missed {
            self.worst.record(end);
        }
    }
}

/// With at most so many rows the statistics stay in the cache.
const CACHED: usize = 128;

/// Above so many operations, distributions have one digit: 3 kB each instead of 14 kB.
const MANY: usize = 1_000;

/// The range of responses and lateness, in deadlines. Beyond it only the greatest is exact.
const BEYOND: u64 = 64;

/// The classes of jobs that an operation can have.
struct JobClasses {
    critical: bool,
    other: bool,
}

impl JobClasses {
    fn of(system: &System, id: OperationId) -> JobClasses {
        let all = system.operation(id).critical;
        let mut settings = system.epochs.iter().map(|epoch| &epoch.settings[id.index()]);
        let some = settings.clone().any(|setting| setting.critical_legs > 0);
        let every = settings.all(|setting| setting.critical_legs >= setting.legs);
        JobClasses { critical: all || some, other: !all && !every }
    }
}
