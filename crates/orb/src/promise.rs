//! A value that one thread sets and others wait for, each with its own time limit.

use std::sync::OnceLock;
use std::time::Instant;

use hyoshi_model::Span;
use hyoshi_os::{Clock, MonotonicClock, Wake};

/// See the module.
#[derive(Debug)]
pub(crate) struct Promise<T> {
    value: OnceLock<T>,
    kept: Wake,
}

impl<T> Promise<T> {
    pub(crate) const fn new() -> Self {
        Promise { value: OnceLock::new(), kept: Wake::new() }
    }

    /// Sets the value and wakes all waiting threads. Later values are ignored.
    pub(crate) fn keep(&self, value: T) {
        let _ = self.value.set(value);
        self.kept.post();
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.value.get().is_some()
    }

    /// Waits for the value. `None` at the time limit.
    pub(crate) fn wait(&self, until: Option<Instant>) -> Option<&T> {
        loop {
            if let Some(value) = self.value.get() {
                // A post wakes one thread, which wakes the next.
                self.kept.post();
                return Some(value);
            }
            if !wait(&self.kept, until) {
                return None;
            }
        }
    }
}

/// Waits for a post; may return without one. False at the time limit.
pub(crate) fn wait(wake: &Wake, until: Option<Instant>) -> bool {
    let Some(until) = until else {
        wake.wait();
        return true;
    };
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return false;
    }
    let clock = MonotonicClock::start();
    wake.wait_until(&clock, clock.now() + Span::from_nanos(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)));
    true
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn all_waiting_threads_get_the_value_except_after_their_time_limit() {
        let promise = Arc::new(Promise::new());
        let waiting: Vec<_> = (0..5)
            .map(|_| {
                let promise = promise.clone();
                thread::spawn(move || promise.wait(None).copied())
            })
            .collect();
        assert_eq!(promise.wait(Some(Instant::now() + Duration::from_millis(5))), None);
        promise.keep(7);
        promise.keep(8);
        assert!(waiting.into_iter().all(|thread| thread.join().unwrap() == Some(7)));
        assert_eq!(promise.wait(Some(Instant::now())), Some(&7), "no wait for a known value");
    }
}
