//! Settings outside of the dispatcher that hold while a region is active: importance of programs, behaviours of
//! delegates.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyoshi_model::{ExternalAction, ProgramId, ServantBehaviour, System};

use super::{BrokerAccess, DelegateAccess, ReadyAction};

/// What a region sets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OutsideSetting {
    /// The importance of a program at the CPU broker.
    Importance(ProgramId),
    /// The behaviour of a delegate for an operation.
    Behaviour(u16, Box<str>),
}

/// Its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SettingValue {
    Importance(u32),
    /// `None`: that of the file.
    Behaviour(Option<ServantBehaviour>),
}

/// Where settings are applied.
#[derive(Default)]
pub(super) struct SettingTargets {
    pub broker: Option<Arc<dyn BrokerAccess>>,
    pub delegates: Option<Arc<dyn DelegateAccess>>,
}

impl OutsideSetting {
    /// The setting of an action, with its value; `None` if the action is done once.
    pub fn of(action: &ExternalAction) -> Option<(OutsideSetting, SettingValue)> {
        match action {
            ExternalAction::Importance { program, importance } => {
                Some((OutsideSetting::Importance(*program), SettingValue::Importance(*importance)))
            }
            ExternalAction::Behave { delegate, operation, behaviour } => {
                let setting = OutsideSetting::Behaviour(*delegate, operation.clone());
                Some((setting, SettingValue::Behaviour(Some(*behaviour))))
            }
            ExternalAction::Call { .. } | ExternalAction::Run { .. } => None,
        }
    }

    /// The value of the file.
    fn declared(&self, system: &System) -> SettingValue {
        match self {
            OutsideSetting::Importance(program) => SettingValue::Importance(system.program(*program).importance),
            OutsideSetting::Behaviour(..) => SettingValue::Behaviour(None),
        }
    }

    /// The value that the active regions set, with its action: highest precedence first, then the innermost region.
    pub fn wanted(
        &self,
        system: &System,
        actions: &[ReadyAction],
        active: &[Vec<u16>],
    ) -> (SettingValue, Option<usize>) {
        let wants = actions.iter().enumerate().filter_map(|(place, one)| {
            let (_, value) = OutsideSetting::of(&one.action).filter(|(setting, _)| setting == self)?;
            let depth = active[usize::from(one.contract)].iter().position(|active| *active == one.region)?;
            let precedence = system.contracts[usize::from(one.contract)].precedence;
            Some(((precedence, std::cmp::Reverse(one.contract), depth), (value, Some(place))))
        });
        let declared = (self.declared(system), None);
        wants.max_by_key(|(rank, _)| *rank).map_or(declared, |(_, wanted)| wanted)
    }

    /// All settings of actions, as the file has them.
    pub fn declared_of(system: &System, actions: &[ReadyAction]) -> BTreeMap<OutsideSetting, SettingValue> {
        let settings = actions.iter().filter_map(|one| OutsideSetting::of(&one.action));
        let declared = settings.map(|(setting, _)| {
            let value = setting.declared(system);
            (setting, value)
        });
        declared.collect()
    }
}

impl SettingTargets {
    pub fn apply(&self, system: &System, setting: &OutsideSetting, value: SettingValue) -> Result<(), String> {
        match (setting, value) {
            (OutsideSetting::Importance(program), SettingValue::Importance(importance)) => match &self.broker {
                Some(broker) => broker.set_importance(&system.program(*program).name, importance),
                None => Err("the run has no CPU broker".to_owned()),
            },
            (OutsideSetting::Behaviour(delegate, operation), SettingValue::Behaviour(behaviour)) => {
                let set = self.delegates.as_ref().is_some_and(|all| all.set_behaviour(*delegate, operation, behaviour));
                let object = &system.objects[usize::from(system.delegates[usize::from(*delegate)].object)].name;
                set.then_some(()).ok_or_else(|| format!("the program has no servant for object {object}"))
            }
            // A setting has values of its kind.
            _ => Ok(()),
        }
    }
}
