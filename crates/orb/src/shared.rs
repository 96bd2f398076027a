//! State shared by all parts of an ORB, and the ORB of references that a thread decodes.

use std::cell::RefCell;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use hyoshi_os::SocketStream;
use hyoshi_os::priority::LANES;
use hyoshi_wire::Version;
use hyoshi_wire::giop::CodeSets;
use hyoshi_wire::ior::{Component, Ior, IorEndpoint, Profile, SslTransport, TAG_POLICIES, TaoEndpoint};
use hyoshi_wire::tagged::Tagged;

use crate::bidir::reaches;
use crate::client::Peers;
use crate::housekeeping::Housekeeping;
use crate::intercept::{ClientInterceptor, ServerInterceptor};
use crate::limits::{ServerLimits, SyncScope, Timeouts};
use crate::objects::Adapters;
use crate::rt::{AdapterRt, RtSettings};
use crate::transport::{Transport, TransportRules};

/// `HYO\0`: this ORB, in references (component 0, TAG_ORB_TYPE).
const ORB_TYPE: u32 = 0x4859_4f00;

/// The state that all parts of an ORB share. Requests use only the parts that do not change.
pub(crate) struct Shared {
    pub(crate) adapters: Adapters,
    pub(crate) peers: Peers,
    pub(crate) server: ServerLimits,
    /// The rules for incoming connections.
    pub(crate) server_rules: TransportRules,
    pub(crate) timeouts: Timeouts,
    pub(crate) scope: SyncScope,
    /// Its calls carry their timing in the form of TAO's Kokyu schedulers.
    pub(crate) kokyu_timing: bool,
    /// Requests of distributable threads have an entry in the registry.
    pub(crate) tracks_threads: bool,
    pub(crate) collocation: Collocation,
    pub(crate) server_interceptors: Box<[Arc<dyn ServerInterceptor>]>,
    pub(crate) client_interceptors: Box<[Arc<dyn ClientInterceptor>]>,
    pub(crate) housekeeping: Arc<Housekeeping>,
    /// Whether the program has set an order for requests.
    pub(crate) is_ordered: bool,
    /// The initial references of `rir:`: names and addresses.
    pub(crate) initial: Box<[(String, String)]>,
    pub(crate) endpoints: Vec<IorEndpoint>,
    /// The bound endpoints, independent of their names in references.
    pub(crate) bound: Vec<SocketAddr>,
    /// The association options that TLS endpoints support, for references.
    pub(crate) tls_supports: u16,
    pub(crate) stopped: AtomicBool,
    /// Connections of clients that were closed or not accepted, so that there is room for others.
    pub(crate) refused: Arc<AtomicU64>,
    pub(crate) rt: RtSettings,
}

/// Which calls within the process call the servant directly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Collocation {
    /// Those to objects of an adapter without a thread pool, and those from a thread of the right lane.
    #[default]
    SameLane,
    /// All.
    Direct,
    /// None.
    Never,
}

thread_local! {
    /// The ORB of references that this thread decodes.
    static ORB: RefCell<Weak<Shared>> = const { RefCell::new(Weak::new()) };
}

/// References that this thread decodes from now on belong to this ORB.
#[inline]
pub(crate) fn use_orb(orb: &Arc<Shared>) {
    ORB.with_borrow_mut(|own| {
        if own.as_ptr() != Arc::as_ptr(orb) {
            *own = Arc::downgrade(orb);
        }
    });
}

/// The ORB of references that this thread decodes.
pub(crate) fn used_orb() -> Option<Arc<Shared>> {
    ORB.with_borrow(Weak::upgrade)
}

