//! A condition of a contract: samples over a window of time, and the age at which the last one is stale.

use hyoshi_model::predicate::ConditionReading;
use hyoshi_model::{Instant, Span, WindowSummary};

/// A sample of a condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowSample {
    /// When it was measured.
    pub at: Instant,
    /// The value.
    pub value: f64,
    /// Its weight in the mean, such as the number of jobs; without a weight it does not count.
    pub weight: f64,
}

/// The parts of a window.
const PARTS: usize = 32;

/// A condition: the samples of a window, summed up in 32 parts. So its memory and its time are constant.
///
/// A window of length `over` contains all samples of the last `over`, and at most a 32nd more. Without a window, only the
/// latest sample counts. It is stale if the window is empty, or if the latest sample is older than `max_age`.
#[derive(Clone, Debug)]
pub struct ConditionWindow {
    summary: WindowSummary,
    max_age: Option<Span>,
    /// The length of a part; `None` without a window.
    part: Option<Span>,
    /// By the number of the part, in a ring: those up to `newest`, and the part that has begun.
    parts: [SampleSum; PARTS + 1],
    newest: u64,
    latest: Option<Instant>,
    /// When it was first read.
    began: Option<Instant>,
}

/// The sum of some samples.
#[derive(Clone, Copy, Debug)]
pub struct SampleSum {
    sum: f64,
    weight: f64,
    least: f64,
    greatest: f64,
}

impl SampleSum {
    /// No sample.
    pub const EMPTY: SampleSum = SampleSum { sum: 0.0, weight: 0.0, least: f64::INFINITY, greatest: f64::NEG_INFINITY };

    /// These samples, and one more of weight 1.
    pub fn and(self, value: f64) -> SampleSum {
        self.with(SampleSum { sum: value, weight: 1.0, least: value, greatest: value })
    }

    fn with(self, other: SampleSum) -> SampleSum {
        SampleSum {
            sum: self.sum + other.sum,
            weight: self.weight + other.weight,
            least: self.least.min(other.least),
            greatest: self.greatest.max(other.greatest),
        }
    }
}

impl ConditionWindow {
    /// A condition without samples.
    pub fn new(summary: WindowSummary, over: Option<Span>, max_age: Option<Span>) -> ConditionWindow {
        let part = over.map(|over| Span::from_nanos(over.as_nanos().div_ceil(PARTS as u64).max(1)));
        let parts = [SampleSum::EMPTY; PARTS + 1];
        ConditionWindow { summary, max_age, part, parts, newest: 0, latest: None, began: None }
    }

    /// Adds a sample. False, without effect, if it is older than the window, or not finite, or has no weight.
    pub fn add(&mut self, sample: WindowSample) -> bool {
        let WindowSample { at, value, weight } = sample;
        let sum = value * weight;
        if !(value.is_finite() && sum.is_finite() && weight > 0.0 && weight.is_finite()) {
            return false;
        }
        let number = self.number(at);
        match self.part {
            Some(_) => self.advance(number),
            None if self.latest.is_some_and(|latest| at < latest) => return false,
            None => self.parts[0] = SampleSum::EMPTY,
        }
        if self.part.is_some() && self.newest - number > PARTS as u64 {
            return false;
        }
        let part = &mut self.parts[(number % self.parts.len() as u64) as usize];
        *part = part.with(SampleSum { sum, weight, least: value, greatest: value });
        self.latest = self.latest.max(Some(at));
        true
    }

    /// Forgets all samples.
    pub fn clear(&mut self) {
        (self.parts, self.latest, self.began) = ([SampleSum::EMPTY; PARTS + 1], None, None);
    }

    /// The present value.
    pub fn reading(&mut self, now: Instant) -> ConditionReading {
        self.reading_with(now, SampleSum::EMPTY)
    }

    /// The present value, with samples that count only now.
    pub fn reading_with(&mut self, now: Instant, present: SampleSum) -> ConditionReading {
        if self.part.is_some() {
            self.advance(self.number(now));
        }
        let is_recent = |latest: Instant| self.max_age.is_none_or(|most| now.since(latest) <= most);
        if present.weight == 0.0 && !self.latest.is_some_and(is_recent) {
            return ConditionReading::Stale;
        }
        let all = self.parts.iter().fold(present, |all, part| all.with(*part));
        if all.weight == 0.0 {
            return ConditionReading::Stale;
        }
        let value = match self.summary {
            WindowSummary::Mean => (all.sum / all.weight).clamp(all.least, all.greatest),
            WindowSummary::Least => all.least,
            WindowSummary::Greatest => all.greatest,
            WindowSummary::Spread => all.greatest - all.least,
        };
        if value.is_finite() { ConditionReading::Fresh(value) } else { ConditionReading::Stale }
    }

    /// The sum of the window's values for each second, at least 0. It is stale until a whole window has passed since the
    /// first call, and always without a window.
    pub fn per_second(&mut self, now: Instant) -> ConditionReading {
        let began = *self.began.get_or_insert(now);
        let Some(part) = self.part else { return ConditionReading::Stale };
        self.advance(self.number(now));
        if now.since(began) < Span::from_nanos(part.as_nanos().saturating_mul(PARTS as u64 + 1)) {
            return ConditionReading::Stale;
        }
        let oldest = (self.newest - PARTS as u64).saturating_mul(part.as_nanos());
        let sum: f64 = self.parts.iter().map(|part| part.sum).sum();
        ConditionReading::Fresh((sum / now.since(Instant::from_nanos(oldest)).as_secs_f64()).max(0.0))
    }

    fn number(&self, at: Instant) -> u64 {
        self.part.map_or(0, |part| at.as_nanos() / part.as_nanos())
    }

