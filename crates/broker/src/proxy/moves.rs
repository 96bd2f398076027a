//! The first move of a process to another control group after a pause waits some 10 ms in the kernel
//! ([`prepare_to_move`]), and all users of the broker's state with it. So the wait happens before the lock:
//!
//! ```text
//!   a client's thread     prepare ──────────────► lock, move
//!   the broker's thread   request ─► next tick ─────► ready: move
//!   a thread of its own        └► prepare ───┘
//! ```
//!
//! Without preparation a move only lasts longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hyoshi_model::{Instant, Span};
use hyoshi_os::cgroup::own::prepare_to_move;
use hyoshi_os::{PiGuard, PiMutex, Spawn, SpawnedThread, ThreadPolicy, Wake, priority};

/// The part that clients' threads share.
#[derive(Debug, Default)]
pub struct Moves {
    /// Number of tasks with groups.
    groups: AtomicUsize,
    /// Held while this process itself is moved: preparing must not move it back.
    own: PiMutex<()>,
    asked: AtomicBool,
    ends: AtomicBool,
    wake: Wake,
}

impl Moves {
    /// Waits for the kernel, if a task has a group. Not while the broker's state is locked.
    pub fn prepare(&self) {
        if self.groups.load(Ordering::Relaxed) > 0 {
            let _own = self.stay();
            // If this fails, moves only last longer.
            let _ = prepare_to_move();
        }
    }

    /// Sets the number of tasks with groups.
    pub(super) fn note(&self, groups: usize) {
        self.groups.store(groups, Ordering::Relaxed);
    }

    /// No other thread moves this process meanwhile.
    pub(super) fn stay(&self) -> PiGuard<'_, ()> {
        self.own.lock()
    }
}

/// Prepares moves in a thread of its own.
#[derive(Debug, Default)]
pub(super) struct MovePreparer {
    moves: Arc<Moves>,
    thread: Option<SpawnedThread<()>>,
    /// Since when a preparation is requested.
    asked: Option<Instant>,
}

/// How often readiness is checked: well within the time that the kernel stays prepared.
pub(super) const SOON: Span = Span::from_millis(3);
/// The longest wait: real-time programs may leave the thread no CPU time.
const PATIENCE: Span = Span::from_millis(200);

/// The state of a preparation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// None was requested.
    Unasked,
    /// In progress.
    Soon,
    /// Done or given up; the next moves need another preparation.
    Ready,
}

impl MovePreparer {
    pub fn moves(&self) -> &Arc<Moves> {
        &self.moves
    }

    /// Requests a preparation.
    pub fn ask(&mut self, now: Instant) {
        if self.thread.is_none() {
            let moves = self.moves.clone();
            let below = ThreadPolicy::Fifo(priority::WINDOWS.start() - 1);
            self.thread = Spawn::new("moves").policy(below).spawn(move || preparer(&moves)).ok();
        }
        // Without the thread there is no wait.
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
        // A panic of the thread has already been reported.
        let _ = self.thread.take().map(SpawnedThread::join);
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
        // Simulates a thread that has not started.
        let own = preparer.moves().clone();
        let own = own.stay();
        preparer.moves().note(1);
        preparer.ask(Instant::ZERO);
        assert_eq!(preparer.readiness(Instant::ZERO), Readiness::Soon);
        assert_eq!(preparer.readiness(Instant::ZERO + PATIENCE), Readiness::Ready);
        drop(own);
    }
}
