//! What a thread of a lane does with a connection: read, run, reply.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use hyoshi_os::May;
use hyoshi_wire::giop::{Answer, Fault, Message, Reassembler, close_connection, message_error};
use hyoshi_wire::{ByteOrder, Encoder};

use super::connection::{Connection, Intake, Serving};
use super::fair::Round;
use super::lane::{Bench, Lane};
use super::parked::Parked;
use super::replies::Sent;
use super::serve::{self, Verdict};
use crate::current;
use crate::intake::read;
use crate::orb::Shared;

/// Replies larger than this do not stay allocated.
const KEEP: usize = 1 << 20;

/// What becomes of a connection.
enum Then {
    /// Back to epoll.
    Release,
    /// Others read it.
    Given,
    /// It carries calls both ways from now on.
    Both,
    /// It is over.
    Close,
}

/// What has arrived of a connection that a thread reads.
struct Reading {
    messages: Box<Reassembler>,
    /// Whole requests that nobody runs yet, perhaps.
    parked: Parked,
    /// Octets of messages that have not come whole.
    unfinished: usize,
    /// Since when they come.
    since: Option<u64>,
}

impl Bench {
    /// Keeps no memory that one large reply needed.
    pub(super) fn tidy(&mut self) {
        if self.to.len() > KEEP {
            self.to = Encoder::new(ByteOrder::NATIVE);
        }
    }
}

impl Lane {
    /// Lets epoll tell when something comes, once.
    fn watch(&self, connection: &Arc<Connection>) -> io::Result<()> {
        if connection.watched.swap(true, Ordering::Relaxed) {
            self.poller.arm(&**connection, connection.number, false)
        } else {
            self.poller.add(&**connection, connection.number, false)
        }
    }

    /// Somebody shall read the connection.
    pub(super) fn arm(&self, connection: &Arc<Connection>) {
        if let Some(duplex) = connection.duplex.get() {
            if !duplex.is_idle() {
                self.ready.lock().push_back(connection.clone());
                self.poller.poke();
            }
            return;
        }
        // Else it is armed when its replies have gone.
        if !connection.replies.may_arm() {
            return;
        }
        if connection.intake.lock().parked.is_empty() && !connection.stream.holds_some() {
            if self.watch(connection).is_err() {
                self.close(connection);
            }
        } else {
            self.ready.lock().push_back(connection.clone());
            self.poller.poke();
        }
    }

    pub(super) fn serve(self: &Arc<Self>, orb: &Arc<Shared>, connection: Arc<Connection>, bench: &mut Bench) {
        // Somebody may just be closing it.
        let waits = || connection.duplex.get().is_some_and(|duplex| !duplex.is_idle());
        let apart = || if waits() { connection.take_apart(self.may_take()) } else { None };
        let Some(epoch) = connection.own().or_else(apart) else { return };
        self.clock();
        if let Some(duplex) = connection.duplex.get() {
            return self.carry_out(orb, &connection, duplex, epoch, bench);
        }
        let serving = Serving { lane: self.clone(), connection: connection.clone(), epoch };
        *self.hands[bench.number].lock() = Some((serving.clone(), None));
        current::serve(Some(serving));
        let intake = std::mem::take(&mut *connection.intake.lock());
        let mut reading = Reading {
            messages: intake.messages.unwrap_or_else(|| Box::new(Reassembler::new(self.limits))),
            unfinished: connection.unfinished.take().max(intake.parked.len()),
            since: intake.since,
            parked: intake.parked,
        };
        let then = self.read_and_run(orb, &connection, epoch, &mut reading, bench);
        current::serve(None);
        *self.hands[bench.number].lock() = None;
        match then {
            Then::Release if self.stopping() => {
                self.send(&connection, &close_connection(connection.talk.version()));
                self.close(&connection);
            }
            Then::Release => {
                let Reading { mut messages, parked, unfinished, since } = reading;
                messages.settle();
                let begun = messages.is_waiting();
                if begun || !parked.is_empty() {
                    if connection.unfinished.set(unfinished) > self.most_unfinished {
                        return self.close(&connection);
                    }
                    let messages = begun.then_some(messages);
                    *connection.intake.lock() = Intake { messages, since: since.filter(|_| begun), parked };
                }
                connection.release(epoch);
                self.arm(&connection);
            }
            // The start of another message was read already: the stream is lost to those who read now.
            Then::Given if reading.messages.is_waiting() => self.close(&connection),
            // The last of the requests that the end of the lane waited for.
            Then::Given if self.stopping() && !connection.is_running() && connection.own().is_some() => {
                self.end(&connection);
            }
            Then::Given => {}
            Then::Both => {
                let Reading { mut messages, parked, .. } = reading;
                messages.settle();
                let messages = messages.is_waiting().then_some(messages);
                *connection.intake.lock() = Intake { messages, since: None, parked };
                connection.release(epoch);
                self.accept_both(orb, &connection);
            }
            Then::Close => self.close(&connection),
        }
        bench.tidy();
    }

