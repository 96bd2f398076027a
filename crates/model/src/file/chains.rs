//! `[chain.NAME]`: end-to-end requirements along operations that trigger or read each other.

use std::collections::HashMap;

use super::calls;
use super::expand::{OperationEdges, Operations};
use super::limits;
use super::log::{AtPlace, Log};
use super::operation::refuse_twice;
use super::table::Table;
use super::value::InputValue;
use crate::ids::OperationId;
use crate::system::{Chain, ChainCarrier, Trigger};

pub(super) fn chains(
    log: &mut Log,
    top: &Table<'_>,
    operations: &Operations<'_>,
    connections: &OperationEdges,
) -> Vec<Chain> {
    let mut chains = Vec::new();
    let (mut carriers, mut carried) = (Carriers::default(), Vec::new());
    let mut steps = 0;
    for (name, table) in top.named(log, "chain") {
        let time = |log: &mut Log, key| table.given(log, key, InputValue::positive_time).map(|time| time.value);
        let (deadline, max_age) = (time(log, "deadline"), time(log, "max_age"));
        let max_reaction = time(log, "max_reaction");
        if ["deadline", "max_age", "max_reaction"].iter().all(|key| table.get(key).is_none()) && !table.misread {
            log.error(name.place, format!("chain `{}` has no requirement", name.value))
                .label("`deadline`, `max_age` or `max_reaction` is missing")
                .help("add a requirement, such as `deadline = \"150ms\"`");
        }
        let Some(written) = table.read(log, "path", InputValue::texts) else { continue };
        refuse_twice(log, &written.value);
        if written.value.len() < 2 {
            log.error(written.place, "a chain's path has at least two operations")
                .help("the deadline of a single operation is its own `deadline`");
            continue;
        }
        steps += written.value.len();
        if steps > limits::STEPS {
            log.error(written.place, "too many steps of chains")
                .help(format!("all paths together have at most {}", limits::STEPS));
            break;
        }
        let Some(path) = follow(log, operations, &written.value) else { continue };
        for ends in path.windows(2) {
            let (ends, place) = ([ends[0].value, ends[1].value], ends[1].place);
            if connections.connect(ends[0], ends[1]) {
                continue;
            }
            let [from, to] = ends.map(|end| operations.name(operations.whole(end)));
            let declared = operations.of(operations.whole(ends[1])).name;
            log.error(place, format!("`{to}` is neither triggered by `{from}` nor reads it"))
                .label("the chain breaks here")
                .also(declared.place, format!("`{}` is declared here", declared.value))
                .help(format!(
                    "add `after = {{ all = [\"{from}\"] }}` or `reads = [\"{from}\"]` to [operation.{}]",
                    declared.value
                ));
        }
        let carrier = table.choice(log, "carried_by");
        let written = carrier.filter(|_| table.get("carried_by").is_some());
        if let Some(written) = written {
            carriers.check(log, operations, connections, (name, &path), written.map(carrier_of));
        }
        let carried_by = carrier.map_or(ChainCarrier::Event, |carrier| carrier_of(carrier.value));
        if carried_by == ChainCarrier::Thread {
            carried.push(path.clone());
        }
        let path = path.into_iter().map(|step| step.value).collect();
        chains.push(Chain { name: name.value.to_string(), path, deadline, max_age, max_reaction, carried_by });
    }
    check_copies(log, operations, connections, &carried);
    chains
}

/// Each copy before an operation on the path of a thread is on a path of that thread, too: otherwise a cancellation of the
/// thread would not end the copy, which could release the operation. `carried` are the paths of threads.
fn check_copies(
    log: &mut Log,
    operations: &Operations<'_>,
    connections: &OperationEdges,
    carried: &[Vec<AtPlace<OperationId>>],
) {
    let follows = |root: OperationId, copy: OperationId| {
        let mut of_root = carried.iter().filter(|path| path.first().is_some_and(|first| first.value == root));
        of_root.any(|path| path.iter().any(|step| step.value == copy))
    };
    for path in carried {
        let Some(root) = path.first().map(|first| first.value) else { continue };
        for step in path {
            let Trigger::First(copies) = &connections.triggers[step.value.index()] else { continue };
            if let Some(copy) = copies.iter().find(|copy| !follows(root, **copy)) {
                let (copy, name) = (operations.name(*copy), operations.name(step.value));
                log.error(step.place, format!("no thread carries the copy `{copy}` to `{name}`"))
                    .label("on the path of a thread")
                    .help(format!("write `carried_by = \"thread\"` in a chain through `{copy}`, too"));
            }
        }
    }
}

fn carrier_of(choice: usize) -> ChainCarrier {
    if choice == 0 { ChainCarrier::Event } else { ChainCarrier::Thread }
}

/// The carriers of hops between operations, as the chains so far name them.
#[derive(Default)]
struct Carriers<'a> {
    /// By hop: its carrier, and the chain that names it.
    hops: HashMap<(OperationId, OperationId), (ChainCarrier, AtPlace<&'a str>)>,
}

