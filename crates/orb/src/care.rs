//! The thread that tends what nobody else does: requests that run long, replies that are not taken, connections
//! that nobody uses. It sleeps while nothing is open.
//!
//! Its rule: it runs one priority above the highest lane, or a lane that is busy all the time would keep it from ever
//! looking; it waits for nobody, and does little at a time (256 connections of a lane every 10 ms). Where a lane has a
//! real-time priority, all threads are started at once: waiting for one to begin would be waiting for ordinary threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use hyoshi_model::Span;
use hyoshi_os::{Clock, MonotonicClock, Policy, Spawn, Wake};
use hyoshi_wire::ior::Endpoint;

use crate::builder::OPENS_WITHIN;
use crate::orb::Shared;

/// While lanes are at work.
const TICK: Span = Span::from_millis(10);
/// While connections are open.
const ROUND: Span = Span::from_millis(1000);

/// How others reach the thread.
#[derive(Debug, Default)]
pub(crate) struct Care {
    wake: Wake,
    /// Set by whoever works, cleared by each tick.
    stirred: AtomicBool,
    /// The next tick comes by itself.
    ticking: AtomicBool,
}

impl Care {
    /// Something is at work. `urgent` if a lane has no idle thread left.
    #[inline]
    pub(crate) fn stir(&self, urgent: bool) {
        if !self.stirred.load(Ordering::Relaxed) {
            self.stirred.store(true, Ordering::SeqCst);
        }
        if urgent || !self.ticking.load(Ordering::SeqCst) {
            self.wake.post();
        }
    }

    /// Wakes it to end.
    pub(crate) fn end(&self) {
        self.wake.post();
    }
}

/// Starts the thread.
pub(crate) fn start(orb: &Arc<Shared>) -> std::io::Result<()> {
    let highest = orb.lanes().iter().filter_map(|lane| match lane.policy() {
        Policy::Fifo(priority) => Some(priority),
        Policy::Other | Policy::Idle => None,
    });
    let policy = highest.max().map_or(Policy::Other, |highest| Policy::Fifo(highest.saturating_add(1).min(99)));
    let orb = Arc::downgrade(orb);
    Spawn::new("orb-care").stack(128 << 10).policy(policy).spawn(move || tend(&orb)).map(drop)
}

fn tend(orb: &Weak<Shared>) {
    let clock = MonotonicClock::start();
    let mut round = Instant::now();
    let (mut open, mut sweeping, mut warned) = (false, false, false);
    loop {
        let Some(shared) = orb.upgrade() else { return };
        if shared.is_stopped() {
            return;
        }
        let now = Instant::now();
        for lane in shared.lanes() {
            lane.clock();
            lane.tick();
            // Without a further thread the lane goes on with those it has.
            let _ = lane.grow();
        }
        let left = shared.peers.try_flush();
        if now.duration_since(round) >= Duration::from_millis(900) {
            round = now;
            open = shared.peers.tend() || shared.lanes().iter().any(|lane| lane.connections() > 0);
            sweeping = true;
        }
        if sweeping {
            sweeping = false;
            shared.lanes().iter().for_each(|lane| sweeping |= lane.sweep(lane.clock()));
        }
        let at_work = shared.care.stirred.swap(false, Ordering::Relaxed)
            || left
            || sweeping
            || shared.lanes().iter().any(|lane| lane.is_busy());
        open |= at_work;
        shared.care.ticking.store(at_work, Ordering::SeqCst);
        if !at_work && shared.care.stirred.load(Ordering::SeqCst) {
            continue;
        }
        // The ORB may end while nobody looks: it wakes this thread up then.
        let until = match (at_work, open) {
            (true, _) => clock.now() + TICK,
            (false, true) => clock.now() + ROUND,
            (false, false) => hyoshi_model::Instant::NEVER,
        };
        let until = match shared.opening_due().filter(|_| !warned) {
            None => until,
            Some(due) => match due.saturating_duration_since(Instant::now()) {
                Duration::ZERO => {
                    warned = true;
                    eprintln!("{}", never_opened(&shared.endpoints));
                    until
                }
                left => until.min(clock.now() + Span::from_nanos(left.as_nanos() as u64)),
            },
        };
        let wake = shared.clone();
        drop(shared);
        wake.care.wake.wait_until(&clock, until);
    }
}

/// The warning for a program that binds ports and does not serve them.
fn never_opened(endpoints: &[Endpoint]) -> String {
    let at: Vec<_> = endpoints
        .iter()
        .map(|endpoint| match endpoint {
            Endpoint::Tcp { host, port, .. } | Endpoint::Tls { host, port, .. } => format!("{host}:{port}"),
            Endpoint::Unix { path, .. } => path.clone(),
        })
        .collect();
    format!(
        "hyoshi: clients at {} wait: the program has called neither Orb::ready nor Orb::run for {} s; call one of them \
         when the objects are activated",
        at.join(", "),
        OPENS_WITHIN.as_secs(),
    )
}
