//! Events of the host for programs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use hyoshi_events::{EventChannel, ReceivedEvent, Subscriber};
use hyoshi_model::{Event, HostId, Span, System};
use hyoshi_os::clock::unix;
use zenoh::pubsub::Publisher;
use zenoh::qos::{CongestionControl, Priority};
use zenoh::query::{Query, Queryable};
use zenoh::{Session, Wait};

use super::event_header::{EVENT_HEADER, EventHeader};
use super::settings::GatewayKeys;
use crate::links::priorities;

/// A thread looks for its end this often while no event occurs.
const LOOK: Span = Span::from_millis(500);
/// The most queries that wait for their answers.
const QUERIES: usize = 32;

/// The priority of each event of a gateway, by its most urgent supplier or consumer.
pub(super) fn event_priorities(system: &System, events: &[u32]) -> Vec<Priority> {
    let rank = |event: &Event| {
        let operations = event.suppliers.iter().chain(&event.consumers).map(|id| system.operation(*id));
        operations.map(|operation| (operation.critical, operation.importance)).max().unwrap_or_default()
    };
    priorities(&events.iter().map(|event| rank(&system.events[*event as usize])).collect::<Vec<_>>())
}

/// The events of a gateway that have a priority of one group, and the thread that publishes them.
pub(super) struct EventOutlets {
    outlets: BTreeMap<String, EventOutlet>,
    supplier_positions: BTreeMap<String, u32>,
    channel: EventChannel,
    counts: Arc<OutgoingCounts>,
}

#[derive(Debug, Default)]
pub(super) struct OutgoingCounts {
    pub published: AtomicU64,
    /// Events that Zenoh did not accept.
    pub failed: AtomicU64,
    /// Queries beyond the most that wait.
    pub unanswered: AtomicU64,
}

struct EventOutlet {
    publisher: Publisher<'static>,
    sequence: u64,
    kept: Option<Arc<KeptEvents>>,
}

/// The latest events for programs that connect late, as in the channel's `keep`.
pub(super) struct KeptEvents {
    key: String,
    most: usize,
    latest: Mutex<VecDeque<KeptEvent>>,
}

/// A payload, and its header.
type KeptEvent = (Arc<[u8]>, [u8; EVENT_HEADER]);

impl EventOutlets {
    /// Declares the events of a host with their priorities.
    pub fn declare(
        session: &Session,
        channel: &EventChannel,
        host: HostId,
        events: &[(u32, Priority)],
        counts: Arc<OutgoingCounts>,
    ) -> zenoh::Result<EventOutlets> {
        let system = channel.system();
        let keys = GatewayKeys::new(system);
        let mut outlets = BTreeMap::new();
        for (event, priority) in events {
            let event = &system.events[*event as usize];
            let key = keys.event(&event.name);
            let publisher = session.declare_publisher(key.clone()).priority(*priority);
            let publisher = publisher.congestion_control(CongestionControl::Drop).wait()?;
            let kept =
                (event.keep > 0).then(|| KeptEvents { key, most: event.keep as usize, latest: Mutex::default() });
            outlets.insert(event.name.clone(), EventOutlet { publisher, sequence: 0, kept: kept.map(Arc::new) });
        }
        let own = system.operation_ids().filter(|id| system.processor(system.operation(*id).on).host == host);
        let supplier_positions = own.map(|id| (system.operation(id).name.clone(), id.0)).collect();
        Ok(EventOutlets { outlets, supplier_positions, channel: channel.clone(), counts })
    }

    /// The patterns to subscribe to.
    pub fn names(&self) -> Vec<String> {
        self.outlets.keys().cloned().collect()
    }

    /// The events that programs can query.
    pub fn kept(&self) -> impl Iterator<Item = &Arc<KeptEvents>> {
        self.outlets.values().filter_map(|outlet| outlet.kept.as_ref())
    }

    /// Publishes what the subscriber receives, until the subscription ends.
    pub fn publish_all(mut self, subscriber: &Subscriber) {
        loop {
            match subscriber.receive(LOOK) {
                Some(event) => self.publish(&event),
                None if subscriber.ends_within(Span::ZERO) => return,
                None => {}
            }
        }
    }

    fn publish(&mut self, event: &ReceivedEvent) {
        let Some(outlet) = self.outlets.get_mut(&*event.name) else { return };
        // In a run of all hosts, the channel has the events of other hosts' suppliers, too.
        let Some(supplier) = self.supplier_positions.get(&*event.supplier) else { return };
        outlet.sequence += 1;
        let ago = self.channel.now().since(event.pushed);
        let header = EventHeader {
            critical: event.critical,
            supplier: *supplier,
            importance: event.importance,
            sequence: outlet.sequence,
            number: event.number,
            pushed: unix().saturating_sub(ago).as_nanos(),
            age: event.age().as_nanos(),
            response: event.pushed.since(event.release).as_nanos(),
            lateness: event.lateness(),
        };
        let header = header.encode();
        if let Some(kept) = &outlet.kept {
            kept.keep(event.payload.clone(), header);
        }
        let published = outlet.publisher.put(&event.payload[..]).attachment(header).wait();
        let count = if published.is_ok() { &self.counts.published } else { &self.counts.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

impl KeptEvents {
    fn keep(&self, payload: Arc<[u8]>, header: [u8; EVENT_HEADER]) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.len() == self.most {
            latest.pop_front();
        }
        latest.push_back((payload, header));
    }

    fn answer(&self, query: &Query) {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (payload, header) in latest {
            // The program may have disconnected.
            if query.reply(self.key.as_str(), &payload[..]).attachment(header).wait().is_err() {
                return;
            }
        }
    }
}

/// A query, and what answers it.
pub(super) type WaitingQuery = (Arc<KeptEvents>, Query);

/// Queries of kept events wait here: an answer may have to wait for a program that reads slowly.
pub(super) fn query_queue() -> (SyncSender<WaitingQuery>, Receiver<WaitingQuery>) {
    sync_channel(QUERIES)
}

/// Passes queries of these events on to their queue.
pub(super) fn declare_queryable(
    session: &Session,
    kept: &Arc<KeptEvents>,
    queue: &SyncSender<WaitingQuery>,
    counts: &Arc<OutgoingCounts>,
) -> zenoh::Result<Queryable<()>> {
    let (own, queue, counts) = (kept.clone(), queue.clone(), counts.clone());
    let pass_on = move |query: Query| {
        if queue.try_send((own.clone(), query)).is_err() {
            counts.unanswered.fetch_add(1, Ordering::Relaxed);
        }
    };
    session.declare_queryable(kept.key.clone()).callback(pass_on).wait()
}

/// Answers queries until no queryable is left.
pub(super) fn answer_all(queries: &Receiver<WaitingQuery>) {
    queries.iter().for_each(|(kept, query)| kept.answer(&query));
}
