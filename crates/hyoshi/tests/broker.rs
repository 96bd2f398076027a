//! `hyoshi broker`, `exec` and `attach`, as processes.
//!
//! `tests/golden/broker.txt` holds what is refused, word by word. After a change of wording: `BLESS=1 cargo test -p hyoshi
//! --test broker`, then read the diff by eye.

use crate::common;
#[path = "broker/follow.rs"]
mod follow;
#[path = "broker/group.rs"]
mod group;
#[path = "broker/hostile.rs"]
mod hostile;
#[path = "broker/lanes.rs"]
mod lanes;
#[path = "broker/limits.rs"]
mod limits;
#[path = "broker/open.rs"]
mod open;
#[path = "broker/pages.rs"]
mod pages;
#[path = "broker/period.rs"]
mod period;
#[path = "broker/refused.rs"]
mod refused;
#[path = "broker/rejoin.rs"]
mod rejoin;
#[path = "broker/setuid.rs"]
mod setuid;
#[path = "broker/top.rs"]
mod top;
#[path = "broker/unit.rs"]
mod unit;

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write as _};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use common::broker::{Above, Broker, Program, as_user, cpu_time, kill, wait_for};
use common::said::Said;
use common::{Ended, Place};
use hyoshi_broker::idl::cpu_broker::{Advocate, Grant, Reservation, Status};
use hyoshi_orb::{Orb, SystemException};
use serde_json::Value;

/// A script that uses the CPU for as long as the process lives that has started it: no guard drops in a test that is
/// killed.
const SPIN: &str = "while kill -0 $PPID; do :; done 2>/dev/null";

/// Asks the place's broker.
fn ask(place: &Place, words: &str) -> Ended {
    let (verb, rest) = words.split_once(' ').unwrap_or((words, ""));
    place.hyoshi(&format!("{verb} --socket {} {rest}", place.path().join("run/broker.sock").display()))
}

fn exec(place: &Place, words: &str) -> Command {
    let mut command = place.command("exec --socket");
    command.arg(place.path().join("run/broker.sock")).args(words.split_whitespace()).arg("--");
    command
}

fn spinner(place: &Place, words: &str) -> Program {
    let mut command = exec(place, words);
    Program::start(command.args(["sh", "-c", SPIN]))
}

/// The task, once it is as wanted.
fn task(place: &Place, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    wait_for(|| {
        let tasks = ask(place, "broker list --format json").exits(0).json();
        let tasks = tasks["tasks"].as_array().unwrap();
        last = tasks.iter().find(|task| task["name"] == name).cloned().unwrap_or(Value::Null);
        wanted(&last)
    })
    .unwrap_or_else(|| panic!("{name} is {last}"));
    last
}

fn reports(task: &Value) -> u64 {
    task["reports"].as_u64().unwrap_or(0)
}

