//! How each processor spent its time, and what queueing cost.

use maud::{Markup, html};

use super::legend;
use crate::figures::{count, nanos, share};
use crate::summary::{ProcessorSummary, Summary, TimesSummary};
use crate::time::TimeSummary;

/// Processors of the table.
const MOST: usize = 64;

/// A part of a processor's time, and the page's colour for it.
type Part = (&'static str, &'static str, fn(&TimeSummary) -> u64);
const PARTS: [Part; 6] = [
    ("executed", "jobs", |time| time.execution_ns),
    ("machine", "scheduling", |time| time.overhead_ns),
    ("stood", "CPU clock stood", |time| time.held_ns),
    ("ink", "other threads", |time| time.others_ns),
    ("frame", "idle", |time| time.idle_ns),
    ("upstream", "idle or other threads", |time| time.unknown_ns),
];

/// The section, if anything was measured beyond the jobs themselves.
pub(super) fn processors(summary: &Summary) -> Markup {
    let timed = summary.processors.iter().any(|one| one.time.is_some());
    let queued = summary.processors.iter().any(|one| one.enqueue.is_some() || one.dequeue.is_some());
    if !timed && !queued {
        return html! {};
    }
    let some = |of: fn(&TimeSummary) -> u64| {
        summary.processors.iter().filter_map(|one| one.time.as_ref()).any(|time| of(time) > 0)
    };
    let parts: Vec<Part> = PARTS.into_iter().filter(|(.., of)| some(*of)).collect();
    let entries: Vec<(&str, &str)> = parts.iter().map(|(colour, name, _)| (*colour, *name)).collect();
    html! {
        section {
            h2 { "Processors" }
            p { (said(summary, queued)) }
            (legend(&entries))
            div class="wide" tabindex="0" {
                table {
                    thead { tr {
                        th { "processor" } th { "time by use" }
                        @for (_, name, _) in &parts { th class="n" { (name) } }
                        @if some(|time| time.preemptions) { th class="n" { "preempted" } }
                        @if some(|time| time.stolen_ns) { th class="n" { "stolen" } }
                        @if queued {
                            th class="n" { "enqueue median" } th class="n" { "p99" } th class="n" { "max" }
                            th class="n" { "dequeue median" } th class="n" { "p99" } th class="n" { "max" }
                        }
                    } }
                    tbody { @for one in summary.processors.iter().take(MOST) { (row(summary, one, &parts, queued, (some(|time| time.preemptions), some(|time| time.stolen_ns)))) } }
                }
            }
            @if summary.processors.len() > MOST { p { (summary.processors.len() - MOST) " more are in the JSON report." } }
        }
    }
}

fn said(summary: &Summary, queued: bool) -> String {
    let basis = summary.processors.iter().find_map(|one| one.time.as_ref()).map(|time| time.basis);
    let basis = match basis {
        Some("simulated") => "Simulated, with the scheduling costs of the file or the command line.",
        Some("switches") => "From the kernel's record of context switches.",
        Some(_) => "From the clocks of the run's threads, which do not separate idle time from other threads.",
        None => "",
    };
    let queueing = "Enqueue: the time to put a released job into its queue. Dequeue: the time to choose the next job and remove it.";
    if queued { format!("{basis} {queueing}") } else { basis.into() }
}

fn row(summary: &Summary, one: &ProcessorSummary, parts: &[Part], queued: bool, shown: (bool, bool)) -> Markup {
    let times = |times: &Option<TimesSummary>| {
        let figure =
            |of: fn(&TimesSummary) -> i64| times.as_ref().map_or(String::new(), |times| nanos(of(times).max(0) as u64));
        html! {
            td class="n" { (figure(|times| times.p50_ns)) }
            td class="n" { (figure(|times| times.p99_ns)) }
            td class="n" { (figure(|times| times.max_ns)) }
        }
    };
    let time = one.time.as_ref();
    let of = |part: fn(&TimeSummary) -> u64| time.map_or(0, part);
    html! {
        tr {
            td { (one.name) div class="under" { (one.strategies()) } }
            td {
                div class="split long" role="img" aria-label="shares of its time" {
                    @for (colour, name, part) in parts {
                        i class={ "c-" (colour) } style=(format!("width:{:.2}%", of(*part) as f64 * 100.0 / summary.duration_ns.max(1) as f64))
                            title=(format!("{name}: {}", nanos(of(*part)))) {}
                    }
                }
            }
            @for (.., part) in parts { td class="n" { (share(of(*part), summary.duration_ns)) } }
            @if shown.0 { td class="n" { (count(of(|time| time.preemptions))) } }
            @if shown.1 { td class="n" { (nanos(of(|time| time.stolen_ns))) } }
            @if queued { (times(&one.enqueue)) (times(&one.dequeue)) }
        }
        @if let Some(time) = time.filter(|time| !time.threads.is_empty()) {
            tr { td {} td class="words" colspan="12" {
                "Other threads: "
                @for (index, thread) in time.threads.iter().enumerate() {
                    @if index > 0 { ", " } (thread.name) " " (nanos(thread.had_ns))
                }
            } }
        }
    }
}
