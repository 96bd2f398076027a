//! What a thread of a lane does with a connection: read, run, reply.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use hyoshi_os::May;
use hyoshi_wire::giop::{Answer, Fault, Message, close_connection, message_error};
use hyoshi_wire::{ByteOrder, Encoder};

use super::connection::Connection;
use super::fair::Round;
use super::order::Handed;
use super::serve::{self, AfterMessage};
use super::{Lane, Worker};
use crate::channel::{self, Incoming, Whole};
use crate::shared::Shared;
use crate::socket::read;

/// Replies larger than this do not stay allocated.
const KEEP: usize = 1 << 20;

/// What becomes of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AfterRead {
    /// Back to epoll.
    Release,
    /// To be read on when there is a place for its next request.
    Wait,
    /// Others read it.
    Given,
    /// It carries calls both ways from now on.
    Both,
    /// It is over.
    Close,
}

impl Worker {
    /// Keeps no memory that one large reply needed.
    pub(super) fn tidy(&mut self) {
        if self.to.len() > KEEP {
            self.to = Encoder::new(ByteOrder::NATIVE);
        }
    }
}

impl Lane {
    /// Lets a thread read the connection.
    pub(super) fn arm(&self, connection: &Arc<Connection>) {
        if let Some(duplex) = connection.duplex.get() {
            if !duplex.is_idle() {
                self.ready.lock().push_back(connection.clone());
                self.poller.poke();
            }
            return;
        }
        // Otherwise it is armed when its replies are sent.
        if !connection.socket.outbox.may_arm() {
            return;
        }
        let held = connection.incoming.lock().as_ref().is_some_and(Incoming::holds_some);
        if !held && !connection.link().holds_some() {
            if connection.watch(&self.poller).is_err() {
                self.close(connection);
            }
        } else {
            self.ready.lock().push_back(connection.clone());
            self.poller.poke();
        }
    }

    pub(super) fn serve(self: &Arc<Self>, orb: &Arc<Shared>, connection: Arc<Connection>, worker: &mut Worker) {
        // Another thread may just close it.
        let waits = || connection.duplex.get().is_some_and(|duplex| !duplex.is_idle());
        let apart = || if waits() { connection.take_apart(self.may_take()) } else { None };
        let Some(epoch) = connection.own().or_else(apart) else { return };
        self.clock();
        if let Some(duplex) = connection.duplex.get() {
            return self.run_queued(orb, &connection, duplex, epoch, worker);
        }
        self.begin_work(worker.number, &connection, epoch);
        let mut incoming = connection.incoming.lock().take().unwrap_or_else(|| Incoming::new(self.limits));
        connection.unfinished.take();
        let then = self.read_and_run(orb, &connection, epoch, &mut incoming, worker);
        self.end_work(worker.number);
        match then {
            AfterRead::Release | AfterRead::Wait if self.stopping() && !connection.is_running() => {
                self.send(&connection, &close_connection(connection.socket.terms.version()));
                self.close(&connection);
            }
            AfterRead::Release | AfterRead::Wait => {
                incoming.park(&worker.buffer);
                if then == AfterRead::Wait {
                    incoming.pause();
                }
                let held = incoming.held();
                if held > 0 {
                    if connection.unfinished.set(held) > self.most_unfinished {
                        return self.close(&connection);
                    }
                    *connection.incoming.lock() = Some(incoming);
                }
                connection.release(epoch);
                match then {
                    AfterRead::Wait => self.wait_for_place(&connection),
                    _ => self.arm(&connection),
                }
            }
            // This thread has read the start of another message: the threads that read now cannot understand the
            // stream.
            AfterRead::Given if incoming.has_begun() => self.close(&connection),
            // The last of the requests that the end of the lane waited for.
            AfterRead::Given if self.stopping() && !connection.is_running() && connection.own().is_some() => {
                self.end(&connection);
            }
            AfterRead::Given => {}
            AfterRead::Both => {
                incoming.park(&worker.buffer);
                incoming.pause();
                *connection.incoming.lock() = Some(incoming);
                connection.release(epoch);
                self.accept_both(orb, &connection);
            }
            AfterRead::Close => self.close(&connection),
        }
        worker.tidy();
    }

