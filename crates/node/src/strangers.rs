//! The pace of clients that are not peers: calls without a session, refused introductions, operators without
//! permission.
//!
//! Each connection has a thread of its own, above the lanes. A pause before the answer therefore bounds the work of one
//! connection; beyond a common rate, pauses are longer, so that the work of all of them together is bounded, too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyoshi_os::PiMutex;

use crate::peer::Allowance;

/// The pause before the answer to a stranger.
pub(crate) const PENALTY: Duration = Duration::from_millis(10);

/// The same beyond the common rate.
const LONG_PENALTY: Duration = Duration::from_millis(100);

/// Calls of all strangers a second, and at once, before pauses become longer.
const RATE: u64 = 100;
const BURST: u64 = 200;

/// Counts and delays the calls of strangers.
#[derive(Debug)]
pub(crate) struct Strangers {
    refused: AtomicU64,
    /// Connections that were refused to leave room for peers.
    connections: OnceLock<Arc<AtomicU64>>,
    allowance: PiMutex<Allowance>,
}

impl Strangers {
    pub fn new() -> Self {
        let connections = OnceLock::new();
        Strangers { refused: AtomicU64::new(0), connections, allowance: PiMutex::new(Allowance::new(RATE, BURST)) }
    }

    /// Before a call is refused at `now`, in ns: counts it, and waits.
    pub fn refuse(&self, now: u64) {
        self.count();
        self.delay(now);
    }

    /// Counts a refused message, without a pause.
    pub fn count(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Before a call that every client may make.
    pub fn delay(&self, now: u64) {
        std::thread::sleep(self.pause(now));
    }

    /// Counts these connections, too.
    pub fn watch(&self, connections: Arc<AtomicU64>) {
        // A node listens once.
        let _ = self.connections.set(connections);
    }

    /// Refused calls and connections.
    pub fn refused(&self) -> u64 {
        let connections = self.connections.get().map_or(0, |count| count.load(Ordering::Relaxed));
        self.refused.load(Ordering::Relaxed) + connections
    }

    fn pause(&self, now: u64) -> Duration {
        if self.allowance.lock().take(now) { PENALTY } else { LONG_PENALTY }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_calls_are_delayed_longer_and_few_are_not() {
        let strangers = Strangers::new();
        let start = 5_000_000_000;
        let short = |now| strangers.pause(now) == PENALTY;
        assert_eq!((0..3 * BURST).filter(|_| short(start)).count() as u64, BURST);
        // A thousand calls within the next second.
        let taken = (1..=1_000).filter(|step| short(start + step * 1_000_000)).count() as u64;
        assert!((RATE - 1..=RATE).contains(&taken), "{taken}");
        assert!(short(start + 3_000_000_000), "they have rested");
        assert_eq!(strangers.refused(), 0);
    }
}
