//! One CPU under a model of the kernel: of all lanes with a job to run, the most urgent runs; paused and demoted jobs
//! run when no other does.

use std::collections::{BTreeMap, VecDeque};

use hyoshi_dispatch::kernel::BACKGROUND;
use hyoshi_dispatch::{
    CompletionTransport, DepartedOperation, Dispatcher, Effects, JobState, Kernel, LaneMask, OverrunAction, Run,
};
use hyoshi_model::{HopChoice, Instant, OperationId, ProcessorId, ResourceId, Span, System};
use hyoshi_sched::ProcessorPlan;
use hyoshi_trace::{CpuEvent, Input, JobRequest, Probe, Signal, Slot, TraceEvent};

use crate::KnownJobs;
use crate::links::SimulatedLinks;
use crate::locks::Locks;
use crate::overhead::CpuOverhead;

/// A processor: its dispatcher, and the kernel's state of its started jobs.
pub(crate) struct SimulatedCpu<'a, P> {
    system: &'a System,
    known: Option<KnownJobs<'a>>,
    pub dispatcher: Dispatcher<P>,
    effects: Effects,
    pub links: SimulatedLinks<'a>,
    /// The remaining inputs from outside.
    inputs: VecDeque<(Instant, Input)>,
    /// A processor that starts late handles nothing before.
    begins: Instant,
    /// For each operation, the arrival of the next request and the time since the previous one.
    requests: Vec<(Instant, OperationId, Span)>,
    /// The end of the sampling period of the loop here; never, if inputs from outside contain the samples.
    samples_at: Instant,
    /// Utilised CPU time until the last sample.
    sampled: Span,
    /// The last sample, for coordination with other processors.
    sample: Option<Option<u32>>,
    /// By slot, for started jobs.
    execution: Vec<Execution>,
    kernel: Kernel,
    /// The job with the running body.
    current: Option<Slot>,
    /// The costs of scheduling here, if there are any.
    overhead: Option<Box<CpuOverhead>>,
    /// When the present job stops by itself: at its end, or at the end of a critical section.
    stop: Instant,
    /// The last instant up to which `current` has been accounted for.
    accounted: Instant,
    timer: Instant,
    any_resources: bool,
    any_watched: bool,
    preemptive: bool,
    /// The hops that completions here may choose.
    choices: BTreeMap<OperationId, Vec<HopChoice>>,
    /// An event happened here at the present instant.
    pub due: bool,
    /// CPU time used by jobs.
    pub busy: Span,
    /// When jobs or scheduling had the CPU, if that is recorded, and the end of the recorded time.
    watched: Option<(Vec<(Instant, Instant)>, Instant)>,
}

/// A started job's execution.
#[derive(Clone, Copy, Debug, Default)]
struct Execution {
    consumed: Span,
    total: Span,
    /// The index of its operation's critical section that it is in or before; past the last: none.
    section: u16,
    /// When the present section ends, in terms of `consumed`; `total` outside.
    section_end: Span,
    /// The level it runs at: its lane's, or a ceiling.
    level: u8,
    blocked: bool,
    /// Its body has begun, and has ended.
    begun: bool,
    ended: bool,
}

impl<'a, P: Probe> SimulatedCpu<'a, P> {
    pub fn new(system: &'a System, plan: &ProcessorPlan, given: Option<KnownJobs<'a>>, probe: P) -> Self {
        let mut dispatcher = Dispatcher::new(system, plan, probe);
        if let Some(late) = given.and_then(|given| given.late) {
            dispatcher.release_late(late);
        }
        let operations = || plan.operations.iter().map(|id| system.operation(*id));
        let effects = dispatcher.effects();
        let inputs = given.iter().flat_map(|given| given.inputs).filter(|(_, to, _)| *to == plan.processor);
        let inputs: VecDeque<_> = inputs.map(|(at, _, input)| (*at, *input)).collect();
        let begins = match inputs.front() {
            Some((at, Input::Begin)) => *at,
            _ => Instant::ZERO,
        };
        let requested = plan.operations.iter().filter(|_| given.is_none_or(|given| given.requests));
        let interval = |id: &OperationId| Some((Instant::ZERO, *id, system.operation(*id).min_interval?));
        let requests: Vec<_> = requested.filter_map(interval).collect();
        let first = if requests.is_empty() { Instant::NEVER } else { Instant::ZERO };
        let samples = dispatcher.sampling_period().filter(|_| given.is_none_or(|given| given.samples));
        let samples_at = samples.map_or(Instant::NEVER, |period| Instant::ZERO + period);
        SimulatedCpu {
            system,
            known: given,
            execution: Vec::new(),
            kernel: Kernel::default(),
            current: None,
            overhead: CpuOverhead::of(system.processor(plan.processor).costs, dispatcher.lanes().len()),
            stop: Instant::NEVER,
            accounted: Instant::ZERO,
            timer: inputs
                .front()
                .map_or(effects.timer, |(at, _)| effects.timer.min(*at))
                .min(first)
                .min(samples_at)
                .max(begins),
            inputs,
            begins,
            requests,
            samples_at,
            sampled: Span::ZERO,
            sample: None,
            any_resources: operations().any(|operation| !operation.uses.is_empty()),
            any_watched: operations().any(|operation| {
                operation.on_overrun != hyoshi_model::OnOverrun::Report
                    || operation.on_miss == hyoshi_model::OnMiss::Stop
            }),
            preemptive: plan.preemption == hyoshi_model::Preemption::Full,
            choices: system.choices(),
            dispatcher,
            effects,
            links: SimulatedLinks::new(system, plan.processor, given.and_then(|given| given.links)),
            due: false,
            busy: Span::ZERO,
            watched: None,
        }
    }

