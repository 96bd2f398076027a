//! TLS on the command line: the trusted authorities, and the certificate to show.

mod files;

use std::path::{Path, PathBuf};

use clap::Args;
use hyoshi_orb::{OrbBuilder, SystemException, TlsClient, TlsServer, minor};

pub(super) use files::{CertificateReload, NodeFiles};
use files::{Files, unusable};

use super::CliError;

/// TLS of verbs that call objects.
#[derive(Debug, Args)]
pub(super) struct ClientTls {
    /// Use TLS where references offer it; trust servers with a certificate from one of the authorities in this file
    /// (PEM)
    #[arg(long, value_name = "FILE")]
    tls_roots: Option<PathBuf>,
    /// Show this certificate to servers that ask for one (PEM, then its chain to the root)
    #[arg(long, value_name = "FILE", requires = "tls_roots")]
    tls_cert: Option<PathBuf>,
    /// Its private key [default: in the certificate's file]
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The name that servers' certificates must have, whatever host the reference names
    #[arg(long, value_name = "NAME", requires = "tls_roots")]
    tls_name: Option<String>,
    /// Never use plain TCP, even if a reference offers nothing else
    #[arg(long, requires = "tls_roots")]
    tls_only: bool,
    /// Refuse a key file that other users can use, and expired certificates
    #[arg(long, requires = "tls_roots")]
    strict: bool,
}

impl ClientTls {
    /// The ORB that these flags request.
    pub fn client(&self, builder: OrbBuilder) -> Result<OrbBuilder, CliError> {
        let builder = if self.tls_only { builder.tls_only() } else { builder };
        let files = Files {
            cert: self.tls_cert.clone(),
            key: self.tls_key.clone(),
            roots: self.tls_roots.clone(),
            clients: None,
            name: self.tls_name.clone(),
            strict: self.strict,
            guarded: false,
        };
        calling(builder, files.load(false)?.client)
    }
}

/// TLS of a server, with its clients and with other servers.
#[derive(Debug, Args)]
pub(super) struct ServerTls {
    /// The certificate of endpoints over TLS, ssliop://HOST:PORT (PEM, then its chain to the root)
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Its private key [default: in the certificate's file]
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Over TLS, serve only clients with a certificate from one of the authorities in this file (PEM)
    #[arg(long, value_name = "FILE")]
    tls_clients: Option<PathBuf>,
    /// Call other services over TLS; trust those with a certificate from one of the authorities in this file (PEM)
    #[arg(long, value_name = "FILE")]
    tls_roots: Option<PathBuf>,
    /// Never call other services over plain TCP
    #[arg(long, requires = "tls_roots")]
    tls_only: bool,
    /// Refuse a key file that other users can use, and certificates that have expired or name no host
    #[arg(long)]
    strict: bool,
}

impl ServerTls {
    /// The flags, and which were set.
    pub fn flags(&self) -> [(&'static str, bool); 6] {
        [
            ("--tls-only", self.tls_only),
            ("--strict", self.strict),
            ("--tls-cert", self.tls_cert.is_some()),
            ("--tls-key", self.tls_key.is_some()),
            ("--tls-clients", self.tls_clients.is_some()),
            ("--tls-roots", self.tls_roots.is_some()),
        ]
    }

    /// The ORB that these flags request, to listen at `endpoints`, and the renewal of its certificates.
    pub fn server(
        &self,
        mut builder: OrbBuilder,
        endpoints: &[&str],
    ) -> Result<(OrbBuilder, CertificateReload), CliError> {
        let secure = endpoints.iter().find(|endpoint| endpoint.starts_with("ssliop://"));
        if self.tls_cert.is_none() {
            let without = [("--tls-key", &self.tls_key), ("--tls-clients", &self.tls_clients)];
            if let Some((flag, _)) = without.into_iter().find(|(_, file)| file.is_some()) {
                return Err(CliError::new(format!("{flag} needs the service's own certificate"))
                    .help("add --tls-cert FILE and --listen ssliop://HOST:PORT"));
            }
        }
        let files = Files {
            cert: self.tls_cert.clone(),
            key: self.tls_key.clone(),
            roots: self.tls_roots.clone(),
            clients: self.tls_clients.clone(),
            name: None,
            strict: self.strict,
            guarded: false,
        };
        let used = match (secure, &self.tls_cert) {
            (Some(endpoint), None) => {
                return Err(CliError::new(format!("{endpoint} needs a certificate"))
                    .help("--tls-cert FILE names it, --tls-key FILE its private key"));
            }
            (Some(_), Some(_)) => files.load(true)?,
            (None, Some(_)) if self.tls_roots.is_none() || self.tls_clients.is_some() => {
                files.identity()?;
                return Err(CliError::new("no endpoint uses TLS")
                    .help("add --listen ssliop://HOST:PORT, or leave the certificate out"));
            }
            (None, _) => files.load(false)?,
        };
        if let Some(server) = &used.server {
            builder = builder.tls_server(server.clone());
        }
        if self.tls_only {
            builder = builder.tls_only();
        }
        let builder = calling(builder, used.client.clone())?;
        Ok((builder, CertificateReload { files, used }))
    }
}

/// TLS of the broker's verbs, of servers and clients alike.
#[derive(Debug, Args)]
pub(super) struct TlsPapers {
    /// Over TLS, show this certificate (PEM, then its chain to the root)
    #[arg(long, value_name = "FILE", global = true)]
    tls_cert: Option<PathBuf>,
    /// Its private key [default: in the certificate's file]
    #[arg(long, value_name = "FILE", global = true)]
    tls_key: Option<PathBuf>,
    /// Trust servers with a certificate from one of the authorities in this file (PEM)
    #[arg(long, value_name = "FILE", global = true)]
    tls_roots: Option<PathBuf>,
    /// The name that servers' certificates must have, whatever host their address names
    #[arg(long, value_name = "NAME", global = true)]
    tls_name: Option<String>,
    /// Refuse a key file that other users can use, and certificates that have expired or name no host
    #[arg(long, global = true)]
    strict: bool,
}

impl TlsPapers {
    /// The ORB of a client.
    pub fn client(&self, builder: OrbBuilder) -> Result<OrbBuilder, CliError> {
        let with_roots = [("--tls-name", self.tls_name.is_some()), self.own()];
        if let (None, Some((flag, _))) = (&self.tls_roots, with_roots.into_iter().find(|(_, given)| *given)) {
            return Err(CliError::new(format_args!("{flag} needs --tls-roots"))
                .help("--tls-roots FILE names trusted authorities"));
        }
        calling(builder, self.files(None).load(false)?.client)
    }

