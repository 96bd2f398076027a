//! Who belongs to a task: its processes with all their threads, the children they start, and what all of them consume.

use std::io;

use hyoshi_model::Span;
use hyoshi_os::meter::{Meter, Source};
use hyoshi_os::process::{Identity, NoProcess, Process, children_by_parent, start_of_now};

/// The processes of one task. Threads and children that are born join; those that end leave.
///
/// Children are found by their parents, so one whose parent ended before it was seen (a daemon that forks twice within
/// a moment) stays outside; what it consumes is counted all the same where the task clock is.
#[derive(Debug)]
pub struct Members {
    processes: Vec<Process>,
    /// Those of which the first thread has ended while others go on.
    headless: Vec<Identity>,
    threads: Vec<Member>,
    meter: Meter,
    scratch: Vec<u32>,
    /// When processes of control groups were looked for last, as starts of processes have it.
    gathered: u64,
}

/// A thread of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// The kernel's number of it.
    pub tid: u32,
    /// Its process.
    pub process: Identity,
}

/// No task has more processes than this; further children stay outside.
pub const MOST_PROCESSES: usize = 4096;

impl Members {
    /// Nobody, metered as freshly as the kernel lets us.
    pub fn new() -> Self {
        let (processes, headless, threads) = (Vec::new(), Vec::new(), Vec::new());
        Members { processes, headless, threads, meter: Meter::new(), scratch: Vec::new(), gathered: 0 }
    }

    /// A process joins, with the children it has.
    ///
    /// # Errors
    ///
    /// If it has ended meanwhile.
    pub fn add(&mut self, process: Process) -> Result<(), NoProcess> {
        if process.has_ended() {
            return Err(NoProcess::Gone(process.identity().number));
        }
        if self.has(process.identity()) || self.processes.len() >= MOST_PROCESSES {
            return Ok(());
        }
        let children = process.children().unwrap_or_default();
        self.meter.add(&process, false);
        if process.first_thread_has_ended() {
            self.headless.push(process.identity());
        }
        self.processes.push(process);
        for child in children {
            if let Ok(child) = Process::open(child) {
                // Started before its parent was metered, so it has a counter of its own.
                let _ = self.add(child);
            }
        }
        self.look_at_threads();
        Ok(())
    }

    /// Sees which threads there are now. 1 us a process and 0.3 us a thread.
    pub fn look_at_threads(&mut self) {
        self.threads.clear();
        for process in &self.processes {
            process.threads(&mut self.scratch);
            let process = process.identity();
            let ended = self.headless.contains(&process).then_some(process.number);
            let live = self.scratch.iter().filter(|tid| Some(**tid) != ended);
            self.threads.extend(live.map(|tid| Member { tid: *tid, process }));
        }
        self.threads.sort_unstable();
    }

    /// Sees which processes have ended and which were started since. 3 us a thread, so not at every look. A process
    /// whose first thread has ended lives as long as another: it is that thread alone which is not there any more.
    pub fn look_at_processes(&mut self) {
        let before = self.processes.len();
        self.processes.retain(|process| !process.has_ended());
        if self.processes.len() < before {
            self.meter.forget_ended();
        }
        let headless = self.processes.iter().filter(|process| process.first_thread_has_ended());
        self.headless = headless.map(Process::identity).collect();
        let mut at = 0;
        // Children of children come in the same round: they are appended.
        while at < self.processes.len() {
            let children = match self.processes[at].children() {
                Ok(children) => children,
                Err(error) if error.kind() == io::ErrorKind::NotFound => children_of(&self.processes[at]),
                Err(_) => Vec::new(),
            };
            for child in children {
                if self.processes.len() >= MOST_PROCESSES {
                    return;
                }
                if self.processes.iter().any(|process| process.identity().number == child) {
                    continue;
                }
                if let Ok(child) = Process::open(child) {
                    self.meter.add(&child, true);
                    self.processes.push(child);
                }
            }
            at += 1;
        }
    }

    /// The processes of a control group join, those that are not here yet and may. A process that was started since the
    /// last time by one that is here is metered with that, also where it has lost its parent since: it is in the same
    /// session, which a process that was moved into the group or started there from elsewhere is not.
    pub fn gather(&mut self, numbers: &[u32], may: &mut dyn FnMut(&Process) -> bool) {
        let sessions: Vec<u32> = self.processes.iter().map(Process::session).collect();
        let before = std::mem::replace(&mut self.gathered, start_of_now());
        self.look_at_processes();
        for number in numbers {
            if self.processes.len() >= MOST_PROCESSES {
                return;
            }
            if self.processes.iter().any(|process| process.identity().number == *number) {
                continue;
            }
            let Ok(process) = Process::open(*number) else { continue };
            if may(&process) {
                let born = process.identity().start >= before && sessions.contains(&process.session());
                self.meter.add(&process, born);
                self.processes.push(process);
            }
        }
    }

    /// The threads of the last look, in the order of their numbers.
    pub fn threads(&self) -> &[Member] {
        &self.threads
    }

    /// The processes of the last look.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter()
    }

    /// True once all processes have ended.
    pub fn all_ended(&self) -> bool {
        self.processes.iter().all(Process::has_ended)
    }

    /// What all of them have consumed since they joined, those that have ended too.
    pub fn consumed(&mut self) -> Span {
        self.meter.read()
    }

    /// How it is known what they consume.
    pub fn source(&self) -> Source {
        self.meter.source()
    }

    fn has(&self, identity: Identity) -> bool {
        self.processes.iter().any(|process| process.identity() == identity)
    }
}

impl Default for Members {
    fn default() -> Self {
        Members::new()
    }
}

/// For kernels without CONFIG_PROC_CHILDREN.
fn children_of(process: &Process) -> Vec<u32> {
    let parent = process.identity().number;
    children_by_parent().into_iter().filter_map(|(of, pid)| (of == parent).then_some(pid)).collect()
}
