//! Who delays whom, over all jobs: for each operation what its late jobs' time went to.

use std::collections::BTreeMap;

use hyoshi_model::{OperationId, Span, System};

use super::marks::sum;
use super::{Account, Kind, Overrun};

/// Kinds that are listed for one operation; beyond, the least of them are dropped.
const MOST_KINDS: usize = 64;

/// What the jobs of one operation lost their time to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Jobs accounted for.
    pub jobs: u64,
    /// Their responses together.
    pub response: Span,
    by: BTreeMap<Kind, Delay>,
    /// Time of kinds that were given up for lack of room.
    pub rest: Span,
}

/// One cause's part in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    /// Time in all.
    pub total: Span,
    /// The longest time of one job.
    pub longest: Span,
    /// In how many jobs.
    pub jobs: u64,
    /// Of how many it was the chief cause.
    pub chief: u64,
    /// In how many of them one who is blamed for it had overrun.
    pub overran: u64,
    /// The greatest of those overruns.
    pub worst: Option<Overrun>,
}

impl Delays {
    fn record(&mut self, account: &Account) {
        self.jobs += 1;
        self.response = sum(self.response, account.response());
        let chief = account.chief().map(|(kind, _)| kind.by_operation());
        // Jobs of one operation count once for each job they delayed.
        let mut once: BTreeMap<Kind, Span> = BTreeMap::new();
        for (kind, span) in &account.parts {
            let of = once.entry(kind.by_operation()).or_default();
            *of = sum(*of, *span);
        }
        for (kind, span) in once {
            if self.by.len() >= MOST_KINDS && !self.by.contains_key(&kind) {
                let least =
                    self.by.iter().min_by_key(|(_, delay)| delay.total).map(|(kind, delay)| (*kind, delay.total));
                match least {
                    Some((least, total)) if total < span => {
                        self.by.remove(&least);
                        self.rest = sum(self.rest, total);
                    }
                    _ => {
                        self.rest = sum(self.rest, span);
                        continue;
                    }
                }
            }
            let delay = self.by.entry(kind).or_default();
            delay.total = sum(delay.total, span);
            delay.longest = delay.longest.max(span);
            delay.jobs += 1;
            delay.chief += u64::from(chief == Some(kind));
            if let Some(overrun) = account.overrun(kind) {
                delay.overran += 1;
                delay.worst = Overrun::greater(delay.worst, overrun);
            }
        }
    }

    /// Every cause with its part, the greatest first.
    pub fn causes(&self) -> Vec<(Kind, Delay)> {
        let mut causes: Vec<_> = self.by.iter().map(|(kind, delay)| (*kind, *delay)).collect();
        causes.sort_by_key(|(kind, delay)| (core::cmp::Reverse(delay.total), *kind));
        causes
    }
}

/// Culprits of every operation of a system. Memory: at most 64 causes an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Culprits {
    operations: Vec<Delays>,
}

impl Culprits {
    /// Nothing seen yet.
    pub fn new(system: &System) -> Self {
        Culprits { operations: vec![Delays::default(); system.operations.len()] }
    }

    /// One more account.
    pub fn record(&mut self, account: &Account) {
        if let Some(delays) = self.operations.get_mut(account.end.job.operation.index()) {
            delays.record(account);
        }
    }

    /// What delayed the jobs of one operation.
    pub fn of(&self, operation: OperationId) -> Option<&Delays> {
        self.operations.get(operation.index()).filter(|delays| delays.jobs > 0)
    }
}
