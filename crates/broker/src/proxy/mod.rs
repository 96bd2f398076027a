//! Scheduler proxies: what stands before the kernel and reserves time for a task's threads (the paper's section III-B).
//!
//! | proxy | what it does | when |
//! |---|---|---|
//! | [`window`] | raises the threads in each period until the budget is consumed | the default: a whole process, soft, soon |
//! | [`deadline`] | SCHED_DEADLINE for each thread | asked for: few fixed threads, hard |
//! | [`grouped`] | windows with a control group's weight as floor, or quota as hard cap | asked for, of the broker or by a task |
//! | [`weights`] | a control group's weight | without the privilege for the others |
//! | [`none`] | reserves nothing and counts what is consumed | where the kernel grants nothing else |
//! | [`external`](crate::external) | tells another process | asked for: a scheduler of one's own |
//! | [`simulated`] | admits as windows do, and changes nothing | asked for: to see what a broker would do |
//!
//! A further one is a file, and a line in [`crate::machine`].

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
use hyoshi_os::process::Identity;

use crate::platform::{CpuLanes, NotReserved};
use crate::proxy::moves::Moves;
use crate::state_file::StateFile;
use crate::task_processes::TaskProcesses;

/// What a proxy's reservations are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// A task may have more than its reservation where nobody else wants the time.
    pub soft: bool,
    /// It has it early in the period, not at some time in it.
    pub soon: bool,
    /// The reservation is of all threads together, however many they are.
    pub shared: bool,
}

/// The machine's side of a proxy's work.
#[derive(Debug)]
pub struct ProxyContext {
    /// The tasks' threads.
    pub tasks: BTreeMap<TaskId, TaskProcesses>,
    /// Those that shall have no more than what is reserved for them.
    pub hard: BTreeSet<TaskId>,
    /// Those of ordinary users: their processes stay in the control groups of version 2 that they are in, and under
    /// what limits them there.
    pub confined: BTreeSet<TaskId>,
    /// What was changed of them.
    pub state_file: StateFile,
}

impl ProxyContext {
    /// The members of a task, and what was changed.
    ///
    /// # Errors
    ///
    /// Of a task without processes.
    fn members(&mut self, task: TaskId) -> Result<(&mut TaskProcesses, &mut StateFile), NotReserved> {
        let nobody = || NotReserved { most: None, reason: "the task has no processes".into() };
        Ok((self.tasks.get_mut(&task).ok_or_else(nobody)?, &mut self.state_file))
    }
}

/// Reserves time.
pub trait SchedulerProxy: Send {
    /// Unique and stable.
    fn name(&self) -> &'static str;

    /// What its reservations are.
    fn abilities(&self) -> Abilities;

    /// Whether it can keep hard tasks to their reservations. Without one they may be ordinary (`deadline`).
    ///
    /// # Errors
    ///
    /// The reason why it cannot, in words.
    fn may_cap(&self, task: TaskId, context: &ProxyContext) -> Result<(), String>;

    /// Reserves for a task that the ground knows, in place of what was reserved.
    ///
    /// # Errors
    ///
    /// If it cannot be; what was reserved then remains, and nothing else is left changed.
    fn reserve(
        &mut self,
        task: TaskId,
        reservation: Reservation,
        now: Instant,
        context: &mut ProxyContext,
    ) -> Result<(), NotReserved>;

    /// Reserves nothing any more; the threads are as they were before, but for a hard task's, which have hardly
    /// anything then.
    fn release(&mut self, task: TaskId, context: &mut ProxyContext);

    /// These processes belong to the task no more: their threads are as they were before.
    fn remove_processes(&mut self, task: TaskId, left: &[Identity], context: &mut ProxyContext) {
        let _ = (task, left, context);
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

    /// Lanes above all windows may take this of a CPU from now on. Whom too little is left for is [outcomes](SchedulerProxy::outcomes);
    /// those in `first` are served before others. Whether lanes are counted at all.
    fn promise_lanes(&mut self, cpu: u32, lanes: CpuLanes, first: &[TaskId], context: &mut ProxyContext) -> bool {
        let _ = (cpu, lanes, first, context);
        false
    }

    /// From now on, events that it waits for post to `wake`.
    fn wake_on_events(&mut self, wake: &Wake) {
        let _ = wake;
    }

    /// Does at once what is left to do for tasks that were released.
    fn finish(&mut self) {}

    /// Whether the task has consumed nothing lately. [`SchedulerProxy::woke`] reports when it consumes again.
    fn is_asleep(&self, task: TaskId) -> bool {
        let _ = task;
        false
    }

    /// A task that slept and has consumed CPU time since.
    fn next_woken(&mut self) -> Option<TaskId> {
        None
    }

    /// How it is doing, where that changes while it runs.
    fn standing(&self) -> Option<String> {
        None
    }

    /// Does what is due, and says when something will be again.
    fn tick(&mut self, now: Instant, context: &mut ProxyContext) -> Instant;

    /// When that will be, as far as it is known without doing it.
    fn due(&self) -> Instant {
        Instant::ZERO
    }

    /// Where it moves processes to control groups: what is about to have it do so can be prepared there, without it.
    fn moves(&self) -> Option<Arc<Moves>> {
        None
    }

    /// In words, by what else than its threads' priority a task is held, or why not.
    fn enforcement(&self, task: TaskId) -> Option<String> {
        let _ = task;
        None
    }
}
