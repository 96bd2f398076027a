//! Soft windows: in each period the task's threads have a real-time priority until they have consumed their budget.
//! [`Window`] decides when; this module acts.
//!
//! Changes by the program are detected at the next sample:
//!
//! - A real-time class that the program may set stays, and the thread is not raised while it has that class; classes
//!   derived from a window's priority do not count (`raised.rs`).
//! - SCHED_BATCH, SCHED_IDLE or SCHED_OTHER is what the thread is restored to; its windows still raise it.
//! - A changed nice value stays; the kernel keeps it through windows.
//! - A changed affinity or cpuset stays, and the window follows.

mod affinity;
mod alarms;
mod thread;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hyoshi_control::window::placement::{Cpu, WindowPlacement, sliced};
use hyoshi_control::{TaskId, Window, WindowStep};
use hyoshi_model::{Instant, Reservation, Share, Span};
use hyoshi_os::process::{ProcessIdentity, is_same, start_of_now, threads_of};
use hyoshi_os::scheduling::{Affinity, nice_of, set_nice};
use hyoshi_os::{Alarm, AlarmReport, Alarms, Refused, Wake, allowed_cpus, fifo_limit, own_cpu, own_thread, priority};

use self::thread::{NOT_NOTED, ThreadState, WindowThread};
use super::{Abilities, ProxyContext, SchedulerProxy};
use crate::lanes::LaneUsage;
use crate::platform::{CpuLanes, NotReserved};
use crate::state_file::StateFile;
use crate::task_processes::{TaskProcesses, TaskThread};

/// Reserves by windows.
#[derive(Debug)]
pub struct WindowProxy {
    cpus: Vec<u32>,
    placement: WindowPlacement,
    open: BTreeMap<TaskId, TaskWindow>,
    due: BTreeSet<(Instant, TaskId)>,
    /// Tasks that were refused because of their affinity.
    refused_placements: BTreeMap<TaskId, affinity::RefusedPlacement>,
    /// The last task that was checked among them.
    turn: TaskId,
    /// When they are checked next.
    freed: Instant,
    room: VecDeque<TaskId>,
    outcomes: VecDeque<(TaskId, Reservation, NotReserved)>,
    above: LaneUsage,
    /// For CPUs whose tasks all sleep: how long their windows may go unsampled.
    sleep_parts: BTreeMap<u32, Option<u64>>,
    events: Events,
    /// Tasks that were asleep and have woken.
    woke: VecDeque<TaskId>,
    /// Threads to unbind, [`AT_ONCE`] at a time.
    new_threads: VecDeque<NewThread>,
}

/// Restores the affinity of the calling thread at the end of the scope.
#[derive(Default)]
struct AffinityGuard(Option<Affinity>);

impl AffinityGuard {
    /// Moves the thread to a CPU, if the kernel allows it.
    fn to(&mut self, cpu: u32) {
        if own_cpu() == cpu {
            return;
        }
        let own = own_thread();
        if self.0.is_none() {
            self.0 = Affinity::of(own).ok();
        }
        if self.0.as_ref().is_some_and(|before| before.has(cpu)) {
            let _ = Affinity::to([cpu]).put(own);
        }
    }
}

impl Drop for AffinityGuard {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = before.put(own_thread());
        }
    }
}

/// A thread that started in a window which has ended since: it gets the affinity of its siblings.
#[derive(Debug)]
struct NewThread {
    member: TaskThread,
    cpu: u32,
    siblings: Option<Affinity>,
}

impl NewThread {
    fn free(self) {
        if is_same(self.member.process)
            && let Some(mut thread) = WindowThread::of(&self.member)
        {
            thread.unbind(self.cpu, self.siblings);
            // A raised thread that executed a program has another number.
            let _ = thread.undo_escape();
        }
    }
}

/// How the broker detects that budgets are used up.
#[derive(Debug)]
enum Events {
    /// By sampling: no thread waits for events.
    Unused,
    /// By sampling: the kernel refuses events.
    Refused(String),
    /// By events of the kernel.
    From(Alarms),
}

/// Threads, about, that are raised or lowered under one lock. The others follow at the next tick, after the windows of
/// other tasks.
const AT_ONCE: usize = 64;

/// Samples under one lock of the broker's state.
const SAMPLES_AT_ONCE: usize = 32;

/// Due windows that are considered for them.
const MOST_DUE: usize = 256;

/// With this many samples for one CPU, the broker's thread moves there: from another CPU, each counter costs an
/// interrupt.
const MOVE: usize = 4;

