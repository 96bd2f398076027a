//! The time of a chain from one process to another: `cargo bench -p hyoshi-node --bench chain`, as root.
//!
//! *Chain*: two hosts, each a process on a CPU of its own with an idle lane; from the completion of the first operation
//! to the start of the next one, both by the nodes' events. *Oneway*: a bare oneway call between two such processes,
//! from the call to the entry of the servant, by threads of the same priorities on the same CPUs. *Wake-up*: within a
//! process, from the delivery of an arrived completion to the start of its job on an idle lane. The goal: the chain
//! needs at most 1.2 times the sum of the other two. They are measured alternately, several rounds of each.
//!
//! *Overload*: the chain, and the bare oneway between ordinary threads, beside four spinners on these CPUs. The goal of
//! the chain: p99 below 1 ms.
//!
//! *Hop*: a chain returns to the first process. The hop is the CPU time of the second process for each job in the
//! middle of this chain: receive, release guard, lane, send. It includes the rest of the node: clocks, control, events.
//! The chain is carried by events or by threads, over TCP or Unix sockets; the four alternate. The goal: at most 60 us
//! (DT/EC, section 4: 544 us with events, 644 us with threads), and with threads at most 1.25 times that with events.
//! *Relay*: the CPU time of a single thread that reads messages of
//! the same size from one TCP connection and writes them to another. This is the part of the kernel.
//!
//! Both processes are on one machine, so CLOCK_MONOTONIC is common to them.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use common::{ROLE, Second, Times, between, cpus, now, percentile, ports, print, process_cpu, run_host};
use hyoshi_model::{HostId, Instant, OperationId, Span, System, read};
use hyoshi_node::idl::hyoshi_node::{
    self as wire, CancelHereError, ExchangeError, IntroduceError, Peer as _, ThreadsHereError,
};
use hyoshi_orb::{LaneOptions, Orb, SyncScope, SystemException, SystemKind};
use hyoshi_os::idle::AwakeCpus;
use hyoshi_os::priority::RELEASE;
use hyoshi_os::{Clock, MonotonicClock, Spawn, SpawnedThread, ThreadPolicy};
use hyoshi_runtime::{Node, Prepared};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{DispatchDecision, Signal, TraceEvent};

const EVERY: Span = Span::from_millis(1);

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
    let (mut chain, mut oneway, mut wake, mut ratios) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let round =
            [measure_oneways(samples, ThreadPolicy::Fifo(RELEASE)), measure_wakes(samples), measure_chain(samples)];
        let [bare, idle, whole] = round.each_ref().map(|nanos| percentile(nanos, 50));
        ratios.push((100.0 * whole / (bare + idle)).round() as u64);
        let [bare, idle, whole] = round;
        oneway.extend(bare);
        wake.extend(idle);
        chain.extend(whole);
    }
    print("chain: completion to start of the next operation", &chain);
    print("bare oneway: call to entry of the servant", &oneway);
    print("idle lane: delivery to start", &wake);
    let (mut loaded, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let _spinners = Spinners::start();
        loaded.extend(measure_chain(samples));
        plain.extend(measure_oneways(samples, ThreadPolicy::Other));
    }
    print("chain beside four spinners", &loaded);
    print("bare oneway of ordinary threads beside them", &plain);
    let mut relays = Vec::new();
    let mut hops: Vec<(Hop, Vec<u64>)> = Hop::all().map(|hop| (hop, Vec::new())).collect();
    for _ in 0..rounds {
        hops.iter_mut().for_each(|(hop, nanos)| nanos.extend(measure_hop(*hop, 4 * samples)));
        relays.extend(measure_relay(4 * samples));
    }
    for (hop, nanos) in &hops {
        print(&format!("hop: CPU time of the middle node, {} over {}", hop.carrier, hop.transport), nanos);
    }
    print("relay: CPU time of a bare thread for each message", &relays);
    let at = |part| percentile(&ratios, part) / 100.0;
    println!(
        "chain / (oneway + idle lane), p50 of each round: median {:.2}, from {:.2} to {:.2} (goal: at most 1.2)",
        at(50),
        at(0),
        at(100)
    );
}

/// Four ordinary threads that use the CPUs of both hosts, until this is dropped.
struct Spinners {
    over: Arc<AtomicBool>,
    threads: Vec<SpawnedThread<()>>,
}

impl Spinners {
    fn start() -> Spinners {
        let over = Arc::new(AtomicBool::new(false));
        let spin = |number: usize| {
            let over = over.clone();
            let spin = move || {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            Spawn::new("spinner").cpu(cpus()[number % 2]).spawn(spin).expect("a thread")
        };
        Spinners { threads: (0..4).map(spin).collect(), over }
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().expect("no panic"));
    }
}

