//! For each operation, class and region, the proved bound of the jobs that are released there.
//!
//! Such a job may still run in the next region, and beside jobs of the previous one. Its bound is therefore the
//! greatest of the region's and of those of the changes around it. If a previous region has no bound, its jobs may
//! still wait: then this region has none either.

use hyoshi_model::{OperationId, Span, System};
use hyoshi_sched::Verdict;
use hyoshi_sched::analysis::{ChainReport, OperationReport, Requirement, SceneReport};

use crate::input::Analysis;
use crate::summary::BoundSummary;

/// A proved bound, or why there is none.
pub(crate) type KnownBound = Result<Span, String>;

/// Bounds of a system's operations and chains.
pub(crate) struct ProvedBounds {
    /// For each operation, of its other jobs and of its critical ones, for each region.
    operations: Vec<[Vec<KnownBound>; 2]>,
    /// For each chain: on its latency, and on its reaction.
    chains: Vec<[KnownBound; 2]>,
    /// For each chain: the bounds on the latency up to each operation of its path.
    stages: Vec<Vec<KnownBound>>,
}

impl ProvedBounds {
    /// The bounds of an analysis; those of chains for the first `reached` regions.
    pub fn of(system: &System, analysis: &Analysis<'_>, reached: usize) -> ProvedBounds {
        let report = match analysis {
            Analysis::Done(report) => report,
            Analysis::LeftOut(why) => return ProvedBounds::none(system, why),
        };
        let mut scenes_of: Vec<[Vec<(&SceneReport, &OperationReport)>; 2]> =
            vec![Default::default(); system.operations.len()];
        for (scene, _, one) in report.operations() {
            if let Some(classes) = scenes_of.get_mut(one.operation.index()) {
                classes[usize::from(one.critical)].push((scene, one));
            }
        }
        let epochs = system.epochs.len();
        let operations = scenes_of.iter().map(|classes| classes.each_ref().map(|scenes| regions(epochs, scenes)));
        let mut bounds = ProvedBounds { operations: operations.collect(), ..ProvedBounds::none(system, OFF) };
        for (index, chain) in bounds.chains.iter_mut().enumerate() {
            let of = |which: fn(Requirement) -> bool| {
                let scenes = report.scenes.iter().filter(|scene| scene.epoch < reached);
                let all = scenes.flat_map(|scene| &scene.chains);
                let mut these = all.filter(|one| one.chain.index() == index && which(one.requirement)).map(reported);
                let first = these.next().unwrap_or_else(|| Err(NO_REQUIREMENT.into()));
                these.fold(first, greater)
            };
            // A bound from the input to the finish also bounds the age of the data.
            let latency = of(|requirement| requirement == Requirement::Deadline);
            let latency = latency.or_else(|why| of(|requirement| requirement == Requirement::MaxAge).map_err(|_| why));
            *chain = [latency, of(|requirement| requirement == Requirement::MaxReaction)];
        }
        for (index, stages) in bounds.stages.iter_mut().enumerate() {
            for (position, stage) in stages.iter_mut().enumerate() {
                let of = |requirement| {
                    let all =
                        report.scenes.iter().filter(|scene| scene.epoch < reached).flat_map(|scene| &scene.chains);
                    let these = all.filter(|one| one.chain.index() == index && one.requirement == requirement);
                    let first = these.map(|one| stage_bound(one, position)).reduce(greater);
                    first.unwrap_or_else(|| Err(NO_REQUIREMENT.into()))
                };
                *stage = of(Requirement::Deadline).or_else(|why| of(Requirement::MaxAge).map_err(|_| why));
            }
        }
        bounds
    }

    fn none(system: &System, why: &str) -> ProvedBounds {
        let none = || vec![Err(why.to_string()); system.epochs.len()];
        ProvedBounds {
            operations: system.operations.iter().map(|_| [none(), none()]).collect(),
            chains: system.chains.iter().map(|_| [Err(why.to_string()), Err(why.to_string())]).collect(),
            stages: system.chains.iter().map(|chain| vec![Err(why.to_string()); chain.path.len()]).collect(),
        }
    }