/// How often raising is checked, besides at the first window.
const CHECK_INTERVAL: Span = Span::from_secs(1);

/// Most threads of a window: raising and lowering more would last too long.
const MOST_THREADS: usize = 1_024;

/// A task's window.
#[derive(Debug)]
struct TaskWindow {
    window: Window,
    cpu: u32,
    priority: u8,
    due: Instant,
    threads: BTreeMap<u32, WindowThread>,
    /// The meter at the last sample: a task that consumed nothing has started nothing.
    reading: Option<Span>,
    /// The affinity that it was placed for, and when that is checked next.
    allowed: Vec<u32>,
    bound: Instant,
    looked: bool,
    /// When it was last moved.
    moved: Instant,
    /// Number of threads that may not run on its CPU.
    elsewhere: usize,
    /// The reservation, and the number of slices that serve it.
    reservation: Reservation,
    slices: u32,
    /// Threads that the last sample raised or lowered, and whether more remain.
    changed: usize,
    unfinished: bool,
    /// When it opened, in kernel ticks: earlier threads did not start in it.
    opened: u64,
    /// When raising was last checked.
    raise_checked: Instant,
    window_alarms: alarms::WindowAlarms,
}

impl WindowProxy {
    /// On these CPUs, each reserved up to `limit`.
    pub fn new(cpus: Vec<u32>, limit: Share) -> Self {
        WindowProxy {
            placement: placement(&cpus, limit),
            cpus,
            open: BTreeMap::new(),
            due: BTreeSet::new(),
            refused_placements: BTreeMap::new(),
            turn: TaskId(0),
            freed: Instant::ZERO,
            room: VecDeque::new(),
            outcomes: VecDeque::new(),
            above: LaneUsage::default(),
            sleep_parts: BTreeMap::new(),
            events: Events::Unused,
            woke: VecDeque::new(),
            new_threads: VecDeque::new(),
        }
    }

    /// On the CPUs of this process, up to the kernel's limit for real-time threads.
    pub fn of_this_machine() -> Self {
        WindowProxy::new(allowed_cpus(), Share::from_millionths(u64::from(fifo_limit().ppm)))
    }

    /// Applies the placement: a new or removed window changes the priorities of others, and seldom their CPU. `changed`
    /// is a CPU with changed windows or lanes, besides those that windows move between.
    fn apply_placement(&mut self, changed: Option<u32>, state_file: &mut StateFile) {
        let (mut changed, mut used) = (BTreeSet::from_iter(changed), BTreeSet::new());
        for (task, seat) in self.placement.seats() {
            used.insert(seat.cpu);
            let Some(open) = self.open.get_mut(&task) else { continue };
            let at = priority::WINDOWS.end().saturating_sub(seat.level).max(*priority::WINDOWS.start());
            if std::mem::replace(&mut open.slices, seat.slices) != seat.slices {
                self.due.remove(&(open.due, task));
                open.due = Instant::ZERO;
                self.due.insert((open.due, task));
            }
            if (open.cpu, open.priority) == (seat.cpu, at) {
                continue;
            }
            if open.cpu != seat.cpu {
                changed.extend([open.cpu, seat.cpu]);
                open.lower(state_file);
                // It opens there at once.
                self.due.remove(&(open.due, task));
                open.due = Instant::ZERO;
                self.due.insert((open.due, task));
            }
            (open.cpu, open.priority, open.reading) = (seat.cpu, at, None);
        }
        self.sleep_parts.retain(|cpu, _| used.contains(cpu));
        self.wake_sleeping_windows(&changed);
    }

    /// Samples sleeping windows of CPUs that have less room than before.
    fn wake_sleeping_windows(&mut self, changed: &BTreeSet<u32>) {
        for cpu in changed {
            let Some(part) = self.sleep_parts.get_mut(cpu) else { continue };
            let before = core::mem::replace(part, self.placement.part(*cpu));
            if before.is_none_or(|before| part.is_some_and(|part| part <= before)) {
                continue;
            }
            for (task, open) in self.open.iter_mut().filter(|(_, open)| open.cpu == *cpu && open.window.is_raised()) {
                self.due.remove(&(open.due, *task));
                open.due = Instant::ZERO;
                self.due.insert((open.due, *task));
            }
        }
    }

