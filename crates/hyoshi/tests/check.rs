//! `hyoshi check`, `doctor`, `strategies` and `schema`, from the command line.

use crate::common;

use common::{OVERLOADED, Place};

#[test]
fn what_is_proved_exits_with_0_and_what_is_not_with_1() {
    let place = Place::with_small();
    place.write("overloaded.toml", OVERLOADED.replace("3ms", "9ms"));
    let proved = place.hyoshi("check small.toml").exits(0);
    assert!(proved.out.contains("Holds"), "{}", proved.out);
    let fails = place.hyoshi("check overloaded.toml").exits(1);
    assert!(!fails.out.contains("Holds") && fails.out.contains("steer"), "{}", fails.out);
}

#[test]
fn json_says_what_the_exit_code_says() {
    let place = Place::with_small();
    place.write("overloaded.toml", OVERLOADED.replace("3ms", "9ms"));
    for (file, code) in [("small.toml", 0), ("overloaded.toml", 1)] {
        let json = place.hyoshi(&format!("check {file} --format json")).exits(code).json();
        assert_eq!(json["holds"], code == 0);
        assert_eq!((&json["hyoshi"]["verb"], &json["hyoshi"]["schema"]), (&"check".into(), &3.into()));
        assert_eq!(
            json["scenes"][0]["processors"][0]["operations"].as_array().map(Vec::len),
            Some(if code == 0 { 2 } else { 4 })
        );
    }
}

#[test]
fn the_strategy_of_the_command_line_is_the_one_checked() {
    let place = Place::with_small();
    let levels = |strategy: &str| {
        let ended = place.hyoshi(&format!("check small.toml --strategy {strategy}"));
        assert!(ended.out.contains(&format!(" {strategy} ")), "{}", ended.out);
    };
    ["DM", "EDF", "MUF"].into_iter().for_each(levels);
}

#[test]
fn hosts_that_use_zenoh_have_its_threads_in_a_note() {
    let place = Place::new();
    let system = |zenoh: &str| {
        format!(
            "name = 'uav'\n[host.drone]\nendpoints = ['tcp/127.0.0.1:7447']\n[host.station]\nendpoints = ['tcp/127.0.0.1:7448']\n\
             {zenoh}\n[processor.air]\nhost = 'drone'\n[processor.ground]\nhost = 'station'\n\
             [processor.desk]\nhost = 'station'\n[operation.sense]\non = 'air'\nevery = '10ms'\nwcet = '1ms'\n\
             [operation.recognise]\non = 'desk'\nafter = {{ all = ['sense'] }}\nwcet = '1ms'\n"
        )
    };
    place.write("system.toml", system("zenoh = 'tcp/127.0.0.1:7450'"));
    let with = place.hyoshi("check system.toml").exits(0).out;
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/check-zenoh.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(golden, &with).unwrap();
    }
    assert_eq!(with, std::fs::read_to_string(golden).unwrap_or_default());
    let json = place.hyoshi("check system.toml --format json").exits(0).json();
    let notes = json["notes"].as_array().unwrap();
    assert!(notes.iter().any(|note| note["topic"] == "zenoh"), "{notes:?}");
    place.write("system.toml", system(""));
    let without = place.hyoshi("check system.toml").exits(0).out;
    assert!(!without.contains("Zenoh"), "{without}");
}

#[test]
fn doctor_gives_a_remedy_for_each_refusal() {
    let place = Place::new();
    let ended = place.hyoshi("doctor --format json");
    let json = ended.json();
    let findings = json["findings"].as_array().unwrap();
    assert!(findings.len() > 10);
    let refused: Vec<_> = findings.iter().filter(|found| found["verdict"] == "refused").collect();
    assert_eq!(ended.code, i32::from(!refused.is_empty()));
    assert_eq!(json["holds"], refused.is_empty());
    for found in refused {
        assert!(found["remedy"].is_string() && found["consequence"].is_string(), "{found}");
    }
    let text = place.hyoshi("doctor").exits(ended.code).out;
    assert!(findings.iter().all(|found| text.contains(found["topic"].as_str().unwrap())), "{text}");
}

#[test]
fn strategies_are_listed_as_a_file_names_them() {
    let place = Place::with_small();
    let text = place.hyoshi("strategies").exits(0).out;
    let json = place.hyoshi("strategies --format json").exits(0).json();
    let names: Vec<_> =
        json["strategies"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["RMS", "DM", "EDF", "MLF", "MUF", "RMS+MLF", "RMS+EDF"]);
    assert_eq!(text.lines().map(|line| line.split(' ').next().unwrap()).collect::<Vec<_>>(), names);
    for name in names {
        place.hyoshi(&format!("sim small.toml --strategy {name}")).exits(0);
    }
}

#[test]
fn the_schema_is_json() {
    let schema = Place::new().hyoshi("schema").exits(0).json();
    assert!(schema["properties"]["operation"].is_object());
}

#[test]
fn sensitivity_tells_how_much_longer_and_how_much_faster_and_what_breaks_first() {
    let place = Place::with_small();
    let text = place.hyoshi("check small.toml --sensitivity").exits(0).out;
    assert!(text.contains("Margins") && text.contains("All rates together"), "{text}");
    let json = place.hyoshi("check small.toml --sensitivity --format json").exits(0).json();
    let steer = &json["sensitivity"]["operations"][0];
    assert_eq!((&steer["name"], &json["sensitivity"]["complete"]), (&"steer".into(), &true.into()));
    assert!(steer["longest_wcet_ns"].as_u64() > steer["wcet_ns"].as_u64(), "{steer}");
    assert!(steer["shortest_period_ns"].as_u64() < steer["period_ns"].as_u64(), "{steer}");
}

