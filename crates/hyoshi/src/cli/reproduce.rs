//! `hyoshi reproduce`: reruns the papers' experiments, and rates their claims.

mod broker;
mod dt_ec;
mod fcs;
mod kokyu;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clap::{Args, Subcommand, ValueEnum};
use hyoshi_os::signals::Interrupt;
use hyoshi_os::wake::Wake;
use hyoshi_report::{TerminalStyle, save};
use hyoshi_reproduce::claim::terminal::{reasons, verdicts};
use hyoshi_reproduce::nodes::run_node;
use hyoshi_reproduce::{ExperimentControl, Judgement, Length, Stopped};
use serde::Serialize;

use super::output::{cannot_write, command_line};
use super::progress::ProgressLine;
use super::{CliError, Format, VerbOutcome, head, streams};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    paper: Paper,
}

#[derive(Debug, Subcommand)]
enum Paper {
    /// Multiparadigm scheduling of a flight program (Gill, Cytron and Schmidt 2003): claims K1 to K13
    Kokyu(kokyu::Arguments),
    /// Dynamic CPU management by a broker (Eide, Stack, Regehr and Lepreau 2004): claims B1 to B7 except B5
    Broker(broker::Arguments),
    /// Distributable threads and event channels (Zhang, Thrall, Torri, Gill and Lu 2005): claims D1 to D8
    DtEc(dt_ec::Arguments),
    /// Feedback control of rates in an ORB (Lu, Wang and Gill 2003): claims F1 to F11
    Fcs(fcs::Arguments),
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum KernelLength {
    /// Enough to see that it works: a minute at most
    Short,
    /// Enough for a rating: minutes
    #[default]
    Usual,
    /// As in the paper
    Paper,
}

impl From<KernelLength> for Length {
    fn from(length: KernelLength) -> Self {
        match length {
            KernelLength::Short => Length::Short,
            KernelLength::Usual => Length::Usual,
            KernelLength::Paper => Length::Paper,
        }
    }
}

/// A node of an experiment: a process that runs one host of a file, and prints its measurements.
#[derive(Debug, Args)]
struct ExperimentNode {
    /// The host that this node runs
    #[arg(long, hide = true, requires = "file")]
    node: Option<String>,
    /// The system file of all nodes
    #[arg(long, hide = true, requires = "node")]
    file: Option<PathBuf>,
}

impl ExperimentNode {
    /// Runs it; `None` if the arguments name no node.
    fn run(&self) -> Result<Option<VerbOutcome>, CliError> {
        let (Some(host), Some(file)) = (&self.node, &self.file) else { return Ok(None) };
        let figures = run_node(file, host).map_err(CliError::new)?;
        streams::out(format_args!("{}\n", serde_json::to_string(&figures).map_err(CliError::new)?))?;
        Ok(Some(VerbOutcome::Success))
    }
}

/// The file of this program, whose verbs the experiments start.
fn own_file() -> Result<PathBuf, CliError> {
    std::env::current_exe().map_err(|error| CliError::new(format!("cannot find the file of this program: {error}")))
}

pub(super) fn reproduce(arguments: &Arguments, format: Format) -> Result<VerbOutcome, CliError> {
    match &arguments.paper {
        Paper::Kokyu(arguments) => kokyu::kokyu(arguments, format),
        Paper::Broker(arguments) => broker::broker(arguments, format),
        Paper::DtEc(arguments) => dt_ec::dt_ec(arguments, format),
        Paper::Fcs(arguments) => fcs::fcs(arguments, format),
    }
}

/// Runs a long computation: shows its steps on a terminal, and ends on an interrupt.
fn watched<R>(format: Format, work: impl FnOnce(ExperimentControl<'_>) -> Result<R, CliError>) -> Result<R, CliError> {
    let interrupt = Interrupt::on_signals(Arc::new(Wake::new()))
        .map_err(|error| CliError::new(format!("cannot listen for signals: {error}")))?;
    let line = Mutex::new(ProgressLine::new(format));
    let line = || line.lock().unwrap_or_else(PoisonError::into_inner);
    let step = |what: &str| line().step(&format!("{what} ..."));
    let done = work(ExperimentControl { step: &step, stop: &|| interrupt.requested() })?;
    line().clear();
    Ok(done)
}

fn stopped(_: Stopped) -> CliError {
    CliError::new("interrupted before the claims were rated")
}

/// The output of a paper for people.
struct PaperOutput<'a> {
    paper: &'static str,
    claims: &'a [Judgement],
    heading: &'a dyn Fn(TerminalStyle) -> String,
    tables: &'a dyn Fn(TerminalStyle) -> String,
    page: &'a dyn Fn(&str) -> String,
}

/// The output for programs.
#[derive(Serialize)]
struct ReproducedJson<'a, R> {
    hyoshi: serde_json::Value,
    paper: &'static str,
    #[serde(flatten)]
    reproduced: &'a R,
}

fn print<R: Serialize>(
    pieces: &PaperOutput<'_>,
    reproduced: &R,
    report: Option<&Path>,
    format: Format,
) -> Result<VerbOutcome, CliError> {
    let command = command_line();
    if let Some(path) = report {
        save(path, &(pieces.page)(&command)).map_err(|error| cannot_write("the page", &error.path, &error.source))?;
    }
    match format {
        Format::Text => {
            let look = TerminalStyle::of_stdout();
            let (verdicts, reasons) = (verdicts(pieces.claims, look), reasons(pieces.claims, look));
            let page = report.map_or(String::new(), |path| format!("\ncharts: {}\n", path.display()));
            let (heading, tables) = ((pieces.heading)(look), (pieces.tables)(look));
            streams::out(format_args!("{heading}{verdicts}{page}\n{reasons}{tables}"))?;
        }
        Format::Json => {
            let mut hyoshi = head("reproduce");
            hyoshi["command"] = command.into();
            let object = serde_json::to_string_pretty(&ReproducedJson { hyoshi, paper: pieces.paper, reproduced });
            streams::out(format_args!("{}\n", object.map_err(CliError::new)?))?;
        }
    }
    Ok(VerbOutcome::Success)
}