    /// Serves one window. Returns the first refusal if no thread is raised.
    fn serve(&mut self, task: TaskId, now: Instant, context: &mut ProxyContext) -> Result<(), (u32, Refused)> {
        let Some(open) = self.open.get_mut(&task) else { return Ok(()) };
        let Some(members) = context.tasks.get_mut(&task) else { return Ok(()) };
        self.due.remove(&(open.due, task));
        let reading = members.consumed_at(now);
        let part = match open.window.is_still(reading) && !open.window_alarms.is_waiting() {
            true => *self.sleep_parts.entry(open.cpu).or_insert_with(|| self.placement.part(open.cpu)),
            false => None,
        };
        let slept = open.window.sleeps();
        let served = sliced(open.reservation, open.slices);
        let step = match open.window.reservation() == served {
            true => open.window.check(now, reading, part),
            false => open.window.reserve(served, now, reading),
        };
        let served = open.carry_out(step, now, reading, members, &mut context.state_file);
        open.due = open.schedule_next(task, step, now, reading, &self.events);
        self.due.insert((open.due, task));
        if slept && !open.window.sleeps() {
            self.woke.push_back(task);
        }
        self.follow_affinity(task, now, context);
        served
    }

    /// Schedules windows whose alarms have fired.
    fn collect_alarms(&mut self, now: Instant) {
        let Events::From(alarms) = &self.events else { return };
        let mut acknowledge = Vec::new();
        alarms.reported(|key, what| acknowledge.push((key, what)));
        for (key, what) in acknowledge {
            let (task, tid) = alarms::thread_of(key);
            let due = self
                .open
                .get_mut(&task)
                .is_some_and(|open| open.window_alarms.fired(tid, what) && open.window.is_raised());
            if due {
                self.schedule(task, now);
            }
        }
    }

    /// The windows to serve now, with their CPUs and their number there; those of the present CPU first.
    fn due_windows(&self, now: Instant) -> Vec<(u32, usize, TaskId)> {
        let due = self.due.iter().take_while(|(at, _)| *at <= now).map(|(_, task)| *task);
        let on = |task: &TaskId| self.open.get(task).map_or(0, |open| open.cpu);
        let mut samples: Vec<(u32, usize, TaskId)> = due.map(|task| (on(&task), 0, task)).take(MOST_DUE).collect();
        let here = own_cpu();
        // Stable: for each CPU, the longest due first.
        samples.sort_by_key(|(cpu, ..)| (*cpu != here, *cpu));
        samples.truncate(SAMPLES_AT_ONCE);
        for run in samples.chunk_by_mut(|one, other| one.0 == other.0) {
            let together = run.len();
            run.iter_mut().for_each(|sample| sample.1 = together);
        }
        samples
    }

    fn free_born_threads(&mut self, most: usize) {
        let most = most.min(self.new_threads.len());
        for started in self.new_threads.drain(..most) {
            // Its task may have a window again.
            if !self.open.values().any(|open| open.threads.contains_key(&started.member.tid)) {
                started.free();
            }
        }
    }

    fn schedule(&mut self, task: TaskId, at: Instant) {
        if let Some(open) = self.open.get_mut(&task) {
            self.due.remove(&(open.due, task));
            open.due = at;
            self.due.insert((at, task));
        }
    }
}