impl Shared {
    /// Whether the transport rules allow this connection, which was just accepted.
    pub(crate) fn lets_in(&self, stream: &SocketStream, secure: bool) -> bool {
        if self.server_rules.is_empty() {
            return true;
        }
        let address = stream.peer_address().map(|address| address.ip());
        let transport = match (secure, address) {
            (true, _) => Transport::Tls,
            (false, Some(_)) => Transport::Tcp,
            (false, None) => Transport::Unix,
        };
        self.server_rules.allow(transport, address)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// A reference to an object of this ORB: a profile for TCP, with Unix sockets and TLS as components, as in omniORB. A TLS
    /// component has no host, so TLS at another host has a profile of its own.
    ///
    /// If the adapter has policies of Real-time CORBA, their component follows, and TAO's of endpoints with priorities.
    /// Without lanes the latter has one endpoint only, of priority -1: a TAO client uses none of several such endpoints.
    pub(crate) fn reference(&self, id: &str, key: &[u8], rt: Option<&AdapterRt>, object_id: &[u8]) -> Ior {
        let mut parts = vec![Component::OrbType(ORB_TYPE), Component::CodeSets(CodeSets::ours())];
        let policies = rt.and_then(|rt| rt.policies(object_id));
        parts.extend(policies.as_ref().map(|data| Component::Other(Tagged { tag: TAG_POLICIES, data })));
        let common = parts.len();
        let of_pool = rt.and_then(|rt| rt.endpoints(object_id));
        let endpoints = of_pool.as_deref().unwrap_or(&self.endpoints);
        let tao: Vec<_> = endpoints.iter().filter_map(tao_endpoint).collect();
        let has_lanes = tao.iter().any(|endpoint| endpoint.priority >= 0);
        if rt.is_some() && !tao.is_empty() {
            let shown = if has_lanes { tao.len() } else { 1 };
            parts.push(Component::TaoEndpoints(tao[..shown].to_vec()));
        }
        let mut first: Option<(&str, u16)> = None;
        let mut secure = Vec::new();
        for endpoint in endpoints {
            match endpoint {
                IorEndpoint::Tcp { host, port, .. } if first.is_none() => first = Some((host, *port)),
                // Other lanes are no substitute for the right one.
                IorEndpoint::Tcp { .. } if has_lanes => {}
                IorEndpoint::Tcp { host, port, .. } => parts.push(Component::AlternateAddress { host, port: *port }),
                IorEndpoint::Unix { host, path } => parts.push(Component::OmniUnix { host, path }),
                IorEndpoint::Tls { host, port, requires } => {
                    let ssl = SslTransport { supports: self.tls_supports, requires: *requires, port: *port };
                    secure.push((host.as_str(), Component::Ssl(ssl)));
                }
            }
        }
        // Without TCP the profile only has the components: its port is 0, and its host that of TLS. So omniORB, which reads
        // only the first profile, finds both TLS and the Unix socket, whose component has a host.
        let here = || match (secure.first(), endpoints.first()) {
            (Some((host, _)), _) => *host,
            (None, Some(IorEndpoint::Unix { host, .. })) => host.as_str(),
            _ => "",
        };
        let (host, port) = first.unwrap_or_else(|| (here(), 0));
        let common: Vec<_> = parts[..common].to_vec();
        if let Some(at) = secure.iter().position(|(at, _)| *at == host) {
            parts.push(secure.remove(at).1);
        }
        let profile = |host: &str, port, parts: &[Component<'_>]| {
            let data: Vec<_> = parts.iter().filter_map(|part| Some((part.tag(), part.data().ok()?))).collect();
            let components: Vec<_> = data.iter().map(|(tag, data)| Tagged { tag: *tag, data }).collect();
            // Cannot fail: a host with a NUL could not have been bound.
            Profile::iiop(Version::V1_2, host, port, key, &components).ok()
        };
        let mut profiles = Vec::from_iter(profile(host, port, &parts));
        for (host, ssl) in secure {
            profiles.extend(profile(host, 0, &[&common[..], &[ssl]].concat()));
        }
        Ior { type_id: id.to_owned(), profiles }
    }

    /// The key, if the reference is to an object of an adapter of this ORB.
    pub(crate) fn own_key(&self, ior: &Ior) -> Option<Vec<u8>> {
        self.key_here(ior).filter(|key| self.adapters.adapter(key).is_ok())
    }

    /// The key, if the reference has an endpoint of this ORB.
    pub(crate) fn key_here(&self, ior: &Ior) -> Option<Vec<u8>> {
        ior.iiop().flatten().find_map(|profile| {
            let own = profile.endpoints().iter().any(|endpoint| self.is_own(endpoint))
                || (self.endpoints.is_empty() && profile.port == 0);
            own.then(|| profile.key.to_vec())
        })
    }

    fn is_own(&self, endpoint: &IorEndpoint) -> bool {
        is_among(endpoint, &self.endpoints, &self.bound) || self.rt.has_endpoint(endpoint)
    }

    /// An adapter with these policies exists from now on: the housekeeping thread must run above its requests.
    pub(crate) fn outrank(&self, policies: &AdapterRt) {
        if policies.model.is_some() {
            self.housekeeping.outrank(*LANES.end());
        }
    }
}

/// How TAO names an endpoint.
fn tao_endpoint(endpoint: &IorEndpoint) -> Option<TaoEndpoint<'_>> {
    match endpoint {
        IorEndpoint::Tcp { host, port, priority } => {
            Some(TaoEndpoint { host, port: *port, priority: priority.unwrap_or(-1) })
        }
        IorEndpoint::Tls { .. } | IorEndpoint::Unix { .. } => None,
    }
}

/// Whether an endpoint is one of `all`, which are bound to these addresses, under any name.
pub(crate) fn is_among(endpoint: &IorEndpoint, all: &[IorEndpoint], bound: &[SocketAddr]) -> bool {
    let same = |host: &str, named: &str, port| {
        let is_bound = |bound: &SocketAddr| bound.port() == port && reaches(named, bound.ip());
        host.eq_ignore_ascii_case(named) || bound.iter().any(is_bound)
    };
    all.iter().any(|own| match (own, endpoint) {
        // A corbaloc contains neither a TLS server's requirements nor a priority.
        (IorEndpoint::Tls { host, port, .. }, IorEndpoint::Tls { host: named, port: at, .. })
        | (IorEndpoint::Tcp { host, port, .. }, IorEndpoint::Tcp { host: named, port: at, .. }) => {
            port == at && same(host, named, *port)
        }
        _ => own == endpoint,
    })
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Orb").field("endpoints", &self.endpoints).field("adapters", &self.adapters).finish()
    }
}
