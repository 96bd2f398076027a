//! One system in two processes, each with a host of its own.

mod agreement;

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::authority::{Authority, Papers};
use crate::common::loopback::unused_address;
use crate::common::running::{Running, start, until};
use crate::common::undisturbed::undisturbed;
use crate::common::{Ended, Place, alone, missing, real_time};

/// The CPU of the second host: one of its own where there are two.
fn second_cpu() -> usize {
    usize::from(std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1))
}

/// Two hosts on loopback: the station commands, the drone flies and reports.
fn uav(duration: &str) -> String {
    let (drone, station, second) = (unused_address(), unused_address(), second_cpu());
    format!(
        r#"
name = "uav"
duration = "{duration}"

[host.drone]
endpoints = ["tcp/{drone}"]

[host.station]
endpoints = ["tcp/{station}"]

[processor.airframe]
host = "drone"
cpu = {second}

[processor.ground]
host = "station"
cpu = 0

[operation.command]
on = "ground"
every = "10ms"
wcet = "0.2ms"
critical = true

[operation.watch]
on = "ground"
every = "20ms"
wcet = "1ms"
critical = true

[operation.fly]
on = "airframe"
after = {{ all = ["command"] }}
wcet = "0.5ms"

[operation.report]
on = "ground"
after = {{ all = ["fly"] }}
wcet = "0.5ms"
"#
    )
}

/// The same, with completions over Zenoh.
#[cfg(feature = "zenoh")]
fn uav_over_zenoh(duration: &str) -> String {
    let with_zenoh = |line: &str| match line.starts_with("endpoints = ") {
        true => format!("{line}\nzenoh = \"tcp/{}\"\n", unused_address()),
        false => format!("{line}\n"),
    };
    uav(duration).lines().map(with_zenoh).collect()
}

/// How the node at a socket stands; none while it does not answer.
fn show(place: &Place, socket: &str) -> Option<Value> {
    let at = place.path().join(socket);
    let shown = place.hyoshi(&format!("node show --at unix:{} --format json", at.display()));
    (shown.code == 0).then(|| shown.json()["node"].clone())
}

fn count(peer: &Value, what: &str) -> u64 {
    peer[what].as_u64().unwrap_or_else(|| panic!("{what} of {peer}"))
}

#[test]
fn two_processes_run_one_system_and_either_may_be_started_first() {
    two_processes_run(uav);
}

#[cfg(feature = "zenoh")]
#[test]
fn two_processes_run_one_system_over_zenoh() {
    two_processes_run(uav_over_zenoh);
}

fn two_processes_run(system: impl Fn(&str) -> String) {
    let _alone = alone();
    for first in ["drone", "station"] {
        let place = Place::new();
        place.write("uav.toml", system("1s"));
        let second = if first == "drone" { "station" } else { "drone" };
        let words = |host| {
            format!(
                "run uav.toml --host {host} --control {}/{host}.sock --no-report --format json",
                place.path().display()
            )
        };
        let running = start(&place, &words(first));
        until("the first one waits", || {
            show(&place, &format!("{first}.sock")).filter(|node| node["gathering"] == true)
        });
        let ended = [start(&place, &words(second)).end(&words(second)), running.end(&words(first))];
        for ended in &ended {
            assert!([0, 1].contains(&ended.code), "{}", ended.err);
        }
        let [second_ended, first_ended] = ended;
        let station = if first == "station" { first_ended } else { second_ended };
        let summary = station.json();
        let note = summary["notes"].as_array().unwrap().iter().find(|note| note["topic"] == "hosts").unwrap().clone();
        let text = note["text"].as_str().unwrap();
        assert!(text.starts_with("host drone") && text.contains("clock") && text.contains(" received"), "{text}");
        let jobs = |name: &str| {
            let operations = summary["operations"].as_array().unwrap();
            operations
                .iter()
                .find(|one| one["name"] == name)
                .map_or(0, |one| one["counts"]["released"].as_u64().unwrap_or(0))
        };
        assert_eq!(jobs("command"), 100, "{summary:#}");
        assert!(jobs("report") > 90, "{} reports", jobs("report"));
        assert_eq!(place.names(), ["uav.toml"], "sockets go with their nodes");
    }
}

