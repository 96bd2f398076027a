//! Places for clients before the end of their handshake, and the choice of a client that loses its place to a new one.
//!
//! Any host that reaches the port can use places. So a new client replaces one of the network with most places: its oldest
//! client, if that had enough time for its next step; otherwise a random one. Clients that arrive too fast then mostly
//! replace each other. Always replacing the oldest would hit every client whose round trip is longer than the time in which
//! all places are replaced.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The addresses that one attacker can have: an IPv4 address, or the first half of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClientNetwork(u128);

impl ClientNetwork {
    pub(in crate::server) fn of(address: IpAddr) -> ClientNetwork {
        match address.to_canonical() {
            IpAddr::V4(address) => ClientNetwork(u128::from(address.to_ipv6_mapped())),
            IpAddr::V6(address) => ClientNetwork(u128::from(address) >> 64 << 64),
        }
    }
}

/// Enough time for a client's next step: a client on the other side of the world answers within it.
const GRACE: Duration = Duration::from_secs(1);

/// Some clients, by number; numbers rise.
#[derive(Debug)]
pub(super) struct ClientPlaces {
    most: usize,
    all: BTreeMap<u64, (ClientNetwork, Instant)>,
    of: HashMap<ClientNetwork, BTreeSet<u64>>,
    /// By number of places, then by the oldest of them.
    ranks: BTreeSet<(usize, std::cmp::Reverse<u64>, ClientNetwork)>,
    draws: u64,
}

impl ClientPlaces {
    pub(super) fn new(most: usize, seed: u64) -> ClientPlaces {
        let (all, of, ranks) = (BTreeMap::new(), HashMap::new(), BTreeSet::new());
        ClientPlaces { most: most.max(1), all, of, ranks, draws: seed | 1 }
    }

    /// Takes a place; returns the number of the client that lost its own, if none was left.
    pub(super) fn take(&mut self, number: u64, source: ClientNetwork, now: Instant) -> Option<u64> {
        let loser = if self.all.len() >= self.most { self.make_room(now) } else { None };
        self.all.insert(number, (source, now));
        self.change(source, |own| own.insert(number));
        loser
    }

    /// Removes a client to make room, if there is any.
    pub(super) fn make_room(&mut self, now: Instant) -> Option<u64> {
        let (most, oldest, _) = *self.ranks.last()?;
        let (source, since) = *self.all.get(&oldest.0)?;
        let mut loser = oldest.0;
        if now.saturating_duration_since(since) < GRACE {
            let source = self.draw_source(most).unwrap_or(source);
            let own = &self.of[&source];
            let (first, last) = (*own.first()?, *own.last()?);
            let from = first + self.draw() % (last - first + 1);
            loser = *self.of[&source].range(from..).next()?;
        }
        self.leave(loser);
        Some(loser)
    }

    /// A random one of the networks with most places.
    fn draw_source(&mut self, most: usize) -> Option<ClientNetwork> {
        let (first, last) = (*self.all.keys().next()?, *self.all.keys().next_back()?);
        for _ in 0..16 {
            let from = first + self.draw() % (last - first + 1);
            let (source, _) = self.all.range(from..).next()?.1;
            if self.of[source].len() == most {
                return Some(*source);
            }
        }
        None
    }

    /// Xorshift (Marsaglia 2003), with a seed that no client knows.
    fn draw(&mut self) -> u64 {
        self.draws ^= self.draws << 13;
        self.draws ^= self.draws >> 7;
        self.draws ^= self.draws << 17;
        self.draws
    }

    /// False if it had no place.
    pub(super) fn leave(&mut self, number: u64) -> bool {
        let Some((source, _)) = self.all.remove(&number) else { return false };
        self.change(source, |own| own.remove(&number));
        true
    }

