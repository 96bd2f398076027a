//! Clients of a naming service: list, resolve, bind, unbind, create contexts.

use clap::Args;
use hyoshi_model::Span;
use hyoshi_naming::{NameError, Naming};
use hyoshi_orb::{Object, Orb, SystemException, SystemKind, Timeouts, minor};
use serde_json::{Value as Json, json};

use crate::cli::load::span;
use crate::cli::tls::{self, ClientTls};
use crate::cli::{CliError, Format, VerbOutcome, head, streams};

/// The default naming service.
const HERE: &str = "corbaloc:iiop:1.2@127.0.0.1:2809/NameService";

/// The naming service to query.
#[derive(Debug, Args)]
pub(super) struct ServiceOptions {
    /// The service, or a context in one: corbaloc:..., corbaname:..., IOR:... or file:PATH [default: NameService of
    /// the environment's ORBInitRef, else corbaloc:iiop:1.2@127.0.0.1:2809/NameService]
    #[arg(long, value_name = "REFERENCE")]
    at: Option<String>,
    /// Timeout of each call
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = span)]
    timeout: Span,
    #[command(flatten)]
    tls: ClientTls,
}

#[derive(Debug, Args)]
pub(super) struct ListArguments {
    /// The context, such as plant/sensors [default: that of --at]
    name: Option<String>,
    /// List nested contexts, too
    #[arg(long, short)]
    recursive: bool,
    /// Maximum number of names
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    most: usize,
    #[command(flatten)]
    at: ServiceOptions,
}

#[derive(Debug, Args)]
pub(super) struct ResolveArguments {
    /// The name, such as plant/tracker.service
    name: String,
    #[command(flatten)]
    at: ServiceOptions,
}

#[derive(Debug, Args)]
pub(super) struct BindArguments {
    /// The name, such as plant/tracker.service
    name: String,
    /// The object: IOR:..., corbaloc:..., corbaname:... or file:PATH; it is not contacted
    reference: String,
    /// Replace the name's binding to an object
    #[arg(long)]
    replace: bool,
    /// Create missing contexts on the path
    #[arg(long, short = 'p')]
    contexts: bool,
    /// BindArguments it as a context, for paths that continue in it
    #[arg(long, conflicts_with = "replace")]
    as_context: bool,
    #[command(flatten)]
    at: ServiceOptions,
}

#[derive(Debug, Args)]
pub(super) struct UnbindArguments {
    /// The name
    name: String,
    /// Also destroy the bound context, which must be empty
    #[arg(long)]
    destroy: bool,
    #[command(flatten)]
    at: ServiceOptions,
}

#[derive(Debug, Args)]
pub(super) struct ContextArguments {
    /// The name
    name: String,
    /// Create missing contexts on the path
    #[arg(long, short = 'p')]
    contexts: bool,
    #[command(flatten)]
    at: ServiceOptions,
}

impl ServiceOptions {
    fn open(&self) -> Result<(Orb, Naming), CliError> {
        let timeouts = Timeouts { connect: self.timeout, round_trip: Some(self.timeout), reply: None };
        let orb = self.tls.client(Orb::builder().timeouts(timeouts))?.build();
        let orb = orb.map_err(|error| CliError::new(format!("cannot start the ORB: {error}")))?;
        let naming = match &self.at {
            Some(at) => Naming::at(&orb, at).map_err(|error| unreadable(at, &error))?,
            None => match Naming::initial(&orb) {
                Err(error) if error.minor == minor::NO_INITIAL => {
                    Naming::at(&orb, HERE).map_err(|error| unreadable(HERE, &error))?
                }
                Err(error) => return Err(unreadable("NameService of ORBInitRef", &error)),
                Ok(naming) => naming,
            },
        };
        Ok((orb, naming))
    }

    fn service(&self) -> &str {
        self.at.as_deref().unwrap_or("the naming service")
    }

