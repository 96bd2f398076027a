//! What a loop holds, and how: the algorithm, its set points and its gains.

use core::fmt;

use hyoshi_model::{DesignGains, FeedbackAlgorithm, FeedbackLoop, Share};

/// The gains of the controllers: estimated utilisation added for each unit of error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControllerGains {
    /// Ku.
    pub utilisation: f64,
    /// Km.
    pub miss_ratio: f64,
    /// Kl.
    pub latency: f64,
}

impl ControllerGains {
    /// The closed loop's pole of the paper: an error shrinks to 63 % in each sampling period.
    pub const POLE: f64 = 0.63;

    /// Pole placement: `Ku = (1 - p) / GA` and `Km = (1 - p) / (GA GM)`, with `p` = [`POLE`](Self::POLE).
    ///
    /// `ga` is the greatest expected ratio of actual to estimated execution time. `gm` is the slope of the miss ratio
    /// over the actual utilisation where misses begin. Both are above 0.
    ///
    /// Derivation (Lu, Stankovic, Tao and Son 2002): with the actual ratio `g`, a step of the estimated utilisation
    /// moves the actual one by `g` times as much, so `U(k+1) = U(k) + g Ku (Us - U(k))`. The error then shrinks by
    /// `1 - g Ku` in each period, which is `p` if `g = GA`. Where jobs miss deadlines `M` moves by `GM` times as much
    /// again. With a smaller `g` the pole is above `p`: slower, and still without overshoot. The paper's `GA = 2` and
    /// `GM = 0.447` give 0.185 and 0.414.
    pub fn placed(ga: f64, gm: f64) -> Result<ControllerGains, FeedbackSettingsError> {
        ControllerGains::of(DesignGains { ga, gm, ..DesignGains::default() })
    }

    /// The same with `Kl = (1 - p) / (GA GL)`. `GL` is the rise of the latency, as a part of its set point, for each
    /// unit of utilisation. It is not known in advance: the designer estimates it near the set point.
    pub fn of(DesignGains { ga, gm, gl }: DesignGains) -> Result<ControllerGains, FeedbackSettingsError> {
        let placed = |name, gain: f64, of: f64| {
            let placed = of / gain;
            let is_usable = placed.is_finite() && placed > 0.0;
            if is_usable { Ok(placed) } else { Err(FeedbackSettingsError::Gain { name, value: gain }) }
        };
        let utilisation = placed("ga", ga, 1.0 - Self::POLE)?;
        let (miss_ratio, latency) = (placed("gm", gm, utilisation)?, placed("gl", gl, utilisation)?);
        Ok(ControllerGains { utilisation, miss_ratio, latency })
    }
}

/// What a loop holds, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FeedbackSettings {
    /// The algorithm.
    pub algorithm: FeedbackAlgorithm,
    /// Us, the utilisation to hold: above 0, at most one CPU. FC-M does not use it.
    pub utilisation: Share,
    /// Ms, the miss ratio to hold: above 0, because without misses nothing shows how full the processor is; at most 1.
    /// FC-U does not use it.
    pub miss_ratio: Share,
    /// The gains of the controllers.
    pub gains: ControllerGains,
    /// The paper's form: `B` has no limits, so it also grows while all rates are at a limit (windup), and the return
    /// lasts as long. Otherwise `B` stops at what the rates can carry out.
    pub unlimited: bool,
}

/// Why settings are invalid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FeedbackSettingsError {
    /// A gain that is not a finite number above 0.
    Gain {
        /// `ga`, `gm` or `gl`, or a controller's.
        name: &'static str,
        /// The value.
        value: f64,
    },
    /// A utilisation of 0, or above one CPU.
    Utilisation(Share),
    /// A miss ratio of 0, or above 1.
    MissRatio(Share),
    /// An algorithm of several processors.
    Group(FeedbackAlgorithm),
}

impl FeedbackSettingsError {
    /// The remedy.
    pub const fn remedy(&self) -> &'static str {
        match self {
            FeedbackSettingsError::Gain { .. } => "use a number above 0; the paper has ga = 2 and gm = 0.447",
            FeedbackSettingsError::Utilisation(_) => "use a part of one CPU, such as \"70%\"",
            FeedbackSettingsError::Group(_) => "use `Coordinator`, which controls a group",
            FeedbackSettingsError::MissRatio(_) => {
                "use a part of all jobs above 0, such as \"1.5%\"; FC-U needs no misses"
            }
        }
    }
}

impl fmt::Display for FeedbackSettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FeedbackSettingsError::Gain { name, value } => write!(f, "the gain `{name}` is {value}"),
            FeedbackSettingsError::Utilisation(share) => write!(f, "the utilisation to hold is {share}"),
            FeedbackSettingsError::Group(algorithm) => {
                write!(f, "{} controls a group of processors, not a single one", algorithm.name())
            }
            FeedbackSettingsError::MissRatio(share) => write!(f, "the miss ratio to hold is {share}"),
        }
    }
}

