//! The channel: its thread, its subscriptions, its inputs.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant as WallClock;

use hyoshi_model::event::matches;
use hyoshi_model::{Instant, OperationId, Span, System};
use hyoshi_os::{PiMutex, Spawn, SpawnedThread};
use hyoshi_runtime::{ClientRateControl, EventFeed, EventInput, FeedControl, Prepared, Rejected, SuppliedEvent};

use crate::publisher::{Publisher, PublisherReports, PublisherState, RegisterError, Registration, claim};
use crate::queue::Subscription;
use crate::subscriber::{ReceivedEvent, Subscriber, SubscriberState};

/// The maximum number of subscriptions of a channel.
const SUBSCRIPTIONS: usize = 256;
/// The maximum number of events that wait for one subscriber.
const MOST_WAITING: usize = 65_536;
/// The longest wait of the channel's thread, and the interval of its search for idle subscriptions.
const LOOK: Span = Span::from_millis(500);

/// The event channel of a node; see the [crate](crate). Clones share it. It ends with the last clone.
#[derive(Clone, Debug)]
pub struct EventChannel(Arc<ChannelThread>);

#[derive(Debug)]
struct ChannelThread {
    state: Arc<ChannelState>,
    thread: Option<SpawnedThread<()>>,
}

#[derive(Debug)]
pub(crate) struct ChannelState {
    feed: FeedControl,
    /// By event.
    names: Vec<Arc<str>>,
    /// By operation: the events that it supplies, if any.
    supplied: Vec<Supplied>,
    inputs: Vec<ChannelInput>,
    /// Registered publishers, and the latest reports about those that have left.
    publishers: Mutex<(Vec<Arc<PublisherState>>, PublisherReports)>,
    subscribers: Mutex<Vec<Arc<SubscriberState>>>,
    /// By event: the latest events, for late subscribers.
    kept: Mutex<Vec<VecDeque<ReceivedEvent>>>,
    over: AtomicBool,
}

/// The input of a supplier with `called = true`.
#[derive(Debug)]
struct ChannelInput {
    supplier: OperationId,
    /// The lock has priority inheritance, because a body in a lane may publish.
    input: PiMutex<EventInput>,
    /// The loop that sets the rates of its publishers.
    rates: Option<ClientRateControl>,
}

/// The events of one supplier.
#[derive(Debug)]
struct Supplied {
    name: Arc<str>,
    events: Vec<usize>,
}

/// The reason why a channel does not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum ChannelError {
    /// The node's events belong to another channel.
    Taken,
    /// The system refuses a thread.
    Thread(io::Error),
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChannelError::Taken => f.write_str("the node already has an event channel"),
            ChannelError::Thread(error) => write!(f, "cannot start another thread: {error}"),
        }
    }
}

impl std::error::Error for ChannelError {}

/// The reason why a subscription is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubscribeError {
    /// No event of the file matches.
    Unknown {
        /// The pattern.
        pattern: String,
    },
    /// The channel has the maximum number of subscriptions.
    TooMany,
    /// The queue's limit is above the maximum.
    TooLong {
        /// The limit.
        limit: usize,
    },
}

impl fmt::Display for SubscribeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubscribeError::Unknown { pattern } => write!(f, "no event matches `{pattern}`"),
            SubscribeError::TooMany => write!(f, "the node has {SUBSCRIPTIONS} subscriptions, the maximum"),
            SubscribeError::TooLong { limit } => write!(f, "a queue of {limit} events is too long"),
        }
    }
}

impl std::error::Error for SubscribeError {}

impl SubscribeError {
    /// The remedy.
    pub fn remedy(&self) -> String {
        match self {
            SubscribeError::Unknown { .. } => "`hyoshi events list` lists the events".to_owned(),
            SubscribeError::TooMany => "end one of them".to_owned(),
            SubscribeError::TooLong { .. } => format!("the limit is {MOST_WAITING}"),
        }
    }
}

