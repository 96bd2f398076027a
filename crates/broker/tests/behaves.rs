//! The broker with real programs, and what it leaves behind. The tests need root and otherwise print that they are
//! skipped.

use crate::common;

use std::cell::Cell;
use std::fmt::Debug;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hyoshi_broker::machine::{Machine, MachineError};
use hyoshi_broker::platform::Platform as _;
use hyoshi_broker::state_file::{RestoreReport, StateError, StateFile};
use hyoshi_broker::task_processes::TaskProcesses;
use hyoshi_control::TaskId;
use hyoshi_model::{Instant, Reservation, Span};
use hyoshi_os::cgroup::CpuGroup;
use hyoshi_os::process::{Process, RealTimeRight};
use hyoshi_os::progress::{ThreadProgress, is_throttled};
use hyoshi_os::scheduling::{Affinity, Scheduling, SchedulingClass, reserve};
use hyoshi_os::{Clock, MonotonicClock, ThreadPolicy, priority, set_own_policy};

use common::said::Said;
use common::{Above, Driver, Place, Program, until};

const TASK: TaskId = TaskId(1);
const RR: Scheduling = Scheduling { class: SchedulingClass::RoundRobin(3), reset_on_fork: false };
const BATCH: Scheduling = Scheduling { class: SchedulingClass::Fair(3), reset_on_fork: false };

/// Reserves nearly everything for a process until it is killed. Creates a file when it has started.
pub fn broker() {
    let pid = std::env::var("HYOSHI_ROLE").unwrap().split(':').nth(1).unwrap().parse().unwrap();
    let (place, way) = (std::env::var("HYOSHI_PLACE").unwrap(), std::env::var("HYOSHI_WAY").unwrap());
    let taken = |error: &MachineError| matches!(error, MachineError::State(StateError::Taken(_)));
    let (mut machine, _) = once_free(|| Machine::open(Path::new(&place), Some(&way)), taken);
    let clock = MonotonicClock::start();
    // Above the programs that it raises, like a broker.
    let _ = set_own_policy(ThreadPolicy::Fifo(priority::BROKER));
    machine.add(TASK, Process::open(pid).unwrap()).unwrap();
    machine.reserve(TASK, millis(40, 50), clock.now()).unwrap();
    std::fs::write(Path::new(&place).join("begun"), "").unwrap();
    loop {
        let next = machine.tick(clock.now());
        clock.sleep_until(next.min(clock.now() + Span::from_millis(100)));
    }
}

fn millis(budget: u64, period: u64) -> Reservation {
    Reservation::new(Span::from_millis(budget), Span::from_millis(period)).unwrap()
}

/// Held by tests that reserve by SCHED_DEADLINE: one of them fills the kernel's limit of the whole machine.
static BANDWIDTH: Mutex<()> = Mutex::new(());

fn bandwidth() -> MutexGuard<'static, ()> {
    BANDWIDTH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A machine with this scheduler; otherwise prints the reason and returns `None`.
fn machine(place: &Place, way: &str) -> Option<Machine> {
    match Machine::open(&place.0, Some(way)) {
        Ok((machine, _)) => Some(machine),
        Err(error) => {
            println!("skipped, needs root: {error}");
            None
        }
    }
}

fn reopen(place: &Place) -> (StateFile, RestoreReport) {
    once_free(|| StateFile::open(&place.0), |error| matches!(error, StateError::Taken(_)))
}

/// A starting process briefly shares all files of this one, the lock included.
fn once_free<T, E: Debug>(open: impl Fn() -> Result<T, E>, taken: impl Fn(&E) -> bool) -> T {
    for _ in 0..1000 {
        match open() {
            Err(error) if taken(&error) => std::thread::sleep(std::time::Duration::from_millis(5)),
            opened => return opened.unwrap(),
        }
    }
    panic!("a file that nobody has stays taken")
}

fn classes(process: &Process) -> Vec<SchedulingClass> {
    let mut threads = Vec::new();
    process.threads(&mut threads);
    threads.iter().filter_map(|tid| Some(Scheduling::of(*tid).ok()?.class)).collect()
}

fn all_fair(process: &Process) -> bool {
    classes(process).iter().all(|class| matches!(class, SchedulingClass::Fair(_)))
}

fn is_raised(class: SchedulingClass) -> bool {
    matches!(class, SchedulingClass::Fifo(20..=39))
}

