//! The dispatcher of one processor: told what happens and when, it decides what is released and
//! what each lane runs next. It reads no clock, holds no thread and allocates nothing after start.
//!
//! The order at one instant is: completions, idle points (rule 3 of the guard), releases, signals
//! from other processors, guard timers, dispatch. The caller tells completions first and asks
//! [`Dispatcher::decide`] last; [`Dispatcher::tick`] keeps the order in between.

use alloc::{vec, vec::Vec};
use core::cmp::Reverse;

use hyoshi_model::{
    Deadline, Instant, JobId, OnBusy, OnOverrun, OperationId, Preemption, ProcessorId, ResourceId, Span, System,
    WhenFull, takes,
};
use hyoshi_sched::{Discipline, ProcessorPlan};
use hyoshi_trace::{Decision, Event, Input, JobEnd, Outcome, Probe, Signal, Slot};

use crate::cap::{Cap, OPEN};
use crate::job::{Job, JobTable, State};
use crate::join::Token;
use crate::lane::{Lane, LaneMask};
use crate::operation::{Intake, Operation, Successor};
use crate::queue::{Rank, key};
use crate::timers::Timers;

/// A lane's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The job to run.
    pub slot: Slot,
    /// Which job that is.
    pub job: JobId,
    /// True if it has run before and goes on.
    pub resumed: bool,
    /// The job that gives the lane up for it, if it was running one.
    pub preempted: Option<Slot>,
}

/// What becomes of a job that was observed beyond, or not yet at, its worst case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overrun {
    /// It is within its worst case still.
    Within,
    /// It goes on below every lane and has given the run token up.
    Demote,
    /// It must end: complete it as soon as it can be stopped.
    Stop,
}

/// The dispatcher of one processor. See the [module](self).
#[derive(Debug)]
pub struct Dispatcher<P> {
    processor: ProcessorId,
    seed: u64,
    cancel: bool,
    system_epochs: Vec<Instant>,
    epoch: usize,
    operations: Vec<Operation>,
    local_of: Vec<u32>,
    disciplines: Vec<Discipline>,
    lanes: Vec<Lane>,
    /// Lanes whose token is taken.
    running: LaneMask,
    /// Lanes where critical jobs wait, and where others do.
    waiting: (LaneMask, LaneMask),
    /// Lanes that can hold critical jobs.
    critical_lanes: LaneMask,
    jobs: JobTable,
    arrivals: Timers,
    guards: Timers,
    /// Signals on their way, earliest first.
    signals: alloc::collections::BinaryHeap<Reverse<(Instant, u64, u32)>>,
    in_flight: Vec<Signal>,
    free_in_flight: Vec<u32>,
    /// Watched jobs: when each may reach its worst case.
    watches: Vec<(Instant, Slot)>,
    watch_next: Instant,
    /// Resources that jobs hold.
    held: Vec<(Slot, ResourceId)>,
    ceilings: Vec<Option<u8>>,
    /// For each resource the shortest relative deadline among its users here.
    ceiling_deadlines: Vec<Span>,
    cap: Option<Cap>,
    arrival: u64,
    signal_count: u64,
    /// Released jobs that have not ended: none left is an idle point.
    released: u32,
    any_idle_guard: bool,
    wakes: LaneMask,
    outbox: Vec<(ProcessorId, Signal)>,
    settings: alloc::sync::Arc<Settings>,
    probe: P,
}

/// What each epoch changes, ready to be copied.
#[derive(Debug)]
struct Settings {
    epochs: Vec<Vec<hyoshi_model::Setting>>,
    placements: Vec<Vec<hyoshi_sched::Placement>>,
    reserves: Vec<Vec<u64>>,
}

/// The most signals that may be on their way to one processor.
pub const SIGNALS_IN_FLIGHT: usize = 65_536;

