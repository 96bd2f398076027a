//! Threads at a real-time priority, on a fixed CPU, with a resident stack.
//!
//! The kernel may refuse: without CAP_SYS_NICE or RLIMIT_RTPRIO, or in a control group without real-time budget. Then
//! the thread runs at normal priority, and [`Granted`] contains the refusal.

use std::fmt;
use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use hyoshi_model::Span;
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::clock::span_of;
use crate::lock::{PiMutex, tid};
use crate::memory::prefault_stack;
use crate::refusal::{KernelRequest, Refused};
use crate::scheduling::set_scheduler;
use crate::switches::thread_name;

/// The scheduling policy of a thread (sched(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum ThreadPolicy {
    /// SCHED_FIFO at a priority from 1 to 99: runs until it sleeps or a higher one wakes up.
    Fifo(u8),
    /// SCHED_OTHER: an ordinary thread.
    Other,
    /// SCHED_IDLE: in the time that ordinary threads leave.
    Idle,
}

/// Schedules and meters a thread from outside. [`crate::fake::FakeThread`] records it.
pub trait Scheduled {
    /// Changes the policy at once, also while the thread runs on another CPU. Allocates nothing;
    /// about 1 us for a thread that sleeps, 10 us for one that runs elsewhere.
    fn set_policy(&self, policy: ThreadPolicy) -> Result<(), Refused>;
    /// The thread's CPU time; `None` after it has ended.
    fn cpu_time(&self) -> Option<Span>;
}

/// The settings of a new thread.
#[derive(Clone, Debug)]
pub struct Spawn {
    name: String,
    stack: usize,
    cpu: Option<u32>,
    policy: ThreadPolicy,
}

/// A running thread.
#[derive(Debug)]
pub struct SpawnedThread<T> {
    /// To schedule and meter it.
    pub handle: ThreadHandle,
    /// The granted part of its settings.
    pub granted: Granted,
    join: thread::JoinHandle<T>,
}

/// The settings that a new thread was granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Granted {
    /// The policy it runs at.
    pub policy: ThreadPolicy,
    /// Its only CPU; `None` if it may use any.
    pub cpu: Option<u32>,
    /// The refused settings.
    pub refused: Vec<Refused>,
}

/// Names a thread to the kernel. It may outlive the thread: then requests are refused, also if another thread has the
/// number.
#[derive(Clone, Debug)]
pub struct ThreadHandle {
    thread: Arc<Life>,
}

#[derive(Debug)]
struct Life {
    tid: u32,
    ended: AtomicBool,
    /// Held while the number is used to change something, and while `ended` is set.
    changing: PiMutex<()>,
    /// Its CPU time at its end, in nanoseconds.
    used: AtomicU64,
}

impl Life {
    fn of(tid: u32) -> Self {
        Life { tid, ended: AtomicBool::new(false), changing: PiMutex::new(()), used: AtomicU64::new(0) }
    }
}

impl Spawn {
    /// A thread at normal priority on any CPU with a stack of 256 KiB. The kernel shows the first
    /// 15 bytes of the name.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into().replace('\0', "?");
        Spawn { name, stack: 256 << 10, cpu: None, policy: ThreadPolicy::Other }
    }

    /// The size of the stack in bytes, at least 64 KiB. It is touched before the body runs, so its use causes no page
    /// fault.
    pub fn stack(mut self, bytes: usize) -> Self {
        self.stack = bytes.max(64 << 10);
        self
    }

    /// Binds the thread to this CPU.
    pub fn cpu(mut self, cpu: u32) -> Self {
        self.cpu = Some(cpu);
        self
    }

    /// Sets the policy. Threads that it spawns by other means start at normal priority (SCHED_RESET_ON_FORK): a body's
    /// helper thread must not be among the lanes.
    pub fn policy(mut self, policy: ThreadPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Starts the thread; returns when it is pinned, prefaulted and scheduled, just before the body runs. Fails only if
    /// no further thread is possible at all.
    pub fn spawn<T: Send + 'static>(self, body: impl FnOnce() -> T + Send + 'static) -> io::Result<SpawnedThread<T>> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let Spawn { name, stack, cpu, policy } = self;
        let join = thread::Builder::new().name(name).stack_size(stack).spawn(move || {
            prefault_stack();
            let granted = pin_and_schedule(cpu, policy);
            let life = Arc::new(Life::of(tid()));
            let _ended = EndOfLife(life.clone());
            let _ = sender.send((ThreadHandle { thread: life }, granted));
            call(body)
        })?;
        match receiver.recv() {
            Ok((handle, granted)) => Ok(SpawnedThread { handle, granted, join }),
            Err(_) => Err(io::Error::other("a new thread ended before its body ran")),
        }
    }
}

