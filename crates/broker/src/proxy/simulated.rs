//! The proxy that changes nothing: admission as windows have it, on CPUs that need not be there. For tests, and to see
//! what a broker would do to a machine before it may.

use std::collections::VecDeque;

use hyoshi_control::TaskId;
use hyoshi_control::window::placement::WindowPlacement;
use hyoshi_model::{Instant, Reservation, Share};

use super::window::placement;
use super::{Abilities, Ground, SchedulerProxy};
use crate::kernel::{Lanes, NotReserved};
use crate::lanes::Above;

/// Admits, and holds nothing.
#[derive(Debug)]
pub struct SimulatedProxy {
    cpus: Vec<u32>,
    placement: WindowPlacement,
    above: Above,
    news: VecDeque<(TaskId, Reservation, NotReserved)>,
}

impl SimulatedProxy {
    /// On these CPUs, each reserved up to `limit`.
    pub fn new(cpus: Vec<u32>, limit: Share) -> Self {
        SimulatedProxy { placement: placement(&cpus, limit), cpus, above: Above::default(), news: VecDeque::new() }
    }
}

impl SchedulerProxy for SimulatedProxy {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn abilities(&self) -> Abilities {
        Abilities { soft: true, soon: true, shared: true }
    }

    fn may_cap(&self, _: TaskId, _: &Ground) -> Result<(), String> {
        Err("it changes nothing, so it caps nothing".into())
    }

    fn reserve(
        &mut self,
        task: TaskId,
        reservation: Reservation,
        _: Instant,
        _: &mut Ground,
    ) -> Result<(), NotReserved> {
        let placed = self.placement.admit(task, reservation, &[]);
        placed.map(|_| ()).map_err(|refused| self.above.refused(&refused, &[]))
    }

    fn release(&mut self, task: TaskId, _: &mut Ground) {
        self.placement.release(task);
    }

    fn news(&mut self) -> Option<(TaskId, Reservation, Result<(), NotReserved>)> {
        self.news.pop_front().map(|(task, what, refused)| (task, what, Err(refused)))
    }

    fn promise(&mut self, cpu: u32, lanes: Lanes, first: &[TaskId], _: &mut Ground) -> bool {
        if self.cpus.contains(&cpu) {
            self.above.note(cpu, &lanes);
        }
        let refused = self.placement.promise(cpu, &lanes.promises, first);
        let above = &self.above;
        self.news.extend(refused.iter().map(|(task, refused)| (*task, refused.asked, above.refused(refused, &[]))));
        true
    }

    fn tick(&mut self, _: Instant, _: &mut Ground) -> Instant {
        Instant::NEVER
    }

    fn due(&self) -> Instant {
        Instant::NEVER
    }
}