#[test]
fn a_process_has_one_task_also_where_its_parent_has_another_and_the_broker_has_none() {
    let place = Place::new();
    // A child that has a task when its parent's begins, one that begins its own, and one that has been in its parent's before.
    let (hyoshi, socket) = (env!("CARGO_BIN_EXE_hyoshi"), place.path().join("run/broker.sock"));
    let at = format!("--socket {}", socket.display());
    let exec = |name: &str| format!("exec {hyoshi} exec {at} --name {name} --period 20ms -- sh -c '{SPIN}' &");
    let (before, after, moved) = (exec("before"), exec("after"), exec("moved"));
    let script = format!(
        "{hyoshi} broker --cap 30% {at} >broker.out 2>&1 & echo $! >broker.pid; read go; {before} \
         read go; {after} \
         {{ sleep 1000 & echo $! >child.pid; while [ ! -e move ]; do sleep 0.1; done; {}; }} & echo $! >moved.pid; read never",
        moved.trim_end_matches('&')
    );
    let mut command = Command::new("sh");
    let mut shell = Program::start(command.args(["-c", &script]).stdin(Stdio::piped()).current_dir(place.path()));
    wait_for(|| ask(&place, "broker list").code == 0).expect("the broker serves");
    if !ask(&place, "broker show").exits(0).out.contains("scheduler   window: ") {
        return common::missing("the broker's windows");
    }
    let broker: u32 = place.read("broker.pid").trim().parse().unwrap();
    let mut go = shell.0.stdin.take().unwrap();
    go.write_all(b"go\n").unwrap();
    let before = task(&place, "before", |task| reports(task) > 0);
    ask(&place, &format!("attach {} --name shell --period 20ms --budget 1ms", shell.0.id())).exits(0);
    go.write_all(b"go\n").unwrap();
    let after = task(&place, "after", |task| reports(task) > 0);
    let number = |file: &str| -> Value { place.read(file).trim().parse::<u32>().unwrap().into() };
    let has = |task: &Value, who: &Value| task["processes"].as_array().is_some_and(|all| all.contains(who));
    wait_for(|| fs::read_to_string(place.path().join("moved.pid")).is_ok_and(|text| text.ends_with('\n')))
        .expect("it is started");
    let (moves, child) = (number("moved.pid"), number("child.pid"));
    // As children they are the shell's, until one of them begins a task of its own.
    let seen = reports(&task(&place, "shell", |task| has(task, &moves) && has(task, &child)));
    fs::write(place.path().join("move"), "").unwrap();
    task(&place, "moved", |task| reports(task) > 0 && has(task, &moves) && has(task, &child));
    let shell_s = task(&place, "shell", |task| reports(task) >= seen + 20);
    for other in [&before["processes"][0], &after["processes"][0], &broker.into(), &moves, &child] {
        assert!(!has(&shell_s, other), "{other} is a member: {shell_s}");
    }
    let twice = ask(&place, &format!("attach {moves} --name again --period 20ms")).exits(1);
    assert!(twice.err.contains(&format!("process {moves} already belongs to task `moved`")), "{}", twice.err);
}

#[test]
fn a_child_goes_on_in_the_task_when_its_parent_has_ended_also_where_nothing_is_reserved() {
    let place = Place::new();
    let _broker = Broker::start(&place, "--scheduler none");
    let mut command = exec(&place, "--name family --period 20ms");
    let command = command.args(["sh", "-c", "sleep 1000 & echo $!; read end"]);
    let mut program = Program::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let child: u32 = Said::by(program.0.stdout.take().unwrap()).line().unwrap().trim().parse().unwrap();
    task(&place, "family", |task| task["processes"] == serde_json::json!([program.0.id(), child]));
    drop(program.0.stdin.take());
    program.0.wait().unwrap();
    let seen = reports(&task(&place, "family", |task| task["processes"] == serde_json::json!([child])));
    task(&place, "family", |task| reports(task) > seen + 2);
    kill(child, "-KILL");
    task(&place, "family", Value::is_null);
}

