//! Requests to objects as jobs. The dispatcher of a processor orders an ORB's requests among its jobs: by strategy,
//! cap, queue limits and cancellation. They are recorded and replayed like all jobs.
//!
//! ```text
//!   socket ─► thread of the lane reads ─► arrived ─► dispatcher ─► job of an operation with `called = true` ─► servant
//!                                                        └─ refused, dropped or cancelled ─► TRANSIENT, TIMEOUT
//! ```
//!
//! The timing of the caller ([`hyoshi_orb::rt`]) becomes the job's: its deadline, importance and criticality, as far as
//! they are not more urgent than those of the operation in the file. The proof of all other jobs relies on the file.
//!
//! Requests that arrive after the run get TRANSIENT, too, with the minor code `RUN_OVER`, as long as [`ServedLane`]
//! exists.
//!
//! ```
//! use std::sync::Arc;
//! use hyoshi_model::{ProcessorId, read};
//! use hyoshi_node::JobOrder;
//! use hyoshi_orb::{LaneOptions, Orb};
//! use hyoshi_runtime::Node;
//! use hyoshi_sched::{Plan, Strategies};
//!
//! let text = r#"
//!     name     = "rover"
//!     duration = "1s"
//!     [operation.locate]
//!     called   = true
//!     wcet     = "1ms"
//!     deadline = "10ms"
//! "#;
//! let system = Arc::new(read(text, "rover.toml", None)?.system);
//! let plan = Arc::new(Plan::new(&system, &Strategies::built_in())?);
//! let order = JobOrder::new(&system, ProcessorId(0), 64);
//! let binding = order.bind("locate", &[])?;
//! let mut node = order.install(Node::new(system, plan)).prepare()?;
//! // The ORB's lane has no threads: threads of the node's lane read it.
//! let lane = LaneOptions { name: "requests".into(), threads: 0, ..LaneOptions::default() };
//! let builder = Orb::builder().lane(lane).order(order.clone(), 64);
//! let orb = builder.listen("iiop://127.0.0.1:0")?.build()?;
//! // adapter.activate_ordered("tracker", servant, binding)?;
//! # let _ = binding;
//! let serving = order.serve(&mut node, orb.owned_lane("requests").expect("it has no threads"))?;
//! orb.ready();
//! let running = node.start();
//! # drop(running);
//! drop(serving);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};

use hyoshi_model::{Instant, OperationId, ProcessorId, ServedObject, Span, System};
use hyoshi_orb::behaviour::DelegateOutcome;
use hyoshi_orb::rt::{
    OperationCall, RequestTiming, ThreadId, call_source, machine_clock, on_machine_clock, timing_source,
};
use hyoshi_orb::{Order, OrderedRequest, OwnedLane, RequestClient, SystemException, SystemKind};
use hyoshi_orb::{around_waits, certificate_names, minor};
use hyoshi_os::clock::monotonic;
use hyoshi_os::{Alarms, Clock, MonotonicClock, PiMutex, users};
use hyoshi_runtime::{
    ArrivedRequest, ClientMeter, Node, OutgoingCall, Prepared, Refuse, RequestReader, begin_call, job_timing, waiting,
};
use hyoshi_trace::Signal;

use crate::callers::Callers;
use crate::ceilings::{AllowedClaims, Ceilings};
use crate::idl::hyoshi_node as wire;
use crate::offset::Estimate;
use crate::peers::{NodePeers, PeerClocks};
use crate::rates::beyond_rate;
use crate::servant_delegates::{PassedRequest, RequestDelegate, TurnedAway};
use crate::threads::thread_id;

/// The requests of one processor's objects; see the [module](self). Clones share them.
#[derive(Clone, Debug)]
pub struct JobOrder(Arc<OrderState>);

#[derive(Debug)]
struct OrderState {
    system: Arc<System>,
    processor: ProcessorId,
    bindings: PiMutex<Vec<OperationBinding>>,
    held: PiMutex<HeldRequests>,
    /// Places of calls of operations of the file.
    calls: usize,
    /// Requests read in the present turn.
    arrived: PiMutex<ReadTurn>,
    /// Requests with a context 30 that is damaged.
    damaged: AtomicU64,
    peers: OnceLock<PeerClocks>,
    after: AfterRun,
}

