//! The crew of one processor: its dispatcher, the threads of its lanes, and which of them does
//! what. Everything here happens under one lock with priority inheritance, in short sections that
//! each read the clock once inside: so the dispatcher's inputs are in the order of time.
//!
//! A section changes something (a job completes, time has come), and then *settles* what follows:
//! whom to wake, whom to lower or raise, what to send. It wakes nobody itself: see [`Posts`].
//!
//! ```text
//!             decide               finish                nothing to start
//!   attends ──────────► runs a job ───────► attends ───────────────────────► idle
//!      ▲                  │  ▲                                                 │
//!      │                  ▼  │ turn                                    attend  │
//!      │          waits, set back or lowered                                   │
//!      └───────────────────────────────────────────────────────────────────────┘
//! ```

mod lanes;
mod policy;
mod release;
mod requests;
#[cfg(test)]
mod tests;
mod waits;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyoshi_dispatch::{CompletionTransport, Dispatcher, Effects, LaneMask, Run, levels_of};
use hyoshi_model::{Instant, OnOverrun, OperationId, Preemption, ProcessorId, Span};
use hyoshi_os::priority::lane_priority;
use hyoshi_os::{Scheduled, ThreadPolicy};
use hyoshi_sched::ProcessorPlan;
use hyoshi_trace::stats::Queueing;
use hyoshi_trace::{Input, RingProbe, Slot};

use crate::body::Cell;
use crate::common::{Common, Order, Signs};
use crate::ended::EndedBy;
use crate::link::Memory;
use crate::payload::Payloads;
use crate::posts::Posts;
use crate::seat::Seat;

pub(crate) use lanes::{Begin, Returned, Step};
pub(crate) use waits::Turn;

/// No thread.
const NOBODY: u16 = u16::MAX;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Crew<S> {
    common: Arc<Common>,
    processor: ProcessorId,
    pub dispatcher: Dispatcher<RingProbe>,
    effects: Effects,
    members: Vec<Member<S>>,
    lanes: Vec<LaneCrew>,
    /// By slot.
    started: Vec<Started>,
    /// In the order of the plan.
    operations: Vec<Operation>,
    /// Lanes of which a thread is awake and will decide.
    attended: LaneMask,
    /// Jobs within a lane preempt each other.
    preemptive: bool,
    /// Gated and paused threads use SCHED_IDLE: at SCHED_OTHER they would compete with ordinary threads.
    may_idle: bool,
    /// Lanes below ordinary threads, as the threads' policies know it.
    paused: LaneMask,
    /// Threads that need another policy: the kernel is asked once the lock is free.
    changed: VecDeque<u16>,
    /// What completed jobs emitted, for those that they trigger here.
    payloads: Payloads,
    links: Memory,
    /// What queueing costs here.
    pub queueing: Queueing,
    /// Built-in work below the lanes, in the order in which it came there.
    below: VecDeque<Below>,
    /// The lane whose idle threads read requests, and whether one reads now.
    reads: Option<u8>,
    has_reader: bool,
    /// Until when the release thread sleeps.
    pub armed: Instant,
    /// The dispatcher has been told of the end: it is told nothing more.
    pub closed: bool,
}

/// A thread of a lane.
#[derive(Debug)]
struct Member<S> {
    seat: Option<Arc<Seat<S>>>,
    signs: Arc<Signs>,
    lane: u8,
    /// SCHED_FIFO was granted.
    fifo: bool,
    /// What it runs at.
    policy: ThreadPolicy,
    job: Option<Slot>,
    /// The body of the job's operation, until the thread takes it over.
    cell: Option<Box<Cell>>,
    idle: bool,
    /// It sleeps until its job is decided again.
    waits: bool,
    /// Its job goes on below the lanes.
    demoted: bool,
}

#[derive(Debug)]
struct LaneCrew {
    priority: u8,
    idle: Vec<u16>,
}

/// A started job.
#[derive(Clone, Copy, Debug)]
struct Started {
    thread: u16,
    /// CPU time of its thread when the body began.
    began: Span,
}

const NOT_STARTED: Started = Started { thread: NOBODY, began: Span::ZERO };

/// What the crew keeps of an operation.
#[derive(Debug)]
struct Operation {
    id: OperationId,
    /// A user's body. `None` while a job is inside, and for built-in work.
    cell: Option<Box<Cell>>,
    has_body: bool,
    /// Jobs that were decided while an earlier one was inside the body.
    aside: VecDeque<Slot>,
}

