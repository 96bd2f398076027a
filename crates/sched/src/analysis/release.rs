//! The releases of an operation's jobs, counted from the nominal release of their root: the *origin*.

use alloc::vec::Vec;

use hyoshi_model::{COPIES_APART, OnBusy, Span, System};

use super::join;
use super::merge;
use super::verdict::Missing;
use super::work::{Hop, Release, ReleaseSource, Work};

/// Beyond this (146 years) a response counts as unbounded.
const FOREVER: u64 = 1 << 62;

/// No release is earlier than its predecessors' best cases and the links' least delays allow. A join uses the least of
/// its predecessors, which is early enough for each of them. A join of several roots uses its pattern instead, if
/// `patterns` is true. With `exact` clocks the results are lower bounds on the true instants of releases, otherwise on
/// the instants by the host's clock.
pub(super) fn earliest(works: &[Work], patterns: bool, exact: bool) -> Vec<u64> {
    let mut least = alloc::vec![0u64; works.len()];
    loop {
        let mut moved = false;
        for (index, work) in works.iter().enumerate() {
            let predecessors = work.source.predecessors();
            if predecessors.is_empty() {
                continue;
            }
            let after = |from: usize| least[from].saturating_add(works[from].shortest());
            let soonest = |hop: &Hop| Hop { error: if exact { 0 } else { hop.error }, ..*hop }.soonest(after(hop.from));
            // A release by a timeout is its own origin.
            let timeout = matches!(work.source, ReleaseSource::AfterAny { timeout: Some(_), .. }).then_some(0);
            let first = predecessors.iter().map(soonest).chain(timeout).min();
            let first = match &work.source {
                ReleaseSource::After { predecessors, join: Some(join), .. } if patterns => {
                    join::earliest(works, join, predecessors, &least)
                }
                _ => first.unwrap_or_default(),
            };
            let found = first.saturating_add(work.offset).min(FOREVER);
            moved |= found > least[index];
            least[index] = found;
        }
        // Triggers have no cycles, so this ends.
        if !moved {
            return least;
        }
    }
}

/// The releases of all operations, if each finishes by `finish` after the origin; those `lost` may lose jobs.
pub(super) fn releases(works: &[Work], least: &[u64], finish: &[Option<u64>], lost: &[bool]) -> Vec<Release> {
    let mut releases: Vec<Release> =
        works.iter().zip(least).map(|(work, least)| Release::of(work, works, *least, finish)).collect();
    // Completions that arrive out of order leave out of order; triggers have no cycles, so this ends.
    while let Some(index) =
        (0..works.len()).find(|index| !releases[*index].reordered && follows(works, &releases, *index))
    {
        releases[index].reordered = true;
    }
    if works.iter().any(Work::mixes_origins) {
        join_all(works, &mut releases, least, (finish, lost));
    }
    for (work, release) in works.iter().zip(&mut releases) {
        if matches!(work.source, ReleaseSource::After { guarded: true, .. }) {
            release.latest = release.guarded(work);
            release.counted = release.latest;
            let spread = release.latest.map(|latest| latest.saturating_sub(release.least));
            release.opened = spread.and_then(|spread| merge::burst(&work.streams, spread));
        }
    }
    for work in works.iter().filter(|work| work.runs() && !work.run_up.is_empty()) {
        let Release { latest: counted, burst, .. } = releases[work.head().index()];
        let own = &mut releases[work.operation.index()];
        (own.counted, own.burst) = (counted, burst);
    }
    releases
}

/// Releases after joins of several roots, and after correlations. An origin of a correlation is older than that of the
/// last completion by the window at most.
fn join_all(works: &[Work], releases: &mut [Release], least: &[u64], ends: (&[Option<u64>], &[bool])) {
    loop {
        let mut moved = false;
        for (index, work) in works.iter().enumerate() {
            let mut release = releases[index];
            match &work.source {
                ReleaseSource::After { predecessors, join: Some(join), guarded } => {
                    let joined = join::joined(works, (join, predecessors), (&*releases, least), ends);
                    let latest = joined.map(|joined| joined.latest.saturating_add(work.offset)).unwrap_or(FOREVER);
                    release.latest = Some(latest).filter(|latest| *latest < FOREVER);
                    release.counted = release.latest;
                    let spread = release.latest.map(|latest| latest.saturating_sub(release.least));
                    release.burst = if *guarded { spread.map(|_| 0) } else { spread };
                    (release.older, release.oldest) = joined.map_or((0, 0), |joined| (joined.older, joined.oldest));
                    release.unjoined = joined.err();
                }
                source => {
                    let before = || source.predecessors().iter().map(|hop| &releases[hop.from]);
                    let window = if let ReleaseSource::AfterAny { within, .. } = source { *within } else { None };
                    let most = |of: fn(&Release) -> u64| {
                        before()
                            .map(of)
                            .max()
                            .unwrap_or_default()
                            .saturating_add(window.unwrap_or_default())
                            .min(FOREVER)
                    };
                    (release.older, release.oldest) = (most(|before| before.older), most(|before| before.oldest));
                }
            }
            // A guard releases at the reference's origin, however old the earliest is.
            if matches!(work.source, ReleaseSource::After { guarded: true, .. }) {
                release.older = release.oldest;
            }
            moved |= release != releases[index];
            releases[index] = release;
        }
        // Triggers have no cycles, so this ends.
        if !moved {
            return;
        }
    }
}

