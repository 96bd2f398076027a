//! `hyoshi proxy`: a transparent proxy in front of a CORBA object, for programs that cannot be rebuilt.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use hyoshi_orb::behaviour::{Behaviour, OperationDelegate};
use hyoshi_orb::proxy::{IiopProxy, IiopProxyReport, ProxyError, ProxyLimits, ProxySettings};
use hyoshi_orb::{Ior, Object, Orb};
use hyoshi_os::{Interrupt, Wake};
use hyoshi_report::terminal::TerminalStyle;
use hyoshi_report::terminal::grid::{CellValue, Column, Tone, column, grid};
use hyoshi_wire::ior::ObjectUrl;
use serde_json::{Value as Json, json};

use super::{CliError, Format, VerbOutcome, head, naming, streams};

/// The behaviour's name for all other operations.
const OTHERS: &str = "*";
/// Connections of clients at most, two threads each.
const MOST_CONNECTIONS: usize = 10_000;

#[derive(Debug, Args)]
#[command(after_help = "Clients use the printed reference in place of the server's:\n  \
                  hyoshi proxy --to file:server.ior --ior proxy.ior\n  \
                  hyoshi proxy --to corbaloc:iiop:1.2@10.0.0.7:2809/Tracker --listen 0.0.0.0:2810\n\
                  Behaviours of operations; * means all other operations:\n  \
                  --operation locate=delay:5ms --operation map=cached:500ms --operation log=thin:10Hz\n  \
                  --operation reset=refuse:NO_PERMISSION --operation place=redirect:file:spare.ior\n  \
                  --operation steer=mark:EF --operation '*=thin:1/4'\n\
                  On Ctrl-C the proxy prints counts and latency.")]
pub(super) struct Arguments {
    /// The object: IOR:..., corbaloc:..., corbaname:..., or a file that holds one
    #[arg(long, value_name = "REFERENCE|FILE|-")]
    to: String,
    /// Where clients connect; port 0 means any free port. If the server forwards clients, more ports of this address are
    /// used
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    listen: String,
    /// The host in the proxy's references, if clients use another name for it
    #[arg(long, value_name = "HOST")]
    advertise: Option<String>,
    /// Write the proxy's reference to this file
    #[arg(long, value_name = "FILE")]
    ior: Option<PathBuf>,
    /// The behaviour of an operation; repeatable: pass, refuse[:EXCEPTION], redirect:REFERENCE, thin:1/N,
    /// thin:RATE, delay:TIME, mark:DSCP, cached:TIME
    #[arg(long = "operation", value_name = "NAME=BEHAVIOUR", value_parser = operation)]
    operations: Vec<(String, Behaviour)>,
    /// Maximum number of client connections
    #[arg(long, value_name = "COUNT", default_value_t = ProxyLimits::default().connections)]
    connections: usize,
}

fn operation(text: &str) -> Result<(String, Behaviour), String> {
    let (name, behaviour) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or("write NAME=BEHAVIOUR, such as locate=delay:5ms")?;
    Ok((name.to_owned(), behaviour.parse()?))
}

const OPERATIONS: [Column; 13] = [
    column("operation"),
    column("behaviour"),
    column("requests"),
    column("per s").spare(2),
    column("passed"),
    column("failed").if_any(),
    column("cancelled").if_any().spare(3),
    column("refused").if_any(),
    column("dropped").if_any(),
    column("cached").if_any(),
    column("median"),
    column("99 %").spare(1),
    column("longest"),
];

pub(super) fn proxy(arguments: &Arguments, format: Format) -> Result<VerbOutcome, CliError> {
    // First: a signal may arrive at any time.
    let ended = Arc::new(Wake::new());
    let interrupt = Interrupt::on_signals(ended.clone())
        .map_err(|error| CliError::new(format!("cannot listen for signals: {error}")))?;
    let proxy = start(arguments, format)?;
    let reference = proxy.ior().to_string();
    if let Some(path) = &arguments.ior {
        naming::write(path, &reference)?;
    }
    match format {
        Format::Text => streams::out(format_args!("{reference}\n"))?,
        Format::Json => {
            let line = json!({ "hyoshi": head("proxy"), "ior": reference });
            streams::out(format_args!("{line}\n"))?;
        }
    }
    while !interrupt.requested() {
        ended.wait();
    }
    let report = proxy.report();
    drop(proxy);
    match format {
        Format::Text => streams::out(text(&report))?,
        Format::Json => streams::out(format_args!("{}\n", document(&report)))?,
    }
    Ok(VerbOutcome::Success)
}

