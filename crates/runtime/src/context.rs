//! The interface of a running job to its body.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyoshi_model::{Instant, JobId, OperationId, ResourceId, Span, System};
use hyoshi_os::{MonotonicClock, own_cpu_time};
use hyoshi_trace::Slot;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::built_in_work::hold;
use crate::chain_threads::ChainThread;
use crate::choice::{ChooseError, ChosenBits};
use crate::crew::{CallStep, DepartedCall, JobStart, Resumption};
use crate::payload::{EmitError, Payload, PayloadBuffers};
use crate::processor::ProcessorState;
use crate::replica::JobOutput;
use crate::wakeups::PendingWakeups;

/// The lane thread that runs the calling code, for code within a body that has no context.
struct CallingThread {
    processor: Arc<ProcessorState>,
    me: u16,
    wakeups: PendingWakeups,
    /// The running body holds the lane's token.
    holds_token: bool,
    /// The body is about to call the method of its job's operation.
    calls: bool,
    /// Resources that the running body holds.
    held: usize,
    /// The last job whose call kept the lane: its body calls the method once.
    kept: Option<JobId>,
}

/// The job that a body runs. It changes when a call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CurrentJob {
    /// `None` if the job has left its body.
    pub slot: Option<Slot>,
    pub job: JobId,
    pub origin: Instant,
    pub release: Instant,
    pub deadline: Instant,
    pub period: Span,
    pub importance: u32,
    pub critical: bool,
    pub timed_out: bool,
    pub service_level: u8,
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
    /// The distributable thread of its chain, and the first octets of the run's id.
    pub thread: Option<(ChainThread, u32)>,
}

/// A call of an operation of the file, as its request identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutgoingCall {
    /// A hash of the system's operations: only a node with the same can serve it.
    pub system: u64,
    /// The part of the caller before the call.
    pub source: OperationId,
    /// The number of its job.
    pub number: u64,
    /// The present period of its root.
    pub period: Span,
}

thread_local! {
    static HERE: RefCell<Option<CallingThread>> = const { RefCell::new(None) };
    static CURRENT: Cell<Option<CurrentJob>> = const { Cell::new(None) };
}

/// Registers the calling thread as a lane thread.
pub(crate) fn enter_lane(processor: &Arc<ProcessorState>, me: u16) {
    let wakeups = processor.wakeups();
    HERE.set(Some(CallingThread {
        processor: processor.clone(),
        me,
        wakeups,
        holds_token: false,
        calls: false,
        held: 0,
        kept: None,
    }));
}

/// The calling thread takes a resource, or releases one.
pub(crate) fn count_held(change: isize) {
    HERE.with_borrow_mut(|here| here.iter_mut().for_each(|here| here.held = here.held.saturating_add_signed(change)));
}

/// The calling thread begins a body for a job, or ends it. Returns the job that it ran.
pub(crate) fn set_current(job: Option<CurrentJob>) -> Option<CurrentJob> {
    HERE.with_borrow_mut(|here| here.iter_mut().for_each(|here| here.holds_token = job.is_some()));
    CURRENT.replace(job)
}

/// The timing of the job whose body the calling thread runs; `None` on other threads.
pub fn job_timing() -> Option<JobTiming> {
    let current = CURRENT.get()?;
    let CurrentJob { job, origin, deadline, importance, critical, .. } = current;
    HERE.with_borrow(|here| {
        let common = &here.as_ref()?.processor.common;
        let root = common.thread_roots[job.operation.index()];
        let thread = root.map(|root| (ChainThread { root, number: job.number }, common.run.load(Ordering::Relaxed)));
        Some(JobTiming { clock: *common.clock(), origin, deadline, importance, critical, thread })
    })
}

/// The calling body is about to call an object. If `is_method` is true of the operation that its own operation calls in
/// the file, the call continues with the next [`waiting`] of this thread.
pub fn begin_call(is_method: impl FnOnce(&System, OperationId) -> bool) -> Option<OutgoingCall> {
    HERE.with_borrow_mut(|here| {
        let here = here.as_mut()?;
        here.calls = false;
        let (common, current) = (&here.processor.common, CURRENT.get()?);
        // A job that held a resource would complete with the call, and keep the resource's lock.
        let may_leave = here.holds_token && here.held == 0 && here.kept != Some(current.job);
        let parts = common.calls[current.job.operation.index()].filter(|_| may_leave)?;
        if !is_method(&common.system, common.last_part(parts.method)) {
            return None;
        }
        here.calls = true;
        let CurrentJob { job, period, .. } = current;
        Some(OutgoingCall { system: common.fingerprint, source: job.operation, number: job.number, period })
    })
}

