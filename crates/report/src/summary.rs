//! The figures of a report, as data: what JSON writes, and what tables and charts are made of.
//!
//! Lengths of time are whole nanoseconds in fields that end in `_ns`, instants are nanoseconds
//! since the start in fields that end in `at_ns`, shares are parts per million in fields that end
//! in `_ppm`. `docs/json.md` describes every field.

use core::ops::AddAssign;

use hyoshi_model::{OperationId, Span};
use hyoshi_trace::stats::distribution::Nanos;
use hyoshi_trace::stats::over_time::Ends;
use hyoshi_trace::stats::{Distribution, Extent, Stats};
use hyoshi_trace::{Counts, DiscardReason, JobOutcome};
use serde::Serialize;

use crate::contracts::ContractSummary;
use crate::feedback::FeedbackSummary;
use crate::figures::{count, percent};
use crate::input::{ReportNote, RunVerdict};
use crate::lateness::LatenessSummary;
use crate::programs::ProgramSummary;
use crate::stages::StageSummary;
use crate::time::TimeSummary;

/// The version of the schema. It grows by one when a field goes or changes its meaning; new fields leave it.
pub const SCHEMA: u32 = 3;

/// A whole report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// What wrote it.
    pub hyoshi: Head,
    /// What was simulated or run.
    pub system: SystemSummary,
    /// Whether it holds.
    #[serde(flatten)]
    pub verdict: RunVerdict,
    /// How long it ran; virtual time in a simulation.
    pub duration_ns: u64,
    /// How long it was to run.
    pub asked_ns: u64,
    /// Whether the user ended it before.
    pub interrupted: bool,
    /// Its duration by the wall clock; not in JSON, which is the same for the same simulation.
    #[serde(skip)]
    pub took_ns: u64,
    /// Events that were lost.
    pub lost_events: u64,
    /// The utilisation of all CPUs of the machine, by all programs; `None` if not measured.
    pub machine_utilisation_ppm: Option<u32>,
    /// What a reader must know to judge the figures.
    pub notes: Vec<ReportNote>,
    /// What is proved.
    pub analysis: AnalysisSummary,
    /// In the system's order.
    pub processors: Vec<ProcessorSummary>,
    /// The critical class and the other one; a class without operations is left out.
    pub classes: Vec<ClassSummary>,
    /// What became of jobs in the order of time, in stretches of equal length.
    pub over_time: Vec<StretchSummary>,
    /// Regions in the order of time, those that were not reached too.
    pub epochs: Vec<EpochSummary>,
    /// Operations with the instances of a template together.
    pub groups: Vec<OperationSummary>,
    /// Every operation; load chains with some critical legs twice, once a class.
    pub operations: Vec<OperationSummary>,
    /// In the system's order.
    pub chains: Vec<ChainSummary>,
    /// The worst misses, critical ones first, by lateness.
    pub misses: Vec<MissSummary>,
    /// Contracts, in the file's order; left out where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contracts: Vec<ContractSummary>,
    /// The broker of each host with programs, in words.
    #[serde(skip)]
    pub brokers: Vec<String>,
    /// Programs under the CPU broker, in the file's order; left out where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ProgramSummary>,
}

/// What wrote a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Head {
    /// The version of this schema.
    pub schema: u32,
    /// The version of Hyoshi.
    pub version: &'static str,
    /// `sim` or `run`.
    pub verb: String,
    /// The command line.
    pub command: String,
    /// When it started, in nanoseconds since 1970; left out of output that is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_unix_ns: Option<u64>,
}

/// What was simulated or run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SystemSummary {
    /// Its name.
    pub name: String,
    /// Its file.
    pub file: String,
    /// The seed of execution times and jitter.
    pub seed: u64,
    /// How many operations it has.
    pub operations: usize,
}

/// What an analysis says of the system that was simulated or run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AnalysisSummary {
    /// What `check` would say; `None` where nothing was analysed.
    pub outcome: Option<hyoshi_sched::Outcome>,
    /// Why nothing was analysed.
    pub left_out: Option<String>,
    /// Times beyond their proved bounds.
    pub exceeded: Vec<ExceededSummary>,
    /// Observed violations of the assumptions of the proofs, as text; only if a bound was exceeded.
    pub seen: Vec<String>,
}

