//! The delay until each possible kernel event reports that another program's CPU budget is used up:
//!
//!     cargo run --release -p hyoshi-os --example budget_events            (as root; ROUNDS=200, BUDGET_US=3000)
//!
//! A child process computes without end at SCHED_FIFO 30. In each round a receiver at SCHED_FIFO 90 requests an event
//! when the child has run for the budget, and then reads the child's task clock. The delay is the child's CPU time
//! beyond the budget; `cpu` is the receiver's CPU time per round. The figures are in docs/reserving.md.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::process::{Command, Stdio};
use std::time::Duration;

use hyoshi_model::Span;
use hyoshi_os::meter::Meter;
use hyoshi_os::process::Process;
use hyoshi_os::scheduling::{Affinity, raise};
use hyoshi_os::{Clock, MonotonicClock, Poller, ThreadPolicy, allowed_cpus, own_cpu_time, set_own_policy};
use perf_event::events::Software;
use perf_event::{Builder, Counter, Sampler};

const PERIOD: libc::c_ulong = 0x4008_2404; // PERF_EVENT_IOC_PERIOD
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
const RING: usize = 8192;

/// An event that wakes its caller when the child has run for this long.
trait Event {
    fn wait(&mut self, budget: Span) -> io::Result<()>;
}

type Begin = fn(u32, u32) -> io::Result<Box<dyn Event>>;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("spin") {
        loop {
            std::hint::black_box((0..10_000u64).sum::<u64>());
        }
    }
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().expect(name));
    let (rounds, budget) = (number("ROUNDS", 200), Span::from_micros(number("BUDGET_US", 3_000)));
    let mut child = Command::new(std::env::current_exe().unwrap()).arg("spin").stdin(Stdio::null()).spawn().unwrap();
    let tid = child.id();
    let cpu = *allowed_cpus().last().unwrap();
    let own = allowed_cpus()[0];
    if let Err(refused) = Affinity::to([cpu]).put(tid).and_then(|()| raise(tid, 30)) {
        let _ = child.kill().and_then(|()| child.wait());
        return println!("needs root or CAP_SYS_NICE: {refused}");
    }
    println!("{:<44} {:>8} {:>8} {:>8} {:>8} {:>8}", "lateness in us", "median", "p90", "p99", "most", "cpu");
    for (where_, receiver) in [("the other CPU", own), ("the same CPU", cpu)] {
        Affinity::to([receiver]).put(hyoshi_os::own_thread()).unwrap();
        set_own_policy(ThreadPolicy::Fifo(90)).unwrap();
        let all: [(&str, Begin); 6] = [
            ("sleep for the budget, look again", Sleep::begin),
            ("task-clock of the thread, epoll", Polled::of_thread),
            ("task-clock of the thread, signal", Signalled::of_thread),
            ("POSIX CPU timer of the process", Timer::begin),
            ("task-clock of a control group, epoll", Polled::of_group),
            ("cpu-clock of a control group, epoll", Polled::of_group_by_cpu_clock),
        ];
        for (name, open) in all {
            let name = format!("{name}, {where_}");
            match open(tid, cpu).and_then(|mut event| measure(&mut *event, tid, budget, rounds)) {
                Err(error) => println!("{name:<44} {error}"),
                Ok((mut late, each)) => {
                    late.sort_unstable();
                    let at = |part: usize| late[(late.len() - 1) * part / 1_000] as f64 / 1e3;
                    let figures = [at(500), at(900), at(990), at(1_000), each.as_nanos() as f64 / 1e3];
                    print!("{name:<44}");
                    figures.iter().for_each(|figure| print!(" {figure:>8.1}"));
                    println!();
                }
            }
        }
    }
    let _ = child.kill();
    let _ = child.wait();
}

fn measure(event: &mut dyn Event, tid: u32, budget: Span, rounds: u64) -> io::Result<(Vec<i64>, Span)> {
    let mut meter = Meter::new();
    meter.add(&Process::open(tid).unwrap(), false);
    let (mut late, before) = (Vec::new(), own_cpu_time());
    for _ in 0..rounds {
        let start = meter.read();
        event.wait(budget)?;
        let ran = meter.read().saturating_sub(start);
        late.push(ran.as_nanos() as i64 - budget.as_nanos() as i64);
    }
    Ok((late, Span::from_nanos(own_cpu_time().saturating_sub(before).as_nanos() / rounds)))
}

fn check(done: libc::c_int) -> io::Result<libc::c_int> {
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
}

/// The broker's method if no event is granted.
struct Sleep(Meter);

impl Sleep {
    fn begin(tid: u32, _: u32) -> io::Result<Box<dyn Event>> {
        let mut meter = Meter::new();
        meter.add(&Process::open(tid).unwrap(), false);
        Ok(Box::new(Sleep(meter)))
    }
}

impl Event for Sleep {
    fn wait(&mut self, budget: Span) -> io::Result<()> {
        let (clock, start) = (MonotonicClock::start(), self.0.read());
        loop {
            let left = budget.saturating_sub(self.0.read().saturating_sub(start));
            if left.is_zero() {
                return Ok(());
            }
            clock.sleep_until(clock.now() + left.max(Span::from_micros(100)));
        }
    }
}

fn set_period(fd: RawFd, span: Span) -> io::Result<()> {
    let nanos = span.as_nanos();
    // SAFETY: the kernel reads 8 bytes, which live for the call.
    check(unsafe { libc::ioctl(fd, PERIOD as _, &raw const nanos) }).map(drop)
}

struct Polled(Sampler, Poller);