impl<'a> Carriers<'a> {
    /// Checks the `carried_by` that a chain names.
    fn check(
        &mut self,
        log: &mut Log,
        operations: &Operations<'_>,
        connections: &OperationEdges,
        (name, path): (AtPlace<&'a str>, &[AtPlace<OperationId>]),
        carrier: AtPlace<ChainCarrier>,
    ) {
        let is_thread = carrier.value == ChainCarrier::Thread;
        if is_thread && !may_be_thread(log, operations, connections, path) {
            return;
        }
        for ends in path.windows(2) {
            let [from, to] = [ends[0].value, ends[1].value];
            let (known, by) = *self.hops.entry((from, to)).or_insert((carrier.value, name));
            if known != carrier.value {
                let [from, to] = [from, to].map(|end| operations.name(end));
                log.error(carrier.place, format!("two carriers from `{from}` to `{to}`"))
                    .also(by.place, format!("`{}` names the other one", by.value))
                    .help("write the same `carried_by` in both chains, or leave it out of one");
                return;
            }
        }
    }
}

/// Whether a thread can follow the path. The first operation must have releases of its own. Each completion must be the
/// only trigger of the next operation, or one of its `first` copies. Otherwise an error is logged.
fn may_be_thread(
    log: &mut Log,
    operations: &Operations<'_>,
    connections: &OperationEdges,
    path: &[AtPlace<OperationId>],
) -> bool {
    let remedy = "remove `carried_by`: events then carry the chain";
    let refuse = |log: &mut Log, step: AtPlace<OperationId>, message: String, label: &str, help: String| {
        let declared = operations.of(operations.whole(step.value)).name;
        log.error(step.place, message)
            .label(label)
            .also(declared.place, format!("`{}` is declared here", declared.value))
            .help(format!("{help}, or {remedy}"));
        false
    };
    let triggers = |id: OperationId| connections.triggers[id.index()].predecessors();
    let name = |id: OperationId| operations.name(operations.whole(id));
    let is_call = |id: OperationId| {
        let whole = operations.whole(id);
        operations.before(whole).is_some() || operations.of(id).method.is_some()
    };
    for (position, step) in path.iter().enumerate() {
        let id = step.value;
        if connections.misread[id.index()] {
            return false;
        }
        if is_call(id) {
            let message = format!("a call at `{}` is on the path of a thread", name(id));
            return refuse(log, *step, message, "calls carry their caller", "end the path before the call".to_owned());
        }
        let Some(before) = position.checked_sub(1).map(|before| path[before].value) else {
            if let Some(first) = triggers(id).first() {
                let (message, help) = (
                    format!("`{}` is triggered: a thread begins with a release of its own", name(id)),
                    format!("begin the path with `{}`", name(*first)),
                );
                return refuse(log, *step, message, "not the begin of a thread", help);
            }
            continue;
        };
        let help = format!("let only `{}` trigger it", name(before));
        let is_copy = matches!(&connections.triggers[id.index()], Trigger::First(copies) if copies.contains(&before));
        if triggers(id) != [before] && !is_copy {
            let message = match triggers(id) {
                [] => format!("`{}` reads `{}`: only a trigger moves a thread", name(id), name(before)),
                several => format!("{} operations trigger `{}`", several.len(), name(id)),
            };
            return refuse(log, *step, message, "not the next segment of one thread", help);
        }
        if operations.of(id).timeout.is_some() {
            let message = format!("`{}` has a `timeout`, which releases it without the thread", name(id));
            return refuse(log, *step, message, "not the next segment of one thread", "remove the timeout".to_owned());
        }
    }
    true
}

/// The operations of a path. A template is not a single step unless it has one instance; an operation that calls is the
/// path through its call.
fn follow(log: &mut Log, operations: &Operations<'_>, names: &[AtPlace<&str>]) -> Option<Vec<AtPlace<OperationId>>> {
    let mut before = None;
    let ids = names.iter().map(|name| {
        let mut found: Vec<_> = operations.find(log, *name)?.into_iter().flatten().map(OperationId).collect();
        // Of a method's instances, the step before calls the one that is meant.
        if let Some(one) = before.and_then(|before| found.iter().find(|one| operations.calls(before, **one))) {
            found = vec![*one];
        }
        before = found.first().copied();
        if found.len() > 1 && operations.of(found[0]).method.is_some() {
            log.error(name.place, format!("{} operations call `{}`", found.len(), name.value))
                .label("ambiguous call")
                .help(format!("name one call, such as `{}`, or the caller before it", operations.name(found[0])));
            return None;
        }
        if found.len() > 1 {
            let (name, place) = (name.value, name.place);
            log.error(place, format!("`{name}` is a template of {} operations", found.len()))
                .label("ambiguous instance")
                .help(format!("name one instance, such as `{name}.1`"));
            return None;
        }
        Some(AtPlace::new(found[0], name.place))
    });
    // Resolve all names before returning the first failure: each wrong one is reported.
    let ids: Vec<_> = ids.collect();
    let ids: Vec<AtPlace<OperationId>> = ids.into_iter().collect::<Option<_>>()?;
    let mut path = Vec::new();
    for (step, id) in ids.iter().enumerate() {
        let mut way = Vec::new();
        let (next, last) = (ids.get(step + 1), step.checked_sub(1).map(|last| ids[last].value));
        if next.is_some_and(|next| operations.calls(id.value, next.value)) {
            // The path continues within the call.
            way.extend(operations.before(id.value));
        } else if last.is_some_and(|last| operations.calls(id.value, last)) {
            // It returns from the method.
            way.push(id.value);
        } else {
            calls::path_of(operations, id.value, &mut way);
        }
        path.extend(way.into_iter().map(|one| AtPlace::new(one, id.place)));
    }
    Some(path)
}
