//! From an arrival to the lane's queue: joins, first copies, `on_miss`, `on_busy`, the queue's limit, the release guard.

use alloc::{collections::BTreeMap, sync::Arc};

use hyoshi_model::{Deadline, Instant, JobId, OnBusy, OnMiss, OperationId, Span, WhenFull, at_level};
use hyoshi_sched::Placement;
use hyoshi_trace::{DiscardReason, DispatchDecision, JobOutcome, Probe, Slot, TraceEvent};

use super::Dispatcher;
use crate::effects::Effects;
use crate::job::{Job, JobState, Transition};
use crate::join::{CompletionToken, DroppedCompletion};
use crate::lane::LaneState;
use crate::operation::{Intake, OperationState, Residence};
use crate::tickets::{TicketSet, Tickets};
use crate::timers::Timers;

impl<P: Probe> Dispatcher<P> {
    /// To be called before any other input: these periodic releases are later than nominal by the given times, instead
    /// of the drawn jitter. A recording contains them.
    pub fn release_late(&mut self, late: &Arc<BTreeMap<JobId, Span>>) {
        self.late = Arc::clone(late);
        self.arrivals = Timers::with_capacity(self.operations.len());
        for (local, operation) in self.operations.iter().enumerate() {
            if let (Intake::Timer, true) = (&operation.intake, operation.timer_is_set) {
                self.arrivals.set(operation.next_due(self.seed, &self.late), local as u32);
            }
        }
    }

    pub(super) fn arrive_periodic(&mut self, now: Instant, effects: &mut Effects) {
        let Some((due, local)) = self.arrivals.due(now) else { return };
        if self.operations[local as usize].residence != Residence::Permanent && !self.is_due(due, local) {
            return;
        }
        let operation = &mut self.operations[local as usize];
        let release = operation.nominal + operation.offset;
        let token = operation.own_token(release);
        let enabled = operation.enabled;
        operation.nominal += operation.period;
        operation.next_number += u64::from(enabled);
        let due = operation.next_due(self.seed, &self.late);
        self.arrivals.replace_first(due);
        if enabled && !self.off && !self.absent {
            let job = self.new_job(local, token, release);
            self.admit(now, job, effects);
        }
    }

    /// The predecessor at `position` of an operation has completed (at `at`, seen at `now`).
    pub(super) fn trigger(
        &mut self,
        now: Instant,
        local: u32,
        position: u16,
        mut token: CompletionToken,
        at: Instant,
        effects: &mut Effects,
    ) {
        let OperationState { id, intake, tickets, suspended, .. } = &mut self.operations[local as usize];
        if *suspended {
            effects.returned.extend(token.ticket);
            let (to, number) = (*id, token.number);
            self.decision(now, DispatchDecision::Discard { to, position, number, reason: DiscardReason::Suspended });
            return;
        }
        if tickets.is_none() {
            effects.returned.extend(token.ticket.take());
        }
        let mut set = TicketSet::default();
        match intake {
            Intake::Join(join) => {
                let joined = join.arrive(position, token, &mut effects.returned);
                for &DroppedCompletion { position, number, reason } in join.dropped() {
                    let discard = DispatchDecision::Discard { to: *id, position, number, reason };
                    self.probe.event(now, TraceEvent::Decision(discard));
                }
                let Some(joined) = joined else { return };
                token = joined;
                if let Some(tickets) = tickets {
                    set = tickets.take();
                    tickets.of_mut(set).copy_from_slice(join.joined());
                }
            }
            Intake::Each | Intake::First(_) | Intake::Timer => {
                if let Intake::First(copies) = intake
                    && !copies.arrive(&token)
                {
                    effects.returned.extend(token.ticket);
                    let (to, number, reason) = (*id, token.number, DiscardReason::LaterCopy);
                    self.decision(now, DispatchDecision::Discard { to, position, number, reason });
                    return;
                }
                if let Some(tickets) = tickets {
                    set = tickets.take();
                    tickets.of_mut(set)[usize::from(position)] = token.ticket;
                }
            }
        }
        let operation = &mut self.operations[local as usize];
        if !operation.enabled {
            if let Some(tickets) = &mut operation.tickets {
                tickets.release(set, &mut effects.returned);
            }
            return;
        }
        if operation.numbered_by == operation.id {
            token.number = operation.next_number;
            operation.next_number += 1;
        }
        let release = at.saturating_add(operation.offset);
        self.restart_timeout(local, at);
        let mut job = self.new_job(local, token, release);
        job.tickets = set;
        self.admit(now, job, effects);
    }

