//! What the threads of one processor do: the release thread, those of the lanes, and the one below them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyoshi_model::{Instant, Span};
use hyoshi_os::own_cpu_time;

use crate::body::run_body;
use crate::context::enter_lane;
use crate::crew::{Begin, Below, Returned, Step};
use crate::posts::Posts;
use crate::processor::Processor;
use crate::requests::Requests;
use crate::work::{self, Worked};

impl Processor {
    /// The release thread: above its lanes, it enqueues everything that is due before any lane runs.
    pub fn release(&self) {
        let mut posts = self.posts();
        let own = &self.common.releases[self.id.index()];
        own.wake.wait();
        let clock = *self.common.clock();
        // The clock stands at 0 until the common start: what is released there would run in no time.
        own.wake.wait_until(&clock, Instant::ZERO);
        loop {
            let (over, until) = self.section(|crew, now| (crew.on_time(now, &mut posts), crew.armed));
            posts.deliver();
            if over {
                own.asleep_until.store(u64::MAX, Ordering::Relaxed);
                return;
            }
            own.asleep_until.store(until.as_nanos(), Ordering::Relaxed);
            own.wake.wait_until(&clock, until);
        }
    }

    /// A lane's thread: takes what is first in its lane, runs it to its end, and looks again.
    pub fn serve(self: &Arc<Self>, me: u16) {
        enter_lane(self, me);
        let mut posts = self.posts();
        let signs = &self.signs[usize::from(me)];
        signs.wake.wait();
        let mut meter = Meter::default();
        loop {
            let cpu = meter.after_wake();
            let mut step = self.section(|crew, now| crew.next(me, now, cpu, &mut posts));
            posts.deliver();
            loop {
                step = match step {
                    Step::Run(begin) => match self.run(me, begin, &mut posts) {
                        Some(returned) => {
                            // Before it decides the next step.
                            self.read_between(me, &mut posts);
                            meter.read(returned.cpu);
                            self.section(|crew, now| crew.finish(me, now, returned, &mut posts))
                        }
                        None => {
                            let cpu = meter.read(own_cpu_time());
                            self.section(|crew, now| crew.next(me, now, cpu, &mut posts))
                        }
                    },
                    Step::Again => {
                        let cpu = meter.read(own_cpu_time());
                        self.section(|crew, now| crew.next(me, now, cpu, &mut posts))
                    }
                    Step::Turn(returned) => {
                        signs.wake.wait();
                        self.section(|crew, now| crew.finish(me, now, returned, &mut posts))
                    }
                    Step::Idle => break,
                    Step::End => return,
                };
                posts.deliver();
            }
            self.wait_for_work(me, &mut posts);
        }
    }

    /// Waits until the thread is posted. If this thread reads requests, it also returns after reading some.
    fn wait_for_work(&self, me: u16, posts: &mut Posts) {
        let wake = &self.signs[usize::from(me)].wake;
        let Some(requests) = self.requests.get().filter(|_| self.section(|crew, _| crew.may_read(me))) else {
            return wake.wait();
        };
        loop {
            requests.wait(|| wake.is_posted());
            if wake.try_wait() {
                return self.section(|crew, _| crew.stop_reading());
            }
            if self.read(requests, me, posts) {
                return;
            }
        }
    }

    /// Reads requests that arrived during a job of the lane, if its threads read requests.
    fn read_between(&self, me: u16, posts: &mut Posts) {
        if let Some(requests) = self.requests.get()
            && self.section(|crew, _| crew.may_read(me))
            && !self.read(requests, me, posts)
        {
            self.section(|crew, _| crew.stop_reading());
        }
    }

    /// True if requests were read.
    fn read(&self, requests: &Requests, me: u16, posts: &mut Posts) -> bool {
        let any = requests.read(|arrived| {
            let any = !arrived.is_empty();
            if any {
                self.section(|crew, now| crew.arrive_requests(me, now, arrived, posts));
            }
            any
        });
        posts.deliver();
        any
    }

    /// Built-in work that was put below the lanes goes on here, at normal priority.
    pub fn serve_below(&self) {
        let mut posts = self.posts();
        loop {
            self.background.wait();
            if self.common.stopping.load(Ordering::Acquire) {
                return;
            }
            // In a section of its own: `self.crew.lock()` here would hold it for as long as the work takes.
            while let Some(mut below) = self.section(|crew, _| crew.take_below()) {
                let began = own_cpu_time();
                let stopping = || self.common.stopping.load(Ordering::Relaxed);
                let (cpu, done) = work::burn(self.common.clock(), began + below.left, stopping);
                if !done {
                    return;
                }
                below.consumed += cpu.saturating_sub(began).min(below.left);
                self.section(|crew, now| crew.finish_below(below, now, &mut posts));
                posts.deliver();
            }
        }
    }

    /// `None` if the job is no longer this thread's.
    fn run(&self, me: u16, begin: Begin, posts: &mut Posts) -> Option<Returned> {
        if begin.cell.is_some() {
            return Some(run_body(self, me, begin, posts));
        }
        let slot = begin.slot;
        match work::run(self, me, &begin, posts) {
            Worked::Done { cpu, consumed } => Some(Returned { slot, cell: None, consumed: Some(consumed), cpu }),
            Worked::Demoted { consumed, left } => {
                let below = Below { slot, consumed, left };
                self.section(|crew, _| crew.hand_below(me, below, posts));
                None
            }
        }
    }
}

/// What a lane thread's CPU clock says, without asking it at every wake-up.
///
/// Asking costs a system call (0.4 us), as much as everything else between a wake-up and the body.
/// But between its last reading before it sleeps and the wake-up a thread always does the same, so
/// the cost of that is measured now and then and added; it errs by a fraction of a microsecond.
#[derive(Debug, Default)]
struct Meter {
    last: Span,
    /// From the last reading to the next wake-up.
    idling: Span,
    wakes: u32,
}

impl Meter {
    fn read(&mut self, cpu: Span) -> Span {
        self.last = cpu;
        cpu
    }

    fn after_wake(&mut self) -> Span {
        self.wakes = self.wakes.wrapping_add(1);
        if self.wakes > 8 && !self.wakes.is_multiple_of(64) {
            return self.last + self.idling;
        }
        let cpu = own_cpu_time();
        if self.wakes > 1 {
            self.idling = cpu.saturating_sub(self.last);
        }
        self.read(cpu)
    }
}
