//! One CPU under a model of the kernel: of all lanes that have something to run, the most urgent
//! runs; what the dispatcher paused or demoted runs when nothing else does.

use std::collections::VecDeque;

use hyoshi_dispatch::{Dispatcher, LaneMask, Overrun};
use hyoshi_model::{Instant, OperationId, ProcessorId, ResourceId, Span, System};
use hyoshi_sched::ProcessorPlan;
use hyoshi_trace::{Probe, Signal, Slot};

use crate::locks::Locks;

/// The level of ordinary threads: below every lane.
const BACKGROUND: u8 = u8::MAX;

/// A processor: its dispatcher, and what the kernel keeps of the jobs it has started.
pub(crate) struct Cpu<'a, P> {
    system: &'a System,
    pub dispatcher: Dispatcher<P>,
    /// By slot, for started jobs.
    execution: Vec<Execution>,
    /// Jobs below the lanes, in the order in which they came there.
    demoted: VecDeque<Slot>,
    current: Option<Slot>,
    /// When the present job stops by itself: at its end, or at the end of a critical section.
    stop: Instant,
    /// The last instant up to which `current` has been accounted for.
    accounted: Instant,
    timer: Instant,
    /// Lanes that have something new to decide once they have the CPU.
    woken: LaneMask,
    any_resources: bool,
    any_overrun_rule: bool,
    preemptive: bool,
    /// Something has happened here at the present instant.
    pub due: bool,
    /// CPU time used by jobs.
    pub busy: Span,
}

/// A started job's execution.
#[derive(Clone, Copy, Debug, Default)]
struct Execution {
    consumed: Span,
    total: Span,
    /// Which of its operation's critical sections it is in or before; past the last: none.
    section: u16,
    /// When the present section ends, in terms of `consumed`; `total` outside.
    section_end: Span,
    /// The level it runs at: its lane's, or a ceiling.
    level: u8,
    blocked: bool,
}

impl<'a, P: Probe> Cpu<'a, P> {
    pub fn new(system: &'a System, plan: &ProcessorPlan, probe: P) -> Self {
        let dispatcher = Dispatcher::new(system, plan, probe);
        let operations = || plan.operations.iter().map(|id| system.operation(*id));
        let timer = dispatcher.next_timer();
        Cpu {
            system,
            execution: Vec::new(),
            demoted: VecDeque::new(),
            current: None,
            stop: Instant::NEVER,
            accounted: Instant::ZERO,
            timer,
            woken: LaneMask::EMPTY,
            any_resources: operations().any(|operation| !operation.uses.is_empty()),
            any_overrun_rule: operations().any(|operation| operation.on_overrun != hyoshi_model::OnOverrun::Report),
            preemptive: plan.preemption == hyoshi_model::Preemption::Full,
            dispatcher,
            due: false,
            busy: Span::ZERO,
        }
    }

    /// When something happens here next.
    #[inline]
    pub fn next(&self) -> Instant {
        self.stop.min(self.timer)
    }

    /// First at an instant: the present job's section or body ends, watched jobs are observed.
    #[inline]
    pub fn completions(&mut self, now: Instant, locks: &mut Locks) {
        self.account(now);
        if let (true, Some(slot)) = (self.stop <= now, self.current) {
            let execution = &self.execution[slot.0 as usize];
            if execution.consumed >= execution.total {
                self.complete(now, slot, locks);
            } else {
                self.leave_section(now, slot, locks);
            }
        }
        if self.any_overrun_rule {
            self.observe_overdue(now, locks);
        }
    }

    /// Second: releases, signals and guards.
    #[inline]
    pub fn tick(&mut self, now: Instant) {
        // The timer may have been moved by a signal since it was read.
        if self.dispatcher.next_timer() <= now {
            self.dispatcher.tick(now);
        }
    }

