//! Figure 4 on the kernel: the hourglass under a broker that does not know its phases, beside CPU-bound programs. As in
//! the paper, a delegate reports at the end of each period: it reads the hourglass's output.

use std::path::Path;

use hyoshi_broker::idl::cpu_broker::{self as wire, Task as _};
use hyoshi_model::{Instant, Span};
use hyoshi_os::Clock;
use serde::Serialize;

use super::host::{BrokerProcess, HourglassProcess, Spinners, clock, pause};
use crate::broker::tracking::{ADVOCATE, FIRST, PERIOD, PHASES, Tracked, TrackedCycle, demand};
use crate::control::{ExperimentControl, NoResult};

/// The results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TrackedOnKernel {
    /// The number of CPU-bound programs.
    pub spinners: usize,
    /// Whether the broker's task was the program's own process, not a process in between.
    pub own_process: bool,
    /// By period.
    #[serde(flatten)]
    pub tracked: Tracked,
}

/// Runs `phases` phases of `phase` periods.
pub(super) fn run(
    hyoshi: &Path,
    phase: u64,
    phases: u64,
    control: ExperimentControl<'_>,
) -> Result<TrackedOnKernel, NoResult> {
    let cycles = phase * phases;
    let length = Span::from_nanos(PERIOD.as_nanos() * cycles);
    let broker = BrokerProcess::start(hyoshi, &["--scheduler", "window", "--policy", "strict"])?;
    let spinners = Spinners::start(hyoshi, 2, length)?;
    let (period, first, length) = (PERIOD.to_string(), FIRST.to_string(), length.to_string());
    let later = |place: usize| format!("{}:{}", phase * place as u64, PHASES[place]);
    let (second, third, round) = (later(1), later(2), (phase * PHASES.len() as u64).to_string());
    let asked = ["--name", "hourglass", "--period", &period, "--budget", &first, "--advocate", ADVOCATE];
    let work = PHASES[0].to_string();
    let glass = [
        "--period", &period, "--work", &work, "--phase", &second, "--phase", &third, "--repeat", &round, "--for",
        &length,
    ];
    let mut glass = HourglassProcess::start(broker.exec(&asked, &glass))?;
    let task = broker.client.find("hourglass")?;
    glass.listen(move |period| {
        let consumed = period.obtained_ns;
        // The task ends with the program, after its last period.
        drop(task.report(&wire::CycleReport { consumed, cycles: 1, mode: -1, numbers: Vec::new() }));
    });
    let own_process = broker.task("hourglass")?.processes.contains(&glass.process());
    let mut held: Vec<(Instant, u64)> = Vec::new();
    while !glass.has_ended() {
        // The task ends with the program.
        if let Ok(task) = broker.task("hourglass") {
            held.push((clock().now(), task.granted.reserved.budget));
        }
        pause(control)?;
    }
    let releases: Vec<Instant> = (0..cycles).map(|number| glass.release(number)).collect();
    let periods = glass.periods();
    let cycle = |(number, release): (usize, &Instant)| TrackedCycle {
        demand_ns: demand(number as u64, phase).as_nanos(),
        held_ns: at(&held, *release),
        met: periods.get(number).copied().flatten().is_some_and(|period| period.met),
    };
    let tracked = Tracked { phase, cycles: releases.iter().enumerate().map(cycle).collect() };
    Ok(TrackedOnKernel { spinners: spinners.count(), own_process, tracked })
}

/// The last value until then, otherwise the first.
fn at(seen: &[(Instant, u64)], then: Instant) -> u64 {
    let before = seen.partition_point(|(at, _)| *at <= then);
    seen.get(before.saturating_sub(1)).map_or(0, |(_, held)| *held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_last_counts() {
        let seen = [(10, 1), (20, 2), (30, 3)].map(|(at, held)| (Instant::from_nanos(at), held));
        let found = [5, 10, 29, 30, 99].map(|then| at(&seen, Instant::from_nanos(then)));
        assert_eq!(found, [1, 1, 2, 3, 3]);
        assert_eq!(at(&[], Instant::ZERO), 0);
    }
}
