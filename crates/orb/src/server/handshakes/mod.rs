//! TLS handshakes, on separate threads. The lane's threads only see clients whose handshake is done.
//!
//! ```text
//!               the listener                    workers: a turn for each step              the listener
//!   accepted ──► Silent ── octets ──► Greeting ── its first message is whole ──► Under way ── done ──► the lane's table
//!                  │                     │                                          │
//!                  │                     └─ not TLS ─► Refused ◄─────── refused ────┘
//!                  │                                      │ input is read and dropped
//!                  └── the deadline, or another has its place ──► closed ◄── from everywhere
//! ```
//!
//! The listener's thread accepts, and computes nothing. Until its first message is complete, a client costs a descriptor
//! or a buffer of some KiB, and has a place among [`ServerLimits::strangers`]. Then it costs about a millisecond of
//! computing, in turn with others by address ([`turns`]), and has a place among [`ServerLimits::handshakes`]. For full
//! places see [`places`]. After [`ServerLimits::handshake`] it is closed in any case.

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

use hyoshi_os::scheduling::{nice_of, set_nice};
use hyoshi_os::{
    Listener, May, MissingResource, Poller, Ready, SocketStream, Spawn, SpawnedThread, own_cpu_time, own_thread,
};
use rustls::server::Acceptor;

use super::Lane;
use crate::limits::{ServerLimits, duration};
use crate::stream::{Handshake, MaybeTlsStream, Next, Unwaiting};
use crate::tls::{TlsServer, reason};
pub(super) use places::ClientNetwork;
use places::ClientPlaces;
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
/// Threads that compute. While one has a long step, the other serves other clients.
const WORKERS: usize = 2;
/// Added to their nice value: threads with requests preempt them, and on a busy machine they still get a tenth of an
/// ordinary thread's share. They take no lock of the lane, whose threads would wait until they run again.
const NICE: i32 = 10;

/// The threads.
#[derive(Debug)]
pub(super) struct Handshakes {
    state: Arc<HandshakeState>,
    threads: Vec<SpawnedThread<()>>,
}

/// The state that the threads share.
struct HandshakeState {
    lane: Arc<Lane>,
    listeners: Vec<Listener>,
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
    strangers: ClientPlaces,
    under_way: ClientPlaces,
    turns: Turns,
    /// Clients for the lane, which keep their places until they are in its table.
    done: Vec<(u64, MaybeTlsStream)>,
}

struct Client {
    source: ClientNetwork,
    /// For messages, as a closed socket has no address.
    address: String,
    until: Instant,
    /// `None` while a worker has it.
    stage: Option<HandshakeStage>,
}

enum HandshakeStage {
    Silent(SocketStream),
    Greeting(SocketStream, Box<Acceptor>, usize),
    UnderWay(Box<Handshake>),
    Refused(SocketStream),
}

/// The result of a step.
enum StepResult {
    /// The client must send octets, or read some if true.
    Wait(HandshakeStage, bool),
    Done(MaybeTlsStream),
    Closed,
}

impl HandshakeStage {
    fn socket(&self) -> &SocketStream {
        match self {
            HandshakeStage::Silent(socket) | HandshakeStage::Greeting(socket, ..) | HandshakeStage::Refused(socket) => {
                socket
            }
            HandshakeStage::UnderWay(handshake) => handshake.socket(),
        }
    }
}

impl std::fmt::Debug for HandshakeState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HandshakeState").finish_non_exhaustive()
    }
}

