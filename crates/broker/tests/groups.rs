//! Control groups as floor and cap, on this machine's version. The tests need root and otherwise print that they are
//! skipped. `.ci/v2` runs them on a kernel with version 2.

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hyoshi_broker::machine::{Machine, MachineError};
use hyoshi_broker::platform::Platform as _;
use hyoshi_broker::state_file::StateFile;
use hyoshi_control::TaskId;
use hyoshi_model::{Instant, Reservation, Span};
use hyoshi_os::cgroup::own::move_to;
use hyoshi_os::cgroup::{CgroupVersion, CpuGroup};
use hyoshi_os::process::Process;
use hyoshi_os::scheduling::{Affinity, Scheduling, SchedulingClass};
use hyoshi_os::{Clock, MonotonicClock};

use common::said::Said;
use common::{Above, Place, Program};

const ONE: TaskId = TaskId(1);
const OTHER: TaskId = TaskId(2);
/// The tests compare shares of the CPU: one at a time.
static ALONE: Mutex<()> = Mutex::new(());
/// A user without a login.
const USER: u32 = 1000;

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn millis(budget: u64, period: u64) -> Reservation {
    Reservation::new(Span::from_millis(budget), Span::from_millis(period)).unwrap()
}

fn machine(place: &Place, way: &str, floor: bool) -> Option<Machine> {
    match Machine::with_floor(&place.0, Some(way), floor) {
        Ok((machine, _)) => Some(machine),
        Err(error) => {
            println!("skipped, needs root and a CPU controller: {error}");
            None
        }
    }
}

/// Starts programs on the first CPU, where they compete with each other.
fn on_one_cpu<T>(start: impl FnOnce() -> T) -> T {
    let own = hyoshi_os::own_thread();
    let everywhere = Affinity::of(own).unwrap();
    Affinity::to([everywhere.cpus().next().unwrap()]).put(own).unwrap();
    let started = start();
    everywhere.put(own).unwrap();
    started
}

/// Does due work for a while; returns each task's share of one CPU.
fn drive<const N: usize>(machine: &mut Machine, clock: &MonotonicClock, so_long: Span, tasks: [TaskId; N]) -> [f64; N] {
    let Driven { had, took, .. } = driven(machine, clock, so_long, tasks);
    had.map(|had| had.as_secs_f64() / took.as_secs_f64())
}

struct Driven<const N: usize> {
    had: [Span; N],
    took: Span,
    /// The longest delay from due work to its end: a window may have closed that much late.
    latest: Span,
}

fn driven<const N: usize>(
    machine: &mut Machine,
    clock: &MonotonicClock,
    so_long: Span,
    tasks: [TaskId; N],
) -> Driven<N> {
    let began = clock.now();
    let before = tasks.map(|task| machine.consumed(task).unwrap());
    let (mut late, mut ticks) = (Vec::new(), Vec::new());
    while clock.now() < began + so_long {
        let now = clock.now();
        let next = machine.tick(now).min(began + so_long);
        ticks.push(clock.now().since(now));
        let next = next.max(clock.now());
        clock.sleep_until(next);
        late.push(clock.now().since(next));
    }
    // Excess of windows that the machine causes, not their law.
    let printed = |spans: &[Span]| {
        let (sum, most) = (spans.iter().copied().sum::<Span>(), spans.iter().max().copied().unwrap_or_default());
        format!("{} us on average, {most} at most", sum.as_nanos() / 1_000 / spans.len() as u64)
    };
    println!("driven {} times, {}; woken late by {}", ticks.len(), printed(&ticks), printed(&late));
    let took = clock.now().since(began);
    let after = tasks.map(|task| machine.consumed(task).unwrap());
    // A late wake-up and the duration of its work delay the next work.
    let latest = late.iter().zip(ticks.iter().skip(1)).map(|(late, tick)| *late + *tick).max().unwrap_or_default();
    let latest = latest.max(late.iter().max().copied().unwrap_or_default());
    Driven { had: std::array::from_fn(|at| after[at].saturating_sub(before[at])), took, latest }
}

