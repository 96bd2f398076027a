//! TLS handshakes, on separate threads: the lane's threads only see clients whose handshake is done.
//!
//! ```text
//!               the door                        workers: a turn for each step                the door
//!   accepted ──► Silent ── octets ──► Greeting ── its first message is whole ──► Under way ── done ──► the lane's table
//!                  │                     │                                          │
//!                  │                     └─ not TLS ─► Told ◄────────── refused ────┘
//!                  │                                    │ what still comes is read and dropped
//!                  └── the deadline, or another has its place ──► closed ◄── from everywhere
//! ```
//!
//! The door accepts, and computes nothing. Until its first message is complete, a client costs a descriptor or a
//! buffer of some KiB, and has a place among [`ServerLimits::strangers`]. Then it costs about a millisecond of
//! computing, in turn with others by address ([`turns`]), and has a place among [`ServerLimits::handshakes`]. For full
//! places see [`places`]. After [`ServerLimits::handshake`] it ends in any case.

mod places;
mod renewal;
mod turns;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyoshi_model::Span;
use hyoshi_os::scheduling::{nice_of, set_nice};
use hyoshi_os::{
    Listener, May, MissingResource, Poller, Ready, SocketStream, Spawn, SpawnedThread, own_cpu_time, own_thread,
};
use rustls::server::Acceptor;

use super::lane::Lane;
use crate::limits::ServerLimits;
use crate::link::{Handshake, Link, Next, Unwaiting};
use crate::tls::{TlsServer, reason};
use places::{Places, Source};
use renewal::Renewal;
use turns::Turns;

/// Connections accepted before others are checked again.
const ACCEPTS: usize = 64;
/// How often deadlines are looked at.
const ROUND: Duration = Duration::from_millis(250);
/// How long a refused client may continue to send.
const FAREWELL: Duration = Duration::from_secs(2);
/// Its octets are read in pieces of this size.
const PIECE: usize = 4 << 10;
/// Octets of a client's first message. Those of OpenSSL and rustls have some hundred, of browsers fewer than 2,000.
const GREETING: usize = 16 << 10;
/// Threads that compute: one continues while the other has a client with a long step.
const WORKERS: usize = 2;
/// Added to their nice value: threads with requests preempt them, and on a busy machine they still get a tenth of an
/// ordinary thread's share. They take no lock of the lane, whose threads would wait until they run again.
const NICE: i32 = 10;

/// The threads, as their lane knows them.
#[derive(Debug)]
pub(super) struct Handshakes {
    hall: Arc<Hall>,
    listeners: Arc<[Listener]>,
    threads: Vec<SpawnedThread<()>>,
}

/// What its threads share.
struct Hall {
    lane: Arc<Lane>,
    tls: TlsServer,
    poller: Poller,
    stopping: AtomicBool,
    patience: Duration,
    inside: Mutex<Inside>,
    /// A client waits for its turn.
    turn: Condvar,
}

struct Inside {
    clients: HashMap<u64, Client>,
    strangers: Places,
    under_way: Places,
    turns: Turns,
    /// Clients for the lane, which keep their places until the door has handed them over.
    done: Vec<(u64, Link)>,
}

struct Client {
    source: Source,
    /// For messages: a closed socket has no address any more.
    address: String,
    until: Instant,
    /// None while a worker has it.
    stage: Option<Stage>,
}

enum Stage {
    Silent(SocketStream),
    Greeting(SocketStream, Box<Acceptor>, usize),
    UnderWay(Box<Handshake>),
    Told(SocketStream),
}

/// The result of a step.
enum After {
    /// It waits for the client: to send octets, or with `output` to read some.
    Wait {
        stage: Stage,
        output: bool,
    },
    /// It was refused.
    Farewell(SocketStream),
    Done(Link),
    Over,
}

impl Stage {
    fn socket(&self) -> &SocketStream {
        match self {
            Stage::Silent(socket) | Stage::Greeting(socket, ..) | Stage::Told(socket) => socket,
            Stage::UnderWay(handshake) => handshake.socket(),
        }
    }
}

impl std::fmt::Debug for Hall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hall").finish_non_exhaustive()
    }
}

/// State that only the thread at the door uses.
struct Door {
    hall: Arc<Hall>,
    listeners: Arc<[Listener]>,
    next: u64,
    /// Listeners that pause for a moment, because the system lacks resources for a connection.
    resting: Vec<u64>,
    renewal: Renewal,
}

