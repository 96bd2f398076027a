//! The arbiter's decisions, carried out by placement alone: what a machine of these CPUs would hold.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use hyoshi_model::{Instant, Share};

use crate::arbiter::{Arbiter, Change, Decision, Joining, Refusal};
use crate::policy::AnyPolicy;
use crate::task::{Confirmation, Status, TaskId};
use crate::window::placement::{Cpu, Placement, Seat};

/// An [`Arbiter`] whose scheduler is a [`Placement`]: what fits its CPUs is held, the rest is refused and settled anew,
/// as the broker does with its machine.
///
/// `check` admits a file's reservations with it, and simulation plays them.
#[derive(Debug)]
pub struct Admission {
    arbiter: Arbiter,
    placement: Placement,
    done: Vec<Change>,
}

impl Admission {
    /// The name that explanations have for its scheduler.
    pub const PROXY: &'static str = "window";
    /// Refusals that lead to others, at most in one decision.
    const ROUNDS: usize = 64;

    /// Nothing is reserved yet.
    pub fn new(policy: AnyPolicy, cap: Share, cpus: impl IntoIterator<Item = Cpu>) -> Self {
        let placement = Placement::new(cpus, Placement::SWITCHING);
        Admission { arbiter: Arbiter::new(policy, cap), placement, done: Vec::new() }
    }

    /// A task comes. What changed is returned in the order in which it was carried out.
    pub fn join(&mut self, task: TaskId, joining: Joining, now: Instant) -> Result<&[Change], Refusal> {
        let changes = self.arbiter.join(task, joining, now).map(owned)?;
        Ok(self.carry_out(changes, now))
    }

    /// A task's report, or a look at it.
    pub fn report(&mut self, task: TaskId, status: Status) -> Result<&[Change], Refusal> {
        let changes = self.arbiter.report(task, status).map(owned)?;
        Ok(self.carry_out(changes, status.at))
    }

    /// Everything that was refused is tried again.
    pub fn reconsider(&mut self, now: Instant) -> &[Change] {
        let changes = owned(self.arbiter.reconsider(|_| ()));
        self.carry_out(changes, now)
    }

    /// What is decided, and why.
    pub fn arbiter(&self) -> &Arbiter {
        &self.arbiter
    }

    /// What is where.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Where all windows are.
    pub fn seats(&self) -> impl Iterator<Item = (TaskId, Seat)> {
        self.placement.seats()
    }

    fn carry_out(&mut self, mut changes: VecDeque<Change>, now: Instant) -> &[Change] {
        self.done.clear();
        let mut rounds = 0;
        while let Some(change) = changes.pop_front() {
            let refused = match change.to {
                None => {
                    self.placement.release(change.task);
                    None
                }
                Some(reservation) => self.placement.admit(change.task, reservation, &[]).err(),
            };
            let Some(refused) = refused else {
                let confirmation = Confirmation { at: now, proxy: Admission::PROXY, held: change.to };
                self.arbiter.confirmed(change.task, confirmation);
                self.done.push(change);
                continue;
            };
            rounds += 1;
            if rounds > Admission::ROUNDS {
                break;
            }
            if let Ok(decision) = self.arbiter.refused(change.task, refused.most) {
                changes.extend(decision.changes);
            }
        }
        &self.done
    }
}

fn owned(decision: Decision<'_>) -> VecDeque<Change> {
    decision.changes.iter().copied().collect()
}