fn start(arguments: &Arguments, format: Format) -> Result<IiopProxy, CliError> {
    let orb = Orb::client().map_err(|error| CliError::new(format!("cannot start the ORB: {error}")))?;
    let target = resolve(&orb, &arguments.to, format)?;
    let mut others = Behaviour::Pass;
    let mut behaviours: Vec<(String, Behaviour)> = Vec::new();
    let mut redirections = Vec::new();
    for (name, behaviour) in &arguments.operations {
        if let Behaviour::Redirect(to) = behaviour {
            redirections.push((to.clone(), resolve(&orb, to, format)?));
        }
        if behaviours.iter().any(|(known, _)| known == name) {
            return Err(CliError::new(format!("--operation {name}=... is there twice"))
                .help("write one behaviour for each operation"));
        }
        if name == OTHERS {
            others = behaviour.clone();
        } else {
            behaviours.push((name.clone(), behaviour.clone()));
        }
    }
    if !(1..=MOST_CONNECTIONS).contains(&arguments.connections) {
        return Err(CliError::new(format!("--connections {} is out of range", arguments.connections))
            .help(format!("write 1 to {MOST_CONNECTIONS}")));
    }
    let listen = match arguments.listen.contains("://") {
        true => arguments.listen.clone(),
        false => format!("iiop://{}", arguments.listen),
    };
    let advertise = arguments.advertise.clone();
    let limits = ProxyLimits { connections: arguments.connections, ..ProxyLimits::default() };
    let settings =
        ProxySettings { listen, advertise, behaviours, others, redirections, limits, ..ProxySettings::default() };
    // Each connection has two sockets.
    hyoshi_os::raise_file_limit();
    IiopProxy::start(&target, settings).map_err(|error| {
        let failure = CliError::new(&error);
        match error {
            ProxyError::Listen(_) => {
                failure.help("another program may use this address; choose one with --listen HOST:PORT")
            }
            ProxyError::Unreachable(_) => {
                failure.help("make the server listen on plain TCP too; the proxy does not support TLS")
            }
            ProxyError::Endpoint(_) | ProxyError::NotTcp(_) => failure.help("write --listen HOST:PORT"),
            _ => failure,
        }
    })
}

fn resolve(orb: &Orb, from: &str, format: Format) -> Result<Ior, CliError> {
    let text = super::ior::text(from)?;
    let text = text.trim();
    if let Err(error) = text.parse::<ObjectUrl>() {
        return Err(super::ior::refusal(text, &error, format));
    }
    let object = orb.resolve_unchecked::<dyn Object>(text);
    let object = object.map_err(|raised| CliError::new(format!("cannot resolve `{text}`: {raised}")))?;
    Ok(object.as_ref().ior().clone())
}

fn text(report: &IiopProxyReport) -> String {
    let look = TerminalStyle::of_stdout();
    let rows: Vec<_> = report.delegates.iter().map(row).collect();
    let mut text = match rows.is_empty() {
        true => "no requests\n".to_owned(),
        false => grid(look, &OPERATIONS, &rows, usize::MAX),
    };
    let counts = [
        (report.clients, "client connections"),
        (report.displaced, "client connections closed above --connections"),
        (report.located, "LocateRequests"),
        (report.forwarded, "forwarding replies to another server, through the proxy"),
        (report.bypassed, "forwarding replies past the proxy"),
        (report.unreached, "failed attempts to connect to a server"),
        (report.lost, "lost connections with waiting requests"),
    ];
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{}", look.wrap(&format!("{count} {what}\n")));
    }
    text
}

fn row(delegate: &OperationDelegate) -> Vec<CellValue> {
    let measured = delegate.measured();
    let quantile = |quantile| CellValue::time_if_known(measured.latency.quantile(quantile).map(|span| span.as_nanos()));
    let count = |count| CellValue::Count(count, Tone::Plain);
    vec![
        CellValue::words(hyoshi_model::printable(delegate.name())),
        CellValue::words(hyoshi_model::printable(&delegate.behaviour().to_string())),
        count(measured.requests),
        CellValue::figure(measured.rate().map_or_else(String::new, |rate| format!("{rate:.1}"))),
        count(measured.passed),
        count(measured.failed),
        count(measured.cancelled),
        count(measured.refused),
        count(measured.dropped),
        count(measured.cached),
        quantile(0.5),
        quantile(0.99),
        quantile(1.0),
    ]
}

fn document(report: &IiopProxyReport) -> Json {
    let operations: Vec<_> = report.delegates.iter().map(operation_json).collect();
    json!({
        "hyoshi": head("proxy"),
        "duration_ns": report.span.as_nanos(),
        "operations": operations,
        "clients": report.clients,
        "clients_displaced": report.displaced,
        "clients_open": report.open,
        "locate_requests": report.located,
        "forwarded": report.forwarded,
        "forwarded_past": report.bypassed,
        "connects_failed": report.unreached,
        "connections_lost": report.lost,
    })
}

fn operation_json(delegate: &OperationDelegate) -> Json {
    let measured = delegate.measured();
    let extent = measured.latency.extent();
    let nanos = |span: Option<hyoshi_model::Span>| span.map(|span| span.as_nanos());
    json!({
        "operation": delegate.name(),
        "behaviour": delegate.behaviour().to_string(),
        "requests": measured.requests,
        "passed": measured.passed,
        "failed": measured.failed,
        "cancelled": measured.cancelled,
        "refused": measured.refused,
        "dropped": measured.dropped,
        "cached": measured.cached,
        "rate_hz": measured.rate(),
        "latency": {
            "count": extent.count(),
            "min_ns": nanos(extent.least()),
            "mean_ns": nanos(extent.mean()),
            "p50_ns": nanos(measured.latency.quantile(0.5)),
            "p99_ns": nanos(measured.latency.quantile(0.99)),
            "max_ns": nanos(extent.most()),
        },
    })
}
