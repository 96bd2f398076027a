//! The command line: one file per verb, and their common parts.
//!
//! Exit codes: 0 the system holds or the request succeeded, 1 it does not hold, 2 bad input (a file, a flag, a missing
//! privilege under `--strict`), 3 a run or simulation held until it was interrupted.

#[cfg(feature = "orb")]
#[cfg_attr(not(feature = "broker"), expect(dead_code, reason = "the broker's verbs use the rest"))]
mod answer;
#[cfg(feature = "broker")]
mod attach;
#[cfg(feature = "broker")]
mod broker;
mod calibrate;
#[cfg(feature = "orb")]
mod call;
mod check;
mod compare;
#[cfg(feature = "orb")]
mod contract;
mod costs;
mod counterexample;
mod doctor;
#[cfg(feature = "orb")]
mod events;
#[cfg(feature = "broker")]
mod exec;
mod export;
mod freeze;
mod from;
mod hourglass;
#[cfg(feature = "orb")]
mod idl;
#[cfg(feature = "orb")]
mod ior;
mod jobs;

#[cfg(feature = "broker")]
mod lanes;
mod load;
mod manual;
mod merge;
#[cfg(feature = "orb")]
mod naming;
mod new;
#[cfg(feature = "orb")]
mod node;
mod notes;
#[cfg(feature = "orb")]
mod orb;
mod output;
mod programs;
mod progress;
mod proved;
#[cfg(feature = "orb")]
mod proxy;
mod recorded;
mod recorded_signals;
#[cfg(feature = "reproduce")]
mod reproduce;
mod run;
mod set_points;
mod sim;
mod streams;
#[cfg(feature = "orb")]
mod threads;
#[cfg(feature = "orb")]
#[cfg_attr(not(feature = "broker"), expect(dead_code, reason = "the broker's verbs use the rest"))]
mod tls;
#[cfg(feature = "broker")]
mod top;
mod trace;
#[cfg(not(feature = "broker"))]
mod unbrokered;
mod why;

use std::fmt;
use std::io::stderr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use hyoshi_model::printable_lines;
use hyoshi_report::summary::SCHEMA;
use hyoshi_report::{ColourChoice, TerminalStyle};
use hyoshi_sched::Strategies;

use crate::bodies::Bodies;

/// Keeps critical work on time under overload, on Linux.
#[derive(Debug, Parser)]
#[command(name = "hyoshi", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 holds, 1 does not hold, 2 bad input, 3 held until interrupted.\n\
                        Start with: hyoshi new demo && hyoshi run demo/system.toml")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
    /// How results and errors are printed
    #[arg(long, value_enum, default_value_t, global = true)]
    format: Format,
    /// When to print in colour
    #[arg(long, value_enum, value_name = "WHEN", default_value_t, global = true)]
    color: Color,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one, and it is parsed once")]
enum Verb {
    /// Prove deadlines before deployment, where that is possible
    Check(check::Arguments),
    /// Simulate in virtual time: deterministic, with a seed
    Sim(sim::Arguments),
    /// Run on Linux, with real threads and real-time priorities
    Run(run::Arguments),
    /// List what this machine permits, with a remedy for each refusal
    Doctor,
    /// Measure scheduling costs on this machine, for `check` and `sim`
    Calibrate(calibrate::Arguments),
    /// Create a commented system.toml and a Rust program for it
    New(new::Arguments),
    /// Rerun a paper's experiment and rate each of its claims
    #[cfg(feature = "reproduce")]
    Reproduce(reproduce::Arguments),
    /// Read, replay, compare, merge and export recordings
    Trace(trace::Arguments),
    /// Explain why a job was late, or list the late jobs
    Why(why::Arguments),
    /// Decode a reference to a CORBA object
    #[cfg(feature = "orb")]
    Ior(ior::Arguments),
    /// Call an operation of a CORBA object
    #[cfg(feature = "orb")]
    Call(call::Arguments),
    /// Generate Rust from an OMG IDL file
    #[cfg(feature = "orb")]
    Idl(idl::Arguments),
    /// Run a CosNaming service, or query one
    #[cfg(feature = "orb")]
    Naming(naming::Arguments),
    /// Measure and limit requests to a CORBA object, as a proxy
    #[cfg(feature = "orb")]
    Proxy(proxy::Arguments),
    /// List, show or stop the nodes of running systems
    #[cfg(feature = "orb")]
    Node(node::Arguments),
    /// List, watch or publish events of a running system
    #[cfg(feature = "orb")]
    Events(events::Arguments),
    /// List contracts of a running system; set conditions and regions
    #[cfg(feature = "orb")]
    Contract(contract::Arguments),
    /// List, show or cancel the distributable threads of a running system
    #[cfg(feature = "orb")]
    Threads(threads::Arguments),
    /// Watch the requests at the objects of a running system
    #[cfg(feature = "orb")]
    Orb(orb::Arguments),
    /// Reserve CPU time for unmodified programs, or query the broker
    #[cfg(feature = "broker")]
    Broker(broker::Arguments),
    /// Run a program under the broker
    #[cfg(feature = "broker")]
    Exec(exec::Exec),
    /// Put a running process under the broker
    #[cfg(feature = "broker")]
    Attach(attach::Attach),
    /// Run a periodic, CPU-bound test program
    Hourglass(hourglass::Hourglass),
    /// Show the broker's tasks live
    #[cfg(feature = "broker")]
    Top(top::Top),
    /// Watch the broker for a program of `exec`
    #[cfg(feature = "broker")]
    #[command(hide = true)]
    ExecWatch(exec::WatchArguments),
    /// End the programs of a killed run
    #[cfg(feature = "broker")]
    #[command(hide = true)]
    RunWatch,
    /// Set the traffic classes of a run, and remove them at its end
    #[cfg(feature = "orb")]
    #[command(hide = true)]
    NetworkWatch,
    /// List the known scheduling strategies
    Strategies,
    /// Print the JSON schema of system.toml, for editors
    Schema,
    /// Print a completion script for a shell
    Completion(manual::Completion),
    /// Print a manual page, or write all of them
    Man(manual::Manual),
}