    /// Reports an error: exit code 1 for answers of the service, 2 for invalid names and failed calls.
    fn ended(&self, verb: &str, error: NameError, format: Format) -> Result<VerbOutcome, CliError> {
        let help = match &error {
            NameError::NotFound { .. } => {
                "`hyoshi naming list` shows the bindings; `--contexts` creates missing contexts"
            }
            NameError::AlreadyBound(_) => "`--replace` binds it to another object",
            NameError::NotEmpty(_) => "`hyoshi naming list` shows its bindings",
            NameError::CannotProceed { .. } => "start the naming service of that context, which does not answer",
            NameError::Text { .. } => {
                return Err(CliError::new(error).help(
                    "write id.kind with / between the steps; put \\ before a dot, slash or backslash within a step",
                ));
            }
            NameError::System(exception) => {
                let failure = CliError::new(format!("{} answers: {exception}", self.service()));
                if let Some(help) = tls::help(exception) {
                    return Err(failure.help(help));
                }
                let unreached = [SystemKind::Transient, SystemKind::CommFailure, SystemKind::Timeout];
                return Err(match unreached.contains(&exception.kind) {
                    true => failure.help("start one with `hyoshi naming`, or name another with --at"),
                    false => failure,
                });
            }
            _ => "`hyoshi naming list` shows the bindings",
        };
        match format {
            Format::Text => streams::err(format_args!("error: {error}\nhelp: {help}\n")),
            Format::Json => {
                let errors = [json!({ "message": error.to_string(), "help": help })];
                streams::out(format_args!("{:#}\n", json!({ "hyoshi": head(verb), "errors": errors })))?;
            }
        }
        Ok(VerbOutcome::Negative)
    }
}

fn unreadable(at: &str, error: &SystemException) -> CliError {
    let failure = CliError::new(format!("cannot resolve `{at}`: {error}"));
    if let Some(help) = tls::help(error) {
        return failure.help(help);
    }
    match error.minor {
        minor::NAME_UNBOUND => failure.help("`hyoshi naming list` shows the bindings"),
        minor::NO_INITIAL => failure.help("set ORBInitRef=NAME=ADDRESS in the environment"),
        minor::NOT_RESOLVED => failure
            .help("write corbaloc:iiop:1.2@HOST:PORT/KEY, IOR:... or file:PATH; `hyoshi ior decode` shows the mistake"),
        _ => failure.help("check that the server runs and listens there"),
    }
}

pub(super) fn list(arguments: &ListArguments, format: Format) -> Result<VerbOutcome, CliError> {
    let (_orb, naming) = arguments.at.open()?;
    match collect(arguments, naming) {
        Err(error) => arguments.at.ended("naming list", error, format),
        Ok((found, more)) => {
            match format {
                Format::Text => {
                    // A slash at the end marks a context; it is not part of the name.
                    let mut text: String = found
                        .iter()
                        .map(|(name, context)| format!("{name}{}\n", if *context { "/" } else { "" }))
                        .collect();
                    if more {
                        text += "... and more: raise --most\n";
                    }
                    streams::out(text)?;
                }
                Format::Json => {
                    let names: Vec<Json> =
                        found.iter().map(|(name, context)| json!({ "name": name, "context": context })).collect();
                    let answer = json!({ "hyoshi": head("naming list"), "names": names, "more": more });
                    streams::out(format_args!("{answer:#}\n"))?;
                }
            }
            Ok(VerbOutcome::Success)
        }
    }
}

