//! Members that run as other users than the task's: setuid programs and their children leave the task.

use std::collections::{BTreeMap, BTreeSet};

use hyoshi_control::TaskId;
use hyoshi_model::Instant;
use hyoshi_os::process::{Process, ProcessIdentity};

use super::BrokerState;
use crate::access::Caller;
use crate::audit;
use crate::platform::ForeignProcess;
use crate::request_error::RequestError;

/// Processes of other users that an operator has added to a task, and their children.
#[derive(Debug, Default)]
pub(super) struct AddedByOperator(BTreeSet<ProcessIdentity>);

impl AddedByOperator {
    /// Whether an operator added this process or its parent.
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

    /// An operator added this process.
    pub fn add(&mut self, process: ProcessIdentity, members: &[ProcessIdentity]) {
        self.0.retain(|one| members.contains(one));
        self.0.insert(process);
    }
}

impl BrokerState {
    /// Checks the owners of processes in ordinary users' tasks. A process that became another user's leaves the task,
    /// and its priority and cap are restored. Returns when to check again.
    pub(super) fn check_owners(&mut self, now: Instant) -> Instant {
        if now < self.owners_checked {
            return self.owners_checked;
        }
        let BrokerState { tasks, platform, .. } = self;
        // Operators may manage processes of all users, so there is nothing to check in their tasks.
        let checked = tasks.iter().filter(|(_, task)| !task.by_operator && !task.any_user).map(|(id, _)| *id);
        let checked: Vec<TaskId> = checked.collect();
        if checked.is_empty() {
            self.owners_checked = Instant::NEVER;
            return Instant::NEVER;
        }
        let mut may = |id: TaskId, process: &Process| {
            let Some(task) = tasks.get_mut(&id) else { return true };
            // A process that has ended leaves by itself.
            process.owner().is_none_or(|owner| owner.is_only(task.owner)) || task.added_by_operator.covers(process)
        };
        let (strangers, next) = platform.check_owners(&checked, &mut may, now);
        let mut of_task: BTreeMap<TaskId, Vec<ForeignProcess>> = BTreeMap::new();
        strangers.into_iter().for_each(|(id, stranger)| of_task.entry(id).or_default().push(stranger));
        for (id, strangers) in of_task {
            self.expel(id, &strangers);
        }
        self.owners_checked = next;
        next
    }

    fn expel(&mut self, id: TaskId, strangers: &[ForeignProcess]) {
        let processes: Vec<ProcessIdentity> = strangers.iter().map(|stranger| stranger.process).collect();
        self.platform.expel(id, &processes);
        let Some((name, owner)) = self.tasks.get(&id).map(|task| (task.name.clone(), task.owner)) else { return };
        let who = strangers.iter().map(|ForeignProcess { process, name }| format!("{process} ({name})"));
        let who = audit::join_items(who);
        let what = format!("{who}: no longer only of user {owner}");
        let _: Result<(), RequestError> = self.audited(&Caller::Broker, "process-leaves", Some(&name), &what, Ok(()));
        self.notice(format!("process {who} left task {name} of user {owner}: it now has the rights of another user"));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    use hyoshi_control::Arbiter;
    use hyoshi_model::{Share, Span};
    use hyoshi_os::Credentials;

    use super::*;
    use crate::access::Access;
    use crate::audit::Audit;
    use crate::machine::Machine;
    use crate::{TaskSpec, policy};

    struct Sleeper(Child);

    impl Sleeper {
        fn of(user: u32) -> Sleeper {
            Sleeper(Command::new("sleep").arg("1000").uid(user).current_dir("/").spawn().unwrap())
        }

        fn number(&self) -> u32 {
            self.0.id()
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn processes_of_other_users_leave_a_users_task_unless_an_operator_added_them() {
        if Credentials::own().uid != 0 {
            return println!("skipped: needs root, to start programs of several users");
        }
        let place = std::env::temp_dir().join(format!("hyoshi-owners-{}", std::process::id()));
        let (machine, _) = Machine::open(&place, Some("simulated")).unwrap();
        let arbiter = Arbiter::new(policy::named("fair").unwrap(), Share::from_percent(100));
        let audit = Audit::to(&place.join("audit")).unwrap();
        let mut state = BrokerState::new(arbiter, Box::new(machine), Access { broker: 0, group: None }, audit);
        let user = |uid| Caller::Known(Credentials { pid: std::process::id(), uid, gid: uid, groups: vec![] });
        let (ann, root) = (user(1_000), user(0));
        let [own, added, strange] = [1_000, 2_000, 3_000].map(Sleeper::of);
        let at = |millis| Instant::ZERO + Span::from_millis(millis);
        let task = |state: &mut BrokerState, who: &Caller, name| {
            state.join(who, &TaskSpec::new(name, Span::from_millis(100)), Instant::ZERO).unwrap()
        };
        let (anns, roots) = (task(&mut state, &ann, "anns"), task(&mut state, &root, "roots"));
        state.add_process(&ann, anns, own.number(), 0, at(1)).unwrap();
        state.add_process(&root, anns, added.number(), 0, at(1)).unwrap();
        // Like a child or a program that became another user's.
        state.platform.add(anns, Process::open(strange.number()).unwrap()).unwrap();
        let numbers = |state: &mut BrokerState, id, now| {
            state.check_owners(now);
            let mut numbers = state.platform.processes(id);
            numbers.sort_unstable();
            numbers
        };
        let mut stay = [own.number(), added.number()];
        stay.sort_unstable();
        assert_eq!(numbers(&mut state, anns, at(1_000)), stay);
        assert_eq!(numbers(&mut state, anns, at(2_000)), stay, "and stay");
        let notices = state.take_notices().join("\n");
        assert!(notices.contains(&format!("process {} (sleep) left task anns", strange.number())), "{notices}");
        // Root's tasks may contain it.
        state.platform.add(roots, Process::open(strange.number()).unwrap()).unwrap();
        assert_eq!(numbers(&mut state, roots, at(3_000)), [strange.number()]);
        drop(state);
        let log = std::fs::read_to_string(place.join("audit")).unwrap();
        assert_eq!(log.lines().filter(|line| line.contains("process-leaves")).count(), 1, "{log}");
        let _ = std::fs::remove_dir_all(&place);
    }
}
