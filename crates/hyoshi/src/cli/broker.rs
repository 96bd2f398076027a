//! `hyoshi broker`: starts the CPU broker, and controls a running one.

mod change;
mod limits;
mod look;
mod names;
mod remote;
mod selection;
mod serve;
mod several;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use hyoshi_broker::RequestError;
use hyoshi_broker::client::{BrokerClient, BrokerClientError};
use hyoshi_broker::idl::cpu_broker::Broker;
use hyoshi_model::{Share, printable_lines};
use serde_json::json;

use super::answer::{OutputText, VerbOutput};
pub(super) use change::{PeriodArgument, settled};
pub(super) use look::{status_json, task_json};
pub(super) use selection::BrokerSelection;
use selection::SelectedBrokers;

use super::{CliError, Format, VerbOutcome, head, streams, tls};

#[derive(Debug, Args)]
#[command(
    after_help = "Start a broker for this machine (as root) or for one user, start a program under it, and control it:\n  \
                  hyoshi broker\n  \
                  hyoshi exec --name player --period 33ms --importance 5 -- mplayer film.mpg\n  \
                  hyoshi broker list\n  \
                  hyoshi broker explain player\n  \
                  hyoshi broker set player importance 9\n  \
                  hyoshi broker advocate add player max-decay --reports 10\n\
                  Serve other machines, and control a broker from there:\n  \
                  hyoshi broker --listen ssliop://0.0.0.0:2811 --tls-cert yard.pem --tls-clients plant.pem --tls-operator chief\n  \
                  hyoshi broker list --broker ssliop://yard.plant:2811 --tls-roots plant.pem --tls-cert chief.pem\n  \
                  hyoshi broker policy set strict --cap 75% --hosts plant.hosts --tls-roots plant.pem --tls-cert chief.pem"
)]
pub(super) struct Arguments {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    serve: serve::Serve,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    selection: BrokerSelection,
}

/// The broker on this machine.
#[derive(Debug, Args)]
pub(super) struct At {
    /// The broker's socket [default: /run/hyoshi/broker.sock; of a user's own broker hyoshi/broker.sock in
    /// XDG_RUNTIME_DIR]
    #[arg(long, value_name = "PATH", global = true)]
    pub socket: Option<PathBuf>,
}

/// Rejects flags for other machines, for verbs about processes of this machine.
#[derive(Debug, Args)]
pub(super) struct Here {
    #[arg(long = "broker", hide = true, value_name = "ADDRESS")]
    broker: Option<String>,
    #[arg(long = "hosts", hide = true, value_name = "FILE")]
    hosts: Option<PathBuf>,
}

impl Here {
    pub fn check(&self) -> Result<(), CliError> {
        match (&self.broker, &self.hosts) {
            (None, None) => Ok(()),
            _ => Err(CliError::new("a broker reserves CPU time only for processes of its own machine")
                .help("run it on that machine; `hyoshi broker set --broker ADDRESS` changes the task from here")),
        }
    }
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List tasks with their consumption, requests and reservations
    List,
    /// Show a task, or the broker itself
    Show {
        /// The task; none for the broker
        name: Option<String>,
    },
    /// Explain the reservation of a task
    Explain {
        /// The task
        name: String,
    },
    /// Print each change of a reservation, until interrupted
    Watch(look::Watch),
    /// Change a task: its importance, weight, group, period or least budget, or whether its reservation is hard
    Set(change::Set),
    /// Show the policy and its cap, or change them
    Policy {
        #[command(subcommand)]
        verb: Option<change::PolicyVerb>,
    },
    /// Add, replace, remove or list a task's advocates
    Advocate {
        #[command(subcommand)]
        verb: change::AdvocateVerb,
    },
    /// Check a file of limits and print the limits
    CheckConfig(limits::Check),
    /// End a task's reservation; its processes continue
    Detach {
        /// The task
        name: String,
    },
}

impl Arguments {
    /// The name of the verb.
    pub fn name(&self) -> &'static str {
        match &self.verb {
            None => "broker",
            Some(Verb::List) => "broker list",
            Some(Verb::Show { .. }) => "broker show",
            Some(Verb::Explain { .. }) => "broker explain",
            Some(Verb::Watch(_)) => "broker watch",
            Some(Verb::Set(_)) => "broker set",
            Some(Verb::Policy { .. }) => "broker policy",
            Some(Verb::Advocate { .. }) => "broker advocate",
            Some(Verb::CheckConfig(_)) => "broker check-config",
            Some(Verb::Detach { .. }) => "broker detach",
        }
    }
}

