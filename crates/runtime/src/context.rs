//! The interface of a running job to its body.

use std::cell::RefCell;
use std::sync::Arc;

use hyoshi_model::{Instant, JobId, OperationId, ResourceId, Span};
use hyoshi_os::{MonotonicClock, own_cpu_time};
use hyoshi_trace::Slot;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::built_in_work::hold;
use crate::crew::{JobStart, Resumption};
use crate::payload::{EmitError, Payload, PayloadBuffers};
use crate::processor::ProcessorState;
use crate::wakeups::PendingWakeups;

/// The lane thread that runs the calling code, for code within a body that has no context.
struct CallingThread {
    processor: Arc<ProcessorState>,
    me: u16,
    wakeups: PendingWakeups,
    /// The job with the running body, while it holds the lane's token.
    running: Option<Slot>,
    timing: Option<JobTiming>,
}

/// The timing of a job, for calls of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobTiming {
    /// The clock of the following instants.
    pub clock: MonotonicClock,
    /// The nominal release of the first job of its chain.
    pub origin: Instant,
    /// Its absolute deadline.
    pub deadline: Instant,
    /// Its rank among jobs of equal urgency.
    pub importance: u32,
    /// Whether it is critical.
    pub critical: bool,
}

thread_local! {
    static HERE: RefCell<Option<CallingThread>> = const { RefCell::new(None) };
}

/// Registers the calling thread as a lane thread.
pub(crate) fn enter_lane(processor: &Arc<ProcessorState>, me: u16) {
    let here =
        CallingThread { processor: processor.clone(), me, wakeups: processor.wakeups(), running: None, timing: None };
    HERE.set(Some(here));
}

/// Sets the job that the calling thread runs.
pub(crate) fn set_running(job: Option<Slot>) {
    HERE.with_borrow_mut(|here| here.iter_mut().for_each(|here| here.running = job));
}

/// Sets the timing of the calling thread's job.
pub(crate) fn set_timing(timing: Option<JobTiming>) {
    HERE.with_borrow_mut(|here| here.iter_mut().for_each(|here| here.timing = timing));
}

/// The timing of the job whose body the calling thread runs; `None` on other threads, and within [`waiting`].
pub fn job_timing() -> Option<JobTiming> {
    HERE.with_borrow(|here| here.as_ref()?.timing)
}

/// Runs something that waits, like [`JobContext::blocking`], for code without a context. If the calling thread runs a
/// job, the job releases its lane's run token meanwhile. Other threads just run it.
pub fn waiting<R>(wait: impl FnOnce() -> R) -> R {
    let here = HERE.with_borrow_mut(|here| {
        let slot = here.as_mut()?.running.take()?;
        here.take().map(|here| (here, slot))
    });
    let Some((mut here, slot)) = here else { return wait() };
    let result = release_token(&here.processor, here.me, slot, &mut here.wakeups, wait);
    here.running = Some(slot);
    HERE.set(Some(here));
    result
}

/// The job of thread `me` waits without its lane's token. Returns when it has the token again.
fn release_token<R>(
    processor: &ProcessorState,
    me: u16,
    slot: Slot,
    wakeups: &mut PendingWakeups,
    wait: impl FnOnce() -> R,
) -> R {
    let released = processor.section(|crew, now| crew.suspend(me, slot, now, wakeups));
    wakeups.deliver();
    let result = wait();
    if released {
        let cpu = own_cpu_time();
        let mut turn = processor.section(|crew, now| crew.resume(me, slot, now, cpu, wakeups));
        wakeups.deliver();
        while turn == Resumption::Wait {
            processor.control[usize::from(me)].wake.wait();
            turn = processor.section(|crew, _| crew.my_turn(me, slot));
        }
    }
    result
}

/// A running job.
#[derive(Debug)]
pub struct JobContext<'a> {
    processor: &'a ProcessorState,
    me: u16,
    begin: JobStart,
    inputs: &'a [Option<Arc<Payload>>],
    reads: &'a [Option<Arc<Payload>>],
    payload_buffers: &'a mut PayloadBuffers,
    wakeups: &'a mut PendingWakeups,
}

impl<'a> JobContext<'a> {
    pub(crate) fn new(
        processor: &'a ProcessorState,
        me: u16,
        begin: JobStart,
        inputs: &'a [Option<Arc<Payload>>],
        reads: &'a [Option<Arc<Payload>>],
        payload_buffers: &'a mut PayloadBuffers,
        wakeups: &'a mut PendingWakeups,
    ) -> Self {
        JobContext { processor, me, begin, inputs, reads, payload_buffers, wakeups }
    }

    /// The identity of the job.
    pub fn job(&self) -> JobId {
        self.begin.job
    }