/// A response or latency beyond its proved bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExceededSummary {
    /// The operation or chain.
    pub what: String,
    /// The region of an operation; `None` for a chain.
    pub epoch: Option<String>,
    /// The bound.
    pub bound_ns: u64,
    /// The greatest seen.
    pub seen_ns: u64,
}

/// A proved bound beside what was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BoundSummary {
    /// The greatest over the regions in which it is known; `None` if it is known in none.
    pub bound_ns: Option<u64>,
    /// Regions in which it ran and is bounded.
    pub known: usize,
    /// Regions in which it ran.
    pub of: usize,
    /// Why it is not bounded in the first of the others.
    pub missing: Option<String>,
    /// Whether something seen was beyond the bound of its region.
    pub exceeded: bool,
}

/// One processor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessorSummary {
    /// Its name.
    pub name: String,
    /// Its host's name.
    pub host: String,
    /// The Linux CPU in the file.
    pub cpu: Option<u32>,
    /// Its strategy.
    pub strategy: String,
    /// The strategy that rules in overload, and when it did; `None` if there is but one.
    pub overload: Option<OverloadSummary>,
    /// Its feedback loop, if it has one.
    pub feedback: Option<FeedbackSummary>,
    /// `none`, `levels` or `full`.
    pub preemption: &'static str,
    /// Whether late jobs are cancelled.
    pub cancel: bool,
    /// CPU time that ended jobs used, over the duration.
    pub utilisation_ppm: u64,
    /// That CPU time.
    pub consumed_ns: u64,
    /// Time to put a job into its lane's queue; `None` where that was not measured.
    pub enqueue: Option<TimesSummary>,
    /// Time to take one out, the decision included.
    pub dequeue: Option<TimesSummary>,
    /// The use of its time; `None` if it was not measured.
    pub time: Option<TimeSummary>,
    /// Levels of the plan, most urgent first; of two strategies the first one's.
    pub levels: Vec<LevelSummary>,
}

/// The second of a processor's strategies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OverloadSummary {
    /// Its name.
    pub strategy: String,
    /// How often the strategy changed, in either direction; `None` if it was not observed.
    pub switches: Option<u64>,
    /// How long this one was in force.
    pub ruled_ns: u64,
    /// The same, over the duration.
    pub ruled_ppm: u64,
    /// Stretches of equal length in which it was in force at all, in the order of time.
    pub over_time: Vec<StrategyUseSummary>,
    /// Its levels, most urgent first: those of the processor are the first strategy's.
    pub levels: Vec<LevelSummary>,
}

/// A stretch in which a processor's second strategy was in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StrategyUseSummary {
    /// When it begins.
    pub at_ns: u64,
    /// When it ends.
    pub until_ns: u64,
    /// How long in it.
    pub ruled_ns: u64,
}

impl ProcessorSummary {
    /// Its strategies, and what became of the second, in words.
    pub fn strategies(&self) -> String {
        let Some(overload) = &self.overload else { return self.strategy.clone() };
        let both = format!("{}, {} in overload", self.strategy, overload.strategy);
        match overload.switches {
            None => both,
            Some(0) => format!("{both}: never switched"),
            Some(switches) => {
                let times = if switches == 1 { "switch" } else { "switches" };
                format!("{both}: {} {times}, {} of the time", count(switches), percent(overload.ruled_ppm))
            }
        }
    }
}

/// One level of a processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LevelSummary {
    /// What is in it.
    pub label: String,
    /// How waiting jobs are ordered.
    pub discipline: String,
    /// Whether critical jobs can be in it.
    pub critical: bool,
    /// The operations that are in it in some region, instances of a template together.
    pub operations: Vec<String>,
}

/// Job ends, by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CountsSummary {
    /// All of them.
    pub released: u64,
    /// Finished in time.
    pub made: u64,
    /// Finished late, or unfinished after the deadline at the end.
    pub missed: u64,
    /// Cancelled at the first dispatch.
    pub cancelled: u64,
    /// Stopped beyond the declared worst case, or at the deadline.
    pub stopped: u64,
    /// Not admitted: the last job was unfinished.
    pub dropped_busy: u64,
    /// Not admitted, or pushed out: the queue was full.
    pub dropped_full: u64,
    /// Dropped at the first dispatch: the origin was older than the lifespan.
    pub expired: u64,
    /// Not admitted: an earlier job had missed its deadline.
    pub skipped: u64,
    /// Of those, used more CPU time than declared.
    pub overran: u64,
    /// Of those, moved below the lanes.
    pub demoted: u64,
    /// Of the missed, unfinished at the end.
    pub unfinished: u64,
    /// Legs of load chains that were never released, because a leg before them did not run to its end.
    pub shed_legs: u64,
    /// CPU time that they used.
    pub consumed_ns: u64,
}

