//! The tables of the page.

use maud::{Markup, html};

use super::legend;
use crate::figures::{count, nanos, percent, signed};
use crate::names::label;
use crate::summary::{BoundSummary, CausesSummary, CountsSummary, OperationSummary, Summary};
use crate::terminal::{bound_words, demanded, range as span, seconds};

/// Rows of a table.
const MOST_ROWS: usize = 500;

/// A number, grey if zero, marked if it is bad.
fn number(number: u64, bad: Option<&str>) -> Markup {
    let class = match (number, bad) {
        (0, _) => "n zero",
        (_, Some("bad")) => "n bad",
        (_, Some(_)) => "n worry",
        (_, None) => "n",
    };
    html! { td class=(class) data-key=(number) { (count(number)) } }
}

pub(super) fn time(value: Option<i64>) -> Markup {
    let shown = value.map_or(String::new(), |value| nanos(value.max(0).unsigned_abs()));
    html! { td class="n" data-key=(value.unwrap_or(-1)) { (shown) } }
}

fn lateness(value: Option<i64>, critical: bool) -> Markup {
    let class = match value {
        Some(1..) if critical => "n bad",
        Some(1..) => "n worry",
        _ => "n",
    };
    html! { td class=(class) data-key=(value.unwrap_or(i64::MIN)) { (value.map_or(String::new(), signed)) } }
}

/// A bound, with a mark if it was exceeded, or the reason for a missing one.
pub(super) fn bound(bound: &BoundSummary) -> Markup {
    let class = if bound.exceeded {
        "n exceeded"
    } else if bound.bound_ns.is_none() {
        "n zero"
    } else {
        "n"
    };
    html! {
        td class=(class) data-key=(bound.bound_ns.unwrap_or(u64::MAX)) title=[bound.missing.as_deref()] {
            (bound_words(bound)) @if bound.exceeded { span aria-label="exceeded" { " !" } }
        }
    }
}

fn more(all: usize) -> Markup {
    html! {
        @if all > MOST_ROWS { p { (count((all - MOST_ROWS) as u64)) " more rows are in the JSON report." } }
    }
}

/// The outcomes that occurred, other than made and missed.
struct Shown {
    cancelled: bool,
    stopped: bool,
    dropped: bool,
    overran: bool,
    shed: bool,
}

impl Shown {
    fn of<'a>(counts: impl Iterator<Item = &'a CountsSummary> + Clone) -> Shown {
        Shown {
            cancelled: counts.clone().any(|counts| counts.cancelled > 0),
            stopped: counts.clone().any(|counts| counts.stopped > 0),
            dropped: counts.clone().any(|counts| counts.dropped() > 0),
            overran: counts.clone().any(|counts| counts.overran > 0),
            shed: counts.clone().any(|counts| counts.shed_legs > 0),
        }
    }

    /// The headings of jobs without an end in time, other than missed.
    fn outcomes(&self) -> Markup {
        html! {
            @if self.cancelled { th class="n" { "cancelled" } }
            @if self.stopped { th class="n" { "stopped" } }
            @if self.dropped { th class="n" { "dropped" } }
        }
    }

    /// The cells under them.
    fn counts(&self, counts: &CountsSummary, tone: &str) -> Markup {
        html! {
            @if self.cancelled { (number(counts.cancelled, Some(tone))) }
            @if self.stopped { (number(counts.stopped, Some(tone))) }
            @if self.dropped { (number(counts.dropped(), Some(tone))) }
        }
    }
}

