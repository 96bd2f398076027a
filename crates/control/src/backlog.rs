//! Decisions that are not carried out yet, and their change if the scheduler refuses.

use alloc::collections::VecDeque;

use hyoshi_model::Reservation;

use crate::arbiter::{Arbiter, Decision, ReservationChange};
use crate::task::{Confirmation, TaskId};

/// Changes from the [`Arbiter`] to a scheduler, in the order in which to carry them out.
///
/// ```text
///             add              carry_out        ┌─ Held ────► confirmed
///   Decision ─────► in the ─────────────────────┼─ Pending ─► its executor reports the result
///            ┌────► backlog                     └─ Refused ─┐
///            └───── the arbiter decides again ◄─────────────┘◄─ refused, of what was pending
/// ```
#[derive(Debug, Default)]
pub struct Backlog(VecDeque<BacklogStep>);

#[derive(Debug)]
enum BacklogStep {
    Carry(ReservationChange),
    Refused(TaskId, Reservation, Option<Reservation>),
}

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeResult {
    /// The scheduler holds the reservation.
    Held(Confirmation),
    /// It refuses; the most that it would accept.
    Refused(Option<Reservation>),
    /// The result arrives later, or there is no process to report it for.
    Pending,
}

impl Backlog {
    /// The most refusals in one call that lead to others: each reduces a task's request, so there are few.
    pub const MOST_REFUSALS: usize = 64;

    /// Adds the changes of a decision.
    pub fn add(&mut self, decision: Decision<'_>) {
        self.extend(decision);
    }

    /// Adds one change.
    pub fn push(&mut self, change: ReservationChange) {
        self.0.push_back(BacklogStep::Carry(change));
    }

    /// The pending or held reservation of a task is now refused; `most` is the largest amount that the scheduler would
    /// accept. It is arbitrated again together with the next changes to carry out, unless another grant was made by
    /// then.
    pub fn refused(&mut self, task: TaskId, what: Reservation, most: Option<Reservation>) {
        self.0.push_back(BacklogStep::Refused(task, what, most));
    }

    fn extend(&mut self, decision: Decision<'_>) {
        self.0.extend(decision.changes.iter().copied().map(BacklogStep::Carry));
    }

    /// Carries out all changes, and decides again after refusals. False if too many were refused: from then on tasks
    /// keep their former reservations, or nothing if those are lost, and are tried again when a change makes room.
    pub fn carry_out(
        &mut self,
        arbiter: &mut Arbiter,
        mut carry: impl FnMut(ReservationChange) -> ChangeResult,
    ) -> bool {
        let mut refusals = 0;
        while let Some(step) = self.0.pop_front() {
            let (task, what, most) = match step {
                BacklogStep::Carry(change) => match carry(change) {
                    ChangeResult::Held(confirmation) => {
                        arbiter.confirmed(change.task, confirmation);
                        continue;
                    }
                    ChangeResult::Pending => continue,
                    ChangeResult::Refused(most) => (change.task, change.to, most),
                },
                BacklogStep::Refused(task, what, most) if arbiter.lost(task, what) => (task, Some(what), most),
                BacklogStep::Refused(..) => continue,
            };
            refusals += 1;
            if arbiter.held(task) != what {
                // The present grant is later in the backlog: do not cut it to the remainder of this.
                continue;
            }
            if refusals <= Backlog::MOST_REFUSALS {
                // A grant of at least the refused amount would never be carried out.
                let most = most.filter(|most| what.is_some_and(|refused| most.budget() < refused.budget()));
                if let Ok(decision) = arbiter.refused(task, most) {
                    self.extend(decision);
                }
            } else if !self.0.iter().any(|later| matches!(later, BacklogStep::Carry(later) if later.task == task))
                && arbiter.keep(task).is_none()
            {
                // The scheduler may still hold something for it that it refuses to keep.
                self.0.push_front(BacklogStep::Carry(ReservationChange { task, from: what, to: None }));
            }
        }
        refusals <= Backlog::MOST_REFUSALS
    }
}