impl CountsSummary {
    /// Jobs that were not admitted, pushed out of the queue, expired, or skipped.
    pub fn dropped(&self) -> u64 {
        self.dropped_busy + self.dropped_full + self.expired + self.skipped
    }
}

impl From<&Counts> for CountsSummary {
    fn from(counts: &Counts) -> Self {
        CountsSummary {
            released: counts.released(),
            made: counts.made(),
            missed: counts.missed(),
            cancelled: counts.cancelled(),
            stopped: counts.stopped(),
            dropped_busy: counts.of(JobOutcome::DroppedBusy),
            dropped_full: counts.of(JobOutcome::DroppedFull),
            expired: counts.of(JobOutcome::Expired),
            skipped: counts.of(JobOutcome::Skipped),
            overran: counts.overran,
            demoted: counts.demoted,
            unfinished: counts.unfinished,
            shed_legs: counts.shed,
            consumed_ns: counts.consumed.as_nanos(),
        }
    }
}

/// Completions that released no job of an operation that they trigger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DiscardsSummary {
    /// Completions older than its correlation window allows.
    pub too_old: u64,
    /// Completions while it was suspended.
    pub suspended: u64,
    /// They waited in a join until newer ones exceeded the limit of its queue.
    pub queue_full: u64,
    /// Later copies of a stage: another copy of the same release was first.
    pub later_copy: u64,
    /// Completions that moved a cancelled thread.
    pub cancelled: u64,
}

impl DiscardsSummary {
    /// The counts of an operation.
    pub fn of(stats: &Stats, operation: OperationId) -> DiscardsSummary {
        let count = |reason| stats.discarded(operation, reason);
        DiscardsSummary {
            too_old: count(DiscardReason::TooOld),
            suspended: count(DiscardReason::Suspended),
            queue_full: count(DiscardReason::QueueFull),
            later_copy: count(DiscardReason::LaterCopy),
            cancelled: count(DiscardReason::Cancelled),
        }
    }

    /// Whether all counts are zero.
    pub fn is_empty(&self) -> bool {
        *self == DiscardsSummary::default()
    }

    /// The counts in words.
    pub fn text(&self) -> String {
        let counts = [
            (self.too_old, "older than its window"),
            (self.suspended, "while it was suspended"),
            (self.queue_full, "beyond its queue's limit in a join"),
            (self.later_copy, "after another copy of the same release"),
            (self.cancelled, "of cancelled threads"),
        ];
        let counts = counts.into_iter().filter(|(many, _)| *many > 0);
        counts.map(|(many, why)| format!("{} {why}", count(many))).collect::<Vec<_>>().join(", ")
    }
}

impl AddAssign for DiscardsSummary {
    fn add_assign(&mut self, other: DiscardsSummary) {
        self.too_old += other.too_old;
        self.suspended += other.suspended;
        self.queue_full += other.queue_full;
        self.later_copy += other.later_copy;
        self.cancelled += other.cancelled;
    }
}

/// The distribution of a time; absent where there was none. Quantiles are to two digits (one for
/// single operations of systems of more than 1,000), the rest is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TimesSummary {
    /// How many.
    pub count: u64,
    /// The least.
    pub min_ns: i64,
    /// The mean.
    pub mean_ns: i64,
    /// Half are at most this.
    pub p50_ns: i64,
    /// 90 % are at most this.
    pub p90_ns: i64,
    /// 99 % are at most this.
    pub p99_ns: i64,
    /// 99.9 % are at most this.
    pub p999_ns: i64,
    /// The greatest.
    pub max_ns: i64,
}

impl TimesSummary {
    /// `None` without values.
    pub fn of<T: Nanos>(distribution: &Distribution<T>) -> Option<Self> {
        let at = |quantile| distribution.quantile(quantile).map(Nanos::nanos);
        let extent = distribution.extent();
        Some(TimesSummary {
            count: extent.count(),
            min_ns: extent.least()?.nanos(),
            mean_ns: extent.mean()?.nanos(),
            p50_ns: at(0.5)?,
            p90_ns: at(0.9)?,
            p99_ns: at(0.99)?,
            p999_ns: at(0.999)?,
            max_ns: extent.most()?.nanos(),
        })
    }
}

