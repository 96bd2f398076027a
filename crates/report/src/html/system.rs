//! The picture of the system: processors, the operations on each, and chains as arrows, with what happened to their
//! jobs.
//!
//! An operation's column is the length of the longest path to it. Arrows that skip columns pass between the rows.

use std::collections::{BTreeMap, BTreeSet};

use hyoshi_model::OperationId;
use maud::{Markup, html};

use super::parts::{Part, State, chosen, parts};
use crate::figures::{count, nanos, percent};
use crate::input::ReportInput;
use crate::summary::{ChainSummary, Summary};

/// Operations of the picture.
const MOST: usize = 60;

/// Sizes of a picture: a box, the gaps between boxes, and the boxes without arrows in a row.
struct Size {
    class: &'static str,
    wide: usize,
    gap: usize,
    in_row: usize,
}

const SIZES: [Size; 2] =
    [Size { class: "large", wide: 176, gap: 58, in_row: 6 }, Size { class: "small", wide: 148, gap: 22, in_row: 2 }];

const HIGH: usize = 42;
const BETWEEN: usize = 20;
const PAD: usize = 10;
const TITLE: usize = 26;
/// Between boxes without arrows.
const NEAR: usize = 10;
/// Between processors.
const APART: usize = 12;

/// An arrow between two parts, with the chains that use it.
struct Arrow {
    from: usize,
    to: usize,
    chains: Vec<usize>,
}

/// Where a part is: its column and row on its processor, from the upper left; `None` without arrows.
type Place = Option<(usize, usize)>;

/// The section.
pub(super) fn system(account: &ReportInput<'_>, summary: &Summary) -> Markup {
    let system = account.system;
    let chained: BTreeSet<OperationId> = system.chains.iter().flat_map(|chain| chain.path.iter().copied()).collect();
    let in_chain = |part: &Part| part.operations.iter().any(|id| chained.contains(id));
    let (parts, more) = chosen(parts(account), MOST, in_chain);
    let arrows = arrows(account, &parts);
    let places = places(&parts, &arrows);
    html! {
        section {
            h2 { "System" }
            p {
                "Each box is an operation, with the worst that happened to its jobs. "
                @if !system.chains.is_empty() { "A coloured arrow belongs to a chain. " }
                @if arrows.iter().any(|arrow| arrow.chains.is_empty()) { "A grey arrow triggers an operation. " }
                @if more > 0 { (count(more as u64)) " more operations are only in the JSON report." }
            }
            ul class="legend" {
                @for (state, words) in State::SHOWN { li { b class={ "sign " (state.class()) } { (state.sign()) } (words) } }
                li { i class="c-bold" {} "bold frame: critical" }
            }
            @for size in &SIZES {
                div class={ "wide " (size.class) } tabindex="0" { (picture(summary, &parts, &arrows, &places, size)) }
            }
        }
    }
}

fn state(chain: &ChainSummary) -> State {
    match () {
        () if chain.unmeasured.is_some() => State::Idle,
        () if chain.violated => State::Missed,
        () => State::of(chain.made + chain.missed, chain.lost, 0),
    }
}

fn words(chain: &ChainSummary) -> String {
    let mut words = format!("chain {}", chain.name);
    if let Some(why) = chain.unmeasured {
        words.push_str(&format!(": not measured, {why}"));
    }
    if chain.missed > 0 {
        words.push_str(&format!(", {} of {} late", count(chain.missed), count(chain.made + chain.missed)));
    }
    if let Some(latency) = chain.latency {
        words.push_str(&format!(", longest {}", nanos(latency.max_ns.max(0).unsigned_abs())));
    }
    if let Some(deadline) = chain.deadline_ns {
        words.push_str(&format!(", deadline {}", nanos(deadline)));
    }
    words
}

