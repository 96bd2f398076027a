//! The ORB: what holds endpoints, adapters and connections together.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hyoshi_os::{Stream, Wake};
use hyoshi_wire::giop::CodeSets;
use hyoshi_wire::ior::{Component, Endpoint, Ior, Profile, SslTransport};
use hyoshi_wire::tagged::Tagged;
use hyoshi_wire::{SystemException, SystemKind, Version};

use crate::adapter::{AdapterBuilder, AdapterError, Adapters};
use crate::bidir::reaches;
use crate::builder::{OrbBuilder, OrbError};
use crate::care::Care;
use crate::client::Peers;
use crate::intercept::{ClientInterceptor, ServerInterceptor};
use crate::interface::Interface;
use crate::limits::{Scope, ServerLimits, Timeouts};
use crate::reference::Reference;
use crate::server::Lane;
use crate::transport::{Transport, TransportRules};
use crate::{minor, resolve};

/// `HYO\0`: tells other ORBs of this kind what a reference is from (component 0, TAG_ORB_TYPE).
const ORB_TYPE: u32 = 0x4859_4f00;

/// An ORB: makes objects callable from elsewhere, and calls those of others. Cloning it gives the same one.
#[derive(Clone)]
pub struct Orb {
    /// The last handle that goes ends the ORB.
    shared: Arc<Handle>,
}

struct Handle(Arc<Shared>);

impl std::ops::Deref for Handle {
    type Target = Arc<Shared>;

    fn deref(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.shutdown();
    }
}

/// What all parts of an ORB share. Only what is fixed when it is built is used on the way of a request.
pub(crate) struct Shared {
    pub(crate) adapters: Adapters,
    pub(crate) peers: Peers,
    pub(crate) server: ServerLimits,
    /// The rules for incoming connections.
    pub(crate) server_rules: TransportRules,
    pub(crate) timeouts: Timeouts,
    pub(crate) scope: Scope,
    pub(crate) collocation: bool,
    pub(crate) server_interceptors: Box<[Arc<dyn ServerInterceptor>]>,
    pub(crate) client_interceptors: Box<[Arc<dyn ClientInterceptor>]>,
    pub(crate) care: Arc<Care>,
    /// What `rir:` means: names, and addresses.
    pub(crate) initial: Box<[(String, String)]>,
    pub(crate) lanes: OnceLock<Vec<Arc<Lane>>>,
    pub(crate) endpoints: Vec<Endpoint>,
    /// What is bound, whatever references call it.
    pub(crate) bound: Vec<SocketAddr>,
    /// What references say that endpoints over TLS can do.
    pub(crate) tls_supports: u16,
    /// The deadline to start serving; see [`Orb::ready`].
    pub(crate) due: Instant,
    pub(crate) opened: AtomicBool,
    pub(crate) stopped: AtomicBool,
    pub(crate) ended: Wake,
}

impl Orb {
    pub(crate) fn of(shared: Arc<Shared>) -> Self {
        Orb { shared: Arc::new(Handle(shared)) }
    }

    /// One with settings.
    pub fn builder() -> OrbBuilder {
        OrbBuilder::new()
    }

    /// One that only calls.
    ///
    /// # Errors
    ///
    /// If the system has no thread left.
    pub fn client() -> Result<Orb, OrbError> {
        Orb::builder().build()
    }

    /// Begins an adapter. Its objects end with this run of the program, unless it is made
    /// [`persistent`](AdapterBuilder::persistent).
    pub fn adapter(&self, name: &str) -> AdapterBuilder {
        AdapterBuilder::new(self.shared.0.clone(), name)
    }

