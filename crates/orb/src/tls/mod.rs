//! TLS: this ORB's certificate, the trusted authorities, and errors (rustls; TLS 1.2 and 1.3).

mod certificate;
mod distrust;
mod error;
mod identity;
mod key;
mod pem;
mod roots;
mod verify;

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use hyoshi_wire::ior::IorEndpoint;
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::sign::SingleCertAndKey;
use rustls::{CertificateError, ClientConfig, ClientConnection, ServerConfig};
use webpki::KeyUsage;

pub(crate) use certificate::Fields;
pub use certificate::certificate_names;
pub(crate) use distrust::{Distrust, reason};
pub use error::{TlsError, TlsWarning};
pub use identity::TlsIdentity;
pub use roots::TlsRoots;

use error::refused;
use roots::PROVIDER;
use verify::{OfClients, OfServers};

/// Called for failed handshakes with the client's address and the reason.
type OnRefused = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// The certificate of `ssliop://` endpoints, and those that clients need. Clones share the changes of
/// [`renew`](Self::renew).
#[must_use]
#[derive(Clone)]
pub struct TlsServer {
    settings: Arc<ArcSwap<ServerSettings>>,
    pub(crate) refused: Option<OnRefused>,
    asks: bool,
    insists: bool,
}

/// The settings of one handshake.
pub(crate) struct ServerSettings {
    pub(crate) config: Arc<ServerConfig>,
    identity: TlsIdentity,
    clients: Option<TlsRoots>,
}

/// Bits of `Security::AssociationOptions`: integrity, confidentiality; replays and misordering detected; trust in the
/// target; trust in the client.
const PRIVATE: u16 = 0x06;
const ORDERED: u16 = 0x18;
const TARGET: u16 = 0x20;
const CLIENT: u16 = 0x40;

impl TlsServer {
    /// All clients may connect. Fails if the key does not match the certificate.
    pub fn new(identity: TlsIdentity) -> Result<Self, TlsError> {
        TlsServer::with(identity, None, false)
    }

    /// Clients must show a certificate from one of these authorities. Fails as [`new`](Self::new) does.
    pub fn for_clients_of(identity: TlsIdentity, roots: &TlsRoots) -> Result<Self, TlsError> {
        TlsServer::with(identity, Some(roots), true)
    }

    /// Clients may show a certificate from one of these authorities, but no other certificate. Servants read it with
    /// [`current::peer_certificate`](crate::current::peer_certificate). Fails as [`new`](Self::new) does.
    pub fn for_clients_perhaps_of(identity: TlsIdentity, roots: &TlsRoots) -> Result<Self, TlsError> {
        TlsServer::with(identity, Some(roots), false)
    }

    fn with(identity: TlsIdentity, clients: Option<&TlsRoots>, insists: bool) -> Result<Self, TlsError> {
        let builder = ServerConfig::builder_with_provider(PROVIDER.clone());
        let builder = builder.with_safe_default_protocol_versions().map_err(refused)?;
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(roots) => builder.with_client_cert_verifier(Arc::new(OfClients { roots: roots.clone(), insists })),
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(identity.own()?)));
        // Every connection does a full handshake: connections live long, and an expired certificate must be detected.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let settings = ServerSettings { config: Arc::new(config), identity, clients: clients.cloned() };
        let settings = Arc::new(ArcSwap::from_pointee(settings));
        Ok(TlsServer { settings, refused: None, asks: clients.is_some(), insists })
    }

    /// Calls `report` for failed handshakes with the client's address and the reason. It runs on a handshake thread, and
    /// should be brief.
    pub fn on_refused(mut self, report: impl Fn(&str, &str) + Send + Sync + 'static) -> Self {
        self.refused = Some(Arc::new(report));
        self
    }

    /// From now on handshakes use `next`: certificate, key, authorities and lists of revoked certificates. Connections stay
    /// open, except those with a client certificate that `next` revokes: they are closed at the next renewal
    /// ([`ServerLimits::renewal`](crate::ServerLimits::renewal)).
    ///
    /// # Errors
    ///
    /// If `next` differs in whether it asks clients for certificates, or requires them: references contain that.
    pub fn renew(&self, next: &TlsServer) -> Result<(), TlsError> {
        if (self.asks, self.insists) != (next.asks, next.insists) {
            return Err(refused("whether clients must show a certificate cannot change while the server runs"));
        }
        self.settings.store(next.settings.load_full());
        Ok(())
    }

    /// Present problems of its certificate and authorities, and those within 30 days.
    pub fn warnings(&self) -> Vec<TlsWarning> {
        let settings = self.settings.load();
        let own = settings.identity.warnings().into_iter().chain(settings.identity.nameless());
        own.chain(settings.clients.iter().flat_map(TlsRoots::warnings)).collect()
    }

    pub(crate) fn settings(&self) -> Arc<ServerSettings> {
        self.settings.load_full()
    }

    /// The association options for references: supported, and required.
    pub(crate) fn options(&self) -> (u16, u16) {
        let supports = PRIVATE | ORDERED | TARGET | if self.asks { CLIENT } else { 0 };
        (supports, PRIVATE | if self.insists { CLIENT } else { 0 })
    }
}

