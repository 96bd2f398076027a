//! Requests to objects as jobs. The dispatcher of a processor orders an ORB's requests among its jobs: by strategy,
//! cap, queue limits and cancellation. They are recorded and replayed like all jobs.
//!
//! ```text
//!   socket ─► thread of the lane reads ─► arrived ─► dispatcher ─► job of an operation with `called = true` ─► servant
//!                                                        └─ refused, dropped or cancelled ─► TRANSIENT
//! ```
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
//! order.serve(&mut node, orb.owned_lane("requests").expect("it has no threads"))?;
//! orb.ready();
//! let running = node.start();
//! # drop(running);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use hyoshi_model::{OperationId, ProcessorId, System};
use hyoshi_orb::{Order, OrderedRequest, OwnedLane, SystemKind, around_waits, minor};
use hyoshi_os::PiMutex;
use hyoshi_runtime::{ArrivedRequest, Node, Prepared, Refuse, RequestReader, waiting};

/// The requests of one processor's objects; see the [module](self). Clones share them.
#[derive(Clone, Debug)]
pub struct JobOrder(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    system: Arc<System>,
    processor: ProcessorId,
    bindings: PiMutex<Vec<Binding>>,
    held: PiMutex<Held>,
    /// Requests read in the present turn.
    arrived: PiMutex<Vec<ArrivedRequest>>,
}

/// The operations that serve an object.
#[derive(Debug)]
struct Binding {
    default: OperationId,
    /// By operation of the interface.
    except: Vec<(String, OperationId)>,
}

/// Requests by their number.
#[derive(Debug)]
struct Held {
    requests: Vec<Option<OrderedRequest>>,
    free: Vec<u32>,
}

/// The reason why an object cannot be bound to an operation of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindError {
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

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindError::Unknown { operation } => write!(f, "the system has no operation {operation:?}"),
            BindError::NotCalled { operation } => {
                write!(f, "requests do not release operation {operation:?}: write `called = true` in the system file")
            }
            BindError::Elsewhere { operation, processor } => {
                write!(f, "operation {operation:?} is on processor {processor:?}, which needs an order of its own")
            }
        }
    }
}

impl std::error::Error for BindError {}

/// The most requests that one turn reads.
const TURN: usize = 64;

impl JobOrder {
    /// For the objects of one processor. At most `requests` of their requests are read and not yet answered.
    pub fn new(system: &Arc<System>, processor: ProcessorId, requests: usize) -> Self {
        let most = u32::try_from(requests.max(1)).unwrap_or(u32::MAX);
        let held = Held { requests: (0..most).map(|_| None).collect(), free: (0..most).rev().collect() };
        JobOrder(Arc::new(Shared {
            system: system.clone(),
            processor,
            bindings: PiMutex::new(Vec::new()),
            held: PiMutex::new(held),
            arrived: PiMutex::new(Vec::with_capacity(TURN)),
        }))
    }

    /// The binding to activate an object with: jobs of `operation` run its requests. `except` assigns single operations
    /// of its interface to other jobs, as pairs (IDL's operation, the system's).
    ///
    /// # Errors
    ///
    /// If the system has no such operation, requests do not release it, or it is on another processor.
    pub fn bind(&self, operation: &str, except: &[(&str, &str)]) -> Result<u32, BindError> {
        let except = except.iter().map(|(idl, name)| Ok(((*idl).to_owned(), self.find(name)?)));
        let binding = Binding { default: self.find(operation)?, except: except.collect::<Result<_, _>>()? };
        let mut bindings = self.0.bindings.lock();
        bindings.push(binding);
        Ok(bindings.len() as u32 - 1)
    }

    fn find(&self, name: &str) -> Result<OperationId, BindError> {
        let system = &self.0.system;
        let operation = || name.to_owned();
        let found = system.operation_ids().find(|id| system.operation(*id).name == name);
        let id = found.ok_or_else(|| BindError::Unknown { operation: operation() })?;
        let declared = system.operation(id);
        if !declared.is_requested() {
            return Err(BindError::NotCalled { operation: operation() });
        }
        if declared.on != self.0.processor {
            let processor = system.processor(declared.on).name.clone();
            return Err(BindError::Elsewhere { operation: operation(), processor });
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

    /// Threads of the node's lanes read the requests of this lane of an ORB from now on, until the run ends. Shut the ORB down
    /// then. Requests to objects that are not bound to the order run on the thread that reads: they must not wait.
    ///
    /// # Errors
    ///
    /// If the node does not run the processor, it has no called operation, or the kernel refuses a descriptor.
    pub fn serve(&self, node: &mut Prepared, lane: OwnedLane) -> io::Result<()> {
        let reader = LaneReader { lane, shared: self.0.clone() };
        node.read_requests(self.0.processor, Box::new(reader), self.0.clone())?;
        // A job that calls another object lets its lane go on meanwhile.
        around_waits(|wait| waiting(wait));
        Ok(())
    }
}

impl Order for JobOrder {
    fn arrived(&self, binding: u32, request: OrderedRequest) {
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

impl Shared {
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

impl Refuse for Shared {
    fn refuse(&self, call: u32) {
        if let Some(request) = self.take(call) {
            request.refuse(SystemKind::Transient.not_done(minor::NOT_RUN));
        }
    }
}

/// Reads a lane of an ORB.
struct LaneReader {
    lane: OwnedLane,
    shared: Arc<Shared>,
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
