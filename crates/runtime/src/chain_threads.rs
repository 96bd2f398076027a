//! The distributable threads of a file's chains (DT/EC, section 2.1). Each release of the first operation of a chain with
//! `carried_by = "thread"` is a thread. Its segments are the jobs along the path with the same number. A thread needs no
//! state of its own: the dispatchers' jobs are its state, and the lanes' threads run its segments.
//!
//! ```text
//!   lane's thread ─ completes a segment ─► ring ─► the same thread sends ═ network ═► next host
//!                                            └─► sender's thread, if the lane's would wait
//! ```

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyoshi_model::{ChainCarrier, HostId, Instant, OperationId, ProcessorId, Span, System, ThreadGraph};

use crate::common::CommonState;
use crate::processor::ProcessorState;

/// Hops of cancelled threads are dropped for this long: one that was on its way arrives within that time.
pub(crate) const REMEMBERED: Span = Span::from_secs(1);
/// The most cancelled threads that a processor remembers at a time. Another host has at most half of what the others
/// leave.
pub(crate) const MOST_REMEMBERED: usize = 1024;
/// Ended segments that a processor remembers, for each operation on a path.
pub(crate) const MOST_ENDED: usize = 64;

/// A thread of this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainThread {
    /// The first operation of its chain.
    pub root: OperationId,
    /// The release number of that operation's job.
    pub number: u64,
}

/// The state of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// A release guard holds it.
    Held,
    /// It waits in the queue of its lane.
    Waiting,
    /// It runs, or its lane is preempted.
    Running,
    /// Its body waits without its lane's token.
    Blocked,
    /// It runs below the lanes.
    Demoted,
    /// It has ended.
    Ended,
}

/// A segment of a thread: a job, or the jobs of a load chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadSegment {
    /// The thread.
    pub thread: ChainThread,
    /// The operation.
    pub operation: OperationId,
    /// Its state.
    pub state: SegmentState,
    /// It was cancelled, and its body has not returned yet.
    pub is_cancelled: bool,
    /// The nominal release.
    pub release: Instant,
    /// The absolute deadline.
    pub deadline: Instant,
    /// CPU time so far.
    pub used: Span,
}

/// What a cancellation found on one processor, or in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CancelOutcome {
    /// Nothing of the thread. A hop that arrives later is dropped.
    Absent,
    /// Too many threads were cancelled a moment ago, by all hosts or by this one. Nothing was done.
    Busy,
    /// The chain's first operation is here and has not been released so often yet. Nothing was done.
    NotBegun,
    /// The thread was on its way here, and its hop was dropped.
    Dropped(OperationId),
    /// A segment was here and ends as cancelled.
    Cancelled(OperationId),
}

/// A sender of departures that lanes call: it sends the hops of threads to one host.
pub trait LaneSender: fmt::Debug + Send + Sync {
    /// Sends what departs, without waiting. False if the sender's thread must send it.
    fn try_send(&self) -> bool;
}

/// Where a thread passes.
#[derive(Clone, Debug)]
struct ThreadRoute {
    root: OperationId,
    /// The processors of this process, in the order of the operations.
    processors: Vec<Arc<ProcessorState>>,
}

/// The threads of all chains on the processors of this process. Clones share them.
#[derive(Clone, Debug)]
pub struct ChainThreads {
    common: Arc<CommonState>,
    routes: Arc<[ThreadRoute]>,
    graphs: Arc<[ThreadGraph]>,
}

/// By operation: the first operation of the thread's path that it is on.
pub(crate) fn thread_roots(system: &System) -> Vec<Option<OperationId>> {
    let mut roots = vec![None; system.operations.len()];
    for graph in system.thread_graphs() {
        graph.operations.iter().for_each(|id| roots[id.index()] = Some(graph.root));
    }
    roots
}

