//! The messages that threads send over one socket: replies of a lane, and calls of this side. All go through one
//! [`SendQueue`], in the order in which they were sent.
//!
//! What the socket does not accept waits in memory, not in a thread. No thread waits while it holds the lock, except a
//! lane's thread that sends a reply with a brief timeout.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use hyoshi_os::{PiGuard, PiMutex};

use super::{Pace, SendQueue, Tally};

/// See the module.
#[derive(Debug)]
pub(crate) struct Outbox {
    inner: PiMutex<OutboxState>,
    /// Octets that wait: readable without the lock.
    octets: Tally,
    /// Replies are among them.
    replies: AtomicBool,
    /// Ticks of the lane since the other side last accepted any.
    still: AtomicU32,
}

#[derive(Debug)]
pub(crate) struct OutboxState {
    pub(crate) queue: SendQueue,
    /// What calls of this side have announced on the connection.
    pub(crate) announced: Announced,
    /// Ticket of the last reply that had to wait.
    last_reply: u64,
    /// Octets that the other side has accepted since some wait, as of the last change.
    gone: usize,
    /// The lane arms the connection once all is sent.
    arm: bool,
    /// The lane's list contains the connection. Only its tick clears this, or the list could contain it twice.
    listed: bool,
}

/// What the first request on a connection announces.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Announced {
    /// The code sets.
    pub(crate) sets: bool,
    /// The listen points.
    pub(crate) points: bool,
}

/// The right to send, until it is dropped.
#[derive(Debug)]
pub(crate) struct Sending<'a> {
    outbox: &'a Outbox,
    inner: PiGuard<'a, OutboxState>,
}

impl Outbox {
    /// `all` counts the octets of all outboxes of a lane. `sticky` as in [`SendQueue::new`].
    pub(crate) fn new(all: Arc<AtomicUsize>, sticky: bool) -> Self {
        let (queue, announced) = (SendQueue::new(sticky), Announced::default());
        let inner = PiMutex::new(OutboxState { queue, announced, last_reply: 0, gone: 0, arm: false, listed: false });
        Outbox { inner, octets: Tally::new(all), replies: AtomicBool::new(false), still: AtomicU32::new(0) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Sending<'_> {
        Sending { outbox: self, inner: self.inner.lock() }
    }

    pub(crate) fn try_lock(&self) -> Option<Sending<'_>> {
        self.inner.try_lock().map(|inner| Sending { outbox: self, inner })
    }

    /// Asks to be armed. True if the connection may be armed at once; otherwise [`tick`](Self::tick) reports it.
    pub(crate) fn may_arm(&self) -> bool {
        let mut sending = self.lock();
        sending.arm = sending.queue.is_behind();
        !sending.arm
    }

    /// True if some octets wait. Takes no lock.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        self.octets.own() > 0
    }

    /// True if replies wait, not only calls of this side. Takes no lock.
    pub(crate) fn owes_replies(&self) -> bool {
        self.replies.load(Ordering::Relaxed)
    }

    /// How many octets wait, and for how many ticks the other side has accepted none. Takes no lock.
    pub(crate) fn debt(&self) -> (usize, u32) {
        (self.octets.own(), self.still.load(Ordering::Relaxed))
    }

    /// Drops what waits: the connection is over.
    pub(crate) fn clear(&self) {
        let mut sending = self.lock();
        sending.arm = false;
        sending.queue.abandon();
    }

    /// The lane's tick: sends what the socket accepts. `Some(arm)` if all is sent: then the lane removes the connection
    /// from its list.
    ///
    /// # Errors
    ///
    /// If the other side is too slow, or the connection is over.
    pub(crate) fn tick(
        &self,
        now: u64,
        pace: Pace,
        write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<Option<bool>> {
        // A caller may hold the lock while it encodes a request. Then it sends what waits, too.
        let Some(mut sending) = self.try_lock() else { return Ok(None) };
        // Only the holder of the lock changes it.
        let still = self.still.load(Ordering::Relaxed);
        self.still.store(still.saturating_add(1), Ordering::Relaxed);
        sending.flush(now, write)?;
        match sending.queue.deadline(pace) {
            Some(deadline) if now > deadline => Err(io::ErrorKind::TimedOut.into()),
            Some(_) => Ok(None),
            None => {
                sending.listed = false;
                Ok(Some(std::mem::take(&mut sending.arm)))
            }
        }
    }
}

