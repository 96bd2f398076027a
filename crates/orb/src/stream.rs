//! A connection in plain or over TLS, with the same behaviour: one thread reads, writers take turns, and a read or write
//! waits up to its timeout or not at all.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hyoshi_os::{Credentials, Dscp, May, PiMutex, SocketAddress, SocketStream, TcpProperties};
use hyoshi_wire::giop::cancel_request;
use hyoshi_wire::{ByteOrder, CharSet, Encoder, Version};
use rustls::pki_types::CertificateDer;
use rustls::{AlertDescription, Connection, PeerIncompatible};

use crate::rt::threads::CancelPath;
use crate::tls::Dial;
use crate::tls::Fields;

/// Octets that are enciphered at once: a record of TLS.
const CHUNK: usize = 16 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct MaybeTlsStream {
    socket: SocketStream,
    /// `None` in plain.
    secure: Option<Box<Secure>>,
}

/// TLS after the handshake.
struct Secure {
    /// Never held during a wait for the peer.
    session: PiMutex<Session>,
    /// Microseconds; [`FOREVER`] for none.
    read_timeout: AtomicU64,
    write_timeout: AtomicU64,
    certificate: Option<Arc<[u8]>>,
    /// When the peer's certificate expires, in seconds since 1970; [`FOREVER`] without one.
    expires: u64,
}

struct Session {
    tls: Connection,
    /// Octets that are enciphered and not sent whole. Writers repeat what was not taken, so these are the first of what
    /// comes next.
    owed: usize,
}

const FOREVER: u64 = u64::MAX;

impl MaybeTlsStream {
    /// Connects within `timeout`, including the TLS handshake if `dial` is given.
    pub(crate) fn connect(
        to: &SocketAddress,
        timeout: Duration,
        dial: Option<&Dial>,
        dscp: Option<Dscp>,
        tcp: &TcpProperties,
    ) -> io::Result<MaybeTlsStream> {
        let until = Instant::now() + timeout;
        let socket = SocketStream::connect_with(to, timeout, dscp, tcp)?;
        let Some(dial) = dial else { return Ok(socket.into()) };
        let mut handshake = Handshake::new(socket, dial.begin()?.into());
        loop {
            let output = match handshake.go_on()? {
                Next::Done => return Ok(handshake.finish()),
                Next::Wait { output } => output,
            };
            if !handshake.socket.ready(output, Some(until.saturating_duration_since(Instant::now())))? {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// What has arrived, at least an octet; 0 when the peer has ended.
    #[inline]
    pub(crate) fn read(&self, into: &mut [u8], wait: May) -> io::Result<usize> {
        match &self.secure {
            None => self.socket.read(into, wait),
            Some(secure) => secure.read(&self.socket, into, wait),
        }
    }

    /// Sends a first part of `octets`, and returns its length. The next write must begin with the rest.
    #[inline]
    pub(crate) fn write(&self, octets: &[u8], wait: May) -> io::Result<usize> {
        match &self.secure {
            None => self.socket.write(octets, wait),
            Some(secure) => secure.write(&self.socket, octets, wait),
        }
    }

    /// Waits until something has arrived, or with `output` until there is room to write; false when time is over.
    pub(crate) fn ready(&self, output: bool, timeout: Option<Duration>) -> io::Result<bool> {
        self.socket.ready(output, timeout)
    }

    /// The socket, for observers.
    pub(crate) fn socket(&self) -> &SocketStream {
        &self.socket
    }

    /// Sets the class of sent packets.
    pub(crate) fn set_dscp(&self, dscp: Dscp) -> io::Result<()> {
        self.socket.set_dscp(dscp)
    }

    /// How long a read waits; none for ever.
    pub(crate) fn read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let Some(secure) = &self.secure else { return self.socket.read_timeout(timeout) };
        secure.read_timeout.store(micros(timeout), Ordering::Relaxed);
        Ok(())
    }

    /// How long a write waits for room; none for ever.
    pub(crate) fn write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let Some(secure) = &self.secure else { return self.socket.write_timeout(timeout) };
        secure.write_timeout.store(micros(timeout), Ordering::Relaxed);
        Ok(())
    }

    /// True if nothing has arrived and the peer has not ended.
    pub(crate) fn is_quiet(&self) -> bool {
        self.secure.as_ref().map_or_else(|| self.socket.is_quiet(), |secure| secure.is_quiet(&self.socket))
    }

    /// True once the peer will send nothing more.
    pub(crate) fn has_ended(&self) -> bool {
        self.socket.has_ended()
    }

    /// True if it holds deciphered octets that were not read: the kernel does not report those.
    pub(crate) fn holds_some(&self) -> bool {
        self.secure.as_ref().is_some_and(|secure| secure.session.lock().holds_some())
    }

    /// Ends both directions: threads that wait in a read or write return.
    pub(crate) fn close(&self) {
        // If another thread has the session, the peer gets no close alert.
        if let Some(mut session) = self.secure.as_ref().and_then(|secure| secure.session.try_lock()) {
            session.tls.send_close_notify();
            let _ = flush(&mut session.tls, &self.socket);
        }
        self.socket.close();
    }

    /// The process that opened it, if the kernel knows it.
    pub(crate) fn credentials(&self) -> Option<Credentials> {
        self.socket.credentials()
    }

    /// The addresses of the other end and this one; none of a Unix socket.
    pub(crate) fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        (self.socket.peer_address(), self.socket.own_address())
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.secure.is_some()
    }

