//! What a lane's thread should run at, decided under the crew's lock, and what the kernel was asked for, outside of it:
//! a change of priority is a system call of up to 10 us, for which no lane need wait.
//!
//! The section that changed a policy applies it after it unlocks. Two sections may decide about one thread, and apply in
//! either order: each applies what was decided last.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use hyoshi_os::{PiMutex, Scheduled, ThreadPolicy};

use crate::common::Signs;

/// A thread, and its policy.
#[derive(Debug)]
pub(crate) struct Seat<S> {
    pub thread: S,
    wanted: AtomicU16,
    given: PiMutex<ThreadPolicy>,
    refused: AtomicBool,
    signs: Arc<Signs>,
}

impl<S: Scheduled> Seat<S> {
    /// A thread that was given `policy`.
    pub fn new(thread: S, policy: ThreadPolicy, signs: Arc<Signs>) -> Self {
        let (wanted, refused) = (AtomicU16::new(number(policy)), AtomicBool::new(false));
        Seat { thread, wanted, given: PiMutex::new(policy), refused, signs }
    }

    /// Decides what it should run at.
    pub fn want(&self, policy: ThreadPolicy) {
        self.wanted.store(number(policy), Ordering::Release);
    }

    /// Asks the kernel for what was decided last. Returns false on the first refusal. Afterwards the thread gets ordinary
    /// priority only, as does one that the watchdog has abandoned.
    pub fn settle(&self) -> bool {
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
        // The watchdog marks the thread first, then lowers it: whichever comes last lowers it.
        if self.signs.abandoned.load(Ordering::SeqCst) && *given != ThreadPolicy::Other {
            let _ = self.thread.set_policy(ThreadPolicy::Other);
            *given = ThreadPolicy::Other;
        }
        refused_before || !self.refused()
    }

    /// True once the kernel has refused a change.
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
        let seat = Seat::new(FakeThread::new(), ThreadPolicy::Fifo(79), Arc::default());
        seat.want(ThreadPolicy::Other);
        seat.want(ThreadPolicy::Fifo(1));
        assert!(seat.settle() && seat.settle());
        assert_eq!(seat.thread.policies(), [ThreadPolicy::Fifo(1)]);
        seat.want(ThreadPolicy::Other);
        seat.want(ThreadPolicy::Fifo(1));
        assert!(seat.settle());
        assert_eq!(seat.thread.policies(), [ThreadPolicy::Fifo(1)]);
    }

    #[test]
    fn what_the_kernel_refuses_it_is_not_asked_again() {
        let seat = Seat::new(FakeThread::unprivileged(), ThreadPolicy::Other, Arc::default());
        seat.want(ThreadPolicy::Fifo(40));
        assert!(!seat.settle() && seat.refused());
        assert!(seat.settle(), "it counts once");
    }

    #[test]
    fn an_abandoned_thread_stays_at_ordinary_priority() {
        let signs = Arc::new(Signs::default());
        let seat = Seat::new(FakeThread::new(), ThreadPolicy::Other, signs.clone());
        signs.abandoned.store(true, Ordering::SeqCst);
        seat.want(ThreadPolicy::Fifo(79));
        assert!(seat.settle());
        assert_eq!(seat.thread.policies().last(), Some(&ThreadPolicy::Other));
    }

    #[test]
    fn every_policy_has_a_number() {
        let all = (0..=99).map(ThreadPolicy::Fifo).chain([ThreadPolicy::Other, ThreadPolicy::Idle]);
        all.for_each(|one| assert_eq!(policy(number(one)), one));
    }
}
