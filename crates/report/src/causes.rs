//! A late job, and the cause of its lateness as text.

use hyoshi_model::{Instant, Span, System};
use hyoshi_trace::JobEnd;
use hyoshi_trace::stats::{Phase, Phases};

use crate::blamed::{self, GROUPS, group};
use crate::figures::time;
use crate::input::ReportInput;
use crate::lateness::most_behind;
use crate::summary::{CausesSummary, MissSummary};

pub(crate) fn miss(account: &ReportInput<'_>, end: &JobEnd) -> MissSummary {
    let system: &System = account.system;
    let blame = account.figures.causes.and_then(|seen| seen.breakdown(end.job));
    let behind = blame.and_then(|blame| most_behind(system, blame));
    let phases = Phases::of(system, end);
    let epoch = &system.epochs[usize::from(end.epoch).min(system.epochs.len() - 1)];
    let operation = &system.operation(end.job.operation).name;
    let reached = |instant: Instant| (instant != Instant::NEVER).then_some(instant.as_nanos());
    MissSummary {
        job: blamed::name_of(system, end.job),
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
            upstream_ns: phases.upstream.as_nanos(),
            released_late_ns: phases.released_late.as_nanos(),
            waited_ns: phases.waited.as_nanos(),
            executed_ns: phases.executed.as_nanos(),
            overran_ns: phases.overran.as_nanos(),
            held_ns: phases.held.as_nanos(),
        },
        // An observer of all events knows more than the job's own instants.
        chief: match blame {
            Some(blame) => blamed::chief(system, blame).map_or("too-short", |part| GROUPS[group(part.kind)].0),
            None => phase(phases.longest()),
        },
        explanation: match blame {
            _ if phases.longest() == Phase::ReleasedLate && moved_before(account, end) => {
                format!(
                    "was due {} before it was queued: its operation moved here in between",
                    time(phases.released_late)
                )
            }
            Some(blame) => blamed::because(system, blame, account.threads),
            None => explain(&phases, end, end.wcet(system)),
        },
        behind_ns: behind.as_ref().map(|(_, span)| span.as_nanos()),
        behind: behind.map(|(name, _)| name),
    }
}

/// Whether the operation moved to its processor after the release of this job.
fn moved_before(account: &ReportInput<'_>, end: &JobEnd) -> bool {
    let processor = account.system.operation(end.job.operation).on;
    let arrivals = account.figures.feedback.get(processor.index()).map_or(&[][..], |history| history.arrivals().0);
    arrivals.iter().any(|(at, id)| *id == end.job.operation && end.release < *at && *at <= end.ready)
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Upstream => "upstream",
        Phase::ReleasedLate => "released-late",
        Phase::Waited => "waited",
        Phase::Overran => "overran",
        Phase::Held => "held",
        Phase::TooShort => "too-short",
    }
}

fn explain(phases: &Phases, end: &JobEnd, wcet: Span) -> String {
    let time = |span| time(span);
    match phases.longest() {
        Phase::Upstream if end.job.leg > 0 => {
            format!("was triggered {} after its release, by the leg before it", time(phases.upstream))
        }
        Phase::Upstream => {
            format!("was triggered {} after the first release, by the operations before it", time(phases.upstream))
        }
        Phase::ReleasedLate if end.ready == Instant::NEVER => {
            format!("was held back for {} and never queued", time(phases.released_late))
        }
        Phase::ReleasedLate => format!("was queued {} after its release", time(phases.released_late)),
        Phase::Waited if end.start == Instant::NEVER => {
            format!("waited {} for other jobs and never started", time(phases.waited))
        }
        Phase::Waited => format!("waited {} for other jobs before it started", time(phases.waited)),
        Phase::Overran => format!("ran {} longer than its declared {}", time(phases.overran), time(wcet)),
        Phase::Held => format!("was preempted or blocked for {} once started", time(phases.held)),
        Phase::TooShort => format!("has less time than the {} that it executes", time(phases.executed)),
    }
}
