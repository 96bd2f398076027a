//! The state of a run that its threads share without a processor's lock.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use hyoshi_model::{CallSuccessors, HostId, Instant, Link, OperationId, Processor, ProcessorId, Span, System};
use hyoshi_os::{Clock, MonotonicClock, PiMutex, Wake};
use hyoshi_trace::Signal;

use crate::adapted_rates::AdaptedRates;
use crate::chain_threads::{LaneSender, thread_hops, thread_roots};
use crate::client_rates::ClientPeriods;
use crate::contract_updates::ContractUpdates;
use crate::coordination::GroupSamples;
use crate::ended::EndedBy;
use crate::link_monitor::LinkAccessSlot;
use crate::moves::OperationMoves;
use crate::replica::LatestOutputs;

/// The shared state of a run.
#[derive(Debug)]
pub(crate) struct CommonState {
    pub system: Arc<System>,
    /// The host that this process runs; all hosts if `None`.
    here: Option<HostId>,
    /// The scheduled end of the run.
    pub until: Instant,
    /// By operation that calls an object of the file: what follows the call.
    pub calls: Vec<Option<CallSuccessors>>,
    /// By operation: it follows such a call.
    pub rests: Vec<bool>,
    /// By operation: requests to an object of the file can release it.
    pub served: Vec<bool>,
    /// By operation: the first operation of the distributable thread's path that it is on.
    pub thread_roots: Vec<Option<OperationId>>,
    /// By operation: threads move to it from the operation before.
    thread_hops: Vec<bool>,
    /// The begin of the run's id, for the ids of its threads.
    pub run: AtomicU32,
    /// By host: sends on lanes.
    lane_senders: Vec<OnceLock<Weak<dyn LaneSender>>>,
    /// Of the operations' names: systems with the same have the same numbers of operations.
    pub fingerprint: u64,
    /// Set just before the threads start.
    clock: OnceLock<MonotonicClock>,
    /// Rates that loops set on other processors.
    pub rates: AdaptedRates,
    /// By processor: the rates of its loop's clients.
    pub client_periods: Vec<ClientPeriods>,
    /// Values of contracts for other processors.
    pub contract_updates: ContractUpdates,
    /// The connections to the nodes of other hosts.
    pub link_access: LinkAccessSlot,
    /// Samples for the coordinators of groups.
    pub groups: GroupSamples,
    /// Moves of operations between processors; `None` if none could move.
    pub moves: Option<OperationMoves>,
    /// By processor.
    pub releases: Vec<ReleaseThread>,
    /// By declared resource: excludes users on other CPUs, with priority inheritance.
    pub resources: Vec<PiMutex<()>>,
    /// The latest outputs that operations read.
    pub latest: LatestOutputs,
    /// By operation: outputs that were not flushed to its replicas, because their jobs were late.
    pub late_outputs: Vec<AtomicU64>,
    /// Wakes the thread that reads the feed of events.
    pub feed: Wake,
    /// Wakes the thread that executes actions of contracts.
    pub actions: Wake,
    /// Changes of regions that this thread did not receive.
    pub lost_regions: AtomicU64,
    /// Completions lost because a link or its target was full.
    pub lost_signals: AtomicU64,
    /// How often a job blocked its lane because it had no other thread.
    pub blocked_lanes: AtomicU64,
    /// Threads that were refused a policy during the run.
    pub refused_later: AtomicU64,
    /// The run has ended: built-in work stops, bodies should return.
    pub stopping: AtomicBool,
    pub watchdog: Wake,
    ended: OnceLock<EndedBy>,
}

