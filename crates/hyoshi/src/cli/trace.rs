//! `hyoshi trace`: what a recording says.

use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use hyoshi_dispatch::Replay;
use hyoshi_model::{Instant, Known, ProcessorId, System, read_knowing};
use hyoshi_report::{Account, Level, Note};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::recording::{Fact, Header, ReadError, Reader, Torn};
use hyoshi_trace::{Decision, Event, Stats};

use super::compare::compare;
use super::load::{Changes, plan};
use super::output::{ReportTo, command_line, note, publish};
use super::{Failure, Format, Held, head, streams};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Account for a recording: the tables, JSON or report of the run it was made of
    Summary {
        /// The recording
        file: PathBuf,
        #[command(flatten)]
        report: ReportTo,
    },
    /// Simulate the same system, and compare order and outcome; near-ties are told apart
    Compare {
        /// The recording of a run
        file: PathBuf,
    },
    /// Feed a recording's inputs to a fresh dispatcher: the decisions must be identical
    Replay {
        /// The recording
        file: PathBuf,
    },
}

impl Arguments {
    /// What the verb is called.
    pub fn name(&self) -> &'static str {
        match &self.verb {
            Verb::Summary { .. } => "trace summary",
            Verb::Compare { .. } => "trace compare",
            Verb::Replay { .. } => "trace replay",
        }
    }
}

pub(super) fn trace(arguments: &Arguments, strategies: &Strategies, format: Format) -> Result<Held, Failure> {
    match &arguments.verb {
        Verb::Summary { file, report } => {
            report.try_out(&file.display().to_string())?;
            summary(&Recorded::open(file, strategies)?, report, format)
        }
        Verb::Compare { file } => compare(&Recorded::open(file, strategies)?, format),
        Verb::Replay { file } => replayed(&Recorded::open(file, strategies)?, format),
    }
}

/// A recording with the system it is of. Its events are read when they are asked for: memory does
/// not grow with them.
pub(super) struct Recorded {
    path: PathBuf,
    header: Header,
    pub system: System,
    pub plan: Plan,
}

/// The changes that a recording names, read as the command line was.
#[derive(Parser)]
struct Recalled {
    #[command(flatten)]
    changes: Changes,
}

impl Recorded {
    fn open(path: &Path, strategies: &Strategies) -> Result<Recorded, Failure> {
        let header = reader(path)?.header().clone();
        let name = "system.toml (in the recording)";
        let known = Known { files: header.files.clone(), ..Known::default() };
        let mut system = read_knowing(&header.system, name, None, &known).map_err(Failure::File)?.system;
        let words = std::iter::once("recording").chain(header.changes.iter().map(String::as_str));
        let recalled = Recalled::try_parse_from(words)
            .map_err(|error| Failure::new(format!("the recording names a change that is none: {error}")))?;
        recalled.changes.apply(&mut system);
        system.seed = header.seed;
        let plan = plan(&system, strategies)?;
        Ok(Recorded { path: path.into(), header, system, plan })
    }

    /// Hands every event to `each`, until it says stop; what was lost, and whether the end is torn.
    pub fn events(
        &self,
        mut each: impl FnMut(ProcessorId, Instant, Event) -> ControlFlow<()>,
    ) -> Result<(u64, Option<Torn>), Failure> {
        let mut reader = reader(&self.path)?;
        for entry in reader.by_ref() {
            let entry = entry.map_err(|error| cannot_read(&self.path, error))?;
            let processors = self.system.processors.len();
            if entry.processor.index() >= processors {
                let number = entry.processor.0;
                return Err(Failure::new(format!(
                    "the recording tells of processor {number}, but the system in it has {processors}"
                )));
            }
            if each(entry.processor, entry.now, entry.event).is_break() {
                break;
            }
        }
        Ok((reader.lost().iter().sum(), reader.torn()))
    }
}

fn reader(path: &Path) -> Result<Reader<BufReader<File>>, Failure> {
    let file = File::open(path).map_err(|error| cannot_read(path, ReadError::Io(error)))?;
    Reader::new(BufReader::new(file)).map_err(|error| cannot_read(path, error))
}

