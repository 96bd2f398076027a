//! The clock of a run: `CLOCK_MONOTONIC` (clock_gettime(2)) less an origin, so instants start at zero, never jump with
//! the date, and are not slewed by an idle machine.
//!
//! A reading costs about 25 ns (vDSO). Sleeps are absolute (`TIMER_ABSTIME`): a thread that is
//! preempted between reading the clock and sleeping does not wake late by that much.

use hyoshi_model::{Instant, Span};
use rustix::io::Errno;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// A source of time that can sleep. [`crate::fake::FakeClock`] does both without waiting.
pub trait Clock {
    /// The present instant.
    fn now(&self) -> Instant;
    /// Returns at `at`, or at once if that has passed. [`Instant::NEVER`] never returns.
    fn sleep_until(&self, at: Instant);
}

/// `CLOCK_MONOTONIC` counted from an origin. Copies agree: use one in each thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonotonicClock {
    origin: i64,
}

impl MonotonicClock {
    /// A clock that starts now.
    pub fn start() -> Self {
        MonotonicClock { origin: monotonic_nanos() as i64 }
    }

    /// A clock that starts `delay` from now and reads zero until then: the time that a run needs to set up its threads
    /// before the first release.
    pub fn start_in(delay: Span) -> Self {
        MonotonicClock { origin: (monotonic_nanos() as i64).saturating_add_unsigned(delay.as_nanos()) }
    }

    /// A clock with the given origin in nanoseconds of `CLOCK_MONOTONIC`. It is negative if a run on several machines
    /// began before this machine was started.
    pub const fn from_origin(nanos: i64) -> Self {
        MonotonicClock { origin: nanos }
    }

    /// The origin in nanoseconds of `CLOCK_MONOTONIC`, to compare with stamps of `perf` and `ftrace`.
    pub const fn origin(&self) -> i64 {
        self.origin
    }

    /// The instant on this clock of a reading of `CLOCK_MONOTONIC`, zero if before the origin.
    pub const fn instant_of(&self, monotonic_nanos: u64) -> Instant {
        Instant::from_nanos(match self.origin {
            origin @ 0.. => monotonic_nanos.saturating_sub(origin as u64),
            before => monotonic_nanos.saturating_add(before.unsigned_abs()),
        })
    }

    /// The kernel's form of an instant, clamped to the latest `timespec`.
    pub(crate) fn timespec(&self, at: Instant) -> Timespec {
        let nanos = at.as_nanos().saturating_add_signed(self.origin);
        Timespec { tv_sec: (nanos / NANOS) as i64, tv_nsec: (nanos % NANOS) as i64 }
    }
}

impl Clock for MonotonicClock {
    fn now(&self) -> Instant {
        self.instant_of(monotonic_nanos())
    }

    fn sleep_until(&self, at: Instant) {
        let until = self.timespec(at);
        while at == Instant::NEVER || self.now() < at {
            match clock_nanosleep_absolute(ClockId::Monotonic, &until) {
                Ok(()) | Err(Errno::INTR) => {}
                Err(errno) => unreachable!("clock_nanosleep refused a valid time {until:?}: {errno}"),
            }
        }
    }
}

const NANOS: u64 = 1_000_000_000;

pub(crate) fn span_of(time: Timespec) -> Span {
    Span::from_nanos(time.tv_sec as u64 * NANOS + time.tv_nsec as u64)
}

fn monotonic_nanos() -> u64 {
    span_of(clock_gettime(ClockId::Monotonic)).as_nanos()
}

/// Time on CLOCK_MONOTONIC_COARSE: as of the last tick (1 to 10 ms ago), for a fifth of the cost of exact time
/// (clock_gettime(2)). Only differences are meaningful.
#[inline]
pub fn coarse() -> Span {
    span_of(clock_gettime(ClockId::MonotonicCoarse))
}

/// The time on CLOCK_MONOTONIC, to the nanosecond.
#[inline]
pub fn monotonic() -> Span {
    span_of(clock_gettime(ClockId::Monotonic))
}

/// The time since 1970 (CLOCK_REALTIME), as set on the machine.
pub fn unix() -> Span {
    span_of(clock_gettime(ClockId::Realtime))
}

/// A number that identifies this machine's CLOCK_MONOTONIC: another start of the machine has another one, and so has
/// another time namespace (time_namespaces(7)). A hash (FNV-1a) of the kernel's boot id; without /proc, a number of this
/// process alone.
pub fn identity() -> u64 {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    let space = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    let process = || format!("{}.{}", std::process::id(), monotonic().as_nanos());
    let text = format!("{}{}", boot.unwrap_or_else(process), space.display());
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, octet| (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3))
}

/// Seconds since 1970 (CLOCK_REALTIME), as set on the machine.
pub fn unix_seconds() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_starts_at_zero_and_waits_for_an_origin_in_the_future() {
        let clock = MonotonicClock::start_in(Span::from_secs(3600));
        assert_eq!(clock.now(), Instant::ZERO);
        assert!(MonotonicClock::start().now() < Instant::ZERO + Span::from_secs(60));
    }

    #[test]
    fn a_sleep_ends_no_earlier_than_asked_and_not_at_all_for_the_past() {
        let clock = MonotonicClock::start();
        let until = clock.now() + Span::from_millis(3);
        clock.sleep_until(until);
        assert!(clock.now() >= until);
        clock.sleep_until(Instant::ZERO);
    }

    #[test]
    fn instants_and_kernel_times_convert_both_ways() {
        let clock = MonotonicClock::from_origin(1_999_999_999);
        let time = clock.timespec(Instant::from_nanos(2));
        assert_eq!((time.tv_sec, time.tv_nsec), (2, 1));
        assert_eq!(clock.instant_of(span_of(time).as_nanos()), Instant::from_nanos(2));
        assert!(clock.timespec(Instant::NEVER).tv_sec > 0);
    }

    #[test]
    fn an_origin_before_the_machine_s_start_shifts_instants_and_sleeps() {
        let hour = Span::from_secs(3_600);
        let clock = MonotonicClock::from_origin(-(hour.as_nanos() as i64));
        assert_eq!(clock.instant_of(5), Instant::from_nanos(5) + hour);
        let time = clock.timespec(Instant::from_nanos(5) + hour);
        assert_eq!((time.tv_sec, time.tv_nsec), (0, 5));
        assert_eq!(clock.timespec(Instant::ZERO).tv_sec, 0);
        assert!(clock.timespec(Instant::NEVER).tv_sec > 1 << 33);
        let until = clock.now() + Span::from_millis(3);
        clock.sleep_until(until);
        assert!(clock.now() >= until && until > Instant::ZERO + hour);
    }
}
