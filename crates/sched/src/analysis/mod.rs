//! Whether deadlines are met: proved, fails, or unknown, with a bound and the analysis named.
//!
//! [`analyse`] takes a system and its plan and returns a [`Report`]. For each epoch, and each change
//! from one to the next, it flattens the system (`workload`), bounds releases and responses of all
//! processors together (`holistic`), level by level (`processor`): FIFO levels by response times
//! (`fixed`), levels by key by processor demand (`demand`). What it says *fails* comes from a
//! behaviour that the file allows (`failing`), never from a bound that is merely exceeded.
//!
//! What no analysis here covers is unknown, and the verdict names what is missing.

mod blocking;
mod cap;
mod chain;
mod demand;
mod failing;
mod fixed;
mod holistic;
mod judge;
mod method;
mod processor;
mod release;
mod report;
mod utilisation;
mod verdict;
mod workload;

use alloc::vec::Vec;

use hyoshi_model::{ChainId, System};

pub use method::{Assumption, Method, MethodNote};
pub use report::{
    ChainReport, Counted, Load, OperationReport, Outcome, ProcessorReport, Report, Requirement, SceneReport,
    UtilisationBound,
};
pub use utilisation::Inapplicable;
pub use verdict::{Failure, Missing, Verdict};

use crate::plan::Plan;
use processor::Site;
use workload::{Scene, works};

/// Analyses a system under a plan made for it.
pub fn analyse(system: &System, plan: &Plan) -> Report {
    let mut scenes = Vec::new();
    for epoch in 0..system.epochs.len() {
        scenes.push(scene(system, plan, Scene::Epoch(epoch)));
        // A change whose worse side is one of its sides needs no analysis of its own.
        if epoch + 1 < system.epochs.len() {
            let across = works(system, plan, Scene::Change(epoch));
            if [epoch, epoch + 1].into_iter().all(|side| works(system, plan, Scene::Epoch(side)) != across) {
                scenes.push(scene(system, plan, Scene::Change(epoch)));
            }
        }
    }
    judge::report(system, scenes)
}

fn scene(system: &System, plan: &Plan, scene: Scene) -> SceneReport {
    let works = works(system, plan, scene);
    let sites: Vec<Site<'_>> = plan.processors.iter().map(|plan| Site::new(system, plan, &works)).collect();
    let agreement = holistic::agree(&works, &sites);
    let processors: Vec<ProcessorReport> = sites.iter().map(|site| judge::processor(scene, site, &agreement)).collect();
    let delivers = judge::delivers(system, &works, &agreement, &processors);
    let chains = (0..system.chains.len() as u32).map(ChainId);
    let chains = chains.flat_map(|id| chain::requirements(system, scene, id, &works, &agreement, &delivers)).collect();
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
