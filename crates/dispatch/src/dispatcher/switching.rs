//! Two strategies: the inputs of the trigger, updated as jobs are released and end, and the switch itself.
//!
//! Every waiting job gets a new key; a started one finishes at its old level, before the jobs that wait there. No job
//! is lost: a switch only moves jobs between queues.

use alloc::{boxed::Box, vec, vec::Vec};

use hyoshi_model::{Instant, JobId, Overload, Span, System, utilisation_ppm};
use hyoshi_sched::{Discipline, ProcessorPlan};
use hyoshi_trace::{DispatchDecision, Probe, Slot};

use super::Dispatcher;
use crate::effects::Effects;
use crate::heap::Heap;
use crate::job::{Job, JobState, JobTable, Transition};
use crate::lane::{LaneMask, LaneState, levels_of};
use crate::operation::OperationState;
use crate::switch::{LevelLoad, Switch, UpcomingLoad, endangered};

/// The second strategy, and the work ahead of each job under it.
#[derive(Debug)]
pub(super) struct Switching {
    switch: Switch,
    margin: Span,
    /// Disciplines of the strategy that is not in force.
    disciplines: Vec<Discipline>,
    /// By level of the second strategy: waiting worst-case work, and critical jobs by deadline.
    levels: Vec<WaitingWork>,
    /// By epoch: the upcoming load of each level, and the longest job that may start in between.
    coming: Vec<(Vec<UpcomingLoad>, Span)>,
    /// The instant up to which running jobs' remaining worst cases are known.
    seen: Instant,
}

#[derive(Debug)]
struct WaitingWork {
    work: Span,
    critical: Heap<(Instant, Slot)>,
}

impl Switching {
    pub fn new(
        system: &System,
        plan: &ProcessorPlan,
        overload: &Overload,
        second: &ProcessorPlan,
        operations: &[OperationState],
    ) -> Box<Switching> {
        let count = plan.levels.len().max(second.levels.len()).max(1);
        let mut room = vec![0usize; count];
        for (position, operation) in operations.iter().enumerate() {
            let room_for = operation.queue.most_jobs();
            levels_of(plan, position).iter().for_each(|level| room[usize::from(level)] += room_for);
        }
        let waiting = |room: usize| WaitingWork { work: Span::ZERO, critical: Heap::with_capacity(room) };
        let mut disciplines: Vec<Discipline> = second.levels.iter().map(|level| level.discipline).collect();
        disciplines.resize(count, Discipline::Fifo);
        Box::new(Switching {
            switch: Switch::new(overload.calm),
            margin: overload.margin,
            disciplines,
            levels: room.into_iter().map(waiting).collect(),
            coming: (0..system.epochs.len()).map(|epoch| coming(system, second, epoch, count)).collect(),
            seen: Instant::ZERO,
        })
    }

    pub fn second(&self) -> bool {
        self.switch.second()
    }

    /// A contract pins a strategy, or none any more.
    pub fn pin(&mut self, second: Option<bool>) {
        self.switch.pin(second);
    }

    /// The level under which a waiting job counts: a started one keeps its level.
    fn level(&self, job: &Job) -> usize {
        usize::from(if job.started || self.second() { job.level } else { job.other.level })
    }

    pub fn waits(&mut self, slot: Slot, job: &Job) {
        let level = self.level(job);
        let level = &mut self.levels[level];
        level.work = more(level.work, job.remaining);
        if job.critical {
            level.critical.push((job.deadline, slot));
        }
    }

    pub fn leaves(&mut self, slot: Slot, job: &Job) {
        let level = self.level(job);
        let level = &mut self.levels[level];
        level.work = level.work.saturating_sub(job.remaining);
        if job.critical {
            // Most often the first.
            let position = level.critical.entries().iter().position(|(_, waiting)| *waiting == slot);
            position.inspect(|position| level.critical.remove(*position));
        }
    }

    /// Adds the remaining legs of a released job, or removes them.
    pub fn follow(&mut self, job: &Job, released: bool) {
        let critical = job.critical_legs.saturating_sub(job.id.leg + 1);
        let all = job.legs.saturating_sub(job.id.leg + 1);
        let kinds = [(critical.min(all), job.legs_at.0), (all.saturating_sub(critical), job.legs_at.1)];
        for (legs, level) in kinds.into_iter().filter(|(legs, _)| *legs > 0) {
            let legs = job.wcet.checked_mul(u64::from(legs)).unwrap_or(Span::from_nanos(u64::MAX));
            let work = &mut self.levels[usize::from(level)].work;
            *work = if released { more(*work, legs) } else { work.saturating_sub(legs) };
        }
    }