#[test]
fn a_program_comes_under_the_broker_is_reserved_for_changed_explained_and_goes() {
    let place = Place::new();
    let _broker = Broker::start(&place, "--audit audit.log --log reports.log");
    assert!(ask(&place, "broker list").exits(0).out.starts_with("no tasks: "));
    let mut program = spinner(&place, "--name a --period 33ms --importance 5");
    let a = task(&place, "a", |task| reports(task) >= 3);
    assert_eq!(a["processes"][0], program.0.id(), "it is the program");
    assert_eq!((&a["importance"], &a["period_ns"]), (&5.into(), &33_000_000.into()));
    assert!(a["consumed_ns"].as_u64() > Some(0) && a["requested"]["budget_ns"].as_u64() > Some(33_000), "{a}");

    ask(&place, "broker set a importance 9").exits(0);
    ask(&place, "broker set a weight 7").exits(0);
    ask(&place, "broker set a least 1us").exits(0);
    assert!(ask(&place, "broker set a least 34ms").exits(1).err.contains("34ms"));
    assert!(ask(&place, "broker set a least little").exits(2).err.contains("use a time, such as 2ms, or none"));
    ask(&place, "broker set a least none").exits(0);
    ask(&place, "broker set a period 50ms").exits(0);
    let changed = ask(&place, "broker show a --format json").exits(0).json();
    let changed = &changed["task"];
    assert_eq!((&changed["importance"], &changed["weight"]), (&9.into(), &7.into()));
    assert_eq!(changed["requested"]["period_ns"], 50_000_000);
    let seen = reports(changed);
    task(&place, "a", |task| reports(task) > seen + 2);

    let chain = ask(&place, "broker advocate add a max-decay --reports 3").exits(0);
    assert!(chain.out.ends_with("1  max-decay --reports 3\n"), "{}", chain.out);
    ask(&place, "broker advocate remove a 0").exits(0);
    let chain = ask(&place, "broker advocate set a max-decay --reports 4").exits(0);
    assert!(chain.out.contains("0  max-decay --reports 4\n"), "{}", chain.out);
    assert!(ask(&place, "broker advocate set a cap 40%").exits(1).err.contains("task `a` has no advocate `cap`"));
    ask(&place, "broker advocate add a log --every 2").exits(0);
    place.wait_for_growth("reports.log", 2);
    let line: Value = serde_json::from_str(place.read("reports.log").lines().next().unwrap()).unwrap();
    assert_eq!((&line["task"], &line["place"], &line["period_ns"]), (&"a".into(), &1.into(), &50_000_000.into()));
    let explained = ask(&place, "broker explain a").exits(0).out;
    assert!(explained.starts_with("a (task 1): ") && explained.contains("max-decay: "), "{explained}");

    // A spinner asks for more than a twentieth of a CPU.
    ask(&place, "broker policy set strict --cap 5%").exits(0);
    let cut = task(&place, "a", |task| task["reason"] != "");
    assert!(cut["reserved"]["budget_ns"].as_u64() <= Some(2_500_000), "{cut}");
    assert_eq!(ask(&place, "broker policy --format json").json()["broker"]["cap_millionths"], 50_000);

    let partition = place
        .command("broker --socket")
        .arg(place.path().join("run/broker.sock"))
        .args(["policy", "set", "partition(video 40% strict, rest 30% weighted)"])
        .status()
        .unwrap();
    assert!(partition.success());
    ask(&place, "broker set a group rest").exits(0);
    assert_eq!(task(&place, "a", |_| true)["group"], "rest");
    assert!(ask(&place, "broker set a group audio").exits(1).err.contains("use a group of the policy: video, rest"));

    program.0.kill().unwrap();
    program.0.wait().unwrap();
    task(&place, "a", Value::is_null);
    wait_for(|| place.read("audit.log").contains("its processes have ended")).expect("the log is written");
    let log = place.read("audit.log");
    let log: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let changes: Vec<_> = log.iter().map(|line| line["change"].as_str().unwrap()).collect();
    let wanted = ["join", "add-process", "importance", "weight", "least", "least", "least", "period"];
    assert_eq!(changes[..wanted.len()], wanted);
    assert_eq!(changes[wanted.len()..][..3], ["advocate-add", "advocate-remove", "advocate-set"]);
    assert_eq!(log.last().unwrap()["to"], "its processes have ended");
}

