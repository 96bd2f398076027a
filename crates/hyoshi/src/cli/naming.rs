//! `hyoshi naming`: a CosNaming service, and its clients.

mod client;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use hyoshi_naming::{KEY, NamingLimits, NamingService, NamingServiceError, StoreError};
use hyoshi_orb::{IorEndpoint, Orb};
use hyoshi_os::{Hangup, Interrupt, Wake};
use serde_json::json;

use super::tls::ServerTls;
use super::{CliError, Format, VerbOutcome, head, streams};

/// The default endpoint.
const LISTEN: &str = "iiop://127.0.0.1:2809";

#[derive(Debug, Args)]
#[command(after_help = "A service for this machine, for the network, and over TLS:\n  \
                  hyoshi naming\n  \
                  hyoshi naming --listen iiop://0.0.0.0:2809 --store /var/lib/hyoshi/naming --ior /run/naming.ior\n  \
                  hyoshi naming --listen ssliop://0.0.0.0:2810 --tls-cert naming.pem --tls-key naming.key --tls-clients plant.pem\n\
                  Clients, with any ORB:\n  \
                  hyoshi naming bind --contexts plant/tracker file:tracker.ior\n  \
                  hyoshi call corbaname::127.0.0.1#plant/tracker locate 7 --idl tracker.idl\n  \
                  omniorb-program -ORBInitRef NameService=corbaloc::127.0.0.1/NameService")]
pub(super) struct Arguments {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Endpoint to serve: iiop://HOST:PORT (port 0: any), ssliop://HOST:PORT (TLS) or unix:/PATH; can be repeated
    /// [default: iiop://127.0.0.1:2809]
    #[arg(long, value_name = "ENDPOINT")]
    listen: Vec<String>,
    /// The host name in references, if clients use another name for this host
    #[arg(long, value_name = "HOST")]
    advertise: Option<String>,
    /// Store the names in this directory [default: hyoshi/naming in XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "DIR", conflicts_with = "memory")]
    store: Option<PathBuf>,
    /// Keep the names in memory only
    #[arg(long)]
    memory: bool,
    /// Write the reference of the root context to this file
    #[arg(long, value_name = "FILE")]
    ior: Option<PathBuf>,
    /// Maximum number of bindings, in all contexts together [default: 100000]
    #[arg(long, value_name = "COUNT")]
    bindings: Option<usize>,
    /// Maximum number of contexts [default: 10000]
    #[arg(long, value_name = "COUNT")]
    contexts: Option<usize>,
    #[command(flatten)]
    tls: ServerTls,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the bindings of a context
    List(client::ListArguments),
    /// Print the reference that is bound to a name
    Resolve(client::ResolveArguments),
    /// Bind an object to a name
    Bind(client::BindArguments),
    /// Unbind a name; the object itself remains
    Unbind(client::UnbindArguments),
    /// Create a context and bind it to a name
    Context(client::ContextArguments),
}

impl Arguments {
    /// The name of the verb.
    pub fn name(&self) -> &'static str {
        match &self.verb {
            None => "naming",
            Some(Verb::List(_)) => "naming list",
            Some(Verb::Resolve(_)) => "naming resolve",
            Some(Verb::Bind(_)) => "naming bind",
            Some(Verb::Unbind(_)) => "naming unbind",
            Some(Verb::Context(_)) => "naming context",
        }
    }
}

/// The first flag of the service on the command line.
fn of_service(arguments: &Arguments) -> Option<&'static str> {
    let given = [
        ("--listen", !arguments.listen.is_empty()),
        ("--advertise", arguments.advertise.is_some()),
        ("--store", arguments.store.is_some()),
        ("--memory", arguments.memory),
        ("--ior", arguments.ior.is_some()),
        ("--bindings", arguments.bindings.is_some()),
        ("--contexts", arguments.contexts.is_some()),
    ];
    given.into_iter().chain(arguments.tls.flags()).find(|(_, given)| *given).map(|(flag, _)| flag)
}

pub(super) fn naming(arguments: &Arguments, format: Format) -> Result<VerbOutcome, CliError> {
    // Not clap's `args_conflicts_with_subcommands`, which refuses `--format` before a verb too.
    if let (Some(flag), Some(_)) = (of_service(arguments), &arguments.verb) {
        return Err(CliError::new(format!(
            "{flag} before `{}` is a flag of the service",
            arguments.name().replace("naming ", "")
        ))
        .help(format!("write the flags of `hyoshi {}` after it", arguments.name())));
    }
    match &arguments.verb {
        None => serve(arguments, format),
        Some(Verb::List(list)) => client::list(list, format),
        Some(Verb::Resolve(resolve)) => client::resolve(resolve, format),
        Some(Verb::Bind(bind)) => client::bind(bind, format),
        Some(Verb::Unbind(unbind)) => client::unbind(unbind, format),
        Some(Verb::Context(context)) => client::context(context, format),
    }
}

