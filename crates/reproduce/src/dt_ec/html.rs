//! The experiments as one HTML page: verdicts, the schedules of section 3.4 as charts, and a chart for each table.

use hyoshi_report::chart::{AxisLabels, Colour, Series, stacked};
use hyoshi_report::figures::{count, nanos};
use hyoshi_report::html::{document, legend};
use maud::{Markup, PreEscaped, html};

use super::example::{ExampleSchedule, SUBTASKS};
use super::terminal::{title, variant};
use super::workload::Topology;
use super::{DtEcKernel, DtEcReproduction, MeasuredWorkload};
use crate::claim::html::{tiles, verdicts};
use crate::nodes::NodeParts;

impl DtEcReproduction {
    /// The page. `command` is the command line that made it.
    pub fn html(&self, command: &str) -> String {
        let kernel = self.figures.kernel.as_ref();
        let body = html! {
            header {
                h1 { "Distributable threads and event channels, reproduced" }
                p { "Zhang, Thrall, Torri, Gill and Lu, " i { "A Real-Time Performance Comparison of Distributable Threads and Event Channels" } ", RTAS 2005." }
                @if let Some(kernel) = kernel {
                    p { (kernel.runs) " runs of " (nanos(kernel.run_ns)) " for each workload, each node a process, on " (kernel.cpus) " CPUs" }
                }
            }
            (tiles(&self.claims))
            @if !self.notes().is_empty() { ul class="notes" { @for note in self.notes() { li class="degraded" { (note) } } } }
            (verdicts(&self.claims, "Each claim of the paper with a rating computed from the figures below."))
            (schedules("The example of section 3.4 in virtual time", &self.figures.simulated))
            @if let Some(kernel) = kernel {
                @if !kernel.example.is_empty() { (schedules("The same on the kernel, in the paper's time", &kernel.example)) }
                @for topology in Topology::ALL { (measured(topology, kernel)) }
                (executions(&kernel.executions_ns))
            }
            section { h2 { "Command" } pre { code { (command) } } }
        };
        document("Distributable threads and event channels reproduced", &body).into_string()
    }
}

/// The seconds of a schedule that are drawn.
const DRAWN: u64 = 18;

fn schedules(heading: &str, schedules: &[ExampleSchedule]) -> Markup {
    html! {
        section {
            h2 { (heading) }
            p { "T1 and the first part of T2 run on P1, the second part of T2 and T3 on P2, from 0 to " (DRAWN) " s." }
            (legend(&[(Colour::Made.variable(), "deadline met"), (Colour::Missed.variable(), "deadline missed")]))
            @for schedule in schedules {
                h3 { (schedule.protocol.words()) }
                (PreEscaped(gantt(schedule)))
                p { (schedule.missed) " missed, " (schedule.dropped) " dropped in " (nanos(schedule.length_ns)) }
            }
        }
    }
}

/// Width of a second, height of a row.
const SECOND: u64 = 36;
const ROW: u64 = 22;
const LEFT: u64 = 46;

/// The schedule as a Gantt chart. Colours are those of the page.
fn gantt(schedule: &ExampleSchedule) -> String {
    let (width, height) = (LEFT + DRAWN * SECOND + 8, SUBTASKS.len() as u64 * ROW + 22);
    let x = |ns: u64| LEFT as f64 + ns as f64 / 1e9 * SECOND as f64;
    let drawing = html! {
        svg viewBox={ "0 0 " (width) " " (height) } role="img" aria-label={ "schedule, " (schedule.protocol.words()) } style="max-width:100%" {
            @for second in (0..=DRAWN).step_by(2) {
                line x1=(x(second * 1_000_000_000)) x2=(x(second * 1_000_000_000)) y1="0" y2=(height - 18) style="stroke:var(--grid)" {}
                text x=(x(second * 1_000_000_000)) y=(height - 4) text-anchor="middle" style="fill:var(--soft);font-size:11px" { (second) }
            }
            @for (at, task) in SUBTASKS.iter().enumerate() {
                @let top = at as u64 * ROW;
                text x="0" y=(top + 15) style="fill:var(--soft);font-size:12px" { (task) }
                @for job in schedule.of(task).filter(|job| job.end_ns <= DRAWN * 1_000_000_000) {
                    rect x=(format!("{:.1}", x(job.start_ns))) y=(top + 3) height=(ROW - 6)
                        width=(format!("{:.1}", x(job.end_ns) - x(job.start_ns)))
                        style={ "fill:var(--" (if job.made { Colour::Made } else { Colour::Missed }.variable()) ")" } {}
                }
            }
        }
    };
    drawing.into_string()
}

