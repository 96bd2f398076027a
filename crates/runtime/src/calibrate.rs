//! Measures the costs of scheduling on this machine for `hyoshi calibrate`.
//!
//! A cost is CPU time that lanes do not get. Most costs are measured by a thread at a lane's priority that only reads
//! the clock: a gap between two readings is the time of other threads. The threads, locks, queues and timers are those
//! of a run.
//!
//! ```text
//!  release timer    ┌ a timer expires ───────────────┐
//!  spinning lane ───┘ timer + enqueue                └───            expiries: the job due waits below
//!
//!  urgent lane               ┌ dequeue, body ┐
//!  spinning lane ───┐timer,  │               │switch ┌───            switches: the job due runs above
//!                   └enqueue,┘switch         └───────┘
//! ```
//!
//! *dequeue* is the time from the end of a body to the start of the next one of the same lane. *enqueue* and *cancel*
//! are sections of the processor's lock without a thread to wake. *watchdog* is a gap in a spinning lane, too.
//!
//! On a virtual machine the hypervisor causes some gaps. The kernel reports only its total time, in steps of 10 ms
//! ([`StealReader`](hyoshi_os::StealReader)). So the largest gaps with that total are omitted. If the hypervisor used
//! no time, no gap is omitted.

mod experiment;
mod queues;
mod watchdog_gaps;

use std::fmt;
use std::sync::Arc;

use hyoshi_model::{Costs, Span, System, read};
use hyoshi_os::allowed_cpus;
use hyoshi_sched::{Plan, Strategies};

use crate::ended::RunNote;
use crate::start_error::StartError;
use experiment::{EXPIRIES, SWITCHES, run};
use queues::queues;
use watchdog_gaps::watchdog_gaps;

/// The fewest measurements of each cost.
const FEWEST: usize = 20;

/// The costs of scheduling on this machine.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// Each cost, in the order of [`Costs::named`].
    pub costs: [(&'static str, CostFigures); 6],
    /// Whether the threads had real-time priority. If not, the costs include other threads.
    pub real_time: bool,
    /// The CPU of the measurement.
    pub cpu: u32,
    /// Number and total length of the gaps that were omitted as stolen by the hypervisor.
    pub stolen: (usize, Span),
    /// Refused privileges.
    pub notes: Vec<RunNote>,
}

/// The distribution of one cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostFigures {
    /// The number of measurements.
    pub count: usize,
    /// The median.
    pub median: Span,
    /// The 99th percentile.
    pub p99: Span,
    /// The 99.9th percentile; the maximum of fewer than 1000. Analyses use it.
    pub high: Span,
}

/// The reason why a measurement failed.
#[derive(Debug)]
pub enum CalibrateError {
    /// A run did not start.
    Start(StartError),
    /// Too few measurements of a cost.
    TooFew {
        /// The cost.
        cost: &'static str,
        /// Their number.
        seen: usize,
    },
    /// A measuring thread panicked.
    Broken,
}

impl fmt::Display for CalibrateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CalibrateError::Start(error) => error.fmt(f),
            CalibrateError::TooFew { cost, seen } => write!(
                f,
                "`{cost}` was measured {seen} times, but {FEWEST} are required: other threads had the CPU most of \
                 the time"
            ),
            CalibrateError::Broken => f.write_str("a measuring thread ended early"),
        }
    }
}

impl std::error::Error for CalibrateError {}

impl From<StartError> for CalibrateError {
    fn from(error: StartError) -> Self {
        CalibrateError::Start(error)
    }
}

