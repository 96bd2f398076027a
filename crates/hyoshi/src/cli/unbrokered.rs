//! A run without the feature `broker`: it rejects reservations, and sends no promises.

use std::path::Path;
use std::sync::Arc;

use hyoshi_model::{HostId, ProcessorId, Span, System};
use hyoshi_report::ReportNote;

use super::CliError;
use super::programs::ProgramsOutcome;

/// The promises of a run: none.
#[derive(Default)]
pub(super) struct NoLanePromises(());

impl NoLanePromises {
    pub fn send(_: &System, _: &[(ProcessorId, u32)], _: Option<&Path>) -> NoLanePromises {
        NoLanePromises(())
    }

    /// No broker reserves time beside them.
    pub fn paused(&self, _: u32, _: Span) {}

    pub fn end(self) -> Vec<ReportNote> {
        Vec::new()
    }
}

/// Programs under the broker: none.
pub(super) enum NoPrograms {}

impl NoPrograms {
    /// Rejects a file with reservations.
    pub fn start(system: &Arc<System>, _: Option<HostId>, _: Option<&Path>) -> Result<Option<NoPrograms>, CliError> {
        match system.brokered.programs.len() {
            0 => Ok(None),
            count => Err(CliError::new(format!("the file has {count} reservations, which this program cannot start"))
                .help("build it with the feature `broker` of the crate hyoshi, or use the command `hyoshi run`")),
        }
    }

    pub fn end(self) -> ProgramsOutcome {
        match self {}
    }
}