impl core::error::Error for FeedbackSettingsError {}

impl FeedbackSettings {
    /// The settings of a loop of a file.
    pub fn of(declared: &FeedbackLoop) -> Result<FeedbackSettings, FeedbackSettingsError> {
        let settings = FeedbackSettings {
            algorithm: declared.algorithm,
            utilisation: Share::from_millionths(declared.utilisation_ppm.into()),
            miss_ratio: Share::from_millionths(declared.miss_ratio_ppm.into()),
            gains: ControllerGains::of(declared.gains)?,
            unlimited: !declared.anti_windup,
        };
        settings.check().map(|()| settings)
    }

    /// Checks what the algorithm uses.
    pub fn check(&self) -> Result<(), FeedbackSettingsError> {
        let is_part = |share: Share| !share.is_zero() && share <= Share::CPU;
        let gain = |name, value: f64| {
            let is_usable = value.is_finite() && value > 0.0;
            if is_usable { Ok(()) } else { Err(FeedbackSettingsError::Gain { name, value }) }
        };
        if self.algorithm.is_of_group() {
            return Err(FeedbackSettingsError::Group(self.algorithm));
        }
        if self.algorithm.uses_utilisation() {
            gain("ku", self.gains.utilisation)?;
            if !is_part(self.utilisation) {
                return Err(FeedbackSettingsError::Utilisation(self.utilisation));
            }
        }
        if self.algorithm.uses_miss_ratio() {
            gain("km", self.gains.miss_ratio)?;
            if !is_part(self.miss_ratio) {
                return Err(FeedbackSettingsError::MissRatio(self.miss_ratio));
            }
        }
        if self.algorithm.uses_latency() {
            gain("kl", self.gains.latency)?;
        }
        Ok(())
    }
}

/// A share as a number: 1 is one CPU, or all jobs.
pub(super) fn number(share: Share) -> f64 {
    share.as_millionths() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use hyoshi_model::ALGORITHMS;

    fn settings(algorithm: FeedbackAlgorithm) -> FeedbackSettings {
        let gains = ControllerGains::placed(2.0, 0.447).unwrap();
        let (utilisation, miss_ratio) = (Share::from_percent(75), Share::from_millionths(15_000));
        FeedbackSettings { algorithm, utilisation, miss_ratio, gains, unlimited: false }
    }

    #[test]
    fn the_papers_gains_give_its_controllers() {
        let gains = ControllerGains::placed(2.0, 0.447).unwrap();
        assert!((gains.utilisation - 0.185).abs() < 1e-12, "{}", gains.utilisation);
        assert!((gains.miss_ratio - 0.41387).abs() < 1e-5, "{}", gains.miss_ratio);
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        for gain in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-310] {
            assert!(ControllerGains::placed(gain, 0.447).is_err(), "{gain}");
            assert!(ControllerGains::placed(2.0, gain).is_err(), "{gain}");
            assert!(ControllerGains::of(DesignGains { gl: gain, ..DesignGains::default() }).is_err(), "{gain}");
        }
        let refused = |settings: FeedbackSettings| settings.check().unwrap_err().to_string();
        let gains = ControllerGains { utilisation: 0.2, miss_ratio: f64::NAN, latency: 0.0 };
        assert_eq!(refused(FeedbackSettings { gains, ..settings(FeedbackAlgorithm::FcUm) }), "the gain `km` is NaN");
        assert_eq!(refused(FeedbackSettings { gains, ..settings(FeedbackAlgorithm::FcUl) }), "the gain `kl` is 0");
        for share in [0, 1_000_001].map(Share::from_millionths) {
            let utilisation = FeedbackSettings { utilisation: share, ..settings(FeedbackAlgorithm::FcUm) };
            assert_eq!(refused(utilisation), alloc::format!("the utilisation to hold is {share}"));
            let misses = FeedbackSettings { miss_ratio: share, ..settings(FeedbackAlgorithm::FcM) };
            assert_eq!(refused(misses), alloc::format!("the miss ratio to hold is {share}"));
            // What an algorithm does not use it does not check.
            let unused = FeedbackSettings { miss_ratio: share, ..settings(FeedbackAlgorithm::FcU) };
            assert!(unused.check().is_ok());
        }
    }

    #[test]
    fn the_table_has_each_algorithm_at_its_place() {
        for (place, (algorithm, name, _)) in ALGORITHMS.iter().enumerate() {
            assert_eq!((*algorithm as usize, algorithm.name()), (place, *name));
            assert_eq!(FeedbackAlgorithm::named(&name.to_lowercase()), Some(*algorithm));
        }
        assert_eq!(FeedbackAlgorithm::named("FC-X"), None);
    }
}
