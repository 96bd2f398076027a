//! Replies that a client does not take at once. They wait in memory, not in a thread: the connection is not read until
//! all have gone, so no more come than there were requests running.
//!
//! Where calls go both ways nobody waits while the lock is held: whoever reads such connections, calls over them, or
//! tends them is never kept by a client that takes nothing.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use hyoshi_os::{May, PiMutex};

use super::kept::Kept;
use crate::channel::{Outgoing, Pace};
use crate::link::Link;

/// Of one connection.
#[derive(Debug)]
pub(super) struct Replies {
    backlog: PiMutex<Backlog>,
    /// Octets of the backlog: whether there are any is known without the lock.
    kept: Kept,
    /// Ticks of the lane since the client took anything.
    still: AtomicU32,
}

#[derive(Debug)]
struct Backlog {
    out: Outgoing,
    /// To be armed once all is sent.
    arm: bool,
    /// The lane knows that some waited. Stays until its tick has seen that all has gone, or the lane would know it twice.
    listed: bool,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// All is on its way.
    All,
    /// Some waits. With `first`, the lane is to be told, so that somebody goes on with it.
    Part { first: bool },
}

impl Replies {
    /// Over a connection where octets are `sticky`, as over TLS: see [`Outgoing::new`].
    pub(super) fn new(all: Arc<AtomicUsize>, sticky: bool) -> Self {
        let backlog = Backlog { out: Outgoing::new(sticky), arm: false, listed: false };
        Replies { backlog: PiMutex::new(backlog), kept: Kept::new(all), still: AtomicU32::new(0) }
    }

    /// Sends a reply, or as much of it as the client takes: the rest waits. Whether the client has the socket's brief
    /// timeout to take it is asked once nobody else sends.
    pub(super) fn send(
        &self,
        stream: &Link,
        octets: &[u8],
        now: u64,
        patience: impl FnOnce() -> May,
    ) -> io::Result<Sent> {
        let mut backlog = self.backlog.lock();
        let wait = if backlog.out.is_behind() { May::Never } else { patience() };
        let all = backlog.out.send(octets, now, |octets| stream.write(octets, wait))?;
        Ok(self.sent(&mut backlog, all))
    }

    /// Sends a call of this side without waiting. [`io::ErrorKind::WouldBlock`] if nothing went, for something else waits.
    pub(super) fn send_call(&self, stream: &Link, octets: &[u8], now: u64) -> io::Result<Sent> {
        let mut backlog = self.backlog.lock();
        let all = backlog.out.send_now(octets, now, |octets| stream.write(octets, May::Never))?;
        Ok(self.sent(&mut backlog, all))
    }

    #[inline]
    fn sent(&self, backlog: &mut Backlog, all: bool) -> Sent {
        if all {
            return Sent::All;
        }
        if !self.is_behind() {
            self.still.store(0, Ordering::Relaxed);
        }
        self.kept.set(backlog.out.held());
        Sent::Part { first: !std::mem::replace(&mut backlog.listed, true) }
    }

    /// Waits for whoever still sends as things were before: see [`send`](Self::send).
    pub(super) fn settle(&self) {
        drop(self.backlog.lock());
    }

    /// Sends something if nothing waits: not within a reply.
    pub(super) fn send_now(&self, stream: &Link, octets: &[u8]) {
        if !self.backlog.lock().out.is_behind() {
            let _ = stream.write(octets, May::Never);
        }
    }

    /// Asks to be armed: true if it may be at once, else it will be when all has gone.
    pub(super) fn may_arm(&self) -> bool {
        let mut backlog = self.backlog.lock();
        backlog.arm = backlog.out.is_behind();
        !backlog.arm
    }

    /// True if some wait. Waits for nobody.
    #[inline]
    pub(super) fn is_behind(&self) -> bool {
        self.kept.own() > 0
    }

    /// How many octets wait, and for how many ticks the client has taken nothing. Waits for nobody.
    pub(super) fn owes(&self) -> (usize, u32) {
        (self.kept.own(), self.still.load(Ordering::Relaxed))
    }

    /// Forgets them: the connection is over.
    pub(super) fn forget(&self) {
        let mut backlog = self.backlog.lock();
        backlog.arm = false;
        backlog.out.clear();
        self.kept.set(0);
    }

    /// Sends what goes without waiting. `Some(arm)` once all has gone; an error if the client is too slow.
    pub(super) fn flush(&self, stream: &Link, now: u64, pace: Pace) -> io::Result<Option<bool>> {
        self.go_on(&mut self.backlog.lock(), stream, now, pace)
    }

    /// The same by the lane's tick, which does not know it any more once all has gone.
    pub(super) fn tend(&self, stream: &Link, now: u64, pace: Pace) -> io::Result<Option<bool>> {
        let mut backlog = self.backlog.lock();
        // From here on only who holds the lock changes it.
        let still = self.still.load(Ordering::Relaxed);
        self.still.store(still.saturating_add(1), Ordering::Relaxed);
        let gone = self.go_on(&mut backlog, stream, now, pace)?;
        backlog.listed = gone.is_none();
        Ok(gone)
    }

    fn go_on(&self, backlog: &mut Backlog, stream: &Link, now: u64, pace: Pace) -> io::Result<Option<bool>> {
        backlog.out.flush(now, |octets| {
            stream.write(octets, May::Never).inspect(|_| self.still.store(0, Ordering::Relaxed))
        })?;
        self.kept.set(backlog.out.held());
        match backlog.out.deadline(pace) {
            Some(deadline) if now > deadline => Err(io::ErrorKind::TimedOut.into()),
            Some(_) => Ok(None),
            None => Ok(Some(std::mem::take(&mut backlog.arm))),
        }
    }
}

