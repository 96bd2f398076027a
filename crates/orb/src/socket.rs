//! A connected socket: its link, what both ends have agreed on, and the messages that wait to be sent.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use hyoshi_os::May;

use crate::channel::{Incoming, Negotiated, Outbox};
use crate::failure::CallFailure;
use crate::stream::MaybeTlsStream;
use crate::tls::Distrust;

/// Octets that a thread reads at once. Only the used pages of its buffer take memory.
pub(crate) const BUFFER: usize = 128 << 10;
/// Reads that may complete a message: a peer that sends few octets at a time must not keep the thread.
const READS: usize = 8;

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

/// Reads what has arrived, until the first message in the buffer is whole. Returns the number of octets. `more` is for
/// the octets after a first part.
///
/// # Errors
///
/// [`io::ErrorKind::WouldBlock`] if nothing has arrived in time, [`io::ErrorKind::UnexpectedEof`] if the peer has
/// ended.
#[inline]
pub(crate) fn read(
    link: &MaybeTlsStream,
    incoming: &mut Incoming,
    buffer: &mut [u8],
    wait: May,
    more: May,
) -> io::Result<usize> {
    let mut all = link.read(incoming.place(buffer), wait)?;
    if all == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    incoming.came(all);
    for _ in 0..READS {
        if !incoming.is_worth_reading_on(buffer) {
            break;
        }
        match link.read(incoming.place(buffer), more) {
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

/// [`read`] of a server's messages. False if nothing has arrived in time.
#[inline]
pub(crate) fn fetch(
    link: &MaybeTlsStream,
    incoming: &mut Incoming,
    buffer: &mut [u8],
    wait: May,
    more: May,
) -> Result<bool, CallFailure> {
    match read(link, incoming, buffer, wait, more) {
        Ok(_) if incoming.is_tls(buffer) => Err(CallFailure::Tls(Distrust::Expected)),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(refused(&error).unwrap_or(CallFailure::Lost)),
    }
}

/// The failure if the server refused this client over TLS. In TLS 1.3 the client learns it after its first request.
#[cold]
pub(crate) fn refused(error: &io::Error) -> Option<CallFailure> {
    Distrust::of(error).filter(|why| *why == Distrust::Refused).map(CallFailure::Tls)
}
