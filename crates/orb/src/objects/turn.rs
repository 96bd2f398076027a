//! Turns to make or end an object: one activation or deactivation of an object at a time, while its requests wait
//! (CORBA 3.3 part 1, 15.3.6).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Instant;

use hyoshi_model::Span;
use hyoshi_wire::{SystemException, SystemKind};

use crate::limits::duration;
use crate::promise::Promise;
use crate::{current, minor};

/// An object that an activator makes or ends.
///
/// ```text
///            a request comes                incarnate returns
///   Absent ───────────────────► Making ───────────────────────► Active
///     ▲  ▲                        │ incarnate fails, panics       │ deactivate
///     │  └────────────────────────┘                               ▼
///     └───────────────────────────────────────────────────────  Ending: calls that run end, then etherealize
/// ```
#[derive(Debug)]
pub(super) struct Turn {
    /// The thread that makes or ends it.
    by: AtomicU32,
    pub(super) ended: Promise<()>,
}

impl Turn {
    pub(super) fn begin() -> Arc<Turn> {
        let turn = Turn { by: AtomicU32::new(0), ended: Promise::new() };
        turn.take_over();
        Arc::new(turn)
    }

    /// The calling thread continues it.
    pub(super) fn take_over(&self) {
        self.by.store(hyoshi_os::own_thread(), Ordering::Relaxed);
    }
}

/// Bounds on requests that wait for turns, each with its lane's thread.
#[derive(Debug)]
pub(crate) struct TurnLimits {
    waiting: AtomicUsize,
    pub(crate) most: usize,
    pub(crate) patience: Span,
}

impl TurnLimits {
    pub(super) fn new(most: usize) -> Self {
        TurnLimits { waiting: AtomicUsize::new(0), most, patience: Span::from_secs(10) }
    }

    /// The end of waiting for a request that arrives now.
    pub(super) fn until(&self) -> Option<Instant> {
        Instant::now().checked_add(duration(self.patience))
    }

    /// Waits with a request. BAD_INV_ORDER if the calling thread has the turn; TRANSIENT if too many requests wait or it
    /// takes too long, as two activators may wait for each other.
    pub(super) fn wait(&self, turn: &Turn, until: Option<Instant>) -> Result<(), SystemException> {
        if turn.by.load(Ordering::Relaxed) == hyoshi_os::own_thread() {
            return Err(SystemKind::BadInvOrder.not_done(minor::OWN_OBJECT));
        }
        let refused = || SystemKind::Transient.not_done(minor::DISCARDED);
        let _spared = current::spare_thread().ok_or_else(refused)?;
        let room = |waiting| (waiting < self.most).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::AcqRel, Ordering::Relaxed, room).map_err(|_| refused())?;
        let over = turn.ended.wait(until).copied();
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        over.ok_or(SystemKind::Transient.not_done(minor::NOT_MADE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_with_the_turn_and_its_own_thread_cannot_wait() {
        let (turn, turns) = (Turn::begin(), TurnLimits::new(3));
        assert_eq!(turns.wait(&turn, None), Err(SystemKind::BadInvOrder.not_done(minor::OWN_OBJECT)));
        std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..3).map(|_| scope.spawn(|| turns.wait(&turn, None))).collect();
            while turns.waiting.load(Ordering::Relaxed) < 3 {
                std::thread::yield_now();
            }
            let beyond = scope.spawn(|| turns.wait(&turn, None)).join().unwrap();
            assert_eq!(beyond, Err(SystemKind::Transient.not_done(minor::DISCARDED)));
            turn.ended.keep(());
            waiting.into_iter().for_each(|waiting| assert_eq!(waiting.join().unwrap(), Ok(())));
        });
        let never = Turn::begin();
        let late = std::thread::spawn(move || TurnLimits::new(1).wait(&never, Some(Instant::now()))).join().unwrap();
        assert_eq!(late, Err(SystemKind::Transient.not_done(minor::NOT_MADE)));
    }
}
