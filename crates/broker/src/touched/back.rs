//! What was changed is put back: a thread that has what only a window or bandwidth gives, and whoever was born in a window.

use std::collections::{BTreeMap, BTreeSet};

use hyoshi_os::Refused;
use hyoshi_os::priority;
use hyoshi_os::process::{Children, Identity, Process, threads_of};
use hyoshi_os::scheduling::{Affinity, Class, Scheduling};

use super::Before;
use crate::members::MOST_PROCESSES;

/// True if it was changed: a thread is ours only while it has what only we give, a window's priority or bandwidth, and
/// with it the flag that its children have neither. Whatever else it has by now is its own choice.
pub(super) fn put_back(before: &Before) -> Result<bool, Refused> {
    let tid = before.thread.number;
    if before.has_ended() {
        return Ok(false);
    }
    let ours = match Scheduling::of(tid) {
        Ok(Scheduling { class: Class::Fifo(at), reset_on_fork: true }) => priority::WINDOWS.contains(&at),
        Ok(Scheduling { class: Class::Deadline(_), reset_on_fork: true }) => true,
        _ => false,
    };
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
pub(super) fn kin<'a>(threads: impl Iterator<Item = &'a Before>) -> BTreeMap<Identity, Before> {
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
pub(super) fn unbind_born(noted: &BTreeSet<u32>, kin: BTreeMap<Identity, Before>) {
    let children = Children::default();
    let mut seen: BTreeSet<Identity> = kin.keys().copied().collect();
    let mut next: Vec<(Identity, Before)> = kin.into_iter().collect();
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
