//! The threads of one processor: the release thread, those of the lanes, and the one for demoted work.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyoshi_model::{Instant, LoadMeasure, Span};
use hyoshi_os::{BusyReader, Clock as _, Scheduled, ThreadHandle, WaitOutcome, own_cpu, own_cpu_time};

use crate::body::run_body;
use crate::built_in_work::{self, WorkEnd};
use crate::context::enter_lane;
use crate::crew::{DemotedWork, JobStart, LaneStep, Returned};
use crate::load_monitor::LoadMonitor;
use crate::processor::ProcessorState;
use crate::remote_samples::GroupSample;
use crate::requests::Requests;
use crate::wakeups::PendingWakeups;

impl ProcessorState {
    /// The release thread. It runs above the lanes, so that all due jobs are enqueued before a lane runs.
    pub fn release(&self) {
        let mut wakeups = self.wakeups();
        let own = &self.common.releases[self.id.index()];
        own.wake.wait();
        let clock = *self.common.clock();
        // The clock is 0 until the common start: jobs released there would run in no time.
        own.wake.wait_until(&clock, Instant::ZERO);
        let mut reader = LoadReader::of(self);
        let mut monitor = self.load_monitor(&mut reader);
        loop {
            if let Some(monitor) = monitor.as_mut().filter(|monitor| monitor.due() <= clock.now()) {
                let now = clock.now();
                let utilisation = monitor.measure(now, reader.used(now));
                let number = monitor.ended();
                let sampled = self.section(|crew, now| crew.on_sample(now, utilisation, &mut wakeups));
                wakeups.deliver();
                self.common.groups.offer(GroupSample { processor: self.id, number, utilisation: sampled });
            }
            let (over, until) = self.section(|crew, now| (crew.on_time(now, &mut wakeups), crew.armed));
            wakeups.deliver();
            let until = monitor.as_ref().map_or(until, |monitor| until.min(monitor.due()));
            if over {
                own.asleep_until.store(u64::MAX, Ordering::Relaxed);
                return;
            }
            own.asleep_until.store(until.as_nanos(), Ordering::Relaxed);
            own.wake.wait_until(&clock, until);
        }
    }

    /// The monitor of the feedback loop here, if there is one.
    fn load_monitor(&self, reader: &mut LoadReader) -> Option<LoadMonitor> {
        let period = self.section(|crew, _| crew.sampling_period())?;
        let cap = self.common.system.processor(self.id).hard_cap;
        let now = self.common.now();
        Some(LoadMonitor::new(period, cap, now, reader.used(now)))
    }

    /// A lane's thread: runs the first job of its lane to its end, repeatedly.
    pub fn serve(self: &Arc<Self>, me: u16) {
        enter_lane(self, me);
        let mut wakeups = self.wakeups();
        let control = &self.control[usize::from(me)];
        control.wake.wait();
        let mut meter = CpuClock::default();
        loop {
            let cpu = meter.after_wake();
            let mut step = self.section(|crew, now| crew.next(me, now, cpu, &mut wakeups));
            wakeups.deliver();
            loop {
                step = match step {
                    LaneStep::Run(begin) => match self.run(me, begin, &mut wakeups) {
                        Some(mut returned) => {
                            meter.read(returned.cpu);
                            // Before the next decision.
                            if self.read_between(me, &returned, &mut wakeups) {
                                returned.cpu_after = meter.read(own_cpu_time());
                            }
                            self.section(|crew, now| crew.finish(me, now, returned, &mut wakeups))
                        }
                        None => {
                            let cpu = meter.read(own_cpu_time());
                            self.section(|crew, now| crew.next(me, now, cpu, &mut wakeups))
                        }
                    },
                    LaneStep::Again => {
                        let cpu = meter.read(own_cpu_time());
                        self.section(|crew, now| crew.next(me, now, cpu, &mut wakeups))
                    }
                    LaneStep::Turn(returned) => {
                        control.wake.wait();
                        self.section(|crew, now| crew.finish(me, now, returned, &mut wakeups))
                    }
                    LaneStep::Idle => break,
                    LaneStep::End => return,
                };
                wakeups.deliver();
            }
            if self.wait_for_work(me, &mut wakeups) {
                meter.sync(own_cpu_time());
            }
        }
    }

    /// Waits until the thread is woken. If this thread reads requests, it also returns after reading some. True if it
    /// has read.
    fn wait_for_work(&self, me: u16, wakeups: &mut PendingWakeups) -> bool {
        let wake = &self.control[usize::from(me)].wake;
        let Some(requests) = self.requests.get().filter(|_| self.section(|crew, _| crew.may_read(me))) else {
            wake.wait();
            return false;
        };
        let (clock, mut has_read) = (self.common.clock(), false);
        loop {
            let earliest = requests.earliest();
            let woken = if clock.now() < earliest {
                wake.wait_until(clock, earliest) == WaitOutcome::Posted
            } else {
                requests.wait(|| wake.is_posted());
                wake.try_wait()
            };
            if woken {
                self.section(|crew, _| crew.stop_reading());
                return has_read;
            }
            if clock.now() >= earliest {
                has_read = true;
                if self.read(requests, me, wakeups) {
                    return true;
                }
            }
        }
    }

