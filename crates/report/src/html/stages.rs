//! The end-to-end time of chains by stage: the slowest output as a bar from stage to stage, and the figures.

use maud::{Markup, html};

use super::legend;
use super::table::{bound, time};
use crate::figures::nanos;
use crate::stages::StageSummary;
use crate::summary::{ChainSummary, Summary};
use crate::terminal::END;

/// The maximum number of chains on the page.
const MOST: usize = 24;

/// The colours of the parts, in the order of time.
const PARTS: [(&str, &str, &str); 5] = [
    ("network", "network", "network"),
    ("release", "released-late", "release: jitter, offset, late timer, next sample"),
    ("guard", "held-back", "release guard"),
    ("queue", "waited", "queue: waited, preempted or blocked"),
    ("execution", "executed", "execution"),
];

/// The section, or nothing if no chain has several measured stages.
pub(super) fn stages(summary: &Summary) -> Markup {
    let chains: Vec<&ChainSummary> = summary.chains.iter().filter(|chain| !chain.stages.is_empty()).collect();
    if chains.is_empty() {
        return html! {};
    }
    let shown = |part: &str| {
        let mut stages = chains.iter().take(MOST).flat_map(|chain| &chain.stages);
        stages.any(|stage| stage.parts.iter().any(|one| one.part == part))
    };
    let parts = PARTS.iter().filter(|(part, ..)| shown(part)).map(|(_, colour, words)| (*colour, *words));
    html! {
        section {
            h2 { "Chains by stage" }
            p {
                "The parts of the end-to-end time of each chain. The bar shows the slowest output, from its input to "
                "its end. The line shows the proved bound of each stage. Times of stages count from the input."
            }
            (legend(&parts.chain([("proved", "proved bound")]).collect::<Vec<_>>()))
            @for chain in chains.iter().take(MOST) { (one(chain)) }
            @if chains.len() > MOST { p { (chains.len() - MOST) " more chains are in the JSON report." } }
        }
    }
}

fn one(chain: &ChainSummary) -> Markup {
    let ends = chain.stages.iter().flat_map(|stage| [Some(slowest(stage)), stage.by_bound.bound_ns]);
    let sum: u64 = chain.stages.iter().map(slowest).sum();
    let all = ends.flatten().max().unwrap_or(0).max(sum).max(1);
    let mut begun = 0;
    let rows: Vec<(u64, &StageSummary)> = chain
        .stages
        .iter()
        .map(|stage| {
            let from = begun;
            begun += slowest(stage);
            (from, stage)
        })
        .collect();
    html! {
        h3 class="later" { (chain.name) }
        div class="wide" tabindex="0" {
            table class="stages" {
                thead { tr {
                    th { "stage" } th { "processor" } th class="bar" { "the slowest output: " (nanos(sum)) }
                    th class="n" { (END) ": median" } th class="n" { "p99" } th class="n" { "max" } th class="n" { "bound" }
                } }
                tbody {
                    @for (from, stage) in &rows {
                        tr {
                            td { (stage.operation) }
                            td { (stage.processor) }
                            td { (bar(*from, stage, all)) }
                            (time(Some(stage.by.p50_ns)))
                            (time(Some(stage.by.p99_ns)))
                            (time(Some(stage.by.max_ns)))
                            (bound(&stage.by_bound))
                        }
                    }
                }
            }
        }
        details {
            summary { "The parts of each stage" }
            div class="wide" tabindex="0" {
                table {
                    thead { tr {
                        th { "stage" } th { "part" } th class="n" { "mean" } th class="n" { "median" } th class="n" { "p99" } th class="n" { "max" }
                        th class="n" { "in the slowest" }
                    } }
                    tbody {
                        @for stage in &chain.stages {
                            @for (index, part) in stage.parts.iter().enumerate() {
                                tr {
                                    td { @if index == 0 { (stage.operation) } }
                                    td { (part.part) }
                                    (time(Some(part.time.mean_ns)))
                                    (time(Some(part.time.p50_ns)))
                                    (time(Some(part.time.p99_ns)))
                                    (time(Some(part.time.max_ns)))
                                    td class="n" { (nanos(part.slowest_ns)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The time of a stage in the slowest output.
fn slowest(stage: &StageSummary) -> u64 {
    stage.parts.iter().map(|part| part.slowest_ns).sum()
}

/// The parts of a stage in the slowest output, after those of the stages before, and the bound.
fn bar(from: u64, stage: &StageSummary, all: u64) -> Markup {
    let percent = |nanos: u64| nanos as f64 * 100.0 / all as f64;
    let parts = stage.parts.iter().filter(|part| part.slowest_ns > 0);
    let colour = |name: &str| PARTS.iter().find(|(part, ..)| *part == name).map_or("", |(_, colour, _)| colour);
    html! {
        div class="split staged" {
            i style=(format!("width:{:.2}%", percent(from))) {}
            @for part in parts {
                i class={ "c-" (colour(part.part)) } style=(format!("width:{:.2}%", percent(part.slowest_ns)))
                    title=(format!("{}: {}", part.part, nanos(part.slowest_ns))) {}
            }
            @if let Some(bound) = stage.by_bound.bound_ns {
                b style=(format!("left:{:.2}%", percent(bound))) title=(format!("proved: by {}", nanos(bound))) {}
            }
        }
    }
}
