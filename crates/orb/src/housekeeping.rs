//! Wake-ups of the housekeeping thread.

use std::sync::atomic::{AtomicBool, Ordering};

use hyoshi_model::Instant;
use hyoshi_os::{MonotonicClock, Wake};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Housekeeping {
    wake: Wake,
    /// Set by whoever works, cleared by each tick.
    stirred: AtomicBool,
    /// The next tick comes by itself.
    ticking: AtomicBool,
}

impl Housekeeping {
    /// Something is at work. `urgent` if a lane has no idle thread left.
    #[inline]
    pub(crate) fn wake(&self, urgent: bool) {
        if !self.stirred.load(Ordering::Relaxed) {
            self.stirred.store(true, Ordering::SeqCst);
        }
        if urgent || !self.ticking.load(Ordering::SeqCst) {
            self.wake.post();
        }
    }

    /// Whether it was woken since the last time.
    pub(crate) fn take(&self) -> bool {
        self.stirred.swap(false, Ordering::Relaxed)
    }

    /// The next tick comes by itself, or not. False if something is at work that did not wake the thread.
    pub(crate) fn set_ticking(&self, ticking: bool) -> bool {
        self.ticking.store(ticking, Ordering::SeqCst);
        ticking || !self.stirred.load(Ordering::SeqCst)
    }

    pub(crate) fn wait_until(&self, clock: &MonotonicClock, until: Instant) {
        self.wake.wait_until(clock, until);
    }

    /// Wakes it to end.
    pub(crate) fn end(&self) {
        self.wake.post();
    }
}
