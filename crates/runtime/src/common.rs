//! What all threads of a run share without holding a processor's lock.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use hyoshi_model::{HostId, Instant, OperationId, Processor, ProcessorId, Span, System};
use hyoshi_os::{Clock, MonotonicClock, PiMutex, Wake};

use crate::ended::EndedBy;
use crate::payload::Latest;

/// One run.
#[derive(Debug)]
pub(crate) struct Common {
    pub system: Arc<System>,
    /// The host that this process runs; all of them if `None`.
    here: Option<HostId>,
    /// When the run ends by itself.
    pub until: Instant,
    /// Set when everything is in place, just before the threads may look at it.
    clock: OnceLock<MonotonicClock>,
    /// One for each processor.
    pub releases: Vec<Release>,
    /// One for each declared resource: excludes users on other CPUs, with inheritance.
    pub resources: Vec<PiMutex<()>>,
    /// For each operation that some other reads: what it emitted last.
    pub latest: Vec<Option<Latest>>,
    /// Completions that found a link or its target full.
    pub lost_signals: AtomicU64,
    /// Times that a job blocked and kept its lane waiting, for want of a thread.
    pub blocked_lanes: AtomicU64,
    /// Threads that were refused a policy while they ran.
    pub refused_later: AtomicU64,
    /// The run is over: built-in work ends, bodies are asked to return.
    pub stopping: AtomicBool,
    pub watchdog: Wake,
    ended: OnceLock<EndedBy>,
}

impl Common {
    pub fn new(system: Arc<System>, here: Option<HostId>, until: Instant) -> Self {
        let read = |id: OperationId| system.operations.iter().any(|operation| operation.reads.contains(&id));
        let latest = system.operation_ids().map(|id| read(id).then(|| PiMutex::new(None))).collect();
        // One thread sends all completions for one other host.
        let hosts: Vec<Arc<Wake>> = system.hosts.iter().map(|_| Arc::default()).collect();
        let release = |processor: &Processor| match here.is_none_or(|here| processor.host == here) {
            true => Release::default(),
            false => Release { wake: hosts[processor.host.index()].clone(), ..Release::default() },
        };
        Common {
            until,
            here,
            clock: OnceLock::new(),
            releases: system.processors.iter().map(release).collect(),
            resources: system.resources.iter().map(|_| PiMutex::new(())).collect(),
            latest,
            lost_signals: AtomicU64::new(0),
            blocked_lanes: AtomicU64::new(0),
            refused_later: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            watchdog: Wake::new(),
            ended: OnceLock::new(),
            system,
        }
    }

    /// True if this process runs a processor.
    pub fn runs(&self, processor: ProcessorId) -> bool {
        self.here.is_none_or(|here| self.system.processor(processor).host == here)
    }

    /// True once instant 0 is known.
    pub fn has_begun(&self) -> bool {
        self.clock.get().is_some()
    }

    /// The clock of the run. Before the start there is none, and no thread asks for it.
    #[inline]
    pub fn clock(&self) -> &MonotonicClock {
        self.clock.get_or_init(MonotonicClock::start)
    }

    /// All processors share instant 0.
    pub fn begin(&self, clock: MonotonicClock) {
        assert!(self.clock.set(clock).is_ok(), "the clock of a run was asked for before the run began");
    }

    pub fn now(&self) -> Instant {
        self.clock().now()
    }

    /// The wake-up of a processor's release thread; for a processor of another host, of the thread that sends to that
    /// host.
    pub fn release_of(&self, processor: ProcessorId) -> &Arc<Wake> {
        &self.releases[processor.index()].wake
    }

    /// The run is to end; the first reason counts.
    pub fn end(&self, by: EndedBy) {
        let _ = self.ended.set(by);
    }

    pub fn ended(&self) -> Option<&EndedBy> {
        self.ended.get()
    }
}

/// How others talk to a release thread, and what the watchdog sees of it.
#[derive(Debug)]
pub(crate) struct Release {
    pub wake: Arc<Wake>,
    /// Until when it sleeps, in nanoseconds.
    pub asleep_until: AtomicU64,
}

impl Default for Release {
    fn default() -> Self {
        Release { wake: Arc::default(), asleep_until: AtomicU64::new(u64::MAX) }
    }
}

/// How others talk to one lane thread, and what the watchdog sees of it.
#[derive(Debug)]
pub(crate) struct Signs {
    pub wake: Wake,
    orders: AtomicU8,
    /// The operation whose body it runs, `u32::MAX` for none.
    operation: AtomicU32,
    /// Its CPU time when that body began, in nanoseconds.
    since: AtomicU64,
    /// Left behind by the watchdog: it never gets a priority again.
    pub abandoned: AtomicBool,
}

/// What a running body is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Order {
    /// Go on.
    GoOn = 0,
    /// Built-in work: go on below the lanes.
    Demote = 1,
    /// End the job.
    Stop = 2,
}

impl Default for Signs {
    fn default() -> Self {
        Signs {
            wake: Wake::new(),
            orders: AtomicU8::new(0),
            operation: AtomicU32::new(u32::MAX),
            since: AtomicU64::new(0),
            abandoned: AtomicBool::new(false),
        }
    }
}

impl Signs {
    /// A body begins at `cpu`.
    pub fn begin(&self, operation: OperationId, cpu: Span) {
        self.orders.store(Order::GoOn as u8, Ordering::Relaxed);
        self.since.store(cpu.as_nanos(), Ordering::Relaxed);
        self.operation.store(operation.0, Ordering::Release);
    }

    /// The body has returned.
    pub fn end(&self) {
        self.operation.store(u32::MAX, Ordering::Release);
    }

    pub fn order(&self, order: Order) {
        self.orders.fetch_max(order as u8, Ordering::Release);
    }

    #[inline]
    pub fn ordered(&self) -> Order {
        match self.orders.load(Ordering::Acquire) {
            0 => Order::GoOn,
            1 => Order::Demote,
            _ => Order::Stop,
        }
    }

    /// What runs, and its CPU clock at the begin.
    pub fn body(&self) -> Option<(OperationId, Span)> {
        let operation = self.operation.load(Ordering::Acquire);
        let since = Span::from_nanos(self.since.load(Ordering::Relaxed));
        (operation != u32::MAX).then_some((OperationId(operation), since))
    }
}
