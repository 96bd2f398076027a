//! Wake-ups of tasks' threads, from the kernel to what finds their periods. A thread of its own looks for them, below all
//! windows: neither these nor whoever asks the broker wait for it.
//!
//! ```text
//!   Watching ── wake-ups, threads ──► Slot of the task ──► Finder (while the broker's state is locked)
//!      ▲                                   │
//!      └───────────── processes ───────────┘
//! ```
//!
//! No more is watched than a limit for all tasks; whom there is nothing left for waits ([`share_out`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use hyoshi_control::period::watch_budget::{WatchDemand, share_out};
use hyoshi_control::{Finder, TaskId};
use hyoshi_model::{Instant, Span};
use hyoshi_os::process::{ProcessIdentity, threads_of};
use hyoshi_os::wakeups::{Wakeups, Woken};
use hyoshi_os::{Clock, MonotonicClock, PiMutex, Spawn, SpawnedThread, ThreadPolicy, Wake, priority};

use crate::kernel::Watching;
use crate::members::Members;

/// Threads of all tasks whose switches are recorded; where samples are taken, one counts as much as eight.
pub(crate) const MOST_WATCHED: usize = 256;

/// How often it is looked which threads a task has, and how much each has computed.
const THREADS: Span = Span::from_millis(250);
/// Such looks take at most one part in so many of the time,
const LOOK_SHARE: u64 = 20;
/// and further threads of a task are not looked at.
const MOST_LOOKED_AT: usize = 1_024;
/// What waits to be heard of one task; if it is more, all of it is lost.
const MOST_HEARD: usize = 16_384;

/// See the module.
#[derive(Debug)]
pub(crate) struct Watches {
    desk: Arc<Desk>,
    limit: usize,
    thread: Option<SpawnedThread<()>>,
}

#[derive(Debug, Default)]
struct Desk {
    tray: PiMutex<Tray>,
    wake: Wake,
}

#[derive(Debug, Default)]
struct Tray {
    tasks: BTreeMap<TaskId, Slot>,
    /// Tasks or their processes are others than the thread knows.
    changed: bool,
    ends: bool,
}

/// What is known of a task on both sides.
#[derive(Debug, Default)]
struct Slot {
    owner: u32,
    processes: Arc<[ProcessIdentity]>,
    standing: Watching,
    /// Wake-ups are seen otherwise than before: what was found until then is of no use.
    anew: bool,
    /// Sorted.
    watched: Vec<u32>,
    heard: Vec<(u32, Woken)>,
}

impl Watches {
    /// Of nobody yet; of so many threads at most.
    pub fn new(limit: usize) -> Watches {
        Watches { desk: Arc::default(), limit, thread: None }
    }

    /// A task of this user's is watched from now on.
    pub fn watch(&mut self, task: TaskId, owner: u32) {
        {
            let mut tray = self.desk.tray.lock();
            tray.tasks.entry(task).or_default().owner = owner;
            tray.changed = true;
        }
        if self.thread.is_none() {
            let (desk, limit) = (self.desk.clone(), self.limit);
            let below = ThreadPolicy::Fifo(priority::WINDOWS.start() - 1);
            // Without a thread, tasks wait, and are told so.
            self.thread = Spawn::new("wake-ups").policy(below).spawn(move || Attention::new(limit).pay(&desk)).ok();
        }
        self.desk.wake.post();
    }

    /// And no more.
    pub fn unwatch(&mut self, task: TaskId) {
        let mut tray = self.desk.tray.lock();
        if tray.tasks.remove(&task).is_some() {
            tray.changed = true;
            drop(tray);
            self.desk.wake.post();
        }
    }

