//! What became of all jobs, in memory that does not grow with time.
//!
//! [`Stats::record`] takes each job's end: counts for each operation, class and epoch, exact; and
//! for each operation and class the distributions of response time and lateness. Every summary
//! (of a class, a region, a processor) is added up from those when somebody asks.

use hyoshi_model::{Deadline, Instant, Lateness, OperationId, ProcessorId, Span, System};

use crate::event::{Decision, Event, JobEnd, Outcome, Probe};

pub mod chain;
pub mod counts;
pub mod distribution;
pub mod miss;
pub mod over_time;
pub mod queueing;
mod used;

pub use chain::ChainStats;
pub use counts::Counts;
pub use distribution::{Distribution, Extent};
pub use miss::{Phase, Phases};
pub use over_time::OverTime;
pub use queueing::Queueing;

use chain::Chains;
use miss::Worst;
use used::Used;

/// Job ends of one run or simulation, added up.
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
    operations: Vec<Operation>,
    epochs: usize,
    /// For each epoch, for each row.
    cells: Vec<Cell>,
    /// Legs of each operation, for each epoch.
    legs: Vec<u16>,
    /// Of other jobs and of critical ones.
    first_not_made: [Option<JobEnd>; 2],
    over_time: OverTime,
    used: Used,
    chains: Chains,
}

/// What a job's end looks up of its operation: small, so that all of them stay in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operation {
    /// The row of its other jobs and of its critical ones; the same row if it has only one kind.
    rows: [u32; 2],
    processor: ProcessorId,
    /// The deadline counts from the root's release, and so does the response.
    end_to_end: bool,
    in_chain: bool,
}

/// The jobs of one row that were released in one epoch.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    counts: Counts,
    /// The greatest response.
    longest: Span,
    service: Service,
}

/// From their start to their end, of jobs whose body returned: execution and whatever interrupted it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// How many.
    pub count: u64,
    /// All of them together.
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

    /// Where it runs.
    pub fn processor(&self) -> ProcessorId {
        self.processor
    }

    /// The class.
    pub fn critical(&self) -> bool {
        self.critical
    }

    /// From where the deadline counts from (the nominal release; the root's for a deadline that is
    /// end to end) to the end, of jobs that finished (or were unfinished after their deadline at the end).
    pub fn response(&self) -> &Distribution<Span> {
        &self.response
    }

    /// End minus deadline, of the same jobs.
    pub fn lateness(&self) -> &Distribution<Lateness> {
        &self.lateness
    }

    /// From the nominal release to the lane's queue, of the same jobs: jitter, guards, late timers.
    pub fn release_latency(&self) -> &Extent<Span> {
        &self.release_latency
    }

    /// From the lane's queue to the start, of the same jobs.
    pub fn start_latency(&self) -> &Extent<Span> {
        &self.start_latency
    }

    /// CPU time used, of the same jobs.
    pub fn execution(&self) -> &Extent<Span> {
        &self.execution
    }

    /// The latest of its missed jobs, worst first.
    pub fn worst(&self) -> impl Iterator<Item = &JobEnd> {
        self.worst.iter()
    }
}

impl Stats {
    /// Room for everything that can be counted of `system`; nothing is allocated after this.
    pub fn new(system: &System) -> Self {
        let (mut rows, mut operations) = (Vec::new(), Vec::new());
        let chains = Chains::new(system);
        let digits = if system.operations.len() > MANY { 1 } else { 2 };
        for id in system.operation_ids() {
            let classes = Classes::of(system, id);
            let first = rows.len() as u32;
            if classes.other {
                rows.push(Row::new(system, id, false, digits));
            }
            if classes.critical {
                rows.push(Row::new(system, id, true, digits));
            }
            operations.push(Operation {
                rows: [first, rows.len() as u32 - 1],
                processor: system.operation(id).on,
                end_to_end: matches!(system.setting(0, id).deadline, Deadline::Origin(_)),
                in_chain: chains.concerns(id),
            });
        }
        let epochs = system.epochs.len().max(1);
        let cells = vec![Cell::default(); rows.len() * epochs];
        let legs = system.epochs.iter().flat_map(|epoch| epoch.settings.iter().map(|setting| setting.legs)).collect();
        let (over_time, used) = (OverTime::new(system, over_time::MOST), Used::new(system));
        Stats { rows, operations, epochs, cells, legs, first_not_made: [None; 2], over_time, used, chains }
    }

