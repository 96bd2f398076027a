//! The objects of a file ([object.NAME]): a program has their servants, the node serves them as jobs.
//!
//! ```text
//!   Objects ─ install: bodies of the operations ─► InstalledObjects ─ serve: ORBs at the endpoints ─► ServingObjects
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use hyoshi_model::{
    ALL_OPERATIONS, Contract, Endpoint, ExternalAction, HostId, OperationId, ProcessorId, ServedObject, System,
};
use hyoshi_orb::behaviour::OperationDelegate;
use hyoshi_orb::{
    Adapter, AdapterError, Interface, Ior, LaneOptions, Orb, OrbError, OwnedLane, ServerLimits, SystemException,
    TlsClient, TlsServer,
};
use hyoshi_runtime::{ClientMeter, Node, Prepared};

use crate::contact::corbaloc;
use crate::corba_events::CorbaEvents;
use crate::delegates::FileDelegates;
use crate::idl::hyoshi_node as wire;
use crate::jobs::{JobOrder, ServedLane};
use crate::operators::{build, close_to_others, listen};
use crate::peers::{NodeError, NodePeers};
use crate::rates::{ClientGate, ServedRates};
use crate::servant_delegates::reference;
use crate::servant_error::ServantError;

/// Activates a servant under an id, with a binding to an order. With an ORB, also publishes it under that id.
type Activate = Arc<dyn Fn(&Adapter, &str, u32, Option<&Orb>) -> Result<Ior, AdapterError> + Send + Sync>;

/// Places for registered clients, by operation.
type ClientGates = Vec<(OperationId, Vec<ClientGate>)>;

/// The servants of a program, by the names of their objects in the file.
#[derive(Default)]
pub struct Objects {
    servants: Vec<ObjectServant>,
}

/// A servant, and the operations of its interface.
struct ObjectServant {
    object: String,
    operations: &'static [&'static str],
    activate: Activate,
}

/// Servants with the orders of their processors.
pub struct InstalledObjects {
    system: Arc<System>,
    servants: Vec<ObjectServant>,
    delegates: FileDelegates,
    orders: Vec<(ProcessorId, JobOrder)>,
    unserved: Vec<String>,
    /// Places for the pushes of registered clients.
    pushes: ClientGates,
}

/// Objects that clients can call, until it is dropped.
#[derive(Debug)]
#[must_use = "clients can call the objects only while it exists"]
pub struct ServingObjects {
    // In this order: clients leave before the ORB of their requests is shut down.
    rates: Vec<ServedRates>,
    processors: Vec<ServingProcessor>,
    delegates: FileDelegates,
    /// Objects of the file, on this host, for which the program has no servant.
    unserved: Vec<String>,
}

#[derive(Debug)]
struct ServingProcessor {
    order: JobOrder,
    // In this order: the lane is read until the ORB is shut down.
    _orb: Orb,
    _lane: ServedLane,
}

/// What happened to requests besides being served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// They asked for more than their clients may, and got what is allowed.
    pub clamped: u64,
    /// They asked for more than their clients may, and were refused.
    pub refused: u64,
    /// Their timing was damaged, and ignored.
    pub damaged: u64,
    /// They arrived after the run.
    pub late: u64,
}

/// The objects whose requests operators see, once they are known.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchedObjects(Arc<OnceLock<Vec<JobOrder>>>);

/// The most requests that operators see.
const MOST_SHOWN: usize = 256;

impl WatchedObjects {
    pub fn set(&self, objects: &ServingObjects) {
        let _ = self.0.set(objects.processors.iter().map(|processor| processor.order.clone()).collect());
    }

    pub fn requests(&self) -> wire::ObjectRequests {
        let orders = self.0.get().map_or(&[][..], Vec::as_slice);
        let mut held: Vec<wire::HeldRequest> = orders.iter().flat_map(JobOrder::held).collect();
        held.sort_by_key(|one| (!one.runs, !one.critical, one.left));
        let all = held.len() as u64;
        held.truncate(MOST_SHOWN);
        let RequestCounts { clamped, refused, damaged, late } = counts(orders);
        wire::ObjectRequests { held, all, clamped, refused, damaged, late }
    }
}

fn counts<'a>(orders: impl IntoIterator<Item = &'a JobOrder>) -> RequestCounts {
    orders.into_iter().fold(RequestCounts::default(), |sum, order| {
        let (clamped, refused) = order.beyond_ceilings();
        RequestCounts {
            clamped: sum.clamped + clamped,
            refused: sum.refused + refused,
            damaged: sum.damaged + order.damaged_timings(),
            late: sum.late + order.refused_after_run(),
        }
    })
}

