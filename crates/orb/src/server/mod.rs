//! The server's side: lanes. A lane has endpoints, their connections, and the threads that serve them, apart from all
//! other lanes.
//!
//! This file has its threads. All idle threads of a lane wait in epoll. The one that gets a connection reads a request
//! **and runs it**, sends the reply and, while another thread is idle, waits for the next request in a plain read of
//! that connection: two system calls for each message (see `linger`). It does so for 20 ms at most. A connection that
//! is silent for longer, or whose lane is short of threads, returns to epoll. Buffers belong to threads.

mod accept;
mod borrow;
mod buffer;
mod busy_poll;
mod cancels;
mod connection;
mod connections;
mod duplex;
mod duplex_reader;
mod fair;
mod handshakes;
mod linger;
mod order;
mod owned;
mod prioritize;
mod reading;
mod serve;
mod shares;
mod source;
mod tick;

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use hyoshi_model::Span;
use hyoshi_os::{
    Clock, Listener, May, MonotonicClock, PiMutex, Poller, Ready, Spawn, SpawnedThread, ThreadPolicy, Wake,
};
use hyoshi_wire::{ByteOrder, Encoder, Limits};

use self::borrow::{BORROWERS, Borrowing};
use self::busy_poll::BusyPoll;
use self::connections::{Connections, FIRST};
use self::duplex_reader::DuplexReader;
use self::fair::Fairness;
use self::handshakes::Handshakes;
use self::linger::Lingering;
use self::order::Ordered;
use crate::bidir::Claims;
use crate::channel::{self, Pace, ReadBudget};
use crate::current::{self, Serving};
use crate::limits::{ServerLimits, millis};
pub(crate) use crate::rt::current::Home;
use crate::rt::{self, PoolLane};
use crate::shared::Shared;
use crate::socket::BUFFER;
use crate::tls::TlsServer;

pub use buffer::RequestBuffer;
pub(crate) use buffer::{Buffer, MOST_BUFFERED};
pub(crate) use connection::Connection;
pub use order::{Order, OrderedRequest, RequestClient};
pub use owned::{LaneTurn, OwnedLane};
pub(crate) use shares::share;
pub(crate) use source::ClientSource;

/// How often threads that linger are kicked when the lane ends.
const AGAIN: Span = Span::from_millis(10);

/// A lane's threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneOptions {
    /// Name of its threads.
    pub name: String,
    /// The most threads; default 16. They are started as needed. With 0 the lane has no threads, and its owner serves
    /// it ([`Orb::owned_lane`](crate::Orb::owned_lane)).
    pub threads: usize,
    /// How the kernel orders them.
    pub policy: ThreadPolicy,
    /// The CPU they run on; none for any.
    pub cpu: Option<u32>,
    /// All requests take less than some milliseconds, and are rare. Then no thread lingers, and no thread wakes up
    /// except those that serve. A request that still runs long delays others of its connection.
    pub brief: bool,
    /// Octets of each thread's stack; default 256 KiB, at least 64 KiB.
    pub stack: usize,
    /// How long its threads poll for clients before they sleep; default 0. That spares the time to wake up, and each
    /// such thread uses a CPU. Requests do not prolong the time. Afterwards the lane does not poll for as long: it
    /// polls at most half of the time. Threads of such a lane do not linger ([`ServerLimits::linger`]).
    pub busy_poll: Span,
}

impl Default for LaneOptions {
    fn default() -> Self {
        LaneOptions {
            name: "orb".to_owned(),
            threads: 16,
            policy: ThreadPolicy::Other,
            cpu: None,
            brief: false,
            stack: 256 << 10,
            busy_poll: Span::ZERO,
        }
    }
}