#[test]
fn all_threads_of_a_program_are_raised_in_windows_and_as_they_were_afterwards() {
    let _above = Above::all();
    let place = Place::new("raised");
    let Some(machine) = machine(&place, "window") else { return };
    let program = Program::spinning(4);
    let affinity = Affinity::of(program.0.id()).unwrap();
    let driver = Driver::start(machine, program.process(), millis(10, 40), MonotonicClock::start());
    until(|| classes(&program.process()).into_iter().all(is_raised));
    until(|| all_fair(&program.process()));
    until(|| classes(&program.process()).into_iter().all(is_raised));
    driver.end();
    assert!(all_fair(&program.process()));
    assert_eq!(Affinity::of(program.0.id()).unwrap(), affinity);
    let (_, left) = reopen(&place);
    assert_eq!((left.threads, left.failed), (0, vec![]));
}

#[test]
fn a_real_time_class_of_its_own_is_respected_and_an_ordinary_one_is_what_it_is_put_back_to() {
    let _above = Above::all();
    let place = Place::new("own");
    let Some(machine) = machine(&place, "window") else { return };
    let program = Program::spinning(2);
    let mut threads = Vec::new();
    program.process().threads(&mut threads);
    let [.., one, other] = threads[..] else { panic!("{threads:?}") };
    let of = |tid| Scheduling::of(tid).unwrap();
    let driver = Driver::start(machine, program.process(), millis(10, 40), MonotonicClock::start());
    until(|| is_raised(of(one).class) && is_raised(of(other).class));
    RR.restore(one).unwrap();
    BATCH.restore(other).unwrap();
    // Five windows of the other thread.
    for _ in 0..5 {
        until(|| is_raised(of(other).class));
        until(|| of(other) == BATCH);
        assert_eq!(of(one), RR);
    }
    assert!(Affinity::of(one).unwrap().cpus().count() == Affinity::of(std::process::id()).unwrap().cpus().count());
    driver.end();
    assert_eq!((of(one), of(other)), (RR, BATCH));
}

/// A raised thread executes another program and so gets the number of the first thread, which was on another CPU and
/// never raised. Before, it sets a priority that the broker once took for the program's own choice.
pub fn swap() {
    let Some([here, elsewhere]) = two_cpus() else { return };
    let (own, pid) = (hyoshi_os::own_thread(), std::process::id());
    Affinity::to([elsewhere]).put(pid).unwrap();
    Affinity::to([here]).put(own).unwrap();
    std::thread::spawn(|| {
        loop {
            std::hint::black_box(0);
        }
    });
    let raised = || Scheduling::of(own).is_ok_and(|found| is_raised(found.class));
    until(raised);
    let _ = Scheduling { class: SchedulingClass::Fifo(19), reset_on_fork: true }.restore(own);
    panic!("{}", std::os::unix::process::CommandExt::exec(Command::new("sleep").arg("1000")));
}

