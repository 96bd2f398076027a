//! Contracts, as a user sees them.

use serde_json::Value;

use crate::common::loopback::unused_address;
use crate::common::running::{Running, start, until};
use crate::common::{Ended, Place, alone, example};

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
        json["contract_regions"].as_array().unwrap().iter().map(|one| (&one["begins"], &one["ends"])).collect();
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
    // The first region that limits begins within the life of this job.
    let why = place.hyoshi("why sim.hyo show#407").exits(1).out;
    assert!(why.contains("+50ms  load: thin (late 0.077)"), "{why}");
    let json = place.hyoshi("why sim.hyo show#407 --format json").json();
    let regions: Vec<_> =
        json["regions"].as_array().unwrap().iter().map(|one| (&one["contract"], &one["change"]["to"])).collect();
    assert_eq!(regions, [(&"load".into(), &"normal".into()), (&"load".into(), &"thin".into())]);
    let text = place.hyoshi("trace summary sim.hyo").exits(0).out;
    assert!(text.contains("Changes of regions") && text.contains("show is late: track at 10 Hz"), "{text}");
    let refused = place.hyoshi(&format!("run {file} --freeze fixed.toml")).exits(2);
    assert!(refused.err.contains("no rates to freeze"), "{}", refused.err);
}

/// The qosket of the example is the contract of `contract.toml`: both make the same changes at the same times.
#[test]
fn a_qosket_is_a_contract_in_every_output() {
    let place = Place::new();
    let file = example("qosket.toml");
    let json = place.hyoshi(&format!("check {file} --format json")).json();
    let regions: Vec<_> =
        json["contract_regions"].as_array().unwrap().iter().map(|one| (&one["contract"], &one["region"])).collect();
    assert_eq!(regions, [(&"load".into(), &"degraded".into()), (&"load".into(), &"normal".into())]);
    let found = changes(&place.hyoshi(&format!("sim {file} --record sim.hyo --format json")).json());
    let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["normal", "degraded", "normal", "degraded", "normal", "degraded", "normal"], "{found:?}");
    let plain = changes(&place.hyoshi(&format!("sim {} --format json", example("contract.toml"))).json());
    let values = |found: &[(String, i64)]| found.iter().map(|(_, value)| *value).collect::<Vec<_>>();
    assert_eq!(values(&plain), values(&found));
    assert_eq!(changes(&place.hyoshi("sim --from sim.hyo --format json").json()), found);
    place.hyoshi("trace replay sim.hyo").exits(0);
}

/// A file of one's own, and its recording without the file.
#[test]
fn a_recording_contains_the_qosket_and_needs_no_file() {
    let place = Place::new();
    let shipped = place.hyoshi("contract qoskets degrade-rate").exits(0).out;
    place.write("mine.toml", shipped.replace("degrade-rate", "mine").replace("\"degraded\"", "\"slower\""));
    let text = std::fs::read_to_string(example("qosket.toml")).unwrap();
    place.write("system.toml", text.replace("\"degrade-rate\"", "\"mine.toml\""));
    let found = changes(&place.hyoshi("sim system.toml --record sim.hyo --format json").json());
    assert_eq!(found[1].0, "slower");
    std::fs::remove_file(place.path().join("mine.toml")).unwrap();
    let missing = place.hyoshi("sim system.toml").exits(2);
    assert!(missing.err.contains("mine.toml cannot be read"), "{}", missing.err);
    place.hyoshi("trace replay sim.hyo").exits(0);
    assert_eq!(changes(&place.hyoshi("trace summary sim.hyo --format json").json()), found);
    assert_eq!(changes(&place.hyoshi("sim --from sim.hyo --format json").json()), found);
}

#[test]
fn shipped_qoskets_are_listed_with_their_parameters() {
    let place = Place::new();
    let listed = place.hyoshi("contract qoskets").exits(0).out;
    for words in ["degrade-rate", "protect-cpu", "shed-on-overload", "steady-latency", "required", "longest"] {
        assert!(listed.contains(words), "{listed}");
    }
    let json = place.hyoshi("contract qoskets --format json").json();
    assert_eq!(json["qoskets"][0]["parameters"][0]["parameter"], "watched");
    let unknown = place.hyoshi("contract qoskets degrade").exits(2);
    assert!(unknown.err.contains("unknown qosket `degrade`") && unknown.err.contains("shed-on"), "{}", unknown.err);
}

