//! `hyoshi calibrate`: measures for real, stores what `check` and `sim` find, or says why not.

use crate::common;

use common::*;

fn at_home(place: &Place, words: &str) -> Ended {
    let mut command = place.command(words);
    command.env_remove("HYOSHI_COSTS").env_remove("XDG_CONFIG_HOME").env("HOME", place.path());
    Ended::of(words, &command.output().unwrap())
}

#[test]
fn what_is_measured_is_stored_and_used() {
    let _alone = alone();
    let place = Place::with_small();
    let json = at_home(&place, "calibrate --format json").exits(0).json();
    let costs = json["costs"].as_object().unwrap();
    assert_eq!(costs.len(), 6);
    for (name, figures) in costs {
        let of = |key: &str| figures[key].as_u64().unwrap();
        assert!(of("median_ns") <= of("p99_ns") && of("p99_ns") <= of("stored_ns"), "{name}: {figures}");
        assert!(of("count") >= 20, "{name}: {figures}");
    }
    assert!(costs["timer"]["median_ns"].as_u64() > costs["cancel"]["median_ns"].as_u64());
    assert_eq!(json["real_time"], real_time());
    let stored = place.read(".config/hyoshi/costs.toml");
    assert!(stored.contains("[measured]\ndate ") && stored.contains("\n[costs]\ntimer "), "{stored}");
    assert_eq!(place.names(), [".config", "small.toml"], "nothing else is left");
    let checked = at_home(&place, "check small.toml");
    assert!(checked.out.contains("costs: measured on this machine 20"), "{}", checked.out);
}

#[test]
fn where_it_cannot_be_stored_it_says_so_before_it_measures() {
    let place = Place::new();
    place.write("taken", "no folder");
    let refused = [
        ("calibrate --output nowhere/costs.toml", "create its directory first"),
        ("calibrate --output .", "name a file in this directory"),
        ("calibrate --output taken/costs.toml", "create its directory first"),
    ];
    let started = std::time::Instant::now();
    for (words, help) in refused {
        let refused = place.hyoshi(words).exits(2);
        assert!(refused.err.contains("cannot write the costs") && refused.err.contains(help), "{}", refused.err);
    }
    let mut homeless = place.command("calibrate");
    homeless.env_remove("HOME").env_remove("XDG_CONFIG_HOME");
    let refused = Ended::of("calibrate", &homeless.output().unwrap()).exits(2);
    assert!(refused.err.contains("--output"), "{}", refused.err);
    assert!(started.elapsed().as_secs() < 5);
}

#[test]
fn a_full_disk_is_told_of() {
    let _alone = alone();
    let place = Place::new();
    let refused = place.hyoshi("calibrate --output /dev/full").exits(2);
    assert!(refused.err.contains("cannot write the costs /dev/full") && refused.err.contains("free some space"));
}
