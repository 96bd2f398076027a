//! Table I: the cost of a report for the monitored program and the broker, in three configurations.

use std::path::Path;
use std::process::Command;

use hyoshi_broker::TaskSpec;
use hyoshi_broker::client::BrokerClientError;
use hyoshi_broker::idl::cpu_broker::{Broker as _, CycleReport, Task as _, TaskStub};
use hyoshi_model::{Instant, Span};
use hyoshi_os::Clock;
use hyoshi_os::meter::Meter;
use hyoshi_os::process::{NoProcess, Process};
use serde::Serialize;

use super::host::{BrokerProcess, HourglassProcess, clock, wait_for};
use crate::control::{ExperimentControl, NoResult};

/// The cost of one configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// Its name.
    pub configuration: &'static str,
    /// The number of reports.
    pub reports: u64,
    /// Mean CPU time of monitor and broker for a report.
    pub cpu_ns: u64,
    /// Mean waiting time of the monitor; `null` if it does not wait.
    pub latency_ns: Option<u64>,
    /// Median waiting time.
    pub median_latency_ns: Option<u64>,
    /// The paper's CPU time, on a processor of 850 MHz.
    pub paper_cpu_ns: u64,
    /// The paper's latency.
    pub paper_latency_ns: u64,
}

/// Names of the configurations, and the paper's figures in microseconds.
const TWO_WAY: (&str, u64, u64) = ("two-way", 1_742, 1_587);
const ONE_WAY: (&str, u64, u64) = ("one-way", 1_716, 660);
const IN_BROKER: (&str, u64, u64) = ("in-broker", 400, 400);

/// The broker's own report period: short, so that a thousand reports need little time.
const OWN_PERIOD: Span = Span::from_millis(1);
const WARM_UP: u64 = 100;

/// Measures all three, with `reports` reports at the distance `apart`.
pub(super) fn run(
    hyoshi: &Path,
    reports: u64,
    apart: Span,
    control: ExperimentControl<'_>,
) -> Result<Vec<Cost>, NoResult> {
    let broker = BrokerProcess::start(hyoshi, &["--scheduler", "none", "--policy", "weighted"])?;
    let mut sleeper = Command::new(hyoshi);
    sleeper.args(["hourglass", "--period", "1h", "--work", "0s"]);
    let sleeper = HourglassProcess::start(sleeper)?;
    let mut meter = Meter::new();
    for process in [std::process::id(), broker.process()] {
        meter.add(&Process::open(process).map_err(gone)?, false);
    }
    let (two_way, one_way) = from_outside(&broker, &sleeper, &mut meter, reports, apart, control)?;
    let in_broker = by_the_broker(&broker, &sleeper, &mut meter, reports, control)?;
    Ok(vec![two_way, one_way, in_broker])
}

fn gone(error: NoProcess) -> NoResult {
    NoResult::Because(error.to_string())
}

fn cost((configuration, cpu, latency): (&'static str, u64, u64), reports: u64, consumed: Span) -> Cost {
    Cost {
        configuration,
        reports,
        cpu_ns: consumed.as_nanos() / reports.max(1),
        latency_ns: None,
        median_latency_ns: None,
        paper_cpu_ns: cpu * 1_000,
        paper_latency_ns: latency * 1_000,
    }
}

/// Like the paper's delegates: a monitor reads the CPU time of its task and reports it over IPC.
fn from_outside(
    broker: &BrokerProcess,
    sleeper: &HourglassProcess,
    meter: &mut Meter,
    reports: u64,
    apart: Span,
    control: ExperimentControl<'_>,
) -> Result<(Cost, Cost), NoResult> {
    let task = broker.client.join(&TaskSpec::new("reported", Span::from_secs(10)))?;
    task.add_process(sleeper.process(), 0).map_err(BrokerClientError::from)?;
    let mut own = Meter::new();
    own.add(&Process::open(sleeper.process()).map_err(gone)?, false);
    let mut measure = |configuration, one_way: bool| {
        let mut report = |number: u64| one_report(&task, &mut own, number, one_way);
        for number in 0..WARM_UP {
            report(number)?;
        }
        let (before, clock) = (meter.read(), clock());
        let mut next = clock.now();
        let mut latencies = Vec::new();
        for number in 0..reports {
            latencies.push(report(number)?.as_nanos());
            // Like a program that reports once a period: the caches are cold.
            next += apart;
            clock.sleep_until(next);
            if number % 16 == 0 && (control.stop)() {
                return Err(NoResult::Stopped);
            }
        }
        // A two-way call after the one-way calls: they are all done.
        broker.client.broker().status().map_err(BrokerClientError::from)?;
        let mut cost = cost(configuration, reports, meter.read().saturating_sub(before));
        latencies.sort_unstable();
        cost.latency_ns = Some(latencies.iter().sum::<u64>() / reports.max(1));
        cost.median_latency_ns = latencies.get(latencies.len() / 2).copied();
        Ok(cost)
    };
    let both = (measure(TWO_WAY, false)?, measure(ONE_WAY, true)?);
    task.leave().map_err(BrokerClientError::from)?;
    Ok(both)
}

/// Sends one report. Returns the waiting time of the caller.
fn one_report(task: &TaskStub, own: &mut Meter, number: u64, one_way: bool) -> Result<Span, NoResult> {
    let began: Instant = clock().now();
    // It varies, so that some reports change the reservation.
    let consumed = own.read().as_nanos() + 5_000_000 + number % 7 * 100_000;
    let cycle = CycleReport { consumed, cycles: 1, mode: -1, numbers: Vec::new() };
    match one_way {
        true => task.report_oneway(&cycle).map_err(BrokerClientError::from)?,
        false => drop(task.report(&cycle).map_err(BrokerClientError::from)?),
    }
    Ok(clock().now().since(began))
}

/// Like the paper's in-broker process advocate: the broker itself monitors the task.
fn by_the_broker(
    broker: &BrokerProcess,
    sleeper: &HourglassProcess,
    meter: &mut Meter,
    reports: u64,
    control: ExperimentControl<'_>,
) -> Result<Cost, NoResult> {
    let task = broker.client.join(&TaskSpec::new("looked-after", OWN_PERIOD))?;
    task.add_process(sleeper.process(), 0).map_err(BrokerClientError::from)?;
    let count = || Ok::<_, NoResult>(task.status().map_err(BrokerClientError::from)?.reports);
    wait_for("waiting for the broker's first report", control, || Ok((count()? > WARM_UP).then_some(())))?;
    // The queries also cost time: count only what lies between two readings of the meter.
    let (first, before) = (count()?, meter.read());
    let until = clock().now() + Span::from_nanos(OWN_PERIOD.as_nanos() * reports);
    clock().sleep_until(until);
    let consumed = meter.read().saturating_sub(before);
    let reports = count()? - first;
    Ok(cost(IN_BROKER, reports, consumed))
}
