//! The broker's objects on the ORB, and the thread that runs the broker.
//!
//! ```text
//!   clients ─ Unix socket, TLS ► threads of the ORB ──┐ lock (priority inheritance), change, unlock
//!                                                     ▼
//!   reports and windows ──► the broker's thread ──► BrokerState ──► machine
//! ```
//!
//! The thread that makes a change also applies it, and wakes the broker's thread if that must act earlier. No thread
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
use crate::certificates::{CertificateFilter, Certificates};
use crate::external::{ExternalEvent, Externals};
use crate::idl::cpu_broker::{self as wire, BrokerStatus, CpuShare, ProxyStatus};
use crate::limiter::{RequestLimiter, UserTable};
use crate::proxy::moves::Moves;
use crate::refusals::RefusalNotices;
use crate::socket;
use crate::state::{BrokerState, RunSnapshot};

/// A broker in this process.
pub struct BrokerService {
    shared: Arc<BrokerShared>,
    orb: Orb,
    externals: Arc<Externals>,
}

/// The state that all objects share.
pub(crate) struct BrokerShared {
    core: PiMutex<BrokerState>,
    moves: Option<Arc<Moves>>,
    wake: Arc<Wake>,
    clock: MonotonicClock,
    /// The adapter of tasks.
    adapter: std::sync::OnceLock<Adapter>,
    certificates: Certificates,
    refusals: Arc<RefusalNotices>,
    /// Notices about users above their limits.
    excess: Arc<RefusalNotices>,
}

/// Endpoints for other machines, besides the socket.
#[derive(Debug)]
pub struct RemoteAccess {
    /// Endpoints: `ssliop://HOST:PORT`.
    pub endpoints: Vec<String>,
    /// The broker's certificate and the accepted authorities.
    pub tls: TlsServer,
    /// The rights of certificates.
    pub certificates: Certificates,
}

/// Threads for other machines; clients of this machine have others.
const REMOTE_THREADS: usize = 8;

/// Why the broker cannot start.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServiceError {
    /// The socket's path is not a valid endpoint.
    Endpoint(ListenError),
    /// It cannot listen.
    Orb(OrbError),
    /// The ORB was shut down.
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
    /// Starts to serve at a socket in an existing directory ([`socket::prepare`]). A post to `wake` wakes
    /// [`BrokerService::run`].
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

    /// The same, also for other machines.
    ///
    /// # Errors
    ///
    /// If an address is in use, or the system refuses.
    pub fn start_for(
        core: BrokerState,
        socket: &std::path::Path,
        uid: u32,
        remote: Option<RemoteAccess>,
        wake: Arc<Wake>,
    ) -> Result<BrokerService, ServiceError> {
        // Programs report once a period: no wake-up between two reports matters more than latency.
        let own = LaneOptions { brief: true, ..LaneOptions::default() };
        let builder = Orb::builder().lane(own).listen(&format!("unix:{}", socket.display()));
        let mut builder = builder.map_err(ServiceError::Endpoint)?;
        let mut certificates = Certificates::default();
        let refusals = Arc::new(RefusalNotices::of("refused over TLS"));
        let excess = Arc::new(RefusalNotices::of("refused"));
        let clock = MonotonicClock::start();
        if let Some(remote) = remote {
            let lane = LaneOptions { name: "broker-tls".to_owned(), threads: REMOTE_THREADS, ..LaneOptions::default() };
            let (notices_of_tls, wake_of_tls) = (refusals.clone(), wake.clone());
            let tls = remote.tls.on_refused(move |who, reason| {
                if notices_of_tls.note(who, reason) {
                    wake_of_tls.post();
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
        // Clients wait until all tasks are restored.
        let mut core = shared.core.lock();
        core.use_externals(externals.clone());
        core.wake_on_events(&shared.wake);
        // Numbers are unique, so references outlive the broker as tasks do.
        let tasks = orb
            .adapter("tasks")
            .persistent()
            .default_servant::<dyn task::Task>(Arc::new(task::TaskServant(shared.clone())));
        let tasks = tasks.build().map_err(ServiceError::Adapter)?;
        // Set only here.
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

    /// The status of the broker.
    pub fn status(&self) -> BrokerStatus {
        self.shared.status()
    }

    /// The endpoints for other machines, with the port that the system chose for port 0.
    pub fn remote(&self) -> impl Iterator<Item = String> {
        self.orb.endpoints().iter().filter_map(|endpoint| match endpoint {
            IorEndpoint::Tls { host, port, .. } => Some(match host.contains(':') {
                true => format!("ssliop://[{host}]:{port}"),
                false => format!("ssliop://{host}:{port}"),
            }),
            _ => None,
        })
    }

    /// Runs the broker until `interrupt`, then restores everything. `report` receives notices for the operator and must
    /// not block; `manager` receives the watchdog's notifications.
    pub fn run(&self, interrupt: &Interrupt, manager: &Notifier, mut report: impl FnMut(&str)) {
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
            notices.for_each(|notice| report(&notice));
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
            // Many tasks need several rounds: an expired sleep would cost as much as another.
            if until > clock.now() {
                wake.wait_until(clock, until);
            }
        }
        // First no more clients, so that no grant ends at once.
        self.orb.shutdown();
        self.shared.prepare_moves();
        self.shared.core.lock().end();
        self.externals.end();
    }
}

/// Limits the CPU time of the broker's thread, which runs above the lanes of critical work.
struct CpuThrottle {
    measured: (Instant, Span),
    /// What it may still consume at once; the instant and the thread's CPU time then.
    left: Span,
    since: (Instant, Span),
}

impl CpuThrottle {
    /// The largest burst; beyond it a quarter of a CPU.
    const BURST: Span = Span::from_millis(2);
    const PART: u64 = 4;
    /// The longest pause.
    const REST: Span = Span::from_millis(20);
    const MEASURE: Span = Span::from_secs(1);

    fn new(now: Instant) -> CpuThrottle {
        let own = own_cpu_time();
        CpuThrottle { measured: (now, own), left: CpuThrottle::BURST, since: (now, own) }
    }

    /// The thread's share of a CPU since the last measurement, once a second.
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

    /// Sleeps after a larger burst.
    fn slow_down(&mut self, clock: &MonotonicClock) {
        let (now, own) = (clock.now(), own_cpu_time());
        let (then, before) = std::mem::replace(&mut self.since, (now, own));
        let earned = Span::from_nanos(now.since(then).as_nanos() / CpuThrottle::PART);
        let left = (self.left + earned).min(CpuThrottle::BURST);
        let spent = own.saturating_sub(before);
        self.left = left.saturating_sub(spent);
        let owed = spent.saturating_sub(left);
        if !owed.is_zero() {
            // Open windows wait meanwhile.
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

    /// An external component has answered or failed.
    fn answered(&self, about: ExternalEvent) {
        match about {
            ExternalEvent::Task(task) => self.core.lock().report_early(task, self.clock.now()),
            ExternalEvent::Policy => self.core.lock().policy_answered(self.clock.now()),
            // The next tick reads its answers.
            ExternalEvent::Scheduler => (),
        }
        self.wake.post();
    }

    /// Calls `act` with the broker's state for the present caller.
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

    /// The same for requests that may move processes between control groups.
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

/// The adapter is gone while the broker ends.
fn ending(_: AdapterError) -> SystemException {
    SystemKind::Transient.not_done(0)
}