fn all_fair(process: &Process) -> bool {
    let mut threads = Vec::new();
    process.threads(&mut threads);
    let class = |tid: &u32| Scheduling::of(*tid).map(|scheduling| scheduling.class);
    threads.iter().all(|tid| class(tid).is_ok_and(|class| matches!(class, SchedulingClass::Fair(_))))
}

/// Control groups that brokers of this process have left.
fn left(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(&format!("hyoshi-{}-", std::process::id()))).collect()
}

fn group_of(pid: u32) -> PathBuf {
    CpuGroup::of_process(pid).folder
}

#[test]
fn three_times_the_weight_gets_about_three_times_the_cpu_and_all_are_back_afterwards() {
    let _alone = alone();
    let place = Place::new("three");
    let Some(mut machine) = machine(&place, "weights", false) else { return };
    let (one, other) = on_one_cpu(|| (Program::spinning(1), Program::spinning(1)));
    let home = group_of(one.0.id());
    let (_above, clock) = (Above::all(), MonotonicClock::start());
    for (task, program, budget) in [(ONE, &one, 30), (OTHER, &other, 10)] {
        machine.add(task, program.process()).unwrap();
        machine.reserve(task, millis(budget, 100), clock.now()).unwrap();
    }
    let [more, less] = drive(&mut machine, &clock, Span::from_millis(1_500), [ONE, OTHER]);
    println!("of one CPU: {more:.3} and {less:.3}");
    assert!((1.8..5.0).contains(&(more / less)), "{more} and {less}");
    machine.end();
    assert_eq!([&one, &other].map(|program| group_of(program.0.id())), [home.clone(), home]);
}

#[test]
fn a_hard_task_has_no_more_than_its_reservation_of_an_idle_cpu_until_it_is_soft_again() {
    let _alone = alone();
    let place = Place::new("hard");
    let Some(mut machine) = machine(&place, "weights", false) else { return };
    let program = on_one_cpu(|| Program::spinning(2));
    let (_above, clock) = (Above::all(), MonotonicClock::start());
    machine.harden(ONE, true).unwrap();
    machine.add(ONE, program.process()).unwrap();
    machine.reserve(ONE, millis(20, 100), clock.now()).unwrap();
    let printed = machine.enforcement(ONE).unwrap();
    assert!(printed.starts_with("weighs as much as 20 ordinary programs, capped at 20ms of 100ms, in "), "{printed}");
    let [hard] = drive(&mut machine, &clock, Span::from_secs(1), [ONE]);
    // Without a grant nearly nothing is left.
    machine.release(ONE);
    let [nothing] = drive(&mut machine, &clock, Span::from_secs(1), [ONE]);
    machine.harden(ONE, false).unwrap();
    machine.reserve(ONE, millis(20, 100), clock.now()).unwrap();
    let [soft] = drive(&mut machine, &clock, Span::from_secs(1), [ONE]);
    println!("of one CPU: {hard:.3}, {nothing:.3}, {soft:.3}");
    assert!((0.1..0.28).contains(&hard), "{hard}");
    assert!(nothing < 0.05, "{nothing}");
    assert!(soft > hard * 1.5, "{soft} after {hard}");
}

/// A group of version 1 with a cap, removed at the end.
struct Capped(PathBuf);