/// Built-in work that was demoted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Below {
    pub slot: Slot,
    pub consumed: Span,
    pub left: Span,
}

/// How often the release thread preempts ordinary threads while lanes are paused or gated and no lane runs, so that the
/// kernel chooses among them again. It owes lag to threads at SCHED_IDLE: those of two lanes could use a whole pause.
const CHOOSE_AGAIN: Span = Span::from_micros(500);

impl<S: Scheduled> Crew<S> {
    pub fn new(
        common: Arc<Common>,
        plan: &ProcessorPlan,
        probe: RingProbe,
        cells: &mut [Option<Cell>],
        links: Memory,
    ) -> Self {
        let system = common.system.clone();
        let dispatcher = Dispatcher::new(&system, plan, probe);
        let effects = dispatcher.effects();
        let mut operations: Vec<Operation> = Vec::with_capacity(plan.operations.len());
        for id in &plan.operations {
            let cell = cells[id.index()].take().map(Box::new);
            let has_body = cell.is_some();
            let aside = VecDeque::with_capacity(if has_body { system.operation(*id).queue.most_jobs() } else { 0 });
            operations.push(Operation { id: *id, cell, has_body, aside });
        }
        // The dispatcher's own bound on live jobs.
        let bound: usize = plan.operations.iter().map(|id| system.operation(*id).queue.most_jobs()).sum();
        let lane = |lane: &hyoshi_dispatch::LaneState| LaneCrew {
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
            queueing: Queueing::default(),
            below: VecDeque::with_capacity(below),
            reads: None,
            has_reader: false,
            armed: Instant::NEVER,
            closed: false,
            dispatcher,
            effects,
            common,
        }
    }

    /// The other hosts began earlier: releases before `now` are left out.
    pub fn begin_late(&mut self, now: Instant) {
        self.handle(now, Input::Begin);
    }

    /// A thread of a lane, asleep until it is posted.
    pub fn enlist(&mut self, lane: u8, signs: Arc<Signs>) -> u16 {
        let thread = self.members.len() as u16;
        let priority = self.lanes[usize::from(lane)].priority;
        self.members.push(Member {
            seat: None,
            signs,
            lane,
            fifo: false,
            policy: ThreadPolicy::Fifo(priority),
            job: None,
            cell: None,
            idle: true,
            waits: false,
            demoted: false,
        });
        self.lanes[usize::from(lane)].idle.insert(0, thread);
        // Each is in it once at most.
        self.changed.reserve(self.members.len());
        thread
    }

    /// The thread exists and was given `policy`.
    pub fn arrive(&mut self, thread: u16, handle: S, policy: ThreadPolicy) {
        let member = &mut self.members[usize::from(thread)];
        (member.policy, member.fifo) = (policy, policy != ThreadPolicy::Other);
        member.seat = Some(Arc::new(Seat::new(handle, policy, member.signs.clone())));
    }

    /// A thread that needs another policy. The kernel is asked with the lock free.
    pub fn take_changed(&mut self) -> Option<Arc<Seat<S>>> {
        let thread = self.changed.pop_front()?;
        self.members[usize::from(thread)].seat.clone()
    }

    /// True if there is such a thread.
    #[inline]
    pub fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// A section has panicked: what it left is not used any more. Every thread ends, or goes on without its turn.
    #[cold]
    pub fn break_off(&mut self) {
        self.closed = true;
        self.common.stopping.store(true, Ordering::Release);
        self.members.iter().for_each(|member| member.signs.wake.post());
    }

    /// Some thread of the run was refused its priority: then all of them do without. Were only the
    /// most urgent lanes refused theirs, as under a limit, the others would run above them.
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

    /// True if some operation has a user's body.
    pub fn has_bodies(&self) -> bool {
        self.operations.iter().any(|operation| operation.has_body)
    }

    /// How many threads each lane is to have: its pool, and one for each body that may be demoted
    /// in it; if jobs preempt within it, one for each operation.
    pub fn threads_of(&self, plan: &ProcessorPlan) -> Vec<usize> {
        let system = &self.common.system;
        let pool = usize::from(system.processor(self.processor).pool.max(1));
        let of = |lane: &hyoshi_dispatch::LaneState| {
            let fits = |local: &usize| levels_of(plan, *local).iter().any(|level| lane.levels.contains(&level));
            let inside = (0..self.operations.len()).filter(fits);
            let (mut all, mut spare) = (0, 0);
            for operation in inside.map(|local| &self.operations[local]) {
                let demoted = system.operation(operation.id).on_overrun != OnOverrun::Report;
                (all, spare) = (all + 1, spare + usize::from(operation.has_body && demoted));
            }
            if self.preemptive { pool.max(all + 1) + spare } else { pool + spare }
        };
        self.dispatcher.lanes().iter().map(of).collect()
    }

