//! One thread in and out of its window.

use hyoshi_os::process::identity_of_thread;
use hyoshi_os::scheduling::{Affinity, Class, Scheduling, raise};
use hyoshi_os::{Asked, Refused};

use crate::raised::{has_escaped, is_ours};
use crate::state_file::{SavedThread, StateFile};
use crate::task_processes::TaskThread;

/// What a thread is at present.
///
/// If it uses a window's priority without a right to it, that is not its own choice ([`crate::raised`]).
///
/// ```text
///              raise                      it takes a real-time class of its own
///   Lowered ────────────► Raised ───────────────────────────────────┐
///    ▲   ▲                  │ lower                                 ▼
///    │   ├──────────────────┤                                     Its own
///    │   └── Elsewhere ◄────┘ raise: it may not run there           │
///    └──────────────────────────────────────────────────────────────┘ it gives that up
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadState {
    /// As it was.
    Lowered,
    /// At the window's priority, on its CPU.
    Raised,
    /// At a real-time class that the program chose: left alone.
    ItsOwn,
    /// It may not run on the window's CPU: left alone.
    Elsewhere,
}

/// A thread, and what it is put back to.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowThread {
    pub before: SavedThread,
    pub state: ThreadState,
}

impl WindowThread {
    /// As it is now; `None` once it has ended.
    pub(super) fn of(member: &TaskThread) -> Option<Self> {
        let thread = identity_of_thread(member.process.number, member.tid)?;
        let (scheduling, affinity) = (Scheduling::of(member.tid).ok()?, Affinity::of(member.tid).ok()?);
        let before = SavedThread { process: member.process, thread, scheduling, affinity, window: None };
        Some(WindowThread { before, state: ThreadState::Lowered })
    }

    /// One that was born of a raised thread has inherited that it may run on the window's CPU alone: it may again where
    /// its kin may. Whether it was bound there by its program instead, nobody can tell.
    pub(super) fn unbind(&mut self, cpu: u32, kin: Option<Affinity>) {
        let here = Affinity::to([cpu]);
        if let Some(kin) = kin.filter(|kin| *kin != here && self.before.affinity == here)
            && kin.put(self.before.thread.number).is_ok()
        {
            self.before.affinity = kin;
        }
    }

    /// Raises it, or sees that it is still raised. The priority comes first and goes last, so that whoever is found
    /// with the priority, and nobody else, may be confined.
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
                self.put_back()?;
            }
            self.state = ThreadState::Elsewhere;
            return Ok(());
        }
        // Nothing is changed that is not on file.
        self.before.window = Some(cpu);
        state_file.thread(self.before).map_err(|_| Refused { asked: Asked::Cpu(cpu), errno: NOT_NOTED })?;
        raise(tid, at)?;
        self.state = ThreadState::Raised;
        let here = Affinity::to([cpu]);
        if self.before.affinity != here {
            here.put(tid)?;
        }
        Ok(())
    }

    /// Lowers it if it is raised and somebody has bound it to other CPUs since, which it keeps.
    pub(super) fn lower_if_bound_anew(&mut self, cpu: u32, state_file: &mut StateFile) {
        let here = Affinity::to([cpu]);
        if self.state == ThreadState::Raised && Affinity::of(self.before.thread.number).is_ok_and(|found| found != here)
        {
            // One that cannot be lowered is in the state file, and looked at again.
            let _ = self.lower(cpu, state_file);
        }
    }

    /// Puts it back, if it is still as the window made it. One that cannot be is raised still, and on file.
    pub(super) fn lower(&mut self, cpu: u32, state_file: &mut StateFile) -> Result<(), Refused> {
        if self.state != ThreadState::Raised {
            return Ok(());
        }
        let tid = self.before.thread.number;
        let lowered = self.free(cpu).and_then(|()| match self.has_ours(Scheduling::of(tid)?) {
            true => self.before.scheduling.put_back(tid),
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

    /// Lowers it for good, also if it is not known to be raised but has a window's priority.
    pub(super) fn leave(&mut self, cpu: u32, state_file: &mut StateFile) -> Result<(), Refused> {
        if self.state == ThreadState::Raised {
            return self.lower(cpu, state_file);
        }
        self.undo_escape()
    }

    /// A thread that is not raised has nothing from a window.
    pub(super) fn undo_escape(&mut self) -> Result<(), Refused> {
        match Scheduling::of(self.before.thread.number) {
            Ok(found) if self.has_ours(found) => self.put_back(),
            _ => Ok(()),
        }
    }

    /// A thread whose program had a real-time class before it joined: its own choice.
    pub(super) fn respect(&mut self) {
        if !self.before.scheduling.is_fair() {
            self.state = ThreadState::ItsOwn;
        }
    }

    /// Whether its scheduling comes from a window.
    fn has_ours(&self, found: Scheduling) -> bool {
        let SavedThread { process, thread, scheduling, .. } = self.before;
        match self.state {
            ThreadState::Raised => is_ours(found, process, thread.number),
            ThreadState::ItsOwn if found == scheduling => false,
            _ => has_escaped(found, process, thread.number),
        }
    }

    /// Its earlier scheduling, if that was ordinary.
    fn put_back(&mut self) -> Result<(), Refused> {
        let tid = self.before.thread.number;
        let before = self.before.scheduling;
        // If its cpuset has none of these CPUs any more, the kernel has bound it to others.
        self.before.affinity.put(tid).or_else(|refused| if refused.is_elsewhere() { Ok(()) } else { Err(refused) })?;
        if before.is_fair() { before.put_back(tid) } else { Scheduling::ORDINARY.put_back(tid) }
    }

    /// Lets it run where it could; where the program has pinned it meanwhile is its choice.
    fn free(&mut self, cpu: u32) -> Result<(), Refused> {
        let tid = self.before.thread.number;
        if Affinity::of(tid)? == Affinity::to([cpu]) { self.before.affinity.put(tid) } else { Ok(()) }
    }
}

/// ENOSPC: the state file could not be written.
pub(super) const NOT_NOTED: i32 = 28;

fn window(at: u8) -> Scheduling {
    Scheduling { class: Class::Fifo(at), reset_on_fork: true }
}
