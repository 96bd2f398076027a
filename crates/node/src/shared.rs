//! State shared by all threads of a node.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use hyoshi_events::EventChannel;
use hyoshi_model::{ContractRoute, FeedbackLoop, HostId, Instant, ProcessorId, Span, System};
use hyoshi_orb::rt::{RequestTiming, machine_clock};
use hyoshi_os::{Clock, Interrupt, MonotonicClock, PiMutex, Wake};
use hyoshi_runtime::ChainThreads;
use hyoshi_trace::Signal;
use ring::rand::{SecureRandom, SystemRandom};

use crate::agreement::{AgreedRun, NodeProgress};
use crate::carrier::CarriedClass;
use crate::contact::PeerStubs;
use crate::idl::hyoshi_node as wire;
use crate::peer::{OtherHost, PeerLink};
use crate::served::ENDED;
use crate::strangers::Strangers;
use crate::threads::HopParameters;

/// The most events kept for the caller; older ones are dropped.
const EVENTS: usize = 256;

/// See the module.
#[derive(Debug)]
pub(crate) struct NodeState {
    pub system: Arc<System>,
    pub host: HostId,
    /// The system as text, and its digest.
    pub text: String,
    pub digest: [u8; 32],
    pub incarnation: u64,
    /// CLOCK_MONOTONIC, which peers compare.
    pub clock: MonotonicClock,
    pub progress: PiMutex<NodeProgress>,
    pub peers: Vec<OtherHost>,
    /// Clients that are not peers.
    pub strangers: Arc<Strangers>,
    pub over: AtomicBool,
    pub interrupt: Interrupt,
    /// Peers show certificates, unless they come over a Unix socket.
    pub uses_tls: bool,
    /// The channel where the loss and the return of hosts are published, if the file has events for them.
    pub channel: Option<EventChannel>,
    /// By peer: its object at its endpoints.
    pub dials: Vec<OnceLock<Arc<PeerStubs>>>,
    /// By peer: the same for completions that are not critical, if these have a connection of their own.
    pub bulk_dials: Vec<OnceLock<Arc<PeerStubs>>>,
    /// By peer: the class of completions over a [carrier](crate::CompletionCarrier).
    pub carried_classes: Vec<OnceLock<CarriedClass>>,
    /// The parameters of threads that move between hosts.
    pub hops: HopParameters,
    /// The threads of chains.
    pub threads: OnceLock<ChainThreads>,
    /// Each wakes one thread at the end.
    pub wakes: Vec<Arc<Wake>>,
    events: PiMutex<VecDeque<PeerEvent>>,
}

/// An event between this node and another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerEvent {
    /// A host joined.
    Joined {
        /// Its name.
        host: String,
        /// The number of earlier joins.
        before: u32,
    },
    /// A host was lost.
    Lost {
        /// Its name.
        host: String,
        /// Why.
        because: String,
    },
    /// A host and this one reject each other.
    Refused {
        /// Its name.
        host: String,
        /// Why.
        because: String,
    },
    /// A host sends completions faster than the rates that a feedback loop here has set.
    IgnoresRates {
        /// Its name.
        host: String,
    },
    /// A host that sets rates here was lost: they stay the same until it returns.
    RatesStay {
        /// Its name.
        host: String,
    },
    /// A host's clock has jumped: one of the two machines was suspended, or its node was moved.
    ClockJumped {
        /// Its name.
        host: String,
    },
    /// The error of a host's clock offset exceeds the file's `clock_error`.
    ClockError {
        /// Its name.
        host: String,
        /// The error bound of the offset.
        error: Span,
        /// The file's `clock_error` of the two hosts together.
        declared: Span,
    },
}

impl fmt::Display for PeerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerEvent::Joined { host, before: 0 } => write!(f, "host {host} joined"),
            PeerEvent::Joined { host, .. } => write!(f, "host {host} returned"),
            PeerEvent::Lost { host, because } => write!(f, "host {host} was lost: {because}"),
            PeerEvent::Refused { host, because } => write!(f, "host {host} cannot join: {because}"),
            PeerEvent::IgnoresRates { host } => {
                write!(
                    f,
                    "host {host} exceeds the rates that a feedback loop here sets: excess completions are rejected"
                )
            }
            PeerEvent::RatesStay { host } => {
                write!(f, "the rates that host {host} sets here stay the same until it returns")
            }
            PeerEvent::ClockJumped { host } => {
                write!(f, "the clock of host {host} jumped: one of the two machines was suspended")
            }
            PeerEvent::ClockError { host, error, declared } => {
                write!(f, "the clock offset of host {host} has an error of {error:.3} (clock_error {declared})")
            }
        }
    }
}

