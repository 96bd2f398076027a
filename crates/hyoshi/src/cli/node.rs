//! `hyoshi node`: lists the nodes on this machine, shows the state of one, admits operations, or stops it.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use hyoshi_model::{Span, printable_lines};
use hyoshi_node::idl::hyoshi_node::{
    AdmissionRefused, AdmitError, AdmittedOperation, NodeStanding, OutputCounts, PeerStanding, WithdrawError,
};
use hyoshi_node::{ClientError, NodeClient, folder, sockets};
use hyoshi_orb::{Orb, SystemException, minor};
use hyoshi_os::file::own_user;
use hyoshi_os::users;
use hyoshi_report::figures::{hertz, percent, time};
use hyoshi_report::terminal::TerminalStyle;
use hyoshi_report::terminal::grid::{CellValue, Column, Tone, column, grid};
use serde_json::{Value as Json, json};

use super::answer::{OutputTable, OutputText, VerbOutput};
use super::tls::TlsPapers;
use super::{CliError, Format, VerbOutcome};

/// The node that a verb asks.
#[derive(Debug, Args)]
pub(super) struct NodeAddress {
    /// The node at this address: unix:/PATH, or ssliop://HOST:PORT on another machine [default: the only node on this
    /// machine]
    #[arg(long, value_name = "ADDRESS", global = true)]
    at: Option<String>,
    #[command(flatten)]
    tls: TlsPapers,
}

#[derive(Debug, Args)]
#[command(after_help = "`hyoshi run FILE` runs all hosts in one node, `hyoshi run FILE --host NAME` only one:\n  \
                  hyoshi node list\n  \
                  hyoshi node show\n  \
                  hyoshi node admit track\n  \
                  hyoshi node stop --at ssliop://10.0.0.2:7447 --tls-roots plant.pem --tls-cert ann.pem")]
pub(super) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    node: NodeAddress,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List this user's nodes on this machine
    List,
    /// Show the state of a node, and its view of the other hosts
    Show,
    /// Admit an operation with `standby = true`: it releases jobs if the feedback loop of its processor accepts it
    Admit {
        /// The operation in the file of the run
        operation: String,
    },
    /// Withdraw an admitted operation: it releases no more jobs
    Withdraw {
        /// The operation in the file of the run
        operation: String,
    },
    /// End a node's run, as SIGTERM does
    Stop,
}

impl Arguments {
    /// The name of the verb.
    pub fn name(&self) -> &'static str {
        match self.verb {
            Verb::List => "node list",
            Verb::Show => "node show",
            Verb::Admit { .. } => "node admit",
            Verb::Withdraw { .. } => "node withdraw",
            Verb::Stop => "node stop",
        }
    }
}

const NODES: [Column; 6] = [
    column("system"),
    column("host"),
    column("process").spare(1),
    column("running"),
    column("peers").spare(2),
    column("address"),
];

const PEERS: [Column; 7] = [
    column("host"),
    column("state"),
    column("clock ahead"),
    column("error"),
    column("sent"),
    column("received"),
    column("lost"),
];

const OUTPUTS: [Column; 7] = [
    column("host"),
    column("outputs flushed"),
    column("late, not flushed"),
    column("not sent"),
    column("flushed late by"),
    column("at most"),
    column("received"),
];

