//! Notes of reports.

use clap::Args;
use hyoshi_model::Diagnostic;
use hyoshi_report::{Detail, NoteLevel, ReportNote};
use hyoshi_trace::recording::{Fact, FactLevel};

/// How many notes are printed.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Verbose {
    /// Print all notes, not only the most important ones
    #[arg(long)]
    verbose: bool,
}

impl Verbose {
    pub fn detail(self) -> Detail {
        if self.verbose { Detail::Verbose } else { Detail::Brief }
    }
}

/// The topic of the reader's warnings.
pub(super) const WARNING: &str = "file";

/// A note without a remedy.
pub(super) fn note(level: NoteLevel, topic: &str, text: impl ToString) -> ReportNote {
    ReportNote { level, topic: topic.into(), text: text.to_string(), remedy: None }
}

/// The level of a recorded fact whose note has `level`.
pub(super) fn recorded_level(level: NoteLevel) -> FactLevel {
    match level {
        NoteLevel::Info => FactLevel::Info,
        NoteLevel::Degraded => FactLevel::Degraded,
        // A run that has failed does not begin a recording.
        NoteLevel::Refused | NoteLevel::Failed => FactLevel::Refused,
    }
}

/// A recorded fact as a note.
pub(super) fn recorded(fact: &Fact) -> ReportNote {
    let level = match fact.level {
        FactLevel::Info => NoteLevel::Info,
        FactLevel::Degraded => NoteLevel::Degraded,
        FactLevel::Refused => NoteLevel::Refused,
    };
    note(level, &fact.what, &fact.detail)
}

/// A warning of the file's reader as a note.
pub(super) fn warning(warning: &Diagnostic) -> ReportNote {
    let text = format!("{} ({}:{})", warning.message, warning.file, warning.line);
    ReportNote { level: NoteLevel::Info, topic: WARNING.into(), text, remedy: warning.help.clone() }
}
