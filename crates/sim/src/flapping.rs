//! Simulates a system for contracts whose regions begin and end in a cycle.

use std::cell::RefCell;

use hyoshi_contract::{FlapDetector, FlappingRegion};
use hyoshi_model::{Instant, System};
use hyoshi_sched::Plan;
use hyoshi_trace::{DispatchDecision, Probe, TraceEvent};

use crate::simulate;

/// So many simulated jobs at most: a fraction of a second.
const MOST_JOBS: u64 = 300_000;

/// The regions that flap in a simulation of the system, with the positions of their contracts. It has the length of the
/// system's runs, or ends after 300,000 jobs.
///
/// `keep_on` is called now and then; false ends the simulation.
pub fn flapping(system: &System, plan: &Plan, mut keep_on: impl FnMut() -> bool) -> Vec<(u16, FlappingRegion)> {
    if system.contracts.is_empty() {
        return Vec::new();
    }
    let detector =
        |one: &hyoshi_model::Contract| FlapDetector::new(one.regions.iter().map(|one| &one.rules), one.period);
    let watch = RefCell::new(RegionWatch { left: MOST_JOBS, all: system.contracts.iter().map(detector).collect() });
    let until = Instant::ZERO + system.duration;
    simulate(system, plan, until, |_| RegionProbe(&watch), |_| watch.borrow().left > 0 && keep_on());
    let all = watch.into_inner().all;
    (0..).zip(&all).flat_map(|(contract, one)| one.found().map(move |found| (contract, found))).collect()
}

struct RegionWatch {
    left: u64,
    /// By contract.
    all: Vec<FlapDetector>,
}

struct RegionProbe<'a>(&'a RefCell<RegionWatch>);

impl Probe for RegionProbe<'_> {
    fn event(&mut self, now: Instant, event: TraceEvent) {
        match event {
            TraceEvent::Decision(DispatchDecision::End(_)) => {
                let mut watch = self.0.borrow_mut();
                watch.left = watch.left.saturating_sub(1);
            }
            TraceEvent::Decision(DispatchDecision::Region { contract, from, to }) => {
                self.0.borrow_mut().all[usize::from(contract)].change(now, from, to);
            }
            _ => {}
        }
    }
}