#[test]
fn sources_are_named_when_asked_for() {
    let place = Place::with_small();
    let short = place.hyoshi("check small.toml").exits(0).out;
    let long = place.hyoshi("check small.toml --explain --bounds").exits(0).out;
    assert!(!short.contains("Bozhko") && short.contains("--explain"), "{short}");
    assert!(long.contains("Bozhko") && long.contains("Assumptions"), "{long}");
}

/// Jobs of the first region meet those of the third: no scene of two regions holds them all.
#[test]
fn a_region_shorter_than_what_the_one_before_leaves_behind_proves_nothing() {
    let text = |gap: &str| {
        format!(
            r#"
name = "short"
duration = "100ms"
[operation.x]
every = "10ms"
wcet = "9ms"
critical = true
[operation.y]
phase = "0.3ms"
every = "10ms"
wcet = "9ms"
critical = true
[[epoch]]
name = "first"
at = "0ms"
set = {{ "operation.y.enabled" = false }}
[[epoch]]
name = "gap"
at = "10.1ms"
set = {{ "operation.x.enabled" = false }}
[[epoch]]
name = "late"
at = "{gap}"
set = {{ "operation.y.enabled" = true }}
"#
        )
    };
    let place = Place::with_small();
    place.write("short.toml", text("10.2ms"));
    place.write("long.toml", text("30ms"));
    for strategy in ["RMS", "EDF", "MLF", "MUF", "RMS,EDF"] {
        let short = place.hyoshi(&format!("check short.toml --strategy {strategy}")).exits(1);
        assert!(short.out.contains("region gap is so short"), "{}", short.out);
        place.hyoshi(&format!("sim short.toml --strategy {strategy}")).exits(1);
        let long = place.hyoshi(&format!("check long.toml --strategy {strategy}")).exits(0);
        assert!(long.out.contains("Holds"), "{}", long.out);
        place.hyoshi(&format!("sim long.toml --strategy {strategy}")).exits(0);
    }
}

#[test]
fn a_pair_of_strategies_is_two_different_ones() {
    let place = Place::with_small();
    for (strategy, message) in [
        ("RMS,RMS", "names one strategy twice"),
        ("RMS,rms", "names one strategy twice"),
        ("RMS,MUF,EDF", "names more than two strategies"),
        ("RMS,NOPE", "unknown strategy `NOPE`"),
        ("RMS,", "unknown strategy ``"),
    ] {
        for verb in ["check", "sim"] {
            let refused = place.hyoshi(&format!("{verb} small.toml --strategy {strategy}")).exits(2);
            assert!(refused.err.contains(message), "{strategy}: {}", refused.err);
            assert!(refused.out.is_empty(), "{}", refused.out);
        }
    }
    place.hyoshi("check small.toml --strategy RMS,MUF").exits(0);
}

/// Critical work that is as urgent as work which the cap may hold: not proved, but nothing fails.
const UNKNOWN: &str = r#"
name = "unknown"
[processor.main]
strategy = "RMS"
cap = "50%"
[operation.steer]
every = "10ms"
wcet = "2ms"
critical = true
[operation.log]
every = "10ms"
wcet = "3ms"
"#;

#[test]
fn what_is_only_unknown_has_no_counterexample_and_says_so() {
    let place = Place::new();
    place.write("unknown.toml", UNKNOWN);
    let text = place.hyoshi("check unknown.toml --counterexample seen.toml").exits(1).out;
    assert!(text.contains("Unknown: steer") && text.contains("seen.toml is not written"), "{text}");
    assert!(text.contains("not proved, but none is known to fail"), "{text}");
    assert!(!place.path().join("seen.toml").exists());
    let json = place.hyoshi("check unknown.toml --counterexample seen.toml --format json").exits(1).json();
    assert!(json["notes"].to_string().contains("none is known to fail"), "{}", json["notes"]);
}

#[test]
fn what_is_not_proved_has_no_margins_that_read_as_room() {
    let place = Place::new();
    place.write("unknown.toml", UNKNOWN);
    let text = place.hyoshi("check unknown.toml --sensitivity").exits(1).out;
    let row = text.lines().skip_while(|line| !line.contains("at most")).find(|line| line.contains("steer")).unwrap();
    assert!(row.contains("not proved") && !row.contains(" x"), "{text}");
    let json = place.hyoshi("check unknown.toml --sensitivity --format json").exits(1).json();
    assert_eq!(json["sensitivity"]["operations"][0]["proved"], false);
}

#[test]
fn what_may_be_dropped_names_the_limit_to_raise_or_fails_if_a_behaviour_drops_it() {
    let place = Place::new();
    let text = |queue: &str| {
        format!(
            r#"
name = "drops"
[processor.main]
strategy = "RMS"
hard_cap = "100%"
[operation.short]
every = "70ms"
wcet = "26ms"
critical = true
[operation.long]
every = "100ms"
wcet = "62ms"
deadline = "200ms"
critical = true
{queue}
"#
        )
    };
    place.write("one.toml", text("queue = { limit = 1 }"));
    place.write("skip.toml", text("on_busy = \"skip\""));
    place.write("two.toml", text("queue = { limit = 2 }"));
    let one = place.hyoshi("check one.toml").exits(1).out;
    assert!(one.contains("2 jobs of long may be pending") && one.contains("raise it to 2"), "{one}");
    let skip = place.hyoshi("check skip.toml").exits(1).out;
    assert!(skip.contains("Does not hold: long: its job 1 is dropped or stopped in a simulated behaviour"), "{skip}");
    place.hyoshi("check two.toml").exits(0);
}