#[test]
fn a_raised_thread_that_executes_a_program_does_not_leave_it_a_priority() {
    let place = Place::new("swap");
    let (Some(machine), Some(_)) = (machine(&place, "window"), two_cpus()) else { return };
    let program = Program::playing_as(4_000_000, "swap", 1);
    let pid = program.0.id();
    if RealTimeRight::of(pid, pid).allows(19) {
        return println!("skipped, needs an RLIMIT_RTPRIO below 19 for other users");
    }
    let driver = Driver::start(machine, program.process(), millis(20, 40), MonotonicClock::start());
    until(|| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n"));
    driver.end();
    assert_eq!(Scheduling::of(pid).unwrap(), Scheduling::ORDINARY);
    assert_eq!(Affinity::of(pid).unwrap().cpus().count(), 1, "where the first thread was bound");
}

/// Two CPUs; otherwise prints the reason and returns `None`.
fn two_cpus() -> Option<[u32; 2]> {
    let affinity = Affinity::of(std::process::id()).unwrap();
    let mut cpus = affinity.cpus();
    let two = cpus.next().zip(cpus.next()).map(|(one, other)| [one, other]);
    two.or_else(|| {
        println!("skipped, needs two CPUs");
        None
    })
}

/// Like `taskset -ap`.
fn bind(program: &Program, cpus: &[u32]) {
    let to = Affinity::to(cpus.iter().copied());
    program.tids().into_iter().for_each(|tid| to.put(tid).unwrap());
}

#[test]
fn a_window_follows_its_program_to_the_cpus_that_somebody_binds_it_to() {
    let _above = Above::all();
    let place = Place::new("follows");
    let (Some(machine), Some(both)) = (machine(&place, "window"), two_cpus()) else { return };
    let program = Program::spinning(2);
    let driver = Driver::start(machine, program.process(), millis(20, 40), MonotonicClock::start());
    let spinning = || program.tids().into_iter().skip(2);
    let raised_on = |cpu: u32| {
        spinning().all(|tid| {
            is_raised(Scheduling::of(tid).unwrap().class) && Affinity::of(tid).unwrap() == Affinity::to([cpu])
        })
    };
    let seen = Cell::new(None);
    until(|| {
        seen.set(both.into_iter().find(|cpu| raised_on(*cpu)));
        seen.get().is_some()
    });
    let first = seen.get().unwrap();
    let other = both[0] + both[1] - first;
    // Not to the window's CPU: the window itself could have bound it there.
    for cpu in [other, first, other] {
        bind(&program, &[cpu]);
        until(|| raised_on(cpu));
        until(|| all_fair(&program.process()));
        assert!(program.tids().into_iter().all(|tid| Affinity::of(tid).unwrap() == Affinity::to([cpu])));
    }
    bind(&program, &both);
    until(|| both.iter().any(|cpu| raised_on(*cpu)));
    until(|| spinning().all(|tid| Affinity::of(tid).unwrap() == Affinity::to(both)));
    driver.end();
    assert!(all_fair(&program.process()));
    assert!(program.tids().into_iter().all(|tid| Affinity::of(tid).unwrap() == Affinity::to(both)));
}

#[test]
fn a_window_that_stays_open_is_lowered_and_raised_where_its_program_is_bound_to() {
    let _above = Above::all();
    let place = Place::new("stays-open");
    let (Some(mut machine), Some(both)) = (machine(&place, "window"), two_cpus()) else { return };
    // It computes a little in each period, in ever new processes.
    let mut sleepy = Command::new("sh");
    sleepy.args(["-c", "while kill -0 $PPID; do sleep 0.003; done 2>&-"]).stdin(Stdio::null());
    let program = Program(sleepy.spawn().unwrap());
    let (clock, pid) = (MonotonicClock::start(), program.0.id());
    machine.add(TASK, program.process()).unwrap();
    machine.reserve(TASK, millis(90, 100), clock.now()).unwrap();
    let mut drive = |done: &dyn Fn() -> bool| {
        let end = clock.now() + Span::from_secs(30);
        while !done() {
            assert!(clock.now() < end, "it never came to pass");
            let next = machine.tick(clock.now());
            clock.sleep_until(next.min(clock.now() + Span::from_millis(2)));
        }
    };
    let first = || (is_raised(Scheduling::of(pid).unwrap().class), Affinity::of(pid).unwrap());
    drive(&|| first().0);
    // The CPUs to restore, as the next broker would read them.
    let noted = || {
        let touched = std::fs::read_to_string(place.0.join("touched")).unwrap();
        let of_first =
            touched.lines().rfind(|line| line.split(' ').nth(4) == Some(&pid.to_string())).map(str::to_owned);
        of_first.and_then(|line| line.split(' ').next_back().map(str::to_owned))
    };
    let mut cpu = both[0];
    for _ in 0..2 {
        let there = first().1;
        cpu = both.into_iter().find(|cpu| there != Affinity::to([*cpu])).unwrap();
        bind(&program, &[cpu]);
        drive(&|| noted() == Some(cpu.to_string()) && first() == (true, Affinity::to([cpu])));
    }
    machine.end();
    assert_eq!(first(), (false, Affinity::to([cpu])));
}

#[test]
fn who_is_bound_to_a_full_cpu_is_left_the_rest_of_it_until_it_is_free_again() {
    let _above = Above::all();
    let place = Place::new("cramped");
    let (steady, moved, clock) = (Program::spinning(1), Program::spinning(1), MonotonicClock::start());
    let (Some(mut machine), Some([one, other])) = (machine(&place, "window"), two_cpus()) else { return };
    bind(&steady, &[one]);
    for (task, program) in [(TASK, &steady), (TaskId(2), &moved)] {
        machine.add(task, program.process()).unwrap();
        machine.reserve(task, millis(60, 100), clock.now()).unwrap();
    }
    bind(&moved, &[one]);
    let end = clock.now() + Span::from_secs(30);
    let (task, what, refused) = loop {
        assert!(clock.now() < end, "nobody says that it does not fit");
        clock.sleep_until(machine.tick(clock.now()).min(clock.now() + Span::from_millis(2)));
        if let Some((task, what, Err(refused))) = machine.next_outcome() {
            break (task, what, refused);
        }
    };
    assert_eq!((task, what), (TaskId(2), millis(60, 100)));
    assert!(refused.reason.contains(&format!("its threads may run only on CPU {one}")), "{}", refused.reason);
    let most = refused.most.unwrap();
    assert!(most.budget() < Span::from_millis(40), "{most}");
    machine.reserve(task, most, clock.now()).unwrap();
    assert_eq!(machine.reserve(task, millis(60, 100), clock.now()).unwrap_err().most, Some(most));
    bind(&moved, &[other, one]);
    while machine.next_retry() != Some(task) {
        assert!(clock.now() < end, "nobody says that there is room");
        clock.sleep_until(machine.tick(clock.now()).min(clock.now() + Span::from_millis(2)));
    }
    machine.reserve(task, millis(60, 100), clock.now()).unwrap();
    assert_eq!(machine.next_outcome().map(|(task, ..)| task), None);
    machine.end();
    assert!(all_fair(&steady.process()) && all_fair(&moved.process()));
}

#[test]
fn children_join_and_what_is_born_in_a_window_is_not_left_raised() {
    let _above = Above::all();
    let place = Place::new("children");
    let Some(machine) = machine(&place, "window") else { return };
    let mut shell = Command::new("sh");
    shell.args(["-c", "read go; (while :; do :; done) & echo $!; read end; kill $!"]);
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let parent = Process::open(shell.id()).unwrap();
    let affinity = Affinity::of(shell.id()).unwrap();
    let driver = Driver::start(machine, parent, millis(10, 40), MonotonicClock::start());
    let mut input = shell.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, b"go\n").unwrap();
    let child: u32 = Said::by(shell.stdout.take().unwrap()).line().unwrap().parse().unwrap();
    until(|| Scheduling::of(child).is_ok_and(|scheduling| is_raised(scheduling.class)));
    driver.end();
    assert!(matches!(Scheduling::of(child).unwrap().class, SchedulingClass::Fair(_)));
    assert_eq!(Affinity::of(child).unwrap(), affinity, "nor bound");
    drop(input);
    let _ = shell.wait();
}

