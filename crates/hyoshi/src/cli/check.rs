//! `hyoshi check`: what can be proved before deployment.

use std::path::PathBuf;

use clap::Args;
use hyoshi_report::{Checked, Look};
use hyoshi_sched::{Strategies, analyse};

use super::load::{Changes, load};
use super::output::command_line;
use super::{Failure, Format, Held, streams};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The system's file
    file: PathBuf,
    #[command(flatten)]
    changes: Changes,
}

pub(super) fn check(arguments: &Arguments, strategies: &Strategies, format: Format) -> Result<Held, Failure> {
    let ready = load(&arguments.file, &arguments.changes, strategies, format)?;
    let report = analyse(&ready.system, &ready.plan);
    let checked = Checked { command: &command_line(), system: &ready.system, report: &report };
    match format {
        Format::Text => streams::out(checked.terminal(Look::of_stdout()))?,
        Format::Json => streams::out(checked.json())?,
    }
    Ok(Held::when(report.outcome == hyoshi_sched::Outcome::Holds))
}
