//! Trials: the flight program under one strategy, in virtual time.

use std::cell::RefCell;

use hyoshi_model::{Instant, ProcessorId, System};
use hyoshi_replay::{Feed, Observer};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_sim::{Simulated, simulate};
use hyoshi_trace::{Probe, Stats};
use serde::Serialize;

use super::program::{Program, Trial};
use super::tally::Counts;

/// One trial's counts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The strategy, or the two that it switches between.
    pub strategy: String,
    /// Whether what cannot finish in time was cancelled (the paper's ©).
    pub cancel: bool,
    /// Region by region.
    pub regions: Vec<Counts>,
}

impl Row {
    /// As the paper writes it: `MUF ©`.
    pub fn name(&self) -> String {
        name(&self.strategy, self.cancel)
    }
}

/// A strategy's name, with the paper's mark for cancellation.
pub fn name(strategy: &str, cancel: bool) -> String {
    if cancel { format!("{strategy} ©") } else { strategy.into() }
}

/// Whoever wants a long computation to stop says so through this.
pub type Stop<'a> = &'a (dyn Fn() -> bool + Sync);

/// Simulates a trial. Nobody but a `stop` that says so ends it early.
pub fn trial(program: &Program, trial: &Trial, strategies: &Strategies, stop: Stop<'_>) -> Observer<'static> {
    let system = program.system(trial);
    let observer = RefCell::new(Observer::new(&system));
    observe(&system, strategies, |processor| Feed::new(processor, &observer), stop);
    observer.into_inner()
}

/// Simulates a trial's system before the caller's probes.
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

/// The trial as a row of the tables.
pub fn row(program: &Program, of: &Trial, stats: &Stats) -> Row {
    let regions = (0..program.regions()).map(|region| Counts::of(stats, region));
    Row { strategy: of.strategies(), cancel: of.cancel, regions: regions.collect() }
}
