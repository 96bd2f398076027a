//! Handshakes of TLS, on a thread of their own: the lane's threads see a client only when it has proved what it must.
//!
//! ```text
//!                           go on: octets come or go
//!                                  ┌──────┐
//!   accepted ──► Under way ────────┴──────┘ ── done ──────────► the lane's table
//!                  │     │                    the deadline, or too many: the oldest
//!                  │     └──────────────────────────────────────► closed
//!                  └─ failed ──► Told: what still comes is read and dropped ──► closed
//! ```
//!
//! No client costs more than a handshake's computing (about a millisecond), a place among
//! [`ServerLimits::handshakes`] and its buffers; after [`ServerLimits::handshake`] it is over.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hyoshi_os::{Lack, Listener, May, Poller, Ready, Spawn, Stream, Thread};
use rustls::ServerConnection;

use super::lane::Lane;
use crate::limits::ServerLimits;
use crate::link::{Handshake, Next};
use crate::tls::TlsServer;

/// Connections taken before others are looked at again.
const ACCEPTS: usize = 16;
/// How often deadlines are looked at.
const ROUND: Duration = Duration::from_millis(250);
/// How long a client that was refused may go on to send.
const FAREWELL: Duration = Duration::from_secs(2);
/// What such a client sends is read in pieces of this.
const PIECE: usize = 4 << 10;

/// The thread, as its lane knows it.
#[derive(Debug)]
pub(super) struct Handshakes {
    poller: Arc<Poller>,
    stopping: Arc<AtomicBool>,
    listeners: Arc<[Listener]>,
    thread: Thread<()>,
}

/// What the thread has in hand.
struct Door {
    lane: Arc<Lane>,
    tls: TlsServer,
    listeners: Arc<[Listener]>,
    poller: Arc<Poller>,
    stopping: Arc<AtomicBool>,
    /// By number: the oldest first.
    all: BTreeMap<u64, Client>,
    next: u64,
    most: usize,
    patience: Duration,
    /// Listeners that are left alone for a moment, for the system lacks what a connection needs.
    resting: Vec<u64>,
}

struct Client {
    stage: Stage,
    until: Instant,
}

enum Stage {
    UnderWay(Box<Handshake>),
    Told(Stream),
}

impl Handshakes {
    pub(super) fn start(
        lane: Arc<Lane>,
        name: String,
        listeners: Vec<Listener>,
        tls: TlsServer,
        limits: &ServerLimits,
    ) -> io::Result<Handshakes> {
        let poller = Arc::new(Poller::new()?);
        for (number, listener) in listeners.iter().enumerate() {
            poller.add_unarmed(listener, number as u64)?;
        }
        let stopping = Arc::new(AtomicBool::new(false));
        let listeners: Arc<[Listener]> = listeners.into();
        let mut door = Door {
            lane,
            tls,
            next: listeners.len() as u64,
            listeners: listeners.clone(),
            poller: poller.clone(),
            stopping: stopping.clone(),
            all: BTreeMap::new(),
            most: limits.handshakes.max(1),
            patience: Duration::from_nanos(limits.handshake.as_nanos()),
            resting: Vec::new(),
        };
        let thread = Spawn::new(name).spawn(move || door.tend())?;
        Ok(Handshakes { poller, stopping, listeners, thread })
    }

    /// Accepts connections from now on.
    pub(super) fn open(&self) {
        for (number, listener) in self.listeners.iter().enumerate() {
            // Cannot fail: the poller knows it.
            let _ = self.poller.arm(listener, number as u64, false);
        }
    }

    /// Takes nobody in any more; returns when the thread has ended, unless it is this one.
    pub(super) fn end(self) {
        self.stopping.store(true, Ordering::Release);
        self.poller.poke();
        if self.thread.handle.tid() != hyoshi_os::own_thread() {
            let _ = self.thread.join();
        }
    }
}

impl Door {
    fn tend(&mut self) {
        let mut looked = Instant::now();
        while !self.stopping.load(Ordering::Acquire) {
            let ready = self.poller.wait((!self.all.is_empty() || !self.resting.is_empty()).then_some(ROUND));
            match ready {
                Ok(Some(Ready::Source(number))) if number < self.listeners.len() as u64 => self.accept(number),
                Ok(Some(Ready::Source(number))) => self.go_on(number),
                Ok(Some(Ready::Poked) | None) | Err(_) => {}
            }
            let now = Instant::now();
            if now.duration_since(looked) >= ROUND {
                looked = now;
                self.all.retain(|_, client| client.until > now);
                for number in std::mem::take(&mut self.resting) {
                    let _ = self.poller.arm(&self.listeners[number as usize], number, false);
                }
            }
        }
    }

    fn accept(&mut self, number: u64) {
        let mut made_room = false;
        for _ in 0..ACCEPTS {
            match self.listeners[number as usize].accept() {
                Ok(Some(socket)) => {
                    made_room = false;
                    self.begin(socket);
                }
                Ok(None) => break,
                Err(error) => match Lack::of(&error) {
                    None => {}
                    // One makes room. If that does not help, descriptors are lacking for other reasons.
                    Some(Lack::Descriptors)
                        if !made_room && (self.lane.make_room() || self.all.pop_first().is_some()) =>
                    {
                        made_room = true;
                    }
                    Some(_) => return self.resting.push(number),
                },
            }
        }
        let _ = self.poller.arm(&self.listeners[number as usize], number, false);
    }

    fn begin(&mut self, socket: Stream) {
        // It fails for want of memory only: then the client goes.
        let Ok(tls) = ServerConnection::new(self.tls.config.clone()) else { return };
        if self.all.len() >= self.most {
            self.all.pop_first();
        }
        let number = self.next;
        self.next += 1;
        if self.poller.add(&socket, number, false).is_ok() {
            let stage = Stage::UnderWay(Box::new(Handshake::new(socket, tls.into())));
            self.all.insert(number, Client { stage, until: Instant::now() + self.patience });
        }
    }

    fn go_on(&mut self, number: u64) {
        let Some(Client { stage, until }) = self.all.remove(&number) else { return };
        let (client, output) = match stage {
            Stage::UnderWay(mut handshake) => match handshake.go_on() {
                Ok(Next::Done) => {
                    // The lane watches it from now on; one that cannot even be set up is dropped, and so closed.
                    if self.poller.remove(handshake.socket()).is_ok() {
                        let _ = self.lane.take_in(handshake.finish());
                        self.lane.stir();
                    }
                    return;
                }
                Ok(Next::Wait { output }) => (Client { stage: Stage::UnderWay(handshake), until }, output),
                Err(error) => {
                    if let Some(hear) = &self.tls.refused {
                        hear(&handshake.socket().peer(), &error.to_string());
                    }
                    let until = until.min(Instant::now() + FAREWELL);
                    (Client { stage: Stage::Told(handshake.give_up()), until }, false)
                }
            },
            Stage::Told(socket) => match socket.read(&mut [0; PIECE], May::Never) {
                Ok(1..) => (Client { stage: Stage::Told(socket), until }, false),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    (Client { stage: Stage::Told(socket), until }, false)
                }
                _ => return,
            },
        };
        let socket = match &client.stage {
            Stage::UnderWay(handshake) => handshake.socket(),
            Stage::Told(socket) => socket,
        };
        if self.poller.arm(socket, number, output).is_ok() {
            self.all.insert(number, client);
        }
    }
}
