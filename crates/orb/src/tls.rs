//! TLS: who this ORB is, whom it believes, and what went wrong (rustls; TLS 1.2 and 1.3).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyoshi_wire::ior::Endpoint;
use hyoshi_wire::{SystemException, SystemKind};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, InconsistentKeys, RootCertStore, ServerConfig,
};

use crate::minor;

/// Why settings of TLS cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// A file that cannot be read.
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Text that holds no certificate or key in PEM (RFC 7468).
    Pem {
        /// Where, if in a file.
        file: Option<PathBuf>,
        /// What was looked for.
        wanted: &'static str,
        /// What is wrong.
        why: String,
    },
    /// The private key belongs to another certificate than the one that was given with it.
    Mismatch,
    /// What is no host name or address, and so no certificate's.
    Name(String),
    /// A certificate, key or root that TLS refuses.
    Refused(String),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsError::File { path, error } => write!(f, "cannot read {}: {error}", path.display()),
            TlsError::Pem { file, wanted, why } => {
                if let Some(file) = file {
                    write!(f, "{}: ", file.display())?;
                }
                write!(f, "no {wanted} in PEM (-----BEGIN ...-----): {why}")
            }
            TlsError::Mismatch => f.write_str("the private key is not that of the certificate"),
            TlsError::Name(name) => write!(f, "\"{name}\" is no host name or address"),
            TlsError::Refused(why) => write!(f, "TLS cannot use the certificate, key or root: {why}"),
        }
    }
}

impl std::error::Error for TlsError {}

fn refused(error: impl fmt::Display) -> TlsError {
    TlsError::Refused(error.to_string())
}

/// What is wrong with a certificate and its key.
fn unfit(error: rustls::Error) -> TlsError {
    match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsError::Mismatch,
        error => refused(error),
    }
}

/// The same error, told of the file.
fn within(path: &Path, error: TlsError) -> TlsError {
    match error {
        TlsError::Pem { wanted, why, .. } => TlsError::Pem { file: Some(path.to_owned()), wanted, why },
        TlsError::Refused(why) => TlsError::Refused(format!("{}: {why}", path.display())),
        other => other,
    }
}

fn file(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|error| TlsError::File { path: path.to_owned(), error })
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bad = |why: String| TlsError::Pem { file: None, wanted: "certificate", why };
    let all: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|error| bad(error.to_string()))?;
    if all.is_empty() { Err(bad("there is none".to_owned())) } else { Ok(all) }
}

fn private(pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| {
        let why = match error {
            pem::Error::NoItemsFound => "there is none".to_owned(),
            error => error.to_string(),
        };
        TlsError::Pem { file: None, wanted: "private key", why }
    })
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A certificate with those that lead to its root, and its private key.
#[derive(Debug)]
pub struct TlsIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl TlsIdentity {
    /// From PEM: the certificate first, then those that lead to the root; a key in PKCS #8, PKCS #1 or SEC 1.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        Ok(TlsIdentity { chain: certificates(chain)?, key: private(key)? })
    }

    /// From files of the same; both may be in one.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn from_files(chain: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<Self, TlsError> {
        let (chain, key) = (chain.as_ref(), key.as_ref());
        Ok(TlsIdentity {
            chain: certificates(&file(chain)?).map_err(|error| within(chain, error))?,
            key: private(&file(key)?).map_err(|error| within(key, error))?,
        })
    }
}

impl Clone for TlsIdentity {
    fn clone(&self) -> Self {
        TlsIdentity { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

/// The authorities that are believed.
#[derive(Clone, Debug)]
pub struct TlsRoots(Arc<RootCertStore>);

impl TlsRoots {
    /// From certificates in PEM.
    ///
    /// # Errors
    ///
    /// If there is none, or one is broken.
    pub fn from_pem(pem: &[u8]) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(pem)? {
            roots.add(certificate).map_err(refused)?;
        }
        Ok(TlsRoots(Arc::new(roots)))
    }

    /// From a file of the same.
    ///
    /// # Errors
    ///
    /// If there is none, or one is broken.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, TlsError> {
        TlsRoots::from_pem(&file(path.as_ref())?).map_err(|error| within(path.as_ref(), error))
    }
}

/// Hears of handshakes that failed: the client's address, and why.
type Heard = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// How `ssliop://` endpoints prove who they are, and what clients have to prove.
#[derive(Clone)]
pub struct TlsServer {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) refused: Option<Heard>,
    asks: bool,
    insists: bool,
}

