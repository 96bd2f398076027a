//! A lane: endpoints, their connections, and the threads that serve them, apart from all other lanes.
//!
//! Here are its threads; `reading` has what they do with a connection, `doorway` how connections come, `tend` what is done
//! once in a while. All idle threads of a lane wait in epoll. The one that is given a connection reads a request **and runs it**,
//! sends the reply, and, as long as another thread is idle, waits for the next request in a plain read of that
//! connection: two system calls a message (see `linger`). So it stays 20 ms at most; a connection that is silent for longer, or
//! whose lane is short of threads, goes back to epoll. Buffers belong to threads.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use hyoshi_model::Span;
use hyoshi_os::clock::coarse;
use hyoshi_os::{
    Clock, Listener, May, MonotonicClock, PiMutex, Poller, Ready, Spawn, SpawnedThread, ThreadPolicy, Wake,
};
use hyoshi_wire::{ByteOrder, Encoder, Limits};

use super::both::Reader;
use super::connection::{Connection, Serving};
use super::fair::Fairness;
use super::handshakes::Handshakes;
use super::linger::Lingering;
use super::order::{Order, Ordered};
use super::table::{FIRST, Table};
use crate::bidir::Claims;
use crate::channel::Pace;
use crate::current;
use crate::intake::BUFFER;
use crate::limits::ServerLimits;
use crate::shared::Shared;
use crate::tls::TlsServer;

/// How often threads that linger are told that the lane ends.
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
    /// All requests take less than some milliseconds, and come seldom. Then no thread lingers, and nobody wakes up besides
    /// those who serve. A request that runs long all the same holds up others of its connection.
    pub brief: bool,
}

impl Default for LaneOptions {
    fn default() -> Self {
        LaneOptions { name: "orb".to_owned(), threads: 16, policy: ThreadPolicy::Other, cpu: None, brief: false }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(super) orb: Weak<Shared>,
    pub(super) options: LaneOptions,
    pub(super) limits: Limits,
    /// Requests of one connection that run at once.
    pub(super) in_flight: u32,
    /// The most octets of replies that wait.
    pub(super) backlog: usize,
    /// The most octets of messages that have not come whole.
    pub(super) most_unfinished: usize,
    pub(super) pace: Pace,
    pub(super) linger: Duration,
    pub(super) silent: u64,
    /// How long a thread that sends a reply waits for its client.
    pub(super) patience: May,
    /// Requests that run in an order of the program's own.
    pub(super) ordered: Option<Ordered>,
    /// The owner's state, if it has no threads.
    pub(super) bench: Option<PiMutex<Bench>>,
    /// The thread that is within a turn, or 0.
    pub(super) turning: AtomicU32,
    /// The most that a turn reads.
    pub(super) turn: Left,
    pub(super) poller: Poller,
    /// None once the lane stops.
    pub(super) listeners: PiMutex<Vec<Arc<Listener>>>,
    /// Takes connections over TLS in, if the lane has such endpoints.
    handshakes: PiMutex<Option<Handshakes>>,
    /// Reads the connections that carry calls both ways, from the start on where there may be such until the lane has ended.
    pub(super) reader: PiMutex<Option<Reader>>,
    /// Which listen points of clients are believed; none if no calls go to them over their connections.
    pub(super) claims: Option<Claims>,
    /// Listeners that are left alone for a moment, for the system lacks what a connection needs.
    pub(super) resting: PiMutex<Vec<u64>>,
    pub(super) table: Table,
    pub(super) idle: AtomicUsize,
    pub(super) lingering: Lingering,
    pub(super) fairness: Fairness,
    /// Threads that wait with a request for an adapter or activator.
    spared: AtomicUsize,
    /// Threads that were started.
    started: AtomicUsize,
    pub(super) threads: PiMutex<Vec<SpawnedThread<()>>>,
    /// Those that run still, and a post for each that ends.
    alive: AtomicUsize,
    pub(super) gone: Wake,
    /// Connections of which requests have been read that nobody runs yet, the one that waits longest first.
    pub(super) ready: PiMutex<VecDeque<Arc<Connection>>>,
    /// Connections whose clients do not take replies.
    pub(super) behind: PiMutex<Vec<Arc<Connection>>>,
    /// What each thread has in hand.
    pub(super) hands: Box<[Hand]>,
    stopping: AtomicBool,
    /// Connections below this number have been looked at in this round.
    pub(super) swept: AtomicU64,
    /// Of the coarse clock, at most as old as the last tick or the request before.
    pub(super) seconds: AtomicU64,
}

/// A connection that a thread has, and which request of it the last tick saw run.
pub(super) type Hand = PiMutex<Option<(Serving, Option<u32>)>>;

/// What a thread works with.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) buffer: Vec<u8>,
    pub(super) to: Encoder,
    pub(super) number: usize,
    pub(super) left: Left,
}

