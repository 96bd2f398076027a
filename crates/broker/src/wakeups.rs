//! Observes the wake-ups of tasks' threads for the detection of periods, in a thread below all windows: neither windows
//! nor clients wait for it.
//!
//! ```text
//!   WakeupWatcher ── wake-ups, threads ──► TaskWakeups ──► Finder (while the broker's state is locked)
//!      ▲                                       │
//!      └────────────── processes ──────────────┘
//! ```
//!
//! The number of observed threads is limited for all tasks together; tasks beyond it wait ([`share_out`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use hyoshi_control::period::watch_budget::{WatchDemand, share_out};
use hyoshi_control::{Finder, TaskId};
use hyoshi_model::{Instant, Span};
use hyoshi_os::process::{ProcessIdentity, threads_of};
use hyoshi_os::wakeups::{Wakeups, Woken};
use hyoshi_os::{Clock, MonotonicClock, PiMutex, Spawn, SpawnedThread, ThreadPolicy, Wake, priority};

use crate::platform::WakeupWatch;
use crate::task_processes::TaskProcesses;

/// Observed threads of all tasks; with sampling, one counts as eight.
pub(crate) const MOST_WATCHED: usize = 256;

/// How often the threads of a task and their consumption are listed.
const THREADS: Span = Span::from_millis(250);
/// Lists use at most this part of the time.
const LIST_SHARE: u64 = 20;
/// Most listed threads of a task.
const MOST_LISTED: usize = 1_024;
/// Queued wake-ups of one task; beyond it, all of them are dropped.
const MOST_EVENTS: usize = 16_384;

/// See the module.
#[derive(Debug)]
pub(crate) struct WakeupWatches {
    mailbox: Arc<WatchMailbox>,
    limit: usize,
    thread: Option<SpawnedThread<()>>,
}

#[derive(Debug, Default)]
struct WatchMailbox {
    shared: PiMutex<WatchedTasks>,
    wake: Wake,
}

#[derive(Debug, Default)]
struct WatchedTasks {
    tasks: BTreeMap<TaskId, TaskWakeups>,
    /// The thread must read the tasks and processes again.
    changed: bool,
    ends: bool,
}

/// The shared part of a task.
#[derive(Debug, Default)]
struct TaskWakeups {
    owner: u32,
    processes: Arc<[ProcessIdentity]>,
    status: WakeupWatch,
    /// The method has changed: earlier wake-ups do not count.
    restarted: bool,
    /// Sorted.
    watched: Vec<u32>,
    events: Vec<(u32, Woken)>,
}

impl WakeupWatches {
    /// Without tasks; `limit` bounds the observed threads.
    pub fn new(limit: usize) -> WakeupWatches {
        WakeupWatches { mailbox: Arc::default(), limit, thread: None }
    }

    /// Observes a task of this user.
    pub fn watch(&mut self, task: TaskId, owner: u32) {
        {
            let mut shared = self.mailbox.shared.lock();
            shared.tasks.entry(task).or_default().owner = owner;
            shared.changed = true;
        }
        if self.thread.is_none() {
            let (mailbox, limit) = (self.mailbox.clone(), self.limit);
            let below = ThreadPolicy::Fifo(priority::WINDOWS.start() - 1);
            // Without a thread, tasks stay in `Waiting`.
            self.thread =
                Spawn::new("wake-ups").policy(below).spawn(move || WakeupWatcher::new(limit).run(&mailbox)).ok();
        }
        self.mailbox.wake.post();
    }

    /// Stops observing a task.
    pub fn unwatch(&mut self, task: TaskId) {
        let mut shared = self.mailbox.shared.lock();
        if shared.tasks.remove(&task).is_some() {
            shared.changed = true;
            drop(shared);
            self.mailbox.wake.post();
        }
    }

