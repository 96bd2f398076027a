//! Kokyu: C. D. Gill, R. K. Cytron and D. C. Schmidt, "Multiparadigm Scheduling for Distributed
//! Real-Time Embedded Computing", Proceedings of the IEEE 91(1), 2003.
//!
//! A flight program runs through twelve operating regions of rising load and varying jitter, under
//! three strategies, each with and without cancellation of what is not critical; the same seed for
//! all. How we read what the paper leaves open is told in `docs/reproducing.md`.

pub mod best;
pub mod claims;
mod experiment;
mod html;
pub mod kernel;
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
use kernel::Kernel;
use overhead::Threshold;
use queueing::RowQueueing;
use slack::Slack;
use tally::Deadlines;
use trial::Row;

/// Everything that was counted and measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Start of every draw.
    pub seed: u64,
    /// How long each region lasted in virtual time.
    pub region_ns: u64,
    /// Declared load of each region, in parts per million of the processor.
    pub declared_ppm: Vec<u64>,
    /// The load as it is drawn, on average.
    pub mean_ppm: Vec<u64>,
    /// Requests that each region would enqueue if every leg were reached.
    pub offered: Vec<u64>,
    /// The paper's six trials, in virtual time; scheduling costs nothing.
    pub simulated: Vec<Row>,
    /// The same with what the paper says of costs.
    pub at_paper_costs: Vec<Row>,
    /// The hybrids with every drawn execution time replaced by its mean.
    pub steady: Vec<Row>,
    /// MUF with cancellation and worst cases that are advertised too long.
    pub advertised: Vec<Advertised>,
    /// At what cost of scheduling the first critical deadline falls.
    pub thresholds: Vec<Threshold>,
    /// Whether slack stealing explains MUF.
    pub slack: Slack,
    /// Switching between RMS and RMS+MLF, without and with cancellation; nothing costs anything.
    pub switched: Vec<Row>,
    /// What the dispatcher's own code takes to queue a request, measured in a simulation.
    pub queueing: Vec<RowQueueing>,
    /// The trials on the kernel, if there were any.
    pub kernel: Option<Kernel>,
    /// Why there were none, unless nobody asked for any.
    pub no_kernel: Option<String>,
}

impl Figures {
    /// The paper's trials and, beside them, those that switch; in virtual time, at no cost.
    fn with_switching(&self) -> impl Iterator<Item = &Row> {
        self.simulated.iter().chain(&self.switched)
    }
}

/// A trial in which route legs advertise a longer worst case than they take.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advertised {
    /// The advertised worst case in percent of what a leg takes.
    pub percent: u64,
    /// What became of it.
    pub row: Row,
}

/// The experiment, run and judged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reproduced {
    /// Every claim of the paper.
    pub claims: Vec<Judgement>,
    /// What they were judged by.
    #[serde(flatten)]
    pub figures: Figures,
}

impl Reproduced {
    /// Judges what was measured.
    pub fn judge(figures: Figures) -> Reproduced {
        Reproduced { claims: claims::judge(&figures), figures }
    }

    /// What a reader must know to judge the figures of the kernel.
    pub fn notes(&self) -> Vec<String> {
        let Figures { kernel, no_kernel, .. } = &self.figures;
        let mut notes: Vec<String> = no_kernel.iter().cloned().collect();
        if let Some(kernel) = kernel {
            if !kernel.real_time {
                notes.push(
                    "the kernel granted no real-time priority: its figures tell of the machine's other work".into(),
                );
            }
            notes.extend(kernel.notes.iter().cloned());
        }
        notes
    }
}

/// One class of deadlines, to be picked from counts.
type Class = fn(&tally::Counts) -> Deadlines;
