//! The experiment as one HTML page: verdicts, and a chart for each figure of the paper.

use hyoshi_report::chart::{AxisLabels, Colour, Series, lines, stacked};
use hyoshi_report::figures::{count, nanos, percent};
use hyoshi_report::html::{document, legend};
use maud::{Markup, PreEscaped, html};

use super::best::best;
use super::links::LinkRow;
use super::overhead::Threshold;
use super::program::{LAST_FEASIBLE, REGIONS};
use super::queueing::{QueueingCost, RowQueueing};
use super::tally::{Deadlines, RegionCounts};
use super::trial::TrialRow;
use super::{Class, KokyuFigures, Reproduced, links};
use crate::claim::html::{tiles, verdicts};

impl Reproduced {
    /// The page. `command` is the command line that made it.
    pub fn html(&self, command: &str) -> String {
        let body = html! {
            header {
                h1 { "Kokyu's experiment, reproduced" }
                p { "Gill, Cytron and Schmidt, " i { "Multiparadigm Scheduling for Distributed Real-Time Embedded Computing" } ", Proceedings of the IEEE 91(1), 2003." }
                p {
                    "Twelve operating regions of " (nanos(self.figures.region_ns)) " each in virtual time"
                    @if let Some(kernel) = &self.figures.kernel { ", and of " (nanos(kernel.region_ns)) " each on the kernel" }
                    " · seed " (self.figures.seed) ", the same for every strategy"
                }
            }
            (tiles(&self.claims))
            @let notes = self.notes();
            @if !notes.is_empty() { ul class="notes" { @for note in &notes { li class="degraded" { (note) } } } }
            (verdicts(&self.claims, "Each claim of the paper with a rating computed from the figures below: first by \
                                     simulations of full length, then by runs on the kernel."))
            (regions(&self.figures))
            (requests(&self.figures))
            (deadlines(&self.figures))
            (queueing(&self.figures))
            (execution(&self.figures))
            (thresholds(&self.figures.thresholds))
            (effective(&self.figures))
            (linked(&self.figures.links))
            section { h2 { "Command" } pre { code { (command) } } }
        };
        document("Kokyu reproduced", &body).into_string()
    }
}

fn region_labels() -> AxisLabels {
    AxisLabels { title: "region".into(), names: (0..REGIONS.len()).map(|index| index.to_string()).collect() }
}

fn colour(strategy: &str) -> Colour {
    match strategy {
        "RMS" => Colour::Missed,
        "MUF" => Colour::Critical,
        "RMS+MLF" => Colour::Made,
        _ => Colour::Other,
    }
}

/// A line for each trial; dashed with cancellation.
fn trials(rows: &[TrialRow], of: impl Fn(&RegionCounts) -> f64) -> Vec<Series> {
    let line = |row: &TrialRow| {
        let values = row.regions.iter().map(|counts| Some(of(counts))).collect();
        Series { colour: colour(&row.strategy), dashed: row.cancel, values }
    };
    rows.iter().map(line).collect()
}

fn trial_legend() -> Markup {
    let names =
        [("RMS", Colour::Missed), ("MUF", Colour::Critical), ("RMS+MLF", Colour::Made), ("switching", Colour::Other)];
    let entries: Vec<(&str, &str)> = names.map(|(name, colour)| (colour.variable(), name)).into();
    html! { (legend(&entries)) p { "Dashed: with cancellation (©)." } }
}

fn whole(value: f64) -> String {
    count(value.max(0.0).round() as u64)
}

/// A figure: its title and its chart.
fn figure(title: &str, chart: String) -> Markup {
    html! { div { h3 { (title) } (PreEscaped(chart)) } }
}

fn requests(figures: &KokyuFigures) -> Markup {
    let enqueued = |rows: &[TrialRow]| {
        lines("requests enqueued", &region_labels(), &trials(rows, |c| c.enqueued as f64), 0.0, whole)
    };
    html! {
        section {
            h2 { "Requests enqueued (figure 6)" }
            p { "The paper: without cancellation, and under RMS also with it, the number rises linearly from about \
                 3,100 in regions 0 and 1 to above 4,500 in region 11. With cancellation MUF and RMS+MLF enqueue \
                 fewer. A region here lasts " (nanos(figures.region_ns)) "." }
            p { "7 s of it offer 3,101 to 4,501 requests, as in the paper." }
            (trial_legend())
            div class="pair" {
                (figure("In virtual time", enqueued(&figures.simulated)))
                @if let Some(kernel) = &figures.kernel { (figure("On the kernel", enqueued(&kernel.rows))) }
            }
        }
    }
}

fn outcomes(row: &TrialRow, class: Class) -> String {
    let part = |colour, of: fn(&Deadlines) -> u64| {
        let values = row.regions.iter().map(|counts| Some(of(&class(counts)) as f64)).collect();
        Series { colour, dashed: false, values }
    };
    let parts = [
        part(Colour::Made, |one| one.made),
        part(Colour::Missed, |one| one.missed),
        part(Colour::Cancelled, |one| one.cancelled),
    ];
    stacked("deadlines", &region_labels(), &parts, whole)
}