    fn files(&self, clients: Option<&Path>) -> Files {
        Files {
            cert: self.tls_cert.clone(),
            key: self.tls_key.clone(),
            roots: self.tls_roots.clone(),
            clients: clients.map(Path::to_owned),
            name: self.tls_name.clone(),
            strict: self.strict,
            guarded: false,
        }
    }

    /// How a broker serves clients of the authorities in this file, and the renewal of its certificates.
    pub fn server(&self, clients: &Path) -> Result<(TlsServer, CertificateReload), CliError> {
        let files = Files { roots: None, guarded: true, ..self.files(Some(clients)) };
        let used = files.load(true)?;
        let server = used.server.clone().ok_or_else(|| {
            CliError::new("serving over TLS needs a certificate")
                .help("--tls-cert FILE names it, --tls-key FILE its private key")
        })?;
        Ok((server, CertificateReload { files, used }))
    }

    /// Flags for clients only.
    pub fn for_asking(&self) -> [(&'static str, bool); 2] {
        [("--tls-roots", self.tls_roots.is_some()), ("--tls-name", self.tls_name.is_some())]
    }

    /// A flag for one's own certificate or key.
    pub fn own(&self) -> (&'static str, bool) {
        if self.tls_cert.is_some() { ("--tls-cert", true) } else { ("--tls-key", self.tls_key.is_some()) }
    }
}

/// A node's certificate, and the authorities of the other nodes' certificates.
pub(super) fn peers(
    cert: &Path,
    key: Option<&PathBuf>,
    roots: Option<&PathBuf>,
) -> Result<(TlsServer, TlsClient, CertificateReload), CliError> {
    let files = Files {
        cert: Some(cert.to_owned()),
        key: key.cloned(),
        roots: roots.cloned(),
        clients: roots.cloned(),
        name: None,
        strict: false,
        guarded: true,
    };
    let used = files.load(true)?;
    match (used.server.clone(), used.client.clone()) {
        (Some(server), Some(client)) => Ok((server, client, CertificateReload { files, used })),
        _ => Err(CliError::new("endpoints over TLS need a certificate and trusted authorities")
            .help("--tls-cert FILE and --tls-roots FILE name them")),
    }
}

fn calling(builder: OrbBuilder, client: Option<TlsClient>) -> Result<OrbBuilder, CliError> {
    match client {
        None => Ok(builder),
        Some(client) => builder.tls_client(client).map_err(|error| unusable("--tls-cert", &error)),
    }
}

/// A remedy for an exception of TLS.
pub(super) fn help(raised: &SystemException) -> Option<&'static str> {
    Some(match raised.minor {
        minor::TLS_UNKNOWN_CA => "--tls-roots must contain the authority that signed the server's certificate",
        minor::TLS_EXPIRED => "check this machine's clock; if it is right, the server needs a new certificate",
        minor::TLS_NAME => "call the host by a name in the certificate, or set that name with --tls-name NAME",
        minor::TLS_CERTIFICATE => "the server needs another certificate",
        minor::TLS_REFUSED => {
            "show a certificate from an authority that the server trusts: --tls-cert FILE, --tls-key FILE"
        }
        minor::TLS_HANDSHAKE => "check that the server uses TLS 1.2 or 1.3 at that port (ssliop)",
        minor::TLS_EXPECTED => "call it over TLS: corbaloc:ssliop:..., with --tls-roots FILE",
        minor::TLS_INCOMPATIBLE => "the server must offer TLS 1.2 or 1.3 with ECDHE, and AES-GCM or ChaCha20-Poly1305",
        minor::TLS_NOT_SET_UP => {
            "name trusted authorities: --tls-roots FILE; to call over plain TCP, leave out --tls-only"
        }
        minor::TRANSPORT_RULE => "check ORBclientTransportRule in the environment",
        minor::BROKER_NAME => "start that broker with --tls-reader NAME, a name in the certificate",
        _ => return None,
    })
}
