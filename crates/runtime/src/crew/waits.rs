//! Jobs that block, hold resources, or have been put below the lanes.

use std::sync::atomic::Ordering;

use hyoshi_dispatch::JobState;
use hyoshi_model::{Instant, ResourceId, Span};
use hyoshi_os::Scheduled;
use hyoshi_trace::{Input, Slot};

use super::{Below, Crew};
use crate::posts::Posts;

/// Whether a job that was blocked may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It holds its lane's token.
    Mine,
    /// Sleep until posted, then ask again.
    Wait,
}

impl<S: Scheduled> Crew<S> {
    /// The job of `me` blocks and gives its lane's token up. False if it must keep it: without
    /// another thread the lane could start a job that nobody runs, in front of this one.
    pub fn suspend(&mut self, me: u16, slot: Slot, now: Instant, posts: &mut Posts) -> bool {
        let lane = self.members[usize::from(me)].lane;
        let another = !self.lanes[usize::from(lane)].idle.is_empty() || self.attended.contains(lane);
        if !another {
            self.common.blocked_lanes.fetch_add(1, Ordering::Relaxed);
        }
        if !another || self.closed || self.dispatcher.job(slot).state != JobState::Running {
            return false;
        }
        self.handle(now, Input::Suspend { slot });
        self.settle(now, posts);
        true
    }

    /// The job of `me` can go on, its thread's CPU clock at `cpu`.
    pub fn resume(&mut self, me: u16, slot: Slot, now: Instant, cpu: Span, posts: &mut Posts) -> Turn {
        if self.closed {
            return Turn::Mine;
        }
        let consumed = cpu.saturating_sub(self.started[slot.0 as usize].began);
        self.members[usize::from(me)].waits = true;
        self.handle(now, Input::Resume { slot, consumed });
        // Mostly it is its lane's first: then nobody else need wake up to say so.
        let lane = self.members[usize::from(me)].lane;
        let free = self.effects.startable.contains(lane) && !self.attended.contains(lane);
        if free && self.dispatcher.best(lane) == Some(slot) {
            self.decide(now, lane, Span::ZERO);
        }
        self.settle(now, posts);
        self.my_turn(me, slot)
    }

    /// Whether the job of `me`, which waits, has been decided again.
    pub fn my_turn(&mut self, me: u16, slot: Slot) -> Turn {
        let decided = self.dispatcher.live_job(slot).is_none_or(|job| job.state == JobState::Running);
        if decided || self.closed {
            self.members[usize::from(me)].waits = false;
            return Turn::Mine;
        }
        Turn::Wait
    }

    /// The job of `me` has taken a resource: it runs at the ceiling from now on.
    pub fn acquire(&mut self, me: u16, slot: Slot, resource: ResourceId, now: Instant) {
        if !self.closed {
            self.handle(now, Input::Acquire { slot, resource });
            self.apply(me);
        }
    }

    /// The job of `me` has let a resource go.
    pub fn release(&mut self, me: u16, slot: Slot, resource: ResourceId, now: Instant, posts: &mut Posts) {
        if !self.closed {
            self.handle(now, Input::Release { slot, resource });
            self.apply(me);
            self.settle(now, posts);
        }
    }

    /// The built-in work of `me` was told to go below the lanes: somebody else goes on with it
    /// there, and this thread serves its lane again.
    pub fn hand_below(&mut self, me: u16, below: Below, posts: &mut Posts) {
        self.unbind(me, below.slot);
        self.below.push_back(below);
        posts.background();
        let lane = self.members[usize::from(me)].lane;
        self.attended.insert(lane);
    }

    /// Demoted work, the oldest first.
    pub fn take_below(&mut self) -> Option<Below> {
        self.below.pop_front()
    }

    /// Demoted work is done.
    pub fn finish_below(&mut self, below: Below, now: Instant, posts: &mut Posts) {
        if self.closed || self.dispatcher.live_job(below.slot).is_none() {
            return;
        }
        self.handle(now, Input::Complete { slot: below.slot, consumed: below.consumed, ticket: None });
        self.settle(now, posts);
    }
}
