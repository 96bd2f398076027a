//! The broker's decisions, as one state machine.

mod explain;
mod refusal;
mod settle;
mod task;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use hyoshi_model::{Instant, Reservation, Share, Span};

use crate::accounts::Accounts;
use crate::advocate::{Advocate, AdvocateChain, Emission};
use crate::policy::{AnyPolicy, Ask, Policy};
use crate::task::{Confirmation, Grant, GroupId, Reason, Status, TaskId};

pub use explain::{AdvocateRequest, Explanation, Holder};
pub use refusal::Refusal;
pub use task::Joining;
use task::Task;

/// A reservation that has to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationChange {
    /// The task.
    pub task: TaskId,
    /// Its reservation before.
    pub from: Option<Reservation>,
    /// Its reservation from now on; `None`: nothing.
    pub to: Option<Reservation>,
}

/// The result of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision<'a> {
    /// To be carried out in this order: first the changes that make room, then those that need it.
    pub changes: &'a [ReservationChange],
    /// Output for the caller of the arbiter to write.
    pub emitted: &'a [Emission],
}

/// Gets the events of tasks and returns the reservations that change.
///
/// ```text
///    join, report, leave, set_... ──► chain of advocates ──► policy, within the cap ──► Decision
///                                          ▲                       │                      │ carried out
///                                          └─────── grant ─────────┘                      ▼
///                                                     ▲        confirmed ◄──── scheduler proxy
///                                                     └──────── refused ◄────────────┘
/// ```
///
/// It has no clock: events have their instants. When the scheduler refuses a reservation, the most that it accepts
/// becomes the task's ceiling, until a change makes room or the task is changed.
#[derive(Debug)]
pub struct Arbiter {
    policy: AnyPolicy,
    cap: Share,
    accounts: Accounts,
    tasks: BTreeMap<TaskId, Task>,
    /// The requests of all tasks for which the scheduler accepts anything, sorted as [`Policy::arbitrate`] requires.
    asks: Vec<Ask>,
    /// In the order of `asks`.
    grants: Vec<Grant>,
    /// The requests of advocates, before the scheduler's ceilings; in the order of `asks`.
    wanted: Vec<Reservation>,
    /// Sum of `asks`.
    total: Share,
    /// Tasks with a ceiling.
    ceilings: BTreeSet<TaskId>,
    checks: BTreeSet<(Instant, TaskId)>,
    // Buffers that are reused between decisions.
    settled: Vec<Grant>,
    changes: Vec<ReservationChange>,
    raises: Vec<ReservationChange>,
    emitted: Vec<Emission>,
}

impl Arbiter {
    /// The most tasks.
    pub const MOST_TASKS: usize = 4_096;

    /// Without tasks, under `policy`, which may reserve `cap` in total.
    pub fn new(policy: AnyPolicy, cap: Share) -> Self {
        Arbiter {
            policy,
            cap,
            accounts: Accounts::default(),
            tasks: BTreeMap::new(),
            asks: Vec::new(),
            grants: Vec::new(),
            wanted: Vec::new(),
            total: Share::ZERO,
            ceilings: BTreeSet::new(),
            checks: BTreeSet::new(),
            settled: Vec::new(),
            changes: Vec::new(),
            raises: Vec::new(),
            emitted: Vec::new(),
        }
    }

    /// Divides the cap among these accounts, before any task joins.
    pub fn set_accounts(&mut self, accounts: Accounts) {
        debug_assert!(self.tasks.is_empty());
        self.accounts = accounts;
    }

