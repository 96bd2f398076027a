//! A connection that a client opened, or one to a server that may call back over it.

use std::any::Any;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use hyoshi_os::{Credentials, PiMutex, Poller};
use hyoshi_wire::giop::close_connection;

use super::duplex::Duplex;
use super::fair::Pipelining;
use super::kept::Kept;
use super::lane::Lane;
use super::replies::Replies;
use super::table::Sums;
use crate::channel::{Incoming, Terms};
use crate::client::Mux;
use crate::link::Link;

/// A connection. One thread reads it at a time; many may write replies to it.
///
/// ```text
///           epoll gives it to a thread          before a request runs
///   Armed ───────────────────────────► Owned ◄────────────────────────► Running
///    ▲ ▲                                 │ released: short of threads,      │ given away: the request runs long or waits
///    │ └─────────────────────────────────┘ silent, or its client reads not  │ for another ORB, so that others shall read
///    └──────────────────────────────────────────────────────────────────────┘
/// ```
///
/// Where calls go both ways a request may run apart, and whoever finds the next owns the connection from then on.
///
/// Each way back to Armed begins a new epoch, so that a thread which no longer owns the connection knows. If calls go both
/// ways over it, somebody else reads it, and the owner takes what that one has queued.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) stream: Link,
    pub(super) number: u64,
    stage: AtomicU64,
    /// Requests that run.
    running: AtomicU32,
    /// Those of them that were handed over to an order.
    pub(super) ordered: AtomicU32,
    /// How many have begun, by and by.
    begun: AtomicU32,
    /// Whether the client sends requests without waiting for replies, and how long such requests take.
    pub(super) pipelining: Pipelining,
    /// The client has ended, as far as is known: its requests with a reply are not run any more.
    pub(super) gone: AtomicBool,
    /// Seconds on the ORB's coarse clock when it was accepted.
    pub(super) since: u64,
    /// When something last came.
    pub(super) heard: AtomicU64,
    /// Octets of messages that have not come whole, or that nobody runs yet.
    pub(super) unfinished: Kept,
    pub(super) terms: Terms,
    /// What has arrived and is not yet carried out, while no thread has it and if there is any.
    pub(super) incoming: PiMutex<Option<Incoming>>,
    pub(super) replies: Replies,
    /// How often its listen points have been looked at.
    told: AtomicU32,
    /// Set once calls go both ways.
    pub(super) duplex: OnceLock<Arc<Duplex>>,
    /// Who connected: the kernel's answer stays the same.
    client: OnceLock<Option<Credentials>>,
    /// Values of interceptors that live as long as the connection.
    seats: PiMutex<Vec<Box<dyn Any + Send + Sync>>>,
}

/// How often listen points of a connection are looked at.
const TELLINGS: u32 = 16;

const ARMED: u64 = 0;
const OWNED: u64 = 1;
const RUNNING: u64 = 2;
/// Running, and the next may be begun at once: see [`Connection::run_apart`].
const APART: u64 = 3;

impl Connection {
    pub(super) fn new(stream: Link, number: u64, now: u64, sums: &Sums) -> Self {
        let replies = Replies::new(sums.replies.clone(), stream.is_secure());
        Connection {
            stream,
            number,
            stage: AtomicU64::new(ARMED),
            running: AtomicU32::new(0),
            ordered: AtomicU32::new(0),
            begun: AtomicU32::new(0),
            pipelining: Pipelining::default(),
            gone: AtomicBool::new(false),
            since: now,
            heard: AtomicU64::new(now),
            unfinished: Kept::new(sums.unfinished.clone()),
            terms: Terms::default(),
            incoming: PiMutex::default(),
            replies,
            told: AtomicU32::new(0),
            duplex: OnceLock::new(),
            client: OnceLock::new(),
            seats: PiMutex::default(),
        }
    }

    /// The user and process that connected, over a Unix socket.
    pub(super) fn client(&self) -> Option<Credentials> {
        self.client.get_or_init(|| self.stream.credentials()).clone()
    }

    /// A value of an interceptor until the connection is closed.
    pub(super) fn seat(&self, seat: Box<dyn Any + Send + Sync>) {
        self.seats.lock().push(seat);
    }

    /// It is closed: interceptors no longer count it.
    pub(super) fn unseat(&self) {
        drop(std::mem::take(&mut *self.seats.lock()));
    }