impl Sending<'_> {
    /// Sends what waits, as far as the socket accepts it. True if that is all.
    pub(crate) fn flush(&mut self, now: u64, write: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<bool> {
        let flushed = self.queue.flush(now, write);
        self.publish();
        flushed.map(|()| !self.queue.is_behind())
    }

    /// Sends a reply after the waiting messages, as far as the socket accepts it.
    #[inline]
    pub(crate) fn reply(
        &mut self,
        octets: &[u8],
        now: impl FnOnce() -> u64,
        write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<()> {
        if !self.queue.send(octets, now, write)? {
            self.last_reply = self.queue.last();
        }
        Ok(())
    }

    /// Shows what waits to threads without the lock.
    #[inline]
    fn publish(&mut self) {
        let Outbox { octets, replies, still, .. } = self.outbox;
        let (before, held, gone) = (octets.own(), self.inner.queue.held(), self.inner.queue.gone());
        if self.inner.gone != gone {
            self.inner.gone = gone;
            still.store(0, Ordering::Relaxed);
        }
        if before != held || replies.load(Ordering::Relaxed) {
            if before == 0 {
                still.store(0, Ordering::Relaxed);
            }
            octets.set(held);
            replies.store(!self.queue.is_gone(self.last_reply), Ordering::Relaxed);
        }
    }

    /// True if some octets wait and the lane's list does not contain the connection yet: the caller adds it.
    pub(crate) fn list(&mut self) -> bool {
        self.queue.is_behind() && !std::mem::replace(&mut self.listed, true)
    }
}

impl OutboxState {
    /// Octets that wait, or are delayed.
    pub(crate) fn len(&self) -> usize {
        self.queue.held() + self.queue.to.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Deref for Sending<'_> {
    type Target = OutboxState;

    #[inline]
    fn deref(&self) -> &OutboxState {
        &self.inner
    }
}

impl DerefMut for Sending<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut OutboxState {
        &mut self.inner
    }
}

impl Drop for Sending<'_> {
    #[inline]
    fn drop(&mut self) {
        self.publish();
    }
}

/// Selects the connection to close, by [`debt`](Outbox::debt): among those with at least half of the largest debt, the
/// one that has accepted nothing for the longest. A client that reads a large reply can have the largest debt for a
/// moment. A client that accepts single octets of a very large debt gains nothing by it.
pub(crate) fn slowest<T>(behind: impl Iterator<Item = T> + Clone, debt: impl Fn(&T) -> (usize, u32)) -> Option<T> {
    let most = behind.clone().map(|one| debt(&one).0).max()?;
    let many = behind.filter(|one| debt(one).0 >= most.div_ceil(2));
    many.max_by_key(|one| {
        let (octets, still) = debt(one);
        (still, octets)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PACE: Pace = Pace { stalled: 10, slowest: 1_000_000 };

    proptest! {
        #[test]
        fn the_slowest_owes_much_and_none_that_owes_as_much_has_stood_still_for_longer(
            behind in proptest::collection::vec((1usize..100, 0u32..5), 1..10),
        ) {
            let (octets, still) = slowest(behind.iter().copied(), |one| *one).unwrap();
            for (other, longer) in behind {
                prop_assert!(other <= 2 * octets);
                prop_assert!(longer <= still || other < octets);
            }
        }
    }

    /// A socket that accepts so many octets.
    fn accepts(room: usize) -> impl FnMut(&[u8]) -> io::Result<usize> {
        let mut room = room;
        move |octets| {
            let count = octets.len().min(room);
            room -= count;
            if count == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
        }
    }

    fn behind() -> Outbox {
        let outbox = Outbox::new(Arc::default(), false);
        outbox.lock().reply(&[7; 100], || 0, accepts(10)).unwrap();
        assert_eq!(outbox.debt(), (90, 0));
        assert!(outbox.owes_replies());
        outbox
    }

    #[test]
    fn a_connection_stands_still_from_tick_to_tick_until_it_accepts_something() {
        let outbox = behind();
        for ticks in 1..4 {
            assert_eq!(outbox.tick(0, PACE, accepts(0)).unwrap(), None);
            assert_eq!(outbox.debt(), (90, ticks));
        }
        assert_eq!(outbox.tick(0, PACE, accepts(1)).unwrap(), None);
        assert_eq!(outbox.debt().1, 0);
        assert!(outbox.tick(11, PACE, accepts(0)).is_err(), "too slow");
    }

    #[test]
    fn calls_that_wait_are_no_replies() {
        let outbox = behind();
        let mut sending = outbox.lock();
        sending.queue.to.raw(&[8; 50]);
        sending.queue.post(0, 0, accepts(100)).unwrap();
        drop(sending);
        assert_eq!((outbox.debt().0, outbox.owes_replies()), (40, false));
    }

    #[test]
    fn a_dropped_call_is_not_sent() {
        let outbox = behind();
        let mut sending = outbox.lock();
        sending.queue.to.raw(&[8; 50]);
        let ticket = sending.queue.post(0, 0, accepts(0)).unwrap().unwrap();
        drop(sending);
        outbox.clear();
        let sending = outbox.lock();
        assert!(!sending.queue.is_gone(ticket) && sending.queue.is_dropped(ticket) && !sending.queue.is_behind());
    }

    #[test]
    fn debts_are_read_without_the_lock() {
        let outbox = behind();
        let sending = outbox.lock();
        assert!(outbox.is_behind());
        drop(sending);
        outbox.clear();
        assert!(!outbox.is_behind());
    }

    #[test]
    fn the_lane_lists_a_connection_once_until_its_tick_has_seen_that_all_is_sent() {
        let outbox = behind();
        assert!(outbox.lock().list());
        for _ in 0..3 {
            outbox.lock().flush(0, accepts(100)).unwrap();
            assert!(!outbox.is_behind());
            outbox.lock().reply(&[7; 100], || 0, accepts(10)).unwrap();
            assert!(!outbox.lock().list(), "it is in the list");
        }
        assert!(!outbox.may_arm());
        assert_eq!(outbox.tick(0, PACE, accepts(100)).unwrap(), Some(true));
        assert!(outbox.may_arm() && !outbox.lock().list(), "nothing waits");
        outbox.lock().reply(&[7; 100], || 0, accepts(10)).unwrap();
        assert!(outbox.lock().list());
    }
}
