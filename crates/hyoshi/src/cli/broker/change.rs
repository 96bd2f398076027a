//! Changes of tasks and of the policy.

use clap::{Args, Subcommand, ValueEnum};
use hyoshi_broker::RequestError;
use hyoshi_broker::client::{BrokerClient, BrokerClientError};
use hyoshi_broker::component::ComponentSpec;
use hyoshi_broker::idl::cpu_broker::Broker;
use hyoshi_broker::words::{quoted, split};
use hyoshi_model::quantity::QuantityError;
use hyoshi_model::{Share, Span};
use serde_json::json;

use super::{Ended, look};
use crate::cli::CliError;
use crate::cli::answer::{OutputText, VerbOutput};

/// A period; `None` for `auto`.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct PeriodArgument(pub Option<Span>);

impl std::str::FromStr for PeriodArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(PeriodArgument(None)),
            "" => Err("is neither a time nor `auto`".to_owned()),
            time => {
                time.parse().map(|span| PeriodArgument(Some(span))).map_err(|error: QuantityError| error.to_string())
            }
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct Set {
    /// The task
    name: String,
    /// What to change
    #[arg(value_enum)]
    what: What,
    /// The new value: a number, the name of a group, yes or no, or a time. Period: 33ms, or auto. Least: 2ms, or none
    value: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// Importance, for policies fair and strict
    Importance,
    /// Weight, for policy weighted
    Weight,
    /// Group, for policy partition
    Group,
    /// Period of its reservation
    Period,
    /// Least useful budget in each period: a time, such as 2ms, or none
    Least,
    /// Whether the reservation is also a limit: yes or no
    Hard,
}

#[derive(Debug, Subcommand)]
pub(super) enum PolicyVerb {
    /// Change the policy, the cap, or both
    Set {
        /// fair, strict, weighted, "partition(video 40% fair, rest 30% weighted)", external (another process), or
        /// library
        policy: Option<String>,
        /// Cap on all reservations together: 75% of one CPU; 150% is one and a half CPUs
        #[arg(long, value_name = "SHARE", required_unless_present = "policy")]
        cap: Option<Share>,
        #[command(flatten)]
        foreign: Foreign,
    },
}

/// A policy in another process or in a library.
#[derive(Debug, Args)]
pub(super) struct Foreign {
    /// For external: the reference of a CpuBroker::Policy: IOR:..., corbaloc:..., or file:PATH of a file with one
    #[arg(long, value_name = "REFERENCE")]
    object: Option<String>,
    /// For external: timeout of each call [default: 5ms]
    #[arg(long, value_name = "TIME")]
    timeout: Option<Span>,
    /// For library: the shared library; only root and the broker's user may be able to write to it
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// For library: a parameter; repeatable
    #[arg(long = "with", value_name = "NAME=VALUE")]
    parameters: Vec<String>,
    /// Policy that decides while the other one fails [default: fair]
    #[arg(long, value_name = "POLICY")]
    fallback: Option<String>,
}

impl Foreign {
    /// The parameters after the policy's name.
    fn words(&self) -> Result<String, CliError> {
        let mut text = String::new();
        let mut word = |name: &str, value: &str| text.push_str(&format!(" --{name} {}", quoted(value)));
        if let Some(object) = &self.object {
            word("object", &referred(object).map_err(failure)?);
        }
        if let Some(timeout) = self.timeout {
            word("timeout", &timeout.to_string());
        }
        if let Some(path) = &self.path {
            word("path", path);
        }
        for parameter in &self.parameters {
            let Some((name, value)) = parameter.split_once('=').filter(|(name, _)| !name.is_empty()) else {
                return Err(
                    CliError::new(format_args!("invalid parameter `{parameter}`")).help("use --with NAME=VALUE")
                );
            };
            if name.contains(char::is_whitespace) {
                let failure = CliError::new(format_args!("invalid parameter name `{}`", name.escape_debug()));
                return Err(failure.help("use a name without blanks"));
            }
            word(name, value);
        }
        // At the end, because everything after it belongs to the fallback.
        if let Some(fallback) = &self.fallback {
            word("fallback", fallback);
        }
        Ok(text)
    }
}

/// An error of the command line, before any call.
pub(super) fn failure(error: RequestError) -> CliError {
    CliError::new(&error).help(error.remedy())
}

