//! Strict: in the order of importance, until nothing is left.

use alloc::vec::Vec;

use hyoshi_model::Share;

use super::{Ask, Policy, PolicySpec};
use crate::task::{Grant, GroupId, Limit, TaskId};

/// Grants the most important task its request, then the next, until the limit is reached (the paper's section IV-C):
/// important tasks starve less important ones.
///
/// At the same importance the task with the lower number, which joined first, is first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Strict;

impl Policy for Strict {
    fn name(&self) -> &'static str {
        "strict"
    }

    fn manner(&self, _: GroupId) -> &str {
        "more important tasks first"
    }

    fn spec(&self) -> Option<PolicySpec> {
        Some(PolicySpec::Strict)
    }

    fn arbitrate(&mut self, asks: &[Ask], limit: Limit, grants: &mut Vec<Grant>) {
        let mut left = limit.share();
        for ask in asks {
            let grant = ask.grant(left, limit);
            left = left.saturating_sub(grant.share());
            grants.push(grant);
        }
    }

    fn grants_all_that_fits(&self) -> bool {
        true
    }

    fn blame(&self, _: &[Ask], grants: &[Grant], index: usize, name: &mut dyn FnMut(TaskId, Share)) {
        for grant in grants.iter().take(index).filter(|grant| grant.reservation.is_some()) {
            name(grant.task, grant.share());
        }
    }
}