    /// The operation's name.
    pub fn operation(&self) -> &str {
        &self.system().operation(self.begin.job.operation).name
    }

    /// The nominal release.
    pub fn release(&self) -> Instant {
        self.begin.release
    }

    /// The absolute deadline.
    pub fn deadline(&self) -> Instant {
        self.begin.deadline
    }

    /// The current time, on the clock of releases and deadlines.
    pub fn now(&self) -> Instant {
        self.processor.common.now()
    }

    /// Time until the deadline; zero after it.
    pub fn time_left(&self) -> Span {
        self.begin.deadline.since(self.now())
    }

    /// True if the body should return: the job exceeded its worst case and the file has `on_overrun = "stop"`, or the
    /// run ends. It is not enforced: a body that never returns is abandoned at the end of the run.
    pub fn stop_asked(&self) -> bool {
        self.processor.must_end(self.me)
    }

    /// The number of the request that this job serves, assigned by its [`RequestReader`](crate::RequestReader); `None`
    /// if it serves none.
    pub fn call(&self) -> Option<u32> {
        self.begin.call
    }

    /// The payload of the triggering job; of several predecessors, the first that emitted one.
    pub fn payload(&self) -> Option<&[u8]> {
        self.inputs.iter().flatten().map(|payload| payload.bytes()).next()
    }

    /// The payload of one predecessor, for operations that wait for `all`.
    pub fn payload_from(&self, predecessor: &str) -> Option<&[u8]> {
        let operation = self.system().operation(self.begin.job.operation);
        let position = self.position(operation.trigger.predecessors(), predecessor)?;
        self.inputs.get(position)?.as_ref().map(|payload| payload.bytes())
    }

    /// The payload as a value; `None` if there is none, or if its length differs from the type's.
    pub fn read<T: FromBytes>(&self) -> Option<T> {
        T::read_from_bytes(self.payload()?).ok()
    }

    /// [`JobContext::payload_from`] as a value.
    pub fn read_from<T: FromBytes>(&self, predecessor: &str) -> Option<T> {
        T::read_from_bytes(self.payload_from(predecessor)?).ok()
    }

    /// The latest payload, at the start of this job, of an operation that this one `reads`.
    pub fn latest(&self, operation: &str) -> Option<&[u8]> {
        let position = self.position(&self.system().operation(self.begin.job.operation).reads, operation)?;
        self.reads.get(position)?.as_ref().map(|payload| payload.bytes())
    }

    /// [`JobContext::latest`] as a value.
    pub fn read_latest<T: FromBytes>(&self, operation: &str) -> Option<T> {
        T::read_from_bytes(self.latest(operation)?).ok()
    }

    /// Passes bytes to the jobs that this one triggers, and to operations that read this one. The last call of a job
    /// counts. The system file limits the length by `payload`.
    pub fn emit(&mut self, bytes: &[u8]) -> Result<(), EmitError> {
        self.payload_buffers.emit(bytes)
    }

    /// [`JobContext::emit`] of a value's bytes.
    pub fn emit_value<T: IntoBytes + Immutable>(&mut self, value: &T) -> Result<(), EmitError> {
        self.payload_buffers.emit(value.as_bytes())
    }

    /// Runs something that waits (for a file, a socket, another process) without the lane's run token, so that the next
    /// job of the lane can run. Returns when this job has the token again.
    ///
    /// The lane needs another thread: `pool = 2` or more on the processor. Without one, the job blocks its lane, and
    /// the run reports it.
    pub fn blocking<R>(&mut self, wait: impl FnOnce() -> R) -> R {
        let JobContext { processor, me, wakeups, begin, .. } = self;
        // Already released if `wait` calls `waiting`.
        let running = HERE.with_borrow_mut(|here| here.as_mut().and_then(|here| here.running.take()));
        let result = release_token(processor, *me, begin.slot, wakeups, wait);
        set_running(running);
        result
    }

    /// Holds a resource while `act` runs.
    pub(crate) fn hold<R>(&mut self, resource: ResourceId, act: impl FnOnce() -> R) -> R {
        hold(self.processor, self.me, &self.begin, resource, self.wakeups, act)
    }

    pub(crate) fn uses(&self, resource: ResourceId) -> bool {
        let operation = self.system().operation(self.begin.job.operation);
        operation.uses.iter().any(|(used, _)| *used == resource)
    }

    pub(crate) fn system(&self) -> &hyoshi_model::System {
        &self.processor.common.system
    }

    fn position(&self, operations: &[OperationId], name: &str) -> Option<usize> {
        operations.iter().position(|id| self.system().operation(*id).name == name)
    }
}