/// Operations, templates together.
pub(super) fn operations(summary: &Summary) -> Markup {
    let shown = Shown::of(summary.groups.iter().map(|group| &group.counts));
    let row = |group: &OperationSummary| {
        let tone = Some(if group.critical { "bad" } else { "worry" });
        let counts = &group.counts;
        let response = group.response.as_ref();
        html! {
            tr {
                td data-key=(group.name) { (label(&group.name, group.instances)) }
                td data-key=(if group.critical { "critical" } else { "" }) { @if group.critical { span class="badge" { "critical" } } }
                td class="n" data-key=(group.period_ns) { (span(group.period_ns, group.period_max_ns)) }
                (number(counts.released, None))
                (number(counts.made, None))
                (number(counts.missed, tone))
                @if shown.cancelled { (number(counts.cancelled, tone)) }
                @if shown.shed { (number(counts.shed_legs, tone)) }
                @if shown.stopped { (number(counts.stopped, tone)) }
                @if shown.dropped { (number(counts.dropped(), tone)) }
                @if shown.overran { (number(counts.overran, Some("worry"))) }
                td class="n" data-key=(group.wcet_ns) { (nanos(group.wcet_ns)) }
                (time(group.execution.map(|execution| execution.mean_ns)))
                (time(response.map(|times| times.p50_ns)))
                (time(response.map(|times| times.p99_ns)))
                (time(response.map(|times| times.max_ns)))
                (bound(&group.bound))
                td class="n" data-key=(group.deadline_ns) { (span(group.deadline_ns, group.deadline_max_ns)) }
                (lateness(group.lateness.as_ref().map(|times| times.max_ns), group.critical))
                td data-key=(response.map_or(-1, |times| times.max_ns)) { (range(group)) }
            }
        }
    };
    html! {
        section {
            h2 { "Operations" }
            p {
                "Click a heading to sort. ▲ marks critical jobs that were late or not finished, △ other such jobs. "
                "The bar is the response time from least to greatest, solid up to the 99th percentile. "
                "Long line: deadline. Short line: proved bound. 7/12 after a bound: it is known in 7 of 12 regions."
            }
            div class="wide" tabindex="0" {
                table class="sortable" {
                    thead { tr {
                        th { "operation" } th { "class" } th class="n" { "period" } th class="n" { "jobs" } th class="n" { "made" }
                        th class="n" { "missed" }
                        @if shown.cancelled { th class="n" { "cancelled" } }
                        @if shown.shed { th class="n" { "legs shed" } }
                        @if shown.stopped { th class="n" { "stopped" } }
                        @if shown.dropped { th class="n" { "dropped" } }
                        @if shown.overran { th class="n" { "overran" } }
                        th class="n wrap" { "declared time" } th class="n" { "mean time" }
                        th class="n wrap" { "response median" } th class="n" { "p99" } th class="n" { "max" }
                        th class="n" { "bound" } th class="n" { "deadline" } th class="n wrap" { "worst lateness" } th { "response" }
                    } }
                    tbody { @for group in summary.groups.iter().take(MOST_ROWS) { (row(group)) } }
                }
            }
            (more(summary.groups.len()))
        }
    }
}

/// Least, 99 % and greatest response against the deadline, as a small picture.
fn range(group: &OperationSummary) -> Markup {
    let Some(times) = &group.response else { return html! {} };
    let scale = group.deadline_max_ns.max(times.max_ns.max(1) as u64) as f64 * 1.02;
    let place = |nanos: f64| (nanos / scale * 168.0 * 10.0).round() / 10.0;
    let (least, most, p99) = (place(times.min_ns as f64), place(times.max_ns as f64), place(times.p99_ns as f64));
    let deadline = place(group.deadline_max_ns as f64);
    let bound = group.bound.bound_ns.map(|bound| place(bound as f64)).filter(|bound| *bound <= 168.0);
    let colour = if group.critical { "var(--critical)" } else { "var(--non-critical)" };
    html! {
        svg class="range" viewBox="0 0 170 16" role="img" aria-label="response times against the deadline" {
            rect x="0" y="7" width="170" height="2" fill="var(--grid)" {}
            rect x=(least) y="5" width=((most - least).max(1.5)) height="6" rx="1" fill=(colour) opacity="0.45" {}
            rect x=(least) y="4" width=((p99 - least).max(1.5)) height="8" rx="1" fill=(colour) {}
            @if let Some(bound) = bound { rect x=(bound) y="4" width="1.5" height="8" fill="var(--ink)" {} }
            rect x=(deadline) y="0" width="1.5" height="16" fill="var(--ink)" {}
        }
    }
}

/// Regions in figures.
pub(super) fn epochs(summary: &Summary) -> Markup {
    let shown = Shown::of(summary.epochs.iter().flat_map(|epoch| [&epoch.critical, &epoch.non_critical]));
    html! {
        details {
            summary { "In figures" }
            div class="wide" tabindex="0" {
                table {
                    thead { tr {
                        th { "region" } th class="n" { "from" } th class="n" { "load" } th class="n" { "used" }
                        th class="n" { "critical made" } th class="n" { "missed" }
                        (shown.outcomes())
                        th class="n" { "other jobs made" } th class="n" { "missed" }
                        (shown.outcomes())
                    } }
                    tbody {
                        @for epoch in summary.epochs.iter().take(MOST_ROWS) {
                            tr {
                                td { (epoch.name) }
                                (time(Some(epoch.at_ns as i64)))
                                td class="n" { (percent(epoch.processors.iter().map(|load| load.declared_ppm).max().unwrap_or(0))) }
                                td class="n" {
                                    @if epoch.until_ns > epoch.at_ns {
                                        (percent(epoch.processors.iter().map(|load| load.used_ppm).max().unwrap_or(0)))
                                    } @else { "not reached" }
                                }
                                (number(epoch.critical.made, None))
                                (number(epoch.critical.missed, Some("bad")))
                                (shown.counts(&epoch.critical, "bad"))
                                (number(epoch.non_critical.made, None))
                                (number(epoch.non_critical.missed, Some("worry")))
                                (shown.counts(&epoch.non_critical, "worry"))
                            }
                        }
                    }
                }
            }
            (more(summary.epochs.len()))
        }
    }
}

