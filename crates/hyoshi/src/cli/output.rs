//! What verbs leave behind: the account in three forms, and a recording.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use hyoshi_model::{HostId, Instant, ProcessorId, Span, System};
use hyoshi_replay::insight::Insight;
use hyoshi_report::summary::Summary;
use hyoshi_report::{Account, Detail, Look, save};
use hyoshi_runtime::Names;
use hyoshi_sched::Plan;
use hyoshi_trace::recording::{Fact, Header, WriteError, Writer};
use hyoshi_trace::{Event, Seen, Who};
use serde::Serialize;

use super::load::Ready;
use super::{Failure, Format, Held, notes, streams};

/// The HTML report.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct ReportTo {
    /// Write an HTML report: one file that opens without a network
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

impl ReportTo {
    /// Whether the report can be written at all: what takes a minute should not fail at its end.
    pub fn try_out(&self, source: &str) -> Result<(), Failure> {
        self.report.as_deref().map_or(Ok(()), |path| try_out("the report", path, source))
    }
}

/// Whether `what` can be written to `path`, which is not to be `source`.
pub(super) fn try_out(what: &str, path: &Path, source: &str) -> Result<(), Failure> {
    not_over(path, source)?;
    let fail = |error| Err(cannot_write(what, path, &error));
    let Some(name) = path.file_name().filter(|_| !path.is_dir()) else { return fail(ErrorKind::IsADirectory.into()) };
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Ok(());
    }
    // A report is written beside the old one, and takes its place when it is whole.
    let mut trial = std::ffi::OsString::from(".");
    trial.push(name);
    trial.push(format!(".{}", std::process::id()));
    let trial = path.with_file_name(trial);
    File::create(&trial).and_then(|_| fs::remove_file(&trial)).or_else(fail)
}

/// Opens a file to write to it. What is in it is lost only with [`File::set_len`] or the first
/// write: a run that does not start takes nothing away.
pub(super) fn open(path: &Path, source: &str, what: &str) -> Result<File, Failure> {
    not_over(path, source)?;
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    opened.map_err(|error| cannot_write(what, path, &error))
}

/// What could not be written, why, and what to do about it.
pub(super) fn cannot_write(what: &str, path: &Path, error: &io::Error) -> Failure {
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
    Failure::new(format!("cannot write {what} {}: {error}", path.display())).help(help)
}

/// Refuses to write results over what they are made from.
fn not_over(path: &Path, source: &str) -> Result<(), Failure> {
    match (path.canonicalize(), Path::new(source).canonicalize()) {
        (Ok(real), Ok(same)) if real == same && same.is_file() => {
            Err(Failure::new(format!("cannot overwrite {}: the results are computed from it", path.display()))
                .help("name another file"))
        }
        _ => Ok(()),
    }
}

/// Prints the account and writes the report; whether the system held. `failures` are what else
/// could not be done on the way: they are told with the account, for it is worth having anyway.
pub(super) fn publish(
    account: &Account<'_>,
    report: Option<&Path>,
    format: Format,
    detail: Detail,
    failures: Vec<Failure>,
) -> Result<Held, Failure> {
    publish_with(account, None, report, format, detail, failures)
}

/// What a simulation of a recording has to tell beside its account.
pub(super) struct Resimulation {
    /// For the terminal.
    pub text: String,
    /// The same for programs.
    pub json: serde_json::Value,
}

/// As [`publish`], with what a simulation of a recording has beside it.
pub(super) fn publish_with(
    account: &Account<'_>,
    again: Option<Resimulation>,
    report: Option<&Path>,
    format: Format,
    detail: Detail,
    mut failures: Vec<Failure>,
) -> Result<Held, Failure> {
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
            streams::out(format_args!("{}{again}{report}", summary.terminal(Look::of_stdout(), detail)))?;
            failures.iter().for_each(|failure| failure.print(account.verb, format));
        }
        Format::Json => {
            let errors: Vec<_> = failures.iter().flat_map(Failure::json).collect();
            let again = again.map(|again| again.json);
            let told = SummaryJson { summary: &summary, again, errors };
            let object = serde_json::to_string_pretty(&told).map_err(Failure::new)?;
            streams::out(format_args!("{object}\n"))?;
        }
    }
    match (failures.is_empty(), summary.verdict.holds, account.interrupted) {
        (false, ..) => Err(Failure::Told),
        (true, true, true) => Ok(Held::Interrupted),
        (true, holds, _) => Ok(Held::when(holds)),
    }
}

