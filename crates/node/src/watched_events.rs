//! Events of a node for operators: the channel's state, subscriptions, publications, registered publishers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyoshi_events::{
    EventChannel, EventStanding, PublishError, Publisher, ReceivedEvent, Registration, Subscriber, Subscription,
};
use hyoshi_model::{Span, WhenFull};
use hyoshi_orb::{SystemKind, minor};
use hyoshi_runtime::Rejected;

use crate::idl::hyoshi_node as wire;
use crate::idl::hyoshi_node::{EventRefused, PublishAtRateError};
use crate::shared::random;

/// The maximum number of subscriptions of one operator, and of all operators with certificates. The user of the run has
/// as many as one operator, beside these.
const OF_ONE: usize = 4;
const CERTIFIED: usize = 12;
/// The maximum number of patterns of a subscription.
const PATTERNS: usize = 64;
/// The maximum number of events that wait for one subscription, and of events in one answer.
const WAITING: usize = 256;
const BATCH: usize = 256;
/// If an answer has this many bytes of payloads, further events wait for the next one.
const BATCH_BYTES: usize = 128 << 10;
/// A subscription without calls ends after this. A publisher without publications has three periods more.
const IDLE: Span = Span::from_secs(10);

/// The channel, if the run has one, and the subscriptions to it.
#[derive(Clone, Debug)]
pub(crate) struct WatchedEvents(Arc<WatchedState>);

#[derive(Debug)]
struct WatchedState {
    channel: Option<EventChannel>,
    subscriptions: Mutex<Vec<OperatorSubscription>>,
    /// No more than the file's loops have places.
    publishers: Mutex<Vec<OperatorPublisher>>,
}

#[derive(Debug)]
struct OperatorPublisher {
    ticket: u64,
    /// As for subscriptions.
    owner: Option<String>,
    publisher: Arc<Publisher>,
}

#[derive(Debug)]
struct OperatorSubscription {
    id: u64,
    /// The certificate's name; `None` for the user of the run.
    owner: Option<String>,
    subscriber: Arc<Subscriber>,
}

fn refused(why: impl ToString, remedy: impl Into<String>) -> EventRefused {
    EventRefused { why: why.to_string().chars().take(512).collect(), remedy: remedy.into() }
}

impl WatchedEvents {
    pub fn new(channel: Option<EventChannel>) -> Self {
        let (subscriptions, publishers) = Default::default();
        WatchedEvents(Arc::new(WatchedState { channel, subscriptions, publishers }))
    }

    fn channel(&self) -> Result<&EventChannel, EventRefused> {
        self.0.channel.as_ref().ok_or_else(|| refused("the program has no event channel", "start it with `hyoshi run`"))
    }

    pub fn states(&self) -> wire::EventStates {
        self.0.channel.as_ref().map_or_else(Vec::new, EventChannel::standing).into_iter().map(Into::into).collect()
    }

    pub fn subscribe(&self, owner: Option<String>, patterns: &[String]) -> Result<u64, EventRefused> {
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
        let certified = subscriptions.iter().filter(|one| one.owner.is_some()).count();
        if own >= OF_ONE || (owner.is_some() && certified >= CERTIFIED) {
            let why = format_args!("too many subscriptions: {certified} over TLS, {own} of yours");
            return Err(refused(why, format!("end one; the limits are {CERTIFIED} and {OF_ONE}")));
        }
        subscriptions.push(OperatorSubscription { id, owner, subscriber });
        Ok(id)
    }

