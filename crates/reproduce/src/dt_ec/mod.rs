//! Distributable threads and event channels: Y. Zhang, B. Thrall, S. Torri, C. Gill and C. Lu, "A Real-Time Performance
//! Comparison of Distributable Threads and Event Channels", IEEE RTAS 2005.
//!
//! The example of section 3.4 in virtual time and on the kernel. The chain, the graphs and the random workload of
//! sections 4 and 5 on the kernel, under both models, with each node a process. `docs/reproducing.md` lists our
//! assumptions where the paper is not specific.

pub mod claims;
pub mod example;
mod html;
pub mod table;
mod terminal;
pub mod workload;

use hyoshi_model::Span;
use hyoshi_os::allowed_cpus;
use serde::Serialize;

use crate::claim::Judgement;
use crate::control::{ExperimentControl, Length, NoResult, Stopped, or_note};
use crate::nodes::{self, NodeFigures, NodeProgram};
use example::{ExampleSchedule, ReleaseProtocol};
use table::HostRow;
use workload::{CommunicationModel, Topology, Workload};

/// Seconds of the paper's time that the example lasts.
const EXAMPLE: u64 = 120;

/// All schedules and measurements.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DtEcFigures {
    /// Section 3.4 in virtual time, by protocol.
    pub simulated: Vec<ExampleSchedule>,
    /// The measurements on the kernel, unless they were left out.
    pub kernel: Option<DtEcKernel>,
}

/// The measurements on the kernel. The notes explain what is missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DtEcKernel {
    /// Their length.
    pub length: Length,
    /// The duration of a run.
    pub run_ns: u64,
    /// The number of runs of each workload.
    pub runs: u64,
    /// The CPUs that the nodes share.
    pub cpus: u64,
    /// The scale of the random workload's execution times, in parts per million.
    pub scale_ppm: u64,
    /// Section 3.4, by protocol; empty if it was refused.
    pub example: Vec<ExampleSchedule>,
    /// Sections 4 and 5.
    pub workloads: Vec<MeasuredWorkload>,
    /// Figure 1: execution times of the client's subtask in the static graph with events, sorted.
    pub executions_ns: Vec<u64>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// A workload that was run several times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasuredWorkload {
    /// Its configuration.
    #[serde(flatten)]
    pub workload: Workload,
    /// By host, in the order of [`Topology::hosts`].
    pub hosts: Vec<HostRow>,
}

/// The experiments and their ratings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DtEcReproduction {
    /// The claims of the paper.
    pub claims: Vec<Judgement>,
    /// Their basis.
    #[serde(flatten)]
    pub figures: DtEcFigures,
}

impl Length {
    /// The number of runs of a workload, and the duration of each.
    const fn workload_runs(self) -> (u64, Span) {
        match self {
            Length::Short => (1, Span::from_secs(1)),
            Length::Usual => (3, Span::from_secs(4)),
            Length::Paper => (5, Span::from_secs(300)),
        }
    }
}

/// The workloads: the paper's, and those that separate causes.
fn workloads() -> Vec<Workload> {
    let both = |workload: fn(CommunicationModel) -> Workload| CommunicationModel::ALL.map(workload);
    let mut all: Vec<Workload> = Topology::ALL
        .iter()
        .flat_map(|topology| CommunicationModel::ALL.map(|model| Workload::paper(*topology, model)))
        .collect();
    // The cost of the guard, and rule 3, which the paper leaves open.
    all.extend(both(|model| Workload { protocol: ReleaseProtocol::Greedy, ..Workload::paper(Topology::Chain, model) }));
    all.extend(both(|model| Workload { protocol: ReleaseProtocol::Idle, ..Workload::paper(Topology::Chain, model) }));
    // The cause that the paper names for the cost of threads: a thread for each subtask.
    all.extend(both(|model| Workload { lane_for_each: true, ..Workload::paper(Topology::Random, model) }));
    all
}

/// The example in virtual time.
pub fn simulate() -> DtEcFigures {
    DtEcFigures { simulated: example::simulated(EXAMPLE), kernel: None }
}

/// Everything on the kernel. `program` starts a node.
///
/// # Errors
///
/// If `control` stops it.
pub fn on_kernel(
    program: &NodeProgram<'_>,
    length: Length,
    control: ExperimentControl<'_>,
) -> Result<DtEcKernel, Stopped> {
    let ((runs, duration), cpus) = (length.workload_runs(), allowed_cpus());
    let mut kernel = DtEcKernel {
        length,
        run_ns: duration.as_nanos(),
        runs,
        cpus: cpus.len() as u64,
        scale_ppm: workload::scale_ppm(cpus.len()),
        ..DtEcKernel::default()
    };
    let example = example::on_kernel(EXAMPLE, control)?.map_err(|error| NoResult::Because(error.to_string()));
    kernel.example = or_note("section 3.4", example, &mut kernel.notes, control)?.unwrap_or_default();
    for workload in workloads() {
        let mut measured: Vec<Vec<NodeFigures>> = Vec::new();
        for run in 1..=runs {
            (control.step)(&format!("{}, run {run} of {runs}", workload.words()));
            let figures = nodes::run(
                program,
                workload.topology.hosts(),
                |ports, cpus| workload.text(duration, ports, cpus),
                duration,
                control,
            );
            measured.extend(or_note(&workload.words(), figures, &mut kernel.notes, control)?);
        }
        let notes = measured.iter().flatten().flat_map(|node| &node.notes);
        kernel.notes.extend(notes.cloned());
        if workload == Workload::paper(Topology::Graph, CommunicationModel::Events) {
            let clients = measured.iter().flatten().filter(|node| node.host == "client");
            kernel.executions_ns = clients.flat_map(|node| node.executions_ns.iter().copied()).collect();
            kernel.executions_ns.sort_unstable();
        }
        if !measured.is_empty() {
            kernel.workloads.push(MeasuredWorkload { workload, hosts: table::rows(&workload, &measured) });
        }
    }
    kernel.notes.sort();
    kernel.notes.dedup();
    Ok(kernel)
}

impl DtEcKernel {
    /// The measurements of a workload.
    pub fn of(&self, workload: &Workload) -> Option<&MeasuredWorkload> {
        self.workloads.iter().find(|one| one.workload == *workload)
    }
}

impl DtEcReproduction {
    /// Rates the figures.
    pub fn judge(figures: DtEcFigures) -> DtEcReproduction {
        DtEcReproduction { claims: claims::judge(&figures), figures }
    }

    /// Notes that matter for the figures of the kernel.
    pub fn notes(&self) -> &[String] {
        self.figures.kernel.as_ref().map_or(&[], |kernel| &kernel.notes)
    }
}