fn deadlines(figures: &KokyuFigures) -> Markup {
    let simulated: Vec<TrialRow> = figures.with_switching().cloned().collect();
    let beside = |row: &TrialRow| match row.name().as_str() {
        "MUF ©" => " (figure 7)",
        "MUF" => " (figure 8)",
        "RMS" => " (figure 9)",
        _ => "",
    };
    let missed = |rows: &[TrialRow]| {
        lines("critical misses", &region_labels(), &trials(rows, |c| c.critical.missed as f64), 0.0, whole)
    };
    let made = |rows: &[TrialRow]| {
        lines("non-critical made", &region_labels(), &trials(rows, |c| c.non_critical.made as f64), 0.0, whole)
    };
    html! {
        section {
            h2 { "Operation deadlines (figures 7 to 9)" }
            p { "The paper: MUF and RMS+MLF met all critical deadlines except one each. RMS met them only in regions \
                 0 to 6, where it made more non-critical deadlines. Cancellation lowered the misses; under RMS it \
                 cancelled nothing." }
            (legend(&[("made", "made"), ("missed", "missed"), ("cancelled", "cancelled")]))
            div class="pair" {
                @for row in &simulated { (figure(&format!("{}{}", row.name(), beside(row)), outcomes(row, RegionCounts::all))) }
            }
        }
        section {
            h2 { "By class" }
            (trial_legend())
            div class="pair" {
                (figure("Critical deadlines missed, in virtual time", missed(&simulated)))
                (figure("Non-critical deadlines made, in virtual time", made(&simulated)))
                @if let Some(kernel) = &figures.kernel {
                    (figure("Critical deadlines missed, on the kernel", missed(&kernel.rows)))
                    (figure("Non-critical deadlines made, on the kernel", made(&kernel.rows)))
                }
            }
        }
    }
}

fn queueing(figures: &KokyuFigures) -> Markup {
    let rows = figures.kernel.as_ref().map_or(&figures.queueing, |kernel| &kernel.queueing);
    let source = if figures.kernel.is_some() {
        "on the kernel, under the lock of the dispatcher"
    } else {
        "of the dispatcher's own code, in a simulation"
    };
    let series = |of: fn(&QueueingCost) -> u64| -> Vec<Series> {
        let line = |row: &RowQueueing| {
            let values = row.regions.iter().map(|cost| (cost.dequeue.count > 0).then(|| of(cost) as f64)).collect();
            Series { colour: colour(&row.strategy), dashed: row.cancel, values }
        };
        rows.iter().map(line).collect()
    };
    let chart = |label: &str, of| {
        lines(label, &region_labels(), &series(of), 0.0, |value| nanos(value.max(0.0).round() as u64))
    };
    html! {
        section {
            h2 { "Queueing latency (figures 10 and 11)" }
            p { "The paper: enqueueing and dequeueing together cost about 12 us per request under RMS and RMS+MLF \
                 and 32 us under MUF, the same in all regions. Here: medians " (source) "." }
            (trial_legend())
            div class="pair" {
                (figure("Enqueue (figure 10)", chart("enqueue latency", |cost| cost.enqueue.median_ns)))
                (figure("Dequeue (figure 11)", chart("dequeue latency", |cost| cost.dequeue.median_ns)))
            }
        }
    }
}

fn execution(figures: &KokyuFigures) -> Markup {
    let time = |value: f64| nanos(value.max(0.0).round() as u64);
    let critical = |rows: &[TrialRow]| {
        lines("execution latency", &region_labels(), &trials(rows, |c| c.critical_execution.mean_ns as f64), 0.0, time)
    };
    let other = |rows: &[TrialRow]| {
        lines(
            "execution latency",
            &region_labels(),
            &trials(rows, |c| c.non_critical_execution.mean_ns as f64),
            0.0,
            time,
        )
    };
    html! {
        section {
            h2 { "Execution latency" }
            p { "Mean time from the upcall to its return, including interruptions. The paper measured it but shows \
                 no figure." }
            (trial_legend())
            div class="pair" {
                (figure("Critical, in virtual time", critical(&figures.simulated)))
                (figure("Non-critical, in virtual time", other(&figures.simulated)))
                @if let Some(kernel) = &figures.kernel {
                    (figure("Critical, on the kernel", critical(&kernel.rows)))
                    (figure("Non-critical, on the kernel", other(&kernel.rows)))
                }
            }
        }
    }
}

