//! `hyoshi trace`: reads, compares, merges, converts and replays recordings.

use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use hyoshi_model::{Instant, Span};
use hyoshi_replay::Observer;
use hyoshi_replay::Replay;
use hyoshi_report::figures::{count, time};
use hyoshi_report::{Detail, NoteLevel, ReportInput, ReportNote, TerminalStyle};
use hyoshi_sched::Strategies;

use super::compare::compare;
use super::export::perfetto;
use super::merge::merge;
use super::notes::{Verbose, late_outputs, note, recorded as recorded_note};
use super::output::{ReportTo, cause_analysis, command_line, publish};
use super::proved::Analysing;
use super::recorded::{ReadingEnd, Recorded};
use super::why::network::{SignalWay, events_before_damage};
use super::{CliError, Format, VerbOutcome, head, streams};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Print the results of a recorded run: tables, JSON or an HTML report
    Summary {
        /// The recording
        file: PathBuf,
        #[command(flatten)]
        report: ReportTo,
        #[command(flatten)]
        verbose: Verbose,
    },
    /// Simulate the same system, and compare order and outcome; near-ties are counted apart
    Compare {
        /// The recording of a run
        file: PathBuf,
    },
    /// Merge the recordings of a run's hosts into one
    Merge {
        /// The recordings, each of one host
        #[arg(required = true, num_args = 2..)]
        files: Vec<PathBuf>,
        /// The merged recording
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Convert a recording for Perfetto: open the file at <https://ui.perfetto.dev>
    Export {
        /// The default, and the only format
        #[arg(long, hide = true)]
        perfetto: bool,
        /// The recording
        file: PathBuf,
        /// The output [default: a file beside the recording]
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
    /// The name of the verb.
    pub fn name(&self) -> &'static str {
        match &self.verb {
            Verb::Summary { .. } => "trace summary",
            Verb::Compare { .. } => "trace compare",
            Verb::Merge { .. } => "trace merge",
            Verb::Export { .. } => "trace export",
            Verb::Replay { .. } => "trace replay",
        }
    }
}

pub(super) fn trace(arguments: &Arguments, strategies: &Strategies, format: Format) -> Result<VerbOutcome, CliError> {
    match &arguments.verb {
        Verb::Summary { file, report, verbose } => {
            report.try_out(&file.display().to_string())?;
            summary(&Recorded::open(file, strategies)?, report, format, verbose.detail())
        }
        Verb::Compare { file } => compare(&Recorded::open(file, strategies)?, format),
        Verb::Merge { files, output } => merge(files, output, strategies, format),
        Verb::Export { perfetto: _, file, output } => {
            perfetto(&Recorded::open(file, strategies)?, output.as_deref(), format)
        }
        Verb::Replay { file } => replayed(&Recorded::open(file, strategies)?, format),
    }
}

fn summary(recorded: &Recorded, report: &ReportTo, format: Format, detail: Detail) -> Result<VerbOutcome, CliError> {
    let analysing = Analysing::begin(&recorded.system, &recorded.plan);
    let exact = recorded.header.verb == "sim";
    let causes = cause_analysis(&recorded.system, &recorded.plan, exact, format, report.report.is_some());
    let mut observer = Observer::new(&recorded.system).with_causes(causes).by_clock_of(recorded.clock());
    let mut left = events_before_damage(recorded, |processor, at, event, way| {
        if let Some(SignalWay::Network(crossing)) = way {
            observer.crosses(processor, crossing);
        }
        observer.event(processor, at, &event);
        ControlFlow::Continue(())
    })?;
    let header = &recorded.header;
    let mut notes: Vec<ReportNote> = header.facts.iter().map(recorded_note).collect();
    notes.extend(left.part.as_ref().map(|part| note(NoteLevel::Info, "recording", part)));
    let asked = recorded.system.duration;
    // The last events may be a little after the end.
    let duration = left.last.since(Instant::ZERO).min(asked);
    if left.damaged.is_some() {
        let text = format!("damaged after {} of {}: the figures cover the part before", time(duration), time(asked));
        notes.push(note(NoteLevel::Degraded, "recording", text));
    } else if let Some(torn) = &left.torn {
        notes.push(note(NoteLevel::Degraded, "recording", torn));
    } else if duration < asked {
        let text = format!("ends after {} of {}: the run was interrupted or killed", time(duration), time(asked));
        notes.push(note(NoteLevel::Info, "recording", text));
    }
    observer.close(left.last);
    let proved = analysing.end();
    let figures = observer.figures(Instant::ZERO + duration);
    notes.extend(late_outputs(&recorded.system, figures.stats));
    let account = ReportInput {
        verb: &header.verb,
        command: command_line(),
        file: &recorded.path.display().to_string(),
        source: &header.system,
        system: &recorded.system,
        host: recorded.only_host(),
        plan: &recorded.plan,
        figures,
        analysis: proved.analysis(),
        queueing: Vec::new(),
        groups: Vec::new(),
        machine_ppm: None,
        duration,
        asked,
        interrupted: false,
        // Recordings do not contain the time of a simulation.
        took: if exact { Span::ZERO } else { duration },
        started_unix_ns: Some(header.started_unix_ns),
        threads: &left.names,
        lost_events: left.lost,
        notes,
        // Recordings do not contain programs.
        programs: Vec::new(),
    };
    publish(&account, report.report.as_deref(), format, detail, left.damaged.take().into_iter().collect())
}

fn replayed(recorded: &Recorded, format: Format) -> Result<VerbOutcome, CliError> {
    let (mut inputs, mut decisions) = (0, 0);
    let (mut divergence, mut cut) = (None, None);
    let contained = recorded.plan.processors.iter().filter(|plan| recorded.header.contains(plan.processor));
    for plan in contained {
        let mut replay = Replay::new(&recorded.system, plan);
        let mut diverged = None;
        let ReadingEnd { lost, torn, .. } = recorded.events(|processor, at, event| {
            if processor == plan.processor {
                diverged = replay.event(at, event).err();
            }
            if diverged.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        cut = cut.or(torn);
        if lost > 0 {
            let message = format!("cannot replay: {} events were lost while recording", count(lost));
            return Err(CliError::new(message).help("record again with less load on the machine"));
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
            None => streams::out(format_args!(
                "{} inputs fed back, {} decisions identical\n",
                count(inputs),
                count(decisions)
            ))?,
            Some(divergence) => {
                streams::out(TerminalStyle::of_stdout().wrap(&format!("the replay diverges at {divergence}\n")))?
            }
        },
        Format::Json => {}
    }
    if let (Format::Text, Some(part)) = (format, recorded.part()) {
        streams::out(format_args!("the recording is partial: {part}\n"))?;
    }
    match (format, &cut) {
        (Format::Text, Some(torn)) => streams::out(format_args!("the recording ends during the run: {torn}\n"))?,
        (Format::Text, None) => {}
        (Format::Json, _) => {
            let object = serde_json::json!({
                "hyoshi": head("trace replay"), "holds": divergence.is_none(),
                "inputs": inputs, "decisions": decisions, "divergence": divergence,
                "torn": cut, "part": recorded.part(),
            });
            streams::out(format_args!("{object:#}\n"))?;
        }
    }
    Ok(VerbOutcome::of(divergence.is_none()))
}
