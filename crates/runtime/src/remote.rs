//! Both ends of the exchange of completions between a node that runs one host and the other hosts. The caller
//! transports them.
//!
//! ```text
//!   lane's thread ─ completes a job ─► ring ─► OutgoingCompletions ─► (a network)
//!   (a network) ─► IncomingCompletions ─► ring ─► dispatcher
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use hyoshi_dispatch::first::CopyNumbers;
use hyoshi_model::{Chain, ChainCarrier, HostId, Instant, OperationId, ProcessorId, Span, System, time::LONGEST_SPAN};
use hyoshi_os::{Clock, MonotonicClock, Wake};
use hyoshi_trace::Signal;

use crate::chain_threads::LaneSender;
use crate::common::CommonState;
use crate::contract_updates::{ArrivingContractUpdates, DepartingContractUpdates};
use crate::link::{LINK, LinkItem, Receiver, Sender};
use crate::payload::{EmitError, Payload, PayloadBuffers};
use crate::processor::ProcessorState;
use crate::remote_rates::{AdaptedPace, ArrivingRates, DepartingRates};
use crate::remote_samples::{ArrivingSamples, DepartingSamples, GroupSample};
use crate::replica::{Flush, JobOutput, in_transit};
use crate::start_error::StartError;
use crate::wakeups::PendingWakeups;

/// The completions for one other host, and the outputs for its replicas. One thread, above the lanes, receives and sends
/// them.
#[derive(Debug)]
pub struct OutgoingCompletions {
    pub(crate) to: HostId,
    pub(crate) common: Arc<CommonState>,
    pub(crate) rings: Vec<Receiver>,
    pub(crate) wake: Arc<Wake>,
    /// The operations of this process with replicas there.
    replicated: Vec<OperationId>,
    /// Outputs that wait for their deadline.
    waiting: Vec<Flush>,
    /// Rates that loops here set there.
    rates: Option<DepartingRates>,
    /// Samples of processors here, from which that host computes rates.
    samples: Option<DepartingSamples>,
    /// Values of contracts that processors there need.
    contract_updates: Option<DepartingContractUpdates>,
}

/// A completion or output that leaves for another host.
#[derive(Debug)]
pub enum Departure {
    /// A completion that triggers an operation there.
    Completion(OutgoingCompletion),
    /// An output for its replica there.
    Output(OutgoingOutput),
}

/// Lets lanes send departures to one host.
#[derive(Debug)]
pub struct LaneSenders {
    to: HostId,
    common: Arc<CommonState>,
}

impl LaneSenders {
    /// Lanes call `sender` when a thread moves to that host, instead of waking [`OutgoingCompletions::wait`]. Call it
    /// before the run begins; only the first call for a host counts.
    pub fn set(&self, sender: Weak<dyn LaneSender>) {
        self.common.send_on_lanes(self.to, sender);
    }
}

/// A departing output.
#[derive(Debug)]
pub struct OutgoingOutput {
    flush: Flush,
    lateness: Span,
}

impl OutgoingOutput {
    /// The operation.
    pub fn operation(&self) -> OperationId {
        self.flush.operation
    }

    /// The release number and the leg of its job.
    pub fn job(&self) -> (u64, u16) {
        (self.flush.output.number, self.flush.output.leg)
    }

    /// The nominal release of its job, on this node's clock.
    pub fn release(&self) -> Instant {
        self.flush.output.release
    }

    /// The time from its flush point until `take` returned it.
    pub fn lateness(&self) -> Span {
        self.lateness
    }

    /// The job's payload; possibly empty.
    pub fn payload(&self) -> &[u8] {
        self.flush.output.bytes()
    }
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
    pub(crate) fn new(common: Arc<CommonState>, to: HostId, wake: Arc<Wake>) -> Self {
        let system = &common.system;
        let own = system.operation_ids().filter(|id| common.runs(system.operation(*id).on));
        let replicated: Vec<OperationId> = own.filter(|id| system.replica_on(*id, to).is_some()).collect();
        let most = replicated.iter().map(|id| in_transit(system, *id, to)).sum();
        let (rates, samples) = (DepartingRates::new(&common, to), DepartingSamples::new(&common, to));
        let contract_updates = DepartingContractUpdates::new(&common, to);
        let waiting = Vec::with_capacity(most);
        let rings = Vec::new();
        OutgoingCompletions { to, rings, wake, replicated, waiting, rates, samples, contract_updates, common }
    }

    /// The rates that loops here set on that host, as the periods of the first operations of their chains. Empty if
    /// none has changed since the last call.
    pub fn take_rates(&mut self) -> &[(OperationId, Span)] {
        self.rates.as_mut().map_or(&[], |rates| rates.take(&self.common))
    }

