//! The settings of an ORB: endpoints and their lanes, limits, interceptors.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Instant;

use arc_swap::ArcSwap;
use hyoshi_os::{TcpProperties, ThreadPolicy, Wake};
use hyoshi_wire::ior::IorEndpoint;

use super::lanes::{LaneMaker, LanePlaces};
use super::{Handle, OPENS_WITHIN, Orb, Running, housekeeping};
use crate::bidir::{self, Claims};
use crate::client::{BidirOffer, Peers};
use crate::delegate::{self, Delegate, Settings};
use crate::endpoint::{ListenError, Listening};
use crate::housekeeping::Housekeeping;
use crate::intercept::{ClientInterceptor, ServerInterceptor};
use crate::interface::Object;
use crate::limits::{ClientLimits, ServerLimits, SyncScope, Timeouts};
use crate::objects::Adapters;
use crate::rt::{
    self, ClientPolicies, NetworkPriorityMapping, PriorityCeilings, PriorityMapping, PriorityTransform, RtSettings,
};
use crate::server::{LaneOptions, Order};
use crate::shared::{Collocation, Shared};
use crate::tls::{TlsClient, TlsError, TlsServer};
use crate::transport::{TransportRuleError, TransportRules};

/// The settings of an ORB ([`Orb::builder`]).
#[must_use]
#[derive(Default)]
pub struct OrbBuilder {
    lanes: Vec<(LaneOptions, Vec<Listening>)>,
    advertised: Option<String>,
    tls_server: Option<TlsServer>,
    tls_client: Option<TlsClient>,
    tls_only: bool,
    client_transport: Option<TransportRules>,
    server_transport: Option<TransportRules>,
    server: ServerLimits,
    client: ClientLimits,
    timeouts: Timeouts,
    scope: SyncScope,
    offers_bidirectional: bool,
    claims: Option<Claims>,
    order: Option<(Arc<dyn Order>, usize)>,
    kokyu_timing: bool,
    untracked_threads: bool,
    collocation: Collocation,
    mapping: Option<Arc<dyn PriorityMapping>>,
    transform: Option<Arc<dyn PriorityTransform>>,
    network: Option<Arc<dyn NetworkPriorityMapping>>,
    client_policies: ClientPolicies,
    server_tcp: TcpProperties,
    ceilings: Option<PriorityCeilings>,
    server_interceptors: Vec<Arc<dyn ServerInterceptor>>,
    client_interceptors: Vec<Arc<dyn ClientInterceptor>>,
    initial: Vec<(String, String)>,
}

/// The reason why an ORB could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum OrbError {
    /// It cannot listen at an address.
    Listen {
        /// The address.
        address: hyoshi_os::SocketAddress,
        /// The system's error.
        error: io::Error,
    },
    /// An endpoint over TLS without [`OrbBuilder::tls_server`].
    NoCertificate(hyoshi_os::SocketAddress),
    /// A mistake in the environment's `HYOSHI_DELEGATE`, with a remedy.
    Delegate(String),
    /// A variable of the environment, and the mistake in its transport rules.
    Transport(&'static str, TransportRuleError),
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
            OrbError::Transport(variable, error) => write!(f, "the environment's {variable}: {error}"),
            OrbError::System(error) => write!(f, "the system refused a thread or a file descriptor: {error}"),
        }
    }
}

impl std::error::Error for OrbError {}

impl OrbBuilder {
    /// Listens at an endpoint: `iiop://host:port` (the system chooses a port for 0; IPv6 addresses are in brackets),
    /// `ssliop://host:port` for TLS, or `unix:/path`. It belongs to the last lane. Fails if the text is not an endpoint.
    pub fn listen(mut self, endpoint: &str) -> Result<Self, ListenError> {
        let listening = Listening::parse(endpoint)?;
        match self.lanes.last_mut() {
            Some((_, endpoints)) => endpoints.push(listening),
            None => self.lanes.push((LaneOptions::default(), vec![listening])),
        }
        Ok(self)
    }

