//! One run: its samples, and what the paper computes from them.

use std::cell::RefCell;

use hyoshi_control::feedback::{FeedbackSettings, LoopModel};
use hyoshi_model::{Instant, System};
use hyoshi_replay::{Feed, Observer};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_sim::simulate;
use serde::Serialize;

use super::workload::{FcsVariant, FcsWorkload, TASKS};
use crate::control::{ExperimentControl, Stopped};

/// A sampling period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FcsSample {
    /// Its end.
    pub at_ns: u64,
    /// U, of the hard cap; `None` if it was not measured.
    pub utilisation_ppm: Option<u64>,
    /// Jobs that ended.
    pub ended: u64,
    /// Those that missed their deadline.
    pub missed: u64,
    /// B of the next period.
    pub total_ppm: u64,
}

impl FcsSample {
    /// M.
    pub fn miss_ratio_ppm(&self) -> u64 {
        self.missed * 1_000_000 / self.ended.max(1)
    }
}

/// What a run has held over some samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FcsSteady {
    /// The mean utilisation.
    pub utilisation_ppm: u64,
    /// The half width of its 90 % confidence interval.
    pub interval_ppm: u64,
    /// The miss ratio.
    pub miss_ratio_ppm: u64,
}

/// A task before the first sample and after the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FcsRate {
    /// Its name.
    pub task: String,
    /// Its period at the start.
    pub start_ns: u64,
    /// Its period at the end.
    pub period_ns: u64,
    /// Its shortest period.
    pub shortest_ns: u64,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FcsRun {
    /// How rates were set.
    pub variant: FcsVariant,
    /// Its sampling period.
    #[serde(skip)]
    pub period_ns: u64,
    /// Actual over estimated execution times, as configured, in percent.
    pub gain_percent: u64,
    /// The same as measured, from the samples before the processor was full; with the cost of scheduling.
    pub gain_measured: Option<f64>,
    /// The second half of the time.
    pub steady: Option<FcsSteady>,
    /// The number of the sample that ends the settling time.
    pub settled_after: Option<u64>,
    /// The same of the linear model with saturation, at the measured gain; only of a run that begins at the lowest
    /// rates.
    pub model_settled_after: Option<u64>,
    /// On the kernel: the longest time for which an ordinary thread on the server's CPU could not run.
    pub longest_wait_ns: Option<u64>,
    /// The tasks.
    pub rates: Vec<FcsRate>,
    /// The samples.
    pub samples: Vec<FcsSample>,
}

/// The plan of a system.
pub(super) fn plan(system: &System) -> Plan {
    match Plan::new(system, &Strategies::built_in()) {
        Ok(plan) => plan,
        Err(unknown) => unreachable!("the workload names a built-in strategy: {unknown}"),
    }
}

/// Runs a workload in virtual time.
pub(super) fn simulated(workload: &FcsWorkload, control: ExperimentControl<'_>) -> Result<FcsRun, Stopped> {
    let system = workload.system();
    let observer = RefCell::new(Observer::new(&system));
    let until = Instant::ZERO + system.duration;
    simulate(&system, &plan(&system), until, |processor| Feed::new(processor, &observer), |_| !(control.stop)());
    if (control.stop)() {
        return Err(Stopped);
    }
    Ok(FcsRun::of(workload, &system, &mut observer.into_inner()))
}

impl FcsRun {
    /// From what an observer has received.
    pub(super) fn of(workload: &FcsWorkload, system: &System, observer: &mut Observer<'_>) -> FcsRun {
        let until = Instant::ZERO + system.duration;
        let figures = observer.figures(until);
        let history = &figures.feedback[0];
        let ppm = |part: f64| (part * 1e6).round() as u64;
        let samples = history.points().iter().map(|point| FcsSample {
            at_ns: point.at.as_nanos(),
            utilisation_ppm: point.utilisation().map(ppm),
            ended: point.ended,
            missed: point.missed,
            total_ppm: ppm(point.total()),
        });
        let found: Vec<_> = history.periods().collect();
        let rates = system.operation_ids().take(TASKS).map(|id| {
            let setting = system.setting(0, id);
            let last = found.iter().find(|(root, ..)| *root == id).map_or(setting.slowest, |(_, period, _)| *period);
            FcsRate {
                task: system.operation(workload.method_of(id)).name.clone(),
                start_ns: setting.slowest.as_nanos(),
                period_ns: last.as_nanos(),
                shortest_ns: setting.period.as_nanos(),
            }
        });
        let mut run = FcsRun {
            variant: workload.variant,
            period_ns: workload.sampling_period().as_nanos(),
            gain_percent: workload.gain_percent,
            gain_measured: None,
            steady: None,
            settled_after: None,
            model_settled_after: None,
            longest_wait_ns: None,
            rates: rates.collect(),
            samples: samples.collect(),
        };
        let half = system.duration.as_nanos() / 2;
        run.steady = run.between(half, u64::MAX);
        run.settled_after = run.settling();
        // Before the first step.
        let until = workload.steps.first().map_or(u64::MAX, |step| step.at_ns / workload.scale);
        run.gain_measured = run.gain(until);
        run.model_settled_after = run.gain_measured.and_then(|gain| run.model(workload, system, gain));
        run
    }

