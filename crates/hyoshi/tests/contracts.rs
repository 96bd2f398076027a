//! Contracts, as a user sees them.

use serde_json::Value;

use crate::common::{Place, example};

/// The contract's changes as (region that begins, its value of the only condition in millionths).
fn changes(json: &Value) -> Vec<(String, i64)> {
    let changes = json["contracts"][0]["changes"].as_array().unwrap_or_else(|| panic!("{json}")).iter();
    let of = |change: &Value| {
        let value = change["conditions"][0]["millionths"].as_i64().unwrap_or(i64::MIN);
        (change["to"].as_str().unwrap_or_default().to_owned(), value)
    };
    changes.map(of).collect()
}

#[test]
fn regions_are_in_every_output_and_the_same_in_a_replay() {
    let place = Place::new();
    let file = example("contract.toml");
    let checked = place.hyoshi(&format!("check {file} --format json"));
    let json: Value = serde_json::from_str(&checked.out).unwrap();
    let regions: Vec<_> =
        json["regions"].as_array().unwrap().iter().map(|one| (&one["begins"], &one["ends"])).collect();
    assert_eq!(regions, [(&"reachable".into(), &true.into()), (&"reachable".into(), &Value::Null)]);
    let simulated = place.hyoshi(&format!("sim {file} --record sim.hyo --format json")).json();
    let found = changes(&simulated);
    let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["normal", "thin", "normal", "thin", "normal", "thin", "normal"], "{found:?}");
    assert!(
        found[1..].iter().all(|(name, late)| if name == "thin" { *late > 20_000 } else { *late < 5_000 }),
        "{found:?}"
    );
    assert_eq!(simulated["contracts"][0]["changes"][1]["reports"][0], "show is late: track at 10 Hz");
    assert_eq!(changes(&place.hyoshi("trace summary sim.hyo --format json").json()), found);
    assert_eq!(changes(&place.hyoshi("sim --from sim.hyo --format json").json()), found);
    place.hyoshi("trace replay sim.hyo").exits(0);
    let text = place.hyoshi("trace summary sim.hyo").exits(0).out;
    assert!(text.contains("Changes of regions") && text.contains("show is late: track at 10 Hz"), "{text}");
    let refused = place.hyoshi(&format!("run {file} --freeze fixed.toml")).exits(2);
    assert!(refused.err.contains("no rates to freeze"), "{}", refused.err);
}

/// The overload begins with the run, so the first windows show it.
#[test]
fn on_the_kernel_a_region_limits_a_rate_and_the_replay_is_identical() {
    let place = Place::new();
    let text = std::fs::read_to_string(example("contract.toml")).unwrap();
    let text = text.replace("takes\" = \"4ms\"", "takes\" = \"10ms\"").replace("at  = \"20s\"", "at  = \"0s\"");
    place.write("contract.toml", &text.replace("at  = \"40s\"", "at  = \"39s\""));
    let ran = place.hyoshi("run contract.toml --duration 4s --record run.hyo --no-report --format json").json();
    let found = changes(&ran);
    assert!(found.iter().any(|(name, late)| name == "thin" && *late > 20_000), "{found:?}");
    // At 50 Hz all the time there would be 200 jobs.
    let track = ran["operations"].as_array().unwrap().iter().find(|one| one["name"] == "track").unwrap();
    let jobs = track["counts"]["released"].as_u64().unwrap();
    assert!(jobs < 150, "{jobs}");
    place.hyoshi("trace replay run.hyo").exits(0);
    assert_eq!(changes(&place.hyoshi("trace summary run.hyo --format json").json()), found);
}
