//! When the next release of each periodic operation is due. The first entry is replaced in place, because a periodic
//! timer that fires is set again at once.

use hyoshi_model::Instant;

use crate::heap::Heap;

/// Due times of numbered timers, earliest first; equal ones in the order of their numbers.
#[derive(Debug, Default)]
pub struct Timers {
    /// Due time above, timer number below, so one comparison orders both.
    heap: Heap<u128>,
}

const fn pack(due: Instant, timer: u32) -> u128 {
    (due.as_nanos() as u128) << 32 | timer as u128
}

const fn unpack(entry: u128) -> (Instant, u32) {
    (Instant::from_nanos((entry >> 32) as u64), entry as u32)
}

impl Timers {
    /// Room for `capacity` timers without allocating.
    pub fn with_capacity(capacity: usize) -> Self {
        Timers { heap: Heap::with_capacity(capacity) }
    }

    /// The earliest due time; `NEVER` if no timer is set.
    #[inline]
    pub fn next(&self) -> Instant {
        self.heap.first().map_or(Instant::NEVER, |entry| unpack(*entry).0)
    }

    /// The timer that is due first, if it is due by `now`.
    #[inline]
    pub fn due(&self, now: Instant) -> Option<(Instant, u32)> {
        self.heap.first().map(|entry| unpack(*entry)).filter(|(due, _)| *due <= now)
    }

    /// Sets another timer.
    pub fn set(&mut self, due: Instant, timer: u32) {
        self.heap.push(pack(due, timer));
    }

    /// Sets the first timer again, for `due`.
    #[inline]
    pub fn replace_first(&mut self, due: Instant) {
        if let Some(first) = self.heap.first().copied() {
            self.heap.replace_first(pack(due, unpack(first).1));
        }
    }

    /// Removes the first timer.
    pub fn remove_first(&mut self) {
        self.heap.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn timers_fire_in_the_order_of_due_time_and_number(periods in prop::collection::vec(1u64..40, 1..40)) {
            let mut timers = Timers::with_capacity(periods.len());
            for (number, period) in periods.iter().enumerate() {
                timers.set(Instant::from_nanos(*period), number as u32);
            }
            let mut fired = Vec::new();
            for _ in 0..500 {
                let (due, number) = timers.due(Instant::NEVER).unwrap();
                fired.push((due, number));
                timers.replace_first(Instant::from_nanos(due.as_nanos() + periods[number as usize]));
            }
            prop_assert!(fired.is_sorted());
            for (number, period) in periods.iter().enumerate() {
                let own = fired.iter().filter(|(_, fired)| *fired == number as u32);
                prop_assert!(own.enumerate().all(|(nth, (due, _))| due.as_nanos() == period * (nth as u64 + 1)));
            }
        }

        #[test]
        fn a_removed_timer_does_not_fire(dues in prop::collection::vec(0u64..100, 1..40)) {
            let mut timers = Timers::default();
            for (number, due) in dues.iter().enumerate() {
                timers.set(Instant::from_nanos(*due), number as u32);
            }
            let mut sorted = dues.clone();
            sorted.sort_unstable();
            for due in sorted {
                prop_assert_eq!(timers.next().as_nanos(), due);
                timers.remove_first();
            }
            prop_assert_eq!(timers.next(), Instant::NEVER);
        }
    }
}
