//! `hyoshi top`: shows the broker's tasks live. In a terminal a table is redrawn; elsewhere each sample is a block of
//! text or a JSON object.
//!
//! One thread queries the broker; another handles keys and signals, and shows the samples.

mod screen;
mod view;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use clap::Args;
use hyoshi_broker::client::{BrokerClient, BrokerClientError};
use hyoshi_broker::idl::cpu_broker::Broker;
use hyoshi_model::Span;
use hyoshi_os::{Clock, Interrupt, MonotonicClock, Wake};
use hyoshi_report::TerminalStyle;
use hyoshi_report::terminal::can_redraw;
use serde_json::json;

use super::broker::{At, BrokerSelection, Ended, ended, status_json, task_json};
use super::{CliError, Format, VerbOutcome, head, streams};
use screen::Screen;
use view::{BrokerSample, SortKey, View};

#[derive(Debug, Args)]
#[command(
    after_help = "Keys sort by a column: n name, i importance, p period, r requested, s reserved, c CPU, t reports. \
                        The same key again reverses the order; q quits.\n  \
                        hyoshi top --sort cpu\n  \
                        hyoshi top --once --format json"
)]
pub(super) struct Top {
    /// Time between samples
    #[arg(long, value_name = "TIME", default_value = "1s")]
    every: Span,
    /// The column to sort by
    #[arg(long, value_enum, value_name = "COLUMN", default_value_t)]
    sort: SortKey,
    /// Print one sample and exit
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    selection: BrokerSelection,
}

/// How often keys are read.
const KEYS: Span = Span::from_millis(50);

pub(super) fn top(top: &Top, format: Format) -> Result<VerbOutcome, CliError> {
    if top.every < Span::from_millis(100) {
        let failure = CliError::new(format_args!("--every {} is too short", top.every));
        return Err(failure.help("use at least 100ms, because each sample costs CPU time"));
    }
    let (wake, clock) = (Arc::new(Wake::new()), MonotonicClock::start());
    let interrupt = Interrupt::on_signals(wake.clone());
    let interrupt = interrupt.map_err(|error| CliError::new(format_args!("cannot listen for signals: {error}")))?;
    let client = match top.selection.one(&top.at) {
        Ok(client) => client,
        Err(Ended::Told(failure)) => return Err(failure),
        Err(Ended::Broker(error)) => return ended("top", &error, format),
    };
    let mut view = View::new(client.place(), top.sort);
    let samples = samples(client, clock, top.every);
    let drawn = can_redraw(&std::io::stdout()) && format == Format::Text && !top.once;
    let mut screen = drawn.then(Screen::enter).transpose().map_err(|error| {
        CliError::new(format_args!("cannot draw on the terminal: {error}"))
            .help("print plain text instead: `hyoshi top | cat`")
    })?;
    let mut seen = 0;
    while !interrupt.requested() {
        let news = match samples.try_recv() {
            Ok(looked) => {
                seen += 1;
                view.take(looked);
                true
            }
            Err(TryRecvError::Empty) => false,
            Err(TryRecvError::Disconnected) => {
                return Err(CliError::new("the thread that queries the broker has ended"));
            }
        };
        match &mut screen {
            Some(screen) => {
                if !screen.keys(KEYS, &wake, &clock).into_iter().all(|key| view.key(key)) {
                    break;
                }
                let shown = screen.show(&view);
                shown.map_err(|error| CliError::new(format_args!("cannot draw on the terminal: {error}")))?;
            }
            // The use of CPUs needs two samples.
            None if news && seen > 1 => {
                print(&view, top.once, format)?;
                if top.once {
                    break;
                }
            }
            None => drop(wake.wait_until(&clock, clock.now() + KEYS)),
        }
    }
    Ok(VerbOutcome::of(!top.once || view.is_there()))
}

/// Samples the broker at intervals, and sends the samples.
fn samples(client: BrokerClient, clock: MonotonicClock, every: Span) -> Receiver<BrokerSample> {
    // A slow receiver sees fewer samples.
    let (send, samples) = sync_channel(1);
    std::thread::spawn(move || {
        loop {
            let broker = client.broker();
            let seen =
                broker.status().map_err(BrokerClientError::from).and_then(|status| Ok((status, client.tasks()?)));
            let seen = seen.map_err(|error| error.to_string());
            let at = clock.now();
            if send.send(BrokerSample { at, seen }).is_err() {
                return;
            }
            clock.sleep_until(at + every);
        }
    });
    samples
}

/// Prints a sample outside of a terminal.
fn print(view: &View, once: bool, format: Format) -> Result<(), CliError> {
    if format == Format::Text {
        let end = if once { "" } else { "\n" };
        return streams::out(format_args!("{}{end}", view.text(TerminalStyle::of_stdout(), None)));
    }
    let mut answer = json!({ "hyoshi": head("top"), "at": view.place() });
    match view.seen() {
        Ok((status, tasks)) => {
            let tasks = tasks.iter().map(|using| {
                let mut task = task_json(&using.task);
                task["cpu_millionths"] = json!(using.cpu);
                task
            });
            answer["broker"] = status_json(status);
            answer["tasks"] = tasks.collect();
        }
        Err(why) => answer["errors"] = json!([{ "message": why, "help": null }]),
    }
    match once {
        true => streams::out(format_args!("{answer:#}\n")),
        // One object per line, for readers of a stream.
        false => streams::out(format_args!("{answer}\n")),
    }
}
