//! `hyoshi trace`: what a recording says.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use hyoshi_dispatch::Replay;
use hyoshi_model::{Instant, Known, ProcessorId, Span, System, read_knowing};
use hyoshi_report::figures::time;
use hyoshi_report::{Account, Level, Note};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::recording::{Fact, Fits, Header, ReadError, Reader};
use hyoshi_trace::{Decision, Event, Reigns, Splits, Stats};

use super::compare::compare;
use super::costs::{self, CostsFrom};
use super::export::perfetto;
use super::load::{Changes, Ready, known_strategy, plan};
use super::output::{ReportTo, command_line, insight, note, publish};
use super::proved::Analysing;
use super::run::SWITCHES;
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
    /// Write a recording for the viewer of another program
    Export {
        /// For Perfetto: open the file at <https://ui.perfetto.dev>
        #[arg(long, required = true)]
        perfetto: bool,
        /// The recording
        file: PathBuf,
        /// Where to; left out, beside the recording
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
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
            Verb::Export { .. } => "trace export",
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
        Verb::Export { perfetto: _, file, output } => {
            perfetto(&Recorded::open(file, strategies)?, output.as_deref(), format)
        }
        Verb::Replay { file } => replayed(&Recorded::open(file, strategies)?, format),
    }
}

/// A recording with the system it is of. Its events are read when they are asked for: memory does
/// not grow with them.
pub(super) struct Recorded {
    pub path: PathBuf,
    pub header: Header,
    pub system: Arc<System>,
    pub plan: Arc<Plan>,
    /// Known once it was read.
    cut: OnceCell<Option<Instant>>,
}

/// The changes that a recording names, read as the command line was.
#[derive(Parser)]
struct Recalled {
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    costs: CostsFrom,
}

impl Recorded {
    pub fn open(path: &Path, strategies: &Strategies) -> Result<Recorded, Failure> {
        let header = reader(path)?.header().clone();
        let name = "system.toml (in the recording)";
        let costs = costs::recalled_instead(&header.files)?;
        let known = Known { files: header.files.clone(), costs, ..Known::default() };
        let mut system = read_knowing(&header.system, name, None, &known).map_err(Failure::File)?.system;
        let words = std::iter::once("recording").chain(header.changes.iter().map(String::as_str));
        let recalled = Recalled::try_parse_from(words)
            .map_err(|error| Failure::new(format!("the recording names a change that is none: {error}")))?;
        recalled.changes.apply(&mut system);
        recalled.costs.recalled(&header.files, &mut system)?;
        system.seed = header.seed;
        let plan = plan(&system, strategies)?;
        Ok(Recorded { path: path.into(), header, system: system.into(), plan: plan.into(), cut: OnceCell::new() })
    }

    /// Its system with further changes, ready to be simulated.
    pub fn ready(
        &self,
        changes: &Changes,
        costs: &CostsFrom,
        mut notes: Vec<Note>,
        strategies: &Strategies,
    ) -> Result<Ready, Failure> {
        known_strategy(changes, strategies)?;
        let mut system = System::clone(&self.system);
        changes.apply(&mut system);
        if costs.costs.is_some() {
            notes.extend(costs.find()?.settle(&mut system, true));
        }
        let plan = plan(&system, strategies)?;
        Ok(Ready {
            file: self.path.display().to_string(),
            source: self.header.system.clone(),
            files: self.header.files.clone(),
            system: system.into(),
            plan: plan.into(),
            warnings: Vec::new(),
            notes,
            changes: self.header.changes.iter().cloned().chain(changes.arguments()).collect(),
        })
    }

    /// Hands every event to `each`, until it says stop.
    pub fn events(
        &self,
        mut each: impl FnMut(ProcessorId, Instant, Event) -> ControlFlow<()>,
    ) -> Result<Left, Failure> {
        let mut reader = reader(&self.path)?;
        let mut fits = Fits::new(&self.system);
        let cut = self.cut()?;
        let until = cut.unwrap_or(Instant::NEVER);
        for entry in reader.by_ref() {
            let entry = entry.map_err(|error| cannot_read(&self.path, error))?;
            fits.check(&entry).map_err(|misfit| {
                Failure::new(format!("the recording {} is not of the system in it: {misfit}", self.path.display()))
            })?;
            // What one processor did is not to be judged without what the others did at the time.
            if entry.now > until {
                continue;
            }
            if each(entry.processor, entry.now, entry.event).is_break() {
                break;
            }
        }
        let lost = reader.lost().iter().fold(0, |sum: u64, lost| sum.saturating_add(*lost));
        let torn = reader.torn().map(|torn| {
            let common = cut.map(|cut| {
                format!(
                    "; all processors are told of until {}, what some tell of later is left out",
                    time(cut.since(Instant::ZERO))
                )
            });
            format!("{torn}{}", common.unwrap_or_default())
        });
        Ok(Left { lost, torn, cut, names: reader.names().to_vec() })
    }

