//! Traffic classes of `run --host`, in network namespaces.

use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Ended, Place, alone, missing};
use crate::namespaces::{ADDRESSES, DEVICE, Namespaces};

/// Two hosts. On the other host, `sense` triggers the critical `act`, and `look` triggers the non-critical `log`.
fn system(duration: &str, device: &str) -> String {
    let [drone, station] = ADDRESSES;
    format!(
        r#"
name = "saturated"
duration = "{duration}"

[host.drone]
endpoints = ["tcp/{drone}:7447"]
insecure = true
network = [{device}]

[host.station]
endpoints = ["tcp/{station}:7447"]
insecure = true

[processor.airframe]
host = "drone"

[processor.ground]
host = "station"

[operation.sense]
on = "airframe"
rate = "50Hz"
wcet = "0.1ms"
critical = true

[operation.act]
on = "ground"
after = {{ all = ["sense"] }}
wcet = "0.1ms"
critical = true
guard = "off"

[operation.look]
on = "airframe"
rate = "50Hz"
wcet = "0.1ms"

[operation.log]
on = "ground"
after = {{ all = ["look"] }}
wcet = "0.1ms"
guard = "off"
"#
    )
}

fn fast() -> String {
    format!("{{ device = \"{DEVICE}\", rate = \"100Mbit/s\" }}")
}

fn namespaces() -> Option<Namespaces> {
    Namespaces::new().map_err(missing).ok()
}

/// A node that is killed with its test.
pub(crate) struct Node(Option<Child>);

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Node {
    pub(crate) fn start(place: &Place, namespaces: &Namespaces, end: usize, words: &str) -> Node {
        let mut command = namespaces.command(end, env!("CARGO_BIN_EXE_hyoshi"));
        command.args(["run", "system.toml", "--no-report", "--share-cpu", "--verbose"]).args(words.split(' '));
        command.args(["--control", &format!("{end}.sock")]);
        command.current_dir(place.path()).env("HYOSHI_COSTS", "none");
        Node(Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
    }

    pub(crate) fn end(mut self) -> Ended {
        Ended::of("run", &self.0.take().unwrap().wait_with_output().unwrap())
    }
}

pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what} took more than a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The number of packets that the most urgent class has sent.
fn urgent_packets(namespaces: &Namespaces) -> u64 {
    let shown = namespaces.tc(0, &format!("-s class show dev {DEVICE}"));
    let of_class = shown.split("class htb ").find(|class| class.starts_with("4859:10 "));
    let sent = of_class.and_then(|class| class.split(" bytes ").nth(1)?.split(' ').next()?.parse().ok());
    sent.unwrap_or_else(|| panic!("{shown}"))
}

#[test]
fn classes_hold_during_a_run_get_critical_completions_and_end_with_it_even_if_it_is_killed() {
    let _alone = alone();
    let (Some(namespaces), place) = (namespaces(), Place::new()) else { return };
    let before = namespaces.root(0);
    let holds = || namespaces.root(0).contains("htb 4859:");
    place.write("system.toml", system("3s", &fast()));
    let station = Node::start(&place, &namespaces, 1, "--host station");
    let drone = Node::start(&place, &namespaces, 0, "--host drone");
    until("setting the classes", holds);
    let shown = namespaces.tc(0, &format!("class show dev {DEVICE}"));
    assert!(shown.contains("class htb 4859:10 parent 4859:1") && shown.contains("rate 40Mbit ceil 100Mbit"), "{shown}");
    let (drone, station) = (drone.end(), station.end());
    for ended in [&drone, &station] {
        assert!(ended.code < 2, "{}{}", ended.out, ended.err);
    }
    // 150 completions of each class, and comparisons of clocks.
    let note = drone.out.lines().find(|line| line.contains(&format!("{DEVICE}: EF "))).unwrap_or_else(|| {
        panic!("no note about the classes: {}", drone.out);
    });
    let packets = |after: &str| -> u64 {
        let number = note.split(after).nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        number.replace(',', "").parse().unwrap()
    };
    assert!(packets("EF ") >= 150 && packets("other ") >= 150, "{note}");
    assert_eq!(namespaces.root(0), before);

    place.write("system.toml", system("60s", &fast()));
    let station = Node::start(&place, &namespaces, 1, "--host station");
    let mut drone = Node::start(&place, &namespaces, 0, "--host drone");
    until("setting the classes", holds);
    until("the first completions", || urgent_packets(&namespaces) > 100);
    // `ip netns exec` has become the node.
    drone.0.as_mut().unwrap().kill().unwrap();
    until("removing the classes of a killed run", || namespaces.root(0) == before);
    drop((drone, station));
}