/// A part of the overhead: its name, colour and CPU time.
type OverheadPart = (&'static str, Colour, fn(&NodeParts) -> u64);

/// The parts of the overhead, with their colours.
const PARTS: [OverheadPart; 5] = [
    ("receive", Colour::Critical, |parts| parts.receive_ns),
    ("lanes", Colour::Made, |parts| parts.lanes_ns),
    ("send", Colour::Cancelled, |parts| parts.send_ns),
    ("timers and guards", Colour::Other, |parts| parts.timers_ns),
    ("rest", Colour::NonCritical, |parts| parts.rest_ns),
];

fn measured(topology: Topology, kernel: &DtEcKernel) -> Markup {
    let all: Vec<&MeasuredWorkload> = kernel.workloads.iter().filter(|one| one.workload.topology == topology).collect();
    if all.is_empty() {
        return html! {};
    }
    let names = topology.hosts().iter().map(|host| (*host).to_owned()).collect();
    let labels = AxisLabels { title: "host".into(), names };
    let micros =
        |value: f64| if value >= 10_000.0 { format!("{:.1} s", value / 1e6) } else { format!("{value:.0} us") };
    let chart = |one: &MeasuredWorkload| {
        let part = |(_, colour, of): OverheadPart| {
            let values = one.hosts.iter().map(|host| Some(of(&host.parts) as f64 / 1e3)).collect();
            Series { colour, dashed: false, values }
        };
        stacked("overhead by threads", &labels, &PARTS.map(part), micros)
    };
    html! {
        section {
            h2 { (title(topology, kernel)) }
            p { "CPU time of each node besides the execution of jobs, by what its threads do." }
            (legend(&PARTS.map(|(name, colour, _)| (colour.variable(), name))))
            div class="pair" { @for one in &all { div { h3 { (variant(one)) } (PreEscaped(chart(one))) } } }
            div class="wide" {
                table {
                    thead { tr { th { "model" } th { "host" } th class="n" { "jobs" } th class="n" { "execution" } th class="n" { "idle" } th class="n" { "overhead" } th class="n" { "max" } th class="n" { "min" } th class="n" { "paper: execution" } th class="n" { "idle" } th class="n" { "overhead" } } }
                    tbody {
                        @for one in &all {
                            @for host in &one.hosts {
                                tr {
                                    td { (variant(one)) }
                                    td { (host.host) }
                                    td class="n" { (count(host.jobs)) }
                                    td class="n" { (nanos(host.execution_ns)) }
                                    td class="n" { (nanos(host.idle_ns)) }
                                    @for overhead in host.overhead_ns { td class="n" { (nanos(overhead)) } }
                                    @if let Some(paper) = &host.paper {
                                        td class="n" { (nanos(paper.execution_ns)) }
                                        td class="n" { (nanos(paper.idle_ns)) }
                                        td class="n" { (nanos(paper.overhead_ns[0])) }
                                    } @else { td {} td {} td {} }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The bars of figure 1.
const BARS: usize = 12;

/// Figure 1: how many jobs had an execution time of each range.
fn executions(sorted: &[u64]) -> Markup {
    let (Some(least), Some(most)) = (sorted.first(), sorted.last()) else { return html! {} };
    let width = ((most - least) / BARS as u64 + 1).max(1);
    let bars = (0..BARS as u64).map(|bar| {
        let (from, to) = (least + bar * width, least + (bar + 1) * width);
        let count = sorted.iter().filter(|time| (from..to).contains(time)).count();
        (format!("{:.2}", from as f64 / 1e6), count as f64)
    });
    let (names, values): (Vec<String>, Vec<f64>) = bars.unzip();
    let series = Series { colour: Colour::Made, dashed: false, values: values.into_iter().map(Some).collect() };
    let labels = AxisLabels { title: "execution time from, in ms".into(), names };
    let chart = stacked("jobs by execution time", &labels, &[series], |value| format!("{value:.0}"));
    html! {
        section {
            h2 { "Execution times of the first subtask (figure 1)" }
            p { (count(sorted.len() as u64)) " jobs of the client in the static graph, with events." }
            (PreEscaped(chart))
        }
    }
}
