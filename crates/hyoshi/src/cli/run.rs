//! `hyoshi run`: the system on the kernel, all of it or one host.

#[cfg(feature = "orb")]
mod corba_events;
mod edits;
#[cfg_attr(not(feature = "zenoh"), path = "run/no_gateways.rs")]
mod gateways;
#[cfg_attr(not(feature = "orb"), path = "run/alone.rs")]
mod hosts;
#[cfg(feature = "orb")]
mod network;
#[cfg(feature = "orb")]
mod objects;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant as WallClock};

use clap::Args;
use hyoshi_events::EventChannel;
use hyoshi_model::{HostId, Instant, ProcessorId, Span, System};
use hyoshi_os::KernelRequest;
use hyoshi_os::process::unique;
use hyoshi_os::signals::Interrupt;
use hyoshi_os::switches::SwitchVisibility;
use hyoshi_os::wake::Wake;
use hyoshi_replay::Observer;
use hyoshi_report::figures::{count, time};
use hyoshi_report::{LiveTable, NoteLevel, ReportInput, ReportNote};
use hyoshi_runtime::{EndedBy, Finished, Node, RunNote, RunningNode, StartError};
use hyoshi_sched::Strategies;
use hyoshi_trace::recording::{Fact, FactLevel};
use hyoshi_trace::stats::Queueing;
use hyoshi_trace::{DispatchDecision, Input, TraceEvent};

use super::costs::CostsFrom;
use super::freeze::{can_freeze, freeze};
#[cfg(feature = "broker")]
use super::lanes::LanePromises;
use super::load::{Changes, LoadedSystem, load};
use super::notes::{Verbose, late_outputs, note, recorded_level, warning};
use super::output::{
    FLUSH, RecordTo, Recorder, ReportTo, apart, cause_analysis, command_line, publish, try_out, unix_now,
};
#[cfg(feature = "broker")]
use super::programs::{RunningPrograms, SharedBroker};
use super::proved::Analysing;
#[cfg(not(feature = "broker"))]
use super::unbrokered::{NoLanePromises as LanePromises, NoPrograms as RunningPrograms};
use super::{CliError, Format, VerbOutcome, default_report};
use crate::bodies::Bodies;
#[cfg(feature = "orb")]
use corba_events::OfferedEvents;
use edits::EditWatch;
#[cfg(not(feature = "zenoh"))]
use gateways::NoGateways as RunGateways;
#[cfg(feature = "zenoh")]
use gateways::RunGateways;
use hosts::{HostArguments, JoinedHost, RunControl};
#[cfg(feature = "orb")]
pub(super) use network::watch as watch_network;
#[cfg(feature = "orb")]
use objects::RunObjects;

/// The rings are read this often.
const POLL: Duration = Duration::from_millis(40);

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The system's file
    file: PathBuf,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    costs: CostsFrom,
    /// Do not start unless the kernel grants every request
    #[arg(long)]
    strict: bool,
    /// Allow CPUs that other runs or real-time threads use, too
    #[arg(long)]
    share_cpu: bool,
    /// Permit the commands that contracts of the file run
    #[arg(long)]
    commands: bool,
    #[command(flatten)]
    hosts: HostArguments,
    #[command(flatten)]
    report: ReportTo,
    /// Write no HTML report
    #[arg(long, conflicts_with = "report")]
    no_report: bool,
    /// Record every input and decision; the recording survives SIGKILL
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// At the end, write the system with the rates that its feedback loops have found, and without the loops
    #[arg(long, value_name = "FILE")]
    freeze: Option<PathBuf>,
    /// The socket of the CPU broker, for the file's programs and lanes [default: that of `hyoshi broker`]
    #[cfg(feature = "broker")]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    verbose: Verbose,
}

/// Receives the events from the rings, on this command's own thread, below every lane.
struct RunEvents<'a> {
    system: &'a System,
    /// The only host of this process; `None` for all.
    host: Option<HostId>,
    observer: Observer<'a>,
    recorder: Option<Recorder>,
    failed: Option<CliError>,
    /// Processors whose lanes the hard cap has paused.
    paused: Vec<ProcessorId>,
}