/// The verbs in groups, as `--help` lists them.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Describe and prove", &["new", "check", "strategies", "schema"]),
    ("Simulate and run", &["sim", "run", "node", "events", "contract", "threads", "calibrate", "doctor"]),
    ("Explain", &["why", "trace"]),
    ("Programs", &["broker", "exec", "attach", "top", "hourglass"]),
    ("Objects", &["idl", "call", "ior", "naming", "proxy", "orb"]),
    ("Papers", &["reproduce"]),
    ("Shell", &["completion", "man", "help"]),
];

/// The command line, whose help lists the verbs in [`GROUPS`].
fn command() -> Command {
    let command = Cli::command();
    let about = |name: &str| match name {
        "help" => Some("Print the help of a verb".to_owned()),
        name => command.find_subcommand(name)?.get_about().map(ToString::to_string),
    };
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();
    for (group, verbs) in GROUPS {
        let lines: String = verbs.iter().filter_map(|name| Some(format!("  {name:<10}  {}\n", about(name)?))).collect();
        if !lines.is_empty() {
            template += &format!("{group}:\n{lines}\n");
        }
    }
    command.help_template(template + "Options:\n{options}{after-help}")
}

/// When output is coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Color {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb
    #[default]
    Auto,
    /// In files and pipes, too
    Always,
    /// Nowhere
    Never,
}

impl Color {
    /// The choice on the command line before it is parsed, for help and errors.
    fn before_parsing() -> Color {
        let words: Vec<_> = std::env::args_os().take_while(|word| word != "--").collect();
        let value = words.iter().enumerate().find_map(|(at, word)| match word.to_str()?.strip_prefix("--color")? {
            "" => words.get(at + 1)?.to_str(),
            value => value.strip_prefix('='),
        });
        value.and_then(|value| Color::from_str(value, false).ok()).unwrap_or_default()
    }

    /// As clap names it, which does not observe `TERM=dumb` everywhere.
    fn of_help(self) -> clap::ColorChoice {
        match self {
            Color::Auto if std::env::var_os("TERM").is_some_and(|term| term == "dumb") => clap::ColorChoice::Never,
            Color::Auto => clap::ColorChoice::Auto,
            Color::Always => clap::ColorChoice::Always,
            Color::Never => clap::ColorChoice::Never,
        }
    }

    fn apply(self) {
        let choice = match self {
            Color::Auto => ColourChoice::Auto,
            Color::Always => ColourChoice::Always,
            Color::Never => ColourChoice::Never,
        };
        choice.apply();
    }
}

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    #[default]
    Text,
    /// For programs: versioned, documented in docs/json.md
    Json,
}

/// The result of a verb without errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VerbOutcome {
    /// The system holds, or the request succeeded.
    Success,
    /// It does not hold.
    Negative,
    /// It held until it was interrupted.
    Interrupted,
}