/// The requests of a turn, and the clock of the run.
#[derive(Debug)]
struct ReadTurn {
    clock: MonotonicClock,
    /// Requests that are read now arrived after this time: an earlier turn has read all others.
    after: Instant,
    requests: Vec<ArrivedRequest>,
}

/// The state of a run's end.
#[derive(Debug, Default)]
struct AfterRun {
    /// The run is over.
    over: AtomicBool,
    /// Requests that arrived after it.
    refused: AtomicU64,
    /// Wakes the thread that answers them.
    wakes: PiMutex<Vec<Alarms>>,
}

/// A lane that is read for a node. After the run, its thread answers further requests with an exception. When it is
/// dropped, nothing reads the lane: shut the ORB down then.
#[derive(Debug)]
#[must_use = "requests that arrive after the run are answered only while it exists"]
pub struct ServedLane {
    dropped: Arc<AtomicBool>,
    wake: Alarms,
    thread: Option<JoinHandle<()>>,
}

impl Drop for ServedLane {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::Release);
        self.wake.poke();
        // It does nothing that could panic.
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}

/// The operations that serve an object.
#[derive(Debug)]
struct OperationBinding {
    default: Vec<OperationId>,
    /// By operation of the interface.
    except: Vec<(String, Vec<OperationId>)>,
    ceilings: Option<Arc<Ceilings>>,
    callers: Callers,
    /// The binding with these ceilings; that of the object.
    of: u32,
    /// It serves one registered client.
    client: Option<Arc<ClientMeter>>,
    /// The delegate around the object's servant.
    delegate: Option<Arc<RequestDelegate>>,
}

/// A held request: whether it runs, its client and operation, importance, whether it is critical, when it was read and
/// must start.
type Snapshot = (bool, RequestClient, OperationId, u32, bool, u64, u64);

/// Requests by their number.
#[derive(Debug)]
struct HeldRequests {
    requests: Vec<Option<HeldRequest>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct HeldRequest {
    /// `None` while it runs.
    request: Option<OrderedRequest>,
    client: RequestClient,
    operation: OperationId,
    importance: u32,
    critical: bool,
    /// That of the object's delegate.
    passed: Option<PassedRequest>,
    /// When it was read, in ns of CLOCK_MONOTONIC.
    read: u64,
    /// In ns of CLOCK_MONOTONIC, the last time at which its job can start and still meet its deadline.
    last_start: u64,
}

/// The reason why an object cannot be bound to an operation of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationBindError {
    /// The system has no such operation.
    Unknown {
        /// Its name.
        operation: String,
    },
    /// Requests do not release it.
    NotCalled {
        /// Its name.
        operation: String,
    },
    /// It is on another processor, which needs its own order.
    Elsewhere {
        /// Its name.
        operation: String,
        /// The processor.
        processor: String,
    },
}

impl fmt::Display for OperationBindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OperationBindError::Unknown { operation } => write!(f, "the system has no operation `{operation}`"),
            OperationBindError::NotCalled { operation } => {
                write!(f, "requests do not release operation `{operation}`: write `called = true` in the system file")
            }
            OperationBindError::Elsewhere { operation, processor } => {
                write!(f, "operation `{operation}` is on processor `{processor}`, which needs an order of its own")
            }
        }
    }
}

impl std::error::Error for OperationBindError {}

impl OperationBinding {
    /// The period of the registered client that sends a request to this operation at `now`, in ns of CLOCK_MONOTONIC;
    /// `None` if the operation has no such clients.
    ///
    /// # Errors
    ///
    /// The exception of a client that is not registered, or exceeds its rate.
    fn pace(&self, system: &System, operation: OperationId, now: u64) -> Result<Option<Span>, SystemException> {
        match &self.client {
            _ if system.operation(operation).clients.is_none() => Ok(None),
            Some(meter) => meter.admit(now).map(Some).map_err(beyond_rate),
            None => Err(SystemKind::NoPermission.not_done(minor::UNREGISTERED)),
        }
    }
}

/// The most requests that one turn reads.
const TURN: usize = 64;

