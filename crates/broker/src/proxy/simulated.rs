//! The proxy that changes nothing: it admits tasks as windows do, on CPUs that need not exist. For tests, and to
//! preview a broker's decisions.

use std::collections::VecDeque;

use hyoshi_control::TaskId;
use hyoshi_control::window::placement::WindowPlacement;
use hyoshi_model::{Instant, Reservation, Share};

use super::window::placement;
use super::{Abilities, ProxyContext, SchedulerProxy};
use crate::lanes::LaneUsage;
use crate::platform::{CpuLanes, NotReserved};

/// Admits tasks, reserves nothing.
#[derive(Debug)]
pub struct SimulatedProxy {
    cpus: Vec<u32>,
    placement: WindowPlacement,
    above: LaneUsage,
    outcomes: VecDeque<(TaskId, Reservation, NotReserved)>,
}

impl SimulatedProxy {
    /// On these CPUs, each reserved up to `limit`.
    pub fn new(cpus: Vec<u32>, limit: Share) -> Self {
        SimulatedProxy {
            placement: placement(&cpus, limit),
            cpus,
            above: LaneUsage::default(),
            outcomes: VecDeque::new(),
        }
    }
}

impl SchedulerProxy for SimulatedProxy {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn abilities(&self) -> Abilities {
        Abilities { soft: true, early: true, shared: true }
    }

    fn may_cap(&self, _: TaskId, _: &ProxyContext) -> Result<(), String> {
        Err("this scheduler changes nothing, so it caps nothing".into())
    }

    fn reserve(
        &mut self,
        task: TaskId,
        reservation: Reservation,
        _: Instant,
        _: &mut ProxyContext,
    ) -> Result<(), NotReserved> {
        let placed = self.placement.admit(task, reservation, &[]);
        placed.map(|_| ()).map_err(|refused| self.above.refused(&refused, &[]))
    }

    fn release(&mut self, task: TaskId, _: &mut ProxyContext) {
        self.placement.release(task);
    }

    fn next_outcome(&mut self) -> Option<(TaskId, Reservation, Result<(), NotReserved>)> {
        self.outcomes.pop_front().map(|(task, what, refused)| (task, what, Err(refused)))
    }

    fn promise_lanes(&mut self, cpu: u32, lanes: CpuLanes, first: &[TaskId], _: &mut ProxyContext) -> bool {
        if self.cpus.contains(&cpu) {
            self.above.note(cpu, &lanes);
        }
        let refused = self.placement.promise(cpu, &lanes.promises, first);
        let above = &self.above;
        self.outcomes.extend(refused.iter().map(|(task, refused)| (*task, refused.asked, above.refused(refused, &[]))));
        true
    }

    fn tick(&mut self, _: Instant, _: &mut ProxyContext) -> Instant {
        Instant::NEVER
    }

    fn due(&self) -> Instant {
        Instant::NEVER
    }
}