    /// From now on records when the CPU is used.
    pub fn watch(&mut self) {
        self.watched = Some((Vec::new(), Instant::ZERO));
    }

    /// When the CPU was used, from the last call until `now`.
    pub fn take_busy(&mut self, now: Instant, each: &mut impl FnMut(Instant, Instant)) {
        let has = self.has_the_cpu();
        let Some((spans, reported_until)) = &mut self.watched else { return };
        spans.drain(..).for_each(|(from, to)| each(from, to));
        let from = self.accounted.max(*reported_until);
        if has && from < now {
            each(from, now);
        }
        *reported_until = now;
    }

    fn has_the_cpu(&self) -> bool {
        self.current.is_some() || self.overhead.as_ref().is_some_and(|overhead| overhead.is_spending())
    }

    /// The next event here.
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
                self.body_ends(now, slot, locks);
            } else {
                self.leave_section(now, slot, locks);
            }
        }
        if let Some(overhead) = &self.overhead {
            if overhead.held(now).is_some() {
                return;
            }
            if let Some(slot) = overhead.paid() {
                self.continue_job(now, slot, locks);
            }
        }
        if self.any_watched {
            self.observe_overdue(now, locks);
        }
    }

    /// Second: releases, signals and guards.
    #[inline]
    pub fn tick(&mut self, now: Instant, locks: &mut Locks) {
        if self.overhead.is_some() {
            self.tick_at_a_cost(now);
        } else if self.due_next() <= now {
            // A completion on another processor may have moved the timer since `self.timer` was set.
            self.catch_up(now);
        }
        // Jobs that were cancelled after their start end at once.
        while let Some(slot) = self.effects.cancelled.pop() {
            self.end_early(now, slot, locks);
        }
    }

    /// A started job ends before its body does.
    fn end_early(&mut self, now: Instant, slot: Slot, locks: &mut Locks) {
        if std::mem::take(&mut self.execution[slot.0 as usize].blocked) {
            locks.forget(self.dispatcher.processor(), slot);
            // It holds nothing.
            self.execution[slot.0 as usize].begun = false;
        }
        self.complete(now, slot, locks);
    }

    /// When the release thread is due next.
    #[inline]
    fn due_next(&self) -> Instant {
        let requests = self.requests.iter().map(|(at, ..)| *at).min().unwrap_or(Instant::NEVER);
        let timer = self.effects.timer.min(self.links.next()).min(requests).min(self.samples_at);
        self.inputs.front().map_or(timer, |(at, _)| timer.min(*at)).max(self.begins)
    }

    /// Handles everything that is due; returns how many jobs entered queues, and how many releases were refused.
    #[inline]
    fn catch_up(&mut self, now: Instant) -> (u32, u32) {
        let (mut enqueued, mut refused) = (0, 0);
        if let Some((_, Input::Begin)) = self.inputs.front() {
            // A node that has not joined receives nothing.
            while self.links.receive(now).is_some() {}
            self.inputs.pop_front();
            self.handle(now, Input::Begin);
        }
        while let Some((signal, ())) = self.links.receive(now) {
            self.handle(now, Input::Signal(signal));
            enqueued += self.effects.work.enqueued;
            refused += self.effects.work.refused;
        }
        while let Some((_, input)) = self.inputs.front().copied().filter(|(at, _)| *at <= now) {
            self.inputs.pop_front();
            if let Input::ContractUpdate { route, value } = input
                && !self.dispatcher.needs_contract_update(route, value)
            {
                continue;
            }
            self.handle(now, input);
            enqueued += self.effects.work.enqueued;
            refused += self.effects.work.refused;
        }
        while let Some(request) = self.next_request(now) {
            self.handle(now, Input::Invoke(request));
            enqueued += self.effects.work.enqueued;
            refused += self.effects.work.refused;
        }
        if self.samples_at <= now {
            self.sample(now);
        }
        self.handle(now, Input::Tick);
        (enqueued + self.effects.work.enqueued, refused + self.effects.work.refused)
    }

    /// A sampling period ends: its utilisation is that of jobs and scheduling.
    fn sample(&mut self, now: Instant) {
        let Some(period) = self.dispatcher.sampling_period() else { return };
        let used = self.busy + self.spent();
        let cap = self.system.processor(self.dispatcher.processor()).hard_cap;
        let span = period + now.since(self.samples_at);
        let utilisation = cap.utilisation_ppm(used - self.sampled, span);
        self.sampled = used;
        self.samples_at = now.saturating_add(period);
        self.handle(now, Input::Sample { utilisation });
        self.sample = Some(self.effects.sampled);
    }

    /// The sample of the loop here, if there was one since the last call.
    pub fn take_sample(&mut self) -> Option<Option<u32>> {
        self.sample.take()
    }

    /// A request that has arrived by now, with the declared parameters. A host that is off receives none.
    fn next_request(&mut self, now: Instant) -> Option<JobRequest> {
        loop {
            let (at, operation, interval) = self.requests.iter_mut().find(|(at, ..)| *at <= now)?;
            let (origin, operation) = (*at, *operation);
            *at = at.saturating_add(*interval);
            if self.links.is_off(now) {
                continue;
            }
            let declared = self.system.operation(operation);
            let deadline = self.system.setting(self.system.epoch_at(origin), operation).deadline.span();
            return Some(JobRequest {
                operation,
                origin,
                sent: origin,
                deadline: origin.saturating_add(deadline),
                importance: declared.importance,
                critical: declared.critical,
                ticket: None,
            });
        }
    }

    /// Third: decides what runs from `now` on.
    #[inline]
    pub fn dispatch(&mut self, now: Instant, locks: &mut Locks) {
        loop {
            if self.overhead.is_some() && self.park(now) {
                return;
            }
            let (best, level) = self.best_started();
            let indebted = self.overhead.as_ref().map_or(LaneMask::EMPTY, |overhead| overhead.indebted());
            let startable = (self.effects.startable | indebted).first();
            if let Some(lane) = startable.filter(|lane| *lane < level) {
                if self.overhead.is_some() && self.pay(now, best, |overhead| overhead.before_lane(lane)) {
                    return;
                }
                self.start(now, lane, Span::ZERO, locks);
                continue;
            }
            if let (true, Some(slot)) = (self.preemptive, best) {
                let lane = self.dispatcher.job(slot).lane;
                if self.effects.woken.contains(lane) {
                    let executed = self.execution[slot.0 as usize].consumed;
                    self.start(now, lane, executed, locks);
                    // It has just decided: releasing the token and taking it again needs no decision.
                    self.effects.woken.remove(lane);
                    continue;
                }
            }
            if let (true, Some(slot)) = (self.overhead.is_some(), best) {
                let lane = self.thread_lane(slot);
                if self.pay(now, best, |overhead| overhead.before_job(slot, lane)) {
                    return;
                }
            }
            self.run(now, best);
            return;
        }
    }

    /// A completion is in transit to here from another processor.
    pub fn arrives(&mut self, now: Instant, signal: Signal) {
        self.links.arrives(signal);
        if !self.is_held(now) {
            self.timer = self.next_timer();
        }
    }

    /// A job here gets the resource for which it waits.
    pub fn granted(&mut self, now: Instant, slot: Slot, resource: ResourceId) {
        self.execution[slot.0 as usize].blocked = false;
        self.acquire(now, slot, resource);
    }

    fn acquire(&mut self, now: Instant, slot: Slot, resource: ResourceId) {
        self.handle(now, Input::Acquire { slot, resource });
        self.execution[slot.0 as usize].level = self.effects.level;
    }

    #[inline(always)]
    fn handle(&mut self, now: Instant, input: Input) {
        self.dispatcher.handle(now, input, &mut self.effects);
        // Only known inputs have clients.
        self.effects.paced.clear();
    }

    /// The longest delay from here to another processor.
    pub fn delay_to(&self, to: ProcessorId) -> Span {
        let host = |processor: ProcessorId| self.system.processor(processor).host;
        self.system.delay(host(self.dispatcher.processor()), host(to)).1
    }

    /// New periods for operations of other processors, since the last call. If known inputs contain them: none.
    pub fn take_retimed(&mut self) -> Vec<(ProcessorId, OperationId, Span)> {
        let retimed = std::mem::take(&mut self.effects.retimed);
        if self.known.is_some_and(|known| !known.samples) { Vec::new() } else { retimed }
    }

    /// Values of contracts for other processors, since the last call. If known inputs contain them: none.
    pub fn take_contract_updates(&mut self) -> Vec<(u16, i64)> {
        let updates = std::mem::take(&mut self.effects.contract_updates);
        if self.known.is_some_and(|known| !known.samples) { Vec::new() } else { updates }
    }

    /// Whether regions of contracts have changed since the last call.
    pub fn take_changed_regions(&mut self) -> bool {
        self.effects.regions.drain(..).next().is_some()
    }

    /// Operations that have left this processor, since the last call. If known inputs contain the arrivals: none.
    pub fn take_departed(&mut self) -> Vec<DepartedOperation> {
        if self.effects.departed.is_empty() {
            return Vec::new();
        }
        let departed = std::mem::take(&mut self.effects.departed);
        if self.known.is_some_and(|known| !known.samples) { Vec::new() } else { departed }
    }

    /// An input from outside at `at`, after those that are due by then.
    pub fn pass(&mut self, now: Instant, at: Instant, input: Input) {
        let place = self.inputs.partition_point(|(before, _)| *before <= at);
        self.inputs.insert(place, (at, input));
        if !self.is_held(now) {
            self.timer = self.next_timer();
        }
    }

    /// Sends completions to other processors.
    pub fn send(&mut self, into: &mut Vec<(ProcessorId, Signal)>) {
        self.effects.sends.drain(..).for_each(|(to, signal)| self.links.send(to, signal, ()));
        self.links.take_sent(into);
    }

    /// The simulation ends.
    pub fn stop_at(&mut self, end: Instant) {
        self.account(end.max(self.accounted));
        self.handle(end, Input::Close);
    }

    // ---- the running job ----

    /// The started job that the kernel would run, and its level.
    #[inline]
    fn best_started(&self) -> (Option<Slot>, u8) {
        let blocks = |slot: Slot| self.execution[slot.0 as usize].blocked;
        match self.kernel.best_started(&self.dispatcher, &self.effects, blocks) {
            (_, BACKGROUND) if self.known.is_some_and(|given| given.crowded) => (None, BACKGROUND),
            best => best,
        }
    }

    /// Lets a lane decide; a job that starts begins with its critical sections.
    fn start(&mut self, now: Instant, lane: u8, executed: Span, locks: &mut Locks) {
        self.handle(now, Input::LaneRuns { lane, executed });
        let run = self.effects.run;
        if self.overhead.is_some() {
            self.owe_for(now, lane, run);
        }
        let Some(run) = run.filter(|run| !run.resumed) else { return };
        let job = self.dispatcher.job(run.slot);
        let drawn = self.system.execution_time(job.epoch.into(), run.job, job.service_level);
        let execution = Execution {
            consumed: Span::ZERO,
            total: self.known.as_ref().map_or(drawn, |given| (given.execution_time)(run.job, drawn)),
            section: 0,
            section_end: Span::ZERO,
            level: lane,
            blocked: false,
            begun: false,
            ended: false,
        };
        let place = run.slot.0 as usize;
        if place >= self.execution.len() {
            self.execution.resize(place + 1, Execution::default());
        }
        self.execution[place] = execution;
        if self.overhead.as_ref().is_none_or(|overhead| overhead.owed(run.slot).is_zero()) {
            self.begin(now, run.slot, locks);
        }
    }

    /// The body of a job begins.
    #[inline]
    fn begin(&mut self, now: Instant, slot: Slot, locks: &mut Locks) {
        self.execution[slot.0 as usize].begun = true;
        if self.any_resources {
            self.enter_section(now, slot, self.dispatcher.job(slot).id.operation, locks);
        }
    }

    #[inline]
    fn run(&mut self, now: Instant, best: Option<Slot>) {
        if let (Some(overhead), None) = (&mut self.overhead, best) {
            overhead.idle();
        }
        self.current = best;
        self.kernel.holder = best;
        self.accounted = now;
        self.stop = match best {
            Some(slot) => {
                let execution = &self.execution[slot.0 as usize];
                let until = if self.any_resources { self.section_or_end(slot) } else { execution.total };
                now + until.saturating_sub(execution.consumed)
            }
            None => Instant::NEVER,
        };
        self.timer = self.next_timer();
    }

    #[inline]
    fn next_timer(&self) -> Instant {
        let timer = self.due_next();
        self.overhead.as_ref().map_or(timer, |overhead| timer.min(overhead.next()))
    }

    /// Accounts the time since the last event to the job that ran.
    #[inline]
    pub fn account(&mut self, now: Instant) {
        if self.watched.is_some() && self.has_the_cpu() {
            self.keep_busy(now);
        }
        if let Some(slot) = self.current {
            let ran = now.since(self.accounted);
            self.execution[slot.0 as usize].consumed += ran;
            self.busy += ran;
        } else if let Some(overhead) = &mut self.overhead {
            let span = now.since(self.accounted);
            if let Some(who) = overhead.account(span) {
                self.dispatcher.probe_mut().event(now, TraceEvent::Cpu(CpuEvent::Overhead { who, span }));
            }
        }
        self.accounted = now;
    }

    fn keep_busy(&mut self, now: Instant) {
        let Some((spans, reported_until)) = &mut self.watched else { return };
        let from = self.accounted.max(*reported_until);
        match spans.last_mut() {
            Some((_, until)) if *until == from => *until = now,
            _ if from < now => spans.push((from, now)),
            _ => {}
        }
    }

    /// CPU time that scheduling used.
    pub fn spent(&self) -> Span {
        self.overhead.as_ref().map_or(Span::ZERO, |overhead| overhead.spent)
    }

    /// A body has ended; triggering its successors is part of the job.
    #[inline]
    fn body_ends(&mut self, now: Instant, slot: Slot, locks: &mut Locks) {
        if !self.choices.is_empty() {
            self.choose(now, slot);
        }
        let Some(overhead) = &mut self.overhead else { return self.complete(now, slot, locks) };
        overhead.triggers(slot, self.dispatcher.triggers(slot));
        if overhead.owed(slot).is_zero() {
            return self.complete(now, slot, locks);
        }
        if self.any_resources {
            self.leave_all(now, slot, locks);
        }
        let execution = &mut self.execution[slot.0 as usize];
        (execution.ended, execution.level) = (true, self.dispatcher.job(slot).lane);
        (self.current, self.stop) = (None, Instant::NEVER);
    }

    /// Chooses the hops of the completion: known ones, else drawn ones.
    fn choose(&mut self, now: Instant, slot: Slot) {
        let job = *self.dispatcher.job(slot);
        let Some(hops) = self.choices.get(&job.id.operation).filter(|_| job.id.leg + 1 >= job.legs) else { return };
        let known = self.known.as_ref().and_then(|known| (known.hops?)(job.id));
        let hops = known.unwrap_or_else(|| self.system.draw_choice(hops, job.id.number));
        self.handle(now, Input::Choose { slot, hops });
    }

    fn complete(&mut self, now: Instant, slot: Slot, locks: &mut Locks) {
        if self.any_resources && self.execution[slot.0 as usize].begun && !self.execution[slot.0 as usize].ended {
            self.leave_all(now, slot, locks);
        }
        if self.dispatcher.job(slot).demoted {
            self.kernel.demoted.retain(|demoted| *demoted != slot);
        }
        self.handle(now, Input::Complete { slot, consumed: self.execution[slot.0 as usize].consumed, ticket: None });
        self.current = None;
        self.kernel.holder = None;
        self.stop = Instant::NEVER;
        if let Some(overhead) = &mut self.overhead {
            overhead.forget(slot);
            self.owe_for_idle_point(now);
        }
    }

    fn observe_overdue(&mut self, now: Instant, locks: &mut Locks) {
        while let Some(slot) = self.dispatcher.overdue(now) {
            let execution = &self.execution[slot.0 as usize];
            // A body that used its whole worst case and has ended did not overrun while it pays its costs.
            let within = self.dispatcher.job(slot).wcet.saturating_sub(Span::from_nanos(1));
            let consumed = if execution.ended { execution.consumed.min(within) } else { execution.consumed };
            self.handle(now, Input::Observe { slot, consumed });
            match self.effects.overrun {
                OverrunAction::Within => {}
                OverrunAction::Demote => self.kernel.demoted.push_back(slot),
                OverrunAction::Stop => self.end_early(now, slot, locks),
            }
        }
    }

    // ---- the costs of scheduling ----

    fn is_held(&self, now: Instant) -> bool {
        self.overhead.as_ref().is_some_and(|overhead| overhead.held(now).is_some())
    }

    /// True if no lane has the CPU now: their work has to wait.
    fn park(&mut self, now: Instant) -> bool {
        let Some(until) = self.overhead.as_ref().and_then(|overhead| overhead.held(now)) else { return false };
        (self.current, self.accounted, self.stop, self.timer) = (None, now, until, Instant::NEVER);
        true
    }

    /// True if the user of the CPU must pay a cost first.
    fn pay(&mut self, now: Instant, best: Option<Slot>, due: impl FnOnce(&mut CpuOverhead) -> Option<Span>) -> bool {
        let Some(left) = self.overhead.as_mut().and_then(|overhead| due(overhead)) else { return false };
        (self.current, self.kernel.holder, self.accounted) = (None, best, now);
        self.stop = now.saturating_add(left);
        self.timer = self.next_timer();
        true
    }

    /// Due events are handled together; if that is above the lanes, they wait.
    fn tick_at_a_cost(&mut self, now: Instant) {
        let Some(overhead) = &mut self.overhead else { return };
        if overhead.held(now).is_none() {
            overhead.watchdog(now);
        }
        if overhead.held(now).is_none() && self.due_next() <= now {
            let (enqueued, refused) = self.catch_up(now);
            if let Some(overhead) = &mut self.overhead {
                overhead.released(now, enqueued + refused > 0, enqueued);
            }
        }
    }

    /// A lane has decided.
    fn owe_for(&mut self, now: Instant, lane: u8, run: Option<Run>) {
        let Some(overhead) = &mut self.overhead else { return };
        let cancelled = self.effects.work.cancelled;
        let started = run.filter(|run| !run.resumed);
        let cancels = self.system.processor(self.dispatcher.processor()).cancel;
        let asked = started.is_some_and(|run| cancels && !self.dispatcher.job(run.slot).critical);
        let running = self.dispatcher.lanes()[usize::from(lane)].running;
        overhead.took(lane, running, cancelled + u32::from(started.is_some()), cancelled + u32::from(asked));
        if run.is_some_and(|run| run.resumed || run.preempted.is_some()) {
            overhead.another_thread();
        }
        self.owe_for_idle_point(now);
    }

    fn owe_for_idle_point(&mut self, now: Instant) {
        let Some(overhead) = &mut self.overhead else { return };
        overhead.released(now, false, self.effects.work.released_when_idle);
    }

    /// A job has paid: its body begins or continues, or it completes.
    fn continue_job(&mut self, now: Instant, slot: Slot, locks: &mut Locks) {
        let execution = self.execution[slot.0 as usize];
        if execution.ended {
            self.complete(now, slot, locks);
        } else if !execution.begun {
            self.begin(now, slot, locks);
        }
    }

    /// The lane with the thread that runs a job.
    fn thread_lane(&self, slot: Slot) -> u8 {
        let job = self.dispatcher.job(slot);
        if job.state == JobState::Demoted { BACKGROUND } else { job.lane }
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
            self.acquire(now, slot, *resource);
        } else {
            execution.blocked = true;
        }
    }

    fn leave_section(&mut self, now: Instant, slot: Slot, locks: &mut Locks) {
        let operation = self.dispatcher.job(slot).id.operation;
        let section = usize::from(self.execution[slot.0 as usize].section);
        if let Some((resource, _)) = self.uses(operation).get(section) {
            self.handle(now, Input::Release { slot, resource: *resource });
            self.execution[slot.0 as usize].level = self.effects.level;
            locks.release(*resource);
        }
        self.execution[slot.0 as usize].section += 1;
        self.enter_section(now, slot, operation, locks);
    }

    /// A job that ends within a section releases its resources.
    fn leave_all(&mut self, now: Instant, slot: Slot, locks: &mut Locks) {
        let operation = self.dispatcher.job(slot).id.operation;
        let section = usize::from(self.execution[slot.0 as usize].section);
        if let Some((resource, _)) = self.uses(operation).get(section) {
            self.handle(now, Input::Release { slot, resource: *resource });
            locks.release(*resource);
        }
    }
}
