//! The broker as a service of a real systemd, the machine's and a user's. `.ci/systemd` boots a machine for it, with `hyoshi`
//! where its units look for it.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use hyoshi_os::cgroup::CpuGroup;
use hyoshi_os::process::Process;
use hyoshi_os::scheduling::{Scheduling, SchedulingClass};
use serde_json::Value;

const MACHINES: &str = include_str!("../../../packaging/systemd/hyoshi-broker.service");
const USERS: &str = include_str!("../../../packaging/systemd/user/hyoshi-broker.service");
const BROKER: &str = "hyoshi-broker.service";
/// Who has a manager of their own there.
const USER: u32 = 1000;
const HOME: &str = "/home/ann";
const SPIN: &str = "while :; do :; done";

/// On whose behalf: the machine's manager is asked, or the user's.
#[derive(Clone, Copy)]
enum Whose {
    Machine,
    User,
}

impl Whose {
    fn command(self, program: &str, words: &str) -> Command {
        let mut command = Command::new(program);
        command.stdin(Stdio::null());
        if let Whose::User = self {
            command.uid(USER).gid(USER).current_dir(HOME).env("HOME", HOME);
            command.env("XDG_RUNTIME_DIR", format!("/run/user/{USER}"));
            if program.starts_with("systemctl") || program.starts_with("systemd-run") {
                command.arg("--user");
            }
        }
        command.args(words.split_whitespace());
        command
    }

    fn run(self, program: &str, words: &str) -> String {
        said(program, words, self.command(program, words).output().unwrap())
    }

    fn systemctl(self, words: &str) -> String {
        self.run("systemctl", words)
    }

    fn hyoshi(self, words: &str) -> String {
        self.run("/usr/local/bin/hyoshi", words)
    }

    /// A property of a unit.
    fn property(self, unit: &str, name: &str) -> String {
        self.systemctl(&format!("show --value -p {name} {unit}")).trim().to_owned()
    }

    fn install(self, folder: &str, name: &str, unit: &str) {
        let folder = Path::new(folder);
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join(name), unit).unwrap();
        self.systemctl("daemon-reload");
    }

    fn group(self, unit: &str) -> PathBuf {
        PathBuf::from(format!("/sys/fs/cgroup{}", self.property(unit, "ControlGroup")))
    }

    fn main_pid(self, unit: &str) -> u32 {
        self.property(unit, "MainPID").parse().unwrap()
    }

    /// A task, once it is as wanted.
    fn task(self, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        until(&format!("task {name}"), || {
            let output = self.command("/usr/local/bin/hyoshi", "broker list --format json").output().unwrap();
            let printed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let tasks = printed["tasks"].as_array().cloned().unwrap_or_default();
            last = tasks.into_iter().find(|task| task["name"] == name).unwrap_or_default();
            wanted(&last)
        });
        last
    }

    /// Until the manager has started it so many times again, and it serves.
    fn is_there_again(self, times: u32, before: u32) {
        until("the broker is started again", || {
            self.property(BROKER, "NRestarts") == times.to_string()
                && self.property(BROKER, "ActiveState") == "active"
                && ![0, before].contains(&self.main_pid(BROKER))
        });
    }
}

fn said(program: &str, words: &str, output: Output) -> String {
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words}: {}: {err}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}: it never came to pass");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn classes(pid: u32) -> Vec<SchedulingClass> {
    let mut threads = Vec::new();
    Process::open(pid).expect("programs go on").threads(&mut threads);
    threads.into_iter().filter_map(|tid| Some(Scheduling::of(tid).ok()?.class)).collect()
}

fn is_raised(pid: u32) -> bool {
    classes(pid).iter().any(|class| matches!(class, SchedulingClass::Fifo(20..=39)))
}

fn is_ordinary(pid: u32) -> bool {
    classes(pid).iter().all(|class| matches!(class, SchedulingClass::Fair(_)))
}

fn group(pid: u32) -> PathBuf {
    CpuGroup::of_process(pid).folder
}

