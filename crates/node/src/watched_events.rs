//! Events of a node for operators: the channel's state, subscriptions, publications.

use std::sync::{Arc, Mutex, PoisonError};

use hyoshi_events::{EventChannel, EventStanding, ReceivedEvent, Subscriber, Subscription};
use hyoshi_model::{Span, WhenFull};

use crate::idl::hyoshi_node as wire;
use crate::idl::hyoshi_node::EventRefused;
use crate::shared::random;

/// The maximum number of subscriptions of all operators, and of one user or certificate.
const SUBSCRIPTIONS: usize = 16;
const OF_ONE: usize = 4;
/// The maximum number of patterns of a subscription.
const PATTERNS: usize = 64;
/// The maximum number of events that wait for one subscription, and of events in one answer.
const WAITING: usize = 256;
const BATCH: usize = 256;
/// If an answer has this many bytes of payloads, further events wait for the next one.
const BATCH_BYTES: usize = 128 << 10;
/// A subscription without calls ends after this.
const IDLE: Span = Span::from_secs(10);

/// The channel, if the run has one, and the subscriptions to it.
#[derive(Clone, Debug)]
pub(crate) struct WatchedEvents(Arc<WatchedState>);

#[derive(Debug)]
struct WatchedState {
    channel: Option<EventChannel>,
    subscriptions: Mutex<Vec<OperatorSubscription>>,
}

#[derive(Debug)]
struct OperatorSubscription {
    id: u64,
    /// The certificate's name; empty for the user of the run.
    owner: String,
    subscriber: Arc<Subscriber>,
}

fn refused(why: impl ToString, remedy: impl Into<String>) -> EventRefused {
    EventRefused { why: why.to_string().chars().take(512).collect(), remedy: remedy.into() }
}

impl WatchedEvents {
    pub fn new(channel: Option<EventChannel>) -> Self {
        WatchedEvents(Arc::new(WatchedState { channel, subscriptions: Mutex::default() }))
    }

    fn channel(&self) -> Result<&EventChannel, EventRefused> {
        self.0.channel.as_ref().ok_or_else(|| refused("the program has no event channel", "start it with `hyoshi run`"))
    }

    pub fn states(&self) -> wire::EventStates {
        self.0.channel.as_ref().map_or_else(Vec::new, EventChannel::standing).into_iter().map(Into::into).collect()
    }

    pub fn subscribe(&self, owner: String, patterns: &[String]) -> Result<u64, EventRefused> {
        if patterns.len() > PATTERNS {
            return Err(refused(
                format_args!("too many patterns: {}", patterns.len()),
                format!("use at most {PATTERNS}"),
            ));
        }
        let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
        let properties = Subscription {
            limit: WAITING,
            when_full: WhenFull::DropOldest,
            idle: Some(IDLE),
            ..Subscription::default()
        };
        let subscriber = self.channel()?.subscribe(&patterns, properties);
        let subscriber = Arc::new(subscriber.map_err(|error| refused(&error, error.remedy()))?);
        let id = u64::from_ne_bytes(random());
        let mut subscriptions = self.0.subscriptions.lock().unwrap_or_else(PoisonError::into_inner);
        subscriptions.retain(|one| one.subscriber.is_connected());
        let own = subscriptions.iter().filter(|one| one.owner == owner).count();
        if own >= OF_ONE || subscriptions.len() >= SUBSCRIPTIONS {
            let why = format_args!("too many subscriptions: {} in total, {own} of yours", subscriptions.len());
            return Err(refused(why, format!("end one; the limits are {SUBSCRIPTIONS} and {OF_ONE}")));
        }
        subscriptions.push(OperatorSubscription { id, owner, subscriber });
        Ok(id)
    }

    pub fn take(&self, owner: &str, id: u64) -> Result<wire::EventBatch, EventRefused> {
        let subscriptions = self.0.subscriptions.lock().unwrap_or_else(PoisonError::into_inner);
        let own = subscriptions.iter().find(|one| one.id == id && one.owner == owner);
        let subscriber = own.map(|one| one.subscriber.clone()).filter(|one| one.is_connected());
        drop(subscriptions);
        let subscriber = subscriber.ok_or_else(|| refused("the subscription has ended", "subscribe again"))?;
        let (mut events, mut bytes) = (Vec::new(), 0);
        while events.len() < BATCH && bytes < BATCH_BYTES {
            let Some(event) = subscriber.receive(Span::ZERO) else { break };
            bytes += event.payload.len();
            events.push(event.into());
        }
        Ok(wire::EventBatch { events, lost: subscriber.counts().lost })
    }

    pub fn publish(&self, name: &str, payload: &[u8]) -> Result<(), EventRefused> {
        self.channel()?.publish(name, payload).map_err(|error| refused(&error, error.remedy()))
    }
}

impl From<EventStanding> for wire::EventState {
    fn from(standing: EventStanding) -> Self {
        let EventStanding { name, suppliers, consumers, payload, open, pushed, late, lost, last } = standing;
        let (since, lateness) = last.unwrap_or_default();
        wire::EventState {
            name: name.to_string(),
            suppliers: suppliers.iter().map(|name| name.to_string()).collect(),
            consumers: consumers as u32,
            payload,
            open,
            pushed,
            late,
            lost,
            was_pushed: last.is_some(),
            since: since.as_nanos(),
            lateness,
        }
    }
}

impl From<ReceivedEvent> for wire::PushedEvent {
    fn from(event: ReceivedEvent) -> Self {
        wire::PushedEvent {
            name: event.name.to_string(),
            supplier: event.supplier.to_string(),
            number: event.number,
            pushed: event.pushed.as_nanos(),
            age: event.age().as_nanos(),
            lateness: event.lateness(),
            importance: event.importance,
            critical: event.critical,
            payload: event.payload.to_vec(),
        }
    }
}
