//! How a lane's threads come to a job, and how they leave it.

use std::time::Instant as WallClock;

use hyoshi_dispatch::{JobState, Run};
use hyoshi_model::{Instant, JobId, Span};
use hyoshi_os::Scheduled;
use hyoshi_trace::{Input, Slot};

use super::{Crew, NOBODY, NOT_STARTED, Started};
use crate::body::Cell;
use crate::posts::Posts;

/// What a lane thread does next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Run this job.
    Run(Begin),
    /// Look again: a more urgent lane had to be woken first.
    Again,
    /// Sleep until posted.
    Idle,
    /// The body has returned, but the job is not its lane's first: sleep until posted, then finish again.
    Turn(Returned),
    /// The run is over.
    End,
}

/// A job that begins on the thread that asked.
#[derive(Debug)]
pub(crate) struct Begin {
    pub slot: Slot,
    pub job: JobId,
    pub release: Instant,
    pub deadline: Instant,
    pub epoch: u16,
    /// `None` for built-in work.
    pub cell: Option<Box<Cell>>,
    /// The request that it serves.
    pub call: Option<u32>,
}

/// A job whose body has returned.
#[derive(Debug)]
pub(crate) struct Returned {
    pub slot: Slot,
    pub cell: Option<Box<Cell>>,
    /// CPU time that the job used in all, if the body itself measured it.
    pub consumed: Option<Span>,
    /// CPU time of the thread at the end of the body.
    pub cpu: Span,
}

impl<S: Scheduled> Crew<S> {
    /// Thread `me` is awake, its CPU clock at `cpu`: what does it do?
    pub fn next(&mut self, me: u16, now: Instant, cpu: Span, posts: &mut Posts) -> Step {
        let member = &self.members[usize::from(me)];
        let lane = member.lane;
        if let Some(slot) = member.job {
            // Placed here by somebody else, who could not know when it would begin.
            self.started[slot.0 as usize].began = cpu;
            return Step::Run(self.begin(me, slot));
        }
        if self.closed {
            return Step::End;
        }
        if member.idle {
            return Step::Idle;
        }
        while self.effects.startable.contains(lane) {
            let began = WallClock::now();
            let Some(run) = self.decide(now, lane, Span::ZERO) else { break };
            self.queueing.dequeued(Span::from_nanos(began.elapsed().as_nanos() as u64));
            if self.started[run.slot.0 as usize].thread != NOBODY {
                self.turn(run.slot, posts);
                break;
            }
            if self.occupied(run) {
                self.set_aside(now, run);
                continue;
            }
            self.bind(me, run, cpu);
            self.attended.remove(lane);
            self.settle(now, posts);
            return Step::Run(self.begin(me, run.slot));
        }
        self.attended.remove(lane);
        self.members[usize::from(me)].idle = true;
        self.lanes[usize::from(lane)].idle.push(me);
        self.settle(now, posts);
        Step::Idle
    }

    /// The body of `me`'s job has returned. Completes the job and looks for the next.
    pub fn finish(&mut self, me: u16, now: Instant, returned: Returned, posts: &mut Posts) -> Step {
        let Returned { slot, cpu, .. } = returned;
        if self.closed {
            return Step::End;
        }
        let job = *self.dispatcher.job(slot);
        let since = cpu.saturating_sub(self.started[slot.0 as usize].began);
        let consumed = returned.consumed.unwrap_or(since);
        match job.state {
            JobState::Running | JobState::Demoted => {}
            JobState::Suspended | JobState::Ready | JobState::Held => {
                // It was told to stop and has lost its lane, or a better job sleeps: only the first
                // of a lane can complete.
                self.members[usize::from(me)].demoted = false;
                if !std::mem::replace(&mut self.members[usize::from(me)].waits, true)
                    && job.state == JobState::Suspended
                {
                    self.handle(now, Input::Resume { slot, consumed });
                }
                self.apply(me);
                self.settle(now, posts);
                return Step::Turn(returned);
            }
        }
        let mut cell = returned.cell;
        let ticket = self.payloads.insert(cell.as_mut().and_then(|cell| cell.outlet.take()));
        self.unbind(me, slot);
        self.handle(now, Input::Complete { slot, consumed, ticket });
        self.payloads.hold(ticket, self.effects.passed_on);
        if let Some(cell) = cell {
            self.leave_body(job.local, cell, now);
        }
        let lane = self.members[usize::from(me)].lane;
        self.attended.insert(lane);
        self.apply(me);
        self.settle(now, posts);
        if let Some(ticket) = ticket {
            // A job's own payload: no request.
            let _ = self.payloads.release(ticket);
        }
        if posts.above(lane) { Step::Again } else { self.next(me, now, cpu, posts) }
    }

