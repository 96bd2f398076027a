//! The state file after brokers that ended or were killed.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use hyoshi_os::process::{Process, boot_id};
use hyoshi_os::scheduling::{SchedulingClass, raise};

use super::*;

struct StateDir(PathBuf);

impl StateDir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hyoshi-touched-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        StateDir(path)
    }
}

impl Drop for StateDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Sleeper(Child);

impl Sleeper {
    fn start() -> (Self, SavedThread) {
        let child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().expect("coreutils' sleep");
        let process = Process::open(child.id()).unwrap().identity();
        let (scheduling, affinity) = (Scheduling::of(child.id()).unwrap(), Affinity::of(child.id()).unwrap());
        (Sleeper(child), SavedThread { process, thread: process, scheduling, affinity, window: None })
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that another test starts shares the lock until it executes its program.
fn reopen(place: &StateDir) -> (StateFile, RestoreReport) {
    for _ in 0..1000 {
        match StateFile::open(&place.0) {
            Err(StateError::Taken(_)) => std::thread::sleep(std::time::Duration::from_millis(5)),
            opened => return opened.unwrap(),
        }
    }
    panic!("a file that nobody has stays taken")
}

#[test]
fn a_thread_that_was_raised_is_put_back_by_the_next_start_and_others_are_left() {
    let place = StateDir::new("next");
    let ((_one, raised), (_two, own), (three, gone)) = (Sleeper::start(), Sleeper::start(), Sleeper::start());
    if let Err(refused) = raise(raised.thread.number, 30) {
        return println!("skipped, needs root or CAP_SYS_NICE: {refused}");
    }
    let (mut state_file, _) = StateFile::open(&place.0).unwrap();
    [raised, own, gone].into_iter().for_each(|before| state_file.thread(before).unwrap());
    Affinity::to([raised.affinity.cpus().next().unwrap()]).put(raised.thread.number).unwrap();
    // The second one has chosen its own priority since.
    Scheduling { class: SchedulingClass::RoundRobin(5), reset_on_fork: false }.restore(own.thread.number).unwrap();
    drop(three);
    drop(state_file);
    let (state_file, report) = reopen(&place);
    assert_eq!((report.threads, report.failed, state_file.threads()), (1, vec![], 0));
    assert_eq!(Scheduling::of(raised.thread.number).unwrap(), raised.scheduling);
    assert_eq!(Affinity::of(raised.thread.number).unwrap(), raised.affinity);
    assert_eq!(Scheduling::of(own.thread.number).unwrap().class, SchedulingClass::RoundRobin(5));
}

#[test]
fn one_broker_at_a_time_has_it_and_says_so() {
    let place = StateDir::new("two");
    let first = StateFile::open(&place.0).unwrap();
    let refused = StateFile::open(&place.0).unwrap_err();
    assert!(matches!(refused, StateError::Taken(_)) && refused.remedy().contains("end the other broker"));
    drop(first);
    reopen(&place);
}

#[test]
fn a_place_that_cannot_be_written_is_an_error_before_anything_is_changed() {
    let place = StateDir::new("file");
    fs::write(&place.0, "no directory").unwrap();
    let refused = StateFile::open(&place.0).unwrap_err();
    assert!(refused.to_string().contains("nothing is changed"), "{refused}");
    fs::remove_file(&place.0).unwrap();
}

#[test]
fn a_file_of_another_boot_or_cut_off_anywhere_is_read_without_harm() {
    let place = StateDir::new("cut");
    let (_sleeper, before) = Sleeper::start();
    let text = records::head() + &records::thread(&before);
    fs::create_dir_all(&place.0).unwrap();
    for length in 0..=text.len() {
        fs::write(place.0.join("touched"), &text[..length]).unwrap();
        let (_, report) = reopen(&place);
        assert_eq!(report.failed, Vec::<String>::new());
    }
    fs::write(place.0.join("touched"), text.replacen(&boot_id(), "another", 1)).unwrap();
    let (state_file, _) = reopen(&place);
    assert_eq!(state_file.threads(), 0);
}

#[test]
fn who_was_born_in_a_window_and_not_looked_at_may_run_where_its_kin_may() {
    let place = StateDir::new("born");
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "read go; sleep 1000 & echo $!; read go; taskset -c \"$0\" sleep 1000 & echo $!; read end; kill 0",
    ]);
    let everywhere = Affinity::of(std::process::id()).unwrap();
    let cpus: Vec<u32> = everywhere.cpus().collect();
    let [at, .., other] = cpus[..] else { return println!("skipped, needs two CPUs") };
    shell.arg(other.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    let mut shell = shell.spawn().unwrap();
    let process = Process::open(shell.id()).unwrap().identity();
    let scheduling = Scheduling::of(shell.id()).unwrap();
    let before = SavedThread { process, thread: process, scheduling, affinity: everywhere, window: Some(at) };
    let (mut input, output) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
    // A timeout, so that a silent shell does not block the test.
    let patience = std::time::Duration::from_secs(60);
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || BufReader::new(output).lines().try_for_each(|line| sender.send(line.unwrap())));
    let mut child = || {
        input.write_all(b"go\n").unwrap();
        lines.recv_timeout(patience).expect("the shell prints the process that it started").parse::<u32>().unwrap()
    };
    let (mut state_file, _) = StateFile::open(&place.0).unwrap();
    state_file.thread(before).unwrap();
    Affinity::to([at]).put(shell.id()).unwrap();
    let (born, bound) = (child(), child());
    let until = std::time::Instant::now() + patience;
    while Affinity::of(bound).unwrap() != Affinity::to([other]) {
        assert!(std::time::Instant::now() < until, "taskset does not bind it");
        std::thread::yield_now();
    }
    assert_eq!(Affinity::of(born).unwrap(), Affinity::to([at]));
    // The window had ended when the broker was killed: no thread is raised.
    everywhere.put(shell.id()).unwrap();
    drop(state_file);
    let (_, report) = reopen(&place);
    assert_eq!((report.threads, report.failed), (0, vec![]));
    assert_eq!(Affinity::of(born).unwrap(), everywhere);
    assert_eq!(Affinity::of(bound).unwrap(), Affinity::to([other]), "its own choice");
    drop(input);
    shell.wait().unwrap();
}

#[test]
fn a_long_life_does_not_make_a_long_file() {
    let place = StateDir::new("long");
    let (_sleeper, before) = Sleeper::start();
    let (mut state_file, _) = StateFile::open(&place.0).unwrap();
    for start in 0..20_000 {
        let thread = ProcessIdentity { number: 1, start };
        state_file.thread(SavedThread { thread, ..before }).unwrap();
        state_file.done(thread);
    }
    assert!(fs::metadata(place.0.join("touched")).unwrap().len() < 1 << 20);
}
