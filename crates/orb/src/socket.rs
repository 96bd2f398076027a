//! A connected socket: its link, what both ends have agreed on, and the messages that wait to be sent.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use hyoshi_os::May;

use crate::channel::{Negotiated, Outbox, ReceiveError};
use crate::failure::CallFailure;
use crate::stream::MaybeTlsStream;
use crate::tls::Distrust;

/// Octets that a thread reads at once. Only the used pages of its buffer take memory.
pub(crate) const BUFFER: usize = 128 << 10;

/// A socket that several threads send to. One thread at a time reads it.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) link: MaybeTlsStream,
    pub(crate) terms: Negotiated,
    pub(crate) outbox: Outbox,
}

impl Socket {
    /// `waiting` counts octets that wait to be sent.
    pub(crate) fn new(link: MaybeTlsStream, waiting: Arc<AtomicUsize>) -> Self {
        let outbox = Outbox::new(waiting, link.is_secure());
        Socket { link, terms: Negotiated::default(), outbox }
    }

    /// Sends octets without waiting, and returns how many.
    pub(crate) fn write_now(&self, octets: &[u8]) -> io::Result<usize> {
        self.link.write(octets, May::Never)
    }

    /// Waits until the socket accepts octets, at most this long.
    pub(crate) fn wait_for_room(&self, left: Duration) -> io::Result<bool> {
        self.link.ready(true, Some(left))
    }
}

impl From<ReceiveError> for CallFailure {
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Ended => CallFailure::Lost,
            ReceiveError::Tls => CallFailure::Tls(Distrust::Expected),
            ReceiveError::Socket(error) => refused(&error).unwrap_or(CallFailure::Lost),
            ReceiveError::Stream(_) => CallFailure::Garbled,
        }
    }
}

/// The failure if the server refused this client over TLS. In TLS 1.3 the client learns it after its first request.
#[cold]
pub(crate) fn refused(error: &io::Error) -> Option<CallFailure> {
    Distrust::of(error).filter(|why| *why == Distrust::Refused).map(CallFailure::Tls)
}
