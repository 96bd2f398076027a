//! Windows follow the CPU affinity of their tasks.
//!
//! The affinity of a thread is read when it is raised, once in each period in which its task uses up its budget, and
//! once a second for threads that stay raised. A sleeping task costs nothing.

use std::collections::BTreeMap;
use std::ops::Bound;

use hyoshi_control::TaskId;
use hyoshi_control::window::placement::{NoRoom, WindowPlacement};
use hyoshi_control::window::reach::Reach;
use hyoshi_model::{Instant, Reservation, Share, Span};
use hyoshi_os::cpu::cpu_list;
use hyoshi_os::scheduling::Affinity;

use super::thread::ThreadState;
use super::{TaskWindow, WindowProxy};
use crate::platform::NotReserved;
use crate::proxy::ProxyContext;
use crate::task_processes::TaskProcesses;

/// How often the affinity of raised threads and of refused tasks is checked.
pub(super) const LOOK: Span = Span::from_secs(1);
/// The shortest time between two moves of a window, because moves cost all tasks time.
const LEAST: Span = Span::from_millis(100);

/// Refused tasks, and about their threads, of one check, because windows wait meanwhile.
const TASKS_AT_ONCE: usize = 8;
const THREADS_AT_ONCE: usize = 256;
/// Checks in each [`LOOK`].
const CHECKS: usize = 50;

/// A task that was refused because of its affinity.
#[derive(Debug)]
pub(super) struct RefusedPlacement {
    allowed: Vec<u32>,
    /// The refused share; `None` if it may run on no CPU.
    refused: Option<Share>,
}

/// The tasks after the last checked one, then those before it.
fn in_turn(refused_placements: &BTreeMap<TaskId, RefusedPlacement>, last: TaskId) -> Vec<TaskId> {
    let after = refused_placements.range((Bound::Excluded(last), Bound::Unbounded));
    after.chain(refused_placements.range(..=last)).map(|(task, _)| *task).take(TASKS_AT_ONCE).collect()
}

impl WindowProxy {
    /// The CPUs that the task's window may use, cached for [`LOOK`].
    pub(super) fn allowed(&self, task: TaskId, members: &TaskProcesses, now: Instant) -> Vec<u32> {
        match self.open.get(&task) {
            Some(open) if now < open.bound => open.allowed.clone(),
            open => reach(&self.cpus, open, members).best(),
        }
    }

    /// Places the task on one of the CPUs. Returns the CPU, or `None` if the present place suffices.
    ///
    /// Requests vary a little from period to period. A window keeps a quarter more room if there is some, so that not
    /// each change tests all windows. Other tasks may use that room.
    pub(super) fn place(
        &mut self,
        task: TaskId,
        reservation: Reservation,
        allowed: &[u32],
    ) -> Result<Option<u32>, NotReserved> {
        if allowed.is_empty() {
            return Err(self.refuse_placement(task, Some(reservation), allowed, nowhere()));
        }
        if self.open.contains_key(&task) && self.placement.covers(task, reservation, allowed) {
            return Ok(None);
        }
        match self.try_to_place(|placement| placement.admit(task, reservation, allowed)) {
            Ok(seat) => {
                self.placement.enlarge(task, Span::from_nanos(reservation.budget().as_nanos() / 4 * 5));
                // It has as much as it was refused.
                let refused =
                    self.refused_placements.get(&task).and_then(|refused_placements| refused_placements.refused);
                if refused.is_some_and(|refused| reservation.share() >= refused) {
                    self.refused_placements.remove(&task);
                }
                Ok(Some(seat.cpu))
            }
            Err(refused) => {
                Err(self.refuse_placement(task, Some(reservation), allowed, self.above.refused(&refused, allowed)))
            }
        }
    }

    /// If there is no room, first removes the spare room of all windows.
    fn try_to_place<T>(&mut self, place: impl Fn(&mut WindowPlacement) -> Result<T, NoRoom>) -> Result<T, NoRoom> {
        place(&mut self.placement).or_else(|_| {
            self.give_up_room();
            place(&mut self.placement)
        })
    }

    pub(super) fn give_up_room(&mut self) {
        self.placement.lessen(self.open.iter().map(|(task, open)| (*task, open.reservation)));
    }

    /// After a sample of a task's threads: if most of them may no longer run on the window's CPU, moves the window.
    /// Without room, the task loses its reservation; [`SchedulerProxy::next_outcome`] reports it.
    pub(super) fn follow_affinity(&mut self, task: TaskId, now: Instant, context: &mut ProxyContext) {
        let Some(open) = self.open.get_mut(&task) else { return };
        let Some(members) = context.tasks.get(&task) else { return };
        let before = open.elsewhere;
        open.count_elsewhere();
        let looked = std::mem::take(&mut open.looked) || open.elsewhere != before;
        if !looked || now < open.moved.saturating_add(LEAST) {
            open.looked = looked;
            return;
        }
        let allowed = open.reach(&self.cpus).best();
        if allowed == open.allowed {
            return;
        }
        open.moved = now;
        open.allowed.clone_from(&allowed);
        let what = open.reservation;
        let refused = match allowed.is_empty() {
            true => Some((None, nowhere())),
            false => {
                let refused = self.try_to_place(|placement| placement.confine(task, &allowed)).err();
                refused.map(|refused| (Some(refused.asked), self.above.refused(&refused, &allowed)))
            }
        };
        if let Some((asked, refused)) = refused {
            let refused = self.refuse_placement(task, asked, &allowed, refused);
            self.outcomes.push_back((task, what, refused));
            return;
        }
        self.apply_placement(None, &mut context.state_file);
        if let Some(open) = self.open.get_mut(&task).filter(|open| open.window.is_raised()) {
            let _ = open.raise(members, now, &mut context.state_file);
            open.count_elsewhere();
        }
    }

