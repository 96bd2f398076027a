//! A late job, and why it was late, in words.

use hyoshi_model::{Instant, Span, System};
use hyoshi_trace::JobEnd;
use hyoshi_trace::stats::{Causes, Chief};

use crate::figures::time;
use crate::summary::{CausesSummary, MissSummary};

pub(crate) fn miss(system: &System, end: &JobEnd) -> MissSummary {
    let causes = Causes::of(system, end);
    let epoch = &system.epochs[usize::from(end.epoch).min(system.epochs.len() - 1)];
    let setting = &epoch.settings[end.job.operation.index()];
    let operation = &system.operation(end.job.operation).name;
    let leg = if setting.legs > 1 { format!("/{}", end.job.leg) } else { String::new() };
    let reached = |instant: Instant| (instant != Instant::NEVER).then_some(instant.as_nanos());
    MissSummary {
        job: format!("{operation}#{}{leg}", end.job.number),
        operation: operation.clone(),
        critical: end.critical,
        epoch: epoch.name.clone(),
        origin_at_ns: end.origin.as_nanos(),
        release_at_ns: end.release.as_nanos(),
        ready_at_ns: reached(end.ready),
        start_at_ns: reached(end.start),
        end_at_ns: end.end.as_nanos(),
        deadline_at_ns: end.deadline.as_nanos(),
        lateness_ns: end.end.lateness(end.deadline).as_nanos(),
        causes: CausesSummary {
            upstream_ns: causes.upstream.as_nanos(),
            released_late_ns: causes.released_late.as_nanos(),
            waited_ns: causes.waited.as_nanos(),
            executed_ns: causes.executed.as_nanos(),
            overran_ns: causes.overran.as_nanos(),
            held_ns: causes.held.as_nanos(),
        },
        chief: match causes.chief() {
            Chief::Upstream => "upstream",
            Chief::ReleasedLate => "released-late",
            Chief::Waited => "waited",
            Chief::Overran => "overran",
            Chief::Held => "held",
            Chief::TooShort => "too-short",
        },
        explanation: explain(&causes, end, setting.wcet),
    }
}

fn explain(causes: &Causes, end: &JobEnd, wcet: Span) -> String {
    let time = |span| time(span);
    match causes.chief() {
        Chief::Upstream if end.job.leg > 0 => {
            format!("came {} after its release, behind the legs before it", time(causes.upstream))
        }
        Chief::Upstream => {
            format!("came {} after the first release, behind the operations before it", time(causes.upstream))
        }
        Chief::ReleasedLate if end.ready == Instant::NEVER => {
            format!("was held back for {} and never queued", time(causes.released_late))
        }
        Chief::ReleasedLate => format!("was queued {} after its release", time(causes.released_late)),
        Chief::Waited if end.start == Instant::NEVER => {
            format!("waited {} for other jobs and never started", time(causes.waited))
        }
        Chief::Waited => format!("waited {} for other jobs before it started", time(causes.waited)),
        Chief::Overran => format!("ran {} longer than its declared {}", time(causes.overran), time(wcet)),
        Chief::Held => format!("was preempted or blocked for {} once started", time(causes.held)),
        Chief::TooShort => format!("has less time than the {} it takes", time(causes.executed)),
    }
}
