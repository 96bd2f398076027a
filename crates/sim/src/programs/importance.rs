//! The importance of programs that regions of contracts set.

use std::cmp::Reverse;

use hyoshi_model::{Contract, ContractAction, ExternalAction, ProgramId, System};
use hyoshi_trace::Probe;

use super::Programs;
use crate::cpu::SimulatedCpu;

/// The programs with such an importance, and the present one.
#[derive(Debug)]
pub(crate) struct ProgramImportance(Vec<(ProgramId, u32)>);

/// The importance that an action sets.
fn importance_of(action: &ContractAction) -> Option<(ProgramId, u32)> {
    match action {
        ContractAction::External(ExternalAction::Importance { program, importance }) => Some((*program, *importance)),
        _ => None,
    }
}

impl ProgramImportance {
    pub fn new(system: &System) -> Self {
        let actions = system.contracts.iter().flat_map(|one| &one.regions).flat_map(|region| &region.actions);
        let mut all: Vec<_> = actions.filter_map(importance_of).map(|(program, _)| program).collect();
        all.sort_unstable();
        all.dedup();
        ProgramImportance(all.into_iter().map(|program| (program, system.program(program).importance)).collect())
    }

    /// Whether regions have changed since the last call, and such an importance exists.
    pub fn changes<P: Probe>(&self, cpus: &mut [SimulatedCpu<'_, P>]) -> bool {
        !self.0.is_empty() && cpus.iter_mut().map(SimulatedCpu::take_changed_regions).fold(false, |any, one| any | one)
    }

    /// Sets the importance that the active regions want: that of the highest precedence, and in a contract that of the
    /// inner region; without such a region, the declared one.
    pub fn apply<P: Probe>(&mut self, system: &System, cpus: &[SimulatedCpu<'_, P>], programs: &mut Programs<'_>) {
        let mut wanted = Vec::new();
        for one in cpus.iter().flat_map(|cpu| cpu.dispatcher.contracts()).filter(|one| one.is_evaluated()) {
            let contract: &Contract = &system.contracts[usize::from(one.contract)];
            for (depth, region) in one.active().enumerate() {
                let actions = &contract.regions[usize::from(region)].actions;
                let rank = (contract.precedence, Reverse(one.contract), depth);
                wanted.extend(actions.iter().filter_map(importance_of).map(|(program, to)| (rank, program, to)));
            }
        }
        for (program, present) in &mut self.0 {
            let declared = system.program(*program);
            let of = wanted.iter().filter(|(_, of, _)| of == program).max_by_key(|(rank, ..)| *rank);
            let to = of.map_or(declared.importance, |(_, _, to)| *to);
            if std::mem::replace(present, to) != to {
                programs.set_importance(declared.host, *program, to);
            }
        }
    }
}