#[test]
fn thousands_of_short_lived_threads_are_counted_and_none_is_left_raised() {
    let _above = Above::all();
    let place = Place::new("fleeting");
    let Some(mut machine) = machine(&place, "window") else { return };
    let program = Program::playing("fleeting", 4);
    let clock = MonotonicClock::start();
    machine.add(TASK, program.process()).unwrap();
    machine.reserve(TASK, millis(10, 40), clock.now()).unwrap();
    let end = clock.now() + Span::from_secs(2);
    while clock.now() < end {
        let next = machine.tick(clock.now());
        clock.sleep_until(next.min(end));
    }
    // A thread lives for a millisecond of CPU time, so hardly any is in two samples.
    let consumed = machine.consumed(TASK).unwrap();
    assert!(consumed >= Span::from_millis(200), "{consumed}");
    machine.end();
    assert!(all_fair(&program.process()));
}

#[test]
fn after_a_sigkill_the_next_start_puts_everything_back() {
    let _above = Above::all();
    let _bandwidth = bandwidth();
    for way in ["window", "deadline", "weights"] {
        let place = Place::new(&format!("killed-{way}"));
        let Some(machine) = machine(&place, way) else { continue };
        drop(machine);
        let program = Program::spinning(3);
        let group = CpuGroup::of_process(program.0.id());
        for _ in 0..5 {
            let mut broker = Command::new(std::env::current_exe().unwrap());
            broker.args(["--exact", "role", "--ignored", "--nocapture"]).stdout(Stdio::null());
            broker.env("HYOSHI_ROLE", format!("broker:{}", program.0.id()));
            broker.env("HYOSHI_PLACE", &place.0).env("HYOSHI_WAY", way);
            let mut broker = broker.spawn().unwrap();
            until(|| place.0.join("begun").exists());
            match way {
                "weights" => assert_ne!(CpuGroup::of_process(program.0.id()), group),
                _ => {
                    until(|| classes(&program.process()).iter().any(|class| !matches!(class, SchedulingClass::Fair(_))))
                }
            }
            broker.kill().unwrap();
            broker.wait().unwrap();
            std::fs::remove_file(place.0.join("begun")).unwrap();
            let (touched, restore) = reopen(&place);
            assert_eq!(restore.failed, Vec::<String>::new());
            assert_eq!(touched.threads(), 0);
            assert!(all_fair(&program.process()), "{way}: {restore}");
            assert_eq!(CpuGroup::of_process(program.0.id()), group);
        }
        let left = std::fs::read_dir(&group.top).unwrap().filter_map(Result::ok);
        let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with("hyoshi-"));
        // Other tests run in parallel under this process number.
        let own = std::process::id().to_string();
        assert_eq!(left.filter(|entry| !entry.file_name().to_string_lossy().contains(&own)).count(), 0);
    }
}

