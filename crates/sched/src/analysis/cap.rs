//! The cap on what lanes may use: whether it can act at all, and what is still proved if it can.
//!
//! The dispatcher gates a lane's non-critical work when `used(x) + r (W - x)` reaches the budget `c W`,
//! x after a window of length W began; r is the declared utilisation of all critical work and of the
//! non-critical work in more urgent lanes. Let E(x) be what the processor executes by x if all that can be
//! released is released as early as can be from 0 on. No window of length x contains more: if the
//! processor was busy for y before the window, it executes at most E(x + y) - y <= E(x) in it, for E grows no
//! faster than time. E(x) + r (W - x) rises while the processor is busy, so it is greatest where that
//! becomes idle or the window ends. While all of those stay below `c W` the gate never moves.
//!
//! The [hard cap](super::hard_cap) gates all non-critical work when lanes have used its threshold in its window, which is P
//! and a step long at most: while E(P + step) stays below the threshold, it never does.
//!
//! If it can, critical work is never held, but held non-critical work may come in a burst: then only
//! critical work with nothing non-critical beside or above it is proved. Critical work may exceed the cap
//! within a window; if its utilisation does, the kernel would sooner or later stop it with everything else.

use alloc::vec::Vec;

use hyoshi_model::{HardCap, Preemption};

use super::blocking::Blocking;
use super::fixed::Demand;
use super::hard_cap;
use super::processor::{Found, Part, Response, Site};
use super::release::Release;
use super::utilisation::{self, ONE, Share};
use super::verdict::Missing;

/// Turns what the cap may hold back into unknown.
pub(super) fn restrict(site: &Site<'_>, releases: &[Release], found: &mut [Found]) {
    let name = || site.system.processor(site.plan.processor).name.clone();
    if hard_cap::may_relegate(site, releases) {
        found.iter_mut().filter(|found| found.part.critical && is_known(found)).for_each(|found| {
            found.response = Response::Unknown(Missing::HardCap { processor: name() });
        });
    }
    if !may_act(site, releases) {
        return;
    }
    let critical_fits = critical_fits(site);
    let (enough, keys) = enough(site, releases);
    let blocking = Blocking::new(site.system, site.plan);
    for found in found {
        let level = found.part.worst;
        let in_the_way = |part: &&Part| part.best <= level || blocking.sections(part.operation, level) > 0;
        let held = site.parts.iter().filter(|part| !part.critical).find(in_the_way);
        let missing = match (found.part.critical, held) {
            (true, None) if critical_fits => continue,
            (true, None) => Missing::CapTooSmall { processor: name() },
            (false, _) => Missing::Cap { processor: name(), held: None, resource: None, enough, keys },
            (true, Some(held)) => {
                let resource = (held.best > level).then(|| blocking.reaching(held.operation, level)).flatten();
                let held = Some(site.system.operation(held.operation).name.clone());
                Missing::Cap { processor: name(), held, resource, enough, keys }
            }
        };
        if is_known(found) {
            found.response = Response::Unknown(missing);
        }
    }
}

/// True if there is a bound that the cap may break.
fn is_known(found: &Found) -> bool {
    matches!(found.response, Response::Bound(_) | Response::Counted { .. } | Response::InTime | Response::Tested(_))
}

/// The least cap, in percent, that never acts (100 % is none), and the keys that must be raised to it.
fn enough(site: &Site<'_>, releases: &[Release]) -> (u32, &'static str) {
    let processor = site.system.processor(site.plan.processor);
    let (mut acts, mut enough) = (processor.cap_ppm.min(processor.hard_cap.ppm) / 10_000, 100);
    while enough - acts > 1 {
        let middle = acts.midpoint(enough);
        let ppm = middle * 10_000;
        let keeps = acts_at(site, releases, processor.cap_ppm.max(ppm), processor.hard_cap.ppm.max(ppm));
        *(if keeps { &mut acts } else { &mut enough }) = middle;
    }
    let short = |ppm: u32| ppm < enough * 10_000;
    let keys = match (short(processor.cap_ppm), short(processor.hard_cap.ppm)) {
        (true, true) => "`cap` and `hard_cap`",
        (_, false) => "`cap`",
        (false, true) => "`hard_cap`",
    };
    (enough, keys)
}