    fn change(&mut self, source: ClientNetwork, change: impl FnOnce(&mut BTreeSet<u64>) -> bool) {
        let own = self.of.entry(source).or_default();
        let rank = |own: &BTreeSet<u64>| Some((own.len(), std::cmp::Reverse(*own.first()?), source));
        rank(own).inspect(|rank| {
            self.ranks.remove(rank);
        });
        change(own);
        match rank(own) {
            Some(rank) => {
                self.ranks.insert(rank);
            }
            None => {
                self.of.remove(&source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn from(number: u32) -> ClientNetwork {
        ClientNetwork::of(IpAddr::from(std::net::Ipv4Addr::from_bits(number)))
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_are_one_source() {
        let of = |text: &str| ClientNetwork::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }

    #[test]
    fn the_network_with_most_places_loses_one() {
        let (mut places, now) = (ClientPlaces::new(10, 1), Instant::now());
        assert_eq!(places.take(0, from(7), now), None);
        for number in 1..10 {
            assert_eq!(places.take(number, from(1), now), None);
        }
        for number in 10..1000 {
            let loser = places.take(number, from(1), now).unwrap();
            assert!(loser != 0 && loser < number);
        }
        assert!(places.leave(0) && !places.leave(0));
    }

    #[test]
    fn clients_that_had_time_lose_by_age_and_others_at_random() {
        let (mut places, now) = (ClientPlaces::new(100, 1), Instant::now());
        for number in 0..100 {
            places.take(number, from(1), now);
        }
        let late = now + GRACE;
        assert_eq!((places.take(100, from(1), late), places.take(101, from(1), late)), (Some(0), Some(1)));
        let (mut places, mut oldest) = (ClientPlaces::new(100, 1), 0);
        for number in 0..1000 {
            oldest += usize::from(places.take(number, from(1), now) == Some(number.saturating_sub(100)));
        }
        assert!(oldest < 100, "{oldest} of 900 were the oldest");
    }

    #[test]
    fn a_client_far_away_keeps_its_place_while_strangers_take_2000_a_second() {
        let mut places = ClientPlaces::new(4096, 1);
        let begun = Instant::now();
        let at = |millis: u64| begun + Duration::from_millis(millis);
        let mut number = 0;
        for millis in 0..5000 {
            for _ in 0..2 {
                places.take(number, from(1), at(millis));
                number += 1;
            }
        }
        // From the same address, as behind a relay.
        let client = number;
        places.take(client, from(1), at(5000));
        for millis in 5000..5900 {
            for _ in 0..2 {
                number += 1;
                assert_ne!(places.take(number, from(1), at(millis)), Some(client));
            }
        }
    }

    proptest! {
        #[test]
        fn places_are_bounded_and_the_loser_has_most(
            most in 1usize..8,
            comes in proptest::collection::vec((0u32..5, 0u64..2000, any::<bool>()), 0..60),
        ) {
            let (mut places, begun, mut millis) = (ClientPlaces::new(most, 7), Instant::now(), 0);
            let mut own: BTreeMap<u64, u32> = BTreeMap::new();
            for (number, (source, later, leaves)) in (0..).zip(comes) {
                millis += later;
                let count = |own: &BTreeMap<u64, u32>, source| own.values().filter(|of| **of == source).count();
                let loser = places.take(number, from(source), begun + Duration::from_millis(millis));
                prop_assert_eq!(loser.is_some(), own.len() >= most);
                if let Some(loser) = loser {
                    let most = own.values().map(|of| count(&own, *of)).max();
                    prop_assert_eq!(most, Some(count(&own, own[&loser])));
                    own.remove(&loser);
                }
                own.insert(number, source);
                if leaves {
                    prop_assert!(places.leave(number));
                    own.remove(&number);
                }
                prop_assert_eq!(places.all.len(), own.len());
                prop_assert_eq!(places.of.values().map(BTreeSet::len).sum::<usize>(), own.len());
                prop_assert_eq!(places.ranks.len(), places.of.len());
            }
        }
    }
}
