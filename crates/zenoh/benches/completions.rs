//! The time of a completion from one process to another: `cargo bench -p hyoshi-zenoh --bench completions`, as root.
//!
//! *Completion*: two hosts, each a process on a CPU of its own with an idle lane; from the decision to send the
//! completion of the first operation to its arrival in the dispatcher of the next one, both by the nodes' events, over
//! Zenoh and over IIOP. *Bare Zenoh*: from the call of `put` to the entry of the subscriber's callback, with the
//! sessions, the payload, the attachment, the threads' priorities and the CPUs of the nodes. The goal: a completion over
//! Zenoh needs at most 1.2 times a bare one. They are measured alternately, several rounds of each.
//!
//! Both processes are on one machine, so CLOCK_MONOTONIC is common to them.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};

use hyoshi_model::{HostId, Instant, Span, System, read, write};
use hyoshi_node::idl::hyoshi_node::Completion;
use hyoshi_node::{Agreed, CompletionCarrier, NodePeers, NodeSettings};
use hyoshi_os::idle::AwakeCpus;
use hyoshi_os::priority::RELEASE;
use hyoshi_os::{Clock, Interrupt, MonotonicClock, Spawn, ThreadPolicy, Wake, allowed_cpus};
use hyoshi_runtime::Node;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{DispatchDecision, Input, TraceEvent};
use hyoshi_zenoh::{CompletionHeader, ZenohCarrier, ZenohLink, ZenohThreads, dialling, key_expression, listening};
use zenoh::Wait;
use zenoh::qos::{CongestionControl, Priority};

/// The role, ports and number of samples of the second process.
const ROLE: &str = "HYOSHI_COMPLETIONS_ROLE";
const EVERY: Span = Span::from_millis(2);
const PAYLOAD: usize = 64;

fn main() {
    if let Ok(role) = std::env::var(ROLE) {
        return second(&role);
    }
    // `cargo test --benches` only checks that it starts.
    let short = std::env::args().any(|argument| argument == "--test");
    let (rounds, samples) = if short { (1, 20) } else { (8, 250) };
    let awake = AwakeCpus::hold();
    println!("idle states that take time to leave: {}", if awake.is_ok() { "forbidden" } else { "as configured" });
    if cpus()[0] == cpus()[1] {
        println!("one CPU: both processes share it");
    }
    let (mut zenoh, mut iiop, mut bare, mut ratios) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let round = [measure(Transport::Zenoh, samples), measure(Transport::Iiop, samples), measure_bare(samples)];
        let [over_zenoh, _, direct] = round.each_ref().map(|nanos| percentile(nanos, 50));
        ratios.push((100.0 * over_zenoh / direct).round() as u64);
        let [over_zenoh, over_iiop, direct] = round;
        zenoh.extend(over_zenoh);
        iiop.extend(over_iiop);
        bare.extend(direct);
    }
    print("completion over Zenoh: sent to arrived", &zenoh);
    print("completion over IIOP: sent to arrived", &iiop);
    print("bare Zenoh: put to callback", &bare);
    let at = |part| percentile(&ratios, part) / 100.0;
    println!(
        "completion over Zenoh / bare Zenoh, p50 of each round: median {:.2}, from {:.2} to {:.2} (goal: at most 1.2)",
        at(50),
        at(0),
        at(100)
    );
}

fn percentile(figures: &[u64], part: usize) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_unstable();
    *sorted.get(sorted.len().saturating_sub(1) * part / 100).expect("something was measured") as f64
}

fn print(what: &str, nanos: &[u64]) {
    let at = |part| percentile(nanos, part) / 1_000.0;
    println!("{what:<50} p50 {:7.1} us  p99 {:7.1} us  ({} samples)", at(50), at(99), nanos.len());
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Zenoh,
    Iiop,
}

/// The CPUs of the two hosts.
fn cpus() -> [u32; 2] {
    let allowed = allowed_cpus();
    [allowed[0], *allowed.last().expect("a CPU to run on")]
}