    /// A trigger at `from`: the timeout counts from there.
    fn restart_timeout(&mut self, local: u32, from: Instant) {
        let operation = &mut self.operations[local as usize];
        let Some(timeout) = operation.timeout else { return };
        operation.times_out = operation.times_out.max(from.saturating_add(timeout));
        self.correct_timeouts();
    }

    /// Entries of `timeouts` are no later than the timeouts: only the first has to be exact.
    fn correct_timeouts(&mut self) {
        while let Some((due, local)) = self.timeouts.due(Instant::NEVER) {
            let exact = self.operations[local as usize].times_out;
            if due >= exact {
                break;
            }
            self.timeouts.replace_first(exact);
        }
    }

    /// The first timeout is over: it releases its operation, and the next one counts from then.
    pub(super) fn time_out(&mut self, now: Instant, effects: &mut Effects) {
        let Some((due, local)) = self.timeouts.due(now) else { return };
        let operation = &mut self.operations[local as usize];
        let id = operation.id;
        let releases = operation.enabled && !operation.suspended && !self.off && !self.absent;
        let release = due.saturating_add(operation.offset);
        let token = CompletionToken { origin: release, ..operation.own_token(release) };
        operation.next_number += u64::from(releases);
        operation.times_out = due.saturating_add(operation.timeout.unwrap_or_default());
        self.correct_timeouts();
        if !releases {
            return;
        }
        self.decision(now, DispatchDecision::TimeOut { operation: id });
        let tickets = self.operations[local as usize].tickets.as_mut().map(Tickets::take).unwrap_or_default();
        let job = Job { timed_out: true, tickets, ..self.new_job(local, token, release) };
        self.admit(now, job, effects);
    }

    /// Suspends or resumes an operation that others trigger.
    pub(super) fn suspend_triggers(&mut self, now: Instant, id: OperationId, on: bool, effects: &mut Effects) {
        self.advance_before(now, effects);
        let Some(local) = self.local(id) else { return };
        let operation = &mut self.operations[local as usize];
        if core::mem::replace(&mut operation.suspended, on) == on {
            return;
        }
        if !on {
            // The earlier timeouts released nothing.
            self.restart_timeout(local, now);
        } else if let Intake::Join(join) = &mut operation.intake {
            for (position, number) in join.waiting() {
                let reason = DiscardReason::Suspended;
                let discard = DispatchDecision::Discard { to: id, position, number, reason };
                self.probe.event(now, TraceEvent::Decision(discard));
            }
            join.clear(&mut effects.returned);
        }
    }

    /// The next leg of a load chain, released by the one before.
    pub(super) fn next_leg(&mut self, now: Instant, before: &Job, effects: &mut Effects) {
        let token =
            CompletionToken { number: before.id.number, origin: before.origin, period: before.period, ticket: None };
        let legs = (before.id.leg + 1, before.legs, before.critical_legs);
        let job = self.new_leg((before.local, before.service_level), token, before.release, legs);
        let job = Job { deadline: before.deadline, expected: before.expected, ..job };
        let job = match self.operations[job.local as usize].is_requested() {
            true => self.job_at_own_position(Job { critical: before.critical, importance: before.importance, ..job }),
            false => job,
        };
        self.admit(now, job, effects);
    }

    pub(super) fn new_job(&self, local: u32, token: CompletionToken, release: Instant) -> Job {
        let operation = &self.operations[local as usize];
        let legs = (0, operation.legs.min(operation.limits.legs), operation.critical_legs);
        self.new_leg((local, operation.service_level), token, release, legs)
    }

