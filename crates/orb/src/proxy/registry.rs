//! The open connections of clients, in bounded number.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyoshi_model::Instant;
use hyoshi_os::{MonotonicClock, PiMutex, Wake};

use crate::server::ClientSource;
use crate::stream::MaybeTlsStream;

/// The connection of a client. After `close`, its thread ends without the requests that it has read.
#[derive(Debug)]
pub(super) struct ClientLink {
    pub(super) stream: MaybeTlsStream,
    is_closed: AtomicBool,
    closed: Wake,
}

impl ClientLink {
    pub(super) fn new(stream: MaybeTlsStream) -> Self {
        ClientLink { stream, is_closed: AtomicBool::new(false), closed: Wake::new() }
    }

    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.closed.post();
        self.stream.close();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Sleeps until then, or until it is closed. For the thread that reads it.
    pub(super) fn sleep_until(&self, clock: &MonotonicClock, at: Instant) {
        self.closed.wait_until(clock, at);
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Registry {
    most: usize,
    open: PiMutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// The oldest first.
    connections: Vec<(u64, ClientSource, Arc<ClientLink>)>,
    /// Those that lost their places, and whose threads have not ended.
    leaving: Vec<u64>,
    next: u64,
    ended: bool,
}

/// The place of a connection.
pub(super) struct ConnectionPlace {
    pub(super) number: u64,
    /// The connection that was closed for it.
    pub(super) displaced: Option<Arc<ClientLink>>,
}

impl Registry {
    pub(super) fn new(most: usize) -> Self {
        Registry { most: most.max(1), open: PiMutex::default() }
    }

    /// Adds a connection. If there are too many, the newest of the client with the most loses its place. `None` if this
    /// is the client, or if as many threads of connections without a place have not ended.
    pub(super) fn add(&self, source: ClientSource, link: &Arc<ClientLink>) -> Option<ConnectionPlace> {
        let mut open = self.open.lock();
        if open.ended {
            return None;
        }
        let mut displaced = None;
        if open.connections.len() >= self.most {
            let mut counts: HashMap<ClientSource, usize> = HashMap::new();
            open.connections.iter().for_each(|(_, source, _)| *counts.entry(*source).or_default() += 1);
            let own = counts.get(&source).copied().unwrap_or(0);
            let (worst, most) = counts.into_iter().max_by_key(|(source, count)| (*count, *source))?;
            if own + 1 >= most || open.leaving.len() >= self.most {
                return None;
            }
            let at = open.connections.iter().rposition(|(_, source, _)| *source == worst)?;
            let (number, _, link) = open.connections.remove(at);
            open.leaving.push(number);
            displaced = Some(link);
        }
        let number = open.next;
        open.next += 1;
        open.connections.push((number, source, link.clone()));
        Some(ConnectionPlace { number, displaced })
    }

    /// The thread of a connection has ended.
    pub(super) fn remove(&self, number: u64) {
        let mut open = self.open.lock();
        open.connections.retain(|(one, ..)| *one != number);
        open.leaving.retain(|one| *one != number);
    }

    pub(super) fn open(&self) -> usize {
        self.open.lock().connections.len()
    }

    /// Closes all, and lets none in.
    pub(super) fn end(&self) {
        let mut open = self.open.lock();
        open.ended = true;
        open.connections.iter().for_each(|(.., link)| link.close());
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant as WallClock};

    use super::*;

    fn link() -> Arc<ClientLink> {
        Arc::new(ClientLink::new(MaybeTlsStream::connected()))
    }

    #[test]
    fn connections_without_a_place_are_bounded_until_their_threads_end() {
        let registry = Registry::new(2);
        let add = |user| registry.add(ClientSource::User(user), &link());
        let first = add(1).unwrap().number;
        // A second connection of the first user, which loses its place to another user, who leaves.
        let displace = |user| {
            let second = add(1).unwrap().number;
            let other = add(user)?;
            assert!(other.displaced.is_some());
            registry.remove(other.number);
            Some(second)
        };
        let leaving = displace(2).unwrap();
        assert!(displace(3).is_some() && displace(4).is_none(), "the threads of two connections have not ended");
        registry.remove(leaving);
        assert!(add(4).unwrap().displaced.is_some());
        registry.remove(first);
        assert_eq!(registry.open(), 1);
    }

    #[test]
    fn a_thread_that_delays_a_request_notices_that_its_connection_is_closed() {
        let (link, clock) = (link(), MonotonicClock::start());
        let (own, begun) = (link.clone(), WallClock::now());
        let sleeper = std::thread::spawn(move || own.sleep_until(&clock, Instant::NEVER));
        link.close();
        sleeper.join().unwrap();
        assert!(link.is_closed() && begun.elapsed() < Duration::from_secs(60));
    }
}
