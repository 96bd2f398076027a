//! Connects to an endpoint: finds the addresses of its host and tries each.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hyoshi_os::{Dscp, SocketAddress, TcpProperties};
use hyoshi_wire::ior::IorEndpoint;

use super::lookup::Lookups;
use super::mux::BidirOffer;
use super::sockets::OpenedSockets;
use crate::bidir::is_way_back;
use crate::failure::CallFailure;
use crate::housekeeping::Housekeeping;
use crate::limits::ClientLimits;
use crate::rt::Priority;
use crate::stream::MaybeTlsStream;
use crate::tls::{Dial, Distrust};
use crate::transport::{Transport, TransportRules};

/// How long connecting may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// To find the host's addresses, and for each of them.
    pub(crate) each: Duration,
    /// For all that the call needs.
    pub(crate) until: Option<Instant>,
}

impl Patience {
    /// What is left for one step.
    pub(super) fn left(&self) -> Result<Duration, CallFailure> {
        let left = self.until.map_or(self.each, |until| self.each.min(until.saturating_duration_since(Instant::now())));
        if left.is_zero() { Err(CallFailure::ConnectTimedOut) } else { Ok(left) }
    }
}

/// What sets connections to an endpoint apart from others to it: a request uses only those with its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionSettings {
    pub(crate) tcp: TcpProperties,
    pub(crate) dscp: Option<Dscp>,
    /// The lowest and the highest priority of the requests, if these are bounded.
    pub(crate) band: Option<(Priority, Priority)>,
    /// The only object to which they lead.
    pub(crate) private: Option<u64>,
}

/// What all endpoints share.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) limits: ClientLimits,
    pub(super) housekeeping: Arc<Housekeeping>,
    pub(super) rules: TransportRules,
    pub(super) lookups: Arc<Lookups>,
    pub(super) sockets: OpenedSockets,
    /// Set if connections carry calls both ways.
    pub(super) offer: OnceLock<BidirOffer>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Dialling {
    pub(super) endpoint: IorEndpoint,
    pub(super) tls: Option<Dial>,
    pub(super) settings: ConnectionSettings,
    pub(super) common: Arc<Common>,
}

impl Dialling {
    /// Tries all addresses of the host.
    pub(super) fn connect<T>(
        &self,
        patience: &Patience,
        mut connected: impl FnMut(MaybeTlsStream) -> io::Result<T>,
    ) -> Result<T, CallFailure> {
        let mut connect = |address, left| {
            let ConnectionSettings { dscp, tcp, .. } = &self.settings;
            let stream = MaybeTlsStream::connect(&address, left, self.tls.as_ref(), *dscp, tcp);
            let opened = stream.and_then(|stream| {
                self.common.sockets.add(stream.socket(), *dscp);
                connected(stream)
            });
            opened.map_err(|error| no_connection(&error))
        };
        if matches!(&self.endpoint, IorEndpoint::Tcp { host, .. } if is_way_back(host)) {
            return Err(CallFailure::NoWayBack);
        }
        // The housekeeping thread closes it when it is no longer used.
        self.common.housekeeping.wake(false);
        let (host, port) = match &self.endpoint {
            IorEndpoint::Unix { .. } if !self.common.rules.allow(Transport::Unix, None) => {
                return Err(CallFailure::Forbidden);
            }
            IorEndpoint::Unix { path, .. } => return connect(SocketAddress::Unix(path.into()), patience.left()?),
            IorEndpoint::Tcp { host, port, .. } | IorEndpoint::Tls { host, port, .. } => (host, *port),
        };
        let mut last = CallFailure::HostUnknown;
        let transport = if self.tls.is_some() { Transport::Tls } else { Transport::Tcp };
        for address in self.common.lookups.find(host, port, Instant::now() + patience.left()?)? {
            if !self.common.rules.allow(transport, Some(address.ip())) {
                last = CallFailure::Forbidden;
                continue;
            }
            match connect(SocketAddress::Tcp(address), patience.left()?) {
                Ok(connected) => return Ok(connected),
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }
}

pub(crate) fn no_connection(error: &io::Error) -> CallFailure {
    if let Some(why) = Distrust::of(error) {
        return CallFailure::Tls(why);
    }
    match error.kind() {
        // The server ended within the handshake.
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => CallFailure::Tls(Distrust::Handshake),
        // Of a Unix socket the file may be missing.
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => CallFailure::Refused,
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => CallFailure::ConnectTimedOut,
        _ => CallFailure::NotConnected,
    }
}
