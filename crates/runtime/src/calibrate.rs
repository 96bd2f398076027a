//! What scheduling costs on this machine: `hyoshi calibrate`.
//!
//! A cost is CPU time that lanes do not get. So most of it is measured from below, as a thread at a
//! lane's priority sees it that does nothing but read the clock: what passes between two readings
//! was somebody else's. The threads, locks, queues and timers are those of a run.
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
//! *dequeue* is from the end of a body to the start of the next one of the same lane, *enqueue* and
//! *cancel* are sections of the processor's lock without a thread to wake, and *watchdog* is again a
//! gap in what a lane sees.
//!
//! On a virtual machine some gaps are the host's. It tells only how much it took in all, in steps of
//! 10 ms ([`StealReader`](hyoshi_os::StealReader)); so the largest gaps that together make up as much are taken for its, and
//! left out. Where no host ever took anything, nothing is left out.

mod experiment;
mod looks;
mod queues;

use std::fmt;
use std::sync::Arc;

use hyoshi_model::{Costs, Span, System, read};
use hyoshi_os::allowed_cpus;
use hyoshi_sched::{Plan, Strategies};

use crate::ended::Note;
use crate::refusal::StartError;
use experiment::{EXPIRIES, SWITCHES, run};
use looks::looks;
use queues::queues;

/// Of each cost at least so many times must have been seen.
const FEWEST: usize = 20;

/// What scheduling costs here.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// Each cost, in the order of [`Costs::named`].
    pub costs: [(&'static str, Figures); 6],
    /// Whether the threads had real-time priority. If not, others came between.
    pub real_time: bool,
    /// The CPU that it was measured on.
    pub cpu: u32,
    /// Gaps that were left out, for the host took the CPU for as long, and how long that was.
    pub stolen: (usize, Span),
    /// What was not granted.
    pub notes: Vec<Note>,
}

/// How one cost is distributed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// How often it was seen.
    pub count: usize,
    /// Half of them cost at most this.
    pub median: Span,
    /// 99 % of them cost at most this.
    pub p99: Span,
    /// 99.9 % of them cost at most this, all if they are fewer than 1000: what is reckoned with.
    pub high: Span,
}

/// Why nothing could be measured.
#[derive(Debug)]
pub enum CalibrateError {
    /// A run did not start.
    Start(StartError),
    /// It ran, but hardly ever in the way that was to be measured.
    TooFew {
        /// Which cost.
        cost: &'static str,
        /// How often it was seen.
        seen: usize,
    },
    /// A thread of it ended badly.
    Broken,
}

impl fmt::Display for CalibrateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CalibrateError::Start(error) => error.fmt(f),
            CalibrateError::TooFew { cost, seen } => write!(
                f,
                "`{cost}` was seen {seen} times where {FEWEST} are wanted: something else had the CPU nearly all the time"
            ),
            CalibrateError::Broken => f.write_str("a measuring thread ended before it had measured"),
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
    /// Measures, in about eight seconds; `progress` is told what and how far, in percent.
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
        // There and back; what else is in the gap has been measured.
        let rest = timer.median + enqueue.median + dequeue.median;
        let switch = switches.gaps_around_bodies().into_iter().map(|gap| share(gap.saturating_sub(rest), 2));
        let switch = figures("switch", switch.collect())?;
        progress("watchdog", 85);
        let (looks, theirs) = looks(cpu)?;
        let watchdog = figures("watchdog", looks)?;
        progress("done", 100);
        let all = [expiries.stolen, switches.stolen, theirs];
        let stolen = all.iter().fold((0, Span::ZERO), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let cancel = figures("cancel", cancel)?;
        let mut notes = expiries.notes;
        notes.extend(switches.notes.into_iter().filter(|note| !matches!(note, Note::Refused { .. })));
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

    /// The costs to reckon with.
    pub fn high(&self) -> Costs {
        self.costs_by(|figures| figures.high)
    }

    /// The costs as they mostly are.
    pub fn median(&self) -> Costs {
        self.costs_by(|figures| figures.median)
    }

    fn costs_by(&self, figure: impl Fn(&Figures) -> Span) -> Costs {
        let [timer, enqueue, dequeue, cancel, switch, watchdog] = self.costs.map(|(_, figures)| figure(&figures));
        Costs { timer, enqueue, dequeue, cancel, switch, watchdog }
    }
}

fn figures(cost: &'static str, mut seen: Vec<Span>) -> Result<Figures, CalibrateError> {
    if seen.len() < FEWEST {
        return Err(CalibrateError::TooFew { cost, seen: seen.len() });
    }
    seen.sort_unstable();
    // Nearest rank: at least so many of a thousand are at or below it.
    let at = |of_1000: usize| seen[(seen.len() * of_1000).div_ceil(1000) - 1];
    let high = if seen.len() < 1000 { at(1000) } else { at(999) };
    Ok(Figures { count: seen.len(), median: at(500), p99: at(990), high })
}

fn share(span: Span, of: u64) -> Span {
    Span::from_nanos(span.as_nanos() / of.max(1))
}

fn system(text: &str) -> Result<(Arc<System>, Arc<Plan>), CalibrateError> {
    // Both are our own: that they are in order is tested, not assumed.
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
