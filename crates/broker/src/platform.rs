//! What the broker needs of the machine: whose processes a task has, what they consume, and how time is reserved for
//! them. The scheduler proxies stand behind it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyoshi_control::window::placement::Promise;
use hyoshi_control::{Finder, TaskId};
use hyoshi_model::{Instant, Reservation, Span};
use hyoshi_os::Wake;
use hyoshi_os::cgroup::Group;
use hyoshi_os::process::{Identity, NoProcess, Process};
use hyoshi_os::wakeups::Seen;

use crate::proxy::moves::Moves;

/// Why a reservation could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotReserved {
    /// The most that could be; none if nothing.
    pub most: Option<Reservation>,
    /// Why, in words.
    pub reason: String,
}

/// A way to reserve time, and whether it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyInfo {
    /// Its name.
    pub name: &'static str,
    /// Whether it could be used.
    pub usable: bool,
    /// Whether it is the one that is used.
    pub used: bool,
    /// Why it cannot be used, or what it does.
    pub reason: String,
}

/// What lanes above the windows may take of one CPU.
#[derive(Clone, Debug, Default)]
pub struct CpuLanes {
    /// How much.
    pub promises: Vec<Promise>,
    /// Whose they are and how much they take, in words; empty if there are none.
    pub words: String,
}

/// Whether a task's wake-ups are watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WakeupWatch {
    /// No, or not yet.
    #[default]
    Off,
    /// It is to be: no more threads are watched, and those of others are.
    Waiting,
    /// So.
    By(Seen),
}

/// A member of a task that may not stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignProcess {
    /// The process.
    pub process: Identity,
    /// The program's name, printable.
    pub name: String,
}

/// The machine, or a model of one.
pub trait Platform: Send {
    /// The ways to reserve time, those that cannot be used too.
    fn proxies(&self) -> Vec<ProxyInfo>;

    /// The one that is used.
    fn name(&self) -> &'static str;

    /// A process, its threads and the children it will have belong to the task; to another no more, where it came as a
    /// child or with a control group.
    ///
    /// # Errors
    ///
    /// Of a process that has just ended.
    fn add(&mut self, task: TaskId, process: Process) -> Result<(), NoProcess>;

    /// The processes of a control group belong to the task: of those that are `there`, by number, all that `may`, but for
    /// those of other tasks; of all others whenever it is [gathered](Platform::gather).
    fn add_group(&mut self, task: TaskId, group: Group, there: &[u32], may: &mut dyn FnMut(&Process) -> bool);

    /// The control group is the task's no more; its processes are.
    fn drop_group(&mut self, task: TaskId, folder: &Path);

    /// Folders of the task's control groups.
    fn groups(&self, task: TaskId) -> Vec<PathBuf>;

    /// Sees who has come to the task's control groups, and who has left them. Those that `may` not, and those of other
    /// tasks, stay outside. Looks of all tasks together take at most a fiftieth of the time, and about a
    /// millisecond at once: of a large tree several together see all of it.
    fn gather(&mut self, task: TaskId, may: &mut dyn FnMut(&Process) -> bool, now: Instant);

    /// Checks whether members of these tasks, in their order, `may` stay: each member at least once a second, up to
    /// some thousands of members. Returns those that may not, and when to check again.
    fn check_owners(
        &mut self,
        tasks: &[TaskId],
        may: &mut dyn FnMut(TaskId, &Process) -> bool,
        now: Instant,
    ) -> (Vec<(TaskId, ForeignProcess)>, Instant);

    /// These processes leave the task: their scheduling is restored, and they do not join again as children.
    fn expel(&mut self, task: TaskId, processes: &[Identity]);

    /// The task's processes, in the order in which they joined.
    fn members(&self, task: TaskId) -> Vec<Identity>;

    /// Number of their threads; counting stops above `most`.
    fn count_threads(&self, task: TaskId, most: usize) -> usize;

