//! SCHED_DEADLINE for each thread of a task (sched(7)): the kernel enforces the budget and refuses what it cannot
//! guarantee. For programs with few, fixed threads: each has an equal part of the reservation, a new thread or child is
//! ordinary until the next period, and a thread with bandwidth cannot be pinned.
//!
//! A hard task also has a control group that leaves nearly no CPU time to its ordinary threads: new ones, and all of
//! them while nothing is reserved.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hyoshi_control::TaskId;
use hyoshi_control::group::Terms;
use hyoshi_model::{Instant, Reservation, Span};
use hyoshi_os::process::{ProcessIdentity, identity_of_thread};
use hyoshi_os::progress::ThreadProgress;
use hyoshi_os::scheduling::{Affinity, Bandwidth, Scheduling, SchedulingClass, reserve};
use hyoshi_os::{Refused, Spawn};

use super::groups::Groups;
use super::moves::Moves;
use super::{Abilities, ProxyContext, SchedulerProxy};
use crate::platform::NotReserved;
use crate::raised::is_bandwidth;
use crate::state_file::{SavedThread, StateFile};
use crate::task_processes::TaskThread;

/// Assigns bandwidth to threads.
#[derive(Debug)]
pub struct DeadlineProxy {
    held: BTreeMap<TaskId, ReservedTask>,
    due: BTreeSet<(Instant, TaskId)>,
    /// Or why there are none.
    groups: Result<Groups, String>,
    /// Hard tasks without a group, and why.
    without: BTreeMap<TaskId, String>,
}

#[derive(Debug)]
struct ReservedTask {
    reservation: Reservation,
    due: Instant,
    threads: BTreeMap<u32, ReservedThread>,
}

/// A thread with bandwidth.
#[derive(Clone, Copy, Debug)]
struct ReservedThread {
    before: SavedThread,
    /// Since when it waits without running, and its CPU time then.
    stalled: Option<(Instant, Span)>,
}

/// The smallest runtime that the kernel accepts (measured, kernels 6.1 and 6.18).
const LEAST: Span = Span::from_nanos(1_100);
/// Threads are listed at the start of periods, but not more often than this: each list costs some microseconds.
const SHORTEST_INTERVAL: Span = Span::from_millis(10);

impl DeadlineProxy {
    /// Tests whether the kernel grants bandwidth. Hard tasks have groups in `groups`.
    ///
    /// # Errors
    ///
    /// The reason.
    pub fn probe(groups: Result<Groups, String>) -> Result<Self, String> {
        let tried = Spawn::new("probe").spawn(|| {
            let (tid, period) = (hyoshi_os::own_thread(), Span::from_millis(100));
            reserve(tid, Span::from_millis(1), period, period)?;
            Scheduling { class: SchedulingClass::Fair(0), reset_on_fork: false }.restore(tid)
        });
        let thread = tried.map_err(|error| error.to_string())?;
        match thread.join() {
            Ok(Ok(())) => {
                let (held, due, without) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
                Ok(DeadlineProxy { held, due, groups, without })
            }
            Ok(Err(refused)) => Err(refusal_text(refused, std::process::id())),
            Err(_) => Err("the thread of the test panicked".into()),
        }
    }

    fn restore(&mut self, task: TaskId, state_file: &mut StateFile) {
        if let Some(held) = self.held.remove(&task) {
            self.due.remove(&(held.due, task));
            held.threads.values().for_each(|reserved_thread| leave(&reserved_thread.before, state_file));
        }
    }

    /// Caps the ordinary threads of a hard task, or stores why it cannot.
    fn cap(&mut self, task: TaskId, context: &mut ProxyContext) {
        self.without.remove(&task);
        match &mut self.groups {
            Ok(groups) if !context.hard.contains(&task) => groups.release(task, context),
            Ok(groups) if groups.terms(task) == Some(Terms::nothing()) => {}
            Ok(groups) => {
                if let Err(refused) = groups.hold(task, Terms::nothing(), context) {
                    self.without.insert(task, refused.reason);
                }
            }
            Err(reason) if context.hard.contains(&task) => drop(self.without.insert(task, reason.clone())),
            Err(_) => {}
        }
    }
}