fn arrows(account: &ReportInput<'_>, parts: &[Part]) -> Vec<Arrow> {
    let system = account.system;
    let of = |(index, part): (usize, &Part)| part.operations.iter().map(move |id| (*id, index)).collect::<Vec<_>>();
    let part_of: BTreeMap<OperationId, usize> = parts.iter().enumerate().flat_map(of).collect();
    let mut arrows: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    let mut add = |from: &OperationId, to: &OperationId, chain: Option<usize>| {
        if let (Some(from), Some(to)) = (part_of.get(from), part_of.get(to))
            && from != to
        {
            let chains = arrows.entry((*from, *to)).or_default();
            chains.extend(chain.filter(|chain| !chains.contains(chain)));
        }
    };
    for (index, chain) in system.chains.iter().enumerate() {
        chain.path.windows(2).for_each(|pair| add(&pair[0], &pair[1], Some(index)));
    }
    for (id, operation) in system.operation_ids().zip(&system.operations) {
        operation.trigger.predecessors().iter().for_each(|before| add(before, &id, None));
    }
    arrows.into_iter().map(|((from, to), chains)| Arrow { from, to, chains }).collect()
}

fn places(parts: &[Part], arrows: &[Arrow]) -> Vec<Place> {
    let mut column = vec![0; parts.len()];
    // Templates can trigger each other in a circle: columns stop growing.
    for _ in 0..parts.len().min(12) {
        for arrow in arrows {
            column[arrow.to] = column[arrow.to].max((column[arrow.from] + 1).min(11));
        }
    }
    let mut rows: BTreeMap<(u32, usize), usize> = BTreeMap::new();
    let linked = |place: usize| arrows.iter().any(|arrow| arrow.from == place || arrow.to == place);
    let place = |(index, part): (usize, &Part)| {
        linked(index).then(|| {
            let row = rows.entry((part.processor.0, column[index])).or_insert(0);
            *row += 1;
            (column[index], *row - 1)
        })
    };
    parts.iter().enumerate().map(place).collect()
}

fn picture(summary: &Summary, parts: &[Part], arrows: &[Arrow], places: &[Place], size: &Size) -> Markup {
    let Size { wide, gap, in_row, .. } = *size;
    let columns = places.iter().flatten().map(|(column, _)| column + 1).max().unwrap_or(0);
    let linked_wide = (columns * (wide + gap)).saturating_sub(gap);
    let lone = |processor: usize| {
        parts.iter().zip(places).filter(move |(part, place)| part.processor.index() == processor && place.is_none())
    };
    let most_lone = (0..summary.processors.len()).map(|one| lone(one).count()).max().unwrap_or(0);
    // With arrows, all boxes keep to the columns: arrows pass between them.
    let near = if columns > 0 { gap } else { NEAR };
    let fit = (in_row * (wide + NEAR) + gap) / (wide + near);
    let in_row = fit.clamp(2, most_lone.max(2)).max(columns);
    let inner = linked_wide.max(in_row * (wide + near) - near);
    let whole = inner + 2 * PAD;

    // Upper left corners of boxes, and the bands of processors.
    let mut corners = vec![(0, 0); parts.len()];
    let mut bands = Vec::new();
    let mut top = 0;
    for processor in 0..summary.processors.len() {
        let here = || parts.iter().enumerate().filter(move |(_, part)| part.processor.index() == processor);
        if here().next().is_none() {
            continue;
        }
        let mut y = top + TITLE;
        let rows = here().filter_map(|(index, _)| places[index]).map(|(_, row)| row + 1).max().unwrap_or(0);
        for (index, _) in here() {
            if let Some((column, row)) = places[index] {
                corners[index] = (PAD + column * (wide + gap), y + row * (HIGH + BETWEEN));
            }
        }
        y += rows * (HIGH + BETWEEN);
        let alone: Vec<usize> = here().map(|(index, _)| index).filter(|index| places[*index].is_none()).collect();
        for (nth, index) in alone.iter().enumerate() {
            corners[*index] = (PAD + nth % in_row * (wide + near), y + nth / in_row * (HIGH + NEAR));
        }
        y += alone.len().div_ceil(in_row) * (HIGH + NEAR);
        bands.push((processor, top, y - top));
        top = y + APART;
    }
    let high = top.saturating_sub(APART).max(1);
    html! {
        svg class="system" width=(whole) height=(high) viewBox=(format!("0 0 {whole} {high}")) role="img" aria-label="processors, their operations, and chains" {
            @for (_, top, high) in &bands {
                rect class="processor" x="0.5" y=(top) width=(whole - 1) height=(high) rx="8" {}
            }
            @for arrow in arrows { (drawn(summary, arrow, &corners, size)) }
            @for (processor, top, _) in &bands {
                @let one = &summary.processors[*processor];
                text class="title" x=(PAD) y=(top + 17) {
                    (one.name) tspan class="detail" {
                        @if one.host != one.name && one.host != "local" { " on " (one.host) }
                        " · " (one.strategy) " · " (percent(one.utilisation_ppm)) " used"
                    }
                }
            }
            @for (part, (x, y)) in parts.iter().zip(&corners) {
                g class={ "part " (part.state().class()) @if part.critical { " critical" } } {
                    title { (part.label) @if part.critical { " (critical)" } ": " (part.words()) }
                    rect x=(x) y=(y) width=(wide) height=(HIGH) rx="5" {}
                    rect class="state" x=(x) y=(y) width="6" height=(HIGH) rx="3" {}
                    text class="name" x=(x + 14) y=(y + 18) { (cut(&part.label, wide / 8)) }
                    text class="words" x=(x + 14) y=(y + 34) { (cut(&part.words(), wide / 7)) }
                }
            }
        }
    }
}

