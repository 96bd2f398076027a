//! What comes from outside a processor's own timers and chains: requests, and cancellation.

use hyoshi_model::{Instant, JobId, OperationId, Span};
use hyoshi_sched::Traits;
use hyoshi_trace::{Outcome, Probe, Request, Slot};

use super::Dispatcher;
use crate::effects::Effects;
use crate::job::{Job, State, Transition};
use crate::join::Token;
use crate::lane::Lane;
use crate::operation::{Intake, Operation};

impl<P: Probe> Dispatcher<P> {
    /// True if requests release the jobs of an operation, and it is on this processor.
    pub fn can_invoke(&self, id: OperationId) -> bool {
        self.local(id).is_some_and(|local| self.operations[local as usize].is_requested())
    }

    pub(super) fn local(&self, id: OperationId) -> Option<u32> {
        self.local_of.get(id.index()).copied().filter(|local| *local != u32::MAX)
    }

    /// A request arrives: what was due before comes first. False if it is refused; its ticket has come back then.
    pub(super) fn invoke(&mut self, now: Instant, request: Request, effects: &mut Effects) -> bool {
        self.advance(now, now, false, effects);
        let local = self.local(request.operation).filter(|_| self.can_invoke(request.operation));
        let Some(local) = local.filter(|local| self.operations[*local as usize].enabled) else {
            effects.returned.extend(request.ticket);
            return false;
        };
        let operation = &mut self.operations[local as usize];
        let token = Token { origin: request.origin, ..operation.own_token(now) };
        operation.next_number += 1;
        let job = self.requested_job(local, token, now, &request);
        let tickets = self.operations[local as usize].tickets.as_mut();
        let set = tickets.map(|tickets| {
            let set = tickets.take();
            tickets.of_mut(set)[0] = request.ticket;
            set
        });
        self.admit(now, Job { tickets: set.unwrap_or_default(), ..job }, effects)
    }

    /// The strategy ranks a request by what it asks for itself, within the levels that its operation's jobs can be in.
    fn requested_job(&self, local: u32, token: Token, now: Instant, request: &Request) -> Job {
        let operation = &self.operations[local as usize];
        let traits = Traits {
            operation: operation.id,
            critical: request.critical,
            period: operation.period,
            deadline: request.deadline.since(now),
            wcet: operation.wcet,
            importance: request.importance,
        };
        let job = self.new_job(local, token, now);
        let places = [0, 1].map(|strategy| {
            let ranking = &self.rankings[strategy.min(self.rankings.len() - 1)];
            ranking.place(&ranking.urgency(&traits))
        });
        let (ruling, other) = if self.ruling() == 0 { (0, 1) } else { (1, 0) };
        Job {
            deadline: request.deadline,
            critical: request.critical,
            level: places[ruling].level,
            tie: places[ruling].tie,
            lane: Lane::index_of(&self.lanes, places[ruling].level),
            other: places[other],
            ..job
        }
    }

    /// A job, or what its root's job has released, is needed no longer.
    pub(super) fn cancel_job(&mut self, now: Instant, id: JobId, chain: bool, effects: &mut Effects) {
        let head = self.local(id.operation).map(|local| self.operations[local as usize].numbered_by);
        let concerns = |operation: &Operation| match chain {
            true => Some(operation.numbered_by) == head,
            false => operation.id == id.operation,
        };
        for slot in (0..self.jobs.capacity() as u32).map(Slot) {
            let Some(job) = self.live_job(slot) else { continue };
            if job.id.number == id.number && concerns(&self.operations[job.local as usize]) {
                self.cancel_one(now, slot, effects);
            }
        }
        for operation in self.operations.iter_mut().filter(|operation| chain && concerns(operation)) {
            if let Intake::Join(join) = &mut operation.intake {
                join.forget(id.number, &mut effects.returned);
            }
        }
        if self.any_idle_guard && self.released == 0 {
            self.idle_point(now, effects);
        }
    }

    fn cancel_one(&mut self, now: Instant, slot: Slot, effects: &mut Effects) {
        let job = self.jobs.get_mut(slot);
        if job.started {
            if !core::mem::replace(&mut job.cancelled, true) {
                effects.cancelled.push(slot);
            }
            return;
        }
        match job.state {
            State::Held => {
                let local = job.local;
                self.operations[local as usize].held.retain(|held| *held != slot);
            }
            _ => self.leave_queue(slot),
        }
        effects.work.cancelled += 1;
        self.end(now, slot, (Transition::Drop, Outcome::Cancelled), Span::ZERO, effects);
    }
}