impl JobOrder {
    /// For the objects of one processor. Holds at most `requests` unanswered requests. Places for calls of the file are
    /// reserved in addition.
    pub fn new(system: &Arc<System>, processor: ProcessorId, requests: usize) -> Self {
        let of_calls = |object: &ServedObject| {
            object
                .all_operations()
                .filter(|id| {
                    let operation = system.operation(*id);
                    operation.on == processor && !operation.is_requested()
                })
                .count()
        };
        // A caller whose call timed out may call again while the first call still has its place.
        let calls = 2 * system.objects.iter().map(of_calls).sum::<usize>();
        let most = u32::try_from(requests.max(1) + calls).unwrap_or(u32::MAX);
        let held = HeldRequests { requests: (0..most).map(|_| None).collect(), free: (0..most).rev().collect() };
        JobOrder(Arc::new(OrderState {
            system: system.clone(),
            processor,
            bindings: PiMutex::new(Vec::new()),
            held: PiMutex::new(held),
            calls,
            arrived: PiMutex::new(ReadTurn {
                clock: MonotonicClock::from_origin(0),
                after: Instant::ZERO,
                requests: Vec::with_capacity(TURN),
            }),
            damaged: AtomicU64::new(0),
            peers: OnceLock::new(),
            after: AfterRun::default(),
        }))
    }

    /// The binding to activate an object with: jobs of `operation` run its requests. `except` assigns single operations
    /// of its interface to other jobs, as pairs (IDL's operation, the system's).
    ///
    /// # Errors
    ///
    /// If the system has no such operation, requests do not release it, or it is on another processor.
    pub fn bind(&self, operation: &str, except: &[(&str, &str)]) -> Result<u32, OperationBindError> {
        let except = except.iter().map(|(idl, name)| Ok(((*idl).to_owned(), self.find(name)?)));
        let except = except.collect::<Result<Vec<_>, _>>()?.into_iter().map(|(idl, id)| (idl, vec![id])).collect();
        let (default, callers) = (vec![self.find(operation)?], Callers::default());
        let ceilings = None;
        Ok(self.add(|of| OperationBinding { default, except, ceilings, callers, of, client: None, delegate: None }))
    }

    /// The binding of an object of the file, which is on this processor.
    pub fn bind_object(&self, object: &ServedObject) -> u32 {
        self.bind_delegated(object, None)
    }

    /// The same, with the delegate around its servant.
    pub(crate) fn bind_delegated(&self, object: &ServedObject, delegate: Option<Arc<RequestDelegate>>) -> u32 {
        let (default, except) = (object.operations.clone(), object.methods.clone());
        let (ceilings, callers) = (Some(Arc::new(Ceilings::new(object))), Callers::new(&self.0.system, object));
        self.add(|of| OperationBinding { default, except, ceilings, callers, of, client: None, delegate })
    }

    /// A binding of the same object for one registered client at a time.
    pub(crate) fn bind_client(&self, of: u32, meter: &Arc<ClientMeter>) -> Option<u32> {
        let object = self.0.bindings.lock();
        let bound = object.get(of as usize)?;
        let (default, except) = (bound.default.clone(), bound.except.clone());
        let (ceilings, delegate) = (bound.ceilings.clone(), bound.delegate.clone());
        drop(object);
        let (callers, client) = (Callers::default(), Some(meter.clone()));
        Some(self.add(|_| OperationBinding { default, except, ceilings, callers, of, client, delegate }))
    }

    /// Adds a binding, which gets its own number.
    fn add(&self, binding: impl FnOnce(u32) -> OperationBinding) -> u32 {
        let mut bindings = self.0.bindings.lock();
        let number = bindings.len() as u32;
        bindings.push(binding(number));
        number
    }

    /// Requests that asked for more than their clients may: how many got what is allowed, and how many were refused.
    pub fn beyond_ceilings(&self) -> (u64, u64) {
        let bindings = self.0.bindings.lock();
        // Bindings of clients share those of their object.
        let of_objects = bindings.iter().filter(|binding| binding.client.is_none());
        let ceilings = of_objects.filter_map(|binding| binding.ceilings.as_ref());
        ceilings.fold((0, 0), |(clamped, refused), one| (clamped + one.clamped(), refused + one.refused()))
    }

