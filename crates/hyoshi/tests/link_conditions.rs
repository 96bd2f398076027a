//! Contracts that watch a link, in virtual time and between network namespaces.

use std::process::Command;

use serde_json::Value;

use crate::common::{Place, alone, example, missing};
use crate::namespaces::{ADDRESSES, DEVICE, Namespaces};
use crate::network::{Node, until};

/// The changes of the only contract: when, and the region that begins.
fn changes(json: &Value) -> Vec<(u64, String)> {
    let changes = json["contracts"][0]["changes"].as_array().unwrap_or_else(|| panic!("{json}")).iter();
    changes.map(|one| (one["at_ns"].as_u64().unwrap(), one["to"].as_str().unwrap().to_owned())).collect()
}

#[test]
fn in_a_simulation_a_contract_follows_the_loss_that_epochs_set() {
    let place = Place::new();
    let file = example("link-contract.toml");
    let simulated = place.hyoshi(&format!("sim {file} --record sim.hyo --format json")).json();
    let found = changes(&simulated);
    let names: Vec<_> = found.iter().map(|(_, name)| name.as_str()).collect();
    assert!(names.iter().step_by(2).all(|name| *name == "thin"), "{found:?}");
    assert!(names.iter().skip(1).step_by(2).all(|name| *name == "normal"), "{found:?}");
    let second = 1_000_000_000;
    // Stale at the start, lossy from 20 s to 40 s.
    assert!((5 * second..6 * second).contains(&found[1].0), "{found:?}");
    assert!((20 * second..22 * second).contains(&found[2].0), "{found:?}");
    let (last, name) = found.last().unwrap();
    assert!(name == "normal" && (40 * second..56 * second).contains(last), "{found:?}");
    place.hyoshi("trace replay sim.hyo").exits(0);
    assert_eq!(changes(&place.hyoshi("sim --from sim.hyo --format json").json()), found);
    assert_eq!(changes(&place.hyoshi(&format!("sim {file} --format json")).json()), found);
}

#[test]
fn in_a_simulation_throughput_and_delay_are_those_of_the_link_and_a_host_that_is_off_is_stale() {
    let place = Place::new();
    let text = std::fs::read_to_string(example("link-contract.toml")).unwrap();
    // 50 Hz of 1 KiB are 409.6 kbit/s.
    let watch = "watch = { loss = { of = \"link.drone-station.loss\", max_age = \"3s\" }, \
                 bits = { of = \"link.station-drone.throughput\", over = \"2s\" }, \
                 delay = { of = \"link.drone-station.delay\", max_age = \"3s\" } }";
    let start = text.find("watch = ").unwrap();
    let end = start + text[start..].find('\n').unwrap();
    let text = format!("{}{watch}{}", &text[..start], &text[end..]);
    let text = text.replace(
        "enter = \"stale(loss) || loss > 0.02\"   #",
        "enter = \"stale(delay) || delay < 0.001 || delay > 0.003 || bits > 420000 || bits < 390000\" #",
    );
    let text = text.replace("leave = \"!stale(loss) && loss < 0.005\"\n", "");
    let text = text.replace("{ \"link.drone-station.loss\" = \"5%\" }", "{ \"host.station.enabled\" = false }");
    let text = text.replace("{ \"link.drone-station.loss\" = \"0%\" }", "{ \"host.station.enabled\" = true }");
    let text = text.replace("do    = [{ set = \"operation.sense.rate\", most = \"10Hz\" }]\n", "");
    place.write("link.toml", text);
    let found = changes(&place.hyoshi("sim link.toml --format json").json());
    let seconds: Vec<_> = found.iter().map(|(at, name)| (at / 1_000_000_000, name.as_str())).collect();
    let [(0, "thin"), (5 | 6, "normal"), (22 | 23, "thin"), (40..46, "normal")] = seconds[..] else {
        panic!("{found:?}")
    };
}

const SYSTEM: &str = r#"
name     = "lossy"
duration = "300s"

[host.drone]
endpoints = ["tcp/DRONE:7447"]
insecure  = true

[host.station]
endpoints = ["tcp/STATION:7447"]
insecure  = true

[processor.airframe]
host = "drone"

[processor.ground]
host = "station"

[[link]]
between = ["drone", "station"]
delay   = "1ms"

[operation.sense]
on      = "airframe"
rate    = ["5Hz", "100Hz"]
wcet    = "0.1ms"
payload = "256B"

