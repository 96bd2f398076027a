//! Programs under a broker and a run of critical work, beside hostile users of every kind, for `SOAK_SECONDS` (3600).
//! Needs root.
//!
//!     SOAK_SECONDS=60 cargo test -p hyoshi --test suite hostile_users:: -- --ignored --nocapture

use crate::common;
#[path = "hostile_users/roles.rs"]
mod roles;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::broker::{Broker, Program, as_user, comes_down, cpu_time, descriptors, groups};
use common::{Ended, Place, example};
use hyoshi::{DispatchDecision, TraceEvent};
use hyoshi_broker::client::BrokerClient;
use hyoshi_model::Span;
use hyoshi_os::cgroup::CpuGroup;
use hyoshi_os::process::Process;
use hyoshi_os::scheduling::{Affinity, Scheduling};
use hyoshi_trace::{CpuEvent, JobOutcome, RecordingReader};
use serde_json::Value;

/// With as much as group `hyoshi` has; it needs no name here.
const GROUP: u32 = 61_100;
const LIMITS: &str = "[group.61100]\nshare = \"50%\"\nimportance = 10\ntasks = 64\n";

/// Each kind, as a user of its own; whether in the group; how many.
const HOSTILE: [(&str, u32, bool, u32); 9] = [
    ("lowers", 61_101, true, 1),
    ("tasks", 61_102, true, 1),
    ("threads", 61_103, false, 1),
    ("spin", 61_104, true, 2),
    ("requests", 61_105, false, 2),
    ("connections", 61_106, false, 1),
    ("settings", 61_107, true, 1),
    ("links", 61_108, false, 1),
    ("setuid", 61_109, false, 1),
];
const USERS: std::ops::RangeInclusive<u32> = 61_101..=61_109;

/// Periods and work, in microseconds; five programs of each. They are root's, and more important than users may ask for.
const PROGRAMS: [(u32, u32); 4] = [(20_000, 300), (33_000, 500), (50_000, 1_000), (100_000, 2_000)];

fn seconds() -> u64 {
    std::env::var("SOAK_SECONDS").map_or(3_600, |text| text.parse().expect("SOAK_SECONDS is a number"))
}

/// A place where users can run the programs, with a folder that everybody may write to, and what root alone owns.
fn place() -> Place {
    let place = Place::new();
    let mode = |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    mode(place.path(), 0o755);
    fs::copy(env!("CARGO_BIN_EXE_hyoshi"), place.path().join("hyoshi")).unwrap();
    fs::copy(std::env::current_exe().unwrap(), place.path().join("test")).unwrap();
    fs::copy("/bin/sleep", place.path().join("guard")).unwrap();
    mode(&place.path().join("guard"), 0o4755);
    fs::create_dir(place.path().join("open")).unwrap();
    mode(&place.path().join("open"), 0o1777);
    place.write("roots", "of root's");
    place.write("limits.toml", LIMITS);
    place
}

fn socket(place: &Place) -> PathBuf {
    place.path().join("run/broker.sock")
}

/// What it prints on standard error goes to a file.
fn broker(place: &Place) -> Broker {
    let mut command = place.command("broker --scheduler window --limits limits.toml --audit audit.log --socket");
    let said = fs::File::options().create(true).append(true).open(place.path().join("said")).unwrap();
    Broker::of(command.arg(socket(place)).stderr(said))
}