/// Bits of `Security::AssociationOptions`: integrity, confidentiality; replays and misordering detected; trust in the
/// target; trust in the client.
const PRIVATE: u16 = 0x06;
const ORDERED: u16 = 0x18;
const TARGET: u16 = 0x20;
const CLIENT: u16 = 0x40;

impl TlsServer {
    /// Any client may come.
    ///
    /// # Errors
    ///
    /// If the key is not that of the certificate.
    pub fn new(identity: TlsIdentity) -> Result<Self, TlsError> {
        let config = versions(ServerConfig::builder_with_provider(provider()))?.with_no_client_auth();
        TlsServer::with(config.with_single_cert(identity.chain, identity.key), false, false)
    }

    /// Clients must show a certificate from one of these authorities.
    ///
    /// # Errors
    ///
    /// If the key is not that of the certificate.
    pub fn for_clients_of(identity: TlsIdentity, roots: &TlsRoots) -> Result<Self, TlsError> {
        TlsServer::checking(identity, roots, true)
    }

    /// Clients may show a certificate from one of these authorities; one from another is refused. Servants look with
    /// [`current::peer_certificate`](crate::current::peer_certificate).
    ///
    /// # Errors
    ///
    /// If the key is not that of the certificate.
    pub fn for_clients_perhaps_of(identity: TlsIdentity, roots: &TlsRoots) -> Result<Self, TlsError> {
        TlsServer::checking(identity, roots, false)
    }

    fn checking(identity: TlsIdentity, roots: &TlsRoots, insists: bool) -> Result<Self, TlsError> {
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.0.clone(), provider());
        let verifier = if insists { verifier } else { verifier.allow_unauthenticated() };
        let config = versions(ServerConfig::builder_with_provider(provider()))?
            .with_client_cert_verifier(verifier.build().map_err(refused)?);
        TlsServer::with(config.with_single_cert(identity.chain, identity.key), true, insists)
    }

    fn with(config: Result<ServerConfig, rustls::Error>, asks: bool, insists: bool) -> Result<Self, TlsError> {
        let mut config = config.map_err(unfit)?;
        // Every connection proves itself anew: they live long, and a certificate that has expired shall count.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(TlsServer { config: Arc::new(config), refused: None, asks, insists })
    }

    /// Tells `hear` of handshakes that failed: the client's address, and why. It runs on the thread that carries out
    /// all handshakes of a lane, and should be brief.
    #[must_use]
    pub fn on_refused(mut self, hear: impl Fn(&str, &str) + Send + Sync + 'static) -> Self {
        self.refused = Some(Arc::new(hear));
        self
    }

    /// What references say: what it can do, and what it insists on.
    pub(crate) fn options(&self) -> (u16, u16) {
        let supports = PRIVATE | ORDERED | TARGET | if self.asks { CLIENT } else { 0 };
        (supports, PRIVATE | if self.insists { CLIENT } else { 0 })
    }
}

impl fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsServer").field("asks", &self.asks).field("insists", &self.insists).finish_non_exhaustive()
    }
}

/// Which servers' certificates are believed, and what this ORB shows of itself.
#[derive(Clone, Debug)]
pub struct TlsClient {
    roots: TlsRoots,
    identity: Option<TlsIdentity>,
    name: Option<String>,
    only: bool,
}

impl TlsClient {
    /// Believes servers with a certificate from one of these authorities for the host that the reference names.
    pub fn new(roots: &TlsRoots) -> Self {
        TlsClient { roots: roots.clone(), identity: None, name: None, only: false }
    }

