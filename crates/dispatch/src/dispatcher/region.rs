//! The changes from one operating region to the next, and the cap's inputs in it.

use alloc::{sync::Arc, vec::Vec};

use hyoshi_model::{Admissions, Instant, OnOverload, OperationId, ResourceId, Setting, System, utilisation_ppm};
use hyoshi_sched::{Placement, ProcessorPlan};
use hyoshi_trace::{DispatchDecision, Probe, Slot};

use super::{Dispatcher, Presence};
use crate::effects::Effects;
use crate::hard_cap::HardCapChange;
use crate::job::JobState;
use crate::lane::{LaneMask, LaneState, plans};
use crate::operation::OperationState;

/// The changes of each epoch, ready to be copied.
#[derive(Debug)]
pub(super) struct EpochSettings {
    epochs: Vec<Vec<Setting>>,
    /// Under each strategy.
    placements: Vec<Vec<Vec<Placement>>>,
    /// The declared utilisation of each operation's critical and other jobs, in parts per million.
    shares: Vec<Vec<(u64, u64)>>,
    /// Whether the processor's host is off.
    off: Vec<bool>,
    /// Of operations on the processor.
    pub(super) admissions: Vec<Admissions>,
}

impl EpochSettings {
    /// The setting of an operation here.
    pub fn of(&self, epoch: usize, local: usize) -> &Setting {
        &self.epochs[epoch][local]
    }

    pub fn new(system: &System, plan: &ProcessorPlan) -> Self {
        let epochs = 0..system.epochs.len();
        let host = system.processor(plan.processor).host;
        let settings = |epoch| plan.operations.iter().map(|id| system.setting(epoch, *id).clone()).collect();
        EpochSettings {
            epochs: epochs.clone().map(settings).collect(),
            placements: plans(plan).map(|plan| plan.placements.clone()).collect(),
            shares: epochs.map(|epoch| shares(system, plan, epoch)).collect(),
            admissions: system.epochs.iter().map(|epoch| admissions(system, plan, &epoch.admissions)).collect(),
            off: system.epochs.iter().map(|epoch| !epoch.environment.enables(host)).collect(),
        }
    }
}

impl<P: Probe> Dispatcher<P> {
    /// The next epoch is due.
    pub(super) fn begin_next_epoch(&mut self, now: Instant, effects: &mut Effects) {
        let index = self.epochs_begun;
        self.epochs_begun += 1;
        self.next_epoch = self.system_epochs.get(self.epochs_begun).copied().unwrap_or(Instant::NEVER);
        if let Some(contracts) = &mut self.contracts {
            contracts.begin_epoch(now, index);
        }
        self.set_region(now, index, effects);
        let off = self.settings.off[index];
        if off && !core::mem::replace(&mut self.off, off) {
            self.switch_off(now, effects);
        }
        self.off = off;
        self.begin_admissions(now, (index, self.system_epochs[index]), effects);
    }

    /// A region begins at another time than its epoch. Later epochs still begin at their time.
    pub(super) fn enter_region(&mut self, now: Instant, index: u16, effects: &mut Effects) {
        self.advance_before(now, effects);
        while self.next_epoch <= now {
            self.begin_next_epoch(now, effects);
        }
        self.set_region(now, index.into(), effects);
        self.begin_admissions(now, (index.into(), now), effects);
    }

    fn set_region(&mut self, now: Instant, index: usize, effects: &mut Effects) {
        self.epoch = index;
        let settings = Arc::clone(&self.settings);
        let strategy_in_force = self.strategy_in_force();
        for (local, operation) in self.operations.iter_mut().enumerate() {
            operation.enter(&settings.epochs[index][local]);
            let place = |strategy: usize| settings.placements[strategy % settings.placements.len()][index][local];
            match (self.reranked, strategy_in_force) {
                (false, _) => {
                    (operation.placement, operation.other_placement) =
                        (place(strategy_in_force), place(strategy_in_force + 1))
                }
                // `rerank` sets the others.
                (true, 0) if settings.placements.len() > 1 => operation.other_placement = place(1),
                (true, 0) => {}
                (true, _) => operation.placement = place(1),
            }
            if operation.importance != operation.declared_importance {
                operation.reorder(&self.rankings, strategy_in_force);
            }
        }
        self.decision(now, DispatchDecision::Epoch { index: index as u16 });
        if self.reranked {
            self.rerank(now, effects);
        } else {
            self.reserve();
        }
    }

    /// Sets the cap's reserve above each lane: all critical work, and the other work of more urgent lanes.
    ///
    /// With a feedback loop it is the critical work alone. If jobs need less than their declared times, the loop sets
    /// rates with declared times above the cap. Then a reserve for them would stop the least urgent lanes for ever.
    pub(super) fn reserve(&mut self) {
        let Some(cap) = &mut self.cap else { return };
        let (mut critical, mut other) = (0, [0u64; u64::BITS as usize]);
        let operations = self.operations.iter().zip(&self.settings.shares[self.epoch]);
        for (operation, share) in operations.filter(|(operation, _)| operation.presence != Presence::Away) {
            critical += operation.at_present_rate(share.0);
            if self.feedback.is_none() {
                let lane = LaneState::index_of(&self.lanes, operation.placement.other.level);
                other[usize::from(lane)] += operation.at_present_rate(share.1);
            }
        }
        let above = other.iter().scan(critical, |above, lane| Some(core::mem::replace(above, *above + lane)));
        cap.reserve(above);
    }

