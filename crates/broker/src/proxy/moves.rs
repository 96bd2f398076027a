//! Before the first process for a while is moved to another control group, the kernel waits some 10 ms ([`prepare_to_move`]),
//! and so would everybody who waits for the broker's state. So it is had wait before that is locked:
//!
//! ```text
//!   a client's thread   prepare ──────────────► lock, move
//!   the broker's        ask ─────► next look ─────────► is_ready: move
//!   a thread of its own    └► prepare ───┘
//! ```
//!
//! It is a matter of time only: who moves somebody without waits for the kernel, and nothing else is different.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hyoshi_model::{Instant, Span};
use hyoshi_os::cgroup::own::prepare_to_move;
use hyoshi_os::{PiGuard, PiMutex, Policy, Spawn, Thread, Wake, priority};

/// What clients' threads know of moves.
#[derive(Debug, Default)]
pub struct Moves {
    /// Tasks that have groups.
    groups: AtomicUsize,
    /// Held while this process is moved, to where it is too: it must not be moved back.
    own: PiMutex<()>,
    asked: AtomicBool,
    ends: AtomicBool,
    wake: Wake,
}

impl Moves {
    /// Has the kernel wait now, if any task has a group. Not while the broker's state is locked.
    pub fn prepare(&self) {
        if self.groups.load(Ordering::Relaxed) > 0 {
            let _own = self.stay();
            // If it may not, moves take their time.
            let _ = prepare_to_move();
        }
    }

    /// So many tasks have groups now.
    pub(super) fn note(&self, groups: usize) {
        self.groups.store(groups, Ordering::Relaxed);
    }

    /// Nobody else moves this process meanwhile.
    pub(super) fn stay(&self) -> PiGuard<'_, ()> {
        self.own.lock()
    }
}

/// Has a thread of its own prepare moves.
#[derive(Debug, Default)]
pub(super) struct MovePreparer {
    moves: Arc<Moves>,
    thread: Option<Thread<()>>,
    /// Since when it is asked.
    asked: Option<Instant>,
}

/// It is seen this often whether it is done: well within what the kernel is ready for.
pub(super) const SOON: Span = Span::from_millis(3);
/// Moves wait no longer: programs at real-time priorities may leave the thread nothing.
const PATIENCE: Span = Span::from_millis(200);

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// It was not asked.
    Unasked,
    /// It will be seen.
    Soon,
    /// As ready as it gets; it is to be asked again for the next moves.
    Ready,
}

impl MovePreparer {
    pub fn moves(&self) -> &Arc<Moves> {
        &self.moves
    }

    /// Somebody is to be moved.
    pub fn ask(&mut self, now: Instant) {
        if self.thread.is_none() {
            let moves = self.moves.clone();
            let below = Policy::Fifo(priority::WINDOWS.start() - 1);
            self.thread = Spawn::new("moves").policy(below).spawn(move || preparer(&moves)).ok();
        }
        // Without the thread nobody waits for it.
        self.moves.asked.store(self.thread.is_some(), Ordering::Release);
        self.moves.wake.post();
        self.asked = Some(now);
    }

    pub fn readiness(&mut self, now: Instant) -> Readiness {
        let Some(since) = self.asked else { return Readiness::Unasked };
        if self.moves.asked.load(Ordering::Acquire) && now.since(since) < PATIENCE {
            return Readiness::Soon;
        }
        self.asked = None;
        Readiness::Ready
    }
}

impl Drop for MovePreparer {
    fn drop(&mut self) {
        self.moves.ends.store(true, Ordering::Release);
        self.moves.wake.post();
        // A panic of the thread would have been told by itself.
        let _ = self.thread.take().map(Thread::join);
    }
}

fn preparer(moves: &Moves) {
    while !moves.ends.load(Ordering::Acquire) {
        if moves.asked.load(Ordering::Acquire) {
            moves.prepare();
            moves.asked.store(false, Ordering::Release);
        }
        moves.wake.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_is_ready_a_while_after_it_was_asked_and_is_asked_anew_for_the_next() {
        let mut preparer = MovePreparer::default();
        assert_eq!(preparer.readiness(Instant::ZERO), Readiness::Unasked);
        for _ in 0..3 {
            preparer.moves().note(1);
            preparer.ask(Instant::ZERO);
            let until = std::time::Instant::now() + Duration::from_secs(60);
            while preparer.readiness(Instant::ZERO) != Readiness::Ready {
                assert!(std::time::Instant::now() < until);
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(preparer.readiness(Instant::ZERO), Readiness::Unasked);
        }
    }

    #[test]
    fn nobody_waits_long_for_a_thread_that_does_not_come_to_it() {
        let mut preparer = MovePreparer::default();
        // As if the thread had not begun.
        let own = preparer.moves().clone();
        let own = own.stay();
        preparer.moves().note(1);
        preparer.ask(Instant::ZERO);
        assert_eq!(preparer.readiness(Instant::ZERO), Readiness::Soon);
        assert_eq!(preparer.readiness(Instant::ZERO + PATIENCE), Readiness::Ready);
        drop(own);
    }
}
