//! `docs/json.md` documents every key of the output.

use std::collections::BTreeSet;
use std::path::Path;

use hyoshi_model::Span;
use hyoshi_reproduce::broker;
use hyoshi_reproduce::broker::arbitration::ServedPeriods;
use hyoshi_reproduce::broker::kernel::{Arbitrated, Cost, KernelExperiments, Openness, TrackedOnKernel};
use hyoshi_reproduce::dt_ec::table::{HostRow, PaperRow};
use hyoshi_reproduce::dt_ec::workload::{CommunicationModel, Topology, Workload};
use hyoshi_reproduce::dt_ec::{self, DtEcKernel, DtEcReproduction, MeasuredWorkload};
use hyoshi_reproduce::fcs::kernel::FcsKernel;
use hyoshi_reproduce::fcs::overhead::LoopOverhead;
use hyoshi_reproduce::fcs::workload::FcsVariant;
use hyoshi_reproduce::fcs::{self, FcsReproduction};
use hyoshi_reproduce::kokyu::{Reproduced, Setup, kernel, run};
use hyoshi_reproduce::{ExperimentControl, Length};
use serde_json::Value;

fn keys(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            into.insert(key.clone());
            keys(value, into);
        }),
        Value::Array(values) => values.iter().for_each(|value| keys(value, into)),
        _ => {}
    }
}

/// Asserts that `docs/json.md` has each key of an object.
fn is_documented(written: &Value) {
    let mut keys_of_it = BTreeSet::new();
    keys(written, &mut keys_of_it);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let doc = std::fs::read_to_string(path).unwrap();
    let documented = |key: &&String| doc.lines().any(|line| line.starts_with(&format!("| `{key}` ")));
    let missing: Vec<&String> = keys_of_it.iter().filter(|key| !documented(key)).collect();
    assert!(missing.is_empty(), "docs/json.md does not document {missing:?}");
}

const CONTROL: ExperimentControl<'_> = ExperimentControl { step: &|_| (), stop: &|| false };

#[test]
fn every_key_of_kokyu_is_documented() {
    let mut figures = run(Setup { region: Span::from_secs(1), seed: 1 }, CONTROL).unwrap();
    // The additional keys of a run on the kernel.
    figures.kernel = Some(kernel::KernelTrials {
        region_ns: 1,
        cap_ppm: 1,
        real_time: true,
        offered: Vec::new(),
        rows: figures.simulated.clone(),
        simulated: Vec::new(),
        queueing: figures.queueing.clone(),
        notes: Vec::new(),
    });
    is_documented(&serde_json::to_value(Reproduced::judge(figures)).unwrap());
}

#[test]
fn every_key_of_the_broker_is_documented() {
    let mut figures = broker::run(CONTROL).unwrap();
    let cost = Cost {
        configuration: "two-way",
        reports: 1,
        cpu_ns: 1,
        latency_ns: None,
        median_latency_ns: None,
        paper_cpu_ns: 1,
        paper_latency_ns: 1,
    };
    let mut stages = figures.arbitrated.clone();
    stages[0].served.push(ServedPeriods::default());
    let soft = Arbitrated { scheduler: "window", cpu: Some(0), spinners: 1, stages };
    let openness = Openness {
        reports: 1,
        consumed_ns: 1,
        asked_ns: 1,
        asked_twice_ns: 1,
        advice: 1,
        policies: Vec::new(),
        lived: true,
    };
    figures.kernel = Some(KernelExperiments {
        length: Length::Usual,
        overhead: Some(vec![cost]),
        tracked: Some(TrackedOnKernel { spinners: 1, own_process: true, tracked: figures.tracked.clone() }),
        soft: Some(soft),
        hard: None,
        openness: Some(openness),
        notes: Vec::new(),
    });
    is_documented(&serde_json::to_value(broker::BrokerReproduction::judge(figures)).unwrap());
}

#[test]
fn every_key_of_threads_and_events_is_documented() {
    let mut figures = dt_ec::simulate();
    let row = HostRow {
        host: "client".into(),
        jobs: 1,
        missed: 0,
        dropped: 0,
        execution_ns: 1,
        idle_ns: 1,
        overhead_ns: [1; 3],
        parts: Default::default(),
        threads: 1,
        paper: Some(PaperRow { execution_ns: 1, idle_ns: 1, overhead_ns: [1; 3] }),
    };
    let workload = Workload::paper(Topology::Chain, CommunicationModel::Threads);
    figures.kernel = Some(DtEcKernel {
        example: figures.simulated.clone(),
        workloads: vec![MeasuredWorkload { workload, hosts: vec![row] }],
        ..DtEcKernel::default()
    });
    is_documented(&serde_json::to_value(DtEcReproduction::judge(figures)).unwrap());
}

#[test]
fn every_key_of_feedback_control_is_documented() {
    let mut figures = fcs::run(1, CONTROL).unwrap();
    let overhead = LoopOverhead {
        variant: FcsVariant::FcU,
        runs: 1,
        utilisation_ppm: 1,
        interval_ppm: 1,
        besides_jobs_ns: 1,
        client_cost_ns: 1,
        cost_ns: 1,
        cost_interval_ns: 1,
        overhead_ppm: 1.0,
        paper_percent: Some(0.4),
    };
    let runs = figures.simulated.clone();
    figures.kernel = Some(FcsKernel { runs, overhead: vec![overhead], ..FcsKernel::default() });
    is_documented(&serde_json::to_value(FcsReproduction::judge(figures)).unwrap());
}
