//! Soft windows: in each period a task's threads are raised to a real-time priority until they have consumed their
//! budget, then go on as before. When to do what is [`Window`]'s law; here it is done.
//!
//! What the program does of itself is seen at the next look:
//!
//! - it takes a real-time class: respected, its choice stands and the thread is left alone until it gives that up;
//! - it becomes SCHED_BATCH, SCHED_IDLE or SCHED_OTHER: that is what it is put back to, in its windows it is raised;
//! - it changes its nice value: kept, the kernel keeps it through windows;
//! - it changes its affinity: kept; a thread that may not run on the window's CPU is not raised.

mod thread;

use std::collections::{BTreeMap, BTreeSet};

use hyoshi_control::window::placement::{Cpu, Placement};
use hyoshi_control::{Step, TaskId, Window};
use hyoshi_model::{Instant, Reservation, Share, Span};
use hyoshi_os::scheduling::{Affinity, nice_of, set_nice};
use hyoshi_os::{Clock, MonotonicClock, Refused, allowed_cpus, fifo_limit, priority};

use self::thread::{Held, NOT_NOTED, State};
use super::{Abilities, Ground, SchedulerProxy};
use crate::kernel::NotReserved;
use crate::members::Members;
use crate::touched::Touched;

/// Holds windows for tasks.
#[derive(Debug)]
pub struct WindowProxy {
    cpus: Vec<u32>,
    placement: Placement,
    clock: MonotonicClock,
    open: BTreeMap<TaskId, Open>,
    due: BTreeSet<(Instant, TaskId)>,
}

/// A task's window.
#[derive(Debug)]
struct Open {
    window: Window,
    cpu: u32,
    priority: u8,
    due: Instant,
    threads: BTreeMap<u32, Held>,
    /// The meter's reading at the last look: a task that consumed nothing has started nobody.
    reading: Option<Span>,
    /// When its processes are looked at again.
    family: Instant,
}

/// Looking for new processes takes at most one part in so many of the time.
const FAMILY_SHARE: u64 = 50;

impl WindowProxy {
    /// On these CPUs, each reserved up to `limit`.
    pub fn new(cpus: Vec<u32>, limit: Share) -> Self {
        let (open, due) = (BTreeMap::new(), BTreeSet::new());
        let placement = placement(&cpus, limit);
        WindowProxy { cpus, placement, clock: MonotonicClock::start(), open, due }
    }

    /// On the CPUs that this process may use, up to what the kernel leaves real-time threads.
    pub fn of_this_machine() -> Self {
        WindowProxy::new(allowed_cpus(), Share::from_millionths(u64::from(fifo_limit().ppm)))
    }

    /// Everybody to where they are placed: when a window comes or goes, others' priorities change, and seldom their CPU.
    fn seat_all(&mut self, touched: &mut Touched) {
        for (task, seat) in self.placement.seats() {
            let Some(open) = self.open.get_mut(&task) else { continue };
            let at = priority::WINDOWS.end().saturating_sub(seat.level).max(*priority::WINDOWS.start());
            if (open.cpu, open.priority) == (seat.cpu, at) {
                continue;
            }
            if open.cpu != seat.cpu {
                open.lower(touched);
            }
            (open.cpu, open.priority, open.reading) = (seat.cpu, at, None);
        }
    }

    /// A place for the task, on a CPU that it may run on.
    fn place(&mut self, task: TaskId, reservation: Reservation, may: &Affinity) -> Result<(), NotReserved> {
        let allowed: Vec<u32> = self.cpus.iter().copied().filter(|cpu| may.has(*cpu)).collect();
        if allowed.is_empty() {
            let why = "the task may run on no CPU that has windows: `taskset -ap PID` shows where its threads may";
            return Err(NotReserved { most: None, why: why.to_owned() });
        }
        let placed = self.placement.admit(task, reservation, &allowed);
        placed.map(|_| ()).map_err(|refused| NotReserved { most: refused.most, why: refused.to_string() })
    }

    /// Looks after one task now. The first refusal of the kernel that left no thread raised is returned.
    fn serve(&mut self, task: TaskId, now: Instant, ground: &mut Ground) -> Result<(), (u32, Refused)> {
        let Some(open) = self.open.get_mut(&task) else { return Ok(()) };
        let Some(members) = ground.tasks.get_mut(&task) else { return Ok(()) };
        self.due.remove(&(open.due, task));
        let reading = members.consumed();
        let step = open.window.look(now, reading);
        let served = open.carry_out(step, now, reading, members, &mut ground.touched, &self.clock);
        open.due = step.at();
        self.due.insert((open.due, task));
        served
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
        Abilities { soft: true, soon: true, shared: true }
    }

    fn may_cap(&self, _: TaskId, _: &Ground) -> Result<(), String> {
        Err("a window alone is soft: a control group is needed".into())
    }

