//! `hyoshi events`: lists, watches and publishes events of a running system.

mod paced;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use clap::{Args, Subcommand};
use hyoshi_model::{Span, printable, printable_lines};
use hyoshi_node::NodeClient;
use hyoshi_node::idl::hyoshi_node::{EventRefused, EventState, PublishError, PushedEvent, SubscribeError, TakeError};
use hyoshi_orb::SystemKind;
use hyoshi_report::figures::time;
use hyoshi_report::terminal::TerminalStyle;
use hyoshi_report::terminal::grid::{CellValue, Column, Tone, column};
use serde_json::{Value as Json, json};

use super::answer::{OutputTable, OutputText, VerbOutput};
use super::node::{NodeAddress, failed, find};
use super::{CliError, Format, VerbOutcome, head, streams};

#[derive(Debug, Args)]
#[command(after_help = "While a system with [event.NAME] in its file runs, in another terminal:\n  \
                  hyoshi events list\n  \
                  hyoshi events watch 'sensor/**'\n  \
                  hyoshi events publish sensor/gps --text '48.1N 11.5E'\n  \
                  hyoshi events publish sensor/gps --rate 1Hz..20Hz --text '48.1N 11.5E'\n\
                  `*` matches one part of a name, `**` any number of parts.")]
pub(super) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    node: NodeAddress,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the events of the file, with the last push on this node
    List,
    /// Print events as they are pushed
    Watch {
        /// Names or patterns
        #[arg(value_name = "EVENT", default_value = "**")]
        events: Vec<String>,
        /// Exit after this many events
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
        count: Option<u64>,
    },
    /// Publish an event; one of its suppliers needs `called = true`
    Publish {
        /// Its name
        #[arg(value_name = "EVENT")]
        event: String,
        #[command(flatten)]
        payload: PayloadSource,
        /// Publish repeatedly within this range of rates, such as 1Hz..20Hz; a feedback loop sets the rate
        #[arg(long, value_name = "LOWEST..HIGHEST", value_parser = paced::rates)]
        rate: Option<paced::RateRange>,
        /// Exit after this many publications
        #[arg(long, value_name = "COUNT", requires = "rate", value_parser = clap::value_parser!(u64).range(1..))]
        count: Option<u64>,
    },
}

/// The payload of a publication: at most one source.
#[derive(Debug, Args)]
#[group(multiple = false)]
struct PayloadSource {
    /// The payload, as UTF-8
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// The payload, in hexadecimal digits
    #[arg(long, value_name = "DIGITS", value_parser = hex)]
    hex: Option<HexOctets>,
    /// Read the payload from this file; - for standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Clone, Debug)]
struct HexOctets(Vec<u8>);

fn hex(text: &str) -> Result<HexOctets, String> {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    if digits.len() != text.chars().count() || digits.len() % 2 == 1 {
        return Err("write two hexadecimal digits for each byte, such as 00ff".to_owned());
    }
    Ok(HexOctets(digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()))
}

/// The longest payload of an event.
const MOST: u64 = 64 << 10;

impl PayloadSource {
    fn read(&self) -> Result<Vec<u8>, CliError> {
        let read = |from: &mut dyn Read, name: &Path| {
            let mut octets = Vec::new();
            let read = from.take(MOST + 1).read_to_end(&mut octets);
            read.map_err(|error| CliError::new(format_args!("cannot read {}: {error}", name.display())))?;
            Ok(octets)
        };
        let octets = match self {
            PayloadSource { text: Some(text), .. } => text.clone().into_bytes(),
            PayloadSource { hex: Some(HexOctets(octets)), .. } => octets.clone(),
            PayloadSource { file: Some(path), .. } if path.as_os_str() == "-" => {
                read(&mut std::io::stdin(), Path::new("standard input"))?
            }
            PayloadSource { file: Some(path), .. } => {
                let file = std::fs::File::open(path);
                let file = file.map_err(|error| CliError::new(format_args!("cannot open {}: {error}", path.display())));
                read(&mut file?, path)?
            }
            _ => Vec::new(),
        };
        if octets.len() as u64 > MOST {
            return Err(CliError::new("the payload is longer than 64 KiB").help("publish a reference to the data"));
        }
        Ok(octets)
    }
}

impl Arguments {
    /// The name of the verb.
    pub fn name(&self) -> &'static str {
        match self.verb {
            Verb::List => "events list",
            Verb::Watch { .. } => "events watch",
            Verb::Publish { .. } => "events publish",
        }
    }
}

const EVENTS: [Column; 8] = [
    column("event"),
    column("suppliers").spare(1),
    column("consumers").spare(3),
    column("pushed"),
    column("late"),
    column("since last"),
    column("lateness"),
    column("publish").spare(2),
];

pub(super) fn events(arguments: &Arguments, format: Format) -> Result<VerbOutcome, CliError> {
    let (client, at) = find(&arguments.node)?;
    match &arguments.verb {
        Verb::List => {
            let events = client.events().map_err(|raised| failed(&at, raised))?;
            let rows = events.iter().map(row).collect();
            let empty = "no events: declare some with [event.NAME]\n";
            let json = events.iter().map(state_json).collect::<Vec<_>>();
            let text = OutputText::Table(OutputTable { columns: &EVENTS, rows, empty });
            VerbOutput { text, json: json!({ "events": json }) }.print(arguments.name(), format)
        }
        Verb::Watch { events, count } => watch(&client, &at, events, count.unwrap_or(u64::MAX), format),
        Verb::Publish { event, payload, rate: Some(range), count } => {
            let bounds = (*range, count.unwrap_or(u64::MAX));
            paced::publish_at_rate((&client, &at), (event, &payload.read()?), bounds, format)
        }
        Verb::Publish { event, payload, .. } => {
            client.publish(event, &payload.read()?).map_err(|error| match error {
                PublishError::EventRefused(why) => refused(&why),
                PublishError::System(raised) => failed(&at, raised),
            })?;
            VerbOutput { text: OutputText::Nothing, json: json!({ "published": event }) }
                .print(arguments.name(), format)
        }
    }
}