impl RunEvents<'_> {
    fn event(&mut self, processor: ProcessorId, now: Instant, event: TraceEvent) {
        if let (Some(host), TraceEvent::Input(Input::Signal(signal) | Input::DropHop(signal))) = (self.host, &event)
            && self.system.processor(self.system.operation(signal.from).on).host != host
        {
            // The recording of its host has the sending.
            self.observer.crosses(processor, None);
        }
        self.observer.event(processor, now, &event);
        if let TraceEvent::Decision(DispatchDecision::Pause { on: true }) = &event
            && !self.paused.contains(&processor)
        {
            self.paused.push(processor);
        }
        if let Some(recorder) = &mut self.recorder {
            self.failed = recorder.event(processor, now, &event).err();
        }
        self.forget_failed_recorder();
    }

    /// All events until `until` were passed on.
    fn flush(&mut self, processors: usize, until: Instant) {
        if let Some(recorder) = &mut self.recorder {
            self.failed = recorder.flush_until(processors, until).err();
        }
        self.forget_failed_recorder();
    }

    /// A full disk ends the recording, not the run.
    fn forget_failed_recorder(&mut self) {
        if self.failed.is_some() {
            self.recorder = None;
        }
    }
}

pub(super) fn run(
    arguments: &Arguments,
    strategies: &Strategies,
    bodies: Bodies,
    format: Format,
) -> Result<VerbOutcome, CliError> {
    let ready = load(&arguments.file, &arguments.changes, &arguments.costs, strategies, format)?;
    let mut edits = EditWatch::of(&ready);
    let report = match (&arguments.report.report, arguments.no_report) {
        (_, true) => None,
        (Some(named), false) => Some(named.clone()),
        (None, false) => Some(default_report(&ready.system.name, "run")),
    };
    let outputs = [
        ("--record", arguments.record.as_deref()),
        ("--report", report.as_deref()),
        ("--freeze", arguments.freeze.as_deref()),
    ];
    apart(&outputs)?;
    if let Some(path) = &arguments.freeze {
        can_freeze(&ready.file, &ready.system, arguments.hosts.host(&ready.system)?)?;
        try_out("the frozen rates", path, &ready.file)?;
    }
    if let Some(path) = &report {
        try_out("the report", path, &ready.file).map_err(|failure| match arguments.report.report {
            Some(_) => failure,
            None => failure
                .help("name a file that you may write to with `--report FILE`, or write no report with `--no-report`"),
        })?;
    }
    let record_to = arguments.record.as_deref().map(|path| RecordTo::open(path, &ready)).transpose()?;
    let wake = Arc::new(Wake::new());
    let interrupt =
        Interrupt::on_signals(wake).map_err(|error| CliError::new(format!("cannot listen for signals: {error}")))?;
    let host = arguments.hosts.host(&ready.system)?;
    let node = match host {
        Some(host) => Node::for_host(ready.system.clone(), ready.plan.clone(), host),
        None => Node::new(ready.system.clone(), ready.plan.clone()),
    };
    let node = node.strict(arguments.strict).interrupt(interrupt.clone());
    let node = node.share_cpu(arguments.share_cpu).commands(arguments.commands);
    // Only recordings contain context switches.
    let node = node.watch(record_to.is_some());
    let mut bodies = bodies.complete(&ready.system).map_err(CliError::new)?;
    let users = bodies.take_channel_users();
    let handle_users = bodies.take_handle_users();
    #[cfg(feature = "orb")]
    let (node, objects) = RunObjects::install(bodies.take_objects(), &ready.system, host, node)?;
    let mut node = bodies.install(&ready.system, node).map_err(CliError::new)?;
    let not_started = |error: StartError| CliError::new(&error).help(error.remedy());
    #[cfg(feature = "broker")]
    let socket = arguments.socket.as_deref();
    #[cfg(not(feature = "broker"))]
    let socket = None;
    #[cfg(feature = "broker")]
    {
        node = node.broker(Arc::new(SharedBroker::new(socket)));
    }
    // First: programs are admitted beside the lanes.
    let cpus = node.cpus().map_err(not_started)?;
    let mut lanes = LanePromises::send(&ready.system, &cpus, socket);
    let programs = RunningPrograms::start(&ready.system, host, socket)?;
    let mut prepared = node.prepare().map_err(not_started)?;
    let channel = EventChannel::start(&mut prepared).map_err(CliError::new)?;
    let control = match host {
        Some(_) => RunControl::default(),
        None => arguments.hosts.control(&ready.system, (&channel, &prepared.handles()), interrupt.clone())?,
    };
    let strict = arguments.strict;
    let join = |host| arguments.hosts.join(&ready.system, host, &cpus, &mut prepared, &channel, (interrupt, strict));
    let joined = host.map(join).transpose()?;
    #[cfg(feature = "orb")]
    let corba_events = OfferedEvents::serve(&channel, host, joined.as_ref())?;
    #[cfg(feature = "orb")]
    let objects = objects.serve(&mut prepared, joined.as_ref(), &control, &corba_events)?;
    #[cfg(not(feature = "orb"))]
    hosts::needs_no_orb(&ready.system)?;
    let mut gateways = RunGateways::open(&channel, host, joined.as_ref())?;
    users.into_iter().for_each(|user| user(channel.clone()));
    handle_users.into_iter().for_each(|user| user(prepared.handles()));
    let run = match &joined {
        Some(joined) => joined.run(),
        None => {
            unique().map_err(|error| CliError::new(format!("cannot read random bytes from the kernel: {error}")))?
        }
    };
    let started_unix_ns = unix_now();
    let running = match &joined {
        Some(joined) => prepared.begin(joined.clock()),
        None => prepared.start(),
    };
    control.begin(running.clock(), run);
    let ordinary = |note: &RunNote| matches!(note, RunNote::Refused { refused, .. } if matches!(refused.asked, KernelRequest::Policy(_)));
    if running.notes().iter().any(ordinary) {
        // Without real-time priorities the lanes are not above windows.
        lanes = LanePromises::default();
    }

    let recorder =
        record_to.map(|file| file.begin(&ready, "run", host, run, facts(&running, &ready.system))).transpose()?;
    let names = running.names();
    let recorder = recorder.map(|recorder| recorder.names(names.clone()));
    let causes = cause_analysis(&ready.system, &ready.plan, false, format, report.is_some());
    let observer = Observer::new(&ready.system).with_causes(causes);
    let mut watching = RunEvents { system: &ready.system, host, observer, recorder, failed: None, paused: Vec::new() };
    let started = WallClock::now();
    let reporting = (joined.as_ref(), &mut gateways, &mut edits);
    let finished = watch(running, &ready.system, &mut watching, &lanes, reporting, format);
    let lanes = lanes.end();
    let gateways = gateways.end();
    #[cfg(feature = "orb")]
    let objects = [corba_events.end(), objects.end()].concat();
    #[cfg(not(feature = "orb"))]
    let objects = Vec::new();
    let hosts = joined.map(JoinedHost::end).unwrap_or_default();
    let control = control.end();
    let programs = programs.map(RunningPrograms::end).unwrap_or_default();
    // A failed recording is reported with the figures.
    let recorded = watching.recorder.take().map_or(Ok(()), Recorder::finish);
    let unrecorded = watching.failed.take().or(recorded.err());
    let took = Span::from_nanos(started.elapsed().as_nanos() as u64);
    // After the run, which needs the machine's CPUs.
    let proved = Analysing::begin(&ready.system, &ready.plan).end();
    let end = Instant::ZERO + finished.elapsed;
    watching.observer.close(end);
    let figures = watching.observer.figures(end);
    let unfrozen =
        arguments.freeze.as_ref().and_then(|path| freeze(path, &ready.system, host, &finished.periods).err());
    let late_outputs = late_outputs(&ready.system, figures.stats);
    let mut account = ReportInput {
        verb: "run",
        command: command_line(),
        file: &ready.file,
        source: &ready.source,
        system: &ready.system,
        host,
        plan: &ready.plan,
        figures,
        analysis: proved.analysis(),
        queueing: queueing(&finished, &ready.system),
        groups: finished.groups.clone(),
        machine_ppm: finished.machine,
        duration: finished.elapsed,
        asked: ready.system.duration,
        interrupted: finished.ended_by == EndedBy::Interrupted,
        took,
        started_unix_ns: Some(started_unix_ns),
        threads: &names.since(0),
        lost_events: finished.lost.events,
        notes: notes(&finished, &ready)
            .into_iter()
            .chain(lanes)
            .chain(hosts)
            .chain(objects)
            .chain(publishers(&channel))
            .chain(gateways)
            .chain(control)
            .chain(programs.notes)
            .chain(late_outputs)
            .chain(edits.end())
            .collect(),
        programs: programs.summaries,
    };
    if account.verdict().holds {
        // A disturbance without a missed deadline needs no action.
        let disturbances = account.notes.iter_mut().filter(|note| [MACHINE, STEAL].contains(&note.topic.as_str()));
        disturbances.for_each(|note| note.level = NoteLevel::Info);
    }
    let failures = unrecorded.into_iter().chain(unfrozen).collect();
    let held = publish(&account, report.as_deref(), format, arguments.verbose.detail(), failures)?;
    match finished.ended_by {
        EndedBy::Runaway { .. } | EndedBy::Panicked { .. } | EndedBy::Broken { .. } | EndedBy::Overloaded { .. } => {
            Ok(VerbOutcome::Negative)
        }
        EndedBy::Duration | EndedBy::Stopped | EndedBy::Interrupted if programs.failed => Ok(VerbOutcome::Negative),
        EndedBy::Duration | EndedBy::Stopped | EndedBy::Interrupted => Ok(held),
    }
}

