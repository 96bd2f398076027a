//! Attacks by an unprivileged user on a broker that runs as root: keeping a real-time priority, and making root read
//! or write files of the user's choice.

use std::os::unix::fs::{PermissionsExt, chown, symlink};

use hyoshi_os::scheduling::{Scheduling, SchedulingClass};

use super::refused::not_started;
use super::*;

const USER: u32 = 65534;
/// As [`SPIN`], of a user who may not signal the test.
const USER_SPIN: &str = "while [ -d /proc/$PPID ]; do :; done";

/// Whether the broker can run as root here, with another user as attacker; prints a note if not.
fn can_be_attacked(place: &Place) -> bool {
    if as_nobody(place, "").is_none() {
        return false;
    }
    if !common::real_time() {
        eprintln!("skipped: needs root");
        return false;
    }
    true
}

/// A program that a user without any right to real-time priorities begins.
fn users(place: &Place, words: &str, script: &str) -> Program {
    let nobody = as_nobody(place, words).unwrap();
    let mut command = Command::new("prlimit");
    command.args(["--rtprio=0:0", "--"]).arg(nobody.get_program()).args(nobody.get_args());
    command.args(["--", "sh", "-c", script]).current_dir(place.path()).stdin(Stdio::null());
    Program::start(&mut command)
}

fn scheduling(pid: u32) -> Scheduling {
    Scheduling::of(pid).unwrap()
}

/// A broker with windows, whose messages are kept.
fn windows(place: &Place, words: &str) -> Broker {
    let mut command = place.command(&format!("broker {words} --socket"));
    Broker::of(command.arg(place.path().join("run/broker.sock")).stderr(Stdio::piped()))
}

/// What a broker that is asked to end has said.
fn last_words(mut broker: Broker) -> String {
    broker.ends("-TERM");
    Said::by(broker.child.stderr.take().unwrap()).rest()
}

#[test]
fn a_raised_thread_that_lowers_its_own_priority_keeps_none() {
    let _alone = common::alone();
    let place = Place::new();
    if !can_be_attacked(&place) {
        return;
    }
    fs::create_dir(place.path().join("theirs")).unwrap();
    chown(place.path().join("theirs"), Some(USER), Some(USER)).unwrap();
    let _above = Above::all();
    for (number, way) in ["window's end", "detach", "-TERM", "-KILL"].into_iter().enumerate() {
        let mut broker = windows(&place, "--scheduler window");
        let at = format!("--socket {}", place.path().join("run/broker.sock").display());
        // Only a raised thread may: chrt, of the same user, fails until then.
        let lowered = format!("theirs/lowered-{number}");
        let script = format!(
            "until chrt -R -f -p 19 $$ 2>/dev/null; do [ -d /proc/$PPID ] || exit; done; : >{lowered}; \
             while [ -e {lowered} ]; do [ -d /proc/$PPID ] || exit; done; sleep 1000"
        );
        let words = format!("exec {at} --name sly{number} --period 100ms --advocate");
        // As arguments of `exec` have it: one of them has a space in it.
        let nobody = as_nobody(&place, &words).unwrap();
        let mut command = Command::new("prlimit");
        command.args(["--rtprio=0:0", "--"]).arg(nobody.get_program()).args(nobody.get_args()).arg("rate 50%");
        let program = Program::start(command.args(["--", "sh", "-c", &script]).current_dir(place.path()));
        let pid = program.0.id();
        wait_for(|| place.has(&lowered)).expect("it lowers its own priority while it is raised");
        let ordinary = || scheduling(pid).is_fair();
        match way {
            // It goes on using its budget up.
            "window's end" => wait_for(ordinary).expect("it is lowered when its window ends"),
            "detach" => {
                ask(&place, &format!("broker detach sly{number}")).exits(0);
                assert!(ordinary(), "{way}: {:?}", scheduling(pid));
            }
            "-TERM" => {
                broker.ends("-TERM");
                assert!(ordinary(), "{way}: {:?}", scheduling(pid));
            }
            _ => {
                broker.ends("-KILL");
                let _next = Broker::start(&place, "--scheduler none");
                assert!(ordinary(), "{way}: {:?}", scheduling(pid));
            }
        }
    }
}

