//! The arbiter's decisions, carried out by placement alone: what a machine of these CPUs would hold.

use alloc::vec::Vec;

use hyoshi_model::{Instant, Share};

use crate::arbiter::{Arbiter, ReservationChange, Joining, Refusal};
use crate::backlog::{Backlog, Carried};
use crate::policy::AnyPolicy;
use crate::task::{Confirmation, Status, TaskId};
use crate::window::placement::{Cpu, WindowPlacement, Seat};

/// An [`Arbiter`] whose scheduler is a [`WindowPlacement`]: what fits its CPUs is held, the rest is refused and settled anew,
/// as the broker does with its machine.
///
/// `check` admits a file's reservations with it, and simulation plays them.
#[derive(Debug)]
pub struct Admission {
    arbiter: Arbiter,
    placement: WindowPlacement,
    backlog: Backlog,
    done: Vec<ReservationChange>,
}

impl Admission {
    /// The name that explanations have for its scheduler.
    pub const PROXY: &'static str = "window";

    /// Nothing is reserved yet.
    pub fn new(policy: AnyPolicy, cap: Share, cpus: impl IntoIterator<Item = Cpu>) -> Self {
        let placement = WindowPlacement::new(cpus, WindowPlacement::SWITCHING);
        Admission { arbiter: Arbiter::new(policy, cap), placement, backlog: Backlog::default(), done: Vec::new() }
    }

    /// A task comes. What changed is returned in the order in which it was carried out.
    pub fn join(&mut self, task: TaskId, joining: Joining, now: Instant) -> Result<&[ReservationChange], Refusal> {
        self.backlog.add(self.arbiter.join(task, joining, now)?);
        Ok(self.carry_out(now))
    }

    /// A task's report, or a look at it.
    pub fn report(&mut self, task: TaskId, status: Status) -> Result<&[ReservationChange], Refusal> {
        self.backlog.add(self.arbiter.report(task, status)?);
        Ok(self.carry_out(status.at))
    }

    /// Everything that was refused is tried again.
    pub fn reconsider(&mut self, now: Instant) -> &[ReservationChange] {
        self.backlog.add(self.arbiter.reconsider(|_| ()));
        self.carry_out(now)
    }

    /// What is decided, and why.
    pub fn arbiter(&self) -> &Arbiter {
        &self.arbiter
    }

    /// What is where.
    pub fn placement(&self) -> &WindowPlacement {
        &self.placement
    }

    /// Where all windows are.
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
                        return Carried::Refused(refused.most);
                    }
                }
            }
            done.push(change);
            Carried::Held(Confirmation { at: now, proxy: Admission::PROXY, held: change.to })
        });
        done
    }
}