impl SchedulerProxy for WindowProxy {
    fn name(&self) -> &'static str {
        "window"
    }

    fn abilities(&self) -> Abilities {
        Abilities { soft: true, early: true, shared: true }
    }

    fn may_cap(&self, _: TaskId, _: &ProxyContext) -> Result<(), String> {
        Err("windows are soft; a hard task needs a control group".into())
    }

    fn reserve(
        &mut self,
        task: TaskId,
        reservation: Reservation,
        now: Instant,
        context: &mut ProxyContext,
    ) -> Result<(), NotReserved> {
        let hard = context.hard.contains(&task);
        let (members, state_file) = context.members(task)?;
        if self.open.get(&task).is_none_or(|open| now >= open.raise_checked.saturating_add(CHECK_INTERVAL)) {
            may_be_raised(members)?;
            few_enough(members)?;
            self.open.get_mut(&task).into_iter().for_each(|open| open.raise_checked = now);
        }
        let allowed = self.allowed(task, members, now);
        let placed = self.place(task, reservation, &allowed)?;
        let reading = members.consumed_at(now);
        if placed.is_some() && self.open.contains_key(&task) {
            self.apply_placement(placed, state_file);
        }
        if let Some(open) = self.open.get_mut(&task) {
            open.window.harden(hard, reading);
            (open.allowed, open.reservation) = (allowed, reservation);
            // This tick serves it.
            self.schedule(task, now);
            return Ok(());
        }
        let (cpu, slices) = self.placement.seat(task).map_or((0, 1), |seat| (seat.cpu, seat.slices));
        let mut window = Window::new(sliced(reservation, slices));
        window.harden(hard, reading);
        let open = TaskWindow {
            window,
            cpu,
            priority: *priority::WINDOWS.start(),
            due: now,
            threads: BTreeMap::new(),
            reading: None,
            allowed,
            bound: now.saturating_add(affinity::LOOK),
            looked: false,
            moved: Instant::ZERO,
            elsewhere: 0,
            reservation,
            slices,
            changed: 0,
            unfinished: false,
            opened: start_of_now(),
            raise_checked: now,
            window_alarms: alarms::WindowAlarms::default(),
        };
        self.open.insert(task, open);
        self.apply_placement(Some(cpu), &mut context.state_file);
        self.serve(task, now, context).map_err(|(pid, refused)| {
            self.release(task, context);
            if refused.errno == NOT_NOTED {
                let reason = "cannot write to the state directory, so nothing is changed; free space there";
                return NotReserved { most: None, reason: reason.into() };
            }
            let reason = refused.reason_for(pid);
            let remedy = reason.remedy().map_or(String::new(), |remedy| format!("; {remedy}"));
            NotReserved { most: None, reason: format!("{refused}: {reason}{remedy}") }
        })
    }

    fn release(&mut self, task: TaskId, context: &mut ProxyContext) {
        if let Some(mut open) = self.open.remove(&task) {
            self.due.remove(&(open.due, task));
            open.leave(&mut context.state_file);
            if let Some(members) = context.tasks.get_mut(&task) {
                members.list_processes();
                members.list_threads();
                self.new_threads.extend(open.new_threads(members.threads()));
                self.free_born_threads(MOST_THREADS);
            }
            let lowered = open.threads.values().filter(|thread| thread.state != ThreadState::Raised);
            lowered.for_each(|thread| context.state_file.done(thread.before.thread));
            self.placement.release(task);
            self.apply_placement(Some(open.cpu), &mut context.state_file);
        }
    }

    fn remove_processes(&mut self, task: TaskId, left: &[ProcessIdentity], context: &mut ProxyContext) {
        let Some(open) = self.open.get_mut(&task) else { return };
        for process in left {
            let threads =
                threads_of(*process, MOST_THREADS).into_iter().map(|tid| TaskThread { tid, process: *process });
            open.new_threads(&threads.collect::<Vec<_>>()).into_iter().for_each(NewThread::free);
        }
        let cpu = open.cpu;
        open.threads.retain(|_, thread| {
            if !left.contains(&thread.before.process) {
                return true;
            }
            let lowered = thread.leave(cpu, &mut context.state_file).is_ok();
            if lowered {
                context.state_file.done(thread.before.thread);
            }
            // Retried at each end of a window.
            !lowered
        });
    }

    fn tick(&mut self, now: Instant, context: &mut ProxyContext) -> Instant {
        self.collect_alarms(now);
        let (mut changed, mut moved) = (0, AffinityGuard::default());
        for (cpu, together, task) in self.due_windows(now) {
            if changed >= AT_ONCE {
                break;
            }
            if together >= MOVE {
                moved.to(cpu);
            }
            // After a refusal the thread stays as it is; the window continues with the other threads.
            let _ = self.serve(task, now, context);
            changed += self.open.get(&task).map_or(0, |open| open.changed);
        }
        drop(moved);
        self.free_born_threads(AT_ONCE);
        if !self.new_threads.is_empty() {
            return now;
        }
        let due = self.due.first().map_or(Instant::NEVER, |(at, _)| *at);
        due.min(self.retry_refused(now, context))
    }

    fn next_outcome(&mut self) -> Option<(TaskId, Reservation, Result<(), NotReserved>)> {
        self.outcomes.pop_front().map(|(task, what, refused)| (task, what, Err(refused)))
    }

    fn next_retry(&mut self) -> Option<TaskId> {
        self.room.pop_front()
    }

    fn promise_lanes(&mut self, cpu: u32, lanes: CpuLanes, first: &[TaskId], context: &mut ProxyContext) -> bool {
        if self.cpus.contains(&cpu) {
            self.above.note(cpu, &lanes);
        }
        self.give_up_room();
        for (task, refused) in self.placement.promise(cpu, &lanes.promises, first) {
            let open = self.open.get(&task);
            let allowed = open.map_or(&[][..], |open| &open.allowed);
            let what = open.map_or(refused.asked, |open| open.reservation);
            self.outcomes.push_back((task, what, self.above.refused(&refused, allowed)));
        }
        self.apply_placement(Some(cpu), &mut context.state_file);
        true
    }

    fn enforcement(&self, task: TaskId) -> Option<String> {
        let open = self.open.get(&task)?;
        let elsewhere = (open.elsewhere > 0).then(|| {
            let (elsewhere, all) = (open.elsewhere, open.threads.len());
            format!("window on CPU {}; {elsewhere} of {all} threads may not run there and are not raised", open.cpu)
        });
        let refused = match &self.events {
            Events::Refused(reason) => Some(reason),
            Events::Unused | Events::From(_) => open.window_alarms.refused(),
        };
        let refused = refused.map(|reason| {
            format!("the broker samples this window, which costs more: the kernel refuses task-clock events: {reason}")
        });
        let all: Vec<String> = elsewhere.into_iter().chain(refused).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    fn finish(&mut self) {
        self.free_born_threads(usize::MAX);
    }

    fn wake_on_events(&mut self, wake: &Wake) {
        let alarms = Alarms::new().and_then(|alarms| alarms.of(own_thread(), 0).map(|_| alarms));
        self.events = match alarms {
            Ok(alarms) => {
                wake.attend(&alarms);
                Events::From(alarms)
            }
            Err(error) => Events::Refused(error.to_string()),
        };
    }

    fn is_asleep(&self, task: TaskId) -> bool {
        self.open.get(&task).is_some_and(|open| open.window_alarms.is_waiting() && open.window.sleeps())
    }

    fn next_woken(&mut self) -> Option<TaskId> {
        self.woke.pop_front()
    }

    fn status(&self) -> Option<String> {
        let Events::Refused(reason) = &self.events else { return None };
        Some(format!(
            "raises a task's threads in each period until its budget is consumed; samples them, which costs more: the \
             kernel refuses task-clock events: {reason}"
        ))
    }

    fn due(&self) -> Instant {
        if !self.outcomes.is_empty() || !self.room.is_empty() {
            return Instant::ZERO;
        }
        let refused_placements = if self.refused_placements.is_empty() { Instant::NEVER } else { self.freed };
        self.due.first().map_or(refused_placements, |(at, _)| refused_placements.min(*at))
    }
}

