//! A lane's connections, and which one is closed if there are too many: one of the source with the most.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use hyoshi_os::PiMutex;

use super::Lane;
use super::connection::{Connection, Sums};
use super::source::ClientSource;
use crate::stream::MaybeTlsStream;

/// Connections by number. Used when epoll reports one, and when one is opened or closed; not for each request.
#[derive(Debug)]
pub(super) struct Connections {
    most: usize,
    pub(super) sums: Sums,
    /// Whether more than one client is connected.
    is_shared: AtomicBool,
    inner: PiMutex<ConnectionTable>,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    next: u64,
    all: BTreeMap<u64, Arc<Connection>>,
    accepted: BTreeMap<ClientSource, Accepted>,
    /// The number of connections of each client; those that this ORB opened count as one client's.
    clients: BTreeMap<Option<ClientSource>, usize>,
}

/// The connections of a source; numbers rise.
#[derive(Debug, Default)]
struct Accepted {
    all: BTreeSet<u64>,
    /// Those that were silent at the last check; some are closed.
    silent: VecDeque<u64>,
}

/// Numbers below are listeners'.
pub(super) const FIRST: u64 = 1 << 32;

/// So many connections a source has in any case if file descriptors run out.
const FEW: usize = 16;

impl Connections {
    pub(super) fn new(most: usize) -> Self {
        let inner = ConnectionTable { next: FIRST, ..ConnectionTable::default() };
        Connections { most, sums: Sums::default(), is_shared: AtomicBool::new(false), inner: PiMutex::new(inner) }
    }

    /// Adds a connection, which has a source if a client opened it; returns it if there are too many.
    pub(super) fn add(
        &self,
        lane: Weak<Lane>,
        link: MaybeTlsStream,
        now: u64,
        source: Option<ClientSource>,
    ) -> Result<Arc<Connection>, MaybeTlsStream> {
        let mut inner = self.inner.lock();
        if inner.all.len() >= self.most {
            return Err(link);
        }
        let number = inner.next;
        inner.next += 1;
        let connection = Arc::new(Connection::new(lane, link, number, now, source, &self.sums));
        inner.all.insert(number, connection.clone());
        *inner.clients.entry(source).or_default() += 1;
        if let Some(source) = source {
            let ConnectionTable { all, accepted, .. } = &mut *inner;
            let own = accepted.entry(source).or_default();
            own.all.insert(number);
            own.silent.push_back(number);
            own.forget_some(all);
        }
        self.count_clients(&inner);
        Ok(connection)
    }

    /// Whether more than one client is connected.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    fn count_clients(&self, inner: &ConnectionTable) {
        self.is_shared.store(inner.clients.len() > 1, Ordering::Relaxed);
    }

    /// A connection that gives its place to a new one of this source: one that has not sent a message since `before`,
    /// else one of the source with the most, if it still has as many as this one then; else a silent one of this source.
    pub(super) fn worst(&self, source: ClientSource, before: u64) -> Option<Arc<Connection>> {
        let inner = &mut *self.inner.lock();
        let own = inner.accepted.get(&source).map_or(0, |own| own.all.len());
        let silent = inner.silent(before);
        silent
            .or_else(|| inner.of_the_most(own + 1))
            .or_else(|| inner.accepted.get_mut(&source)?.silent(&inner.all, u64::MAX))
    }

    /// Those of the client that holds the most octets of incomplete messages: the connection with the most first.
    pub(super) fn heaviest(&self) -> Vec<Arc<Connection>> {
        let inner = self.inner.lock();
        let mut of_clients = BTreeMap::<_, (usize, Vec<_>)>::new();
        for connection in inner.all.values() {
            let octets = connection.unfinished.own();
            if octets > 0 {
                let (sum, all) = of_clients.entry(connection.source).or_default();
                *sum += octets;
                all.push((octets, connection));
            }
        }
        let most = of_clients.into_values().max_by_key(|(sum, _)| *sum);
        let mut all = most.map(|(_, all)| all).unwrap_or_default();
        all.sort_by_key(|(octets, _)| Reverse(*octets));
        all.into_iter().map(|(_, connection)| connection.clone()).collect()
    }

    /// A connection whose file descriptor is needed: a silent one, else one of the source with the most, if that has more
    /// than a few.
    pub(super) fn dispensable(&self, before: u64) -> Option<Arc<Connection>> {
        let inner = &mut *self.inner.lock();
        inner.silent(before).or_else(|| inner.of_the_most(FEW))
    }

    #[inline]
    pub(super) fn get(&self, number: u64) -> Option<Arc<Connection>> {
        self.inner.lock().all.get(&number).cloned()
    }

    /// This connection never gives its place to another one.
    pub(super) fn protect(&self, connection: &Connection) {
        if let Some(source) = connection.source {
            self.inner.lock().forget(source, connection.number);
        }
    }

    pub(super) fn remove(&self, number: u64) {
        let gone = {
            let mut inner = self.inner.lock();
            let gone = inner.remove(number);
            self.count_clients(&inner);
            gone
        };
        // Closed here if no other thread has it: not under the lock.
        drop(gone);
    }

    pub(super) fn len(&self) -> usize {
        self.inner.lock().all.len()
    }

    /// The first `count` from this number on.
    pub(super) fn some(&self, from: u64, count: usize) -> Vec<Arc<Connection>> {
        self.inner.lock().all.range(from..).take(count).map(|(_, connection)| connection.clone()).collect()
    }

    pub(super) fn all(&self) -> Vec<Arc<Connection>> {
        self.inner.lock().all.values().cloned().collect()
    }
}

