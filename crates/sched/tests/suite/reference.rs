//! A reference simulation, written from the rules and not from the analysis: it steps through time by nanoseconds and
//! examines every job each time.

use std::collections::HashMap;

use hyoshi_model::*;
use hyoshi_sched::{Discipline, Plan};

/// The drawn values of a run: phases, jitter, execution times, delays, and the order of simultaneous arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// The file's phases, no jitter, worst cases, the longest delays, arrivals in the operations' order.
    AsWritten,
    /// No phase, the first release as late as jitter allows and all others early, worst cases.
    Synchronous,
    /// Everything at random.
    Random,
}

/// The longest observed responses: from the origin, and from the start of the deadline.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// By operation and criticality: the longest response, and whether a deadline was missed.
    pub worst: HashMap<(u32, bool), (u64, bool)>,
    /// By operation: the latest finish after the origin.
    pub finish: HashMap<u32, u64>,
}

#[derive(Clone, Debug)]
struct Job {
    operation: u32,
    number: u64,
    origin: u64,
    /// From the start of its deadline.
    counted: u64,
    deadline: u64,
    leg: u16,
    arrival: (u64, u64),
    executed: u64,
    takes: u64,
    /// The strategy under which it started: 0, or 1 in overload.
    started_under: usize,
}

pub struct Reference<'a> {
    system: &'a System,
    plan: &'a Plan,
    draw: Draw,
    state: u64,
    ready: Vec<Job>,
    /// (when, operation, number, origin): future triggers and releases.
    due: Vec<(u64, u32, u64, u64)>,
    guards: HashMap<u32, u64>,
    joins: HashMap<(u32, u64), u64>,
    running: Vec<Option<(u32, u64, u16)>>,
    arrivals: u64,
    /// The strategy in force on each processor, and the nanoseconds between two switches.
    rules: Vec<usize>,
    switches_every: u64,
    seen: Seen,
}

impl<'a> Reference<'a> {
    pub fn run(system: &'a System, plan: &'a Plan, draw: Draw, seed: u64, horizon: u64) -> Seen {
        let mut this = Reference {
            system,
            plan,
            draw,
            state: seed,
            ready: vec![],
            due: vec![],
            guards: HashMap::new(),
            joins: HashMap::new(),
            running: vec![None; system.processors.len()],
            arrivals: 0,
            rules: vec![0; system.processors.len()],
            switches_every: [3, 10, 40, 200][seed as usize % 4],
            seen: Seen::default(),
        };
        this.release_all(horizon);
        for now in 0..horizon {
            this.switch();
            this.arrive(now);
            for processor in 0..system.processors.len() {
                this.execute(processor, now);
            }
        }
        // Unfinished jobs that are late by now count, too.
        for job in this.ready.clone() {
            this.record(&job, horizon);
        }
        this.seen
    }

    fn random(&mut self, least: u64, most: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bits = (self.state >> 33) ^ (self.state >> 51);
        least + bits % (most - least + 1)
    }