    /// The accounts.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// A task joins the broker and gets a grant, possibly of nothing.
    pub fn join(&mut self, task: TaskId, joining: Joining, now: Instant) -> Result<Decision<'_>, Refusal> {
        if self.tasks.contains_key(&task) {
            return Err(Refusal::Twice(task));
        }
        if self.tasks.len() == Arbiter::MOST_TASKS {
            return Err(Refusal::Full);
        }
        joining.check()?;
        self.begin();
        self.tasks.insert(task, Task::new(joining));
        self.advise(task, Status::overdue(now, Span::ZERO));
        Ok(self.settle())
    }

    /// A task leaves; its reservation is the first of the changes.
    pub fn leave(&mut self, task: TaskId) -> Result<Decision<'_>, Refusal> {
        let gone = self.tasks.remove(&task).ok_or(Refusal::Unknown(task))?;
        self.begin();
        self.checks.remove(&(gone.look, task));
        self.ceilings.remove(&task);
        self.forget(task, gone.joining.importance, gone.joining.account);
        Ok(self.settle())
    }

    /// A task's report, or a check of it ([`Arbiter::due`]).
    pub fn report(&mut self, task: TaskId, status: Status) -> Result<Decision<'_>, Refusal> {
        if !self.tasks.contains_key(&task) {
            return Err(Refusal::Unknown(task));
        }
        self.begin();
        let fitted = self.fits(task);
        if !self.advise(task, status) {
            return Ok(self.decision());
        }
        if fitted && self.fits(task) && self.ceilings.is_empty() && self.policy.grants_all_that_fits() {
            self.grant_alone(task);
            return Ok(self.decision());
        }
        Ok(self.settle())
    }

    /// The task with the check without a report that has been due for longest: measure its consumption since its last
    /// report and call [`Arbiter::report`] with [`Status::overdue`].
    pub fn due(&self, now: Instant) -> Option<TaskId> {
        self.checks.first().filter(|(at, _)| *at <= now).map(|(_, task)| *task)
    }

    /// Whether one of the task's advocates checks it between reports.
    pub fn has_checks(&self, task: TaskId) -> bool {
        self.tasks.get(&task).is_some_and(|entry| entry.look < Instant::NEVER)
    }

    /// When [`Arbiter::due`] will return a task next.
    pub fn next_check(&self) -> Instant {
        self.checks.first().map_or(Instant::NEVER, |(at, _)| *at)
    }

    /// Sets a task's importance, for policies that use it (fair, strict).
    pub fn set_importance(&mut self, task: TaskId, importance: u32) -> Result<Decision<'_>, Refusal> {
        self.change(task, |joining| joining.importance = importance)
    }

    /// Sets a task's weight: Weighted policies reduce heavier tasks less.
    pub fn set_weight(&mut self, task: TaskId, weight: u32) -> Result<Decision<'_>, Refusal> {
        if weight == 0 {
            return Err(Refusal::NoWeight);
        }
        self.change(task, |joining| joining.weight = weight)
    }

    /// Moves a task to another group.
    pub fn set_group(&mut self, task: TaskId, group: GroupId) -> Result<Decision<'_>, Refusal> {
        self.change(task, |joining| joining.group = group)
    }

    /// Sets a task's least useful share.
    pub fn set_least(&mut self, task: TaskId, least: Share) -> Result<Decision<'_>, Refusal> {
        self.change(task, |joining| joining.least = least)
    }

    /// Declares another reservation: another period, deadline, or initial budget.
    pub fn declare(&mut self, task: TaskId, declared: Reservation, now: Instant) -> Result<Decision<'_>, Refusal> {
        self.tasks.get_mut(&task).ok_or(Refusal::Unknown(task))?.joining.declared = declared;
        self.advise_again(task, now)
    }

    /// Declares another period, with advocates that have no history of the one before.
    pub fn retime(
        &mut self,
        task: TaskId,
        declared: Reservation,
        chain: AdvocateChain,
        now: Instant,
    ) -> Result<Decision<'_>, Refusal> {
        let joining = &mut self.tasks.get_mut(&task).ok_or(Refusal::Unknown(task))?.joining;
        (joining.declared, joining.chain) = (declared, chain);
        self.advise_again(task, now)
    }

    /// Replaces all of a task's advocates.
    pub fn set_chain(&mut self, task: TaskId, chain: AdvocateChain, now: Instant) -> Result<Decision<'_>, Refusal> {
        self.tasks.get_mut(&task).ok_or(Refusal::Unknown(task))?.joining.chain = chain;
        self.advise_again(task, now)
    }

    /// Adds an advocate to a task's chain, at `position` or at the end.
    pub fn add_advocate(
        &mut self,
        task: TaskId,
        advocate: Box<dyn Advocate>,
        position: Option<usize>,
        now: Instant,
    ) -> Result<Decision<'_>, Refusal> {
        self.tasks.get_mut(&task).ok_or(Refusal::Unknown(task))?.joining.chain.insert(advocate, position)?;
        self.advise_again(task, now)
    }

    /// Replaces the advocate at `position` in a task's chain; the others keep what they have learnt.
    pub fn replace_advocate(
        &mut self,
        task: TaskId,
        advocate: Box<dyn Advocate>,
        position: usize,
        now: Instant,
    ) -> Result<Decision<'_>, Refusal> {
        self.tasks.get_mut(&task).ok_or(Refusal::Unknown(task))?.joining.chain.replace(advocate, position)?;
        self.advise_again(task, now)
    }

    /// Removes the advocate at `position` from a task's chain.
    pub fn remove_advocate(&mut self, task: TaskId, position: usize, now: Instant) -> Result<Decision<'_>, Refusal> {
        self.tasks.get_mut(&task).ok_or(Refusal::Unknown(task))?.joining.chain.remove(position)?;
        self.advise_again(task, now)
    }

    /// Puts all tasks under another policy.
    pub fn set_policy(&mut self, policy: AnyPolicy) -> Decision<'_> {
        self.begin();
        self.policy = policy;
        self.settle()
    }

    /// Sets the limit of all reservations together.
    pub fn set_cap(&mut self, cap: Share) -> Decision<'_> {
        self.begin();
        self.cap = cap;
        self.settle()
    }

    /// Arbitrates again, after the policy's settings changed or after a change that the arbiter does not see made room:
    /// every ceiling of the scheduler is tried again.
    pub fn reconsider(&mut self, change: impl FnOnce(&mut dyn Policy)) -> Decision<'_> {
        self.begin();
        change(&mut *self.policy);
        self.lift_ceilings();
        self.settle()
    }

    /// The scheduler may accept more for a task than when it refused.
    pub fn retry(&mut self, task: TaskId) -> Result<Decision<'_>, Refusal> {
        self.change(task, |_| ())
    }

    /// Reserves nothing for a task, whatever its request and the room, until [`Arbiter::let_in`].
    pub fn keep_out(&mut self, task: TaskId) -> Result<Decision<'_>, Refusal> {
        let entry = self.tasks.get_mut(&task).ok_or(Refusal::Unknown(task))?;
        let was = core::mem::replace(&mut entry.out, true);
        let (importance, account) = (entry.joining.importance, entry.joining.account);
        self.begin();
        if was {
            return Ok(self.decision());
        }
        self.ceilings.remove(&task);
        self.forget(task, importance, account);
        Ok(self.settle())
    }

    /// Ends [`Arbiter::keep_out`].
    pub fn let_in(&mut self, task: TaskId) -> Result<Decision<'_>, Refusal> {
        let entry = self.tasks.get_mut(&task).ok_or(Refusal::Unknown(task))?;
        if !core::mem::replace(&mut entry.out, false) {
            self.begin();
            return Ok(self.decision());
        }
        entry.ceiling = None;
        self.change(task, |_| ())
    }

    /// Arbitrates again with the answer of an external policy. Ceilings stay: lifting them would change the request,
    /// and the next answer would lift them again.
    pub fn answered(&mut self) -> Decision<'_> {
        self.begin();
        self.arbitrate();
        self.apply()
    }

    /// The scheduler holds this.
    pub fn confirmed(&mut self, task: TaskId, confirmation: Confirmation) {
        if let Some(entry) = self.tasks.get_mut(&task) {
            entry.confirmed = Some(confirmation);
        }
    }

    /// The scheduler refused the grant; `most` is the largest amount that it would accept. Other tasks get the rest.
    pub fn refused(&mut self, task: TaskId, most: Option<Reservation>) -> Result<Decision<'_>, Refusal> {
        let entry = self.tasks.get_mut(&task).ok_or(Refusal::Unknown(task))?;
        entry.ceiling = Some(most);
        let (importance, account) = (entry.joining.importance, entry.joining.account);
        self.begin();
        self.ceilings.insert(task);
        match most {
            Some(_) => self.place(task, importance),
            None => self.forget(task, importance, account),
        }
        self.arbitrate();
        Ok(self.apply())
    }

    /// The scheduler refuses the pending or held reservation: it no longer confirms anything of the task, unless that
    /// differs. Returns whether it is the present grant.
    pub fn lost(&mut self, task: TaskId, what: Reservation) -> bool {
        let granted = self.held(task) == Some(what);
        if let Some(entry) = self.tasks.get_mut(&task) {
            entry.confirmed = entry.confirmed.filter(|confirmation| !granted && confirmation.held != Some(what));
        }
        granted
    }

    /// The scheduler refused the grant, and nothing else should be tried now: the task keeps the last confirmed
    /// reservation, which is returned, until a change makes room. The missing part is granted to no task. If the task
    /// keeps nothing, its present reservation must be released.
    pub fn keep(&mut self, task: TaskId) -> Option<Reservation> {
        let entry = self.tasks.get_mut(&task)?;
        let held = entry.confirmed.and_then(|confirmation| confirmation.held);
        entry.ceiling = Some(held);
        let (importance, account) = (entry.joining.importance, entry.joining.account);
        let asks = entry.ask(task).is_some();
        self.ceilings.insert(task);
        self.begin();
        if !asks {
            self.forget(task, importance, account);
            return None;
        }
        self.place(task, importance);
        if let (Ok(index), Some(entry)) = (self.position(task, importance), self.tasks.get_mut(&task)) {
            self.grants[index] = Grant { task, asked: entry.wanted, reservation: held, reason: Reason::Scheduler };
            entry.joining.chain.granted(&self.grants[index]);
        }
        held
    }

    /// A task's grant.
    pub fn grant(&self, task: TaskId) -> Option<Grant> {
        let entry = self.tasks.get(&task)?;
        Some(match self.position(task, entry.joining.importance) {
            Ok(index) => self.grants[index],
            Err(_) => entry.barred(task),
        })
    }

    /// The request of a task's advocates.
    pub fn asked(&self, task: TaskId) -> Option<Reservation> {
        self.tasks.get(&task).map(|entry| entry.wanted)
    }

    /// The reservation of a task, as far as the arbiter knows.
    pub fn held(&self, task: TaskId) -> Option<Reservation> {
        self.grant(task)?.reservation
    }

    /// All tasks, by number, and their data.
    pub fn tasks(&self) -> impl Iterator<Item = (TaskId, &Joining)> {
        self.tasks.iter().map(|(id, task)| (*id, &task.joining))
    }

    /// The data with which a task joined, as changed since.
    pub fn joining(&self, task: TaskId) -> Option<&Joining> {
        self.tasks.get(&task).map(|task| &task.joining)
    }

    /// The sum of all grants.
    pub fn reserved(&self) -> Share {
        self.grants.iter().map(Grant::share).sum()
    }

    /// The limit of all reservations together.
    pub fn cap(&self) -> Share {
        self.cap
    }

    /// The policy.
    pub fn policy(&self) -> &dyn Policy {
        &*self.policy
    }
}