impl ReservedTask {
    /// Assigns an equal part to each fair thread. Stops at the first refusal.
    fn share_out(
        &mut self,
        members: &[TaskThread],
        state_file: &mut StateFile,
        now: Instant,
    ) -> Result<(), (TaskThread, Refused)> {
        self.threads.retain(|tid, reserved_thread| {
            let there =
                members.binary_search_by_key(tid, |member| member.tid).is_ok() || !reserved_thread.before.has_ended();
            if !there {
                state_file.done(reserved_thread.before.thread);
            }
            there
        });
        let part = self.reservation.budget().as_nanos() / (members.len() as u64).max(1);
        let part = Span::from_nanos(part).max(LEAST);
        for member in members {
            let Ok(found) = Scheduling::of(member.tid) else { continue };
            match (found.class, self.threads.get_mut(&member.tid)) {
                (SchedulingClass::Deadline(bandwidth), Some(reserved_thread)) => {
                    reserved_thread.free_if_stalled(now, self.reservation.period());
                    if self.is(bandwidth, part) {
                        continue;
                    }
                }
                // A thread that executed a program has the number of the first thread, and keeps its bandwidth.
                (SchedulingClass::Deadline(_), None) if !is_bandwidth(found, member.process, member.tid) => continue,
                (SchedulingClass::Fair(_), _) | (SchedulingClass::Deadline(_), None) => {
                    let Some(thread) = identity_of_thread(member.process.number, member.tid) else { continue };
                    let Ok(affinity) = Affinity::of(member.tid) else { continue };
                    let scheduling = if found.is_fair() { found } else { Scheduling::ORDINARY };
                    let before = SavedThread { process: member.process, thread, scheduling, affinity, window: None };
                    if state_file.thread(before).is_err() {
                        continue;
                    }
                    self.threads.insert(member.tid, ReservedThread { before, stalled: None });
                }
                // A real-time class that the program chose stays.
                _ => continue,
            }
            match reserve(member.tid, part, self.reservation.deadline(), self.reservation.period()) {
                Ok(()) => {}
                Err(refused) if refused.is_gone() => {}
                Err(refused) => return Err((*member, refused)),
            }
        }
        Ok(())
    }

    fn is(&self, bandwidth: Bandwidth, part: Span) -> bool {
        let Bandwidth { runtime, deadline, period, .. } = bandwidth;
        let wanted = [part, self.reservation.deadline(), self.reservation.period()].map(Span::as_nanos);
        [runtime, deadline, period] == wanted
    }
}

impl ReservedThread {
    /// Frees a thread that has waited for two periods without running (see [`hyoshi_os::progress`]). It gets bandwidth
    /// again at the next period.
    fn free_if_stalled(&mut self, now: Instant, period: Span) {
        let tid = self.before.thread.number;
        let Some(ThreadProgress { ran, .. }) = ThreadProgress::of(tid).filter(|progress| progress.wants) else {
            self.stalled = None;
            return;
        };
        match self.stalled {
            Some((since, had)) if had == ran => {
                if now.since(since) > period * 2 {
                    // The next period tries again.
                    let _ = self.before.scheduling.free(tid);
                    self.stalled = None;
                }
            }
            _ => self.stalled = Some((now, ran)),
        }
    }
}

