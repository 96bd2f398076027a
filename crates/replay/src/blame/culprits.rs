//! Causes of delay, summed over the late jobs of each operation.

use std::collections::BTreeMap;

use hyoshi_model::{OperationId, Span, System};

use super::cpu_changes::sum;
use super::{Overrun, ResponseBreakdown, ResponsePart};

/// The most causes of one operation; the smallest of further causes are dropped.
const MOST_KINDS: usize = 64;

/// The causes that delayed the jobs of one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// The number of jobs.
    pub jobs: u64,
    /// The sum of their responses.
    pub response: Span,
    by: BTreeMap<ResponsePart, Delay>,
    /// Time of dropped causes.
    pub rest: Span,
}

/// The effect of one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    /// Total time.
    pub total: Span,
    /// The longest time of one job.
    pub longest: Span,
    /// The number of delayed jobs.
    pub jobs: u64,
    /// The number of jobs that it delayed more than any other cause did.
    pub chief: u64,
    /// The number of jobs in which its job had an overrun.
    pub overran: u64,
    /// The largest of those overruns.
    pub worst: Option<Overrun>,
}

impl Delays {
    fn record(&mut self, breakdown: &ResponseBreakdown) {
        self.jobs += 1;
        self.response = sum(self.response, breakdown.response());
        let chief = breakdown.chief().map(|(kind, _)| kind.by_operation());
        // Several jobs of one operation count once for each job that they delayed.
        let mut once: BTreeMap<ResponsePart, Span> = BTreeMap::new();
        for (kind, span) in &breakdown.parts {
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
            if let Some(overrun) = breakdown.overrun(kind) {
                delay.overran += 1;
                delay.worst = Overrun::greater(delay.worst, overrun);
            }
        }
    }

    /// The causes, the largest first.
    pub fn causes(&self) -> Vec<(ResponsePart, Delay)> {
        let mut causes: Vec<_> = self.by.iter().map(|(kind, delay)| (*kind, *delay)).collect();
        causes.sort_by_key(|(kind, delay)| (core::cmp::Reverse(delay.total), *kind));
        causes
    }
}

/// The causes of delay of every operation, at most 64 each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Culprits {
    operations: Vec<Delays>,
}

impl Culprits {
    /// Without any job.
    pub fn new(system: &System) -> Self {
        Culprits { operations: vec![Delays::default(); system.operations.len()] }
    }

    /// Adds a breakdown.
    pub fn record(&mut self, breakdown: &ResponseBreakdown) {
        if let Some(delays) = self.operations.get_mut(breakdown.end.job.operation.index()) {
            delays.record(breakdown);
        }
    }

    /// The causes that delayed the jobs of one operation.
    pub fn of(&self, operation: OperationId) -> Option<&Delays> {
        self.operations.get(operation.index()).filter(|delays| delays.jobs > 0)
    }
}
