//! Publishers of events with rates that a feedback loop sets, from the shell.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::programs::{PATIENCE, Program};
use crate::common::{Ended, Place, alone, real_time};

/// Each publisher has at most 50 Hz. At 60 % there are 150 publications of 4 ms a second, and later 50 of 12 ms.
const FUSION: &str = r#"
name     = "fusion"
duration = "180s"

[processor.fusion]
strategy = "EDF"

[feedback.fusion]
algorithm   = "FC-U"
utilisation = "60%"
period      = "500ms"
measure     = "lanes"
start       = "highest"
gains       = { ga = 3 }

[event.detection]
payload = "16B"

[event.status]

[operation.receive]
called   = true
clients  = { rate = ["1Hz", "50Hz"], most = 4 }
wcet     = "0.1ms"
supplies = ["detection"]
queue    = { limit = 8 }

[operation.fuse]
after = { event = "detection" }
wcet  = "4ms"
takes = { uniform = ["3.9ms", "4ms"] }
queue = { limit = 8 }

[operation.beat]
called       = true
min_interval = "10ms"
wcet         = "0.05ms"
supplies     = ["status"]

[[epoch]]
at   = "15s"
name = "many targets"
set  = { "operation.fuse.takes" = { uniform = ["11.9ms", "12ms"] } }
"#;

/// A publisher's rate, as it prints it.
struct Publisher {
    program: Program,
    hertz: f64,
}

impl Publisher {
    fn start(place: &Place, words: &str) -> Publisher {
        let words =
            format!("events publish detection --at unix:{}/run.sock --format json {words}", place.path().display());
        Publisher { program: Program::start(place.command(&words).stderr(Stdio::null())), hertz: 0.0 }
    }

    fn hertz(&mut self) -> f64 {
        for line in self.program.lines.try_iter() {
            let line: Value = serde_json::from_str(&line).unwrap();
            self.hertz = 1e9 / line["period_ns"].as_f64().unwrap();
        }
        self.hertz
    }
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn publishers_share_the_load_that_the_loop_holds_and_a_killed_one_leaves_its_share() {
    if !real_time() {
        return;
    }
    let _alone = alone();
    let place = Place::new();
    place.write("fusion.toml", FUSION);
    let words = "run fusion.toml --no-report --control run.sock --record run.hyo --format json";
    let run = Program::start(place.command(words).stderr(Stdio::null()));
    let events = |words: &str| -> Ended {
        place.hyoshi(&format!("events {words} --at unix:{}/run.sock", place.path().display()))
    };
    until("the run begins", || events("publish status").code == 0);

    let mut publishers =
        ["", "--text here"].map(|words| Publisher::start(&place, &format!("--rate 1Hz..500Hz {words}")));
    until("both have the highest rate", || publishers.iter_mut().all(|one| one.hertz() > 45.0));
    let refused = events("publish detection").exits(2).err;
    assert!(refused.contains("only publishers that register for a rate may publish it"), "{refused}");
    assert!(refused.contains("hyoshi events publish detection --rate"), "{refused}");
    let refused = events("publish status --rate 1Hz..2Hz").exits(2).err;
    assert!(refused.contains("no feedback loop sets rates for event `status`"), "{refused}");
    let refused = events("publish detection --rate 60Hz..70Hz").exits(2).err;
    assert!(refused.contains("does not overlap 1.000 to 50.000 Hz"), "{refused}");
    let long = events("publish detection --rate 1Hz..2Hz --text more-than-16-bytes").exits(2).err;
    assert!(long.contains("payload longer than declared"), "{long}");

    until("the rates of both fall under the load", || publishers.iter_mut().all(|one| one.hertz() < 35.0));
    let [mut stays, killed] = publishers;
    drop(killed);
    let killed = Instant::now();
    until("the other one has its share", || stays.hertz() > 42.0);
    // It leaves by itself.
    let finite = Publisher::start(&place, "--rate 1Hz..50Hz --count 3").program.end();
    let last: Value = serde_json::from_str(finite.1.last().unwrap()).unwrap();
    assert_eq!((finite.0, last["accepted"].as_u64().unwrap() + last["rejected"].as_u64().unwrap()), (Some(0), 3));

    // The loop removes it after 10 s and three of its periods, of 1 s at most.
    until("the killed one has been silent for too long", || killed.elapsed() > Duration::from_secs(16));
    place.hyoshi(&format!("node stop --at unix:{}/run.sock", place.path().display())).exits(0);
    assert_eq!(stays.program.end().0, Some(0), "it ends with the run");
    let (_, lines) = run.end();
    let json: Value = serde_json::from_str(&lines.concat()).unwrap();
    let rates = json["processors"][0]["feedback"]["rates"].as_array().unwrap();
    let of_clients = rates.iter().filter(|rate| rate["client"].is_string() && rate["operation"] == "receive");
    // One of them was refused for its payload.
    assert_eq!(of_clients.count(), 4, "{rates:?}");
    let notes = json["notes"].as_array().unwrap().iter().filter_map(|note| note["text"].as_str());
    let removed: Vec<&str> = notes.filter(|text| text.contains("was removed: it published nothing for 1")).collect();
    assert_eq!(removed.len(), 1, "{}", json["notes"]);
    place.hyoshi("trace replay run.hyo").exits(0);
}

#[test]
fn check_counts_publishers_with_their_consumers_at_the_lowest_rates() {
    let place = Place::new();
    place.write("fusion.toml", FUSION);
    // The loop sets their rates, so nothing is proved.
    place.hyoshi("check fusion.toml").exits(1);
    // 4 x 40 Hz x 4.1 ms, and 0.5 % for `beat`.
    place.write("full.toml", FUSION.replace("\"1Hz\", \"50Hz\"", "\"40Hz\", \"50Hz\""));
    let refused = place.hyoshi("check full.toml").exits(2).err;
    assert!(refused.contains("at the lowest rates `fusion` has a load of 66.1%"), "{refused}");
    let alone = FUSION.replace("supplies = [\"detection\"]", "");
    place.write("alone.toml", alone.replace("event = \"detection\"", "all = [\"receive\"]"));
    let refused = place.hyoshi("check alone.toml").exits(2).err;
    assert!(refused.contains("no object has the operation `receive`, and it supplies no event"), "{refused}");
    let text = FUSION.replacen("start ", "endpoints = [\"tcp/127.0.0.1:7475\"]\nstart ", 1);
    place.write("wrong.toml", text);
    let refused = place.hyoshi("check wrong.toml").exits(2).err;
    assert!(refused.contains("no event that clients on processor `fusion` publish has `endpoints`"), "{refused}");
    let hosts = "[host.here]\nendpoints = [\"tcp/127.0.0.1:7473\"]\n[host.other]\n\
        endpoints = [\"tcp/127.0.0.1:7474\"]\n[event.\"host/other/lost\"]\n[processor.fusion]\nhost = \"here\"";
    let text = FUSION.replacen("[processor.fusion]", hosts, 1);
    place.write("wrong.toml", text.replace("[\"detection\"]", "[\"detection\", \"host/other/lost\"]"));
    let refused = place.hyoshi("check wrong.toml").exits(2).err;
    assert!(refused.contains("the node itself publishes `host/other/lost`"), "{refused}");
}
