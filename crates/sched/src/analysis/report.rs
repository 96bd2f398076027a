//! The result of an analysis, as data: the command line prints it as tables and as JSON.
//!
//! Lengths of time are whole nanoseconds in fields that end in `_ns`.

use alloc::{string::String, vec::Vec};

use hyoshi_model::system::ChainCarrier;
use hyoshi_model::{ChainId, OperationId, ProcessorId};
use serde::Serialize;

use super::method::{AnalysisMethod, Assumption, MethodNote};
use super::utilisation::{Inapplicable, Load, UtilisationBound};
use super::verdict::{FailureReason, Verdict, serialise_verdict};

/// The result of `check` for a system.
///
/// The system *holds* iff every critical operation and every chain is proved in every epoch and across every change of
/// epoch; it *does not hold* if one of them fails; it is *unknown* otherwise. Non-critical operations are reported but
/// do not affect this, unless nothing is critical and there is no chain: then every operation counts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The system's name.
    pub system: String,
    /// The verdict on the system.
    pub outcome: Outcome,
    /// Whether critical operations and chains decide the outcome, or all operations.
    pub counted: OutcomeScope,
    /// In order of time; each change of epoch follows the epoch that it leaves.
    pub scenes: Vec<SceneReport>,
    /// Every analysis that the report names, with its source.
    pub methods: Vec<MethodNote>,
}

/// The answer to "does it hold?".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Everything that counts is proved.
    Holds,
    /// Something that counts fails.
    DoesNotHold,
    /// Nothing that counts fails, but not all of it is proved.
    Unknown,
}

/// The basis of the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutcomeScope {
    /// Critical operations and chains.
    CriticalAndChains,
    /// All operations: none is critical and there is no chain.
    Everything,
}

/// One epoch, or one change from an epoch to the next.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SceneReport {
    /// Index of the epoch.
    pub epoch: usize,
    /// Its name.
    pub name: String,
    /// True for the change from this epoch to the next: jobs of both are pending.
    pub change: bool,
    /// When it begins.
    pub at_ns: u64,
    /// In the system's order.
    pub processors: Vec<ProcessorReport>,
    /// One per requirement, in the order of chains.
    pub chains: Vec<ChainReport>,
}

/// One processor in one scene.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessorReport {
    /// The processor.
    #[serde(skip)]
    pub processor: ProcessorId,
    /// Its name.
    pub name: String,
    /// Its strategy.
    pub strategy: String,
    /// The strategy that applies in overload, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overload: Option<String>,
    /// Worst cases over periods, in parts per million, rounded; `load` decides.
    pub utilisation_ppm: u64,
    /// The same of critical jobs alone.
    pub critical_utilisation_ppm: u64,
    /// How the utilisation compares with the whole CPU, exactly.
    pub load: Load,
    /// Liu and Layland's bound.
    pub liu_layland: UtilisationBound,
    /// The utilisation up to which no job is late at all rates and execution times, in parts per million of the CPU.
    #[serde(skip)]
    pub miss_free_ppm: Result<u64, Inapplicable>,
    /// Bini, Buttazzo and Buttazzo's bound.
    pub hyperbolic: UtilisationBound,
    /// Of all its operations together.
    #[serde(flatten, serialize_with = "serialise_verdict")]
    pub verdict: Verdict,
    /// The most urgent operation that fails, or if none does, the most urgent one that is not proved.
    pub first: Option<String>,
    /// The assumptions of the verdicts.
    pub assumptions: Vec<Assumption>,
    /// Its operations, in the system's order; load chains with critical first legs have two entries.
    pub operations: Vec<OperationReport>,
}

/// One operation, or the critical or other legs of it, in one scene.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperationReport {
    /// The operation.
    #[serde(skip)]
    pub operation: OperationId,
    /// Its name.
    pub name: String,
    /// True if these jobs are critical.
    pub critical: bool,
    /// The jobs per release of this entry.
    pub legs: u64,
    /// Its level in the plan, 0 being the most urgent.
    pub level: u8,
    /// Declared worst case of one job.
    pub wcet_ns: u64,
    /// Period.
    pub period_ns: u64,
    /// Relative deadline.
    pub deadline_ns: u64,
    /// The start of the deadline and of the bound.
    pub counted_from: CountedFrom,
    /// Bound on the response, from the start of the deadline.
    pub bound_ns: Option<u64>,
    /// Deadline less bound.
    pub slack_ns: Option<i64>,
    /// The verdict.
    #[serde(flatten, serialize_with = "serialise_verdict")]
    pub verdict: Verdict,
    /// The analysis that determined it.
    pub method: AnalysisMethod,
    /// On a processor with two strategies, in an epoch: the result if every processor stays with its first strategy,
    /// and with its last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alone: Vec<AloneReport>,
}

