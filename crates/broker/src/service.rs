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
use hyoshi_orb::{Adapter, AdapterError, Endpoint, EndpointError, LaneOptions, Orb, OrbError, SystemException};
use hyoshi_orb::{SystemKind, TlsServer};
use hyoshi_os::{Clock, Interrupt, MonotonicClock, Notifier, PiMutex, Wake, own_cpu_time};

use crate::access::Caller;
use crate::certificates::{CertificateFilter, Certificates};
use crate::external::{ExternalEvent, Externals};
use crate::idl::cpu_broker::{self as wire, BrokerStatus, CpuShare, ProxyStatus};
use crate::limiter::{RequestLimiter, UserTable};
use crate::proxy::moves::Moves;
use crate::refusals::RefusalNotices;
use crate::socket;
use crate::state::{BrokerState, RunSnapshot};

/// A broker of this process.
pub struct BrokerService {
    shared: Arc<BrokerShared>,
    orb: Orb,
    externals: Arc<Externals>,
}

/// What all its objects share.
pub(crate) struct BrokerShared {
    core: PiMutex<BrokerState>,
    moves: Option<Arc<Moves>>,
    wake: Arc<Wake>,
    clock: MonotonicClock,
    /// Of tasks.
    adapter: std::sync::OnceLock<Adapter>,
    certificates: Certificates,
    refusals: Arc<RefusalNotices>,
    /// Notices of users who ask for too much.
    excess: Arc<RefusalNotices>,
}

