//! The experiments in a terminal: tables beside the paper's figures.

use hyoshi_report::Look;
use hyoshi_report::figures::{count, nanos, percent, printable};
use hyoshi_report::terminal::grid::{Tone, Value, column, grid};

use super::Reproduced;
use super::arbitration::Stage;
use super::kernel::{Arbitrated, Cost};
use super::prediction::Predicted;
use super::tracking::{PHASES, Tracked};
use crate::claim::terminal::wrapped;

impl Reproduced {
    /// What was done.
    pub fn heading(&self, look: Look) -> String {
        let about = match &self.figures.kernel {
            Some(_) => "figures 4 to 6 in virtual time; table I and figures 4 and 5 on the kernel",
            None => "figures 4 to 6 in virtual time",
        };
        let mut text = format!("{}  {}\n\n", look.bold("broker reproduced"), look.quiet(about));
        for note in self.notes() {
            text.push_str(&wrapped(look, "  note: ", &printable(note)));
        }
        text
    }

    /// Tables beside the paper's.
    pub fn tables(&self, look: Look) -> String {
        let figures = &self.figures;
        let mut text = String::new();
        let mut section = |title: &str, body: String| text.push_str(&format!("\n{}\n{body}", look.bold(title)));
        if let Some(costs) = figures.kernel.as_ref().and_then(|kernel| kernel.overhead.as_deref()) {
            section("A report (table I)", overhead(look, costs));
        }
        section("A demand that changes (figure 4), in virtual time", phases(look, &figures.tracked));
        let kernel = figures.kernel.as_ref();
        if let Some(on_kernel) = kernel.and_then(|kernel| kernel.tracked.as_ref()) {
            let title = format!("The same on the kernel, beside {} programs that want all CPUs", on_kernel.spinners);
            section(&title, phases(look, &on_kernel.tracked));
        }
        section("Importances that change (figure 5), in virtual time", stages(look, &figures.arbitrated));
        for played in kernel.into_iter().flat_map(|kernel| [&kernel.soft, &kernel.hard]).flatten() {
            section(&title(played), stages(look, &played.stages));
        }
        section("Spikes foreseen (figure 6)", predicted(look, &figures.predicted));
        text
    }
}

/// How figure 5 was played on the kernel.
pub(super) fn title(played: &Arbitrated) -> String {
    let caps = if played.scheduler == "deadline" { "hard caps" } else { "soft caps" };
    let place = played.cpu.map_or("on any CPU".into(), |cpu| format!("all on CPU {cpu}"));
    format!("The same on the kernel with {caps} ({}), {place}, spinners: {}", played.scheduler, played.spinners)
}

fn overhead(look: Look, costs: &[Cost]) -> String {
    let columns = [
        column("configuration"),
        column("reports"),
        column("CPU"),
        column("the paper's"),
        column("latency"),
        column("median"),
        column("the paper's "),
    ];
    let or_none = |ns: Option<u64>| Value::figure(ns.map_or(String::new(), nanos));
    let rows: Vec<Vec<Value>> = costs
        .iter()
        .map(|cost| {
            vec![
                Value::words(cost.configuration),
                Value::Count(cost.reports, Tone::Plain),
                Value::figure(nanos(cost.cpu_ns)),
                Value::figure(nanos(cost.paper_cpu_ns)),
                or_none(cost.latency_ns),
                or_none(cost.median_latency_ns),
                Value::figure(nanos(cost.paper_latency_ns)),
            ]
        })
        .collect();
    grid(look, &columns, &rows, usize::MAX)
}

/// A row for each phase.
fn phases(look: Look, tracked: &Tracked) -> String {
    let columns = [
        column("phase"),
        column("demand"),
        column("reserved first"),
        column("last"),
        column("missed"),
        column("beyond"),
    ];
    let phase = tracked.phase as usize;
    let row = |(number, cycles): (usize, &[super::tracking::Cycle])| {
        let one = Tracked { phase: tracked.phase, cycles: cycles.to_vec() };
        let (early, late) = one.missed();
        let tone = if late > 0 { Tone::Bad } else { Tone::Plain };
        let held = |cycle: Option<&super::tracking::Cycle>| {
            Value::figure(cycle.map_or(String::new(), |one| nanos(one.held_ns)))
        };
        vec![
            Value::figure((number + 1).to_string()),
            Value::figure(nanos(PHASES[number % PHASES.len()].as_nanos())),
            held(cycles.first()),
            held(cycles.last()),
            Value::Figure(format!("{} of {}", early + late, cycles.len()), tone),
            Value::figure(percent(one.over_ppm())),
        ]
    };
    let rows: Vec<Vec<Value>> = tracked.cycles.chunks(phase).enumerate().map(row).collect();
    grid(look, &columns, &rows, usize::MAX)
}

/// Three tasks, stage by stage.
fn stages(look: Look, stages: &[Stage]) -> String {
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
    let row = |stage: &Stage| {
        let mut row = vec![Value::figure(stage.importances.map(|one| one.to_string()).join(", "))];
        row.extend(stage.held_ns.map(|held| Value::figure(nanos(held))));
        row.push(Value::figure(percent(stage.sum_ppm())));
        row.push(Value::figure(if stage.settled_ns > 0 { nanos(stage.settled_ns) } else { String::new() }));
        for task in 0..3 {
            let served = stage.served.get(task);
            let fully = stage.fully().any(|one| one == task);
            row.push(served.map_or(Value::figure(""), |served| {
                let tone = if fully && served.met < served.periods { Tone::Bad } else { Tone::Plain };
                Value::Figure(format!("{} of {}", served.met, served.periods), tone)
            }));
        }
        row
    };
    let rows: Vec<Vec<Value>> = stages.iter().map(row).collect();
    grid(look, &columns, &rows, usize::MAX)
}

fn predicted(look: Look, predicted: &Predicted) -> String {
    let columns = [column("advocate"), column("reserved beyond the demand"), column("spikes missed"), column("of")];
    let all = std::iter::once(&predicted.proactive).chain(&predicted.max_decay);
    let rows: Vec<Vec<Value>> = all
        .map(|score| {
            vec![
                Value::words(score.advocate.as_str()),
                Value::figure(percent(score.over_ppm())),
                Value::figure(percent(score.missed_ppm())),
                Value::figure(count(score.spikes)),
            ]
        })
        .collect();
    grid(look, &columns, &rows, usize::MAX)
}
