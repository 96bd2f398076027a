//! Experiments II and III: their workloads, and their runs in virtual time or on the kernel.

use std::fmt;

use hyoshi_model::Span;
use serde::Serialize;

use super::run::FcsRun;
use super::varying::{self, VaryingRun};
use super::workload::{FcsVariant, FcsWorkload};

/// A server of section 4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum FcsServer {
    /// Execution times are twice the estimates.
    A,
    /// A faster one: 1.3 times.
    B,
}

impl FcsServer {
    /// Both.
    pub const ALL: [FcsServer; 2] = [FcsServer::A, FcsServer::B];

    /// Actual over estimated execution times, in percent.
    pub const fn gain_percent(self) -> u64 {
        match self {
            FcsServer::A => 200,
            FcsServer::B => 130,
        }
    }

    /// The length of a run.
    pub const fn duration(self) -> Span {
        match self {
            FcsServer::A => Span::from_secs(800),
            FcsServer::B => Span::from_secs(1_200),
        }
    }

    /// The number of runs.
    pub const fn repeats(self) -> u64 {
        match self {
            FcsServer::A => 3,
            FcsServer::B => 1,
        }
    }
}

/// An experiment whose runs have loops or fixed rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FcsExperiment {
    /// Experiment II: other servers.
    Portability(FcsServer),
    /// Experiment III: execution times that change.
    Varying,
}

impl fmt::Display for FcsExperiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FcsExperiment::Portability(server) => write!(f, "experiment II, server {server:?}"),
            FcsExperiment::Varying => f.write_str("experiment III"),
        }
    }
}

/// The total estimated utilisation for which experiment II tunes OPEN, in parts per million.
const TUNED_PPM: u64 = 700_000;

impl FcsExperiment {
    /// A run as in the paper. Repeated ones have other phases and execution times.
    pub fn workload(self, variant: FcsVariant, seed: u64, repeat: u64) -> FcsWorkload {
        let workload = match self {
            FcsExperiment::Varying => varying::workload(variant, seed),
            FcsExperiment::Portability(server) => FcsWorkload {
                held_ppm: variant.algorithm().is_none().then_some(TUNED_PPM),
                ..FcsWorkload::new(variant, server.gain_percent(), server.duration(), seed)
            },
        };
        FcsWorkload { seed: seed.wrapping_add(repeat), ..workload }
    }
}

/// The runs of experiment II with one variant on one server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PortabilityRow {
    /// The server.
    pub server: FcsServer,
    /// The variant.
    pub variant: FcsVariant,
    /// Its runs, with other phases and execution times.
    pub runs: Vec<FcsRun>,
}

/// The runs of experiments II and III.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FcsRuns {
    /// Experiment II, by server and variant.
    pub portability: Vec<PortabilityRow>,
    /// Experiment III, by variant; in virtual time last FC-M with the default caps.
    pub varying: Vec<VaryingRun>,
}

impl FcsRuns {
    /// Adds a run.
    pub(super) fn add(&mut self, experiment: FcsExperiment, workload: &FcsWorkload, run: FcsRun) {
        let FcsExperiment::Portability(server) = experiment else {
            return self.varying.push(VaryingRun::of(workload, run));
        };
        let variant = workload.variant;
        match self.portability.iter_mut().find(|row| row.server == server && row.variant == variant) {
            Some(row) => row.runs.push(run),
            None => self.portability.push(PortabilityRow { server, variant, runs: vec![run] }),
        }
    }

    /// The rows of experiment II on this server.
    pub fn on(&self, server: FcsServer) -> impl Iterator<Item = &PortabilityRow> {
        self.portability.iter().filter(move |row| row.server == server)
    }

    /// The runs of experiment II.
    pub fn of(&self, server: FcsServer, variant: FcsVariant) -> &[FcsRun] {
        self.on(server).find(|row| row.variant == variant).map_or(&[], |row| &row.runs)
    }

    /// The run of experiment III; in virtual time the one without caps.
    pub fn varying(&self, variant: FcsVariant) -> Option<&VaryingRun> {
        self.varying.iter().find(|one| one.run.variant == variant)
    }
}
