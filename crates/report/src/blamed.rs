//! The causes of a job's delay as text and in groups, for all forms of reports.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hyoshi_model::{JobId, OperationId, ProcessorId, Span, System};
use hyoshi_replay::blame::{Culprit, Overrun, Rank, ResponseBreakdown, ResponsePart};
use hyoshi_trace::Wait;

use crate::figures::{printable, time};
use crate::names::template;

/// Groups of causes, in the order in which a bar shows them; with the page's colour for each.
pub const GROUPS: [(&str, &str); 9] = [
    ("upstream", "before it"),
    ("held-back", "held by guard, offset or jitter"),
    ("released-late", "released late"),
    ("waited", "waited"),
    ("held", "preempted"),
    ("blocked", "blocked"),
    ("executed", "executed as declared"),
    ("overran", "beyond its worst case"),
    ("machine", "scheduling, the machine, unexplained"),
];

/// The group of a cause.
pub(crate) fn group(kind: ResponsePart) -> usize {
    match kind {
        ResponsePart::Upstream | ResponsePart::Legs | ResponsePart::Link | ResponsePart::Network { .. } => 0,
        ResponsePart::Offset | ResponsePart::Jitter | ResponsePart::Guard => 1,
        ResponsePart::Moved { .. } | ResponsePart::TimerLate => 2,
        ResponsePart::Waited { .. } => 3,
        ResponsePart::Preempted { .. } => 4,
        ResponsePart::Resource { .. }
        | ResponsePart::Cap { .. }
        | ResponsePart::Demoted { .. }
        | ResponsePart::Suspended
        | ResponsePart::Asleep(_) => 5,
        ResponsePart::Executed => 6,
        ResponsePart::Overran => 7,
        ResponsePart::Overhead | ResponsePart::Other(_) | ResponsePart::Stolen | ResponsePart::Unexplained => 8,
    }
}

/// A job as people write it, and as `hyoshi why` takes it: `nav#812`, `route#12.3` for a leg.
pub fn name_of(system: &System, job: JobId) -> String {
    let name = system.operations.get(job.operation.index()).map_or("?", |operation| &operation.name);
    match job.leg {
        0 => format!("{name}#{}", job.number),
        leg => format!("{name}#{}.{leg}", job.number),
    }
}

/// A part of a job's time, with all jobs of one operation or template together.
#[derive(Clone, Debug)]
pub struct BlamedPart {
    /// The cause; of several jobs, that of the first.
    pub kind: ResponsePart,
    /// How long in all.
    pub span: Span,
    /// The jobs that caused it.
    pub who: Option<Blamed>,
    /// The greatest overrun among them, and of how many it is.
    pub overran: Option<(Overrun, usize)>,
}

/// Jobs that are blamed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blamed {
    /// Their operation, or their template if they are of several of its instances.
    pub name: String,
    /// How many jobs; `None` if they were not counted.
    pub jobs: Option<usize>,
}

/// The parts of a job's time, longest first.
pub fn together(system: &System, account: &ResponseBreakdown) -> Vec<BlamedPart> {
    // By kind and template.
    let mut by = BTreeMap::<(ResponsePart, Option<&str>), Vec<_>>::new();
    for (kind, span) in &account.parts {
        let template = kind.culprit().map(|who| template(operation(system, who.operation)));
        by.entry((kind.of_anybody(), template)).or_default().push((*kind, *span));
    }
    let part = |parts: Vec<(ResponsePart, Span)>| {
        let kind = parts[0].0;
        let overruns: Vec<Overrun> = parts.iter().filter_map(|(kind, _)| account.overrun(*kind)).collect();
        let greatest = overruns.iter().max_by_key(|overrun| (overrun.excess(), Reverse(overrun.job))).copied();
        BlamedPart {
            kind,
            span: parts.iter().fold(Span::ZERO, |sum, (_, span)| plus(sum, *span)),
            who: kind.culprit().map(|who| blamed(system, who, &parts)),
            overran: greatest.map(|greatest| (greatest, overruns.len())),
        }
    };
    let mut all: Vec<BlamedPart> = by.into_values().map(part).collect();
    all.sort_by_key(|part| (Reverse(part.span), part.kind));
    all
}

