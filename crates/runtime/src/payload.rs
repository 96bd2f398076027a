//! Payloads of jobs for the jobs that they trigger: written once, shared by all readers, and reused after the last one.
//! Nothing is copied after `emit`, and nothing is allocated after the start.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use hyoshi_trace::Ticket;

/// The payload of one job.
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

/// The payload buffers of an operation's jobs.
#[derive(Debug, Default)]
pub(crate) struct PayloadBuffers {
    /// One of them is free if fewer jobs than buffers hold one.
    pool: Vec<Arc<Payload>>,
    next: usize,
    emitted: Option<Arc<Payload>>,
}

/// The reason why a payload was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmitError {
    /// It exceeds the operation's `payload`.
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit of the system file.
        most: usize,
    },
    /// Jobs that have not ended hold all buffers: more than the receivers' queues permit.
    NoBuffer,
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EmitError::TooLong { bytes, most: 0 } => {
                write!(f, "an operation without `payload` emitted {bytes} bytes: declare `payload` in the system file")
            }
            EmitError::TooLong { bytes, most } => {
                write!(f, "emitted {bytes} bytes, but `payload` allows {most}: raise it in the system file")
            }
            EmitError::NoBuffer => f.write_str("no payload buffer is free: jobs that have not ended hold all of them"),
        }
    }
}

impl std::error::Error for EmitError {}

impl PayloadBuffers {
    /// Allocates `buffers` buffers of `bytes` bytes.
    pub fn new(bytes: usize, buffers: usize) -> Self {
        let buffer = || Arc::new(Payload { length: 0, bytes: vec![0; bytes].into_boxed_slice() });
        let pool = if bytes == 0 { Vec::new() } else { (0..buffers.max(1)).map(|_| buffer()).collect() };
        PayloadBuffers { pool, next: 0, emitted: None }
    }

    /// Copies `bytes` as the payload of the current job. The last call counts.
    pub fn emit(&mut self, bytes: &[u8]) -> Result<(), EmitError> {
        let most = self.pool.first().map_or(0, |payload| payload.bytes.len());
        if bytes.len() > most {
            return Err(EmitError::TooLong { bytes: bytes.len(), most });
        }
        self.emitted = None;
        for _ in 0..self.pool.len() {
            let index = self.next;
            self.next = (self.next + 1) % self.pool.len();
            // Only the pool holds it, so no job reads it.
            if let Some(payload) = Arc::get_mut(&mut self.pool[index]) {
                payload.bytes[..bytes.len()].copy_from_slice(bytes);
                payload.length = bytes.len();
                self.emitted = Some(self.pool[index].clone());
                return Ok(());
            }
        }
        Err(EmitError::NoBuffer)
    }

    /// The payload of the current job so far.
    pub fn emitted(&self) -> Option<&Arc<Payload>> {
        self.emitted.as_ref()
    }

    /// Removes and returns the payload of the current job, if any.
    pub fn take(&mut self) -> Option<Arc<Payload>> {
        self.emitted.take()
    }
}

/// The content of a ticket.
#[derive(Debug)]
enum TicketContent {
    /// A job's payload.
    Data(Arc<Payload>),
    /// A request's number, assigned by its reader, and whether a job serves it.
    Call { call: u32, taken: bool },
}

/// Payloads and requests by ticket, from the completion until the dispatcher has returned all references to the ticket.
#[derive(Debug)]
pub(crate) struct Payloads {
    entries: Vec<Option<(TicketContent, u32)>>,
    free: Vec<Ticket>,
}

impl Payloads {
    /// Allocates tickets for `most` payloads.
    pub fn new(most: usize) -> Self {
        let tickets = (1..=most as u32).rev().filter_map(NonZeroU32::new);
        Payloads { entries: (0..most).map(|_| None).collect(), free: tickets.map(Ticket).collect() }
    }

    /// A ticket for a payload, with one reference.
    pub fn insert(&mut self, payload: Option<Arc<Payload>>) -> Option<Ticket> {
        self.hold_once(TicketContent::Data(payload?))
    }

    /// A ticket for a request, with one reference.
    pub fn insert_call(&mut self, call: u32) -> Option<Ticket> {
        self.hold_once(TicketContent::Call { call, taken: false })
    }

