//! What the broker needs of the machine: whose processes a task has, what they consume, and how time is reserved for
//! them. The scheduler proxies stand behind it.

use std::path::PathBuf;

use hyoshi_control::{Finder, TaskId};
use hyoshi_model::{Instant, Reservation, Span};
use hyoshi_os::groups::Group;
use hyoshi_os::process::{Identity, NoProcess, Process};
use hyoshi_os::wakeups::Seen;

/// Why a reservation could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotReserved {
    /// The most that could be; none if nothing.
    pub most: Option<Reservation>,
    /// Why, in words.
    pub why: String,
}

/// A way to reserve time, and whether it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// Its name.
    pub name: &'static str,
    /// Whether it could be used.
    pub usable: bool,
    /// Whether it is the one that is used.
    pub used: bool,
    /// Why it cannot be used, or what it does.
    pub why: String,
}

/// The machine, or a model of one.
pub trait Kernel: Send {
    /// The ways to reserve time, those that cannot be used too.
    fn ways(&self) -> Vec<Way>;

    /// The one that is used.
    fn name(&self) -> &'static str;

    /// A process, its threads and the children it will have belong to the task.
    ///
    /// # Errors
    ///
    /// Of a process that has just ended.
    fn add(&mut self, task: TaskId, process: Process) -> Result<(), NoProcess>;

    /// The processes of a control group belong to the task, now and whenever it is [gathered](Kernel::gather).
    fn add_group(&mut self, task: TaskId, group: Group);

    /// Folders of the task's control groups.
    fn groups(&self, task: TaskId) -> Vec<PathBuf>;

    /// Sees who has come to the task's control groups. Those that `may` not, and those of other tasks, stay outside. Looks
    /// take at most a fiftieth of the time: others come to nothing.
    fn gather(&mut self, task: TaskId, may: &mut dyn FnMut(&Process) -> bool, now: Instant);

    /// The task's processes, in the order in which they joined.
    fn members(&self, task: TaskId) -> Vec<Identity>;

    /// Their numbers.
    fn processes(&self, task: TaskId) -> Vec<u32> {
        self.members(task).iter().map(|process| process.number).collect()
    }

    /// The task that a process belongs to.
    fn task_of(&self, pid: u32) -> Option<TaskId>;

    /// Reserves time, in place of what was reserved. It is done, unless the kernel [awaits](Kernel::awaits) a word on it.
    ///
    /// # Errors
    ///
    /// If it cannot be; then what was reserved remains.
    fn reserve(&mut self, task: TaskId, reservation: Reservation, now: Instant) -> Result<(), NotReserved>;

    /// Whether the task is an ordinary user's, so that its processes are not taken out of control groups that may limit
    /// that user.
    fn confine(&mut self, task: TaskId, confined: bool);

    /// Whether the task shall have no more than what is reserved for it, from its next reservation or release on.
    ///
    /// # Errors
    ///
    /// The reason why that cannot be had here, in words.
    fn harden(&mut self, task: TaskId, hard: bool) -> Result<(), String>;

    /// In words, by what else than priorities the task is held, or why not.
    fn told(&self, task: TaskId) -> Option<String>;

    /// Reserves nothing any more. A hard task has hardly anything then, but with `deadline` it is ordinary.
    fn release(&mut self, task: TaskId);

    /// Forgets a task; its processes go on as they were before they belonged to it.
    fn forget(&mut self, task: TaskId);

    /// What the task's processes have consumed so far, those that have ended too; none once all have.
    fn consumed(&mut self, task: TaskId) -> Option<Span>;

    /// Whether somebody else has yet to say that what was reserved last for the task is.
    fn awaits(&self, task: TaskId) -> bool {
        let _ = task;
        false
    }

    /// What has become of reservations that were awaited, and of those that had to be made by another way.
    fn news(&mut self) -> Option<(TaskId, Result<Reservation, NotReserved>)> {
        None
    }

    /// Wake-ups of the task's threads are watched from now on, or no more.
    fn watch(&mut self, task: TaskId, on: bool);

    /// Hands over to `finder` what the watched threads did since the last time. None if they are not watched.
    fn wakeups(&mut self, task: TaskId, now: Instant, finder: &mut Finder) -> Option<Seen>;

    /// Does what is due. Returns when something will be again.
    fn tick(&mut self, now: Instant) -> Instant;

    /// Puts everything back as it was.
    fn end(&mut self);
}
