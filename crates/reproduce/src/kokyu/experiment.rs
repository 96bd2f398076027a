//! The experiment: all trials, on all CPUs.

use std::sync::atomic::{AtomicUsize, Ordering};

use hyoshi_model::{ExecutionTime, Span};

use super::links::links;
use super::overhead::{paper_costs, thresholds};
use super::program::{FlightProgram, PAPER_REGION, STRATEGIES, Trial, is_added, is_route, mean_of};
use super::queueing::{RowQueueing, Stopwatch};
use super::slack::{Slack, muf_at_hybrid_costs, stealing, strategies};
use super::switching;
use super::trial::{TrialRow, observe, row, trial};
use super::{Advertised, KokyuFigures};
use crate::control::{ExperimentControl, Stopped};

/// The parameters of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The length of each region in virtual time.
    pub region: Span,
    /// The seed of all random draws; the same for every strategy.
    pub seed: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Setup { region: PAPER_REGION, seed: 1 }
    }
}

/// Advertised worst cases of a leg, in percent of its execution time.
const ADVERTISED: [u64; 4] = [150, 200, 250, 300];

/// The length of regions in which queueing is measured: about 20,000 requests each.
const MEASURED_REGION: Span = Span::from_secs(30);

/// The paper's six trials.
pub fn trials() -> Vec<Trial> {
    STRATEGIES.iter().flat_map(|strategy| [false, true].map(|cancel| Trial::new(strategy, cancel))).collect()
}

/// The trials on the kernel: the paper's six, and those that switch.
pub fn kernel_trials() -> Vec<Trial> {
    trials().into_iter().chain(switching::trials()).collect()
}

/// Runs everything in virtual time.
pub fn run(setup: Setup, control: ExperimentControl<'_>) -> Result<KokyuFigures, Stopped> {
    let program = FlightProgram::new(setup.region, setup.seed);
    let trials = trials();

    (control.step)("the paper's six trials in virtual time");
    let simulated = simulate(&program, &trials, control)?;

    (control.step)("the same with the paper's costs");
    let costly: Vec<Trial> =
        trials.iter().map(|trial| Trial { costs: paper_costs(&trial.strategy), ..trial.clone() }).collect();
    let at_paper_costs = simulate(&program, &costly, control)?;

    (control.step)("the same load without jitter");
    let calm = program.changed(|name, setting| {
        if is_added(name) {
            setting.execution_time = ExecutionTime::Fixed(mean_of(&setting.execution_time));
        }
    });
    let hybrids: Vec<Trial> = trials.iter().filter(|trial| trial.strategy != STRATEGIES[0]).cloned().collect();
    let steady = simulate(&calm, &hybrids, control)?;

    (control.step)("worst cases advertised too long");
    let mut advertised = Vec::new();
    for percent in ADVERTISED {
        let cautious = program.changed(|name, setting| {
            if is_route(name) {
                setting.wcet = Span::from_nanos(setting.wcet.as_nanos() * percent / 100);
            }
        });
        let rows = simulate(&cautious, &[Trial::new(STRATEGIES[1], true)], control)?;
        advertised.extend(rows.into_iter().map(|row| Advertised { percent, row }));
    }

    (control.step)("slack stealing");
    let slack = Slack {
        muf_at_hybrid_costs: simulate(&program, &muf_at_hybrid_costs(), control)?,
        stealing: simulate(&program, &stealing(), control)?,
    };

    (control.step)("switching between RMS and RMS+MLF");
    let switched = simulate(&program, &switching::trials(), control)?;

    (control.step)("links with delay and jitter");
    let links = links(setup.region, setup.seed, control)?;

    (control.step)("the cost at which the first critical deadline falls");
    let thresholds = thresholds(setup.region, setup.seed, &trials, control)?;

    (control.step)("what queueing costs");
    let short = FlightProgram::new(setup.region.min(MEASURED_REGION), setup.seed);
    // Sequentially, because they measure wall time.
    let queueing = trials.iter().map(|trial| {
        let stopwatch = |_| Stopwatch::new(short.regions());
        let simulated = observe(&short.system(trial), &strategies(), stopwatch, control.stop);
        let regions = simulated.processors[0].probe.costs();
        RowQueueing { strategy: trial.strategies(), cancel: trial.cancel, regions }
    });
    let queueing = queueing.collect();
    if (control.stop)() {
        return Err(Stopped);
    }

    Ok(KokyuFigures {
        seed: setup.seed,
        region_ns: setup.region.as_nanos(),
        declared_ppm: program.declared_ppm(),
        mean_ppm: program.mean_ppm(),
        offered: program.offered(),
        simulated,
        at_paper_costs,
        steady,
        advertised,
        thresholds,
        slack,
        switched,
        links,
        queueing,
        kernel: None,
        no_kernel: None,
    })
}

/// Simulates trials of a program on all CPUs.
pub(super) fn simulate(
    program: &FlightProgram,
    trials: &[Trial],
    control: ExperimentControl<'_>,
) -> Result<Vec<TrialRow>, Stopped> {
    let strategies = strategies();
    let rows = each(trials, |one| row(program, one, trial(program, one, &strategies, control.stop).stats()));
    if (control.stop)() { Err(Stopped) } else { Ok(rows) }
}

/// Applies `work` to every item, on all CPUs. Returns the results in the order of the items.
pub(super) fn each<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(items.len());
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let worker = || {
            let mut mine = Vec::new();
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(place) else { return mine };
                mine.push((place, work(item)));
            }
        };
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let join = |handle: std::thread::ScopedJoinHandle<'_, Vec<(usize, R)>>| match handle.join() {
            Ok(mine) => mine,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        handles.into_iter().flat_map(join).collect()
    });
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}