    /// The rates of the last [`OutgoingCompletions::take_rates`] were sent.
    pub fn rates_sent(&self) {
        if let Some(rates) = &self.rates {
            rates.set_sent(&self.common);
        }
    }

    /// The next [`OutgoingCompletions::take_rates`] returns all of them again.
    pub fn repeat_rates(&self) {
        if let Some(rates) = &self.rates {
            rates.repeat(&self.common);
        }
    }

    /// New samples since the last call, for the rates that the other host computes. Outdated ones are dropped.
    pub fn take_samples(&mut self) -> &[GroupSample] {
        self.samples.as_mut().map_or(&[], |samples| samples.take(&self.common))
    }

    /// New values of contracts since the last call, by the positions of their routes in the system.
    pub fn take_contract_updates(&mut self) -> &[(u16, i64)] {
        self.contract_updates.as_mut().map_or(&[], |updates| updates.take(&self.common))
    }

    /// The target host.
    pub fn to(&self) -> HostId {
        self.to
    }

    /// Wakes [`OutgoingCompletions::wait`]. Post it to end a wait.
    pub fn wake(&self) -> Arc<Wake> {
        self.wake.clone()
    }

    /// Waits for the next departure, or until the time limit.
    pub fn wait(&self, most: Span) {
        let clock = MonotonicClock::start();
        self.wake.wait_until(&clock, clock.now() + self.longest_wait(most));
    }

    /// The longest time that [`OutgoingCompletions::wait`] waits with this time limit: outputs may become due earlier.
    pub fn longest_wait(&self, most: Span) -> Span {
        let next = self.waiting.iter().map(|flush| flush.at).min();
        next.map_or(most, |next| most.min(next.since(self.common.now())))
    }

    /// True if threads of chains move to that host.
    pub fn move_threads(&self) -> bool {
        let system = &self.common.system;
        let hop = |ends: &[OperationId]| {
            let [from, to] = [ends[0], ends[1]].map(|id| system.operation(id).on);
            self.common.runs(from) && system.processor(to).host == self.to
        };
        let carried = |chain: &&Chain| chain.carried_by == ChainCarrier::Thread;
        system.chains.iter().filter(carried).any(|chain| chain.path.windows(2).any(hop))
    }

    /// Lets lanes send to that host.
    pub fn lane_senders(&self) -> LaneSenders {
        LaneSenders { to: self.to, common: self.common.clone() }
    }

    /// The next completion, or output whose time has come. Completions of one processor are in the order of sending; an
    /// output that is flushed at completion precedes them. An output that waits beyond the bound for its operation is
    /// dropped, and counted as a lost signal.
    pub fn take(&mut self) -> Option<Departure> {
        loop {
            if !self.waiting.is_empty() {
                let now = self.common.now();
                let due = self.waiting.iter().enumerate().filter(|(_, flush)| flush.at <= now);
                if let Some((first, _)) = due.min_by_key(|(_, flush)| flush.at) {
                    return Some(output(self.waiting.swap_remove(first), now));
                }
            }
            match self.rings.iter_mut().find_map(|ring| ring.pop().ok())? {
                LinkItem::Completion(signal, payload) => {
                    return Some(Departure::Completion(OutgoingCompletion { signal, payload }));
                }
                LinkItem::Flush(flush) => {
                    let now = self.common.now();
                    if flush.at <= now {
                        return Some(output(flush, now));
                    }
                    if self.waiting.len() == self.waiting.capacity() {
                        self.common.lost_signals.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    self.waiting.push(flush);
                }
            }
        }
    }

    /// Outputs for replicas there that were not flushed, because their jobs were late.
    pub fn late_outputs(&self) -> u64 {
        let late = |id: &OperationId| self.common.late_outputs[id.index()].load(Ordering::Relaxed);
        self.replicated.iter().map(late).sum()
    }
}

fn output(flush: Flush, now: Instant) -> Departure {
    Departure::Output(OutgoingOutput { lateness: now.since(flush.at), flush })
}

/// The completions, and the outputs for replicas, that arrive from one other host.
#[derive(Debug)]
pub struct IncomingCompletions {
    from: HostId,
    common: Arc<CommonState>,
    processors: Vec<IncomingRing>,
    /// Payload buffers, by operation of that host.
    outlets: BTreeMap<OperationId, PayloadBuffers>,
    /// By operation here after copies of that host: the numbers that copies can have.
    copies: BTreeMap<OperationId, CopyNumbers>,
    /// By operation with a replica here.
    replicas: BTreeMap<OperationId, IncomingReplica>,
    /// Rates that loops of that host set here.
    rates: ArrivingRates,
    /// Samples of that host's processors for rates that this host computes.
    samples: ArrivingSamples,
    /// Values of contracts that processors here need.
    contract_updates: ArrivingContractUpdates,
    /// By source and target of completions that a loop here adapts.
    paces: BTreeMap<(OperationId, OperationId), AdaptedPace>,
}

/// The source of a replica's values.
#[derive(Debug)]
struct IncomingReplica {
    buffers: PayloadBuffers,
    /// The latest output of this session: its release on the sender's clock, number and leg.
    latest: Option<(u64, u64, u16)>,
}

/// An output that arrives for a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivedOutput {
    /// The operation.
    pub operation: OperationId,
    /// The release number of its job.
    pub number: u64,
    /// The leg of its job.
    pub leg: u16,
    /// The nominal release of its job on the sender's clock, in ns, which orders outputs.
    pub sender_release: u64,
    /// The same on this node's clock, from which its age counts.
    pub release: Instant,
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
    /// Its times, its period or its number are implausible for the system.
    Implausible,
    /// Its payload is longer than the operation's `payload`.
    TooLong,
    /// The ring of its processor or the queue of its operation is full, or no payload buffer is free. For a publication
    /// also: its operation is busy or off.
    Full,
    /// A publication less than `min_interval` after the last one, or a completion of an operation that ignores its
    /// adapted rate.
    TooSoon,
    /// The node has not started, or has ended.
    Idle,
    /// Publications of registered clients alone release its operation.
    Unregistered,
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
            Rejected::Implausible => "implausible times, or an implausible number",
            Rejected::TooLong => "payload longer than declared",
            Rejected::Full => "its queue is full, or it is busy or off",
            Rejected::TooSoon => "sooner than `min_interval` or its adapted rate permits",
            Rejected::Idle => "the node is not running",
            Rejected::Unregistered => "only publishers that register for a rate may publish it",
        })
    }
}

