//! `hyoshi orb watch`: the requests that wait at the objects of a running system.

use std::io::{IsTerminal, stdout};
use std::thread::sleep;
use std::time::Duration;

use clap::{Args, Subcommand};
use crossterm::cursor::MoveTo;
use crossterm::execute;
use crossterm::terminal::{Clear, ClearType};
use hyoshi_model::Span;
use hyoshi_node::idl::hyoshi_node::{HeldRequest, ObjectRequests};
use hyoshi_report::terminal::TerminalStyle;
use hyoshi_report::terminal::grid::{CellValue, Column, Tone, column, grid};
use serde_json::{Value as Json, json};

use super::answer::{OutputText, VerbOutput};
use super::node::{NodeAddress, failed, find};
use super::{CliError, Format, VerbOutcome};

#[derive(Debug, Args)]
#[command(after_help = "Of a system with [object.NAME] in its file, in another terminal:\n  \
                  hyoshi orb watch\n  \
                  hyoshi orb watch --once --format json")]
pub(super) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    node: NodeAddress,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Verb {
    /// Show the requests that wait or run, the most urgent first
    Watch {
        /// The time between two samples
        #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = every)]
        every: Span,
        /// Print one sample and exit
        #[arg(long)]
        once: bool,
    },
}

fn every(text: &str) -> Result<Span, String> {
    let span =
        hyoshi_model::quantity::span(text).map_err(|error| format!("{text:?} {error}; {}", error.remedy(text)))?;
    if span < Span::from_millis(100) { Err("the shortest time between samples is 100ms".to_owned()) } else { Ok(span) }
}

const REQUESTS: [Column; 8] = [
    column("processor").spare(2),
    column("operation"),
    column("client"),
    column("state"),
    column("since read"),
    column("time left"),
    column("importance").spare(1),
    column("class").spare(3),
];

/// The name of the verb.
pub(super) const NAME: &str = "orb watch";

pub(super) fn orb(arguments: &Arguments, format: Format) -> Result<VerbOutcome, CliError> {
    let Verb::Watch { every, once } = arguments.verb;
    let (client, at) = find(&arguments.node)?;
    let sample = || client.requests().map_err(|raised| failed(&at, raised));
    if once || format == Format::Json || !stdout().is_terminal() {
        return show(&sample()?).print(NAME, format);
    }
    loop {
        let requests = sample()?;
        // A closed terminal ends the verb with the next print.
        let _ = execute!(stdout(), MoveTo(0, 0), Clear(ClearType::All));
        show(&requests).print(NAME, format)?;
        sleep(Duration::from_nanos(every.as_nanos()));
    }
}

fn show(requests: &ObjectRequests) -> VerbOutput {
    let ObjectRequests { held, all, clamped, refused, damaged, late } = requests;
    let look = TerminalStyle::of_stdout();
    let rows: Vec<Vec<CellValue>> = held.iter().map(row).collect();
    let mut text = match rows.is_empty() {
        true => "no requests wait or run\n".to_owned(),
        false => grid(look, &REQUESTS, &rows, usize::MAX),
    };
    let more = all - held.len() as u64;
    let counts = [
        (more, "more"),
        (*clamped, "exceeded their client's limits and were clamped"),
        (*refused, "exceeded their client's limits and were refused"),
        (*damaged, "had a damaged timing, which was ignored"),
        (*late, "arrived after the run"),
    ];
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        text += &look.wrap(&format!("{count} requests {what}\n"));
    }
    let held: Vec<Json> = held.iter().map(request_json).collect();
    let json = json!({
        "requests": held,
        "all": all,
        "clamped": clamped,
        "refused": refused,
        "damaged_timings": damaged,
        "after_the_run": late,
    });
    VerbOutput { text: OutputText::Styled(text), json }
}

fn row(request: &HeldRequest) -> Vec<CellValue> {
    vec![
        CellValue::words(&request.processor),
        CellValue::words(&request.operation),
        CellValue::words(&request.client),
        CellValue::words(if request.runs { "runs" } else { "waits" }),
        CellValue::time(request.held),
        CellValue::signed_time(request.left),
        CellValue::Count(request.importance.into(), Tone::Plain),
        CellValue::words(if request.critical { "critical" } else { "" }),
    ]
}

fn request_json(request: &HeldRequest) -> Json {
    json!({
        "processor": request.processor,
        "operation": request.operation,
        "client": request.client,
        "runs": request.runs,
        "since_read_ns": request.held,
        "time_left_ns": request.left,
        "importance": request.importance,
        "critical": request.critical,
    })
}
