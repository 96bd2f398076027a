//! Lanes' queues and tokens, and the end of jobs.

use hyoshi_model::{Instant, OnMiss, ResourceId, Span};
use hyoshi_trace::{DispatchDecision, JobEnd, JobOutcome, JobService, Probe, Signal, Slot, Ticket};

use super::Dispatcher;
use crate::effects::Effects;
use crate::job::{Job, JobState, Transition};
use crate::join::CompletionToken;
use crate::lane::LaneState;
use crate::operation::Successor;
use crate::queue::{QueueRank, key};

impl<P: Probe> Dispatcher<P> {
    /// Puts a job into its lane's queue: as a new arrival when it is released or resumed, else at the position of its
    /// arrival.
    pub(super) fn enqueue(&mut self, slot: Slot, transition: Transition, effects: &mut Effects) {
        let job = self.jobs.get_mut(slot);
        job.make(transition);
        if matches!(transition, Transition::Release | Transition::Resume) {
            job.arrival = self.arrival;
            self.arrival += 1;
            effects.work.enqueued += 1;
        }
        if let (Some(switching), true) = (&mut self.switching, transition != Transition::Requeue) {
            switching.waits(slot, job);
        }
        let rank = self.rank(slot);
        let job = self.jobs.get(slot);
        self.lanes[usize::from(job.lane)].queue_mut(job.critical).enqueue(rank, slot);
        let waiting = if job.critical { &mut self.waiting.0 } else { &mut self.waiting.1 };
        waiting.insert(job.lane);
        effects.woken.insert(job.lane);
    }

    pub(super) fn rank(&self, slot: Slot) -> QueueRank {
        let job = self.jobs.get(slot);
        let discipline = self.disciplines[usize::from(job.level)];
        let key = if job.carried { 0 } else { key(discipline, job.deadline, job.remaining) };
        QueueRank::new(job.level, key, job.tie, job.arrival)
    }

    /// Updates the masks after a job has left a queue of `lane`.
    #[inline]
    pub(super) fn left_queue(&mut self, lane: u8, slot: Slot) {
        if let Some(switching) = &mut self.switching {
            switching.leaves(slot, self.jobs.get(slot));
        }
        let (critical, other) = self.lanes[usize::from(lane)].occupied();
        self.waiting.0.set(lane, critical);
        self.waiting.1.set(lane, other);
    }
    /// Removes the job that the lane must run next from the queue.
    pub(super) fn dequeue(&mut self, lane: u8) -> Option<Slot> {
        let critical_only = lane >= self.gate();
        let state = &mut self.lanes[usize::from(lane)];
        let slot = if !state.preemptive || self.held.is_empty() {
            state.dequeue(critical_only)?
        } else {
            let (_, best) = state.best(critical_only)?;
            let slot = if self.ceilings_admit(lane, best) { best } else { self.best_started(lane)? };
            let critical = self.jobs.get(slot).critical;
            self.lanes[usize::from(lane)].queue_mut(critical).remove(slot);
            slot
        };
        self.left_queue(lane, slot);
        Some(slot)
    }

    /// True if a better waiting job must preempt the running job of a fully preemptive lane.
    pub(super) fn must_yield(&mut self, lane: u8, running: Slot, executed: Span) -> bool {
        if !self.lanes[usize::from(lane)].preemptive {
            return false;
        }
        let critical_only = lane >= self.gate();
        let job = self.jobs.get_mut(running);
        job.remaining = job.wcet.saturating_sub(executed);
        let Some((rank, waiting)) = self.lanes[usize::from(lane)].best(critical_only) else { return false };
        // While it holds a resource it runs at the ceiling. If that is above its lane, no job of the lane preempts it;
        // within its lane only a job that never needs the resource does, started or not.
        let above = self.effective_level(running) < self.jobs.get(running).level;
        let relative = self.operations[self.jobs.get(waiting).local as usize].deadline.span();
        let held = self.held.iter().filter(|(holder, _)| *holder == running);
        let mut ceilings = held.map(|(_, resource)| self.ceiling_deadlines[resource.index()]);
        !above
            && rank.beats(self.rank(running))
            && ceilings.all(|ceiling| relative < ceiling)
            && self.ceilings_admit(lane, waiting)
    }

    /// Stack resource policy (Baker 1991): a job may start only if its preemption level is above every ceiling in force
    /// in its lane; preemption levels are by relative deadline. So it never finds a resource held, and the holder of
    /// one continues.
    fn ceilings_admit(&self, lane: u8, candidate: Slot) -> bool {
        let job = self.jobs.get(candidate);
        let relative = self.operations[job.local as usize].deadline.span();
        let in_force = |(holder, _): &&(Slot, ResourceId)| {
            let holding = self.jobs.get(*holder);
            *holder != candidate && holding.lane == lane && matches!(holding.state, JobState::Running | JobState::Ready)
        };
        let mut ceilings =
            self.held.iter().filter(in_force).map(|(_, resource)| self.ceiling_deadlines[resource.index()]);
        job.started || ceilings.all(|ceiling| relative < ceiling)
    }

    /// The best job of a lane's queue that has run before.
    fn best_started(&self, lane: u8) -> Option<Slot> {
        let started = |(_, slot): &(QueueRank, Slot)| self.jobs.get(*slot).started;
        self.lanes[usize::from(lane)].waiting().filter(started).min_by_key(|(rank, _)| *rank).map(|(_, slot)| slot)
    }

    /// Removes a waiting job from its queue: it was preempted, and ends or is demoted before it has the CPU again.
    pub(super) fn leave_queue(&mut self, slot: Slot) {
        let job = self.jobs.get(slot);
        if job.state == JobState::Ready {
            let (lane, critical) = (job.lane, job.critical);
            self.lanes[usize::from(lane)].queue_mut(critical).remove(slot);
            self.left_queue(lane, slot);
        }
    }

