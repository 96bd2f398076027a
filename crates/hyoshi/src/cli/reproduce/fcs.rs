//! `hyoshi reproduce fcs`.

use std::path::PathBuf;

use clap::Args;
use hyoshi_reproduce::fcs::{self, FcsReproduction, kernel};
use hyoshi_reproduce::nodes::NodeProgram;

use super::{ExperimentNode, KernelLength, PaperOutput, own_file, print, stopped, watched};
use crate::cli::load::seed;
use crate::cli::output::try_out;
use crate::cli::{CliError, Format, VerbOutcome};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The seed of the lowest rates, phases and execution times
    #[arg(long, value_name = "NUMBER", default_value = "1", allow_negative_numbers = true, value_parser = seed)]
    seed: u64,
    /// Length of the experiments on the kernel
    #[arg(long, value_enum, default_value_t)]
    length: KernelLength,
    /// Skip the experiments on the kernel
    #[arg(long, conflicts_with = "length")]
    sim_only: bool,
    /// The HTML page with the charts
    #[arg(long, value_name = "FILE", default_value = "fcs-reproduced.html")]
    report: PathBuf,
    /// Write no page
    #[arg(long, conflicts_with = "report")]
    no_report: bool,
    #[command(flatten)]
    node: ExperimentNode,
}

pub(super) fn fcs(arguments: &Arguments, format: Format) -> Result<VerbOutcome, CliError> {
    if let Some(outcome) = arguments.node.run()? {
        return Ok(outcome);
    }
    let report = (!arguments.no_report).then_some(arguments.report.as_path());
    report.map_or(Ok(()), |path| try_out("the page", path, ""))?;
    let figures = watched(format, |watch| {
        let mut figures = fcs::run(arguments.seed, watch).map_err(stopped)?;
        if !arguments.sim_only {
            let length = arguments.length.into();
            let program = NodeProgram { path: &own_file()?, words: &["reproduce", "fcs"] };
            figures.kernel = Some(kernel::run(&program, arguments.seed, length, watch).map_err(stopped)?);
        }
        Ok(figures)
    })?;
    let reproduced = FcsReproduction::judge(figures);
    let pieces = PaperOutput {
        paper: "fcs",
        claims: &reproduced.claims,
        heading: &|look| reproduced.heading(look),
        tables: &|look| reproduced.tables(look),
        page: &|command| reproduced.html(command),
    };
    print(&pieces, &reproduced, report, format)
}