    fn find(&self, name: &str) -> Result<OperationId, OperationBindError> {
        let system = &self.0.system;
        let operation = || name.to_owned();
        let found = system.operation_ids().find(|id| system.operation(*id).name == name);
        let id = found.ok_or_else(|| OperationBindError::Unknown { operation: operation() })?;
        let declared = system.operation(id);
        if !declared.is_requested() {
            return Err(OperationBindError::NotCalled { operation: operation() });
        }
        if declared.on != self.0.processor {
            let processor = system.processor(declared.on).name.clone();
            return Err(OperationBindError::Elsewhere { operation: operation(), processor });
        }
        Ok(id)
    }

    /// Lets jobs of the processor's called operations run requests.
    pub fn install(&self, node: Node) -> Node {
        let system = &self.0.system;
        let mut methods = system.objects.iter().flat_map(ServedObject::all_operations).collect::<Vec<_>>();
        methods.retain(|id| !system.operation(*id).is_requested());
        let called = |id: &OperationId| system.operation(*id).is_requested() || methods.contains(id);
        system.operations_on(self.0.processor).filter(called).fold(node, |node, id| {
            let shared = self.0.clone();
            node.body(system.operation(id).name.clone(), move |job| {
                let Some(call) = job.call() else { return };
                let (request, is_measured) = shared.start(call);
                let outcome = request.map(|request| match is_measured {
                    true => request.run_measured(),
                    false => {
                        request.run();
                        DelegateOutcome::Answered
                    }
                });
                let passed = shared.end(call).and_then(|held| held.passed);
                if let (Some(passed), Some(outcome)) = (passed, outcome) {
                    passed.ended(outcome);
                }
            })
        })
    }

    /// Threads of the node's lanes read the requests of this lane of an ORB from now on, until the run ends; then an
    /// ordinary thread answers further ones, until [`ServedLane`] is dropped. Requests to objects that are not bound to
    /// the order run on the thread that reads: they must not wait.
    ///
    /// # Errors
    ///
    /// If the node does not run the processor, it has no called operation, or the kernel refuses a descriptor or a
    /// thread.
    pub fn serve(&self, node: &mut Prepared, lane: OwnedLane) -> io::Result<ServedLane> {
        let (wake, dropped) = (Alarms::new()?, Arc::new(AtomicBool::new(false)));
        let reader = LaneReader { lane: lane.clone(), shared: self.0.clone() };
        node.read_requests(self.0.processor, Box::new(reader), self.0.clone())?;
        self.0.after.wakes.lock().push(wake.clone());
        let (shared, ended, wakes) = (self.0.clone(), dropped.clone(), wake.clone());
        let answer = move || shared.answer_after_run(&lane, &wakes, &ended);
        let thread = Builder::new().name("after-run".to_owned()).spawn(answer)?;
        calls_of_jobs();
        Ok(ServedLane { dropped, wake, thread: Some(thread) })
    }

    /// Converts the timing of requests from other machines by the measured offsets of their clocks. Otherwise the time
    /// that a request was on its way is unknown, and its deadline later by that much.
    pub fn peers(&self, peers: &NodePeers) {
        let _ = self.0.peers.set(peers.peer_clocks());
    }

    /// The requests that were read and are not answered.
    pub(crate) fn held(&self) -> Vec<wire::HeldRequest> {
        let state = &self.0;
        let capacity = state.held.lock().requests.len();
        let mut all = Vec::with_capacity(capacity);
        {
            // A lane may wait for this lock: nothing is allocated within.
            let held = state.held.lock();
            all.extend(held.requests.iter().flatten().map(|held| {
                let HeldRequest { request, client, operation, importance, critical, read, last_start, .. } = held;
                (request.is_none(), client.clone(), *operation, *importance, *critical, *read, *last_start)
            }));
        }
        let now = monotonic().as_nanos();
        let shown = |(runs, client, operation, importance, critical, read, last_start): Snapshot| wire::HeldRequest {
            processor: state.system.processor(state.processor).name.clone(),
            operation: state.system.operation(operation).name.clone(),
            client: name_of(&client),
            runs,
            held: now.saturating_sub(read),
            left: i64::try_from(i128::from(last_start) - i128::from(now)).unwrap_or(i64::MAX),
            importance,
            critical,
        };
        all.into_iter().map(shown).collect()
    }