pub(super) fn broker(arguments: &Arguments, format: Format) -> Result<VerbOutcome, CliError> {
    let Arguments { verb, serve, at, selection } = arguments;
    let Some(verb) = verb else {
        if let Some(flag) = selection.given() {
            let failure = CliError::new(format_args!("{flag} does not apply to starting a broker"));
            return Err(
                failure.help("use it with a verb such as `hyoshi broker list`; `hyoshi help broker` lists all verbs")
            );
        }
        return serve::serve(serve, at, &selection.tls, format);
    };
    if let Some(flag) = serve.given() {
        let failure = CliError::new(format_args!("--{flag} applies only to starting a broker"));
        return Err(failure.help("change policy and cap of a running broker with `hyoshi broker policy set`"));
    }
    let name = arguments.name();
    if let Verb::CheckConfig(check) = verb {
        return limits::check(check, name, format);
    }
    if let SelectedBrokers::Several(brokers) = selection.asked(at)? {
        return several::ask(verb, name, selection, &brokers, format);
    }
    let done = selection.one(at).and_then(|client| match verb {
        Verb::Watch(watch) => look::watch_one(&client, watch, format),
        _ => Ok(ask(verb, &client)?.print(name, format)?),
    });
    done.or_else(|error| match error {
        Ended::Told(failure) => Err(failure),
        Ended::Broker(error) => ended(name, &error, format),
    })
}

/// The broker's answer to a verb, except `watch`.
fn ask(verb: &Verb, client: &BrokerClient) -> Result<VerbOutput, Ended> {
    match verb {
        Verb::List => look::list(client),
        Verb::Show { name: Some(task) } => look::show(client, task),
        Verb::Show { name: None } => look::status(client),
        Verb::Explain { name: task } => look::explain(client, task),
        Verb::Watch(_) | Verb::CheckConfig(_) => Ok(VerbOutput { text: OutputText::Nothing, json: json!({}) }),
        Verb::Set(set) => change::set(client, set),
        Verb::Policy { verb: None } => look::policy(client),
        Verb::Policy { verb: Some(policy) } => change::policy(client, policy),
        Verb::Advocate { verb } => change::advocate(client, verb),
        Verb::Detach { name: task } => {
            client.broker().detach(task).map_err(BrokerClientError::from)?;
            Ok(change::done(task))
        }
    }
}

/// Why a verb failed.
pub(super) enum Ended {
    /// The broker.
    Broker(BrokerClientError),
    /// Anything else.
    Told(CliError),
}

impl Ended {
    /// The message.
    fn message(&self) -> String {
        match self {
            Ended::Broker(error) => error.to_string(),
            Ended::Told(failure) => failure.json().iter().filter_map(|error| error["message"].as_str()).collect(),
        }
    }

    /// The remedy.
    fn help(&self) -> Option<String> {
        match self {
            Ended::Broker(error) => Some(remedy(error)),
            Ended::Told(CliError::Other { help, .. }) => help.clone(),
            Ended::Told(_) => None,
        }
    }
}

impl From<BrokerClientError> for Ended {
    fn from(error: BrokerClientError) -> Self {
        Ended::Broker(error)
    }
}

impl From<CliError> for Ended {
    fn from(failure: CliError) -> Self {
        Ended::Told(failure)
    }
}

impl From<RequestError> for Ended {
    fn from(error: RequestError) -> Self {
        Ended::Broker(BrokerClientError::Request(error))
    }
}

/// The remedy; for TLS errors, in terms of the command line.
pub(super) fn remedy(error: &BrokerClientError) -> String {
    match error {
        BrokerClientError::System(exception) => tls::help(exception).map_or_else(|| error.remedy(), str::to_owned),
        _ => error.remedy(),
    }
}

/// Exit code 1 if the broker refuses, 2 if it cannot be called.
pub(super) fn ended(verb: &str, error: &BrokerClientError, format: Format) -> Result<VerbOutcome, CliError> {
    let failure = CliError::new(error).help(remedy(error));
    if !matches!(error, BrokerClientError::Request(_)) {
        return Err(failure);
    }
    match format {
        Format::Text => {
            let text = format!("error: {error}\nhelp: {}\n", error.remedy());
            streams::err(printable_lines(&text));
        }
        Format::Json => {
            let errors = [json!({ "message": error.to_string(), "help": error.remedy() })];
            streams::out(format_args!("{:#}\n", json!({ "hyoshi": head(verb), "errors": errors })))?;
        }
    }
    Ok(VerbOutcome::Negative)
}

/// A share for people.
pub(super) fn share(millionths: u64) -> Share {
    Share::from_millionths(millionths)
}
