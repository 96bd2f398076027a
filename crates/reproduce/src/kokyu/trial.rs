//! Trials: the flight program under one strategy, in virtual time.

use std::cell::RefCell;

use hyoshi_model::{Instant, ProcessorId, System};
use hyoshi_replay::{Feed, Observer};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_sim::{Simulated, simulate};
use hyoshi_trace::{Probe, Stats};
use serde::Serialize;

use super::program::{FlightProgram, Trial};
use super::tally::RegionCounts;

/// The counts of one trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrialRow {
    /// The strategy, or both strategies of a switching trial.
    pub strategy: String,
    /// Whether jobs that could not finish in time were cancelled (the paper's ©).
    pub cancel: bool,
    /// By region.
    pub regions: Vec<RegionCounts>,
}

impl TrialRow {
    /// As the paper writes it: `MUF ©`.
    pub fn name(&self) -> String {
        name(&self.strategy, self.cancel)
    }
}

/// A strategy's name, with the paper's mark for cancellation.
pub fn name(strategy: &str, cancel: bool) -> String {
    if cancel { format!("{strategy} ©") } else { strategy.into() }
}

/// Returns true to stop a long computation.
pub type Stop<'a> = &'a (dyn Fn() -> bool + Sync);

/// Simulates a trial. Only `stop` ends it early.
pub fn trial(program: &FlightProgram, trial: &Trial, strategies: &Strategies, stop: Stop<'_>) -> Observer<'static> {
    let system = program.system(trial);
    let observer = RefCell::new(Observer::new(&system));
    observe(&system, strategies, |processor| Feed::new(processor, &observer), stop);
    observer.into_inner()
}

/// Simulates a trial's system with the caller's probes.
pub fn observe<P: Probe>(
    system: &System,
    strategies: &Strategies,
    probe: impl FnMut(ProcessorId) -> P,
    stop: Stop<'_>,
) -> Simulated<P> {
    let plan = match Plan::new(system, strategies) {
        Ok(plan) => plan,
        Err(unknown) => unreachable!("trials name built-in strategies: {unknown}"),
    };
    simulate(system, &plan, Instant::ZERO + system.duration, probe, |_| !stop())
}

/// The counts of a trial.
pub fn row(program: &FlightProgram, of: &Trial, stats: &Stats) -> TrialRow {
    let regions = (0..program.regions()).map(|region| RegionCounts::of(stats, region));
    TrialRow { strategy: of.strategies(), cancel: of.cancel, regions: regions.collect() }
}
