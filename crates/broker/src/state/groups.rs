//! Tasks of control groups: their present and future processes belong to the task.

use hyoshi_control::TaskId;
use hyoshi_model::{Instant, Span};
use hyoshi_os::cgroup::Group;
use hyoshi_os::process::Process;

use super::allow::allow_owner;
use super::{BrokerState, PATIENCE};
use crate::access::{Access, Caller};
use crate::request_error::RequestError;
use crate::task_processes::MOST_PROCESSES;

/// Control groups of one task.
pub(super) const MOST_GROUPS: usize = 16;
/// Longest path of a group, as in the kernel.
const LONGEST_PATH: usize = 4_096;
/// How often empty groups are checked for new processes.
const EMPTY: Span = Span::from_millis(100);

/// A control group with its processes, before it is added.
#[derive(Debug)]
pub struct GroupProcesses {
    group: Group,
    processes: Vec<u32>,
}

impl GroupProcesses {
    /// Lists the processes of a group and the groups below it. This is slow, so not under the lock of the state.
    ///
    /// # Errors
    ///
    /// If there is no such group, it is the root's or the broker's own, or one of its processes is another user's.
    pub fn list(access: &Access, caller: &Caller, path: &str) -> Result<GroupProcesses, RequestError> {
        if path.len() > LONGEST_PATH {
            let message = format!("the path of the control group has {} octets", path.len());
            return Err(RequestError::refused(message, format!("use at most {LONGEST_PATH} octets")));
        }
        let group = Group::open(path)?;
        let allow = |processes: &[u32]| {
            let living = processes.iter().take(MOST_PROCESSES).filter_map(|pid| Process::open(*pid).ok());
            living.into_iter().try_for_each(|process| allow_owner(access, caller, &process))
        };
        // A short check first: groups of other users must cost little of the broker's time.
        if !access.is_operator(caller) {
            allow(&group.some_processes())?;
        }
        let processes = group.inhabitants()?;
        allow(&processes)?;
        Ok(GroupProcesses { group, processes })
    }
}

impl BrokerState {
    /// Whether the caller may add a control group, before its processes are listed.
    ///
    /// # Errors
    ///
    /// If the task is not the caller's.
    pub fn may_add_group(&self, caller: &Caller, id: TaskId) -> Result<(), RequestError> {
        self.allow(caller, id)
    }

    /// Adds the present and future processes of a control group and of the groups below it.
    ///
    /// # Errors
    ///
    /// The error of the list, or if a process is in another task.
    pub fn add_group(
        &mut self,
        caller: &Caller,
        id: TaskId,
        path: &str,
        found: Result<GroupProcesses, RequestError>,
        now: Instant,
    ) -> Result<(), RequestError> {
        let done = found.and_then(|found| self.try_add_group(caller, id, found, now));
        let name = self.name(id).map(str::to_owned).unwrap_or_default();
        self.audited(caller, "add-control-group", Some(&name), path, done)
    }

    fn try_add_group(
        &mut self,
        caller: &Caller,
        id: TaskId,
        found: GroupProcesses,
        now: Instant,
    ) -> Result<(), RequestError> {
        let GroupProcesses { group, processes } = found;
        // Again, because the lock was released meanwhile.
        self.allow(caller, id)?;
        let there = self.platform.groups(id);
        if there.iter().any(|folder| folder == group.folder()) {
            return Ok(());
        }
        if there.len() >= MOST_GROUPS {
            return Err(RequestError::refused(
                format!("the task already has {MOST_GROUPS} control groups"),
                "add their parent group instead",
            ));
        }
        self.allow_numbers(&processes)?;
        let directs = self.access.is_operator(caller);
        let task = self.task(id)?;
        let (owner, any_user, folder) = (task.owner, task.any_user || directs, group.folder().to_owned());
        self.platform.add_group(id, group, &processes, &mut |process| may_come(process, owner, any_user));
        let came = !self.platform.members(id).is_empty();
        if !came && !processes.iter().any(|pid| Process::open(*pid).is_ok()) {
            self.platform.drop_group(id, &folder);
            let message = format!("all processes of {} have ended", folder.display());
            return Err(RequestError::refused(message, "start the program before, or with `hyoshi exec`"));
        }
        let task = self.task(id)?;
        task.any_user = any_user;
        if came {
            self.start(id, now);
        } else if task.waiting_since.is_some() {
            // The scan ran out of time: live processes join at the next one.
            self.schedule_report(id, now + EMPTY);
        }
        Ok(())
    }

