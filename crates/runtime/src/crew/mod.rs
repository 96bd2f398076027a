//! The crew of one processor: its dispatcher, the threads of its lanes, and their assignment to jobs.
//!
//! Everything here happens under one lock with priority inheritance, in short sections. Each section reads the clock
//! once under the lock, so that the dispatcher's inputs are in the order of time.
//!
//! A section makes a change (a job completes, a timer is due) and then *settles* its consequences: wake-ups, policies,
//! sends. It does not wake threads itself: see [`PendingWakeups`].
//!
//! ```text
//!             decide               finish                nothing to start
//!   attends ──────────► runs a job ───────► attends ───────────────────────► idle
//!      ▲                  │  ▲                                                 │
//!      │                  ▼  │ turn                                    attend  │
//!      │          waits, set back or lowered                                   │
//!      └───────────────────────────────────────────────────────────────────────┘
//! ```

mod calls;
mod chain_threads;
mod clients;
mod lanes;
mod moves;
mod policy;
mod release;
mod requests;
#[cfg(test)]
mod tests;
mod waits;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyoshi_dispatch::{ChangedRegion, CompletionTransport, Dispatcher, Effects, Job, LaneMask, Run, levels_of};
use hyoshi_model::{HopChoice, Instant, OnMiss, OnOverrun, OperationId, Preemption, ProcessorId, Span};
use hyoshi_os::priority::lane_priority;
use hyoshi_os::{Scheduled, ThreadPolicy};
use hyoshi_sched::ProcessorPlan;
use hyoshi_trace::stats::Queueing;
use hyoshi_trace::{Input, RingProbe, Slot, Ticket};
use rtrb::Producer;

use crate::body::BodyCell;
use crate::common::{BodyOrder, CommonState, ThreadControl};
use crate::context::CurrentJob;
use crate::ended::EndedBy;
use crate::events::SupplierFeed;
use crate::link::{Data, LinkEnd};
use crate::payload::Payloads;
use crate::policy_control::PolicyControl;
use crate::replica::{Flush, JobOutput};
use crate::wakeups::PendingWakeups;

use calls::InCall;
pub(crate) use calls::{CallStep, DepartedCall};
use chain_threads::CrewThreads;
pub(crate) use lanes::{JobStart, LaneStep, Returned};
pub(crate) use waits::Resumption;

/// No thread.
const NOBODY: u16 = u16::MAX;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Crew<S> {
    common: Arc<CommonState>,
    processor: ProcessorId,
    pub dispatcher: Dispatcher<RingProbe>,
    effects: Effects,
    members: Vec<LaneThread<S>>,
    lanes: Vec<LanePool>,
    /// By slot.
    started: Vec<Started>,
    /// In the order of the plan.
    operations: Vec<CrewOperation>,
    /// Lanes with an active thread that will decide.
    attended: LaneMask,
    /// Jobs within a lane preempt each other.
    preemptive: bool,
    /// Gated and paused threads use SCHED_IDLE: at SCHED_OTHER they would compete with ordinary threads.
    may_idle: bool,
    /// Lanes below ordinary threads, by the threads' policies.
    paused: LaneMask,
    /// Threads with a policy to change after the lock is released.
    changed: VecDeque<u16>,
    /// Payloads of completed jobs, for the jobs that they trigger here.
    payloads: Payloads,
    links: LinkEnd,
    threads: CrewThreads,
    /// Changes of regions, for the thread that executes their actions.
    regions: Option<Producer<ChangedRegion>>,
    /// The costs of queueing.
    pub queueing: Queueing,
    /// Demoted built-in work, in order.
    below: VecDeque<DemotedWork>,
    /// Jobs whose completion a reply has carried: they run without a body, because its first part kept the lane.
    answered: VecDeque<(OperationId, u64)>,
    /// The lane with the idle threads that read requests, and whether one is reading.
    reads: Option<u8>,
    has_reader: bool,
    /// The end of the release thread's sleep.
    pub armed: Instant,
    /// The dispatcher has received the end, and receives no more inputs.
    pub closed: bool,
}

/// A thread of a lane.
#[derive(Debug)]
struct LaneThread<S> {
    policy_control: Option<Arc<PolicyControl<S>>>,
    control: Arc<ThreadControl>,
    lane: u8,
    /// The lane that it serves when its body runs in no other one.
    home: u8,
    /// Where its body is in a call.
    call: InCall,
    /// Its job serves the call of an operation of the file: the reply carries the completion.
    answers: bool,
    /// SCHED_FIFO was granted.
    fifo: bool,
    /// Its current policy.
    policy: ThreadPolicy,
    job: Option<Slot>,
    /// The body of the job's operation, until the thread gets it.
    cell: Option<Box<BodyCell>>,
    idle: bool,
    /// It sleeps until its job is decided again.
    waits: bool,
    /// Its job runs below the lanes.
    demoted: bool,
}

