//! Policies: how to divide the CPU if not all requests fit (the paper's section III-B).

mod external;
mod fair;
mod partition;
mod spec;
mod strict;
mod weighted;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use hyoshi_model::{Reservation, Share, Span};

use crate::task::{Grant, GroupId, Limit, Reason, TaskId};

pub use external::{ExternalPolicy, LawViolation};
pub use fair::Fair;
pub use partition::{GroupError, Partition};
pub use spec::{POLICIES, PartSpec, PolicyError, PolicySpec};
pub use strict::Strict;
pub use weighted::{HEAVIEST, Weighted};

/// The request of one task, and the data that a policy may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The task.
    pub task: TaskId,
    /// How important it is; larger is more.
    pub importance: u32,
    /// Its weight; at least 1, larger is reduced less.
    pub weight: u32,
    /// Its group, if a policy divides the CPU.
    pub group: GroupId,
    /// The request of its advocates.
    pub asked: Reservation,
    /// The least useful share: below it, the task gets nothing.
    pub least: Share,
}

impl Ask {
    /// As much of the request as fits `share`, with the reason if it is not all.
    pub fn grant(&self, share: Share, limit: Limit) -> Grant {
        if share >= self.asked.share() {
            return self.granted(Some(self.asked), Reason::Granted);
        }
        match self.asked.cut_to(share) {
            None => self.granted(None, Reason::NothingLeft(limit)),
            Some(_) if share < self.least.min(self.asked.share()) => {
                self.granted(None, Reason::BelowLeast(limit, share))
            }
            cut => self.granted(cut, Reason::Cut(limit)),
        }
    }

    /// A policy's grant, cut to the request and to the rest.
    pub(crate) fn lawful(&self, grant: Grant, left: Share, limit: Limit) -> Grant {
        let Some(reservation) = grant.reservation else {
            return self.granted(None, grant.reason);
        };
        let like = self.asked.with_budget(Span::ZERO);
        let foreign = reservation.with_budget(Span::ZERO) != like;
        let share = reservation.share();
        if !foreign && reservation.budget() <= self.asked.budget() && share <= left {
            return Grant { asked: self.asked, ..grant };
        }
        self.grant(share.min(left), limit)
    }

    /// The given reservation.
    pub fn granted(&self, reservation: Option<Reservation>, reason: Reason) -> Grant {
        Grant { task: self.task, asked: self.asked, reservation, reason }
    }
}

/// Decides on the requests of tasks within a limit.
///
/// Laws, tested for every policy of this crate: exactly one grant for each request, in their order; none above the
/// request; their shares add up to at most the limit; the same requests get the same grants.
pub trait Policy: fmt::Debug + Send {
    /// Its name in commands and files.
    fn name(&self) -> &'static str;

    /// Pushes one grant for each of `asks` to `grants`, in their order.
    ///
    /// `asks` are sorted: most important first, at the same importance by number of the task.
    fn arbitrate(&mut self, asks: &[Ask], limit: Limit, grants: &mut Vec<Grant>);

    /// The same for the tasks of one account, within the account's share: by importance, unless the policy divides by
    /// its own rule without groups.
    fn within_account(&mut self, asks: &[Ask], limit: Limit, grants: &mut Vec<Grant>) {
        Strict.arbitrate(asks, limit, grants);
    }

    /// A short description of its order of preference in this group, for `explain`: "more important tasks first".
    fn manner(&self, group: GroupId) -> &str {
        let _ = group;
        ""
    }

    /// Its name as the deciding policy, for `explain` and `show`; an external one adds its state.
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }

    /// Whether all tasks get their whole requests whenever these fit the limit together. Then most reports affect no
    /// other task, and the arbiter calls the policy only in contention.
    fn grants_all_that_fits(&self) -> bool {
        false
    }

    /// Calls `name` with each task that holds a part of what the one at `index` lacks, and how much it holds; only
    /// called for one that did not get everything.
    fn blame(&self, asks: &[Ask], grants: &[Grant], index: usize, name: &mut dyn FnMut(TaskId, Share)) {
        for (other, (_, grant)) in asks.iter().zip(grants).enumerate() {
            if other != index && grant.reservation.is_some() {
                name(grant.task, grant.share());
            }
        }
    }

    /// The number of groups: their numbers are below it.
    fn group_count(&self) -> u32 {
        0
    }

    /// The group of this name.
    fn group(&self, name: &str) -> Option<GroupId> {
        let _ = name;
        None
    }

    /// The name of a group.
    fn group_name(&self, group: GroupId) -> Option<&str> {
        let _ = group;
        None
    }

    /// Sets the part of the CPU of a group, or of a partition within; arbitrate again afterwards
    /// ([`Arbiter::reconsider`](crate::Arbiter::reconsider)).
    fn set_share(&mut self, name: &str, share: Share) -> Result<(), GroupError> {
        let _ = (name, share);
        Err(GroupError::NoGroups(self.name()))
    }

    /// The specification of the same policy; `None` if it is external (another process, a plug-in).
    fn spec(&self) -> Option<PolicySpec> {
        None
    }
}

/// A policy's description, for printing.
pub struct PolicyWords<'a>(pub &'a dyn Policy);

impl fmt::Display for PolicyWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.describe(f)
    }
}

/// A boxed policy, as the arbiter holds it.
pub type AnyPolicy = Box<dyn Policy>;
