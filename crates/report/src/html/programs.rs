//! Programs under the CPU broker: requested, reserved and used CPU time.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};

use crate::figures::{count, nanos, share};
use crate::programs::{ProgramStretch, ProgramSummary};
use crate::summary::Summary;

const WIDTH: f64 = 540.0;
const HEIGHT: f64 = 160.0;
const LEFT: f64 = 52.0;
const BOTTOM: f64 = 22.0;
const TOP: f64 = 8.0;

/// Programs that are drawn; the table has more.
const MOST_DRAWN: usize = 16;
/// Programs of the table.
const MOST: usize = 256;

/// The section; nothing for a system without programs.
pub(super) fn programs(summary: &Summary) -> Markup {
    if summary.programs.is_empty() {
        return html! {};
    }
    let counted = summary.programs.iter().any(|one| one.met.is_some());
    html! {
        section {
            h2 { "Programs under the CPU broker" }
            p { "CPU time per period: requested by advocates, reserved, and consumed by the program, reserved or not." }
            @for broker in &summary.brokers { p { (broker) } }
            div class="wide" tabindex="0" {
                table {
                    thead { tr {
                        th { "program" } th class="n" { "importance" } th class="n" { "period" } th class="n" { "requested" }
                        th class="n" { "reserved" } th class="n" { "consumed" } th class="n" { "periods" }
                        @if counted { th class="n" { "in time" } th class="n" { "late" } th class="n" { "unused" } }
                        th class="n" { "less than requested" }
                        @if !counted { th { "ended" } th { "because" } }
                    } }
                    tbody { @for one in summary.programs.iter().take(MOST) { (row(one, counted)) } }
                }
            }
            @if summary.programs.len() > MOST { p { (summary.programs.len() - MOST) " more are in the JSON report." } }
            @if summary.programs.iter().any(|one| one.over_time.len() > 1) {
                ul class="legend" {
                    li { i class="line" {} "reserved" } li { i class="line dashed" {} "requested" } li { i class="c-upstream" {} "consumed" }
                    li { i class="c-missed thin" {} "late cycles" }
                }
                div class="pair" {
                    @for one in summary.programs.iter().filter(|one| one.over_time.len() > 1).take(MOST_DRAWN) {
                        div { h3 { (one.name) } (PreEscaped(drawn(one, summary.duration_ns.max(1)))) }
                    }
                }
            }
        }
    }
}

fn row(one: &ProgramSummary, counted: bool) -> Markup {
    let late = if one.missed.unwrap_or(0) > 0 { "n worry" } else { "n zero" };
    let cut = if one.cut > 0 { "n worry" } else { "n zero" };
    html! {
        tr {
            td { (one.name) } td class="n" data-key=(one.importance) { (one.importance) }
            td class="n" data-key=(one.period_ns) { (nanos(one.period_ns)) }
            td class="n" data-key=(one.asked_ns) { (nanos(one.asked_ns)) }
            td class="n" data-key=(one.held_ns) { (nanos(one.held_ns)) }
            td class="n" data-key=(one.consumed_ns) { (nanos(one.consumed_ns)) }
            td class="n" data-key=(one.periods) { (count(one.periods)) }
            @if counted {
                td class="n" data-key=(one.met.unwrap_or(0)) { (count(one.met.unwrap_or(0))) }
                td class=(late) data-key=(one.missed.unwrap_or(0)) { (count(one.missed.unwrap_or(0))) }
                td class="n" data-key=(one.over_ppm.unwrap_or(0)) { (one.over_ppm.map_or(String::new(), |over| share(over, 1_000_000))) }
            }
            td class=(cut) data-key=(one.cut) { (count(one.cut)) }
            @if !counted { td { (one.ended.clone().unwrap_or_default()) } td { (one.because) } }
        }
    }
}

/// An area and two lines over time, and a mark below each stretch with late cycles.
fn drawn(one: &ProgramSummary, whole: u64) -> String {
    let most = one.over_time.iter().map(|stretch| stretch.asked_ns.max(stretch.held_ns).max(stretch.consumed_ns)).max();
    let most = most.unwrap_or(0).max(1) as f64 * 1.05;
    let x = |at: u64| LEFT + at.min(whole) as f64 / whole as f64 * (WIDTH - LEFT);
    let y = |value: u64| HEIGHT - BOTTOM - value as f64 / most * (HEIGHT - BOTTOM - TOP);
    let mut svg = format!(
        "<svg class=\"chart\" role=\"img\" aria-label=\"requested, reserved and consumed\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-size=\"12\" fill=\"var(--soft)\">"
    );
    // Writing to a string cannot fail.
    let mut draw = |part: std::fmt::Arguments<'_>| svg.write_fmt(part).unwrap_or_default();
    for part in [0.0, 0.5, 1.0] {
        let value = (most / 1.05 * part) as u64;
        draw(format_args!("<path d=\"M{LEFT} {:.1}H{WIDTH}\" stroke=\"var(--grid)\"/>", y(value)));
        draw(format_args!(
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y(value) + 4.0,
            nanos(value)
        ));
    }
    type Line = (&'static str, fn(&ProgramStretch) -> u64);
    let lines: [Line; 3] =
        [("used", |one| one.consumed_ns), ("held", |one| one.held_ns), ("asked", |one| one.asked_ns)];
    for (class, of) in lines {
        let mut path = String::new();
        for (place, stretch) in one.over_time.iter().enumerate() {
            let verb = if place == 0 { 'M' } else { 'L' };
            let (from, to, at) = (x(stretch.at_ns), x(stretch.until_ns), y(of(stretch)));
            let _ = write!(path, "{verb}{from:.1} {at:.1}H{to:.1}");
        }
        if class == "used"
            && let (Some(first), Some(last)) = (one.over_time.first(), one.over_time.last())
        {
            let _ = write!(path, "L{:.1} {:.1}H{:.1}Z", x(last.until_ns), y(0), x(first.at_ns));
        }
        draw(format_args!("<path class=\"program {class}\" d=\"{path}\"/>"));
    }
    for stretch in one.over_time.iter().filter(|stretch| stretch.missed.unwrap_or(0) > 0) {
        let (from, to) = (x(stretch.at_ns), x(stretch.until_ns).max(x(stretch.at_ns) + 1.0));
        let width = to - from;
        draw(format_args!(
            "<rect x=\"{from:.1}\" y=\"{}\" width=\"{width:.1}\" height=\"5\" fill=\"var(--missed)\"/>",
            HEIGHT - BOTTOM + 3.0
        ));
    }
    draw(format_args!("<text x=\"{LEFT}\" y=\"{}\">0</text>", HEIGHT - 2.0));
    draw(format_args!("<text x=\"{WIDTH}\" y=\"{}\" text-anchor=\"end\">{}</text></svg>", HEIGHT - 2.0, nanos(whole)));
    svg
}