    pub(super) fn release_token(&mut self, slot: Slot, effects: &mut Effects) {
        let lane = self.jobs.get(slot).lane;
        let state = &mut self.lanes[usize::from(lane)];
        if state.running == Some(slot) {
            state.running = None;
            self.running.remove(lane);
            effects.woken.insert(lane);
        }
    }
    /// A job ends, by `Complete` or `Drop`.
    pub(super) fn end(
        &mut self,
        now: Instant,
        slot: Slot,
        (transition, outcome): (Transition, JobOutcome),
        consumed: Span,
        effects: &mut Effects,
    ) {
        self.jobs.get_mut(slot).make(transition);
        let job = self.jobs.remove(slot);
        self.return_tickets(&job, effects);
        if let (Some(switching), false) = (&mut self.switching, job.state == JobState::Held) {
            switching.follow(&job, false);
        }
        let operation = &mut self.operations[job.local as usize];
        operation.unfinished -= 1;
        operation.waiting -= u32::from(!job.started && matches!(job.state, JobState::Held | JobState::Ready));
        self.released -= u32::from(job.state != JobState::Held && !job.aside);
        let moves = operation.can_move();
        if operation.on_miss == OnMiss::SkipNext {
            operation.live.retain(|live| *live != slot);
            let paid = operation.skipped.is_some_and(|at| at >= job.deadline);
            if transition == Transition::Complete && now > job.deadline && !paid {
                operation.owes_skip = operation.owes_skip.max(Some(job.critical));
            }
        }
        if operation.watches() && job.started {
            self.watches.retain(|(_, watched)| *watched != slot);
            self.watch_next = self.watches.iter().map(|(due, _)| *due).min().unwrap_or(Instant::NEVER);
        }
        if !self.held.is_empty() {
            self.held.retain(|(holder, _)| *holder != slot);
        }
        self.count(now, &job, outcome, consumed);
        self.decision(now, DispatchDecision::End(job_end(now, &job, outcome, consumed)));
        if moves {
            self.move_operations(now, effects);
        }
    }

    /// Drops an arriving job; returns false.
    pub(super) fn drop_new(&mut self, now: Instant, job: &Job, outcome: JobOutcome, effects: &mut Effects) -> bool {
        effects.work.refused += 1;
        self.return_tickets(job, effects);
        self.count(now, job, outcome, Span::ZERO);
        self.decision(now, DispatchDecision::End(job_end(now, job, outcome, Span::ZERO)));
        false
    }

    /// For the loop and the contracts here, if there are any.
    #[inline]
    fn count(&mut self, now: Instant, job: &Job, outcome: JobOutcome, consumed: Span) {
        if let Some(feedback) = &mut self.feedback {
            feedback.count(now, job, outcome, consumed);
        }
        if let Some(contracts) = &mut self.contracts {
            contracts.count(now, job, outcome, consumed);
        }
    }

    #[inline]
    fn return_tickets(&mut self, job: &Job, effects: &mut Effects) {
        if let Some(tickets) = &mut self.operations[job.local as usize].tickets {
            tickets.release(job.tickets, &mut effects.returned);
        }
    }

    /// Drops the job of an operation that has waited longest: a ready one, else the first held.
    pub(super) fn drop_oldest(&mut self, now: Instant, local: u32, effects: &mut Effects) {
        effects.work.refused += 1;
        let jobs = &self.jobs;
        let own = |(_, slot): &(QueueRank, Slot)| jobs.get(*slot).local == local && !jobs.get(*slot).started;
        let ready = self.lanes.iter().flat_map(LaneState::waiting).filter(own).min_by_key(|(rank, _)| rank.arrival());
        match ready {
            Some((_, slot)) => {
                let job = self.jobs.get(slot);
                let (lane, critical) = (job.lane, job.critical);
                self.lanes[usize::from(lane)].queue_mut(critical).remove(slot);
                self.left_queue(lane, slot);
                self.end(now, slot, (Transition::Drop, JobOutcome::DroppedFull), Span::ZERO, effects);
            }
            None => {
                if let Some(slot) = self.operations[local as usize].held.pop_front() {
                    self.end(now, slot, (Transition::Drop, JobOutcome::DroppedFull), Span::ZERO, effects);
                }
            }
        }
    }

    pub(super) fn trigger_successors(
        &mut self,
        now: Instant,
        job: &Job,
        ticket: Option<Ticket>,
        effects: &mut Effects,
    ) {
        let token = CompletionToken { number: job.id.number, origin: job.origin, period: job.period, ticket };
        for index in 0..self.operations[job.local as usize].successors.len() {
            let successor = self.operations[job.local as usize].successors[index];
            match successor {
                _ if !successor.applies(job.hops) => {}
                Successor::Here { local, position, .. } => {
                    effects.passed_on += u32::from(ticket.is_some());
                    self.trigger(now, local, position, token, now, effects);
                }
                Successor::There { to, processor, position, .. } => {
                    let signal = Signal {
                        from: job.id.operation,
                        to,
                        position,
                        number: token.number,
                        origin: token.origin,
                        period: token.period,
                        due: now,
                        ticket,
                    };
                    self.decision(now, DispatchDecision::Send(signal));
                    effects.sends.push((processor, signal));
                }
            }
        }
    }
}

fn job_end(now: Instant, job: &Job, outcome: JobOutcome, consumed: Span) -> JobEnd {
    JobEnd {
        job: job.id,
        outcome,
        critical: job.critical,
        // A stopped job would have.
        overran: consumed > job.wcet || job.overran,
        service: JobService { level: job.service_level, demoted: job.demoted },
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
