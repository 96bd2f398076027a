//! Very many connections that say nothing, against a server in a process of its own.

use crate::said;
use crate::tracking;

use std::io::Read;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyoshi_model::Span;
use hyoshi_orb::Orb;
use said::Said;
use tracking::*;

const SERVES: &str = "CROWD_SERVES";

/// A server that may have so many files open.
struct Server {
    process: Child,
    ior: String,
    /// Kept: what it says at its end finds a reader.
    _output: Said,
}

impl Server {
    fn start(descriptors: u64) -> Server {
        let script = format!("ulimit -n {descriptors} && exec \"$0\" --exact crowd::serves --nocapture");
        let mut process = Command::new("sh")
            .args(["-c", &script])
            .arg(std::env::current_exe().unwrap())
            .env(SERVES, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Said::by(process.stdout.take().unwrap());
        let ior = said.find("its reference", |line| line.starts_with("IOR:").then(|| line.to_owned()));
        Server { process, ior, _output: said }
    }

    fn connect(&self, client: &Orb) -> TrackerStub {
        client.resolve_unchecked::<dyn Tracker>(&self.ior).unwrap()
    }

    /// Connections that say nothing.
    fn open(&self, client: &Orb, count: usize) -> Vec<TcpStream> {
        let tracker = self.connect(client);
        let profile = tracker.ior().iiop().next().unwrap().unwrap();
        let address = (profile.host, profile.port);
        (0..count).map(|_| TcpStream::connect(address).unwrap()).collect()
    }

    /// Resident memory in KiB.
    fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// The server; nothing where no other test has started it.
#[test]
fn serves() {
    if std::env::var_os(SERVES).is_none() {
        return;
    }
    let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let tracker = orb.adapter("a").build().unwrap().activate::<dyn Tracker>(Arc::new(Yard::default())).unwrap();
    println!("\n{}", tracker.ior());
    let _ = std::io::stdin().read(&mut [0]);
}

/// The time of a call: the least of several medians, for others use the machine too.
fn time(tracker: &TrackerStub) -> Duration {
    let median = || {
        let mut times: Vec<_> = (0..200)
            .map(|_| {
                let begun = Instant::now();
                tracker.nothing().unwrap();
                begun.elapsed()
            })
            .collect();
        times.sort_unstable();
        times[times.len() / 2]
    };
    (0..10).map(|_| median()).min().unwrap()
}

fn crowd(count: usize) {
    let descriptors = count as u64 + 100;
    if hyoshi_os::raise_file_limit().is_some_and(|most| most < descriptors) {
        eprintln!("skipped: {count} connections need {descriptors} file descriptors (ulimit -Hn)");
        return;
    }
    let (server, client) = (Server::start(descriptors), Orb::client().unwrap());
    let tracker = server.connect(&client);
    let alone = time(&tracker);
    let before = server.resident();
    let mut silent = server.open(&client, count);
    // Who comes last is served when all others were let in.
    server.connect(&Orb::client().unwrap()).within(Span::from_secs(60)).nothing().unwrap();
    let among = time(&tracker);
    let each = server.resident().saturating_sub(before) as f64 / count as f64;
    println!("{count} silent connections: {each:.2} KiB of the server each; a call {among:?}, alone {alone:?}");
    assert!(each < 16.0, "{each} KiB of memory for each connection");
    assert!(among < 5 * alone, "a call takes {among:?} among them and {alone:?} alone");
    for stream in &mut silent {
        stream.set_nonblocking(true).unwrap();
        assert!(stream.read(&mut [0]).is_err(), "none was closed");
    }
}

#[test]
fn a_thousand_connections_that_say_nothing_harm_nobody() {
    crowd(1_000);
}

#[test]
#[ignore = "takes more file descriptors and memory of the kernel than every machine grants"]
fn ten_thousand_connections_that_say_nothing_harm_nobody() {
    crowd(10_000);
}

#[test]
fn where_descriptors_are_short_silent_connections_make_room_and_others_stay() {
    let (server, client) = (Server::start(64), Orb::client().unwrap());
    let tracker = server.connect(&client);
    tracker.nothing().unwrap();
    // More than it can have open; the rest waits to be accepted.
    let _silent = server.open(&client, 150);
    let late = Orb::client().unwrap();
    server.connect(&late).within(Span::from_secs(60)).nothing().unwrap();
    // Whoever has said something is still connected: a request that was lost would not be sent again.
    tracker.nothing().unwrap();
}
