//! The experiments on the kernel: real brokers, and real programs that are brought under them.

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
use crate::watch::{Stopped, Watch};
use arbitration::Caps;
use host::NoResult;

/// How long the experiments on the kernel are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Length {
    /// As short as they mean anything.
    Short,
    /// Long enough to judge by.
    #[default]
    Usual,
    /// As the paper's.
    Paper,
}

/// What came out. What is missing was refused, and the notes say why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Kernel {
    /// How long it was.
    pub length: Length,
    /// Table I.
    pub overhead: Option<Vec<Cost>>,
    /// Figure 4.
    pub tracked: Option<TrackedOnKernel>,
    /// Figure 5 with soft caps.
    pub soft: Option<Arbitrated>,
    /// Figure 5 with hard ones.
    pub hard: Option<Arbitrated>,
    /// What needs no change.
    pub openness: Option<Openness>,
    /// Why something is missing.
    pub notes: Vec<String>,
}

impl Length {
    /// Reports of table I, and how far apart.
    fn reports(self) -> (u64, Span) {
        match self {
            Length::Short => (200, Span::from_millis(1)),
            Length::Usual => (1_000, Span::from_millis(1)),
            Length::Paper => (1_000, Span::from_millis(33)),
        }
    }

    /// Periods in a phase of figure 4, and phases: three of them, and the first again.
    fn phases(self) -> (u64, u64) {
        match self {
            Length::Short | Length::Usual => (PAPER_PHASE, 4),
            Length::Paper => (PAPER_PHASE, 10),
        }
    }

    /// Periods in the stages of figure 5; the paper's commands come at 16.6 s and 22.5 s.
    fn stages(self) -> [u64; 3] {
        match self {
            Length::Short => [5; 3],
            Length::Usual => [12; 3],
            Length::Paper => [66, 24, 24],
        }
    }
}

/// Runs all of them. `hyoshi` is the program that has the verbs `broker`, `exec`, `attach` and `hourglass`.
///
/// # Errors
///
/// If somebody wants it to end.
pub fn run(hyoshi: &Path, length: Length, watch: Watch<'_>) -> Result<Kernel, Stopped> {
    let mut kernel = Kernel { length, ..Kernel::default() };
    let notes = &mut kernel.notes;
    (watch.step)("what a report costs (table I)");
    let (reports, apart) = length.reports();
    kernel.overhead = kept("table I", overhead::run(hyoshi, reports, apart, watch), notes, watch)?;
    (watch.step)("a reservation that follows a demand (figure 4)");
    let (phase, phases) = length.phases();
    kernel.tracked = kept("figure 4", tracking::run(hyoshi, phase, phases, watch), notes, watch)?;
    (watch.step)("importances that change, with soft caps (figure 5)");
    kernel.soft =
        kept("figure 5, soft caps", arbitration::run(hyoshi, Caps::Soft, length.stages(), watch), notes, watch)?;
    (watch.step)("importances that change, with hard caps (figure 5)");
    kernel.hard =
        kept("figure 5, hard caps", arbitration::run(hyoshi, Caps::Hard, length.stages(), watch), notes, watch)?;
    (watch.step)("programs and brokers that nobody changes");
    kernel.openness = kept("attaching, and advocates from outside", openness::run(hyoshi, watch), notes, watch)?;
    Ok(kernel)
}

/// A result, or why there is none among the notes.
fn kept<T>(
    what: &str,
    result: Result<T, NoResult>,
    notes: &mut Vec<String>,
    watch: Watch<'_>,
) -> Result<Option<T>, Stopped> {
    // An interrupt from the keyboard ends the programs, too: what they said then is no result.
    if (watch.stop)() {
        return Err(Stopped);
    }
    match result {
        Ok(result) => Ok(Some(result)),
        Err(NoResult::Stopped) => Err(Stopped),
        Err(NoResult::Because(why)) => {
            notes.push(format!("{what}: nothing on the kernel: {why}"));
            Ok(None)
        }
    }
}
