//! Selects the client whose handshake step is computed next: of the address with the least recent computing time, the
//! client that waits longest. So an address that causes much work waits behind addresses that cause little.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::places::Source;

/// After this time computing counts half.
const HALF: Duration = Duration::from_secs(1);
/// Addresses remembered without a waiting client.
const MOST: usize = 4096;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Turns {
    of: HashMap<Source, Share>,
}

#[derive(Debug)]
struct Share {
    waiting: VecDeque<u64>,
    /// Nanoseconds, as weighted at that time.
    spent: u64,
    then: Instant,
}

impl Share {
    fn spent(&self, now: Instant) -> u64 {
        let halves = now.saturating_duration_since(self.then).as_millis() / HALF.as_millis();
        self.spent.checked_shr(u32::try_from(halves).unwrap_or(u32::MAX)).unwrap_or(0)
    }
}

impl Turns {
    /// A client waits for its turn.
    pub(super) fn wait(&mut self, source: Source, number: u64, now: Instant) {
        if self.of.len() >= MOST && !self.of.contains_key(&source) {
            // Forgotten addresses start again at zero, as do new ones.
            self.of.retain(|_, share| !share.waiting.is_empty());
        }
        let share = self.of.entry(source).or_insert_with(|| Share { waiting: VecDeque::new(), spent: 0, then: now });
        share.waiting.push_back(number);
    }

    /// The next client.
    pub(super) fn next(&mut self, now: Instant) -> Option<(Source, u64)> {
        let waiting = self.of.iter().filter(|(_, share)| !share.waiting.is_empty());
        let (source, _) = waiting.min_by_key(|(_, share)| (share.spent(now), share.waiting.front().copied()))?;
        let source = *source;
        Some((source, self.of.get_mut(&source)?.waiting.pop_front()?))
    }

    /// Adds computing time to an address.
    pub(super) fn spend(&mut self, source: Source, time: Duration, now: Instant) {
        if let Some(share) = self.of.get_mut(&source) {
            let halves = now.saturating_duration_since(share.then).as_millis() / HALF.as_millis();
            share.spent = share.spent(now).saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
            share.then += HALF * u32::try_from(halves).unwrap_or(u32::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn from(number: u32) -> Source {
        Source::of(std::net::Ipv4Addr::from_bits(number).into())
    }

    #[test]
    fn an_address_that_made_much_work_waits_behind_one_that_made_little() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        (0..100).for_each(|number| turns.wait(from(1), number, now));
        assert_eq!(turns.next(now), Some((from(1), 0)));
        turns.spend(from(1), Duration::from_millis(40), now);
        turns.wait(from(2), 100, now);
        assert_eq!(turns.next(now), Some((from(2), 100)));
        assert_eq!(turns.next(now), Some((from(1), 1)));
        // It counts less over time.
        turns.spend(from(2), Duration::from_millis(30), now + HALF * 3);
        turns.wait(from(2), 101, now);
        assert_eq!(turns.next(now + HALF * 3), Some((from(1), 2)));
    }

    proptest! {
        #[test]
        fn each_gets_as_much_as_any_other_and_of_one_address_the_first_is_first(
            costs in proptest::collection::vec(1u64..50, 2..6),
            rounds in 50usize..200,
        ) {
            let (mut turns, now) = (Turns::default(), Instant::now());
            for number in 0..1000 {
                turns.wait(from(number as u32 % costs.len() as u32), number, now);
            }
            let mut spent = vec![0; costs.len()];
            let mut last = vec![None; costs.len()];
            for _ in 0..rounds {
                let (source, number) = turns.next(now).unwrap();
                let at = number as usize % costs.len();
                prop_assert!(last[at] < Some(number));
                last[at] = Some(number);
                // No address had more than one turn more before.
                prop_assert!(spent.iter().all(|other| spent[at] <= *other));
                spent[at] += costs[at];
                turns.spend(source, Duration::from_millis(costs[at]), now);
            }
        }
    }
}
