//! Priorities and links of completions, by the operations that they trigger.

use std::collections::BTreeSet;

use hyoshi_model::{Contract, Dscp, ExternalAction, HostId, OperationId, System};
use zenoh::qos::Priority;

/// A TCP connection to each host, with a DSCP. Completions on different links do not delay each other in queues of
/// Zenoh and TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZenohLink {
    /// For critical targets.
    Critical,
    /// For all other targets.
    Other,
}

impl ZenohLink {
    /// All.
    pub const ALL: [ZenohLink; 2] = [ZenohLink::Critical, ZenohLink::Other];

    /// The link of a priority.
    pub fn of(priority: Priority) -> ZenohLink {
        match priority {
            Priority::RealTime | Priority::InteractiveHigh => ZenohLink::Critical,
            _ => ZenohLink::Other,
        }
    }

    /// The TOS byte of its packets: expedited forwarding (RFC 3246), or low-latency data (AF21, RFC 4594).
    pub fn tos(self) -> u8 {
        match self {
            ZenohLink::Critical => 0xb8,
            ZenohLink::Other => 0x48,
        }
    }
}

/// The priority of completions that are not critical while a contract sets their DSCP: by the class selector, which is
/// the upper half of the DSCP (RFC 2474). Both priorities of the link for critical targets remain theirs.
pub fn priority_of(dscp: Dscp) -> Priority {
    match dscp.number() {
        // Lower effort: LE (RFC 8622) and CS1.
        1 | 8 => Priority::Background,
        0..=7 => Priority::DataLow,
        9..=15 => Priority::Data,
        16..=23 => Priority::DataHigh,
        _ => Priority::InteractiveLow,
    }
}

/// The priorities that contracts choose on the links between two hosts.
pub(crate) fn chosen_priorities(system: &System, from: HostId, to: HostId) -> Vec<Priority> {
    let joins = |link: u16| {
        let (one, other) = system.links[usize::from(link)].between;
        [(one, other), (other, one)].contains(&(from, to))
    };
    let actions = system.contracts.iter().flat_map(Contract::external_actions);
    let chosen = actions.filter_map(|(_, action)| match action {
        ExternalAction::MarkLink { link, dscp } if joins(*link) => Some(priority_of(*dscp)),
        _ => None,
    });
    let mut chosen: Vec<Priority> = chosen.collect();
    chosen.sort_by_key(|priority| *priority as u8);
    chosen.dedup();
    chosen
}

/// An operation of another host that a host's operations trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteTarget {
    /// The operation.
    pub operation: OperationId,
    /// Its host.
    pub host: HostId,
    /// The priority of its completions.
    pub priority: Priority,
}

/// The hosts that send completions to this one.
pub(crate) fn senders(system: &System, to: HostId) -> Vec<HostId> {
    let others = (0..system.hosts.len() as u32).map(HostId).filter(|from| *from != to);
    others.filter(|from| remote_targets(system, *from).iter().any(|target| target.host == to)).collect()
}

/// The operations of other hosts that operations of `from` trigger, ordered by host. Critical targets have the two
/// highest priorities, others the next four; within each group, the more important the target, the higher its
/// priority.
pub fn remote_targets(system: &System, from: HostId) -> Vec<RemoteTarget> {
    let host = |id: OperationId| system.processor(system.operation(id).on).host;
    let is_target = |id: &OperationId| {
        let sources = system.operation(*id).trigger.predecessors();
        host(*id) != from && sources.iter().any(|source| host(*source) == from)
    };
    let targets: Vec<OperationId> = system.operation_ids().filter(is_target).collect();
    let ranks: Vec<(bool, u32)> =
        targets.iter().map(|id| system.operation(*id)).map(|one| (one.critical, one.importance)).collect();
    let target = |(id, priority): (&OperationId, Priority)| RemoteTarget { operation: *id, host: host(*id), priority };
    let mut targets: Vec<RemoteTarget> = targets.iter().zip(priorities(&ranks)).map(target).collect();
    targets.sort_by_key(|target| target.host);
    targets
}

/// The priority of each of these, by whether it is critical and its importance. See [`remote_targets`].
pub(crate) fn priorities(ranks: &[(bool, u32)]) -> Vec<Priority> {
    let importances = |critical: bool| -> BTreeSet<u32> {
        ranks.iter().filter(|rank| rank.0 == critical).map(|rank| rank.1).collect()
    };
    let (critical, other) = (importances(true), importances(false));
    let priority = |(is_critical, importance): &(bool, u32)| {
        let above = |group: &BTreeSet<u32>| group.iter().filter(|one| *one > importance).count();
        match is_critical {
            true => [Priority::RealTime, Priority::InteractiveHigh][above(&critical).min(1)],
            false => {
                let priorities = [Priority::InteractiveLow, Priority::DataHigh, Priority::Data, Priority::DataLow];
                priorities[above(&other).min(3)]
            }
        }
    };
    ranks.iter().map(priority).collect()
}
