//! Event channels for CORBA programs: OMG's event service (formal/2004-10-02), with push suppliers and consumers.
//!
//! ```text
//!   supplier's job ─► channel's thread ─► queue of each consumer ─► its thread ═ push(any) ═► CORBA consumer
//!   CORBA supplier ═ push(any) ═► thread of the ORB ─► job of an operation with `called = true`
//! ```
//!
//! All of its threads run at normal priority, below every lane.

mod consumers;
mod payload;
mod proxies;
mod suppliers;

pub use payload::{any_of_payload, payload_of_any};

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyoshi_events::EventChannel;
use hyoshi_model::{Endpoint, Event, HostId, OperationId, ServedObject, Span};
use hyoshi_orb::{
    Adapter, AdapterError, ClientLimits, Interface, Ior, IorEndpoint, LaneOptions, Orb, Passage, Reference,
    ServerLimits, SystemException, SystemKind, TlsClient, TlsServer, Transport, current, minor, rt,
};
use hyoshi_runtime::ClientMeter;

use crate::idl::cos_event_channel_admin as wire;
use crate::idl::cos_event_comm::PushConsumer;
use crate::operators::{build, close_to_others, listen};
use crate::peers::NodeError;
use crate::rates::ClientGate;
use consumers::ProxyPushSupplier;
use proxies::{Proxies, Proxy};
use suppliers::{ClientPushConsumer, ProxyPushConsumer};

/// The largest message: an event with the largest payload (64 KiB) fits.
const MESSAGE: usize = 128 << 10;

/// Serves the events of a file to CORBA programs, until it is dropped.
#[must_use = "clients can connect only while it exists"]
pub struct CorbaEvents {
    events: Vec<Arc<OfferedEvent>>,
    orbs: Vec<(Orb, [Adapter; 2])>,
    proxies: Arc<Proxies>,
}

/// An event with endpoints.
struct OfferedEvent {
    name: String,
    channel: EventChannel,
    /// Whether it can be published.
    is_open: bool,
    proxies: Arc<Proxies>,
    /// The adapter of the channel and its administrations, and the adapter of the proxies.
    adapters: [Adapter; 2],
    counts: EventCounts,
}

/// The administration of its consumers or suppliers.
struct EventAdministration(Arc<OfferedEvent>);

#[derive(Debug, Default)]
struct EventCounts {
    lost: AtomicU64,
    failed: AtomicU64,
    disconnected: AtomicU64,
    refused: AtomicU64,
}

/// Counts of an event's CORBA consumers and suppliers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CorbaEventCounts {
    /// The event.
    pub event: String,
    /// Events that consumers lost because their queues were full.
    pub lost: u64,
    /// Failed calls of consumers.
    pub failed: u64,
    /// Consumers that were disconnected because they did not answer, or no longer exist.
    pub disconnected: u64,
    /// Publications that were refused.
    pub refused: u64,
}

impl CorbaEvents {
    /// Serves the events of the file that have endpoints; with `host`, only those that this host supplies. The key of
    /// an event's channel is its name.
    ///
    /// # Errors
    ///
    /// If it cannot listen there, or an endpoint over TLS has no certificate.
    pub fn serve(
        channel: &EventChannel,
        host: Option<HostId>,
        tls: Option<(&TlsServer, &TlsClient)>,
    ) -> Result<CorbaEvents, NodeError> {
        let system = channel.system();
        let host_of = |event: &Event| {
            let supplier = event.suppliers.first()?;
            Some(system.processor(system.operation(*supplier).on).host)
        };
        let is_here = |event: &&Event| host.is_none_or(|host| host_of(event) == Some(host));
        let offered = system.events.iter().filter(|event| !event.endpoints.is_empty()).filter(is_here);
        // Events at the same endpoints share an ORB.
        let mut groups: Vec<(&[Endpoint], Vec<&str>)> = Vec::new();
        for event in offered {
            match groups.iter_mut().find(|(endpoints, _)| *endpoints == event.endpoints) {
                Some((_, names)) => names.push(&event.name),
                None => groups.push((&event.endpoints, vec![&event.name])),
            }
        }
        let open = channel.standing().into_iter().filter(|standing| standing.open).map(|standing| standing.name);
        let open: HashSet<Arc<str>> = open.collect();
        let mut served = CorbaEvents { events: Vec::new(), orbs: Vec::new(), proxies: Arc::new(Proxies::new()) };
        for (endpoints, names) in groups {
            let adapters = served.listen(endpoints, tls)?;
            for name in names {
                let event = Arc::new(OfferedEvent {
                    name: name.to_owned(),
                    channel: channel.clone(),
                    is_open: open.contains(name),
                    proxies: served.proxies.clone(),
                    adapters: adapters.clone(),
                    counts: EventCounts::default(),
                });
                served.activate(&event).map_err(NodeError::Adapter)?;
                served.events.push(event);
            }
        }
        served.orbs.iter().for_each(|(orb, _)| orb.ready());
        Ok(served)
    }