/// Extremes and mean of a time; absent where there was none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ExtentSummary {
    /// The least.
    pub min_ns: i64,
    /// The mean.
    pub mean_ns: i64,
    /// The greatest.
    pub max_ns: i64,
}

impl ExtentSummary {
    /// `None` without values.
    pub fn of(extent: &Extent<Span>) -> Option<Self> {
        let (min, mean, max) = (extent.least()?, extent.mean()?, extent.most()?);
        Some(ExtentSummary { min_ns: min.nanos(), mean_ns: mean.nanos(), max_ns: max.nanos() })
    }
}

/// A bar of a distribution: so many values above the bar before, up to this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bar {
    /// The upper end.
    pub up_to_ns: i64,
    /// How many.
    pub count: u64,
}

/// One class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassSummary {
    /// `critical` or `non-critical`.
    pub class: &'static str,
    /// True for the critical one.
    pub critical: bool,
    /// What became of its jobs.
    pub counts: CountsSummary,
    /// End minus nominal release.
    pub response: Option<TimesSummary>,
    /// End minus deadline: positive is late.
    pub lateness: Option<TimesSummary>,
    /// The distribution of response times, in bars that double in width four to an octave.
    pub response_bars: Vec<Bar>,
    /// The delays of the jobs that did not make their deadlines; `None` without late jobs or without analysis.
    pub late: Option<LatenessSummary>,
}

/// What became of the jobs that ended in a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StretchSummary {
    /// When it begins.
    pub at_ns: u64,
    /// When it ends.
    pub until_ns: u64,
    /// Critical jobs.
    pub critical: EndsSummary,
    /// The others.
    pub non_critical: EndsSummary,
}

/// Job ends in a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct EndsSummary {
    /// Finished in time.
    pub made: u64,
    /// Finished late.
    pub missed: u64,
    /// Cancelled at the first dispatch.
    pub cancelled: u64,
    /// Stopped, not admitted, or pushed out.
    pub lost: u64,
}

impl From<&Ends> for EndsSummary {
    fn from(ends: &Ends) -> Self {
        EndsSummary { made: ends.made, missed: ends.missed, cancelled: ends.cancelled, lost: ends.lost }
    }
}

/// One region.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EpochSummary {
    /// Its name.
    pub name: String,
    /// When it begins.
    pub at_ns: u64,
    /// When it ended: with the next one, or with the run. Not later than it began if it was not reached.
    pub until_ns: u64,
    /// Jobs released in it, critical.
    pub critical: CountsSummary,
    /// Jobs released in it, not critical.
    pub non_critical: CountsSummary,
    /// For each processor, in their order.
    pub processors: Vec<LoadSummary>,
}

/// A processor's load in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LoadSummary {
    /// Worst cases over periods, as the file declares them.
    pub declared_ppm: u64,
    /// CPU time that jobs used in the region, whenever they were released, over its length.
    pub used_ppm: u64,
}

/// One operation, or the instances of a template.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperationSummary {
    /// Its name; that of the template for instances together.
    pub name: String,
    /// How many operations these figures are of.
    pub instances: usize,
    /// Where it runs; several names are joined by commas.
    pub processor: String,
    /// Its class.
    pub critical: bool,
    /// Its period, the least over the regions in which it is switched on.
    pub period_ns: u64,
    /// The greatest.
    pub period_max_ns: u64,
    /// Its declared worst case, the greatest over the same regions.
    pub wcet_ns: u64,
    /// Its relative deadline, the least over the same regions.
    pub deadline_ns: u64,
    /// The greatest.
    pub deadline_max_ns: u64,
    /// What became of its jobs.
    pub counts: CountsSummary,
    /// Completions that released no job of it; left out if all counts are zero.
    #[serde(skip_serializing_if = "DiscardsSummary::is_empty")]
    pub discarded: DiscardsSummary,
    /// What is proved of its response.
    pub bound: BoundSummary,
    /// The same region by region; empty if there is but one.
    pub regions: Vec<RegionSummary>,
    /// End minus nominal release, of jobs that finished.
    pub response: Option<TimesSummary>,
    /// End minus deadline, of the same jobs: positive is late.
    pub lateness: Option<TimesSummary>,
    /// From the nominal release to the lane's queue.
    pub release_latency: Option<ExtentSummary>,
    /// From the lane's queue to the start.
    pub start_latency: Option<ExtentSummary>,
    /// CPU time of a job.
    pub execution: Option<ExtentSummary>,
    /// The distribution of the response in bars; of groups only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub response_bars: Vec<Bar>,
    /// The delays of the jobs that did not make their deadlines; `None` without late jobs or without analysis.
    pub late: Option<LatenessSummary>,
}

