//! Checks of the dynamic graph: copies of which the first releases an operation, and hops that a body chooses.

use std::collections::BTreeMap;

use super::declared::{AfterKind, CallPhase};
use super::expand::Operations;
use super::limits;
use super::log::{Log, Place};
use crate::ids::OperationId;
use crate::system::{Contents, Trigger};

/// False, logged, if some operation's `first` names operations that are no copies, or if hops cannot be chosen.
pub(super) fn check(log: &mut Log, contents: &Contents, operations: &Operations<'_>) -> bool {
    copies(log, contents, operations) & choices(log, contents, operations)
}

/// The place of `named` in the list of the operation `to`.
fn place_in(operations: &Operations<'_>, to: OperationId, named: OperationId) -> Place {
    let Some(after) = &operations.of(to).after else { return operations.of(to).name.place };
    let (declared, instance) = (operations.of(named).name.value, operations.name(named));
    let names = || after.names.value.iter();
    let found = names().find(|name| name.value == instance).or_else(|| names().find(|name| name.value == declared));
    found.map_or(after.names.place, |name| name.place)
}

fn copies(log: &mut Log, contents: &Contents, operations: &Operations<'_>) -> bool {
    let Some((to, other)) = contents.not_a_copy() else { return true };
    let first = contents.operation(to).trigger.predecessors()[0];
    let name = |id: OperationId| operations.name(id);
    let place = place_in(operations, to, other);
    if contents.numbered_by_root(other) {
        let root = |id: OperationId| contents.operation(id).roots.first().map_or(String::new(), |root| name(*root));
        log.error(place, format!("`{}` and `{}` are not copies: they have different roots", name(first), name(other)))
            .label(format!("follows `{}`, the other one `{}`", root(other), root(first)))
            .help("let one operation trigger all copies, or use `any`");
    } else {
        log.error(place, format!("`{}` is not a copy: it counts its jobs independently of its root", name(other)))
            .label("a merge, a join of several roots or a timeout leads to it")
            .help("use `any`, or lead to each copy by `all`, `first`, or `any` of one operation, without `timeout`");
    }
    false
}

fn choices(log: &mut Log, contents: &Contents, operations: &Operations<'_>) -> bool {
    let (mut counts, mut sound) = (BTreeMap::<OperationId, usize>::new(), true);
    for (to, operation) in (0..).map(OperationId).zip(&contents.operations) {
        let Trigger::Chosen(chosen) = &operation.trigger else { continue };
        debug_assert!(operations.of(to).after.as_ref().is_none_or(|one| matches!(one.kind, AfterKind::Chosen(_))));
        for from in &chosen.predecessors {
            let name = operations.name(*from);
            let count = counts.entry(*from).or_default();
            *count += 1;
            if *count == limits::CHOSEN + 1 {
                log.error(place_in(operations, to, *from), format!("too many operations are chosen by `{name}`"))
                    .help(format!("use at most {}; insert operations between them", limits::CHOSEN));
                sound = false;
            }
            if !matches!(operations.of(*from).part, CallPhase::Whole) {
                log.error(place_in(operations, to, *from), format!("`{name}` cannot choose a hop, because it calls"))
                    .help("let it trigger an operation with `all`, and let that one choose");
                sound = false;
            }
        }
    }
    sound
}
