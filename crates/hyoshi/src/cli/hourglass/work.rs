//! Threads that together use a fixed CPU time in each period.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};

use hyoshi_model::{Instant, Span};
use hyoshi_os::{Clock, Interrupt, MonotonicClock, own_cpu_time};

/// Some microseconds of work, after which a thread looks at the clocks: two readings are about a tenth of it.
const STEP: u64 = 4_000;

/// The threads, the caller's among them.
pub(super) struct WorkerThreads<'a> {
    clock: MonotonicClock,
    interrupt: &'a Interrupt,
    size: u32,
    /// The work of the current period; `None` ends the threads.
    order: Mutex<Option<WorkShare>>,
    /// All threads wait here before and after the work of a period.
    meet: Barrier,
    obtained: AtomicU64,
}

/// One thread's part of a period's work, and its deadline.
#[derive(Clone, Copy)]
struct WorkShare {
    each: Span,
    deadline: Instant,
}

impl<'a> WorkerThreads<'a> {
    pub fn new(size: u32, clock: MonotonicClock, interrupt: &'a Interrupt) -> Self {
        let meet = Barrier::new(size as usize);
        WorkerThreads { clock, interrupt, size, order: Mutex::new(None), meet, obtained: AtomicU64::new(0) }
    }

    /// Works until the deadline at most. Returns the obtained CPU time, and the end.
    pub fn work(&self, demanded: Span, deadline: Instant) -> (Span, Instant) {
        let each = Span::from_nanos(demanded.as_nanos().div_ceil(u64::from(self.size)));
        let order = WorkShare { each, deadline };
        self.assign(Some(order));
        self.obtained.store(0, Ordering::Relaxed);
        self.meet.wait();
        self.compute(order);
        self.meet.wait();
        (Span::from_nanos(self.obtained.load(Ordering::Relaxed)), self.clock.now())
    }

    /// Ends the other threads.
    pub fn dismiss(&self) {
        self.assign(None);
        self.meet.wait();
    }

    /// The loop of every thread except the caller's.
    pub fn join_in(&self) {
        loop {
            self.meet.wait();
            let order = *self.order.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(order) = order else { break };
            self.compute(order);
            self.meet.wait();
        }
    }

    fn assign(&self, order: Option<WorkShare>) {
        *self.order.lock().unwrap_or_else(PoisonError::into_inner) = order;
    }

    fn compute(&self, WorkShare { each, deadline }: WorkShare) {
        let begun = own_cpu_time();
        let mut had = Span::ZERO;
        while had < each && self.clock.now() < deadline && !self.interrupt.requested() {
            std::hint::black_box((0..STEP).fold(0, |sum: u64, next| std::hint::black_box(sum ^ next)));
            had = own_cpu_time().saturating_sub(begun);
        }
        self.obtained.fetch_add(had.as_nanos(), Ordering::Relaxed);
    }
}
