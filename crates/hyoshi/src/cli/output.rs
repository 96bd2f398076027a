//! The output of verbs: the account as text, JSON and HTML, and a recording.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use hyoshi_model::{HostId, Instant, ProcessorId, Span, System};
use hyoshi_replay::causes::CauseAnalysis;
use hyoshi_report::summary::Summary;
use hyoshi_report::{Detail, ReportInput, TerminalStyle, save};
use hyoshi_runtime::ThreadNames;
use hyoshi_sched::Plan;
use hyoshi_trace::recording::{Fact, RecordingHeader, RecordingWriter, WriteError};
use hyoshi_trace::{CpuEvent, CpuUser, TraceEvent};
use serde::Serialize;

use super::load::LoadedSystem;
use super::{CliError, Format, VerbOutcome, notes, streams};

/// The HTML report.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct ReportTo {
    /// Write an HTML report: one file that opens without a network
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

impl ReportTo {
    /// Checks that the report can be written, before a long computation.
    pub fn try_out(&self, source: &str) -> Result<(), CliError> {
        self.report.as_deref().map_or(Ok(()), |path| try_out("the report", path, source))
    }
}

/// Checks that `what` can be written to `path`, which must not be `source`.
pub(super) fn try_out(what: &str, path: &Path, source: &str) -> Result<(), CliError> {
    not_over(path, source)?;
    let fail = |error| Err(cannot_write(what, path, &error));
    let Some(name) = path.file_name().filter(|_| !path.is_dir()) else { return fail(ErrorKind::IsADirectory.into()) };
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Ok(());
    }
    // A report is written beside the old one, which it replaces when it is complete.
    let mut trial = std::ffi::OsString::from(".");
    trial.push(name);
    trial.push(format!(".{}", std::process::id()));
    let trial = path.with_file_name(trial);
    File::create(&trial).and_then(|_| fs::remove_file(&trial)).or_else(fail)
}

/// Opens a file for writing. Its content remains until [`File::set_len`] or the first write: a run that does not start
/// destroys nothing.
pub(super) fn open(path: &Path, source: &str, what: &str) -> Result<File, CliError> {
    not_over(path, source)?;
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    opened.map_err(|error| cannot_write(what, path, &error))
}

/// An error of writing, with a remedy.
pub(super) fn cannot_write(what: &str, path: &Path, error: &io::Error) -> CliError {
    let help = match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => "create its directory first, or name another file",
        ErrorKind::IsADirectory => "name a file in this directory",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "name a file in a directory that you may write to"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            "free some space, or name a file on another disk"
        }
        _ => "name another file",
    };
    CliError::new(format!("cannot write {what} {}: {error}", path.display())).help(help)
}

/// Rejects a file that the results are computed from.
fn not_over(path: &Path, source: &str) -> Result<(), CliError> {
    match (path.canonicalize(), Path::new(source).canonicalize()) {
        (Ok(real), Ok(same)) if real == same && same.is_file() => {
            Err(CliError::new(format!("cannot overwrite {}: the results are computed from it", path.display()))
                .help("name another file"))
        }
        _ => Ok(()),
    }
}

/// Prints the account and writes the report. `failures` are earlier errors, which are printed with the account.
pub(super) fn publish(
    account: &ReportInput<'_>,
    report: Option<&Path>,
    format: Format,
    detail: Detail,
    failures: Vec<CliError>,
) -> Result<VerbOutcome, CliError> {
    publish_with(account, None, report, format, detail, failures)
}

/// The comparison of a simulation with its recording.
pub(super) struct Resimulation {
    /// For the terminal.
    pub text: String,
    /// The same for programs.
    pub json: serde_json::Value,
}

/// As [`publish`], with the comparison of a simulation with its recording.
pub(super) fn publish_with(
    account: &ReportInput<'_>,
    again: Option<Resimulation>,
    report: Option<&Path>,
    format: Format,
    detail: Detail,
    mut failures: Vec<CliError>,
) -> Result<VerbOutcome, CliError> {
    let saved = report.map(|path| save(path, &account.html()).map(|()| path));
    let saved = saved.transpose().unwrap_or_else(|error| {
        failures.push(cannot_write("the report", &error.path, &error.source));
        None
    });
    let mut summary = account.summary();
    match format {
        Format::Text => {
            // `load` has printed these, with their lines.
            summary.notes.retain(|note| note.topic != notes::WARNING);
            let report = saved.map_or(String::new(), |path| format!("\nreport: {}\n", path.display()));
            let again = again.map_or(String::new(), |again| again.text);
            streams::out(format_args!("{}{again}{report}", summary.terminal(TerminalStyle::of_stdout(), detail)))?;
            failures.iter().for_each(|failure| failure.print(account.verb, format));
        }
        Format::Json => {
            let errors: Vec<_> = failures.iter().flat_map(CliError::json).collect();
            let again = again.map(|again| again.json);
            let json = SummaryJson { summary: &summary, again, errors };
            let object = serde_json::to_string_pretty(&json).map_err(CliError::new)?;
            streams::out(format_args!("{object}\n"))?;
        }
    }
    match (failures.is_empty(), summary.verdict.holds, account.interrupted) {
        (false, ..) => Err(CliError::Reported),
        (true, true, true) => Ok(VerbOutcome::Interrupted),
        (true, holds, _) => Ok(VerbOutcome::of(holds)),
    }
}

/// A summary with errors.
#[derive(Serialize)]
struct SummaryJson<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    again: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<serde_json::Value>,
}