    /// A job is over. Chains through `reads` want the ends of all processors in the order of time.
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
            // The end of a run is not a return.
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
        if end.outcome != Outcome::Made {
            self.not_made(end);
        }
    }

    fn not_made(&mut self, end: &JobEnd) {
        let first = &mut self.first_not_made[usize::from(end.critical)];
        if first.is_none_or(|first| end.end < first.end) {
            *first = Some(*end);
        }
    }

    /// Records several ends. Those of many operations outgrow the cache: one short loop over all of them fetches what
    /// they change, so that the CPU waits once for what it would wait for each time.
    pub fn record_all(&mut self, ends: &[JobEnd]) {
        if self.rows.len() > CACHED {
            core::hint::black_box(ends.iter().map(|end| self.fetch(end)).fold(0, u64::wrapping_add));
        }
        ends.iter().for_each(|end| self.record(end));
    }

    #[inline]
    fn fetch(&self, end: &JobEnd) -> u64 {
        let Some(operation) = self.operations.get(end.job.operation.index()) else { return 0 };
        let row = operation.rows[usize::from(end.critical)] as usize;
        let epoch = usize::from(end.epoch).min(self.epochs - 1);
        let longest = self.cells[epoch * self.rows.len() + row].longest;
        let from = if operation.end_to_end { end.origin } else { end.release };
        let row = &self.rows[row];
        let bins = row.response.fetch(end.end.since(from)) + row.lateness.fetch(end.end.lateness(end.deadline));
        bins.wrapping_add(longest.as_nanos()).wrapping_add(row.execution.count())
    }

    /// Every operation, class by class.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The rows of one operation: one, or two if it has jobs of both classes.
    pub fn rows_of(&self, operation: OperationId) -> &[Row] {
        let [first, last] = self.operations[operation.index()].rows;
        &self.rows[first as usize..=last as usize]
    }

    /// Job ends of the rows that `which` picks, in one epoch (the one of release) or in all.
    pub fn counts(&self, epoch: Option<usize>, which: impl Fn(&Row) -> bool) -> Counts {
        let mut sum = Counts::default();
        let epochs = epoch.map_or(0..self.epochs, |epoch| epoch..epoch + 1);
        epochs.flat_map(|epoch| self.cells(epoch, &which)).for_each(|cell| sum += &cell.counts);
        sum
    }

    /// How long jobs were from their start to their end: those of the rows that `which` picks, released in one epoch.
    pub fn service(&self, epoch: usize, which: impl Fn(&Row) -> bool) -> Service {
        let mut sum = Service::default();
        self.cells(epoch, which).for_each(|cell| sum.merge(&cell.service));
        sum
    }

    fn cells(&self, epoch: usize, which: impl Fn(&Row) -> bool) -> impl Iterator<Item = &Cell> {
        let cells = self.cells.chunks(self.rows.len().max(1)).nth(epoch).unwrap_or_default();
        self.rows.iter().zip(cells).filter(move |(row, _)| which(row)).map(|(_, cell)| cell)
    }

    /// Job ends of one row, in all epochs.
    pub fn row_counts(&self, row: &Row) -> Counts {
        let mut sum = Counts::default();
        (0..self.epochs).filter_map(|epoch| self.cell(row, epoch)).for_each(|cell| sum += &cell.counts);
        sum
    }

    /// Job ends of one row, of jobs released in one epoch; nothing of an epoch that is not there.
    pub fn region_counts(&self, row: &Row, epoch: usize) -> Counts {
        self.cell(row, epoch).map(|cell| cell.counts).unwrap_or_default()
    }

    /// The greatest response among the jobs of one row released in one epoch; zero if none finished.
    pub fn longest(&self, row: &Row, epoch: usize) -> Span {
        self.cell(row, epoch).map(|cell| cell.longest).unwrap_or_default()
    }

    fn cell(&self, row: &Row, epoch: usize) -> Option<&Cell> {
        let index = self.operations[row.operation.index()].rows[usize::from(row.critical)] as usize;
        self.cells.get(epoch * self.rows.len() + index)
    }

    /// Response times of the rows that `which` picks.
    pub fn response(&self, which: impl Fn(&Row) -> bool) -> Distribution<Span> {
        self.distribution(which, Row::response)
    }

    /// Lateness of the rows that `which` picks.
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

    /// The latest misses of a class, worst first: at most `most` and at most three of each operation.
    pub fn worst(&self, critical: bool, most: usize) -> Vec<JobEnd> {
        let mut worst: Vec<JobEnd> =
            self.rows.iter().filter(|row| row.critical == critical).flat_map(Row::worst).copied().collect();
        worst.sort_by_key(|end| (core::cmp::Reverse(miss::lateness(end)), end.end, end.job));
        worst.truncate(most);
        worst
    }

    /// Of the jobs of a class that did not make their deadlines, the one that ended first.
    pub fn first_not_made(&self, critical: bool) -> Option<&JobEnd> {
        self.first_not_made[usize::from(critical)].as_ref()
    }

    /// What became of jobs over time.
    pub fn over_time(&self) -> &OverTime {
        &self.over_time
    }

    /// CPU time that the ended jobs of a processor used in a region, whenever they were released. Of a job that
    /// lived through a change of region it is estimated: in proportion to the time before and after.
    pub fn used(&self, epoch: usize, processor: ProcessorId) -> Span {
        self.used.of(epoch, processor)
    }

    /// One per chain of the system.
    pub fn chains(&self) -> &[ChainStats] {
        self.chains.get()
    }
}

