//! `hyoshi ior`: decodes object references.

mod describe;
mod table;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use clap::{Args, Subcommand};
use hyoshi_report::TerminalStyle;
use hyoshi_wire::ior::{ObjectUrl, ReferenceError};

use self::describe::Described;
use super::{CliError, Format, VerbOutcome, head, streams};

/// Octets of the longest accepted reference.
const MOST: u64 = 4 << 20;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show what a reference contains: addresses, key, code sets, policies, its ORB
    Decode {
        /// The reference (IOR:..., corbaloc:..., corbaname:...), a file that holds one, or - for standard input
        #[arg(value_name = "REFERENCE|FILE|-")]
        from: String,
    },
}

impl Arguments {
    /// The name of the verb.
    pub fn name(&self) -> &'static str {
        match &self.verb {
            Verb::Decode { .. } => "ior decode",
        }
    }
}

pub(super) fn ior(arguments: &Arguments, format: Format) -> Result<VerbOutcome, CliError> {
    match &arguments.verb {
        Verb::Decode { from } => decode(from, format),
    }
}

fn decode(from: &str, format: Format) -> Result<VerbOutcome, CliError> {
    let text = text(from)?;
    let text = text.trim();
    let reference: ObjectUrl = text.parse().map_err(|error| refusal(text, &error, format))?;
    let described = Described::of(&reference);
    match format {
        Format::Text => streams::out(TerminalStyle::of_stdout().wrap(&table::table(&described)))?,
        Format::Json => {
            let whole = Decoded { hyoshi: head("ior decode"), holds: described.is_sound(), reference: &described };
            let object = serde_json::to_value(&whole).map_err(CliError::new)?;
            streams::out(format_args!("{object:#}\n"))?;
        }
    }
    Ok(VerbOutcome::of(described.is_sound()))
}

/// The JSON form.
#[derive(serde::Serialize)]
struct Decoded<'a> {
    hyoshi: serde_json::Value,
    holds: bool,
    reference: &'a Described,
}

/// The text of a reference: the argument, or the content of a file.
pub(super) fn text(from: &str) -> Result<String, CliError> {
    let scheme = from.trim_start().split_once(':').map_or("", |(scheme, _)| scheme);
    if ["IOR", "corbaloc", "corbaname"].iter().any(|known| known.eq_ignore_ascii_case(scheme)) {
        return Ok(from.to_owned());
    }
    if from.trim().is_empty() {
        return Err(
            CliError::new("the reference is empty").help("write IOR:..., corbaloc:..., corbaname:... or a file")
        );
    }
    let path = from.strip_prefix("file:").unwrap_or(from);
    let path = path.strip_prefix("//").filter(|_| path.len() < from.len()).unwrap_or(path);
    let (what, read) = match path {
        "-" => ("standard input".to_owned(), limited(io::stdin().lock())),
        path => (path.to_owned(), File::open(Path::new(path)).and_then(limited)),
    };
    let text = read.map_err(|error| {
        let failure = CliError::new(format!("cannot read {what}: {error}"));
        match error.kind() {
            io::ErrorKind::NotFound => {
                failure.help("write IOR:..., corbaloc:... or corbaname:..., or the name of a file that contains one")
            }
            io::ErrorKind::InvalidData => {
                failure.help("write the reference as text: IOR:..., corbaloc:... or corbaname:...")
            }
            _ => failure,
        }
    })?;
    if text.trim().is_empty() {
        return Err(CliError::new(format!("{what} is empty")).help("start the server, which writes its reference"));
    }
    Ok(text)
}

fn limited(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(MOST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too long for a reference"));
    }
    Ok(text)
}

/// The error, with the place in the text below it.
pub(super) fn refusal(text: &str, error: &ReferenceError, format: Format) -> CliError {
    let at = (0..=error.at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let (before, after) = text.split_at(at);
    let shown = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let start: String = before.chars().rev().take(40).map(shown).collect();
    let start: String = start.chars().rev().collect();
    let left = if start.chars().count() < before.chars().count() { "..." } else { "" };
    let end: String = after.chars().take(30).map(shown).collect();
    let right = if end.chars().count() < after.chars().count() { "..." } else { "" };
    match format {
        Format::Json => CliError::new(error),
        Format::Text => {
            let indent = left.len() + start.chars().count();
            CliError::new(format!("{error}\n  {left}{start}{end}{right}\n  {:indent$}^", ""))
        }
    }
}