/// The start of a deadline and of its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CountedFrom {
    /// The job's own nominal release.
    Release,
    /// The nominal release of the root that led to it; for a join of several the earliest.
    Root,
}

/// An operation under one of two strategies, without switches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AloneReport {
    /// The strategy.
    pub strategy: String,
    /// Bound on the response, from the start of the deadline.
    pub bound_ns: Option<u64>,
    /// Deadline less bound.
    pub slack_ns: Option<i64>,
    /// The verdict.
    #[serde(flatten, serialize_with = "serialise_verdict")]
    pub verdict: Verdict,
    /// The analysis that determined it.
    pub method: AnalysisMethod,
}

/// One requirement of one chain, in one scene.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChainReport {
    /// The chain.
    #[serde(skip)]
    pub chain: ChainId,
    /// Its name.
    pub name: String,
    /// What moves along it. The bounds do not depend on it: both carriers release jobs by the same rules.
    pub carried_by: CarrierReport,
    /// The requirement.
    pub requirement: Requirement,
    /// The limit in the file.
    pub limit_ns: u64,
    /// Proved upper bound.
    pub bound_ns: Option<u64>,
    /// Limit less bound.
    pub slack_ns: Option<i64>,
    /// The verdict.
    #[serde(flatten, serialize_with = "serialise_verdict")]
    pub verdict: Verdict,
    /// The analysis that determined it.
    pub method: AnalysisMethod,
    /// The time up to each operation of the path, if there is a bound.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<ChainStage>,
}

/// An operation on a chain's path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChainStage {
    /// Its name.
    pub operation: String,
    /// The latest instant at which the value leaves it, counted from the input (for a reaction, from the input before).
    pub by_ns: u64,
}

/// What moves along a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CarrierReport {
    /// Events.
    Event,
    /// Distributable threads.
    Thread,
}

impl From<ChainCarrier> for CarrierReport {
    fn from(carrier: ChainCarrier) -> Self {
        match carrier {
            ChainCarrier::Event => CarrierReport::Event,
            ChainCarrier::Thread => CarrierReport::Thread,
        }
    }
}

/// A requirement of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Requirement {
    /// From the release of the first to the finish of the last.
    Deadline,
    /// Age of the data at the finish of the last.
    MaxAge,
    /// From an input to the first finish that uses it.
    MaxReaction,
}

/// Limit less bound, clamped to the type's range.
pub(super) fn slack(limit_ns: u64, bound_ns: u64) -> i64 {
    let slack = i128::from(limit_ns) - i128::from(bound_ns);
    slack.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

impl ProcessorReport {
    /// True if a relevant operation is late when the processor as a whole fails: any operation, or a critical one.
    pub fn counts(&self, counted: OutcomeScope) -> bool {
        let critical = matches!(self.verdict, Verdict::Fails { why: FailureReason::Overload { critical: true, .. } });
        critical || counted == OutcomeScope::Everything || self.operations.iter().all(|one| one.critical)
    }
}

/// Why analysis proves no set point for the utilisation of a processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSetPoint {
    /// The epoch without a bound.
    pub epoch: String,
    /// Why no bound applies there.
    pub why: Inapplicable,
}

impl NoSetPoint {
    /// The least of the bounds of all epochs in which something runs.
    pub(super) fn least<'a>(
        bounds: impl Iterator<Item = (&'a str, Result<u64, Inapplicable>)>,
    ) -> Result<u64, NoSetPoint> {
        let mut least = Err(NoSetPoint { epoch: String::new(), why: Inapplicable::Idle });
        for (epoch, bound) in bounds {
            match bound {
                Ok(bound) => least = Ok(least.map_or(bound, |least: u64| least.min(bound))),
                Err(Inapplicable::Idle) => {}
                Err(why) => return Err(NoSetPoint { epoch: epoch.into(), why }),
            }
        }
        least
    }
}

impl Report {
    /// The utilisation of a processor up to which no job is late in any epoch, in parts per million of the CPU.
    pub fn miss_free_ppm(&self, processor: ProcessorId) -> Result<u64, NoSetPoint> {
        let epochs = self.scenes.iter().filter(|scene| !scene.change);
        NoSetPoint::least(epochs.flat_map(|scene| {
            let here = scene.processors.iter().filter(|one| one.processor == processor);
            here.map(|one| (scene.name.as_str(), one.miss_free_ppm))
        }))
    }

    /// Every operation's report, with its scene and processor.
    pub fn operations(&self) -> impl Iterator<Item = (&SceneReport, &ProcessorReport, &OperationReport)> {
        let processors = self.scenes.iter().flat_map(|scene| scene.processors.iter().map(move |one| (scene, one)));
        processors.flat_map(|(scene, one)| one.operations.iter().map(move |operation| (scene, one, operation)))
    }
}
