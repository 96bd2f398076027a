//! Access to internals for benchmarks and `hyoshi calibrate`. Not part of the public API.

use std::sync::Arc;

use hyoshi_model::{Instant, OperationId, Span, System};
use hyoshi_os::{MonotonicClock, PiMutex, ThreadHandle};
use hyoshi_sched::Plan;
use hyoshi_trace::RingDrain;
use hyoshi_trace::ring::ring;

use crate::common::{CommonState, ThreadControl};
use crate::crew::{Crew, LaneStep, Returned};
use crate::events::{EventFeed, SupplierFeed, suppliers};
use crate::link::connect;
use crate::processor::ProcessorState;
use crate::wakeups::PendingWakeups;

/// The first processor of a system, without threads. The caller runs sections of its lock, at the due times of
/// releases.
#[derive(Debug)]
pub struct ManualProcessor {
    processor: Arc<ProcessorState>,
}

/// A thread of a [`ManualProcessor`].
#[derive(Debug)]
pub struct ManualThread {
    processor: Arc<ProcessorState>,
    wakeups: PendingWakeups,
    running: Option<(u16, hyoshi_trace::Slot)>,
}

impl ManualProcessor {
    /// The processor, and its ring, which must be drained regularly.
    pub fn new(system: Arc<System>, plan: &Plan, events: usize) -> (ManualProcessor, RingDrain) {
        let common = Arc::new(CommonState::new(system.clone(), None, Instant::NEVER));
        common.begin(MonotonicClock::start());
        let (probe, drain) = ring(events);
        let plan = &plan.processors[0];
        let mut cells: Vec<_> = system.operation_ids().map(|_: OperationId| None).collect();
        let without_bodies = vec![false; cells.len()];
        let links = connect(&common).0.remove(0);
        let mut crew: Crew<ThreadHandle> = Crew::new(common.clone(), plan, probe, (&mut cells, &without_bodies), links);
        let supplies = suppliers(&system);
        let feeding: Vec<OperationId> = system.operation_ids().filter(|id| supplies[id.index()]).collect();
        let mut feeds: Vec<Option<SupplierFeed>> = system.operation_ids().map(|_| None).collect();
        let ends = EventFeed::new(&feeding, common.clone()).1;
        feeding.iter().zip(ends).for_each(|(id, end)| feeds[id.index()] = Some(end));
        crew.feed(&mut feeds);
        let lanes = 0..crew.threads_of(plan).len() as u8;
        let control: Vec<Arc<ThreadControl>> = lanes.clone().map(|_| Arc::default()).collect();
        lanes.for_each(|lane| {
            crew.add_thread(lane, control[usize::from(lane)].clone());
        });
        let (crew, background) = (PiMutex::new(crew), Arc::default());
        (
            ManualProcessor {
                processor: Arc::new(ProcessorState {
                    id: plan.processor,
                    common,
                    crew,
                    control,
                    background,
                    requests: Arc::default(),
                }),
            },
            drain,
        )
    }

    /// Its state.
    pub(crate) fn into_processor(self) -> Arc<ProcessorState> {
        self.processor
    }

    /// A thread of it.
    pub fn side(&self) -> ManualThread {
        ManualThread { processor: self.processor.clone(), wakeups: self.processor.wakeups(), running: None }
    }
}

impl ManualThread {
    /// The work of a release thread at `at`, without wake-ups.
    pub fn release(&mut self, at: Instant) {
        self.processor.section(|crew, _| crew.on_time(at, &mut self.wakeups));
        self.wakeups.clear();
    }

    /// The work of a lane's thread after a wake-up or a job: completes the job and starts the next. False if there is
    /// none.
    pub fn take(&mut self, lane: u16, at: Instant) -> bool {
        let wakeups = &mut self.wakeups;
        let step = match self.running.take() {
            Some((me, slot)) => {
                let (cpu, cpu_after) = (Span::ZERO, Span::ZERO);
                let returned = Returned { slot, cell: None, consumed: None, cpu, cpu_after, local: 0, answered: false };
                self.processor.section(|crew, _| crew.finish(me, at, returned, wakeups))
            }
            None => self.processor.section(|crew, _| crew.next(lane, at, Span::ZERO, wakeups)),
        };
        wakeups.clear();
        if let LaneStep::Run(begin) = step {
            self.running = Some((lane, begin.slot));
        }
        self.running.is_some()
    }

    /// The present instant.
    pub fn now(&self) -> Instant {
        self.processor.common.now()
    }
}
