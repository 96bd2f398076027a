//! The experiments on the kernel, with real brokers and real programs.

mod arbitration;
mod host;
mod openness;
mod overhead;
mod tracking;

use std::path::Path;

use hyoshi_model::Span;
use serde::Serialize;

pub use arbitration::{ASIDE, Arbitrated};
pub use openness::Openness;
pub use overhead::Cost;
pub use tracking::TrackedOnKernel;

use super::tracking::PAPER_PHASE;
use crate::control::{ExperimentControl, Length, Stopped, or_note};
use arbitration::Caps;

/// The results. The notes explain what is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelExperiments {
    /// Their length.
    pub length: Length,
    /// Table I.
    pub overhead: Option<Vec<Cost>>,
    /// Figure 4.
    pub tracked: Option<TrackedOnKernel>,
    /// Figure 5 with soft caps.
    pub soft: Option<Arbitrated>,
    /// Figure 5 with hard ones.
    pub hard: Option<Arbitrated>,
    /// Unmodified programs and brokers.
    pub openness: Option<Openness>,
    /// The reasons why a part is missing.
    pub notes: Vec<String>,
}

impl Length {
    /// The number of reports of table I, and the time between them.
    fn reports(self) -> (u64, Span) {
        match self {
            Length::Short => (200, Span::from_millis(1)),
            Length::Usual => (1_000, Span::from_millis(1)),
            Length::Paper => (1_000, Span::from_millis(33)),
        }
    }

    /// The periods in a phase of figure 4, and the number of phases: three, then the first again.
    fn phases(self) -> (u64, u64) {
        match self {
            Length::Short | Length::Usual => (PAPER_PHASE, 4),
            Length::Paper => (PAPER_PHASE, 10),
        }
    }

    /// The periods in the stages of figure 5. The paper's commands are at 16.6 s and 22.5 s.
    fn stages(self) -> [u64; 3] {
        match self {
            Length::Short => [5; 3],
            Length::Usual => [12; 3],
            Length::Paper => [66, 24, 24],
        }
    }
}

/// Runs all of them. `hyoshi` is the program with the verbs `broker`, `exec`, `attach` and `hourglass`.
///
/// # Errors
///
/// If `control` stops it.
pub fn run(hyoshi: &Path, length: Length, control: ExperimentControl<'_>) -> Result<KernelExperiments, Stopped> {
    let mut kernel = KernelExperiments { length, ..KernelExperiments::default() };
    let notes = &mut kernel.notes;
    (control.step)("what a report costs (table I)");
    let (reports, apart) = length.reports();
    kernel.overhead = or_note("table I", overhead::run(hyoshi, reports, apart, control), notes, control)?;
    (control.step)("a reservation that follows a demand (figure 4)");
    let (phase, phases) = length.phases();
    kernel.tracked = or_note("figure 4", tracking::run(hyoshi, phase, phases, control), notes, control)?;
    (control.step)("changing importances, with soft caps (figure 5)");
    kernel.soft =
        or_note("figure 5, soft caps", arbitration::run(hyoshi, Caps::Soft, length.stages(), control), notes, control)?;
    (control.step)("changing importances, with hard caps (figure 5)");
    kernel.hard =
        or_note("figure 5, hard caps", arbitration::run(hyoshi, Caps::Hard, length.stages(), control), notes, control)?;
    (control.step)("unmodified programs and brokers");
    kernel.openness = or_note("attaching, and advocates from outside", openness::run(hyoshi, control), notes, control)?;
    Ok(kernel)
}