impl VerbOutcome {
    fn of(holds: bool) -> VerbOutcome {
        if holds { VerbOutcome::Success } else { VerbOutcome::Negative }
    }
}

/// An error of a verb: bad input.
#[derive(Debug)]
enum CliError {
    /// The system's file is wrong.
    File(hyoshi_model::FileErrors),
    /// An IDL file is wrong.
    #[cfg(feature = "orb")]
    Idl(hyoshi_idl::Diagnostics),
    /// Another error, with a remedy.
    Other { message: String, help: Option<String> },
    /// Already reported, within the verb's result.
    Reported,
}

impl CliError {
    fn new(message: impl fmt::Display) -> CliError {
        CliError::Other { message: message.to_string(), help: None }
    }

    /// The error and its remedy, in one line.
    #[cfg(feature = "orb")]
    fn message(&self) -> String {
        match self {
            CliError::Other { message, help: Some(help) } => format!("{message} ({help})"),
            CliError::Other { message, help: None } => message.clone(),
            other => format!("{other:?}"),
        }
    }

    fn help(self, help: impl fmt::Display) -> CliError {
        match self {
            CliError::Other { message, .. } => CliError::Other { message, help: Some(help.to_string()) },
            other => other,
        }
    }

    fn print(&self, verb: &str, format: Format) {
        match (format, self) {
            (_, CliError::Reported) => {}
            (Format::Text, CliError::File(errors)) => {
                streams::err(streams::wrap_diagnostics(&errors.render(ColourChoice::colours(&stderr()))));
            }
            #[cfg(feature = "orb")]
            (Format::Text, CliError::Idl(errors)) => {
                streams::err(streams::wrap_diagnostics(&errors.render(ColourChoice::colours(&stderr()))));
            }
            (Format::Text, CliError::Other { message, help }) => {
                let look = TerminalStyle::of_stderr();
                // A message of several lines shows a place in a text.
                let wrap = |text: String| if message.contains('\n') { text } else { look.wrap(&text) };
                streams::err(wrap(printable_lines(&format!("error: {message}\n"))));
                if let Some(help) = help {
                    streams::err(look.wrap(&printable_lines(&format!("help: {help}\n"))));
                }
            }
            (Format::Json, _) => {
                let errors = serde_json::json!({ "hyoshi": head(verb), "errors": self.json() });
                // If printing fails, the exit code still reports the error.
                drop(streams::out(format_args!("{errors:#}\n")));
            }
        }
    }

    /// The errors, each as an object.
    fn json(&self) -> Vec<serde_json::Value> {
        match self {
            CliError::File(errors) => {
                let object = |error: &hyoshi_model::Diagnostic| {
                    serde_json::json!({
                        "message": error.message, "label": error.label, "help": error.help,
                        "file": error.file, "line": error.line, "column": error.column,
                    })
                };
                errors.errors.iter().map(object).collect()
            }
            #[cfg(feature = "orb")]
            CliError::Idl(errors) => {
                let object = |error: &hyoshi_idl::IdlDiagnostic| {
                    let place = errors.place(error);
                    serde_json::json!({
                        "message": error.message, "label": error.label, "help": error.help,
                        "file": place.as_ref().map(|place| &place.file),
                        "line": place.as_ref().map(|place| place.line),
                        "column": place.as_ref().map(|place| place.column),
                    })
                };
                errors.errors.iter().map(object).collect()
            }
            CliError::Other { message, help } => vec![serde_json::json!({ "message": message, "help": help })],
            CliError::Reported => Vec::new(),
        }
    }
}

/// The first member of every JSON object.
fn head(verb: &str) -> serde_json::Value {
    serde_json::json!({ "schema": SCHEMA, "version": env!("CARGO_PKG_VERSION"), "verb": verb })
}