/// Runs the node of one host.
fn run(system: Arc<System>, host: u32, pick: impl Fn(&TraceEvent) -> Option<u64>) -> Times {
    let node = prepare(&system, host);
    run_host(&system, host, node, None, pick)
}

/// The carrier and the transport of a chain that returns to the first host.
#[derive(Clone, Copy)]
struct Hop {
    carrier: &'static str,
    transport: &'static str,
}

impl Hop {
    fn all() -> impl Iterator<Item = Hop> {
        let carriers = ["event", "thread"];
        ["tcp", "unix"].into_iter().flat_map(move |transport| carriers.map(|carrier| Hop { carrier, transport }))
    }

    fn role(self) -> String {
        format!("hop-{}-{}", self.carrier, self.transport)
    }
}

/// The CPU time of the middle node for each job.
fn measure_hop(hop: Hop, samples: u64) -> Vec<u64> {
    let ports = ports();
    let second = Second::start(&hop.role(), ports, samples);
    run(hop_system(hop, ports, samples), 0, |_| None);
    second.end().into_iter().map(|(jobs, nanos)| nanos / jobs.max(1)).collect()
}

/// The octets of a completion without payload, as GIOP.
const COMPLETION: usize = 124;

/// The CPU time of a bare relay for each message. The first process sends and receives on the CPU of its host.
fn measure_relay(samples: u64) -> Vec<u64> {
    let ports = ports();
    let back = TcpListener::bind(("127.0.0.1", ports[0])).expect("a free port");
    let mut second = Second::start("relay", ports, samples);
    second.wait_until_ready();
    let mut there = TcpStream::connect(("127.0.0.1", ports[1])).expect("the relay listens");
    there.set_nodelay(true).expect("an option of TCP");
    let (mut back, _) = back.accept().expect("the relay connects");
    let receiver = Spawn::new("receiver").cpu(cpus()[0]).policy(ThreadPolicy::Fifo(RELEASE)).spawn(move || {
        let mut message = [0; COMPLETION];
        while back.read_exact(&mut message).is_ok() {}
    });
    let sender = Spawn::new("caller").cpu(cpus()[0]).policy(ThreadPolicy::Fifo(RELEASE)).spawn(move || {
        at_times(samples, |_| there.write_all(&[0; COMPLETION]).expect("the relay reads"));
    });
    sender.expect("a thread").join().expect("no panic");
    receiver.expect("a thread").join().expect("no panic");
    second.end().into_iter().map(|(messages, nanos)| nanos / messages.max(1)).collect()
}

/// Reads messages and sends them on, until the first process closes its connection.
fn relay([there, here]: [u16; 2]) {
    let listener = TcpListener::bind(("127.0.0.1", here)).expect("a free port");
    println!("ready");
    let (mut from, _) = listener.accept().expect("the first process connects");
    let mut to = TcpStream::connect(("127.0.0.1", there)).expect("the first process listens");
    to.set_nodelay(true).expect("an option of TCP");
    let thread = Spawn::new("relay").cpu(cpus()[1]).policy(ThreadPolicy::Fifo(RELEASE)).spawn(move || {
        let (mut message, mut messages, before) = ([0; COMPLETION], 0, process_cpu());
        while from.read_exact(&mut message).is_ok() {
            to.write_all(&message).expect("the first process reads");
            messages += 1;
        }
        (messages, process_cpu().saturating_sub(before))
    });
    let (messages, cpu) = thread.expect("a thread").join().expect("no panic");
    Times { at: vec![(messages, cpu.as_nanos())], cpu }.print();
}