impl Drop for Capped {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn who_may_not_leave_a_cap_stays_and_the_others_of_the_task_are_held() {
    let _alone = alone();
    let own = CpuGroup::of_this_process();
    let place = Place::new("stays");
    let Some(mut machine) = machine(&place, "weights", false) else { return };
    if own.version != Some(CgroupVersion::One) || own.capped_by().is_some() {
        return println!("skipped, needs version 1 of control groups, and no cap above");
    }
    let capped = Capped(own.top.join(format!("hyoshi-test-capped-{}", std::process::id())));
    fs::create_dir(&capped.0).unwrap();
    fs::write(capped.0.join("cpu.cfs_quota_us"), "90000").unwrap();
    let sleeper = || Program(Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap());
    let programs = [sleeper(), sleeper(), sleeper()];
    move_to(&capped.0, programs[0].0.id()).unwrap();
    machine.confine(ONE, true);
    machine.add(ONE, programs[0].process()).unwrap();
    let refused = machine.reserve(ONE, millis(30, 100), Instant::ZERO).unwrap_err();
    assert!(refused.reason.contains("would leave the cap of control group"), "{}", refused.reason);
    assert_eq!(machine.enforcement(ONE), None);
    // The first one cannot be moved, the later ones can.
    programs[1..].iter().for_each(|program| machine.add(ONE, program.process()).unwrap());
    for budget in [30, 20] {
        machine.reserve(ONE, millis(budget, 100), Instant::ZERO).unwrap();
        let printed = machine.enforcement(ONE).unwrap();
        let (held, stays) = printed.split_once("; ").unwrap();
        assert!(
            stays.starts_with("1 of its processes stay outside: process ") && stays.contains("would leave the cap"),
            "{printed}"
        );
        let group = PathBuf::from(held.rsplit(' ').next().unwrap());
        assert_eq!(
            programs.each_ref().map(|program| group_of(program.0.id())),
            [capped.0.clone(), group.clone(), group]
        );
    }
    // After its end there is nothing to report.
    let [stays, ..] = programs;
    drop(stays);
    machine.tick(Instant::ZERO + Span::from_secs(1));
    let printed = machine.enforcement(ONE).unwrap();
    assert!(!printed.contains("; "), "{printed}");
    machine.end();
    common::until(|| fs::remove_dir(&capped.0).is_ok());
}

#[test]
fn windows_have_a_floor_below_them_where_it_is_asked_for() {
    let _alone = alone();
    let place = Place::new("floor");
    let Some(mut machine) = machine(&place, "window", true) else { return };
    let program = Program::spinning(3);
    let home = group_of(program.0.id());
    let (_above, clock) = (Above::all(), MonotonicClock::start());
    machine.add(ONE, program.process()).unwrap();
    machine.reserve(ONE, millis(10, 40), clock.now()).unwrap();
    let printed = machine.enforcement(ONE).unwrap();
    assert!(printed.starts_with("weighs as much as 25 ordinary programs, in control group "), "{printed}");
    assert!(!all_fair(&program.process()), "its window opens at once");
    assert_ne!(group_of(program.0.id()), home);
    let [had] = drive(&mut machine, &clock, Span::from_millis(500), [ONE]);
    assert!(had > 0.2, "{had}");
    machine.end();
    assert!(all_fair(&program.process()));
    assert_eq!(group_of(program.0.id()), home);
}

#[test]
fn a_hard_window_is_nearly_all_that_its_task_has() {
    let _alone = alone();
    let place = Place::new("hard-window");
    let Some(mut machine) = machine(&place, "window", true) else { return };
    let program = Program::spinning(3);
    let (_above, clock) = (Above::all(), MonotonicClock::start());
    machine.add(ONE, program.process()).unwrap();
    machine.reserve(ONE, millis(10, 40), clock.now()).unwrap();
    let [soft] = drive(&mut machine, &clock, Span::from_millis(500), [ONE]);
    machine.harden(ONE, true).unwrap();
    machine.reserve(ONE, millis(10, 40), clock.now()).unwrap();
    let printed = machine.enforcement(ONE).unwrap();
    assert!(printed.contains("capped at 1ms of 1s beside its windows"), "{printed}");
    let Driven { had: [hard], took, latest } = driven(&mut machine, &clock, Span::from_secs(2), [ONE]);
    println!("of one CPU: {soft:.3}, then {hard} of {took}, latest by {latest}");
    let (period, budget) = (Span::from_millis(40), Span::from_millis(10));
    let periods = took.as_nanos().div_ceil(period.as_nanos()) + 1;
    // A budget for each period that the test touched. All excess of late wake-ups but the last is paid back.
    let windows = budget * periods + latest;
    // Besides, what the cap allows. The kernel enforces it at ticks, on each CPU with threads: at most 10 ms on two
    // CPUs, or 4 ms on three and more.
    let cpus = hyoshi_os::allowed_cpus().len().min(2) as u64;
    let beside = Span::from_millis(took.as_nanos().div_ceil(1_000_000_000) + 1 + 10 * cpus);
    assert!(hard <= windows + beside, "{hard} of {took}, {latest} late, after {soft}");
    assert!(hard.as_secs_f64() > 0.15 * took.as_secs_f64(), "{hard} of {took}, {latest} late, after {soft}");
    let folder = CpuGroup::of_this_process().top;
    assert_eq!(left(&folder).iter().filter(|name| printed.ends_with(*name)).count(), 1);
    machine.forget(ONE);
    assert_eq!(left(&folder).iter().filter(|name| printed.ends_with(*name)).count(), 0);
    assert!(all_fair(&program.process()));
}

#[test]
fn a_hard_task_that_is_granted_no_bandwidth_has_hardly_anything() {
    let _alone = alone();
    let place = Place::new("hard-deadline");
    let Some(mut machine) = machine(&place, "deadline", false) else { return };
    let program = Program::spinning(2);
    let home = group_of(program.0.id());
    let (_above, clock) = (Above::all(), MonotonicClock::start());
    machine.harden(ONE, true).unwrap();
    machine.add(ONE, program.process()).unwrap();
    machine.release(ONE);
    let printed = machine.enforcement(ONE).unwrap();
    if printed.starts_with("not capped") {
        return println!("skipped, needs a CPU controller: {printed}");
    }
    // The kernel detects consumption at ticks, which are late on a busy machine: that is little of a long interval.
    let long = Span::from_secs(4);
    let [nothing] = drive(&mut machine, &clock, long, [ONE]);
    machine.reserve(ONE, millis(40, 100), clock.now()).unwrap();
    let [granted] = drive(&mut machine, &clock, Span::from_secs(1), [ONE]);
    machine.release(ONE);
    let [again] = drive(&mut machine, &clock, long, [ONE]);
    println!("of one CPU: {nothing:.3}, {granted:.3}, {again:.3}");
    // Half of it is for the sleeping threads.
    assert!(nothing < 0.05 && again < 0.05, "{nothing}, {again}");
    assert!((0.1..0.5).contains(&granted), "{granted}");
    machine.harden(ONE, false).unwrap();
    machine.release(ONE);
    assert_eq!((group_of(program.0.id()), machine.enforcement(ONE)), (home, None));
    assert!(all_fair(&program.process()));
}

#[test]
fn where_groups_have_too_little_real_time_a_floor_is_left_out_and_a_cap_refused() {
    let _alone = alone();
    let top = CpuGroup::of_this_process();
    if top.rt_budget.is_none() || Affinity::of(std::process::id()).unwrap().cpus().count() < 2 {
        return println!("skipped, needs a kernel that budgets real time by group, and two CPUs");
    }
    let place = Place::new("real-time");
    let (one, other) = (Program::spinning(1), Program::spinning(1));
    let Some(mut machine) = machine(&place, "window", true) else { return };
    let (_above, clock) = (Above::all(), MonotonicClock::start());
    for (task, program) in [(ONE, &one), (OTHER, &other)] {
        machine.add(task, program.process()).unwrap();
        machine.reserve(task, millis(60, 100), clock.now()).unwrap();
    }
    let printed = machine.enforcement(OTHER).unwrap();
    assert!(printed.starts_with("no floor: the kernel limits real-time threads of all"), "{printed}");
    machine.harden(OTHER, true).unwrap();
    let refused = machine.reserve(OTHER, millis(60, 100), clock.now()).unwrap_err();
    assert!(refused.reason.contains("cpu.rt_runtime_us"), "{}", refused.reason);
    machine.end();
    assert!(all_fair(&one.process()) && all_fair(&other.process()));
}

/// Holds a program to a hard window until it is killed.
pub fn killed() {
    let place = PathBuf::from(std::env::var("HYOSHI_PLACE").unwrap());
    let pid = std::env::var("HYOSHI_PID").unwrap().parse().unwrap();
    let (mut machine, _) = Machine::with_floor(&place, Some("window"), true).unwrap();
    let (_above, clock) = (Above::all(), MonotonicClock::start());
    machine.harden(ONE, true).unwrap();
    machine.add(ONE, Process::open(pid).unwrap()).unwrap();
    machine.reserve(ONE, millis(10, 40), clock.now()).unwrap();
    fs::write(place.join("begun"), "").unwrap();
    loop {
        clock.sleep_until(machine.tick(clock.now()).min(clock.now() + Span::from_millis(100)));
    }
}

#[test]
fn who_was_born_in_a_group_whose_broker_was_killed_goes_home_with_the_others() {
    let _alone = alone();
    let place = Place::new("home");
    let Some(machine) = machine(&place, "window", true) else { return };
    drop(machine);
    let mut shell = Command::new("sh");
    shell.args(["-c", "read go; sleep 1000 & echo $!; read end; kill $!"]);
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let home = group_of(shell.id());
    let mut broker = role_process("killed");
    broker.env("HYOSHI_PLACE", &place.0).env("HYOSHI_PID", shell.id().to_string());
    let mut broker = broker.spawn().unwrap();
    common::until(|| place.0.join("begun").exists());
    assert_ne!(group_of(shell.id()), home);
    broker.kill().unwrap();
    broker.wait().unwrap();
    let mut input = shell.stdin.take().unwrap();
    input.write_all(b"go\n").unwrap();
    let child: u32 = Said::by(shell.stdout.take().unwrap()).line().unwrap().parse().unwrap();
    let group = group_of(child);
    assert_ne!(group, home, "it is born where its parent was left");
    let (_touched, restore) = StateFile::open(&place.0).unwrap();
    assert_eq!((restore.groups, &restore.failed[..]), (1, &[][..]));
    assert_eq!([group_of(child), group_of(shell.id())], [home.clone(), home]);
    assert!(!group.exists());
    drop(input);
    let _ = shell.wait();
}

fn role_process(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "role", "--ignored", "--nocapture"]).stdout(Stdio::null()).env("HYOSHI_ROLE", role);
    command
}