    /// Begins a lane, with threads of its own for the endpoints that follow. Earlier endpoints belong to a lane with default
    /// options.
    pub fn lane(mut self, options: LaneOptions) -> Self {
        match self.lanes.last_mut() {
            // The last lane has no endpoints.
            Some((last, endpoints)) if endpoints.is_empty() => *last = options,
            _ => self.lanes.push((options, Vec::new())),
        }
        self
    }

    /// The host in references, instead of that of the endpoint.
    pub fn advertise(mut self, host: &str) -> Self {
        self.advertised = Some(host.to_owned());
        self
    }

    /// The certificate of `ssliop://` endpoints, and those that clients need.
    pub fn tls_server(mut self, tls: TlsServer) -> Self {
        self.tls_server = Some(tls);
        self
    }

    /// The trusted authorities of its calls over TLS, and its own certificate. If a reference offers TLS, calls never use
    /// plain TCP.
    /// Fails as [`TlsClient::check`] does.
    pub fn tls_client(mut self, tls: TlsClient) -> Result<Self, TlsError> {
        tls.check()?;
        self.tls_client = Some(tls);
        Ok(self)
    }

    /// Its calls never use plain TCP, as with [`TlsClient::only`], even without settings for TLS: then they use only
    /// Unix sockets.
    pub fn tls_only(mut self) -> Self {
        self.tls_only = true;
        self
    }

    /// The transports of its calls, by address; by default those of the environment's `ORBclientTransportRule`.
    pub fn client_transport(mut self, rules: TransportRules) -> Self {
        self.client_transport = Some(rules);
        self
    }

    /// The transports of connections that it accepts, by address; by default those of the environment's
    /// `ORBserverTransportRule`. Other connections are closed at once.
    pub fn server_transport(mut self, rules: TransportRules) -> Self {
        self.server_transport = Some(rules);
        self
    }

    /// Bounds on the resources that clients can use.
    pub fn server_limits(mut self, limits: ServerLimits) -> Self {
        self.server = limits;
        self
    }

    /// Bounds on its client side.
    pub fn client_limits(mut self, limits: ClientLimits) -> Self {
        self.client = limits;
        self
    }

    /// Time limits of its calls.
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// When calls of oneways return.
    pub fn oneways(mut self, scope: SyncScope) -> Self {
        self.scope = scope;
        self
    }

    /// Offers servers to call its objects over the connections that it opens to them (bidirectional GIOP, CORBA's policy
    /// BOTH): one to each endpoint, which all calls share. Threads of the first lane serve such calls. An ORB that listens
    /// nowhere can be called only in this way.
    pub fn offer_bidirectional(mut self) -> Self {
        self.offers_bidirectional = true;
        self
    }

    /// Accepts such offers: calls to a client's objects use the connection that it opened, if their address is one that it
    /// announced and `claims` allows.
    pub fn accept_bidirectional(mut self, claims: Claims) -> Self {
        self.claims = Some(claims);
        self
    }

    /// `order` decides when and on which thread requests to bound objects run
    /// ([`Adapter::activate_ordered`](crate::Adapter::activate_ordered)). Each lane holds at most `requests` read and
    /// unanswered requests, and of one connection at most [`ServerLimits::in_flight`]. While several clients are
    /// connected, each has at most as many places as remain free. Above these limits, connections are not
    /// read. Calls within the process go to the servant directly.
    pub fn order(mut self, order: impl Order + 'static, requests: usize) -> Self {
        self.order = Some((Arc::new(order), requests));
        self
    }

    /// Whether calls to objects of this ORB call the servant directly. By default they do, except that calls to an object
    /// of a thread pool run on its lane, unless the caller runs there. With `direct` these are direct, too. With
    /// interceptors no call is direct.
    pub fn collocation(mut self, direct: bool) -> Self {
        self.collocation = if direct { Collocation::Direct } else { Collocation::Never };
        self
    }

    /// Maps CORBA priorities to native ones; default [`LinearMapping`](crate::rt::LinearMapping).
    pub fn priority_mapping(mut self, mapping: impl PriorityMapping + 'static) -> Self {
        self.mapping = Some(Arc::new(mapping));
        self
    }

