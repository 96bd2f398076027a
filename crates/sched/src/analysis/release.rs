//! When an operation's jobs are released, counted from the nominal release of their root: the *origin*.

use alloc::vec::Vec;

use super::workload::{Source, Work};

/// What bounds an operation's releases. Origins are at least a period apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Release {
    /// No earlier than this after the origin.
    pub least: u64,
    /// No later than this after the origin.
    pub latest: Option<u64>,
    /// In any window of w at most ceil((w + burst) / period) releases.
    pub burst: Option<u64>,
}

/// Beyond this (146 years) a response counts as unbounded.
const FOREVER: u64 = 1 << 62;

/// No release is earlier than its predecessors' best cases and the links' least delays allow.
/// Joins take the least of their predecessors, which is early enough for each of them.
pub(super) fn earliest(works: &[Work]) -> Vec<u64> {
    let mut least = alloc::vec![0u64; works.len()];
    loop {
        let mut moved = false;
        for (index, work) in works.iter().enumerate() {
            let Source::After { predecessors, .. } = &work.source else { continue };
            let after = |from: usize| least[from].saturating_add(works[from].bcet.saturating_mul(works[from].legs));
            let first = predecessors.iter().map(|hop| after(hop.from).saturating_add(hop.least)).min();
            let found = first.unwrap_or_default().saturating_add(work.offset).min(FOREVER);
            moved |= found > least[index];
            least[index] = found;
        }
        // Triggers make no cycles, so this ends.
        if !moved {
            return least;
        }
    }
}

impl Release {
    /// Of `work`, if its predecessors finish by `finish` after the origin.
    pub fn of(work: &Work, least: u64, finish: &[Option<u64>]) -> Release {
        match &work.source {
            Source::Silent => Release { least, latest: Some(0), burst: Some(0) },
            Source::Periodic => Release { least: 0, latest: Some(work.jitter), burst: Some(work.jitter) },
            Source::Unclear(_) => Release { least: 0, latest: None, burst: None },
            Source::After { predecessors, guarded } => {
                let latest = predecessors
                    .iter()
                    .try_fold(0u64, |latest, hop| Some(latest.max(finish[hop.from]?.checked_add(hop.most)?)));
                let latest = latest.and_then(|latest| latest.checked_add(work.offset)?.checked_add(work.jitter));
                let latest = latest.filter(|latest| *latest < FOREVER);
                // The guard keeps releases a period apart whatever comes before it. By induction over jobs it
                // delays none beyond `latest`: the one before was released by then, a period earlier
                // (Sun and Liu 1996, theorem 1).
                let burst =
                    if *guarded { Some(work.jitter) } else { latest.map(|latest| latest.saturating_sub(least)) };
                Release { least, latest, burst }
            }
        }
    }
}
