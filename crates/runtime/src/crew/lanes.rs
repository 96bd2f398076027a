//! How a lane's threads start and end jobs.

use std::time::Instant as WallClock;

use hyoshi_dispatch::{JobState, Run};
use hyoshi_model::{Instant, OperationId, Span};
use hyoshi_os::Scheduled;
use hyoshi_trace::{Input, Slot};

use super::{BodyOutput, Crew, InCall, NOBODY, NOT_STARTED, Started};
use crate::body::BodyCell;
use crate::context::CurrentJob;
use crate::wakeups::PendingWakeups;

/// The next step of a lane thread.
#[derive(Debug)]
pub(crate) enum LaneStep {
    /// Run this job.
    Run(JobStart),
    /// Decide again: a more urgent lane had to be woken first.
    Again,
    /// Sleep until woken.
    Idle,
    /// The body has returned, but the job is not first in its lane: sleep until woken, then finish again.
    Turn(Returned),
    /// The run has ended.
    End,
}

/// A job that starts on the calling thread.
#[derive(Debug)]
pub(crate) struct JobStart {
    pub slot: Slot,
    pub now: CurrentJob,
    /// The operation's position in the plan.
    pub local: u32,
    pub epoch: u16,
    /// `None` for built-in work.
    pub cell: Option<Box<BodyCell>>,
    /// The request that it serves.
    pub call: Option<u32>,
    /// A body that has ended without its call: nothing is left to do.
    pub idle: bool,
}

/// A job after its body has returned.
#[derive(Debug)]
pub(crate) struct Returned {
    pub slot: Slot,
    pub cell: Option<Box<BodyCell>>,
    /// CPU time of the job, if the body measured it.
    pub consumed: Option<Span>,
    /// CPU time of the thread at the end of the body.
    pub cpu: Span,
    /// The same when it can begin its next job: later than `cpu` if it has read requests.
    pub cpu_after: Span,
    /// The position in the plan of the operation with the cell.
    pub local: u32,
    /// It served the call of an operation of the file: its reply carries its completion.
    pub answered: bool,
}

impl<S: Scheduled> Crew<S> {
    /// The next step of thread `me`, which is awake with its CPU clock at `cpu`.
    pub fn next(&mut self, me: u16, now: Instant, cpu: Span, wakeups: &mut PendingWakeups) -> LaneStep {
        let member = &self.members[usize::from(me)];
        let lane = member.lane;
        if let Some(slot) = member.job {
            // Another thread bound the job without knowing when it would start.
            self.started[slot.0 as usize].began = cpu;
            return LaneStep::Run(self.begin(me, slot));
        }
        if self.closed {
            return LaneStep::End;
        }
        if member.idle {
            return LaneStep::Idle;
        }
        while self.effects.startable.contains(lane) {
            let began = WallClock::now();
            let Some(run) = self.decide(now, lane, Span::ZERO) else { break };
            self.queueing.dequeued(Span::from_nanos(began.elapsed().as_nanos() as u64));
            if self.started[run.slot.0 as usize].thread != NOBODY {
                self.turn(run.slot, wakeups);
                break;
            }
            if let Some(thread) = self.caller_of(run.slot) {
                self.bind_caller(thread, run, self.cpu_time_of(thread));
                wakeups.wake_thread(thread, lane);
                break;
            }
            if self.occupied(run) {
                self.set_aside(now, run);
                continue;
            }
            self.bind(me, run, cpu);
            self.attended.remove(lane);
            self.settle(now, wakeups);
            return LaneStep::Run(self.begin(me, run.slot));
        }
        self.attended.remove(lane);
        self.members[usize::from(me)].idle = true;
        self.lanes[usize::from(lane)].idle.push(me);
        self.settle(now, wakeups);
        LaneStep::Idle
    }

