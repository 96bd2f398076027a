//! Scheduler proxies: they reserve CPU time for a task's threads by means of the kernel (the paper's section III-B).
//!
//! | proxy | what it does | when |
//! |---|---|---|
//! | [`window`] | raises threads in each period until the budget is used | the default: a whole process, soft, early |
//! | [`deadline`] | SCHED_DEADLINE for each thread | on request: few fixed threads, hard |
//! | [`grouped`] | windows with a control group's weight as floor, or quota as hard cap | on request |
//! | [`weights`] | a control group's weight | without the privilege for the others |
//! | [`none`] | reserves nothing and measures consumption | if the kernel grants nothing else |
//! | [`external`](crate::external) | calls another process | on request: your own scheduler |
//! | [`simulated`] | admits as windows do, and changes nothing | on request: a preview of a broker's decisions |
//!
//! To add a proxy, add a file here and a line in [`crate::machine`].

pub mod deadline;
pub mod grouped;
pub mod groups;
pub mod moves;
pub mod none;
pub mod simulated;
pub mod weights;
pub mod window;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hyoshi_control::TaskId;
use hyoshi_model::{Instant, Reservation};
use hyoshi_os::Wake;
use hyoshi_os::process::ProcessIdentity;

use crate::platform::{CpuLanes, NotReserved};
use crate::proxy::moves::Moves;
use crate::state_file::StateFile;
use crate::task_processes::TaskProcesses;

/// Properties of a proxy's reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// A task may exceed its reservation while the CPU is idle.
    pub soft: bool,
    /// The budget is available early in the period.
    pub early: bool,
    /// The budget is for all threads together, however many there are.
    pub shared: bool,
}

/// The tasks and the state file, for proxies.
#[derive(Debug)]
pub struct ProxyContext {
    /// The processes of each task.
    pub tasks: BTreeMap<TaskId, TaskProcesses>,
    /// Hard tasks.
    pub hard: BTreeSet<TaskId>,
    /// Tasks of ordinary users: their processes stay in their control groups of version 2 and under the limits there.
    pub confined: BTreeSet<TaskId>,
    /// The record of all changes.
    pub state_file: StateFile,
}

impl ProxyContext {
    /// The processes of a task, and the state file.
    ///
    /// # Errors
    ///
    /// If the task has no processes.
    fn members(&mut self, task: TaskId) -> Result<(&mut TaskProcesses, &mut StateFile), NotReserved> {
        let no_processes = || NotReserved { most: None, reason: "the task has no processes".into() };
        Ok((self.tasks.get_mut(&task).ok_or_else(no_processes)?, &mut self.state_file))
    }
}

/// Reserves time.
pub trait SchedulerProxy: Send {
    /// A unique and stable name.
    fn name(&self) -> &'static str;

    /// What its reservations are.
    fn abilities(&self) -> Abilities;

    /// Whether it can cap a hard task. Ordinary threads may remain uncapped (`deadline`).
    ///
    /// # Errors
    ///
    /// The reason.
    fn may_cap(&self, task: TaskId, context: &ProxyContext) -> Result<(), String>;

    /// Replaces the task's reservation.
    ///
    /// # Errors
    ///
    /// If it is refused; the previous reservation remains and nothing else changes.
    fn reserve(
        &mut self,
        task: TaskId,
        reservation: Reservation,
        now: Instant,
        context: &mut ProxyContext,
    ) -> Result<(), NotReserved>;

    /// Ends the reservation and restores the threads; those of a hard task then get nearly no CPU time.
    fn release(&mut self, task: TaskId, context: &mut ProxyContext);

    /// Restores the threads of processes that have left the task.
    fn remove_processes(&mut self, task: TaskId, left: &[ProcessIdentity], context: &mut ProxyContext) {
        let _ = (task, left, context);
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
    /// [`SchedulerProxy::next_outcome`]; tasks in `first` keep their room before others. Returns whether lanes count at
    /// all.
    fn promise_lanes(&mut self, cpu: u32, lanes: CpuLanes, first: &[TaskId], context: &mut ProxyContext) -> bool {
        let _ = (cpu, lanes, first, context);
        false
    }

    /// Events of the machine post to `wake` from now on.
    fn wake_on_events(&mut self, wake: &Wake) {
        let _ = wake;
    }

    /// Completes pending work for released tasks.
    fn finish(&mut self) {}

    /// Whether the task has recently consumed nothing. [`SchedulerProxy::next_woken`] returns it when it consumes
    /// again.
    fn is_asleep(&self, task: TaskId) -> bool {
        let _ = task;
        false
    }

    /// A task that was asleep and has consumed CPU time since.
    fn next_woken(&mut self) -> Option<TaskId> {
        None
    }

    /// Its description, if that changes at run time.
    fn status(&self) -> Option<String> {
        None
    }

    /// Does all due work. Returns when the next work is due.
    fn tick(&mut self, now: Instant, context: &mut ProxyContext) -> Instant;

    /// When the next work is due, as far as that is known without doing it.
    fn due(&self) -> Instant {
        Instant::ZERO
    }

    /// The preparation of moves between control groups.
    fn moves(&self) -> Option<Arc<Moves>> {
        None
    }

    /// What enforces the reservation besides thread priorities, as text, or why nothing does.
    fn enforcement(&self, task: TaskId) -> Option<String> {
        let _ = task;
        None
    }
}
