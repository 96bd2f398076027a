//! The report as one HTML file, light and dark. It loads nothing from elsewhere.
//!
//! All text from files and recordings passes through the template's escaping.

mod chart;
mod distribution;
mod lateness;
mod parts;
mod processors;
mod programs;
mod stages;
mod system;
mod table;
mod timeline;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::input::{NoteLevel, ReportInput, ReportNote};
use hyoshi_model::printable_lines;

use crate::figures::{count, nanos, percent, printable, share, signed};
use crate::summary::{ClassSummary, LevelSummary, Summary};
use table::{chains, epochs, misses, operations};

const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/sort.js");

/// The browser refuses everything that is not in the file.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

impl ReportInput<'_> {
    /// The report as HTML, with the system's file in it.
    pub fn html(&self) -> String {
        page(self, &self.summary()).into_string()
    }
}

fn page(account: &ReportInput<'_>, summary: &Summary) -> Markup {
    let body = html! {
        (heading(summary))
        (tiles(summary))
        (system::system(account, summary))
        (timeline::timeline(account, summary))
        (operations(summary))
        (chains(summary))
        (stages::stages(summary))
        (misses(summary))
        (lateness::lateness(summary))
        (responses(summary))
        (loads(summary))
        (programs::programs(summary))
        (processors::processors(summary))
        (summary.feedback_section())
        (summary.contract_section())
        (plan(summary))
        (configuration(summary, account.source))
        footer { "Hyoshi " (summary.hyoshi.version) ", report schema " (summary.hyoshi.schema) "." }
    };
    document(&summary.system.name, &body)
}

