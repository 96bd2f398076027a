//! The hard cap: whether it can pause a processor, and the effect of pauses on its operations.
//!
//! Lanes pause while critical work has used more than `threshold - hysteresis` of the accounted window, which is at
//! least as long as the cap's window P and at most a step longer.
//!
//! **Whether.** Until the first pause, critical work has the CPU in a window of length x for at most E(x): the work
//! that the processor executes by x if all possible releases are as early as possible from 0 on (the argument is in
//! `cap`). If E(P + step) stays below the threshold, there is no first pause. Only critical work counts. So E is that
//! of critical work if no non-critical work is as urgent as any of it, plus the delay by less urgent work: the longest
//! blocking once, and all its sections. Otherwise E is that of all work. If non-critical work counts in E and a gate
//! may delay it, lanes may pause.
//!
//! **How much.** All pauses of a window of length P are in the part of it in which critical work did not have the CPU,
//! so together they last for at most [`HardCap::longest_pause`], and in a window of any length x for ceil(x / P) times
//! that. This is the request bound of a periodic task above everything, without jitter, and every analysis here treats
//! it as one. (The remaining supply is that of a bounded-delay resource, Mok, Feng and Chen, RTAS 2001; compare the
//! periodic resource of Shin and Lee, RTSS 2003.)
//!
//! During a pause each started job may continue below ordinary threads and acquire resources. Several may do so,
//! because no ceiling applies there: after the pause each of them delays more urgent jobs by its sections.

use hyoshi_model::hard_cap::{SWITCHING, WINDOW};
use hyoshi_model::{HardCap, OnOverload, Preemption};

use super::blocking::Blocking;
use super::fixed::Demand;
use super::gate;
use super::part::OperationPart;
use super::processor_scene::ProcessorScene;
use super::work::Release;

/// The demand of pauses, above every lane; `None` if there are none.
pub(super) fn pauses(site: &ProcessorScene<'_>, releases: &[Release]) -> Option<Demand> {
    may_pause(site, releases, of(site)).then(|| {
        let uses = |part: &OperationPart| site.system.operation(part.operation).uses.iter();
        let held: u64 = site.parts.iter().flat_map(uses).map(|(_, held)| held.as_nanos()).sum();
        let lowered = SWITCHING.as_nanos().saturating_mul(site.parts.len() as u64);
        let cost = of(site).longest_pause().as_nanos().saturating_add(held).saturating_add(lowered);
        Demand { cost, period: WINDOW.as_nanos(), burst: 0 }
    })
}

/// True if worst-case critical demand may use up the budget of a window of this hard cap.
pub(super) fn may_pause(site: &ProcessorScene<'_>, releases: &[Release], cap: HardCap) -> bool {
    let critical = || site.parts.iter().filter(|part| part.critical);
    let Some(least_urgent) = critical().map(|part| part.worst).max().filter(|_| cap.is_on()) else { return false };
    let beside = |part: &OperationPart| !part.critical && part.best <= least_urgent;
    let mixed = site.plan.preemption == Preemption::None || site.parts.iter().any(beside);
    let blocking = Blocking::new(site.system, site.plan);
    let reaches = |part: &OperationPart| !part.critical && blocking.sections(part.operation, least_urgent) > 0;
    // Then non-critical work counts, and a gate may delay it: its releases are later than E assumes.
    if (mixed || site.parts.iter().any(reaches))
        && gate::gates(site, releases, site.system.processor(site.plan.processor).cap_ppm, cap)
    {
        return true;
    }
    let mut executed = alloc::vec::Vec::new();
    let mut put_off = 0;
    for part in &site.parts {
        let Ok(demand) = site.demand_in_windows(part, releases) else { return true };
        if mixed || part.critical {
            executed.push(demand);
            continue;
        }
        let held = blocking.sections(part.operation, least_urgent);
        if held > 0 {
            executed.push(Demand { cost: held.saturating_mul(part.legs), ..demand });
        }
        put_off = put_off.max(held);
    }
    let Ok(above) = site.above_lanes(releases) else { return true };
    executed.extend(above);
    let put_off = put_off.saturating_add(site.overhead.stretch());
    gate::uses_up_hard(&executed, cap.threshold().as_nanos().saturating_sub(put_off))
}

/// True if critical operations may become non-critical: then the cap may delay them.
pub(super) fn may_relegate(site: &ProcessorScene<'_>, releases: &[Release]) -> bool {
    of(site).on_overload == OnOverload::Demote && may_pause(site, releases, of(site))
}

fn of(site: &ProcessorScene<'_>) -> HardCap {
    site.system.processor(site.plan.processor).hard_cap
}
