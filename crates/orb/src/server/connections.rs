//! A lane's connections.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use hyoshi_os::PiMutex;

use super::Lane;
use super::connection::{Connection, Sums};
use crate::stream::MaybeTlsStream;

/// Connections by number. Used when epoll reports one, and when one is opened or closed; not for each request.
#[derive(Debug)]
pub(super) struct Connections {
    most: usize,
    pub(super) sums: Sums,
    inner: PiMutex<ConnectionTable>,
}

#[derive(Debug)]
struct ConnectionTable {
    next: u64,
    all: BTreeMap<u64, Arc<Connection>>,
    /// Those that were silent at the last check, the oldest first; some are closed.
    silent: VecDeque<u64>,
}

/// Numbers below are listeners'.
pub(super) const FIRST: u64 = 1 << 32;

impl Connections {
    pub(super) fn new(most: usize) -> Self {
        let inner = ConnectionTable { next: FIRST, all: BTreeMap::new(), silent: VecDeque::new() };
        Connections { most, sums: Sums::default(), inner: PiMutex::new(inner) }
    }

    /// Adds a connection; returns it if there are too many.
    pub(super) fn add(
        &self,
        lane: Weak<Lane>,
        link: MaybeTlsStream,
        now: u64,
    ) -> Result<Arc<Connection>, MaybeTlsStream> {
        let mut inner = self.inner.lock();
        if inner.all.len() >= self.most {
            return Err(link);
        }
        let number = inner.next;
        inner.next += 1;
        let connection = Arc::new(Connection::new(lane, link, number, now, &self.sums));
        inner.all.insert(number, connection.clone());
        inner.silent.push_back(number);
        inner.forget_some();
        Ok(connection)
    }

    /// The oldest connection that never sent a message, if it was accepted at `before` at the latest.
    pub(super) fn oldest_silent(&self, before: u64) -> Option<Arc<Connection>> {
        let inner = &mut *self.inner.lock();
        while let Some(number) = inner.silent.front() {
            match inner.all.get(number).filter(|found| found.is_silent()) {
                Some(young) if young.since > before => return None,
                Some(silent) => {
                    let silent = silent.clone();
                    inner.silent.pop_front();
                    return Some(silent);
                }
                None => drop(inner.silent.pop_front()),
            }
        }
        None
    }

    #[inline]
    pub(super) fn get(&self, number: u64) -> Option<Arc<Connection>> {
        self.inner.lock().all.get(&number).cloned()
    }

    pub(super) fn remove(&self, number: u64) {
        let gone = self.inner.lock().all.remove(&number);
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
    /// Keeps `silent` in proportion to the open connections, however many were closed.
    fn forget_some(&mut self) {
        if self.silent.len() > 2 * self.all.len() + 64 {
            self.silent.retain(|number| self.all.get(number).is_some_and(|found| found.is_silent()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use hyoshi_wire::Version;

    use super::*;

    #[test]
    fn what_is_remembered_does_not_grow_with_connections_that_have_gone() {
        let table = Connections::new(2);
        for _ in 0..300 {
            let connection = table.add(Weak::new(), MaybeTlsStream::connected(), 0).unwrap();
            assert_eq!(connection.unfinished.set(10), 10);
            table.remove(connection.number);
        }
        assert!(table.inner.lock().silent.len() <= 66);
        assert_eq!(table.sums.unfinished.load(Ordering::Relaxed), 0, "what went is not counted any more");
        let (first, second) = (
            table.add(Weak::new(), MaybeTlsStream::connected(), 5).unwrap(),
            table.add(Weak::new(), MaybeTlsStream::connected(), 6).unwrap(),
        );
        assert!(table.add(Weak::new(), MaybeTlsStream::connected(), 0).is_err());
        assert!(table.oldest_silent(4).is_none(), "it is too young");
        assert_eq!(table.oldest_silent(5).unwrap().number, first.number);
        second.socket.terms.hear(Version::V1_2);
        assert!(table.oldest_silent(u64::MAX).is_none());
    }
}
