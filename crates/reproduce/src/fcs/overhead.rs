//! Experiment I: the CPU time of a loop, as the difference of runs with and without it at held rates.
//!
//! The paper subtracts utilisations of runs with a sampling period of 4 s. Our loops need so little that this difference
//! is below the resolution of any monitor. So these runs sample every 10 ms, and read the clocks of all threads of the
//! server and of its clients: sampling, deciding, sending rates, receiving them and resetting timers.

use hyoshi_model::{Span, write};
use serde::Serialize;

use super::experiments::FcsServer;
use super::run::mean_and_interval;
use super::workload::{FcsHosts, FcsVariant, FcsWorkload, SAMPLING_PERIOD};
use crate::control::{ExperimentControl, Length, NoResult, Stopped, or_note};
use crate::nodes::{self, NodeFigures, NodeProgram};

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
    /// The mean CPU time of the server, its jobs and all its threads, of a CPU.
    pub utilisation_ppm: u64,
    /// The half width of its 90 % confidence interval.
    pub interval_ppm: u64,
    /// CPU time besides jobs, of server and clients, for each sampling period: with OPEN for invocations alone.
    pub besides_jobs_ns: u64,
    /// CPU time of the loop for each sample: the difference of the above to OPEN.
    pub cost_ns: i64,
    /// The clients' part of that.
    pub client_cost_ns: i64,
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

/// CPU time of one run, in ns.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    /// The server's, with its jobs.
    server_all: u64,
    server_besides: u64,
    client_besides: u64,
}

pub(super) fn measure(
    program: &NodeProgram<'_>,
    seed: u64,
    length: Length,
    notes: &mut Vec<String>,
    control: ExperimentControl<'_>,
) -> Result<Vec<LoopOverhead>, Stopped> {
    let (runs, duration) = length.overhead_runs();
    let variants = FcsVariant::ALL;
    let mut used: Vec<Vec<Used>> = vec![Vec::new(); variants.len()];
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
            let ran = one(program, &workload, notes, control);
            used.extend(or_note(&format!("experiment I, {}", variant.name()), ran, notes, control)?);
        }
    }
    let samples = (duration.as_nanos() / SHORT_PERIOD.as_nanos()) as f64;
    let means = |of: &[Used], value: fn(&Used) -> u64| {
        mean_and_interval(&of.iter().map(|one| value(one) as f64).collect::<Vec<_>>())
    };
    let besides: fn(&Used) -> u64 = |one| one.server_besides + one.client_besides;
    let of_clients: fn(&Used) -> u64 = |one| one.client_besides;
    let base = used.first().and_then(|open| Some((means(open, besides)?, means(open, of_clients)?)));
    let row = |(variant, used): (&FcsVariant, &Vec<Used>)| {
        let ((base, base_clients), (mean, interval)) = (base?, means(used, besides)?);
        let (clients, _) = means(used, of_clients)?;
        let (all, all_interval) = means(used, |one| one.server_all)?;
        let of_run = |ns: f64| (ns * 1e6 / duration.as_nanos() as f64).round() as u64;
        let is_base = *variant == FcsVariant::Open;
        let each = |more: f64| if is_base { 0.0 } else { more / samples };
        let cost = each(mean - base.0);
        Some(LoopOverhead {
            variant: *variant,
            runs: used.len() as u64,
            utilisation_ppm: of_run(all),
            interval_ppm: of_run(all_interval),
            besides_jobs_ns: (mean / samples).round() as u64,
            cost_ns: cost.round() as i64,
            client_cost_ns: each(clients - base_clients.0).round() as i64,
            cost_interval_ns: each((interval * interval + base.1 * base.1).sqrt()).round() as u64,
            overhead_ppm: cost * 1e6 / SAMPLING_PERIOD.as_nanos() as f64,
            paper_percent: paper_percent(*variant),
        })
    };
    Ok(variants.iter().zip(&used).filter_map(row).collect())
}

/// One run.
fn one(
    program: &NodeProgram<'_>,
    workload: &FcsWorkload,
    notes: &mut Vec<String>,
    control: ExperimentControl<'_>,
) -> Result<Used, NoResult> {
    let text = |ports: &[u16], cpus: &[u32]| {
        let hosts = Some(FcsHosts::new(ports, cpus));
        write(&FcsWorkload { hosts, ..workload.clone() }.system())
    };
    let duration = Span::from_nanos(workload.duration.as_nanos() / workload.scale);
    let nodes = nodes::run(program, &FcsHosts::NAMES, text, duration, control)?;
    let [server, client]: [NodeFigures; 2] =
        nodes.try_into().map_err(|_| NoResult::Because("the server or its clients returned no measurements".into()))?;
    let used = Used {
        server_all: server.execution_ns + server.parts.overhead_ns(),
        server_besides: server.parts.overhead_ns(),
        client_besides: client.parts.overhead_ns(),
    };
    notes.extend(server.notes.into_iter().chain(client.notes));
    Ok(used)
}