    /// Where it listens, as its references tell it. One that listens nowhere and is to be called all the same
    /// ([`offer_bidirectional`](OrbBuilder::offer_bidirectional)) has a name there that it made up.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.shared.endpoints
    }

    /// Makes an object known by a key of people's choice: `corbaloc:iiop:host:port/KEY`. An object of another server
    /// is known too: clients are sent on to it. A key published again means the new object from then on.
    ///
    /// # Errors
    ///
    /// Of a key that begins as those of adapters do.
    pub fn publish<T: Interface + ?Sized>(
        &self,
        key: impl AsRef<[u8]>,
        object: &impl AsRef<Reference<T>>,
    ) -> Result<(), AdapterError> {
        let ior = object.as_ref().ior();
        let own = self.shared.own_key(ior);
        self.shared.adapters.publish(key.as_ref(), ior, own.as_deref())
    }

    /// Takes a published key back.
    pub fn unpublish(&self, key: impl AsRef<[u8]>) {
        self.shared.adapters.unpublish(key.as_ref());
    }

    /// A stub for what `address` says: `IOR:...`, `corbaloc:iiop:host:port/Key`, `corbaname::host#plant/tracker`
    /// (the naming service is asked), or `file:path` of a file with one of them. The object is asked whether it has
    /// the interface.
    ///
    /// # Errors
    ///
    /// INV_OBJREF if the text is none of them, or nothing is bound to the name; BAD_PARAM if the object has another interface; or why it cannot be
    /// asked.
    pub fn resolve<T: Interface + ?Sized>(&self, address: &str) -> Result<T::Stub, SystemException> {
        let reference = self.reference::<T>(address)?;
        if reference.is_a(T::ID)? {
            return Ok(reference.into());
        }
        Err(SystemKind::BadParam.not_done(minor::WRONG_INTERFACE))
    }

    /// The same without asking: nothing is sent, except to the naming service of a corbaname.
    ///
    /// # Errors
    ///
    /// INV_OBJREF if the text is none of them.
    pub fn resolve_unchecked<T: Interface + ?Sized>(&self, address: &str) -> Result<T::Stub, SystemException> {
        self.reference::<T>(address).map(Into::into)
    }

    fn reference<T: Interface + ?Sized>(&self, address: &str) -> Result<Reference<T>, SystemException> {
        Ok(Reference::new(&self.shared, resolve::resolve(&self.shared, address)?))
    }

    /// A stub for a reference that came by other ways.
    pub fn stub<T: Interface + ?Sized>(&self, ior: Ior) -> T::Stub {
        Reference::new(&self.shared, ior).into()
    }

    /// Sends the oneways that were put off ([`Scope::None`]).
    pub fn flush(&self) {
        self.shared.peers.each(|peer| peer.flush());
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared.0
    }

    /// Serves clients from now on. Call it when the objects are activated and published: a client that asks earlier
    /// would get OBJECT_NOT_EXIST, which is final. [`build`](OrbBuilder::build) has already bound the ports, so
    /// clients can connect before; they wait in the kernel's queue of the port. Further calls do nothing.
    ///
    /// If a program listens and calls neither this nor [`run`](Self::run) within 5 s, the ORB warns on standard error.
    pub fn ready(&self) {
        self.shared.open();
    }

    /// Serves clients ([`ready`](Self::ready)), and returns when the ORB is shut down.
    pub fn run(&self) {
        self.ready();
        while !self.shared.is_stopped() {
            self.shared.ended.wait();
        }
        self.shared.ended.post();
        // A servant that ends the ORB has yet to reply.
        let until = self.shared.end_of_patience();
        for lane in self.shared.lanes() {
            lane.wait_for_threads(until);
        }
    }

    /// Takes no further request, waits for those that run, and closes all connections in the orderly way. Called by
    /// a servant it does not wait for that servant's thread.
    ///
    /// It returns in any case: requests that still run after [`ServerLimits::ending`] are left to themselves, and oneways that were
    /// put off ([`Scope::None`]) and that servers have not taken by then are lost. Connections to
    /// other ORBs are closed then, so that servants which wait for a reply get COMM_FAILURE, and have one second more;
    /// what they reply reaches nobody. Dropping the last handle of an ORB does the same.
    pub fn shutdown(&self) {
        self.shared.shutdown();
    }
}

impl fmt::Debug for Orb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.0.fmt(f)
    }
}

impl Shared {
    pub(crate) fn lanes(&self) -> &[Arc<Lane>] {
        self.lanes.get().map_or(&[], Vec::as_slice)
    }