/// One of the roles, or a shell that starts setuid programs. What it prints goes into a file.
fn hostile(place: &Place, role: &str, user: u32, grouped: bool, number: u32) -> Program {
    let group = grouped.then_some(GROUP);
    let mut command = if role == "setuid" {
        let at = socket(place);
        let words = format!("exec --socket {} --name guard --period 50ms --budget 10ms -- ./guard 2", at.display());
        let mut command = as_user(place, user, group, "/bin/sh");
        command.args(["-c", &format!("while [ -d /proc/$PPID ]; do ./hyoshi {words} || sleep 0.2; done")]);
        command
    } else {
        let mut command = as_user(place, user, group, "test");
        let at = if role == "links" { place.path().join("open") } else { socket(place) };
        command.args(["--exact", "hostile_users::roles::role", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env("HYOSHI_ROLE", format!("{role}:{}", at.display()));
        command
    };
    let said = |what: &str| fs::File::create(place.path().join(format!("{role}-{number}.{what}"))).unwrap();
    Program::start(command.stdout(said("out")).stderr(said("err")))
}

/// What a role did and was refused.
fn did(place: &Place, role: &str, number: u32) -> (u64, u64) {
    let text = place.read(&format!("{role}-{number}.out"));
    let last = text
        .lines()
        .rev()
        .find_map(|line| line.split_once("did "))
        .unwrap_or_else(|| panic!("{role} did nothing: {}", place.read(&format!("{role}-{number}.err"))))
        .1;
    let (done, refused) = last.split_once(' ').unwrap();
    (done.parse().unwrap(), refused.parse().unwrap())
}

/// Critical jobs of a run, and a line for each that missed: explained by the host, or not.
#[derive(Default)]
struct Critical {
    jobs: u64,
    explained: Vec<String>,
    unexplained: Vec<String>,
}

impl Critical {
    /// A miss is the host's if the host took the CPU for at least as long, as the recording says, within 100 ms (a tick of
    /// the kernel's account is 10 ms, and jobs before it may have been hit).
    fn count(&mut self, recording: &Path) {
        let near = Span::from_millis(100);
        let reader = RecordingReader::new(fs::File::open(recording).unwrap()).unwrap();
        let (mut missed, mut stolen) = (Vec::new(), Vec::new());
        for entry in reader {
            let entry = entry.unwrap();
            match entry.event {
                TraceEvent::Decision(DispatchDecision::End(end)) if end.critical => {
                    self.jobs += 1;
                    if end.outcome != JobOutcome::Made {
                        missed.push(end);
                    }
                }
                TraceEvent::Cpu(CpuEvent::Stolen { span }) => stolen.push((entry.now, span)),
                _ => {}
            }
        }
        for end in missed {
            let late = end.end.since(end.deadline);
            let at = |now| end.release <= now + near && now <= end.end + near;
            let taken: Span = stolen.iter().filter(|(now, _)| at(*now)).map(|(_, span)| *span).sum();
            let line = format!("{:?} {late} late, the host took {taken}", end.job);
            if taken >= late && !taken.is_zero() { &mut self.explained } else { &mut self.unexplained }.push(line);
        }
    }
}

/// Runs the flight program once. Of a recording with unexplained misses, what `hyoshi why` answers is printed.
fn flight(place: &Place, seconds: u64, critical: &mut Critical) {
    let (example, at) = (example("flight-program.toml"), socket(place));
    let words =
        format!("run {example} --duration {seconds}s --no-report --record flight.hyo --socket {}", at.display());
    let output = place.command(&words).output().unwrap();
    let ended = Ended::of(&words, &output);
    assert!(ended.code <= 1, "{}", ended.err);
    let before = critical.unexplained.len();
    critical.count(&place.path().join("flight.hyo"));
    if critical.unexplained.len() > before {
        println!("{}\n{}", ended.out, place.hyoshi("why flight.hyo").out);
        // The test fails, so its place is kept.
        fs::rename(place.path().join("flight.hyo"), place.path().join("missed.hyo")).unwrap();
        println!("the recording is {}", place.path().join("missed.hyo").display());
    } else {
        fs::remove_file(place.path().join("flight.hyo")).unwrap();
    }
}

/// Root's attempt to serve in the folder that users prepare must be refused.
fn folder_is_refused(place: &Place) {
    let at = place.path().join("open/broker.sock");
    let refused = place.hyoshi(&format!("broker --scheduler none --socket {}", at.display())).exits(2).err;
    assert!(refused.contains("mode 1777") || refused.contains("belongs to user"), "{refused}");
    assert!(!place.has("open/broker.sock"));
    assert_eq!(place.read("roots"), "of root's");
}

/// The processes of the hostile users that have not ended.
fn processes() -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let theirs = all.filter(|entry| entry.metadata().is_ok_and(|found| USERS.contains(&found.uid())));
    let numbers = theirs.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|pid| Process::open(*pid).is_ok_and(|process| !process.has_ended())).collect()
}

