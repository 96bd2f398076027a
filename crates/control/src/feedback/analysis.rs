//! Stability, settling time and limits of a loop, before it runs.
//!
//! The analysis is that of Lu, Stankovic, Tao and Son (Real-Time Systems 23, 2002): the processor as a linear plant.
//! With the gain `g`, the ratio of actual to estimated execution time, the actual utilisation is `g B`. Two things of
//! the real plant are added: a utilisation is at most 1, and there are no misses up to a bound.

use hyoshi_model::FeedbackAlgorithm;

use super::law::{FeedbackLaw, FeedbackSample, RateLimit};
use super::settings::{ControllerGains, FeedbackSettings, FeedbackSettingsError, number};

/// The model of a processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlantModel {
    /// g, the ratio of actual to estimated execution time.
    pub gain: f64,
    /// The utilisation at which misses begin.
    pub bound: f64,
    /// The increase of the miss ratio for each unit of demand above the bound: the paper's GM.
    pub slope: f64,
}

impl PlantModel {
    /// The sample of a period with this total estimated utilisation. The model has no latency: it is 0.
    pub fn measure(&self, total: f64) -> FeedbackSample {
        let demand = (self.gain * total).max(0.0);
        let misses = self.slope * (demand - self.bound);
        let (utilisation, miss_ratio) = (Some(demand.min(1.0)), Some(misses.clamp(0.0, 1.0)));
        FeedbackSample { utilisation, miss_ratio, latency: Some(0.0) }
    }
}

/// A loop before it runs: its settings and its tasks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoopModel {
    /// Its settings.
    pub settings: FeedbackSettings,
    /// The totals at which all tasks are at their lowest and at their highest rates.
    pub range: [f64; 2],
    /// B(0), the total at the start.
    pub start: f64,
    /// The utilisation up to which analysis excludes misses: `n (2^(1/n) - 1)` for `n` rate monotonic tasks, 1 for
    /// EDF (Liu and Layland 1973).
    pub bound: f64,
    /// GM, the slope of the miss ratio above the bound.
    pub slope: f64,
}

impl LoopModel {
    /// The pole of the utilisation loop, `1 - g Ku`: the factor of the error from one sample to the next. It is
    /// negative if the utilisation overshoots.
    pub fn pole(gains: ControllerGains, gain: f64) -> f64 {
        1.0 - gain * gains.utilisation
    }

    /// The loop is stable for every gain from 0 up to this one, both excluded: `2 / Ku` for the utilisation,
    /// `2 / (Km GM)` for the miss ratio, the smaller for both.
    ///
    /// Proof: let `x = g B` be the demand, `x*` where the step is 0, and `L` the slope of the steeper controller. The
    /// step falls with the demand, so `step(x) = -l (x - x*)` with some `l` above 0 that is at most `L`. A sample maps
    /// `x - x*` to `(1 - g l) (x - x*)`, which is smaller if `g L < 2`. The minimum of two controllers falls at most as
    /// steeply as the steeper one, so this includes FC-UM, and the saturation of `U` at 1 and of `M` at 0.
    /// FC-UM-fast can pass `x*` once, by a step of FC-U; tests show that it rests at `x*`.
    ///
    /// For FC-UL this is the range of its controller of the utilisation. See [`latency_band`](Self::latency_band).
    pub fn stable_below(&self) -> f64 {
        2.0 / self.steepest()
    }

    /// Up to this gain, included, the utilisation does not overshoot: half of [`stable_below`](Self::stable_below).
    pub fn smooth_up_to(&self) -> f64 {
        1.0 / self.steepest()
    }

    /// `Kl`, the greatest distance from `B*`: the total at which the latency passes its set point. `None` if the
    /// latency is not controlled.
    ///
    /// The latency may be unknown, but must not fall if the total rises. Once the total has been below `B*`, it never
    /// exceeds `B*` by more than `Kl`. The controller of the latency never lowers it to more than `Kl` below `B*`.
    ///
    /// Proof: below `B*` the latency's step is between 0 and `Kl`, above it between `-Kl` and 0. The smaller step of
    /// both controllers is at most the latency's.
    pub fn latency_band(&self) -> Option<f64> {
        self.settings.algorithm.uses_latency().then_some(self.settings.gains.latency)
    }

    fn steepest(&self) -> f64 {
        let FeedbackSettings { algorithm, gains, .. } = self.settings;
        let by_utilisation = if algorithm.uses_utilisation() { gains.utilisation } else { 0.0 };
        let by_misses = if algorithm.uses_miss_ratio() { gains.miss_ratio * self.slope } else { 0.0 };
        by_utilisation.max(by_misses)
    }

    /// True if analysis excludes misses at the set point, because the utilisation is within the bound. FC-M always has
    /// misses.
    pub fn excludes_misses(&self) -> bool {
        self.settings.algorithm.uses_utilisation() && number(self.settings.utilisation) <= self.bound
    }

