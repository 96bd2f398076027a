//! `hyoshi reproduce`, from the command line.

use crate::common;

use common::{Place, alone};
use hyoshi_model::Span;
use hyoshi_reproduce::fcs::experiments::FcsExperiment;
use hyoshi_reproduce::fcs::kernel::FcsKernel;
use hyoshi_reproduce::fcs::workload::{FcsVariant, FcsWorkload, SAMPLING_PERIOD};
use hyoshi_reproduce::nodes::NodeProgram;
use hyoshi_reproduce::{ExperimentControl, Length};
use serde_json::Value;

const SHORT: &str = "reproduce kokyu --sim-only --region 2s";

/// What is measured with the wall clock, or told of it.
fn without_times(mut json: Value) -> Value {
    json.as_object_mut().unwrap().remove("queueing").unwrap();
    for claim in json["claims"].as_array_mut().unwrap() {
        if ["K9", "K10"].contains(&claim["id"].as_str().unwrap()) {
            claim.as_object_mut().unwrap().retain(|key, _| key != "verdict" && key != "reason");
        }
    }
    json
}

#[test]
fn every_claim_of_the_paper_is_judged_and_every_trial_shown() {
    let place = Place::new();
    let json = place.hyoshi(&format!("{SHORT} --no-report --format json")).exits(0).json();
    let claims = json["claims"].as_array().unwrap();
    let ids: Vec<&str> = claims.iter().map(|claim| claim["id"].as_str().unwrap()).collect();
    assert_eq!(ids, (1..=13).map(|number| format!("K{number}")).collect::<Vec<_>>());
    for claim in claims {
        let verdict = claim["verdict"].as_str().unwrap();
        assert!(["reproduced", "in-part", "not-reproduced"].contains(&verdict), "{claim}");
        assert!(!claim["reason"].as_str().unwrap().is_empty(), "{claim}");
        assert_eq!(claim["on_kernel"], Value::Null);
    }
    for verdicts in [("K2", "reproduced"), ("K3", "reproduced"), ("K4", "reproduced")] {
        let claim = claims.iter().find(|claim| claim["id"] == verdicts.0).unwrap();
        assert_eq!(claim["verdict"], verdicts.1, "{claim}");
    }
    let trials = json["simulated"].as_array().unwrap();
    assert_eq!(trials.len(), 6);
    for trial in trials {
        assert_eq!(trial["regions"].as_array().unwrap().len(), 12);
    }
    // Seven seconds of region 0 are the paper's 3,101 requests, two of them 886.
    assert_eq!(trials[0]["regions"][0]["enqueued"], 886);
    assert!(!place.has("kokyu-reproduced.html"));
}

#[test]
fn two_times_are_the_same_but_for_what_the_wall_clock_tells() {
    let place = Place::new();
    let words = format!("{SHORT} --no-report --format json --seed 7");
    let json = || place.hyoshi(&words).exits(0).json();
    let (once, again) = (without_times(json()), without_times(json()));
    assert!(once == again, "the same seed gave other figures");
}

#[test]
fn the_first_screen_is_the_verdicts_and_where_the_charts_are() {
    let place = Place::new();
    let ended = place.hyoshi(SHORT).exits(0);
    let screen: Vec<&str> = ended.out.lines().take(24).collect();
    for number in 1..=13 {
        assert!(screen.iter().any(|line| line.starts_with(&format!("  K{number} "))), "{screen:#?}");
    }
    assert!(screen.contains(&"charts: kokyu-reproduced.html"), "{screen:#?}");
    let page = place.read("kokyu-reproduced.html");
    for figure in 6..=12 {
        assert!(page.contains(&format!("figure {figure}")) || page.contains("figures"), "figure {figure}");
    }
    assert!(page.contains("<svg") && page.contains("K13"));
    // It opens without a network.
    let fetches = ["src=\"http", "href=\"http", "url(http", "@import"];
    assert!(fetches.iter().all(|fetch| !page.contains(fetch)));
}

