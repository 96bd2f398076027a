//! From requests to changes.

use core::cmp::Reverse;

use hyoshi_model::{Instant, Reservation, Share, Span};

use super::{Arbiter, Decision, Joining, Refusal, ReservationChange};
use crate::accounts::AccountId;
use crate::policy::Ask;
use crate::task::{Grant, Limit, Reason, Status, TaskId};

impl Arbiter {
    pub(super) fn begin(&mut self) {
        self.changes.clear();
        self.raises.clear();
        self.emitted.clear();
    }

    pub(super) fn decision(&self) -> Decision<'_> {
        Decision { changes: &self.changes, emitted: &self.emitted }
    }

    /// The position of a task of this importance among those with requests.
    pub(super) fn position(&self, task: TaskId, importance: u32) -> Result<usize, usize> {
        place_of(&self.asks, task, importance)
    }

    /// Runs a task's advocates; returns whether the request differs from before.
    pub(super) fn advise(&mut self, task: TaskId, mut status: Status) -> bool {
        let Some(entry) = self.tasks.get_mut(&task) else { return false };
        let importance = entry.joining.importance;
        let place = place_of(&self.asks, task, importance);
        status.held = place.ok().and_then(|place| self.grants[place].reservation);
        let emitted = &mut self.emitted;
        let wanted = entry.joining.chain.advise(&status, entry.joining.declared, |emission| emitted.push(emission));
        let look = entry.joining.chain.next_check().max(status.at.saturating_add(Reservation::SHORTEST));
        if look != entry.look {
            self.checks.remove(&(entry.look, task));
            if look < Instant::NEVER {
                self.checks.insert((look, task));
            }
            entry.look = look;
        }
        if status.cycles > 0 {
            entry.reports += 1;
            entry.status = Some(status);
        }
        let changed = core::mem::replace(&mut entry.wanted, wanted) != wanted;
        if !changed && (entry.out || entry.ceiling == Some(None) || place.is_ok()) {
            return false;
        }
        self.place(task, importance);
        true
    }

    /// After a change of a task: runs its advocates without a report.
    pub(super) fn advise_again(&mut self, task: TaskId, now: Instant) -> Result<Decision<'_>, Refusal> {
        self.begin();
        self.lift_ceiling(task);
        self.advise(task, Status::overdue(now, Span::ZERO));
        Ok(self.settle())
    }

    /// Changes the data of a task that the policy uses.
    pub(super) fn change(&mut self, task: TaskId, change: impl FnOnce(&mut Joining)) -> Result<Decision<'_>, Refusal> {
        let entry = self.tasks.get_mut(&task).ok_or(Refusal::Unknown(task))?;
        let importance = entry.joining.importance;
        change(&mut entry.joining);
        self.begin();
        self.place(task, importance);
        self.lift_ceiling(task);
        Ok(self.settle())
    }

    /// Moves a task's request to its position; `importance` determined the position before.
    pub(super) fn place(&mut self, task: TaskId, importance: u32) {
        let Some(entry) = self.tasks.get(&task) else { return };
        let Some(ask) = entry.ask(task) else { return };
        let (wanted, now, account) = (entry.wanted, entry.joining.importance, entry.joining.account);
        let found = self.position(task, importance);
        let before = found.map_or(Share::ZERO, |index| self.asks[index].asked.share());
        self.count(account, before, ask.asked.share());
        if let Ok(index) = found
            && now == importance
        {
            self.asks[index] = ask;
            self.wanted[index] = wanted;
            return;
        }
        let grant = match found {
            Ok(index) => {
                self.asks.remove(index);
                self.wanted.remove(index);
                self.grants.remove(index)
            }
            Err(_) => Grant { task, asked: wanted, reservation: None, reason: Reason::Unanswered },
        };
        let index = match self.position(task, now) {
            Ok(index) | Err(index) => index,
        };
        self.asks.insert(index, ask);
        self.wanted.insert(index, wanted);
        self.grants.insert(index, grant);
    }

    /// A task of the account requests `now` instead of `before`.
    fn count(&mut self, account: Option<AccountId>, before: Share, now: Share) {
        self.total = self.total.saturating_add(now).saturating_sub(before);
        self.accounts.count(account, before, now);
    }

    /// A task no longer has a request; its reservation is withdrawn.
    pub(super) fn forget(&mut self, task: TaskId, importance: u32, account: Option<AccountId>) {
        let Ok(index) = self.position(task, importance) else { return };
        let ask = self.asks.remove(index);
        self.count(account, ask.asked.share(), Share::ZERO);
        self.wanted.remove(index);
        let from = self.grants.remove(index).reservation;
        if from.is_some() {
            self.changes.push(ReservationChange { task, from, to: None });
        }
        if let Some(entry) = self.tasks.get_mut(&task) {
            let grant = entry.barred(task);
            entry.joining.chain.granted(&grant);
        }
    }

    /// If everything fits before and after, the request of one task does not affect any other.
    pub(super) fn grant_alone(&mut self, task: TaskId) {
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        let Ok(index) = place_of(&self.asks, task, entry.joining.importance) else { return };
        let asked = self.asks[index].asked;
        let grant = Grant { task, asked, reservation: Some(asked), reason: Reason::Granted };
        let from = core::mem::replace(&mut self.grants[index], grant).reservation;
        if from != grant.reservation {
            self.changes.push(ReservationChange { task, from, to: grant.reservation });
        }
        entry.joining.chain.granted(&grant);
    }

    /// Lets the policy decide; if that makes room, tasks that the scheduler refused may try again.
    pub(super) fn settle(&mut self) -> Decision<'_> {
        self.arbitrate();
        let less = |(now, before): (&Grant, &Grant)| now.share() < before.share();
        if !self.ceilings.is_empty() && (!self.changes.is_empty() || self.settled.iter().zip(&self.grants).any(less)) {
            self.lift_ceilings();
            self.arbitrate();
        }
        self.apply()
    }

    fn lift_ceiling(&mut self, task: TaskId) {
        if self.ceilings.remove(&task)
            && let Some(entry) = self.tasks.get_mut(&task)
        {
            entry.ceiling = None;
            let importance = entry.joining.importance;
            self.place(task, importance);
        }
    }

    pub(super) fn lift_ceilings(&mut self) {
        while let Some(task) = self.ceilings.first().copied() {
            self.lift_ceiling(task);
        }
    }

    /// Fills `settled` with the policy's grants, within the accounts' shares and the cap.
    pub(super) fn arbitrate(&mut self) {
        let Arbiter { policy, accounts, asks, settled, tasks, cap, .. } = self;
        let of = |task| tasks.get(&task)?.joining.account;
        accounts.arbitrate(&mut **policy, asks, of, Limit::Cap(*cap), settled);
    }

    /// Whether all tasks can have their requests, and those of this task's account.
    pub(super) fn fits(&self, task: TaskId) -> bool {
        let account = self.tasks.get(&task).and_then(|entry| entry.joining.account);
        self.total <= self.cap && self.accounts.fits(account, self.cap)
    }

    /// Makes the decided grants the present ones, and passes them to the advocates.
    pub(super) fn apply(&mut self) -> Decision<'_> {
        for index in 0..self.settled.len() {
            let mut grant = self.settled[index];
            if self.asks[index].asked != self.wanted[index] {
                grant.asked = self.wanted[index];
                if grant.reason == Reason::Granted {
                    grant.reason = Reason::Scheduler;
                }
            }
            let before = core::mem::replace(&mut self.grants[index], grant);
            if grant == before {
                continue;
            }
            if let Some(entry) = self.tasks.get_mut(&grant.task) {
                entry.joining.chain.granted(&grant);
            }
            if grant.reservation != before.reservation {
                let change = ReservationChange { task: grant.task, from: before.reservation, to: grant.reservation };
                if grant.share() > before.share() { self.raises.push(change) } else { self.changes.push(change) }
            }
        }
        self.changes.append(&mut self.raises);
        self.decision()
    }
}

fn place_of(asks: &[Ask], task: TaskId, importance: u32) -> Result<usize, usize> {
    asks.binary_search_by_key(&(Reverse(importance), task), |ask| (Reverse(ask.importance), ask.task))
}
