//! The end-to-end time of a chain by stage: the parts of each operation of its path, and the time from the input.

use hyoshi_model::{Chain, Span, System};
use hyoshi_trace::stats::{ChainStats, StagePart, StageStats};
use serde::Serialize;

use crate::bounds::{KnownBound, chain_bound};
use crate::figures::counted;
use crate::input::{NoteLevel, ReportNote};
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

/// A note on the chains whose stages do not fit into the memory for stages.
pub(crate) fn omitted(system: &System, seen: &[ChainStats]) -> Option<ReportNote> {
    let mut chains = system.chains.iter().zip(seen).filter(|(_, seen)| seen.stages_omitted).map(|(chain, _)| chain);
    let first = &chains.next()?.name;
    let count = counted(1 + chains.count() as u64, "chain is", "chains are");
    Some(ReportNote {
        level: NoteLevel::Info,
        topic: "chains".into(),
        text: format!("too many stages: {count} not divided into stages (first: {first})"),
        remedy: Some("shorten or leave out other chains".into()),
    })
}

fn part(stats: &StageStats, part: StagePart) -> Option<StagePartSummary> {
    let time = stats.part(part).filter(|time| time.extent().most().is_some_and(|most| most > Span::ZERO))?;
    let slowest_ns = stats.slowest(part).as_nanos();
    Some(StagePartSummary { part: part.name(), time: TimesSummary::of(time)?, slowest_ns })
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;
    use hyoshi_trace::Stats;

    #[test]
    fn a_note_names_the_chains_whose_stages_do_not_fit() {
        let mut text =
            "name = \"long\"\nduration = \"1s\"\n[operation.o0]\nevery = \"10ms\"\nwcet = \"1us\"\n".to_owned();
        for step in 1..50 {
            let before = step - 1;
            writeln!(text, "[operation.o{step}]\nafter = {{ all = [\"o{before}\"] }}\nwcet = \"1us\"").unwrap();
        }
        let path: Vec<String> = (0..50).map(|step| format!("o{step}")).collect();
        for chain in 100..=203 {
            writeln!(text, "[chain.c{chain}]\npath = {path:?}\ndeadline = \"1s\"").unwrap();
        }
        let read = |text: &str| hyoshi_model::read(text, "long.toml", None).unwrap_or_else(|errors| panic!("{errors}"));
        let of = |system: &System| omitted(system, Stats::new(system).chains());
        let note = of(&read(&text).system).unwrap();
        assert_eq!(note.text, "too many stages: 4 chains are not divided into stages (first: c200)");
        let fewer = &text[..text.find("[chain.c200]").unwrap()];
        assert_eq!(of(&read(fewer).system), None);
    }
}
