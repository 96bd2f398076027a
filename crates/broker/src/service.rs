//! The broker's objects on the ORB, and the thread that drives it.
//!
//! ```text
//!   clients ─ Unix socket, TLS ► threads of the ORB ──┐ lock (priority inheritance), change, unlock
//!                                                   ▼
//!   reports and windows ──► the broker's thread ──► State ──► machine
//! ```
//!
//! Whoever changes something carries it out itself, and wakes the broker's thread if that has to act sooner now. Nothing
//! waits for another process while it holds the lock.

mod broker;
mod task;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use hyoshi_model::{Instant, Share, Span};
use hyoshi_orb::cpu_broker::KEY;
use hyoshi_orb::{Adapter, AdapterError, IorEndpoint, LaneOptions, ListenError, Orb, OrbError, SystemException};
use hyoshi_orb::{SystemKind, TlsServer};
use hyoshi_os::{Clock, Interrupt, MonotonicClock, Notifier, PiMutex, Wake, own_cpu_time};

use crate::access::Caller;
use crate::certificates::{Certificates, Door};
use crate::external::{About, Externals};
use crate::gate::{Gate, Users};
use crate::idl::cpu_broker::{self as wire, BrokerStanding, CpuShare, ProxyStanding};
use crate::place;
use crate::proxy::moves::Moves;
use crate::refusals::Refusals;
use crate::state::{RunStanding, State};

/// A broker of this process.
pub struct Service {
    shared: Arc<Shared>,
    orb: Orb,
    externals: Arc<Externals>,
}

/// What all its objects share.
pub(crate) struct Shared {
    core: PiMutex<State>,
    moves: Option<Arc<Moves>>,
    wake: Arc<Wake>,
    clock: MonotonicClock,
    /// Of tasks.
    adapter: std::sync::OnceLock<Adapter>,
    certificates: Certificates,
    refusals: Arc<Refusals>,
    /// Notices of users who ask for too much.
    excess: Arc<Refusals>,
}

/// How a broker serves other machines, besides its socket.
#[derive(Debug)]
pub struct Remote {
    /// Where it listens: `ssliop://HOST:PORT`.
    pub endpoints: Vec<String>,
    /// What it shows, and whose certificates it believes.
    pub tls: TlsServer,
    /// What they mean.
    pub certificates: Certificates,
}

/// Threads for other machines at most: those of this one have others, which nobody elsewhere keeps busy.
const REMOTE_THREADS: usize = 8;

/// Why there is no broker.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServiceError {
    /// The socket's path is no endpoint.
    Endpoint(ListenError),
    /// It cannot listen.
    Orb(OrbError),
    /// The ORB was shut down meanwhile.
    Adapter(AdapterError),
    /// The socket's permissions cannot be set.
    Socket(PathBuf, std::io::Error),
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServiceError::Endpoint(error) => error.fmt(f),
            ServiceError::Orb(error) => error.fmt(f),
            ServiceError::Adapter(error) => error.fmt(f),
            ServiceError::Socket(path, error) => write!(f, "{} cannot be opened to clients: {error}", path.display()),
        }
    }
}

impl std::error::Error for ServiceError {}

impl Service {
    /// Begins to serve at a socket, whose directory is there ([`place::prepare`]). Posts to `wake` end [`Service::run`]'s
    /// sleep.
    ///
    /// # Errors
    ///
    /// If another broker listens there, or the system refuses.
    pub fn start(core: State, socket: &std::path::Path, uid: u32, wake: Arc<Wake>) -> Result<Service, ServiceError> {
        Service::start_for(core, socket, uid, None, wake)
    }

