//! The coordinators of groups of processors. They are outside the processors, and use no CPU.

use hyoshi_control::feedback::{Coordinator, GroupSteps};
use hyoshi_model::{Instant, System};
use hyoshi_trace::Probe;

use crate::cpu::SimulatedCpu;

/// The coordinators of a simulation. They receive samples at once. Rates for another host arrive after the longest
/// delay of the link from the controller's host.
#[derive(Debug)]
pub(crate) struct Coordination {
    coordinators: Vec<Coordinator>,
}

impl Coordination {
    /// Without `samples`, the rates are in known inputs.
    pub fn new(system: &System, samples: bool) -> Self {
        let of = || Coordinator::of(system).unwrap_or_else(|error| panic!("{error}; {}", error.remedy));
        Coordination { coordinators: if samples { of() } else { Vec::new() } }
    }

    /// How often each has decided.
    pub fn counts(&self) -> Vec<GroupSteps> {
        self.coordinators.iter().map(Coordinator::counts).collect()
    }

    /// When the next step of a coordinator is due.
    pub fn due(&self) -> Instant {
        self.coordinators.iter().map(Coordinator::due).min().unwrap_or(Instant::NEVER)
    }

    /// Collects the samples of this instant, and sets rates if that is due.
    pub fn act<P: Probe>(&mut self, system: &System, cpus: &mut [SimulatedCpu<'_, P>], now: Instant) {
        if self.coordinators.is_empty() {
            return;
        }
        for cpu in cpus.iter_mut() {
            let Some(utilisation) = cpu.take_sample() else { continue };
            let processor = cpu.dispatcher.processor();
            self.coordinators.iter_mut().for_each(|one| one.collect(now, processor, utilisation));
        }
        for coordinator in self.coordinators.iter_mut().filter(|one| one.due() <= now) {
            coordinator.step(system, now, |from, to, root, period| {
                let at = now.saturating_add(cpus[from.index()].delay_to(to));
                cpus[to.index()].retime(now, at, root, period);
            });
        }
    }
}
