//! The broker's own CPU time: a user with a thousand tasks beside a run of critical work, and what a hundred tasks cost.
//!
//! The measured figures are `cargo test --release -p hyoshi --test suite own_time:: -- --ignored --nocapture --test-threads 1` on a quiet
//! machine, as root, with their baselines in the same run; docs/benchmarks.md has them.

use crate::common;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use common::broker::Broker;
use common::{Place, example};
use hyoshi_broker::TaskSpec;
use hyoshi_broker::client::BrokerClient;
use hyoshi_broker::idl::cpu_broker::Task as _;
use hyoshi_model::Span;
use hyoshi_os::{Clock, MonotonicClock, own_cpu_time};

/// A user that nothing on the machine belongs to.
const USER: u32 = 61_007;

#[test]
#[ignore = "a role that other tests start"]
fn role() {
    let Ok(role) = std::env::var("HYOSHI_ROLE") else { return };
    let words: Vec<&str> = role.split(':').collect();
    match words[..] {
        // So many programs that sleep, or that compute for so long in each period, each a task.
        ["tasks", count, period, work, socket] => {
            let [count, period, work]: [u64; 3] = [count, period, work].map(|word| word.parse().unwrap());
            let client = BrokerClient::connect(Some(socket.as_ref())).unwrap();
            let own = std::env::current_exe().unwrap();
            let mut children = Children(Vec::new());
            let mut joined = 0;
            for number in 0..count {
                let mut command = Command::new(&own);
                command.args(["--exact", "own_time::role", "--ignored", "--nocapture", "--test-threads=1"]);
                command.env("HYOSHI_ROLE", format!("work:{period}:{work}")).stdin(Stdio::null()).stdout(Stdio::null());
                if work == 0 {
                    command = Command::new("sleep");
                    command.arg("1000").stdin(Stdio::null());
                }
                children.0.push(command.spawn().unwrap());
                let name = format!("user-{}-{number}", std::process::id());
                let joining = TaskSpec::new(&name, Span::from_micros(period));
                let Ok(task) = client.join(&joining) else { continue };
                joined += u32::from(task.add_process(children.0[number as usize].id(), 0).is_ok());
            }
            println!("joined {joined}");
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
        }
        ["work", period, work] => {
            let [period, work] = [period, work].map(|word| Span::from_micros(word.parse().unwrap()));
            let clock = MonotonicClock::start();
            let mut next = clock.now();
            loop {
                let until = own_cpu_time() + work;
                while own_cpu_time() < until {
                    std::hint::black_box((0..500u64).sum::<u64>());
                }
                next += period;
                clock.sleep_until(next);
            }
        }
        _ => panic!("no role {role}"),
    }
}

struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A user's tasks, until the end of the scope.
struct Tasks {
    child: Child,
    input: Option<ChildStdin>,
    joined: u32,
}

impl Tasks {
    fn start(place: &Place, user: u32, count: u32, period: Span, work: Span) -> Tasks {
        // Where the user may read it.
        let program = place.path().join(format!("program-{user}"));
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let mut command = Command::new(&program);
        command.args(["--exact", "own_time::role", "--ignored", "--nocapture", "--test-threads=1"]);
        let [period, work] = [period, work].map(|span| span.as_nanos() / 1_000);
        let socket = place.path().join("run/broker.sock");
        command.env("HYOSHI_ROLE", format!("tasks:{count}:{period}:{work}:{}", socket.display()));
        command.uid(user).gid(user).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let joined = lines.find_map(|line| line.split("joined ").nth(1)?.trim().parse().ok()).expect("it says so");
        Tasks { child, input, joined }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// CPU time of a process so far.
fn cpu_time(pid: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |entry: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(entry.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(tasks.filter_map(of).sum())
}

/// The part of a CPU that a process takes for a while.
fn takes(pid: u32, time: Duration) -> f64 {
    let (before, began) = (cpu_time(pid), std::time::Instant::now());
    std::thread::sleep(time);
    (cpu_time(pid) - before).as_secs_f64() / began.elapsed().as_secs_f64()
}

/// A broker whose limits let [`USER`] have as many tasks as any test starts.
fn broker(place: &Place) -> Broker {
    let limits = place.path().join("broker.toml");
    std::fs::write(
        &limits,
        format!("[user.{USER}]\ntasks = 2000\nthreads = 4000\nrequests = 100000\nshare = \"50%\"\n"),
    )
    .unwrap();
    Broker::start(place, &format!("--scheduler window --limits {}", limits.display()))
}

fn root() -> bool {
    if !common::real_time() || hyoshi_os::Credentials::own().uid != 0 {
        common::missing("root and real-time priorities");
        return false;
    }
    true
}

/// Critical jobs of the flight program, and those of them that missed.
fn flight(place: &Place, seconds: u64) -> (u64, u64) {
    let socket = place.path().join("run/broker.sock");
    let (example, at) = (example("flight-program.toml"), socket.display());
    let words = format!("run {example} --duration {seconds}s --no-report --format json --socket {at}");
    let json = place.hyoshi(&words).json();
    let critical = common::class(&json, "critical");
    let count = |name: &str| critical[name].as_u64().unwrap_or_else(|| panic!("{name} of {critical}"));
    (count("released"), count("missed"))
}

#[test]
fn of_a_users_many_tasks_those_are_refused_that_the_brokers_own_time_does_not_suffice_for() {
    if !root() {
        return;
    }
    let place = Place::new();
    let _broker = broker(&place);
    let tasks = Tasks::start(&place, USER, 20, Span::from_millis(1), Span::ZERO);
    assert!(tasks.joined > 8, "{}", tasks.joined);
    let socket = place.path().join("run/broker.sock");
    let client = BrokerClient::connect(Some(&socket)).unwrap();
    let refused = || {
        let all = client.tasks().unwrap();
        all.iter().filter(|task| task.granted.reason.contains("broker's own time")).count()
    };
    assert!(common::broker::wait_for(|| refused() > 8).is_some(), "{}", refused());
}

#[test]
#[ignore = "takes minutes and a quiet machine"]
fn a_thousand_tasks_of_one_user_beside_the_flight_program() {
    if !root() {
        return;
    }
    for (what, count) in [("without tasks", 0), ("1,000 sleeping tasks of 1 ms by one user", 1_000)] {
        let place = Place::new();
        let broker = broker(&place);
        let tasks = (count > 0).then(|| Tasks::start(&place, USER, count, Span::from_millis(1), Span::ZERO));
        let joined = tasks.as_ref().map_or(0, |tasks| tasks.joined);
        let share = takes(broker.child.id(), Duration::from_secs(5));
        let (critical, missed) = flight(&place, 48);
        println!(
            "{what}: {joined} joined, the broker took {:.1} % of a CPU, {missed} of {critical} critical deadlines missed",
            100.0 * share
        );
    }
}

#[test]
#[ignore = "takes a minute and a quiet machine"]
fn a_hundred_tasks_at_33_ms() {
    if !root() {
        return;
    }
    for (what, count, work) in [("no tasks", 0, 0), ("100 sleeping", 100, 0), ("100 working 200 us", 100, 200)] {
        let place = Place::new();
        let broker = broker(&place);
        let tasks = Tasks::start(&place, USER, count, Span::from_millis(33), Span::from_micros(work));
        std::thread::sleep(Duration::from_secs(3));
        let share = takes(broker.child.id(), Duration::from_secs(10));
        println!("{what} ({} joined): the broker took {:.2} % of a CPU", tasks.joined, 100.0 * share);
    }
}
