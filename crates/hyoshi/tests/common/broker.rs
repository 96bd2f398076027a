//! Brokers, as processes that end with the test.

use std::borrow::BorrowMut;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use hyoshi_os::cgroup::CpuGroup;
use hyoshi_os::{ThreadPolicy, priority, set_own_policy};

use super::Place;
use super::said::Said;

/// A broker that ends with the test.
pub struct Broker {
    pub child: Child,
    // Should it say more, somebody is there.
    out: Said,
}

impl Broker {
    /// Serves at `run/broker.sock` in the place. Spinners are reserved nothing, unless it is what is tested: they would ask for
    /// the machine.
    pub fn start(place: &Place, more: &str) -> Broker {
        let scheduler = if more.contains("--scheduler") { "" } else { "--scheduler none" };
        let mut command = place.command(&format!("broker {more} {scheduler} --socket"));
        command.arg(place.path().join("run/broker.sock"));
        Broker::of(command)
    }

    pub fn of(mut command: impl BorrowMut<Command>) -> Broker {
        let mut child = command.borrow_mut().stdout(Stdio::piped()).spawn().unwrap();
        let out = Said::by(child.stdout.take().unwrap());
        let mut broker = Broker { child, out };
        broker.says("at ");
        broker
    }

    /// The rest of the next line that begins so.
    pub fn says(&mut self, begin: &str) -> String {
        self.out.after(begin)
    }

    pub fn ends(&mut self, signal: &str) -> ExitStatus {
        kill(self.child.id(), signal);
        self.child.wait().unwrap()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have ended as the test wanted it to.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Above all windows, where that is granted, until the end of the scope: who looks whether programs are raised may share their
/// CPU. Not inherited by what is started meanwhile.
pub struct Above;

impl Above {
    pub fn all() -> Above {
        let _ = set_own_policy(ThreadPolicy::Fifo(priority::WINDOWS.end() + 1));
        Above
    }
}

impl Drop for Above {
    fn drop(&mut self) {
        let _ = set_own_policy(ThreadPolicy::Other);
    }
}

pub fn kill(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

/// `None` if it does not come to pass within a minute.
pub fn wait_for(mut condition: impl FnMut() -> bool) -> Option<()> {
    let until = Instant::now() + Duration::from_secs(60);
    while !condition() {
        if Instant::now() > until {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(())
}

/// A program that ends with the test, and with it everything that it has started.
pub struct Program(pub Child);

impl Program {
    pub fn start(command: &mut Command) -> Program {
        Program(command.process_group(0).spawn().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The test may have ended it already; then this reaches the processes that it has left.
        let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", self.0.id())]).stderr(Stdio::null()).status();
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command as a user without capabilities, in at most one supplementary group.
pub fn as_user(place: &Place, uid: u32, group: Option<u32>, program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args([
        format!("--reuid={uid}"),
        format!("--regid={uid}"),
        "--bounding-set=-all".into(),
        "--inh-caps=-all".into(),
    ]);
    match group {
        Some(group) => command.arg(format!("--groups={group}")),
        None => command.arg("--clear-groups"),
    };
    command.arg(place.path().join(program)).current_dir(place.path()).stdin(Stdio::null());
    command
}

/// CPU time of a process so far, with threads that have ended, in steps of 10 ms (proc_pid_stat(5): 14, 15).
pub fn cpu_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks = [14, 15].map(|field| fields[field - 3].parse::<u64>().unwrap());
    Duration::from_millis(10 * ticks.iter().sum::<u64>())
}

/// Waits up to 20 s until at most so many are left, and returns those that are.
pub fn comes_down<T>(most: usize, left: impl Fn() -> Vec<T>) -> Vec<T> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let there = left();
        if there.len() <= most || Instant::now() > until {
            return there;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The files, sockets and others that a broker has open.
pub fn descriptors(broker: u32) -> Vec<PathBuf> {
    let all = fs::read_dir(format!("/proc/{broker}/fd")).unwrap();
    all.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok()).collect()
}

/// The control groups of a broker, by name.
pub fn groups(broker: u32) -> Vec<String> {
    let all = fs::read_dir(CpuGroup::of_this_process().top).unwrap();
    let names = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(&format!("hyoshi-{broker}-"))).collect()
}
