//! The object for operators: of a node, or of a run of all hosts in one process.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use hyoshi_events::EventChannel;
use hyoshi_model::predicate::ConditionReading;
use hyoshi_model::{Endpoint, Span, System};
use hyoshi_orb::{LaneOptions, Orb, OrbBuilder, ServerLimits, SystemException, SystemKind, ThreadPolicy};
use hyoshi_orb::{certificate_names, current, minor};
use hyoshi_os::priority::RELEASE;
use hyoshi_os::trusted::Folder;
use hyoshi_os::{Clock, Interrupt, MonotonicClock};
use hyoshi_runtime::{
    ActionOutcome, AdmissionControl, AdmissionError, ChainThreads, ContractControl, ContractError, ContractState,
    RunHandles,
};

use crate::control::KEY;
use crate::idl::hyoshi_node as wire;
use crate::idl::hyoshi_node::{
    AdmitError, CancelThreadError, ContractTextError, ForceRegionError, PublishAtRateError, PublishError,
    RegisterPublisherError, SetConditionError, SubscribeError, TakeError, ThreadsError, WithdrawError,
};
use crate::objects::{ServingObjects, WatchedObjects};
use crate::peers::NodeError;
use crate::rates::client_name;
use crate::strangers::{PENALTY, Strangers};
use crate::threads::{OperatedThreads, RunSource, begin_of};
use crate::watched_events::WatchedEvents;

/// The largest message of an operator: a publication with the largest payload (64 KiB) fits.
const MESSAGE: usize = 128 << 10;

/// The object for operators.
pub(crate) struct ForOperators {
    pub standing: Box<dyn Fn() -> wire::NodeStanding + Send + Sync>,
    pub requests: WatchedObjects,
    pub events: WatchedEvents,
    pub threads: OperatedThreads,
    pub admissions: AdmissionControl,
    pub contracts: ContractControl,
    /// Requested when an operator stops the run.
    pub interrupt: Interrupt,
    pub access: OperatorAccess,
}

/// The operators of a node.
#[derive(Clone, Debug)]
pub(crate) enum OperatorAccess {
    /// The user of its process: the object is at a socket that no other user can open.
    User,
    /// Holders of certificates.
    Certificates {
        /// Counts and delays the others.
        strangers: Arc<Strangers>,
        /// May end the run.
        operators: BTreeSet<String>,
        /// May read its state, besides operators; `None`: all may.
        readers: Option<BTreeSet<String>>,
    },
}

impl ForOperators {
    /// The first name in the caller's certificate; `None` for the user of the run.
    fn check(&self, may_change: bool) -> Result<Option<String>, SystemException> {
        let OperatorAccess::Certificates { strangers, operators, readers } = &self.access else {
            return Ok(None);
        };
        let now = MonotonicClock::from_origin(0).now().as_nanos();
        let denied = || {
            strangers.refuse(now);
            SystemKind::NoPermission.not_done(minor::BROKER_NAME)
        };
        let certificate = current::peer_certificate().ok_or_else(denied)?;
        let names = certificate_names(&certificate).map_err(|_| denied())?;
        let operates = names.iter().any(|name| operators.contains(name));
        let reads = readers.as_ref().is_none_or(|readers| names.iter().any(|name| readers.contains(name)));
        if !operates && (may_change || !reads) {
            return Err(denied());
        }
        std::thread::sleep(PENALTY);
        Ok(Some(names.into_iter().next().unwrap_or_default()))
    }
}

impl wire::Control for ForOperators {
    fn standing(&self) -> Result<wire::NodeStanding, SystemException> {
        self.check(false)?;
        Ok((self.standing)())
    }

    fn requests(&self) -> Result<wire::ObjectRequests, SystemException> {
        self.check(false)?;
        Ok(self.requests.requests())
    }

    fn events(&self) -> Result<wire::EventStates, SystemException> {
        self.check(false)?;
        Ok(self.events.states())
    }

    fn subscribe(&self, patterns: &[String]) -> Result<u64, SubscribeError> {
        let owner = self.check(false)?;
        Ok(self.events.subscribe(owner, patterns)?)
    }

    fn take(&self, subscription: u64) -> Result<wire::EventBatch, TakeError> {
        let owner = self.check(false)?;
        Ok(self.events.take(owner.as_deref(), subscription)?)
    }

    fn publish(&self, name: &str, payload: &[u8]) -> Result<(), PublishError> {
        self.check(true)?;
        Ok(self.events.publish(name, payload)?)
    }

    fn register_publisher(
        &self,
        name: &str,
        shortest: u64,
        longest: u64,
    ) -> Result<wire::RegisteredPublisher, RegisterPublisherError> {
        let owner = self.check(true)?;
        let range = (Span::from_nanos(shortest), Span::from_nanos(longest));
        Ok(self.events.register_publisher(owner, &client_name(), name, range)?)
    }

