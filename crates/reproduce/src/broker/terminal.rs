//! The experiments in a terminal: tables with the paper's figures.

use hyoshi_report::TerminalStyle;
use hyoshi_report::figures::{count, nanos, percent, printable};
use hyoshi_report::terminal::grid::{CellValue, Tone, column, grid};

use super::BrokerReproduction;
use super::arbitration::ImportanceStage;
use super::kernel::{Arbitrated, Cost};
use super::prediction::Predicted;
use super::tracking::{PHASES, Tracked};
use crate::claim::terminal::wrapped;

impl BrokerReproduction {
    /// The heading and the notes.
    pub fn heading(&self, style: TerminalStyle) -> String {
        let about = match &self.figures.kernel {
            Some(_) => "figures 4 to 6 in virtual time; table I and figures 4 and 5 on the kernel",
            None => "figures 4 to 6 in virtual time",
        };
        let mut text = format!("{}  {}\n\n", style.bold("broker reproduced"), style.quiet(about));
        for note in self.notes() {
            text.push_str(&wrapped(style, "  note: ", &printable(note)));
        }
        text
    }

    /// The tables.
    pub fn tables(&self, style: TerminalStyle) -> String {
        let figures = &self.figures;
        let mut text = String::new();
        let mut section = |title: &str, body: String| text.push_str(&format!("\n{}\n{body}", style.bold(title)));
        if let Some(costs) = figures.kernel.as_ref().and_then(|kernel| kernel.overhead.as_deref()) {
            section("Cost of a report (table I)", overhead(style, costs));
        }
        section("Changing demand (figure 4), in virtual time", phases(style, &figures.tracked));
        let kernel = figures.kernel.as_ref();
        if let Some(on_kernel) = kernel.and_then(|kernel| kernel.tracked.as_ref()) {
            let title = format!("The same on the kernel, beside {} CPU-bound programs", on_kernel.spinners);
            section(&title, phases(style, &on_kernel.tracked));
        }
        section("Changing importances (figure 5), in virtual time", stages(style, &figures.arbitrated));
        for played in kernel.into_iter().flat_map(|kernel| [&kernel.soft, &kernel.hard]).flatten() {
            section(&title(played), stages(style, &played.stages));
        }
        section("Predicted spikes (figure 6)", predicted(style, &figures.predicted));
        text
    }
}

/// The title of figure 5 on the kernel.
pub(super) fn title(played: &Arbitrated) -> String {
    let caps = if played.scheduler == "deadline" { "hard caps" } else { "soft caps" };
    let place = played.cpu.map_or("on any CPU".into(), |cpu| format!("all on CPU {cpu}"));
    format!("The same on the kernel with {caps} ({}), {place}, spinners: {}", played.scheduler, played.spinners)
}

fn overhead(style: TerminalStyle, costs: &[Cost]) -> String {
    let columns = [
        column("configuration"),
        column("reports"),
        column("CPU"),
        column("paper"),
        column("latency"),
        column("median"),
        column("paper "),
    ];
    let or_none = |ns: Option<u64>| CellValue::figure(ns.map_or(String::new(), nanos));
    let rows: Vec<Vec<CellValue>> = costs
        .iter()
        .map(|cost| {
            vec![
                CellValue::words(cost.configuration),
                CellValue::Count(cost.reports, Tone::Plain),
                CellValue::figure(nanos(cost.cpu_ns)),
                CellValue::figure(nanos(cost.paper_cpu_ns)),
                or_none(cost.latency_ns),
                or_none(cost.median_latency_ns),
                CellValue::figure(nanos(cost.paper_latency_ns)),
            ]
        })
        .collect();
    grid(style, &columns, &rows, usize::MAX)
}

/// A row for each phase.
fn phases(style: TerminalStyle, tracked: &Tracked) -> String {
    let columns = [
        column("phase"),
        column("demand"),
        column("reserved first"),
        column("last"),
        column("missed"),
        column("beyond"),
    ];
    let phase = tracked.phase as usize;
    let row = |(number, cycles): (usize, &[super::tracking::TrackedCycle])| {
        let one = Tracked { phase: tracked.phase, cycles: cycles.to_vec() };
        let (early, late) = one.missed();
        let tone = if late > 0 { Tone::Bad } else { Tone::Plain };
        let held = |cycle: Option<&super::tracking::TrackedCycle>| {
            CellValue::figure(cycle.map_or(String::new(), |one| nanos(one.held_ns)))
        };
        vec![
            CellValue::figure((number + 1).to_string()),
            CellValue::figure(nanos(PHASES[number % PHASES.len()].as_nanos())),
            held(cycles.first()),
            held(cycles.last()),
            CellValue::Figure(format!("{} of {}", early + late, cycles.len()), tone),
            CellValue::figure(percent(one.over_ppm())),
        ]
    };
    let rows: Vec<Vec<CellValue>> = tracked.cycles.chunks(phase).enumerate().map(row).collect();
    grid(style, &columns, &rows, usize::MAX)
}

/// Three tasks, stage by stage.
fn stages(style: TerminalStyle, stages: &[ImportanceStage]) -> String {
    let columns = [
        column("importances"),
        column("task 1"),
        column("task 2"),
        column("task 3"),
        column("sum"),
        column("settled").if_any(),
        column("1 met").if_any(),
        column("2 met").if_any(),
        column("3 met").if_any(),
    ];
    let row = |stage: &ImportanceStage| {
        let mut row = vec![CellValue::figure(stage.importances.map(|one| one.to_string()).join(", "))];
        row.extend(stage.held_ns.map(|held| CellValue::figure(nanos(held))));
        row.push(CellValue::figure(percent(stage.sum_ppm())));
        row.push(CellValue::figure(if stage.settled_ns > 0 { nanos(stage.settled_ns) } else { String::new() }));
        for task in 0..3 {
            let served = stage.served.get(task);
            let fully = stage.fully().any(|one| one == task);
            row.push(served.map_or(CellValue::figure(""), |served| {
                let tone = if fully && served.met < served.periods { Tone::Bad } else { Tone::Plain };
                CellValue::Figure(format!("{} of {}", served.met, served.periods), tone)
            }));
        }
        row
    };
    let rows: Vec<Vec<CellValue>> = stages.iter().map(row).collect();
    grid(style, &columns, &rows, usize::MAX)
}

fn predicted(style: TerminalStyle, predicted: &Predicted) -> String {
    let columns = [column("advocate"), column("reserved beyond the demand"), column("spikes missed"), column("of")];
    let all = std::iter::once(&predicted.proactive).chain(&predicted.max_decay);
    let rows: Vec<Vec<CellValue>> = all
        .map(|score| {
            vec![
                CellValue::words(score.advocate.as_str()),
                CellValue::figure(percent(score.over_ppm())),
                CellValue::figure(percent(score.missed_ppm())),
                CellValue::figure(count(score.spikes)),
            ]
        })
        .collect();
    grid(style, &columns, &rows, usize::MAX)
}
