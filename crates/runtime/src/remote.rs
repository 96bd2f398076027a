//! The exchange of completions between a node that runs one host and the other hosts. The caller transports them; this
//! module contains both ends.
//!
//! ```text
//!   lane's thread ─ completes a job ─► ring ─► Departures ─► (a network) ─► Arrivals ─► ring ─► dispatcher
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyoshi_model::{HostId, Instant, OperationId, ProcessorId, Span, System, time::LONGEST_SPAN};
use hyoshi_os::{Clock, MonotonicClock, Wake};
use hyoshi_trace::Signal;

use crate::link::{LINK, Receiver, Sender};
use crate::payload::{Outlet, Payload};
use crate::posts::Posts;
use crate::processor::Processor;

/// The departing completions for one other host. One thread, above the lanes, takes and sends them.
#[derive(Debug)]
pub struct Departures {
    pub(crate) to: HostId,
    pub(crate) rings: Vec<Receiver>,
    pub(crate) wake: Arc<Wake>,
}

/// A departing completion.
#[derive(Debug)]
pub struct Departure {
    /// The completion. Its `due` is the time of sending, on this node's clock.
    pub signal: Signal,
    payload: Option<Arc<Payload>>,
}

impl Departure {
    /// The job's payload; may be empty.
    pub fn payload(&self) -> &[u8] {
        self.payload.as_deref().map_or(&[], Payload::bytes)
    }
}

impl Departures {
    /// The target host.
    pub fn to(&self) -> HostId {
        self.to
    }

    /// Wakes [`Departures::wait`]. Post it to end a wait.
    pub fn wake(&self) -> Arc<Wake> {
        self.wake.clone()
    }

    /// Waits for the next departing completion, or until the time limit.
    pub fn wait(&self, most: Span) {
        let clock = MonotonicClock::start();
        self.wake.wait_until(&clock, clock.now() + most);
    }

    /// The next completion. Those of one processor are in the order of sending.
    pub fn take(&mut self) -> Option<Departure> {
        let (signal, payload) = self.rings.iter_mut().find_map(|ring| ring.pop().ok())?;
        Some(Departure { signal, payload })
    }
}

/// The completions that arrive from one other host.
#[derive(Debug)]
pub struct Arrivals {
    from: HostId,
    system: Arc<System>,
    processors: Vec<Arrival>,
    /// Payload buffers, by operation of that host.
    outlets: BTreeMap<OperationId, Outlet>,
}

#[derive(Debug)]
struct Arrival {
    processor: Arc<Processor>,
    ring: Sender,
    posts: Posts,
    pushed: bool,
}

/// The reason why an arriving completion was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// The sender does not run its operation, or it triggers nothing here.
    Foreign,
    /// Its times or its period are implausible for the system.
    Implausible,
    /// Its payload is longer than the operation's `payload`.
    TooLong,
    /// The ring of its processor is full, or no payload buffer is free.
    Full,
    /// The node has not begun, or has ended.
    Idle,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rejected::Foreign => "not an operation of the sender that triggers one here",
            Rejected::Implausible => "implausible times",
            Rejected::TooLong => "payload longer than declared",
            Rejected::Full => "no room",
            Rejected::Idle => "the node does not run",
        })
    }
}

/// How far in the future a time of an arriving completion may be: clocks err.
const AHEAD: Span = Span::from_secs(1);

impl Arrivals {
    pub(crate) fn new(system: Arc<System>, from: HostId, rings: Vec<(Arc<Processor>, Sender)>) -> Self {
        let own: Vec<ProcessorId> = rings.iter().map(|(processor, _)| processor.id).collect();
        let mut outlets = BTreeMap::new();
        for (to, operation) in system.operation_ids().zip(&system.operations) {
            for source in operation.trigger.predecessors().iter().filter(|_| own.contains(&operation.on)) {
                let source_is_there = system.processor(system.operation(*source).on).host == from;
                if source_is_there {
                    let buffers = outlets.entry(*source).or_insert(2);
                    *buffers += 2 * system.operation(to).queue.limit as usize + 5 + LINK.min(64);
                }
            }
        }
        let outlet =
            |(id, buffers): (OperationId, usize)| (id, Outlet::new(system.operation(id).payload as usize, buffers));
        let outlets = outlets.into_iter().map(outlet).collect();
        let arrival = |(processor, ring): (Arc<Processor>, Sender)| {
            let posts = processor.posts();
            Arrival { processor, ring, posts, pushed: false }
        };
        let processors = rings.into_iter().map(arrival).collect();
        Arrivals { from, system, processors, outlets }
    }

