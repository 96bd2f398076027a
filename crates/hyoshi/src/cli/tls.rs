//! TLS on the command line: whom to believe, and what to show of oneself.

use std::path::{Path, PathBuf};

use clap::Args;
use hyoshi_orb::{OrbBuilder, SystemException, TlsClient, TlsError, TlsIdentity, TlsRoots, TlsServer, minor};
use hyoshi_os::trusted::{self, Mistrust};

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
}

impl Tls {
    /// The ORB that these flags ask for.
    pub fn client(&self, builder: OrbBuilder) -> Result<OrbBuilder, Failure> {
        let own = identity(self.tls_cert.as_ref(), self.tls_key.as_ref())?;
        believing(builder, self.tls_roots.as_ref(), own, self.tls_name.as_deref())
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
}

impl TlsService {
    /// The flags, and which were given.
    pub fn flags(&self) -> [(&'static str, bool); 4] {
        [
            ("--tls-cert", self.tls_cert.is_some()),
            ("--tls-key", self.tls_key.is_some()),
            ("--tls-clients", self.tls_clients.is_some()),
            ("--tls-roots", self.tls_roots.is_some()),
        ]
    }

    /// The ORB that these flags ask for, which is to listen at `endpoints`.
    pub fn server(&self, mut builder: OrbBuilder, endpoints: &[&str]) -> Result<OrbBuilder, Failure> {
        let secure = endpoints.iter().find(|endpoint| endpoint.starts_with("ssliop://"));
        if self.tls_cert.is_none() {
            let without = [("--tls-key", &self.tls_key), ("--tls-clients", &self.tls_clients)];
            if let Some((flag, _)) = without.into_iter().find(|(_, file)| file.is_some()) {
                return Err(Failure::new(format!("{flag} without a certificate of the service's own"))
                    .help("--tls-cert FILE names it, --listen ssliop://HOST:PORT where it is shown"));
            }
        }
        let own = identity(self.tls_cert.as_ref(), self.tls_key.as_ref())?;
        match (secure, &own) {
            (Some(endpoint), None) => {
                return Err(Failure::new(format!("{endpoint} needs a certificate"))
                    .help("--tls-cert FILE names it, --tls-key FILE its private key"));
            }
            (Some(_), Some(own)) => {
                let server = match &self.tls_clients {
                    None => TlsServer::new(own.clone()),
                    Some(file) => {
                        let roots = TlsRoots::from_file(file).map_err(|error| unusable("--tls-clients", &error))?;
                        TlsServer::for_clients_of(own.clone(), &roots)
                    }
                };
                builder = builder.tls_server(server.map_err(|error| unusable("--tls-cert", &error))?);
            }
            (None, Some(_)) if self.tls_roots.is_none() || self.tls_clients.is_some() => {
                return Err(Failure::new("the service listens nowhere over TLS")
                    .help("--listen ssliop://HOST:PORT does; leave the certificate out otherwise"));
            }
            (None, _) => {}
        }
        believing(builder, self.tls_roots.as_ref(), own, None)
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
}

impl TlsPapers {
    /// The ORB of one who asks.
    pub fn client(&self, builder: OrbBuilder) -> Result<OrbBuilder, Failure> {
        let with_roots = [("--tls-name", self.tls_name.is_some()), self.own()];
        if let (None, Some((flag, _))) = (&self.tls_roots, with_roots.into_iter().find(|(_, given)| *given)) {
            return Err(Failure::new(format_args!("{flag} without --tls-roots"))
                .help("--tls-roots FILE names the authorities whose servers are believed"));
        }
        let own = identity(self.tls_cert.as_ref(), self.tls_key.as_ref())?;
        believing(builder, self.tls_roots.as_ref(), own, self.tls_name.as_deref())
    }

    /// How one serves who believes clients of the authorities in this file.
    pub fn server(&self, clients: &Path) -> Result<TlsServer, Failure> {
        let own = |flag, path: &Option<PathBuf>| path.as_deref().map(|path| guarded(flag, path)).transpose();
        let (certificate, key) = (own("--tls-cert", &self.tls_cert)?, own("--tls-key", &self.tls_key)?);
        let clients = guarded("--tls-clients", clients)?;
        let own = identity(certificate.as_ref(), key.as_ref())?;
        let own = own.ok_or_else(|| {
            Failure::new("to serve over TLS needs a certificate")
                .help("--tls-cert FILE names it, --tls-key FILE its private key")
        })?;
        let roots = TlsRoots::from_file(clients).map_err(|error| unusable("--tls-clients", &error))?;
        TlsServer::for_clients_of(own, &roots).map_err(|error| unusable("--tls-cert and --tls-key", &error))
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

/// The file, without links, of one who serves: whoever could replace it would decide who may do what. Where it is missing, what
/// reads it says so.
fn guarded(flag: &str, path: &Path) -> Result<PathBuf, Failure> {
    match trusted::file(path) {
        Ok(path) => Ok(path),
        Err(Mistrust::System { .. }) => Ok(path.to_owned()),
        Err(mistrust) => {
            Err(Failure::new(format_args!("{flag} {}: {mistrust}", path.display())).help(mistrust.remedy()))
        }
    }
}

fn identity(certificate: Option<&PathBuf>, key: Option<&PathBuf>) -> Result<Option<TlsIdentity>, Failure> {
    let Some(certificate) = certificate else { return Ok(None) };
    let own = TlsIdentity::from_files(certificate, key.unwrap_or(certificate));
    own.map(Some).map_err(|error| match (&error, key) {
        // Nobody said where it is.
        (TlsError::Pem { wanted: "private key", .. }, None) => {
            Failure::new(error).help("--tls-key FILE names the file with the private key")
        }
        (_, Some(_)) => unusable("--tls-cert and --tls-key", &error),
        _ => unusable("--tls-cert", &error),
    })
}

fn believing(
    builder: OrbBuilder,
    roots: Option<&PathBuf>,
    own: Option<TlsIdentity>,
    name: Option<&str>,
) -> Result<OrbBuilder, Failure> {
    let Some(roots) = roots else { return Ok(builder) };
    let roots = TlsRoots::from_file(roots).map_err(|error| unusable("--tls-roots", &error))?;
    let mut client = TlsClient::new(&roots);
    if let Some(own) = own {
        client = client.identity(own);
    }
    if let Some(name) = name {
        client = client.named(name);
    }
    builder.tls_client(client).map_err(|error| unusable("--tls-cert", &error))
}

/// What is wrong with the files that these flags name, and what they should be.
fn unusable(flags: &str, error: &TlsError) -> Failure {
    let failure = Failure::new(error);
    match error {
        TlsError::File { .. } => failure.help(format!("{flags} names a file that can be read")),
        TlsError::Pem { .. } => failure.help(format!(
            "{flags}: files in PEM; `openssl x509 -inform der -in FILE` turns a certificate in DER into it"
        )),
        TlsError::Name(_) => {
            failure.help("--tls-name NAME: a host name or address of those in the server's certificate")
        }
        TlsError::Mismatch => failure.help("--tls-key names the key that the certificate was asked for with"),
        _ => failure.help(format!("{flags}: see what `openssl x509 -noout -text -in FILE` says of it")),
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
        minor::TLS_NOT_SET_UP => "say which authorities to believe: --tls-roots FILE",
        minor::BROKER_NAME => "whoever runs that broker lets a certificate in by its name: --tls-reader NAME",
        _ => return None,
    })
}