    /// Hands over to `finder` what was seen since the last time.
    pub fn hear(&self, task: TaskId, members: Option<&Members>, finder: &mut Finder) -> Watching {
        let (standing, anew, watched, heard) = {
            let mut tray = self.desk.tray.lock();
            let Tray { tasks, changed, .. } = &mut *tray;
            let Some(slot) = tasks.get_mut(&task) else { return Watching::Not };
            let there = || members.into_iter().flat_map(Members::processes).map(|process| process.identity());
            if !slot.processes.iter().copied().eq(there()) {
                (slot.processes, *changed) = (there().collect(), true);
            }
            let heard = std::mem::take(&mut slot.heard);
            (slot.standing, std::mem::take(&mut slot.anew), slot.watched.clone(), heard)
        };
        if let (true, Watching::By(seen)) = (anew, standing) {
            *finder = Finder::new(seen.shortest());
        }
        finder.keep(&watched);
        for (thread, woken) in heard {
            match woken {
                Woken::At(at) => finder.woke(thread, at),
                Woken::Ran(span) => finder.ran(thread, span),
                Woken::Lost => finder.lost(thread),
            }
        }
        if self.thread.is_none() { Watching::Waits } else { standing }
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.desk.tray.lock().ends = true;
        self.desk.wake.post();
        // A panic of the thread would have been told by itself.
        let _ = self.thread.take().map(SpawnedThread::join);
    }
}

/// What the thread knows.
struct Attention {
    limit: usize,
    clock: MonotonicClock,
    tasks: BTreeMap<TaskId, Watched>,
    /// Threads are not looked for before.
    rest: Instant,
}

#[derive(Debug, Default)]
struct Watched {
    owner: u32,
    processes: Arc<[ProcessIdentity]>,
    wakeups: Wakeups,
    /// How many threads it has, and how many of them are to be watched.
    there: usize,
    given: usize,
    /// What is to be handed over.
    changed: bool,
    anew: bool,
    heard: Vec<(u32, Woken)>,
    /// When threads are looked for again, and wake-ups.
    look: Instant,
    collect: Instant,
}

impl Attention {
    fn new(limit: usize) -> Attention {
        Attention { limit, clock: MonotonicClock::start(), tasks: BTreeMap::new(), rest: Instant::ZERO }
    }

    fn pay(&mut self, desk: &Desk) {
        while self.take(&mut desk.tray.lock()) {
            let next = self.look_at_threads().min(self.collect());
            self.hand_over(&mut desk.tray.lock());
            desk.wake.wait_until(&self.clock, next);
        }
    }

    /// Whom there is to watch now. False at the end.
    fn take(&mut self, tray: &mut Tray) -> bool {
        if std::mem::take(&mut tray.changed) {
            self.tasks.retain(|task, _| tray.tasks.contains_key(task));
            for (task, slot) in &tray.tasks {
                let watched = self.tasks.entry(*task).or_default();
                (watched.owner, watched.processes) = (slot.owner, slot.processes.clone());
            }
            self.share_out();
        }
        !tray.ends
    }

    /// What was seen, to whoever hears of it.
    fn hand_over(&mut self, tray: &mut Tray) {
        for (task, watched) in self.tasks.iter_mut().filter(|(_, watched)| watched.changed || !watched.heard.is_empty())
        {
            if let Some(slot) = tray.tasks.get_mut(task) {
                watched.hand_over(slot);
            }
        }
    }

    fn share_out(&mut self) {
        let wishes: Vec<WatchDemand> = self.tasks.values().map(Watched::wish).collect();
        let given = share_out(self.limit, &wishes);
        for (watched, given) in self.tasks.values_mut().zip(given) {
            if given < watched.given {
                // At once: others are waiting for it.
                watched.look = Instant::ZERO;
            }
            watched.given = given;
        }
    }

    /// One task at a time. Returns when to look at the next.
    fn look_at_threads(&mut self) -> Instant {
        let now = self.clock.now();
        let next = |tasks: &BTreeMap<TaskId, Watched>| {
            tasks.iter().map(|(task, watched)| (watched.look, *task)).min().unwrap_or((Instant::NEVER, TaskId(0)))
        };
        let (due, task) = next(&self.tasks);
        if due > now || self.rest > now {
            return due.max(self.rest);
        }
        let others: usize = self.tasks.iter().filter(|(id, _)| **id != task).map(|(_, one)| one.wakeups.cost()).sum();
        if let Some(watched) = self.tasks.get_mut(&task) {
            let before = watched.wish();
            watched.look_at_threads(self.limit.saturating_sub(others));
            watched.look = now.saturating_add(THREADS);
            if watched.wish() != before {
                self.share_out();
            }
        }
        let done = self.clock.now();
        self.rest = done.saturating_add(done.since(now) * LOOK_SHARE);
        next(&self.tasks).0.max(self.rest)
    }

