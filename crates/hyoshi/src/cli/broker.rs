//! `hyoshi broker`: the CPU broker, and what its clients do from the shell.

mod change;
mod look;
mod serve;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use hyoshi_broker::Trouble;
use hyoshi_broker::client::{Client, ClientError};
use hyoshi_model::Share;
use serde_json::json;

pub(super) use look::task_json;

use super::{Failure, Format, Held, head, streams};

#[derive(Debug, Args)]
#[command(
    after_help = "A broker for this machine (as root) or for oneself, a program under it, and what becomes of that:\n  \
                  hyoshi broker\n  \
                  hyoshi exec --name player --period 33ms --importance 5 -- mplayer film.mpg\n  \
                  hyoshi broker list\n  \
                  hyoshi broker explain player\n  \
                  hyoshi broker set player importance 9\n  \
                  hyoshi broker advocate add player max-decay --reports 10"
)]
pub(super) struct Arguments {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    serve: serve::Serve,
    #[command(flatten)]
    at: At,
}

/// Which broker.
#[derive(Debug, Args)]
pub(super) struct At {
    /// The broker's socket [default: /run/hyoshi/broker.sock; of a user's own broker hyoshi/broker.sock in XDG_RUNTIME_DIR]
    #[arg(long, value_name = "PATH", global = true)]
    pub socket: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List tasks: what they consume, ask for, and hold
    List,
    /// Show a task, or the broker itself
    Show {
        /// The task; none for the broker
        name: Option<String>,
    },
    /// Tell why a task holds what it holds
    Explain {
        /// The task
        name: String,
    },
    /// Tell of each task whose reservation changes, until interrupted
    Watch(look::Watch),
    /// Change a task: its importance, weight, group or period
    Set(change::Set),
    /// Show the policy and its cap, or change them
    Policy {
        #[command(subcommand)]
        verb: Option<change::Policy>,
    },
    /// Add, remove or list a task's advocates
    Advocate {
        #[command(subcommand)]
        verb: change::Advocate,
    },
    /// End a task's reservation; its processes go on
    Detach {
        /// The task
        name: String,
    },
}

impl Arguments {
    /// What the verb is called.
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
            Some(Verb::Detach { .. }) => "broker detach",
        }
    }
}

pub(super) fn broker(arguments: &Arguments, format: Format) -> Result<Held, Failure> {
    let Some(verb) = &arguments.verb else { return serve::serve(&arguments.serve, &arguments.at, format) };
    if let Some(flag) = arguments.serve.given() {
        let failure = Failure::new(format_args!("--{flag} is for starting a broker, not for asking one"));
        return Err(failure.help("`hyoshi broker policy set` changes the policy and the cap of one that runs"));
    }
    let name = arguments.name();
    let client = match Client::connect(arguments.at.socket.as_deref()) {
        Ok(client) => client,
        Err(error) => return ended(name, &error, format),
    };
    let done = match verb {
        Verb::List => look::list(&client, format),
        Verb::Show { name: Some(task) } => look::show(&client, task, format),
        Verb::Show { name: None } => look::standing(&client, format),
        Verb::Explain { name: task } => look::explain(&client, task, format),
        Verb::Watch(watch) => look::watch(&client, watch, format),
        Verb::Set(set) => change::set(&client, set, format),
        Verb::Policy { verb: None } => look::standing(&client, format),
        Verb::Policy { verb: Some(policy) } => change::policy(&client, policy, format),
        Verb::Advocate { verb } => change::advocate(&client, verb, format),
        Verb::Detach { name: task } => {
            let left = client.find(task).and_then(|stub| {
                use hyoshi_broker::idl::cpu_broker::Task;
                Ok(stub.leave()?)
            });
            left.map_err(Into::into).and_then(|()| change::done(name, task, format))
        }
    };
    done.or_else(|error| match error {
        Ended::Told(failure) => Err(failure),
        Ended::Broker(error) => ended(name, &error, format),
    })
}

/// Why a client's verb did not do its work.
pub(super) enum Ended {
    /// The broker.
    Broker(ClientError),
    /// Anything else.
    Told(Failure),
}

impl From<ClientError> for Ended {
    fn from(error: ClientError) -> Self {
        Ended::Broker(error)
    }
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Ended::Told(failure)
    }
}

impl From<Trouble> for Ended {
    fn from(trouble: Trouble) -> Self {
        Ended::Broker(ClientError::Trouble(trouble))
    }
}

/// What the broker refuses ends with exit code 1; what cannot be asked, with 2.
pub(super) fn ended(verb: &str, error: &ClientError, format: Format) -> Result<Held, Failure> {
    let failure = Failure::new(error).help(error.remedy());
    if !matches!(error, ClientError::Trouble(_)) {
        return Err(failure);
    }
    match format {
        Format::Text => streams::err(format_args!("error: {error}\nhelp: {}\n", error.remedy())),
        Format::Json => {
            let errors = [json!({ "message": error.to_string(), "help": error.remedy() })];
            streams::out(format_args!("{:#}\n", json!({ "hyoshi": head(verb), "errors": errors })))?;
        }
    }
    Ok(Held::No)
}

/// A share as people say it.
fn share(millionths: u64) -> Share {
    Share::from_millionths(millionths)
}