impl Polled {
    fn begin(mut builder: Builder<'_>) -> io::Result<Box<dyn Event>> {
        let counter = builder.sample_period(1 << 40).wakeup_events(1).enabled(true).build()?;
        let sampler = counter.sampled(RING)?;
        let poller = Poller::new()?;
        // SAFETY: open for as long as it is borrowed.
        poller.add(unsafe { std::os::fd::BorrowedFd::borrow_raw(sampler.as_raw_fd()) }, 0, false)?;
        Ok(Box::new(Polled(sampler, poller)))
    }

    fn of_thread(tid: u32, _: u32) -> io::Result<Box<dyn Event>> {
        let mut builder = Builder::new(Software::TASK_CLOCK);
        builder.observe_pid(tid as i32).any_cpu();
        Polled::begin(builder)
    }

    fn of_group(tid: u32, cpu: u32) -> io::Result<Box<dyn Event>> {
        Polled::of_group_with(tid, cpu, Software::TASK_CLOCK)
    }

    fn of_group_by_cpu_clock(tid: u32, cpu: u32) -> io::Result<Box<dyn Event>> {
        Polled::of_group_with(tid, cpu, Software::CPU_CLOCK)
    }

    fn of_group_with(tid: u32, cpu: u32, event: Software) -> io::Result<Box<dyn Event>> {
        let controllers = ["/sys/fs/cgroup/perf_event", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
        let root = controllers.iter().find(|root| std::fs::metadata(format!("{root}/cgroup.procs")).is_ok());
        let folder = format!("{}/hyoshi-events", root.ok_or(io::ErrorKind::NotFound)?);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(format!("{folder}/cgroup.procs"), tid.to_string())?;
        let group = File::open(&folder)?;
        let mut builder = Builder::new(event);
        builder.observe_cgroup(&group).one_cpu(cpu as usize);
        Polled::begin(builder)
    }
}

impl Event for Polled {
    fn wait(&mut self, budget: Span) -> io::Result<()> {
        while self.0.next_record().is_some() {}
        // SAFETY: open for as long as it is borrowed.
        self.1.arm(unsafe { std::os::fd::BorrowedFd::borrow_raw(self.0.as_raw_fd()) }, 0, false)?;
        set_period(self.0.as_raw_fd(), budget)?;
        match self.1.wait(Some(Duration::from_secs(2)))? {
            None => Err(io::ErrorKind::TimedOut.into()),
            Some(_) => Ok(()),
        }
    }
}

struct Signalled(Counter);

fn real_time_signal() -> (libc::c_int, libc::sigset_t) {
    let signal = libc::SIGRTMIN() + 5;
    let mut set = MaybeUninit::uninit();
    // SAFETY: the set is initialised by the first call; the mask is this thread's.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        (signal, set.assume_init())
    }
}

fn wait_for_signal(set: &libc::sigset_t) -> io::Result<()> {
    let limit = libc::timespec { tv_sec: 2, tv_nsec: 0 };
    // SAFETY: set and limit live for the call.
    check(unsafe { libc::sigtimedwait(set, std::ptr::null_mut(), &limit) }).map(drop)
}

impl Signalled {
    fn of_thread(tid: u32, _: u32) -> io::Result<Box<dyn Event>> {
        let mut builder = Builder::new(Software::TASK_CLOCK);
        builder.observe_pid(tid as i32).any_cpu().sample_period(1 << 40).wakeup_events(1).enabled(true);
        let counter = builder.build()?;
        let (signal, _) = real_time_signal();
        let owner = [0i32, hyoshi_os::own_thread() as i32];
        // SAFETY: plain calls on a descriptor that is open; `owner` is an f_owner_ex.
        unsafe {
            check(libc::fcntl(counter.as_raw_fd(), F_SETOWN_EX, owner.as_ptr()))?;
            check(libc::fcntl(counter.as_raw_fd(), F_SETSIG, signal))?;
            check(libc::fcntl(counter.as_raw_fd(), libc::F_SETFL, libc::O_ASYNC))?;
        }
        Ok(Box::new(Signalled(counter)))
    }
}

impl Event for Signalled {
    fn wait(&mut self, budget: Span) -> io::Result<()> {
        let (_, set) = real_time_signal();
        set_period(self.0.as_raw_fd(), budget)?;
        wait_for_signal(&set)?;
        set_period(self.0.as_raw_fd(), Span::from_secs(1_000))
    }
}

struct Timer(libc::timer_t);

impl Timer {
    fn begin(tid: u32, _: u32) -> io::Result<Box<dyn Event>> {
        let (signal, _) = real_time_signal();
        // SAFETY: zeros are a valid sigevent.
        let mut event: libc::sigevent = unsafe { MaybeUninit::zeroed().assume_init() };
        (event.sigev_notify, event.sigev_signo) = (libc::SIGEV_THREAD_ID, signal);
        event.sigev_notify_thread_id = hyoshi_os::own_thread() as i32;
        let mut timer = MaybeUninit::uninit();
        // SAFETY: the timer is written by the call.
        check(unsafe { libc::timer_create((!(tid as i32)) << 3 | 2, &mut event, timer.as_mut_ptr()) })?;
        // SAFETY: timer_create has written it.
        Ok(Box::new(Timer(unsafe { timer.assume_init() })))
    }
}

impl Event for Timer {
    fn wait(&mut self, budget: Span) -> io::Result<()> {
        let (_, set) = real_time_signal();
        let nanos = budget.as_nanos() as i64;
        let value = libc::timespec { tv_sec: nanos / 1_000_000_000, tv_nsec: nanos % 1_000_000_000 };
        let once = libc::itimerspec { it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        // SAFETY: the setting lives for the call.
        check(unsafe { libc::timer_settime(self.0, 0, &once, std::ptr::null_mut()) })?;
        wait_for_signal(&set)
    }
}
