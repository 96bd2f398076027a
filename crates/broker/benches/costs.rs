//! The cost of a report for the program and the broker, in two processes: `cargo bench -p hyoshi-broker --bench costs`
//! on a quiet machine; `-- --test` for a short run. Each way has a baseline of the kernel alone: a bare message and its
//! answer, or a bare wake-up. The figures are in docs/benchmarks.md. `hyoshi reproduce broker` repeats the CPU Broker's
//! table I.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use hyoshi_broker::access::Access;
use hyoshi_broker::audit::Audit;
use hyoshi_broker::client::BrokerClient;
use hyoshi_broker::idl::cpu_broker::{Broker, CycleReport, Task};
use hyoshi_broker::machine::Machine;
use hyoshi_broker::task_store::TaskStore;
use hyoshi_broker::{BrokerService, BrokerState, TaskSpec, policy, socket};
use hyoshi_control::Arbiter;
use hyoshi_model::{Share, Span};
use hyoshi_os::meter::Meter;
use hyoshi_os::process::Process;
use hyoshi_os::{
    Clock, Credentials, Interrupt, MonotonicClock, Notifier, ThreadPolicy, Wake, own_cpu_time, priority, set_own_policy,
};

/// Approximate size of a report and of its answer, in bytes.
const REQUEST: usize = 160;
const REPLY: usize = 120;

/// The period of tasks that the broker reports for.
const PERIOD: Span = Span::from_millis(33);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", directory] => serve(Path::new(directory)),
        ["answer", directory] => answer(Path::new(directory)),
        ["wake", period] => wake(Span::from_nanos(period.parse().unwrap())),
        _ => {
            let short = words.iter().any(|word| word == "--test");
            measure(if short { 20 } else { 1 }, Span::from_millis(if short { 200 } else { 5_000 }));
        }
    }
}

/// A copy of this program in a role, with a directory. It ends with its standard input.
struct Other {
    child: Child,
    directory: PathBuf,
}

impl Other {
    fn play(role: &str, word: Option<String>) -> Other {
        let directory = std::env::temp_dir().join(format!("hyoshi-costs-{}-{role}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(role).arg(word.unwrap_or_else(|| directory.display().to_string()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // It writes when it is ready.
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).expect("it starts");
        Other { child, directory }
    }

    fn process(&self) -> Process {
        Process::open(self.child.id()).unwrap()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn ready() {
    std::io::stdout().write_all(b"!").unwrap();
    std::io::stdout().flush().unwrap();
}

fn until_input_ends() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn serve(directory: &Path) {
    let (socket, state, uid) = (directory.join("broker.sock"), directory.join("state"), Credentials::own().uid);
    socket::prepare(&socket, uid).unwrap();
    // Without reservations: switching windows has its own cost.
    let (machine, _) = Machine::open(&state, Some("none")).unwrap();
    let arbiter = Arbiter::new(policy::named("weighted").unwrap(), Share::from_percent(150));
    let mut core = BrokerState::new(arbiter, Box::new(machine), Access { broker: uid, group: None }, Audit::none());
    core.store_tasks_in(TaskStore::open(&state).unwrap().0);
    let wake = Arc::new(Wake::new());
    let interrupt = Interrupt::manual(wake.clone());
    let service = BrokerService::start(core, &socket, uid, wake).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            until_input_ends();
            interrupt.request();
        });
        above_all();
        ready();
        service.run(&interrupt, &Notifier::none(), |notice| eprintln!("{notice}"));
    });
}

/// Like the broker's thread.
fn above_all() {
    if let Err(refused) = set_own_policy(ThreadPolicy::Fifo(priority::BROKER)) {
        eprintln!("at normal priority: {refused}");
    }
}

/// The kernel's part of a two-way report.
fn answer(directory: &Path) {
    let listener = UnixListener::bind(directory.join("socket")).unwrap();
    ready();
    let (mut peer, _) = listener.accept().unwrap();
    while peer.read_exact(&mut [0; REQUEST]).is_ok() {
        peer.write_all(&[0; REPLY]).unwrap();
    }
}

/// The kernel's part of a report by the broker.
fn wake(period: Span) {
    std::thread::spawn(move || {
        above_all();
        ready();
        let (clock, wake) = (MonotonicClock::start(), Wake::new());
        let mut next = clock.now();
        loop {
            next += period;
            wake.wait_until(&clock, next);
        }
    });
    until_input_ends();
}

/// CPU clocks of processes: counters in threads would make each switch more expensive.
fn meter(process: &Process) -> Meter {
    let mut meter = Meter::coarse();
    meter.add(process, false);
    meter
}

fn micros(span: Span, count: u64) -> f64 {
    span.as_nanos() as f64 / count.max(1) as f64 / 1e3
}