impl Calibration {
    /// Measures for about eight seconds. `progress` receives the current step and the progress in percent.
    pub fn measure(mut progress: impl FnMut(&str, u64)) -> Result<Calibration, CalibrateError> {
        let cpu = allowed_cpus().last().copied().unwrap_or(0);
        progress("queues", 0);
        let [enqueue, cancel] = queues(cpu)?;
        let enqueue = figures("enqueue", enqueue)?;
        let expiries = run(&EXPIRIES, |done| progress("timer expiries", 5 + done * 40 / 100))?;
        let dequeue = figures("dequeue", expiries.between_bodies())?;
        let timer = expiries.gaps_at_releases().into_iter().map(|gap| gap.saturating_sub(enqueue.median));
        let timer = figures("timer", timer.collect())?;
        let switches = run(&SWITCHES, |done| progress("switches", 45 + done * 40 / 100))?;
        // There and back; the rest of the gap was measured before.
        let rest = timer.median + enqueue.median + dequeue.median;
        let switch = switches.gaps_around_bodies().into_iter().map(|gap| share(gap.saturating_sub(rest), 2));
        let switch = figures("switch", switch.collect())?;
        progress("watchdog", 85);
        let (watchdog_gaps, theirs) = watchdog_gaps(cpu)?;
        let watchdog = figures("watchdog", watchdog_gaps)?;
        progress("done", 100);
        let all = [expiries.stolen, switches.stolen, theirs];
        let stolen = all.iter().fold((0, Span::ZERO), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let cancel = figures("cancel", cancel)?;
        let mut notes = expiries.notes;
        notes.extend(switches.notes.into_iter().filter(|note| !matches!(note, RunNote::Refused { .. })));
        Ok(Calibration {
            costs: [
                ("timer", timer),
                ("enqueue", enqueue),
                ("dequeue", dequeue),
                ("cancel", cancel),
                ("switch", switch),
                ("watchdog", watchdog),
            ],
            real_time: expiries.real_time && switches.real_time,
            cpu,
            stolen,
            notes,
        })
    }

    /// The costs for analyses.
    pub fn high(&self) -> Costs {
        self.costs_by(|figures| figures.high)
    }

    /// The median costs.
    pub fn median(&self) -> Costs {
        self.costs_by(|figures| figures.median)
    }

    fn costs_by(&self, figure: impl Fn(&CostFigures) -> Span) -> Costs {
        let [timer, enqueue, dequeue, cancel, switch, watchdog] = self.costs.map(|(_, figures)| figure(&figures));
        Costs { timer, enqueue, dequeue, cancel, switch, watchdog }
    }
}

fn figures(cost: &'static str, mut seen: Vec<Span>) -> Result<CostFigures, CalibrateError> {
    if seen.len() < FEWEST {
        return Err(CalibrateError::TooFew { cost, seen: seen.len() });
    }
    seen.sort_unstable();
    // Nearest rank: at least so many of a thousand are at or below it.
    let at = |of_1000: usize| seen[(seen.len() * of_1000).div_ceil(1000) - 1];
    let high = if seen.len() < 1000 { at(1000) } else { at(999) };
    Ok(CostFigures { count: seen.len(), median: at(500), p99: at(990), high })
}

fn share(span: Span, of: u64) -> Span {
    Span::from_nanos(span.as_nanos() / of.max(1))
}

fn system(text: &str) -> Result<(Arc<System>, Arc<Plan>), CalibrateError> {
    // Both are constant: a test checks them.
    let system = read(text, "calibration.toml", None).map_err(|_| CalibrateError::Broken)?.system;
    let plan = Plan::new(&system, &Strategies::built_in()).map_err(|_| CalibrateError::Broken)?;
    Ok((Arc::new(system), Arc::new(plan)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_high_figure_is_the_largest_of_few_and_all_but_a_thousandth_of_many() {
        let seen = |count: u64| (1..=count).map(Span::from_nanos).collect::<Vec<_>>();
        let few = figures("timer", seen(100)).unwrap();
        assert_eq!(
            (few.median, few.p99, few.high),
            (Span::from_nanos(50), Span::from_nanos(99), Span::from_nanos(100))
        );
        assert_eq!(figures("timer", seen(10_000)).unwrap().high, Span::from_nanos(9_990));
        assert!(matches!(figures("timer", seen(19)), Err(CalibrateError::TooFew { cost: "timer", seen: 19 })));
    }
}
