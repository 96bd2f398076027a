//! Threads that linger: they wait for the next request in a read of their connection, not in epoll, and so spare it two
//! system calls. Requests of other connections must not lack these threads.
//!
//! ```text
//!            the last idle thread gets a connection: one that lingers is kicked
//!   Plenty ──────────────────────────────────────────────────────────────────────────► Short
//!     ▲                                        and again: as many ticks as at first      │
//!     └──────────────────────────────────────────────────────────────────────────────────┘
//!       ticks without that
//! ```
//!
//! A kick is a signal, and must not interrupt a system call of a servant (with EINTR, signal(7)). So the kicker first
//! marks the thread, under the lock of the lane's threads. A thread that finds itself marked at the end of its read
//! waits for that lock, and handles the signal before it runs anything.
//!
//! While the lane is short, no thread begins to linger, and each tick kicks those that still do: a kick that arrives
//! just before the read is lost. So there is no kick on the way of a request but the first when a lane becomes short.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use super::Lane;

/// Ticks for which a lane that was short of threads is taken to be: 100 ms.
const TICKS: u32 = 10;

/// The thread is not lingering.
const OUT: u8 = 0;
/// It lingers.
const STAYS: u8 = 1;
/// It lingers, and a signal was sent to it, or will be.
const KICKED: u8 = 2;

/// Of a lane.
#[derive(Debug)]
pub(super) struct Lingering {
    /// Which threads linger: [`OUT`], [`STAYS`] or [`KICKED`].
    stays: Box<[AtomicU8]>,
    /// Ticks until the lane is not short any more.
    short: AtomicU32,
}

impl Lingering {
    pub(super) fn new(threads: usize) -> Self {
        Lingering { stays: (0..threads).map(|_| AtomicU8::new(OUT)).collect(), short: AtomicU32::new(0) }
    }
}

impl Lane {
    /// The thread may wait in a read of its connection, until [`lingered`](Self::lingered). Not if no other is idle.
    #[inline]
    pub(super) fn may_linger(&self, thread: usize) -> bool {
        let Lingering { stays, short } = &self.lingering;
        // A lane that polls does so in epoll, for all its clients.
        if self.options.brief
            || !self.busy_poll.is_off()
            || self.idle.load(Ordering::Relaxed) == 0
            || short.load(Ordering::Relaxed) > 0
        {
            return false;
        }
        // A borrowed thread is needed in its own lane.
        let Some(own) = stays.get(thread) else { return false };
        own.store(STAYS, Ordering::SeqCst);
        // A thread that needs it has set `short` before, or sees it stay.
        if short.load(Ordering::SeqCst) > 0 || self.stopping() {
            self.lingered(thread);
            return false;
        }
        true
    }

    #[inline]
    pub(super) fn lingered(&self, thread: usize) {
        if self.lingering.stays[thread].swap(OUT, Ordering::AcqRel) == KICKED {
            self.handle_kick();
        }
    }

    /// Returns when the signal of the thread that kicked this one has been handled.
    #[cold]
    fn handle_kick(&self) {
        // The kicker holds it until the signal is sent.
        drop(self.threads.lock());
        hyoshi_os::handle_signals();
    }

    /// All threads are busy, and the lane has its most threads: one that lingers has to wait for
    /// requests of all connections.
    #[cold]
    pub(super) fn call_one_back(&self) {
        self.lingering.short.store(TICKS, Ordering::SeqCst);
        self.kick(1);
    }

    /// No thread lingers any longer.
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
        // A thread that was kicked just before its read is kicked again.
        let marked = |stays: &AtomicU8| match stays.compare_exchange(STAYS, KICKED, Ordering::SeqCst, Ordering::SeqCst)
        {
            Ok(_) | Err(KICKED) => true,
            Err(_) => false,
        };
        let staying = self.lingering.stays.iter().zip(&*threads).filter(|(stays, _)| marked(stays));
        staying.take(most).for_each(|(_, thread)| thread.handle.kick());
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};
    use std::os::unix::net::UnixStream;
    use std::sync::Weak;
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    use hyoshi_os::Spawn;

    use super::*;
    use crate::limits::ServerLimits;
    use crate::server::LaneOptions;

    #[test]
    fn a_kick_ends_no_system_call_that_a_thread_makes_after_it_lingered() {
        let lane =
            Lane::new(Weak::new(), LaneOptions::default(), Vec::new(), &ServerLimits::default(), None, None, None)
                .unwrap();
        lane.idle.store(1, Ordering::Relaxed);
        let over = std::sync::Arc::new(AtomicBool::new(false));
        let lingers = Spawn::new("lingers").spawn({
            let (lane, over) = (lane.clone(), over.clone());
            move || {
                let (own, _other) = UnixStream::pair().unwrap();
                // Like a read with a timeout of the socket: it is not restarted (signal(7)).
                own.set_read_timeout(Some(Duration::from_micros(50))).unwrap();
                let mut interrupted = 0;
                for _ in 0..300 {
                    assert!(lane.may_linger(0));
                    let begun = Instant::now();
                    while begun.elapsed() < Duration::from_micros(100) {}
                    lane.lingered(0);
                    let error = (&own).read(&mut [0]).unwrap_err();
                    interrupted += u32::from(error.kind() == ErrorKind::Interrupted);
                }
                over.store(true, Ordering::Relaxed);
                assert_eq!(interrupted, 0);
            }
        });
        lane.threads.lock().push(lingers.unwrap());
        while !over.load(Ordering::Relaxed) && !lane.threads.lock()[0].is_finished() {
            lane.call_all_back();
            // Otherwise it would hold the lock nearly always.
            std::thread::sleep(Duration::from_micros(20));
        }
        let lingers = lane.threads.lock().pop().unwrap();
        lingers.join().unwrap();
    }
}
