//! Both ends of the exchange of completions between a node that runs one host and the other hosts. The caller
//! transports them.
//!
//! ```text
//!   lane's thread ─ completes a job ─► ring ─► OutgoingCompletions ─► (a network)
//!   (a network) ─► IncomingCompletions ─► ring ─► dispatcher
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyoshi_model::{HostId, Instant, OperationId, ProcessorId, Span, System, time::LONGEST_SPAN};
use hyoshi_os::{Clock, MonotonicClock, Wake};
use hyoshi_trace::Signal;

use crate::link::{LINK, Receiver, Sender};
use crate::payload::{EmitError, Payload, PayloadBuffers};
use crate::processor::ProcessorState;
use crate::wakeups::PendingWakeups;

/// The completions for one other host. One thread, above the lanes, receives and sends them.
#[derive(Debug)]
pub struct OutgoingCompletions {
    pub(crate) to: HostId,
    pub(crate) rings: Vec<Receiver>,
    pub(crate) wake: Arc<Wake>,
}

/// A departing completion.
#[derive(Debug)]
pub struct OutgoingCompletion {
    /// The completion. Its `due` is the time of sending, on this node's clock.
    pub signal: Signal,
    payload: Option<Arc<Payload>>,
}

impl OutgoingCompletion {
    /// The job's payload; possibly empty.
    pub fn payload(&self) -> &[u8] {
        self.payload.as_deref().map_or(&[], Payload::bytes)
    }
}

impl OutgoingCompletions {
    /// The target host.
    pub fn to(&self) -> HostId {
        self.to
    }

    /// Wakes [`OutgoingCompletions::wait`]. Post it to end a wait.
    pub fn wake(&self) -> Arc<Wake> {
        self.wake.clone()
    }

    /// Waits for the next departing completion, or until the time limit.
    pub fn wait(&self, most: Span) {
        let clock = MonotonicClock::start();
        self.wake.wait_until(&clock, clock.now() + most);
    }

    /// The next completion. Those of one processor are in the order of sending.
    pub fn take(&mut self) -> Option<OutgoingCompletion> {
        let (signal, payload) = self.rings.iter_mut().find_map(|ring| ring.pop().ok())?;
        Some(OutgoingCompletion { signal, payload })
    }
}

/// The completions that arrive from one other host.
#[derive(Debug)]
pub struct IncomingCompletions {
    from: HostId,
    system: Arc<System>,
    processors: Vec<IncomingRing>,
    /// Payload buffers, by operation of that host.
    outlets: BTreeMap<OperationId, PayloadBuffers>,
}

#[derive(Debug)]
struct IncomingRing {
    processor: Arc<ProcessorState>,
    ring: Sender,
    wakeups: PendingWakeups,
    pushed: bool,
}

/// The reason why an arriving completion, or a publication from outside, was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// The sender does not run its operation, or the operation triggers nothing here.
    Foreign,
    /// Its times or its period are implausible for the system.
    Implausible,
    /// Its payload is longer than the operation's `payload`.
    TooLong,
    /// The ring of its processor or the queue of its operation is full, or no payload buffer is free. A publication
    /// also if its operation is busy or off.
    Full,
    /// The node has not started, or has ended.
    Idle,
}

impl From<EmitError> for Rejected {
    fn from(error: EmitError) -> Self {
        match error {
            EmitError::TooLong { .. } => Rejected::TooLong,
            EmitError::NoBuffer => Rejected::Full,
        }
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rejected::Foreign => "the sender does not run this operation, or it triggers none here",
            Rejected::Implausible => "implausible times",
            Rejected::TooLong => "payload longer than declared",
            Rejected::Full => "no buffer is free",
            Rejected::Idle => "the node is not running",
        })
    }
}

/// The largest lead of an arriving completion's time, because clocks differ.
const AHEAD: Span = Span::from_secs(1);

impl IncomingCompletions {
    pub(crate) fn new(system: Arc<System>, from: HostId, rings: Vec<(Arc<ProcessorState>, Sender)>) -> Self {
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
        let payload_buffers = |(id, buffers): (OperationId, usize)| {
            (id, PayloadBuffers::new(system.operation(id).payload as usize, buffers))
        };
        let outlets = outlets.into_iter().map(payload_buffers).collect();
        let arrival = |(processor, ring): (Arc<ProcessorState>, Sender)| {
            let wakeups = processor.wakeups();
            IncomingRing { processor, ring, wakeups, pushed: false }
        };
        let processors = rings.into_iter().map(arrival).collect();
        IncomingCompletions { from, system, processors, outlets }
    }

    /// The source host.
    pub fn from(&self) -> HostId {
        self.from
    }

    /// Accepts a completion with times on this node's clock. The next [`IncomingCompletions::deliver`] passes it to the
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
            let payload_buffers = self.outlets.get_mut(&signal.from).ok_or(Rejected::Foreign)?;
            payload_buffers.emit(payload)?;
            data = payload_buffers.take();
        }
        arrival.ring.push((Signal { due: now, ticket: None, ..signal }, data)).map_err(|_| Rejected::Full)?;
        arrival.pushed = true;
        Ok(())
    }

    /// Passes accepted completions to the dispatchers and wakes their lanes, on the calling thread. Call it from a
    /// thread above the lanes, after each batch.
    pub fn deliver(&mut self) {
        for IncomingRing { processor, wakeups, pushed, .. } in &mut self.processors {
            if std::mem::take(pushed) {
                processor.section(|crew, now| crew.on_arrival(now, wakeups));
                wakeups.deliver();
            }
        }
    }
}

/// The greatest job number: one per nanosecond for a century.
const MOST_NUMBER: u64 = 1 << 62;

/// A use across hosts that only a run of all hosts in one process supports: the operation, and the resource or value.
pub(crate) fn needs_one_process(system: &System) -> Option<(String, String)> {
    let host = |id: OperationId| system.processor(system.operation(id).on).host;
    system.operation_ids().find_map(|id| {
        let operation = system.operation(id);
        let elsewhere = |other: &OperationId| host(*other) != host(id);
        if let Some(read) = operation.reads.iter().find(|other| elsewhere(other)) {
            return Some((operation.name.clone(), format!("reads `{}`", system.operation(*read).name)));
        }
        operation.uses.iter().find_map(|(resource, _)| {
            let uses = |other: &OperationId| system.operation(*other).uses.iter().any(|(used, _)| used == resource);
            let shared = system.operation_ids().any(|other| uses(&other) && elsewhere(&other));
            shared.then(|| {
                (operation.name.clone(), format!("uses resource `{}`", system.resources[resource.index()].name))
            })
        })
    })
}