    /// Whether the transport rules allow this connection, which was just accepted.
    pub(crate) fn lets_in(&self, stream: &Stream, secure: bool) -> bool {
        let address = if self.server_rules.is_empty() { None } else { stream.peer_address() };
        let transport = match (secure, address) {
            (true, _) => Transport::Tls,
            (false, Some(_)) => Transport::Tcp,
            (false, None) => Transport::Unix,
        };
        self.server_rules.is_empty() || self.server_rules.allow(transport, address.map(|address| address.ip()))
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// A reference to an object of this ORB: a profile for TCP, and Unix sockets and TLS as components, as omniORB has
    /// them. TLS has no host of its own there: a further profile names another.
    pub(crate) fn reference(&self, id: &str, key: &[u8]) -> Ior {
        let mut parts = vec![Component::OrbType(ORB_TYPE), Component::CodeSets(CodeSets::ours())];
        let mut first: Option<(&str, u16)> = None;
        let mut secure = Vec::new();
        for endpoint in &self.endpoints {
            match endpoint {
                Endpoint::Tcp { host, port, .. } if first.is_none() => first = Some((host, *port)),
                Endpoint::Tcp { host, port, .. } => parts.push(Component::AlternateAddress { host, port: *port }),
                Endpoint::Unix { host, path } => parts.push(Component::OmniUnix { host, path }),
                Endpoint::Tls { host, port, requires } => {
                    let ssl = SslTransport { supports: self.tls_supports, requires: *requires, port: *port };
                    secure.push((host.as_str(), Component::Ssl(ssl)));
                }
            }
        }
        // Without TCP the profile is there for its components: port 0, and the host of TLS, whose component has none, while
        // the Unix socket's has its own. So omniORB, which reads the first profile alone, finds both.
        let here = || match (secure.first(), self.endpoints.first()) {
            (Some((host, _)), _) => *host,
            (None, Some(Endpoint::Unix { host, .. })) => host.as_str(),
            _ => "",
        };
        let (host, port) = first.unwrap_or_else(|| (here(), 0));
        let common: Vec<_> = parts[..2].to_vec();
        if let Some(at) = secure.iter().position(|(at, _)| *at == host) {
            parts.push(secure.remove(at).1);
        }
        let profile = |host: &str, port, parts: &[Component<'_>]| {
            let data: Vec<_> = parts.iter().filter_map(|part| Some((part.tag(), part.data().ok()?))).collect();
            let components: Vec<_> = data.iter().map(|(tag, data)| Tagged { tag: *tag, data }).collect();
            // Cannot fail: a host with a NUL could not have been bound. Without endpoints nobody can call from outside.
            Profile::iiop(Version::V1_2, host, port, key, &components).ok()
        };
        let mut profiles = Vec::from_iter(profile(host, port, &parts));
        for (host, ssl) in secure {
            profiles.extend(profile(host, 0, &[&common[..], &[ssl]].concat()));
        }
        Ior { type_id: id.to_owned(), profiles }
    }

    /// The key, if the reference is to an object of an adapter of this very ORB.
    pub(crate) fn own_key(&self, ior: &Ior) -> Option<Vec<u8>> {
        self.key_here(ior).filter(|key| self.adapters.adapter(key).is_ok())
    }

    /// The key, if the reference leads to this very ORB.
    pub(crate) fn key_here(&self, ior: &Ior) -> Option<Vec<u8>> {
        ior.iiop().flatten().find_map(|profile| {
            let own = profile.endpoints().iter().any(|endpoint| self.is_own(endpoint))
                || (self.endpoints.is_empty() && profile.port == 0);
            own.then(|| profile.key.to_vec())
        })
    }

    fn is_own(&self, endpoint: &Endpoint) -> bool {
        let same = |host: &str, named: &str, port| {
            let is_bound = |bound: &SocketAddr| bound.port() == port && reaches(named, bound.ip());
            host.eq_ignore_ascii_case(named) || self.bound.iter().any(is_bound)
        };
        self.endpoints.iter().any(|own| match (own, endpoint) {
            // A corbaloc contains neither a TLS server's requirements nor a priority.
            (Endpoint::Tls { host, port, .. }, Endpoint::Tls { host: named, port: at, .. })
            | (Endpoint::Tcp { host, port, .. }, Endpoint::Tcp { host: named, port: at, .. }) => {
                port == at && same(host, named, *port)
            }
            _ => own == endpoint,
        })
    }

    fn open(&self) {
        if !self.is_stopped() && !self.opened.swap(true, Ordering::AcqRel) {
            self.lanes().iter().for_each(|lane| lane.open());
        }
    }

    /// When to check whether the ORB was opened; `None` if it was, or has nothing to open.
    pub(crate) fn opening_due(&self) -> Option<Instant> {
        let closed = !self.opened.load(Ordering::Acquire) && self.lanes().iter().any(|lane| lane.listens());
        closed.then_some(self.due)
    }

    /// When nobody waits any more for requests that run, if the end begins now.
    fn end_of_patience(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(Duration::from_nanos(self.server.ending.as_nanos()))
            .unwrap_or(now + Duration::from_secs(1 << 30))
    }

    fn shutdown(&self) {
        if self.stopped.swap(true, Ordering::AcqRel) {
            return;
        }
        self.adapters.let_go();
        let mut until = self.end_of_patience();
        // Some of it goes over connections of the lanes.
        self.peers.try_flush();
        self.lanes().iter().for_each(|lane| lane.close_door());
        let all_ended = |until| self.lanes().iter().all(|lane| lane.wait_for_threads(until));
        let ended = all_ended(until);
        self.peers.close(until);
        if !ended {
            // They may wait for a peer that says nothing.
            self.peers.each(|peer| peer.abandon());
            until = Instant::now() + Duration::from_secs(1);
            all_ended(until);
        }
        self.lanes().iter().for_each(|lane| lane.close_rest());
        self.adapters.end(Some(until));
        self.care.end();
        self.ended.post();
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Orb").field("endpoints", &self.endpoints).field("adapters", &self.adapters).finish()
    }
}
