//! The policy of a lane's thread: decided under the crew's lock, applied outside it. A change of priority is a system
//! call of up to 10 us, and no lane should wait for it.
//!
//! The section that decided a policy applies it after it unlocks. Two sections may decide about one thread and apply in
//! either order: each applies the latest decision.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use hyoshi_os::{PiMutex, Policy, Scheduled};

use crate::common::ThreadControl;

/// A thread and its policy.
#[derive(Debug)]
pub(crate) struct ThreadPolicy<S> {
    pub thread: S,
    wanted: AtomicU16,
    given: PiMutex<Policy>,
    refused: AtomicBool,
    control: Arc<ThreadControl>,
}

impl<S: Scheduled> ThreadPolicy<S> {
    /// A thread that has `policy`.
    pub fn new(thread: S, policy: Policy, control: Arc<ThreadControl>) -> Self {
        let (wanted, refused) = (AtomicU16::new(number(policy)), AtomicBool::new(false));
        ThreadPolicy { thread, wanted, given: PiMutex::new(policy), refused, control }
    }

    /// Decides its policy.
    pub fn request(&self, policy: Policy) {
        self.wanted.store(number(policy), Ordering::Release);
    }

    /// Requests the latest decision from the kernel. False at the first refusal. After that, the thread always gets
    /// ordinary priority, as does an abandoned one.
    pub fn apply(&self) -> bool {
        let mut given = self.given.lock();
        let wanted = policy(self.wanted.load(Ordering::Acquire));
        let refused_before = self.refused();
        let wanted = if refused_before { Policy::Other } else { wanted };
        if *given == wanted {
            return true;
        }
        match self.thread.set_policy(wanted) {
            Ok(()) => *given = wanted,
            Err(_) => self.refused.store(true, Ordering::Release),
        }
        // The watchdog marks the thread, then lowers it: the later of the two lowers it.
        if self.control.abandoned.load(Ordering::SeqCst) && *given != Policy::Other {
            let _ = self.thread.set_policy(Policy::Other);
            *given = Policy::Other;
        }
        refused_before || !self.refused()
    }

    /// True if the kernel has refused a change.
    pub fn refused(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }
}

fn number(policy: Policy) -> u16 {
    match policy {
        Policy::Other => 0,
        Policy::Idle => 1,
        Policy::Fifo(priority) => 256 + u16::from(priority),
    }
}

fn policy(number: u16) -> Policy {
    match number {
        0 => Policy::Other,
        1 => Policy::Idle,
        fifo => Policy::Fifo(fifo as u8),
    }
}

#[cfg(test)]
mod tests {
    use hyoshi_os::fake::FakeThread;

    use super::*;

    #[test]
    fn the_kernel_is_asked_for_what_was_decided_last_and_once() {
        let thread_policy = ThreadPolicy::new(FakeThread::new(), Policy::Fifo(79), Arc::default());
        thread_policy.request(Policy::Other);
        thread_policy.request(Policy::Fifo(1));
        assert!(thread_policy.apply() && thread_policy.apply());
        assert_eq!(thread_policy.thread.policies(), [Policy::Fifo(1)]);
        thread_policy.request(Policy::Other);
        thread_policy.request(Policy::Fifo(1));
        assert!(thread_policy.apply());
        assert_eq!(thread_policy.thread.policies(), [Policy::Fifo(1)]);
    }

    #[test]
    fn what_the_kernel_refuses_it_is_not_asked_again() {
        let thread_policy = ThreadPolicy::new(FakeThread::unprivileged(), Policy::Other, Arc::default());
        thread_policy.request(Policy::Fifo(40));
        assert!(!thread_policy.apply() && thread_policy.refused());
        assert!(thread_policy.apply(), "it counts once");
    }

    #[test]
    fn an_abandoned_thread_stays_at_ordinary_priority() {
        let control = Arc::new(ThreadControl::default());
        let thread_policy = ThreadPolicy::new(FakeThread::new(), Policy::Other, control.clone());
        control.abandoned.store(true, Ordering::SeqCst);
        thread_policy.request(Policy::Fifo(79));
        assert!(thread_policy.apply());
        assert_eq!(thread_policy.thread.policies().last(), Some(&Policy::Other));
    }

    #[test]
    fn every_policy_has_a_number() {
        let all = (0..=99).map(Policy::Fifo).chain([Policy::Other, Policy::Idle]);
        all.for_each(|one| assert_eq!(policy(number(one)), one));
    }
}
