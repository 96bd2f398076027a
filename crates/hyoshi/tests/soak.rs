//! Programs come and go by the thousand, and the broker is killed again and again while it is loaded: what is left of
//! it then. As root, else it says that it skips.

use crate::common;

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use common::Place;
use common::broker::{comes_down, descriptors, groups};
use common::said::Said;
use hyoshi_broker::TaskSpec;
use hyoshi_broker::client::{BrokerClient, BrokerClientError};
use hyoshi_broker::component::ComponentSpec;
use hyoshi_broker::idl::cpu_broker::{Task as _, TaskStub};
use hyoshi_model::Span;
use hyoshi_os::cgroup::CpuGroup;
use hyoshi_os::process::{Children, Process};
use hyoshi_os::scheduling::{Affinity, Scheduling, SchedulingClass, reserve};

/// Each way in which something could be left behind.
const WAYS: [&str; 3] = ["--scheduler window --floor weights", "--scheduler deadline", "--scheduler weights"];

/// Computes, and under windows starts somebody now and then, who is born in one of them or between. By the clock: a
/// machine that is twice as fast has no more of them alive.
fn load(way: &str) -> Command {
    let starts = if way.contains("window") {
        "read t _ </proc/uptime; t=${t%?}; if [ \"$t\" != \"$last\" ]; then last=$t; sleep 5 & fi"
    } else {
        ":"
    };
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("trap '' CHLD; while kill -0 $PPID; do {starts}; done 2>/dev/null")]);
    shell
}

/// A child that ends with the test.
struct Ends(Child);

impl Ends {
    fn start(command: &mut Command) -> Ends {
        Ends(command.stdin(Stdio::null()).spawn().unwrap())
    }

