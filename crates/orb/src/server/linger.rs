//! Threads that linger: they wait for the next request in a read of their connection, not in epoll, and so spare it two
//! system calls. They must not be missing where requests of other connections come.
//!
//! ```text
//!            the last idle thread is given a connection: one that lingers is kicked
//!   Plenty ──────────────────────────────────────────────────────────────────────────► Short
//!     ▲                                        and again: as many ticks as at first      │
//!     └──────────────────────────────────────────────────────────────────────────────────┘
//!       ticks without that
//! ```
//!
//! While the lane is short nobody begins to linger, and each tick kicks those that still do: a kick that comes just before
//! the read is lost. So there is no kick on the way of a request but the first when a lane becomes short.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::lane::Lane;

/// Ticks for which a lane that was short of threads is taken to be: 100 ms.
const TICKS: u32 = 10;

/// Of a lane.
#[derive(Debug)]
pub(super) struct Lingering {
    /// Which threads linger.
    stays: Box<[AtomicBool]>,
    /// Ticks until the lane is not short any more.
    short: AtomicU32,
}

impl Lingering {
    pub(super) fn new(threads: usize) -> Self {
        Lingering { stays: (0..threads).map(|_| AtomicBool::new(false)).collect(), short: AtomicU32::new(0) }
    }
}

impl Lane {
    /// The thread may wait in a read of its connection, until [`lingered`](Self::lingered). Not if nobody else is idle.
    #[inline]
    pub(super) fn may_linger(&self, thread: usize) -> bool {
        let Lingering { stays, short } = &self.lingering;
        if self.options.brief || self.idle.load(Ordering::Relaxed) == 0 || short.load(Ordering::Relaxed) > 0 {
            return false;
        }
        stays[thread].store(true, Ordering::SeqCst);
        // Whoever wants it back has said so before, or sees it stay.
        if short.load(Ordering::SeqCst) > 0 || self.stopping() {
            stays[thread].store(false, Ordering::Relaxed);
            return false;
        }
        true
    }

    #[inline]
    pub(super) fn lingered(&self, thread: usize) {
        self.lingering.stays[thread].store(false, Ordering::Relaxed);
    }

    /// All threads have something in hand, and there are as many as there may be: one that lingers is to wait for
    /// requests of all connections.
    #[cold]
    pub(super) fn call_one_back(&self) {
        self.lingering.short.store(TICKS, Ordering::SeqCst);
        self.kick(1);
    }

    /// Nobody is to linger any more.
    pub(super) fn call_all_back(&self) {
        self.kick(usize::MAX);
    }

    /// Every tick.
    pub(super) fn tick_lingering(&self) {
        let short = &self.lingering.short;
        if short.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |short| short.checked_sub(1)).is_ok() {
            self.call_all_back();
        }
    }

    fn kick(&self, most: usize) {
        let threads = self.threads.lock();
        let staying = self.lingering.stays.iter().zip(&*threads).filter(|(stays, _)| stays.load(Ordering::SeqCst));
        staying.take(most).for_each(|(_, thread)| thread.handle.kick());
    }
}
