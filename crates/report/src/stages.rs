//! The end-to-end time of a chain by stage: the parts of each operation of its path, and the time from the input.

use hyoshi_model::{Chain, Span, System};
use hyoshi_trace::stats::{ChainStats, StagePart, StageStats};
use serde::Serialize;

use crate::bounds::{KnownBound, chain_bound};
use crate::summary::{BoundSummary, TimesSummary};

/// A stage: an operation of the path, with the hop to it from the operation before.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageSummary {
    /// The operation.
    pub operation: String,
    /// Its processor.
    pub processor: String,
    /// Its parts in the order of time, without parts that are always zero.
    pub parts: Vec<StagePartSummary>,
    /// From the chain's input to the end of the stage.
    pub by: TimesSummary,
    /// The proved bound of this time.
    pub by_bound: BoundSummary,
}

/// A part of the time of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StagePartSummary {
    /// `network`, `release`, `guard`, `queue` or `execution`.
    pub part: &'static str,
    /// In all outputs.
    pub time: TimesSummary,
    /// In the slowest output.
    pub slowest_ns: u64,
}

/// The stages of a chain; none if they were not measured.
pub(crate) fn stages(system: &System, chain: &Chain, seen: &ChainStats, bounds: &[KnownBound]) -> Vec<StageSummary> {
    let stage = |((id, stats), bound): ((&hyoshi_model::OperationId, &StageStats), &KnownBound)| {
        let operation = system.operation(*id);
        Some(StageSummary {
            operation: operation.name.clone(),
            processor: system.processor(operation.on).name.clone(),
            parts: StagePart::ALL.into_iter().filter_map(|one| part(stats, one)).collect(),
            by: TimesSummary::of(&stats.by)?,
            by_bound: chain_bound(bound, stats.by.extent().most()),
        })
    };
    chain.path.iter().zip(&seen.stages).zip(bounds).filter_map(stage).collect()
}

fn part(stats: &StageStats, part: StagePart) -> Option<StagePartSummary> {
    let time = stats.part(part).filter(|time| time.extent().most().is_some_and(|most| most > Span::ZERO))?;
    let slowest_ns = stats.slowest(part).as_nanos();
    Some(StagePartSummary { part: part.name(), time: TimesSummary::of(time)?, slowest_ns })
}