/// A summary, and what could not be done besides.
#[derive(Serialize)]
struct SummaryJson<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    again: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<serde_json::Value>,
}

/// Looks at every event for causes of lateness and, for an HTML report, windows to draw; nothing where
/// neither is shown.
pub(super) fn insight<'a>(
    system: &'a System,
    plan: &'a Plan,
    exact: bool,
    format: Format,
    report: bool,
) -> Option<Insight<'a>> {
    let wanted = report || format == Format::Json;
    let apart = if exact { Span::ZERO } else { APART };
    wanted.then(|| Insight::new(system, plan, exact, report, apart))
}

/// How far behind each other the events of a run's processors come.
const APART: Span = Span::from_millis(150);

pub(super) fn command_line() -> String {
    let words = std::env::args_os().enumerate().map(|(position, word)| match position {
        // Where the binary lay is nobody's business.
        0 => Path::new(&word).file_name().unwrap_or(&word).to_string_lossy().into_owned(),
        _ => word.to_string_lossy().into_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

pub(super) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// A file for a recording, with what was in it before.
pub(super) struct RecordTo {
    file: File,
    path: PathBuf,
}

impl RecordTo {
    pub fn open(path: &Path, ready: &Ready) -> Result<Self, Failure> {
        let file = open(path, &ready.file, "the recording")?;
        Ok(RecordTo { file, path: path.into() })
    }

    /// Begins the recording: the system's text comes first, so that the file explains itself.
    /// `run` identifies the run.
    /// It contains one host, or all.
    pub fn begin(
        self,
        ready: &Ready,
        verb: &str,
        host: Option<HostId>,
        run: [u8; 16],
        facts: Vec<Fact>,
    ) -> Result<Recorder, Failure> {
        let RecordTo { file, path } = self;
        let here = |id: &ProcessorId| host.is_none_or(|host| ready.system.processor(*id).host == host);
        let header = Header {
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
        let writer = Writer::new(file, path.display().to_string(), &header).map_err(|error| match error {
            WriteError::Io { source, .. } => cannot_write("the recording", &path, &source),
            other => Failure::new(other),
        })?;
        Ok(Recorder { writer, named: 0, names: None, flushed: Instant::ZERO })
    }
}

/// A recording that is being written.
pub(super) struct Recorder {
    writer: Writer<File>,
    names: Option<Names>,
    /// How many of them the writer has.
    named: usize,
    /// Until when everything was written.
    flushed: Instant,
}

/// What a recording may lack after SIGKILL.
pub(super) const FLUSH: Span = Span::from_millis(500);

/// Refuses a file that two results would go to: the second would take the first away.
pub(super) fn apart(outputs: &[(&str, Option<&Path>)]) -> Result<(), Failure> {
    // A file that is not there yet is known by its folder.
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
            return Err(Failure::new(message).help("name two files"));
        }
    }
    Ok(())
}

impl Recorder {
    /// Where the names of other threads come from.
    pub fn names(mut self, names: Names) -> Self {
        self.names = Some(names);
        self
    }

    pub fn event(&mut self, processor: ProcessorId, now: Instant, event: &Event) -> Result<(), Failure> {
        if let (Event::Seen(Seen::Switch { to: Who::Other(number), .. }), Some(names)) = (event, &self.names)
            && *number as usize >= self.named
        {
            for name in names.since(self.named) {
                self.writer.name(&name);
                self.named += 1;
            }
        }
        self.writer.event(processor, now, event).map_err(Failure::new)
    }

    /// Writes everything now and then by virtual time; `now` is that of the next event of any processor.
    pub fn keep_up(&mut self, processors: usize, now: Instant) -> Result<(), Failure> {
        if now.since(self.flushed) < FLUSH {
            return Ok(());
        }
        self.flushed = now;
        let before = Instant::from_nanos(now.as_nanos().saturating_sub(1));
        self.writer.flush_until(processors, before).map_err(Failure::new)
    }

    /// Hands everything to the operating system, so that it survives the end of this process, and says that it is
    /// everything until `told`, of processors that were idle, too.
    pub fn flush_until(&mut self, processors: usize, told: Instant) -> Result<(), Failure> {
        // Of one alone its events tell.
        let flushed = if processors > 1 { self.writer.flush_until(processors, told) } else { self.writer.flush() };
        flushed.map_err(Failure::new)
    }

    pub fn finish(self) -> Result<(), Failure> {
        self.writer.finish().map(drop).map_err(Failure::new)
    }
}
