//! End-to-end requirements along chains of triggers.
//!
//! The bound is the last operation's latest finish less the first one's earliest release, both counted
//! from the origin. It serves as age, since data enters with the first job's release at the
//! earliest; and with one gap between releases as reaction, since what just misses a job is seen by the next.
//! Both want that no job on the way is dropped or cancelled.

use alloc::vec::Vec;

use hyoshi_model::{Chain, ChainId, OperationId, Span, System};

use super::holistic::Agreement;
use super::method::Method;
use super::report::{ChainReport, Requirement, slack};
use super::verdict::{Failure, Missing, Verdict};
use super::workload::{Hop, Scene, Source, Work};

/// Every requirement of a chain, or nothing while an operation of it is switched off.
/// `delivers` tells for each operation whether each of its releases leads to a completion.
pub(super) fn requirements(
    system: &System,
    scene: Scene,
    id: ChainId,
    works: &[Work],
    agreement: &Agreement,
    delivers: &[bool],
) -> Vec<ChainReport> {
    let chain = &system.chains[id.index()];
    if chain.path.iter().any(|operation| !works[operation.index()].runs()) {
        return Vec::new();
    }
    let bound = bound(system, chain, works, agreement, delivers);
    let at_least = least(chain, works).filter(|_| matches!(scene, Scene::Epoch(_)));
    let guarded = chain.path.iter().any(|one| matches!(works[one.index()].source, Source::After { guarded: true, .. }));
    let report = |requirement, limit: Span, gap: u64| {
        let bound_ns = bound.clone().and_then(|bound| bound.checked_add(gap).ok_or(Missing::Overflow));
        let verdict = match &bound_ns {
            _ if at_least.is_some_and(|needs| needs > limit) => Verdict::Fails {
                why: Failure::LongerThanDeadline { needs: at_least.unwrap_or_default(), deadline: limit },
            },
            Ok(bound) if *bound <= limit.as_nanos() => Verdict::Proved,
            Ok(_) => Verdict::unknown(Missing::BoundExceedsDeadline),
            Err(missing) => Verdict::unknown(missing.clone()),
        };
        ChainReport {
            chain: id,
            name: chain.name.clone(),
            requirement,
            limit_ns: limit.as_nanos(),
            bound_ns: bound_ns.as_ref().ok().copied(),
            slack_ns: bound_ns.ok().map(|bound| slack(limit.as_nanos(), bound)),
            verdict,
            method: if guarded { Method::ReleaseGuard } else { Method::Holistic },
        }
    };
    let gap = chain.path.first().map_or(0, |first| works[first.index()].slowest);
    let wanted = [
        (Requirement::Deadline, chain.deadline, 0),
        (Requirement::MaxAge, chain.max_age, 0),
        (Requirement::MaxReaction, chain.max_reaction, gap),
    ];
    wanted.into_iter().filter_map(|(requirement, limit, gap)| Some(report(requirement, limit?, gap))).collect()
}

/// From the first operation's release to the last one's finish.
fn bound(
    system: &System,
    chain: &Chain,
    works: &[Work],
    agreement: &Agreement,
    delivers: &[bool],
) -> Result<u64, Missing> {
    let name = |id: &OperationId| system.operation(*id).name.clone();
    let (Some(first), Some(last)) = (chain.path.first(), chain.path.last()) else { return Ok(0) };
    for pair in chain.path.windows(2) {
        if hop(works, pair[0], pair[1]).is_none() {
            return Err(match &works[pair[1].index()].source {
                Source::Unclear(missing) => missing.clone(),
                _ => Missing::Read { name: name(&pair[1]) },
            });
        }
    }
    if let Some(unbounded) = chain.path.iter().find(|id| agreement.finish[id.index()].is_none()) {
        return Err(Missing::Predecessor { name: name(unbounded) });
    }
    if chain.path.iter().any(|id| !delivers[id.index()]) {
        return Err(Missing::Dropped);
    }
    let finish = agreement.finish[last.index()].ok_or_else(|| Missing::Predecessor { name: name(last) })?;
    Ok(finish.saturating_sub(agreement.releases[first.index()].least))
}

/// What the chain takes at the least if every job takes its worst case.
fn least(chain: &Chain, works: &[Work]) -> Option<Span> {
    let mut sum = works[chain.path.first()?.index()].whole();
    for pair in chain.path.windows(2) {
        let (hop, work) = (hop(works, pair[0], pair[1])?, &works[pair[1].index()]);
        sum = sum.checked_add(hop.least)?.checked_add(work.offset)?.checked_add(work.whole())?;
    }
    Some(Span::from_nanos(sum))
}

fn hop(works: &[Work], from: OperationId, to: OperationId) -> Option<Hop> {
    match &works[to.index()].source {
        Source::After { predecessors, .. } => predecessors.iter().copied().find(|hop| hop.from == from.index()),
        _ => None,
    }
}
