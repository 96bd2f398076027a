//! Which job of a lane is first, found by looking at all of them each time: one strategy, no cap, one region, no preemption
//! within a lane.

use std::collections::BTreeMap;

use hyoshi_model::{Instant, JobId, OperationId, Preemption, Span, System};
use hyoshi_sched::{Discipline, ProcessorPlan};
use hyoshi_trace::{Decision, Event, Input, Outcome, Slot};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    Held,
    Waits,
    Elsewhere,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    deadline: Instant,
    left: Span,
    arrival: u64,
    started: bool,
    at: Where,
}

/// The jobs of one processor.
#[derive(Debug)]
pub struct Naive {
    system: System,
    plan: ProcessorPlan,
    jobs: BTreeMap<JobId, Job>,
    of_slot: BTreeMap<Slot, JobId>,
    arrivals: u64,
}

impl Naive {
    pub fn new(system: &System, plan: &ProcessorPlan) -> Self {
        let (system, plan) = (system.clone(), plan.clone());
        Naive { system, plan, jobs: BTreeMap::new(), of_slot: BTreeMap::new(), arrivals: 0 }
    }

    /// The job that a lane would start.
    pub fn first(&self, lane: u8) -> Option<JobId> {
        let here = |id: &JobId| self.plan.preemption == Preemption::None || self.place(*id).0 == lane;
        let waiting = self.jobs.iter().filter(|(id, job)| job.at == Where::Waits && here(id));
        let first = waiting.min_by_key(|(id, job)| {
            let (level, tie) = self.place(**id);
            let key = match self.plan.levels[usize::from(level)].discipline {
                Discipline::Fifo => 0,
                Discipline::Deadline => job.deadline.as_nanos(),
                Discipline::Laxity => job.deadline.as_nanos().saturating_sub(job.left.as_nanos()),
            };
            (level, key, tie, job.arrival)
        });
        first.map(|(id, _)| *id)
    }

    /// Level, and order among equal keys.
    fn place(&self, id: JobId) -> (u8, u16) {
        let placement = self.plan.placement(0, id.operation).expect("of this processor");
        let place = if self.is_critical(id) { placement.critical } else { placement.other };
        (place.level, place.tie)
    }

    fn is_critical(&self, id: JobId) -> bool {
        self.system.operation(id.operation).critical
    }

    fn arrive(&mut self, id: JobId, deadline: Instant) {
        let left = self.system.setting(0, id.operation).wcet;
        self.arrivals += 1;
        let job = Job { deadline, left, arrival: self.arrivals, started: false, at: Where::Waits };
        self.jobs.insert(id, job);
    }

    /// Checks what the dispatcher decides.
    pub fn event(&mut self, now: Instant, event: Event) {
        match event {
            Event::Input(Input::Resume { slot, consumed }) => {
                self.arrivals += 1;
                let id = self.of_slot[&slot];
                let left = self.system.setting(0, id.operation).wcet.saturating_sub(consumed);
                let job = self.jobs.get_mut(&id).expect("it was suspended");
                (job.at, job.arrival, job.left) = (Where::Waits, self.arrivals, left);
            }
            Event::Decision(Decision::Hold { job, until }) => {
                assert!(
                    until > now
                        || self.jobs.iter().any(|(id, other)| id.operation == job.operation && other.at == Where::Held)
                );
                self.arrive(job, Instant::NEVER);
                self.jobs.get_mut(&job).expect("just put there").at = Where::Held;
            }
            Event::Decision(Decision::Ready { job, deadline, .. }) => {
                let held = self.of(job.operation).filter(|(_, one)| one.at == Where::Held);
                let first_held = held.min_by_key(|(_, one)| one.arrival).map(|(id, _)| id);
                assert!(job.leg > 0 || first_held.is_none_or(|first| first == job), "{job:?} before {first_held:?}");
                self.arrive(job, deadline);
                let setting = self.system.setting(0, job.operation);
                let waits = self.jobs.iter().filter(|(id, one)| id.operation == job.operation && !one.started).count();
                let limit = self.system.operation(job.operation).queue.limit as usize;
                assert!(setting.legs > 1 || waits <= limit, "{waits} wait, {limit} may");
            }
            Event::Decision(Decision::Run { job, lane, slot, resumed }) => {
                assert_eq!(self.first(lane), Some(job));
                assert!(!self.is_hopeless(job, now) || resumed, "{job:?} cannot finish in time");
                let state = self.jobs.get_mut(&job).expect("it is first");
                assert_eq!(state.started, resumed);
                (state.at, state.started) = (Where::Elsewhere, true);
                self.of_slot.insert(slot, job);
            }
            Event::Decision(Decision::Demote { job }) => {
                self.jobs.get_mut(&job).expect("it was started").at = Where::Elsewhere;
            }
            Event::Decision(Decision::End(end)) => {
                match end.outcome {
                    Outcome::Cancelled => {
                        let lane = if self.plan.preemption == Preemption::None { 0 } else { self.place(end.job).0 };
                        assert_eq!(self.first(lane), Some(end.job));
                        assert!(self.is_hopeless(end.job, now), "{end:?}");
                    }
                    Outcome::Made => assert!(now <= end.deadline),
                    Outcome::Missed => assert!(now > end.deadline),
                    Outcome::DroppedFull => self.check_dropped(end.job),
                    Outcome::DroppedBusy => assert!(self.of(end.job.operation).next().is_some(), "{end:?}"),
                    Outcome::Stopped => {}
                }
                self.jobs.remove(&end.job);
            }
            _ => {}
        }
    }

    /// The jobs of an operation that have not ended.
    fn of(&self, operation: OperationId) -> impl Iterator<Item = (JobId, Job)> + '_ {
        self.jobs.iter().filter(move |(id, _)| id.operation == operation).map(|(id, job)| (*id, *job))
    }

    /// The queue was full: of an operation that drops the oldest that one goes, a ready one first.
    fn check_dropped(&self, id: JobId) {
        let limit = self.system.operation(id.operation).queue.limit as usize;
        let waits = || self.of(id.operation).filter(|(_, job)| !job.started);
        let oldest = waits().min_by_key(|(_, job)| (job.at == Where::Held, job.arrival)).map(|(id, _)| id);
        if self.jobs.contains_key(&id) {
            assert_eq!(Some(id), oldest);
        } else {
            assert!(waits().count() >= limit || self.of(id.operation).count() >= limit + 3, "{id:?} had room");
        }
    }

    /// Under cancellation a non-critical job does not start if its worst case no longer fits.
    fn is_hopeless(&self, id: JobId, now: Instant) -> bool {
        let wcet = self.system.setting(0, id.operation).wcet;
        self.system.processors[0].cancel && !self.is_critical(id) && now + wcet > self.jobs[&id].deadline
    }
}
