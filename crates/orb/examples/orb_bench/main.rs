//! Whether calls cost the same whatever there is much of, and what one costs that needs no wire.
//!
//!     cargo run --release -p hyoshi-orb --example orb_bench                 # all, at normal priority
//!     cargo run --release -p hyoshi-orb --example orb_bench -- --fifo       # SCHED_FIFO (as root)
//!     ... --one-cpu          both ends on CPU 0, else the server on 0 and the client on 1
//!     ... --only objects     one of: objects, operations, collocated, order, connections, lanes, cancels, proxy, delegates
//!     ... --omniorb PROGRAM  beside the lanes, a server of omniORB: `tracker`, as `crates/interop/others/build` builds it
//!
//! The server is a process of its own. Each figure is the median of five rounds. Calls beside bare sockets and omniORB:
//! `scripts/bench-orb`.

#![allow(missing_docs)] // a program

#[path = "../../tests/common/authority.rs"]
mod authority;
#[path = "../../tests/common/tracking.rs"]
mod tracking;

mod cancels;
mod connections;
mod lanes;
mod many;
mod order;
mod proxy;
mod serve;

use std::process::{Command, Stdio};
use std::time::Instant;

use hyoshi_orb::{Orb, ThreadPolicy};
use tracking::Tracker;

/// Below the release threads, among the lanes.
pub const FIFO: ThreadPolicy = ThreadPolicy::Fifo(60);

/// How it was asked to run.
#[derive(Clone, Debug)]
pub struct Asked {
    fifo: bool,
    one_cpu: bool,
    only: Option<String>,
    pub omniorb: Option<String>,
}

impl Asked {
    fn from_arguments() -> Asked {
        let all: Vec<String> = std::env::args().collect();
        let has = |name: &str| all.iter().any(|argument| argument == name);
        let after =
            |name: &str| all.iter().position(|argument| argument == name).and_then(|at| all.get(at + 1).cloned());
        let (only, omniorb) = (after("--only"), after("--omniorb"));
        Asked { fifo: has("--fifo"), one_cpu: has("--one-cpu"), only, omniorb }
    }

    pub fn policy(&self) -> ThreadPolicy {
        if self.fifo { FIFO } else { ThreadPolicy::Other }
    }

    fn wants(&self, what: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == what)
    }

    /// Puts the calling thread where a client's belong.
    pub fn take_place(&self) {
        if let Err(refused) = hyoshi_os::pin_to(u32::from(!self.one_cpu)) {
            eprintln!("{refused}");
        }
        if let Err(refused) = hyoshi_os::set_own_policy(self.policy()) {
            eprintln!("{refused}");
        }
    }
}

/// The server's objects, as it prints them.
pub struct Server {
    process: ServerProcess,
    pub tracker: String,
    pub secure: String,
    /// Served by threads of the ORB in an order, and by the owner of a lane without and with one.
    pub threads: String,
    pub owned: String,
    pub ordered: String,
    /// Whom clients believe, in PEM.
    pub authority: String,
}

impl Server {
    /// A server of this kind, and the lines that it prints.
    fn spawn(kind: &str) -> (ServerProcess, impl FnMut() -> String + use<>) {
        Server::spawn_with(kind, ("ORB_BENCH_SERVES", kind))
    }

    /// The same with a variable of its environment.
    pub fn spawn_with(kind: &str, (name, value): (&str, &str)) -> (ServerProcess, impl FnMut() -> String + use<>) {
        let mut command = Command::new(std::env::current_exe().expect("its own path"));
        Server::run(command.args(std::env::args().skip(1)).env("ORB_BENCH_SERVES", kind).env(name, value))
    }

    fn run(command: &mut Command) -> (ServerProcess, impl FnMut() -> String + use<>) {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the server starts");
        let output = std::io::BufReader::new(process.stdout.take().expect("piped"));
        let mut lines = std::io::BufRead::lines(output).map_while(Result::ok);
        (ServerProcess(process), move || lines.next().expect("the server prints its addresses"))
    }