impl<T> SpawnedThread<T> {
    /// Waits for the end of the thread; an error is the body's panic.
    pub fn join(self) -> thread::Result<T> {
        self.join.join()
    }

    /// True once the body has returned.
    pub fn is_finished(&self) -> bool {
        self.join.is_finished()
    }
}

impl Granted {
    /// True if nothing was refused.
    pub fn in_full(&self) -> bool {
        self.refused.is_empty()
    }
}

impl ThreadHandle {
    /// The thread's CPU time, up to its end.
    pub fn used(&self) -> Span {
        let at_end = || Span::from_nanos(self.thread.used.load(Ordering::Relaxed));
        self.cpu_time().unwrap_or_else(at_end)
    }

    /// Calls a function with the thread's number, which no other thread gets meanwhile. Not if it has ended.
    pub(crate) fn with_live_thread(&self, with: impl FnOnce(u32)) {
        let _held = self.thread.changing.lock();
        if !self.thread.ended.load(Ordering::Relaxed) {
            with(self.thread.tid);
        }
    }

    /// The kernel's number of the thread, as `top -H` and `perf` show it.
    pub fn tid(&self) -> u32 {
        self.thread.tid
    }

    /// How long the thread of this process has waited for a CPU although it could run; `None` after it has ended, or if
    /// the kernel does not count it (CONFIG_SCHED_INFO). 3 us.
    pub fn waited(&self) -> Option<Span> {
        crate::proc::waited(&format!("/proc/self/task/{}", self.tid()))
    }
}

impl Scheduled for ThreadHandle {
    fn set_policy(&self, policy: ThreadPolicy) -> Result<(), Refused> {
        let _held = self.thread.changing.lock();
        if self.thread.ended.load(Ordering::Relaxed) {
            return Err(Refused::new(KernelRequest::Policy(policy), Errno::SRCH));
        }
        set_policy_of(self.thread.tid, policy)
    }

    /// 0.3 us; in steps of a tick (4 ms at 250 Hz) while the thread runs on another CPU, exact
    /// while it does not run.
    fn cpu_time(&self) -> Option<Span> {
        let time = cpu_time_of(self.thread.tid)?;
        // Check afterwards: if it lived until now, the number was its own all the time.
        (!self.thread.ended.load(Ordering::Acquire)).then_some(time)
    }
}

/// The kernel's number of the calling thread.
pub fn own_thread() -> u32 {
    tid()
}

/// The CPU that runs the calling thread (getcpu(2)).
pub fn own_cpu() -> u32 {
    u32::try_from(rustix::thread::sched_getcpu()).unwrap_or_default()
}

/// Sets the policy of the calling thread, which may have been started without [`Spawn`].
pub fn set_own_policy(policy: ThreadPolicy) -> Result<(), Refused> {
    set_policy_of(0, policy)
}

/// Whether a thread of this process may return from SCHED_IDLE: that needs CAP_SYS_NICE or an RLIMIT_NICE of 20
/// (sched(7)). Tested on a separate thread.
pub fn may_leave_idle() -> bool {
    let tried = std::thread::Builder::new()
        .spawn(|| set_own_policy(ThreadPolicy::Idle).is_ok() && set_own_policy(ThreadPolicy::Other).is_ok());
    tried.is_ok_and(|thread| thread.join().unwrap_or(false))
}

/// Binds the calling thread to one CPU.
pub fn pin_to(cpu: u32) -> Result<(), Refused> {
    let refused = |errno| Refused::new(KernelRequest::Cpu(cpu), errno);
    let mut one = CpuSet::new();
    if cpu as usize >= CpuSet::MAX_CPU {
        return Err(refused(Errno::INVAL));
    }
    one.set(cpu as usize);
    sched_setaffinity(None, &one).map_err(refused)
}