#[test]
fn exec_is_the_program_and_nothing_of_it_is_seen() {
    let place = Place::new();
    let _broker = Broker::start(&place, "");
    let run = |name: &str, script: &str| {
        let mut command = exec(&place, &format!("--name {name} --period 100ms"));
        let command = command.args(["sh", "-c", script]).stdin(Stdio::piped()).process_group(0);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let ended = run("status", "exit 7").wait_with_output().unwrap();
    assert_eq!((ended.status.code(), &ended.stderr[..]), (Some(7), &b""[..]));

    // Again under the same name: nobody has to wait for the end of a period, at which the broker sees who has ended.
    for _ in 0..3 {
        let ended = exec(&place, "--name again --period 3600s").args(["sh", "-c", "exit 7"]).output().unwrap();
        assert_eq!(ended.status.code(), Some(7), "{}", String::from_utf8_lossy(&ended.stderr));
    }

    // Its number is the one that was started, and it has no children of which it does not know.
    let child = run("number", "echo $$; ps -o pid= --ppid $$ | wc -l");
    let pid = child.id();
    let said = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let (number, children) = said.split_once('\n').unwrap();
    assert_eq!(number, pid.to_string());
    assert!(children.trim().parse::<u32>().unwrap() <= 2, "ps and wc themselves: {said}");

    let mut child = run("input", "cat");
    child.stdin.take().unwrap().write_all(b"to the program").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"to the program");

    let child = run("signal", "kill -TERM $$; sleep 100");
    assert_eq!(child.wait_with_output().unwrap().status.signal(), Some(15));

    // Output that the program has closed is at its end, though the program runs on.
    let mut child = Program(run("closed", "exec >&-; sleep 100"));
    let mut out = Vec::new();
    child.0.stdout.take().unwrap().read_to_end(&mut out).unwrap();
    assert!(child.0.try_wait().unwrap().is_none());
    drop(child);

    let mut lacking = exec(&place, "--period 100ms");
    assert_eq!(lacking.arg("./no-such-program").output().unwrap().status.code(), Some(127));
    place.write("no-program", "text");
    let mut lacking = exec(&place, "--period 100ms");
    assert_eq!(lacking.arg("./no-program").output().unwrap().status.code(), Some(126));
    task(&place, "no-program", Value::is_null);
}

