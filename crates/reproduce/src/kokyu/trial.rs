//! Trials: the flight program under one strategy, in virtual time.

use hyoshi_model::Instant;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_sim::simulate;
use hyoshi_trace::Probe;
use serde::Serialize;

use super::program::{Program, Trial};
use super::tally::{Counts, Tally};

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
pub fn trial(program: &Program, trial: &Trial, strategies: &Strategies, stop: Stop<'_>) -> Tally {
    observe(program, trial, strategies, Tally::new(program.regions()), |_| !stop())
}

/// Simulates a trial before a probe of the caller's.
pub fn observe<P: Probe + Clone>(
    program: &Program,
    trial: &Trial,
    strategies: &Strategies,
    probe: P,
    keep_on: impl FnMut(Instant) -> bool,
) -> P {
    let system = program.system(trial);
    let plan = match Plan::new(&system, strategies) {
        Ok(plan) => plan,
        Err(unknown) => unreachable!("trials name built-in strategies: {unknown}"),
    };
    let until = Instant::ZERO + system.duration;
    let simulated = simulate(&system, &plan, until, |_| probe.clone(), keep_on);
    simulated.processors.into_iter().map(|processor| processor.probe).next().unwrap_or(probe)
}

/// The trial as a row of the tables.
pub fn row(of: &Trial, tally: &Tally) -> Row {
    Row { strategy: of.strategies(), cancel: of.cancel, regions: tally.counts() }
}
