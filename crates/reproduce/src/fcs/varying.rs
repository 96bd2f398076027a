//! Experiment III: execution times that change at run time, and how much change a loop can absorb.

use hyoshi_model::Span;
use serde::Serialize;

use super::experiments::FcsServer;
use super::run::{FcsRun, FcsSteady, simulated};
use super::workload::{ExecutionStep, FcsVariant, FcsWorkload, SAMPLING_PERIOD};
use crate::control::{ExperimentControl, Stopped};

/// The length of figures 10 to 12.
const DURATION: Span = Span::from_secs(1_200);

/// Method 1 needs 1.5 times its first execution time from 200 s on, and a quarter of it from 900 s on. The paper prints
/// no factors; with these OPEN reaches its utilisations, almost 100 % and about 40 %.
pub const STEPS: [ExecutionStep; 2] = [
    ExecutionStep { at_ns: Span::from_secs(200).as_nanos(), percent: [150, 100, 100] },
    ExecutionStep { at_ns: Span::from_secs(900).as_nanos(), percent: [25, 100, 100] },
];

/// The utilisation for which OPEN is tuned, in parts per million.
pub(super) const OPEN_PPM: u64 = 750_000;

/// The time between two changes of execution times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FcsPhase {
    /// Its begin.
    pub from_ns: u64,
    /// Its end.
    pub until_ns: u64,
    /// Its second half, from its settling on.
    pub steady: Option<FcsSteady>,
    /// The number of its first sample with a utilisation within 1 % of the set point.
    pub settled_after: Option<u64>,
    /// The greatest utilisation of a sample.
    pub most_ppm: u64,
    /// The greatest miss ratio of a sample.
    pub most_missed_ppm: u64,
    /// Samples with a utilisation of at least 99.9 %.
    pub full: u64,
}

/// A run with its phases.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VaryingRun {
    /// Whether the usual caps limited the lanes.
    pub capped: bool,
    /// By execution time.
    pub phases: Vec<FcsPhase>,
    /// The run.
    pub run: FcsRun,
}

impl VaryingRun {
    pub(super) fn of(workload: &FcsWorkload, run: FcsRun) -> VaryingRun {
        let mut begins: Vec<u64> =
            std::iter::once(0).chain(workload.steps.iter().map(|step| step.at_ns / workload.scale)).collect();
        begins.push(workload.duration.as_nanos() / workload.scale);
        let phases = begins.windows(2).map(|phase| FcsPhase::of(&run, phase[0], phase[1])).collect();
        VaryingRun { capped: workload.capped, phases, run }
    }
}

/// A utilisation from here on fills the processor.
const FULL: u64 = 999_000;

impl FcsPhase {
    fn of(run: &FcsRun, from_ns: u64, until_ns: u64) -> FcsPhase {
        let samples = || run.samples_between(from_ns, until_ns);
        let utilisations = || samples().map(|sample| sample.utilisation_ppm.unwrap_or(0));
        let level = run.variant.utilisation_ppm().map(u64::from);
        let settled = level.and_then(|level| utilisations().position(|ppm| ppm.abs_diff(level) * 100 <= level));
        let settled_at = settled.and_then(|place| samples().nth(place)).map_or(0, |sample| sample.at_ns);
        FcsPhase {
            from_ns,
            until_ns,
            steady: run.between(settled_at.max((from_ns + until_ns) / 2), until_ns),
            settled_after: settled.map(|place| place as u64 + 1),
            most_ppm: utilisations().max().unwrap_or(0),
            most_missed_ppm: samples().map(|sample| sample.miss_ratio_ppm()).max().unwrap_or(0),
            full: utilisations().filter(|ppm| *ppm >= FULL).count() as u64,
        }
    }
}

/// The workload of experiment III.
pub(super) fn workload(variant: FcsVariant, seed: u64) -> FcsWorkload {
    let gain_percent = FcsServer::A.gain_percent();
    FcsWorkload {
        held_ppm: variant.algorithm().is_none().then_some(OPEN_PPM * 100 / gain_percent),
        steps: STEPS.to_vec(),
        ..FcsWorkload::new(variant, gain_percent, DURATION, seed)
    }
}

/// A step of all execution times, once FC-U holds its set point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MarginStep {
    /// The execution times afterwards, in percent of those before.
    pub percent: u64,
    /// The utilisation that the rates of the set point then demand.
    pub demand_ppm: u64,
    /// Deadlines missed from the step on.
    pub missed: u64,
    /// The greatest miss ratio of a sample.
    pub most_missed_ppm: u64,
}

/// The steps. 1 / Us is 143 %.
const MARGINS: [u64; 7] = [110, 120, 130, 140, 150, 160, 180];

/// The sample after which the step is, and the last one.
const MARGIN_SAMPLES: (u64, u64) = (30, 60);

pub(super) fn margins(seed: u64, control: ExperimentControl<'_>) -> Result<Vec<MarginStep>, Stopped> {
    let at = |samples: u64| Span::from_nanos(SAMPLING_PERIOD.as_nanos() * samples);
    let one = |percent: u64| {
        let (step, end) = (at(MARGIN_SAMPLES.0), at(MARGIN_SAMPLES.1));
        let workload = FcsWorkload {
            steps: vec![ExecutionStep { at_ns: step.as_nanos(), percent: [percent; 3] }],
            ..FcsWorkload::new(FcsVariant::FcU, FcsServer::A.gain_percent(), end, seed)
        };
        let run = simulated(&workload, control)?;
        let after = || run.samples_between(step.as_nanos(), u64::MAX);
        Ok(MarginStep {
            percent,
            demand_ppm: u64::from(FcsVariant::FcU.utilisation_ppm().unwrap_or(0)) * percent / 100,
            missed: after().map(|sample| sample.missed).sum(),
            most_missed_ppm: after().map(|sample| sample.miss_ratio_ppm()).max().unwrap_or(0),
        })
    };
    MARGINS.into_iter().map(one).collect()
}