    /// From Armed to Owned: the calling thread reads it from now on, or closes it while nobody can read a request from
    /// it. Returns the epoch; none if another thread has it.
    pub(super) fn own(&self) -> Option<u64> {
        let armed = self.stage.load(Ordering::Acquire);
        let owned = self.stage.compare_exchange(armed & !3, armed | OWNED, Ordering::AcqRel, Ordering::Relaxed);
        owned.ok().map(|armed| armed >> 2)
    }

    /// A request runs now; others may take the connection meanwhile, if `free`.
    #[inline]
    pub(super) fn run(&self, epoch: u64, free: bool) {
        self.begin();
        if free {
            self.stage.store(epoch << 2 | RUNNING, Ordering::Release);
        }
    }

    /// The same, and whoever has the next takes the connection ([`take_apart`](Self::take_apart)): the order in which the two
    /// are carried out is nobody's concern.
    pub(super) fn run_apart(&self, epoch: u64) {
        self.begin();
        self.stage.store(epoch << 2 | APART, Ordering::Release);
    }

    #[inline]
    fn begin(&self) {
        // By its owner only.
        self.begun.store(self.begun.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.running.fetch_add(1, Ordering::Relaxed);
    }

    /// A request is handed over to an order: it counts as one that runs, and its connection is read on.
    pub(super) fn start_ordered(&self) {
        self.running.fetch_add(1, Ordering::AcqRel);
    }

    /// It is answered.
    pub(super) fn end_ordered(&self) {
        self.running.fetch_sub(1, Ordering::AcqRel);
    }

    /// Which of its requests began last, if any runs.
    pub(super) fn latest(&self) -> Option<u32> {
        self.is_running().then(|| self.begun.load(Ordering::Relaxed))
    }

    /// It has ended. True if the calling thread still owns the connection.
    #[inline]
    pub(super) fn ran(&self, epoch: u64) -> bool {
        self.running.fetch_sub(1, Ordering::Relaxed);
        let owned = epoch << 2 | OWNED;
        let stage = self.stage.load(Ordering::Acquire);
        // It was not free: further messages of it have been read.
        if stage == owned {
            return true;
        }
        // Another epoch, or one that is armed: somebody else's.
        stage >> 2 == epoch
            && stage & 3 != ARMED
            && self.stage.compare_exchange(stage, owned, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Back to Armed, by its owner.
    pub(super) fn release(&self, epoch: u64) {
        self.stage.store((epoch + 1) << 2 | ARMED, Ordering::Release);
    }

    /// Back to Armed while a request runs, if it still does and fewer than `most` do.
    pub(super) fn give(&self, epoch: u64, most: u32) -> bool {
        [RUNNING, APART].into_iter().any(|stage| self.change(epoch << 2 | stage, (epoch + 1) << 2 | ARMED, most))
    }

    /// True while a request runs apart.
    pub(super) fn is_apart(&self) -> bool {
        self.stage.load(Ordering::Acquire) & 3 == APART
    }

    /// To Owned in the next epoch, while a request runs apart and fewer than `most` do. Returns that epoch.
    pub(super) fn take_apart(&self, most: u32) -> Option<u64> {
        let stage = self.stage.load(Ordering::Acquire);
        let epoch = (stage >> 2) + 1;
        (stage & 3 == APART && self.change(stage, epoch << 2 | OWNED, most)).then_some(epoch)
    }

    fn change(&self, from: u64, to: u64, most: u32) -> bool {
        self.running.load(Ordering::Relaxed) < most
            && self.stage.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// True while a request runs.
    pub(super) fn is_running(&self) -> bool {
        self.running.load(Ordering::Relaxed) > 0
    }

    /// Lets epoll report once when something comes.
    pub(super) fn watch(&self, poller: &Poller) -> io::Result<()> {
        match poller.arm(self, self.number, false) {
            // It is new there.
            Err(error) if error.kind() == io::ErrorKind::NotFound => poller.add(self, self.number, false),
            armed => armed,
        }
    }

    pub(super) fn link(&self) -> &Link {
        &self.stream
    }

    /// Calls of this side over it, if they go both ways.
    pub(crate) fn calls(&self) -> Option<&Arc<Mux>> {
        self.duplex.get().map(|duplex| &duplex.calls)
    }

    /// What both ends have agreed upon.
    pub(crate) fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Ends both directions; whoever reads it finds out.
    pub(crate) fn close_stream(&self) {
        self.stream.close();
    }

    /// Its listen points are looked at now: not for ever, as the system has to be asked whose they are.
    pub(super) fn may_tell(&self) -> bool {
        self.told.load(Ordering::Relaxed) < TELLINGS && self.told.fetch_add(1, Ordering::Relaxed) < TELLINGS
    }

    /// True while it must not be closed for being silent.
    pub(super) fn is_wanted(&self) -> bool {
        self.duplex.get().is_some_and(|duplex| duplex.is_wanted())
    }

    /// True while a request of either side is under way.
    pub(super) fn is_engaged(&self) -> bool {
        self.is_running() || self.duplex.get().is_some_and(|duplex| duplex.calls.waits())
    }

    /// Tells the client that the connection ends: 12 octets go, or nobody reads them. Not within a reply.
    pub(super) fn say_goodbye(&self) {
        self.replies.send_now(&self.stream, &close_connection(self.terms.version()));
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// A connection in the hands of a thread.
#[derive(Clone, Debug)]
pub(crate) struct Serving {
    pub(super) lane: Arc<Lane>,
    pub(super) connection: Arc<Connection>,
    /// None for a request that an order has run: other threads read its connection.
    pub(super) epoch: Option<u64>,
}

impl Serving {
    /// What the client proved to be.
    pub(crate) fn certificate(&self) -> Option<Arc<[u8]>> {
        self.connection.stream.certificate().cloned()
    }

    pub(crate) fn connection(&self) -> Arc<Connection> {
        self.connection.clone()
    }

    /// Lets the thread wait with its request, if that leaves the lane one for others.
    pub(crate) fn spare_thread(&self) -> Option<Spared> {
        self.lane.spare().then(|| Spared(self.lane.clone()))
    }

    /// Whether an order has run its request, on a thread that is the program's.
    pub(crate) fn is_ordered(&self) -> bool {
        self.epoch.is_none()
    }

    /// Who the kernel says the client is.
    pub(crate) fn credentials(&self) -> Option<Credentials> {
        self.connection.client()
    }

    /// Lets another thread read the connection while the request runs. Not if too many of its requests run already.
    pub(crate) fn let_others_read(&self) {
        self.let_run(self.lane.in_flight);
    }

    /// The same, if fewer than `most` of its requests run.
    pub(super) fn let_run(&self, most: u32) {
        if self.epoch.is_some_and(|epoch| self.connection.give(epoch, most)) {
            self.lane.arm(&self.connection);
        }
    }
}

/// A thread that waits with its request, until it is dropped.
#[derive(Debug)]
pub(crate) struct Spared(Arc<Lane>);

impl Drop for Spared {
    fn drop(&mut self) {
        self.0.unspare();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;
    use std::time::Duration;

    use hyoshi_os::{Listener, SocketAddress, SocketStream};

    use super::*;
    use crate::limits::ServerLimits;
    use crate::server::LaneOptions;

    fn connected() -> (Listener, Connection) {
        let listener = Listener::bind(&SocketAddress::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let stream = Link::Plain(SocketStream::connect(listener.address(), Duration::from_secs(5)).unwrap());
        (listener, Connection::new(stream, 1 << 40, 0, &Sums::default()))
    }

    #[test]
    fn behind_a_request_that_runs_apart_the_next_is_begun_at_once() {
        let (_listener, connection) = connected();
        let first = connection.own().unwrap();
        connection.run(first, true);
        assert_eq!((connection.own(), connection.take_apart(9)), (None, None), "their order counts");
        assert!(connection.ran(first));
        connection.run_apart(first);
        assert_eq!(connection.own(), None);
        assert_eq!(connection.take_apart(1), None, "as many run as may");
        let second = connection.take_apart(2).unwrap();
        assert_eq!(connection.take_apart(9), None, "another has it");
        assert!(!connection.ran(first), "it is not the first one's any more");
        connection.run_apart(second);
        assert!(connection.ran(second));
        connection.run_apart(second);
        assert!(connection.give(second, 9), "one that waits gives it away as well");
        assert!(!connection.ran(second));
        assert!(connection.own().is_some());
    }

    #[test]
    fn brief_requests_that_ticks_find_are_not_a_long_one() {
        let (options, limits) = (LaneOptions::default(), ServerLimits::default());
        let lane = Lane::new(Weak::new(), options, Vec::new(), &limits, None, None).unwrap();
        let (_listener, connection) = connected();
        let connection = Arc::new(connection);
        let epoch = connection.own().unwrap();
        *lane.hands[0].lock() =
            Some((Serving { lane: lane.clone(), connection: connection.clone(), epoch: Some(epoch) }, None));
        for _ in 0..5 {
            connection.run(epoch, true);
            lane.tick();
            assert!(connection.ran(epoch), "it ran for no more than one tick");
            lane.tick();
        }
        connection.run(epoch, true);
        lane.tick();
        lane.tick();
        assert!(!connection.ran(epoch), "others have it");
    }
}
