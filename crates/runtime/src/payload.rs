//! The bytes that a job hands to the jobs it triggers: written once, shared by all who read them,
//! and used again when the last of them is done. Nothing is copied after `emit`, and nothing is
//! allocated after start.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use hyoshi_os::PiMutex;
use hyoshi_trace::Ticket;

/// What one job emitted.
#[derive(Debug)]
pub(crate) struct Payload {
    length: usize,
    bytes: Box<[u8]>,
}

impl Payload {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The latest that an operation emitted, for those that read it.
pub(crate) type Latest = PiMutex<Option<Arc<Payload>>>;

/// Where an operation's jobs put what they emit.
#[derive(Debug, Default)]
pub(crate) struct Outlet {
    /// One of them is free while fewer jobs than there are hold one.
    pool: Vec<Arc<Payload>>,
    next: usize,
    emitted: Option<Arc<Payload>>,
}

/// Why a payload was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmitError {
    /// It is longer than the operation's `payload` allows.
    TooLong {
        /// Its length.
        bytes: usize,
        /// What the system file allows.
        most: usize,
    },
    /// All buffers are with jobs that have not ended: the receivers' queues hold more than they may.
    NoBuffer,
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EmitError::TooLong { bytes, most: 0 } => {
                write!(f, "{bytes} bytes emitted by an operation without `payload`: say how many it may hand on")
            }
            EmitError::TooLong { bytes, most } => {
                write!(f, "{bytes} bytes emitted where `payload` allows {most}: raise it in the system file")
            }
            EmitError::NoBuffer => f.write_str("every buffer is still with a job that has not ended"),
        }
    }
}

impl std::error::Error for EmitError {}

impl Outlet {
    /// `buffers` buffers of `bytes` bytes.
    pub fn new(bytes: usize, buffers: usize) -> Self {
        let buffer = || Arc::new(Payload { length: 0, bytes: vec![0; bytes].into_boxed_slice() });
        let pool = if bytes == 0 { Vec::new() } else { (0..buffers.max(1)).map(|_| buffer()).collect() };
        Outlet { pool, next: 0, emitted: None }
    }

    /// Takes over `bytes` as what the present job hands on; the last call counts.
    pub fn emit(&mut self, bytes: &[u8]) -> Result<(), EmitError> {
        let most = self.pool.first().map_or(0, |payload| payload.bytes.len());
        if bytes.len() > most {
            return Err(EmitError::TooLong { bytes: bytes.len(), most });
        }
        self.emitted = None;
        for _ in 0..self.pool.len() {
            let place = self.next;
            self.next = (self.next + 1) % self.pool.len();
            // Nobody reads it any more: only the pool holds it.
            if let Some(payload) = Arc::get_mut(&mut self.pool[place]) {
                payload.bytes[..bytes.len()].copy_from_slice(bytes);
                payload.length = bytes.len();
                self.emitted = Some(self.pool[place].clone());
                return Ok(());
            }
        }
        Err(EmitError::NoBuffer)
    }

    /// What the present job emitted so far.
    pub fn emitted(&self) -> Option<&Arc<Payload>> {
        self.emitted.as_ref()
    }

    /// What the present job emitted, if it did.
    pub fn take(&mut self) -> Option<Arc<Payload>> {
        self.emitted.take()
    }
}

/// The content of a ticket.
#[derive(Debug)]
enum Held {
    /// A job's payload.
    Data(Arc<Payload>),
    /// A request's number, assigned by its reader, and whether a job has it.
    Call { call: u32, taken: bool },
}

/// Payloads and requests by ticket: from the completion that emitted one until the dispatcher has returned its ticket as often as it was
/// handed on.
#[derive(Debug)]
pub(crate) struct Payloads {
    entries: Vec<Option<(Held, u32)>>,
    free: Vec<Ticket>,
}

impl Payloads {
    /// Room for `most` payloads.
    pub fn new(most: usize) -> Self {
        let tickets = (1..=most as u32).rev().filter_map(NonZeroU32::new);
        Payloads { entries: (0..most).map(|_| None).collect(), free: tickets.map(Ticket).collect() }
    }

    /// A ticket for a payload, held once.
    pub fn insert(&mut self, payload: Option<Arc<Payload>>) -> Option<Ticket> {
        self.hold_once(Held::Data(payload?))
    }