impl<P: Probe> Dispatcher<P> {
    /// The dispatcher of one processor of a system, under a plan, at the start of time.
    pub fn new(system: &System, plan: &ProcessorPlan, probe: P) -> Self {
        let processor = system.processor(plan.processor);
        let mut local_of = vec![u32::MAX; system.operations.len()];
        for (local, id) in plan.operations.iter().enumerate() {
            local_of[id.index()] = local as u32;
        }
        let mut downstream: Vec<Vec<(OperationId, u16)>> = vec![Vec::new(); system.operations.len()];
        for to in system.operation_ids() {
            for (position, from) in system.operation(to).trigger.predecessors().iter().enumerate() {
                downstream[from.index()].push((to, position as u16));
            }
        }
        let operations: Vec<Operation> = plan
            .operations
            .iter()
            .map(|id| Operation::new(system, plan, *id, &downstream[id.index()], |id| local_of[id.index()]))
            .collect();

        let lanes = Lane::of(plan, &operations);
        let reserves = (0..system.epochs.len()).map(|epoch| reserves(system, plan, epoch, &lanes)).collect();
        let settings = Settings {
            epochs: (0..system.epochs.len())
                .map(|epoch| plan.operations.iter().map(|id| system.setting(epoch, *id).clone()).collect())
                .collect(),
            placements: plan.placements.clone(),
            reserves,
        };
        // Waiting jobs are bounded by the queues, started ones by operations and lanes; each
        // operation may have one job demoted and one blocked besides.
        let bound: usize = operations.iter().map(|operation| operation.queue.limit as usize + 3).sum();
        let mut arrivals = Timers::with_capacity(operations.len());
        for (local, operation) in operations.iter().enumerate() {
            if let Intake::Timer = operation.intake {
                arrivals.set(operation.next_due(system.seed), local as u32);
            }
        }
        let remote = operations.iter().any(|operation| {
            let from_elsewhere = |id: &OperationId| local_of[id.index()] == u32::MAX;
            system.operation(operation.id).trigger.predecessors().iter().any(from_elsewhere)
        });
        let in_flight = if remote { SIGNALS_IN_FLIGHT } else { 0 };
        let users = |resource: usize| {
            let uses = |operation: &&Operation| {
                system.operation(operation.id).uses.iter().any(|(used, _)| used.index() == resource)
            };
            operations.iter().filter(uses).map(|operation| operation.deadline.span()).min().unwrap_or_default()
        };
        let mut cap = Cap::new(processor.cap_ppm, processor.cap_window, lanes.len());
        if let Some(cap) = &mut cap {
            cap.reserve(settings.reserves[0].iter().copied());
        }
        let any_idle_guard = plan.operations.iter().any(|id| system.operation(*id).guard == hyoshi_model::Guard::Idle);
        let most_sends = operations.iter().map(|operation| operation.successors.len()).max().unwrap_or(0);
        let mut dispatcher = Dispatcher {
            processor: plan.processor,
            seed: system.seed,
            cancel: processor.cancel,
            system_epochs: system.epochs.iter().map(|epoch| epoch.at).collect(),
            epoch: 0,
            disciplines: plan.levels.iter().map(|level| level.discipline).collect(),
            critical_lanes: (0..lanes.len() as u8).filter(|lane| lanes[usize::from(*lane)].critical).collect(),
            lanes,
            running: LaneMask::EMPTY,
            waiting: (LaneMask::EMPTY, LaneMask::EMPTY),
            jobs: JobTable::with_capacity(bound),
            arrivals,
            guards: Timers::with_capacity(bound),
            signals: alloc::collections::BinaryHeap::with_capacity(in_flight),
            in_flight: Vec::with_capacity(in_flight),
            free_in_flight: Vec::with_capacity(in_flight),
            watches: Vec::with_capacity(bound),
            watch_next: Instant::NEVER,
            held: Vec::with_capacity(64),
            ceilings: plan.ceilings.clone(),
            ceiling_deadlines: (0..system.resources.len()).map(users).collect(),
            operations,
            local_of,
            cap,
            arrival: 0,
            signal_count: 0,
            released: 0,
            any_idle_guard,
            wakes: LaneMask::EMPTY,
            outbox: Vec::with_capacity(most_sends.max(1) * 8),
            settings: alloc::sync::Arc::new(settings),
            probe,
        };
        dispatcher.enter_epoch(Instant::ZERO, 0);
        dispatcher
    }

    // ---- inputs, in the order of a job's life ----

    /// Time has come to `now`: begins epochs, releases what is due, delivers signals, opens guards.
    pub fn tick(&mut self, now: Instant) {
        self.input(now, Input::Tick);
        loop {
            // At one instant: epochs, releases, signals, guards. `<=` in that order keeps it.
            let epoch = self.system_epochs.get(self.epoch + 1).copied().unwrap_or(Instant::NEVER);
            let (arrival, signal, guard) = (self.arrivals.next(), self.next_signal(), self.guards.next());
            let due = epoch.min(arrival).min(signal).min(guard);
            if due > now {
                break;
            }
            if epoch == due {
                self.enter_epoch(now, self.epoch + 1);
            } else if arrival == due {
                self.arrive_periodic(now);
            } else if signal == due {
                self.deliver(now);
            } else {
                self.open_guard(now, due);
            }
        }
        self.account(now);
    }

