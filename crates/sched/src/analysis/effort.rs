//! The effort of an analysis: verdicts always, response bounds of levels by key up to a limit.

use alloc::{collections::BTreeMap, vec::Vec};
use core::cell::{Cell, RefCell};
use core::fmt;

use hyoshi_model::OperationId;

use super::fixed::{self, Demand};
use super::verdict::Missing;

/// Options of [`analyse_with`](super::analyse_with).
pub struct AnalysisOptions<'a> {
    /// Which response bounds of levels by deadline or laxity to compute.
    pub bounds: Bounds,
    /// Called now and then with the progress of such bounds. If it returns false, the remaining bounds are omitted, and
    /// only verdicts are computed.
    pub progress: &'a dyn Fn(Progress) -> bool,
}

impl fmt::Debug for AnalysisOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

/// Which response bounds are computed. Those of FIFO levels always are; verdicts do not need them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bounds {
    /// None of them.
    None,
    /// Those that need a fraction of a second, by an estimate that depends only on the system.
    #[default]
    Quick,
    /// All of them, whatever the duration.
    All,
}

/// The progress of response bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Terms added up so far.
    pub done: u64,
    /// About how many there are in the levels begun so far.
    pub of: u64,
}

/// The remaining effort for bounds, and the requested results.
pub(super) struct Effort<'a> {
    /// The operations with requested verdicts; `None`: all.
    only: Option<&'a [bool]>,
    /// Levels that were analysed before.
    known: Option<&'a LevelCache>,
    /// `None`: without limit.
    left: Cell<Option<u64>>,
    done: Cell<u64>,
    of: Cell<u64>,
    reported: Cell<u64>,
    stopped: Cell<bool>,
    report: &'a dyn Fn(Progress) -> bool,
}

/// Terms that are added up in about a quarter of a second.
const QUICK: u64 = 100_000_000;

/// Terms between two reports of progress.
const REPORT_INTERVAL: u64 = 1 << 20;

impl<'a> Effort<'a> {
    pub fn new(options: AnalysisOptions<'a>) -> Self {
        let left = match options.bounds {
            Bounds::None => Some(0),
            Bounds::Quick => Some(QUICK),
            Bounds::All => None,
        };
        Effort {
            only: None,
            known: None,
            left: Cell::new(left),
            done: Cell::default(),
            of: Cell::default(),
            reported: Cell::default(),
            stopped: Cell::default(),
            report: options.progress,
        }
    }

    /// For verdicts alone, on these operations if not on all; other results must not be used.
    pub fn verdicts(bounds: Bounds, only: Option<&'a [bool]>, known: &'a LevelCache) -> Self {
        Effort { only, known: Some(known), ..Effort::new(AnalysisOptions { bounds, progress: &|_| true }) }
    }

    /// True if the verdict on an operation is requested.
    pub fn wants(&self, operation: OperationId) -> bool {
        self.only.is_none_or(|only| only.get(operation.index()).copied().unwrap_or(true))
    }

    /// True if only verdicts on operations and chains are requested.
    pub fn is_for_verdicts(&self) -> bool {
        self.known.is_some()
    }

    /// The response bound of a FIFO level, from the cache if it was analysed.
    pub fn level(&self, first: OperationId, own: &[Demand], higher: &[Demand], below: u64) -> Result<u64, Missing> {
        let analysed = || fixed::level(own, higher, below);
        self.known.map_or_else(analysed, |known| known.level(first, own, higher, below, analysed))
    }

    /// The remaining effort.
    pub fn left(&self) -> u64 {
        self.left.get().unwrap_or(u64::MAX)
    }

    /// Whether a search that adds up about `cost` terms may begin. If so, the cost is spent.
    pub fn affords(&self, cost: u64) -> bool {
        let left = self.left.get().map(|left| left.checked_sub(cost));
        if self.stopped.get() || left == Some(None) {
            return false;
        }
        self.left.set(left.flatten());
        self.of.set(self.of.get().saturating_add(cost));
        true
    }

    /// Records that `terms` were added up; `None` if the search must end.
    pub fn step(&self, terms: u64) -> Option<()> {
        let done = self.done.get().saturating_add(terms);
        self.done.set(done);
        if done - self.reported.get() >= REPORT_INTERVAL {
            self.reported.set(done);
            let goes_on = (self.report)(Progress { done, of: self.of.get() });
            self.stopped.set(self.stopped.get() || !goes_on);
        }
        // Far beyond the estimate: the same system always ends here.
        let beyond = self.left.get().is_some() && done > self.of.get().saturating_add(4 * QUICK);
        (!self.stopped.get() && !beyond).then_some(())
    }
}

/// Results of FIFO levels by their first operations: if another operation changes, the levels above it are unchanged.
#[derive(Default)]
pub(super) struct LevelCache(RefCell<BTreeMap<OperationId, CachedLevel>>);

struct CachedLevel {
    own: Vec<Demand>,
    higher: Vec<Demand>,
    below: u64,
    response: Result<u64, Missing>,
}

impl LevelCache {
    fn level(
        &self,
        first: OperationId,
        own: &[Demand],
        higher: &[Demand],
        below: u64,
        analysed: impl FnOnce() -> Result<u64, Missing>,
    ) -> Result<u64, Missing> {
        let mut known = self.0.borrow_mut();
        match known.get(&first) {
            Some(level) if level.below == below && level.own == own && level.higher == higher => level.response.clone(),
            Some(_) => analysed(),
            None => {
                let response = analysed();
                let (own, higher) = (own.to_vec(), higher.to_vec());
                known.insert(first, CachedLevel { own, higher, below, response: response.clone() });
                response
            }
        }
    }
}
