//! Bounds and time limits.

use std::time::Duration;

use hyoshi_model::Span;

use crate::channel::Pace;

/// Bounds on the resources that clients can use, for each lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Connections; default 12,000. Above that, one is closed for a new one: the oldest that never sent anything, else
    /// the newest of the client (a certificate, user or address) with the most. That client gets no further ones itself.
    pub connections: usize,
    /// Octets of a message; default 16 MiB.
    pub message: usize,
    /// Requests of one connection that run at once; default 32. Others are not read.
    pub in_flight: u32,
    /// Octets of replies that wait for slow clients, of all connections together; default 256 MiB. Calls over
    /// connections that carry calls both ways count, too. A client with waiting replies is not read. Above the limit, of
    /// the connections with most octets (half of them, at least) the one that has read nothing for the longest time is
    /// closed.
    pub backlog: usize,
    /// Octets of incomplete messages, of all connections together; default 256 MiB. Above that, connections of the client
    /// with the most octets are closed: those with the most first.
    pub unfinished: usize,
    /// TLS clients before their first message; default 4,096, and at most a quarter of the process's descriptors.
    /// Beyond that, one of the address with the most is closed: its oldest if that is older than a second, else a
    /// random one.
    pub strangers: usize,
    /// TLS handshakes in progress; default 256. Beyond that, one is closed in the same way.
    pub handshakes: usize,
    /// The time limit of a TLS handshake; default 10 s.
    pub handshake: Span,
    /// How often TLS connections are checked for client certificates that have expired or were revoked
    /// ([`TlsServer::renew`](crate::TlsServer::renew)); default 1 min. Such connections are closed.
    pub renewal: Span,
    /// The time limit for the next octet of a message, and for a client to read part of a reply; default 10 s.
    pub stalled: Span,
    /// Octets per second that a client must send of a message, and read of waiting replies: a message may take `stalled`,
    /// and a second more for each so many octets. Default 1,024.
    pub slowest: u32,
    /// How long [`shutdown`](crate::Orb::shutdown) waits for running requests; default 10 s.
    pub ending: Span,
    /// How long a thread waits in a read of its connection for the next request, which saves two system calls; default
    /// 20 ms. It stops earlier if its lane needs threads.
    pub linger: Span,
    /// The most messages that one turn of a lane without threads reads ([`OwnedLane::turn`](crate::OwnedLane::turn));
    /// default 64.
    pub turn_messages: usize,
    /// Octets after which such a turn stops reading; default 1 MiB.
    pub turn_octets: usize,
    /// How long a connection may be silent before it is closed, with GIOP's CloseConnection; default 10 min.
    pub silent: Span,
}

impl Default for ServerLimits {
    fn default() -> Self {
        ServerLimits {
            connections: 12_000,
            message: 16 << 20,
            in_flight: 32,
            backlog: 256 << 20,
            unfinished: 256 << 20,
            strangers: 4096,
            handshakes: 256,
            handshake: Span::from_secs(10),
            renewal: Span::from_secs(60),
            stalled: Span::from_secs(10),
            slowest: 1 << 10,
            ending: Span::from_secs(10),
            linger: Span::from_millis(20),
            turn_messages: 64,
            turn_octets: 1 << 20,
            silent: Span::from_secs(600),
        }
    }
}

impl ServerLimits {
    pub(crate) fn pace(&self) -> Pace {
        Pace { stalled: millis(self.stalled), slowest: self.slowest.max(1) as usize }
    }
}

/// Bounds on the client side of an ORB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Connections to one endpoint that each serve one synchronous call; default 16. If more calls run at a time, all
    /// calls share up to four other connections evenly, until fewer calls run.
    pub connections: usize,
    /// Requests that wait for replies on a shared connection; default 256. Further ones get TRANSIENT.
    pub in_flight: usize,
    /// Octets of a reply; default 16 MiB.
    pub message: usize,
    /// How long an unused connection stays open; default 60 s.
    pub idle: Span,
    /// Octets of oneways with scope [`SyncScope::None`] that are sent together; default 8 KiB.
    pub batch: usize,
    /// Octets of requests that wait on a shared connection while the server does not read, besides one request;
    /// default 1 MiB. If it carries calls both ways, replies count, too. Above that, callers wait.
    pub backlog: usize,
    /// How long a server may read nothing on a shared connection with waiting requests before it is closed; default
    /// 10 s. If it carries calls both ways, [`ServerLimits::stalled`] and [`ServerLimits::slowest`] apply, too.
    pub stalled: Span,
}

impl Default for ClientLimits {
    fn default() -> Self {
        ClientLimits {
            connections: 16,
            in_flight: 256,
            message: 16 << 20,
            idle: Span::from_secs(60),
            batch: 8 << 10,
            backlog: 1 << 20,
            stalled: Span::from_secs(10),
        }
    }
}

/// The time limits of calls. A reference can have other ones than its ORB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// To connect, for each address; default 5 s.
    pub connect: Span,
    /// For a whole call, with connecting, forwarding and retries; default none.
    pub round_trip: Option<Span>,
    /// From sending the request to the reply; default none. (TCP detects an unreachable peer within 30 s.)
    pub reply: Option<Span>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts { connect: Span::from_secs(5), round_trip: None, reply: None }
    }
}

/// When a call of a oneway returns (CORBA 3.3 part 1, 22.2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SyncScope {
    /// At once. It is sent within 10 ms, together with others ([`ClientLimits::batch`]).
    None,
    /// When the operating system has it.
    #[default]
    Transport,
    /// When the server's adapter has it, before the servant is called.
    Server,
    /// When the servant has returned.
    Target,
}

/// In the unit of [`crate::channel::now`].
pub(crate) fn millis(span: Span) -> u64 {
    span.as_nanos() / 1_000_000
}

pub(crate) fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.as_nanos())
}
