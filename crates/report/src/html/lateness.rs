//! The causes of late jobs, operation by operation.

use maud::{Markup, html};

use super::legend;
use crate::blamed::GROUPS;
use crate::figures::{count, nanos, share};
use crate::lateness::LatenessSummary;
use crate::names::label;
use crate::summary::Summary;

/// Rows of the table.
const MOST: usize = 40;

/// Causes beside the bar.
const NAMED: usize = 3;

/// The section, or nothing if every job made its deadline.
pub(super) fn lateness(summary: &Summary) -> Markup {
    let late = summary.groups.iter().filter_map(|group| Some((group, group.late.as_ref()?)));
    let mut rows: Vec<_> = late.collect();
    if rows.is_empty() {
        return html! {};
    }
    rows.sort_by_key(|(group, late)| (!group.critical, std::cmp::Reverse(late.response_ns)));
    let more = rows.len().saturating_sub(MOST);
    let shown = |name: &str| rows.iter().any(|(_, late)| late.groups.iter().any(|group| group.group == name));
    let entries: Vec<(&str, &str)> = GROUPS.into_iter().filter(|(name, _)| shown(name)).collect();
    html! {
        section {
            h2 { "Lateness by cause" }
            p {
                "How the jobs that were late or not finished spent the time from release to end. Shares are of that time. "
                "\"3 of 5\" jobs: the causes of the other two were not analysed, because too many jobs waited."
            }
            (legend(&entries))
            div class="wide" tabindex="0" {
                table {
                    thead { tr {
                        th { "operation" } th { "class" } th class="n" { "jobs" } th class="n" { "mean response" } th { "time by cause" }
                        th { "longest causes" }
                    } }
                    tbody {
                        @for (group, late) in rows.iter().take(MOST) {
                            tr {
                                td { (label(&group.name, group.instances)) }
                                td { @if group.critical { span class="badge" { "critical" } } }
                                td class="n" {
                                    (count(late.jobs))
                                    @let all = group.counts.released - group.counts.made;
                                    @if all > late.jobs { " of " (count(all)) }
                                }
                                td class="n" { (nanos(late.response_ns / late.jobs.max(1))) }
                                td { (bar(late)) }
                                td class="words" { @for cause in named(late) { div { (cause) } } }
                            }
                        }
                    }
                }
            }
            @if more > 0 { p { (more) " more operations are in the JSON report." } }
        }
    }
}

fn bar(late: &LatenessSummary) -> Markup {
    let all = late.groups.iter().map(|group| group.total_ns as f64).sum::<f64>().max(1.0);
    let name = |group: &str| GROUPS.iter().find(|(colour, _)| *colour == group).map_or("", |(_, name)| name);
    html! {
        div class="split long" role="img" aria-label="shares of causes" {
            @for group in &late.groups {
                i class={ "c-" (group.group) } style=(format!("width:{:.2}%", group.total_ns as f64 * 100.0 / all))
                    title=(format!("{}: {} ({})", name(group.group), nanos(group.total_ns), share(group.total_ns, late.response_ns))) {}
            }
        }
    }
}

fn named(late: &LatenessSummary) -> impl Iterator<Item = String> {
    let causes = late.causes.iter().take(NAMED);
    causes.map(|cause| {
        let overran = cause.overrun.as_ref().map_or(String::new(), |overran| format!("; {}", overran.words));
        format!("{} {}{overran}", share(cause.total_ns, late.response_ns), cause.cause)
    })
}