/// True if the utilisation of critical work is below the cap.
fn critical_fits(site: &Site<'_>) -> bool {
    let critical = site.parts.iter().filter(|part| part.critical);
    let shares = critical.map(|part| Share { cost: part.charged(), period: site.works[part.operation.index()].period });
    let cap_ppm = u128::from(site.system.processor(site.plan.processor).cap_ppm);
    utilisation::sum(shares).saturating_mul(1_000_000) < ONE * cap_ppm
}

/// Releases within a window after which the cap is taken to act.
const PATIENCE: u128 = 100_000;

/// True if worst-case demand may use up the budget of a window.
pub(super) fn may_act(site: &Site<'_>, releases: &[Release]) -> bool {
    let processor = site.system.processor(site.plan.processor);
    acts_at(site, releases, processor.cap_ppm, processor.hard_cap.ppm)
}

/// The same with other caps.
fn acts_at(site: &Site<'_>, releases: &[Release], cap_ppm: u32, hard_ppm: u32) -> bool {
    let hard = HardCap { ppm: hard_ppm, ..HardCap::OFF };
    // Work that the hard cap delays adds to later releases.
    site.parts.iter().any(|part| !part.critical)
        && (gates(site, releases, cap_ppm, hard) || hard_cap::may_pause(site, releases, hard))
}

/// True if worst-case demand may make a cap gate non-critical work, before any pause.
pub(super) fn may_gate(site: &Site<'_>, releases: &[Release], hard: HardCap) -> bool {
    gates(site, releases, site.system.processor(site.plan.processor).cap_ppm, hard)
}

fn gates(site: &Site<'_>, releases: &[Release], cap_ppm: u32, hard: HardCap) -> bool {
    let least_urgent = site.parts.iter().filter(|part| !part.critical).map(|part| part.worst).max();
    let Some(least_urgent) = least_urgent else { return false };
    let window = u128::from(site.system.processor(site.plan.processor).cap_window.as_nanos());
    let cap_ppm = u128::from(cap_ppm);
    let capped = cap_ppm < MILLION && window > 0;
    if !capped && !hard.is_on() {
        return false;
    }
    let demands: Result<Vec<Demand>, Missing> = site.parts.iter().map(|part| site.demand(part, releases)).collect();
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
    // What interrupts a lane counts as if the lane used it.
    let Ok(above) = site.overhead.above(site, releases) else { return true };
    demands.extend(above);
    capped && uses_up(&demands, window, cap_ppm, reserve_ppm).unwrap_or(true)
        || hard.is_on() && hard_cap::uses_up(&demands, hard.threshold().as_nanos())
}

const MILLION: u128 = 1_000_000;

/// Whether the budget may be used up; `None` if that takes too long to find out.
fn uses_up(demands: &[Demand], window: u128, cap_ppm: u128, reserve_ppm: u128) -> Option<bool> {
    // In whole nanoseconds, as the dispatcher has it.
    let budget = window.checked_mul(cap_ppm)? / MILLION * MILLION;
    executes(demands, window, &mut |executed, at| {
        let reserve = reserve_ppm.checked_mul(window - at)?;
        Some(executed.checked_mul(MILLION)?.checked_add(reserve)? >= budget)
    })
}

/// Whether what a processor executes within a window, if all is released as early as can be, `reaches` too much at an
/// instant at which it becomes idle or at the window's end; `None` if that takes too long to find out.
pub(super) fn executes(
    demands: &[Demand],
    window: u128,
    reaches: &mut dyn FnMut(u128, u128) -> Option<bool>,
) -> Option<bool> {
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
