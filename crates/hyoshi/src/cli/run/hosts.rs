//! Hosts of a run: one of them, whose node joins the nodes of the others, or all in this process.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use hyoshi_events::EventChannel;
use hyoshi_model::{Contents, Costs, Endpoint, Gateway, HostId, ProcessorId, Span, System, write};
use hyoshi_node::idl::hyoshi_node::{OutputCounts, PeerStanding};
use hyoshi_node::{
    Agreed, CompletionCarrier, ENDED, NodeError, NodePeers, NodeSettings, PeerEvent, ServingObjects, Tls, WholeSystem,
    folder,
};
use hyoshi_orb::{OrbError, TlsClient, TlsServer};
use hyoshi_os::{Hangup, Interrupt, MonotonicClock};
use hyoshi_report::figures::counted;
use hyoshi_report::{NoteLevel, ReportNote, TerminalStyle};
use hyoshi_runtime::{Prepared, RunHandles};

use super::network::HostNetwork;
use crate::cli::notes::note;
use crate::cli::tls::{NodeFiles, peers};
use crate::cli::{CliError, streams};

#[derive(Debug, Args)]
pub(in crate::cli) struct HostArguments {
    /// Run only the operations of this host; nodes of the other hosts run elsewhere, and join at their `endpoints`
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// How long to wait for the other hosts before the run begins without them
    #[arg(long, value_name = "SPAN", default_value = "30s", requires = "host", value_parser = wait)]
    wait: Span,
    /// Where `hyoshi node` reaches this run [default: a socket in the directory of this user's nodes]
    #[arg(long, value_name = "SOCKET", value_parser = control)]
    control: Option<PathBuf>,
    /// Over TLS, authenticate as this host with this certificate for the host's name (PEM, then its chain to the root)
    #[arg(long, value_name = "FILE", requires_all = ["host", "tls_roots"])]
    tls_cert: Option<PathBuf>,
    /// Its private key [default: in the certificate's file]
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Trust nodes and operators with a certificate from one of the authorities in this file (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_roots: Option<PathBuf>,
    /// Certificates for this name may stop the node; several with commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "tls_cert")]
    tls_operator: Vec<String>,
    /// Besides operators, only certificates for this name may read its state [default: all may]; several with commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "tls_cert")]
    tls_reader: Vec<String>,
}

fn wait(text: &str) -> Result<Span, String> {
    hyoshi_model::quantity::span(text).map_err(|error| format!("{text:?} {error}; {}", error.remedy(text)))
}

/// The absolute path of a control socket.
fn control(text: &str) -> Result<PathBuf, String> {
    std::path::absolute(text).map_err(|_| format!("{text:?} is empty; write the path of a socket, such as ./run.sock"))
}

/// A node that has joined the others.
pub(super) struct JoinedHost {
    peers: NodePeers,
    agreed: Agreed,
    /// The certificate of its endpoints.
    tls: Option<(TlsServer, TlsClient)>,
    /// Its files.
    #[cfg_attr(not(feature = "zenoh"), expect(dead_code, reason = "only Zenoh reads them itself"))]
    files: Option<NodeFiles>,
    /// Clock offsets are recorded under it.
    first: ProcessorId,
    /// Removed after the last packet.
    network: HostNetwork,
}

impl HostArguments {
    /// The host to run; `None` for all.
    pub fn host(&self, system: &System) -> Result<Option<HostId>, CliError> {
        let Some(name) = &self.host else { return Ok(None) };
        let at = system.hosts.iter().position(|host| host.name == *name);
        let Some(at) = at else {
            let known: Vec<&str> = system.hosts.iter().map(|host| host.name.as_str()).collect();
            return Err(CliError::new(format!("unknown host `{name}`"))
                .help(format!("the file has the hosts {}", known.join(", "))));
        };
        let host = HostId(at as u32);
        if !system.processors.iter().any(|processor| processor.host == host) {
            return Err(CliError::new(format!("host `{name}` has no processor: no operation runs there"))
                .help(format!("write `host = \"{name}\"` in a [processor.X]")));
        }
        Ok(Some(host))
    }