#[test]
fn what_keeps_a_host_from_running_is_an_error_with_a_remedy() {
    let place = Place::new();
    place.write("uav.toml", uav("1s"));
    let error = place.hyoshi("run uav.toml --host moon --format json").error();
    assert_eq!(error["message"], "unknown host `moon`");
    assert!(error["help"].as_str().unwrap().contains("drone, station"));
    let without: Vec<_> = uav("1s").lines().filter(|line| !line.starts_with("endpoints")).map(str::to_owned).collect();
    place.write("without.toml", without.join("\n"));
    let words = format!("run without.toml --host drone --control {}/drone.sock", place.path().display());
    let ended = place.hyoshi(&words).exits(2);
    assert!(ended.err.contains("host `drone` has no endpoints") && ended.err.contains("[host.drone]"), "{}", ended.err);
    let ended = place.hyoshi("node show --at unix:/nowhere/here.sock").exits(2);
    assert!(ended.err.contains("no node answers at unix:/nowhere/here.sock"), "{}", ended.err);
    place.hyoshi("node show --at elsewhere").exits(2);
    place.hyoshi("node list --at unix:/x").exits(2);
}

#[test]
fn a_node_that_is_stopped_ends_its_run_and_its_host_cannot_run_twice() {
    let _alone = alone();
    let place = Place::new();
    place.write("uav.toml", uav("60s"));
    let words = format!(
        "run uav.toml --host station --wait 0s --control {}/s.sock --no-report --verbose",
        place.path().display()
    );
    let running = start(&place, &words);
    let node = until("it runs", || show(&place, "s.sock").filter(|node| count(node, "running_ns") > 100_000_000));
    assert_eq!(node["refused_calls"], 0);
    let machine = |node: &Value| node["machine_utilisation_ppm"].as_u64();
    let measured = |node: &Value| machine(node).is_some_and(|ppm| (1..=1_000_000).contains(&ppm));
    until("it measures the machine", || show(&place, "s.sock").filter(measured));
    let again = place.hyoshi(&words.replace("s.sock", "other.sock")).exits(2);
    assert!(again.err.contains("hyoshi node list"), "{}", again.err);
    let shown = place.hyoshi(&format!("node show --at unix:{}/s.sock", place.path().display())).exits(0);
    assert!(shown.out.contains("station") && shown.out.contains("waiting"), "{}", shown.out);
    assert!(shown.out.contains("machine     ") && shown.out.contains(" % of all CPUs used\n"), "{}", shown.out);
    assert!(shown.out.lines().all(|line| line.chars().count() <= 80), "{}", shown.out);
    // Its endpoint of the file serves operators only with certificates.
    let system = place.read("uav.toml");
    let address = system.lines().filter_map(|line| line.strip_prefix("endpoints = [\"tcp/")).nth(1).unwrap();
    let stranger = format!("node stop --at corbaloc::{}/hyoshi-node", address.trim_end_matches("\"]"));
    place.hyoshi(&stranger).exits(2);
    let node = show(&place, "s.sock").unwrap();
    assert_eq!(node["refused_calls"], 1);
    place.hyoshi(&format!("node stop --at unix:{}/s.sock", place.path().display())).exits(0);
    let ended = running.end(&words).exits(3);
    assert!(ended.out.contains("interrupted"), "{}", ended.out);
    let note = "strangers: 1 call, message or connection refused";
    assert!(ended.out.contains(note), "{}", ended.out);
}