#[test]
fn damage_to_the_state_file_is_reported_and_leaves_no_thread_raised() {
    let _alone = common::alone();
    let place = Place::new();
    if !can_be_attacked(&place) {
        return;
    }
    let mut broker = windows(&place, "--scheduler window --cap 150%");
    let at = format!("--socket {}", place.path().join("run/broker.sock").display());
    let program = users(&place, &format!("exec {at} --name a --period 100ms"), USER_SPIN);
    let pid = program.0.id();
    let is_raised = || matches!(scheduling(pid).class, SchedulingClass::Fifo(20..=39));
    let _above = Above::all();
    // What was noted of it once a second has its process.
    task(&place, "a", |task| reports(task) > 12);
    let mut left = false;
    for _ in 0..20 {
        wait_for(is_raised).expect("its window opens");
        // At once: the program kill(1) would be late on a busy machine.
        broker.child.kill().unwrap();
        broker.child.wait().unwrap();
        left = is_raised();
        if left {
            break;
        }
        broker = windows(&place, "--scheduler window --cap 150%");
        task(&place, "a", |task| reports(task) > 2);
    }
    assert!(left, "it is raised when the broker is killed");
    let whole = place.read("run/state/touched");
    let (head, lines) = whole.split_once('\n').unwrap();
    assert!(lines.contains(&format!(" {pid} ")), "{lines}");
    let garbage: String = lines.chars().map(|c| if c == '\n' { c } else { '#' }).collect();
    place.write("run/state/touched", format!("{head}\n{garbage}"));
    let broker = windows(&place, "--scheduler none");
    assert!(scheduling(pid).is_fair(), "{:?}", scheduling(pid));
    let said = last_words(broker);
    let count = garbage.lines().count();
    assert!(said.contains(&format!("{count} lines of ")) && said.contains("touched.damaged"), "{said}");
    assert_eq!(place.read("run/state/touched.damaged"), format!("{head}\n{garbage}"));
}

/// The error of root's broker for an unsafe place; it changes nothing, not even root's files.
fn refuses(place: &Place, words: &str, socket: &str) -> String {
    let mut command = place.command(&format!("broker --scheduler none {words} --socket"));
    command.arg(place.path().join(socket));
    let said = not_started(command);
    assert!(!place.has(socket), "{said}");
    said
}

fn theirs(place: &Place, name: &str) -> PathBuf {
    let path = place.path().join(name);
    fs::create_dir_all(&path).unwrap();
    chown(&path, Some(USER), Some(USER)).unwrap();
    path
}

#[test]
fn a_directory_that_others_write_to_is_no_place_for_a_broker_whoever_prepared_it() {
    let place = Place::new();
    if !can_be_attacked(&place) {
        return;
    }
    // Files as a broker leaves them, with a program of root's in a task.
    let mut broker = Broker::start(&place, "");
    let sleeper = Program::start(Command::new("sleep").arg("1000"));
    ask(&place, &format!("attach {} --name forged --period 50ms", sleeper.0.id())).exits(0);
    task(&place, "forged", |task| reports(task) > 0);
    broker.ends("-KILL");

    // Sticky, as /tmp is: before the broker, the user creates the state directory with forged files and a link over
    // which the broker would write.
    let open = place.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
    let state = theirs(&place, "open/state");
    for name in ["tasks", "touched"] {
        fs::copy(place.path().join("run/state").join(name), state.join(name)).unwrap();
        chown(state.join(name), Some(USER), Some(USER)).unwrap();
    }
    place.write("roots", "of root's");
    symlink(place.path().join("roots"), state.join("tasks.new")).unwrap();
    let said = refuses(&place, "", "open/broker.sock");
    assert!(said.contains("open belongs to user 0 and has mode 1777") && said.contains("chmod go-w"), "{said}");
    assert_eq!(place.read("roots"), "of root's");

    // The same directory, by name; and one below it, of the user's; and through a link of theirs.
    let said = refuses(&place, &format!("--state {}", state.display()), "other/broker.sock");
    assert!(said.contains("state belongs to user 65534"), "{said}");
    assert_eq!(place.read("roots"), "of root's");
    let said = refuses(&place, "", "open/state/deeper/broker.sock");
    assert!(said.contains("state belongs to user 65534") && !place.has("open/state/deeper"), "{said}");
    let link = open.join("link");
    fs::create_dir(place.path().join("linked")).unwrap();
    symlink(place.path().join("linked"), &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(USER), Some(USER)).unwrap();
    let said = refuses(&place, "", "open/link/broker.sock");
    assert!(said.contains("link belongs to user 65534"), "{said}");

    // An ancestor that others may write to, without the sticky bit: they can replace its entries.
    fs::create_dir_all(place.path().join("loose/run")).unwrap();
    fs::set_permissions(place.path().join("loose"), fs::Permissions::from_mode(0o777)).unwrap();
    let said = refuses(&place, "", "loose/run/broker.sock");
    assert!(said.contains("loose belongs to user 0 and has mode 777"), "{said}");

    // The broker used none of these files; where only root writes, it uses all of them.
    let _broker = Broker::start(&place, "");
    task(&place, "forged", |task| task["processes"][0] == sleeper.0.id());
}