/// What a thread may read until others have their turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    pub(super) messages: usize,
    pub(super) octets: usize,
}

impl Left {
    pub(super) fn is_over(self) -> bool {
        self.messages == 0 || self.octets == 0
    }
}

impl Bench {
    fn new(number: usize) -> Self {
        let left = Left { messages: usize::MAX, octets: usize::MAX };
        Bench { buffer: vec![0; BUFFER], to: Encoder::new(ByteOrder::NATIVE), number, left }
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
    ) -> io::Result<Arc<Lane>> {
        let poller = Poller::new()?;
        // Where they cannot be kicked threads linger their time.
        let _ = hyoshi_os::allow_kicks();
        for (number, listener) in listeners.iter().enumerate() {
            poller.add_unarmed(listener, number as u64)?;
        }
        let owned = options.threads == 0;
        let most = options.threads.max(1);
        Ok(Arc::new(Lane {
            orb,
            limits: Limits { message: limits.message, ..Limits::default() },
            in_flight: limits.in_flight,
            backlog: limits.backlog,
            most_unfinished: limits.unfinished,
            pace: limits.pace(),
            linger: Duration::from_nanos(limits.linger.as_nanos()),
            silent: limits.silent.as_nanos() / 1_000_000_000,
            // A thread that runs ordered requests must not wait: it has other requests to run.
            patience: if owned || order.is_some() { May::Never } else { May::Wait },
            ordered: order.map(|(order, places)| Ordered::new(order, places)),
            bench: owned.then(|| PiMutex::new(Bench::new(0))),
            turning: AtomicU32::new(0),
            turn: Left { messages: limits.turn_messages.max(1), octets: limits.turn_octets.max(1) },
            poller,
            listeners: PiMutex::new(listeners.into_iter().map(Arc::new).collect()),
            handshakes: PiMutex::new(None),
            reader: PiMutex::new(None),
            claims,
            resting: PiMutex::new(Vec::new()),
            table: Table::new(limits.connections),
            idle: AtomicUsize::new(0),
            lingering: Lingering::new(most),
            fairness: Fairness::new(most),
            spared: AtomicUsize::new(0),
            started: AtomicUsize::new(0),
            threads: PiMutex::new(Vec::new()),
            alive: AtomicUsize::new(0),
            gone: Wake::new(),
            ready: PiMutex::new(VecDeque::new()),
            behind: PiMutex::new(Vec::new()),
            hands: (0..most).map(|_| PiMutex::new(None)).collect(),
            options,
            stopping: AtomicBool::new(false),
            swept: AtomicU64::new(0),
            seconds: AtomicU64::new(0),
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
        let mut spawn = Spawn::new(format!("{}-{number}", self.options.name)).policy(self.options.policy);
        if let Some(cpu) = self.options.cpu {
            spawn = spawn.cpu(cpu);
        }
        let lane = self.clone();
        // Idle from the start, or the next tick would start another.
        self.idle.fetch_add(1, Ordering::Relaxed);
        self.alive.fetch_add(1, Ordering::Relaxed);
        let thread = spawn.spawn(move || lane.work(number)).inspect_err(|_| {
            self.idle.fetch_sub(1, Ordering::Relaxed);
            self.alive.fetch_sub(1, Ordering::Relaxed);
        })?;
        threads.push(thread);
        self.started.store(threads.len(), Ordering::Relaxed);
        Ok(())
    }

    /// How many threads were started.
    pub(super) fn started(&self) -> usize {
        self.started.load(Ordering::Relaxed)
    }

    pub(super) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn work(self: Arc<Self>, number: usize) {
        let _alive = Alive(&self);
        let Some(orb) = self.orb.upgrade() else { return };
        crate::shared::use_orb(&orb);
        let mut bench = Bench::new(number);
        while !self.stopping() {
            let ready = self.poller.wait_with_hangup(None);
            let idle = self.idle.fetch_sub(1, Ordering::Relaxed) - 1;
            let may_grow = self.started() < self.options.threads;
            // A lane that has all its threads can have no other, but perhaps one back.
            if idle == 0 || !self.options.brief {
                orb.care.stir(idle == 0 && may_grow);
            }
            if idle == 0 && !may_grow && self.options.threads > 1 {
                self.call_one_back();
            }
            if let Ok(Some(ready)) = ready {
                self.take_up(&orb, ready, &mut bench);
            }
            self.idle.fetch_add(1, Ordering::Relaxed);
        }
        self.idle.fetch_sub(1, Ordering::Relaxed);
        // The next thread shall see that it is over, too.
        self.poller.poke();
    }

    /// Does what epoll reports.
    pub(super) fn take_up(self: &Arc<Self>, orb: &Arc<Shared>, ready: (Ready, bool), bench: &mut Bench) {
        match ready {
            (Ready::Source(listener), _) if listener < FIRST => self.accept(listener),
            (Ready::Source(number), ended) => {
                if let Some(connection) = self.table.get(number) {
                    if ended {
                        connection.gone.store(true, Ordering::Relaxed);
                    }
                    self.serve(orb, connection, bench);
                }
            }
            (Ready::Poked, _) => {
                let connection = self.ready.lock().pop_front();
                if let Some(connection) = connection {
                    connection.see_whether_gone();
                    self.serve(orb, connection, bench);
                }
            }
        }
    }

    /// A thread may wait with its request, unless it is the last.
    pub(super) fn spare(&self) -> bool {
        let room = |spared| (spared + 1 < self.options.threads).then_some(spared + 1);
        self.spared.fetch_update(Ordering::AcqRel, Ordering::Relaxed, room).is_ok()
    }

    pub(super) fn unspare(&self) {
        self.spared.fetch_sub(1, Ordering::AcqRel);
    }

    /// Seconds of the coarse clock, fresh; others see them in `seconds`.
    pub(crate) fn clock(&self) -> u64 {
        let now = coarse().as_nanos() / 1_000_000_000;
        self.seconds.store(now, Ordering::Relaxed);
        now
    }

    pub(crate) fn name(&self) -> &str {
        &self.options.name
    }

    /// How its threads are ordered.
    pub(crate) fn policy(&self) -> ThreadPolicy {
        self.options.policy
    }

    /// Somebody is at work who is none of the lane's own threads.
    pub(super) fn stir(&self) {
        if let Some(orb) = self.orb.upgrade() {
            orb.care.stir(false);
        }
    }

    /// Takes no further connection and no further request, and closes connections of which none runs.
    pub(crate) fn close_door(&self) {
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
        let is_here = || self.threads.lock().iter().any(is_own) || self.turning.load(Ordering::Relaxed) == own;
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
            // A kick that comes just before the read is lost.
            self.call_all_back();
            let left = Span::from_nanos(left.as_nanos() as u64).min(AGAIN);
            self.gone.wait_until(&clock, clock.now() + left);
        }
        self.gone.post(); // a post lets one through: each wakes the next
        true
    }

    /// Closes what connections there are still, when its threads have ended or are left to themselves. A request of the
    /// calling thread is the one that ends the ORB: its reply is to come first.
    pub(crate) fn close_rest(&self) {
        let own = current::connection();
        for connection in self.table.all() {
            if !connection.is_running() {
                self.end(&connection);
            } else if own.as_ref().is_none_or(|own| !Arc::ptr_eq(own, &connection)) {
                // No promise that nothing runs.
                self.close(&connection);
            }
        }
        // Last: whoever waited for a reply has it.
        let reader = self.reader.lock().take();
        if let Some(reader) = reader {
            reader.end();
            // Those that it was given since: now it is given no more.
            let late = self.table.all().into_iter().filter(|connection| connection.duplex.get().is_some());
            late.filter(|connection| !connection.is_running()).for_each(|connection| self.end(&connection));
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
pub(super) struct Alive<'a>(&'a Lane);

impl Alive<'_> {
    /// Of its owner, during a turn.
    pub(super) fn begin(lane: &Lane) -> Alive<'_> {
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