/// Why a job may be dropped: it may be too old at its start, the job before may be unfinished (`on_busy`), or the queue
/// may be full. Origins are a period apart, so at most ceil((finish - least) / period) releases are unfinished at once,
/// including the new one. In a load chain, each of them has one leg that waits or runs.
pub(super) fn dropping(system: &System, work: &Work, release: &Release, finish: u64) -> Option<Missing> {
    let operation = system.operation(work.operation);
    // A triggered job is pending from its trigger on, while it waits for its offset.
    let offset = if work.source.is_triggered() { work.offset } else { 0 };
    let arrival = release.least.saturating_sub(offset);
    // If a lower rate permits a later end, the next release is later by as much.
    let at_once = merge::origins(&work.streams, finish.saturating_sub(work.later).saturating_sub(arrival));
    let room = if operation.on_busy == OnBusy::Skip { 1 } else { u64::from(operation.queue.limit) };
    // A join skips numbers that one of its predecessors seems to have lost.
    let joins =
        !work.first && matches!(&work.source, ReleaseSource::After { predecessors, .. } if predecessors.len() > 1);
    let apart = release.latest.unwrap_or_default().saturating_sub(release.least) / work.period;
    let name = || operation.name.clone();
    // A job starts before it finishes, and its earliest origin may be this old.
    let aged = Span::from_nanos(finish.saturating_add(release.oldest));
    match (operation.lifespan, ()) {
        (Some(lifespan), ()) if aged > lifespan => Some(Missing::Expires { name: name(), finish: aged, lifespan }),
        (_, ()) if at_once > room && operation.on_busy == OnBusy::Skip => Some(Missing::Busy {
            name: name(),
            unfinished: at_once.saturating_sub(1),
            finish: Span::from_nanos(finish),
        }),
        (_, ()) if at_once > room => Some(Missing::Full { name: name(), at_once, limit: room }),
        (_, ()) if release.reordered && joins => Some(Missing::PassedOver { name: name() }),
        (_, ()) if work.first && apart >= COPIES_APART => Some(Missing::CopiesApart { name: name(), apart }),
        _ => None,
    }
}

/// True if it follows an operation with jobs that may be out of order.
fn follows(works: &[Work], releases: &[Release], index: usize) -> bool {
    works[index].source.predecessors().iter().any(|hop| releases[hop.from].reordered)
}

impl Release {
    /// The releases of `work` before its guard, if its predecessors finish by `finish` after the origin.
    fn of(work: &Work, works: &[Work], least: u64, finish: &[Option<u64>]) -> Release {
        let late = Some(work.jitter);
        match &work.source {
            ReleaseSource::Silent => {
                Release { least, latest: Some(0), counted: Some(0), burst: Some(0), ..Release::default() }
            }
            ReleaseSource::Periodic => Release { latest: late, counted: late, burst: late, ..Release::default() },
            ReleaseSource::Unclear(_) => Release::default(),
            ReleaseSource::After { join: Some(_), .. } => Release { least, ..Release::default() },
            ReleaseSource::After { .. } | ReleaseSource::AfterAny { .. } => {
                let predecessors = work.source.predecessors();
                let guarded = matches!(work.source, ReleaseSource::After { guarded: true, .. });
                let latest = predecessors
                    .iter()
                    .try_fold(0u64, |latest, hop| Some(latest.max(finish[hop.from]?.checked_add(hop.most)?)));
                let latest = latest.and_then(|latest| latest.checked_add(work.offset)?.checked_add(work.jitter));
                let latest = latest.filter(|latest| *latest < FOREVER);
                let spread = latest.map(|latest| latest.saturating_sub(least));
                // A release whose fast copy is absent may be later than the next one.
                let varies =
                    work.first || predecessors.iter().any(|hop| hop.most > hop.least || works[hop.from].any_order);
                // Tokens of several streams have no order at all.
                let several = work.streams.len() > 1;
                let reordered = several || (varies && spread.is_none_or(|spread| spread >= work.period));
                let burst = if guarded { late } else { spread };
                let burst = burst.and_then(|burst| merge::burst(&work.streams, burst));
                Release { least, latest, counted: latest, burst, reordered, ..Release::default() }
            }
        }
    }

    /// The latest release by a guard, which keeps releases a period apart.
    ///
    /// If jobs arrive in the order of their origins it delays none beyond the latest arrival, by induction: the one
    /// before was released by then, a period earlier (Sun and Liu 1996, theorem 1). Otherwise the k-th release is still
    /// no later than the latest arrival of the k-th origin, and a job replaces one of at most those that may arrive
    /// before it.
    fn guarded(&self, work: &Work) -> Option<u64> {
        let latest = self.latest?;
        if !self.reordered {
            return Some(latest);
        }
        // The guard keeps the period of the job before, which may have overtaken: across a change of period that is
        // another.
        if work.repaced {
            return None;
        }
        let period = work.period;
        let overtaking = latest.saturating_sub(self.least).div_ceil(period).saturating_sub(1);
        latest.checked_add(overtaking.checked_mul(period)?).filter(|latest| *latest < FOREVER)
    }
}
