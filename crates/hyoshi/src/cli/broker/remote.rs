//! Endpoints of a broker for other machines, over TLS, and the certificates that it accepts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::Args;
use hyoshi_broker::RemoteAccess;
use hyoshi_broker::certificates::Certificates;

use super::names::user;
use crate::cli::CliError;
use crate::cli::tls::{CertificateReload, TlsPapers};

#[derive(Debug, Args)]
pub(super) struct Listen {
    /// Also serve other machines at ssliop://HOST:PORT (TLS; port 0: any); repeatable
    #[arg(long, value_name = "ENDPOINT")]
    listen: Vec<String>,
    /// Serve clients there with a certificate from one of the authorities in this file (PEM)
    #[arg(long, value_name = "FILE")]
    tls_clients: Option<PathBuf>,
    /// Certificates for this name may change all tasks and the policy; several with commas
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    tls_operator: Vec<String>,
    /// Certificates for this name act as that user of this machine, for the user's own tasks; several with commas
    #[arg(long, value_name = "NAME=USER", value_delimiter = ',')]
    tls_user: Vec<String>,
    /// Besides those above, only certificates for this name may see tasks [default: all certificates may]; several with
    /// commas
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    tls_reader: Vec<String>,
}

impl Listen {
    /// The flags, and whether they are set.
    pub fn given(&self) -> [(&'static str, bool); 5] {
        [
            ("listen", !self.listen.is_empty()),
            ("tls-clients", self.tls_clients.is_some()),
            ("tls-operator", !self.tls_operator.is_empty()),
            ("tls-user", !self.tls_user.is_empty()),
            ("tls-reader", !self.tls_reader.is_empty()),
        ]
    }

    /// The endpoint that these flags request, and its renewal; `None` if it serves only its own machine.
    pub fn remote(&self, tls: &TlsPapers) -> Result<(Option<RemoteAccess>, CertificateReload), CliError> {
        if self.listen.is_empty() {
            let own = tls.own();
            let without = self.given().into_iter().map(|(flag, given)| (format!("--{flag}"), given));
            return match without.chain([(own.0.to_owned(), own.1)]).find(|(_, given)| *given) {
                Some((flag, _)) => Err(CliError::new(format_args!("{flag} needs an endpoint over TLS"))
                    .help("add --listen ssliop://HOST:PORT")),
                None => Ok((None, CertificateReload::none())),
            };
        }
        for endpoint in &self.listen {
            check(endpoint)?;
        }
        let clients = self.tls_clients.as_ref().ok_or_else(|| {
            CliError::new("--tls-clients is required with --listen ssliop:")
                .help("use --tls-clients FILE, with the authorities of clients' certificates")
        })?;
        let users = self.tls_user.iter().map(|given| {
            let (name, of) = given.split_once('=').ok_or_else(|| {
                CliError::new(format_args!("`{given}` has no user"))
                    .help("use --tls-user NAME=USER, such as ann.plant=ann")
            })?;
            Ok((name.to_owned(), user(of)?))
        });
        let certificates = Certificates {
            operators: self.tls_operator.iter().cloned().collect(),
            users: users.collect::<Result<BTreeMap<_, _>, CliError>>()?,
            readers: match self.tls_reader.is_empty() {
                true => None,
                false => Some(BTreeSet::from_iter(self.tls_reader.iter().cloned())),
            },
        };
        let (tls, renewal) = tls.server(clients)?;
        Ok((Some(RemoteAccess { endpoints: self.listen.clone(), tls, certificates }), renewal))
    }
}

fn check(endpoint: &str) -> Result<(), CliError> {
    match endpoint.split_once(':') {
        Some(("ssliop", rest)) if rest.starts_with("//") => Ok(()),
        Some(("iiop", _)) => Err(CliError::new("the broker does not serve plain TCP: it could not identify clients")
            .help(format_args!(
                "use --listen {} with --tls-cert, --tls-key and --tls-clients",
                endpoint.replacen("iiop", "ssliop", 1)
            ))),
        Some(("unix", _)) => Err(CliError::new("--listen applies only to clients on other machines")
            .help("use --socket PATH for the broker's Unix socket")),
        _ => Err(CliError::new(format_args!("invalid endpoint `{endpoint}`")).help("--listen ssliop://HOST:PORT")),
    }
}
