//! The loops on the kernel: real threads at real-time priorities, with shorter times and as many samples. Clients and
//! server are processes of their own: invocations and rates are IIOP messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as WallInstant};

use hyoshi_model::{Span, write};
use hyoshi_os::{Interrupt, Spawn, ThreadPolicy, Wake};
use hyoshi_replay::Observer;
use hyoshi_runtime::{EventSink, RunningNode};
use hyoshi_trace::TraceEvent;
use serde::Serialize;

use super::FcsServer;
use super::overhead::{self, LoopOverhead};
use super::run::FcsRun;
use super::varying::{self, VaryingRun};
use super::workload::{ExecutionStep, FcsHosts, FcsVariant, FcsWorkload, SAMPLING_PERIOD};
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
    /// Experiment II on server A, by variant.
    pub runs: Vec<FcsRun>,
    /// FC-M in experiment III.
    pub varying: Option<VaryingRun>,
    /// The longest time for which an ordinary thread on FC-M's CPU could not run in experiment III.
    pub longest_wait_ns: Option<u64>,
    /// Experiment I.
    pub overhead: Vec<LoopOverhead>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

impl Length {
    /// The divisor of the paper's times.
    const fn scale(self) -> u64 {
        match self {
            Length::Short => 40,
            Length::Usual => 10,
            Length::Paper => 1,
        }
    }

    /// The samples of a run of experiment II.
    const fn samples_with(self, variant: FcsVariant) -> u64 {
        match (self, variant) {
            (Length::Short, FcsVariant::FcM | FcsVariant::FcUm) => 70,
            (Length::Short, _) => 30,
            (Length::Usual, _) => 150,
            (Length::Paper, _) => 200,
        }
    }

    /// The samples of experiment III.
    const fn varying_samples(self) -> u64 {
        match self {
            Length::Short => 70,
            Length::Usual => 100,
            Length::Paper => 300,
        }
    }
}

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
    let scale = length.scale();
    let samples = |count: u64| Span::from_nanos(SAMPLING_PERIOD.as_nanos() * count);
    let mut kernel = FcsKernel {
        length,
        scale,
        period_ns: SAMPLING_PERIOD.as_nanos() / scale,
        real_time: grants_real_time(),
        ..FcsKernel::default()
    };
    if !kernel.real_time {
        kernel.notes.push("the kernel grants no real-time priority: other programs disturb all figures".into());
    }
    for variant in FcsVariant::LOOPS {
        let name = variant.name();
        (control.step)(&format!("experiment II on the kernel, {name}"));
        let duration = samples(length.samples_with(variant));
        let workload = FcsWorkload::new(variant, FcsServer::A.gain_percent(), duration, seed);
        let workload = FcsWorkload { scale, capped: true, ..workload };
        let measured = measured(program, &workload, &mut kernel.notes, control);
        kernel.runs.extend(or_note(name, measured, &mut kernel.notes, control)?);
        kernel.cap_ppm = workload.system().processors[0].hard_cap.ppm;
    }
    (control.step)("experiment III on the kernel, FC-M");
    let duration = samples(length.varying_samples());
    let workload = varying::workload(FcsVariant::FcM, seed);
    let within = |step: &ExecutionStep| step.at_ns < duration.as_nanos();
    let steps = workload.steps.iter().copied().filter(within).collect();
    let workload = FcsWorkload { duration, steps, scale, capped: true, ..workload };
    let starved = starvation(program, &workload, &mut kernel.notes, control);
    if let Some((run, wait)) = or_note("experiment III, FC-M", starved, &mut kernel.notes, control)? {
        kernel.varying = Some(VaryingRun::of(&workload, run));
        kernel.longest_wait_ns = Some(wait.as_nanos());
    }
    kernel.overhead = overhead::measure(program, seed, length, &mut kernel.notes, control)?;
    kernel.notes.sort();
    kernel.notes.dedup();
    Ok(kernel)
}

/// A run with its samples.
fn measured(
    program: &NodeProgram<'_>,
    workload: &FcsWorkload,
    notes: &mut Vec<String>,
    control: ExperimentControl<'_>,
) -> Result<FcsRun, NoResult> {
    Server::join(program, workload, control)?.observed(notes, control)
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

    fn observed(self, notes: &mut Vec<String>, control: ExperimentControl<'_>) -> Result<FcsRun, NoResult> {
        let Server { node: JoinedNode { system, prepared, clock, peers, .. }, clients, workload, _file } = self;
        let mut observer = Observer::new(&system);
        let mut sink = |processor, now, event: TraceEvent| {
            if Observer::counts(&event) {
                observer.event(processor, now, &event);
            }
        };
        let name = workload.variant.name();
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

/// The same, beside an ordinary thread on the server's CPU that wakes every 5 ms. Also returns the longest time for
/// which that thread did not run.
fn starvation(
    program: &NodeProgram<'_>,
    workload: &FcsWorkload,
    notes: &mut Vec<String>,
    control: ExperimentControl<'_>,
) -> Result<(FcsRun, Span), NoResult> {
    let server = Server::join(program, workload, control)?;
    let over = Arc::new(AtomicBool::new(false));
    let seen = over.clone();
    let spawn = Spawn::new("ordinary").policy(ThreadPolicy::Other);
    let spawn = server.node.cpu.map_or(Spawn::new("ordinary"), |cpu| spawn.cpu(cpu));
    let ordinary = spawn.spawn(move || {
        let (mut longest, mut last) = (Duration::ZERO, WallInstant::now());
        while !seen.load(Ordering::Relaxed) {
            std::thread::sleep(WANTED_EVERY);
            let now = WallInstant::now();
            longest = longest.max((now - last).saturating_sub(WANTED_EVERY));
            last = now;
        }
        longest
    })?;
    let ran = server.observed(notes, control);
    over.store(true, Ordering::Relaxed);
    let longest = ordinary.join().unwrap_or_default();
    Ok((ran?, Span::from_nanos(u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX))))
}

/// How often the ordinary thread wants to run.
const WANTED_EVERY: Duration = Duration::from_millis(5);

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

impl FcsKernel {
    /// The run of experiment II with this variant, if there is one.
    pub fn of(&self, variant: FcsVariant) -> &[FcsRun] {
        let place = self.runs.iter().position(|run| run.variant == variant);
        place.map_or(&[], |place| &self.runs[place..=place])
    }
}
