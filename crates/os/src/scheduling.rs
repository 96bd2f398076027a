//! The scheduling of other programs' threads: read, changed, and restored exactly (sched_getattr(2),
//! sched_setscheduler(2), sched_setaffinity(2)).
//!
//! Facts on which this file relies, each tested below if the machine allows it:
//!
//! - sched_setscheduler(2) to and from SCHED_FIFO keeps a thread's nice value and its slice, and the program's own
//!   changes of them meanwhile; so neither is ever written here.
//! - A child of a thread with SCHED_RESET_ON_FORK is ordinary, and has a nice value of 0: no thread stays at a
//!   real-time priority because it was born between two checks.
//! - Leaving SCHED_DEADLINE while asleep leaks the bandwidth for ever (kernels 6.1 and 6.18), and leaving it while
//!   throttled leaves a mark: a thread that returns with it never runs again, not even to be killed (6.18). See
//!   [`Scheduling::restore`] and [`crate::progress`].

use std::fmt;

use hyoshi_model::Span;
use rustix::io::Errno;
use rustix::process::{Pid, getpriority_process, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::progress::is_throttled;
use crate::refusal::{KernelRequest, Refused};
use crate::thread::{ThreadPolicy, last_errno};

/// The scheduling of a thread, from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// Its class with its parameters.
    pub class: SchedulingClass,
    /// Its children do not inherit a real-time class, nor a nice value below 0.
    pub reset_on_fork: bool,
}

/// The classes of sched(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
pub enum SchedulingClass {
    /// SCHED_OTHER, SCHED_BATCH, SCHED_IDLE or SCHED_EXT, by the kernel's number: they share time.
    Fair(u32),
    /// SCHED_FIFO at a priority.
    Fifo(u8),
    /// SCHED_RR at a priority.
    RoundRobin(u8),
    /// SCHED_DEADLINE.
    Deadline(Bandwidth),
}

/// The parameters of SCHED_DEADLINE (sched_setattr(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
pub struct Bandwidth {
    /// Nanoseconds of CPU time in each period, at least 1024.
    pub runtime: u64,
    /// Nanoseconds within which it has it.
    pub deadline: u64,
    /// Nanoseconds, up to 4.19 s if the kernel's settings are unchanged.
    pub period: u64,
    /// SCHED_FLAG_RECLAIM and SCHED_FLAG_DL_OVERRUN, as they were.
    pub flags: u64,
}

/// The CPUs that a thread may run on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Affinity(CpuSet);

/// The bandwidth of a thread before it leaves SCHED_DEADLINE: the kernel's minimum.
const LEAST: Bandwidth = Bandwidth { runtime: 1_100, deadline: 4_194_000_000, period: 4_194_000_000, flags: 0 };

/// How often a thread that raises itself again is lowered at once.
const LOWERINGS: u32 = 16;

const RESET_ON_FORK: u64 = 0x01;
const RECLAIM: u64 = 0x02;
const DL_OVERRUN: u64 = 0x04;

/// `struct sched_attr` of linux/sched/types.h, in its first version.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

impl SchedulingClass {
    /// Whether a kernel has such a class: of those that share time, SCHED_OTHER, SCHED_BATCH, SCHED_IDLE and SCHED_EXT.
    pub fn is_known(&self) -> bool {
        const EXT: u32 = 7;
        let fair = [libc::SCHED_OTHER as u32, libc::SCHED_BATCH as u32, libc::SCHED_IDLE as u32, EXT];
        !matches!(self, SchedulingClass::Fair(number) if !fair.contains(number))
    }
}

impl Scheduling {
    /// SCHED_OTHER, as threads are born.
    pub const ORDINARY: Scheduling =
        Scheduling { class: SchedulingClass::Fair(libc::SCHED_OTHER as u32), reset_on_fork: false };

