//! Counts met and missed periods of the program.

use hyoshi_model::{Instant, Span};
use hyoshi_report::figures::{count, nanos, share};
use serde::Serialize;
use serde_json::{Value, json};

/// One period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PeriodOutcome {
    /// From 0.
    pub number: u64,
    /// Its start.
    pub release: Instant,
    /// When its work was finished or dropped.
    pub ended: Instant,
    /// CPU time of its work.
    pub demanded: Span,
    /// CPU time that all threads obtained.
    pub obtained: Span,
    /// The work was finished by the end of the period.
    pub met: bool,
}

impl PeriodOutcome {
    /// From its start to the end of its work.
    fn took(&self) -> Span {
        self.ended.since(self.release)
    }

    pub fn line(&self) -> String {
        let word = if self.met { "met" } else { "MISSED" };
        let (release, obtained) = (self.release.since(Instant::ZERO), self.obtained.as_nanos());
        format!(
            "{:>6}  at {:<8} {word:<6}  {} of {} after {}\n",
            self.number,
            nanos(release.as_nanos()),
            nanos(obtained),
            nanos(self.demanded.as_nanos()),
            nanos(self.took().as_nanos()),
        )
    }

    pub fn json(&self) -> Value {
        json!({
            "period": self.number, "release_ns": self.release.as_nanos(), "ended_ns": self.ended.as_nanos(),
            "demanded_ns": self.demanded.as_nanos(), "obtained_ns": self.obtained.as_nanos(), "met": self.met,
        })
    }
}

/// Many of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct PeriodCounts {
    pub periods: u64,
    pub met: u64,
    pub missed: u64,
    /// Of the missed: the program did not run at all from their start to their end.
    pub skipped: u64,
    /// The longest row of misses.
    pub missed_in_a_row: u64,
    #[serde(skip)]
    row: u64,
    pub demanded_ns: u64,
    pub obtained_ns: u64,
    /// The longest time from a period's start to the end of its work.
    pub longest_ns: u64,
}

impl PeriodCounts {
    pub fn add(&mut self, cycle: &PeriodOutcome) {
        self.obtained_ns += cycle.obtained.as_nanos();
        self.longest_ns = self.longest_ns.max(cycle.took().as_nanos());
        self.count(cycle.demanded, cycle.met);
    }

    /// A period in which nothing ran.
    pub fn skip(&mut self, demanded: Span) {
        self.skipped += 1;
        self.count(demanded, false);
    }

    fn count(&mut self, demanded: Span, met: bool) {
        self.periods += 1;
        self.demanded_ns += demanded.as_nanos();
        self.met += u64::from(met);
        self.missed += u64::from(!met);
        self.row = if met { 0 } else { self.row + 1 };
        self.missed_in_a_row = self.missed_in_a_row.max(self.row);
    }

    /// A line for the time until then.
    pub fn line(&self, until: Instant) -> String {
        format!(
            "{:>8}  met {} of {}  CPU {} of {}  longest {}\n",
            nanos(until.since(Instant::ZERO).as_nanos()),
            count(self.met),
            count(self.periods),
            nanos(self.obtained_ns),
            nanos(self.demanded_ns),
            nanos(self.longest_ns),
        )
    }

    /// The summary.
    pub fn closing(&self) -> String {
        let skipped = if self.skipped > 0 { format!(", {} skipped", count(self.skipped)) } else { String::new() };
        let missed = match self.missed {
            0 => "none missed".into(),
            missed => format!(
                "{} missed ({}{skipped}; at most {} in a row)",
                count(missed),
                share(missed, self.periods),
                count(self.missed_in_a_row)
            ),
        };
        format!(
            "{} periods: {} met, {missed}; CPU {} of {}, longest {}\n",
            count(self.periods),
            count(self.met),
            nanos(self.obtained_ns),
            nanos(self.demanded_ns),
            nanos(self.longest_ns),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cycle(number: u64, met: bool) -> PeriodOutcome {
        let release = Instant::ZERO + Span::from_millis(10 * number);
        let (demanded, obtained) = (Span::from_millis(4), Span::from_millis(if met { 4 } else { 3 }));
        PeriodOutcome { number, release, ended: release + Span::from_millis(5), demanded, obtained, met }
    }

    proptest! {
        #[test]
        fn every_period_is_either_met_or_missed(outcomes in prop::collection::vec(0..3u8, 0..60)) {
            let mut tally = PeriodCounts::default();
            for (number, outcome) in outcomes.iter().enumerate() {
                match outcome {
                    0 => tally.skip(Span::from_millis(4)),
                    other => tally.add(&cycle(number as u64, *other == 1)),
                }
            }
            prop_assert_eq!(tally.periods, outcomes.len() as u64);
            prop_assert_eq!(tally.met + tally.missed, tally.periods);
            prop_assert!(tally.skipped <= tally.missed && tally.missed_in_a_row <= tally.missed);
            prop_assert_eq!(tally.demanded_ns, tally.periods * 4_000_000);
            prop_assert!(tally.obtained_ns <= tally.demanded_ns);
            let rows = outcomes.split(|outcome| *outcome == 1).map(<[u8]>::len).max().unwrap_or(0);
            prop_assert_eq!(tally.missed_in_a_row, rows as u64);
        }
    }

    #[test]
    fn lines_show_met_and_missed_periods() {
        assert_eq!(cycle(2, false).line(), "     2  at 20ms     MISSED  3ms of 4ms after 5ms\n");
        let mut tally = PeriodCounts::default();
        [cycle(0, true), cycle(1, false)].iter().for_each(|cycle| tally.add(cycle));
        assert_eq!(tally.line(Instant::from_nanos(20_000_000)), "    20ms  met 1 of 2  CPU 7ms of 8ms  longest 5ms\n");
        assert_eq!(
            tally.closing(),
            "2 periods: 1 met, 1 missed (50.0 %; at most 1 in a row); CPU 7ms of 8ms, longest 5ms\n"
        );
    }
}
