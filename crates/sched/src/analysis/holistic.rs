//! All processors together: the response of each stage is the jitter of the next.
//!
//! Jitter and responses grow from zero until they agree (Tindell and Clark 1994). Each round can only raise them, and
//! the least fixed point bounds every job, by induction over time.

use alloc::{collections::BTreeMap, vec, vec::Vec};

use hyoshi_model::{OnMiss, OperationId};

use super::part::{OperationPart, PartResult, ResponseBound, counted, finish_of};
use super::processor_scene::ProcessorScene;
use super::release;
use super::work::{Release, Work};

/// The fixed point.
pub(super) struct Agreement {
    pub releases: Vec<Release>,
    /// For each operation, when all of a release has finished, counted from the origin.
    pub finish: Vec<Option<u64>>,
    /// For each processor.
    pub found: Vec<Vec<PartResult>>,
    /// No release is earlier after its origin, whatever is lost.
    pub earliest: Vec<u64>,
}

/// Rounds after which responses that still grow count as unbounded.
const PATIENCE: usize = 64;

/// Finds the least fixed point.
pub(super) fn agree(works: &[Work], sites: &[ProcessorScene<'_>]) -> Agreement {
    let least = release::earliest(works, true, false);
    let (joins, mut lost) = (works.iter().any(Work::joins), vec![false; works.len()]);
    let mut finish = vec![Some(0u64); works.len()];
    let mut releases = release::releases(works, &least, &finish, &lost);
    let mut found = vec![Vec::new(); sites.len()];
    let mut stale = vec![true; sites.len()];
    // Why responses have no bound, as first found: later its consequences may hide it.
    let mut reasons: BTreeMap<(OperationId, bool), PartResult> = BTreeMap::new();
    for round in 0.. {
        for (site, found) in
            sites.iter().zip(&mut found).enumerate().filter(|(index, _)| stale[*index]).map(|(_, both)| both)
        {
            *found = site.solve(&releases);
            let by_operation = by_operation(found);
            for work in site.plan.operations.iter().map(|id| &works[id.index()]) {
                let index = work.operation.index();
                let own = || by_operation.get(&work.operation).into_iter().flatten().map(|place| &found[*place]);
                let later = latest_finish(work, &releases[index], own());
                let agreed = match (finish[index], later) {
                    (Some(one), Some(other)) if one >= other || round < PATIENCE => Some(one.max(other)),
                    _ => None,
                };
                if finish[index].is_some() && agreed.is_none() {
                    // A tested bound does not continue the iteration: it is that of the last round.
                    let tested = |found: &PartResult| matches!(found.response, ResponseBound::Tested(_));
                    for found in own().filter(|found| found.response.is_unbounded() && !tested(found)) {
                        reasons.entry(key(&found.part)).or_insert_with(|| found.clone());
                    }
                }
                finish[index] = agreed;
            }
        }
        if joins {
            lose(works, sites, (&releases, &finish), &found, &mut lost);
        }
        let next = release::releases(works, &least, &finish, &lost);
        stale.fill(false);
        for (index, work) in works.iter().enumerate().filter(|(index, _)| next[*index] != releases[*index]) {
            debug_assert_eq!(work.operation.index(), index);
            stale[work.on.index()] = true;
        }
        releases = next;
        if !stale.contains(&true) {
            break;
        }
    }
    for found in found.iter_mut().flatten() {
        if let Some(reason) = reasons.get(&key(&found.part)) {
            *found = reason.clone();
        }
    }
    let skewed = works.iter().flat_map(|work| work.source.predecessors()).any(|hop| hop.error > 0);
    let earliest = if joins || skewed { release::earliest(works, false, true) } else { least };
    Agreement { releases, finish, found, earliest }
}

/// Adds the operations whose jobs may be lost before a join, and their successors. A job may be dropped, cancelled, stopped
/// or not chosen. The first of several copies is lost only if every copy may be. Responses grow from round to round, and
/// so does this set.
fn lose(
    works: &[Work],
    sites: &[ProcessorScene<'_>],
    (releases, finish): (&[Release], &[Option<u64>]),
    found: &[Vec<PartResult>],
    lost: &mut [bool],
) {
    for (site, found) in sites.iter().zip(found) {
        for id in &site.plan.operations {
            let (work, index) = (&works[id.index()], id.index());
            let drops = finish[index]
                .is_none_or(|finish| release::dropping(site.system, work, &releases[index], finish).is_some());
            let cancels = site.system.processor(work.on).cancel;
            let after_misses = site.system.operation(*id).on_miss != OnMiss::Continue;
            let loses = |found: &PartResult| after_misses || (cancels && !found.part.critical);
            let mut own = found.iter().filter(|found| found.part.operation == *id && loses(found));
            lost[index] |= work.chosen || drops || own.any(|found| !in_time(work, &releases[index], found));
        }
    }
    loop {
        let follows = |index: &usize| {
            let mut before = works[*index].source.predecessors().iter().map(|hop| lost[hop.from]);
            let loses =
                if works[*index].first { before.len() > 0 && before.all(|one| one) } else { before.any(|one| one) };
            !lost[*index] && loses
        };
        match (0..works.len()).find(follows) {
            Some(index) => lost[index] = true,
            None => return,
        }
    }
}

/// True if a bound shows that no job of the part is late, so none is cancelled.
fn in_time(work: &Work, release: &Release, found: &PartResult) -> bool {
    match found.response {
        ResponseBound::InTime => true,
        _ => counted(work, release, found).is_some_and(|bound| bound <= work.deadline.span().as_nanos()),
    }
}

/// Indexes of the results, by operation: there may be very many.
fn by_operation(found: &[PartResult]) -> BTreeMap<OperationId, Vec<usize>> {
    let mut places: BTreeMap<OperationId, Vec<usize>> = BTreeMap::new();
    for (place, one) in found.iter().enumerate() {
        places.entry(one.part.operation).or_default().push(place);
    }
    places
}

fn key(part: &OperationPart) -> (OperationId, bool) {
    (part.operation, part.critical)
}

/// When the last of a release's jobs has finished, counted from the origin.
fn latest_finish<'a>(work: &Work, release: &Release, mut own: impl Iterator<Item = &'a PartResult>) -> Option<u64> {
    own.try_fold(0, |latest, found| Some(latest.max(finish_of(work, release, found)?)))
}
