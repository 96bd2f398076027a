//! Percentile: the demand of a percentage of cycles.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use hyoshi_model::{Reservation, Share, Span};

use super::kind::{AdvocateKind, AdvocateParameter, HEADROOM, ParameterUnit};
use super::{Advice, Advocate, with_headroom};
use crate::task::Status;

pub(super) const KIND: AdvocateKind = AdvocateKind {
    name: "percentile",
    about: "requests what was enough for a percentage of the last reports: rare spikes use unreserved time",
    parameters: &[
        AdvocateParameter {
            name: "percentile",
            about: "the percentage of reports for which the budget is enough",
            measure: ParameterUnit::Share,
            least: 10_000,
            most: 1_000_000,
            default: Some(950_000),
        },
        AdvocateParameter {
            name: "reports",
            about: "how many reports count",
            measure: ParameterUnit::Count,
            least: 2,
            most: 1_000,
            default: Some(100),
        },
        HEADROOM,
    ],
    build: |settings| Box::new(Percentile::new(settings[0] as u32, settings[1] as usize, settings[2] as u32)),
};

/// Requests a percentile of the demands of the last reports, by nearest rank.
#[derive(Clone, Debug)]
pub struct Percentile {
    percentile: u32,
    reports: usize,
    headroom: u32,
    arrived: VecDeque<Span>,
    sorted: Vec<Span>,
}

impl Percentile {
    /// The `percentile` in millionths, over the last `reports`, with `headroom` in millionths.
    pub fn new(percentile: u32, reports: usize, headroom: u32) -> Self {
        let percentile = percentile.clamp(1, 1_000_000);
        Percentile { percentile, reports: reports.max(1), headroom, arrived: VecDeque::new(), sorted: Vec::new() }
    }

    fn learn(&mut self, demand: Span) {
        if self.arrived.len() == self.reports
            && let Some(oldest) = self.arrived.pop_front()
            && let Ok(at) = self.sorted.binary_search(&oldest)
        {
            self.sorted.remove(at);
        }
        self.arrived.push_back(demand);
        let at = self.sorted.partition_point(|smaller| *smaller < demand);
        self.sorted.insert(at, demand);
    }

    fn value(&self) -> Option<Span> {
        let rank = (self.sorted.len() as u64 * u64::from(self.percentile)).div_ceil(1_000_000);
        self.sorted.get(rank.checked_sub(1)? as usize).copied()
    }
}

impl Advocate for Percentile {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn advise(&mut self, status: &Status, asked: Reservation) -> Advice {
        if let Some(demand) = status.demand() {
            self.learn(demand);
        }
        self.value().map_or(asked, |value| with_headroom(value, self.headroom, asked)).into()
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percentile = Share::from_millionths(u64::from(self.percentile));
        match self.value() {
            None => f.write_str("no report yet"),
            Some(value) => {
                write!(f, "{value:.4} is enough for {percentile} of the last {} reports", self.arrived.len())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn as_many_of_the_last_reports_got_along(
            demands in prop::collection::vec(0u64..1_000, 1..60),
            percentile in 10_000u32..=1_000_000,
        ) {
            let mut advocate = Percentile::new(percentile, 20, 0);
            for (index, demand) in demands.iter().enumerate() {
                advocate.learn(Span::from_nanos(*demand));
                let last = &demands[(index + 1).saturating_sub(20)..=index];
                let value = advocate.value().unwrap().as_nanos();
                let within = |most: u64| last.iter().filter(|demand| **demand <= most).count() as u64 * 1_000_000;
                let needed = last.len() as u64 * u64::from(percentile);
                prop_assert!(within(value) >= needed);
                prop_assert!(value == 0 || within(value - 1) < needed);
            }
        }
    }
}
