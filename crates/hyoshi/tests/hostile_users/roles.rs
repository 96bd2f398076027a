//! What the hostile users do, each in copies of this test program that run as that user until their parent ends.
//!
//! Every second a copy prints `did`, then what it achieved and what was refused.

use std::cell::Cell;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::parent_id;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hyoshi_broker::TaskSpec;
use hyoshi_broker::client::{BrokerClient, BrokerClientError};
use hyoshi_broker::component::ComponentSpec;
use hyoshi_broker::idl::cpu_broker::{Broker as _, Task as _, TaskStub};
use hyoshi_model::Span;
use hyoshi_os::process::Process;
use hyoshi_os::scheduling::{Scheduling, SchedulingClass};

/// Counts, and when they were printed last.
struct Did {
    parent: u32,
    done: Cell<u64>,
    refused: Cell<u64>,
    printed: Cell<Instant>,
}

impl Did {
    fn new() -> Did {
        let now = Instant::now();
        Did { parent: parent_id(), done: Cell::new(0), refused: Cell::new(0), printed: Cell::new(now) }
    }

    fn count(&self, done: bool) -> bool {
        let count = if done { &self.done } else { &self.refused };
        count.set(count.get() + 1);
        done
    }

    /// Prints once a second; ends the process if its parent has ended.
    fn goes_on(&self) {
        if parent_id() != self.parent {
            std::process::exit(0);
        }
        if self.printed.get().elapsed() > Duration::from_secs(1) {
            self.printed.set(Instant::now());
            println!("did {} {}", self.done.get(), self.refused.get());
        }
    }

    fn for_a_while(&self, span: Duration, mut each: impl FnMut()) {
        let until = Instant::now() + span;
        while Instant::now() < until {
            self.goes_on();
            each();
        }
    }
}

/// Sleepers that end with the scope.
struct Sleepers(Vec<Child>);

impl Drop for Sleepers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn rest() {
    std::thread::sleep(Duration::from_millis(20));
}

/// A task of this user, with a name of its own, that holds a process.
fn join(client: &BrokerClient, number: usize, joining: TaskSpec, pid: u32) -> Result<TaskStub, BrokerClientError> {
    let name = format!("hostile-{}-{number}", std::process::id());
    let task = client.join(&TaskSpec { name, ..joining })?;
    task.add_process(pid, 0)?;
    Ok(task)
}

fn asking(period: Span, importance: u32, share: &str) -> TaskSpec {
    let setting = ComponentSpec { kind: "rate".into(), parameters: vec![("share".into(), share.into())] };
    TaskSpec { importance, advocates: vec![setting], ..TaskSpec::new("", period) }
}

/// The threads of this process that are above SCHED_OTHER.
fn raised() -> usize {
    let mut threads = Vec::new();
    Process::open(std::process::id()).unwrap().threads(&mut threads);
    threads.iter().filter(|tid| Scheduling::of(**tid).is_ok_and(|found| !found.is_fair())).count()
}

