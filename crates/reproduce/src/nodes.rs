//! A system on the kernel, with each node a process of its own. A node measures itself: the CPU time of its threads
//! between instant 0 and the end of the run, less the execution of its jobs, is its overhead.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hyoshi_model::{HostId, Instant, ProcessorId, Span, System, read, write};
use hyoshi_node::{Agreed, NodePeers, NodeSettings};
use hyoshi_os::process::ask_to_end;
use hyoshi_os::{Clock, Interrupt, MonotonicClock, Wake, allowed_cpus, own_thread, own_threads};
use hyoshi_runtime::{Node, Prepared};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{CpuEvent, CpuUser, DispatchDecision, JobOutcome, TraceEvent};
use serde::{Deserialize, Serialize};

use crate::control::{ExperimentControl, NoResult};

/// The time that a node waits for the other nodes.
const GATHERING: Span = Span::from_secs(20);
/// The time that a run may need beyond its duration.
const PATIENCE: Span = Span::from_secs(40);
const POLL: Duration = Duration::from_millis(20);
/// The most execution times that a node prints.
const MOST_SAMPLES: usize = 100_000;

/// CPU time of a node, by what its threads do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeParts {
    /// Lanes, without the execution of jobs: they wait for jobs, decide, start and complete them; a distributable
    /// thread's lane also sends the next hop.
    pub lanes_ns: u64,
    /// Threads that receive from other nodes, and pass what arrives to the dispatcher.
    pub receive_ns: u64,
    /// Threads that send to other nodes.
    pub send_ns: u64,
    /// The thread of timers: releases and release guards.
    pub timers_ns: u64,
    /// All other threads: clocks, control, the watchdog.
    pub rest_ns: u64,
    /// The thread that reads the events of the run, and the measurements: not part of the overhead.
    pub measuring_ns: u64,
}

impl NodeParts {
    /// CPU time that is not execution.
    pub fn overhead_ns(&self) -> u64 {
        let NodeParts { lanes_ns, receive_ns, send_ns, timers_ns, rest_ns, measuring_ns: _ } = self;
        lanes_ns + receive_ns + send_ns + timers_ns + rest_ns
    }
}

/// The measurements of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFigures {
    /// Its host.
    pub host: String,
    /// Jobs that ran to their end.
    pub jobs: u64,
    /// Those that missed their deadline.
    pub missed: u64,
    /// Jobs and completions that were dropped.
    pub dropped: u64,
    /// Execution of all jobs.
    pub execution_ns: u64,
    /// The length of the run.
    pub length_ns: u64,
    /// Its CPU time besides.
    pub parts: NodeParts,
    /// Its threads at the end of the run.
    pub threads: u64,
    /// The execution time of each job. Not in the output for programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub executions_ns: Vec<u64>,
    /// Notes of the run.
    pub notes: Vec<String>,
}

impl NodeFigures {
    /// Time in which its processor had nothing to do.
    pub fn idle_ns(&self) -> u64 {
        self.length_ns.saturating_sub(self.execution_ns + self.parts.overhead_ns())
    }
}

/// A node that has agreed with the others on instant 0.
pub(crate) struct JoinedNode {
    pub system: Arc<System>,
    pub prepared: Prepared,
    pub clock: MonotonicClock,
    /// The first CPU of its processors.
    pub cpu: Option<u32>,
    /// It leaves the run when it is dropped.
    pub peers: NodePeers,
}

impl JoinedNode {
    /// Reads a file, and joins as one of its hosts, until `interrupt` is requested.
    ///
    /// # Errors
    ///
    /// The reason as text.
    pub fn join(file: &Path, host: &str, interrupt: Interrupt) -> Result<JoinedNode, String> {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let system = read(&text, &file.display().to_string(), None).map_err(|errors| errors.to_string())?.system;
        let system = Arc::new(system);
        let at =
            system.hosts.iter().position(|one| one.name == host).ok_or_else(|| format!("unknown host `{host}`"))?;
        let host = HostId(at as u32);
        let plan = Plan::new(&system, &Strategies::built_in()).map_err(|unknown| unknown.to_string())?;
        // Nodes share CPUs: a machine may have fewer of them than the experiment has hosts.
        let mut node =
            Node::for_host(system.clone(), Arc::new(plan), host).share_cpu(true).interrupt(interrupt.clone());
        let cpu = node.cpus().map_err(|error| error.to_string())?.first().map(|(_, cpu)| *cpu);
        let mut prepared = node.prepare().map_err(|error| error.to_string())?;
        let settings = NodeSettings {
            system: system.clone(),
            text: write(&system),
            host,
            wait: GATHERING,
            cpu,
            tls: None,
            carrier: None,
            control: None,
            events: None,
            interrupt,
        };
        let peers = NodePeers::start(settings, &mut prepared).map_err(|error| error.to_string())?;
        let Agreed { clock, .. } = peers.agree(|_| ()).map_err(|error| error.to_string())?;
        Ok(JoinedNode { system, prepared, clock, cpu, peers })
    }
}

