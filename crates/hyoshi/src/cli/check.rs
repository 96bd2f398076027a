//! `hyoshi check`: what can be proved before deployment.

use std::path::PathBuf;

use clap::Args;
use hyoshi_sched::{Strategies, analyse};

use super::load::{Changes, load};
use super::{Failure, Format, Held, Output};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The system's file
    file: PathBuf,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    pub output: Output,
}

pub(super) fn check(arguments: &Arguments, strategies: &Strategies) -> Result<Held, Failure> {
    let format = arguments.output.format;
    let ready = load(&arguments.file, &arguments.changes, strategies, format)?;
    let report = analyse(&ready.system, &ready.plan);
    match format {
        Format::Text => println!("{report:#?}"),
        Format::Json => println!("{}", serde_json::to_string_pretty(&report).map_err(Failure::new)?),
    }
    Ok(Held::when(report.outcome == hyoshi_sched::Outcome::Holds))
}