/// Runs something that waits, like [`JobContext::blocking`], for code without a context. If the calling thread runs a
/// job, the job releases its lane's run token meanwhile. Other threads just run it.
pub fn waiting<R>(wait: impl FnOnce() -> R) -> R {
    let here = HERE.with_borrow_mut(|here| {
        let holds = here.as_ref()?.holds_token;
        here.take_if(|_| holds)
    });
    let (Some(mut here), Some(current)) = (here, CURRENT.get()) else { return wait() };
    here.holds_token = false;
    let result = match (std::mem::take(&mut here.calls), current.slot) {
        (true, Some(slot)) => across_call(&mut here, slot, wait),
        (false, Some(slot)) => release_token(&here.processor, here.me, slot, &mut here.wakeups, wait),
        (_, None) => wait(),
    };
    here.holds_token = true;
    HERE.set(Some(here));
    result
}

/// The job ends with the call; the job of the operation's rest runs on this thread when the call is over.
fn across_call<R>(here: &mut CallingThread, slot: Slot, wait: impl FnOnce() -> R) -> R {
    let CallingThread { processor, me, wakeups, .. } = here;
    let control = &processor.control[usize::from(*me)];
    let (call, kept) = loop {
        let cpu = own_cpu_time();
        let step = processor.section(|crew, now| crew.call_out(*me, slot, now, cpu, wakeups));
        wakeups.deliver();
        match step {
            CallStep::Left(call) => break (call, false),
            CallStep::Kept(call) => break (call, true),
            CallStep::Wait => control.wake.wait(),
            CallStep::Runs(_) | CallStep::Over => return wait(),
        }
    };
    let result = wait();
    let mut step = call_back(processor, *me, call, wakeups);
    while step == CallStep::Wait {
        control.wake.wait();
        let cpu = own_cpu_time();
        step = processor.section(|crew, _| crew.call_step(*me, cpu));
    }
    match step {
        CallStep::Runs(rest) => CURRENT.set(Some(rest)),
        _ if kept => here.kept = CURRENT.get().map(|current| current.job),
        _ => CURRENT.set(CURRENT.get().map(|current| CurrentJob { slot: None, ..current })),
    }
    result
}

fn call_back(processor: &ProcessorState, me: u16, call: DepartedCall, wakeups: &mut PendingWakeups) -> CallStep {
    let cpu = own_cpu_time();
    let step = processor.section(|crew, now| crew.call_back(me, call, now, cpu, wakeups));
    wakeups.deliver();
    step
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
    reads: &'a [Option<JobOutput>],
    payload_buffers: &'a mut PayloadBuffers,
    hops: &'a mut ChosenBits,
    wakeups: &'a mut PendingWakeups,
}

impl<'a> JobContext<'a> {
    pub(crate) fn new(
        processor: &'a ProcessorState,
        me: u16,
        begin: JobStart,
        (inputs, reads): (&'a [Option<Arc<Payload>>], &'a [Option<JobOutput>]),
        (payload_buffers, hops): (&'a mut PayloadBuffers, &'a mut ChosenBits),
        wakeups: &'a mut PendingWakeups,
    ) -> Self {
        JobContext { processor, me, begin, inputs, reads, payload_buffers, hops, wakeups }
    }

    /// The identity of the job.
    pub fn job(&self) -> JobId {
        self.current().job
    }

    /// The operation's name. It is the same on each of its processors.
    pub fn operation(&self) -> &str {
        let id = self.current().job.operation;
        &self.system().operation(self.system().operation(id).home.unwrap_or(id)).name
    }

    /// The nominal release.
    pub fn release(&self) -> Instant {
        self.current().release
    }

    /// True if the operation's `timeout` released this job, not a trigger. The job then has no payload.
    pub fn timed_out(&self) -> bool {
        self.begin.now.timed_out
    }

    /// The name of the service level that the feedback loop has chosen for this job; `None` if its operation has no
    /// levels.
    pub fn level(&self) -> Option<&str> {
        let current = self.current();
        let levels = &self.system().operation(current.job.operation).levels;
        levels.get(usize::from(current.service_level)).map(|level| level.name.as_str())
    }

    /// The absolute deadline of the part that runs.
    pub fn deadline(&self) -> Instant {
        self.current().deadline
    }

    /// The current time, on the clock of releases and deadlines.
    pub fn now(&self) -> Instant {
        self.processor.common.now()
    }