/// The state of the thread that accepts.
struct HandshakeListener {
    state: Arc<HandshakeState>,
    next: u64,
    /// Listeners that pause because the system lacks resources for a connection.
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
            strangers: ClientPlaces::new(limits.strangers.min(descriptors), seed),
            under_way: ClientPlaces::new(limits.handshakes, seed.rotate_left(32)),
            turns: Turns::new(Instant::now()),
            done: Vec::new(),
        };
        let renewal = Renewal::new(&tls, duration(limits.renewal));
        let next = listeners.len() as u64;
        let state = Arc::new(HandshakeState {
            lane,
            listeners,
            tls,
            poller,
            stopping: AtomicBool::new(false),
            patience: duration(limits.handshake),
            inside: Mutex::new(inside),
            turn: Condvar::new(),
        });
        let mut handshakes = Handshakes { state: state.clone(), threads: Vec::new() };
        let mut listener = HandshakeListener { state: state.clone(), next, resting: Vec::new(), renewal };
        for number in 0..WORKERS {
            let state = state.clone();
            match Spawn::new(format!("{name}-{number}")).spawn(move || {
                // Always permitted; the kernel bounds it.
                let _ = nice_of(own_thread()).and_then(|nice| set_nice(own_thread(), nice + NICE));
                state.work()
            }) {
                Ok(thread) => handshakes.threads.push(thread),
                // One is enough.
                Err(_) if number > 0 => {}
                Err(error) => return Err(error),
            }
        }
        match Spawn::new(name).spawn(move || listener.run()) {
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
        for (number, listener) in self.state.listeners.iter().enumerate() {
            // Cannot fail: the poller knows it.
            let _ = self.state.poller.arm(listener, number as u64, false);
        }
    }

    /// Accepts no more clients; returns when the threads have ended, except the calling one.
    pub(super) fn end(self) {
        self.state.stopping.store(true, Ordering::Release);
        self.state.poller.poke();
        // A worker that has checked for the end already waits, or has not checked yet.
        drop(self.state.lock());
        self.state.turn.notify_all();
        for thread in self.threads {
            if thread.handle.tid() != own_thread() {
                let _ = thread.join();
            }
        }
        let mut inside = self.state.lock();
        inside.clients.clear();
        inside.done.clear();
    }
}

impl HandshakeListener {
    fn run(&mut self) {
        let mut looked = Instant::now();
        while !self.state.stopping.load(Ordering::Acquire) {
            let waits = !self.state.lock().clients.is_empty() || !self.resting.is_empty() || self.renewal.is_at_work();
            let connected = self.state.lane.connections() > 0;
            let timeout = if waits { Some(ROUND) } else { connected.then(|| self.renewal.left(Instant::now())) };
            match self.state.poller.wait(timeout) {
                Ok(Some(Ready::Source(number))) if number < self.state.listeners.len() as u64 => self.accept(number),
                Ok(Some(Ready::Source(number))) => self.state.call(number),
                Ok(Some(Ready::Poked)) => self.hand_over(),
                Ok(None) | Err(_) => {}
            }
            let now = Instant::now();
            if now.duration_since(looked) >= ROUND {
                looked = now;
                let mut inside = self.state.lock();
                let late = inside.clients.iter().filter(|(_, client)| client.until <= now);
                for number in late.map(|(number, _)| *number).collect::<Vec<_>>() {
                    inside.forget(number);
                }
                drop(inside);
                for number in std::mem::take(&mut self.resting) {
                    let _ = self.state.poller.arm(&self.state.listeners[number as usize], number, false);
                }
                self.renewal.go_on(&self.state.lane, &self.state.tls, now);
            }
        }
    }

    fn accept(&mut self, number: u64) {
        let mut made_room = false;
        for _ in 0..ACCEPTS {
            match self.state.listeners[number as usize].accept() {
                Ok(Some(socket)) => {
                    made_room = false;
                    self.take_in(socket);
                }
                Ok(None) => break,
                Err(error) => match MissingResource::of(&error) {
                    None => {}
                    // Closes one client. If that does not help, descriptors are missing for other reasons.
                    Some(MissingResource::Descriptors)
                        if !made_room && (self.state.lane.make_room() || self.state.lock().make_room()) =>
                    {
                        made_room = true;
                    }
                    Some(_) => return self.resting.push(number),
                },
            }
        }
        let _ = self.state.poller.arm(&self.state.listeners[number as usize], number, false);
    }

    /// Moves clients whose handshake is done to the lane's table.
    fn hand_over(&self) {
        let mut inside = self.state.lock();
        let mut done = std::mem::take(&mut inside.done);
        // If another client has its place by now, it is closed.
        done.retain(|(number, _)| inside.forget(*number).is_some());
        drop(inside);
        for (_, link) in done {
            // If this fails, the link is dropped, and so closed.
            let _ = self.state.lane.take_in(link);
            self.state.lane.wake_housekeeping();
        }
    }

