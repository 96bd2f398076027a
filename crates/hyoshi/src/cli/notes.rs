//! What reports note besides.

use hyoshi_model::Diagnostic;
use hyoshi_report::{NoteLevel, ReportNote};

/// The topic of the reader's warnings.
pub(super) const WARNING: &str = "file";

/// Something worth knowing.
pub(super) fn note(level: NoteLevel, topic: &str, text: impl ToString) -> ReportNote {
    ReportNote { level, topic: topic.into(), text: text.to_string(), remedy: None }
}

/// A warning of the file's reader as a note.
pub(super) fn warning(warning: &Diagnostic) -> ReportNote {
    let text = format!("{} ({}:{})", warning.message, warning.file, warning.line);
    ReportNote { level: NoteLevel::Info, topic: WARNING.into(), text, remedy: warning.help.clone() }
}