    fn new_leg(
        &self,
        (local, service_level): (u32, u8),
        token: CompletionToken,
        release: Instant,
        (leg, legs, critical_legs): (u16, u16, u16),
    ) -> Job {
        let operation = &self.operations[local as usize];
        let wcet = at_level(&operation.levels, service_level.into(), operation.wcet);
        let critical = operation.critical || leg < critical_legs;
        let placed = |placement: Placement| if critical { placement.critical } else { placement.other };
        let (place, other) = (placed(operation.placement), placed(operation.other_placement));
        let second = if self.strategy_in_force() == 1 { operation.placement } else { operation.other_placement };
        Job {
            id: JobId { operation: operation.id, number: token.number, leg },
            local,
            origin: token.origin,
            period: token.period,
            release,
            ready: Instant::NEVER,
            start: Instant::NEVER,
            deadline: match operation.deadline_for(token.period) {
                Deadline::Own(span) => release.saturating_add(span),
                Deadline::Origin(span) => token.origin.saturating_add(span),
            },
            wcet,
            remaining: wcet,
            expected: wcet,
            legs,
            critical_legs,
            epoch: self.epoch as u16,
            service_level,
            lane: LaneState::index_of(&self.lanes, place.level),
            level: place.level,
            tie: place.tie,
            importance: operation.importance,
            timed_out: false,
            other,
            legs_at: (second.critical.level, second.other.level),
            carried: false,
            arrival: 0,
            critical,
            state: JobState::Held,
            demoted: false,
            stopped: false,
            overran: false,
            cancelled: false,
            dispatched: Instant::NEVER,
            aside: false,
            hops: 0,
            started: false,
            tickets: TicketSet::default(),
        }
    }

    /// A release: `on_miss`, `on_busy`, the queue's limit, then the guard. False if it is dropped.
    pub(super) fn admit(&mut self, now: Instant, mut job: Job, effects: &mut Effects) -> bool {
        let first_leg = job.id.leg == 0;
        if first_leg && self.skips(now, &job) {
            return self.drop_new(now, &job, JobOutcome::Skipped, effects);
        }
        if let Some(contracts) = self.contracts.as_mut().filter(|_| first_leg) {
            contracts.expect(now, &mut job);
        }
        let operation = &self.operations[job.local as usize];
        if first_leg && operation.on_busy == OnBusy::Skip && operation.unfinished > 0 {
            return self.drop_new(now, &job, JobOutcome::DroppedBusy, effects);
        }
        // Demoted and blocked jobs are no longer in the queue, but stay in the table: an operation that leaves too many
        // of them loses only its own next jobs.
        if operation.unfinished as usize >= operation.queue.most_jobs() {
            return self.drop_new(now, &job, JobOutcome::DroppedFull, effects);
        }
        // The limit is for releases: a started one is not cut off.
        if first_leg && operation.waiting >= operation.queue.limit {
            match operation.queue.when_full {
                WhenFull::DropNewest => return self.drop_new(now, &job, JobOutcome::DroppedFull, effects),
                WhenFull::DropOldest => self.drop_oldest(now, job.local, effects),
            }
        }
        let operation = &mut self.operations[job.local as usize];
        let guarded = operation.has_guard && first_leg;
        // A job that arrives after held jobs waits behind them; a release with an offset is held until then.
        let earliest = if guarded { operation.guard.earliest(job.release) } else { job.release };
        let wait = earliest > now || (guarded && !operation.held.is_empty());
        let hold = wait && first_leg && !matches!(operation.intake, Intake::Timer);
        if guarded && !hold {
            // The nominal instant, not the observed one: late timers do not accumulate drift.
            operation.guard.release(earliest, job.period);
        }
        let Some(slot) = self.jobs.insert(job) else {
            return self.drop_new(now, &job, JobOutcome::DroppedFull, effects);
        };
        let operation = &mut self.operations[job.local as usize];
        operation.waiting += 1;
        operation.unfinished += 1;
        if operation.on_miss == OnMiss::SkipNext {
            operation.live.push(slot);
        }
        if !hold {
            self.make_ready(now, slot, effects);
            return true;
        }
        self.jobs.get_mut(slot).make(Transition::Hold);
        operation.held.push_back(slot);
        if operation.held.len() == 1 {
            self.arm(job.local, earliest);
        }
        self.decision(now, DispatchDecision::Hold { job: job.id, until: earliest });
        true
    }