    /// Completes the job of `me` after its body has returned, and decides the next step.
    pub fn finish(&mut self, me: u16, now: Instant, returned: Returned, wakeups: &mut PendingWakeups) -> LaneStep {
        let Returned { slot, cpu, cpu_after, answered, local, .. } = returned;
        if self.closed {
            return LaneStep::End;
        }
        let job = *self.dispatcher.job(slot);
        let since = cpu.saturating_sub(self.started[slot.0 as usize].began);
        let consumed = returned.consumed.unwrap_or(since);
        match job.state {
            JobState::Running | JobState::Demoted => {}
            JobState::Suspended | JobState::Ready | JobState::Held => {
                // It was stopped and lost its lane, or a better job sleeps: only the first of a lane can complete.
                self.members[usize::from(me)].demoted = false;
                if !std::mem::replace(&mut self.members[usize::from(me)].waits, true)
                    && job.state == JobState::Suspended
                {
                    self.handle(now, Input::Resume { slot, consumed });
                }
                self.apply(me);
                self.settle(now, wakeups);
                return LaneStep::Turn(returned);
            }
        }
        let mut cell = returned.cell;
        // The body ran before a call that kept the lane, and the method received the output.
        let has_run =
            cell.is_none() && self.common.rests[job.id.operation.index()] && self.has_caller(job.id.operation);
        let payload = cell.as_mut().and_then(|cell| cell.payload_buffers.take());
        let hops = cell.as_mut().map(|cell| cell.hops.take());
        self.unbind(me, slot);
        let output = BodyOutput { payload, flushes: !has_run, hops };
        let ticket = self.complete(now, slot, consumed, output, wakeups);
        let kept = self.answered.iter().position(|one| *one == (job.id.operation, job.id.number));
        let answered = kept.and_then(|at| self.answered.remove(at)).is_some() || answered;
        self.omit_carried(me, job.id.operation, answered);
        if let Some(cell) = cell {
            self.leave_body(local, cell, now);
        }
        let lane = self.members[usize::from(me)].lane;
        self.attended.insert(lane);
        self.apply(me);
        self.settle(now, wakeups);
        wakeups.send_hops_on(lane);
        if let Some(ticket) = ticket {
            // A job's own payload, not a request.
            let _ = self.payloads.release(ticket);
        }
        if wakeups.above(lane) { LaneStep::Again } else { self.next(me, now, cpu_after, wakeups) }
    }

    /// Requests and replies carry some completions: they do not go over the links.
    fn omit_carried(&mut self, me: u16, operation: OperationId, answered: bool) {
        if answered {
            let rests = &self.common.rests;
            self.effects.sends.retain(|(_, signal)| !rests[signal.to.index()]);
        }
        if std::mem::take(&mut self.members[usize::from(me)].call) == InCall::Kept
            && let Some(parts) = self.common.calls[operation.index()]
        {
            self.effects.sends.retain(|(_, signal)| signal.to != parts.method);
        }
    }

    /// The lane has a job to start, but no active thread: wakes one.
    pub(super) fn attend(&mut self, lane: u8, now: Instant, wakeups: &mut PendingWakeups) {
        if let Some(thread) = self.lanes[usize::from(lane)].idle.pop() {
            self.members[usize::from(thread)].idle = false;
            self.attended.insert(lane);
            wakeups.wake_thread(thread, lane);
            return;
        }
        // All threads of the lane have jobs. If one of those jobs is first, its thread continues.
        let best = self.dispatcher.best(lane);
        let is_started = |slot: Slot| self.started[slot.0 as usize].thread != NOBODY;
        if best.is_some_and(is_started)
            && let Some(run) = self.decide(now, lane, Span::ZERO)
        {
            self.turn(run.slot, wakeups);
        }
    }