    /// From now on the caps count whether lanes use the CPU.
    #[inline]
    pub(super) fn account(&mut self, now: Instant, effects: &mut Effects) {
        // A gate that moves changes which lanes use the CPU. Each cap moves at most once for each lane.
        while self.account_to_caps(now, effects) {}
    }

    #[inline]
    fn account_to_caps(&mut self, now: Instant, effects: &mut Effects) -> bool {
        if self.cap.is_none() && self.hard_cap.is_none() {
            return false;
        }
        let before = self.gate();
        let busy = !((self.running & !self.paused()) | self.may_start()).is_empty();
        let critical = self.hard_cap.is_some() && busy && self.critical_work_has_the_cpu();
        let moved = self.cap.as_mut().is_some_and(|cap| cap.account(now, busy));
        let change = self.hard_cap.as_mut().map_or(HardCapChange::None, |cap| cap.account(now, busy, critical));
        if !moved && change == HardCapChange::None {
            return false;
        }
        self.wake_all(effects);
        if self.gate() != before {
            self.decision(now, DispatchDecision::Gate { lane: self.gate() });
        }
        match change {
            HardCapChange::None | HardCapChange::Gate => {}
            HardCapChange::Pause { lasting } => self.pause(now, lasting, effects),
            HardCapChange::Open => {
                self.spared = LaneMask::EMPTY;
                self.decision(now, DispatchDecision::Pause { on: false });
            }
        }
        true
    }

    #[cold]
    fn pause(&mut self, now: Instant, lasting: bool, effects: &mut Effects) {
        let jobs = &self.jobs;
        let running =
            self.held.iter().map(|(holder, _)| jobs.get(*holder)).filter(|job| job.state == JobState::Running);
        self.spared = running.map(|job| job.lane).collect();
        self.decision(now, DispatchDecision::Pause { on: true });
        if lasting {
            self.overload_lasts(now, effects);
        }
    }

    fn wake_all(&mut self, effects: &mut Effects) {
        for lane in 0..self.lanes.len() as u8 {
            effects.woken.insert(lane);
        }
    }

    /// Whether the most urgent job that runs or may start is critical. A job that holds a resource may run above it.
    fn critical_work_has_the_cpu(&self) -> bool {
        let running = self.running & !self.paused();
        let holds = |(holder, _): &(Slot, ResourceId)| {
            let job = self.jobs.get(*holder);
            job.critical && job.state == JobState::Running && running.contains(job.lane)
        };
        if !self.held.is_empty() && self.held.iter().any(holds) {
            return true;
        }
        let Some(lane) = (running | self.may_start()).first() else { return false };
        let state = &self.lanes[usize::from(lane)];
        let first = if running.contains(lane) { state.running } else { None };
        let first = first.or_else(|| state.best(lane >= self.gate()).map(|(_, slot)| slot));
        first.is_some_and(|slot| self.jobs.get(slot).critical)
    }

    /// Critical overload lasts: applies the file's rule.
    fn overload_lasts(&mut self, now: Instant, effects: &mut Effects) {
        self.decision(now, DispatchDecision::Overload);
        match self.on_overload {
            OnOverload::Report => {}
            OnOverload::Stop => effects.stop = true,
            OnOverload::Demote => {
                let critical = |one: &&mut OperationState| one.is_active() && (one.critical || one.critical_legs > 0);
                if self.operations.iter_mut().filter(critical).count() < 2 {
                    return;
                }
                // Of equally important ones the last in the file.
                let least = self.operations.iter_mut().rev().filter(critical).min_by_key(|one| one.importance);
                if let Some(operation) = least {
                    operation.relegate();
                    let operation = operation.id;
                    self.decision(now, DispatchDecision::Relegate { operation });
                }
            }
        }
    }
}

/// The admissions of a processor's operations.
fn admissions(system: &System, plan: &ProcessorPlan, all: &Admissions) -> Admissions {
    let here = |ids: &[OperationId]| -> Vec<OperationId> {
        ids.iter().copied().filter(|id| system.operation(*id).on == plan.processor).collect()
    };
    Admissions { withdraw: here(&all.withdraw), admit: here(&all.admit) }
}

/// The declared utilisation of each operation's critical and other jobs, in parts per million.
fn shares(system: &System, plan: &ProcessorPlan, epoch: usize) -> Vec<(u64, u64)> {
    let rates = system.release_rates(epoch);
    let share = |id: &OperationId| {
        let (operation, setting) = (system.operation(*id), system.setting(epoch, *id));
        // Far above any cap, and small enough for sums.
        let ppm = |legs: u16| utilisation_ppm(setting.wcet, legs, rates[id.index()]).min(1 << 32);
        let critical = if operation.critical { setting.legs } else { setting.critical_legs.min(setting.legs) };
        (ppm(critical), ppm(setting.legs - critical))
    };
    plan.operations.iter().map(share).collect()
}