    /// The utilisation at which the law comes to rest if rates have no limits. For FC-M it is where the miss ratio is
    /// `Ms`; the utilisation is at most 1. For FC-UL it is an upper limit: the latency may hold it below.
    pub fn target(&self) -> f64 {
        let FeedbackSettings { algorithm, utilisation, miss_ratio, .. } = self.settings;
        let by_misses = self.bound + number(miss_ratio) / self.slope;
        match algorithm {
            FeedbackAlgorithm::FcU | FeedbackAlgorithm::FcUl | FeedbackAlgorithm::Eucon | FeedbackAlgorithm::Deucon => {
                number(utilisation)
            }
            FeedbackAlgorithm::FcM => by_misses.min(1.0),
            FeedbackAlgorithm::FcUm | FeedbackAlgorithm::FcUmFast => by_misses.min(number(utilisation)),
        }
    }

    /// The limit of the rates that keeps the loop from its target at this gain. At the lowest rates the utilisation
    /// is still above it: the processor is overloaded. At the highest it is still below.
    pub fn unreachable(&self, gain: f64) -> Option<RateLimit> {
        if gain * self.range[0] > self.target() {
            Some(RateLimit::Lowest)
        } else if gain * self.range[1] < self.target() {
            Some(RateLimit::Highest)
        } else {
            None
        }
    }

    /// The settling time at this gain in samples: the number of the first sample with a utilisation within 1 % of the
    /// final one, which is the paper's `0.99 Us`. Sample 1 is that of the start rates. `None` if there is no such
    /// sample among the first [`LONGEST_SETTLING`](Self::LONGEST_SETTLING).
    ///
    /// The law runs on the model, so limits, and the slow rise of FC-M and FC-UM (`Km Ms` per sample), count. For FC-UL
    /// it is a lower limit, for a latency far below its set point.
    pub fn settling(&self, gain: f64) -> Result<Option<u32>, FeedbackSettingsError> {
        let plant = PlantModel { gain, bound: self.bound, slope: self.slope };
        let mut law = FeedbackLaw::new(self.settings, self.start)?;
        let last = self.target().min(gain * self.range[1]).max(gain * self.range[0]).min(1.0);
        for number in 1..=Self::LONGEST_SETTLING {
            let sample = plant.measure(law.total());
            if sample.utilisation.is_some_and(|value| value >= 0.99 * last && value <= 1.01 * last) {
                return Ok(Some(number));
            }
            law.step(sample, self.range);
        }
        Ok(None)
    }

    /// The most samples that [`settling`](Self::settling) tries.
    pub const LONGEST_SETTLING: u32 = 100_000;

    /// The safety margin (FCS/nORB, section 4.4): the greatest factor by which all execution times can grow at once
    /// while the utilisation stays within 1. A greater step overloads the processor until the loop has reacted.
    pub fn largest_step(&self) -> f64 {
        1.0 / self.target()
    }