/// A policy with references read from their files.
pub(super) fn referring(policy: &str) -> Result<String, RequestError> {
    if !policy.contains("file:") {
        return Ok(policy.to_owned());
    }
    let words: Result<Vec<_>, _> = split(policy)?.iter().map(|word| referred(word)).collect();
    Ok(words?.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "))
}

/// A specification with its reference read from its file.
pub(in crate::cli) fn settled(mut setting: ComponentSpec) -> Result<ComponentSpec, RequestError> {
    let objects = setting.parameters.iter_mut().filter(|(name, _)| matches!(name.as_str(), "object" | ""));
    if setting.kind == "external" {
        for (_, value) in objects {
            *value = referred(value)?;
        }
    }
    Ok(setting)
}

/// A reference, read from a file for `file:PATH`: the broker reads no files for clients.
fn referred(object: &str) -> Result<String, RequestError> {
    let Some(path) = object.strip_prefix("file:") else { return Ok(object.to_owned()) };
    let text = std::fs::read_to_string(path).map_err(|error| {
        let what = format!("cannot read a reference from {path}: {error}");
        RequestError::refused(what, "use a file that contains IOR:... or corbaloc:...")
    })?;
    Ok(text.trim().to_owned())
}

#[derive(Debug, Subcommand)]
pub(super) enum AdvocateVerb {
    /// Add an advocate to a task's chain: hyoshi broker advocate add player max-decay --reports 10
    Add {
        /// Insert it before the advocate at this position [default: at the end]
        #[arg(long, value_name = "PLACE")]
        at: Option<u32>,
        /// The task
        name: String,
        /// Its kind and parameters: --NAME VALUE
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        advocate: Vec<String>,
    },
    /// Replace the advocate of the same kind: hyoshi broker advocate set player cap 40%
    Set {
        /// The task
        name: String,
        /// Its kind and parameters: --NAME VALUE
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        advocate: Vec<String>,
    },
    /// Remove the advocate at a position
    Remove {
        /// The task
        name: String,
        /// Its position; the first is 0
        place: u32,
    },
    /// List a task's advocates
    List {
        /// The task
        name: String,
    },
}

pub(super) fn set(client: &BrokerClient, set: &Set) -> Result<VerbOutput, Ended> {
    let Set { name, what, value } = set;
    let broker = client.broker();
    match what {
        What::Importance => broker.set_importance(name, number(value)?).map_err(BrokerClientError::from)?,
        What::Weight => broker.set_weight(name, number(value)?).map_err(BrokerClientError::from)?,
        What::Group => broker.set_group(name, value).map_err(BrokerClientError::from)?,
        What::Least => {
            let least = match value.as_str() {
                "none" => Span::ZERO,
                time => time.parse().map_err(|error: QuantityError| {
                    CliError::new(format_args!("invalid budget `{value}`: {error}"))
                        .help("use a time, such as 2ms, or none")
                })?,
            };
            broker.set_least(name, least.as_nanos()).map_err(BrokerClientError::from)?;
        }
        What::Hard => broker.set_hard(name, yes(value)?).map_err(BrokerClientError::from)?,
        What::Period => {
            let period = value.parse::<PeriodArgument>();
            let PeriodArgument(period) = period.map_err(|error| {
                CliError::new(format_args!("invalid period `{value}`: {error}"))
                    .help("use a time, such as 33ms, or auto")
            })?;
            let period = match period {
                // The wire format uses 0 for auto.
                Some(Span::ZERO) => {
                    let failure = CliError::new("period must not be zero");
                    return Err(failure.help("use 100us or more, or auto").into());
                }
                period => period.map_or(0, Span::as_nanos),
            };
            broker.set_period(name, period).map_err(BrokerClientError::from)?;
        }
    }
    Ok(done(name))
}

fn yes(value: &str) -> Result<bool, CliError> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(CliError::new(format_args!("`{value}` is neither yes nor no"))),
    }
}

fn number(value: &str) -> Result<u32, CliError> {
    value.parse().map_err(|_| {
        CliError::new(format_args!("invalid number `{value}`")).help("use a whole number from 0 to 4294967295")
    })
}

pub(super) fn policy(client: &BrokerClient, policy: &PolicyVerb) -> Result<VerbOutput, Ended> {
    let PolicyVerb::Set { policy, cap, foreign } = policy;
    let words = foreign.words()?;
    if *cap == Some(Share::ZERO) {
        let failure = CliError::new("a cap of 0% leaves nothing to reserve");
        return Err(failure.help("end a reservation with `hyoshi broker detach`").into());
    }
    let cap = cap.map_or(0, Share::as_millionths);
    let policy = format!("{}{words}", policy.as_deref().unwrap_or_default());
    client.broker().set_policy(&policy, cap).map_err(BrokerClientError::from)?;
    look::policy(client)
}

pub(super) fn advocate(client: &BrokerClient, verb: &AdvocateVerb) -> Result<VerbOutput, Ended> {
    match verb {
        AdvocateVerb::Add { at, name, advocate } => {
            let setting = settled(ComponentSpec::from_words(advocate)?).map_err(failure)?;
            let place = at.unwrap_or(u32::MAX);
            client.broker().add_advocate(name, &setting.to_wire(), place).map_err(BrokerClientError::from)?;
            list(client, name)
        }
        AdvocateVerb::Set { name, advocate } => {
            let setting = settled(ComponentSpec::from_words(advocate)?).map_err(failure)?;
            client.broker().set_advocate(name, &setting.to_wire()).map_err(BrokerClientError::from)?;
            list(client, name)
        }
        AdvocateVerb::Remove { name, place } => {
            client.broker().remove_advocate(name, *place).map_err(BrokerClientError::from)?;
            list(client, name)
        }
        AdvocateVerb::List { name } => list(client, name),
    }
}

fn list(client: &BrokerClient, name: &str) -> Result<VerbOutput, Ended> {
    let task = client.broker().task_status(name).map_err(BrokerClientError::from)?;
    let settings: Vec<ComponentSpec> = task.advocates.iter().map(ComponentSpec::from_wire).collect();
    let lines = match settings.is_empty() {
        true => "no advocates: the task requests its declared reservation\n".to_owned(),
        false => settings.iter().enumerate().map(|(at, one)| format!("{at}  {}\n", look::brief(one))).collect(),
    };
    let chain: Vec<String> = settings.iter().map(ComponentSpec::to_string).collect();
    Ok(VerbOutput { text: OutputText::Lines(lines), json: json!({ "task": name, "advocates": chain }) })
}

pub(super) fn done(name: &str) -> VerbOutput {
    VerbOutput { text: OutputText::Nothing, json: json!({ "task": name }) }
}
