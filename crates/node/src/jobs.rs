//! Requests to objects as jobs. The dispatcher of a processor orders an ORB's requests among its jobs: by strategy,
//! cap, queue limits and cancellation. They are recorded and replayed like all jobs.
//!
//! ```text
//!   socket ─► thread of the lane reads ─► arrived ─► dispatcher ─► job of an operation with `called = true` ─► servant
//!                                                        └─ refused, dropped or cancelled ─► TRANSIENT
//! ```
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
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};

use hyoshi_model::{OperationId, ProcessorId, System};
use hyoshi_orb::{Order, OrderedRequest, OwnedLane, SystemKind, around_waits, minor};
use hyoshi_os::{Alarms, PiMutex};
use hyoshi_runtime::{ArrivedRequest, Node, Prepared, Refuse, RequestReader, waiting};

/// The requests of one processor's objects; see the [module](self). Clones share them.
#[derive(Clone, Debug)]
pub struct JobOrder(Arc<OrderState>);

#[derive(Debug)]
struct OrderState {
    system: Arc<System>,
    processor: ProcessorId,
    bindings: PiMutex<Vec<OperationBinding>>,
    held: PiMutex<HeldRequests>,
    /// Requests read in the present turn.
    arrived: PiMutex<Vec<ArrivedRequest>>,
    after: AfterRun,
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
    default: OperationId,
    /// By operation of the interface.
    except: Vec<(String, OperationId)>,
}

/// Requests by their number.
#[derive(Debug)]
struct HeldRequests {
    requests: Vec<Option<OrderedRequest>>,
    free: Vec<u32>,
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

/// The most requests that one turn reads.
const TURN: usize = 64;

impl JobOrder {
    /// For the objects of one processor. At most `requests` of their requests are read and not yet answered.
    pub fn new(system: &Arc<System>, processor: ProcessorId, requests: usize) -> Self {
        let most = u32::try_from(requests.max(1)).unwrap_or(u32::MAX);
        let held = HeldRequests { requests: (0..most).map(|_| None).collect(), free: (0..most).rev().collect() };
        JobOrder(Arc::new(OrderState {
            system: system.clone(),
            processor,
            bindings: PiMutex::new(Vec::new()),
            held: PiMutex::new(held),
            arrived: PiMutex::new(Vec::with_capacity(TURN)),
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
        let binding = OperationBinding { default: self.find(operation)?, except: except.collect::<Result<_, _>>()? };
        let mut bindings = self.0.bindings.lock();
        bindings.push(binding);
        Ok(bindings.len() as u32 - 1)
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
        let called = |id: &OperationId| system.operation(*id).is_requested();
        system.operations_on(self.0.processor).filter(called).fold(node, |node, id| {
            let shared = self.0.clone();
            node.body(system.operation(id).name.clone(), move |job| {
                if let Some(request) = job.call().and_then(|call| shared.take(call)) {
                    request.run();
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
        // A job that calls another object lets its lane go on meanwhile.
        around_waits(|wait| waiting(wait));
        Ok(ServedLane { dropped, wake, thread: Some(thread) })
    }

    /// The number of requests that arrived after the run.
    pub fn refused_after_run(&self) -> u64 {
        self.0.after.refused.load(Ordering::Relaxed)
    }
}

impl Order for JobOrder {
    fn arrived(&self, binding: u32, request: OrderedRequest) {
        if self.0.after.over.load(Ordering::Acquire) {
            self.0.refuse_after_run(request);
            return;
        }
        let operation = {
            let bindings = self.0.bindings.lock();
            // The binding is not from `bind`: the request is dropped, which refuses it.
            let Some(binding) = bindings.get(binding as usize) else { return };
            let named = request.operation();
            let except = binding.except.iter().find(|(idl, _)| idl == named);
            except.map_or(binding.default, |(_, operation)| *operation)
        };
        let mut arrived = self.0.arrived.lock();
        if arrived.len() < arrived.capacity()
            && let Some(call) = self.0.put(request)
        {
            arrived.push(ArrivedRequest { operation, call, deadline: None, importance: None, critical: None });
        }
    }
}

impl OrderState {
    /// A number for a request; `None` if all are in use: then it is dropped, which refuses it.
    fn put(&self, request: OrderedRequest) -> Option<u32> {
        let mut held = self.held.lock();
        let call = held.free.pop()?;
        held.requests[call as usize] = Some(request);
        Some(call)
    }

    fn take(&self, call: u32) -> Option<OrderedRequest> {
        let mut held = self.held.lock();
        let request = held.requests.get_mut(call as usize)?.take();
        if request.is_some() {
            held.free.push(call);
        }
        request
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
        if let Some(request) = self.take(call) {
            request.refuse(SystemKind::Transient.not_done(minor::NOT_RUN));
        }
    }
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

    fn turn(&mut self, arrived: &mut Vec<ArrivedRequest>) {
        self.lane.turn();
        let mut read = self.shared.arrived.lock();
        let room = arrived.capacity().saturating_sub(arrived.len()).min(read.len());
        arrived.extend(read.drain(..room));
    }
}