    /// Serves the control object of a run of all hosts. It is not worth the run: only a socket that the caller named
    /// must work.
    pub fn control(
        &self,
        system: &Arc<System>,
        (events, handles): (&EventChannel, &RunHandles),
        interrupt: Interrupt,
    ) -> Result<RunControl, CliError> {
        let events = Some(events.clone());
        let serve = |socket: &Path| {
            WholeSystem::serve(system.clone(), socket, events.clone(), handles.clone(), interrupt.clone())
        };
        if let Some(socket) = &self.control {
            let object = serve(socket).map_err(|error| match error {
                NodeError::Orb(_) | NodeError::Endpoint(_) => {
                    CliError::new(&error).help("another run may use it: name another socket with --control")
                }
                error => failed(error),
            })?;
            return Ok(RunControl { object: Some(object), unreachable: None });
        }
        let name = file_name(&system.name);
        let Some(socket) = default_socket(&name) else { return Ok(RunControl::default()) };
        let object = serve(&socket).or_else(|error| match error {
            // Another run of the same system.
            NodeError::Orb(OrbError::Listen { .. }) => {
                serve(&socket.with_file_name(format!("{name}+{}.sock", std::process::id())))
            }
            error => Err(error),
        });
        Ok(match object {
            Ok(object) => RunControl { object: Some(object), unreachable: None },
            Err(error) => {
                let text = format!("`hyoshi node` cannot reach this run: {error}");
                let remedy = error.remedy().unwrap_or_else(|| "--control SOCKET names another socket".to_owned());
                let unreachable = ReportNote { remedy: Some(remedy), ..note(NoteLevel::Info, "control", text) };
                RunControl { object: None, unreachable: Some(unreachable) }
            }
        })
    }