fn drawn(summary: &Summary, arrow: &Arrow, corners: &[(usize, usize)], size: &Size) -> Markup {
    let Size { wide, gap, .. } = *size;
    let ((left, top), (x, y)) = (corners[arrow.from], corners[arrow.to]);
    let half = HIGH / 2;
    let (from, at) = ((left + wide, top + half), (x, y + half));
    // The line ends within the arrow's head.
    let to = (at.0.saturating_sub(6), at.1);
    let path = if x == left + wide + gap {
        let bend = gap / 2;
        format!(
            "M{} {}C{} {} {} {} {} {}",
            from.0,
            from.1,
            from.0 + bend,
            from.1,
            to.0 - bend.min(to.0),
            to.1,
            to.0,
            to.1
        )
    } else {
        let between = top + HIGH + BETWEEN / 2;
        let (out, back) = (from.0 + gap * 2 / 3, to.0.saturating_sub(gap * 2 / 3));
        format!(
            "M{} {}C{out} {} {} {between} {out} {between}H{back}C{} {between} {back} {} {} {}",
            from.0, from.1, from.1, from.0, to.0, to.1, to.0, to.1
        )
    };
    let chains: Vec<&ChainSummary> = arrow.chains.iter().filter_map(|chain| summary.chains.get(*chain)).collect();
    let state = chains.iter().map(|chain| state(chain)).max().unwrap_or(State::Idle);
    let names = chains.iter().map(|chain| chain.name.as_str()).collect::<Vec<_>>().join(", ");
    html! {
        g class={ "arrow " (state.class()) @if chains.is_empty() { " trigger" } } {
            title { @if chains.is_empty() { "triggers" } @for (nth, chain) in chains.iter().enumerate() { @if nth > 0 { "; " } (words(chain)) } }
            path d=(path) {}
            polygon points=(format!("{},{} {},{} {},{}", at.0, at.1, at.0 as i64 - 9, at.1 - 5, at.0 as i64 - 9, at.1 + 5)) {}
            @if gap > 40 && y == top && x == left + wide + gap && !names.is_empty() {
                text x=(from.0 + gap / 2 - 3) y=((from.1 + at.1) / 2 - 6) { (cut(&names, gap / 6)) }
            }
        }
    }
}

fn cut(text: &str, most: usize) -> String {
    if text.chars().count() > most { text.chars().take(most - 1).chain(['…']).collect() } else { text.into() }
}
