//! `hyoshi reproduce`: the papers' experiments, run again and judged.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use hyoshi_model::Span;
use hyoshi_os::signals::Interrupt;
use hyoshi_os::wake::Wake;
use hyoshi_report::{Look, save};
use hyoshi_reproduce::kokyu::kernel::{self, KernelError};
use hyoshi_reproduce::kokyu::{self, Reproduced, Setup, Watch};
use serde::Serialize;

use super::load::{seed, span};
use super::output::{cannot_write, command_line, try_out};
use super::{Failure, Format, Held, head, streams};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    paper: Paper,
}

#[derive(Debug, Subcommand)]
enum Paper {
    /// Multiparadigm scheduling of a flight program (Gill, Cytron and Schmidt 2003): claims K1 to K13
    Kokyu(Kokyu),
}

#[derive(Debug, Args)]
struct Kokyu {
    /// How long each of the twelve regions lasts in simulation; 150s in the paper
    #[arg(long, value_name = "SPAN", default_value = "150s", value_parser = span)]
    region: Span,
    /// Start of every draw, the same for every strategy
    #[arg(long, value_name = "NUMBER", default_value = "1", allow_negative_numbers = true, value_parser = seed)]
    seed: u64,
    /// Time for the trials on the kernel, whose regions are shortened to fit; 2min where real-time
    /// priority is granted, none elsewhere
    #[arg(long, value_name = "SPAN", value_parser = span)]
    kernel: Option<Span>,
    /// Leave the kernel out
    #[arg(long, conflicts_with = "kernel")]
    sim_only: bool,
    /// Where the page with the charts goes
    #[arg(long, value_name = "FILE", default_value = "kokyu-reproduced.html")]
    report: PathBuf,
    /// Write no page
    #[arg(long, conflicts_with = "report")]
    no_report: bool,
}

/// What programs get.
#[derive(Serialize)]
struct Told<'a> {
    hyoshi: serde_json::Value,
    paper: &'static str,
    #[serde(flatten)]
    reproduced: &'a Reproduced,
}

pub(super) fn reproduce(arguments: &Arguments, format: Format) -> Result<Held, Failure> {
    let Paper::Kokyu(arguments) = &arguments.paper;
    kokyu(arguments, format)
}

fn kokyu(arguments: &Kokyu, format: Format) -> Result<Held, Failure> {
    let interrupt = Interrupt::on_signals(Arc::new(Wake::new()))
        .map_err(|error| Failure::new(format!("cannot listen for signals: {error}")))?;
    let tells = format == Format::Text && std::io::stderr().is_terminal();
    let step = |what: &str| {
        if tells {
            streams::err(format_args!("\r\x1b[K{what} ..."));
        }
    };
    let watch = Watch { step: &step, stop: &|| interrupt.requested() };
    let setup = Setup { region: arguments.region, seed: arguments.seed };
    let report = (!arguments.no_report).then_some(arguments.report.as_path());
    report.map_or(Ok(()), |path| try_out("the page", path, ""))?;
    let stopped = || Failure::new("interrupted: nothing was judged");
    let mut figures = kokyu::run(setup, watch).map_err(|_| stopped())?;
    match budget(arguments) {
        Ok(Some(budget)) => match kernel::run(&kokyu::kernel_trials(), budget, arguments.seed, watch) {
            Ok(kernel) => figures.kernel = Some(kernel),
            Err(KernelError::Stopped) => return Err(stopped()),
            Err(error @ KernelError::Start(_)) => {
                return Err(Failure::new(error).help("`--sim-only` leaves the kernel out"));
            }
        },
        Ok(None) => {}
        Err(why) => figures.no_kernel = Some(why),
    }
    if tells {
        streams::err("\r\x1b[K");
    }
    let reproduced = Reproduced::judge(figures);
    let command = command_line();
    if let Some(path) = report {
        save(path, &reproduced.html(&command)).map_err(|error| cannot_write("the page", &error.path, &error.source))?;
    }
    match format {
        Format::Text => {
            let look = Look::of_stdout();
            let (verdicts, reasons) = (reproduced.verdicts(look), reproduced.reasons(look));
            let page = report.map_or(String::new(), |path| format!("\ncharts: {}\n", path.display()));
            streams::out(format_args!(
                "{}{verdicts}{page}\n{reasons}{}",
                reproduced.heading(look),
                reproduced.tables(look)
            ))?;
        }
        Format::Json => {
            let mut hyoshi = head("reproduce");
            hyoshi["command"] = command.into();
            let told = Told { hyoshi, paper: "kokyu", reproduced: &reproduced };
            let object = serde_json::to_string_pretty(&told).map_err(Failure::new)?;
            streams::out(format_args!("{object}\n"))?;
        }
    }
    Ok(Held::Yes)
}

/// How long the trials on the kernel may take, if there are to be any; or why there are none,
/// though nobody said so: without real-time priorities they would tell of the machine's other work.
fn budget(arguments: &Kokyu) -> Result<Option<Span>, String> {
    match (arguments.kernel, arguments.sim_only) {
        (Some(asked), _) => Ok(Some(asked)),
        (None, true) => Ok(None),
        (None, false) if kernel::grants_real_time() => Ok(Some(KERNEL)),
        (None, false) => {
            Err("nothing was run on the kernel, which grants no real-time priority (`hyoshi doctor` says \
                              what to do); `--kernel 2min` runs it all the same"
                .into())
        }
    }
}

/// The trials on the kernel take so long unless told otherwise.
const KERNEL: Span = Span::from_secs(120);
