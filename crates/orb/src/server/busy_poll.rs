//! When a lane's threads poll for clients without sleeping.
//!
//! A thread that polls at a real-time priority keeps its CPU from lower lanes, so the time is bounded, for all threads
//! of the lane together and whatever its clients do:
//!
//! ```text
//!           a thread would sleep        the time is over         the same time again
//!   Rested ──────────────────────► Polls ────────────────► Rests ──────────────────► Rested
//! ```

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyoshi_model::Span;
use hyoshi_os::Ready;
use hyoshi_os::clock::monotonic;

use super::Lane;

/// See the module.
#[derive(Debug)]
pub(super) struct BusyPoll {
    most: Span,
    /// When the lane last began to poll, in nanoseconds.
    begun: AtomicU64,
}

impl BusyPoll {
    /// For at most this long at a time; never with zero.
    pub(super) fn new(most: Span) -> Self {
        BusyPoll { most, begun: AtomicU64::new(0) }
    }

    #[inline]
    pub(super) fn is_off(&self) -> bool {
        self.most == Span::ZERO
    }

    /// Whether a thread may poll now, instead of sleeping.
    fn may(&self, now: Span) -> bool {
        let begun = self.begun.load(Ordering::Relaxed);
        let past = now.saturating_sub(Span::from_nanos(begun));
        if past < self.most {
            return true;
        }
        // If another thread begins at the same time, this one does not.
        past.as_nanos() >= self.most.as_nanos().saturating_mul(2)
            && self.begun.compare_exchange(begun, now.as_nanos(), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl Lane {
    /// Waits for what epoll reports.
    #[inline]
    pub(super) fn wait(&self) -> io::Result<Option<(Ready, bool)>> {
        if !self.busy_poll.is_off() {
            while self.busy_poll.may(monotonic()) {
                if let Some(ready) = self.poller.wait_with_hangup(Some(Duration::ZERO))? {
                    return Ok(Some(ready));
                }
            }
        }
        self.poller.wait_with_hangup(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_lane_polls_for_its_time_at_most_and_rests_as_long(
            most in 1u64..1000,
            steps in proptest::collection::vec(0u64..300, 1..200),
        ) {
            let poll = BusyPoll::new(Span::from_nanos(most));
            let (mut now, mut begun) = (10_000, None);
            for step in steps {
                now += step;
                let past = begun.map(|begun| now - begun);
                let may = poll.may(Span::from_nanos(now));
                prop_assert_eq!(may, past.is_none_or(|past| past < most || past >= 2 * most));
                if past.is_none_or(|past| past >= 2 * most) {
                    begun = Some(now);
                }
            }
        }
    }
}
