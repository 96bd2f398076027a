//! What a body sees of its job.

use std::cell::RefCell;
use std::sync::Arc;

use hyoshi_model::{Instant, JobId, OperationId, ResourceId, Span};
use hyoshi_os::own_cpu_time;
use hyoshi_trace::Slot;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::crew::{Begin, Turn};
use crate::payload::{EmitError, Outlet, Payload};
use crate::posts::Posts;
use crate::processor::Processor;
use crate::work::hold;

/// A thread of a lane, to code that runs within a body and does not have its context.
struct Here {
    processor: Arc<Processor>,
    me: u16,
    posts: Posts,
    /// The job whose body runs, while it has the lane's token.
    running: Option<Slot>,
}

thread_local! {
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
}

/// The calling thread is one of a lane.
pub(crate) fn enter_lane(processor: &Arc<Processor>, me: u16) {
    let here = Here { processor: processor.clone(), me, posts: processor.posts(), running: None };
    HERE.set(Some(here));
}

/// The job whose body the calling thread runs.
pub(crate) fn set_running(job: Option<Slot>) {
    HERE.with_borrow_mut(|here| here.iter_mut().for_each(|here| here.running = job));
}

/// Does something that waits, as [`JobContext::blocking`], for code without a context: if the calling thread runs a job, the
/// job gives its lane's run token up meanwhile. On other threads it just runs.
pub fn waiting<R>(wait: impl FnOnce() -> R) -> R {
    let here = HERE.with_borrow_mut(|here| {
        let slot = here.as_mut()?.running.take()?;
        here.take().map(|here| (here, slot))
    });
    let Some((mut here, slot)) = here else { return wait() };
    let result = give_up(&here.processor, here.me, slot, &mut here.posts, wait);
    here.running = Some(slot);
    HERE.set(Some(here));
    result
}

/// The job of thread `me` waits without its lane's token. Returns when it is its turn again.
fn give_up<R>(processor: &Processor, me: u16, slot: Slot, posts: &mut Posts, wait: impl FnOnce() -> R) -> R {
    let gave_up = processor.section(|crew, now| crew.suspend(me, slot, now, posts));
    posts.deliver();
    let result = wait();
    if gave_up {
        let cpu = own_cpu_time();
        let mut turn = processor.section(|crew, now| crew.resume(me, slot, now, cpu, posts));
        posts.deliver();
        while turn == Turn::Wait {
            processor.signs[usize::from(me)].wake.wait();
            turn = processor.section(|crew, _| crew.my_turn(me, slot));
        }
    }
    result
}

/// A running job, to its body.
#[derive(Debug)]
pub struct JobContext<'a> {
    processor: &'a Processor,
    me: u16,
    begin: Begin,
    inputs: &'a [Option<Arc<Payload>>],
    reads: &'a [Option<Arc<Payload>>],
    outlet: &'a mut Outlet,
    posts: &'a mut Posts,
}

impl<'a> JobContext<'a> {
    pub(crate) fn new(
        processor: &'a Processor,
        me: u16,
        begin: Begin,
        inputs: &'a [Option<Arc<Payload>>],
        reads: &'a [Option<Arc<Payload>>],
        outlet: &'a mut Outlet,
        posts: &'a mut Posts,
    ) -> Self {
        JobContext { processor, me, begin, inputs, reads, outlet, posts }
    }

    /// Which execution of the operation this is.
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

    /// The present instant, on the clock that releases and deadlines are on.
    pub fn now(&self) -> Instant {
        self.processor.common.now()
    }

    /// Time until the deadline; zero once it has passed.
    pub fn time_left(&self) -> Span {
        self.begin.deadline.since(self.now())
    }

    /// True once the body should return: the job used more than its worst case where the file says
    /// `on_overrun = "stop"`, or the run ends. Nothing forces it; a body that never returns is left
    /// behind when the run ends.
    pub fn stop_asked(&self) -> bool {
        self.processor.must_end(self.me)
    }

    /// The number of the request that this job serves, assigned by the [`Reader`](crate::Reader) that read it; `None`
    /// if it serves none.
    pub fn call(&self) -> Option<u32> {
        self.begin.call
    }

    /// The bytes that the triggering job emitted; of several, the first predecessor's that did.
    pub fn payload(&self) -> Option<&[u8]> {
        self.inputs.iter().flatten().map(|payload| payload.bytes()).next()
    }

    /// The bytes that the job of one predecessor emitted, for operations that wait for `all`.
    pub fn payload_from(&self, predecessor: &str) -> Option<&[u8]> {
        let operation = self.system().operation(self.begin.job.operation);
        let position = self.position(operation.trigger.predecessors(), predecessor)?;
        self.inputs.get(position)?.as_ref().map(|payload| payload.bytes())
    }

    /// The payload as a value; `None` if there is none, or if its length is not the type's.
    pub fn read<T: FromBytes>(&self) -> Option<T> {
        T::read_from_bytes(self.payload()?).ok()
    }

    /// [`JobContext::payload_from`] as a value.
    pub fn read_from<T: FromBytes>(&self, predecessor: &str) -> Option<T> {
        T::read_from_bytes(self.payload_from(predecessor)?).ok()
    }

    /// What an operation that this one `reads` had emitted last when this job began.
    pub fn latest(&self, operation: &str) -> Option<&[u8]> {
        let position = self.position(&self.system().operation(self.begin.job.operation).reads, operation)?;
        self.reads.get(position)?.as_ref().map(|payload| payload.bytes())
    }

    /// [`JobContext::latest`] as a value.
    pub fn read_latest<T: FromBytes>(&self, operation: &str) -> Option<T> {
        T::read_from_bytes(self.latest(operation)?).ok()
    }

    /// Hands bytes to the jobs that this one triggers, and to those who read this operation. The
    /// last call of a job counts. At most `payload` bytes, as the system file says.
    pub fn emit(&mut self, bytes: &[u8]) -> Result<(), EmitError> {
        self.outlet.emit(bytes)
    }

    /// [`JobContext::emit`] of a value's bytes.
    pub fn emit_value<T: IntoBytes + Immutable>(&mut self, value: &T) -> Result<(), EmitError> {
        self.outlet.emit(value.as_bytes())
    }

    /// Does something that waits (for a file, a socket, another process) without the lane's run
    /// token, so that the next job of the lane can run meanwhile. Returns when it is this job's
    /// turn again.
    ///
    /// The lane needs another thread for that: `pool = 2` or more on the processor. Without one
    /// the job blocks and its lane with it, and the run notes it.
    pub fn blocking<R>(&mut self, wait: impl FnOnce() -> R) -> R {
        let JobContext { processor, me, posts, begin, .. } = self;
        // It has given the token up already, if what it does calls `waiting`.
        let running = HERE.with_borrow_mut(|here| here.as_mut().and_then(|here| here.running.take()));
        let result = give_up(processor, *me, begin.slot, posts, wait);
        set_running(running);
        result
    }

    /// Holds a resource while `act` runs.
    pub(crate) fn hold<R>(&mut self, resource: ResourceId, act: impl FnOnce() -> R) -> R {
        hold(self.processor, self.me, &self.begin, resource, self.posts, act)
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
