//! Reads CancelRequests while all threads of a lane are busy: a thread of the process, above all lanes.
//!
//! ```text
//!             a request brings a thread              found at work twice            octets arrive
//!   asleep ──────────────────────────────► ticks ──────────────────────► watches ─────────────────► reads, and leaves
//!      ▲                                     │                            what is no CancelRequest to the lane
//!      └─────────────────────────────────────┘ no such request for some ticks
//! ```
//!
//! So a brief request costs nothing here, and a longer one can be cancelled after two ticks at the latest. Connections
//! that carry calls both ways, and those of an order, have readers of their own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hyoshi_os::{Poller, Ready, Spawn, ThreadPolicy, set_own_policy};

use super::registry::find_at_work;
use crate::current::Served;
use crate::housekeeping;

const TICK: Duration = Duration::from_micros(500);
/// Ticks without a request at work before it sleeps.
const QUIET: u32 = 4;
/// Octets of a read.
const BUFFER: usize = 16 << 10;

static TICKS: AtomicBool = AtomicBool::new(false);
static POLLER: OnceLock<Option<&'static Poller>> = OnceLock::new();

/// A thread arrived with a request: the watch looks for it from now on.
#[inline]
pub(super) fn wake() {
    if !TICKS.load(Ordering::SeqCst) {
        poke();
    }
}

#[cold]
fn poke() {
    if !TICKS.swap(true, Ordering::SeqCst)
        && let Some(Some(poller)) = POLLER.get()
    {
        poller.poke();
    }
}

/// Starts the thread once it is needed. Called by housekeeping threads: a lane's must not wait for it.
pub(crate) fn start_watch() {
    if !TICKS.load(Ordering::Relaxed) || POLLER.get().is_some() {
        return;
    }
    POLLER.get_or_init(|| {
        // It lives as long as the process, like its thread.
        let poller: &'static Poller = Box::leak(Box::new(Poller::new().ok()?));
        let watch =
            CancelWatch { poller, watched: HashMap::new(), resting: Vec::new(), buffer: vec![0; BUFFER], quiet: 0 };
        // Without the thread, cancels wait for a thread of their lane.
        Spawn::new("orb-cancels").stack(128 << 10).spawn(move || watch.run()).ok().map(|_| poller)
    });
}

struct CancelWatch {
    poller: &'static Poller,
    /// By their numbers in the poller: their addresses.
    watched: HashMap<u64, Arc<dyn Served>>,
    /// They were read since the last tick, and are watched again from the next one on: a client that sends without pause
    /// has one read a tick.
    resting: Vec<(u64, Arc<dyn Served>)>,
    buffer: Vec<u8>,
    quiet: u32,
}

impl CancelWatch {
    fn run(mut self) {
        let (mut highest, mut tick, mut at_work) = (0, Instant::now(), Vec::new());
        let mut found = [(Ready::Poked, false); 16];
        loop {
            let above = housekeeping::highest_of_all();
            if above > highest {
                highest = above;
                // Without the privilege no lane has such a priority either.
                let _ = set_own_policy(ThreadPolicy::Fifo(above.saturating_add(1).min(99)));
            }
            let ticks = TICKS.load(Ordering::SeqCst);
            let left = ticks.then(|| tick.saturating_duration_since(Instant::now()));
            let count = self.poller.wait_for_several(left, &mut found).unwrap_or(0);
            for (ready, _) in &found[..count] {
                if let Ready::Source(number) = ready
                    && let Some(connection) = self.watched.remove(number)
                {
                    self.read(*number, connection);
                }
            }
            if ticks && Instant::now() >= tick {
                tick = Instant::now() + TICK;
                self.tick(&mut at_work);
            }
        }
    }

    /// Reads a connection that is not watched. While its request runs, it rests until the next tick.
    fn read(&mut self, number: u64, connection: Arc<dyn Served>) {
        if connection.clone().read_cancels(&mut self.buffer) {
            TICKS.store(true, Ordering::SeqCst);
            self.resting.push((number, connection));
        }
    }

    fn tick(&mut self, at_work: &mut Vec<(Arc<dyn Served>, u64)>) {
        for (number, connection) in self.resting.drain(..) {
            if connection.watch(self.poller, number).is_ok() {
                self.watched.insert(number, connection);
            }
        }
        let mut any = find_at_work(at_work);
        for (connection, epoch) in at_work.drain(..) {
            let number = Arc::as_ptr(&connection).cast::<()>() as u64;
            if !self.watched.contains_key(&number) && connection.offer(epoch) {
                // What has arrived may wait already, behind the request that runs.
                self.read(number, connection);
            }
        }
        self.quiet = if any { 0 } else { self.quiet + 1 };
        if self.quiet > QUIET {
            TICKS.store(false, Ordering::SeqCst);
            // One that arrived just before has found that it ticks.
            any = find_at_work(at_work);
            at_work.clear();
            if any {
                TICKS.store(true, Ordering::SeqCst);
            }
        }
    }
}
