//! Files with certificates, keys and authorities: read at the start, and again by services on SIGHUP.

use std::path::{Path, PathBuf};

use hyoshi_model::Span;
use hyoshi_orb::{TlsClient, TlsError, TlsIdentity, TlsRoots, TlsServer, TlsWarning};
use hyoshi_os::trusted::{self, UntrustedPath};
use hyoshi_os::{Clock, Hangup, MonotonicClock, Spawn};

use crate::cli::{CliError, streams};

/// How often a service checks whether a certificate expires soon.
const DAILY: Span = Span::from_secs(24 * 60 * 60);

/// See the module.
#[derive(Clone, Debug, Default)]
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

/// What the files contain.
#[derive(Clone, Debug, Default)]
pub(super) struct TlsSettings {
    /// The certificate that a server shows, and the clients it trusts.
    pub(super) server: Option<TlsServer>,
    /// The servers that a client trusts, and the certificate it shows.
    pub(super) client: Option<TlsClient>,
}

impl TlsSettings {
    /// Each once: a server's certificate may also be its own as a client.
    fn warnings(&self) -> Vec<TlsWarning> {
        let mut all = self.server.as_ref().map(TlsServer::warnings).unwrap_or_default();
        for warning in self.client.iter().flat_map(TlsClient::warnings) {
            if !all.contains(&warning) {
                all.push(warning);
            }
        }
        all
    }
}

impl Files {
    /// Reads all of them at the start, and prints warnings.
    pub(super) fn load(&self, serves: bool) -> Result<TlsSettings, CliError> {
        let settings = self.read(serves)?;
        for warning in settings.warnings() {
            if self.strict && is_grave(&warning) {
                return Err(CliError::new(&warning).help(warning.remedy()));
            }
            streams::err(format_args!("warning: {warning}\nhelp: {}\n", warning.remedy()));
        }
        Ok(settings)
    }

    /// Reads each of them once. A server needs a certificate, a client authorities.
    fn read(&self, serves: bool) -> Result<TlsSettings, CliError> {
        // Before any of them is read.
        for (flag, path) in [("--tls-cert", &self.cert), ("--tls-key", &self.key), ("--tls-clients", &self.clients)] {
            path.as_ref().map(|path| self.path(flag, path)).transpose()?;
        }
        let own = self.identity()?;
        let server = own.clone().filter(|_| serves).map(|own| self.server(own)).transpose()?;
        let client = self.roots.as_ref().map(|roots| self.client(roots, own)).transpose()?;
        Ok(TlsSettings { server, client })
    }

    fn server(&self, own: TlsIdentity) -> Result<TlsServer, CliError> {
        let server = match &self.clients {
            None => TlsServer::new(own),
            Some(file) => {
                let roots = TlsRoots::from_file(self.path("--tls-clients", file)?)
                    .map_err(|error| unusable("--tls-clients", &error))?;
                TlsServer::for_clients_of(own, &roots)
            }
        };
        server.map_err(|error| unusable(self.flags(), &error))
    }

    fn client(&self, roots: &Path, own: Option<TlsIdentity>) -> Result<TlsClient, CliError> {
        let roots = TlsRoots::from_file(roots).map_err(|error| unusable("--tls-roots", &error))?;
        let mut client = TlsClient::new(&roots);
        if let Some(own) = own {
            client = client.identity(own);
        }
        if let Some(name) = &self.name {
            client = client.named(name);
        }
        Ok(client)
    }

