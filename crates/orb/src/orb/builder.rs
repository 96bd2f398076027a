//! How an ORB is put together: endpoints and their lanes, limits, interceptors.

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use hyoshi_os::{Listener, ThreadPolicy, Wake};
use hyoshi_wire::ior::IorEndpoint;

use super::{Handle, OPENS_WITHIN, Orb, Running, housekeeping};
use crate::bidir::{self, Claims};
use crate::care::Care;
use crate::client::{Offer, Peers};
use crate::delegate::{self, Delegate, Settings};
use crate::endpoint::{EndpointError, Listening};
use crate::intercept::{ClientInterceptor, ServerInterceptor};
use crate::limits::{ClientLimits, Scope, ServerLimits, Timeouts};
use crate::object::{Object, ObjectRef};
use crate::objects::Adapters;
use crate::server::{Lane, LaneOptions, Order};
use crate::shared::Shared;
use crate::tls::{Dialler, TlsClient, TlsError, TlsServer};
use crate::transport::{TransportRuleError, TransportRules};

/// An ORB about to be.
#[derive(Default)]
pub struct OrbBuilder {
    lanes: Vec<(LaneOptions, Vec<Listening>)>,
    advertised: Option<String>,
    tls_server: Option<TlsServer>,
    tls_client: Option<Dialler>,
    tls_only: bool,
    client_transport: Option<TransportRules>,
    server_transport: Option<TransportRules>,
    server: ServerLimits,
    client: ClientLimits,
    timeouts: Timeouts,
    scope: Scope,
    offers_bidirectional: bool,
    claims: Option<Claims>,
    order: Option<(Arc<dyn Order>, usize)>,
    never_collocates: bool,
    server_interceptors: Vec<Arc<dyn ServerInterceptor>>,
    client_interceptors: Vec<Arc<dyn ClientInterceptor>>,
    initial: Vec<(String, String)>,
}

/// Why an ORB could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum OrbError {
    /// It cannot listen there.
    Listen {
        /// Where.
        address: hyoshi_os::SocketAddress,
        /// Why.
        error: io::Error,
    },
    /// An endpoint over TLS without [`OrbBuilder::tls_server`].
    NoCertificate(hyoshi_os::SocketAddress),
    /// What the environment's `HYOSHI_DELEGATE` says cannot be read: why, and what to write.
    Delegate(String),
    /// A transport rule of the environment that cannot be read.
    Transport {
        /// The variable.
        variable: &'static str,
        /// What is wrong.
        error: TransportRuleError,
    },
    /// The system has no thread or file descriptor left.
    System(io::Error),
}

impl fmt::Display for OrbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OrbError::Listen { address, error } => write!(f, "cannot listen at {address}: {error}"),
            OrbError::NoCertificate(address) => {
                write!(f, "ssliop://{address} needs a certificate and its key: OrbBuilder::tls_server")
            }
            OrbError::Delegate(why) => write!(f, "the environment's {}: {why}", delegate::VARIABLE),
            OrbError::Transport { variable, error } => write!(f, "the environment's {variable}: {error}"),
            OrbError::System(error) => write!(f, "the system refused a thread or a file descriptor: {error}"),
        }
    }
}

impl std::error::Error for OrbError {}

impl OrbBuilder {
    /// Listens at an endpoint: `iiop://host:port` (port 0 is chosen by the system, IPv6 stands in brackets),
    /// `ssliop://host:port` for TLS, or `unix:/path`. It belongs to the lane that was begun last.
    ///
    /// # Errors
    ///
    /// Of text that is no endpoint.
    pub fn listen(mut self, endpoint: &str) -> Result<Self, EndpointError> {
        let listening = Listening::parse(endpoint)?;
        match self.lanes.last_mut() {
            Some((_, endpoints)) => endpoints.push(listening),
            None => self.lanes.push((LaneOptions::default(), vec![listening])),
        }
        Ok(self)
    }

    /// Begins a lane, with threads of its own for the endpoints that follow. What was said before belongs to a lane
    /// with default options.
    #[must_use]
    pub fn lane(mut self, options: LaneOptions) -> Self {
        match self.lanes.last_mut() {
            // Nothing belongs to the last one: these are its options.
            Some((last, endpoints)) if endpoints.is_empty() => *last = options,
            _ => self.lanes.push((options, Vec::new())),
        }
        self
    }

    /// The host that references name, instead of the one that is listened at.
    #[must_use]
    pub fn advertise(mut self, host: &str) -> Self {
        self.advertised = Some(host.to_owned());
        self
    }

    /// How endpoints at `ssliop://` prove who they are, and what clients have to prove.
    #[must_use]
    pub fn tls_server(mut self, tls: TlsServer) -> Self {
        self.tls_server = Some(tls);
        self
    }

