//! What the law of blame must know of a plan.

use alloc::vec;

use hyoshi_model::System;
use hyoshi_sched::ProcessorPlan;
use hyoshi_trace::blame::Places;

use crate::lane::{ceilings, lanes_of, plans};

/// The levels of one processor's jobs, for [`hyoshi_trace::blame::Blame`].
///
/// ```
/// use hyoshi_dispatch::places;
/// # use hyoshi_model::System;
/// # use hyoshi_sched::Plan;
/// use hyoshi_trace::blame::{Blame, Interest};
///
/// fn laws<'a>(system: &'a System, plan: &Plan) -> Vec<Blame<'a>> {
///     let law = |plan| Blame::new(system, places(system, plan), true, Interest::NotMade);
///     plan.processors.iter().map(law).collect()
/// }
/// ```
pub fn places(system: &System, plan: &ProcessorPlan) -> Places {
    let lanes = lanes_of(plan);
    let levels_of = |plan: &ProcessorPlan| {
        let epochs = plan.placements.iter().map(|placements| {
            let mut levels = vec![None; system.operations.len()];
            for (id, placement) in plan.operations.iter().zip(placements) {
                levels[id.index()] = Some((placement.critical.level, placement.other.level));
            }
            levels
        });
        epochs.collect()
    };
    let critical = lanes.iter().map(|lane| {
        let mut levels = plans(plan).flat_map(|plan| plan.levels.iter().zip(0u8..));
        levels.any(|(level, index)| lane.contains(&index) && level.critical)
    });
    Places {
        preemption: plan.preemption,
        lanes: lanes.len() as u8,
        critical: critical.collect(),
        levels: levels_of(plan),
        second: plan.overload.as_deref().map(levels_of).unwrap_or_default(),
        ceilings: ceilings(plan),
    }
}
