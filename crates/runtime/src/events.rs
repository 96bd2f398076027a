//! Events between a run and code outside its lanes. An [`EventFeed`] receives the events that suppliers push, for
//! example for the shell. An [`EventInput`] publishes from outside, as a request to a supplier with `called = true`.
//!
//! ```text
//!   lane completes a job of a supplier ─► ring of the supplier ─► EventFeed ─► one thread below the lanes
//!   any thread ─► EventInput::publish ─► dispatcher ─► job of the supplier ─► its consumers
//! ```
//!
//! The lane counts each push with a few stores. It fills the ring and wakes the reader only while the feed wants the
//! supplier. If the ring is full, the feed loses the event and counts it. Consumers in the run receive it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use hyoshi_dispatch::Job;
use hyoshi_model::{Instant, OperationId, Span, System};
use hyoshi_os::{Clock, MonotonicClock};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::common::CommonState;
use crate::link::LINK;
use crate::payload::{Payload, PayloadBuffers};
use crate::processor::ProcessorState;
use crate::remote::Rejected;
use crate::replica::in_transit;
use crate::requests::ArrivedRequest;
use crate::wakeups::PendingWakeups;

/// The maximum number of events of one supplier between two reads of the feed.
pub(crate) const FEED: usize = 64;

/// An event that a supplier pushed: its job has completed.
#[derive(Clone, Debug)]
pub struct SuppliedEvent {
    /// The supplier.
    pub supplier: OperationId,
    /// The release number of its job.
    pub number: u64,
    /// The nominal release of the first job of its chain. The age of the event counts from it.
    pub origin: Instant,
    /// The nominal release of its job.
    pub release: Instant,
    /// The absolute deadline of its job.
    pub deadline: Instant,
    /// When its job completed.
    pub pushed: Instant,
    /// The importance of its job.
    pub importance: u32,
    /// Whether its job was critical.
    pub critical: bool,
    payload: Option<Arc<Payload>>,
}

impl SuppliedEvent {
    /// The job's payload; possibly empty.
    pub fn payload(&self) -> &[u8] {
        self.payload.as_deref().map_or(&[], Payload::bytes)
    }
}

/// Counts of one supplier since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SupplierCounts {
    /// Jobs that completed and pushed their events.
    pub pushed: u64,
    /// Jobs of these that completed after their deadline.
    pub late: u64,
    /// The last push, if any.
    pub last: Option<Instant>,
    /// The lateness of the last push, in ns: negative if it was early.
    pub last_lateness: i64,
    /// Wanted events that the feed lost.
    pub lost: u64,
}

#[derive(Debug, Default)]
struct SupplierState {
    wanted: AtomicBool,
    pushed: AtomicU64,
    late: AtomicU64,
    last: AtomicU64,
    lateness: AtomicI64,
    lost: AtomicU64,
}

/// The lane's end of a supplier's ring, used under the processor's lock.
#[derive(Debug)]
pub(crate) struct SupplierFeed {
    state: Arc<SupplierState>,
    ring: Producer<SuppliedEvent>,
}

impl SupplierFeed {
    /// Counts and passes on a completed job. True if the reader of the feed must be woken.
    pub fn push(&mut self, job: &Job, now: Instant, payload: Option<&Arc<Payload>>) -> bool {
        let state = &*self.state;
        // Only this thread writes, so no read-modify-write is needed.
        let add = |counter: &AtomicU64| counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let lateness = i128::from(now.as_nanos()) - i128::from(job.deadline.as_nanos());
        if lateness > 0 {
            add(&state.late);
        }
        state.last.store(now.as_nanos(), Ordering::Relaxed);
        state.lateness.store(i64::try_from(lateness).unwrap_or(i64::MIN), Ordering::Relaxed);
        add(&state.pushed);
        if !state.wanted.load(Ordering::Relaxed) {
            return false;
        }
        let event = SuppliedEvent {
            supplier: job.id.operation,
            number: job.id.number,
            origin: job.origin,
            release: job.release,
            deadline: job.deadline,
            pushed: now,
            importance: job.importance,
            critical: job.critical,
            payload: payload.cloned(),
        };
        let kept = self.ring.push(event).is_ok();
        if !kept {
            add(&state.lost);
        }
        kept
    }
}