    /// Of a thread, by its number. 0.4 us.
    ///
    /// # Errors
    ///
    /// If there is no such thread.
    pub fn of(tid: u32) -> Result<Self, Refused> {
        number(tid)?;
        let mut found = Attributes::default();
        let size = size_of::<Attributes>() as u32;
        // SAFETY: the kernel writes at most `size` bytes behind the pointer, during the call only.
        let done = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut found, size, 0) };
        if done != 0 {
            return Err(Refused::new(KernelRequest::Policy(ThreadPolicy::Other), last_errno()));
        }
        let priority = found.priority.min(99) as u8;
        let class = match found.policy as i32 {
            libc::SCHED_FIFO => SchedulingClass::Fifo(priority),
            libc::SCHED_RR => SchedulingClass::RoundRobin(priority),
            libc::SCHED_DEADLINE => SchedulingClass::Deadline(Bandwidth {
                runtime: found.runtime,
                deadline: found.deadline,
                period: found.period,
                flags: found.flags & (RECLAIM | DL_OVERRUN),
            }),
            _ => SchedulingClass::Fair(found.policy),
        };
        Ok(Scheduling { class, reset_on_fork: found.flags & RESET_ON_FORK != 0 })
    }

    /// Restores a thread's scheduling, except for its nice value, which was not changed. A SCHED_DEADLINE thread is
    /// shrunk to the least bandwidth before it leaves: if it sleeps, the kernel would otherwise keep its bandwidth
    /// reserved, even after its end. One that was throttled stays marked for hours: code that assigns it bandwidth
    /// again must check that it runs, and [free](Scheduling::free) it if not.
    ///
    /// # Errors
    ///
    /// If the thread has ended, or without the privilege; EAGAIN if the thread undoes it again and again.
    pub fn restore(&self, tid: u32) -> Result<(), Refused> {
        number(tid)?;
        // The calling thread does not sleep; if it were throttled between the two calls, it would be so for hours, and
        // could not be killed.
        if tid != crate::own_thread()
            && let Ok(Scheduling { class: SchedulingClass::Deadline(_), .. }) = Scheduling::of(tid)
        {
            set_deadline(tid, LEAST, true)?;
        }
        if tid == crate::own_thread() || !self.is_fair() { self.give(tid) } else { self.lower(tid) }
    }

    /// The kernel checks whether a thread may change its own priority before it acquires the lock: a call that found
    /// the thread still raised can undo this one. Setting it twice lets calls that already wait for the lock run first;
    /// then check the result.
    fn lower(&self, tid: u32) -> Result<(), Refused> {
        for _ in 0..LOWERINGS {
            self.give(tid)?;
            self.give(tid)?;
            if !Scheduling::of(tid).is_ok_and(|found| !found.is_fair() && found.reset_on_fork) {
                return Ok(());
            }
        }
        Err(Refused::new(KernelRequest::Policy(ThreadPolicy::Other), rustix::io::Errno::AGAIN))
    }

    /// As [`Scheduling::restore`], for a thread that hangs ([`crate::progress`]): leaving with its present bandwidth,
    /// long after its debt was due, removes the mark. For a sleeping thread this would leak the bandwidth.
    ///
    /// # Errors
    ///
    /// If the thread has ended, or without the privilege.
    pub fn free(&self, tid: u32) -> Result<(), Refused> {
        number(tid)?;
        if is_throttled(tid) { self.give(tid) } else { self.restore(tid) }
    }

    fn give(&self, tid: u32) -> Result<(), Refused> {
        match self.class {
            SchedulingClass::Fair(number) => {
                set_scheduler(tid, number as i32, 0, self.reset_on_fork, ThreadPolicy::Other)
            }
            SchedulingClass::Fifo(priority) => {
                set_scheduler(tid, libc::SCHED_FIFO, priority, self.reset_on_fork, ThreadPolicy::Fifo(priority))
            }
            SchedulingClass::RoundRobin(priority) => {
                set_scheduler(tid, libc::SCHED_RR, priority, self.reset_on_fork, ThreadPolicy::Fifo(priority))
            }
            SchedulingClass::Deadline(bandwidth) => set_deadline(tid, bandwidth, self.reset_on_fork),
        }
    }

    /// True of SCHED_OTHER and similar classes: those that a window may raise.
    pub fn is_fair(&self) -> bool {
        matches!(self.class, SchedulingClass::Fair(_))
    }
}

