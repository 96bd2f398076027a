//! Schedulability analysis: deadlines are proved, fail, or are unknown, with a bound and the name of the analysis.
//!
//! [`analyse`] returns the [`Report`] on a system and its plan. For each epoch, and each change from one to the
//! next, it flattens the system (`workload`), bounds releases and responses of all processors together (`holistic`),
//! level by level (`processor`): FIFO levels by response times (`fixed`), levels by key by processor demand (`demand`).
//! A verdict *fails* is from a behaviour that the file allows (`failures`), never from a bound that is merely exceeded.
//!
//! If no analysis here covers a case, it is unknown, and the verdict names what is missing.

mod behaviour;
mod blocking;
mod cap;
mod chain;
mod contract_limits;
mod counterexample;
mod demand;
mod effort;
mod failures;
mod fixed;
mod gate;
mod hard_cap;
mod holistic;
mod island;
mod join;
mod judge;
mod lateness;
mod merge;
mod method;
mod miss_free;
mod mixed_order;
mod overhead;
mod part;
mod processor;
mod processor_scene;
mod release;
mod report;
mod sensitivity;
mod short_regions;
mod utilisation;
mod verdict;
mod work;
mod workload;

use alloc::vec::Vec;

use hyoshi_model::{ChainId, FeedbackLoop, System};

pub use behaviour::{Miss, behaviour, numbers, undecided};
pub use counterexample::{Counterexample, Subject, counterexamples};
pub use effort::{AnalysisOptions, Bounds, Progress};
pub use method::{AnalysisMethod, Assumption, MethodNote};
pub use report::{
    AloneReport, CarrierReport, ChainReport, ChainStage, CountedFrom, NoSetPoint, OperationReport, Outcome,
    OutcomeScope, ProcessorReport, Report, Requirement, SceneReport,
};
pub use sensitivity::{OperationMargin, Scaling, Sensitivity, SensitivitySearch, sensitivity};
pub use utilisation::{Inapplicable, Load, UtilisationBound};
pub use verdict::{FailureReason, Missing, Verdict};

use crate::plan::{Plan, ProcessorPlan};
use effort::Effort;
use processor_scene::ProcessorScene;
use work::Scene;
use workload::{causes_first, works};

/// Analyses a system under a plan made for it, with the response bounds that are quick to find.
pub fn analyse(system: &System, plan: &Plan) -> Report {
    analyse_with(system, plan, AnalysisOptions { bounds: Bounds::Quick, progress: &|_| true })
}

/// Analyses a system under a plan made for it.
pub fn analyse_with(system: &System, plan: &Plan, options: AnalysisOptions<'_>) -> Report {
    let effort = &Effort::new(options);
    let mut scenes = scenes(system, plan, effort);
    for stays in [stays_with_the_first, stays_with_the_last].into_iter().filter(|_| switches(plan)) {
        let alone = stays(plan);
        for one in scenes.iter_mut().filter(|one| !one.change) {
            note_alone(one, &scene(system, &alone, Scene::Epoch(one.epoch), effort));
        }
    }
    if system.hosts.len() > 1 && system.hosts.iter().any(|host| host.clock_error.is_some_and(|error| !error.is_zero()))
    {
        blame_clocks(system, plan, &mut scenes, effort);
    }
    judge::report(system, scenes)
}

/// For each feedback loop, in their order, the utilisation of its processor up to which no job is late in any epoch, at
/// all rates and execution times: in parts per million of the CPU. It does not depend on the loops' set points.
pub fn set_points(system: &System, plan: &Plan) -> Vec<Result<u64, NoSetPoint>> {
    let effort = &Effort::new(AnalysisOptions { bounds: Bounds::None, progress: &|_| true });
    let works: Vec<_> = (0..system.epochs.len()).map(|epoch| works(system, plan, Scene::Epoch(epoch))).collect();
    let set_point = |one: &FeedbackLoop| {
        let plan = &plan.processors[one.processor.index()];
        NoSetPoint::least(system.epochs.iter().zip(&works).map(|(epoch, works)| {
            (epoch.name.as_str(), miss_free::bound(&ProcessorScene::new(system, plan, works, effort)))
        }))
    };
    system.feedback.iter().map(set_point).collect()
}

