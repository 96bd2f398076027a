//! A naive model of a lane's first job, which examines all jobs each time: one strategy, no cap, one region, no
//! preemption within a lane.

use std::collections::{BTreeMap, BTreeSet};

use hyoshi_model::{Deadline, Instant, JobId, OnMiss, OperationId, Preemption, Span, System, Trigger};
use hyoshi_sched::{Discipline, LevelPosition, ProcessorPlan, Strategies, Traits, Urgency};
use hyoshi_trace::{AdmissionOutcome, DispatchDecision, Input, JobOutcome, JobRequest, Slot, TraceEvent};

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
    critical: bool,
    place: LevelPosition,
    /// For a request: the relative deadline and the importance that it requests.
    asked: Option<(Span, u32)>,
}

/// The jobs of one processor.
#[derive(Debug)]
pub struct Naive {
    system: System,
    plan: ProcessorPlan,
    jobs: BTreeMap<JobId, Job>,
    of_slot: BTreeMap<Slot, JobId>,
    arrivals: u64,
    /// Present periods.
    periods: BTreeMap<OperationId, Span>,
    /// The positions of new jobs, critical ones and others; and operations that wait until none of their started jobs
    /// is left.
    places: BTreeMap<(OperationId, bool), LevelPosition>,
    stay: BTreeSet<OperationId>,
    /// The next tick ranks.
    unranked: bool,
    request: Option<JobRequest>,
    /// By number of a request: whether it is critical, and what it requests.
    requests: BTreeMap<u64, (bool, Option<(Span, u32)>)>,
    /// Jobs with a cancel request.
    asked: BTreeSet<JobId>,
    /// By periodic operation: the number of the next release, and its required time.
    next: BTreeMap<OperationId, (u64, Instant)>,
    /// Deadlines that jobs missed before they ended, if no release has been skipped from then on; true for critical
    /// jobs.
    missed: BTreeSet<(OperationId, Instant, bool)>,
    /// When an operation skipped a release last.
    skipped: BTreeMap<OperationId, Instant>,
}

impl Naive {
    pub fn new(system: &System, plan: &ProcessorPlan) -> Self {
        let mut naive = Naive {
            system: system.clone(),
            plan: plan.clone(),
            jobs: BTreeMap::new(),
            of_slot: BTreeMap::new(),
            arrivals: 0,
            periods: system.operation_ids().map(|id| (id, system.setting(0, id).period)).collect(),
            places: BTreeMap::new(),
            stay: BTreeSet::new(),
            unranked: false,
            request: None,
            requests: BTreeMap::new(),
            asked: BTreeSet::new(),
            next: BTreeMap::new(),
            missed: BTreeSet::new(),
            skipped: BTreeMap::new(),
        };
        for adapted in system.feedback.iter().flat_map(|one| system.adapted_on(one.processor)) {
            naive.periods.extend(adapted.here.iter().map(|id| (*id, system.setting(0, *id).slowest)));
        }
        naive.rank();
        naive
    }

    fn set_period(&mut self, root: OperationId, period: Span) {
        for id in self.system.operation_ids().filter(|id| self.system.adapted_by(*id) == Some(root)) {
            let setting = self.system.setting(0, id);
            self.periods.insert(id, period.clamp(setting.period, setting.slowest));
        }
    }

    fn deadline(&self, id: OperationId) -> Span {
        let setting = self.system.setting(0, id);
        let adapted = setting.deadline_adapts() && self.system.adapted_by(id).is_some();
        if adapted { self.periods[&id] } else { setting.deadline.span() }
    }

    fn urgency(&self, operation: OperationId, critical: bool, own: Option<(Span, u32)>) -> Urgency {
        let declared = self.deadline(operation);
        let own = own.map(|(deadline, importance)| (deadline.max(declared), importance));
        let (deadline, importance) = own.unwrap_or((declared, self.system.operation(operation).importance));
        let (period, wcet) = (self.periods[&operation], self.system.setting(0, operation).wcet);
        let traits = Traits { operation, critical, period, deadline, wcet, importance };
        Strategies::built_in().find(&self.plan.strategy).expect("it made the plan").urgency(&traits)
    }