/// All control groups that brokers make.
fn groups(below: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(below).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found = Vec::new();
    for folder in folders.filter(|path| path.is_dir()) {
        found.extend(groups(&folder));
        if folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("hyoshi-"))
            && !folder.ends_with(BROKER)
        {
            found.push(folder);
        }
    }
    found
}

fn service(script: &str) -> String {
    // Whatever is not raised gives way to the test.
    format!("[Service]\nNice=19\nExecStart=/bin/sh -c '{script}'\n")
}

#[test]
#[ignore = "changes the machine: .ci/systemd boots one for it"]
fn the_machines_broker_is_started_watched_over_and_started_again_and_ends_in_order() {
    let machine = Whose::Machine;
    machine.install("/etc/systemd/system", BROKER, MACHINES);
    machine.install("/etc/systemd/system", "spinner.service", &service(SPIN));
    machine.systemctl(&format!("enable --now {BROKER}"));
    assert_eq!(machine.property(BROKER, "StatusText"), "serves at /run/hyoshi/broker.sock");
    let standing: Value = serde_json::from_str(&machine.hyoshi("broker show --format json")).unwrap();
    let ways = standing["broker"]["schedulers"].as_array().cloned().unwrap_or_default();
    assert!(ways.iter().any(|way| way["name"] == "window" && way["used"] == true), "{standing}");

    let words = "exec --name player --period 40ms --hard --advocate";
    let mut player = machine.command("/usr/local/bin/hyoshi", words);
    let mut player = player.args(["rate 20%", "--", "nice", "-n", "19", "/bin/sh", "-c", SPIN]).spawn().unwrap();
    let player_pid = player.id();
    let home = CpuGroup::of_this_process();
    machine.systemctl("start spinner");
    let spinner_pid = machine.main_pid("spinner");
    let spinners_group = CpuGroup::of_process(spinner_pid);
    machine.hyoshi("attach --unit spinner --name spinner --period 50ms");
    let check = |what: &str| {
        let player = machine.task("player", |task| task["reserved"]["budget_ns"] == 8_000_000);
        assert_eq!(player["processes"][0], player_pid, "{what}");
        let spinner = machine.task("spinner", |task| task["reports"].as_u64() > Some(1));
        assert_eq!(spinner["processes"][0], spinner_pid, "{what}");
        until(what, || is_raised(player_pid));
        until(what, || is_raised(spinner_pid));
        // That of the hard task.
        until(what, || groups(Path::new("/sys/fs/cgroup")).len() == 1);
        assert_eq!(CpuGroup::of_process(spinner_pid), spinners_group, "{what}");
    };
    check("started");

    let before = machine.main_pid(BROKER);
    machine.systemctl(&format!("kill --signal=KILL --kill-whom=main {BROKER}"));
    machine.is_there_again(1, before);
    check("after a SIGKILL");

    // One that hangs says nothing to its watchdog.
    let before = machine.main_pid(BROKER);
    machine.systemctl(&format!("kill --signal=STOP --kill-whom=main {BROKER}"));
    machine.is_there_again(2, before);
    check("after the watchdog");

    machine.systemctl("restart spinner");
    let spinner_again = machine.main_pid("spinner");
    machine.task("spinner", |task| task["processes"][0] == spinner_again);

    machine.systemctl(&format!("stop {BROKER}"));
    assert_eq!(machine.property(BROKER, "Result"), "success");
    assert_eq!(machine.property(BROKER, "ExecMainStatus"), "0");
    assert!(is_ordinary(player_pid) && is_ordinary(spinner_again));
    assert_eq!(CpuGroup::of_process(player_pid), home);
    assert_eq!(groups(Path::new("/sys/fs/cgroup")), [""; 0].map(PathBuf::from));
    assert_eq!(machine.property("spinner", "ActiveState"), "active");
    let journal = machine.run("journalctl", &format!("--no-pager -o cat -u {BROKER}"));
    let printed = |text: &str| journal.lines().filter(|line| line.contains(text)).count();
    assert_eq!(printed("undid changes of another broker"), 2, "{journal}");
    assert_eq!(printed("restored tasks of the previous broker: player, spinner"), 2, "{journal}");
    assert!(fs::read_to_string("/var/log/hyoshi/audit.log").unwrap().contains("\"join\""));

    player.kill().unwrap();
    player.wait().unwrap();
    machine.systemctl("stop spinner");
    machine.systemctl(&format!("disable {BROKER}"));
}

