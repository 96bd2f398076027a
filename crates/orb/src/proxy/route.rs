//! The servers behind a proxy, and references with its addresses in place of theirs.

use std::net::{IpAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use hyoshi_model::Dscp;
use hyoshi_os::{Listener, PiMutex, Poller, SocketAddress, Spawn, TcpProperties};
use hyoshi_wire::Version;
use hyoshi_wire::ior::{IiopProfile, Ior, IorEndpoint, Profile, TAG_CODE_SETS, TAG_ORB_TYPE, TAG_POLICIES};

use super::{ProxyError, ProxyShared, client};
use crate::endpoint::Listening;
use crate::failure::CallFailure;
use crate::limits::duration;
use crate::stream::MaybeTlsStream;

/// How long an accepting thread rests if the process lacks resources.
const REST: std::time::Duration = std::time::Duration::from_millis(100);

/// The most addresses of a server that are tried.
const ADDRESSES: usize = 8;

/// The addresses of a server, in the order of attempts.
#[derive(Debug)]
pub(super) struct ProxiedServer {
    addresses: Vec<IorEndpoint>,
    source: ServerSource,
}

/// Who names a server. A server must not lead clients to services that they cannot reach themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerSource {
    /// The operator of the proxy: any address.
    Operator,
    /// A reply of a server on loopback: no Unix socket, as it may check the user of the proxy.
    LocalReply,
    /// A reply of another server: no loopback either.
    Reply,
}

impl ProxiedServer {
    /// Of a profile; `None` without a usable address.
    fn of(profile: &IiopProfile<'_>, source: ServerSource) -> Option<ProxiedServer> {
        let usable = |endpoint: &IorEndpoint| match endpoint {
            IorEndpoint::Tcp { .. } => true,
            // A corbaloc has no host: this machine.
            IorEndpoint::Unix { host, .. } => {
                source == ServerSource::Operator && (host.is_empty() || *host == hyoshi_os::host_name())
            }
            IorEndpoint::Tls { .. } => false,
        };
        let addresses: Vec<_> = profile.endpoints().into_iter().filter(usable).take(ADDRESSES).collect();
        (!addresses.is_empty()).then_some(ProxiedServer { addresses, source })
    }

    /// The source of the servers that it names. It resolves names.
    fn named_source(&self) -> ServerSource {
        let is_local = |endpoint: &IorEndpoint| match endpoint {
            IorEndpoint::Unix { .. } => true,
            IorEndpoint::Tcp { host, port, .. } | IorEndpoint::Tls { host, port, .. } => (host.as_str(), *port)
                .to_socket_addrs()
                .is_ok_and(|found| found.map(|address| address.ip()).any(of_this_machine)),
        };
        if self.addresses.iter().any(is_local) { ServerSource::LocalReply } else { ServerSource::Reply }
    }

    /// A new connection.
    pub(super) fn connect(&self, dscp: Option<Dscp>, shared: &ProxyShared) -> Result<MaybeTlsStream, CallFailure> {
        let mut last = CallFailure::HostUnknown;
        let until = std::time::Instant::now() + duration(shared.limits.connect);
        for endpoint in &self.addresses {
            let addresses: Vec<_> = match endpoint {
                IorEndpoint::Unix { path, .. } => vec![SocketAddress::Unix(path.into())],
                IorEndpoint::Tcp { host, port, .. } | IorEndpoint::Tls { host, port, .. } => {
                    let Ok(found) = (host.as_str(), *port).to_socket_addrs() else { continue };
                    let permitted =
                        found.filter(|address| self.source != ServerSource::Reply || !of_this_machine(address.ip()));
                    permitted.take(ADDRESSES).map(SocketAddress::Tcp).collect()
                }
            };
            for address in addresses {
                // One limit for all attempts.
                let patience = until.saturating_duration_since(std::time::Instant::now());
                if patience.is_zero() {
                    break;
                }
                let tcp = TcpProperties::default();
                let connected = MaybeTlsStream::connect(&address, patience, None, dscp, &tcp).and_then(|stream| {
                    stream.write_timeout(Some(duration(shared.limits.stalled)))?;
                    Ok(stream)
                });
                match connected {
                    Ok(stream) => return Ok(stream),
                    Err(error) => last = crate::client::no_connection(&error),
                }
            }
        }
        shared.count(|counts| &counts.unreached);
        Err(last)
    }
}