impl Handshakes {
    pub(super) fn start(
        lane: Arc<Lane>,
        name: String,
        listeners: Vec<Listener>,
        tls: TlsServer,
        limits: &ServerLimits,
    ) -> io::Result<Handshakes> {
        let poller = Poller::new()?;
        for (number, listener) in listeners.iter().enumerate() {
            poller.add_unarmed(listener, number as u64)?;
        }
        // Strangers use at most a quarter of the available descriptors.
        let descriptors =
            hyoshi_os::raise_file_limit().map_or(usize::MAX, |most| usize::try_from(most / 4).unwrap_or(usize::MAX));
        let seed = RandomState::new().hash_one(0);
        let inside = Inside {
            clients: HashMap::new(),
            strangers: Places::new(limits.strangers.min(descriptors), seed),
            under_way: Places::new(limits.handshakes, seed.rotate_left(32)),
            turns: Turns::new(Instant::now()),
            done: Vec::new(),
        };
        let renewal = Renewal::new(&tls, Duration::from_nanos(limits.renewal.as_nanos()));
        let hall = Arc::new(Hall {
            lane,
            tls,
            poller,
            stopping: AtomicBool::new(false),
            patience: Duration::from_nanos(limits.handshake.as_nanos()),
            inside: Mutex::new(inside),
            turn: Condvar::new(),
        });
        let next = listeners.len() as u64;
        let listeners: Arc<[Listener]> = listeners.into();
        let mut handshakes = Handshakes { hall: hall.clone(), listeners: listeners.clone(), threads: Vec::new() };
        let mut door = Door { hall: hall.clone(), listeners, next, resting: Vec::new(), renewal };
        for number in 0..WORKERS {
            let hall = hall.clone();
            match Spawn::new(format!("{name}-{number}")).spawn(move || {
                // Always permitted; the kernel bounds it.
                let _ = nice_of(own_thread()).and_then(|nice| set_nice(own_thread(), nice + NICE));
                hall.work()
            }) {
                Ok(thread) => handshakes.threads.push(thread),
                // One is enough.
                Err(_) if number > 0 => {}
                Err(error) => return Err(error),
            }
        }
        match Spawn::new(name).spawn(move || door.tend()) {
            Ok(thread) => handshakes.threads.push(thread),
            Err(error) => {
                handshakes.end();
                return Err(error);
            }
        }
        Ok(handshakes)
    }

    /// Accepts connections from now on.
    pub(super) fn open(&self) {
        for (number, listener) in self.listeners.iter().enumerate() {
            // Cannot fail: the poller knows it.
            let _ = self.hall.poller.arm(listener, number as u64, false);
        }
    }

    /// Accepts no more clients; returns when the threads have ended, except the calling one.
    pub(super) fn end(self) {
        self.hall.stopping.store(true, Ordering::Release);
        self.hall.poller.poke();
        // A worker that has checked for the end already waits, or has not checked yet.
        drop(self.hall.lock());
        self.hall.turn.notify_all();
        for thread in self.threads {
            if thread.handle.tid() != own_thread() {
                let _ = thread.join();
            }
        }
        let mut inside = self.hall.lock();
        inside.clients.clear();
        inside.done.clear();
    }
}

impl Door {
    fn tend(&mut self) {
        let mut looked = Instant::now();
        while !self.hall.stopping.load(Ordering::Acquire) {
            let waits = !self.hall.lock().clients.is_empty() || !self.resting.is_empty() || self.renewal.is_at_work();
            let connected = self.hall.lane.connections() > 0;
            let timeout = if waits { Some(ROUND) } else { connected.then(|| self.renewal.left(Instant::now())) };
            match self.hall.poller.wait(timeout) {
                Ok(Some(Ready::Source(number))) if number < self.listeners.len() as u64 => self.accept(number),
                Ok(Some(Ready::Source(number))) => self.hall.call(number),
                Ok(Some(Ready::Poked)) => self.hand_over(),
                Ok(None) | Err(_) => {}
            }
            let now = Instant::now();
            if now.duration_since(looked) >= ROUND {
                looked = now;
                self.hall.lock().close_late(now);
                for number in std::mem::take(&mut self.resting) {
                    let _ = self.hall.poller.arm(&self.listeners[number as usize], number, false);
                }
                self.renewal.go_on(&self.hall.lane, &self.hall.tls, now);
            }
        }
    }

