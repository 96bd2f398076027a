//! Settings outside of the dispatcher that hold while a region is active: those of programs at the CPU broker, the DSCP of links,
//! behaviours of delegates.

use std::sync::Arc;

use hyoshi_model::{DeclaredBehaviour, Dscp, ExternalAction, ProgramId, ReservationSetting, System};

use super::{BrokerAccess, DelegateAccess, ReadyAction, SettingRefusal};
use crate::common::CommonState;

/// What a region sets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OutsideSetting {
    /// A setting of a program at the CPU broker.
    Reservation(ProgramId, ReservationSetting),
    /// The DSCP of a link, by its position.
    Dscp(u16),
    /// The behaviour of a delegate for an operation.
    Behaviour(u16, Box<str>),
}

/// Its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SettingValue {
    /// In the unit of the setting.
    Reservation(u64),
    Dscp(Dscp),
    Behaviour(DeclaredBehaviour),
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
            ExternalAction::Reserve { program, setting, to } => {
                Some((OutsideSetting::Reservation(*program, *setting), SettingValue::Reservation(*to)))
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
    ) -> Result<(), SettingRefusal> {
        let system = &common.system;
        match setting {
            OutsideSetting::Reservation(program, setting) => {
                let program = system.program(*program);
                let to = match value {
                    Some(SettingValue::Reservation(to)) => to,
                    _ => setting.declared(program).unwrap_or(0),
                };
                let broker = self.broker.as_ref().ok_or_else(|| SettingRefusal::last("the run has no CPU broker"))?;
                broker.set(&program.name, *setting, to)
            }
            OutsideSetting::Dscp(link) => {
                let dscp = match value {
                    Some(SettingValue::Dscp(dscp)) => Some(dscp),
                    _ => None,
                };
                let to = common.other_end(&system.links[usize::from(*link)]);
                let access = to.and_then(|to| Some((to, common.link_access.get()?)));
                let nowhere = || {
                    SettingRefusal::last(
                        "this process runs all hosts, so there are no packets; start each host with `--host`",
                    )
                };
                let (to, access) = access.ok_or_else(nowhere)?;
                access.set_dscp(to, dscp)
            }
            OutsideSetting::Behaviour(delegate, operation) => {
                let behaviour = match value {
                    Some(SettingValue::Behaviour(behaviour)) => Some(behaviour),
                    _ => None,
                };
                let set = self.delegates.as_ref().is_some_and(|all| all.set_behaviour(*delegate, operation, behaviour));
                let refusal = || match system.delegates[usize::from(*delegate)].object() {
                    Some(object) => {
                        let object = &system.objects[usize::from(object)].name;
                        SettingRefusal::for_now(format!("the program has no servant for object {object}"))
                    }
                    None => SettingRefusal::for_now("the program has no proxies"),
                };
                set.then_some(()).ok_or_else(refusal)
            }
        }
    }
}