/// A page with its style and script in it. Control characters of `title` and `body`, except line ends and tabs, are
/// escaped.
pub fn document(title: &str, body: &Markup) -> Markup {
    let (title, body) = (printable(title), PreEscaped(without_controls(&body.0)));
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { (title) " · Hyoshi" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main { (body) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
}

/// The text with visible escapes in place of characters that steer a terminal or reverse text.
fn without_controls(text: &str) -> String {
    let escaped = |part: &str| printable_lines(part);
    text.split('\t').map(escaped).collect::<Vec<_>>().join("\t")
}

fn heading(summary: &Summary) -> Markup {
    let Summary { hyoshi, system, verdict, .. } = summary;
    let did = if hyoshi.verb == "sim" { "Simulated" } else { "Ran" };
    html! {
        header {
            h1 { (system.name) }
            p {
                (did) " for " (nanos(summary.duration_ns))
                @if summary.duration_ns < summary.asked_ns { " of " (nanos(summary.asked_ns)) }
                @if hyoshi.verb == "sim" && summary.took_ns > 0 { ", computed in " (nanos(summary.took_ns)) }
                " · " (count(system.operations as u64)) @if system.operations == 1 { " operation on " } @else { " operations on " }
                (summary.processors.len()) @if summary.processors.len() == 1 { " processor" } @else { " processors" }
                " · seed " (system.seed)
                @if let Some(started) = hyoshi.started_unix_ns { " · " (utc(started)) }
            }
        }
        div class={ "verdict " @if verdict.holds { "holds" } @else { "fails" } } role="status" { (verdict.sentence) span class="proved" { (coded(&summary.analysis.words(verdict.holds))) } }
        @if !summary.notes.is_empty() {
            ul class="notes" {
                @for note in ReportNote::sorted(&summary.notes) {
                    li class=(match note.level { NoteLevel::Info => "info", NoteLevel::Degraded => "degraded", NoteLevel::Refused => "refused", NoteLevel::Failed => "failed" }) {
                        b { (note.topic) } (coded(&note.text))
                        @if let Some(remedy) = &note.remedy { span class="remedy" { " — " (coded(remedy)) } }
                    }
                }
            }
        }
    }
}

/// Shows text between backticks as code.
fn coded(text: &str) -> Markup {
    let closed = text.matches('`').count() & !1;
    html! {
        @for (place, part) in text.splitn(closed + 1, '`').enumerate() {
            @if place % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

fn tiles(summary: &Summary) -> Markup {
    let tile = |name: &str, value: String, detail: String, bad: bool| {
        html! {
            div class={ "tile" @if bad { " bad" } } {
                div class="name" { (name) }
                div class="value" { (value) }
                div class="detail" { (detail) }
            }
        }
    };
    let class = |class: &ClassSummary| {
        let counts = &class.counts;
        let name = if class.critical { "Critical in time" } else { "Non-critical in time" };
        let in_time = share(counts.made, counts.released);
        let value = if in_time.is_empty() { "–".into() } else { in_time };
        let detail = format!("{} of {} jobs", count(counts.made), count(counts.released));
        tile(name, value, detail, class.critical && counts.made < counts.released)
    };
    let worst = |class: &ClassSummary| {
        let Some(lateness) = class.lateness else { return html! {} };
        let name = if class.critical { "Worst critical lateness" } else { "Worst other lateness" };
        let detail = if lateness.max_ns > 0 { "after its deadline" } else { "before its deadline" };
        tile(name, signed(lateness.max_ns), detail.into(), class.critical && lateness.max_ns > 0)
    };
    let fullest = summary.processors.iter().max_by_key(|processor| processor.utilisation_ppm);
    let cancelled: u64 = summary.classes.iter().map(|class| class.counts.cancelled).sum();
    html! {
        div class="tiles" {
            @for one in &summary.classes { (class(one)) }
            @for one in &summary.classes { (worst(one)) }
            @if cancelled > 0 { (tile("Cancelled", count(cancelled), "could not finish in time".into(), false)) }
            @if let Some(fullest) = fullest {
                (tile("Utilisation", percent(fullest.utilisation_ppm), format!("of {}", fullest.name), false))
            }
            @if let Some(machine) = summary.machine_utilisation_ppm {
                (tile("All CPUs", percent(machine.into()), "used, with other programs".into(), false))
            }
            @if summary.lost_events > 0 { (tile("Events lost", count(summary.lost_events), "figures are incomplete".into(), true)) }
        }
    }
}

/// The meaning of the colours of a chart, by the names of its colours and in words.
pub fn legend(entries: &[(&str, &str)]) -> Markup {
    html! {
        ul class="legend" {
            @for (colour, name) in entries { li { i class={ "c-" (colour) } {} (name) } }
        }
    }
}

fn loads(summary: &Summary) -> Markup {
    if summary.epochs.len() < 2 || summary.over_time.is_empty() {
        return html! {};
    }
    html! {
        section {
            h2 { "Load by region" }
            p { "Declared: worst cases over periods. Used: CPU time of jobs. The dashed line is the whole CPU." }
            (legend(&[("frame", "declared"), ("ink", "used")]))
            div class="pair" {
                @for (index, processor) in summary.processors.iter().enumerate().take(MOST_LOADS) {
                    div { h3 { (processor.name) } (PreEscaped(chart::load(&summary.epochs, index))) }
                }
            }
            @if summary.processors.len() > MOST_LOADS { p { (summary.processors.len() - MOST_LOADS) " more processors are in the JSON report." } }
            (epochs(summary))
        }
    }
}

/// Processors whose load is drawn.
const MOST_LOADS: usize = 8;

fn responses(summary: &Summary) -> Markup {
    let Some(range) = chart::response_range(&summary.classes) else { return html! {} };
    html! {
        section {
            h2 { "Response times" }
            p { "From the nominal release of a job to its end, as a share of the finished jobs of its class. The axis is logarithmic." }
            div class="pair" {
                @for class in &summary.classes {
                    @if let Some(times) = &class.response {
                        div {
                            h3 { @if class.critical { "Critical" } @else { "Non-critical" } }
                            (PreEscaped(chart::responses(class, range)))
                            ul class="legend" {
                                li { "median " (signless(times.p50_ns)) }
                                li { "99 % within " (signless(times.p99_ns)) }
                                li { "greatest " (signless(times.max_ns)) }
                            }
                        }
                    }
                }
            }
            (distribution::distributions(summary))
        }
    }
}

fn plan(summary: &Summary) -> Markup {
    html! {
        section {
            h2 { "Plan" }
            p { "Levels of each processor, most urgent first. A job of an upper level runs before any job of a lower one. The second column is the order within a level." }
            @for processor in &summary.processors {
                h3 {
                    (processor.name) " on " (processor.host)
                    @if let Some(cpu) = processor.cpu { ", CPU " (cpu) }
                    " · " (processor.strategies()) " · preemption: " (processor.preemption)
                    @if processor.cancel { " · late jobs are cancelled" }
                    " · utilisation " (percent(processor.utilisation_ppm))
                }
                @if let Some(overload) = &processor.overload {
                    h4 { (processor.strategy) ", at first" }
                    (order(&processor.levels))
                    h4 { (overload.strategy) ", in overload" }
                    (order(&overload.levels))
                } @else {
                    (order(&processor.levels))
                }
            }
        }
    }
}

fn order(levels: &[LevelSummary]) -> Markup {
    html! {
        ol class="order" {
            @for level in levels {
                li {
                    span { (level.label) @if level.critical { " " span class="badge" { "critical" } } }
                    span { (level.discipline) }
                    span class="ops" { (level.operations.join(", ")) }
                }
            }
        }
    }
}

fn configuration(summary: &Summary, source: &str) -> Markup {
    html! {
        section {
            h2 { "Reproduce" }
            p { "The same seed results in the same execution times and jitter under every strategy." }
            pre { code { (summary.hyoshi.command) } }
            p {}
            dl {
                dt { "File" } dd { (summary.system.file) }
                dt { "Seed" } dd { (summary.system.seed) }
                dt { "Version" } dd { (summary.hyoshi.version) }
            }
        }
        section {
            details { summary { "The system's file" } pre { code { (source) } } }
        }
    }
}

fn signless(value: i64) -> String {
    nanos(value.max(0).unsigned_abs())
}

/// A wall-clock time for people: `2026-11-21 04:58:12 UTC`.
fn utc(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01 in eras of 400 years (Hinnant, "chrono-compatible low-level date algorithms").
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    #[test]
    fn control_characters_are_escaped_in_title_and_body() {
        let page = super::document("a\x1b]0;x\x07", &maud::html! { p { "one\n\ttwo\x1b[31m\u{202e}" } }).into_string();
        assert!(page.contains("<title>a\\u{1b}]0;x\\u{7} · Hyoshi</title>"), "{page}");
        assert!(page.contains("<p>one\n\ttwo\\u{1b}[31m\\u{202e}</p>"), "{page}");
    }

    #[test]
    fn a_start_is_printed_in_the_civil_calendar() {
        assert_eq!(super::utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(super::utc(951_782_400_000_000_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(super::utc(1_795_236_581_000_000_000), "2026-11-21 04:49:41 UTC");
    }
}
