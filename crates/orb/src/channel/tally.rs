//! Counts octets that one connection holds, and their sum over all connections of a lane.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The octets of one connection. Dropping it subtracts them from the sum.
#[derive(Debug)]
pub(crate) struct Tally {
    own: AtomicUsize,
    all: Arc<AtomicUsize>,
}

impl Tally {
    pub(crate) fn new(all: Arc<AtomicUsize>) -> Self {
        Tally { own: AtomicUsize::new(0), all }
    }

    /// The connection holds this many now. Returns the sum.
    pub(crate) fn set(&self, octets: usize) -> usize {
        let before = self.own.swap(octets, Ordering::Relaxed);
        // One step, so that the sum never wraps: it contains both.
        let change = octets.wrapping_sub(before);
        self.all.fetch_add(change, Ordering::Relaxed).wrapping_add(change)
    }

    /// The connection holds none now. Returns how many it held.
    pub(crate) fn take(&self) -> usize {
        let own = self.own();
        if own > 0 {
            self.set(0);
        }
        own
    }

    pub(crate) fn own(&self) -> usize {
        self.own.load(Ordering::Relaxed)
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_sum_is_that_of_all_connections(octets in proptest::collection::vec((0usize..3, 0usize..1000), 0..50)) {
            let all = Arc::default();
            let connections = [(); 3].map(|()| Tally::new(Arc::clone(&all)));
            let mut last = [0; 3];
            for (which, octets) in octets {
                last[which] = octets;
                prop_assert_eq!(connections[which].set(octets), last.iter().sum::<usize>());
                prop_assert_eq!(connections[which].own(), octets);
            }
            prop_assert_eq!(connections[0].take(), last[0]);
            drop(connections);
            prop_assert_eq!(all.load(Ordering::Relaxed), 0);
        }
    }
}
