//! Operations on their way from one processor of this process to another, with their bodies.
//!
//! ```text
//!  release thread of `front`: sample ─► Depart        last job ends: its body ──► arrivals of `rear` ─► its release
//!                                                                                          thread: Arrive, next release
//! ```

use std::sync::atomic::{AtomicBool, Ordering};

use hyoshi_control::feedback::{ProposedMove, Reallocator};
use hyoshi_dispatch::DepartedOperation;
use hyoshi_model::{OperationId, ProcessorId, System};
use hyoshi_os::PiMutex;

use crate::body::BodyCell;

/// The law that moves operations, and the operations on their way.
#[derive(Debug)]
pub(crate) struct OperationMoves {
    pub law: PiMutex<Reallocator>,
    /// By processor.
    arrivals: Vec<MoveArrivals>,
}

#[derive(Debug)]
struct MoveArrivals {
    some: AtomicBool,
    /// Each operation is in it at most once.
    all: PiMutex<Vec<ArrivingOperation>>,
}

/// An operation on its way, with its body.
#[derive(Debug)]
pub(crate) struct ArrivingOperation {
    /// The operation on its next processor.
    pub to: OperationId,
    pub departure: DepartedOperation,
    pub cell: Option<Box<BodyCell>>,
}

impl OperationMoves {
    /// `None` if no operation could move.
    pub fn of(system: &System) -> Option<OperationMoves> {
        let law = PiMutex::new(Reallocator::of(system)?);
        let most = system.movable().len();
        let new = |_| MoveArrivals { some: AtomicBool::new(false), all: PiMutex::new(Vec::with_capacity(most)) };
        Some(OperationMoves { law, arrivals: system.processors.iter().map(new).collect() })
    }

    /// Moves that the file does not permit.
    pub fn proposals(&self) -> Vec<ProposedMove> {
        self.law.lock().proposals().copied().collect()
    }

    /// An operation with its body arrives at a processor. The caller wakes the release thread there.
    pub fn pass(&self, to: ProcessorId, arriving: ArrivingOperation) {
        let arrivals = &self.arrivals[to.index()];
        arrivals.all.lock().push(arriving);
        arrivals.some.store(true, Ordering::Release);
    }

    /// Whether there are new arrivals at a processor. Then all of them must be taken.
    pub fn has_arrivals(&self, at: ProcessorId) -> bool {
        let some = &self.arrivals[at.index()].some;
        some.load(Ordering::Relaxed) && some.swap(false, Ordering::Acquire)
    }

    /// An operation that arrives at a processor.
    pub fn take(&self, at: ProcessorId) -> Option<ArrivingOperation> {
        self.arrivals[at.index()].all.lock().pop()
    }
}