impl Objects {
    /// No servants.
    pub fn new() -> Self {
        Objects::default()
    }

    /// Adds the servant of an object: `objects.add::<dyn Tracker>("tracker", servant)`.
    pub fn add<T: Interface + ?Sized>(&mut self, object: &str, servant: Arc<T>) {
        let activate: Activate = Arc::new(move |adapter, id, binding, publish| {
            let stub = adapter.activate_ordered::<T>(id, servant.clone(), binding)?;
            publish.map_or(Ok(()), |orb| orb.publish::<T>(id, &stub))?;
            Ok(stub.as_ref().ior().clone())
        });
        self.servants.push(ObjectServant { object: object.to_owned(), operations: T::OPERATIONS, activate });
    }

    /// The object with a servant here that serves an operation of the file.
    pub fn serving<'s>(&self, system: &'s System, operation: &str) -> Option<&'s str> {
        let serves = |object: &&ServedObject| {
            self.servants.iter().any(|one| one.object == object.name)
                && object.all_operations().any(|id| system.operation(id).name == operation)
        };
        system.objects.iter().find(serves).map(|object| object.name.as_str())
    }

    /// Adds others.
    pub fn extend(&mut self, others: Objects) {
        self.servants.extend(others.servants);
    }

    /// Lets jobs of the objects' operations serve requests. With `host`, only those of this host.
    ///
    /// # Errors
    ///
    /// If the file has no object of a servant's name.
    pub fn install(
        self,
        system: &Arc<System>,
        host: Option<HostId>,
        mut node: Node,
    ) -> Result<(Node, InstalledObjects), ServantError> {
        for (at, ObjectServant { object, .. }) in self.servants.iter().enumerate() {
            if !system.objects.iter().any(|one| one.name == *object) {
                let known = system.objects.iter().map(|one| one.name.clone()).collect();
                return Err(ServantError::Unknown { object: object.clone(), known });
            }
            if self.servants[..at].iter().any(|earlier| earlier.object == *object) {
                return Err(ServantError::Twice { object: object.clone() });
            }
        }
        let servant = |object: &str| self.servants.iter().find(|one| one.object == object);
        let served = |object: &&ServedObject| servant(&object.name).is_some();
        let interface = |object: &str| servant(object).map(|one| one.operations);
        check_operations(system, interface)?;
        let here = |id: &ProcessorId| host.is_none_or(|host| system.processor(*id).host == host);
        let (mut orders, mut unserved) = (Vec::new(), Vec::new());
        for id in system.processor_ids().filter(here) {
            let (own, others): (Vec<_>, Vec<_>) = objects_on(system, id).partition(served);
            unserved.extend(others.iter().map(|object| object.name.clone()));
            if !own.is_empty() {
                let order = JobOrder::new(system, id, own.iter().map(|object| object.requests as usize).sum());
                node = order.install(node);
                orders.push((id, order));
            }
        }
        let delegates = FileDelegates::start(system, host, interface)?;
        node = node.delegates(Arc::new(delegates.clone()));
        let (system, pushes) = (system.clone(), Vec::new());
        Ok((node, InstalledObjects { system, servants: self.servants, delegates, orders, unserved, pushes }))
    }
}

/// Checks the references and operations of delegates: the file does not know the interfaces.
fn check_operations(
    system: &System,
    interface: impl Fn(&str) -> Option<&'static [&'static str]>,
) -> Result<(), ServantError> {
    for one in &system.delegates {
        if let Some(Err(why)) = one.redirect.as_deref().map(reference) {
            return Err(ServantError::Reference { delegate: one.name.clone(), key: "redirect", why });
        }
    }
    let declared = (0u16..).zip(&system.delegates);
    let declared = declared.flat_map(|(place, one)| one.behaviours.iter().map(move |(name, _)| (place, &**name)));
    let actions = system.contracts.iter().flat_map(Contract::external_actions);
    let set = actions.filter_map(|(_, action)| match action {
        ExternalAction::Behave { delegate, operation, .. } => Some((*delegate, &**operation)),
        _ => None,
    });
    for (delegate, operation) in declared.chain(set).filter(|(_, operation)| *operation != ALL_OPERATIONS) {
        let delegate = &system.delegates[usize::from(delegate)];
        let known = delegate.object().and_then(|object| interface(&system.objects[usize::from(object)].name));
        if let Some(known) = known.filter(|known| !known.contains(&operation)) {
            let known = known.iter().map(|name| (*name).to_owned()).collect();
            let (delegate, operation) = (delegate.name.clone(), operation.to_owned());
            return Err(ServantError::NoOperation { delegate, operation, known });
        }
    }
    Ok(())
}