    /// True if the loop can fill the processor at this gain, so that other work starves without a cap. FC-M does it
    /// unless its highest rates prevent it, because it has no set point for the utilisation.
    pub fn may_starve(&self, gain: f64) -> bool {
        !self.settings.algorithm.uses_utilisation() && gain * self.range[1] >= 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyoshi_model::Share;

    /// The paper's workload with the middle of each range of least rates: B(0) = 0.132, at most 3.0.
    fn paper(algorithm: FeedbackAlgorithm) -> LoopModel {
        let utilisation = Share::from_percent(if algorithm == FeedbackAlgorithm::FcU { 70 } else { 75 });
        let gains = ControllerGains::placed(2.0, 0.447).unwrap();
        let miss_ratio = Share::from_millionths(15_000);
        let start = 6.0 * 0.0084 * 1.6 + 2.0 * 0.0012 * 1.6 + 4.0 * 0.007 * 1.7;
        let most = 6.0 * 0.0084 * 35.0 + 2.0 * 0.0012 * 50.0 + 4.0 * 0.007 * 40.0;
        let settings = FeedbackSettings { algorithm, utilisation, miss_ratio, gains, unlimited: false };
        LoopModel { settings, range: [start, most], start, bound: 0.95, slope: 0.447 }
    }

    fn settling(model: LoopModel, gain: f64) -> u32 {
        model.settling(gain).unwrap().unwrap()
    }

    #[test]
    fn fc_u_settles_as_in_the_paper() {
        assert_eq!(settling(paper(FeedbackAlgorithm::FcU), 2.0), 10);
        assert_eq!(settling(paper(FeedbackAlgorithm::FcU), 2.65), 7);
        // A faster platform settles later (claim F5).
        assert!(settling(paper(FeedbackAlgorithm::FcU), 1.3) > 10);
    }

    #[test]
    fn at_the_fifth_sample_fc_u_has_the_utilisation_that_was_read_from_figure_5() {
        let model = paper(FeedbackAlgorithm::FcU);
        let fifth = |gain| {
            let mut law = FeedbackLaw::new(model.settings, model.start).unwrap();
            let plant = PlantModel { gain, bound: 1.0, slope: 0.447 };
            for _ in 1..5 {
                law.step(plant.measure(law.total()), model.range);
            }
            plant.measure(law.total()).utilisation.unwrap()
        };
        assert!((0.62..0.66).contains(&fifth(2.0)), "{}", fifth(2.0));
        assert!((0.67..0.69).contains(&fifth(2.65)), "{}", fifth(2.65));
    }

    #[test]
    fn fc_m_and_fc_um_settle_much_later_for_they_rise_by_one_small_step() {
        use FeedbackAlgorithm::*;
        let (um, m) = (settling(paper(FcUm), 2.0), settling(paper(FcM), 2.0));
        assert_eq!(um, 41);
        assert!(m > um, "{m}");
        // From 0.264, each sample adds 2 Km Ms = 0.0124 until the utilisation's controller has the smaller step.
        let rise = (0.7164 - 0.264) / (2.0 * 0.41387 * 0.015);
        assert!((f64::from(um) - rise - 1.0) < 5.0 && f64::from(um) > rise);
        // In overload misses speed it up (claim F8).
        let overload = LoopModel { start: 0.5, ..paper(FcUm) };
        assert!(settling(overload, 2.0) < 10, "{}", settling(overload, 2.0));
    }

    #[test]
    fn the_fast_form_rises_within_one_and_a_half_times_fc_us_samples() {
        for gain in [0.5, 1.0, 1.3, 2.0, 2.65, 4.0] {
            let fast = settling(paper(FeedbackAlgorithm::FcUmFast), gain);
            let fc_u = settling(paper(FeedbackAlgorithm::FcU), gain);
            assert!(f64::from(fast) <= 1.5 * f64::from(fc_u), "{gain}: {fast} samples, FC-U {fc_u}");
        }
    }

    #[test]
    fn the_stable_range_follows_from_the_gains() {
        let model = paper(FeedbackAlgorithm::FcUm);
        assert!((model.stable_below() - 10.81).abs() < 0.01, "{}", model.stable_below());
        assert!((model.smooth_up_to() - 5.405).abs() < 0.005);
        assert!((LoopModel::pole(model.settings.gains, 2.0) - 0.63).abs() < 1e-12);
        // A steeper miss ratio than GM narrows the range of the laws that use it.
        let steep = |algorithm| LoopModel { slope: 0.894, ..paper(algorithm) }.stable_below();
        assert!((steep(FeedbackAlgorithm::FcM) - 5.405).abs() < 0.005);
        assert!((steep(FeedbackAlgorithm::FcUm) - 5.405).abs() < 0.005);
        assert!((steep(FeedbackAlgorithm::FcU) - 10.81).abs() < 0.01);
    }

    #[test]
    fn limits_of_the_rates_that_prevent_the_set_point_are_named() {
        let model = paper(FeedbackAlgorithm::FcU);
        assert_eq!(model.unreachable(2.0), None);
        assert_eq!(model.unreachable(6.0), Some(RateLimit::Lowest));
        assert_eq!(model.unreachable(0.2), Some(RateLimit::Highest));
        // It settles at the limit.
        assert_eq!(settling(model, 6.0), 1);
        assert!(model.settling(0.2).unwrap().is_some());
    }

    #[test]
    fn a_set_point_leaves_room_for_a_step_up_to_its_inverse() {
        assert!((paper(FeedbackAlgorithm::FcU).largest_step() - 1.0 / 0.7).abs() < 1e-12);
        let step = paper(FeedbackAlgorithm::FcM).largest_step();
        assert!((1.0..1.03).contains(&step), "{step}");
        use FeedbackAlgorithm::*;
        assert_eq!(
            [FcU, FcM, FcUm, FcUmFast].map(|algorithm| paper(algorithm).may_starve(2.0)),
            [false, true, false, false]
        );
        assert!(!paper(FcM).may_starve(0.2));
    }

    #[test]
    fn misses_are_excluded_up_to_the_bound() {
        use FeedbackAlgorithm::*;
        let with = |algorithm, bound| LoopModel { bound, ..paper(algorithm) }.excludes_misses();
        // 12 (2^(1/12) - 1) = 0.7136.
        assert_eq!([FcU, FcM, FcUm].map(|algorithm| with(algorithm, 0.7136)), [true, false, false]);
        assert_eq!([FcU, FcM, FcUm].map(|algorithm| with(algorithm, 1.0)), [true, false, true]);
    }
}
