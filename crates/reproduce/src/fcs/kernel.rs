//! The experiments on the kernel: real threads at real-time priorities, with shorter times and as many samples. Clients
//! and server are processes of their own: invocations and rates are IIOP messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as WallInstant};

use hyoshi_model::{Span, write};
use hyoshi_os::{Interrupt, Spawn, ThreadPolicy, Wake};
use hyoshi_replay::Observer;
use hyoshi_runtime::{EventSink, RunningNode};
use hyoshi_trace::TraceEvent;
use serde::Serialize;

use super::experiments::{FcsExperiment, FcsRuns, FcsServer};
use super::overhead::{self, LoopOverhead};
use super::run::FcsRun;
use super::varying;
use super::workload::{FcsHosts, FcsVariant, FcsWorkload, SAMPLING_PERIOD};
use crate::control::{ExperimentControl, Length, NoResult, Stopped, or_note};
use crate::kokyu::kernel::grants_real_time;
use crate::nodes::{JoinedNode, NodeProcess, NodeProgram, WorkloadFile, wait_for};

/// The time between two polls of the rings.
const POLL: Duration = Duration::from_millis(20);

/// Measurements on the kernel. The notes explain what is missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FcsKernel {
    /// Their length.
    pub length: Length,
    /// All times of the paper are divided by this.
    pub scale: u64,
    /// The sampling period.
    pub period_ns: u64,
    /// The hard cap of the lanes, to which utilisations relate.
    pub cap_ppm: u32,
    /// False if the kernel granted no real-time priorities: the figures are then not meaningful.
    pub real_time: bool,
    /// Experiments II and III.
    #[serde(flatten)]
    pub runs: FcsRuns,
    /// Experiment I.
    pub overhead: Vec<LoopOverhead>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

impl Length {
    /// The divisor of the paper's times.
    const fn scale(self) -> u64 {
        match self {
            Length::Short | Length::Usual => 40,
            Length::Paper => 1,
        }
    }
}

/// Experiments II and III: the variant, the number of runs, and the samples of a short experiment's only run; 0 if it has
/// none.
const RUNS: [(FcsExperiment, FcsVariant, u64, u64); 12] = [
    (FcsExperiment::Portability(FcsServer::A), FcsVariant::Open, 1, 10),
    (FcsExperiment::Portability(FcsServer::A), FcsVariant::FcU, FcsServer::A.repeats(), 30),
    (FcsExperiment::Portability(FcsServer::A), FcsVariant::FcM, FcsServer::A.repeats(), 70),
    (FcsExperiment::Portability(FcsServer::A), FcsVariant::FcUm, FcsServer::A.repeats(), 60),
    (FcsExperiment::Portability(FcsServer::A), FcsVariant::FcUmFast, 1, 30),
    (FcsExperiment::Portability(FcsServer::B), FcsVariant::FcU, FcsServer::B.repeats(), 40),
    (FcsExperiment::Portability(FcsServer::B), FcsVariant::FcM, FcsServer::B.repeats(), 120),
    (FcsExperiment::Portability(FcsServer::B), FcsVariant::FcUm, FcsServer::B.repeats(), 100),
    (FcsExperiment::Varying, FcsVariant::Open, 1, 0),
    (FcsExperiment::Varying, FcsVariant::FcU, 1, 0),
    (FcsExperiment::Varying, FcsVariant::FcM, 1, 70),
    (FcsExperiment::Varying, FcsVariant::FcUm, 1, 0),
];