    /// Joins the nodes of the other hosts, and waits until instant 0 is agreed.
    pub fn join(
        &self,
        system: &Arc<System>,
        host: HostId,
        cpus: &[(ProcessorId, u32)],
        node: &mut Prepared,
        events: &EventChannel,
        (interrupt, strict): (Interrupt, bool),
    ) -> Result<JoinedHost, CliError> {
        let name = &system.hosts[host.index()].name;
        let of_hosts = system.hosts.iter().flat_map(|host| host.endpoints.iter().chain(host.over_zenoh()));
        let of_objects = system.objects.iter().flat_map(|object| &object.endpoints);
        let of_events = system.events.iter().flat_map(|event| &event.endpoints);
        let mut endpoints = of_hosts.chain(of_objects).chain(of_events);
        let uses_tls = endpoints.any(|one| matches!(one, Endpoint::Tls(_)))
            || system.hosts.iter().flat_map(|host| &host.gateway).any(Gateway::uses_tls);
        let mut files = None;
        let tls = match &self.tls_cert {
            Some(cert) if uses_tls => {
                let (server, client, renewal) = peers(cert, self.tls_key.as_ref(), self.tls_roots.as_ref())?;
                files = renewal.node_files()?;
                let hangup = Hangup::on_signal()
                    .map_err(|error| CliError::new(format_args!("cannot listen for signals: {error}")))?;
                renewal.start(hangup, |text| streams::err(format_args!("hyoshi run: {text}\n")))?;
                let readers = match &self.tls_reader[..] {
                    [] => None,
                    readers => Some(readers.iter().cloned().collect::<BTreeSet<_>>()),
                };
                Some(Tls { server, client, operators: self.tls_operator.iter().cloned().collect(), readers })
            }
            Some(_) => {
                return Err(CliError::new("no endpoint of the file uses TLS")
                    .help("write `endpoints = [\"tls/ADDRESS:PORT\"]`, or leave --tls-cert out"));
            }
            None => None,
        };
        let control = self
            .control
            .clone()
            .or_else(|| default_socket(&format!("{}.{}", file_name(&system.name), file_name(name))));
        let certificate = tls.as_ref().map(|tls| (tls.server.clone(), tls.client.clone()));
        let settings = NodeSettings {
            system: system.clone(),
            text: write(&without_costs(system)),
            host,
            wait: self.wait,
            cpu: cpus.first().map(|(_, cpu)| *cpu),
            tls,
            carrier: carrier(system, host, files.clone())?,
            control,
            events: Some(events.clone()),
            interrupt,
        };
        // First: no packet leaves without a class.
        let network = HostNetwork::set(&system.hosts[host.index()].network, strict)?;
        let peers = NodePeers::start(settings, node).map_err(failed)?;
        let awaited = system.hosts.iter().filter(|other| other.name != *name).map(|other| other.name.as_str());
        let awaited = awaited.collect::<Vec<_>>().join(", ");
        streams::err(format_args!("hyoshi run: host {name} waits for {awaited}, for at most {}\n", self.wait));
        let agreed = peers.agree(say).map_err(failed)?;
        let first = cpus.first().map_or(ProcessorId(0), |(processor, _)| *processor);
        Ok(JoinedHost { peers, agreed, tls: certificate, files, first, network })
    }
}

/// Carries completions over Zenoh, if a host of the file uses it.
#[cfg(feature = "zenoh")]
fn carrier(
    system: &Arc<System>,
    host: HostId,
    files: Option<NodeFiles>,
) -> Result<Option<Box<dyn CompletionCarrier>>, CliError> {
    let uses_it = system.hosts.iter().any(|host| host.over_zenoh().is_some());
    let tls = zenoh_tls(files.filter(|_| uses_it).as_ref())?;
    let carrier = hyoshi_zenoh::ZenohCarrier::new(system, host, tls);
    Ok(carrier.map(|carrier| Box::new(carrier) as Box<dyn CompletionCarrier>))
}

#[cfg(feature = "zenoh")]
fn zenoh_tls(files: Option<&NodeFiles>) -> Result<Option<hyoshi_zenoh::ZenohTls>, CliError> {
    let tls = files.map(|files| hyoshi_zenoh::ZenohTls::from_files(&files.certificate, &files.key, &files.roots));
    tls.transpose().map_err(|error| failed(NodeError::Carrier(error)))
}

#[cfg(not(feature = "zenoh"))]
fn carrier(_: &Arc<System>, _: HostId, _: Option<NodeFiles>) -> Result<Option<Box<dyn CompletionCarrier>>, CliError> {
    Ok(None)
}

pub(super) fn failed(error: NodeError) -> CliError {
    let remedy = error.remedy().or_else(|| match &error {
        NodeError::Socket { path, .. } => {
            let folder = path.parent().unwrap_or(path).display();
            Some(format!("make {folder} a directory that you may write to, or name another socket with --control"))
        }
        _ => None,
    });
    let failure = CliError::new(&error);
    match remedy {
        Some(remedy) => failure.help(remedy),
        None => failure,
    }
}

/// The control socket in the directory of this user's nodes; `None` without a directory.
fn default_socket(name: &str) -> Option<PathBuf> {
    Some(folder()?.join(format!("{name}.sock")))
}

/// The control object of a run of all hosts, or the reason why `hyoshi node` cannot reach the run.
#[derive(Default)]
pub(super) struct RunControl {
    object: Option<WholeSystem>,
    unreachable: Option<ReportNote>,
}

impl RunControl {
    /// Shows requests to these objects to operators.
    pub fn show(&self, objects: &ServingObjects) {
        if let Some(object) = &self.object {
            object.show(objects);
        }
    }

    /// The run has begun.
    pub fn begin(&self, clock: MonotonicClock, run: [u8; 16]) {
        if let Some(object) = &self.object {
            object.begin(clock, run);
        }
    }

    /// Closes the socket. Returns the note about it for the report.
    pub fn end(self) -> Option<ReportNote> {
        self.unreachable
    }
}

fn say(event: &PeerEvent) {
    streams::err(TerminalStyle::of_stderr().wrap(&format!("hyoshi run: {event}\n")));
}

/// Measurements of one machine are not part of the system.
fn without_costs(system: &System) -> System {
    let mut contents: Contents = System::clone(system).into_contents();
    contents.processors.iter_mut().for_each(|processor| processor.costs = Costs::default());
    System::new(contents)
}

/// A system's name as part of a file's.
fn file_name(name: &str) -> String {
    const MOST_NAME: usize = 24;
    let usual = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    name.chars().take(MOST_NAME).map(|letter| if usual(letter) { letter } else { '-' }).collect()
}

impl JoinedHost {
    /// The number of the run that the nodes share.
    pub fn run(&self) -> [u8; 16] {
        self.agreed.run
    }

