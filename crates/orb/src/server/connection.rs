//! A connection that a client opened, or one to a server that may call back over it.

use std::any::Any;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use hyoshi_os::{Credentials, PiMutex, Poller};
use hyoshi_wire::giop::close_connection;

use super::Lane;
use super::duplex::Duplex;
use super::fair::Pipelining;
use super::source::ClientSource;
use crate::channel::{Incoming, Tally};
use crate::current::Served;
use crate::rt::{PoolLane, Priority, PriorityCeilings};
use crate::socket::Socket;
use crate::stream::MaybeTlsStream;

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
/// If the connection carries calls both ways, a request may run apart: the thread that takes the next request then owns
/// the connection.
///
/// Each return to Armed begins a new epoch: a thread sees by it that it no longer owns the connection. If calls go both
/// ways, the reader thread reads it, and the owner takes the requests that the reader has queued.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) lane: Weak<Lane>,
    pub(super) socket: Arc<Socket>,
    pub(super) number: u64,
    /// It never gives its place to another one.
    protected: AtomicBool,
    /// Where its client is; none if this ORB opened it.
    pub(super) source: Option<ClientSource>,
    stage: AtomicU64,
    /// Requests that run.
    running: AtomicU32,
    /// Those of them that were handed over to an order.
    pub(super) ordered: AtomicU32,
    /// If it waits for a place: the request is a call of an operation of a file.
    pub(super) waits_with_call: AtomicBool,
    /// How many have begun, by and by.
    begun: AtomicU32,
    /// Whether the client sends requests without waiting for replies, and how long such requests take.
    pub(super) pipelining: Pipelining,
    /// The client has ended, as far as is known: its requests with a reply are not run any more.
    pub(super) gone: AtomicBool,
    /// When it was accepted, on the coarse clock.
    pub(super) since: u64,
    /// When octets last arrived.
    pub(super) heard: AtomicU64,
    /// Octets of incomplete messages, and of requests that wait to run.
    pub(super) unfinished: Tally,
    /// What has arrived and is not yet carried out, while no thread has it and if there is any.
    pub(super) incoming: PiMutex<Option<Incoming>>,
    /// How often its listen points were checked.
    announcements: AtomicU32,
    /// Set once it carries calls both ways.
    pub(super) duplex: OnceLock<Arc<Duplex>>,
    /// The process that connected: the kernel's answer stays the same.
    client: OnceLock<Option<Credentials>>,
    /// The order's number for it: see [`OrderedRequest::mark`](super::OrderedRequest::mark).
    pub(super) mark: AtomicU32,
    /// Values of interceptors that live as long as the connection.
    seats: PiMutex<Vec<Box<dyn Any + Send + Sync>>>,
    /// The highest priority that its client may claim, since it first claimed one.
    ceiling: OnceLock<Option<Priority>>,
}

/// Octets that all connections of a lane hold together.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// Of incomplete messages, and of requests that wait to run.
    pub(super) unfinished: Arc<AtomicUsize>,
    /// Of messages that their sockets do not accept.
    pub(super) waiting: Arc<AtomicUsize>,
}

/// How often listen points of a connection are checked.
const ANNOUNCEMENTS: u32 = 16;

const ARMED: u64 = 0;
const OWNED: u64 = 1;
const RUNNING: u64 = 2;
/// Running, and the next may be begun at once: see [`Connection::run_apart`].
const APART: u64 = 3;

impl Connection {
    pub(super) fn new(
        lane: Weak<Lane>,
        link: MaybeTlsStream,
        number: u64,
        now: u64,
        source: Option<ClientSource>,
        sums: &Sums,
    ) -> Self {
        Connection {
            lane,
            socket: Arc::new(Socket::new(link, sums.waiting.clone())),
            number,
            protected: AtomicBool::new(false),
            source,
            stage: AtomicU64::new(ARMED),
            running: AtomicU32::new(0),
            ordered: AtomicU32::new(0),
            waits_with_call: AtomicBool::new(false),
            begun: AtomicU32::new(0),
            pipelining: Pipelining::default(),
            gone: AtomicBool::new(false),
            since: now,
            heard: AtomicU64::new(now),
            unfinished: Tally::new(sums.unfinished.clone()),
            incoming: PiMutex::default(),
            announcements: AtomicU32::new(0),
            duplex: OnceLock::new(),
            client: OnceLock::new(),
            mark: AtomicU32::new(0),
            seats: PiMutex::default(),
            ceiling: OnceLock::new(),
        }
    }

