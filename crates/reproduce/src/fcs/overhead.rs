//! Experiment I: the CPU time of a loop, as the difference of runs with and without it at held rates.
//!
//! The paper subtracts utilisations of runs with a sampling period of 4 s. Our loops need so little that this difference
//! is below the resolution of any monitor. So these runs sample every 10 ms, and read the clock of the thread that
//! samples, decides, and resets timers.

use std::sync::Arc;

use hyoshi_model::{Instant, ProcessorId, Span};
use hyoshi_trace::{CpuEvent, CpuUser, TraceEvent};
use serde::Serialize;

use super::FcsServer;
use super::kernel::{node, run_node};
use super::run::mean_and_interval;
use super::workload::{FcsVariant, FcsWorkload, SAMPLING_PERIOD};
use crate::control::{ExperimentControl, Length, NoResult, Stopped, or_note};

/// The sampling period of these runs.
pub const SHORT_PERIOD: Span = Span::from_millis(10);

/// The estimated utilisation of the held rates, in parts per million: about 74 % actual, as in table 3.
const HELD_PPM: u64 = 370_000;

/// The cost of one loop (table 3).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoopOverhead {
    /// The loop; OPEN is the base.
    pub variant: FcsVariant,
    /// The number of runs.
    pub runs: u64,
    /// The mean CPU time of all threads of the processor, of a CPU.
    pub utilisation_ppm: u64,
    /// The half width of its 90 % confidence interval.
    pub interval_ppm: u64,
    /// CPU time of the release thread for each sampling period: with OPEN for releases alone.
    pub release_ns: u64,
    /// CPU time of the loop for each sample: the difference of the above to OPEN.
    pub cost_ns: i64,
    /// The half width of its 90 % confidence interval.
    pub cost_interval_ns: u64,
    /// The same of a CPU, with the paper's sampling period.
    pub overhead_ppm: f64,
    /// The paper's overhead in percent of a CPU.
    pub paper_percent: Option<f64>,
}

impl Length {
    /// The runs of experiment I with each variant, and the duration of each.
    const fn overhead_runs(self) -> (u64, Span) {
        match self {
            Length::Short => (1, Span::from_secs(1)),
            Length::Usual => (8, Span::from_secs(1)),
            Length::Paper => (8, Span::from_secs(60)),
        }
    }
}

/// Table 3, in percent.
const fn paper_percent(variant: FcsVariant) -> Option<f64> {
    match variant {
        FcsVariant::FcU => Some(0.40),
        FcsVariant::FcM => Some(0.54),
        FcsVariant::FcUm => Some(0.90),
        FcsVariant::Open | FcsVariant::FcUmFast => None,
    }
}

/// CPU time of one run.
#[derive(Clone, Copy, Debug, Default)]
struct ThreadsUsed {
    release: Span,
    all: Span,
}

pub(super) fn measure(
    seed: u64,
    length: Length,
    notes: &mut Vec<String>,
    control: ExperimentControl<'_>,
) -> Result<Vec<LoopOverhead>, Stopped> {
    let (runs, duration) = length.overhead_runs();
    let variants: Vec<_> = std::iter::once(FcsVariant::Open).chain(FcsVariant::LOOPS).collect();
    let mut used: Vec<Vec<ThreadsUsed>> = vec![Vec::new(); variants.len()];
    // By turns: a slow change of the machine concerns all variants.
    for run in 0..runs {
        for (variant, used) in variants.iter().zip(&mut used) {
            (control.step)(&format!("experiment I, {}, run {} of {runs}", variant.name(), run + 1));
            let workload = FcsWorkload {
                held_ppm: Some(HELD_PPM),
                sampled: false,
                period: SHORT_PERIOD,
                capped: true,
                seed: seed.wrapping_add(run),
                ..FcsWorkload::new(*variant, FcsServer::A.gain_percent(), duration, seed)
            };
            let ran = one(&workload, notes, control);
            used.extend(or_note(&format!("experiment I, {}", variant.name()), ran, notes, control)?);
        }
    }
    let samples = (duration.as_nanos() / SHORT_PERIOD.as_nanos()) as f64;
    let means = |of: &[ThreadsUsed], value: fn(&ThreadsUsed) -> Span| {
        mean_and_interval(&of.iter().map(|one| value(one).as_nanos() as f64).collect::<Vec<_>>())
    };
    let base = used.first().and_then(|open| means(open, |one| one.release));
    let row = |(variant, used): (&FcsVariant, &Vec<ThreadsUsed>)| {
        let (base, (release, interval)) = (base?, means(used, |one| one.release)?);
        let (all, all_interval) = means(used, |one| one.all)?;
        let of_run = |ns: f64| (ns * 1e6 / duration.as_nanos() as f64).round() as u64;
        let is_base = *variant == FcsVariant::Open;
        let cost = if is_base { 0.0 } else { (release - base.0) / samples };
        let spread = if is_base { 0.0 } else { (interval * interval + base.1 * base.1).sqrt() / samples };
        Some(LoopOverhead {
            variant: *variant,
            runs: used.len() as u64,
            utilisation_ppm: of_run(all),
            interval_ppm: of_run(all_interval),
            release_ns: (release / samples).round() as u64,
            cost_ns: cost.round() as i64,
            cost_interval_ns: spread.round() as u64,
            overhead_ppm: cost * 1e6 / SAMPLING_PERIOD.as_nanos() as f64,
            paper_percent: paper_percent(*variant),
        })
    };
    Ok(variants.iter().zip(&used).filter_map(row).collect())
}

/// One run.
fn one(
    workload: &FcsWorkload,
    notes: &mut Vec<String>,
    control: ExperimentControl<'_>,
) -> Result<ThreadsUsed, NoResult> {
    let system = Arc::new(workload.system());
    let mut used = ThreadsUsed::default();
    let mut sink = |_: ProcessorId, _: Instant, event: TraceEvent| {
        if let TraceEvent::Cpu(CpuEvent::Used { who, span }) = event {
            match who {
                CpuUser::Release => (used.release, used.all) = (used.release + span, used.all + span),
                CpuUser::Lane(_) | CpuUser::Below => used.all += span,
                _ => {}
            }
        }
    };
    run_node(node(&system), workload.variant.name(), &mut sink, notes, control)?;
    Ok(used)
}
