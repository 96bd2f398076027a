//! What the law of blame says of a job's time, in words and in groups: the same ones wherever it is told.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hyoshi_model::{JobId, OperationId, Span, System};
use hyoshi_replay::blame::{Account, Culprit, Kind, Overrun, Rank};
use hyoshi_trace::Wait;

use crate::figures::{printable, time};
use crate::names::template;

/// Groups of causes, in the order in which a bar shows them; with the page's colour for each.
pub const GROUPS: [(&str, &str); 8] = [
    ("upstream", "before it"),
    ("released-late", "released late"),
    ("waited", "waited"),
    ("held", "preempted"),
    ("blocked", "blocked"),
    ("executed", "executed as declared"),
    ("overran", "beyond its worst case"),
    ("machine", "scheduling, the machine, unexplained"),
];

/// The group of a cause.
pub(crate) fn group(kind: Kind) -> usize {
    match kind {
        Kind::Upstream | Kind::Legs | Kind::Link | Kind::Network { .. } => 0,
        Kind::Offset | Kind::Jitter | Kind::Guard | Kind::TimerLate => 1,
        Kind::Waited { .. } => 2,
        Kind::Preempted { .. } => 3,
        Kind::Resource { .. } | Kind::Cap { .. } | Kind::Demoted { .. } | Kind::Suspended | Kind::Asleep(_) => 4,
        Kind::Executed => 5,
        Kind::Overran => 6,
        Kind::Overhead | Kind::Other(_) | Kind::Stolen | Kind::Unexplained => 7,
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
pub struct Part {
    /// What it was; of several jobs, what it was to the first of them.
    pub kind: Kind,
    /// How long in all.
    pub span: Span,
    /// Who is blamed for it, if somebody is.
    pub who: Option<Blamed>,
    /// The greatest overrun among them, and of how many it is.
    pub overran: Option<(Overrun, usize)>,
}

/// Jobs that are blamed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blamed {
    /// Their operation, or their template if they are of several of its instances.
    pub name: String,
    /// How many jobs; `None` where nobody counted.
    pub jobs: Option<usize>,
}

/// The parts of a job's time, longest first.
pub fn together(system: &System, account: &Account) -> Vec<Part> {
    // By kind and template.
    let mut by = BTreeMap::<(Kind, Option<&str>), Vec<_>>::new();
    for (kind, span) in &account.parts {
        let template = kind.culprit().map(|who| template(operation(system, who.operation)));
        by.entry((kind.of_anybody(), template)).or_default().push((*kind, *span));
    }
    let part = |parts: Vec<(Kind, Span)>| {
        let kind = parts[0].0;
        let overruns: Vec<Overrun> = parts.iter().filter_map(|(kind, _)| account.overrun(*kind)).collect();
        let greatest = overruns.iter().max_by_key(|overrun| (overrun.excess(), Reverse(overrun.job))).copied();
        Part {
            kind,
            span: parts.iter().fold(Span::ZERO, |sum, (_, span)| plus(sum, *span)),
            who: kind.culprit().map(|who| blamed(system, who, &parts)),
            overran: greatest.map(|greatest| (greatest, overruns.len())),
        }
    };
    let mut all: Vec<Part> = by.into_values().map(part).collect();
    all.sort_by_key(|part| (Reverse(part.span), part.kind));
    all
}

fn blamed(system: &System, first: Culprit, parts: &[(Kind, Span)]) -> Blamed {
    let culprits = || parts.iter().filter_map(|(kind, _)| kind.culprit());
    let one = culprits().all(|who| who.operation == first.operation);
    let name = operation(system, first.operation);
    Blamed {
        name: if one { name } else { template(name) }.to_owned(),
        jobs: culprits().all(|who| who.job.is_some()).then_some(parts.len()),
    }
}

/// Sums stop at the greatest span: an edited recording may tell of centuries.
fn plus(sum: Span, more: Span) -> Span {
    Span::from_nanos(sum.as_nanos().saturating_add(more.as_nanos()))
}

fn operation(system: &System, id: OperationId) -> &str {
    system.operations.get(id.index()).map_or("?", |operation| &operation.name)
}

/// What took most of a job's time beyond what it needs of its own.
pub fn chief(system: &System, account: &Account) -> Option<Part> {
    together(system, account).into_iter().find(|part| !part.kind.is_own())
}

/// The same in words, for a line of a table.
pub fn because(system: &System, account: &Account, threads: &[String]) -> String {
    match chief(system, account) {
        Some(part) => format!("{} {}", time(part.span), part.words(system, threads)),
        None => "its deadline is shorter than its execution".into(),
    }
}

impl Part {
    /// What it was, in words: with whom it is blamed on, and by how much those overran.
    pub fn words(&self, system: &System, threads: &[String]) -> String {
        let words = match &self.who {
            Some(Blamed { jobs: Some(1), .. }) | None => words(system, self.kind, threads),
            Some(Blamed { name, jobs: Some(jobs) }) => {
                told(system, self.kind.by_operation(), threads, |_| format!("{jobs} jobs of {name}"))
            }
            Some(Blamed { name, jobs: None }) => {
                told(system, self.kind.by_operation(), threads, |_| format!("jobs of {name}"))
            }
        };
        match self.overran {
            Some((overrun, several)) => format!("{words}{}", overran(system, self.kind, overrun, several)),
            None => words,
        }
    }
}

/// One part as it is, with the overrun that is behind it.
pub fn words_of(system: &System, account: &Account, kind: Kind, threads: &[String]) -> String {
    let words = words(system, kind, threads);
    match account.overrun(kind) {
        Some(overrun) => format!("{words}{}", self::overran(system, kind, overrun, 1)),
        None => words,
    }
}

/// By how much somebody overran, to stand behind what is blamed on them.
fn overran(system: &System, kind: Kind, overrun: Overrun, several: usize) -> String {
    let figures = overrun_figures(overrun);
    match kind {
        Kind::Overran => format!(": {figures}"),
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
    // Beyond three digits where these would say the same of both.
    let (declared, used) = (time(overrun.declared), time(overrun.used));
    let so_far = if overrun.ended { "" } else { " so far" };
    match declared == used {
        true => format!("declares {declared}, used {} more{so_far}", time(overrun.excess())),
        false => format!("declares {declared}, used {used}{so_far}"),
    }
}

/// A cause in words, with whom it is blamed on. `threads` are the names of other threads by their numbers.
pub fn words(system: &System, kind: Kind, threads: &[String]) -> String {
    told(system, kind, threads, |who| match who.job {
        Some((number, leg)) => name_of(system, JobId { operation: who.operation, number, leg }),
        None => format!("jobs of {}", operation(system, who.operation)),
    })
}

/// The same with the instances of a template together.
pub(crate) fn words_of_templates(system: &System, kind: Kind, threads: &[String]) -> String {
    let jobs = |who: Culprit| format!("jobs of {}", template(operation(system, who.operation)));
    told(system, kind.by_operation(), threads, jobs)
}

fn told(system: &System, kind: Kind, threads: &[String], who: impl Fn(Culprit) -> String) -> String {
    let is = |who: Culprit| if who.job.is_some() { "is" } else { "are" };
    let ran = |other: Option<Culprit>| other.map_or(String::new(), |other| format!(", while {} ran", who(other)));
    match kind {
        Kind::Upstream => "came before it: the jobs that led to it".into(),
        Kind::Legs => "came before it: the legs of its chain".into(),
        Kind::Link => "on the link to its processor".into(),
        Kind::Network { known: true } => "on the network, from another host".into(),
        Kind::Network { known: false } => {
            "unknown: on the network or before it; the hosts' clocks may differ by more than this".into()
        }
        Kind::Offset => "its declared offset".into(),
        Kind::Jitter => "released late: its declared jitter".into(),
        Kind::Guard => "held by its release guard".into(),
        Kind::TimerLate => "released late: the timer or the release thread came late".into(),
        Kind::Waited { who: other, rank: Rank::MoreUrgent } => {
            format!("waited for {}, which {} more urgent", who(other), is(other))
        }
        Kind::Waited { who: other, rank: Rank::Same } => format!("waited for {}, first in its lane", who(other)),
        Kind::Waited { who: other, rank: Rank::LessUrgent } => {
            format!("waited for {}, less urgent, but begun", who(other))
        }
        Kind::Preempted { who: other, rank: Rank::MoreUrgent } => {
            format!("preempted by {}, which {} more urgent", who(other), is(other))
        }
        Kind::Preempted { who: other, .. } => format!("gave way to {}", who(other)),
        Kind::Resource { resource, by } => {
            let resource = system.resources.get(resource.index()).map_or("?", |resource| &resource.name);
            match by {
                Some(by) if by.job.is_some() => format!("blocked: {} has to do with `{resource}`", who(by)),
                Some(by) => format!("blocked: {} have to do with `{resource}`", who(by)),
                None => format!("blocked: `{resource}` was held on another processor"),
            }
        }
        Kind::Cap { behind } => format!("kept back by the cap{}", ran(behind)),
        Kind::Demoted { behind } => format!("below the lanes, beyond its worst case{}", ran(behind)),
        Kind::Suspended => "blocked by its own will".into(),
        Kind::Asleep(None) => "blocked: its body slept, or waited for something that the file does not declare".into(),
        Kind::Asleep(Some(Wait::Sleep)) => "blocked: its body slept".into(),
        Kind::Asleep(Some(Wait::Lock)) => {
            "blocked: its body waited for a lock that the file does not declare, or for another thread".into()
        }
        Kind::Asleep(Some(Wait::Page)) => "blocked: its body waited for a page of memory (page fault)".into(),
        Kind::Asleep(Some(Wait::Io)) => "blocked: its body waited for a disk".into(),
        Kind::Executed => "executed, within its declared worst case".into(),
        Kind::Overran => "executed, beyond its declared worst case".into(),
        Kind::Overhead => "scheduling itself: the release and lane threads".into(),
        Kind::Other(name) => match threads.get(name as usize) {
            Some(name) => format!("the thread `{}`, which is none of this processor's lanes", printable(name)),
            None => "a thread that is none of this processor's lanes".into(),
        },
        Kind::Stolen => "a hypervisor took the CPU".into(),
        Kind::Unexplained => "unexplained (inferred: interrupts, other threads, a hypervisor)".into(),
    }
}
