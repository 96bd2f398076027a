//! Files with certificates, keys and authorities: read at the start, and again by services on SIGHUP.

use std::path::{Path, PathBuf};

use hyoshi_model::Span;
use hyoshi_orb::{TlsClient, TlsError, TlsIdentity, TlsRoots, TlsServer, TlsWarning};
use hyoshi_os::trusted::{self, Mistrust};
use hyoshi_os::{Clock, Hangup, MonotonicClock, Spawn};

use crate::cli::{Failure, streams};

/// How often a service checks whether a certificate expires soon.
const DAILY: Span = Span::from_secs(24 * 60 * 60);

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) cert: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) roots: Option<PathBuf>,
    pub(super) clients: Option<PathBuf>,
    pub(super) name: Option<String>,
    /// Turn warnings into errors.
    pub(super) strict: bool,
    /// Refuse files that another user could replace, because they decide who has which rights.
    pub(super) guarded: bool,
}

impl Files {
    /// The certificate that a server shows, and the clients it trusts; `None` without a certificate.
    pub(super) fn server(&self) -> Result<Option<TlsServer>, Failure> {
        let server = self.read_server()?;
        self.warn(server.iter().flat_map(TlsServer::warnings))?;
        Ok(server)
    }

    fn read_server(&self) -> Result<Option<TlsServer>, Failure> {
        // Before any of them is read.
        for (flag, path) in [("--tls-cert", &self.cert), ("--tls-key", &self.key), ("--tls-clients", &self.clients)] {
            path.as_ref().map(|path| self.path(flag, path)).transpose()?;
        }
        let Some(own) = self.identity()? else { return Ok(None) };
        let server = match &self.clients {
            None => TlsServer::new(own),
            Some(file) => {
                let roots = TlsRoots::from_file(self.path("--tls-clients", file)?)
                    .map_err(|error| unusable("--tls-clients", &error))?;
                TlsServer::for_clients_of(own, &roots)
            }
        };
        server.map(Some).map_err(|error| unusable(self.flags(), &error))
    }

    /// The servers that a client trusts, and the certificate it shows; `None` without authorities.
    pub(super) fn client(&self) -> Result<Option<TlsClient>, Failure> {
        let client = self.read_client()?;
        self.warn(client.iter().flat_map(TlsClient::warnings))?;
        Ok(client)
    }

    fn read_client(&self) -> Result<Option<TlsClient>, Failure> {
        let own = self.identity()?;
        let Some(roots) = &self.roots else { return Ok(None) };
        let roots = TlsRoots::from_file(roots).map_err(|error| unusable("--tls-roots", &error))?;
        let mut client = TlsClient::new(&roots);
        if let Some(own) = own {
            client = client.identity(own);
        }
        if let Some(name) = &self.name {
            client = client.named(name);
        }
        Ok(Some(client))
    }

    pub(super) fn identity(&self) -> Result<Option<TlsIdentity>, Failure> {
        let Some(certificate) = &self.cert else { return Ok(None) };
        let certificate = self.path("--tls-cert", certificate)?;
        let key = self.key.as_ref().map(|key| self.path("--tls-key", key)).transpose()?;
        let own = TlsIdentity::from_files(&certificate, key.as_ref().unwrap_or(&certificate));
        own.map(Some).map_err(|error| match &error {
            TlsError::Pem { wanted: "private key", why, .. } if self.key.is_none() && why == "there is none" => {
                Failure::new(error).help("--tls-key FILE names the file with the private key")
            }
            // One of the two files is wrong.
            TlsError::Pem { wanted: "private key", .. } | TlsError::Encrypted { .. } if self.key.is_some() => {
                unusable("--tls-key", &error)
            }
            TlsError::Pem { wanted: "certificate", .. } => unusable("--tls-cert", &error),
            _ => unusable(self.flags(), &error),
        })
    }

    /// The path of a file, without links if no other user may control its path. If it is missing, the reader reports
    /// it.
    fn path(&self, flag: &str, path: &Path) -> Result<PathBuf, Failure> {
        match self.guarded.then(|| trusted::file(path)) {
            Some(Ok(path)) => Ok(path),
            None | Some(Err(Mistrust::System { .. })) => Ok(path.to_owned()),
            Some(Err(mistrust)) => {
                Err(Failure::new(format_args!("{flag} {}: {mistrust}", path.display())).help(mistrust.remedy()))
            }
        }
    }