    /// Returns when to do so again.
    fn collect(&mut self) -> Instant {
        let now = self.clock.now();
        for watched in self.tasks.values_mut().filter(|watched| watched.wakeups.cost() > 0) {
            if watched.collect <= now {
                watched.collect = now.saturating_add(watched.wakeups.source().every());
                let heard = &mut watched.heard;
                watched.wakeups.collect(now, &mut |thread, woken| heard.push((thread, woken)));
            }
        }
        let watched = self.tasks.values().filter(|watched| watched.wakeups.cost() > 0);
        watched.map(|watched| watched.collect).min().unwrap_or(Instant::NEVER)
    }
}

impl Watched {
    fn wish(&self) -> WatchDemand {
        let seen = self.wakeups.source();
        WatchDemand { user: self.owner, threads: self.there.min(seen.most()), cost: seen.cost() }
    }

    /// Watches as many as are given, and as there is room for.
    fn look_at_threads(&mut self, room: usize) {
        let mut threads = Vec::new();
        for process in self.processes.iter() {
            let left = MOST_LOOKED_AT - threads.len();
            threads.extend(threads_of(*process, left).into_iter().map(|thread| (process.number, thread)));
        }
        (self.there, self.changed) = (threads.len(), true);
        let most = self.given.min(room / self.wakeups.source().cost());
        if most == 0 {
            threads.clear();
        }
        let heard = &mut self.heard;
        if self.wakeups.watch(&threads, most, &mut |thread, woken| heard.push((thread, woken))) {
            (self.anew, self.heard) = (true, Vec::new());
        }
    }

    fn hand_over(&mut self, slot: &mut Slot) {
        self.changed = false;
        if std::mem::take(&mut self.anew) {
            (slot.anew, slot.heard) = (true, Vec::new());
        }
        slot.standing = match self.there > 0 && self.wakeups.cost() == 0 && self.given == 0 {
            true => Watching::Waits,
            false => Watching::By(self.wakeups.source()),
        };
        slot.watched = self.wakeups.watched();
        slot.heard.append(&mut self.heard);
        if slot.heard.len() > MOST_HEARD {
            slot.heard = slot.watched.iter().map(|thread| (*thread, Woken::Lost)).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use hyoshi_os::process::Process;
    use hyoshi_os::wakeups::WakeupSource;

    use super::*;

    struct Napper(Child, Members);

    impl Napper {
        fn start() -> Napper {
            let child = Command::new("sh").args(["-c", "while sleep 0.01; do :; done"]).spawn().unwrap();
            let mut members = Members::new();
            members.add(Process::open(child.id()).unwrap()).unwrap();
            Napper(child, members)
        }
    }

    impl Drop for Napper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn for_whom_nothing_is_left_waits_and_users_have_equal_parts() {
        let mut watches = Watches::new(2);
        let nappers: Vec<Napper> = (0..3).map(|_| Napper::start()).collect();
        let mut finders: Vec<Finder> = (0..3).map(|_| Finder::new(WakeupSource::Switches.shortest())).collect();
        // Two of one user's, then one of another's.
        for (task, owner) in [(0, 1000), (1, 1000), (2, 2000)] {
            watches.watch(TaskId(task), owner);
        }
        let mut until = |watches: &Watches, wanted: [Option<bool>; 3]| {
            for _ in 0..3_000 {
                let mut hear =
                    |task: usize| watches.hear(TaskId(task as u32), Some(&nappers[task].1), &mut finders[task]);
                let standing = [0, 1, 2].map(&mut hear);
                let is = standing.map(|standing| match standing {
                    Watching::Not => None,
                    Watching::Waits => Some(false),
                    Watching::By(_) => Some(true),
                });
                let heard = (0..3).all(|task| wanted[task] != Some(true) || finders[task].seen() > 3);
                if standing.contains(&Watching::By(WakeupSource::Samples)) {
                    eprintln!("not tested: records of switches are refused here");
                    return;
                }
                if is == wanted && heard {
                    return;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            panic!("it does not become {wanted:?}");
        };
        until(&watches, [Some(true), Some(false), Some(true)]);
        watches.unwatch(TaskId(0));
        until(&watches, [None, Some(true), Some(true)]);
        watches.watch(TaskId(0), 1000);
        watches.unwatch(TaskId(2));
        until(&watches, [Some(true), Some(true), None]);
    }
}
