//! `hyoshi reproduce`, from the command line.

mod common;

use common::Place;
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

#[test]
fn what_cannot_be_done_is_said_before_anything_takes_time() {
    let place = Place::new();
    let ended = place.hyoshi("reproduce kokyu --region 0s").exits(2);
    assert!(ended.err.contains("is zero"), "{}", ended.err);
    let ended = place.hyoshi(&format!("{SHORT} --report no/such/folder/page.html")).exits(2);
    assert!(ended.err.contains("make its folder first"), "{}", ended.err);
    place.hyoshi("reproduce").exits(2);
    place.hyoshi("reproduce tao").exits(2);
    place.hyoshi("reproduce kokyu --sim-only --kernel 1min").exits(2);
}