impl NodeState {
    pub fn new(
        system: Arc<System>,
        host: HostId,
        text: String,
        interrupt: Interrupt,
        uses_tls: bool,
        channel: Option<EventChannel>,
    ) -> NodeState {
        let clock = MonotonicClock::from_origin(0);
        let now = clock.now().as_nanos();
        let others = taking_part(&system).filter(|other| *other != host);
        let peers: Vec<OtherHost> = others
            .map(|other| {
                let rates = (rate(&system, other, host), samples(&system, other));
                OtherHost::new(other, system.hosts[other.index()].name.clone(), rates, now)
            })
            .collect();
        let wakes = peers.iter().map(|_| Arc::default()).collect();
        let dials = || peers.iter().map(|_| OnceLock::new()).collect();
        let (dials, bulk_dials) = (dials(), dials());
        let carried_classes = peers.iter().map(|_| OnceLock::new()).collect();
        let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(digest.as_ref());
        NodeState {
            hops: HopParameters::of(&system),
            system,
            host,
            text,
            digest: sha256,
            incarnation: u64::from_ne_bytes(random()).max(1),
            clock,
            progress: PiMutex::new(NodeProgress::Gathering { impatient: false }),
            peers,
            strangers: Arc::new(Strangers::new()),
            over: AtomicBool::new(false),
            interrupt,
            uses_tls,
            channel,
            dials,
            bulk_dials,
            carried_classes,
            threads: OnceLock::new(),
            wakes,
            events: PiMutex::new(VecDeque::new()),
        }
    }

    /// The own clock, in ns.
    pub fn now(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub fn name(&self) -> &str {
        &self.system.hosts[self.host.index()].name
    }

    pub fn introduction(&self) -> wire::Introduction {
        wire::Introduction {
            version: wire::VERSION,
            system: self.system.name.clone(),
            host: self.name().to_owned(),
            digest: self.digest,
            incarnation: self.incarnation,
            clock: machine_clock(),
        }
    }

    /// The peer of a session.
    pub fn of_session(&self, session: u64) -> Option<&OtherHost> {
        self.peers.iter().find(|peer| session != 0 && peer.session.load(Ordering::Acquire) == session)
    }

    /// The timing that a completion carries, if it moves a thread.
    pub fn timing_of_hop(&self, signal: &Signal) -> Option<RequestTiming> {
        self.hops.timing(signal, || *self.progress.lock())
    }

    pub fn report(&self, event: PeerEvent) {
        self.publish(&event);
        let mut events = self.events.lock();
        if events.len() == EVENTS {
            events.pop_front();
        }
        events.push_back(event);
    }

    /// Publishes `host/NAME/joined`, or `host/NAME/lost` with the reason as payload. Does nothing if the file lacks the
    /// event, or this host lacks a supplier with `called = true`.
    fn publish(&self, event: &PeerEvent) {
        let Some(channel) = &self.channel else { return };
        let (name, reason) = match event {
            PeerEvent::Joined { host, .. } => (format!("host/{host}/joined"), ""),
            PeerEvent::Lost { host, because } => (format!("host/{host}/lost"), because.as_str()),
            _ => return,
        };
        let Some(declared) = channel.system().events.iter().find(|event| event.name == name) else { return };
        let mut most = reason.len().min(declared.payload as usize);
        while !reason.is_char_boundary(most) {
            most -= 1;
        }
        let _ = channel.publish(&name, &reason.as_bytes()[..most]);
    }

    /// Events since the last call.
    pub fn take_events(&self) -> Vec<PeerEvent> {
        self.events.lock().drain(..).collect()
    }

    /// Changes the state of a peer. A change is reported once.
    pub fn stands(&self, peer: &OtherHost, link: PeerLink, because: &str) {
        let mut known = peer.known.lock();
        let ended = known.link == PeerLink::Lost && known.because == ENDED;
        if known.link == link && (known.because == because || ended) {
            return;
        }
        let before = known.joined;
        let host = peer.name.clone();
        let event = match link {
            PeerLink::Waiting => None,
            PeerLink::Joined => Some(PeerEvent::Joined { host, before }),
            PeerLink::Lost => Some(PeerEvent::Lost { host, because: because.to_owned() }),
            PeerLink::Refused => Some(PeerEvent::Refused { host, because: because.to_owned() }),
        };
        let alike = known.link == link && link == PeerLink::Lost;
        known.joined += u32::from(link == PeerLink::Joined);
        (known.link, known.because, known.since) = (link, because.to_owned(), self.now());
        drop(known);
        if alike {
            return;
        }
        event.into_iter().for_each(|event| self.report(event));
        let is_missed = link == PeerLink::Lost && because != ENDED;
        if is_missed && !self.system.rates_between(peer.host, self.host).is_empty() {
            self.report(PeerEvent::RatesStay { host: peer.name.clone() });
        }
    }

    /// The file's limit for the difference between the clocks of this host and another.
    pub fn declared_error(&self, other: HostId) -> Option<Span> {
        let own = self.system.hosts[self.host.index()].clock_error;
        let its = self.system.hosts[other.index()].clock_error;
        (own.is_some() || its.is_some()).then(|| own.unwrap_or_default() + its.unwrap_or_default())
    }
}

/// The hosts that have a processor: a node runs on each.
pub(crate) fn taking_part(system: &System) -> impl Iterator<Item = HostId> + '_ {
    let has_processor = |host: &HostId| system.processors.iter().any(|processor| processor.host == *host);
    (0..system.hosts.len() as u32).map(HostId).filter(has_processor)
}

