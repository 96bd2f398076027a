//! Events for the CPU time of threads of other processes: a task-clock counter for each thread that overflows once
//! (perf_event_open(2)), and one epoll(7) descriptor that is readable when any of them has overflowed.
//!
//! The event arrives 30 us late at a receiver on the same CPU and 100 us late on another CPU. `cargo run --release -p
//! hyoshi-os --example budget_events` compares it with the kernel's other events.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use hyoshi_model::Span;
use perf_event::events::Software;
use perf_event::{Builder, Sampler};
use rustix::event::{EventfdFlags, epoll, eventfd};

use crate::lock::PiMutex;

/// A set of alarms, and where they are reported. Clones share the set.
#[derive(Clone, Debug)]
pub struct Alarms(Arc<AlarmSet>);

#[derive(Debug)]
struct AlarmSet {
    epoll: OwnedFd,
    /// Ends a wait.
    poke: OwnedFd,
    /// Reported by the kernel and not returned yet. Polling a counter consumes its report, so no other poll(2) can
    /// watch the descriptor: a waiting thread stores its reports here.
    reported: PiMutex<Vec<(u64, AlarmReport)>>,
}

/// An alarm of one thread: two pages of locked memory and a descriptor.
///
/// ```text
///   Silent ── set ──► Armed ── the thread has run for so long ──► Silent, reported once
///                     │   ▲
///                     └───┘ set: counts again
/// ```
pub struct Alarm {
    sampler: Sampler,
    set: Arc<AlarmSet>,
    key: u64,
    armed: bool,
}

/// The report of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmReport {
    /// The thread has run for the set time.
    Ran,
    /// The thread has ended.
    Ended,
}

/// Bytes of a ring: the kernel wakes pollers only of counters that have one.
const RING: usize = 8 << 10;
/// The kernel does not count shorter times.
const LEAST: Span = Span::from_micros(10);
/// Set while it is silent.
const NEVER: u64 = 1 << 50;

// Of linux/perf_event.h: _IO('$', 2) and _IOW('$', 4, __u64).
const REFRESH: libc::c_ulong = 0x2402;
const PERIOD: libc::c_ulong = 0x4008_2404;

/// The key of the descriptor that ends a wait.
const POKED: u64 = u64::MAX;
/// The key of descriptors that end a wait while they are readable.
const WATCHED: u64 = u64::MAX - 1;

impl Alarms {
    /// Without alarms.
    ///
    /// # Errors
    ///
    /// The kernel's, for too many descriptors.
    pub fn new() -> io::Result<Alarms> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let poke = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &poke, epoll::EventData::new_u64(POKED), epoll::EventFlags::IN)?;
        Ok(Alarms(Arc::new(AlarmSet { epoll, poke, reported: PiMutex::default() })))
    }

    /// From now on a wait also ends while the descriptor is readable: it may be another epoll.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn watch(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::add(&self.0.epoll, descriptor, epoll::EventData::new_u64(WATCHED), epoll::EventFlags::IN)?)
    }

    /// An alarm of a thread, silent at first, reported under this key, which is below `u64::MAX - 1`. 10 us.
    ///
    /// # Errors
    ///
    /// The kernel's: EACCES or EPERM by `kernel.perf_event_paranoid` above 1 without CAP_PERFMON, ESRCH for a thread
    /// that has ended, EMFILE, ENOMEM for too much locked memory.
    pub fn of(&self, tid: u32, key: u64) -> io::Result<Alarm> {
        let tid = i32::try_from(tid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
        let mut builder = Builder::new(Software::TASK_CLOCK);
        // Without the kernel's part, an overflow that finds the thread in a system call is skipped, and the thread runs
        // for the same time again.
        builder.observe_pid(tid).any_cpu().include_kernel().sample_period(NEVER).wakeup_events(1);
        let sampler = builder.build()?.sampled(RING)?;
        let alarm = Alarm { sampler, set: self.0.clone(), key, armed: false };
        epoll::add(&self.0.epoll, alarm.fd(), epoll::EventData::new_u64(key), epoll::EventFlags::ONESHOT)?;
        Ok(alarm)
    }

    /// Returns the alarms reported since the last call, each once. Does not wait.
    pub fn reported(&self, mut each: impl FnMut(u64, AlarmReport)) {
        self.take_in(Some(Span::ZERO));
        let came = std::mem::take(&mut *self.0.reported.lock());
        came.into_iter().for_each(|(key, report)| each(key, report));
    }

    /// Waits until an alarm is reported, without consuming the report, or for [`Alarms::poke`].
    pub fn wait(&self, timeout: Option<Span>) {
        self.take_in(timeout);
    }

    /// Ends a wait, now or the next.
    pub fn poke(&self) {
        let _ = rustix::io::write(&self.0.poke, &1u64.to_ne_bytes());
    }

    fn take_in(&self, timeout: Option<Span>) {
        const AT_ONCE: usize = 64;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; AT_ONCE];
        let limit = timeout.map(|span| libc::timespec {
            tv_sec: (span.as_nanos() / 1_000_000_000) as _,
            tv_nsec: (span.as_nanos() % 1_000_000_000) as _,
        });
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // epoll_pwait2(2): its timeout is in nanoseconds (Linux 5.11).
        // SAFETY: events and timeout live for the call, no signal mask is passed.
        let ready = unsafe {
            let none = std::ptr::null::<libc::sigset_t>();
            let (epoll, most) = (self.0.epoll.as_raw_fd(), AT_ONCE as libc::c_int);
            libc::syscall(libc::SYS_epoll_pwait2, epoll, events.as_mut_ptr(), most, limit, none, 0usize)
        };
        let ready = usize::try_from(ready).unwrap_or(0).min(AT_ONCE);
        let mut came = Vec::new();
        for event in &events[..ready] {
            let (flags, key) = (event.events, event.u64);
            if key == WATCHED {
                continue;
            }
            if key == POKED {
                let _ = rustix::io::read(&self.0.poke, &mut [0; 8][..]);
                continue;
            }
            came.push((key, if flags & libc::EPOLLHUP as u32 != 0 { AlarmReport::Ended } else { AlarmReport::Ran }));
        }
        if !came.is_empty() {
            self.0.reported.lock().append(&mut came);
        }
    }
}