    /// A completion on another processor, which arrives at `signal.due`. False if too many are on
    /// their way: it is lost.
    pub fn signal(&mut self, now: Instant, signal: Signal) -> bool {
        self.input(now, Input::Signal(signal));
        if self.local_of.get(signal.to.index()).is_none_or(|local| *local == u32::MAX) {
            return false;
        }
        let place = match self.free_in_flight.pop() {
            Some(place) => {
                self.in_flight[place as usize] = signal;
                place
            }
            None if self.in_flight.len() < SIGNALS_IN_FLIGHT => {
                self.in_flight.push(signal);
                self.in_flight.len() as u32 - 1
            }
            None => return false,
        };
        self.signal_count += 1;
        self.signals.push(Reverse((signal.due, self.signal_count, place)));
        true
    }

    /// Lane `lane` has the CPU; its present job, if it has one, has used `executed` so far. The
    /// job it must run now, or `None` if it goes on with what it has (or with nothing).
    pub fn decide(&mut self, now: Instant, lane: u8, executed: Span) -> Option<Run> {
        self.input(now, Input::Decide { lane, executed });
        let running = self.lanes[usize::from(lane)].running;
        let preempted = match running {
            None => None,
            Some(running) if self.must_yield(lane, running, executed) => {
                self.give_token_up(running);
                self.enqueue(running);
                Some(running)
            }
            Some(_) => return None,
        };
        let run = loop {
            let Some(slot) = self.dequeue(lane) else { break None };
            let job = self.jobs.get_mut(slot);
            if !job.started {
                // Once, at the first dispatch; equality runs; never critical operations.
                if self.cancel && !job.critical && job.wcet > job.deadline.since(now) {
                    self.end(now, slot, Outcome::Cancelled, Span::ZERO);
                    continue;
                }
                job.start = now;
                let operation = &mut self.operations[job.local as usize];
                operation.waiting -= 1;
                if operation.on_overrun != OnOverrun::Report {
                    self.watches.push((now + job.wcet, slot));
                    self.watch_next = self.watch_next.min(now + job.wcet);
                }
            }
            job.state = State::Running;
            let resumed = core::mem::replace(&mut job.started, true);
            break Some(Run { slot, job: job.id, resumed, preempted });
        };
        if let Some(run) = run {
            self.lanes[usize::from(lane)].running = Some(run.slot);
            self.running.insert(lane);
        } else if self.any_idle_guard && self.released == 0 {
            self.idle_point(now);
        }
        self.account(now);
        // The better job was cancelled and the running one goes on.
        let run = run.filter(|run| run.preempted != Some(run.slot));
        if let Some(run) = run {
            if let Some(preempted) = preempted {
                let job = self.jobs.get(preempted).id;
                self.decision(now, Decision::Yield { job });
            }
            self.decision(now, Decision::Run { job: run.job, lane, slot: run.slot, resumed: run.resumed });
        }
        run
    }

    /// A body has returned, having used `consumed` in all.
    pub fn complete(&mut self, now: Instant, slot: Slot, consumed: Span) {
        self.input(now, Input::Complete { slot, consumed });
        let job = *self.jobs.get(slot);
        self.give_token_up(slot);
        let outcome = match job.stopped {
            true => Outcome::Stopped,
            false if now <= job.deadline => Outcome::Made,
            false => Outcome::Missed,
        };
        self.end(now, slot, outcome, consumed);
        if !job.stopped {
            if job.id.leg + 1 < job.legs {
                self.next_leg(now, &job);
            } else {
                self.trigger_successors(now, &job);
            }
        }
        if self.any_idle_guard && self.released == 0 {
            self.idle_point(now);
        }
        self.account(now);
    }

    /// A job whose operation asks for more than a report on overrun, and which may have reached
    /// its worst case by `now`: observe it. Ask again until there is none.
    pub fn overdue(&self, now: Instant) -> Option<Slot> {
        let due = |watch: &&(Instant, Slot)| watch.0 <= now;
        self.watches.iter().find(due).map(|(_, slot)| *slot)
    }

    /// An overdue job was seen to have used `consumed`.
    pub fn observe(&mut self, now: Instant, slot: Slot, consumed: Span) -> Overrun {
        self.input(now, Input::Observe { slot, consumed });
        let Some(position) = self.watches.iter().position(|(_, watched)| *watched == slot) else {
            return Overrun::Within;
        };
        let job = self.jobs.get_mut(slot);
        let overrun = match self.operations[job.local as usize].on_overrun {
            _ if consumed < job.wcet => Overrun::Within,
            OnOverrun::Stop => Overrun::Stop,
            OnOverrun::Demote => Overrun::Demote,
            OnOverrun::Report => Overrun::Within,
        };
        match overrun {
            Overrun::Within => {
                self.watches[position].0 = now + (job.wcet.saturating_sub(consumed)).max(Span::from_nanos(1))
            }
            Overrun::Stop => {
                job.stopped = true;
                self.watches.swap_remove(position);
            }
            Overrun::Demote => {
                (job.demoted, job.state) = (true, State::Demoted);
                let id = job.id;
                self.watches.swap_remove(position);
                self.give_token_up(slot);
                self.jobs.get_mut(slot).state = State::Demoted;
                self.decision(now, Decision::Demote { job: id });
            }
        }
        self.watch_next = self.watches.iter().map(|(due, _)| *due).min().unwrap_or(Instant::NEVER);
        self.account(now);
        overrun
    }

