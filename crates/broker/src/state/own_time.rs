//! The broker's own CPU time: the cost of each task, and the tasks that do not fit.

use std::collections::BTreeMap;

use hyoshi_control::service_budget::{ServiceDemand, Unserved};
use hyoshi_control::{AccountId, ServiceBudget, TaskId};
use hyoshi_model::{Share, Span};

use super::BrokerState;

/// Tasks that are not served report this often: such a report costs as much as any other.
pub(super) const UNSERVED: Span = Span::from_secs(1);

impl BrokerState {
    /// The CPU time that the broker may use, of one CPU.
    pub fn set_own_time(&mut self, budget: Share) {
        self.service_budget = ServiceBudget::new(budget);
    }

    /// Divides it as the limits divide the cap: each entry has its share, in equal parts for its users with tasks;
    /// root and operators have the weight of a whole CPU. Called for the first task of a user and after the last.
    pub(super) fn share_own_time(&mut self, owner: u32) {
        if self.tasks.values().filter(|task| task.owner == owner).take(2).count() > 1 {
            return;
        }
        let mut users: BTreeMap<u32, Option<AccountId>> = BTreeMap::new();
        for task in self.tasks.values() {
            let account = users.entry(task.owner).or_default();
            *account = account.or(task.account);
        }
        let mut counts: BTreeMap<AccountId, u64> = BTreeMap::new();
        users.values().flatten().for_each(|account| *counts.entry(*account).or_default() += 1);
        let share = |account: Option<AccountId>| {
            let Some(account) = account else { return Share::CPU };
            Share::from_millionths(u64::from(self.rules.limits(account).share) / counts[&account])
        };
        let shares = users.into_iter().map(|(user, account)| (user, share(account))).collect();
        self.unsettled.extend(self.service_budget.set_shares(shares));
    }

    /// The broker's budget, and the cost of serving all tasks by its model.
    pub fn own_time(&self) -> (Share, Share) {
        (self.service_budget.budget(), self.service_budget.taken())
    }

    /// The part of a CPU that the broker used lately, by its thread's clock.
    pub(crate) fn measured(&mut self, share: Share) {
        let counted = self.tasks.iter().filter(|(_, task)| task.waiting_since.is_none());
        let demands: Vec<_> = counted.map(|(id, _)| (*id, self.demand(*id))).collect();
        self.unsettled.extend(self.service_budget.measured(share, demands));
    }

    /// The cost of a task at present: its threads and its period may have changed.
    fn demand(&self, id: TaskId) -> ServiceDemand {
        ServiceDemand { period: self.period(id), threads: self.platform.threads(id) }
    }

    /// Excludes tasks that exceed the broker's own time or whose users have too many threads, and admits them again
    /// afterwards. Returns whether any changed.
    pub(super) fn settle_served(&mut self) -> bool {
        let mut any = false;
        while let Some(id) = self.unsettled.pop_front() {
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            let reason = self
                .service_budget
                .unserved(id)
                .map(|reason| refused(&reason))
                .or_else(|| BrokerState::crowded(&self.rules, task));
            let decision = match reason {
                Some(_) => self.arbiter.keep_out(id),
                None => self.arbiter.let_in(id),
            };
            if reason.is_some() {
                task.reason = reason;
            }
            if let Ok(decision) = decision {
                self.backlog.add(decision);
                any = true;
            }
        }
        any
    }

    /// Whether the task is refused because the broker's own time does not suffice.
    pub(super) fn is_unserved(&self, id: TaskId) -> bool {
        self.service_budget.unserved(id).is_some()
    }
}

/// Adds the remedy.
pub(super) fn refused(reason: &Unserved) -> String {
    format!("{reason}; use a longer period, or start the broker with a larger --own-time SHARE")
}
