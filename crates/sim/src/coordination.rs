//! Decisions about several processors: the coordinators of groups, and the moves of operations between processors. Both
//! are outside the processors, and use no CPU.

use hyoshi_control::feedback::{Coordinator, GroupSteps, MoveOrder, ProposedMove, Reallocator};
use hyoshi_dispatch::DepartedOperation;
use hyoshi_model::{Instant, ProcessorId, System};
use hyoshi_trace::{Input, Probe};

use crate::cpu::SimulatedCpu;

/// The coordinators of a simulation, each on the host of its group's first processor. Samples and rates of other hosts
/// arrive after the longest delay of the link. A sample that would arrive more than half a sampling period late is
/// dropped, as in a run.
#[derive(Debug)]
pub(crate) struct Coordination {
    coordinators: Vec<Coordinator>,
    /// By processor of a group: where its rates are computed, and by which coordinator.
    members: Vec<Option<(ProcessorId, usize)>>,
    /// Samples that have not arrived.
    arriving: Vec<(Instant, ProcessorId, Option<u32>)>,
    /// Moves operations, if some could move.
    reallocator: Option<Reallocator>,
}

impl Coordination {
    /// Without `samples`, the rates are in known inputs.
    pub fn new(system: &System, samples: bool) -> Self {
        let of = || Coordinator::of(system).unwrap_or_else(|error| panic!("{error}; {}", error.remedy));
        let coordinators = if samples { of() } else { Vec::new() };
        let mut members = vec![None; system.processors.len()];
        for (place, one) in coordinators.iter().enumerate() {
            one.processors().iter().for_each(|at| members[at.index()] = Some((one.processors()[0], place)));
        }
        let reallocator = if samples { Reallocator::of(system) } else { None };
        Coordination { coordinators, members, arriving: Vec::new(), reallocator }
    }

    /// How often each has decided.
    pub fn counts(&self) -> Vec<GroupSteps> {
        self.coordinators.iter().map(Coordinator::counts).collect()
    }

    /// Moves that the file does not permit.
    pub fn proposals(&self) -> Vec<ProposedMove> {
        self.reallocator.iter().flat_map(Reallocator::proposals).copied().collect()
    }

    /// When the next sample arrives, or the next step of a coordinator is due.
    pub fn due(&self) -> Instant {
        let steps = self.coordinators.iter().map(Coordinator::due);
        steps.chain(self.arriving.iter().map(|(at, ..)| *at)).min().unwrap_or(Instant::NEVER)
    }

    /// Collects the samples that arrive by now, sets rates if that is due, and moves operations.
    pub fn act<P: Probe>(&mut self, system: &System, cpus: &mut [SimulatedCpu<'_, P>], now: Instant) {
        self.end_moves(system, cpus, now);
        if self.coordinators.is_empty() && self.reallocator.is_none() {
            return;
        }
        for cpu in cpus.iter_mut() {
            let (Some(utilisation), processor) = (cpu.take_sample(), cpu.dispatcher.processor()) else { continue };
            if let Some(law) = &mut self.reallocator {
                let (load, expected) = (cpu.dispatcher.load(), |id| cpu.dispatcher.expected_utilisation(id));
                let input = law.sample(processor, load, expected).map(|order| match order {
                    MoveOrder::Depart(moved) => Input::Depart { operation: moved.from },
                    MoveOrder::Stay(operation) => Input::Stay { operation },
                });
                input.into_iter().for_each(|input| cpu.pass(now, now, input));
            }
            let Some((to, _)) = self.members[processor.index()] else { continue };
            let delay = cpu.delay_to(to);
            if cpu.dispatcher.sampling_period().is_some_and(|period| delay.as_nanos() <= period.as_nanos() / 2) {
                self.arriving.push((now.saturating_add(delay), processor, utilisation));
            }
        }
        for (_, processor, utilisation) in self.arriving.extract_if(.., |(at, ..)| *at <= now) {
            let Some((_, coordinator)) = self.members[processor.index()] else { continue };
            self.coordinators[coordinator].collect(now, processor, utilisation);
        }
        for coordinator in self.coordinators.iter_mut().filter(|one| one.due() <= now) {
            let delays = &cpus[coordinator.processors()[0].index()];
            let at: Vec<Instant> =
                (0..).map(ProcessorId).take(cpus.len()).map(|to| now.saturating_add(delays.delay_to(to))).collect();
            coordinator.step(system, now, |to, operation, period| {
                cpus[to.index()].pass(now, at[to.index()], Input::Adapt { operation, period });
            });
        }
    }

    /// If the last job of a departing operation has ended, the operation arrives at its next processor.
    fn end_moves<P: Probe>(&mut self, system: &System, cpus: &mut [SimulatedCpu<'_, P>], now: Instant) {
        let Some(law) = &mut self.reallocator else { return };
        for from in 0..cpus.len() {
            for DepartedOperation { operation: from, nominal, number } in cpus[from].take_departed() {
                let Some(operation) = law.departed(from) else { continue };
                law.arrived(operation);
                let to = system.operation(operation).on;
                cpus[to.index()].pass(now, now, Input::Arrive { operation, from, nominal, number });
            }
        }
    }
}
