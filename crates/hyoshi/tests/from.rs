//! `hyoshi sim --from`: the incident again, as it was or under another policy.

use crate::common;

use common::{OVERLOADED, Place, alone, example, real_time, without_circumstances};

#[test]
fn a_simulation_of_a_recorded_simulation_is_that_simulation() {
    for (file, words) in [("flight-program.toml", "--duration 40s"), ("reference.toml", "--seed 9 --duration 4s")] {
        let place = Place::new();
        let sim = place.hyoshi(&format!("sim {} {words} --record sim.hyo --format json", example(file)));
        let again = place.hyoshi("sim --from sim.hyo --format json").exits(sim.code).json();
        let printed = &again["again"];
        assert_eq!(printed["releases_late_as_recorded"], 0, "{printed}");
        for processor in printed["agreement"].as_array().unwrap() {
            assert!(processor["agreeing"].as_u64() > Some(0), "{processor}");
            for difference in ["near_ties", "disturbed", "disagreements"] {
                assert_eq!(processor[difference].as_array().map(Vec::len), Some(0), "{processor}");
            }
        }
        for class in printed["classes"].as_array().unwrap() {
            assert_eq!(class["then"], class["now"]);
        }
        let (mut then, mut now) = (without_circumstances(sim.json()), without_circumstances(again.clone()));
        now.as_object_mut().unwrap().remove("again");
        for summary in [&mut then, &mut now] {
            // The last event may lie before the end.
            for field in ["notes", "duration_ns", "processors", "epochs"] {
                summary[field].take();
            }
        }
        assert_eq!(then, now);
    }
}

#[test]
fn another_policy_meets_the_same_jobs() {
    let place = Place::new();
    // Without cancellation every job runs, so that the recording knows them all.
    place.write("system.toml", OVERLOADED.replace("cancel = true", "cancel = false"));
    place.hyoshi("sim system.toml --strategy RMS --record sim.hyo");
    let then = place.hyoshi("sim --from sim.hyo --format json").json();
    let now = place.hyoshi("sim --from sim.hyo --strategy RMS+MLF --cancel true --format json").json();
    assert!(now["again"]["agreement"].is_null(), "nothing to agree with under another policy");
    let class = |json: &serde_json::Value, class: usize, when: &str| json["again"]["classes"][class][when].clone();
    assert_eq!(class(&then, 1, "then"), class(&now, 1, "then"));
    assert!(class(&now, 1, "now")["cancelled"].as_u64() > Some(0), "{}", now["again"]);
    let text = place.hyoshi("sim --from sim.hyo --strategy RMS+MLF --cancel true");
    assert!(text.out.contains("then → now") && text.out.contains("RMS+MLF"), "{}", text.out);
}

#[test]
fn a_recorded_run_agrees_with_its_simulation() {
    let _alone = alone();
    let place = Place::with_small();
    place.hyoshi("run small.toml --no-report --record run.hyo");
    let again = place.hyoshi("sim --from run.hyo --format json").json();
    let printed = &again["again"];
    assert_eq!(printed["verb"], "run");
    assert!(printed["jobs_as_recorded"].as_u64() > Some(100), "{printed}");
    if real_time() {
        let processor = &printed["agreement"][0];
        assert_eq!(processor["disagreements"].as_array().map(Vec::len), Some(0), "{processor}");
    }
}

#[test]
fn a_recording_that_was_cut_off_is_simulated_until_there() {
    let place = Place::with_small();
    place.hyoshi("sim small.toml --duration 60s --record whole.hyo").exits(0);
    let whole = place.bytes("whole.hyo");
    place.write("cut.hyo", &whole[..whole.len() - whole.len() / 3]);
    let again = place.hyoshi("sim --from cut.hyo --format json");
    let json = again.json();
    let until = json["duration_ns"].as_u64().unwrap();
    assert!(until > 1_000_000_000 && until < 60_000_000_000, "{until}");
    let notes = json["notes"].as_array().unwrap();
    let said = |part: &str| notes.iter().any(|note| note["text"].as_str().is_some_and(|text| text.contains(part)));
    assert!(said("ends within a block") && said("simulated until there"), "{notes:?}");
    assert_eq!(json["again"]["agreement"][0]["disagreements"].as_array().map(Vec::len), Some(0));
}

#[test]
fn what_cannot_be_simulated_again_is_refused() {
    let place = Place::with_small();
    place.hyoshi("sim small.toml --record sim.hyo").exits(0);
    for (words, said) in [
        ("sim --from none.hyo", "cannot read none.hyo"),
        ("sim --from small.toml", "not a recording"),
        ("sim small.toml --from sim.hyo", "cannot be used with"),
        ("sim --from sim.hyo --seed 3", "cannot be used with"),
        ("sim --from sim.hyo --record other.hyo", "cannot be used with"),
        ("sim --from sim.hyo --strategy NONE", "unknown strategy"),
    ] {
        let ended = place.hyoshi(words).exits(2);
        assert!(ended.err.contains(said), "{words}: {}", ended.err);
    }
}
