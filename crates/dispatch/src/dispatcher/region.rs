//! What changes from one operating region to the next, and the cap's view of it.

use alloc::{sync::Arc, vec, vec::Vec};

use hyoshi_model::{Instant, Setting, System, utilisation_ppm};
use hyoshi_sched::{Placement, ProcessorPlan};
use hyoshi_trace::{Decision, Probe};

use super::Dispatcher;
use crate::lane::{Lane, plans};

/// What each epoch changes, ready to be copied.
#[derive(Debug)]
pub(super) struct Settings {
    epochs: Vec<Vec<Setting>>,
    /// Under each strategy.
    placements: Vec<Vec<Vec<Placement>>>,
    reserves: Vec<Vec<Vec<u64>>>,
}

impl Settings {
    pub fn new(system: &System, plan: &ProcessorPlan, lanes: &[Lane]) -> Self {
        let epochs = 0..system.epochs.len();
        let settings = |epoch| plan.operations.iter().map(|id| system.setting(epoch, *id).clone()).collect();
        Settings {
            epochs: epochs.clone().map(settings).collect(),
            placements: plans(plan).map(|plan| plan.placements.clone()).collect(),
            reserves: plans(plan)
                .map(|plan| epochs.clone().map(|epoch| reserves(system, plan, epoch, lanes)).collect())
                .collect(),
        }
    }
}

impl<P: Probe> Dispatcher<P> {
    pub(super) fn enter_epoch(&mut self, now: Instant, index: usize) {
        self.epoch = index;
        let settings = Arc::clone(&self.settings);
        let ruling = self.ruling();
        for (local, operation) in self.operations.iter_mut().enumerate() {
            operation.enter(&settings.epochs[index][local]);
            operation.placement = settings.placements[ruling][index][local];
            operation.other_placement = settings.placements[(ruling + 1) % settings.placements.len()][index][local];
        }
        self.reserve();
        self.decision(now, Decision::Epoch { index: index as u16 });
    }

    /// Tells the cap what must stay possible.
    pub(super) fn reserve(&mut self) {
        let ruling = self.ruling();
        if let Some(cap) = &mut self.cap {
            cap.reserve(self.settings.reserves[ruling][self.epoch].iter().copied());
        }
    }

    /// Tells the cap whether lanes use the CPU from now on.
    #[inline]
    pub(super) fn account(&mut self, now: Instant) {
        loop {
            let busy = !((self.running & !self.paused()) | self.may_start()).is_empty();
            let Some(cap) = &mut self.cap else { return };
            if !cap.account(now, busy) {
                return;
            }
            // The gate has moved, and with it what counts as busy: at most once for each lane.
            let lane = cap.gate();
            for index in 0..self.lanes.len() as u8 {
                self.wakes.insert(index);
            }
            self.decision(now, Decision::Gate { lane });
        }
    }
}

/// For each lane what the cap keeps possible above it: all critical work, and the other work of
/// more urgent lanes, in parts per million at declared worst cases.
fn reserves(system: &System, plan: &ProcessorPlan, epoch: usize, lanes: &[Lane]) -> Vec<u64> {
    let rates = system.release_rates(epoch);
    let mut critical = 0;
    let mut other = vec![0u64; lanes.len()];
    for (position, id) in plan.operations.iter().enumerate() {
        let (operation, setting) = (system.operation(*id), system.setting(epoch, *id));
        // Far above any cap, and small enough to be added up.
        let ppm = |legs: u16| utilisation_ppm(setting.wcet, legs, rates[id.index()]).min(1 << 32);
        let critical_legs = if operation.critical { setting.legs } else { setting.critical_legs.min(setting.legs) };
        critical += ppm(critical_legs);
        let lane = Lane::index_of(lanes, plan.placements[epoch][position].other.level);
        other[usize::from(lane)] += ppm(setting.legs - critical_legs);
    }
    let above = |lane: usize| critical + other[..lane].iter().sum::<u64>();
    (0..lanes.len()).map(above).collect()
}
