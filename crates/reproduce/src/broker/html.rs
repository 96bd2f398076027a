//! The experiments as one HTML page: verdicts, and a chart for each figure of the paper.

use hyoshi_report::chart::{AxisLabels, Colour, Series, lines, stacked};
use hyoshi_report::figures::{count, nanos, percent};
use hyoshi_report::html::{document, legend};
use maud::{Markup, PreEscaped, html};

use super::arbitration::ImportanceStage;
use super::kernel::{Arbitrated, Cost};
use super::prediction::Predicted;
use super::terminal::title;
use super::tracking::{Tracked, TrackedCycle};
use super::{BrokerFigures, BrokerReproduction};
use crate::claim::html::{tiles, verdicts};

impl BrokerReproduction {
    /// The page. `command` is the command line that made it.
    pub fn html(&self, command: &str) -> String {
        let kernel = self.figures.kernel.as_ref();
        let body = html! {
            header {
                h1 { "The CPU Broker's experiments, reproduced" }
                p { "Eide, Stack, Regehr and Lepreau, " i { "Dynamic CPU Management for Real-Time, Middleware-Based Systems" } ", University of Utah, UUCS-04-004, 2004." }
            }
            (tiles(&self.claims))
            @if !self.notes().is_empty() { ul class="notes" { @for note in self.notes() { li class="degraded" { (note) } } } }
            (verdicts(&self.claims, "Each claim of the paper with a rating computed from the figures below: first in \
                                     virtual time, then with real programs on the kernel."))
            @if let Some(costs) = kernel.and_then(|kernel| kernel.overhead.as_deref()) { (overhead(costs)) }
            (tracked(&self.figures))
            (arbitrated(&self.figures))
            (predicted(&self.figures.predicted))
            section { h2 { "Command" } pre { code { (command) } } }
        };
        document("The CPU Broker reproduced", &body).into_string()
    }
}

/// A figure: its title, and its chart.
fn figure(title: &str, chart: String) -> Markup {
    html! { div { h3 { (title) } (PreEscaped(chart)) } }
}

fn millis(value: f64) -> String {
    format!("{value:.0} ms")
}

fn series(colour: Colour, dashed: bool, values: impl Iterator<Item = u64>) -> Series {
    Series { colour, dashed, values: values.map(|ns| Some(ns as f64 / 1e6)).collect() }
}

fn numbered(title: &str, count: usize) -> AxisLabels {
    AxisLabels { title: title.into(), names: (0..count).map(|number| number.to_string()).collect() }
}