#[test]
fn check_names_regions_that_flap_and_limits_that_contradict_each_other() {
    let place = Place::new();
    let text = std::fs::read_to_string(example("contract.toml")).unwrap();
    let notes = |text: &str| -> Vec<Value> {
        place.write("contract.toml", text);
        let json = place.hyoshi("check contract.toml --format json").json();
        let all = json["notes"].as_array().unwrap();
        all.iter().filter(|note| note["topic"] == "contract").cloned().collect()
    };
    assert_eq!(notes(&text), [Value::Null; 0]);
    let flapping = text.replace("{ first = \"5s\", grow = 2, most = \"1min\" }", "\"2s\"");
    let found = notes(&flapping);
    let [flaps] = &found[..] else { panic!("{found:?}") };
    assert!(flaps["text"].as_str().unwrap().starts_with("region `thin` of `load` flaps in a simulation"), "{flaps}");
    assert!(flaps["remedy"].as_str().unwrap().contains("let `stay` grow"), "{flaps}");
    let demand = "[condition.zoom]\n[contract.demand]\nprecedence = 1\nwatch = { zoom = { of = \"condition.zoom\" } }\n\
                  region = [{ name = \"near\", enter = \"zoom > 2\", do = [{ set = \"operation.track.rate\", least = \
                  \"25Hz\" }] }, { name = \"far\" }]\n";
    let found = notes(&format!("{text}{demand}"));
    assert!(found[0]["text"].as_str().unwrap().contains("the limit of `demand` applies"), "{found:?}");
    place.write("contract.toml", format!("{text}{demand}").replace("precedence = 1\n", ""));
    let refused = place.hyoshi("check contract.toml").exits(2).err;
    assert!(refused.contains("two contracts with precedence 0 set `operation.track.rate`"), "{refused}");
}

