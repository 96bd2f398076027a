//! The trials on the kernel: real threads at real-time priorities, with shorter regions that fit a time budget.
//! Execution times are unchanged, because shorter ones would change the load.

use std::sync::Arc;
use std::time::Duration;

use hyoshi_model::{Instant, Span};
use hyoshi_os::{Spawn, ThreadPolicy};
use hyoshi_replay::Observer;
use hyoshi_runtime::{Node, StartError};
use hyoshi_sched::Plan;
use serde::Serialize;

use super::program::{FlightProgram, REGIONS, Trial};
use super::queueing::{QueueingCost, RowQueueing};
use super::trial::{TrialRow, row};
use crate::control::{ExperimentControl, Stopped};

/// The share of the CPU for lanes: the default cap. Linux itself withholds 5 % from real-time threads, critical ones
/// included.
const CAP_PPM: u32 = 940_000;

/// The shortest region: one period of the slowest operations.
pub const SHORTEST_REGION: Span = Span::from_secs(1);

/// The time between two polls of the rings.
const POLL: Duration = Duration::from_millis(20);

/// The time to start and stop a run.
const AROUND: Span = Span::from_millis(150);

/// Trials on the kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelTrials {
    /// The length of each region.
    pub region_ns: u64,
    /// The cap on the lanes' CPU time.
    pub cap_ppm: u32,
    /// False if the kernel granted no real-time priorities: the figures are then not meaningful.
    pub real_time: bool,
    /// Requests that each region would enqueue if every leg were reached.
    pub offered: Vec<u64>,
    /// The trials.
    pub rows: Vec<TrialRow>,
    /// The same program, regions and cap in virtual time.
    pub simulated: Vec<TrialRow>,
    /// The costs of queueing in each trial, by region.
    pub queueing: Vec<RowQueueing>,
    /// Notes for the reader: refused privileges, time of the hypervisor.
    pub notes: Vec<String>,
}

/// Whether the kernel grants real-time priorities to this process.
pub fn grants_real_time() -> bool {
    let probe = Spawn::new("probe").policy(ThreadPolicy::Fifo(40)).spawn(|| ());
    probe.is_ok_and(|thread| {
        let granted = thread.granted.refused.is_empty();
        drop(thread.join());
        granted
    })
}

/// The longest regions with which `trials` trials fit `budget`; whole seconds, so that every operation has the same
/// releases in each.
pub fn region_within(budget: Span, trials: usize) -> Span {
    let trials = trials.max(1) as u64;
    let left = budget.as_nanos().saturating_sub(AROUND.as_nanos() * trials);
    let region = left / (trials * REGIONS.len() as u64);
    let second = SHORTEST_REGION.as_nanos();
    Span::from_nanos((region / second * second).max(second))
}

/// The reason why there are no trials on the kernel.
#[derive(Debug)]
pub enum KernelError {
    /// Stopped by the caller.
    Stopped,
    /// The kernel refused a required resource.
    Start(StartError),
}

impl From<Stopped> for KernelError {
    fn from(_: Stopped) -> Self {
        KernelError::Stopped
    }
}

impl std::fmt::Display for KernelError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KernelError::Stopped => f.write_str("interrupted"),
            KernelError::Start(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for KernelError {}

/// Runs the trials on the kernel, within about `budget`.
pub fn run(
    trials: &[Trial],
    budget: Span,
    seed: u64,
    control: ExperimentControl<'_>,
) -> Result<KernelTrials, KernelError> {
    let region = region_within(budget, trials.len());
    let program = FlightProgram::new(region, seed).capped(CAP_PPM);
    let mut kernel = KernelTrials {
        region_ns: region.as_nanos(),
        cap_ppm: CAP_PPM,
        real_time: grants_real_time(),
        offered: program.offered(),
        rows: Vec::new(),
        simulated: super::experiment::simulate(&program, trials, control)?,
        queueing: Vec::new(),
        notes: Vec::new(),
    };
    for (index, one) in trials.iter().enumerate() {
        let left = (program.duration() + AROUND).as_nanos() * (trials.len() - index) as u64;
        let (mut observer, regions) =
            trial_on_kernel(&program, one, Span::from_nanos(left), control, &mut kernel.notes)?;
        let row = row(&program, one, observer.stats());
        kernel.queueing.push(RowQueueing { strategy: row.strategy.clone(), cancel: row.cancel, regions });
        kernel.rows.push(row);
    }
    kernel.notes.sort();
    kernel.notes.dedup();
    Ok(kernel)
}

fn trial_on_kernel(
    program: &FlightProgram,
    trial: &Trial,
    left: Span,
    control: ExperimentControl<'_>,
    notes: &mut Vec<String>,
) -> Result<(Observer<'static>, Vec<QueueingCost>), KernelError> {
    let system = Arc::new(program.system(trial));
    let plan = match Plan::new(&system, &super::slack::strategies()) {
        Ok(plan) => Arc::new(plan),
        Err(unknown) => unreachable!("trials name built-in strategies: {unknown}"),
    };
    let mut observer = Observer::new(&system);
    let mut regions = Vec::new();
    let name = trial.name();
    let mut running = Node::new(system.clone(), plan).start().map_err(KernelError::Start)?;
    let mut sink = |processor, now, event| observer.event(processor, now, &event);
    let mut reported = None;
    while !running.finished() {
        if (control.stop)() {
            running.stop(&mut sink);
            return Err(KernelError::Stopped);
        }
        std::thread::sleep(POLL);
        running.poll(&mut sink);
        let now = running.now();
        let region = system.epoch_at(now);
        if region > regions.len() {
            regions.push(queueing_so_far(&running));
        }
        let remaining = left.saturating_sub(now.since(Instant::ZERO)).as_nanos().div_ceil(1_000_000_000);
        if reported.replace((region, remaining)) != Some((region, remaining)) {
            (control.step)(&format!("{name} on the kernel, region {region}; {remaining} s left"));
        }
    }
    regions.push(queueing_so_far(&running));
    let finished = running.stop(&mut sink);
    for note in &finished.notes {
        notes.push(note.to_string());
    }
    if finished.lost.events > 0 {
        notes.push(format!("{name}: {} events were lost; counts are incomplete", finished.lost.events));
    }
    for (_, cpu, stolen) in &finished.stolen {
        let stolen = stolen.unwrap_or_default();
        if stolen > Span::from_millis(10) {
            notes.push(format!("{name}: the hypervisor used {stolen} of CPU {cpu}"));
        }
    }
    Ok((observer, regions))
}

/// The costs of queueing since the last call.
fn queueing_so_far(running: &hyoshi_runtime::RunningNode) -> QueueingCost {
    running.take_queueing().first().map_or_else(QueueingCost::default, |(_, queueing)| QueueingCost::of(queueing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_whole_seconds_and_fit_the_budget_if_anything_does() {
        assert_eq!(region_within(Span::from_secs(120), 8), Span::from_secs(1));
        assert_eq!(region_within(Span::from_secs(600), 6), Span::from_secs(8));
        assert_eq!(region_within(Span::ZERO, 8), SHORTEST_REGION);
    }
}
