//! The dispatcher of one processor: [`Dispatcher::handle`] gets each input with its instant, and decides what is
//! released and what each lane runs next. It reads no clock, has no thread and allocates nothing after start.
//!
//! The order at one instant is: completions, idle points (rule 3 of the guard), releases, signals
//! from other processors, guard timers, dispatch. The caller passes completions first, then signals in the order of
//! `due`, then inputs from outside (requests, rates, regions, cancellation), then `Tick`, and `LaneRuns` last.

mod admissions;
mod clients;
mod contracts;
mod feedback;
mod lanes;
mod latency;
mod moves;
mod queries;
mod rates;
mod region;
mod releases;
mod requests;
mod switching;

use alloc::{vec, vec::Vec};

use hyoshi_model::{
    Deadline, Instant, JobId, OnMiss, OnOverload, OnOverrun, OperationId, ProcessorId, ResourceId, Span, System,
};
use hyoshi_sched::{Discipline, ProcessorPlan, Ranking};
use hyoshi_trace::{DiscardReason, DispatchDecision, Input, JobOutcome, Probe, Signal, Slot, Ticket, TraceEvent};

pub use clients::JoinRefusal;
pub(crate) use contracts::OperationLimits;
pub use contracts::{ContractAdmission, EvaluatedContract};
pub(crate) use moves::Presence;

use crate::cap::CapEnforcer;
use crate::effects::{Effects, OverrunAction, Run, SchedulerWork};
use crate::hard_cap::HardCapEnforcer;
use crate::job::{JobState, JobTable, Transition};
use crate::join::CompletionToken;
use crate::lane::{LaneMask, LaneState, plans};
use crate::operation::{Intake, OperationState, Residence, numbered_by};
use crate::timers::Timers;