/// An unprivileged broker in a delegated subtree. It prints the result.
pub fn delegated() {
    let place = PathBuf::from(std::env::var("HYOSHI_PLACE").unwrap());
    common::until(|| place.join("go").exists());
    let outcome = (|| {
        let (mut machine, _) = Machine::open(&place.join("state"), None).map_err(|error| error.to_string())?;
        let used = machine.proxies().into_iter().find(|way| way.used).map_or("", |way| way.name);
        if used != "weights" {
            let reason = machine.proxies().into_iter().find(|way| way.name == "weights").map(|way| way.reason);
            return Err(format!("{used} is used: {}", reason.unwrap_or_default()));
        }
        let (_above, clock) = (Above::all(), MonotonicClock::start());
        let pids = std::env::var("HYOSHI_PID").unwrap();
        for (number, pid) in (1..).zip(pids.split(',')) {
            let process = Process::open(pid.parse().unwrap()).map_err(|error| error.to_string())?;
            let task = TaskId(number);
            machine.harden(task, number == 3)?;
            machine.add(task, process).map_err(|error| error.to_string())?;
            let reservation = millis([30, 10, 20][number as usize - 1], 100);
            machine.reserve(task, reservation, clock.now()).map_err(|refused| refused.reason)?;
        }
        Ok(drive(&mut machine, &clock, Span::from_millis(1_500), [ONE, OTHER, TaskId(3)]))
    })();
    fs::write(place.join("outcome.new"), format!("{outcome:?}")).unwrap();
    fs::rename(place.join("outcome.new"), place.join("outcome")).unwrap();
}