/// Reads the rings and shows the progress, until the run ends.
fn watch(
    mut running: RunningNode,
    system: &System,
    watching: &mut RunEvents<'_>,
    lanes: &LanePromises,
    (joined, gateways, edits): (Option<&JoinedHost>, &mut RunGateways, &mut EditWatch),
    format: Format,
) -> Finished {
    let cpus: Vec<(ProcessorId, u32)> = running.cpus().collect();
    let mut live = (format == Format::Text).then(|| LiveTable::of_stderr(system, system.duration));
    let (machine, mut flushed) = (running.machine_load(), Instant::ZERO);
    while !running.finished() {
        std::thread::sleep(POLL);
        running.poll(&mut |processor, now, event| watching.event(processor, now, event));
        for (processor, cpu) in cpus.iter().filter(|(processor, _)| watching.paused.contains(processor)) {
            lanes.paused(*cpu, system.processor(*processor).hard_cap.budget());
        }
        let now = running.now();
        if let Some(joined) = joined {
            joined.report();
        }
        gateways.report();
        edits.report(format == Format::Text);
        if now.since(flushed) >= FLUSH {
            for (processor, clock) in joined.into_iter().flat_map(JoinedHost::clocks) {
                watching.event(processor, running.complete_until(), clock);
            }
            watching.flush(system.processors.len(), running.complete_until());
            flushed = now;
        }
        if let Some(live) = live.as_mut().filter(|live| live.is_due(now)) {
            // A closed terminal does not end the run.
            let progress = (watching.observer.progress(), machine.latest());
            let _ = live.show(now, system, progress, running.lost_events());
        }
    }
    let finished = running.stop(&mut |processor, now, event| watching.event(processor, now, event));
    if let Some(live) = &mut live {
        let _ = live.finish();
    }
    finished
}

