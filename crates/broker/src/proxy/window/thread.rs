//! One thread in its window.

use hyoshi_os::process::identity_of_thread;
use hyoshi_os::scheduling::{Affinity, Scheduling, SchedulingClass, raise};
use hyoshi_os::{KernelRequest, Refused};

use crate::raised::{has_escaped, is_ours};
use crate::state_file::{SavedThread, StateFile};
use crate::task_processes::TaskThread;

/// The state of a thread.
///
/// A window's priority without a right to it is not the program's choice ([`crate::raised`]).
///
/// ```text
///              raise                      the program sets a real-time class
///   Lowered ────────────► Raised ───────────────────────────────────┐
///    ▲   ▲                  │ lower                                 ▼
///    │   ├──────────────────┤                                     ItsOwn
///    │   └── Elsewhere ◄────┘ raise: it may not run on the CPU      │
///    └──────────────────────────────────────────────────────────────┘ the program leaves that class
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadState {
    /// As before.
    Lowered,
    /// At the window's priority, on its CPU.
    Raised,
    /// At a real-time class that the program chose: not raised.
    ItsOwn,
    /// It may not run on the window's CPU: not raised.
    Elsewhere,
}

/// A thread with its saved scheduling.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowThread {
    pub before: SavedThread,
    pub state: ThreadState,
}

impl WindowThread {
    /// The thread as it is now; `None` if it has ended.
    pub(super) fn of(member: &TaskThread) -> Option<Self> {
        let thread = identity_of_thread(member.process.number, member.tid)?;
        let (scheduling, affinity) = (Scheduling::of(member.tid).ok()?, Affinity::of(member.tid).ok()?);
        let before = SavedThread { process: member.process, thread, scheduling, affinity, window: None };
        Some(WindowThread { before, state: ThreadState::Lowered })
    }

    /// A thread that a raised thread started may be bound to the window's CPU: restores the affinity of its siblings. A
    /// binding by the program itself is indistinguishable.
    pub(super) fn unbind(&mut self, cpu: u32, siblings: Option<Affinity>) {
        let here = Affinity::to([cpu]);
        if let Some(siblings) = siblings.filter(|siblings| *siblings != here && self.before.affinity == here)
            && siblings.put(self.before.thread.number).is_ok()
        {
            self.before.affinity = siblings;
        }
    }

    /// Raises it, or checks that it is raised. The priority changes first and is restored last, so that a thread is
    /// bound to the CPU only while it has the priority.
    pub(super) fn raise(&mut self, cpu: u32, at: u8, state_file: &mut StateFile) -> Result<(), Refused> {
        let tid = self.before.thread.number;
        let found = Scheduling::of(tid)?;
        let raised = self.state == ThreadState::Raised;
        if raised && found == window(at) {
            return Ok(());
        }
        let ours = self.has_ours(found);
        if !found.is_fair() && !ours {
            if raised {
                self.free(cpu)?;
            }
            (self.state, self.before.scheduling) = (ThreadState::ItsOwn, found);
            state_file.done(self.before.thread);
            return Ok(());
        }
        self.before.scheduling = match (ours, self.before.scheduling.is_fair()) {
            (false, _) => found,
            (true, true) => self.before.scheduling,
            (true, false) => Scheduling::ORDINARY,
        };
        if !raised && !ours {
            self.before.affinity = Affinity::of(tid)?;
        }
        if !self.before.affinity.has(cpu) {
            if ours {
                self.restore()?;
            }
            self.state = ThreadState::Elsewhere;
            return Ok(());
        }
        // The state file must contain each change first.
        self.before.window = Some(cpu);
        state_file.thread(self.before).map_err(|_| Refused { asked: KernelRequest::Cpu(cpu), errno: NOT_NOTED })?;
        raise(tid, at)?;
        self.state = ThreadState::Raised;
        let here = Affinity::to([cpu]);
        if self.before.affinity != here {
            here.put(tid)?;
        }
        Ok(())
    }