fn overhead(costs: &[Cost]) -> Markup {
    html! {
        section {
            h2 { "What a report costs (table I)" }
            p { "CPU time of monitor and broker together, and the time that the monitor waits, averaged over the \
                 reports. The paper's processor ran at 850 MHz." }
            div class="wide" {
                table {
                    thead { tr { th { "configuration" } th class="n" { "reports" } th class="n" { "CPU" } th class="n" { "paper" } th class="n" { "latency" } th class="n" { "median" } th class="n" { "paper" } } }
                    tbody {
                        @for cost in costs {
                            tr {
                                td { (cost.configuration) }
                                td class="n" { (count(cost.reports)) }
                                td class="n" { (nanos(cost.cpu_ns)) }
                                td class="n" { (nanos(cost.paper_cpu_ns)) }
                                td class="n" { @if let Some(latency) = cost.latency_ns { (nanos(latency)) } }
                                td class="n" { @if let Some(latency) = cost.median_latency_ns { (nanos(latency)) } }
                                td class="n" { (nanos(cost.paper_latency_ns)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn demand(tracked: &Tracked) -> String {
    let values = |of: fn(&TrackedCycle) -> u64| tracked.cycles.iter().map(of);
    let both = [
        series(Colour::Other, false, values(|cycle| cycle.demand_ns)),
        series(Colour::Critical, false, values(|cycle| cycle.held_ns)),
    ];
    lines("demand and reservation", &numbered("period", tracked.cycles.len()), &both, 0.0, millis)
}

fn tracked(figures: &BrokerFigures) -> Markup {
    let summary = |tracked: &Tracked| {
        let (early, late) = tracked.missed();
        format!(
            "{early} deadlines missed while the broker learned, {late} later; {} reserved beyond the demand.",
            percent(tracked.over_ppm())
        )
    };
    let on_kernel = figures.kernel.as_ref().and_then(|kernel| kernel.tracked.as_ref());
    html! {
        section {
            h2 { "Changing demand (figure 4)" }
            p { "Phases of 100, 150 and 200 ms in a period of 300 ms; MaxDecay requests the greatest of the last \
                 three reports plus 5 %." }
            (legend(&[(Colour::Other.variable(), "demand"), (Colour::Critical.variable(), "reserved")]))
            div class="pair" {
                div { (figure("In virtual time", demand(&figures.tracked))) p { (summary(&figures.tracked)) } }
                @if let Some(on_kernel) = on_kernel {
                    div {
                        (figure(&format!("On the kernel, beside {} spinners", on_kernel.spinners), demand(&on_kernel.tracked)))
                        p { (summary(&on_kernel.tracked)) }
                    }
                }
            }
        }
    }
}

const TASKS: [Colour; 3] = [Colour::Critical, Colour::Made, Colour::Cancelled];

/// Stacked reservations of the three tasks.
fn shares(stages: &[ImportanceStage]) -> String {
    let part =
        |(task, colour): (usize, Colour)| series(colour, false, stages.iter().map(move |stage| stage.held_ns[task]));
    let parts: Vec<Series> = TASKS.into_iter().enumerate().map(part).collect();
    let name = |stage: &ImportanceStage| stage.importances.map(|one| one.to_string()).join(", ");
    let labels =
        AxisLabels { title: "importances of the tasks 1, 2, 3".into(), names: stages.iter().map(name).collect() };
    stacked("reservations", &labels, &parts, millis)
}

fn arbitrated(figures: &BrokerFigures) -> Markup {
    let kernel = figures.kernel.as_ref();
    let played: Vec<&Arbitrated> =
        kernel.into_iter().flat_map(|kernel| [&kernel.soft, &kernel.hard]).flatten().collect();
    html! {
        section {
            h2 { "Changing importances (figure 5)" }
            p { "Three tasks request 95, 125 and 40 ms in 250 ms; Strict grants at most 75 % (187.5 ms). A command \
                 raises the third task's importance above the second's; another command restores it." }
            (legend(&[(TASKS[0].variable(), "task 1"), (TASKS[1].variable(), "task 2"), (TASKS[2].variable(), "task 3")]))
            div class="pair" {
                (figure("In virtual time", shares(&figures.arbitrated)))
                @for one in &played { (figure(&title(one), shares(&one.stages))) }
            }
            @for one in &played { h3 { (title(one)) } (served(&one.stages)) }
        }
    }
}

fn served(stages: &[ImportanceStage]) -> Markup {
    html! {
        div class="wide" {
            table {
                thead { tr { th { "importances" } th class="n" { "settled after" } @for task in 1..=3 { th class="n" { "task " (task) " reserved" } th class="n" { "obtained" } th class="n" { "met" } } } }
                tbody {
                    @for stage in stages {
                        tr {
                            td { (stage.importances.map(|one| one.to_string()).join(", ")) }
                            td class="n" { (nanos(stage.settled_ns)) }
                            @for (held, served) in stage.held_ns.iter().zip(&stage.served) {
                                td class="n" { (nanos(*held)) }
                                td class="n" { (nanos(served.mean_obtained_ns)) }
                                td class="n" { (served.met) " of " (served.periods) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn predicted(predicted: &Predicted) -> Markup {
    let trace = &predicted.trace;
    let labels = numbered("report", trace.demand_ns.len());
    let beside = |asked: &[u64]| {
        let both = [
            series(Colour::Other, false, trace.demand_ns.iter().copied()),
            series(Colour::Critical, false, asked.iter().copied()),
        ];
        lines("demand and request", &labels, &both, 0.0, millis)
    };
    html! {
        section {
            h2 { "Predicted spikes (figure 6)" }
            p { "A program that collects garbage about every ten reports, in virtual time." }
            (legend(&[(Colour::Other.variable(), "demand"), (Colour::Critical.variable(), "requested before it")]))
            div class="pair" {
                (figure("The proactive advocate", beside(&trace.proactive_ns)))
                (figure("MaxDecay over five reports", beside(&trace.max_decay_ns)))
            }
            p { "Over " (predicted.programs) " programs with spikes every 4 to 60 reports, of many sizes, lengths \
                                              and regularities:" }
            div class="wide" {
                table {
                    thead { tr { th { "advocate" } th class="n" { "reserved beyond the demand" } th class="n" { "spikes missed" } th class="n" { "of" } } }
                    tbody {
                        @for score in std::iter::once(&predicted.proactive).chain(&predicted.max_decay) {
                            tr {
                                td { (score.advocate) }
                                td class="n" { (percent(score.over_ppm())) }
                                td class="n" { (percent(score.missed_ppm())) }
                                td class="n" { (count(score.spikes)) }
                            }
                        }
                    }
                }
            }
        }
    }
}
