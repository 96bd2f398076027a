//! How often an event may happen: a token bucket, stored as one instant.
//!
//! It is the generic cell rate algorithm in its virtual scheduling form (ITU-T I.371, annex A). Each event moves the
//! expected time by one interval, and may arrive earlier than expected by the length of a burst.

use hyoshi_model::{Instant, Span};

/// A rate, and how many events may arrive at once.
///
/// Within any span of time `t` at most `burst + t / every` events conform, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    every: Span,
    tolerance: Span,
    /// When the next event would be due if events were evenly spaced.
    expected: Instant,
}

impl Rate {
    /// One event each `every`, and `burst` of them at once; at least one.
    pub fn new(every: Span, burst: u32) -> Rate {
        let tolerance = Span::from_nanos(every.as_nanos().saturating_mul(u64::from(burst.max(1) - 1)));
        Rate { every, tolerance, expected: Instant::ZERO }
    }

    /// Whether an event conforms; if so, it counts. An event that does not conform costs nothing.
    pub fn take(&mut self, now: Instant) -> bool {
        if self.expected.since(now) > self.tolerance {
            return false;
        }
        self.expected = self.expected.max(now).saturating_add(self.every);
        true
    }

    /// Whether there is no debt: then it equals a new one.
    pub fn is_full(&self, now: Instant) -> bool {
        self.expected <= now
    }

    /// When the next event conforms.
    pub fn next(&self) -> Instant {
        Instant::from_nanos(self.expected.as_nanos().saturating_sub(self.tolerance.as_nanos()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn in_no_window_more_conform_than_the_burst_and_the_rate_allow(
            every in 1u64..1_000, burst in 1u32..20, gaps in prop::collection::vec(0u64..500, 1..300),
        ) {
            let mut rate = Rate::new(Span::from_nanos(every), burst);
            let mut now = 0;
            let mut taken = Vec::new();
            for gap in gaps {
                now += gap;
                let at = Instant::from_nanos(now);
                let next = rate.next();
                prop_assert_eq!(rate.take(at), next <= at, "next() returns the instant");
                if next <= at {
                    taken.push(now);
                }
            }
            for (first, from) in taken.iter().enumerate() {
                for (last, to) in taken.iter().enumerate().skip(first) {
                    let count = (last - first + 1) as u64;
                    prop_assert!(count <= u64::from(burst) + (to - from).div_ceil(every));
                }
            }
        }

        #[test]
        fn who_keeps_to_the_rate_is_never_refused(every in 1u64..1_000, burst in 1u32..20, extra in prop::collection::vec(0u64..500, 1..300)) {
            let mut rate = Rate::new(Span::from_nanos(every), burst);
            let mut now = 0;
            for extra in extra {
                now += every + extra;
                prop_assert!(rate.take(Instant::from_nanos(now)));
            }
        }
    }
}