    /// Lowers it if it is raised and was bound to other CPUs since, which it keeps.
    pub(super) fn lower_if_bound_anew(&mut self, cpu: u32, state_file: &mut StateFile) {
        let here = Affinity::to([cpu]);
        if self.state == ThreadState::Raised && Affinity::of(self.before.thread.number).is_ok_and(|found| found != here)
        {
            // It stays in the state file and is sampled again.
            let _ = self.lower(cpu, state_file);
        }
    }

    /// Restores it, if it is as the window set it. If that fails, it stays raised and in the state file.
    pub(super) fn lower(&mut self, cpu: u32, state_file: &mut StateFile) -> Result<(), Refused> {
        if self.state != ThreadState::Raised {
            return Ok(());
        }
        let tid = self.before.thread.number;
        let lowered = self.free(cpu).and_then(|()| match self.has_ours(Scheduling::of(tid)?) {
            true => self.before.scheduling.restore(tid),
            false => Ok(()),
        });
        match lowered {
            Err(refused) if refused.is_gone() => {
                self.state = ThreadState::Lowered;
                state_file.done(self.before.thread);
                Ok(())
            }
            Err(refused) => Err(refused),
            Ok(()) => {
                self.state = ThreadState::Lowered;
                Ok(())
            }
        }
    }

    /// Lowers it for good, also if it has a window's priority without being known as raised.
    pub(super) fn leave(&mut self, cpu: u32, state_file: &mut StateFile) -> Result<(), Refused> {
        if self.state == ThreadState::Raised {
            return self.lower(cpu, state_file);
        }
        self.undo_escape()
    }

    /// Restores a thread that is not raised but has a window's priority.
    pub(super) fn undo_escape(&mut self) -> Result<(), Refused> {
        match Scheduling::of(self.before.thread.number) {
            Ok(found) if self.has_ours(found) => self.restore(),
            _ => Ok(()),
        }
    }

    /// A real-time class from before the task joined is the program's choice.
    pub(super) fn respect(&mut self) {
        if !self.before.scheduling.is_fair() {
            self.state = ThreadState::ItsOwn;
        }
    }

    /// The same for a thread that was not in the first list. A raised thread that executes a program gets the number of
    /// the first thread. If a list is read in between, the first thread has ended, and later appears as a new one with
    /// the priority of the window.
    pub(super) fn respect_unless_raised(&mut self) {
        let SavedThread { process, thread, scheduling, .. } = self.before;
        if has_escaped(scheduling, process, thread.number) {
            self.before.scheduling = Scheduling::ORDINARY;
        } else {
            self.respect();
        }
    }

    /// Whether its scheduling results from a window.
    fn has_ours(&self, found: Scheduling) -> bool {
        let SavedThread { process, thread, scheduling, .. } = self.before;
        match self.state {
            ThreadState::Raised => is_ours(found, process, thread.number),
            ThreadState::ItsOwn if found == scheduling => false,
            _ => has_escaped(found, process, thread.number),
        }
    }

    /// Restores its earlier scheduling, if that was ordinary.
    fn restore(&mut self) -> Result<(), Refused> {
        let tid = self.before.thread.number;
        let before = self.before.scheduling;
        // Without any of these CPUs in its cpuset, the kernel has already bound it to others.
        self.before
            .affinity
            .put(tid)
            .or_else(|refused| if refused.is_cpu_forbidden() { Ok(()) } else { Err(refused) })?;
        if before.is_fair() { before.restore(tid) } else { Scheduling::ORDINARY.restore(tid) }
    }

    /// Restores its affinity, unless the program has changed it.
    fn free(&mut self, cpu: u32) -> Result<(), Refused> {
        let tid = self.before.thread.number;
        if Affinity::of(tid)? == Affinity::to([cpu]) { self.before.affinity.put(tid) } else { Ok(()) }
    }
}

/// ENOSPC: the state file could not be written.
pub(super) const NOT_NOTED: i32 = 28;

fn window(at: u8) -> Scheduling {
    Scheduling { class: SchedulingClass::Fifo(at), reset_on_fork: true }
}