    /// The number of requests with a damaged context 30: they have no timing.
    pub fn damaged_timings(&self) -> u64 {
        self.0.damaged.load(Ordering::Relaxed)
    }

    /// The number of requests that arrived after the run.
    pub fn refused_after_run(&self) -> u64 {
        self.0.after.refused.load(Ordering::Relaxed)
    }
}

impl Order for JobOrder {
    fn call_places(&self) -> usize {
        self.0.calls
    }

    fn arrived(&self, binding: u32, request: OrderedRequest) {
        if self.0.after.over.load(Ordering::Acquire) {
            self.0.refuse_after_run(request);
            return;
        }
        let timing = request.timing().unwrap_or_else(|_| {
            self.0.damaged.fetch_add(1, Ordering::Relaxed);
            None
        });
        // The period of a registered client.
        let mut paced_by = None;
        let named = request.operation();
        let (operation, admitted, delegate) = {
            let bindings = self.0.bindings.lock();
            // The binding is not from `bind`: the request is dropped, which refuses it.
            let Some(bound) = bindings.get(binding as usize) else { return };
            if bound.ceilings.as_ref().is_some_and(|ceilings| !ceilings.is_reached(&request, bound.of)) {
                return request.refuse(SystemKind::ObjectNotExist.not_done(minor::NO_OBJECT));
            }
            let except = bound.except.iter().find(|(idl, _)| idl == named);
            let operations = except.map_or(&bound.default, |(_, operations)| operations);
            let now = monotonic().as_nanos();
            let (operation, admitted) = match request.operation_call() {
                Some(call) if bound.callers.calls(&call, operations) => {
                    let run = self.0.arrived.lock().clock;
                    let signal = bound.callers.admit(&self.0.system, &request, &call, now, &run);
                    (signal.map(|signal| (signal.to, Some(signal))), Ok(None))
                }
                // Only calls of the file may have their places.
                Some(_) => (Err(SystemKind::NoPermission.not_done(minor::CALLERS_ONLY)), Ok(None)),
                None => {
                    let requested = |id: &&OperationId| self.0.system.operation(**id).is_requested();
                    // A method serves its callers only.
                    let operation = operations.iter().find(requested).map(|id| (*id, None));
                    let operation = operation.ok_or(SystemKind::NoPermission.not_done(minor::CALLERS_ONLY));
                    // After the limit of a registered client: a refused request must not count in other limits.
                    let paced = operation.and_then(|(id, _)| bound.pace(&self.0.system, id, now));
                    let admit = |ceilings: &Arc<Ceilings>| ceilings.admit(&request, bound.of, timing.as_ref(), now);
                    match paced {
                        Ok(period) => {
                            paced_by = period;
                            (operation, bound.ceilings.as_ref().map_or(Ok(None), admit))
                        }
                        Err(exception) => (Err(exception), Ok(None)),
                    }
                }
            };
            (operation, admitted, bound.delegate.clone())
        };
        let ((operation, completion), admitted) = match (operation, admitted) {
            (Ok(operation), Ok(admitted)) => (operation, admitted),
            (Err(exception), _) | (_, Err(exception)) => return request.refuse(exception),
        };
        // Last: it does not count requests beyond the limits of their clients.
        let passed = match delegate.map(|delegate| delegate.admit(named, !request.wants_reply())).transpose() {
            Ok(passed) => passed,
            Err(TurnedAway::Raise(exception)) => return request.refuse(exception),
            Err(TurnedAway::Forward(ior)) => return request.forward(&ior),
        };
        let mut arrived = self.0.arrived.lock();
        if arrived.requests.len() < arrived.requests.capacity() {
            let read = self.0.limited(self.0.timed(operation, timing, &arrived), admitted);
            let of_client = |period| read.of_client(&self.0.system, period, arrived.clock.now());
            let read = paced_by.map_or(read, of_client);
            if let Some(call) = self.0.put((request, passed), &read, &arrived.clock) {
                // Not in the future, whatever the other clock says.
                let origin = |now: Instant| read.origin.map_or(now, |origin| origin.min(now));
                let completion = completion.map(|signal| Signal { origin: origin(signal.origin), ..signal });
                arrived.requests.push(ArrivedRequest { call, completion, ..read });
            }
        }
    }
}

