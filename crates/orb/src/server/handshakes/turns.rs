//! Selects the next client to compute for: of the network with the least recent computing time, the client that waits
//! longest. So a network that causes much work waits behind others.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::places::ClientNetwork;

/// The half-life of computing time.
const HALF: Duration = Duration::from_secs(1);
/// Addresses remembered without a waiting client: those with the most computing time.
const MOST: usize = 4096;

/// See the module.
#[derive(Debug)]
pub(super) struct Turns {
    of: HashMap<ClientNetwork, NetworkShare>,
    /// By computing time, then by the client that waits longest.
    waiting: BTreeSet<(u64, u64, ClientNetwork)>,
    /// Addresses without a waiting client, by computing time.
    resting: BTreeSet<(u64, ClientNetwork)>,
    /// When computing time was last halved.
    halved: Instant,
}

#[derive(Debug, Default)]
struct NetworkShare {
    waiting: VecDeque<u64>,
    /// Nanoseconds.
    spent: u64,
}

impl Turns {
    pub(super) fn new(now: Instant) -> Turns {
        let (of, waiting, resting) = (HashMap::new(), BTreeSet::new(), BTreeSet::new());
        Turns { of, waiting, resting, halved: now }
    }

    /// A client waits for its turn.
    pub(super) fn wait(&mut self, source: ClientNetwork, number: u64, now: Instant) {
        self.halve(now);
        self.change(source, |share| share.waiting.push_back(number));
    }

    /// The next client.
    pub(super) fn next(&mut self, now: Instant) -> Option<(ClientNetwork, u64)> {
        self.halve(now);
        let (_, number, source) = *self.waiting.first()?;
        self.change(source, |share| {
            share.waiting.pop_front();
        });
        Some((source, number))
    }

    /// A client was closed.
    pub(super) fn leave(&mut self, source: ClientNetwork, number: u64) {
        self.change(source, |share| share.waiting.retain(|other| *other != number));
    }

    /// Adds computing time to an address.
    pub(super) fn spend(&mut self, source: ClientNetwork, time: Duration, now: Instant) {
        self.halve(now);
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.change(source, |share| share.spent = share.spent.saturating_add(time));
    }

    fn change(&mut self, source: ClientNetwork, change: impl FnOnce(&mut NetworkShare)) {
        let share = self.of.entry(source).or_default();
        match share.waiting.front() {
            Some(first) => self.waiting.remove(&(share.spent, *first, source)),
            None => self.resting.remove(&(share.spent, source)),
        };
        change(share);
        match share.waiting.front() {
            Some(first) => self.waiting.insert((share.spent, *first, source)),
            None if share.spent > 0 => self.resting.insert((share.spent, source)),
            None => self.of.remove(&source).is_some(),
        };
        // It has the least time to lose.
        if self.resting.len() > MOST
            && let Some((_, idlest)) = self.resting.pop_first()
        {
            self.of.remove(&idlest);
        }
    }

    fn halve(&mut self, now: Instant) {
        let halves = now.saturating_duration_since(self.halved).as_millis() / HALF.as_millis();
        let halves = u32::try_from(halves).unwrap_or(u32::MAX);
        if halves == 0 {
            return;
        }
        self.halved += HALF.saturating_mul(halves);
        (self.waiting, self.resting) = Default::default();
        let (waiting, resting) = (&mut self.waiting, &mut self.resting);
        self.of.retain(|source, share| {
            share.spent = share.spent.checked_shr(halves).unwrap_or(0);
            match share.waiting.front() {
                Some(first) => waiting.insert((share.spent, *first, *source)),
                None => share.spent > 0 && resting.insert((share.spent, *source)),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn from(number: u32) -> ClientNetwork {
        ClientNetwork::of(std::net::Ipv4Addr::from_bits(number).into())
    }

    #[test]
    fn an_address_that_made_much_work_waits_behind_one_that_made_little() {
        let (mut turns, now) = (Turns::new(Instant::now()), Instant::now());
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

    #[test]
    fn an_attacker_with_many_addresses_cannot_erase_the_time_of_others() {
        let (mut turns, now) = (Turns::new(Instant::now()), Instant::now());
        turns.wait(from(1), 0, now);
        let _ = turns.next(now);
        turns.spend(from(1), Duration::from_millis(40), now);
        for number in 1..20_000 {
            turns.wait(from(1_000 + number as u32), number, now);
            assert_eq!(turns.next(now), Some((from(1_000 + number as u32), number)));
            turns.spend(from(1_000 + number as u32), Duration::from_micros(100), now);
        }
        assert_eq!((turns.of.len(), turns.resting.len()), (MOST, MOST));
        turns.wait(from(1), 20_000, now);
        turns.wait(from(2), 20_001, now);
        assert_eq!(turns.next(now), Some((from(2), 20_001)));
    }

    #[test]
    fn a_closed_client_gets_no_turn() {
        let (mut turns, now) = (Turns::new(Instant::now()), Instant::now());
        (0..3).for_each(|number| turns.wait(from(1), number, now));
        (0..2).for_each(|number| turns.leave(from(1), number));
        assert_eq!((turns.next(now), turns.next(now)), (Some((from(1), 2)), None));
    }

    proptest! {
        #[test]
        fn addresses_are_ordered_by_what_they_spent_whatever_happens(
            steps in proptest::collection::vec((0u32..5, 0u8..4, 0u64..3000), 0..100),
        ) {
            let (begun, mut millis) = (Instant::now(), 0);
            let mut turns = Turns::new(begun);
            let mut model = std::collections::HashMap::<u32, (Vec<u64>, u64)>::new();
            for (number, (source, step, some)) in (0..).zip(steps) {
                let before = millis;
                millis += if step == 3 { some } else { 0 };
                let now = begun + Duration::from_millis(millis);
                model.values_mut().for_each(|(_, spent)| *spent >>= millis / 1000 - before / 1000);
                let (waiting, spent) = model.entry(source).or_default();
                match step {
                    0 => {
                        waiting.push(number);
                        turns.wait(from(source), number, now);
                    }
                    1 => {
                        *spent += some * 1000;
                        turns.spend(from(source), Duration::from_micros(some), now);
                    }
                    2 => {
                        if let Some(number) = waiting.pop() {
                            turns.leave(from(source), number);
                        }
                    }
                    _ => {
                        let least = model.iter_mut().filter(|(_, (waiting, _))| !waiting.is_empty());
                        let least = least.min_by_key(|(_, (waiting, spent))| (*spent, waiting[0]));
                        let next = least.map(|(source, (waiting, _))| (from(*source), waiting.remove(0)));
                        prop_assert_eq!(turns.next(now), next);
                    }
                }
                prop_assert_eq!(turns.waiting.len() + turns.resting.len(), turns.of.len());
            }
        }

        #[test]
        fn each_address_gets_as_much_time_and_its_first_client_is_first(
            costs in proptest::collection::vec(1u64..50, 2..6),
            rounds in 50usize..200,
        ) {
            let (mut turns, now) = (Turns::new(Instant::now()), Instant::now());
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