/// CPU time of the calling thread, exact (CLOCK_THREAD_CPUTIME_ID): preemption does not count.
pub fn own_cpu_time() -> Span {
    span_of(clock_gettime(ClockId::ThreadCPUTime))
}

/// The threads of this process: the number of each, its name of at most 15 bytes, and the CPU time that it has used.
///
/// # Errors
///
/// If /proc is not mounted.
pub fn own_threads() -> io::Result<Vec<(u32, String, Span)>> {
    let numbers =
        std::fs::read_dir("/proc/self/task")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    // Not those that have ended meanwhile.
    Ok(numbers.filter_map(|tid| Some((tid, thread_name(tid)?, cpu_time_of(tid)?))).collect())
}

/// A separate frame: otherwise the body's frame would be above the stack that the caller prefaults.
#[inline(never)]
fn call<T>(body: impl FnOnce() -> T) -> T {
    body()
}

struct EndOfLife(Arc<Life>);

impl Drop for EndOfLife {
    fn drop(&mut self) {
        self.0.used.store(own_cpu_time().as_nanos(), Ordering::Relaxed);
        let _held = self.0.changing.lock();
        self.0.ended.store(true, Ordering::Release);
    }
}

/// Pins and schedules the calling thread as far as the kernel allows.
fn pin_and_schedule(cpu: Option<u32>, policy: ThreadPolicy) -> Granted {
    let mut granted = Granted { policy, cpu, refused: Vec::new() };
    if let Some(Err(refused)) = cpu.map(pin_to) {
        granted.cpu = None;
        granted.refused.push(refused);
    }
    // Timers of ordinary threads are 50 us late by default, to save power (prctl(2)); those of real-time threads never
    // are. Set for all: a lane may be demoted.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    if let Err(refused) = set_own_policy(policy) {
        granted.policy = ThreadPolicy::Other;
        granted.refused.push(refused);
        let _ = set_own_policy(ThreadPolicy::Other);
    }
    granted
}

fn set_policy_of(tid: u32, policy: ThreadPolicy) -> Result<(), Refused> {
    let (number, priority) = match policy {
        ThreadPolicy::Fifo(priority) => (libc::SCHED_FIFO, priority),
        ThreadPolicy::Other => (libc::SCHED_OTHER, 0),
        ThreadPolicy::Idle => (libc::SCHED_IDLE, 0),
    };
    set_scheduler(tid, number, priority, true, policy)
}

/// The clock of any thread of this process, by its number: `~tid << 3 | CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED`,
/// which pthread_getcpuclockid(3) computes from a `pthread_t`.
fn cpu_time_of(tid: u32) -> Option<Span> {
    cpu_time_by((!tid as libc::clockid_t) << 3 | 4 | 2)
}

/// The time of a CPU clock; `None` if there is no such clock.
pub(crate) fn cpu_time_by(clock: libc::clockid_t) -> Option<Span> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the kernel to write; an unknown clock is an error, not undefined.
    let done = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (done == 0).then(|| Span::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64))
}

