//! Settings outside of the dispatcher that hold while a region is active: importance of programs, the DSCP of links,
//! behaviours of delegates.

use std::sync::Arc;

use hyoshi_model::{Dscp, ExternalAction, ProgramId, ServantBehaviour, System};

use super::{BrokerAccess, DelegateAccess, ReadyAction};
use crate::common::CommonState;

/// What a region sets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OutsideSetting {
    /// The importance of a program at the CPU broker.
    Importance(ProgramId),
    /// The DSCP of a link, by its position.
    Dscp(u16),
    /// The behaviour of a delegate for an operation.
    Behaviour(u16, Box<str>),
}

/// Its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SettingValue {
    Importance(u32),
    Dscp(Dscp),
    Behaviour(ServantBehaviour),
}

/// Where settings are applied, except for links.
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
            ExternalAction::MarkLink { link, dscp } => Some((OutsideSetting::Dscp(*link), SettingValue::Dscp(*dscp))),
            ExternalAction::Behave { delegate, operation, behaviour } => {
                let setting = OutsideSetting::Behaviour(*delegate, operation.clone());
                Some((setting, SettingValue::Behaviour(*behaviour)))
            }
            ExternalAction::Call { .. } | ExternalAction::Run { .. } => None,
        }
    }

    /// The value that the active regions set, with its action: highest precedence first, then the innermost region.
    /// `None`: that of the file.
    pub fn wanted(
        &self,
        system: &System,
        actions: &[ReadyAction],
        active: &[Vec<u16>],
    ) -> (Option<SettingValue>, Option<usize>) {
        let wants = actions.iter().enumerate().filter_map(|(place, one)| {
            let (_, value) = OutsideSetting::of(&one.action).filter(|(setting, _)| setting == self)?;
            let depth = active[usize::from(one.contract)].iter().position(|active| *active == one.region)?;
            let precedence = system.contracts[usize::from(one.contract)].precedence;
            Some(((precedence, std::cmp::Reverse(one.contract), depth), (Some(value), Some(place))))
        });
        wants.max_by_key(|(rank, _)| *rank).map_or((None, None), |(_, wanted)| wanted)
    }
}

impl SettingTargets {
    /// Applies a value of the setting's kind, or that of the file.
    pub fn apply(
        &self,
        common: &CommonState,
        setting: &OutsideSetting,
        value: Option<SettingValue>,
    ) -> Result<(), String> {
        let system = &common.system;
        match setting {
            OutsideSetting::Importance(program) => {
                let program = system.program(*program);
                let importance = match value {
                    Some(SettingValue::Importance(importance)) => importance,
                    _ => program.importance,
                };
                let broker = self.broker.as_ref().ok_or("the run has no CPU broker")?;
                broker.set_importance(&program.name, importance)
            }
            OutsideSetting::Dscp(link) => {
                let dscp = match value {
                    Some(SettingValue::Dscp(dscp)) => Some(dscp),
                    _ => None,
                };
                let to = common.other_end(&system.links[usize::from(*link)]);
                let access = to.and_then(|to| Some((to, common.link_access.get()?)));
                let (to, access) = access.ok_or("this process runs all hosts: there are no packets")?;
                access.set_dscp(to, dscp)
            }
            OutsideSetting::Behaviour(delegate, operation) => {
                let behaviour = match value {
                    Some(SettingValue::Behaviour(behaviour)) => Some(behaviour),
                    _ => None,
                };
                let set = self.delegates.as_ref().is_some_and(|all| all.set_behaviour(*delegate, operation, behaviour));
                let object = &system.objects[usize::from(system.delegates[usize::from(*delegate)].object)].name;
                set.then_some(()).ok_or_else(|| format!("the program has no servant for object {object}"))
            }
        }
    }
}
