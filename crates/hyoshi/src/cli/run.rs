//! `hyoshi run`: the system on the kernel, all of it or one host.

#[cfg_attr(not(feature = "orb"), path = "run/alone.rs")]
mod hosts;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant as WallClock};

use clap::Args;
use hyoshi_model::{Instant, ProcessorId, Span, System};
use hyoshi_os::Asked;
use hyoshi_os::process::unique;
use hyoshi_os::signals::Interrupt;
use hyoshi_os::switches::Sight;
use hyoshi_os::wake::Wake;
use hyoshi_replay::Observer;
use hyoshi_report::{Account, Level, Live, Note};
use hyoshi_runtime::{EndedBy, Finished, Node, Note as RunNote, Running, StartError};
use hyoshi_sched::Strategies;
use hyoshi_trace::recording::Fact;
use hyoshi_trace::stats::Queueing;
use hyoshi_trace::{Decision, Event};

use super::costs::CostsFrom;
#[cfg(feature = "broker")]
use super::lanes::Lanes;
use super::load::{Changes, Ready, load};
use super::notes::{note, warning};
use super::output::{FLUSH, RecordTo, Recorder, ReportTo, apart, command_line, insight, publish, try_out, unix_now};
#[cfg(feature = "broker")]
use super::programs::Programs;
use super::proved::Analysing;
#[cfg(not(feature = "broker"))]
use super::unbrokered::{Lanes, Programs};
use super::{Failure, Format, Held, default_report};
use crate::bodies::Bodies;
use hosts::{HostArguments, JoinedHost, RunControl};

/// The rings are emptied this often; the live table is drawn as often as it wants.
const POLL: Duration = Duration::from_millis(40);

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The system's file
    file: PathBuf,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    costs: CostsFrom,
    /// Do not start unless everything asked of the kernel is granted
    #[arg(long)]
    strict: bool,
    /// Run on CPUs that other runs, or other programs' real-time threads, have too
    #[arg(long)]
    share_cpu: bool,
    #[command(flatten)]
    hosts: HostArguments,
    #[command(flatten)]
    report: ReportTo,
    /// Write no HTML report
    #[arg(long, conflicts_with = "report")]
    no_report: bool,
    /// Record every input and decision; what is recorded survives SIGKILL
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// The socket of the CPU broker, which starts the file's programs and counts on its lanes [default: as of `hyoshi broker`]
    #[cfg(feature = "broker")]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// What comes out of the rings goes here, on this command's own thread, below every lane.
struct Watching<'a> {
    observer: Observer<'a>,
    recorder: Option<Recorder>,
    failed: Option<Failure>,
    /// Processors whose lanes the hard cap has paused, until the broker knows.
    paused: Vec<ProcessorId>,
}

