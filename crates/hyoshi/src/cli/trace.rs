//! `hyoshi trace`: what a recording says.

use std::fs::File;
use std::io::BufReader;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use hyoshi_dispatch::Replay;
use hyoshi_model::{Instant, JobId, ProcessorId, System};
use hyoshi_report::summary::SCHEMA;
use hyoshi_report::{Account, Level, Note};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_sim::simulate;
use hyoshi_trace::agreement::{Difference, TOLERANCE, compare};
use hyoshi_trace::recording::{Header, ReadError, Reader, Torn};
use hyoshi_trace::{Decision, Event, JobEnd, Outcome, Probe, Stats};

use super::load::{Changes, plan};
use super::output::{ReportTo, command_line, note, publish};
use super::{Failure, Format, Held, Output};

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
        #[command(flatten)]
        output: Output,
    },
    /// Simulate the same system, and compare order and outcome; near-ties are told apart
    Compare {
        /// The recording of a run
        file: PathBuf,
        #[command(flatten)]
        output: Output,
    },
    /// Feed a recording's inputs to a fresh dispatcher: the decisions must be identical
    Replay {
        /// The recording
        file: PathBuf,
        #[command(flatten)]
        output: Output,
    },
}

impl Arguments {
    pub fn format(&self) -> Format {
        match &self.verb {
            Verb::Summary { output, .. } | Verb::Compare { output, .. } | Verb::Replay { output, .. } => output.format,
        }
    }
}

pub(super) fn trace(arguments: &Arguments, strategies: &Strategies) -> Result<Held, Failure> {
    match &arguments.verb {
        Verb::Summary { file, report, output } => summary(&Recorded::open(file, strategies)?, report, output.format),
        Verb::Compare { file, output } => compared(&Recorded::open(file, strategies)?, output.format),
        Verb::Replay { file, output } => replayed(&Recorded::open(file, strategies)?, output.format),
    }
}

/// A recording with the system it is of. Its events are read when they are asked for: memory does
/// not grow with them.
struct Recorded {
    path: PathBuf,
    header: Header,
    system: System,
    plan: Plan,
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
        let mut system = hyoshi_model::read(&header.system, name, path.parent()).map_err(Failure::File)?.system;
        let words = std::iter::once("recording").chain(header.changes.iter().map(String::as_str));
        let recalled = Recalled::try_parse_from(words)
            .map_err(|error| Failure::new(format!("the recording names a change that is none: {error}")))?;
        recalled.changes.apply(&mut system);
        system.seed = header.seed;
        let plan = plan(&system, strategies)?;
        Ok(Recorded { path: path.into(), header, system, plan })
    }

    /// Hands every event to `each`, until it says stop; what was lost, and whether the end is torn.
    fn events(
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
    Failure::new(format!("cannot read `{}`: {error}", path.display()))
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
    let refused = header.facts.iter().filter(|fact| !fact.granted);
    let mut notes: Vec<Note> = refused.map(|fact| note(Level::Refused, &fact.what, &fact.detail)).collect();
    if let Some(torn) = torn {
        notes.push(note(Level::Degraded, "recording", format!("it ends in mid-run: {torn}")));
    }
    let duration = last.since(Instant::ZERO);
    let account = Account {
        verb: &header.verb,
        command: command_line(),
        file: &recorded.path.display().to_string(),
        source: &header.system,
        system: &recorded.system,
        plan: &recorded.plan,
        stats: &stats,
        duration,
        asked: recorded.system.duration,
        took: duration,
        started_unix_ns: Some(header.started_unix_ns),
        lost_events: lost,
        notes,
    };
    publish(&account, report.report.as_deref(), format)
}

