//! A behaviour that misses a deadline, as a system that `sim` can replay: for each verdict *fails*.
//!
//! The failures of `failures` and `chain` are from behaviours that the file allows. Jobs have their worst case (if that
//! alone is too long, others have their best), no release is late, every event has its longest delay, phases are as
//! written, and the region lasts. A miss found by simulation is from the simulated [`behaviour`](super::behaviour()).
//! [`counterexamples`] puts exactly that into its own system: one epoch, fixed execution times, no jitter, fixed
//! delays, and a duration within which a job of the failing subject is late, unfinished, or lost.

use alloc::{string::String, vec, vec::Vec};

use hyoshi_model::{ExecutionTime, OperationId, Setting, Span, System};

use super::behaviour::{behaviour, only_region};
use super::report::{ChainReport, OperationReport, OutcomeScope, ProcessorReport, Report, SceneReport};
use super::verdict::{FailureReason, Verdict};

/// The subject that misses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Jobs of an operation.
    Operation {
        /// The operation.
        operation: OperationId,
        /// Whether its critical jobs miss, or the others.
        critical: bool,
        /// Its name.
        name: String,
    },
    /// Jobs of some operation of a processor.
    Processor {
        /// Critical ones.
        critical: bool,
        /// Its operations.
        operations: Vec<OperationId>,
        /// Its name.
        name: String,
    },
    /// A chain's outputs.
    Chain {
        /// Its index.
        chain: usize,
        /// Its name.
        name: String,
    },
}

impl Subject {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Subject::Operation { name, .. } | Subject::Processor { name, .. } | Subject::Chain { name, .. } => name,
        }
    }

    /// The kind of the subject.
    pub fn kind(&self) -> &'static str {
        match self {
            Subject::Operation { .. } => "operation",
            Subject::Processor { .. } => "processor",
            Subject::Chain { .. } => "chain",
        }
    }
}

/// A system in which the subject misses.
#[derive(Clone, Debug, PartialEq)]
pub struct Counterexample {
    /// The subject.
    pub subject: Subject,
    /// How it fails.
    pub why: FailureReason,
    /// The name of its epoch.
    pub region: String,
    /// Whether it decides the outcome.
    pub counts: bool,
    /// The behaviour. Its duration is enough if the job that misses must arrive; if it first waits for others, a
    /// [`longer`](Counterexample::lengthen) one may be needed.
    pub system: System,
}

impl Counterexample {
    /// Doubles the duration; false when that is no longer useful.
    pub fn lengthen(&mut self) -> bool {
        let longer = self.system.duration.checked_mul(2).filter(|span| *span < MOST);
        if let Some(longer) = longer {
            self.system = self.system.clone().with(|system| system.duration = longer);
        }
        longer.is_some()
    }
}

/// At most a year is simulated.
const MOST: Span = Span::from_secs(365 * 86_400);

/// One for each failure in the report, those that decide the outcome first.
pub fn counterexamples<'a>(system: &'a System, report: &'a Report) -> impl Iterator<Item = Counterexample> + 'a {
    let all = [true, false].into_iter().flat_map(move |counts| {
        let scenes = report.scenes.iter().filter(|scene| !scene.change);
        scenes.flat_map(move |scene| failing(system, report, scene, counts))
    });
    all.map(move |failing| Counterexample {
        system: shown(system, &failing),
        region: failing.scene.name.clone(),
        subject: failing.subject,
        why: failing.why,
        counts: failing.counts,
    })
}

struct Failing<'a> {
    scene: &'a SceneReport,
    subject: Subject,
    why: FailureReason,
    /// The time within which it is late if its jobs arrive.
    needs: Span,
    /// The operations with their worst case; the others have their best. `None`: all.
    slow: Option<Vec<OperationId>>,
    counts: bool,
}

fn failing<'a>(system: &System, report: &Report, scene: &'a SceneReport, counts: bool) -> Vec<Failing<'a>> {
    let everything = report.counted == OutcomeScope::Everything;
    let settings = &system.epochs[scene.epoch].settings;
    let mut found = Vec::new();
    for processor in &scene.processors {
        let counted = |one: &OperationReport| everything || one.critical;
        for one in processor.operations.iter().filter(|one| counted(one) == counts) {
            let Verdict::Fails { why } = &one.verdict else { continue };
            let critical = one.critical;
            let subject = Subject::Operation { operation: one.operation, critical, name: one.name.clone() };
            // Too long by itself: the others need not interfere.
            let alone = matches!(why, FailureReason::LongerThanDeadline { .. });
            let needs = match why {
                FailureReason::Seen { at, .. } => sum([*at, MOMENT]),
                _ => until_late(system, settings, one, why),
            };
            let why = why.clone();
            found.push(Failing { scene, subject, why, needs, slow: alone.then(|| vec![one.operation]), counts });
        }
        if let (Verdict::Fails { why }, true) = (&processor.verdict, processor.counts(report.counted) == counts)
            && let Some(needs) = whole(settings, system, processor, why)
        {
            let critical = matches!(why, FailureReason::Overload { critical: true, .. });
            let operations = processor.operations.iter().map(|one| one.operation).collect();
            let subject = Subject::Processor { critical, operations, name: processor.name.clone() };
            found.push(Failing { scene, subject, why: why.clone(), needs, slow: None, counts });
        }
    }
    for chain in scene.chains.iter().filter(|_| counts) {
        let Verdict::Fails { why } = &chain.verdict else { continue };
        let subject = Subject::Chain { chain: chain.chain.index(), name: chain.name.clone() };
        let slow = Some(system.chains[chain.chain.index()].path.clone());
        let needs = until_output(system, settings, chain);
        found.push(Failing { scene, subject, why: why.clone(), needs, slow, counts });
    }
    found
}