    pub(super) fn identity(&self) -> Result<Option<TlsIdentity>, CliError> {
        let Some(certificate) = &self.cert else { return Ok(None) };
        let certificate = self.path("--tls-cert", certificate)?;
        let key = self.key.as_ref().map(|key| self.path("--tls-key", key)).transpose()?;
        let own = TlsIdentity::from_files(&certificate, key.as_ref().unwrap_or(&certificate));
        own.map(Some).map_err(|error| match &error {
            TlsError::Pem { wanted: "private key", why, .. } if self.key.is_none() && why == "there is none" => {
                CliError::new(error).help("--tls-key FILE names the file with the private key")
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
    fn path(&self, flag: &str, path: &Path) -> Result<PathBuf, CliError> {
        match self.guarded.then(|| trusted::file(path)) {
            Some(Ok(path)) => Ok(path),
            None | Some(Err(UntrustedPath::System { .. })) => Ok(path.to_owned()),
            Some(Err(mistrust)) => {
                Err(CliError::new(format_args!("{flag} {}: {mistrust}", path.display())).help(mistrust.remedy()))
            }
        }
    }

    /// The flags that name a certificate and its key.
    fn flags(&self) -> &'static str {
        if self.key.is_some() { "--tls-cert and --tls-key" } else { "--tls-cert" }
    }
}

/// What peers refuse, or should refuse. Other warnings are about the future.
fn is_grave(warning: &TlsWarning) -> bool {
    !matches!(warning, TlsWarning::ExpiresSoon { .. } | TlsWarning::OldList { .. })
}

/// The files of a node's certificate, its key and its authorities. Another user controls none of these paths.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "zenoh"), expect(dead_code, reason = "only Zenoh reads them itself"))]
pub(in crate::cli) struct NodeFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub roots: PathBuf,
}

/// Reads a service's files again.
#[derive(Debug)]
pub(in crate::cli) struct CertificateReload {
    pub(super) files: Files,
    pub(super) used: TlsSettings,
}

impl CertificateReload {
    /// Of a service without TLS.
    pub fn none() -> CertificateReload {
        CertificateReload { files: Files::default(), used: TlsSettings::default() }
    }

    /// From now on SIGHUP reloads the files, on a separate thread. `report` is called with messages for the operator,
    /// and each day with certificates that expire soon.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub fn start(self, hangup: Hangup, report: impl Fn(String) + Send + 'static) -> Result<(), CliError> {
        let work = move || {
            let clock = MonotonicClock::start();
            let mut next = clock.now() + DAILY;
            loop {
                if hangup.wait_until(&clock, next) {
                    match self.renew() {
                        Ok(what) => report(format!("SIGHUP: {what}")),
                        Err(why) => {
                            report(format!("SIGHUP: old files kept: {why}"));
                            continue;
                        }
                    }
                }
                next = clock.now() + DAILY;
                for warning in self.used.warnings() {
                    report(format!("{warning}: {}", warning.remedy()));
                }
            }
        };
        let spawned = Spawn::new("renewal").spawn(work);
        spawned.map(drop).map_err(|error| CliError::new(format_args!("cannot start a thread: {error}")))
    }

    /// The files of a node, for a library that reads them itself; `None` without a certificate or authorities.
    pub fn node_files(&self) -> Result<Option<NodeFiles>, CliError> {
        let Files { cert: Some(cert), key, roots: Some(roots), .. } = &self.files else { return Ok(None) };
        let certificate = self.files.path("--tls-cert", cert)?;
        let key = key.as_ref().map(|key| self.files.path("--tls-key", key)).transpose()?;
        let roots = self.files.path("--tls-roots", roots)?;
        Ok(Some(NodeFiles { key: key.unwrap_or_else(|| certificate.clone()), certificate, roots }))
    }

    /// All files or none.
    fn renew(&self) -> Result<&'static str, String> {
        let TlsSettings { server, client } = &self.used;
        let next = self.files.read(server.is_some()).map_err(|failure| failure.message())?;
        // If peers refuse the new set, the old one is better.
        let bad = |warning: &TlsWarning| match warning {
            TlsWarning::Expired { .. } | TlsWarning::NotYetValid { .. } => true,
            warning => self.files.strict && is_grave(warning),
        };
        if let Some(warning) = next.warnings().into_iter().find(bad) {
            return Err(warning.to_string());
        }
        let fails = |error: TlsError| error.to_string();
        next.client.as_ref().map_or(Ok(()), TlsClient::check).map_err(fails)?;
        if let (Some(server), Some(next)) = (server, &next.server) {
            server.renew(next).map_err(fails)?;
        }
        // Cannot fail any more.
        if let (Some(client), Some(next)) = (client, &next.client) {
            client.renew(next).map_err(fails)?;
        }
        match (server, client) {
            (None, None) => Ok("there is nothing to read again: no certificates are in use"),
            _ => Ok("certificates, keys, authorities and lists of revoked certificates were read again"),
        }
    }
}

/// The error in the files of these flags, and what they should contain.
pub(super) fn unusable(flags: &str, error: &TlsError) -> CliError {
    let failure = CliError::new(error);
    match error {
        TlsError::File { .. } => failure.help(format!("{flags}: name a readable file")),
        TlsError::Encrypted { .. } => {
            failure.help("decrypt it: `openssl pkey -in FILE -out PLAIN`, readable for this program's user only")
        }
        TlsError::Pem { wanted: "private key", .. } => {
            failure.help(format!("{flags}: a complete key in PEM, with its line ends, as `openssl genpkey` writes it"))
        }
        TlsError::Pem { .. } => failure.help(format!(
            "{flags}: files must be PEM; `openssl x509 -inform der -in FILE` converts a DER certificate"
        )),
        TlsError::Name(_) => failure.help("--tls-name NAME: a host name or address in the server's certificate"),
        TlsError::Mismatch => failure.help("--tls-key names the certificate's key"),
        _ => failure.help(format!("{flags}: `openssl x509 -noout -text -in FILE` shows the certificate")),
    }
}