/// The reason why a publication is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublishError {
    /// The file has no such event.
    Unknown {
        /// Its name.
        name: String,
    },
    /// No supplier of the event accepts publications here.
    NoInput {
        /// Its name.
        name: String,
    },
    /// The node rejects it.
    Rejected {
        /// The event.
        name: String,
        /// The supplier that rejected it.
        supplier: String,
        /// Why.
        because: Rejected,
    },
    /// The publisher's registration has ended.
    Ended {
        /// The event.
        name: String,
    },
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PublishError::Unknown { name } => write!(f, "unknown event `{name}`"),
            PublishError::NoInput { name } => {
                write!(f, "event `{name}` cannot be published here: no supplier on this node has `called = true`")
            }
            PublishError::Rejected { name, supplier, because } => {
                write!(f, "operation `{supplier}` rejected event `{name}`: {because}")
            }
            PublishError::Ended { name } => write!(f, "the registration of this publisher of `{name}` has ended"),
        }
    }
}

impl std::error::Error for PublishError {}

impl PublishError {
    /// The remedy.
    pub fn remedy(&self) -> String {
        match self {
            PublishError::Unknown { .. } => "`hyoshi events list` lists the events".to_owned(),
            PublishError::NoInput { name } => {
                format!("add an operation with `called = true` and `supplies = [\"{name}\"]` to the file")
            }
            PublishError::Rejected { because: Rejected::TooLong, .. } => {
                "raise `payload` of the event in the file".to_owned()
            }
            PublishError::Rejected { supplier, because: Rejected::Full, .. } => {
                format!("publish more slowly, or raise the limit of the queue of `{supplier}` in the file")
            }
            PublishError::Rejected { supplier, because: Rejected::TooSoon, .. } => {
                format!(
                    "publish at most once in each `min_interval` of `{supplier}`, or in each period of the publisher"
                )
            }
            PublishError::Rejected { name, because: Rejected::Unregistered, .. } => {
                format!("let the feedback loop set the rate: hyoshi events publish {name} --rate 1Hz..10Hz")
            }
            PublishError::Rejected { .. } => "publish during the run".to_owned(),
            PublishError::Ended { .. } => "register again".to_owned(),
        }
    }
}

/// The state of an event on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventStanding {
    /// The name in the file.
    pub name: Arc<str>,
    /// The suppliers that this node runs.
    pub suppliers: Vec<Arc<str>>,
    /// The number of operations that it triggers, on all nodes.
    pub consumers: usize,
    /// How many bytes a supplier may pass with it.
    pub payload: u32,
    /// Whether it can be published from outside: a supplier here has `called = true`.
    pub open: bool,
    /// The pushes so far.
    pub pushed: u64,
    /// The pushes after the supplier's deadline.
    pub late: u64,
    /// Events that the channel lost because it was not scheduled in time.
    pub lost: u64,
    /// The last push: how long ago, and its lateness in ns.
    pub last: Option<(Span, i64)>,
}

impl EventChannel {
    /// Starts the channel of a node before the node runs.
    ///
    /// # Errors
    ///
    /// If the node already has a channel, or the system refuses a thread.
    pub fn start(node: &mut Prepared) -> Result<EventChannel, ChannelError> {
        let (feed, inputs) = node.take_events().ok_or(ChannelError::Taken)?;
        let control = feed.control();
        let system = control.system().clone();
        let mut supplied: Vec<Supplied> =
            system.operations.iter().map(|one| Supplied { name: (*one.name).into(), events: Vec::new() }).collect();
        for (position, event) in system.events.iter().enumerate() {
            event.suppliers.iter().for_each(|supplier| supplied[supplier.index()].events.push(position));
        }
        let input = |input: EventInput| {
            let supplier = input.supplier();
            let declared = system.operation(supplier);
            let rates = declared.clients.and_then(|_| node.client_rates(declared.on));
            ChannelInput { supplier, input: PiMutex::new(input), rates }
        };
        let state = Arc::new(ChannelState {
            feed: control,
            names: system.events.iter().map(|event| (*event.name).into()).collect(),
            supplied,
            inputs: inputs.into_iter().map(input).collect(),
            publishers: Mutex::default(),
            subscribers: Mutex::default(),
            kept: Mutex::new(system.events.iter().map(|_| VecDeque::new()).collect()),
            over: AtomicBool::new(false),
        });
        state.select();
        let own = state.clone();
        // A file without events needs no thread.
        let spawn = (!system.events.is_empty()).then(|| Spawn::new("events").spawn(move || own.run(feed)));
        let thread = spawn.transpose().map_err(ChannelError::Thread)?;
        Ok(EventChannel(Arc::new(ChannelThread { state, thread })))
    }