[operation.show]
on    = "ground"
after = { all = ["sense"] }
wcet  = "0.1ms"

[contract.link]
on    = "ground"
watch = { loss = { of = "link.drone-station.loss", over = "1s", max_age = "2s" }, bits = { of = "link.drone-station.throughput", over = "1s" }, delay = { of = "link.drone-station.delay" } }

[[contract.link.region]]
name  = "cut"
enter = "stale(loss)"

[[contract.link.region]]
name  = "thin"
enter = "loss > 0.02"
leave = "loss < 0.005"
do    = [{ set = "operation.sense.rate", most = "10Hz" }]

[[contract.link.region]]
name = "normal"
"#;

#[test]
fn on_the_kernel_repeated_segments_are_loss_and_a_cut_link_is_stale() {
    let _alone = alone();
    let Ok(namespaces) = Namespaces::new().map_err(missing) else { return };
    let place = Place::new();
    let [drone, station] = ADDRESSES;
    place.write("system.toml", SYSTEM.replace("DRONE", drone).replace("STATION", station));
    let nodes = ["drone", "station"].map(|host| {
        let end = usize::from(host == "station");
        Node::start(&place, &namespaces, end, &format!("--host {host} --record {host}.hyo"))
    });
    let listed = |end: u32| -> Option<Value> {
        let words = format!("contract list --at unix:{}/{end}.sock --format json", place.path().display());
        let listed = place.hyoshi(&words);
        (listed.code == 0).then(|| listed.json()["contracts"][0].clone())
    };
    let until_region = |region: &str| {
        until(region, || listed(1).is_some_and(|one| one["regions"][0] == region));
    };
    until_region("normal");
    let value = |name: &str| -> f64 {
        let one = listed(1).unwrap();
        let conditions = one["conditions"].as_array().unwrap();
        let found = conditions.iter().find(|one| one["condition"] == name);
        found.and_then(|one| one["value"].as_f64()).unwrap_or_else(|| panic!("{one}"))
    };
    // 100 completions a second.
    until("the throughput", || value("bits") > 50_000.0);
    assert!((0.0..0.5).contains(&value("delay")), "{}", value("delay"));
    // An eighth of the packets of the drone are dropped, by the identification in their IP headers.
    for words in [
        "qdisc add dev DEVICE root handle 1: htb default 1",
        "class add dev DEVICE parent 1: classid 1:1 htb rate 1gbit",
        "class add dev DEVICE parent 1: classid 1:2 htb rate 1gbit",
        "qdisc add dev DEVICE parent 1:2 handle 2: blackhole",
        "filter add dev DEVICE parent 1: protocol ip u32 match u16 0x0000 0x0007 at 4 flowid 1:2",
    ] {
        namespaces.tc(0, &words.replace("DEVICE", DEVICE));
    }
    until_region("thin");
    until("the region on the drone", || listed(0).is_some_and(|one| one["regions"][0] == "thin"));
    namespaces.tc(0, &format!("qdisc del dev {DEVICE} root"));
    until_region("normal");
    let link = |state: &str| {
        let words = ["-n", &namespaces.names[0], "link", "set", DEVICE, state];
        assert!(Command::new("ip").args(words).status().unwrap().success());
    };
    link("down");
    until_region("cut");
    link("up");
    until_region("normal");
    for (end, node) in nodes.into_iter().enumerate() {
        place.hyoshi(&format!("node stop --at unix:{}/{end}.sock", place.path().display())).exits(0);
        // A host was lost meanwhile.
        node.end();
    }
    place.hyoshi("trace replay station.hyo").exits(0);
    place.hyoshi("trace replay drone.hyo").exits(0);
}

/// The packets of a class of HTB.
fn packets(namespaces: &Namespaces, class: &str) -> u64 {
    let shown = namespaces.tc(0, &format!("-s class show dev {DEVICE}"));
    let of_class = shown.split("class htb ").find(|one| one.starts_with(&format!("{class} ")));
    let sent = of_class.and_then(|class| class.split(" bytes ").nth(1)?.split(' ').next()?.parse().ok());
    sent.unwrap_or_else(|| panic!("{shown}"))
}

