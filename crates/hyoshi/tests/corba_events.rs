//! Events of a run in omniORB programs: their consumers receive events, and their supplier publishes.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::loopback::unused_address;
use crate::common::programs::{PATIENCE, Program, build};
use crate::common::{Ended, Place, alone};

/// The omniORB program. If omniORB is not installed, `None`, and a printed line.
fn omniorb() -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(|| build("events").map(|directory| directory.join("events"))).clone()
}

/// A rover that receives position fixes from outside.
fn rover(address: &str) -> String {
    format!(
        r#"
name     = "corba-rover"
duration = "60s"
[event."sensor/gps"]
payload   = "512B"
endpoints = ["tcp/{address}"]
[operation.gps]
called       = true
min_interval = "1ms"
wcet         = "0.05ms"
supplies     = ["sensor/gps"]
[operation.fuse]
after = {{ event = "sensor/gps" }}
wcet  = "0.05ms"
"#
    )
}

#[test]
fn consumers_and_suppliers_of_omniorb_take_part_in_a_run() {
    let Some(omniorb) = omniorb() else { return };
    let _alone = alone();
    let (place, address) = (Place::new(), unused_address().to_string());
    place.write("rover.toml", rover(&address));
    let words = "run rover.toml --no-report --control run.sock --format json";
    let run = Program::start(place.command(words).stderr(Stdio::null()));
    let program = |role: &str| {
        let mut command = Command::new(&omniorb);
        command.args(role.split(' ').take(1)).arg(format!("corbaloc:iiop:1.2@{address}/sensor/gps"));
        command.args(role.split(' ').skip(1)).args(["-ORBendPoint", "giop:tcp:127.0.0.1:0"]);
        command.stderr(Stdio::null());
        command
    };
    let began = Instant::now();
    let first = loop {
        let consumer = Program::start(&mut program("consume 6"));
        match consumer.lines.recv_timeout(PATIENCE) {
            Ok(line) if line == "ready" => break consumer,
            line => assert!(began.elapsed() < PATIENCE, "{line:?}"),
        }
        thread::sleep(Duration::from_millis(50));
    };
    // They delay no other consumer.
    let (hangs, killed) = (Program::start(&mut program("hang")), Program::start(&mut program("consume 1000")));
    assert_eq!([hangs.line(), killed.line()], ["ready", "ready"]);
    drop(killed);

    let (code, checks) = Program::start(&mut program("supply")).end();
    assert_eq!((code, checks.last().map(String::as_str)), (Some(0), Some("10 checks, 0 failed")), "{checks:#?}");
    let received = ["string 48.1N", "long -7", "octets raw", "name gps.fix"];
    assert_eq!(received.map(|_| first.line()), received);
    // From the shell: plain octets.
    let at = format!("--at unix:{}", place.path().join("run.sock").display());
    for text in ["48.2N", "48.3N"] {
        place.hyoshi(&format!("events publish sensor/gps --text {text} {at}")).exits(0);
        assert_eq!(first.line(), format!("octets {text}"));
    }
    assert_eq!(first.end(), (Some(0), Vec::new()), "it has disconnected");

    let last = Program::start(&mut program("consume 1000"));
    assert_eq!(last.line(), "ready");
    place.hyoshi(&format!("node stop {at}")).exits(0);
    assert_eq!(last.line(), "disconnected");
    drop(hangs);
    let (code, lines) = run.end();
    let summary = Ended { code: code.unwrap(), out: lines.join("\n"), err: String::new() }.json();
    let jobs = |name: &str| {
        let operations = summary["operations"].as_array().unwrap();
        let of_name = operations.iter().find(|one| one["name"] == name).unwrap();
        of_name["counts"]["made"].as_u64().unwrap() + of_name["counts"]["missed"].as_u64().unwrap()
    };
    assert_eq!(["gps", "fuse"].map(jobs), [6, 6], "{summary}");
    let notes: Vec<&str> =
        summary["notes"].as_array().unwrap().iter().filter_map(|note| note["text"].as_str()).collect();
    assert!(notes.iter().any(|note| note.starts_with("event sensor/gps, CORBA programs: ")), "{notes:?}");
}

#[test]
fn an_endpoint_that_is_taken_ends_the_run_before_it_begins() {
    let (place, taken) = (Place::new(), std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let address = taken.local_addr().unwrap().to_string();
    place.write("rover.toml", rover(&address));
    let ended = place.hyoshi("run rover.toml --no-report --duration 100ms").exits(2);
    assert!(ended.err.contains(&address) && ended.err.contains("help: "), "{}", ended.err);
    place.write("rover.toml", rover(&address).replace("tcp/", "tls/"));
    let ended = place.hyoshi("run rover.toml --no-report --duration 100ms").exits(2);
    assert!(ended.err.contains("needs a certificate"), "{}", ended.err);
}