/// The overload begins with the run, so the first windows show it.
#[test]
fn on_the_kernel_a_region_limits_a_rate_and_the_replay_is_identical() {
    let _alone = alone();
    let place = Place::new();
    let text = std::fs::read_to_string(example("contract.toml")).unwrap();
    let text = text.replace("takes\" = \"4ms\"", "takes\" = \"10ms\"").replace("at  = \"20s\"", "at  = \"0s\"");
    place.write("contract.toml", text.replace("at  = \"40s\"", "at  = \"39s\""));
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

const CONTROLLED: &str = r#"
name     = "controlled"
duration = "60s"

[operation.track]
rate = ["5Hz", "50Hz"]
wcet = "0.1ms"

[condition.battery]
value = 80

[contract.power]
period = "20ms"
watch  = { battery = { of = "condition.battery" } }

[[contract.power.region]]
name  = "saving"
enter = "battery < 20"
leave = "battery > 30"
do    = [{ set = "operation.track.rate", most = "5Hz" }]

[[contract.power.region]]
name = "normal"
"#;

fn contract(place: &Place, words: &str) -> Ended {
    place.hyoshi(&format!("contract {words} --at unix:{}/run.sock", place.path().display()))
}

/// The contract, when it is in a region.
fn until_in(place: &Place, run: &mut Running, region: &str) -> Value {
    until(region, || {
        run.goes_on();
        let listed = contract(place, "list --format json");
        let found = (listed.code == 0).then(|| listed.json()["contracts"][0].clone());
        found.filter(|contract| contract["regions"][0] == region)
    })
}

#[test]
fn operators_set_conditions_and_regions_and_a_replay_repeats_them() {
    let _alone = alone();
    let place = Place::new();
    place.write("controlled.toml", CONTROLLED);
    let words = format!(
        "run controlled.toml --control {}/run.sock --record run.hyo --no-report --format json",
        place.path().display()
    );
    let mut run = start(&place, &words);
    let listed = until_in(&place, &mut run, "normal");
    let battery = serde_json::json!([{ "condition": "battery", "value": 80.0 }]);
    assert_eq!((&listed["conditions"], &listed["forced"]), (&battery, &Value::Null), "{listed}");
    contract(&place, "set battery 15").exits(0);
    until_in(&place, &mut run, "saving");
    // Between the thresholds nothing changes.
    contract(&place, "set battery 25.5").exits(0);
    contract(&place, "force power normal").exits(0);
    let forced = until_in(&place, &mut run, "normal");
    assert_eq!((&forced["forced"], &forced["forced_left_ns"]), (&"normal".into(), &Value::Null), "{forced}");
    contract(&place, "set battery -1").exits(0);
    let text = contract(&place, "list").exits(0).out;
    assert!(text.contains("power") && text.contains("normal"), "{text}");
    contract(&place, "release power").exits(0);
    until_in(&place, &mut run, "saving");
    contract(&place, "force power normal --for 50s").exits(0);
    let left = until_in(&place, &mut run, "normal")["forced_left_ns"].as_u64().unwrap();
    assert!((1..=50_000_000_000).contains(&left), "{left}");
    let text = contract(&place, "list").exits(0).out;
    assert!(text.contains("normal, ") && text.contains("s left"), "{text}");
    let text = contract(&place, "force power normal --for 300ms").exits(0).out;
    assert!(text.contains("region `normal` for 300ms"), "{text}");
    until_in(&place, &mut run, "normal");
    assert_eq!(until_in(&place, &mut run, "saving")["forced"], Value::Null);
    for (words, why, remedy) in [
        ("set batery 1", "there is no condition `batery`", "known: battery"),
        ("set battery 1e12", "the value 1000000000000 is out of range", "from -1e9 to 1e9"),
        ("set battery full", "invalid value `full`", "--help"),
        ("force power normal --for 0s", "must not be zero", "write a time"),
        ("force powr normal", "there is no contract `powr`", "known: power"),
        ("force power off", "there is no region `off`", "known: saving, normal"),
    ] {
        let refused = contract(&place, words).exits(2);
        assert!(refused.err.contains(why) && refused.err.contains(remedy), "{words}: {}", refused.err);
    }
    place.hyoshi(&format!("node stop --at unix:{}/run.sock", place.path().display())).exits(0);
    let report = run.end("run").json();
    let names = |json: &Value| changes(json).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(&report), ["normal", "saving", "normal", "saving", "normal", "saving"]);
    let forced: Vec<bool> =
        report["contracts"][0]["changes"].as_array().unwrap().iter().map(|one| one["forced"] == true).collect();
    assert_eq!(forced, [false, false, true, false, true, false]);
    let text = place.hyoshi("trace summary run.hyo").out;
    assert_eq!(text.matches("by command").count(), 2, "{text}");
    place.hyoshi("trace replay run.hyo").exits(0);
    // The recorded commands, and new decisions.
    assert_eq!(names(&place.hyoshi("sim --from run.hyo --format json").json()), names(&report));
    let idle = contract(&place, "list").exits(2);
    assert!(idle.err.contains("no node answers"), "{}", idle.err);
}

/// Contracts over two hosts. `power` is evaluated on the ground and limits a rate of the drone; `link` is evaluated on the
/// drone and watches jobs of the ground.
fn two_hosts(duration: &str, second_cpu: usize) -> String {
    let (drone, station) = (unused_address(), unused_address());
    format!(
        r#"
name     = "two-hosts"
duration = "{duration}"

[host.drone]
endpoints = ["tcp/{drone}"]

[host.station]
endpoints = ["tcp/{station}"]

[processor.airframe]
host = "drone"
cpu  = {second_cpu}

[processor.ground]
host = "station"
cpu  = 0

[operation.track]
on   = "airframe"
rate = ["5Hz", "50Hz"]
wcet = "0.1ms"

[operation.show]
on    = "ground"
every = "20ms"
wcet  = "1ms"
takes = "0.5ms"

[operation.draw]
on    = "ground"
after = {{ all = ["track"] }}
wcet  = "0.1ms"

[condition.battery]
value = 80

[contract.power]
on     = "ground"
period = "20ms"
watch  = {{ battery = {{ of = "condition.battery" }} }}

[[contract.power.region]]
name  = "saving"
enter = "battery < 20"
leave = "battery > 30"
do    = [{{ set = "operation.track.rate", most = "5Hz" }}]

[[contract.power.region]]
name = "normal"

[contract.link]
on     = "airframe"
period = "50ms"
watch  = {{ shown = {{ of = "operation.show.latency", max_age = "1s" }} }}

[[contract.link.region]]
name  = "lost"
enter = "stale(shown)"

[[contract.link.region]]
name = "linked"

[[epoch]]
at  = "20s"
set = {{ "condition.battery.value" = 10 }}

[[epoch]]
at  = "40s"
set = {{ "condition.battery.value" = 90 }}
"#
    )
}

