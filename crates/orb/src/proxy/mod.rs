//! A transparent proxy between clients and the server of an object, of any interface: [`IiopProxy`].
//!
//! ```text
//!   client ═══ connection ═══► reader ─── delegate ───► server's connection ═══► server
//!          ◄══════════════════ writer ◄── measures ──── reader of replies   ◄═══
//! ```
//!
//! A connection of a client has one of its own to the server, and more for redirected or marked requests. Messages pass
//! octet for octet, with their ids, contexts, version, byte order and fragments. Object keys are the server's: only the
//! addresses in references to it are replaced, those in forwarding replies too. A request to another object is copied,
//! with its arguments at a place of the same alignment.
//!
//! The peer of a slow reader waits: the proxy holds one message for each direction of a connection.

mod client;
mod registry;
mod route;
mod upstream;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hyoshi_model::{DelegateTotals, Instant, Span};
use hyoshi_os::{Clock, MonotonicClock, PiMutex};
use hyoshi_wire::ior::Ior;

use crate::behaviour::{Behaviour, CacheLimits, Delegates, OperationDelegate, ReplyCache};
use crate::channel::Tally;
use crate::endpoint::{ListenError, Listening};
use registry::Registry;
use route::{Redirection, Routes};

/// Bounds on the resources of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyLimits {
    /// Connections of clients; default 256. Each has two threads or more. Above that, the newest connection of the client
    /// with the most is closed for a new one of another client.
    pub connections: usize,
    /// Requests of a connection that wait for replies; default 256. Further ones get TRANSIENT.
    pub in_flight: usize,
    /// Octets of a message; default 16 MiB.
    pub message: usize,
    /// Octets of incomplete messages, of all connections together; default 256 MiB. Above that, connections are closed that
    /// hold more than an equal share.
    pub unfinished: usize,
    /// How long a peer may read nothing while a message for it waits; default 10 s. Then it is disconnected.
    pub stalled: Span,
    /// How long a client may be silent before its connection is closed; default 10 min.
    pub silent: Span,
    /// The time limit to connect to each address of a server; default 5 s.
    pub connect: Span,
    /// Servers that clients are forwarded to, each with a port of the proxy; default 16. References to further ones pass
    /// unchanged: their clients call them directly.
    pub servers: usize,
    /// Of cached replies.
    pub cache: CacheLimits,
}

impl Default for ProxyLimits {
    fn default() -> Self {
        ProxyLimits {
            connections: 256,
            in_flight: 256,
            message: 16 << 20,
            unfinished: 256 << 20,
            stalled: Span::from_secs(10),
            silent: Span::from_secs(600),
            connect: Span::from_secs(5),
            servers: 16,
            cache: CacheLimits::default(),
        }
    }
}

/// The settings of a [`IiopProxy`].
#[derive(Clone, Debug, Default)]
pub struct ProxySettings {
    /// Where it listens: `iiop://127.0.0.1:0`. Forwarded clients use further ports of the same address.
    pub listen: String,
    /// The host in its references, if clients use another name for it.
    pub advertise: Option<String>,
    /// Behaviours of operations by name.
    pub behaviours: Vec<(String, Behaviour)>,
    /// That of all other operations, except for those of every object (such as `_is_a`).
    pub others: Behaviour,
    /// The objects of [`Behaviour::Redirect`], by the texts there.
    pub redirections: Vec<(String, Ior)>,
    /// Operations that can get a behaviour of their own while it runs: see [`IiopProxy::set`].
    pub settable: Vec<String>,
    /// Bounds.
    pub limits: ProxyLimits,
}

/// The reason why a proxy cannot start.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProxyError {
    /// The endpoint cannot be read.
    Endpoint(ListenError),
    /// It is not one for TCP without TLS.
    NotTcp(String),
    /// It cannot be used.
    Listen(io::Error),
    /// This reference has no address that the proxy can connect to: plain TCP, or a Unix socket of this machine.
    Unreachable(String),
    /// The object of a redirection is missing in the settings.
    Unresolved(String),
    /// A thread cannot be started.
    Thread(io::Error),
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProxyError::Endpoint(error) => error.fmt(f),
            ProxyError::NotTcp(listen) => write!(f, "a proxy listens at iiop://HOST:PORT, not at \"{listen}\""),
            ProxyError::Listen(error) => write!(f, "cannot listen: {error}"),
            ProxyError::Unreachable(what) => {
                write!(f, "{what} has neither an address of plain TCP nor a Unix socket on this machine")
            }
            ProxyError::Unresolved(reference) => write!(f, "the object of \"redirect:{reference}\" is not resolved"),
            ProxyError::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl std::error::Error for ProxyError {}

/// What the threads of a proxy share.
#[derive(Debug)]
struct ProxyShared {
    limits: ProxyLimits,
    clock: MonotonicClock,
    delegates: PiMutex<Delegates>,
    cache: PiMutex<ReplyCache>,
    redirections: HashMap<String, Redirection>,
    routes: Routes,
    registry: Registry,
    counts: ProxyCounts,
    /// The last number of a connection to a server.
    numbers: AtomicU64,
    /// Octets of incomplete messages.
    unfinished: Arc<AtomicUsize>,
}

/// Events that concern no single operation.
#[derive(Debug, Default)]
struct ProxyCounts {
    /// Client connections, in all.
    clients: AtomicU64,
    /// Of those, refused or closed for one of another client.
    displaced: AtomicU64,
    /// Replies that forward to another server, through the proxy.
    forwarded: AtomicU64,
    /// The same past the proxy: no port is left, or it cannot connect there.
    bypassed: AtomicU64,
    /// Requests for the location of an object.
    located: AtomicU64,
    /// Connections to a server that could not be made.
    unreached: AtomicU64,
    /// Connections to a server that were lost.
    lost: AtomicU64,
}

