//! Inputs from outside: requests and cancellation.

use hyoshi_model::{Instant, JobId, OperationId, Span, time::LONGEST_SPAN};
use hyoshi_sched::{LevelPosition, Traits};
use hyoshi_trace::{JobOutcome, JobRequest, Probe, Slot};

use super::Dispatcher;
use crate::effects::Effects;
use crate::job::{Job, JobState, Transition};
use crate::join::CompletionToken;
use crate::lane::LaneState;
use crate::operation::{Intake, OperationState};

impl<P: Probe> Dispatcher<P> {
    /// True if requests release the jobs of an operation, and it is on this processor.
    pub fn can_invoke(&self, id: OperationId) -> bool {
        self.local(id).is_some_and(|local| self.operations[local as usize].is_requested())
    }

    pub(super) fn local(&self, id: OperationId) -> Option<u32> {
        self.local_of.get(id.index()).copied().filter(|local| *local != u32::MAX)
    }

    /// Handles timers due by now, then the request. False if it is rejected; its ticket is then returned.
    pub(super) fn invoke(&mut self, now: Instant, request: JobRequest, effects: &mut Effects) -> bool {
        self.advance(now, now, false, effects);
        let local = self.local(request.operation).filter(|_| self.can_invoke(request.operation));
        let Some(local) = local.filter(|local| self.operations[*local as usize].enabled && !self.off) else {
            effects.returned.extend(request.ticket);
            return false;
        };
        let operation = &mut self.operations[local as usize];
        let token = CompletionToken { origin: request.origin, ..operation.own_token(now) };
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

    /// The job of a request, ranked by the request's own traits.
    fn requested_job(&self, local: u32, token: CompletionToken, now: Instant, request: &JobRequest) -> Job {
        let job = self.new_job(local, token, now);
        let critical = request.critical && self.operations[local as usize].critical;
        // The latest instant: a recording can hold none beyond.
        let deadline = request.deadline.min(now.saturating_add(LONGEST_SPAN));
        self.job_at_own_position(Job { deadline, critical, importance: request.importance, ..job })
    }

    /// A job of a request at the position of its own urgency.
    pub(super) fn job_at_own_position(&self, job: Job) -> Job {
        let second = self.rankings.len() - 1;
        let (strategy_in_force, other) = if self.strategy_in_force() == 0 { (0, second) } else { (second, 0) };
        let place = self.position_of_request(strategy_in_force, &job);
        let lane = LaneState::index_of(&self.lanes, place.level);
        Job { level: place.level, tie: place.tie, lane, other: self.position_of_request(other, &job), ..job }
    }

    /// The position of a request under one of the strategies.
    pub(super) fn position_of_request(&self, strategy: usize, job: &Job) -> LevelPosition {
        let (operation, ranking) = (&self.operations[job.local as usize], &self.rankings[strategy]);
        let declared = Traits {
            operation: operation.id,
            critical: job.critical,
            period: operation.period,
            deadline: operation.deadline.span(),
            wcet: operation.wcet,
            importance: operation.declared_importance,
        };
        // A late request has less time left, but never ranks above its operation's declared deadline.
        let deadline = job.deadline.since(job.release).max(declared.deadline);
        let asked = Traits { deadline, importance: job.importance, ..declared };
        let (declared, asked) = (ranking.urgency(&declared), ranking.urgency(&asked));
        // A request sets its rank, but not its class.
        ranking.place(if asked.class == declared.class { &asked } else { &declared })
    }

    /// The host is switched off: its jobs are lost, with the state of joins and guards.
    pub(super) fn switch_off(&mut self, now: Instant, effects: &mut Effects) {
        self.lost_jobs += self.cancel_where(now, |_, _| true, effects);
        for operation in &mut self.operations {
            operation.forget(&mut effects.returned);
        }
        self.end_regions(now, effects);
    }

    /// Cancels a job or, with `chain`, all jobs numbered by its release.
    pub(super) fn cancel_job(&mut self, now: Instant, id: JobId, chain: bool, effects: &mut Effects) {
        self.advance_before(now, effects);
        let head = self.local(id.operation).map(|local| self.operations[local as usize].numbered_by);
        let concerns = |operation: &OperationState| match chain {
            true => Some(operation.numbered_by) == head,
            false => operation.id == id.operation,
        };
        let concerned = |job: &Job, operations: &[OperationState]| {
            job.id.number == id.number && concerns(&operations[job.local as usize])
        };
        self.cancel_where(now, concerned, effects);
        for operation in self.operations.iter_mut().filter(|operation| chain && concerns(operation)) {
            if let Intake::Join(join) = &mut operation.intake {
                join.forget(id.number, &mut effects.returned);
            }
        }
        if self.any_idle_guard && self.released == 0 {
            self.idle_point(now, effects);
        }
    }

    /// Cancels the jobs that are `concerned`; returns how many.
    fn cancel_where(
        &mut self,
        now: Instant,
        concerned: impl Fn(&Job, &[OperationState]) -> bool,
        effects: &mut Effects,
    ) -> u64 {
        let (mut count, mut waited) = (0, false);
        for slot in (0..self.jobs.capacity() as u32).map(Slot) {
            if !self.jobs.is_live(slot) || !concerned(self.jobs.get(slot), &self.operations) {
                continue;
            }
            let job = self.jobs.get_mut(slot);
            if core::mem::replace(&mut job.cancelled, true) {
                continue;
            }
            count += 1;
            if job.started {
                effects.cancelled.push(slot);
            } else {
                waited = true;
            }
        }
        if waited {
            self.end_cancelled(now, effects);
        }
        count
    }

    /// Ends the cancelled jobs that have not started.
    fn end_cancelled(&mut self, now: Instant, effects: &mut Effects) {
        let jobs = &self.jobs;
        for operation in &mut self.operations {
            operation.held.retain(|held| !jobs.get(*held).cancelled);
        }
        self.empty_queues();
        for slot in (0..self.jobs.capacity() as u32).map(Slot) {
            let Some(job) = self.live_job(slot) else { continue };
            let (ends, ready) = (job.cancelled && !job.started, job.state == JobState::Ready);
            if ready && !ends {
                self.enqueue(slot, Transition::Requeue, effects);
            }
            if ends {
                if let (true, Some(switching)) = (ready, &mut self.switching) {
                    switching.leaves(slot, self.jobs.get(slot));
                }
                effects.work.cancelled += 1;
                self.end(now, slot, (Transition::Drop, JobOutcome::Cancelled), Span::ZERO, effects);
            }
        }
    }
}
