//! TLS on the command line: the trusted authorities, and the certificate to show.

mod files;

use std::path::{Path, PathBuf};

use clap::Args;
use hyoshi_orb::{OrbBuilder, SystemException, TlsClient, TlsServer, minor};

pub(super) use files::Renewal;
use files::{Files, unusable};

use super::Failure;

/// How verbs that call objects speak TLS.
#[derive(Debug, Args)]
pub(super) struct Tls {
    /// Over TLS, where references offer it: believe servers with a certificate from one of the authorities in this file
    /// (PEM)
    #[arg(long, value_name = "FILE")]
    tls_roots: Option<PathBuf>,
    /// Show this certificate to servers that ask for one (PEM: it, then those that lead to its root)
    #[arg(long, value_name = "FILE", requires = "tls_roots")]
    tls_cert: Option<PathBuf>,
    /// Its private key [default: in the certificate's file]
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Servers' certificates are for this name, whatever host the reference tells
    #[arg(long, value_name = "NAME", requires = "tls_roots")]
    tls_name: Option<String>,
    /// Never speak plain TCP, also where a reference offers nothing else
    #[arg(long, requires = "tls_roots")]
    tls_only: bool,
    /// Refuse a key file that other users can use, and certificates that have expired
    #[arg(long, requires = "tls_roots")]
    strict: bool,
}

impl Tls {
    /// The ORB that these flags ask for.
    pub fn client(&self, builder: OrbBuilder) -> Result<OrbBuilder, Failure> {
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
        calling(builder, files.client()?)
    }
}

