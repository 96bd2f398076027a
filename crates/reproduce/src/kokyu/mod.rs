//! Kokyu: C. D. Gill, R. K. Cytron and D. C. Schmidt, "Multiparadigm Scheduling for Distributed Real-Time Embedded
//! Computing", Proceedings of the IEEE 91(1), 2003.
//!
//! A flight program runs through twelve operating regions of rising load and varying jitter, under three strategies,
//! each with and without cancellation of non-critical work, all with the same seed. `docs/reproducing.md` lists our
//! assumptions where the paper is not specific.

pub mod best;
pub mod claims;
mod experiment;
mod html;
pub mod kernel;
pub mod links;
pub mod overhead;
pub mod program;
pub mod queueing;
pub mod slack;
pub mod switching;
pub mod tally;
mod terminal;
pub mod trial;

use serde::Serialize;

use crate::claim::Judgement;

pub use experiment::{Setup, kernel_trials, run, trials};
use kernel::KernelTrials;
use links::LinkRow;
use overhead::Threshold;
use queueing::RowQueueing;
use slack::Slack;
use tally::Deadlines;
use trial::TrialRow;

/// All counts and measurements.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KokyuFigures {
    /// The seed of all random draws.
    pub seed: u64,
    /// The length of each region in virtual time.
    pub region_ns: u64,
    /// Declared load of each region, in parts per million of the processor.
    pub declared_ppm: Vec<u64>,
    /// The mean of the drawn load of each region.
    pub mean_ppm: Vec<u64>,
    /// Requests that each region would enqueue if every leg were reached.
    pub offered: Vec<u64>,
    /// The paper's six trials, in virtual time at no cost.
    pub simulated: Vec<TrialRow>,
    /// The same at the paper's costs.
    pub at_paper_costs: Vec<TrialRow>,
    /// The hybrids with every drawn execution time replaced by its mean.
    pub steady: Vec<TrialRow>,
    /// MUF with cancellation and worst cases that are advertised too long.
    pub advertised: Vec<Advertised>,
    /// The cost of scheduling that causes the first critical miss.
    pub thresholds: Vec<Threshold>,
    /// Whether slack stealing explains MUF.
    pub slack: Slack,
    /// Switching between RMS and RMS+MLF, without and with cancellation, at no cost.
    pub switched: Vec<TrialRow>,
    /// Every delay and jitter of a link under RMS, EDF, MLF and MUF.
    pub links: Vec<LinkRow>,
    /// The cost of queueing a request in the dispatcher's own code, measured in a simulation.
    pub queueing: Vec<RowQueueing>,
    /// The trials on the kernel, if there were any.
    pub kernel: Option<KernelTrials>,
    /// The reason why there are none, unless none were requested.
    pub no_kernel: Option<String>,
}

impl KokyuFigures {
    /// The paper's trials and the switching trials; in virtual time, at no cost.
    fn with_switching(&self) -> impl Iterator<Item = &TrialRow> {
        self.simulated.iter().chain(&self.switched)
    }
}

/// A trial in which route legs advertise a worst case longer than their execution time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advertised {
    /// The advertised worst case in percent of the execution time.
    pub percent: u64,
    /// Its counts.
    pub row: TrialRow,
}

/// The experiment and its ratings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reproduced {
    /// The claims of the paper.
    pub claims: Vec<Judgement>,
    /// Their basis.
    #[serde(flatten)]
    pub figures: KokyuFigures,
}

impl Reproduced {
    /// Rates the figures.
    pub fn judge(figures: KokyuFigures) -> Reproduced {
        Reproduced { claims: claims::judge(&figures), figures }
    }

    /// Notes that matter for the figures of the kernel.
    pub fn notes(&self) -> Vec<String> {
        let KokyuFigures { kernel, no_kernel, .. } = &self.figures;
        let mut notes: Vec<String> = no_kernel.iter().cloned().collect();
        if let Some(kernel) = kernel {
            if !kernel.real_time {
                notes.push(
                    "the kernel granted no real-time priority: its figures include delays by the machine's other work"
                        .into(),
                );
            }
            notes.extend(kernel.notes.iter().cloned());
        }
        notes
    }
}

/// Selects one class of deadlines.
type Class = fn(&tally::RegionCounts) -> Deadlines;