fn measure(short: u64, time: Span) {
    let paces = [(2_000 / short, Span::from_millis(1)), (200 / short, PERIOD)];
    println!("{:<44} {:>8} {:>8} {:>8} {:>18} {:>9}", "us each", "CPU", "program", "broker", "latency, median", "p99");
    let bare = Other::play("answer", None);
    let mut socket = UnixStream::connect(bare.directory.join("socket")).unwrap();
    for pace in paces {
        from_outside(
            "a bare message and its answer",
            &bare.process(),
            pace,
            || (),
            |_| {
                socket.write_all(&[0; REQUEST]).unwrap();
                socket.read_exact(&mut [0; REPLY]).unwrap();
            },
        );
    }
    drop(socket);
    drop(bare);

    let broker = Other::play("serve", None);
    let client = BrokerClient::connect(Some(&broker.directory.join("broker.sock"))).unwrap();
    let process = broker.process();
    // It reports itself, so the broker generates no reports.
    let task = client.join(&TaskSpec::new("own", Span::from_secs(10))).unwrap();
    task.add_process(std::process::id(), 0).unwrap();
    let cycle = |number: u64| {
        // Varying consumption, so that the reservation changes sometimes.
        let consumed = own_cpu_time().as_nanos() % 1_000 + 5_000_000 + number % 7 * 100_000;
        CycleReport { consumed, cycles: 1, mode: -1, numbers: vec![] }
    };
    // A two-way call after the one-way ones: all are complete then.
    let settle = || drop(client.broker().status().unwrap());
    for pace in paces {
        let two_way = |number| drop(task.report(&cycle(number)).unwrap());
        from_outside("a two-way report", &process, pace, settle, two_way);
        from_outside("a one-way report", &process, pace, settle, |number| task.report_oneway(&cycle(number)).unwrap());
    }
    task.leave().unwrap();

    let bare = Other::play("wake", Some(PERIOD.as_nanos().to_string()));
    let (clock, mut consumed) = (MonotonicClock::start(), meter(&bare.process()));
    let before = consumed.read();
    clock.sleep_until(clock.now() + time);
    let wakes = time.as_nanos() / PERIOD.as_nanos();
    println!("{:<44} {:>8.1}", "a bare wake-up each 33 ms", micros(consumed.read().saturating_sub(before), wakes));
    drop(bare);

    let (sleepers, mut tasks) = (Sleepers::start(1_000), Vec::new());
    for count in [1, 100, 1_000] {
        for number in tasks.len()..count {
            let task = client.join(&TaskSpec::new(&format!("task-{number}"), PERIOD)).unwrap();
            task.add_process(sleepers.0[number].id(), 0).unwrap();
            tasks.push(task);
        }
        let clock = MonotonicClock::start();
        clock.sleep_until(clock.now() + PERIOD * 3);
        let reports = || tasks.iter().map(|task| task.status().unwrap().reports).sum::<u64>();
        // The calls cost CPU time, too: only the time between two readings counts.
        let (first, began) = (reports(), clock.now());
        let mut meter = meter(&process);
        let before = meter.read();
        let counted = clock.now();
        clock.sleep_until(counted + time);
        let (consumed, lasted) = (meter.read().saturating_sub(before), clock.now().since(counted));
        // Reports during the calls are outside of this time.
        let made = (reports() - first) as f64 * lasted.as_secs_f64() / clock.now().since(began).as_secs_f64();
        let name = format!("by the broker, {count} tasks each 33 ms");
        let share = 100.0 * consumed.as_secs_f64() / lasted.as_secs_f64();
        println!("{name:<44} {:>8.1}   {share:.2} % of a CPU", consumed.as_secs_f64() * 1e6 / made);
    }
}

/// Programs that do nothing.
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

/// Reports at a distance, so that none profits from warm caches of the last one. The program's own wake-ups do not
/// count; those by the answer do.
fn from_outside(
    name: &str,
    other: &Process,
    (reports, apart): (u64, Span),
    settle: impl Fn(),
    mut report: impl FnMut(u64),
) {
    (0..20).for_each(&mut report);
    let (mut own, mut theirs) = (meter(&Process::open(std::process::id()).unwrap()), meter(other));
    let clock = MonotonicClock::start();
    let mut latencies = Vec::new();
    let mut next = clock.now();
    let before = (own.read(), theirs.read(), own_cpu_time());
    let mut own_part = Span::ZERO;
    for number in 0..reports {
        let (began, cpu) = (clock.now(), own_cpu_time());
        report(number);
        own_part += own_cpu_time() - cpu;
        latencies.push(clock.now().since(began));
        next += apart;
        clock.sleep_until(next);
    }
    settle();
    // Other threads of the ORB belong to the report.
    let thread = own_cpu_time().saturating_sub(before.2);
    let own = own.read().saturating_sub(before.0).saturating_sub(thread) + own_part;
    let theirs = theirs.read().saturating_sub(before.1);
    latencies.sort_unstable();
    let (median, p99) = (latencies[latencies.len() / 2], latencies[latencies.len() * 99 / 100]);
    println!(
        "{:<44} {:>8.1} {:>8.1} {:>8.1} {:>18.1} {:>9.1}",
        format!("{name}, {apart} apart"),
        micros(own + theirs, reports),
        micros(own, reports),
        micros(theirs, reports),
        micros(median, 1),
        micros(p99, 1)
    );
}