pub(super) fn node(arguments: &Arguments, format: Format) -> Result<VerbOutcome, CliError> {
    match (&arguments.verb, &arguments.node.at) {
        (Verb::List, Some(_)) => Err(CliError::new("`node list` lists the nodes of this machine")
            .help("`hyoshi node show --at ADDRESS` shows a node of another machine")),
        (Verb::List, None) => list(&arguments.node)?.print(arguments.name(), format),
        (Verb::Show, _) => {
            let (client, at) = find(&arguments.node)?;
            let standing = client.standing().map_err(|raised| failed(&at, raised))?;
            show(&standing, &at).print(arguments.name(), format)
        }
        (Verb::Admit { operation }, _) => {
            let (client, at) = find(&arguments.node)?;
            let admitted = client.admit(operation).map_err(|error| match error {
                AdmitError::AdmissionRefused(why) => refused(&why),
                AdmitError::System(raised) => failed(&at, raised),
            })?;
            let AdmittedOperation { period, note } = admitted;
            let because = if note.is_empty() { "its highest rate".to_owned() } else { format!("a lower rate: {note}") };
            let json = json!({
                "admitted": operation, "period_ns": period, "reason": (!note.is_empty()).then_some(&note), "at": at,
            });
            let text = format!("admitted {operation} with {}, {because}\n", hertz(period));
            VerbOutput { text: OutputText::Lines(text), json }.print(arguments.name(), format)
        }
        (Verb::Withdraw { operation }, _) => {
            let (client, at) = find(&arguments.node)?;
            client.withdraw(operation).map_err(|error| match error {
                WithdrawError::AdmissionRefused(why) => refused(&why),
                WithdrawError::System(raised) => failed(&at, raised),
            })?;
            let text = format!("withdrew {operation}: it releases no more jobs\n");
            VerbOutput { text: OutputText::Lines(text), json: json!({ "withdrawn": operation, "at": at }) }
                .print(arguments.name(), format)
        }
        (Verb::Stop, _) => {
            let (client, at) = find(&arguments.node)?;
            let standing = client.standing().map_err(|raised| failed(&at, raised))?;
            client.stop().map_err(|raised| failed(&at, raised))?;
            let text =
                format!("stopping {}, host {}, process {}\n", standing.system, host(&standing), standing.process);
            VerbOutput { text: OutputText::Lines(text), json: json!({ "stopped": at }) }.print(arguments.name(), format)
        }
    }
}

/// The nodes of this user that answer. The socket of a killed node remains, but does not answer.
pub(super) fn here(arguments: &NodeAddress) -> Result<Vec<(PathBuf, NodeStanding)>, CliError> {
    let folder = folder().ok_or_else(|| {
        CliError::new("no directory of nodes: XDG_RUNTIME_DIR is not set").help("--at unix:/PATH names a node's socket")
    })?;
    let found = sockets(&folder).map_err(|error| {
        CliError::new(format_args!("cannot read the directory of nodes {}: {error}", folder.display()))
            .help("--at unix:/PATH names a node's socket")
    })?;
    let mut nodes = Vec::new();
    for socket in found {
        let client = connect(arguments, &format!("unix:{}", socket.display()))?;
        if let Ok(standing) = client.standing() {
            nodes.push((socket, standing));
        }
    }
    Ok(nodes)
}

pub(super) fn connect(arguments: &NodeAddress, at: &str) -> Result<NodeClient, CliError> {
    let builder = arguments.tls.client(Orb::builder())?;
    NodeClient::new(builder, at).map_err(|error| CliError::new(&error).help(error.remedy()))
}

impl NodeAddress {
    /// The node that the caller names.
    pub fn named(&self) -> Option<&str> {
        self.at.as_deref()
    }
}

/// The selected node.
pub(super) fn find(arguments: &NodeAddress) -> Result<(NodeClient, String), CliError> {
    let at = match &arguments.at {
        Some(at) => at.clone(),
        None => {
            let nodes = here(arguments)?;
            match &nodes[..] {
                [(socket, _)] => format!("unix:{}", socket.display()),
                [] => {
                    return Err(CliError::new("no node of this user runs here")
                        .help("`hyoshi run FILE` starts one; --at ADDRESS names another"));
                }
                several => {
                    let all = several.iter().map(|(socket, _)| format!("unix:{}", socket.display()));
                    return Err(CliError::new(format_args!("{} nodes run here", several.len()))
                        .help(format!("--at ADDRESS names one: {}", all.collect::<Vec<_>>().join(", "))));
                }
            }
        }
    };
    Ok((connect(arguments, &at)?, at))
}

