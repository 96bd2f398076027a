//! Octets that a connection keeps, counted among those of its whole lane.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Those of one connection, for as long as it exists.
#[derive(Debug)]
pub(crate) struct Kept {
    own: AtomicUsize,
    all: Arc<AtomicUsize>,
}

impl Kept {
    pub(crate) fn new(all: Arc<AtomicUsize>) -> Self {
        Kept { own: AtomicUsize::new(0), all }
    }

    /// So many are kept now, by whoever holds the connection. Returns how many there are in the lane.
    pub(crate) fn set(&self, octets: usize) -> usize {
        let before = self.own.swap(octets, Ordering::Relaxed);
        // In one step: the sum never wraps, as both were counted.
        let change = octets.wrapping_sub(before);
        self.all.fetch_add(change, Ordering::Relaxed).wrapping_add(change)
    }

    /// None are kept now. Returns how many were.
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

impl Drop for Kept {
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
        fn a_lane_counts_what_its_connections_keep(kept in proptest::collection::vec((0usize..3, 0usize..1000), 0..50)) {
            let all = Arc::default();
            let connections = [(); 3].map(|()| Kept::new(Arc::clone(&all)));
            let mut last = [0; 3];
            for (which, octets) in kept {
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
