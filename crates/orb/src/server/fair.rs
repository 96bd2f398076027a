//! Stops one connection from taking all threads that other connections wait for.
//!
//! Requests that a client sends without waiting for replies run side by side, each on a thread. Such additional
//! threads are borrowed: a part of the lane ([`RESERVE`]) is never lent, and active connections share the rest evenly.
//! A connection with brief requests borrows none, because waking a thread would cost more than the request. If no
//! thread is idle, a connection goes to the end of the queue after a round ([`ROUND`]).
//!
//! Threads of one SCHED_FIFO priority on one CPU run until they block (sched(7)). A thread that finds one request after
//! the other would keep the CPU from those that wait with requests of other connections. So it yields.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hyoshi_os::ThreadPolicy;

use super::Lane;

/// One of this many threads of a lane is not lent; a lane with fewer than [`SMALL`] lends all.
const RESERVE: usize = 8;
/// A lane with fewer threads lends them all.
const SMALL: usize = 4;
/// Requests that run for one connection before the next connection's turn, if no thread is idle.
const ROUND: u32 = 16;
/// How long such a round takes at most, besides the request that exceeds it.
const ROUND_TIME: Duration = Duration::from_millis(1);
/// A request that takes less is brief.
const BRIEF: Duration = Duration::from_micros(200);

/// Of a lane.
#[derive(Debug)]
pub(super) struct Fairness {
    /// Threads that are never lent.
    reserve: usize,
    /// Threads that one connection may have. Renewed by each tick.
    share: AtomicU32,
}

impl Fairness {
    pub(super) fn new(threads: usize) -> Self {
        Fairness { reserve: reserve(threads), share: AtomicU32::new(share(threads, 1)) }
    }
}

fn reserve(threads: usize) -> usize {
    if threads < SMALL { 0 } else { (threads / RESERVE).max(1) }
}

/// How many threads each of so many connections may have.
fn share(threads: usize, connections: usize) -> u32 {
    (threads - reserve(threads)).div_ceil(connections.max(1)) as u32
}

impl Lane {
    /// How many requests of one connection may run at present, if another thread will take one.
    pub(super) fn may_run(&self) -> u32 {
        self.lend(self.idle.load(Ordering::Relaxed))
    }

    /// The same, if the calling thread takes it: it is no longer idle.
    pub(super) fn may_take(&self) -> u32 {
        self.lend(self.idle.load(Ordering::Relaxed) + 1)
    }

    fn lend(&self, idle: usize) -> u32 {
        // Threads that can be started count, because the lane starts them when it needs them.
        let free = idle + self.options.threads.saturating_sub(self.started());
        if free <= self.fairness.reserve {
            return 0;
        }
        self.in_flight.min(self.fairness.share.load(Ordering::Relaxed))
    }

    /// Whether its threads keep the CPU from each other.
    pub(super) fn is_first_in_first_out(&self) -> bool {
        self.options.threads > 1 && matches!(self.options.policy, ThreadPolicy::Fifo(_))
    }

    /// Between two connections: once in each step of the coarse clock, the other threads of this priority have the CPU.
    #[inline]
    pub(super) fn yield_cpu(&self, yielded: &mut u64) {
        let now = self.now.load(Ordering::Relaxed);
        if *yielded != now && self.is_first_in_first_out() {
            *yielded = now;
            std::thread::yield_now();
        }
    }

    /// Every tick: the number of active connections.
    pub(super) fn tick_fairness(&self, connections: usize) {
        self.fairness.share.store(share(self.options.threads, connections), Ordering::Relaxed);
    }
}

/// How a connection that sends requests without waiting uses its turn.
#[derive(Debug, Default)]
pub(super) struct Round {
    count: u32,
    since: Option<Instant>,
}

impl Round {
    /// A request is run; others follow it.
    pub(super) fn begin(&mut self) {
        self.since.get_or_insert_with(Instant::now);
        self.count += 1;
    }

    /// True if it has run so much that other connections should have their turn.
    pub(super) fn is_over(&self) -> bool {
        self.count >= ROUND || self.since.is_some_and(|since| since.elapsed() > ROUND_TIME)
    }
}

/// Of a connection: whether its client sends requests without waiting for replies, and how long those take.
#[derive(Debug, Default)]
pub(super) struct Pipelining(AtomicU8);

/// Each request was sent behind the reply to the one before.
const NONE: u8 = 0;
/// They get threads of their own while the lane has some.
const LONG: u8 = 1;
/// The last that was measured took less than [`BRIEF`].
const IS_BRIEF: u8 = 2;

impl Pipelining {
    pub(super) fn begin(&self) {
        if !self.is_seen() {
            self.0.store(LONG, Ordering::Relaxed);
        }
    }

    pub(super) fn is_seen(&self) -> bool {
        self.0.load(Ordering::Relaxed) != NONE
    }

    pub(super) fn is_brief(&self) -> bool {
        self.0.load(Ordering::Relaxed) == IS_BRIEF
    }

    pub(super) fn took(&self, time: Duration) {
        self.0.store(if time < BRIEF { IS_BRIEF } else { LONG }, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn shares_use_all_that_is_lent_and_no_more_than_rounding_asks(threads in 1usize..200, connections in 1usize..300) {
            let lent = threads - reserve(threads);
            prop_assert!(lent >= 1);
            prop_assert!(threads < SMALL || reserve(threads) >= 1);
            let all = share(threads, connections) as usize * connections;
            prop_assert!((lent..lent + connections).contains(&all));
        }
    }

    #[test]
    fn a_round_ends_after_so_many_requests_or_so_much_time() {
        let mut round = Round::default();
        assert!(!round.is_over());
        for _ in 0..ROUND {
            assert!(!round.is_over() || round.since.is_some_and(|since| since.elapsed() > ROUND_TIME));
            round.begin();
        }
        assert!(round.is_over());
        let long = Round { count: 1, since: Instant::now().checked_sub(2 * ROUND_TIME) };
        assert!(long.is_over());
    }
}