/// Experiments on the kernel take half a minute: they are not among the tests that everybody runs.
#[test]
fn the_brokers_claims_are_judged_in_virtual_time_and_what_takes_a_kernel_says_so() {
    let place = Place::new();
    let json = place.hyoshi("reproduce broker --sim-only --no-report --format json").exits(0).json();
    let claims = json["claims"].as_array().unwrap();
    let verdicts: Vec<(&str, &str)> =
        claims.iter().map(|claim| (claim["id"].as_str().unwrap(), claim["verdict"].as_str().unwrap())).collect();
    let (yes, no) = ("reproduced", "not-measured");
    assert_eq!(verdicts, [("B1", no), ("B2", yes), ("B3", yes), ("B4", yes), ("B5", no), ("B6", no), ("B7", no)]);
    assert!(claims.iter().all(|claim| !claim["reason"].as_str().unwrap().is_empty()));
    assert_eq!((&json["paper"], &json["kernel"]), (&"broker".into(), &Value::Null));
    let held: Vec<u64> =
        json["arbitrated"][1]["held_ns"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
    assert_eq!(held, [95_000_000, 52_500_000, 40_000_000]);

    let ended = place.hyoshi("reproduce broker --sim-only").exits(0);
    assert!(ended.out.contains("charts: broker-reproduced.html"), "{}", ended.out);
    let page = place.read("broker-reproduced.html");
    for figure in 4..=6 {
        assert!(page.contains(&format!("figure {figure}")), "figure {figure}");
    }
    assert!(page.contains("<svg") && page.contains("B7"));
}

#[test]
#[ignore = "half a minute of the whole machine"]
fn the_brokers_experiments_run_on_the_kernel() {
    let place = Place::new();
    let json = place.hyoshi("reproduce broker --length short --no-report --format json").exits(0).json();
    let kernel = &json["kernel"];
    // What needs no privileges.
    assert_eq!(kernel["overhead"].as_array().unwrap().len(), 3, "{kernel}");
    assert_eq!(kernel["openness"]["lived"], true, "{kernel}");
    if common::real_time() {
        assert_eq!(kernel["tracked"]["own_process"], true, "{kernel}");
        let stages = kernel["soft"]["stages"].as_array().unwrap();
        assert_eq!(stages.len(), 3);
        for stage in stages {
            let sum: u64 = stage["held_ns"].as_array().unwrap().iter().filter_map(Value::as_u64).sum();
            assert!(sum.abs_diff(187_500_000) < 250_000, "{stage}");
        }
    }
}

#[test]
fn the_example_of_threads_and_events_is_the_papers_in_virtual_time() {
    let place = Place::new();
    let json = place.hyoshi("reproduce dt-ec --sim-only --no-report --format json").exits(0).json();
    let claims = json["claims"].as_array().unwrap();
    assert_eq!((claims.len(), &claims[0]["id"], &claims[0]["verdict"]), (8, &"D1".into(), &"reproduced".into()));
    assert!(claims[1..].iter().all(|claim| claim["verdict"] == "not-measured"), "{claims:?}");
    let responses: Vec<&Value> =
        json["simulated"].as_array().unwrap().iter().map(|schedule| &schedule["response_ns"][0]).collect();
    assert_eq!(responses, [4_000_000_000u64, 6_000_000_000, 4_000_000_000]);

    let ended = place.hyoshi("reproduce dt-ec --sim-only").exits(0);
    assert!(ended.out.contains("charts: dt-ec-reproduced.html"), "{}", ended.out);
    let page = place.read("dt-ec-reproduced.html");
    assert!(page.contains("<svg") && page.contains("D8"));
}

#[test]
#[ignore = "a minute of the whole machine"]
fn the_nodes_of_threads_and_events_run_on_the_kernel() {
    let place = Place::new();
    let json = place.hyoshi("reproduce dt-ec --length short --no-report --format json").exits(0).json();
    let kernel = &json["kernel"];
    assert_eq!(kernel["workloads"].as_array().unwrap().len(), 14, "{kernel}");
    for workload in kernel["workloads"].as_array().unwrap() {
        for host in workload["hosts"].as_array().unwrap() {
            // At random, the secondary host of a short run may have no job.
            let has_jobs = host["jobs"].as_u64().unwrap() > 0 || host["host"] == "middle2";
            assert!(has_jobs && host["overhead_ns"][0].as_u64().unwrap() > 0, "{workload}");
        }
    }
    let verdict = |id: &str| json["claims"].as_array().unwrap().iter().find(|claim| claim["id"] == id).unwrap().clone();
    assert_eq!(verdict("D8")["verdict"], "reproduced", "{json}");
}

#[test]
fn the_claims_of_feedback_control_are_rated_in_virtual_time() {
    let place = Place::new();
    let json = place.hyoshi("reproduce fcs --sim-only --no-report --format json").exits(0).json();
    let claims = json["claims"].as_array().unwrap();
    let verdicts: Vec<&str> = claims.iter().map(|claim| claim["verdict"].as_str().unwrap()).collect();
    assert_eq!((verdicts.len(), verdicts[0], verdicts[8]), (11, "not-measured", "in-part"), "{claims:?}");
    assert_eq!((&json["paper"], &json["kernel"]), (&"fcs".into(), &Value::Null));

    let ended = place.hyoshi("reproduce fcs --sim-only --seed 2").exits(0);
    assert!(ended.out.contains("charts: fcs-reproduced.html"), "{}", ended.out);
    assert!(place.read("fcs-reproduced.html").contains("figure 12"));
}

#[test]
#[ignore = "a minute of the whole machine"]
fn feedback_loops_run_on_the_kernel() {
    let place = Place::new();
    let json = place.hyoshi("reproduce fcs --length short --no-report --format json").exits(0).json();
    let kernel = &json["kernel"];
    assert_eq!(kernel["portability"].as_array().unwrap().len(), 8, "{kernel}");
    assert_eq!(kernel["overhead"].as_array().unwrap().len(), 5, "{kernel}");
    assert!(kernel["varying"][0]["run"]["samples"].as_array().unwrap().len() > 60, "{kernel}");
}

/// In the paper a step up of the execution times crashed the machine, because lanes starved all ordinary threads.
#[test]
fn after_a_step_up_under_fc_m_ordinary_threads_still_run() {
    let _alone = alone();
    let program = NodeProgram { path: env!("CARGO_BIN_EXE_hyoshi").as_ref(), words: &["reproduce", "fcs"] };
    let control = ExperimentControl { step: &|_| (), stop: &|| false };
    let duration = Span::from_nanos(SAMPLING_PERIOD.as_nanos() * 90);
    let workload = FcsWorkload { duration, ..FcsExperiment::Varying.workload(FcsVariant::FcM, 1, 0) };
    let real_time = common::real_time();
    // On a busy machine misses may keep the rates low until the step.
    let overloaded = (0..3).any(|_| {
        let mut kernel = FcsKernel::new(Length::Short);
        kernel.measure(&program, FcsExperiment::Varying, workload.clone(), control).unwrap();
        let one = kernel.runs.varying(FcsVariant::FcM).unwrap_or_else(|| panic!("{:?}", kernel.notes));
        let (last, step) = (one.run.samples.last().unwrap(), &one.phases[1]);
        let (wait, since_step) = (one.run.longest_wait_ns.unwrap(), last.at_ns - step.from_ns);
        assert!(wait < since_step / 2, "an ordinary thread waited {wait} ns of {since_step} ns");
        !real_time || (step.most_ppm > 850_000 && step.most_missed_ppm > 50_000)
    });
    assert!(overloaded, "the step overloads the lanes");
}

#[test]
fn what_cannot_be_done_is_said_before_anything_takes_time() {
    let place = Place::new();
    let ended = place.hyoshi("reproduce kokyu --region 0s").exits(2);
    assert!(ended.err.contains("must not be zero"), "{}", ended.err);
    let ended = place.hyoshi(&format!("{SHORT} --report no/such/folder/page.html")).exits(2);
    assert!(ended.err.contains("create its directory first"), "{}", ended.err);
    place.hyoshi("reproduce").exits(2);
    place.hyoshi("reproduce tao").exits(2);
    place.hyoshi("reproduce kokyu --sim-only --kernel 1min").exits(2);
    place.hyoshi("reproduce broker --sim-only --length short").exits(2);
    place.hyoshi("reproduce broker --length eternal").exits(2);
    place.hyoshi("reproduce fcs --sim-only --length short").exits(2);
    place.hyoshi("reproduce dt-ec --node client").exits(2);
    let ended = place.hyoshi("reproduce dt-ec --node client --file none.toml").exits(2);
    assert!(ended.err.contains("none.toml"), "{}", ended.err);
}
