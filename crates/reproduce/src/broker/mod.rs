//! The CPU Broker: E. Eide, T. Stack, J. Regehr and J. Lepreau, "Dynamic CPU Management for Real-Time, Middleware-Based
//! Systems", University of Utah, UUCS-04-004, 2004.
//!
//! Figures 4 to 6 in virtual time, by the same laws as the broker's; table I and figures 4 and 5 again on the kernel,
//! with real brokers and programs. Table II needs streams of images, and is left out. How we read what the paper
//! leaves open is told in `docs/reproducing.md`.

pub mod arbitration;
pub mod claims;
mod html;
pub mod kernel;
pub mod prediction;
mod terminal;
pub mod tracking;

use serde::Serialize;

use crate::claim::Judgement;
use crate::watch::{Stopped, Watch};
use arbitration::Stage;
use kernel::Kernel;
use prediction::Predicted;
use tracking::Tracked;

/// Everything that was counted and measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// Figure 4 in virtual time.
    pub tracked: Tracked,
    /// Figure 5 in virtual time.
    pub arbitrated: Vec<Stage>,
    /// Figure 6's advocate.
    pub predicted: Predicted,
    /// Table I and the figures on the kernel, if nobody left them out.
    pub kernel: Option<Kernel>,
}

/// The experiments, run and judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reproduced {
    /// Every claim of the paper.
    pub claims: Vec<Judgement>,
    /// What they were judged by.
    #[serde(flatten)]
    pub figures: Figures,
}

/// Periods of figure 4 in virtual time: its phases four times.
const CYCLES: u64 = 4 * tracking::PHASES.len() as u64 * tracking::PAPER_PHASE;

/// Runs everything in virtual time.
///
/// # Errors
///
/// If somebody wants it to end.
pub fn run(watch: Watch<'_>) -> Result<Figures, Stopped> {
    (watch.step)("figures 4 to 6 in virtual time");
    Ok(Figures {
        tracked: tracking::play(tracking::PAPER_PHASE, CYCLES),
        arbitrated: arbitration::play(),
        predicted: prediction::play(watch)?,
        kernel: None,
    })
}

impl Reproduced {
    /// Judges what was measured.
    pub fn judge(figures: Figures) -> Reproduced {
        Reproduced { claims: claims::judge(&figures), figures }
    }

    /// What a reader must know to judge the figures of the kernel.
    pub fn notes(&self) -> &[String] {
        self.figures.kernel.as_ref().map_or(&[], |kernel| &kernel.notes)
    }
}