impl ConnectionTable {
    /// The oldest connection of some source that never sent a message, if it was accepted at `before` at the latest.
    fn silent(&mut self, before: u64) -> Option<Arc<Connection>> {
        self.accepted.values_mut().find_map(|own| own.silent(&self.all, before))
    }

    /// If a source has more connections than `few`, one of the source with the most: the oldest that never sent a
    /// message, else the newest. So one that was there before a flood stays.
    fn of_the_most(&mut self, few: usize) -> Option<Arc<Connection>> {
        // Of equals, the one that was quiet for longest.
        let most = self.accepted.values_mut().max_by_key(|own| (own.all.len(), Reverse(own.all.last().copied())))?;
        if most.all.len() <= few {
            return None;
        }
        most.silent(&self.all, u64::MAX).or_else(|| self.all.get(most.all.last()?).cloned())
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Connection>> {
        let gone = self.all.remove(&number)?;
        if let Some(connections) = self.clients.get_mut(&gone.source) {
            *connections -= 1;
            if *connections == 0 {
                self.clients.remove(&gone.source);
            }
        }
        gone.source.inspect(|source| self.forget(*source, number));
        Some(gone)
    }

    fn forget(&mut self, source: ClientSource, number: u64) {
        if let Some(own) = self.accepted.get_mut(&source) {
            own.all.remove(&number);
            if own.all.is_empty() {
                self.accepted.remove(&source);
            }
        }
    }
}

impl Accepted {
    /// The oldest that never sent a message, if it was accepted at `before` at the latest.
    fn silent(&mut self, all: &BTreeMap<u64, Arc<Connection>>, before: u64) -> Option<Arc<Connection>> {
        while let Some(number) = self.silent.front() {
            match all.get(number).filter(|found| found.is_silent()) {
                Some(young) if young.since > before => return None,
                Some(silent) => {
                    self.silent.pop_front();
                    return Some(silent.clone());
                }
                None => drop(self.silent.pop_front()),
            }
        }
        None
    }