    /// The path of a request: read, run, reply, and read again.
    fn read_and_run(
        self: &Arc<Self>,
        orb: &Arc<Shared>,
        connection: &Arc<Connection>,
        epoch: u64,
        incoming: &mut Incoming,
        worker: &mut Worker,
    ) -> AfterRead {
        let Worker { buffer, to, number, left } = worker;
        let (mut wait, mut round) = (May::Never, Round::default());
        loop {
            if !incoming.holds_some() {
                let read = read(connection.link(), incoming, buffer, wait, wait);
                if wait == May::Linger {
                    self.lingered(*number);
                }
                match read {
                    Ok(count) => {
                        left.octets = left.octets.saturating_sub(count);
                        connection.heard.store(self.now.load(Ordering::Relaxed), Ordering::Relaxed);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return AfterRead::Release,
                    Err(_) => return AfterRead::Close,
                }
            }
            let mut ran = false;
            loop {
                // A client that does not read replies gets no further requests served.
                let is_over = || connection.socket.outbox.is_behind() || self.is_over(&round) || left.is_over();
                if ran && incoming.holds_some() && is_over() {
                    return AfterRead::Release;
                }
                let begun = incoming.has_begun();
                let Whole { received, rest } = match incoming.next(buffer) {
                    Ok(Some(whole)) => whole,
                    Ok(None) => break,
                    Err(fault) => {
                        self.report(connection, &fault);
                        return AfterRead::Close;
                    }
                };
                ran = true;
                left.messages = left.messages.saturating_sub(1);
                if connection.is_gone() && received.wants_reply() {
                    continue;
                }
                let looks = self.claims.is_some() || self.ordered.is_some();
                let mut decoded = looks.then(|| serve::decode(&connection.socket.terms, &received));
                if let (Some(claims), Some(Ok(Message::Request(request)))) = (self.claims, &decoded)
                    && self.is_offer(claims, connection, request)
                {
                    // The next reader begins with this request.
                    let again = rest.park_with(&received);
                    incoming.resume(again);
                    return AfterRead::Both;
                }
                if let Some(Ok(Message::Request(request))) = &mut decoded {
                    match self.hand_over(orb, connection, &received, request, to) {
                        Handed::Over => {
                            round.begin();
                            continue;
                        }
                        Handed::Unbound => {}
                        Handed::Full => {
                            let again = rest.park_with(&received);
                            incoming.resume(again);
                            return AfterRead::Wait;
                        }
                    }
                }
                // Another message follows: the client does not wait for the reply to this call.
                let mut handed = rest.is_empty();
                if !handed {
                    round.begin();
                    if received.wants_reply() {
                        connection.pipelining.begin();
                        let mut others = Incoming::new(self.limits);
                        others.resume(rest.park());
                        *connection.incoming.lock() = Some(others);
                        handed = true;
                    }
                }
                connection.run(epoch, handed && !begun);
                let shared = connection.pipelining.is_seen();
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
                    None => serve::message(orb, &connection.socket.terms, &received, to, &mut send),
                    Some(decoded) => serve::decoded(orb, &connection.socket.terms, &received, decoded, to, &mut send),
                };
                let sent = to.is_empty() || self.send(connection, to.bytes());
                if verdict == AfterMessage::Close || !sent {
                    return AfterRead::Close;
                }
                if let Some(began) = began {
                    connection.pipelining.took(began.elapsed());
                }
                if !connection.ran(epoch) {
                    return AfterRead::Given;
                }
                if handed && shared {
                    // Octets that no other thread has taken meanwhile.
                    let others = connection.incoming.lock().take();
                    others.into_iter().for_each(|others| incoming.go_on_with(others));
                }
            }
            let now = self.now.load(Ordering::Relaxed);
            incoming.await_rest(now);
            if incoming.deadline(now, self.pace).is_some_and(|deadline| now > deadline) {
                return AfterRead::Close;
            }
            if connection.socket.outbox.is_behind() || !self.may_linger(*number) {
                return AfterRead::Release;
            }
            wait = May::Linger;
            round = Round::default();
        }
    }

    /// True if other connections have their turn.
    fn is_over(&self, round: &Round) -> bool {
        self.idle.load(Ordering::Relaxed) == 0 && round.is_over()
    }

    /// False if the connection is over.
    #[inline]
    pub(super) fn send(&self, connection: &Arc<Connection>, octets: &[u8]) -> bool {
        // Over a connection that carries calls both ways others send, too, that must not wait.
        let patience = || if connection.duplex.get().is_some() { May::Never } else { self.patience };
        let mut sending = connection.socket.outbox.lock();
        if sending.reply(octets, channel::now, |octets| connection.link().write(octets, patience())).is_err() {
            return false;
        }
        if !sending.queue.is_behind() {
            return true;
        }
        let first = sending.list();
        drop(sending);
        self.put_behind(connection, first)
    }

    pub(super) fn report(&self, connection: &Arc<Connection>, fault: &Fault) {
        if let Answer::MessageError(version) = fault.answer(connection.socket.terms.version()) {
            self.send(connection, &message_error(version));
        }
    }
}