impl TaskWindow {
    fn carry_out(
        &mut self,
        step: WindowStep,
        now: Instant,
        reading: Span,
        members: &mut TaskProcesses,
        state_file: &mut StateFile,
    ) -> Result<(), (u32, Refused)> {
        let unfinished = std::mem::take(&mut self.unfinished);
        self.changed = 0;
        match step {
            WindowStep::Lower(_) | WindowStep::Wait(_) => {
                self.lower_some(state_file);
                Ok(())
            }
            WindowStep::Raise(_) | WindowStep::Check(_) => {
                let idle = self.reading.replace(reading) == Some(reading);
                if idle && !unfinished && matches!(step, WindowStep::Check(_)) {
                    return Ok(());
                }
                members.update_processes(reading);
                members.update_threads();
                if now >= self.bound {
                    (self.bound, self.looked) = (now.saturating_add(affinity::LOOK), true);
                    self.threads.values_mut().for_each(|thread| thread.lower_if_bound_anew(self.cpu, state_file));
                }
                self.raise(members, now, state_file)
            }
        }
    }

    /// Raises all threads, [`AT_ONCE`] at a time. Children of raised threads start as ordinary ones, so this raises
    /// them, too.
    fn raise(
        &mut self,
        members: &TaskProcesses,
        now: Instant,
        state_file: &mut StateFile,
    ) -> Result<(), (u32, Refused)> {
        let threads = members.threads();
        let first = self.threads.is_empty();
        self.threads.retain(|tid, thread| {
            let there = threads.binary_search_by_key(tid, |member| member.tid).is_ok() || !thread.before.has_ended();
            if !there {
                state_file.done(thread.before.thread);
            }
            there
        });
        let (mut raised, mut changed, mut refusal) = (0, 0, None);
        for member in threads.iter().take(MOST_THREADS) {
            if changed >= AT_ONCE {
                self.unfinished = true;
                break;
            }
            let thread = match self.threads.get_mut(&member.tid) {
                Some(thread) => thread,
                None => {
                    let Some(mut thread) = WindowThread::of(member) else { continue };
                    if first {
                        thread.respect();
                    } else if thread.before.thread.start < self.opened {
                        thread.respect_unless_raised();
                    } else {
                        self.window_alarms.started_threads(now);
                        restore_nice(member.process.number, member.tid);
                        thread.unbind(self.cpu, self.bound_to(member));
                    }
                    self.threads.entry(member.tid).or_insert(thread)
                }
            };
            let before = thread.state;
            let done = thread.raise(self.cpu, self.priority, state_file);
            changed += usize::from(thread.state != before);
            self.changed = changed;
            match done {
                Ok(()) => raised += usize::from(thread.state == ThreadState::Raised),
                Err(refused) if refused.is_gone() => {}
                Err(refused) => refusal = refusal.or(Some((member.process.number, refused))),
            }
        }
        match refusal {
            Some(refusal) if raised == 0 => Err(refusal),
            _ => Ok(()),
        }
    }

