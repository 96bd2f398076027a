//! Distributable threads of chains: `cargo bench -p hyoshi-node --bench threads`, as root.
//!
//! *Cancel*: two hosts, each a process on a CPU of its own. A thread's head is in a running body of the second host, and
//! other work keeps the lanes of both hosts busy. From the operator's call at the first host to the moment when the body
//! sees it. The goal: p99 below 2 ms.
//!
//! *Live threads*: a node gets up to 10,000 threads whose segments wait. The memory that they need, the threads of the
//! operating system, and the CPU time from the arrival of a hop until its segment waits.
//!
//! Both processes are on one machine, so CLOCK_MONOTONIC is common to them.

mod common;

use std::sync::{Arc, Mutex};

use common::{ROLE, Second, Times, between, cpus, now, ports, print, process_cpu, run_host};
use hyoshi_model::{HostId, Instant, OperationId, Span, System, read};
use hyoshi_node::NodeClient;
use hyoshi_node::idl::hyoshi_node::{SegmentState, ThreadRef};
use hyoshi_orb::Orb;
use hyoshi_os::idle::AwakeCpus;
use hyoshi_os::priority::RELEASE;
use hyoshi_os::{Clock, MonotonicClock, Spawn, ThreadPolicy};
use hyoshi_runtime::Node;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::Signal;

fn main() {
    if let Ok(role) = std::env::var(ROLE) {
        return second(&role);
    }
    // `cargo test --benches` only checks that it starts.
    let short = std::env::args().any(|argument| argument == "--test");
    let awake = AwakeCpus::hold();
    println!("idle states that take time to leave: {}", if awake.is_ok() { "forbidden" } else { "as configured" });
    let cancels = measure_cancels(if short { 10 } else { 2_000 });
    print("cancel: call to the error at the head", &cancels);
    for threads in if short { vec![10] } else { vec![1, 10, 100, 1_000, 10_000] } {
        let second = Second::start("live", ports(), threads);
        let figures = second.end();
        let of = |at: usize| figures[at].1;
        println!(
            "live threads: {threads:>6}  {:>4} threads of the system  {:>8} KiB of memory  {:6.2} us of CPU for each arrival",
            of(0),
            of(1) / 1_024,
            of(2) as f64 / 1_000.0 / threads as f64,
        );
    }
}

const EVERY: Span = Span::from_millis(5);

/// A thread moves from the first host to the second one every 5 ms. Fillers keep the lanes busy.
fn busy_system([one, other]: [u16; 2], samples: u64) -> Arc<System> {
    let ([first, second], duration) = (cpus(), EVERY * samples + Span::from_millis(100));
    let text = format!(
        r#"
        name = "busy"
        duration = "{duration}"
        [host.one]
        endpoints = ["tcp/127.0.0.1:{one}"]
        [host.other]
        endpoints = ["tcp/127.0.0.1:{other}"]
        [processor.here]
        host = "one"
        cpu = {first}
        strategy = "RMS"
        [processor.there]
        host = "other"
        cpu = {second}
        strategy = "RMS"
        [operation.first]
        on = "here"
        every = "{EVERY}"
        wcet = "0.1ms"
        [operation.work]
        on = "there"
        after = {{ all = ["first"] }}
        wcet = "4ms"
        guard = "off"
        [operation.fill]
        on = "here"
        every = "20ms"
        wcet = "16ms"
        [operation.more]
        on = "there"
        every = "20ms"
        wcet = "16ms"
        [chain.work]
        path = ["first", "work"]
        deadline = "1s"
        carried_by = "thread"
        "#
    );
    Arc::new(read(&text, "busy.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system)
}

type Seen = Arc<Mutex<Vec<(u64, u64)>>>;

/// Runs one host. Bodies of `work` run for 4 ms at most, and note when they see that they should stop.
fn run_busy(ports: [u16; 2], samples: u64, host: u32, control: Option<std::path::PathBuf>) -> Seen {
    let system = busy_system(ports, samples);
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).expect("built-in strategies"));
    let seen = Seen::default();
    let notes = seen.clone();
    let node = Node::for_host(system.clone(), plan, HostId(host)).body("work", move |job| {
        let until = job.now() + Span::from_millis(4);
        while job.now() < until {
            if job.stop_asked() {
                let at = now();
                return notes.lock().expect("no thread panics").push((job.job().number, at));
            }
        }
    });
    run_host(&system, host, node.prepare().expect("a node"), control, |_| None);
    seen
}