    fn reserve(
        &mut self,
        task: TaskId,
        reservation: Reservation,
        now: Instant,
        ground: &mut Ground,
    ) -> Result<(), NotReserved> {
        let (members, touched) = ground.members(task)?;
        may_be_raised(members)?;
        let affinity = members.processes().find_map(|process| Affinity::of(process.identity().number).ok());
        let may = affinity.unwrap_or_else(|| Affinity::to(self.cpus.iter().copied()));
        self.place(task, reservation, &may)?;
        self.seat_all(touched);
        let reading = members.consumed();
        if let Some(open) = self.open.get_mut(&task) {
            let step = open.window.reserve(reservation, now, reading);
            // What the new law says of being raised may differ from what is: `carry_out` makes it so.
            let _ = open.carry_out(step, now, reading, members, touched, &self.clock);
            self.schedule(task, step.at());
            return Ok(());
        }
        let open = Open {
            window: Window::new(reservation),
            cpu: 0,
            priority: *priority::WINDOWS.start(),
            due: now,
            threads: BTreeMap::new(),
            reading: None,
            family: Instant::ZERO,
        };
        self.open.insert(task, open);
        self.seat_all(&mut ground.touched);
        self.serve(task, now, ground).map_err(|(pid, refused)| {
            self.release(task, ground);
            if refused.errno == NOT_NOTED {
                let why = "what is changed of programs cannot be noted in the state directory, so nothing is changed: \
                           make room there";
                return NotReserved { most: None, why: why.into() };
            }
            let reason = refused.reason_for(pid);
            let remedy = reason.remedy().map_or(String::new(), |remedy| format!("; {remedy}"));
            NotReserved { most: None, why: format!("{refused}: {reason}{remedy}") }
        })
    }

    fn release(&mut self, task: TaskId, ground: &mut Ground) {
        if let Some(mut open) = self.open.remove(&task) {
            self.due.remove(&(open.due, task));
            open.lower(&mut ground.touched);
            let lowered = open.threads.values().filter(|held| held.state != State::Raised);
            lowered.for_each(|held| ground.touched.done(held.before.thread));
            self.placement.release(task);
            self.seat_all(&mut ground.touched);
        }
    }

    fn tick(&mut self, now: Instant, ground: &mut Ground) -> Instant {
        while let Some((at, task)) = self.due.first().copied() {
            if at > now {
                return at;
            }
            // A refusal in mid-life has its thread left as it is; the window goes on with the others.
            let _ = self.serve(task, now, ground);
        }
        Instant::NEVER
    }
}

impl Open {
    fn carry_out(
        &mut self,
        step: Step,
        now: Instant,
        reading: Span,
        members: &mut Members,
        touched: &mut Touched,
        clock: &MonotonicClock,
    ) -> Result<(), (u32, Refused)> {
        match step {
            Step::Lower(_) | Step::Wait(_) => {
                self.lower(touched);
                Ok(())
            }
            Step::Raise(_) | Step::Look(_) => {
                let idle = self.reading.replace(reading) == Some(reading);
                if idle && matches!(step, Step::Look(_)) {
                    return Ok(());
                }
                if now >= self.family {
                    let began = clock.now();
                    members.look_at_processes();
                    let took = clock.now().since(began);
                    self.family = now.saturating_add(took * FAMILY_SHARE);
                }
                members.look_at_threads();
                self.raise(members, touched)
            }
        }
    }

    /// Raises every thread that there is. Those born of raised ones are ordinary, so they are raised here too.
    fn raise(&mut self, members: &Members, touched: &mut Touched) -> Result<(), (u32, Refused)> {
        let threads = members.threads();
        let first = self.threads.is_empty();
        self.threads.retain(|tid, held| {
            let there = threads.binary_search_by_key(tid, |member| member.tid).is_ok() || !held.before.has_ended();
            if !there {
                touched.done(held.before.thread);
            }
            there
        });
        let (mut raised, mut refusal) = (0, None);
        for member in threads {
            let held = match self.threads.get_mut(&member.tid) {
                Some(held) => held,
                None => {
                    let Some(held) = Held::of(member) else { continue };
                    if !first {
                        keep_nice(member.process.number, member.tid);
                    }
                    self.threads.entry(member.tid).or_insert(held)
                }
            };
            match held.raise(self.cpu, self.priority, touched) {
                Ok(()) => raised += usize::from(held.state == State::Raised),
                Err(refused) if refused.is_gone() => {}
                Err(refused) => refusal = refusal.or(Some((member.process.number, refused))),
            }
        }
        match refusal {
            Some(refusal) if raised == 0 => Err(refusal),
            _ => Ok(()),
        }
    }

    fn lower(&mut self, touched: &mut Touched) {
        for held in self.threads.values_mut() {
            // One that cannot be lowered is in the state file: the next start tries again.
            let _ = held.lower(self.cpu, touched);
        }
    }
}

/// CPUs without windows. Lanes on them are not known here as yet.
pub(super) fn placement(cpus: &[u32], limit: Share) -> Placement {
    let cpus = cpus.iter().map(|cpu| Cpu { number: *cpu, promises: Vec::new(), cap: limit });
    Placement::new(cpus, Placement::SWITCHING)
}

/// A thread born of a raised one has lost its nice value with the priority: it gets that of its process again.
fn keep_nice(pid: u32, tid: u32) {
    if let (Ok(leader), Ok(0)) = (nice_of(pid), nice_of(tid))
        && leader != 0
        && pid != tid
    {
        let _ = set_nice(tid, leader);
    }
}

/// A process with a limit of real time would be ended by the kernel for what it computes in its windows.
fn may_be_raised(members: &Members) -> Result<(), NotReserved> {
    let limited = members.processes().find_map(|process| Some((process.identity(), process.realtime_limit()?)));
    match limited {
        Some((pid, limit)) => Err(NotReserved {
            most: None,
            why: format!(
                "the kernel would end process {pid} after {limit} at a real-time priority (RLIMIT_RTTIME): \
                 lift that first, with `prlimit --pid {pid} --rttime=unlimited`"
            ),
        }),
        None => Ok(()),
    }
}