/// Everything on the kernel. `program` runs the clients.
///
/// # Errors
///
/// If `control` stops it.
pub fn run(
    program: &NodeProgram<'_>,
    seed: u64,
    length: Length,
    control: ExperimentControl<'_>,
) -> Result<FcsKernel, Stopped> {
    let mut kernel = FcsKernel::new(length);
    for (experiment, variant, repeats, short) in RUNS {
        for repeat in 0..if length == Length::Short { short.min(1) } else { repeats } {
            let mut workload = experiment.workload(variant, seed, repeat);
            if length == Length::Short {
                workload.duration = Span::from_nanos(SAMPLING_PERIOD.as_nanos() * short);
            }
            kernel.measure(program, experiment, workload, control)?;
        }
    }
    kernel.overhead = overhead::measure(program, seed, length, &mut kernel.notes, control)?;
    kernel.notes.sort();
    kernel.notes.dedup();
    Ok(kernel)
}

impl FcsKernel {
    /// Without runs.
    pub fn new(length: Length) -> FcsKernel {
        let (scale, real_time) = (length.scale(), grants_real_time());
        let without = "the kernel grants no real-time priority: other programs disturb all figures";
        FcsKernel {
            length,
            scale,
            period_ns: SAMPLING_PERIOD.as_nanos() / scale,
            real_time,
            notes: if real_time { Vec::new() } else { vec![without.into()] },
            ..FcsKernel::default()
        }
    }

    /// Adds a run, or a note with the reason for its absence.
    ///
    /// # Errors
    ///
    /// If `control` stops it.
    pub fn measure(
        &mut self,
        program: &NodeProgram<'_>,
        experiment: FcsExperiment,
        mut workload: FcsWorkload,
        control: ExperimentControl<'_>,
    ) -> Result<(), Stopped> {
        let name = format!("{experiment}, {}", workload.variant.name());
        (control.step)(&format!("{name}, on the kernel"));
        (workload.scale, workload.capped) = (self.scale, true);
        workload.steps.retain(|step| step.at_ns < workload.duration.as_nanos());
        // As in the paper, OPEN is tuned by hand to a measured utilisation.
        let tuned = self.runs.of(FcsServer::A, FcsVariant::FcU).first().and_then(|run| run.gain_measured);
        if let (FcsExperiment::Varying, Some(_), Some(gain)) = (experiment, workload.held_ppm, tuned) {
            workload.held_ppm = Some((varying::OPEN_PPM as f64 / gain) as u64);
        }
        self.cap_ppm = workload.system().processors[0].hard_cap.ppm;
        let measured = measured(program, &name, &workload, &mut self.notes, control);
        if let Some(run) = or_note(&name, measured, &mut self.notes, control)? {
            self.runs.add(experiment, &workload, run);
        }
        Ok(())
    }
}

/// A run beside an ordinary thread on the server's CPU.
fn measured(
    program: &NodeProgram<'_>,
    name: &str,
    workload: &FcsWorkload,
    notes: &mut Vec<String>,
    control: ExperimentControl<'_>,
) -> Result<FcsRun, NoResult> {
    let server = Server::join(program, workload, control)?;
    let over = Arc::new(AtomicBool::new(false));
    let seen = over.clone();
    let spawn = Spawn::new("ordinary").policy(ThreadPolicy::Other);
    let spawn = match server.node.cpu {
        Some(cpu) => spawn.cpu(cpu),
        None => spawn,
    };
    let ordinary = spawn.spawn(move || longest_wait(&seen))?;
    let ran = server.observed(name, notes, control);
    over.store(true, Ordering::Relaxed);
    let longest = ordinary.join().ok().map(|wait| u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX));
    Ok(FcsRun { longest_wait_ns: longest, ..ran? })
}

/// How often the ordinary thread wants to run.
const WANTED_EVERY: Duration = Duration::from_millis(5);

/// The longest time for which the calling thread could not run.
fn longest_wait(over: &AtomicBool) -> Duration {
    let (mut longest, mut last) = (Duration::ZERO, WallInstant::now());
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(WANTED_EVERY);
        let now = WallInstant::now();
        longest = longest.max((now - last).saturating_sub(WANTED_EVERY));
        last = now;
    }
    longest
}

