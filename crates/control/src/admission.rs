//! The arbiter's decisions, carried out only by placement: the reservations that a machine with these CPUs would hold.

use alloc::vec::Vec;

use hyoshi_model::{Instant, Share};

use crate::arbiter::{Arbiter, Joining, Refusal, ReservationChange};
use crate::backlog::{Backlog, ChangeResult};
use crate::policy::AnyPolicy;
use crate::task::{Confirmation, Status, TaskId};
use crate::window::placement::{Cpu, Seat, WindowPlacement};

/// An [`Arbiter`] with a [`WindowPlacement`] as scheduler: reservations that fit its CPUs are held, the others are
/// refused and arbitrated again, as the broker does with its machine.
///
/// `check` admits a file's reservations with it, and simulation uses it.
#[derive(Debug)]
pub struct Admission {
    arbiter: Arbiter,
    placement: WindowPlacement,
    backlog: Backlog,
    done: Vec<ReservationChange>,
}

impl Admission {
    /// The name of its scheduler in explanations.
    pub const PROXY: &'static str = "window";

    /// Nothing is reserved yet.
    pub fn new(policy: AnyPolicy, cap: Share, cpus: impl IntoIterator<Item = Cpu>) -> Self {
        let placement = WindowPlacement::new(cpus, WindowPlacement::SWITCHING);
        Admission { arbiter: Arbiter::new(policy, cap), placement, backlog: Backlog::default(), done: Vec::new() }
    }

    /// A task joins. Returns the changes in the order in which they were carried out.
    pub fn join(&mut self, task: TaskId, joining: Joining, now: Instant) -> Result<&[ReservationChange], Refusal> {
        self.backlog.add(self.arbiter.join(task, joining, now)?);
        Ok(self.carry_out(now))
    }

    /// A task's report, or a check between reports.
    pub fn report(&mut self, task: TaskId, status: Status) -> Result<&[ReservationChange], Refusal> {
        self.backlog.add(self.arbiter.report(task, status)?);
        Ok(self.carry_out(status.at))
    }

    /// A task gets another importance.
    pub fn set_importance(
        &mut self,
        task: TaskId,
        importance: u32,
        now: Instant,
    ) -> Result<&[ReservationChange], Refusal> {
        self.backlog.add(self.arbiter.set_importance(task, importance)?);
        Ok(self.carry_out(now))
    }

    /// Tries everything that was refused again.
    pub fn reconsider(&mut self, now: Instant) -> &[ReservationChange] {
        self.backlog.add(self.arbiter.reconsider(|_| ()));
        self.carry_out(now)
    }

    /// The arbiter, for its decisions and explanations.
    pub fn arbiter(&self) -> &Arbiter {
        &self.arbiter
    }

    /// The placement of the windows.
    pub fn placement(&self) -> &WindowPlacement {
        &self.placement
    }

    /// The seats of all windows.
    pub fn seats(&self) -> impl Iterator<Item = (TaskId, Seat)> {
        self.placement.seats()
    }

    fn carry_out(&mut self, now: Instant) -> &[ReservationChange] {
        let Admission { arbiter, placement, backlog, done } = self;
        done.clear();
        backlog.carry_out(arbiter, |change| {
            match change.to {
                None => drop(placement.release(change.task)),
                Some(reservation) => {
                    if let Err(refused) = placement.admit(change.task, reservation, &[]) {
                        return ChangeResult::Refused(refused.most);
                    }
                }
            }
            done.push(change);
            ChangeResult::Held(Confirmation { at: now, proxy: Admission::PROXY, held: change.to })
        });
        done
    }
}