/// A delegated group, with one for the broker and one for programs; removed at the end.
struct Delegated(PathBuf);

impl Delegated {
    fn new(name: &str, passes_on: bool) -> Option<Delegated> {
        let own = CpuGroup::of_this_process();
        if own.version != Some(CgroupVersion::Two) {
            println!("skipped, needs version 2 of control groups: `.ci/v2` runs it");
            return None;
        }
        let _ = fs::write(own.top.join("cgroup.subtree_control"), "+cpu");
        let folder = own.top.join(format!("test-{name}-{}", std::process::id()));
        if let Err(error) = fs::create_dir(&folder) {
            println!("skipped, needs root: {}: {error}", folder.display());
            return None;
        }
        for below in ["broker", "programs"] {
            fs::create_dir(folder.join(below)).unwrap();
        }
        if passes_on {
            fs::write(folder.join("cgroup.subtree_control"), "+cpu").unwrap();
        }
        for group in [folder.clone(), folder.join("broker"), folder.join("programs")] {
            for file in ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
                chown(group.join(file), Some(USER), Some(USER)).unwrap();
            }
        }
        Some(Delegated(folder))
    }

    /// Groups below, of any depth.
    fn below(&self) -> usize {
        let folders = |folder: &Path| {
            let all = fs::read_dir(folder).unwrap().filter_map(Result::ok).map(|entry| entry.path());
            all.filter(|path| path.is_dir()).collect::<Vec<_>>()
        };
        let first = folders(&self.0);
        first.len() + first.iter().map(|folder| folders(folder).len()).sum::<usize>()
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        for folder in [self.0.join("broker"), self.0.join("programs"), self.0.clone()] {
            let _ = fs::remove_dir(folder);
        }
    }
}

