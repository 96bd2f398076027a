//! A user's body of an operation: what it is given, and how it is called.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use hyoshi_model::{OperationId, System};
use hyoshi_os::own_cpu_time;

use crate::context::{JobContext, set_running};
use crate::crew::{Begin, Returned};
use crate::ended::{EndedBy, panic_text};
use crate::link::LINK;
use crate::payload::{Outlet, Payload};
use crate::posts::Posts;
use crate::processor::Processor;

/// What an operation does. Called once for each of its jobs, never twice at a time.
pub type Body = Box<dyn FnMut(&mut JobContext<'_>) + Send>;

/// A body and what goes in and out of it. Whoever has the cell is inside the body.
pub(crate) struct Cell {
    pub body: Body,
    /// By predecessor: what it handed to the present job.
    pub inputs: Vec<Option<Arc<Payload>>>,
    /// By operation that it reads: what that emitted last.
    pub reads: Vec<Option<Arc<Payload>>>,
    pub outlet: Outlet,
}

impl Cell {
    pub fn new(system: &System, id: OperationId, body: Body) -> Self {
        let operation = system.operation(id);
        // Each job that is triggered may hold one until it ends; the reader's last and the one
        // that is being written come on top, and on other processors those under way.
        let mut buffers = 2;
        for other in &system.operations {
            let triggers = other.trigger.predecessors().contains(&id);
            let reads = other.reads.contains(&id);
            buffers += if triggers { 2 * other.queue.limit as usize + 5 } else { 0 } + usize::from(reads);
            buffers += if triggers && other.on != operation.on { LINK.min(64) } else { 0 };
        }
        Cell {
            body,
            inputs: vec![None; operation.trigger.predecessors().len()],
            reads: vec![None; operation.reads.len()],
            outlet: Outlet::new(operation.payload as usize, buffers),
        }
    }
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cell").field("inputs", &self.inputs).field("outlet", &self.outlet).finish_non_exhaustive()
    }
}

/// Runs a job through its operation's body. A panic ends the run, not the process.
pub(crate) fn run_body(processor: &Processor, me: u16, mut begin: Begin, posts: &mut Posts) -> Returned {
    let slot = begin.slot;
    let Some(mut cell) = begin.cell.take() else {
        return Returned { slot, cell: None, consumed: None, cpu: own_cpu_time() };
    };
    let (common, id) = (&processor.common, begin.job.operation);
    let operation = common.system.operation(id);
    for (value, from) in cell.reads.iter_mut().zip(&operation.reads) {
        *value = common.latest[from.index()].as_ref().and_then(|latest| latest.lock().clone());
    }
    let Cell { body, inputs, reads, outlet } = &mut *cell;
    set_running(Some(slot));
    let mut context = JobContext::new(processor, me, begin, inputs, reads, outlet, posts);
    // What a panic left half done is not entered again.
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
    cell.inputs.fill(None);
    cell.reads.fill(None);
    if let (Some(latest), Some(emitted)) = (&common.latest[id.index()], cell.outlet.emitted()) {
        *latest.lock() = Some(emitted.clone());
    }
    Returned { slot, cell: Some(cell), consumed: None, cpu: own_cpu_time() }
}