#[derive(Debug)]
struct LanePool {
    priority: u8,
    idle: Vec<u16>,
}

/// A started job.
#[derive(Clone, Copy, Debug)]
struct Started {
    thread: u16,
    /// CPU time of its thread at the start of the body.
    began: Span,
    /// The same at the end of the body, if the thread reads requests before the job completes.
    ended: Option<Span>,
}

const NOT_STARTED: Started = Started { thread: NOBODY, began: Span::ZERO, ended: None };

/// The crew's state of an operation.
#[derive(Debug)]
struct CrewOperation {
    id: OperationId,
    /// A user's body. `None` while a job is inside, while the operation is on another processor, and for built-in work.
    cell: Option<Box<BodyCell>>,
    has_body: bool,
    /// The hops that its completions may choose.
    hops: Vec<HopChoice>,
    /// Observes its completions, if it supplies an event.
    feed: Option<SupplierFeed>,
    /// Jobs that were decided while an earlier one was inside the body.
    aside: VecDeque<Slot>,
}

/// The output of a job's body, or of built-in work.
#[derive(Debug, Default)]
struct BodyOutput {
    payload: Data,
    /// The payload is sent to replicas.
    flushes: bool,
    /// The hops that the body chose; `None` for built-in work.
    hops: Option<u64>,
}

/// Built-in work that was demoted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DemotedWork {
    pub slot: Slot,
    pub consumed: Span,
    pub left: Span,
}

/// The period at which the release thread preempts ordinary threads while lanes are paused or gated and no lane runs.
/// Then the kernel chooses again: because of their lag, the threads of two SCHED_IDLE lanes could otherwise use a whole
/// pause.
const CHOOSE_AGAIN: Span = Span::from_micros(500);

impl<S: Scheduled> Crew<S> {
    pub fn new(
        common: Arc<CommonState>,
        plan: &ProcessorPlan,
        probe: RingProbe,
        (cells, with_bodies): (&mut [Option<BodyCell>], &[bool]),
        links: LinkEnd,
    ) -> Self {
        let system = common.system.clone();
        let dispatcher = Dispatcher::new(&system, plan, probe);
        let effects = dispatcher.effects();
        let mut choices = system.choices();
        let mut operations: Vec<CrewOperation> = Vec::with_capacity(plan.operations.len());
        for id in &plan.operations {
            let cell = cells[id.index()].take().map(Box::new);
            let has_body = with_bodies[id.index()];
            let aside = VecDeque::with_capacity(if has_body { system.operation(*id).queue.most_jobs() } else { 0 });
            let hops = choices.remove(id).unwrap_or_default();
            operations.push(CrewOperation { id: *id, cell, has_body, hops, feed: None, aside });
        }
        // The dispatcher's bound on live jobs.
        let bound: usize = plan.operations.iter().map(|id| system.operation(*id).queue.most_jobs()).sum();
        let lane = |lane: &hyoshi_dispatch::LaneState| LanePool {
            priority: lane_priority(usize::from(lane.levels.start)),
            idle: Vec::new(),
        };
        let demotes = |id: &OperationId| system.operation(*id).on_overrun == OnOverrun::Demote;
        let below = if plan.operations.iter().any(demotes) { bound } else { 0 };
        Crew {
            processor: plan.processor,
            lanes: dispatcher.lanes().iter().map(lane).collect(),
            members: Vec::new(),
            started: vec![NOT_STARTED; bound],
            operations,
            attended: LaneMask::EMPTY,
            preemptive: plan.preemption == Preemption::Full,
            may_idle: hyoshi_os::may_leave_idle(),
            paused: effects.paused,
            changed: VecDeque::new(),
            payloads: Payloads::new(effects.returned.capacity()),
            links,
            threads: CrewThreads::new(plan, &common.thread_roots),
            regions: None,
            queueing: Queueing::default(),
            below: VecDeque::with_capacity(below),
            answered: VecDeque::with_capacity(calls::MOST_ANSWERED),
            reads: None,
            has_reader: false,
            armed: Instant::NEVER,
            closed: false,
            dispatcher,
            effects,
            common,
        }
    }

