//! Contracts with equal precedence form one layer of settings: only one of them sets a setting.

use std::collections::HashMap;

use crate::contract::{Contract, ContractAction, ExternalAction};
use crate::file::log::{Log, Place};
use crate::file::value::shortened;
use crate::system::Contents;

/// False, logged, if two contracts with equal precedence set the same. `places` are those of the contracts' names.
pub(super) fn have_one_writer(log: &mut Log, contents: &Contents, contracts: &[Contract], places: &[Place]) -> bool {
    let mut writers: HashMap<(u32, String), usize> = HashMap::new();
    let mut sound = true;
    for (place, contract) in contracts.iter().enumerate() {
        for action in contract.regions.iter().flat_map(|region| &region.actions) {
            let Some(address) = address(contents, action) else { continue };
            let first = *writers.entry((contract.precedence, address.clone())).or_insert(place);
            if first == place {
                continue;
            }
            log.error(places[place], format!("two contracts with precedence {} set `{address}`", contract.precedence))
                .also(places[first], format!("`{}` sets it, too", shortened(&contracts[first].name)))
                .help("write a different `precedence` in one of them: the higher one restricts the other");
            sound = false;
            break;
        }
    }
    sound
}

/// The setting that an action changes while its region is active, as in files.
fn address(contents: &Contents, action: &ContractAction) -> Option<String> {
    let of = |operation, key| Some(format!("operation.{}.{key}", contents.operation(operation).name));
    match action {
        ContractAction::LimitPeriod { operation, .. } => of(*operation, "rate"),
        ContractAction::LimitLegs { operation, .. } => of(*operation, "repeat.legs"),
        ContractAction::LimitLevel { operation, .. } => of(*operation, "level"),
        ContractAction::Enable { operation } | ContractAction::Disable { operation } => of(*operation, "enabled"),
        ContractAction::Set { setting, .. } => Some(setting.address(contents)),
        ContractAction::External(ExternalAction::Call { .. } | ExternalAction::Run { .. }) => None,
        ContractAction::External(action) => {
            action.text(contents).split_once(" = ").map(|(address, _)| address.to_owned())
        }
        ContractAction::Admission { .. } | ContractAction::Report { .. } => None,
    }
}