/// The regions of a contract, in order.
fn regions_of(json: &Value, contract: &str) -> Vec<String> {
    let found = json["contracts"].as_array().unwrap().iter().find(|one| one["contract"] == contract);
    let changes = found.unwrap_or_else(|| panic!("{json}"))["changes"].as_array().unwrap().iter();
    changes.map(|change| change["to"].as_str().unwrap().to_owned()).collect()
}

fn jobs_of(json: &Value, operation: &str) -> u64 {
    let found = json["operations"].as_array().unwrap().iter().find(|one| one["name"] == operation);
    found.unwrap()["counts"]["released"].as_u64().unwrap()
}

#[test]
fn a_contract_may_watch_and_set_operations_of_another_host() {
    let place = Place::new();
    place.write("two.toml", two_hosts("60s", 0));
    place.hyoshi("check two.toml").exits(0);
    let json = place.hyoshi("sim two.toml --record sim.hyo --format json").json();
    assert_eq!(regions_of(&json, "power"), ["normal", "saving", "normal"]);
    assert_eq!(regions_of(&json, "link")[..2], ["lost", "linked"]);
    // 40 s at 50 Hz, 20 s at 5 Hz.
    let jobs = jobs_of(&json, "track");
    assert!((2_090..=2_110).contains(&jobs), "{jobs}");
    assert!(jobs_of(&json, "draw").abs_diff(jobs) <= 1, "its period follows on the other host");
    place.hyoshi("trace replay sim.hyo").exits(0);
    let again = place.hyoshi("sim --from sim.hyo --format json").json();
    assert_eq!((regions_of(&again, "power"), jobs_of(&again, "track")), (regions_of(&json, "power"), jobs));
}

#[test]
fn regions_cross_between_two_processes_and_a_lost_host_is_a_condition() {
    let _alone = alone();
    let place = Place::new();
    let cpu = usize::from(std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1));
    place.write("two.toml", two_hosts("120s", cpu));
    let words = |host: &str| {
        let folder = place.path().display();
        format!(
            "run two.toml --host {host} --control {folder}/{host}.sock --record {host}.hyo --no-report --format json"
        )
    };
    let (mut drone, station) = (start(&place, &words("drone")), start(&place, &words("station")));
    let mut until_drone = |contract: &str, region: &str| {
        until(region, || {
            drone.goes_on();
            let listed =
                place.hyoshi(&format!("contract list --at unix:{}/drone.sock --format json", place.path().display()));
            let all = (listed.code == 0).then(|| listed.json()["contracts"].as_array().unwrap().clone())?;
            all.into_iter().find(|one| one["contract"] == contract && one["regions"][0] == region)
        })
    };
    until_drone("link", "linked");
    until_drone("power", "normal");
    let at = |host: &str| format!("--at unix:{}/{host}.sock", place.path().display());
    let refused = place.hyoshi(&format!("contract set battery 10 {}", at("drone"))).exits(2);
    assert!(refused.err.contains("another host"), "{}", refused.err);
    let refused = place.hyoshi(&format!("contract force power saving {}", at("drone"))).exits(2);
    assert!(refused.err.contains("host `station` evaluates contract `power`"), "{}", refused.err);
    place.hyoshi(&format!("contract set battery 10 {}", at("station"))).exits(0);
    assert_eq!(until_drone("power", "saving")["evaluated_by"], "station");
    let text = place.hyoshi(&format!("contract list {}", at("drone"))).exits(0).out;
    assert!(text.contains("evaluated by") && text.contains("station"), "{text}");
    let shown = place.hyoshi(&format!("contract show power {}", at("station"))).exits(0).out;
    assert!(shown.starts_with("active: saving\n") && shown.contains("\n[contract.power]\n"), "{shown}");
    let refused = place.hyoshi(&format!("contract show powr {}", at("station"))).exits(2);
    assert!(
        refused.err.contains("known: power, link") || refused.err.contains("known: link, power"),
        "{}",
        refused.err
    );
    // Killed: the drone keeps the region, and notices that the values have stopped.
    drop(station);
    until_drone("link", "lost");
    until_drone("power", "saving");
    let mut station = start(&place, &words("station"));
    until_drone("power", "normal");
    until_drone("link", "linked");
    station.goes_on();
    for (host, run) in [("drone", drone), ("station", station)] {
        place.hyoshi(&format!("node stop {}", at(host))).exits(0);
        run.end(host);
        place.hyoshi(&format!("trace replay {host}.hyo")).exits(0);
    }
}