/// Names the clocks where only their errors prevent a proof.
fn blame_clocks(system: &System, plan: &Plan, scenes: &mut [SceneReport], effort: &Effort<'_>) {
    let unclear = |verdict: &Verdict| matches!(verdict, Verdict::Unknown { .. });
    let operations =
        |scene: &SceneReport| scene.processors.iter().flat_map(|one| &one.operations).any(|one| unclear(&one.verdict));
    if !scenes.iter().any(|scene| operations(scene) || scene.chains.iter().any(|chain| unclear(&chain.verdict))) {
        return;
    }
    let exact = system.clone().with(|system| system.hosts.iter_mut().for_each(|host| host.clock_error = None));
    let exact = self::scenes(&exact, plan, effort);
    for scene in scenes {
        let Some(exact) = exact.iter().find(|exact| (exact.epoch, exact.change) == (scene.epoch, scene.change)) else {
            continue;
        };
        let blame = |verdict: &mut Verdict, exact: &Verdict| {
            if unclear(verdict) && exact.is_proved() {
                *verdict = Verdict::unknown(Missing::ClockErrors);
            }
        };
        for (one, exact) in scene.processors.iter_mut().zip(&exact.processors) {
            one.operations
                .iter_mut()
                .zip(&exact.operations)
                .for_each(|(one, exact)| blame(&mut one.verdict, &exact.verdict));
        }
        let requirement = |one: &ChainReport| (one.chain, one.requirement);
        for one in &mut scene.chains {
            let exact = exact.chains.iter().find(|exact| requirement(exact) == requirement(one));
            exact.into_iter().for_each(|exact| blame(&mut one.verdict, &exact.verdict));
        }
    }
}

/// Each epoch and each change between two, under any switches of strategies.
///
/// A change is skipped only if it changes nothing. If one side is the worse in every parameter, the scene of the change
/// equals that side, and it bounds the jobs of the lighter side: the first ones wait for leftovers of the region
/// before, the last ones for operations of the next region.
fn scenes(system: &System, plan: &Plan, effort: &Effort<'_>) -> Vec<SceneReport> {
    let mut scenes = Vec::new();
    for epoch in 0..system.epochs.len() {
        scenes.push(scene(system, plan, Scene::Epoch(epoch), effort));
        if epoch + 1 < system.epochs.len() {
            let [before, after] = [epoch, epoch + 1].map(|side| works(system, plan, Scene::Epoch(side)));
            if before != after || system.epochs[epoch].environment.links != system.epochs[epoch + 1].environment.links {
                scenes.push(scene(system, plan, Scene::Change(epoch), effort));
            }
        }
    }
    short_regions::mark_unknown(system, plan, &mut scenes, effort);
    scenes
}

fn switches(plan: &Plan) -> bool {
    plan.processors.iter().any(|processor| processor.overload.is_some())
}

/// No processor ever leaves its first strategy.
fn stays_with_the_first(plan: &Plan) -> Plan {
    let first = |processor: &ProcessorPlan| ProcessorPlan { overload: None, ..processor.clone() };
    Plan { processors: plan.processors.iter().map(first).collect() }
}

/// Every processor with two strategies is always in overload.
fn stays_with_the_last(plan: &Plan) -> Plan {
    let last = |processor: &ProcessorPlan| processor.overload.as_deref().unwrap_or(processor).clone();
    Plan { processors: plan.processors.iter().map(last).collect() }
}

/// Adds the results without switches of strategies to the operations of processors with two.
fn note_alone(scene: &mut SceneReport, alone: &SceneReport) {
    let both = scene.processors.iter_mut().zip(&alone.processors);
    for (across, alone) in both.filter(|(across, _)| across.overload.is_some()) {
        for across in &mut across.operations {
            let same = |one: &&OperationReport| (one.operation, one.critical) == (across.operation, across.critical);
            let Some(one) = alone.operations.iter().find(same) else { continue };
            across.alone.push(AloneReport {
                strategy: alone.strategy.clone(),
                bound_ns: one.bound_ns,
                slack_ns: one.slack_ns,
                verdict: one.verdict.clone(),
                method: one.method,
            });
        }
    }
}

fn scene(system: &System, plan: &Plan, scene: Scene, effort: &Effort<'_>) -> SceneReport {
    let works = works(system, plan, scene);
    let sites: Vec<ProcessorScene<'_>> =
        plan.processors.iter().map(|plan| ProcessorScene::new(system, plan, &works, effort)).collect();
    let agreement = holistic::agree(&works, &sites);
    let coming = failures::CertainJobs::new(system, &works, &agreement);
    let processors: Vec<ProcessorReport> =
        sites.iter().map(|site| judge::processor(scene, site, &agreement, &coming)).collect();
    let lost = judge::lost(system, &works, &agreement, &processors);
    let chosen = match works.iter().any(|work| work.chosen) {
        true => judge::chosen(&works, &causes_first(system)),
        false => Vec::new(),
    };
    let chains = (0..system.chains.len() as u32).map(ChainId);
    let around = chain::Surroundings {
        system,
        plan,
        scene,
        works: &works,
        agreement: &agreement,
        coming: &coming,
        lost: &lost,
        chosen: &chosen,
    };
    let chains = chains.flat_map(|id| around.requirements(id)).collect();
    let (Scene::Epoch(epoch) | Scene::Change(epoch)) = scene;
    SceneReport {
        epoch,
        name: system.epochs[epoch].name.clone(),
        change: matches!(scene, Scene::Change(_)),
        at_ns: system.epochs[epoch].at.as_nanos(),
        processors,
        chains,
    }
}