/// Three raised threads lower their own priority all the time. Done: each time; refused is each priority that is kept
/// after the task has ended, of which there must be none.
fn lowers(client: &BrokerClient, did: &Did) {
    static LOWERED: AtomicU64 = AtomicU64::new(0);
    static OVER: AtomicBool = AtomicBool::new(false);
    let lower = || {
        let own = Scheduling { class: SchedulingClass::Fifo(19), reset_on_fork: true };
        while !OVER.load(Ordering::Relaxed) {
            if own.restore(hyoshi_os::own_thread()).is_ok() {
                LOWERED.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let threads: Vec<_> = (0..3).map(|_| std::thread::spawn(lower)).collect();
    if let Ok(task) = join(client, 0, asking(Span::from_millis(100), 10, "50%"), std::process::id()) {
        did.for_a_while(Duration::from_secs(2), rest);
        let _ = task.leave();
        // The threads go on trying.
        did.for_a_while(Duration::from_secs(1), rest);
        did.refused.set(did.refused.get() + raised() as u64);
    }
    OVER.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    OVER.store(false, Ordering::Relaxed);
    did.done.set(LOWERED.load(Ordering::Relaxed));
}

/// As many tasks of 1 ms as there may be, with a sleeping process each.
fn tasks(client: &BrokerClient, did: &Did) {
    let mut sleepers = Sleepers(Vec::new());
    let mut joined = Vec::new();
    for number in 0..100 {
        let sleeper = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let task = join(client, number, TaskSpec::new("", Span::from_millis(1)), sleeper.id());
        sleepers.0.push(sleeper);
        did.count(task.is_ok());
        joined.extend(task);
        did.goes_on();
    }
    did.for_a_while(Duration::from_secs(10), rest);
    // The processes of the other half end without a word.
    joined.iter().step_by(2).for_each(|task| drop(task.leave()));
}

/// Two thousand threads in a task, which wake up often.
fn threads(client: &BrokerClient, did: &Did) {
    static OVER: AtomicBool = AtomicBool::new(false);
    let task = join(client, 0, asking(Span::from_millis(10), 1, "10%"), std::process::id());
    let wakes = || {
        while !OVER.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    let small = || std::thread::Builder::new().stack_size(64 << 10);
    let all: Vec<_> = (0..2_000).filter_map(|_| small().spawn(wakes).ok()).collect();
    did.done.set(did.done.get() + all.len() as u64);
    did.for_a_while(Duration::from_secs(5), rest);
    OVER.store(true, Ordering::Relaxed);
    all.into_iter().for_each(|thread| thread.join().unwrap());
    OVER.store(false, Ordering::Relaxed);
    did.count(task.and_then(|task| task.leave().map_err(BrokerClientError::from)).is_ok());
}

/// A spinner with the highest importance, which asks for everything.
fn spin(client: &BrokerClient, did: &Did) {
    let task = join(client, 0, asking(Span::from_millis(33), 10, "100%"), std::process::id());
    did.count(task.is_ok());
    did.for_a_while(Duration::from_secs(20), || {
        std::hint::black_box((0..10_000u64).sum::<u64>());
    });
    drop(task.map(|task| task.leave()));
}

/// Requests, one after the other.
fn requests(client: &BrokerClient, did: &Did) {
    did.for_a_while(Duration::from_secs(5), || {
        let unknown = client.broker().explain("none").unwrap_err();
        // Either there is no such task, or there were too many requests.
        did.count(!matches!(BrokerClientError::from(unknown), BrokerClientError::System(_)));
    });
}

/// More connections than allowed, some with garbage on them.
fn connections(socket: &Path, did: &Did) {
    let mut all: Vec<UnixStream> = (0..100).filter_map(|_| UnixStream::connect(socket).ok()).collect();
    for (number, stream) in all.iter_mut().enumerate() {
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        if number % 3 == 0 {
            // A message that is longer than allowed, or none at all.
            let _ =
                stream.write_all(if number % 2 == 0 { b"GIOP\x01\x02\x01\x00\xff\xff\xff\x7f" } else { b"\0\0\0\0" });
        }
        let open = stream.read(&mut [0; 64]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        did.count(open);
        did.goes_on();
    }
    did.for_a_while(Duration::from_millis(300), rest);
}

/// Tasks with settings as large as they may be.
fn settings(client: &BrokerClient, did: &Did) {
    let mut joined = Vec::new();
    for number in 0..100 {
        let value = format!("{}5", "0".repeat(1_000));
        let setting = ComponentSpec { kind: "max-decay".into(), parameters: vec![("reports".into(), value)] };
        let name = format!("hostile-{}-{number}", std::process::id());
        let joining = TaskSpec { advocates: vec![setting; 4], ..TaskSpec::new(&name, Span::from_millis(100)) };
        let task = client.join(&joining);
        did.count(task.is_ok());
        joined.extend(task);
        did.goes_on();
    }
    did.for_a_while(Duration::from_secs(3), rest);
    joined.iter().for_each(|task| drop(task.leave()));
}

/// Links to a file of root's, and forged state, where a broker could look for its own.
fn links(open: &Path, did: &Did) {
    let state = open.join("state");
    let roots = open.parent().unwrap().join("roots");
    drop(std::fs::remove_dir_all(&state));
    drop(std::fs::remove_file(&state));
    if did.done.get() % 3 == 2 {
        did.count(std::os::unix::fs::symlink(open.parent().unwrap(), &state).is_ok());
    } else if did.count(std::fs::create_dir(&state).is_ok()) {
        for name in ["tasks.new", "touched.new", "touched.damaged", "audit"] {
            drop(std::os::unix::fs::symlink(&roots, state.join(name)));
        }
        drop(std::fs::write(state.join("tasks"), "task {\"name\":\"forged\",\"processes\":[[1,1]]}\n"));
        drop(std::fs::write(state.join("touched"), "raised 1 1 1 1\n"));
    }
    did.for_a_while(Duration::from_millis(300), rest);
}

#[test]
#[ignore = "a role that the soak starts"]
fn role() {
    let Ok(role) = std::env::var("HYOSHI_ROLE") else { return };
    let (role, path) = role.split_once(':').unwrap();
    let path = Path::new(path);
    let did = Did::new();
    loop {
        did.goes_on();
        match role {
            "connections" => connections(path, &did),
            "links" => links(path, &did),
            _ => {
                // While there is no broker, they try again.
                let Ok(client) = BrokerClient::connect(Some(path)) else {
                    rest();
                    continue;
                };
                match role {
                    "lowers" => lowers(&client, &did),
                    "tasks" => tasks(&client, &did),
                    "threads" => threads(&client, &did),
                    "spin" => spin(&client, &did),
                    "requests" => requests(&client, &did),
                    "settings" => settings(&client, &did),
                    _ => panic!("unknown role `{role}`"),
                }
            }
        }
    }
}
