//! The answer, for programs.

use hyoshi_model::{Instant, Span, System};
use hyoshi_replay::blame::{BreakdownBasis, MOST_STRETCHES, Rank, ResponseBreakdown, ResponsePart, Stretch};
use hyoshi_report::blamed::{BlamedPart, together, words_of};
use hyoshi_report::lateness::OverrunSummary;
use hyoshi_trace::Wait;
use serde_json::{Value, json};

use super::super::head;
use super::path::{Earlier, Path};
use super::text::{decided, ended};
use super::{Decided, JobAnswer, MissList};

/// The key of a cause in JSON.
fn key(kind: ResponsePart) -> &'static str {
    match kind {
        ResponsePart::Upstream => "upstream",
        ResponsePart::Legs => "legs",
        ResponsePart::Link => "link",
        ResponsePart::Network { known: true } => "network",
        ResponsePart::Network { known: false } => "unknown",
        ResponsePart::Offset => "offset",
        ResponsePart::Jitter => "jitter",
        ResponsePart::Guard => "guard",
        ResponsePart::Moved { .. } => "moved",
        ResponsePart::TimerLate => "timer-late",
        ResponsePart::Waited { .. } => "waited",
        ResponsePart::Preempted { .. } => "preempted",
        ResponsePart::Resource { .. } => "resource",
        ResponsePart::Cap { .. } => "cap",
        ResponsePart::Demoted { .. } => "demoted",
        ResponsePart::Suspended => "suspended",
        ResponsePart::Asleep(_) => "asleep",
        ResponsePart::Executed => "executed",
        ResponsePart::Overran => "overran",
        ResponsePart::Overhead => "overhead",
        ResponsePart::Other(_) => "other-thread",
        ResponsePart::Stolen => "stolen",
        ResponsePart::Unexplained => "unexplained",
    }
}

/// What a body waited for, if the kernel showed it.
fn wait(kind: ResponsePart) -> Option<Wait> {
    match kind {
        ResponsePart::Asleep(wait) => wait,
        _ => None,
    }
}

/// A cause, the job that is blamed for it, and that job's overrun.
fn cause(system: &System, account: &ResponseBreakdown, kind: ResponsePart, names: &[String]) -> Value {
    let who = kind.culprit().map(|who| {
        let name = system.operations.get(who.operation.index()).map(|operation| operation.name.clone());
        json!({ "operation": name, "number": who.job.map(|job| job.0), "leg": who.job.map(|job| job.1) })
    });
    let rank = match kind {
        ResponsePart::Waited { rank, .. } | ResponsePart::Preempted { rank, .. } => Some(match rank {
            Rank::MoreUrgent => "more-urgent",
            Rank::Same => "same",
            Rank::LessUrgent => "less-urgent",
        }),
        _ => None,
    };
    let resource = match kind {
        ResponsePart::Resource { resource, .. } => {
            system.resources.get(resource.index()).map(|resource| resource.name.clone())
        }
        _ => None,
    };
    let thread = match kind {
        ResponsePart::Other(name) => names.get(name as usize).cloned(),
        _ => None,
    };
    let overrun = account.overrun(kind).map(|overrun| OverrunSummary::of(system, overrun));
    json!({
        "cause": key(kind), "who": who, "rank": rank, "resource": resource, "thread": thread, "wait": wait(kind), "overrun": overrun,
        "words": words_of(system, account, kind, names),
    })
}

/// Parts of all jobs of one operation or template together.
fn together_json(system: &System, part: &BlamedPart, names: &[String]) -> Value {
    let overrun = part.overran.map(|(overrun, _)| OverrunSummary::of(system, overrun));
    json!({
        "cause": key(part.kind), "wait": wait(part.kind), "operation": part.who.as_ref().map(|who| &who.name),
        "jobs": part.who.as_ref().and_then(|who| who.jobs), "span_ns": part.span.as_nanos(),
        "overrun": overrun, "overruns": part.overran.map_or(0, |(_, several)| several), "words": part.words(system, names),
    })
}

