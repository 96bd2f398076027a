//! Calls of bodies through objects: the file divides the caller into `NAME:call` and `NAME`, and one body runs both.
//!
//! ```text
//!   body of NAME:   runs as job of NAME:call │ call: the job completes │ reply: a job of NAME │ runs as that job
//!                                            │ the request carries its │ is released, and     │
//!                                            │ completion              │ waits for its turn   │
//! ```
//!
//! The request and its reply replace the completions that would go over the links. So the dispatchers of both sides
//! decide as in a simulation, and the recordings are the same.

use std::sync::atomic::Ordering;

use hyoshi_dispatch::{JobState, Run};
use hyoshi_model::{Instant, OperationId, Span};
use hyoshi_os::Scheduled;
use hyoshi_trace::{Input, Signal, Slot};

use super::{BodyOutput, Crew};
use crate::common::BodyOrder;
use crate::context::CurrentJob;
use crate::wakeups::PendingWakeups;

/// In a ticket: a waiting thread owns it, not a request.
pub(super) const THREAD: u32 = 1 << 31;

/// The most rests that a processor remembers as answered. Each lives until the rest completes; one that is cancelled
/// never does, so the oldest make room.
pub(super) const MOST_ANSWERED: usize = 64;

/// A call that has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DepartedCall {
    method: OperationId,
    rest: OperationId,
    number: u64,
    origin: Instant,
    period: Span,
}

/// The state of a body's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallStep {
    /// Sleep until woken, then ask again.
    Wait,
    /// The part before the call is complete.
    Left(DepartedCall),
    /// The lane has no other thread: the job keeps its token during the call.
    Kept(DepartedCall),
    /// The rest of the job runs on this thread.
    Runs(CurrentJob),
    /// The rest was dropped or cancelled, or the run is over: the body should return.
    Over,
}

/// Where a thread is in a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum InCall {
    #[default]
    No,
    /// The part before the call is complete.
    Away,
    /// The reply has arrived: a job of this operation with this number continues the body.
    Returned(OperationId, u64),
    /// That job was dropped or cancelled.
    Dropped,
    /// The job has kept its lane: its own completion leads to no method.
    Kept,
}

impl<S: Scheduled> Crew<S> {
    /// The body of thread `me` calls the method of its job's operation; its thread's CPU clock is at `cpu`.
    pub fn call_out(&mut self, me: u16, slot: Slot, now: Instant, cpu: Span, wakeups: &mut PendingWakeups) -> CallStep {
        let job = *self.dispatcher.job(slot);
        let Some(parts) = self.common.calls[job.id.operation.index()] else { return CallStep::Over };
        let (number, origin, period) = (job.id.number, job.origin, job.period);
        let call = DepartedCall { method: parts.method, rest: parts.rest, number, origin, period };
        if self.closed {
            return CallStep::Kept(call);
        }
        let lane = self.members[usize::from(me)].lane;
        if !self.has_another(lane, me) {
            self.common.blocked_lanes.fetch_add(1, Ordering::Relaxed);
            self.members[usize::from(me)].call = InCall::Kept;
            return CallStep::Kept(call);
        }
        if matches!(job.state, JobState::Ready | JobState::Suspended | JobState::Held) {
            // A better job of its lane runs, or it was stopped: only the first of a lane can complete.
            let consumed = cpu.saturating_sub(self.started[slot.0 as usize].began);
            if !std::mem::replace(&mut self.members[usize::from(me)].waits, true) && job.state == JobState::Suspended {
                self.handle(now, Input::Resume { slot, consumed });
            }
            self.apply(me);
            self.settle(now, wakeups);
            return CallStep::Wait;
        }
        let consumed = cpu.saturating_sub(self.started[slot.0 as usize].began);
        self.unbind(me, slot);
        // A job that was stopped or cancelled triggers nothing: the call has no rest.
        let ends = job.stopped || job.cancelled;
        self.members[usize::from(me)].call = if ends { InCall::Dropped } else { InCall::Away };
        // Without a payload there is no ticket to release.
        let _ = self.complete(now, slot, consumed, BodyOutput::default(), wakeups);
        // The request carries it.
        self.effects.sends.retain(|(_, signal)| signal.to != parts.method);
        self.apply(me);
        self.settle(now, wakeups);
        CallStep::Left(call)
    }