/// Notes about publishers with rates that feedback loops set.
fn publishers(channel: &EventChannel) -> Vec<ReportNote> {
    let reports = channel.publisher_reports().into_iter();
    reports.map(|report| note(NoteLevel::Degraded, "rates of clients", report)).collect()
}

/// The cost of queueing on each processor; none for processors that run elsewhere.
fn queueing(finished: &Finished, system: &System) -> Vec<Queueing> {
    let of =
        |id| finished.queueing.iter().find(|(processor, _)| *processor == id).map(|(_, queueing)| queueing.clone());
    system.processor_ids().map(|id| of(id).unwrap_or_default()).collect()
}

fn facts(running: &RunningNode, system: &System) -> Vec<Fact> {
    let fact = |note: &RunNote| {
        let (level, topic) = kind(note);
        Fact { what: topic.into(), level: recorded_level(level), detail: note.to_string() }
    };
    let sights = running.cpus().map(|(processor, _)| {
        let visibility = running.visibility(processor);
        let name = &system.processor(processor).name;
        // It limits the explanations, not the run.
        Fact { what: SWITCHES.into(), level: FactLevel::Info, detail: seen(name, visibility) }
    });
    running.notes().iter().map(fact).chain(sights).collect()
}

/// The topic of release threads that woke up late.
const MACHINE: &str = "machine";