/// Whom to close of those that keep so many octets and have taken nothing for so many ticks: of all with at least half as
/// much as whoever has the most, who has taken nothing for the longest. A client that reads a large reply may well have the
/// most for a moment; one that takes an octet now and then of very much is no better for it.
pub(super) fn least_willing<T>(
    behind: impl Iterator<Item = T> + Clone,
    owes: impl Fn(&T) -> (usize, u32),
) -> Option<T> {
    let most = behind.clone().map(|one| owes(&one).0).max()?;
    let many = behind.filter(|one| owes(one).0 >= most.div_ceil(2));
    many.max_by_key(|one| {
        let (octets, still) = owes(one);
        (still, octets)
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use hyoshi_os::{Listener, SocketAddress, SocketStream};

    use proptest::prelude::*;

    use super::*;
    use crate::limits::ServerLimits;

    proptest! {
        #[test]
        fn who_is_closed_keeps_much_and_nobody_who_keeps_as_much_has_taken_nothing_for_longer(
            behind in proptest::collection::vec((1usize..100, 0u32..5), 1..10),
        ) {
            let (octets, still) = least_willing(behind.iter().copied(), |one| *one).unwrap();
            for (other, longer) in behind {
                prop_assert!(other <= 2 * octets);
                prop_assert!(longer <= still || other < octets);
            }
        }
    }

    #[test]
    fn a_client_stands_still_from_tick_to_tick_until_it_takes_something() {
        let (link, client) = pair();
        let replies = Replies::new(Arc::default(), false);
        let pace = ServerLimits::default().pace();
        fall_behind(&replies, &link);
        // What the sockets hold has its time to get there.
        let ticks = || replies.tend(&link, 0, pace).map(|_| replies.owes().1).unwrap();
        until("it stands still", || (ticks() >= 3).then_some(()));
        let mut octets = vec![0; 8 << 20];
        until("it is seen that it reads", || {
            let _ = client.read(&mut octets, May::Never);
            (ticks() == 0).then_some(())
        });
    }

    /// What comes to pass in time: a test that waited for good would not say for what.
    fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(done) = done() {
                return done;
            }
            assert!(Instant::now() < end, "it never comes to pass: {what}");
        }
    }

    /// Both ends of a connection.
    fn pair() -> (Link, SocketStream) {
        let listener = Listener::bind(&SocketAddress::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let client = SocketStream::connect(listener.address(), Duration::from_secs(5)).unwrap();
        let server = until("the client is let in", || listener.accept().unwrap());
        (Link::Plain(server), client)
    }

    /// Sends until some waits.
    fn fall_behind(replies: &Replies, link: &Link) -> bool {
        loop {
            if let Sent::Part { first } = replies.send(link, &[7; 1 << 20], 0, || May::Never).unwrap() {
                return first;
            }
        }
    }

    /// The client takes all, and somebody sends it.
    fn catch_up(link: &Link, client: &SocketStream, flush: impl Fn(&Link) -> io::Result<Option<bool>>) {
        let mut octets = vec![0; 1 << 20];
        until("all has gone", || {
            let gone = flush(link).unwrap();
            let _ = client.read(&mut octets, May::Never);
            gone
        });
    }

    #[test]
    fn whoever_asks_whether_replies_wait_is_kept_by_nobody() {
        let (link, _client) = pair();
        let replies = Replies::new(Arc::default(), false);
        // As while a thread writes with patience: the same thread would stand here for good.
        let writing = replies.backlog.lock();
        assert!(!replies.is_behind());
        drop(writing);
        fall_behind(&replies, &link);
        let writing = replies.backlog.lock();
        assert!(replies.is_behind());
        drop(writing);
        replies.forget();
        assert!(!replies.is_behind());
    }

    #[test]
    fn the_lane_is_told_once_until_its_tick_has_seen_all_go() {
        let (link, client) = pair();
        let replies = Replies::new(Arc::default(), false);
        let pace = ServerLimits::default().pace();
        assert!(fall_behind(&replies, &link));
        // Somebody else sends what waits: the lane still has it on its list.
        for _ in 0..3 {
            catch_up(&link, &client, |link| replies.flush(link, 0, pace));
            assert!(!replies.is_behind());
            assert!(!fall_behind(&replies, &link), "told again");
        }
        catch_up(&link, &client, |link| replies.tend(link, 0, pace));
        assert!(fall_behind(&replies, &link));
    }

    #[test]
    fn a_call_that_goes_in_part_is_told_once_too() {
        let (link, client) = pair();
        let replies = Replies::new(Arc::default(), false);
        let pace = ServerLimits::default().pace();
        let fall_behind = || loop {
            match replies.send_call(&link, &[7; 1 << 20], 0).unwrap() {
                Sent::All => {}
                Sent::Part { first } => return first,
            }
        };
        assert!(fall_behind());
        catch_up(&link, &client, |link| replies.flush(link, 0, pace));
        assert!(!fall_behind(), "told again");
        assert_eq!(
            replies.send_call(&link, &[7], 0).unwrap_err().kind(),
            io::ErrorKind::WouldBlock,
            "a call waits for what is begun"
        );
    }
}
