//! The gateway of a host: programs outside the system read and publish events over Zenoh.
//!
//! ```text
//!   supplier's job ─► channel's thread ─► queue ─► gateway's thread ─► Zenoh ═ hyoshi/SYSTEM/events/EVENT ═► program
//!   program ═ hyoshi/SYSTEM/publish/EVENT ═► Zenoh's thread ─► job of an operation with `called = true`
//! ```
//!
//! - Its threads run at normal priority, below every lane. Zenoh's threads do, too, unless this process carries
//!   completions over Zenoh: then they are above the lanes.
//! - Critical events have a queue and a thread of their own, so other events do not displace them.
//! - Zenoh drops an event if its queue for the priority is full. Programs see the gap in the sequence numbers.

mod event_header;
mod incoming;
mod outgoing;
mod settings;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyoshi_events::{EventChannel, Subscriber, Subscription};
use hyoshi_model::{Gateway, GatewayMode, HostId};
use hyoshi_node::CarrierError;
use hyoshi_os::{Spawn, SpawnedThread};
use zenoh::liveliness::LivelinessToken;
use zenoh::query::Queryable;
use zenoh::sample::Sample;
use zenoh::{Session, Wait};

pub use event_header::{EVENT_HEADER, EventHeader};
pub use incoming::PublicationCounts;
pub use settings::GatewayKeys;

use crate::links::ZenohLink;
use crate::tls::ZenohTls;
use incoming::PublishedEvent;
use outgoing::{EventOutlets, OutgoingCounts};

/// The most events that wait for a thread of the gateway.
const WAITING: usize = 256;
/// The time between attempts of a client to reach a router.
const RETRY: Duration = Duration::from_millis(200);

/// A gateway, until it is dropped.
#[must_use = "programs can connect only while it exists"]
pub struct ZenohGateway {
    state: Arc<GatewayState>,
}

struct GatewayState {
    channel: EventChannel,
    host: HostId,
    gateway: Gateway,
    tls: Option<ZenohTls>,
    published: Vec<Arc<PublishedEvent>>,
    counts: Arc<OutgoingCounts>,
    open: Mutex<OpenGateway>,
    over: AtomicBool,
}

/// What a gateway has while its session is open.
#[derive(Default)]
struct OpenGateway {
    session: Option<Session>,
    token: Option<LivelinessToken>,
    inlets: Vec<zenoh::pubsub::Subscriber<()>>,
    queryables: Vec<Queryable<()>>,
    subscribers: Vec<Arc<Subscriber>>,
    threads: Vec<SpawnedThread<()>>,
    /// Of subscribers that have ended.
    lost: u64,
    /// Why a client could not start.
    failed: Option<CarrierError>,
}

/// The state of a gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayStanding {
    /// Its host.
    pub host: String,
    /// False if it has endpoints to connect to, and is connected to no router and no peer.
    pub connected: bool,
    /// Events that it passed to Zenoh.
    pub published: u64,
    /// Events that it lost, because its threads were not scheduled in time or Zenoh did not accept them.
    pub lost: u64,
    /// Queries of kept events that it did not answer, because too many waited.
    pub unanswered: u64,
    /// By event that programs publish.
    pub publications: Vec<PublicationCounts>,
    /// Why it could not start after it had reached a router.
    pub failed: Option<CarrierError>,
}