/// Raises a thread to SCHED_FIFO; its children are ordinary. 0.5 us if it sleeps, 10 if it runs elsewhere.
///
/// # Errors
///
/// If the thread has ended, without the privilege, or in a control group without real-time budget.
pub fn raise(tid: u32, priority: u8) -> Result<(), Refused> {
    set_scheduler(tid, libc::SCHED_FIFO, priority, true, ThreadPolicy::Fifo(priority))
}

/// Assigns a thread its own bandwidth; its children are ordinary.
///
/// # Errors
///
/// EBUSY if the kernel has already reserved too much, EPERM without the privilege or if the thread may not run on every
/// CPU.
pub fn reserve(tid: u32, runtime: Span, deadline: Span, period: Span) -> Result<(), Refused> {
    let [runtime, deadline, period] = [runtime, deadline, period].map(Span::as_nanos);
    number(tid)?;
    set_deadline(tid, Bandwidth { runtime, deadline, period, flags: 0 }, true)
}

/// A thread's nice value.
///
/// # Errors
///
/// If there is no such thread.
pub fn nice_of(tid: u32) -> Result<i32, Refused> {
    getpriority_process(Some(number(tid)?))
        .map_err(|errno| Refused::new(KernelRequest::Policy(ThreadPolicy::Other), errno))
}

/// Sets a thread's nice value.
///
/// # Errors
///
/// If the thread has ended, or without the privilege.
pub fn set_nice(tid: u32, nice: i32) -> Result<(), Refused> {
    setpriority_process(Some(number(tid)?), nice)
        .map_err(|errno| Refused::new(KernelRequest::Policy(ThreadPolicy::Other), errno))
}

/// By system call: musl's sched_setscheduler always fails, and glibc's is the same call. Thread 0 is the calling one.
pub(crate) fn set_scheduler(
    tid: u32,
    number: i32,
    priority: u8,
    reset: bool,
    asked: ThreadPolicy,
) -> Result<(), Refused> {
    // A struct of one int, on Linux, whatever else musl's type has.
    let priority = libc::c_int::from(priority);
    let number = if reset { number | libc::SCHED_RESET_ON_FORK } else { number };
    // SAFETY: the kernel reads one int behind the pointer, during the call only.
    let done = unsafe { libc::syscall(libc::SYS_sched_setscheduler, tid, number, &raw const priority) };
    if done == 0 { Ok(()) } else { Err(Refused::new(KernelRequest::Policy(asked), last_errno())) }
}

fn set_deadline(tid: u32, bandwidth: Bandwidth, reset: bool) -> Result<(), Refused> {
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_DEADLINE as u32,
        flags: bandwidth.flags | if reset { RESET_ON_FORK } else { 0 },
        runtime: bandwidth.runtime,
        deadline: bandwidth.deadline,
        period: bandwidth.period,
        ..Attributes::default()
    };
    // SAFETY: the kernel reads `size` bytes behind the pointer, during the call only.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const attributes, 0) };
    if done == 0 { Ok(()) } else { Err(Refused::new(KernelRequest::Deadline(bandwidth), last_errno())) }
}

impl Affinity {
    /// Of a thread, by its number. 0.3 us.
    ///
    /// # Errors
    ///
    /// If there is no such thread.
    pub fn of(tid: u32) -> Result<Self, Refused> {
        sched_getaffinity(Some(number(tid)?)).map(Affinity).map_err(|errno| Refused::new(KernelRequest::Cpu(0), errno))
    }

    /// These CPUs; those beyond the size of a set are omitted.
    pub fn to(cpus: impl IntoIterator<Item = u32>) -> Self {
        let mut set = CpuSet::new();
        cpus.into_iter().filter(|cpu| (*cpu as usize) < CpuSet::MAX_CPU).for_each(|cpu| set.set(cpu as usize));
        Affinity(set)
    }

    /// Sets it for a thread.
    ///
    /// # Errors
    ///
    /// If the thread has ended, without the privilege, or if none of the CPUs is allowed to it.
    pub fn put(&self, tid: u32) -> Result<(), Refused> {
        let first = self.cpus().next().unwrap_or_default();
        sched_setaffinity(Some(number(tid)?), &self.0).map_err(|errno| Refused::new(KernelRequest::Cpu(first), errno))
    }

    /// True if the CPU is among them.
    pub fn has(&self, cpu: u32) -> bool {
        (cpu as usize) < CpuSet::MAX_CPU && self.0.is_set(cpu as usize)
    }