/// End-to-end requirements.
pub(super) fn chains(summary: &Summary) -> Markup {
    if summary.chains.is_empty() {
        return html! {};
    }
    let lost = summary.chains.iter().any(|chain| chain.lost > 0);
    let ages = summary.chains.iter().any(|chain| chain.max_age_ns.is_some());
    let reactions = summary.chains.iter().any(|chain| chain.max_reaction_ns.is_some());
    html! {
        section {
            h2 { "Chains" }
            p { "Latency: from the release of the first operation to the end of the last. Reaction: from an input to the first end that reflects it." }
            div class="wide" tabindex="0" {
                table {
                    thead { tr {
                        th { "chain" } th { "path" } th { "demanded" } th class="n" { "in time" } th class="n" { "late" }
                        @if lost { th class="n" { "never ended" } }
                        @if ages { th class="n" { "too old" } }
                        @if reactions { th class="n" { "too slow" } }
                        th class="n" { "median" } th class="n" { "p99" } th class="n" { "max" } th class="n" { "bound" }
                        th class="n" { "reaction" }
                        @if reactions { th class="n" { "bound" } }
                    } }
                    tbody {
                        @for chain in summary.chains.iter().take(MOST_ROWS) {
                            tr {
                                td { (chain.name) }
                                td class="words" {
                                    (chain.path.join(" → "))
                                    @if let Some(why) = chain.unmeasured { " (not measured: " (why) ")" }
                                }
                                td { (demanded(chain)) }
                                (number(chain.made, None))
                                (number(chain.missed, Some("bad")))
                                @if lost { (number(chain.lost, Some(if chain.deadline_ns.is_some() { "bad" } else { "worry" }))) }
                                @if ages { (number(chain.too_old, Some("bad"))) }
                                @if reactions { (number(chain.too_slow, Some("bad"))) }
                                (time(chain.latency.map(|times| times.p50_ns)))
                                (time(chain.latency.map(|times| times.p99_ns)))
                                (time(chain.latency.map(|times| times.max_ns)))
                                (bound(&chain.latency_bound))
                                (time(chain.reaction.map(|extent| extent.max_ns)))
                                @if reactions { (bound(&chain.reaction_bound)) }
                            }
                        }
                    }
                }
            }
            (more(summary.chains.len()))
        }
    }
}

/// The worst misses, with their causes.
pub(super) fn misses(summary: &Summary) -> Markup {
    if summary.misses.is_empty() {
        return html! {};
    }
    let regions = summary.epochs.len() > 1;
    html! {
        section {
            h2 { "Worst misses" }
            p { "The latest jobs of each class, at most three of an operation or template. " span class="scripted" { "Select one to see it in the timeline." } }
            (legend(&PARTS.map(|part| (part.colour, part.name))))
            div class="wide" tabindex="0" {
                table {
                    thead { tr {
                        th { "job" } th { "class" } th class="n" { "late by" } @if regions { th { "region" } } th class="n" { "released at" }
                        th { "time by cause" } th { "why" }
                    } }
                    tbody {
                        @for miss in &summary.misses {
                            tr {
                                td { button type="button" class="plain" data-job-name=(miss.job) { (miss.job) } }
                                td { @if miss.critical { span class="badge" { "critical" } } }
                                (lateness(Some(miss.lateness_ns), miss.critical))
                                @if regions { td { (miss.epoch) } }
                                td class="n" { (seconds(miss.release_at_ns)) }
                                td { (split(&miss.causes)) }
                                td class="words" { (miss.explanation) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A part of a late job's time, and the page's colour for it.
struct CausePart {
    colour: &'static str,
    name: &'static str,
    of: fn(&CausesSummary) -> u64,
}

const PARTS: [CausePart; 6] = [
    CausePart { colour: "upstream", name: "before it", of: |causes| causes.upstream_ns },
    CausePart { colour: "released-late", name: "release to queue", of: |causes| causes.released_late_ns },
    CausePart { colour: "waited", name: "waited", of: |causes| causes.waited_ns },
    CausePart { colour: "executed", name: "executed as declared", of: |causes| causes.executed_ns },
    CausePart { colour: "overran", name: "beyond its worst case", of: |causes| causes.overran_ns },
    CausePart { colour: "held", name: "preempted or blocked", of: |causes| causes.held_ns },
];

fn split(causes: &CausesSummary) -> Markup {
    let parts = PARTS.iter().map(|part| (part, (part.of)(causes))).filter(|(_, length)| *length > 0);
    let all = parts.clone().map(|(_, length)| length).sum::<u64>().max(1) as f64;
    html! {
        div class="split" {
            @for (part, length) in parts {
                i class={ "c-" (part.colour) } style=(format!("width:{:.2}%", length as f64 * 100.0 / all))
                    title=(format!("{}: {}", part.name, nanos(length))) {}
            }
        }
    }
}
