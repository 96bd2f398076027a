//! FC-U, FC-M, FC-UM and FC-UL: from the measured utilisation, miss ratio and latency to the total estimated
//! utilisation of the next sampling period.
//!
//! After Lu, Wang and Gill, "Feedback Control Real-Time Scheduling in ORB Middleware" (FCS/nORB), RTAS 2003, section
//! 2.2. Their gains are those of Lu, Stankovic, Tao and Son, "Feedback Control Real-Time Scheduling: Framework,
//! Modeling, and Algorithms", Real-Time Systems 23, 2002.
//!
//! The laws use `f64`, and of its operations only `+`, `-`, `*`, `/` and comparisons: IEEE 754 defines their results
//! to the bit, so the same samples yield the same rates on every machine.

use core::fmt;

use hyoshi_model::{FeedbackAlgorithm, Share};

use super::settings::{FeedbackSettings, FeedbackSettingsError, number};

/// What the monitors measured in one sampling period. `None`: the monitor has no value, or the algorithm needs none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FeedbackSample {
    /// U, the busy part of the processor's time, 0 to 1. If clocks read at different instants yield slightly more than
    /// 1, the monitor reports 1: the law rejects more.
    pub utilisation: Option<f64>,
    /// M, the part of the completed jobs that missed their deadlines, 0 to 1.
    pub miss_ratio: Option<f64>,
    /// L / Ls, the measured latency as a part of its set point, from 0.
    pub latency: Option<f64>,
}

impl FeedbackSample {
    /// The miss ratio of this many completed jobs: 0 if none completed.
    pub fn miss_ratio(completed: u64, missed: u64) -> f64 {
        if completed == 0 && missed == 0 { 0.0 } else { missed as f64 / completed as f64 }
    }

    /// The values that lower rates; the others count as not measured.
    pub fn lowering(self, settings: &FeedbackSettings) -> FeedbackSample {
        let above = |value: Option<f64>, set: f64| value.filter(|value| *value > set);
        FeedbackSample {
            utilisation: above(self.utilisation, number(settings.utilisation)),
            miss_ratio: above(self.miss_ratio, number(settings.miss_ratio)),
            latency: above(self.latency, 1.0),
        }
    }
}

/// A measured variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasuredVariable {
    /// U.
    Utilisation,
    /// M.
    MissRatio,
    /// L, as a part of its set point.
    Latency,
}

impl MeasuredVariable {
    /// Whether it can have this value.
    fn contains(self, value: f64) -> bool {
        match self {
            MeasuredVariable::Utilisation | MeasuredVariable::MissRatio => (0.0..=1.0).contains(&value),
            MeasuredVariable::Latency => (0.0..=f64::MAX).contains(&value),
        }
    }
}

/// A value that a monitor did not provide, or one that the variable cannot have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MonitorFault {
    /// The variable.
    pub variable: MeasuredVariable,
    /// The rejected value; `None` if there was none.
    pub value: Option<f64>,
}

impl fmt::Display for MonitorFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (variable, range) = match self.variable {
            MeasuredVariable::Utilisation => ("utilisation", "within 0 to 1"),
            MeasuredVariable::MissRatio => ("miss ratio", "within 0 to 1"),
            MeasuredVariable::Latency => ("latency", "a finite number from 0"),
        };
        match self.value {
            Some(value) => write!(f, "the measured {variable} is {value}, not {range}: rates do not rise"),
            None => write!(f, "the {variable} was not measured: rates do not rise"),
        }
    }
}

/// Both ends of the range of rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateLimit {
    /// All tasks run at their lowest rates.
    Lowest,
    /// All tasks run at their highest rates.
    Highest,
}

/// One decision of a law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LawStep {
    /// B(k+1), the total estimated utilisation of the next period: 1 is one CPU.
    pub total: f64,
    /// The end of the range that `total` has reached.
    pub limit: Option<RateLimit>,
    /// The first variable that the law needed and did not get.
    pub fault: Option<MonitorFault>,
}

/// One of the algorithms with its state: `B`, and FC-UM-fast's free utilisation.
///
/// It has no clock: the caller invokes [`step`](FeedbackLaw::step) at the end of each sampling period.
///
/// A variable that is missing or invalid counts as one that is exactly at its set point. So `B` stays, unless the other
/// variable of FC-UM or FC-UL lowers it: a stalled monitor never raises a rate, and never stops a reduction.
#[derive(Clone, Debug)]
pub struct FeedbackLaw {
    settings: FeedbackSettings,
    total: f64,
    free: f64,
}

