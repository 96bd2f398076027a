//! The cost of scheduling that causes the first critical miss. It tests the paper's second hypothesis ("infrastructure
//! factors may influence the ability to enforce critical processing assurances"), with the costs as a parameter.

use hyoshi_model::{Costs, Span};
use hyoshi_sched::Strategies;
use hyoshi_trace::Stats;
use hyoshi_trace::stats::Row;
use serde::Serialize;

use super::experiment::each;
use super::program::{FlightProgram, LAST_FEASIBLE, REGIONS, STRATEGIES, Trial};
use super::trial::trial;
use crate::control::{ExperimentControl, Stopped};

/// The paper's costs, with our assumptions where it has none.
///
/// Queueing costs 12 us per request under RMS and RMS+MLF and 32 us under MUF, more of it for enqueueing (section IV-B,
/// figures 10 and 11); we assume two thirds. The paper has no figures for the check before an upcall (2 us), the timer
/// (5 us) and the switch between threads (4 us): these are plausible for a processor of 200 MHz.
pub fn paper_costs(strategy: &str) -> Costs {
    let (enqueue, dequeue) = if strategy == "MUF" { (21_333, 10_667) } else { (8_000, 4_000) };
    Costs {
        timer: Span::from_micros(5),
        enqueue: Span::from_nanos(enqueue),
        dequeue: Span::from_nanos(dequeue),
        cancel: Span::from_micros(2),
        switch: Span::from_micros(4),
        ..Costs::NONE
    }
}

/// All costs times a factor, in thousandths.
pub fn scaled(costs: Costs, permille: u64) -> Costs {
    let times = |span: Span| Span::from_nanos((u128::from(span.as_nanos()) * u128::from(permille) / 1_000) as u64);
    Costs {
        timer: times(costs.timer),
        enqueue: times(costs.enqueue),
        dequeue: times(costs.dequeue),
        cancel: times(costs.cancel),
        switch: times(costs.switch),
        watchdog: times(costs.watchdog),
    }
}

/// The overhead at which a strategy first misses a critical deadline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Threshold {
    /// The strategy.
    pub strategy: String,
    /// Whether jobs that could not finish in time were cancelled.
    pub cancel: bool,
    /// The lowest factor on the paper's costs with a miss, in thousandths; `null` without a miss up to 256.
    pub scale_permille: Option<u64>,
    /// The cost of queueing a request at that factor.
    pub queueing_ns: u64,
    /// The first miss at that factor.
    pub first: Option<FirstMiss>,
}

/// The first critical miss of a trial, and the number of misses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FirstMiss {
    /// The region of its release.
    pub region: usize,
    /// The operation.
    pub operation: String,
    /// The end of the job.
    pub at_ns: u64,
    /// Critical misses of the whole trial.
    pub misses: u64,
}

impl Threshold {
    /// As the paper writes the strategy.
    pub fn name(&self) -> String {
        super::trial::name(&self.strategy, self.cancel)
    }
}

/// The largest factor, and the resolution of the search, in thousandths.
const MOST: u64 = 256_000;
const FINEST: u64 = 10;

/// Searches the threshold of every trial, in the regions without misses at no cost.
pub fn thresholds(
    region: Span,
    seed: u64,
    trials: &[Trial],
    control: ExperimentControl<'_>,
) -> Result<Vec<Threshold>, Stopped> {
    let feasible = FlightProgram::of(&REGIONS[..=LAST_FEASIBLE], region, seed);
    let all = FlightProgram::new(region, seed);
    let found = each(trials, |one| {
        let program = if one.strategy == STRATEGIES[0] { &feasible } else { &all };
        threshold(program, one, control)
    });
    found.into_iter().collect()
}

fn threshold(program: &FlightProgram, one: &Trial, control: ExperimentControl<'_>) -> Result<Threshold, Stopped> {
    let base = paper_costs(&one.strategy);
    let strategies = Strategies::built_in();
    let attempt = |permille: u64| -> Result<Option<FirstMiss>, Stopped> {
        let costly = Trial { costs: scaled(base, permille), ..one.clone() };
        let mut observer = trial(program, &costly, &strategies, control.stop);
        if (control.stop)() { Err(Stopped) } else { Ok(miss(program, observer.stats())) }
    };
    let found = least(MOST, FINEST, attempt)?;
    let scale_permille = found.as_ref().map(|(permille, _)| *permille);
    let at = scaled(base, scale_permille.unwrap_or(0));
    Ok(Threshold {
        strategy: one.strategies(),
        cancel: one.cancel,
        scale_permille,
        queueing_ns: (at.enqueue + at.dequeue).as_nanos(),
        first: found.map(|(_, miss)| miss),
    })
}

fn miss(program: &FlightProgram, stats: &Stats) -> Option<FirstMiss> {
    let first = stats.first_not_made(true)?;
    let critical = stats.counts(None, Row::critical);
    Some(FirstMiss {
        region: usize::from(first.epoch),
        operation: program.operation(first.job.operation).into(),
        at_ns: first.end.as_nanos(),
        misses: critical.not_made() - critical.cancelled(),
    })
}

/// The lowest factor at which `attempt` returns a value. It doubles from a 16th, then halves the interval until it is
/// at most `finest` thousandths of the factor. Misses need not grow with costs, so a lower factor in between is
/// possible.
fn least<T, E>(
    most: u64,
    finest: u64,
    mut attempt: impl FnMut(u64) -> Result<Option<T>, E>,
) -> Result<Option<(u64, T)>, E> {
    let (mut without, mut with) = (0, 62);
    let mut found = loop {
        match attempt(with)? {
            Some(found) => break found,
            None if with >= most => return Ok(None),
            None => (without, with) = (with, (with * 2).min(most)),
        }
    };
    while (with - without) * 1_000 > with * finest && with - without > 1 {
        let middle = without + (with - without) / 2;
        match attempt(middle)? {
            Some(earlier) => (with, found) = (middle, earlier),
            None => without = middle,
        }
    }
    Ok(Some((with, found)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    #[test]
    fn the_papers_costs_are_those_that_it_prints() {
        let queueing = |strategy| {
            let costs = paper_costs(strategy);
            costs.enqueue + costs.dequeue
        };
        assert_eq!(queueing("RMS"), Span::from_micros(12));
        assert_eq!(queueing("RMS+MLF"), Span::from_micros(12));
        assert_eq!(queueing("MUF"), Span::from_micros(32));
    }

    proptest! {
        #[test]
        fn the_least_factor_is_found_to_a_hundredth(threshold in 1u64..400_000) {
            let attempt = |permille: u64| Ok::<_, Infallible>((permille >= threshold).then_some(permille));
            match least(MOST, FINEST, attempt).unwrap() {
                None => prop_assert!(threshold > MOST),
                Some((found, seen)) => {
                    prop_assert_eq!(found, seen);
                    prop_assert!(found >= threshold && (found - threshold) * 1_000 <= found * FINEST + 1_000);
                }
            }
        }
    }
}