fn ports() -> [u16; 3] {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("its own address").port())
}

fn system([one, other, zenoh]: [u16; 3], transport: Transport, samples: u64) -> Arc<System> {
    let ([first, second], duration) = (cpus(), EVERY * samples + Span::from_millis(100));
    let zenoh = match transport {
        Transport::Zenoh => format!("zenoh = \"tcp/127.0.0.1:{zenoh}\""),
        Transport::Iiop => String::new(),
    };
    let text = format!(
        r#"
        name = "completions"
        duration = "{duration}"
        [host.one]
        endpoints = ["tcp/127.0.0.1:{one}"]
        [host.other]
        endpoints = ["tcp/127.0.0.1:{other}"]
        {zenoh}
        [processor.here]
        host = "one"
        cpu = {first}
        [processor.there]
        host = "other"
        cpu = {second}
        [operation.first]
        on = "here"
        every = "{EVERY}"
        wcet = "0.1ms"
        payload = "{PAYLOAD}B"
        [operation.next]
        on = "there"
        after = {{ all = ["first"] }}
        wcet = "0.1ms"
        critical = true
        guard = "off"
        "#
    );
    Arc::new(read(&text, "completions.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system)
}

/// The second process, and its output.
struct Second {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Second {
    fn start(role: &str, [one, other, zenoh]: [u16; 3], samples: u64) -> Second {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .env(ROLE, format!("{role} {one} {other} {zenoh} {samples}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a second process");
        let (stdin, stdout) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Second { child, stdin, stdout: BufReader::new(stdout) }
    }

    fn wait_until_ready(&mut self) {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
    }

    /// Ends it and returns the pairs of numbers that it printed.
    fn end(mut self) -> Vec<(u64, u64)> {
        drop(self.stdin);
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).expect("numbers");
        assert!(self.child.wait().expect("its end").success());
        let pair = |line: &str| {
            let (number, at) = line.split_once(' ').expect("two numbers");
            (number.parse().expect("a number"), at.parse().expect("a time"))
        };
        text.lines().map(pair).collect()
    }
}

fn second(role: &str) {
    let words: Vec<&str> = role.split(' ').collect();
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    let (ports, samples) = ([1, 2, 3].map(|at| number(at) as u16), number(4));
    let over = |transport| {
        run_host(&system(ports, transport, samples), 1, |event| match event {
            TraceEvent::Input(Input::Signal(signal)) => Some(signal.number),
            _ => None,
        })
    };
    let times = match words[0] {
        "bare" => subscribe(&system(ports, Transport::Zenoh, samples)),
        "zenoh" => over(Transport::Zenoh),
        _ => over(Transport::Iiop),
    };
    let mut text = String::new();
    for (number, at) in times {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{number} {at}");
    }
    std::io::stdout().write_all(text.as_bytes()).expect("the first process reads");
}

/// The spans between times with the same number.
fn between(first: &[(u64, u64)], second: &[(u64, u64)]) -> Vec<u64> {
    let of = |number: u64| second.iter().find(|(other, _)| *other == number);
    first.iter().filter_map(|(number, at)| Some(of(*number)?.1.saturating_sub(*at))).collect()
}

fn measure(transport: Transport, samples: u64) -> Vec<u64> {
    let ports = ports();
    let second = Second::start(if transport == Transport::Zenoh { "zenoh" } else { "iiop" }, ports, samples);
    let first = run_host(&system(ports, transport, samples), 0, |event| match event {
        TraceEvent::Decision(DispatchDecision::Send(signal)) => Some(signal.number),
        _ => None,
    });
    between(&first, &second.end())
}

/// Runs the node of one host to its end. Returns the times of the events that `pick` selects, on CLOCK_MONOTONIC.
fn run_host(system: &Arc<System>, host: u32, pick: impl Fn(&TraceEvent) -> Option<u64>) -> Vec<(u64, u64)> {
    let plan = Arc::new(Plan::new(system, &Strategies::built_in()).expect("built-in strategies"));
    let node = Node::for_host(system.clone(), plan, HostId(host));
    let node = node.body("first", |job| job.emit(&[7; PAYLOAD]).expect("a buffer")).body("next", |_| ());
    let mut node = node.prepare().expect("a node");
    let carrier = ZenohCarrier::new(system, HostId(host), None);
    let settings = NodeSettings {
        system: system.clone(),
        text: write(system),
        host: HostId(host),
        wait: Span::from_secs(20),
        cpu: Some(cpus()[host as usize]),
        tls: None,
        carrier: carrier.map(|carrier| Box::new(carrier) as Box<dyn CompletionCarrier>),
        control: None,
        events: None,
        interrupt: Interrupt::manual(Arc::new(Wake::new())),
    };
    let peers = NodePeers::start(settings, &mut node).expect("free ports");
    let Agreed { clock, .. } = peers.agree(|_| ()).expect("the other node");
    let mut times = Vec::new();
    node.begin(clock).wait(&mut |_, at, event| {
        times.extend(pick(&event).map(|number| (number, clock.origin() as u64 + at.as_nanos())));
    });
    times
}

fn now() -> u64 {
    MonotonicClock::from_origin(0).now().as_nanos()
}

/// The times at which the callback is entered, until the first process has sent everything.
fn subscribe(system: &System) -> Vec<(u64, u64)> {
    let key = key_expression(system, HostId(0), HostId(1));
    let times = Arc::new(Mutex::new(Vec::with_capacity(1 << 16)));
    let arrived = times.clone();
    let threads = ZenohThreads::new(Some(cpus()[1]));
    let settings = listening(system, HostId(1), None).expect("it receives over Zenoh");
    let session = zenoh::open(settings).wait().expect("a free port");
    let receive = move |sample: zenoh::sample::Sample| {
        let at = now();
        threads.raise_once();
        let header = sample.attachment().and_then(|bytes| CompletionHeader::decode(&bytes.to_bytes()).ok());
        let number = header.expect("a header").completion.number;
        arrived.lock().expect("no thread panics").push((number, at));
    };
    let subscriber = session.declare_subscriber(key).callback(receive).wait().expect("a subscriber");
    println!("ready");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    drop(subscriber);
    session.close().wait().expect("an open session");
    times.lock().expect("no thread panics").clone()
}

fn measure_bare(samples: u64) -> Vec<u64> {
    let ports = ports();
    let system = system(ports, Transport::Zenoh, samples);
    let mut second = Second::start("bare", ports, samples);
    second.wait_until_ready();
    let threads = ZenohThreads::new(Some(cpus()[0]));
    let settings = dialling(&system, HostId(0), &[HostId(1)], ZenohLink::Critical, None);
    let session = zenoh::open(settings).wait().expect("a session");
    let publisher = session.declare_publisher(key_expression(&system, HostId(0), HostId(1)));
    let publisher = publisher.priority(Priority::RealTime).congestion_control(CongestionControl::Drop);
    let publisher = publisher.wait().expect("a publisher");
    while !publisher.matching_status().wait().expect("a status").matching() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    threads.raise();
    let caller = Spawn::new("caller").cpu(cpus()[0]).policy(ThreadPolicy::Fifo(RELEASE)).spawn(move || {
        let clock = MonotonicClock::start();
        let send = |number| {
            clock.sleep_until(Instant::ZERO + EVERY * (number + 5));
            let completion = Completion { source: 0, target: 1, position: 0, number, origin: 0, period: 1, sent: 0 };
            let attachment = CompletionHeader { session: 1, sequence: number + 1, completion }.encode();
            let at = now();
            publisher.put(&[7; PAYLOAD][..]).attachment(&attachment[..]).wait().expect("an open session");
            (number, at)
        };
        let called: Vec<_> = (0..samples).map(send).collect();
        // The last one arrives meanwhile.
        clock.sleep_until(clock.now() + Span::from_millis(100));
        called
    });
    let called = caller.expect("a thread").join().expect("no panic");
    session.close().wait().expect("an open session");
    between(&called, &second.end())
}