    /// Their numbers.
    fn processes(&self, task: TaskId) -> Vec<u32> {
        self.members(task).iter().map(|process| process.number).collect()
    }

    /// The task that a process belongs to, or comes to as a child of its parent; and whether it was added to that by
    /// itself, neither as a child nor with a control group.
    fn task_of(&self, process: &Process) -> Option<(TaskId, bool)>;

    /// One of these processes that belongs to a task, if one does. The numbers are sorted.
    fn find_member(&self, numbers: &[u32]) -> Option<(u32, TaskId)>;

    /// Reserves time, in place of what was reserved. It is done, unless the kernel [awaits](Platform::awaits) a word on it.
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

    /// Where processes are moved to control groups: whoever is about to have that done prepares it there first, so that nobody waits for it.
    fn moves(&self) -> Option<Arc<Moves>> {
        None
    }

    /// In words, by what else than priorities the task is held, or why not.
    fn enforcement(&self, task: TaskId) -> Option<String>;

    /// Reserves nothing any more. A hard task has hardly anything then.
    fn release(&mut self, task: TaskId);

    /// Forgets a task; its processes go on as they were before they belonged to it.
    fn forget(&mut self, task: TaskId);

    /// What the task's processes have consumed so far, those that have ended too; none once all have.
    fn consumed(&mut self, task: TaskId) -> Option<Span>;

    /// The same, of processes of which one lived a moment ago: whether one does is as much to ask as what they consumed.
    fn consumed_at(&mut self, task: TaskId, now: Instant) -> Option<Span> {
        let _ = now;
        self.consumed(task)
    }

    /// Whether somebody else has yet to say that what was reserved last for the task is.
    fn is_pending(&self, task: TaskId) -> bool {
        let _ = task;
        false
    }

    /// What has become of reservations that were awaited, of those that had to be made by another way, and of those that
    /// cannot be kept any more: whose, which, and why not. That is no word on what was reserved for the task since. Where it is
    /// a refusal the task is to be released, or something else reserved for it.
    fn next_outcome(&mut self) -> Option<(TaskId, Reservation, Result<(), NotReserved>)> {
        None
    }

    /// A task for which more may be reserved than when it was refused.
    fn next_retry(&mut self) -> Option<TaskId> {
        None
    }

    /// Lanes above all windows may take this of a CPU from now on. Whom too little is left for is [outcomes](Platform::outcomes);
    /// those in `first` are served before others. Whether lanes are counted at all.
    fn promise_lanes(&mut self, cpu: u32, lanes: CpuLanes, first: &[TaskId]) -> bool {
        let _ = (cpu, lanes, first);
        false
    }

    /// Wake-ups of the threads of a task, of this user's, are watched from now on; without a user no more.
    fn watch(&mut self, task: TaskId, owner: Option<u32>);

    /// Hands over to `finder` what the watched threads did since the last time.
    fn wakeups(&mut self, task: TaskId, finder: &mut Finder) -> WakeupWatch;

    /// From now on, events that it waits for post to `wake`. Without events it looks more often.
    fn wake_on_events(&mut self, wake: &Wake) {
        let _ = wake;
    }

    /// Number of threads at the last look.
    fn threads(&self, task: TaskId) -> usize {
        let _ = task;
        0
    }

    /// Whether the task has consumed nothing lately. [`Platform::woke`] reports when it consumes again.
    fn is_asleep(&self, task: TaskId) -> bool {
        let _ = task;
        false
    }

    /// A task that slept and has consumed CPU time since.
    fn next_woken(&mut self) -> Option<TaskId> {
        None
    }

    /// Does what is due. Returns when something will be again.
    fn tick(&mut self, now: Instant) -> Instant;

    /// When that will be, as far as it is known without doing it.
    fn due(&self) -> Instant {
        Instant::ZERO
    }

    /// Puts everything back as it was.
    fn end(&mut self);
}