#[test]
fn a_link_full_of_other_packets_does_not_delay_critical_completions() {
    let _alone = alone();
    let (Some(namespaces), place) = (namespaces(), Place::new()) else { return };
    place.write("system.toml", system("6s", &fast().replace("100Mbit", "10Mbit")));
    let route = ["route", "add", "239.0.0.0/8", "dev", DEVICE];
    assert!(namespaces.command(0, "ip").args(route).status().unwrap().success());
    let mut flood = namespaces.command(0, "bash");
    let flood = flood.args(["-c", "exec dd if=/dev/zero bs=1400 > /dev/udp/239.1.1.1/9"]);
    let station = Node::start(&place, &namespaces, 1, "--host station --record station.hyo");
    let drone = Node::start(&place, &namespaces, 0, "--host drone --record drone.hyo");
    until("setting the classes", || namespaces.root(0).contains("htb 4859:"));
    // Replies to new connections have no class.
    until("the first completions", || urgent_packets(&namespaces) > 100);
    let flood = Node(Some(flood.stderr(Stdio::null()).spawn().unwrap()));
    let (drone, station) = (drone.end(), station.end());
    drop(flood);
    for ended in [&drone, &station] {
        assert!(ended.code < 2, "{}{}", ended.out, ended.err);
        let lost = |line: &str| line.contains("was lost") && !line.ends_with("it ended");
        assert!(!ended.err.lines().any(lost), "{}", ended.err);
    }
    place.hyoshi("trace merge drone.hyo station.hyo -o both.hyo").exits(0);
    let summary = place.hyoshi("trace summary both.hyo --format json").json();
    let of = |name: &str, what: &str| {
        let operations = summary["operations"].as_array().unwrap();
        let counts = operations.iter().find(|one| one["name"] == name).map(|one| one["counts"][what].as_u64());
        counts.flatten().unwrap_or_else(|| panic!("{name}: {summary}"))
    };
    // All but a few of 300, at the start and the end.
    assert!(of("act", "made") > 280, "{summary}");
    assert!(of("act", "missed") <= 10, "{summary}");
    let full = drone.out.lines().find(|line| line.contains(&format!("{DEVICE}: EF ")));
    assert!(full.is_some_and(|line| line.contains(" dropped)")), "the link was not full: {}", drone.out);
}

#[test]
fn a_discipline_of_another_program_stays_and_the_run_goes_on_without_classes() {
    let _alone = alone();
    let (Some(namespaces), place) = (namespaces(), Place::new()) else { return };
    place.write("system.toml", system("0.2s", &fast()));
    namespaces.tc(0, &format!("qdisc add dev {DEVICE} root handle 1: pfifo limit 77"));
    let before = namespaces.root(0);
    let ended = Node::start(&place, &namespaces, 0, "--host drone --wait 0.1s").end();
    assert!(ended.code < 2, "{}", ended.err);
    let refused = format!("refused: network: device `{DEVICE}` has a queueing discipline of another program: pfifo 1:");
    assert!(ended.out.contains(&refused), "{}", ended.out);
    assert!(ended.out.contains(&format!("tc qdisc del dev {DEVICE} root")), "the remedy: {}", ended.out);
    let strict = Node::start(&place, &namespaces, 0, "--host drone --wait 0.1s --strict").end();
    // Where real-time priorities are refused, too, that is the first error.
    assert_eq!(strict.code, 2, "{}", strict.out);
    assert_eq!(namespaces.root(0), before);
}

#[test]
fn without_the_privilege_the_run_goes_on_and_names_it() {
    let _alone = alone();
    let place = Place::new();
    let device = "{ device = \"lo\", rate = \"1Gbit/s\" }";
    let addresses = ["127.0.0.1", "127.0.0.1"];
    let mut text = system("0.2s", device);
    for (end, address) in addresses.into_iter().enumerate() {
        text = text.replace(&format!("{}:7447", ADDRESSES[end]), &format!("{address}:{}", 17_447 + end));
    }
    place.write("system.toml", text);
    let run = |words: &str| -> Option<Output> {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin", env!("CARGO_BIN_EXE_hyoshi")]);
        command.args("run system.toml --no-report --share-cpu --host drone --wait 0.1s --control a.sock".split(' '));
        command.args(words.split_whitespace()).current_dir(place.path()).env("HYOSHI_COSTS", "none");
        let output = command.output().ok()?;
        if output.stderr.starts_with(b"setpriv: ") {
            missing("setpriv, to start programs without a privilege");
            return None;
        }
        Some(output)
    };
    let Some(output) = run("") else { return };
    let ended = Ended::of("run", &output);
    assert!(ended.code < 2, "{}", ended.err);
    assert!(
        ended.out.contains("refused: network: no permission to set classes on device `lo` (CAP_NET_ADMIN)"),
        "{}",
        ended.out
    );
    assert!(ended.out.contains("cap_net_admin"), "the remedy: {}", ended.out);
    let Some(strict) = run("--strict") else { return };
    assert_eq!(strict.status.code(), Some(2));
}
