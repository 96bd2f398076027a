//! Two processes with a host each, for benchmarks: the first starts the second, whose output are pairs of numbers.

#![allow(dead_code, reason = "each benchmark uses its part")]

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use hyoshi_model::{HostId, Span, System, write};
use hyoshi_node::{Agreed, NodePeers, NodeSettings};
use hyoshi_os::{Clock, Interrupt, MonotonicClock, Wake, allowed_cpus};
use hyoshi_runtime::Prepared;
use hyoshi_trace::TraceEvent;

/// The role, ports and number of samples of the second process.
pub const ROLE: &str = "HYOSHI_CHAIN_ROLE";

/// The CPU time of this process.
pub fn process_cpu() -> Span {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Span::from_secs(time.tv_sec as u64) + Span::from_nanos(time.tv_nsec as u64)
}

pub fn percentile(figures: &[u64], part: usize) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_unstable();
    *sorted.get(sorted.len().saturating_sub(1) * part / 100).expect("something was measured") as f64
}

pub fn print(what: &str, nanos: &[u64]) {
    let at = |part| percentile(nanos, part) / 1_000.0;
    println!("{what:<50} p50 {:7.1} us  p99 {:7.1} us  ({} samples)", at(50), at(99), nanos.len());
}

/// The CPUs of the two hosts.
pub fn cpus() -> [u32; 2] {
    let allowed = allowed_cpus();
    [allowed[0], *allowed.last().expect("a CPU to run on")]
}

pub fn ports() -> [u16; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("its own address").port())
}

/// The second process, and its output.
pub struct Second {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Second {
    pub fn start(role: &str, [one, other]: [u16; 2], samples: u64) -> Second {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .env(ROLE, format!("{role} {one} {other} {samples}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a second process");
        let (stdin, stdout) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Second { child, stdin, stdout: BufReader::new(stdout) }
    }

    pub fn wait_until_ready(&mut self) {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
    }

    /// Ends it and returns the pairs of numbers that it printed.
    pub fn end(mut self) -> Vec<(u64, u64)> {
        drop(self.stdin);
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).expect("numbers");
        assert!(self.child.wait().expect("its end").success());
        let number = |word: Option<&str>| word.and_then(|word| word.parse().ok()).expect("a number");
        text.lines()
            .map(|line| {
                let mut words = line.split(' ');
                (number(words.next()), number(words.next()))
            })
            .collect()
    }
}

/// Numbers, and their times on CLOCK_MONOTONIC; the CPU time that the process used meanwhile.
pub struct Times {
    pub at: Vec<(u64, u64)>,
    pub cpu: Span,
}

impl Times {
    pub fn print(&self) {
        let mut text = String::new();
        for (number, at) in &self.at {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{number} {at}");
        }
        std::io::stdout().write_all(text.as_bytes()).expect("the first process reads");
    }
}

/// The spans between times with the same number.
pub fn between(first: &[(u64, u64)], second: &[(u64, u64)]) -> Vec<u64> {
    let of = |number: u64| second.iter().find(|(other, _)| *other == number);
    first.iter().filter_map(|(number, at)| Some(of(*number)?.1.saturating_sub(*at))).collect()
}

/// Runs the node of one host to its end. Returns the times of the events that `pick` selects.
pub fn run_host(
    system: &Arc<System>,
    host: u32,
    mut node: Prepared,
    control: Option<PathBuf>,
    pick: impl Fn(&TraceEvent) -> Option<u64>,
) -> Times {
    let settings = NodeSettings {
        system: system.clone(),
        text: write(system),
        host: HostId(host),
        wait: Span::from_secs(20),
        cpu: Some(cpus()[host as usize]),
        tls: None,
        carrier: None,
        control,
        events: None,
        interrupt: Interrupt::manual(Arc::new(Wake::new())),
    };
    let peers = NodePeers::start(settings, &mut node).expect("free ports");
    let Agreed { clock, .. } = peers.agree(|_| ()).expect("the other node");
    let (mut times, before) = (Vec::new(), process_cpu());
    node.begin(clock).wait(&mut |_, at, event| {
        times.extend(pick(&event).map(|number| (number, clock.origin() as u64 + at.as_nanos())));
    });
    Times { at: times, cpu: process_cpu().saturating_sub(before) }
}

pub fn now() -> u64 {
    MonotonicClock::from_origin(0).now().as_nanos()
}
