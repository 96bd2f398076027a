//! Joins of operations with different roots: which completions are joined, and how long the first of them waits.
//!
//! The dispatcher keeps the completions of each predecessor in a separate queue of at most `room`: one more drops the
//! oldest. When none of the queues is empty the oldest of each are joined; the deadline counts from the earliest of
//! their origins. Completions of predecessor i arrive within `[origin + a, origin + b]`, none is lost, and none
//! overtakes another. In one operating region with known phases, two patterns have a bound.
//!
//! **In step.** All roots have one period T. While no queue overflows, the k-th completions of all are joined, at F +
//! kT at the latest. F is the greatest phase + b. When completion n of i arrives, at most 1 + floor((F - phase - a) /
//! T) of its kind are queued, so that many places are enough. The *reference* is the root with the least phase, and so
//! with the earliest origin.
//!
//! **Sampled.** One predecessor, the reference r, is slower than all others. Completions of another, j, are at most g =
//! G + b - a apart. G is its longest period. If a completion of r finds the queues of r empty, then all other queues
//! have a completion by g later, or when each root has been released for the first time: W is the longest such wait.
//! While W + b - a of r is less than its period, r's next completion is later than that, so it also finds its queue
//! empty. By induction each completion of r leads to one release, within W. The completion used of j is one of the last
//! `room`. All with an origin at least b before have arrived, so its origin is less than b + room × G before that
//! instant: data of fast predecessors may be this old.
//!
//! Both tie releases to the origins of one root, which are a period apart, as all other analyses here require.
//! Deadlines count from the earliest of the origins. So two more bounds are stored: how much older than the
//! reference's it may be, and how much later than `latest` after it a release may be.

use alloc::vec::Vec;

use hyoshi_model::{OperationId, System};

use super::verdict::Missing;
use super::work::{Hop, Join, Pattern, Release, ReleaseSource, Unjoined, Work};

/// The bounds of its releases, counted from the reference's origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Joined {
    pub latest: u64,
    /// No release is later than `latest` plus this after the earliest origin.
    pub older: u64,
    /// How much earlier than the reference's origin the earliest origin may be.
    pub oldest: u64,
}

/// Finds the pattern of each join of several roots, causes before effects, and the phase of each reference.
pub(super) fn settle(system: &System, works: &mut [Work], order: &[OperationId]) {
    for id in order {
        let index = id.index();
        let reference = match &works[index].source {
            ReleaseSource::After { predecessors, join: None, .. } => predecessors.first().map(|hop| hop.from),
            ReleaseSource::After { predecessors, join: Some(join), .. } => {
                let (predecessors, room) = (predecessors.clone(), join.room);
                match pattern(works, &predecessors) {
                    Ok(pattern) => {
                        let (Pattern::InStep { reference } | Pattern::Sampled { reference }) = pattern;
                        if let ReleaseSource::After { join, .. } = &mut works[index].source {
                            *join = Some(Join { room, pattern });
                        }
                        Some(predecessors[reference].from)
                    }
                    Err(why) => {
                        let name = system.operation(*id).name.clone();
                        works[index].source = ReleaseSource::Unclear(Missing::Join { name, why: why.into() });
                        None
                    }
                }
            }
            _ => continue,
        };
        if let Some(reference) = reference {
            works[index].phase = works[reference].phase;
        }
    }
}

fn pattern(works: &[Work], predecessors: &[Hop]) -> Result<Pattern, &'static str> {
    let all = || predecessors.iter().map(|hop| &works[hop.from]);
    if all().any(|from| from.streams.len() > 1) {
        return Err("an `any` trigger leads to it, and no analysis shows which completions match");
    }
    if let Some(ReleaseSource::Unclear(_)) =
        all().map(|from| &from.source).find(|source| matches!(source, ReleaseSource::Unclear(_)))
    {
        return Err("an operation before it has no analysis");
    }
    if all().any(|from| from.sporadic) {
        return Err("requests, which arrive at any time, lead to it");
    }
    if all().any(|from| from.phase.is_none()) {
        return Err("the file has several regions, and completions of one may match those of the next");
    }
    let first = all().next().map_or(0, |from| from.period);
    if all().all(|from| from.period == first && from.slowest == first) {
        let reference = (0..predecessors.len()).min_by_key(|position| works[predecessors[*position].from].phase);
        return Ok(Pattern::InStep { reference: reference.unwrap_or(0) });
    }
    let reference = (0..predecessors.len()).max_by_key(|position| works[predecessors[*position].from].period);
    Ok(Pattern::Sampled { reference: reference.unwrap_or(0) })
}

/// The arrivals of completions of one predecessor.
struct CompletionStream {
    of: OperationId,
    phase: u64,
    period: u64,
    gap: u64,
    /// Earliest and latest after their origin.
    least: u64,
    most: u64,
    oldest: u64,
}

impl CompletionStream {
    fn spread(&self) -> u64 {
        self.most.saturating_sub(self.least)
    }
}

/// The releases of a join, if its predecessors have these releases and finish by `finish` after their origins; `least`
/// are all earliest releases, and `lost` the operations with jobs that may be lost.
pub(super) fn joined(
    works: &[Work],
    (join, predecessors): (&Join, &[Hop]),
    (releases, least): (&[Release], &[u64]),
    (finish, lost): (&[Option<u64>], &[bool]),
) -> Result<Joined, Unjoined> {
    let mut streams = Vec::with_capacity(predecessors.len());
    for hop in predecessors {
        let from = &works[hop.from];
        let of = from.operation;
        let most = finish[hop.from].and_then(|finish| finish.checked_add(hop.most)).filter(|most| *most < FAR);
        let most = most.ok_or(Unjoined::Unbounded(of))?;
        let least = soonest(from, least[hop.from], hop);
        if lost[hop.from] {
            return Err(Unjoined::Lost(of));
        }
        let stream = CompletionStream {
            of,
            phase: from.phase.unwrap_or_default(),
            period: from.period,
            gap: from.slowest,
            least,
            most,
            oldest: releases[hop.from].oldest,
        };
        let varies = hop.most > hop.least || from.any_order;
        if releases[hop.from].reordered || (varies && stream.spread() >= from.period) {
            return Err(Unjoined::Overtaking(of));
        }
        streams.push(stream);
    }
    match join.pattern {
        Pattern::InStep { reference } => in_step(&streams, reference, join.room),
        Pattern::Sampled { reference } => sampled(&streams, reference, join.room),
    }
}

