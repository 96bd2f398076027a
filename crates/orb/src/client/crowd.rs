//! Selects the connection to an endpoint for a call, when there are more calls at a time than own connections.
//!
//! A server serves its connections in turn, so calls that share one wait longer than a call with its own. Callers of
//! one process should wait equally long:
//!
//! ```text
//!             a shared connection would carry two calls: all calls share from now on
//!   Own ────────────────────────────────────────────────────────────────────────────► Crowded
//!    ▲                                                                                   │
//!    └───────────────────────────────────────────────────────────────────────────────────┘
//!       so few calls are under way that most connections of their own would be unused
//! ```
//!
//! Calls that share use the connection with the fewest calls.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The most connections that calls share.
const SHARED: usize = 4;

/// See the module.
#[derive(Debug)]
pub(super) struct Crowd {
    /// Calls under way on each shared connection.
    calls: Box<[AtomicUsize]>,
    /// On all of them.
    all: AtomicUsize,
    crowded: AtomicBool,
    /// With fewer calls there is no crowd.
    few: usize,
}

impl Crowd {
    /// For an endpoint to which `own` calls may have connections of their own.
    pub(super) fn new(own: usize) -> Self {
        let calls = (0..own.clamp(1, SHARED)).map(|_| AtomicUsize::new(0)).collect();
        Crowd { calls, all: AtomicUsize::new(0), crowded: AtomicBool::new(false), few: (own * 3 / 4).max(1) }
    }

    /// How many shared connections there may be.
    pub(super) fn connections(&self) -> usize {
        self.calls.len()
    }

    /// True if all calls share.
    #[inline]
    pub(super) fn is_crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed)
    }

    /// A call shares a connection until the returned value is dropped.
    pub(super) fn join(&self) -> Guest<'_> {
        // Other calls may choose the same one at the same time: then it carries one more than necessary.
        let calls = self.calls.iter().enumerate().min_by_key(|(_, calls)| calls.load(Ordering::Relaxed));
        let at = calls.map_or(0, |(at, _)| at);
        self.calls[at].fetch_add(1, Ordering::Relaxed);
        if self.all.fetch_add(1, Ordering::Relaxed) >= self.calls.len() {
            self.crowded.store(true, Ordering::Relaxed);
        }
        Guest { crowd: self, at }
    }
}

/// A call's place on a shared connection.
#[derive(Debug)]
pub(crate) struct Guest<'a> {
    crowd: &'a Crowd,
    at: usize,
}

impl Guest<'_> {
    /// The connection's index.
    pub(super) fn at(&self) -> usize {
        self.at
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.crowd.calls[self.at].fetch_sub(1, Ordering::Relaxed);
        if self.crowd.all.fetch_sub(1, Ordering::Relaxed) <= self.crowd.few {
            self.crowd.crowded.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn shared_connections_carry_equally_many_calls(own in 0usize..40, calls in 1usize..200) {
            let crowd = Crowd::new(own);
            let all: Vec<_> = (0..calls).map(|_| crowd.join()).collect();
            let carried: Vec<_> = crowd.calls.iter().map(|calls| calls.load(Ordering::Relaxed)).collect();
            prop_assert_eq!(carried.iter().sum::<usize>(), calls);
            prop_assert!(carried.iter().max().unwrap() - carried.iter().min().unwrap() <= 1);
            prop_assert_eq!(crowd.is_crowded(), calls > crowd.connections());
            drop(all);
            prop_assert!(!crowd.is_crowded());
        }
    }

    #[test]
    fn a_crowd_is_one_until_few_are_left() {
        let crowd = Crowd::new(16);
        let mut all: Vec<_> = (0..20).map(|_| crowd.join()).collect();
        assert_eq!(crowd.connections(), 4);
        assert!(crowd.is_crowded());
        all.truncate(12);
        assert!(crowd.is_crowded());
        all.truncate(11);
        assert!(!crowd.is_crowded());
        all.extend((0..3).map(|_| crowd.join()));
        assert!(crowd.is_crowded(), "two of them share a connection again");
    }
}