pub(crate) fn last_errno() -> Errno {
    Errno::from_raw_os_error(io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

impl fmt::Display for ThreadPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ThreadPolicy::Fifo(priority) => write!(f, "SCHED_FIFO {priority}"),
            ThreadPolicy::Other => f.write_str("normal priority"),
            ThreadPolicy::Idle => f.write_str("SCHED_IDLE"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, MonotonicClock};
    use crate::wake::Wake;

    fn work(span: Span) {
        let until = own_cpu_time() + span;
        while own_cpu_time() < until {
            std::hint::black_box((0..1000u64).sum::<u64>());
        }
    }

    #[test]
    fn own_threads_have_their_names_and_times() {
        let (sender, receiver) = mpsc::channel();
        let (_go, wait) = mpsc::channel::<()>();
        let worker = Spawn::new("a worker").spawn(move || {
            work(Span::from_millis(3));
            sender.send(own_thread()).unwrap();
            let _ = wait.recv();
        });
        let tid = receiver.recv().unwrap();
        let threads = own_threads().unwrap();
        let (_, name, used) = threads.iter().find(|(one, ..)| *one == tid).unwrap();
        assert_eq!(name, "a worker");
        assert!(*used >= Span::from_millis(3), "{used}");
        drop(_go);
        worker.unwrap().join().unwrap();
    }

    #[test]
    fn a_thread_gets_its_settings_or_the_refusals() {
        let thread =
            Spawn::new("placed").cpu(0).policy(ThreadPolicy::Fifo(45)).spawn(rustix::thread::sched_getcpu).unwrap();
        let granted = thread.granted.clone();
        assert_eq!(granted.in_full(), granted.policy == ThreadPolicy::Fifo(45) && granted.cpu == Some(0));
        let cpu = thread.join().unwrap();
        assert!(granted.cpu.is_none() || cpu == 0);
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_refused_and_the_thread_runs() {
        for cpu in [1000, 100_000] {
            let thread = Spawn::new("nowhere").cpu(cpu).spawn(|| 7).unwrap();
            assert_eq!((thread.granted.cpu, thread.granted.refused.len()), (None, 1));
            assert_eq!(thread.granted.refused[0].asked, KernelRequest::Cpu(cpu));
            assert_eq!(thread.join().unwrap(), 7);
        }
    }

    #[test]
    fn a_whole_stack_can_be_used_after_it_was_touched() {
        // By reference: a value would be copied, and two copies do not fit.
        let deep = || std::hint::black_box(&mut [1u8; 900 << 10]).iter().map(|byte| u64::from(*byte)).sum::<u64>();
        let thread = Spawn::new("deep").stack(1 << 20).spawn(deep).unwrap();
        assert_eq!(thread.join().unwrap(), 900 << 10);
        assert!(Spawn::new("small").stack(0).spawn(|| println!("has room to print")).unwrap().join().is_ok());
    }

    #[test]
    fn names_of_any_length_and_content_are_taken() {
        let name = || std::thread::current().name().map(str::to_owned);
        let thread = Spawn::new("a very long name\0 of a thread").spawn(name).unwrap();
        assert_eq!(thread.join().unwrap().as_deref(), Some("a very long name? of a thread"));
    }

    #[test]
    fn the_policy_changes_from_outside_until_the_thread_ends() {
        let (wake, ending) = (Arc::new(Wake::new()), Arc::new(Wake::new()));
        let (theirs, out) = (wake.clone(), ending.clone());
        let thread = Spawn::new("changed").spawn(move || {
            theirs.wait();
            // SAFETY: no pointers are passed.
            let policy = unsafe { libc::sched_getscheduler(0) };
            out.post();
            policy
        });
        let thread = thread.unwrap();
        let handle = thread.handle.clone();
        handle.set_policy(ThreadPolicy::Idle).unwrap();
        wake.post();
        ending.wait();
        assert_eq!(thread.join().unwrap(), libc::SCHED_IDLE | libc::SCHED_RESET_ON_FORK);
        assert!(handle.set_policy(ThreadPolicy::Other).unwrap_err().is_gone());
        assert_eq!(handle.cpu_time(), None);
    }

    #[test]
    fn threads_that_a_body_starts_do_not_inherit_its_priority() {
        let thread = Spawn::new("parent").policy(ThreadPolicy::Fifo(41)).spawn(|| {
            // SAFETY: no pointers are passed.
            std::thread::spawn(|| unsafe { libc::sched_getscheduler(0) }).join().unwrap()
        });
        assert_eq!(thread.unwrap().join().unwrap() & !libc::SCHED_RESET_ON_FORK, libc::SCHED_OTHER);
    }

    #[test]
    fn cpu_time_counts_work_and_not_sleep_seen_from_inside_and_outside() {
        let (worked, done) = (Arc::new(Wake::new()), Arc::new(Wake::new()));
        let (wake, until_done) = (worked.clone(), done.clone());
        let thread = Spawn::new("worker").spawn(move || {
            let clock = MonotonicClock::start();
            work(Span::from_millis(20));
            clock.sleep_until(clock.now() + Span::from_millis(30));
            let inside = own_cpu_time();
            wake.post();
            until_done.wait();
            inside
        });
        let thread = thread.unwrap();
        worked.wait();
        let outside = thread.handle.cpu_time().unwrap();
        done.post();
        let inside = thread.join().unwrap();
        assert!(inside >= Span::from_millis(20) && inside < Span::from_millis(29), "{inside}");
        assert!(outside >= Span::from_millis(15) && outside < Span::from_millis(35), "{outside}");
    }
}
