//! Response times of single operations as small pictures, with the deadline and the proved bound.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};

use super::chart::lower;
use crate::figures::nanos;
use crate::names::label;
use crate::summary::{OperationSummary, Summary};
use crate::terminal::{bound_words, range};

/// Pictures of a page: of the operations that were latest or nearest to their deadlines.
const MOST: usize = 24;

const WIDTH: f64 = 320.0;
const HEIGHT: f64 = 92.0;
const FLOOR: f64 = 72.0;

/// A picture for each operation.
pub(super) fn distributions(summary: &Summary) -> Markup {
    let mut groups: Vec<&OperationSummary> = summary.groups.iter().filter(|group| group.response.is_some()).collect();
    let all = groups.len();
    if all > MOST {
        groups.sort_by_key(|group| (!group.critical, -group.lateness.map_or(i64::MIN + 1, |times| times.max_ns)));
        groups.truncate(MOST);
    }
    html! {
        h3 class="later" { "By operation" }
        ul class="legend" {
            li { i class="tick flag" {} "deadline" }
            li { i class="tick dashed" {} "proved bound" }
            li { i class="c-critical" {} "critical" }
            li { i class="c-non-critical" {} "not critical" }
        }
        div class="many" {
            @for group in &groups {
                figure {
                    figcaption {
                        b { (label(&group.name, group.instances)) }
                        span {
                            "99 % within " (group.response.map_or(String::new(), |times| nanos(times.p99_ns.max(0) as u64)))
                            " · bound " (bound_words(&group.bound))
                            " · deadline " (range(group.deadline_ns, group.deadline_max_ns))
                        }
                    }
                    (PreEscaped(picture(group)))
                }
            }
        }
        @if all > MOST { p { (all - MOST) " more are in the table of operations." } }
    }
}

fn picture(group: &OperationSummary) -> String {
    let bars = &group.response_bars;
    let least = bars.first().map_or(1.0, lower).max(1.0);
    let ends = [Some(group.deadline_max_ns), group.bound.bound_ns, bars.last().map(|bar| bar.up_to_ns.max(1) as u64)];
    let most = ends.into_iter().flatten().max().unwrap_or(1) as f64 * 1.1;
    let least = (least / 1.5).min(most / 4.0).max(1.0);
    let x = |at: f64| (at.max(least) / least).ln() / (most / least).ln() * (WIDTH - 2.0);
    let highest = bars.iter().map(|bar| bar.count).max().unwrap_or(1).max(1) as f64;
    let colour = if group.critical { "critical" } else { "non-critical" };
    let mut svg = format!(
        "<svg class=\"small\" role=\"img\" aria-label=\"response times\" viewBox=\"0 0 {WIDTH} {HEIGHT}\"><line x1=\"0\" x2=\"{WIDTH}\" y1=\"{FLOOR}\" y2=\"{FLOOR}\" stroke=\"var(--line)\"/>"
    );
    let mut draw = |part: std::fmt::Arguments<'_>| svg.write_fmt(part).unwrap_or_default();
    // Whole decades.
    let mut decade = 10f64.powf(least.log10().ceil());
    while decade < most {
        let at = x(decade);
        draw(format_args!("<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"4\" y2=\"{FLOOR}\" stroke=\"var(--grid)\"/>"));
        if at > 14.0 && at < WIDTH - 20.0 {
            draw(format_args!(
                "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\" font-size=\"11\" fill=\"var(--soft)\">{}</text>",
                HEIGHT - 5.0,
                nanos(decade.round() as u64)
            ));
        }
        decade *= 10.0;
    }
    for bar in bars {
        let (left, right) = (x(lower(bar)), x(bar.up_to_ns as f64));
        // A single job stays visible beside thousands.
        let high = (bar.count as f64 / highest * (FLOOR - 8.0)).max(1.5);
        draw(format_args!(
            "<rect x=\"{left:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{high:.1}\" fill=\"var(--{colour})\"/>",
            FLOOR - high,
            (right - left - 0.5).max(1.0),
        ));
    }
    draw(format_args!(
        "<path class=\"deadline\" d=\"M{:.1} {FLOOR}V2l7 3.5l-7 3.5\"/>",
        x(group.deadline_max_ns as f64)
    ));
    if let Some(bound) = group.bound.bound_ns.filter(|bound| *bound > 0) {
        let at = x(bound as f64);
        draw(format_args!("<line class=\"bound\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"2\" y2=\"{FLOOR}\"/>"));
    }
    svg.push_str("</svg>");
    svg
}
