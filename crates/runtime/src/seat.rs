//! What a lane's thread should run at, decided under the crew's lock, and what the kernel was asked for, outside of it:
//! a change of priority is a system call of up to 10 us, for which no lane need wait.
//!
//! Whoever decided asks the kernel once the lock is free. Two sections may decide about one thread, and ask in either
//! order: each asks for what was decided last.

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

    /// Decides what it should run at.
    pub fn want(&self, policy: Policy) {
        self.wanted.store(number(policy), Ordering::Release);
    }

    /// Asks the kernel for what was decided last. False if it refuses, which it is not asked again.
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