#[test]
fn a_program_goes_on_when_its_broker_is_killed_and_that_is_said_once() {
    let place = Place::new();
    let mut broker = Broker::start(&place, "");
    let mut command = exec(&place, "--name steady --period 50ms");
    let child = command.args(["sh", "-c", "read line; exit 3"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut program = Program::start(child);
    task(&place, "steady", |task| reports(task) > 0);
    broker.ends("-KILL");
    let said = Said::by(program.0.stderr.take().unwrap());
    let line = said.line().unwrap();
    let pid = program.0.id();
    assert_eq!(line, format!("hyoshi: the broker has ended; steady (process {pid}) continues without a reservation"));
    assert!(program.0.try_wait().unwrap().is_none());
    drop(program.0.stdin.take());
    assert_eq!(program.0.wait().unwrap().code(), Some(3));
    assert_eq!(said.rest(), "", "once");

    let ended = exec(&place, "--period 50ms --anyway").args(["sh", "-c", "exit 4"]).output().unwrap();
    assert_eq!(ended.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("running without a reservation"));
    // The socket that it left behind is in nobody's way.
    let mut again = Broker::start(&place, "");
    assert_eq!(again.ends("-TERM").code(), Some(0));
    assert!(!place.has("run/broker.sock"));
}

#[test]
fn a_running_process_is_attached_with_the_children_it_has_and_detached_again() {
    let place = Place::new();
    let _broker = Broker::start(&place, "");
    let script = format!("sh -c '{SPIN}' & echo $!; wait");
    let mut parent = Program::start(Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()));
    let child = Said::by(parent.0.stdout.take().unwrap()).line().unwrap();
    let child: u32 = child.trim().parse().unwrap();
    ask(&place, &format!("attach {} --name family --period 20ms", parent.0.id())).exits(0);
    let family = task(&place, "family", |task| task["consumed_ns"].as_u64() > Some(0));
    let has = |pid: u32| family["processes"].as_array().unwrap().contains(&pid.into());
    assert!(has(parent.0.id()) && has(child), "{family}");
    ask(&place, "broker detach family").exits(0);
    task(&place, "family", Value::is_null);
    assert!(Path::new(&format!("/proc/{child}")).exists(), "it goes on");
}

/// What is refused, and in which words.
#[test]
fn refusals_say_what_is_wrong_and_what_to_do() {
    let place = Place::new();
    let mut said = String::new();
    let mut tell = |words: &str, code: i32| {
        let ended = ask(&place, words).exits(code);
        let text = format!("{}{}", ended.out, ended.err).replace(&place.path().display().to_string(), "PLACE");
        let _ = write!(said, "$ hyoshi {words}\n{text}\n");
    };
    tell("broker list", 2);
    tell("exec --period 33ms true", 125);
    let _broker = Broker::start(&place, "");
    let sleeper = Program::start(Command::new("sleep").arg("1000"));
    let pid = sleeper.0.id();
    ask(&place, &format!("attach {pid} --name sleeper --period 50ms")).exits(0);
    tell("broker", 2);
    tell("broker --cap 50% list", 2);
    tell("broker show sleepr", 1);
    tell("broker explain elsewhere", 1);
    tell("broker set sleeper importance many", 2);
    tell("broker set sleeper weight 0", 1);
    tell("broker set sleeper period 1us", 1);
    tell("broker policy set fairly", 1);
    tell("broker policy set --cap 0%", 2);
    tell("broker advocate add sleeper max-decai", 1);
    tell("broker advocate add sleeper max-decay --reports none", 1);
    tell("broker advocate add sleeper max-decay --reports", 1);
    tell("broker advocate remove sleeper 4", 1);
    tell("exec --period 1us true", 125);
    tell("exec --period 10ms --budget 20ms true", 125);
    tell("exec --name sleeper --period 10ms true", 125);
    tell("exec --name a/b --period 10ms true", 125);
    tell("attach 4194305 --period 10ms", 1);
    tell("attach 1 --period 10ms", 1);
    // The kernel's second process starts its threads; in a container it is not to be seen.
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd") {
        tell("attach 2 --period 10ms", 1);
    } else {
        said += "$ hyoshi attach 2 --period 10ms\nerror: 2 is kthreadd, a thread of the kernel: it schedules its own, and nothing is \
                 changed\nhelp: name the process of a program\n\n";
        eprintln!("not tested: threads of the kernel are not to be seen here");
    }
    let ended = ask(&place, &format!("attach {pid} --name twice --period 10ms")).exits(1);
    let _ = write!(said, "$ hyoshi attach PID --name twice --period 10ms\n{}", ended.err);
    let said = said.replace(&format!("process {pid}"), "process PID");
    assert_eq!(
        ask(&place, "broker list --format json").json()["tasks"].as_array().unwrap().len(),
        1,
        "nothing is left"
    );
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/broker.txt");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&golden, said).unwrap();
        return;
    }
    assert_eq!(said, fs::read_to_string(&golden).unwrap_or_default(), "BLESS=1 takes the new words");
}

/// The command as the user nobody; `None`, reported as a missing privilege, if setpriv cannot change the user.
pub fn as_nobody(place: &Place, words: &str) -> Option<Command> {
    let able = Command::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups", "true"]).output();
    if !able.as_ref().is_ok_and(|able| able.status.success()) {
        common::missing(format_args!("a change of the user by setpriv: {able:?}"));
        return None;
    }
    let own = place.path().join("hyoshi");
    if !own.exists() {
        fs::copy(env!("CARGO_BIN_EXE_hyoshi"), &own).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]);
    command.arg(own).args(words.split_whitespace()).current_dir(place.path()).stdin(Stdio::null());
    Some(command)
}