pub(super) fn failed(at: &str, exception: SystemException) -> CliError {
    if let Some(owner) = other_owner(at) {
        let owner = users::name_of(owner);
        return CliError::new(format!("permission denied: the node at {at} belongs to user {owner}"))
            .help(format!("run the command as {owner} or root"));
    }
    let help = super::tls::help(&exception).filter(|_| exception.minor != minor::BROKER_NAME);
    let error = ClientError::System { at: at.to_owned(), exception };
    CliError::new(&error).help(help.unwrap_or(error.remedy()))
}

/// The owner of a node's Unix socket, if it is another user than that of this process, who is not root.
fn other_owner(at: &str) -> Option<u32> {
    let owner = fs::symlink_metadata(at.strip_prefix("unix:")?).ok()?.uid();
    let own = own_user();
    (own != 0 && owner != own).then_some(owner)
}

fn refused(refused: &AdmissionRefused) -> CliError {
    CliError::new(&refused.why).help(&refused.remedy)
}

fn list(arguments: &NodeAddress) -> Result<VerbOutput, CliError> {
    let nodes = here(arguments)?;
    let row = |(socket, node): &(PathBuf, NodeStanding)| {
        let joined = node.peers.iter().filter(|peer| peer.state == "joined").count();
        vec![
            CellValue::words(&node.system),
            CellValue::words(host(node)),
            CellValue::Count(node.process.into(), Tone::Plain),
            CellValue::words(running(node)),
            CellValue::words(if node.peers.is_empty() {
                String::new()
            } else {
                format!("{joined} of {} joined", node.peers.len())
            }),
            CellValue::words(format!("unix:{}", socket.display())),
        ]
    };
    let rows = nodes.iter().map(row).collect();
    let empty = "no nodes: `hyoshi run FILE` starts one\n";
    let json = nodes.iter().map(|(socket, node)| node_json(node, socket)).collect::<Vec<_>>();
    Ok(VerbOutput {
        text: OutputText::Table(OutputTable { columns: &NODES, rows, empty }),
        json: json!({ "nodes": json }),
    })
}

/// Its host, or that it runs all.
fn host(node: &NodeStanding) -> String {
    if node.host.is_empty() { "all".to_owned() } else { node.host.clone() }
}

fn running(node: &NodeStanding) -> String {
    let (running, duration) = (Span::from_nanos(node.running), Span::from_nanos(node.duration));
    match (node.gathering, node.host.is_empty()) {
        (false, _) => format!("{} of {}", time(running), time(duration)),
        (true, false) => "waits for hosts".to_owned(),
        (true, true) => "starts".to_owned(),
    }
}

/// The utilisation of its machine.
fn machine(node: &NodeStanding) -> String {
    format!("{} of all CPUs used", percent(node.utilisation.into()))
}

fn show(node: &NodeStanding, at: &str) -> VerbOutput {
    let mut text = String::new();
    let run: String = node.run.iter().map(|octet| format!("{octet:02x}")).collect();
    for (what, value) in [
        ("system", node.system.clone()),
        ("host", host(node)),
        ("process", node.process.to_string()),
        ("processors", node.processors.join(", ")),
        ("running", running(node)),
        ("machine", machine(node)),
        ("run", if node.gathering { "not agreed".to_owned() } else { run }),
        ("at", at.to_owned()),
        ("strangers", format!("{} calls refused", node.refused)),
    ] {
        if what == "strangers" && node.refused == 0 || what == "machine" && !node.measured {
            continue;
        }
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{what:<12}{value}");
    }
    let look = TerminalStyle::of_stdout();
    let printed = |text: &str| look.wrap(&printable_lines(text));
    let mut text = printed(&text);
    let rows: Vec<Vec<CellValue>> = node.peers.iter().map(peer_row).collect();
    if !rows.is_empty() {
        text.push('\n');
        text += &grid(look, &PEERS, &rows, usize::MAX);
        let exchanged = |peer: &&PeerStanding| exchanges_outputs(peer);
        let outputs: Vec<Vec<CellValue>> = node.peers.iter().filter(exchanged).map(output_row).collect();
        if !outputs.is_empty() {
            text.push('\n');
            text += &grid(look, &OUTPUTS, &outputs, usize::MAX);
        }
        for peer in node
            .peers
            .iter()
            .filter(|peer| !["joined", "waiting"].contains(&peer.state.as_str()) && !peer.because.is_empty())
        {
            let since = Span::from_nanos(peer.since);
            text += &printed(&format!("\n{} ({} for {}): {}\n", peer.host, peer.state, time(since), peer.because));
        }
    }
    VerbOutput { text: OutputText::Styled(text), json: json!({ "node": node_json(node, Path::new(at)) }) }
}