    /// Time until the deadline, or zero after it. Before a call it counts to the end of the whole operation, even with
    /// `divide = true`.
    pub fn time_left(&self) -> Span {
        let CurrentJob { job, deadline, release, .. } = self.current();
        let common = &self.processor.common;
        let end = common.calls[job.operation.index()].as_ref().map_or(deadline, |parts| {
            let region = common.system.epoch_at(release);
            let of = |id| common.system.setting(region, id).deadline.span();
            deadline.saturating_add(of(parts.rest).saturating_sub(of(job.operation)))
        });
        end.since(self.now())
    }

    /// True if the body should return: the job exceeded its worst case and the file has `on_overrun = "stop"`, it
    /// exceeded its deadline and the file has `on_miss = "stop"`, its distributable thread was cancelled, or the run
    /// ends. It is not enforced: a body that never returns is abandoned at the end of the run.
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
        let operation = self.system().operation(self.begin.now.job.operation);
        let predecessors = operation.trigger.predecessors();
        let first = predecessors[self.position(predecessors, predecessor)?];
        // In a correlation, an operation may be in several groups.
        let inputs = predecessors.iter().zip(self.inputs.iter()).filter(|(from, _)| **from == first);
        inputs.filter_map(|(_, input)| input.as_ref()).map(|payload| payload.bytes()).next()
    }

    /// The payload as a value; `None` if there is none, or if its length differs from the type's.
    pub fn read<T: FromBytes>(&self) -> Option<T> {
        T::read_from_bytes(self.payload()?).ok()
    }

    /// [`JobContext::payload_from`] as a value.
    pub fn read_from<T: FromBytes>(&self, predecessor: &str) -> Option<T> {
        T::read_from_bytes(self.payload_from(predecessor)?).ok()
    }

    /// The latest payload, at the start of this job, of an operation that this one `reads`. Of an operation with a
    /// replica on this host: the latest one that was flushed, empty if its job emitted nothing.
    pub fn latest(&self, operation: &str) -> Option<&[u8]> {
        self.latest_output(operation).map(JobOutput::bytes)
    }

    /// The age of [`JobContext::latest`] now: the time since the nominal release of its job. `None` before the first.
    pub fn age(&self, operation: &str) -> Option<Span> {
        self.latest_output(operation).map(|output| self.now().since(output.release))
    }

    fn latest_output(&self, operation: &str) -> Option<&JobOutput> {
        let position = self.position(&self.system().operation(self.begin.now.job.operation).reads, operation)?;
        self.reads.get(position)?.as_ref()
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

    /// Chooses a hop: the completion of this job also triggers `operation`, which has `after = { chosen = [...] }` with
    /// this one. Without a call, the completion triggers none of these operations. In a load chain the choice of the last
    /// leg counts.
    pub fn choose(&mut self, operation: &str) -> Result<(), ChooseError> {
        let system = &self.processor.common.system;
        match self.hops.choose(|to| system.operation(to).name == operation) {
            true => Ok(()),
            false => Err(ChooseError { operation: self.operation().into(), name: operation.into() }),
        }
    }

    /// Runs something that waits (for a file, a socket, another process) without the lane's run token, so that the next
    /// job of the lane can run. Returns when this job has the token again.
    ///
    /// The lane needs another thread: `pool = 2` or more on the processor. Without one, the job blocks its lane, and
    /// the run reports it.
    pub fn blocking<R>(&mut self, wait: impl FnOnce() -> R) -> R {
        let slot = self.current().slot;
        let JobContext { processor, me, wakeups, .. } = self;
        let Some(slot) = slot else { return wait() };
        let token = |holds| HERE.with_borrow_mut(|here| here.iter_mut().for_each(|here| here.holds_token = holds));
        // Already released if `wait` calls `waiting`.
        token(false);
        let result = release_token(processor, *me, slot, wakeups, wait);
        token(true);
        result
    }

    /// The job that the body runs now.
    fn current(&self) -> CurrentJob {
        CURRENT.get().unwrap_or(self.begin.now)
    }

    /// Holds a resource while `act` runs.
    pub(crate) fn hold<R>(&mut self, resource: ResourceId, act: impl FnOnce() -> R) -> R {
        hold(self.processor, self.me, self.current().slot, resource, self.wakeups, act)
    }

    pub(crate) fn uses(&self, resource: ResourceId) -> bool {
        let operation = self.system().operation(self.current().job.operation);
        operation.uses.iter().any(|(used, _)| *used == resource)
    }

    pub(crate) fn system(&self) -> &hyoshi_model::System {
        &self.processor.common.system
    }

    fn position(&self, operations: &[OperationId], name: &str) -> Option<usize> {
        operations.iter().position(|id| self.system().operation(*id).name == name)
    }
}
