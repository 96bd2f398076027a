//! Figure 5 on the kernel: three hourglasses that request more than the cap, and commands that change their
//! importances.

use std::path::Path;
use std::process::Command;

use hyoshi_broker::client::BrokerClientError;
use hyoshi_broker::idl::cpu_broker::Broker as _;
use hyoshi_model::{Instant, Span};
use hyoshi_os::{Clock, allowed_cpus, pin_to};
use serde::Serialize;

use super::host::{BrokerProcess, HourglassPeriod, HourglassProcess, Spinners, clock, pause, wait_for};
use crate::broker::arbitration::{ADVOCATES, BUDGETS, CAP, IMPORTANCES, ImportanceStage, PERIOD, ServedPeriods};
use crate::control::{ExperimentControl, NoResult};

/// The difference between a program's work and its budget: its start, its wake-ups and its output also need CPU time.
pub const ASIDE: Span = Span::from_millis(2);

/// The results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Arbitrated {
    /// The broker's scheduler proxy.
    pub scheduler: &'static str,
    /// The CPU that all programs shared; `null` if programs must not be pinned.
    pub cpu: Option<u32>,
    /// The number of CPU-bound programs on that CPU, or on all CPUs.
    pub spinners: usize,
    /// The intervals between changes of importances.
    pub stages: Vec<ImportanceStage>,
}

/// Whether a reservation is also an upper limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caps {
    /// Beyond it, a task competes with ordinary programs.
    Soft,
    /// A hard limit (SCHED_DEADLINE); such threads cannot be pinned.
    Hard,
}

/// Runs the stages with so many periods each.
pub(super) fn run(
    hyoshi: &Path,
    caps: Caps,
    periods: [u64; 3],
    control: ExperimentControl<'_>,
) -> Result<Arbitrated, NoResult> {
    let (scheduler, each, cpu) = match caps {
        Caps::Soft => ("window", 1, allowed_cpus().last().copied()),
        Caps::Hard => ("deadline", 2, None),
    };
    let cap = CAP.to_string();
    let broker = BrokerProcess::start(hyoshi, &["--scheduler", scheduler, "--policy", "strict", "--cap", &cap])?;
    let longest = Span::from_nanos(PERIOD.as_nanos() * (periods.iter().sum::<u64>() + 40));
    // Programs inherit the allowed CPUs of the thread that starts them.
    let started = std::thread::scope(|scope| {
        let start = || {
            if let Some(cpu) = cpu {
                pin_to(cpu).map_err(|refused| NoResult::Because(refused.to_string()))?;
            }
            let spinners = Spinners::start(hyoshi, each, longest)?;
            let mut glasses = Vec::new();
            for task in 0..BUDGETS.len() {
                let mut glass = HourglassProcess::start(glass(&broker, task, longest))?;
                glass.listen(|_| ());
                glasses.push(glass);
            }
            Ok::<_, NoResult>((spinners, glasses))
        };
        scope.spawn(start).join().unwrap_or_else(|_| Err(NoResult::Because("starting the programs panicked".into())))
    });
    let (spinners, glasses) = started?;
    let mut stages = Vec::new();
    let mut spans = Vec::new();
    for (number, importances) in IMPORTANCES.into_iter().enumerate() {
        let began = clock().now();
        if number > 0 {
            let set = broker.client.broker().set_importance(&name(2), importances[2]);
            set.map_err(BrokerClientError::from)?;
        }
        let (held_ns, settled_ns) = settle(&broker, number, began, control)?;
        let from = clock().now();
        let until = from + Span::from_nanos(PERIOD.as_nanos() * (periods[number] + 2));
        while clock().now() < until {
            pause(control)?;
        }
        spans.push((from, clock().now()));
        stages.push(ImportanceStage { importances, held_ns, changed: Vec::new(), settled_ns, served: Vec::new() });
    }
    for glass in glasses {
        let ranges: Vec<_> = spans.iter().map(|span| range(&glass, *span)).collect();
        let periods = glass.periods();
        for (stage, range) in stages.iter_mut().zip(ranges) {
            stage.served.push(served(&periods, range));
        }
    }
    Ok(Arbitrated { scheduler, cpu, spinners: spinners.count(), stages })
}

fn name(task: usize) -> String {
    format!("task-{}", task + 1)
}

fn glass(broker: &BrokerProcess, task: usize, longest: Span) -> Command {
    let (name, period, longest) = (name(task), PERIOD.to_string(), longest.to_string());
    let (importance, first) = (IMPORTANCES[0][task].to_string(), BUDGETS[task].to_string());
    let work = BUDGETS[task].saturating_sub(ASIDE).to_string();
    let asked = [
        "--name",
        &name,
        "--period",
        &period,
        "--budget",
        &first,
        "--importance",
        &importance,
        "--advocate",
        ADVOCATES[task],
    ];
    broker.exec(&asked, &["--period", &period, "--work", &work, "--for", &longest])
}

/// Waits until the reservations are as expected, at most for two periods.
fn settle(
    broker: &BrokerProcess,
    number: usize,
    began: Instant,
    control: ExperimentControl<'_>,
) -> Result<([u64; 3], u64), NoResult> {
    let patience = began + Span::from_nanos(PERIOD.as_nanos() * 2);
    wait_for("settling the reservations", control, || {
        let mut stage = ImportanceStage {
            importances: IMPORTANCES[number],
            held_ns: [0; 3],
            changed: Vec::new(),
            settled_ns: 0,
            served: Vec::new(),
        };
        for (task, held) in stage.held_ns.iter_mut().enumerate() {
            *held = broker.task(&name(task))?.granted.reserved.budget;
        }
        let now = clock().now();
        let done = stage.is_as_expected(number) || now > patience;
        Ok(done.then(|| (stage.held_ns, now.since(began).as_nanos())))
    })
}

/// The complete periods of a program within a stage, except the first.
fn range(glass: &HourglassProcess, (from, until): (Instant, Instant)) -> std::ops::Range<u64> {
    let (first, end) = (glass.first_from(from) + 1, glass.first_from(until).saturating_sub(1));
    first..end.max(first)
}

fn served(periods: &[Option<HourglassPeriod>], range: std::ops::Range<u64>) -> ServedPeriods {
    let all: Vec<_> = range.map(|number| periods.get(number as usize).copied().flatten()).collect();
    let count = all.len() as u64;
    let obtained: u64 = all.iter().flatten().map(|period| period.obtained_ns).sum();
    let met = all.iter().flatten().filter(|period| period.met).count() as u64;
    ServedPeriods { periods: count, met, mean_obtained_ns: obtained / count.max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_in_which_nothing_ran_is_not_met() {
        let period = |number, met| Some(HourglassPeriod { number, obtained_ns: 10, met });
        let periods = [period(0, true), None, period(2, false), period(3, true)];
        assert_eq!(served(&periods, 1..5), ServedPeriods { periods: 4, met: 1, mean_obtained_ns: 5 });
        assert_eq!(served(&periods, 2..2), ServedPeriods::default());
    }
}
