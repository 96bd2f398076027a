//! Which policy each thread runs at: its lane's priority, raised to a ceiling, lowered while a
//! better job of its lane runs, or ordinary while the cap or an overrun puts it below the lanes.

use std::sync::atomic::Ordering;

use hyoshi_dispatch::JobState;
use hyoshi_os::priority::lane_priority;
use hyoshi_os::{Scheduled, ThreadPolicy};

use super::Crew;

/// Of a started job while a better one of its lane runs: below every lane and the broker's
/// windows, but above ordinary threads. Were it ordinary, a better job that needs a lock of the C
/// library which this one holds would wait for the whole machine.
const LOWERED: u8 = 1;

impl<S: Scheduled> Crew<S> {
    /// What a thread should run at.
    fn policy_of(&self, thread: u16) -> ThreadPolicy {
        let member = &self.members[usize::from(thread)];
        let refused = member.seat.as_ref().is_some_and(|seat| seat.refused());
        if !member.fifo || refused || member.signs.abandoned.load(Ordering::Relaxed) {
            return ThreadPolicy::Other;
        }
        let lane = self.lanes[usize::from(member.lane)].priority;
        let Some(slot) = member.job else { return ThreadPolicy::Fifo(lane) };
        let job = self.dispatcher.job(slot);
        let level = self.dispatcher.effective_level(slot);
        let paused = self.effects.fully_paused.contains(member.lane);
        if level < job.level && !paused {
            // Whoever holds a resource is neither paused nor demoted yet: those who need it would be, too.
            return ThreadPolicy::Fifo(lane.max(lane_priority(usize::from(level))));
        }
        if member.demoted {
            return ThreadPolicy::Other;
        }
        if self.effects.paused.contains(member.lane) {
            // Below ordinary threads, where the kernel lets it return.
            return if self.may_idle { ThreadPolicy::Idle } else { ThreadPolicy::Other };
        }
        let lowered = job.state == JobState::Ready && !member.waits;
        ThreadPolicy::Fifo(if lowered { LOWERED } else { lane })
    }

    /// Decides the policy that a thread should have. The kernel is asked for it once the lock is free.
    pub(super) fn apply(&mut self, thread: u16) {
        let policy = self.policy_of(thread);
        let member = &mut self.members[usize::from(thread)];
        if member.policy == policy {
            return;
        }
        member.policy = policy;
        if let Some(seat) = &member.seat {
            seat.want(policy);
            if !self.changed.contains(&thread) {
                self.changed.push_back(thread);
            }
        }
    }

    /// Lanes pause or go on: every thread that has a job may be concerned.
    #[cold]
    pub(super) fn apply_to_all(&mut self) {
        for thread in 0..self.members.len() as u16 {
            if self.members[usize::from(thread)].job.is_some() {
                self.apply(thread);
            }
        }
    }
}
