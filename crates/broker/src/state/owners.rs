//! Members that run as other users than the task's: setuid programs leave the task, as do their children.

use std::collections::{BTreeMap, BTreeSet};

use hyoshi_control::TaskId;
use hyoshi_model::Instant;
use hyoshi_os::process::{Identity, Process};

use super::State;
use crate::access::Caller;
use crate::audit;
use crate::kernel::Stranger;
use crate::trouble::Trouble;

/// Processes of other users that an operator has added to a task, and their children.
#[derive(Debug, Default)]
pub(super) struct Vouched(BTreeSet<Identity>);

impl Vouched {
    /// Whether this process, or its parent, was added by an operator.
    fn covers(&mut self, process: &Process) -> bool {
        let identity = process.identity();
        if self.0.is_empty() {
            return false;
        }
        let parent = || process.parent().is_some_and(|parent| self.0.iter().any(|one| one.number == parent));
        if self.0.contains(&identity) || parent() {
            self.0.insert(identity);
            return true;
        }
        false
    }

    /// An operator has added it.
    pub fn add(&mut self, process: Identity, members: &[Identity]) {
        self.0.retain(|one| members.contains(one));
        self.0.insert(process);
    }
}

impl State {
    /// Checks which users the processes of ordinary users' tasks run as. Those that have become another user's leave the
    /// task: the raise and the cap are taken back. Returns when to check again.
    pub(super) fn check_owners(&mut self, now: Instant) -> Instant {
        let State { tasks, kernel, .. } = self;
        // Operators may manage processes of all users, so there is nothing to check in their tasks.
        let checked = tasks.iter().filter(|(_, task)| !task.directed && !task.anybody).map(|(id, _)| *id);
        let checked: Vec<TaskId> = checked.collect();
        if checked.is_empty() {
            return Instant::NEVER;
        }
        let mut may = |id: TaskId, process: &Process| {
            let Some(task) = tasks.get_mut(&id) else { return true };
            // One that has ended leaves by itself.
            process.owner().is_none_or(|owner| owner.is_only(task.owner)) || task.vouched.covers(process)
        };
        let (strangers, next) = kernel.check_owners(&checked, &mut may, now);
        let mut of_task: BTreeMap<TaskId, Vec<Stranger>> = BTreeMap::new();
        strangers.into_iter().for_each(|(id, stranger)| of_task.entry(id).or_default().push(stranger));
        for (id, strangers) in of_task {
            self.expel(id, &strangers);
        }
        next
    }

    fn expel(&mut self, id: TaskId, strangers: &[Stranger]) {
        let processes: Vec<Identity> = strangers.iter().map(|stranger| stranger.process).collect();
        self.kernel.expel(id, &processes);
        let Some((name, owner)) = self.tasks.get(&id).map(|task| (task.name.clone(), task.owner)) else { return };
        let who = strangers.iter().map(|Stranger { process, name }| format!("{process} ({name})"));
        let who = audit::listed(who);
        let what = format!("{who}: not only user {owner} any more");
        let _: Result<(), Trouble> = self.audited(&Caller::Broker, "process-leaves", Some(&name), &what, Ok(()));
        self.notice(format!("task {name} of user {owner} loses process {who}: it has the rights of another user now"));
    }
}