/// Whether only this machine reaches an address.
fn of_this_machine(address: IpAddr) -> bool {
    address.to_canonical().is_loopback() || address.is_unspecified()
}

/// The object that requests are redirected to.
#[derive(Clone, Debug)]
pub(super) struct Redirection {
    pub(super) server: Arc<ProxiedServer>,
    pub(super) key: Arc<[u8]>,
    /// The highest version that its server understands.
    pub(super) version: Version,
}

impl Redirection {
    pub(super) fn of(ior: &Ior) -> Option<Redirection> {
        ior.iiop().filter_map(Result::ok).find_map(|profile| {
            let server = Arc::new(ProxiedServer::of(&profile, ServerSource::Operator)?);
            Some(Redirection { server, key: profile.key.into(), version: profile.version() })
        })
    }
}

/// The listeners of a proxy, one for each server: keys of several servers may be equal.
#[derive(Debug)]
pub(super) struct Routes {
    /// The first listener's address. Others have another port.
    listening: Listening,
    advertise: Option<String>,
    most: usize,
    listeners: PiMutex<Vec<(Arc<ProxiedServer>, IorEndpoint)>>,
    /// Set with the first listener.
    of_replies: OnceLock<ServerSource>,
    ended: AtomicBool,
    /// Wakes the accepting threads at the end.
    pollers: PiMutex<Vec<Arc<Poller>>>,
}

impl Routes {
    /// `None` if the proxy cannot listen there.
    pub(super) fn new(listening: Listening, advertise: Option<String>, most: usize) -> Option<Routes> {
        let is_tcp = matches!(listening.address, SocketAddress::Tcp(_)) && !listening.secure;
        let (listeners, pollers) = (PiMutex::default(), PiMutex::default());
        let (of_replies, ended) = (OnceLock::new(), AtomicBool::new(false));
        let routes = Routes { listening, advertise, most: most + 1, listeners, of_replies, ended, pollers };
        is_tcp.then_some(routes)
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.pollers.lock().iter().for_each(|poller| poller.poke());
    }
}

/// A reference as clients of the proxy use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForwardPath {
    /// Each profile leads to the proxy.
    Through,
    /// It is unchanged.
    Past,
}

impl ProxyShared {
    /// The reference with addresses of the proxy. Unchanged if the proxy has no way to the object, or no port is left.
    ///
    /// # Errors
    ///
    /// Only for the first reference.
    pub(super) fn through(self: &Arc<Self>, ior: &Ior) -> Result<(Ior, ForwardPath), ProxyError> {
        let mut profiles = Vec::new();
        // Of replies, after the operator's reference.
        let source = self.routes.of_replies.get().copied().unwrap_or(ServerSource::Operator);
        for profile in ior.iiop().filter_map(Result::ok).take(ADDRESSES) {
            let Some(server) = ProxiedServer::of(&profile, source) else { continue };
            if let Some(endpoint) = self.listen(server)?
                && let Some(profile) = replaced(&profile, &endpoint)
            {
                profiles.push(profile);
            }
        }
        if !profiles.is_empty() {
            return Ok((Ior { type_id: ior.type_id.clone(), profiles }, ForwardPath::Through));
        }
        if self.routes.listeners.lock().is_empty() {
            return Err(ProxyError::Unreachable("the object's reference".to_owned()));
        }
        Ok((ior.clone(), ForwardPath::Past))
    }