    /// The bound on the response of the jobs of one class that are released in a region.
    pub fn operation(&self, operation: OperationId, critical: bool, epoch: usize) -> &KnownBound {
        &self.operations[operation.index()][usize::from(critical)][epoch]
    }

    /// The bounds on a chain's latency and reaction.
    pub fn chain(&self, index: usize) -> &[KnownBound; 2] {
        &self.chains[index]
    }

    /// The bounds on a chain's latency up to each operation of its path.
    pub fn stages(&self, index: usize) -> &[KnownBound] {
        &self.stages[index]
    }
}

const NO_REQUIREMENT: &str = "it has no requirement";

const OFF: &str = "the operation is disabled";

/// For each region the bound of the jobs released in it, from the bounds of the scenes.
fn regions(many: usize, scenes: &[(&SceneReport, &OperationReport)]) -> Vec<KnownBound> {
    let mut regions: Vec<Option<KnownBound>> = vec![None; many];
    let mut unbounded: Option<String> = None;
    let also = |region: Option<&mut Option<KnownBound>>, known: &KnownBound| {
        if let Some(region) = region {
            *region = Some(region.take().map_or_else(|| known.clone(), |before| greater(before, known.clone())));
        }
    };
    for &(scene, one) in scenes {
        let mut known = match &unbounded {
            Some(name) => Err(format!("jobs of {name}, where it has no bound, may still wait")),
            None => operation_bound(one),
        };
        if known.is_err() && unbounded.is_none() {
            unbounded = Some(scene.name.clone());
        }
        if scene.change {
            known = known.map_err(|why| format!("at the change from {}: {why}", scene.name));
            also(regions.get_mut(scene.epoch), &known);
            also(regions.get_mut(scene.epoch + 1), &known);
        } else {
            also(regions.get_mut(scene.epoch), &known);
        }
    }
    regions.into_iter().map(|known| known.unwrap_or_else(|| Err(OFF.into()))).collect()
}

fn greater(one: KnownBound, other: KnownBound) -> KnownBound {
    Ok(one?.max(other?))
}

/// Some analyses prove that a deadline is met and nothing closer: then it is the bound.
fn operation_bound(one: &OperationReport) -> KnownBound {
    match one.bound_ns {
        Some(bound) => Ok(Span::from_nanos(bound)),
        None if one.verdict.is_proved() => Ok(Span::from_nanos(one.deadline_ns)),
        None => Err(reason(&one.verdict)),
    }
}

/// A bound on times of a chain, beside the greatest observed time.
pub(crate) fn chain_bound(bound: &KnownBound, most: Option<Span>) -> BoundSummary {
    BoundSummary {
        bound_ns: bound.as_ref().ok().map(|bound| bound.as_nanos()),
        known: usize::from(bound.is_ok()),
        of: 1,
        missing: bound.clone().err(),
        exceeded: bound.as_ref().is_ok_and(|bound| most.is_some_and(|most| most > *bound)),
    }
}

fn stage_bound(one: &ChainReport, position: usize) -> KnownBound {
    match one.stages.get(position) {
        Some(stage) => Ok(Span::from_nanos(stage.by_ns)),
        None => Err(reported(one).err().unwrap_or_else(|| "no bound by stage".into())),
    }
}

fn reported(one: &ChainReport) -> KnownBound {
    match one.bound_ns {
        Some(bound) => Ok(Span::from_nanos(bound)),
        None if one.verdict.is_proved() => Ok(Span::from_nanos(one.limit_ns)),
        None => Err(reason(&one.verdict)),
    }
}

fn reason(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Fails { why, .. } => why.to_string(),
        Verdict::Unknown { missing, .. } => missing.to_string(),
        Verdict::Proved => String::new(),
    }
}
