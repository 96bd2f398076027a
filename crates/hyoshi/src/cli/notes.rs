//! Notes of reports.

use clap::Args;
use hyoshi_model::{Diagnostic, FlushPoint, System};
use hyoshi_report::{Detail, NoteLevel, ReportNote};
use hyoshi_trace::recording::{Fact, FactLevel};
use hyoshi_trace::{JobOutcome, Stats};

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

/// The outputs that were not flushed to their replicas, because their jobs were late.
pub(super) fn late_outputs(system: &System, stats: &Stats) -> Option<ReportNote> {
    let mut late = Vec::new();
    for (id, operation) in system.operation_ids().zip(&system.operations) {
        let at_deadline = operation.replication.as_ref().is_some_and(|one| one.flush == FlushPoint::Deadline);
        let counts = stats.counts(None, |row| row.operation() == id);
        let count = counts.of(JobOutcome::Missed) - counts.unfinished;
        if at_deadline && count > 0 {
            late.push(format!("{} {count}", operation.name));
        }
    }
    let text = || format!("outputs of late jobs were not flushed: {}", late.join(", "));
    (!late.is_empty()).then(|| note(NoteLevel::Degraded, "replicas", text()))
}

/// The operations with calls that a simulation does not execute.
pub(super) fn unknown_calls(system: &System) -> Option<ReportNote> {
    let calling: Vec<_> = system.operations.iter().filter(|one| one.calls_any).map(|one| &*one.name).collect();
    let text = || format!("calls = \"any\": the calls are not simulated: {}", calling.join(", "));
    (!calling.is_empty()).then(|| note(NoteLevel::Info, "calls", text()))
}

/// A warning of the file's reader as a note.
pub(super) fn warning(warning: &Diagnostic) -> ReportNote {
    let text = format!("{} ({}:{})", warning.message, warning.file, warning.line);
    ReportNote { level: NoteLevel::Info, topic: WARNING.into(), text, remedy: warning.help.clone() }
}