    /// A ticket for a request, held once.
    pub fn insert_call(&mut self, call: u32) -> Option<Ticket> {
        self.hold_once(Held::Call { call, taken: false })
    }

    fn hold_once(&mut self, held: Held) -> Option<Ticket> {
        let ticket = self.free.pop()?;
        *self.entry(ticket) = Some((held, 1));
        Some(ticket)
    }

    /// The request of a job that begins; once.
    pub fn take_call(&mut self, ticket: Ticket) -> Option<u32> {
        match self.entry(ticket) {
            Some((Held::Call { call, taken }, _)) if !*taken => {
                *taken = true;
                Some(*call)
            }
            _ => None,
        }
    }

    /// Adds `times` references.
    pub fn hold(&mut self, ticket: Option<Ticket>, times: u32) {
        if let Some(Some((_, holders))) = ticket.map(|ticket| self.entry(ticket)) {
            *holders += times;
        }
    }

    /// Drops one reference; the last one frees the payload. Returns the request if no job took it.
    pub fn release(&mut self, ticket: Ticket) -> Option<u32> {
        let entry = self.entry(ticket);
        let (held, holders) = entry.as_mut()?;
        *holders -= 1;
        if *holders > 0 {
            return None;
        }
        let unserved = match held {
            Held::Call { call, taken: false } => Some(*call),
            _ => None,
        };
        *entry = None;
        self.free.push(ticket);
        unserved
    }

    /// Removes and returns the requests that no job took.
    pub fn unserved(&mut self) -> impl Iterator<Item = u32> + '_ {
        self.entries.iter_mut().flatten().filter_map(|(held, _)| match held {
            Held::Call { call, taken } => (!std::mem::replace(taken, true)).then_some(*call),
            Held::Data(_) => None,
        })
    }

    pub fn get(&self, ticket: Option<Ticket>) -> Option<Arc<Payload>> {
        let entry = &self.entries[ticket?.0.get() as usize - 1];
        match entry {
            Some((Held::Data(payload), _)) => Some(payload.clone()),
            _ => None,
        }
    }

    fn entry(&mut self, ticket: Ticket) -> &mut Option<(Held, u32)> {
        &mut self.entries[ticket.0.get() as usize - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_stays_until_its_last_holder_is_gone() {
        let mut outlet = Outlet::new(4, 2);
        let mut payloads = Payloads::new(1);
        outlet.emit(b"one").unwrap();
        let ticket = payloads.insert(outlet.take());
        assert_eq!(payloads.insert(outlet.take()), None, "nothing was emitted");
        payloads.hold(ticket, 1);
        payloads.release(ticket.unwrap());
        assert_eq!(payloads.get(ticket).unwrap().bytes(), b"one");
        outlet.emit(b"two").unwrap();
        assert_eq!(payloads.insert(outlet.take()), None, "there is no room");
        payloads.release(ticket.unwrap());
        assert!(payloads.get(ticket).is_none());
        outlet.emit(b"two").unwrap();
        assert_eq!(payloads.insert(outlet.take()), ticket);
    }

    #[test]
    fn a_buffer_is_used_again_only_when_nobody_reads_it() {
        let mut outlet = Outlet::new(4, 2);
        outlet.emit(b"one").unwrap();
        let first = outlet.take().unwrap();
        outlet.emit(b"two").unwrap();
        let second = outlet.take().unwrap();
        assert_eq!(outlet.emit(b"no"), Err(EmitError::NoBuffer));
        drop(first);
        outlet.emit(b"four").unwrap();
        assert_eq!((second.bytes(), outlet.take().unwrap().bytes()), (&b"two"[..], &b"four"[..]));
    }

    #[test]
    fn the_last_emission_of_a_job_counts_and_takes_no_second_buffer() {
        let mut outlet = Outlet::new(1, 1);
        outlet.emit(b"a").unwrap();
        outlet.emit(b"b").unwrap();
        assert_eq!(outlet.take().unwrap().bytes(), b"b");
        assert!(outlet.take().is_none());
    }

    #[test]
    fn what_is_too_long_is_refused_with_the_limit() {
        let error = Outlet::new(2, 1).emit(b"abc").unwrap_err();
        assert_eq!(error, EmitError::TooLong { bytes: 3, most: 2 });
        assert!(Outlet::new(0, 3).emit(b"x").unwrap_err().to_string().contains("without `payload`"));
    }
}