    /// The same, for other machines, too.
    ///
    /// # Errors
    ///
    /// If another broker listens at one of the places, or the system refuses.
    pub fn start_for(
        core: State,
        socket: &std::path::Path,
        uid: u32,
        remote: Option<Remote>,
        wake: Arc<Wake>,
    ) -> Result<Service, ServiceError> {
        // Programs report once a period: that between two reports nobody wakes up is worth more than a little haste.
        let own = LaneOptions { brief: true, ..LaneOptions::default() };
        let builder = Orb::builder().lane(own).listen(&format!("unix:{}", socket.display()));
        let mut builder = builder.map_err(ServiceError::Endpoint)?;
        let mut certificates = Certificates::default();
        let refusals = Arc::new(Refusals::of("refused over TLS"));
        let excess = Arc::new(Refusals::of("refused"));
        let clock = MonotonicClock::start();
        if let Some(remote) = remote {
            let lane = LaneOptions { name: "broker-tls".to_owned(), threads: REMOTE_THREADS, ..LaneOptions::default() };
            let (told, soon) = (refusals.clone(), wake.clone());
            let tls = remote.tls.on_refused(move |who, why| {
                if told.note(who, why) {
                    soon.post();
                }
            });
            builder = builder.lane(lane).tls_server(tls);
            for endpoint in &remote.endpoints {
                builder = builder.listen(endpoint).map_err(ServiceError::Endpoint)?;
            }
            builder = builder.server_interceptor(Door(remote.certificates.clone()));
            certificates = remote.certificates;
        }
        let gate = Gate {
            access: core.access(),
            rules: core.rules().clone(),
            certificates: certificates.clone(),
            clock,
            refusals: excess.clone(),
            wake: wake.clone(),
            users: Users::default(),
        };
        let orb = builder.server_interceptor(gate).build().map_err(ServiceError::Orb)?;
        let shared = Arc::new(Shared {
            moves: core.moves(),
            core: PiMutex::new(core),
            wake,
            clock,
            adapter: Default::default(),
            certificates,
            refusals,
            excess,
        });
        let given = shared.core.lock().externals().cloned();
        let externals = given.map_or_else(Externals::new, Ok).map_err(ServiceError::Orb)?;
        let weak = Arc::downgrade(&shared);
        externals.bulletin().listen(move |about| {
            if let Some(shared) = weak.upgrade() {
                shared.answered(about);
            }
        });
        // Whoever asks before all tasks are here again waits for that.
        let mut core = shared.core.lock();
        core.ask_others(externals.clone());
        core.attend(&shared.wake);
        // Numbers are not given twice, so references outlive the broker as tasks do.
        let tasks =
            orb.adapter("tasks").persistent().default_servant::<dyn task::Task>(Arc::new(task::Tasks(shared.clone())));
        let tasks = tasks.build().map_err(ServiceError::Adapter)?;
        // Cannot be set already: it was made above.
        let _ = shared.adapter.set(tasks);
        let broker = orb.adapter("broker").persistent().build().map_err(ServiceError::Adapter)?;
        let broker = broker.activate_as::<dyn broker::Broker>("broker", Arc::new(broker::Served(shared.clone())));
        orb.publish(KEY, &broker.map_err(ServiceError::Adapter)?).map_err(ServiceError::Adapter)?;
        place::open_to_clients(socket, uid).map_err(|error| ServiceError::Socket(socket.to_owned(), error))?;
        core.rejoin(shared.clock.now());
        drop(core);
        orb.ready();
        Ok(Service { shared, orb, externals })
    }

    /// How it stands.
    pub fn standing(&self) -> BrokerStanding {
        self.shared.standing()
    }

    /// Where it serves other machines, as it turned out: port 0 is one that the system chose.
    pub fn remote(&self) -> impl Iterator<Item = String> {
        self.orb.endpoints().iter().filter_map(|endpoint| match endpoint {
            IorEndpoint::Tls { host, port, .. } => Some(match host.contains(':') {
                true => format!("ssliop://[{host}]:{port}"),
                false => format!("ssliop://{host}:{port}"),
            }),
            _ => None,
        })
    }

    /// Drives the broker until `interrupt` asks for its end; then everything is put back as it was. `tell` is given what
    /// the operator should know, and must not wait for anybody; `manager` that the broker lives.
    pub fn run(&self, interrupt: &Interrupt, manager: &Notifier, mut tell: impl FnMut(&str)) {
        let Shared { core, wake, clock, .. } = &*self.shared;
        let mut alive = Instant::ZERO;
        let mut pace = Pace::new(clock.now());
        loop {
            let (next, notices) = {
                let mut core = core.lock();
                if let Some(share) = pace.measured(clock.now()) {
                    core.measured(share);
                }
                (core.tick(clock.now()), core.take_notices())
            };
            let refused = [&self.shared.refusals, &self.shared.excess];
            let notices = notices.into_iter().chain(refused.iter().filter_map(|refused| refused.take(clock.now())));
            notices.for_each(|notice| tell(&notice));
            if interrupt.requested() {
                break;
            }
            let mut until = next.min(self.shared.refusals.due()).min(self.shared.excess.due());
            if let Some(every) = manager.watched() {
                let now = clock.now();
                if now >= alive {
                    manager.alive();
                    alive = now + every;
                }
                until = until.min(alive);
            }
            pace.slow_down(clock);
            // Many tasks are looked at in several goes: a sleep that is over when it begins costs as much as another.
            if until > clock.now() {
                wake.wait_until(clock, until);
            }
        }
        // Clients first: nobody shall be granted anything that is taken back at once.
        self.orb.shutdown();
        self.shared.prepare_moves();
        self.shared.core.lock().end();
        self.externals.end();
    }
}

