//! What led to a job: the jobs before it in its chain, each with where its time went.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use hyoshi_model::{Instant, JobId, ProcessorId, Span, System};
use hyoshi_replay::blame::{Account, Blame, Interest, Kind};
use hyoshi_report::blamed::{Part, together};
use hyoshi_trace::Event;

use super::super::Failure;
use super::super::recorded::{Left, Recorded};
use super::network::{self, Way};

/// Legs of one operation that are followed along a path.
const MOST_LEGS: u16 = 64;

/// Operations of a path.
const LONGEST_PATH: usize = 32;

/// A job and those that led to it, the root's first.
pub(super) struct Path {
    pub hops: Vec<Account>,
}

/// What the earlier stages of a chain spent their time on.
pub(super) struct Earlier<'a> {
    /// What they executed as declared, together.
    pub executed: Span,
    /// The greatest other cause, and the stage that lost so much to it.
    pub hop: &'a Account,
    pub part: Part,
}

impl Path {
    /// The greatest cause in the stages before the last, if they did not only execute as declared.
    pub fn earlier(&self, system: &System) -> Option<Earlier<'_>> {
        let before = self.hops.split_last().map_or(&[][..], |(_, before)| before);
        let executed = before
            .iter()
            .map(|hop| hop.total(|kind| kind == Kind::Executed))
            .fold(Span::ZERO, |sum, one| sum.checked_add(one).unwrap_or(sum));
        let causes = before.iter().flat_map(|hop| together(system, hop).into_iter().map(move |part| (hop, part)));
        let causes = causes.filter(|(_, part)| !part.kind.is_own() && !is_earlier(part.kind));
        // Of equal ones the first: what came after followed from it.
        causes.reduce(|one, other| if other.1.span > one.1.span { other } else { one }).map(|(hop, part)| Earlier {
            hop,
            part,
            executed,
        })
    }
}

/// True for what is explained by the jobs before.
pub(super) fn is_earlier(kind: Kind) -> bool {
    matches!(kind, Kind::Upstream | Kind::Legs)
}

/// Accounts of the jobs in `wanted`, with their timelines, in one pass; `each` sees every event.
pub(super) fn accounts(
    recorded: &Recorded,
    wanted: &BTreeSet<JobId>,
    mut each: impl FnMut(ProcessorId, Instant, &Event),
) -> Result<(BTreeMap<JobId, Account>, Left), Failure> {
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
        if let Some(Way::Network(crossing)) = way {
            law.crosses(crossing);
        }
        if let Some(account) = law.event(at, &event) {
            found.entry(account.end.job).or_insert(account);
        }
        ControlFlow::Continue(())
    })?;
    Ok((found, left))
}

/// What led to each of some jobs. `known` are accounts that are there already, of all jobs in `asked`; where release
/// numbers change along the way (a merge, a join of several roots), the one before is known only then, and takes
/// another pass for all of them together.
pub(super) fn follow(
    recorded: &Recorded,
    jobs: &[Account],
    mut known: BTreeMap<JobId, Account>,
    mut asked: BTreeSet<JobId>,
) -> Result<Vec<Path>, Failure> {
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
        // Only of the jobs themselves somebody wants to see each step.
        known.extend(found.into_iter().map(|(job, account)| (job, Account { timeline: Vec::new(), ..account })));
        asked.extend(next);
    }
    Ok(paths)
}

/// Back from a job as far as accounts are known; what is wanted to go on is put into `missing`.
fn walk(job: &Account, known: &BTreeMap<JobId, Account>, missing: &mut BTreeSet<JobId>) -> Path {
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

/// A job and those with its number in the operations before: mostly those that led to it.
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