    /// The call of thread `me` is over, with a reply or an exception.
    pub fn call_back(
        &mut self,
        me: u16,
        call: DepartedCall,
        now: Instant,
        cpu: Span,
        wakeups: &mut PendingWakeups,
    ) -> CallStep {
        if self.closed {
            return CallStep::Over;
        }
        if self.members[usize::from(me)].call == InCall::Dropped {
            return self.call_step(me, cpu);
        }
        let kept = self.members[usize::from(me)].call == InCall::Kept;
        if !kept {
            self.members[usize::from(me)].call = InCall::Returned(call.rest, call.number);
        }
        if kept && self.members[usize::from(me)].answers {
            if self.answered.len() == MOST_ANSWERED {
                self.answered.pop_front();
            }
            self.answered.push_back((call.rest, call.number));
        }
        let ticket = if kept { None } else { self.payloads.insert_call(THREAD | u32::from(me)) };
        if !kept && ticket.is_none() {
            // Without a ticket nothing wakes the thread if the rest is dropped.
            self.common.lost_signals.fetch_add(1, Ordering::Relaxed);
            self.members[usize::from(me)].call = InCall::Dropped;
            return self.call_step(me, cpu);
        }
        let from = self.common.last_part(call.method);
        let DepartedCall { rest: to, number, origin, period, .. } = call;
        self.handle(now, Input::Signal(Signal { from, to, position: 0, number, origin, period, due: now, ticket }));
        self.release_payloads(wakeups);
        self.handle(now, Input::Tick);
        if kept {
            self.settle(now, wakeups);
            return CallStep::Over;
        }
        // Usually it is first in its lane: then no other thread must wake up for the decision.
        let lane = self.members[usize::from(me)].lane;
        let free = self.effects.startable.contains(lane) && !self.attended.contains(lane);
        if free
            && self.dispatcher.best(lane).and_then(|slot| self.caller_of(slot)) == Some(me)
            && let Some(run) = self.decide(now, lane, Span::ZERO)
        {
            self.bind_caller(me, run, cpu);
        }
        self.settle(now, wakeups);
        self.call_step(me, cpu)
    }

    /// Whether the thread may continue.
    pub fn call_step(&mut self, me: u16, cpu: Span) -> CallStep {
        let member = &mut self.members[usize::from(me)];
        if let Some(slot) = member.job {
            // Another thread may have bound the job without knowing when it would start.
            self.started[slot.0 as usize].began = cpu;
            member.call = InCall::No;
            return CallStep::Runs(self.current_job(slot));
        }
        if self.closed {
            return CallStep::Over;
        }
        if member.call == InCall::Dropped {
            member.control.order(BodyOrder::Stop);
            self.apply(me);
            return CallStep::Over;
        }
        CallStep::Wait
    }

    /// Whether a body runs the rest of its operation, too.
    pub(super) fn has_caller(&self, rest: OperationId) -> bool {
        let calls = |operation: &super::CrewOperation| {
            let parts = self.common.calls[operation.id.index()];
            operation.has_body && parts.is_some_and(|parts| parts.rest == rest)
        };
        self.operations.iter().any(calls)
    }

    /// Whether the job in a slot continues a body that waits for it: its thread.
    pub(super) fn caller_of(&self, slot: Slot) -> Option<u16> {
        let job = self.dispatcher.job(slot);
        if !self.common.rests[job.id.operation.index()] || self.started[slot.0 as usize].thread != super::NOBODY {
            return None;
        }
        let waiting = InCall::Returned(job.id.operation, job.id.number);
        self.members.iter().position(|member| member.call == waiting).map(|thread| thread as u16)
    }

    /// The decided job runs on the thread whose body waits for it.
    pub(super) fn bind_caller(&mut self, thread: u16, run: Run, cpu: Span) {
        let lane = self.dispatcher.job(run.slot).lane;
        self.members[usize::from(thread)].lane = lane;
        self.bind(thread, run, cpu);
        self.apply(thread);
    }

    /// A request that no job serves; a thread's own ticket ends its wait.
    pub(super) fn unserved(&mut self, call: u32, wakeups: &mut PendingWakeups) {
        if call & THREAD == 0 {
            return wakeups.refuse(call);
        }
        let thread = (call & !THREAD) as u16;
        let member = &mut self.members[usize::from(thread)];
        if matches!(member.call, InCall::Returned(..)) && member.job.is_none() {
            member.call = InCall::Dropped;
            wakeups.wake_thread(thread, member.lane);
        }
    }

    /// A body has returned whose job had left it: nothing is completed.
    pub fn leave_over(&mut self, me: u16, local: u32, cell: Option<Box<crate::body::BodyCell>>, now: Instant) {
        if let Some(mut cell) = cell {
            drop(cell.payload_buffers.take());
            cell.hops.take();
            if self.closed {
                return;
            }
            self.leave_body(local, cell, now);
        }
        let member = &mut self.members[usize::from(me)];
        (member.call, member.lane) = (InCall::No, member.home);
        member.control.end();
        self.attended.insert(member.lane);
        self.apply(me);
    }
}
