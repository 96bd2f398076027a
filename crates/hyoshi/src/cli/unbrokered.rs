//! A run without the feature `broker`: it refuses reservations, and tells no broker of its lanes.

use std::path::Path;
use std::sync::Arc;

use hyoshi_model::{HostId, ProcessorId, Span, System};
use hyoshi_report::{Note, ProgramSummary};

use super::Failure;

/// The lanes of a run, of which no broker knows.
#[derive(Default)]
pub(super) struct LanePromises(());

impl LanePromises {
    pub fn tell(_: &System, _: &[(ProcessorId, u32)], _: Option<&Path>) -> LanePromises {
        LanePromises(())
    }

    /// No broker reserves time beside them.
    pub fn paused(&self, _: u32, _: Span) {}

    pub fn end(self) -> Vec<Note> {
        Vec::new()
    }
}

/// RunningPrograms under the broker: none.
pub(super) enum RunningPrograms {}

/// What became of them: nothing.
#[derive(Default)]
pub(super) struct ProgramsOutcome {
    pub summaries: Vec<ProgramSummary>,
    pub notes: Vec<Note>,
    pub failed: bool,
}

impl RunningPrograms {
    /// Refuses a file with reservations.
    pub fn start(
        system: &Arc<System>,
        _: Option<HostId>,
        _: Option<&Path>,
    ) -> Result<Option<RunningPrograms>, Failure> {
        match system.brokered.programs.len() {
            0 => Ok(None),
            count => Err(Failure::new(format!("the file has {count} reservations, which this program cannot start"))
                .help("build it with the feature `broker` of the crate hyoshi, or use the command `hyoshi run`")),
        }
    }

    pub fn end(self) -> ProgramsOutcome {
        match self {}
    }
}