    /// Scans the groups. Processes of other users join only if an operator added the group.
    pub(super) fn gather(&mut self, id: TaskId, now: Instant) {
        let Some((owner, any_user)) = self.tasks.get(&id).map(|task| (task.owner, task.any_user)) else { return };
        self.platform.gather(id, &mut |process| may_come(process, owner, any_user), now);
    }

    /// All processes have ended; a control group may get new ones, as when a service restarts.
    pub(super) fn all_ended(&mut self, id: TaskId, now: Instant) {
        if self.platform.groups(id).is_empty() {
            return self.end_task(id, now);
        }
        self.platform.release(id);
        if let Some(task) = self.tasks.get_mut(&id) {
            task.waiting_since = Some(now);
        }
        self.schedule_report(id, now + EMPTY);
    }

    /// A task without processes since `joined`.
    pub(super) fn wait_for_processes(&mut self, id: TaskId, joined: Instant, now: Instant) {
        self.gather(id, now);
        if !self.platform.members(id).is_empty() {
            return self.start(id, now);
        }
        if now.since(joined) >= PATIENCE {
            return self.end_task(id, now);
        }
        let next = if self.platform.groups(id).is_empty() { joined + PATIENCE } else { now + EMPTY };
        self.schedule_report(id, next);
    }
}

fn may_come(process: &Process, owner: u32, any_user: bool) -> bool {
    any_user || process.owner().is_some_and(|process_owner| process_owner.is_only(owner))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use hyoshi_control::Arbiter;
    use hyoshi_model::Share;

    use super::*;
    use crate::audit::Audit;
    use crate::component::ComponentSpec;
    use crate::machine::Machine;
    use crate::{TaskSpec, policy};

    /// A state with a task, in a temporary directory.
    struct Fixture {
        place: PathBuf,
        state: BrokerState,
        task: TaskId,
    }

    impl Fixture {
        fn new(name: &str) -> Fixture {
            let place = std::env::temp_dir().join(format!("hyoshi-{name}-{}", std::process::id()));
            let (machine, _) = Machine::open(&place, Some("simulated")).unwrap();
            let arbiter = Arbiter::new(policy::named("strict").unwrap(), Share::from_percent(90));
            let mut state =
                BrokerState::new(arbiter, Box::new(machine), Access { broker: 0, group: None }, Audit::none());
            let rate = ComponentSpec::from_words(&["rate".to_owned(), "1%".to_owned()]).unwrap();
            let joining = TaskSpec { advocates: vec![rate], ..TaskSpec::new("one", Span::from_millis(100)) };
            let task = state.join(&Caller::Broker, &joining, Instant::ZERO).unwrap();
            Fixture { place, state, task }
        }
    }

    impl Drop for Fixture {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.place);
        }
    }

    #[test]
    fn a_group_that_was_refused_is_not_the_tasks() {
        let mut fixture = Fixture::new("refused-group");
        let (state, id) = (&mut fixture.state, fixture.task);
        // A repeated group is not an error, so the second attempt would succeed.
        for _ in 0..2 {
            let left = GroupProcesses { group: Group::again(Path::new("/no/group")), processes: Vec::new() };
            let refused = state.add_group(&Caller::Broker, id, "/no/group", Ok(left), Instant::ZERO).unwrap_err();
            assert!(format!("{refused:?}").contains("have ended"), "{refused:?}");
            assert!(state.platform.groups(id).is_empty());
        }
    }

    #[test]
    fn a_group_of_which_nobody_could_be_looked_at_in_time_is_looked_at_again_if_one_lives() {
        let mut fixture = Fixture::new("slow-group");
        let (state, id) = (&mut fixture.state, fixture.task);
        // Numbers that no process can have use up the time of a scan.
        let processes = (0..200_000).map(|at| 4_194_305 + at).chain([std::process::id()]).collect();
        let found = GroupProcesses { group: Group::again(Path::new("/slow/group")), processes };
        state.add_group(&Caller::Broker, id, "/slow/group", Ok(found), Instant::ZERO).unwrap();
        assert!(state.platform.members(id).is_empty(), "it was not looked at");
        assert_eq!(state.platform.groups(id), [Path::new("/slow/group")]);
        assert_eq!(state.tasks[&id].due, Instant::ZERO + EMPTY);
    }
}