/// The largest lead of an arriving completion's time, because clocks differ.
const AHEAD: Span = Span::from_secs(1);

impl IncomingCompletions {
    pub(crate) fn new(common: Arc<CommonState>, from: HostId, rings: Vec<(Arc<ProcessorState>, Sender)>) -> Self {
        let system = common.system.clone();
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
        let replica = |id: OperationId| {
            // For the replica, for the output that replaces it, and for each job that reads it.
            let readers = system.operations.iter().filter(|operation| operation.reads.contains(&id)).count();
            let buffers = PayloadBuffers::new(system.operation(id).payload as usize, 2 + readers);
            (id, IncomingReplica { buffers, latest: None })
        };
        let replicas = common.replicated_from(from).into_iter().map(replica).collect();
        let (rates, paces) = (ArrivingRates::new(&common, from), AdaptedPace::of(&common, from));
        let samples = ArrivingSamples::new(&common, from);
        let contract_updates = ArrivingContractUpdates::new(&common, from);
        let copies = system.operation_ids().filter(|id| own.contains(&system.operation(*id).on));
        let copies = copies.filter_map(|id| Some((id, CopyNumbers::of(&system, id)?))).collect();
        IncomingCompletions {
            from,
            common,
            processors,
            outlets,
            copies,
            replicas,
            rates,
            samples,
            contract_updates,
            paces,
        }
    }

    /// Accepts rates that loops of that host set here: the periods of the first operations of chains.
    ///
    /// # Errors
    ///
    /// If that host does not set one of them, or a period is outside the operation's range. The others are set.
    pub fn retime(&mut self, rates: &[(OperationId, Span)]) -> Result<(), Rejected> {
        self.rates.set(&self.common, rates)
    }

    /// Accepts samples of that host's processors, for the coordinator of their group here.
    ///
    /// # Errors
    ///
    /// If a processor is not on that host, or not in a group that this host computes. If a sample is not new, not of
    /// the sampling period that ends now, or above 100 %. The other samples are accepted, unless there are too many.
    pub fn sample(&mut self, samples: &[GroupSample], to_own: impl Fn(u64) -> Instant) -> Result<(), Rejected> {
        self.samples.collect(&self.common, samples, to_own)
    }

