//! Tasks survive their broker: each one is stored, and the next broker restores those with live processes.

use std::path::Path;

use hyoshi_control::{GroupId, Status, TaskId};
use hyoshi_model::{Instant, Share, Span};
use hyoshi_os::cgroup::Group;
use hyoshi_os::process::Process;

use super::groups::MOST_GROUPS;
use super::{BrokerState, TaskEntry};
use crate::access::Caller;
use crate::component;
use crate::request_error::RequestError;
use crate::task_store::{MOST_PROCESSES, StoredTask, TaskStore};

/// How often a task is stored.
const NOTE: Span = Span::from_secs(1);

impl BrokerState {
    /// Stores tasks from now on; [`BrokerState::rejoin`] restores the stored ones.
    pub fn store_tasks_in(&mut self, task_store: TaskStore) {
        self.task_store = Some(task_store);
    }

    /// The same, but [`BrokerState::rejoin`] deletes the stored tasks.
    pub fn start_new_store(&mut self, task_store: TaskStore) {
        (self.task_store, self.starts_new) = (Some(task_store), true);
    }

    /// Restores stored tasks with live processes, under their numbers.
    pub fn rejoin(&mut self, now: Instant) {
        let Some(task_store) = &mut self.task_store else { return };
        self.last = self.last.max(task_store.last());
        if std::mem::take(&mut self.starts_new) {
            let done = task_store.forget();
            return self.stored(done);
        }
        let stored: Vec<StoredTask> = task_store.tasks().cloned().collect();
        let (mut here, mut ended) = (Vec::new(), 0);
        for task in stored {
            match self.rejoin_one(&task, now) {
                Ok(true) => here.push(task.name),
                Ok(false) => ended += 1,
                Err(error) => self.notice(format!("cannot restore task {}: {error}", task.name)),
            }
            if !self.tasks.contains_key(&TaskId(task.id)) {
                self.forget_stored(TaskId(task.id));
            }
        }
        if !here.is_empty() {
            self.notice(format!("restored tasks of the previous broker: {}", some(&here)));
        }
        if ended > 0 {
            self.notice(format!("tasks of the previous broker that have ended: {ended}"));
        }
    }

    /// False if none of its processes lives.
    fn rejoin_one(&mut self, stored: &StoredTask, now: Instant) -> Result<bool, RequestError> {
        let id = TaskId(stored.id);
        let living = stored.identities().filter_map(|who| Process::open_same(who).ok());
        let processes: Vec<Process> = living.filter(|process| self.may_be_found(stored, process)).collect();
        if processes.is_empty() {
            return Ok(false);
        }
        if self.names.contains_key(&stored.name) {
            return Err(RequestError::refused(
                "another task has its name",
                "check the file `tasks` in the state directory",
            ));
        }
        // A group that the policy does not have becomes none, as after a change of the policy.
        let group = self.group(&stored.group).unwrap_or(GroupId(u32::MAX));
        let mut settings = stored.chain.clone();
        let chain = match self.chain(&settings, id, &stored.name) {
            Ok(chain) => chain,
            Err(error) => {
                self.notice(format!(
                    "restored task {} with max-decay, because its advocates are not available: {error}",
                    stored.name
                ));
                settings = component::default_chain();
                self.chain(&settings, id, &stored.name)?
            }
        };
        let account = (!stored.directed).then(|| self.rules.account_of_stored(stored.owner, &stored.account));
        let Some(entry) = stored.joining(group) else { return Ok(false) };
        let hard = stored.hard && self.harden_again(id, &stored.name);
        let task = TaskEntry {
            name: stored.name.clone(),
            owner: stored.owner,
            importance: stored.importance,
            weight: stored.weight,
            group: stored.group.clone(),
            advocates: settings,
            by_operator: stored.directed,
            account,
            hard,
            hard_before: stored.hard && !hard,
            own: stored.own,
            consumed: stored.consumed(),
            any_user: stored.anybody,
            ..TaskEntry::new(now)
        };
        self.insert_task(id, task, hyoshi_control::Joining { chain, account, ..entry }, now)?;
        let added = processes.into_iter().filter_map(|process| self.platform.add(id, process).ok()).count();
        if added == 0 {
            self.remove(id, now);
            return Ok(false);
        }
        self.start(id, now);
        for folder in stored.control_groups.iter().take(MOST_GROUPS) {
            self.platform.add_group(id, Group::again(Path::new(folder)), &[], &mut |_| false);
        }
        self.gather(id, now);
        if stored.auto {
            self.find_period(id, true);
        }
        // Its advocates start with the consumption of the last cycle.
        if stored.consumed > 0 {
            self.report(id, Status::of_cycle(now, stored.consumed()));
        }
        let _: Result<(), RequestError> = self.audited(&Caller::Broker, "rejoin", Some(&stored.name), "", Ok(()));
        Ok(true)
    }

