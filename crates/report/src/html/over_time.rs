//! Deadlines over time: jobs per second by what became of them, with the regions below.

use std::fmt::Write;

use super::chart::short_names;
use maud::{Markup, html};

use crate::figures::{count, nanos};
use crate::summary::{EndsSummary, EpochSummary, OverloadSummary, StretchSummary, Summary};

const WIDTH: f64 = 540.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 42.0;

/// The page's colour of each outcome, from the axis up.
type Part = (&'static str, fn(&EndsSummary) -> u64);
const PARTS: [Part; 4] = [
    ("made", |ends| ends.made),
    ("missed", |ends| ends.missed),
    ("cancelled", |ends| ends.cancelled),
    ("other", |ends| ends.lost),
];

/// Processors whose second strategy is drawn, and the height that one takes.
const MOST_REIGNS: usize = 4;
const REIGN: f64 = 14.0;

/// Second strategies that were in force at some time, with their processors.
fn reigned(summary: &Summary) -> impl Iterator<Item = (&str, &OverloadSummary)> {
    let all = summary.processors.iter().filter_map(|one| Some((one.name.as_str(), one.overload.as_ref()?)));
    all.filter(|(_, overload)| overload.ruled_ns > 0)
}

/// What the bands above the charts stand for; nothing if there are none.
pub(super) fn reigns(summary: &Summary) -> Markup {
    let entry = |(name, overload): (&str, &OverloadSummary)| format!("{} in force on {name}", overload.strategy);
    let mut entries: Vec<String> = reigned(summary).take(MOST_REIGNS).map(entry).collect();
    let more = reigned(summary).count().saturating_sub(MOST_REIGNS);
    if more > 0 {
        entries.push(format!("of {more} processors more in the JSON form of this report"));
    }
    html! {
        @if !entries.is_empty() {
            ul class="legend" { li {
                i style="background:var(--second)" {}
                @if entries.len() > 1 { "bands, from the top: " } (entries.join("; "))
            } }
        }
    }
}

/// The picture of one class.
pub(super) fn over_time(summary: &Summary, critical: bool) -> String {
    let of = |stretch: &StretchSummary| if critical { stretch.critical } else { stretch.non_critical };
    let whole = summary.duration_ns.max(1);
    // Ends at the very end of the run stand in a stretch that may begin with it: there is nothing to divide by.
    let stretches: Vec<(&StretchSummary, f64)> = summary
        .over_time
        .iter()
        .map(|stretch| (stretch, stretch.until_ns.min(whole).saturating_sub(stretch.at_ns) as f64 / 1e9))
        .filter(|(stretch, seconds)| *seconds * 1e9 * 4.0 > (stretch.until_ns - stretch.at_ns) as f64)
        .collect();
    let rate = |count: u64, seconds: f64| count as f64 / seconds;
    let all = |ends: EndsSummary| PARTS.iter().map(|(_, part)| part(&ends)).sum::<u64>();
    let most = stretches.iter().map(|(stretch, seconds)| rate(all(of(stretch)), *seconds)).fold(0.0, f64::max);
    let (step, most) = scale(most);
    let bands: Vec<&OverloadSummary> = reigned(summary).take(MOST_REIGNS).map(|(_, overload)| overload).collect();
    let roof = TOP + bands.len() as f64 * REIGN;
    let x = |at: u64| LEFT + at.min(whole) as f64 / whole as f64 * (WIDTH - LEFT - RIGHT);
    let y = |rate: f64| HEIGHT - BOTTOM - rate / most * (HEIGHT - roof - BOTTOM);

    let mut svg = format!(
        "<svg class=\"chart\" role=\"img\" aria-label=\"deadlines over time\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-size=\"12\" fill=\"var(--soft)\">"
    );
    let mut draw = |part: std::fmt::Arguments<'_>| svg.write_fmt(part).unwrap_or_default();
    let mut line = 0.0;
    while line <= most * 1.001 {
        let at = y(line);
        draw(format_args!(
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"var(--grid)\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 7.0,
            at + 4.0,
            if line > 0.0 {
                format!("{}/s", if line >= 1_000.0 { count(line as u64) } else { line.to_string() })
            } else {
                "0".into()
            },
        ));
        line += step;
    }
    let mut bases = vec![0.0; stretches.len()];
    for (colour, part) in PARTS {
        let mut path = String::new();
        for ((stretch, seconds), base) in stretches.iter().zip(&mut bases) {
            let count = part(&of(stretch));
            if count > 0 {
                let (low, high) = (*base, *base + rate(count, *seconds));
                let (left, right) = (x(stretch.at_ns), x(stretch.until_ns));
                let shape = format_args!("M{left:.1} {:.1}H{right:.1}V{:.1}H{left:.1}Z", y(low), y(high)).to_string();
                path.push_str(&shape);
                *base = high;
            }
        }
        if !path.is_empty() {
            draw(format_args!("<path d=\"{path}\" fill=\"var(--{colour})\" shape-rendering=\"crispEdges\"/>"));
        }
    }
    for (place, overload) in bands.iter().enumerate() {
        let top = TOP - 6.0 + place as f64 * REIGN;
        draw(format_args!(
            "<rect x=\"{LEFT}\" y=\"{top}\" width=\"{}\" height=\"9\" fill=\"var(--grid)\"/>",
            WIDTH - LEFT - RIGHT
        ));
        for reign in overload.over_time.iter().filter(|reign| reign.at_ns < whole) {
            let (left, right) = (x(reign.at_ns), x(reign.until_ns));
            let length = reign.until_ns.min(whole).saturating_sub(reign.at_ns).max(1);
            // What is short is seen all the same.
            let share = (reign.ruled_ns as f64 / length as f64).clamp(0.15, 1.0);
            draw(format_args!(
                "<rect x=\"{left:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"9\" fill=\"var(--second)\" opacity=\"{share:.2}\" shape-rendering=\"crispEdges\"/>",
                right - left
            ));
        }
    }
    regions(&summary.epochs, whole, &x, &mut draw);
    for part in 0..=4u64 {
        let at = whole / 4 * part;
        let anchor = if part == 4 { "end" } else { "middle" };
        draw(format_args!(
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            x(at),
            HEIGHT - 6.0,
            nanos(at)
        ));
    }
    svg.push_str("</svg>");
    svg
}

fn regions(
    epochs: &[EpochSummary],
    whole: u64,
    x: &impl Fn(u64) -> f64,
    draw: &mut impl FnMut(std::fmt::Arguments<'_>),
) {
    if epochs.len() < 2 {
        return;
    }
    let (_, names) = short_names(epochs);
    let reached = epochs.iter().zip(names).filter(|(epoch, _)| epoch.at_ns < whole && epoch.until_ns > epoch.at_ns);
    for (epoch, name) in reached {
        let (left, right) = (x(epoch.at_ns), x(epoch.until_ns));
        if epoch.at_ns > 0 {
            draw(format_args!(
                "<line x1=\"{left:.1}\" x2=\"{left:.1}\" y1=\"{TOP}\" y2=\"{}\" stroke=\"var(--soft)\" stroke-dasharray=\"2 3\" opacity=\"0.7\"/>",
                HEIGHT - BOTTOM + 16.0
            ));
        }
        // A name needs some seven units a letter.
        if right - left >= 7.0 * name.chars().count() as f64 {
            let name = name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            draw(format_args!(
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\" font-size=\"11\">{name}</text>",
                (left + right) / 2.0,
                HEIGHT - BOTTOM + 14.0
            ));
        }
    }
}

/// Round steps of an axis up to `most`, and where it ends.
fn scale(most: f64) -> (f64, f64) {
    let aim = (most / 4.0).max(0.25);
    let power = 10f64.powf(aim.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|times| times * power).into_iter().find(|step| *step >= aim * 0.999);
    let step = step.unwrap_or(power * 10.0);
    (step, step * (most / step).ceil().max(1.0))
}