fn measure_cancels(samples: u64) -> Vec<u64> {
    let ports = ports();
    let second = Second::start("busy", ports, samples);
    let socket = std::env::temp_dir().join(format!("hyoshi-threads-{}", std::process::id())).join("node.sock");
    let at = format!("unix:{}", socket.display());
    let operator = Spawn::new("operator").cpu(cpus()[0]).policy(ThreadPolicy::Fifo(RELEASE)).spawn(move || {
        let clock = MonotonicClock::start();
        let client = NodeClient::new(Orb::builder(), &at).expect("an address");
        let mut called = Vec::new();
        let all = ThreadRef::default();
        // Until the run begins.
        while client.threads(&all).map_or(true, |states| states.all == 0) {
            clock.sleep_until(clock.now() + Span::from_millis(1));
        }
        let mut last = None;
        while let Ok(states) = client.threads(&all) {
            let running = |state| state == SegmentState::Running;
            let head = states.segments.iter().find(|one| one.operation == "work" && running(one.state));
            let head = head.map(|head| head.thread).filter(|head| Some(*head) != last);
            if let Some(thread) = head {
                let at = now();
                if client.cancel_thread(&thread).is_ok() {
                    called.push((thread.number, at));
                }
                last = Some(thread);
            }
            clock.sleep_until(clock.now() + Span::from_micros(700));
        }
        called
    });
    run_busy(ports, samples, 0, Some(socket));
    let called = operator.expect("a thread").join().expect("no panic");
    between(&called, &second.end())
}

fn second(role: &str) {
    let words: Vec<&str> = role.split(' ').collect();
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    let (ports, samples) = ([number(1) as u16, number(2) as u16], number(3));
    match words[0] {
        "live" => live(samples),
        _ => {
            let seen = run_busy(ports, samples, 1, None);
            let at = seen.lock().expect("no thread panics").clone();
            Times { at, cpu: Span::ZERO }.print();
        }
    }
}

/// A figure of this process in `/proc/self/status`.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("a file of the kernel");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line of that file");
    line.trim_start_matches(':').split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
}

/// Lets so many threads arrive, whose segments wait behind a busy body.
fn live(threads: u64) {
    let text = format!(
        r#"
        name = "live"
        duration = "60s"
        [host.one]
        [host.other]
        [processor.here]
        host = "one"
        [processor.there]
        host = "other"
        cpu = {}
        preemption = "none"
        [operation.first]
        on = "here"
        every = "1ms"
        wcet = "0.1ms"
        [operation.work]
        on = "there"
        after = {{ all = ["first"] }}
        wcet = "1ms"
        guard = "off"
        queue = {{ limit = {} }}
        [operation.busy]
        on = "there"
        every = "60s"
        wcet = "1s"
        [chain.work]
        path = ["first", "work"]
        deadline = "60s"
        carried_by = "thread"
        "#,
        cpus()[1],
        threads + 1
    );
    let system: Arc<System> =
        Arc::new(read(&text, "live.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system);
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).expect("built-in strategies"));
    let (before, begun) = (status("VmRSS"), Arc::new(hyoshi_os::Wake::new()));
    let begins = begun.clone();
    let busy = move |job: &mut hyoshi_runtime::JobContext<'_>| {
        begins.post();
        while !job.stop_asked() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    };
    let mut node =
        Node::for_host(system, plan, HostId(1)).body("busy", busy).body("work", |_| ()).prepare().expect("a node");
    let (mut arrivals, states) = (node.take_arrivals().remove(0), node.handles().threads);
    let running = node.start();
    begun.wait();
    let arrive = Spawn::new("arrivals").cpu(cpus()[1]).policy(ThreadPolicy::Fifo(RELEASE)).spawn(move || {
        let began = hyoshi_os::own_cpu_time();
        for number in 0..threads {
            let (from, to, origin) = (OperationId(0), OperationId(1), Instant::ZERO);
            let signal = Signal { from, to, position: 0, number, origin, period: EVERY, due: origin, ticket: None };
            arrivals.push(signal, &[]).expect("room");
            arrivals.deliver();
        }
        (hyoshi_os::own_cpu_time().saturating_sub(began), arrivals)
    });
    let (cpu, _arrivals) = arrive.expect("a thread").join().expect("no panic");
    assert_eq!(states.live(0).1 as u64, threads, "all threads are live");
    let (tasks, memory) = (status("Threads"), status("VmRSS").saturating_sub(before) * 1_024);
    Times { at: vec![(0, tasks), (1, memory), (2, cpu.as_nanos())], cpu: process_cpu() }.print();
    drop(running);
}