/// The server's node, in this process.
struct Server {
    node: JoinedNode,
    clients: NodeProcess,
    workload: FcsWorkload,
    _file: WorkloadFile,
}

impl Server {
    /// Starts the clients, and waits for them.
    fn join(
        program: &NodeProgram<'_>,
        workload: &FcsWorkload,
        control: ExperimentControl<'_>,
    ) -> Result<Server, NoResult> {
        let mut workload = workload.clone();
        let file = WorkloadFile::new(FcsHosts::NAMES.len(), |ports, cpus| {
            workload.hosts = Some(FcsHosts::new(ports, cpus));
            write(&workload.system())
        })?;
        let [server, client] = FcsHosts::NAMES;
        let mut clients = NodeProcess::start(program, &file, client)?;
        let interrupt = Interrupt::manual(Arc::new(Wake::new()));
        let joined = AtomicBool::new(false);
        let node = std::thread::scope(|scope| {
            let (over, stop, clients) = (&joined, interrupt.clone(), &mut clients);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    std::thread::sleep(POLL);
                    if (control.stop)() || clients.has_ended() {
                        return stop.request();
                    }
                }
            });
            let node = JoinedNode::join(file.path(), server, interrupt);
            joined.store(true, Ordering::Relaxed);
            node
        });
        if (control.stop)() {
            return Err(NoResult::Stopped);
        }
        let is_joined = |node: &JoinedNode| node.peers.standing().iter().all(|one| one.state == "joined");
        match node {
            Ok(node) if is_joined(&node) => Ok(Server { node, clients, workload, _file: file }),
            _ if clients.has_ended() => {
                let because = |_| NoResult::Because("the process of the clients ended before the run began".into());
                Err(clients.figures().map_or_else(|error| error, because))
            }
            Ok(_) => Err(NoResult::Because("the process of the clients did not join the run".into())),
            Err(why) => Err(NoResult::Because(why)),
        }
    }

    fn observed(self, name: &str, notes: &mut Vec<String>, control: ExperimentControl<'_>) -> Result<FcsRun, NoResult> {
        let Server { node: JoinedNode { system, prepared, clock, peers, .. }, clients, workload, _file } = self;
        let mut observer = Observer::new(&system);
        let mut sink = |processor, now, event: TraceEvent| {
            if Observer::counts(&event) {
                observer.event(processor, now, &event);
            }
        };
        run_node(prepared.begin(clock), name, &mut sink, notes, control)?;
        notes.extend(peers.take_events().iter().map(|event| format!("{name}: {event}")));
        for one in peers.standing().iter().filter(|one| one.rejected > 0) {
            notes.push(format!("{name}: the server rejected {} invocations", one.rejected));
        }
        drop(peers);
        let mut clients = [clients];
        wait_for(&mut clients, Span::ZERO, control)?;
        let [clients] = clients;
        notes.extend(clients.figures()?.notes);
        Ok(FcsRun::of(&workload, &system, &mut observer))
    }
}

/// Runs a node to its end.
fn run_node(
    mut running: RunningNode,
    name: &str,
    sink: &mut EventSink<'_>,
    notes: &mut Vec<String>,
    control: ExperimentControl<'_>,
) -> Result<(), NoResult> {
    while !running.finished() {
        if (control.stop)() {
            running.stop(sink);
            return Err(NoResult::Stopped);
        }
        std::thread::sleep(POLL);
        running.poll(sink);
    }
    let finished = running.stop(sink);
    notes.extend(finished.notes.iter().map(ToString::to_string));
    if finished.lost.events > 0 {
        notes.push(format!("{name}: {} events were lost; counts are incomplete", finished.lost.events));
    }
    for (_, cpu, stolen) in &finished.stolen {
        let stolen = stolen.unwrap_or_default();
        if stolen > Span::from_millis(10) {
            notes.push(format!("{name}: the hypervisor used {stolen} of CPU {cpu}"));
        }
    }
    Ok(())
}