/// An operation in a region in which it is switched on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegionSummary {
    /// The region's name.
    pub epoch: String,
    /// Its period there.
    pub period_ns: u64,
    /// Its declared worst case there.
    pub wcet_ns: u64,
    /// Its relative deadline there.
    pub deadline_ns: u64,
    /// Jobs released there.
    pub released: u64,
    /// Of them, those in time.
    pub made: u64,
    /// The greatest response of those that finished.
    pub max_ns: Option<u64>,
    /// The proved bound on it.
    pub bound_ns: Option<u64>,
    /// Why there is none.
    pub missing: Option<String>,
}

/// One chain.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChainSummary {
    /// Its name.
    pub name: String,
    /// Its operations.
    pub path: Vec<String>,
    /// Why it was not measured, if it was not.
    pub unmeasured: Option<&'static str>,
    /// From the release of the first to the finish of the last.
    pub deadline_ns: Option<u64>,
    /// Of the data at the finish of the last.
    pub max_age_ns: Option<u64>,
    /// From an input to the first finish that reflects it.
    pub max_reaction_ns: Option<u64>,
    /// Outputs within the deadline; all of them if there is none.
    pub made: u64,
    /// Outputs after the deadline.
    pub missed: u64,
    /// Instances that did not reach their end.
    pub lost: u64,
    /// Outputs with data older than allowed.
    pub too_old: u64,
    /// Outputs that showed a change later than allowed.
    pub too_slow: u64,
    /// Outputs whose input is not known.
    pub unmatched: u64,
    /// End-to-end latency, which is the age of the data at the finish.
    pub latency: Option<TimesSummary>,
    /// What is proved of the latency.
    pub latency_bound: BoundSummary,
    /// From an input to the first finish that reflects it.
    pub reaction: Option<ExtentSummary>,
    /// What is proved of the reaction.
    pub reaction_bound: BoundSummary,
    /// The latency by stage; empty if the path has one operation only, or if the stages were not measured.
    pub stages: Vec<StageSummary>,
    /// Whether a requirement was violated.
    pub violated: bool,
}

/// One late job, and where its time went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MissSummary {
    /// The job: `nav#812`, with its leg behind a slash in a load chain.
    pub job: String,
    /// Its operation.
    pub operation: String,
    /// Its class.
    pub critical: bool,
    /// The region it was released in.
    pub epoch: String,
    /// Nominal release of the root job.
    pub origin_at_ns: u64,
    /// Nominal release.
    pub release_at_ns: u64,
    /// When it entered its lane's queue, if it did.
    pub ready_at_ns: Option<u64>,
    /// When it started, if it did.
    pub start_at_ns: Option<u64>,
    /// When it ended.
    pub end_at_ns: u64,
    /// Its absolute deadline.
    pub deadline_at_ns: u64,
    /// End minus deadline.
    pub lateness_ns: i64,
    /// How long it was in each phase of its life.
    pub causes: CausesSummary,
    /// The operation that delayed it for longest, if all events were analysed.
    pub behind: Option<String>,
    /// For how long.
    pub behind_ns: Option<u64>,
    /// The longest cause other than declared execution.
    pub chief: &'static str,
    /// The same as text.
    pub explanation: String,
}

/// The phases of a late job's life; their sum is its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CausesSummary {
    /// In the operations before it (deadlines counted from the origin only), or in the legs before it.
    pub upstream_ns: u64,
    /// From nominal release to the lane's queue.
    pub released_late_ns: u64,
    /// From there to the start, behind other jobs.
    pub waited_ns: u64,
    /// Executing, up to the declared worst case.
    pub executed_ns: u64,
    /// Executing beyond it.
    pub overran_ns: u64,
    /// Started, but preempted or blocked.
    pub held_ns: u64,
}