fn blamed(system: &System, first: Culprit, parts: &[(ResponsePart, Span)]) -> Blamed {
    let culprits = || parts.iter().filter_map(|(kind, _)| kind.culprit());
    let one = culprits().all(|who| who.operation == first.operation);
    let name = operation(system, first.operation);
    Blamed {
        name: if one { name } else { template(name) }.to_owned(),
        jobs: culprits().all(|who| who.job.is_some()).then_some(parts.len()),
    }
}

/// Sums saturate: an edited recording may contain centuries.
fn plus(sum: Span, more: Span) -> Span {
    Span::from_nanos(sum.as_nanos().saturating_add(more.as_nanos()))
}

fn operation(system: &System, id: OperationId) -> &str {
    system.operations.get(id.index()).map_or("?", |operation| &operation.name)
}

/// The greatest part of a job's time except its own execution.
pub fn chief(system: &System, account: &ResponseBreakdown) -> Option<BlamedPart> {
    together(system, account).into_iter().find(|part| !part.kind.is_own())
}

/// The same in words, for a line of a table.
pub fn because(system: &System, account: &ResponseBreakdown, threads: &[String]) -> String {
    match chief(system, account) {
        Some(part) => format!("{} {}", time(part.span), part.words(system, threads)),
        None => "its deadline is shorter than its execution".into(),
    }
}

impl BlamedPart {
    /// The cause as text, with the jobs that caused it and their overruns.
    pub fn words(&self, system: &System, threads: &[String]) -> String {
        let words = match &self.who {
            Some(Blamed { jobs: Some(1), .. }) | None => words(system, self.kind, threads),
            Some(Blamed { name, jobs: Some(jobs) }) => {
                phrase(system, self.kind.by_operation(), threads, |_| format!("{jobs} jobs of {name}"))
            }
            Some(Blamed { name, jobs: None }) => {
                phrase(system, self.kind.by_operation(), threads, |_| format!("jobs of {name}"))
            }
        };
        match self.overran {
            Some((overrun, several)) => format!("{words}{}", overran(system, self.kind, overrun, several)),
            None => words,
        }
    }
}

/// One part as it is, with the overrun that is behind it.
pub fn words_of(system: &System, account: &ResponseBreakdown, kind: ResponsePart, threads: &[String]) -> String {
    let words = words(system, kind, threads);
    match account.overrun(kind) {
        Some(overrun) => format!("{words}{}", self::overran(system, kind, overrun, 1)),
        None => words,
    }
}

/// The overrun of the jobs that caused a delay.
fn overran(system: &System, kind: ResponsePart, overrun: Overrun, several: usize) -> String {
    let figures = overrun_figures(overrun);
    match kind {
        ResponsePart::Overran => format!(": {figures}"),
        _ if several > 1 => {
            format!("; {several} of them overran, {} the most: {figures}", name_of(system, overrun.job))
        }
        _ if kind.culprit().is_some_and(|who| who.job == Some((overrun.job.number, overrun.job.leg))) => {
            format!("; it overran: {figures}")
        }
        _ => format!("; {} overran: {figures}", name_of(system, overrun.job)),
    }
}

/// What a job declares and what it used: `declares 4ms, used 9ms`.
pub fn overrun_figures(overrun: Overrun) -> String {
    // The difference, if three digits are the same for both.
    let (declared, used) = (time(overrun.declared), time(overrun.used));
    let so_far = if overrun.ended { "" } else { " so far" };
    match declared == used {
        true => format!("declares {declared}, used {} more{so_far}", time(overrun.excess())),
        false => format!("declares {declared}, used {used}{so_far}"),
    }
}

/// A cause as text, with the jobs that caused it. `threads` are the names of other threads by their numbers.
pub fn words(system: &System, kind: ResponsePart, threads: &[String]) -> String {
    phrase(system, kind, threads, |who| match who.job {
        Some((number, leg)) => name_of(system, JobId { operation: who.operation, number, leg }),
        None => format!("jobs of {}", operation(system, who.operation)),
    })
}