    /// Whether a release is skipped, because an earlier job has missed its deadline. Late non-critical legs and requests
    /// skip no critical release.
    fn skips(&mut self, now: Instant, new: &Job) -> bool {
        let operation = &self.operations[new.local as usize];
        if operation.on_miss != OnMiss::SkipNext {
            return false;
        }
        // Its own deadline counts from the guarded release, which has not happened yet.
        let own = matches!(operation.deadline, Deadline::Own(_));
        let matters = |critical: bool| critical || !new.critical;
        let late = |job: &Job| matters(job.critical) && job.deadline <= now && !(own && job.state == JobState::Held);
        let skips =
            operation.owes_skip.is_some_and(matters) || operation.live.iter().any(|slot| late(self.jobs.get(*slot)));
        if skips {
            let operation = &mut self.operations[new.local as usize];
            (operation.owes_skip, operation.skipped) = (None, Some(now));
        }
        skips
    }

    /// A guard's timer: releases the first held job and sets the timer for the next.
    pub(super) fn open_guard(&mut self, now: Instant, due: Instant, effects: &mut Effects) {
        let Some((_, local)) = self.guards.due(now) else { return };
        self.guards.remove_first();
        let armed = &mut self.operations[local as usize].armed;
        if *armed == due {
            *armed = Instant::NEVER;
            self.release_held(now, local, due, effects);
        }
    }

    pub(super) fn release_held(&mut self, now: Instant, local: u32, due: Instant, effects: &mut Effects) {
        let operation = &mut self.operations[local as usize];
        let Some(slot) = operation.held.front().copied() else { return };
        let job = self.jobs.get_mut(slot);
        let earliest = if operation.has_guard { operation.guard.earliest(job.release) } else { job.release };
        if earliest > due {
            // The first held job was dropped since the timer was set.
            self.arm(local, earliest);
            return;
        }
        operation.held.pop_front();
        if operation.has_guard {
            operation.guard.release(due.max(earliest), job.period);
            if let (Deadline::Own(span), false) = (operation.deadline_for(job.period), operation.is_requested()) {
                // Its own deadline counts from the guarded release, as in Sun and Liu's analysis.
                job.release = job.release.max(due);
                job.deadline = job.release.saturating_add(span);
            }
        }
        if let Some(next) = operation.held.front() {
            let next = self.jobs.get(*next);
            let earliest = if operation.has_guard { operation.guard.earliest(next.release) } else { next.release };
            self.arm(local, earliest);
        }
        self.make_ready(now, slot, effects);
    }

    /// Sets the timer of an operation's first held job, unless one fires before: that one sets it again.
    pub(super) fn arm(&mut self, local: u32, due: Instant) {
        let armed = &mut self.operations[local as usize].armed;
        if due < *armed {
            *armed = due;
            self.guards.set(due, local);
        }
    }

    /// Rule 3 at an idle point: opens every guard that has it.
    pub(super) fn idle_point(&mut self, now: Instant, effects: &mut Effects) {
        let before = self.arrival;
        for local in 0..self.operations.len() as u32 {
            let operation = &mut self.operations[local as usize];
            if operation.guard.idle_point(now) && !operation.held.is_empty() {
                self.release_held(now, local, now, effects);
            }
        }
        effects.work.released_when_idle += (self.arrival - before) as u32;
    }

    pub(super) fn make_ready(&mut self, now: Instant, slot: Slot, effects: &mut Effects) {
        let job = self.jobs.get_mut(slot);
        job.ready = now;
        let ready =
            DispatchDecision::Ready { job: job.id, release: job.release, deadline: job.deadline, lane: job.lane };
        self.released += 1;
        if let Some(switching) = &mut self.switching {
            switching.follow(job, true);
        }
        self.decision(now, ready);
        self.enqueue(slot, Transition::Release, effects);
    }
}