impl LaneOptions {
    /// A thread of the lane.
    fn spawn(&self, suffix: &str) -> Spawn {
        let spawn = Spawn::new(format!("{}-{suffix}", self.name)).policy(self.policy).stack(self.stack);
        match self.cpu {
            Some(cpu) => spawn.cpu(cpu),
            None => spawn,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Lane {
    this: Weak<Lane>,
    orb: Weak<Shared>,
    options: LaneOptions,
    /// The place in a thread pool, if it is a lane of one.
    pool: Option<PoolLane>,
    limits: Limits,
    /// Requests of one connection that run at once.
    in_flight: u32,
    /// The most octets of replies that wait.
    backlog: usize,
    /// The most octets of incomplete messages.
    most_unfinished: usize,
    pace: Pace,
    linger: Duration,
    silent: u64,
    /// How long a thread that sends a reply waits for its client.
    patience: May,
    /// Requests that run in an order of the program's own.
    ordered: Option<Ordered>,
    /// Requests that wait for its workers, if it buffers requests.
    buffer: OnceLock<Arc<Buffer>>,
    borrowing: Borrowing,
    /// The owner's state, if it has no threads.
    worker: Option<PiMutex<Worker>>,
    /// The thread that is within a turn, or 0.
    turning: AtomicU32,
    /// The most that a turn reads.
    turn: ReadBudget,
    poller: Poller,
    /// None once the lane stops.
    listeners: PiMutex<Vec<Arc<Listener>>>,
    /// Takes connections over TLS in, if the lane has such endpoints.
    handshakes: PiMutex<Option<Handshakes>>,
    /// Reads the connections that carry calls both ways, from the start on where there may be such until the lane has
    /// ended.
    reader: PiMutex<Option<DuplexReader>>,
    /// Which listen points of clients are believed; none if clients are not called over their connections.
    claims: Option<Claims>,
    /// Listeners that are left alone for a moment, for the system lacks what a connection needs.
    resting: PiMutex<Vec<u64>>,
    table: Connections,
    idle: AtomicUsize,
    lingering: Lingering,
    busy_poll: BusyPoll,
    fairness: Fairness,
    /// Threads that wait with a request for an adapter or activator.
    spared: AtomicUsize,
    /// Threads that were started.
    started: AtomicUsize,
    threads: PiMutex<Vec<SpawnedThread<()>>>,
    /// Those that run still, and a post for each that ends.
    alive: AtomicUsize,
    gone: Wake,
    /// Connections with requests that were read and do not run yet. The longest waiting first.
    ready: PiMutex<VecDeque<Arc<Connection>>>,
    /// Connections with messages that the other side does not accept.
    behind: PiMutex<Vec<Arc<Connection>>>,
    /// What each thread serves.
    at_work: Box<[PiMutex<Option<AtWork>>]>,
    stopping: AtomicBool,
    /// Connections below this number have been looked at in this round.
    swept: AtomicU64,
    /// The coarse clock, as of the last tick or request.
    now: AtomicU64,
}

/// A connection that a thread serves.
#[derive(Debug)]
struct AtWork {
    connection: Arc<Connection>,
    epoch: u64,
    /// Its request that ran at the last tick.
    seen: Option<u32>,
}

/// What a thread works with.
#[derive(Debug)]
struct Worker {
    buffer: Vec<u8>,
    to: Encoder,
    number: usize,
    /// What it may read until others have their turn.
    left: ReadBudget,
}

impl Worker {
    fn new(number: usize) -> Self {
        let (buffer, to) = (vec![0; BUFFER], Encoder::new(ByteOrder::NATIVE));
        Worker { buffer, to, number, left: ReadBudget::unbounded() }
    }
}

impl Lane {
    pub(crate) fn new(
        orb: Weak<Shared>,
        options: LaneOptions,
        listeners: Vec<Listener>,
        limits: &ServerLimits,
        claims: Option<Claims>,
        order: Option<(Arc<dyn Order>, usize)>,
        pool: Option<PoolLane>,
    ) -> io::Result<Arc<Lane>> {
        let poller = Poller::new()?;
        // Where they cannot be kicked threads linger their time.
        let _ = hyoshi_os::allow_kicks();
        for (number, listener) in listeners.iter().enumerate() {
            poller.add_unarmed(listener, number as u64)?;
        }
        let owned = options.threads == 0;
        let most = options.threads.max(1);
        Ok(Arc::new_cyclic(|this| Lane {
            this: this.clone(),
            orb,
            pool,
            limits: Limits { message: limits.message, ..Limits::default() },
            in_flight: limits.in_flight,
            backlog: limits.backlog,
            most_unfinished: limits.unfinished,
            pace: limits.pace(),
            linger: Duration::from_nanos(limits.linger.as_nanos()),
            silent: millis(limits.silent),
            // A thread that runs ordered requests must not wait: it has other requests to run.
            patience: if owned || order.is_some() { May::Never } else { May::Wait },
            ordered: order.map(|(order, places)| Ordered::new(order, places)),
            buffer: OnceLock::new(),
            borrowing: Borrowing::default(),
            worker: owned.then(|| PiMutex::new(Worker::new(0))),
            turning: AtomicU32::new(0),
            turn: ReadBudget {
                messages: limits.turn_messages.max(1),
                octets: limits.turn_octets.max(1),
                ..ReadBudget::unbounded()
            },
            poller,
            listeners: PiMutex::new(listeners.into_iter().map(Arc::new).collect()),
            handshakes: PiMutex::new(None),
            reader: PiMutex::new(None),
            claims,
            resting: PiMutex::new(Vec::new()),
            table: Connections::new(limits.connections),
            idle: AtomicUsize::new(0),
            lingering: Lingering::new(most),
            busy_poll: BusyPoll::new(options.busy_poll),
            fairness: Fairness::new(most),
            spared: AtomicUsize::new(0),
            started: AtomicUsize::new(0),
            threads: PiMutex::new(Vec::new()),
            alive: AtomicUsize::new(0),
            gone: Wake::new(),
            ready: PiMutex::new(VecDeque::new()),
            behind: PiMutex::new(Vec::new()),
            at_work: (0..most).map(|_| PiMutex::new(None)).collect(),
            options,
            stopping: AtomicBool::new(false),
            swept: AtomicU64::new(0),
            now: AtomicU64::new(0),
        }))
    }

    /// Takes clients in over TLS too.
    pub(crate) fn secure(
        self: &Arc<Self>,
        listeners: Vec<Listener>,
        tls: &TlsServer,
        limits: &ServerLimits,
    ) -> io::Result<()> {
        if !listeners.is_empty() {
            let name = format!("{}-tls", self.options.name);
            *self.handshakes.lock() = Some(Handshakes::start(self.clone(), name, listeners, tls.clone(), limits)?);
        }
        Ok(())
    }

    /// Accepts connections from now on; until then clients wait in the listeners' backlogs.
    pub(crate) fn open(&self) {
        for (number, listener) in self.listeners.lock().iter().enumerate() {
            // Cannot fail: the poller knows it.
            let _ = self.poller.arm(&**listener, number as u64, false);
        }
        if let Some(handshakes) = &*self.handshakes.lock() {
            handshakes.open();
        }
    }

    /// True if clients can connect to it.
    pub(crate) fn listens(&self) -> bool {
        !self.listeners.lock().is_empty() || self.handshakes.lock().is_some()
    }

    /// Starts a thread, or all of them.
    pub(crate) fn start(self: &Arc<Self>, all: bool) -> io::Result<()> {
        let count = self.options.threads.min(if all { usize::MAX } else { 1 });
        (0..count).try_for_each(|_| self.add_thread(&mut self.threads.lock()))
    }

    /// Starts a thread, if there may be a further one and none is idle.
    pub(crate) fn grow(self: &Arc<Self>) -> io::Result<()> {
        let mut threads = self.threads.lock();
        if self.idle.load(Ordering::Relaxed) > 0 || threads.len() >= self.options.threads || self.stopping() {
            return Ok(());
        }
        self.add_thread(&mut threads)
    }

    fn add_thread(self: &Arc<Self>, threads: &mut Vec<SpawnedThread<()>>) -> io::Result<()> {
        let number = threads.len();
        let lane = self.clone();
        // Idle from the start, or the next tick would start another.
        self.idle.fetch_add(1, Ordering::Relaxed);
        self.alive.fetch_add(1, Ordering::Relaxed);
        let thread = self.options.spawn(&number.to_string()).spawn(move || lane.work(number)).inspect_err(|_| {
            self.idle.fetch_sub(1, Ordering::Relaxed);
            self.alive.fetch_sub(1, Ordering::Relaxed);
        })?;
        threads.push(thread);
        self.started.store(threads.len(), Ordering::Relaxed);
        Ok(())
    }

    /// How many threads were started.
    fn started(&self) -> usize {
        self.started.load(Ordering::Relaxed)
    }

    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn work(self: Arc<Self>, number: usize) {
        let _alive = Alive(&self);
        let Some(orb) = self.orb.upgrade() else { return };
        crate::shared::use_orb(&orb);
        rt::current::settle(Some(self.home()));
        let (mut worker, mut yielded) = (Worker::new(number), 0);
        while !self.stopping() {
            let ready = self.wait();
            let idle = self.idle.fetch_sub(1, Ordering::Relaxed) - 1;
            let may_grow = self.started() < self.options.threads;
            if idle == 0 && !may_grow {
                self.ask_lenders();
            }
            // A lane that has all its threads can have no other, but perhaps one back.
            if idle == 0 || !self.options.brief {
                orb.housekeeping.wake(idle == 0 && may_grow);
            }
            if idle == 0 && !may_grow && self.options.threads > 1 {
                self.call_one_back();
            }
            if let Ok(Some(ready)) = ready {
                self.take_up(&orb, ready, &mut worker);
                self.yield_cpu(&mut yielded);
            }
            self.idle.fetch_add(1, Ordering::Relaxed);
        }
        self.idle.fetch_sub(1, Ordering::Relaxed);
        // The next thread ends, too.
        self.poller.poke();
    }

    /// Does what epoll reports.
    fn take_up(self: &Arc<Self>, orb: &Arc<Shared>, ready: (Ready, bool), worker: &mut Worker) {
        match ready {
            (Ready::Source(listener), _) if listener < BORROWERS => self.accept(listener),
            (Ready::Source(lane), _) if lane < FIRST => self.serve_borrower(orb, lane, worker),
            (Ready::Source(number), ended) => {
                if let Some(connection) = self.table.get(number) {
                    if ended {
                        connection.gone.store(true, Ordering::Relaxed);
                    }
                    self.serve(orb, connection, worker);
                }
            }
            (Ready::Poked, _) => {
                let connection = self.ready.lock().pop_front();
                if let Some(connection) = connection {
                    connection.check_gone();
                    self.serve(orb, connection, worker);
                }
            }
        }
    }

    /// A thread serves the connection, which it owns since `epoch`.
    fn begin_work(&self, number: usize, connection: &Arc<Connection>, epoch: u64) {
        if let Some(place) = self.place(number) {
            *place.lock() = Some(AtWork { connection: connection.clone(), epoch, seen: None });
        }
        current::serve(Some(Serving { connection: connection.clone(), epoch: Some(epoch) }));
    }

    fn end_work(&self, number: usize) {
        current::serve(None);
        if let Some(place) = self.place(number) {
            *place.lock() = None;
        }
    }

    /// Of a thread of the lane, or one that it has borrowed.
    fn place(&self, number: usize) -> Option<&PiMutex<Option<AtWork>>> {
        let borrowed = || self.borrowing.at_work.get()?.get(number - self.at_work.len());
        self.at_work.get(number).or_else(borrowed)
    }

    /// All requests go to this buffer, which is the lane's order. Called before the lane is opened.
    pub(crate) fn buffer_requests(&self, buffer: Arc<Buffer>) {
        let _ = self.buffer.set(buffer);
    }

    /// Lets another thread read a connection while its request runs, if fewer than `most` of its requests run.
    fn let_others_read(&self, connection: &Arc<Connection>, epoch: u64, most: u32) {
        if connection.give(epoch, most) {
            self.arm(connection);
        }
    }

    /// A thread may wait with its request, unless it is the last.
    fn spare(&self) -> bool {
        let room = |spared| (spared + 1 < self.options.threads).then_some(spared + 1);
        self.spared.fetch_update(Ordering::AcqRel, Ordering::Relaxed, room).is_ok()
    }

    fn unspare(&self) {
        self.spared.fetch_sub(1, Ordering::AcqRel);
    }

    /// Reads the coarse clock, and stores it in `now`.
    pub(crate) fn clock(&self) -> u64 {
        let now = channel::now();
        self.now.store(now, Ordering::Relaxed);
        now
    }

    /// The priority of its threads between requests.
    fn home(&self) -> Home {
        Home { priority: self.pool.map(|lane| lane.priority), policy: self.options.policy }
    }

    /// Its place in a thread pool.
    pub(crate) fn pool(&self) -> Option<PoolLane> {
        self.pool
    }

    pub(crate) fn name(&self) -> &str {
        &self.options.name
    }

    /// How its threads are ordered.
    pub(crate) fn policy(&self) -> ThreadPolicy {
        self.options.policy
    }

    /// Wakes the housekeeping thread: a thread that is not the lane's has work for it.
    fn wake_housekeeping(&self) {
        if let Some(orb) = self.orb.upgrade() {
            orb.housekeeping.wake(false);
        }
    }

    /// Takes no further connection and no further request, and closes connections of which none runs.
    pub(crate) fn stop_accepting(&self) {
        self.stopping.store(true, Ordering::Release);
        self.listeners.lock().clear();
        let handshakes = self.handshakes.lock().take();
        if let Some(handshakes) = handshakes {
            handshakes.end();
        }
        self.poller.poke();
        self.call_all_back();
        for connection in self.table.all().iter().filter(|connection| !connection.is_engaged()) {
            // Those that a thread has it closes itself, behind its reply.
            match connection.own() {
                Some(epoch) if connection.is_running() => connection.release(epoch),
                Some(_) => self.end(connection),
                None => {}
            }
        }
    }

    /// Waits until its threads have ended, other than the calling one. False if one has not by `until`.
    pub(crate) fn wait_for_threads(&self, until: Instant) -> bool {
        let own = hyoshi_os::own_thread();
        let is_own = |thread: &SpawnedThread<()>| thread.handle.tid() == own;
        let is_here = || {
            let turns = self.turning.load(Ordering::Relaxed) == own;
            self.threads.lock().iter().any(is_own) || turns || self.has_borrowed_this()
        };
        // A request in an order that ends the ORB does not wait for itself.
        let runs_ordered = usize::from(current::runs_ordered());
        let ordered = || self.ordered.as_ref().map_or(0, |it| it.taken().saturating_sub(runs_ordered));
        let others = || self.alive.load(Ordering::Acquire) - usize::from(is_here()) + ordered();
        let clock = MonotonicClock::start();
        while others() > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            // A kick that arrives just before the read is lost.
            self.call_all_back();
            let left = Span::from_nanos(left.as_nanos() as u64).min(AGAIN);
            self.gone.wait_until(&clock, clock.now() + left);
        }
        self.gone.post(); // a post lets one through: each wakes the next
        true
    }

    /// Closes what connections there are still, when its threads have ended or are left to themselves. A request of the
    /// calling thread is the one that ends the ORB: its reply is sent first.
    pub(crate) fn close_rest(&self) {
        let own = current::socket();
        for connection in self.table.all() {
            if !connection.is_running() {
                self.end(&connection);
            } else if own.as_ref().is_none_or(|own| !Arc::ptr_eq(own, &connection.socket)) {
                // No promise that nothing runs.
                self.close(&connection);
            }
        }
        // Last: callers that waited for a reply have it.
        let reader = self.reader.lock().take();
        if let Some(reader) = reader {
            reader.end();
            // Connections that it got since: now it gets no more.
            let late = self.table.all().into_iter().filter(|connection| connection.duplex.get().is_some());
            late.filter(|connection| !connection.is_running()).for_each(|connection| self.end(&connection));
        }
        if let Some(buffer) = self.buffer.get() {
            buffer.end();
        }
        let threads = std::mem::take(&mut *self.threads.lock());
        let own = hyoshi_os::own_thread();
        for thread in threads {
            if thread.handle.tid() == own {
                self.threads.lock().push(thread);
            } else if thread.is_finished() {
                let _ = thread.join();
            }
        }
    }
}

/// A thread of the lane, until it ends.
struct Alive<'a>(&'a Lane);

impl Alive<'_> {
    /// Of its owner, during a turn.
    fn begin(lane: &Lane) -> Alive<'_> {
        lane.alive.fetch_add(1, Ordering::AcqRel);
        Alive(lane)
    }
}

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, Ordering::AcqRel);
        self.0.gone.post();
    }
}
