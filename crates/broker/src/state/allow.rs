//! Who may do what to which task, and with which processes.

use hyoshi_control::{AdvocateChain, TaskId};
use hyoshi_os::process::{NoProcess, Process};

use super::State;
use crate::access::{Access, Caller};
use crate::setting::Setting;
use crate::trouble::Trouble;

/// Octets of an advocate's kind, parameters and values. A reference to an object is some hundreds.
const MOST_SETTING: usize = 8_192;

impl State {
    /// Whether they may change this task.
    pub(super) fn allow(&self, caller: &Caller, id: TaskId) -> Result<(), Trouble> {
        let owner = self.tasks.get(&id).map(|task| task.owner).ok_or_else(|| super::gone(id))?;
        if self.access.may_change(caller, owner) {
            return Ok(());
        }
        let what = format!("task `{}` belongs to user {owner}", self.name(id)?);
        Err(Trouble::NotAllowed { what, remedy: self.who_may() })
    }

    /// Whether they may add a process to a task: one that has none of its own. Where it is in a task as the child of
    /// another, or with a control group, that must be theirs to change, too.
    pub(super) fn allow_process(&self, caller: &Caller, process: &Process) -> Result<(), Trouble> {
        let number = process.identity().number;
        allow_owner(&self.access, caller, process)?;
        allow_broker(&[number])?;
        match self.kernel.whose(process) {
            Some((other, true)) => Err(self.has_a_task(number, other)),
            Some((other, false)) => self.allow(caller, other).map_err(|trouble| match trouble {
                Trouble::NotAllowed { what, remedy } => {
                    Trouble::NotAllowed { what: format!("process {number} is in a task, and {what}"), remedy }
                }
                trouble => trouble,
            }),
            None => Ok(()),
        }
    }

    /// Whether these processes, sorted, can come to a task with their control group: they have none, and are not the broker.
    pub(super) fn allow_numbers(&self, numbers: &[u32]) -> Result<(), Trouble> {
        if let Some((pid, other)) = self.kernel.one_of(numbers) {
            return Err(self.has_a_task(pid, other));
        }
        allow_broker(numbers)
    }

    fn has_a_task(&self, pid: u32, task: TaskId) -> Trouble {
        let what = format!("process {pid} belongs to task `{}` already", self.name(task).unwrap_or_default());
        Trouble::refused(what, "a process has one task; `hyoshi broker set` changes what that task asks for")
    }

    pub(super) fn allow_settings(&self, caller: &Caller, settings: &[Setting]) -> Result<(), Trouble> {
        if settings.len() > AdvocateChain::LONGEST {
            let (what, most) = (format!("{} advocates", settings.len()), AdvocateChain::LONGEST);
            return Err(Trouble::refused(what, format!("a task has {most} at most: leave some of them out")));
        }
        if let Some(octets) = settings.iter().map(Setting::size).find(|octets| *octets > MOST_SETTING) {
            let what = format!("an advocate is told in {octets} octets");
            return Err(Trouble::refused(what, format!("its kind and parameters have {MOST_SETTING} octets at most")));
        }
        settings.iter().try_for_each(|setting| self.allow_foreign(caller, setting))
    }

    /// In words, for those who may not.
    pub(super) fn who_may(&self) -> String {
        self.access.who_may()
    }
}

/// The broker, of this number, is no member of any task. Sorted.
fn allow_broker(numbers: &[u32]) -> Result<(), Trouble> {
    match numbers.binary_search(&std::process::id()) {
        Ok(_) => Err(Trouble::refused(
            "the broker cannot reserve time for itself",
            "it runs above all windows already, as far as the machine grants that",
        )),
        Err(_) => Ok(()),
    }
}

/// Whether a process is theirs to add to a task.
pub(super) fn allow_owner(access: &Access, caller: &Caller, process: &Process) -> Result<(), Trouble> {
    let pid = process.identity().number;
    let owner = process.owner().ok_or(NoProcess::Gone(pid))?;
    let own = caller.uid(access).is_some_and(|uid| owner.is_only(uid));
    if own || access.may_direct(caller) {
        return Ok(());
    }
    let (what, remedy) = if owner.real == owner.effective && owner.real == owner.saved {
        (format!("process {pid} ({}) belongs to user {}", process.name(), owner.real), access.who_may())
    } else {
        let what = format!("process {pid} ({}) has the rights of user {}", process.name(), owner.effective);
        (what, format!("setuid programs are for those to manage who may manage all; {}", access.who_may()))
    };
    Err(Trouble::NotAllowed { what, remedy })
}
