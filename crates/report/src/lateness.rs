//! The time of late jobs, summed by cause and by the operations that delayed them.

use std::collections::BTreeMap;

use hyoshi_model::{Span, System};
use hyoshi_replay::blame::{Delay, Delays, Overrun, ResponsePart};
use serde::Serialize;

use crate::blamed::{GROUPS, group, name_of, overrun_figures, words_of_templates};
use crate::names::template;

/// The most causes, and the most culprits, that are listed for an operation.
const MOST_NAMED: usize = 8;

/// The delays of jobs that did not make their deadlines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LatenessSummary {
    /// The number of such jobs.
    pub jobs: u64,
    /// The sum of their times from release to end.
    pub response_ns: u64,
    /// That time by groups of causes, without empty groups.
    pub groups: Vec<GroupSummary>,
    /// The greatest causes other than their own execution.
    pub causes: Vec<CauseSummary>,
    /// The operations that delayed them for longest.
    pub culprits: Vec<CulpritSummary>,
}

/// A group of causes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupSummary {
    /// `upstream`, `held-back`, `released-late`, `waited`, `held`, `blocked`, `executed`, `overran` or `machine`.
    pub group: &'static str,
    /// Time of all the jobs.
    pub total_ns: u64,
}

/// A cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CauseSummary {
    /// In words, such as `waited for jobs of map, which are more urgent`.
    pub cause: String,
    /// Time of all the jobs.
    pub total_ns: u64,
    /// The longest of one job, behind one other operation.
    pub longest_ns: u64,
    /// The greatest overrun of the jobs that caused it.
    pub overrun: Option<OverrunSummary>,
}

/// An operation, or the instances of a template, that delayed late jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CulpritSummary {
    /// Its name.
    pub operation: String,
    /// The sum of these delays.
    pub total_ns: u64,
    /// That time by groups of causes.
    pub groups: Vec<GroupSummary>,
    /// Its greatest overrun that delayed a late job.
    pub overrun: Option<OverrunSummary>,
}

/// A job that used more CPU time than it declares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OverrunSummary {
    /// The job.
    pub job: String,
    /// Its declared worst case.
    pub declared_ns: u64,
    /// Its CPU time.
    pub used_ns: u64,
    /// Whether it had ended.
    pub ended: bool,
    /// The same as text.
    pub words: String,
}

impl OverrunSummary {
    /// Of an overrun.
    pub fn of(system: &System, overrun: Overrun) -> Self {
        let job = name_of(system, overrun.job);
        OverrunSummary {
            words: format!("{job} overran: {}", overrun_figures(overrun)),
            job,
            declared_ns: overrun.declared.as_nanos(),
            used_ns: overrun.used.as_nanos(),
            ended: overrun.ended,
        }
    }

    fn greater(one: Option<OverrunSummary>, other: Option<OverrunSummary>) -> Option<OverrunSummary> {
        let excess = |one: &OverrunSummary| one.used_ns.saturating_sub(one.declared_ns);
        match (one, other) {
            (Some(one), Some(other)) if excess(&other) > excess(&one) => Some(other),
            (one, other) => one.or(other),
        }
    }
}

/// Sums by culprit.
#[derive(Default)]
struct ByCulprit<'a>(BTreeMap<&'a str, ([u64; GROUPS.len()], Option<OverrunSummary>)>);

impl<'a> ByCulprit<'a> {
    fn add(&mut self, system: &'a System, kind: ResponsePart, delay: &Delay) {
        let Some(operation) = kind.culprit().and_then(|who| system.operations.get(who.operation.index())) else {
            return;
        };
        let (groups, overran) = self.0.entry(template(&operation.name)).or_default();
        let total = &mut groups[group(kind)];
        *total = total.saturating_add(delay.total.as_nanos());
        let worst = delay.worst.map(|worst| OverrunSummary::of(system, worst));
        *overran = OverrunSummary::greater(overran.take(), worst);
    }

    /// The greatest; of equal ones the first by name.
    fn greatest(self) -> Vec<CulpritSummary> {
        let one = |(name, (totals, overrun)): (&str, ([u64; GROUPS.len()], Option<OverrunSummary>))| CulpritSummary {
            operation: name.into(),
            total_ns: totals.iter().fold(0, |sum, total| sum.saturating_add(*total)),
            groups: named(totals),
            overrun,
        };
        let mut all: Vec<CulpritSummary> = self.0.into_iter().map(one).collect();
        all.sort_by_key(|culprit| core::cmp::Reverse(culprit.total_ns));
        all.truncate(MOST_NAMED);
        all
    }
}

fn named(totals: [u64; GROUPS.len()]) -> Vec<GroupSummary> {
    let all = GROUPS.iter().zip(totals).filter(|(_, total)| *total > 0);
    all.map(|((group, _), total_ns)| GroupSummary { group, total_ns }).collect()
}

/// The delays of the late jobs of several operations; `None` without late jobs.
pub fn lateness<'a>(
    system: &System,
    threads: &[String],
    all: impl Iterator<Item = &'a Delays>,
) -> Option<LatenessSummary> {
    let mut sum = LatenessSummary::default();
    let mut groups = [0u64; GROUPS.len()];
    let mut causes: Vec<CauseSummary> = Vec::new();
    let mut culprits = ByCulprit::default();
    for delays in all {
        sum.jobs += delays.jobs;
        sum.response_ns = sum.response_ns.saturating_add(delays.response.as_nanos());
        for (kind, delay) in delays.causes() {
            let place = &mut groups[group(kind)];
            *place = place.saturating_add(delay.total.as_nanos());
            if kind.is_own() {
                continue;
            }
            culprits.add(system, kind, &delay);
            let overrun = delay.worst.map(|worst| OverrunSummary::of(system, worst));
            let cause = words_of_templates(system, kind, threads);
            let (total_ns, longest_ns) = (delay.total.as_nanos(), delay.longest.as_nanos());
            match causes.iter_mut().find(|known| known.cause == cause) {
                Some(known) => {
                    known.total_ns = known.total_ns.saturating_add(total_ns);
                    known.longest_ns = known.longest_ns.max(longest_ns);
                    known.overrun = OverrunSummary::greater(known.overrun.take(), overrun);
                }
                None => causes.push(CauseSummary { cause, total_ns, longest_ns, overrun }),
            }
        }
        // Delays whose causes were not stored, to bound memory.
        let rest = &mut groups[GROUPS.len() - 1];
        *rest = rest.saturating_add(delays.rest.as_nanos());
    }
    causes.sort_by(|one, other| other.total_ns.cmp(&one.total_ns).then_with(|| one.cause.cmp(&other.cause)));
    causes.truncate(MOST_NAMED);
    sum.causes = causes;
    sum.culprits = culprits.greatest();
    sum.groups = named(groups);
    (sum.jobs > 0 && sum.response_ns > 0).then_some(sum)
}

/// The operation that delayed a late job for longest, and for how long.
pub(crate) fn most_behind(
    system: &System,
    account: &hyoshi_replay::blame::ResponseBreakdown,
) -> Option<(String, Span)> {
    let mut behind: Vec<(&str, Span)> = Vec::new();
    for (kind, span) in &account.parts {
        let Some(operation) = kind.culprit().and_then(|who| system.operations.get(who.operation.index())) else {
            continue;
        };
        let name = template(&operation.name);
        match behind.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum = Span::from_nanos(sum.as_nanos().saturating_add(span.as_nanos())),
            None => behind.push((name, *span)),
        }
    }
    // Of equal ones the first by name: reports are repeatable.
    behind.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(other.0)));
    behind.first().map(|(name, span)| (name.to_string(), *span))
}