    /// Counts the completions of suppliers, and passes them to a feed. By operation.
    pub fn feed(&mut self, feeds: &mut [Option<SupplierFeed>]) {
        self.operations.iter_mut().for_each(|operation| operation.feed = feeds[operation.id.index()].take());
    }

    /// The other hosts started earlier: releases before `now` are omitted.
    pub fn begin_late(&mut self, now: Instant) {
        self.handle(now, Input::Begin);
    }

    /// Adds a thread to a lane. It sleeps until it is woken.
    pub fn add_thread(&mut self, lane: u8, control: Arc<ThreadControl>) -> u16 {
        let thread = self.members.len() as u16;
        let priority = self.lanes[usize::from(lane)].priority;
        self.members.push(LaneThread {
            policy_control: None,
            control,
            lane,
            home: lane,
            call: InCall::No,
            answers: false,
            fifo: false,
            policy: ThreadPolicy::Fifo(priority),
            job: None,
            cell: None,
            idle: true,
            waits: false,
            demoted: false,
        });
        self.lanes[usize::from(lane)].idle.insert(0, thread);
        // Each thread is in it at most once.
        self.changed.reserve(self.members.len());
        thread
    }

    /// The thread has started with `policy`.
    pub fn thread_started(&mut self, thread: u16, handle: S, policy: ThreadPolicy) {
        let member = &mut self.members[usize::from(thread)];
        (member.policy, member.fifo) = (policy, policy != ThreadPolicy::Other);
        member.policy_control = Some(Arc::new(PolicyControl::new(handle, policy, member.control.clone())));
    }

    /// A thread with a policy to change, outside the lock.
    pub fn take_changed(&mut self) -> Option<Arc<PolicyControl<S>>> {
        let thread = self.changed.pop_front()?;
        self.members[usize::from(thread)].policy_control.clone()
    }

    /// True if there is such a thread.
    #[inline]
    pub fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// A section has panicked: the crew is not used again. All threads end, or continue without waiting for their turn.
    #[cold]
    pub fn break_off(&mut self) {
        self.closed = true;
        self.common.stopping.store(true, Ordering::Release);
        self.members.iter().for_each(|member| member.control.wake.post());
    }

    /// A thread of the run was refused its priority: no thread uses priorities. Otherwise, under a limit, less urgent
    /// lanes could run above the most urgent ones.
    pub fn without_priorities(&mut self) {
        for thread in 0..self.members.len() as u16 {
            self.members[usize::from(thread)].fifo = false;
            self.apply(thread);
        }
    }

    /// The real-time priority of a lane.
    pub fn priority_of(&self, lane: u8) -> u8 {
        self.lanes[usize::from(lane)].priority
    }