/// Calls of a node's jobs carry the jobs' timing, and a job that waits for a reply releases its lane meanwhile. Holds
/// for the process, from the first call of this function on.
pub fn calls_of_jobs() {
    around_waits(|wait| waiting(wait));
    call_source(|object, operation| {
        let OutgoingCall { system, source, number, period } = begin_call(|system, method| {
            let key = object.iiop().flatten().next().map(|profile| profile.key);
            let called = system.objects.iter().find(|one| Some(one.name.as_bytes()) == key);
            called.is_some_and(|one| one.serving(operation).contains(&method))
        })?;
        Some(OperationCall { system, source: source.0, number, period: period.as_nanos() })
    });
    timing_source(|| {
        let job = job_timing()?;
        let at = |instant: Instant| instant.as_nanos().saturating_add_signed(job.clock.origin());
        Some(RequestTiming {
            clock: machine_clock(),
            sent: monotonic().as_nanos(),
            origin: at(job.origin),
            deadline: at(job.deadline),
            execution: 0,
            importance: job.importance,
            critical: job.critical,
            thread: job.thread.map_or(ThreadId::NONE, |(thread, run)| thread_id(run, thread)),
        })
    });
}

impl OrderState {
    /// A number for a request; `None` if all are in use: then it is dropped, which refuses it.
    fn put(
        &self,
        (request, passed): (OrderedRequest, Option<PassedRequest>),
        read: &ArrivedRequest,
        clock: &MonotonicClock,
    ) -> Option<u32> {
        let declared = self.system.operation(read.operation);
        let entry = HeldRequest {
            client: request.client(),
            request: Some(request),
            passed,
            operation: read.operation,
            importance: read.importance.map_or(declared.importance, |asked| asked.min(declared.importance)),
            critical: read.critical.unwrap_or(true) && declared.critical,
            read: monotonic().as_nanos(),
            last_start: self.last_start(read, clock),
        };
        let mut held = self.held.lock();
        let call = held.free.pop()?;
        held.requests[call as usize] = Some(entry);
        Some(call)
    }

    /// The request as a job, with the timing of its caller.
    fn timed(&self, operation: OperationId, timing: Option<RequestTiming>, turn: &ReadTurn) -> ArrivedRequest {
        let read = ArrivedRequest { after: turn.after, ..ArrivedRequest::new(operation, 0) };
        let (Some(timing), clock) = (timing, &turn.clock) else { return read };
        let timing = on_machine_clock(self.of_peer(timing), monotonic().as_nanos());
        ArrivedRequest {
            origin: Some(clock.instant_of(timing.origin)),
            sent: Some(clock.instant_of(timing.sent)),
            deadline: (timing.deadline != u64::MAX).then(|| clock.instant_of(timing.deadline)),
            importance: Some(timing.importance),
            critical: Some(timing.critical),
            ..read
        }
    }

    /// With what its client may ask for.
    fn limited(&self, read: ArrivedRequest, admitted: Option<AllowedClaims>) -> ArrivedRequest {
        let Some(admitted) = admitted else { return read };
        let declared = self.system.operation(read.operation);
        let importance = read.importance.unwrap_or(declared.importance);
        let importance = importance.min(admitted.importance.unwrap_or(importance));
        let critical = read.critical.unwrap_or(declared.critical) && admitted.critical;
        ArrivedRequest { importance: Some(importance), critical: Some(critical), ..read }
    }