    fn setting(&self, operation: u32) -> &'a Setting {
        self.system.setting(0, OperationId(operation))
    }

    fn release_all(&mut self, horizon: u64) {
        for operation in 0..self.system.operations.len() as u32 {
            if self.system.operation(OperationId(operation)).trigger != Trigger::Periodic {
                continue;
            }
            let setting = self.setting(operation);
            let (period, jitter) = (setting.period.as_nanos(), setting.jitter.as_nanos());
            let first = match self.draw {
                Draw::AsWritten => setting.phase.as_nanos(),
                // So the first release, late by its jitter, is at one instant for all.
                Draw::Synchronous => 200 - jitter,
                Draw::Random => self.random(0, 2 * period),
            } + setting.offset.as_nanos();
            let mut earlier = 0;
            for number in 0.. {
                let origin = first + number * period;
                if origin >= horizon {
                    break;
                }
                let late = match self.draw {
                    Draw::AsWritten => 0,
                    Draw::Synchronous if number == 0 => jitter,
                    Draw::Synchronous => 0,
                    Draw::Random => [0, jitter, self.random(0, jitter)][self.random(0, 2) as usize],
                };
                earlier = (origin + late).max(earlier);
                self.due.push((earlier, operation, number, origin));
            }
        }
    }

    /// Any sequence of switches, on every processor that has two strategies.
    fn switch(&mut self) {
        for processor in 0..self.rules.len() {
            if self.plan.processors[processor].overload.is_some() && self.random(1, self.switches_every) == 1 {
                self.rules[processor] ^= 1;
            }
        }
    }

    fn arrive(&mut self, now: u64) {
        let (mut here, later): (Vec<_>, Vec<_>) = self.due.drain(..).partition(|due| due.0 <= now);
        self.due = later;
        here.sort_by_key(|due| (due.1, due.2));
        if self.draw != Draw::AsWritten && !here.is_empty() {
            let by = self.random(0, here.len() as u64 - 1) as usize;
            here.rotate_left(by);
        }
        here.sort_by_key(|due| (due.0, due.2));
        for (at, operation, number, origin) in here {
            let setting = self.setting(operation);
            if self.system.operation(OperationId(operation)).guard == Guard::On {
                let guard = self.guards.entry(operation).or_insert(0);
                if *guard > now {
                    let until = *guard;
                    self.due.push((until, operation, number, origin));
                    continue;
                }
                *guard = now + setting.period.as_nanos();
            }
            let nominal = match self.system.operation(OperationId(operation)).trigger {
                Trigger::Periodic => origin,
                _ => at,
            };
            let (counted, deadline) = match setting.deadline {
                Deadline::Own(span) => (nominal, nominal + span.as_nanos()),
                Deadline::Origin(span) => (origin, origin + span.as_nanos()),
            };
            let job = Job {
                operation,
                number,
                origin,
                counted,
                deadline,
                leg: 0,
                arrival: (0, 0),
                executed: 0,
                takes: 0,
                started_under: 0,
            };
            self.enqueue(now, job);
        }
    }

    fn enqueue(&mut self, now: u64, mut job: Job) {
        let worst = self.setting(job.operation).wcet.as_nanos();
        job.takes = if self.draw == Draw::Random && self.random(0, 2) == 0 { self.random(1, worst) } else { worst };
        self.arrivals += 1;
        job.arrival = (now, self.arrivals);
        job.executed = 0;
        self.ready.push(job);
    }

    fn critical(&self, job: &Job) -> bool {
        job.leg < self.setting(job.operation).critical_legs
    }

    /// Level with ceilings, then started before waiting (within a level), then key, tie, arrival.
    fn rank(&self, job: &Job) -> (u8, bool, i64, u16, (u64, u64)) {
        let id = OperationId(job.operation);
        let on = self.system.operation(id).on.index();
        let rules = if job.executed > 0 { job.started_under } else { self.rules[on] };
        let plan = &self.plan.processors[on];
        let plan = if rules == 0 { plan } else { plan.overload.as_deref().unwrap() };
        let placement = plan.placement(0, id).unwrap();
        let place = if self.critical(job) { placement.critical } else { placement.other };
        let (mut level, mut held) = (place.level, 0);
        let mut inside = false;
        for (resource, span) in &self.system.operation(id).uses {
            if job.executed > 0 && (held..held + span.as_nanos()).contains(&job.executed) {
                level = level.min(plan.ceilings[resource.index()].unwrap());
                inside = true;
            }
            held += span.as_nanos();
        }
        let left = (self.setting(job.operation).wcet.as_nanos() - job.executed) as i64;
        let key = match plan.levels[usize::from(place.level)].discipline {
            Discipline::Fifo => 0,
            Discipline::Deadline => job.deadline as i64,
            Discipline::Laxity => job.deadline as i64 - left,
        };
        let stays = match plan.preemption {
            Preemption::Full => inside,
            Preemption::None | Preemption::Levels => job.executed > 0,
        };
        (level, !stays, key, place.tie, job.arrival)
    }

    fn execute(&mut self, processor: usize, now: u64) {
        let here = |job: &Job| self.system.operation(OperationId(job.operation)).on.index() == processor;
        let is = |job: &Job| Some((job.operation, job.number, job.leg)) == self.running[processor];
        let kept = self.ready.iter().position(|job| here(job) && is(job));
        let non_preemptive = self.plan.processors[processor].preemption == Preemption::None;
        let best = match kept {
            Some(running) if non_preemptive => Some(running),
            // The running job wins ties of level and key.
            _ => (0..self.ready.len()).filter(|index| here(&self.ready[*index])).min_by_key(|index| {
                let (level, waits, key, tie, arrival) = self.rank(&self.ready[*index]);
                (level, waits, key, Some(*index) != kept, tie, arrival)
            }),
        };
        let Some(index) = best else { return };
        let job = &mut self.ready[index];
        if job.executed == 0 {
            job.started_under = self.rules[processor];
        }
        job.executed += 1;
        self.running[processor] = Some((job.operation, job.number, job.leg));
        if job.executed < job.takes {
            return;
        }
        let job = self.ready.remove(index);
        self.running[processor] = None;
        self.record(&job, now + 1);
        if job.leg + 1 < self.setting(job.operation).legs {
            return self.enqueue(now + 1, Job { leg: job.leg + 1, ..job });
        }
        self.trigger(&job, now + 1);
    }

    fn trigger(&mut self, job: &Job, now: u64) {
        let from = self.system.operation(OperationId(job.operation)).on;
        for (to, operation) in self.system.operations.iter().enumerate() {
            let predecessors = operation.trigger.predecessors();
            if !predecessors.contains(&OperationId(job.operation)) {
                continue;
            }
            let (least, most) = if operation.on == from {
                (0, 0)
            } else {
                let host = |processor: ProcessorId| self.system.processor(processor).host;
                let (least, most) = self.system.delay(host(from), host(operation.on));
                (least.as_nanos(), most.as_nanos())
            };
            let delay = if self.draw == Draw::Random { self.random(least, most) } else { most };
            let setting = self.setting(to as u32);
            // Joins wait for the last of them; its delay counts with the others' as an upper bound.
            let count = self.joins.entry((to as u32, job.number)).or_insert(0);
            *count += 1;
            if *count == predecessors.len() as u64 {
                let at = now + delay + setting.offset.as_nanos();
                self.due.push((at, to as u32, job.number, job.origin));
            }
        }
    }

    fn record(&mut self, job: &Job, now: u64) {
        let (worst, missed) = self.seen.worst.entry((job.operation, self.critical(job))).or_default();
        *worst = (*worst).max(now.saturating_sub(job.counted));
        *missed |= now > job.deadline;
        let finish = self.seen.finish.entry(job.operation).or_default();
        *finish = (*finish).max(now.saturating_sub(job.origin));
    }
}
