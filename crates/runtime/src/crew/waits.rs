//! Jobs that block, hold resources, or are demoted below the lanes.

use std::sync::atomic::Ordering;

use hyoshi_dispatch::JobState;
use hyoshi_model::{Instant, ResourceId, Span};
use hyoshi_os::Scheduled;
use hyoshi_trace::{Input, Slot};

use super::{BodyOutput, Crew, DemotedWork};
use crate::wakeups::PendingWakeups;

/// Whether a blocked job may continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resumption {
    /// It holds its lane's token.
    Mine,
    /// Sleep until woken, then check again.
    Wait,
}

impl<S: Scheduled> Crew<S> {
    /// The job of `me` blocks and releases its lane's token. False if it must keep the token: without another thread,
    /// the lane could start a job that no thread runs.
    pub fn suspend(&mut self, me: u16, slot: Slot, now: Instant, wakeups: &mut PendingWakeups) -> bool {
        let lane = self.members[usize::from(me)].lane;
        let another = self.has_another(lane, me);
        if !another {
            self.common.blocked_lanes.fetch_add(1, Ordering::Relaxed);
        }
        if !another || self.closed || self.dispatcher.job(slot).state != JobState::Running {
            return false;
        }
        self.handle(now, Input::Suspend { slot });
        self.settle(now, wakeups);
        true
    }

    /// The job of `me` can continue; its thread's CPU clock is at `cpu`.
    pub fn resume(&mut self, me: u16, slot: Slot, now: Instant, cpu: Span, wakeups: &mut PendingWakeups) -> Resumption {
        if self.closed {
            return Resumption::Mine;
        }
        let consumed = cpu.saturating_sub(self.started[slot.0 as usize].began);
        self.members[usize::from(me)].waits = true;
        self.handle(now, Input::Resume { slot, consumed });
        // Usually it is first in its lane: then no other thread must wake up for the decision.
        let lane = self.members[usize::from(me)].lane;
        let free = self.effects.startable.contains(lane) && !self.attended.contains(lane);
        if free && self.dispatcher.best(lane) == Some(slot) {
            self.decide(now, lane, Span::ZERO);
        }
        self.settle(now, wakeups);
        self.my_turn(me, slot)
    }

    /// Whether the waiting job of `me` has been decided again.
    pub fn my_turn(&mut self, me: u16, slot: Slot) -> Resumption {
        let decided = self.dispatcher.live_job(slot).is_none_or(|job| job.state == JobState::Running);
        if decided || self.closed {
            self.members[usize::from(me)].waits = false;
            return Resumption::Mine;
        }
        Resumption::Wait
    }

    /// The job of `me` has acquired a resource: it now runs at the ceiling.
    pub fn acquire(&mut self, me: u16, slot: Slot, resource: ResourceId, now: Instant) {
        if !self.closed {
            self.handle(now, Input::Acquire { slot, resource });
            self.apply(me);
        }
    }

    /// The job of `me` has released a resource.
    pub fn release(&mut self, me: u16, slot: Slot, resource: ResourceId, now: Instant, wakeups: &mut PendingWakeups) {
        if !self.closed {
            self.handle(now, Input::Release { slot, resource });
            self.apply(me);
            self.settle(now, wakeups);
        }
    }

    /// The built-in work of `me` is demoted: another thread continues it below the lanes, and this thread serves its
    /// lane again.
    pub fn hand_below(&mut self, me: u16, below: DemotedWork, wakeups: &mut PendingWakeups) {
        self.unbind(me, below.slot);
        self.below.push_back(below);
        wakeups.wake_background();
        let lane = self.members[usize::from(me)].lane;
        self.attended.insert(lane);
    }

    /// Demoted work, the oldest first.
    pub fn take_below(&mut self) -> Option<DemotedWork> {
        self.below.pop_front()
    }

    /// Demoted work is done.
    pub fn finish_below(&mut self, below: DemotedWork, now: Instant, wakeups: &mut PendingWakeups) {
        if self.closed || self.dispatcher.live_job(below.slot).is_none() {
            return;
        }
        let ticket = self.complete(
            now,
            below.slot,
            below.consumed,
            BodyOutput { flushes: true, ..BodyOutput::default() },
            wakeups,
        );
        self.settle(now, wakeups);
        if let Some(ticket) = ticket {
            // The payload of a publication, not a request.
            let _ = self.payloads.release(ticket);
        }
    }
}