    /// The proxy's endpoint for a server, which listens from now on. `None` if no further one may, or can.
    fn listen(self: &Arc<Self>, server: ProxiedServer) -> Result<Option<IorEndpoint>, ProxyError> {
        let Routes { listening, advertise, most, listeners, pollers, .. } = &self.routes;
        let mut listeners = listeners.lock();
        // A reference to the proxy itself, from a server that has received one.
        if let Some((_, own)) = listeners.iter().find(|(_, own)| server.addresses.contains(own)) {
            return Ok(Some(own.clone()));
        }
        if let Some((_, endpoint)) = listeners.iter().find(|(known, _)| known.addresses == server.addresses) {
            return Ok(Some(endpoint.clone()));
        }
        let is_first = listeners.is_empty();
        if listeners.len() >= *most {
            return Ok(None);
        }
        let listening = if is_first { listening.clone() } else { listening.beside("") };
        let begin = || {
            let listener = Listener::bind(&listening.address).map_err(ProxyError::Listen)?;
            let endpoint = listening.advertise(listener.address(), advertise.as_deref(), 0);
            let poller = Arc::new(Poller::new().map_err(ProxyError::Listen)?);
            poller.add(&listener, 0, false).map_err(ProxyError::Listen)?;
            Ok((listener, endpoint, poller))
        };
        let (listener, endpoint, poller) = match begin() {
            Ok(begun) => begun,
            Err(error) if is_first => return Err(error),
            Err(_) => return Ok(None),
        };
        if is_first {
            let _ = self.routes.of_replies.set(server.named_source());
        }
        let server = Arc::new(server);
        let (shared, to, waits) = (self.clone(), server.clone(), poller.clone());
        let started = Spawn::new("proxy-accept").spawn(move || accept(&shared, &listener, &to, &waits));
        match started {
            Ok(_) => {}
            Err(error) if is_first => return Err(ProxyError::Thread(error)),
            Err(_) => return Ok(None),
        }
        pollers.lock().push(poller);
        listeners.push((server, endpoint.clone()));
        Ok(Some(endpoint))
    }
}

/// The same profile at another address. It keeps the code sets and policies, and no other address.
fn replaced(profile: &IiopProfile<'_>, endpoint: &IorEndpoint) -> Option<Profile> {
    let IorEndpoint::Tcp { host, port, .. } = endpoint else { return None };
    let kept = [TAG_ORB_TYPE, TAG_CODE_SETS, TAG_POLICIES];
    let components: Vec<_> = profile.components.clone().filter(|one| kept.contains(&one.tag)).collect();
    Profile::iiop(profile.version(), host, *port, profile.key, &components).ok()
}

/// Accepts the clients of a server.
fn accept(shared: &Arc<ProxyShared>, listener: &Listener, server: &Arc<ProxiedServer>, poller: &Poller) {
    while !shared.routes.ended.load(Ordering::Acquire) {
        match listener.accept() {
            Ok(Some(stream)) => client::begin(shared, stream.into(), server),
            Ok(None) => {
                let armed = poller.arm(listener, 0, false);
                if armed.and_then(|()| poller.wait(None)).is_err() {
                    std::thread::sleep(REST);
                }
            }
            // A client that has disconnected, or no descriptor is left.
            Err(error) => {
                if hyoshi_os::MissingResource::of(&error).is_some() {
                    std::thread::sleep(REST);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hyoshi_wire::ior::ObjectUrl;

    use super::*;

    #[test]
    fn only_the_operator_names_unix_sockets() {
        let Ok(ObjectUrl::Corbaloc(corbaloc)) = "corbaloc:omniunix:/run/x:,iiop:localhost:1/key".parse() else {
            panic!("a corbaloc")
        };
        let ior = corbaloc.ior("").unwrap().unwrap();
        let servers = |source| {
            let found = ior.iiop().filter_map(Result::ok).filter_map(|profile| ProxiedServer::of(&profile, source));
            found.flat_map(|server| server.addresses).collect::<Vec<_>>()
        };
        for source in [ServerSource::LocalReply, ServerSource::Reply] {
            assert!(matches!(servers(source)[..], [IorEndpoint::Tcp { .. }]), "{:?}", servers(source));
        }
        let all = servers(ServerSource::Operator);
        assert!(matches!(all[..], [IorEndpoint::Unix { .. }, IorEndpoint::Tcp { .. }]), "{all:?}");
    }

    #[test]
    fn servers_on_loopback_name_servers_on_loopback_and_others_do_not() {
        let named = |address: &str| {
            let Ok(ObjectUrl::Corbaloc(corbaloc)) = format!("corbaloc:iiop:{address}:1/key").parse() else { panic!() };
            let ior = corbaloc.ior("").unwrap().unwrap();
            let profile = ior.iiop().next().unwrap().unwrap();
            ProxiedServer::of(&profile, ServerSource::Operator).unwrap().named_source()
        };
        for address in ["127.0.0.1", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"] {
            assert_eq!(named(address), ServerSource::LocalReply, "{address}");
        }
        assert_eq!(named("192.0.2.7"), ServerSource::Reply);
    }
}