    /// Subscribes to the events that match one of the patterns (`*` for one part of a name, `**` for any number). The
    /// subscriber first receives the events that the file `keep`s for it.
    ///
    /// # Errors
    ///
    /// If a pattern matches no event, or a limit is exceeded.
    pub fn subscribe(&self, patterns: &[&str], properties: Subscription) -> Result<Subscriber, SubscribeError> {
        let state = &self.0.state;
        if properties.limit > MOST_WAITING {
            return Err(SubscribeError::TooLong { limit: properties.limit });
        }
        let mut selected = vec![false; state.names.len()].into_boxed_slice();
        for pattern in patterns {
            let found = state.names.iter().zip(&mut selected).filter(|(name, _)| matches(pattern, name));
            let found = found.map(|(_, selected)| *selected = true).count();
            if found == 0 {
                return Err(SubscribeError::Unknown { pattern: (*pattern).to_owned() });
            }
        }
        let subscriber = Arc::new(SubscriberState::new(selected, properties, state.now()));
        {
            let mut subscribers = state.subscribers();
            if subscribers.len() == SUBSCRIPTIONS {
                return Err(SubscribeError::TooMany);
            }
            // Under the lock, so no event is missed between the kept ones and the first new one.
            let kept = lock(&state.kept);
            let mut earlier: Vec<&ReceivedEvent> = kept
                .iter()
                .zip(&subscriber.selected)
                .filter(|(_, selected)| **selected)
                .flat_map(|(events, _)| events)
                .collect();
            earlier.sort_by_key(|event| event.pushed);
            earlier.into_iter().for_each(|event| subscriber.push(event));
            subscribers.push(subscriber.clone());
        }
        state.select();
        Ok(Subscriber { state: subscriber, channel: state.clone() })
    }

    /// Publishes an event: releases a job of one of its suppliers with `called = true`, with this payload.
    ///
    /// # Errors
    ///
    /// If there is no such supplier on this node, or the node rejects the publication.
    pub fn publish(&self, name: &str, payload: &[u8]) -> Result<(), PublishError> {
        self.0.state.publish(name, payload, None)
    }

    /// The same for a registered client with this period, for example one that has joined over CORBA. The caller has
    /// admitted the publication at the client's rate.
    ///
    /// # Errors
    ///
    /// As [`publish`](Self::publish).
    pub fn publish_of_client(&self, name: &str, payload: &[u8], period: Span) -> Result<(), PublishError> {
        self.0.state.publish(name, payload, Some(period))
    }

    /// Registers a publisher of an event with the feedback loop of a supplier with `clients`: the loop sets its rate.
    ///
    /// # Errors
    ///
    /// If no supplier here has `clients`, the run has not begun, or the loop refuses the publisher.
    pub fn publisher(&self, name: &str, asked: &Registration) -> Result<Publisher, RegisterError> {
        let channel = &self.0.state;
        let event = channel.position(name).ok_or_else(|| RegisterError::Unknown { name: name.to_owned() })?;
        let rates = |input: &ChannelInput| Some((input.supplier, input.rates.clone()?));
        let (supplier, rates) = channel
            .inputs_of(event)
            .find_map(rates)
            .ok_or_else(|| RegisterError::NoClients { name: name.to_owned() })?;
        let claim = claim(channel.system(), supplier, asked);
        let shown =
            |client: u16| format!("client {client} of {} ({})", channel.of(supplier).name, claim.label.as_str());
        let state =
            PublisherState::join((name, &shown), &rates, (&claim, asked.idle)).map_err(RegisterError::Refused)?;
        let state = Arc::new(state);
        lock(&channel.publishers).0.push(state.clone());
        Ok(Publisher { state, channel: channel.clone() })
    }

