//! What verbs leave behind: the account in three forms, and a recording.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use hyoshi_model::{Diagnostic, Instant, ProcessorId};
use hyoshi_report::{Account, Level, Look, Note, save};
use hyoshi_trace::Event;
use hyoshi_trace::recording::{Fact, Header, Writer};

use super::load::Ready;
use super::{Failure, Format, Held};

/// Where the HTML report goes.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct ReportTo {
    /// Write an HTML report: one file that opens without a network
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// Prints the account and writes the report; whether the system held.
pub(super) fn publish(account: &Account<'_>, report: Option<&Path>, format: Format) -> Result<Held, Failure> {
    let summary = account.summary();
    match format {
        Format::Text => print!("{}", summary.terminal(Look::of_stdout())),
        Format::Json => println!("{}", summary.json()),
    }
    if let Some(path) = report {
        save(path, &account.html()).map_err(Failure::new)?;
        if format == Format::Text {
            println!("\nreport: {}", path.display());
        }
    }
    Ok(Held::when(summary.verdict.holds))
}

/// Something worth knowing.
pub(super) fn note(level: Level, topic: &str, text: impl ToString) -> Note {
    Note { level, topic: topic.into(), text: text.to_string(), remedy: None }
}

/// A warning of the file's reader as a note.
pub(super) fn warning(warning: &Diagnostic) -> Note {
    let text = format!("{} ({}:{})", warning.message, warning.file, warning.line);
    Note { level: Level::Info, topic: "file".into(), text, remedy: warning.help.clone() }
}

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

/// A recording that is being written.
pub(super) struct Recorder {
    writer: Writer<File>,
}

impl Recorder {
    /// Begins a recording: the system's text comes first, so that the file explains itself.
    pub fn create(path: &Path, ready: &Ready, verb: &str, facts: Vec<Fact>) -> Result<Self, Failure> {
        let header = Header {
            system: ready.source.clone(),
            verb: verb.into(),
            program: concat!("hyoshi ", env!("CARGO_PKG_VERSION")).into(),
            started_unix_ns: unix_now(),
            seed: ready.system.seed,
            changes: ready.changes.clone(),
            facts,
        };
        let file = File::create(path).map_err(|error| {
            Failure::new(format!("cannot write the recording `{}`: {error}", path.display()))
                .help("name a file that you may write, on a disk with room")
        })?;
        Ok(Recorder { writer: Writer::new(file, path.display().to_string(), &header).map_err(Failure::new)? })
    }

    pub fn event(&mut self, processor: ProcessorId, now: Instant, event: &Event) -> Result<(), Failure> {
        self.writer.event(processor, now, event).map_err(Failure::new)
    }

    /// Hands everything to the operating system, so that it survives the end of this process.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.writer.flush().map_err(Failure::new)
    }

    pub fn finish(self) -> Result<(), Failure> {
        self.writer.finish().map(drop).map_err(Failure::new)
    }
}