    /// The user and process that connected, over a Unix socket.
    pub(super) fn client(&self) -> Option<Credentials> {
        self.client.get_or_init(|| self.link().credentials()).clone()
    }

    /// A value of an interceptor until the connection is closed.
    pub(super) fn seat(&self, seat: Box<dyn Any + Send + Sync>) {
        self.seats.lock().push(seat);
    }

    /// It is closed: interceptors no longer count it.
    pub(super) fn unseat(&self) {
        drop(std::mem::take(&mut *self.seats.lock()));
    }

    /// From Armed to Owned: the calling thread reads it from now on, or closes it while no other thread can read a request from
    /// it. Returns the epoch; none if another thread has it.
    pub(super) fn own(&self) -> Option<u64> {
        let armed = self.stage.load(Ordering::Acquire);
        let owned = self.stage.compare_exchange(armed & !3, armed | OWNED, Ordering::AcqRel, Ordering::Relaxed);
        owned.ok().map(|armed| armed >> 2)
    }

    /// A request runs now; others may take the connection meanwhile, if `free`.
    #[inline]
    pub(super) fn run(&self, epoch: u64, free: bool) {
        self.running.fetch_add(1, Ordering::Relaxed);
        self.run_next(epoch, free);
    }

    /// The same, after one that was not free: both count as one that runs, until [`end_run`](Self::end_run).
    #[inline]
    pub(super) fn run_next(&self, epoch: u64, free: bool) {
        self.begin();
        if free {
            self.stage.store(epoch << 2 | RUNNING, Ordering::Release);
        }
    }