#[test]
fn everybody_has_a_say_over_tasks_of_their_own_and_no_other() {
    let place = Place::new();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(place.path(), open).unwrap();
    let etc = place.path().join("etc");
    fs::create_dir(&etc).unwrap();
    fs::write(etc.join("limits.toml"), "[user.65534]\nshare = \"50%\"\nimportance = 10\n").unwrap();
    let _broker = Broker::start(&place, "--audit audit.log --limits etc/limits.toml");
    let at = format!("--socket {}", place.path().join("run/broker.sock").display());
    let Some(mut first) = as_nobody(&place, &format!("broker list {at}")) else { return };
    assert!(first.output().unwrap().status.success(), "everybody sees");
    let sleeper = Program::start(Command::new("sleep").arg("1000"));
    ask(&place, &format!("attach {} --name roots --period 50ms", sleeper.0.id())).exits(0);

    let nobody = |words: &str, code: i32| {
        let output = as_nobody(&place, &format!("{words} {at}")).unwrap().output().unwrap();
        Ended::of(words, &output).exits(code).err
    };
    for words in ["broker set roots importance 2", "broker detach roots", "broker advocate remove roots 0"] {
        assert!(nobody(words, 1).contains("task `roots` belongs to user 0"), "{words}");
    }
    assert!(nobody("broker policy set strict", 1).contains("only operators may change the policy"));
    let attach = format!("attach {} --name mine --period 50ms", sleeper.0.id());
    assert!(nobody(&attach, 1).contains("belongs to user 0"));
    task(&place, "mine", Value::is_null);

    let run = format!("exec {at} --name mine --period 50ms --importance 10 -- sleep 1000");
    let _mine = Program::start(&mut as_nobody(&place, &run).unwrap());
    let mine = task(&place, "mine", |task| reports(task) > 0);
    assert_eq!(mine["user"], 65534);
    nobody("broker set mine weight 3", 0);
    assert!(nobody("broker set mine importance 11", 1).contains("importance 11 is above the limit 10"));
    ask(&place, "broker set mine importance 1000").exits(0);
    let refused = || place.read("audit.log").lines().filter(|line| line.contains("\"refused\"")).count();
    wait_for(|| place.read("audit.log").contains("\"to\":\"1000\"")).expect("the log is written");
    assert_eq!(refused(), 6);
}

#[test]
fn a_user_without_privileges_has_a_broker_of_their_own() {
    let place = Place::new();
    fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
    let Some(mut serve) = as_nobody(&place, "broker") else { return };
    let runtime = place.path().join("runtime");
    fs::create_dir(&runtime).unwrap();
    assert!(Command::new("chown").arg("65534:65534").arg(&runtime).status().unwrap().success());
    let lost = serve.env_remove("XDG_RUNTIME_DIR").output().unwrap();
    assert_eq!(lost.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&lost.stderr).contains("XDG_RUNTIME_DIR is not set"));
    let mut serve = as_nobody(&place, "broker").unwrap();
    serve.env("XDG_RUNTIME_DIR", &runtime).stderr(Stdio::piped());
    let mut broker = Broker::of(serve);
    let run = as_nobody(&place, "exec --name own --period 50ms --importance 100 -- sleep 1000");
    let _own = Program::start(run.unwrap().env("XDG_RUNTIME_DIR", &runtime));
    let listed = wait_for(|| {
        let mut list = as_nobody(&place, "broker list").unwrap();
        let out = list.env("XDG_RUNTIME_DIR", &runtime).output().unwrap().stdout;
        String::from_utf8_lossy(&out).contains("own")
    });
    assert!(listed.is_some());
    assert_eq!(broker.ends("-TERM").code(), Some(0));
}

/// Asks for twice as much, as long as it answers at all.
#[derive(Default)]
struct Twice {
    stalls: AtomicBool,
    granted: AtomicU32,
}

