//! The costs of queues: sections of the processor's lock, called without threads.

use std::sync::Arc;

use hyoshi_model::{Instant, Span, System};
use hyoshi_os::priority::lane_priority;
use hyoshi_os::{Clock, MonotonicClock, Spawn, ThreadPolicy};
use hyoshi_sched::Plan;
use hyoshi_trace::{DispatchDecision, JobOutcome, TraceEvent};

use super::{CalibrateError, share, system};
use crate::measure::ManualProcessor;
use crate::start_error::StartError;

/// The time between two releases.
const PERIOD: Span = Span::from_millis(1);
const BATCH: u64 = 20;
const BATCHES: u64 = 1_000;

/// The costs of enqueueing and of cancelling a job.
pub(super) fn queues(cpu: u32) -> Result<[Vec<Span>; 2], CalibrateError> {
    let (system, plan) = system(&queues_file())?;
    let spawn = Spawn::new("queues").cpu(cpu).policy(ThreadPolicy::Fifo(lane_priority(0)));
    let thread = spawn.spawn(move || {
        let [releases, cancels] = sections(system, &plan, BATCHES);
        let enqueue = releases.iter().map(|section| section.took);
        let cancel = cancels.iter().map(|section| share(section.took, section.cancelled));
        [enqueue.collect(), cancel.collect()]
    });
    thread.map_err(StartError::Thread)?.join().map_err(|_| CalibrateError::Broken)
}

fn queues_file() -> String {
    let mut text = String::from("name = \"queues\"\n[processor.main]\ncancel = true\ncap = \"100%\"\n");
    for number in 0..BATCH {
        let operation = format!("[operation.o{number}]\nevery = \"{BATCH}ms\"\nphase = \"{number}ms\"\n");
        text += &format!("{operation}wcet = \"0.1ms\"\nqueue = {{ limit = 64 }}\n");
    }
    text
}

/// A timed section of the lock, and its effects.
#[derive(Clone, Copy, Debug, Default)]
struct TimedSection {
    took: Span,
    ready: u64,
    cancelled: u64,
}

/// Sections that release one job each, and sections that cancel three batches.
fn sections(system: Arc<System>, plan: &Plan, batches: u64) -> [Vec<TimedSection>; 2] {
    let (exchange, mut drain) = ManualProcessor::new(system, plan, 1 << 12);
    let mut side = exchange.side();
    let clock = clock_cost();
    let (mut releases, mut cancels) = (Vec::new(), Vec::new());
    let mut at = Instant::ZERO;
    let mut did = |took: Span| {
        let mut section = TimedSection { took: took.saturating_sub(clock), ..TimedSection::default() };
        drain.drain(|_, event| {
            section.ready += u64::from(matches!(event, TraceEvent::Decision(DispatchDecision::Ready { .. })));
            section.cancelled += u64::from(was_cancelled(&event));
        });
        section
    };
    for batch in 0..2 * batches {
        for _ in 0..BATCH {
            let before = side.now();
            side.release(at);
            releases.push(did(side.now().since(before)));
            at += PERIOD;
        }
        if batch % 2 == 0 {
            // In time, one after the other.
            while side.take(0, at) {}
        } else {
            // Late: all of them, and two more batches released meanwhile.
            at += PERIOD * (BATCH * 2 - 1);
            side.release(at);
            at += PERIOD * BATCH;
            did(Span::ZERO);
            let before = side.now();
            side.take(0, at);
            cancels.push(did(side.now().since(before)));
            // Handle due events before the next timed release.
            side.release(at);
            while side.take(0, at) {}
            at += PERIOD;
        }
        did(Span::ZERO);
    }
    [releases, cancels]
}

fn was_cancelled(event: &TraceEvent) -> bool {
    matches!(event, TraceEvent::Decision(DispatchDecision::End(end)) if end.outcome == JobOutcome::Cancelled)
}

/// The cost of a reading of the clock.
fn clock_cost() -> Span {
    let clock = MonotonicClock::start();
    let mut nanos: Vec<u64> = (0..1_000)
        .map(|_| {
            let before = clock.now();
            clock.now().since(before).as_nanos()
        })
        .collect();
    nanos.sort_unstable();
    Span::from_nanos(nanos[nanos.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_timed_section_releases_one_job_or_cancels_sixty() {
        let (system, plan) = system(&queues_file()).unwrap();
        let [releases, cancels] = sections(system, &plan, 5);
        let did = |sections: &[TimedSection]| sections.iter().map(|one| (one.ready, one.cancelled)).collect::<Vec<_>>();
        assert_eq!(did(&releases), [(1, 0); 2 * 5 * BATCH as usize]);
        assert_eq!(did(&cancels), [(0, 60); 5]);
    }
}