    /// The source host.
    pub fn from(&self) -> HostId {
        self.from
    }

    /// Accepts a completion with times on this node's clock. The next [`Arrivals::deliver`] passes it to the
    /// dispatcher. Does not allocate.
    ///
    /// # Errors
    ///
    /// If this host cannot send it, or there is no room.
    pub fn push(&mut self, signal: Signal, payload: &[u8]) -> Result<(), Rejected> {
        let system = &self.system;
        let id = |id: OperationId| (id.index() < system.operations.len()).then(|| system.operation(id));
        let (Some(from), Some(to)) = (id(signal.from), id(signal.to)) else { return Err(Rejected::Foreign) };
        let expected = to.trigger.predecessors().get(usize::from(signal.position)) == Some(&signal.from);
        let arrival = self.processors.iter_mut().find(|arrival| arrival.processor.id == to.on);
        let (Some(arrival), true) = (arrival, expected && system.processor(from.on).host == self.from) else {
            return Err(Rejected::Foreign);
        };
        let common = &arrival.processor.common;
        if !common.has_begun() || common.stopping.load(Ordering::Acquire) {
            return Err(Rejected::Idle);
        }
        let now = common.now();
        if now == Instant::ZERO {
            // Before instant 0 nothing runs.
            return Err(Rejected::Idle);
        }
        if signal.origin > now + AHEAD || signal.period > LONGEST_SPAN || signal.number > MOST_NUMBER {
            return Err(Rejected::Implausible);
        }
        let mut data = None;
        if !payload.is_empty() {
            let outlet = self.outlets.get_mut(&signal.from).ok_or(Rejected::Foreign)?;
            outlet.emit(payload).map_err(|error| match error {
                crate::EmitError::TooLong { .. } => Rejected::TooLong,
                crate::EmitError::NoBuffer => Rejected::Full,
            })?;
            data = outlet.take();
        }
        arrival.ring.push((Signal { due: now, ticket: None, ..signal }, data)).map_err(|_| Rejected::Full)?;
        arrival.pushed = true;
        Ok(())
    }

    /// Passes accepted completions to the dispatchers and wakes their lanes, on the calling thread. Call it from a
    /// thread above the lanes, after each batch.
    pub fn deliver(&mut self) {
        for Arrival { processor, posts, pushed, .. } in &mut self.processors {
            if std::mem::take(pushed) {
                processor.section(|crew, now| crew.on_arrival(now, posts));
                posts.deliver();
            }
        }
    }
}

/// No job number is greater: one each nanosecond for a century.
const MOST_NUMBER: u64 = 1 << 62;

/// A use across hosts that only a run of all hosts in one process supports: the operation, and the resource or value.
pub(crate) fn needs_one_process(system: &System) -> Option<(String, String)> {
    let host = |id: OperationId| system.processor(system.operation(id).on).host;
    system.operation_ids().find_map(|id| {
        let operation = system.operation(id);
        let elsewhere = |other: &OperationId| host(*other) != host(id);
        if let Some(read) = operation.reads.iter().find(|other| elsewhere(other)) {
            return Some((operation.name.clone(), format!("reads {:?}", system.operation(*read).name)));
        }
        operation.uses.iter().find_map(|(resource, _)| {
            let uses = |other: &OperationId| system.operation(*other).uses.iter().any(|(used, _)| used == resource);
            let shared = system.operation_ids().any(|other| uses(&other) && elsewhere(&other));
            shared.then(|| {
                (operation.name.clone(), format!("uses resource {:?}", system.resources[resource.index()].name))
            })
        })
    })
}