impl CommonState {
    pub fn new(system: Arc<System>, here: Option<HostId>, until: Instant) -> Self {
        let latest = LatestOutputs::new(&system, |host| here.is_none_or(|here| here == host));
        // For each other host, one thread sends all completions.
        let hosts: Vec<Arc<Wake>> = system.hosts.iter().map(|_| Arc::default()).collect();
        let release = |processor: &Processor| match here.is_none_or(|here| processor.host == here) {
            true => ReleaseThread::default(),
            false => ReleaseThread { wake: hosts[processor.host.index()].clone(), ..ReleaseThread::default() },
        };
        let releases: Vec<ReleaseThread> = system.processors.iter().map(release).collect();
        let elsewhere = |computed_on: ProcessorId| {
            let is_here = here.is_none_or(|here| system.processor(computed_on).host == here);
            (!is_here).then(|| releases[computed_on.index()].wake.clone())
        };
        let groups = GroupSamples::new(&system, elsewhere);
        let calls: Vec<Option<CallSuccessors>> = system.operation_ids().map(|id| object_call(&system, id)).collect();
        let mut rests = vec![false; system.operations.len()];
        calls.iter().flatten().for_each(|parts| rests[parts.rest.index()] = true);
        let mut served = vec![false; system.operations.len()];
        let of_objects = system.objects.iter().flat_map(|object| object.all_operations());
        of_objects.for_each(|id| served[first_part(&system, id).index()] = true);
        CommonState {
            until,
            here,
            calls,
            rests,
            served,
            thread_roots: thread_roots(&system),
            thread_hops: thread_hops(&system),
            run: AtomicU32::new(0),
            lane_senders: system.hosts.iter().map(|_| OnceLock::new()).collect(),
            fingerprint: fingerprint(&system),
            clock: OnceLock::new(),
            rates: AdaptedRates::new(&system),
            client_periods: system.processor_ids().map(|id| ClientPeriods::new(&system, id)).collect(),
            contract_updates: ContractUpdates::new(&system),
            link_access: LinkAccessSlot::default(),
            groups,
            moves: OperationMoves::of(&system),
            releases,
            resources: system.resources.iter().map(|_| PiMutex::new(())).collect(),
            latest,
            feed: Wake::new(),
            actions: Wake::new(),
            lost_regions: AtomicU64::new(0),
            late_outputs: system.operations.iter().map(|_| AtomicU64::new(0)).collect(),
            lost_signals: AtomicU64::new(0),
            blocked_lanes: AtomicU64::new(0),
            refused_later: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            watchdog: Wake::new(),
            ended: OnceLock::new(),
            system,
        }
    }

    /// The part of an operation that ends it.
    pub fn last_part(&self, id: OperationId) -> OperationId {
        last_part(&self.system, id)
    }

    /// True if this process runs a processor.
    pub fn runs(&self, processor: ProcessorId) -> bool {
        self.runs_host(self.system.processor(processor).host)
    }

    /// The host at the other end of a link that ends at the only host here.
    pub fn other_end(&self, link: &Link) -> Option<HostId> {
        let (one, other) = link.between;
        match self.here? {
            here if here == one => Some(other),
            here if here == other => Some(one),
            _ => None,
        }
    }

    /// The only host that this process runs; `None` if it runs all.
    pub fn here(&self) -> Option<HostId> {
        self.here
    }

    /// True if this process runs a host.
    pub fn runs_host(&self, host: HostId) -> bool {
        self.here.is_none_or(|here| here == host)
    }

    /// True once instant 0 is known.
    pub fn has_begun(&self) -> bool {
        self.clock.get().is_some()
    }

    /// The clock of the run.
    ///
    /// # Panics
    ///
    /// Before the run has begun.
    #[inline]
    pub fn clock(&self) -> &MonotonicClock {
        self.clock.get().expect("a run has a clock from its start")
    }

    /// Sets instant 0, which all processors share.
    pub fn begin(&self, clock: MonotonicClock) {
        assert!(self.clock.set(clock).is_ok(), "a run begins once");
    }

    /// Threads of a run that ends before it begins need a clock, too.
    pub fn begin_if_abandoned(&self) {
        self.clock.get_or_init(MonotonicClock::start);
    }

    /// The time of the run: zero until it begins, so operators may ask at any time.
    #[inline]
    pub fn now(&self) -> Instant {
        self.clock.get().map_or(Instant::ZERO, MonotonicClock::now)
    }

    /// The wake-up of a processor's release thread. For a processor of another host: of the thread that sends to that
    /// host.
    pub fn release_of(&self, processor: ProcessorId) -> &Arc<Wake> {
        &self.releases[processor.index()].wake
    }

    /// True if the completion moves a thread to a processor of another process.
    #[inline]
    pub fn moves_thread(&self, signal: &Signal, to: ProcessorId) -> bool {
        self.thread_hops[signal.to.index()] && !self.runs(to)
    }

    /// Lanes call this sender for hops of threads to a host. Only the first call for a host counts.
    pub fn send_on_lanes(&self, to: HostId, sender: Weak<dyn LaneSender>) {
        let _ = self.lane_senders[to.index()].set(sender);
    }