/// What a proxy has measured.
#[derive(Clone, Debug)]
pub struct IiopProxyReport {
    /// How long it has run.
    pub span: Span,
    /// Its delegates, by operation.
    pub delegates: Vec<OperationDelegate>,
    /// Client connections, in all.
    pub clients: u64,
    /// Of those, refused or closed because there were too many.
    pub displaced: u64,
    /// Client connections now.
    pub open: usize,
    /// Replies that forwarded clients to another server, through the proxy.
    pub forwarded: u64,
    /// The same past the proxy: see [`ProxyLimits::servers`].
    pub bypassed: u64,
    /// Requests for the location of an object.
    pub located: u64,
    /// Failed attempts to connect to a server.
    pub unreached: u64,
    /// Connections to a server that were lost.
    pub lost: u64,
}

/// A running proxy; see the module. Dropping it ends its connections.
#[derive(Debug)]
pub struct IiopProxy {
    shared: Arc<ProxyShared>,
    ior: Ior,
}

impl IiopProxy {
    /// Starts one in front of an object. It does not connect to the object's server before the first request.
    ///
    /// # Errors
    ///
    /// If it cannot listen, or has no way to the object or that of a redirection.
    pub fn start(target: &Ior, settings: ProxySettings) -> Result<IiopProxy, ProxyError> {
        let ProxySettings { listen, advertise, behaviours, others, redirections, settable, limits } = settings;
        let listening = Listening::parse(&listen).map_err(ProxyError::Endpoint)?;
        let routes = Routes::new(listening, advertise, limits.servers).ok_or(ProxyError::NotTcp(listen))?;
        let mut redirected = HashMap::new();
        for (to, ior) in redirections {
            let unreachable = || ProxyError::Unreachable(format!("the object of \"redirect:{to}\""));
            let object = Redirection::of(&ior).ok_or_else(unreachable)?;
            redirected.insert(to, object);
        }
        for behaviour in behaviours.iter().map(|(_, behaviour)| behaviour).chain([&others]) {
            if let Behaviour::Redirect(to) = behaviour
                && !redirected.contains_key(to)
            {
                return Err(ProxyError::Unresolved(to.clone()));
            }
        }
        let named = behaviours.iter().map(|(name, behaviour)| (name.as_str(), behaviour.clone()));
        let mut delegates = Delegates::new(named, others);
        settable.iter().for_each(|operation| delegates.reserve(operation));
        let shared = Arc::new(ProxyShared {
            clock: MonotonicClock::start(),
            delegates: PiMutex::new(delegates),
            cache: PiMutex::new(ReplyCache::new(limits.cache)),
            redirections: redirected,
            routes,
            registry: Registry::new(limits.connections),
            counts: ProxyCounts::default(),
            numbers: AtomicU64::new(0),
            unfinished: Arc::default(),
            limits,
        });
        let (ior, _) = shared.through(target)?;
        Ok(IiopProxy { shared, ior })
    }

    /// The reference for clients, in place of the object's.
    pub fn ior(&self) -> &Ior {
        &self.ior
    }

    /// Sets the behaviour of an operation, from its next request on; `None`: that of all other operations. False, and
    /// nothing is set, if the operation is not among the `settable` ones and no client has called it, or if the object of
    /// a redirection is not in the settings.
    pub fn set(&self, operation: &str, behaviour: Option<Behaviour>) -> bool {
        let is_resolved = behaviour.as_ref().is_none_or(|behaviour| self.is_resolved(behaviour));
        is_resolved && self.shared.delegates.lock().set(operation, behaviour)
    }

    /// Sets the behaviour of all operations without one of their own; false as for [`set`](Self::set).
    pub fn set_others(&self, behaviour: Behaviour) -> bool {
        let is_resolved = self.is_resolved(&behaviour);
        if is_resolved {
            self.shared.delegates.lock().set_others(behaviour);
        }
        is_resolved
    }

    fn is_resolved(&self, behaviour: &Behaviour) -> bool {
        !matches!(behaviour, Behaviour::Redirect(to) if !self.shared.redirections.contains_key(to))
    }

    /// The counts of all operations.
    pub fn totals(&self) -> DelegateTotals {
        self.shared.delegates.lock().totals()
    }

    /// What it has measured.
    pub fn report(&self) -> IiopProxyReport {
        let shared = &self.shared;
        let delegates = shared.delegates.lock().all().into_iter().cloned().collect();
        let ProxyCounts { clients, displaced, forwarded, bypassed, located, unreached, lost } = &shared.counts;
        let [clients, displaced, forwarded, bypassed, located, unreached, lost] =
            [clients, displaced, forwarded, bypassed, located, unreached, lost]
                .map(|count| count.load(Ordering::Relaxed));
        let span = shared.now().since(Instant::from_nanos(0));
        let open = shared.registry.open();
        IiopProxyReport { span, delegates, clients, displaced, open, forwarded, bypassed, located, unreached, lost }
    }
}

impl Drop for IiopProxy {
    fn drop(&mut self) {
        self.shared.routes.end();
        self.shared.registry.end();
    }
}

impl ProxyShared {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Notes how many octets of incomplete messages a connection holds. False if these are too many.
    fn holds(&self, tally: &Tally, octets: usize) -> bool {
        let ProxyLimits { unfinished, connections, .. } = self.limits;
        tally.set(octets) <= unfinished || octets <= unfinished / connections.max(1)
    }

    fn count(&self, which: impl FnOnce(&ProxyCounts) -> &AtomicU64) {
        which(&self.counts).fetch_add(1, Ordering::Relaxed);
    }
}
