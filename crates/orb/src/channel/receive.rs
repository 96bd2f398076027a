//! The loop of each thread that reads a socket: octets in, whole messages out, in turns of bounded work. It has no
//! socket and no clock: its [`Receiver`] reads, and handles the messages.
//!
//! ```text
//!              read                   next: a whole message              next: nothing is left
//!   Empty ─────────────► Octets held ◄─────────────────────► message   ───────────────────────► Empty
//!     │ nothing arrives     │ leave, or the budget is used up      │ it stops
//!     ▼                     ▼                                      ▼
//!   Idle                 Stopped, Spent                         Stopped
//! ```

use std::io;
use std::ops::ControlFlow;

use hyoshi_wire::giop::Fault;

use super::Incoming;
use super::incoming::{Parked, Whole};

/// Reads that may complete a message: a peer that sends few octets at a time must not keep the thread.
const READS: usize = 8;

/// One reader of a socket.
pub(crate) trait Receiver {
    /// Why it stops, although more may arrive.
    type Stop;

    /// Reads octets, and returns their number; 0 once the peer has ended. Fails with [`io::ErrorKind::WouldBlock`] if
    /// none arrive in time. `more` if they may complete the message of a read just before.
    fn read(&mut self, place: &mut [u8], more: bool) -> io::Result<usize>;

    /// The reads are over; so many octets have arrived.
    fn have_read(&mut self, octets: usize) {
        let _ = octets;
    }

    /// Whether it stops before the next of the octets that have arrived. `first` before the first message of a read.
    fn leave(&mut self, first: bool) -> Option<Self::Stop> {
        let _ = first;
        None
    }

    /// A whole message. Goes on with the octets after it, or with those returned instead.
    fn message(&mut self, whole: Whole<'_>) -> ControlFlow<Self::Stop, Option<Parked>>;

    /// All whole messages are handled: whether it stops before the next read.
    fn handled_all(&mut self, incoming: &mut Incoming) -> Option<Self::Stop> {
        let _ = incoming;
        None
    }
}

/// The work of one turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadBudget {
    pub(crate) reads: usize,
    pub(crate) messages: usize,
    /// At least one message of each read is handled, however large.
    pub(crate) octets: usize,
}

impl ReadBudget {
    pub(crate) fn unbounded() -> Self {
        ReadBudget { reads: usize::MAX, messages: usize::MAX, octets: usize::MAX }
    }

    pub(crate) fn is_spent(self) -> bool {
        self.reads == 0 || self.messages == 0 || self.octets == 0
    }
}

/// How a turn ends.
#[derive(Debug)]
pub(crate) enum TurnEnd<S> {
    /// Nothing more has arrived in time.
    Idle,
    /// The budget is used up, and more may have arrived.
    Spent,
    Stopped(S),
}

/// Why nothing more can be received.
#[derive(Debug)]
pub(crate) enum ReceiveError {
    /// The peer has ended.
    Ended,
    /// The peer uses TLS.
    Tls,
    Socket(io::Error),
    Stream(Fault),
}

/// Receives until the turn ends.
#[inline]
pub(crate) fn receive<R: Receiver>(
    receiver: &mut R,
    incoming: &mut Incoming,
    buffer: &mut [u8],
    budget: &mut ReadBudget,
) -> Result<TurnEnd<R::Stop>, ReceiveError> {
    loop {
        if !incoming.holds_some() {
            let read = fill(receiver, incoming, buffer);
            let octets = *read.as_ref().unwrap_or(&0);
            receiver.have_read(octets);
            budget.octets = budget.octets.saturating_sub(octets);
            match read {
                Ok(0) => return Err(ReceiveError::Ended),
                Ok(_) if incoming.is_tls(buffer) => return Err(ReceiveError::Tls),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(TurnEnd::Idle),
                Err(error) => return Err(ReceiveError::Socket(error)),
            }
        }
        let mut first = true;
        loop {
            if incoming.holds_some() {
                if !first && budget.is_spent() {
                    return Ok(TurnEnd::Spent);
                }
                if let Some(stop) = receiver.leave(first) {
                    return Ok(TurnEnd::Stopped(stop));
                }
            }
            let Some(whole) = incoming.next(buffer).map_err(ReceiveError::Stream)? else { break };
            first = false;
            budget.messages = budget.messages.saturating_sub(1);
            match receiver.message(whole) {
                ControlFlow::Continue(None) => {}
                ControlFlow::Continue(Some(parked)) => incoming.resume(parked),
                ControlFlow::Break(stop) => return Ok(TurnEnd::Stopped(stop)),
            }
        }
        if let Some(stop) = receiver.handled_all(incoming) {
            return Ok(TurnEnd::Stopped(stop));
        }
        budget.reads = budget.reads.saturating_sub(1);
        if budget.is_spent() {
            return Ok(TurnEnd::Spent);
        }
    }
}

/// Reads what has arrived, until the first message in the buffer is whole.
#[inline]
fn fill<R: Receiver>(receiver: &mut R, incoming: &mut Incoming, buffer: &mut [u8]) -> io::Result<usize> {
    let mut all = receiver.read(incoming.place(buffer), false)?;
    if all > 0 {
        incoming.came(all);
    }
    for _ in 0..READS {
        if !incoming.is_worth_reading_on(buffer) {
            break;
        }
        match receiver.read(incoming.place(buffer), true) {
            Ok(0) => break,
            Ok(count) => {
                incoming.came(count);
                all += count;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}
