//! Wake-ups of the housekeeping thread.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use hyoshi_model::Instant;
use hyoshi_os::{MonotonicClock, Wake};

/// The highest SCHED_FIFO priority of all ORBs of the process.
static HIGHEST: AtomicU8 = AtomicU8::new(0);

/// See [`Housekeeping::highest`], of all ORBs of the process.
pub(crate) fn highest_of_all() -> u8 {
    HIGHEST.load(Ordering::Relaxed)
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Housekeeping {
    wake: Wake,
    /// Set by threads with work for it, cleared by each tick.
    active: AtomicBool,
    /// The thread ticks without being woken.
    ticking: AtomicBool,
    /// The highest SCHED_FIFO priority of threads that it must run above; 0 if none has one.
    highest: AtomicU8,
}

impl Housekeeping {
    /// Something is at work. `urgent` if a lane has no idle thread left.
    #[inline]
    pub(crate) fn wake(&self, urgent: bool) {
        if !self.active.load(Ordering::Relaxed) {
            self.active.store(true, Ordering::SeqCst);
        }
        if urgent || !self.ticking.load(Ordering::SeqCst) {
            self.wake.post();
        }
    }

    /// Whether it was woken since the last time.
    pub(crate) fn take(&self) -> bool {
        self.active.swap(false, Ordering::Relaxed)
    }

    /// Sets whether the thread ticks without being woken. False if a thread got work for it meanwhile, and did not wake it.
    pub(crate) fn set_ticking(&self, ticking: bool) -> bool {
        self.ticking.store(ticking, Ordering::SeqCst);
        ticking || !self.active.load(Ordering::SeqCst)
    }

    pub(crate) fn wait_until(&self, clock: &MonotonicClock, until: Instant) {
        self.wake.wait_until(clock, until);
    }

    /// The thread runs above this SCHED_FIFO priority from now on.
    pub(crate) fn outrank(&self, native: u8) {
        HIGHEST.fetch_max(native, Ordering::Relaxed);
        if self.highest.fetch_max(native, Ordering::Relaxed) < native {
            self.wake.post();
        }
    }

    /// The highest priority that it must run above.
    pub(crate) fn highest(&self) -> u8 {
        self.highest.load(Ordering::Relaxed)
    }

    /// Wakes it to end.
    pub(crate) fn end(&self) {
        self.wake.post();
    }
}
