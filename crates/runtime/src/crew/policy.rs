//! Which policy each thread runs at: its lane's priority, raised to a ceiling, lowered while a
//! better job of its lane runs, or ordinary while the cap or an overrun puts it below the lanes.

use std::sync::atomic::Ordering;

use hyoshi_dispatch::State;
use hyoshi_os::priority::lane_priority;
use hyoshi_os::{Policy, Scheduled};

use super::Crew;

/// Of a started job while a better one of its lane runs: below every lane and the broker's
/// windows, but above ordinary threads. Were it ordinary, a better job that needs a lock of the C
/// library which this one holds would wait for the whole machine.
const LOWERED: u8 = 1;

impl<S: Scheduled> Crew<S> {
    /// What a thread should run at.
    fn policy_of(&self, thread: u16) -> Policy {
        let member = &self.members[usize::from(thread)];
        if !member.fifo || member.signs.abandoned.load(Ordering::Relaxed) {
            return Policy::Other;
        }
        let lane = self.lanes[usize::from(member.lane)].priority;
        let Some(slot) = member.job else { return Policy::Fifo(lane) };
        let job = self.dispatcher.job(slot);
        let level = self.dispatcher.effective_level(slot);
        if level < job.level {
            // Whoever holds a resource is neither paused nor demoted yet: those who need it would be, too.
            return Policy::Fifo(lane.max(lane_priority(usize::from(level))));
        }
        if member.demoted || self.dispatcher.paused().contains(member.lane) {
            return Policy::Other;
        }
        let lowered = job.state == State::Ready && !member.waits;
        Policy::Fifo(if lowered { LOWERED } else { lane })
    }

    /// Gives a thread the policy it should have.
    pub(super) fn apply(&mut self, thread: u16) {
        let policy = self.policy_of(thread);
        let member = &mut self.members[usize::from(thread)];
        if member.policy == policy {
            return;
        }
        match member.handle.as_ref().map(|handle| handle.set_policy(policy)) {
            Some(Err(_)) => {
                member.fifo = false;
                self.common.refused_later.fetch_add(1, Ordering::Relaxed);
            }
            Some(Ok(())) | None => member.policy = policy,
        }
    }

    /// The gate has moved: every thread that has a job may be concerned.
    #[cold]
    pub(super) fn apply_to_all(&mut self) {
        for thread in 0..self.members.len() as u16 {
            if self.members[usize::from(thread)].job.is_some() {
                self.apply(thread);
            }
        }
    }
}
