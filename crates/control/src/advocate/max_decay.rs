//! MaxDecay: the greatest demand of the last reports.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::fmt;

use hyoshi_model::{Reservation, Span};

use super::kind::{AdvocateKind, AdvocateParameter, HEADROOM, ParameterUnit};
use super::{Advice, Advocate, with_headroom};
use crate::task::Status;

pub(super) const KIND: AdvocateKind = AdvocateKind {
    name: "max-decay",
    about: "requests the greatest demand of the last reports: rises at once, falls only after as many lower ones",
    parameters: &[
        AdvocateParameter {
            name: "reports",
            about: "how many reports count",
            measure: ParameterUnit::Count,
            least: 1,
            most: 1_000,
            default: Some(5),
        },
        HEADROOM,
    ],
    build: |settings| Box::new(MaxDecay::new(settings[0] as usize, settings[1] as u32)),
};

/// Requests the greatest demand of the last `reports` reports, with some headroom (the paper's section IV-C): rises at
/// once, falls only when the demand has been lower for this many reports.
#[derive(Clone, Debug)]
pub struct MaxDecay {
    headroom: u32,
    last: LastReports,
}

impl MaxDecay {
    /// Over the last `reports` (at least one), with `headroom` in millionths of the demand.
    pub fn new(reports: usize, headroom: u32) -> Self {
        MaxDecay { headroom, last: LastReports::new(reports) }
    }
}

impl Advocate for MaxDecay {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn advise(&mut self, status: &Status, asked: Reservation) -> Advice {
        if let Some(demand) = status.demand() {
            self.last.push(demand);
        }
        self.last.greatest().map_or(asked, |greatest| with_headroom(greatest, self.headroom, asked)).into()
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.last.greatest(), self.last.len()) {
            (None, _) => f.write_str("no report yet"),
            (Some(greatest), 1) => write!(f, "the one report so far is {greatest:.4}"),
            (Some(greatest), reports) => write!(f, "the greatest of the last {reports} reports is {greatest:.4}"),
        }
    }
}

/// The demands of the last reports, and their maximum without a search: a monotonic queue holds only those that are
/// greater than all after them.
#[derive(Clone, Debug)]
pub(super) struct LastReports {
    most: usize,
    count: u64,
    falling: VecDeque<(u64, Span)>,
}

impl LastReports {
    pub fn new(most: usize) -> Self {
        LastReports { most: most.max(1), count: 0, falling: VecDeque::new() }
    }

    pub fn push(&mut self, demand: Span) {
        while self.falling.back().is_some_and(|(_, smaller)| *smaller <= demand) {
            self.falling.pop_back();
        }
        self.falling.push_back((self.count, demand));
        self.count += 1;
        let oldest = self.count.saturating_sub(self.most as u64);
        while self.falling.front().is_some_and(|(at, _)| *at < oldest) {
            self.falling.pop_front();
        }
    }

    pub fn greatest(&self) -> Option<Span> {
        self.falling.front().map(|(_, demand)| *demand)
    }

    pub fn len(&self) -> u64 {
        self.count.min(self.most as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_greatest_is_that_of_the_last_reports(demands in prop::collection::vec(0u64..50, 1..80), most in 1usize..20) {
            let mut last = LastReports::new(most);
            let mut all = Vec::new();
            for demand in demands {
                all.push(demand);
                last.push(Span::from_nanos(demand));
                let greatest = all.iter().rev().take(most).max().copied();
                prop_assert_eq!(last.greatest().map(Span::as_nanos), greatest);
                prop_assert_eq!(last.len() as usize, all.len().min(most));
            }
        }
    }
}
