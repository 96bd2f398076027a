//! The experiments as one HTML page: verdicts, and a chart for each figure of the paper.

use hyoshi_report::chart::{AxisLabels, Colour, Series, lines};
use hyoshi_report::figures::{count, nanos, percent};
use hyoshi_report::html::{document, legend};
use maud::{Markup, PreEscaped, html};

use super::claims::{in_samples, precise, settled, steady};
use super::experiments::{FcsRuns, FcsServer, PortabilityRow};
use super::kernel::FcsKernel;
use super::paper::{self, PaperFigure};
use super::run::FcsRun;
use super::terminal::{is_capped_form, varying_name};
use super::varying::VaryingRun;
use super::workload::FcsVariant;
use super::{FcsFigures, FcsReproduction};
use crate::claim::html::{tiles, verdicts};

impl FcsReproduction {
    /// The page. `command` is the command line that made it.
    pub fn html(&self, command: &str) -> String {
        let figures = &self.figures;
        let body = html! {
            header {
                h1 { "FCS/nORB, reproduced" }
                p { "Lu, Wang and Gill, " i { "Feedback Control Real-Time Scheduling in ORB Middleware" } ", RTAS 2003." }
                p {
                    "Experiments II and III of full length in virtual time"
                    @if let Some(kernel) = &figures.kernel { "; on the kernel with a sampling period of " (nanos(kernel.period_ns)) }
                    " · seed " (figures.seed)
                }
            }
            (tiles(&self.claims))
            @if !self.notes().is_empty() { ul class="notes" { @for note in self.notes() { li class="degraded" { (note) } } } }
            (verdicts(&self.claims, "Each claim of the paper with a rating computed from the figures below."))
            (portability(&figures.simulated, None))
            (varying(&figures.simulated, None))
            (margin(figures))
            @if let Some(kernel) = &figures.kernel {
                (portability(&kernel.runs, Some(kernel)))
                (varying(&kernel.runs, Some(kernel)))
                @if !kernel.overhead.is_empty() { (overhead(kernel)) }
            }
            section { h2 { "Command" } pre { code { (command) } } }
        };
        document("FCS/nORB reproduced", &body).into_string()
    }
}

fn line_legend() -> Markup {
    html! {
        (legend(&[
            (Colour::Made.variable(), "utilisation"),
            (Colour::Missed.variable(), "miss ratio"),
            (Colour::Other.variable(), "B, the total estimated utilisation (dashed)"),
        ]))
    }
}

/// U, M and B over the samples, as in the paper's figures.
fn over_time(name: &str, run: &FcsRun, figure: Option<PaperFigure>) -> Markup {
    let title = figure.as_ref().map_or(name.to_owned(), |figure| format!("figure {}: {name}", figure.number));
    let names = (1..=run.samples.len()).map(|number| number.to_string()).collect();
    let labels = AxisLabels { title: "sampling period".into(), names };
    let part = |ppm: u64| Some(ppm as f64 / 1e4);
    let utilisation = run.samples.iter().map(|sample| sample.utilisation_ppm.and_then(part)).collect();
    let misses = run.samples.iter().map(|sample| part(sample.miss_ratio_ppm())).collect();
    let mut series = vec![
        Series { colour: Colour::Made, dashed: false, values: utilisation },
        Series { colour: Colour::Missed, dashed: false, values: misses },
    ];
    if run.variant.algorithm().is_some() {
        let totals = run.samples.iter().map(|sample| part(sample.total_ppm)).collect();
        series.push(Series { colour: Colour::Other, dashed: true, values: totals });
    }
    let chart = lines(&title, &labels, &series, 0.0, |value| format!("{value:.0} %"));
    html! {
        div {
            h3 { (title) }
            (PreEscaped(chart))
            @if let Some(figure) = figure { p { "The paper: " (figure.text) "." } }
        }
    }
}

/// The table of several variants.
fn table(rows: &[&PortabilityRow]) -> Markup {
    html! {
        div class="wide" {
            table {
                thead { tr {
                    th { "variant" } th class="n" { "runs" } th class="n" { "utilisation" } th class="n" { "\u{b1} (90 %)" } th class="n" { "misses" }
                    th class="n" { "settled after" } th class="n" { "model" } th class="n" { "paper: utilisation" } th class="n" { "misses" }
                } }
                tbody {
                    @for PortabilityRow { server, variant, runs } in rows {
                        @let found = steady(runs);
                        tr {
                            td { (variant.name()) }
                            td class="n" { (runs.len()) }
                            td class="n" { @if let Some(one) = found { (precise(one.utilisation_ppm)) } }
                            td class="n" { @if let Some(one) = found { (precise(one.interval_ppm)) } }
                            td class="n" { @if let Some(one) = found { (precise(one.miss_ratio_ppm)) } }
                            @if variant.algorithm().is_some() {
                                td class="n" { (in_samples(settled(runs, |run| run.settled_after))) }
                                td class="n" { @if let Some(samples) = settled(runs, |run| run.model_settled_after) { (in_samples(Some(samples))) } }
                            } @else { td {} td {} }
                            @let (utilisation, missed) = paper::steady(*server, *variant).unwrap_or_default();
                            td class="n" { (utilisation) }
                            td class="n" { (missed) }
                        }
                    }
                }
            }
        }
    }
}

