//! Joins a node to the nodes of the other hosts.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyoshi_events::EventChannel;
use hyoshi_model::{Endpoint, HostId, Span, System};
use hyoshi_orb::{
    AdapterError, LaneOptions, ListenError, Orb, OrbError, ServerLimits, ThreadPolicy, TlsClient, TlsServer,
};
use hyoshi_os::priority::RELEASE;
use hyoshi_os::trusted::UntrustedPath;
use hyoshi_os::{Clock, Dscp, Interrupt, MonotonicClock, Spawn, SpawnedThread};
use hyoshi_runtime::{AdmissionControl, ContractControl, LaneSender, MachineLoad, OutgoingCompletions, Prepared};

use crate::agreement::{AgreedRun, AgreementStep, NodeProgress, WaitState, step};
use crate::carrier::{ArrivingCompletions, CarrierError, CompletionCarrier};
use crate::contact::{self, CarriedSender, IiopSender, MOST_LEAD, PeerStubs};
use crate::departures::{Departures, classes, split};
use crate::idl::hyoshi_node as wire;
use crate::objects::{ServingObjects, WatchedObjects};
use crate::offset::Estimate;
use crate::operators::{self, ForOperators, OperatorAccess, build, close_to_others, listen};
use crate::outlet::PeerOutlet;
use crate::peer::{OtherHost, PeerLink};
use crate::peer_links::PeerLinks;
use crate::served::{ALIVE, ForPeers, node_standing, standing};
use crate::shared::{NodeState, PeerEvent, random, since_origin, taking_part};
use crate::threads::{OperatedThreads, RunSource, begin_of};
use crate::watched_events::WatchedEvents;

/// From the proposal of instant 0 to instant 0: all nodes receive the proposal in that time.
const LEAD: Span = Span::from_millis(300);
/// The period of steps of the agreement.
const LOOK: Span = Span::from_millis(5);
/// The largest message: a completion with the largest payload (64 KiB) fits.
const MESSAGE: usize = 256 << 10;

/// The settings of a node for joining the other hosts.
#[derive(Debug)]
pub struct NodeSettings {
    /// The system. All hosts need endpoints.
    pub system: Arc<System>,
    /// Its text, the same on all hosts: without measurements of one machine.
    pub text: String,
    /// The host of this node.
    pub host: HostId,
    /// The longest wait for other hosts.
    pub wait: Span,
    /// The CPU of the threads that send and receive; `None` for any.
    pub cpu: Option<u32>,
    /// Settings for endpoints over TLS.
    pub tls: Option<Tls>,
    /// The transport of completions to and from hosts that do not receive them over IIOP.
    pub carrier: Option<Box<dyn CompletionCarrier>>,
    /// The path of its control socket.
    pub control: Option<PathBuf>,
    /// The channel whose events operators watch and publish.
    pub events: Option<EventChannel>,
    /// Requested when the operator stops the node.
    pub interrupt: Interrupt,
}

/// A node's certificate, and its trusted authorities.
#[derive(Debug)]
pub struct Tls {
    /// Its certificate, and the authorities of the other hosts' certificates.
    pub server: TlsServer,
    /// The same for outgoing connections.
    pub client: TlsClient,
    /// Certificates for these names may stop it.
    pub operators: BTreeSet<String>,
    /// Only certificates for these names may read its state; `None`: all may.
    pub readers: Option<BTreeSet<String>>,
}