/// How a broker serves other machines, besides its socket.
#[derive(Debug)]
pub struct RemoteAccess {
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
    Endpoint(EndpointError),
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
            ServiceError::Socket(path, error) => write!(f, "cannot allow clients to use {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for ServiceError {}

impl BrokerService {
    /// Begins to serve at a socket, whose directory is there ([`socket::prepare`]). Posts to `wake` end [`BrokerService::run`]'s
    /// sleep.
    ///
    /// # Errors
    ///
    /// If another broker listens there, or the system refuses.
    pub fn start(
        core: BrokerState,
        socket: &std::path::Path,
        uid: u32,
        wake: Arc<Wake>,
    ) -> Result<BrokerService, ServiceError> {
        BrokerService::start_for(core, socket, uid, None, wake)
    }

    /// The same, for other machines, too.
    ///
    /// # Errors
    ///
    /// If another broker listens at one of the places, or the system refuses.
    pub fn start_for(
        core: BrokerState,
        socket: &std::path::Path,
        uid: u32,
        remote: Option<RemoteAccess>,
        wake: Arc<Wake>,
    ) -> Result<BrokerService, ServiceError> {
        // Programs report once a period: that between two reports nobody wakes up is worth more than a little haste.
        let own = LaneOptions { brief: true, ..LaneOptions::default() };
        let builder = Orb::builder().lane(own).listen(&format!("unix:{}", socket.display()));
        let mut builder = builder.map_err(ServiceError::Endpoint)?;
        let mut certificates = Certificates::default();
        let refusals = Arc::new(RefusalNotices::of("refused over TLS"));
        let excess = Arc::new(RefusalNotices::of("refused"));
        let clock = MonotonicClock::start();
        if let Some(remote) = remote {
            let lane = LaneOptions { name: "broker-tls".to_owned(), threads: REMOTE_THREADS, ..LaneOptions::default() };
            let (told, soon) = (refusals.clone(), wake.clone());
            let tls = remote.tls.on_refused(move |who, reason| {
                if told.note(who, reason) {
                    soon.post();
                }
            });
            builder = builder.lane(lane).tls_server(tls);
            for endpoint in &remote.endpoints {
                builder = builder.listen(endpoint).map_err(ServiceError::Endpoint)?;
            }
            builder = builder.server_interceptor(CertificateFilter(remote.certificates.clone()));
            certificates = remote.certificates;
        }
        let gate = RequestLimiter {
            access: core.access(),
            rules: core.rules().clone(),
            certificates: certificates.clone(),
            clock,
            refusals: excess.clone(),
            wake: wake.clone(),
            users: UserTable::default(),
        };
        let orb = builder.server_interceptor(gate).build().map_err(ServiceError::Orb)?;
        let shared = Arc::new(BrokerShared {
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
        externals.events().listen(move |about| {
            if let Some(shared) = weak.upgrade() {
                shared.answered(about);
            }
        });
        // Whoever asks before all tasks are here again waits for that.
        let mut core = shared.core.lock();
        core.use_externals(externals.clone());
        core.wake_on_events(&shared.wake);
        // Numbers are not given twice, so references outlive the broker as tasks do.
        let tasks = orb
            .adapter("tasks")
            .persistent()
            .default_servant::<dyn task::Task>(Arc::new(task::TaskServant(shared.clone())));
        let tasks = tasks.build().map_err(ServiceError::Adapter)?;
        // Cannot be set already: it was made above.
        let _ = shared.adapter.set(tasks);
        let broker = orb.adapter("broker").persistent().build().map_err(ServiceError::Adapter)?;
        let broker =
            broker.activate_as::<dyn broker::Broker>("broker", Arc::new(broker::BrokerServant(shared.clone())));
        orb.publish(KEY, &broker.map_err(ServiceError::Adapter)?).map_err(ServiceError::Adapter)?;
        socket::open_to_clients(socket, uid).map_err(|error| ServiceError::Socket(socket.to_owned(), error))?;
        core.rejoin(shared.clock.now());
        drop(core);
        orb.ready();
        Ok(BrokerService { shared, orb, externals })
    }

    /// How it stands.
    pub fn status(&self) -> BrokerStatus {
        self.shared.status()
    }

    /// Where it serves other machines, as it turned out: port 0 is one that the system chose.
    pub fn remote(&self) -> impl Iterator<Item = String> {
        self.orb.endpoints().iter().filter_map(|endpoint| match endpoint {
            Endpoint::Tls { host, port, .. } => Some(match host.contains(':') {
                true => format!("ssliop://[{host}]:{port}"),
                false => format!("ssliop://{host}:{port}"),
            }),
            _ => None,
        })
    }

    /// Drives the broker until `interrupt` asks for its end; then everything is put back as it was. `tell` is given what
    /// the operator should know, and must not wait for anybody; `manager` that the broker lives.
    pub fn run(&self, interrupt: &Interrupt, manager: &Notifier, mut tell: impl FnMut(&str)) {
        let BrokerShared { core, wake, clock, .. } = &*self.shared;
        let mut alive = Instant::ZERO;
        let mut throttle = CpuThrottle::new(clock.now());
        loop {
            let (next, notices) = {
                let mut core = core.lock();
                if let Some(share) = throttle.measured(clock.now()) {
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
            throttle.slow_down(clock);
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
struct CpuThrottle {
    measured: (Instant, Span),
    /// What it may still consume at once, at an instant and a reading of its clock.
    left: Span,
    since: (Instant, Span),
}

impl CpuThrottle {
    /// It consumes at most this much at once, and beyond that a quarter of a CPU.
    const BURST: Span = Span::from_millis(2);
    const PART: u64 = 4;
    /// No rest is longer.
    const REST: Span = Span::from_millis(20);
    const MEASURE: Span = Span::from_secs(1);

    fn new(now: Instant) -> CpuThrottle {
        let own = own_cpu_time();
        CpuThrottle { measured: (now, own), left: CpuThrottle::BURST, since: (now, own) }
    }

    /// Its part of a CPU since the last measurement, once a second.
    fn measured(&mut self, now: Instant) -> Option<Share> {
        let (then, before) = self.measured;
        let passed = now.since(then);
        if passed < CpuThrottle::MEASURE {
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
        let earned = Span::from_nanos(now.since(then).as_nanos() / CpuThrottle::PART);
        let left = (self.left + earned).min(CpuThrottle::BURST);
        let spent = own.saturating_sub(before);
        self.left = left.saturating_sub(spent);
        let owed = spent.saturating_sub(left);
        if !owed.is_zero() {
            // Windows wait to be closed meanwhile.
            clock.sleep_until(now.saturating_add((owed * CpuThrottle::PART).min(CpuThrottle::REST)));
        }
    }
}

impl BrokerShared {
    fn status(&self) -> BrokerStatus {
        let core = self.core.lock();
        let (policy, cap, reserved) = core.policy();
        let (runs, counted) = core.runs();
        let run = |run: RunSnapshot| wire::RunStatus {
            name: run.name,
            process: run.process,
            owner: run.owner,
            shares: run
                .shares
                .iter()
                .map(|(cpu, share)| CpuShare { cpu: *cpu, cpu_share: share.as_millionths() })
                .collect(),
            counted,
        };
        let way =
            |way: crate::platform::ProxyInfo| ProxyStatus { name: way.name.into(), used: way.used, reason: way.reason };
        BrokerStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: std::process::id(),
            policy,
            cap: cap.as_millionths(),
            reserved: reserved.as_millionths(),
            tasks: u32::try_from(core.count()).unwrap_or(u32::MAX),
            proxies: core.proxies().into_iter().map(way).collect(),
            runs: runs.into_iter().map(run).collect(),
        }
    }

    /// Somebody elsewhere has answered, or failed.
    fn answered(&self, about: ExternalEvent) {
        match about {
            ExternalEvent::Task(task) => self.core.lock().report_early(task, self.clock.now()),
            ExternalEvent::Policy => self.core.lock().policy_answered(self.clock.now()),
            // Its answers are heard when the broker is driven.
            ExternalEvent::Scheduler => (),
        }
        self.wake.post();
    }

    /// Does something with the broker's state, at an instant, for whoever calls.
    fn with<R>(&self, act: impl FnOnce(&mut BrokerState, &Caller, Instant) -> R) -> R {
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
    fn with_moves<R>(&self, act: impl FnOnce(&mut BrokerState, &Caller, Instant) -> R) -> R {
        self.prepare_moves();
        self.with(act)
    }

    fn prepare_moves(&self) {
        self.moves.iter().for_each(|moves| moves.prepare());
    }
}

impl fmt::Debug for BrokerService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("at", &self.orb.endpoints()).finish_non_exhaustive()
    }
}

/// Nobody can refer to a task's object while the broker ends.
fn ending(_: AdapterError) -> SystemException {
    SystemKind::Transient.not_done(0)
}
