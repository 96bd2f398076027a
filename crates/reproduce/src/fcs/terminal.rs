//! The experiments in a terminal: tables with the paper's figures.

use hyoshi_report::TerminalStyle;
use hyoshi_report::figures::{count, nanos, percent, printable};
use hyoshi_report::terminal::grid::{CellValue, Tone, column, grid};

use super::claims::{fifth_sample, in_samples, precise, settled, steady};
use super::experiments::{FcsRuns, FcsServer, PortabilityRow};
use super::kernel::FcsKernel;
use super::overhead::LoopOverhead;
use super::varying::{MarginStep, VaryingRun};
use super::workload::{FcsVariant, MISS_RATIO_PPM};
use super::{FcsReproduction, paper};
use crate::claim::terminal::wrapped;

impl FcsReproduction {
    /// The heading and the notes.
    pub fn heading(&self, style: TerminalStyle) -> String {
        let mut about = format!("in virtual time, seed {}", self.figures.seed);
        if let Some(kernel) = &self.figures.kernel {
            about.push_str(&format!("; on the kernel with a sampling period of {}", nanos(kernel.period_ns)));
        }
        let mut text = format!("{}  {}\n\n", style.bold("fcs reproduced"), style.quiet(&about));
        for note in self.notes() {
            text.push_str(&wrapped(style, "  note: ", &printable(note)));
        }
        text
    }

    /// The tables.
    pub fn tables(&self, style: TerminalStyle) -> String {
        let mut text = String::new();
        let mut section = |title: &str, body: String| text.push_str(&format!("\n{}\n{body}", style.bold(title)));
        let kernel = self.figures.kernel.as_ref();
        let all = [(&self.figures.simulated, "")];
        for (all, place) in all.into_iter().chain(kernel.map(|kernel| (&kernel.runs, ", on the kernel, of the cap"))) {
            for server in FcsServer::ALL {
                let rows: Vec<_> = all.on(server).collect();
                if !rows.is_empty() {
                    let mut body = runs(style, &rows);
                    if let Some(fifth) = fifth_sample(all).filter(|_| server == FcsServer::A) {
                        let text = format!("FC-U, fifth sample: {}; in the paper 67.7 % (figure 5)", percent(fifth));
                        body.push_str(&wrapped(style, "  ", &text));
                    }
                    section(&format!("{}{place}", title(server)), body);
                }
            }
            if !all.varying.is_empty() {
                let title = format!("Experiment III{place}: before the steps, after each (figures 10 to 12)");
                section(&title, varying(style, all));
            }
        }
        section("FC-U: a step of all execution times (section 4.4)", margin(style, &self.figures.margin));
        if let Some(kernel) = kernel.filter(|kernel| !kernel.overhead.is_empty()) {
            section("Experiment I: a loop's CPU time (table 3)", overhead(style, kernel));
        }
        text
    }
}

/// The title of a table of experiment II.
fn title(server: FcsServer) -> String {
    let figures = match server {
        FcsServer::A => "figure 6",
        FcsServer::B => "figures 7 to 9",
    };
    format!("Experiment II, server {server:?}, {} x estimates ({figures})", server.gain_percent() as f64 / 100.0)
}

fn misses(ppm: u64) -> CellValue {
    let bad = ppm > u64::from(MISS_RATIO_PPM) * 6 / 5;
    CellValue::figure(precise(ppm)).in_tone(if bad { Tone::Bad } else { Tone::Plain })
}

fn runs(style: TerminalStyle, rows: &[&PortabilityRow]) -> String {
    let columns = [
        column("variant"),
        column("utilisation"),
        column("misses"),
        column("settled after"),
        column("model").if_any(),
        column("paper").if_any(),
        column("misses").if_any(),
    ];
    let row = |PortabilityRow { server, variant, runs }: &&PortabilityRow| {
        let found = steady(runs);
        let (utilisation, missed) = paper::steady(*server, *variant).unwrap_or_default();
        let is_loop = variant.algorithm().is_some();
        let after = if is_loop { in_samples(settled(runs, |run| run.settled_after)) } else { String::new() };
        let model = settled(runs, |run| run.model_settled_after);
        vec![
            CellValue::words(variant.name()),
            CellValue::figure(found.map_or("-".into(), |one| {
                format!("{} \u{b1}{:.2}", precise(one.utilisation_ppm), one.interval_ppm as f64 / 1e4)
            })),
            found.map_or(CellValue::figure("-"), |one| misses(one.miss_ratio_ppm)),
            CellValue::figure(after),
            CellValue::figure(model.map_or(String::new(), |samples| in_samples(Some(samples)))),
            CellValue::figure(utilisation),
            CellValue::figure(missed),
        ]
    };
    grid(style, &columns, &rows.iter().map(row).collect::<Vec<_>>(), usize::MAX)
}

