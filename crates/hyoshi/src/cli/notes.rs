//! What reports note besides.

use hyoshi_model::Diagnostic;
use hyoshi_report::{Level, Note};

/// The topic of the reader's warnings.
pub(super) const WARNING: &str = "file";

/// Something worth knowing.
pub(super) fn note(level: Level, topic: &str, text: impl ToString) -> Note {
    Note { level, topic: topic.into(), text: text.to_string(), remedy: None }
}

/// A warning of the file's reader as a note.
pub(super) fn warning(warning: &Diagnostic) -> Note {
    let text = format!("{} ({}:{})", warning.message, warning.file, warning.line);
    Note { level: Level::Info, topic: WARNING.into(), text, remedy: warning.help.clone() }
}
