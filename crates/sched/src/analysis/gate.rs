//! Whether demand can use up the budget of a cap: the work that a processor executes if all releases are as early as
//! possible.

use alloc::vec::Vec;

use hyoshi_model::hard_cap::WINDOW;
use hyoshi_model::{HardCap, Preemption};

use super::fixed::Demand;
use super::processor_scene::ProcessorScene;
use super::verdict::Missing;
use super::work::Release;

/// Releases within a window after which the cap is assumed to act.
const PATIENCE: u128 = 100_000;

/// True if worst-case demand may make a cap gate non-critical work, before any pause.
pub(super) fn gates(site: &ProcessorScene<'_>, releases: &[Release], cap_ppm: u32, hard: HardCap) -> bool {
    let least_urgent = site.parts.iter().filter(|part| !part.critical).map(|part| part.worst).max();
    let Some(least_urgent) = least_urgent else { return false };
    let window = u128::from(site.system.processor(site.plan.processor).cap_window.as_nanos());
    let cap_ppm = u128::from(cap_ppm);
    let capped = cap_ppm < MILLION && window > 0;
    if !capped && !hard.is_on() {
        return false;
    }
    let demands: Result<Vec<Demand>, Missing> =
        site.parts.iter().map(|part| site.demand_in_windows(part, releases)).collect();
    let Ok(mut demands) = demands else { return true };
    let lanes = site.plan.preemption != Preemption::None;
    let mut reserve_ppm = 0;
    for (part, demand) in site.parts.iter().zip(&demands) {
        if part.critical || (lanes && part.best < least_urgent) {
            // Each is rounded up, as the dispatcher does.
            reserve_ppm += (u128::from(demand.cost) * MILLION).div_ceil(u128::from(demand.period));
        }
    }
    let reserve_ppm = reserve_ppm.min(cap_ppm.saturating_sub(1));
    // Work that interrupts a lane counts as if the lane used it.
    let Ok(above) = site.above_lanes(releases) else { return true };
    demands.extend(above);
    capped && uses_up(&demands, window, cap_ppm, reserve_ppm).unwrap_or(true)
        || hard.is_on() && uses_up_hard(&demands, hard.threshold().as_nanos())
}

const MILLION: u128 = 1_000_000;

/// Whether the budget may be used up; `None` if the search would be too long.
fn uses_up(demands: &[Demand], window: u128, cap_ppm: u128, reserve_ppm: u128) -> Option<bool> {
    // In whole nanoseconds, as in the dispatcher.
    let budget = window.checked_mul(cap_ppm)? / MILLION * MILLION;
    executes(demands, window, &mut |executed, at| {
        let reserve = reserve_ppm.checked_mul(window - at)?;
        Some(executed.checked_mul(MILLION)?.checked_add(reserve)? >= budget)
    })
}

/// Whether the work that a processor executes within a window, if all releases are as early as possible, `reaches` too
/// much at an instant at which it becomes idle or at the window's end. `None` if the search would be too long.
fn executes(demands: &[Demand], window: u128, reaches: &mut dyn FnMut(u128, u128) -> Option<bool>) -> Option<bool> {
    if demands.iter().map(|demand| demand.jobs(window)).sum::<u128>() > PATIENCE {
        return None;
    }
    let mut releases: Vec<(u128, u128)> = Vec::new();
    for demand in demands {
        let (period, burst) = (u128::from(demand.period), u128::from(demand.burst));
        let jobs = demand.jobs(window);
        releases.extend((0..jobs).map(|job| ((job * period).saturating_sub(burst), u128::from(demand.cost))));
    }
    releases.sort_unstable();
    let (mut executed, mut idle_from) = (0u128, 0u128);
    for (at, cost) in releases {
        if at > idle_from {
            if reaches(executed, idle_from)? {
                return Some(true);
            }
            idle_from = at;
        }
        let end = idle_from.saturating_add(cost).min(window);
        executed += end - idle_from;
        idle_from = end;
    }
    reaches(executed, idle_from)
}

/// True if these may use up a budget in the window that the dispatcher accounts for, or if the search would be too
/// long.
pub(super) fn uses_up_hard(demands: &[Demand], budget: u64) -> bool {
    let window = u128::from((WINDOW + HardCap::step()).as_nanos());
    executes(demands, window, &mut |executed, _| Some(executed >= u128::from(budget))).unwrap_or(true)
}
