//! The cap on what lanes may use: whether it can act at all, and what is still proved if it can.
//!
//! The dispatcher gates a lane's non-critical work when `used(t) + r (W - t)` reaches the budget `c W`,
//! t after a window began, where the reserve rate r is at most the declared utilisation U. The
//! processor executes at most U x + K within any x, with K = sum C (1 + J / T): the work released
//! since it was last idle. So `used(t) + r (W - t) <= U W + K`, and while that is below `c W` the gate never moves.
//!
//! If it can, critical work is never held, but held non-critical work may come in a burst: then only
//! critical work with nothing non-critical beside or above it is proved, if it fits the cap alone.

use super::blocking::Blocking;
use super::processor::{Found, Part, Response, Site};
use super::release::Release;
use super::verdict::Missing;

/// Turns what the cap may hold back into unknown.
pub(super) fn restrict(site: &Site<'_>, releases: &[Release], found: &mut [Found]) {
    if !may_act(site, releases, |_| true) {
        return;
    }
    let critical_fits = !may_act(site, releases, |part| part.critical);
    let blocking = Blocking::new(site.system, site.plan);
    for found in found {
        let level = found.part.level;
        let in_the_way = |part: &&Part| part.level <= level || blocking.sections(part.operation, level) > 0;
        let mixed = site.parts.iter().filter(|part| !part.critical).find(in_the_way).is_some();
        let missing = match found.part.critical {
            true if !mixed && critical_fits => continue,
            true if !mixed => Missing::CapTooSmall,
            _ => Missing::Cap,
        };
        if matches!(found.response, Response::Bound(_) | Response::InTime) {
            found.response = Response::Unknown(missing);
        }
    }
}

/// True if `these` parts may use up the budget of a window.
pub(super) fn may_act(site: &Site<'_>, releases: &[Release], these: impl Fn(&Part) -> bool) -> bool {
    let processor = site.system.processor(site.plan.processor);
    let (cap_ppm, window) = (u128::from(processor.cap_ppm), u128::from(processor.cap_window.as_nanos()));
    if cap_ppm >= 1_000_000 || window == 0 {
        return false;
    }
    let mut most = 0u128;
    for part in site.parts.iter().filter(|part| these(part)) {
        let Ok(demand) = site.demand(part, releases) else { return true };
        let (cost, period) = (u128::from(demand.cost), u128::from(demand.period));
        let Some(work) = cost.checked_mul(window + u128::from(demand.burst) + period) else { return true };
        // Reserves are rounded up to parts per million.
        most = most.saturating_add(work.div_ceil(period)).saturating_add(window.div_ceil(1_000_000));
    }
    most >= window * cap_ppm / 1_000_000
}