impl Alarm {
    /// Reports when the thread has run for this time from now, instead of the earlier setting; at least 10 us. 2 to 10
    /// us.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn set(&mut self, after: Span) -> io::Result<()> {
        let nanos = after.max(LEAST).as_nanos().min(NEVER);
        if !self.armed {
            // Old records; the ring must not be full.
            while self.sampler.next_record().is_some() {}
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
            epoll::modify(&self.set.epoll, self.fd(), epoll::EventData::new_u64(self.key), flags)?;
        }
        // SAFETY: the kernel reads 8 bytes, which live for the call.
        check(unsafe { libc::ioctl(self.raw(), PERIOD as _, &raw const nanos) })?;
        if !self.armed {
            // SAFETY: no memory is passed. One overflow, then the counter disables itself.
            check(unsafe { libc::ioctl(self.raw(), REFRESH as _, 1) })?;
            self.armed = true;
        }
        Ok(())
    }

    /// Marks it as reported: it is silent until it is set again.
    pub fn acknowledge(&mut self) {
        self.armed = false;
    }

    fn raw(&self) -> RawFd {
        self.sampler.as_raw_fd()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the counter is open for as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.raw()) }
    }
}

fn check(done: libc::c_int) -> io::Result<()> {
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarm").field("key", &self.key).field("armed", &self.armed).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::privileges::missing;
    use crate::{MonotonicClock, Spawn, Wake, own_cpu_time};

    #[test]
    fn it_reports_once_when_the_thread_has_run_for_so_long_and_again_when_it_is_set_again() {
        reports_once_and_again(|| {
            std::hint::black_box((0..10_000u64).sum::<u64>());
        });
    }

    #[test]
    fn it_reports_a_thread_that_is_in_system_calls() {
        let zero = std::fs::File::open("/dev/zero").unwrap();
        let into = std::cell::RefCell::new(vec![0; 256 << 10]);
        reports_once_and_again(move || std::io::Read::read_exact(&mut &zero, &mut into.borrow_mut()).unwrap());
    }

    fn reports_once_and_again(work: impl Fn() + Send + 'static) {
        let alarms = Alarms::new().unwrap();
        let (runs, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (theirs, until) = (runs.clone(), ends.clone());
        let thread = Spawn::new("runs").spawn(move || {
            while !until.load(Ordering::Relaxed) {
                match theirs.load(Ordering::Relaxed) {
                    true => work(),
                    false => std::thread::sleep(std::time::Duration::from_millis(1)),
                }
            }
            own_cpu_time()
        });
        let thread = thread.unwrap();
        let mut alarm = match alarms.of(thread.handle.tid(), 7) {
            Ok(alarm) => alarm,
            Err(error) => {
                ends.store(true, Ordering::Relaxed);
                thread.join().unwrap();
                return missing(format_args!("task-clock events: {error}"));
            }
        };
        let (clock, wake) = (MonotonicClock::start(), Wake::new());
        wake.attend(&alarms);
        let reported = || {
            let mut all = Vec::new();
            alarms.reported(|key, acknowledge| all.push((key, acknowledge)));
            all
        };
        let wait = |all: &mut Vec<(u64, AlarmReport)>| {
            let limit = std::time::Instant::now() + std::time::Duration::from_secs(30);
            while all.is_empty() && std::time::Instant::now() < limit {
                wake.wait_until(&clock, crate::Clock::now(&clock) + Span::from_secs(1));
                *all = reported();
            }
        };
        assert_eq!(reported(), []);
        let mut all_ran = Span::ZERO;
        for _ in 0..10 {
            let before = crate::Scheduled::cpu_time(&thread.handle).unwrap_or_default();
            alarm.set(Span::from_millis(5)).unwrap();
            runs.store(true, Ordering::Relaxed);
            let mut all = Vec::new();
            wait(&mut all);
            assert_eq!(all, [(7, AlarmReport::Ran)]);
            let ran = crate::Scheduled::cpu_time(&thread.handle).unwrap_or_default().saturating_sub(before);
            assert!(ran >= Span::from_millis(4), "{ran}");
            all_ran += ran;
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert_eq!(reported(), [], "once");
            alarm.acknowledge();
            runs.store(false, Ordering::Relaxed);
        }
        assert!(all_ran <= Span::from_millis(200), "{all_ran} in ten times 5 ms");
        alarm.set(Span::from_secs(100)).unwrap();
        ends.store(true, Ordering::Relaxed);
        thread.join().unwrap();
        let mut all = Vec::new();
        wait(&mut all);
        assert_eq!(all, [(7, AlarmReport::Ended)]);
    }
}
