//! What is decided and not carried out yet, and what becomes of it where the scheduler refuses.

use alloc::collections::VecDeque;

use hyoshi_model::Reservation;

use crate::arbiter::{Arbiter, ReservationChange, Decision};
use crate::task::{Confirmation, TaskId};

/// Changes on their way from the [`Arbiter`] to a scheduler, in the order in which they are to be carried out.
///
/// ```text
///             add              carry_out        ┌─ Held ────► confirmed
///   Decision ─────► in the ─────────────────────┼─ Pending ─► whoever carries it out answers for it
///            ┌────► backlog                     └─ Refused ─┐
///            └───── the arbiter settles anew ◄──────────────┘◄─ refused, of what was pending
/// ```
#[derive(Debug, Default)]
pub struct Backlog(VecDeque<BacklogStep>);

#[derive(Debug)]
enum BacklogStep {
    Carry(ReservationChange),
    Refused(TaskId, Reservation, Option<Reservation>),
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// The scheduler does as decided.
    Held(Confirmation),
    /// It does not; the most that it would take.
    Refused(Option<Reservation>),
    /// It is told later, or there is nobody to tell it of.
    Pending,
}

impl Backlog {
    /// Refusals that lead to others, at most, in one go: each takes a task's request down, so that few do.
    pub const MOST_REFUSALS: usize = 64;

    /// What was decided is to be carried out.
    pub fn add(&mut self, decision: Decision<'_>) {
        self.extend(decision);
    }

    /// One change more.
    pub fn push(&mut self, change: ReservationChange) {
        self.0.push_back(BacklogStep::Carry(change));
    }

    /// What was pending or held for a task is refused now; the most that the scheduler would take. It is settled with what is
    /// to be carried out, unless something else is granted by then.
    pub fn refused(&mut self, task: TaskId, what: Reservation, most: Option<Reservation>) {
        self.0.push_back(BacklogStep::Refused(task, what, most));
    }

    fn extend(&mut self, decision: Decision<'_>) {
        self.0.extend(decision.changes.iter().copied().map(BacklogStep::Carry));
    }

    /// Has everything carried out, and what is decided anew where something is refused. False if too much was: from then on
    /// tasks keep what they held before, or nothing if that is lost, and are tried again when something makes room.
    pub fn carry_out(&mut self, arbiter: &mut Arbiter, mut carry: impl FnMut(ReservationChange) -> Carried) -> bool {
        let mut refusals = 0;
        while let Some(step) = self.0.pop_front() {
            let (task, what, most) = match step {
                BacklogStep::Carry(change) => match carry(change) {
                    Carried::Held(confirmation) => {
                        arbiter.confirmed(change.task, confirmation);
                        continue;
                    }
                    Carried::Pending => continue,
                    Carried::Refused(most) => (change.task, change.to, most),
                },
                BacklogStep::Refused(task, what, most) if arbiter.lost(task, what) => (task, Some(what), most),
                BacklogStep::Refused(..) => continue,
            };
            refusals += 1;
            if arbiter.held(task) != what {
                // What is granted by now is later in the backlog: it is not cut down to what was left of this.
                continue;
            }
            if refusals <= Backlog::MOST_REFUSALS {
                // No less than was refused would be granted as it is, and never carried out.
                let most = most.filter(|most| what.is_some_and(|refused| most.budget() < refused.budget()));
                if let Ok(decision) = arbiter.refused(task, most) {
                    self.extend(decision);
                }
            } else if !self.0.iter().any(|later| matches!(later, BacklogStep::Carry(later) if later.task == task))
                && arbiter.keep(task).is_none()
            {
                // The scheduler may have something for it still that it refuses to keep.
                self.0.push_front(BacklogStep::Carry(ReservationChange { task, from: what, to: None }));
            }
        }
        refusals <= Backlog::MOST_REFUSALS
    }
}