    /// Passes the observed wake-ups since the last call to `finder`.
    pub fn collect_into(&self, task: TaskId, members: Option<&TaskProcesses>, finder: &mut Finder) -> WakeupWatch {
        let (status, restarted, watched, events) = {
            let mut shared = self.mailbox.shared.lock();
            let WatchedTasks { tasks, changed, .. } = &mut *shared;
            let Some(entry) = tasks.get_mut(&task) else { return WakeupWatch::Off };
            let there = || members.into_iter().flat_map(TaskProcesses::processes).map(|process| process.identity());
            if !entry.processes.iter().copied().eq(there()) {
                (entry.processes, *changed) = (there().collect(), true);
            }
            let events = std::mem::take(&mut entry.events);
            (entry.status, std::mem::take(&mut entry.restarted), entry.watched.clone(), events)
        };
        if let (true, WakeupWatch::By(seen)) = (restarted, status) {
            *finder = Finder::new(seen.shortest());
        }
        finder.keep(&watched);
        for (thread, woken) in events {
            match woken {
                Woken::At(at) => finder.woke(thread, at),
                Woken::Ran(span) => finder.ran(thread, span),
                Woken::Lost => finder.lost(thread),
            }
        }
        if self.thread.is_none() { WakeupWatch::Waiting } else { status }
    }
}

impl Drop for WakeupWatches {
    fn drop(&mut self) {
        self.mailbox.shared.lock().ends = true;
        self.mailbox.wake.post();
        // A panic of the thread has already been reported.
        let _ = self.thread.take().map(SpawnedThread::join);
    }
}

/// The state of the thread.
struct WakeupWatcher {
    limit: usize,
    clock: MonotonicClock,
    tasks: BTreeMap<TaskId, WatchedTask>,
    /// The earliest next list.
    rest: Instant,
}

#[derive(Debug, Default)]
struct WatchedTask {
    owner: u32,
    processes: Arc<[ProcessIdentity]>,
    wakeups: Wakeups,
    /// Number of its threads, and of those to observe.
    there: usize,
    granted: usize,
    /// The shared part must be updated.
    changed: bool,
    restarted: bool,
    events: Vec<(u32, Woken)>,
    /// The next list of threads, and the next collection.
    look: Instant,
    collect: Instant,
}

impl WakeupWatcher {
    fn new(limit: usize) -> WakeupWatcher {
        WakeupWatcher { limit, clock: MonotonicClock::start(), tasks: BTreeMap::new(), rest: Instant::ZERO }
    }

    fn run(&mut self, mailbox: &WatchMailbox) {
        while self.take(&mut mailbox.shared.lock()) {
            let next = self.list_threads().min(self.collect());
            self.publish(&mut mailbox.shared.lock());
            mailbox.wake.wait_until(&self.clock, next);
        }
    }

    /// Reads the tasks to observe. False at the end.
    fn take(&mut self, shared: &mut WatchedTasks) -> bool {
        if std::mem::take(&mut shared.changed) {
            self.tasks.retain(|task, _| shared.tasks.contains_key(task));
            for (task, entry) in &shared.tasks {
                let watched = self.tasks.entry(*task).or_default();
                (watched.owner, watched.processes) = (entry.owner, entry.processes.clone());
            }
            self.share_out();
        }
        !shared.ends
    }

    /// Passes wake-ups to the shared part.
    fn publish(&mut self, shared: &mut WatchedTasks) {
        for (task, watched) in
            self.tasks.iter_mut().filter(|(_, watched)| watched.changed || !watched.events.is_empty())
        {
            if let Some(entry) = shared.tasks.get_mut(task) {
                watched.publish(entry);
            }
        }
    }

    fn share_out(&mut self) {
        let wishes: Vec<WatchDemand> = self.tasks.values().map(WatchedTask::wish).collect();
        let granted = share_out(self.limit, &wishes);
        for (watched, granted) in self.tasks.values_mut().zip(granted) {
            if granted < watched.granted {
                // At once, because other tasks wait for the threads.
                watched.look = Instant::ZERO;
            }
            watched.granted = granted;
        }
    }

    /// Lists the threads of one task. Returns when the next is due.
    fn list_threads(&mut self) -> Instant {
        let now = self.clock.now();
        let next = |tasks: &BTreeMap<TaskId, WatchedTask>| {
            tasks.iter().map(|(task, watched)| (watched.look, *task)).min().unwrap_or((Instant::NEVER, TaskId(0)))
        };
        let (due, task) = next(&self.tasks);
        if due > now || self.rest > now {
            return due.max(self.rest);
        }
        let others: usize = self.tasks.iter().filter(|(id, _)| **id != task).map(|(_, one)| one.wakeups.cost()).sum();
        if let Some(watched) = self.tasks.get_mut(&task) {
            let before = watched.wish();
            watched.list_threads(self.limit.saturating_sub(others));
            watched.look = now.saturating_add(THREADS);
            if watched.wish() != before {
                self.share_out();
            }
        }
        let done = self.clock.now();
        self.rest = done.saturating_add(done.since(now) * LIST_SHARE);
        next(&self.tasks).0.max(self.rest)
    }