/// The place of runs, for headings.
fn place(kernel: Option<&FcsKernel>) -> &'static str {
    kernel.map_or("", |_| " on the kernel")
}

fn portability(runs: &FcsRuns, kernel: Option<&FcsKernel>) -> Markup {
    let rows = |server: FcsServer| runs.on(server).collect::<Vec<_>>();
    html! {
        section {
            h2 { "Experiment II" (place(kernel)) ": other servers" }
            p {
                "Server A needs twice the estimated execution times, server B 1.3 times. Settling is in samples. The model is the linear one with saturation, at the measured ratio of execution times."
                @if let Some(kernel) = kernel {
                    " Times of the paper are divided by " (kernel.scale) ". Utilisations relate to the hard cap of " (percent(kernel.cap_ppm.into())) "."
                }
            }
            h3 { "figure 6: steady state and settling on server A" }
            (table(&rows(FcsServer::A)))
            h3 { "The same on server B" }
            (table(&rows(FcsServer::B)))
            (line_legend())
            div class="pair" {
                @for row in &runs.portability {
                    @let name = format!("{} on server {:?}{}", row.variant.name(), row.server, place(kernel));
                    @if let Some(run) = row.runs.first() { (over_time(&name, run, paper::figure(Some(row.server), row.variant))) }
                }
            }
        }
    }
}

fn phases(one: &VaryingRun, all: &FcsRuns) -> Markup {
    let name = varying_name(one, all);
    let paper = paper::phases(one.run.variant).filter(|_| !is_capped_form(one, all));
    let paper = paper.map_or([""; 3], |(utilisations, _)| utilisations);
    html! {
        @for (phase, paper) in one.phases.iter().zip(paper) {
            tr {
                td { (name) }
                td class="n" { (nanos(phase.from_ns)) }
                td class="n" { @if let Some(steady) = phase.steady { (precise(steady.utilisation_ppm)) } }
                td class="n" { @if let Some(steady) = phase.steady { (precise(steady.miss_ratio_ppm)) } }
                td class="n" { (percent(phase.most_missed_ppm)) }
                td class="n" { (count(phase.full)) }
                td class="n" { @if let Some(samples) = phase.settled_after { (samples) } }
                td class="n" { (paper) }
            }
        }
    }
}

fn varying(runs: &FcsRuns, kernel: Option<&FcsKernel>) -> Markup {
    html! {
        section {
            h2 { "Experiment III" (place(kernel)) ": varying execution times" }
            p {
                "Method 1 needs 1.5 times its first execution time from 200 s on, and a quarter of it from 900 s on"
                @if let Some(kernel) = kernel { ", divided by " (kernel.scale) }
                "."
            }
            div class="wide" {
                table {
                    thead { tr { th { "variant" } th class="n" { "from" } th class="n" { "utilisation, 2nd half" } th class="n" { "misses" } th class="n" { "most in a sample" } th class="n" { "full samples" } th class="n" { "settled after" } th class="n" { "paper: utilisation" } } }
                    tbody { @for one in &runs.varying { (phases(one, runs)) } }
                }
            }
            (line_legend())
            div class="pair" {
                @for one in &runs.varying {
                    (over_time(&format!("{}{}", varying_name(one, runs), place(kernel)), &one.run, paper::figure(None, one.run.variant)))
                }
            }
        }
    }
}

fn margin(figures: &FcsFigures) -> Markup {
    html! {
        section {
            h2 { "The safety margin of FC-U" }
            p { "All execution times rise at once while FC-U holds 70 %." }
            table {
                thead { tr { th class="n" { "execution times" } th class="n" { "utilisation demanded" } th class="n" { "missed" } th class="n" { "most in a sample" } } }
                tbody { @for one in &figures.margin { tr {
                    td class="n" { (one.percent) " %" }
                    td class="n" { (percent(one.demand_ppm)) }
                    td class="n" { (count(one.missed)) }
                    td class="n" { (percent(one.most_missed_ppm)) }
                } } }
            }
        }
    }
}

fn overhead(kernel: &FcsKernel) -> Markup {
    html! {
        section {
            h2 { "Experiment I: CPU time of a loop (table 3)" }
            div class="wide" {
                table {
                    thead { tr { th { "variant" } th class="n" { "runs" } th class="n" { "server" } th class="n" { "\u{b1} (90 %)" } th class="n" { "each sample" } th class="n" { "\u{b1}" } th class="n" { "clients' part" } th class="n" { "with a period of 4 s" } th class="n" { "paper" } } }
                    tbody { @for one in &kernel.overhead { tr {
                        td { (one.variant.name()) }
                        td class="n" { (one.runs) }
                        td class="n" { (precise(one.utilisation_ppm)) }
                        td class="n" { (precise(one.interval_ppm)) }
                        @if one.variant == FcsVariant::Open { td {} td {} td {} td {} td {} } @else {
                            td class="n" { (format!("{:.1} us", one.cost_ns as f64 / 1e3)) }
                            td class="n" { (nanos(one.cost_interval_ns)) }
                            td class="n" { (format!("{:.1} us", one.client_cost_ns as f64 / 1e3)) }
                            td class="n" { (format!("{:.4} %", one.overhead_ppm / 1e4)) }
                            td class="n" { @if let Some(percent) = one.paper_percent { (format!("{percent:.2} %")) } }
                        }
                    } } }
                }
            }
        }
    }
}