    /// Reports of publishers that were silent for too long, or ignored their rates.
    pub fn publisher_reports(&self) -> Vec<String> {
        lock(&self.0.state.publishers).1.all()
    }

    /// The state of each event, in the file's order.
    pub fn standing(&self) -> Vec<EventStanding> {
        let state = &self.0.state;
        let (system, now) = (state.system(), state.now());
        let open = |supplier: &OperationId| state.inputs.iter().any(|input| input.supplier == *supplier);
        let standing = |(name, event): (&Arc<str>, &hyoshi_model::Event)| {
            let counts = event.suppliers.iter().filter_map(|one| Some((*one, state.feed.counts(*one)?)));
            let mut standing = EventStanding {
                name: name.clone(),
                suppliers: Vec::new(),
                consumers: event.consumers.len(),
                payload: event.payload,
                open: event.suppliers.iter().any(open),
                pushed: 0,
                late: 0,
                lost: 0,
                last: None,
            };
            for (supplier, counts) in counts {
                standing.suppliers.push(state.of(supplier).name.clone());
                standing.pushed += counts.pushed;
                standing.late += counts.late;
                standing.lost += counts.lost;
                let last = counts.last.map(|last| (now.since(last), counts.last_lateness));
                standing.last = [standing.last, last].into_iter().flatten().min();
            }
            standing
        };
        state.names.iter().zip(&system.events).map(standing).collect()
    }

    /// The system that the node runs.
    pub fn system(&self) -> &Arc<System> {
        self.0.state.system()
    }

    /// The current time of the run's clock; 0 before the run.
    pub fn now(&self) -> Instant {
        self.0.state.now()
    }
}

impl Drop for ChannelThread {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Release);
        self.state.feed.wake();
        // The thread does not panic.
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
        self.state.subscribers().iter().for_each(|subscriber| subscriber.wake());
    }
}

impl ChannelState {
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// The current time of the run's clock; 0 before the run.
    pub fn now(&self) -> Instant {
        self.feed.now().unwrap_or(Instant::ZERO)
    }

    /// Requests from the feed the suppliers of all events that a subscriber selects or the file keeps.
    pub fn select(&self) {
        let subscribers = self.subscribers();
        let active: Vec<_> = subscribers.iter().filter(|subscriber| !subscriber.is_suspended()).collect();
        let events = &self.system().events;
        for (supplier, supplied) in self.system().operation_ids().zip(&self.supplied) {
            let wanted = |event: &usize| events[*event].keep > 0 || active.iter().any(|one| one.selected[*event]);
            self.feed.want(supplier, supplied.events.iter().any(wanted));
        }
    }

    pub fn disconnect(&self, subscriber: &Arc<SubscriberState>) {
        self.subscribers().retain(|other| !Arc::ptr_eq(other, subscriber));
        subscriber.end();
        self.select();
    }

    /// The channel's thread.
    fn run(&self, mut feed: EventFeed) {
        let mut looked = WallClock::now();
        while !self.is_over() {
            feed.wait(LOOK);
            feed.take(|event| self.pass_on(&event));
            if looked.elapsed().as_nanos() >= u128::from(LOOK.as_nanos()) {
                looked = WallClock::now();
                self.disconnect_idle();
                self.remove_silent();
            }
        }
    }

