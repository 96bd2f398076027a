//! Above everything of ours, and on nobody's path: looks every 50 ms whether a body has run away
//! with its CPU, or a release thread cannot get it.
//!
//! A body that used a second of CPU time in one job, or twenty times its worst case, does not come
//! back: its thread is put below everything and left behind, and the run ends with its name.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyoshi_model::{OperationId, Span, System};
use hyoshi_os::{Clock, Scheduled, ThreadHandle, ThreadPolicy};

use crate::common::Common;
use crate::ended::EndedBy;
use crate::processor::Processor;

const LEAST_LIMIT: Span = Span::from_secs(1);
const TIMES_WORST_CASE: u64 = 20;
/// A release thread may be so late before it is noted.
const LATE: Span = Span::from_secs(1);

/// What the watchdog watches, and what it saw.
#[derive(Debug)]
pub(crate) struct Watchdog {
    pub common: Arc<Common>,
    /// Each processor and its lane threads.
    pub watched: Vec<(Arc<Processor>, Vec<ThreadHandle>)>,
    /// From one look to the next.
    pub period: Span,
}

/// How late a release thread was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Late {
    pub by: Span,
    pub times: u64,
}

impl Watchdog {
    /// Watches until it is posted. What it returns is for each processor how late releases were.
    pub fn watch(self) -> Vec<Late> {
        let clock = *self.common.clock();
        let mut late = vec![Late::default(); self.watched.len()];
        let mut next = clock.now() + self.period;
        while self.common.watchdog.wait_until(&clock, next) == hyoshi_os::WaitOutcome::TimedOut {
            let now = clock.now();
            for ((processor, threads), late) in self.watched.iter().zip(&mut late) {
                for (signs, thread) in processor.signs.iter().zip(threads) {
                    let Some((operation, since)) = signs.body() else { continue };
                    let consumed = thread.cpu_time().map_or(Span::ZERO, |time| time.saturating_sub(since));
                    let limit = limit(&self.common.system, operation);
                    // Unless it is another job's by now.
                    if consumed > limit && signs.body() == Some((operation, since)) {
                        signs.abandoned.store(true, Ordering::SeqCst);
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

/// The CPU time after which a job of an operation counts as run away.
pub(crate) fn limit(system: &System, operation: OperationId) -> Span {
    let settings = system.epochs.iter().map(|epoch| &epoch.settings[operation.index()]);
    // Built-in work that is told to take long has not run away.
    let longest = settings.map(|setting| setting.wcet.max(setting.execution_time.longest())).max().unwrap_or_default();
    let times = longest.checked_mul(TIMES_WORST_CASE).unwrap_or(Span::from_nanos(u64::MAX));
    times.max(LEAST_LIMIT)
}