fn peer_row(peer: &PeerStanding) -> Vec<CellValue> {
    let known = |time: CellValue| if peer.compared { time } else { CellValue::figure("") };
    vec![
        CellValue::words(&peer.host),
        CellValue::words(&peer.state),
        known(CellValue::signed_time(peer.offset)),
        known(CellValue::time(peer.error)),
        CellValue::Count(peer.sent, Tone::Plain),
        CellValue::Count(peer.received, Tone::Plain),
        CellValue::Count(peer.unsent + peer.unconfirmed + peer.missing + peer.rejected, Tone::Plain),
    ]
}

/// Whether there were outputs for replicas on either side.
fn exchanges_outputs(peer: &PeerStanding) -> bool {
    let OutputCounts { flushed, unsent, late, received, .. } = peer.outputs;
    flushed + unsent + late + received > 0
}

fn output_row(peer: &PeerStanding) -> Vec<CellValue> {
    let OutputCounts { flushed, unsent, late, latest, lateness, received } = peer.outputs;
    let time = |nanos: u64| if flushed > 0 { CellValue::time(nanos) } else { CellValue::figure("") };
    vec![
        CellValue::words(&peer.host),
        CellValue::Count(flushed, Tone::Plain),
        CellValue::Count(late, Tone::Plain),
        CellValue::Count(unsent, Tone::Plain),
        time(lateness / flushed.max(1)),
        time(latest),
        CellValue::Count(received, Tone::Plain),
    ]
}

fn node_json(node: &NodeStanding, at: &Path) -> Json {
    let peers: Vec<Json> = node.peers.iter().map(peer_json).collect();
    json!({
        "system": node.system,
        "host": (!node.host.is_empty()).then_some(&node.host),
        "process": node.process,
        "processors": node.processors,
        "gathering": node.gathering,
        "running_ns": node.running,
        "duration_ns": node.duration,
        "refused_calls": node.refused,
        "machine_utilisation_ppm": node.measured.then_some(node.utilisation),
        "at": at,
        "peers": peers,
    })
}

fn outputs_json(outputs: &OutputCounts) -> Json {
    let OutputCounts { flushed, unsent, late, latest, lateness, received } = outputs;
    json!({
        "flushed": flushed,
        "unsent": unsent,
        "late": late,
        "lateness_mean_ns": (*flushed > 0).then(|| lateness / flushed),
        "lateness_most_ns": (*flushed > 0).then_some(latest),
        "received": received,
    })
}

fn peer_json(peer: &PeerStanding) -> Json {
    json!({
        "host": peer.host,
        "state": peer.state,
        "because": peer.because,
        "since_ns": peer.since,
        "clock_ahead_ns": peer.compared.then_some(peer.offset),
        "clock_error_ns": peer.compared.then_some(peer.error),
        "sent": peer.sent,
        "unsent": peer.unsent,
        "unconfirmed": peer.unconfirmed,
        "missing": peer.missing,
        "received": peer.received,
        "rejected": peer.rejected,
        "outputs": outputs_json(&peer.outputs),
        "joined": peer.joined,
    })
}
