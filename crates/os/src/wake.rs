//! A wake-up: a thread sleeps until there is work, on one futex word (futex(2)).
//!
//! Lanes sleep only here. A post costs one atomic instruction if no thread sleeps and one system call if one does;
//! neither side allocates, spins or locks, so a thread that is preempted at any instruction delays no other.

use std::num::NonZeroU32;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use hyoshi_model::Instant;
use rustix::io::Errno;
use rustix::thread::futex::{self, Flags};

use crate::alarm::Alarms;
use crate::clock::{Clock, MonotonicClock};

/// A binary event: *something was posted since the last wait*.
///
/// ```text
///            post                     wait (at once)
///   Empty ─────────► Posted ─────────────────────────► Empty
///     │                 ▲
///     │ wait            │ post: wakes one sleeper, of the highest priority
///     ▼                 │
///   Empty, n asleep ────┘
/// ```
///
/// Posts coalesce: ten posts before a wait are one. So post *after* pushing to a ring, and after each wake-up empty the
/// ring: everything that was pushed before a post is visible to the thread that consumes it. No post is lost: one that
/// finds no sleeper is kept for the next wait.
///
/// Any number of threads may post and wait, at any priorities. With several waiters each post that does not coalesce
/// releases one of them.
#[derive(Debug, Default)]
pub struct Wake {
    /// Bit 0: posted. The rest: how many threads sleep or are about to.
    word: AtomicU32,
    /// Further events that end a wait.
    attended: OnceLock<Alarms>,
}

/// Why [`Wake::wait_until`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// There was a post, and this thread consumed it.
    Posted,
    /// The instant was reached first.
    TimedOut,
}

const POSTED: u32 = 1;
const SLEEPER: u32 = 2;

impl Wake {
    /// Nothing posted, no sleeper.
    pub const fn new() -> Self {
        Wake { word: AtomicU32::new(0), attended: OnceLock::new() }
    }

    /// From now on [`Wake::wait_until`] also returns, as by a post, when one of these alarms is reported. For one
    /// waiting thread, and permanently: further alarms are ignored.
    pub fn attend(&self, alarms: &Alarms) {
        let _ = self.attended.set(alarms.clone());
    }

    /// Releases one waiting thread, or the next one. Safe in a signal handler.
    pub fn post(&self) {
        // Always a write, even if the bit is set: the release makes this thread's pushes visible to the thread that
        // consumes the earlier post.
        let before = self.word.fetch_or(POSTED, Ordering::AcqRel);
        if before & POSTED == 0 && before >= SLEEPER {
            let _ = futex::wake(&self.word, Flags::PRIVATE, 1);
        }
        if before & POSTED == 0
            && let Some(alarms) = self.attended.get()
        {
            alarms.poke();
        }
    }

    /// True if there is a post. It is not consumed.
    pub fn is_posted(&self) -> bool {
        self.word.load(Ordering::SeqCst) & POSTED != 0
    }

    /// Consumes a post if there is one.
    pub fn try_wait(&self) -> bool {
        self.word.load(Ordering::Relaxed) & POSTED != 0 && self.word.fetch_and(!POSTED, Ordering::AcqRel) & POSTED != 0
    }

    /// Sleeps until there is a post, and consumes it.
    pub fn wait(&self) {
        if !self.try_wait() {
            self.sleep(None);
        }
    }

    /// Sleeps until there is a post, or until `at`. A post takes precedence over an instant that has passed:
    /// `wait_until(clock, Instant::ZERO)` is [`Wake::try_wait`].
    pub fn wait_until(&self, clock: &MonotonicClock, at: Instant) -> WaitOutcome {
        if let Some(alarms) = self.attended.get() {
            return self.attend_until(alarms, clock, at);
        }
        if self.try_wait() || self.sleep(Some((clock, at)).filter(|_| at != Instant::NEVER)) {
            WaitOutcome::Posted
        } else {
            WaitOutcome::TimedOut
        }
    }