    /// A running job blocks: its lane may run another.
    pub fn suspend(&mut self, now: Instant, slot: Slot) {
        self.input(now, Input::Suspend { slot });
        self.give_token_up(slot);
        let job = self.jobs.get_mut(slot);
        job.state = State::Suspended;
        let id = job.id;
        self.decision(now, Decision::Yield { job: id });
        self.account(now);
    }

    /// A blocked job can go on: what is left of it enters its lane's queue as a new segment.
    pub fn resume(&mut self, now: Instant, slot: Slot, consumed: Span) {
        self.input(now, Input::Resume { slot, consumed });
        let job = self.jobs.get_mut(slot);
        job.remaining = job.wcet.saturating_sub(consumed);
        self.arrive_in_lane(slot);
        self.account(now);
    }

    /// A job takes a resource: the level it runs at from now on (immediate priority ceiling).
    pub fn acquire(&mut self, now: Instant, slot: Slot, resource: ResourceId) -> u8 {
        self.input(now, Input::Acquire { slot, resource });
        if self.held.len() < self.held.capacity() {
            self.held.push((slot, resource));
        }
        self.effective_level(slot)
    }

    /// A job lets a resource go: the level it runs at from now on.
    pub fn release(&mut self, now: Instant, slot: Slot, resource: ResourceId) -> u8 {
        self.input(now, Input::Release { slot, resource });
        if let Some(position) = self.held.iter().rposition(|held| *held == (slot, resource)) {
            self.held.remove(position);
        }
        let lane = self.jobs.get(slot).lane;
        self.wakes.insert(lane);
        self.effective_level(slot)
    }

    /// The run is over: jobs that are late by now count as missed, the others as never released.
    pub fn close(&mut self, now: Instant) {
        self.input(now, Input::Close);
        for slot in (0..self.jobs.capacity() as u32).map(Slot) {
            if self.jobs.is_live(slot) && self.jobs.get(slot).deadline < now {
                self.end(now, slot, Outcome::Missed, Span::ZERO);
            }
        }
    }

    // ---- what the caller asks ----

    /// When to call [`Dispatcher::tick`], or [`Dispatcher::observe`] on what is overdue, if nothing else happens.
    #[inline]
    pub fn next_timer(&self, now: Instant) -> Instant {
        let epoch = self.system_epochs.get(self.epoch + 1).copied().unwrap_or(Instant::NEVER);
        let first =
            self.arrivals.next().min(self.next_signal()).min(self.guards.next()).min(epoch).min(self.watch_next);
        self.cap.as_ref().map_or(first, |cap| first.min(cap.timer(now)))
    }

    /// Lanes that may have something new to decide since the last call.
    #[inline]
    pub fn take_wakes(&mut self) -> LaneMask {
        core::mem::take(&mut self.wakes)
    }

    /// Lanes whose token is free and whose queue holds something that may start.
    #[inline]
    pub fn startable(&self) -> LaneMask {
        self.may_start() & !self.running
    }

    /// Lanes whose run token is taken.
    #[inline]
    pub fn running(&self) -> LaneMask {
        self.running
    }

    /// Lanes whose queue holds something that the cap lets start.
    #[inline]
    fn may_start(&self) -> LaneMask {
        self.waiting.0 | (self.waiting.1 & LaneMask::before(self.gate()))
    }

    /// Lanes that the cap moves below ordinary threads: gated ones without critical work.
    #[inline]
    pub fn paused(&self) -> LaneMask {
        !LaneMask::before(self.gate()) & !self.critical_lanes
    }

