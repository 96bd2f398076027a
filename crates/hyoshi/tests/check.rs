//! `hyoshi check`, `doctor`, `strategies` and `schema`, from the command line.

mod common;

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
        assert_eq!((&json["hyoshi"]["verb"], &json["hyoshi"]["schema"]), (&"check".into(), &1.into()));
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