    fn publish_at_rate(&self, ticket: u64, payload: &[u8]) -> Result<wire::PacedPublication, PublishAtRateError> {
        let owner = self.check(true)?;
        self.events.publish_at_rate(owner.as_deref(), ticket, payload)
    }

    fn remove_publisher(&self, ticket: u64) -> Result<(), SystemException> {
        let owner = self.check(true)?;
        self.events.remove_publisher(owner.as_deref(), ticket);
        Ok(())
    }

    fn threads(&self, of: &wire::ThreadRef) -> Result<wire::ThreadStates, ThreadsError> {
        self.check(false)?;
        Ok(self.threads.states(of)?)
    }

    fn cancel_thread(&self, which: &wire::ThreadRef) -> Result<wire::CancelledThread, CancelThreadError> {
        self.check(true)?;
        Ok(self.threads.cancel(which)?)
    }

    fn admit(&self, operation: &str) -> Result<wire::AdmittedOperation, AdmitError> {
        self.check(true)?;
        let admitted = self.admissions.admit(operation).map_err(refused)?;
        let note = admitted.lower_because.unwrap_or_default().to_owned();
        Ok(wire::AdmittedOperation { period: admitted.period.as_nanos(), note })
    }

    fn withdraw(&self, operation: &str) -> Result<(), WithdrawError> {
        self.check(true)?;
        Ok(self.admissions.withdraw(operation).map_err(refused)?)
    }

    fn contracts(&self) -> Result<wire::ContractStates, SystemException> {
        self.check(false)?;
        let actions = self.contracts.actions();
        Ok(self.contracts.states().into_iter().map(|state| contract_state(state, &actions)).collect())
    }

    fn contract_text(&self, contract: &str) -> Result<String, ContractTextError> {
        self.check(false)?;
        Ok(self.contracts.text(contract).map_err(contract_refused)?)
    }

    fn set_condition(&self, condition: &str, value: f64) -> Result<(), SetConditionError> {
        self.check(true)?;
        Ok(self.contracts.set(condition, value).map_err(contract_refused)?)
    }

    fn force_region(&self, contract: &str, region: &str, lasting: u64) -> Result<(), ForceRegionError> {
        self.check(true)?;
        let region = Some(region).filter(|region| !region.is_empty());
        let lasting = Some(Span::from_nanos(lasting)).filter(|lasting| !lasting.is_zero());
        Ok(self.contracts.force(contract, region, lasting).map_err(contract_refused)?)
    }

    fn stop(&self) -> Result<(), SystemException> {
        self.check(true)?;
        self.interrupt.request();
        Ok(())
    }
}

/// The most actions of a contract in its state.
const ACTIONS: usize = 64;

fn contract_state(state: ContractState, actions: &[ActionOutcome]) -> wire::ContractStanding {
    let actions = actions.iter().filter(|one| one.contract == state.contract);
    let action = |one: &ActionOutcome| {
        let last = one.last.as_ref()?.as_ref().err().cloned().unwrap_or_default();
        let (region, action, done, failed) = (one.region.clone(), one.action.clone(), one.done, one.failed);
        Some(wire::ActionStanding { region, action, done, failed, last })
    };
    let actions = actions.filter_map(action).take(ACTIONS).collect();
    let condition = |(name, reading)| match reading {
        ConditionReading::Fresh(value) => wire::ConditionStanding { name, value, stale: false },
        ConditionReading::Stale => wire::ConditionStanding { name, value: 0.0, stale: true },
    };
    wire::ContractStanding {
        contract: state.contract,
        regions: state.regions,
        forced: state.forced.unwrap_or_default(),
        forced_ends: state.forced_left.is_some(),
        forced_left: state.forced_left.unwrap_or_default().as_nanos(),
        evaluated_by: state.evaluated_by.unwrap_or_default(),
        conditions: state.conditions.into_iter().map(condition).collect(),
        actions,
    }
}

fn contract_refused(error: ContractError) -> wire::ContractRefused {
    wire::ContractRefused { why: error.to_string(), remedy: error.remedy() }
}

fn refused(error: AdmissionError) -> wire::AdmissionRefused {
    wire::AdmissionRefused { why: error.to_string(), remedy: error.remedy() }
}

/// Serves the operators of this user at a socket of mode 0600.
pub(crate) fn serve(socket: &Path, operators: ForOperators) -> Result<Orb, NodeError> {
    make_folder(socket)?;
    // A cancelled thread must end while all lanes are busy. Only the user of the run can call here.
    let policy = if operators.threads.any() { ThreadPolicy::Fifo(RELEASE) } else { ThreadPolicy::Other };
    let lane = LaneOptions { name: "control".to_owned(), threads: 4, brief: true, policy, ..LaneOptions::default() };
    let limits = ServerLimits { connections: 32, message: MESSAGE, ..ServerLimits::default() };
    let builder = Orb::builder().server_limits(limits).lane(lane);
    let builder = builder.listen(&format!("unix:{}", socket.display())).map_err(NodeError::Endpoint)?;
    let orb = build(builder)?;
    publish(&orb, operators)?;
    close_to_others(socket)?;
    orb.ready();
    Ok(orb)
}

