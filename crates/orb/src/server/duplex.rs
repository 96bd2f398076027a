//! What a connection has besides, that carries calls both ways.

use std::collections::VecDeque;
use std::sync::Arc;

use hyoshi_os::PiMutex;
use hyoshi_wire::giop;

use super::kept::Kept;
use crate::bidir::MOST;
use crate::client::{Mux, WaysBack};
use crate::failure::Failure;

/// How many times as many requests may wait while this side waits for replies behind them.
const DEEPER: usize = 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct Duplex {
    /// Calls of this side.
    pub(crate) calls: Arc<Mux>,
    /// Whether the other side opened the connection: then its listen points are heard.
    pub(crate) accepted: bool,
    /// The most octets of a message.
    pub(crate) message: usize,
    /// Requests that wait to be carried out, before the reader stops; see [`DEEPER`].
    most: usize,
    queue: PiMutex<Queue>,
    /// The last context that told listen points.
    told: PiMutex<Vec<u8>>,
    /// Of the addresses that it leads to.
    ways: PiMutex<Vec<Arc<WaysBack>>>,
}

/// A request of the other side.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The whole message.
    pub(crate) message: giop::Kept,
    /// Whether its sender waits for a reply.
    pub(crate) waits: bool,
    /// Whether those behind it may be begun before it has ended.
    pub(crate) apart: bool,
}

impl Asked {
    fn octets(&self) -> usize {
        self.message.received().octets().len()
    }
}

#[derive(Debug)]
struct Queue {
    asked: VecDeque<Asked>,
    /// Octets of them.
    octets: Kept,
    /// The reader waits for room.
    paused: bool,
}

impl Duplex {
    /// `octets` counts those of requests that wait.
    pub(crate) fn new(calls: Arc<Mux>, accepted: bool, message: usize, most: u32, octets: Kept) -> Self {
        Duplex {
            calls,
            accepted,
            message,
            most: (most as usize).max(1),
            queue: PiMutex::new(Queue { asked: VecDeque::new(), octets, paused: false }),
            told: PiMutex::default(),
            ways: PiMutex::default(),
        }
    }

    /// Takes a request in, and says whether it is the first that waits. Gives it back if there are too many, also while this
    /// side waits for a reply.
    pub(crate) fn ask(&self, asked: Asked) -> Result<bool, Asked> {
        let mut queue = self.queue.lock();
        if queue.asked.len() >= self.most.saturating_mul(DEEPER) {
            return Err(asked);
        }
        queue.octets.set(queue.octets.own() + asked.octets());
        queue.asked.push_back(asked);
        Ok(queue.asked.len() == 1)
    }

    /// The next request to carry out, and whether the reader is to go on.
    pub(crate) fn next(&self) -> (Option<Asked>, bool) {
        let mut queue = self.queue.lock();
        let next = queue.asked.pop_front();
        queue.octets.set(queue.octets.own() - next.as_ref().map_or(0, Asked::octets));
        // Not at each that is taken: what a read has brought is gone through from where the reader stopped.
        let resume = queue.paused && queue.asked.len() <= self.most / 2;
        queue.paused &= !resume;
        (next, resume)
    }

    /// The next cannot be carried out yet.
    pub(crate) fn put_back(&self, asked: Asked) {
        let mut queue = self.queue.lock();
        queue.octets.set(queue.octets.own() + asked.octets());
        queue.asked.push_front(asked);
    }

    /// True if the reader is to read no further now: as many requests wait as may, or the other side does not take what it
    /// is sent (`behind`), and nobody here waits for a reply behind them. Whoever changes that finds out that it has to go
    /// on, for all is looked at under the lock that [`resume`](Self::resume) takes.
    pub(crate) fn pause(&self, behind: impl FnOnce() -> bool) -> bool {
        let mut queue = self.queue.lock();
        queue.paused = (queue.asked.len() >= self.most || behind()) && !self.calls.waits();
        queue.paused
    }

    /// True if the reader had stopped and is to go on.
    pub(crate) fn resume(&self) -> bool {
        std::mem::take(&mut self.queue.lock().paused)
    }

    /// True if no request waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.lock().asked.is_empty()
    }

    /// True if these listen points are not those that were told last.
    pub(crate) fn tells_anew(&self, context: &[u8]) -> bool {
        let mut told = self.told.lock();
        let anew = *told != context;
        if anew {
            context.clone_into(&mut told);
        }
        anew
    }

    /// It leads to an address from now on: `add` lets calls there find it.
    pub(crate) fn leads_to(&self, add: impl FnOnce(&Arc<Mux>) -> Option<Arc<WaysBack>>) {
        let mut ways = self.ways.lock();
        // Twice as many addresses as points: of TLS or not.
        if ways.len() < 2 * MOST {
            ways.extend(add(&self.calls));
        }
    }

    /// True while it is to stay open, however silent: its opener is to be reached, or somebody waits for a reply.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.accepted || self.calls.waits() || self.ways.lock().iter().any(|address| address.is_used())
    }

    /// The connection has ended: nobody shall wait for a reply any more. Requests that wait are not carried out.
    pub(crate) fn over(&self, why: Failure) {
        self.calls.over(why);
        let mut queue = self.queue.lock();
        let dropped = std::mem::take(&mut queue.asked);
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
    use crate::client::{Outlet, Peers};
    use crate::limits::ClientLimits;
    use crate::server::calls::LaneCalls;

    fn duplex(most: u32, all: &Arc<AtomicUsize>) -> Duplex {
        let outlet = Outlet::Both(Box::new(LaneCalls::default()));
        let calls =
            Peers::new(ClientLimits::default(), Arc::default(), None, false, Default::default()).calls_back(outlet);
        Duplex::new(Arc::new(calls), true, 1 << 20, most, Kept::new(all.clone()))
    }

    /// Any message will do: 12 octets.
    fn asked() -> Asked {
        let mut messages = Reassembler::new(Limits::default());
        let message = messages.next(&mut &close_connection(Version::V1_2)[..]).unwrap().unwrap().keep();
        Asked { message, waits: true, apart: true }
    }

    #[test]
    fn requests_are_counted_in_the_lane_while_they_wait_and_no_longer() {
        let all = Arc::default();
        let duplex = duplex(4, &all);
        assert_eq!([(); 3].map(|()| duplex.ask(asked()).unwrap()), [true, false, false]);
        assert_eq!(all.load(Ordering::Relaxed), 36);
        assert!(duplex.next().0.is_some());
        assert_eq!(all.load(Ordering::Relaxed), 24);
        duplex.over(Failure::Lost);
        assert_eq!(all.load(Ordering::Relaxed), 0);
        duplex.ask(asked()).unwrap();
        drop(duplex);
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_reader_goes_on_when_half_of_the_requests_have_been_taken() {
        for most in [1, 4, 5] {
            let duplex = duplex(most, &Arc::default());
            (0..most).for_each(|at| assert_eq!(duplex.ask(asked()).unwrap(), at == 0));
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
            assert!(flush.join().unwrap(), "nobody would read the connection again");
        }
    }
}
