//! Limits of each user of a broker.

use std::path::{Path, PathBuf};

use clap::Args;
use hyoshi_broker::limits::{FILE, LimitsError, Rules, UserLimits, read_file};
use hyoshi_model::{FileErrors, Share};
use hyoshi_report::terminal::grid::{CellValue, Column, Tone, column};
use serde_json::json;

use crate::cli::answer::{OutputTable, OutputText, VerbOutput};
use crate::cli::{CliError, Format, VerbOutcome, streams};

#[derive(Debug, Args)]
pub(super) struct Check {
    /// The file of limits
    #[arg(value_name = "FILE", default_value = FILE)]
    file: PathBuf,
}

const COLUMNS: [Column; 8] = [
    column("users"),
    column("share"),
    column("importance"),
    column("tasks"),
    column("threads"),
    column("connections"),
    column("settings"),
    column("requests"),
];

/// The limits of this user's broker. A named file must exist; the machine's file applies only to root's broker.
pub(super) fn to_serve(named: Option<&Path>, uid: u32) -> Result<Rules, CliError> {
    match (named, uid) {
        (None, 0) => Ok(read_file(Path::new(FILE)).map_err(wrong)?.unwrap_or_default()),
        (None, _) => Ok(Rules::default()),
        (Some(file), _) => read_file(file).map_err(wrong)?.ok_or_else(|| missing(file)),
    }
}

pub(super) fn check(check: &Check, verb: &str, format: Format) -> Result<VerbOutcome, CliError> {
    let read = read_file(&check.file).map_err(wrong)?;
    let defaults = read.is_none();
    if defaults && check.file != Path::new(FILE) {
        return Err(missing(&check.file));
    }
    let rules = read.unwrap_or_default();
    let share = |limits: &UserLimits| Share::from_millionths(limits.share.into());
    let row = |limits: &UserLimits| {
        let count = |count: u32| CellValue::Count(count.into(), Tone::Plain);
        vec![
            CellValue::words(limits.scope.to_string()),
            CellValue::figure(share(limits).to_string()),
            count(limits.importance),
            count(limits.tasks),
            count(limits.threads),
            count(limits.connections),
            CellValue::figure(format!("{}B", limits.settings)),
            CellValue::figure(format!("{}/s", limits.requests)),
        ]
    };
    let entries: Vec<_> = rules.entries().map(|limits| {
        json!({
            "users": limits.scope.to_string(), "share_millionths_of_cap": limits.share, "importance": limits.importance,
            "tasks": limits.tasks, "threads": limits.threads, "connections": limits.connections,
            "settings_octets": limits.settings, "requests_per_second": limits.requests,
        })
    }).collect();
    let unknown: Vec<String> = rules.unknown().map(|limits| limits.scope.to_string()).collect();
    let together: u64 = rules.entries().map(|limits| u64::from(limits.share)).sum();
    let mut notes: Vec<String> =
        unknown.iter().map(|scope| format!("[{scope}] matches no user: unknown name")).collect();
    if defaults {
        notes.push(format!("there is no {FILE}: these are the defaults"));
    }
    if together > 1_000_000 {
        let together = Share::from_millionths(together);
        notes.push(format!(
            "the shares add up to {together} of the cap: the policy decides between these users and root's tasks"
        ));
    }
    if format == Format::Text {
        notes.iter().for_each(|note| streams::err(format_args!("note: {note}\n")));
    }
    let table = OutputTable { columns: &COLUMNS, rows: rules.entries().map(row).collect(), empty: "" };
    let json = json!({
        "file": check.file, "defaults": defaults, "entries": entries, "unknown": unknown, "notes": notes,
        "libraries": rules.libraries, "objects": rules.objects,
    });
    VerbOutput { text: OutputText::Table(table), json }.print(verb, format)?;
    Ok(VerbOutcome::Success)
}

fn missing(file: &Path) -> CliError {
    CliError::new(format_args!("there is no file {}", file.display()))
        .help("use another file; without --limits the defaults apply, as in examples/broker.toml")
}

fn wrong(error: LimitsError) -> CliError {
    match error {
        LimitsError::Wrong(diagnostic) => CliError::File(FileErrors::from(*diagnostic)),
        error => CliError::new(&error).help(error.remedy()),
    }
}