    /// Shows this certificate to servers that ask for one.
    #[must_use]
    pub fn identity(mut self, identity: TlsIdentity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// All servers' certificates have this name or address, whatever host a reference names: for references with
    /// addresses that certificates do not list.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Never over plain TCP, also to servers that offer nothing else. (To one that offers TLS it is never used anyway.)
    #[must_use]
    pub fn only(mut self) -> Self {
        self.only = true;
        self
    }
}

/// A client's settings, ready for use.
#[derive(Clone, Debug)]
pub(crate) struct Dialler {
    config: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
    pub(crate) only: bool,
}

/// With whom a handshake is to be.
#[derive(Clone, Debug)]
pub(crate) struct Dial {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Dialler {
    pub(crate) fn new(client: TlsClient) -> Result<Self, TlsError> {
        let config = versions(ClientConfig::builder_with_provider(provider()))?.with_root_certificates(client.roots.0);
        let config = match client.identity {
            None => config.with_no_client_auth(),
            Some(TlsIdentity { chain, key }) => config.with_client_auth_cert(chain, key).map_err(unfit)?,
        };
        let name = match client.name {
            Some(name) => Some(ServerName::try_from(name.clone()).map_err(|_| TlsError::Name(name))?),
            None => None,
        };
        Ok(Dialler { config: Arc::new(config), name, only: client.only })
    }

    /// None if the endpoint's host is no name that a certificate could have.
    pub(crate) fn dial(&self, endpoint: &Endpoint) -> Option<Dial> {
        let Endpoint::Tls { host, .. } = endpoint else { return None };
        let name = match &self.name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.clone()).ok()?,
        };
        Some(Dial { config: self.config.clone(), name })
    }
}

impl Dial {
    pub(crate) fn begin(&self) -> io::Result<ClientConnection> {
        ClientConnection::new(self.config.clone(), self.name.clone()).map_err(io::Error::other)
    }
}

fn versions<S: rustls::ConfigSide>(
    builder: rustls::ConfigBuilder<S, rustls::WantsVersions>,
) -> Result<rustls::ConfigBuilder<S, rustls::WantsVerifier>, TlsError> {
    builder.with_safe_default_protocol_versions().map_err(refused)
}

/// What TLS failed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Distrust {
    /// No authority that is believed signed the server's certificate.
    UnknownCa,
    /// The server's certificate is not valid at this time.
    Expired,
    /// The server's certificate is for another name.
    Name,
    /// The server's certificate is bad otherwise.
    Certificate,
    /// The server refused our certificate, or that there is none.
    Refused,
    /// The handshake failed otherwise: the server speaks something else, mostly.
    Handshake,
    /// The server speaks TLS where we spoke plain GIOP.
    Expected,
}

impl Distrust {
    /// If the error is about TLS.
    pub(crate) fn of(error: &io::Error) -> Option<Distrust> {
        let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        Some(match error {
            rustls::Error::InvalidCertificate(why) => match why {
                CertificateError::UnknownIssuer => Distrust::UnknownCa,
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. } => Distrust::Expired,
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Distrust::Name,
                _ => Distrust::Certificate,
            },
            rustls::Error::AlertReceived(alert) if is_about_us(*alert) => Distrust::Refused,
            _ => Distrust::Handshake,
        })
    }

    /// As callers are told. Nothing was carried out: a server serves only whom it trusts.
    pub(crate) fn exception(self) -> SystemException {
        match self {
            Distrust::UnknownCa => SystemKind::NoPermission.not_done(minor::TLS_UNKNOWN_CA),
            Distrust::Expired => SystemKind::NoPermission.not_done(minor::TLS_EXPIRED),
            Distrust::Name => SystemKind::NoPermission.not_done(minor::TLS_NAME),
            Distrust::Certificate => SystemKind::NoPermission.not_done(minor::TLS_CERTIFICATE),
            Distrust::Refused => SystemKind::NoPermission.not_done(minor::TLS_REFUSED),
            Distrust::Handshake => SystemKind::CommFailure.not_done(minor::TLS_HANDSHAKE),
            Distrust::Expected => SystemKind::CommFailure.not_done(minor::TLS_EXPECTED),
        }
    }
}

/// Alerts by which a server refuses a client (RFC 8446, 6.2). In TLS 1.3 they come when the client has sent its first
/// request already.
fn is_about_us(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::CertificateRequired
            | AlertDescription::NoCertificate
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::HandshakeFailure
    )
}