    /// Whether a process still belongs to the task: an ordinary user's task has only that user's processes, whatever
    /// the file lists.
    fn may_be_found(&self, stored: &StoredTask, process: &Process) -> bool {
        let trusted = stored.directed || stored.anybody || stored.owner == 0 || stored.owner == self.access.broker;
        trusted || process.owner().is_some_and(|owner| owner.is_only(stored.owner))
    }

    /// False if its CPU time cannot be capped now; the stored task stays hard.
    fn harden_again(&mut self, id: TaskId, name: &str) -> bool {
        let done = self.harden(id, true);
        if let Err(error) = &done {
            self.notice(format!("restored hard task {name} as a soft task: {error}"));
        }
        done.is_ok()
    }

    /// Stores a task that has processes.
    pub(super) fn store(&mut self, id: TaskId) {
        let (Some(task), Some(joining), Some(task_store)) =
            (self.tasks.get_mut(&id), self.arbiter.joining(id), &mut self.task_store)
        else {
            return;
        };
        if task.waiting_since.is_some() {
            return;
        }
        task.stored = task.last;
        let declared = joining.declared;
        let members = self.platform.members(id);
        let stored = StoredTask {
            id: id.0,
            name: task.name.clone(),
            owner: task.owner,
            importance: task.importance,
            weight: task.weight,
            group: task.group.clone(),
            budget: declared.budget().as_nanos(),
            period: declared.period().as_nanos(),
            deadline: declared.deadline().as_nanos(),
            least: joining.least.as_millionths(),
            control_groups: self.platform.groups(id).iter().map(|folder| folder.display().to_string()).collect(),
            anybody: task.any_user,
            auto: self.detectors.contains_key(&id),
            directed: task.by_operator,
            account: task.account.map_or(String::new(), |account| self.rules.limits(account).scope.to_string()),
            hard: task.hard || task.hard_before,
            own: task.own,
            chain: task.advocates.clone(),
            consumed: task.consumed.as_nanos(),
            processes: members.iter().take(MOST_PROCESSES).map(|who| (who.number, who.start)).collect(),
        };
        let done = task_store.task(stored);
        self.stored(done);
    }

    /// Stores a task regularly, because its processes change.
    pub(super) fn store_if_due(&mut self, id: TaskId, now: Instant) {
        if self.tasks.get(&id).is_some_and(|task| now.since(task.stored) >= NOTE) {
            self.store(id);
        }
    }

    /// Stores a changed policy or cap.
    pub(super) fn store_policy(&mut self, policy: &str, cap: Option<Share>) {
        if let Some(done) = self.task_store.as_mut().map(|task_store| task_store.set_policy(policy, cap)) {
            self.stored(done);
        }
    }

    /// Deletes a stored task.
    pub(super) fn forget_stored(&mut self, id: TaskId) {
        if let Some(done) = self.task_store.as_mut().map(|task_store| task_store.left(id)) {
            self.stored(done);
        }
    }

    /// Reports a failure once, until storing succeeds again.
    fn stored(&mut self, done: std::io::Result<()>) {
        match done {
            Ok(()) => self.store_failed = false,
            Err(error) => {
                if !std::mem::replace(&mut self.store_failed, true) {
                    self.notice(format!("cannot store tasks, so the next broker cannot restore all of them: {error}"));
                }
            }
        }
    }
}

/// The first names, and the number of the others.
fn some(names: &[String]) -> String {
    const FEW: usize = 8;
    let few = names[..names.len().min(FEW)].join(", ");
    match names.len().checked_sub(FEW) {
        Some(more @ 1..) => format!("{few} and {more} more"),
        _ => few,
    }
}