    /// Retries tasks that were refused because of their affinity, when that changes. Returns when to check again.
    pub(super) fn retry_refused(&mut self, now: Instant, context: &ProxyContext) -> Instant {
        if self.refused_placements.is_empty() {
            return Instant::NEVER;
        }
        if now < self.freed {
            return self.freed;
        }
        let WindowProxy { cpus, open, refused_placements, turn, freed, room, .. } = self;
        let mut threads = 0;
        for task in in_turn(refused_placements, *turn) {
            if threads >= THREADS_AT_ONCE {
                break;
            }
            *turn = task;
            let allowed = context.tasks.get(&task).map(|members| {
                threads += members.threads().len();
                reach(cpus, open.get(&task), members).best()
            });
            if allowed.as_ref() == refused_placements.get(&task).map(|refused_placements| &refused_placements.allowed) {
                continue;
            }
            refused_placements.remove(&task);
            if allowed.is_some() {
                // The next reservation uses the new affinity.
                open.get_mut(&task).into_iter().for_each(|open| open.bound = now);
                room.push_back(task);
            }
        }
        let goes = refused_placements.len().div_ceil(TASKS_AT_ONCE).clamp(1, CHECKS) as u64;
        *freed = now.saturating_add(Span::from_nanos(LOOK.as_nanos() / goes));
        *freed
    }

    /// Stores a refusal that depends on the affinity, and adds the affinity to its reason.
    fn refuse_placement(
        &mut self,
        task: TaskId,
        asked: Option<Reservation>,
        allowed: &[u32],
        refused: NotReserved,
    ) -> NotReserved {
        if allowed.len() == self.cpus.len() {
            return refused;
        }
        self.refused_placements
            .insert(task, RefusedPlacement { allowed: allowed.to_vec(), refused: asked.map(Reservation::share) });
        let bound = match allowed {
            [] => "`taskset -ap PID` shows the CPUs of its threads".to_owned(),
            [cpu] => format!("its threads may run only on CPU {cpu}"),
            cpus => format!("its threads may run only on CPUs {}", cpu_list(cpus)),
        };
        NotReserved { reason: format!("{}; {bound}", refused.reason), ..refused }
    }
}

impl TaskWindow {
    /// The affinity of its threads at the last sample.
    fn reach(&self, cpus: &[u32]) -> Reach {
        let mut reach = Reach::on(cpus);
        let free = self.threads.values().filter(|thread| thread.state != ThreadState::ItsOwn);
        free.for_each(|thread| reach.add(|cpu| thread.before.affinity.has(cpu)));
        reach
    }

    fn count_elsewhere(&mut self) {
        self.elsewhere = self.threads.values().filter(|thread| thread.state == ThreadState::Elsewhere).count();
    }
}

fn nowhere() -> NotReserved {
    NotReserved { most: None, reason: "the task may not run on a CPU with windows".to_owned() }
}

/// The present affinity of a task's threads; that of raised threads without their window.
fn reach(cpus: &[u32], open: Option<&TaskWindow>, members: &TaskProcesses) -> Reach {
    let mut reach = Reach::on(cpus);
    for member in members.threads() {
        match open.and_then(|open| open.threads.get(&member.tid)) {
            Some(thread) if thread.state == ThreadState::ItsOwn => {}
            Some(thread) if thread.state == ThreadState::Raised => reach.add(|cpu| thread.before.affinity.has(cpu)),
            _ => Affinity::of(member.tid).into_iter().for_each(|may| reach.add(|cpu| may.has(cpu))),
        }
    }
    reach
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_were_refused_are_looked_at_in_turn_a_few_at_a_time() {
        let refused_placements = || RefusedPlacement { allowed: vec![0], refused: None };
        let all: BTreeMap<TaskId, RefusedPlacement> =
            (0..3 * TASKS_AT_ONCE as u32 + 1).map(|id| (TaskId(id), refused_placements())).collect();
        let (mut turn, mut seen) = (TaskId(5), Vec::new());
        for _ in 0..4 {
            let few = in_turn(&all, turn);
            assert_eq!(few.len(), TASKS_AT_ONCE);
            turn = few[TASKS_AT_ONCE - 1];
            seen.extend(few);
        }
        seen.truncate(all.len());
        seen.sort_unstable();
        assert!(seen.iter().eq(all.keys()), "{seen:?}");
        let one = BTreeMap::from([(TaskId(7), refused_placements())]);
        assert_eq!((in_turn(&one, TaskId(7)), in_turn(&one, TaskId(9))), (vec![TaskId(7)], vec![TaskId(7)]));
        assert!(in_turn(&BTreeMap::new(), TaskId(7)).is_empty());
    }
}