impl ChainThreads {
    pub(crate) fn new(common: Arc<CommonState>, processors: &[Arc<ProcessorState>]) -> Self {
        let system = &common.system;
        let route = |graph: &ThreadGraph| {
            let mut along: Vec<Arc<ProcessorState>> = Vec::new();
            for on in graph.operations.iter().map(|id| system.operation(*id).on) {
                let here = processors.iter().find(|processor| processor.id == on);
                along.extend(here.filter(|_| along.iter().all(|known| known.id != on)).cloned());
            }
            ThreadRoute { root: graph.root, processors: along }
        };
        let graphs = system.thread_graphs();
        let routes = graphs.iter().map(route).collect();
        ChainThreads { routes, graphs: graphs.into(), common }
    }

    /// The system that runs.
    pub fn system(&self) -> &Arc<System> {
        &self.common.system
    }

    /// The threads of the file.
    pub fn graphs(&self) -> &[ThreadGraph] {
        &self.graphs
    }

    /// True if the file has a chain carried by threads.
    pub fn any(&self) -> bool {
        !self.routes.is_empty()
    }

    /// Sets the first octets of the run's id, for the ids of its threads.
    pub fn set_run(&self, run: u32) {
        self.common.run.store(run, Ordering::Relaxed);
    }

    /// The time on the run's clock; `None` before instant 0 is known.
    pub fn now(&self) -> Option<Instant> {
        self.common.has_begun().then(|| self.common.now())
    }

    /// Live segments of all threads: at most `most`, and their number. Locks each processor for a short section.
    pub fn live(&self, most: usize) -> (Vec<ThreadSegment>, usize) {
        let (mut segments, mut all) = (Vec::with_capacity(most), 0);
        if self.common.has_begun() {
            self.processors().for_each(|processor| {
                all += processor.section(|crew, _| crew.live_segments(&mut segments));
            });
        }
        (segments, all)
    }

    /// The live and the ended segments of a thread, as far as this process remembers them, in the order of the path.
    pub fn segments(&self, thread: ChainThread) -> Vec<ThreadSegment> {
        let mut segments = Vec::with_capacity(self.common.system.operations.len());
        let route = self.routes.iter().find(|route| route.root == thread.root);
        for processor in route.into_iter().flat_map(|route| &route.processors).filter(|_| self.common.has_begun()) {
            processor.section(|crew, _| crew.segments_of(thread, &mut segments));
        }
        let along =
            self.graphs.iter().find(|graph| graph.root == thread.root).map_or(&[][..], |graph| &graph.operations);
        segments.sort_by_key(|segment| along.iter().position(|id| *id == segment.operation));
        segments
    }

    /// Cancels a thread: its segments here end as cancelled, and hops of it that arrive later are dropped. A running
    /// body sees [`stop_asked`](crate::JobContext::stop_asked). Locks the processors of its path for short sections, in
    /// its order, so that the thread cannot pass the cancellation. `by` is the other host that cancels it; `None` for
    /// an operator here.
    pub fn cancel(&self, thread: ChainThread, by: Option<HostId>) -> CancelOutcome {
        let mut found = CancelOutcome::Absent;
        let route = self.routes.iter().find(|route| route.root == thread.root);
        for processor in route.into_iter().flat_map(|route| &route.processors).filter(|_| self.common.has_begun()) {
            // Created before the section that lanes may wait for.
            let mut wakeups = processor.wakeups();
            let here = processor.section(|crew, now| crew.cancel_thread(now, thread, by, &mut wakeups));
            wakeups.deliver();
            if matches!(here, CancelOutcome::NotBegun | CancelOutcome::Busy) {
                return here;
            }
            found = found.max(here);
        }
        found
    }

    /// Each processor on a path, once.
    fn processors(&self) -> impl Iterator<Item = &Arc<ProcessorState>> {
        let mut seen: Vec<ProcessorId> = Vec::new();
        let all = self.routes.iter().flat_map(|route| &route.processors);
        all.filter(move |processor| {
            let is_new = !seen.contains(&processor.id);
            seen.extend(is_new.then_some(processor.id));
            is_new
        })
    }
}

/// By operation: threads move to it from the operation before.
pub(crate) fn thread_hops(system: &System) -> Vec<bool> {
    let mut hops = vec![false; system.operations.len()];
    for chain in system.chains.iter().filter(|chain| chain.carried_by == ChainCarrier::Thread) {
        chain.path.iter().skip(1).for_each(|id| hops[id.index()] = true);
    }
    hops
}
