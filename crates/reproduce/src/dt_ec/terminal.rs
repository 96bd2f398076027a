//! The experiments in a terminal: tables with the paper's figures.

use hyoshi_report::TerminalStyle;
use hyoshi_report::figures::{counted, nanos, percent, printable};
use hyoshi_report::terminal::grid::{CellValue, Tone, column, grid};

use super::example::ExampleSchedule;
use super::table::HostRow;
use super::workload::Topology;
use super::{DtEcKernel, DtEcReproduction, MeasuredWorkload};
use crate::claim::terminal::wrapped;

impl DtEcReproduction {
    /// The heading and the notes.
    pub fn heading(&self, style: TerminalStyle) -> String {
        let about = match &self.figures.kernel {
            Some(kernel) => format!(
                "section 3.4 in virtual time; on {}: {} of {}",
                counted(kernel.cpus, "CPU", "CPUs"),
                counted(kernel.runs, "run", "runs"),
                nanos(kernel.run_ns)
            ),
            None => "section 3.4 in virtual time".to_owned(),
        };
        let mut text = format!("{}  {}\n\n", style.bold("dt-ec reproduced"), style.quiet(&about));
        for note in self.notes() {
            text.push_str(&wrapped(style, "  note: ", &printable(note)));
        }
        text
    }

    /// The tables.
    pub fn tables(&self, style: TerminalStyle) -> String {
        let mut text = String::new();
        let mut section = |title: &str, body: String| text.push_str(&format!("\n{}\n{body}", style.bold(title)));
        section("Section 3.4 in virtual time", example(style, &self.figures.simulated));
        let Some(kernel) = &self.figures.kernel else { return text };
        if !kernel.example.is_empty() {
            section("Section 3.4 on the kernel, in the paper's time", example(style, &kernel.example));
        }
        for topology in Topology::ALL {
            let of = |measured: &&MeasuredWorkload| measured.workload.topology == topology;
            let measured: Vec<&MeasuredWorkload> = kernel.workloads.iter().filter(of).collect();
            if !measured.is_empty() {
                section(&title(topology, kernel), workloads(style, &measured));
            }
        }
        let chain: Vec<&MeasuredWorkload> = kernel.workloads.iter().filter(|one| is_split(one)).collect();
        if !chain.is_empty() {
            section("Overhead of the middle host for each job, by threads (tables 2 and 3)", parts(style, &chain));
        }
        text
    }
}

/// The title of a workload's table.
pub(super) fn title(topology: Topology, kernel: &DtEcKernel) -> String {
    match topology {
        Topology::Chain => "Static chain: means for each job (table 1)".to_owned(),
        Topology::Graph => "Static graph: means for each job (table 4)".to_owned(),
        Topology::DynamicGraph => "Dynamic graph: means for each job (table 5)".to_owned(),
        Topology::Random => format!(
            "Random workload: totals for 300 s (table 7), execution times scaled to {}",
            percent(kernel.scale_ppm)
        ),
    }
}

/// Tables 2 and 3 are about the chain.
pub(super) fn is_split(measured: &MeasuredWorkload) -> bool {
    measured.workload.topology == Topology::Chain
}

/// A workload's name beside others of its topology.
pub(super) fn variant(measured: &MeasuredWorkload) -> String {
    let words = measured.workload.words();
    words.split_once(", ").map_or(words.clone(), |(_, rest)| rest.to_owned())
}

fn example(style: TerminalStyle, schedules: &[ExampleSchedule]) -> String {
    let columns = [
        column("releases"),
        column("missed"),
        column("dropped"),
        column("T2 responds in"),
        column("as in the figure").if_any(),
        column("starts differ by").if_any(),
    ];
    let row = |schedule: &ExampleSchedule| {
        let figure = if schedule.is_the_figure() { "exactly" } else { "" };
        let bad = |count: u64| if count > 0 { Tone::Bad } else { Tone::Plain };
        vec![
            CellValue::words(schedule.protocol.words()),
            CellValue::Count(schedule.missed, bad(schedule.missed)),
            CellValue::Count(schedule.dropped, bad(schedule.dropped)),
            CellValue::times(schedule.response_ns.0, schedule.response_ns.1),
            CellValue::words(figure),
            CellValue::time_if_known(schedule.deviation_ns),
        ]
    };
    grid(style, &columns, &schedules.iter().map(row).collect::<Vec<_>>(), usize::MAX)
}

fn workloads(style: TerminalStyle, measured: &[&MeasuredWorkload]) -> String {
    let columns = [
        column("model"),
        column("host"),
        column("execution"),
        column("idle"),
        column("overhead"),
        column("min–max"),
        column("paper").if_any(),
    ];
    let mut rows = Vec::new();
    for one in measured {
        for (at, host) in one.hosts.iter().enumerate() {
            rows.push(row(if at == 0 { variant(one) } else { String::new() }, host));
        }
    }
    grid(style, &columns, &rows, usize::MAX)
}

fn row(model: String, host: &HostRow) -> Vec<CellValue> {
    let [mean, most, least] = host.overhead_ns;
    vec![
        CellValue::words(model),
        CellValue::words(host.host.as_str()),
        CellValue::time(host.execution_ns),
        CellValue::time(host.idle_ns),
        CellValue::time(mean),
        CellValue::times(least, most),
        CellValue::time_if_known(host.paper.map(|paper| paper.overhead_ns[0])),
    ]
}

fn parts(style: TerminalStyle, measured: &[&MeasuredWorkload]) -> String {
    let columns = [
        column("model"),
        column("receive"),
        column("lane"),
        column("send"),
        column("timers"),
        column("rest"),
        column("sum"),
    ];
    let row = |one: &&MeasuredWorkload| {
        let middle = one.hosts.get(1)?;
        let parts = middle.parts;
        let mut row = vec![CellValue::words(variant(one))];
        let times =
            [parts.receive_ns, parts.lanes_ns, parts.send_ns, parts.timers_ns, parts.rest_ns, parts.overhead_ns()];
        row.extend(times.map(CellValue::time));
        Some(row)
    };
    grid(style, &columns, &measured.iter().filter_map(row).collect::<Vec<_>>(), usize::MAX)
}