#[test]
fn a_program_that_the_kernel_would_end_for_its_real_time_is_refused_with_the_cure() {
    let place = Place::new("rttime");
    let Some(mut machine) = machine(&place, "window") else { return };
    let limited = Command::new("prlimit").args(["--rttime=200000", "sleep", "1000"]).stdin(Stdio::null()).spawn();
    let Ok(mut limited) = limited else { return println!("skipped, needs util-linux's prlimit") };
    let pid = limited.id();
    until(|| Process::open(pid).is_ok_and(|process| process.name() == "sleep"));
    machine.add(TASK, Process::open(pid).unwrap()).unwrap();
    let refused = machine.reserve(TASK, millis(10, 40), Instant::ZERO).unwrap_err();
    assert!(refused.reason.contains(&format!("prlimit --pid {pid} --rttime=unlimited")), "{}", refused.reason);
    assert!(matches!(Scheduling::of(pid).unwrap().class, SchedulingClass::Fair(_)));
    limited.kill().unwrap();
    limited.wait().unwrap();
}

#[test]
fn what_no_cpu_has_room_for_is_refused_with_the_most_that_fits() {
    let _above = Above::all();
    let place = Place::new("full");
    let cpus = Affinity::of(std::process::id()).unwrap().cpus().count();
    let programs: Vec<Program> = (0..=cpus).map(|_| Program::spinning(1)).collect();
    let Some(mut machine) = machine(&place, "window") else { return };
    let mut refusals = 0;
    for (number, program) in (1..).zip(&programs) {
        machine.add(TaskId(number), program.process()).unwrap();
        if let Err(refused) = machine.reserve(TaskId(number), millis(80, 100), Instant::ZERO) {
            refusals += 1;
            let most = refused.most.unwrap();
            assert!(most.budget() < Span::from_millis(20), "{most:?}");
            machine.reserve(TaskId(number), most, Instant::ZERO).unwrap();
        }
    }
    assert_eq!(refusals, 1, "one more than there are CPUs");
    machine.end();
    assert!(programs.iter().all(|program| all_fair(&program.process())));
}

#[test]
fn threads_whose_first_has_ended_are_reserved_for_and_as_they_were_afterwards() {
    let _above = Above::all();
    let _bandwidth = bandwidth();
    for way in ["window", "deadline"] {
        let place = Place::new(&format!("headless-{way}"));
        let (Some(mut machine), Some(program)) = (machine(&place, way), Program::headless()) else { return };
        let spinning = || classes(&program.process()).into_iter().skip(1);
        machine.add(TASK, program.process()).unwrap();
        machine.reserve(TASK, millis(30, 100), Instant::ZERO).unwrap();
        match way {
            "window" => assert!(spinning().all(is_raised)),
            _ => spinning().for_each(|class| match class {
                SchedulingClass::Deadline(bandwidth) => {
                    assert_eq!(bandwidth.runtime, 10_000_000, "the dead one has no part")
                }
                other => panic!("{other}"),
            }),
        }
        assert!(
            matches!(Scheduling::of(program.0.id()).unwrap().class, SchedulingClass::Fair(_)),
            "{way}: the dead one"
        );
        machine.end();
        assert!(all_fair(&program.process()), "{way}");
    }
}