    /// The trusted authorities of its calls over TLS, and its own certificate. If a reference offers TLS, calls never use
    /// plain TCP.
    ///
    /// # Errors
    ///
    /// If the key does not match the certificate, or the name is neither a host name nor an address.
    pub fn tls_client(mut self, tls: TlsClient) -> Result<Self, TlsError> {
        self.tls_client = Some(Dialler::new(&tls)?);
        Ok(self)
    }

    /// Its calls never use plain TCP, as with [`TlsClient::only`], even without settings for TLS: then they use only
    /// Unix sockets.
    #[must_use]
    pub fn tls_only(mut self) -> Self {
        self.tls_only = true;
        self
    }

    /// The transports of its calls, by address; by default those of the environment's `ORBclientTransportRule`.
    #[must_use]
    pub fn client_transport(mut self, rules: TransportRules) -> Self {
        self.client_transport = Some(rules);
        self
    }

    /// The transports of connections that it accepts, by address; by default those of the environment's
    /// `ORBserverTransportRule`. Other connections are closed at once.
    #[must_use]
    pub fn server_transport(mut self, rules: TransportRules) -> Self {
        self.server_transport = Some(rules);
        self
    }

    /// What clients can make it hold.
    #[must_use]
    pub fn server_limits(mut self, limits: ServerLimits) -> Self {
        self.server = limits;
        self
    }

    /// What its calls hold.
    #[must_use]
    pub fn client_limits(mut self, limits: ClientLimits) -> Self {
        self.client = limits;
        self
    }