    /// The lane of each thread.
    pub fn lanes_of_threads(&self) -> impl Iterator<Item = u8> + '_ {
        self.members.iter().map(|member| member.lane)
    }

    /// The state of a job for its body.
    fn current_job(&self, slot: Slot) -> CurrentJob {
        let job = *self.dispatcher.job(slot);
        let Job { id, origin, release, deadline, importance, critical, period, timed_out, service_level, .. } = job;
        let slot = Some(slot);
        CurrentJob { slot, job: id, origin, release, deadline, period, importance, critical, timed_out, service_level }
    }

    /// True if some operation has a user's body.
    pub fn has_bodies(&self) -> bool {
        self.operations.iter().any(|operation| operation.has_body)
    }

    /// The number of threads of each lane: its pool, and one for each body that can be demoted or waits for a reply, and
    /// for each servant that does. If jobs preempt within lanes: one for each operation, too.
    pub fn threads_of(&self, plan: &ProcessorPlan) -> Vec<usize> {
        let system = &self.common.system;
        let pool = usize::from(system.processor(self.processor).pool.max(1));
        let of = |lane: &hyoshi_dispatch::LaneState| {
            let fits = |local: &usize| levels_of(plan, *local).iter().any(|level| lane.levels.contains(&level));
            let inside = (0..self.operations.len()).filter(fits);
            let (mut all, mut spare) = (0, 0);
            for operation in inside.map(|local| &self.operations[local]) {
                let rules = system.operation(operation.id);
                let demoted = rules.on_overrun != OnOverrun::Report || rules.on_miss == OnMiss::Stop;
                // A body or a servant that waits for a reply keeps its thread.
                let calls = self.common.calls[operation.id.index()].is_some();
                let waits = calls && (operation.has_body || self.common.served[operation.id.index()]);
                let takes_one = waits || (operation.has_body && demoted);
                (all, spare) = (all + 1, spare + usize::from(takes_one));
            }
            if self.preemptive { pool.max(all + 1) + spare } else { pool + spare }
        };
        self.dispatcher.lanes().iter().map(of).collect()
    }

    /// Computes the consequences of a section: policies, preemption within lanes, wake-ups, sends, the release thread's
    /// timer.
    #[inline]
    pub fn settle(&mut self, now: Instant, wakeups: &mut PendingWakeups) {
        if self.effects.paused != self.paused {
            self.paused = self.effects.paused;
            self.apply_to_all();
        }
        if self.effects.stop {
            self.overloaded();
        }
        if !self.effects.cancelled.is_empty() {
            self.stop_cancelled();
        }
        if self.preemptive {
            self.preempt(now, wakeups);
        }
        let unattended = self.effects.startable & !self.attended;
        if !unattended.is_empty() && !self.closed {
            unattended.iter().for_each(|lane| self.attend(lane, now, wakeups));
        }
        if !self.effects.sends.is_empty() {
            self.send(wakeups);
        }
        if !self.effects.departed.is_empty() {
            self.hand_over(wakeups);
        }
        if !(self.effects.retimed.is_empty() && self.effects.paced.is_empty()) {
            self.pass_rates(wakeups);
        }
        for (route, value) in self.effects.contract_updates.drain(..) {
            wakeups.wake_release(self.common.contract_updates.set(route, value));
        }
        if !self.effects.returned.is_empty() {
            self.release_payloads(wakeups);
        }
        if !self.effects.regions.is_empty() {
            self.pass_regions(wakeups);
        }
        if let Some(lane) = self.reads
            && !self.has_reader
            && !(self.attended | self.effects.running).contains(lane)
        {
            self.find_reader(lane, wakeups);
        }
        let mut timer = self.due_next();
        if !self.paused.is_empty() && (self.effects.running & !self.paused).is_empty() {
            timer = timer.min(now + CHOOSE_AGAIN);
        }
        if timer < self.armed {
            self.armed = timer;
            wakeups.wake_release(self.processor);
        }
    }

    /// Critical overload lasts, and the file ends the run in that case.
    #[cold]
    fn overloaded(&self) {
        let processor = self.common.system.processor(self.processor).name.clone();
        self.common.end(EndedBy::Overloaded { processor });
    }

    /// Started jobs were cancelled: built-in work ends, bodies should return.
    #[cold]
    fn stop_cancelled(&mut self) {
        while let Some(slot) = self.effects.cancelled.pop() {
            let thread = self.started[slot.0 as usize].thread;
            if thread != NOBODY {
                self.members[usize::from(thread)].control.order(BodyOrder::Stop);
            }
        }
    }

    /// Sends completions to other processors.
    #[cold]
    fn send(&mut self, wakeups: &mut PendingWakeups) {
        for (to, signal) in self.effects.sends.drain(..) {
            self.links.send(to, signal, self.payloads.get(signal.ticket));
            match self.common.moves_thread(&signal, to) {
                true => wakeups.send_hop(to),
                false => wakeups.wake_release(to),
            }
        }
    }

    /// Sends the output of a completed job to its replicas, before its signals are sent and before the jobs that it
    /// triggered here start.
    #[inline]
    fn flush_output(&mut self, job: &Job, payload: Data, now: Instant, wakeups: &mut PendingWakeups) {
        let id = job.id.operation;
        let Some(replication) = &self.common.system.operation(id).replication else { return };
        let Some(at) = replication.flush.of_job(now, job.deadline) else {
            self.common.late_outputs[id.index()].fetch_add(1, Ordering::Relaxed);
            return;
        };
        let output = JobOutput { release: job.release, number: job.id.number, leg: job.id.leg, payload };
        for host in &replication.to {
            let flush = Flush { operation: id, output: output.clone(), at };
            if let Some(processor) = self.links.flush(*host, flush, now) {
                wakeups.wake_release(processor);
            }
        }
    }

    /// The next time at which the release thread must act.
    #[inline]
    fn due_next(&self) -> Instant {
        self.effects.timer.min(self.links.next())
    }

    /// Releases payloads that no job needs.
    fn release_payloads(&mut self, wakeups: &mut PendingWakeups) {
        while let Some(ticket) = self.effects.returned.pop() {
            if let Some(call) = self.payloads.release(ticket) {
                self.unserved(call, wakeups);
            }
        }
    }

    /// Ends the run as a simulation does: the dispatcher ends unfinished jobs. Idle threads end, waiting threads
    /// continue without their turn, and later returns from bodies are ignored.
    pub fn close(&mut self, now: Instant, wakeups: &mut PendingWakeups) {
        if !std::mem::replace(&mut self.closed, true) {
            self.handle(now, Input::Close);
            self.common.stopping.store(true, Ordering::Release);
            self.members.iter().for_each(|member| member.control.wake.post());
            wakeups.wake_reader();
        }
        // All threads were woken: those that wait for their turn see the end.
        self.payloads.unserved().filter(|call| call & calls::THREAD == 0).for_each(|call| wakeups.refuse(call));
    }

    /// Whether the lane has a thread other than `me` that is free for a job.
    fn has_another(&self, lane: u8, me: u16) -> bool {
        let is_free = |member: &LaneThread<S>| {
            member.lane == lane && !member.idle && member.job.is_none() && member.call == InCall::No
        };
        let others = || self.members.iter().enumerate().filter(|(thread, _)| *thread != usize::from(me));
        !self.lanes[usize::from(lane)].idle.is_empty() || others().any(|(_, member)| is_free(member))
    }

    /// The CPU time of a started job.
    fn consumed(&self, slot: Slot) -> Span {
        let started = self.started[slot.0 as usize];
        started.ended.unwrap_or_else(|| self.cpu_time_of(started.thread)).saturating_sub(started.began)
    }

    /// The CPU time of a thread, which need not be the calling one; zero if it is unknown.
    fn cpu_time_of(&self, thread: u16) -> Span {
        let member = self.members.get(usize::from(thread));
        member.and_then(|member| member.policy_control.as_ref()?.thread.cpu_time()).unwrap_or_default()
    }

    /// The threads of lanes. All have started before the run begins.
    pub fn lane_threads(&self) -> Vec<S>
    where
        S: Clone,
    {
        self.members.iter().filter_map(|member| Some(member.policy_control.as_ref()?.thread.clone())).collect()
    }

    /// Passes an input to the dispatcher.
    #[inline(always)]
    fn handle(&mut self, now: Instant, input: Input) {
        self.dispatcher.handle(now, input, &mut self.effects);
    }

    /// Completes a job. Without a body, the payload of a publication from outside becomes the job's own, and the hops are
    /// drawn. The caller releases the returned ticket after `settle`.
    fn complete(
        &mut self,
        now: Instant,
        slot: Slot,
        consumed: Span,
        BodyOutput { payload, flushes, hops }: BodyOutput,
        wakeups: &mut PendingWakeups,
    ) -> Option<Ticket> {
        let (job, ends_early) = (*self.dispatcher.job(slot), self.dispatcher.ends_early(now, slot));
        let operation = &mut self.operations[job.local as usize];
        let payload = payload.or_else(|| {
            let passes_on = !operation.has_body && self.common.system.operation(job.id.operation).is_requested();
            let tickets = if passes_on { self.dispatcher.tickets(slot) } else { &[] };
            self.payloads.get(tickets.first().copied().flatten())
        });
        if let Some(feed) = &mut operation.feed
            && !(ends_early || job.id.leg + 1 < job.legs)
            && feed.push(&job, now, payload.as_ref())
        {
            wakeups.wake_feed();
        }
        let choices = &self.operations[job.local as usize].hops;
        if !choices.is_empty() && job.id.leg + 1 >= job.legs {
            let hops = hops.unwrap_or_else(|| self.common.system.draw_choice(choices, job.id.number));
            self.handle(now, Input::Choose { slot, hops });
        }
        let ticket = self.payloads.insert(payload.clone());
        self.handle(now, Input::Complete { slot, consumed, ticket });
        self.threads.ended(&job, consumed);
        self.payloads.hold(ticket, self.effects.passed_on);
        if flushes && !ends_early {
            self.flush_output(&job, payload, now, wakeups);
        }
        ticket
    }

    /// Decides the next job of a lane that has the CPU. Its current job has used `executed`.
    #[inline]
    fn decide(&mut self, now: Instant, lane: u8, executed: Span) -> Option<Run> {
        self.handle(now, Input::LaneRuns { lane, executed });
        self.effects.run
    }

    /// The operation of the job in a slot.
    fn operation_of(&self, slot: Slot) -> &CrewOperation {
        &self.operations[self.dispatcher.job(slot).local as usize]
    }
}
