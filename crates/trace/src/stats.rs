//! What became of all jobs, in memory that does not grow with time.
//!
//! [`Stats::record`] takes each job's end: counts for each operation, class and epoch, exact; and
//! for each operation and class the distributions of response time and lateness. Every summary
//! (of a class, a region, a processor) is added up from those when somebody asks.

use core::cell::RefCell;

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
    /// For each operation, the row of its other jobs and of its critical ones; the same row if it has only one kind.
    row_of: Vec<[u32; 2]>,
    epochs: usize,
    /// For each epoch, for each row.
    counts: Vec<Counts>,
    /// The greatest response, likewise.
    longest: Vec<Span>,
    /// Legs of each operation, for each epoch.
    legs: Vec<u16>,
    over_time: OverTime,
    used: Used,
    chains: Chains,
    last: Instant,
}

/// The jobs of one operation and class. Only load chains with some critical legs have two rows.
#[derive(Clone, Debug)]
pub struct Row {
    operation: OperationId,
    processor: ProcessorId,
    critical: bool,
    /// The deadline counts from the root's release, and so does the response.
    end_to_end: bool,
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

/// Two statistics that are to be merged belong to systems of different operations or epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherSystem;

impl core::fmt::Display for OtherSystem {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("statistics of different systems cannot be added up; make both with Stats::new of one system")
    }
}

impl core::error::Error for OtherSystem {}

impl Stats {
    /// Room for everything that can be counted of `system`; nothing is allocated after this.
    pub fn new(system: &System) -> Self {
        let (mut rows, mut row_of) = (Vec::new(), Vec::new());
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
            row_of.push([first, rows.len() as u32 - 1]);
        }
        let epochs = system.epochs.len().max(1);
        let counts = vec![Counts::default(); rows.len() * epochs];
        let longest = vec![Span::ZERO; counts.len()];
        let legs = system.epochs.iter().flat_map(|epoch| epoch.settings.iter().map(|setting| setting.legs)).collect();
        let (over_time, used, chains) = (OverTime::new(system), Used::new(system), Chains::new(system));
        Stats { rows, row_of, epochs, counts, longest, legs, over_time, used, chains, last: Instant::ZERO }
    }

    /// A job is over. Chains through `reads` want the ends of all processors in the order of time.
    #[inline]
    pub fn record(&mut self, end: &JobEnd) {
        let Some(of) = self.row_of.get(end.job.operation.index()) else { return };
        let row = of[usize::from(end.critical)] as usize;
        let epoch = usize::from(end.epoch).min(self.epochs - 1);
        let cell = epoch * self.rows.len() + row;
        self.counts[cell].record(end);
        self.last = self.last.max(end.end);
        self.over_time.record(end);
        self.used.record(self.rows[row].processor, end);
        if end.outcome.finished() {
            let response = self.rows[row].record(end);
            self.longest[cell] = self.longest[cell].max(response);
        } else {
            let legs = self.legs.get(epoch * self.row_of.len() + end.job.operation.index()).copied().unwrap_or(1);
            self.counts[cell].shed += u64::from(legs.saturating_sub(end.job.leg).saturating_sub(1));
        }
        if self.chains.concerns(end.job.operation) {
            self.chains.record(end);
        }
    }

    /// Adds what `other` counted of the same system, on another processor or in another run.
    pub fn merge(&mut self, other: &Stats) -> Result<(), OtherSystem> {
        if self.row_of != other.row_of || self.epochs != other.epochs {
            return Err(OtherSystem);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
        self.longest.iter_mut().zip(&other.longest).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
        self.rows.iter_mut().zip(&other.rows).for_each(|(mine, theirs)| mine.merge(theirs));
        self.over_time.merge(&other.over_time);
        self.used.merge(&other.used);
        self.chains.merge(&other.chains);
        self.last = self.last.max(other.last);
        Ok(())
    }

    /// Every operation, class by class.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The rows of one operation: one, or two if it has jobs of both classes.
    pub fn rows_of(&self, operation: OperationId) -> &[Row] {
        let [first, last] = self.row_of[operation.index()];
        &self.rows[first as usize..=last as usize]
    }

    /// Job ends of the rows that `which` picks, in one epoch (the one of release) or in all.
    pub fn counts(&self, epoch: Option<usize>, which: impl Fn(&Row) -> bool) -> Counts {
        let mut sum = Counts::default();
        for counts in
            self.counts.chunks(self.rows.len().max(1)).skip(epoch.unwrap_or(0)).take(epoch.map_or(self.epochs, |_| 1))
        {
            self.rows.iter().zip(counts).filter(|(row, _)| which(row)).for_each(|(_, counts)| sum += counts);
        }
        sum
    }

    /// Job ends of one row, in all epochs.
    pub fn row_counts(&self, row: &Row) -> Counts {
        let index = self.row_of[row.operation.index()][usize::from(row.critical)] as usize;
        let mut sum = Counts::default();
        self.counts.iter().skip(index).step_by(self.rows.len()).for_each(|counts| sum += counts);
        sum
    }

    /// Job ends of one row, of jobs released in one epoch; nothing of an epoch that is not there.
    pub fn region_counts(&self, row: &Row, epoch: usize) -> Counts {
        self.cell(row, epoch).and_then(|cell| self.counts.get(cell)).cloned().unwrap_or_default()
    }

    /// The greatest response among the jobs of one row released in one epoch; zero if none finished.
    pub fn longest(&self, row: &Row, epoch: usize) -> Span {
        self.cell(row, epoch).and_then(|cell| self.longest.get(cell)).copied().unwrap_or_default()
    }

    fn cell(&self, row: &Row, epoch: usize) -> Option<usize> {
        let index = self.row_of[row.operation.index()][usize::from(row.critical)] as usize;
        (epoch < self.epochs).then_some(epoch * self.rows.len() + index)
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

    /// When the latest of the counted jobs ended.
    pub fn last_end(&self) -> Instant {
        self.last
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

/// For simulations, where the probes of several processors take turns.
impl Probe for &RefCell<Stats> {
    #[inline]
    fn event(&mut self, now: Instant, event: Event) {
        self.borrow_mut().event(now, event);
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
            end_to_end: matches!(system.setting(0, id).deadline, Deadline::Origin(_)),
            response: Distribution::new(Span::from_nanos(finest), longest, Span::ZERO, digits),
            lateness: Distribution::new(from_deadline, longest, deadline, digits),
            release_latency: Extent::default(),
            start_latency: Extent::default(),
            execution: Extent::default(),
            worst: Worst::default(),
        }
    }

    /// The response of a job that finished.
    #[inline]
    fn record(&mut self, end: &JobEnd) -> Span {
        let from = if self.end_to_end { end.origin } else { end.release };
        let response = end.end.since(from);
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
        response
    }

    fn merge(&mut self, other: &Row) {
        self.response.merge(&other.response);
        self.lateness.merge(&other.lateness);
        self.release_latency.merge(&other.release_latency);
        self.start_latency.merge(&other.start_latency);
        self.execution.merge(&other.execution);
        other.worst().for_each(|end| self.worst.record(end));
    }
}

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