    /// Accepts values of contracts, by the positions of their routes in the system.
    ///
    /// # Errors
    ///
    /// If a route is not one from that host to this one, or a value names an unknown region. The other values are
    /// accepted, unless there are too many.
    pub fn update_contracts(&mut self, updates: &[(u16, i64)]) -> Result<(), Rejected> {
        self.contract_updates.set(&self.common, updates)
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
        let system = &self.common.system;
        let id = |id: OperationId| (id.index() < system.operations.len()).then(|| system.operation(id));
        let (Some(from), Some(to)) = (id(signal.from), id(signal.to)) else { return Err(Rejected::Foreign) };
        let expected = to.trigger.predecessors().get(usize::from(signal.position)) == Some(&signal.from);
        let arrival = self.processors.iter_mut().find(|arrival| arrival.processor.id == to.on);
        let (Some(arrival), true) = (arrival, expected && system.processor(from.on).host == self.from) else {
            return Err(Rejected::Foreign);
        };
        let now = running(&self.common)?;
        let is_released = self.copies.get(&signal.to).is_none_or(|copies| copies.permits(signal.number, now));
        let is_early = signal.origin > now + AHEAD;
        if is_early || signal.period > LONGEST_SPAN || signal.number > MOST_NUMBER || !is_released {
            return Err(Rejected::Implausible);
        }
        if let Some(pace) = self.paces.get_mut(&(signal.from, signal.to))
            && !pace.permits(now, &self.common)
        {
            return Err(Rejected::TooSoon);
        }
        let mut data = None;
        if !payload.is_empty() {
            let payload_buffers = self.outlets.get_mut(&signal.from).ok_or(Rejected::Foreign)?;
            payload_buffers.emit(payload)?;
            data = payload_buffers.take();
        }
        let item = LinkItem::Completion(Signal { due: now, ticket: None, ..signal }, data);
        arrival.ring.push(item).map_err(|_| Rejected::Full)?;
        arrival.pushed = true;
        Ok(())
    }

    /// Accepts an output for its replica here, and ignores it if the replica is newer. Does not allocate.
    ///
    /// # Errors
    ///
    /// If this host cannot send it, or there is no room.
    pub fn replicate(&mut self, arrived: ArrivedOutput, payload: &[u8]) -> Result<(), Rejected> {
        let ArrivedOutput { operation, number, leg, sender_release, release } = arrived;
        let source = self.replicas.get_mut(&operation).ok_or(Rejected::Foreign)?;
        let replica = self.common.replica_here(operation).ok_or(Rejected::Foreign)?;
        let now = running(&self.common)?;
        if release > now + AHEAD || number > MOST_NUMBER {
            return Err(Rejected::Implausible);
        }
        source.buffers.emit(payload)?;
        let payload = source.buffers.take();
        let order = Some((sender_release, number, leg));
        if source.latest < order {
            source.latest = order;
            replica.lock().set(JobOutput { release, number, leg, payload });
        }
        Ok(())
    }

    /// Call this when a session begins; `restarted` if the other node has started anew. Its clock may have changed, so its
    /// outputs replace earlier ones. A node that has started anew does not know its adapted rates yet.
    pub fn begin_session(&mut self, restarted: bool) {
        self.replicas.values_mut().for_each(|replica| replica.latest = None);
        if restarted {
            self.paces.values_mut().for_each(AdaptedPace::restart);
            self.samples.restart();
        }
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

/// The time of a run that has begun.
pub(crate) fn running(common: &CommonState) -> Result<Instant, Rejected> {
    if !common.has_begun() || common.stopping.load(Ordering::Acquire) {
        return Err(Rejected::Idle);
    }
    // No job runs before instant 0.
    Some(common.now()).filter(|now| *now != Instant::ZERO).ok_or(Rejected::Idle)
}

/// The greatest job number: one per nanosecond for a century.
const MOST_NUMBER: u64 = 1 << 62;

/// A use across hosts that only a run of all hosts in one process supports.
pub(crate) fn needs_one_process(system: &System) -> Option<StartError> {
    let host = |id: OperationId| system.processor(system.operation(id).on).host;
    system.operation_ids().find_map(|id| {
        let operation = system.operation(id);
        let elsewhere = |other: &OperationId| host(*other) != host(id);
        let unreplicated = |other: &&OperationId| elsewhere(other) && system.replica_on(**other, host(id)).is_none();
        if let Some(read) = operation.reads.iter().find(unreplicated) {
            let (read, host) = (&system.operation(*read).name, &system.hosts[host(id).index()].name);
            return Some(StartError::NeedsOneProcess {
                operation: operation.name.clone(),
                does: format!("reads `{read}`"),
                instead: format!("add `replicate = {{ to = [\"{host}\"] }}` to operation `{read}`"),
            });
        }
        operation.uses.iter().find_map(|(resource, _)| {
            let uses = |other: &OperationId| system.operation(*other).uses.iter().any(|(used, _)| used == resource);
            let shared = system.operation_ids().any(|other| uses(&other) && elsewhere(&other));
            shared.then(|| StartError::NeedsOneProcess {
                operation: operation.name.clone(),
                does: format!("uses resource `{}`", system.resources[resource.index()].name),
                instead: "trigger it with `after`".to_owned(),
            })
        })
    })
}
