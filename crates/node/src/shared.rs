//! State shared by all threads of a node.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyoshi_model::{HostId, Instant, Span, System};
use hyoshi_os::{Clock, Interrupt, MonotonicClock, PiMutex, Wake};
use ring::rand::{SecureRandom, SystemRandom};

use crate::agreement::{Progress, Run};
use crate::idl::hyoshi_node as wire;
use crate::peer::{Link, Peer};
use crate::served::ENDED;

/// The most events kept for the caller; older ones are dropped.
const EVENTS: usize = 256;

/// See the module.
#[derive(Debug)]
pub(crate) struct Shared {
    pub system: Arc<System>,
    pub host: HostId,
    /// The system as text, and its digest.
    pub text: String,
    pub digest: [u8; 32],
    pub incarnation: u64,
    /// CLOCK_MONOTONIC, which peers compare.
    pub clock: MonotonicClock,
    pub progress: PiMutex<Progress>,
    pub peers: Vec<Peer>,
    pub over: AtomicBool,
    pub interrupt: Interrupt,
    /// Peers show certificates, unless they come over a Unix socket.
    pub uses_tls: bool,
    /// Each wakes one thread at the end.
    pub wakes: Vec<Arc<Wake>>,
    events: PiMutex<VecDeque<Event>>,
}

/// An event between this node and another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
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

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Joined { host, before: 0 } => write!(f, "host {host} joined"),
            Event::Joined { host, .. } => write!(f, "host {host} returned"),
            Event::Lost { host, because } => write!(f, "host {host} was lost: {because}"),
            Event::Refused { host, because } => write!(f, "host {host} cannot join: {because}"),
            Event::ClockJumped { host } => {
                write!(f, "the clock of host {host} jumped: one of the two machines was suspended")
            }
            Event::ClockError { host, error, declared } => {
                write!(f, "the clock offset of host {host} has an error of {error:.3} (clock_error {declared})")
            }
        }
    }
}

impl Shared {
    pub fn new(system: Arc<System>, host: HostId, text: String, interrupt: Interrupt, uses_tls: bool) -> Shared {
        let clock = MonotonicClock::from_origin(0);
        let now = clock.now().as_nanos();
        let others = taking_part(&system).filter(|other| *other != host);
        let peers: Vec<Peer> = others
            .map(|other| Peer::new(other, system.hosts[other.index()].name.clone(), rate(&system, other, host), now))
            .collect();
        let wakes = peers.iter().map(|_| Arc::default()).collect();
        let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(digest.as_ref());
        Shared {
            system,
            host,
            text,
            digest: sha256,
            incarnation: u64::from_ne_bytes(random()).max(1),
            clock,
            progress: PiMutex::new(Progress::Gathering { impatient: false }),
            peers,
            over: AtomicBool::new(false),
            interrupt,
            uses_tls,
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
        }
    }

    /// The peer of a session.
    pub fn of_session(&self, session: u64) -> Option<&Peer> {
        self.peers.iter().find(|peer| session != 0 && peer.session.load(Ordering::Acquire) == session)
    }

    pub fn report(&self, event: Event) {
        let mut events = self.events.lock();
        if events.len() == EVENTS {
            events.pop_front();
        }
        events.push_back(event);
    }

    /// Events since the last call.
    pub fn take_events(&self) -> Vec<Event> {
        self.events.lock().drain(..).collect()
    }

    /// Changes the state of a peer. A change is reported once.
    pub fn stands(&self, peer: &Peer, link: Link, because: &str) {
        let mut known = peer.known.lock();
        let ended = known.link == Link::Lost && known.because == ENDED;
        if known.link == link && (known.because == because || ended) {
            return;
        }
        let before = known.joined;
        let host = peer.name.clone();
        let event = match link {
            Link::Waiting => None,
            Link::Joined => Some(Event::Joined { host, before }),
            Link::Lost => Some(Event::Lost { host, because: because.to_owned() }),
            Link::Refused => Some(Event::Refused { host, because: because.to_owned() }),
        };
        let alike = known.link == link && link == Link::Lost;
        known.joined += u32::from(link == Link::Joined);
        (known.link, known.because, known.since) = (link, because.to_owned(), self.now());
        drop(known);
        event.filter(|_| !alike).into_iter().for_each(|event| self.report(event));
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

/// The completions a second that the operations of a host may send to another, twice what the file says, in any epoch.
fn rate(system: &System, from: HostId, to: HostId) -> u64 {
    let host = |operation: hyoshi_model::OperationId| system.processor(system.operation(operation).on).host;
    let of_epoch = |epoch: usize| -> u64 {
        let rates = system.release_rates(epoch);
        let targets = system.operation_ids().filter(|id| host(*id) == to);
        let sources = targets.flat_map(|id| system.operation(id).trigger.predecessors());
        sources.filter(|source| host(**source) == from).map(|source| rates[source.index()] / 1_000_000_000 + 1).sum()
    };
    2 * (0..system.epochs.len()).map(of_epoch).max().unwrap_or(0) + 10
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

impl From<&Progress> for wire::Progress {
    fn from(progress: &Progress) -> Self {
        match progress {
            Progress::Gathering { impatient } => {
                wire::Progress { gathering: true, impatient: *impatient, run: [0; 16], origin: 0 }
            }
            Progress::Running(Run { id, origin }) => {
                wire::Progress { gathering: false, impatient: false, run: *id, origin: *origin }
            }
        }
    }
}

impl From<wire::Progress> for Progress {
    fn from(progress: wire::Progress) -> Self {
        match progress.gathering {
            true => Progress::Gathering { impatient: progress.impatient },
            false => Progress::Running(Run { id: progress.run, origin: progress.origin }),
        }
    }
}

/// Since instant 0 of a run.
pub(crate) fn since_origin(now: u64, progress: &Progress) -> Span {
    match progress {
        Progress::Gathering { .. } => Span::ZERO,
        Progress::Running(run) => MonotonicClock::from_origin(run.origin).instant_of(now).since(Instant::ZERO),
    }
}
