//! `replicate`: the other hosts to which an operation's output is copied.

use super::declared::{DeclaredOperation, DeclaredReplicas};
use super::expand::Operations;
use super::log::Log;
use super::names::Names;
use super::operation::refuse_twice;
use super::table::Table;
use super::value::{InputValue, shortened};
use crate::checked::System;
use crate::ids::HostId;
use crate::system::{FlushPoint, Host, Processor};

pub(super) fn read<'a>(log: &mut Log, table: &Table<'a>) -> Option<DeclaredReplicas<'a>> {
    let inner = table.inner(log, "replicate")?;
    let flush = inner.choice(log, "flush").map_or(0, |flush| flush.value);
    let flush = [FlushPoint::Deadline, FlushPoint::Completion][flush];
    let to = inner.read(log, "to", InputValue::texts)?;
    if to.value.is_empty() {
        log.error(to.place, "`to` names no host").help("name at least one, or remove `replicate`");
    }
    refuse_twice(log, &to.value);
    Some(DeclaredReplicas { place: inner.place, to: to.value, flush, hosts: Vec::new() })
}

/// Finds the hosts, and rejects useless replicas. The payloads of events must be known.
pub(super) fn resolve(log: &mut Log, hosts: &[Host], processors: &[Processor], declared: &mut [DeclaredOperation<'_>]) {
    let names = Names::new("host", hosts.iter().map(|host| host.name.as_str()));
    for operation in declared {
        let own = processors.get(operation.on.index()).map(|processor| processor.host);
        let (name, payload) = (operation.name.value, operation.payload);
        let Some(replicas) = &mut operation.replicate else { continue };
        if payload == 0 {
            log.error(replicas.place, format!("`{}` has no output to replicate", shortened(name)))
                .label("`payload` is missing")
                .help("add the size of its output, such as `payload = \"64B\"`");
        }
        for host in &replicas.to {
            let Some(id) = names.find(log, *host).map(HostId) else { continue };
            if own == Some(id) {
                log.error(host.place, format!("`{}` runs on host `{}` itself", shortened(name), host.value))
                    .help("remove it: operations of the same host read the latest value without a replica");
            }
            replicas.hosts.push(id);
        }
        replicas.hosts.sort_unstable();
        replicas.hosts.dedup();
    }
}

/// Warns about replicas that no operation reads.
pub(super) fn warn(log: &mut Log, system: &System, operations: &Operations<'_>) {
    for (id, operation) in system.operation_ids().zip(&system.operations) {
        let Some(replication) = &operation.replication else { continue };
        let declared = operations.of(id);
        let Some(replicas) = &declared.replicate else { continue };
        for host in &replication.to {
            let reads = |id| {
                let operation = system.operation(id);
                operation.reads.iter().any(|read| std::ptr::eq(operations.of(*read), declared))
                    && system.processor(operation.on).host == *host
            };
            // A template's instances share the warning.
            if system.operation_ids().any(reads) || operations.first()[operations.position(id)] != id.0 {
                continue;
            }
            let (name, host) = (declared.name.value, &system.hosts[host.index()].name);
            let written = replicas.to.iter().find(|written| written.value == host);
            let place = written.map_or(replicas.place, |written| written.place);
            log.warn(place, format!("no operation of host `{host}` reads the replica of `{}`", shortened(name)))
                .help(format!("add `reads = [\"{}\"]` to an operation there, or remove the host", shortened(name)));
        }
    }
}