    /// Sleeps where the alarms are reported, instead of on the futex.
    fn attend_until(&self, alarms: &Alarms, clock: &MonotonicClock, at: Instant) -> WaitOutcome {
        if self.try_wait() {
            return WaitOutcome::Posted;
        }
        let left = at.since(clock.now());
        if !left.is_zero() {
            alarms.wait((at != Instant::NEVER).then_some(left));
        }
        // A poke without a post belongs to one that was consumed before: an early return is harmless.
        if self.try_wait() || clock.now() < at { WaitOutcome::Posted } else { WaitOutcome::TimedOut }
    }

    /// True if it consumed a post, false after the timeout.
    fn sleep(&self, until: Option<(&MonotonicClock, Instant)>) -> bool {
        let timeout = until.map(|(clock, at)| clock.timespec(at));
        let mut word = self.word.fetch_add(SLEEPER, Ordering::AcqRel) + SLEEPER;
        let mut time_is_up = false;
        loop {
            // Check for a post after every return from the kernel, also a timeout: the sleeper that a post woke must
            // consume it, or the post would be lost on the others.
            let (posted, next) = (word & POSTED != 0, (word & !POSTED) - SLEEPER);
            if posted || time_is_up {
                match self.word.compare_exchange(word, next, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => return posted,
                    Err(changed) => word = changed,
                }
                continue;
            }
            // FUTEX_WAIT_BITSET, because its timeout is absolute and on CLOCK_MONOTONIC.
            match futex::wait_bitset(&self.word, Flags::PRIVATE, word, timeout.as_ref(), NonZeroU32::MAX) {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::TIMEDOUT) => time_is_up = true,
                Err(errno) => unreachable!("futex wait on a word of our own: {errno}"),
            }
            word = self.word.load(Ordering::Acquire);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::thread;

    use hyoshi_model::Span;

    use super::*;
    use crate::clock::Clock;

    #[test]
    fn a_post_before_the_wait_is_kept_and_posts_coalesce() {
        let wake = Wake::new();
        assert!(!wake.try_wait());
        wake.post();
        wake.post();
        wake.wait();
        assert!(!wake.try_wait());
    }

    #[test]
    fn a_wait_without_a_post_ends_at_its_instant() {
        let (wake, clock) = (Wake::new(), MonotonicClock::start());
        let until = clock.now() + Span::from_millis(2);
        assert_eq!(wake.wait_until(&clock, until), WaitOutcome::TimedOut);
        assert!(clock.now() >= until);
        wake.post();
        assert_eq!(wake.wait_until(&clock, Instant::ZERO), WaitOutcome::Posted);
        assert_eq!(wake.wait_until(&clock, Instant::ZERO), WaitOutcome::TimedOut);
        assert_eq!(wake.word.load(Ordering::Relaxed), 0, "no thread is counted as asleep");
    }

    #[test]
    fn posts_back_and_forth_all_arrive() {
        let (ping, pong) = (Arc::new(Wake::new()), Arc::new(Wake::new()));
        let (theirs, back) = (ping.clone(), pong.clone());
        let partner = thread::spawn(move || {
            for _ in 0..20_000 {
                theirs.wait();
                back.post();
            }
        });
        for _ in 0..20_000 {
            ping.post();
            pong.wait();
        }
        partner.join().unwrap();
    }

    #[test]
    fn what_was_written_before_a_post_is_seen_by_several_waiters_who_time_out_too() {
        let (wake, done, written) = (Arc::new(Wake::new()), Arc::new(Wake::new()), Arc::new(AtomicU64::new(0)));
        let clock = MonotonicClock::start();
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let (wake, done, written) = (wake.clone(), done.clone(), written.clone());
                thread::spawn(move || {
                    let mut seen = 0;
                    while seen < 20_000 {
                        wake.wait_until(&clock, clock.now() + Span::from_micros(30));
                        let now = written.load(Ordering::Relaxed);
                        if now > seen {
                            seen = now;
                            done.post();
                        }
                    }
                    wake.post();
                })
            })
            .collect();
        for number in 1..=20_000 {
            written.store(number, Ordering::Relaxed);
            wake.post();
            done.wait();
        }
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        assert_eq!(wake.word.load(Ordering::Relaxed) & !POSTED, 0);
    }
}