/// How a server speaks it, with its clients and with other servers.
#[derive(Debug, Args)]
pub(super) struct TlsService {
    /// Endpoints over TLS (ssliop://HOST:PORT) show this certificate (PEM: it, then those that lead to its root)
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Its private key [default: in the certificate's file]
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Serve over TLS only clients with a certificate from one of the authorities in this file (PEM)
    #[arg(long, value_name = "FILE")]
    tls_clients: Option<PathBuf>,
    /// Ask other services over TLS: believe those with a certificate from one of the authorities in this file (PEM)
    #[arg(long, value_name = "FILE")]
    tls_roots: Option<PathBuf>,
    /// Never ask other services over plain TCP
    #[arg(long, requires = "tls_roots")]
    tls_only: bool,
    /// Refuse a key file that other users can use, and certificates that have expired or name no host
    #[arg(long)]
    strict: bool,
}

impl TlsService {
    /// The flags, and which were given.
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
    pub fn server(&self, mut builder: OrbBuilder, endpoints: &[&str]) -> Result<(OrbBuilder, Renewal), Failure> {
        let secure = endpoints.iter().find(|endpoint| endpoint.starts_with("ssliop://"));
        if self.tls_cert.is_none() {
            let without = [("--tls-key", &self.tls_key), ("--tls-clients", &self.tls_clients)];
            if let Some((flag, _)) = without.into_iter().find(|(_, file)| file.is_some()) {
                return Err(Failure::new(format!("{flag} without a certificate of the service's own"))
                    .help("--tls-cert FILE names it, --listen ssliop://HOST:PORT where it is shown"));
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
        let server = match (secure, &self.tls_cert) {
            (Some(endpoint), None) => {
                return Err(Failure::new(format!("{endpoint} needs a certificate"))
                    .help("--tls-cert FILE names it, --tls-key FILE its private key"));
            }
            (Some(_), Some(_)) => files.server()?,
            (None, Some(_)) if self.tls_roots.is_none() || self.tls_clients.is_some() => {
                files.identity()?;
                return Err(Failure::new("the service listens nowhere over TLS")
                    .help("--listen ssliop://HOST:PORT does; leave the certificate out otherwise"));
            }
            (None, _) => None,
        };
        if let Some(server) = &server {
            builder = builder.tls_server(server.clone());
        }
        if self.tls_only {
            builder = builder.tls_only();
        }
        let client = files.client()?;
        let builder = calling(builder, client.clone())?;
        Ok((builder, Renewal { files, server, client }))
    }
}

/// How the broker's verbs speak TLS, whichever side they are: the same flags name their papers.
#[derive(Debug, Args)]
pub(super) struct TlsPapers {
    /// Over TLS, show this certificate (PEM: it, then those that lead to its root)
    #[arg(long, value_name = "FILE", global = true)]
    tls_cert: Option<PathBuf>,
    /// Its private key [default: in the certificate's file]
    #[arg(long, value_name = "FILE", global = true)]
    tls_key: Option<PathBuf>,
    /// Believe servers with a certificate from one of the authorities in this file (PEM)
    #[arg(long, value_name = "FILE", global = true)]
    tls_roots: Option<PathBuf>,
    /// Servers' certificates are for this name, whatever host their address tells
    #[arg(long, value_name = "NAME", global = true)]
    tls_name: Option<String>,
    /// Refuse a key file that other users can use, and certificates that have expired or name no host
    #[arg(long, global = true)]
    strict: bool,
}

impl TlsPapers {
    /// The ORB of one who asks.
    pub fn client(&self, builder: OrbBuilder) -> Result<OrbBuilder, Failure> {
        let with_roots = [("--tls-name", self.tls_name.is_some()), self.own()];
        if let (None, Some((flag, _))) = (&self.tls_roots, with_roots.into_iter().find(|(_, given)| *given)) {
            return Err(Failure::new(format_args!("{flag} without --tls-roots"))
                .help("--tls-roots FILE names the authorities whose servers are believed"));
        }
        calling(builder, self.files(None).client()?)
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
    pub fn server(&self, clients: &Path) -> Result<(TlsServer, Renewal), Failure> {
        let files = Files { roots: None, guarded: true, ..self.files(Some(clients)) };
        let server = files.server()?.ok_or_else(|| {
            Failure::new("to serve over TLS needs a certificate")
                .help("--tls-cert FILE names it, --tls-key FILE its private key")
        })?;
        Ok((server.clone(), Renewal { files, server: Some(server), client: None }))
    }

    /// What is of use to one who asks only.
    pub fn for_asking(&self) -> [(&'static str, bool); 2] {
        [("--tls-roots", self.tls_roots.is_some()), ("--tls-name", self.tls_name.is_some())]
    }

    /// One's own papers.
    pub fn own(&self) -> (&'static str, bool) {
        if self.tls_cert.is_some() { ("--tls-cert", true) } else { ("--tls-key", self.tls_key.is_some()) }
    }
}

fn calling(builder: OrbBuilder, client: Option<TlsClient>) -> Result<OrbBuilder, Failure> {
    match client {
        None => Ok(builder),
        Some(client) => builder.tls_client(client).map_err(|error| unusable("--tls-cert", &error)),
    }
}

/// What to do about an exception that TLS raised, if it did.
pub(super) fn help(raised: &SystemException) -> Option<&'static str> {
    Some(match raised.minor {
        minor::TLS_UNKNOWN_CA => "see that --tls-roots holds the authority that signed the server's certificate",
        minor::TLS_EXPIRED => {
            "compare this machine's clock with the certificate's dates; else the server needs a new one"
        }
        minor::TLS_NAME => "name the host as the certificate does, or say which name that is with --tls-name NAME",
        minor::TLS_CERTIFICATE => "whoever runs the server has to give it another certificate",
        minor::TLS_REFUSED => {
            "show a certificate from an authority that the server believes: --tls-cert FILE, --tls-key FILE"
        }
        minor::TLS_HANDSHAKE => "see that the server speaks TLS at that port (ssliop), 1.2 or 1.3",
        minor::TLS_EXPECTED => "call it over TLS: corbaloc:ssliop:..., with --tls-roots FILE",
        minor::TLS_INCOMPATIBLE => {
            "the server must speak TLS 1.2 or 1.3, with ECDHE, and AES-GCM or ChaCha20-Poly1305: see its settings"
        }
        minor::TLS_NOT_SET_UP => {
            "say which authorities to believe: --tls-roots FILE; to call over plain TCP, leave out --tls-only"
        }
        minor::TRANSPORT_RULE => "see ORBclientTransportRule in the environment",
        minor::BROKER_NAME => "whoever runs that broker lets a certificate in by its name: --tls-reader NAME",
        _ => return None,
    })
}
