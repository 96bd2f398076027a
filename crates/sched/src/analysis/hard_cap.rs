//! The hard cap: whether it can pause a processor, and how much time its pauses take from the operations.
//!
//! Lanes are paused while critical work has used more than `budget - hysteresis` of the accounted window, which is at
//! least as long as the cap's window P and at most a step longer. Two results follow.
//!
//! **Whether.** Until the first pause, critical work has the CPU in a window of length x for at most E(x): the work
//! that the processor executes by x if everything is released as early as possible from 0 on (the argument is in
//! `cap`). If E(P + step) stays below the budget, there is no first pause. Only critical work counts. If no
//! non-critical work is as urgent as any critical work, E is that of critical work, plus the delay by less urgent
//! work: the longest blocking once, and all its sections. Otherwise E is that of all work.
//!
//! **How much.** All pauses of a window of length P are in that part of it in which critical work did not have the
//! CPU. So they last for no more than [`HardCap::longest_pause`] together, and in a window of any length x for no more
//! than ceil(x / P) times that. This is the request bound of a periodic task above everything, without jitter, and
//! every analysis here uses it as one (the remaining supply is that of a bounded-delay resource, Mok, Feng and Chen,
//! RTAS 2001; compare the periodic resource of Shin and Lee, RTSS 2003). In a pause a job that has begun may continue
//! below ordinary threads and lock a resource; it then holds it when the pause ends, once for each pause.

use hyoshi_model::hard_cap::WINDOW;
use hyoshi_model::{HardCap, OnOverload, Preemption};

use super::blocking::Blocking;
use super::cap;
use super::fixed::Demand;
use super::processor::{Part, Site};
use super::release::Release;
use super::verdict::Missing;

/// The time that pauses take from every lane; `None` if there are none.
pub(super) fn pauses(site: &Site<'_>, releases: &[Release]) -> Option<Demand> {
    may_pause(site, releases).then(|| {
        let sections = |part: &Part| -> u64 {
            site.system.operation(part.operation).uses.iter().map(|(_, held)| held.as_nanos()).sum()
        };
        let held = site.parts.iter().map(sections).max().unwrap_or(0);
        let cost = of(site).longest_pause().as_nanos().saturating_add(held);
        Demand { cost, period: WINDOW.as_nanos(), burst: 0 }
    })
}

/// Work above every lane, pauses of the hard cap included.
pub(super) fn above(site: &Site<'_>, releases: &[Release]) -> Result<alloc::vec::Vec<Demand>, Missing> {
    let mut above = site.overhead.above(site, releases)?;
    above.extend(pauses(site, releases));
    Ok(above)
}

/// True if worst-case critical demand may use up the budget of a window.
pub(super) fn may_pause(site: &Site<'_>, releases: &[Release]) -> bool {
    let cap = of(site);
    let critical = || site.parts.iter().filter(|part| part.critical);
    let Some(least_urgent) = critical().map(|part| part.worst).max().filter(|_| cap.is_on()) else { return false };
    let beside = |part: &Part| !part.critical && part.best <= least_urgent;
    let mixed = site.plan.preemption == Preemption::None || site.parts.iter().any(beside);
    let blocking = Blocking::new(site.system, site.plan);
    let mut executed = alloc::vec::Vec::new();
    let mut put_off = 0;
    for part in &site.parts {
        let Ok(demand) = site.demand(part, releases) else { return true };
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
    let Ok(above) = site.overhead.above(site, releases) else { return true };
    executed.extend(above);
    let put_off = put_off.saturating_add(site.overhead.stretch());
    let window = u128::from((WINDOW + HardCap::step()).as_nanos());
    let budget = u128::from(cap.budget().as_nanos().saturating_sub(put_off));
    // If the computation takes too long, the answer is yes.
    cap::executes(&executed, window, &mut |executed, _| Some(executed >= budget)).unwrap_or(true)
}

/// True if critical operations may become non-critical: then the cap may hold them back.
pub(super) fn may_relegate(site: &Site<'_>, releases: &[Release]) -> bool {
    of(site).on_overload == OnOverload::Demote && may_pause(site, releases)
}

fn of(site: &Site<'_>) -> HardCap {
    site.system.processor(site.plan.processor).hard_cap
}