/// Counts job ends and ignores everything else.
impl Probe for Stats {
    #[inline]
    fn event(&mut self, _: Instant, event: Event) {
        if let Event::Decision(Decision::End(end)) = event {
            self.record(&end);
        }
    }
}

impl Row {
    fn new(system: &System, id: OperationId, critical: bool, digits: u8) -> Row {
        let settings = || system.epochs.iter().map(|epoch| &epoch.settings[id.index()]);
        let deadline = settings().map(|setting| setting.deadline.span()).max().unwrap_or_default();
        let shortest = settings().map(|setting| setting.bcet.min(setting.takes.shortest())).min().unwrap_or_default();
        // Two digits of the shortest job, but not finer than a thousandth of a percent of the deadline:
        // that keeps a row at some 10 kB.
        let finest = (shortest.as_nanos() / 128).max(deadline.as_nanos() / 100_000);
        let longest = Span::from_nanos(deadline.as_nanos().saturating_mul(BEYOND));
        // Lateness plus the longest deadline is never negative, whatever the deadline is counted from.
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

    /// A job has finished.
    #[inline]
    fn record(&mut self, end: &JobEnd, response: Span) {
        self.response.record(response);
        self.lateness.record(end.end.lateness(end.deadline));
        if end.start != Instant::NEVER {
            self.release_latency.record(end.ready.since(end.release));
            self.start_latency.record(end.start.since(end.ready));
            self.execution.record(end.consumed);
        }
        if end.outcome == Outcome::Missed {
            self.worst.record(end);
        }
    }
}

/// Statistics of so many operations and classes stay in the cache.
const CACHED: usize = 128;

/// Above so many operations their distributions are kept to one digit: 14 kB each become 3 kB.
const MANY: usize = 1_000;

/// Responses and lateness are told apart up to this many deadlines; beyond it only the greatest is exact.
const BEYOND: u64 = 64;

/// Which kinds of jobs an operation can have.
struct Classes {
    critical: bool,
    other: bool,
}

impl Classes {
    fn of(system: &System, id: OperationId) -> Classes {
        let all = system.operation(id).critical;
        let mut settings = system.epochs.iter().map(|epoch| &epoch.settings[id.index()]);
        let some = settings.clone().any(|setting| setting.critical_legs > 0);
        let every = settings.all(|setting| setting.critical_legs >= setting.legs);
        Classes { critical: all || some, other: !all && !every }
    }
}
