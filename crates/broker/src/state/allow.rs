//! Checks rights to tasks and processes.

use hyoshi_control::{AdvocateChain, TaskId};
use hyoshi_os::process::{NoProcess, Process};

use super::BrokerState;
use crate::access::{Access, Caller};
use crate::component::ComponentSpec;
use crate::request_error::RequestError;

/// Longest kind, parameters and values of an advocate, in octets. A reference has some hundreds.
const MOST_SETTING: usize = 8_192;

impl BrokerState {
    /// Whether the caller may change this task.
    pub(super) fn allow(&self, caller: &Caller, id: TaskId) -> Result<(), RequestError> {
        let owner = self.tasks.get(&id).map(|task| task.owner).ok_or_else(|| super::gone(id))?;
        if self.access.may_change(caller, owner) {
            return Ok(());
        }
        let message = format!("task `{}` belongs to user {owner}", self.name(id)?);
        Err(RequestError::NotAllowed { message, remedy: self.who_may() })
    }

    /// Whether the caller may add a process to a task. If the process is in another task as a child or with a control
    /// group, the caller must be able to change that task, too.
    pub(super) fn allow_process(&self, caller: &Caller, process: &Process) -> Result<(), RequestError> {
        let number = process.identity().number;
        allow_owner(&self.access, caller, process)?;
        allow_broker(&[number])?;
        match self.platform.task_of(process) {
            Some((other, true)) => Err(self.has_a_task(number, other)),
            Some((other, false)) => self.allow(caller, other).map_err(|error| match error {
                RequestError::NotAllowed { message, remedy } => {
                    RequestError::NotAllowed { message: format!("process {number} is in a task; {message}"), remedy }
                }
                error => error,
            }),
            None => Ok(()),
        }
    }

    /// Whether these sorted processes may join with their control group: none is in a task or is the broker.
    pub(super) fn allow_numbers(&self, numbers: &[u32]) -> Result<(), RequestError> {
        if let Some((pid, other)) = self.platform.find_member(numbers) {
            return Err(self.has_a_task(pid, other));
        }
        allow_broker(numbers)
    }

    fn has_a_task(&self, pid: u32, task: TaskId) -> RequestError {
        let message = format!("process {pid} already belongs to task `{}`", self.name(task).unwrap_or_default());
        RequestError::refused(message, "change that task with `hyoshi broker set`")
    }

    pub(super) fn allow_settings(&self, caller: &Caller, settings: &[ComponentSpec]) -> Result<(), RequestError> {
        if settings.len() > AdvocateChain::LONGEST {
            let (message, most) = (format!("{} advocates in one chain", settings.len()), AdvocateChain::LONGEST);
            return Err(RequestError::refused(message, format!("use at most {most}")));
        }
        if let Some(octets) = settings.iter().map(ComponentSpec::size).find(|octets| *octets > MOST_SETTING) {
            let message = format!("the kind and parameters of an advocate have {octets} octets");
            return Err(RequestError::refused(message, format!("use at most {MOST_SETTING} octets")));
        }
        settings.iter().try_for_each(|setting| self.allow_foreign(caller, setting))
    }

    /// The remedy for callers without the right.
    pub(super) fn who_may(&self) -> String {
        self.access.who_may()
    }
}

/// The broker itself is never in a task.
fn allow_broker(numbers: &[u32]) -> Result<(), RequestError> {
    match numbers.binary_search(&std::process::id()) {
        Ok(_) => Err(RequestError::refused(
            "the broker cannot reserve time for itself",
            "name another process; the broker already runs above all windows",
        )),
        Err(_) => Ok(()),
    }
}

/// Whether the caller may add a process to a task.
pub(super) fn allow_owner(access: &Access, caller: &Caller, process: &Process) -> Result<(), RequestError> {
    let pid = process.identity().number;
    let owner = process.owner().ok_or(NoProcess::Gone(pid))?;
    let own = caller.uid(access).is_some_and(|uid| owner.is_only(uid));
    if own || access.is_operator(caller) {
        return Ok(());
    }
    let (message, remedy) = if owner.real == owner.effective && owner.real == owner.saved {
        (format!("process {pid} ({}) belongs to user {}", process.name(), owner.real), access.who_may())
    } else {
        let message = format!("process {pid} ({}) has the rights of user {}", process.name(), owner.effective);
        (message, format!("only operators may manage setuid programs: {}", access.who_may()))
    };
    Err(RequestError::NotAllowed { message, remedy })
}