    /// Keeps `silent` in proportion to the open connections, however many were closed.
    fn forget_some(&mut self, all: &BTreeMap<u64, Arc<Connection>>) {
        if self.silent.len() > 2 * self.all.len() + 64 {
            self.silent.retain(|number| all.get(number).is_some_and(|found| found.is_silent()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use hyoshi_wire::Version;

    use super::super::handshakes::ClientNetwork;
    use super::*;

    const ROOT: ClientSource = ClientSource::User(0);

    fn network(address: &str) -> ClientSource {
        ClientSource::Network(ClientNetwork::of(address.parse::<IpAddr>().unwrap()))
    }

    impl Connections {
        fn accept(&self, now: u64, source: ClientSource) -> Result<Arc<Connection>, MaybeTlsStream> {
            self.add(Weak::new(), MaybeTlsStream::connected(), now, Some(source))
        }

        /// Accepts one that sends a message.
        fn hear(&self, now: u64, source: ClientSource) -> Result<Arc<Connection>, MaybeTlsStream> {
            let connection = self.accept(now, source)?;
            connection.socket.terms.hear(Version::V1_2);
            Ok(connection)
        }
    }

    #[test]
    fn what_is_remembered_does_not_grow_with_connections_that_have_gone() {
        let table = Connections::new(2);
        let stays = table.hear(0, ROOT).unwrap();
        for _ in 0..300 {
            let connection = table.accept(0, ROOT).unwrap();
            assert_eq!(connection.unfinished.set(10), 10);
            table.remove(connection.number);
        }
        assert!(table.inner.lock().accepted[&ROOT].silent.len() <= 68);
        assert_eq!(table.sums.unfinished.load(Ordering::Relaxed), 0, "what went is not counted any more");
        table.remove(stays.number);
        assert!(table.inner.lock().accepted.is_empty());
    }

    #[test]
    fn a_table_is_shared_while_connections_of_two_clients_are_open() {
        let table = Connections::new(6);
        let (peer, stranger) = (network("10.0.0.1"), network("10.0.0.2"));
        let known: Vec<_> = (0..2).map(|now| table.hear(now, peer).unwrap()).collect();
        assert!(!table.is_shared());
        let other = table.hear(2, stranger).unwrap();
        assert!(table.is_shared());
        [&known[0], &known[1], &other].into_iter().for_each(|connection| table.protect(connection));
        assert!(table.is_shared());
        table.remove(other.number);
        assert!(!table.is_shared());
        known.iter().for_each(|connection| table.remove(connection.number));
        assert!(!table.is_shared());
    }

    #[test]
    fn a_silent_connection_is_closed_first() {
        let table = Connections::new(2);
        let (first, second) = (table.accept(5, ROOT).unwrap(), table.accept(6, ROOT).unwrap());
        assert!(table.accept(0, ROOT).is_err());
        assert!(table.dispensable(4).is_none(), "it is too young");
        assert_eq!(table.dispensable(5).unwrap().number, first.number);
        assert_eq!(table.worst(ROOT, 0).unwrap().number, second.number, "its source makes room for itself");
        second.socket.terms.hear(Version::V1_2);
        assert!(table.worst(ROOT, u64::MAX).is_none());
    }

    #[test]
    fn a_source_with_many_connections_gives_way_to_others() {
        let table = Connections::new(6);
        let (peer, stranger, late) = (network("10.0.0.1"), network("10.0.0.2"), network("10.0.0.3"));
        table.hear(0, peer).unwrap();
        let flood: Vec<_> = (1..6).map(|now| table.hear(now, stranger).unwrap()).collect();
        assert!(table.worst(stranger, 0).is_none(), "it has the most itself");
        let loser = table.worst(late, 0).unwrap();
        assert_eq!(loser.number, flood[4].number, "its newest");
        table.remove(loser.number);
        table.hear(9, late).unwrap();
        // One that opens connections again and again never takes those of the others.
        assert!(table.worst(stranger, 0).is_none());
        assert!(table.dispensable(u64::MAX).is_none(), "no source has more than a few");
    }

    #[test]
    fn single_connections_of_many_sources_stay_and_so_do_protected_ones() {
        let table = Connections::new(4);
        let (peer, late) = (network("10.0.0.1"), network("10.0.0.9"));
        let known: Vec<_> = (0..2).map(|now| table.hear(now, peer).unwrap()).collect();
        for address in ["10.0.0.2", "10.0.0.3"] {
            table.hear(5, network(address)).unwrap();
        }
        assert_eq!(table.worst(late, 0).unwrap().number, known[1].number, "a source has two");
        known.iter().for_each(|connection| table.protect(connection));
        assert!(table.worst(late, 0).is_none() && table.dispensable(u64::MAX).is_none());
        // It counts as a connection all the same, and not for its source.
        assert!(table.hear(9, late).is_err());
        table.remove(known[0].number);
        table.hear(9, peer).unwrap();
        assert!(table.worst(late, 0).is_none());
    }

    #[test]
    fn a_flood_of_silent_connections_leaves_a_new_one_of_another_source_time() {
        let table = Connections::new(4);
        let (peer, stranger) = (network("10.0.0.1"), network("10.0.0.2"));
        let silent = table.accept(10, peer).unwrap();
        (0..3).for_each(|_| drop(table.accept(11, stranger).unwrap()));
        for _ in 0..5 {
            let loser = table.worst(stranger, 0).unwrap();
            assert_ne!(loser.number, silent.number);
            table.remove(loser.number);
            table.accept(12, stranger).unwrap();
        }
    }
}