#[test]
fn a_run_of_all_hosts_is_listed_shown_and_stopped_as_a_node_is() {
    let _alone = alone();
    let place = Place::new();
    place.write("uav.toml", uav("60s"));
    let words = format!("run uav.toml --control {}/all.sock --no-report", place.path().display());
    let running = start(&place, &words);
    let node = until("it runs", || show(&place, "all.sock").filter(|node| count(node, "running_ns") > 0));
    assert_eq!((&node["host"], &node["gathering"]), (&Value::Null, &Value::Bool(false)));
    assert_eq!(node["processors"].as_array().unwrap().len(), 2);
    let mode = std::fs::metadata(place.path().join("all.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let at = format!("--at unix:{}/all.sock", place.path().display());
    let shown = place.hyoshi(&format!("node show {at}")).exits(0);
    assert!(shown.out.contains("host        all"), "{}", shown.out);
    assert!(shown.out.lines().all(|line| line.chars().count() <= 80), "{}", shown.out);
    place.hyoshi(&format!("node stop {at}")).exits(0);
    let ended = running.end(&words).exits(3);
    assert!(ended.out.contains("interrupted"), "{}", ended.out);
    assert_eq!(place.names(), ["uav.toml"], "the socket goes with its run");
    let failed = place.hyoshi(&words.replace("all.sock", "uav.toml/all.sock")).exits(2);
    assert!(failed.err.contains("cannot listen at"), "{}", failed.err);
}

/// The default sockets are in a directory of the user. Two runs of one system have different ones.
#[test]
fn runs_without_control_are_listed() {
    let _alone = alone();
    let place = Place::new();
    let name = format!("listed {}", std::process::id());
    place.write("uav.toml", uav("60s").replace("\"uav\"", &format!("\"{name}\"")));
    let command = |words: &str| {
        let mut command = place.command(words);
        command.env("XDG_RUNTIME_DIR", place.path());
        command
    };
    let words = "run uav.toml --no-report";
    let spawn = || Running::spawn(&mut command(words));
    let running = [spawn(), spawn()];
    let listed = || {
        let ended = Ended::of("node list", &command("node list --format json").output().unwrap());
        let nodes = ended.exits(0).json()["nodes"].as_array().unwrap().clone();
        // Some jobs have ended.
        let runs = |node: &Value| node["system"] == name.as_str() && count(node, "running_ns") > 200_000_000;
        nodes.into_iter().filter(runs).collect::<Vec<_>>()
    };
    let nodes = until("both are listed", || Some(listed()).filter(|nodes| nodes.len() == 2));
    let sockets: Vec<&str> = nodes.iter().map(|node| node["at"].as_str().unwrap()).collect();
    let processes: Vec<u64> = nodes.iter().map(|node| count(node, "process")).collect();
    for run in &running {
        assert!(processes.contains(&run.0.id().into()), "{nodes:?}");
    }
    assert_ne!(sockets[0], sockets[1]);
    for socket in &sockets {
        place.hyoshi(&format!("node stop --at unix:{socket}")).exits(0);
    }
    running.into_iter().for_each(|run| drop(run.end(words).exits(3)));
}

/// The station's clock starts at its boot, after instant 0: a time namespace (time_namespaces(7)) instead of a second
/// machine.
#[test]
fn a_host_that_was_rebooted_takes_part_in_the_run_again() {
    let _alone = alone();
    let place = Place::new();
    place.write("uav.toml", uav("60s"));
    let control = place.path().display();
    let words = format!("run uav.toml --host drone --wait 0s --control {control}/drone.sock --no-report");
    let drone = start(&place, &words);
    let node = until("it runs", || show(&place, "drone.sock").filter(|node| count(node, "running_ns") > 3_000_000_000));
    assert_eq!(node["peers"][0]["state"], "waiting");
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    let seconds: u64 = uptime.split('.').next().unwrap().parse().unwrap();
    let rebooted = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--time", "--monotonic", &format!("-{}", seconds - 1), "--kill-child"]).args(words);
        command.current_dir(place.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    if !rebooted(&["true"]).status().is_ok_and(|status| status.success()) {
        return missing("root, unshare(1) and time namespaces");
    }
    let words =
        format!("run --share-cpu uav.toml --host station --control {control}/station.sock --no-report --format json");
    let words: Vec<&str> = [env!("CARGO_BIN_EXE_hyoshi")].into_iter().chain(words.split(' ')).collect();
    let station = Running(rebooted(&words).env("HYOSHI_COSTS", "none").spawn().unwrap());
    let peer = |host: &str| show(&place, &format!("{host}.sock")).map(|node| node["peers"][0].clone());
    until("completions arrive", || peer("drone").filter(|peer| count(peer, "received") > 20));
    let node = show(&place, "station.sock").unwrap();
    assert!(count(&node, "running_ns") > 3_000_000_000, "it counts from the same instant 0: {node}");
    let (offset, error) = (&node["peers"][0]["clock_ahead_ns"], &node["peers"][0]["clock_error_ns"]);
    assert!(offset.as_i64().unwrap().unsigned_abs() < 2 * error.as_u64().unwrap() + 1_000_000, "{node}");
    place.hyoshi(&format!("node stop --at unix:{control}/station.sock")).exits(0);
    let ended = station.end("station").exits(3);
    let summary = ended.json();
    let operations = summary["operations"].as_array().unwrap();
    let command = operations.iter().find(|one| one["name"] == "command").unwrap();
    assert!(command["counts"]["made"].as_u64().unwrap() > 20, "{summary:#}");
    drop(drone);
}

/// Certificate and key in `NAME.pem`, for its owner only.
fn certify(place: &Place, name: &str, papers: &Papers) {
    let file = papers.file(place.path(), &format!("{name}.pem"));
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn nodes_with_certificates_join_over_tls_and_operators_show_and_stop_them_there() {
    let _alone = alone();
    let (place, plant) = (Place::new(), Authority::new("plant"));
    let contract = "[condition.battery]\nvalue = 80\n[contract.power]\non = \"ground\"\n\
                    watch = { battery = { of = \"condition.battery\" } }\n[[contract.power.region]]\nname = \"low\"\n\
                    enter = \"battery < 20\"\n[[contract.power.region]]\nname = \"normal\"\n";
    let system = format!("{}\n{contract}", uav("60s").replace("\"tcp/", "\"tls/"));
    place.write("uav.toml", &system);
    plant.file(place.path());
    for name in ["drone", "station", "moon", "ann", "bob"] {
        certify(&place, name, &plant.papers(&[name]));
    }
    std::fs::write(place.path().join("station.key"), place.read("station.pem")).unwrap();
    std::fs::set_permissions(place.path().join("station.key"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let words = |host: &str, more: &str| {
        let control = place.path().display();
        format!(
            "run uav.toml --host {host} --control {control}/{host}.sock --tls-roots authority.pem --no-report {more}"
        )
    };
    let ended = place.hyoshi(&words("drone", "").replace("--tls-roots authority.pem ", "")).exits(2);
    assert!(ended.err.contains("needs a certificate") && ended.err.contains("--tls-cert"), "{}", ended.err);

    let station = start(&place, &words("station", "--tls-cert station.pem --tls-key station.key --tls-operator ann"));
    until("it waits", || show(&place, "station.sock"));
    let peer = |host: &str| show(&place, &format!("{host}.sock")).map(|node| node["peers"][0].clone());
    let refused = |host: &str| until("it is refused", || peer(host).filter(|peer| peer["state"] == "refused"));
    let moon = start(&place, &words("drone", "--tls-cert moon.pem"));
    until("it waits", || show(&place, "drone.sock"));
    assert!(refused("drone")["because"].as_str().unwrap().contains("your certificate is of moon"));
    assert!(refused("station")["because"].as_str().unwrap().contains("its certificate is not for host"));
    drop(moon);

    let drone = start(&place, &words("drone", "--tls-cert drone.pem"));
    until("completions go both ways", || peer("station").filter(|peer| count(peer, "received") > 5));
    let address = system.lines().filter_map(|line| line.strip_prefix("endpoints = [\"tls/")).nth(1).unwrap();
    let at = address.trim_end_matches("\"]");
    let ask = |verb: &str, who: &str| {
        let papers = format!("--tls-roots authority.pem --tls-cert {who}.pem");
        place.hyoshi(&format!("{verb} --at ssliop://{at} {papers} --tls-name station"))
    };
    let shown = ask("node show", "bob").exits(0);
    assert!(shown.out.contains("drone") && shown.out.contains("joined"), "{}", shown.out);
    let denied = ask("node stop", "bob").exits(2);
    assert!(
        denied.err.contains("no name that is allowed to do this") && denied.err.contains("--tls-operator"),
        "{}",
        denied.err
    );
    for verb in ["force power low", "set battery 10", "release power"] {
        let denied = ask(&format!("contract {verb}"), "bob").exits(2);
        assert!(denied.err.contains("--tls-operator"), "{verb}: {}", denied.err);
    }
    let region = || ask("contract list --format json", "ann").exits(0).json()["contracts"][0]["regions"][0].clone();
    assert_eq!(region(), "normal");
    ask("contract force power low", "ann").exits(0);
    until("the region of the command", || (region() == "low").then_some(()));
    for verb in ["node admit command", "node withdraw command"] {
        let denied = ask(verb, "bob").exits(2);
        assert!(denied.err.contains("--tls-operator"), "{}", denied.err);
        let refused = ask(verb, "ann").exits(2);
        assert!(refused.err.contains("operation `command` is not on standby"), "{}", refused.err);
    }
    let plain = place.hyoshi(&format!("node show --at ssliop://{at} --tls-roots authority.pem")).exits(2);
    assert!(plain.err.contains("--tls-name"), "{}", plain.err);
    ask("node stop", "ann").exits(0);
    station.end("station").exits(3);
    drop(drone);
}

#[cfg(feature = "zenoh")]
#[test]
fn two_processes_exchange_completions_over_zenoh_with_certificates() {
    let _alone = alone();
    let (place, plant) = (Place::new(), Authority::new("plant"));
    place.write("uav.toml", uav_over_zenoh("60s").replace("\"tcp/", "\"tls/"));
    plant.file(place.path());
    for name in ["drone", "station"] {
        let named = plant.papers_with(&[name], |params| {
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(rcgen::DnType::CommonName, name);
        });
        certify(&place, name, &named);
    }
    certify(&place, "yard", &plant.papers(&["drone"]));
    let words = |host: &str, certificate: &str| {
        let control = place.path().display();
        format!(
            "run uav.toml --host {host} --control {control}/{host}.sock --tls-roots authority.pem --no-report \
             --tls-cert {certificate}.pem"
        )
    };
    let ended = place.hyoshi(&words("drone", "yard")).exits(2);
    assert!(ended.err.contains("has the common name `yard`, not `drone`"), "{}", ended.err);
    assert!(ended.err.contains("CN=drone"), "{}", ended.err);
    let running = ["station", "drone"].map(|host| start(&place, &words(host, host)));
    for host in ["station", "drone"] {
        until("completions go both ways", || {
            let node = show(&place, &format!("{host}.sock"))?;
            (count(&node["peers"][0], "received") > 5).then_some(())
        });
    }
    drop(running);
}

/// Kills the drone so many times, while the station goes on.
fn killed_and_restarted(times: u32, system: &str) {
    let _alone = alone();
    let place = Place::new();
    place.write("uav.toml", system);
    let words = |host: &str, more: &str| {
        format!("run uav.toml --host {host} --control {}/{host}.sock --no-report {more}", place.path().display())
    };
    let station = start(&place, &words("station", "--format json"));
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", station.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let drone_of = |node: &Value| node["peers"][0].clone();
    let (mut before, mut received) = (0, 0);
    for time in 1..=times {
        let drone = start(&place, &words("drone", ""));
        // It is there again, and completions go both ways.
        received = until("the drone reports", || {
            let peer = drone_of(&show(&place, "station.sock")?);
            (count(&peer, "joined") == u64::from(time) && count(&peer, "received") > received + 5)
                .then(|| count(&peer, "received"))
        });
        drop(drone);
        until("it is lost", || {
            drone_of(&show(&place, "station.sock")?)["state"].as_str().filter(|state| *state == "lost").map(drop)
        });
        if time == times.div_ceil(5) {
            before = memory();
        }
    }
    let (after, node) = (memory(), show(&place, "station.sock").unwrap());
    assert!(after <= before + before / 10 + 2_048, "memory grew from {before} to {after} kB");
    place.hyoshi(&format!("node stop --at unix:{}/station.sock", place.path().display())).exits(0);
    let ended = station.end("station");
    let summary = ended.json();
    let peer = drone_of(&node);
    let operation = |name: &str| {
        let all = summary["operations"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).unwrap()["counts"].clone()
    };
    // Whatever left the dispatcher was sent or counted as unsent, until the node was stopped.
    let commands = operation("command")["made"].as_u64().unwrap();
    let counted = count(&peer, "sent") + count(&peer, "unsent");
    assert!(counted <= commands && commands < counted + 500, "{commands} commands, {counted} sent or unsent: {peer}");
    assert!(count(&peer, "unsent") > 0 && count(&peer, "unconfirmed") <= count(&peer, "sent"), "{peer}");
    assert_eq!(count(&peer, "rejected"), 0, "{peer}");
    println!("{times} kills: memory {before} to {after} kB; {peer}");
    println!("command {}", operation("command"));
    println!("watch {}", operation("watch"));
    if real_time() {
        let missed = ["command", "watch"].map(|name| operation(name)["missed"].as_u64().unwrap());
        assert_eq!(missed, [0, 0], "{summary:#}");
    }
}

#[test]
fn a_node_that_is_killed_and_restarted_costs_the_other_no_deadline() {
    undisturbed(|| killed_and_restarted(3, &uav("10min")));
}

#[cfg(feature = "zenoh")]
#[test]
fn a_node_that_is_killed_and_restarted_resumes_over_zenoh_and_losses_are_counted() {
    undisturbed(|| killed_and_restarted(3, &uav_over_zenoh("10min")));
}

#[cfg(feature = "zenoh")]
#[test]
#[ignore = "takes minutes"]
fn fifty_kills_over_zenoh_cost_the_other_node_no_deadline_and_no_memory() {
    killed_and_restarted(50, &uav_over_zenoh("10min"));
}

/// Each host triggers four operations of the other one every millisecond, over Zenoh.
#[cfg(feature = "zenoh")]
fn crossing() -> String {
    let mut text = String::from("name = \"crossing\"\nduration = \"6h\"\n");
    for (host, processor, cpu) in [("drone", "airframe", second_cpu()), ("station", "ground", 0)] {
        text += &format!(
            "[host.{host}]\nendpoints = [\"tcp/{}\"]\nzenoh = \"tcp/{}\"\n[processor.{processor}]\nhost = \"{host}\"\n\
             cpu = {cpu}\n",
            unused_address(),
            unused_address()
        );
    }
    for (from, to) in [("airframe", "ground"), ("ground", "airframe")] {
        for number in 0..4 {
            text += &format!(
                "[operation.{from}-{number}]\non = \"{from}\"\nevery = \"1ms\"\nwcet = \"20us\"\npayload = \"8B\"\n\
                 [operation.{to}-after-{number}]\non = \"{to}\"\nafter = {{ all = [\"{from}-{number}\"] }}\nwcet = \"20us\"\n"
            );
        }
    }
    text
}

/// What a node has counted of the completions from its peer.
#[cfg(feature = "zenoh")]
fn arrived(peer: &Value) -> u64 {
    ["received", "rejected", "missing"].map(|what| count(peer, what)).iter().sum()
}

/// `.ci/long`. NODES_COMPLETIONS is the number of completions that the station sends and receives.
#[cfg(feature = "zenoh")]
#[test]
#[ignore = "takes 25 minutes"]
fn each_completion_over_zenoh_is_counted_while_a_node_is_killed_twenty_times() {
    use std::time::{Duration, Instant};

    const KILLS: u64 = 20;
    // Completions on their way arrive meanwhile.
    const ARRIVAL: Duration = Duration::from_millis(500);
    let _alone = alone();
    let wanted: u64 = std::env::var("NODES_COMPLETIONS").map_or(10_000_000, |text| text.parse().unwrap());
    let place = Place::new();
    place.write("crossing.toml", crossing());
    let words = |host: &str| {
        format!(
            "run crossing.toml --host {host} --control {}/{host}.sock --no-report --format json",
            place.path().display()
        )
    };
    let station = start(&place, &words("station"));
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", station.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let peer = |host: &str| show(&place, &format!("{host}.sock")).map(|node| node["peers"][0].clone());
    let now = |host: &str| until("the node answers", || peer(host));
    // At the end of the drone's last life: what the station had sent and received.
    let (mut sent, mut came, mut memories) = (0, 0, Vec::new());
    for life in 1..=KILLS + 1 {
        let drone = start(&place, &words("drone"));
        let share = wanted * life / (KILLS + 1);
        let deadline = Instant::now() + Duration::from_secs(30 * 60);
        loop {
            let known = now("station");
            if known["state"] == "joined" && count(&known, "sent") + arrived(&known) >= share {
                break;
            }
            assert!(Instant::now() < deadline, "{share} completions take too long: {known}");
            std::thread::sleep(Duration::from_millis(200));
        }
        let (sent_by_drone, sent_by_station) = (count(&now("drone"), "sent"), count(&now("station"), "sent"));
        std::thread::sleep(ARRIVAL);
        let at_drone = arrived(&now("drone"));
        drop(drone);
        let after = until("it is lost", || peer("station").filter(|peer| peer["state"] == "lost"));
        let (end_sent, end_came) = (count(&after, "sent"), arrived(&after));
        // Whatever was sent in time was received, rejected or missing, and nothing twice.
        assert!(
            (sent_by_station - sent..=end_sent - sent).contains(&at_drone),
            "life {life}: the station sent {sent_by_station} to {end_sent} after {sent}, the drone counted {at_drone}"
        );
        assert!(
            end_came - came >= sent_by_drone,
            "life {life}: the drone sent {sent_by_drone}, the station counted {end_came} after {came}: {after}"
        );
        (sent, came) = (end_sent, end_came);
        memories.push(memory());
        println!("life {life}: {after}; memory {} kB", memory());
    }
    let (before, after) = (memories[4], memories[memories.len() - 1]);
    assert!(after <= before + before / 10 + 2_048, "memory grew: {memories:?} kB");
    let known = now("station");
    place.hyoshi(&format!("node stop --at unix:{}/station.sock", place.path().display())).exits(0);
    let ended = station.end("station");
    let summary = ended.json();
    let operations = summary["operations"].as_array().unwrap();
    let completed = |name: &str| {
        let counts = &operations.iter().find(|one| one["name"] == name).unwrap()["counts"];
        println!("{name}: {counts}");
        ["made", "missed"].map(|what| counts[what].as_u64().unwrap()).iter().sum::<u64>()
    };
    let completed: u64 = (0..4).map(|number| completed(&format!("ground-{number}"))).sum();
    let notes = summary["notes"].as_array().unwrap().iter().map(|note| note["text"].as_str().unwrap_or_default());
    let text: Vec<&str> = notes.filter(|text| text.starts_with("host drone")).collect();
    let of_note = |what: &str| {
        let number = text[0].split(what).next().unwrap().rsplit([' ', ',']).next().unwrap();
        number.parse::<u64>().unwrap_or_else(|_| panic!("{what} in {text:?}"))
    };
    // What left the dispatcher was sent or is unsent. The report counts jobs until the node was stopped, without those
    // whose ends a full ring lost; the note counts completions until the node's end.
    let lost = summary["lost_events"].as_u64().unwrap();
    let (least, most) =
        (count(&known, "sent") + count(&known, "unsent"), of_note(" completions sent") + of_note(" not sent"));
    println!("{completed} completed, {least} to {most} sent or unsent; {text:?}");
    assert!(completed <= most, "{completed} completed, {least} to {most} counted: {text:?}");
    assert!(completed + lost >= least, "{completed} completed, {lost} lost, {least} to {most} counted: {text:?}");
}

#[cfg(not(feature = "zenoh"))]
#[test]
fn a_file_with_zenoh_needs_a_program_with_zenoh() {
    let place = Place::new();
    place.write("uav.toml", uav("1s").replacen("endpoints = ", "zenoh = \"tcp/127.0.0.1:7450\"\nendpoints = ", 1));
    let words = format!("run uav.toml --host station --control {}/station.sock", place.path().display());
    let ended = place.hyoshi(&words).exits(2);
    assert!(ended.err.contains("host `drone` receives completions over Zenoh"), "{}", ended.err);
    assert!(ended.err.contains("--features zenoh"), "{}", ended.err);
}

/// `.ci/long`.
#[test]
#[ignore = "takes minutes"]
fn fifty_kills_cost_the_other_node_no_deadline_and_no_memory() {
    killed_and_restarted(50, &uav("10min"));
}