/// Runs the command line of this process: every verb, with these bodies and strategies.
///
/// A user's own binary calls this from `main`; operations without a body do built-in work.
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     let bodies = hyoshi::Bodies::new().body("fuse", |job| {
///         let _time_left = job.time_left();
///     });
///     hyoshi::cli(bodies, hyoshi::Strategies::built_in())
/// }
/// ```
pub fn cli(bodies: Bodies, strategies: Strategies) -> ExitCode {
    let command = command().color(Color::before_parsing().of_help());
    let matches = command.try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let Cli { verb, format, color } = match matches {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    color.apply();
    let (name, ended) = match verb {
        Verb::Check(arguments) => ("check", check::check(&arguments, &strategies, format)),
        Verb::Sim(arguments) => ("sim", sim::sim(&arguments, &strategies, format)),
        Verb::Run(arguments) => ("run", run::run(&arguments, &strategies, bodies, format)),
        Verb::Calibrate(arguments) => ("calibrate", calibrate::calibrate(&arguments, format)),
        Verb::Doctor => ("doctor", doctor::doctor(format)),
        Verb::New(arguments) => ("new", new::new(&arguments, format)),
        #[cfg(feature = "reproduce")]
        Verb::Reproduce(arguments) => ("reproduce", reproduce::reproduce(&arguments, format)),
        Verb::Trace(arguments) => (arguments.name(), trace::trace(&arguments, &strategies, format)),
        Verb::Why(arguments) => ("why", why::why(&arguments, &strategies, format)),
        #[cfg(feature = "orb")]
        Verb::Ior(arguments) => (arguments.name(), ior::ior(&arguments, format)),
        #[cfg(feature = "orb")]
        Verb::Call(arguments) => ("call", call::call(&arguments, format)),
        #[cfg(feature = "orb")]
        Verb::Idl(arguments) => ("idl", idl::idl(&arguments, format)),
        #[cfg(feature = "orb")]
        Verb::Naming(arguments) => (arguments.name(), naming::naming(&arguments, format)),
        #[cfg(feature = "orb")]
        Verb::Proxy(arguments) => ("proxy", proxy::proxy(&arguments, format)),
        #[cfg(feature = "orb")]
        Verb::Node(arguments) => (arguments.name(), node::node(&arguments, format)),
        #[cfg(feature = "orb")]
        Verb::Events(arguments) => (arguments.name(), events::events(&arguments, format)),
        #[cfg(feature = "orb")]
        Verb::Contract(arguments) => (arguments.name(), contract::contract(&arguments, format)),
        #[cfg(feature = "orb")]
        Verb::Threads(arguments) => (arguments.name(), threads::threads(&arguments, format)),
        #[cfg(feature = "orb")]
        Verb::Orb(arguments) => (orb::NAME, orb::orb(&arguments, format)),
        #[cfg(feature = "broker")]
        Verb::Broker(arguments) => (arguments.name(), broker::broker(&arguments, format)),
        #[cfg(feature = "broker")]
        Verb::Exec(arguments) => return exec::exec(&arguments, format),
        #[cfg(feature = "broker")]
        Verb::Attach(arguments) => ("attach", attach::attach(&arguments, format)),
        Verb::Hourglass(arguments) => ("hourglass", hourglass::hourglass(&arguments, format)),
        #[cfg(feature = "broker")]
        Verb::Top(arguments) => ("top", top::top(&arguments, format)),
        #[cfg(feature = "broker")]
        Verb::ExecWatch(arguments) => ("exec-watch", exec::watch(&arguments)),
        #[cfg(feature = "broker")]
        Verb::RunWatch => ("run-watch", programs::watch()),
        #[cfg(feature = "orb")]
        Verb::NetworkWatch => ("network-watch", run::watch_network()),
        Verb::Strategies => ("strategies", list(&strategies, format)),
        Verb::Completion(arguments) => ("completion", manual::completion(&arguments)),
        Verb::Man(arguments) => ("man", manual::manual(&arguments, format)),
        Verb::Schema => ("schema", streams::out(hyoshi_model::schema()).map(|()| VerbOutcome::Success)),
    };
    match ended {
        Ok(VerbOutcome::Success) => ExitCode::SUCCESS,
        Ok(VerbOutcome::Negative) => ExitCode::from(1),
        Ok(VerbOutcome::Interrupted) => ExitCode::from(3),
        Err(failure) => {
            failure.print(name, format);
            ExitCode::from(2)
        }
    }
}

/// Prints help, or the error of a command line that cannot be parsed.
fn refuse(error: &clap::Error) -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    let json = words.iter().any(|word| word == "--format=json")
        || words.windows(2).any(|pair| pair[0] == "--format" && pair[1] == "json");
    match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand if json => {
            CliError::new("no verb").help("`hyoshi help` lists every verb and flag").print("", Format::Json);
        }
        // A failure to print cannot be reported.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => drop(error.print()),
        _ if !error.use_stderr() => drop(error.print()),
        _ => unparsed(error).print("", if json { Format::Json } else { Format::Text }),
    }
    ExitCode::from(if error.use_stderr() { 2 } else { 0 })
}

/// The error of a command line that cannot be parsed, in the form of all errors.
fn unparsed(error: &clap::Error) -> CliError {
    let named = |kind| error.get(kind).map(|value| value.to_string()).unwrap_or_default();
    let listed = |kind| match error.get(kind) {
        Some(ContextValue::Strings(all)) => all.iter().map(|one| format!("`{one}`")).collect::<Vec<_>>().join(" or "),
        Some(one) => format!("`{one}`"),
        None => String::new(),
    };
    let usage = named(ContextKind::Usage);
    // The format is an option of every verb.
    let usage = usage.replace("--format <FORMAT> ", "").split_whitespace().collect::<Vec<_>>().join(" ");
    let usage = usage.strip_prefix("Usage: ").map(|usage| format!("usage: {usage}"));
    let similar = |kind| Some(listed(kind)).filter(|names| !names.is_empty()).map(|names| format!("similar: {names}"));
    let (argument, value) = (named(ContextKind::InvalidArg), named(ContextKind::InvalidValue));
    let (message, help) = match error.kind() {
        ErrorKind::InvalidSubcommand => (
            format!("unknown verb `{}`", named(ContextKind::InvalidSubcommand)),
            similar(ContextKind::SuggestedSubcommand),
        ),
        ErrorKind::UnknownArgument => {
            (format!("unexpected argument `{argument}`"), similar(ContextKind::SuggestedArg).or(usage))
        }
        ErrorKind::MissingRequiredArgument => {
            (format!("missing argument {}", listed(ContextKind::InvalidArg).replace(" or ", " and ")), usage)
        }
        ErrorKind::ArgumentConflict => {
            let message = format!("`{argument}` cannot be used with {}", listed(ContextKind::PriorArg));
            (message, Some("leave one of them out".to_owned()))
        }
        ErrorKind::InvalidValue if value.is_empty() => (format!("`{argument}` needs a value"), usage),
        ErrorKind::InvalidValue => {
            let known = listed(ContextKind::ValidValue).replace('`', "").replace(" or ", ", ");
            let known = Some(known).filter(|known| !known.is_empty()).map(|known| format!("possible values: {known}"));
            (format!("invalid value `{value}` for `{argument}`"), known.or(usage))
        }
        ErrorKind::ValueValidation => {
            let why = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            let why = match why.strip_prefix(&format!("{value:?} ")) {
                Some(why) => format!("it {why}"),
                None => why,
            };
            let (why, help) = why.split_once("; ").map_or((&*why, None), |(why, help)| (why, Some(help.to_owned())));
            let help = help.unwrap_or_else(|| "`--help` explains each argument".to_owned());
            (format!("invalid value `{value}` for `{argument}`: {why}"), Some(help))
        }
        _ => {
            let text = error.to_string();
            let first = text.split("\n\n").next().unwrap_or(&text).trim_start_matches("error: ").trim_end();
            (first.to_owned(), usage)
        }
    };
    CliError::new(message).help(help.unwrap_or_else(|| "`hyoshi help` lists every verb and flag".to_owned()))
}

/// `hyoshi strategies`: lists the known strategies.
fn list(strategies: &Strategies, format: Format) -> Result<VerbOutcome, CliError> {
    let known = strategies.names().into_iter().filter_map(|name| {
        let summary = strategies.find(&name)?.summary().to_owned();
        Some((name, summary))
    });
    match format {
        Format::Text => {
            let lines: String = known.map(|(name, summary)| format!("{name:<10} {summary}\n")).collect();
            streams::out(TerminalStyle::of_stdout().wrap(&lines))?;
        }
        Format::Json => {
            let all = known.map(|(name, summary)| serde_json::json!({ "name": name, "summary": summary }));
            let all: Vec<_> = all.collect();
            streams::out(format_args!(
                "{:#}\n",
                serde_json::json!({ "hyoshi": head("strategies"), "strategies": all })
            ))?;
        }
    }
    Ok(VerbOutcome::Success)
}

/// The default file of a verb's HTML report.
fn default_report(system: &str, verb: &str) -> PathBuf {
    let name: String = system.chars().map(|c| if c.is_alphanumeric() || c == '-' { c } else { '-' }).collect();
    PathBuf::from(format!("{name}-{verb}-report.html"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verb_is_in_one_group_and_its_help_fits_into_80_columns() {
        let command = command();
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let count = GROUPS.iter().flat_map(|(_, verbs)| *verbs).filter(|name| **name == verb.get_name()).count();
            assert_eq!(count, 1, "{}", verb.get_name());
            assert!(verb.get_about().is_some_and(|about| about.to_string().len() <= 66), "{}", verb.get_name());
        }
    }
}