    /// Completions for other processors since the last call.
    pub fn take_sends(&mut self) -> impl Iterator<Item = (ProcessorId, Signal)> + '_ {
        self.outbox.drain(..)
    }

    /// True if there is a completion for another processor.
    #[inline]
    pub fn has_sends(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// The job in a slot.
    #[inline]
    pub fn job(&self, slot: Slot) -> &Job {
        self.jobs.get(slot)
    }

    /// Live jobs.
    pub fn jobs(&self) -> impl Iterator<Item = (Slot, &Job)> {
        self.jobs.iter()
    }

    /// The lanes, most urgent first.
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// The first lane that the cap gates; [`OPEN`] if none. Lanes from there on that hold no
    /// critical work must not compete with ordinary threads.
    #[inline]
    pub fn gate(&self) -> u8 {
        self.cap.as_ref().map_or(OPEN, Cap::gate)
    }

    /// The index of the epoch in force.
    pub fn epoch(&self) -> usize {
        self.epoch
    }

    /// The processor.
    pub fn processor(&self) -> ProcessorId {
        self.processor
    }

    /// The level a job runs at: its own, or the highest ceiling of what it holds.
    pub fn effective_level(&self, slot: Slot) -> u8 {
        let held = self.held.iter().filter(|(holder, _)| *holder == slot);
        let ceilings = held.filter_map(|(_, resource)| self.ceilings[resource.index()]);
        ceilings.fold(self.jobs.get(slot).level, u8::min)
    }

    /// The probe, at the end of the dispatcher's life.
    pub fn into_probe(self) -> P {
        self.probe
    }

    /// The probe.
    pub fn probe(&self) -> &P {
        &self.probe
    }

    /// The probe.
    pub fn probe_mut(&mut self) -> &mut P {
        &mut self.probe
    }

    // ---- releases ----

    fn arrive_periodic(&mut self, now: Instant) {
        let Some((_, local)) = self.arrivals.due(now) else { return };
        let operation = &mut self.operations[local as usize];
        let release = operation.nominal + operation.offset;
        let token = operation.own_token(release);
        let enabled = operation.enabled;
        operation.nominal += operation.period;
        operation.next_number += u64::from(enabled);
        let due = operation.next_due(self.seed);
        self.arrivals.replace_first(due);
        if enabled {
            self.arrive(now, local, token, release);
        }
    }

    fn deliver(&mut self, now: Instant) {
        let Some(Reverse((due, _, place))) = self.signals.pop() else { return };
        let signal = self.in_flight[place as usize];
        self.free_in_flight.push(place);
        let local = self.local_of[signal.to.index()];
        let token = Token { number: signal.number, origin: signal.origin, period: signal.period };
        self.trigger(now, local, signal.position, token, due);
    }

    /// The predecessor at `position` of an operation has completed (at `at`, seen at `now`).
    fn trigger(&mut self, now: Instant, local: u32, position: u16, token: Token, at: Instant) {
        let operation = &mut self.operations[local as usize];
        let joined = match &mut operation.intake {
            Intake::Join(join) => join.arrive(usize::from(position), token),
            Intake::Each | Intake::Timer => Some(token),
        };
        let Some(mut token) = joined else { return };
        if !operation.enabled {
            return;
        }
        if !operation.inherits_number {
            token.number = operation.next_number;
            operation.next_number += 1;
        }
        let release = at + operation.offset;
        self.arrive(now, local, token, release);
    }

    /// A release: `on_busy`, the queue's limit, then the guard.
    fn arrive(&mut self, now: Instant, local: u32, token: Token, release: Instant) {
        let operation = &self.operations[local as usize];
        let job = self.new_job(local, token, release, 0, (operation.legs, operation.critical_legs));
        if operation.on_busy == OnBusy::Skip && operation.unfinished > 0 {
            return self.drop_new(now, &job, Outcome::DroppedBusy);
        }
        self.admit(now, job);
    }

    /// Leg after leg of a load chain, each released by the one before.
    fn next_leg(&mut self, now: Instant, before: &Job) {
        let token = Token { number: before.id.number, origin: before.origin, period: before.period };
        let legs = (before.legs, before.critical_legs);
        let mut job = self.new_job(before.local, token, before.release, before.id.leg + 1, legs);
        job.deadline = before.deadline;
        self.admit(now, job);
    }

    fn new_job(&self, local: u32, token: Token, release: Instant, leg: u16, (legs, critical_legs): (u16, u16)) -> Job {
        let operation = &self.operations[local as usize];
        let critical = operation.critical || leg < critical_legs;
        let place = if critical { operation.placement.critical } else { operation.placement.other };
        Job {
            id: JobId { operation: operation.id, number: token.number, leg },
            local,
            origin: token.origin,
            period: token.period,
            release,
            ready: Instant::NEVER,
            start: Instant::NEVER,
            deadline: match operation.deadline {
                Deadline::Own(span) => release.saturating_add(span),
                Deadline::Origin(span) => token.origin.saturating_add(span),
            },
            wcet: operation.wcet,
            remaining: operation.wcet,
            legs,
            critical_legs,
            epoch: self.epoch as u16,
            lane: Lane::index_of(&self.lanes, place.level),
            level: place.level,
            tie: place.tie,
            arrival: 0,
            critical,
            state: State::Held,
            demoted: false,
            stopped: false,
            started: false,
        }
    }

    /// The queue's limit, then the guard.
    fn admit(&mut self, now: Instant, mut job: Job) {
        let operation = &self.operations[job.local as usize];
        if operation.waiting >= operation.queue.limit {
            match operation.queue.when_full {
                WhenFull::DropNewest => return self.drop_new(now, &job, Outcome::DroppedFull),
                WhenFull::DropOldest => self.drop_oldest(now, job.local),
            }
        }
        let operation = &mut self.operations[job.local as usize];
        let guarded = operation.has_guard && job.id.leg == 0;
        // What arrives behind held jobs waits behind them; a release after an offset is held till then.
        let earliest = if guarded { operation.guard.earliest(job.release) } else { job.release };
        let wait = earliest > now || (guarded && !operation.held.is_empty());
        if matches!(operation.intake, Intake::Timer) || job.id.leg > 0 || !wait {
            if guarded {
                // The nominal instant, not the one at which we came to see it: late timers add up to no drift.
                operation.guard.release(earliest, job.period);
            }
            if let Some(slot) = self.insert(now, job) {
                self.make_ready(now, slot);
            }
            return;
        }
        job.state = State::Held;
        let local = job.local;
        if let Some(slot) = self.insert(now, job) {
            let job = self.jobs.get(slot).id;
            let operation = &mut self.operations[local as usize];
            operation.held.push_back(slot);
            if operation.held.len() == 1 {
                self.arm(local, earliest);
            }
            self.decision(now, Decision::Hold { job, until: earliest });
        }
    }

    fn insert(&mut self, now: Instant, job: Job) -> Option<Slot> {
        let Some(slot) = self.jobs.insert(job) else {
            self.drop_new(now, &job, Outcome::DroppedFull);
            return None;
        };
        let operation = &mut self.operations[job.local as usize];
        operation.waiting += 1;
        operation.unfinished += 1;
        Some(slot)
    }

    /// A guard's timer: releases the first held job and sets the timer for the next.
    fn open_guard(&mut self, now: Instant, due: Instant) {
        let Some((_, local)) = self.guards.due(now) else { return };
        self.guards.remove_first();
        if self.operations[local as usize].armed == due {
            self.release_held(now, local, due);
        }
    }

    fn release_held(&mut self, now: Instant, local: u32, due: Instant) {
        let operation = &mut self.operations[local as usize];
        let Some(slot) = operation.held.front().copied() else { return };
        let job = self.jobs.get_mut(slot);
        let earliest = if operation.has_guard { operation.guard.earliest(job.release) } else { job.release };
        if earliest > due {
            // The first held job was pushed out since the timer was set.
            self.arm(local, earliest);
            return;
        }
        operation.held.pop_front();
        if operation.has_guard {
            operation.guard.release(due.max(earliest), job.period);
            if let Deadline::Own(span) = operation.deadline {
                // Its own deadline counts from the guarded release, as in Sun and Liu's analysis.
                job.release = job.release.max(due);
                job.deadline = job.release.saturating_add(span);
            }
        }
        if let Some(next) = operation.held.front() {
            let next = self.jobs.get(*next);
            let earliest = if operation.has_guard { operation.guard.earliest(next.release) } else { next.release };
            self.arm(local, earliest);
        } else {
            operation.armed = Instant::NEVER;
        }
        self.make_ready(now, slot);
    }

    /// Sets the timer of an operation's first held job. One that was set before is not removed
    /// but ignored when it fires; at most one such is left at each idle point.
    fn arm(&mut self, local: u32, due: Instant) {
        self.operations[local as usize].armed = due;
        self.guards.set(due, local);
    }

    /// Rule 3 at an idle point: every guard that has it opens.
    fn idle_point(&mut self, now: Instant) {
        for local in 0..self.operations.len() as u32 {
            let operation = &mut self.operations[local as usize];
            if operation.guard.idle_point(now) && !operation.held.is_empty() {
                self.release_held(now, local, now);
            }
        }
    }

    fn make_ready(&mut self, now: Instant, slot: Slot) {
        let job = self.jobs.get_mut(slot);
        job.ready = now;
        let ready = Decision::Ready { job: job.id, release: job.release, deadline: job.deadline, lane: job.lane };
        self.released += 1;
        self.decision(now, ready);
        self.arrive_in_lane(slot);
    }

    /// Puts a job into its lane's queue as one that arrives now.
    fn arrive_in_lane(&mut self, slot: Slot) {
        self.jobs.get_mut(slot).arrival = self.arrival;
        self.arrival += 1;
        self.enqueue(slot);
    }

    /// Puts a job into its lane's queue, at the place that its first arrival gives it.
    fn enqueue(&mut self, slot: Slot) {
        let rank = self.rank(slot);
        let job = self.jobs.get_mut(slot);
        job.state = State::Ready;
        self.lanes[usize::from(job.lane)].queue_mut(job.critical).enqueue(rank, slot);
        let waiting = if job.critical { &mut self.waiting.0 } else { &mut self.waiting.1 };
        waiting.insert(job.lane);
        self.wakes.insert(job.lane);
    }

    fn rank(&self, slot: Slot) -> Rank {
        let job = self.jobs.get(slot);
        let discipline = self.disciplines[usize::from(job.level)];
        Rank::new(job.level, key(discipline, job.deadline, job.remaining), job.tie, job.arrival)
    }

    /// Keeps the masks true after a job has left a queue of `lane`.
    #[inline]
    fn left_queue(&mut self, lane: u8) {
        let (critical, other) = self.lanes[usize::from(lane)].occupied();
        self.waiting.0.set(lane, critical);
        self.waiting.1.set(lane, other);
    }

    // ---- lanes ----

    fn dequeue(&mut self, lane: u8) -> Option<Slot> {
        let critical_only = lane >= self.gate();
        let slot = self.lanes[usize::from(lane)].dequeue(critical_only)?;
        self.left_queue(lane);
        Some(slot)
    }

    /// True if the running job of a fully preemptive lane must give way to a better waiting one.
    fn must_yield(&mut self, lane: u8, running: Slot, executed: Span) -> bool {
        if !self.lanes[usize::from(lane)].preemptive {
            return false;
        }
        let critical_only = lane >= self.gate();
        let job = self.jobs.get_mut(running);
        job.remaining = job.wcet.saturating_sub(executed);
        let Some((rank, waiting)) = self.lanes[usize::from(lane)].best(critical_only) else { return false };
        if !rank.beats(self.rank(running)) {
            return false;
        }
        // Stack resource policy (Baker 1991): only a job of a higher preemption level than every
        // ceiling in force may start; preemption levels are by relative deadline.
        let candidate = self.jobs.get(waiting);
        let relative = candidate.deadline.since(candidate.release);
        let in_lane = |(holder, _): &&(Slot, ResourceId)| self.jobs.get(*holder).lane == lane && *holder != waiting;
        let mut ceilings =
            self.held.iter().filter(in_lane).map(|(_, resource)| self.ceiling_deadlines[resource.index()]);
        ceilings.all(|ceiling| relative < ceiling)
    }

    fn give_token_up(&mut self, slot: Slot) {
        let lane = self.jobs.get(slot).lane;
        let state = &mut self.lanes[usize::from(lane)];
        if state.running == Some(slot) {
            state.running = None;
            self.running.remove(lane);
            self.wakes.insert(lane);
        }
    }

    // ---- ends ----

    fn end(&mut self, now: Instant, slot: Slot, outcome: Outcome, consumed: Span) {
        let job = self.jobs.remove(slot);
        let operation = &mut self.operations[job.local as usize];
        operation.unfinished -= 1;
        operation.waiting -= u32::from(!job.started && matches!(job.state, State::Held | State::Ready));
        self.released -= u32::from(job.state != State::Held);
        if operation.on_overrun != OnOverrun::Report && job.started {
            self.watches.retain(|(_, watched)| *watched != slot);
            self.watch_next = self.watches.iter().map(|(due, _)| *due).min().unwrap_or(Instant::NEVER);
        }
        if !self.held.is_empty() {
            self.held.retain(|(holder, _)| *holder != slot);
        }
        self.decision(now, Decision::End(job_end(now, &job, outcome, consumed)));
    }

    fn drop_new(&mut self, now: Instant, job: &Job, outcome: Outcome) {
        self.decision(now, Decision::End(job_end(now, job, outcome, Span::ZERO)));
    }

    /// Pushes out the job of an operation that waits longest: a ready one, else the first held.
    fn drop_oldest(&mut self, now: Instant, local: u32) {
        let jobs = &self.jobs;
        let own = |(_, slot): &(Rank, Slot)| jobs.get(*slot).local == local && !jobs.get(*slot).started;
        let ready = self.lanes.iter().flat_map(Lane::waiting).filter(own).min_by_key(|(rank, _)| rank.arrival());
        match ready {
            Some((_, slot)) => {
                let job = self.jobs.get(slot);
                let (lane, critical) = (job.lane, job.critical);
                self.lanes[usize::from(lane)].queue_mut(critical).remove(slot);
                self.left_queue(lane);
                self.end(now, slot, Outcome::DroppedFull, Span::ZERO);
            }
            None => {
                if let Some(slot) = self.operations[local as usize].held.pop_front() {
                    self.end(now, slot, Outcome::DroppedFull, Span::ZERO);
                }
            }
        }
    }

    fn trigger_successors(&mut self, now: Instant, job: &Job) {
        let token = Token { number: job.id.number, origin: job.origin, period: job.period };
        for index in 0..self.operations[job.local as usize].successors.len() {
            match self.operations[job.local as usize].successors[index] {
                Successor::Here { local, position } => self.trigger(now, local, position, token, now),
                Successor::There { to, processor, position, least, most } => {
                    let draw = JobId { operation: to, number: job.id.number, leg: position };
                    let delay = takes::uniform(takes::bits(self.seed, draw, 3), least, most);
                    let signal = Signal {
                        from: job.id.operation,
                        to,
                        position,
                        number: token.number,
                        origin: token.origin,
                        period: token.period,
                        due: now + delay,
                    };
                    self.decision(now, Decision::Send(signal));
                    self.outbox.push((processor, signal));
                }
            }
        }
    }

    // ---- the rest ----

    fn enter_epoch(&mut self, now: Instant, index: usize) {
        self.epoch = index;
        let settings = alloc::sync::Arc::clone(&self.settings);
        for (local, operation) in self.operations.iter_mut().enumerate() {
            operation.enter(&settings.epochs[index][local]);
            operation.placement = settings.placements[index][local];
        }
        if let Some(cap) = &mut self.cap {
            cap.reserve(settings.reserves[index].iter().copied());
        }
        self.decision(now, Decision::Epoch { index: index as u16 });
    }

    fn next_signal(&self) -> Instant {
        self.signals.peek().map_or(Instant::NEVER, |Reverse((due, ..))| *due)
    }

    /// Tells the cap whether lanes use the CPU from now on.
    #[inline]
    fn account(&mut self, now: Instant) {
        if self.cap.is_none() {
            return;
        }
        let busy = !((self.running & !self.paused()) | self.may_start()).is_empty();
        let Some(cap) = &mut self.cap else { return };
        if cap.account(now, busy) {
            let lane = cap.gate();
            for index in 0..self.lanes.len() as u8 {
                self.wakes.insert(index);
            }
            self.decision(now, Decision::Gate { lane });
        }
    }

    #[inline]
    fn input(&mut self, now: Instant, input: Input) {
        self.probe.event(now, Event::Input(input));
    }

    #[inline]
    fn decision(&mut self, now: Instant, decision: Decision) {
        self.probe.event(now, Event::Decision(decision));
    }
}

