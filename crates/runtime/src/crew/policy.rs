//! The policy of each thread: its lane's priority, raised to a ceiling, lowered while a better job of its lane runs, or
//! ordinary while a cap or an overrun puts it below the lanes.

use std::sync::atomic::Ordering;

use hyoshi_dispatch::JobState;
use hyoshi_os::priority::lane_priority;
use hyoshi_os::{Scheduled, ThreadPolicy};

use super::{Crew, InCall};

/// The priority of a started job while a better one of its lane runs: below every lane and the broker's windows, but
/// above ordinary threads. With an ordinary priority, a better job that needs a lock of the C library held by this one
/// would wait for all ordinary threads.
const LOWERED: u8 = 1;

impl<S: Scheduled> Crew<S> {
    /// Computes the policy of a thread.
    fn policy_of(&self, thread: u16) -> ThreadPolicy {
        let member = &self.members[usize::from(thread)];
        let refused = member.policy_control.as_ref().is_some_and(|policy_control| policy_control.refused());
        if !member.fifo || refused || member.control.abandoned.load(Ordering::Relaxed) {
            return ThreadPolicy::Other;
        }
        let lane = self.lanes[usize::from(member.lane)].priority;
        let Some(slot) = member.job else {
            // The rest of its job was dropped: it must not run at the lane's priority.
            return if member.call == InCall::Dropped { ThreadPolicy::Other } else { ThreadPolicy::Fifo(lane) };
        };
        let job = self.dispatcher.job(slot);
        let level = self.dispatcher.effective_level(slot);
        let paused = self.effects.fully_paused.contains(member.lane);
        if level < job.level && !paused {
            // The holder of a resource is not paused or demoted yet, because that would delay the users of the
            // resource.
            return ThreadPolicy::Fifo(lane.max(lane_priority(usize::from(level))));
        }
        if member.demoted {
            return ThreadPolicy::Other;
        }
        if self.effects.paused.contains(member.lane) {
            // Below ordinary threads, if the kernel permits the way back.
            return if self.may_idle { ThreadPolicy::Idle } else { ThreadPolicy::Other };
        }
        let lowered = job.state == JobState::Ready && !member.waits;
        ThreadPolicy::Fifo(if lowered { LOWERED } else { lane })
    }

    /// Decides the policy of a thread. The kernel call follows after the lock is released.
    pub(super) fn apply(&mut self, thread: u16) {
        let policy = self.policy_of(thread);
        let member = &mut self.members[usize::from(thread)];
        if member.policy == policy {
            return;
        }
        member.policy = policy;
        if let Some(policy_control) = &member.policy_control {
            policy_control.request(policy);
            if !self.changed.contains(&thread) {
                self.changed.push_back(thread);
            }
        }
    }

    /// Lanes pause or continue, which may change the policy of each thread with a job.
    #[cold]
    pub(super) fn apply_to_all(&mut self) {
        for thread in 0..self.members.len() as u16 {
            if self.members[usize::from(thread)].job.is_some() {
                self.apply(thread);
            }
        }
    }
}