    fn disconnect_idle(&self) {
        let now = self.now();
        let idle = |subscriber: &Arc<SubscriberState>| subscriber.is_idle(now);
        if self.subscribers().iter().any(idle) {
            self.subscribers().retain(|subscriber| {
                let is_idle = idle(subscriber);
                if is_idle {
                    subscriber.end();
                }
                !is_idle
            });
            self.select();
        }
    }

    /// Removes publishers that were silent for too long.
    fn remove_silent(&self) {
        let silent = |state: &Arc<PublisherState>| Some((state.clone(), state.silence()?));
        let silent: Vec<_> = lock(&self.publishers).0.iter().filter_map(silent).collect();
        for (state, silence) in silent {
            let silence = Span::from_millis(silence.as_nanos() / 1_000_000);
            self.end_publisher(&state, Some(format!("it published nothing for {silence}")));
        }
    }

    /// A publisher leaves, for a reason if it was removed.
    pub fn end_publisher(&self, state: &Arc<PublisherState>, why: Option<String>) {
        let reports = state.leave(why);
        let mut publishers = lock(&self.publishers);
        publishers.0.retain(|one| !Arc::ptr_eq(one, state));
        publishers.1.add(reports);
    }

    /// Releases a job of a supplier of the event, for a registered client with this period if there is one.
    pub fn publish(&self, name: &str, payload: &[u8], period: Option<Span>) -> Result<(), PublishError> {
        let event = self.position(name).ok_or_else(|| PublishError::Unknown { name: name.to_owned() })?;
        // A supplier without `clients` accepts publishers that are not registered.
        let input = self.inputs_of(event).find(|input| self.has_clients(input) == period.is_some());
        let input = input.or_else(|| self.inputs_of(event).next());
        let input = input.ok_or_else(|| PublishError::NoInput { name: name.to_owned() })?;
        let published = input.input.lock().publish(payload, period);
        published.map_err(|because| self.refusal(name, input.supplier, because))
    }

    /// The supplier rejects a publication.
    pub fn refusal(&self, name: &str, supplier: OperationId, because: Rejected) -> PublishError {
        PublishError::Rejected { name: name.to_owned(), supplier: self.of(supplier).name.to_string(), because }
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| **known == *name)
    }

    fn inputs_of(&self, event: usize) -> impl Iterator<Item = &ChannelInput> {
        self.inputs.iter().filter(move |input| self.of(input.supplier).events.contains(&event))
    }

    fn has_clients(&self, input: &ChannelInput) -> bool {
        self.system().operation(input.supplier).clients.is_some()
    }

    fn pass_on(&self, pushed: &SuppliedEvent) {
        let supplied = self.of(pushed.supplier);
        let payload: Arc<[u8]> = pushed.payload().into();
        // The same locking order as in `subscribe`.
        let (subscribers, mut kept) = (self.subscribers(), lock(&self.kept));
        for position in &supplied.events {
            let event = ReceivedEvent {
                name: self.names[*position].clone(),
                supplier: supplied.name.clone(),
                number: pushed.number,
                origin: pushed.origin,
                release: pushed.release,
                deadline: pushed.deadline,
                pushed: pushed.pushed,
                importance: pushed.importance,
                critical: pushed.critical,
                payload: payload.clone(),
            };
            subscribers.iter().filter(|one| one.selected[*position]).for_each(|one| one.push(&event));
            let (kept, keep) = (&mut kept[*position], self.system().events[*position].keep as usize);
            if keep > 0 {
                if kept.len() == keep {
                    kept.pop_front();
                }
                kept.push_back(event);
            }
        }
    }

    fn system(&self) -> &Arc<System> {
        self.feed.system()
    }

    fn of(&self, supplier: OperationId) -> &Supplied {
        &self.supplied[supplier.index()]
    }

    fn subscribers(&self) -> MutexGuard<'_, Vec<Arc<SubscriberState>>> {
        lock(&self.subscribers)
    }
}

/// No code of the channel panics while it holds a lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