    fn endangered(&self, now: Instant, epoch: usize, running: LaneMask, lanes: &[LaneState], jobs: &JobTable) -> bool {
        let (coming, stride) = &self.coming[epoch];
        let levels = self.levels.iter().zip(coming).enumerate().map(|(index, (waiting, coming))| {
            let started = if running.contains(index as u8) { lanes[index].running } else { None };
            let started = started.map(|slot| jobs.get(slot));
            let level = LevelLoad {
                waiting: waiting.work,
                due: waiting.critical.first().map(|(due, _)| *due),
                started: started.map_or(Span::ZERO, |job| job.remaining),
                started_due: started.filter(|job| job.critical).map(|job| job.deadline),
            };
            (level, *coming)
        });
        endangered(now, levels, more(*stride, self.margin))
    }
}

fn more(one: Span, other: Span) -> Span {
    one.checked_add(other).unwrap_or(Span::from_nanos(u64::MAX))
}

/// The upcoming load of each level of the second strategy, and the longest job of non-critical work.
fn coming(system: &System, second: &ProcessorPlan, epoch: usize, count: usize) -> (Vec<UpcomingLoad>, Span) {
    let rates = system.release_rates(epoch);
    let mut levels = vec![(0u64, Span::ZERO, None::<Span>); count];
    let mut stride = Span::ZERO;
    for (position, id) in second.operations.iter().enumerate() {
        let (operation, setting) = (system.operation(*id), system.setting(epoch, *id));
        if !setting.enabled {
            continue;
        }
        let placement = second.placements[epoch][position];
        let critical = if operation.critical { setting.legs } else { setting.critical_legs.min(setting.legs) };
        for (legs, place, is_critical) in
            [(critical, placement.critical, true), (setting.legs - critical, placement.other, false)]
        {
            if legs == 0 {
                continue;
            }
            let level = &mut levels[usize::from(place.level)];
            level.0 = level.0.saturating_add(utilisation_ppm(setting.wcet, legs, rates[id.index()]));
            level.1 = more(level.1, setting.wcet.checked_mul(u64::from(legs)).unwrap_or(Span::from_nanos(u64::MAX)));
            if is_critical {
                let deadline = setting.deadline.span();
                level.2 = Some(level.2.map_or(deadline, |least| least.min(deadline)));
            } else {
                stride = stride.max(setting.wcet);
            }
        }
    }
    let (mut share, mut once) = (0u64, Span::ZERO);
    let each = levels.into_iter().enumerate().map(|(index, (ppm, work, deadline))| {
        let above = share;
        (share, once) = (share.saturating_add(ppm), more(once, work));
        // A job released later precedes only if it may have the better key.
        let fifo = second.levels.get(index).is_none_or(|level| level.discipline == Discipline::Fifo);
        UpcomingLoad { share_ppm: if fifo { above } else { share }, once, deadline }
    });
    (each.collect(), stride)
}

impl<P: Probe> Dispatcher<P> {
    /// Accounts for time: the kernel ran the most urgent started job.
    #[cold]
    pub(super) fn progress(&mut self, now: Instant) {
        let lane = (self.running & !self.paused()).first();
        let Some(switching) = &mut self.switching else { return };
        let passed = now.since(switching.seen);
        switching.seen = now;
        if let Some(slot) = lane.and_then(|lane| self.lanes[usize::from(lane)].running) {
            let job = self.jobs.get_mut(slot);
            job.remaining = job.remaining.saturating_sub(passed);
        }
    }

    /// After a release, a completion, or when a contract pins a strategy: decides which strategy is in force.
    pub(super) fn update_strategy(&mut self, now: Instant, effects: &mut Effects) {
        let Some(switching) = &mut self.switching else { return };
        let endangered = switching.endangered(now, self.epoch, self.running, &self.lanes, &self.jobs);
        if let Some(contracts) = &mut self.contracts {
            contracts.count_endangered(now, endangered);
        }
        if switching.switch.ask(now, endangered) {
            let second = switching.second();
            core::mem::swap(&mut switching.disciplines, &mut self.disciplines);
            self.decision(now, DispatchDecision::Switch { second });
            self.rekey(now, effects);
        }
    }

    fn rekey(&mut self, now: Instant, effects: &mut Effects) {
        for operation in &mut self.operations {
            core::mem::swap(&mut operation.placement, &mut operation.other_placement);
        }
        self.reserve();
        self.empty_queues();
        for slot in (0..self.jobs.capacity() as u32).map(Slot) {
            if !self.jobs.is_live(slot) {
                continue;
            }
            let job = self.jobs.get_mut(slot);
            let before = job.lane;
            if job.started {
                job.carried = true;
            } else {
                let other =
                    core::mem::replace(&mut job.other, hyoshi_sched::LevelPosition { level: job.level, tie: job.tie });
                (job.level, job.tie) = (other.level, other.tie);
                job.lane = LaneState::index_of(&self.lanes, job.level);
            }
            if job.state == JobState::Ready {
                let (id, lane): (JobId, u8) = (job.id, job.lane);
                self.enqueue(slot, Transition::Requeue, effects);
                if lane != before {
                    self.decision(now, DispatchDecision::Move { job: id, lane });
                }
            }
        }
    }
}
