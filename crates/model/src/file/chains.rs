//! `[chain.NAME]`: end-to-end requirements along operations that hang together.

use super::expand::{Connections, Operations};
use super::limits;
use super::log::{At, Log};
use super::operation::refuse_twice;
use super::table::Table;
use super::value::Given;
use crate::ids::OperationId;
use crate::system::{Chain, Trigger};
use crate::time::Span;

pub(super) fn chains(
    log: &mut Log,
    top: &Table<'_>,
    operations: &Operations<'_>,
    connections: &Connections,
) -> Vec<Chain> {
    let mut chains = Vec::new();
    let mut steps = 0;
    for (name, table) in top.named(log, "chain") {
        let time = |log: &mut Log, key| table.given(log, key, Given::positive_time).map(|time| time.value);
        let (deadline, max_age) = (time(log, "deadline"), time(log, "max_age"));
        let max_reaction = time(log, "max_reaction");
        if ["deadline", "max_age", "max_reaction"].iter().all(|key| table.get(key).is_none()) && !table.misread {
            log.error(name.place, format!("chain `{}` requires nothing", name.value))
                .label("`deadline`, `max_age` or `max_reaction` is missing")
                .help("add what it requires, such as `deadline = \"150ms\"`");
        }
        let Some(written) = table.read(log, "path", Given::texts) else { continue };
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
        for (step, ends) in path.windows(2).enumerate() {
            if connections.connect(ends[0], ends[1]) {
                continue;
            }
            let (from, to) = (operations.name(ends[0]), operations.name(ends[1]));
            let declared = operations.of(ends[1]).name;
            log.error(written.value[step + 1].place, format!("`{to}` neither comes after `{from}` nor reads it"))
                .label("the chain breaks here")
                .also(declared.place, format!("`{}` is declared here", declared.value))
                .help(format!(
                    "add `after = {{ all = [\"{from}\"] }}` or `reads = [\"{from}\"]` to [operation.{}]",
                    declared.value
                ));
        }
        chains.push(Chain { name: name.value.to_string(), path, deadline, max_age, max_reaction });
    }
    chains
}

/// The operations of a path: a template is no single step of one, unless it has a single instance.
fn follow(log: &mut Log, operations: &Operations<'_>, names: &[At<&str>]) -> Option<Vec<OperationId>> {
    let ids = names.iter().map(|name| {
        let found = operations.find(log, *name)?;
        if found.len() > 1 {
            let (name, place) = (name.value, name.place);
            log.error(place, format!("`{name}` is a template of {} operations", found.len()))
                .label("which of them?")
                .help(format!("a path leads through single operations: name one, such as `{name}.1`"));
            return None;
        }
        Some(OperationId(found.start))
    });
    // All names are followed before the first failure counts: each wrong one is told.
    let ids: Vec<_> = ids.collect();
    ids.into_iter().collect()
}

/// For each operation, the tightest deadline of the chains that reach it by triggers from a periodic
/// first operation: only then is the deadline counted from the release that the job stems from.
pub(super) fn tightest(chains: &[Chain], triggers: &[Trigger]) -> Vec<Option<Span>> {
    let mut tightest: Vec<Option<Span>> = vec![None; triggers.len()];
    for chain in chains {
        let Some(deadline) = chain.deadline else { continue };
        if triggers[chain.path[0].index()] != Trigger::Periodic {
            continue;
        }
        for ends in chain.path.windows(2) {
            if !triggers[ends[1].index()].predecessors().contains(&ends[0]) {
                break;
            }
            let known = &mut tightest[ends[1].index()];
            *known = Some(known.map_or(deadline, |known| known.min(deadline)));
        }
    }
    tightest
}