    pub fn take(&self, owner: Option<&str>, id: u64) -> Result<wire::EventBatch, EventRefused> {
        let subscriptions = self.0.subscriptions.lock().unwrap_or_else(PoisonError::into_inner);
        let own = subscriptions.iter().find(|one| one.id == id && one.owner.as_deref() == owner);
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

    pub fn register_publisher(
        &self,
        owner: Option<String>,
        label: &str,
        name: &str,
        (shortest, longest): (Span, Span),
    ) -> Result<wire::RegisteredPublisher, EventRefused> {
        let asked =
            Registration { shortest, longest, label: label.to_owned(), idle: Some(IDLE), ..Registration::default() };
        let publisher = self.channel()?.publisher(name, &asked).map_err(|error| refused(&error, error.remedy()))?;
        let ticket = u64::from_ne_bytes(random());
        let (shortest, longest) = publisher.range();
        let registered = wire::RegisteredPublisher {
            ticket,
            period: publisher.period().as_nanos(),
            shortest: shortest.as_nanos(),
            longest: longest.as_nanos(),
        };
        let mut publishers = self.publishers();
        publishers.retain(|one| one.publisher.is_registered());
        publishers.push(OperatorPublisher { ticket, owner, publisher: Arc::new(publisher) });
        Ok(registered)
    }

    pub fn publish_at_rate(
        &self,
        owner: Option<&str>,
        ticket: u64,
        payload: &[u8],
    ) -> Result<wire::PacedPublication, PublishAtRateError> {
        let found = self.publishers().iter().find(|one| one.is(owner, ticket)).map(|one| one.publisher.clone());
        let publisher = found.ok_or_else(|| refused("the registration has ended", "register again"))?;
        match publisher.publish(payload) {
            Ok(period) => Ok(wire::PacedPublication { period: period.as_nanos(), rejected: String::new() }),
            // The next one may be accepted.
            Err(error @ PublishError::Rejected { because: Rejected::Full | Rejected::TooSoon, .. }) => {
                let rejected = error.to_string().chars().take(512).collect();
                Ok(wire::PacedPublication { period: publisher.period().as_nanos(), rejected })
            }
            Err(PublishError::Rejected { because: Rejected::Idle, .. }) => {
                Err(SystemKind::Transient.not_done(minor::NOT_RUN).into())
            }
            Err(error) => Err(refused(&error, error.remedy()).into()),
        }
    }

    pub fn remove_publisher(&self, owner: Option<&str>, ticket: u64) {
        let mut publishers = self.publishers();
        let removed = publishers.iter().position(|one| one.is(owner, ticket)).map(|at| publishers.swap_remove(at));
        drop(publishers);
        // It leaves its loop without the lock.
        drop(removed);
    }

    fn publishers(&self) -> MutexGuard<'_, Vec<OperatorPublisher>> {
        self.0.publishers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OperatorPublisher {
    fn is(&self, owner: Option<&str>, ticket: u64) -> bool {
        self.ticket == ticket && self.owner.as_deref() == owner
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

#[cfg(test)]
mod tests {
    use super::*;
    use hyoshi_runtime::Node;
    use hyoshi_sched::{Plan, Strategies};

    const SYSTEM: &str = r#"
        name     = "watched"
        duration = "60s"
        [event.status]
        [operation.beat]
        every    = "100ms"
        wcet     = "0.05ms"
        supplies = ["status"]
    "#;

    #[test]
    fn operators_with_certificates_leave_a_share_for_the_user_of_the_run() {
        let read = hyoshi_model::read(SYSTEM, "watched.toml", None).unwrap_or_else(|errors| panic!("{errors}"));
        let system = Arc::new(read.system);
        let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
        let mut node = Node::new(system, plan).share_cpu(true).prepare().unwrap();
        let events = WatchedEvents::new(Some(EventChannel::start(&mut node).unwrap()));
        let subscribe = |owner: Option<&str>| events.subscribe(owner.map(str::to_owned), &["status".to_owned()]);
        let accepted = |owner: Option<&str>| (0..5).filter_map(|_| subscribe(owner).ok()).collect::<Vec<u64>>();
        // One of the certificates has no name.
        let certified = ["ann", "", "bob", "eve"].map(|name| accepted(Some(name)));
        assert_eq!(certified.each_ref().map(Vec::len), [4, 4, 4, 0]);
        let own = accepted(None);
        assert_eq!(own.len(), 4);
        assert!(events.take(None, own[0]).is_ok() && events.take(Some(""), own[0]).is_err());
        assert!(events.take(None, certified[1][0]).is_err());
    }
}
