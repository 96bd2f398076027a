//! The cap on the use of lanes: whether it can act at all, and which proofs remain if it can.
//!
//! The dispatcher gates a lane's non-critical work when `used(x) + r (W - x)` reaches the budget `c W`, x after a
//! window of length W began; r is the declared utilisation of all critical work and of the non-critical work in more
//! urgent lanes. Let E(x) be the work that the processor executes by x if all possible releases occur as early as
//! possible from 0 on. No window of length x contains more: if the processor was busy for y before the window, it
//! executes at most E(x + y) - y <= E(x) in it, because E grows no faster than time. E(x) + r (W - x) rises while the
//! processor is busy, so it is greatest when the processor becomes idle or the window ends. While all of those stay
//! below `c W` the gate never moves.
//!
//! The [hard cap](super::hard_cap) gates all non-critical work when lanes have used its threshold in its window, which
//! is at most P and a step long. While E(P + step) stays below the threshold, it never acts.
//!
//! If the cap can act, it never delays critical work, but delayed non-critical work may arrive in a burst. Then only
//! critical work with no non-critical work beside or above it is proved. Critical work may exceed the cap within a
//! window; if its utilisation does, the kernel would eventually stop it with all lanes.

use alloc::vec::Vec;

use hyoshi_model::HardCap;
use hyoshi_model::hard_cap::BEYOND;

use super::blocking::Blocking;
use super::fixed::Demand;
use super::gate;
use super::hard_cap;
use super::part::{OperationPart, PartResult, ResponseBound};
use super::processor_scene::ProcessorScene;
use super::utilisation::{self, ONE, PeriodicDemand};
use super::verdict::Missing;
use super::work::Release;

/// Changes the verdicts of operations that the cap may delay to unknown.
pub(super) fn restrict(site: &ProcessorScene<'_>, releases: &[Release], found: &mut [PartResult]) {
    let name = || site.system.processor(site.plan.processor).name.clone();
    if hard_cap::may_relegate(site, releases) {
        found.iter_mut().filter(|found| found.part.critical && is_known(found)).for_each(|found| {
            found.response = ResponseBound::Unknown(Missing::HardCap { processor: name() });
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
        let in_the_way = |part: &&OperationPart| part.best <= level || blocking.sections(part.operation, level) > 0;
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
            found.response = ResponseBound::Unknown(missing);
        }
    }
}

/// True if there is a bound that the cap may break.
fn is_known(found: &PartResult) -> bool {
    matches!(
        found.response,
        ResponseBound::Bound(_) | ResponseBound::Counted { .. } | ResponseBound::InTime | ResponseBound::Tested(_)
    )
}

/// The least cap, in percent, that never acts (100 % is none), and the keys that must be raised.
fn enough(site: &ProcessorScene<'_>, releases: &[Release]) -> (u32, &'static str) {
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
fn critical_fits(site: &ProcessorScene<'_>) -> bool {
    let critical = site.parts.iter().filter(|part| part.critical);
    let shares =
        critical.map(|part| PeriodicDemand { cost: part.charged(), period: site.works[part.operation.index()].period });
    let cap_ppm = u128::from(site.system.processor(site.plan.processor).cap_ppm);
    utilisation::sum(shares).saturating_mul(1_000_000) < ONE * cap_ppm
}

/// True if worst-case demand may use up the budget of a window.
pub(super) fn may_act(site: &ProcessorScene<'_>, releases: &[Release]) -> bool {
    let processor = site.system.processor(site.plan.processor);
    acts_at(site, releases, processor.cap_ppm, processor.hard_cap.ppm)
}

/// The same with other caps.
fn acts_at(site: &ProcessorScene<'_>, releases: &[Release], cap_ppm: u32, hard_ppm: u32) -> bool {
    let hard = HardCap { ppm: hard_ppm, ..HardCap::OFF };
    // Work that the hard cap delays is added to later releases.
    site.parts.iter().any(|part| !part.critical)
        && (gate::gates(site, releases, cap_ppm, hard) || hard_cap::may_pause(site, releases, hard))
}

/// The work above every lane, including pauses of the hard cap.
pub(super) fn above(site: &ProcessorScene<'_>, releases: &[Release]) -> Result<Vec<Demand>, Missing> {
    let mut above = site.above_lanes(releases)?;
    above.extend(hard_cap::pauses(site, releases));
    let timer = site.overhead.timer();
    if timer > 0 && site.system.processor(site.plan.processor).hard_cap.is_on() && may_act(site, releases) {
        above.push(Demand { cost: timer, period: BEYOND.as_nanos(), burst: 0 });
    }
    Ok(above)
}
