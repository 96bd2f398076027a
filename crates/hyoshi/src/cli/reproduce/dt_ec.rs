//! `hyoshi reproduce dt-ec`.

use std::path::PathBuf;

use clap::Args;
use hyoshi_reproduce::dt_ec::{self, DtEcReproduction};
use hyoshi_reproduce::nodes::NodeProgram;

use super::{ExperimentNode, KernelLength, PaperOutput, own_file, print, stopped, watched};
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
    #[arg(long, value_name = "FILE", default_value = "dt-ec-reproduced.html")]
    report: PathBuf,
    /// Write no page
    #[arg(long, conflicts_with = "report")]
    no_report: bool,
    #[command(flatten)]
    node: ExperimentNode,
}

pub(super) fn dt_ec(arguments: &Arguments, format: Format) -> Result<VerbOutcome, CliError> {
    if let Some(outcome) = arguments.node.run()? {
        return Ok(outcome);
    }
    let report = (!arguments.no_report).then_some(arguments.report.as_path());
    report.map_or(Ok(()), |path| try_out("the page", path, ""))?;
    let figures = watched(format, |watch| {
        let mut figures = dt_ec::simulate();
        if !arguments.sim_only {
            let program = NodeProgram { path: &own_file()?, words: &["reproduce", "dt-ec"] };
            figures.kernel = Some(dt_ec::on_kernel(&program, arguments.length.into(), watch).map_err(stopped)?);
        }
        Ok(figures)
    })?;
    let reproduced = DtEcReproduction::judge(figures);
    let pieces = PaperOutput {
        paper: "dt-ec",
        claims: &reproduced.claims,
        heading: &|look| reproduced.heading(look),
        tables: &|look| reproduced.tables(look),
        page: &|command| reproduced.html(command),
    };
    print(&pieces, &reproduced, report, format)
}
