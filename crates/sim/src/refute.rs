//! Simulates the cases that no analysis decides: if a behaviour that the file allows misses, the verdict is *fails* and
//! has a counterexample.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use hyoshi_model::{Instant, OperationId, Span, System};
use hyoshi_sched::analysis::{Miss, behaviour, numbers, undecided};
use hyoshi_sched::{Plan, Report, Strategies};
use hyoshi_trace::{DispatchDecision, JobEnd, JobOutcome, Probe, TraceEvent};

use crate::simulate;

/// Total number of simulated jobs, and of operations in generated behaviours: about a second. The same system always
/// has the same verdicts.
const MOST_JOBS: u64 = 1_000_000;

/// Simulates behaviours of the regions with unknown verdicts, and changes those that miss to *fails*.
///
/// `keep_on` is called before each behaviour; false ends the search. Operations that the file's own plan merges into
/// fewer levels stay unknown: a region alone would have another plan.
pub fn refute(
    system: &System,
    plan: &Plan,
    strategies: &Strategies,
    report: &mut Report,
    mut keep_on: impl FnMut() -> bool,
) {
    let merged = plan.processors.iter().any(|one| one.merged > 0);
    let regions = 0..system.epochs.len();
    let mut wanted: Vec<BTreeSet<Kind>> =
        regions.clone().map(|region| undecided(system, report, region).into_iter().collect()).collect();
    let mut misses: Vec<Miss> = Vec::new();
    let mut left = MOST_JOBS;
    'search: for region in regions {
        if merged && region > 0 {
            break;
        }
        for number in numbers(system, region) {
            // The file itself has all regions.
            let done = if number == 0 { wanted.iter().all(BTreeSet::is_empty) } else { wanted[region].is_empty() };
            if done {
                break;
            }
            if merged && number > 0 && system.epochs.len() > 1 {
                break 'search;
            }
            if left == 0 || !keep_on() {
                break 'search;
            }
            // Building a behaviour costs as much as simulating a job of each operation.
            left = left.saturating_sub(system.operations.len() as u64);
            let Some(tried) = behaviour(system, region, number) else { continue };
            let Ok(plan) = Plan::new(&tried, strategies) else { continue };
            let watch = RefCell::new(FirstMisses { left, missed: BTreeMap::new() });
            let until = Instant::ZERO + tried.duration;
            simulate(&tried, &plan, until, |_| WatchProbe(&watch), |_| watch.borrow().left > 0);
            let watch = watch.into_inner();
            left = watch.left;
            for end in watch.missed.values() {
                // A single region is the first one.
                let region = if number == 0 { usize::from(end.epoch) } else { region };
                if wanted[region].remove(&(end.job.operation, end.critical)) {
                    misses.push(miss(region, number, end));
                }
            }
        }
    }
    report.refute(system, &misses);
}

/// The critical or the non-critical jobs of an operation.
type Kind = (OperationId, bool);

fn miss(region: usize, behaviour: u32, end: &JobEnd) -> Miss {
    let late = (end.outcome == JobOutcome::Missed).then(|| end.end.since(end.deadline));
    Miss {
        region,
        operation: end.job.operation,
        critical: end.critical,
        job: end.job.number,
        at: end.end.since(Instant::ZERO),
        late: late.filter(|late| *late > Span::ZERO),
        behaviour,
    }
}

/// The first job of each kind and region that is not in time.
struct FirstMisses {
    left: u64,
    missed: BTreeMap<(Kind, u16), JobEnd>,
}

struct WatchProbe<'a>(&'a RefCell<FirstMisses>);

impl Probe for WatchProbe<'_> {
    fn event(&mut self, _: Instant, event: TraceEvent) {
        let TraceEvent::Decision(DispatchDecision::End(end)) = event else { return };
        let mut watch = self.0.borrow_mut();
        watch.left = watch.left.saturating_sub(1);
        if end.outcome != JobOutcome::Made {
            watch.missed.entry(((end.job.operation, end.critical), end.epoch)).or_insert(end);
        }
    }
}