    fn sleeper() -> Ends {
        Ends::start(Command::new("sleep").arg("1000"))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn ends_in_order(&mut self) {
        assert!(Command::new("kill").args(["-TERM", &self.pid().to_string()]).status().unwrap().success());
        assert_eq!(self.0.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        // It may have been ended by the test already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A broker of one way, again and again with the same state.
struct Brokers {
    place: Place,
    way: &'static str,
    /// All that there were, for what they could have left behind.
    pids: Vec<u32>,
}

impl Brokers {
    fn socket(&self) -> PathBuf {
        self.place.path().join("run/broker.sock")
    }

    fn start(&mut self) -> (Ends, BrokerClient, Said) {
        let socket = self.socket();
        let mut command = self.place.command(&format!("broker {} --socket", self.way));
        let mut broker = Ends::start(command.arg(&socket).stdout(Stdio::piped()).stderr(Stdio::null()));
        let out = Said::by(broker.0.stdout.take().unwrap());
        out.after("at ");
        self.pids.push(broker.pid());
        (broker, BrokerClient::connect(Some(&socket)).unwrap(), out)
    }

    /// The next one puts back what was left, and ends in order; then nothing of any of them is there.
    fn nothing_is_left(&mut self, tasks: &[&Ends], born: &[Process]) {
        let (mut broker, client, out) = self.start();
        drop(client);
        broker.ends_in_order();
        drop(out);
        let everywhere = Affinity::of(hyoshi_os::own_thread()).unwrap();
        for child in born {
            let bound = Affinity::of(child.identity().number);
            assert!(child.has_ended() || bound == Ok(everywhere), "{}: a child is left bound to {bound:?}", self.way);
        }
        for task in tasks {
            let mut threads = Vec::new();
            let process = Process::open(task.pid()).expect("tasks keep running");
            process.threads(&mut threads);
            assert!(!threads.is_empty());
            for tid in threads {
                let class = Scheduling::of(tid).unwrap().class;
                assert!(matches!(class, SchedulingClass::Fair(_)), "{}: {tid} is left at {class:?}", self.way);
                assert_eq!(Affinity::of(tid).unwrap(), everywhere, "{}", self.way);
            }
            assert_eq!(CpuGroup::of_process(task.pid()), CpuGroup::of_this_process());
        }
        let left: Vec<_> = self.pids.iter().flat_map(|pid| groups(*pid)).collect();
        assert_eq!(left, [""; 0]);
    }
}

fn join(client: &BrokerClient, name: &str, share: &str, pid: u32) -> Result<TaskStub, BrokerClientError> {
    let mut joining = TaskSpec::new(name, Span::from_millis(50));
    joining.advocates = vec![ComponentSpec { kind: "rate".into(), parameters: vec![("share".into(), share.into())] }];
    let task = client.join(&joining)?;
    task.add_process(pid, 0)?;
    Ok(task)
}

/// Programs that come and go, so many of them at a time, while the broker may be killed at any moment.
struct Churn {
    socket: PathBuf,
    killed: AtomicBool,
    gone: AtomicU32,
}

impl Churn {
    const AT_ONCE: usize = 8;

    /// Has programs come and go until so many have gone or the broker has. Those that are there then are returned.
    fn run(&self, round: u32, many: u32) -> Vec<Ends> {
        let (mut there, mut dying) = (VecDeque::new(), Vec::new());
        let done = BrokerClient::connect(Some(&self.socket)).and_then(|client| {
            for number in 0..many {
                let sleeper = Ends::sleeper();
                let task = join(&client, &format!("sleeper-{round}-{number}"), "0.1%", sleeper.pid());
                there.push_back(sleeper);
                let task = task?;
                if number % 2 == 0 {
                    // It goes on, without the broker.
                    task.leave()?;
                }
                if there.len() > Churn::AT_ONCE {
                    // Of every other one it is the broker that finds out that it has ended.
                    let mut first: Ends = there.pop_front().unwrap();
                    first.0.kill().unwrap();
                    dying.push(first);
                }
                self.gone.fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        });
        if let Err(error) = done {
            assert!(self.killed.load(Ordering::SeqCst), "{error}");
        }
        // One that has no bandwidth left for now takes its time.
        drop(dying);
        there.into()
    }
}

fn cpu_time(task: &Ends) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/schedstat", task.pid())).unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

/// How many threads the kernel still gives a twentieth of a CPU to.
fn bandwidth() -> usize {
    let (ends, waits) = mpsc::channel::<()>();
    let waits = std::sync::Arc::new(std::sync::Mutex::new(waits));
    let mut threads = Vec::new();
    let admitted = loop {
        let (says, hears) = mpsc::channel();
        let waits = waits.clone();
        threads.push(std::thread::spawn(move || {
            let (tid, period) = (hyoshi_os::own_thread(), Span::from_millis(100));
            says.send(reserve(tid, Span::from_millis(5), period, period).is_ok()).unwrap();
            let _ = waits.lock().map(|waits| waits.recv());
            Scheduling { class: SchedulingClass::Fair(0), reset_on_fork: false }.restore(tid).unwrap();
        }));
        if !hears.recv().unwrap() || threads.len() > 1_000 {
            break threads.len() - 1;
        }
    };
    drop(ends);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    admitted
}

/// Programs come and go under each way, `processes` in all, in as many rounds as there are kills.
fn soak(processes: u32, kills: u32) {
    if !common::real_time() {
        return;
    }
    let (began, before) = (Instant::now(), bandwidth());
    let (ways, rounds) = (WAYS.len() as u32, kills / WAYS.len() as u32);
    for (way, at) in WAYS.into_iter().zip(0..) {
        let begun = Instant::now();
        let mut brokers = Brokers { place: Place::new(), way, pids: Vec::new() };
        let load = Ends::start(&mut load(way));
        let sleeper = Ends::sleeper();
        let mut left = processes / ways + u32::from(at < processes % ways);
        // What a broker has open for one client without tasks.
        let mut bare = 0;
        for round in 0..=rounds {
            let consumed = cpu_time(&load);
            let (mut broker, client, _out) = brokers.start();
            if round == 0 {
                // By then the client has all its connections: to the broker's object and to tasks.
                client.join(&TaskSpec::new("nobody", Span::from_millis(50))).unwrap().leave().unwrap();
                bare = descriptors(broker.pid()).len();
            }
            for (name, share, pid) in [("load", "20%", load.pid()), ("sleeper", "1%", sleeper.pid())] {
                if client.find(name).is_err() {
                    join(&client, name, share, pid).unwrap();
                }
            }
            let last = round == rounds;
            let many = if last { left } else { left / (rounds - round + 1) };
            let churn = Churn { socket: brokers.socket(), killed: AtomicBool::new(false), gone: AtomicU32::new(0) };
            let mut there = std::thread::scope(|scope| {
                let churning = scope.spawn(|| churn.run(round, many));
                if !last {
                    // Somewhere in their second half, anywhere in the period, and in what is done at its begin and at the budget's end.
                    while churn.gone.load(Ordering::SeqCst) < many / 2 + round * 7 % (many / 2 + 1)
                        && !churning.is_finished()
                    {
                        std::thread::sleep(Duration::from_micros(200));
                    }
                    std::thread::sleep(Duration::from_micros(u64::from(round) * 3_037 % 50_000));
                    churn.killed.store(true, Ordering::SeqCst);
                    broker.0.kill().unwrap();
                    broker.0.wait().unwrap();
                }
                churning.join().unwrap()
            });
            left -= churn.gone.load(Ordering::SeqCst);
            if last {
                let still = comes_down(2 + there.len(), || groups(broker.pid()));
                assert!(still.len() <= 2 + there.len(), "{way}: groups are left: {still:?}");
                // All tasks go, and with them what was open for them: it is as it began.
                drop(std::mem::take(&mut there));
                ["load", "sleeper"].into_iter().for_each(|name| client.find(name).unwrap().leave().unwrap());
                let still = comes_down(bare, || descriptors(broker.pid()));
                assert!(still.len() <= bare, "{way}: {} descriptors and not {bare}: {still:?}", still.len());
                broker.ends_in_order();
            }
            let born = Children::default().of(&Process::open(load.pid()).unwrap());
            // Who is just being born when a broker ends in order is the next round's.
            let born: Vec<_> = born.into_iter().filter(|_| !last).filter_map(|pid| Process::open(pid).ok()).collect();
            drop(client);
            let tasks: Vec<&Ends> = [&load, &sleeper].into_iter().chain(&there).collect();
            brokers.nothing_is_left(&tasks, &born);
            assert!(cpu_time(&load) > consumed, "{way}: the program stands still");
        }
        assert_eq!(left, 0);
        println!("{way}: {:.1?}", begun.elapsed());
    }
    // Another program of the machine may have some for a moment.
    let until = Instant::now() + Duration::from_secs(20);
    let mut after = bandwidth();
    while after < before && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(200));
        after = bandwidth();
    }
    assert!(after >= before, "bandwidth for {after} threads of {before} is left");
    println!("{processes} processes and {kills} kills in {:.0?}: nothing left behind", began.elapsed());
}

#[test]
fn programs_come_and_go_and_the_broker_is_killed_without_a_trace() {
    soak(60, 6);
}

#[test]
#[ignore = "takes minutes"]
fn ten_thousand_programs_come_and_go_and_the_broker_is_killed_fifty_times() {
    soak(10_000, 51);
}