    /// The present requests.
    fn all(&self) -> impl Iterator<Item = (OperationId, bool, Urgency)> + '_ {
        self.system.operation_ids().flat_map(move |id| {
            let operation = self.system.operation(id);
            let requested = operation.trigger == Trigger::Any(vec![]);
            let both = requested && operation.critical;
            let kinds = [true, false].into_iter().filter(move |kind| both || *kind == operation.critical);
            kinds.map(move |critical| (id, critical, self.urgency(id, critical, None)))
        })
    }

    /// A level for each rank within its class, in order; the class begins where the plan's does.
    fn place(&self, urgency: Urgency) -> LevelPosition {
        let all = || self.all().filter(|(_, _, other)| other.class == urgency.class);
        let begins = all().map(|(id, critical, _)| {
            let placement = self.plan.placement(0, id).expect("of this processor");
            if critical { placement.critical.level } else { placement.other.level }
        });
        let better: BTreeSet<u64> = all().map(|(.., other)| other.rank).filter(|rank| *rank < urgency.rank).collect();
        let level = begins.min().expect("some operation is in it") + better.len() as u8;
        let last = self.plan.levels.iter().rposition(|level| level.discipline == urgency.discipline);
        // With equal disciplines the critical class ends where the other begins.
        let next = self.all().filter(|(_, _, other)| other.class > urgency.class).map(|(id, critical, _)| {
            let placement = self.plan.placement(0, id).expect("of this processor");
            if critical { placement.critical.level } else { placement.other.level }
        });
        let last = next.min().map_or(last.expect("it has levels"), |next| usize::from(next) - 1);
        LevelPosition { level: level.min(last as u8), tie: self.plan.ranking.place(&urgency).tie }
    }

    /// The operation that numbers an operation's jobs.
    fn counted_by(&self, id: OperationId) -> OperationId {
        match &self.system.operation(id).trigger {
            _ if self.system.operation(id).timeout.is_some() => id,
            Trigger::All(several) if several.len() > 1 && !self.system.numbered_by_root(id) => id,
            Trigger::Correlated(_) if !self.system.numbered_by_root(id) => id,
            Trigger::Any(several) if several.len() != 1 => id,
            Trigger::Chosen(chosen) if chosen.predecessors.len() != 1 => id,
            trigger => trigger.predecessors().first().map_or(id, |first| self.counted_by(*first)),
        }
    }

    fn rank(&mut self) {
        let requests = self.jobs.iter().filter(|(_, job)| !job.started && job.asked.is_some());
        let requests: Vec<_> =
            requests.map(|(id, job)| (*id, self.place(self.urgency(id.operation, job.critical, job.asked)))).collect();
        for (id, place) in requests {
            self.jobs.get_mut(&id).expect("it waits").place = place;
        }
        let all: Vec<_> = self.all().map(|(id, critical, urgency)| (id, critical, self.place(urgency))).collect();
        for (id, critical, place) in all {
            self.places.entry((id, critical)).or_insert(place);
            if self.places[&(id, critical)] == place {
                continue;
            }
            if self.of(id).any(|(_, job)| job.started) {
                self.stay.insert(id);
                continue;
            }
            self.places.insert((id, critical), place);
            let concerned = |job: &JobId, one: &Job| job.operation == id && one.critical == critical;
            for (_, job) in self.jobs.iter_mut().filter(|(job, one)| concerned(job, one) && one.asked.is_none()) {
                job.place = place;
            }
        }
    }

    /// The job that a lane would start.
    pub fn first(&self, lane: u8) -> Option<JobId> {
        let here = |id: &JobId| self.plan.preemption == Preemption::None || self.jobs[id].place.level == lane;
        let waiting = self.jobs.iter().filter(|(id, job)| job.at == Where::Waits && here(id));
        let first = waiting.min_by_key(|(_, job)| {
            let LevelPosition { level, tie } = job.place;
            let key = match self.plan.levels[usize::from(level)].discipline {
                Discipline::Fifo => 0,
                Discipline::Deadline => job.deadline.as_nanos(),
                Discipline::Laxity => job.deadline.as_nanos().saturating_sub(job.left.as_nanos()),
            };
            (level, key, tie, job.arrival)
        });
        first.map(|(id, _)| *id)
    }

    fn is_critical(&self, id: JobId) -> bool {
        self.jobs.get(&id).map_or(self.system.operation(id.operation).critical, |job| job.critical)
    }

    fn arrive(&mut self, id: JobId, now: Instant, deadline: Instant) {
        let left = self.system.setting(0, id.operation).wcet;
        let request = self.request.take_if(|request| request.operation == id.operation);
        let was = self.jobs.get(&id).map(|held| (held.critical, held.place, held.asked));
        let (critical, place, asked) = was.unwrap_or_else(|| match request {
            Some(request) => {
                let critical = request.critical && self.system.operation(id.operation).critical;
                let asked = Some((request.deadline.since(now), request.importance));
                self.requests.insert(id.number, (critical, asked));
                (critical, self.place(self.urgency(id.operation, critical, asked)), asked)
            }
            None if self.system.operation(id.operation).trigger == Trigger::Any(vec![]) => {
                let (critical, asked) = self.requests[&id.number];
                (critical, self.place(self.urgency(id.operation, critical, asked)), asked)
            }
            None => {
                let critical = self.system.operation(id.operation).critical;
                (critical, self.places[&(id.operation, critical)], None)
            }
        });
        assert!(request.is_none_or(|request| request.deadline == deadline || deadline == Instant::NEVER));
        self.arrivals += 1;
        let arrival = self.arrivals;
        let job = Job { deadline, left, arrival, started: false, at: Where::Waits, critical, place, asked };
        self.jobs.insert(id, job);
    }

    /// Periodic releases are as far apart as the period at the earlier one.
    fn released(&mut self, id: JobId, release: Instant) {
        if id.leg > 0 || self.system.operation(id.operation).trigger != Trigger::Periodic {
            return;
        }
        if let Some((number, due)) = self.next.get(&id.operation) {
            assert!(id.number != *number || release == *due, "{id:?} at {release}, not {due}");
        }
        self.next.insert(id.operation, (id.number + 1, release + self.periods[&id.operation]));
    }

    /// The first release from a missed deadline on is skipped, and each one while a late job is unfinished; a critical
    /// one only because of critical jobs. `None`: a held job has a deadline that is not known yet.
    fn skips(&self, id: OperationId, now: Instant, critical: bool) -> Option<bool> {
        let skips = self.system.operation(id).on_miss == OnMiss::SkipNext;
        let late = |(_, job): (JobId, Job)| (job.critical || !critical) && job.at != Where::Held && job.deadline <= now;
        let missed = |(missed, _, by): &(OperationId, Instant, bool)| *missed == id && (*by || !critical);
        if skips && (self.missed.iter().any(missed) || self.of(id).any(late)) {
            return Some(true);
        }
        let own = matches!(self.system.setting(0, id).deadline, Deadline::Own(_));
        let unknown = skips && !own && self.of(id).any(|(_, job)| job.at == Where::Held);
        (!unknown).then_some(false)
    }

    /// A release is skipped or not.
    fn release(&mut self, job: JobId, now: Instant, skipped: bool) {
        let request = self.request.filter(|request| request.operation == job.operation);
        let critical = self.system.operation(job.operation).critical && request.is_none_or(|request| request.critical);
        if job.leg == 0 && !self.jobs.contains_key(&job) {
            assert_ne!(self.skips(job.operation, now, critical), Some(!skipped), "{job:?} at {now}");
        }
        if skipped {
            self.missed.retain(|(id, ..)| *id != job.operation);
            self.skipped.insert(job.operation, now);
        }
    }

    /// Checks a decision of the dispatcher.
    pub fn event(&mut self, now: Instant, event: TraceEvent) {
        match event {
            TraceEvent::Input(Input::Resume { slot, consumed }) => {
                self.arrivals += 1;
                let id = self.of_slot[&slot];
                let left = self.system.setting(0, id.operation).wcet.saturating_sub(consumed);
                let job = self.jobs.get_mut(&id).expect("it was suspended");
                (job.at, job.arrival, job.left) = (Where::Waits, self.arrivals, left);
            }
            TraceEvent::Input(Input::Invoke(request)) => self.request = Some(request),
            TraceEvent::Input(Input::Cancel { job, chain }) => {
                let same = |id: &JobId| match chain {
                    true => self.counted_by(id.operation) == self.counted_by(job.operation),
                    false => id.operation == job.operation,
                };
                self.asked = self.jobs.keys().filter(|id| id.number == job.number && same(id)).copied().collect();
            }
            TraceEvent::Input(Input::Tick) if std::mem::take(&mut self.unranked) => self.rank(),
            TraceEvent::Input(Input::Adapt { operation, period }) => {
                self.set_period(operation, period);
                self.unranked = true;
            }
            // Its first period begins now, unless its last one has not ended.
            TraceEvent::Decision(DispatchDecision::Admission {
                operation,
                outcome: AdmissionOutcome::Admitted { .. },
            }) => {
                self.next.entry(operation).and_modify(|(_, due)| *due = now.max(*due));
            }
            TraceEvent::Input(Input::Retime { operation, period })
            | TraceEvent::Decision(DispatchDecision::Retime { operation, period }) => {
                self.set_period(operation, period);
                self.rank();
            }
            TraceEvent::Decision(DispatchDecision::Hold { job, until }) => {
                assert!(
                    until > now
                        || self.jobs.iter().any(|(id, other)| id.operation == job.operation && other.at == Where::Held)
                );
                self.release(job, now, false);
                self.arrive(job, now, Instant::NEVER);
                self.jobs.get_mut(&job).expect("just put there").at = Where::Held;
            }
            TraceEvent::Decision(DispatchDecision::Ready { job, release, deadline, .. }) => {
                let held = self.of(job.operation).filter(|(_, one)| one.at == Where::Held);
                let first_held = held.min_by_key(|(_, one)| one.arrival).map(|(id, _)| id);
                assert!(job.leg > 0 || first_held.is_none_or(|first| first == job), "{job:?} before {first_held:?}");
                self.release(job, now, false);
                self.released(job, release);
                self.arrive(job, now, deadline);
                let setting = self.system.setting(0, job.operation);
                let waits = self.jobs.iter().filter(|(id, one)| id.operation == job.operation && !one.started).count();
                let limit = self.system.operation(job.operation).queue.limit as usize;
                assert!(setting.legs > 1 || waits <= limit, "{waits} wait, {limit} may");
            }
            TraceEvent::Decision(DispatchDecision::Run { job, lane, slot, resumed }) => {
                assert_eq!(self.first(lane), Some(job));
                assert!(!self.is_hopeless(job, now) || resumed, "{job:?} cannot finish in time");
                assert!(!self.asked.contains(&job), "{job:?} was to be cancelled");
                let stops = self.system.operation(job.operation).on_miss == OnMiss::Stop;
                let state = self.jobs.get_mut(&job).expect("it is first");
                assert!(resumed || !stops || now < state.deadline, "{job:?} starts after its deadline");
                assert_eq!(state.started, resumed);
                (state.at, state.started) = (Where::Elsewhere, true);
                self.of_slot.insert(slot, job);
            }
            TraceEvent::Decision(DispatchDecision::Demote { job }) => {
                self.jobs.get_mut(&job).expect("it was started").at = Where::Elsewhere;
            }
            TraceEvent::Decision(DispatchDecision::End(end)) => {
                let (id, skips) = (end.job.operation, end.outcome == JobOutcome::Skipped);
                let on_miss = self.system.operation(id).on_miss;
                self.release(end.job, now, skips);
                let started = self.jobs.get(&end.job).is_some_and(|job| job.started);
                let skipped = self.skipped.get(&id).is_some_and(|at| *at >= end.deadline);
                if on_miss == OnMiss::SkipNext && started && now > end.deadline && !skipped {
                    self.missed.insert((id, end.deadline, end.critical));
                }
                match end.outcome {
                    JobOutcome::Cancelled if self.asked.contains(&end.job) => {
                        self.asked.remove(&end.job);
                    }
                    JobOutcome::Cancelled => {
                        let whole = self.plan.preemption == Preemption::None;
                        let lane = if whole { 0 } else { self.jobs[&end.job].place.level };
                        assert_eq!(self.first(lane), Some(end.job));
                        assert!(self.is_hopeless(end.job, now), "{end:?}");
                    }
                    _ if self.asked.contains(&end.job) => panic!("{end:?} was to be cancelled"),
                    JobOutcome::Made => assert!(now <= end.deadline),
                    JobOutcome::Missed => assert!(now > end.deadline && on_miss != OnMiss::Stop, "{end:?}"),
                    JobOutcome::DroppedFull => self.check_dropped(end.job),
                    JobOutcome::DroppedBusy => assert!(self.of(end.job.operation).next().is_some(), "{end:?}"),
                    JobOutcome::Expired => {
                        let lifespan = self.system.operation(end.job.operation).lifespan.expect("only with a lifespan");
                        assert!(end.start == Instant::NEVER && now.since(end.origin) > lifespan, "{end:?}");
                    }
                    JobOutcome::Stopped => {
                        let late = now >= end.deadline && on_miss == OnMiss::Stop;
                        assert!(if started { end.overran || late } else { late }, "{end:?}");
                    }
                    JobOutcome::Skipped => {}
                }
                if self.jobs.remove(&end.job).is_none() {
                    self.released(end.job, end.release);
                    self.request = self.request.filter(|request| request.operation != end.job.operation);
                }
                let operation = end.job.operation;
                if self.stay.contains(&operation) && !self.of(operation).any(|(_, job)| job.started) {
                    self.stay.remove(&operation);
                    self.rank();
                }
            }
            _ => {}
        }
    }

    /// The jobs of an operation that have not ended.
    fn of(&self, operation: OperationId) -> impl Iterator<Item = (JobId, Job)> + '_ {
        self.jobs.iter().filter(move |(id, _)| id.operation == operation).map(|(id, job)| (*id, *job))
    }

    /// The queue was full: an operation that drops the oldest drops that one, a ready one first.
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