impl Advocate for Twice {
    fn advise(&self, _: &str, how: &Status, asked: &Reservation) -> Result<Reservation, SystemException> {
        assert!(how.cycles > 0 && asked.period == 50_000_000);
        if self.stalls.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(300));
        }
        Ok(Reservation { budget: (asked.budget * 2).min(asked.period), ..*asked })
    }

    fn granted(&self, task: &str, what: &Grant) -> Result<(), SystemException> {
        assert_eq!((task, what.reserved.period), ("a", 50_000_000));
        self.granted.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn describe(&self) -> Result<String, SystemException> {
        Ok("twice what was asked".to_owned())
    }
}

#[test]
fn an_advocate_in_another_process_is_asked_and_passed_over_when_it_stalls() {
    let place = Place::new();
    let _broker = Broker::start(&place, "");
    let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let twice = Arc::new(Twice::default());
    let object = orb.adapter("advocates").build().unwrap().activate::<dyn Advocate>(twice.clone()).unwrap();
    place.write("twice.ior", object.ior().to_string());
    // What sleeps consumes nothing: what is asked for it stays as it is.
    let mut command = exec(&place, "--name a --period 50ms");
    let _program = Program::start(command.args(["sleep", "1000"]));
    task(&place, "a", |task| reports(task) > 12);
    let before = ask(&place, "broker show a --format json").json()["task"]["requested"]["budget_ns"].as_u64().unwrap();
    let file = place.path().join("twice.ior");
    // A generous timeout: what is tested is that it is asked, on however busy a machine.
    ask(&place, &format!("broker advocate add a external --object file:{} --timeout 200ms", file.display())).exits(0);
    let doubled = task(&place, "a", |task| task["requested"]["budget_ns"].as_u64() == Some(before * 2));
    assert_eq!(doubled["advocates"].as_array().unwrap().len(), 2);
    let explained = ask(&place, "broker explain a").exits(0).out;
    assert!(explained.contains("external: ") && explained.contains("(twice what was asked)"), "{explained}");
    wait_for(|| twice.granted.load(Ordering::Relaxed) > 0).expect("what was granted travels back");

    twice.stalls.store(true, Ordering::Relaxed);
    task(&place, "a", |task| task["requested"]["budget_ns"].as_u64() == Some(before));
    let explained = ask(&place, "broker explain a").exits(0).out;
    assert!(explained.contains("bypassed: no answer within 200ms"), "{explained}");
    twice.stalls.store(false, Ordering::Relaxed);
    task(&place, "a", |task| task["requested"]["budget_ns"].as_u64() == Some(before * 2));

    // One that is gone is passed over as well, and reports go on.
    orb.shutdown();
    let seen = reports(&task(&place, "a", |task| task["requested"]["budget_ns"].as_u64() == Some(before)));
    task(&place, "a", |task| reports(task) > seen + 2);
}

/// Whether its first thread is at a real-time priority (field 40 of proc_pid_stat(5)).
fn raised(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_whitespace().nth(40 - 3).unwrap() != "0"
}

#[test]
fn a_program_is_raised_and_put_back_when_its_broker_ends_and_by_the_next_after_a_kill() {
    if !common::real_time() {
        return;
    }
    let (_above, place) = (Above::all(), Place::new());
    let program = Program::start(Command::new("sh").args(["-c", SPIN]));
    let pid = program.0.id();
    let attach = format!("attach {pid} --name a --period 100ms");
    for signal in ["-TERM", "-KILL"] {
        let mut broker = Broker::start(&place, "--scheduler window --forget");
        let mut command = place.command(&attach);
        command.args(["--advocate", "rate 30%", "--socket"]).arg(place.path().join("run/broker.sock"));
        assert!(command.status().unwrap().success());
        let held = task(&place, "a", |task| task["reserved"]["budget_ns"].as_u64() == Some(30_000_000));
        assert_eq!(held["reason"], "", "{held}");
        wait_for(|| raised(pid)).expect("it is raised in each period");
        broker.ends(signal);
        if signal == "-KILL" {
            Broker::start(&place, "--scheduler window").ends("-TERM");
        }
        assert!(!raised(pid), "put back after {signal}");
    }
}