    /// Changes the priorities of requests as they arrive and leave.
    pub fn priority_transform(mut self, transform: impl PriorityTransform + 'static) -> Self {
        self.transform = Some(Arc::new(transform));
        self
    }

    /// Maps CORBA priorities to classes of packets (DSCP). Requests to objects with a priority model use a connection of
    /// the class of their priority, and lanes of thread pools reply with the class of theirs. By default packets have no
    /// class.
    pub fn network_priority(mut self, mapping: impl NetworkPriorityMapping + 'static) -> Self {
        self.network = Some(Arc::new(mapping));
        self
    }

    /// Which connections carry its requests.
    pub fn client_policies(mut self, policies: ClientPolicies) -> Self {
        self.client_policies = policies;
        self
    }

    /// Properties of the connections that it accepts over TCP, also with TLS, in all lanes (`ServerProtocolPolicy`).
    /// Clients with a router between cannot connect if `dont_route` is set.
    pub fn server_tcp(mut self, properties: TcpProperties) -> Self {
        self.server_tcp = properties;
        self
    }

    /// The highest priority that each client may claim, in adapters with client-propagated priorities. Without this
    /// setting every client may claim any priority.
    pub fn priority_ceilings(mut self, ceilings: PriorityCeilings) -> Self {
        self.ceilings = Some(ceilings);
        self
    }

    /// Its calls carry their timing ([`rt::with_timing`](crate::rt::with_timing)) in the form that TAO's Kokyu schedulers
    /// read: 544 octets in place of 52, and with the date, so the clocks of both machines must agree.
    pub fn kokyu_timing(mut self) -> Self {
        self.kokyu_timing = true;
        self
    }

    /// Requests of distributable threads run without an entry among those of the process
    /// ([`rt::threads`](crate::rt::threads)): for a program that knows its threads itself. A request still has its timing
    /// and its thread's id; a CancelRequest does not reach it. Requests of an [order](OrbBuilder::order) keep their entries.
    pub fn untracked_threads(mut self) -> Self {
        self.untracked_threads = true;
        self
    }

    /// Runs around every incoming request.
    pub fn server_interceptor(mut self, interceptor: impl ServerInterceptor + 'static) -> Self {
        self.server_interceptors.push(Arc::new(interceptor));
        self
    }

    /// Runs around every outgoing request.
    pub fn client_interceptor(mut self, interceptor: impl ClientInterceptor + 'static) -> Self {
        self.client_interceptors.push(Arc::new(interceptor));
        self
    }

    /// The object of `corbaloc:rir:/NAME`; with the name `NameService` also the context for `corbaname:rir:#...`. The last
    /// setting of a name counts. Other names are those of the environment's `ORBInitRef`
    /// (`NameService=corbaloc::host/NameService`, separated by white space), as in omniORB.
    pub fn initial(mut self, name: &str, address: &str) -> Self {
        self.initial.push((name.to_owned(), address.to_owned()));
        self
    }

