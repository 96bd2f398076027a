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
    /// As `latest`, of the first operation of its run-up, from which its response is counted.
    pub counted: Option<u64>,
    /// In any window of w at most ceil((w + burst) / period) releases; of the first operation of its
    /// run-up, whose releases are what a busy window contains.
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

/// Of all operations, if each finishes by `finish` after the origin.
pub(super) fn releases(works: &[Work], least: &[u64], finish: &[Option<u64>]) -> Vec<Release> {
    let mut releases: Vec<Release> =
        works.iter().zip(least).map(|(work, least)| Release::of(work, *least, finish)).collect();
    for work in works.iter().filter(|work| work.runs() && !work.run_up.is_empty()) {
        let Release { latest: counted, burst, .. } = releases[work.head().index()];
        let own = &mut releases[work.operation.index()];
        (own.counted, own.burst) = (counted, burst);
    }
    releases
}

impl Release {
    /// Of `work`, if its predecessors finish by `finish` after the origin.
    fn of(work: &Work, least: u64, finish: &[Option<u64>]) -> Release {
        match &work.source {
            Source::Silent => Release { least, latest: Some(0), counted: Some(0), burst: Some(0) },
            Source::Periodic => {
                let late = Some(work.jitter);
                Release { least: 0, latest: late, counted: late, burst: late }
            }
            Source::Unclear(_) => Release::default(),
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
                Release { least, latest, counted: latest, burst }
            }
        }
    }
}
