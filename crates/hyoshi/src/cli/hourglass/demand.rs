//! The work of each period: a sequence of phases, and spikes.

use std::num::NonZeroU64;
use std::str::FromStr;

use hyoshi_model::{Span, quantity};

/// The work of every period, from the first (0) on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WorkPlan {
    /// Until the first phase.
    pub work: Span,
    /// The first period and the work of each phase; ascending.
    pub phases: Vec<(u64, Span)>,
    /// The phases repeat after this many periods.
    pub repeat: Option<NonZeroU64>,
    /// Every n-th period has this work instead; the greatest of several.
    pub spikes: Vec<Spike>,
}

impl WorkPlan {
    /// The CPU time of a period.
    pub fn of(&self, period: u64) -> Span {
        let spikes = self.spikes.iter().filter(|spike| (period + 1).is_multiple_of(spike.every.get()));
        spikes.map(|spike| spike.work).max().unwrap_or_else(|| self.phase(period))
    }

    fn phase(&self, period: u64) -> Span {
        let within = self.repeat.map_or(period, |round| period % round);
        let begun = self.phases.iter().take_while(|(from, _)| *from <= within).last();
        begun.map_or(self.work, |(_, work)| *work)
    }

    /// The greatest CPU time of any period.
    pub fn greatest(&self) -> Span {
        let phases = self.phases.iter().map(|(_, work)| *work);
        phases.chain(self.spikes.iter().map(|spike| spike.work)).fold(self.work, Span::max)
    }
}

/// Since the start, or of a round: a time, or a number of periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkLength {
    Time(Span),
    Periods(u64),
}

impl WorkLength {
    /// In periods, rounded up.
    pub fn periods(self, period: Span) -> u64 {
        match self {
            WorkLength::Time(time) => time.as_nanos().div_ceil(period.as_nanos()),
            WorkLength::Periods(periods) => periods,
        }
    }
}

impl FromStr for WorkLength {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(periods) = text.parse() {
            return Ok(WorkLength::Periods(periods));
        }
        let wrong = |_| format!("{text:?} is neither a time such as 5s nor a number of periods such as 10");
        quantity::span(text).map(WorkLength::Time).map_err(wrong)
    }
}

/// `FROM:WORK` of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WorkPhase {
    pub from: WorkLength,
    pub work: Span,
}

impl FromStr for WorkPhase {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (from, work) = pair(text, "FROM:WORK; write one such as 5s:20ms (from 5 s on 20 ms)")?;
        Ok(WorkPhase { from: from.parse()?, work: time(work)? })
    }
}

/// `EVERY:WORK` of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spike {
    pub every: NonZeroU64,
    pub work: Span,
}

impl FromStr for Spike {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (every, work) = pair(text, "EVERY:WORK; write one such as 12:25ms (each twelfth period 25 ms)")?;
        let wrong = |_| format!("{every:?} is not a number of periods; write a whole number from 1");
        Ok(Spike { every: every.parse().map_err(wrong)?, work: time(work)? })
    }
}

fn pair<'a>(text: &'a str, shape: &str) -> Result<(&'a str, &'a str), String> {
    text.split_once(':').ok_or_else(|| format!("{text:?} is not {shape}"))
}

/// A time, which may be zero: a phase in which there is nothing to do.
pub(super) fn time(text: &str) -> Result<Span, String> {
    quantity::span(text).map_err(|error| format!("{text:?} {error}; {}", error.remedy(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Span {
        Span::from_millis(millis)
    }

    #[test]
    fn phases_follow_each_other_and_come_again() {
        let phases = vec![(10, ms(150)), (20, ms(200))];
        let demand = WorkPlan { work: ms(100), phases, repeat: NonZeroU64::new(30), spikes: Vec::new() };
        for round in [0, 30, 60] {
            for (period, work) in [(0, 100), (9, 100), (10, 150), (19, 150), (20, 200), (29, 200)] {
                assert_eq!(demand.of(round + period), ms(work), "period {}", round + period);
            }
        }
        let once = WorkPlan { repeat: None, ..demand };
        assert_eq!(once.of(1_000), ms(200));
    }

    #[test]
    fn a_spike_comes_once_in_so_many_periods_and_the_greatest_of_several_counts() {
        let spikes = vec!["3:20ms".parse().unwrap(), "6:30ms".parse().unwrap()];
        let demand = WorkPlan { work: ms(10), phases: Vec::new(), repeat: None, spikes };
        let first: Vec<u64> = (0..7).map(|period| demand.of(period).as_nanos() / 1_000_000).collect();
        assert_eq!(first, [10, 10, 20, 10, 10, 30, 10]);
        assert_eq!(demand.greatest(), ms(30));
    }

    #[test]
    fn lengths_are_times_or_numbers_of_periods() {
        assert_eq!("10".parse(), Ok(WorkLength::Periods(10)));
        assert_eq!("5s".parse::<WorkLength>().unwrap().periods(ms(33)), 152);
        assert!("soon".parse::<WorkLength>().unwrap_err().contains("neither a time"));
        assert!("5s".parse::<WorkPhase>().unwrap_err().contains("FROM:WORK"));
        assert!("0:5ms".parse::<Spike>().unwrap_err().contains("whole number"));
    }
}
