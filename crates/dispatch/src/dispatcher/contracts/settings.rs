//! Settings with one value that regions set: importance, set points of the feedback loop, and the strategy in
//! force.

use alloc::vec::Vec;

use hyoshi_model::{
    Contract, ContractAction, ContractRegion, ContractSetting, Instant, OperationId, ProcessorId, System,
};
use hyoshi_trace::Probe;

use crate::dispatcher::Dispatcher;
use crate::effects::Effects;

/// The settings of a processor that contracts set.
#[derive(Debug)]
pub(super) struct ProcessorSettings(Vec<SetValue>);

#[derive(Debug)]
struct SetValue {
    setting: ContractSetting,
    /// The value of the active regions; `None`: that of the file.
    to: Option<u32>,
    /// The value in force.
    applied: Option<u32>,
}

impl ProcessorSettings {
    pub fn new(system: &System, processor: ProcessorId, contracts: &[&Contract]) -> ProcessorSettings {
        let actions = contracts.iter().flat_map(|one| &one.regions).flat_map(|region| &region.actions);
        let set = actions.filter_map(|action| match action {
            ContractAction::Set { setting, .. } => Some(*setting),
            _ => None,
        });
        let mut here: Vec<_> = set.filter(|setting| setting.processor(system) == processor).collect();
        here.sort_unstable();
        here.dedup();
        ProcessorSettings(here.into_iter().map(|setting| SetValue { setting, to: None, applied: None }).collect())
    }

    /// Positions of the settings of a region that are here, with its values.
    pub fn of_region(&self, region: &ContractRegion) -> Vec<(u32, u32)> {
        let found = region.actions.iter().filter_map(|action| {
            let ContractAction::Set { setting, to } = action else { return None };
            Some((self.0.iter().position(|one| one.setting == *setting)? as u32, *to))
        });
        found.collect()
    }

    /// All values are those of the file.
    pub fn clear(&mut self) {
        self.0.iter_mut().for_each(|one| one.to = None);
    }

    pub fn set(&mut self, place: u32, to: u32) {
        self.0[place as usize].to = Some(to);
    }
}

impl<P: Probe> Dispatcher<P> {
    /// Applies the values that have changed.
    pub(super) fn apply_settings(&mut self, now: Instant, settings: &mut ProcessorSettings, effects: &mut Effects) {
        for one in settings.0.iter_mut().filter(|one| one.applied != one.to) {
            one.applied = one.to;
            match one.setting {
                ContractSetting::Importance(id) => self.set_importance(id, one.to),
                ContractSetting::Utilisation(_) => {
                    self.feedback.iter_mut().for_each(|feedback| feedback.set_utilisation(one.to));
                }
                ContractSetting::MissRatio(_) => {
                    self.feedback.iter_mut().for_each(|feedback| feedback.set_miss_ratio(one.to));
                }
                ContractSetting::Strategy(_) => {
                    self.switching.iter_mut().for_each(|switching| switching.pin(one.to.map(|to| to > 0)));
                    self.update_strategy(now, effects);
                }
            }
        }
    }

    /// Later jobs of an operation have this importance, or that of the file. Released jobs keep theirs.
    fn set_importance(&mut self, id: OperationId, to: Option<u32>) {
        let (Some(local), in_force) = (self.local(id), self.strategy_in_force()) else { return };
        let operation = &mut self.operations[local as usize];
        operation.importance = to.unwrap_or(operation.declared_importance);
        operation.reorder(&self.rankings, in_force);
    }
}
