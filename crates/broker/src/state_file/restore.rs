//! Restores threads with a window's priority or bandwidth, and threads that started in a window.

use std::collections::{BTreeMap, BTreeSet};

use hyoshi_os::process::{Children, Process, ProcessIdentity, identity_of_thread, is_same, threads_of};
use hyoshi_os::scheduling::{Affinity, Scheduling, SchedulingClass};
use hyoshi_os::{Refused, allowed_cpus};

use super::{RestoreReport, SavedThread};
use crate::raised;
use crate::task_processes::MOST_PROCESSES;

/// True if it was changed. A thread has the broker's scheduling only if it has a window's priority or bandwidth, or a
/// scheduling that it can only have derived from them ([`raised`]). Any other scheduling is its own choice.
pub(super) fn restore(before: &SavedThread) -> Result<bool, Refused> {
    let tid = before.thread.number;
    if before.has_ended() {
        return Ok(false);
    }
    let ours = Scheduling::of(tid).is_ok_and(|found| match found.class {
        SchedulingClass::Deadline(_) => found.reset_on_fork,
        _ => raised::is_ours(found, before.process, tid),
    });
    if !ours {
        return Ok(false);
    }
    // In the order of `lower`: the affinity is the broker's only while the priority is. Without any of these CPUs in
    // its cpuset, the kernel has already bound it to others.
    let freed =
        before.affinity.put(tid).or_else(|refused| if refused.is_cpu_forbidden() { Ok(()) } else { Err(refused) });
    match freed.and_then(|()| before.scheduling.restore(tid)) {
        Ok(()) => Ok(true),
        Err(refused) if refused.is_gone() => Ok(false),
        Err(refused) => Err(refused),
    }
}

/// One recorded thread for each process with threads in a window; the first thread, if recorded.
pub(super) fn siblings<'a>(threads: impl Iterator<Item = &'a SavedThread>) -> BTreeMap<ProcessIdentity, SavedThread> {
    let mut siblings = BTreeMap::new();
    for before in threads.filter(|before| before.window.is_some()) {
        let one = siblings.entry(before.process).or_insert(*before);
        if before.thread == before.process {
            *one = *before;
        }
    }
    siblings
}

/// Threads and children that started in a window and were never sampled are still bound to its CPU: restores the
/// affinity of their siblings, as the window would.
pub(super) fn unbind_started(recorded: &BTreeSet<u32>, siblings: BTreeMap<ProcessIdentity, SavedThread>) {
    let children = Children::default();
    let mut seen: BTreeSet<ProcessIdentity> = siblings.keys().copied().collect();
    let mut next: Vec<(ProcessIdentity, SavedThread)> = siblings.into_iter().collect();
    while let Some((process, before)) = next.pop() {
        let Some(here) = before.window.map(|cpu| Affinity::to([cpu])).filter(|here| *here != before.affinity) else {
            continue;
        };
        for tid in threads_of(process, MOST_PROCESSES).into_iter().filter(|tid| !recorded.contains(tid)) {
            if Affinity::of(tid).is_ok_and(|found| found == here) {
                let _ = before.affinity.put(tid);
            }
        }
        let Ok(open) = Process::open_same(process) else { continue };
        for child in children.of(&open) {
            let Ok(child) = Process::open(child).map(|child| child.identity()) else { continue };
            if seen.len() < MOST_UNBOUND && seen.insert(child) {
                next.push((child, before));
            }
        }
    }
}

/// Most processes to check for them.
const MOST_UNBOUND: usize = 4 * MOST_PROCESSES;

/// Undoes unrecorded changes of an earlier broker in these processes, as after damage to the file: scheduling that only
/// a window or bandwidth explains, unless the process may set it by itself. The thread's earlier scheduling is unknown,
/// so it becomes ordinary. If it was bound to one CPU, as in a window, it may run on all of the broker's CPUs.
pub fn restore_unrecorded(processes: impl IntoIterator<Item = ProcessIdentity>) -> RestoreReport {
    let mut report = RestoreReport::default();
    for process in processes {
        for tid in threads_of(process, MOST_PROCESSES) {
            let Ok(found) = Scheduling::of(tid) else { continue };
            if !raised::is_left_over(found, process, tid) || identity_of_thread(process.number, tid).is_none() {
                continue;
            }
            if Affinity::of(tid).is_ok_and(|affinity| affinity.cpus().nth(1).is_none()) {
                // Without any of them in its cpuset, its CPUs stay.
                let _ = Affinity::to(allowed_cpus()).put(tid);
            }
            match Scheduling::ORDINARY.restore(tid) {
                Ok(()) => report.threads += 1,
                Err(refused) if refused.is_gone() || !is_same(process) => {}
                Err(refused) => report.failed.push(format!("thread {tid} of process {process}: {refused}")),
            }
        }
    }
    report
}