    fn hold_once(&mut self, held: TicketContent) -> Option<Ticket> {
        let ticket = self.free.pop()?;
        *self.entry(ticket) = Some((held, 1));
        Some(ticket)
    }

    /// The request of a job that starts; only once.
    pub fn take_call(&mut self, ticket: Ticket) -> Option<u32> {
        match self.entry(ticket) {
            Some((TicketContent::Call { call, taken }, _)) if !*taken => {
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

    /// Drops one reference; the last one frees the payload. Returns the request if no job serves it.
    pub fn release(&mut self, ticket: Ticket) -> Option<u32> {
        let entry = self.entry(ticket);
        let (held, holders) = entry.as_mut()?;
        *holders -= 1;
        if *holders > 0 {
            return None;
        }
        let unserved = match held {
            TicketContent::Call { call, taken: false } => Some(*call),
            _ => None,
        };
        *entry = None;
        self.free.push(ticket);
        unserved
    }

    /// Removes and returns the requests that no job serves.
    pub fn unserved(&mut self) -> impl Iterator<Item = u32> + '_ {
        self.entries.iter_mut().flatten().filter_map(|(held, _)| match held {
            TicketContent::Call { call, taken } => (!std::mem::replace(taken, true)).then_some(*call),
            TicketContent::Data(_) => None,
        })
    }

    pub fn get(&self, ticket: Option<Ticket>) -> Option<Arc<Payload>> {
        let entry = &self.entries[ticket?.0.get() as usize - 1];
        match entry {
            Some((TicketContent::Data(payload), _)) => Some(payload.clone()),
            _ => None,
        }
    }

    fn entry(&mut self, ticket: Ticket) -> &mut Option<(TicketContent, u32)> {
        &mut self.entries[ticket.0.get() as usize - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_stays_until_its_last_holder_is_gone() {
        let mut payload_buffers = PayloadBuffers::new(4, 2);
        let mut payloads = Payloads::new(1);
        payload_buffers.emit(b"one").unwrap();
        let ticket = payloads.insert(payload_buffers.take());
        assert_eq!(payloads.insert(payload_buffers.take()), None, "nothing was emitted");
        payloads.hold(ticket, 1);
        payloads.release(ticket.unwrap());
        assert_eq!(payloads.get(ticket).unwrap().bytes(), b"one");
        payload_buffers.emit(b"two").unwrap();
        assert_eq!(payloads.insert(payload_buffers.take()), None, "there is no room");
        payloads.release(ticket.unwrap());
        assert!(payloads.get(ticket).is_none());
        payload_buffers.emit(b"two").unwrap();
        assert_eq!(payloads.insert(payload_buffers.take()), ticket);
    }

    #[test]
    fn a_buffer_is_reused_only_after_its_last_reader() {
        let mut payload_buffers = PayloadBuffers::new(4, 2);
        payload_buffers.emit(b"one").unwrap();
        let first = payload_buffers.take().unwrap();
        payload_buffers.emit(b"two").unwrap();
        let second = payload_buffers.take().unwrap();
        assert_eq!(payload_buffers.emit(b"no"), Err(EmitError::NoBuffer));
        drop(first);
        payload_buffers.emit(b"four").unwrap();
        assert_eq!((second.bytes(), payload_buffers.take().unwrap().bytes()), (&b"two"[..], &b"four"[..]));
    }

    #[test]
    fn the_last_emission_of_a_job_counts_and_needs_no_second_buffer() {
        let mut payload_buffers = PayloadBuffers::new(1, 1);
        payload_buffers.emit(b"a").unwrap();
        payload_buffers.emit(b"b").unwrap();
        assert_eq!(payload_buffers.take().unwrap().bytes(), b"b");
        assert!(payload_buffers.take().is_none());
    }

    #[test]
    fn what_is_too_long_is_refused_with_the_limit() {
        let error = PayloadBuffers::new(2, 1).emit(b"abc").unwrap_err();
        assert_eq!(error, EmitError::TooLong { bytes: 3, most: 2 });
        assert!(PayloadBuffers::new(0, 3).emit(b"x").unwrap_err().to_string().contains("without `payload`"));
    }
}