impl ServerSettings {
    /// Whether these certificates, valid when their connection was made, have been revoked.
    pub(crate) fn revokes(&self, chain: &[CertificateDer<'_>]) -> bool {
        let (Some(roots), Some((own, further))) = (&self.clients, chain.split_first()) else { return false };
        let verified = roots.verify(own, further, UnixTime::now(), KeyUsage::client_auth());
        matches!(verified, Err(rustls::Error::InvalidCertificate(CertificateError::Revoked)))
    }
}

impl fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsServer").field("asks", &self.asks).field("insists", &self.insists).finish_non_exhaustive()
    }
}

/// The trusted servers' certificates, and this ORB's own. Clones share the changes of [`renew`](Self::renew).
#[must_use]
#[derive(Clone, Debug)]
pub struct TlsClient {
    settings: Arc<ArcSwap<ClientSettings>>,
    name: Option<String>,
    pub(crate) only: bool,
}

#[derive(Debug)]
struct ClientSettings {
    roots: TlsRoots,
    identity: Option<TlsIdentity>,
    /// Made of both at first use.
    config: OnceLock<Arc<ClientConfig>>,
}

impl ClientSettings {
    fn new(roots: TlsRoots, identity: Option<TlsIdentity>) -> Arc<ArcSwap<ClientSettings>> {
        Arc::new(ArcSwap::from_pointee(ClientSettings { roots, identity, config: OnceLock::new() }))
    }

    fn config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        if let Some(config) = self.config.get() {
            return Ok(config.clone());
        }
        let builder = ClientConfig::builder_with_provider(PROVIDER.clone());
        let builder = builder.with_safe_default_protocol_versions().map_err(refused)?;
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(OfServers(self.roots.clone())));
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity.own()?))),
        };
        // A server that resumes a session does not prove its identity again.
        config.resumption = Resumption::disabled();
        Ok(self.config.get_or_init(|| Arc::new(config)).clone())
    }
}

impl TlsClient {
    /// Trusts servers with a certificate from one of these authorities for the host that the reference names.
    pub fn new(roots: &TlsRoots) -> Self {
        TlsClient { settings: ClientSettings::new(roots.clone(), None), name: None, only: false }
    }

    /// Uses this certificate for servers that ask for one.
    pub fn identity(mut self, identity: TlsIdentity) -> Self {
        let roots = self.settings.load().roots.clone();
        self.settings = ClientSettings::new(roots, Some(identity));
        self
    }

    /// The name or address that all servers' certificates must have, instead of the host in the reference.
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Never uses plain TCP, even for servers that do not offer TLS.
    pub fn only(mut self) -> Self {
        self.only = true;
        self
    }

    /// From now on ORBs built with this one connect with `next`: authorities, lists of revoked certificates, certificate
    /// and key. Open connections stay. Fails as [`check`](Self::check) does.
    pub fn renew(&self, next: &TlsClient) -> Result<(), TlsError> {
        next.check()?;
        self.settings.store(next.settings.load_full());
        Ok(())
    }

    /// Fails if the key does not match the certificate, or the name is neither a host name nor an address.
    pub fn check(&self) -> Result<(), TlsError> {
        if let Some(name) = &self.name {
            ServerName::try_from(name.as_str()).map_err(|_| TlsError::Name(name.clone()))?;
        }
        self.settings.load().config().map(drop)
    }

    /// `None` if the endpoint's host cannot be a name in a certificate.
    pub(crate) fn dial(&self, endpoint: &IorEndpoint) -> Option<Dial> {
        let IorEndpoint::Tls { host, .. } = endpoint else { return None };
        let name = ServerName::try_from(self.name.as_ref().unwrap_or(host).clone()).ok()?;
        Some(Dial { settings: self.settings.clone(), name })
    }

    /// Present problems of its certificate and authorities, and those within 30 days.
    pub fn warnings(&self) -> Vec<TlsWarning> {
        let settings = self.settings.load();
        settings.identity.iter().flat_map(TlsIdentity::warnings).chain(settings.roots.warnings()).collect()
    }
}

/// The settings, and the host to authenticate.
#[derive(Clone, Debug)]
pub(crate) struct Dial {
    settings: Arc<ArcSwap<ClientSettings>>,
    name: ServerName<'static>,
}

impl Dial {
    pub(crate) fn begin(&self) -> io::Result<ClientConnection> {
        let config = self.settings.load().config().map_err(io::Error::other)?;
        ClientConnection::new(config, self.name.clone()).map_err(io::Error::other)
    }
}