    /// Requests that were not free have ended.
    pub(super) fn end_run(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// The same, and the thread that takes the next request owns the connection ([`take_apart`](Self::take_apart)): the
    /// order of the two requests does not matter.
    pub(super) fn run_apart(&self, epoch: u64) {
        self.running.fetch_add(1, Ordering::Relaxed);
        self.begin();
        self.stage.store(epoch << 2 | APART, Ordering::Release);
    }

    #[inline]
    fn begin(&self) {
        // By its owner only.
        self.begun.store(self.begun.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// A request is handed over to an order: it counts as one that runs, and its connection is read on.
    pub(super) fn start_ordered(&self) {
        self.ordered.fetch_add(1, Ordering::Relaxed);
        self.running.fetch_add(1, Ordering::AcqRel);
    }

    /// It is answered.
    pub(super) fn end_ordered(&self) {
        self.ordered.fetch_sub(1, Ordering::Relaxed);
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
        // Another epoch, or one that is armed: another thread's.
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

    /// The client has ended: it waits for no replies.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Checks whether the client has ended.
    pub(super) fn check_gone(&self) {
        if !self.is_gone() && self.link().has_ended() {
            self.gone.store(true, Ordering::Relaxed);
        }
    }

    /// True if it has never sent a message.
    pub(super) fn is_silent(&self) -> bool {
        self.socket.terms.is_silent()
    }

    /// True while a request runs.
    pub(super) fn is_running(&self) -> bool {
        self.running.load(Ordering::Relaxed) > 0
    }

    /// Lets epoll report once when octets arrive.
    pub(super) fn watch(&self, poller: &Poller) -> io::Result<()> {
        self.watch_as(poller, self.number)
    }

    fn watch_as(&self, poller: &Poller, number: u64) -> io::Result<()> {
        match poller.arm(self, number, false) {
            // It is new there.
            Err(error) if error.kind() == io::ErrorKind::NotFound => poller.add(self, number, false),
            armed => armed,
        }
    }

    pub(super) fn link(&self) -> &MaybeTlsStream {
        &self.socket.link
    }

    /// Its listen points are checked now. The number of checks is bounded, because each asks the system for addresses.
    pub(super) fn may_announce(&self) -> bool {
        self.announcements.load(Ordering::Relaxed) < ANNOUNCEMENTS
            && self.announcements.fetch_add(1, Ordering::Relaxed) < ANNOUNCEMENTS
    }

    /// True while it must not be closed for being silent.
    pub(super) fn is_wanted(&self) -> bool {
        self.duplex.get().is_some_and(|duplex| duplex.is_wanted())
    }

    /// True while a request of either side is under way.
    pub(super) fn is_engaged(&self) -> bool {
        let calls = |duplex: &Arc<Duplex>| duplex.calls.waits() || self.socket.outbox.is_behind();
        self.is_running() || self.duplex.get().is_some_and(calls)
    }

    /// Sends that the connection ends, unless other octets wait. A client that does not read needs no 12 octets more.
    pub(super) fn send_close(&self) {
        let sending = self.socket.outbox.lock();
        if !sending.queue.is_behind() {
            let _ = self.socket.write_now(&close_connection(self.socket.terms.version()));
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link().as_fd()
    }
}

impl Served for Connection {
    fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    fn source(&self) -> Option<ClientSource> {
        self.source
    }

    fn credentials(&self) -> Option<Credentials> {
        self.client()
    }

    fn protect(&self) -> bool {
        let is_new = !self.protected.load(Ordering::Relaxed) && !self.protected.swap(true, Ordering::Relaxed);
        if is_new && let Some(lane) = self.lane.upgrade() {
            lane.table.protect(self);
        }
        is_new
    }

    fn let_others_read(self: Arc<Self>, epoch: u64) {
        if let Some(lane) = self.lane.upgrade() {
            lane.let_others_read(&self, epoch, lane.in_flight);
        }
    }

    fn offer(&self, epoch: u64) -> bool {
        let lane = self.lane.upgrade().filter(|_| !self.is_both_ways());
        // An invocation may have done so already.
        lane.map(|lane| self.give(epoch, lane.in_flight)).is_some()
    }

    fn read_cancels(self: Arc<Self>, buffer: &mut [u8]) -> bool {
        self.lane.upgrade().is_some_and(|lane| lane.read_cancels(&self, buffer))
    }

    fn watch(&self, poller: &Poller, number: u64) -> io::Result<()> {
        self.watch_as(poller, number)
    }

    fn spare(&self) -> bool {
        self.lane.upgrade().is_some_and(|lane| lane.spare())
    }

    fn unspare(&self) {
        self.lane.upgrade().inspect(|lane| lane.unspare());
    }

    fn pool_lane(&self) -> Option<PoolLane> {
        self.lane.upgrade()?.pool
    }

    fn is_both_ways(&self) -> bool {
        self.duplex.get().is_some()
    }

    fn ceiling(&self, ceilings: &PriorityCeilings) -> Option<Priority> {
        *self.ceiling.get_or_init(|| {
            let address = self.link().addresses().0.map(|address| address.ip());
            let user = self.client().map(|client| client.uid);
            ceilings.of(self.link().certificate().map(|der| &**der), user, address)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::ServerLimits;
    use crate::server::LaneOptions;

    fn connected() -> Connection {
        Connection::new(Weak::new(), MaybeTlsStream::connected(), 1 << 40, 0, None, &Sums::default())
    }

    #[test]
    fn behind_a_request_that_runs_apart_the_next_is_begun_at_once() {
        let connection = connected();
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
        let lane = Lane::new(Weak::new(), options, Vec::new(), &limits, None, None, None).unwrap();
        let connection = connected();
        let connection = Arc::new(connection);
        let epoch = connection.own().unwrap();
        lane.begin_work(0, &connection, epoch);
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