    /// The peer's certificate (X.509, DER), which was verified.
    pub(crate) fn certificate(&self) -> Option<&Arc<[u8]>> {
        self.secure.as_ref()?.certificate.as_ref()
    }

    /// Whether the peer's certificate has expired since the handshake.
    pub(crate) fn has_expired(&self) -> bool {
        let expires = self.secure.as_ref().map_or(FOREVER, |secure| secure.expires);
        expires != FOREVER && expires < hyoshi_os::clock::unix_seconds()
    }

    /// The peer's certificates, its own first.
    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        let chain = |secure: &Secure| secure.session.lock().tls.peer_certificates().unwrap_or_default().to_vec();
        self.secure.as_deref().map(chain).unwrap_or_default()
    }
}

/// The connection of one call at a time, whose request was sent whole.
impl CancelPath for MaybeTlsStream {
    fn send_cancel(&self, request: u32, version: Version) {
        let mut to = Encoder::new(ByteOrder::NATIVE);
        to.speak(version, CharSet::default());
        if cancel_request(request, &mut to).is_ok() {
            match self.write(to.bytes(), May::Never) {
                Ok(sent) if sent == to.len() => {}
                // Nothing was sent. TLS has enciphered it nevertheless.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.secure.is_none() => {}
                // What was sent in part would spoil the next request.
                _ => self.close(),
            }
        }
    }

    fn give_up(&self, _: u32) {
        self.close();
    }

    fn address(&self) -> Option<SocketAddr> {
        self.addresses().0
    }
}

impl From<SocketStream> for MaybeTlsStream {
    fn from(socket: SocketStream) -> Self {
        MaybeTlsStream { socket, secure: None }
    }
}

#[cfg(test)]
impl MaybeTlsStream {
    /// Connected to a listener that does not accept.
    pub(crate) fn connected() -> MaybeTlsStream {
        let listener = hyoshi_os::Listener::bind(&SocketAddress::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        SocketStream::connect(listener.address(), Duration::from_secs(5)).unwrap().into()
    }
}

fn micros(timeout: Option<Duration>) -> u64 {
    timeout.map_or(FOREVER, |timeout| u64::try_from(timeout.as_micros()).unwrap_or(FOREVER - 1))
}

/// When a wait that begins now ends.
fn until(timeout: &AtomicU64) -> Option<Instant> {
    match timeout.load(Ordering::Relaxed) {
        FOREVER => None,
        micros => Instant::now().checked_add(Duration::from_micros(micros)),
    }
}

impl Secure {
    fn read(&self, socket: &SocketStream, into: &mut [u8], wait: May) -> io::Result<usize> {
        // One bound for a whole record: octets that dribble must not keep the thread.
        let until = if wait == May::Never { None } else { until(&self.read_timeout) };
        // A read that may wait mostly has to: checking the socket first would cost a system call for nothing.
        let mut look = wait == May::Never;
        loop {
            {
                let Session { tls, .. } = &mut *self.session.lock();
                match tls.reader().read(into) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    // The peer ended without a close alert: GIOP itself marks where messages end.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                    done => return done,
                }
                if look {
                    match tls.read_tls(&mut Unwaiting(socket)) {
                        Ok(_) => {
                            process(tls, socket)?;
                            continue;
                        }
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            if wait == May::Never || !ready(socket, false, until, wait)? {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            look = true;
        }
    }

    fn write(&self, socket: &SocketStream, octets: &[u8], wait: May) -> io::Result<usize> {
        let until = if wait == May::Never { None } else { until(&self.write_timeout) };
        let mut sent = 0;
        loop {
            {
                let Session { tls, owed } = &mut *self.session.lock();
                while flush(tls, socket).map_err(|error| why(tls, socket, error))? {
                    sent += std::mem::take(owed);
                    if sent >= octets.len() {
                        return Ok(octets.len());
                    }
                    *owed = tls.writer().write(&octets[sent..octets.len().min(sent + CHUNK)])?;
                }
            }
            if wait == May::Never || !ready(socket, true, until, wait)? {
                return if sent > 0 { Ok(sent) } else { Err(io::ErrorKind::WouldBlock.into()) };
            }
        }
    }

    fn is_quiet(&self, socket: &SocketStream) -> bool {
        let mut session = self.session.lock();
        // The octets may be TLS' own: a new key.
        loop {
            match session.tls.read_tls(&mut Unwaiting(socket)) {
                Ok(0) => return false,
                Ok(_) if process(&mut session.tls, socket).is_ok() => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return !session.holds_some(),
                _ => return false,
            }
        }
    }
}

fn ready(socket: &SocketStream, output: bool, until: Option<Instant>, wait: May) -> io::Result<bool> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    if wait == May::Linger { socket.ready_or_kicked(output, left) } else { socket.ready(output, left) }
}

impl Session {
    /// Octets, the end of the stream, or an error.
    fn holds_some(&mut self) -> bool {
        self.tls
            .process_new_packets()
            .map_or(true, |state| state.plaintext_bytes_to_read() > 0 || state.peer_has_closed())
    }
}

impl fmt::Debug for Secure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secure").finish_non_exhaustive()
    }
}

impl AsFd for MaybeTlsStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A socket that TLS reads and writes without waiting.
pub(crate) struct Unwaiting<'a>(pub(crate) &'a SocketStream);