/// The events of a run, for one thread.
#[derive(Debug)]
pub struct EventFeed {
    suppliers: Vec<FeedRing>,
    common: Arc<CommonState>,
}

#[derive(Debug)]
struct FeedRing {
    supplier: OperationId,
    state: Arc<SupplierState>,
    ring: Consumer<SuppliedEvent>,
}

/// The counts of all suppliers, and which of them the feed wants. Clones share both.
#[derive(Clone, Debug)]
pub struct FeedControl {
    suppliers: Arc<[(OperationId, Arc<SupplierState>)]>,
    common: Arc<CommonState>,
}

impl EventFeed {
    /// A feed of these suppliers, and its ends in the lanes, in the same order.
    pub(crate) fn new(suppliers: &[OperationId], common: Arc<CommonState>) -> (EventFeed, Vec<SupplierFeed>) {
        let (mut rings, mut ends) = (Vec::new(), Vec::new());
        for supplier in suppliers {
            let (producer, consumer) = RingBuffer::new(FEED);
            let state = Arc::<SupplierState>::default();
            rings.push(FeedRing { supplier: *supplier, state: state.clone(), ring: consumer });
            ends.push(SupplierFeed { state, ring: producer });
        }
        (EventFeed { suppliers: rings, common }, ends)
    }

    /// Its control, for any thread.
    pub fn control(&self) -> FeedControl {
        let of = |ring: &FeedRing| (ring.supplier, ring.state.clone());
        FeedControl { suppliers: self.suppliers.iter().map(of).collect(), common: self.common.clone() }
    }

    /// Waits for the next event, until a call of [`FeedControl::wake`], or until the time limit.
    pub fn wait(&self, most: Span) {
        let clock = MonotonicClock::start();
        self.common.feed.wait_until(&clock, clock.now() + most);
    }

    /// Passes all present events to `sink`, those of each supplier in order. Drop each event soon: it holds one of a
    /// limited number of payload buffers.
    pub fn take(&mut self, mut sink: impl FnMut(SuppliedEvent)) {
        for supplier in &mut self.suppliers {
            while let Ok(event) = supplier.ring.pop() {
                sink(event);
            }
        }
    }
}

impl FeedControl {
    /// The system that runs.
    pub fn system(&self) -> &Arc<System> {
        &self.common.system
    }

    /// The current time of the run's clock; `None` before instant 0 is known.
    pub fn now(&self) -> Option<Instant> {
        self.common.has_begun().then(|| self.common.now())
    }

    /// Sets whether the feed wants the events of a supplier.
    pub fn want(&self, supplier: OperationId, wanted: bool) {
        if let Some(state) = self.state(supplier) {
            state.wanted.store(wanted, Ordering::Relaxed);
        }
    }

    /// `suppliers` is sorted.
    fn state(&self, supplier: OperationId) -> Option<&SupplierState> {
        let position = self.suppliers.binary_search_by_key(&supplier, |(known, _)| *known);
        Some(&self.suppliers[position.ok()?].1)
    }

    /// The counts of a supplier of this node; `None` for any other operation.
    pub fn counts(&self, supplier: OperationId) -> Option<SupplierCounts> {
        let state = self.state(supplier)?;
        let pushed = state.pushed.load(Ordering::Relaxed);
        Some(SupplierCounts {
            pushed,
            late: state.late.load(Ordering::Relaxed),
            last: (pushed > 0).then(|| Instant::from_nanos(state.last.load(Ordering::Relaxed))),
            last_lateness: state.lateness.load(Ordering::Relaxed),
            lost: state.lost.load(Ordering::Relaxed),
        })
    }

    /// Ends a wait of the feed's thread.
    pub fn wake(&self) {
        self.common.feed.post();
    }
}

