//! Adapted rates: a new period, and levels ranked again with jobs in flight.
//!
//! An armed timer keeps its expiry, and the new period counts after it (paper 2): releases are never nearer than the period
//! allows, and no drift adds up. A job in flight keeps its deadline. Jobs of an operation that have not started move to its
//! new level together; while one has started and not ended they stay where they are, so that none overtakes it.

use hyoshi_model::{Instant, OperationId, Span};
use hyoshi_sched::Placement;
use hyoshi_trace::{Decision, Probe, Slot};

use super::Dispatcher;
use crate::effects::Effects;
use crate::job::{State, Transition};
use crate::lane::Lane;

impl<P: Probe> Dispatcher<P> {
    pub(super) fn retime(&mut self, now: Instant, root: OperationId, period: Span, effects: &mut Effects) {
        self.advance_before(now, effects);
        let mut changed = false;
        for operation in self.operations.iter_mut().filter(|operation| operation.adapted_by == Some(root)) {
            let before = operation.period;
            operation.retime(period);
            changed |= operation.period != before;
        }
        if changed {
            self.ranked_again = true;
            self.rank_again(now, effects);
        }
    }

    /// Ranks the operations by their present periods, under the first strategy. The second one keeps the declared order.
    pub(super) fn rank_again(&mut self, now: Instant, effects: &mut Effects) {
        let ranking = &mut self.rankings[0];
        ranking.again(self.operations.iter().flat_map(|operation| operation.kinds().into_iter().flatten()));
        let first = self.switching.as_ref().is_none_or(|switching| !switching.second());
        for operation in &mut self.operations {
            let [critical, other] = operation.kinds().map(|kind| Some(ranking.place(&ranking.urgency(&kind?))));
            let place = Placement {
                critical: critical.or(other).unwrap_or_default(),
                other: other.or(critical).unwrap_or_default(),
            };
            let present = if first { operation.placement } else { operation.other_placement };
            operation.next_placement = (place != present).then_some(place);
        }
        self.move_operations(now, effects);
    }

    /// Moves operations whose place is a new one, with what waits of them, unless one of their jobs has started.
    pub(super) fn move_operations(&mut self, now: Instant, effects: &mut Effects) {
        for slot in (0..self.jobs.capacity() as u32).map(Slot) {
            let Some(job) = self.live_job(slot) else { continue };
            let operation = &self.operations[job.local as usize];
            if let Some(next) = operation.next_placement.filter(|_| operation.can_move()) {
                self.move_job(now, slot, next, effects);
            }
        }
        let first = self.ruling() == 0;
        for operation in self.operations.iter_mut().filter(|operation| operation.can_move()) {
            let place = if first { &mut operation.placement } else { &mut operation.other_placement };
            *place = operation.next_placement.take().unwrap_or(*place);
        }
        self.reserve();
    }

    /// A job that has not started gets another place under the first strategy.
    fn move_job(&mut self, now: Instant, slot: Slot, placement: Placement, effects: &mut Effects) {
        let first = self.ruling() == 0;
        let job = self.jobs.get_mut(slot);
        let place = if job.critical { placement.critical } else { placement.other };
        if !first {
            job.other = place;
            return;
        }
        let waits = job.state == State::Ready;
        if waits {
            self.leave_queue(slot);
        }
        let job = self.jobs.get_mut(slot);
        let before = job.lane;
        (job.level, job.tie, job.lane) = (place.level, place.tie, Lane::index_of(&self.lanes, place.level));
        let (id, lane) = (job.id, job.lane);
        if waits {
            if let Some(switching) = &mut self.switching {
                switching.waits(slot, job);
            }
            self.enqueue(slot, Transition::Requeue, effects);
            if lane != before {
                self.decision(now, Decision::Move { job: id, lane });
            }
        }
    }
}
