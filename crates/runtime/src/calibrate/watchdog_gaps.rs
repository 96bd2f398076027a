//! The cost of the watchdog: gaps in a spinning lane's readings of the clock.

use std::sync::{Arc, Mutex, PoisonError};

use hyoshi_model::{OperationId, Span};
use hyoshi_os::priority::{WATCHDOG, lane_priority};
use hyoshi_os::{Clock, Scheduled, Spawn, ThreadPolicy, own_cpu_time};

use super::CalibrateError;
use super::experiment::{EXPIRIES, LEAST_GAP, PERIOD, ROUND, ROUNDS, SPIN, StolenTime, leave_out};
use crate::measure::ManualProcessor;
use crate::start_error::StartError;
use crate::watchdog::BodyWatchdog;

/// The gaps in a lane when the watchdog checks it on the same CPU.
pub(super) fn watchdog_gaps(cpu: u32) -> Result<(Vec<Span>, (usize, Span)), CalibrateError> {
    let (system, plan) = EXPIRIES.system()?;
    let (exchange, _drain) = ManualProcessor::new(system, &plan, 1 << 4);
    let processor = exchange.into_processor();
    let (common, watched) = (processor.common.clone(), processor.clone());
    let begin = Arc::new(hyoshi_os::Wake::new());
    let lane = Spawn::new("spin").cpu(cpu).policy(ThreadPolicy::Fifo(lane_priority(0)));
    let (go, watching) = (begin.clone(), Arc::new(Mutex::new(None::<hyoshi_os::ThreadHandle>)));
    let watcher = watching.clone();
    let lane = lane.spawn(move || {
        go.wait();
        let mut seen = Vec::with_capacity(1 << 12);
        let handle = watcher.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(handle) = handle else { return seen };
        processor.control[0].begin(OperationId(0), own_cpu_time());
        let clock = *processor.common.clock();
        for _ in 0..ROUNDS / 4 {
            let began = clock.now();
            let (mut last, mut used) = (began, handle.cpu_time());
            while last.since(began) < SPIN {
                let now = clock.now();
                if now.since(last) >= LEAST_GAP {
                    // Whether the watchdog caused it.
                    let uses = handle.cpu_time();
                    if uses > used {
                        seen.push(now.since(last));
                    }
                    (used, last) = (uses, clock.now());
                } else {
                    last = now;
                }
            }
            clock.sleep_until(last + ROUND.saturating_sub(SPIN));
        }
        processor.control[0].end();
        processor.common.watchdog.post();
        seen
    });
    let lane = lane.map_err(StartError::Thread)?;
    let watchdog = BodyWatchdog { common, watched: vec![(watched, vec![lane.handle.clone()])], period: PERIOD };
    let spawn = Spawn::new("hyoshi-watch").cpu(cpu).policy(ThreadPolicy::Fifo(WATCHDOG));
    let watchdog = spawn.spawn(move || watchdog.watch());
    if let Ok(watchdog) = &watchdog {
        *watching.lock().unwrap_or_else(PoisonError::into_inner) = Some(watchdog.handle.clone());
    }
    let mut host = StolenTime::of(cpu);
    begin.post();
    let mut seen = lane.join().map_err(|_| CalibrateError::Broken)?;
    watchdog.map_err(StartError::Thread)?.join().map_err(|_| CalibrateError::Broken)?;
    let stolen = leave_out(&mut seen, host.took(), |gap| *gap);
    Ok((seen, stolen))
}