/// The completions and outputs per second that the operations of a host may send to another host: twice the rates in
/// the file, in any epoch.
fn rate(system: &System, from: HostId, to: HostId) -> u64 {
    let host = |operation: hyoshi_model::OperationId| system.processor(system.operation(operation).on).host;
    let of_epoch = |epoch: usize| -> u64 {
        let rates = system.release_rates(epoch);
        let targets = system.operation_ids().filter(|id| host(*id) == to);
        let sources = targets.flat_map(|id| system.operation(id).trigger.predecessors());
        let completions = sources.filter(|source| host(**source) == from).map(|source| (*source, 1));
        let replicated = system.operation_ids().filter(|id| host(*id) == from && system.replica_on(*id, to).is_some());
        let outputs = replicated.map(|id| (id, u64::from(system.setting(epoch, id).legs)));
        completions.chain(outputs).map(|(id, jobs)| jobs * (rates[id.index()] / 1_000_000_000 + 1)).sum()
    };
    2 * (0..system.epochs.len()).map(of_epoch).max().unwrap_or(0) + 10
}

/// The samples a second of loops on a host, or whose rates it computes, and the messages with values of contracts.
fn samples(system: &System, from: HostId) -> u64 {
    let is_there = |processor: ProcessorId| system.processor(processor).host == from;
    let there = |one: &&FeedbackLoop| is_there(one.processor) || is_there(system.computed_on(one));
    let loops = system.feedback.iter().filter(there).map(|one| one.period);
    let routes = system.contract_routes();
    let contract = |route: &ContractRoute| system.contracts[usize::from(route.contract)].period;
    let contracts = routes.iter().filter(|route| is_there(route.from)).map(contract);
    loops.chain(contracts).map(|period| 1_000_000_000 / period.as_nanos().max(1) + 1).sum()
}

/// Unpredictable octets.
///
/// # Panics
///
/// If the kernel has none: before anything runs.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut octets = [0; N];
    SystemRandom::new().fill(&mut octets).expect("the kernel has random octets");
    octets
}

impl From<&NodeProgress> for wire::Progress {
    fn from(progress: &NodeProgress) -> Self {
        match progress {
            NodeProgress::Gathering { impatient } => {
                wire::Progress { gathering: true, impatient: *impatient, run: [0; 16], origin: 0 }
            }
            NodeProgress::Running(AgreedRun { id, origin }) => {
                wire::Progress { gathering: false, impatient: false, run: *id, origin: *origin }
            }
        }
    }
}

impl From<wire::Progress> for NodeProgress {
    fn from(progress: wire::Progress) -> Self {
        match progress.gathering {
            true => NodeProgress::Gathering { impatient: progress.impatient },
            false => NodeProgress::Running(AgreedRun { id: progress.run, origin: progress.origin }),
        }
    }
}

/// Since instant 0 of a run.
pub(crate) fn since_origin(now: u64, progress: &NodeProgress) -> Span {
    match progress {
        NodeProgress::Gathering { .. } => Span::ZERO,
        NodeProgress::Running(run) => MonotonicClock::from_origin(run.origin).instant_of(now).since(Instant::ZERO),
    }
}