/// Times beyond this (146 years) are not examined.
const FAR: u64 = 1 << 62;

/// The earliest arrival of a completion after its origin.
fn soonest(from: &Work, least: u64, hop: &Hop) -> u64 {
    hop.soonest(least.saturating_add(from.shortest()))
}

/// No release is earlier after the reference's origin.
pub(super) fn earliest(works: &[Work], join: &Join, predecessors: &[Hop], least: &[u64]) -> u64 {
    let soonest = |hop: &Hop| soonest(&works[hop.from], least[hop.from], hop);
    let phase = |hop: &Hop| works[hop.from].phase.unwrap_or_default();
    match join.pattern {
        Pattern::InStep { reference } => {
            let start = predecessors.get(reference).map_or(0, phase);
            let after = predecessors.iter().map(|hop| phase(hop).saturating_add(soonest(hop)).saturating_sub(start));
            after.max().unwrap_or_default()
        }
        Pattern::Sampled { reference } => predecessors.get(reference).map_or(0, soonest),
    }
}

fn in_step(streams: &[CompletionStream], reference: usize, room: u64) -> Result<Joined, Unjoined> {
    let last = streams.iter().map(|one| one.phase.saturating_add(one.most)).max().unwrap_or_default();
    for one in streams {
        let needs = last.saturating_sub(one.phase.saturating_add(one.least)) / one.period.max(1) + 1;
        if needs > room {
            return Err(Unjoined::Full { of: one.of, needs, room });
        }
    }
    let oldest = streams.iter().map(|one| one.oldest).max().unwrap_or_default();
    Ok(Joined { latest: last.saturating_sub(streams[reference].phase), older: oldest, oldest })
}

fn sampled(streams: &[CompletionStream], reference: usize, room: u64) -> Result<Joined, Unjoined> {
    let slow = &streams[reference];
    let (mut wait, mut oldest, mut eldest) = (0, slow.oldest, 0);
    for one in streams.iter().enumerate().filter(|(position, _)| *position != reference).map(|(_, one)| one) {
        let first = one.phase.saturating_add(one.most).saturating_sub(slow.phase.saturating_add(slow.least));
        let own = one.gap.saturating_add(one.spread()).max(first);
        let (spread, period) = (slow.spread(), slow.period);
        if own.saturating_add(spread) >= period {
            return Err(Unjoined::TooClose { slow: slow.of, fast: one.of, wait: own, spread, period });
        }
        wait = wait.max(own);
        let age = one.most.saturating_add(room.saturating_mul(one.gap)).saturating_add(one.oldest);
        eldest = eldest.max(age);
        oldest = oldest.max(age.saturating_sub(slow.least));
    }
    let latest = slow.most.saturating_add(wait);
    // Bounded twice: no origin is older than the oldest.
    let older = slow.oldest.max(eldest.saturating_sub(latest)).min(oldest);
    Ok(Joined { latest, older, oldest })
}

/// Where a join drops values of the path: of the path's predecessor at a sampled join, unless that is the reference.
pub(super) fn drops_values(work: &Work, from: OperationId) -> bool {
    let ReleaseSource::After { predecessors, join: Some(join), .. } = &work.source else { return false };
    match join.pattern {
        Pattern::InStep { .. } => false,
        Pattern::Sampled { reference } => predecessors.get(reference).is_none_or(|hop| hop.from != from.index()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(index: u32, phase: u64, period: u64, (least, most): (u64, u64)) -> CompletionStream {
        CompletionStream { of: OperationId(index), phase, period, gap: period, least, most, oldest: 0 }
    }

    #[test]
    fn in_step_the_last_of_each_kind_decides() {
        let streams = [stream(0, 2, 10, (1, 3)), stream(1, 5, 10, (2, 6)), stream(2, 4, 10, (1, 1))];
        assert_eq!(in_step(&streams, 0, 1), Ok(Joined { latest: 9, older: 0, oldest: 0 }));
        // The first one's next completion may arrive at 13, when the second's arrives at 11: all the same.
        let late = [stream(0, 0, 10, (1, 3)), stream(1, 5, 10, (2, 6))];
        assert_eq!(in_step(&late, 0, 1), Err(Unjoined::Full { of: OperationId(0), needs: 2, room: 1 }));
        assert_eq!(in_step(&late, 0, 2), Ok(Joined { latest: 11, older: 0, oldest: 0 }));
    }

    #[test]
    fn sampled_the_slow_one_waits_for_the_gap_of_the_fast_one() {
        let streams = [stream(0, 0, 40, (2, 4)), stream(1, 0, 10, (1, 3))];
        assert_eq!(sampled(&streams, 0, 2), Ok(Joined { latest: 16, older: 7, oldest: 21 }));
        let close = [stream(0, 0, 14, (2, 4)), stream(1, 0, 10, (1, 3))];
        assert!(matches!(sampled(&close, 0, 2), Err(Unjoined::TooClose { wait: 12, spread: 2, period: 14, .. })));
    }
}
