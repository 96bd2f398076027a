//! The interface between the broker and the machine: processes of tasks, their consumption, and reservations through a
//! scheduler proxy.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyoshi_control::window::placement::CpuPromise;
use hyoshi_control::{Finder, TaskId};
use hyoshi_model::{Instant, Reservation, Span};
use hyoshi_os::Wake;
use hyoshi_os::cgroup::Group;
use hyoshi_os::process::{NoProcess, Process, ProcessIdentity};
use hyoshi_os::wakeups::WakeupSource;

use crate::proxy::moves::Moves;

/// A refused reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotReserved {
    /// The largest possible reservation; `None` if there is none.
    pub most: Option<Reservation>,
    /// Why it was refused.
    pub reason: String,
}

/// A scheduler proxy and whether it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyInfo {
    /// Its name.
    pub name: &'static str,
    /// Whether this machine grants it.
    pub usable: bool,
    /// Whether the broker uses it.
    pub used: bool,
    /// What it does, or why it cannot be used.
    pub reason: String,
}

/// What lanes above the windows may use of one CPU.
#[derive(Clone, Debug, Default)]
pub struct CpuLanes {
    /// Their budgets.
    pub promises: Vec<CpuPromise>,
    /// Their runs and shares as text; empty if there are none.
    pub text: String,
}

/// Whether the wake-ups of a task are observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WakeupWatch {
    /// No, or not yet.
    #[default]
    Off,
    /// Waiting, because the largest number of threads is observed already.
    Waiting,
    /// Yes, by this method.
    By(WakeupSource),
}

/// A process that must leave its task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignProcess {
    /// The process.
    pub process: ProcessIdentity,
    /// The printable name of its program.
    pub name: String,
}

/// A machine, or a model of one.
pub trait Platform: Send {
    /// All scheduler proxies.
    fn proxies(&self) -> Vec<ProxyInfo>;

    /// The name of the used proxy.
    fn name(&self) -> &'static str;

    /// Adds a process to a task, with its threads and future children. It leaves another task that it joined as a child
    /// or with a control group.
    ///
    /// # Errors
    ///
    /// If the process has ended.
    fn add(&mut self, task: TaskId, process: Process) -> Result<(), NoProcess>;

    /// Adds a control group: now those of the processes `there` that `may` and are in no other task, later all others,
    /// whenever the group is [scanned](Platform::gather).
    fn add_group(&mut self, task: TaskId, group: Group, there: &[u32], may: &mut dyn FnMut(&Process) -> bool);

    /// Removes a control group; its processes stay.
    fn drop_group(&mut self, task: TaskId, folder: &Path);

    /// The directories of the task's control groups.
    fn groups(&self, task: TaskId) -> Vec<PathBuf>;

    /// Adds new processes of the task's control groups and removes those that left. Processes that `may` not join, and
    /// those of other tasks, stay outside. Scans of all tasks use at most a fiftieth of the time, about a millisecond
    /// at once; several calls scan a large tree.
    fn gather(&mut self, task: TaskId, may: &mut dyn FnMut(&Process) -> bool, now: Instant);

    /// Checks whether processes of these sorted tasks `may` stay: each one at least once a second, up to some thousands
    /// of processes. Returns those that may not, and when to check again.
    fn check_owners(
        &mut self,
        tasks: &[TaskId],
        may: &mut dyn FnMut(TaskId, &Process) -> bool,
        now: Instant,
    ) -> (Vec<(TaskId, ForeignProcess)>, Instant);

    /// Removes processes: restores their scheduling, and they do not join again as children.
    fn expel(&mut self, task: TaskId, processes: &[ProcessIdentity]);

    /// The task's processes in the order of joining.
    fn members(&self, task: TaskId) -> Vec<ProcessIdentity>;

    /// The number of their threads; stops counting above `most`.
    fn count_threads(&self, task: TaskId, most: usize) -> usize;

    /// Their process numbers.
    fn processes(&self, task: TaskId) -> Vec<u32> {
        self.members(task).iter().map(|process| process.number).collect()
    }