/// Threads and processes of the hostile users that a broker has left changed.
fn left_changed() -> Vec<String> {
    let everywhere = Affinity::of(hyoshi_os::own_thread()).unwrap();
    let mut left = Vec::new();
    for pid in processes() {
        let mut threads = Vec::new();
        let Ok(process) = Process::open(pid) else { continue };
        process.threads(&mut threads);
        for tid in threads {
            let Ok(found) = Scheduling::of(tid) else { continue };
            if !found.is_fair() || Affinity::of(tid).is_ok_and(|bound| bound != everywhere) {
                left.push(format!("thread {tid} of {} ({pid}): {found:?}", process.name()));
            }
        }
        let group = CpuGroup::of_process(pid);
        if group != CpuGroup::of_this_process() && !process.has_ended() {
            left.push(format!("{} ({pid}) in {group:?}", process.name()));
        }
    }
    left
}

/// Names of what a broker leaves in its folders.
fn files(place: &Place) -> Vec<String> {
    let of = |folder: &str| {
        let all = fs::read_dir(place.path().join(folder)).into_iter().flatten();
        all.map(|entry| format!("{folder}/{}", entry.unwrap().file_name().display())).collect::<Vec<_>>()
    };
    let mut names = [of("run"), of("run/state")].concat();
    names.sort();
    names
}

/// Periods of all programs, and those that had their time.
fn periods(programs: Vec<Program>) -> (u64, u64) {
    let mut sum = (0, 0);
    for mut program in programs {
        let mut out = String::new();
        std::io::Read::read_to_string(&mut program.0.stdout.take().unwrap(), &mut out).unwrap();
        assert!(program.0.wait().unwrap().success(), "{out}");
        let last: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
        let number = |name: &str| last["total"][name].as_u64().unwrap();
        sum = (sum.0 + number("met"), sum.1 + number("periods"));
    }
    sum
}

/// Changes of the audit log that were refused, with those that were only counted.
fn refused(place: &Place) -> u64 {
    let log = place.read("audit.log");
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.map(|line| u64::from(line["refused"].is_string()) + line["dropped"].as_u64().unwrap_or(0)).sum()
}

#[test]
fn threads_that_lower_their_own_priority_without_pause_keep_none() {
    if !common::real_time() || hyoshi_os::Credentials::own().uid != 0 {
        return common::missing("root and real-time priorities");
    }
    let _alone = common::alone();
    let place = place();
    let _broker = broker(&place);
    let _hostile = hostile(&place, "lowers", 61_101, true, 0);
    let lines = || place.read("lowers-0.out").lines().filter(|line| line.contains("did ")).count();
    // Some three tasks.
    assert!(common::broker::wait_for(|| lines() > 10).is_some());
    let (lowered, kept) = did(&place, "lowers", 0);
    assert!(lowered > 0 && kept == 0, "lowered {lowered} times, {kept} threads kept a priority");
}

