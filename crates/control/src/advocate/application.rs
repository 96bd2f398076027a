//! Advocates that use the application's reports: its modes, and its own numbers.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use hyoshi_model::{Reservation, Span};

use super::kind::{AdvocateKind, AdvocateParameter, HEADROOM, ParameterUnit};
use super::max_decay::LastReports;
use super::{Advice, Advocate, with_headroom};
use crate::task::{Status, Values};

pub(super) const MODES: AdvocateKind = AdvocateKind {
    name: "modes",
    about: "max-decay for each mode of the application: when a mode begins, requests at once what it needed last time",
    parameters: &[
        AdvocateParameter {
            name: "reports",
            about: "how many reports of a mode count",
            measure: ParameterUnit::Count,
            least: 1,
            most: 1_000,
            default: Some(5),
        },
        HEADROOM,
    ],
    build: |settings| Box::new(Modes::new(settings[0] as usize, settings[1] as u32)),
};

pub(super) const VALUE: AdvocateKind = AdvocateKind {
    name: "value",
    about: "requests in proportion to a number that the application reports: so much for each target that it tracks",
    parameters: &[
        AdvocateParameter {
            name: "each",
            about: "the budget for one",
            measure: ParameterUnit::Time,
            least: 1,
            most: Reservation::LONGEST.as_nanos(),
            default: None,
        },
        AdvocateParameter {
            name: "base",
            about: "the budget for none",
            measure: ParameterUnit::Time,
            least: 0,
            most: Reservation::LONGEST.as_nanos(),
            default: Some(0),
        },
        AdvocateParameter {
            name: "index",
            about: "which of the application's numbers, from 0",
            measure: ParameterUnit::Count,
            least: 0,
            most: Values::MOST as u64 - 1,
            default: Some(0),
        },
    ],
    build: |settings| {
        let (each, base) = (Span::from_nanos(settings[0]), Span::from_nanos(settings[1]));
        Box::new(ProportionalBudget { each, base, index: settings[2] as usize, last: None })
    },
};

/// A [`MaxDecay`](super::MaxDecay) for each mode: a mode change is an expected event, and the demand of the mode's last
/// time is known before its first report.
///
/// A status has the *present* mode of the application; the consumption in it belongs to the mode before.
#[derive(Clone, Debug)]
pub struct Modes {
    reports: usize,
    headroom: u32,
    now: Option<u32>,
    /// Sorted by mode.
    known: Vec<(Option<u32>, LastReports)>,
}

impl Modes {
    /// How many modes are remembered; later ones share one memory.
    pub const MOST: usize = 32;

    /// Over the last `reports` of each mode, with `headroom` in millionths.
    pub fn new(reports: usize, headroom: u32) -> Self {
        Modes { reports, headroom, now: None, known: Vec::new() }
    }

    fn find(&self, mode: Option<u32>) -> Result<usize, usize> {
        self.known.binary_search_by_key(&mode, |(known, _)| *known)
    }

    fn learn(&mut self, mode: Option<u32>, demand: Span) {
        let full = self.known.len() == Modes::MOST;
        let at = match self.find(mode) {
            Ok(at) => at,
            Err(_) if full => self.known.len() - 1,
            Err(at) => {
                self.known.insert(at, (mode, LastReports::new(self.reports)));
                at
            }
        };
        self.known[at].1.push(demand);
    }

    fn greatest(&self) -> Option<Span> {
        self.known.get(self.find(self.now).ok()?)?.1.greatest()
    }
}

impl Advocate for Modes {
    fn name(&self) -> &'static str {
        MODES.name
    }

    fn advise(&mut self, status: &Status, asked: Reservation) -> Advice {
        if let Some(demand) = status.demand() {
            // The first report has no mode before it.
            let mode = if self.known.is_empty() { status.mode } else { self.now };
            self.learn(mode, demand);
            self.now = status.mode;
        }
        self.greatest().map_or(asked, |greatest| with_headroom(greatest, self.headroom, asked)).into()
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.now, self.greatest()) {
            (None, None) => f.write_str("no mode yet"),
            (None, Some(greatest)) => write!(f, "without a mode, {greatest:.4}"),
            (Some(mode), None) => write!(f, "mode {mode} is new"),
            (Some(mode), Some(greatest)) => write!(f, "mode {mode} needed up to {greatest:.4}"),
        }
    }
}

/// A budget in proportion to one of the application's numbers.
#[derive(Clone, Copy, Debug)]
pub struct ProportionalBudget {
    /// The budget for one.
    pub each: Span,
    /// The budget for none.
    pub base: Span,
    /// The index in [`Status::values`].
    pub index: usize,
    /// The last number.
    pub last: Option<i64>,
}

impl Advocate for ProportionalBudget {
    fn name(&self) -> &'static str {
        VALUE.name
    }

    fn advise(&mut self, status: &Status, asked: Reservation) -> Advice {
        self.last = status.values.get(self.index).or(self.last);
        let Some(number) = self.last else { return asked.into() };
        let count = u64::try_from(number).unwrap_or(0);
        let budget = self.each.as_nanos().saturating_mul(count).saturating_add(self.base.as_nanos());
        asked.with_budget(Span::from_nanos(budget)).into()
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last {
            None => write!(f, "the application has not reported number {}", self.index),
            Some(number) => {
                write!(f, "the application reports {number}: {:.4} and {:.4} for each", self.base, self.each)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyoshi_model::Instant;

    fn like() -> Reservation {
        Reservation::new(Span::from_millis(50), Span::from_millis(100)).unwrap()
    }

    #[test]
    fn a_mode_asks_at_once_for_what_it_needed_last_time() {
        let mut modes = Modes::new(3, 0);
        let mut report = |consumed, mode| {
            let status = Status { mode: Some(mode), ..Status::of_cycle(Instant::ZERO, Span::from_millis(consumed)) };
            modes.advise(&status, like()).ask.budget().as_nanos() / 1_000_000
        };
        assert_eq!(report(10, 1), 10);
        assert_eq!(report(10, 2), 50, "mode 2 is new: what was declared");
        assert_eq!(report(70, 2), 70);
        assert_eq!(report(70, 1), 10, "mode 1 is known");
        assert_eq!(report(12, 2), 70, "and mode 2 by now too");
    }

    #[test]
    fn modes_without_end_are_not_all_remembered() {
        let mut modes = Modes::new(3, 0);
        for mode in 0..1_000 {
            modes.learn(Some(mode), Span::from_millis(1));
        }
        assert_eq!(modes.known.len(), Modes::MOST);
    }

    #[test]
    fn a_value_asks_for_each_and_the_base() {
        let ms = Span::from_millis;
        let mut value = ProportionalBudget { each: ms(5), base: ms(2), index: 1, last: None };
        let mut report = |numbers: &[i64]| {
            let values = Values::new(numbers).unwrap();
            let status = Status { values, ..Status::of_cycle(Instant::ZERO, ms(1)) };
            value.advise(&status, like()).ask.budget().as_nanos() / 1_000_000
        };
        assert_eq!(report(&[7]), 50, "no such number yet: what was declared");
        assert_eq!(report(&[7, 3]), 17);
        assert_eq!(report(&[]), 17);
        assert_eq!((report(&[0, -4]), report(&[0, i64::MAX])), (2, 100));
    }
}