/// Stops the broker's thread, which runs above the lanes of critical work, from using a CPU for long.
struct Pace {
    measured: (Instant, Span),
    /// What it may still consume at once, at an instant and a reading of its clock.
    left: Span,
    since: (Instant, Span),
}

impl Pace {
    /// It consumes at most this much at once, and beyond that a quarter of a CPU.
    const BURST: Span = Span::from_millis(2);
    const PART: u64 = 4;
    /// No rest is longer.
    const REST: Span = Span::from_millis(20);
    const MEASURE: Span = Span::from_secs(1);

    fn new(now: Instant) -> Pace {
        let own = own_cpu_time();
        Pace { measured: (now, own), left: Pace::BURST, since: (now, own) }
    }

    /// Its part of a CPU since the last measurement, once a second.
    fn measured(&mut self, now: Instant) -> Option<Share> {
        let (then, before) = self.measured;
        let passed = now.since(then);
        if passed < Pace::MEASURE {
            return None;
        }
        let own = own_cpu_time();
        self.measured = (now, own);
        let millionths =
            own.saturating_sub(before).as_nanos().saturating_mul(1_000) / (passed.as_nanos() / 1_000).max(1);
        Some(Share::from_millionths(millionths))
    }

    /// Sleeps if it has consumed too much at once.
    fn slow_down(&mut self, clock: &MonotonicClock) {
        let (now, own) = (clock.now(), own_cpu_time());
        let (then, before) = std::mem::replace(&mut self.since, (now, own));
        let earned = Span::from_nanos(now.since(then).as_nanos() / Pace::PART);
        let left = (self.left + earned).min(Pace::BURST);
        let spent = own.saturating_sub(before);
        self.left = left.saturating_sub(spent);
        let owed = spent.saturating_sub(left);
        if !owed.is_zero() {
            // Windows wait to be closed meanwhile.
            clock.sleep_until(now.saturating_add((owed * Pace::PART).min(Pace::REST)));
        }
    }
}

impl Shared {
    fn standing(&self) -> BrokerStanding {
        let core = self.core.lock();
        let (policy, cap, reserved) = core.policy();
        let (runs, counted) = core.runs();
        let run = |run: RunStanding| wire::RunStanding {
            name: run.name,
            process: run.process,
            owner: run.owner,
            takes: run.takes.iter().map(|(cpu, takes)| CpuShare { cpu: *cpu, takes: takes.as_millionths() }).collect(),
            counted,
        };
        let way = |way: crate::kernel::Way| ProxyStanding { name: way.name.into(), used: way.used, why: way.why };
        BrokerStanding {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: std::process::id(),
            policy,
            cap: cap.as_millionths(),
            reserved: reserved.as_millionths(),
            tasks: u32::try_from(core.count()).unwrap_or(u32::MAX),
            proxies: core.ways().into_iter().map(way).collect(),
            runs: runs.into_iter().map(run).collect(),
        }
    }

    /// Somebody elsewhere has answered, or failed.
    fn answered(&self, about: About) {
        match about {
            About::Task(task) => self.core.lock().look_ahead(task, self.clock.now()),
            About::Policy => self.core.lock().policy_answered(self.clock.now()),
            // Its answers are heard when the broker is driven.
            About::Scheduler => (),
        }
        self.wake.post();
    }

    /// Does something with the broker's state, at an instant, for whoever calls.
    fn with<R>(&self, act: impl FnOnce(&mut State, &Caller, Instant) -> R) -> R {
        let caller = self.certificates.caller();
        let (done, sooner) = {
            let mut core = self.core.lock();
            let before = core.next;
            let done = act(&mut core, &caller, self.clock.now());
            (done, core.next < before)
        };
        if sooner {
            self.wake.post();
        }
        done
    }

    /// The same, where processes may be moved to other control groups.
    fn with_moves<R>(&self, act: impl FnOnce(&mut State, &Caller, Instant) -> R) -> R {
        self.prepare_moves();
        self.with(act)
    }

    fn prepare_moves(&self) {
        self.moves.iter().for_each(|moves| moves.prepare());
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("at", &self.orb.endpoints()).finish_non_exhaustive()
    }
}

/// Nobody can refer to a task's object while the broker ends.
fn ending(_: AdapterError) -> SystemException {
    SystemKind::Transient.not_done(0)
}
