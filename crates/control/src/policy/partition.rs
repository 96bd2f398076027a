//! Partition: a part of the CPU for each group, with its own policy.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use hyoshi_model::Share;

use super::{AnyPolicy, Ask, Policy};
use crate::task::{Grant, GroupId, Limit, Reason, TaskId};

/// Divides the CPU into parts, each with its own policy, which may be a partition again (the paper's section IV-C). No
/// group gets the unused part of another: this isolates them.
///
/// Made by [`PolicySpec::build`](super::PolicySpec::build), which numbers the groups. If the shares of groups add up to
/// more than the limit, each gets the limit in proportion to its share.
#[derive(Debug)]
pub struct Partition {
    pub(super) parts: Vec<PartitionPart>,
}

/// One part of a partition.
#[derive(Debug)]
pub(super) struct PartitionPart {
    name: String,
    share: Share,
    /// The numbers of the groups in it: one, or those of a partition within.
    groups: core::ops::Range<u32>,
    policy: AnyPolicy,
    // Buffers that are reused between decisions.
    positions: Vec<u32>,
    asks: Vec<Ask>,
    grants: Vec<Grant>,
}

impl PartitionPart {
    pub fn new(name: String, share: Share, groups: core::ops::Range<u32>, policy: AnyPolicy) -> Self {
        PartitionPart { name, share, groups, policy, positions: Vec::new(), asks: Vec::new(), grants: Vec::new() }
    }

    /// Whether it is one group, not a partition within.
    fn is_group(&self) -> bool {
        self.policy.group_count() == 0
    }
}

/// Why a group cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupError {
    /// The policy has no groups.
    NoGroups(&'static str),
    /// No group has this name.
    Unknown(String),
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupError::NoGroups(policy) => {
                write!(f, "the policy is {policy}, which has no groups: set a partition first")
            }
            GroupError::Unknown(name) => write!(f, "the policy has no group `{}`", name.escape_debug()),
        }
    }
}

impl core::error::Error for GroupError {}

impl Partition {
    /// The limit of each part.
    fn limit_of(&self, part: &PartitionPart, limit: Share) -> Share {
        let together: Share = self.parts.iter().map(|part| part.share).sum();
        if together <= limit {
            return part.share;
        }
        limit.scaled(part.share.as_millionths(), together.as_millionths())
    }

    fn part_of(&self, group: GroupId) -> Option<&PartitionPart> {
        self.parts.iter().find(|part| part.groups.contains(&group.0))
    }
}

impl Policy for Partition {
    fn name(&self) -> &'static str {
        "partition"
    }

    fn manner(&self, group: GroupId) -> &str {
        self.part_of(group).map_or("a part of the CPU for each group", |part| part.policy.manner(group))
    }

    fn arbitrate(&mut self, asks: &[Ask], limit: Limit, grants: &mut Vec<Grant>) {
        let first = grants.len();
        grants.extend(asks.iter().map(|ask| ask.granted(None, Reason::NoGroup(ask.group))));
        for index in 0..self.parts.len() {
            let share = self.limit_of(&self.parts[index], limit.share());
            let part = &mut self.parts[index];
            part.positions.clear();
            part.asks.clear();
            part.grants.clear();
            for (place, ask) in asks.iter().enumerate() {
                if part.groups.contains(&ask.group.0) {
                    part.positions.push(place as u32);
                    part.asks.push(*ask);
                }
            }
            let limit = Limit::Group(GroupId(part.groups.start), share);
            part.policy.arbitrate(&part.asks, limit, &mut part.grants);
            for (place, grant) in part.positions.iter().zip(&part.grants) {
                grants[first + *place as usize] = *grant;
            }
        }
    }

    fn blame(&self, asks: &[Ask], grants: &[Grant], index: usize, name: &mut dyn FnMut(TaskId, Share)) {
        let Some(asker) = asks.get(index) else { return };
        let Some(part) = self.part_of(asker.group) else { return };
        let within = asks.iter().zip(grants).filter(|(ask, _)| part.groups.contains(&ask.group.0));
        let (asks, grants): (Vec<Ask>, Vec<Grant>) = within.map(|(ask, grant)| (*ask, *grant)).unzip();
        if let Some(index) = asks.iter().position(|ask| ask.task == asker.task) {
            part.policy.blame(&asks, &grants, index, name);
        }
    }

    fn group_count(&self) -> u32 {
        self.parts.last().map_or(0, |part| part.groups.end)
    }

    fn group(&self, name: &str) -> Option<GroupId> {
        self.parts.iter().find_map(|part| match part.is_group() && part.name == name {
            true => Some(GroupId(part.groups.start)),
            false => part.policy.group(name),
        })
    }

    fn group_name(&self, group: GroupId) -> Option<&str> {
        let part = self.part_of(group)?;
        if part.is_group() { Some(&part.name) } else { part.policy.group_name(group) }
    }

    fn set_share(&mut self, name: &str, share: Share) -> Result<(), GroupError> {
        for part in &mut self.parts {
            if part.name == name {
                part.share = share;
                return Ok(());
            }
            if part.policy.set_share(name, share).is_ok() {
                return Ok(());
            }
        }
        Err(GroupError::Unknown(name.into()))
    }

    fn spec(&self) -> Option<super::PolicySpec> {
        let parts = self.parts.iter().map(|part| {
            Some(super::PartSpec { name: part.name.clone(), share: part.share, policy: part.policy.spec()? })
        });
        Some(super::PolicySpec::Partition(parts.collect::<Option<_>>()?))
    }
}