    /// The task of a process, or of its parent; and whether it was added by itself, not as a child or with a control
    /// group.
    fn task_of(&self, process: &Process) -> Option<(TaskId, bool)>;

    /// Finds a process of a task among these sorted numbers.
    fn find_member(&self, numbers: &[u32]) -> Option<(u32, TaskId)>;

    /// Replaces the task's reservation. It is confirmed, unless it is [pending](Platform::is_pending).
    ///
    /// # Errors
    ///
    /// If it is refused; the previous reservation remains.
    fn reserve(&mut self, task: TaskId, reservation: Reservation, now: Instant) -> Result<(), NotReserved>;

    /// Whether the task belongs to an ordinary user: its processes must stay in control groups that may limit that
    /// user.
    fn confine(&mut self, task: TaskId, confined: bool);

    /// Whether the reservation is also a limit, from the next reservation or release on.
    ///
    /// # Errors
    ///
    /// Why this machine cannot cap the task.
    fn harden(&mut self, task: TaskId, hard: bool) -> Result<(), String>;

    /// The preparation of moves between control groups. A caller that may cause moves prepares them before it locks the
    /// state.
    fn moves(&self) -> Option<Arc<Moves>> {
        None
    }

    /// What enforces the reservation besides priorities, as text, or why nothing does.
    fn enforcement(&self, task: TaskId) -> Option<String>;

    /// Ends the reservation. A hard task then gets nearly no CPU time.
    fn release(&mut self, task: TaskId);

    /// Removes a task and restores its processes.
    fn forget(&mut self, task: TaskId);

    /// CPU time of all processes, ended ones included; `None` once all have ended.
    fn consumed(&mut self, task: TaskId) -> Option<Span>;

    /// The same without the check for live processes, which costs as much again.
    fn consumed_at(&mut self, task: TaskId, now: Instant) -> Option<Span> {
        let _ = now;
        self.consumed(task)
    }

    /// Whether the last reservation still waits for a confirmation.
    fn is_pending(&self, task: TaskId) -> bool {
        let _ = task;
        false
    }

    /// The next result of a pending reservation, of one that moved to another proxy, or of one that can no longer be
    /// kept. It does not concern newer reservations of the task. After a refusal the task must be released or get
    /// another reservation.
    fn next_outcome(&mut self) -> Option<(TaskId, Reservation, Result<(), NotReserved>)> {
        None
    }

    /// A refused task that may now get a larger reservation.
    fn next_retry(&mut self) -> Option<TaskId> {
        None
    }

    /// Sets what lanes above all windows may use of a CPU. Windows without enough room appear in
    /// [`Platform::next_outcome`]; tasks in `first` keep their room before others. Returns whether lanes count at all.
    fn promise_lanes(&mut self, cpu: u32, lanes: CpuLanes, first: &[TaskId]) -> bool {
        let _ = (cpu, lanes, first);
        false
    }

    /// Observes the wake-ups of a task of this user; `None` stops.
    fn watch(&mut self, task: TaskId, owner: Option<u32>);

    /// Passes the observed wake-ups since the last call to `finder`.
    fn wakeups(&mut self, task: TaskId, finder: &mut Finder) -> WakeupWatch;

    /// Events of the machine post to `wake` from now on. Without events it samples more often.
    fn wake_on_events(&mut self, wake: &Wake) {
        let _ = wake;
    }

    /// Number of threads at the last sample.
    fn threads(&self, task: TaskId) -> usize {
        let _ = task;
        0
    }

    /// Whether the task has recently consumed nothing. [`Platform::next_woken`] returns it when it consumes again.
    fn is_asleep(&self, task: TaskId) -> bool {
        let _ = task;
        false
    }

    /// A task that was asleep and has consumed CPU time since.
    fn next_woken(&mut self) -> Option<TaskId> {
        None
    }

    /// Does all due work. Returns when the next work is due.
    fn tick(&mut self, now: Instant) -> Instant;

    /// When the next work is due, as far as that is known without doing it.
    fn due(&self) -> Instant {
        Instant::ZERO
    }

    /// Restores everything.
    fn end(&mut self);
}
