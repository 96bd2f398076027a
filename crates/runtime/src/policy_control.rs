//! The policy of a lane's thread: decided under the crew's lock, applied outside it. A change of priority is a system
//! call of up to 10 us, and no lane should wait for it.
//!
//! The section that decided a policy applies it after it unlocks. Two sections may decide about one thread and apply in
//! either order: each applies the latest decision.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use hyoshi_os::{PiMutex, Scheduled, ThreadPolicy};

use crate::common::ThreadControl;

/// A thread and its policy.
#[derive(Debug)]
pub(crate) struct PolicyControl<S> {
    pub thread: S,
    wanted: AtomicU16,
    given: PiMutex<ThreadPolicy>,
    refused: AtomicBool,
    control: Arc<ThreadControl>,
}

impl<S: Scheduled> PolicyControl<S> {
    /// A thread that has `policy`.
    pub fn new(thread: S, policy: ThreadPolicy, control: Arc<ThreadControl>) -> Self {
        let (wanted, refused) = (AtomicU16::new(number(policy)), AtomicBool::new(false));
        PolicyControl { thread, wanted, given: PiMutex::new(policy), refused, control }
    }

    /// Decides its policy.
    pub fn request(&self, policy: ThreadPolicy) {
        self.wanted.store(number(policy), Ordering::Release);
    }

    /// Requests the latest decision from the kernel. False at the first refusal. After that, the thread always gets
    /// ordinary priority, as does an abandoned one.
    pub fn apply(&self) -> bool {
        let mut given = self.given.lock();
        let wanted = policy(self.wanted.load(Ordering::Acquire));
        let refused_before = self.refused();
        let wanted = if refused_before { ThreadPolicy::Other } else { wanted };
        if *given == wanted {
            return true;
        }
        match self.thread.set_policy(wanted) {
            Ok(()) => *given = wanted,
            Err(_) => self.refused.store(true, Ordering::Release),
        }
        // The watchdog marks the thread, then lowers it: the later of the two lowers it.
        if self.control.abandoned.load(Ordering::SeqCst) && *given != ThreadPolicy::Other {
            let _ = self.thread.set_policy(ThreadPolicy::Other);
            *given = ThreadPolicy::Other;
        }
        refused_before || !self.refused()
    }

    /// True if the kernel has refused a change.
    pub fn refused(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }
}

fn number(policy: ThreadPolicy) -> u16 {
    match policy {
        ThreadPolicy::Other => 0,
        ThreadPolicy::Idle => 1,
        ThreadPolicy::Fifo(priority) => 256 + u16::from(priority),
    }
}

fn policy(number: u16) -> ThreadPolicy {
    match number {
        0 => ThreadPolicy::Other,
        1 => ThreadPolicy::Idle,
        fifo => ThreadPolicy::Fifo(fifo as u8),
    }
}

#[cfg(test)]
mod tests {
    use hyoshi_os::fake::FakeThread;

    use super::*;

    #[test]
    fn the_kernel_is_asked_for_what_was_decided_last_and_once() {
        let policy_control = PolicyControl::new(FakeThread::new(), ThreadPolicy::Fifo(79), Arc::default());
        policy_control.request(ThreadPolicy::Other);
        policy_control.request(ThreadPolicy::Fifo(1));
        assert!(policy_control.apply() && policy_control.apply());
        assert_eq!(policy_control.thread.policies(), [ThreadPolicy::Fifo(1)]);
        policy_control.request(ThreadPolicy::Other);
        policy_control.request(ThreadPolicy::Fifo(1));
        assert!(policy_control.apply());
        assert_eq!(policy_control.thread.policies(), [ThreadPolicy::Fifo(1)]);
    }

    #[test]
    fn what_the_kernel_refuses_it_is_not_asked_again() {
        let policy_control = PolicyControl::new(FakeThread::unprivileged(), ThreadPolicy::Other, Arc::default());
        policy_control.request(ThreadPolicy::Fifo(40));
        assert!(!policy_control.apply() && policy_control.refused());
        assert!(policy_control.apply(), "it counts once");
    }

    #[test]
    fn an_abandoned_thread_stays_at_ordinary_priority() {
        let control = Arc::new(ThreadControl::default());
        let policy_control = PolicyControl::new(FakeThread::new(), ThreadPolicy::Other, control.clone());
        control.abandoned.store(true, Ordering::SeqCst);
        policy_control.request(ThreadPolicy::Fifo(79));
        assert!(policy_control.apply());
        assert_eq!(policy_control.thread.policies().last(), Some(&ThreadPolicy::Other));
    }

    #[test]
    fn every_policy_has_a_number() {
        let all = (0..=99).map(ThreadPolicy::Fifo).chain([ThreadPolicy::Other, ThreadPolicy::Idle]);
        all.for_each(|one| assert_eq!(policy(number(one)), one));
    }
}