/// Names and whether they are contexts, in order; each context once, because contexts can form cycles.
fn collect(arguments: &ListArguments, naming: Naming) -> Result<(Vec<(String, bool)>, bool), NameError> {
    let start = match &arguments.name {
        Some(name) => naming.enter(name)?,
        None => naming,
    };
    let (mut found, mut more) = (Vec::new(), false);
    let mut seen = vec![start.to_string()];
    let mut left = vec![(String::new(), start)];
    while let Some((path, context)) = left.pop() {
        let (listed, rest) = context.list(arguments.most.saturating_sub(found.len()).max(1))?;
        more |= rest;
        for one in listed {
            if found.len() >= arguments.most {
                more = true;
                break;
            }
            let name = format!("{path}{}", one.name);
            if arguments.recursive && one.is_context {
                // A context that does not answer is listed, too.
                if let Some(inner) = context.enter(&one.name).ok().filter(|inner| !seen.contains(&inner.to_string())) {
                    seen.push(inner.to_string());
                    left.push((format!("{name}/"), inner));
                }
            }
            found.push((name, one.is_context));
        }
    }
    found.sort();
    Ok((found, more))
}

pub(super) fn resolve(arguments: &ResolveArguments, format: Format) -> Result<VerbOutcome, CliError> {
    let (_orb, naming) = arguments.at.open()?;
    match naming.resolve::<dyn Object>(&arguments.name) {
        Err(error) => arguments.at.ended("naming resolve", error, format),
        Ok(found) => {
            let ior = found.as_ref().ior();
            match format {
                Format::Text => streams::out(format_args!("{ior}\n"))?,
                Format::Json => {
                    let answer = json!({
                        "hyoshi": head("naming resolve"), "name": arguments.name, "type": ior.type_id,
                        "ior": ior.to_string(),
                    });
                    streams::out(format_args!("{answer:#}\n"))?;
                }
            }
            Ok(VerbOutcome::Success)
        }
    }
}

pub(super) fn bind(arguments: &BindArguments, format: Format) -> Result<VerbOutcome, CliError> {
    let (orb, naming) = arguments.at.open()?;
    let bound = if arguments.as_context {
        let context =
            Naming::at(&orb, &arguments.reference).map_err(|error| unreadable(&arguments.reference, &error))?;
        way(&naming, &arguments.name, arguments.contexts).and_then(|()| naming.bind_context(&arguments.name, &context))
    } else {
        let object = orb.resolve_unchecked::<dyn Object>(&arguments.reference);
        let object = object.map_err(|error| unreadable(&arguments.reference, &error))?;
        way(&naming, &arguments.name, arguments.contexts).and_then(|()| match arguments.replace {
            true => naming.rebind(&arguments.name, &object),
            false => naming.bind(&arguments.name, &object),
        })
    };
    done(bound, &arguments.at, "naming bind", &arguments.name, format)
}

pub(super) fn unbind(arguments: &UnbindArguments, format: Format) -> Result<VerbOutcome, CliError> {
    let (_orb, naming) = arguments.at.open()?;
    let unbound = match arguments.destroy {
        true => naming.remove_context(&arguments.name),
        false => naming.unbind(&arguments.name),
    };
    done(unbound, &arguments.at, "naming unbind", &arguments.name, format)
}

pub(super) fn context(arguments: &ContextArguments, format: Format) -> Result<VerbOutcome, CliError> {
    let (_orb, naming) = arguments.at.open()?;
    let made = way(&naming, &arguments.name, arguments.contexts);
    let made = made.and_then(|()| naming.new_context(&arguments.name).map(drop));
    done(made, &arguments.at, "naming context", &arguments.name, format)
}

fn way(naming: &Naming, name: &str, make: bool) -> Result<(), NameError> {
    if make { naming.make_way(name) } else { Ok(()) }
}

fn done(
    done: Result<(), NameError>,
    at: &ServiceOptions,
    verb: &str,
    name: &str,
    format: Format,
) -> Result<VerbOutcome, CliError> {
    match done {
        Err(error) => at.ended(verb, error, format),
        Ok(()) => {
            if let Format::Json = format {
                streams::out(format_args!("{:#}\n", json!({ "hyoshi": head(verb), "name": name })))?;
            }
            Ok(VerbOutcome::Success)
        }
    }
}