/// The reason why a node does not join the other hosts.
#[derive(Debug)]
#[non_exhaustive]
pub enum NodeError {
    /// A host has no endpoints.
    NoEndpoints {
        /// Its name.
        host: String,
    },
    /// A host receives completions over Zenoh, and the settings have no [`NodeSettings::carrier`].
    NoCarrier {
        /// Its name.
        host: String,
    },
    /// An endpoint over TLS needs a certificate.
    NoCertificate {
        /// The endpoint.
        endpoint: Endpoint,
    },
    /// An endpoint's address cannot be used.
    Endpoint(ListenError),
    /// A host's name cannot be in a certificate, or its endpoint cannot be called.
    Name {
        /// The host.
        host: String,
    },
    /// The ORB cannot listen or start.
    Orb(OrbError),
    /// It was shut down during the start.
    Adapter(AdapterError),
    /// The directory of a Unix socket cannot be used.
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The transport of completions cannot start.
    Carrier(CarrierError),
    /// No further thread.
    Thread(io::Error),
    /// Two hosts run apart, so this one can join neither.
    Apart(String, String),
    /// The run of the other hosts is over.
    Ended {
        /// One of them.
        host: String,
    },
    /// Interrupted before the run began.
    Interrupted,
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeError::NoEndpoints { host } => write!(f, "host `{host}` has no endpoints"),
            NodeError::NoCarrier { host } => {
                write!(f, "host `{host}` receives completions over Zenoh, but this program was built without it")
            }
            NodeError::NoCertificate { endpoint } => write!(f, "endpoint {endpoint} needs a certificate"),
            NodeError::Endpoint(error) => error.fmt(f),
            NodeError::Name { host } => write!(f, "no certificate can be for a host named `{host}`"),
            NodeError::Orb(error) => error.fmt(f),
            NodeError::Adapter(error) => error.fmt(f),
            NodeError::Socket { path, error } => write!(f, "cannot listen at {}: {error}", path.display()),
            NodeError::Carrier(error) => f.write_str(&error.message),
            NodeError::Thread(error) => write!(f, "cannot start another thread: {error}"),
            NodeError::Apart(one, other) => {
                write!(f, "hosts `{one}` and `{other}` run apart: each began without the other")
            }
            NodeError::Ended { host } => write!(f, "the run of host `{host}` is over"),
            NodeError::Interrupted => f.write_str("interrupted before the run began"),
        }
    }
}

impl std::error::Error for NodeError {}

impl NodeError {
    /// The remedy.
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            NodeError::NoEndpoints { host } => {
                format!("add `endpoints = [\"tcp/127.0.0.1:7447\"]` to [host.{host}], with an address of its machine")
            }
            NodeError::NoCarrier { host } => {
                format!("build it with `--features zenoh`, or remove `zenoh` and `router` from [host.{host}]")
            }
            NodeError::NoCertificate { .. } => "add --tls-cert, --tls-key and --tls-roots".to_owned(),
            NodeError::Name { .. } => "use letters, digits and `-`".to_owned(),
            NodeError::Orb(OrbError::Listen { .. }) => {
                "is a node of this host running already? `hyoshi node list` shows those of this machine; its `endpoints` \
                 must be addresses of this machine"
                    .to_owned()
            }
            NodeError::Carrier(error) => error.remedy.clone(),
            NodeError::Socket { error, .. } => return UntrustedPath::of(error).map(UntrustedPath::remedy),
            NodeError::Apart(..) => "stop the nodes of one of them, then restart them".to_owned(),
            NodeError::Ended { .. } => "start all nodes again".to_owned(),
            _ => return None,
        })
    }
}

/// A node's connection to the nodes of the other hosts. Dropping it leaves the run.
#[derive(Debug)]
pub struct NodePeers {
    shared: Arc<NodeState>,
    requests: WatchedObjects,
    events: WatchedEvents,
    operated: OperatedThreads,
    admissions: AdmissionControl,
    contracts: ContractControl,
    machine: MachineLoad,
    wait: Span,
    /// Senders that lanes use.
    lane_senders: Vec<Arc<dyn LaneSender>>,
    threads: Vec<SpawnedThread<()>>,
    senders: Vec<Arc<hyoshi_os::Wake>>,
    orbs: Vec<Orb>,
    /// Its connections close after the senders have ended.
    carrier: Option<Box<dyn CompletionCarrier>>,
}

/// The clocks of the other hosts' machines.
#[derive(Clone, Debug)]
pub struct PeerClocks(Arc<NodeState>);

impl PeerClocks {
    /// The offset of a clock, by its number in the timing of requests: that clock minus CLOCK_MONOTONIC here. `None`
    /// if no joined host has it.
    pub fn offset(&self, clock: u64) -> Option<Estimate> {
        let now = self.0.now();
        self.0.peers.iter().find_map(|peer| {
            let known = peer.known.lock();
            let is_its = known.clock_number == clock && known.link == PeerLink::Joined;
            is_its.then(|| known.clock.estimate(now)).flatten()
        })
    }
}