    /// The samples of the periods that end after `from` and not after `until`. On the kernel samples are a little late.
    pub fn samples_between(&self, from_ns: u64, until_ns: u64) -> impl Iterator<Item = &FcsSample> {
        let [from, until] = [from_ns, until_ns].map(|at| at.saturating_add(self.period_ns / 2));
        self.samples.iter().filter(move |sample| sample.at_ns > from && sample.at_ns <= until)
    }

    /// What it held in these samples; `None` if there are none.
    pub fn between(&self, from_ns: u64, until_ns: u64) -> Option<FcsSteady> {
        let of = || self.samples_between(from_ns, until_ns);
        let values: Vec<f64> = of().filter_map(|sample| sample.utilisation_ppm).map(|ppm| ppm as f64).collect();
        let (mean, interval) = mean_and_interval(&values)?;
        let (ended, missed) = of().fold((0, 0), |sum, one| (sum.0 + one.ended, sum.1 + one.missed));
        Some(FcsSteady {
            utilisation_ppm: mean.round() as u64,
            interval_ppm: interval.round() as u64,
            miss_ratio_ppm: missed * 1_000_000 / ended.max(1),
        })
    }

    /// The paper's definition (section 4.3): the first sample with 99 % of the set point, with FC-M with 99 % of the
    /// last utilisation.
    fn settling(&self) -> Option<u64> {
        self.variant.algorithm()?;
        let last = || self.samples.last().and_then(|sample| sample.utilisation_ppm);
        let level = self.variant.utilisation_ppm().map(u64::from).or_else(last)?;
        let reached = |sample: &FcsSample| sample.utilisation_ppm.is_some_and(|ppm| ppm * 100 >= level * 99);
        self.samples.iter().position(reached).map(|place| place as u64 + 1)
    }

    /// Utilisation over total, from the samples up to `until` before the processor was nearly full.
    fn gain(&self, until_ns: u64) -> Option<f64> {
        let pairs = self.samples.windows(2).filter(|pair| pair[1].at_ns <= until_ns);
        let pairs = pairs.filter_map(|pair| Some((pair[0].total_ppm, pair[1].utilisation_ppm?)));
        let pairs = pairs.filter(|(total, utilisation)| *total > 0 && *utilisation <= NEARLY_FULL);
        let sums = pairs.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        (sums.0 > 0).then(|| sums.1 as f64 / sums.0 as f64)
    }

    fn model(&self, workload: &FcsWorkload, system: &System, gain: f64) -> Option<u64> {
        self.variant.algorithm()?;
        let control = system.feedback.first()?;
        let total = |period: fn(&FcsRate) -> u64| {
            let work = |id| system.setting(0, workload.method_of(id)).wcet.as_nanos() as f64;
            let part = |(id, rate): (_, &FcsRate)| work(id) / period(rate).max(1) as f64;
            system.operation_ids().zip(&self.rates).map(part).sum::<f64>()
        };
        let start = total(|rate| rate.start_ns);
        let mut model = LoopModel {
            settings: FeedbackSettings::of(control).ok()?,
            range: [start, total(|rate| rate.shortest_ns)],
            start,
            bound: 1.0,
            slope: control.gains.gm,
        };
        if self.variant == FcsVariant::FcM {
            // Saturated until its last utilisation: the rise is by Km Ms, and there it ends.
            model.bound = self.samples.last()?.utilisation_ppm? as f64 / 1e6;
            model.slope = STEEP;
        }
        model.settling(gain).ok().flatten().map(u64::from)
    }
}

/// A slope that stops a rise at once.
const STEEP: f64 = 1e3;

/// Up to this utilisation no work is left over for the next sample.
const NEARLY_FULL: u64 = 900_000;

/// The mean of independent values, and the half width of its 90 % confidence interval; `None` without values.
pub(super) fn mean_and_interval(values: &[f64]) -> Option<(f64, f64)> {
    if values.is_empty() {
        return None;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    let freedom = values.len() - 1;
    let quantile = match freedom {
        0 => return Some((mean, 0.0)),
        1..=9 => STUDENT[freedom - 1],
        _ => 1.645 + 1.6 / freedom as f64,
    };
    Some((mean, quantile * (squares / freedom as f64 / count).sqrt()))
}

/// The 95 % quantiles of Student's distribution with 1 to 9 degrees of freedom.
const STUDENT: [f64; 9] = [6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_mean_is_students() {
        assert_eq!(mean_and_interval(&[]), None);
        assert_eq!(mean_and_interval(&[2.0]), Some((2.0, 0.0)));
        let (mean, interval) = mean_and_interval(&[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(mean, 2.5);
        // s = 1.291, n = 4.
        assert!((interval - 2.353 * 1.290_99 / 2.0).abs() < 1e-4, "{interval}");
    }
}