    fn listen(
        &mut self,
        endpoints: &[Endpoint],
        tls: Option<(&TlsServer, &TlsClient)>,
    ) -> Result<[Adapter; 2], NodeError> {
        let lane = LaneOptions { name: "corba-events".to_owned(), threads: 8, brief: true, ..LaneOptions::default() };
        let limits = ServerLimits {
            connections: 128,
            message: MESSAGE,
            in_flight: 8,
            backlog: 4 << 20,
            unfinished: 4 << 20,
            ending: Span::from_secs(1),
            ..ServerLimits::default()
        };
        let client_limits = ClientLimits { message: MESSAGE, ..ClientLimits::default() };
        let mut builder = Orb::builder().server_limits(limits).client_limits(client_limits).lane(lane);
        if let Some((server, client)) = tls {
            let unusable = |_| NodeError::NoCertificate { endpoint: endpoints[0].clone() };
            builder = builder.tls_server(server.clone()).tls_client(client.clone()).map_err(unusable)?;
        }
        if endpoints.iter().all(|endpoint| matches!(endpoint, Endpoint::Tls(_))) {
            // The node then sends events to consumers only encrypted, too.
            builder = builder.tls_only();
        }
        for endpoint in endpoints {
            builder = listen(builder, endpoint, tls.is_some())?;
        }
        let orb = build(builder)?;
        for endpoint in endpoints {
            if let Endpoint::Unix(path) = endpoint {
                close_to_others(Path::new(path))?;
            }
        }
        let channels = orb.adapter("channels").persistent().build().map_err(NodeError::Adapter)?;
        let proxies = orb.adapter("proxies").build().map_err(NodeError::Adapter)?;
        let adapters = [channels, proxies];
        self.proxies.add_adapter(&adapters[1]);
        self.orbs.push((orb, adapters.clone()));
        Ok(adapters)
    }

    /// Publishes the event's channel: clients can find it.
    fn activate(&self, event: &Arc<OfferedEvent>) -> Result<(), AdapterError> {
        let [channels, _] = &event.adapters;
        let channel = channels.activate_as::<dyn wire::EventChannel>(event.id("channel"), event.clone())?;
        channels.activate_as::<dyn wire::ConsumerAdmin>(
            event.id("consumers"),
            Arc::new(EventAdministration(event.clone())),
        )?;
        channels.activate_as::<dyn wire::SupplierAdmin>(
            event.id("suppliers"),
            Arc::new(EventAdministration(event.clone())),
        )?;
        self.orbs.last().map_or(Ok(()), |(orb, _)| orb.publish(&event.name, &channel))
    }

    /// Places for the pushes of registered clients, by operation. Clients of an operation with an object call that object.
    /// There are more places than clients, because pushes of clients that have left may still run.
    pub(crate) fn client_gates(&self) -> Vec<(OperationId, Vec<ClientGate>)> {
        let Some(system) = self.events.first().map(|event| event.channel.system().clone()) else { return Vec::new() };
        let of_objects: HashSet<OperationId> = system.objects.iter().flat_map(ServedObject::all_operations).collect();
        let gates = |id: OperationId| {
            let clients = system.operation(id).clients.filter(|_| !of_objects.contains(&id))?;
            let supplies = |event: &Event| event.suppliers.contains(&id);
            let offered =
                |one: &&Arc<OfferedEvent>| system.events.iter().any(|event| event.name == one.name && supplies(event));
            let event = self.events.iter().filter(|event| event.is_open).find(offered)?;
            Some((id, (0..2 * clients.most).map(|_| event.client_gate()).collect()))
        };
        system.operation_ids().filter_map(gates).collect()
    }

    /// The counts so far, by event.
    pub fn counts(&self) -> Vec<CorbaEventCounts> {
        let counts = |event: &Arc<OfferedEvent>| {
            let EventCounts { lost, failed, disconnected, refused } = &event.counts;
            let [lost, failed, disconnected, refused] =
                [lost, failed, disconnected, refused].map(|count| count.load(Ordering::Relaxed));
            CorbaEventCounts { event: event.name.clone(), lost, failed, disconnected, refused }
        };
        self.events.iter().map(counts).collect()
    }

    /// Disconnects all clients, and informs those that can be called. Lasts at most 2 s.
    pub fn end(&self) {
        self.orbs.iter().flat_map(|(_, adapters)| adapters).for_each(|adapter| adapter.pass(Passage::Discarding));
        self.proxies.end_all();
    }
}

impl Drop for CorbaEvents {
    fn drop(&mut self) {
        self.end();
        for (orb, adapters) in self.orbs.drain(..) {
            // Servants and adapters refer to each other.
            adapters.into_iter().for_each(Adapter::destroy);
            orb.shutdown();
        }
    }
}

impl fmt::Debug for CorbaEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.events.iter().map(|event| &event.name)).finish()
    }
}

impl OfferedEvent {
    /// The id of one of its objects.
    fn id(&self, object: &str) -> String {
        format!("{object} {}", self.name)
    }