fn replayed(recorded: &Recorded, format: Format) -> Result<Held, Failure> {
    let (mut inputs, mut decisions) = (0, 0);
    let mut divergence = None;
    for plan in &recorded.plan.processors {
        let mut replay = Replay::new(&recorded.system, plan);
        let mut diverged = None;
        let (lost, _) = recorded.events(|processor, at, event| {
            if processor == plan.processor {
                diverged = replay.event(at, event).err();
            }
            if diverged.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
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
            None => println!("{inputs} inputs fed back, {decisions} decisions identical"),
            Some(divergence) => println!("the replay diverges at {divergence}"),
        },
        Format::Json => {
            let head = serde_json::json!({ "schema": SCHEMA, "verb": "trace replay" });
            println!(
                "{:#}",
                serde_json::json!({
                    "hyoshi": head, "holds": divergence.is_none(), "inputs": inputs, "decisions": decisions,
                    "divergence": divergence,
                })
            );
        }
    }
    Ok(Held::when(divergence.is_none()))
}

/// Job ends by processor, and the last instant that the recording tells of.
fn ends(recorded: &Recorded) -> Result<(Vec<Vec<JobEnd>>, Instant), Failure> {
    let mut ends = vec![Vec::new(); recorded.system.processors.len()];
    let mut last = Instant::ZERO;
    let (lost, _) = recorded.events(|processor, at, event| {
        if let Event::Decision(Decision::End(end)) = event {
            ends[processor.index()].push(end);
        }
        last = last.max(at);
        ControlFlow::Continue(())
    })?;
    if lost > 0 {
        let message = format!("{lost} events were lost while recording: jobs are missing from the comparison");
        return Err(Failure::new(message).help("record again with less load on the machine"));
    }
    Ok((ends, last))
}

fn compared(recorded: &Recorded, format: Format) -> Result<Held, Failure> {
    let (run, last) = ends(recorded)?;
    let simulated = simulate(&recorded.system, &recorded.plan, last, |_| Ends::default(), |_| true);
    let mut all = Vec::new();
    for ((simulated, run), processor) in simulated.processors.iter().zip(&run).zip(&recorded.system.processors) {
        all.push((processor.name.as_str(), compare(&simulated.probe.0, run, last, TOLERANCE)));
    }
    let holds = all.iter().all(|(_, agreement)| agreement.disagreements.is_empty());
    let told = |difference: &Difference| {
        let job = |told: &Option<(JobId, Outcome)>| match told {
            Some((job, outcome)) => {
                let name = &recorded.system.operation(job.operation).name;
                format!("{name}#{} {outcome:?}", job.number)
            }
            None => "nothing".to_owned(),
        };
        format!("at {}: simulated {}, run {}", difference.at, job(&difference.simulated), job(&difference.run))
    };
    match format {
        Format::Text => {
            for (name, agreement) in &all {
                println!(
                    "{name}: {} busy periods ({} jobs) agree; near-ties {}, disturbed {}, disagreements {}",
                    agreement.agreeing,
                    agreement.jobs,
                    agreement.near_ties.len(),
                    agreement.disturbed.len(),
                    agreement.disagreements.len()
                );
                for tie in agreement.near_ties.iter().take(MOST_TOLD) {
                    println!(
                        "  near-tie: completion at {}, timed {}; {}",
                        tie.completion,
                        tie.timed,
                        told(&tie.difference)
                    );
                }
                for disturbed in agreement.disturbed.iter().take(MOST_TOLD) {
                    println!("  disturbed: {} went to something else; {}", disturbed.lost, told(&disturbed.difference));
                }
                for difference in agreement.disagreements.iter().take(MOST_TOLD) {
                    println!("  disagreement {}", told(difference));
                }
            }
        }
        Format::Json => {
            let head = serde_json::json!({ "schema": SCHEMA, "verb": "trace compare" });
            let processors: Vec<_> = all
                .iter()
                .map(|(name, agreement)| {
                    let ties = agreement.near_ties.iter().map(|tie| {
                        serde_json::json!({
                            "completion_ns": tie.completion.as_nanos(), "timed_ns": tie.timed.as_nanos(),
                            "difference": told(&tie.difference),
                        })
                    });
                    let disturbed = agreement.disturbed.iter().map(|disturbed| {
                        serde_json::json!({
                            "lost_ns": disturbed.lost.as_nanos(), "difference": told(&disturbed.difference),
                        })
                    });
                    serde_json::json!({
                        "name": name, "agreeing": agreement.agreeing, "jobs": agreement.jobs,
                        "near_ties": ties.collect::<Vec<_>>(), "disturbed": disturbed.collect::<Vec<_>>(),
                        "disagreements": agreement.disagreements.iter().map(told).collect::<Vec<_>>(),
                    })
                })
                .collect();
            println!("{:#}", serde_json::json!({ "hyoshi": head, "holds": holds, "processors": processors }));
        }
    }
    Ok(Held::when(holds))
}

/// Near-ties and their like that a person is told of, each.
const MOST_TOLD: usize = 10;

/// Keeps job ends only.
#[derive(Default)]
struct Ends(Vec<JobEnd>);

impl Probe for Ends {
    fn event(&mut self, _: Instant, event: Event) {
        if let Event::Decision(Decision::End(end)) = event {
            self.0.push(end);
        }
    }
}
