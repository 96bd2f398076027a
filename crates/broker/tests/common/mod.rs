//! Real processes that compute, and a thread that runs a broker's machine.

#![allow(dead_code)]

#[path = "../../../hyoshi/tests/common/said.rs"]
pub mod said;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyoshi_broker::machine::Machine;
use hyoshi_broker::platform::Platform as _;
use hyoshi_control::TaskId;
use hyoshi_model::{Instant, Reservation, Span};
use hyoshi_os::process::Process;
use hyoshi_os::{Clock, MonotonicClock, Spawn, SpawnedThread, ThreadPolicy, priority, set_own_policy};

/// A process of this program, killed and reaped at the end of its scope. Declare programs before their machine, which
/// must lower them first: two raised programs at one priority could block each other's end.
pub struct Program(pub Child);

impl Program {
    /// With threads that compute endlessly.
    pub fn spinning(threads: usize) -> Self {
        Program::playing("spin", threads)
    }

    /// The same for a user.
    pub fn spinning_as(user: u32, threads: usize) -> Self {
        Program::playing_as(user, "spin", threads)
    }

    /// A role of [`play`], as a user.
    pub fn playing_as(user: u32, role: &str, number: usize) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("a test program has a path"));
        command.uid(user).gid(user).current_dir("/");
        Program::start(command, role, number)
    }

    /// A role of [`play`].
    pub fn playing(role: &str, number: usize) -> Self {
        Program::start(Command::new(std::env::current_exe().expect("a test program has a path")), role, number)
    }

    fn start(mut command: Command, role: &str, number: usize) -> Self {
        command.args(["--exact", "role", "--ignored", "--nocapture", "--test-threads=2"]);
        command.env("HYOSHI_ROLE", format!("{role}:{number}")).stdin(Stdio::null()).stdout(Stdio::null());
        let program = Program(command.spawn().expect("a second copy of the test program"));
        // Besides those that compute, the first thread and the thread of the test.
        program.until(|program| program.threads() >= number + 2);
        program
    }

    /// Its first thread has ended while others compute, which Python allows. Without Python prints that and returns
    /// `None`.
    pub fn headless() -> Option<Self> {
        let script = "import ctypes, os, platform, threading, time\n\
                      def spin():\n    while os.getppid() != 1: pass\n\
                      for _ in range(3): threading.Thread(target=spin).start()\n\
                      ctypes.CDLL(None).syscall({'x86_64': 60}.get(platform.machine(), 93), 0)\n";
        let python = Command::new("python3").args(["-c", script]).stdin(Stdio::null()).spawn();
        let Ok(python) = python else {
            println!("skipped, needs python3");
            return None;
        };
        let program = Program(python);
        program.until(|program| program.threads() == 4 && program.process().first_thread_has_ended());
        Some(program)
    }

    pub fn process(&self) -> Process {
        Process::open(self.0.id()).expect("it lives until the end of the scope")
    }

    pub fn threads(&self) -> usize {
        self.tids().len()
    }

    pub fn tids(&self) -> Vec<u32> {
        let mut threads = Vec::new();
        self.process().threads(&mut threads);
        threads
    }

    /// Waits for a condition of the program.
    pub fn until(&self, done: impl Fn(&Self) -> bool) {
        until(|| done(self));
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for a condition; a panic shows the place of the call.
#[track_caller]
pub fn until(done: impl Fn() -> bool) {
    let clock = MonotonicClock::start();
    while !done() {
        assert!(clock.now() < Instant::ZERO + Span::from_secs(30), "it never came to pass");
        clock.sleep_until(clock.now() + Span::from_micros(500));
    }
}

/// Plays the role in the environment; without one returns at once.
pub fn play() {
    let Ok(role) = std::env::var("HYOSHI_ROLE") else { return };
    let (role, number) = role.split_once(':').expect("ROLE:NUMBER");
    let number: usize = number.parse().expect("a number");
    match role {
        "spin" => {
            let threads: Vec<_> = (0..number).map(|_| std::thread::spawn(|| spin(None))).collect();
            threads.into_iter().for_each(|thread| drop(thread.join()));
        }
        // Threads that live for a millisecond, always this many.
        "fleeting" => {
            let keep = || loop {
                let thread = std::thread::spawn(|| spin(Some(Span::from_millis(1))));
                let _ = thread.join();
            };
            let threads: Vec<_> = (0..number).map(|_| std::thread::spawn(keep)).collect();
            threads.into_iter().for_each(|thread| drop(thread.join()));
        }
        other => panic!("no role {other}"),
    }
}

fn spin(so_long: Option<Span>) {
    let until = so_long.map(|span| hyoshi_os::own_cpu_time() + span);
    while until.is_none_or(|until| hyoshi_os::own_cpu_time() < until) {
        std::hint::black_box((0..20_000u64).sum::<u64>());
    }
}

/// Above all windows if granted, until the end of the scope: like a broker, which lowers what it raised, and like an
/// observer of windows without a free CPU. Child processes do not inherit it.
pub struct Above {
    _alone: MutexGuard<'static, ()>,
}

impl Above {
    pub fn all() -> Above {
        let alone = alone();
        let _ = set_own_policy(ThreadPolicy::Fifo(priority::WINDOWS.end() + 1));
        Above { _alone: alone }
    }
}

/// Excludes other tests of this process that raise programs: their windows do not know each other.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Above {
    fn drop(&mut self) {
        let _ = set_own_policy(ThreadPolicy::Other);
    }
}

/// A directory, removed at the end.
pub struct Place(pub PathBuf);

impl Place {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hyoshi-broker-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Place(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A thread that runs a machine like the broker's.
pub struct Driver {
    stop: Arc<AtomicBool>,
    thread: Option<SpawnedThread<Span>>,
}

impl Driver {
    /// Reserves for one process until the end, with the clock of the windows.
    pub fn start(mut machine: Machine, process: Process, reservation: Reservation, clock: MonotonicClock) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = stop.clone();
        let thread = Spawn::new("broker").policy(ThreadPolicy::Fifo(priority::BROKER)).spawn(move || {
            let task = TaskId(1);
            machine.add(task, process).expect("a process that lives");
            machine.reserve(task, reservation, clock.now()).expect("there is room for one");
            while !theirs.load(Ordering::Relaxed) {
                let next = machine.tick(clock.now());
                clock.sleep_until(next.min(clock.now() + Span::from_millis(100)));
            }
            machine.end();
            hyoshi_os::own_cpu_time()
        });
        Driver { stop, thread: Some(thread.expect("a thread")) }
    }

    /// Restores everything; returns the CPU time of the thread.
    pub fn end(mut self) -> Span {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("ended once").join().expect("the driver does not panic")
    }
}