    /// Those of both.
    pub fn and(&self, other: &Affinity) -> Affinity {
        Affinity::to(self.cpus().filter(|cpu| other.has(*cpu)))
    }

    /// The CPUs in their order.
    pub fn cpus(&self) -> impl Iterator<Item = u32> + '_ {
        (0..CpuSet::MAX_CPU as u32).filter(|cpu| self.0.is_set(*cpu as usize))
    }
}

fn number(tid: u32) -> Result<Pid, Refused> {
    // 0 would be the calling thread.
    i32::try_from(tid).ok().and_then(Pid::from_raw).ok_or(Refused::new(KernelRequest::Cpu(0), Errno::SRCH))
}

impl fmt::Debug for Affinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Affinity({})", crate::cpu::cpu_list(&self.cpus().collect::<Vec<_>>()))
    }
}

impl fmt::Display for SchedulingClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SchedulingClass::Fair(number) => match *number as i32 {
                libc::SCHED_OTHER => f.write_str("SCHED_OTHER"),
                libc::SCHED_BATCH => f.write_str("SCHED_BATCH"),
                libc::SCHED_IDLE => f.write_str("SCHED_IDLE"),
                _ => write!(f, "policy {number}"),
            },
            SchedulingClass::Fifo(priority) => write!(f, "SCHED_FIFO {priority}"),
            SchedulingClass::RoundRobin(priority) => write!(f, "SCHED_RR {priority}"),
            SchedulingClass::Deadline(bandwidth) => write!(f, "SCHED_DEADLINE {bandwidth}"),
        }
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [runtime, period] = [self.runtime, self.period].map(Span::from_nanos);
        write!(f, "{runtime} of {period}")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::privileges::missing;
    use crate::progress::ThreadProgress;

    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Self {
            Sleeper(Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().expect("coreutils' sleep"))
        }

        fn tid(&self) -> u32 {
            self.0.id()
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_thread_is_put_back_as_it_was_and_keeps_what_it_changed_of_its_nice_value() {
        let sleeper = Sleeper::start();
        let tid = sleeper.tid();
        set_nice(tid, 3).unwrap();
        let before = Scheduling::of(tid).unwrap();
        assert_eq!(before, Scheduling { class: SchedulingClass::Fair(libc::SCHED_OTHER as u32), reset_on_fork: false });
        if let Err(refused) = raise(tid, 21) {
            return missing(format_args!("root or CAP_SYS_NICE: {refused}"));
        }
        assert_eq!(Scheduling::of(tid).unwrap(), Scheduling { class: SchedulingClass::Fifo(21), reset_on_fork: true });
        set_nice(tid, 7).unwrap();
        before.restore(tid).unwrap();
        assert_eq!((Scheduling::of(tid).unwrap(), nice_of(tid).unwrap()), (before, 7));
        for class in [
            SchedulingClass::Fair(libc::SCHED_BATCH as u32),
            SchedulingClass::Fair(libc::SCHED_IDLE as u32),
            SchedulingClass::RoundRobin(3),
        ] {
            let other = Scheduling { class, reset_on_fork: true };
            other.restore(tid).unwrap();
            assert_eq!(Scheduling::of(tid).unwrap(), other);
        }
    }

    #[test]
    fn a_thread_may_run_on_what_it_is_given() {
        let sleeper = Sleeper::start();
        let before = Affinity::of(sleeper.tid()).unwrap();
        let one = before.cpus().next().unwrap();
        Affinity::to([one]).put(sleeper.tid()).unwrap();
        assert_eq!(Affinity::of(sleeper.tid()).unwrap().cpus().collect::<Vec<_>>(), [one]);
        before.put(sleeper.tid()).unwrap();
        assert_eq!(Affinity::of(sleeper.tid()).unwrap(), before);
        assert!(Affinity::to([1_000_000]).put(sleeper.tid()).is_err());
        assert_eq!(before.and(&Affinity::to([one])), Affinity::to([one]));
    }

    #[test]
    fn a_missing_thread_is_refused_as_gone() {
        for tid in [u32::MAX, 4_194_305] {
            assert!(Scheduling::of(tid).is_err());
            assert!(raise(tid, 21).is_err());
            assert!(Affinity::of(tid).unwrap_err().is_gone());
        }
    }

    /// The bandwidth that SCHED_DEADLINE still admits, in millionths of a CPU: binary search with a sleeper.
    fn admitted(tid: u32) -> u64 {
        let before = Scheduling::of(tid).unwrap();
        let (mut fits, mut not) = (0, 1_000_001);
        while not - fits > 1_000 {
            let tried = (fits + not) / 2;
            let period = Span::from_millis(100);
            match reserve(tid, Span::from_nanos(tried * 100), period, period) {
                Ok(()) => fits = tried,
                Err(_) => not = tried,
            }
            before.restore(tid).unwrap();
        }
        fits
    }

    /// Of a thread that computes without end: its further CPU time after a while.
    fn runs_on(tid: u32) -> bool {
        let ran = || ThreadProgress::of(tid).unwrap().ran;
        let before = ran();
        (0..10).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            ran() > before
        })
    }

    #[test]
    fn one_that_left_its_bandwidth_while_it_had_used_it_up_is_freed_and_runs_when_it_has_some_again() {
        let mut spinner = Command::new("sh");
        let spinner = spinner.args(["-c", "while kill -0 $PPID; do :; done 2>&-"]).stdin(Stdio::null());
        let spinner = Sleeper(spinner.spawn().expect("sh"));
        let (tid, period) = (spinner.tid(), Span::from_millis(50));
        let before = Scheduling::of(tid).unwrap();
        let mut hung = 0;
        for round in 0..4 {
            if let Err(refused) = reserve(tid, Span::from_millis(8), period, period) {
                return missing(format_args!("root and SCHED_DEADLINE: {refused}"));
            }
            let used_up = (0..1_000).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(1));
                is_throttled(tid)
            });
            assert!(used_up, "{round}");
            before.restore(tid).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(60));
            reserve(tid, Span::from_millis(8), period, period).unwrap();
            let mut runs = runs_on(tid);
            hung += usize::from(!runs);
            for _ in 0..5 {
                if !runs {
                    before.free(tid).unwrap();
                    reserve(tid, Span::from_millis(8), period, period).unwrap();
                    runs = runs_on(tid);
                }
            }
            before.restore(tid).unwrap();
            assert!(runs, "{round}: it hangs");
        }
        println!("{hung} of 4 hung until they were freed");
    }

    /// Twenty sleepers of 40 % each run one after the other, and so do twenty that end while they have it: if a single
    /// one's bandwidth were kept, the fifth would be refused on two CPUs.
    #[test]
    fn a_sleeper_that_leaves_its_class_returns_its_bandwidth() {
        let probe = Sleeper::start();
        let (budget, period) = (Span::from_millis(40), Span::from_millis(100));
        if let Err(refused) = reserve(probe.tid(), Span::from_millis(1), period, period) {
            return missing(format_args!("root and SCHED_DEADLINE: {refused}"));
        }
        Scheduling { class: SchedulingClass::Fair(0), reset_on_fork: false }.restore(probe.tid()).unwrap();
        let free = admitted(probe.tid());
        let cpus = fs::read_to_string("/proc/cpuinfo").map_or(1, |text| text.matches("processor\t").count());
        for round in 0..cpus * 10 {
            let sleeper = Sleeper::start();
            let before = Scheduling::of(sleeper.tid()).unwrap();
            if free >= 400_000 {
                reserve(sleeper.tid(), budget, period, period).unwrap_or_else(|refused| panic!("{round}: {refused}"));
                assert!(matches!(Scheduling::of(sleeper.tid()).unwrap().class, SchedulingClass::Deadline(_)));
            }
            if round % 2 == 0 {
                before.restore(sleeper.tid()).unwrap();
                assert_eq!(Scheduling::of(sleeper.tid()).unwrap(), before);
            }
        }
        // The kernel returns the bandwidth of an ended thread a while after its end, at its zero-lag instant.
        let mut left = admitted(probe.tid());
        for _ in 0..100 {
            if left + 2_000 >= free {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
            left = admitted(probe.tid());
        }
        panic!("{left} of {free} millionths of a CPU are left");
    }
}
