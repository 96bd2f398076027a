//! Regions so short that jobs of the region before them may still be pending in the region after.
//!
//! A scene contains the jobs of one region, or of two across a change. That is complete if no busy window that begins
//! before a region outlasts it: then jobs of at most two regions delay a job in a later region (induction over the
//! regions). If a window may be longer, three regions meet, and the result is unknown.

use alloc::{vec, vec::Vec};

use hyoshi_model::{OperationId, Preemption, System};

use super::cap;
use super::effort::Effort;
use super::fixed::Demand;
use super::holistic;
use super::processor_scene::ProcessorScene;
use super::report::SceneReport;
use super::verdict::{Missing, Verdict};
use super::work::Scene;
use super::workload::{placements, works};
use crate::plan::Plan;

/// Changes proved verdicts to unknown where jobs of three regions may meet.
pub(super) fn mark_unknown(system: &System, plan: &Plan, scenes: &mut [SceneReport], effort: &Effort<'_>) {
    for short in 1..system.epochs.len().saturating_sub(1) {
        let doubtful = outlasted(system, plan, short, effort);
        if !doubtful.contains(&true) {
            continue;
        }
        let name = &system.epochs[short].name;
        let after = |scene: &&mut SceneReport| {
            scene.epoch == short + 1 && !scene.change || scene.epoch == short && scene.change
        };
        for scene in scenes.iter_mut().filter(after) {
            withdraw_proof(system, scene, &doubtful, &Missing::ShortRegion { name: name.clone() });
        }
    }
}

/// For each operation, whether a busy window that delays its jobs may begin before region `short` and end after it.
fn outlasted(system: &System, plan: &Plan, short: usize, effort: &Effort<'_>) -> Vec<bool> {
    let lasts = system.epochs[short + 1].at.since(system.epochs[short].at).as_nanos();
    let works = works(system, plan, Scene::Change(short - 1));
    let sites: Vec<ProcessorScene<'_>> =
        plan.processors.iter().map(|plan| ProcessorScene::new(system, plan, &works, effort)).collect();
    let agreement = holistic::agree(&works, &sites);
    let mut doubtful = vec![false; system.operations.len()];
    for site in &sites {
        let above = cap::above(site, &agreement.releases);
        let demands: Vec<Result<Demand, Missing>> =
            site.parts.iter().map(|part| site.demand(part, &agreement.releases)).collect();
        // By level: all operations of a level have the same answer.
        let mut known: Vec<Option<bool>> = vec![None; usize::from(u8::MAX) + 1];
        for id in &site.plan.operations {
            let level = match site.plan.preemption {
                // A started job delays all others.
                Preemption::None => u8::MAX,
                Preemption::Levels | Preemption::Full => least_urgent(system, plan, short, *id),
            };
            let outlasts = || {
                let window = site.closed_window(level, &demands, &above, &agreement.releases);
                let inside = || site.parts.iter().filter(|part| part.best <= level);
                let gone = |id: OperationId| agreement.finish[id.index()].is_some_and(|finish| finish < lasts);
                !window.is_ok_and(|window| window < lasts) || !inside().all(|part| gone(part.operation))
            };
            doubtful[id.index()] = *known[usize::from(level)].get_or_insert_with(outlasts);
        }
    }
    // A triggered job is not better than the job that triggers it.
    loop {
        let follows = |id: &OperationId| {
            let predecessors = system.operation(*id).trigger.predecessors();
            !doubtful[id.index()] && predecessors.iter().any(|from| doubtful[from.index()])
        };
        let next: Vec<OperationId> = system.operation_ids().filter(follows).collect();
        if next.is_empty() {
            return doubtful;
        }
        next.into_iter().for_each(|id| doubtful[id.index()] = true);
    }
}

/// The least urgent level that an operation's jobs have in the region or the next.
fn least_urgent(system: &System, plan: &Plan, short: usize, id: OperationId) -> u8 {
    let places = [short, short + 1].into_iter().flat_map(|epoch| placements(system, plan, epoch, id));
    places.map(|place| place.critical.level.max(place.other.level)).max().unwrap_or(u8::MAX)
}

fn withdraw_proof(system: &System, scene: &mut SceneReport, doubtful: &[bool], why: &Missing) {
    for processor in &mut scene.processors {
        for one in processor.operations.iter_mut().filter(|one| doubtful[one.operation.index()]) {
            (one.bound_ns, one.slack_ns) = (None, None);
            one.alone.clear();
            if one.verdict.is_proved() {
                one.verdict = Verdict::unknown(why.clone());
            }
        }
        let unproved = processor.operations.iter().find(|one| !one.verdict.is_proved());
        if let (true, Some(one)) = (processor.verdict.is_proved(), unproved) {
            processor.verdict = Verdict::unknown(Missing::Operation { name: one.name.clone() });
            processor.first = Some(one.name.clone());
        }
    }
    for chain in &mut scene.chains {
        let path = system.chains.iter().find(|one| one.name == chain.name).map_or(&[][..], |one| &one.path);
        if path.iter().any(|id| doubtful[id.index()]) {
            (chain.bound_ns, chain.slack_ns) = (None, None);
            chain.stages.clear();
            if chain.verdict.is_proved() {
                chain.verdict = Verdict::unknown(why.clone());
            }
        }
    }
}
