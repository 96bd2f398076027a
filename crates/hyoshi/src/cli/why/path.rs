//! The jobs before a job in its chain, each with the parts of its time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use hyoshi_model::{Instant, JobId, ProcessorId, Span, System};
use hyoshi_replay::blame::{Blame, Interest, ResponseBreakdown, ResponsePart};
use hyoshi_report::blamed::{BlamedPart, together};
use hyoshi_trace::TraceEvent;

use super::super::CliError;
use super::super::recorded::{ReadingEnd, Recorded};
use super::network::{self, SignalWay};

/// The most legs of one operation that a path follows.
const MOST_LEGS: u16 = 64;

/// The most operations of a path.
const LONGEST_PATH: usize = 32;

/// A job and the jobs that led to it, the root's first.
pub(super) struct Path {
    pub hops: Vec<ResponseBreakdown>,
}

/// The time of the earlier stages of a chain.
pub(super) struct Earlier<'a> {
    /// Execution as declared, of all of them.
    pub executed: Span,
    /// The stage with the greatest other cause, and that cause.
    pub hop: &'a ResponseBreakdown,
    pub part: BlamedPart,
}

impl Path {
    /// The greatest cause in the stages before the last, if they did not only execute as declared.
    pub fn earlier(&self, system: &System) -> Option<Earlier<'_>> {
        let before = self.hops.split_last().map_or(&[][..], |(_, before)| before);
        let executed = before
            .iter()
            .map(|hop| hop.total(|kind| kind == ResponsePart::Executed))
            .fold(Span::ZERO, |sum, one| sum.checked_add(one).unwrap_or(sum));
        let causes = before.iter().flat_map(|hop| together(system, hop).into_iter().map(move |part| (hop, part)));
        let causes = causes.filter(|(_, part)| !part.kind.is_own() && !is_earlier(part.kind));
        // Of equal ones the first: it caused the later ones.
        causes.reduce(|one, other| if other.1.span > one.1.span { other } else { one }).map(|(hop, part)| Earlier {
            hop,
            part,
            executed,
        })
    }
}

/// True for time that the jobs before explain.
pub(super) fn is_earlier(kind: ResponsePart) -> bool {
    matches!(kind, ResponsePart::Upstream | ResponsePart::Legs)
}

/// Accounts of the jobs in `wanted`, with their timelines, in one pass; `each` sees every event.
pub(super) fn accounts(
    recorded: &Recorded,
    wanted: &BTreeSet<JobId>,
    mut each: impl FnMut(ProcessorId, Instant, &TraceEvent),
) -> Result<(BTreeMap<JobId, ResponseBreakdown>, ReadingEnd), CliError> {
    let system = &recorded.system;
    let exact = recorded.header.verb == "sim";
    let concerned: BTreeSet<ProcessorId> = wanted.iter().map(|job| system.operation(job.operation).on).collect();
    let mut laws: BTreeMap<ProcessorId, Blame<'_>> = BTreeMap::new();
    for plan in recorded.plan.processors.iter().filter(|plan| concerned.contains(&plan.processor)) {
        let law = Blame::new(system, plan, exact, Interest::Jobs(wanted.clone())).by_clock_of(recorded.clock());
        laws.insert(plan.processor, law);
    }
    let mut found = BTreeMap::new();
    let left = network::events(recorded, |processor, at, event, way| {
        each(processor, at, &event);
        let Some(law) = laws.get_mut(&processor) else { return ControlFlow::Continue(()) };
        if let Some(SignalWay::Network(crossing)) = way {
            law.crosses(crossing);
        }
        if let Some(account) = law.event(at, &event) {
            found.entry(account.end.job).or_insert(account);
        }
        ControlFlow::Continue(())
    })?;
    Ok((found, left))
}

/// The jobs that led to each of these. `known` has the accounts of all jobs in `asked` so far. If release numbers
/// change along the way (a merge, a join of several roots), each change takes another pass over the recording.
pub(super) fn follow(
    recorded: &Recorded,
    jobs: &[ResponseBreakdown],
    mut known: BTreeMap<JobId, ResponseBreakdown>,
    mut asked: BTreeSet<JobId>,
) -> Result<Vec<Path>, CliError> {
    let mut paths: Vec<Path> = Vec::new();
    for _ in 0..LONGEST_PATH {
        let mut missing = BTreeSet::new();
        paths = jobs.iter().map(|job| walk(job, &known, &mut missing)).collect();
        let next: BTreeSet<JobId> = missing.iter().flat_map(|job| with_upstream(&recorded.system, *job)).collect();
        let next: BTreeSet<JobId> = next.difference(&asked).copied().collect();
        if next.is_empty() {
            break;
        }
        let (found, _) = accounts(recorded, &next, |_, _, _| ())?;
        // Only the requested jobs are shown step by step.
        known.extend(
            found.into_iter().map(|(job, account)| (job, ResponseBreakdown { timeline: Vec::new(), ..account })),
        );
        asked.extend(next);
    }
    Ok(paths)
}

/// Follows a job back as far as accounts are known. Puts the next unknown job into `missing`.
fn walk(job: &ResponseBreakdown, known: &BTreeMap<JobId, ResponseBreakdown>, missing: &mut BTreeSet<JobId>) -> Path {
    let mut hops = vec![job.clone()];
    while let Some(before) = hops.last().and_then(|hop| hop.by).filter(|_| hops.len() < LONGEST_PATH) {
        let latest_leg = || {
            let legs = known.range(JobId { leg: 0, ..before }..=JobId { leg: u16::MAX, ..before });
            legs.map(|(_, account)| account).max_by_key(|account| account.end.end)
        };
        match known.get(&before).or_else(latest_leg) {
            Some(hop) if hops.iter().all(|one| one.end.job != hop.end.job) => hops.push(hop.clone()),
            Some(_) => break,
            None => {
                missing.insert(before);
                break;
            }
        }
    }
    hops.reverse();
    Path { hops }
}

/// A job and the jobs with its number in the operations before: most of them led to it.
pub(super) fn with_upstream(system: &System, job: JobId) -> BTreeSet<JobId> {
    let mut jobs = BTreeSet::from([job]);
    let mut pending = vec![job.operation];
    let mut seen = BTreeSet::new();
    while let Some(id) = pending.pop() {
        if !seen.insert(id) || seen.len() > 4 * LONGEST_PATH {
            continue;
        }
        let legs = system.epochs.iter().map(|epoch| epoch.settings[id.index()].legs).max().unwrap_or(1);
        let legs = if id == job.operation { job.leg } else { legs };
        jobs.extend((0..legs.min(MOST_LEGS)).map(|leg| JobId { operation: id, number: job.number, leg }));
        pending.extend(system.operation(id).trigger.predecessors());
    }
    jobs
}