fn thresholds(thresholds: &[Threshold]) -> Markup {
    html! {
        section {
            h2 { "Effect of overhead" }
            p { "The lowest factor on the paper's costs that causes a critical miss in a region without misses at no \
                 cost. At a factor of 1, queueing a request costs 12 us (MUF: 32 us). We assume 2 us for the check \
                 before an upcall, 5 us for a timer and 4 us for a switch." }
            div class="wide" {
                table {
                    thead { tr { th { "strategy" } th class="n" { "factor" } th class="n" { "queueing a request" } th { "first miss" } th class="n" { "region" } th class="n" { "critical misses" } } }
                    tbody {
                        @for one in thresholds {
                            tr {
                                td { (one.name()) }
                                @match (&one.first, one.scale_permille) {
                                    (Some(miss), Some(scale)) => {
                                        td class="n" { (format!("{:.2}", scale as f64 / 1e3)) }
                                        td class="n" { (nanos(one.queueing_ns)) }
                                        td { (miss.operation) " at " (nanos(miss.at_ns)) }
                                        td class="n" { (miss.region) }
                                        td class="n" { (count(miss.misses)) }
                                    }
                                    _ => { td class="n" { "none" } td {} td {} td {} td {} }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn effective(figures: &KokyuFigures) -> Markup {
    html! {
        section {
            h2 { "Most effective strategy by region (figure 12)" }
            p { "Of the strategies that missed no critical deadline, the one that made the most non-critical \
                 deadlines. The paper: RMS without cancellation below the feasible limit, RMS+MLF or MUF above it." }
            div class="wide" {
                table {
                    thead { tr { th { "region" } th { "best" } th class="n" { "non-critical made" } } }
                    tbody {
                        @for region in 0..REGIONS.len() {
                            @if let Some((names, made)) = best(&figures.simulated, region) {
                                tr { td { (region) } td { (names.join(", ")) } td class="n" { (count(made)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Each chart has a line for each strategy, over the delay of the link.
fn linked(rows: &[LinkRow]) -> Markup {
    let labels = AxisLabels {
        title: "delay of the link".into(),
        names: links::DELAYS.iter().map(|millis| format!("{millis}ms")).collect(),
    };
    let chart = |title: &str, group: (u64, bool), jitter: u64, of: fn(&LinkRow) -> u64, value: fn(f64) -> String| {
        let here = |row: &&LinkRow| row.group() == group && row.jitter_ns == jitter * 1_000_000;
        let line = |strategy: &&str| {
            let these = rows.iter().filter(here).filter(|row| row.strategy == *strategy);
            let values = these.map(|row| Some(of(row) as f64)).collect();
            Series { colour: link_colour(strategy), dashed: *strategy == "MLF", values }
        };
        let series: Vec<Series> = links::STRATEGIES.iter().map(line).collect();
        let title = format!("{title}: {}, jitter {jitter} ms", links::words(group));
        figure(&title, lines("over the delay of the link", &labels, &series, 0.0, value))
    };
    let time: fn(f64) -> String = |value| nanos(value.max(0.0).round() as u64);
    let entries = links::STRATEGIES.map(|name| (link_colour(name).variable(), name));
    html! {
        section {
            h2 { "Links with delay and jitter" }
            p { "Future work of the paper: the flight program, with a pod of sensors on another host. Three chains \
                 cross the link. One of them crosses it twice, with a deadline of 100 ms. Each signal has a random \
                 delay between the link's delay and the delay plus its jitter." }
            ul { @for sentence in links::sentences(rows) { li { (sentence) } } }
            (legend(&entries))
            p { "The line of MLF is dashed, because it often coincides with that of EDF." }
            div class="pair" {
                @for group in links::groups(rows) {
                    @for jitter in [links::JITTERS[0], links::JITTERS[4]] {
                        (chart("Critical deadlines missed", group, jitter, |row| row.critical.missed, whole))
                        (chart("99 % of round trips within", group, jitter, |row| row.p99_ns(links::ROUND_TRIP), time))
                    }
                    @for jitter in [links::JITTERS[0], links::JITTERS[4]] {
                        (chart("Non-critical deadlines missed", group, jitter, |row| row.non_critical.missed, whole))
                    }
                }
            }
        }
    }
}

fn link_colour(strategy: &str) -> Colour {
    match strategy {
        "EDF" => Colour::Cancelled,
        "MLF" => Colour::Other,
        other => colour(other),
    }
}

fn regions(figures: &KokyuFigures) -> Markup {
    html! {
        section {
            h2 { "Operating regions (table 2, figure 4)" }
            p { "Fixed work of 34 % and the legs of a route, 8.7 % each, with three critical operations of varying \
                 length. On average the processor is overloaded beyond region " (LAST_FEASIBLE) "." }
            div class="wide" {
                table {
                    thead { tr { th class="n" { "region" } th { "added critical work" } th class="n" { "route legs" } th class="n" { "declared load" } th class="n" { "load on average" } } }
                    tbody {
                        @for (index, region) in REGIONS.iter().enumerate() {
                            @let ppm = |loads: &[u64]| loads.get(index).map_or(String::new(), |ppm| percent(*ppm));
                            tr {
                                td class="n" { (index) }
                                td { @if region.jitters() { (nanos(region.added.0.as_nanos())) " to " (nanos(region.added.1.as_nanos())) } @else { "none" } }
                                td class="n" { (region.legs) }
                                td class="n" { (ppm(&figures.declared_ppm)) }
                                td class="n" { (ppm(&figures.mean_ppm)) }
                            }
                        }
                    }
                }
            }
        }
    }
}
