//! The state of a connection that carries calls both ways: its calls, and the requests that wait to run.

use std::collections::VecDeque;
use std::sync::Arc;

use hyoshi_os::PiMutex;
use hyoshi_wire::giop;

use crate::bidir::MOST;
use crate::channel::Tally;
use crate::client::{Mux, WaysBack};
use crate::failure::CallFailure;
use crate::rt::threads::QueuedPart;

/// While this side waits for replies, this many times as many requests may wait.
const DEEPER: usize = 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct Duplex {
    /// Calls of this side.
    pub(crate) calls: Arc<Mux>,
    /// True if the other side opened the connection: then its listen points count.
    pub(crate) accepted: bool,
    /// The most octets of a message.
    pub(crate) message: usize,
    /// The reader pauses when this many requests wait; see [`DEEPER`].
    most: usize,
    queue: PiMutex<Queue>,
    /// The last context with listen points.
    announced: PiMutex<Vec<u8>>,
    /// The addresses that it leads to.
    ways: PiMutex<Vec<Arc<WaysBack>>>,
}

/// A request of the other side.
#[derive(Debug)]
pub(crate) struct Queued {
    /// The whole message.
    pub(crate) message: giop::Kept,
    /// Its client waits for a reply.
    pub(crate) waits: bool,
    /// The next request may begin before this one has ended.
    pub(crate) apart: bool,
    /// Its distributable thread, which its client may cancel.
    pub(crate) thread: Option<QueuedPart>,
}

impl Queued {
    fn octets(&self) -> usize {
        self.message.received().octets().len()
    }
}

#[derive(Debug)]
struct Queue {
    requests: VecDeque<Queued>,
    /// Their octets.
    octets: Tally,
    /// The reader waits until there is room.
    paused: bool,
}

impl Duplex {
    /// `octets` counts the octets of waiting requests.
    pub(crate) fn new(calls: Arc<Mux>, accepted: bool, message: usize, most: u32, octets: Tally) -> Self {
        Duplex {
            calls,
            accepted,
            message,
            most: (most as usize).max(1),
            queue: PiMutex::new(Queue { requests: VecDeque::new(), octets, paused: false }),
            announced: PiMutex::default(),
            ways: PiMutex::default(),
        }
    }

    /// Adds a request. True if it is the only one that waits. Returns it if too many wait, even for a side that waits
    /// for a reply.
    pub(crate) fn push(&self, queued: Queued) -> Result<bool, Queued> {
        let mut queue = self.queue.lock();
        if queue.requests.len() >= self.most.saturating_mul(DEEPER) {
            return Err(queued);
        }
        queue.octets.set(queue.octets.own() + queued.octets());
        queue.requests.push_back(queued);
        Ok(queue.requests.len() == 1)
    }

    /// The next request to run, and whether the reader goes on.
    pub(crate) fn next(&self) -> (Option<Queued>, bool) {
        let mut queue = self.queue.lock();
        let next = queue.requests.pop_front();
        queue.octets.set(queue.octets.own() - next.as_ref().map_or(0, Queued::octets));
        // Not after each request: the reader resumes within the octets of its last read.
        let resume = queue.paused && queue.requests.len() <= self.most / 2;
        queue.paused &= !resume;
        (next, resume)
    }

    /// The next request cannot run yet.
    pub(crate) fn put_back(&self, queued: Queued) {
        let mut queue = self.queue.lock();
        queue.octets.set(queue.octets.own() + queued.octets());
        queue.requests.push_front(queued);
    }

    /// True if the reader pauses: the most requests wait, or the other side does not read its replies (`behind`), and no
    /// caller here waits for a reply behind them. A thread that changes one of these calls [`resume`](Self::resume)
    /// afterwards; both use the same lock, so that the reader never misses it.
    pub(crate) fn pause(&self, behind: impl FnOnce() -> bool) -> bool {
        let mut queue = self.queue.lock();
        queue.paused = (queue.requests.len() >= self.most || behind()) && !self.calls.waits();
        queue.paused
    }

    /// True if the reader had paused and goes on.
    pub(crate) fn resume(&self) -> bool {
        std::mem::take(&mut self.queue.lock().paused)
    }