fn refused(refused: &EventRefused) -> CliError {
    CliError::new(&refused.why).help(&refused.remedy)
}

fn row(event: &EventState) -> Vec<CellValue> {
    let known = |cell: CellValue| if event.was_pushed { cell } else { CellValue::figure("") };
    vec![
        CellValue::words(&event.name),
        CellValue::words(event.suppliers.join(", ")),
        CellValue::Count(event.consumers.into(), Tone::Plain),
        CellValue::Count(event.pushed, Tone::Plain),
        CellValue::Count(event.late, if event.late > 0 { Tone::Bad } else { Tone::Plain }),
        known(CellValue::time(event.since)),
        known(CellValue::signed_time(event.lateness)),
        CellValue::words(if event.open { "yes" } else { "" }),
    ]
}

fn state_json(event: &EventState) -> Json {
    json!({
        "event": event.name,
        "suppliers_here": event.suppliers,
        "consumers": event.consumers,
        "payload_bytes": event.payload,
        "open": event.open,
        "pushed": event.pushed,
        "late": event.late,
        "lost": event.lost,
        "since_ns": event.was_pushed.then_some(event.since),
        "lateness_ns": event.was_pushed.then_some(event.lateness),
    })
}

/// The time between two requests for further events.
const POLL: Duration = Duration::from_millis(20);

fn watch(
    client: &NodeClient,
    at: &str,
    patterns: &[String],
    mut left: u64,
    format: Format,
) -> Result<VerbOutcome, CliError> {
    let subscription = client.subscribe(patterns).map_err(|error| match error {
        SubscribeError::EventRefused(why) => refused(&why),
        SubscribeError::System(raised) => failed(at, raised),
    })?;
    let mut lost = 0;
    loop {
        let batch = match client.take(subscription) {
            Ok(batch) => batch,
            Err(TakeError::EventRefused(why)) => return Err(refused(&why)),
            // The node answered before, so the run has ended.
            Err(TakeError::System(raised))
                if [SystemKind::Transient, SystemKind::CommFailure].contains(&raised.kind) =>
            {
                streams::err("the run has ended\n");
                return Ok(VerbOutcome::Success);
            }
            Err(TakeError::System(raised)) => return Err(failed(at, raised)),
        };
        for event in &batch.events {
            print(event, format)?;
            left -= 1;
            if left == 0 {
                return Ok(VerbOutcome::Success);
            }
        }
        if batch.lost > lost {
            streams::err(format_args!(
                "{} events lost: they were pushed faster than this command prints\n",
                batch.lost - lost
            ));
            lost = batch.lost;
        }
        if batch.events.is_empty() {
            sleep(POLL);
        }
    }
}

fn print(event: &PushedEvent, format: Format) -> Result<(), CliError> {
    if format == Format::Json {
        let line = json!({
            "hyoshi": head("events watch"),
            "event": event.name,
            "supplier": event.supplier,
            "number": event.number,
            "pushed_ns": event.pushed,
            "age_ns": event.age,
            "lateness_ns": event.lateness,
            "importance": event.importance,
            "critical": event.critical,
            "payload": event.payload,
        });
        return streams::out(format_args!("{line}\n"));
    }
    let span = |ns: u64| time(Span::from_nanos(ns));
    let late = match event.lateness {
        late @ 1.. => format!("{} late", span(late.unsigned_abs())),
        early => format!("{} early", span(early.unsigned_abs())),
    };
    let mut line = format!(
        "{:>9.3}s  {}  {} {}, age {}, {late}",
        event.pushed as f64 / 1e9,
        event.name,
        event.supplier,
        event.number,
        span(event.age)
    );
    if !event.payload.is_empty() {
        line += &format!(", {}", shown(&event.payload));
    }
    streams::out(TerminalStyle::of_stdout().wrap(&printable_lines(&format!("{line}\n"))))
}

/// A payload as text if it is text, otherwise in hexadecimal digits; truncated.
fn shown(payload: &[u8]) -> String {
    const LETTERS: usize = 60;
    match std::str::from_utf8(payload) {
        Ok(text) if text.chars().all(|letter| !letter.is_control()) => {
            let short: String = text.chars().take(LETTERS).collect();
            let more = if short.len() < text.len() { "..." } else { "" };
            format!("\"{}\"{more}", printable(&short))
        }
        _ => {
            let short: String = payload.iter().take(LETTERS / 3).map(|octet| format!("{octet:02x}")).collect();
            let more = if payload.len() > LETTERS / 3 { "..." } else { "" };
            format!("{} bytes {short}{more}", payload.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_shown_as_text_or_in_hexadecimal_digits() {
        assert_eq!(shown(b"48.1N"), "\"48.1N\"");
        assert_eq!(shown(&[0, 255]), "2 bytes 00ff");
        assert_eq!(shown(b"a\x1b[1m"), "5 bytes 611b5b316d");
        assert_eq!(shown("ü".repeat(100).as_bytes()), format!("\"{}\"...", "ü".repeat(60)));
        assert!(shown(&[1; 100]).ends_with("..."));
    }

    #[test]
    fn hexadecimal_digits_are_pairs() {
        assert_eq!(hex("00fF").unwrap().0, [0, 255]);
        assert!(hex("0").is_err() && hex("0g").is_err() && hex("00 11").is_err());
    }
}