    /// The ORB. Its ports are bound; [`Orb::ready`] or [`Orb::run`] begins to serve clients. If the environment has
    /// `HYOSHI_DELEGATE`, a server reports the CPU time of its invocations to the CPU broker (`docs/orb.md`).
    ///
    /// # Errors
    ///
    /// If it cannot listen, the system refuses a thread, or `HYOSHI_DELEGATE` cannot be read.
    pub fn build(mut self) -> Result<Orb, OrbError> {
        self.mapping.iter().for_each(|mapping| rt::current::use_mapping(mapping.clone()));
        let rules = |set: Option<TransportRules>, variable| {
            let rules = set.map_or_else(|| TransportRules::from_environment(variable), Ok);
            rules.map_err(|error| OrbError::Transport(variable, error))
        };
        let client_rules = rules(self.client_transport, "ORBclientTransportRule")?;
        let server_rules = rules(self.server_transport, "ORBserverTransportRule")?;
        let (mut endpoints, mut bound) = (Vec::new(), Vec::new());
        let mut lanes = Vec::new();
        let tls_supports = self.tls_server.as_ref().map_or(0, |tls| tls.options().0);
        let beside = self.lanes.iter().find_map(|(_, listening)| listening.first().cloned());
        let maker = LaneMaker {
            advertised: self.advertised,
            tls: self.tls_server,
            tcp: self.server_tcp,
            claims: self.claims,
            order: self.order,
            beside,
        };
        let incarnation = incarnation();
        let first = self.lanes.first().map(|(options, _)| options.clone()).unwrap_or_default();
        for (options, listening) in self.lanes {
            let places = maker.bind(listening)?;
            endpoints.extend(places.endpoints.iter().cloned());
            bound.extend(places.bound.iter().copied());
            if !places.endpoints.is_empty() {
                lanes.push((options, places));
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
                lanes.push((first, LanePlaces::default()));
            }
        }
        // Calls within the process are not measured: a delegate does not turn collocation off.
        let intercepted = !self.server_interceptors.is_empty() || !self.client_interceptors.is_empty();
        if !lanes.is_empty()
            && let Some(text) = hyoshi_os::secure_var_os(delegate::VARIABLE)
        {
            let settings = Settings::parse(&text.to_string_lossy()).map_err(OrbError::Delegate)?;
            let mut own = None;
            let resolve = Box::new(move |broker: &str, timeouts| {
                let orb = match own.take() {
                    Some(orb) => orb,
                    None => Orb::builder().timeouts(timeouts).build().map_err(|error| error.to_string())?,
                };
                own.insert(orb).resolve_unchecked::<dyn Object>(broker).map_err(|error| error.to_string())
            });
            let delegate = Delegate::start(settings, resolve).map_err(OrbError::System)?;
            self.server_interceptors.insert(0, Arc::new(delegate));
        }
        let housekeeping = Arc::<Housekeeping>::default();
        let shared = Arc::new(Shared {
            adapters: Adapters::new(incarnation),
            peers: Peers::new(self.client, housekeeping.clone(), self.tls_client, self.tls_only, client_rules),
            server_rules,
            server: self.server,
            timeouts: self.timeouts,
            scope: self.scope,
            kokyu_timing: self.kokyu_timing,
            tracks_threads: !self.untracked_threads,
            collocation: if intercepted { Collocation::Never } else { self.collocation },
            server_interceptors: self.server_interceptors.into(),
            client_interceptors: self.client_interceptors.into(),
            housekeeping,
            is_ordered: maker.order.is_some() && !lanes.is_empty(),
            initial: self.initial.into(),
            endpoints,
            bound,
            tls_supports,
            stopped: AtomicBool::new(false),
            refused: Arc::default(),
            rt: RtSettings::new(self.mapping, self.transform, self.network, self.client_policies, self.ceilings),
        });
        // A new thread has no real-time priority at first, so it may never run beside those of a real-time lane.
        let all_at_once = lanes.iter().any(|(options, _)| matches!(options.policy, ThreadPolicy::Fifo(_)));
        let make = |(options, places)| maker.make(&shared, options, places, None, all_at_once);
        let lanes = lanes.into_iter().map(make).collect::<io::Result<Vec<_>>>().map_err(OrbError::System)?;
        if let (true, Some(lane)) = (self.offers_bidirectional, lanes.first())
            && let Some(context) = bidir::context(&shared.endpoints)
        {
            lane.carry_both().map_err(OrbError::System)?;
            shared.peers.offer(BidirOffer { lane: Box::new(lane.clone()), context: context.into() });
        }
        let due = Instant::now() + OPENS_WITHIN;
        let running = Running {
            shared,
            lanes: ArcSwap::from_pointee(lanes),
            maker,
            pools: AtomicU32::new(0),
            due,
            opened: AtomicBool::new(false),
            ended: Wake::new(),
        };
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

/// A number that most probably no other run of a server has.
fn incarnation() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
    RandomState::new().hash_one((since, std::process::id()))
}
