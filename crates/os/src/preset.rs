//! Sets the timer of a CPU for an instant before any thread sleeps until then.
//!
//! The kernel sets a CPU's timer for the earliest instant that a thread or a timer waits for there. In a virtual machine
//! this costs about 5 us, because the hypervisor sets it. A thread that wakes a less urgent one and then sleeps until its
//! own next instant delays the other one by that much. If the instant is preset, the sleep sets nothing: the
//! interrupt of the timer before has set the CPU's timer for it, as it does for whatever is next.

use std::os::fd::OwnedFd;

use hyoshi_model::Instant;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::clock::MonotonicClock;

/// A timer that wakes no thread (timerfd_create(2), never read). Preset to an instant until which no thread sleeps, it costs one
/// interrupt; nothing else depends on it.
#[derive(Debug)]
pub struct PresetTimer(Option<OwnedFd>);

impl PresetTimer {
    /// A timer that is not set. If the kernel refuses one, setting it does nothing.
    pub fn new() -> Self {
        PresetTimer(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).ok())
    }

    /// Sets it on this thread's CPU, instead of its instant before. Costs 0.7 us while a thread sleeps there until an
    /// earlier instant; otherwise it sets the CPU's timer itself.
    pub fn set(&self, clock: &MonotonicClock, at: Instant) {
        let Some(timer) = &self.0 else { return };
        let once = Itimerspec { it_interval: Timespec::default(), it_value: clock.timespec(at) };
        let set = timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &once);
        debug_assert!(set.is_ok(), "{set:?}");
    }
}

impl Default for PresetTimer {
    fn default() -> Self {
        PresetTimer::new()
    }
}

#[cfg(test)]
mod tests {
    use hyoshi_model::Span;

    use super::*;
    use crate::clock::Clock;

    #[test]
    fn it_expires_once_at_the_instant_that_was_set_last() {
        let (clock, preset) = (MonotonicClock::start(), PresetTimer::new());
        let at = clock.now() + Span::from_millis(3);
        preset.set(&clock, at + Span::from_secs(3600));
        preset.set(&clock, at);
        let mut times = [0; 8];
        rustix::io::read(preset.0.as_ref().unwrap(), &mut times).unwrap();
        assert_eq!(u64::from_ne_bytes(times), 1);
        assert!(clock.now() >= at);
    }
}