#[test]
#[ignore = "takes an hour, or SOAK_SECONDS, and the machine alone"]
fn programs_and_a_run_beside_hostile_users_lose_nothing_and_nothing_is_left() {
    if !common::real_time() || hyoshi_os::Credentials::own().uid != 0 {
        return common::missing("root and real-time priorities");
    }
    let _alone = common::alone();
    let place = place();
    // What a broker without tasks leaves.
    let mut first = broker(&place);
    let idle = descriptors(first.child.id()).len();
    assert_eq!(first.ends("-TERM").code(), Some(0));
    let bare = files(&place);

    let mut broker_one = broker(&place);
    let (began, length) = (Instant::now(), Duration::from_secs(seconds()));
    let programs = (0..20usize).map(|number| {
        let (period, work) = PROGRAMS[number % 4];
        let exec = format!("exec --name program-{number} --period {period}us --importance 11 --socket");
        let glass = format!("hourglass --period {period}us --work {work}us --for {}s --format json", length.as_secs());
        let mut command = place.command(&exec);
        command.arg(socket(&place)).arg("--").arg(env!("CARGO_BIN_EXE_hyoshi")).args(glass.split_whitespace());
        Program::start(command.stdout(Stdio::piped()))
    });
    let programs: Vec<Program> = programs.collect();
    let each = HOSTILE.iter().flat_map(|kind| (0..kind.3).map(move |number| (kind, number)));
    let hostiles: Vec<Program> =
        each.clone().map(|(kind, number)| hostile(&place, kind.0, kind.1, kind.2, number)).collect();

    let mut critical = Critical::default();
    let mut runs = 0;
    while runs == 0 || began.elapsed() + Duration::from_secs(10) < length {
        let left = length.saturating_sub(began.elapsed()).as_secs();
        flight(&place, left.clamp(5, 48), &mut critical);
        folder_is_refused(&place);
        runs += 1;
        if runs % 10 == 0 {
            println!("{runs} runs: {} critical jobs, {:?}", critical.jobs, critical.explained.last());
        }
    }
    let (met, all) = periods(programs);
    let (cpu, took) = (cpu_time(broker_one.child.id()), began.elapsed());

    // The broker ends in order while they go on, and the next one is killed with its tasks; the third one puts things back.
    assert_eq!(broker_one.ends("-TERM").code(), Some(0));
    assert_eq!(left_changed(), [""; 0], "after SIGTERM");
    let mut killed = broker(&place);
    let client = BrokerClient::connect(Some(&socket(&place))).unwrap();
    let came = common::broker::wait_for(|| client.tasks().is_ok_and(|tasks| tasks.len() > 20));
    assert!(came.is_some(), "hostile users come back");
    drop(client);
    killed.ends("-KILL");
    let mut last = broker(&place);
    let client = BrokerClient::connect(Some(&socket(&place))).unwrap();
    let results: Vec<_> = each.map(|(kind, number)| (kind.0, number)).collect();
    drop(hostiles);
    let tasks = comes_down(0, || client.tasks().unwrap().into_iter().map(|task| task.name).collect());
    assert_eq!(tasks, [""; 0]);
    drop(client);
    let open = comes_down(idle, || descriptors(last.child.id()));
    assert!(open.len() <= idle, "{} descriptors, {idle} at the beginning: {open:?}", open.len());
    assert_eq!(last.ends("-TERM").code(), Some(0));
    assert_eq!(comes_down(0, processes), [0; 0]);
    let left: Vec<_> = [&broker_one, &killed, &last].into_iter().flat_map(|broker| groups(broker.child.id())).collect();
    assert_eq!(left, [""; 0]);
    assert_eq!(files(&place), bare);
    assert_eq!(place.read("roots"), "of root's");
    assert!(!place.read("said").contains("panicked"), "{}", place.read("said"));

    println!("{took:.0?}, {runs} runs of the flight program");
    println!(
        "critical jobs: {}, missed with proven theft by the host: {}, missed without: {}",
        critical.jobs,
        critical.explained.len(),
        critical.unexplained.len()
    );
    println!("20 programs: {met} of {all} periods served");
    println!("the broker: {:.2} % of a CPU", 100.0 * cpu.as_secs_f64() / took.as_secs_f64());
    println!("changes refused: {}", refused(&place));
    for (role, number) in results.into_iter().filter(|(role, _)| *role != "setuid") {
        let (done, refused) = did(&place, role, number);
        println!("{role}: {done} done, {refused} refused");
        // Of the threads that lower themselves, that is those which kept a priority.
        assert!(done > 0 && (role != "lowers" || refused == 0), "{role}");
    }
    println!("left behind: no raised thread, control group, task, file or process");
    assert!(critical.unexplained.is_empty(), "{}", critical.unexplained.join("\n"));
    // Without the broker's help they have almost nothing beside the spinners; how much they are served is printed.
    assert!(met * 10 >= all * 9, "{met} of {all}");
}