fn objects_on(system: &System, processor: ProcessorId) -> impl Iterator<Item = &ServedObject> {
    system
        .objects
        .iter()
        .filter(move |object| object.operations.first().is_some_and(|id| system.operation(*id).on == processor))
}

/// Places for the requests of registered clients of an object, by operation. There are more places than clients,
/// because requests of clients that have left may still run.
fn gates_of(
    system: &System,
    object: &ServedObject,
    (order, binding): (&JobOrder, u32),
    adapter: &Adapter,
    activate: &Activate,
) -> ClientGates {
    let with_clients =
        |id: OperationId| system.operation(id).clients.map(|clients| (id, 2 * usize::from(clients.most)));
    let mut operations: Vec<(OperationId, usize)> = object.all_operations().filter_map(with_clients).collect();
    operations.dedup();
    let gate = |_| {
        let meter = Arc::new(ClientMeter::default());
        let binding = order.bind_client(binding, &meter)?;
        let (activate, own, other) = (activate.clone(), adapter.clone(), adapter.clone());
        Some(ClientGate {
            meter,
            activate: Box::new(move |id| activate(&own, id, binding, None)),
            // An object that is not active needs nothing.
            deactivate: Arc::new(move |id| drop(other.deactivate(id))),
        })
    };
    operations.into_iter().map(|(id, most)| (id, (0..most).filter_map(gate).collect())).collect()
}

impl InstalledObjects {
    /// Lets CORBA programs register as publishers of these events, too, with feedback loops that set their rates.
    pub fn publishers(self, events: &CorbaEvents) -> InstalledObjects {
        InstalledObjects { pushes: events.client_gates(), ..self }
    }

    /// Serves the objects at their endpoints. Clients that call before the run wait. `tls` is the certificate of the
    /// endpoints, and that of calls to modulators of registered clients.
    ///
    /// # Errors
    ///
    /// If an ORB cannot listen there, or an endpoint over TLS has no certificate.
    pub fn serve(
        mut self,
        node: &mut Prepared,
        tls: Option<(&TlsServer, &TlsClient)>,
    ) -> Result<ServingObjects, NodeError> {
        let (mut processors, mut gates) =
            (Vec::new(), BTreeMap::<ProcessorId, (ClientGates, Option<OwnedLane>)>::new());
        for (id, order) in std::mem::take(&mut self.orders) {
            let (processor, of_objects) = self.serve_processor(id, order, node, tls)?;
            processors.push(processor);
            gates.insert(id, of_objects);
        }
        for (operation, places) in std::mem::take(&mut self.pushes) {
            let of_processor = gates.entry(self.system.operation(operation).on).or_default();
            of_processor.0.push((operation, places));
        }
        let rates = gates.into_iter().filter_map(|(id, gates)| {
            let control = node.client_rates(id).filter(|_| !gates.0.is_empty())?;
            let declared = self.system.feedback.iter().find(|one| one.processor == id && !one.endpoints.is_empty())?;
            Some(ServedRates::serve(&self.system, declared, control, gates, tls))
        });
        let rates = rates.collect::<Result<_, _>>()?;
        Ok(ServingObjects { rates, processors, delegates: self.delegates, unserved: self.unserved })
    }