impl Watching<'_> {
    fn event(&mut self, processor: ProcessorId, now: Instant, event: Event) {
        self.observer.event(processor, now, &event);
        if let Event::Decision(Decision::Pause { on: true }) = &event
            && !self.paused.contains(&processor)
        {
            self.paused.push(processor);
        }
        if let Some(recorder) = &mut self.recorder {
            self.failed = recorder.event(processor, now, &event).err();
        }
        self.forget_failed_recorder();
    }

    /// Everything that happened until `told` was handed over.
    fn flush(&mut self, processors: usize, told: Instant) {
        if let Some(recorder) = &mut self.recorder {
            self.failed = recorder.flush_until(processors, told).err();
        }
        self.forget_failed_recorder();
    }

    /// A disk that is full ends the recording, not the run.
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
) -> Result<Held, Failure> {
    let ready = load(&arguments.file, &arguments.changes, &arguments.costs, strategies, format)?;
    let report = match (&arguments.report.report, arguments.no_report) {
        (_, true) => None,
        (Some(named), false) => Some(named.clone()),
        (None, false) => Some(default_report(&ready.system.name, "run")),
    };
    apart(&[("--record", arguments.record.as_deref()), ("--report", report.as_deref())])?;
    if let Some(path) = &report {
        try_out("the report", path, &ready.file).map_err(|failure| match arguments.report.report {
            Some(_) => failure,
            None => failure.help(
                "start it in a folder that you may write to; `--report FILE` names another place, `--no-report` writes none",
            ),
        })?;
    }
    let record_to = arguments.record.as_deref().map(|path| RecordTo::open(path, &ready)).transpose()?;
    let wake = Arc::new(Wake::new());
    let interrupt =
        Interrupt::on_signals(wake).map_err(|error| Failure::new(format!("cannot listen for signals: {error}")))?;
    let host = arguments.hosts.host(&ready.system)?;
    let node = match host {
        Some(host) => Node::for_host(ready.system.clone(), ready.plan.clone(), host),
        None => Node::new(ready.system.clone(), ready.plan.clone()),
    };
    let node = node.strict(arguments.strict).interrupt(interrupt.clone());
    let node = node.share_cpu(arguments.share_cpu);
    // Without a recording nobody asks who had the CPU.
    let node = node.watch(record_to.is_some());
    let mut node = bodies.install(&ready.system, node).map_err(Failure::new)?;
    let not_started = |error: StartError| {
        Failure::new(error).help("`hyoshi doctor` tells what this machine grants, and what to do about each refusal")
    };
    #[cfg(feature = "broker")]
    let socket = arguments.socket.as_deref();
    #[cfg(not(feature = "broker"))]
    let socket = None;
    // First: programs are admitted beside the lanes.
    let cpus = node.cpus().map_err(not_started)?;
    let mut lanes = Lanes::tell(&ready.system, &cpus, socket);
    let programs = Programs::start(&ready.system, host, socket)?;
    let mut prepared = node.prepare().map_err(not_started)?;
    let control = match host {
        Some(_) => RunControl::default(),
        None => arguments.hosts.control(&ready.system, interrupt.clone())?,
    };
    let joined =
        host.map(|host| arguments.hosts.join(&ready.system, host, &cpus, &mut prepared, interrupt)).transpose()?;
    let run = match &joined {
        Some(joined) => joined.run(),
        None => unique().map_err(|error| Failure::new(format!("cannot read random bytes from the kernel: {error}")))?,
    };
    let started_unix_ns = unix_now();
    let running = match &joined {
        Some(joined) => prepared.begin(joined.clock()),
        None => prepared.start(),
    };
    control.begin(running.clock(), run);
    let ordinary =
        |note: &RunNote| matches!(note, RunNote::Refused { refused, .. } if matches!(refused.asked, Asked::Policy(_)));
    if running.notes().iter().any(ordinary) {
        // Without priorities they are above nobody.
        lanes = Lanes::default();
    }

    let recorder =
        record_to.map(|file| file.begin(&ready, "run", host, run, facts(&running, &ready.system))).transpose()?;
    let names = running.names();
    let recorder = recorder.map(|recorder| recorder.names(names.clone()));
    let insight = insight(&ready.system, &ready.plan, false, format, report.is_some());
    let observer = Observer::new(&ready.system).with_insight(insight);
    let mut watching = Watching { observer, recorder, failed: None, paused: Vec::new() };
    let started = WallClock::now();
    let finished = watch(running, &ready.system, &mut watching, &lanes, joined.as_ref(), format);
    let lanes = lanes.end();
    let hosts = joined.map(JoinedHost::end).unwrap_or_default();
    let control = control.end();
    let programs = programs.map(Programs::end).unwrap_or_default();
    // What cannot be recorded is told with the figures, which are worth having anyway.
    let recorded = watching.recorder.take().map_or(Ok(()), Recorder::finish);
    let unrecorded = watching.failed.take().or(recorded.err());
    let took = Span::from_nanos(started.elapsed().as_nanos() as u64);
    // Not before: a run wants the machine for itself.
    let proved = Analysing::begin(&ready.system, &ready.plan).end();
    let end = Instant::ZERO + finished.elapsed;
    watching.observer.close(end);
    let mut account = Account {
        verb: "run",
        command: command_line(),
        file: &ready.file,
        source: &ready.source,
        system: &ready.system,
        plan: &ready.plan,
        figures: watching.observer.figures(end),
        analysis: proved.analysis(),
        queueing: queueing(&finished, &ready.system),
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
            .chain(control)
            .chain(programs.notes)
            .collect(),
        programs: programs.summaries,
    };
    if account.verdict().holds {
        // Nothing has to be done about a disturbance that cost no deadline that counts.
        let disturbances = account.notes.iter_mut().filter(|note| [MACHINE, STEAL].contains(&note.topic.as_str()));
        disturbances.for_each(|note| note.level = Level::Info);
    }
    let held = publish(&account, report.as_deref(), format, unrecorded.into_iter().collect())?;
    match finished.ended_by {
        EndedBy::Runaway { .. } | EndedBy::Panicked { .. } | EndedBy::Broken { .. } | EndedBy::Overloaded { .. } => {
            Ok(Held::No)
        }
        EndedBy::Duration | EndedBy::Stopped | EndedBy::Interrupted if programs.failed => Ok(Held::No),
        EndedBy::Duration | EndedBy::Stopped | EndedBy::Interrupted => Ok(held),
    }
}

/// Empties the rings and shows how it goes, until it is over.
fn watch(
    mut running: Running,
    system: &System,
    watching: &mut Watching<'_>,
    lanes: &Lanes,
    joined: Option<&JoinedHost>,
    format: Format,
) -> Finished {
    let cpus: Vec<(ProcessorId, u32)> = running.cpus().collect();
    let mut live = (format == Format::Text).then(|| Live::of_stdout(system, system.duration));
    let mut flushed = Instant::ZERO;
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
        if now.since(flushed) >= FLUSH {
            for (processor, clock) in joined.into_iter().flat_map(JoinedHost::clocks) {
                watching.event(processor, running.told_until(), clock);
            }
            watching.flush(system.processors.len(), running.told_until());
            flushed = now;
        }
        if let Some(live) = live.as_mut().filter(|live| live.is_due(now)) {
            // A terminal that is gone is no reason to end the run.
            let _ = live.show(now, system, watching.observer.stats(), running.lost_events());
        }
    }
    let finished = running.stop(&mut |processor, now, event| watching.event(processor, now, event));
    if let Some(live) = &mut live {
        let _ = live.finish();
    }
    finished
}