    /// Sends what departs to the host of a processor, on the calling thread and without waiting. False if the sender's
    /// thread must send it.
    pub fn try_send_to(&self, processor: ProcessorId) -> bool {
        let sender = self.lane_senders[self.system.processor(processor).host.index()].get();
        sender.and_then(Weak::upgrade).is_some_and(|sender| sender.try_send())
    }

    /// Ends the run. The first reason counts.
    pub fn end(&self, by: EndedBy) {
        let _ = self.ended.set(by);
    }

    pub fn ended(&self) -> Option<&EndedBy> {
        self.ended.get()
    }
}

/// The parts after an operation, if an object serves the method that it calls.
pub(crate) fn object_call(system: &System, id: OperationId) -> Option<CallSuccessors> {
    let parts = system.call_after(id)?;
    let method = last_part(system, parts.method);
    let mut served = system.objects.iter().flat_map(|object| object.all_operations());
    served.any(|one| one == method).then_some(parts)
}

fn find(system: &System, name: &str) -> Option<OperationId> {
    system.operation_ids().find(|id| system.operation(*id).name == name)
}

/// The part of an operation that ends it: the file's `calls` divides callers.
pub fn last_part(system: &System, id: OperationId) -> OperationId {
    let whole = system.operation(id).name.strip_suffix(":call");
    whole.and_then(|name| find(system, name)).unwrap_or(id)
}

/// The part of an operation that begins it.
pub(crate) fn first_part(system: &System, id: OperationId) -> OperationId {
    find(system, &format!("{}:call", system.operation(id).name)).unwrap_or(id)
}

/// A hash (FNV-1a) of the operations' names, in order: in systems with the same, ids mean the same operations.
pub fn fingerprint(system: &System) -> u64 {
    let octets = system.operations.iter().flat_map(|operation| operation.name.bytes().chain([0]));
    octets.fold(0xcbf2_9ce4_8422_2325, |hash, octet| (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3))
}

/// The interface of a release thread to other threads and to the watchdog.
#[derive(Debug)]
pub(crate) struct ReleaseThread {
    pub wake: Arc<Wake>,
    /// The end of its sleep, in nanoseconds.
    pub asleep_until: AtomicU64,
}

impl Default for ReleaseThread {
    fn default() -> Self {
        ReleaseThread { wake: Arc::default(), asleep_until: AtomicU64::new(u64::MAX) }
    }
}

/// The interface of a lane thread to other threads and to the watchdog.
#[derive(Debug)]
pub(crate) struct ThreadControl {
    pub wake: Wake,
    orders: AtomicU8,
    /// The operation of the body that it runs, `u32::MAX` for none.
    operation: AtomicU32,
    /// Its CPU time when that body began, in nanoseconds.
    since: AtomicU64,
    /// Abandoned by the watchdog: it never gets a real-time priority again.
    pub abandoned: AtomicBool,
}

/// An order to a running body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum BodyOrder {
    /// Continue.
    GoOn = 0,
    /// Built-in work: continue below the lanes.
    Demote = 1,
    /// End the job.
    Stop = 2,
}

impl Default for ThreadControl {
    fn default() -> Self {
        ThreadControl {
            wake: Wake::new(),
            orders: AtomicU8::new(0),
            operation: AtomicU32::new(u32::MAX),
            since: AtomicU64::new(0),
            abandoned: AtomicBool::new(false),
        }
    }
}

impl ThreadControl {
    /// A body begins; its thread's CPU clock is at `cpu`.
    pub fn begin(&self, operation: OperationId, cpu: Span) {
        self.orders.store(BodyOrder::GoOn as u8, Ordering::Relaxed);
        self.since.store(cpu.as_nanos(), Ordering::Relaxed);
        self.operation.store(operation.0, Ordering::Release);
    }

    /// The body has returned.
    pub fn end(&self) {
        self.operation.store(u32::MAX, Ordering::Release);
    }

    pub fn order(&self, order: BodyOrder) {
        self.orders.fetch_max(order as u8, Ordering::Release);
    }

    #[inline]
    pub fn ordered(&self) -> BodyOrder {
        match self.orders.load(Ordering::Acquire) {
            0 => BodyOrder::GoOn,
            1 => BodyOrder::Demote,
            _ => BodyOrder::Stop,
        }
    }

    /// The running operation, and the CPU clock at its start.
    pub fn body(&self) -> Option<(OperationId, Span)> {
        let operation = self.operation.load(Ordering::Acquire);
        let since = Span::from_nanos(self.since.load(Ordering::Relaxed));
        (operation != u32::MAX).then_some((OperationId(operation), since))
    }
}
