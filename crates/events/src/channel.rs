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
use hyoshi_runtime::{EventFeed, EventInput, FeedControl, Prepared, Rejected, SuppliedEvent};

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
    /// The locks have priority inheritance, because a body in a lane may publish.
    inputs: Vec<(OperationId, PiMutex<EventInput>)>,
    subscribers: Mutex<Vec<Arc<SubscriberState>>>,
    /// By event: the latest events, for late subscribers.
    kept: Mutex<Vec<VecDeque<ReceivedEvent>>>,
    over: AtomicBool,
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
                format!("publish at most once in each `min_interval` of `{supplier}`")
            }
            PublishError::Rejected { .. } => "publish during the run".to_owned(),
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
        let state = Arc::new(ChannelState {
            feed: control,
            names: system.events.iter().map(|event| (*event.name).into()).collect(),
            supplied,
            inputs: inputs.into_iter().map(|input| (input.supplier(), PiMutex::new(input))).collect(),
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
        let state = &self.0.state;
        let event = state.names.iter().position(|known| **known == *name);
        let event = event.ok_or_else(|| PublishError::Unknown { name: name.to_owned() })?;
        let input = state.inputs.iter().find(|(supplier, _)| state.of(*supplier).events.contains(&event));
        let (supplier, input) = input.ok_or_else(|| PublishError::NoInput { name: name.to_owned() })?;
        let published = input.lock().publish(payload);
        published.map_err(|because| PublishError::Rejected {
            name: name.to_owned(),
            supplier: state.of(*supplier).name.to_string(),
            because,
        })
    }

    /// The state of each event, in the file's order.
    pub fn standing(&self) -> Vec<EventStanding> {
        let state = &self.0.state;
        let (system, now) = (state.system(), state.now());
        let open = |supplier: &OperationId| state.inputs.iter().any(|(known, _)| known == supplier);
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