/// Whether a run of experiment III has caps beside one without.
pub(super) fn is_capped_form(one: &VaryingRun, all: &FcsRuns) -> bool {
    all.varying(one.run.variant).is_some_and(|first| first.capped != one.capped)
}

/// The name of a run of experiment III.
pub(super) fn varying_name(one: &VaryingRun, all: &FcsRuns) -> String {
    format!("{}{}", one.run.variant.name(), if is_capped_form(one, all) { ", capped" } else { "" })
}

fn varying(style: TerminalStyle, all: &FcsRuns) -> String {
    let columns = [
        column("variant"),
        column("before"),
        column("step up"),
        column("misses"),
        column("most"),
        column("settled").if_any(),
        column("step down").if_any(),
        column("settled").if_any(),
    ];
    let row = |one: &VaryingRun| {
        let level = |phase: usize| {
            let steady = one.phases.get(phase).and_then(|phase| phase.steady);
            CellValue::figure(steady.map_or(String::new(), |steady| percent(steady.utilisation_ppm)))
        };
        let of = |phase: usize| one.phases.get(phase);
        let settled = |phase: usize| {
            let samples = of(phase).and_then(|phase| phase.settled_after);
            CellValue::figure(samples.map_or(String::new(), count))
        };
        let missed = |ppm: Option<u64>| ppm.map_or(CellValue::figure(""), misses);
        let here = vec![
            CellValue::words(varying_name(one, all)),
            level(0),
            level(1),
            missed(of(1).and_then(|phase| phase.steady).map(|steady| steady.miss_ratio_ppm)),
            missed(of(1).map(|phase| phase.most_missed_ppm)),
            settled(1),
            level(2),
            settled(2),
        ];
        let paper =
            paper::phases(one.run.variant).filter(|_| !is_capped_form(one, all)).map(|([before, up, down], misses)| {
                let cells = [before, up, misses, "", "", down, ""].map(CellValue::figure);
                std::iter::once(CellValue::words("  the paper")).chain(cells).collect()
            });
        std::iter::once(here).chain(paper)
    };
    grid(style, &columns, &all.varying.iter().flat_map(row).collect::<Vec<_>>(), usize::MAX)
}

fn margin(style: TerminalStyle, steps: &[MarginStep]) -> String {
    let columns = [column("execution times"), column("utilisation demanded"), column("missed"), column("most misses")];
    let row = |one: &MarginStep| {
        vec![
            CellValue::figure(format!("{} %", one.percent)),
            CellValue::figure(percent(one.demand_ppm)),
            CellValue::Count(one.missed, if one.missed > 0 { Tone::Bad } else { Tone::Plain }),
            CellValue::figure(percent(one.most_missed_ppm)),
        ]
    };
    grid(style, &columns, &steps.iter().map(row).collect::<Vec<_>>(), usize::MAX)
}

fn overhead(style: TerminalStyle, kernel: &FcsKernel) -> String {
    let columns = [
        column("variant"),
        column("runs"),
        column("server"),
        column("each sample"),
        column("±"),
        column("clients' part").spare(1),
        column("at 4 s"),
        column("paper").if_any(),
    ];
    let row = |one: &LoopOverhead| {
        let base = one.variant == FcsVariant::Open;
        let or_base = |cell: CellValue| if base { CellValue::figure("") } else { cell };
        vec![
            CellValue::words(one.variant.name()),
            CellValue::figure(count(one.runs)),
            CellValue::figure(format!("{} \u{b1}{:.2}", precise(one.utilisation_ppm), one.interval_ppm as f64 / 1e4)),
            or_base(CellValue::signed_time(one.cost_ns)),
            or_base(CellValue::time(one.cost_interval_ns)),
            or_base(CellValue::signed_time(one.client_cost_ns)),
            or_base(CellValue::figure(format!("{:.4} %", one.overhead_ppm / 1e4))),
            CellValue::figure(one.paper_percent.map_or(String::new(), |percent| format!("{percent:.2} %"))),
        ]
    };
    grid(style, &columns, &kernel.overhead.iter().map(row).collect::<Vec<_>>(), usize::MAX)
}