impl ZenohGateway {
    /// Opens the gateway of a host; `None` if the file has none. A router that is away does not delay it: it connects
    /// later.
    ///
    /// # Errors
    ///
    /// If it cannot listen or has no certificate for TLS, or the system refuses threads.
    pub fn open(
        channel: &EventChannel,
        host: HostId,
        tls: Option<ZenohTls>,
    ) -> Result<Option<ZenohGateway>, CarrierError> {
        let Some(gateway) = channel.system().hosts[host.index()].gateway.clone() else { return Ok(None) };
        if gateway.uses_tls() && tls.is_none() {
            return Err(CarrierError {
                message: format!(
                    "the gateway of host `{}` needs a certificate",
                    channel.system().hosts[host.index()].name
                ),
                remedy: "add --host, --tls-cert, --tls-key and --tls-roots".to_owned(),
            });
        }
        let published = gateway.publish.iter().map(|event| Arc::new(PublishedEvent::new(channel, *event)));
        let state = Arc::new(GatewayState {
            channel: channel.clone(),
            host,
            published: published.collect(),
            gateway,
            tls,
            counts: Arc::default(),
            open: Mutex::default(),
            over: AtomicBool::new(false),
        });
        let opened = ZenohGateway { state: state.clone() };
        if state.gateway.mode == GatewayMode::Client {
            // Zenoh waits for the router.
            Spawn::new("gateway-client").stack(1 << 20).spawn(move || state.open_as_client()).map_err(no_thread)?;
        } else {
            let session = state.session().map_err(|error| state.cannot_open(&error))?;
            state.serve(session)?;
        }
        Ok(Some(opened))
    }

    /// Its state.
    pub fn standing(&self) -> GatewayStanding {
        let state = &self.state;
        let open = state.opened();
        let connected = state.gateway.connect.is_empty()
            || open.session.as_ref().is_some_and(|session| {
                let info = session.info();
                info.routers_zid().wait().next().or_else(|| info.peers_zid().wait().next()).is_some()
            });
        let lost: u64 = open.subscribers.iter().map(|subscriber| subscriber.counts().lost).sum();
        GatewayStanding {
            host: state.host_name().to_owned(),
            connected,
            published: state.counts.published.load(Ordering::Relaxed),
            lost: open.lost + lost + state.counts.failed.load(Ordering::Relaxed),
            unanswered: state.counts.unanswered.load(Ordering::Relaxed),
            publications: state.published.iter().map(|event| event.counts()).collect(),
            failed: open.failed.clone(),
        }
    }

    /// Publishes the events that wait, and closes the connections. Returns its last state.
    pub fn end(&self) -> GatewayStanding {
        let before = self.standing();
        self.state.over.store(true, Ordering::Release);
        let open = std::mem::take(&mut *self.state.opened());
        let lost = open.end();
        self.state.opened().lost += lost;
        GatewayStanding { connected: before.connected, failed: before.failed, ..self.standing() }
    }
}

impl Drop for ZenohGateway {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for ZenohGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZenohGateway").field("host", &self.state.host_name()).finish_non_exhaustive()
    }
}

impl OpenGateway {
    /// Returns the number of events that its threads lost.
    fn end(self) -> u64 {
        let OpenGateway { session, token, inlets, queryables, subscribers, threads, .. } = self;
        drop(inlets);
        subscribers.iter().for_each(|subscriber| subscriber.disconnect());
        // With the last queryable, the thread of the queries ends.
        drop(queryables);
        // They do nothing that could panic.
        threads.into_iter().for_each(|thread| drop(thread.join()));
        drop(token);
        if let Some(session) = session {
            // A session that cannot be closed has lost its connections already.
            let _ = session.close().wait();
        }
        subscribers.iter().map(|subscriber| subscriber.counts().lost).sum()
    }
}