/// What the nodes agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Instant 0 on the clock of this machine.
    pub clock: MonotonicClock,
    /// The number of the run.
    pub run: [u8; 16],
    /// The other hosts have already begun.
    pub late: bool,
}

impl NodePeers {
    /// Listens at the host's endpoints, and connects to the other hosts.
    ///
    /// # Errors
    ///
    /// If it cannot listen there, or the system refuses threads.
    pub fn start(settings: NodeSettings, node: &mut Prepared) -> Result<NodePeers, NodeError> {
        let NodeSettings { system, text, host, wait, cpu, tls, carrier, control, events, interrupt } = settings;
        let mut hosts = taking_part(&system).map(|id| &system.hosts[id.index()]);
        if let Some(host) = hosts.find(|host| host.endpoints.is_empty()) {
            return Err(NodeError::NoEndpoints { host: host.name.clone() });
        }
        let mut hosts = taking_part(&system).map(|id| &system.hosts[id.index()]);
        if let Some(host) = hosts.find(|host| host.over_zenoh().is_some() && carrier.is_none()) {
            return Err(NodeError::NoCarrier { host: host.name.clone() });
        }
        let mut over_zenoh = taking_part(&system).filter_map(|id| system.hosts[id.index()].over_zenoh());
        if let Some(endpoint) = over_zenoh.find(|one| matches!(one, Endpoint::Tls(_)) && tls.is_none()) {
            return Err(NodeError::NoCertificate { endpoint: endpoint.clone() });
        }
        let shared = Arc::new(NodeState::new(system.clone(), host, text, interrupt, tls.is_some(), events.clone()));
        let handles = node.handles();
        let threads = shared.threads.get_or_init(|| handles.threads).clone();
        handles.links.set(Box::new(PeerLinks(Arc::downgrade(&shared))));
        for arrivals in node.take_arrivals() {
            if let Some(peer) = shared.peers.iter().find(|peer| peer.host == arrivals.from()) {
                peer.inbox.lock().arrivals = Some(arrivals);
            }
        }
        let mut peers = NodePeers {
            requests: WatchedObjects::default(),
            events: WatchedEvents::new(events),
            operated: OperatedThreads::new(threads, Some(host), RunSource::Peers(shared.clone())),
            admissions: handles.admissions,
            contracts: handles.contracts,
            machine: handles.machine,
            shared,
            wait,
            lane_senders: Vec::new(),
            threads: Vec::new(),
            senders: Vec::new(),
            orbs: Vec::new(),
            carrier,
        };
        peers.listen(cpu, tls.as_ref())?;
        if let Some(carrier) = &mut peers.carrier {
            carrier.open(ArrivingCompletions::new(peers.shared.clone()), cpu).map_err(NodeError::Carrier)?;
        }
        if let Some(socket) = control {
            let operators = peers.operators(OperatorAccess::User);
            peers.orbs.push(operators::serve(&socket, operators)?);
        }
        let mut departures = node.take_departures();
        for at in 0..peers.shared.peers.len() {
            let (id, name) = (peers.shared.peers[at].host, peers.shared.peers[at].name.clone());
            let endpoints = &system.hosts[id.index()].endpoints;
            if let Some(endpoint) = endpoints.iter().find(|one| matches!(one, Endpoint::Tls(_)) && tls.is_none()) {
                return Err(NodeError::NoCertificate { endpoint: endpoint.clone() });
            }
            let stubs = |dscp| {
                let stubs = PeerStubs::new(endpoints, &name, tls.as_ref().map(|tls| &tls.client), dscp);
                stubs.map_err(NodeError::Orb)?.map_err(|_| NodeError::Name { host: name.clone() })
            };
            // Clocks are compared over the same class as critical completions: a full link does not change offsets.
            let dial = Arc::new(stubs(Some(Dscp::EF))?);
            let _ = peers.shared.dials[at].set(dial.clone());
            let (shared, dialled) = (peers.shared.clone(), dial.clone());
            peers.spawn(format!("{name:.7}-contact"), cpu, ThreadPolicy::Other, move || {
                contact::keep(&shared, at, &dialled)
            })?;
            if let Some(own) = departures.iter().position(|departures| departures.to() == id) {
                let (shared, departures) = (peers.shared.clone(), departures.swap_remove(own));
                let (to, bulk) = (format!("to-{name:.12}"), format!("bulk-{name:.10}"));
                let iiop = |dial| Box::new(IiopSender::new(shared.clone(), at, dial));
                let carried = peers.carrier.as_mut().and_then(|carrier| carrier.sender(id));
                match (carried, classes(&system, host, id)) {
                    (Some(completions), _) => {
                        let _ = peers.shared.carried_classes[at].set(completions.class());
                        let sender = Box::new(CarriedSender { completions, outputs: *iiop(dial) });
                        let wake = departures.wake();
                        peers.send(to, cpu, PeerOutlet::new((shared, at), departures, wake, sender, false))?;
                    }
                    (None, (true, false)) => {
                        let (sender, wake) = (iiop(dial), departures.wake());
                        peers.send_on_lanes(to, cpu, departures, |all| {
                            PeerOutlet::new((shared, at), all, wake, sender, false)
                        })?;
                    }
                    (None, (false, _)) => {
                        let bulk = Arc::new(stubs(None)?);
                        let _ = peers.shared.bulk_dials[at].set(bulk.clone());
                        let (sender, wake) = (iiop(bulk), departures.wake());
                        peers.send_on_lanes(to, cpu, departures, |all| {
                            PeerOutlet::new((shared, at), all, wake, sender, true)
                        })?;
                    }
                    (None, (true, true)) => {
                        let rest = Arc::new(stubs(None)?);
                        let _ = peers.shared.bulk_dials[at].set(rest.clone());
                        let (first, rest) = (iiop(dial), iiop(rest));
                        let mut slow = None;
                        let wake = departures.wake();
                        peers.send_on_lanes(to, cpu, departures, |all| {
                            let (critical, others) = split(all, &shared, at);
                            slow = Some(others);
                            PeerOutlet::new((shared.clone(), at), critical, wake, first, false)
                        })?;
                        if let Some(others) = slow {
                            let wake = others.wake();
                            peers.send(bulk, cpu, PeerOutlet::new((shared, at), others, wake, rest, true))?;
                        }
                    }
                }
            }
        }
        Ok(peers)
    }

