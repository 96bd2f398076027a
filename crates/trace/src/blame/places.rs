//! What the law must know of a plan: which level each operation's jobs have on this processor.

use hyoshi_model::{JobId, Preemption, ResourceId, System};

/// The levels of one processor's jobs. The room that plans makes it; see `places` in `hyoshi_dispatch`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Which jobs interrupt which.
    pub preemption: Preemption,
    /// Lanes; at least one.
    pub lanes: u8,
    /// For each lane, whether critical jobs can be in it.
    pub critical: Vec<bool>,
    /// For each epoch and operation of the system, the level of its critical and of its other jobs;
    /// `None` for operations of other processors.
    pub levels: Vec<Vec<Option<(u8, u8)>>>,
    /// The same under the second strategy; empty if there is none.
    pub second: Vec<Vec<Option<(u8, u8)>>>,
    /// The most urgent level among the users of each resource here.
    pub ceilings: Vec<Option<u8>>,
}

impl Places {
    /// The most urgent level that uses a resource.
    pub fn ceiling(&self, resource: ResourceId) -> Option<u8> {
        self.ceilings.get(resource.index()).copied().flatten()
    }

    /// Whether critical jobs can be in a lane: the cap pauses the others.
    pub fn is_critical_lane(&self, lane: u8) -> bool {
        self.critical.get(usize::from(lane)).copied().unwrap_or(false)
    }

    /// The lane of a level: one for all, or one for each.
    pub fn lane_of(&self, level: u8) -> u8 {
        if self.lanes <= 1 { 0 } else { level.min(self.lanes - 1) }
    }

    /// Whether a job of an epoch is critical, and its level under the first strategy.
    pub fn of(&self, system: &System, epoch: usize, job: JobId) -> (bool, u8) {
        self.under(&self.levels, system, epoch, job)
    }

    /// Its level under the second strategy; under the first if there is no other.
    pub fn second_of(&self, system: &System, epoch: usize, job: JobId) -> u8 {
        let levels = if self.second.is_empty() { &self.levels } else { &self.second };
        self.under(levels, system, epoch, job).1
    }

    fn under(&self, levels: &[Vec<Option<(u8, u8)>>], system: &System, epoch: usize, job: JobId) -> (bool, u8) {
        let epoch = epoch.min(system.epochs.len().saturating_sub(1));
        let Some(operation) = system.operations.get(job.operation.index()) else { return (false, u8::MAX - 1) };
        let critical = operation.critical || job.leg < system.setting(epoch, job.operation).critical_legs;
        let epoch = levels.get(epoch.min(levels.len().saturating_sub(1)));
        let levels = epoch.and_then(|levels| levels.get(job.operation.index()).copied().flatten());
        // Below every lane, but not demoted: an operation that a recording of another system names.
        let level = levels.map_or(u8::MAX - 1, |(one, other)| if critical { one } else { other });
        (critical, level)
    }
}