#[test]
fn on_the_kernel_a_region_marks_completions_also_after_a_reconnection_until_it_ends() {
    let _alone = alone();
    let Ok(namespaces) = Namespaces::new().map_err(missing) else { return };
    let place = Place::new();
    let [drone, station] = ADDRESSES;
    let text = SYSTEM.replace("DRONE", drone).replace("STATION", station);
    let start = text.find("[contract.link]").unwrap();
    place.write("system.toml", format!("{}{MARKS}", &text[..start]));
    for words in [
        "qdisc add dev DEVICE root handle 1: htb default 1",
        "class add dev DEVICE parent 1: classid 1:1 htb rate 1gbit",
        "class add dev DEVICE parent 1: classid 1:2 htb rate 1gbit",
        "filter add dev DEVICE parent 1: protocol ip u32 match ip dsfield 0x88 0xfc flowid 1:2",
    ] {
        namespaces.tc(0, &words.replace("DEVICE", DEVICE));
    }
    let nodes = ["drone", "station"].map(|host| {
        let end = usize::from(host == "station");
        Node::start(&place, &namespaces, end, &format!("--host {host}"))
    });
    let at = |end: usize| format!("--at unix:{}/{end}.sock", place.path().display());
    let region = |name: &str| {
        let listed = place.hyoshi(&format!("contract list {} --format json", at(0)));
        listed.code == 0 && listed.json()["contracts"][0]["regions"][0] == name
    };
    let marked = || packets(&namespaces, "1:2");
    let more = |what: &str, of: &str, count: u64| {
        let before = packets(&namespaces, of);
        until(what, || packets(&namespaces, of) > before + count);
    };
    // The file's value reaches the drone with the regions.
    until("plain", || region("plain"));
    more("completions", "1:1", 200);
    assert_eq!(marked(), 0);
    place.hyoshi(&format!("contract set video 1 {}", at(1))).exits(0);
    until("marked", || region("marked"));
    more("marked completions", "1:2", 100);
    let listed = place.hyoshi(&format!("contract list {} --format json", at(0))).json();
    let action = &listed["contracts"][0]["actions"][0];
    assert_eq!((&action["action"], &action["failed"]), (&"link.drone-station.dscp = AF41".into(), &0.into()));
    let peer = |state: &str| {
        let shown = place.hyoshi(&format!("node show {} --format json", at(0))).json();
        shown["node"]["peers"].as_array().unwrap().iter().any(|one| one["state"] == state)
    };
    let link = |state: &str| {
        let words = ["-n", &namespaces.names[0], "link", "set", DEVICE, state];
        assert!(Command::new("ip").args(words).status().unwrap().success());
    };
    link("down");
    until("the loss of the host", || peer("lost"));
    link("up");
    until("its return", || peer("joined"));
    more("marked completions after the return", "1:2", 100);
    place.hyoshi(&format!("contract set video 0 {}", at(1))).exits(0);
    until("plain", || region("plain"));
    // The action follows the region.
    until("the end of the marks", || {
        let before = marked();
        more("completions", "1:1", 100);
        marked() == before
    });
    for (end, node) in nodes.into_iter().enumerate() {
        place.hyoshi(&format!("node stop {}", at(end))).exits(0);
        // A host was lost meanwhile.
        node.end();
    }
}

/// Replaces the contract of [`SYSTEM`].
const MARKS: &str = r#"
[condition.video]
value = 0

[contract.marks]
on    = "ground"
watch = { video = { of = "condition.video" } }

[[contract.marks.region]]
name  = "marked"
enter = "video > 0"
do    = [{ set = "link.drone-station.dscp", to = "AF41" }]

[[contract.marks.region]]
name = "plain"
"#;

#[test]
fn without_a_network_the_conditions_of_a_link_have_no_samples_and_the_report_has_a_note() {
    let _alone = alone();
    let place = Place::new();
    let text = std::fs::read_to_string(example("link-contract.toml")).unwrap();
    let mark = "{ set = \"link.drone-station.dscp\", to = \"AF41\" }";
    place.write("link.toml", text.replace("most = \"10Hz\" }]", &format!("most = \"10Hz\" }}, {mark}]")));
    let ran = place.hyoshi("run link.toml --duration 2s --no-report --format json").json();
    assert_eq!(changes(&ran)[0].1, "thin");
    let notes = ran["notes"].as_array().unwrap();
    let text = |note: &Value| note["text"].as_str().unwrap_or_default().to_owned();
    let expected = "condition `link.drone-station.loss` had no samples: no node of the other host was connected";
    assert!(notes.iter().any(|note| text(note).contains(expected)), "{notes:?}");
    let marked = "link.drone-station.dscp = AF41: failed";
    assert!(notes.iter().any(|note| text(note).contains(marked) && text(note).contains("no packets")), "{notes:?}");
}
