//! `hyoshi reproduce kokyu`.

use std::path::PathBuf;

use clap::Args;
use hyoshi_model::Span;
use hyoshi_reproduce::kokyu::kernel::{self, KernelError};
use hyoshi_reproduce::kokyu::{self, Reproduced, Setup};

use super::{PaperOutput, print, stopped, watched};
use crate::cli::load::{seed, span};
use crate::cli::output::try_out;
use crate::cli::{CliError, Format, VerbOutcome};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// How long each of the twelve regions lasts in simulation; 150s in the paper
    #[arg(long, value_name = "SPAN", default_value = "150s", value_parser = span)]
    region: Span,
    /// The seed of all draws, the same for every strategy
    #[arg(long, value_name = "NUMBER", default_value = "1", allow_negative_numbers = true, value_parser = seed)]
    seed: u64,
    /// Time for the trials on the kernel, with shorter regions to fit [default: 2min with real-time priority, else
    /// none]
    #[arg(long, value_name = "SPAN", value_parser = span)]
    kernel: Option<Span>,
    /// Skip the trials on the kernel
    #[arg(long, conflicts_with = "kernel")]
    sim_only: bool,
    /// The HTML page with the charts
    #[arg(long, value_name = "FILE", default_value = "kokyu-reproduced.html")]
    report: PathBuf,
    /// Write no page
    #[arg(long, conflicts_with = "report")]
    no_report: bool,
}

pub(super) fn kokyu(arguments: &Arguments, format: Format) -> Result<VerbOutcome, CliError> {
    let report = (!arguments.no_report).then_some(arguments.report.as_path());
    report.map_or(Ok(()), |path| try_out("the page", path, ""))?;
    let setup = Setup { region: arguments.region, seed: arguments.seed };
    let figures = watched(format, |watch| {
        let mut figures = kokyu::run(setup, watch).map_err(stopped)?;
        match budget(arguments) {
            Ok(Some(budget)) => match kernel::run(&kokyu::kernel_trials(), budget, arguments.seed, watch) {
                Ok(kernel) => figures.kernel = Some(kernel),
                Err(KernelError::Stopped) => return Err(stopped(hyoshi_reproduce::Stopped)),
                Err(error @ KernelError::Start(_)) => {
                    return Err(CliError::new(error).help("skip the kernel with `--sim-only`"));
                }
            },
            Ok(None) => {}
            Err(why) => figures.no_kernel = Some(why),
        }
        Ok(figures)
    })?;
    let reproduced = Reproduced::judge(figures);
    let pieces = PaperOutput {
        paper: "kokyu",
        claims: &reproduced.claims,
        heading: &|look| reproduced.heading(look),
        tables: &|look| reproduced.tables(look),
        page: &|command| reproduced.html(command),
    };
    print(&pieces, &reproduced, report, format)
}

/// The time for trials on the kernel, if any. An error is the reason to skip them: without real-time priorities they
/// would measure the machine's other work.
fn budget(arguments: &Arguments) -> Result<Option<Span>, String> {
    match (arguments.kernel, arguments.sim_only) {
        (Some(asked), _) => Ok(Some(asked)),
        (None, true) => Ok(None),
        (None, false) if kernel::grants_real_time() => Ok(Some(KERNEL)),
        (None, false) => Err("no trials on the kernel, which grants no real-time priority (see `hyoshi doctor`); \
                 `--kernel 2min` runs them anyway"
            .into()),
    }
}

/// The default time for trials on the kernel.
const KERNEL: Span = Span::from_secs(120);