/// `power` is evaluated on the ground, and changes the loop of the drone: its set point, the importance of an operation,
/// and the strategy. `effect` on the drone shows when these settings act.
fn remote_settings(duration: &str, second_cpu: usize) -> String {
    let (drone, station) = (unused_address(), unused_address());
    format!(
        r#"
name     = "two-hosts"
duration = "{duration}"

[host.drone]
endpoints = ["tcp/{drone}"]

[host.station]
endpoints = ["tcp/{station}"]

[processor.airframe]
host = "drone"
cpu = {second_cpu}
strategy = ["RMS", "RMS+MLF"]

[processor.ground]
host = "station"
cpu = 0

[feedback.airframe]
algorithm = "FC-U"
utilisation = "60%"
divide = "value"
measure = "lanes"
period = "200ms"

[operation.track]
on = "airframe"
rate = ["5Hz", "50Hz"]
wcet = "4ms"
importance = 1

[operation.fly]
on = "airframe"
rate = ["5Hz", "50Hz"]
wcet = "4ms"
importance = 2

[operation.show]
on = "ground"
every = "20ms"
wcet = "0.1ms"

[condition.battery]
value = 80

[contract.power]
on = "ground"
period = "20ms"
watch = {{ battery = {{ of = "condition.battery" }} }}

[[contract.power.region]]
name = "saving"
enter = "battery < 20"
do = [{{ set = "operation.track.importance", to = 9 }}, {{ set = "feedback.airframe.utilisation", to = "24%" }}, {{ set = "processor.airframe.strategy", to = "RMS+MLF" }}]

[[contract.power.region]]
name = "normal"

[contract.effect]
on = "airframe"
watch = {{ second = {{ of = "processor.airframe.strategy" }}, track = {{ of = "operation.track.rate", over = "1s" }}, fly = {{ of = "operation.fly.rate", over = "1s" }} }}

[[contract.effect.region]]
name = "set"
enter = "second > 0.5 && track > 25 && fly < 15"

[[contract.effect.region]]
name = "declared"
enter = "second < 0.5 && track > 25 && fly > 25"

[[contract.effect.region]]
name = "other"

[[epoch]]
at = "20s"
set = {{ "condition.battery.value" = 10 }}

[[epoch]]
at = "40s"
set = {{ "condition.battery.value" = 90 }}
"#
    )
}

#[test]
fn a_contract_of_another_host_sets_importance_set_point_and_strategy() {
    let _alone = alone();
    let place = Place::new();
    let cpu = usize::from(std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1));
    place.write("two.toml", remote_settings("60s", cpu));
    let json = place.hyoshi("sim two.toml --format json").json();
    assert_eq!(regions_of(&json, "effect"), ["other", "declared", "other", "set", "other", "declared"]);
    let at = |host: &str| format!("unix:{}/{host}.sock", place.path().display());
    let words = |host: &str| {
        let control = at(host).replace("unix:", "");
        format!("run two.toml --host {host} --control {control} --record {host}.hyo --no-report --format json")
    };
    // Without the epochs that change the condition.
    let text = remote_settings("120s", cpu);
    place.write("two.toml", text.split("[[epoch]]").next().unwrap());
    let (mut drone, station) = (start(&place, &words("drone")), start(&place, &words("station")));
    let mut until_effect = |region: &str| {
        until(region, || {
            drone.goes_on();
            let listed = place.hyoshi(&format!("contract list --at {} --format json", at("drone")));
            let all = (listed.code == 0).then(|| listed.json()["contracts"].as_array().unwrap().clone())?;
            all.into_iter().find(|one| one["contract"] == "effect" && one["regions"][0] == region)
        })
    };
    until_effect("declared");
    place.hyoshi(&format!("contract set battery 10 --at {}", at("station"))).exits(0);
    until_effect("set");
    place.hyoshi(&format!("contract set battery 80 --at {}", at("station"))).exits(0);
    until_effect("declared");
    for (host, run) in [("drone", drone), ("station", station)] {
        place.hyoshi(&format!("node stop --at {}", at(host))).exits(0);
        run.end(host);
        place.hyoshi(&format!("trace replay {host}.hyo")).exits(0);
    }
}
