//! A lane's connections.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use hyoshi_os::PiMutex;

use super::connection::Connection;
use crate::link::Link;

/// Connections by number. Looked into when epoll tells of one and when one comes or goes, not for each request.
#[derive(Debug)]
pub(super) struct Table {
    most: usize,
    pub(super) sums: Sums,
    inner: PiMutex<Inner>,
}

/// Octets that all connections of a lane keep together.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// Of messages that have not come whole.
    pub(super) unfinished: Arc<AtomicUsize>,
    /// Of replies that clients do not take.
    pub(super) replies: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Inner {
    next: u64,
    all: BTreeMap<u64, Arc<Connection>>,
    /// Those that had said nothing when somebody last looked, the oldest first; some are gone.
    silent: VecDeque<u64>,
}

/// Numbers below are listeners'.
pub(super) const FIRST: u64 = 1 << 32;

impl Table {
    pub(super) fn new(most: usize) -> Self {
        let inner = Inner { next: FIRST, all: BTreeMap::new(), silent: VecDeque::new() };
        Table { most, sums: Sums::default(), inner: PiMutex::new(inner) }
    }

    /// Takes a connection in; gives it back if there are too many.
    pub(super) fn add(&self, stream: Link, now: u64) -> Result<Arc<Connection>, Link> {
        let mut inner = self.inner.lock();
        if inner.all.len() >= self.most {
            return Err(stream);
        }
        let number = inner.next;
        inner.next += 1;
        let connection = Arc::new(Connection::new(stream, number, now, &self.sums));
        inner.all.insert(number, connection.clone());
        inner.silent.push_back(number);
        inner.forget_some();
        Ok(connection)
    }

    /// The oldest connection that never said anything, if it came at `before` at the latest.
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
        // Closed here, if nobody else has it: not under the lock.
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

impl Inner {
    /// Keeps `silent` in proportion to the connections there are, however many have come and gone.
    fn forget_some(&mut self) {
        if self.silent.len() > 2 * self.all.len() + 64 {
            self.silent.retain(|number| self.all.get(number).is_some_and(|found| found.is_silent()));
        }
    }
}

impl Connection {
    /// True if it never said anything.
    fn is_silent(&self) -> bool {
        self.terms.is_silent()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use hyoshi_os::{Listener, SocketAddress, SocketStream};
    use hyoshi_wire::Version;

    use super::*;

    #[test]
    fn what_is_remembered_does_not_grow_with_connections_that_have_gone() {
        let listener = Listener::bind(&SocketAddress::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let table = Table::new(2);
        let connect = || Link::Plain(SocketStream::connect(listener.address(), Duration::from_secs(5)).unwrap());
        for _ in 0..300 {
            let connection = table.add(connect(), 0).unwrap();
            assert_eq!(connection.unfinished.set(10), 10);
            table.remove(connection.number);
            while let Ok(Some(_)) = listener.accept() {}
        }
        assert!(table.inner.lock().silent.len() <= 66);
        assert_eq!(table.sums.unfinished.load(Ordering::Relaxed), 0, "what went is not counted any more");
        let (first, second) = (table.add(connect(), 5).unwrap(), table.add(connect(), 6).unwrap());
        assert!(table.add(connect(), 0).is_err());
        assert!(table.oldest_silent(4).is_none(), "it is too young");
        assert_eq!(table.oldest_silent(5).unwrap().number, first.number);
        second.terms.hear(Version::V1_2);
        assert!(table.oldest_silent(u64::MAX).is_none());
    }
}