    /// A thread that sends completions.
    fn send<D: Departures + 'static>(
        &mut self,
        name: String,
        cpu: Option<u32>,
        outlet: Arc<PeerOutlet<D>>,
    ) -> Result<(), NodeError> {
        self.senders.push(outlet.wake());
        self.spawn(name, cpu, ThreadPolicy::Fifo(RELEASE), move || outlet.run())
    }

    /// The same, and lanes send threads of chains themselves.
    fn send_on_lanes<D: Departures + 'static>(
        &mut self,
        name: String,
        cpu: Option<u32>,
        departures: OutgoingCompletions,
        outlet: impl FnOnce(OutgoingCompletions) -> Arc<PeerOutlet<D>>,
    ) -> Result<(), NodeError> {
        let lanes = departures.move_threads().then(|| departures.lane_senders());
        let outlet = outlet(departures);
        if let Some(lanes) = lanes {
            let sender: Arc<dyn LaneSender> = outlet.clone();
            lanes.set(Arc::downgrade(&sender));
            self.lane_senders.push(sender);
        }
        self.send(name, cpu, outlet)
    }

    fn spawn(
        &mut self,
        name: String,
        cpu: Option<u32>,
        policy: ThreadPolicy,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<(), NodeError> {
        let spawn = Spawn::new(name).policy(policy);
        let spawn = match cpu {
            Some(cpu) => spawn.cpu(cpu),
            None => spawn,
        };
        self.threads.push(spawn.spawn(run).map_err(NodeError::Thread)?);
        Ok(())
    }

    /// Serves other nodes at the endpoints of the host and, over TLS, operators.
    fn listen(&mut self, cpu: Option<u32>, tls: Option<&Tls>) -> Result<(), NodeError> {
        let endpoints = &self.shared.system.hosts[self.shared.host.index()].endpoints;
        // A peer has four connections, and a lost one may still be open. Each has its own thread.
        let connections = 5 * self.shared.peers.len() + 12;
        let lane = |name: &str| LaneOptions {
            name: name.to_owned(),
            threads: connections + 1,
            policy: ThreadPolicy::Fifo(RELEASE),
            cpu,
            ..LaneOptions::default()
        };
        let limits = ServerLimits {
            connections,
            message: MESSAGE,
            backlog: 4 << 20,
            unfinished: 4 << 20,
            in_flight: 1,
            ending: Span::from_secs(1),
            // Peers call several times a second, and send a message at once.
            silent: Span::from_secs(5),
            stalled: Span::from_secs(2),
            ..ServerLimits::default()
        };
        let (mut builder, mut begun) = (Orb::builder().server_limits(limits).untracked_threads(), None);
        if let Some(tls) = tls {
            builder = builder.tls_server(tls.server.clone());
        }
        // Strangers at `tcp/` endpoints take no connections of the others: each lane has its own limits.
        let (open, proved): (Vec<_>, Vec<_>) = endpoints.iter().partition(|one| matches!(one, Endpoint::Tcp(_)));
        let groups = [("node", proved), ("node-tcp", open)];
        for (name, endpoint) in groups.iter().flat_map(|(name, group)| group.iter().map(move |one| (*name, *one))) {
            if begun != Some(name) {
                builder = builder.lane(lane(name));
                begun = Some(name);
            }
            builder = listen(builder, endpoint, tls.is_some())?;
        }
        let orb = build(builder)?;
        self.shared.strangers.watch(orb.refused_connections());
        let adapter = orb.adapter("node").persistent().build().map_err(NodeError::Adapter)?;
        let object = adapter.activate_as::<dyn wire::Peer>("peer", Arc::new(ForPeers(self.shared.clone())));
        object.and_then(|object| orb.publish(contact::KEY, &object)).map_err(NodeError::Adapter)?;
        let (operators, readers) =
            tls.map_or_else(Default::default, |tls| (tls.operators.clone(), tls.readers.clone()));
        let strangers = self.shared.strangers.clone();
        operators::publish(&orb, self.operators(OperatorAccess::Certificates { strangers, operators, readers }))?;
        for endpoint in endpoints {
            if let Endpoint::Unix(path) = endpoint {
                close_to_others(Path::new(path))?;
            }
        }
        orb.ready();
        self.orbs.push(orb);
        Ok(())
    }

    /// The object for operators.
    fn operators(&self, access: OperatorAccess) -> ForOperators {
        let (shared, machine) = (self.shared.clone(), self.machine.clone());
        let standing = Box::new(move || node_standing(&shared, machine.latest()));
        let (requests, events, threads) = (self.requests.clone(), self.events.clone(), self.operated.clone());
        let (admissions, contracts) = (self.admissions.clone(), self.contracts.clone());
        let interrupt = self.shared.interrupt.clone();
        ForOperators { standing, requests, events, threads, admissions, contracts, interrupt, access }
    }

    /// Shows requests to these objects to operators. Only the first call counts.
    pub fn show(&self, objects: &ServingObjects) {
        self.requests.set(objects);
    }

    /// Waits for the other hosts, and agrees on instant 0 with those present. Calls `report` for each event meanwhile.
    ///
    /// # Errors
    ///
    /// If the other hosts began separate runs, their run is over, or this one was interrupted.
    pub fn agree(&self, mut report: impl FnMut(&PeerEvent)) -> Result<Agreed, NodeError> {
        let (shared, began) = (&self.shared, self.shared.clock.now());
        loop {
            shared.take_events().iter().for_each(&mut report);
            if shared.interrupt.requested() {
                return Err(NodeError::Interrupted);
            }
            let patience = match shared.clock.now().since(began) {
                waited if waited >= self.wait + ALIVE => WaitState::Exhausted,
                waited if waited >= self.wait => WaitState::Over,
                _ => WaitState::Waits,
            };
            *shared.progress.lock() = NodeProgress::Gathering { impatient: patience != WaitState::Waits };
            let present: Vec<_> = shared.peers.iter().filter_map(|peer| peer.present()).collect();
            let name = |host: HostId| shared.system.hosts[host.index()].name.clone();
            let now = shared.now();
            let arrives = |peer: &OtherHost| {
                let known = peer.known.lock();
                !matches!(known.link, PeerLink::Joined | PeerLink::Refused) && known.is_alive(now, ALIVE)
            };
            let arriving = shared.peers.iter().any(arrives);
            match step(shared.host, shared.peers.len() + 1, patience, arriving, &present) {
                AgreementStep::Wait => shared.clock.sleep_until(shared.clock.now() + LOOK),
                AgreementStep::Propose => {
                    let run = AgreedRun { id: random(), origin: (shared.now() + LEAD.as_nanos()) as i64 };
                    return Ok(self.begin(run, false));
                }
                AgreementStep::Join(host, run) => {
                    let peer = shared.peers.iter().find(|peer| peer.host == host);
                    let now = shared.now();
                    let known = peer.and_then(|peer| peer.known.lock().clock.estimate(now));
                    let Some(Estimate { offset, .. }) = known else {
                        shared.clock.sleep_until(shared.clock.now() + LOOK);
                        continue;
                    };
                    // Negative if this machine was started after instant 0, for example again.
                    let run = AgreedRun { id: run.id, origin: run.origin.saturating_sub(offset) };
                    if i128::from(run.origin) > i128::from(now) + i128::from(MOST_LEAD.as_nanos()) {
                        // Its next answer is checked before it counts.
                        peer.inspect(|peer| peer.known.lock().progress = None);
                        shared.clock.sleep_until(shared.clock.now() + LOOK);
                        continue;
                    }
                    let running = since_origin(now, &NodeProgress::Running(run));
                    if running >= shared.system.duration {
                        return Err(NodeError::Ended { host: name(host) });
                    }
                    return Ok(self.begin(run, running > Span::ZERO));
                }
                AgreementStep::Apart(one, other) => return Err(NodeError::Apart(name(one), name(other))),
            }
        }
    }

    fn begin(&self, run: AgreedRun, late: bool) -> Agreed {
        *self.shared.progress.lock() = NodeProgress::Running(run);
        self.shared.threads.get().into_iter().for_each(|threads| threads.set_run(begin_of(&run.id)));
        self.shared.wakes.iter().for_each(|wake| wake.post());
        Agreed { clock: MonotonicClock::from_origin(run.origin), run: run.id, late }
    }

    /// Events since the last call.
    pub fn take_events(&self) -> Vec<PeerEvent> {
        self.shared.take_events()
    }

    /// The lead of each other host's clock over the own one since instant 0, where known.
    pub fn clocks(&self) -> impl Iterator<Item = (HostId, Estimate)> + '_ {
        let (now, own) = (self.shared.now(), *self.shared.progress.lock());
        self.shared.peers.iter().filter_map(move |peer| {
            let known = peer.known.lock();
            let ahead = (known.link == PeerLink::Joined).then(|| known.ahead(now, Some(&own))).flatten()?;
            Some((peer.host, ahead))
        })
    }

    /// The clocks of the other hosts' machines, for the timing of their requests.
    pub fn peer_clocks(&self) -> PeerClocks {
        PeerClocks(self.shared.clone())
    }

    /// Refused calls of clients that are neither peers nor operators.
    pub fn refused(&self) -> u64 {
        self.shared.strangers.refused()
    }

    /// The states of the other hosts.
    pub fn standing(&self) -> Vec<wire::PeerStanding> {
        let (now, own) = (self.shared.now(), *self.shared.progress.lock());
        self.shared.peers.iter().map(|peer| standing(peer, now, &own)).collect()
    }
}

impl Drop for NodePeers {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        self.shared.wakes.iter().chain(&self.senders).for_each(|wake| wake.post());
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
        self.lane_senders.clear();
        self.orbs.iter().for_each(Orb::shutdown);
    }
}
