//! What policies from elsewhere have in common, another process's and a library's.

use std::fmt;

use hyoshi_control::policy::{Exceeded, Foreign};
use hyoshi_control::{Ask, Grant, GroupId, TaskId};
use hyoshi_model::Share;

use crate::external::Bulletin;

/// As [`Policy::manner`](hyoshi_control::Policy::manner): it gives no reasons of its own.
pub(crate) fn manner(foreign: &Foreign, group: GroupId) -> &str {
    if foreign.decides() { "" } else { foreign.fallback.manner(group) }
}

/// As [`Policy::blame`](hyoshi_control::Policy::blame): all who hold something, if it decides.
pub(crate) fn blame(
    foreign: &Foreign,
    asks: &[Ask],
    grants: &[Grant],
    index: usize,
    name: &mut dyn FnMut(TaskId, Share),
) {
    if !foreign.decides() {
        return foreign.fallback.blame(asks, grants, index, name);
    }
    for (other, grant) in grants.iter().enumerate().take(asks.len()) {
        if other != index && grant.reservation.is_some() {
            name(grant.task, grant.share());
        }
    }
}

/// In words, how it broke the laws, if it did.
pub(crate) fn exceeded(foreign: &Foreign, bulletin: &Bulletin, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match foreign.exceeded() {
        None => Ok(()),
        Some(Exceeded::Ask(task)) => {
            write!(f, "; cut, for it gave {} more than it asks for", bulletin.name_of(task))
        }
        Some(Exceeded::Limit(task)) => {
            write!(f, "; cut, for it gave more than there is, to {} at the latest", bulletin.name_of(task))
        }
    }
}