/// By operation: whether it supplies an event.
pub(crate) fn suppliers(system: &System) -> Vec<bool> {
    let mut supplies = vec![false; system.operations.len()];
    system.events.iter().flat_map(|event| &event.suppliers).for_each(|supplier| supplies[supplier.index()] = true);
    supplies
}

/// The maximum number of payloads of an operation in use at a time: by the jobs that it triggers until they end, by
/// each reader of the latest one, in transit to other processors, and in the feed.
pub(crate) fn payload_holders(system: &System, id: OperationId, supplies: bool) -> usize {
    let operation = system.operation(id);
    let mut holders = if supplies { FEED + 1 } else { 0 };
    for other in &system.operations {
        // In a correlation it may be in several groups, and each group keeps different completions.
        let triggers = other.trigger.predecessors().iter().filter(|from| **from == id).count();
        let reads = other.reads.contains(&id);
        holders += if triggers > 0 { (1 + triggers) * other.queue.limit as usize + 5 } else { 0 } + usize::from(reads);
        holders += if triggers > 0 && other.on != operation.on { LINK.min(64) } else { 0 };
    }
    for host in operation.replication.iter().flat_map(|replication| &replication.to) {
        // In transit, in the replica itself, and on their way to the sending thread.
        holders += in_transit(system, id, *host) + 1 + LINK.min(64);
    }
    holders
}

/// Publishes the events of one supplier with `called = true`, from one thread at a time.
#[derive(Debug)]
pub struct EventInput {
    processor: Arc<ProcessorState>,
    supplier: OperationId,
    buffers: PayloadBuffers,
    wakeups: PendingWakeups,
    /// When the supplier's `min_interval` since its last publication is over.
    earliest: Instant,
}

impl EventInput {
    pub(crate) fn new(processor: Arc<ProcessorState>, supplier: OperationId) -> Self {
        let system = &processor.common.system;
        let operation = system.operation(supplier);
        // For its own jobs, for jobs of the consumers if it passes the payload on, and for the payload being written.
        let buffers = payload_holders(system, supplier, true) + 2 * operation.queue.limit as usize + 7;
        let (buffers, wakeups) = (PayloadBuffers::new(operation.payload as usize, buffers), processor.wakeups());
        EventInput { processor, supplier, buffers, wakeups, earliest: Instant::ZERO }
    }

    /// The supplier.
    pub fn supplier(&self) -> OperationId {
        self.supplier
    }

    /// Releases a job of the supplier with this payload, for a registered client with this period if it has `clients`.
    /// Without a body, the job passes the payload on to the consumers. Locks the processor for a short section.
    ///
    /// # Errors
    ///
    /// If the payload is too long, the operation's `min_interval` is not over, its queue is full, it is busy or off, the
    /// publisher is not registered, or the node is not running.
    pub fn publish(&mut self, payload: &[u8], period: Option<Span>) -> Result<(), Rejected> {
        let EventInput { processor, supplier, buffers, wakeups, earliest } = self;
        let common = &processor.common;
        if common.system.operation(*supplier).clients.is_some() && period.is_none() {
            return Err(Rejected::Unregistered);
        }
        if !common.has_begun() || common.now() == Instant::ZERO {
            return Err(Rejected::Idle);
        }
        if !payload.is_empty() {
            buffers.emit(payload)?;
        }
        // The proof of all other jobs relies on it.
        if common.now() < *earliest {
            return Err(Rejected::TooSoon);
        }
        let data = if payload.is_empty() { None } else { buffers.take() };
        let interval = common.system.operation(*supplier).min_interval.unwrap_or_default();
        let published = processor.section(|crew, now| {
            // Only refused requests use the number.
            let request = ArrivedRequest::new(*supplier, 0);
            let request = period.map_or(request, |period| request.of_client(&common.system, period, now));
            crew.publish(now, request, data, wakeups)?;
            *earliest = now.saturating_add(interval);
            Ok(())
        });
        wakeups.deliver();
        published
    }
}