impl GatewayState {
    fn opened(&self) -> MutexGuard<'_, OpenGateway> {
        // No section panics half-way.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn host_name(&self) -> &str {
        &self.channel.system().hosts[self.host.index()].name
    }

    fn session(&self) -> zenoh::Result<Session> {
        zenoh::open(settings::session(self.channel.system(), self.host, &self.gateway, self.tls.as_ref())).wait()
    }

    /// Tries until a router answers, or the gateway ends.
    fn open_as_client(&self) {
        while !self.over.load(Ordering::Acquire) {
            match self.session() {
                Ok(session) => {
                    if let Err(error) = self.serve(session) {
                        self.opened().failed = Some(error);
                    }
                    return;
                }
                Err(_) => std::thread::sleep(RETRY),
            }
        }
    }

    fn serve(&self, session: Session) -> Result<(), CarrierError> {
        let mut open = OpenGateway { session: Some(session.clone()), ..OpenGateway::default() };
        let served = self.declare(&session, &mut open);
        let mut current = self.opened();
        if served.is_ok() && !self.over.load(Ordering::Acquire) {
            *current = open;
        } else {
            drop(current);
            open.end();
        }
        served
    }

    fn declare(&self, session: &Session, open: &mut OpenGateway) -> Result<(), CarrierError> {
        let failed = |error: zenoh::Error| self.cannot_start(&error);
        let system = self.channel.system();
        let keys = GatewayKeys::new(system);
        let events = &self.gateway.events;
        let with_priorities = || events.iter().copied().zip(outgoing::event_priorities(system, events));
        let (queue, queries) = outgoing::query_queue();
        for link in ZenohLink::ALL {
            let of_link: Vec<_> = with_priorities().filter(|(_, priority)| ZenohLink::of(*priority) == link).collect();
            if of_link.is_empty() {
                continue;
            }
            let outlets = EventOutlets::declare(session, &self.channel, self.host, &of_link, self.counts.clone());
            let outlets = outlets.map_err(failed)?;
            for kept in outlets.kept() {
                let queryable = outgoing::declare_queryable(session, kept, &queue, &self.counts);
                open.queryables.push(queryable.map_err(failed)?);
            }
            let names = outlets.names();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let properties = Subscription { limit: WAITING, ..Subscription::default() };
            let subscriber = self.channel.subscribe(&names, properties).map_err(|error| CarrierError {
                message: format!("the gateway of host `{}` cannot start: {error}", self.host_name()),
                remedy: error.remedy(),
            })?;
            let subscriber = Arc::new(subscriber);
            open.subscribers.push(subscriber.clone());
            let name = match link {
                ZenohLink::Critical => "gateway-crit",
                ZenohLink::Other => "gateway-events",
            };
            open.threads.push(Spawn::new(name).spawn(move || outlets.publish_all(&subscriber)).map_err(no_thread)?);
        }
        drop(queue);
        if !open.queryables.is_empty() {
            let answer = Spawn::new("gateway-queries").spawn(move || outgoing::answer_all(&queries));
            open.threads.push(answer.map_err(no_thread)?);
        }
        for published in &self.published {
            let key = keys.publication(published.name());
            let published = published.clone();
            let receive = move |sample: Sample| published.receive(&sample);
            open.inlets.push(session.declare_subscriber(key).callback(receive).wait().map_err(failed)?);
        }
        let token = session.liveliness().declare_token(keys.alive(self.host_name())).wait();
        open.token = Some(token.map_err(failed)?);
        Ok(())
    }

    fn cannot_start(&self, error: &zenoh::Error) -> CarrierError {
        CarrierError {
            message: format!("the gateway of host `{}` cannot start: {error}", self.host_name()),
            remedy: format!("remove `gateway` from [host.{}] to run without it", self.host_name()),
        }
    }

    fn cannot_open(&self, error: &zenoh::Error) -> CarrierError {
        let listen: Vec<String> = self.gateway.listen.iter().map(|endpoint| endpoint.to_string()).collect();
        if listen.is_empty() {
            return self.cannot_start(error);
        }
        let host = self.host_name();
        CarrierError {
            message: format!("the gateway of host `{host}` cannot listen at {}: {error}", listen.join(", ")),
            remedy: format!(
                "is a run of this system running already? `listen` in the gateway of [host.{host}] must have addresses \
                 of this machine"
            ),
        }
    }
}

fn no_thread(error: std::io::Error) -> CarrierError {
    CarrierError {
        message: format!("cannot start another thread: {error}"),
        remedy: "raise the limit of threads: ulimit -u".to_owned(),
    }
}