    fn accept(&mut self, number: u64) {
        let mut made_room = false;
        for _ in 0..ACCEPTS {
            match self.listeners[number as usize].accept() {
                Ok(Some(socket)) => {
                    made_room = false;
                    self.take_in(socket);
                }
                Ok(None) => break,
                Err(error) => match MissingResource::of(&error) {
                    None => {}
                    // One makes room. If that does not help, descriptors are missing for other reasons.
                    Some(MissingResource::Descriptors)
                        if !made_room && (self.hall.lane.make_room() || self.hall.lock().make_room()) =>
                    {
                        made_room = true;
                    }
                    Some(_) => return self.resting.push(number),
                },
            }
        }
        let _ = self.hall.poller.arm(&self.listeners[number as usize], number, false);
    }

    /// From now on the lane watches those whose handshake is done.
    fn hand_over(&self) {
        let mut inside = self.hall.lock();
        let mut done = std::mem::take(&mut inside.done);
        // If another client has its place by now, it is closed.
        done.retain(|(number, _)| inside.forget(*number).is_some());
        drop(inside);
        for (_, link) in done {
            // If it cannot be set up, it is dropped, and so closed.
            let _ = self.hall.lane.take_in(link);
            self.hall.lane.stir();
        }
    }

    fn take_in(&mut self, socket: SocketStream) {
        if !self.hall.lane.orb.upgrade().is_some_and(|orb| orb.lets_in(&socket, true)) {
            return;
        }
        // A closed connection has no address.
        let address = socket.peer_address();
        let source = Source::of(address.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip()));
        let (number, now) = (self.next, Instant::now());
        self.next += 1;
        let mut inside = self.hall.lock();
        if self.hall.poller.add(&socket, number, false).is_err() {
            return;
        }
        let loser = inside.strangers.take(number, source, now);
        let until = now + self.hall.patience;
        let address = address.map_or_else(|| "a client that has gone".to_owned(), |address| address.to_string());
        inside.clients.insert(number, Client { source, address, until, stage: Some(Stage::Silent(socket)) });
        let loser = loser.and_then(|loser| inside.forget(loser));
        // Closing it takes a moment, and needs no lock.
        drop(inside);
        drop(loser);
    }
}

impl Inside {
    fn forget(&mut self, number: u64) -> Option<Client> {
        let _ = self.strangers.leave(number) || self.under_way.leave(number);
        let client = self.clients.remove(&number)?;
        self.turns.leave(client.source, number);
        Some(client)
    }

    fn close_late(&mut self, now: Instant) {
        let late: Vec<_> =
            self.clients.iter().filter(|(_, client)| client.until <= now).map(|(number, _)| *number).collect();
        for number in late {
            self.forget(number);
        }
    }

    /// A stranger makes room for another.
    fn make_room(&mut self) -> bool {
        let loser = self.strangers.make_room(Instant::now());
        loser.and_then(|loser| self.forget(loser)).is_some()
    }
}

impl Hall {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        // A thread that panicked left consistent state: each change is one call.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client has sent octets, or can take some: it gets a turn.
    fn call(&self, number: u64) {
        let mut inside = self.lock();
        let Some(source) = inside.clients.get(&number).map(|client| client.source) else { return };
        inside.turns.wait(source, number, Instant::now());
        drop(inside);
        self.turn.notify_one();
    }

    fn work(&self) {
        while let Some((source, number, stage)) = self.next() {
            let before = own_cpu_time();
            // A panic is the callback's for refused clients: others still need this thread.
            let after = catch_unwind(AssertUnwindSafe(|| self.step(number, stage))).unwrap_or(After::Over);
            let spent: Span = own_cpu_time().saturating_sub(before);
            let now = Instant::now();
            let mut inside = self.lock();
            inside.turns.spend(source, Duration::from_nanos(spent.as_nanos()), now);
            let (stage, output) = match after {
                After::Wait { stage, output } => (stage, output),
                After::Farewell(socket) => {
                    if let Some(client) = inside.clients.get_mut(&number) {
                        client.until = client.until.min(now + FAREWELL);
                    }
                    (Stage::Told(socket), false)
                }
                After::Done(link) => {
                    inside.done.push((number, link));
                    drop(inside);
                    self.poller.poke();
                    continue;
                }
                After::Over => {
                    inside.forget(number);
                    continue;
                }
            };
            // Another client has its place by now: then it is closed.
            let Some(client) = inside.clients.get_mut(&number) else { continue };
            if self.poller.arm(stage.socket(), number, output).is_ok() {
                client.stage = Some(stage);
            } else {
                inside.forget(number);
            }
        }
    }

