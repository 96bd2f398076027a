//! What benchmarks and `hyoshi calibrate` need to see of the inside; no part of the interface.

use std::sync::Arc;

use hyoshi_model::{Instant, OperationId, Span, System};
use hyoshi_os::{Clock, MonotonicClock, PiMutex, ThreadHandle};
use hyoshi_sched::Plan;
use hyoshi_trace::RingDrain;
use hyoshi_trace::ring::ring;

use crate::common::{Common, Signs};
use crate::crew::{Crew, Returned, Step};
use crate::link::connect;
use crate::posts::Posts;
use crate::processor::Processor;

/// The first processor of a system, without threads: sections of its lock are called by hand, at
/// the times that releases are due, however late it really is.
#[derive(Debug)]
pub struct Exchange {
    processor: Arc<Processor>,
}

/// One side of an [`Exchange`], to be used by one thread.
#[derive(Debug)]
pub struct Side {
    processor: Arc<Processor>,
    posts: Posts,
    running: Option<(u16, hyoshi_trace::Slot)>,
}

impl Exchange {
    /// The exchange, and the ring to be drained now and then.
    pub fn new(system: Arc<System>, plan: &Plan, events: usize) -> (Exchange, RingDrain) {
        let common = Arc::new(Common::new(system.clone(), None, Instant::NEVER));
        common.begin(MonotonicClock::start());
        let (probe, drain) = ring(events);
        let plan = &plan.processors[0];
        let mut cells: Vec<_> = system.operation_ids().map(|_: OperationId| None).collect();
        let links = connect(&common).0.remove(0);
        let mut crew: Crew<ThreadHandle> = Crew::new(common.clone(), plan, probe, &mut cells, links);
        let lanes = 0..crew.threads_of(plan).len() as u8;
        let signs: Vec<Arc<Signs>> = lanes.clone().map(|_| Arc::default()).collect();
        lanes.for_each(|lane| {
            crew.enlist(lane, signs[usize::from(lane)].clone());
        });
        let (crew, background) = (PiMutex::new(crew), Arc::default());
        (
            Exchange {
                processor: Arc::new(Processor {
                    id: plan.processor,
                    common,
                    crew,
                    signs,
                    background,
                    requests: Arc::default(),
                }),
            },
            drain,
        )
    }

    /// What it is made of.
    pub(crate) fn into_processor(self) -> Arc<Processor> {
        self.processor
    }

    /// A side of it.
    pub fn side(&self) -> Side {
        Side { processor: self.processor.clone(), posts: self.processor.posts(), running: None }
    }
}

impl Side {
    /// What a release thread does when it is `at`, without waking anybody.
    pub fn release(&mut self, at: Instant) {
        self.processor.section(|crew, _| crew.on_time(at, &mut self.posts));
        self.posts.clear();
    }

    /// What the thread of a lane does after a wake-up, or after a job: completes it and takes the
    /// next. False if there is none.
    pub fn take(&mut self, lane: u16, at: Instant) -> bool {
        let posts = &mut self.posts;
        let step = match self.running.take() {
            Some((me, slot)) => {
                let returned = Returned { slot, cell: None, consumed: None, cpu: Span::ZERO };
                self.processor.section(|crew, _| crew.finish(me, at, returned, posts))
            }
            None => self.processor.section(|crew, _| crew.next(lane, at, Span::ZERO, posts)),
        };
        posts.clear();
        if let Step::Run(begin) = step {
            self.running = Some((lane, begin.slot));
        }
        self.running.is_some()
    }

    /// The present instant.
    pub fn now(&self) -> Instant {
        self.processor.common.clock().now()
    }
}