    /// The lane has something to start and nobody to do it: wakes a thread.
    pub(super) fn attend(&mut self, lane: u8, now: Instant, posts: &mut Posts) {
        if let Some(thread) = self.lanes[usize::from(lane)].idle.pop() {
            self.members[usize::from(thread)].idle = false;
            self.attended.insert(lane);
            posts.thread(thread, lane);
            return;
        }
        // Every thread of the lane has a job. If one of those is first, its thread goes on.
        let best = self.dispatcher.best(lane);
        let goes_on = |slot: Slot| self.started[slot.0 as usize].thread != NOBODY;
        if best.is_some_and(goes_on)
            && let Some(run) = self.decide(now, lane, Span::ZERO)
        {
            self.turn(run.slot, posts);
        }
    }

    /// Of the lane that has the CPU the running job gives way to a better one, if there is one.
    /// Lanes below it do so when it has become their turn, as in the simulator.
    pub(super) fn preempt(&mut self, now: Instant, posts: &mut Posts) {
        let Some(lane) = (self.effects.startable | self.effects.running).first() else { return };
        if !self.effects.woken.contains(lane) || self.closed {
            return;
        }
        self.effects.woken.remove(lane);
        let Some(running) = self.dispatcher.lanes()[usize::from(lane)].running else { return };
        let best = self.dispatcher.best(lane);
        let goes_on = best.is_some_and(|slot| self.started[slot.0 as usize].thread != NOBODY);
        if best.is_none() || (!goes_on && self.lanes[usize::from(lane)].idle.is_empty()) {
            return;
        }
        let Some(run) = self.decide(now, lane, self.consumed(running)) else { return };
        // What this decision itself wakes is decided.
        self.effects.woken.remove(lane);
        if let Some(preempted) = run.preempted {
            let thread = self.started[preempted.0 as usize].thread;
            if thread != NOBODY {
                self.apply(thread);
            }
        }
        if self.started[run.slot.0 as usize].thread != NOBODY {
            self.turn(run.slot, posts);
        } else if self.occupied(run) {
            self.set_aside(now, run);
        } else if let Some(thread) = self.lanes[usize::from(lane)].idle.pop() {
            let asleep = self.members[usize::from(thread)].seat.as_ref().and_then(|seat| seat.thread.cpu_time());
            self.members[usize::from(thread)].idle = false;
            self.bind(thread, run, asleep.unwrap_or_default());
            posts.thread(thread, lane);
        }
    }

    /// A started job is its lane's first again: its thread goes on.
    pub(super) fn turn(&mut self, slot: Slot, posts: &mut Posts) {
        let thread = self.started[slot.0 as usize].thread;
        let member = &mut self.members[usize::from(thread)];
        if std::mem::take(&mut member.waits) {
            posts.thread(thread, member.lane);
        }
        self.apply(thread);
    }

    /// True if an earlier job is inside the body of the operation.
    fn occupied(&self, run: Run) -> bool {
        let operation = &self.operations[run.local as usize];
        operation.has_body && operation.cell.is_none()
    }

    /// Bodies are not entered twice: the job waits, without a thread, until the earlier one is out.
    #[cold]
    fn set_aside(&mut self, now: Instant, run: Run) {
        self.operations[run.local as usize].aside.push_back(run.slot);
        self.handle(now, Input::Suspend { slot: run.slot });
    }

    /// The body is free: the next job that was set aside for it goes back into its lane.
    fn leave_body(&mut self, local: u32, cell: Box<Cell>, now: Instant) {
        let operation = &mut self.operations[local as usize];
        operation.cell = Some(cell);
        if let Some(slot) = operation.aside.pop_front() {
            self.handle(now, Input::Resume { slot, consumed: Span::ZERO });
        }
    }

    fn bind(&mut self, thread: u16, run: Run, cpu: Span) {
        let cell = self.operations[run.local as usize].cell.take();
        let place = run.slot.0 as usize;
        if place >= self.started.len() {
            debug_assert!(false, "more live jobs than queues allow");
            self.started.resize(place + 1, NOT_STARTED);
        }
        self.started[place] = Started { thread, began: cpu };
        let member = &mut self.members[usize::from(thread)];
        (member.job, member.cell) = (Some(run.slot), cell);
        member.signs.begin(run.job.operation, cpu);
        if self.effects.paused.contains(member.lane) {
            self.apply(thread);
        }
    }

    pub(super) fn unbind(&mut self, thread: u16, slot: Slot) {
        self.started[slot.0 as usize] = NOT_STARTED;
        let member = &mut self.members[usize::from(thread)];
        (member.job, member.demoted, member.waits) = (None, false, false);
        member.signs.end();
    }

    fn begin(&mut self, me: u16, slot: Slot) -> Begin {
        let job = *self.dispatcher.job(slot);
        let mut cell = self.members[usize::from(me)].cell.take();
        if let Some(cell) = &mut cell {
            let tickets = self.dispatcher.tickets(slot).iter();
            cell.inputs.iter_mut().zip(tickets).for_each(|(input, ticket)| *input = self.payloads.get(*ticket));
        }
        let ticket = self.dispatcher.tickets(slot).first().copied().flatten();
        let call = ticket.and_then(|ticket| self.payloads.take_call(ticket));
        Begin { call, slot, job: job.id, release: job.release, deadline: job.deadline, epoch: job.epoch, cell }
    }
}