    fn take_in(&mut self, socket: SocketStream) {
        if !self.state.lane.orb.upgrade().is_some_and(|orb| orb.lets_in(&socket, true)) {
            return;
        }
        // A closed connection has no address.
        let address = socket.peer_address();
        let source = ClientNetwork::of(address.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip()));
        let (number, now) = (self.next, Instant::now());
        self.next += 1;
        let mut inside = self.state.lock();
        if self.state.poller.add(&socket, number, false).is_err() {
            return;
        }
        let loser = inside.strangers.take(number, source, now);
        let until = now + self.state.patience;
        let address = address.map_or_else(|| "a disconnected client".to_owned(), |address| address.to_string());
        inside.clients.insert(number, Client { source, address, until, stage: Some(HandshakeStage::Silent(socket)) });
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

    /// Closes a stranger for another client.
    fn make_room(&mut self) -> bool {
        let loser = self.strangers.make_room(Instant::now());
        loser.and_then(|loser| self.forget(loser)).is_some()
    }
}

impl HandshakeState {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        // A thread that panicked left consistent state: each change is one call.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client has sent octets, or can read some: it gets a turn.
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
            // Only the callback for refused clients can panic. Other clients still need this thread.
            let result = catch_unwind(AssertUnwindSafe(|| self.step(number, stage))).unwrap_or(StepResult::Closed);
            let spent = own_cpu_time().saturating_sub(before);
            let mut inside = self.lock();
            inside.turns.spend(source, duration(spent), Instant::now());
            match result {
                StepResult::Wait(stage, output) => {
                    // If another client has its place by now, it is closed.
                    let Some(client) = inside.clients.get_mut(&number) else { continue };
                    if self.poller.arm(stage.socket(), number, output).is_ok() {
                        client.stage = Some(stage);
                    } else {
                        inside.forget(number);
                    }
                }
                StepResult::Done(link) => {
                    inside.done.push((number, link));
                    drop(inside);
                    self.poller.poke();
                }
                StepResult::Closed => drop(inside.forget(number)),
            }
        }
    }

    /// Waits for the next client in turn. `None` when the lane ends.
    fn next(&self) -> Option<(ClientNetwork, u64, HandshakeStage)> {
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

    /// Continues a handshake as far as possible without waiting.
    fn step(&self, number: u64, stage: HandshakeStage) -> StepResult {
        match stage {
            HandshakeStage::Silent(socket) => self.greet(number, socket, Box::default(), 0),
            HandshakeStage::Greeting(socket, acceptor, came) => self.greet(number, socket, acceptor, came),
            HandshakeStage::UnderWay(handshake) => self.shake(number, handshake),
            HandshakeStage::Refused(socket) => match socket.read(&mut [0; PIECE], May::Never) {
                Ok(0) => StepResult::Closed,
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => StepResult::Closed,
                _ => StepResult::Wait(HandshakeStage::Refused(socket), false),
            },
        }
    }

    /// Reads a client's first message, which needs no certificate.
    fn greet(&self, number: u64, socket: SocketStream, mut acceptor: Box<Acceptor>, mut came: usize) -> StepResult {
        loop {
            match acceptor.read_tls(&mut Unwaiting(&socket)) {
                Ok(0) => return StepResult::Closed,
                Ok(octets) => came += octets,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return StepResult::Wait(HandshakeStage::Greeting(socket, acceptor, came), false);
                }
                Err(_) => return StepResult::Closed,
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
                            return StepResult::Closed;
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

    fn shake(&self, number: u64, mut handshake: Box<Handshake>) -> StepResult {
        match handshake.go_on() {
            Ok(Next::Done) => match self.poller.remove(handshake.socket()) {
                Ok(()) => StepResult::Done(handshake.finish()),
                Err(_) => StepResult::Closed,
            },
            Ok(Next::Wait { output }) => StepResult::Wait(HandshakeStage::UnderWay(handshake), output),
            Err(error) => {
                let why = match error.get_ref().and_then(|inner| inner.downcast_ref()) {
                    Some(inner) => reason(inner),
                    None => error.to_string(),
                };
                self.refuse(number, handshake.give_up(), &why)
            }
        }
    }

    fn refuse(&self, number: u64, socket: SocketStream, why: &str) -> StepResult {
        if let Some(report) = &self.tls.refused {
            let address = self.lock().clients.get(&number).map(|client| client.address.clone());
            report(&address.unwrap_or_else(|| socket.peer()), why);
        }
        socket.close_writing();
        if let Some(client) = self.lock().clients.get_mut(&number) {
            client.until = client.until.min(Instant::now() + FAREWELL);
        }
        StepResult::Wait(HandshakeStage::Refused(socket), false)
    }
}