    /// Collects wake-ups. Returns when the next collection is due.
    fn collect(&mut self) -> Instant {
        let now = self.clock.now();
        for watched in self.tasks.values_mut().filter(|watched| watched.wakeups.cost() > 0) {
            if watched.collect <= now {
                watched.collect = now.saturating_add(watched.wakeups.source().every());
                let events = &mut watched.events;
                watched.wakeups.collect(now, &mut |thread, woken| events.push((thread, woken)));
            }
        }
        let watched = self.tasks.values().filter(|watched| watched.wakeups.cost() > 0);
        watched.map(|watched| watched.collect).min().unwrap_or(Instant::NEVER)
    }
}

impl WatchedTask {
    fn wish(&self) -> WatchDemand {
        let seen = self.wakeups.source();
        WatchDemand { user: self.owner, threads: self.there.min(seen.most()), cost: seen.cost() }
    }

    /// Observes its part of the threads, within `room`.
    fn list_threads(&mut self, room: usize) {
        let mut threads = Vec::new();
        for process in self.processes.iter() {
            let left = MOST_LISTED - threads.len();
            threads.extend(threads_of(*process, left).into_iter().map(|thread| (process.number, thread)));
        }
        (self.there, self.changed) = (threads.len(), true);
        let most = self.granted.min(room / self.wakeups.source().cost());
        if most == 0 {
            threads.clear();
        }
        let events = &mut self.events;
        if self.wakeups.watch(&threads, most, &mut |thread, woken| events.push((thread, woken))) {
            (self.restarted, self.events) = (true, Vec::new());
        }
    }

    fn publish(&mut self, entry: &mut TaskWakeups) {
        self.changed = false;
        if std::mem::take(&mut self.restarted) {
            (entry.restarted, entry.events) = (true, Vec::new());
        }
        entry.status = match self.there > 0 && self.wakeups.cost() == 0 && self.granted == 0 {
            true => WakeupWatch::Waiting,
            false => WakeupWatch::By(self.wakeups.source()),
        };
        entry.watched = self.wakeups.watched();
        entry.events.append(&mut self.events);
        if entry.events.len() > MOST_EVENTS {
            entry.events = entry.watched.iter().map(|thread| (*thread, Woken::Lost)).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use hyoshi_os::process::Process;
    use hyoshi_os::wakeups::WakeupSource;

    use super::*;

    struct Napper(Child, TaskProcesses);

    impl Napper {
        fn start() -> Napper {
            let child = Command::new("sh").args(["-c", "while sleep 0.01; do :; done"]).spawn().unwrap();
            let mut members = TaskProcesses::new();
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
    fn a_task_without_budget_waits_and_users_have_equal_parts() {
        let mut watches = WakeupWatches::new(2);
        let nappers: Vec<Napper> = (0..3).map(|_| Napper::start()).collect();
        let mut finders: Vec<Finder> = (0..3).map(|_| Finder::new(WakeupSource::Switches.shortest())).collect();
        // Two tasks of one user, one of another.
        for (task, owner) in [(0, 1000), (1, 1000), (2, 2000)] {
            watches.watch(TaskId(task), owner);
        }
        let mut until = |watches: &WakeupWatches, wanted: [Option<bool>; 3]| {
            for _ in 0..3_000 {
                let mut hear =
                    |task: usize| watches.collect_into(TaskId(task as u32), Some(&nappers[task].1), &mut finders[task]);
                let status = [0, 1, 2].map(&mut hear);
                let is = status.map(|status| match status {
                    WakeupWatch::Off => None,
                    WakeupWatch::Waiting => Some(false),
                    WakeupWatch::By(_) => Some(true),
                });
                let events = (0..3).all(|task| wanted[task] != Some(true) || finders[task].seen() > 3);
                if status.contains(&WakeupWatch::By(WakeupSource::Samples)) {
                    eprintln!("not tested: records of switches are refused here");
                    return;
                }
                if is == wanted && events {
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
