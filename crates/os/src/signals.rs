//! SIGINT and SIGTERM as a request to stop: a flag, and a wake-up of the waiting thread. A second one ends the process
//! at once, if a run does not stop on request.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyoshi_model::Instant;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::clock::MonotonicClock;
use crate::wake::{WaitOutcome, Wake};

/// A request to stop, from the keyboard, another process, or this program itself.
#[derive(Clone, Debug)]
pub struct Interrupt {
    requested: Arc<AtomicBool>,
    wake: Arc<Wake>,
}

impl Interrupt {
    /// A request that only [`Interrupt::request`] makes: for tests and embedding programs.
    pub fn manual(wake: Arc<Wake>) -> Self {
        Interrupt { requested: Arc::default(), wake }
    }

    /// From now on the first SIGINT or SIGTERM sets the flag and posts `wake`; the second exits
    /// with 128 plus its number, as shells expect.
    pub fn on_signals(wake: Arc<Wake>) -> io::Result<Self> {
        let interrupt = Interrupt::manual(wake);
        for signal in [SIGINT, SIGTERM] {
            // First, while the flag is still down: actions run in the order of registration.
            flag::register_conditional_shutdown(signal, 128 + signal, interrupt.requested.clone())?;
            let first = interrupt.clone();
            // SAFETY: the action stores to an atomic and posts a Wake, which is an atomic and a
            // futex call: no lock, no allocation, and it cannot panic.
            unsafe { low_level::register(signal, move || first.request()) }?;
        }
        Ok(interrupt)
    }

    /// Requests a stop.
    pub fn request(&self) {
        self.requested.store(true, Ordering::Release);
        self.wake.post();
    }

    /// True after a stop was requested.
    pub fn requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }
}

/// A request to reload files (SIGHUP), as services use it; the process continues.
#[derive(Clone, Debug)]
pub struct Hangup {
    asked: Arc<AtomicBool>,
    wake: Arc<Wake>,
}

impl Hangup {
    /// From now on SIGHUP sets a flag and posts its own wake-up.
    pub fn on_signal() -> io::Result<Self> {
        let hangup = Hangup { asked: Arc::default(), wake: Arc::new(Wake::new()) };
        let heard = hangup.clone();
        // SAFETY: as in `Interrupt::on_signals`.
        unsafe {
            low_level::register(SIGHUP, move || {
                heard.asked.store(true, Ordering::Release);
                heard.wake.post();
            })
        }?;
        Ok(hangup)
    }

    /// Waits for a request, at most until `at`; true if there was one.
    pub fn wait_until(&self, clock: &MonotonicClock, at: Instant) -> bool {
        // A leftover post is not a request.
        while !self.asked.swap(false, Ordering::AcqRel) {
            if self.wake.wait_until(clock, at) == WaitOutcome::TimedOut {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use hyoshi_model::Span;

    use super::*;
    use crate::clock::Clock;

    #[test]
    fn a_hangup_is_a_request_and_no_end() {
        let hangup = Hangup::on_signal().unwrap();
        let clock = MonotonicClock::start();
        assert!(!hangup.wait_until(&clock, clock.now()));
        low_level::raise(SIGHUP).unwrap();
        assert!(hangup.wait_until(&clock, clock.now() + Span::from_secs(10)));
        assert!(!hangup.wait_until(&clock, clock.now()));
    }

    #[test]
    fn the_first_sigterm_wakes_the_waiting_thread_and_the_process_lives() {
        let wake = Arc::new(Wake::new());
        let interrupt = Interrupt::on_signals(wake.clone()).unwrap();
        assert!(!interrupt.requested());
        low_level::raise(SIGTERM).unwrap();
        let clock = MonotonicClock::start();
        let limit: Instant = clock.now() + Span::from_secs(10);
        assert_eq!(wake.wait_until(&clock, limit), WaitOutcome::Posted);
        assert!(interrupt.requested());
    }
}