    /// The clock with their instant 0.
    pub fn clock(&self) -> MonotonicClock {
        self.agreed.clock
    }

    /// Its connection to the other hosts.
    pub fn peers(&self) -> &NodePeers {
        &self.peers
    }

    /// The certificate of its endpoints.
    pub fn tls(&self) -> Option<&TlsServer> {
        self.tls.as_ref().map(|(server, _)| server)
    }

    /// The same for its calls.
    pub fn tls_client(&self) -> Option<&TlsClient> {
        self.tls.as_ref().map(|(_, client)| client)
    }

    /// The certificate for Zenoh.
    #[cfg(feature = "zenoh")]
    pub fn zenoh_tls(&self) -> Result<Option<hyoshi_zenoh::ZenohTls>, CliError> {
        zenoh_tls(self.files.as_ref())
    }

    /// Prints events between the hosts.
    pub fn report(&self) {
        self.peers.take_events().iter().for_each(say);
    }

    /// The data that a recording needs for merging.
    pub fn clocks(&self) -> impl Iterator<Item = (ProcessorId, hyoshi_trace::TraceEvent)> + '_ {
        self.peers.clocks().map(|(host, known)| {
            let clock =
                hyoshi_trace::CpuEvent::Clock { host, offset: known.offset, error: Span::from_nanos(known.error) };
            (self.first, hyoshi_trace::TraceEvent::Cpu(clock))
        })
    }

    /// Leaves the other hosts. Returns notes about them for the report.
    pub fn end(self) -> Vec<ReportNote> {
        self.report();
        let JoinedHost { peers, network, .. } = self;
        let hosts: Vec<ReportNote> = peers.standing().iter().map(summary).collect();
        let strangers = strangers(peers.refused());
        drop(peers);
        hosts.into_iter().chain(strangers).chain(network.end()).collect()
    }
}

/// The refused calls, messages and connections of clients that are neither peers nor operators. A node delays them, so
/// they do not degrade the run.
fn strangers(refused: u64) -> Option<ReportNote> {
    let text =
        || format!("{} refused", counted(refused, "call, message or connection", "calls, messages or connections"));
    (refused > 0).then(|| note(NoteLevel::Info, "strangers", text()))
}

/// A summary of the exchange with one host.
fn summary(peer: &PeerStanding) -> ReportNote {
    let PeerStanding { host, state, sent, unsent, unconfirmed, missing, received, rejected, .. } = peer;
    let mut text = match (state.as_str(), peer.because.as_str()) {
        ("joined", _) | ("lost", ENDED) => format!("host {host}"),
        (state, "") => format!("host {host} ({state})"),
        (state, because) => format!("host {host} ({state}: {because})"),
    };
    if peer.compared {
        let (offset, error) = (Span::from_nanos(peer.offset.unsigned_abs()), Span::from_nanos(peer.error));
        let side = if peer.offset < 0 { "behind" } else { "ahead" };
        text += &format!(": clock {offset:.3} {side} (error at most {error:.3})");
    }
    text += &format!("; {sent} completions sent, {received} received");
    let counts =
        [(unsent, "not sent"), (unconfirmed, "sent but not confirmed"), (missing, "missing"), (rejected, "rejected")];
    for (count, what) in counts.into_iter().filter(|(count, _)| **count > 0) {
        text += &format!(", {count} {what}");
    }
    let OutputCounts { flushed, unsent: unsent_outputs, late, latest, received, .. } = peer.outputs;
    if flushed + unsent_outputs + late > 0 {
        text += &format!("; {flushed} outputs flushed to replicas");
        if flushed > 0 {
            text += &format!(" (at most {:.3} late)", Span::from_nanos(latest));
        }
        let counts = [(late, "of late jobs not flushed"), (unsent_outputs, "not sent")];
        for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
            text += &format!(", {count} {what}");
        }
    }
    if received > 0 {
        text += &format!("; {received} outputs received for replicas");
    }
    // A host that ends with its run, a moment before this one, was not lost.
    let there = state == "joined" || (state == "lost" && peer.because == ENDED);
    let lost = unsent + unconfirmed + missing + rejected + unsent_outputs > 0 || !there;
    note(if lost { NoteLevel::Degraded } else { NoteLevel::Info }, "hosts", text)
}
