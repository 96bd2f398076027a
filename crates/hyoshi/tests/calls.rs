//! A call between two processors, from the file to a recorded run.

use crate::common;

use common::{Place, alone, real_time};

const TWO: &str = r#"
name     = "two"
duration = "1s"

[costs]

[host.drone]
[host.station]

[processor.airframe]
host = "drone"
[processor.ground]
host = "station"

[[link]]
between = ["drone", "station"]
delay   = "2ms"

[operation.plan]
on       = "airframe"
every    = "50ms"
wcet     = "8ms"
critical = true
calls    = { method = "locate", after = "3ms" }

[operation.other]
on    = "airframe"
every = "100ms"
wcet  = "20ms"

[operation.locate]
on     = "ground"
wcet   = "4ms"
called = true
"#;

#[test]
fn every_verb_takes_a_call_for_a_hop_of_its_chain() {
    let _alone = alone();
    let place = Place::new();
    place.write("two.toml", TWO);
    let checked = place.hyoshi("check two.toml").exits(0).out;
    let line =
        checked.lines().find(|line| line.trim_start().starts_with("plan ")).unwrap_or_else(|| panic!("{checked}"));
    assert!(line.contains("plan:call") && line.contains("proved"), "{line}");
    let simulated = place.hyoshi("sim two.toml").exits(0).out;
    for part in ["plan:call", "locate@plan"] {
        assert!(simulated.contains(part), "{part} is missing in {simulated}");
    }
    let run = place.hyoshi("run two.toml --no-report --record run.hyo");
    assert!(run.code < 2, "{}", run.err);
    let replayed = place.hyoshi("trace replay run.hyo").exits(0);
    assert!(replayed.out.contains("decisions identical"), "{}", replayed.out);
    let why = place.hyoshi("why run.hyo plan#3");
    assert!(why.code < 2 && why.out.contains("on the link to its processor"), "{}{}", why.out, why.err);
    if real_time() {
        let compared = place.hyoshi("trace compare run.hyo --format json").exits(0).json();
        for processor in compared["processors"].as_array().unwrap() {
            assert_eq!(processor["disagreements"].as_array().map(Vec::len), Some(0), "{processor}");
        }
    }
}