/// Runs the node of one host of a file to its end: the part of a child process.
///
/// # Errors
///
/// The reason as text.
pub fn run_node(file: &Path, host: &str) -> Result<NodeFigures, String> {
    let interrupt = Interrupt::on_signals(Arc::new(Wake::new())).map_err(|error| error.to_string())?;
    let JoinedNode { system, prepared, clock, peers, .. } = JoinedNode::join(file, host, interrupt)?;
    let mut figures =
        NodeFigures { host: host.to_owned(), length_ns: system.duration.as_nanos(), ..Default::default() };
    let mut sink = |_: ProcessorId, _: Instant, event: TraceEvent| figures.event(&event);
    let mut running = prepared.begin(clock);
    while clock.now() == Instant::ZERO && !running.finished() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let before = own_threads().map_err(|error| error.to_string())?;
    while !running.finished() {
        std::thread::sleep(POLL);
        running.poll(&mut sink);
    }
    // Before its threads end.
    let after = own_threads().map_err(|error| error.to_string())?;
    let finished = running.stop(&mut sink);
    drop(peers);
    figures.notes.extend(finished.notes.iter().map(ToString::to_string));
    if finished.lost.events > 0 {
        figures.notes.push(format!("{} events were lost; counts are incomplete", finished.lost.events));
    }
    figures.threads = after.len() as u64;
    for (tid, name, cpu) in &after {
        let earlier = before.iter().find(|(one, ..)| one == tid).map_or(Span::ZERO, |(.., cpu)| *cpu);
        let part =
            if *tid == own_thread() { Some(&mut figures.parts.measuring_ns) } else { figures.parts.of(name, host) };
        part.into_iter().for_each(|part| *part += cpu.saturating_sub(earlier).as_nanos());
    }
    figures.parts.lanes_ns = figures.parts.lanes_ns.saturating_sub(figures.execution_ns);
    Ok(figures)
}

impl NodeFigures {
    fn event(&mut self, event: &TraceEvent) {
        match event {
            TraceEvent::Decision(DispatchDecision::End(end)) if end.outcome.finished() => {
                self.jobs += 1;
                self.missed += u64::from(end.outcome == JobOutcome::Missed);
                self.execution_ns += end.consumed.as_nanos();
                if self.executions_ns.len() < MOST_SAMPLES {
                    self.executions_ns.push(end.consumed.as_nanos());
                }
            }
            TraceEvent::Decision(DispatchDecision::End(_) | DispatchDecision::Discard { .. }) => self.dropped += 1,
            // These threads end with the run.
            TraceEvent::Cpu(CpuEvent::Used { who, span }) => {
                let part = match who {
                    CpuUser::Lane(_) => &mut self.parts.lanes_ns,
                    CpuUser::Release => &mut self.parts.timers_ns,
                    _ => &mut self.parts.rest_ns,
                };
                *part += span.as_nanos();
            }
            _ => {}
        }
    }
}

impl NodeParts {
    /// The part of a thread with this name; `None` of those that the run measures itself.
    fn of(&mut self, name: &str, processor: &str) -> Option<&mut u64> {
        let lane = name.strip_prefix(processor).and_then(|rest| rest.strip_prefix('-'));
        let is_lane = lane.is_some_and(|lane| lane.bytes().all(|byte| byte.is_ascii_digit()));
        if is_lane || name.ends_with("-release") || name == "hyoshi-watch" {
            None
        } else if name.starts_with("to-") || name.starts_with("bulk-") {
            Some(&mut self.send_ns)
        } else if name.starts_with("node-") {
            Some(&mut self.receive_ns)
        } else {
            Some(&mut self.rest_ns)
        }
    }
}