impl Read for Unwaiting<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into, May::Never)
    }
}

impl Write for Unwaiting<'_> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0.write(octets, May::Never)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends the records that TLS has built. False if the socket accepts no more now.
fn flush(tls: &mut Connection, socket: &SocketStream) -> io::Result<bool> {
    while tls.wants_write() {
        match tls.write_tls(&mut Unwaiting(socket)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Looks at what was read, and sends what TLS itself answers: alerts, new keys.
fn process(tls: &mut Connection, socket: &SocketStream) -> io::Result<()> {
    let done = tls.process_new_packets();
    // The rest is sent with the next write.
    let _ = flush(tls, socket);
    done.map(drop).map_err(|error| {
        let error = match error {
            // Before the server has chosen a cipher, the alert means that there is no common one.
            rustls::Error::AlertReceived(AlertDescription::HandshakeFailure)
                if tls.negotiated_cipher_suite().is_none() =>
            {
                rustls::Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon)
            }
            error => error,
        };
        io::Error::new(io::ErrorKind::InvalidData, error)
    })
}

/// Why nothing can be written: the peer may have sent the reason before it closed.
#[cold]
fn why(tls: &mut Connection, socket: &SocketStream, error: io::Error) -> io::Error {
    loop {
        let came = tls.read_tls(&mut Unwaiting(socket));
        // Even if nothing arrived: a reader may have received the reason, and TLS repeats its error.
        match process(tls, socket) {
            Err(told) => return told,
            Ok(()) if matches!(came, Ok(1..)) => {}
            Ok(()) => return error,
        }
    }
}

/// A handshake under way; never waits.
pub(crate) struct Handshake {
    socket: SocketStream,
    tls: Connection,
}

/// What a handshake needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing: both sides have proved what they had to.
    Done,
    /// The peer: octets from it, or with `output` that it takes some.
    Wait { output: bool },
}

impl Handshake {
    pub(crate) fn new(socket: SocketStream, tls: Connection) -> Self {
        Handshake { socket, tls }
    }

    /// Goes on as far as can be without waiting.
    pub(crate) fn go_on(&mut self) -> io::Result<Next> {
        loop {
            match flush(&mut self.tls, &self.socket) {
                Ok(true) => {}
                Ok(false) => return Ok(Next::Wait { output: true }),
                Err(error) => return Err(why(&mut self.tls, &self.socket, error)),
            }
            if !self.tls.is_handshaking() {
                return Ok(Next::Done);
            }
            match self.tls.read_tls(&mut Unwaiting(&self.socket)) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => process(&mut self.tls, &self.socket)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Next::Wait { output: false }),
                Err(error) => return Err(error),
            }
        }
    }

    /// The connection, once it is done.
    pub(crate) fn finish(self) -> MaybeTlsStream {
        let Handshake { socket, tls } = self;
        let certificate: Option<Arc<[u8]>> =
            tls.peer_certificates().and_then(|chain| Some(Arc::from(chain.first()?.as_ref())));
        let expires = certificate.as_deref().and_then(Fields::of).map_or(FOREVER, |fields| fields.not_after);
        let session = PiMutex::new(Session { tls, owed: 0 });
        let [read_timeout, write_timeout] = [FOREVER; 2].map(AtomicU64::new);
        let secure = Secure { session, read_timeout, write_timeout, certificate, expires };
        MaybeTlsStream { socket, secure: Some(Box::new(secure)) }
    }

    /// After it failed: the socket, on which nothing more is said. What the peer still sends is to be read until it
    /// ends, or the kernel would take back what it was told.
    pub(crate) fn give_up(self) -> SocketStream {
        self.socket.close_writing();
        self.socket
    }

    pub(crate) fn socket(&self) -> &SocketStream {
        &self.socket
    }
}
