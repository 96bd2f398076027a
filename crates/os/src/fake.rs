//! Fakes of the kernel: code that uses clocks and threads can be tested unprivileged, without waiting, and with every
//! refusal.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hyoshi_model::{Instant, Span};
use rustix::io::Errno;

use crate::clock::Clock;
use crate::refusal::{KernelRequest, Refused};
use crate::sensors::MachineSensors;
use crate::switches::{SwitchSource, SwitchVisibility, Switched};
use crate::thread::{Scheduled, ThreadPolicy};

/// Sensors with the values that a test sets. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct FakeSensors(Arc<Mutex<(Option<f64>, Option<f64>)>>);

impl FakeSensors {
    /// Sets the temperature and the charge of the battery.
    pub fn set(&self, temperature: Option<f64>, battery: Option<f64>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (temperature, battery);
    }
}

impl MachineSensors for FakeSensors {
    fn temperature(&mut self) -> Option<f64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    fn battery(&mut self) -> Option<f64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

/// A clock that does not advance until it is set; a sleep sets it to the target instant.
#[derive(Debug, Default)]
pub struct FakeClock {
    now: AtomicU64,
}

impl FakeClock {
    /// A clock at the start of a run.
    pub fn new() -> Self {
        FakeClock::default()
    }

    /// Advances the time.
    pub fn advance(&self, by: Span) {
        self.now.fetch_add(by.as_nanos(), Ordering::AcqRel);
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.now.load(Ordering::Acquire))
    }

    /// # Panics
    ///
    /// On [`Instant::NEVER`]: a test would otherwise hang.
    fn sleep_until(&self, at: Instant) {
        assert!(at != Instant::NEVER, "a fake clock was asked to sleep for ever");
        self.now.fetch_max(at.as_nanos(), Ordering::AcqRel);
    }
}

/// A thread that records its scheduling; the test sets its consumption.
#[derive(Debug, Default)]
pub struct FakeThread {
    refuses_fifo: bool,
    policies: Mutex<Vec<ThreadPolicy>>,
    consumed: AtomicU64,
}

impl FakeThread {
    /// A thread that accepts every policy.
    pub fn new() -> Self {
        FakeThread::default()
    }

    /// A thread of a process without privileges: SCHED_FIFO is refused with EPERM.
    pub fn unprivileged() -> Self {
        FakeThread { refuses_fifo: true, ..FakeThread::default() }
    }

    /// Adds consumption.
    pub fn consume(&self, span: Span) {
        self.consumed.fetch_add(span.as_nanos(), Ordering::AcqRel);
    }

    /// The policies that were set, in order.
    pub fn policies(&self) -> Vec<ThreadPolicy> {
        self.policies.lock().unwrap_or_else(|broken| broken.into_inner()).clone()
    }
}

impl Scheduled for FakeThread {
    fn set_policy(&self, policy: ThreadPolicy) -> Result<(), Refused> {
        if self.refuses_fifo && matches!(policy, ThreadPolicy::Fifo(_)) {
            return Err(Refused::new(KernelRequest::Policy(policy), Errno::PERM));
        }
        self.policies.lock().unwrap_or_else(|broken| broken.into_inner()).push(policy);
        Ok(())
    }

    fn cpu_time(&self) -> Option<Span> {
        Some(Span::from_nanos(self.consumed.load(Ordering::Acquire)))
    }
}

/// Switches that the test supplies, in the place of the kernel's.
#[derive(Debug)]
pub struct FakeSwitches {
    visibility: SwitchVisibility,
    arrived: std::collections::VecDeque<(u64, Switched)>,
}

impl FakeSwitches {
    /// A source with this sight, and no events yet.
    pub fn new(visibility: SwitchVisibility) -> Self {
        FakeSwitches { visibility, arrived: Default::default() }
    }

    /// Adds an event at a time of `CLOCK_MONOTONIC`, in nanoseconds.
    pub fn push(&mut self, at: u64, switched: Switched) {
        self.arrived.push_back((at, switched));
    }
}

impl SwitchSource for FakeSwitches {
    fn drain(&mut self, each: &mut dyn FnMut(u64, Switched)) {
        self.arrived.drain(..).for_each(|(at, switched)| each(at, switched));
    }

    fn visibility(&self) -> SwitchVisibility {
        self.visibility
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_on_a_fake_clock_lasts_no_time_and_never_turns_the_clock_back() {
        let clock = FakeClock::new();
        clock.sleep_until(Instant::from_nanos(7));
        clock.sleep_until(Instant::from_nanos(5));
        clock.advance(Span::from_nanos(3));
        assert_eq!(clock.now(), Instant::from_nanos(10));
    }

    #[test]
    fn a_fake_thread_refuses_as_the_kernel_does_and_records_the_rest() {
        let thread = FakeThread::unprivileged();
        assert!(thread.set_policy(ThreadPolicy::Fifo(50)).is_err());
        assert_eq!(thread.set_policy(ThreadPolicy::Idle), Ok(()));
        assert_eq!(thread.policies(), [ThreadPolicy::Idle]);
    }
}