    /// The flags that name a certificate and its key.
    fn flags(&self) -> &'static str {
        if self.key.is_some() { "--tls-cert and --tls-key" } else { "--tls-cert" }
    }

    fn warn(&self, warnings: impl Iterator<Item = TlsWarning>) -> Result<(), Failure> {
        let mut said = Vec::new();
        for warning in warnings {
            if self.strict && is_grave(&warning) {
                return Err(Failure::new(&warning).help(warning.remedy()));
            }
            // A server's certificate may also be used as a client's.
            if !said.contains(&warning) {
                streams::err(format_args!("warning: {warning}\nhelp: {}\n", warning.remedy()));
                said.push(warning);
            }
        }
        Ok(())
    }
}

/// What peers refuse, or should refuse. Other warnings are about the future.
fn is_grave(warning: &TlsWarning) -> bool {
    !matches!(warning, TlsWarning::ExpiresSoon { .. } | TlsWarning::OldList { .. })
}

/// Reads a service's files again.
#[derive(Debug)]
pub(in crate::cli) struct Renewal {
    pub(super) files: Files,
    pub(super) server: Option<TlsServer>,
    pub(super) client: Option<TlsClient>,
}

impl Renewal {
    /// Of a service without TLS.
    pub fn none() -> Renewal {
        let files =
            Files { cert: None, key: None, roots: None, clients: None, name: None, strict: false, guarded: false };
        Renewal { files, server: None, client: None }
    }

    /// From now on SIGHUP reloads the files, on a separate thread. `say` is called with messages for the operator, and
    /// each day with certificates that expire soon.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub fn start(self, hangup: Hangup, say: impl Fn(String) + Send + 'static) -> Result<(), Failure> {
        let work = move || {
            let clock = MonotonicClock::start();
            let mut next = clock.now() + DAILY;
            loop {
                if hangup.wait_until(&clock, next) {
                    match self.renew() {
                        Ok(what) => say(format!("SIGHUP: {what}")),
                        Err(why) => say(format!("SIGHUP: everything stays as it was: {why}")),
                    }
                } else {
                    next = clock.now() + DAILY;
                    let server = self.server.iter().flat_map(TlsServer::warnings);
                    server.for_each(|warning| say(format!("{warning}: {}", warning.remedy())));
                }
            }
        };
        let spawned = Spawn::new("renewal").spawn(work);
        spawned.map(drop).map_err(|error| Failure::new(format_args!("there is no thread to be had: {error}")))
    }

    /// All files or none.
    fn renew(&self) -> Result<&'static str, String> {
        let refused = |failure: Failure| failure.message();
        let server = match &self.server {
            Some(_) => self.files.read_server().map_err(refused)?,
            None => None,
        };
        let client = match &self.client {
            Some(_) => self.files.read_client().map_err(refused)?,
            None => None,
        };
        let warnings = server.iter().flat_map(TlsServer::warnings).chain(client.iter().flat_map(TlsClient::warnings));
        // If peers refuse the new set, the old one is better.
        let bad = |warning: &TlsWarning| match warning {
            TlsWarning::KeyOpen { .. } => self.files.strict,
            warning => is_grave(warning),
        };
        if let Some(warning) = warnings.into_iter().find(bad) {
            return Err(warning.to_string());
        }
        let fails = |error: TlsError| error.to_string();
        if let (Some(client), Some(next)) = (&self.client, &client) {
            client.renew(next).map_err(fails)?;
        }
        if let (Some(server), Some(next)) = (&self.server, &server) {
            server.renew(next).map_err(fails)?;
        }
        match (&self.server, &self.client) {
            (None, None) => Ok("there is nothing to read again: no certificates are in use"),
            _ => Ok("certificates, keys, authorities and lists of revoked certificates were read again"),
        }
    }
}

/// The error in the files of these flags, and what they should contain.
pub(super) fn unusable(flags: &str, error: &TlsError) -> Failure {
    let failure = Failure::new(error);
    match error {
        TlsError::File { .. } => failure.help(format!("{flags} names a file that can be read")),
        TlsError::Encrypted { .. } => {
            failure.help("decrypt it: `openssl pkey -in FILE -out PLAIN`, readable for this program's user only")
        }
        TlsError::Pem { wanted: "private key", .. } => failure.help(format!(
            "{flags}: a key in PEM, whole and with the ends of its lines, as `openssl genpkey` writes it"
        )),
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