    /// Reads requests that arrived during a job of the lane, if its threads read requests. True if it has read.
    fn read_between(&self, me: u16, returned: &Returned, wakeups: &mut PendingWakeups) -> bool {
        let Some(requests) = self.requests.get() else { return false };
        if self.common.now() < requests.earliest() || !self.section(|crew, _| crew.may_read_after(me, returned)) {
            return false;
        }
        if !self.read(requests, me, wakeups) {
            self.section(|crew, _| crew.stop_reading());
        }
        true
    }

    /// True if requests were read.
    fn read(&self, requests: &Requests, me: u16, wakeups: &mut PendingWakeups) -> bool {
        let any = requests.read(self.common.clock(), |arrived| {
            let any = !arrived.is_empty();
            if any {
                self.section(|crew, now| crew.accept_requests(me, now, arrived, wakeups));
            }
            any
        });
        wakeups.deliver();
        any
    }

    /// The thread for demoted built-in work, at normal priority.
    pub fn serve_below(&self) {
        let mut wakeups = self.wakeups();
        loop {
            self.background.wait();
            if self.common.stopping.load(Ordering::Acquire) {
                return;
            }
            // A separate section: `self.crew.lock()` here would hold the lock during the work.
            while let Some(mut below) = self.section(|crew, _| crew.take_below()) {
                let began = own_cpu_time();
                let stopping = || self.common.stopping.load(Ordering::Relaxed);
                let (cpu, done) = built_in_work::burn(self.common.clock(), began + below.left, stopping);
                if !done {
                    return;
                }
                below.consumed += cpu.saturating_sub(began).min(below.left);
                self.section(|crew, now| crew.finish_below(below, now, &mut wakeups));
                wakeups.deliver();
            }
        }
    }

    /// `None` if the job has left this thread.
    fn run(&self, me: u16, begin: JobStart, wakeups: &mut PendingWakeups) -> Option<Returned> {
        if begin.cell.is_some() || begin.idle {
            return match run_body(self, me, begin, wakeups) {
                Ok(returned) => Some(returned),
                Err((local, cell)) => {
                    self.section(|crew, now| crew.leave_over(me, local, cell, now));
                    None
                }
            };
        }
        let (slot, local) = (begin.slot, begin.local);
        match built_in_work::run(self, me, &begin, wakeups) {
            WorkEnd::Done { cpu, consumed } => Some(Returned {
                slot,
                cell: None,
                consumed: Some(consumed),
                cpu,
                cpu_after: cpu,
                local,
                answered: false,
            }),
            WorkEnd::Demoted { consumed, left } => {
                let below = DemotedWork { slot, consumed, left };
                self.section(|crew, _| crew.hand_below(me, below, wakeups));
                None
            }
        }
    }
}

/// A lane thread's CPU clock, without a system call at every wake-up.
///
/// A reading costs 0.4 us, as much as everything else between a wake-up and the body. A thread always does the same
/// between its last reading before it sleeps and its wake-up. So that cost is measured sometimes and added; the error
/// is a fraction of a microsecond.
#[derive(Debug, Default)]
struct CpuClock {
    last: Span,
    /// From the last reading to the next wake-up.
    idling: Span,
    wakes: u32,
}

impl CpuClock {
    fn read(&mut self, cpu: Span) -> Span {
        self.last = cpu;
        cpu
    }

    /// The thread did more than wake up: the clock is at `cpu`.
    fn sync(&mut self, cpu: Span) {
        self.last = cpu.saturating_sub(self.idling);
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

/// Reads the CPU time that counts for the feedback loop of a processor. Its release thread calls it.
#[derive(Debug)]
enum LoadReader {
    /// The non-idle time of the CPU, if the kernel reports it.
    Cpu(Option<BusyReader>),
    /// The threads of the processor's lanes.
    Lanes(Vec<ThreadHandle>),
}

impl LoadReader {
    fn of(processor: &ProcessorState) -> LoadReader {
        let mut loops = processor.common.system.feedback.iter();
        match loops.find(|one| one.processor == processor.id).map(|one| one.measure) {
            // This thread is bound to the processor's CPU.
            Some(LoadMeasure::Cpu) => LoadReader::Cpu(BusyReader::of(own_cpu()).ok()),
            Some(LoadMeasure::Lanes) => LoadReader::Lanes(processor.crew.lock().lane_threads()),
            None => LoadReader::Cpu(None),
        }
    }

    /// `None` if some of it cannot be read.
    fn used(&mut self, now: Instant) -> Option<Span> {
        match self {
            LoadReader::Cpu(reader) => reader.as_mut()?.busy(now),
            LoadReader::Lanes(threads) => {
                threads.iter().map(Scheduled::cpu_time).try_fold(own_cpu_time(), |sum, one| Some(sum + one?))
            }
        }
    }
}
