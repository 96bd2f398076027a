//! The CPU Broker: E. Eide, T. Stack, J. Regehr and J. Lepreau, "Dynamic CPU Management for Real-Time, Middleware-Based
//! Systems", University of Utah, UUCS-04-004, 2004.
//!
//! Figures 4 to 6 in virtual time, with the broker's own laws. Table I and figures 4 and 5 also on the kernel, with
//! real brokers and programs. Table II requires image streams and is left out. `docs/reproducing.md` lists our
//! assumptions where the paper is not specific.

pub mod arbitration;
pub mod claims;
mod html;
pub mod kernel;
pub mod prediction;
mod terminal;
pub mod tracking;

use serde::Serialize;

use crate::claim::Judgement;
use crate::control::{ExperimentControl, Stopped};
use arbitration::ImportanceStage;
use kernel::KernelExperiments;
use prediction::Predicted;
use tracking::Tracked;

/// All counts and measurements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BrokerFigures {
    /// Figure 4 in virtual time.
    pub tracked: Tracked,
    /// Figure 5 in virtual time.
    pub arbitrated: Vec<ImportanceStage>,
    /// Figure 6's advocate.
    pub predicted: Predicted,
    /// Table I and the figures on the kernel, unless they were left out.
    pub kernel: Option<KernelExperiments>,
}

/// The experiments and their ratings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BrokerReproduction {
    /// The claims of the paper.
    pub claims: Vec<Judgement>,
    /// Their basis.
    #[serde(flatten)]
    pub figures: BrokerFigures,
}

/// Periods of figure 4 in virtual time: its phases four times.
const CYCLES: u64 = 4 * tracking::PHASES.len() as u64 * tracking::PAPER_PHASE;

/// Runs everything in virtual time.
///
/// # Errors
///
/// If `control` stops it.
pub fn run(control: ExperimentControl<'_>) -> Result<BrokerFigures, Stopped> {
    (control.step)("figures 4 to 6 in virtual time");
    Ok(BrokerFigures {
        tracked: tracking::play(tracking::PAPER_PHASE, CYCLES),
        arbitrated: arbitration::play(),
        predicted: prediction::play(control)?,
        kernel: None,
    })
}

impl BrokerReproduction {
    /// Rates the figures.
    pub fn judge(figures: BrokerFigures) -> BrokerReproduction {
        BrokerReproduction { claims: claims::judge(&figures), figures }
    }

    /// Notes that matter for the figures of the kernel.
    pub fn notes(&self) -> &[String] {
        self.figures.kernel.as_ref().map_or(&[], |kernel| &kernel.notes)
    }
}
