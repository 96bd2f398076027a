//! A user's body of an operation: its inputs and its call.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use hyoshi_model::{OperationId, System};
use hyoshi_os::own_cpu_time;

use crate::context::{JobContext, JobTiming, set_running, set_timing};
use crate::crew::{JobStart, Returned};
use crate::ended::{EndedBy, panic_text};
use crate::link::LINK;
use crate::payload::{Payload, PayloadBuffers};
use crate::processor::ProcessorState;
use crate::wakeups::PendingWakeups;

/// The body of an operation. It runs once for each job, never for two at a time.
pub type Body = Box<dyn FnMut(&mut JobContext<'_>) + Send>;

/// A body with its inputs and outputs. The thread that has the cell runs the body.
pub(crate) struct BodyCell {
    pub body: Body,
    /// By predecessor: its payload for the current job.
    pub inputs: Vec<Option<Arc<Payload>>>,
    /// By operation that it reads: its latest payload.
    pub reads: Vec<Option<Arc<Payload>>>,
    pub payload_buffers: PayloadBuffers,
}

impl BodyCell {
    pub fn new(system: &System, id: OperationId, body: Body) -> Self {
        let operation = system.operation(id);
        // Each triggered job may hold one until it ends. Add the reader's latest, the one being written, and on other
        // processors those in transit.
        let mut buffers = 2;
        for other in &system.operations {
            let triggers = other.trigger.predecessors().contains(&id);
            let reads = other.reads.contains(&id);
            buffers += if triggers { 2 * other.queue.limit as usize + 5 } else { 0 } + usize::from(reads);
            buffers += if triggers && other.on != operation.on { LINK.min(64) } else { 0 };
        }
        BodyCell {
            body,
            inputs: vec![None; operation.trigger.predecessors().len()],
            reads: vec![None; operation.reads.len()],
            payload_buffers: PayloadBuffers::new(operation.payload as usize, buffers),
        }
    }
}

impl fmt::Debug for BodyCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cell")
            .field("inputs", &self.inputs)
            .field("outlet", &self.payload_buffers)
            .finish_non_exhaustive()
    }
}

/// Runs a job in its operation's body. A panic ends the run, not the process.
pub(crate) fn run_body(
    processor: &ProcessorState,
    me: u16,
    mut begin: JobStart,
    wakeups: &mut PendingWakeups,
) -> Returned {
    let slot = begin.slot;
    let Some(mut cell) = begin.cell.take() else {
        return Returned { slot, cell: None, consumed: None, cpu: own_cpu_time() };
    };
    let (common, id) = (&processor.common, begin.job.operation);
    let operation = common.system.operation(id);
    for (value, from) in cell.reads.iter_mut().zip(&operation.reads) {
        *value = common.latest[from.index()].as_ref().and_then(|latest| latest.lock().clone());
    }
    let BodyCell { body, inputs, reads, payload_buffers } = &mut *cell;
    let JobStart { origin, deadline, importance, critical, .. } = begin;
    set_timing(Some(JobTiming { clock: *common.clock(), origin, deadline, importance, critical }));
    set_running(Some(slot));
    let mut context = JobContext::new(processor, me, begin, inputs, reads, payload_buffers, wakeups);
    // A body that has panicked is not called again.
    let sound = !matches!(common.ended(), Some(EndedBy::Panicked { .. }));
    if let (true, Err(panic)) = (
        sound,
        catch_unwind(AssertUnwindSafe(|| {
            if sound {
                body(&mut context)
            }
        })),
    ) {
        common.end(EndedBy::Panicked { operation: operation.name.clone(), message: panic_text(&*panic) });
    }
    set_running(None);
    set_timing(None);
    cell.inputs.fill(None);
    cell.reads.fill(None);
    if let (Some(latest), Some(emitted)) = (&common.latest[id.index()], cell.payload_buffers.emitted()) {
        *latest.lock() = Some(emitted.clone());
    }
    Returned { slot, cell: Some(cell), consumed: None, cpu: own_cpu_time() }
}