    /// Until when a recording that was cut off tells of all processors; `None` where it tells of the
    /// end of each, or only of one.
    fn cut(&self) -> Result<Option<Instant>, Failure> {
        let processors = self.system.processors.len();
        if processors < 2 {
            return Ok(None);
        }
        if let Some(known) = self.cut.get() {
            return Ok(*known);
        }
        let mut reader = reader(&self.path)?;
        // What is damaged is told where events are read for good.
        while let Some(Ok(_)) = reader.next() {}
        let all = (0..processors).map(|processor| reader.told_until(ProcessorId(processor as u32)));
        let cut = all.min().filter(|least| *least != Instant::NEVER);
        Ok(*self.cut.get_or_init(|| cut))
    }
}

/// What a recording leaves to say when its events were read.
pub(super) struct Left {
    /// Events that were lost while recording.
    pub lost: u64,
    /// How it ends within a block, if it does.
    pub torn: Option<String>,
    /// The last instant at which it tells of all processors, if it was cut off.
    pub cut: Option<Instant>,
    /// The names of other threads.
    pub names: Vec<String>,
}

fn reader(path: &Path) -> Result<Reader<BufReader<File>>, Failure> {
    let file = File::open(path).map_err(|error| cannot_read(path, ReadError::Io(error)))?;
    Reader::new(BufReader::with_capacity(READ, file)).map_err(|error| cannot_read(path, error))
}

/// A file is read in pieces of this size: a block and then some.
const READ: usize = 128 << 10;

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
    let analysing = Analysing::begin(&recorded.system, &recorded.plan);
    let mut stats = Stats::new(&recorded.system);
    let mut splits = Splits::new(recorded.system.processors.len());
    let mut reigns = Reigns::new(&recorded.system);
    let exact = recorded.header.verb == "sim";
    let mut insight = insight(&recorded.system, &recorded.plan, exact, format, report.report.is_some());
    let mut last = Instant::ZERO;
    let left = recorded.events(|processor, at, event| {
        splits.event(processor, at, &event);
        reigns.event(processor, at, &event);
        if let Event::Decision(Decision::End(end)) = &event {
            stats.record(end);
        }
        if let Some(insight) = &mut insight {
            insight.event(processor, at, &event);
        }
        last = last.max(at);
        ControlFlow::Continue(())
    })?;
    let header = &recorded.header;
    let told = |fact: &Fact| {
        let level = match fact.granted {
            // How much could be seen matters to who reads on, not to the run.
            _ if fact.what == SWITCHES => Level::Info,
            true => Level::Degraded,
            false => Level::Refused,
        };
        note(level, &fact.what, &fact.detail)
    };
    let mut notes: Vec<Note> = header.facts.iter().map(told).collect();
    let asked = recorded.system.duration;
    // The last lane may be told of the end a little after it.
    let last = left.cut.unwrap_or(last);
    let duration = last.since(Instant::ZERO).min(asked);
    if let Some(torn) = &left.torn {
        notes.push(note(Level::Degraded, "recording", torn));
    } else if duration < asked {
        let text =
            format!("it ends after {} of {}: interrupted, or its writer was killed", time(duration), time(asked));
        notes.push(note(Level::Info, "recording", text));
    }
    let seen = insight.map(|insight| insight.finish(last));
    let proved = analysing.end();
    let split = splits.close(Instant::ZERO + duration);
    let account = Account {
        verb: &header.verb,
        command: command_line(),
        file: &recorded.path.display().to_string(),
        source: &header.system,
        system: &recorded.system,
        plan: &recorded.plan,
        stats: &stats,
        analysis: proved.analysis(),
        stolen: split.iter().map(|time| time.stolen).collect(),
        queueing: Vec::new(),
        reigns: reigns.close(Instant::ZERO + duration),
        insight: seen.as_ref(),
        duration,
        asked,
        // How long a simulation took is in no recording.
        took: if exact { Span::ZERO } else { duration },
        started_unix_ns: Some(header.started_unix_ns),
        time: &split,
        threads: &left.names,
        lost_events: left.lost,
        notes,
        // What became of programs is in no recording.
        programs: Vec::new(),
    };
    publish(&account, report.report.as_deref(), format, Vec::new())
}

fn replayed(recorded: &Recorded, format: Format) -> Result<Held, Failure> {
    let (mut inputs, mut decisions) = (0, 0);
    let (mut divergence, mut cut) = (None, None);
    for plan in &recorded.plan.processors {
        let mut replay = Replay::new(&recorded.system, plan);
        let mut diverged = None;
        let Left { lost, torn, .. } = recorded.events(|processor, at, event| {
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
                "torn": cut,
            });
            streams::out(format_args!("{object:#}\n"))?;
        }
    }
    Ok(Held::when(divergence.is_none()))
}
