//! What a thread of a lane does with a connection: read, run, reply.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use hyoshi_os::May;
use hyoshi_wire::giop::{Answer, Fault, Message, Received, close_connection, message_error};
use hyoshi_wire::{ByteOrder, DecodeError, Encoder};

use super::connection::Connection;
use super::fair::Round;
use super::order::Handed;
use super::serve::{self, AfterMessage};
use super::{Lane, Worker};
use crate::channel::{self, Incoming, Parked, ReceiveError, Receiver, TurnEnd, Whole, receive};
use crate::rt;
use crate::rt::threads::{self, QueuedPart};
use crate::shared::Shared;

/// Replies larger than this do not stay allocated.
const KEEP: usize = 1 << 20;

/// What becomes of a connection.
enum AfterRead {
    /// Back to epoll.
    Release,
    /// To be read on when there is a place for its next request, which these octets begin with.
    Wait(Parked),
    /// Others read it.
    Given,
    /// It carries calls both ways from now on, from the request that these octets begin with.
    Both(Parked),
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
        let Worker { buffer, to, number, left } = &mut *worker;
        let (number, wait, round) = (*number, May::Never, Round::default());
        let runs = false;
        let mut reading = Reading { lane: self, orb, connection: &connection, epoch, to, number, wait, round, runs };
        let received = receive(&mut reading, &mut incoming, buffer, left);
        reading.end_run();
        let then = match received {
            Ok(TurnEnd::Idle | TurnEnd::Spent) => AfterRead::Release,
            Ok(TurnEnd::Stopped(after)) => after,
            Err(error) => {
                if let ReceiveError::Stream(fault) = &error {
                    self.report(&connection, fault);
                }
                AfterRead::Close
            }
        };
        self.end_work(worker.number);
        match then {
            AfterRead::Release | AfterRead::Wait(_) if self.stopping() && !connection.is_running() => {
                self.send(&connection, &close_connection(connection.socket.terms.version()));
                self.close(&connection);
            }
            AfterRead::Release => {
                if self.release(&connection, epoch, incoming, &worker.buffer) {
                    self.arm(&connection);
                }
            }
            AfterRead::Wait(next) => {
                incoming.resume(next);
                incoming.pause();
                if self.release(&connection, epoch, incoming, &worker.buffer) {
                    self.wait_for_place(&connection);
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
            AfterRead::Both(next) => {
                incoming.resume(next);
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

    /// Whether a connection may hold what it has set in [`Connection::unfinished`]. If the lane holds too much, it closes
    /// connections of the client that holds the most: those with the most first, until it has some room again.
    pub(super) fn may_hold(&self, connection: &Arc<Connection>) -> bool {
        let held = || self.table.sums.unfinished.load(Ordering::Relaxed);
        if held() <= self.most_unfinished {
            return true;
        }
        while held() > self.most_unfinished {
            let heaviest = self.table.heaviest();
            if heaviest.is_empty() {
                return false;
            }
            for one in heaviest {
                if held() <= self.most_unfinished - self.most_unfinished / 8 {
                    break;
                }
                if Arc::ptr_eq(&one, connection) {
                    return false;
                }
                // A thread that runs its request, or reads it, finds it closed.
                self.close(&one);
                *one.incoming.lock() = None;
                one.unfinished.take();
            }
        }
        true
    }

    /// Back to Armed, with what is incomplete or not handled. False if it is closed, because the lane holds too much.
    pub(super) fn release(
        &self,
        connection: &Arc<Connection>,
        epoch: u64,
        mut incoming: Incoming,
        buffer: &[u8],
    ) -> bool {
        incoming.park(buffer);
        let held = incoming.held();
        if held > 0 {
            connection.unfinished.set(held);
            if !self.may_hold(connection) {
                self.close(connection);
                return false;
            }
            *connection.incoming.lock() = Some(incoming);
        }
        connection.release(epoch);
        true
    }

    /// Carries out a message, which may be decoded already, and replies with `send`. False if the connection is over.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "two callers, and each part is borrowed separately")]
    pub(super) fn run_one(
        &self,
        orb: &Arc<Shared>,
        connection: &Arc<Connection>,
        received: &Received<'_>,
        decoded: Option<&mut Result<Message<'_>, DecodeError>>,
        thread: Option<QueuedPart>,
        to: &mut Encoder,
        send: impl FnOnce(&Self, &Arc<Connection>, &[u8]) -> bool,
    ) -> bool {
        let terms = &connection.socket.terms;
        let mut early = |octets: &[u8]| self.send(connection, octets);
        let verdict = match decoded {
            None => serve::message(orb, terms, received, thread, to, &mut early),
            Some(decoded) => serve::decoded(orb, terms, received, decoded, thread, to, &mut early),
        };
        let sent = to.is_empty() || send(self, connection, to.bytes());
        // Only now: the reply is sent at the request's priority.
        rt::current::go_home();
        sent && verdict == AfterMessage::Go
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

/// The distributable thread of a request that was cancelled before it could run; `None` if it has none.
#[cold]
fn queue_cancelled(connection: &Arc<Connection>, received: &Received<'_>) -> Option<QueuedPart> {
    let Ok(Message::Request(request)) = serve::decode(&connection.socket.terms, received) else { return None };
    // A refusal is repeated when it runs.
    let queued = threads::queue(&request, connection.clone()).ok().flatten();
    queued.inspect(QueuedPart::cancel)
}

/// A thread that reads a connection and runs its requests: read, run, reply, and read again.
struct Reading<'a> {
    lane: &'a Arc<Lane>,
    orb: &'a Arc<Shared>,
    connection: &'a Arc<Connection>,
    epoch: u64,
    to: &'a mut Encoder,
    number: usize,
    wait: May,
    round: Round,
    /// Requests that are not free count as one that runs, as long as others follow in the same read: counting each
    /// takes two atomic operations.
    runs: bool,
}

impl Reading<'_> {
    fn end_run(&mut self) {
        if std::mem::take(&mut self.runs) {
            self.connection.end_run();
        }
    }
}

impl Receiver for Reading<'_> {
    type Stop = AfterRead;

    #[inline]
    fn read(&mut self, place: &mut [u8], more: bool) -> io::Result<usize> {
        self.connection.link().read(place, if more { May::Never } else { self.wait })
    }

    #[inline]
    fn have_read(&mut self, octets: usize) {
        if self.wait == May::Linger {
            self.lane.lingered(self.number);
        }
        if octets > 0 {
            self.connection.heard.store(self.lane.now.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// A client that does not read replies gets no further requests served; and other connections have their turn.
    #[inline]
    fn leave(&mut self, first: bool) -> Option<AfterRead> {
        let others_wait = || self.lane.idle.load(Ordering::Relaxed) == 0 || self.lane.is_first_in_first_out();
        let turn_is_over = || others_wait() && self.round.is_over();
        (!first && (self.connection.socket.outbox.is_behind() || turn_is_over())).then_some(AfterRead::Release)
    }

    #[inline]
    fn message(&mut self, Whole { received, begun, rest }: Whole<'_>) -> ControlFlow<AfterRead, Option<Parked>> {
        let Reading { lane, orb, connection, epoch, .. } = *self;
        let to = &mut *self.to;
        if connection.is_gone() && received.wants_reply() {
            return ControlFlow::Continue(None);
        }
        let looks = lane.claims.is_some() || lane.ordered.is_some();
        let mut decoded = looks.then(|| serve::decode(&connection.socket.terms, &received));
        if let Some(Ok(Message::Request(request))) = &mut decoded {
            if lane.claims.is_some_and(|claims| lane.is_offer(claims, connection, request)) {
                // The next reader begins with this request.
                return ControlFlow::Break(AfterRead::Both(rest.park_with(&received)));
            }
            match lane.hand_over(orb, connection, &received, request, to) {
                Handed::Over => {
                    self.round.begin();
                    return ControlFlow::Continue(None);
                }
                Handed::Unbound => {}
                Handed::Full => return ControlFlow::Break(AfterRead::Wait(rest.park_with(&received))),
            }
        }
        // If another message follows, the client does not wait for the reply to this call.
        let (mut handed, mut thread) = (None, None);
        if rest.cancels(received.id()) {
            thread = queue_cancelled(connection, &received);
        }
        if !rest.is_empty() {
            self.round.begin();
            if received.wants_reply() {
                connection.pipelining.begin();
                let parked = rest.park();
                *connection.incoming.lock() = Some(Incoming::parked(lane.limits, parked.clone()));
                handed = Some(parked);
            }
        }
        let free = (handed.is_some() || rest.is_empty()) && !begun;
        match std::mem::replace(&mut self.runs, !free) {
            true => connection.run_next(epoch, free),
            false => connection.run(epoch, free),
        }
        let began = connection.pipelining.is_seen().then(Instant::now);
        if began.is_some()
            && !connection.pipelining.is_brief()
            && lane.idle.load(Ordering::Relaxed) > 0
            && connection.give(epoch, lane.may_run())
        {
            lane.arm(connection);
        }
        if !lane.run_one(orb, connection, &received, decoded.as_mut(), thread, to, Lane::send) {
            return ControlFlow::Break(AfterRead::Close);
        }
        if let Some(began) = began {
            connection.pipelining.took(began.elapsed());
        }
        if free && !connection.ran(epoch) {
            return ControlFlow::Break(AfterRead::Given);
        }
        if handed.is_some() {
            // No other thread has taken them.
            *connection.incoming.lock() = None;
        }
        ControlFlow::Continue(handed)
    }

    #[inline]
    fn handled_all(&mut self, incoming: &mut Incoming) -> Option<AfterRead> {
        let (lane, now) = (self.lane, self.lane.now.load(Ordering::Relaxed));
        self.end_run();
        incoming.await_rest(now);
        if incoming.deadline(now, lane.pace).is_some_and(|deadline| now > deadline) {
            return Some(AfterRead::Close);
        }
        if self.connection.socket.outbox.is_behind() || !lane.may_linger(self.number) {
            return Some(AfterRead::Release);
        }
        (self.wait, self.round) = (May::Linger, Round::default());
        None
    }
}
