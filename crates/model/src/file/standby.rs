//! `standby` of `[operation.NAME]`; `admit` and `withdraw` of `[[epoch]]`.

use std::collections::HashMap;

use super::epochs::DeclaredEpoch;
use super::expand::Operations;
use super::log::{AtPlace, Log};
use super::value::shortened;
use crate::ids::OperationId;
use crate::standby::Admissions;
use crate::system::Contents;

/// False, logged, if an operation is on standby, but no loop can admit it.
pub(super) fn check(log: &mut Log, contents: &Contents, operations: &Operations<'_>) -> bool {
    let mut sound = true;
    for declared in operations.declared.iter().zip(operations.first()) {
        let (declared, first) = declared;
        let Some(place) = declared.standby else { continue };
        if let Some(why) = contents.obstacle_to_standby(OperationId(*first)) {
            log.error(place, format!("`{}` cannot be on standby: {why}", shortened(declared.name.value))).help(
                "use a periodic operation with a range of rates, a loop such as FC-U on its processor, and followers \
                 there that depend on it alone",
            );
            sound = false;
        }
    }
    sound
}

/// What each epoch admits and withdraws.
pub(super) fn admissions(log: &mut Log, epochs: &[DeclaredEpoch<'_>], operations: &Operations<'_>) -> Vec<Admissions> {
    let mut all = Vec::with_capacity(epochs.len());
    for (index, epoch) in epochs.iter().enumerate() {
        let mut named = HashMap::new();
        let mut resolve = |names: &[AtPlace<&str>]| {
            let mut ids = Vec::new();
            for name in names {
                let Some(found) = operations.find(log, *name) else { continue };
                let shown = shortened(name.value);
                for id in found.into_iter().flatten().map(OperationId) {
                    if operations.of(id).standby.is_none() {
                        log.error(name.place, format!("`{shown}` is not on standby: it releases jobs from the start"))
                            .help("write `standby = true` in its table, or set \"operation.NAME.enabled\"");
                        break;
                    }
                    if index == 0 {
                        log.error(name.place, format!("the epoch at 0s cannot admit or withdraw `{shown}`"))
                            .help("admit it in a later epoch, or remove `standby` from its table");
                        break;
                    }
                    if let Some(first) = named.insert(id, name.place) {
                        log.error(name.place, format!("this epoch names `{shown}` twice"))
                            .also(first, "the first time")
                            .help("admit or withdraw an operation once in an epoch");
                        break;
                    }
                    ids.push(id);
                }
            }
            ids
        };
        let (withdraw, admit) = epoch.admissions();
        all.push(Admissions { withdraw: resolve(withdraw), admit: resolve(admit) });
    }
    all
}