    fn serve_processor(
        &mut self,
        id: ProcessorId,
        order: JobOrder,
        node: &mut Prepared,
        tls: Option<(&TlsServer, &TlsClient)>,
    ) -> Result<(ServingProcessor, (ClientGates, Option<OwnedLane>)), NodeError> {
        let system = self.system.clone();
        let own: Vec<(&ServedObject, Activate)> = objects_on(&system, id)
            .filter_map(|object| {
                let at = self.servants.iter().position(|one| one.object == object.name)?;
                Some((object, self.servants.swap_remove(at).activate))
            })
            .collect();
        let requests = own.iter().map(|(object, _)| object.requests as usize).sum();
        let lane = LaneOptions { name: LANE.to_owned(), threads: 0, ..LaneOptions::default() };
        let limits = ServerLimits { ending: hyoshi_model::Span::from_secs(1), ..ServerLimits::default() };
        let mut builder = Orb::builder().server_limits(limits).lane(lane).order(order.clone(), requests);
        if let Some((server, _)) = tls {
            builder = builder.tls_server(server.clone());
        }
        let mut endpoints: Vec<&Endpoint> = Vec::new();
        for endpoint in own.iter().flat_map(|(object, _)| &object.endpoints) {
            if endpoints.contains(&endpoint) {
                continue;
            }
            endpoints.push(endpoint);
            builder = listen(builder, endpoint, tls.is_some())?;
        }
        let orb = build(builder)?;
        for path in endpoints.iter().filter_map(|endpoint| match endpoint {
            Endpoint::Unix(path) => Some(Path::new(path)),
            _ => None,
        }) {
            match own.iter().any(|(object, _)| object.has_users()) {
                // The ceilings tell users apart.
                true => open_to_users(path)?,
                false => close_to_others(path)?,
            }
        }
        let adapter = orb.adapter("objects").persistent().build().map_err(NodeError::Adapter)?;
        let mut gates = Vec::new();
        for (object, activate) in own {
            let binding = order.bind_delegated(object, self.delegates.of(&system, &object.name));
            activate(&adapter, &object.name, binding, Some(&orb)).map_err(NodeError::Adapter)?;
            gates.extend(gates_of(&system, object, (&order, binding), &adapter, &activate));
        }
        let lane = orb.owned_lane(LANE).ok_or_else(|| NodeError::Thread(std::io::ErrorKind::NotFound.into()))?;
        let read = lane.clone();
        let lane = order.serve(node, lane).map_err(NodeError::Thread)?;
        orb.ready();
        Ok((ServingProcessor { order, _orb: orb, _lane: lane }, (gates, Some(read))))
    }
}

/// The lane that the node's threads read.
const LANE: &str = "requests";

fn open_to_users(socket: &Path) -> Result<(), NodeError> {
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666))
        .map_err(|error| NodeError::Socket { path: socket.to_owned(), error })
}

impl ServingObjects {
    /// Objects of the file on this host that the program does not serve: it has no servants for them.
    pub fn unserved(&self) -> &[String] {
        &self.unserved
    }

    /// Converts the timing of requests from the other hosts' machines by the offsets of their clocks. Operators of the node
    /// see the requests.
    pub fn join(&self, peers: &NodePeers) {
        self.processors.iter().for_each(|processor| processor.order.peers(peers));
        peers.show(self);
    }

    /// Reports of registered clients that ignored their rates or vanished, and of refused ones.
    pub fn client_reports(&self) -> Vec<String> {
        self.rates.iter().flat_map(ServedRates::reports).collect()
    }

    /// What delegates have measured, by their names and by operation.
    pub fn delegates(&self) -> Vec<(String, Vec<OperationDelegate>)> {
        self.delegates.measured()
    }

    /// What happened to requests so far, besides being served.
    pub fn counts(&self) -> RequestCounts {
        counts(self.processors.iter().map(|processor| &processor.order))
    }
}

/// A stub for an object of the file, in this process or another one. It calls the object's first endpoint that this
/// program can use; the object need not exist yet. Calls of a node's job carry the job's timing.
///
/// # Errors
///
/// BAD_PARAM if the file has no such object; INTERNAL if the system has no thread left.
pub fn object<T: Interface + ?Sized>(system: &System, name: &str) -> Result<T::Stub, SystemException> {
    static CALLS: OnceLock<Result<Orb, String>> = OnceLock::new();
    let orb = CALLS.get_or_init(|| Orb::client().map_err(|error: OrbError| error.to_string()));
    let orb = orb.as_ref().map_err(|_| hyoshi_orb::SystemKind::Internal.not_done(0))?;
    let object = system.objects.iter().find(|object| object.name == name);
    let object = object.ok_or_else(|| hyoshi_orb::SystemKind::BadParam.not_done(0))?;
    crate::jobs::calls_of_jobs();
    let usable = |endpoint: &&Endpoint| !matches!(endpoint, Endpoint::Tls(_));
    let endpoint = object.endpoints.iter().find(usable).or(object.endpoints.first());
    let endpoint = endpoint.ok_or_else(|| hyoshi_orb::SystemKind::BadParam.not_done(0))?;
    orb.resolve_unchecked::<T>(&corbaloc(endpoint, name))
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.servants.iter().map(|one| &one.object)).finish()
    }
}

impl fmt::Debug for InstalledObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.servants.iter().map(|one| &one.object)).finish()
    }
}
