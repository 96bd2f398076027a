//! What counts as one source of clients, and how often its clients may join.

use std::collections::BTreeMap;
use std::net::IpAddr;

use hyoshi_orb::current;
use hyoshi_os::PiMutex;

use crate::peer::Allowance;

/// Where clients come from. Clients of one source share places, and the number of joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum JoinSource {
    /// An IPv4 address.
    V4([u8; 4]),
    /// The network of an IPv6 address: its first 64 bits.
    V6([u8; 8]),
    /// The user of a Unix socket.
    User(u32),
    /// This machine.
    Own,
}

impl JoinSource {
    /// The source of the request that this thread serves.
    pub fn current() -> JoinSource {
        if let Some(peer) = current::peer() {
            return JoinSource::User(peer.uid);
        }
        current::peer_address().map_or(JoinSource::Own, JoinSource::at)
    }

    fn at(address: IpAddr) -> JoinSource {
        match address.to_canonical() {
            // A local program has all of these addresses.
            address if address.is_loopback() => JoinSource::Own,
            IpAddr::V4(address) => JoinSource::V4(address.octets()),
            IpAddr::V6(address) => {
                let [network @ .., _, _, _, _, _, _, _, _] = address.octets();
                JoinSource::V6(network)
            }
        }
    }
}

/// The most sources whose joins are counted.
const SOURCES: usize = 256;

/// The joins that one source may make in each second.
const RATE: u64 = 2;

/// Joins of all sources a second: a machine may have many addresses.
const RATE_OF_ALL: u64 = 64;

/// Limits how often the clients of each source join: a join changes the rates of the other clients.
#[derive(Debug)]
pub(super) struct JoinLimits {
    /// The most joins of one source at once.
    burst: u64,
    all: PiMutex<Allowance>,
    sources: PiMutex<BTreeMap<JoinSource, (u64, Allowance)>>,
}

impl JoinLimits {
    /// Limits for a loop with this number of places. At once, a source may join twice as often as there are places.
    pub fn new(places: usize) -> JoinLimits {
        let burst = 2 * places as u64;
        let all = PiMutex::new(Allowance::new(RATE_OF_ALL, burst.max(RATE_OF_ALL)));
        JoinLimits { burst, all, sources: PiMutex::default() }
    }

    /// Whether a client of this source may join at `now`, in ns.
    pub fn allows(&self, source: JoinSource, now: u64) -> bool {
        let mut sources = self.sources.lock();
        if sources.len() == SOURCES && !sources.contains_key(&source) {
            let oldest = sources.iter().min_by_key(|(_, (at, _))| *at).map(|(source, _)| *source);
            oldest.map(|oldest| sources.remove(&oldest));
        }
        let (at, allowance) = sources.entry(source).or_insert_with(|| (0, Allowance::new(RATE, self.burst)));
        *at = now;
        if !allowance.take(now) {
            return false;
        }
        let allows = self.all.lock().take(now);
        if !allows {
            allowance.give_back();
        }
        allows
    }

    /// A client of this source was allowed to join, but did not: other sources have its join, too.
    pub fn give_back(&self, source: JoinSource) {
        self.sources.lock().entry(source).and_modify(|(_, allowance)| allowance.give_back());
        self.all.lock().give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_joins_too_often_is_refused_and_others_are_not() {
        let limits = JoinLimits::new(4);
        let at = |text: &str| JoinSource::at(text.parse().unwrap());
        let (one, other) = (at("10.0.0.7"), at("10.0.0.8"));
        let second = 1_000_000_000;
        assert_eq!((0..20).filter(|_| limits.allows(one, second)).count(), 8);
        assert!(limits.allows(other, second) && limits.allows(JoinSource::User(1000), second));
        assert_eq!((0..20).filter(|_| limits.allows(one, 2 * second)).count(), 2);
        // Many addresses together, and their memory, are bounded.
        let many = (0..=u16::MAX).map(u16::to_be_bytes).map(|[high, low]| JoinSource::V4([11, 0, high, low]));
        assert_eq!(many.filter(|source| limits.allows(*source, 3 * second)).count() as u64, RATE_OF_ALL);
        assert_eq!(limits.sources.lock().len(), SOURCES);
    }

    #[test]
    fn joins_that_fail_use_up_no_limit() {
        let (limits, source) = (JoinLimits::new(4), JoinSource::Own);
        let second = 1_000_000_000;
        for _ in 0..2 * RATE_OF_ALL {
            assert!(limits.allows(source, second));
            limits.give_back(source);
        }
        // A refusal for the limit of all sources costs the source nothing.
        let many = (0..RATE_OF_ALL as u8).map(|low| JoinSource::V4([11, 0, 0, low]));
        assert_eq!(many.filter(|source| limits.allows(*source, second)).count() as u64, RATE_OF_ALL);
        assert!((0..20).all(|_| !limits.allows(source, second)));
        assert_eq!((0..20).filter(|_| limits.allows(source, 2 * second)).count(), 8);
    }

    #[test]
    fn an_ipv6_network_is_one_source() {
        let at = |text: &str| JoinSource::at(text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::2:1"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:10.0.0.7"), at("10.0.0.7"));
        assert_eq!((at("127.0.0.2"), at("::1")), (at("127.0.0.1"), at("127.0.0.1")));
    }
}