/// The cost of queueing on each processor; none for processors that run elsewhere.
fn queueing(finished: &Finished, system: &System) -> Vec<Queueing> {
    let of =
        |id| finished.queueing.iter().find(|(processor, _)| *processor == id).map(|(_, queueing)| queueing.clone());
    system.processor_ids().map(|id| of(id).unwrap_or_default()).collect()
}

fn facts(running: &Running, system: &System) -> Vec<Fact> {
    let fact = |note: &RunNote| {
        let (level, topic) = kind(note);
        Fact { what: topic.into(), granted: level != Level::Refused, detail: note.to_string() }
    };
    let sights = running.cpus().map(|(processor, _)| {
        let sight = running.sight(processor);
        let name = &system.processor(processor).name;
        Fact { what: SWITCHES.into(), granted: sight == Sight::Everything, detail: seen(name, sight) }
    });
    running.notes().iter().map(fact).chain(sights).collect()
}

/// The topic of release threads that woke up late.
const MACHINE: &str = "machine";

/// The topic of CPU time that the hypervisor took.
const STEAL: &str = "steal";

/// The topic of what is seen of context switches.
pub(super) const SWITCHES: &str = "switches";

fn seen(processor: &str, sight: Sight) -> String {
    let seen = match sight {
        Sight::Everything => "every switch of its CPU is seen",
        Sight::OwnThreads => "it is seen when its lanes lose their CPU, not to whom",
        Sight::Nothing => "no switch of its CPU is seen: what jobs lack is inferred from their CPU time",
    };
    format!("{processor}: {seen}")
}

/// How much a note matters, and what it is about.
fn kind(note: &RunNote) -> (Level, &'static str) {
    match note {
        RunNote::Refused { .. } | RunNote::RefusedLater { .. } => (Level::Refused, "kernel"),
        RunNote::SharedCpu { .. } | RunNote::PoolExhausted { .. } => (Level::Degraded, "placement"),
        RunNote::LateRelease { .. } => (Level::Degraded, MACHINE),
        RunNote::NotReturned { .. } => (Level::Degraded, "body"),
        RunNote::HardCapped { .. } | RunNote::NoHardCap { .. } => (Level::Degraded, "hard cap"),
        RunNote::Throttled { .. } => (Level::Degraded, "kernel"),
        RunNote::Awake => (Level::Info, "idle states"),
        RunNote::MaySleep { .. } => (Level::Degraded, "idle states"),
    }
}

/// Everything a reader must know to judge the figures.
fn notes(finished: &Finished, ready: &Ready) -> Vec<Note> {
    let mut notes: Vec<Note> = ready.warnings.iter().map(warning).collect();
    notes.extend(ready.notes.iter().cloned());
    for run in &finished.notes {
        let (level, topic) = kind(run);
        let remedy = match run {
            RunNote::Refused { refused, .. } => refused.reason().remedy(),
            _ => None,
        };
        // Several remedies are lines; a note is one.
        let remedy = remedy.map(|remedy| remedy.replace('\n', "; "));
        notes.push(Note { remedy, ..note(level, topic, run) });
    }
    match &finished.ended_by {
        EndedBy::Duration | EndedBy::Stopped => {}
        EndedBy::Interrupted => {
            notes.push(note(Level::Info, "end", "interrupted: the figures are of the time until then"))
        }
        ended @ (EndedBy::Runaway { .. }
        | EndedBy::Panicked { .. }
        | EndedBy::Broken { .. }
        | EndedBy::Overloaded { .. }) => notes.push(note(Level::Failed, "end", ended)),
    }
    if finished.lost.signals > 0 {
        let text = format!("{} completions for other processors were lost: a link was full", finished.lost.signals);
        notes.push(note(Level::Degraded, "link", text));
    }
    if finished.lost.switches > 0 {
        let text = format!(
            "{} records of the kernel's switches were lost: who had a CPU is not known for a while",
            finished.lost.switches
        );
        notes.push(note(Level::Info, SWITCHES, text));
    }
    for (processor, cpu, stolen) in &finished.stolen {
        let stolen = stolen.unwrap_or_default();
        if stolen > Span::from_millis(10) {
            let name = &ready.system.processor(*processor).name;
            let text = format!("the host took {stolen:.3} of CPU {cpu} (processor {name}) during the run");
            notes.push(note(Level::Degraded, STEAL, text));
        }
    }
    notes
}