    /// How long its calls take at most.
    #[must_use]
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// How far its oneways have come when they return.
    #[must_use]
    pub fn oneways(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Offers servers to call its objects over the connections that it opens to them (bidirectional GIOP, CORBA's policy
    /// BOTH), as long as those are open: one to each endpoint, which all calls share, until either side ends it. Such
    /// calls are carried out by the threads of the first lane. Nothing has to be listened at: an ORB that does not
    /// can be called in this way only, by servers that accept it.
    #[must_use]
    pub fn offer_bidirectional(mut self) -> Self {
        self.offers_bidirectional = true;
        self
    }

    /// Accepts such offers: calls to objects of a client go over the connection that it opened, if they are at an address
    /// that it announced and `claims` lets it claim.
    #[must_use]
    pub fn accept_bidirectional(mut self, claims: Claims) -> Self {
        self.claims = Some(claims);
        self
    }

    /// `order` decides when and on which thread requests to bound objects run
    /// ([`Adapter::activate_ordered`](crate::Adapter::activate_ordered)). Each lane holds at most `requests` read and
    /// unanswered requests, and of one connection at most [`ServerLimits::in_flight`]. Above these limits, connections
    /// are not read. Calls within the process go to the servant directly.
    #[must_use]
    pub fn order(mut self, order: impl Order + 'static, requests: usize) -> Self {
        self.order = Some((Arc::new(order), requests));
        self
    }

    /// Whether calls to objects of this ORB go to the servant directly (they do). With interceptors they never do.
    #[must_use]
    pub fn collocation(mut self, direct: bool) -> Self {
        self.never_collocates = !direct;
        self
    }

    /// Runs around every request that comes.
    #[must_use]
    pub fn server_interceptor(mut self, interceptor: impl ServerInterceptor + 'static) -> Self {
        self.server_interceptors.push(Arc::new(interceptor));
        self
    }

    /// Runs around every request that goes out.
    #[must_use]
    pub fn client_interceptor(mut self, interceptor: impl ClientInterceptor + 'static) -> Self {
        self.client_interceptors.push(Arc::new(interceptor));
        self
    }

    /// What `corbaloc:rir:/NAME` refers to, and with the name `NameService` what `corbaname:rir:#...` is looked up
    /// in; the last one said counts. Names that are not said here are looked for in the environment, in `ORBInitRef`
    /// (`NameService=corbaloc::host/NameService`, several with white space between), as omniORB does.
    #[must_use]
    pub fn initial(mut self, name: &str, address: &str) -> Self {
        self.initial.push((name.to_owned(), address.to_owned()));
        self
    }

    /// The ORB. Its ports are bound; clients are served from [`Orb::ready`] or [`Orb::run`] on. One that serves reports to the CPU broker what its invocations use, if the
    /// environment's `HYOSHI_DELEGATE` says so (`docs/orb.md`).
    ///
    /// # Errors
    ///
    /// If it cannot listen, the system refuses a thread, or `HYOSHI_DELEGATE` cannot be read.
    pub fn build(mut self) -> Result<Orb, OrbError> {
        let rules = |set: Option<TransportRules>, variable| match set {
            Some(rules) => Ok(rules),
            None => TransportRules::from_environment(variable).map_err(|error| OrbError::Transport { variable, error }),
        };
        let client_rules = rules(self.client_transport, "ORBclientTransportRule")?;
        let server_rules = rules(self.server_transport, "ORBserverTransportRule")?;
        let (mut endpoints, mut bound) = (Vec::new(), Vec::new());
        let mut lanes = Vec::new();
        let (tls_supports, tls_requires) = self.tls_server.as_ref().map_or((0, 0), TlsServer::options);
        let incarnation = incarnation();
        let first = self.lanes.first().map(|(options, _)| options.clone()).unwrap_or_default();
        for (options, listening) in self.lanes {
            let (mut listeners, mut secure) = (Vec::new(), Vec::new());
            for listening in listening {
                let address = &listening.address;
                if listening.secure && self.tls_server.is_none() {
                    return Err(OrbError::NoCertificate(address.clone()));
                }
                let listener =
                    Listener::bind(address).map_err(|error| OrbError::Listen { address: address.clone(), error })?;
                if let hyoshi_os::SocketAddress::Tcp(address) = listener.address() {
                    bound.push(*address);
                }
                endpoints.push(listening.advertise(listener.address(), self.advertised.as_deref(), tls_requires));
                if listening.secure { secure.push(listener) } else { listeners.push(listener) }
            }
            if !listeners.is_empty() || !secure.is_empty() {
                lanes.push((options, listeners, secure));
            }
        }
        if !lanes.is_empty() {
            hyoshi_os::raise_file_limit();
        }
        if self.offers_bidirectional {
            if endpoints.iter().all(|endpoint| matches!(endpoint, IorEndpoint::Unix { .. })) {
                endpoints.push(bidir::way_back(incarnation));
            }
            if lanes.is_empty() {
                lanes.push((first, Vec::new(), Vec::new()));
            }
        }
        // Calls within the process count for their callers: delegates see those from outside.
        let intercepted = !self.server_interceptors.is_empty() || !self.client_interceptors.is_empty();
        if !lanes.is_empty()
            && let Some(said) = hyoshi_os::secure_var_os(delegate::VARIABLE)
        {
            let settings = Settings::parse(&said.to_string_lossy()).map_err(OrbError::Delegate)?;
            let delegate = Delegate::start(settings, resolve_as_client).map_err(OrbError::System)?;
            self.server_interceptors.insert(0, Arc::new(delegate));
        }
        let care = Arc::new(Care::default());
        let shared = Arc::new(Shared {
            adapters: Adapters::new(incarnation),
            peers: Peers::new(self.client, care.clone(), self.tls_client, self.tls_only, client_rules),
            server_rules,
            server: self.server,
            timeouts: self.timeouts,
            scope: self.scope,
            collocation: !(self.never_collocates || intercepted),
            server_interceptors: self.server_interceptors.into(),
            client_interceptors: self.client_interceptors.into(),
            care,
            is_ordered: self.order.is_some() && !lanes.is_empty(),
            initial: self.initial.into(),
            endpoints,
            bound,
            tls_supports,
            stopped: AtomicBool::new(false),
        });
        // A thread that begins is an ordinary one at first, which may never run beside those of a real-time lane.
        let all_at_once = lanes.iter().any(|(options, ..)| matches!(options.policy, ThreadPolicy::Fifo(_)));
        let lanes: io::Result<Vec<_>> = lanes
            .into_iter()
            .map(|(options, listeners, secure)| {
                let lane = Lane::new(
                    Arc::downgrade(&shared),
                    options,
                    listeners,
                    &shared.server,
                    self.claims,
                    self.order.clone(),
                )?;
                if self.claims.is_some() {
                    lane.carry_both()?;
                }
                lane.start(all_at_once)?;
                if let Some(tls) = &self.tls_server {
                    lane.secure(secure, tls, &shared.server)?;
                }
                Ok(lane)
            })
            .collect();
        let lanes = lanes.map_err(OrbError::System)?;
        if let (true, Some(lane)) = (self.offers_bidirectional, lanes.first())
            && let Some(context) = bidir::context(&shared.endpoints)
        {
            lane.carry_both().map_err(OrbError::System)?;
            shared.peers.offer(Offer { lane: Box::new(lane.clone()), context: context.into() });
        }
        let due = Instant::now() + OPENS_WITHIN;
        let running = Running { shared, lanes, due, opened: AtomicBool::new(false), ended: Wake::new() };
        let running = Arc::new(Handle(Arc::new(running)));
        housekeeping::start(&running.0).map_err(OrbError::System)?;
        Ok(Orb { running })
    }
}

impl fmt::Debug for OrbBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrbBuilder").field("lanes", &self.lanes).field("server", &self.server).finish()
    }
}

/// For delegates, which call the broker.
fn resolve_as_client(address: &str, timeouts: Timeouts) -> Result<(Box<dyn Any>, ObjectRef), String> {
    let orb = Orb::builder().timeouts(timeouts).build().map_err(|error| error.to_string())?;
    let object = orb.resolve_unchecked::<dyn Object>(address).map_err(|exception| exception.to_string())?;
    Ok((Box::new(orb), object))
}

/// A number that no other run of a server has, for all that is probable.
fn incarnation() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
    RandomState::new().hash_one((since, std::process::id()))
}