    fn start() -> Server {
        let (process, mut next) = Server::spawn("objects");
        let (tracker, secure) = (next(), next());
        let (threads, owned, ordered) = (next(), next(), next());
        let mut authority = String::new();
        while !authority.contains("-----END") {
            authority += &(next() + "\n");
        }
        Server { process, tracker, secure, threads, owned, ordered, authority }
    }

    /// Resident memory of the server, in KiB.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.0.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
    }
}

/// Ends with this.
pub struct ServerProcess(std::process::Child);

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Times of single calls, in nanoseconds.
pub fn times(count: usize, mut call: impl FnMut()) -> Vec<u64> {
    for _ in 0..count / 10 {
        call();
    }
    (0..count)
        .map(|_| {
            let start = Instant::now();
            call();
            start.elapsed().as_nanos() as u64
        })
        .collect()
}

pub fn quantile(times: &mut [u64], part: usize) -> u64 {
    times.sort_unstable();
    times[times.len() * part / 100]
}

pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Calls to each in turn, so that changes on the machine affect all of them; ratios are to the first.
pub fn compare(variants: &[(&str, &tracking::TrackerStub)]) {
    let rounds: Vec<Vec<f64>> = (0..5)
        .map(|_| {
            let p50 = |tracker: &tracking::TrackerStub| {
                quantile(&mut times(20_000, || tracker.nothing().expect("it answers")), 50)
            };
            variants.iter().map(|(_, tracker)| p50(tracker) as f64 / 1e3).collect()
        })
        .collect();
    for (at, (name, _)) in variants.iter().enumerate() {
        let p50 = median(rounds.iter().map(|round| round[at]).collect());
        let ratio = median(rounds.iter().map(|round| round[at] / round[0]).collect());
        println!("{:<28} p50 {p50:.1} us   ratio {ratio:.2}", format!("served by {name}"));
    }
}

fn collocated(asked: &Asked) {
    asked.take_place();
    let orb = Orb::client().expect("it starts");
    let adapter = orb.adapter("here").build().expect("a fresh name");
    let tracker = adapter.activate::<dyn Tracker>(std::sync::Arc::new(serve::Silent)).expect("it is fresh");
    let rounds = (0..5).map(|_| {
        let start = Instant::now();
        for _ in 0..1_000_000 {
            std::hint::black_box(&tracker).nothing().expect("it is here");
        }
        start.elapsed().as_nanos() as f64 / 1e6
    });
    println!("{:<28} {:.1} ns a call", "collocated", median(rounds.collect()));
}

fn main() {
    let asked = Asked::from_arguments();
    match std::env::var("ORB_BENCH_SERVES").as_deref() {
        Ok("lanes") => return lanes::serve(&asked),
        Ok("cancels") => return cancels::serve(&asked),
        Ok("proxy") => return proxy::serve(),
        Ok("relay") => return proxy::relay(),
        Ok(_) => return serve::serve(&asked),
        Err(_) => {}
    }
    let server = Server::start();
    let client = Orb::client().expect("the client starts");
    let tracker = client.resolve::<dyn Tracker>(&server.tracker).expect("the server answers");
    println!(
        "{}, {}",
        if asked.fifo { "SCHED_FIFO" } else { "normal priority" },
        if asked.one_cpu { "both ends on one CPU" } else { "ends on two CPUs" },
    );
    asked.take_place();
    if asked.wants("objects") {
        many::objects(&client, &tracker);
    }
    if asked.wants("operations") {
        many::operations(&client, &tracker);
    }
    if asked.wants("collocated") {
        collocated(&asked);
    }
    if asked.wants("order") {
        order::order(&server, &client, &tracker);
    }
    if asked.wants("proxy") {
        proxy::proxy(&server, &client, &tracker);
        proxy::delegate(&asked);
    }
    if asked.wants("delegates") {
        proxy::around_stubs(&asked, &tracker);
    }
    if asked.wants("connections") {
        connections::connections(&server, &tracker);
        connections::secure(&server);
    }
    if asked.wants("cancels") {
        cancels::cancels(&asked, &client);
    }
    if asked.wants("lanes") {
        lanes::lanes(&asked, &client);
    }
}
