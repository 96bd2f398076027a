//! What a feedback loop adapts, and the service levels that fit.

use hyoshi_control::feedback::{AdaptiveTask, ByValue, RateAssigner};
use hyoshi_model::{FeedbackLoop, OperationId, Span, System};
use serde::Serialize;

/// The service level of an operation that fits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LevelCheck {
    /// The operation.
    pub operation: String,
    /// The name of the level.
    pub level: String,
}

/// A task of a loop, with its period and level before the first sample.
pub(super) struct LoopTask {
    pub task: AdaptiveTask,
    period: Span,
    level: usize,
    /// Its operation with levels.
    leveled: Option<OperationId>,
    /// Its first operation, if that is on standby.
    pub standby: Option<OperationId>,
}

impl LoopTask {
    /// Those of a loop, as its dispatcher has them.
    pub fn all(system: &System, of: &FeedbackLoop) -> Vec<LoopTask> {
        let adapted = system.adapted_on(of.processor).into_iter().enumerate().map(|(place, one)| {
            let period = of.start.period_of(place, system.setting(0, one.root));
            (one.here, period)
        });
        let fixed = system.with_levels_on(of.processor).map(|id| (vec![id], system.setting(0, id).period));
        let of_operations = |(here, period): (Vec<OperationId>, Span)| {
            let leveled = here.iter().copied().find(|id| !system.operation(*id).levels.is_empty());
            let parts = here.iter().map(|id| {
                let (operation, setting) = (system.operation(*id), system.setting(0, *id));
                (setting.wcet, setting.legs, operation.importance, &*operation.levels)
            });
            let setting = system.setting(0, here[0]);
            let task = AdaptiveTask::of_operations(parts, (setting.period, setting.slowest));
            let start = leveled.map_or(0, |id| of.start_level(&system.operation(id).levels));
            let level = start.min(task.levels().len() - 1);
            LoopTask { task, period, level, leveled, standby: system.standby_root(here[0]) }
        };
        adapted.chain(fixed).map(of_operations).collect()
    }

    /// The declared utilisation before the first sample.
    pub fn start(&self) -> f64 {
        self.task.utilisation_at(self.level, self.period)
    }
}

/// The levels that the value-optimal assigner chooses for this total.
pub(super) fn fitting(system: &System, tasks: &[LoopTask], total: f64) -> Vec<LevelCheck> {
    let adapted: Vec<AdaptiveTask> = tasks.iter().map(|one| one.task).collect();
    let mut periods: Vec<Span> = tasks.iter().map(|one| one.period).collect();
    let (mut levels, mut assigner) = (vec![0; tasks.len()], ByValue::default());
    assigner.restart(&adapted, &periods);
    assigner.assign(&adapted, total.into(), &mut periods, &mut levels);
    let name = |(one, level): (&LoopTask, u8)| {
        let operation = system.operation(one.leveled?);
        let level = operation.levels[usize::from(level)].name.clone();
        Some(LevelCheck { operation: operation.name.clone(), level })
    };
    tasks.iter().zip(levels).filter_map(name).collect()
}