#[test]
fn what_the_broker_appends_to_and_reads_is_where_no_one_else_writes() {
    let place = Place::new();
    if !can_be_attacked(&place) {
        return;
    }
    theirs(&place, "theirs");
    place.write("roots", "of root's");
    symlink(place.path().join("roots"), place.path().join("theirs/link")).unwrap();
    symlink(place.path().join("roots"), place.path().join("link")).unwrap();
    for flag in ["--audit", "--log"] {
        let said = refuses(&place, &format!("{flag} theirs/link"), "run/broker.sock");
        assert!(said.contains("theirs belongs to user 65534"), "{said}");
        let said = refuses(&place, &format!("{flag} link"), "run/broker.sock");
        assert!(said.contains("link is a symbolic link"), "{said}");
        let said = refuses(&place, &format!("{flag} theirs/new"), "run/broker.sock");
        assert!(said.contains("theirs belongs to user 65534") && !place.has("theirs/new"), "{said}");
    }
    assert_eq!(place.read("roots"), "of root's");
    // A user who can write the list of authorities decides who may change all tasks.
    place.write("theirs/ca.pem", "");
    place.write("own.pem", "");
    for (clients, own) in [("theirs/ca.pem", "own.pem"), ("own.pem", "theirs/ca.pem")] {
        let words = format!("--listen ssliop://127.0.0.1:0 --tls-clients {clients} --tls-cert {own}");
        let said = refuses(&place, &words, "run/broker.sock");
        assert!(said.contains("ca.pem: ") && said.contains("theirs belongs to user 65534"), "{said}");
    }
}

#[test]
fn a_roster_that_gives_a_user_a_program_of_roots_is_not_believed() {
    let place = Place::new();
    if !can_be_attacked(&place) {
        return;
    }
    let mut broker = Broker::start(&place, "");
    let at = format!("--socket {}", place.path().join("run/broker.sock").display());
    let _users = users(&place, &format!("exec {at} --name theirs --period 50ms"), "sleep 1000");
    task(&place, "theirs", |task| reports(task) > 0);
    broker.ends("-KILL");
    let sleeper = Program::start(Command::new("sleep").arg("1000"));
    let roots = hyoshi_os::process::Process::open(sleeper.0.id()).unwrap().identity();
    let tasks = place.read("run/state/tasks");
    let line = tasks.lines().rfind(|line| line.starts_with("task ")).unwrap();
    let (begin, _) = line.split_once("\"processes\":").unwrap();
    let forged = format!("{tasks}{begin}\"processes\":[[{},{}]]}}\n", roots.number, roots.start);
    place.write("run/state/tasks", forged);
    let _broker = Broker::start(&place, "");
    task(&place, "theirs", Value::is_null);
}
