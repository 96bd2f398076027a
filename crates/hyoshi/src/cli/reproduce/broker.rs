//! `hyoshi reproduce broker`.

use std::path::PathBuf;

use clap::Args;
use hyoshi_reproduce::broker::kernel;
use hyoshi_reproduce::broker::{self, BrokerReproduction};

use super::{KernelLength, PaperOutput, own_file, print, stopped, watched};
use crate::cli::output::try_out;
use crate::cli::{CliError, Format, VerbOutcome};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Length of the experiments on the kernel
    #[arg(long, value_enum, default_value_t)]
    length: KernelLength,
    /// Skip the experiments on the kernel
    #[arg(long, conflicts_with = "length")]
    sim_only: bool,
    /// The HTML page with the charts
    #[arg(long, value_name = "FILE", default_value = "broker-reproduced.html")]
    report: PathBuf,
    /// Write no page
    #[arg(long, conflicts_with = "report")]
    no_report: bool,
}

pub(super) fn broker(arguments: &Arguments, format: Format) -> Result<VerbOutcome, CliError> {
    let report = (!arguments.no_report).then_some(arguments.report.as_path());
    report.map_or(Ok(()), |path| try_out("the page", path, ""))?;
    let figures = watched(format, |watch| {
        let mut figures = broker::run(watch).map_err(stopped)?;
        if !arguments.sim_only {
            figures.kernel = Some(kernel::run(&own_file()?, arguments.length.into(), watch).map_err(stopped)?);
        }
        Ok(figures)
    })?;
    let reproduced = BrokerReproduction::judge(figures);
    let pieces = PaperOutput {
        paper: "broker",
        claims: &reproduced.claims,
        heading: &|look| reproduced.heading(look),
        tables: &|look| reproduced.tables(look),
        page: &|command| reproduced.html(command),
    };
    print(&pieces, &reproduced, report, format)
}
