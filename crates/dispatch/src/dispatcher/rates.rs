//! Adapted rates: a new period, and levels ranked again with jobs in flight.
//!
//! An armed timer keeps its expiry; the new period counts after it. Releases neither burst nor drift. Released jobs
//! keep their deadlines. An operation's waiting jobs move to its new level together. If one of its jobs has started,
//! they stay until that job ends, to keep their order.

use hyoshi_model::{Instant, OperationId, Span};
use hyoshi_trace::{DispatchDecision, Probe, Slot};

use super::Dispatcher;
use crate::effects::Effects;
use crate::job::{JobState, Transition};
use crate::lane::{LaneMask, LaneState};

impl<P: Probe> Dispatcher<P> {
    pub(super) fn retime(&mut self, now: Instant, root: OperationId, period: Span, effects: &mut Effects) {
        if self.set_period(now, root, period, effects) {
            self.rates_changed(now, effects);
        }
    }

    /// Sets a period. The next tick ranks.
    pub(super) fn adapt(&mut self, now: Instant, root: OperationId, period: Span, effects: &mut Effects) {
        self.unranked |= self.set_period(now, root, period, effects);
    }

    /// True if the order of priorities may have changed.
    fn set_period(&mut self, now: Instant, root: OperationId, period: Span, effects: &mut Effects) -> bool {
        self.advance_before(now, effects);
        let (mut concerned, mut changed) = (false, false);
        for operation in self.operations.iter_mut().filter(|operation| operation.adapted_by == Some(root)) {
            let before = operation.period;
            operation.retime(period);
            (concerned, changed) = (true, changed || operation.period != before);
        }
        // The first time also without a change: from now on epochs rank by present periods.
        changed || concerned && !self.reranked
    }

    /// Rates have changed: ranks again if the strategy depends on them, and sets the cap's reserves.
    pub(super) fn rates_changed(&mut self, now: Instant, effects: &mut Effects) {
        if self.rankings[0].varies() {
            self.reranked = true;
            self.rerank(now, effects);
        } else {
            self.reserve();
        }
    }

    /// Ranks the operations by their present periods, under the first strategy. The second one keeps the declared
    /// order.
    pub(super) fn rerank(&mut self, now: Instant, effects: &mut Effects) {
        let ranking = &mut self.rankings[0];
        ranking.renumber(self.operations.iter().flat_map(|operation| operation.kinds().into_iter().flatten()));
        let first = self.switching.as_ref().is_none_or(|switching| !switching.second());
        for operation in &mut self.operations {
            let place = operation.place(ranking);
            let present = if first { operation.placement } else { operation.other_placement };
            operation.next_placement = (place != present).then_some(place);
        }
        self.move_operations(now, effects);
    }

    /// Moves operations to their new positions, with their waiting jobs, unless one of their jobs has started. Requests
    /// are placed one by one.
    pub(super) fn move_operations(&mut self, now: Instant, effects: &mut Effects) {
        self.empty_queues();
        let first = self.strategy_in_force() == 0;
        for slot in (0..self.jobs.capacity() as u32).map(Slot) {
            let Some(job) = self.live_job(slot) else { continue };
            let (job, operation) = (*job, &self.operations[job.local as usize]);
            let next = operation.next_placement.filter(|_| operation.can_move());
            let next = next.map(|next| if job.critical { next.critical } else { next.other });
            let next = match next {
                _ if job.started => None,
                _ if operation.is_requested() => Some(self.position_of_request(0, &job)),
                next => next,
            };
            let kept = self.jobs.get_mut(slot);
            match next {
                Some(place) if first => {
                    (kept.level, kept.tie) = (place.level, place.tie);
                    kept.lane = LaneState::index_of(&self.lanes, place.level);
                }
                Some(place) => kept.other = place,
                None => {}
            }
            let (id, lane) = (kept.id, kept.lane);
            if job.state == JobState::Ready {
                self.enqueue(slot, Transition::Requeue, effects);
                if lane != job.lane {
                    self.decision(now, DispatchDecision::Move { job: id, lane });
                }
            }
        }
        for operation in self.operations.iter_mut().filter(|operation| operation.can_move()) {
            let place = if first { &mut operation.placement } else { &mut operation.other_placement };
            *place = operation.next_placement.take().unwrap_or(*place);
        }
        self.reserve();
    }

    /// Removes every waiting job from its queue: the caller puts them back.
    pub(super) fn empty_queues(&mut self) {
        self.lanes.iter_mut().for_each(LaneState::clear);
        self.waiting = (LaneMask::EMPTY, LaneMask::EMPTY);
    }
}