#[test]
fn a_thread_that_came_back_with_a_mark_of_having_used_its_bandwidth_up_is_freed_and_runs() {
    let _above = Above::all();
    let _bandwidth = bandwidth();
    let place = Place::new("hangs");
    let Some(machine) = machine(&place, "deadline") else { return };
    let program = Program::spinning(1);
    let tid = *program.tids().last().unwrap();
    let (period, runtime) = (Span::from_millis(50), Span::from_millis(8));
    // As a killed broker or another program may leave it.
    reserve(tid, runtime, period, period).unwrap();
    until(|| is_throttled(tid));
    // The kernel refuses it while other tests have filled the bandwidth.
    until(|| reserve(tid, Span::from_nanos(1_100), Span::from_secs(4), Span::from_secs(4)).is_ok());
    Scheduling { class: SchedulingClass::Fair(0), reset_on_fork: false }.restore(tid).unwrap();
    MonotonicClock::start().sleep_until(Instant::ZERO + Span::from_millis(60));
    let driver = Driver::start(machine, program.process(), millis(24, 50), MonotonicClock::start());
    until(|| matches!(Scheduling::of(tid).unwrap().class, SchedulingClass::Deadline(_)));
    let ran = || ThreadProgress::of(tid).unwrap().ran;
    let before = ran();
    until(|| ran() > before + Span::from_millis(200));
    // If the machine stops for two periods, the thread counts as stalled and is ordinary until the next sample.
    until(|| matches!(Scheduling::of(tid).unwrap().class, SchedulingClass::Deadline(_)));
    driver.end();
    assert!(all_fair(&program.process()));
}

/// As when a shell that started the broker is attached.
#[test]
fn a_broker_is_no_part_of_the_task_that_started_it() {
    let mut members = TaskProcesses::new();
    let parent = Process::open(std::os::unix::process::parent_id()).unwrap();
    members.add(parent).unwrap();
    members.list_processes();
    let numbers: Vec<u32> = members.processes().map(|process| process.identity().number).collect();
    assert!(!numbers.is_empty() && !numbers.contains(&std::process::id()), "{numbers:?}");
}

#[test]
fn a_task_whose_processes_have_ended_is_over_and_its_number_means_nobody() {
    let place = Place::new("ended");
    let (mut machine, _) = Machine::open(&place.0, None).unwrap_or_else(|error| panic!("{error}"));
    let program = Program::spinning(1);
    let pid = program.0.id();
    machine.add(TASK, program.process()).unwrap();
    assert_eq!((machine.find_member(&[pid]), machine.processes(TASK)), (Some((pid, TASK)), vec![pid]));
    assert!(machine.consumed(TASK).is_some());
    let _ = machine.reserve(TASK, millis(10, 40), Instant::ZERO);
    drop(program);
    assert_eq!(machine.consumed(TASK), None);
    machine.tick(Instant::ZERO + Span::from_millis(40));
    assert!(machine.add(TaskId(2), Process::open(std::process::id()).unwrap()).is_ok());
}

#[test]
fn bandwidth_of_ones_own_is_shared_out_among_threads_and_given_back() {
    let _above = Above::all();
    let _bandwidth = bandwidth();
    let place = Place::new("shared-out");
    let Some(mut machine) = machine(&place, "deadline") else { return };
    let program = Program::spinning(3);
    let threads = program.threads() as u64;
    let runtime = |class: &SchedulingClass| match class {
        SchedulingClass::Deadline(bandwidth) => Some(bandwidth.runtime),
        _ => None,
    };
    for _ in 0..20 {
        machine.add(TASK, program.process()).unwrap();
        machine.reserve(TASK, millis(40, 100), Instant::ZERO).unwrap();
        let all: Vec<_> = classes(&program.process()).iter().map(runtime).collect();
        assert!(all.iter().all(|part| *part == Some(40_000_000 / threads)), "{all:?}");
        machine.forget(TASK);
        assert!(all_fair(&program.process()));
    }
    machine.add(TASK, program.process()).unwrap();
    let cpus = Affinity::of(std::process::id()).unwrap().cpus().count();
    let others: Vec<Program> = (0..cpus * 3).map(|_| Program::spinning(1)).collect();
    let refused = (2..).zip(&others).find_map(|(number, other)| {
        machine.add(TaskId(number), other.process()).unwrap();
        machine.reserve(TaskId(number), millis(90, 100), Instant::ZERO).err().map(|refused| (other, refused))
    });
    let (other, refused) = refused.expect("three times 90 % are too much for a CPU");
    assert!(refused.reason.contains("exceeds the kernel's limit"), "{}", refused.reason);
    assert!(all_fair(&other.process()), "one that was refused is left as it was");
}