/// The dispatcher of one processor. See the [module](self).
#[derive(Debug)]
pub struct Dispatcher<P> {
    processor: ProcessorId,
    seed: u64,
    cancel: bool,
    system_epochs: Vec<Instant>,
    /// Begin of the next epoch.
    next_epoch: Instant,
    /// Epochs that began at their own time.
    epochs_begun: usize,
    /// Current epoch.
    epoch: usize,
    operations: Vec<OperationState>,
    local_of: Vec<u32>,
    disciplines: Vec<Discipline>,
    lanes: Vec<LaneState>,
    /// Lanes with a token that a job holds.
    running: LaneMask,
    /// Lanes where critical jobs wait, and where others do.
    waiting: (LaneMask, LaneMask),
    /// Lanes that can hold critical jobs.
    critical_lanes: LaneMask,
    jobs: JobTable,
    arrivals: Timers,
    /// How late periodic releases are, if known beforehand.
    late: alloc::sync::Arc<alloc::collections::BTreeMap<JobId, Span>>,
    guards: Timers,
    /// Timers of operations with a timeout. See `correct_timeouts`.
    timeouts: Timers,
    /// Watched jobs: when each may reach its worst case.
    watches: Vec<(Instant, Slot)>,
    watch_next: Instant,
    /// Resources that jobs hold.
    held: Vec<(Slot, ResourceId)>,
    ceilings: Vec<Option<u8>>,
    /// For each resource the shortest relative deadline that a user here has in any epoch.
    ceiling_deadlines: Vec<Span>,
    cap: Option<CapEnforcer>,
    hard_cap: Option<HardCapEnforcer>,
    on_overload: OnOverload,
    /// Lanes with a running job that held a resource when the hard cap paused all other lanes, and still holds it.
    spared: LaneMask,
    arrival: u64,
    /// Released jobs that have not ended, except those that are `aside`. Zero is an idle point: a guard may hold the
    /// rest of the call that has the body.
    released: u32,
    any_idle_guard: bool,
    /// The most completions for other processors that one job has.
    most_sends: usize,
    settings: alloc::sync::Arc<region::EpochSettings>,
    /// The levels of each strategy.
    rankings: Vec<Ranking>,
    /// The host is off.
    off: bool,
    /// Jobs that were lost with the host.
    lost_jobs: u64,
    /// Releases are omitted: they were due before this dispatcher began.
    absent: bool,
    /// Operations that leave or were withdrawn, but have jobs here.
    departing: u32,
    /// A rate has been adapted: the plan's placements no longer hold.
    reranked: bool,
    /// Rates were adapted: the next tick ranks.
    unranked: bool,
    /// Present if a loop adapts rates here.
    feedback: Option<alloc::boxed::Box<feedback::RateLoop>>,
    /// Present if the processor has contracts.
    contracts: Option<alloc::boxed::Box<contracts::ProcessorContracts>>,
    /// Present if the processor has two strategies.
    switching: Option<alloc::boxed::Box<switching::Switching>>,
    probe: P,
}
/// A job just short of its worst case that does not get the CPU is observed at this interval.
const OBSERVE_AGAIN: Span = Span::from_micros(20);

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
        let mut operations: Vec<OperationState> = plan
            .operations
            .iter()
            .zip(numbered_by(system, &plan.operations))
            .map(|(id, by)| {
                OperationState::new(system, plan, *id, &downstream[id.index()], by, |id| local_of[id.index()])
            })
            .collect();

        let starts = feedback::start_periods(system, &plan.operations);
        for (operation, start) in operations.iter_mut().zip(starts) {
            start.into_iter().for_each(|period| operation.retime(period));
        }
        let feedback = feedback::RateLoop::new(system, plan.processor, &operations, &local_of);
        let contracts = contracts::ProcessorContracts::new(system, plan.processor, &local_of, &operations);
        let lanes = LaneState::of(plan, &operations);
        let settings = region::EpochSettings::new(system, plan);
        let mut rankings: Vec<Ranking> = plans(plan).map(|plan| plan.ranking.clone()).collect();
        if operations.iter().any(|operation| operation.adapted_by.is_some()) {
            rankings[0].reserve(2 * operations.len());
        }
        // The bounds that `admit` enforces.
        let bound: usize = operations.iter().map(|operation| operation.queue.most_jobs()).sum();
        let uses = |one: &&OperationState| !system.operation(one.id).uses.is_empty();
        let users = operations.iter().filter(uses);
        let users: usize = users.map(|one| one.queue.most_jobs() * system.operation(one.id).uses.len()).sum();
        let late = alloc::sync::Arc::new(alloc::collections::BTreeMap::new());
        let mut arrivals = Timers::with_capacity(operations.len());
        for (local, operation) in operations.iter().enumerate() {
            if let (Intake::Timer, true) = (&operation.intake, operation.timer_is_set) {
                arrivals.set(operation.next_due(system.seed, &late), local as u32);
            }
        }
        let mut ceiling_deadlines = vec![Span::from_nanos(u64::MAX); system.resources.len()];
        for operation in &operations {
            for (resource, _) in &system.operation(operation.id).uses {
                let ceiling = &mut ceiling_deadlines[resource.index()];
                for epoch in 0..system.epochs.len() {
                    *ceiling = system.setting(epoch, operation.id).deadline.span().min(*ceiling);
                }
            }
        }
        let mut timeouts = Timers::with_capacity(operations.len());
        for (local, operation) in operations.iter().enumerate().filter(|(_, operation)| operation.timeout.is_some()) {
            timeouts.set(operation.times_out, local as u32);
        }
        let hard_cap = HardCapEnforcer::new(processor.hard_cap);
        let cap = CapEnforcer::new(processor.cap_ppm, processor.cap_window, lanes.len());
        let mut disciplines: Vec<Discipline> = plan.levels.iter().map(|level| level.discipline).collect();
        let switching = processor.overload.as_ref().zip(plan.overload.as_deref()).map(|(overload, second)| {
            // A level that exists only under the other strategy holds carried-over jobs.
            disciplines.resize(disciplines.len().max(second.levels.len()), Discipline::Fifo);
            switching::Switching::new(system, plan, overload, second, &operations)
        });
        let any_idle_guard = plan.operations.iter().any(|id| system.operation(*id).guard == hyoshi_model::Guard::Idle);
        let most_sends = operations.iter().map(|operation| operation.successors.len()).max().unwrap_or(0);
        let mut dispatcher = Dispatcher {
            processor: plan.processor,
            seed: system.seed,
            cancel: processor.cancel,
            system_epochs: system.epochs.iter().map(|epoch| epoch.at).collect(),
            next_epoch: Instant::NEVER,
            epochs_begun: 0,
            epoch: 0,
            disciplines,
            feedback,
            contracts,
            switching,
            critical_lanes: (0..lanes.len() as u8).filter(|lane| lanes[usize::from(*lane)].critical).collect(),
            lanes,
            running: LaneMask::EMPTY,
            waiting: (LaneMask::EMPTY, LaneMask::EMPTY),
            jobs: JobTable::with_capacity(bound),
            arrivals,
            late,
            guards: Timers::with_capacity(bound),
            timeouts,
            watches: Vec::with_capacity(bound),
            watch_next: Instant::NEVER,
            // Room for every resource that live jobs can hold.
            held: Vec::with_capacity(users),
            ceilings: plan.ceilings.clone(),
            ceiling_deadlines,
            operations,
            local_of,
            cap,
            hard_cap,
            on_overload: processor.hard_cap.on_overload,
            spared: LaneMask::EMPTY,
            arrival: 0,
            released: 0,
            any_idle_guard,
            most_sends,
            settings: alloc::sync::Arc::new(settings),
            rankings,
            off: false,
            lost_jobs: 0,
            absent: false,
            departing: 0,
            reranked: false,
            unranked: false,
            probe,
        };
        dispatcher.begin_next_epoch(Instant::ZERO, &mut Effects::default());
        if dispatcher.operations.iter().any(OperationState::is_adapted) {
            // The plan assumes the highest rates.
            dispatcher.rates_changed(Instant::ZERO, &mut Effects::default());
        }
        dispatcher
    }

    /// The effects to pass to [`handle`](Self::handle), with room for all effects of this dispatcher.
    pub fn effects(&self) -> Effects {
        let mut effects = Effects {
            // Several completions accumulate until the caller drains them.
            sends: Vec::with_capacity(self.most_sends.max(1) * 8),
            returned: Vec::with_capacity(self.operations.iter().map(OperationState::most_tickets).sum::<usize>() + 8),
            cancelled: Vec::with_capacity(self.jobs.capacity()),
            retimed: Vec::with_capacity(self.feedback.as_ref().map_or(0, |feedback| feedback.most_retimed())),
            paced: Vec::with_capacity(self.most_clients()),
            contract_updates: Vec::with_capacity(self.contracts.as_ref().map_or(0, |one| one.most_updates())),
            departed: Vec::with_capacity(
                self.operations.iter().filter(|one| one.residence == Residence::Movable).count(),
            ),
            regions: Vec::with_capacity(self.contracts.as_ref().map_or(0, |contracts| contracts.most_changes())),
            ..Effects::default()
        };
        self.show(&mut effects);
        effects
    }

    /// The only input method: `input` happened at `now`. Its consequences are in `effects`.
    ///
    /// # Panics
    ///
    /// If [`accepts`](Self::accepts) is false for the input.
    // A caller's input is a constant: the compiler keeps only its arm.
    #[inline(always)]
    pub fn handle(&mut self, now: Instant, input: Input, effects: &mut Effects) {
        self.probe.event(now, TraceEvent::Input(input));
        if self.switching.is_some() {
            self.progress(now);
        }
        effects.work = SchedulerWork::default();
        effects.passed_on = 0;
        effects.admission = None;
        match input {
            Input::Tick => self.tick(now, effects),
            Input::Signal(signal) => effects.lost = !self.signal(now, signal, effects),
            Input::DropHop(signal) => effects.lost = !self.drop_hop(now, &signal),
            Input::LaneRuns { lane, executed } => effects.run = self.decide(now, lane, executed, effects),
            Input::Complete { slot, consumed, ticket } => self.complete(now, slot, consumed, ticket, effects),
            Input::Observe { slot, consumed } => effects.overrun = self.observe(now, slot, consumed, effects),
            Input::Suspend { slot } => self.suspend(now, slot, effects),
            Input::Resume { slot, consumed } => self.resume(now, slot, consumed, effects),
            Input::Acquire { slot, resource } => effects.level = self.acquire(slot, resource),
            Input::Release { slot, resource } => effects.level = self.release(now, slot, resource, effects),
            Input::Close => self.close(now, effects),
            Input::Invoke(request) => effects.lost = !self.invoke(now, request, effects),
            Input::Retime { operation, period } => self.retime(now, operation, period, effects),
            Input::Adapt { operation, period } => self.adapt(now, operation, period, effects),
            Input::Sample { utilisation } => self.sample(now, utilisation, effects),
            Input::Join { client, task } => self.join_loop(now, client, &task, effects),
            Input::Leave { client } => self.leave_loop(now, client, effects),
            Input::Enter { index } => self.enter_region(now, index, effects),
            Input::Condition { condition, value } => self.set_condition(now, condition, value, effects),
            Input::Force { contract, region, until } => self.force_region(now, (contract, region, until), effects),
            Input::ContractUpdate { route, value } => self.update_contract(now, route, value, effects),
            Input::Cancel { job, chain } => self.cancel_job(now, job, chain, effects),
            Input::Begin => self.begin(now, effects),
            Input::SuspendTriggers { operation, on } => self.suspend_triggers(now, operation, on, effects),
            Input::Choose { slot, hops } => self.jobs.get_mut(slot).hops = hops,
            Input::Depart { operation } => self.depart(now, operation, effects),
            Input::Stay { operation } => self.stay(now, operation, effects),
            Input::Arrive { operation, nominal, number, .. } => {
                self.arrive(now, (operation, nominal, number), effects);
            }
            Input::Admit { operation } => self.admit_now(now, operation, effects),
            Input::Withdraw { operation } => self.withdraw_now(now, operation, effects),
        }
        if self.departing > 0 {
            self.finish_departures(effects);
        }
        self.show(effects);
    }

    /// True if `handle` can process the input now. Edited or foreign recordings can contain others.
    pub fn accepts(&self, system: &System, at: Instant, input: &Input) -> bool {
        let may = |slot: &Slot, transition: Transition| {
            self.live_job(*slot).is_some_and(|job| transition.is_possible(job.state))
        };
        match input {
            Input::Tick | Input::Close => true,
            Input::Begin => self.arrival == 0 && self.jobs.is_empty(),
            Input::Signal(signal) | Input::DropHop(signal) => {
                let on_time = signal.due <= at.saturating_add(hyoshi_model::time::LONGEST_SPAN);
                on_time && signal.to.index() < system.operations.len()
            }
            Input::LaneRuns { lane, .. } => usize::from(*lane) < self.lanes.len(),
            Input::Complete { slot, .. } => may(slot, Transition::Complete),
            Input::Observe { slot, .. } | Input::Choose { slot, .. } => self.live_job(*slot).is_some(),
            Input::Suspend { slot } => may(slot, Transition::Suspend),
            Input::Resume { slot, .. } => may(slot, Transition::Resume),
            Input::Acquire { slot, resource } => self.live_job(*slot).is_some_and(|job| {
                let mut uses = system.operation(job.id.operation).uses.iter();
                uses.any(|(used, _)| used == resource) && !self.holds(*slot, *resource)
            }),
            Input::Release { slot, resource } => {
                self.live_job(*slot).is_some() && resource.index() < system.resources.len()
            }
            Input::Invoke(request) => request.operation.index() < system.operations.len(),
            Input::Enter { index } => usize::from(*index) < system.epochs.len(),
            Input::Condition { condition, .. } => usize::from(*condition) < system.conditions.len(),
            Input::Force { contract, region, .. } => {
                let known = system.contracts.get(usize::from(*contract));
                known.is_some_and(|known| region.is_none_or(|region| usize::from(region) < known.regions.len()))
            }
            Input::ContractUpdate { route, value } => {
                self.contracts.as_ref().is_some_and(|contracts| contracts.accepts(system, *route, *value))
            }
            Input::Sample { .. } => self.feedback.is_some(),
            Input::Join { client, task } => {
                self.feedback.as_ref().is_some_and(|feedback| feedback.clients.accepts(*client, task))
            }
            Input::Leave { client } => {
                self.feedback.as_ref().is_some_and(|feedback| feedback.clients.is_registered(*client))
            }
            Input::Retime { .. } | Input::Adapt { .. } | Input::Cancel { .. } | Input::SuspendTriggers { .. } => true,
            Input::Depart { operation } => self.may_depart(*operation),
            Input::Stay { operation } => self.may_stay(*operation),
            Input::Arrive { operation, from, .. } => {
                let home = |id: OperationId| Some(system.operations.get(id.index())?.home.unwrap_or(id));
                self.may_arrive(*operation) && home(*operation) == home(*from)
            }
            Input::Admit { operation } | Input::Withdraw { operation } => self.is_on_standby(*operation),
        }
    }

    /// Copies the state on which the caller acts into the effects.
    #[inline]
    fn show(&self, effects: &mut Effects) {
        effects.timer = self.next_timer();
        effects.running = self.running;
        if self.cap.is_none() && self.hard_cap.is_none() {
            effects.startable = (self.waiting.0 | self.waiting.1) & !self.running;
            return;
        }
        effects.startable = self.may_start() & !self.running;
        effects.fully_paused = self.fully_paused();
        effects.paused = self.paused();
    }

    // ---- inputs, in the order of a job's life ----

    /// The time is now `now`: begins epochs, releases due jobs, opens guards.
    fn tick(&mut self, now: Instant, effects: &mut Effects) {
        if core::mem::take(&mut self.unranked) {
            self.advance_before(now, effects);
            self.rates_changed(now, effects);
        }
        self.advance(now, now, true, effects);
        self.update_strategy(now, effects);
        self.account(now, effects);
    }

    /// Omits all timers due before `now`.
    fn begin(&mut self, now: Instant, effects: &mut Effects) {
        self.absent = true;
        self.advance_before(now, effects);
        self.absent = false;
    }

    /// Handles timers due before `now`.
    pub(super) fn advance_before(&mut self, now: Instant, effects: &mut Effects) {
        if let Some(before) = now.as_nanos().checked_sub(1) {
            self.advance(now, Instant::from_nanos(before), true, effects);
        }
    }

    /// Handles timers due until `to`: at one instant epochs, contracts, releases, guards, then
    /// timeouts. Without
    /// `guards_at_last`, guards and timeouts due at `to` wait for signals.
    pub(super) fn advance(&mut self, now: Instant, to: Instant, guards_at_last: bool, effects: &mut Effects) {
        loop {
            // `<=` keeps this order.
            let (epoch, arrival) = (self.next_epoch, self.arrivals.next());
            let (guard, timeout) = (self.guards.next(), self.timeouts.next());
            let contract = self.contracts.as_ref().map_or(Instant::NEVER, |contracts| contracts.next());
            let due = epoch.min(contract).min(arrival).min(guard).min(timeout);
            if due > to || due == Instant::NEVER {
                break;
            }
            if epoch == due {
                self.begin_next_epoch(now, effects);
            } else if contract == due {
                self.evaluate_contracts(now, effects);
            } else if arrival == due {
                self.arrive_periodic(now, effects);
            } else if due == to && !guards_at_last {
                break;
            } else if guard == due {
                self.open_guard(now, due, effects);
            } else {
                self.time_out(now, effects);
            }
        }
    }

    /// A completion on another processor has arrived, at `signal.due`: earlier timers are handled first. False if it
    /// fits no operation of this processor, or the host is off. A `Tick` must follow.
    fn signal(&mut self, now: Instant, signal: Signal, effects: &mut Effects) -> bool {
        let local = self.local_of.get(signal.to.index()).copied().unwrap_or(u32::MAX);
        if self.operations.get(local as usize).is_none_or(|target| signal.position >= target.predecessors) {
            effects.returned.extend(signal.ticket);
            return false;
        }
        let at = signal.due.min(now);
        self.advance(now, at, false, effects);
        if self.off {
            effects.returned.extend(signal.ticket);
            return false;
        }
        let Signal { number, origin, period, ticket, .. } = signal;
        let token = CompletionToken { number, origin, period, ticket };
        self.trigger(now, local, signal.position, token, at, effects);
        true
    }

    /// A completion of a cancelled thread. False if no operation here matches it.
    fn drop_hop(&mut self, now: Instant, signal: &Signal) -> bool {
        let Signal { to, position, number, .. } = *signal;
        let is_here = self.local(to).is_some_and(|local| position < self.operations[local as usize].predecessors);
        if is_here {
            self.decision(now, DispatchDecision::Discard { to, position, number, reason: DiscardReason::Cancelled });
        }
        is_here
    }

    /// Lane `lane` has the CPU; its present job, if it has one, has used `executed` so far. Returns the job that it
    /// must run now, or `None` if it continues with the present one (or with none).
    fn decide(&mut self, now: Instant, lane: u8, executed: Span, effects: &mut Effects) -> Option<Run> {
        if self.hard_paused() {
            self.account(now, effects);
            return None;
        }
        let running = self.lanes[usize::from(lane)].running;
        let preempted = match running {
            None => None,
            Some(running) if self.must_yield(lane, running, executed) => {
                self.release_token(running, effects);
                self.enqueue(running, Transition::Preempt, effects);
                Some(running)
            }
            Some(_) => return None,
        };
        let run = loop {
            let Some(slot) = self.dequeue(lane) else { break None };
            let job = self.jobs.get_mut(slot);
            if !job.started {
                // Once, at the first dispatch; a job that just fits runs; never critical operations.
                if self.cancel && !job.critical && job.wcet > job.deadline.since(now) {
                    effects.work.cancelled += 1;
                    self.end(now, slot, (Transition::Drop, JobOutcome::Cancelled), Span::ZERO, effects);
                    continue;
                }
                let operation = &self.operations[job.local as usize];
                if operation.lifespan.is_some_and(|lifespan| now.since(job.origin) > lifespan) {
                    self.end(now, slot, (Transition::Drop, JobOutcome::Expired), Span::ZERO, effects);
                    continue;
                }
                if operation.on_miss == OnMiss::Stop && now >= job.deadline {
                    self.end(now, slot, (Transition::Drop, JobOutcome::Stopped), Span::ZERO, effects);
                    continue;
                }
                job.start = now;
                let operation = &mut self.operations[job.local as usize];
                operation.waiting -= 1;
                if operation.watches() {
                    let due = operation.watched_at(now + job.wcet, job);
                    self.watches.push((due, slot));
                    self.watch_next = self.watch_next.min(due);
                }
            }
            job.make(Transition::Start);
            job.dispatched = now;
            let resumed = core::mem::replace(&mut job.started, true);
            break Some(Run { slot, job: job.id, local: job.local, resumed, preempted });
        };
        if let Some(run) = run {
            self.lanes[usize::from(lane)].running = Some(run.slot);
            self.running.insert(lane);
        } else if self.any_idle_guard && self.released == 0 {
            self.idle_point(now, effects);
        }
        self.account(now, effects);
        // The better job was cancelled and the running one continues.
        let run = run.filter(|run| run.preempted != Some(run.slot));
        if let Some(run) = run {
            if let Some(preempted) = preempted {
                let job = self.jobs.get(preempted).id;
                self.decision(now, DispatchDecision::Yield { job });
            }
            self.decision(now, DispatchDecision::Run { job: run.job, lane, slot: run.slot, resumed: run.resumed });
        }
        run
    }

    /// A body has returned, after it used `consumed` in all.
    fn complete(&mut self, now: Instant, slot: Slot, consumed: Span, ticket: Option<Ticket>, effects: &mut Effects) {
        self.leave_queue(slot);
        self.release_token(slot, effects);
        let job = *self.jobs.get(slot);
        let ends_early = self.ends_early(now, slot);
        let outcome = match job.cancelled {
            true => JobOutcome::Cancelled,
            false if ends_early => JobOutcome::Stopped,
            false if now <= job.deadline => JobOutcome::Made,
            false => JobOutcome::Missed,
        };
        self.end(now, slot, (Transition::Complete, outcome), consumed, effects);
        if !ends_early {
            if job.id.leg + 1 < job.legs {
                self.next_leg(now, &job, effects);
            } else {
                self.trigger_successors(now, &job, ticket, effects);
            }
        }
        if self.any_idle_guard && self.released == 0 {
            self.idle_point(now, effects);
        }
        self.update_strategy(now, effects);
        self.account(now, effects);
    }

    /// True if a job that completes now triggers nothing: it was stopped or cancelled, or it is late and the file's
    /// rule is to stop it.
    pub fn ends_early(&self, now: Instant, slot: Slot) -> bool {
        let job = self.jobs.get(slot);
        let late = now > job.deadline && self.operations[job.local as usize].on_miss == OnMiss::Stop;
        job.stopped || job.cancelled || late
    }

    /// A job to observe: its operation has a rule for overruns or misses, and it may have reached its worst case or its
    /// deadline by `now`. Call again until there is none.
    pub fn overdue(&self, now: Instant) -> Option<Slot> {
        let due = |watch: &&(Instant, Slot)| watch.0 <= now;
        self.watches.iter().find(due).map(|(_, slot)| *slot)
    }

    /// An overdue job was observed to have used `consumed`.
    fn observe(&mut self, now: Instant, slot: Slot, consumed: Span, effects: &mut Effects) -> OverrunAction {
        let Some(position) = self.watches.iter().position(|(_, watched)| *watched == slot) else {
            return OverrunAction::Within;
        };
        let job = self.jobs.get_mut(slot);
        let operation = &self.operations[job.local as usize];
        let late = operation.on_miss == OnMiss::Stop && now >= job.deadline;
        let overrun = match operation.on_overrun {
            _ if late => OverrunAction::Stop,
            _ if consumed < job.wcet => OverrunAction::Within,
            OnOverrun::Stop => OverrunAction::Stop,
            OnOverrun::Demote if !job.demoted => OverrunAction::Demote,
            OnOverrun::Demote | OnOverrun::Report => OverrunAction::Within,
        };
        match overrun {
            // It cannot reach its worst case earlier, and may reach it later: then it is observed again.
            OverrunAction::Within => {
                let overruns = now + job.wcet.saturating_sub(consumed).max(OBSERVE_AGAIN);
                self.watches[position].0 = operation.watched_at(overruns, job);
            }
            OverrunAction::Stop => {
                (job.stopped, job.overran) = (true, !late);
                self.watches.swap_remove(position);
            }
            OverrunAction::Demote => {
                job.demoted = true;
                let id = job.id;
                // Only its deadline is left, if it has to be stopped there.
                self.watches[position].0 = operation.watched_at(Instant::NEVER, job);
                self.watches.retain(|(due, _)| *due != Instant::NEVER);
                self.leave_queue(slot);
                self.release_token(slot, effects);
                self.jobs.get_mut(slot).make(Transition::Demote);
                self.decision(now, DispatchDecision::Demote { job: id });
            }
        }
        self.watch_next = self.watches.iter().map(|(due, _)| *due).min().unwrap_or(Instant::NEVER);
        self.account(now, effects);
        overrun
    }

    /// A running job blocks: its lane may run another.
    fn suspend(&mut self, now: Instant, slot: Slot, effects: &mut Effects) {
        self.release_token(slot, effects);
        let job = self.jobs.get_mut(slot);
        job.make(Transition::Suspend);
        job.aside = job.dispatched == now;
        self.released -= u32::from(job.aside);
        let id = job.id;
        self.decision(now, DispatchDecision::Yield { job: id });
        if self.any_idle_guard && self.released == 0 {
            self.idle_point(now, effects);
        }
        self.account(now, effects);
    }

    /// A blocked job can continue: its rest enters its lane's queue as a new segment.
    fn resume(&mut self, now: Instant, slot: Slot, consumed: Span, effects: &mut Effects) {
        let job = self.jobs.get_mut(slot);
        job.remaining = job.wcet.saturating_sub(consumed);
        self.released += u32::from(core::mem::take(&mut job.aside));
        self.enqueue(slot, Transition::Resume, effects);
        self.account(now, effects);
    }

    /// A job acquires a resource. Returns its new level (immediate priority ceiling).
    fn acquire(&mut self, slot: Slot, resource: ResourceId) -> u8 {
        assert!(self.held.len() < self.held.capacity(), "a job holds a resource that its operation does not use");
        self.held.push((slot, resource));
        self.effective_level(slot)
    }

    /// A job releases a resource. Returns its new level.
    fn release(&mut self, now: Instant, slot: Slot, resource: ResourceId, effects: &mut Effects) -> u8 {
        if let Some(position) = self.held.iter().rposition(|held| *held == (slot, resource)) {
            self.held.remove(position);
        }
        let lane = self.jobs.get(slot).lane;
        effects.woken.insert(lane);
        if self.spared.contains(lane) && !self.held.iter().any(|(holder, _)| *holder == slot) {
            self.spared.remove(lane);
            self.account(now, effects);
        }
        self.effective_level(slot)
    }

    /// The run ends: jobs that are late by now count as missed, the others as never released.
    fn close(&mut self, now: Instant, effects: &mut Effects) {
        // No more changes.
        self.operations.iter_mut().for_each(|operation| operation.next_placement = None);
        for slot in (0..self.jobs.capacity() as u32).map(Slot) {
            let Some(job) = self.live_job(slot) else { continue };
            // Its own deadline counts from the guarded release, which has not happened yet.
            let own = matches!(self.operations[job.local as usize].deadline, Deadline::Own(_));
            if job.deadline < now && !(own && job.state == JobState::Held) {
                self.end(now, slot, (Transition::Drop, JobOutcome::Missed), Span::ZERO, effects);
            }
        }
    }

    #[inline]
    pub(super) fn decision(&mut self, now: Instant, decision: DispatchDecision) {
        self.probe.event(now, TraceEvent::Decision(decision));
    }
}
