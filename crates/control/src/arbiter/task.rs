//! The arbiter's data of one task.

use alloc::string::{String, ToString};

use hyoshi_model::{Instant, Reservation, Share};

use super::Refusal;
use crate::accounts::AccountId;
use crate::advocate::AdvocateChain;
use crate::policy::Ask;
use crate::task::{Confirmation, Grant, GroupId, Reason, Status, TaskId};

/// The data with which a task joins.
#[derive(Debug)]
pub struct Joining {
    /// Its name: 1 to 64 characters, none of them a control character.
    pub name: String,
    /// The request before its advocates have data, and the period of their requests.
    pub declared: Reservation,
    /// Its importance, for Fair and Strict; larger is more.
    pub importance: u32,
    /// Its weight, for Weighted; at least 1, larger is reduced less.
    pub weight: u32,
    /// Its group, if a policy divides the CPU.
    pub group: GroupId,
    /// The account that pays for it; `None` for the cap itself.
    pub account: Option<AccountId>,
    /// The least useful share: below it, the task gets nothing.
    pub least: Share,
    /// Its advocates.
    pub chain: AdvocateChain,
}

impl Joining {
    /// The longest name, in characters.
    pub const LONGEST_NAME: usize = 64;

    /// With importance 0, weight 1, in the first group, and any useful share.
    pub fn new(name: impl ToString, declared: Reservation, chain: AdvocateChain) -> Self {
        Joining {
            name: name.to_string(),
            declared,
            importance: 0,
            weight: 1,
            group: GroupId::default(),
            account: None,
            least: Share::ZERO,
            chain,
        }
    }

    pub(super) fn check(&self) -> Result<(), Refusal> {
        let length = self.name.chars().count();
        if length == 0 || length > Joining::LONGEST_NAME || self.name.chars().any(char::is_control) {
            return Err(Refusal::Name { length });
        }
        if self.weight == 0 { Err(Refusal::NoWeight) } else { Ok(()) }
    }
}

#[derive(Debug)]
pub(super) struct Task {
    pub joining: Joining,
    /// The request of its advocates.
    pub wanted: Reservation,
    /// The most that the scheduler accepts, after it refused something.
    pub ceiling: Option<Option<Reservation>>,
    /// Kept out ([`super::Arbiter::keep_out`]): it requests nothing.
    pub out: bool,
    pub look: Instant,
    pub status: Option<Status>,
    pub reports: u64,
    pub confirmed: Option<Confirmation>,
}

impl Task {
    pub fn new(joining: Joining) -> Self {
        let wanted = joining.declared;
        Task {
            joining,
            wanted,
            ceiling: None,
            out: false,
            look: Instant::NEVER,
            status: None,
            reports: 0,
            confirmed: None,
        }
    }

    /// Its request to the policy, within the scheduler's ceiling; `None`: nothing can be reserved for it.
    pub fn ask(&self, task: TaskId) -> Option<Ask> {
        let asked = match self.ceiling {
            _ if self.out => return None,
            None => self.wanted,
            Some(None) => return None,
            Some(Some(most)) if most.period() == self.wanted.period() => {
                self.wanted.with_budget(self.wanted.budget().min(most.budget()))
            }
            Some(Some(most)) => self.wanted.cut_to(most.share())?,
        };
        let Joining { importance, weight, group, least, .. } = self.joining;
        Some(Ask { task, importance, weight, group, asked, least })
    }

    /// The grant of a task for which nothing can be reserved.
    pub fn barred(&self, task: TaskId) -> Grant {
        Grant { task, asked: self.wanted, reservation: None, reason: Reason::Scheduler }
    }
}
