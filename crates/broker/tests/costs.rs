//! What a report costs: `cargo test -p hyoshi-broker --test costs -- --ignored --nocapture` on a quiet machine. The figures are
//! in docs/broker.md, beside the paper's table I.

use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyoshi_broker::access::Access;
use hyoshi_broker::audit::Audit;
use hyoshi_broker::client::Client;
use hyoshi_broker::idl::cpu_broker::{Broker, Cycle, Task};
use hyoshi_broker::machine::Machine;
use hyoshi_broker::{Joining, Service, State, place, policy};
use hyoshi_control::Arbiter;
use hyoshi_model::{Share, Span};
use hyoshi_os::meter::Meter;
use hyoshi_os::process::Process;
use hyoshi_os::{Credentials, Interrupt, Notifier, Wake};

const REPORTS: u32 = 1_000;
const TASKS: u32 = 100;

/// Programs that do nothing, and end with the test.
struct Sleepers(Vec<Child>);

impl Sleepers {
    fn start(count: u32) -> Sleepers {
        Sleepers((0..count).map(|_| Command::new("sleep").arg("1000").spawn().unwrap()).collect())
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
#[ignore = "a measurement"]
fn reports_by_each_way() {
    let directory: PathBuf = std::env::temp_dir().join(format!("hyoshi-costs-{}", std::process::id()));
    let (socket, uid) = (directory.join("broker.sock"), Credentials::own().uid);
    place::prepare(&socket, uid).unwrap();
    let (machine, _) = Machine::open(&directory.join("state"), Some("none")).unwrap();
    let arbiter = Arbiter::new(policy::named("weighted").unwrap(), Share::from_percent(75));
    let state = State::new(arbiter, Box::new(machine), Access { broker: uid, group: None }, Audit::none());
    let wake = Arc::new(Wake::new());
    let interrupt = Interrupt::manual(wake.clone());
    let service = Service::start(state, &socket, uid, wake).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| service.run(&interrupt, &Notifier::none(), |notice| eprintln!("{notice}")));
        measure(&socket);
        interrupt.request();
    });
    drop(service);
    std::fs::remove_dir_all(&directory).unwrap();
}

fn measure(socket: &std::path::Path) {
    let client = Client::connect(Some(socket)).unwrap();
    // Of both sides: they are one process here.
    let mut meter = Meter::new();
    meter.add(&Process::open(std::process::id()).unwrap(), false);
    let sleepers = Sleepers::start(TASKS + 1);
    // Reports of its own from here on: the broker makes none.
    let task = client.join(&Joining::new("own", Span::from_secs(10))).unwrap();
    task.add_process(sleepers.0[0].id(), 0).unwrap();
    let cycle =
        |at: u32| Cycle { consumed: 5_000_000 + u64::from(at % 7) * 100_000, cycles: 1, mode: -1, numbers: vec![] };
    (0..REPORTS).for_each(|at| drop(task.report(&cycle(at)).unwrap()));
    for (way, oneway) in [("two-way", false), ("one-way", true)] {
        let before = meter.read();
        let mut latencies: Vec<Duration> = (0..REPORTS)
            .map(|at| {
                let began = Instant::now();
                if oneway {
                    task.tell(&cycle(at)).unwrap()
                } else {
                    drop(task.report(&cycle(at)).unwrap())
                }
                let took = began.elapsed();
                // As a program that reports each 1 ms: what it finds is not what the last one has warmed.
                std::thread::sleep(Duration::from_millis(1));
                took
            })
            .collect();
        // A two-way call behind the one-way ones: they are all done.
        client.broker().standing().unwrap();
        let consumed = meter.read().saturating_sub(before);
        latencies.sort();
        let cost = consumed.as_nanos() as f64 / f64::from(REPORTS) / 1e3;
        let (median, p99) = (latencies[REPORTS as usize / 2], latencies[REPORTS as usize * 99 / 100]);
        println!("{way}: {cost:.1} us of CPU a report, both sides; latency {median:?}, p99 {p99:?}");
    }
    // In the broker: it makes a report for each task each 33 ms.
    let tasks: Vec<_> = (1..=TASKS)
        .map(|at| {
            let task = client.join(&Joining::new(&format!("task-{at}"), Span::from_millis(33))).unwrap();
            task.add_process(sleepers.0[at as usize].id(), 0).unwrap();
            task
        })
        .collect();
    std::thread::sleep(Duration::from_secs(1));
    let count = || tasks.iter().map(|task| task.standing().unwrap().reports).sum::<u64>();
    // Asking costs, too: only what lies between two looks at the meter counts.
    let reports = count();
    let before = meter.read();
    let began = Instant::now();
    std::thread::sleep(Duration::from_secs(5));
    let (consumed, took) = (meter.read().saturating_sub(before), began.elapsed());
    let reports = count() - reports;
    let cost = consumed.as_nanos() as f64 / reports as f64 / 1e3;
    let share = consumed.as_nanos() as f64 / took.as_nanos() as f64;
    println!("in-broker: {cost:.1} us of CPU a report of {TASKS} tasks each 33 ms; {:.2} % of a CPU", share * 100.0);
}