    /// The affinity of a new thread: that of its process's first thread, else of another thread of the task.
    fn bound_to(&self, started: &TaskThread) -> Option<Affinity> {
        let first = self.threads.get(&started.process.number).or_else(|| self.threads.values().next());
        first.map(|thread| thread.before.affinity)
    }

    /// Threads that started in the window and have not been sampled.
    fn new_threads<'a>(&self, members: impl IntoIterator<Item = &'a TaskThread>) -> Vec<NewThread> {
        let started = members.into_iter().filter(|member| !self.threads.contains_key(&member.tid));
        started.map(|member| NewThread { member: *member, cpu: self.cpu, siblings: self.bound_to(member) }).collect()
    }

    /// Lowers all threads for good.
    fn leave(&mut self, state_file: &mut StateFile) {
        for thread in self.threads.values_mut() {
            // A thread that cannot be lowered stays in the state file.
            let _ = thread.leave(self.cpu, state_file);
        }
    }

    /// Lowers [`AT_ONCE`] threads at a time.
    fn lower_some(&mut self, state_file: &mut StateFile) {
        let cpu = self.cpu;
        for thread in self.threads.values_mut().filter(|thread| thread.state == ThreadState::Raised) {
            if self.changed >= AT_ONCE {
                self.unfinished = true;
                return;
            }
            // A thread that cannot be lowered stays in the state file; the next end of the window retries it.
            self.changed += usize::from(thread.lower(cpu, state_file).is_ok());
        }
    }

    fn lower(&mut self, state_file: &mut StateFile) {
        for thread in self.threads.values_mut() {
            // A thread that cannot be lowered stays in the state file; the next start retries it.
            let _ = thread.lower(self.cpu, state_file);
        }
    }
}

/// CPUs without windows and lanes.
pub(super) fn placement(cpus: &[u32], limit: Share) -> WindowPlacement {
    let cpus = cpus.iter().map(|cpu| Cpu { number: *cpu, promises: Vec::new(), cap: limit });
    WindowPlacement::new(cpus, WindowPlacement::SWITCHING)
}

/// A thread that a raised thread started has lost its nice value; restores that of its process.
fn restore_nice(pid: u32, tid: u32) {
    if let (Ok(leader), Ok(0)) = (nice_of(pid), nice_of(tid))
        && leader != 0
        && pid != tid
    {
        let _ = set_nice(tid, leader);
    }
}

/// The kernel would kill a process with RLIMIT_RTTIME in its windows.
fn may_be_raised(members: &TaskProcesses) -> Result<(), NotReserved> {
    let limited = members.processes().find_map(|process| Some((process.identity(), process.realtime_limit()?)));
    match limited {
        Some((pid, limit)) => Err(NotReserved {
            most: None,
            reason: format!(
                "the kernel would kill process {pid} after {limit} at a real-time priority (RLIMIT_RTTIME); remove the \
                 limit with `prlimit --pid {pid} --rttime=unlimited`"
            ),
        }),
        None => Ok(()),
    }
}

/// Raising too many threads would delay all other windows.
fn few_enough(members: &TaskProcesses) -> Result<(), NotReserved> {
    let threads = members.count_threads();
    if threads <= MOST_THREADS {
        return Ok(());
    }
    let reason = format!(
        "it has {threads} threads, and a window raises at most {MOST_THREADS}; `hyoshi broker --scheduler weights` \
         raises none"
    );
    Err(NotReserved { most: None, reason })
}

#[cfg(test)]
mod tests;