/// The chain with a third operation, on the first host, and with a guard on the second.
fn hop_system(Hop { carrier, transport }: Hop, ports: [u16; 2], samples: u64) -> Arc<System> {
    let mut text = chain_text(ports, samples).replace("guard = \"off\"", "");
    if transport == "unix" {
        let folder = std::env::temp_dir();
        for port in ports {
            let socket = folder.join(format!("hyoshi-chain-{port}")).join("node");
            text = text.replace(&format!("tcp/127.0.0.1:{port}"), &format!("unix/{}", socket.display()));
        }
    }
    let text = format!(
        r#"{text}
        [operation.last]
        on = "here"
        after = {{ all = ["next"] }}
        wcet = "0.1ms"
        [chain.round]
        path = ["first", "next", "last"]
        deadline = "1s"
        carried_by = "{carrier}"
        "#
    );
    Arc::new(read(&text, "chain.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system)
}

fn system(ports: [u16; 2], samples: u64) -> Arc<System> {
    let text = chain_text(ports, samples);
    Arc::new(read(&text, "chain.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system)
}

fn chain_text([one, other]: [u16; 2], samples: u64) -> String {
    let ([first, second], duration) = (cpus(), EVERY * samples + Span::from_millis(100));
    format!(
        r#"
        name = "chain"
        duration = "{duration}"
        [host.one]
        endpoints = ["tcp/127.0.0.1:{one}"]
        [host.other]
        endpoints = ["tcp/127.0.0.1:{other}"]
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
        [operation.next]
        on = "there"
        after = {{ all = ["first"] }}
        wcet = "0.1ms"
        guard = "off"
        "#
    )
}

const FIRST: OperationId = OperationId(0);
const NEXT: OperationId = OperationId(1);

fn prepare(system: &Arc<System>, host: u32) -> Prepared {
    let plan = Arc::new(Plan::new(system, &Strategies::built_in()).expect("built-in strategies"));
    let node = Node::for_host(system.clone(), plan, HostId(host));
    let bodies = system.operations.iter().map(|operation| operation.name.clone());
    bodies.fold(node, |node, name| node.body(name, |_| ())).prepare().expect("a node")
}

fn second(role: &str) {
    let words: Vec<&str> = role.split(' ').collect();
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    let (ports, samples) = ([number(1) as u16, number(2) as u16], number(3));
    match words[0] {
        "oneway" => serve_oneways(ports[1], ThreadPolicy::Fifo(RELEASE)),
        "ordinary" => serve_oneways(ports[1], ThreadPolicy::Other),
        "relay" => relay(ports),
        "wake" => wake_lane(&system(ports, samples), samples),
        role if role.starts_with("hop") => {
            let hop = Hop::all().find(|hop| hop.role() == role).expect("a role of `Hop`");
            let jobs = run(hop_system(hop, ports, samples), 1, |event| match event {
                TraceEvent::Decision(DispatchDecision::End(end)) if end.job.operation == NEXT => Some(end.job.number),
                _ => None,
            });
            Times { at: vec![(jobs.at.len() as u64, jobs.cpu.as_nanos())], ..jobs }.print();
        }
        _ => run(system(ports, samples), 1, |event| match event {
            TraceEvent::Decision(DispatchDecision::Run { job, .. }) if job.operation == NEXT => Some(job.number),
            _ => None,
        })
        .print(),
    }
}

// The chain.

fn measure_chain(samples: u64) -> Vec<u64> {
    let ports = ports();
    let second = Second::start("chain", ports, samples);
    let first = run(system(ports, samples), 0, |event| match event {
        TraceEvent::Decision(DispatchDecision::End(end)) if end.job.operation == FIRST => Some(end.job.number),
        _ => None,
    });
    between(&first.at, &second.end())
}

// Bare oneways.

struct Sink(Mutex<Vec<(u64, u64)>>);

impl wire::Peer for Sink {
    fn complete(&self, _: u64, what: &wire::Completion, _: &[u8]) -> Result<(), SystemException> {
        let at = now();
        self.0.lock().expect("no thread panics").push((what.number, at));
        Ok(())
    }
    fn introduce(&self, _: &wire::Introduction) -> Result<wire::Welcome, IntroduceError> {
        Err(SystemKind::NoImplement.not_done(0).into())
    }
    fn exchange(&self, _: u64, _: &wire::Progress) -> Result<wire::Answer, ExchangeError> {
        Err(SystemKind::NoImplement.not_done(0).into())
    }
    fn leave(&self, _: u64) -> Result<(), SystemException> {
        Ok(())
    }

    fn replicate(&self, _: u64, _: &wire::Output, _: &[u8]) -> Result<(), SystemException> {
        Ok(())
    }

    fn sample(&self, _: u64, _: &[wire::GroupSample]) -> Result<(), SystemException> {
        Ok(())
    }

    fn update_contracts(&self, _: u64, _: &[wire::ContractUpdate]) -> Result<(), SystemException> {
        Ok(())
    }

    fn retime(&self, _: u64, _: &[wire::AdaptedRate]) -> Result<(), SystemException> {
        Ok(())
    }

    fn keep(&self, _: u64) -> Result<(), SystemException> {
        Ok(())
    }
    fn threads_here(&self, _: u64, _: &wire::ThreadRef) -> Result<wire::ThreadStates, ThreadsHereError> {
        Err(SystemKind::NoImplement.not_done(0).into())
    }

    fn cancel_here(&self, _: u64, _: &wire::ThreadRef) -> Result<wire::CancelledThread, CancelHereError> {
        Err(SystemKind::NoImplement.not_done(0).into())
    }

    fn describe(&self) -> Result<String, SystemException> {
        Ok(String::new())
    }
}

fn serve_oneways(port: u16, policy: ThreadPolicy) {
    let lane =
        LaneOptions { name: "node".to_owned(), threads: 3, policy, cpu: Some(cpus()[1]), ..LaneOptions::default() };
    let builder = Orb::builder().lane(lane).listen(&format!("iiop://127.0.0.1:{port}")).expect("an address");
    let orb = builder.build().expect("a free port");
    let adapter = orb.adapter("bench").persistent().build().expect("an adapter");
    let sink = Arc::new(Sink(Mutex::new(Vec::with_capacity(1 << 16))));
    let object = adapter.activate_as::<dyn wire::Peer>("sink", sink.clone()).expect("a new name");
    orb.publish("sink", &object).expect("a new key");
    orb.ready();
    println!("ready");
    // Until the first process has sent everything.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    let at = sink.0.lock().expect("no thread panics").clone();
    Times { at, cpu: Span::ZERO }.print();
}

fn measure_oneways(samples: u64, policy: ThreadPolicy) -> Vec<u64> {
    let ports = ports();
    let role = if policy == ThreadPolicy::Other { "ordinary" } else { "oneway" };
    let mut second = Second::start(role, ports, samples);
    second.wait_until_ready();
    let orb = Orb::client().expect("an ORB");
    let stub = orb.resolve_unchecked::<dyn wire::Peer>(&format!("corbaloc:iiop:1.2@127.0.0.1:{}/sink", ports[1]));
    let stub = stub.expect("a reference");
    let caller = Spawn::new("caller").cpu(cpus()[0]).policy(policy).spawn(move || {
        let stub = stub.as_ref().oneways(SyncScope::None).as_ref().within(Span::from_millis(50));
        let send = |number| {
            let what = wire::Completion { source: 0, target: 1, position: 0, number, origin: 0, period: 1, sent: 0 };
            let at = now();
            stub.complete(1, &what, &[]).expect("room");
            orb.flush();
            (number, at)
        };
        let called = at_times(samples, send);
        // The last oneway has arrived when this returns.
        stub.as_ref().oneways(SyncScope::Target).describe().expect("an answer");
        called
    });
    let called = caller.expect("a thread").join().expect("no panic");
    between(&called, &second.end())
}

/// At the times at which the chain's first operation is released.
fn at_times<T>(samples: u64, mut act: impl FnMut(u64) -> T) -> Vec<T> {
    let clock = MonotonicClock::start();
    (0..samples)
        .map(|number| {
            clock.sleep_until(Instant::ZERO + EVERY * (number + 5));
            act(number)
        })
        .collect()
}

// Wake-ups.

/// From the delivery of completions to the start of their jobs.
fn wake_lane(system: &Arc<System>, samples: u64) {
    let mut node = prepare(system, 1);
    let mut arrivals = node.take_arrivals().remove(0);
    let clock = MonotonicClock::start_in(Span::from_millis(20));
    let running = node.begin(clock);
    let deliverer = Spawn::new("deliverer").cpu(cpus()[1]).policy(ThreadPolicy::Fifo(RELEASE)).spawn(move || {
        at_times(samples, |number| {
            while clock.now() == Instant::ZERO {
                clock.sleep_until(Instant::from_nanos(1));
            }
            let origin = clock.now();
            let signal =
                Signal { from: FIRST, to: NEXT, position: 0, number, origin, period: EVERY, due: origin, ticket: None };
            // If the machine is busy, the run may be over.
            arrivals.push(signal, &[]).ok()?;
            let at = now();
            arrivals.deliver();
            Some((number, at))
        })
    });
    let mut started = Vec::new();
    running.wait(&mut |_, at, event| {
        if let TraceEvent::Decision(DispatchDecision::Run { job, .. }) = event {
            started.push((job.number, clock.origin() as u64 + at.as_nanos()));
        }
    });
    let delivered: Vec<_> = deliverer.expect("a thread").join().expect("no panic").into_iter().flatten().collect();
    let took = between(&delivered, &started);
    let at = took.into_iter().enumerate().map(|(number, nanos)| (number as u64, nanos)).collect();
    Times { at, cpu: Span::ZERO }.print();
}

fn measure_wakes(samples: u64) -> Vec<u64> {
    let second = Second::start("wake", ports(), samples);
    second.end().into_iter().map(|(_, nanos)| nanos).collect()
}
