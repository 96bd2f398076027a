//! Clients of objects, and push suppliers of events, as tasks of a feedback loop (FCS/nORB, section 3.3): they register
//! with the object `rates` at the loop's endpoints, which any ORB can call.
//!
//! ```text
//!   client ═ join ═► thread of the ORB ─► dispatcher: Join ─┐        ┌═ rate(hertz) ═► modulator
//!   client ═ request to its own reference ─► meter ─► job   ├─► pacer┤
//!                                 release thread: Sample ───┘        └─► Leave, if it has vanished
//! ```
//!
//! All of these threads run above the lanes. So rates fall even if the processor is overloaded. A client has a
//! reference of its own for its requests, so each request belongs to one client, independent of its address.

mod modulator;
mod registered;
mod source;
mod wish;

use std::path::Path;
use std::sync::Arc;

use hyoshi_model::{Endpoint, FeedbackLoop, OperationId, Span, System};
use hyoshi_orb::{
    AdapterError, ClientLimits, Ior, LaneOptions, Orb, OwnedLane, ServerLimits, SystemException, SystemKind,
    ThreadPolicy, TlsClient, TlsServer, certificate_names, current, minor,
};
use hyoshi_os::priority::FEEDBACK;
use hyoshi_os::{Spawn, SpawnedThread, users};
use hyoshi_runtime::{ClientMeter, ClientRateControl, Rejected};

use registered::RegisteredClients;
use source::{JoinLimits, JoinSource};
use wish::{RateRefusal, hertz_of};

use crate::idl::hyoshi_rates as wire;
use crate::operators::{build, close_to_others, listen};
use crate::peers::NodeError;
use crate::strangers::Strangers;

/// The most threads that serve calls. They are started as needed.
const THREADS: usize = 256;

/// The key of the object.
const KEY: &str = "rates";

/// Activates an object for the requests of one client, under an id.
pub(crate) type ActivateTarget = Box<dyn Fn(&str) -> Result<Ior, AdapterError> + Send + Sync>;

/// A place for the requests of one client at a time.
pub(crate) struct ClientGate {
    pub meter: Arc<ClientMeter>,
    pub activate: ActivateTarget,
    /// Waits until its running requests have ended.
    pub deactivate: Arc<dyn Fn(&str) + Send + Sync>,
}

/// The registration of one loop's clients, until it is dropped.
pub(crate) struct ServedRates {
    orb: Orb,
    clients: Arc<RegisteredClients>,
    pacer: Option<SpawnedThread<()>>,
}

/// The object.
struct RatesObject {
    clients: Arc<RegisteredClients>,
    strangers: Strangers,
    limits: JoinLimits,
}

impl ServedRates {
    /// Serves the clients of a loop. `gates` are by operation: each client of it needs a free one. Requests to objects are
    /// read from the lane.
    pub fn serve(
        system: &Arc<System>,
        declared: &FeedbackLoop,
        control: ClientRateControl,
        (gates, lane): (Vec<(OperationId, Vec<ClientGate>)>, Option<OwnedLane>),
        tls: Option<(&TlsServer, &TlsClient)>,
    ) -> Result<ServedRates, NodeError> {
        let policy = ThreadPolicy::Fifo(FEEDBACK);
        let connections = 4 * control.most() + 32;
        // A delayed call keeps its thread, so each connection has one.
        let threads = connections.min(THREADS);
        let own_lane = LaneOptions { name: "rates".to_owned(), threads, policy, brief: true, ..LaneOptions::default() };
        let limits = ServerLimits {
            connections,
            message: 16 << 10,
            in_flight: 1,
            backlog: 1 << 20,
            unfinished: 1 << 20,
            ending: Span::from_secs(1),
            ..ServerLimits::default()
        };
        let client_limits = ClientLimits { message: 16 << 10, backlog: 4 << 10, ..ClientLimits::default() };
        let mut builder = Orb::builder().server_limits(limits).client_limits(client_limits).lane(own_lane);
        if let Some((server, client)) = tls {
            let unusable = |_| NodeError::NoCertificate { endpoint: declared.endpoints[0].clone() };
            builder = builder.tls_server(server.clone()).tls_client(client.clone()).map_err(unusable)?;
        }
        if declared.endpoints.iter().all(|endpoint| matches!(endpoint, Endpoint::Tls(_))) {
            // Rates are then sent only encrypted, too.
            builder = builder.tls_only();
        }
        for endpoint in &declared.endpoints {
            builder = listen(builder, endpoint, tls.is_some())?;
        }
        let orb = build(builder)?;
        for endpoint in &declared.endpoints {
            if let Endpoint::Unix(path) = endpoint {
                close_to_others(Path::new(path))?;
            }
        }
        let limits = JoinLimits::new(control.most());
        let clients = Arc::new(RegisteredClients::new(system.clone(), declared, control, (gates, lane)));
        let object = RatesObject { clients: clients.clone(), strangers: Strangers::new(), limits };
        let adapter = orb.adapter("rates").persistent().build().map_err(NodeError::Adapter)?;
        let stub = adapter.activate_as::<dyn wire::Rates>(KEY, Arc::new(object)).map_err(NodeError::Adapter)?;
        orb.publish(KEY, &stub).map_err(NodeError::Adapter)?;
        let watched = clients.clone();
        let pacer = Spawn::new("rates").policy(policy).spawn(move || watched.pace());
        let pacer = pacer.map_err(NodeError::Thread)?;
        orb.ready();
        Ok(ServedRates { orb, clients, pacer: Some(pacer) })
    }