    fn administration<T: Interface + ?Sized>(&self, object: &str) -> Result<Option<T::Stub>, SystemException> {
        let stub = self.adapters[0].reference::<T>(self.id(object));
        Ok(Some(stub.map_err(|_| SystemKind::BadInvOrder.not_done(minor::NO_ORB))?))
    }

    /// A stub of the calling client's consumer or supplier, for calls of this node.
    fn callable<T: Interface + ?Sized>(&self, object: Option<&Reference<T>>) -> Result<T::Stub, SystemException> {
        // A client from the network must not reach Unix sockets of this user.
        let is_local = current::peer().is_some();
        let object = object
            // If the object is a proxy of this node, events would circulate for ever.
            .filter(|object| !self.proxies.has_object(object.ior()))
            .filter(|object| is_local || !leads_to_a_socket(object.ior()))
            .ok_or(SystemKind::BadParam.not_done(minor::EVENT_CONSUMER))?;
        // The object's server may forward calls to another reference.
        let protocols = if is_local { Vec::new() } else { vec![Transport::Tls, Transport::Tcp] };
        Ok(object.client_policies(&rt::ClientPolicies { protocols, ..rt::ClientPolicies::default() }))
    }

    /// A place for the pushes of one registered client at a time.
    fn client_gate(self: &Arc<Self>) -> ClientGate {
        let (meter, adapter) = (Arc::new(ClientMeter::default()), self.adapters[1].clone());
        let (event, own, of_pushes) = (self.clone(), adapter.clone(), meter.clone());
        ClientGate {
            meter,
            activate: Box::new(move |id| {
                let consumer = Arc::new(ClientPushConsumer { event: event.clone(), meter: of_pushes.clone() });
                let stub = own.activate_as::<dyn PushConsumer>(id, consumer)?;
                Ok(stub.as_ref().ior().clone())
            }),
            // An object that is not active needs nothing.
            deactivate: Arc::new(move |id| drop(adapter.deactivate(id))),
        }
    }

    /// Activates a new proxy.
    fn obtain<T: Interface + ?Sized>(
        &self,
        servant: impl FnOnce(Arc<Proxy>) -> Arc<T>,
    ) -> Result<Option<T::Stub>, SystemException> {
        let proxy = self.proxies.obtain(&self.adapters[1])?;
        let object = self.adapters[1].activate_as::<T>(proxy.id.to_be_bytes(), servant(proxy.clone()));
        match object {
            Ok(object) => Ok(Some(object)),
            Err(_) => {
                self.proxies.end(&proxy);
                Err(SystemKind::BadInvOrder.not_done(minor::NO_ORB))
            }
        }
    }
}

impl wire::ConsumerAdmin for EventAdministration {
    fn obtain_push_supplier(&self) -> Result<Option<wire::ProxyPushSupplierStub>, SystemException> {
        let event = self.0.clone();
        self.0.obtain::<dyn wire::ProxyPushSupplier>(|proxy| Arc::new(ProxyPushSupplier { event, proxy }))
    }

    fn obtain_pull_supplier(&self) -> Result<Option<wire::ProxyPullSupplierStub>, SystemException> {
        Err(no_pull())
    }
}

impl wire::SupplierAdmin for EventAdministration {
    fn obtain_push_consumer(&self) -> Result<Option<wire::ProxyPushConsumerStub>, SystemException> {
        if !self.0.is_open {
            return Err(SystemKind::NoImplement.not_done(minor::EVENT_NO_SUPPLIER));
        }
        let event = self.0.clone();
        self.0.obtain::<dyn wire::ProxyPushConsumer>(|proxy| Arc::new(ProxyPushConsumer { event, proxy }))
    }

    fn obtain_pull_consumer(&self) -> Result<Option<wire::ProxyPullConsumerStub>, SystemException> {
        Err(no_pull())
    }
}

impl wire::EventChannel for OfferedEvent {
    fn for_consumers(&self) -> Result<Option<wire::ConsumerAdminStub>, SystemException> {
        self.administration::<dyn wire::ConsumerAdmin>("consumers")
    }

    fn for_suppliers(&self) -> Result<Option<wire::SupplierAdminStub>, SystemException> {
        self.administration::<dyn wire::SupplierAdmin>("suppliers")
    }

    fn destroy(&self) -> Result<(), SystemException> {
        Err(SystemKind::NoPermission.not_done(minor::EVENT_DESTROY))
    }
}

/// Whether a reference has an endpoint at a Unix socket.
fn leads_to_a_socket(reference: &Ior) -> bool {
    let endpoints = reference.iiop().filter_map(Result::ok).flat_map(|profile| profile.endpoints());
    endpoints.into_iter().any(|endpoint| matches!(endpoint, IorEndpoint::Unix { .. }))
}

fn gone() -> SystemException {
    SystemKind::ObjectNotExist.not_done(minor::NO_OBJECT)
}

fn no_pull() -> SystemException {
    SystemKind::NoImplement.not_done(minor::EVENT_PULL)
}