    /// True if no request waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.lock().requests.is_empty()
    }

    /// True if these listen points differ from the last ones.
    pub(crate) fn is_new(&self, context: &[u8]) -> bool {
        let mut announced = self.announced.lock();
        let is_new = *announced != context;
        if is_new {
            context.clone_into(&mut announced);
        }
        is_new
    }

    /// It leads to an address from now on: `add` registers it for calls there.
    pub(crate) fn leads_to(&self, add: impl FnOnce(&Arc<Mux>) -> Option<Arc<WaysBack>>) {
        let mut ways = self.ways.lock();
        // Two addresses for each point: with TLS and without.
        if ways.len() < 2 * MOST {
            ways.extend(add(&self.calls));
        }
    }

    /// True while a silent connection stays open: it leads to the side that opened it, or a caller waits for a reply.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.accepted || self.calls.waits() || self.ways.lock().iter().any(|address| address.is_used())
    }

    /// The connection is over: callers that wait for a reply get the reason. Waiting requests do not run.
    pub(crate) fn over(&self, why: CallFailure) {
        self.calls.over(why);
        let mut queue = self.queue.lock();
        let dropped = std::mem::take(&mut queue.requests);
        queue.octets.set(0);
        queue.paused = false;
        drop(queue);
        drop(dropped);
        let ways = std::mem::take(&mut *self.ways.lock());
        ways.iter().for_each(|address| address.forget_dead());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use hyoshi_wire::giop::{Reassembler, close_connection};
    use hyoshi_wire::{Limits, Version};

    use super::*;
    use crate::client::Peers;
    use crate::limits::ClientLimits;
    use crate::server::Connection;
    use crate::socket::Socket;
    use crate::stream::MaybeTlsStream;

    fn duplex(most: u32, all: &Arc<AtomicUsize>) -> Duplex {
        let socket = Arc::new(Socket::new(MaybeTlsStream::connected(), Arc::default()));
        let peers = Peers::new(ClientLimits::default(), Arc::default(), None, false, Default::default());
        let calls = peers.calls_back(socket, Box::new(std::sync::Weak::<Connection>::new()));
        Duplex::new(Arc::new(calls), true, 1 << 20, most, Tally::new(all.clone()))
    }

    /// Any message will do: 12 octets.
    fn queued() -> Queued {
        let mut messages = Reassembler::new(Limits::default());
        let message = messages.next(&mut &close_connection(Version::V1_2)[..]).unwrap().unwrap().keep();
        Queued { message, waits: true, apart: true, thread: None }
    }

    #[test]
    fn requests_are_counted_in_the_lane_while_they_wait_and_no_longer() {
        let all = Arc::default();
        let duplex = duplex(4, &all);
        assert_eq!([(); 3].map(|()| duplex.push(queued()).unwrap()), [true, false, false]);
        assert_eq!(all.load(Ordering::Relaxed), 36);
        assert!(duplex.next().0.is_some());
        assert_eq!(all.load(Ordering::Relaxed), 24);
        duplex.over(CallFailure::Lost);
        assert_eq!(all.load(Ordering::Relaxed), 0);
        duplex.push(queued()).unwrap();
        drop(duplex);
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_reader_goes_on_when_half_of_the_requests_have_been_taken() {
        for most in [1, 4, 5] {
            let duplex = duplex(most, &Arc::default());
            (0..most).for_each(|at| assert_eq!(duplex.push(queued()).unwrap(), at == 0));
            assert!(duplex.pause(|| false));
            let left = (0..most).rev().find(|_| duplex.next().1);
            assert_eq!(left, Some(most / 2));
            assert!(!duplex.resume(), "once");
        }
    }

    #[test]
    fn what_ends_while_the_reader_stops_for_it_makes_it_go_on() {
        for _ in 0..200 {
            let duplex = Arc::new(duplex(4, &Arc::default()));
            let (behind, (looked, looks)) = (Arc::new(AtomicBool::new(true)), channel());
            let flush = std::thread::spawn({
                let (duplex, behind) = (duplex.clone(), behind.clone());
                move || {
                    looks.recv().unwrap();
                    behind.store(false, Ordering::Relaxed);
                    duplex.resume()
                }
            });
            let stopped = duplex.pause(|| {
                let behind = behind.load(Ordering::Relaxed);
                looked.send(()).unwrap();
                std::thread::yield_now();
                behind
            });
            assert!(stopped);
            assert!(flush.join().unwrap(), "the connection would not be read again");
        }
    }
}