    /// Empties the parts that leave the window.
    fn advance(&mut self, number: u64) {
        let parts = self.parts.len() as u64;
        for passed in (self.newest + 1..=number).rev().take(self.parts.len()) {
            self.parts[(passed % parts) as usize] = SampleSum::EMPTY;
        }
        self.newest = self.newest.max(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const MS: fn(u64) -> Span = Span::from_millis;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + MS(millis)
    }

    fn sample(millis: u64, value: f64, weight: f64) -> WindowSample {
        WindowSample { at: at(millis), value, weight }
    }

    #[test]
    fn without_a_window_the_latest_sample_counts() {
        let mut watch = ConditionWindow::new(WindowSummary::Mean, None, Some(MS(10)));
        assert_eq!(watch.reading(at(0)), ConditionReading::Stale);
        assert!(watch.add(sample(5, 1.0, 1.0)) && watch.add(sample(6, 2.0, 9.0)));
        // It arrived late.
        assert!(!watch.add(sample(4, 7.0, 1.0)));
        assert_eq!([16, 17].map(|now| watch.reading(at(now))), [ConditionReading::Fresh(2.0), ConditionReading::Stale]);
    }

    #[test]
    fn an_empty_window_is_stale() {
        let mut watch = ConditionWindow::new(WindowSummary::Greatest, Some(MS(320)), None);
        watch.add(sample(0, 3.0, 1.0));
        assert_eq!(watch.reading(at(320)), ConditionReading::Fresh(3.0));
        assert_eq!(watch.reading(at(331)), ConditionReading::Stale);
        assert_eq!(watch.reading(Instant::from_nanos(u64::MAX)), ConditionReading::Stale);
    }

    #[test]
    fn a_sum_counts_the_time_that_the_window_covers() {
        let mut watch = ConditionWindow::new(WindowSummary::Mean, Some(MS(320)), None);
        assert_eq!(watch.per_second(at(0)), ConditionReading::Stale);
        for millis in (0..400).step_by(10) {
            watch.add(sample(millis, 0.004, 1.0));
        }
        // From 70 ms on: 33 samples in 330 ms.
        let ConditionReading::Fresh(value) = watch.per_second(at(400)) else { panic!("the window has passed") };
        assert!((value - 0.4).abs() < 0.02, "{value}");
        // What was expected proves to be less.
        watch.add(sample(401, -1.0, 1.0));
        assert_eq!(watch.per_second(at(401)), ConditionReading::Fresh(0.0));
        watch.clear();
        assert_eq!(watch.per_second(at(402)), ConditionReading::Stale);
        let mut none = ConditionWindow::new(WindowSummary::Mean, None, None);
        assert_eq!([0, 900].map(|now| none.per_second(at(now))), [ConditionReading::Stale; 2]);
    }

    #[test]
    fn invalid_samples_do_not_count() {
        let mut watch = ConditionWindow::new(WindowSummary::Mean, Some(MS(100)), None);
        for (value, weight) in
            [(f64::NAN, 1.0), (f64::INFINITY, 1.0), (1.0, 0.0), (1.0, -1.0), (1.0, f64::NAN), (1e308, 1e9)]
        {
            assert!(!watch.add(sample(1, value, weight)), "{value} {weight}");
        }
        assert_eq!(watch.reading(at(1)), ConditionReading::Stale);
    }

    proptest! {
        #[test]
        fn the_window_contains_the_last_samples_and_little_more(
            mut samples in prop::collection::vec((0..2_000u64, -5..5i32, 1..4u32), 1..40),
            later in 0..500u64, over in 1..600u64,
        ) {
            samples.sort_by_key(|one| one.0);
            let now = samples.last().unwrap().0 + later;
            let within = |span: u64| -> Vec<_> { samples.iter().filter(|one| one.0 + span >= now).collect() };
            // Each part is rounded up to whole nanoseconds.
            let (sure, most) = (within(over), within(over + over / 32 + 1));
            for summary in WindowSummary::ALL {
                let mut watch = ConditionWindow::new(summary, Some(MS(over)), None);
                for (millis, value, weight) in &samples {
                    watch.add(sample(*millis, f64::from(*value), f64::from(*weight)));
                }
                let value = |of: &[&(u64, i32, u32)]| {
                    let values = of.iter().map(|one| f64::from(one.1));
                    let weight: f64 = of.iter().map(|one| f64::from(one.2)).sum();
                    match summary {
                        WindowSummary::Mean => of.iter().map(|one| f64::from(one.1) * f64::from(one.2)).sum::<f64>() / weight,
                        WindowSummary::Least => values.fold(f64::INFINITY, f64::min),
                        WindowSummary::Greatest => values.fold(f64::NEG_INFINITY, f64::max),
                        WindowSummary::Spread => {
                            let least = values.clone().fold(f64::INFINITY, f64::min);
                            values.fold(f64::NEG_INFINITY, f64::max) - least
                        }
                    }
                };
                match watch.reading(at(now)) {
                    ConditionReading::Stale => prop_assert!(sure.is_empty()),
                    ConditionReading::Fresh(found) => {
                        let all = most.iter().map(|one| f64::from(one.1));
                        let least = all.clone().fold(f64::INFINITY, f64::min);
                        let greatest = all.fold(f64::NEG_INFINITY, f64::max);
                        let spread = summary == WindowSummary::Spread;
                        let (low, high) = if spread { (0.0, greatest - least) } else { (least, greatest) };
                        prop_assert!(low <= found && found <= high);
                        if sure.len() == most.len() {
                            prop_assert!((found - value(&sure)).abs() < 1e-9);
                        }
                    }
                }
            }
        }
    }
}
