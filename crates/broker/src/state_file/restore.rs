//! What was changed is put back: a thread that has what only a window or bandwidth gives, and whoever was born in a window.

use std::collections::{BTreeMap, BTreeSet};

use hyoshi_os::process::{Children, Identity, Process, identity_of_thread, is_same, threads_of};
use hyoshi_os::scheduling::{Affinity, Class, Scheduling};
use hyoshi_os::{Refused, allowed_cpus};

use super::{RestoreReport, SavedThread};
use crate::raised;
use crate::task_processes::MOST_PROCESSES;

/// True if it was changed. A thread is ours only while it has a window's priority or bandwidth, or what it can only
/// have derived from them ([`raised`]). Any other scheduling is its own choice.
pub(super) fn put_back(before: &SavedThread) -> Result<bool, Refused> {
    let tid = before.thread.number;
    if before.has_ended() {
        return Ok(false);
    }
    let ours = Scheduling::of(tid).is_ok_and(|found| match found.class {
        Class::Deadline(_) => found.reset_on_fork,
        _ => raised::is_ours(found, before.process, tid),
    });
    if !ours {
        return Ok(false);
    }
    // In the order of `lower`: affinity is ours only while the priority is. Where its cpuset has none of these CPUs any
    // more, that has bound it to others.
    let freed = before.affinity.put(tid).or_else(|refused| if refused.is_elsewhere() { Ok(()) } else { Err(refused) });
    match freed.and_then(|()| before.scheduling.put_back(tid)) {
        Ok(()) => Ok(true),
        Err(refused) if refused.is_gone() => Ok(false),
        Err(refused) => Err(refused),
    }
}

/// Of each process with threads in a window, one of them: the first, if it is noted.
pub(super) fn kin<'a>(threads: impl Iterator<Item = &'a SavedThread>) -> BTreeMap<Identity, SavedThread> {
    let mut kin = BTreeMap::new();
    for before in threads.filter(|before| before.window.is_some()) {
        let one = kin.entry(before.process).or_insert(*before);
        if before.thread == before.process {
            *one = *before;
        }
    }
    kin
}

/// Threads and children that were born in a window, and that nobody has looked at since, have inherited that they may run on its
/// CPU alone: they may again where their kin may, as the window itself would have it.
pub(super) fn unbind_born(noted: &BTreeSet<u32>, kin: BTreeMap<Identity, SavedThread>) {
    let children = Children::default();
    let mut seen: BTreeSet<Identity> = kin.keys().copied().collect();
    let mut next: Vec<(Identity, SavedThread)> = kin.into_iter().collect();
    while let Some((process, before)) = next.pop() {
        let Some(here) = before.window.map(|cpu| Affinity::to([cpu])).filter(|here| *here != before.affinity) else {
            continue;
        };
        for tid in threads_of(process, MOST_PROCESSES).into_iter().filter(|tid| !noted.contains(tid)) {
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

/// Processes that are looked through for it.
const MOST_UNBOUND: usize = 4 * MOST_PROCESSES;

/// Undoes changes of an earlier broker in these processes that no line records, as after damage to the file:
/// scheduling that only a window or bandwidth gives, unless the process may set it by itself. The thread's earlier
/// scheduling is unknown, so it becomes ordinary. If it was bound to one CPU, as in a window, it may run on all of the
/// broker's CPUs.
pub fn restore_unrecorded(processes: impl IntoIterator<Item = Identity>) -> RestoreReport {
    let mut report = RestoreReport::default();
    for process in processes {
        for tid in threads_of(process, MOST_PROCESSES) {
            let Ok(found) = Scheduling::of(tid) else { continue };
            if !raised::is_left_over(found, process, tid) || identity_of_thread(process.number, tid).is_none() {
                continue;
            }
            if Affinity::of(tid).is_ok_and(|affinity| affinity.cpus().nth(1).is_none()) {
                // If its cpuset has none of them, its CPUs stay.
                let _ = Affinity::to(allowed_cpus()).put(tid);
            }
            match Scheduling::ORDINARY.put_back(tid) {
                Ok(()) => report.threads += 1,
                Err(refused) if refused.is_gone() || !is_same(process) => {}
                Err(refused) => report.failed.push(format!("thread {tid} of process {process}: {refused}")),
            }
        }
    }
    report
}
