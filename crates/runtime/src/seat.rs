//! The policy decided for a lane's thread under the crew's lock, and the policy last set in the kernel, outside of it:
//! a change of priority is a system call of up to 10 us, for which no lane should wait.
//!
//! The section that decided makes the system call once the lock is free. Two sections may decide about one thread and
//! make their calls in either order: each sets the latest decision.

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use hyoshi_os::{PiMutex, Policy, Scheduled};

/// A thread, and its policy.
#[derive(Debug)]
pub(crate) struct Seat<S> {
    pub thread: S,
    wanted: AtomicU16,
    given: PiMutex<Policy>,
    refused: AtomicBool,
}

impl<S: Scheduled> Seat<S> {
    /// A thread that was given `policy`.
    pub fn new(thread: S, policy: Policy) -> Self {
        let (wanted, refused) = (AtomicU16::new(number(policy)), AtomicBool::new(false));
        Seat { thread, wanted, given: PiMutex::new(policy), refused }
    }

    /// Decides its policy.
    pub fn want(&self, policy: Policy) {
        self.wanted.store(number(policy), Ordering::Release);
    }

    /// Sets the latest decision. False if the kernel refuses it; then it is not tried again.
    pub fn settle(&self) -> bool {
        let mut given = self.given.lock();
        let wanted = policy(self.wanted.load(Ordering::Acquire));
        if *given == wanted || self.refused() {
            return true;
        }
        match self.thread.set_policy(wanted) {
            Ok(()) => *given = wanted,
            Err(_) => self.refused.store(true, Ordering::Release),
        }
        !self.refused()
    }

    /// True once the kernel has refused a change.
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
        let seat = Seat::new(FakeThread::new(), Policy::Fifo(79));
        seat.want(Policy::Other);
        seat.want(Policy::Fifo(1));
        assert!(seat.settle() && seat.settle());
        assert_eq!(seat.thread.policies(), [Policy::Fifo(1)]);
        seat.want(Policy::Other);
        seat.want(Policy::Fifo(1));
        assert!(seat.settle());
        assert_eq!(seat.thread.policies(), [Policy::Fifo(1)]);
    }

    #[test]
    fn what_the_kernel_refuses_it_is_not_asked_again() {
        let seat = Seat::new(FakeThread::unprivileged(), Policy::Other);
        seat.want(Policy::Fifo(40));
        assert!(!seat.settle() && seat.refused());
        assert!(seat.settle(), "it counts once");
    }

    #[test]
    fn every_policy_has_a_number() {
        let all = (0..=99).map(Policy::Fifo).chain([Policy::Other, Policy::Idle]);
        all.for_each(|one| assert_eq!(policy(number(one)), one));
    }
}