fn serve(arguments: &Arguments, format: Format) -> Result<VerbOutcome, CliError> {
    let store = match (&arguments.store, arguments.memory) {
        (_, true) => None,
        (Some(store), _) => Some(store.clone()),
        (None, _) => Some(default_store().ok_or_else(|| {
            CliError::new("no directory for the names: neither XDG_STATE_HOME nor HOME is an absolute path")
                .help("name one with --store DIR, or use --memory")
        })?),
    };
    // First: a signal may arrive at any time.
    let ended = Arc::new(Wake::new());
    let interrupt = Interrupt::on_signals(ended.clone())
        .map_err(|error| CliError::new(format!("cannot listen for signals: {error}")))?;
    let hangup = Hangup::on_signal().map_err(|error| CliError::new(format!("cannot listen for signals: {error}")))?;
    let mut builder = Orb::builder();
    let listen: Vec<_> = arguments.listen.iter().map(String::as_str).collect();
    let listen = if listen.is_empty() { &[LISTEN][..] } else { &listen };
    for endpoint in listen {
        builder = builder.listen(endpoint).map_err(CliError::new)?;
    }
    let (mut builder, renewal) = arguments.tls.server(builder, listen)?;
    renewal.start(hangup, |message| streams::err(format_args!("hyoshi naming: {message}\n")))?;
    if let Some(host) = &arguments.advertise {
        builder = builder.advertise(host);
    }
    let orb = builder.build().map_err(|error| {
        CliError::new(&error).help("another service may use this address; choose one with --listen iiop://HOST:PORT")
    })?;
    let mut limits = NamingLimits::default();
    limits.bindings = arguments.bindings.unwrap_or(limits.bindings);
    limits.contexts = arguments.contexts.unwrap_or(limits.contexts);
    let service = NamingService::start(&orb, store.as_deref(), limits).map_err(refused)?;
    if let Some(what) = service.repaired() {
        streams::err(format_args!("warning: {what}\n"));
    }
    let root = service.root().map_err(CliError::new)?;
    orb.ready();
    let reference = root.ior().to_string();
    if let Some(path) = &arguments.ior {
        write(path, &reference)?;
    }
    report(&service, &orb, &reference, store.as_deref(), format)?;
    while !interrupt.requested() {
        ended.wait();
    }
    orb.shutdown();
    Ok(VerbOutcome::Success)
}

/// The default directory of names (XDG base directory specification: relative paths are ignored).
fn default_store() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || absolute("HOME").map(|home| home.join(".local/state"));
    Some(absolute("XDG_STATE_HOME").or_else(home)?.join("hyoshi/naming"))
}

fn refused(error: NamingServiceError) -> CliError {
    let help = match &error {
        NamingServiceError::Store(StoreError::Io { .. }) => {
            "choose another directory with --store DIR, or use --memory"
        }
        _ => return CliError::new(error),
    };
    CliError::new(&error).help(help)
}

/// Writes the file in one step, because programs may wait for it. In a directory of another user, or one like `/tmp`,
/// that user could replace the new file by a link: then a file that cannot exist before is written.
pub(super) fn write(path: &Path, reference: &str) -> Result<(), CliError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let create = || fs::OpenOptions::new().write(true).create_new(true).open(&beside);
    // Left by a program that was killed.
    let made = create().or_else(|_| fs::remove_file(&beside).and_then(|()| create()));
    let written = made.and_then(|mut file| writeln!(file, "{reference}")).and_then(|()| fs::rename(&beside, path));
    written.map_err(|error| {
        drop(fs::remove_file(&beside));
        CliError::new(format!("cannot write the reference to {}: {error}", path.display()))
            .help("create the directory, or make it writable")
    })
}

fn report(
    service: &NamingService,
    orb: &Orb,
    reference: &str,
    store: Option<&Path>,
    format: Format,
) -> Result<(), CliError> {
    let at: Vec<_> = orb.endpoints().iter().map(corbaloc).collect();
    let (bindings, contexts) = service.size();
    match format {
        Format::Text => {
            let mut text = String::new();
            for at in &at {
                text += &format!("{at}\n");
            }
            text += &format!("{reference}\n");
            text += &match store {
                Some(store) => {
                    format!(
                        "{} in {}, stored in {}\n",
                        count(bindings, "name"),
                        count(contexts, "context"),
                        store.display()
                    )
                }
                None => "names are kept in memory only\n".to_owned(),
            };
            streams::out(text)
        }
        Format::Json => {
            let answer = json!({
                "hyoshi": head("naming"), "at": at, "ior": reference, "store": store,
                "bindings": bindings, "contexts": contexts,
            });
            streams::out(format_args!("{answer:#}\n"))
        }
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn corbaloc(endpoint: &IorEndpoint) -> String {
    use hyoshi_wire::Version;
    use hyoshi_wire::ior::{Corbaloc, CorbalocAddress};
    let address = match endpoint {
        IorEndpoint::Tcp { host, port, .. } => {
            CorbalocAddress::Iiop { version: Version::V1_2, host: host.clone(), port: *port }
        }
        IorEndpoint::Tls { host, port, .. } => {
            CorbalocAddress::Ssliop { version: Version::V1_2, host: host.clone(), port: *port }
        }
        IorEndpoint::Unix { path, .. } => CorbalocAddress::Unix { path: path.clone() },
    };
    Corbaloc { addresses: vec![address], key: KEY.into() }.to_string()
}