    /// Waits for a client whose turn it is; none when the lane ends.
    fn next(&self) -> Option<(Source, u64, Stage)> {
        let mut inside = self.lock();
        while !self.stopping.load(Ordering::Acquire) {
            match inside.turns.next(Instant::now()) {
                Some((source, number)) => {
                    if let Some(stage) = inside.clients.get_mut(&number).and_then(|client| client.stage.take()) {
                        return Some((source, number, stage));
                    }
                }
                None => inside = self.turn.wait(inside).unwrap_or_else(PoisonError::into_inner),
            }
        }
        None
    }

    /// Continues with a client as far as possible without waiting.
    fn step(&self, number: u64, stage: Stage) -> After {
        match stage {
            Stage::Silent(socket) => self.greet(number, socket, Box::default(), 0),
            Stage::Greeting(socket, acceptor, came) => self.greet(number, socket, acceptor, came),
            Stage::UnderWay(handshake) => self.shake(number, handshake),
            Stage::Told(socket) => match socket.read(&mut [0; PIECE], May::Never) {
                Ok(1..) => After::Wait { stage: Stage::Told(socket), output: false },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    After::Wait { stage: Stage::Told(socket), output: false }
                }
                _ => After::Over,
            },
        }
    }

    /// Reads a client's first message. Nothing of a certificate is needed for that.
    fn greet(&self, number: u64, socket: SocketStream, mut acceptor: Box<Acceptor>, mut came: usize) -> After {
        loop {
            match acceptor.read_tls(&mut Unwaiting(&socket)) {
                Ok(0) => return After::Over,
                Ok(octets) => came += octets,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return After::Wait { stage: Stage::Greeting(socket, acceptor, came), output: false };
                }
                Err(_) => return After::Over,
            }
            let accepted = match acceptor.accept() {
                Ok(None) if came > GREETING => return self.refuse(number, socket, "its first message is too long"),
                Ok(None) => continue,
                Ok(Some(accepted)) => accepted.into_connection(self.tls.settings().config.clone()),
                Err(error) => Err(error),
            };
            return match accepted {
                Ok(tls) => {
                    let loser = {
                        let mut inside = self.lock();
                        let Some(source) = inside.clients.get(&number).map(|client| client.source) else {
                            return After::Over;
                        };
                        inside.strangers.leave(number);
                        let loser = inside.under_way.take(number, source, Instant::now());
                        loser.and_then(|loser| inside.forget(loser))
                    };
                    drop(loser);
                    self.shake(number, Box::new(Handshake::new(socket, tls.into())))
                }
                Err((why, mut alert)) => {
                    let _ = alert.write_all(&mut Unwaiting(&socket));
                    self.refuse(number, socket, &reason(&why))
                }
            };
        }
    }

    fn shake(&self, number: u64, mut handshake: Box<Handshake>) -> After {
        match handshake.go_on() {
            Ok(Next::Done) => match self.poller.remove(handshake.socket()) {
                Ok(()) => After::Done(handshake.finish()),
                Err(_) => After::Over,
            },
            Ok(Next::Wait { output }) => After::Wait { stage: Stage::UnderWay(handshake), output },
            Err(error) => {
                let why = match error.get_ref().and_then(|inner| inner.downcast_ref()) {
                    Some(inner) => reason(inner),
                    None => error.to_string(),
                };
                self.refuse(number, handshake.give_up(), &why)
            }
        }
    }

    fn refuse(&self, number: u64, socket: SocketStream, why: &str) -> After {
        if let Some(hear) = &self.tls.refused {
            let address = self.lock().clients.get(&number).map(|client| client.address.clone());
            hear(&address.unwrap_or_else(|| socket.peer()), why);
        }
        socket.close_writing();
        After::Farewell(socket)
    }
}