/// The same with the instances of a template together.
pub(crate) fn words_of_templates(system: &System, kind: ResponsePart, threads: &[String]) -> String {
    let jobs = |who: Culprit| format!("jobs of {}", template(operation(system, who.operation)));
    phrase(system, kind.by_operation(), threads, jobs)
}

fn phrase(system: &System, kind: ResponsePart, threads: &[String], who: impl Fn(Culprit) -> String) -> String {
    let is = |who: Culprit| if who.job.is_some() { "is" } else { "are" };
    let ran = |other: Option<Culprit>| other.map_or(String::new(), |other| format!(", while {} ran", who(other)));
    match kind {
        ResponsePart::Upstream => "before it: the jobs that triggered it".into(),
        ResponsePart::Legs => "before it: the earlier legs of its chain".into(),
        ResponsePart::Link => "on the link to its processor".into(),
        ResponsePart::Network { known: true } => "on the network, from another host".into(),
        ResponsePart::Network { known: false } => {
            "unknown: on the network or before it; the hosts' clocks may differ by more than this".into()
        }
        ResponsePart::Offset => "held: its declared offset".into(),
        ResponsePart::Jitter => "held: its declared jitter".into(),
        ResponsePart::Guard => "held by its release guard".into(),
        ResponsePart::Moved { from, to } => {
            let name = |id: ProcessorId| system.processors.get(id.index()).map_or("?", |one| &one.name);
            match from == to {
                true => format!("released late: its operation could not move from `{}` meanwhile", name(from)),
                false => {
                    format!("released late: its operation moved from `{}` to `{}` meanwhile", name(from), name(to))
                }
            }
        }
        ResponsePart::TimerLate => "released late: the timer or the release thread was late".into(),
        ResponsePart::Waited { who: other, rank: Rank::MoreUrgent } => {
            format!("waited for {}, which {} more urgent", who(other), is(other))
        }
        ResponsePart::Waited { who: other, rank: Rank::Same } => {
            format!("waited for {}, first in its lane", who(other))
        }
        ResponsePart::Waited { who: other, rank: Rank::LessUrgent } => {
            format!("waited for {}, less urgent, but already running", who(other))
        }
        ResponsePart::Preempted { who: other, rank: Rank::MoreUrgent } => {
            format!("preempted by {}, which {} more urgent", who(other), is(other))
        }
        ResponsePart::Preempted { who: other, .. } => format!("preempted by {}", who(other)),
        ResponsePart::Resource { resource, by } => {
            let resource = system.resources.get(resource.index()).map_or("?", |resource| &resource.name);
            match by {
                Some(by) if by.job.is_some() => format!("blocked: {} uses `{resource}`", who(by)),
                Some(by) => format!("blocked: {} use `{resource}`", who(by)),
                None => format!("blocked: `{resource}` was held on another processor"),
            }
        }
        ResponsePart::Cap { behind } => format!("stopped by the cap{}", ran(behind)),
        ResponsePart::Demoted { behind } => format!("demoted below the lanes, beyond its worst case{}", ran(behind)),
        ResponsePart::Suspended => "suspended itself".into(),
        ResponsePart::Asleep(None) => "blocked: its body slept or waited for something undeclared".into(),
        ResponsePart::Asleep(Some(Wait::Sleep)) => "blocked: its body slept".into(),
        ResponsePart::Asleep(Some(Wait::Lock)) => {
            "blocked: its body waited for an undeclared lock or for another thread".into()
        }
        ResponsePart::Asleep(Some(Wait::Page)) => "blocked: its body waited for a page of memory (page fault)".into(),
        ResponsePart::Asleep(Some(Wait::Io)) => "blocked: its body waited for a disk".into(),
        ResponsePart::Executed => "executed, within its declared worst case".into(),
        ResponsePart::Overran => "executed, beyond its declared worst case".into(),
        ResponsePart::Overhead => "scheduling itself: the release and lane threads".into(),
        ResponsePart::Other(name) => match threads.get(name as usize) {
            Some(name) => format!("another thread, `{}`", printable(name)),
            None => "another thread".into(),
        },
        ResponsePart::Stolen => "a hypervisor used the CPU".into(),
        ResponsePart::Unexplained => "unexplained (inferred: interrupts, other threads, a hypervisor)".into(),
    }
}
