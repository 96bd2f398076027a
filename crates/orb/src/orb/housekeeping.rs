//! The housekeeping thread. It handles long-running requests, replies that clients do not read, and idle connections.
//! It sleeps while no connection is open.
//!
//! It runs one priority above the highest lane, as a busy lane would preempt it for ever. It never blocks, and does little
//! at a time (256 connections of a lane every 10 ms).

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use hyoshi_model::Span;
use hyoshi_os::{Clock, MonotonicClock, Spawn, ThreadPolicy, set_own_policy};
use hyoshi_wire::ior::IorEndpoint;

use super::{OPENS_WITHIN, Running};
use crate::channel;
use crate::rt::threads::{give_up_late, start_watch};

/// The period while lanes are busy.
const TICK: Span = Span::from_millis(10);
/// The period while connections are open.
const ROUND: Span = Span::from_millis(1000);

/// Starts the thread.
pub(super) fn start(orb: &Arc<Running>) -> std::io::Result<()> {
    let highest = orb
        .lanes
        .load()
        .iter()
        .filter_map(|lane| match lane.policy() {
            ThreadPolicy::Fifo(priority) => Some(priority),
            ThreadPolicy::Other | ThreadPolicy::Idle => None,
        })
        .max()
        .unwrap_or(0);
    orb.shared.housekeeping.outrank(highest);
    let orb = Arc::downgrade(orb);
    Spawn::new("orb-housekeep").stack(128 << 10).policy(above(highest)).spawn(move || run(&orb, highest)).map(drop)
}

fn above(highest: u8) -> ThreadPolicy {
    if highest == 0 { ThreadPolicy::Other } else { ThreadPolicy::Fifo(highest.saturating_add(1).min(99)) }
}

fn run(orb: &Weak<Running>, mut highest: u8) {
    let clock = MonotonicClock::start();
    let mut round = Instant::now();
    let (mut open, mut sweeping, mut warned) = (false, false, false);
    loop {
        let Some(running) = orb.upgrade() else { return };
        let shared = &running.shared;
        if shared.is_stopped() {
            return;
        }
        if shared.housekeeping.highest() > highest {
            highest = shared.housekeeping.highest();
            // Without the privilege no lane has such a priority either.
            let _ = set_own_policy(above(highest));
        }
        let now = Instant::now();
        let lanes = running.lanes.load();
        for lane in lanes.iter() {
            lane.clock();
            lane.tick();
            // Without a further thread the lane continues with those it has.
            let _ = lane.grow();
        }
        start_watch();
        give_up_late(channel::now());
        let left = shared.peers.try_flush();
        if now.duration_since(round) >= Duration::from_millis(900) {
            round = now;
            open = shared.peers.close_idle() || lanes.iter().any(|lane| lane.connections() > 0);
            sweeping = true;
        }
        if sweeping {
            sweeping = false;
            lanes.iter().for_each(|lane| sweeping |= lane.sweep(lane.clock()));
        }
        let at_work = shared.housekeeping.take() || left || sweeping || lanes.iter().any(|lane| lane.is_busy());
        drop(lanes);
        open |= at_work;
        if !shared.housekeeping.set_ticking(at_work) {
            continue;
        }
        // When the ORB ends, it wakes this thread.
        let until = match (at_work, open) {
            (true, _) => clock.now() + TICK,
            (false, true) => clock.now() + ROUND,
            (false, false) => hyoshi_model::Instant::NEVER,
        };
        let until = match running.opening_due().filter(|_| !warned) {
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
        let housekeeping = shared.housekeeping.clone();
        drop(running);
        housekeeping.wait_until(&clock, until);
    }
}

/// The warning for a program that binds ports and does not serve them.
fn never_opened(endpoints: &[IorEndpoint]) -> String {
    let at: Vec<_> = endpoints
        .iter()
        .map(|endpoint| match endpoint {
            IorEndpoint::Tcp { host, port, .. } | IorEndpoint::Tls { host, port, .. } => format!("{host}:{port}"),
            IorEndpoint::Unix { path, .. } => path.clone(),
        })
        .collect();
    format!(
        "hyoshi: clients at {} wait: the program has called neither Orb::ready nor Orb::run for {} s; call one of them \
         when the objects are activated",
        at.join(", "),
        OPENS_WITHIN.as_secs(),
    )
}
