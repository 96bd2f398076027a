//! Notes of reports.

use clap::Args;
use hyoshi_model::Diagnostic;
use hyoshi_report::{Detail, Level, Note};

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
pub(super) fn note(level: Level, topic: &str, text: impl ToString) -> Note {
    Note { level, topic: topic.into(), text: text.to_string(), remedy: None }
}

/// A warning of the file's reader as a note.
pub(super) fn warning(warning: &Diagnostic) -> Note {
    let text = format!("{} ({}:{})", warning.message, warning.file, warning.line);
    Note { level: Level::Info, topic: WARNING.into(), text, remedy: warning.help.clone() }
}