    /// The path of a request: read, run, reply, and read again.
    fn read_and_run(
        self: &Arc<Self>,
        orb: &Arc<Shared>,
        connection: &Arc<Connection>,
        epoch: u64,
        Reading { messages, parked, unfinished, since }: &mut Reading,
        bench: &mut Bench,
    ) -> Then {
        let Bench { buffer, to, number } = bench;
        let (mut wait, mut round) = (May::Never, Round::default());
        loop {
            let came = if parked.is_empty() {
                let read = read(&connection.stream, messages, buffer, wait, wait);
                if wait == May::Linger {
                    self.lingered(*number);
                }
                match read {
                    Ok((held, came)) => {
                        *unfinished += came;
                        connection.heard.store(self.seconds.load(Ordering::Relaxed), Ordering::Relaxed);
                        held
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Then::Release,
                    Err(_) => return Then::Close,
                }
            } else {
                0
            };
            let own = std::mem::take(parked);
            // The octets after a request continue from there: only those in the thread's buffer are copied.
            let park = |octets: &[u8]| if own.is_empty() { Parked::copy(octets) } else { own.last(octets.len()) };
            let mut octets = if own.is_empty() { &buffer[..came] } else { own.octets() };
            let mut ran = false;
            loop {
                let begun = messages.is_waiting();
                if ran && !begun {
                    // Nothing is left of what came before.
                    (*unfinished, *since) = (octets.len(), None);
                }
                if ran && !octets.is_empty() && self.is_over(&round) {
                    *parked = park(octets);
                    return Then::Release;
                }
                let received = match messages.next(&mut octets) {
                    Ok(Some(received)) => received,
                    Ok(None) => break,
                    Err(fault) => {
                        self.tell(connection, &fault);
                        return Then::Close;
                    }
                };
                if connection.is_gone() && received.wants_reply() {
                    ran = true;
                    continue;
                }
                let mut decoded = self.claims.map(|claims| (claims, serve::decode(&connection.talk, &received)));
                if let Some((claims, Ok(Message::Request(request)))) = &decoded
                    && self.is_offer(*claims, connection, request)
                {
                    // Once more from this request on, by who reads it then.
                    *parked = Parked::copy(&[received.octets(), octets].concat());
                    return Then::Both;
                }
                ran = true;
                // Behind a call that waits for its reply comes another message: the client does not wait for it.
                if !octets.is_empty() {
                    round.begin();
                    if received.wants_reply() {
                        connection.shared.store(true, Ordering::Relaxed);
                        connection.intake.lock().parked = park(std::mem::take(&mut octets));
                    }
                }
                connection.run(epoch, octets.is_empty() && !begun);
                let shared = connection.shared.load(Ordering::Relaxed);
                let began = shared.then(Instant::now);
                if shared
                    && !connection.pipelining.is_brief()
                    && self.idle.load(Ordering::Relaxed) > 0
                    && connection.give(epoch, self.may_run())
                {
                    self.arm(connection);
                }
                let mut send = |octets: &[u8]| self.send(connection, octets);
                let verdict = match &mut decoded {
                    None => serve::message(orb, &connection.talk, &received, to, &mut send),
                    Some((_, decoded)) => serve::decoded(orb, &connection.talk, &received, decoded, to, &mut send),
                };
                let sent = to.is_empty() || self.send(connection, to.bytes());
                if verdict == Verdict::Close || !sent {
                    return Then::Close;
                }
                if let Some(began) = began {
                    connection.pipelining.took(began.elapsed());
                }
                if !connection.ran(epoch) {
                    return Then::Given;
                }
                if octets.is_empty() && shared {
                    *parked = std::mem::take(&mut connection.intake.lock().parked);
                    if !parked.is_empty() {
                        break;
                    }
                }
            }
            if ran && !messages.is_waiting() {
                (*unfinished, *since) = (parked.len(), None);
            } else if messages.is_waiting() {
                let now = self.seconds.load(Ordering::Relaxed);
                if self.pace.is_too_slow(*since.get_or_insert(now), now, *unfinished) {
                    return Then::Close;
                }
            }
            let behind = connection.replies.is_behind();
            if !parked.is_empty() {
                // Who does not take replies causes no more of them.
                if behind || self.is_over(&round) {
                    return Then::Release;
                }
                continue;
            }
            if behind || !self.may_linger(*number) {
                return Then::Release;
            }
            wait = May::Linger;
            round = Round::default();
        }
    }

    /// True if other connections are to have their turn.
    fn is_over(&self, round: &Round) -> bool {
        self.idle.load(Ordering::Relaxed) == 0 && round.is_over()
    }

    /// False if the connection is over.
    #[inline]
    pub(super) fn send(&self, connection: &Arc<Connection>, octets: &[u8]) -> bool {
        let now = self.seconds.load(Ordering::Relaxed);
        // Over a connection that carries calls both ways others send, too, that must not wait.
        let patience = || if connection.duplex.get().is_some() { May::Never } else { May::Wait };
        match connection.replies.send(&connection.stream, octets, now, patience) {
            Ok(Sent::All) => true,
            Ok(Sent::Part { first }) => self.put_behind(connection, first),
            Err(_) => false,
        }
    }

    pub(super) fn tell(&self, connection: &Arc<Connection>, fault: &Fault) {
        if let Answer::MessageError(version) = fault.answer(connection.talk.version()) {
            self.send(connection, &message_error(version));
        }
    }
}
