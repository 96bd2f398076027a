//! Tasks of control groups: who is in them belongs to the task, also who comes later.

use hyoshi_control::TaskId;
use hyoshi_model::{Instant, Span};
use hyoshi_os::groups::Group;
use hyoshi_os::process::Process;

use super::{PATIENCE, State};
use crate::access::Caller;
use crate::members::MOST_PROCESSES;
use crate::trouble::Trouble;

/// A task has at most so many.
pub(super) const MOST_GROUPS: usize = 16;
/// How often it is seen whether somebody has come to groups that all have left.
const EMPTY: Span = Span::from_millis(100);

impl State {
    /// The processes of a control group join a task, those that come later too, and those of groups below it.
    ///
    /// # Errors
    ///
    /// Of a group that there is not, of the root's and the broker's own, and where one of its processes is another user's or
    /// another task's.
    pub fn add_group(&mut self, caller: &Caller, id: TaskId, path: &str, now: Instant) -> Result<(), Trouble> {
        let done = self.try_add_group(caller, id, path, now);
        let name = self.name(id).map(str::to_owned).unwrap_or_default();
        self.audited(caller, "add-control-group", Some(&name), path, done)
    }

    fn try_add_group(&mut self, caller: &Caller, id: TaskId, path: &str, now: Instant) -> Result<(), Trouble> {
        self.allow(caller, id)?;
        let group = Group::open(path)?;
        let there = self.kernel.groups(id);
        if there.iter().any(|folder| folder == group.folder()) {
            return Ok(());
        }
        if there.len() >= MOST_GROUPS {
            return Err(Trouble::refused(
                format!("the task has {MOST_GROUPS} control groups"),
                "name a group above them",
            ));
        }
        // A short look first: groups that are not theirs cost who asks for them no more of the broker's time.
        if !self.access.may_direct(caller) {
            self.allow_processes(caller, &group.some_processes())?;
        }
        self.allow_processes(caller, &group.inhabitants()?)?;
        let anybody = self.access.may_direct(caller);
        self.task(id)?.anybody |= anybody;
        self.kernel.add_group(id, group);
        self.gather(id, now);
        if self.kernel.members(id).is_empty() {
            let what = format!("all processes of {path} have ended meanwhile");
            return Err(Trouble::refused(what, "start the program first, or with `hyoshi exec`"));
        }
        self.begin(id, now);
        Ok(())
    }

    fn allow_processes(&self, caller: &Caller, processes: &[u32]) -> Result<(), Trouble> {
        let living = processes.iter().take(MOST_PROCESSES).filter_map(|pid| Process::open(*pid).ok());
        living.into_iter().try_for_each(|process| self.allow_process(caller, &process))
    }

    /// Sees who has come. Processes of other users stay outside, if nobody who may manage them has added the group.
    pub(super) fn gather(&mut self, id: TaskId, now: Instant) {
        let Some((owner, anybody)) = self.tasks.get(&id).map(|task| (task.owner, task.anybody)) else { return };
        let mut may = |process: &Process| anybody || process.owner().is_some_and(|whose| whose.is_only(owner));
        self.kernel.gather(id, &mut may, now);
    }

    /// All processes have ended: of a task with control groups others may come, as when a service is started anew.
    pub(super) fn all_ended(&mut self, id: TaskId, now: Instant) {
        if self.kernel.groups(id).is_empty() {
            return self.over(id, now);
        }
        self.kernel.release(id);
        if let Some(task) = self.tasks.get_mut(&id) {
            task.waits = Some(now);
        }
        self.look_at(id, now + EMPTY);
    }

    /// A task without a process, since `joined`.
    pub(super) fn wait_for_processes(&mut self, id: TaskId, joined: Instant, now: Instant) {
        self.gather(id, now);
        if !self.kernel.members(id).is_empty() {
            return self.begin(id, now);
        }
        if now.since(joined) >= PATIENCE {
            return self.over(id, now);
        }
        let next = if self.kernel.groups(id).is_empty() { joined + PATIENCE } else { now + EMPTY };
        self.look_at(id, next);
    }
}
