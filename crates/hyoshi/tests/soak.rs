//! Programs come and go by the thousand, and the broker is killed again and again while it is loaded: what is left of
//! it then. As root, else it says that it skips.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use common::Place;
use hyoshi_broker::Joining;
use hyoshi_broker::client::Client;
use hyoshi_broker::idl::cpu_broker::{Task as _, TaskStub};
use hyoshi_broker::setting::Setting;
use hyoshi_model::Span;
use hyoshi_os::cgroup::CpuGroup;
use hyoshi_os::process::Process;
use hyoshi_os::scheduling::{Class, Scheduling, reserve};

/// Each way in which something could be left behind.
const WAYS: [&str; 3] = ["--scheduler window --floor weights", "--scheduler deadline", "--scheduler weights"];

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
    fn start(&mut self) -> (Ends, Client, BufReader<ChildStdout>) {
        let socket = self.place.path().join("run/broker.sock");
        let mut command = self.place.command(&format!("broker {} --socket", self.way));
        let mut broker = Ends::start(command.arg(&socket).stdout(Stdio::piped()).stderr(Stdio::null()));
        let mut out = BufReader::new(broker.0.stdout.take().unwrap());
        let mut said = String::new();
        while !said.lines().any(|line| line.starts_with("at ")) {
            assert!(out.read_line(&mut said).unwrap() > 0, "{}: it does not serve: {said}", self.way);
        }
        self.pids.push(broker.pid());
        (broker, Client::connect(Some(&socket)).unwrap(), out)
    }

    /// The next one puts back what was left, and ends in order; then nothing of any of them is there.
    fn nothing_is_left(&mut self, tasks: &[&Ends]) {
        let (mut broker, client, out) = self.start();
        drop(client);
        assert!(Command::new("kill").args(["-TERM", &broker.pid().to_string()]).status().unwrap().success());
        assert_eq!(broker.0.wait().unwrap().code(), Some(0));
        drop(out);
        for task in tasks {
            let mut threads = Vec::new();
            let process = Process::open(task.pid()).expect("tasks keep running");
            process.threads(&mut threads);
            assert!(!threads.is_empty());
            for tid in threads {
                let class = Scheduling::of(tid).unwrap().class;
                assert!(matches!(class, Class::Fair(_)), "{}: {tid} is left at {class:?}", self.way);
            }
            assert_eq!(CpuGroup::of_process(task.pid()), CpuGroup::of_this_process());
        }
        let top: PathBuf = CpuGroup::of_this_process().top;
        let names = fs::read_dir(top).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let ours = |name: &String| self.pids.iter().any(|pid| name.starts_with(&format!("hyoshi-{pid}-")));
        assert_eq!(names.filter(ours).collect::<Vec<_>>(), Vec::<String>::new());
    }
}

fn join(client: &Client, name: &str, share: &str, pid: u32) -> TaskStub {
    let mut joining = Joining::new(name, Span::from_millis(50));
    joining.advocates = vec![Setting { kind: "rate".into(), parameters: vec![("share".into(), share.into())] }];
    let task = client.join(&joining).unwrap();
    task.add_process(pid, 0).unwrap();
    task
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
            Scheduling { class: Class::Fair(0), reset_on_fork: false }.put_back(tid).unwrap();
        }));
        if !hears.recv().unwrap() || threads.len() > 1_000 {
            break threads.len() - 1;
        }
    };
    drop(ends);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    admitted
}

fn soak(processes: u32, kills: u32) {
    if !common::real_time() {
        return;
    }
    let (began, before) = (Instant::now(), bandwidth());
    for way in WAYS {
        let begun = Instant::now();
        let mut brokers = Brokers { place: Place::new(), way, pids: Vec::new() };
        let load = Ends::start(Command::new("sh").args(["-c", "while kill -0 $PPID; do :; done 2>/dev/null"]));
        let (broker, client, out) = brokers.start();
        join(&client, "load", "20%", load.pid());
        for number in 0..processes / WAYS.len() as u32 {
            let sleeper = Ends::sleeper();
            let task = join(&client, &format!("sleeper-{number}"), "0.1%", sleeper.pid());
            match number % 2 {
                0 => task.leave().unwrap(),
                // It is the broker that finds out that it has ended.
                _ => drop(sleeper),
            }
        }
        let descriptors = fs::read_dir(format!("/proc/{}/fd", broker.pid())).unwrap().count();
        assert!(descriptors < 400, "{way}: {descriptors} descriptors are left open");
        drop((broker, client, out));
        brokers.nothing_is_left(&[&load]);
        println!("{way}: come and gone in {:.1?}", begun.elapsed());

        let sleeper = Ends::sleeper();
        for round in 0..kills / WAYS.len() as u32 {
            let consumed = cpu_time(&load);
            let (mut broker, client, _out) = brokers.start();
            for (name, share, pid) in [("load", "20%", load.pid()), ("sleeper", "1%", sleeper.pid())] {
                if client.find(name).is_err() {
                    join(&client, name, share, pid);
                }
            }
            // Anywhere in the period, and in what is done at its begin and at the budget's end.
            std::thread::sleep(Duration::from_micros(u64::from(round) * 3_037 % 100_000));
            broker.0.kill().unwrap();
            broker.0.wait().unwrap();
            brokers.nothing_is_left(&[&load, &sleeper]);
            assert!(cpu_time(&load) > consumed, "{way}: the program stands still");
        }
        println!("{way}: all in {:.1?}", begun.elapsed());
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
#[ignore = "takes a minute on a busy machine"]
fn programs_come_and_go_and_the_broker_is_killed_without_a_trace() {
    soak(60, 6);
}

#[test]
#[ignore = "takes minutes"]
fn ten_thousand_programs_come_and_go_and_the_broker_is_killed_fifty_times() {
    soak(10_000, 51);
}