    /// Third: what runs from `now` on.
    #[inline]
    pub fn dispatch(&mut self, now: Instant, locks: &mut Locks) {
        self.woken = self.woken | self.dispatcher.take_wakes();
        loop {
            let (best, level) = self.best_started();
            let startable = self.dispatcher.startable().first();
            if let Some(lane) = startable.filter(|lane| *lane < level) {
                self.start(now, lane, Span::ZERO, locks);
                self.woken = self.woken | self.dispatcher.take_wakes();
                continue;
            }
            if let (true, Some(slot)) = (self.preemptive, best) {
                let lane = self.dispatcher.job(slot).lane;
                if self.woken.contains(lane) {
                    self.woken.remove(lane);
                    let executed = self.execution[slot.0 as usize].consumed;
                    self.start(now, lane, executed, locks);
                    // It has just decided: giving the token up and taking it again is no news to it.
                    let mut others = self.dispatcher.take_wakes();
                    others.remove(lane);
                    self.woken = self.woken | others;
                    continue;
                }
            }
            self.run(now, best);
            return;
        }
    }

    /// A completion arrives from another processor.
    pub fn signal(&mut self, now: Instant, signal: Signal) {
        self.dispatcher.signal(now, signal);
        self.timer = self.dispatcher.next_timer();
    }

    /// A resource that a job here waits for is its own now.
    pub fn granted(&mut self, now: Instant, slot: Slot, resource: ResourceId) {
        self.execution[slot.0 as usize].blocked = false;
        self.execution[slot.0 as usize].level = self.dispatcher.acquire(now, slot, resource);
    }

    pub fn take_sends(&mut self, into: &mut Vec<(ProcessorId, Signal)>) {
        if self.dispatcher.has_sends() {
            into.extend(self.dispatcher.take_sends());
        }
    }

    /// The simulation ends.
    pub fn stop_at(&mut self, end: Instant) {
        self.account(end.max(self.accounted));
        self.dispatcher.close(end);
    }

    // ---- what runs ----

    /// The started job that the kernel would run, and its level.
    fn best_started(&self) -> (Option<Slot>, u8) {
        let running = self.dispatcher.running();
        let paused = self.dispatcher.paused();
        if !self.any_resources && (running & paused).is_empty() {
            return match running.first() {
                Some(lane) => (self.dispatcher.lanes()[usize::from(lane)].running, lane),
                None => (self.demoted.front().copied(), BACKGROUND),
            };
        }
        let holder = |lane: u8| self.dispatcher.lanes()[usize::from(lane)].running;
        let mut best = (None, BACKGROUND, false);
        for slot in running.iter().filter_map(holder) {
            let execution = &self.execution[slot.0 as usize];
            if execution.blocked {
                continue;
            }
            let lane = self.dispatcher.job(slot).lane;
            let boosted = execution.level < lane;
            let level = if paused.contains(lane) && !boosted { BACKGROUND } else { execution.level };
            // Of equal priorities the one that runs goes on: the kernel's FIFO does not preempt it.
            let runs = self.current == Some(slot);
            if best.0.is_none() || level < best.1 || (level == best.1 && runs && !best.2) {
                best = (Some(slot), level, runs);
            }
        }
        (best.0.or(self.demoted.front().copied()), best.1)
    }

    /// Lets a lane decide; a job that starts begins with its critical sections.
    fn start(&mut self, now: Instant, lane: u8, executed: Span, locks: &mut Locks) {
        let Some(run) = self.dispatcher.decide(now, lane, executed) else { return };
        if run.resumed {
            return;
        }
        let job = self.dispatcher.job(run.slot);
        let takes = &self.system.epochs[usize::from(job.epoch)].settings[run.job.operation.index()].takes;
        let execution = Execution {
            consumed: Span::ZERO,
            total: takes.draw(self.system.seed, run.job),
            section: 0,
            section_end: Span::ZERO,
            level: lane,
            blocked: false,
        };
        let place = run.slot.0 as usize;
        if place >= self.execution.len() {
            self.execution.resize(place + 1, Execution::default());
        }
        self.execution[place] = execution;
        if self.any_resources {
            self.enter_section(now, run.slot, run.job.operation, locks);
        }
    }