/// An observer of all events, for causes of lateness and the windows of an HTML report; `None` if neither is shown.
pub(super) fn cause_analysis<'a>(
    system: &'a System,
    plan: &'a Plan,
    exact: bool,
    format: Format,
    report: bool,
) -> Option<CauseAnalysis<'a>> {
    let wanted = report || format == Format::Json;
    let apart = if exact { Span::ZERO } else { APART };
    wanted.then(|| CauseAnalysis::new(system, plan, exact, report, apart))
}

/// The greatest delay between events of different processors of a run.
const APART: Span = Span::from_millis(150);

pub(super) fn command_line() -> String {
    let words = std::env::args_os().enumerate().map(|(position, word)| match position {
        // The directory of the binary is private.
        0 => Path::new(&word).file_name().unwrap_or(&word).to_string_lossy().into_owned(),
        _ => word.to_string_lossy().into_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

pub(super) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// A file for a recording, not yet overwritten.
pub(super) struct RecordTo {
    file: File,
    path: PathBuf,
}

impl RecordTo {
    pub fn open(path: &Path, ready: &LoadedSystem) -> Result<Self, CliError> {
        let file = open(path, &ready.file, "the recording")?;
        Ok(RecordTo { file, path: path.into() })
    }

    /// Begins the recording with the system's text, which makes the file self-contained.
    /// `run` identifies the run.
    /// It contains one host, or all.
    pub fn begin(
        self,
        ready: &LoadedSystem,
        verb: &str,
        host: Option<HostId>,
        run: [u8; 16],
        facts: Vec<Fact>,
    ) -> Result<Recorder, CliError> {
        let RecordTo { file, path } = self;
        let here = |id: &ProcessorId| host.is_none_or(|host| ready.system.processor(*id).host == host);
        let header = RecordingHeader {
            system: ready.source.clone(),
            files: ready.files.clone(),
            verb: verb.into(),
            program: concat!("hyoshi ", env!("CARGO_PKG_VERSION")).into(),
            started_unix_ns: unix_now(),
            seed: ready.system.seed,
            changes: ready.changes.clone(),
            processors: ready.system.processor_ids().filter(here).map(|processor| processor.0).collect(),
            run,
            facts,
        };
        // Devices and pipes have no length to set.
        drop(file.set_len(0));
        let writer = RecordingWriter::new(file, path.display().to_string(), &header).map_err(|error| match error {
            WriteError::Io { source, .. } => cannot_write("the recording", &path, &source),
            other => CliError::new(other),
        })?;
        Ok(Recorder { writer, named: 0, names: None, flushed: Instant::ZERO })
    }
}

/// A recording that is being written.
pub(super) struct Recorder {
    writer: RecordingWriter<File>,
    names: Option<ThreadNames>,
    /// How many of them the writer has.
    named: usize,
    /// Until when everything was written.
    flushed: Instant,
}

/// The time that a recording may lack after SIGKILL.
pub(super) const FLUSH: Span = Span::from_millis(500);

/// Rejects a file for two results: the second would overwrite the first.
pub(super) fn apart(outputs: &[(&str, Option<&Path>)]) -> Result<(), CliError> {
    // A new file is identified by its directory.
    let real = |path: &Path| {
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let named = || Some(folder.canonicalize().ok()?.join(path.file_name()?));
        path.canonicalize().ok().or_else(named).unwrap_or_else(|| path.into())
    };
    let is_file = |path: &Path| fs::metadata(path).map_or(true, |found| found.is_file());
    let named = outputs.iter().filter_map(|(option, path)| Some((*option, (*path)?)));
    let named: Vec<_> =
        named.filter(|(_, path)| is_file(path)).map(|(option, path)| (option, path, real(path))).collect();
    for (index, (option, path, file)) in named.iter().enumerate() {
        if let Some((other, ..)) = named[..index].iter().find(|(_, _, earlier)| earlier == file) {
            let message = format!("{other} and {option} name the same file, {}", path.display());
            return Err(CliError::new(message).help("name two files"));
        }
    }
    Ok(())
}

impl Recorder {
    /// Sets the source of names of other threads.
    pub fn names(mut self, names: ThreadNames) -> Self {
        self.names = Some(names);
        self
    }

    pub fn event(&mut self, processor: ProcessorId, now: Instant, event: &TraceEvent) -> Result<(), CliError> {
        if let (TraceEvent::Cpu(CpuEvent::Switch { to: CpuUser::Other(number), .. }), Some(names)) =
            (event, &self.names)
            && *number as usize >= self.named
        {
            for name in names.since(self.named) {
                self.writer.name(&name);
                self.named += 1;
            }
        }
        self.writer.event(processor, now, event).map_err(CliError::new)
    }

    /// Flushes at intervals of virtual time; `now` is the time of the next event of any processor.
    pub fn keep_up(&mut self, processors: usize, now: Instant) -> Result<(), CliError> {
        if now.since(self.flushed) < FLUSH {
            return Ok(());
        }
        self.flushed = now;
        let before = Instant::from_nanos(now.as_nanos().saturating_sub(1));
        self.writer.flush_until(processors, before).map_err(CliError::new)
    }

    /// Flushes to the operating system, with the statement that all events until `until` are recorded. The data then
    /// survives the end of this process.
    pub fn flush_until(&mut self, processors: usize, until: Instant) -> Result<(), CliError> {
        // With one processor its events suffice.
        let flushed = if processors > 1 { self.writer.flush_until(processors, until) } else { self.writer.flush() };
        flushed.map_err(CliError::new)
    }

    pub fn finish(self) -> Result<(), CliError> {
        self.writer.finish().map(drop).map_err(CliError::new)
    }
}
