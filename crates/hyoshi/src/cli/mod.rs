//! The command line: one verb a file, and what they share.
//!
//! Exit codes: 0 what was asked for holds, 1 it does not, 2 the input was bad (a file, a flag, a
//! missing privilege under `--strict`).

mod check;
mod doctor;
mod jobs;
mod load;
mod new;
mod output;
mod run;
mod sim;
mod trace;

use std::fmt;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use hyoshi_report::summary::SCHEMA;
use hyoshi_sched::Strategies;

use crate::bodies::Bodies;

/// Keeps mixed-criticality work on time when load is not what anyone planned for.
#[derive(Debug, Parser)]
#[command(name = "hyoshi", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 it holds, 1 it does not, 2 bad input.\n\
                        Begin with: hyoshi new demo && hyoshi run demo/system.toml")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Prove before deployment what can be proved
    Check(check::Arguments),
    /// Simulate in virtual time: deterministic, seeded, far faster than real time
    Sim(sim::Arguments),
    /// Run on the kernel: real threads, real-time priorities
    Run(run::Arguments),
    /// Tell what this machine grants, and what to do about each refusal
    Doctor(doctor::Arguments),
    /// Begin a system: a commented system.toml, and a Rust program with its operations' bodies
    New(new::Arguments),
    /// Read a recording
    Trace(trace::Arguments),
    /// List the strategies that this program knows
    Strategies,
    /// Print the JSON schema of system.toml, for editors
    Schema,
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

#[derive(Clone, Copy, Debug, Args)]
struct Output {
    /// How results are printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// How a verb ended, if it ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Yes,
    No,
}

impl Held {
    fn when(holds: bool) -> Held {
        if holds { Held::Yes } else { Held::No }
    }
}

/// Why a verb could not do its work: bad input, told to people or programs.
enum Failure {
    /// The system's file is wrong.
    File(hyoshi_model::FileErrors),
    /// Anything else, with what to do about it.
    Other { message: String, help: Option<String> },
}

impl Failure {
    fn new(message: impl fmt::Display) -> Failure {
        Failure::Other { message: message.to_string(), help: None }
    }

    fn help(self, help: impl fmt::Display) -> Failure {
        match self {
            Failure::Other { message, .. } => Failure::Other { message, help: Some(help.to_string()) },
            file => file,
        }
    }

    /// What is wrong, in one line.
    fn message(&self) -> String {
        match self {
            Failure::File(errors) => errors.to_string(),
            Failure::Other { message, .. } => message.clone(),
        }
    }

    fn print(&self, verb: &str, format: Format) {
        match (self, format) {
            (Failure::File(errors), Format::Text) => eprint!("{}", errors.render(colours(&std::io::stderr()))),
            (Failure::Other { message, help }, Format::Text) => {
                eprintln!("error: {message}");
                if let Some(help) = help {
                    eprintln!("help: {help}");
                }
            }
            (Failure::File(errors), Format::Json) => {
                let all = errors.errors.iter().map(|error| {
                    serde_json::json!({
                        "message": error.message, "label": error.label, "help": error.help,
                        "file": error.file, "line": error.line, "column": error.column,
                    })
                });
                print_errors(verb, all.collect());
            }
            (Failure::Other { message, help }, Format::Json) => {
                print_errors(verb, vec![serde_json::json!({ "message": message, "help": help })]);
            }
        }
    }
}

fn print_errors(verb: &str, errors: Vec<serde_json::Value>) {
    let head = serde_json::json!({ "schema": SCHEMA, "verb": verb });
    println!("{:#}", serde_json::json!({ "hyoshi": head, "errors": errors }));
}

/// Whether to colour what goes to `stream`.
fn colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// Runs the command line of this process: every verb, with the bodies and strategies given.
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
    let Cli { verb } = Cli::parse();
    let (name, format) = match &verb {
        Verb::Check(arguments) => ("check", arguments.output.format),
        Verb::Sim(arguments) => ("sim", arguments.output.format),
        Verb::Run(arguments) => ("run", arguments.output.format),
        Verb::Doctor(arguments) => ("doctor", arguments.output.format),
        Verb::New(_) => ("new", Format::Text),
        Verb::Trace(arguments) => ("trace", arguments.format()),
        Verb::Strategies => ("strategies", Format::Text),
        Verb::Schema => ("schema", Format::Text),
    };
    let ended = match verb {
        Verb::Check(arguments) => check::check(&arguments, &strategies),
        Verb::Sim(arguments) => sim::sim(&arguments, &strategies),
        Verb::Run(arguments) => run::run(&arguments, &strategies, bodies),
        Verb::Doctor(arguments) => doctor::doctor(&arguments),
        Verb::New(arguments) => new::new(&arguments),
        Verb::Trace(arguments) => trace::trace(&arguments, &strategies),
        Verb::Strategies => {
            for name in strategies.names() {
                println!("{name:<10} {}", strategies.find(&name).map_or("", |strategy| strategy.summary()));
            }
            Ok(Held::Yes)
        }
        Verb::Schema => {
            print!("{}", hyoshi_model::schema());
            Ok(Held::Yes)
        }
    };
    match ended {
        Ok(Held::Yes) => ExitCode::SUCCESS,
        Ok(Held::No) => ExitCode::from(1),
        Err(failure) => {
            failure.print(name, format);
            ExitCode::from(2)
        }
    }
}

/// Where a verb writes its HTML report.
fn default_report(system: &str, verb: &str) -> PathBuf {
    let name: String = system.chars().map(|c| if c.is_alphanumeric() || c == '-' { c } else { '-' }).collect();
    PathBuf::from(format!("{name}-{verb}-report.html"))
}