    /// In the lane that has the CPU, the running job yields to a better one. Lanes below do that when they get the CPU,
    /// as in the simulator.
    pub(super) fn preempt(&mut self, now: Instant, wakeups: &mut PendingWakeups) {
        let Some(lane) = (self.effects.startable | self.effects.running).first() else { return };
        if !self.effects.woken.contains(lane) || self.closed {
            return;
        }
        self.effects.woken.remove(lane);
        let Some(running) = self.dispatcher.lanes()[usize::from(lane)].running else { return };
        let best = self.dispatcher.best(lane);
        let is_started = best.is_some_and(|slot| self.started[slot.0 as usize].thread != NOBODY);
        let is_awaited = best.is_some_and(|slot| self.caller_of(slot).is_some());
        if best.is_none() || (!is_started && !is_awaited && self.lanes[usize::from(lane)].idle.is_empty()) {
            return;
        }
        let Some(run) = self.decide(now, lane, self.consumed(running)) else { return };
        // This decision's own wake-ups are decided.
        self.effects.woken.remove(lane);
        if let Some(preempted) = run.preempted {
            let thread = self.started[preempted.0 as usize].thread;
            if thread != NOBODY {
                self.apply(thread);
            }
        }
        if self.started[run.slot.0 as usize].thread != NOBODY {
            self.turn(run.slot, wakeups);
        } else if let Some(thread) = self.caller_of(run.slot) {
            self.bind_caller(thread, run, self.cpu_time_of(thread));
            wakeups.wake_thread(thread, lane);
        } else if self.occupied(run) {
            self.set_aside(now, run);
        } else if let Some(thread) = self.lanes[usize::from(lane)].idle.pop() {
            self.members[usize::from(thread)].idle = false;
            self.bind(thread, run, self.cpu_time_of(thread));
            wakeups.wake_thread(thread, lane);
        }
    }

    /// A started job is first in its lane again: its thread continues.
    pub(super) fn turn(&mut self, slot: Slot, wakeups: &mut PendingWakeups) {
        let thread = self.started[slot.0 as usize].thread;
        let member = &mut self.members[usize::from(thread)];
        if std::mem::take(&mut member.waits) {
            wakeups.wake_thread(thread, member.lane);
        }
        self.apply(thread);
    }

    /// True if an earlier job is inside the operation's body.
    fn occupied(&self, run: Run) -> bool {
        let operation = &self.operations[run.local as usize];
        operation.has_body && operation.cell.is_none()
    }

    /// Bodies are not entered twice: the job waits without a thread until the earlier one has left.
    #[cold]
    fn set_aside(&mut self, now: Instant, run: Run) {
        self.operations[run.local as usize].aside.push_back(run.slot);
        self.handle(now, Input::Suspend { slot: run.slot });
    }

    /// The body is free: its next waiting job returns to its lane.
    pub(super) fn leave_body(&mut self, local: u32, cell: Box<BodyCell>, now: Instant) {
        let operation = &mut self.operations[local as usize];
        operation.cell = Some(cell);
        if let Some(slot) = operation.aside.pop_front() {
            self.handle(now, Input::Resume { slot, consumed: Span::ZERO });
        }
    }

    pub(super) fn bind(&mut self, thread: u16, run: Run, cpu: Span) {
        let cell = self.operations[run.local as usize].cell.take();
        let index = run.slot.0 as usize;
        if index >= self.started.len() {
            debug_assert!(false, "more live jobs than queues allow");
            self.started.resize(index + 1, NOT_STARTED);
        }
        self.started[index] = Started { thread, began: cpu, ended: None };
        let member = &mut self.members[usize::from(thread)];
        (member.job, member.cell) = (Some(run.slot), cell);
        member.control.begin(run.job.operation, cpu);
        if self.effects.paused.contains(member.lane) {
            self.apply(thread);
        }
    }

    pub(super) fn unbind(&mut self, thread: u16, slot: Slot) {
        self.started[slot.0 as usize] = NOT_STARTED;
        let member = &mut self.members[usize::from(thread)];
        (member.job, member.demoted, member.waits, member.lane) = (None, false, false, member.home);
        member.control.end();
    }

    fn begin(&mut self, me: u16, slot: Slot) -> JobStart {
        let job = *self.dispatcher.job(slot);
        let mut cell = self.members[usize::from(me)].cell.take();
        if let Some(cell) = &mut cell {
            let tickets = self.dispatcher.tickets(slot).iter();
            cell.inputs.iter_mut().zip(tickets).for_each(|(input, ticket)| *input = self.payloads.get(*ticket));
        }
        let ticket = self.dispatcher.tickets(slot).first().copied().flatten();
        let call = ticket.and_then(|ticket| self.payloads.take_call(ticket));
        let is_requested = self.common.system.operation(job.id.operation).is_requested();
        self.members[usize::from(me)].answers = call.is_some() && !is_requested;
        let idle = cell.is_none() && self.common.rests[job.id.operation.index()] && self.has_caller(job.id.operation);
        JobStart { slot, now: self.current_job(slot), local: job.local, epoch: job.epoch, cell, call, idle }
    }
}