fn user_broker(place: &Place, programs: &str, group: &Path) -> String {
    fs::create_dir_all(&place.0).unwrap();
    chown(&place.0, Some(USER), Some(USER)).unwrap();
    let mut broker = role_process("delegated");
    broker.env("HYOSHI_PLACE", &place.0).env("HYOSHI_PID", programs).uid(USER).gid(USER).current_dir("/");
    let mut broker = broker.spawn().unwrap();
    move_to(group, broker.id()).unwrap();
    fs::write(place.0.join("go"), "").unwrap();
    common::until(|| place.0.join("outcome").exists());
    broker.wait().unwrap();
    fs::read_to_string(place.0.join("outcome")).unwrap()
}

#[test]
fn an_unprivileged_broker_shares_out_what_was_delegated_to_it() {
    let _alone = alone();
    for passes_on in [true, false] {
        let name = if passes_on { "passes" } else { "keeps" };
        let Some(subtree) = Delegated::new(name, passes_on) else { return };
        let place = Place::new(name);
        let programs: Vec<Program> = on_one_cpu(|| (0..3).map(|_| Program::spinning_as(USER, 1)).collect());
        programs.iter().for_each(|program| move_to(&subtree.0.join("programs"), program.0.id()).unwrap());
        let pids: Vec<String> = programs.iter().map(|program| program.0.id().to_string()).collect();
        let outcome = user_broker(&place, &pids.join(","), &subtree.0.join("broker"));
        println!("of one CPU: {outcome}");
        let shares = outcome.strip_prefix("Ok([").and_then(|rest| rest.strip_suffix("])")).expect(&outcome);
        let shares: Vec<f64> = shares.split(", ").map(|share| share.parse().unwrap()).collect();
        assert!((1.8..5.0).contains(&(shares[0] / shares[1])), "{shares:?}");
        assert!((0.05..0.28).contains(&shares[2]), "{shares:?}");
        // All are in their previous groups, and the broker has left nothing.
        assert!(programs.iter().all(|program| group_of(program.0.id()) == subtree.0.join("programs")));
        assert_eq!(subtree.below(), 2);
        let passed = fs::read_to_string(subtree.0.join("cgroup.subtree_control")).unwrap();
        assert_eq!(passed.trim(), if passes_on { "cpu" } else { "" });
        drop(programs);
        common::until(|| fs::read_to_string(subtree.0.join("programs/cgroup.procs")).unwrap().is_empty());
    }
}

#[test]
fn an_unprivileged_broker_to_which_nothing_was_delegated_says_so() {
    let _alone = alone();
    let place = Place::new("undelegated");
    let probe = Place::new("undelegated-probe");
    if Machine::open(&probe.0, Some("weights")).is_err() {
        return println!("skipped, needs root and a CPU controller");
    }
    let outcome = user_broker(&place, "1", &CpuGroup::of_this_process().top);
    assert!(outcome.contains("this group is not delegated to this user"), "{outcome}");
    assert!(outcome.contains("systemd-run --user --scope -p Delegate=yes hyoshi broker"), "{outcome}");
}

#[test]
fn a_floor_that_cannot_be_is_an_error_with_the_reason() {
    let error = MachineError::NoFloor("no control groups are mounted".into());
    assert_eq!(error.to_string(), "cannot use weights as a floor: no control groups are mounted");
}

#[test]
#[ignore = "a role that other tests start"]
fn role() {
    match std::env::var("HYOSHI_ROLE").as_deref() {
        Ok("killed") => killed(),
        Ok("delegated") => delegated(),
        _ => common::play(),
    }
}
