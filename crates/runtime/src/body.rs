//! A user's body of an operation: its inputs and its call.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use hyoshi_model::{HopChoice, OperationId, System};
use hyoshi_os::own_cpu_time;

use crate::choice::ChosenBits;
use crate::context::{CurrentJob, JobContext, set_current};
use crate::crew::{JobStart, Returned};
use crate::ended::{EndedBy, panic_text};
use crate::events::payload_holders;
use crate::payload::{Payload, PayloadBuffers};
use crate::processor::ProcessorState;
use crate::replica::JobOutput;
use crate::wakeups::PendingWakeups;

/// The body of an operation. It runs once for each job, never for two at a time.
pub type Body = Box<dyn FnMut(&mut JobContext<'_>) + Send>;

/// A body with its inputs and outputs. The thread that has the cell runs the body.
pub(crate) struct BodyCell {
    pub body: Body,
    /// By predecessor: its payload for the current job.
    pub inputs: Vec<Option<Arc<Payload>>>,
    /// By operation that it reads: its latest output.
    pub reads: Vec<Option<JobOutput>>,
    pub payload_buffers: PayloadBuffers,
    pub hops: ChosenBits,
}

impl BodyCell {
    /// Of the operation at `first`. If the body also runs the rest after a call, its payload is that of `last`, with
    /// these `choices` of hops.
    pub fn new(
        system: &System,
        (first, last): (OperationId, OperationId),
        supplies: bool,
        choices: &[HopChoice],
        body: Body,
    ) -> Self {
        let (first, id) = (system.operation(first), last);
        let operation = system.operation(id);
        // And the payload that is written now.
        let buffers = payload_holders(system, id, supplies) + 2;
        // A request has the payload of its publication.
        let inputs = if first.is_requested() { 1 } else { first.trigger.predecessors().len() };
        BodyCell {
            body,
            inputs: vec![None; inputs],
            reads: vec![None; first.reads.len()],
            payload_buffers: PayloadBuffers::new(operation.payload as usize, buffers),
            hops: ChosenBits::new(choices),
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

/// Runs a job in its operation's body. A panic ends the run, not the process. `Err` if the job has left the body: the
/// position of the operation in the plan, and its cell.
pub(crate) fn run_body(
    processor: &ProcessorState,
    me: u16,
    mut begin: JobStart,
    wakeups: &mut PendingWakeups,
) -> Result<Returned, (u32, Option<Box<BodyCell>>)> {
    let (local, now) = (begin.local, begin.now);
    let mut cell = begin.cell.take();
    let (common, id) = (&processor.common, now.job.operation);
    let operation = common.system.operation(id);
    let answered = begin.call.is_some() && !operation.is_requested();
    let mut ran = None;
    if let Some(cell) = &mut cell {
        if !operation.reads.is_empty() {
            let (host, at) = (common.system.processor(processor.id).host, common.now());
            for (value, from) in cell.reads.iter_mut().zip(&operation.reads) {
                *value = common.latest.read(*from, host, at);
            }
        }
        let BodyCell { body, inputs, reads, payload_buffers, hops } = &mut **cell;
        set_current(Some(now));
        let mut context = JobContext::new(processor, me, begin, (inputs, reads), (payload_buffers, hops), wakeups);
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
        ran = set_current(None);
        cell.inputs.fill(None);
        cell.reads.fill(None);
        let CurrentJob { job, release, .. } = ran.unwrap_or(now);
        if let (Some(latest), Some(emitted)) = (common.latest.own(job.operation), cell.payload_buffers.emitted()) {
            let payload = Some(emitted.clone());
            latest.lock().set(JobOutput { release, number: job.number, leg: job.leg, payload });
        }
    }
    let cpu = own_cpu_time();
    match ran.unwrap_or(now).slot {
        Some(slot) => Ok(Returned { slot, cell, consumed: None, cpu, cpu_after: cpu, local, answered }),
        None => Err((local, cell)),
    }
}