/// The topic of CPU time used by the hypervisor.
const STEAL: &str = "steal";

/// The topic of recorded context switches.
pub(super) const SWITCHES: &str = "switches";

fn seen(processor: &str, visibility: SwitchVisibility) -> String {
    let seen = match visibility {
        SwitchVisibility::Everything => "every context switch of its CPU is recorded",
        SwitchVisibility::OwnThreads => "preemptions of its lanes are recorded, without the preempting thread",
        SwitchVisibility::Nothing => "no context switches are recorded; preemption is inferred from CPU times",
    };
    format!("{processor}: {seen}")
}

/// The level and the topic of a note.
fn kind(note: &RunNote) -> (NoteLevel, &'static str) {
    match note {
        RunNote::Refused { .. } | RunNote::RefusedLater { .. } => (NoteLevel::Refused, "kernel"),
        RunNote::SharedCpu { .. } | RunNote::PoolExhausted { .. } => (NoteLevel::Degraded, "placement"),
        RunNote::LateRelease { .. } => (NoteLevel::Degraded, MACHINE),
        RunNote::NotReturned { .. } => (NoteLevel::Degraded, "body"),
        RunNote::HardCapped { .. } | RunNote::NoHardCap { .. } => (NoteLevel::Degraded, "hard cap"),
        RunNote::CoarseLoad { .. }
        | RunNote::UnsolvedSteps(_)
        | RunNote::ProposedMove { .. }
        | RunNote::SkippedSteps(_)
        | RunNote::GroupControlFailed { .. } => (NoteLevel::Degraded, "feedback"),
        RunNote::RegionAction(outcome) if outcome.failed == 0 => (NoteLevel::Info, "contracts"),
        RunNote::RegionAction(_)
        | RunNote::LostRegions { .. }
        | RunNote::ActionsBlocked
        | RunNote::Unmeasured { .. } => (NoteLevel::Degraded, "contracts"),
        RunNote::Throttled { .. } => (NoteLevel::Degraded, "kernel"),
        RunNote::Awake => (NoteLevel::Info, "idle states"),
        RunNote::MaySleep { .. } => (NoteLevel::Degraded, "idle states"),
    }
}

/// All notes of the run.
fn notes(finished: &Finished, ready: &LoadedSystem) -> Vec<ReportNote> {
    let mut notes: Vec<ReportNote> = ready.warnings.iter().map(warning).collect();
    notes.extend(ready.notes.iter().cloned());
    for run in &finished.notes {
        let (level, topic) = kind(run);
        let remedy = match run {
            RunNote::Refused { refused, .. } => refused.reason().remedy(),
            _ => None,
        };
        // Several remedies are lines; a note is one.
        let remedy = remedy.map(|remedy| remedy.replace('\n', "; "));
        notes.push(ReportNote { remedy, ..note(level, topic, run) });
    }
    match &finished.ended_by {
        EndedBy::Duration | EndedBy::Stopped => {}
        EndedBy::Interrupted => {
            notes.push(note(NoteLevel::Info, "end", "interrupted: the figures cover the time before"))
        }
        ended @ (EndedBy::Runaway { .. }
        | EndedBy::Panicked { .. }
        | EndedBy::Broken { .. }
        | EndedBy::Overloaded { .. }) => notes.push(note(NoteLevel::Failed, "end", ended)),
    }
    if finished.lost.signals > 0 {
        let text = format!(
            "{} completions for other processors were lost, because a link was full",
            count(finished.lost.signals)
        );
        notes.push(note(NoteLevel::Degraded, "link", text));
    }
    if finished.lost.switches > 0 {
        let text = format!(
            "{} records of context switches were lost: some use of CPUs is unknown",
            count(finished.lost.switches)
        );
        notes.push(note(NoteLevel::Info, SWITCHES, text));
    }
    for (processor, cpu, stolen) in &finished.stolen {
        let stolen = stolen.unwrap_or_default();
        if stolen > Span::from_millis(10) {
            let name = &ready.system.processor(*processor).name;
            let text = format!("a hypervisor used {} of CPU {cpu} (processor {name}) during the run", time(stolen));
            notes.push(note(NoteLevel::Degraded, STEAL, text));
        }
    }
    notes
}