impl FeedbackLaw {
    /// A law that begins with this total estimated utilisation, B(0).
    pub fn new(settings: FeedbackSettings, total: f64) -> Result<FeedbackLaw, FeedbackSettingsError> {
        settings.check()?;
        Ok(FeedbackLaw { settings, total, free: number(settings.utilisation) })
    }

    /// Its settings.
    pub fn settings(&self) -> &FeedbackSettings {
        &self.settings
    }

    /// B, the present total estimated utilisation.
    pub fn total(&self) -> f64 {
        self.total
    }

    /// Sets the set point of the utilisation. A higher one ends the memory of misses below it, as at the start.
    pub(super) fn set_utilisation(&mut self, to: Share) {
        if to > self.settings.utilisation {
            self.free = self.free.max(number(to));
        }
        self.settings.utilisation = to;
    }

    pub(super) fn set_miss_ratio(&mut self, to: Share) {
        self.settings.miss_ratio = to;
    }

    /// Continues from another total, because tasks have changed.
    pub(super) fn restart(&mut self, total: f64) {
        self.total = total;
    }

    /// The next total, from the variables of the period that ends now. `range` has the totals at which all rates are at
    /// their lowest and at their highest.
    pub fn step(&mut self, sample: FeedbackSample, range: [f64; 2]) -> LawStep {
        let FeedbackSettings { algorithm, gains, unlimited, .. } = self.settings;
        let mut fault = None;
        let mut valid = |variable: MeasuredVariable, value: Option<f64>| {
            let valid = value.filter(|value| variable.contains(*value));
            if valid.is_none() {
                fault.get_or_insert(MonitorFault { variable, value });
            }
            valid
        };
        let (us, ms) = (number(self.settings.utilisation), number(self.settings.miss_ratio));
        let (mut by_utilisation, mut by_misses, mut by_latency) = (f64::INFINITY, f64::INFINITY, f64::INFINITY);
        let mut utilisation = None;
        if algorithm.uses_utilisation() {
            utilisation = valid(MeasuredVariable::Utilisation, sample.utilisation);
            by_utilisation = utilisation.map_or(0.0, |value| gains.utilisation * (us - value));
        }
        if algorithm.uses_miss_ratio() {
            let misses = valid(MeasuredVariable::MissRatio, sample.miss_ratio);
            by_misses = misses.map_or(0.0, |value| gains.miss_ratio * (ms - value));
            if let (FeedbackAlgorithm::FcUmFast, Some(utilisation), Some(misses)) = (algorithm, utilisation, misses) {
                if misses == 0.0 {
                    self.free = self.free.max(utilisation);
                    by_misses = by_misses.max(gains.utilisation * (self.free - utilisation));
                } else {
                    self.free = self.free.min(utilisation);
                }
            }
        }
        if algorithm.uses_latency() {
            let latency = valid(MeasuredVariable::Latency, sample.latency);
            by_latency = latency.map_or(0.0, |value| gains.latency * (1.0 - value).max(-1.0));
        }
        let next = self.total + by_utilisation.min(by_misses).min(by_latency);
        self.total = if unlimited { next } else { next.min(range[1]).max(range[0]) };
        let limit = if self.total <= range[0] {
            Some(RateLimit::Lowest)
        } else if self.total >= range[1] {
            Some(RateLimit::Highest)
        } else {
            None
        };
        LawStep { total: self.total, limit, fault }
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::ControllerGains;
    use super::*;
    use hyoshi_model::ALGORITHMS;
    use proptest::prelude::*;
    use std::vec::Vec;

    const ANY: [f64; 2] = [0.0, 10.0];

    fn settings(algorithm: FeedbackAlgorithm) -> FeedbackSettings {
        let gains = ControllerGains::placed(2.0, 0.447).unwrap();
        let (utilisation, miss_ratio) = (Share::from_percent(75), Share::from_millionths(15_000));
        FeedbackSettings { algorithm, utilisation, miss_ratio, gains, unlimited: false }
    }

    fn law(algorithm: FeedbackAlgorithm, total: f64) -> FeedbackLaw {
        FeedbackLaw::new(settings(algorithm), total).unwrap()
    }

    fn sample(utilisation: f64, miss_ratio: f64) -> FeedbackSample {
        FeedbackSample { utilisation: Some(utilisation), miss_ratio: Some(miss_ratio), latency: Some(0.0) }
    }

    /// The step after one sample.
    fn step(algorithm: FeedbackAlgorithm, utilisation: f64, miss_ratio: f64) -> f64 {
        law(algorithm, 0.5).step(sample(utilisation, miss_ratio), ANY).total - 0.5
    }

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-12, "{found} instead of {expected}");
    }

    #[test]
    fn each_law_is_its_formula() {
        use FeedbackAlgorithm::*;
        let (ku, km) = (0.185, 0.185 / 0.447);
        near(step(FcU, 0.6, 0.3), ku * 0.15);
        near(step(FcM, 0.2, 0.0), km * 0.015);
        near(step(FcM, 0.2, 0.115), km * -0.1);
        near(step(FcUm, 0.2, 0.0), km * 0.015);
        near(step(FcUm, 0.74, 0.0), ku * 0.01);
        near(step(FcUm, 0.9, 0.0), ku * -0.15);
        near(step(FcUm, 0.9, 0.5), km * -0.485);
    }

    #[test]
    fn the_fast_form_rises_as_fc_u_until_it_has_seen_a_miss() {
        use FeedbackAlgorithm::*;
        let (ku, km) = (0.185, 0.185 / 0.447);
        near(step(FcUmFast, 0.2, 0.0), ku * 0.55);
        near(step(FcUmFast, 0.9, 0.5), km * -0.485);
        let mut law = law(FcUmFast, 0.5);
        let mut step = |utilisation, misses| {
            let before = law.total();
            law.step(sample(utilisation, misses), ANY).total - before
        };
        // Misses at 0.65, few enough to go on: from now on the rise is fast only to there.
        near(step(0.65, 0.01), km * 0.005);
        near(step(0.45, 0.0), ku * 0.2);
        near(step(0.649, 0.0), km * 0.015);
        // No misses at 0.7: the memory follows.
        near(step(0.7, 0.0), km * 0.015);
        near(step(0.5, 0.0), ku * 0.2);
    }

    #[test]
    fn a_stalled_or_insane_monitor_holds_the_total_and_is_reported() {
        let faulty = [None, Some(f64::NAN), Some(f64::INFINITY), Some(-0.1), Some(1.01), Some(f64::NEG_INFINITY)];
        for (algorithm, ..) in ALGORITHMS {
            for value in faulty {
                let mut law = law(algorithm, 0.5);
                let step = law.step(FeedbackSample { utilisation: value, miss_ratio: value, latency: Some(0.0) }, ANY);
                assert_eq!((step.total, law.total()), (0.5, 0.5));
                let fault = step.fault.unwrap();
                let variable = match algorithm.uses_utilisation() {
                    true => MeasuredVariable::Utilisation,
                    false => MeasuredVariable::MissRatio,
                };
                assert_eq!((fault.variable, fault.value.map(f64::to_bits)), (variable, value.map(f64::to_bits)));
            }
        }
    }

    #[test]
    fn with_one_monitor_stalled_the_other_can_only_lower() {
        use FeedbackAlgorithm::*;
        for algorithm in [FcUm, FcUmFast] {
            let no_misses = |value| FeedbackSample { utilisation: Some(value), ..FeedbackSample::default() };
            assert_eq!(law(algorithm, 0.5).step(no_misses(0.2), ANY).total, 0.5);
            near(law(algorithm, 0.5).step(no_misses(0.95), ANY).total, 0.5 - 0.185 * 0.2);
            let only_misses = |value| FeedbackSample { miss_ratio: Some(value), ..FeedbackSample::default() };
            assert_eq!(law(algorithm, 0.5).step(only_misses(0.0), ANY).total, 0.5);
            assert!(law(algorithm, 0.5).step(only_misses(0.5), ANY).total < 0.5);
        }
        // A variable that the law does not use may be missing.
        let step = law(FcU, 0.5).step(FeedbackSample { utilisation: Some(0.6), ..FeedbackSample::default() }, ANY);
        assert_eq!(step.fault, None);
    }

    #[test]
    fn fc_ul_has_the_smaller_step_and_limits_the_error_of_the_latency() {
        let (ku, kl) = (0.185, 0.185 / 4.0);
        let step = |utilisation, latency| {
            let sample = FeedbackSample { utilisation, latency, ..FeedbackSample::default() };
            let step = law(FeedbackAlgorithm::FcUl, 0.5).step(sample, ANY);
            (step.total - 0.5, step.fault.map(|fault| fault.variable))
        };
        for (utilisation, latency, expected) in [
            (0.2, 0.0, kl),
            (0.2, 0.5, kl * 0.5),
            (0.2, 1.0, 0.0),
            (0.2, 1.5, kl * -0.5),
            (0.2, 1e300, -kl),
            (0.74, 0.5, ku * 0.01),
            (0.95, 0.5, ku * -0.2),
        ] {
            let (found, fault) = step(Some(utilisation), Some(latency));
            near(found, expected);
            assert_eq!(fault, None);
        }
        // No job ended, or the value is invalid: the utilisation can only lower the total.
        for latency in [None, Some(f64::NAN), Some(-0.1), Some(f64::INFINITY)] {
            assert_eq!(step(Some(0.2), latency), (0.0, Some(MeasuredVariable::Latency)));
            near(step(Some(0.95), latency).0, ku * -0.2);
        }
        near(step(None, Some(2.0)).0, -kl);
        assert_eq!(step(None, Some(0.1)), (0.0, Some(MeasuredVariable::Utilisation)));
    }

    #[test]
    fn at_a_limit_the_total_stops_and_returns_at_once() {
        let range = [0.1, 0.3];
        for (unlimited, returned) in [(false, true), (true, false)] {
            let settings = FeedbackSettings { unlimited, ..settings(FeedbackAlgorithm::FcU) };
            let mut law = FeedbackLaw::new(settings, 0.25).unwrap();
            let steps: Vec<LawStep> = (0..20).map(|_| law.step(sample(0.4, 0.0), range)).collect();
            assert_eq!(steps.last().unwrap().limit, Some(RateLimit::Highest));
            assert_eq!(steps.last().unwrap().total <= range[1], !unlimited);
            let back = law.step(sample(0.9, 0.0), range);
            assert_eq!(back.total < range[1] && back.limit.is_none(), returned);
        }
        let mut law = law(FeedbackAlgorithm::FcU, 0.1);
        assert_eq!(law.step(sample(1.0, 0.0), range).limit, Some(RateLimit::Lowest));
        assert_eq!(law.total(), 0.1);
    }

    proptest! {
        #[test]
        fn a_law_with_changed_set_points_acts_as_one_that_began_with_them(
            algorithm in 0..ALGORITHMS.len(), before in (1..=1_000_000u64, 1..=1_000_000u64),
            after in (1..=1_000_000u64, 1..=1_000_000u64), utilisation in 0.0..1.0, misses in prop_oneof![Just(0.0), 0.0..1.0],
            latency in 0.0..3.0, total in 0.0..2.0,
        ) {
            let settings = |(utilisation, misses)| FeedbackSettings {
                utilisation: Share::from_millionths(utilisation),
                miss_ratio: Share::from_millionths(misses),
                ..settings(ALGORITHMS[algorithm].0)
            };
            let mut changed = FeedbackLaw::new(settings(before), total).unwrap();
            changed.set_utilisation(Share::from_millionths(after.0));
            changed.set_miss_ratio(Share::from_millionths(after.1));
            let mut fresh = FeedbackLaw::new(settings(after), total).unwrap();
            let sample =
                FeedbackSample { utilisation: Some(utilisation), miss_ratio: Some(misses), latency: Some(latency) };
            prop_assert_eq!(changed.step(sample, ANY), fresh.step(sample, ANY));
        }
    }

    #[test]
    fn a_period_without_completions_has_no_misses() {
        assert_eq!(FeedbackSample::miss_ratio(0, 0), 0.0);
        assert_eq!(FeedbackSample::miss_ratio(200, 3), 0.015);
        // More misses than completions cannot be: the law rejects them.
        assert!(!(0.0..=1.0).contains(&FeedbackSample::miss_ratio(0, 3)));
    }
}
