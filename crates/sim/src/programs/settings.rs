//! The settings of programs at the broker that regions of contracts change.

use std::cmp::Reverse;

use hyoshi_model::{Contract, ContractAction, ExternalAction, ProgramId, ReservationSetting, System};
use hyoshi_trace::Probe;

use super::Programs;
use crate::cpu::SimulatedCpu;

/// A setting of a program.
type ProgramSetting = (ProgramId, ReservationSetting);

/// The settings that regions change, with their present values.
#[derive(Debug)]
pub(crate) struct ProgramSettings(Vec<(ProgramSetting, u64)>);

/// What an action sets, and its value.
fn setting_of(action: &ContractAction) -> Option<(ProgramSetting, u64)> {
    match action {
        ContractAction::External(ExternalAction::Reserve { program, setting, to }) => Some(((*program, *setting), *to)),
        _ => None,
    }
}

/// The file's value. A program without a least budget has none.
fn declared(system: &System, (program, setting): ProgramSetting) -> u64 {
    setting.declared(system.program(program)).unwrap_or(0)
}

impl ProgramSettings {
    pub fn new(system: &System) -> Self {
        let actions = system.contracts.iter().flat_map(|one| &one.regions).flat_map(|region| &region.actions);
        let mut all: Vec<_> = actions.filter_map(setting_of).map(|(of, _)| of).collect();
        all.sort_unstable();
        all.dedup();
        ProgramSettings(all.into_iter().map(|of| (of, declared(system, of))).collect())
    }

    /// Whether regions have changed since the last call, and such a setting exists.
    pub fn changes<P: Probe>(&self, cpus: &mut [SimulatedCpu<'_, P>]) -> bool {
        !self.0.is_empty() && cpus.iter_mut().map(SimulatedCpu::take_changed_regions).fold(false, |any, one| any | one)
    }

    /// Sets the values that the active regions want: those of the highest precedence, and in a contract those of the
    /// inner region; without such a region, the declared ones.
    pub fn apply<P: Probe>(&mut self, system: &System, cpus: &[SimulatedCpu<'_, P>], programs: &mut Programs<'_>) {
        let mut wanted = Vec::new();
        for one in cpus.iter().flat_map(|cpu| cpu.dispatcher.contracts()).filter(|one| one.is_evaluated()) {
            let contract: &Contract = &system.contracts[usize::from(one.contract)];
            for (depth, region) in one.active().enumerate() {
                let actions = &contract.regions[usize::from(region)].actions;
                let rank = (contract.precedence, Reverse(one.contract), depth);
                wanted.extend(actions.iter().filter_map(setting_of).map(|(of, to)| (rank, of, to)));
            }
        }
        for (setting, present) in &mut self.0 {
            let of = wanted.iter().filter(|(_, of, _)| of == setting).max_by_key(|(rank, ..)| *rank);
            let to = of.map_or_else(|| declared(system, *setting), |(_, _, to)| *to);
            if std::mem::replace(present, to) != to {
                let (program, what) = *setting;
                programs.set(system.program(program).host, program, what, to);
            }
        }
    }
}
