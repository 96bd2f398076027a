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
    /// A job may arrive before one of an earlier origin: links with a range of delays let messages overtake.
    pub reordered: bool,
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
    // What arrives out of order leaves out of order; triggers make no cycles, so this ends.
    while let Some(index) =
        (0..works.len()).find(|index| !releases[*index].reordered && follows(works, &releases, *index))
    {
        releases[index].reordered = true;
    }
    for (work, release) in works.iter().zip(&mut releases) {
        if matches!(work.source, Source::After { guarded: true, .. }) {
            release.latest = release.guarded(work.period);
            release.counted = release.latest;
        }
    }
    for work in works.iter().filter(|work| work.runs() && !work.run_up.is_empty()) {
        let Release { latest: counted, burst, .. } = releases[work.head().index()];
        let own = &mut releases[work.operation.index()];
        (own.counted, own.burst) = (counted, burst);
    }
    releases
}

/// True if the operation follows one whose jobs may be out of order.
fn follows(works: &[Work], releases: &[Release], index: usize) -> bool {
    match &works[index].source {
        Source::After { predecessors, .. } => predecessors.iter().any(|hop| releases[hop.from].reordered),
        _ => false,
    }
}

impl Release {
    /// Of `work` before its guard, if its predecessors finish by `finish` after the origin.
    fn of(work: &Work, least: u64, finish: &[Option<u64>]) -> Release {
        let late = Some(work.jitter);
        match &work.source {
            Source::Silent => Release { least, latest: Some(0), counted: Some(0), burst: Some(0), reordered: false },
            Source::Periodic => Release { least: 0, latest: late, counted: late, burst: late, reordered: false },
            Source::Unclear(_) => Release::default(),
            Source::After { predecessors, guarded } => {
                let latest = predecessors
                    .iter()
                    .try_fold(0u64, |latest, hop| Some(latest.max(finish[hop.from]?.checked_add(hop.most)?)));
                let latest = latest.and_then(|latest| latest.checked_add(work.offset)?.checked_add(work.jitter));
                let latest = latest.filter(|latest| *latest < FOREVER);
                let spread = latest.map(|latest| latest.saturating_sub(least));
                let varies = predecessors.iter().any(|hop| hop.most > hop.least);
                let reordered = varies && spread.is_none_or(|spread| spread >= work.period);
                let burst = if *guarded { late } else { spread };
                Release { least, latest, counted: latest, burst, reordered }
            }
        }
    }

    /// The latest release by a guard, which keeps releases a period apart whatever comes before it.
    ///
    /// If jobs arrive in the order of their origins it delays none beyond the latest arrival, by
    /// induction: the one before was released by then, a period earlier (Sun and Liu 1996, theorem 1). If not,
    /// the k-th release still comes by the latest arrival of the k-th origin, and a job takes the place of
    /// one of at most those that may arrive before it.
    fn guarded(&self, period: u64) -> Option<u64> {
        let latest = self.latest?;
        if !self.reordered {
            return Some(latest);
        }
        let overtaking = latest.saturating_sub(self.least).div_ceil(period).saturating_sub(1);
        latest.checked_add(overtaking.checked_mul(period)?).filter(|latest| *latest < FOREVER)
    }
}