/// The epoch by itself, from the start.
fn shown(system: &System, failing: &Failing<'_>) -> System {
    if let FailureReason::Seen { behaviour: number, .. } = failing.why
        && let Some(seen) = behaviour(system, failing.scene.epoch, number)
    {
        return seen.with(|seen| seen.duration = failing.needs.min(MOST));
    }
    let epoch = &system.epochs[failing.scene.epoch];
    let settings = system.operation_ids().map(|id| {
        let setting = &epoch.settings[id.index()];
        let slow = failing.slow.as_ref().is_none_or(|slow| slow.contains(&id));
        let takes = if slow { setting.wcet } else { setting.bcet.max(Span::from_nanos(1)).min(setting.wcet) };
        Setting { execution_time: ExecutionTime::Fixed(takes), jitter: Span::ZERO, ..setting.clone() }
    });
    let settings = settings.collect();
    system.clone().with(|shown| {
        only_region(shown, failing.scene.epoch, settings);
        shown.duration = failing.needs.min(MOST);
    })
}

fn sum(spans: impl IntoIterator<Item = Span>) -> Span {
    spans.into_iter().fold(Span::ZERO, |sum, span| sum.checked_add(span).unwrap_or(MOST)).min(MOST)
}

const MOMENT: Span = Span::from_millis(1);

/// When the root jobs for which the operation waits have been released.
fn first_release(system: &System, settings: &[Setting], id: OperationId) -> Span {
    let roots = system.operation(id).roots.iter().map(|root| &settings[root.index()]);
    roots.map(|root| sum([root.phase, root.offset])).max().unwrap_or_default()
}

/// When its first job is late, if it has arrived by then: unfinished is late, too.
fn until_late(system: &System, settings: &[Setting], one: &OperationReport, why: &FailureReason) -> Span {
    let setting = &settings[one.operation.index()];
    let finish = match why {
        FailureReason::FirstJobLate { finish, .. } => *finish,
        _ => setting.deadline.span(),
    };
    let release = first_release(system, settings, one.operation);
    sum([release, setting.offset, setting.deadline.span().max(finish), MOMENT])
}

fn until_output(system: &System, settings: &[Setting], chain: &ChainReport) -> Span {
    let path = &system.chains[chain.chain.index()].path;
    let hops = path.iter().flat_map(|id| {
        let setting = &settings[id.index()];
        [setting.slowest, setting.wcet, setting.offset]
    });
    let first = path.iter().map(|id| first_release(system, settings, *id)).max().unwrap_or_default();
    sum(hops.chain([first, Span::from_nanos(chain.limit_ns), MOMENT]))
}

/// The time after which the processor as a whole cannot have kept up; `None` if it is not known to fail as such.
fn whole(settings: &[Setting], system: &System, processor: &ProcessorReport, why: &FailureReason) -> Option<Span> {
    let ids = || processor.operations.iter().map(|one| one.operation);
    let start = ids().map(|id| first_release(system, settings, id)).max().unwrap_or_default();
    let deadline = ids().map(|id| settings[id.index()].deadline.span()).max().unwrap_or_default();
    match why {
        FailureReason::Demand { window, .. } => Some(sum([start, *window, MOMENT])),
        // The excess work piles up, at the latest until queues are full.
        FailureReason::Overload { utilisation_ppm, .. } => {
            let room = ids().map(|id| {
                let (setting, queue) = (&settings[id.index()], &system.operation(id).queue);
                let jobs = u64::from(queue.limit).saturating_add(2).saturating_mul(u64::from(setting.legs));
                setting.wcet.checked_mul(jobs).unwrap_or(MOST)
            });
            let excess_ppm = u128::from(utilisation_ppm.saturating_sub(1_000_000).max(1));
            let piled = u128::from(sum(room).as_nanos()) * 1_000_000 / excess_ppm;
            Some(sum([start, deadline, Span::from_nanos(u64::try_from(piled).unwrap_or(u64::MAX)), MOMENT]))
        }
        _ => None,
    }
}