fn cannot_read(path: &Path, error: ReadError) -> Failure {
    match error {
        ReadError::Io(error) => {
            let help = match error.kind() {
                ErrorKind::NotFound => "check the name; `hyoshi run FILE --record NAME` makes a recording",
                ErrorKind::IsADirectory => "name a file in it",
                ErrorKind::PermissionDenied => "make it readable for this user: chmod +r",
                _ => "check that it can be read at all: cat",
            };
            Failure::new(format!("cannot read {}: {error}", path.display())).help(help)
        }
        error => Failure::new(format!("cannot read {}: {error}", path.display())),
    }
}

fn summary(recorded: &Recorded, report: &ReportTo, format: Format) -> Result<Held, Failure> {
    let mut stats = Stats::new(&recorded.system);
    let mut last = Instant::ZERO;
    let (lost, torn) = recorded.events(|_, at, event| {
        if let Event::Decision(Decision::End(end)) = &event {
            stats.record(end);
        }
        last = last.max(at);
        ControlFlow::Continue(())
    })?;
    let header = &recorded.header;
    let told =
        |fact: &Fact| note(if fact.granted { Level::Degraded } else { Level::Refused }, &fact.what, &fact.detail);
    let mut notes: Vec<Note> = header.facts.iter().map(told).collect();
    let (duration, asked) = (last.since(Instant::ZERO), recorded.system.duration);
    if let Some(torn) = torn {
        notes.push(note(Level::Degraded, "recording", torn));
    } else if duration < asked {
        let text = format!("it ends after {duration} of {asked}: interrupted, or its writer was killed");
        notes.push(note(Level::Info, "recording", text));
    }
    let account = Account {
        verb: &header.verb,
        command: command_line(),
        file: &recorded.path.display().to_string(),
        source: &header.system,
        system: &recorded.system,
        plan: &recorded.plan,
        stats: &stats,
        duration,
        asked,
        took: duration,
        started_unix_ns: Some(header.started_unix_ns),
        lost_events: lost,
        notes,
    };
    publish(&account, report.report.as_deref(), format, Vec::new())
}

fn replayed(recorded: &Recorded, format: Format) -> Result<Held, Failure> {
    let (mut inputs, mut decisions) = (0, 0);
    let (mut divergence, mut cut) = (None, None);
    for plan in &recorded.plan.processors {
        let mut replay = Replay::new(&recorded.system, plan);
        let mut diverged = None;
        let (lost, torn) = recorded.events(|processor, at, event| {
            if processor == plan.processor {
                diverged = replay.event(at, event).err();
            }
            if diverged.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        cut = cut.or(torn);
        if lost > 0 {
            let message = format!("{lost} events were lost while recording: a replay cannot follow");
            return Err(Failure::new(message).help("record again with less load on the machine"));
        }
        if let Some(diverged) = diverged {
            divergence = Some(format!("processor `{}`, {diverged}", recorded.system.processor(plan.processor).name));
            break;
        }
        let replayed = replay.done();
        (inputs, decisions) = (inputs + replayed.inputs, decisions + replayed.decisions);
    }
    match format {
        Format::Text => match &divergence {
            None => streams::out(format_args!("{inputs} inputs fed back, {decisions} decisions identical\n"))?,
            Some(divergence) => streams::out(format_args!("the replay diverges at {divergence}\n"))?,
        },
        Format::Json => {}
    }
    match (format, &cut) {
        (Format::Text, Some(torn)) => streams::out(format_args!("the recording ends in mid-run: {torn}\n"))?,
        (Format::Text, None) => {}
        (Format::Json, _) => {
            let object = serde_json::json!({
                "hyoshi": head("trace replay"), "holds": divergence.is_none(),
                "inputs": inputs, "decisions": decisions, "divergence": divergence,
                "torn": cut.map(|torn| torn.to_string()),
            });
            streams::out(format_args!("{object:#}\n"))?;
        }
    }
    Ok(Held::when(divergence.is_none()))
}