impl SchedulerProxy for DeadlineProxy {
    fn name(&self) -> &'static str {
        "deadline"
    }

    fn abilities(&self) -> Abilities {
        Abilities { soft: false, early: true, shared: false }
    }

    /// The kernel caps threads with bandwidth; the group caps the ordinary ones if possible.
    fn may_cap(&self, _: TaskId, _: &ProxyContext) -> Result<(), String> {
        Ok(())
    }

    fn reserve(
        &mut self,
        task: TaskId,
        reservation: Reservation,
        now: Instant,
        context: &mut ProxyContext,
    ) -> Result<(), NotReserved> {
        let (members, state_file) = context.members(task)?;
        members.list_processes();
        members.list_threads();
        let due = now.saturating_add(reservation.period().max(SHORTEST_INTERVAL));
        let mut held = match self.held.remove(&task) {
            Some(held) => {
                self.due.remove(&(held.due, task));
                held
            }
            None => ReservedTask { reservation, due, threads: BTreeMap::new() },
        };
        let before = (!held.threads.is_empty()).then_some(held.reservation);
        (held.reservation, held.due) = (reservation, due);
        let tried = held.share_out(members.threads(), state_file, now);
        let refused = tried.err();
        if let (Some(_), Some(before)) = (&refused, before) {
            held.reservation = before;
            let _ = held.share_out(members.threads(), state_file, now);
        }
        self.held.insert(task, held);
        self.due.insert((due, task));
        let Some((member, refused)) = refused else {
            self.cap(task, context);
            return Ok(());
        };
        if before.is_none() {
            self.restore(task, &mut context.state_file);
        }
        self.cap(task, context);
        Err(NotReserved { most: before, reason: refusal_text(refused, member.process.number) })
    }

    fn release(&mut self, task: TaskId, context: &mut ProxyContext) {
        self.restore(task, &mut context.state_file);
        let members = context.tasks.get_mut(&task).into_iter().flat_map(|members| {
            members.list_threads();
            members.threads()
        });
        for member in members {
            if Scheduling::of(member.tid).is_ok_and(|found| is_bandwidth(found, member.process, member.tid)) {
                let _ = Scheduling::ORDINARY.restore(member.tid);
            }
        }
        self.cap(task, context);
    }

    fn remove_processes(&mut self, task: TaskId, left: &[ProcessIdentity], context: &mut ProxyContext) {
        if let Ok(groups) = &mut self.groups {
            groups.remove_processes(task, left, context);
        }
        let Some(held) = self.held.get_mut(&task) else { return };
        held.threads.retain(|_, reserved_thread| {
            let leaves = left.contains(&reserved_thread.before.process);
            if leaves {
                leave(&reserved_thread.before, &mut context.state_file);
            }
            !leaves
        });
    }

    fn tick(&mut self, now: Instant, context: &mut ProxyContext) -> Instant {
        while let Some((at, task)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, task));
            let Some(held) = self.held.get_mut(&task) else { continue };
            held.due = now.saturating_add(held.reservation.period().max(SHORTEST_INTERVAL));
            self.due.insert((held.due, task));
            if let Some(members) = context.tasks.get_mut(&task) {
                members.list_processes();
                members.list_threads();
                // A refused thread may succeed at the next period, after another thread has ended.
                let _ = held.share_out(members.threads(), &mut context.state_file, now);
            }
        }
        let due = self.due.first().map_or(Instant::NEVER, |(at, _)| *at);
        let groups = self.groups.as_mut().map_or(Instant::NEVER, |groups| groups.tick(now, context));
        due.min(groups)
    }

    fn moves(&self) -> Option<Arc<Moves>> {
        self.groups.as_ref().map(Groups::moves).ok()
    }

    fn enforcement(&self, task: TaskId) -> Option<String> {
        let without = self.without.get(&task);
        let without = without.map(|reason| format!("not capped while nothing is reserved: {reason}"));
        without.or_else(|| self.groups.as_ref().ok()?.enforcement(task))
    }

    fn due(&self) -> Instant {
        let groups = self.groups.as_ref().map_or(Instant::NEVER, Groups::due);
        self.due.first().map_or(groups, |(at, _)| groups.min(*at))
    }
}

/// Restores a thread if it still has bandwidth; see [`Scheduling::restore`].
fn leave(before: &SavedThread, state_file: &mut StateFile) {
    let tid = before.thread.number;
    let left = match Scheduling::of(tid) {
        Ok(Scheduling { class: SchedulingClass::Deadline(_), .. }) => before.scheduling.restore(tid),
        Ok(_) => Ok(()),
        Err(refused) => Err(refused),
    };
    if left.is_ok() || left.is_err_and(|refused| refused.is_gone()) {
        state_file.done(before.thread);
    }
}

fn refusal_text(refused: Refused, pid: u32) -> String {
    /// EBUSY: refused by admission control.
    const BUSY: i32 = 16;
    if refused.errno == BUSY {
        return format!(
            "{refused}: it exceeds the kernel's limit for SCHED_DEADLINE; request less, or release another task"
        );
    }
    let reason = refused.reason_for(pid);
    let remedy = reason.remedy().map_or(String::new(), |remedy| format!("; {remedy}"));
    format!("{refused}: {reason}{remedy}; the kernel also refuses pinned threads")
}