    /// What follows from what this section has changed: policies, preemption within lanes, wake-ups,
    /// sends, the release thread's timer.
    #[inline]
    pub fn settle(&mut self, now: Instant, posts: &mut Posts) {
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
            self.preempt(now, posts);
        }
        let unattended = self.effects.startable & !self.attended;
        if !unattended.is_empty() && !self.closed {
            unattended.iter().for_each(|lane| self.attend(lane, now, posts));
        }
        if !self.effects.sends.is_empty() {
            self.send(posts);
        }
        if !self.effects.returned.is_empty() {
            self.release_payloads(posts);
        }
        if let Some(lane) = self.reads
            && !self.has_reader
            && !(self.attended | self.effects.running).contains(lane)
        {
            self.find_reader(lane, posts);
        }
        let mut timer = self.due_next();
        if !self.paused.is_empty() && (self.effects.running & !self.paused).is_empty() {
            timer = timer.min(now + CHOOSE_AGAIN);
        }
        if timer < self.armed {
            self.armed = timer;
            posts.release(self.processor);
        }
    }

    /// Critical work has been overloaded for long, and the file says that the run ends for it.
    #[cold]
    fn overloaded(&self) {
        let processor = self.common.system.processor(self.processor).name.clone();
        self.common.end(EndedBy::Overloaded { processor });
    }

    /// Started jobs were cancelled: built-in work ends, a body is asked to return.
    #[cold]
    fn stop_cancelled(&mut self) {
        while let Some(slot) = self.effects.cancelled.pop() {
            let thread = self.started[slot.0 as usize].thread;
            if thread != NOBODY {
                self.members[usize::from(thread)].signs.order(Order::Stop);
            }
        }
    }

    /// Completions leave for other processors.
    #[cold]
    fn send(&mut self, posts: &mut Posts) {
        for (to, signal) in self.effects.sends.drain(..) {
            self.links.send(to, signal, self.payloads.get(signal.ticket));
            posts.release(to);
        }
    }

    /// When the release thread has something to do next.
    #[inline]
    fn due_next(&self) -> Instant {
        self.effects.timer.min(self.links.next())
    }

    /// Payloads that no job needs any longer.
    fn release_payloads(&mut self, posts: &mut Posts) {
        let unserved = self.effects.returned.drain(..).filter_map(|ticket| self.payloads.release(ticket));
        unserved.for_each(|call| posts.refuse(call));
    }

    /// The run ends now, as a simulation does: the dispatcher accounts for what is unfinished.
    /// Idle threads end, waiting ones go on without their turn, and whoever returns from a body
    /// later is not listened to.
    pub fn close(&mut self, now: Instant, posts: &mut Posts) {
        if !std::mem::replace(&mut self.closed, true) {
            self.handle(now, Input::Close);
            self.common.stopping.store(true, Ordering::Release);
            self.members.iter().for_each(|member| member.signs.wake.post());
            posts.reader();
        }
        self.payloads.unserved().for_each(|call| posts.refuse(call));
    }

    /// The CPU time that a started job has used.
    fn consumed(&self, slot: Slot) -> Span {
        let started = self.started[slot.0 as usize];
        let member = self.members.get(usize::from(started.thread));
        let time = member.and_then(|member| member.seat.as_ref()?.thread.cpu_time());
        time.map_or(Span::ZERO, |time| time.saturating_sub(started.began))
    }

    /// Something happened to the processor.
    #[inline(always)]
    fn handle(&mut self, now: Instant, input: Input) {
        self.dispatcher.handle(now, input, &mut self.effects);
    }

    /// Lane `lane` has the CPU, its job having used `executed`: what it runs from now on.
    #[inline]
    fn decide(&mut self, now: Instant, lane: u8, executed: Span) -> Option<Run> {
        self.handle(now, Input::LaneRuns { lane, executed });
        self.effects.run
    }

    /// The operation of the job in a slot.
    fn operation_of(&self, slot: Slot) -> &Operation {
        &self.operations[self.dispatcher.job(slot).local as usize]
    }
}