    /// Clients that vanished, ignored their rates, or were refused.
    pub fn reports(&self) -> Vec<String> {
        self.clients.reports()
    }
}

impl Drop for ServedRates {
    fn drop(&mut self) {
        self.clients.end();
        // It does nothing that could panic.
        self.pacer.take().into_iter().for_each(|thread| drop(thread.join()));
        self.orb.shutdown();
        // Ends clients that joined during the shutdown.
        self.clients.end();
    }
}

impl std::fmt::Debug for ServedRates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServedRates").field("clients", &self.clients).finish_non_exhaustive()
    }
}

impl wire::Rates for RatesObject {
    fn join(&self, what: &wire::Task, to: Option<&wire::ModulatorStub>) -> Result<wire::Grant, wire::JoinError> {
        let (now, source) = (registered::now(), JoinSource::current());
        self.strangers.delay(now);
        let refuse = |refusal: RateRefusal| wire::JoinError::from(wire::Refused::from(refusal));
        let modulator = to.map(AsRef::as_ref);
        if let Some(modulator) = modulator {
            let is_secure = current::peer_certificate().is_some();
            modulator::check(modulator.ior(), current::peer_address(), is_secure).map_err(refuse)?;
        }
        if !self.limits.allows(source, now) {
            return Err(refuse(RateRefusal::new("clients of this address join too often", "join again in a second")));
        }
        let joined = self.clients.join(what, (&client_name(), source), modulator);
        joined.map_err(|refusal| {
            self.limits.give_back(source);
            refuse(refusal)
        })
    }

    fn rate(&self, ticket: u64) -> Result<f64, wire::RateError> {
        let polled = self.clients.poll(ticket);
        let (period, in_time) = polled.map_err(|refusal| {
            self.strangers.refuse(registered::now());
            wire::RateError::from(wire::Refused::from(refusal))
        })?;
        if !in_time {
            self.strangers.delay(registered::now());
        }
        Ok(hertz_of(period))
    }

    fn leave(&self, ticket: u64) -> Result<(), SystemException> {
        if !self.clients.leave(ticket) {
            self.strangers.refuse(registered::now());
        }
        Ok(())
    }
}

/// The exception of a request that the meter of its client rejects.
pub(crate) fn beyond_rate(rejected: Rejected) -> SystemException {
    match rejected {
        Rejected::TooSoon => SystemKind::Transient.not_done(minor::TOO_OFTEN),
        _ => SystemKind::ObjectNotExist.not_done(minor::NO_OBJECT),
    }
}

/// The name of the client of the request that this thread serves: in its certificate, its user, or its address.
pub(crate) fn client_name() -> String {
    let names = current::peer_certificate().and_then(|certificate| certificate_names(&certificate).ok());
    let certificate = names.and_then(|names| names.into_iter().next());
    let user = || current::peer().map(|client| users::name_of(client.uid));
    let address = || current::peer_address().map(|address| address.to_canonical().to_string());
    certificate.or_else(user).or_else(address).unwrap_or_else(|| "this process".to_owned())
}