#[cfg(test)]
#[path = "../../../../orb/tests/common/authority.rs"]
mod authority;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, SystemTime};

    use hyoshi_orb::{IorEndpoint, Object, Orb, minor};

    use super::authority::{Authority, Papers};
    use super::*;

    /// A directory that ends with the test.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let at = std::env::temp_dir().join(format!("hyoshi-files-{name}-{}", std::process::id()));
            fs::create_dir_all(&at).unwrap();
            Place(at)
        }

        fn write(&self, authority: &Authority, papers: &Papers) {
            fs::write(self.0.join("roots.pem"), &authority.pem).unwrap();
            let own = papers.file(&self.0, "own.pem");
            fs::set_permissions(own, fs::Permissions::from_mode(0o600)).unwrap();
        }

        fn files(&self) -> Files {
            let at = |name| Some(self.0.join(name));
            Files { cert: at("own.pem"), roots: at("roots.pem"), ..Files::default() }
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn days(days: u64) -> impl Fn(&mut rcgen::CertificateParams) {
        move |params| params.not_after = (SystemTime::now() + Duration::from_secs(days * 86_400 + 3_600)).into()
    }

    #[test]
    fn if_one_side_cannot_be_renewed_neither_is() {
        let (place, old, new) = (Place::new("both"), Authority::new("old"), Authority::new("new"));
        place.write(&old, &old.papers(&["127.0.0.1"]));
        let used = place.files().read(true).unwrap();
        let orb = Orb::builder().tls_client(used.client.clone().unwrap()).unwrap().build().unwrap();
        // Another server with a certificate of the old authority, at another port each time: connections stay.
        let trusts = || {
            let server = TlsServer::new(old.papers(&["127.0.0.1"]).identity()).unwrap();
            let other = Orb::builder().tls_server(server).listen("ssliop://127.0.0.1:0").unwrap().build().unwrap();
            other.ready();
            let Some(IorEndpoint::Tls { port, .. }) = other.endpoints().first().cloned() else { panic!("no TLS") };
            let address = format!("corbaloc:ssliop:1.2@127.0.0.1:{port}/None");
            let object = orb.resolve_unchecked::<dyn Object>(&address).unwrap();
            object.as_ref().non_existent().map_err(|raised| raised.minor)
        };
        assert_eq!(trusts(), Ok(true));
        // The server would ask clients for certificates, and did not.
        place.write(&new, &new.papers(&["127.0.0.1"]));
        let clients = Some(place.0.join("roots.pem"));
        let renewal = CertificateReload { files: Files { clients, ..place.files() }, used: used.clone() };
        assert!(renewal.renew().unwrap_err().contains("cannot change while the server runs"));
        assert_eq!(trusts(), Ok(true));
        let renewal = CertificateReload { files: place.files(), used };
        renewal.renew().unwrap();
        assert_eq!(trusts(), Err(minor::TLS_UNKNOWN_CA));
    }

    #[test]
    fn a_clients_own_certificate_is_checked_each_day_also_after_a_renewal() {
        let (place, authority) = (Place::new("daily"), Authority::new("plant"));
        place.write(&authority, &authority.papers_with(&["ann"], days(20)));
        let used = place.files().read(false).unwrap();
        assert!(used.server.is_none());
        let said = |used: &TlsSettings| used.warnings().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(said(&used), ["the certificate of \"yard\" expires in 20 days"]);
        let renewal = CertificateReload { files: place.files(), used };
        place.write(&authority, &authority.papers_with(&["ann"], days(10)));
        renewal.renew().unwrap();
        assert_eq!(said(&renewal.used), ["the certificate of \"yard\" expires in 10 days"]);
        place.write(&authority, &authority.papers(&["ann"]));
        renewal.renew().unwrap();
        assert_eq!(said(&renewal.used), [""; 0]);
        // One certificate of both sides is reported once.
        place.write(&authority, &authority.papers_with(&["127.0.0.1"], days(10)));
        assert_eq!(said(&place.files().read(true).unwrap()).len(), 1);
    }

    #[test]
    fn a_renewal_to_a_certificate_without_names_is_a_warning_and_with_strict_refused() {
        let (place, authority) = (Place::new("nameless"), Authority::new("plant"));
        place.write(&authority, &authority.papers(&["127.0.0.1"]));
        let renewal = CertificateReload { files: place.files(), used: place.files().read(true).unwrap() };
        place.write(&authority, &authority.papers(&[]));
        renewal.renew().unwrap();
        assert!(matches!(renewal.used.warnings()[..], [.., TlsWarning::NoNames { .. }]));
        let strict = CertificateReload { files: Files { strict: true, ..place.files() }, used: renewal.used };
        assert!(strict.renew().is_err());
    }
}