pub(crate) fn build(builder: OrbBuilder) -> Result<Orb, NodeError> {
    builder.build().map_err(NodeError::Orb)
}

/// Listens at an endpoint of the file; without a certificate not over TLS.
pub(crate) fn listen(builder: OrbBuilder, endpoint: &Endpoint, has_certificate: bool) -> Result<OrbBuilder, NodeError> {
    match endpoint {
        Endpoint::Tls(_) if !has_certificate => {
            return Err(NodeError::NoCertificate { endpoint: endpoint.clone() });
        }
        Endpoint::Tcp(address) => builder.listen(&format!("iiop://{address}")),
        Endpoint::Tls(address) => builder.listen(&format!("ssliop://{address}")),
        Endpoint::Unix(path) => {
            make_folder(Path::new(path))?;
            builder.listen(&format!("unix:{path}"))
        }
    }
    .map_err(NodeError::Endpoint)
}

/// Publishes the object for operators.
pub(crate) fn publish(orb: &Orb, operators: ForOperators) -> Result<(), NodeError> {
    let adapter = orb.adapter("operators").persistent().build().map_err(NodeError::Adapter)?;
    let object = adapter.activate_as::<dyn wire::Control>("control", Arc::new(operators));
    object.and_then(|object| orb.publish(KEY, &object)).map_err(NodeError::Adapter)
}

/// The directory of a Unix socket, in which no other user can replace it.
pub(crate) fn make_folder(socket: &Path) -> Result<(), NodeError> {
    let failed = |error| NodeError::Socket { path: socket.to_owned(), error };
    let folder = socket.parent().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
    Folder::make(folder, 0o700).map(drop).map_err(|mistrust| failed(mistrust.into()))
}

pub(crate) fn close_to_others(socket: &Path) -> Result<(), NodeError> {
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600))
        .map_err(|error| NodeError::Socket { path: socket.to_owned(), error })
}

/// The control object of a run of all hosts in one process. Dropping it closes its socket.
#[derive(Debug)]
pub struct WholeSystem {
    begun: Arc<OnceLock<(MonotonicClock, [u8; 16])>>,
    requests: WatchedObjects,
    threads: ChainThreads,
    orb: Orb,
}

impl WholeSystem {
    /// Serves the system at `socket`, with the events of a channel, and the handles of its run. Before
    /// [`begin`](Self::begin), operators see a run that waits for hosts. Their `stop` requests `interrupt`.
    ///
    /// # Errors
    ///
    /// If it cannot listen there.
    pub fn serve(
        system: Arc<System>,
        socket: &Path,
        events: Option<EventChannel>,
        RunHandles { threads, admissions, contracts, machine, .. }: RunHandles,
        interrupt: Interrupt,
    ) -> Result<WholeSystem, NodeError> {
        let begun: Arc<OnceLock<(MonotonicClock, [u8; 16])>> = Arc::default();
        let (seen, run) = (begun.clone(), RunSource::Begun(begun.clone()));
        let standing = move || whole(&system, seen.get(), machine.latest());
        let (standing, requests) = (Box::new(standing), WatchedObjects::default());
        let operators = ForOperators {
            standing,
            requests: requests.clone(),
            events: WatchedEvents::new(events),
            threads: OperatedThreads::new(threads.clone(), None, run),
            admissions,
            contracts,
            interrupt,
            access: OperatorAccess::User,
        };
        Ok(WholeSystem { begun, requests, threads, orb: serve(socket, operators)? })
    }

    /// Shows requests to these objects to operators. Only the first call counts.
    pub fn show(&self, objects: &ServingObjects) {
        self.requests.set(objects);
    }

    /// The run has begun, with instant 0 of `clock`. Only the first call counts.
    pub fn begin(&self, clock: MonotonicClock, run: [u8; 16]) {
        self.threads.set_run(begin_of(&run));
        let _ = self.begun.set((clock, run));
    }
}

impl Drop for WholeSystem {
    fn drop(&mut self) {
        self.orb.shutdown();
    }
}

/// The state of a run of all hosts.
fn whole(system: &System, begun: Option<&(MonotonicClock, [u8; 16])>, machine: Option<u32>) -> wire::NodeStanding {
    wire::NodeStanding {
        system: system.name.clone(),
        host: String::new(),
        process: std::process::id(),
        gathering: begun.is_none(),
        run: begun.map_or([0; 16], |(_, run)| *run),
        running: begun.map_or(0, |(clock, _)| clock.now().as_nanos()),
        duration: system.duration.as_nanos(),
        refused: 0,
        measured: machine.is_some(),
        utilisation: machine.unwrap_or(0),
        processors: system.processors.iter().map(|processor| processor.name.clone()).collect(),
        peers: Vec::new(),
    }
}