/// A job and the parts of its time.
fn account_json(system: &System, account: &ResponseBreakdown, names: &[String]) -> Value {
    let end = &account.end;
    let operation = system.operation(end.job.operation);
    let instant = |at: Instant| (at != Instant::NEVER).then(|| at.as_nanos());
    let with = |kind: ResponsePart, fields: Value| {
        let mut object = cause(system, account, kind, names);
        if let (Value::Object(object), Value::Object(fields)) = (&mut object, fields) {
            object.extend(fields);
        }
        object
    };
    let parts = account.parts.iter().map(|(kind, span)| with(*kind, json!({ "span_ns": span.as_nanos() })));
    let crossing = account.crossing.map(|crossing| {
        json!({
            "sent_at_ns": crossing.sent.as_nanos(), "received_at_ns": crossing.received.as_nanos(),
            "clock_error_ns": crossing.error.as_nanos(),
        })
    });
    let basis = match account.basis {
        BreakdownBasis::Exact => "exact",
        BreakdownBasis::Switches => "switches",
        BreakdownBasis::Inferred => "inferred",
    };
    json!({
        "operation": operation.name, "number": end.job.number, "leg": end.job.leg,
        "processor": system.processor(operation.on).name, "critical": end.critical, "outcome": end.outcome,
        "response_from_ns": account.from.as_nanos(), "release_at_ns": end.release.as_nanos(),
        "ready_at_ns": instant(end.ready), "start_at_ns": instant(end.start), "end_at_ns": end.end.as_nanos(),
        "deadline_at_ns": end.deadline.as_nanos(), "response_ns": account.response().as_nanos(),
        "lateness_ns": end.end.lateness(end.deadline).as_nanos(), "consumed_ns": end.consumed.as_nanos(),
        "wcet_ns": account.wcet.as_nanos(), "timed_out": account.timed_out, "held_before_ns": account.held_before.as_nanos(),
        "crossing": crossing, "basis": basis, "parts": parts.collect::<Vec<_>>(),
        "together": together(system, account).iter().map(|part| together_json(system, part, names)).collect::<Vec<_>>(),
    })
}

/// The whole answer for programs.
pub(super) fn job(system: &System, answer: &JobAnswer, bound: Result<Span, String>) -> Value {
    let account = &answer.account;
    let names = &answer.left.names;
    let timeline = account.timeline.iter().map(|Stretch { from, to, kind }| {
        let mut object = cause(system, account, *kind, names);
        if let Value::Object(object) = &mut object {
            object.insert("from_at_ns".into(), json!(from.as_nanos()));
            object.insert("to_at_ns".into(), json!(to.as_nanos()));
        }
        object
    });
    let decisions = answer
        .decisions
        .iter()
        .map(|(at, decision): &Decided| json!({ "at_ns": at.as_nanos(), "decision": decided(system, decision) }));
    let path = answer.path.hops.iter().map(|hop| account_json(system, hop, names));
    let dropped = answer.dropped.map(|(job, at)| {
        let operation = &system.operation(job.operation).name;
        json!({ "operation": operation, "number": job.number, "leg": job.leg, "at_ns": at.as_nanos() })
    });
    let regions = answer.regions.iter().map(|(contract, change)| json!({ "contract": contract, "change": change }));
    json!({
        "hyoshi": head("why"), "holds": answer.holds(), "dropped": dropped,
        "job": account_json(system, account, names), "verdict": ended(account),
        "timeline": timeline.collect::<Vec<_>>(), "timeline_whole": account.timeline.len() < MOST_STRETCHES,
        "path": path.collect::<Vec<_>>(), "decisions": decisions.collect::<Vec<_>>(),
        "regions": regions.collect::<Vec<_>>(),
        "bound_ns": bound.as_ref().ok().map(|bound| bound.as_nanos()), "bound_missing": bound.err(),
        "lost_events": answer.left.lost, "torn": answer.left.torn, "part": answer.left.part,
    })
}

/// The jobs that did not make their deadlines.
pub(super) fn list(system: &System, list: &MissList<'_>) -> Value {
    let names = &list.left.names;
    let miss = |path: &Path| {
        let mut object = account_json(system, path.hops.last()?, names);
        let earlier = path.earlier(system).map(|Earlier { hop, part, executed }| {
            let end = &hop.end;
            let operation = &system.operation(end.job.operation).name;
            let mut object = together_json(system, &part, names);
            if let Value::Object(object) = &mut object {
                object.insert("executed_ns".into(), json!(executed.as_nanos()));
                object.insert(
                    "of".into(),
                    json!({ "operation": operation, "number": end.job.number, "leg": end.job.leg }),
                );
            }
            object
        });
        if let Value::Object(object) = &mut object {
            object.insert("earlier".into(), json!(earlier));
        }
        Some(object)
    };
    json!({
        "hyoshi": head("why"), "holds": list.count == 0, "of": list.of, "jobs": list.ended, "not_made": list.count,
        "misses": list.worst.iter().filter_map(miss).collect::<Vec<_>>(), "lost_to": list.lost,
        "lost_events": list.left.lost, "torn": list.left.torn, "part": list.left.part,
    })
}