    #[inline]
    fn run(&mut self, now: Instant, best: Option<Slot>) {
        self.current = best;
        self.accounted = now;
        self.stop = match best {
            Some(slot) => {
                let execution = &self.execution[slot.0 as usize];
                let until = if self.any_resources { self.section_or_end(slot) } else { execution.total };
                now + until.saturating_sub(execution.consumed)
            }
            None => Instant::NEVER,
        };
        self.timer = self.dispatcher.next_timer();
    }

    /// Books the time since the last event on the job that ran.
    #[inline]
    pub fn account(&mut self, now: Instant) {
        if let Some(slot) = self.current {
            let ran = now.since(self.accounted);
            self.execution[slot.0 as usize].consumed += ran;
            self.busy += ran;
        }
        self.accounted = now;
    }

    fn complete(&mut self, now: Instant, slot: Slot, locks: &mut Locks) {
        if self.any_resources {
            self.leave_all(now, slot, locks);
        }
        if self.dispatcher.job(slot).demoted {
            self.demoted.retain(|demoted| *demoted != slot);
        }
        self.dispatcher.complete(now, slot, self.execution[slot.0 as usize].consumed);
        self.current = None;
        self.stop = Instant::NEVER;
    }

    fn observe_overdue(&mut self, now: Instant, locks: &mut Locks) {
        while let Some(slot) = self.dispatcher.overdue(now) {
            let consumed = self.execution[slot.0 as usize].consumed;
            match self.dispatcher.observe(now, slot, consumed) {
                Overrun::Within => {}
                Overrun::Demote => self.demoted.push_back(slot),
                Overrun::Stop => self.complete(now, slot, locks),
            }
        }
    }

    // ---- critical sections: built-in work holds its resources first, one after the other ----

    fn uses(&self, operation: OperationId) -> &'a [(ResourceId, Span)] {
        &self.system.operation(operation).uses
    }

    fn section_or_end(&self, slot: Slot) -> Span {
        let execution = &self.execution[slot.0 as usize];
        let inside = usize::from(execution.section) < self.uses(self.dispatcher.job(slot).id.operation).len();
        if inside { execution.section_end.min(execution.total) } else { execution.total }
    }

    fn enter_section(&mut self, now: Instant, slot: Slot, operation: OperationId, locks: &mut Locks) {
        let execution = &mut self.execution[slot.0 as usize];
        let Some((resource, span)) = self.system.operation(operation).uses.get(usize::from(execution.section)) else {
            return;
        };
        execution.section_end = execution.consumed + *span;
        if locks.acquire(*resource, self.dispatcher.processor(), slot, execution.level) {
            execution.level = self.dispatcher.acquire(now, slot, *resource);
        } else {
            execution.blocked = true;
        }
    }

    fn leave_section(&mut self, now: Instant, slot: Slot, locks: &mut Locks) {
        let operation = self.dispatcher.job(slot).id.operation;
        let section = usize::from(self.execution[slot.0 as usize].section);
        if let Some((resource, _)) = self.uses(operation).get(section) {
            self.execution[slot.0 as usize].level = self.dispatcher.release(now, slot, *resource);
            locks.release(*resource);
        }
        self.execution[slot.0 as usize].section += 1;
        self.enter_section(now, slot, operation, locks);
    }

    /// A job that ends within a section lets go of what it holds.
    fn leave_all(&mut self, now: Instant, slot: Slot, locks: &mut Locks) {
        let operation = self.dispatcher.job(slot).id.operation;
        let section = usize::from(self.execution[slot.0 as usize].section);
        if let Some((resource, _)) = self.uses(operation).get(section) {
            self.dispatcher.release(now, slot, *resource);
            locks.release(*resource);
        }
    }
}