/// Runs a system once. `text` makes its file from a port for each host and the CPUs of this process.
pub(crate) fn run(
    program: &NodeProgram<'_>,
    hosts: &[&'static str],
    text: impl FnOnce(&[u16], &[u32]) -> String,
    duration: Span,
    control: ExperimentControl<'_>,
) -> Result<Vec<NodeFigures>, NoResult> {
    let file = WorkloadFile::new(hosts.len(), text)?;
    let mut nodes = hosts.iter().map(|host| NodeProcess::start(program, &file, host)).collect::<Result<Vec<_>, _>>()?;
    wait_for(&mut nodes, duration, control)?;
    nodes.into_iter().map(NodeProcess::figures).collect()
}

/// Waits until nodes have ended.
pub(crate) fn wait_for(
    nodes: &mut [NodeProcess],
    duration: Span,
    control: ExperimentControl<'_>,
) -> Result<(), NoResult> {
    let clock = MonotonicClock::start();
    while !nodes.iter_mut().all(NodeProcess::has_ended) {
        std::thread::sleep(POLL);
        if (control.stop)() {
            return Err(NoResult::Stopped);
        }
        if clock.now() > Instant::ZERO + duration + PATIENCE {
            return Err(NoResult::Because(format!("a node did not end within {}", duration + PATIENCE)));
        }
    }
    Ok(())
}

/// How a node is started: with `--node HOST --file FILE` it runs that host, and prints [`NodeFigures`] as JSON.
#[derive(Clone, Copy, Debug)]
pub struct NodeProgram<'a> {
    /// The program.
    pub path: &'a Path,
    /// Its first words.
    pub words: &'a [&'a str],
}

/// The file of a run, in a directory that only this user can enter. Dropping it removes both.
pub(crate) struct WorkloadFile(PathBuf);

impl WorkloadFile {
    /// The file of a system with this number of hosts, each with a port of its own. `text` also gets the CPUs of this
    /// process.
    pub fn new(hosts: usize, text: impl FnOnce(&[u16], &[u32]) -> String) -> Result<WorkloadFile, NoResult> {
        let listeners = (0..hosts).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<io::Result<Vec<_>>>()?;
        let ports = listeners.iter().map(|one| one.local_addr().map(|at| at.port())).collect::<io::Result<Vec<_>>>()?;
        WorkloadFile::write(&text(&ports, &allowed_cpus()))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn write(text: &str) -> Result<WorkloadFile, NoResult> {
        let directory = hyoshi_os::process::unique().map(|name| {
            let name: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
            std::env::temp_dir().join(format!("hyoshi-reproduce-{name}"))
        })?;
        // Not if it exists: another user may control it.
        fs::DirBuilder::new().mode(0o700).create(&directory)?;
        let file = WorkloadFile(directory.join("system.toml"));
        fs::OpenOptions::new().write(true).create_new(true).open(&file.0)?.write_all(text.as_bytes())?;
        Ok(file)
    }
}

impl Drop for WorkloadFile {
    fn drop(&mut self) {
        let _ = self.0.parent().map(fs::remove_dir_all);
    }
}

/// A node in its own process. Dropping it ends the process.
pub(crate) struct NodeProcess {
    host: &'static str,
    child: Child,
    output: Vec<Option<JoinHandle<String>>>,
}

impl NodeProcess {
    pub fn start(program: &NodeProgram<'_>, file: &WorkloadFile, host: &'static str) -> Result<NodeProcess, NoResult> {
        let mut command = Command::new(program.path);
        command.args(program.words).args(["--node", host, "--file"]).arg(&file.0);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let output = vec![stdout.map(all), stderr.map(all)];
        Ok(NodeProcess { host, child, output })
    }

    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    pub fn figures(mut self) -> Result<NodeFigures, NoResult> {
        let mut read = |at: usize| self.output[at].take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let (output, errors) = (read(0), read(1));
        serde_json::from_str(&output).map_err(|_| {
            let line = errors.lines().next().unwrap_or("no output").trim_start_matches("error: ").to_owned();
            NoResult::Because(format!("the node of {}: {line}", self.host))
        })
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let clock = MonotonicClock::start();
        if !self.has_ended() {
            let _ = ask_to_end(&self.child);
        }
        while !self.has_ended() {
            if clock.now() > Instant::ZERO + Span::from_secs(5) {
                let _ = self.child.kill();
            }
            std::thread::sleep(POLL);
        }
    }
}

/// Reads all output, so that the pipe is never full.
fn all(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut output = String::new();
        let _ = pipe.read_to_string(&mut output);
        output
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_name_decides_its_part() {
        let mut parts = NodeParts::default();
        for (at, name) in ["to-server", "bulk-server", "node-tcp-3", "client-contact"].iter().enumerate() {
            *parts.of(name, "middle").unwrap() += 1 << at;
        }
        for name in ["middle-0", "middle-release", "hyoshi-watch"] {
            assert_eq!(parts.of(name, "middle"), None, "{name}");
        }
        assert_eq!(parts, NodeParts { send_ns: 1 + 2, receive_ns: 4, rest_ns: 8, ..NodeParts::default() });
        assert_eq!(NodeParts { measuring_ns: 9, ..parts }.overhead_ns(), 15);
    }
}