/// The user's manager, with a unit for the broker and one for a program under it.
fn manager() {
    Whose::Machine.systemctl(&format!("start user@{USER}.service"));
    let folder = format!("{HOME}/.config/systemd/user");
    let program = format!("exec /usr/local/bin/hyoshi exec --name player --period 40ms -- /bin/sh -c \"{SPIN}\"");
    Whose::User.install(&folder, BROKER, USERS);
    Whose::User.install(&folder, "spinner.service", &service(&program));
}

/// A service and somebody alone in a scope are in groups of the broker's, which ends then: they are where they were.
fn shares_out_and_ends(ends: &str) {
    let user = Whose::User;
    let serves = || user.command("/usr/local/bin/hyoshi", "broker list").output().unwrap().status.success();
    until("the broker serves", serves);
    let standing: Value = serde_json::from_str(&user.hyoshi("broker show --format json")).unwrap();
    let ways = standing["broker"]["schedulers"].as_array().cloned().unwrap_or_default();
    assert!(ways.iter().any(|way| way["name"] == "weights" && way["used"] == true), "{standing}");
    user.systemctl("start spinner");
    let (pid, home) = (user.main_pid("spinner"), user.group("spinner"));
    user.run("systemd-run", "--unit=alone -- systemd-run --user --scope --unit=lone /bin/sleep 1000");
    until("the scope is there", || user.property("lone.scope", "ActiveState") == "active");
    let (alone, lone) = (user.main_pid("alone"), user.group("lone.scope"));
    assert_eq!(group(alone), lone);
    user.hyoshi(&format!("attach {alone} --name lone --period 40ms"));
    user.task("player", |task| task["reports"].as_u64() > Some(1) && task["reserved"]["budget_ns"].as_u64() > Some(0));
    until("the player is in a group of its own", || group(pid) != home);
    until("what was attached is in a group of its own", || group(alone) != lone);
    // A scope lasts as long as somebody is in it.
    until("the scope is gone", || user.property("lone.scope", "ActiveState") != "active");
    assert_eq!(user.property("spinner", "ActiveState"), "active");
    if ends == format!("stop {BROKER}") {
        let before = user.main_pid(BROKER);
        user.systemctl(&format!("kill --signal=KILL --kill-whom=main {BROKER}"));
        user.is_there_again(1, before);
        user.task("player", |task| task["reserved"]["budget_ns"].as_u64() > Some(0));
        until("the player is in a group of its own again", || group(pid) != home);
        until("what was attached is in one again", || group(alone) != lone);
    }
    user.systemctl(ends);
    until("the broker has ended", || !serves());
    assert_eq!(groups(Path::new("/sys/fs/cgroup")), [""; 0].map(PathBuf::from));
    assert_eq!([group(pid), group(alone)], [home, lone]);
    assert!(is_ordinary(pid));
    assert_eq!(user.property("spinner", "ActiveState"), "active");
    user.systemctl("stop spinner alone");
}

#[test]
#[ignore = "changes the machine: .ci/systemd boots one for it"]
fn a_users_broker_works_in_what_is_delegated_to_its_unit() {
    manager();
    Whose::User.systemctl("start hyoshi-broker");
    shares_out_and_ends(&format!("stop {BROKER}"));
}

#[test]
#[ignore = "changes the machine: .ci/systemd boots one for it"]
fn a_users_broker_works_in_a_scope_that_is_delegated_to_it() {
    manager();
    // From within what the user's manager has: others' processes are the machine's to move.
    let words = "--unit=by-hand -- systemd-run --user --scope -p Delegate=yes /usr/local/bin/hyoshi broker";
    Whose::User.run("systemd-run", words);
    shares_out_and_ends("stop by-hand");
}