fn job_end(now: Instant, job: &Job, outcome: Outcome, consumed: Span) -> JobEnd {
    JobEnd {
        job: job.id,
        outcome,
        critical: job.critical,
        overran: consumed > job.wcet,
        demoted: job.demoted,
        epoch: job.epoch,
        origin: job.origin,
        release: job.release,
        ready: job.ready,
        start: job.start,
        end: now,
        deadline: job.deadline,
        consumed,
    }
}

/// For each lane what the cap keeps possible above it: all critical work, and the other work of
/// more urgent lanes, in parts per million at declared worst cases.
fn reserves(system: &System, plan: &ProcessorPlan, epoch: usize, lanes: &[Lane]) -> Vec<u64> {
    let mut critical = 0;
    let mut other = vec![0u64; lanes.len()];
    for (position, id) in plan.operations.iter().enumerate() {
        let (operation, setting) = (system.operation(*id), system.setting(epoch, *id));
        if !setting.enabled {
            continue;
        }
        let ppm = |legs: u16| {
            let demand = u128::from(setting.wcet.as_nanos()) * u128::from(legs) * 1_000_000;
            demand.div_ceil(u128::from(setting.period.as_nanos().max(1))).min(1 << 32) as u64
        };
        let critical_legs = if operation.critical { setting.legs } else { setting.critical_legs.min(setting.legs) };
        critical += ppm(critical_legs);
        let lane = Lane::index_of(lanes, plan.placements[epoch][position].other.level);
        other[usize::from(lane)] += ppm(setting.legs - critical_legs);
    }
    let above = |lane: usize| critical + other[..lane].iter().sum::<u64>();
    (0..lanes.len()).map(above).collect()
}

/// Which lanes a plan makes, for those who start threads for them.
pub fn lanes_of(plan: &ProcessorPlan) -> Vec<core::ops::Range<u8>> {
    let levels = plan.levels.len().max(1) as u8;
    match plan.preemption {
        Preemption::None => core::iter::once(0..levels).collect(),
        Preemption::Levels | Preemption::Full => (0..levels).map(|level| level..level + 1).collect(),
    }
}
