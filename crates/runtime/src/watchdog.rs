//! The watchdog of a run: every 50 ms it checks for bodies that do not return and for release threads that do not get
//! their CPU. It runs above all other threads and delays only the CPU that it uses.
//!
//! A job that used a second of CPU time, or twenty times its worst case, will not return: its thread is abandoned at
//! normal priority, and the run ends with the operation's name.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyoshi_model::{OperationId, Span, System};
use hyoshi_os::{Clock, Scheduled, ThreadHandle, ThreadPolicy};

use crate::common::CommonState;
use crate::ended::EndedBy;
use crate::processor::ProcessorState;

const LEAST_LIMIT: Span = Span::from_secs(1);
const TIMES_WORST_CASE: u64 = 20;
/// The lateness of a release thread that is noted.
const LATE: Span = Span::from_secs(1);

/// A watchdog and the threads that it checks.
#[derive(Debug)]
pub(crate) struct BodyWatchdog {
    pub common: Arc<CommonState>,
    /// Each processor and its lane threads.
    pub watched: Vec<(Arc<ProcessorState>, Vec<ThreadHandle>)>,
    /// The time between two checks.
    pub period: Span,
}

/// The lateness of a release thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LateReleases {
    pub by: Span,
    pub times: u64,
}

impl BodyWatchdog {
    /// Checks until it is woken. Returns the lateness of each processor's releases.
    pub fn watch(self) -> Vec<LateReleases> {
        let clock = *self.common.clock();
        let mut late = vec![LateReleases::default(); self.watched.len()];
        let mut next = clock.now() + self.period;
        while self.common.watchdog.wait_until(&clock, next) == hyoshi_os::WaitOutcome::TimedOut {
            let now = clock.now();
            for ((processor, threads), late) in self.watched.iter().zip(&mut late) {
                for (control, thread) in processor.control.iter().zip(threads) {
                    let Some((operation, since)) = control.body() else { continue };
                    let consumed = thread.cpu_time().map_or(Span::ZERO, |time| time.saturating_sub(since));
                    let limit = limit(&self.common.system, operation);
                    // The clock may belong to the next job.
                    if consumed > limit && control.body() == Some((operation, since)) {
                        control.abandoned.store(true, Ordering::SeqCst);
                        let _ = thread.set_policy(ThreadPolicy::Other);
                        let operation = self.common.system.operation(operation).name.clone();
                        self.common.end(EndedBy::Runaway { operation, consumed, limit });
                    }
                }
                let armed = self.common.releases[processor.id.index()].asleep_until.load(Ordering::Relaxed);
                let by = now.since(hyoshi_model::Instant::from_nanos(armed));
                if by > LATE {
                    (late.by, late.times) = (late.by.max(by), late.times + 1);
                }
            }
            next = now + self.period;
        }
        late
    }
}

/// The limit of CPU time for a job of an operation.
pub(crate) fn limit(system: &System, operation: OperationId) -> Span {
    let settings = system.epochs.iter().map(|epoch| &epoch.settings[operation.index()]);
    // Built-in work that must run long has not run away.
    let longest = settings.map(|setting| setting.wcet.max(setting.execution_time.longest())).max().unwrap_or_default();
    let times = longest.checked_mul(TIMES_WORST_CASE).unwrap_or(Span::from_nanos(u64::MAX));
    times.max(LEAST_LIMIT)
}