    /// On this machine's clock, if the sender's clock is that of a joined host.
    fn of_peer(&self, timing: RequestTiming) -> RequestTiming {
        if timing.clock == machine_clock() {
            return timing;
        }
        let Some(Estimate { offset, .. }) = self.peers.get().and_then(|peers| peers.offset(timing.clock)) else {
            return timing;
        };
        let here = |at: u64| if at == u64::MAX { at } else { at.saturating_add_signed(offset.saturating_neg()) };
        let (sent, origin, deadline) = (here(timing.sent), here(timing.origin), here(timing.deadline));
        RequestTiming { clock: machine_clock(), sent, origin, deadline, ..timing }
    }

    /// When the job of a request must start at the latest, in ns of CLOCK_MONOTONIC.
    fn last_start(&self, read: &ArrivedRequest, clock: &MonotonicClock) -> u64 {
        let now = clock.now();
        let setting = self.system.setting(self.system.epoch_at(now), read.operation);
        let earliest = read.counts_from(now).saturating_add(setting.deadline.span());
        let deadline = read.deadline.map_or(earliest, |deadline| deadline.max(earliest));
        deadline.as_nanos().saturating_add_signed(clock.origin()).saturating_sub(setting.wcet.as_nanos())
    }

    /// The request of a job that starts, and whether a delegate measures it; its number stays in use until
    /// [`OrderState::end`].
    fn start(&self, call: u32) -> (Option<OrderedRequest>, bool) {
        let mut all = self.held.lock();
        let held = all.requests.get_mut(call as usize).and_then(Option::as_mut);
        held.map_or((None, false), |held| (held.request.take(), held.passed.is_some()))
    }

    fn end(&self, call: u32) -> Option<HeldRequest> {
        let mut held = self.held.lock();
        let ended = held.requests.get_mut(call as usize)?.take();
        if ended.is_some() {
            held.free.push(call);
        }
        ended
    }
}

impl OrderState {
    /// Answers a request that arrived after the run.
    fn refuse_after_run(&self, request: OrderedRequest) {
        self.after.refused.fetch_add(1, Ordering::Relaxed);
        request.refuse(SystemKind::Transient.not_done(minor::RUN_OVER));
    }

    /// Reads the lane from the end of the run until `dropped`.
    fn answer_after_run(&self, lane: &OwnedLane, wake: &Alarms, dropped: &AtomicBool) {
        let is_dropped = || dropped.load(Ordering::Acquire);
        while !is_dropped() && !self.after.over.load(Ordering::Acquire) {
            wake.wait(None);
        }
        // Without a descriptor for it, nothing is read.
        if is_dropped() || wake.watch(lane.as_fd()).is_err() {
            return;
        }
        while !is_dropped() {
            lane.turn();
            wake.wait(None);
        }
    }
}

impl Refuse for OrderState {
    fn over(&self) {
        self.after.over.store(true, Ordering::Release);
        self.after.wakes.lock().iter().for_each(Alarms::poke);
    }

    fn refuse(&self, call: u32) {
        if let Some(HeldRequest { request: Some(request), last_start, .. }) = self.end(call) {
            request.refuse(match monotonic().as_nanos() > last_start {
                true => SystemKind::Timeout.not_done(minor::TOO_LATE),
                false => SystemKind::Transient.not_done(minor::NOT_RUN),
            });
        }
    }
}

/// A client for people: a name in its certificate, its user, or its address.
fn name_of(client: &RequestClient) -> String {
    let certificate = client.certificate().and_then(|octets| certificate_names(&octets).ok()?.into_iter().next());
    let user = || client.credentials().map(|client| users::name_of(client.uid));
    let address = || client.address().map(|address| address.to_string());
    certificate.or_else(user).or_else(address).unwrap_or_default()
}

/// Reads a lane of an ORB.
struct LaneReader {
    lane: OwnedLane,
    shared: Arc<OrderState>,
}

impl RequestReader for LaneReader {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.lane.as_fd()
    }

    fn turn(&mut self, clock: &MonotonicClock, arrived: &mut Vec<ArrivedRequest>) {
        let began = clock.now();
        self.shared.arrived.lock().clock = *clock;
        let turn = self.lane.turn();
        let mut read = self.shared.arrived.lock();
        if turn.is_all {
            read.after = began;
        }
        let room = arrived.capacity().saturating_sub(arrived.len()).min(read.requests.len());
        arrived.extend(read.requests.drain(..room));
    }
}
